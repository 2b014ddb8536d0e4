/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rate interceptor: buckets, windows, totals; their bounds under the worst arrivals, time that jumps,
 * numbers at their ends, reservations, reloads, threads. Names of reports about other systems stand in
 * comments.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcguard/fcguard.h>

#include "support/actors.h"
#include "support/guarded.h"
#include "support/threads.h"

__extension__ typedef __int128 exact;

#define YEAR_NS (365ull * 86400 * FC_S(1))

static struct guarded g;
static char logged[512];

static void keep_line(void *arg, int level, const char *msg)
{
	(void)arg, (void)level;
	snprintf(logged, sizeof(logged), "%s", msg);
}

static void open_cpus(uint32_t cpus)
{
	static const struct fc_iface_opts o = { .cap = 4096, .expand = 1 };

	if (g.fc)
		guarded_close(&g);
	guarded_context(&g, cpus);
	if (guarded_iface(&g, &o) < 0)
		abort();
}

static int teardown(void **state)
{
	(void)state;
	actors_fini();
	return g.fc ? guarded_close(&g) : 0;
}

static int give_rule(struct fc_rate_conf conf, uint32_t flags)
{
	struct fc_rule rule = { .interceptor = &fc_interceptor_rate, .conf = &conf, .flags = flags };

	return fc_iface_set_chain(g.f, &rule, 1);
}

static void rule(struct fc_rate_conf conf)
{
	assert_int_equal(give_rule(conf, 0), 0);
}

static void begin(uint32_t cpus, struct fc_rate_conf conf)
{
	open_cpus(cpus);
	rule(conf);
}

/* One call, that ends at once. */
static int call(uint32_t weight)
{
	FC_OPTS(fc_ctx, ctx, .weight = weight);
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter(&e, g.f, weight == 1 ? NULL : &ctx);

	fc_exit(&e);
	return rc;
}

static int try_n(uint32_t n)
{
	return fc_rate_try(g.f, NULL, n);
}

/* Calls of weight 1 until one is refused, or most. */
static unsigned drain(unsigned most)
{
	unsigned n = 0;

	while (n < most && try_n(1) == 0)
		n++;
	return n;
}

static int64_t left(void)
{
	int64_t n = INT64_MIN;

	assert_int_equal(fc_rate_available(g.f, NULL, &n), 0);
	return n;
}

static void at(uint64_t ns)
{
	g.now = ns;
	fc_clock_set(g.fc, ns);
}

/* ---- the bucket -------------------------------------------------------------------------------- */

/* sentinel-golang #545, #593: a burst at the beginning is the burst, and not one more. */
static void a_full_bucket_admits_its_burst_and_then_its_rate(void **state)
{
	static const uint32_t cpus[] = { 1, 2, 64 };
	static const uint64_t bursts[] = { 1, 2, 63, 64, 100, 5000 };

	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (size_t k = 0; k < 6; k++) {
			begin(cpus[i], (struct fc_rate_conf){ .limit = { 1000, FC_S(1) }, .burst = bursts[k] });
			assert_int_equal(left(), (int64_t)bursts[k]);
			assert_int_equal(drain(100000), (unsigned)bursts[k]);
			for (int j = 0; j < 50; j++) {
				guarded_pass(&g, FC_MS(1) - 1);
				assert_int_equal(call(1), FC_REFUSED_RATE);
				guarded_pass(&g, 1);
				assert_int_equal(call(1), 0);
				assert_int_equal(call(1), FC_REFUSED_RATE);
			}
			guarded_pass(&g, FC_MS(bursts[k]));
			assert_int_equal(drain(100000), (unsigned)bursts[k]);
		}
}

struct rate_case {
	struct fc_rate limit;
	uint32_t n;       /* tokens a try */
	uint64_t step_ns; /* between tries */
	uint64_t ns;      /* for so long */
};

/* Sentinel #259, #1615, #399, PR #2951, rest.li PR #1139: intervals that were rounded to ms. */
static void rates_from_a_thousandth_to_a_billion_a_second_are_kept(void **state)
{
	static const struct rate_case cases[] = {
		{ { 1, FC_S(1000) }, 1, FC_S(7), FC_S(2000000) },
		{ { 3, FC_S(3600) }, 1, FC_S(1), FC_S(3600 * 1000) },
		{ { 1, FC_S(86400) }, 1, FC_S(61), FC_S(86400) * 1000ull },
		{ { 3, FC_S(1) }, 1, FC_MS(1), FC_S(1000) },
		{ { 333, FC_S(60) }, 1, FC_MS(3), FC_S(2000) },
		{ { 1500, FC_S(1) }, 1, 33331, FC_S(10) },
		{ { 20, FC_MS(100) }, 1, FC_US(500), FC_S(100) },
		{ { 999999, FC_S(1) }, 1, 333, FC_MS(200) },
		{ { 700000000, FC_S(1) }, 7001, 9973, FC_S(2) },
		{ { 1000000000, FC_S(1) }, 10000, 9999, FC_S(2) },
		{ { 1000000000, FC_S(1) }, 1, 1, FC_MS(1) },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct rate_case *c = &cases[i];
		double expected = (double)c->ns * (double)c->limit.n / (double)c->limit.per_ns, admitted = 0;
		struct fc_rate_conf conf = { .limit = c->limit, .start = FC_RATE_EMPTY };

		if (c->n > 1)
			conf.burst = c->n * 10ull;
		begin(2, conf);
		for (uint64_t t = 0; t < c->ns; t += c->step_ns) {
			guarded_pass(&g, c->step_ns);
			while (try_n(c->n) == 0)
				admitted += c->n;
		}
		if (admitted > expected * 1.001 + c->n || admitted < expected * 0.999 - c->n)
			fail_msg("case %zu: %.0f admitted, %.1f expected", i, admitted, expected);
	}
}

/* The most that any interval had over rate * interval, kept up to date call by call. */
struct watch {
	exact sum, least; /* times per_ns */
	exact most;
};

static void watch_admit(struct watch *w, const struct fc_rate *r, uint64_t now, uint64_t n)
{
	exact here = w->sum * (exact)r->per_ns - (exact)r->n * (exact)(now - FC_S(1000)), over;

	if (w->sum == 0 || here < w->least)
		w->least = here;
	w->sum += n;
	over = w->sum * (exact)r->per_ns - (exact)r->n * (exact)(now - FC_S(1000)) - w->least;
	w->most = over > w->most ? over : w->most;
}

/* Any two calls, weights, rushes and rests, nows that are late; without leases, with. A
 * call whose now is late by some time counts then: by the true time its tokens may have come again. */
