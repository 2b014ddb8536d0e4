/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stuck calls: found, and reported with the place where they stand. The clock is virtual, so seconds
 * take no time; the threads that are stuck are real. test_stuck_bounds.c: what reports are kept to.
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
#include <unistd.h>

#include <cmocka.h>

#include "support/sleepers.h"

static void one_call_stuck_among_1000_a_second_is_named_within_stuck_after_and_one_tick(void **state)
{
	struct fc_iface *f = make_iface("user.login", 64);
	struct sleeper s = { 0 };
	struct fc_entry e = FC_ENTRY_INIT;
	uint64_t began = fc_now_ns(fc);
	char place[64];

	(void)state;
	sleeper_start(&s, f, wait_for_dependency, NULL);
	while (reports() == 0 && fc_now_ns(fc) < began + FC_S(20)) {
		for (int i = 0; i < 100; i++) {
			assert_int_equal(fc_enter(&e, f, NULL), 0);
			fc_clock_advance(fc, FC_MS(1));
			fc_exit(&e);
		}
		tick();
	}
	assert_true(fc_now_ns(fc) - began <= FC_S(5) + FC_MS(250));
	assert_int_equal(reports(), 1);
	snprintf(place, sizeof(place), "sleepers.h:%d handle_request", guard_line);
	assert_int_not_equal(find_line(0, "stuck: user.login: 1 call inside for 5.", place), -1);
	assert_int_not_equal(find_line(0, "limit 64, in flight 1, overdue 1", NULL), -1);
	assert_int_equal(overdue(f), 1);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void report_shows_thread_kernel_state_and_stack_with_function_and_line(void **state)
{
	struct fc_iface *f = make_iface("shop.report", 8);
	struct sleeper s = { 0 };
	char tid[32];
	int head, guard;

	(void)state;
	SKIP_IF_EMULATED(NOT_OUR_STACK);
	sleeper_start(&s, f, wait_for_dependency, NULL);
	advance(FC_S(5));
	head = find_line(0, "stuck: shop.report", NULL);
	assert_int_not_equal(head, -1);
	snprintf(tid, sizeof(tid), "tid %d", s.tid);
	assert_int_equal(find_line((unsigned)head, "  thread worker-3", tid), head + 1);
	assert_int_equal(find_line((unsigned)head, "sleeping in poll", "kernel"), head + 1);
	if (stacks_shown()) {
		assert_int_not_equal(find_line((unsigned)head, "#0 ", NULL), -1);
		assert_int_not_equal(find_line((unsigned)head, " wait_for_dependency", "sleepers.h:"), -1);
		guard = find_line((unsigned)head, " handle_request", "<- guard");
		assert_int_not_equal(guard, -1);
		assert_non_null(strstr(told.line[guard], "sleepers.h:"));
		assert_int_not_equal(find_line((unsigned)guard, " sleeper_main", NULL), -1);
	}
	for (unsigned i = (unsigned)head + 1; i < told.n && strncmp(told.line[i], "  ", 2) == 0; i++)
		assert_true(strlen(told.line[i]) > 4);
	if (getenv("FC_SHOW"))
		for (unsigned i = 0; i < told.n; i++)
			printf("# %s\n", told.line[i]);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void stuck_call_is_not_disturbed_by_its_reports(void **state)
{
	struct fc_iface *f = make_iface("shop.report", 8);
	struct sleeper s[2] = { 0 };

	(void)state;
	sleeper_start(&s[0], f, wait_for_dependency, NULL);
	sleeper_start(&s[1], f, wait_for_semaphore, NULL);
	for (int i = 0; i < 20; i++)
		advance(FC_S(5));
	assert_true(reports() >= 5);
	assert_int_equal(s[0].returned, 0);
	assert_int_equal(s[1].returned, 0);
	assert_int_equal(sleeper_stop(&s[0]), 0);
	assert_int_equal(sleeper_stop(&s[1]), 0);
}

static void hundred_threads_stuck_in_one_place_make_one_report_with_a_count(void **state)
{
	static struct sleeper s[100];
	struct fc_iface *f = make_iface("shop.report", 128);
	int head;

	(void)state;
	for (int i = 0; i < 100; i++)
		sleeper_start(&s[i], f, wait_for_semaphore, NULL);
	advance(FC_S(5) + FC_MS(200));
	assert_int_equal(reports(), 1);
	head = find_line(0, "stuck: shop.report: 100 calls inside for over 5.2 s (oldest 5.2 s) at ", NULL);
	assert_int_not_equal(head, -1);
	assert_int_not_equal(find_line((unsigned)head, "  and threads ", " and 91 more"), -1);
	assert_int_equal(overdue(f), 100);
	assert_int_equal(told.calls_back, 1);
	assert_int_equal(told.stuck.count, 100);
	for (int i = 0; i < 100; i++)
		assert_int_equal(sleeper_stop(&s[i]), 0);
}

static void threads_that_follow_into_one_place_are_told_together(void **state)
{
	static struct sleeper s[20];
	struct fc_iface *f = make_iface("shop.report", 128);
	uint64_t began = fc_now_ns(fc);
	unsigned seen = 0;

	(void)state;
	for (int i = 0; i < 20; i++) {
		sleeper_start(&s[i], f, wait_for_semaphore, NULL);
		advance(FC_MS(50));
	}
	while (fc_now_ns(fc) < began + FC_S(19)) {
		advance(FC_MS(50));
		if (reports() == seen)
			continue;
		seen = reports();
		if (seen == 1)
			assert_true(fc_now_ns(fc) - began == FC_S(5));
		if (seen == 2)
			assert_true(fc_now_ns(fc) - began == FC_MS(7500));
	}
	assert_int_equal(seen, 2);
	assert_int_not_equal(find_line(0, "stuck: shop.report: 1 call ", NULL), -1);
	assert_int_not_equal(find_line(0, "stuck: shop.report: 20 calls ", NULL), -1);
	assert_int_equal(told.stuck.count, 20);
	assert_int_equal(told.stuck.call.tid, s[0].tid); /* the oldest, though only the others were due */
	for (int i = 0; i < 20; i++)
		assert_int_equal(sleeper_stop(&s[i]), 0);
}

static void calls_stuck_in_two_places_make_two_reports(void **state)
{
	struct fc_iface *f = make_iface("shop.report", 8);
	struct sleeper s[4] = { 0 };

	(void)state;
	SKIP_IF_EMULATED(NOT_OUR_STACK);
	for (int i = 0; i < 4; i++)
		sleeper_start(&s[i], f, i < 3 ? wait_for_semaphore : wait_for_dependency, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 2);
	assert_int_not_equal(find_line(0, "stuck: shop.report: 3 calls", NULL), -1);
	assert_int_not_equal(find_line(0, "stuck: shop.report: 1 call ", NULL), -1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(sleeper_stop(&s[i]), 0);
}

static void report_comes_again_at_doubling_ages(void **state)
{
	static const unsigned at[] = { 5, 10, 20, 40, 80, 160, 320 };
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { 0 };
	unsigned seen = 0;

	(void)state;
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	for (unsigned age = 1; age <= 330; age++) {
		advance(FC_S(1));
		if (reports() == seen)
			continue;
		assert_int_equal(reports(), seen + 1);
		assert_true(seen < sizeof(at) / sizeof(at[0]));
		assert_int_equal(age, at[seen]);
		seen++;
	}
	assert_int_equal(seen, sizeof(at) / sizeof(at[0]));
	assert_int_equal(sleeper_stop(&s), 0);
}

static void call_may_set_its_own_stuck_after(void **state)
{
	FC_OPTS(fc_ctx, slow, .stuck_after_ns = FC_S(60));
	FC_OPTS(fc_ctx, quick, .stuck_after_ns = FC_MS(100));
	struct fc_iface *f = make_iface("upload", 8), *g = make_iface("ping", 8);
	struct sleeper s[2] = { 0 };

	(void)state;
	sleeper_start(&s[0], f, wait_for_semaphore, &slow);
	sleeper_start(&s[1], g, wait_for_semaphore, &quick);
	advance(FC_MS(100));
	assert_int_not_equal(find_line(0, "stuck: ping: 1 call inside for 100 ms", NULL), -1);
	assert_int_equal(sleeper_stop(&s[1]), 0);
	for (int i = 0; i < 59; i++)
		advance(FC_S(1));
	assert_int_equal(find_line(0, "stuck: upload", NULL), -1);
	advance(FC_S(1));
	assert_int_not_equal(find_line(0, "stuck: upload: 1 call inside for 60.", NULL), -1);
	assert_int_equal(sleeper_stop(&s[0]), 0);
}

static void interface_may_set_its_own_stuck_after(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 8, .stuck_after_ns = FC_MS(300));
	struct fc_iface *f = NULL;
	struct sleeper s = { 0 };

	(void)state;
	assert_int_equal(fc_iface_set(fc, "cache.get", &o, &f), 0);
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	advance(FC_MS(299));
	assert_int_equal(reports(), 0);
	advance(FC_MS(1));
	advance(0);
	assert_int_equal(reports(), 1);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void request_id_is_shown(void **state)
{
	FC_OPTS(fc_ctx, ctx, .request_id = 4711);
	struct sleeper s = { 0 };

	(void)state;
	sleeper_start(&s, make_iface("user.login", 8), wait_for_semaphore, &ctx);
	advance(FC_S(5));
	assert_int_not_equal(find_line(0, "stuck: user.login", ", request 4711;"), -1);
	assert_int_equal(told.stuck.call.request_id, 4711);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void callback_gets_the_call_its_thread_and_the_stack(void **state)
{
	struct sleeper s = { 0 };

	(void)state;
	sleeper_start(&s, make_iface("user.login", 8), wait_for_dependency, NULL);
	advance(FC_S(6));
	assert_int_equal(told.calls_back, 1);
	assert_int_equal(told.stuck.size, sizeof(struct fc_stuck));
	assert_int_equal(told.stuck.count, 1);
	assert_int_equal(told.stuck.call.tid, s.tid);
	assert_int_equal(told.stuck.call.pid, getpid());
	assert_int_equal(told.stuck.call.line, guard_line);
	assert_int_equal(told.stuck.call.age_ns, FC_S(6));
	assert_true(told.stuck.call.flags & FC_IN_FLIGHT_OVERDUE);
	assert_string_equal(told.thread_name, "worker-3");
	assert_int_equal(told.stuck.limit, 8);
	assert_int_equal(told.stuck.in_flight, 1);
	if (stacks_shown())
		assert_non_null(strstr(told.stack, "wait_for_dependency"));
	assert_int_equal(sleeper_stop(&s), 0);
}

static void moved_call_is_reported_without_a_stack(void **state)
{
	struct fc_iface *f = make_iface("async.fetch", 8);
	struct fc_entry a = FC_ENTRY_INIT, b = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&a, f, NULL), 0);
	fc_entry_take(&b, &a);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_not_equal(find_line(0, "  entered by thread ", "moved out of it"), -1);
	assert_int_equal(find_line(0, "#0", NULL), -1);
	assert_non_null(strstr(told.stack, "moved out"));
	fc_exit(&b);
	advance(FC_MS(300));
	assert_int_equal(overdue(f), 0);
}

static void calls_own_thread_may_be_the_one_that_ticks(void **state)
{
	struct fc_iface *f = make_iface("loop", 8);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&e, f, NULL), 0);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	if (stacks_shown())
		assert_int_not_equal(find_line(0, "the thread is running", NULL), -1);
	fc_exit(&e);
}

