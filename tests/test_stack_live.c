/* SPDX-License-Identifier: BSD-2-Clause */
/* The stack of a thread that runs, moves or ends meanwhile, and of one whose stack is no stack. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/stacks.h"
#include "taskinfo.h"

/* ---- threads that run, move, end ---- */

struct spinner {
	pthread_t thread;
	struct fci_anchor anchor;
	_Atomic pid_t tid;
	_Atomic bool stop;
	bool sleeps;
	uint64_t return_address;
};

static void *spin(void *arg)
{
	struct spinner *s = arg;

	s->return_address = (uint64_t)(uintptr_t)__builtin_return_address(0);
	enter(&s->anchor);
	atomic_store(&s->tid, (pid_t)syscall(SYS_gettid));
	while (!atomic_load(&s->stop))
		if (s->sleeps)
			usleep(1);
	return NULL;
}

static void spin_start(struct spinner *s, bool sleeps)
{
	memset(s, 0, sizeof *s);
	s->sleeps = sleeps;
	assert_int_equal(pthread_create(&s->thread, NULL, spin, s), 0);
	while (!atomic_load(&s->tid))
		usleep(100);
}

static void spin_stop(struct spinner *s)
{
	atomic_store(&s->stop, true);
	pthread_join(s->thread, NULL);
}

static void running_thread_gives_the_frames_outside_its_guard(void **state)
{
	static struct spinner s;

	(void)state;
	spin_start(&s, false);
	assert_int_equal(fci_stack_capture(unwinder, s.tid, &s.anchor, &stack), 0);
	assert_int_equal(stack.status, FCI_STACK_RUNNING);
	assert_non_null(strstr(stack.text, "running"));
	assert_int_equal(stack.frames[0].pc, s.anchor.pc);
	assert_int_equal(stack.frames[0].flags, FCI_FRAME_GUARD | FCI_FRAME_AT_ENTER);
	assert_int_equal(stack.frames[1].pc, s.return_address);

	assert_int_equal(fci_stack_capture(unwinder, s.tid, NULL, &stack), 0);
	assert_int_equal(stack.status, FCI_STACK_RUNNING);
	assert_int_equal(stack.nframes, 0);
	spin_stop(&s);
}

static void lively_thread_is_never_shown_wrong(void **state)
{
	static struct spinner s;
	unsigned seen[FCI_STACK_NONE + 1] = { 0 };

	(void)state;
	spin_start(&s, true);
	for (unsigned i = 0; i < 3000; i++) {
		assert_int_equal(fci_stack_capture(unwinder, s.tid, &s.anchor, &stack), 0);
		seen[stack.status]++;
		if (stack.status == FCI_STACK_COMPLETE && !frame_at(&stack, s.return_address))
			fail_msg("a complete stack without the thread's first function");
	}
	spin_stop(&s);
	assert_int_equal(seen[FCI_STACK_NONE], 0);
	assert_true(seen[FCI_STACK_COMPLETE] + seen[FCI_STACK_RUNNING] + seen[FCI_STACK_MOVING] > 0);
}

static void copy_of_a_moving_stack_is_thrown_away(void **state)
{
	static uint8_t bytes[65536];
	static struct spinner s;
	struct fci_task_where where;
	unsigned nmoved = 0;

	(void)state;
	spin_start(&s, true);
	for (unsigned i = 0; i < 100000 && nmoved < 3; i++) {
		struct fci_task_window window = { 0, sizeof bytes, bytes };
		int rc = fci_task_snapshot(s.tid, &where, &window, 1);

		assert_true(rc == 0 || rc == -EAGAIN);
		/* Blocked before the copy, and blocked again after it: only the counts differ. */
		if (rc == -EAGAIN && !where.running)
			nmoved++;
	}
	spin_stop(&s);
	assert_int_equal(nmoved, 3);
}

static void ended_thread_and_foreign_thread_are_told(void **state)
{
	static struct spinner s;
	pid_t tid, child;

	(void)state;
	spin_start(&s, true);
	tid = s.tid;
	spin_stop(&s);
	while (!access("/proc/self/task", F_OK) && fci_stack_capture(unwinder, tid, NULL, &stack) == 0)
		usleep(100); /* the kernel may list it a moment longer than join */
	assert_int_equal(fci_stack_capture(unwinder, tid, &s.anchor, &stack), -ESRCH);
	assert_non_null(strstr(stack.text, "no such thread in this process"));
	assert_int_equal(stack.nframes, 0);
	assert_int_equal(stack.status, FCI_STACK_NONE);

	child = fork();
	if (child == 0)
		for (;;)
			pause();
	assert_int_equal(fci_stack_capture(unwinder, child, NULL, &stack), -ESRCH);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);

	assert_int_equal(fci_stack_capture(unwinder, 0, NULL, &stack), -EINVAL);
	assert_int_equal(fci_stack_capture(unwinder, -7, NULL, &stack), -EINVAL);
	assert_int_equal(fci_stack_capture(unwinder, getpid(), NULL, &stack), 0);
	assert_int_equal(stack.status, FCI_STACK_RUNNING);
}

