/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measured on a 2-core x86-64 virtual machine, Linux 6.18, glibc 2.36, gcc 12.2, clang 14: of the
 * 21 blocking calls of tests/support/blockers.c, each five own functions deep among old frames,
 * how many stacks are complete and equal to the return addresses the thread wrote down
 * (`test_stack table`):
 *
 *                                    with anchor   without   wrong frames   disturbed (EINTR)
 *     gcc   -O0                           21          21          0                0
 *     gcc   -O2                           21          21          0                0
 *     gcc   -O2 -fno-omit-frame-pointer   21          21          0                0
 *     clang -O0                           21          21          0                0
 *     clang -O2                           21          21          0                0
 *     clang -O2 -fno-omit-frame-pointer   21          21          0                0
 *     gcc   -O1, address sanitizer        18          18          0                0
 *     gcc   -O1, thread sanitizer         21          21          0                0
 *
 * The 3 are gaps in the sanitizer's own wrappers, which realign their stack; the dump goes on at
 * the anchor. Without an anchor it would end there. Every capture takes 25-30 us, most of it the
 * two readings of /proc and the copying; the first one of a process 0.25-0.45 ms, or up to 5 ms
 * if the files of the modules are not in the page cache.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "symbol.h"
#include "taskinfo.h"
#include "unwind.h"

#define WINDOW_BYTES 65536u
#define WALK_FRAMES  256u
#define KEEP_INNER   40u /* of a stack too deep for FCI_STACK_FRAMES; the rest is its outer end */
#define SNAPSHOTS    3u
#define SCAN_WORDS   2048u
#define PUSHED_WORDS 8u

struct walked {
	struct fci_regs regs;
	uint64_t cfa; /* 0: unknown */
	uint32_t flags;
};

struct fci_unwinder {
	struct fci_image image;
	pid_t owner;              /* process that made image.dwfl */
	unsigned long long loads; /* fci_modules_loads when it was made */
	struct fci_task_window windows[2]; /* at the stack pointer; at the anchor */
	uint8_t bytes[2][WINDOW_BYTES];
	struct walked walked[WALK_FRAMES];
};

int fci_unwinder_create(struct fci_unwinder **ret)
{
	struct fci_unwinder *u = calloc(1, sizeof *u);

	if (!u)
		return -ENOMEM;
	for (unsigned i = 0; i < 2; i++)
		u->windows[i].bytes = u->bytes[i];
	u->image.windows = u->windows;
	u->image.nwindows = 2;
	*ret = u;
	return 0;
}

struct fci_unwinder *fci_unwinder_destroy(struct fci_unwinder *u)
{
	if (u && u->image.dwfl && u->owner == getpid())
		dwfl_end(u->image.dwfl);
	free(u);
	return NULL;
}

static int open_modules(struct fci_unwinder *u)
{
	unsigned long long loads = fci_modules_loads();
	pid_t pid = getpid();

	if (u->image.dwfl && u->owner == pid && u->loads == loads)
		return 0;
	if (u->image.dwfl && u->owner == pid)
		dwfl_end(u->image.dwfl);
	u->image.dwfl = fci_modules_open(false);
	u->owner = pid;
	u->loads = loads;
	return u->image.dwfl ? 0 : -ENOMEM;
}

/* ---- walking ---- */

/* Walk from regs, filling u->walked from index n on. Returns the new count; *ret_why it ended. */
static unsigned walk(struct fci_unwinder *u, unsigned n, struct fci_regs regs, uint32_t flags,
                     enum fci_step *ret_why)
{
	*ret_why = FCI_STEP_OK;
	while (n < WALK_FRAMES && *ret_why == FCI_STEP_OK) {
		struct fci_regs next = regs;
		struct walked *w = &u->walked[n++];

		w->regs = regs;
		w->cfa = 0;
		w->flags = flags | (regs.exact ? FCI_FRAME_EXACT : 0);
		*ret_why = fci_unwind_step(&u->image, &regs, &next, &w->cfa);
		regs = next;
	}
	return n;
}

/* Index of the frame with this CFA among u->walked[from..n), or n. */
static unsigned find_cfa(const struct fci_unwinder *u, unsigned from, unsigned n, uint64_t cfa)
{
	while (from < n && u->walked[from].cfa != cfa)
		from++;
	return from;
}

/* Do the chain's first return address and its end bear out a deduced frame pointer? */
static bool try_fp(struct fci_unwinder *u, unsigned last, struct fci_regs regs, uint64_t fp,
                   uint64_t start, enum fci_link least, uint64_t anchor_cfa, unsigned *n,
                   enum fci_step *why)
{
	struct fci_regs next;
	enum fci_step rc;
	unsigned count;
	uint64_t cfa;

	regs.fp = fp;
	regs.has_fp = true;
	rc = fci_unwind_step(&u->image, &regs, &next, &cfa);
	if (rc == FCI_STEP_OK ? fci_unwind_link(next.pc, start) < least : rc != FCI_STEP_END)
		return false;
	count = walk(u, last, regs, FCI_FRAME_DEDUCED, &rc);
	if (anchor_cfa ? find_cfa(u, last, count, anchor_cfa) == count : rc != FCI_STEP_END)
		return false;
	*n = count;
	*why = rc;
	return true;
}

