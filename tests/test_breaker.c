/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The breaker: what opens it, windows and their edges, probes and their leases, generations, ways back,
 * states set by hand, time that jumps, reloads, threads. Names of reports about other systems stand in
 * comments.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "interceptors/trip.h"
#include "support/breaking.h"
#include "support/threads.h"

#define YEAR_NS (365ull * 86400 * FC_S(1))

static void rule(struct fc_breaker_conf conf)
{
	assert_int_equal(give_rule(&fc_interceptor_breaker, &conf, 0), 0);
}

static void begin(uint32_t cpus, struct fc_breaker_conf conf)
{
	open_cpus(cpus);
	rule(conf);
}

static struct fc_breaker_status look(void)
{
	FC_OPTS(fc_breaker_status, s, .state = 0);

	if (fc_breaker_state(g.f, NULL, &s) < 0)
		abort();
	return s;
}

#define assert_state(state_) assert_int_equal(look().state, state_)

/* By so many errors as are needed at once. */
static void break_it(void)
{
	for (int i = 0; i < 100 && look().state == FC_BREAKER_CLOSED; i++)
		assert_int_equal(call(FC_OUTCOME_ERROR), 0);
	assert_state(FC_BREAKER_OPEN);
}

static void let_it_half_open(void)
{
	guarded_pass(&g, look().left_ns);
	assert_state(FC_BREAKER_HALF_OPEN);
}

/* ---- what opens it ----------------------------------------------------------------------------- */

static void a_ratio_opens_with_the_call_that_meets_it(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .error_permille = 300, .min_calls = 10 });
	assert_int_equal(calls(70, FC_OUTCOME_OK), 70);
	assert_int_equal(calls(29, FC_OUTCOME_ERROR), 29);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(call(FC_OUTCOME_ERROR), 0);
	assert_state(FC_BREAKER_OPEN);
	assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_BREAKER);
	assert_int_equal(look().opened, 1);
}

static void fewer_than_min_calls_say_nothing(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 10 });
	assert_int_equal(calls(9, FC_OUTCOME_ERROR), 9);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(call(FC_OUTCOME_ERROR), 0);
	assert_state(FC_BREAKER_OPEN);
}

static int copy_conf(struct fc_call *call, void *arg)
{
	*(struct fc_breaker_conf *)arg = *(const struct fc_breaker_conf *)call->conf;
	return 0;
}

static void numbers_that_are_not_said_are_those_of_the_header(void **state)
{
	struct fc_breaker_conf c;

	(void)state;
	begin(2, (struct fc_breaker_conf){ .window_ns = 0 });
	assert_int_equal(fc_iface_with(g.f, &fc_interceptor_breaker, NULL, copy_conf, &c), 0);
	assert_true(c.window_ns == FC_S(10) && c.min_calls == 20 && c.error_permille == 500 && c.errors == 0);
	assert_true(c.open_ns == FC_S(5) && c.max_open_ns == FC_S(60) && c.backoff_permille == 2000);
	assert_true(c.probes == 3 && c.successes == 3 && c.lease_ns == FC_S(10));
	assert_true(c.ramp_from_permille == 100 && c.ramp_ns == FC_S(30));
	begin(2, (struct fc_breaker_conf){ .errors = 1, .open_ns = FC_S(90), .probes = 7 });
	assert_int_equal(fc_iface_with(g.f, &fc_interceptor_breaker, NULL, copy_conf, &c), 0);
	assert_true(c.error_permille == 0 && c.max_open_ns == FC_S(90) && c.successes == 7);
}

static void by_itself_a_ratio_needs_twenty_calls(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .error_permille = 500 });
	assert_int_equal(calls(19, FC_OUTCOME_ERROR), 19);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(calls(2, FC_OUTCOME_ERROR), 1);
	begin(2, (struct fc_breaker_conf){ .error_permille = 500, .window_calls = 15 });
	assert_int_equal(calls(14, FC_OUTCOME_ERROR), 14);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(calls(2, FC_OUTCOME_ERROR), 1);
}

static void a_good_call_that_completes_min_calls_opens_within_the_interval(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 10 });
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_int_equal(calls(8, FC_OUTCOME_ERROR), 8);
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_CLOSED);
	guarded_pass(&g, 11 * UNIT_NS);
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_OPEN);
	begin(2, (struct fc_breaker_conf){ .min_calls = 10 });
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_int_equal(calls(8, FC_OUTCOME_ERROR), 8);
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	fc_tick(g.fc, 0);
	assert_state(FC_BREAKER_OPEN);
}

static void so_many_errors_open_whatever_else_there_is(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .errors = 5, .min_calls = 1000 });
	assert_int_equal(calls(10000, FC_OUTCOME_OK), 10000);
	assert_int_equal(calls(4, FC_OUTCOME_ERROR), 4);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(calls(10, FC_OUTCOME_ERROR), 1);
}