static void no_interval_admits_more_than_burst_and_rate(void **state)
{
	static const struct fc_rate rates[] = {
		{ 7, FC_S(1) }, { 1000, FC_S(1) }, { 1000003, FC_S(1) }, { 900000001, FC_S(1) },
	};
	struct rng rng;

	(void)state;
	rng_init(&rng, 1);
	for (size_t i = 0; i < 4; i++)
		for (unsigned k = 0; k < 4; k++) {
			const uint64_t burst = 100 + 900 * (i % 2), lease = k / 2 ? burst / 8 : 0;
			const int late = k % 2;
			struct watch w = { 0 };
			uint64_t newest, step = rates[i].per_ns / rates[i].n * 50 + 1;
			double bound = (double)burst + 1.0 / 65536, in_late = 5;

			begin(2, (struct fc_rate_conf){ .limit = rates[i], .burst = burst, .lease = lease ? 0 : FC_RATE_NO_LEASE });
			newest = g.now;
			for (int j = 0; j < 100000; j++) {
				uint32_t n = rng_chance(&rng, 10) ? 1 + rng_below(&rng, (uint32_t)burst * 6 / 10) : 1;

				if (rng_chance(&rng, 5))
					newest += rng_below(&rng, (uint32_t)(rng_chance(&rng, 50) ? step * 20 : step) % UINT32_MAX);
				at(late && rng_chance(&rng, 3) ? newest - rng_below(&rng, (uint32_t)(step / 10) + 1) : newest);
				if (try_n(n) == 0)
					watch_admit(&w, &rates[i], newest, n);
			}
			/* A rest and a rush: so that the burst was asked for in any case. All of it is had but for
			 * what the other CPU would keep, and has not come for. */
			newest += rates[i].per_ns / rates[i].n * burst * 2 + 2;
			at(newest);
			while (try_n(1) == 0)
				watch_admit(&w, &rates[i], newest, 1);
			if (late)
				bound += in_late;
			if ((double)w.most / (double)rates[i].per_ns > bound + 1e-9 ||
			    w.most * 100 < (exact)(burst - lease) * (exact)rates[i].per_ns * 99)
				fail_msg("rate %zu, case %u: at most %.6f over the rate, of %llu", i, k,
				         (double)w.most / (double)rates[i].per_ns, (unsigned long long)burst);
		}
}

/* Sentinel #1041, #2839. */
static void below_the_rate_nobody_is_refused(void **state)
{
	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 1000, FC_S(1) }, .burst = 64 });
	drain(1000);
	guarded_pass(&g, FC_MS(64));
	for (int i = 0; i < 100000; i++) {
		guarded_pass(&g, 1111111);
		assert_int_equal(call(1), 0);
	}
}

static int copy_conf(struct fc_call *c, void *arg)
{
	*(struct fc_rate_conf *)arg = *(const struct fc_rate_conf *)c->conf;
	return 0;
}

static void numbers_that_are_not_said_are_those_of_the_header(void **state)
{
	static const struct { struct fc_rate_conf conf; uint64_t burst; } cases[] = {
		{ { .limit = { 500, FC_S(1) } }, 500 }, { { .limit = { 600, FC_S(60) } }, 10 },
		{ { .limit = { 3, FC_MS(10) } }, 3 },
		{ { .limit = { 1, FC_S(3600) } }, 1 }, { { .limit = { 600, FC_S(60) }, .refill = FC_RATE_STEPS }, 600 },
		{ { .limit = { 500, FC_S(1) }, .kind = FC_RATE_LEAKY }, 1 },
		{ { .limit = { 500, FC_S(1) }, .kind = FC_RATE_WARM_UP }, 5 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fc_rate_conf c;

		begin(2, cases[i].conf);
		assert_int_equal(fc_iface_with(g.f, &fc_interceptor_rate, NULL, copy_conf, &c), 0);
		assert_int_equal(c.burst, cases[i].burst);
		assert_int_equal(c.initial, c.burst);
		assert_true(c.warm_up_ns == FC_S(10) && c.cold_factor_permille == 3000);
	}
}

static void retry_after_is_the_time_to_try_again(void **state)
{
	static const struct fc_rate_conf confs[] = {
		{ .limit = { 3, FC_S(1) }, .burst = 50 }, { .limit = { 1000, FC_S(1) }, .burst = 50 },
		{ .limit = { 700000000, FC_S(1) }, .burst = 50 }, { .limit = { 7, FC_S(86400) }, .burst = 50 },
		{ .limit = { 5, FC_S(1) }, .burst = 50, .refill = FC_RATE_STEPS },
		{ .limit = { 50, FC_S(1) }, .kind = FC_RATE_FIXED }, { .limit = { 50, FC_S(1) }, .kind = FC_RATE_SLIDING },
	};
	struct rng rng;

	(void)state;
	rng_init(&rng, 2);
	for (size_t i = 0; i < 7; i++) {
		begin(1, confs[i]);
		at(FC_S(1000) + FC_MS(123) + 45678); /* at no multiple of a period */
		drain(1000);
		for (int k = 0; k < 200; k++) {
			FC_OPTS(fc_decision, d, .status = 0);
			FC_OPTS(fc_ctx, ctx, .weight = 1 + rng_below(&rng, 3));
			struct fc_entry e = FC_ENTRY_INIT;

			while (fc_enter(&e, g.f, &ctx) == 0)
				fc_exit(&e);
			assert_int_equal(fc_entry_decision(&e, &d), 0);
			assert_int_equal(d.status, FC_REFUSED_RATE);
			assert_true(d.retry_after_ns > 0 && d.observed <= d.limit && d.limit == 50);
			if (d.retry_after_ns > 65536) { /* finer than a unit it may be one early */
				guarded_pass(&g, d.retry_after_ns - d.retry_after_ns / 65536 - 1);
				assert_int_equal(try_n(ctx.weight), FC_REFUSED_RATE);
				guarded_pass(&g, d.retry_after_ns / 65536 + 1);
			} else {
				guarded_pass(&g, d.retry_after_ns);
			}
			assert_int_equal(try_n(ctx.weight), 0);
		}
	}
}

/* bucket4j #128, envoy #24282. */
static void steps_come_at_multiples_of_the_period(void **state)
{
	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 10, FC_S(1) }, .burst = 15, .refill = FC_RATE_STEPS,
	                                .start = FC_RATE_EMPTY });
	guarded_pass(&g, FC_S(1) - 1);
	assert_int_equal(call(1), FC_REFUSED_RATE);
	guarded_pass(&g, 1);
	assert_int_equal(drain(100), 10);
	guarded_pass(&g, FC_S(3));
	assert_int_equal(drain(100), 15); /* no more than the burst */
	/* At most burst, and n for each multiple in the interval. */
	guarded_pass(&g, FC_S(2) - 1);
	assert_int_equal(drain(100), 10);
	guarded_pass(&g, 1);
	assert_int_equal(drain(100), 10);
	assert_int_equal(drain(100), 0);
}

