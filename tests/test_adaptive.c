/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The adaptive limit: a simulated server of some workers with a queue behind a guarded interface, on the
 * virtual clock. Names of reports about other systems stand in comments.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>

#include <fcguard/adaptive.h>

#include "lib/chain.h"
#include "interceptors/adaptive_law.h"
#include "support/guarded.h"
#include "support/threads.h"

#define CAP 200

static struct guarded g;
static char first_logged[512];
static struct rng rng;

static void keep_line(void *arg, int level, const char *msg)
{
	(void)arg, (void)level;
	if (!first_logged[0])
		snprintf(first_logged, sizeof(first_logged), "%s", msg);
}

static int setup(void **state)
{
	(void)state;
	/* The cap's own steps depend on the machine's health: where nothing steers the limit it is the cap. */
	guarded_open(&g, &(struct fc_iface_opts){ .cap = CAP, .expand = 1, .stuck_after_ns = FC_NEVER_NS });
	g.fc->log = keep_line;
	first_logged[0] = 0;
	rng.state = 12345;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return guarded_close(&g);
}

static int use(struct fc_adaptive_conf conf, uint32_t flags)
{
	struct fc_rule rule = { .interceptor = &fc_interceptor_adaptive, .conf = &conf, .flags = flags };

	return fc_iface_set_chain(g.f, &rule, 1);
}

static void rule(struct fc_adaptive_conf conf)
{
	assert_int_equal(use(conf, 0), 0);
	fc_tick(g.fc, 0);
}

static struct fc_adaptive_status look(void)
{
	FC_OPTS(fc_adaptive_status, s, .limit = 0);

	if (fc_adaptive_state(g.f, NULL, &s) < 0)
		abort();
	return s;
}

static uint32_t limit(void)
{
	return fc_limit_get(g.f);
}

/* ---- a server ---------------------------------------------------------------------------------- */

#define ROOM 256

static struct server {
	unsigned workers;
	double per_s, service_ns; /* arrivals; mean time of a call */
	int log_normal;
	uint32_t timeouts;        /* of 1000 calls end as time-outs */
	uint32_t weight;
	uint64_t tick_ns;
	/* since the last run() */
	uint64_t came, refused, least, most; /* the last two of the limit */
	struct fc_entry e[ROOM];
	uint64_t ends[ROOM];      /* 0: waits */
	uint32_t queue[ROOM], head, tail, free[ROOM], n_free, busy;
	uint64_t arrival, tick;
} sv;

static double uniform(void)
{
	return ((double)(rng_next(&rng) >> 11) + 0.5) / 9007199254740992.0;
}

static uint64_t service(void)
{
	double u = uniform(), t;

	if (sv.log_normal)
		t = exp(sqrt(-2 * log(u)) * cos(6.283185307179586 * uniform()) - 0.5);
	else
		t = -log(u);
	return (uint64_t)(t * sv.service_ns) + 1;
}

static void serve(void)
{
	while (sv.busy < sv.workers && sv.head != sv.tail) {
		sv.ends[sv.queue[sv.head++ % ROOM]] = g.now + service();
		sv.busy++;
	}
}

static void arrive(void)
{
	FC_OPTS(fc_ctx, ctx, .weight = sv.weight);
	uint32_t i;

	assert_true(sv.n_free > 0); /* the cap lets no more in */
	i = sv.free[sv.n_free - 1];
	sv.arrival = g.now + (uint64_t)(-log(uniform()) * 1e9 / sv.per_s) + 1;
	sv.came++;
	memset(&sv.e[i], 0, sizeof(sv.e[i]));
	if (fc_enter(&sv.e[i], g.f, sv.weight ? &ctx : NULL) != 0) {
		sv.refused++;
		return;
	}
	sv.n_free--;
	sv.ends[i] = 0;
	sv.queue[sv.tail++ % ROOM] = i;
	serve();
}