static void slow_calls_open(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .slow_permille = 500, .slow_ns = FC_MS(100), .min_calls = 10 });
	for (int i = 0; i < 5; i++) /* by errors it does not open */
		assert_int_equal(call_for(FC_MS(100) - 1, i ? FC_OUTCOME_ERROR : FC_OUTCOME_OK), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(call_for(FC_MS(100), FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(look().slow, 4);
	assert_int_equal(call_for(FC_MS(100), FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_OPEN);
	fc_tick(g.fc, 0);
	assert_int_equal(guarded_last(&g, FC_EVENT_BREAKER_OPENED)->b, 5); /* the slow ones are told of */
	let_it_half_open();
	assert_int_equal(call_for(FC_MS(100), FC_OUTCOME_OK), 0); /* a slow probe has failed */
	assert_state(FC_BREAKER_OPEN);
}

static void outcomes_count_as_they_should(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc_breaker_status s;

	(void)state;
	begin(2, (struct fc_breaker_conf){ .errors = 100 });
	calls(3, FC_OUTCOME_OK);
	calls(4, FC_OUTCOME_ERROR);
	calls(5, FC_OUTCOME_TIMEOUT);
	calls(6, FC_OUTCOME_IGNORED);
	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	abandon();
	s = look();
	assert_int_equal(s.calls, 13);
	assert_int_equal(s.failed, 10);
	fc_exit(&e); /* too late: it counts once */
	assert_int_equal(look().calls, 13);
}

/* ---- windows ----------------------------------------------------------------------------------- */

/* Each moment of a slice as a beginning: an outcome counts for all of the window, and at most 1/15 of it and
 * 16 units longer. */
static void a_window_forgets_nothing_early_and_all_in_time(void **state)
{
	static const uint64_t windows[] = { FC_MS(100), FC_MS(999), FC_S(10), FC_S(600) };

	(void)state;
	for (size_t w = 0; w < sizeof(windows) / sizeof(windows[0]); w++)
		for (int phase = 0; phase < 40; phase++) {
			uint64_t window = windows[w];

			begin(2, (struct fc_breaker_conf){ .window_ns = window, .errors = 1000 });
			guarded_pass(&g, window / 300 * (uint64_t)phase + 1);
			calls(7, FC_OUTCOME_ERROR);
			guarded_pass(&g, window / 2);
			calls(5, FC_OUTCOME_OK);
			guarded_pass(&g, window - window / 2 - UNIT_NS);
			assert_true(look().failed == 7 && look().calls == 12);
			guarded_pass(&g, window / 15 + 17 * UNIT_NS);
			assert_true(look().failed == 0 && look().calls == 5);
			guarded_pass(&g, window);
			assert_int_equal(look().calls, 0);
		}
}

/* Sentinel #2859: errors at both sides of a slice's edge are one burst. */
static void a_burst_over_an_edge_is_one(void **state)
{
	(void)state;
	for (int phase = 0; phase < 200; phase++) {
		begin(2, (struct fc_breaker_conf){ .window_ns = FC_S(1), .errors = 10 });
		guarded_pass(&g, FC_MS(5) * (uint64_t)phase);
		calls(5, FC_OUTCOME_ERROR);
		guarded_pass(&g, FC_MS(998));
		calls(4, FC_OUTCOME_ERROR);
		assert_state(FC_BREAKER_CLOSED);
		calls(1, FC_OUTCOME_ERROR);
		assert_state(FC_BREAKER_OPEN);
	}
}

static void a_window_of_calls_holds_so_many_and_little_more(void **state)
{
	static const uint32_t sizes[] = { 10, 14, 100, 1000, 100000 };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t n = sizes[i];

		begin(1, (struct fc_breaker_conf){ .window_calls = n, .errors = 1000000 });
		for (uint32_t k = 0; k < 3 * n; k++) {
			uint64_t seen;

			call(k % 2 ? FC_OUTCOME_ERROR : FC_OUTCOME_OK);
			if (k % (n / 10) != 0)
				continue;
			guarded_pass(&g, FC_S(3600)); /* time does not matter */
			seen = look().calls;
			assert_true(k + 1 <= n ? seen == k + 1 : seen >= n && seen <= n + n / 5 + 1);
			assert_true(look().failed * 2 <= seen + 1 && look().failed * 2 + 1 >= seen);
		}
	}
}

static void closing_begins_an_empty_window(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 10, .open_ns = FC_MS(2), .probes = 1 });
	break_it();
	let_it_half_open(); /* in the same slice */
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(look().calls, 0);
	calls(5, FC_OUTCOME_OK);
	assert_int_equal(calls(4, FC_OUTCOME_ERROR), 4);
	assert_state(FC_BREAKER_CLOSED);
}

/* ---- open, half open --------------------------------------------------------------------------- */

static void open_says_when_to_come_again_and_keeps_it(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;
	FC_OPTS(fc_decision, d, .status = 0);

	(void)state;
	for (int phase = 0; phase < 30; phase++) {
		begin(2, (struct fc_breaker_conf){ .open_ns = FC_MS(70), .min_calls = 1 });
		guarded_pass(&g, 100000u * (unsigned)phase);
		break_it();
		assert_int_equal(fc_enter(&e, g.f, NULL), FC_REFUSED_BREAKER);
		assert_int_equal(fc_entry_decision(&e, &d), 0);
		assert_string_equal(d.rule, "breaker");
		assert_in_range(d.retry_after_ns, FC_MS(70), FC_MS(70) + 2 * UNIT_NS);
		guarded_pass(&g, FC_MS(70) - 1); /* never early */
		assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_BREAKER);
		guarded_pass(&g, d.retry_after_ns - FC_MS(70) + 1);
		assert_int_equal(call(FC_OUTCOME_OK), 0);
	}
}

/* zentinel #261: without any traffic the state becomes half open, and is told. */
static void time_alone_makes_it_half_open(void **state)
{
	const struct fc_event *ev;

	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1, .open_ns = FC_S(5) });
	break_it();
	guarded_pass(&g, FC_S(5) + 2 * UNIT_NS);
	assert_state(FC_BREAKER_HALF_OPEN);
	assert_int_equal(look().generation, 1);
	fc_tick(g.fc, 0);
	fc_tick(g.fc, 0);
	assert_int_equal(look().generation, 2);
	ev = guarded_last(&g, FC_EVENT_BREAKER_HALF_OPEN);
	assert_non_null(ev);
	assert_true(guarded_events(&g, FC_EVENT_BREAKER_OPENED) == 1 && ev->a == 3);
}

/* resilience4j #1090, safe-client-gateway PR #3442 */
static void half_open_lets_in_just_the_probes(void **state)
{
	struct fc_entry e[10], more[10];

	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1, .probes = 4, .successes = 6 });
	break_it();
	let_it_half_open();
	assert_int_equal(guarded_fill(&g, e, 10), 4);
	assert_int_equal(look().probes, 4);
	fc_exit(&e[0]);
	fc_exit(&e[1]);
	assert_int_equal(guarded_fill(&g, more, 10), 2);
	assert_state(FC_BREAKER_HALF_OPEN);
	guarded_empty(e, 4);
	assert_state(FC_BREAKER_HALF_OPEN);
	guarded_empty(more, 2);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(guarded_stats(&g).in_flight, 0);
}