static void a_bucket_starts_full_empty_or_as_told(void **state)
{
	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 500, FC_S(1) } });
	assert_int_equal(left(), 500); /* the default: a second's */
	begin(2, (struct fc_rate_conf){ .limit = { 6000, FC_S(60) } });
	assert_int_equal(left(), 100);
	begin(2, (struct fc_rate_conf){ .limit = { 20, FC_MS(100) } });
	assert_int_equal(left(), 20);
	begin(2, (struct fc_rate_conf){ .limit = { 10, FC_S(60) } });
	assert_int_equal(left(), 1);
	begin(2, (struct fc_rate_conf){ .limit = { 500, FC_S(1) }, .start = FC_RATE_EMPTY });
	assert_int_equal(left(), 0);
	begin(2, (struct fc_rate_conf){ .limit = { 500, FC_S(1) }, .initial = 33 });
	assert_int_equal(left(), 33);
	begin(2, (struct fc_rate_conf){ .limit = { 500, FC_S(1) }, .initial = 3333 });
	assert_int_equal(left(), 500);
}

/* sentinel-golang #556, sirius-biz PR #2408: weights, and off by one. */
static void a_call_takes_its_weight(void **state)
{
	FC_OPTS(fc_decision, d, .status = 0);
	FC_OPTS(fc_ctx, ctx, .weight = 101);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	for (uint32_t cpus = 1; cpus < 40; cpus += 13) {
		begin(cpus, (struct fc_rate_conf){ .limit = { 100, FC_S(1) } });
		assert_int_equal(try_n(101), FC_REFUSED_RATE);
		assert_int_equal(try_n(UINT32_MAX), FC_REFUSED_RATE);
		assert_int_equal(fc_enter(&e, g.f, &ctx), FC_REFUSED_RATE);
		assert_int_equal(fc_entry_decision(&e, &d), 0);
		assert_int_equal(d.observed, 101);
		assert_int_equal(d.limit, 100);
		assert_int_equal(d.retry_after_ns, 0); /* never */
		assert_int_equal(left(), 100);
		assert_int_equal(call(100), 0);
		assert_int_equal(left(), 0);
		guarded_pass(&g, FC_MS(500));
		assert_int_equal(call(51), FC_REFUSED_RATE);
		assert_int_equal(call(49), 0);
		assert_int_equal(call(2), FC_REFUSED_RATE);
		assert_int_equal(call(1), 0);
	}
	assert_int_equal(try_n(0), -EINVAL);
	assert_int_equal(fc_rate_try(g.f, "no such rule", 1), -ENOENT);
}

/* ---- refusals, undo, dry runs ------------------------------------------------------------------ */

static int say_no(struct fc_call *c)
{
	(void)c;
	return FC_REFUSED_CUSTOM;
}

static const struct fc_interceptor refuser = {
	.size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER, .name = "refuser", .pre = say_no,
	.reason = FC_REFUSED_CUSTOM,
};

/* hoglet PR #35, lua-resty-limit-traffic #73: what a refused call took is back, to the token. */
static void a_later_refusal_gives_everything_back(void **state)
{
	static const struct fc_rate_conf confs[] = {
		{ .limit = { 100, FC_S(1) } }, { .limit = { 1000, FC_S(1) } }, { .limit = { 100, FC_S(1) }, .kind = FC_RATE_FIXED },
		{ .limit = { 100, FC_S(1) }, .kind = FC_RATE_SLIDING }, { .kind = FC_RATE_TOTAL, .total = 100 },
		{ .limit = { 100, FC_S(1) }, .kind = FC_RATE_WARM_UP, .burst = 100 },
		{ .limit = { 1, FC_S(1) }, .kind = FC_RATE_LEAKY, .max_wait_ns = FC_S(10) },
	};

	(void)state;
	for (size_t i = 0; i < 7; i++)
		for (uint32_t taken = 0; taken < 100; taken += 33) {
			struct fc_rule rules[2] = { { .interceptor = &fc_interceptor_rate, .conf = &confs[i] }, { .interceptor = &refuser } };
			int64_t before;

			open_cpus(2);
			assert_int_equal(fc_iface_set_chain(g.f, rules, 2), 0);
			for (uint32_t k = 0; k < taken && i != 6; k++)
				assert_int_equal(try_n(1), 0);
			before = left();
			for (int k = 0; k < 500; k++) {
				assert_int_equal(call(1), FC_REFUSED_CUSTOM);
				assert_int_equal(call(i == 6 ? 1 : 1 + (uint32_t)k % (100 - taken)), FC_REFUSED_CUSTOM);
				assert_int_equal(left(), before);
			}
			if (before >= 0 && before < 2000)
				assert_int_equal(drain(5000), (unsigned)before);
		}
}

static int copy_state(struct fc_call *c, void *to)
{
	memcpy(to, c->state, 1152 + 2 * 128);
	return 0;
}

static void a_refusal_writes_nothing(void **state)
{
	static const struct fc_rate_conf confs[] = {
		{ .limit = { 1000, FC_S(1) } }, { .limit = { 100, FC_S(1) }, .kind = FC_RATE_FIXED },
		{ .kind = FC_RATE_TOTAL, .total = 100 }, { .limit = { 100, FC_S(1) }, .kind = FC_RATE_SLIDING },
	};
	static char before[2048], after[2048];

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		begin(2, confs[i]);
		drain(5000);
		guarded_pass(&g, FC_US(900));
		assert_int_equal(call(1), FC_REFUSED_RATE);
		assert_int_equal(fc_iface_with(g.f, &fc_interceptor_rate, NULL, copy_state, before), 0);
		assert_int_equal(call(1), FC_REFUSED_RATE);
		assert_int_equal(fc_iface_with(g.f, &fc_interceptor_rate, NULL, copy_state, after), 0);
		assert_memory_equal(before, after, sizeof(before));
	}
}

static void a_dry_run_refuses_nobody_and_is_counted(void **state)
{
	const struct fc_rate_conf conf = { .limit = { 10, FC_S(1) } };
	struct fc_stats s;

	(void)state;
	open_cpus(2);
	assert_int_equal(give_rule(conf, FC_RULE_DRY_RUN), 0);
	for (int i = 0; i < 25; i++)
		assert_int_equal(call(1), 0);
	s = guarded_stats(&g);
	assert_int_equal(s.would_refuse, 15);
	assert_int_equal(left(), 0);
	/* One that would have been refused, and then was by another: nothing was taken, nothing comes back. */
	assert_int_equal(fc_iface_set_chain(g.f, (struct fc_rule[]){
		{ .interceptor = &fc_interceptor_rate, .conf = &conf, .flags = FC_RULE_DRY_RUN }, { .interceptor = &refuser } }, 2), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(call(1), FC_REFUSED_CUSTOM);
	assert_int_equal(left(), 0);
}

/* ---- reservations ------------------------------------------------------------------------------ */

/* Sentinel #1615: pacing. */
static void a_leaky_bucket_paces(void **state)
{
	struct fc_rate_hold h;

	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 3, FC_S(1) }, .kind = FC_RATE_LEAKY, .max_wait_ns = FC_S(2) });
	for (unsigned i = 0; i < 7; i++) {
		assert_int_equal(fc_rate_reserve(g.f, NULL, 1, FC_NEVER_NS, &h), 0);
		assert_int_equal(h.delay_ns, (FC_S(i) + 2) / 3); /* the remainder is carried */
	}
	assert_int_equal(fc_rate_reserve(g.f, NULL, 1, FC_NEVER_NS, &h), FC_REFUSED_RATE);
	guarded_pass(&g, 333333334);
	assert_int_equal(fc_rate_reserve(g.f, NULL, 1, FC_S(1), &h), FC_REFUSED_RATE); /* would wait longer than it may */
	assert_int_equal(fc_rate_reserve(g.f, NULL, 1, FC_S(2), &h), 0);
	guarded_pass(&g, FC_S(100));
	assert_int_equal(fc_rate_reserve(g.f, NULL, 4, FC_S(2), &h), 0); /* waits for its own tokens */
	assert_int_equal(h.delay_ns, FC_S(1));
	assert_int_equal(fc_rate_reserve(g.f, NULL, 8, FC_S(2), &h), FC_REFUSED_RATE);
	assert_int_equal(fc_rate_try(g.f, NULL, 1), FC_REFUSED_RATE);
}

