/* SPDX-License-Identifier: BSD-2-Clause */
/* report.c - see report.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "entry.h"
#include "list.h"
#include "report.h"
#include "symbol.h"
#include "thread.h"

#define LOOKS 3 /* at the list of threads, when somebody holds it */

/* ---- text -------------------------------------------------------------------------------------- */

void fci_text_init(struct fci_text *t, char *buf, size_t bytes)
{
	*t = (struct fci_text){ .buf = buf, .bytes = bytes };
	buf[0] = '\0';
}

void fci_text_add(struct fci_text *t, const char *format, ...)
{
	size_t room = t->bytes - t->used;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(t->buf + t->used, room, format, ap);
	va_end(ap);
	if (n > 0)
		t->used += (size_t)n < room ? (size_t)n : room - 1;
}

void fci_text_age(struct fci_text *t, uint64_t ns)
{
	if (ns < FC_S(1))
		fci_text_add(t, "%llu ms", (unsigned long long)(ns / 1000000));
	else
		fci_text_add(t, "%llu.%llu s", (unsigned long long)(ns / FC_S(1)),
		             (unsigned long long)(ns / FC_MS(100) % 10));
}

/* ---- where a call stands ----------------------------------------------------------------------- */

static int look(uint32_t tid, struct fci_thread_view *ret)
{
	int rc = -1;

	for (int i = 0; i < LOOKS && rc < 0; i++)
		rc = fci_thread_look(tid, ret);
	return rc;
}

/*
 * Registers at the guard, from the entry. That lies in the memory of its thread, which may end or go
 * on at any moment: it is copied through the kernel and believed only if it is this call's. An entry
 * on the heap tells nothing of a stack. *ret_gone: it is not there any more.
 */
static int anchor_of(const struct fc_iface *f, const struct fci_view *v, const struct fci_thread_view *t,
                     struct fci_anchor *ret, int *ret_gone)
{
	uint64_t addr = FCI_FRAME_ADDR(v->frame), sp;
	struct fc_entry e;

	*ret_gone = 1;
	if (fci_task_read_memory(addr, &e, sizeof(e)) != (ssize_t)sizeof(e) || e.slot_ != v->slot || e.iface_ != f ||
	    e.word_ == 0 || e.word_ >= FCI_PARKED_FIRST || !fci_same_call(e.word_, v->word))
		return 0;
	*ret_gone = 0;
	sp = addr - FCI_E_SP(e.meta_);
	if (sp > addr || sp < t->stack_lo || addr >= t->stack_hi)
		return 0;
	*ret = (struct fci_anchor){ .pc = e.data_[0], .sp = sp, .bp = e.data_[1] };
	return 1;
}

static void no_stack(struct fci_capture *c, const char *why)
{
	c->stack.status = FCI_STACK_NONE;
	c->stack.nframes = 0;
	snprintf(c->stack.text, sizeof(c->stack.text), "%s", why);
}

void fci_capture(const struct fc_iface *f, const struct fci_view *v, struct fci_unwinder *unwinder,
                 const char *why_not, struct fci_capture *ret)
{
	struct fci_thread_view t = { .stack_hi = 0 };
	struct fci_anchor anchor;
	int here;

	memset(ret, 0, offsetof(struct fci_capture, stack) + offsetof(struct fci_stack, frames));
	ret->tid = v->tid;
	no_stack(ret, "");
	if ((uint64_t)FCI_OWNER(v->word) << 3 != fci_me(f)) {
		ret->standing = FCI_FOREIGN;
		return;
	}
	if (fci_is_detached(v->word)) {
		ret->standing = FCI_MOVED;
		return;
	}
	if (look(v->tid, &t) == 0 || fci_taskinfo_read((pid_t)v->tid, &ret->info) == -ESRCH) {
		ret->standing = FCI_ENDED;
		return;
	}
	here = anchor_of(f, v, &t, &anchor, &ret->entry_gone);
	if (unwinder)
		(void)fci_stack_capture(unwinder, (pid_t)v->tid, here ? &anchor : NULL, &ret->stack);
	else
		no_stack(ret, why_not);
}

uint64_t fci_capture_hash(const struct fci_capture *c)
{
	if (c->standing != FCI_STANDS)
		return (uint64_t)c->standing;
	/* Without a stack the call they sleep in tells places apart, as far as it goes. */
	if (c->stack.status == FCI_STACK_NONE)
		return fci_stack_hash(&c->stack) + (uint32_t)c->info.where.syscall_nr * 2u + c->info.where.running;
	return fci_stack_hash(&c->stack);
}

/* ---- words ------------------------------------------------------------------------------------- */

void fci_capture_thread(const struct fci_capture *c, struct fci_text *t)
{
	char line[256];

	switch (c->standing) {
	case FCI_MOVED:
		fci_text_add(t, "  entered by thread %u and moved out of it: who holds it now has no stack to show\n", c->tid);
		return;
	case FCI_ENDED:
		fci_text_add(t, "  thread %u has ended without leaving\n", c->tid);
		return;
	case FCI_FOREIGN:
		fci_text_add(t, "  thread %u of another process: its own reports show the stack\n", c->tid);
		return;
	default:
		fci_taskinfo_format(&c->info, line, sizeof(line));
		fci_text_add(t, "  thread %s\n", line);
		if (c->entry_gone)
			fci_text_add(t, "  its entry is not where it was: moved, left without an exit (longjmp), or overwritten\n");
	}
}

void fci_capture_stack(const struct fci_capture *c, struct fci_symboliser *sym, struct fci_text *t)
{
	for (uint32_t i = 0; i < c->stack.nframes; i++) {
		const struct fci_frame *frame = &c->stack.frames[i];
		struct fci_symbol symbol;
		char line[400];

		if (!sym || fci_symbol_get(sym, fci_frame_address(frame), &symbol) != 0) {
			memset(&symbol, 0, sizeof(symbol));
			symbol.address = fci_frame_address(frame);
		}
		fci_symbol_format(&symbol, line, sizeof(line));
		if (frame->flags & FCI_FRAME_AFTER_GAP)
			fci_text_add(t, "  (frames are missing here)\n");
		fci_text_add(t, "  #%u %s%s\n", i, line,
		             !(frame->flags & FCI_FRAME_GUARD) ? ""
		             : frame->flags & FCI_FRAME_AT_ENTER ? "  <- guard entered here"
		                                                 : "  <- guarded here");
	}
	if (c->stack.text[0])
		fci_text_add(t, "  %s\n", c->stack.text);
}
