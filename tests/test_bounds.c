/* SPDX-License-Identifier: BSD-2-Clause */
/* What a call says of itself has bounds: a wrong time, a weight that nobody can hold, in a dry run too. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>

#include "chain.h"
#include "support/threads.h"
#include "support/entries.h"

/* ---- weights in a dry run ---------------------------------------------------------------------- */

static void no_weight_leaks_places_in_a_dry_run(void **state)
{
	static const uint32_t weights[] = { 2, 3, 4, 5, 1024, 1025, 0x3fff, 0x4000, 0x10000, UINT32_MAX };
	FC_OPTS(fc_iface_opts, o, .cap = 4, .expand = 1, .flags = FC_IFACE_DRY_RUN, .max_weight = 3);
	FC_OPTS(fc_ctx, ctx, .weight = 1);
	struct fc_entry e[COUNT(weights)] = { FC_ENTRY_INIT };
	uint64_t bytes;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "user.login", &o, NULL), 0);
	assert_int_equal(let_in(login, 8), 8); /* there are places over the limit now */
	bytes = totals(fc).bytes_used;
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < COUNT(weights); i++) {
			ctx.weight = weights[i];
			assert_int_equal(fc_enter(&e[i], login, &ctx), 0);
			assert_true(stats(login).in_flight <= 4);
		}
		for (size_t i = 0; i < COUNT(weights); i++)
			fc_exit(&e[i]);
		assert_int_equal(stats(login).in_flight, 0);
	}
	assert_int_equal(totals(fc).bytes_used, bytes);
	assert_int_equal(fc_iface_set_dry_run(login, 0), 0);
	assert_int_equal(let_in(login, 10), 4);
}

/* ---- what a dry run covers --------------------------------------------------------------------- */

static int refusals; /* of stages: how many of them say no */

static int no_check(struct fc_call *c)
{
	c->observed = 11, c->limit = 10, c->retry_after_ns = FC_S(3);
	return refusals & 1 ? FC_REFUSED_USER + 1 : 0;
}

static int no_pre(struct fc_call *c)
{
	c->delay_ns = FC_S(100);
	return refusals & 2 ? FC_REFUSED_USER + 2 : 0;
}

static int bare_check(struct fc_call *c)
{
	(void)c;
	return refusals & 4 ? FC_REFUSED_USER + 4 : 0;
}

static const struct fc_interceptor says_no = {
	.size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER, .name = "says_no", .cells = 1,
	.reason = FC_REFUSED_CUSTOM, .check = no_check, .pre = no_pre,
};

static const struct fc_interceptor says_nothing = {
	.size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER + 1, .name = "says_nothing",
	.reason = FC_REFUSED_CUSTOM, .check = bare_check,
};

static void a_dry_run_of_an_interface_covers_all_that_refuses(void **state)
{
	static const struct fc_rule rules[] = { { .interceptor = &says_no }, { .interceptor = &says_nothing } };
	FC_OPTS(fc_ctx, late, .deadline_ns = NOW - 1);

	(void)state;
	assert_int_equal(fc_iface_set_chain(login, rules, 2), 0);
	assert_int_equal(fc_iface_set_dry_run(login, 1), 0);
	for (refusals = 1; refusals < 8; refusals++)
		assert_int_equal(call(login, NULL), 0);
	assert_int_equal(stats(login).would_refuse, 7); /* calls, not stages */
	refusals = 0;
	assert_int_equal(call(login, &late), 0);
	assert_int_equal(stats(login).would_refuse, 8);
	assert_int_equal(fc_now_ns(fc), NOW); /* nor did anybody sleep */
	assert_int_equal(fc_iface_set_dry_run(login, 0), 0);
	assert_int_equal(call(login, &late), FC_REFUSED_DEADLINE);
	late.deadline_ns = NOW; /* that is over, too */
	assert_int_equal(call(login, &late), FC_REFUSED_DEADLINE);
	refusals = 1;
	assert_int_equal(call(login, NULL), FC_REFUSED_USER + 1);
}

static void what_a_dry_run_of_a_rule_saw_is_not_the_next_ones(void **state)
{
	static const struct fc_rule rules[] = { { .interceptor = &says_no, .flags = FC_RULE_DRY_RUN },
		                                { .interceptor = &says_nothing } };
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc_decision d;

	(void)state;
	assert_int_equal(fc_iface_set_chain(login, rules, 2), 0);
	refusals = 1 | 4;
	assert_int_equal(fc_enter(&e, login, NULL), FC_REFUSED_USER + 4);
	d = decision(&e);
	assert_string_equal(d.rule, "says_nothing");
	assert_int_equal(d.observed, 0);
	assert_int_equal(d.limit, 0);
	assert_int_equal(d.retry_after_ns, 0);
	refusals = 0;
}

/* ---- delays ------------------------------------------------------------------------------------ */

static uint64_t wanted_delay;

static int delaying_pre(struct fc_call *c)
{
	c->delay_ns = wanted_delay;
	return 0;
}

static const struct fc_interceptor delaying = {
	.size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER, .name = "delaying",
	.reason = FC_REFUSED_CUSTOM, .pre = delaying_pre,
};

/* However much an interceptor wants, nobody sleeps beyond his deadline; from now, whatever the caller says
 * that is. */