static void leave(uint32_t i)
{
	if (rng_below(&rng, 1000) < sv.timeouts)
		fc_entry_mark(&sv.e[i], FC_OUTCOME_TIMEOUT);
	fc_exit(&sv.e[i]);
	sv.ends[i] = 0;
	sv.free[sv.n_free++] = i;
	sv.busy--;
	serve();
}

/* The call that ends first; ROOM: none is being served. */
static uint32_t next_end(void)
{
	uint32_t best = ROOM, left = sv.busy;

	for (uint32_t i = 0; left > 0; i++) {
		if (!sv.ends[i])
			continue;
		if (best == ROOM || sv.ends[i] < sv.ends[best])
			best = i;
		left--;
	}
	return best;
}

static void server(unsigned workers, double service_ns, double load)
{
	memset(&sv, 0, sizeof(sv));
	sv.workers = workers;
	sv.service_ns = service_ns;
	sv.per_s = load * workers / service_ns * 1e9;
	sv.tick_ns = FC_MS(50);
	for (uint32_t i = 0; i < ROOM; i++)
		sv.free[sv.n_free++] = ROOM - 1 - i;
}

static void run(uint64_t ns)
{
	uint64_t end = g.now + ns;

	sv.came = sv.refused = sv.most = 0;
	sv.least = UINT64_MAX;
	sv.arrival = sv.arrival > g.now ? sv.arrival : g.now + 1;
	sv.tick = g.now;
	while (g.now < end) {
		uint32_t i = next_end();
		uint64_t next = sv.per_s > 0 && sv.arrival < sv.tick ? sv.arrival : sv.tick;

		if (i < ROOM && sv.ends[i] <= next) {
			guarded_pass(&g, sv.ends[i] > g.now ? sv.ends[i] - g.now : 0);
			leave(i);
			continue;
		}
		guarded_pass(&g, next > g.now ? next - g.now : 0);
		if (next == sv.tick) {
			(void)fc_tick(g.fc, FC_S(1));
			sv.tick += sv.tick_ns;
			sv.least = limit() < sv.least ? limit() : sv.least;
			sv.most = limit() > sv.most ? limit() : sv.most;
		} else {
			arrive();
		}
	}
}

/* Nobody comes any more: let all leave. */
static void stop(void)
{
	sv.per_s = 0;
	while (sv.n_free < ROOM)
		run(FC_S(1));
}

/* ---- group D of the faults --------------------------------------------------------------------- */

/* brpc #1277, #2013 */
static void a_lightly_loaded_server_with_noisy_latencies_refuses_nobody(void **state)
{
	(void)state;
	rule((struct fc_adaptive_conf){ .max = CAP });
	server(64, FC_MS(20), 0.3);
	sv.log_normal = 1;
	run(FC_S(20)); /* it begins at 20 and needs 35 */
	run(FC_S(60));
	assert_true(sv.came > 50000 && sv.refused * 1000 < sv.came);
	stop();
}

/* brpc #1334 */
static void the_ceiling_holds_whatever_the_samples(void **state)
{
	struct fc_entry e[CAP];

	(void)state;
	rule((struct fc_adaptive_conf){ .max = 50, .min = 2, .min_calls = 5, .window_ns = FC_MS(50) });
	for (int i = 0; i < 5000; i++) {
		unsigned in = guarded_fill(&g, e, 60);

		assert_true(in <= 50 && limit() >= 2 && limit() <= 50);
		guarded_pass(&g, rng_next(&rng) >> (24 + rng_below(&rng, 40)));
		for (unsigned k = 0; k < in; k++)
			fc_entry_mark(&e[k], (int)rng_below(&rng, 4));
		guarded_empty(e, in);
		fc_tick(g.fc, FC_S(1));
	}
}