/* Of a late call the delay counts from its own now, and its end is where the tokens come. */
static void a_late_reservation_waits_until_its_tokens_come(void **state)
{
	struct fc_rate_hold h;

	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 10, FC_S(1) }, .burst = 1, .max_wait_ns = FC_S(1) });
	assert_int_equal(try_n(1), 0);
	guarded_pass(&g, FC_MS(500));
	assert_int_equal(try_n(1), 0);
	at(g.now - FC_MS(300));
	assert_int_equal(fc_rate_reserve(g.f, NULL, 1, FC_MS(350), &h), FC_REFUSED_RATE);
	assert_int_equal(left(), 0);
	assert_int_equal(fc_rate_reserve(g.f, NULL, 1, FC_MS(400), &h), 0);
	assert_int_equal(h.delay_ns, FC_MS(400));
}

/* golang/go #69419, #56924, #52584: all orders of reserving and giving back keep the total. */
static void cancelled_reservations_come_back_exactly(void **state)
{
	struct fc_rate_hold h[40];
	struct rng rng;

	(void)state;
	rng_init(&rng, 3);
	for (int round = 0; round < 300; round++) {
		uint32_t burst = 1 + rng_below(&rng, 200);
		int64_t taken = 0;
		unsigned n = 0;

		begin(1 + rng_below(&rng, 4),
		      (struct fc_rate_conf){ .limit = { 100, FC_S(1) }, .burst = burst, .max_wait_ns = FC_S(3) });
		for (int k = 0; k < 200; k++) {
			uint32_t some = 1 + rng_below(&rng, 9);

			if (n < 40 && rng_chance(&rng, 2)) {
				if (some <= burst && fc_rate_reserve(g.f, NULL, some, FC_S(3), &h[n]) == 0) {
					taken += some;
					assert_int_equal(h[n].delay_ns, taken <= burst ? 0 : (uint64_t)(taken - burst) * FC_MS(10));
					n++;
				}
			} else if (n) {
				uint32_t i = rng_below(&rng, n);

				taken -= h[i].n;
				assert_int_equal(fc_rate_cancel(g.f, NULL, &h[i]), 0);
				assert_int_equal(fc_rate_cancel(g.f, NULL, &h[i]), -EINVAL); /* once */
				h[i] = h[--n];
			}
			assert_int_equal(left(), (int64_t)burst - taken);
		}
		while (n)
			assert_int_equal(fc_rate_cancel(g.f, NULL, &h[--n]), 0);
		assert_int_equal(left(), burst);
	}
}

struct sleeper {
	atomic_int rc;
	uint64_t deadline_ns;
};

static void sleep_in_it(struct actor *self)
{
	struct sleeper *s = self->arg;
	FC_OPTS(fc_ctx, ctx, .deadline_ns = s->deadline_ns);
	struct fc_entry e = FC_ENTRY_INIT;

	atomic_store(&s->rc, fc_enter(&e, g.f, &ctx));
	fc_exit(&e);
}

static void a_call_sleeps_for_its_token_if_its_deadline_leaves_the_time(void **state)
{
	static struct actor a;
	struct sleeper s = { .rc = -1 };

	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 10, FC_S(1) }, .burst = 1, .max_wait_ns = FC_S(1) });
	assert_int_equal(call(1), 0);
	s.deadline_ns = g.now + FC_MS(50);
	actor_start(&a, sleep_in_it, &s, NULL);
	actor_join(&a);
	assert_int_equal(atomic_load(&s.rc), FC_REFUSED_RATE);
	assert_int_equal(left(), 0);
	atomic_store(&s.rc, -1);
	s.deadline_ns = 0;
	actor_start(&a, sleep_in_it, &s, NULL);
	while (left() == 0)
		test_sleep_ms(1);
	assert_int_equal(left(), -1);
	assert_int_equal(atomic_load(&s.rc), -1); /* asleep */
	guarded_pass(&g, FC_MS(100));
	actor_join(&a);
	assert_int_equal(atomic_load(&s.rc), 0);
}

/* ---- time -------------------------------------------------------------------------------------- */

/* sentinel-golang #409, #327, go-limiter #41, MediaWiki-MCP-Server #557: the clock goes back. */
static void a_clock_that_goes_back_mints_nothing_and_stops_nobody_for_long(void **state)
{
	static const uint64_t backs[] = { FC_MS(1), FC_MS(999), FC_S(1), FC_S(3600), YEAR_NS * 10 };
	static const uint32_t kinds[] = { FC_RATE_BUCKET, FC_RATE_FIXED, FC_RATE_SLIDING, FC_RATE_WARM_UP };

	(void)state;
	for (size_t k = 0; k < 4; k++)
		for (size_t i = 0; i < 5; i++) {
			struct fc_rate_conf conf = { .limit = { 10, FC_MS(100) }, .kind = kinds[k] };
			unsigned n = 0, waited = 0;

			if (k == 0 || k == 3)
				conf.burst = 10;
			conf.warm_up_ns = FC_MS(1);
			open_cpus(2);
			at(YEAR_NS * 11);
			rule(conf);
			drain(100);
			at(g.now - backs[i]);
			assert_int_equal(drain(100), 0);
			while (try_n(1) != 0) {
				guarded_pass(&g, FC_MS(10));
				assert_true(++waited <= 111); /* 1 s, and what a token takes */
			}
			for (int j = 0; j < 100; j++) {
				n += drain(100);
				guarded_pass(&g, FC_MS(10));
			}
			assert_in_range(n, 90, 115);
		}
}