static void a_probe_that_fails_opens_again_and_its_place_is_not_lent(void **state)
{
	struct fc_entry e[3];

	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1 });
	break_it();
	let_it_half_open();
	assert_int_equal(guarded_fill(&g, e, 3), 3);
	fc_exit(&e[0]);
	fc_entry_mark(&e[1], FC_OUTCOME_TIMEOUT);
	fc_exit(&e[1]);
	assert_state(FC_BREAKER_OPEN);
	fc_exit(&e[2]); /* of an old generation */
	assert_state(FC_BREAKER_OPEN);
	let_it_half_open();
	assert_int_equal(calls(2, FC_OUTCOME_OK), 2);
	assert_state(FC_BREAKER_HALF_OPEN); /* those before do not count */
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_CLOSED);
}

static void an_ignored_probe_says_nothing_and_gives_its_place_back(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1, .probes = 1 });
	break_it();
	let_it_half_open();
	assert_int_equal(calls(20, FC_OUTCOME_IGNORED), 20);
	assert_state(FC_BREAKER_HALF_OPEN);
	assert_int_equal(look().probes, 0);
}

/* Sentinel #1638, sentinel-golang #196: a later rule refuses each probe. */
static void a_probe_that_a_later_rule_refuses_is_given_back(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1, .probes = 2, .successes = 1 });
	break_it();
	let_it_half_open();
	later_refuses = 1;
	for (int i = 0; i < 300; i++)
		assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_CUSTOM);
	assert_int_equal(look().probes, 0);
	later_refuses = 0;
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_CLOSED);
}

/* resilience4j #935: probes that never come back. */
static void a_hung_probe_holds_its_place_for_its_lease(void **state)
{
	struct fc_entry hung[3], e[3];

	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1, .probes = 3, .lease_ns = FC_S(10) });
	break_it();
	let_it_half_open();
	assert_int_equal(guarded_fill(&g, hung, 3), 3);
	guarded_pass(&g, FC_S(10) - 1);
	assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_BREAKER);
	guarded_pass(&g, 2 * UNIT_NS);
	assert_int_equal(guarded_fill(&g, e, 3), 3);
	assert_int_equal(look().probes, 3);
	/* Late: they give nothing back that others have, and say nothing. */
	for (int i = 0; i < 3; i++) {
		fc_entry_mark(&hung[i], FC_OUTCOME_ERROR);
		fc_exit(&hung[i]);
	}
	assert_state(FC_BREAKER_HALF_OPEN);
	assert_int_equal(look().probes, 3);
	guarded_empty(e, 3);
	assert_state(FC_BREAKER_CLOSED);
}

static void by_itself_a_lease_lasts_twice_as_long_as_a_slow_call(void **state)
{
	static const struct { uint64_t slow_ns, lease_ns; } cases[] = { { FC_S(1), FC_S(10) }, { FC_S(8), FC_S(16) } };
	struct fc_entry hung, e;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin(2, (struct fc_breaker_conf){ .errors = 1, .probes = 1, .slow_ns = cases[i].slow_ns, .slow_permille = 999 });
		break_it();
		let_it_half_open();
		assert_int_equal(guarded_fill(&g, &hung, 1), 1);
		guarded_pass(&g, cases[i].lease_ns - 1);
		assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_BREAKER);
		guarded_pass(&g, 2 * UNIT_NS);
		assert_int_equal(guarded_fill(&g, &e, 1), 1);
		fc_exit(&hung);
		fc_exit(&e);
	}
}

static void probes_that_still_run_from_before_hold_no_place(void **state)
{
	struct fc_entry old[3], e[10];

	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1, .probes = 3, .lease_ns = FC_S(3600) });
	break_it();
	let_it_half_open();
	assert_int_equal(guarded_fill(&g, old, 3), 3);
	fc_entry_mark(&old[0], FC_OUTCOME_ERROR);
	fc_exit(&old[0]);
	let_it_half_open();
	assert_int_equal(guarded_fill(&g, e, 10), 3);
	fc_exit(&old[1]);
	fc_exit(&old[2]);
	assert_int_equal(look().probes, 3);
	guarded_empty(e, 3);
	assert_state(FC_BREAKER_CLOSED);
}

/* s3-orchestrator #424: the probe is ended by others. */
static void an_abandoned_probe_has_failed(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1, .probes = 1 });
	break_it();
	let_it_half_open();
	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	abandon();
	assert_state(FC_BREAKER_OPEN);
	let_it_half_open();
	assert_int_equal(look().probes, 0);
	fc_exit(&e);
	assert_state(FC_BREAKER_HALF_OPEN);
}

/* What the library does with cells that a killed process left. */
static int probe_and_reap(struct fc_call *c, void *arg)
{
	uint32_t cells[2] = { 0, 0 };
	int rc;

	(void)arg;
	c->cells = cells;
	rc = fc_interceptor_breaker.pre(c);
	if (rc)
		return rc;
	if (look().probes != 1)
		return -1;
	fc_interceptor_breaker.reap(c);
	fc_interceptor_breaker.reap(c); /* once more: nothing */
	return look().probes == 0 && look().state == FC_BREAKER_HALF_OPEN ? 0 : -2;
}

static void a_killed_probe_is_given_back_and_says_nothing(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1, .probes = 1 });
	break_it();
	let_it_half_open();
	for (int i = 0; i < 10; i++)
		assert_int_equal(fc_iface_with(g.f, &fc_interceptor_breaker, NULL, probe_and_reap, NULL), 0);
}

/* gobreaker #122 */
static void results_of_an_older_generation_count_for_nothing(void **state)
{
	struct fc_entry e[20];

	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1, .probes = 1, .open_ns = FC_MS(10) });
	assert_int_equal(guarded_fill(&g, e, 20), 20);
	break_it();
	for (int i = 0; i < 5; i++) {
		fc_entry_mark(&e[i], FC_OUTCOME_OK);
		fc_exit(&e[i]);
	}
	let_it_half_open();
	fc_exit(&e[5]); /* no probe: it does not close */
	fc_entry_mark(&e[6], FC_OUTCOME_ERROR);
	fc_exit(&e[6]); /* nor open */
	assert_state(FC_BREAKER_HALF_OPEN);
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_CLOSED);
	for (int i = 7; i < 20; i++) {
		fc_entry_mark(&e[i], FC_OUTCOME_ERROR);
		fc_exit(&e[i]);
	}
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(look().calls, 0);
}

