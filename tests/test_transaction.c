/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The chain is a transaction, with the library's own interceptors: every pair and triple of them, a
 * refusal before, between and behind, and nothing remains; then random chains, calls, refusals, exits,
 * exits twice, moves and pauses on many threads, and in the end all that was taken is there again.
 *
 * Each interceptor is given room for exactly one call. After refusals, one call must get in: what they
 * took is back. A second one beside it must not: the room was really one.
 *
 * FC_STEPS: steps of the random part (default 300000; 10000000 take some seconds).
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>

#include <fcguard/fcguard.h>

#include "support/guarded.h"
#include "support/threads.h"

static struct guarded g;

static int teardown(void **state)
{
	(void)state;
	return g.fc ? guarded_close(&g) : 0;
}

/* ---- rooms for one call ------------------------------------------------------------------------ */

static const char *const nobody[] = { "mallory" };
static const struct fc_isolate_member member = { "one", 1, 1 };

static const struct fc_access_conf access_one = { .label = "user", .deny = { nobody, 1 } };
static const struct fc_isolate_conf isolate_one = { .group = "transaction", .member = "one" };
static const struct fc_rate_conf bucket_one = { .limit = { 1, FC_S(86400) }, .burst = 1 };
static const struct fc_rate_conf fixed_one = { .limit = { 1, FC_S(86400) }, .kind = FC_RATE_FIXED };
static const struct fc_rate_conf sliding_one = { .limit = { 1, FC_S(86400) }, .kind = FC_RATE_SLIDING };
static const struct fc_rate_conf leaky_one = { .limit = { 1, FC_S(86400) }, .kind = FC_RATE_LEAKY };
static const struct fc_rate_conf total_one = { .total = 1, .kind = FC_RATE_TOTAL };
static const struct fc_keyed_conf keyed_rate_one = { .label = "user", .limit = { 1, FC_S(86400) }, .burst = 1, .places = 1024 };
static const struct fc_keyed_conf keyed_cap_one = { .label = "user", .cap = 1, .places = 1024 };
static const struct fc_breaker_conf breaker_one = { .errors = 1, .open_ns = FC_MS(5), .probes = 1 }; /* half open */
static const struct fc_priority_conf priority_all = { .no_health = 1 };

/* What can stand in a chain; those that hold nothing are there to be refused around. */
static const struct fc_rule rooms[] = {
	{ .interceptor = &fc_interceptor_access, .conf = &access_one, .name = "access" },
	{ .interceptor = &fc_interceptor_priority, .conf = &priority_all, .name = "priority" },
	{ .interceptor = &fc_interceptor_isolate, .conf = &isolate_one, .name = "isolate" },
	{ .interceptor = &fc_interceptor_rate, .conf = &bucket_one, .name = "bucket" },
	{ .interceptor = &fc_interceptor_rate, .conf = &fixed_one, .name = "fixed" },
	{ .interceptor = &fc_interceptor_rate, .conf = &sliding_one, .name = "sliding" },
	{ .interceptor = &fc_interceptor_rate, .conf = &leaky_one, .name = "leaky" },
	{ .interceptor = &fc_interceptor_rate, .conf = &total_one, .name = "total" },
	{ .interceptor = &fc_interceptor_keyed, .conf = &keyed_rate_one, .name = "keyed.rate" },
	{ .interceptor = &fc_interceptor_keyed, .conf = &keyed_cap_one, .name = "keyed.cap" },
	{ .interceptor = &fc_interceptor_breaker, .conf = &breaker_one, .name = "breaker" },
};
#define ROOMS (sizeof(rooms) / sizeof(rooms[0]))

/* Refuses, in pre, when it is told to. */
static int told;

static int refuse_if_told(struct fc_call *c)
{
	(void)c;
	return told ? FC_REFUSED_USER + 7 : 0;
}

static const struct fc_interceptor refuser = { .size = sizeof(refuser), .order = FC_ORDER_USER, .name = "refuser", .pre = refuse_if_told };

static struct fc_label ann;
static struct fc_ctx ctx;