static void a_ceiling_lower_than_the_limit_holds_from_the_next_tick(void **state)
{
	(void)state;
	rule((struct fc_adaptive_conf){ .initial = 100 });
	assert_int_equal(limit(), 100);
	assert_int_equal(fc_iface_set_cap(g.f, 30), 0);
	fc_tick(g.fc, 0);
	guarded_pass(&g, FC_S(1));
	fc_tick(g.fc, 0);
	assert_int_equal(limit(), 30);
}

/* Netflix/concurrency-limits PR #134, #165 */
static void a_day_of_overload_moves_neither_limit_nor_baseline(void **state)
{
	uint64_t served = 0;

	(void)state;
	rule((struct fc_adaptive_conf){ .initial = 20 });
	server(8, FC_S(4), 2); /* at two calls a second a window says little */
	sv.tick_ns = FC_S(1);
	run(FC_S(3600));
	for (int hour = 0; hour < 24; hour++) {
		run(FC_S(3600));
		assert_in_range(look().base, 4, 16);
		assert_true(look().unloaded_ns < FC_S(4)); /* typical, of exponential times: 2.2 s */
		served += sv.came - sv.refused;
	}
	assert_true(served > 24 * 7200 * 17 / 20); /* of what the eight can do */
	stop();
}

/* From the floor, too, and when it is no whole number: the limit is between two places then. */
static void few_calls_lift_the_limit_from_the_floor(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		rng.state = seed * 0x9e3779b97f4a7c15u;
		rule((struct fc_adaptive_conf){ .initial = 4 });
		server(8, FC_S(4), 2);
		sv.tick_ns = FC_S(1);
		run(6 * FC_S(3600));
		assert_in_range(look().base, 5, 20);
		assert_true((sv.came - sv.refused) * 10 > 6 * 7200 * 8);
		stop();
		assert_int_equal(fc_iface_set_chain(g.f, NULL, 0), 0);
		fc_tick(g.fc, 0);
	}
}

/* Two looks at one moment, as when health turns bad, are one. */
static void a_second_look_at_one_moment_ends_no_experiment(void **state)
{
	uint32_t undone;

	(void)state;
	rule((struct fc_adaptive_conf){ .initial = 20 });
	server(8, FC_MS(20), 3);
	run(FC_S(5));
	undone = look().undone + look().kept;
	for (int i = 0; i < 2000; i++) {
		run(FC_MS(50));
		g.fc->tick_all = 1;
		(void)fc_tick(g.fc, FC_S(1));
		g.fc->tick_all = 1;
		(void)fc_tick(g.fc, FC_S(1));
	}
	assert_true(look().undone + look().kept >= undone + 5);
	stop();
}

/* Netflix #176 */
static void time_outs_alone_lower_the_limit(void **state)
{
	(void)state;
	rule((struct fc_adaptive_conf){ .initial = 100 });
	server(100, FC_MS(10), 0.5);
	run(FC_S(2));
	assert_int_equal(limit(), 100);
	sv.timeouts = 200;
	run(FC_S(3));
	assert_true(limit() < 60);
	run(FC_S(20));
	assert_int_equal(limit(), 4); /* and no further */
	sv.timeouts = 0;
	run(FC_S(20));
	assert_true(limit() > 40);
	stop();
}

static void few_time_outs_change_nothing(void **state)
{
	(void)state;
	rule((struct fc_adaptive_conf){ .initial = 100 });
	server(100, FC_MS(10), 0.5);
	sv.timeouts = 10;
	run(FC_S(30));
	assert_int_equal(limit(), 100);
	stop();
}

/* failsafe-go #127 */
static void six_hours_of_a_slow_dependency_are_forgotten(void **state)
{
	(void)state;
	rule((struct fc_adaptive_conf){ .initial = 20 });
	server(8, FC_S(2), 1.5);
	sv.tick_ns = FC_S(1);
	run(FC_S(2400));
	sv.service_ns = FC_S(10);
	run(FC_S(6 * 3600));
	assert_in_range(look().base, 4, 20);
	sv.service_ns = FC_S(2);
	run(FC_S(3600));
	assert_in_range(look().base, 4, 20);
	assert_true(look().unloaded_ns < FC_S(2));
	stop();
}

