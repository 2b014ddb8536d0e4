/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A limit for each user: bounds, overrides and plans, a table that is full, floods of new keys, time that
 * jumps, many threads. FC_KEYS is how many keys go through the table (default 10^6; 10^8 takes a minute).
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcguard/keyed.h>

#include "interceptors/keyed_state.h"
#include "support/guarded.h"
#include "support/threads.h"

#define YEAR (FC_S(86400) * 365)

static struct guarded g;
static char last_lines[4096]; /* of the log */
static uint64_t user_key;

static void keep_line(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	snprintf(last_lines + strlen(last_lines), sizeof(last_lines) - strlen(last_lines), "%s\n", line);
}

static int setup(void **state)
{
	(void)state;
	guarded_open(&g, &(struct fc_iface_opts){ .cap = 256 });
	g.fc->log = keep_line;
	last_lines[0] = 0;
	user_key = fc_label("user", "").key;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return guarded_close(&g);
}

static int keyed(const struct fc_keyed_conf *conf)
{
	struct fc_keyed_conf copy = *conf;
	struct fc_rule rule = { .interceptor = &fc_interceptor_keyed, .conf = &copy };

	if (!copy.label)
		copy.label = "user";
	return fc_iface_set_chain(g.f, &rule, 1);
}

static struct fc_label user(uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9ull;
	return (struct fc_label){ .key = user_key, .value = x ^ x >> 29 };
}

static int enter(struct fc_entry *e, const struct fc_label *l, uint32_t weight)
{
	FC_OPTS(fc_ctx, ctx, .weight = weight, .labels = l, .n_labels = l ? 1 : 0);

	memset(e, 0, sizeof(*e));
	return fc_enter(e, g.f, &ctx);
}

/* A call that takes no time. */
static int call(const struct fc_label *l, uint32_t weight)
{
	struct fc_entry e;
	int rc = enter(&e, l, weight);

	fc_exit(&e);
	return rc;
}

static int call_of(uint64_t i)
{
	struct fc_label l = user(i);

	return call(&l, 1);
}

/* How many of n calls at once are admitted. */
static unsigned calls_of(uint64_t i, unsigned n)
{
	unsigned in = 0;

	for (unsigned k = 0; k < n; k++)
		in += call_of(i) == 0;
	return in;
}

static unsigned calls_named(const char *name, unsigned n)
{
	struct fc_label l = fc_label("user", name);
	unsigned in = 0;

	for (unsigned k = 0; k < n; k++)
		in += call(&l, 1) == 0;
	return in;
}

static struct fc_keyed_stats stats(void)
{
	FC_OPTS(fc_keyed_stats, s, .places = 0);

	if (fc_keyed_stats(g.f, NULL, &s) < 0)
		abort();
	return s;
}

static int override(const char *name, uint64_t n, uint64_t burst, uint32_t cap)
{
	return fc_keyed_override(g.f, NULL, name,
	                         &(struct fc_keyed_numbers){ .limit = { n, FC_S(1) }, .burst = burst, .cap = cap });
}

/* ---- bounds ------------------------------------------------------------------------------------ */

static void each_value_has_a_bucket_of_its_own(void **state)
{
	struct fc_label alice = fc_label("user", "alice"), bob = fc_label("user", "bob");
	FC_OPTS(fc_decision, d, .status = 0);
	struct fc_entry e;

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 10, FC_S(1) }, .burst = 3 }), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(call(&alice, 1), 0);
	assert_int_equal(enter(&e, &alice, 1), FC_REFUSED_KEY);
	assert_int_equal(fc_entry_decision(&e, &d), 0);
	assert_string_equal(d.rule, "keyed");
	assert_true(d.observed == 3 && d.limit == 3 && d.retry_after_ns == FC_MS(100));
	assert_int_equal(call(&bob, 1), 0);
	/* What it says of when to come again is true, to the nanosecond. */
	guarded_pass(&g, FC_MS(100) - 1);
	assert_int_equal(call(&alice, 1), FC_REFUSED_KEY);
	guarded_pass(&g, 1);
	assert_int_equal(call(&alice, 1), 0);
	assert_int_equal(call(&alice, 1), FC_REFUSED_KEY);
	assert_int_equal(stats().limited, 1);
	assert_int_equal(stats().inside, 0);
}

/* FAULTS F, sirius-biz PR 2408 (one more), Sentinel 399 (rates that round): any interval, to the call. */
static void no_interval_has_more_than_burst_and_rate(void **state)
{
	static const struct { struct fc_rate limit; uint64_t burst, gap_ns; } cases[] = {
		{ { 10, FC_S(1) }, 5, FC_MS(40) }, { { 1, FC_S(86400) }, 1, FC_S(20000) },
		{ { 3, FC_S(1) }, 1, FC_MS(111) }, { { 1000000000, FC_S(1) }, 7, 1 }, { { 7, 1000 }, 2, 60 },
		{ { 1, FC_S(1000) }, 3, FC_S(333) }, { { 999983, FC_S(1) }, 100, 500 },
	};
	static uint64_t at[6000];
	struct rng rng;

	(void)state;
	rng_init(&rng, 1);
	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		uint64_t begun = g.now, n = 0;
		double rate = (double)cases[k].limit.n / (double)cases[k].limit.per_ns, most;

		assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = cases[k].limit, .burst = cases[k].burst }), 0);
		for (int i = 0; i < 6000; i++) {
			if (call_of(100 + k) == 0)
				at[n++] = g.now - begun;
			guarded_pass(&g, rng_chance(&rng, 50) ? rng_below(&rng, 5) * 10 * cases[k].gap_ns :
			                                        rng_next(&rng) % (2 * cases[k].gap_ns));
		}
		for (uint64_t i = 0; i < n; i++)
			for (uint64_t j = i; j < n; j++)
				if ((double)(j - i + 1) > (double)cases[k].burst + rate * (double)(at[j] - at[i]) + 1e-6)
					fail_msg("case %zu: %llu calls in %llu ns", k, (unsigned long long)(j - i + 1),
					         (unsigned long long)(at[j] - at[i]));
		/* And not much less: it was always asked for. */
		most = (double)cases[k].burst + rate * (double)(g.now - begun);
		most = most < 6000 ? most : 6000;
		assert_true((double)n > most * 0.3);
	}
}