/* ---- ways back --------------------------------------------------------------------------------- */

static uint64_t fail_a_probe(void)
{
	let_it_half_open();
	assert_int_equal(call(FC_OUTCOME_ERROR), 0);
	assert_state(FC_BREAKER_OPEN);
	return look().left_ns;
}

static void the_open_time_grows_to_its_most_and_shrinks_after_rest(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1, .open_ns = FC_S(1), .max_open_ns = FC_S(5),
	                                   .recover = FC_RECOVER_AT_ONCE });
	break_it();
	assert_in_range(look().left_ns, FC_S(1), FC_S(1) + 2 * UNIT_NS);
	assert_in_range(fail_a_probe(), FC_S(2), FC_S(2) + 2 * UNIT_NS);
	assert_in_range(fail_a_probe(), FC_S(4), FC_S(4) + 2 * UNIT_NS);
	for (int i = 0; i < 100; i++)
		assert_in_range(fail_a_probe(), FC_S(5), FC_S(5) + 2 * UNIT_NS);
	let_it_half_open();
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_CLOSED);
	guarded_pass(&g, FC_S(4)); /* soon after */
	break_it();
	assert_in_range(look().left_ns, FC_S(5), FC_S(5) + 2 * UNIT_NS);
	let_it_half_open();
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	guarded_pass(&g, FC_S(6));
	break_it();
	assert_in_range(look().left_ns, FC_S(1), FC_S(1) + 2 * UNIT_NS);
}

static void at_once_means_after_the_first(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1, .recover = FC_RECOVER_AT_ONCE,
	                                   .successes = 50, .probes = 5 });
	break_it();
	let_it_half_open();
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_CLOSED);
}

static void begin_ramp(void)
{
	begin(2, (struct fc_breaker_conf){ .min_calls = 20, .recover = FC_RECOVER_RAMP, .ramp_from_permille = 100,
	                                   .ramp_ns = FC_S(10), .probes = 1 });
	break_it();
	let_it_half_open();
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_RAMP);
}

static void a_ramp_lets_in_just_its_share(void **state)
{
	double shares = 0;
	unsigned in = 0;

	(void)state;
	begin_ramp();
	assert_int_equal(calls(1000, FC_OUTCOME_OK), 1000 * (100 * 65536 / 1000) / 65536);
	in = 0;
	begin_ramp();
	for (int i = 0; i < 9990; i++) {
		uint64_t left = look().left_ns;

		shares += 0.1 + 0.9 * (1 - (double)(left < FC_S(10) ? left : FC_S(10)) / (double)FC_S(10));
		in += call(FC_OUTCOME_OK) == 0;
		assert_in_range((int64_t)(shares + 2000) - in, 1995, 2005); /* at any moment */
		guarded_pass(&g, FC_MS(1));
	}
	assert_state(FC_BREAKER_RAMP);
	guarded_pass(&g, FC_MS(20));
	assert_int_equal(calls(50, FC_OUTCOME_OK), 50);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(look().share_permille, 1000);
}

static void a_ramp_opens_again_when_it_is_bad_and_goes_on_into_closed(void **state)
{
	(void)state;
	begin_ramp();
	for (int i = 0; i < 400 && look().state == FC_BREAKER_RAMP; i++)
		call(FC_OUTCOME_ERROR);
	assert_state(FC_BREAKER_OPEN);
	assert_in_range(look().left_ns, FC_S(10), FC_S(10) + 2 * UNIT_NS);
	begin_ramp();
	guarded_pass(&g, FC_S(9));
	assert_in_range(calls(20, FC_OUTCOME_ERROR), 18, 19);
	guarded_pass(&g, FC_S(1) + 2 * UNIT_NS);
	calls(1, FC_OUTCOME_ERROR); /* the window is that of the ramp: 20 now */
	assert_in_range(look().calls, 19, 20);
	calls(2, FC_OUTCOME_ERROR);
	assert_state(FC_BREAKER_OPEN);
}

static void credit_that_a_later_rule_refused_is_given_back(void **state)
{
	(void)state;
	begin_ramp();
	later_refuses = 1;
	calls(1000, FC_OUTCOME_OK);
	later_refuses = 0;
	/* All of it, up to the most that is kept: 64. */
	assert_int_equal(calls(20, FC_OUTCOME_OK), 20);
	assert_in_range(calls(200, FC_OUTCOME_OK), 44 + 20, 44 + 20 + 4);
}

static void a_ramp_is_read_as_closed_when_its_time_is_over(void **state)
{
	(void)state;
	begin_ramp();
	guarded_pass(&g, FC_S(11));
	assert_state(FC_BREAKER_CLOSED);
	fc_tick(g.fc, 0);
	assert_state(FC_BREAKER_CLOSED);
	fc_tick(g.fc, 0);
	assert_int_equal(guarded_events(&g, FC_EVENT_BREAKER_CLOSED), 1);
	assert_int_equal(guarded_events(&g, FC_EVENT_BREAKER_RAMP), 1);
}

/* ---- by hand ----------------------------------------------------------------------------------- */