static void late_calls_among_others_mint_nothing(void **state)
{
	uint64_t now;
	unsigned n = 0;

	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 100, FC_S(1) }, .burst = 10 });
	guarded_pass(&g, FC_S(10000));
	drain(100);
	now = g.now;
	for (int i = 0; i < 10000; i++) { /* 10 s: one in time, one an hour late, one 2 s late, ... */
		now += FC_MS(1);
		at(now);
		n += drain(100);
		at(now - FC_S(3600) + FC_MS(i % 7));
		n += drain(100);
		at(now - FC_S(2));
		n += drain(100);
		at(now - FC_US(10));
		n += drain(100);
	}
	assert_in_range(n, 999, 1001);
}

/* bucket4j #51: waking after hours, and after 300 years. */
static void a_long_rest_fills_the_bucket_and_no_more(void **state)
{
	static const uint64_t rests[] = { FC_S(3600), YEAR_NS, YEAR_NS * 300, YEAR_NS * 200 };
	static const struct fc_rate rates[] = { { 1, FC_S(1000) }, { 100, FC_S(1) }, { 1000000000, FC_S(1) } };

	(void)state;
	for (size_t r = 0; r < 3; r++) {
		begin(2, (struct fc_rate_conf){ .limit = rates[r], .burst = 100, .max_wait_ns = 1 });
		for (size_t i = 0; i < 4; i++) {
			drain(1000);
			guarded_pass(&g, rests[i]);
			/* After more than 200 days the lanes' part, a quarter, may wait for the next ones. */
			assert_in_range(drain(1000), r == 0 && i == 0 ? 3 : i ? 75 : 100, r == 0 && i == 0 ? 4 : 101);
		}
	}
	/* The most of everything. */
	begin(2, (struct fc_rate_conf){ .limit = { 1000000000, FC_S(1) }, .burst = FC_RATE_TOKENS_MAX,
	                                .max_wait_ns = FC_S(17000) });
	at(UINT64_MAX - 5);
	assert_int_equal(left(), (int64_t)FC_RATE_TOKENS_MAX);
	assert_int_equal(try_n(UINT32_MAX), 0);
	assert_int_equal(left(), (int64_t)FC_RATE_TOKENS_MAX - UINT32_MAX);
}

/* A step ahead of an hour, and back: once more the burst, as a jump of the clock is time to us. */
static void jumps_ahead_and_back_mint_at_most_the_burst(void **state)
{
	unsigned n = 0;

	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 10, FC_S(1) }, .burst = 50 });
	drain(100);
	for (int i = 0; i < 20; i++) {
		guarded_pass(&g, FC_S(3600));
		n += drain(1000);
		at(g.now - FC_S(3600));
		n += drain(1000);
	}
	assert_int_equal(n, 50);
}

/* ---- windows ----------------------------------------------------------------------------------- */

/* resilience4j #1356: 2 n at an edge, and that is all. */
static void a_fixed_window_admits_n_and_two_n_across_an_edge(void **state)
{
	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 100, FC_S(1) }, .kind = FC_RATE_FIXED });
	at(FC_S(1000) + FC_S(1) - 1);
	assert_int_equal(drain(1000), 100);
	guarded_pass(&g, 1);
	assert_int_equal(drain(1000), 100);
	guarded_pass(&g, FC_S(1) - 1);
	assert_int_equal(drain(1000), 0);
	guarded_pass(&g, 1);
	assert_int_equal(call(101), FC_REFUSED_RATE);
	assert_int_equal(call(99), 0);
	assert_int_equal(call(2), FC_REFUSED_RATE);
	assert_int_equal(call(1), 0);
	guarded_pass(&g, FC_S(65536)); /* the number wraps: at worst one window counts twice */
	guarded_pass(&g, FC_S(1));
	assert_int_equal(drain(1000), 100);
	/* A late one is counted in the newest. */
	guarded_pass(&g, FC_S(1));
	assert_int_equal(drain(50), 50);
	at(g.now - FC_MS(600));
	assert_int_equal(drain(1000), 50);
}

/* Sentinel #2859, #3257, #21, #2210: any window of the length, whatever the arrivals. */
static void no_window_of_its_length_has_more_than_n_in_a_sliding_one(void **state)
{
	enum { CALLS = 60000 };
	static uint64_t when[CALLS];
	static uint32_t weight[CALLS];
	const uint64_t per = FC_MS(100), slot = (per + 127) / 128;
	struct rng rng;

	(void)state;
	rng_init(&rng, 4);
	for (int round = 0; round < 12; round++) {
		unsigned n = 0, first = 0;
		uint64_t sum = 0, most = 0;

		begin(2, (struct fc_rate_conf){ .limit = { 50, per }, .kind = FC_RATE_SLIDING });
		for (int i = 0; i < CALLS; i++) {
			uint32_t w = rng_chance(&rng, 6) ? 1 + rng_below(&rng, 20) : 1;

			if (rng_chance(&rng, 3)) { /* around the edges of slots, rests between rushes */
				uint64_t to = g.now + rng_below(&rng, (uint32_t)(rng_chance(&rng, 20) ? per * 2 : slot * 3));

				at(round % 2 ? to : to / slot * slot + slot - rng_below(&rng, 2));
			}
			if (try_n(w) == 0) {
				when[n] = g.now;
				weight[n++] = w;
			}
		}
		for (unsigned i = 0; i < n; i++) {
			sum += weight[i];
			while (when[first] + per <= when[i])
				sum -= weight[first++];
			most = sum > most ? sum : most;
		}
		assert_int_equal(most, 50);
	}
}

static void a_sliding_window_that_is_always_asked_gives_128_129ths(void **state)
{
	unsigned n = 0;

	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 100, FC_S(1) }, .kind = FC_RATE_SLIDING });
	for (uint64_t t = 0; t < FC_S(129); t += FC_MS(1)) {
		n += drain(1000);
		guarded_pass(&g, FC_MS(1));
	}
	assert_in_range(n, 12790, 12900);
}

/* Calls that go when their slot is the newest, the one before, in the ring, and gone. */
static void a_window_forgets_an_undone_call_wherever_it_stands(void **state)
{
	static const uint64_t later[] = { 0, FC_MS(8), FC_MS(30), FC_MS(900) };
	static const uint32_t kinds[] = { FC_RATE_FIXED, FC_RATE_SLIDING };

	(void)state;
	for (size_t k = 0; k < 2; k++)
		for (size_t i = 0; i < 4; i++) {
			struct fc_rate_hold h;

			begin(2, (struct fc_rate_conf){ .limit = { 100, FC_S(1) }, .kind = kinds[k] });
			assert_int_equal(try_n(10), 0);
			assert_int_equal(fc_rate_reserve(g.f, NULL, 20, 0, &h), 0);
			assert_int_equal(h.delay_ns, 0);
			guarded_pass(&g, later[i]);
			assert_int_equal(try_n(30), 0);
			assert_int_equal(left(), 40);
			assert_int_equal(fc_rate_cancel(g.f, NULL, &h), 0);
			assert_int_equal(left(), 60);
			assert_int_equal(drain(1000), 60);
		}
}