static void threads_may_end_during_the_capture(void **state)
{
	static struct spinner s;

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		int rc = 0;

		spin_start(&s, true);
		atomic_store(&s.stop, true);
		while (!rc)
			rc = fci_stack_capture(unwinder, s.tid, &s.anchor, &stack);
		assert_int_equal(rc, -ESRCH);
		pthread_join(s.thread, NULL);
	}
}

/* ---- stacks that are none ---- */

#if defined(__x86_64__)
struct odd_stack {
	uint64_t sp;
	struct fci_anchor anchor;
	_Atomic uint32_t word;
	_Atomic pid_t tid;
};

/* Wait on the word with the stack pointer anywhere. */
static void *wait_on_odd_stack(void *arg)
{
	struct odd_stack *o = arg;
	register uint64_t timeout __asm__("r10") = 0;
	long rc = SYS_futex;

	enter(&o->anchor);
	atomic_store(&o->tid, (pid_t)syscall(SYS_gettid));
	__asm__ volatile("movq %%rsp, %%rbx\n\tmovq %[sp], %%rsp\n\tsyscall\n\tmovq %%rbx, %%rsp"
	                 : "+a"(rc)
	                 : [sp] "r"(o->sp), "D"(&o->word), "S"((long)FUTEX_WAIT), "d"(0L), "r"(timeout)
	                 : "rbx", "rcx", "r11", "memory");
	return NULL;
}

static void look_at_odd_stack(uint64_t sp, bool with_anchor, int *ret_rc)
{
	static struct odd_stack o;
	struct fci_taskinfo info = { .tid = 0 };
	pthread_t thread;

	memset(&o, 0, sizeof o);
	o.sp = sp;
	assert_int_equal(pthread_create(&thread, NULL, wait_on_odd_stack, &o), 0);
	while (!o.tid || fci_taskinfo_read(o.tid, &info) || info.state != 'S' || info.where.sp != sp)
		usleep(100);
	*ret_rc = fci_stack_capture(unwinder, o.tid, with_anchor ? &o.anchor : NULL, &stack);
	atomic_store(&o.word, 1);
	syscall(SYS_futex, &o.word, FUTEX_WAKE, 1, NULL, NULL, 0);
	pthread_join(thread, NULL);
}

static void damaged_stacks_end_with_a_sentence(void **state)
{
	uint64_t *words = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t seed = 88172645463325252u;
	int rc;

	(void)state;
	assert_true(words != MAP_FAILED);
	look_at_odd_stack(0x1000, false, &rc);
	assert_int_equal(rc, -EFAULT);
	assert_non_null(strstr(stack.text, "no readable memory"));

	for (unsigned round = 0; round < 12; round++) {
		/* Zeros; then noise; then noise with addresses of code and stack among it. */
		for (unsigned i = 0; i < 8192; i++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			words[i] = round == 0           ? 0
			           : round % 3 == 0     ? (uint64_t)(uintptr_t)look_at_odd_stack + seed % 512
			           : round % 3 == 1     ? (uint64_t)(uintptr_t)(words + seed % 8192)
			                                : seed;
		}
		look_at_odd_stack((uint64_t)(uintptr_t)(words + 128), round % 2, &rc);
		assert_int_equal(rc, 0);
		assert_int_not_equal(stack.status, FCI_STACK_COMPLETE);
		assert_true(stack.text[0] != '\0');
		assert_true(stack.nframes >= 1);
	}
	munmap(words, 65536);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(running_thread_gives_the_frames_outside_its_guard),
		cmocka_unit_test(lively_thread_is_never_shown_wrong),
		cmocka_unit_test(copy_of_a_moving_stack_is_thrown_away),
		cmocka_unit_test(ended_thread_and_foreign_thread_are_told),
		cmocka_unit_test(threads_may_end_during_the_capture),
#if defined(__x86_64__)
		cmocka_unit_test(damaged_stacks_end_with_a_sentence),
#endif
	};

	return cmocka_run_group_tests_name("stack_live", tests, set_up, tear_down);
}
