/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Settings change at random beside calls: all numbers of an interface, its switches and its chain. At the
 * end all places are back, each attempt is accounted for, and what interceptors took has been given back.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcguard/fcguard.h>
#include <fcguard/health.h>

#include "support/threads.h"

#define CAP_MOST   40u
#define RULES_MOST 6u

struct run {
	struct fc *fc;
	struct fc_iface *f;
	unsigned threads;
	atomic_uint stop, bad;
	atomic_ullong attempts, admitted, refused, settings, chains;
	_Atomic(struct fc_entry *) box; /* a moved call that somebody will end */
};

static int good_by_turns(void *arg, struct fc_health_sample *s)
{
	unsigned *turn = arg;

	s->valid = FC_HEALTH_CPU;
	s->cpu_permille = ++*turn % 16 == 0 ? 990 : 100;
	return 0;
}

/* ---- a stage that counts ----------------------------------------------------------------------- */

/* Of all counting rules together: what was taken and not given back. */
static atomic_llong taken, passed;

static int take_one(struct fc_call *c)
{
	if (c->now_ns % 17 == 0)
		return FC_REFUSED_CUSTOM;
	fc_cell_set(c, 0, 1);
	atomic_fetch_add(&taken, 1);
	return 0;
}

static void give_one(struct fc_call *c)
{
	atomic_fetch_sub(&taken, fc_cell_get(c, 0));
	atomic_fetch_add(&passed, 1);
}

static const struct fc_interceptor counting = {
	.size = sizeof(counting), .order = FC_ORDER_USER, .name = "counting", .cells = 1, .state_bytes = 64,
	.pre = take_one, .undo = give_one, .post = give_one,
};

/* ---- settings ---------------------------------------------------------------------------------- */

static uint32_t one_of(struct rng *rng, uint32_t a, uint32_t b)
{
	return rng_chance(rng, 2) ? a : b;
}

static void set_numbers(struct run *r, struct rng *rng)
{
	FC_OPTS(fc_iface_opts, o, .cap = 1 + rng_below(rng, CAP_MOST));

	if (rng_chance(rng, 16))
		o.cap = one_of(rng, FC_UNLIMITED, FC_CAP_REFUSE_ALL);
	o.flags = rng_chance(rng, 8) ? one_of(rng, FC_IFACE_DRY_RUN, FC_IFACE_OFF) : 0;
	o.expand = 1 + rng_below(rng, 4);
	o.expand_keep = rng_below(rng, FC_EXPAND_KEEP_HEALTH + 1);
	o.writeoff = one_of(rng, FC_WRITEOFF_NONE, 1 + rng_below(rng, 4));
	o.wait_max = rng_below(rng, 9);
	o.wait_order = rng_below(rng, FC_WAIT_FIFO + 1);
	o.wait_timeout_ns = FC_US(200 + rng_below(rng, 2000));
	o.max_weight = 1 + rng_below(rng, 4);
	o.latency = rng_below(rng, FC_LATENCY_OFF + 1);
	o.on_fault = rng_below(rng, FC_FAIL_CLOSED + 1);
	o.importance = rng_below(rng, 8);
	o.stuck_after_ns = FC_MS(1 + rng_below(rng, 10));
	o.writeoff_after_ns = o.stuck_after_ns + FC_MS(rng_below(rng, 3));
	o.check_every_ns = FC_US(100 + rng_below(rng, 10000));
	atomic_fetch_add(&r->bad, fc_iface_set(r->fc, "settings", &o, NULL) != 0);
	atomic_fetch_add(&r->settings, 1);
}

