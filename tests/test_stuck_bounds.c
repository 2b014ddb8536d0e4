/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stuck calls: how many are told of, when telling ends, and what comes in the way: ended threads,
 * write-off, no memory, clocks, fork. The clock is virtual; the threads that are stuck are real.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "report.h"
#include "support/sleepers.h"

#ifndef __has_feature
#define __has_feature(feature_) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define CHILDREN_HAVE_THREADS 0
#else
#define CHILDREN_HAVE_THREADS 1
#endif

static void too_many_reports_are_counted_and_the_next_one_says_so(void **state)
{
	struct fc_iface *f[3];
	struct sleeper s[3] = { 0 };
	FC_OPTS(fc_totals, t, .ifaces = 0);
	uint64_t before;
	char line[64];

	(void)state;
	(void)tear_down(state);
	make_context(0, 1, 1);
	f[0] = make_iface("a", 8);
	f[1] = make_iface("b", 8);
	f[2] = make_iface("c", 8);
	for (int i = 0; i < 3; i++)
		sleeper_start(&s[i], f[i], wait_for_semaphore, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_equal(told.calls_back, 1);
	assert_int_equal(fc_totals(fc, &t), 0);
	assert_int_equal(t.reports_suppressed, 2);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	advance(FC_S(70));
	assert_int_equal(reports(), 2);
	assert_int_not_equal(find_line(0, "; 5 reports suppressed before", NULL), -1);
	/* Those are told of; the next one counts from there. */
	assert_int_equal(fc_totals(fc, &t), 0);
	before = t.reports_suppressed;
	advance(FC_S(100));
	assert_int_equal(reports(), 3);
	snprintf(line, sizeof(line), "; %u report%s suppressed before", (unsigned)(before - 5), before == 6 ? "" : "s");
	assert_int_not_equal(find_line(0, line, NULL), -1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sleeper_stop(&s[i]), 0);
}

static void thread_that_ends_is_not_reported_again(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { .leave_by_ending = 1 };

	(void)state;
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_equal(sleeper_stop(&s), 0);
	for (int i = 0; i < 20; i++)
		advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_equal(overdue(f), 0);
	assert_int_equal(told.unstuck_events, 1);
}

static void thread_that_is_gone_is_told_in_words(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct fci_capture c;
	struct fci_view v;
	struct fci_text t;
	struct sleeper s = { 0 };
	char text[512];

	(void)state;
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	assert_int_equal(fci_oldest(f, &v, 1), 1);
	assert_int_equal(sleeper_stop(&s), 0);
	while (syscall(SYS_tgkill, getpid(), s.tid, 0) == 0) /* the kernel knows it a moment longer */
		usleep(100);
	fci_capture(f, &v, NULL, "no stack", &c);
	assert_int_equal(c.standing, FCI_ENDED);
	fci_text_init(&t, text, sizeof(text));
	fci_capture_thread(&c, &t);
	assert_non_null(strstr(text, "has ended"));
	v.word = FCI_WORD(FCI_GEN(v.word), FCI_OWNER(v.word) + 1, FCI_BUSY);
	fci_capture(f, &v, NULL, "no stack", &c);
	assert_int_equal(c.standing, FCI_FOREIGN);
}

static void events_tell_when_an_interface_gets_stuck_and_when_it_is_free(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s[2] = { 0 };

	(void)state;
	sleeper_start(&s[0], f, wait_for_semaphore, NULL);
	sleeper_start(&s[1], f, wait_for_semaphore, NULL);
	advance(FC_S(4));
	assert_int_equal(told.stuck_events, 0);
	advance(FC_S(1));
	assert_int_equal(told.stuck_events, 1);
	assert_int_equal(told.last_a, 2);
	assert_int_equal(sleeper_stop(&s[0]), 0);
	advance(FC_S(2));
	assert_int_equal(told.unstuck_events, 0);
	assert_int_equal(overdue(f), 1);
	assert_int_equal(sleeper_stop(&s[1]), 0);
	advance(FC_S(2));
	assert_int_equal(told.unstuck_events, 1);
	assert_int_equal(told.last_a, 2);
	advance(FC_S(2));
	assert_int_equal(told.stuck_events, 1);
	assert_int_equal(told.unstuck_events, 1);
}

static void written_off_call_stays_in_the_reports(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 1, .expand = 1, .writeoff = 1);
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc_iface *f = NULL;
	struct sleeper s = { 0 };

	(void)state;
	assert_int_equal(fc_iface_set(fc, "slow", &o, &f), 0);
	sleeper_start(&s, f, wait_for_dependency, NULL);
	advance(FC_S(21));
	assert_int_equal(reports(), 1);
	assert_int_equal(fc_enter(&e, f, NULL), 0);
	advance(FC_S(1));
	fc_exit(&e);
	assert_int_equal(overdue(f), 0);
	assert_int_equal(told.unstuck_events, 0);
	advance(FC_S(20));
	assert_int_equal(reports(), 2);
	assert_int_not_equal(find_line(0, "stuck: slow: 1 call", ", written off 1"), -1);
	assert_int_equal(sleeper_stop(&s), 0);
	advance(FC_S(1));
	assert_int_equal(told.unstuck_events, 1);
}

static void more_overdue_calls_than_can_be_remembered_are_still_counted(void **state)
{
	static struct fc_entry e[700];
	struct fc_iface *f = make_iface("wide", 1024);

	(void)state;
	for (int i = 0; i < 700; i++)
		assert_int_equal(fc_enter(&e[i], f, NULL), 0);
	advance(FC_S(5));
	assert_int_equal(overdue(f), 700);
	assert_int_equal(reports(), 1);
	assert_int_not_equal(find_line(0, "in flight 700, overdue 700", NULL), -1);
	for (int i = 0; i < 700; i++)
		fc_exit(&e[i]);
	advance(FC_S(1));
	assert_int_equal(overdue(f), 0);
}