static void a_total_is_exact_and_a_larger_one_adds_the_difference(void **state)
{
	(void)state;
	begin(2, (struct fc_rate_conf){ .kind = FC_RATE_TOTAL, .total = 100 });
	assert_int_equal(call(101), FC_REFUSED_RATE);
	assert_int_equal(drain(1000), 100);
	guarded_pass(&g, YEAR_NS);
	assert_int_equal(call(1), FC_REFUSED_RATE);
	rule((struct fc_rate_conf){ .kind = FC_RATE_TOTAL, .total = 150 });
	assert_int_equal(drain(1000), 50);
	rule((struct fc_rate_conf){ .kind = FC_RATE_TOTAL, .total = 120 });
	assert_int_equal(drain(1000), 0);
	assert_int_equal(left(), 0);
	rule((struct fc_rate_conf){ .kind = FC_RATE_TOTAL, .total = UINT64_MAX });
	assert_int_equal(left(), INT64_MAX);
	assert_int_equal(try_n(UINT32_MAX), 0);
}

/* ---- warm-up ----------------------------------------------------------------------------------- */

/* Tokens in a time of being asked for more all the time. */
static double asked_for(uint64_t ns)
{
	double n = 0;

	for (uint64_t t = 0; t < ns; t += FC_MS(1)) {
		guarded_pass(&g, FC_MS(1));
		n += drain(100000);
	}
	return n;
}

static void near(double is, double should_be)
{
	if (is < should_be * 0.99 - 2 || is > should_be * 1.01 + 2)
		fail_msg("%.1f, and not %.1f", is, should_be);
}

/* guava #7130, #4014, #5372: the trajectory. cf = 3: rate / 3 to rate, rate * warm_up / 2 tokens on the way. */
static void a_cold_bucket_warms_up_in_its_time(void **state)
{
	(void)state;
	begin(1, (struct fc_rate_conf){ .limit = { 1000, FC_S(1) }, .kind = FC_RATE_WARM_UP, .warm_up_ns = FC_S(10) });
	drain(1000);
	near(asked_for(FC_MS(300)), 300 * 1000 / 3 / 1000. * 1.005);
	/* Half of all the way: price falls from 3 to 1 over 5000 tokens, so t = 3 m - m^2 / 5000 (ms). */
	near(asked_for(FC_S(5) - FC_MS(300)), 1910 - 100);
	near(asked_for(FC_S(5)), 5000 - 1910);
	near(asked_for(FC_S(5)), 5000);
	/* It cools in the same time: (half a warm-up gives back half of all that is stored: 5000 of 10000, all
	 * of them under the threshold). */
	guarded_pass(&g, FC_S(5));
	drain(1000);
	near(asked_for(FC_S(2)), 2000);
	guarded_pass(&g, FC_S(20));
	drain(1000);
	near(asked_for(FC_S(10)), 5000);
}

/* ---- reload ------------------------------------------------------------------------------------ */

/* sentinel-golang PR #232, #374: a reload keeps what is counted. */
static void a_reload_keeps_tokens_and_counts(void **state)
{
	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 100, FC_S(1) }, .burst = 100 });
	assert_int_equal(drain(70), 70);
	rule((struct fc_rate_conf){ .limit = { 1000, FC_S(1) }, .burst = 500 });
	assert_int_equal(left(), 30);
	assert_int_equal(drain(1000), 30);
	guarded_pass(&g, FC_MS(100)); /* the new rate at once */
	assert_int_equal(drain(1000), 100);
	guarded_pass(&g, FC_S(1));
	rule((struct fc_rate_conf){ .limit = { 1, FC_S(1) }, .burst = 7 });
	assert_int_equal(drain(1000), 7); /* no more than the new burst */
	/* A bad one changes nothing. */
	guarded_pass(&g, FC_S(2));
	assert_int_equal(give_rule((struct fc_rate_conf){ .limit = { 0, FC_S(1) } }, 0), -EINVAL);
	assert_int_equal(left(), 2);
	for (uint32_t kind = FC_RATE_FIXED; kind <= FC_RATE_SLIDING; kind++) {
		begin(2, (struct fc_rate_conf){ .limit = { 100, FC_S(1) }, .kind = kind });
		assert_int_equal(drain(70), 70);
		rule((struct fc_rate_conf){ .limit = { 150, FC_S(1) }, .kind = kind });
		assert_int_equal(drain(1000), 80);
		rule((struct fc_rate_conf){ .limit = { 50, FC_S(1) }, .kind = kind });
		assert_int_equal(call(1), FC_REFUSED_RATE);
		guarded_pass(&g, FC_S(2));
		assert_int_equal(drain(1000), 50);
	}
}

static void every_kind_can_become_every_other(void **state)
{
	(void)state;
	begin(2, (struct fc_rate_conf){ .limit = { 100, FC_S(1) } });
	for (uint32_t i = 0; i < 36 * 4; i++) {
		struct fc_rate_conf conf = { .limit = { 100, FC_MS(100) }, .kind = i % 2 ? i / 2 % 6 : i / 12 % 6 };

		if (conf.kind == FC_RATE_TOTAL)
			conf = (struct fc_rate_conf){ .kind = FC_RATE_TOTAL, .total = i * 100 };
		if (conf.kind == FC_RATE_TOTAL && i == 0)
			conf.total = 1;
		rule(conf);
		assert_true(drain(10000) <= 100u * (conf.kind == FC_RATE_TOTAL ? i + 1 : 1));
		guarded_pass(&g, FC_MS(200));
		assert_true(conf.kind == FC_RATE_TOTAL || drain(10000) >= 1);
	}
}

/* ---- conf -------------------------------------------------------------------------------------- */

struct bad {
	struct fc_rate_conf conf;
	const char *text;
};