static void forced_states_hold_until_they_are_taken_back(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 1 });
	assert_int_equal(fc_breaker_force(g.f, NULL, FC_BREAKER_FORCE_OPEN), 0);
	guarded_pass(&g, YEAR_NS);
	assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_BREAKER);
	assert_state(FC_BREAKER_FORCED_OPEN);
	assert_int_equal(fc_breaker_force(g.f, "breaker", FC_BREAKER_FORCE_CLOSED), 0);
	assert_int_equal(calls(100, FC_OUTCOME_ERROR), 100);
	assert_state(FC_BREAKER_FORCED_CLOSED);
	assert_int_equal(fc_breaker_force(g.f, NULL, FC_BREAKER_AUTO), 0);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(look().calls, 0);
	assert_int_equal(calls(100, FC_OUTCOME_ERROR), 1);
	assert_int_equal(fc_breaker_force(g.f, NULL, FC_BREAKER_AUTO), 0); /* nothing to take back */
	assert_state(FC_BREAKER_OPEN);
	assert_int_equal(fc_breaker_force(g.f, NULL, 3), -EINVAL);
	assert_int_equal(fc_breaker_force(g.f, NULL, -1), -EINVAL);
	assert_int_equal(fc_breaker_force(g.f, "other", 1), -ENOENT);
	fc_tick(g.fc, 0);
	assert_string_equal(fc_event_name(guarded_last(&g, FC_EVENT_BREAKER_FORCED)->kind), "FC_EVENT_BREAKER_FORCED");
}

static char text[256];

static void keep_text(void *arg, const struct fc_event *e)
{
	(void)arg;
	if (e->kind >= FC_EVENT_BREAKER_OPENED)
		snprintf(text, sizeof(text), "%s", e->text);
}

static void transitions_are_told_in_words(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 7, .probes = 1, .open_ns = FC_S(1) });
	g.fc->on_event = keep_text;
	break_it();
	fc_tick(g.fc, 0);
	assert_string_equal(text, "breaker open for 1.0 s: 7 calls failed or slow");
	let_it_half_open();
	fc_tick(g.fc, 0);
	fc_tick(g.fc, 0);
	assert_string_equal(text, "breaker half open: 1 call at once may probe");
	call(FC_OUTCOME_OK);
	fc_tick(g.fc, 0);
	assert_string_equal(text, "breaker closed: 1 call succeeded");
	fc_breaker_force(g.f, NULL, FC_BREAKER_FORCE_OPEN);
	fc_tick(g.fc, 0);
	assert_string_equal(text, "breaker set by hand: open");
}

/* ---- time -------------------------------------------------------------------------------------- */

static void jump_to(uint64_t now)
{
	g.now = now;
	fc_clock_set(g.fc, now);
}

/* sentinel-golang #409: a clock that is set back by an hour locks nobody out for longer than a second. */
static void a_clock_set_back_locks_nobody_out(void **state)
{
	uint64_t waited = 0;

	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 10, .open_ns = FC_S(5), .probes = 1 });
	jump_to(FC_S(10000));
	calls(1, FC_OUTCOME_OK);
	break_it();
	jump_to(FC_S(6400));
	assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_BREAKER);
	for (; waited < FC_S(5) && call(FC_OUTCOME_OK) != 0; waited += FC_MS(10))
		guarded_pass(&g, FC_MS(10));
	assert_in_range(waited, FC_MS(900), FC_MS(1100));
	assert_state(FC_BREAKER_CLOSED);
	/* And it counts as before. */
	assert_int_equal(calls(20, FC_OUTCOME_ERROR), 10);
}

static void a_closed_one_counts_on_when_the_clock_is_set_back(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 10, .open_ns = FC_S(5) });
	jump_to(FC_S(10000));
	calls(100, FC_OUTCOME_OK);
	jump_to(FC_S(6400));
	assert_in_range(calls(200, FC_OUTCOME_ERROR), 100, 112); /* with what was before */
	assert_state(FC_BREAKER_OPEN);
}

static void a_few_late_calls_move_nothing(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 10, .open_ns = FC_S(30) });
	jump_to(FC_S(10000));
	calls(1, FC_OUTCOME_OK);
	break_it();
	for (int i = 0; i < 3000; i++) {
		uint64_t now = g.now;

		jump_to(now - FC_S(20)); /* one that was stopped for long */
		assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_BREAKER);
		jump_to(now + FC_MS(5));
		assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_BREAKER);
		fc_tick(g.fc, 0);
	}
	assert_state(FC_BREAKER_OPEN);
}

static void a_clock_that_trembles_changes_nothing(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 10, .open_ns = FC_S(2), .window_ns = FC_S(1) });
	for (int i = 0; i < 40000; i++) {
		jump_to(g.now + (i % 2 ? FC_MS(1) : 0) - (i % 2 ? 0 : FC_MS(1)) + 50000);
		assert_int_equal(call(i % 3 ? FC_OUTCOME_OK : FC_OUTCOME_ERROR), 0);
	}
	assert_in_range(look().calls, 19000, 23000);
	guarded_pass(&g, FC_S(2));
	break_it();
	for (int i = 0; i < 30000; i++) {
		jump_to(g.now + (i % 2 ? FC_MS(1) : 0) - (i % 2 ? 0 : FC_MS(1)) + 50000);
		assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_BREAKER);
	}
}

/* bucket4j #51: idle for centuries; and other leaps. */
static void long_leaps_end_what_they_should(void **state)
{
	static const uint64_t leaps[] = { FC_S(3600), 10 * YEAR_NS, 18 * YEAR_NS, 19 * YEAR_NS, 36 * YEAR_NS,
	                                  190 * YEAR_NS };

	(void)state;
	for (size_t i = 0; i < sizeof(leaps) / sizeof(leaps[0]); i++) {
		begin(2, (struct fc_breaker_conf){ .min_calls = 10, .open_ns = FC_S(5), .probes = 1,
		                                   .recover = FC_RECOVER_RAMP });
		calls(5, FC_OUTCOME_ERROR);
		guarded_pass(&g, leaps[i]);
		assert_int_equal(look().calls, 0);
		break_it();
		guarded_pass(&g, leaps[i]);
		assert_state(FC_BREAKER_HALF_OPEN);
		assert_int_equal(call(FC_OUTCOME_OK), 0);
		assert_state(FC_BREAKER_RAMP);
		guarded_pass(&g, leaps[i]);
		assert_int_equal(calls(100, FC_OUTCOME_OK), 100);
		g.now = FC_S(1000);
		fc_clock_set(g.fc, g.now);
	}
}