/*
 * The walk stopped at u->walked[*n - 1] for want of its frame pointer. Find it:
 * 1. The anchor's, if the stack pointer is the anchor's: frames of live calls do not overlap, so
 *    it is the same call of the same function.
 * 2. From the size of the frame if it is fixed, plus a word of alignment and arguments pushed for
 *    the call. The return address must follow a call of this function or through a pointer.
 * 3. Word by word: the return address must follow a call of just this function. Old frames of
 *    finished calls lie about in a stack and lead to plausible chains with a frame repeated or
 *    out of date; that they called another function than the blocked one gives them away.
 */
static void cross_gap(struct fci_unwinder *u, const struct fci_anchor *anchor,
                      uint64_t anchor_cfa, unsigned *n, enum fci_step *why)
{
	unsigned last = *n - 1;
	const struct walked stopped = u->walked[last];
	const struct fci_regs regs = stopped.regs;
	uint64_t start = 0, frame_bytes = 0, word;
	bool fixed = false;

	if (anchor_cfa && regs.sp == anchor->sp &&
	    try_fp(u, last, regs, anchor->bp, 0, FCI_LINK_NONE, anchor_cfa, n, why))
		return;
	if (fci_unwind_prologue(&u->image, regs.exact ? regs.pc : regs.pc - 1, &start,
	                        &fixed, &frame_bytes)) {
		uint64_t fp = regs.sp + frame_bytes;

		for (unsigned i = 0; fixed && i <= PUSHED_WORDS; i++)
			if (try_fp(u, last, regs, fp + 8 * i, start, FCI_LINK_INDIRECT, anchor_cfa, n,
			           why))
				return;
		for (unsigned i = 0; i < SCAN_WORDS; i++) {
			fp = regs.sp + 8 * i;
			if (anchor_cfa && fp >= anchor_cfa)
				break;
			if (fci_image_load(&u->image, fp + 8, &word) &&
			    dwfl_addrmodule(u->image.dwfl, word) &&
			    try_fp(u, last, regs, fp, start, FCI_LINK_PROVED, anchor_cfa, n, why))
				return;
		}
	}
	u->walked[last] = stopped;
}

static const char *why_text(enum fci_step why)
{
	switch (why) {
	case FCI_STEP_OK:      return "stack deeper than 256 frames";
	case FCI_STEP_END:     return "";
	case FCI_STEP_NO_FP:   return "frame pointer unknown";
	case FCI_STEP_NO_LR:   return "link register unknown";
	case FCI_STEP_NO_CODE: return "no call frame information";
	case FCI_STEP_BAD:     return "stack damaged or deeper than the copy";
	}
	return "";
}

/* The CFA of the anchor's frame, or 0 if the anchor does not point to a live frame. */
static uint64_t anchor_frame(const struct fci_unwinder *u, const struct fci_anchor *anchor,
                             struct fci_regs *ret)
{
	struct fci_regs next;
	enum fci_step rc;
	uint64_t cfa = 0;

	if (!anchor || !anchor->pc || !anchor->sp)
		return 0;
	*ret = (struct fci_regs){ .pc = anchor->pc, .sp = anchor->sp, .fp = anchor->bp,
	                          .has_fp = true };
	rc = fci_unwind_step(&u->image, ret, &next, &cfa);
	if (rc == FCI_STEP_END)
		return cfa;
	return rc == FCI_STEP_OK && fci_unwind_link(next.pc, 0) != FCI_LINK_NONE ? cfa : 0;
}

/* ---- the result ---- */

static void emit(const struct fci_unwinder *u, unsigned n, struct fci_stack *ret)
{
	unsigned skip = n > FCI_STACK_FRAMES ? n - FCI_STACK_FRAMES : 0;

	ret->nomitted = skip;
	for (unsigned i = 0; i < n - skip; i++) {
		const struct walked *w = &u->walked[skip && i >= KEEP_INNER ? i + skip : i];

		ret->frames[i].pc = w->regs.pc;
		ret->frames[i].flags = w->flags;
		if (skip && i == KEEP_INNER)
			ret->frames[i].flags |= FCI_FRAME_AFTER_GAP;
	}
	ret->nframes = n - skip;
}

static unsigned walk_outer(struct fci_unwinder *u, unsigned n, struct fci_regs from,
                           enum fci_step *why)
{
	unsigned first = n;

	if (n > WALK_FRAMES / 2)
		n = first = WALK_FRAMES / 2;
	n = walk(u, n, from, 0, why);
	u->walked[first].flags |= FCI_FRAME_GUARD | FCI_FRAME_AT_ENTER |
	                          (first ? FCI_FRAME_AFTER_GAP : 0);
	return n;
}