/* golang/go #47221, resilience4j #417: a rate of 0 is not "unlimited", it is refused. */
static void what_is_wrong_with_a_conf_is_said(void **state)
{
	static const struct bad bad[] = {
		{ { .limit = { 0, FC_S(1) } },
		  "limit is 0: it must say how many in which time (to let nobody in, set the cap to refuse all)" },
		{ { .limit = { 1, 0 } },
		  "limit is 0: it must say how many in which time (to let nobody in, set the cap to refuse all)" },
		{ { .limit = { 1, 367 * 86400 * FC_S(1) } }, "the period of limit is over 366 days" },
		{ { .limit = { 1000000001, FC_S(1) } }, "limit is over 10^9 per second, or n over 2^47" },
		{ { .limit = { 1 << 24, FC_S(1) }, .kind = FC_RATE_SLIDING },
		  "limit of a sliding window has n over 16777215 or a period under 1 us: take another period" },
		{ { .limit = { 1, FC_S(1) }, .kind = 6 }, "kind is unknown: bucket, fixed, sliding, leaky, warm_up or total" },
		{ { .kind = FC_RATE_TOTAL }, "total is 0: it must say how many in all" },
		{ { .limit = { 1, FC_S(1) }, .total = 5 }, "total is set, which only kind total has" },
		{ { .limit = { 1, FC_S(1) }, .kind = FC_RATE_FIXED, .burst = 5 }, "burst is set, which windows and totals have not" },
		{ { .limit = { 1, FC_S(1) }, .burst = FC_RATE_TOKENS_MAX + 1 }, "burst or initial is over 2^44" },
		{ { .limit = { 1, FC_S(1) }, .refill = 2 }, "refill in steps is for kind bucket" },
		{ { .limit = { 1, FC_S(1) }, .refill = 1, .kind = FC_RATE_LEAKY }, "refill in steps is for kind bucket" },
		{ { .limit = { 1, FC_S(1) }, .start = 2 }, "start is unknown: full or empty" },
		{ { .limit = { 1, FC_S(1) }, .kind = FC_RATE_FIXED, .max_wait_ns = 1 }, "max_wait is for kinds bucket and leaky" },
		{ { .limit = { 1000000000, FC_S(1) }, .max_wait_ns = FC_S(20000) }, "more than 2^44 tokens come in max_wait" },
		{ { .limit = { 1, FC_S(1) }, .warm_up_ns = 1 }, "warm_up is not between 1 ms and 1 h" },
		{ { .limit = { 1, FC_S(1) }, .cold_factor_permille = 1000 }, "cold_factor is not between 1.001 and 100" },
	};
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .log = keep_line);
	struct fc *fc;

	(void)state;
	assert_int_equal(fc_create(&fc, &o), 0);
	assert_int_equal(fc_iface_set(fc, "paid", &(struct fc_iface_opts){ sizeof(struct fc_iface_opts), .cap = 5 }, &g.f), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fc_rule r = { .interceptor = &fc_interceptor_rate, .conf = &bad[i].conf, .name = "per second" };
		struct fc_setup s = { .iface = g.f, .rule = "per second", .cpus = 1, .conf = (void *)(uintptr_t)&bad[i].conf };
		char line[256];

		assert_int_equal(fc_iface_set_chain(g.f, &r, 1), -EINVAL);
		/* The last line is the chain's; the interceptor's own comes before it. */
		assert_int_equal(fc_interceptor_rate.setup(&s), -EINVAL);
		snprintf(line, sizeof(line), "paid: per second: %s", bad[i].text);
		assert_string_equal(logged, line);
	}
	fc_destroy(fc);
	g.f = NULL;
}

/* Every member that a file may set is described, lies in the struct and has bounds that setup accepts. */
static void the_fields_describe_the_conf(void **state)
{
	(void)state;
	assert_ptr_equal(fc_interceptor_find("rate"), &fc_interceptor_rate);
	for (uint32_t i = 0; i < fc_interceptor_rate.n_fields; i++) {
		const struct fc_field *f = &fc_interceptor_rate.fields[i];

		assert_true(f->name && f->help && f->offset < offsetof(struct fc_rate_conf, made_));
		assert_true(f->min <= f->max);
		if (f->type == FC_FIELD_CHOICE)
			assert_int_equal(f->max + 1, f->n_choices);
	}
}

static void the_clock_is_as_fine_as_the_numbers_need(void **state)
{
	struct fc_rate_conf conf = { .limit = { 1000, FC_S(1) }, .burst = 100 };
	static _Alignas(128) char memory[8192];
	struct fc_setup s = { .conf = &conf, .cpus = 1, .state = memory, .first = 1 };

	(void)state;
	assert_int_equal(fc_interceptor_rate.setup(&s), 0);
	assert_int_equal(fc_interceptor_rate.resolution_ns(&conf), FC_MS(25));
	conf = (struct fc_rate_conf){ .limit = { 1000, FC_S(1) }, .kind = FC_RATE_LEAKY };
	assert_int_equal(fc_interceptor_rate.setup(&s), 0);
	assert_int_equal(fc_interceptor_rate.resolution_ns(&conf), FC_US(250));
	conf = (struct fc_rate_conf){ .kind = FC_RATE_TOTAL, .total = 5 };
	assert_int_equal(fc_interceptor_rate.setup(&s), 0);
	assert_int_equal(fc_interceptor_rate.resolution_ns(&conf), 0);
}

/* ---- threads, and content nobody wrote --------------------------------------------------------- */

struct crowd {
	atomic_ullong admitted, cancelled, wrong;
	uint64_t moves_ns; /* the first thread moves the clock so far with each call */
	int keep;          /* nothing is cancelled */
};

static void take_and_cancel(void *arg, unsigned index, struct rng *rng)
{
	uint64_t end = stress_end_ns();
	struct crowd *x = arg;
	uint64_t now = index == 0 ? g.now : 0;

	while (test_now_ns() < end) {
		struct fc_rate_hold h;
		uint32_t n = 1 + (rng_chance(rng, 8) ? rng_below(rng, 20) : 0);
		int rc = fc_rate_reserve(g.f, NULL, n, 0, &h);

		if (rc == 0)
			atomic_fetch_add(&x->admitted, n);
		else if (rc != FC_REFUSED_RATE)
			atomic_fetch_add(&x->wrong, 1);
		if (rc == 0 && !x->keep && rng_chance(rng, 4)) {
			atomic_fetch_add(&x->cancelled, n);
			if (fc_rate_cancel(g.f, NULL, &h) != 0)
				atomic_fetch_add(&x->wrong, 1);
		}
		if (index == 0 && x->moves_ns)
			fc_clock_set(g.fc, now += x->moves_ns);
	}
	if (index == 0)
		g.now = now;
}

/* brpc, Sentinel #628, sentinel-golang #394: more got in than the limit when many came at once. */
static void threads_together_get_what_there_is_and_no_more(void **state)
{
	static const struct fc_rate_conf confs[] = {
		{ .limit = { 1, FC_S(1000) }, .burst = 100000 },
		{ .limit = { 1, FC_S(1000) }, .burst = 100000, .lease = FC_RATE_NO_LEASE },
		{ .kind = FC_RATE_TOTAL, .total = 100000 }, { .limit = { 100000, FC_S(1000) }, .kind = FC_RATE_FIXED },
		{ .limit = { 100000, FC_S(1000) }, .kind = FC_RATE_SLIDING },
	};

	(void)state;
	for (size_t i = 0; i < 5; i++) {
		struct crowd x = { 0 };
		unsigned long long net;

		begin(4, confs[i]);
		at(FC_S(1000) - FC_MS(1));
		run_threads(8, take_and_cancel, &x);
		net = atomic_load(&x.admitted) - atomic_load(&x.cancelled);
		assert_int_equal(atomic_load(&x.wrong), 0);
		assert_true(net <= 100000);
		assert_int_equal(net + (uint64_t)left(), 100000);
		assert_int_equal(net + drain(200000), 100000);
	}
}