/* A dependency that needs more places is given them. */
static void slower_calls_without_queueing_get_more_places(void **state)
{
	(void)state;
	rule((struct fc_adaptive_conf){ .initial = 20 });
	server(150, FC_MS(20), 0.1);
	run(FC_S(10));
	sv.service_ns = FC_MS(100);
	run(FC_S(60));
	assert_true(limit() > 70);
	run(FC_S(10));
	assert_true(sv.refused * 100 < sv.came);
	stop();
}

static int experimenting(void)
{
	struct fc_adaptive_status s = look();

	return s.limit != s.base;
}

/* envoy #8337, #9007, #11579, #38338, #46532: traffic stops in the middle of a probe. */
static void an_experiment_that_traffic_leaves_is_over(void **state)
{
	uint32_t base, measured;

	(void)state;
	rule((struct fc_adaptive_conf){ .min = 6 });
	server(16, FC_MS(10), 2);
	run(FC_S(10));
	for (int i = 0; i < 10000 && !experimenting(); i++)
		run(FC_MS(10));
	assert_true(experimenting());
	base = look().base;
	stop();
	run(FC_S(20));
	assert_false(experimenting());
	assert_int_equal(limit(), base);
	measured = look().measured;
	server(16, FC_MS(10), 2); /* and windows run again */
	run(FC_S(5));
	assert_true(look().measured - measured >= 8);
	stop();
}

/* envoy #8524, #18152, #46602: the floor holds in a probe, and a probe does not let go of the traffic. */
static void the_floor_holds_under_heavy_load(void **state)
{
	(void)state;
	rule((struct fc_adaptive_conf){ .min = 12 });
	server(8, FC_MS(10), 5);
	run(FC_S(60));
	assert_true(sv.least >= 12);
	stop();
	rule((struct fc_adaptive_conf){ .min = 1 });
	server(32, FC_MS(10), 3);
	run(FC_S(5));
	run(FC_S(60));
	assert_true(sv.least >= 12);
	stop();
}

/* Calls admitted before a step are not counted for it: nothing is measured while it settles. */
static void what_came_before_a_step_is_not_counted(void **state)
{
	uint32_t measured = 0, early = 0;
	uint64_t since = 0;
	uint32_t was;

	(void)state;
	rule((struct fc_adaptive_conf){ .max = CAP });
	server(16, FC_MS(40), 3);
	sv.tick_ns = FC_MS(10);
	was = limit();
	for (int i = 0; i < 3000; i++) {
		run(FC_MS(10));
		early += measured != look().measured && since && g.now - since < FC_MS(320);
		measured = look().measured;
		since = limit() != was ? g.now : since;
		was = limit();
	}
	assert_true(measured > 25);
	assert_int_equal(early, 0);
	stop();
}

/* go-zero PR #2476, #3837; aegis PR #16 */
static void after_idleness_nobody_is_refused(void **state)
{
	uint32_t before;

	(void)state;
	rule((struct fc_adaptive_conf){ .max = CAP });
	server(16, FC_MS(10), 2);
	run(FC_S(20));
	stop();
	before = limit();
	assert_true(before >= 12);
	run(FC_S(3600));
	assert_int_equal(limit(), before);
	server(16, FC_MS(10), 0.5);
	run(FC_MS(100));
	assert_int_equal(sv.refused, 0);
	run(FC_S(20));
	assert_true(sv.refused * 1000 < sv.came);
	stop();
}

/* ---- where it goes ----------------------------------------------------------------------------- */

static void it_finds_the_workers_from_below_and_above(void **state)
{
	static const uint32_t from[] = { 1, 20, CAP };

	for (int i = 0; i < 3; i++) {
		if (i)
			assert_true(teardown(state) == 0 && setup(state) == 0);
		rule((struct fc_adaptive_conf){ .min = 1, .initial = from[i] });
		assert_int_equal(limit(), from[i]);
		server(32, FC_MS(10), 2);
		run(FC_S(30));
		assert_in_range(look().base, 20, 60);
		stop();
	}
}