static void set_chain(struct run *r, struct rng *rng)
{
	static const char *const names[RULES_MOST] = { "a", "b", "c", "d", "e", "f" };
	struct fc_rate_conf rate = { .limit = { 100000 + rng_below(rng, 1000000), FC_S(1) }, .burst = 1000 };
	struct fc_breaker_conf breaker = { .error_permille = 900 };
	struct fc_rule rules[RULES_MOST];
	uint32_t n = rng_below(rng, RULES_MOST + 1);

	for (uint32_t i = 0; i < n; i++) {
		rules[i] = (struct fc_rule){ .interceptor = &counting, .name = names[i],
			.flags = rng_chance(rng, 4) ? FC_RULE_DRY_RUN : 0, .order = rng_below(rng, 3) * 500 };
		if (i == 0 && rng_chance(rng, 2))
			rules[i] = (struct fc_rule){ .interceptor = &fc_interceptor_rate, .conf = &rate };
		if (i == 1 && rng_chance(rng, 2))
			rules[i] = (struct fc_rule){ .interceptor = &fc_interceptor_breaker, .conf = &breaker };
	}
	atomic_fetch_add(&r->bad, fc_iface_set_chain(r->f, rules, n) != 0);
	atomic_fetch_add(&r->chains, 1);
}

static void set_one(struct run *r, struct rng *rng)
{
	int rc = 0;

	switch (rng_below(rng, 4)) {
	case 0: rc = fc_iface_set_cap(r->f, rng_below(rng, CAP_MOST)); break;
	case 1: rc = fc_iface_set_dry_run(r->f, (int)rng_below(rng, 2)); break;
	case 2: rc = fc_iface_set_off(r->f, rng_chance(rng, 4)); break;
	default: rc = fc_iface_inject(r->f, FC_REFUSED_CUSTOM, rng_below(rng, 4)); break;
	}
	atomic_fetch_add(&r->bad, rc != 0);
}

static void set_things(struct run *r, struct rng *rng)
{
	uint64_t end = stress_end_ns();

	while (test_now_ns() < end || !atomic_load(&r->settings) || !atomic_load(&r->chains)) {
		switch (rng_below(rng, 4)) {
		case 0: set_chain(r, rng); break;
		case 1: set_one(r, rng); break;
		default: set_numbers(r, rng); break;
		}
		fc_tick(r->fc, 0);
		if (rng_chance(rng, 2))
			test_sleep_ms(1);
	}
	atomic_store(&r->stop, 1);
}

/* ---- calls ------------------------------------------------------------------------------------- */

static void swap_box(struct run *r, struct fc_entry *e)
{
	struct fc_entry *mine = NULL, *theirs;

	if (e) {
		mine = malloc(sizeof(*mine));
		if (!mine)
			abort();
		fc_entry_take(mine, e);
	}
	theirs = atomic_exchange(&r->box, mine);
	if (theirs)
		fc_exit(theirs);
	free(theirs);
}

static void call(struct run *r, struct rng *rng)
{
	FC_OPTS(fc_ctx, ctx, .weight = rng_chance(rng, 4) ? 1 + rng_below(rng, 4) : 1, .priority = rng_below(rng, 8));
	struct fc_entry e = FC_ENTRY_INIT;
	int rc;

	if (rng_chance(rng, 8))
		ctx.deadline_ns = fc_now_ns(r->fc) + FC_US(500);
	atomic_fetch_add(&r->attempts, 1);
	rc = fc_enter(&e, r->f, rng_chance(rng, 2) ? &ctx : NULL);
	atomic_fetch_add(&r->bad, rc < 0);
	if (rc != 0) {
		atomic_fetch_add(&r->refused, 1);
		fc_exit(&e);
		return;
	}
	atomic_fetch_add(&r->admitted, 1);
	if (rng_chance(rng, 500))
		test_sleep_ms(1 + rng_below(rng, 20)); /* overdue, and perhaps written off */
	for (volatile unsigned i = rng_below(rng, 2000); i > 0; i--)
		;
	if (rng_chance(rng, 8))
		fc_entry_mark(&e, FC_OUTCOME_ERROR);
	if (rng_chance(rng, 8))
		swap_box(r, &e);
	fc_exit(&e);
}

static void set_or_call(void *arg, unsigned index, struct rng *rng)
{
	struct run *r = arg;

	if (index == 0)
		set_things(r, rng);
	while (!atomic_load(&r->stop))
		call(r, rng);
}