static void unwind_blocked(struct fci_unwinder *u, const struct fci_task_where *where,
                           const struct fci_anchor *anchor, struct fci_stack *ret)
{
	struct fci_regs at_anchor,
		inner = { .pc = where->pc, .sp = where->sp, .exact = true };
	uint64_t anchor_cfa = anchor_frame(u, anchor, &at_anchor);
	enum fci_step why, inner_why;
	unsigned guard, n = walk(u, 0, inner, 0, &why);

	if (why == FCI_STEP_NO_FP)
		cross_gap(u, anchor, anchor_cfa, &n, &why);
	inner_why = why;
	guard = anchor_cfa ? find_cfa(u, 0, n, anchor_cfa) : n;
	if (guard < n) {
		u->walked[guard].flags |= FCI_FRAME_GUARD;
	} else if (anchor_cfa && why != FCI_STEP_END) {
		guard = n < WALK_FRAMES / 2 ? n : WALK_FRAMES / 2;
		n = walk_outer(u, n, at_anchor, &why);
	}
	for (unsigned i = 0; i < guard && guard < n; i++)
		u->walked[i].flags |= FCI_FRAME_INNER;

	ret->status = why != FCI_STEP_END         ? FCI_STACK_PARTIAL
	              : inner_why != FCI_STEP_END ? FCI_STACK_GAP
	                                          : FCI_STACK_COMPLETE;
	if (inner_why != FCI_STEP_END && inner_why != why)
		snprintf(ret->text, sizeof ret->text,
		         "some frames inside the guard not recoverable: %s", why_text(inner_why));
	else if (why != FCI_STEP_END)
		snprintf(ret->text, sizeof ret->text, "frames further out not recoverable: %s",
		         why_text(why));
	else if (anchor && anchor->pc && guard == n)
		snprintf(ret->text, sizeof ret->text, "the guard's frame is not on this stack");
	emit(u, n, ret);
}

/* No inner frames to be had: those outside the guard lie still as long as the call is inside. */
static void unwind_outer(struct fci_unwinder *u, bool running, const struct fci_anchor *anchor,
                         struct fci_stack *ret)
{
	const char *state = running ? "running" : "moving";
	struct fci_regs at_anchor;
	enum fci_step why;
	ssize_t got = -1;

	ret->status = running ? FCI_STACK_RUNNING : FCI_STACK_MOVING;
	if (anchor)
		got = fci_task_read_memory(anchor->sp, u->bytes[1], WINDOW_BYTES);
	u->windows[0].size_bytes = 0;
	u->windows[1].lo = anchor ? anchor->sp : 0;
	u->windows[1].size_bytes = got > 0 ? (uint64_t)got : 0;
	if (anchor_frame(u, anchor, &at_anchor)) {
		emit(u, walk_outer(u, 0, at_anchor, &why), ret);
		snprintf(ret->text, sizeof ret->text,
		         "the thread is %s: only the frames outside the guard%s%s", state,
		         why == FCI_STEP_END ? "" : ", not all: ", why_text(why));
	} else {
		snprintf(ret->text, sizeof ret->text, "the thread is %s: no frames", state);
	}
}

int fci_stack_capture(struct fci_unwinder *u, pid_t tid, const struct fci_anchor *anchor,
                      struct fci_stack *ret)
{
	struct fci_task_where where = { .running = false };
	int rc = tid > 0 ? 0 : -EINVAL;

	memset(ret, 0, offsetof(struct fci_stack, frames));
	ret->tid = tid;
	ret->status = FCI_STACK_NONE;
	ret->text[0] = '\0';
	if (tid == (pid_t)syscall(SYS_gettid)) {
		where.running = true;
		rc = -EAGAIN;
	}
	for (unsigned i = 0; !rc && i < SNAPSHOTS; i++) {
		u->windows[0].size_bytes = WINDOW_BYTES;
		u->windows[1].lo = anchor ? anchor->sp : 0;
		u->windows[1].size_bytes = anchor ? WINDOW_BYTES : 0;
		rc = fci_task_snapshot(tid, &where, u->windows, anchor ? 2 : 1);
		if (rc != -EAGAIN || where.running)
			break;
		if (i + 1 < SNAPSHOTS)
			rc = 0;
	}
	if (!rc || rc == -EAGAIN) {
		int opened = open_modules(u);

		rc = opened ? opened : rc;
	}
	if (rc && rc != -EAGAIN) {
		snprintf(ret->text, sizeof ret->text, "stack not available: %s",
		         fci_task_error_text(rc));
		return rc;
	}
	if (rc == -EAGAIN)
		unwind_outer(u, where.running, anchor, ret);
	else
		unwind_blocked(u, &where, anchor, ret);
	return 0;
}

/* FNV-1a over words. */
uint64_t fci_stack_hash(const struct fci_stack *stack)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (uint64_t)(uint32_t)stack->status;

	for (uint32_t i = 0; i < stack->nframes; i++) {
		hash = (hash ^ stack->frames[i].pc) * UINT64_C(0x100000001b3);
		hash ^= hash >> 29;
	}
	return hash * UINT64_C(0x9e3779b97f4a7c15);
}