/* ---- conf -------------------------------------------------------------------------------------- */

/* sentinel-golang PR #232 */
static void a_reload_keeps_all_state(void **state)
{
	struct fc_breaker_conf conf = { .min_calls = 10, .probes = 2, .open_ns = FC_S(5), .successes = 3 };
	struct fc_entry e[2];

	(void)state;
	begin(2, conf);
	for (int i = 0; i < 5; i++) {
		calls(1, FC_OUTCOME_ERROR);
		rule(conf);
	}
	assert_int_equal(look().failed, 5);
	calls(5, FC_OUTCOME_ERROR);
	assert_state(FC_BREAKER_OPEN);
	conf.open_ns = FC_MS(4500); /* what is running goes on, the next one is shorter */
	rule(conf);
	assert_in_range(look().left_ns, FC_S(5), FC_S(5) + 2 * UNIT_NS);
	let_it_half_open();
	assert_int_equal(guarded_fill(&g, e, 2), 2);
	rule(conf);
	assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_BREAKER);
	guarded_empty(e, 2);
	rule(conf);
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(fc_breaker_force(g.f, NULL, FC_BREAKER_FORCE_OPEN), 0);
	rule(conf);
	assert_state(FC_BREAKER_FORCED_OPEN);
}

static void another_kind_of_window_begins_anew(void **state)
{
	(void)state;
	begin(2, (struct fc_breaker_conf){ .errors = 100 });
	calls(20, FC_OUTCOME_ERROR);
	rule((struct fc_breaker_conf){ .errors = 100, .window_calls = 50 });
	assert_int_equal(look().calls, 0);
	calls(30, FC_OUTCOME_ERROR);
	assert_int_equal(look().failed, 30);
	rule((struct fc_breaker_conf){ .errors = 100, .window_calls = 20 });
	calls(100, FC_OUTCOME_OK);
	assert_in_range(look().calls, 20, 24);
	rule((struct fc_breaker_conf){ .errors = 100 });
	calls(1, FC_OUTCOME_OK);
	assert_in_range(look().calls, 1, 21); /* of one slice, if it is the same */
	/* Slices of one kind that have the number of another's. */
	begin(2, (struct fc_breaker_conf){ .errors = 100, .window_ns = FC_S(600) });
	calls(20, FC_OUTCOME_ERROR);
	rule((struct fc_breaker_conf){ .errors = 100, .window_calls = 10 });
	for (int i = 0; i < 100; i++) {
		calls(1, FC_OUTCOME_OK);
		assert_int_equal(look().failed, 0);
	}
}

static void bad_numbers_are_refused_with_words(void **state)
{
	static const struct { struct fc_breaker_conf conf; const char *says; } bad[] = {
		{ { .window_ns = FC_MS(99) }, "window is not between 100 ms and 10 min" },
		{ { .window_ns = FC_S(601) }, "window is not between 100 ms and 10 min" },
		{ { .window_ns = FC_S(1), .window_calls = 10 },
		  "both window and window_calls are set: it counts over a time or over so many calls" },
		{ { .window_calls = 9 }, "window_calls is not between 10 and 1000000" },
		{ { .window_calls = 10, .min_calls = 11 }, "min_calls is over 1000000, or over window_calls" },
		{ { .error_permille = 1001 }, "errors_ratio, slow_ratio or ramp_from is over 100 %" },
		{ { .slow_permille = 10 }, "slow_ratio is set without slow: from which time on is a call slow?" },
		{ { .slow_ns = 10 }, "slow is set without slow_ratio: how many may be slow?" },
		{ { .open_ns = 1 }, "open is not between 2 ms and 1 h" },
		{ { .max_open_ns = FC_S(4) }, "max_open is not between open and 1 h" },
		{ { .recover = 3 }, "recover is unknown: successes, at_once or ramp" },
		{ { .backoff_permille = 999 }, "backoff is not between 1x and 10x" },
		{ { .probes = 65 }, "probes is over 64, or successes over 10000" },
		{ { .ramp_ns = 1 }, "ramp is not between 10 ms and 1 h" },
		{ { .lease_ns = 1 }, "lease is not between 10 ms and 1 h" },
	};

	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 10 });
	calls(9, FC_OUTCOME_ERROR);
	g.fc->log = keep_line;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char line[256];

		assert_int_equal(give_rule(&fc_interceptor_breaker, &bad[i].conf, 0), -EINVAL);
		snprintf(line, sizeof(line), "guarded: breaker: %s", bad[i].says);
		assert_string_equal(first_logged, line);
		first_logged[0] = 0;
	}
	assert_int_equal(call(FC_OUTCOME_ERROR), 0);
	assert_state(FC_BREAKER_OPEN);
}

static void a_dry_run_counts_and_refuses_nobody(void **state)
{
	struct fc_breaker_conf conf = { .min_calls = 10, .probes = 1 };

	(void)state;
	begin(2, conf);
	assert_int_equal(give_rule(&fc_interceptor_breaker, &conf, FC_RULE_DRY_RUN), 0);
	assert_int_equal(calls(100, FC_OUTCOME_ERROR), 100);
	assert_state(FC_BREAKER_OPEN);
	assert_int_equal(guarded_stats(&g).would_refuse, 90);
	let_it_half_open();
	assert_int_equal(call(FC_OUTCOME_OK), 0);
	assert_state(FC_BREAKER_CLOSED);
}

static void weight_is_one_call(void **state)
{
	FC_OPTS(fc_ctx, ctx, .weight = 3);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	begin(2, (struct fc_breaker_conf){ .min_calls = 10 });
	assert_int_equal(fc_enter(&e, g.f, &ctx), 0);
	fc_exit(&e);
	assert_int_equal(look().calls, 1);
}

static int spoil(struct fc_call *c, void *arg)
{
	struct rng *rng = arg;
	uint64_t *words = c->state;

	for (size_t i = 0; i < (sizeof(struct trip) + 2 * sizeof(struct window_lane)) / sizeof(*words); i++)
		words[i] = rng_next(rng) >> rng_below(rng, 64);
	return 0;
}