/* A failure opens the breaker, and then its time is over: it lets one probe in. */
static void half_open(void)
{
	struct fc_entry e = FC_ENTRY_INIT;

	assert_int_equal(fc_iface_set_chain(g.f, &rooms[ROOMS - 1], 1), 0);
	assert_int_equal(fc_enter(&e, g.f, &ctx), 0);
	fc_entry_mark(&e, FC_OUTCOME_ERROR);
	fc_exit(&e);
	assert_int_equal(fc_enter(&e, g.f, &ctx), FC_REFUSED_BREAKER);
	guarded_pass(&g, FC_MS(20));
}

static void open_one(void)
{
	FC_OPTS(fc_isolate_opts, o, .cap = 1, .members = &member, .n_members = 1);

	guarded_open(&g, &(struct fc_iface_opts){ .cap = 8, .expand = 1 });
	assert_int_equal(fc_isolate_group(g.fc, "transaction", &o), 0);
	ann = fc_label("user", "ann");
	ctx = (struct fc_ctx){ .size = sizeof(ctx), .labels = &ann, .n_labels = 1 };
	told = 0;
	half_open();
}

/* The rules `which`, a refuser at place k of them. */
static void chain_with_refuser(const size_t *which, size_t n, size_t k)
{
	struct fc_rule rules[4];
	size_t m = 0;

	for (size_t i = 0; i <= n; i++) {
		if (i == k) {
			rules[m] = (struct fc_rule){ .interceptor = &refuser, .order = (uint32_t)m + 1 };
			m++;
		}
		if (i < n) {
			rules[m] = rooms[which[i]];
			rules[m].order = (uint32_t)m + 1;
			m++;
		}
	}
	assert_int_equal(fc_iface_set_chain(g.f, rules, (uint32_t)m), 0);
}

static int has_room_for_one_only(const size_t *which, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (which[i] >= 2) /* not access, not priority */
			return 1;
	return 0;
}

static void assert_transaction(const size_t *which, size_t n, size_t k)
{
	struct fc_entry e = FC_ENTRY_INIT, second = FC_ENTRY_INIT;
	int rc;

	open_one();
	chain_with_refuser(which, n, k);
	told = 1;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fc_enter(&e, g.f, &ctx), FC_REFUSED_USER + 7);
		assert_int_equal(fc_inside(g.f, NULL), 0);
		fc_exit(&e);
	}
	told = 0;
	assert_int_equal(fc_enter(&e, g.f, &ctx), 0);
	rc = fc_enter(&second, g.f, &ctx);
	assert_true(has_room_for_one_only(which, n) ? rc > 0 : rc == 0);
	fc_exit(&second);
	fc_exit(&e);
	fc_exit(&e);
	assert_int_equal(guarded_close(&g), 0);
	g.fc = NULL;
}

static void every_one_gives_back_what_a_refused_call_took(void **state)
{
	(void)state;
	for (size_t a = 0; a < ROOMS; a++)
		for (size_t k = 0; k <= 1; k++)
			assert_transaction(&a, 1, k);
}

static void every_pair_refused_at_each_place_leaves_nothing(void **state)
{
	(void)state;
	for (size_t a = 0; a < ROOMS; a++)
		for (size_t b = 0; b < ROOMS; b++)
			for (size_t k = 0; a != b && k <= 2; k++)
				assert_transaction((size_t[]){ a, b }, 2, k);
}

static void every_triple_refused_at_each_place_leaves_nothing(void **state)
{
	(void)state;
	for (size_t a = 0; a < ROOMS; a++)
		for (size_t b = 0; b < ROOMS; b++)
			for (size_t c = 0; c < ROOMS; c++)
				for (size_t k = 0; a != b && b != c && a != c && k <= 3; k++)
					assert_transaction((size_t[]){ a, b, c }, 3, k);
}