static void one_call_at_a_time_is_enough(void **state)
{
	(void)state;
	rule((struct fc_adaptive_conf){ .min = 1, .initial = 1 });
	server(1, FC_MS(10), 3);
	run(FC_S(60));
	assert_true(sv.least >= 1 && sv.most <= 8);
	assert_true(sv.came - sv.refused > 4200); /* of 6000; a limit of 1 leaves gaps between calls */
	stop();
}

static void weights_count_as_places(void **state)
{
	(void)state;
	rule((struct fc_adaptive_conf){ .initial = 30 });
	server(8, FC_MS(10), 2);
	sv.weight = 10;
	run(FC_S(60));
	assert_in_range(look().base, 50, 160);
	assert_in_range(look().per_1000s, 5000000, 9000000); /* 8 workers, 100 a second, of weight 10 */
	stop();
}

static void failing_fast_is_not_being_fast(void **state)
{
	struct fc_entry e[4];

	(void)state;
	rule((struct fc_adaptive_conf){ .max = CAP });
	for (int i = 0; i < 1000; i++) {
		unsigned in = guarded_fill(&g, e, 4);

		for (unsigned k = 1; k < in; k++)
			fc_entry_mark(&e[k], k == 3 ? FC_OUTCOME_IGNORED : FC_OUTCOME_ERROR);
		guarded_empty(e + 1, in - 1);
		guarded_pass(&g, FC_MS(10));
		fc_exit(&e[0]);
		fc_tick(g.fc, 0);
	}
	assert_in_range(look().unloaded_ns, 9800000, 10200000);
	assert_int_equal(limit(), 20);
}

static void a_notable_change_is_told(void **state)
{
	const struct fc_event *e;

	(void)state;
	rule((struct fc_adaptive_conf){ .max = CAP });
	server(100, FC_MS(10), 1);
	run(FC_S(30));
	e = guarded_last(&g, FC_EVENT_ADAPTED);
	assert_non_null(e);
	assert_true(e->b > 20 && guarded_events(&g, FC_EVENT_ADAPTED) <= 30);
	assert_int_equal(guarded_events(&g, FC_EVENT_EXPANDED), 0); /* the cap's own steps rest */
	stop();
}

/* ---- time, settings ---------------------------------------------------------------------------- */

static void the_clock_may_jump(void **state)
{
	static const int64_t jumps[] = { -(int64_t)FC_MS(1), FC_MS(1), -3600 * 1000000000LL, 3600 * 1000000000LL,
		                         86400 * 365 * 1000000000LL };
	uint32_t before, measured;

	(void)state;
	rule((struct fc_adaptive_conf){ .max = CAP });
	g.now += FC_S(7200);
	fc_clock_set(g.fc, g.now);
	server(16, FC_MS(10), 2);
	run(FC_S(20));
	for (int i = 0; i < 5; i++) {
		stop();
		before = look().base;
		g.now += (uint64_t)jumps[i];
		fc_clock_set(g.fc, g.now);
		fc_tick(g.fc, FC_S(1));
		assert_in_range(limit(), before / 2, before * 5 / 4 + 1);
		measured = look().measured;
		server(16, FC_MS(10), 2);
		run(FC_S(10));
		assert_in_range(look().base, 10, 40);
		assert_true(look().measured - measured >= 8);
	}
	stop();
}

static void a_reload_keeps_the_limit(void **state)
{
	struct fc_adaptive_status s;

	(void)state;
	rule((struct fc_adaptive_conf){ .max = CAP });
	server(64, FC_MS(10), 2);
	run(FC_S(20));
	s = look();
	assert_true(s.base > 30);
	assert_int_equal(use((struct fc_adaptive_conf){ .min_calls = 30, .initial = 10 }, 0), 0);
	assert_int_equal(limit(), s.limit);
	fc_tick(g.fc, 0);
	assert_int_equal(look().base, s.base);
	assert_int_equal(look().unloaded_ns, s.unloaded_ns);
	stop();
}