/* ---- at rest ----------------------------------------------------------------------------------- */

static void accounts_are_right(struct run *r)
{
	FC_OPTS(fc_stats, s, .cap = 0);
	uint64_t refused = 0;

	assert_int_equal(fc_iface_stats(r->f, &s), 0);
	for (int i = 0; i < FC_STATS_REASONS; i++)
		refused += s.refused[i];
	assert_int_equal(atomic_load(&r->bad), 0);
	assert_int_equal(s.in_flight, 0);
	assert_int_equal(s.written_off, 0);
	assert_int_equal(s.waiting, 0);
	assert_int_equal(atomic_load(&r->admitted) + atomic_load(&r->refused), atomic_load(&r->attempts));
	assert_int_equal(refused, atomic_load(&r->refused));
	assert_int_equal(s.admitted + s.untracked, atomic_load(&r->admitted));
	assert_int_equal(s.ok + s.error + s.timeout + s.ignored + s.abandoned, s.admitted);
	printf("# admitted %llu, untracked %llu, refused %llu, expansions %llu, written off %llu, waited %llu, passed %llu\n",
	       (unsigned long long)s.admitted, (unsigned long long)s.untracked, (unsigned long long)refused,
	       (unsigned long long)s.expansions, (unsigned long long)s.writeoffs, (unsigned long long)s.waited, atomic_load(&passed));
	assert_int_equal(atomic_load(&taken), 0);
	assert_true(atomic_load(&r->settings) > 0 && atomic_load(&r->chains) > 0 && s.admitted > 0);
}

/* With plain settings the whole cap can be had, and not one more. */
static void whole_again(struct run *r)
{
	struct fc_entry e[CAP_MOST + 1];
	FC_OPTS(fc_iface_opts, o, .cap = CAP_MOST, .expand = 1);

	memset(e, 0, sizeof(e));
	assert_int_equal(fc_iface_inject(r->f, 0, 0), 0);
	assert_int_equal(fc_iface_set_chain(r->f, NULL, 0), 0);
	assert_int_equal(fc_iface_set(r->fc, "settings", &o, NULL), 0);
	for (uint32_t i = 0; i < CAP_MOST; i++)
		assert_int_equal(fc_enter(&e[i], r->f, NULL), 0);
	assert_int_equal(fc_enter(&e[CAP_MOST], r->f, NULL), FC_REFUSED_CAP);
	for (uint32_t i = 0; i < CAP_MOST; i++)
		fc_exit(&e[i]);
	assert_int_equal(fc_inside(r->f, NULL), 0);
}

static void stress(unsigned threads)
{
	static struct run r;
	static unsigned turn;
	FC_OPTS(fc_opts, fo, .flags = FC_NO_STACKS, .max_ifaces = 4, .segment_bytes = 64u << 20);
	FC_OPTS(fc_iface_opts, o, .cap = 8);

	printf("# %u threads\n", threads);
	fflush(stdout);
	memset(&r, 0, sizeof(r));
	atomic_store(&taken, 0);
	r.threads = threads;
	assert_int_equal(fc_create(&r.fc, &fo), 0);
	assert_int_equal(fc_health_set_source(r.fc, good_by_turns, &turn), 0);
	assert_int_equal(fc_iface_set(r.fc, "settings", &o, &r.f), 0);
	run_threads(threads + 1, set_or_call, &r);
	swap_box(&r, NULL);
	fc_tick(r.fc, FC_S(1));
	accounts_are_right(&r);
	whole_again(&r);
	fc_destroy(r.fc);
}

static void settings_beside_few_calls_lose_nothing(void **state)
{
	(void)state;
	stress(1);
	stress(3);
}

static void settings_beside_many_calls_lose_nothing(void **state)
{
	(void)state;
	stress(12);
	stress(60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_beside_few_calls_lose_nothing),
		cmocka_unit_test(settings_beside_many_calls_lose_nothing),
	};

	return cmocka_run_group_tests_name("settings stress", tests, NULL, NULL);
}