/* The refuser is another interceptor: each full one refuses what stands before it has taken. */
static void each_refuses_when_full_and_those_before_it_lose_nothing(void **state)
{
	(void)state;
	for (size_t a = 2; a < ROOMS; a++)
		for (size_t b = 2; b < ROOMS; b++) {
			struct fc_entry e = FC_ENTRY_INIT;

			if (a == b)
				continue;
			/* b is used up by a call under b alone; then a before b. */
			open_one();
			chain_with_refuser(&b, 1, 0);
			assert_int_equal(fc_enter(&e, g.f, &ctx), 0);
			chain_with_refuser((size_t[]){ a, b }, 2, 2);
			for (int i = 0; i < 3; i++) {
				struct fc_entry no = FC_ENTRY_INIT;
				FC_OPTS(fc_decision, d, .status = 0);

				assert_true(fc_enter(&no, g.f, &ctx) > 0);
				assert_int_equal(fc_entry_decision(&no, &d), 0);
				assert_string_equal(d.rule, rooms[b].name);
			}
			chain_with_refuser(&a, 1, 1);
			{
				struct fc_entry yes = FC_ENTRY_INIT;

				assert_int_equal(fc_enter(&yes, g.f, &ctx), 0);
				fc_exit(&yes);
			}
			fc_exit(&e);
			assert_int_equal(guarded_close(&g), 0);
			g.fc = NULL;
		}
}

/* ---- everything at once ------------------------------------------------------------------------ */

#define TOTAL (1ull << 40)

static const struct fc_rate_conf wide_total = { .total = TOTAL, .kind = FC_RATE_TOTAL };
static const struct fc_rate_conf wide_bucket = { .limit = { 1000000, FC_S(1) }, .burst = 1000000 };
static const struct fc_keyed_conf wide_keyed = { .label = "user", .limit = { 100000, FC_S(1) }, .cap = 3, .places = 1024 };
static const struct fc_isolate_conf wide_isolate = { .group = "wide", .label = "user" };
static const struct fc_breaker_conf wide_breaker = { .window_ns = FC_MS(100), .errors = 20, .open_ns = FC_MS(5), .probes = 2 };
static const struct fc_rule wide[] = {
	{ .interceptor = &fc_interceptor_access, .conf = &access_one },
	{ .interceptor = &fc_interceptor_isolate, .conf = &wide_isolate },
	{ .interceptor = &fc_interceptor_rate, .conf = &wide_bucket, .name = "bucket" },
	{ .interceptor = &fc_interceptor_keyed, .conf = &wide_keyed },
	{ .interceptor = &fc_interceptor_breaker, .conf = &wide_breaker },
};

static struct {
	atomic_ullong steps, most, admitted, refused;
	struct fc_label users[8];
} all;

static _Thread_local uint32_t luck;

static int refuse_by_luck(struct fc_call *c)
{
	(void)c;
	luck = luck * 1664525u + 1013904223u;
	return luck >> 28 == 0 ? FC_REFUSED_USER : 0;
}

static const struct fc_interceptor unlucky = { .size = sizeof(unlucky), .name = "unlucky", .order = FC_ORDER_USER, .pre = refuse_by_luck };

/* The total is always there, so that what was admitted can be counted by it; the rest by chance, in any
 * order, some in dry run. */
static void random_chain(struct rng *rng)
{
	struct fc_rule rules[8] = { { .interceptor = &fc_interceptor_rate, .conf = &wide_total, .name = "total", .order = 1 + rng_below(rng, 9) } };
	uint32_t n = 1;

	for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++)
		if (rng_chance(rng, 2)) {
			rules[n] = wide[i];
			rules[n].order = 1 + rng_below(rng, 9);
			rules[n++].flags = rng_chance(rng, 6) ? FC_RULE_DRY_RUN : 0;
		}
	rules[n++] = (struct fc_rule){ .interceptor = &unlucky, .order = 1 + rng_below(rng, 9) };
	(void)fc_iface_set_chain(g.f, rules, n);
}

static void end_it(struct fc_entry *e, struct rng *rng)
{
	struct fc_entry moved = FC_ENTRY_INIT;
	uint32_t how = rng_below(rng, 6);

	if (how == 0)
		fc_entry_take(&moved, e);
	if (how == 1 && fc_entry_suspend(e) == 0 && rng_chance(rng, 2))
		(void)!fc_entry_resume(e);
	if (rng_chance(rng, 4))
		fc_entry_mark(e, (int)rng_below(rng, 4));
	fc_exit(&moved);
	fc_exit(e);
	fc_exit(e);
}