/* FAULTS F: the rate that a user gets is the one that was asked for, over a long time. */
static void a_key_that_always_asks_gets_its_rate(void **state)
{
	static const uint64_t per_s[] = { 1, 3, 7, 1000, 33333, 1000003, 15000000 };

	(void)state;
	for (size_t k = 0; k < sizeof(per_s) / sizeof(per_s[0]); k++) {
		uint64_t step = FC_S(1) / per_s[k] / 4 + 1, begun = g.now, in = 0;

		assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { per_s[k], FC_S(1) }, .burst = 2 }), 0);
		for (int i = 0; i < 40000; i++, guarded_pass(&g, step))
			in += call_of(k) == 0;
		assert_true((double)in > (double)(g.now - begun) * (double)per_s[k] / 1e9 * 0.998 - 1);
		assert_true((double)in <= (double)(g.now - begun) * (double)per_s[k] / 1e9 + 2);
	}
}

static void a_cap_holds_for_each_value_exactly(void **state)
{
	struct fc_label a = user(1), b = user(2);
	FC_OPTS(fc_decision, d, .status = 0);
	struct fc_entry e[5], f;

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .cap = 3 }), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(enter(&e[i], &a, 1), 0);
	assert_int_equal(enter(&f, &a, 1), FC_REFUSED_KEY);
	assert_int_equal(fc_entry_decision(&f, &d), 0);
	assert_true(d.observed == 3 && d.limit == 3 && d.retry_after_ns == 0);
	assert_int_equal(enter(&e[3], &b, 1), 0);
	assert_int_equal(stats().inside, 4);
	fc_exit(&e[1]);
	assert_int_equal(enter(&e[1], &a, 1), 0);
	assert_int_equal(enter(&f, &a, 1), FC_REFUSED_KEY);
	for (int i = 0; i < 4; i++) {
		fc_exit(&e[i]);
		fc_exit(&e[i]); /* resilience4j 263: twice counts once */
	}
	assert_true(stats().inside == 0 && stats().used == 0);
}

/* FAULTS C, sentinel-golang 556: batches. */
static void a_heavy_call_takes_its_weight_or_nothing(void **state)
{
	struct fc_label a = user(1), b = user(2);
	FC_OPTS(fc_decision, d, .status = 0);
	struct fc_entry e, f;

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(1) }, .burst = 5, .cap = 4 }), 0);
	assert_int_equal(enter(&f, &a, 5), FC_REFUSED_KEY); /* more than the cap, ever */
	assert_int_equal(stats().used, 0);
	assert_int_equal(enter(&e, &a, 4), 0);
	assert_int_equal(stats().inside, 4);
	fc_exit(&e);
	assert_int_equal(stats().inside, 0);
	assert_int_equal(call(&a, 2), FC_REFUSED_KEY);
	assert_int_equal(call(&a, 1), 0);
	assert_int_equal(call(&a, 1), FC_REFUSED_KEY);
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(1) }, .burst = 5 }), 0);
	assert_int_equal(enter(&f, &b, 6), FC_REFUSED_KEY);
	assert_int_equal(fc_entry_decision(&f, &d), 0);
	assert_true(d.observed == 6 && d.limit == 5 && d.retry_after_ns == 0); /* no time helps */
	assert_int_equal(call(&b, 5), 0);
}

/* ---- transactions ------------------------------------------------------------------------------ */

static int say_no(struct fc_call *c)
{
	(void)c;
	return FC_REFUSED_CUSTOM;
}

static const struct fc_interceptor no = { .size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER,
	.name = "no", .pre = say_no };

/* FAULTS A, hoglet PR 35: refused behind it. */
static void a_refusal_behind_it_gives_all_back(void **state)
{
	struct fc_keyed_conf conf = { .label = "user", .limit = { 7, FC_S(1) }, .burst = 3, .cap = 2 };
	struct fc_rule rules[] = { { .interceptor = &fc_interceptor_keyed, .conf = &conf }, { .interceptor = &no } };

	(void)state;
	assert_int_equal(fc_iface_set_chain(g.f, rules, 1), 0);
	assert_int_equal(calls_of(1, 1), 1);
	assert_int_equal(fc_iface_set_chain(g.f, rules, 2), 0);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(call_of(1), FC_REFUSED_CUSTOM);
		assert_int_equal(call_of(2), FC_REFUSED_CUSTOM);
	}
	assert_true(stats().inside == 0 && stats().used == 1);
	assert_int_equal(fc_iface_set_chain(g.f, rules, 1), 0);
	assert_int_equal(calls_of(1, 9), 2);
	assert_int_equal(calls_of(2, 9), 3);
}