/* besu #11277, opossum #484: whatever stands in the segment, it comes back. */
static void spoilt_memory_is_survived(void **state)
{
	struct rng rng;

	(void)state;
	rng_init(&rng, 7);
	begin(2, (struct fc_breaker_conf){ .min_calls = 10, .open_ns = FC_S(1), .max_open_ns = FC_S(2),
	                                   .ramp_ns = FC_S(1),
	                                   .recover = FC_RECOVER_RAMP, .lease_ns = FC_S(1), .window_ns = FC_S(1) });
	for (int round = 0; round < 300; round++) {
		int good = 0, tries = 0;

		assert_int_equal(fc_iface_with(g.f, &fc_interceptor_breaker, NULL, spoil, &rng), 0);
		if (look().state == FC_BREAKER_FORCED_OPEN)
			fc_breaker_force(g.f, NULL, FC_BREAKER_AUTO);
		while (good < 100 && tries++ < 2000) {
			good = call(FC_OUTCOME_OK) == 0 ? good + 1 : 0;
			guarded_pass(&g, FC_MS(10));
			fc_tick(g.fc, 0);
		}
		assert_int_equal(good, 100);
	}
}

/* ---- threads ----------------------------------------------------------------------------------- */

static struct {
	uint32_t rounds;
	uint64_t slice;
	atomic_int inside, worst;
	atomic_uint_fast64_t admitted, failed, refused;
} race;

static void probing(void *arg, unsigned index, struct rng *rng)
{
	uint64_t end = stress_end_ns();
	(void)arg, (void)index;
	while (test_now_ns() < end) {
		struct fc_entry e = FC_ENTRY_INIT;
		int now;

		if (fc_enter(&e, g.f, NULL))
			continue;
		now = atomic_fetch_add(&race.inside, 1) + 1;
		if (now > atomic_load(&race.worst))
			atomic_store(&race.worst, now);
		if (rng_chance(rng, 4))
			test_sleep_ms(0);
		atomic_fetch_sub(&race.inside, 1);
		fc_entry_mark(&e, FC_OUTCOME_IGNORED);
		fc_exit(&e);
	}
}

/* resilience4j #1432 */
static void many_threads_never_have_more_probes_than_there_are(void **state)
{
	(void)state;
	for (uint32_t k = 1; k <= 3; k++) {
		begin(0, (struct fc_breaker_conf){ .min_calls = 1, .probes = k, .lease_ns = FC_S(3600) });
		break_it();
		let_it_half_open();
		atomic_store(&race.worst, 0);
		run_threads(4 * test_cpus() + 2, probing, NULL);
		assert_int_equal(atomic_load(&race.worst), k);
		assert_state(FC_BREAKER_HALF_OPEN);
		assert_int_equal(look().probes, 0);
	}
}

static void at_the_instant(void *arg, unsigned index, struct rng *rng)
{
	struct fc_entry *e = arg, mine = FC_ENTRY_INIT;

	(void)rng;
	if (fc_enter(&mine, g.f, NULL) == 0)
		atomic_fetch_add(&race.admitted, 1);
	fc_entry_take(&e[index], &mine); /* it outlives its thread */
}

/* All come at the instant of open -> half open; their probes stay out. */
static void just_so_many_get_in_at_the_instant(void **state)
{
	struct fc_entry e[16];

	(void)state;
	begin(0, (struct fc_breaker_conf){ .min_calls = 1, .probes = 5, .open_ns = FC_MS(10),
	                                   .max_open_ns = FC_MS(10) });
	for (int round = 0; round < 100; round++) {
		break_it();
		let_it_half_open();
		atomic_store(&race.admitted, 0);
		run_threads(16, at_the_instant, e);
		assert_int_equal(atomic_load(&race.admitted), 5);
		for (int i = 0; i < 16; i++)
			fc_exit(&e[i]);
		assert_state(FC_BREAKER_CLOSED);
	}
}

static void counting(void *arg, unsigned index, struct rng *rng)
{
	(void)arg;
	for (uint32_t i = 0; i < race.rounds; i++) {
		int bad = rng_chance(rng, 3);

		if (call(bad ? FC_OUTCOME_ERROR : FC_OUTCOME_OK))
			continue;
		atomic_fetch_add(&race.admitted, 1);
		atomic_fetch_add(&race.failed, bad);
		if (index == 0 && i % (race.rounds / 14) == 0)
			fc_clock_advance(g.fc, race.slice);
	}
}

/* Sentinel PR #2945, go-redis PR #3836: nothing is lost where slices begin. */
static void no_outcome_is_lost_or_counted_twice(void **state)
{
	(void)state;
	for (int i = 0; i < 40; i++) {
		struct fc_breaker_conf conf = { .errors = UINT32_MAX };

		conf.window_ns = i % 2 ? 0 : FC_S(600);
		conf.window_calls = i % 2 ? 100000 : 0;
		begin(1, conf); /* one lane for all threads; 14 slices */
		race.rounds = 1400;
		race.slice = FC_S(40);
		atomic_store(&race.admitted, 0);
		atomic_store(&race.failed, 0);
		run_threads(2 * test_cpus(), counting, NULL);
		assert_int_equal(look().calls, atomic_load(&race.admitted));
		assert_int_equal(look().failed, atomic_load(&race.failed));
	}
}

static struct {
	struct window window;
	struct window_lane lane[1];
	struct window_numbers numbers;
	atomic_uint came, wrong;
} bare;

/* Wait for the other one. */
static void meet(void)
{
	unsigned turn = atomic_fetch_add(&bare.came, 1) / 2;

	while (atomic_load(&bare.came) < (turn + 1) * 2)
		sched_yield();
}

/* Both begin each slice of a new generation, at the same moment as far as that can be. */
static void beginning(void *arg, unsigned index, struct rng *rng)
{
	(void)arg, (void)rng;
	for (uint32_t generation = 1; generation < 3000; generation++) {
		meet();
		for (uint64_t u = 0; u < 15 * 7; u += 7)
			(void)fci_window_count(&bare.window, &bare.numbers, 0, generation, u, WINDOW_FAILED);
		meet();
		if (index == 0 && fci_window_sum(&bare.window, &bare.numbers, generation, 15 * 7 - 1).failed != 30)
			atomic_fetch_add(&bare.wrong, 1);
	}
}

