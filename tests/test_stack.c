/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stack of another thread that waits, taken without disturbing it, against what the thread knows
 * of its own calls. `test_stack table` prints how many of the 21 blocking calls are complete.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/stacks.h"
#include "symbol.h"
#include "taskinfo.h"

/* The address sanitizer's wrappers of libc's calls realign their stack: a gap is allowed there. */
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define GAP_ALLOWED true
#else
#define GAP_ALLOWED false
#endif

/* Each known frame shown is in its place: a part may be missing, nothing may be repeated. */
static bool contradicts_truth(const struct fci_stack *s, const struct blocked *b)
{
	int last = -1;

	for (uint32_t i = 0; i < s->nframes; i++)
		for (int k = 0; k < (int)NTRUTH; k++) {
			if (s->frames[i].pc != b->truth[k])
				continue;
			if (k <= last || (k != last + 1 && s->status == FCI_STACK_COMPLETE))
				return true;
			last = k;
		}
	return s->status == FCI_STACK_COMPLETE && !matches_truth(s, b);
}

/* ---- blocked threads ---- */

static void disturbs_none_of_21_blocking_calls(void **state)
{
	static struct blocked all[NBLOCKERS];
	struct fci_taskinfo info;
	unsigned ndisturbed = 0;

	(void)state;
	for (unsigned i = 0; i < NBLOCKERS; i++)
		assert_int_equal(blocked_start(&all[i], &blockers[i]), 0);
	for (unsigned round = 0; round < 20; round++)
		for (unsigned i = 0; i < NBLOCKERS; i++) {
			assert_int_equal(fci_stack_capture(unwinder, all[i].tid, &all[i].anchor, &stack), 0);
			assert_int_equal(fci_taskinfo_read(all[i].tid, &info), 0);
		}
	for (unsigned i = 0; i < NBLOCKERS; i++) {
		bool disturbed = blocked_disturbed(&all[i]);
		int error = blocked_finish(&all[i]);

		if (disturbed || (error && !all[i].kind->by_signal)) {
			print_message("%s came back: %s\n", all[i].kind->name, strerror(error));
			ndisturbed++;
		}
	}
	assert_int_equal(ndisturbed, 0);
}

static void a_signal_would_have_been_noticed_as_a_disturbance(void **state)
{
	static struct blocked b;

	(void)state;
	start(&b, "poll");
	assert_false(blocked_disturbed(&b));
	blocked_poke(&b);
	while (!blocked_disturbed(&b))
		usleep(200);
	assert_int_equal(blocked_finish(&b), EINTR);
}

static void finds_every_frame_of_21_blocking_calls_with_the_anchor(void **state)
{
	static struct blocked b;

	(void)state;
	SKIP_IF_EMULATED(NOT_OUR_STACK);
	for (unsigned i = 0; i < NBLOCKERS; i++) {
		const struct fci_frame *guard;
		bool good;

		start(&b, blockers[i].name);
		assert_int_equal(fci_stack_capture(unwinder, b.tid, &b.anchor, &stack), 0);
		guard = frame_at(&stack, b.truth[1]);
		good = stack.status == FCI_STACK_COMPLETE && matches_truth(&stack, &b) && guard &&
		       guard->flags & FCI_FRAME_GUARD && guard[-1].flags & FCI_FRAME_INNER &&
		       !(guard[1].flags & FCI_FRAME_INNER) && !stack.text[0];
		if (GAP_ALLOWED && stack.status == FCI_STACK_GAP) {
			guard = frame_at(&stack, b.anchor.pc);
			good = guard && guard->flags & FCI_FRAME_AFTER_GAP && stack.text[0] &&
			       guard[1].pc == b.truth[2] && !contradicts_truth(&stack, &b);
		}
		if (!good)
			explain(&b);
		blocked_finish(&b);
		assert_true(good);
	}
}

static void shows_no_wrong_frame_without_an_anchor(void **state)
{
	static struct blocked b;

	(void)state;
	SKIP_IF_EMULATED(NOT_OUR_STACK);
	for (unsigned i = 0; i < NBLOCKERS; i++) {
		bool good;

		start(&b, blockers[i].name);
		assert_int_equal(fci_stack_capture(unwinder, b.tid, NULL, &stack), 0);
		good = stack.nframes >= 2 && !contradicts_truth(&stack, &b) &&
		       (stack.status == FCI_STACK_COMPLETE || stack.text[0]);
		if (!good)
			explain(&b);
		blocked_finish(&b);
		assert_true(good);
	}
}

static void a_false_anchor_does_no_harm(void **state)
{
	static struct blocked b;
	struct fci_anchor good, bad[6];

	(void)state;
	start(&b, "poll");
	good = b.anchor;
	for (unsigned i = 0; i < 6; i++)
		bad[i] = good;
	bad[0].pc = 0x1234;
	bad[1].sp = 0x10;
	bad[2].sp = UINT64_MAX - 7;
	bad[3].sp += 24;
	bad[4] = (struct fci_anchor){ UINT64_MAX, UINT64_MAX, UINT64_MAX };
	bad[5].bp = 1;
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(fci_stack_capture(unwinder, b.tid, &bad[i], &stack), 0);
		if (contradicts_truth(&stack, &b))
			explain(&b);
		assert_false(contradicts_truth(&stack, &b));
		assert_true(frame_at(&stack, b.truth[0]) || stack.text[0]);
	}
	blocked_finish(&b);
}

