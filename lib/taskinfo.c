/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "taskinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE_BYTES     4096u /* the granularity of a cut copy; larger pages are fine too */
#define MAX_PIECES     64u
#define RED_ZONE_BYTES 128u  /* x86-64: a leaf function may keep data below its stack pointer */

/* ---- small files, without stdio so that a signal handler may ask too ---- */

static char *put_dec(char *at, uint64_t value)
{
	char digits[20];
	size_t n = 0;

	do {
		digits[n++] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	while (n)
		*at++ = digits[--n];
	return at;
}

static int open_task_file(pid_t tid, const char *name)
{
	char path[64] = "/proc/self/task/";
	char *at = put_dec(path + strlen(path), (uint64_t)tid);

	*at++ = '/';
	strcpy(at, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Why could the file not be read? The same errno can mean the thread or the kernel. */
static int file_error(pid_t tid, int error)
{
	char path[48] = "/proc/self/task/";

	if (error == EACCES || error == EPERM)
		return -EACCES;
	if (error != ENOENT && error != ESRCH)
		return -error;
	if (access("/proc/self/task", F_OK))
		return -ENOTSUP;
	*put_dec(path + strlen(path), (uint64_t)tid) = '\0';
	return access(path, F_OK) ? -ESRCH : -ENOTSUP;
}

/* Read the file into buf as one string. Returns its length or an error. */
static ssize_t read_task_file(pid_t tid, const char *name, char *buf, size_t buf_bytes)
{
	int saved_errno = errno;
	size_t used = 0;
	ssize_t n = 0;
	int fd, error = 0;

	if (tid <= 0)
		return -EINVAL;
	fd = open_task_file(tid, name);
	if (fd < 0)
		error = errno;
	while (!error && used < buf_bytes - 1) {
		n = read(fd, buf + used, buf_bytes - 1 - used);
		if (n < 0 && errno != EINTR)
			error = errno;
		if (n == 0)
			break;
		if (n > 0)
			used += (size_t)n;
	}
	if (fd >= 0)
		close(fd);
	buf[used] = '\0';
	if (error)
		error = file_error(tid, error);
	errno = saved_errno;
	return error ? error : (ssize_t)used;
}

/* Read a number, decimal or 0x..., and step over it and the blanks around it. */
static uint64_t take_number(const char **at)
{
	const char *p = *at;
	uint64_t value = 0, base = 10;

	while (*p == ' ' || *p == '\t')
		p++;
	if (p[0] == '0' && p[1] == 'x') {
		base = 16;
		p += 2;
	}
	for (;; p++) {
		unsigned digit = (unsigned char)*p;

		if (digit >= '0' && digit <= '9')
			digit -= '0';
		else if (base == 16 && digit >= 'a' && digit <= 'f')
			digit -= 'a' - 10;
		else
			break;
		value = value * base + digit;
	}
	while (*p == ' ')
		p++;
	*at = p;
	return value;
}

/* The file reads `running`, `-1 SP PC`, or `NR a1 a2 a3 a4 a5 a6 SP PC`. */
int fci_task_where(pid_t tid, struct fci_task_where *ret)
{
	struct fci_task_where where = { .syscall_nr = -1 };
	const char *at;
	char buf[256];
	ssize_t n = read_task_file(tid, "syscall", buf, sizeof buf);

	if (n < 0)
		return (int)n;
	at = buf;
	if (*at == '-') {
		at++;
		take_number(&at);
	} else if (*at >= '0' && *at <= '9') {
		where.syscall_nr = (int32_t)take_number(&at);
		for (int i = 0; i < 6; i++)
			take_number(&at);
	} else {
		where.running = true;
	}
	if (!where.running) {
		where.sp = take_number(&at);
		where.pc = take_number(&at);
	}
	*ret = where;
	return 0;
}

static uint64_t number_after(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	if (!at)
		return 0;
	at += strlen(key);
	return take_number(&at);
}

static int read_switches(pid_t tid, char *ret_state, uint64_t *ret_voluntary,
                         uint64_t *ret_involuntary)
{
	char buf[4096];
	const char *state;
	ssize_t n = read_task_file(tid, "status", buf, sizeof buf);

	if (n < 0)
		return (int)n;
	state = strstr(buf, "State:\t");
	*ret_state = state ? state[7] : '?';
	*ret_voluntary = number_after(buf, "\nvoluntary_ctxt_switches:");
	*ret_involuntary = number_after(buf, "\nnonvoluntary_ctxt_switches:");
	return 0;
}

int fci_taskinfo_read(pid_t tid, struct fci_taskinfo *ret)
{
	ssize_t n;

	memset(ret, 0, sizeof *ret);
	ret->tid = tid;
	n = read_task_file(tid, "comm", ret->comm, sizeof ret->comm);
	if (n < 0)
		ret->comm_error = (int)n;
	else
		ret->comm[strcspn(ret->comm, "\n")] = '\0';

	n = read_task_file(tid, "wchan", ret->wchan, sizeof ret->wchan);
	if (n < 0)
		ret->wchan_error = (int)n;
	else if (n == 0 || !strcmp(ret->wchan, "0"))
		ret->wchan_error = -ENODATA;
	if (ret->wchan_error)
		ret->wchan[0] = '\0';

	ret->state_error = read_switches(tid, &ret->state, &ret->voluntary_switches,
	                                 &ret->involuntary_switches);
	ret->where_error = fci_task_where(tid, &ret->where);
	if (ret->comm_error && ret->state_error && ret->wchan_error && ret->where_error)
		return ret->state_error;
	return 0;
}

/* ---- memory ---- */

/* Where process_vm_readv is forbidden (seccomp) or missing, the kernel has a file for it. */
static ssize_t read_memory_by_file(uint64_t addr, void *buf, size_t bytes)
{
	int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -EFAULT;
	n = pread(fd, buf, bytes, (off_t)addr);
	close(fd);
	return n > 0 ? n : -EFAULT;
}

ssize_t fci_task_read_memory(uint64_t addr, void *buf, size_t bytes)
{
	struct iovec local = { buf, bytes }, remote[MAX_PIECES];
	int saved_errno = errno;
	unsigned n = 0;
	uint64_t at = addr;
	ssize_t got;

	/* One piece per page: a copy is cut only between pieces, so that a hole at the end of a
	 * stack costs no more than itself. */
	while (at - addr < bytes && n < MAX_PIECES) {
		uint64_t piece = PAGE_BYTES - at % PAGE_BYTES;

		if (piece > bytes - (at - addr) || n == MAX_PIECES - 1)
			piece = bytes - (at - addr);
		remote[n].iov_base = (void *)(uintptr_t)at;
		remote[n++].iov_len = (size_t)piece;
		at += piece;
	}
	got = process_vm_readv(getpid(), &local, 1, remote, n, 0);
	if (got < 0 && (errno == ENOSYS || errno == EPERM))
		got = read_memory_by_file(addr, buf, bytes);
	errno = saved_errno;
	return got > 0 ? got : -EFAULT;
}

static bool same_place(const struct fci_task_where *a, const struct fci_task_where *b)
{
	return !a->running && !b->running && a->syscall_nr == b->syscall_nr && a->sp == b->sp &&
	       a->pc == b->pc;
}

/*
 * The order is the proof: counts, place, copy, place, counts. A thread that left the call and
 * came back to the same place has slept once more, which its counts tell.
 */
int fci_task_snapshot(pid_t tid, struct fci_task_where *ret, struct fci_task_window *windows,
                      unsigned n)
{
	struct fci_task_where after;
	uint64_t voluntary[2], involuntary[2];
	bool mapped = true;
	char state;
	int rc;

	rc = read_switches(tid, &state, &voluntary[0], &involuntary[0]);
	if (!rc)
		rc = fci_task_where(tid, ret);
	if (rc)
		return rc;
	if (ret->running)
		return -EAGAIN;

	windows[0].lo = ret->sp > RED_ZONE_BYTES ? ret->sp - RED_ZONE_BYTES : ret->sp;
	for (unsigned i = 0; i < n; i++) {
		ssize_t got = fci_task_read_memory(windows[i].lo, windows[i].bytes,
		                                   (size_t)windows[i].size_bytes);

		windows[i].size_bytes = got > 0 ? (uint64_t)got : 0;
		mapped = mapped && (i > 0 || got > 0);
	}

	rc = fci_task_where(tid, &after);
	if (!rc)
		rc = read_switches(tid, &state, &voluntary[1], &involuntary[1]);
	if (rc)
		return rc;
	if (!same_place(ret, &after) || voluntary[0] != voluntary[1] ||
	    involuntary[0] != involuntary[1]) {
		ret->running = after.running;
		return -EAGAIN;
	}
	return mapped ? 0 : -EFAULT;
}

/* ---- words ---- */

const char *fci_task_error_text(int error)
{
	switch (error) {
	case 0:        return "ok";
	case -EINVAL:  return "not a thread id";
	case -ESRCH:   return "no such thread in this process";
	case -EACCES:  return "the kernel denies it: the process changed its user id or is not dumpable";
	case -ENOTSUP: return "the kernel or the /proc mount does not offer it";
	case -EFAULT:  return "the stack pointer points to no readable memory";
	case -EAGAIN:  return "the thread is moving";
	case -ENODATA: return "the kernel names none";
	case -ENOMEM:  return "out of memory";
	default:       return "reading it failed";
	}
}

/* A call missing on one machine (poll on aarch64) is left out there. */
static const struct {
	int32_t nr;
	const char *name;
} syscalls[] = {
#define CALL(name_) { SYS_##name_, #name_ },
	CALL(read) CALL(write) CALL(readv) CALL(writev) CALL(pread64) CALL(pwrite64)
	CALL(openat) CALL(close) CALL(fsync) CALL(fdatasync) CALL(flock) CALL(fcntl) CALL(ioctl)
	CALL(ppoll) CALL(pselect6) CALL(epoll_pwait) CALL(nanosleep) CALL(clock_nanosleep)
	CALL(futex) CALL(connect) CALL(accept) CALL(accept4) CALL(sendto) CALL(recvfrom)
	CALL(sendmsg) CALL(recvmsg) CALL(recvmmsg) CALL(sendmmsg) CALL(sendfile) CALL(splice)
	CALL(tee) CALL(wait4) CALL(waitid) CALL(rt_sigtimedwait) CALL(rt_sigsuspend)
	CALL(msgrcv) CALL(msgsnd) CALL(semop) CALL(semtimedop) CALL(mq_timedreceive)
	CALL(mq_timedsend) CALL(io_getevents) CALL(restart_syscall) CALL(fallocate)
	CALL(mmap) CALL(munmap) CALL(mprotect) CALL(madvise) CALL(unlinkat) CALL(renameat)
	CALL(ftruncate) CALL(getdents64) CALL(syncfs) CALL(copy_file_range)
#ifdef SYS_poll
	CALL(poll) CALL(select) CALL(pause) CALL(epoll_wait) CALL(open) CALL(stat) CALL(unlink)
	CALL(rename)
#endif
#ifdef SYS_io_uring_enter
	CALL(io_uring_enter)
#endif
#ifdef SYS_futex_waitv
	CALL(futex_waitv)
#endif
#ifdef SYS_epoll_pwait2
	CALL(epoll_pwait2)
#endif
#undef CALL
};

const char *fci_task_syscall_name(int32_t nr)
{
	for (size_t i = 0; i < sizeof syscalls / sizeof syscalls[0]; i++)
		if (syscalls[i].nr == nr)
			return syscalls[i].name;
	return NULL;
}

static const char *state_word(char state)
{
	switch (state) {
	case 'R': return "running";
	case 'S': return "sleeping";
	case 'D': return "in uninterruptible sleep";
	case 'T': return "stopped";
	case 't': return "stopped by a tracer";
	case 'Z':
	case 'X': return "ended";
	default:  return "in an unknown state";
	}
}

/* State and system call. A thread that runs is in none that the kernel shows. */
static void describe_state(const struct fci_taskinfo *info, char *buf, size_t buf_bytes)
{
	const char *name = fci_task_syscall_name(info->where.syscall_nr);
	const char *state = info->state_error ? fci_task_error_text(info->state_error) : state_word(info->state);
	const char *prefix = info->state_error ? "state unknown: " : "";

	if (info->where_error)
		snprintf(buf, buf_bytes, "%s%s, call unknown: %s", prefix, state, fci_task_error_text(info->where_error));
	else if (info->where.running)
		snprintf(buf, buf_bytes, "%s%s", prefix, state);
	else if (info->where.syscall_nr < 0)
		snprintf(buf, buf_bytes, "%s%s outside a system call", prefix, state);
	else
		snprintf(buf, buf_bytes, "%s%s in %s (syscall %d)", prefix, state, name ? name : "a call",
		         (int)info->where.syscall_nr);
}

size_t fci_taskinfo_format(const struct fci_taskinfo *info, char *buf, size_t buf_bytes)
{
	unsigned long long n_switches = info->voluntary_switches + info->involuntary_switches;
	char state[256], switches[40] = "", kernel[128] = "";
	int n;

	if (!buf_bytes)
		return 0;
	describe_state(info, state, sizeof state);
	if (!info->wchan_error)
		snprintf(kernel, sizeof kernel, ", kernel %s", info->wchan);
	else if (info->wchan_error != -ENODATA)
		snprintf(kernel, sizeof kernel, ", kernel function unknown: %s", fci_task_error_text(info->wchan_error));
	if (!info->state_error)
		snprintf(switches, sizeof switches, ", %llu switch%s", n_switches,
		         n_switches == 1 ? "" : "es");
	n = snprintf(buf, buf_bytes, "%s (tid %d) %s%s%s", info->comm_error ? "name unknown" : info->comm,
	             (int)info->tid, state, kernel, switches);
	if (n < 0)
		n = 0;
	return (size_t)n < buf_bytes ? (size_t)n : buf_bytes - 1;
}