static void a_dry_run_counts_and_takes_nothing_over(void **state)
{
	struct fc_keyed_conf conf = { .label = "user", .limit = { 1, FC_S(1) }, .burst = 2, .cap = 1 };
	struct fc_rule rule = { .interceptor = &fc_interceptor_keyed, .conf = &conf, .flags = FC_RULE_DRY_RUN };
	struct fc_label a = user(1);
	struct fc_entry e[4];

	(void)state;
	assert_int_equal(fc_iface_set_chain(g.f, &rule, 1), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(enter(&e[i], &a, 1), 0);
	assert_int_equal(stats().inside, 1);
	for (int i = 0; i < 4; i++)
		fc_exit(&e[i]);
	assert_int_equal(stats().inside, 0);
	assert_true(guarded_stats(&g).would_refuse >= 3);
}

static void calls_without_the_label_are_let_pass_refused_or_one_key(void **state)
{
	struct fc_keyed_conf conf = { .limit = { 1, FC_S(1) }, .burst = 2 };
	struct fc_label other = fc_label("ip", "x");

	(void)state;
	assert_int_equal(keyed(&conf), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(call(i & 1 ? &other : NULL, 1), 0);
	assert_true(stats().without == 10 && stats().used == 0);
	conf.without = FC_KEYED_WITHOUT_REFUSE;
	assert_int_equal(keyed(&conf), 0);
	assert_int_equal(call(NULL, 1), FC_REFUSED_KEY);
	conf.without = FC_KEYED_WITHOUT_SHARED;
	assert_int_equal(keyed(&conf), 0);
	assert_int_equal(call(NULL, 1), 0);
	assert_int_equal(call(&other, 1), 0);
	assert_int_equal(call(NULL, 1), FC_REFUSED_KEY);
}

/* ---- numbers of their own ---------------------------------------------------------------------- */

static void overrides_and_plans_hold_at_once(void **state)
{
	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(1) }, .burst = 2 }), 0);
	assert_int_equal(override("alice", 1, 5, 0), 0);
	assert_int_equal(calls_named("alice", 9), 5);
	assert_int_equal(calls_named("bob", 9), 2);
	assert_int_equal(override("alice", 1, 8, 0), 0); /* 3 more */
	assert_int_equal(calls_named("alice", 9), 3);
	assert_int_equal(fc_keyed_assign(g.f, NULL, "carol", "gold"), -ENOENT);
	assert_int_equal(fc_keyed_plan(g.f, NULL, "gold", &(struct fc_keyed_numbers){ .limit = { 1, FC_S(1) }, .burst = 4 }), 0);
	assert_int_equal(fc_keyed_assign(g.f, NULL, "carol", "gold"), 0);
	assert_int_equal(fc_keyed_assign(g.f, NULL, "dave", "gold"), 0);
	assert_int_equal(calls_named("carol", 9), 4);
	assert_int_equal(fc_keyed_plan(g.f, NULL, "gold", &(struct fc_keyed_numbers){ .limit = { 1, FC_S(1) }, .burst = 6 }), 0);
	assert_int_equal(calls_named("carol", 9), 2);
	assert_int_equal(calls_named("dave", 9), 6);
	assert_int_equal(stats().overrides, 3);
	/* Back to the default: less burst than what was used. Empty, not locked out. */
	guarded_pass(&g, FC_S(2));
	assert_int_equal(fc_keyed_assign(g.f, NULL, "dave", NULL), 0);
	assert_int_equal(fc_keyed_override(g.f, NULL, "alice", NULL), 0);
	assert_int_equal(stats().overrides, 1);
	assert_int_equal(calls_named("dave", 9), 0);
	guarded_pass(&g, FC_S(1));
	assert_int_equal(calls_named("dave", 9), 1);
	/* Refused, and unlimited. */
	assert_int_equal(fc_keyed_override(g.f, NULL, "eve", &(struct fc_keyed_numbers){ .flags = FC_KEYED_DENY }), 0);
	assert_int_equal(fc_keyed_override(g.f, NULL, "root", &(struct fc_keyed_numbers){ .cap = 0 }), 0);
	assert_int_equal(calls_named("eve", 9), 0);
	assert_int_equal(calls_named("root", 900), 900);
	assert_int_equal(fc_keyed_override(g.f, "other", "root", NULL), -ENOENT);
	assert_int_equal(fc_keyed_override(g.f, NULL, "x", &(struct fc_keyed_numbers){ .cap = 1u << 20 }), -ERANGE);
	assert_int_equal(fc_keyed_override(g.f, NULL, "x", &(struct fc_keyed_numbers){ .burst = 4 }), -EINVAL);
}

static void an_override_of_an_address_holds_for_both_kinds_of_label(void **state)
{
	struct fc_label text = fc_label("ip", "192.0.2.7"), address = fc_label_ip("ip", "192.0.2.7");

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .label = "ip", .limit = { 1, FC_S(1) } }), 0);
	assert_int_equal(override("192.0.2.7", 1, 2, 0), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(call(&text, 1) == 0, i < 2);
		assert_int_equal(call(&address, 1) == 0, i < 2);
	}
	assert_int_equal(fc_keyed_override(g.f, NULL, "192.0.2.7", NULL), 0);
	assert_int_equal(stats().overrides, 0);
}