static void running_thread_shows_the_frames_outside_its_guard(void **state)
{
	struct sleeper s = { 0 };

	(void)state;
	sleeper_start(&s, make_iface("spin", 8), spin_until_told, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_not_equal(find_line(0, "  thread worker-3", NULL), -1);
	if (stacks_shown())
		assert_int_not_equal(find_line(0, " handle_request", "<- guard"), -1);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void entry_on_the_heap_gives_a_stack_without_an_anchor(void **state)
{
	struct fc_entry *heap = calloc(1, sizeof(*heap));
	struct sleeper s = { .heap = heap };

	(void)state;
	sleeper_start(&s, make_iface("heap", 8), wait_for_semaphore, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_equal(find_line(0, "<- guard", NULL), -1);
	assert_int_equal(find_line(0, "its entry is not where it was", NULL), -1);
	if (stacks_shown())
		assert_int_not_equal(find_line(0, " wait_for_semaphore", NULL), -1);
	assert_int_equal(sleeper_stop(&s), 0);
	free(heap);
}

static void entry_that_was_overwritten_is_told(void **state)
{
	struct fc_entry *heap = calloc(1, sizeof(*heap)), copy;
	struct sleeper s = { .heap = heap };

	(void)state;
	sleeper_start(&s, make_iface("heap", 8), wait_for_semaphore, NULL);
	copy = *heap;
	memset(heap, 0, sizeof(*heap));
	advance(FC_S(5));
	assert_int_not_equal(find_line(0, "its entry is not where it was", NULL), -1);
	*heap = copy;
	assert_int_equal(sleeper_stop(&s), 0);
	free(heap);
}

int main(void)
{
#define CASE(name_) cmocka_unit_test_setup_teardown(name_, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(one_call_stuck_among_1000_a_second_is_named_within_stuck_after_and_one_tick),
		CASE(report_shows_thread_kernel_state_and_stack_with_function_and_line),
		CASE(stuck_call_is_not_disturbed_by_its_reports),
		CASE(hundred_threads_stuck_in_one_place_make_one_report_with_a_count),
		CASE(threads_that_follow_into_one_place_are_told_together),
		CASE(calls_stuck_in_two_places_make_two_reports),
		CASE(report_comes_again_at_doubling_ages),
		CASE(call_may_set_its_own_stuck_after),
		CASE(interface_may_set_its_own_stuck_after),
		CASE(request_id_is_shown),
		CASE(callback_gets_the_call_its_thread_and_the_stack),
		CASE(moved_call_is_reported_without_a_stack),
		CASE(calls_own_thread_may_be_the_one_that_ticks),
		CASE(running_thread_shows_the_frames_outside_its_guard),
		CASE(entry_on_the_heap_gives_a_stack_without_an_anchor),
		CASE(entry_that_was_overwritten_is_told),
	};

	return cmocka_run_group_tests_name("stuck", tests, NULL, NULL);
}
