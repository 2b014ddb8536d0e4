/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report.h - where one call stands, found out without touching its thread, and put into words.
 *
 *     thread worker-3 (tid 4711) sleeping in poll (syscall 7), kernel do_sys_poll, 12 switches
 *     #0 poll (libc.so.6+0xf8e20)
 *     #1 http_get at client.c:88 (server+0x2c41)
 *     #2 handle_report at server.c:124 (server+0x1f07)  <- guarded here
 *
 * Threads.  Any; an unwinder and a symboliser belong to one thread at a time.
 * Memory.   The caller's.
 */
#ifndef FCI_REPORT_H
#define FCI_REPORT_H

#include "inflight.h"
#include "stack.h"
#include "taskinfo.h"

struct fci_symboliser;

/* Text in a buffer of fixed size, always terminated; what does not fit is cut. */
struct fci_text {
	char *buf;
	size_t bytes, used;
};
void fci_text_init(struct fci_text *t, char *buf, size_t bytes);
void fci_text_add(struct fci_text *t, const char *format, ...) FC_PRINTF_(2, 3);
void fci_text_age(struct fci_text *t, uint64_t ns); /* "5.2 s", "87 ms" */

/* Whether a call has a thread of this process, on whose stack it stands. */
enum fci_standing {
	FCI_STANDS = 0,
	FCI_MOVED = 1,   /* moved out of its thread: whoever will exit it need not stand anywhere */
	FCI_ENDED = 2,   /* its thread is gone */
	FCI_FOREIGN = 3, /* in another process */
};

struct fci_capture {
	uint32_t tid;
	int standing;           /* enum fci_standing */
	int entry_gone;         /* the entry is not where it was: left by longjmp, or overwritten */
	struct fci_taskinfo info;
	struct fci_stack stack; /* status FCI_STACK_NONE: text says why */
};

/* Fill *ret for the call of a view, taken while it was inside. unwinder NULL: no stack, why_not
 * says why. */
void fci_capture(const struct fc_iface *f, const struct fci_view *v, struct fci_unwinder *unwinder,
                 const char *why_not, struct fci_capture *ret);

/* Equal for calls that stand in one place. */
uint64_t fci_capture_hash(const struct fci_capture *c);

/* Lines, each with two blanks in front and a newline at its end: of the thread, and of the stack.
 * Addresses that sym does not know (yet) are printed as they are. */
void fci_capture_thread(const struct fci_capture *c, struct fci_text *t);
void fci_capture_stack(const struct fci_capture *c, struct fci_symboliser *sym, struct fci_text *t);

#endif /* FCI_REPORT_H */