/* FAULTS K: a million of them, changed while nothing is reloaded. FC_OVERRIDES: how many. */
static void many_overrides_all_hold_and_can_all_be_changed(void **state)
{
	const char *env = getenv("FC_OVERRIDES");
	uint32_t n = env ? (uint32_t)atoi(env) : 100000;
	char name[32];

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(1) }, .burst = 1, .max_overrides = n }), 0);
	for (uint32_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "user%u", i);
		if (override(name, 1, 2 + i % 3, 0) != 0)
			fail_msg("override %u", i);
	}
	assert_int_equal(stats().overrides, n);
	for (uint32_t i = 0; i < n; i += 997) {
		snprintf(name, sizeof(name), "user%u", i);
		assert_int_equal(calls_named(name, 9), 2 + i % 3);
	}
	/* As many others instead, twice: room in the table is used again. */
	for (uint32_t i = 0; i < 2 * n; i++) {
		snprintf(name, sizeof(name), "user%u", i);
		assert_int_equal(fc_keyed_override(g.f, NULL, name, NULL), 0);
		snprintf(name, sizeof(name), "user%u", i + n);
		if (override(name, 1, 7, 0) != 0)
			fail_msg("override %u", i + n);
	}
	assert_int_equal(stats().overrides, n);
	assert_int_equal(calls_named("user3", 9), 1);
	snprintf(name, sizeof(name), "user%u", 3 * n - 1);
	assert_int_equal(calls_named(name, 9), 7);
}

static void when_there_is_no_room_for_an_override_it_says_so(void **state)
{
	char name[32];
	int rc = 0;

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(1) }, .burst = 1, .max_overrides = 50 }), 0);
	for (uint32_t i = 0; i < 1000 && rc == 0; i++) {
		snprintf(name, sizeof(name), "user%u", i);
		rc = override(name, 1, 2, 0);
		assert_true(rc == 0 || i >= 50);
	}
	assert_int_equal(rc, -ENOSPC);
	for (uint32_t i = 1; i < FC_KEYED_PLANS_MAX + 2; i++) {
		snprintf(name, sizeof(name), "plan%u", i);
		rc = fc_keyed_plan(g.f, NULL, name, &(struct fc_keyed_numbers){ .cap = i });
		assert_int_equal(rc, i <= FC_KEYED_PLANS_MAX ? 0 : -ENOSPC);
	}
}

/* ---- more keys than places --------------------------------------------------------------------- */

static uint64_t keys(void)
{
	const char *env = getenv("FC_KEYS");

	return env ? strtoull(env, NULL, 10) : 1000000;
}

static long resident_pages(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size, resident = 0;

	if (!f || fscanf(f, "%ld %ld", &size, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return resident;
}

/* FAULTS J, Sentinel 3388: any number of keys, the same memory; idle ones give way, busy ones do not. */
static void any_number_of_keys_goes_through_the_same_memory(void **state)
{
	struct fc_label held = user(UINT64_MAX / 2);
	uint64_t n = keys(), live = (uint64_t)g.mem.live_bytes;
	struct fc_entry e;
	long pages = 0;

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1000, FC_S(1) }, .burst = 1, .cap = 1, .places = 100000 }), 0);
	assert_int_equal(enter(&e, &held, 1), 0);
	live = (uint64_t)g.mem.live_bytes;
	for (uint64_t i = 0; i < n; i++) {
		if (i == n / 2)
			pages = resident_pages();
		if (call_of(i) != 0)
			fail_msg("key %llu", (unsigned long long)i);
		if (i % 64 == 0)
			guarded_pass(&g, FC_US(2));
		if (i % 65536 == 0) /* Sentinel 3058: evicted while held, its cap is lost */
			assert_int_equal(call(&held, 1), FC_REFUSED_KEY);
	}
	assert_int_equal(g.mem.live_bytes, live);
	assert_true(resident_pages() - pages < 64);
	assert_true(stats().overflows == 0 && stats().inserted == n + 1 && stats().inside == 1);
	assert_true(stats().evicted >= n + 1 - stats().places);
	fc_exit(&e);
	assert_int_equal(stats().inside, 0);
}

/* He wants his own place evicted. Nobody's limit is forgiven, and who finds no place is counted. */
static void a_flood_of_new_keys_does_not_free_who_sent_it(void **state)
{
	struct fc_keyed_conf conf = { .limit = { 1, FC_S(600) }, .burst = 2, .places = 65536 };
	uint64_t n = keys() < 1000000 ? keys() : 1000000, in = 0, again = 0;
	struct fc_keyed_stats s;

	(void)state;
	assert_int_equal(keyed(&conf), 0);
	assert_int_equal(calls_of(UINT64_MAX / 2, 9), 2);
	for (uint64_t i = 0; i < n; i++) {
		in += call_of(i) == 0;
		if (i % 1000 == 0)
			assert_int_equal(call_of(UINT64_MAX / 2), FC_REFUSED_KEY);
	}
	s = stats();
	assert_int_equal(in, n); /* overflows are admitted */
	assert_int_equal(s.inserted + s.overflows, n + 1);
	assert_true(s.evicted == 0 && s.used == s.inserted);
	assert_true(s.used > s.places * 95 / 100);
	/* All that have a place still have one call, not two. */
	for (uint64_t i = 0; i < 20000; i++)
		again += calls_of(i, 9) == 1;
	assert_int_equal(again, 20000);
	/* Or overflows are refused. */
	conf.overflow = FC_KEYED_REFUSE;
	assert_int_equal(keyed(&conf), 0);
	for (uint64_t i = 0, refused = 0; i < 5000; i++) {
		refused += call_of(n + i) == FC_REFUSED_KEY;
		assert_int_equal(refused, stats().overflows - s.overflows);
		if (i % 100)
			i += 99; /* stats() looks at all places */
	}
	/* Time over, all of them give way again. */
	guarded_pass(&g, FC_S(1201)); /* tokens are rounded up */
	assert_int_equal(stats().used, 0);
	for (uint64_t i = 0; i < 30000; i++)
		assert_int_equal(call_of(2 * n + i), 0);
}