static void delays_have_bounds(void **state)
{
	static const struct fc_rule rules[] = { { .interceptor = &delaying } };
	static const struct { uint64_t want, ahead, least, most; } cases[] = {
		{ UINT64_MAX, 0, FC_MS(45), FC_MS(500) },
		{ FC_S(3600), 0, FC_MS(45), FC_MS(500) },
		{ FC_MS(20), FC_MS(900), FC_MS(15), FC_MS(500) },
	};
	struct fc_opts o = { .size = sizeof(o) };
	struct fc_iface *f;
	struct fc *real;

	(void)state;
	assert_int_equal(fc_create(&real, &o), 0);
	f = capped(real, "delayed", 4);
	assert_int_equal(fc_iface_set_chain(f, rules, 1), 0);
	for (size_t i = 0; i < COUNT(cases); i++) {
		uint64_t begun = fc_now_ns(real), slept;
		FC_OPTS(fc_ctx, ctx, .deadline_ns = begun + cases[i].ahead + FC_MS(50));

		if (cases[i].ahead)
			ctx.now_ns = begun + cases[i].ahead;
		wanted_delay = cases[i].want;
		assert_int_equal(call(f, &ctx), 0);
		slept = fc_now_ns(real) - begun;
		if (slept < cases[i].least || slept > cases[i].most)
			fail_msg("case %u: slept %llu us", (unsigned)i, (unsigned long long)slept / 1000);
	}
	assert_null(fc_destroy(real));
}

/* ---- a wrong time ------------------------------------------------------------------------------ */

static uint64_t start_of_oldest(void)
{
	FC_OPTS(fc_in_flight, oldest, .start_ns = 0);

	return fc_in_flight(login, &oldest, 1) == 1 ? oldest.start_ns : 0;
}

static void a_time_that_is_far_off_is_not_believed(void **state)
{
	static const uint64_t wrong[] = { 1, NOW - FC_S(2), NOW + FC_S(2), NOW * 2, UINT64_MAX };
	static const uint64_t right[] = { NOW - FC_MS(999), NOW - 1, NOW + 1, NOW + FC_MS(999) };

	(void)state;
	for (int ticked = 0; ticked < 2; ticked++) {
		for (size_t i = 0; i < COUNT(wrong) + COUNT(right); i++) {
			uint64_t said = i < COUNT(wrong) ? wrong[i] : right[i - COUNT(wrong)];
			FC_OPTS(fc_ctx, ctx, .now_ns = said);
			struct fc_entry e = FC_ENTRY_INIT;

			assert_int_equal(fc_enter(&e, login, &ctx), 0);
			assert_int_equal(start_of_oldest(), i < COUNT(wrong) ? NOW : said);
			fc_exit(&e);
		}
		(void)fc_tick(fc, 0);
	}
}

/* One who is ahead of all must not keep others from being checked. */
static void a_refused_caller_ahead_of_time_puts_no_check_off(void **state)
{
	FC_OPTS(fc_ctx, ahead, .now_ns = NOW + FC_MS(900));
	struct fc_entry e[4] = { FC_ENTRY_INIT };

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&e[i], login, NULL), 0);
	assert_int_equal(call(login, &ahead), FC_REFUSED_CAP);
	assert_true(atomic_load(&login->gate->next_check) <= NOW + FC_MS(10));
	for (int i = 0; i < 4; i++)
		fc_exit(&e[i]);
}

static void a_clock_that_was_set_back_puts_no_check_off(void **state)
{
	struct fc_entry e[4] = { FC_ENTRY_INIT };

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&e[i], login, NULL), 0);
	assert_int_equal(call(login, NULL), FC_REFUSED_CAP);
	assert_int_equal(fc_clock_set(fc, NOW / 2), 0);
	assert_int_equal(call(login, NULL), FC_REFUSED_CAP);
	assert_int_equal(atomic_load(&login->gate->next_check), NOW / 2 + FC_MS(10));
	for (int i = 0; i < 4; i++)
		fc_exit(&e[i]);
}

/* ---- waiters ----------------------------------------------------------------------------------- */

static void *wait_for_a_place(void *arg)
{
	*(atomic_int *)arg = call(login, NULL);
	return NULL;
}

static void who_waits_goes_on_when_the_interface_turns_to_a_dry_run(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 1, .expand = 1, .wait_max = 4, .wait_timeout_ns = FC_S(3600));
	struct fc_entry e = FC_ENTRY_INIT;
	atomic_int rc = -1;
	pthread_t t;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "user.login", &o, NULL), 0);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(pthread_create(&t, NULL, wait_for_a_place, &rc), 0);
	while (stats(login).waiting == 0)
		sched_yield();
	assert_int_equal(fc_iface_set_dry_run(login, 1), 0);
	pthread_join(t, NULL);
	assert_int_equal(rc, 0);
	assert_int_equal(stats(login).would_refuse, 1);
	fc_exit(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(no_weight_leaks_places_in_a_dry_run),
		T(a_dry_run_of_an_interface_covers_all_that_refuses),
		T(what_a_dry_run_of_a_rule_saw_is_not_the_next_ones),
		T(delays_have_bounds),
		T(a_time_that_is_far_off_is_not_believed),
		T(a_refused_caller_ahead_of_time_puts_no_check_off),
		T(a_clock_that_was_set_back_puts_no_check_off),
		T(who_waits_goes_on_when_the_interface_turns_to_a_dry_run),
	};

	return cmocka_run_group_tests_name("bounds", tests, NULL, NULL);
}