static void without_the_rule_the_limit_is_the_cap_again(void **state)
{
	(void)state;
	rule((struct fc_adaptive_conf){ .max = CAP });
	assert_int_equal(limit(), 20);
	assert_int_equal(fc_iface_set_chain(g.f, NULL, 0), 0);
	guarded_pass(&g, FC_S(1));
	server(2, FC_MS(10), 0.5);
	run(FC_S(1));
	assert_int_equal(limit(), CAP);
	stop();
}

static void a_dry_run_measures_and_leaves_the_limit_alone(void **state)
{
	(void)state;
	assert_int_equal(use((struct fc_adaptive_conf){ .max = CAP }, FC_RULE_DRY_RUN), 0);
	server(16, FC_MS(10), 2);
	run(FC_S(5));
	assert_true(sv.least >= CAP && look().measured > 5);
	assert_true(look().latency_ns > FC_MS(50));
	stop();
}

static void a_chain_has_one_that_steers(void **state)
{
	struct fc_adaptive_conf conf = { .min = 0 };
	struct fc_rule rules[2] = { { .interceptor = &fc_interceptor_adaptive, .conf = &conf },
		                    { .interceptor = &fc_interceptor_adaptive, .conf = &conf, .name = "other" } };

	(void)state;
	assert_int_equal(fc_iface_set_chain(g.f, rules, 2), -EEXIST);
	assert_non_null(strstr(first_logged, "another rule steers the limit"));
	rules[1].flags = FC_RULE_DRY_RUN;
	assert_int_equal(fc_iface_set_chain(g.f, rules, 2), 0);
}

static void no_cap_no_limit(void **state)
{
	(void)state;
	assert_int_equal(fc_iface_set_cap(g.f, FC_UNLIMITED), 0);
	rule((struct fc_adaptive_conf){ .max = 10 });
	server(32, FC_MS(10), 0.7);
	run(FC_S(1));
	assert_int_equal(sv.refused, 0);
	assert_int_equal(fc_iface_set_cap(g.f, 0), 0);
	run(FC_S(1));
	assert_int_equal(sv.refused, sv.came);
	assert_int_equal(fc_iface_set_cap(g.f, CAP), 0);
	run(FC_S(1));
	assert_true(sv.least <= 10 && sv.refused > 0 && sv.refused < sv.came);
	stop();
}