/* Places before a key finds none: two choices of 8. */
static void three_quarters_of_the_places_can_be_used(void **state)
{
	struct fc_keyed_stats s;

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(600) }, .places = 65536 }), 0);
	for (uint64_t i = 0; i < 65536 * 3 / 4; i++)
		assert_int_equal(call_of(i), 0);
	s = stats();
	assert_in_range(s.overflows, 0, 40);
}

static void one_user_of_a_thousand_floods_and_he_alone_is_refused(void **state)
{
	uint64_t refused = 0, flooded = 0;

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 10, FC_S(1) }, .burst = 10, .places = 2048 }), 0);
	for (int ms = 0; ms < 3000; ms++) {
		for (uint64_t u = 0; u < 1000; u++)
			if ((u + (uint64_t)ms) % 200 == 0) /* 5 a second each */
				refused += call_of(u) != 0;
		flooded += calls_of(5000, 5);
		guarded_pass(&g, FC_MS(1));
	}
	assert_int_equal(refused, 0);
	assert_in_range(flooded, 39, 40);
}

/* ---- reload ------------------------------------------------------------------------------------ */

static void a_reload_keeps_what_keys_have_used(void **state)
{
	struct fc_keyed_conf conf = { .limit = { 1, FC_S(60) }, .burst = 4, .cap = 2, .places = 1024 };
	struct fc_label a = user(1);
	struct fc_entry e, f;

	(void)state;
	assert_int_equal(keyed(&conf), 0);
	for (uint64_t i = 10; i < 300; i++)
		assert_int_equal(calls_of(i, 3), 3);
	assert_int_equal(override("alice", 1, 9, 0), 0);
	assert_int_equal(enter(&e, &a, 1), 0);
	for (int i = 0; i < 50; i++)
		assert_int_equal(keyed(&conf), 0);
	assert_int_equal(stats().inside, 1);
	conf.burst = 5;
	assert_int_equal(keyed(&conf), 0);
	assert_int_equal(calls_of(10, 9), 2);
	/* A larger table: tokens, calls inside, and overrides. */
	conf.places = 65536;
	conf.max_overrides = 5000;
	assert_int_equal(keyed(&conf), 0);
	for (uint64_t i = 11; i < 300; i++)
		assert_int_equal(calls_of(i, 9), 2);
	assert_int_equal(calls_of(10, 9), 0);
	assert_int_equal(calls_named("alice", 20), 9);
	assert_int_equal(enter(&f, &a, 1), 0);
	assert_int_equal(call(&a, 1), FC_REFUSED_KEY);
	fc_exit(&e);
	assert_int_equal(call(&a, 1), 0);
	fc_exit(&f);
	/* A smaller one: the large one stays. */
	conf.places = 1024;
	assert_int_equal(keyed(&conf), 0);
	assert_int_equal(stats().places, 65536);
	assert_int_equal(calls_of(11, 9), 0);
}

/* ---- time -------------------------------------------------------------------------------------- */

/* FAULTS G, sentinel-golang 409, MediaWiki-MCP-Server 557. */
static void a_clock_that_jumps_mints_nothing_and_locks_nobody_out(void **state)
{
	static const int64_t jumps[] = { -3600, 3600, -7200, 86400 * 3650, -86400 * 3650, -900 };

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 10, FC_S(1) }, .burst = 5 }), 0);
	guarded_pass(&g, YEAR);
	for (size_t k = 0; k < sizeof(jumps) / sizeof(jumps[0]); k++) {
		uint64_t in = 0, was = g.now;

		(void)calls_of(1, 9);
		g.now += (uint64_t)jumps[k] * FC_S(1);
		fc_clock_set(g.fc, g.now);
		assert_in_range(calls_of(1, 99), 0, jumps[k] > 0 ? 5 : 0);
		/* 10 a second, as soon as 1 s and a burst's time are over. */
		for (int ms = 0; ms < 3000; ms++, guarded_pass(&g, FC_MS(1)))
			in += calls_of(1, 1);
		assert_in_range(in, 10, 31);
		assert_true(was != g.now);
	}
}

/* Places of keys that are limited until a time of the clock as it was. */
static void a_clock_set_back_leaves_no_place_taken(void **state)
{
	uint64_t before;

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(1) }, .burst = 1, .places = 1024 }), 0);
	guarded_pass(&g, FC_S(7200));
	for (uint64_t i = 0; i < 5000; i++)
		(void)call_of(i);
	g.now -= FC_S(3600);
	for (int ms = 0; ms < 3000; ms++, guarded_pass(&g, FC_MS(1)))
		(void)call_of(1);
	for (uint64_t i = 0; i < 5000; i++)
		(void)call_of(10000 + i);
	guarded_pass(&g, FC_S(2));
	before = stats().overflows;
	assert_int_equal(stats().used, 0);
	for (uint64_t i = 0; i < 400; i++)
		assert_int_equal(call_of(20000 + i), 0);
	assert_int_equal(stats().overflows, before);
}