/* ---- deep and odd frames ---- */

static __attribute__((__noinline__)) int recurse(unsigned depth, struct blocked *b)
{
	int rc = depth ? recurse(depth - 1, b) : b->kind->block(b);

	__asm__ volatile("" ::: "memory");
	return rc;
}

static void *deep_main(void *arg)
{
	struct blocked *b = arg;

	enter(&b->anchor);
	atomic_store(&b->tid, (pid_t)syscall(SYS_gettid));
	recurse(110, b);
	return NULL;
}

static void keeps_both_ends_of_a_deep_stack(void **state)
{
	static struct blocked b;
	struct fci_taskinfo info = { .tid = 0 };
	pthread_t thread;
	bool guard_seen = false;

	(void)state;
	SKIP_IF_EMULATED(NOT_OUR_STACK);
	memset(&b, 0, sizeof b);
	sem_init(&b.sem, 0, 0);
	b.kind = blocker_named("sem_wait");
	assert_int_equal(pthread_create(&thread, NULL, deep_main, &b), 0);
	while (!b.entered || fci_taskinfo_read(b.tid, &info) || info.state != 'S')
		usleep(100);
	assert_int_equal(fci_stack_capture(unwinder, b.tid, &b.anchor, &stack), 0);
	sem_post(&b.sem);
	pthread_join(thread, NULL);
	assert_int_equal(stack.nframes, FCI_STACK_FRAMES);
	assert_true(stack.nomitted > 40);
	assert_int_equal(stack.frames[0].flags & FCI_FRAME_EXACT, FCI_FRAME_EXACT);
	for (unsigned i = 0; i < stack.nframes; i++)
		guard_seen = guard_seen || stack.frames[i].flags & FCI_FRAME_GUARD;
	assert_true(guard_seen);
}

#if defined(__x86_64__)
/* Old frames of finished calls, direct and through a pointer, all over what comes below. */
static __attribute__((__noinline__)) unsigned leave_old_frames(unsigned depth)
{
	unsigned (*volatile again)(unsigned) = leave_old_frames;
	volatile unsigned sum = depth;

	if (depth)
		sum += depth % 3 ? leave_old_frames(depth - 1) : again(depth - 1);
	return sum;
}

/* A stack pointer that moves: the frame's size is not in the code, its frame pointer is needed. */
static __attribute__((__noinline__)) int wait_with_room(struct blocked *b, size_t bytes)
{
	volatile char *room;
	int rc = (int)leave_old_frames(9);

	room = __builtin_alloca(bytes);
	b->truth[0] = (uint64_t)(uintptr_t)__builtin_return_address(0);
	room[0] = 1;
	b->entered = true;
	rc = (int)syscall(SYS_read, b->fd[0], room, 1);
	return rc + room[0];
}

static __attribute__((__noinline__)) void *room_main(void *arg)
{
	struct blocked *b = arg;
	volatile size_t bytes = 700;
	volatile int rc = (int)leave_old_frames(25);

	b->truth[1] = (uint64_t)(uintptr_t)__builtin_return_address(0);
	enter(&b->anchor);
	atomic_store(&b->tid, (pid_t)syscall(SYS_gettid));
	rc = wait_with_room(b, bytes);
	(void)rc;
	return NULL;
}

static void crosses_a_function_that_moves_its_stack_pointer(void **state)
{
	static struct blocked b;
	struct fci_taskinfo info = { .tid = 0 };
	struct fci_stack bare;
	const struct fci_frame *first;
	pthread_t thread;

	(void)state;
	memset(&b, 0, sizeof b);
	assert_int_equal(pipe(b.fd), 0);
	assert_int_equal(pthread_create(&thread, NULL, room_main, &b), 0);
	while (!b.entered || fci_taskinfo_read(b.tid, &info) || info.state != 'S')
		usleep(100);
	assert_int_equal(fci_stack_capture(unwinder, b.tid, &b.anchor, &stack), 0);
	assert_int_equal(fci_stack_capture(unwinder, b.tid, NULL, &bare), 0);
	assert_int_equal(write(b.fd[1], "x", 1), 1);
	pthread_join(thread, NULL);
	close(b.fd[0]);
	close(b.fd[1]);
	first = frame_at(&stack, b.truth[0]);
	if (!first)
		explain(&b);
	assert_int_equal(stack.status, FCI_STACK_COMPLETE);
	assert_non_null(first);
	assert_int_equal(own_frames_before(&stack, first), 1); /* wait_with_room, once */
	assert_int_equal(first[1].pc, b.truth[1]);
	assert_true(first->flags & FCI_FRAME_DEDUCED);
	assert_true(first->flags & FCI_FRAME_GUARD);
	assert_int_equal(bare.status, FCI_STACK_COMPLETE);
	assert_int_equal(bare.nframes, stack.nframes);
	assert_true(fci_stack_hash(&bare) == fci_stack_hash(&stack));
}
#endif