static void bad_numbers_are_refused(void **state)
{
	static const struct { struct fc_adaptive_conf conf; const char *text; } bad[] = {
		{ { .max = 65537 }, "guarded: adaptive: max is 65537: 1 to 65536 is allowed" },
		{ { .min = 11, .max = 10 }, "guarded: adaptive: min is 11: 1 to 10 is allowed" },
		{ { .min = 5, .initial = 4 }, "guarded: adaptive: initial is 4: 5 to 65536 is allowed" },
		{ { .tolerance_permille = 1000 }, "guarded: adaptive: tolerance_permille is 1000: 1050 to 5000 is allowed" },
		{ { .window_ns = 1 }, "guarded: adaptive: window_ns is 1: 50000000 to 10000000000 is allowed" },
		{ { .slack_ns = UINT64_MAX }, "guarded: adaptive: slack_ns is 18446744073709551615: 1 to 10000000000 is allowed" },
		{ { .min_calls = 4 }, "guarded: adaptive: min_calls is 4: 5 to 100000 is allowed" },
		{ { .timeout_permille = 1001 }, "guarded: adaptive: timeout_permille is 1001: 1 to 1000 is allowed" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		first_logged[0] = 0;
		assert_int_equal(use(bad[i].conf, 0), -ERANGE);
		assert_string_equal(first_logged, bad[i].text);
	}
}

/* ---- a spoilt segment, threads ----------------------------------------------------------------- */

static void a_spoilt_state_begins_anew(void **state)
{
	(void)state;
	rule((struct fc_adaptive_conf){ .max = CAP });
	server(16, FC_MS(10), 2);
	for (int i = 0; i < 200; i++) {
		struct fci_stage *s = &fci_chain_of(g.f, atomic_load_explicit(&g.f->chain, FCI_ACQ)->version)->stage[0];
		unsigned char *p = s->state;

		for (unsigned k = 0; k < s->state_bytes; k++)
			if (i == 0 || rng_chance(&rng, 8))
				p[k] = i == 0 ? 0xff : (unsigned char)rng_next(&rng);
		run(FC_MS(300));
		assert_in_range(limit(), 4, CAP);
	}
	run(FC_S(30));
	assert_in_range(look().base, 10, 40);
	stop();
}

static void logarithms_are_right(void **state)
{
	(void)state;
	for (double v = 1e-9; v < 1e12; v *= 1.37) {
		assert_true(fabs(fci_law_log2(v) - log2(v)) < 1e-4);
		assert_true(fabs(fci_law_exp2(log2(v)) / v - 1) < 1e-3);
	}
}

static void worker(void *arg, unsigned index, struct rng *r)
{
	uint64_t end = *(uint64_t *)arg;

	while (test_now_ns() < end) {
		struct fc_entry e = FC_ENTRY_INIT;

		if (fc_enter(&e, g.f, NULL) == 0) {
			if (rng_chance(r, 50))
				fc_entry_mark(&e, FC_OUTCOME_TIMEOUT);
			fc_exit(&e);
		}
		if (index == 0 && rng_chance(r, 20)) {
			fc_clock_advance(g.fc, FC_MS(60));
			(void)fc_tick(g.fc, 0);
		}
		(void)look();
	}
}

static void many_threads_count_together(void **state)
{
	uint64_t end = stress_end_ns();

	(void)state;
	rule((struct fc_adaptive_conf){ .max = 3, .min = 2 });
	run_threads(4 * test_cpus() + 1, worker, &end);
	assert_int_equal(fc_inside(g.f, NULL), 0);
	assert_in_range(limit(), 2, 3);
}

int main(void)
{
#define T(f_) cmocka_unit_test_setup_teardown(f_, setup, teardown)
	static const struct CMUnitTest tests[] = {
		T(a_lightly_loaded_server_with_noisy_latencies_refuses_nobody),
		T(the_ceiling_holds_whatever_the_samples),
		T(a_ceiling_lower_than_the_limit_holds_from_the_next_tick),
		T(a_day_of_overload_moves_neither_limit_nor_baseline),
		T(few_calls_lift_the_limit_from_the_floor),
		T(a_second_look_at_one_moment_ends_no_experiment),
		T(time_outs_alone_lower_the_limit),
		T(few_time_outs_change_nothing),
		T(six_hours_of_a_slow_dependency_are_forgotten),
		T(slower_calls_without_queueing_get_more_places),
		T(an_experiment_that_traffic_leaves_is_over),
		T(the_floor_holds_under_heavy_load),
		T(what_came_before_a_step_is_not_counted),
		T(after_idleness_nobody_is_refused),
		T(it_finds_the_workers_from_below_and_above),
		T(one_call_at_a_time_is_enough),
		T(weights_count_as_places),
		T(failing_fast_is_not_being_fast),
		T(a_notable_change_is_told),
		T(the_clock_may_jump),
		T(a_reload_keeps_the_limit),
		T(without_the_rule_the_limit_is_the_cap_again),
		T(a_dry_run_measures_and_leaves_the_limit_alone),
		T(a_chain_has_one_that_steers),
		T(no_cap_no_limit),
		T(bad_numbers_are_refused),
		T(a_spoilt_state_begins_anew),
		T(logarithms_are_right),
		T(many_threads_count_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