static void late_callers_mint_nothing(void **state)
{
	uint64_t in = 0, from = g.now;

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 100, FC_S(1) }, .burst = 3 }), 0);
	for (int i = 0; i < 20000; i++) {
		struct fc_label l = user(1);
		FC_OPTS(fc_ctx, ctx, .labels = &l, .n_labels = 1);
		struct fc_entry e = FC_ENTRY_INIT;

		guarded_pass(&g, FC_US(100));
		ctx.now_ns = i % 3 == 0 ? g.now : i % 3 == 1 ? g.now - FC_MS(1) : g.now - FC_MS(900);
		in += fc_enter(&e, g.f, &ctx) == 0;
		fc_exit(&e);
	}
	assert_in_range(in, (g.now - from) / FC_MS(10) - 5, (g.now - from) / FC_MS(10) + 3);
}

/* FAULTS H, bucket4j 51. */
static void after_an_idle_time_of_300_years_all_is_as_new(void **state)
{
	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(60) }, .burst = 3, .cap = 2 }), 0);
	assert_int_equal(calls_of(1, 9), 3);
	guarded_pass(&g, 300 * YEAR);
	assert_int_equal(calls_of(1, 9), 3);
	assert_int_equal(calls_of(2, 9), 3);
}

/* A killed process may leave a call that nobody ends. */
static void a_call_that_nobody_ends_is_forgotten_by_its_lease(void **state)
{
	struct fc_keyed_conf conf = { .cap = 2, .lease_ns = FC_S(10), .places = 1024 };
	struct fc_label a = user(1);
	struct fc_entry e[3];

	(void)state;
	assert_int_equal(keyed(&conf), 0);
	assert_int_equal(enter(&e[0], &a, 1), 0);
	guarded_pass(&g, FC_S(9));
	assert_int_equal(enter(&e[1], &a, 1), 0);
	guarded_pass(&g, FC_S(9));
	assert_int_equal(call(&a, 1), FC_REFUSED_KEY);
	guarded_pass(&g, FC_S(2));
	assert_int_equal(enter(&e[2], &a, 1), 0);
	assert_int_equal(stats().inside, 1);
	/* They were not lost but slow: what they give back is not the new call's. */
	fc_exit(&e[0]);
	fc_exit(&e[1]);
	assert_int_equal(stats().inside, 1);
	fc_exit(&e[2]);
	assert_int_equal(stats().inside, 0);
	/* And another key may have the place. */
	for (int i = 0; i < 2; i++)
		assert_int_equal(enter(&e[i], &a, 1), 0);
	guarded_pass(&g, FC_S(11));
	for (uint64_t i = 0; i < 5000; i++)
		assert_int_equal(call_of(100 + i), 0);
	fc_exit(&e[0]);
	fc_exit(&e[1]);
	assert_int_equal(stats().inside, 0);
}

/* ---- threads ----------------------------------------------------------------------------------- */

#define HOT 50

static struct {
	atomic_int inside[HOT];
	atomic_uint admitted[HOT], worst, flooded;
	atomic_ullong round;
	uint64_t end, rounds;
	unsigned threads;
} race;

static void take_bursts(void *arg, unsigned index, struct rng *rng)
{
	(void)arg;
	(void)index;
	for (int i = 0; i < 20000; i++) {
		uint32_t u = rng_below(rng, HOT);

		if (call_of(u) == 0)
			atomic_fetch_add(&race.admitted[u], 1);
		(void)call_of(1000 + rng_next(rng) % 100000);
	}
}

/* FAULTS C, sentinel-golang 599: per key, while others come, overflow and go. */
static void threads_take_no_more_than_a_burst_of_each_key(void **state)
{
	(void)state;
	memset(&race, 0, sizeof(race));
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(3600) }, .burst = 100, .places = 1024 }), 0);
	run_threads(4 * test_cpus(), take_bursts, NULL);
	for (int i = 0; i < HOT; i++)
		if (atomic_load(&race.admitted[i]) != 100 && stats().overflows == 0)
			fail_msg("key %d: %u", i, atomic_load(&race.admitted[i]));
	/* With a full table some keys found no place; none may have had two. */
	for (int i = 0; i < HOT; i++)
		assert_true(calls_of((uint64_t)i, 1) == 0 || stats().overflows);
}

static void hold_some(void *arg, unsigned index, struct rng *rng)
{
	uint64_t end = stress_end_ns();
	(void)arg;
	(void)index;
	while (test_now_ns() < end) {
		uint32_t u = rng_below(rng, HOT), now;
		struct fc_label l = user(u), other = user(1000 + rng_next(rng) % 1000000);
		struct fc_entry e, f;

		if (enter(&e, &l, 1) == 0) {
			now = (uint32_t)atomic_fetch_add(&race.inside[u], 1) + 1;
			if (now > atomic_load(&race.worst))
				atomic_store(&race.worst, now);
			if (enter(&f, &other, 1) == 0)
				fc_exit(&f);
			atomic_fetch_sub(&race.inside[u], 1);
			fc_exit(&e);
		}
	}
}

static void threads_never_pass_the_cap_of_a_key_and_leave_nothing(void **state)
{
	(void)state;
	memset(&race, 0, sizeof(race));
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .cap = 2, .places = 1024 }), 0);
	run_threads(4 * test_cpus() + 2, hold_some, NULL);
	assert_in_range(atomic_load(&race.worst), 1, 2);
	assert_true(stats().inside == 0 && stats().overflows == 0 && stats().evicted > 0);
}

/* All threads want the same new key at the same time. */
static void meet(void *arg, unsigned index, struct rng *rng)
{
	(void)arg;
	(void)index;
	(void)rng;
	for (uint64_t i = 1; i <= race.rounds; i++) {
		atomic_fetch_add(&race.round, 1);
		while (atomic_load(&race.round) < i * race.threads)
			sched_yield();
		if (call_of(i) == 0)
			atomic_fetch_add(&race.flooded, 1);
	}
}