/* ---- grouping ---- */

static void threads_in_one_place_have_one_hash(void **state)
{
	static struct blocked same[8], other;
	uint64_t hash = 0;

	(void)state;
	SKIP_IF_EMULATED(NOT_OUR_STACK);
	for (unsigned i = 0; i < 8; i++) {
		start(&same[i], "recv");
		assert_int_equal(fci_stack_capture(unwinder, same[i].tid, &same[i].anchor, &stack), 0);
		if (i)
			assert_true(hash == fci_stack_hash(&stack));
		hash = fci_stack_hash(&stack);
	}
	start(&other, "recv with SO_RCVTIMEO"); /* same libc call, from another function */
	assert_int_equal(fci_stack_capture(unwinder, other.tid, &other.anchor, &stack), 0);
	assert_true(hash != fci_stack_hash(&stack));
	for (unsigned i = 0; i < 8; i++)
		blocked_finish(&same[i]);
	blocked_finish(&other);
}

/* ---- a process that may not look at itself ---- */

#if CHILDREN_HAVE_THREADS
static int capture_undumpable(void)
{
	static struct blocked b;
	struct fci_taskinfo info;
	struct fci_symbol symbol;
	char line[300];
	int rc;

	if (getuid() == 0 ? setuid(65534) : prctl(PR_SET_DUMPABLE, 0))
		return 1;
	if (blocked_start(&b, blocker_named("recv")))
		return 2;
	rc = fci_stack_capture(unwinder, b.tid, &b.anchor, &stack);
	if (rc != -EACCES || !strstr(stack.text, "denies"))
		return 3;
	if (fci_taskinfo_read(b.tid, &info) || info.where_error != -EACCES || info.state != 'S')
		return 4;
	fci_taskinfo_format(&info, line, sizeof line);
	if (!strstr(line, "sleeping") || !strstr(line, "denies"))
		return 5;
	/* Names of known addresses, such as call sites, are still to be had. */
	fci_symbol_resolve(&b.truth[0], 1, &symbol);
	if (strcmp(symbol.function, "relay") || !symbol.offset)
		return 6;
	blocked_finish(&b);
	return 0;
}

static void denial_after_setuid_is_told_in_words(void **state)
{
	(void)state;
	SKIP_IF_EMULATED(NO_FORK_OF_MANY);
	assert_int_equal(in_child(capture_undumpable), 0);
}
#endif

/* ---- the table ---- */

static double us_since(const struct timespec *from)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - from->tv_sec) * 1e6 + (double)(now.tv_nsec - from->tv_nsec) / 1e3;
}

static int print_table(void)
{
	static struct blocked b;
	unsigned with = 0, without = 0, wrong = 0, disturbed = 0;
	double first = 0, total = 0;

	fci_unwinder_create(&unwinder);
	for (unsigned i = 0; i < NBLOCKERS; i++) {
		struct timespec from;

		if (blocked_start(&b, &blockers[i]))
			return 1;
		clock_gettime(CLOCK_MONOTONIC, &from);
		fci_stack_capture(unwinder, b.tid, NULL, &stack);
		if (i == 0)
			first = us_since(&from);
		without += stack.status == FCI_STACK_COMPLETE && matches_truth(&stack, &b);
		wrong += contradicts_truth(&stack, &b);
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (unsigned k = 0; k < 100; k++)
			fci_stack_capture(unwinder, b.tid, &b.anchor, &stack);
		total += us_since(&from) / 100;
		with += stack.status == FCI_STACK_COMPLETE && matches_truth(&stack, &b);
		wrong += contradicts_truth(&stack, &b);
		disturbed += blocked_disturbed(&b);
		blocked_finish(&b);
	}
	printf("complete with anchor %u, without %u; wrong %u, disturbed %u; first %.0f us, "
	       "then %.0f us\n", with, without, wrong, disturbed, first, total / NBLOCKERS);
	unwinder = fci_unwinder_destroy(unwinder);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(disturbs_none_of_21_blocking_calls),
		cmocka_unit_test(a_signal_would_have_been_noticed_as_a_disturbance),
		cmocka_unit_test(finds_every_frame_of_21_blocking_calls_with_the_anchor),
		cmocka_unit_test(shows_no_wrong_frame_without_an_anchor),
		cmocka_unit_test(a_false_anchor_does_no_harm),
#if defined(__x86_64__)
		cmocka_unit_test(crosses_a_function_that_moves_its_stack_pointer),
#endif
		cmocka_unit_test(keeps_both_ends_of_a_deep_stack),
		cmocka_unit_test(threads_in_one_place_have_one_hash),
#if CHILDREN_HAVE_THREADS
		cmocka_unit_test(denial_after_setuid_is_told_in_words),
#endif
	};

	if (argc > 1 && !strcmp(argv[1], "table"))
		return print_table();
	return cmocka_run_group_tests_name("stack", tests, set_up, tear_down);
}