static void nothing_is_allocated_after_the_first_report(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { 0 };
	unsigned long long before;

	(void)state;
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	advance(FC_S(5));
	before = counting.calls;
	for (int i = 0; i < 50; i++)
		advance(FC_S(5));
	assert_int_equal(counting.calls, before);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void without_memory_calls_are_still_counted(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { 0 };

	(void)state;
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	counting.fail_at = counting.calls + 1;
	advance(FC_S(5));
	assert_int_equal(overdue(f), 1);
	assert_int_equal(reports(), 0);
	assert_int_equal(told.stuck_events, 1);
	advance(FC_MS(300));
	assert_int_equal(reports(), 1);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void stacks_can_be_switched_off(void **state)
{
	struct sleeper s = { 0 };

	(void)state;
	(void)tear_down(state);
	make_context(FC_NO_STACKS, 0, 1);
	sleeper_start(&s, make_iface("user.login", 8), wait_for_dependency, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_not_equal(find_line(0, emulated() ? "sleeping in " : "sleeping in poll", NULL), -1);
	assert_int_not_equal(find_line(0, "FC_NO_STACKS", NULL), -1);
	assert_int_equal(find_line(0, "#0", NULL), -1);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void without_a_listener_calls_are_only_counted(void **state)
{
	struct sleeper s = { 0 };
	unsigned long long before;
	struct fc_iface *f;

	(void)state;
	(void)tear_down(state);
	make_context(0, 0, 0);
	f = make_iface("user.login", 8);
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	before = counting.calls;
	advance(FC_S(5));
	assert_int_equal(overdue(f), 1);
	assert_int_equal(counting.calls, before);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void clock_that_goes_back_does_no_harm(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { 0 };

	(void)state;
	fc_clock_set(fc, FC_S(20000));
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	fc_clock_set(fc, FC_S(10));
	tick();
	assert_int_equal(overdue(f), 0);
	assert_int_equal(reports(), 1);
	fc_clock_set(fc, FC_S(20010));
	tick();
	assert_int_equal(overdue(f), 1);
	assert_int_equal(sleeper_stop(&s), 0);
}

#if CHILDREN_HAVE_THREADS
/* 0, or the line that failed. */
static int in_child(struct fc_iface *f)
{
	struct sleeper s = { 0 };

	forget();
	advance(FC_S(1));
	if (overdue(f) || reports())
		return __LINE__ % 250;
	sleeper_start(&s, f, wait_for_dependency, NULL);
	advance(FC_S(5));
	if (overdue(f) != 1 || reports() != 1 || (stacks_shown() && find_line(0, "wait_for_dependency", NULL) < 0))
		return __LINE__ % 250;
	return sleeper_stop(&s);
}

static void child_of_a_fork_starts_with_nothing_overdue_and_reports_its_own(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { 0 };
	int status;
	pid_t pid;

	(void)state;
	SKIP_IF_EMULATED(NO_FORK_OF_MANY);
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	fc_clock_advance(fc, FC_S(5));
	(void)fc_tick(fc, 0); /* a report is under way */
	pid = fork();
	if (pid == 0)
		_exit(in_child(f));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	tick();
	assert_int_equal(reports(), 1);
	assert_int_equal(sleeper_stop(&s), 0);
}
#endif

static void threads_come_and_go_while_reports_are_made(void **state)
{
	struct fc_iface *f = make_iface("user.login", 64);
	uint64_t end = stress_end_ns();
	struct sleeper s[8];

	(void)state;
	while (test_now_ns() < end) {
		memset(s, 0, sizeof(s));
		for (int i = 0; i < 8; i++)
			sleeper_start(&s[i], f, i % 2 ? wait_for_semaphore : spin_until_told, NULL);
		fc_clock_advance(fc, FC_S(5));
		(void)fc_tick(fc, 0);
		for (int i = 0; i < 8; i++) {
			(void)fci_stuck_step(fc, fc_now_ns(fc), 0);
			assert_int_equal(sleeper_stop(&s[i]), 0);
		}
		tick();
		forget();
	}
	assert_int_equal(fc_in_flight(f, NULL, 0), 0);
}

int main(void)
{
#define CASE(name_) cmocka_unit_test_setup_teardown(name_, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(too_many_reports_are_counted_and_the_next_one_says_so),
		CASE(thread_that_ends_is_not_reported_again),
		CASE(thread_that_is_gone_is_told_in_words),
		CASE(events_tell_when_an_interface_gets_stuck_and_when_it_is_free),
		CASE(written_off_call_stays_in_the_reports),
		CASE(more_overdue_calls_than_can_be_remembered_are_still_counted),
		CASE(nothing_is_allocated_after_the_first_report),
		CASE(without_memory_calls_are_still_counted),
		CASE(stacks_can_be_switched_off),
		CASE(without_a_listener_calls_are_only_counted),
		CASE(clock_that_goes_back_does_no_harm),
#if CHILDREN_HAVE_THREADS
		CASE(child_of_a_fork_starts_with_nothing_overdue_and_reports_its_own),
#endif
		CASE(threads_come_and_go_while_reports_are_made),
	};

	return cmocka_run_group_tests_name("stuck_bounds", tests, NULL, NULL);
}