static void a_new_key_gets_one_place_whoever_brings_it(void **state)
{
	(void)state;
	memset(&race, 0, sizeof(race));
	race.threads = test_cpus() + 1;
	race.rounds = 30000;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(3600) }, .burst = 1, .places = 65536 }), 0);
	run_threads(race.threads, meet, NULL);
	assert_int_equal(atomic_load(&race.flooded), race.rounds);
	assert_true(stats().overflows == 0 && stats().inserted == race.rounds && stats().used == race.rounds);
}

static void reload_and_override(void *arg, unsigned index, struct rng *rng)
{
	uint64_t end = stress_end_ns();
	char name[32];

	(void)arg;
	while (test_now_ns() < end) {
		if (index == 0) {
			(void)keyed(&(struct fc_keyed_conf){ .cap = 1 + rng_below(rng, 2), .places = 1024 });
		} else if (index == 1) {
			snprintf(name, sizeof(name), "user%u", rng_below(rng, 100));
			(void)fc_keyed_override(g.f, NULL, name, rng_chance(rng, 3) ? NULL :
			                        &(struct fc_keyed_numbers){ .cap = 1 + rng_below(rng, 2) });
		} else {
			uint32_t u = rng_below(rng, 100);
			struct fc_label l;
			struct fc_entry e;

			snprintf(name, sizeof(name), "user%u", u);
			l = fc_label("user", name);
			if (enter(&e, &l, 1) == 0) {
				if (atomic_fetch_add(&race.inside[u % HOT], 1) >= 4) /* two names each */
					atomic_fetch_add(&race.worst, 1);
				atomic_fetch_sub(&race.inside[u % HOT], 1);
				fc_exit(&e);
			}
		}
	}
}

/* FAULTS K, resilience4j 2034: all numbers changed live. */
static void numbers_change_while_calls_run(void **state)
{
	(void)state;
	memset(&race, 0, sizeof(race));
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .cap = 2, .places = 1024 }), 0);
	run_threads(2 * test_cpus() + 3, reload_and_override, NULL);
	assert_int_equal(atomic_load(&race.worst), 0);
	assert_int_equal(stats().inside, 0);
}

/* Claims of the key that is there alone, into all places of its bucket but one: from threads that stopped. */
static int leave_claims(struct fc_call *c, void *arg)
{
	struct places *b = places_of(c->state);

	for (uint32_t i = 0; i < 1024; i++) {
		struct pair p = b[i / WAYS].way[i % WAYS];

		for (uint32_t k = 0; p.a && k < WAYS - 1; k++)
			b[i / WAYS].way[k] = (struct pair){ p.a | 3u << 4, (uint64_t)(k + 100) << 2 };
		if (p.a) {
			b[i / WAYS].way[WAYS - 1] = (struct pair){ 0, 0 };
			*(uint64_t *)arg = p.a >> 20;
			return 0;
		}
	}
	return 1;
}

static int places_of_key(struct fc_call *c, void *arg)
{
	struct places *b = places_of(c->state);
	int n = 0;

	for (uint32_t i = 0; i < 1024; i++)
		n += b[i / WAYS].way[i % WAYS].a >> 20 == *(uint64_t *)arg;
	return n;
}

/* Whoever comes next finishes one of them, and takes the others back. */
static void claims_of_stopped_threads_become_one_place(void **state)
{
	uint64_t key = 0;

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(60) }, .burst = 3, .places = 1024 }), 0);
	assert_int_equal(call_of(1), 0);
	assert_int_equal(fc_iface_with(g.f, &fc_interceptor_keyed, NULL, leave_claims, &key), 0);
	assert_int_equal(fc_iface_with(g.f, &fc_interceptor_keyed, NULL, places_of_key, &key), WAYS - 1);
	assert_int_equal(calls_of(1, 9), 3); /* as new: nothing had been taken by a claim */
	assert_int_equal(fc_iface_with(g.f, &fc_interceptor_keyed, NULL, places_of_key, &key), 1);
	assert_int_equal(stats().used, 1);
}

/* ---- what is wrong ----------------------------------------------------------------------------- */

static int spoil(struct fc_call *c, void *arg)
{
	struct rng *rng = arg;
	uint64_t *word = c->state;

	/* All but the numbers of buckets, which only setup reads. */
	for (size_t i = 2; i < 1024 * 16 / 8 + 8000; i++)
		word[i] = rng_chance(rng, 4) ? rng_next(rng) : word[i];
	return 0;
}

/* FAULTS B: a state that anybody may have spoilt. */
static void a_spoilt_state_stops_nobody(void **state)
{
	struct rng rng;

	(void)state;
	rng_init(&rng, 3);
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 10, FC_S(1) }, .cap = 3, .places = 1024 }), 0);
	for (int k = 0; k < 200; k++) {
		struct fc_label l = user((uint64_t)k);
		struct fc_entry e;
		int rc = enter(&e, &l, 1);

		assert_int_equal(fc_iface_with(g.f, &fc_interceptor_keyed, NULL, spoil, &rng), 0);
		if (rc == 0)
			fc_exit(&e);
		for (uint64_t i = 0; i < 50; i++)
			(void)call_of(i);
		(void)override("alice", 3, 1, 1);
		(void)stats();
		guarded_pass(&g, FC_MS(50));
	}
}