static void player(void *arg, unsigned index, struct rng *rng)
{
	(void)arg;
	luck = index + 1;
	while (atomic_fetch_add(&all.steps, 1) < atomic_load(&all.most)) {
		struct fc_ctx c = { .size = sizeof(c), .labels = &all.users[rng_below(rng, 8)], .n_labels = rng_below(rng, 5) != 0,
			            .weight = 1 + rng_below(rng, 3) };
		struct fc_entry e = FC_ENTRY_INIT;

		if (rng_chance(rng, 200))
			random_chain(rng);
		if (index == 0 && rng_chance(rng, 50))
			fc_clock_advance(g.fc, rng_below(rng, 1000000));
		if (fc_enter(&e, g.f, &c) == 0) {
			atomic_fetch_add(&all.admitted, c.weight);
			if (rng_chance(rng, 500))
				test_sleep_ms(0);
			end_it(&e, rng);
		} else {
			atomic_fetch_add(&all.refused, 1);
		}
	}
}

static void whatever_happens_all_is_there_again(void **state)
{
	static const struct fc_isolate_member m[] = { { "u0", 2, 0 }, { "u1", 1, 3 }, { "u2", 0, 2 } };
	const char *steps = getenv("FC_STEPS");
	FC_OPTS(fc_isolate_opts, o, .cap = 12, .members = m, .n_members = 3);
	FC_OPTS(fc_keyed_stats, k, .places = 0);
	FC_OPTS(fc_breaker_status, b, .state = 0);
	struct rng rng;
	int64_t left;
	uint32_t own, borrowed;

	(void)state;
	memset(&all, 0, sizeof(all));
	guarded_open(&g, &(struct fc_iface_opts){ .cap = 10, .expand = 1, .max_weight = 4, .writeoff = FC_WRITEOFF_NONE });
	assert_int_equal(fc_isolate_group(g.fc, "wide", &o), 0);
	for (int i = 0; i < 8; i++) {
		char name[4];

		snprintf(name, sizeof(name), "u%d", i);
		all.users[i] = fc_label("user", name);
		all.users[i].text = NULL;
	}
	all.most = steps ? strtoull(steps, NULL, 10) : 300000;
	rng_init(&rng, 99);
	random_chain(&rng);
	run_threads(4 * test_cpus() + 1, player, NULL);
	printf("# %llu steps: %llu places given, %llu calls refused\n", all.most, all.admitted, all.refused);
	assert_true(all.admitted > all.most / 50 && all.refused > all.most / 50);
	assert_int_equal(fc_inside(g.f, NULL), 0);
	/* All rules once more, to ask them. */
	{
		struct fc_rule rules[] = { { .interceptor = &fc_interceptor_rate, .conf = &wide_total, .name = "total" }, wide[1], wide[3], wide[4] };

		assert_int_equal(fc_iface_set_chain(g.f, rules, 4), 0);
	}
	assert_int_equal(fc_isolate_used(g.fc, "wide", NULL, &own, &borrowed), 0);
	assert_true(own == 0 && borrowed == 0);
	assert_int_equal(fc_keyed_stats(g.f, NULL, &k), 0);
	assert_true(k.inside == 0);
	assert_int_equal(fc_breaker_state(g.f, NULL, &b), 0);
	assert_int_equal(b.probes, 0);
	assert_int_equal(fc_rate_available(g.f, "total", &left), 0);
	assert_true((uint64_t)left == TOTAL - atomic_load(&all.admitted));
}

int main(void)
{
#define T(f_) cmocka_unit_test_teardown(f_, teardown)
	static const struct CMUnitTest tests[] = {
		T(every_one_gives_back_what_a_refused_call_took),
		T(every_pair_refused_at_each_place_leaves_nothing),
		T(every_triple_refused_at_each_place_leaves_nothing),
		T(each_refuses_when_full_and_those_before_it_lose_nothing),
		T(whatever_happens_all_is_there_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