static void threads_under_a_moving_clock_keep_the_bound(void **state)
{
	static const struct fc_rate_conf confs[] = {
		{ .limit = { 1000000, FC_S(1) }, .burst = 1000 },
		{ .limit = { 1000000, FC_S(1) }, .burst = 1000, .lease = FC_RATE_NO_LEASE },
		{ .limit = { 1000, FC_MS(1) }, .kind = FC_RATE_FIXED }, { .limit = { 1000, FC_MS(1) }, .kind = FC_RATE_SLIDING },
	};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct crowd x = { .moves_ns = 20000 };
		unsigned long long net;
		double span;

		begin(4, confs[i]);
		run_threads(8, take_and_cancel, &x);
		net = atomic_load(&x.admitted) - atomic_load(&x.cancelled);
		span = (double)(g.now - FC_S(1000)) / 1000; /* tokens that the rate gave */
		if (atomic_load(&x.wrong) || (double)net > span + 1000 + (i > 1 ? 1000 : 1))
			fail_msg("case %zu: %llu of %.0f, %llu wrong", i, net, span, (unsigned long long)atomic_load(&x.wrong));
	}
}

static void under_saturation_all_that_is_minted_is_admitted(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		struct crowd x = { .moves_ns = 200, .keep = 1 };
		double minted;

		begin(4, (struct fc_rate_conf){ .limit = { 1000000, FC_S(1) }, .burst = 1000, .start = FC_RATE_EMPTY,
		                                .lease = i ? FC_RATE_NO_LEASE : 0 });
		run_threads(8, take_and_cancel, &x);
		minted = (double)(g.now - FC_S(1000)) / 1000;
		if ((double)atomic_load(&x.admitted) < minted * .999 - 20 || (double)atomic_load(&x.admitted) > minted + 1)
			fail_msg("%llu of %.0f", atomic_load(&x.admitted), minted);
	}
}

static void reload_all_the_time(void *arg, unsigned index, struct rng *rng)
{
	uint64_t end = stress_end_ns();
	struct crowd *x = arg;

	if (index != 1) {
		take_and_cancel(arg, index, rng);
		return;
	}
	while (test_now_ns() < end) {
		struct fc_rate_conf conf = { .limit = { 1 + rng_below(rng, 1000), FC_S(1000) }, .burst = 500 + rng_below(rng, 500) };

		if (give_rule(conf, 0) != 0)
			atomic_fetch_add(&x->wrong, 1);
		test_sleep_ms(1);
	}
}

/* resilience4j #2034: every number changed live. */
static void reloads_under_load_make_no_tokens(void **state)
{
	struct crowd x = { 0 };

	(void)state;
	begin(4, (struct fc_rate_conf){ .limit = { 1, FC_S(1000) }, .burst = 1000 });
	run_threads(6, reload_all_the_time, &x);
	assert_int_equal(atomic_load(&x.wrong), 0);
	assert_true(atomic_load(&x.admitted) - atomic_load(&x.cancelled) <= 1000);
}

static int scribble(struct fc_call *c, void *arg)
{
	struct rng *rng = arg;
	uint64_t *p = c->state;

	for (unsigned i = 0; i < (1152 + 4 * 128) / 8; i++)
		p[i] = rng_chance(rng, 4) ? UINT64_MAX << rng_below(rng, 64) : rng_next(rng) >> rng_below(rng, 64);
	return 0;
}

/* A segment that another process has overwritten: no endless loop, nothing outside, and it heals. */
static void any_content_of_the_state_is_survived(void **state)
{
	struct rng rng;

	(void)state;
	rng_init(&rng, 5);
	for (uint32_t i = 0; i < 600; i++) {
		struct fc_rate_conf conf = { .limit = { 100, FC_S(1) }, .kind = i % 6 };
		struct fc_rate_hold h;

		if (conf.kind == FC_RATE_TOTAL)
			conf = (struct fc_rate_conf){ .kind = FC_RATE_TOTAL, .total = 100 };
		if (conf.kind == FC_RATE_BUCKET || conf.kind == FC_RATE_LEAKY)
			conf.max_wait_ns = i % 12 < 6 ? FC_S(1) : 0;
		begin(4, conf);
		assert_int_equal(fc_iface_with(g.f, &fc_interceptor_rate, NULL, scribble, &rng), 0);
		for (int k = 0; k < 100; k++) {
			if (fc_rate_reserve(g.f, NULL, 1 + rng_below(&rng, 9), FC_S(1), &h) == 0 && rng_chance(&rng, 2))
				assert_int_equal(fc_rate_cancel(g.f, NULL, &h), 0);
			if (conf.max_wait_ns == 0)
				(void)call(1);
			(void)left();
			guarded_pass(&g, FC_MS(100));
		}
	}
}

#define T(f) cmocka_unit_test_teardown(f, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_full_bucket_admits_its_burst_and_then_its_rate),
		T(rates_from_a_thousandth_to_a_billion_a_second_are_kept),
		T(no_interval_admits_more_than_burst_and_rate),
		T(below_the_rate_nobody_is_refused),
		T(retry_after_is_the_time_to_try_again),
		T(numbers_that_are_not_said_are_those_of_the_header),
		T(steps_come_at_multiples_of_the_period),
		T(a_bucket_starts_full_empty_or_as_told),
		T(a_call_takes_its_weight),
		T(a_later_refusal_gives_everything_back),
		T(a_refusal_writes_nothing),
		T(a_dry_run_refuses_nobody_and_is_counted),
		T(a_leaky_bucket_paces),
		T(a_late_reservation_waits_until_its_tokens_come),
		T(cancelled_reservations_come_back_exactly),
		T(a_call_sleeps_for_its_token_if_its_deadline_leaves_the_time),
		T(a_clock_that_goes_back_mints_nothing_and_stops_nobody_for_long),
		T(late_calls_among_others_mint_nothing),
		T(a_long_rest_fills_the_bucket_and_no_more),
		T(jumps_ahead_and_back_mint_at_most_the_burst),
		T(a_fixed_window_admits_n_and_two_n_across_an_edge),
		T(no_window_of_its_length_has_more_than_n_in_a_sliding_one),
		T(a_sliding_window_that_is_always_asked_gives_128_129ths),
		T(a_window_forgets_an_undone_call_wherever_it_stands),
		T(a_total_is_exact_and_a_larger_one_adds_the_difference),
		T(a_cold_bucket_warms_up_in_its_time),
		T(a_reload_keeps_tokens_and_counts),
		T(every_kind_can_become_every_other),
		T(what_is_wrong_with_a_conf_is_said),
		T(the_fields_describe_the_conf),
		T(the_clock_is_as_fine_as_the_numbers_need),
		T(threads_together_get_what_there_is_and_no_more),
		T(threads_under_a_moving_clock_keep_the_bound),
		T(under_saturation_all_that_is_minted_is_admitted),
		T(reloads_under_load_make_no_tokens),
		T(any_content_of_the_state_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