static void bad_numbers_say_what_is_allowed(void **state)
{
	static const struct { struct fc_keyed_conf conf; int rc; const char *line; } cases[] = {
		{ { .label = "", .cap = 1 }, -EINVAL, "label: none; allowed: the name of a label" },
		{ { .places = 7 }, -ERANGE, "places: 7; allowed: 1024 to 4194304" },
		{ { .max_overrides = 5000000 }, -ERANGE, "max_overrides: 5000000; allowed: 1 to 4194304" },
		{ { .lease_ns = 5 }, -ERANGE, "lease in ns: 5; allowed: 1 s or more" },
		{ { .without = 3 }, -EINVAL, "without: 3; allowed: admit (0), refuse (1), shared (2)" },
		{ { .overflow = 2 }, -EINVAL, "overflow: 2; allowed: admit (0), refuse (1)" },
		{ { .cap = 16384 }, -ERANGE, "limit 0 per 0 ns, burst 0, cap 16384; allowed: cap: 0 to 16383" },
		{ { .burst = 3 }, -EINVAL, "limit 0 per 0 ns, burst 3, cap 0; allowed: burst: it needs a limit" },
		{ { .limit = { 2, 1 } }, -ERANGE, "limit 2 per 1 ns, burst 0, cap 0; allowed: limit: 1 per 366 days to 10^9 per second" },
		{ { .limit = { 1, 0 } }, -ERANGE, "limit 1 per 0 ns, burst 0, cap 0; allowed: limit: 1 per 366 days to 10^9 per second" },
		{ { .limit = { 1, 1ull << 60 } }, -ERANGE,
		  "limit 1 per 1152921504606846976 ns, burst 0, cap 0; allowed: limit: 1 per 366 days to 10^9 per second" },
		{ { .limit = { 1, 1000000000 }, .burst = 1ull << 30 }, -ERANGE,
		  "limit 1 per 1000000000 ns, burst 1073741824, cap 0; allowed: burst: 1 to 2^40 tokens, and no more than come in 9 years" },
	};
	char expected[256];

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .limit = { 1, FC_S(60) }, .burst = 2 }), 0);
	assert_int_equal(calls_of(1, 1), 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		last_lines[0] = 0;
		assert_int_equal(keyed(&cases[i].conf), cases[i].rc);
		snprintf(expected, sizeof(expected), "guarded: keyed: %s\n", cases[i].line);
		assert_memory_equal(last_lines, expected, strlen(expected));
	}
	assert_int_equal(calls_of(1, 9), 1); /* nothing has changed */
}

static void without_numbers_nobody_is_limited(void **state)
{
	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .places = 1024 }), 0);
	assert_int_equal(calls_of(1, 1000), 1000);
	assert_true(stats().inserted == 0);
}

/* The call inside is the parent's. */
static void in_the_child_of_a_fork_a_value_has_its_whole_cap(void **state)
{
	struct fc_label l = user(7);
	struct fc_entry e;
	int status = -1;
	pid_t pid;

	(void)state;
	assert_int_equal(keyed(&(struct fc_keyed_conf){ .cap = 1, .places = 1024 }), 0);
	assert_int_equal(enter(&e, &l, 1), 0);
	assert_int_equal(call_of(7), FC_REFUSED_KEY);
	pid = fork();
	if (pid == 0)
		_exit(call_of(7) == 0 && call_of(7) == 0 ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(call_of(7), FC_REFUSED_KEY);
	fc_exit(&e);
	assert_int_equal(call_of(7), 0);
}

int main(void)
{
#define T(f_) cmocka_unit_test_setup_teardown(f_, setup, teardown)
	static const struct CMUnitTest tests[] = {
		T(each_value_has_a_bucket_of_its_own),
		T(in_the_child_of_a_fork_a_value_has_its_whole_cap),
		T(no_interval_has_more_than_burst_and_rate),
		T(a_key_that_always_asks_gets_its_rate),
		T(a_cap_holds_for_each_value_exactly),
		T(a_heavy_call_takes_its_weight_or_nothing),
		T(a_refusal_behind_it_gives_all_back),
		T(a_dry_run_counts_and_takes_nothing_over),
		T(calls_without_the_label_are_let_pass_refused_or_one_key),
		T(overrides_and_plans_hold_at_once),
		T(an_override_of_an_address_holds_for_both_kinds_of_label),
		T(many_overrides_all_hold_and_can_all_be_changed),
		T(when_there_is_no_room_for_an_override_it_says_so),
		T(any_number_of_keys_goes_through_the_same_memory),
		T(a_flood_of_new_keys_does_not_free_who_sent_it),
		T(three_quarters_of_the_places_can_be_used),
		T(one_user_of_a_thousand_floods_and_he_alone_is_refused),
		T(a_reload_keeps_what_keys_have_used),
		T(a_clock_that_jumps_mints_nothing_and_locks_nobody_out),
		T(a_clock_set_back_leaves_no_place_taken),
		T(late_callers_mint_nothing),
		T(after_an_idle_time_of_300_years_all_is_as_new),
		T(a_call_that_nobody_ends_is_forgotten_by_its_lease),
		T(threads_take_no_more_than_a_burst_of_each_key),
		T(threads_never_pass_the_cap_of_a_key_and_leave_nothing),
		T(a_new_key_gets_one_place_whoever_brings_it),
		T(claims_of_stopped_threads_become_one_place),
		T(numbers_change_while_calls_run),
		T(a_spoilt_state_stops_nobody),
		T(bad_numbers_say_what_is_allowed),
		T(without_numbers_nobody_is_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
