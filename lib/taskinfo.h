/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * taskinfo.h - what the kernel says of one thread of this process, and a copy of its stack.
 *
 * Everything here looks and never touches: it reads files below /proc/self/task/TID and copies
 * memory through the kernel. No signal is sent and nothing is traced, so a blocked call stays
 * blocked. Memory is never dereferenced: the thread may end and its stack be unmapped at any
 * moment, and then a read says -EFAULT.
 *
 * Threads.  All functions may run on any thread, beside each other. Async-signal-safe, except
 *           fci_taskinfo_format.
 * Fork.     No state: works in the child.
 * Errors.   0, or one of: -EINVAL (tid <= 0), -ESRCH (no such thread in THIS process: a thread
 *           that ended and a thread of another process look the same), -EACCES (the process
 *           changed its user id, so the kernel hides the file), -ENOTSUP (no /proc, or a kernel
 *           without the file), -EFAULT (memory not mapped), -EAGAIN (the thread moved).
 *           fci_task_error_text puts each into words. Nothing sets errno for the caller.
 * Memory.   None allocated.
 * Cost.     x86-64: fci_taskinfo_read 11 us; fci_task_where 2 us; fci_task_snapshot 15 us.
 */
#ifndef FCI_TASKINFO_H
#define FCI_TASKINFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FCI_TASK_COMM_BYTES  16
#define FCI_TASK_WCHAN_BYTES 48

/* Where a thread is, from /proc/self/task/TID/syscall. */
struct fci_task_where {
	bool running;       /* on a CPU or about to be: the kernel gives nothing else */
	int32_t syscall_nr; /* -1: blocked outside a system call (a page fault) */
	uint64_t sp;        /* user stack pointer */
	uint64_t pc;        /* user program counter: after the syscall instruction */
};

/* One field each; an error (negative) tells why the field beside it is empty. */
struct fci_taskinfo {
	pid_t tid;
	int comm_error;
	int state_error;    /* also of the two switch counts */
	int wchan_error;    /* -ENODATA: the kernel gives no name (running, or hidden) */
	int where_error;
	char state;         /* R S D T t Z X, as in proc(5) */
	char comm[FCI_TASK_COMM_BYTES];
	char wchan[FCI_TASK_WCHAN_BYTES]; /* kernel function it sleeps in */
	uint64_t voluntary_switches;
	uint64_t involuntary_switches;
	struct fci_task_where where;
};

/* A piece of copied memory: bytes[0] was at address lo. */
struct fci_task_window {
	uint64_t lo;
	uint64_t size_bytes; /* in: room; out: what could be copied, cut at the first unmapped page */
	uint8_t *bytes;
};

/* Fill *ret as far as the kernel allows. Returns 0 if any field could be read, else the error. */
int fci_taskinfo_read(pid_t tid, struct fci_taskinfo *ret);

/*
 * One line for a log: `worker-3 (tid 812) sleeping in poll (syscall 7), kernel do_sys_poll,
 * 12 switches`; `worker-3 (tid 812) running, 12 switches`. A field that could not be read is replaced by
 * why; a kernel function that has no name is left out. Returns the length written, without the NUL;
 * the text is cut to fit.
 */
size_t fci_taskinfo_format(const struct fci_taskinfo *info, char *buf, size_t buf_bytes);

/* Where the thread is now. 0 or an error; *ret is written only on success. */
int fci_task_where(pid_t tid, struct fci_task_where *ret);

/*
 * Copy the memory of windows[0..n) and prove that the thread stood still meanwhile: its place
 * and its switch counts are the same before and after. windows[0].lo is set here, to just below
 * the stack pointer; the others are given. Returns 0; -EAGAIN if it moved or runs (ret->running
 * tells which); -EFAULT if nothing at the stack pointer is mapped. *ret is written on 0, -EAGAIN
 * and -EFAULT.
 */
int fci_task_snapshot(pid_t tid, struct fci_task_where *ret, struct fci_task_window *windows,
                      unsigned n);

/* Copy memory of this process. Returns the bytes copied (cut at the first unmapped page), or -EFAULT. */
ssize_t fci_task_read_memory(uint64_t addr, void *buf, size_t bytes);

/* "poll", or NULL for a call that is not in the table of calls that can block. Static text. */
const char *fci_task_syscall_name(int32_t nr);

/* The errors above in words. Static text. */
const char *fci_task_error_text(int error);

#endif /* FCI_TASKINFO_H */