static void none_is_lost_where_a_slice_begins(void **state)
{
	(void)state;
	memset(&bare, 0, sizeof(bare));
	fci_window_make(&bare.numbers, FC_MS(105), 0, 1);
	run_threads(2, beginning, NULL);
	assert_int_equal(atomic_load(&bare.wrong), 0);
}

static void ramping(void *arg, unsigned index, struct rng *rng)
{
	(void)arg, (void)index, (void)rng;
	for (uint32_t i = 0; i < race.rounds; i++)
		if (call(FC_OUTCOME_OK) == 0)
			atomic_fetch_add(&race.admitted, 1);
}

static void the_share_is_exact_with_many_threads(void **state)
{
	unsigned n = 4 * test_cpus() + 2;

	(void)state;
	begin_ramp();
	race.rounds = 5000;
	atomic_store(&race.admitted, 0);
	run_threads(n, ramping, NULL);
	assert_int_equal(atomic_load(&race.admitted), (uint64_t)n * 5000 * (100 * 65536 / 1000) / 65536);
}

static void everything(void *arg, unsigned index, struct rng *rng)
{
	uint64_t end = stress_end_ns();
	(void)arg;
	while (test_now_ns() < end) {
		int rc = call((int)rng_below(rng, 4));

		atomic_fetch_add(rc ? &race.refused : &race.admitted, 1);
		if (rng_chance(rng, 8))
			fc_clock_advance(g.fc, FC_US(500));
		if (index == 0 && rng_chance(rng, 200))
			(void)fc_breaker_force(g.f, NULL, (int)rng_below(rng, 3));
	}
}

/* opossum #484: whatever happens, what is left is a state, and it comes back. */
static void it_comes_back_from_whatever_threads_did(void **state)
{
	(void)state;
	begin(0, (struct fc_breaker_conf){ .min_calls = 10, .open_ns = FC_MS(5), .max_open_ns = FC_MS(20),
	                                   .ramp_ns = FC_MS(20),
	                                   .recover = FC_RECOVER_RAMP, .lease_ns = FC_MS(20) });
	atomic_store(&race.admitted, 0);
	atomic_store(&race.refused, 0);
	run_threads(4 * test_cpus() + 2, everything, NULL);
	assert_true(atomic_load(&race.admitted) > 0 && atomic_load(&race.refused) > 0);
	assert_int_equal(fc_breaker_force(g.f, NULL, FC_BREAKER_AUTO), 0);
	g.now = fc_now_ns(g.fc);
	for (int i = 0; i < 1000 && look().state != FC_BREAKER_CLOSED; i++) {
		guarded_pass(&g, FC_MS(1));
		call(FC_OUTCOME_OK);
	}
	assert_state(FC_BREAKER_CLOSED);
	guarded_pass(&g, FC_S(20));
	assert_int_equal(calls(100, FC_OUTCOME_OK), 100);
}

int main(void)
{
#define T(f_) cmocka_unit_test_teardown(f_, teardown)
	static const struct CMUnitTest tests[] = {
		T(a_ratio_opens_with_the_call_that_meets_it),
		T(fewer_than_min_calls_say_nothing),
		T(numbers_that_are_not_said_are_those_of_the_header),
		T(by_itself_a_ratio_needs_twenty_calls),
		T(a_good_call_that_completes_min_calls_opens_within_the_interval),
		T(so_many_errors_open_whatever_else_there_is),
		T(slow_calls_open),
		T(outcomes_count_as_they_should),
		T(a_window_forgets_nothing_early_and_all_in_time),
		T(a_burst_over_an_edge_is_one),
		T(a_window_of_calls_holds_so_many_and_little_more),
		T(closing_begins_an_empty_window),
		T(open_says_when_to_come_again_and_keeps_it),
		T(time_alone_makes_it_half_open),
		T(half_open_lets_in_just_the_probes),
		T(a_probe_that_fails_opens_again_and_its_place_is_not_lent),
		T(an_ignored_probe_says_nothing_and_gives_its_place_back),
		T(a_probe_that_a_later_rule_refuses_is_given_back),
		T(a_hung_probe_holds_its_place_for_its_lease),
		T(by_itself_a_lease_lasts_twice_as_long_as_a_slow_call),
		T(probes_that_still_run_from_before_hold_no_place),
		T(an_abandoned_probe_has_failed),
		T(a_killed_probe_is_given_back_and_says_nothing),
		T(results_of_an_older_generation_count_for_nothing),
		T(the_open_time_grows_to_its_most_and_shrinks_after_rest),
		T(at_once_means_after_the_first),
		T(a_ramp_lets_in_just_its_share),
		T(a_ramp_opens_again_when_it_is_bad_and_goes_on_into_closed),
		T(credit_that_a_later_rule_refused_is_given_back),
		T(a_ramp_is_read_as_closed_when_its_time_is_over),
		T(forced_states_hold_until_they_are_taken_back),
		T(transitions_are_told_in_words),
		T(a_clock_set_back_locks_nobody_out),
		T(a_closed_one_counts_on_when_the_clock_is_set_back),
		T(a_few_late_calls_move_nothing),
		T(a_clock_that_trembles_changes_nothing),
		T(long_leaps_end_what_they_should),
		T(a_reload_keeps_all_state),
		T(another_kind_of_window_begins_anew),
		T(bad_numbers_are_refused_with_words),
		T(a_dry_run_counts_and_refuses_nobody),
		T(weight_is_one_call),
		T(spoilt_memory_is_survived),
		T(many_threads_never_have_more_probes_than_there_are),
		T(just_so_many_get_in_at_the_instant),
		T(no_outcome_is_lost_or_counted_twice),
		T(none_is_lost_where_a_slice_begins),
		T(the_share_is_exact_with_many_threads),
		T(it_comes_back_from_whatever_threads_did),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
