/* SPDX-License-Identifier: BSD-2-Clause */
/* Entries at their edges: bad arguments, what the caller says, caps, clocks that jump. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "support/threads.h"
#include "support/entries.h"

/* ---- arguments --------------------------------------------------------------------------------- */

static void nothing_is_no_entry_and_no_handle(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT, zero = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(NULL, login, NULL), -EINVAL);
	assert_int_equal(fc_enter(&e, NULL, NULL), -EINVAL);
	assert_int_equal((fc_enter)(NULL, NULL, NULL), -EINVAL);
	assert_int_equal(fc_entry_verdict(&e), -EINVAL);
	zero.verdict_ = -EINVAL;
	assert_memory_equal(&e, &zero, sizeof(e));
	fc_exit(NULL);
	fc_exit(&e);
	assert_int_equal(fc_exit_status(NULL), 0);
	assert_int_equal(fc_exit_status(&e), 0);
	fc_entry_mark(NULL, FC_OUTCOME_ERROR);
	fc_entry_mark(&e, FC_OUTCOME_ERROR);
	fc_entry_take(&e, NULL);
	fc_entry_take(NULL, NULL);
	assert_int_equal(fc_entry_verdict(NULL), -EINVAL);
	assert_int_equal(fc_entry_decision(NULL, NULL), -EINVAL);
	assert_int_equal(fc_entry_decision(&e, NULL), -EINVAL);
	assert_memory_equal(&e, &zero, sizeof(e));
	assert_int_equal(stats(login).admitted, 0);
}

static void garbage_is_no_handle(void **state)
{
	_Alignas(64) unsigned char garbage[4096];
	struct fc_entry e = FC_ENTRY_INIT;
	FC_OPTS(fc_stats, s, .cap = 0);
	FC_OPTS(fc_iface_opts, o, .cap = 0);

	(void)state;
	for (int fill = 0; fill < 256; fill += 51) {
		struct fc_iface *f = (struct fc_iface *)(void *)garbage;

		memset(garbage, fill, sizeof(garbage));
		assert_int_equal(fc_enter(&e, f, NULL), -EINVAL);
		assert_int_equal(fc_enter_at(&e, f, NULL, NULL), -EINVAL);
		assert_int_equal(fc_iface_stats(f, &s), -EINVAL);
		assert_int_equal(fc_iface_get_opts(f, &o), -EINVAL);
		assert_int_equal(fc_iface_set_cap(f, 1), -EINVAL);
		assert_int_equal(fc_iface_inject(f, 1, 1), -EINVAL);
		assert_int_equal(fc_iface_drain(f, 0), -EINVAL);
		assert_int_equal(fc_in_flight(f, NULL, 0), -EINVAL);
		assert_int_equal(fc_iface_set_chain(f, NULL, 0), -EINVAL);
		assert_null(fc_iface_context(f));
		assert_string_equal(fc_iface_name(f), "?");
		fc_iface_undrain(f);
	}
	assert_int_equal(e.word_, 0);
}

/* Memory that is never given back, so that a dead handle can be looked at. */
static void *keep_alloc(void *arg, size_t bytes)
{
	static _Alignas(64) char pool[1 << 20];
	size_t *used = arg, at = (*used + 63) & ~(size_t)63;

	if (at + bytes > sizeof(pool))
		return NULL;
	*used = at + bytes;
	return pool + at;
}

static void keep_free(void *arg, void *ptr, size_t bytes)
{
	(void)arg;
	(void)ptr;
	(void)bytes;
}

static void a_dead_handle_is_an_error(void **state)
{
	size_t used = 0;
	struct fc_alloc keep = { keep_alloc, keep_free, &used };
	struct fc_opts o = defaults();
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc_iface *f, *pass;
	struct fc *dead;

	(void)state;
	o.alloc = &keep;
	dead = context(&o);
	f = capped(dead, "user.login", 1);
	pass = fc_iface_get(dead, "");
	assert_null(fc_destroy(dead));
	assert_int_equal(fc_enter(&e, f, NULL), -EINVAL);
	assert_int_equal(fc_enter(&e, pass, NULL), -EINVAL);
	assert_int_equal(fc_iface_set(dead, "user.login", NULL, NULL), -EINVAL);
	assert_null(fc_iface_find(dead, "user.login"));
	assert_null(fc_destroy(dead));
	assert_null(fc_destroy(NULL));
}

static void a_refused_entry_needs_no_exit(void **state)
{
	struct fc_entry e[5] = { FC_ENTRY_INIT };

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&e[i], login, NULL), 0);
	assert_int_equal(fc_enter(&e[4], login, NULL), FC_REFUSED_CAP);
	assert_int_equal(fc_entry_verdict(&e[4]), FC_REFUSED_CAP);
	fc_entry_mark(&e[4], FC_OUTCOME_ERROR);
	for (int i = 0; i < 3; i++)
		assert_int_equal(fc_exit_status(&e[4]), 0);
	assert_int_equal(stats(login).in_flight, 4);
	assert_int_equal(fc_entry_suspend(&e[4]), -EINVAL);
	fc_exit(&e[0]);
	/* The same entry serves again. */
	assert_int_equal(fc_enter(&e[4], login, NULL), 0);
	assert_int_equal(fc_entry_verdict(&e[4]), 0);
	for (int i = 0; i < 5; i++)
		fc_exit(&e[i]);
	assert_int_equal(stats(login).ok, 5);
	assert_int_equal(stats(login).error, 0);
}

static void a_faulty_call_leaves_a_used_entry_inactive(void **state)
{
	FC_OPTS(fc_ctx, bad, .priority = 8);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	fc_exit(&e);
	assert_int_equal(fc_enter(&e, login, &bad), -EINVAL);
	assert_int_equal(fc_exit_status(&e), 0);
	assert_int_equal(stats(login).in_flight, 0);
	assert_int_equal(stats(login).ok, 1);
}

/* Netflix/concurrency-limits #163, hyperledger/besu #11277: released again and again until the count
 * was below zero, and admission off for good. */
static void stale_copies_of_entries_release_nothing(void **state)
{
	enum { N = 64 };
	static struct fc_entry live[N], stale[N];
	struct fc_iface *f = capped(fc, "fuzz", N / 2);
	uint32_t inside = 0;
	struct rng rng;

	(void)state;
	memset(live, 0, sizeof(live));
	memset(stale, 0, sizeof(stale));
	rng_init(&rng, 163);
	for (int round = 0; round < 20000; round++) {
		uint32_t i = rng_below(&rng, N);
		struct fc_entry copy = live[i];

		switch (rng_below(&rng, 4)) {
		case 0:
			if (live[i].word_)
				break;
			assert_int_equal(fc_enter(&live[i], f, NULL), inside < N / 2 ? 0 : FC_REFUSED_CAP);
			inside += live[i].word_ != 0;
			break;
		case 1:
			assert_int_equal(fc_exit_status(&live[i]), copy.word_ ? 1 : 0);
			inside -= copy.word_ != 0;
			if (copy.word_)
				stale[i] = copy;
			break;
		default:
			copy = stale[rng_below(&rng, N)];
			assert_int_not_equal(fc_exit_status(&copy), 1);
		}
		assert_int_equal(stats(f).in_flight, inside);
	}
	for (int i = 0; i < N; i++)
		fc_exit(&live[i]);
	assert_int_equal(stats(f).in_flight, 0);
	assert_int_equal(let_in(f, N), N / 2);
}

static void the_last_mark_counts(void **state)
{
	static const int marks[][3] = {
		{ FC_OUTCOME_ERROR, FC_OUTCOME_TIMEOUT, FC_OUTCOME_OK },
		{ FC_OUTCOME_OK, FC_OUTCOME_OK, FC_OUTCOME_ERROR },
		{ FC_OUTCOME_ERROR, FC_OUTCOME_IGNORED, FC_OUTCOME_TIMEOUT },
		{ FC_OUTCOME_ERROR, FC_OUTCOME_ERROR, FC_OUTCOME_IGNORED },
		/* What the program may not say is no mark. */
		{ FC_OUTCOME_ABANDONED, -1, 5 },
		{ FC_OUTCOME_ERROR, FC_OUTCOME_ABANDONED, INT32_MAX },
	};
	struct fc_stats s;

	(void)state;
	for (size_t i = 0; i < COUNT(marks); i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		assert_int_equal(fc_enter(&e, login, NULL), 0);
		for (int k = 0; k < 3; k++)
			fc_entry_mark(&e, marks[i][k]);
		fc_exit(&e);
	}
	s = stats(login);
	assert_int_equal(s.ok, 2);
	assert_int_equal(s.unmarked, 1);
	assert_int_equal(s.error, 2);
	assert_int_equal(s.timeout, 1);
	assert_int_equal(s.ignored, 1);
	assert_int_equal(s.abandoned, 0);
	assert_int_equal(s.admitted, 6);
}

/* ---- the caller's context ---------------------------------------------------------------------- */

static void a_context_of_another_header_is_read_right(void **state)
{
	struct {
		struct fc_ctx ctx;
		uint64_t newer[2];
	} c;

	(void)state;
	memset(&c, 0, sizeof(c));
	assert_int_equal(call(login, &c.ctx), -EINVAL);
	c.ctx.size = sizeof(struct fc_ctx) - 1;
	assert_int_equal(call(login, &c.ctx), -EINVAL);
	c.ctx.size = sizeof(struct fc_ctx);
	assert_int_equal(call(login, &c.ctx), 0);
	c.newer[0] = 1; /* behind its size: not read */
	assert_int_equal(call(login, &c.ctx), 0);
	c.ctx.size = sizeof(c);
	assert_int_equal(call(login, &c.ctx), -E2BIG);
	c.newer[0] = 0;
	assert_int_equal(call(login, &c.ctx), 0);
	c.newer[1] = 1ull << 63;
	assert_int_equal(call(login, &c.ctx), -E2BIG);
	assert_int_equal(stats(login).admitted, 3);
}

static void fields_of_a_context_have_bounds(void **state)
{
	struct fc_label labels[17];
	FC_OPTS(fc_ctx, c, .n_labels = 16, .labels = labels);

	(void)state;
	memset(labels, 0, sizeof(labels));
	assert_int_equal(call(login, &c), 0);
	c.n_labels = 17;
	assert_int_equal(call(login, &c), -EINVAL);
	c.n_labels = UINT32_MAX;
	assert_int_equal(call(login, &c), -EINVAL);
	c.n_labels = 1;
	c.labels = NULL;
	assert_int_equal(call(login, &c), -EINVAL);
	c.n_labels = 0;
	for (c.priority = 0; c.priority <= 7; c.priority++)
		assert_int_equal(call(login, &c), 0);
	assert_int_equal(call(login, &c), -EINVAL);
	c.priority = UINT32_MAX;
	assert_int_equal(call(login, &c), -EINVAL);
	c.priority = 0;
	c.stuck_after_ns = FC_S(49 * 86400ull);
	assert_int_equal(call(login, &c), 0);
	c.stuck_after_ns = FC_S(50 * 86400ull);
	assert_int_equal(call(login, &c), -EINVAL);
	c.stuck_after_ns = FC_NEVER_NS;
	assert_int_equal(call(login, &c), -EINVAL);
	assert_int_equal(stats(login).admitted, 10);
}

/* alibaba/sentinel-golang #556, PR #557: the batch count was ignored. */
static void a_call_takes_as_many_places_as_it_is_heavy(void **state)
{
	static const struct { uint32_t weight; int rc; uint32_t places; } cases[] = {
		{ 0, 0, 1 }, { 1, 0, 1 }, { 2, 0, 2 }, { 3, 0, 3 }, { 4, 0, 4 },
		{ 5, FC_REFUSED_WEIGHT, 0 }, { FC_WEIGHT_MAX, FC_REFUSED_WEIGHT, 0 },
		{ FC_WEIGHT_MAX + 1, FC_REFUSED_WEIGHT, 0 }, { UINT32_MAX, FC_REFUSED_WEIGHT, 0 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		FC_OPTS(fc_ctx, c, .weight = cases[i].weight);
		struct fc_entry e = FC_ENTRY_INIT;
		int rc = fc_enter(&e, login, &c);

		assert_int_equal(rc, cases[i].rc);
		assert_int_equal(stats(login).in_flight, cases[i].places);
		if (rc) {
			struct fc_decision d = decision(&e);

			assert_int_equal(d.observed, cases[i].weight);
			assert_int_equal(d.limit, cases[i].weight > FC_WEIGHT_MAX ? FC_WEIGHT_MAX : 4);
		}
		fc_exit(&e);
		assert_int_equal(stats(login).in_flight, 0);
	}
	assert_int_equal(stats(login).admitted, 5);
	assert_int_equal(let_in(login, 6), 4);
}

static void a_heavy_call_takes_all_its_places_or_none(void **state)
{
	FC_OPTS(fc_ctx, three, .weight = 3);
	struct fc_entry a = FC_ENTRY_INIT, b = FC_ENTRY_INIT, c = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&a, login, NULL), 0);
	assert_int_equal(fc_enter(&b, login, NULL), 0);
	assert_int_equal(fc_enter(&c, login, &three), FC_REFUSED_CAP);
	assert_int_equal(stats(login).in_flight, 2);
	fc_exit(&a);
	assert_int_equal(fc_enter(&c, login, &three), 0);
	assert_int_equal(stats(login).in_flight, 4);
	assert_int_equal(call(login, NULL), FC_REFUSED_CAP);
	fc_exit(&b);
	fc_exit(&c);
	assert_int_equal(stats(login).in_flight, 0);
	assert_int_equal(stats(login).admitted, 3);
	assert_int_equal(let_in(login, 6), 4);
}

static void the_greatest_weight_can_be_set(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 2048, .expand = 1, .max_weight = 2);
	FC_OPTS(fc_ctx, c, .weight = 2);
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "heavy", &o, &f), 0);
	assert_int_equal(call(f, &c), 0);
	c.weight = 3;
	assert_int_equal(call(f, &c), FC_REFUSED_WEIGHT);
	o.max_weight = 0; /* the default: as much as there is */
	assert_int_equal(fc_iface_set(fc, "heavy", &o, &f), 0);
	c.weight = FC_WEIGHT_MAX;
	assert_int_equal(call(f, &c), 0);
	o.max_weight = FC_WEIGHT_MAX + 1;
	assert_int_equal(fc_iface_set(fc, "heavy", &o, &f), -EINVAL);
	assert_int_equal(stats(f).in_flight, 0);
}

static void a_heavy_call_without_a_cap_is_never_refused(void **state)
{
	struct fc_iface *f = fc_iface_get(fc, "observed");
	FC_OPTS(fc_ctx, c, .weight = FC_WEIGHT_MAX);
	struct fc_entry e[6] = { FC_ENTRY_INIT };

	(void)state;
	for (size_t i = 0; i < COUNT(e); i++)
		assert_int_equal(fc_enter(&e[i], f, &c), 0);
	for (size_t i = 0; i < COUNT(e); i++)
		fc_exit(&e[i]);
	assert_int_equal(stats(f).in_flight, 0);
}

/* ---- caps -------------------------------------------------------------------------------------- */

/* scireum/sirius-biz PR #2408: limit + 1 admitted. */
static void a_cap_lets_exactly_so_many_in(void **state)
{
	(void)state;
	for (uint32_t cap = 1; cap <= 70; cap++) {
		char name[16];
		struct fc_iface *f;

		snprintf(name, sizeof(name), "cap.%u", cap);
		f = capped(fc, name, cap);
		assert_int_equal(let_in(f, cap + 3), cap);
		assert_int_equal(let_in(f, cap + 3), cap);
		assert_int_equal(stats(f).refused[FC_REFUSED_CAP], 6);
	}
}

static void the_greatest_cap_lets_exactly_so_many_in(void **state)
{
	struct fc_iface *f = capped(fc, "greatest", FC_CAP_MAX);

	(void)state;
	assert_int_equal(let_in(f, FC_CAP_MAX + 1), FC_CAP_MAX);
	assert_int_equal(fc_iface_set_cap(f, FC_CAP_MAX + 1), -EINVAL);
	assert_int_equal(stats(f).cap, FC_CAP_MAX);
}

/* golang/go #47221, resilience4j #417: zero behaved as unlimited. */
static void a_cap_of_zero_refuses_all(void **state)
{
	struct fc_iface *f = capped(fc, "closed", FC_CAP_REFUSE_ALL);
	FC_OPTS(fc_ctx, heavy, .weight = 2);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(let_in(f, 10), 0);
	assert_int_equal(fc_enter(&e, f, &heavy), FC_REFUSED_CAP);
	assert_int_equal(fc_enter(&e, f, NULL), FC_REFUSED_CAP);
	assert_int_equal(decision(&e).limit, 0);
	assert_int_equal(stats(f).cap, 0);
	assert_int_equal(stats(f).limit, 0);
	assert_int_equal(fc_iface_set_cap(f, 3), 0);
	assert_int_equal(let_in(f, 10), 3);
	assert_int_equal(fc_iface_set_cap(f, 0), 0);
	assert_int_equal(let_in(f, 10), 0);
	assert_int_equal(fc_iface_set_cap(f, FC_UNLIMITED), 0);
	assert_int_equal(let_in(f, 300), 300);
	assert_int_equal(fc_iface_set_cap(f, 5), 0);
	assert_int_equal(let_in(f, 300), 5);
}

static void a_lower_cap_lets_nobody_in_until_the_count_is_under_it(void **state)
{
	struct fc_entry e[4] = { FC_ENTRY_INIT };

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&e[i], login, NULL), 0);
	assert_int_equal(fc_iface_set_cap(login, 2), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(call(login, NULL), FC_REFUSED_CAP);
		fc_exit(&e[i]);
	}
	assert_int_equal(stats(login).in_flight, 1);
	assert_int_equal(call(login, NULL), 0);
	fc_exit(&e[3]);
	assert_int_equal(let_in(login, 5), 2);
}

static void an_interface_without_a_rule_is_observed_and_never_refused(void **state)
{
	struct fc_iface *f = fc_iface_get(fc, "observed");
	struct fc_stats s = stats(f);

	(void)state;
	assert_true(s.flags & FC_STATS_UNRULED);
	assert_int_equal(s.cap, FC_UNLIMITED);
	assert_int_equal(let_in(f, 10000), 10000);
	s = stats(f);
	assert_int_equal(s.admitted + s.untracked, 10000);
	assert_true(s.admitted >= 4096);
	assert_int_equal(s.in_flight, 0);
	for (int i = 0; i < FC_STATS_REASONS; i++)
		assert_int_equal(s.refused[i], 0);
	/* A rule ends that. */
	(void)capped(fc, "observed", 10);
	assert_false(stats(f).flags & FC_STATS_UNRULED);
	assert_int_equal(let_in(f, 100), 10);
}

static void a_switch_makes_no_rule(void **state)
{
	struct fc_iface *f = fc_iface_get(fc, "observed");

	(void)state;
	assert_int_equal(fc_iface_set_off(f, 1), 0);
	assert_true(stats(f).flags & FC_STATS_UNRULED);
	assert_int_equal(fc_iface_set_off(f, 0), 0);
	assert_int_equal(fc_iface_set_dry_run(f, 1), 0);
	assert_int_equal(fc_iface_set_dry_run(f, 0), 0);
	assert_true(stats(f).flags & FC_STATS_UNRULED);
	assert_int_equal(fc_iface_set_cap(f, 3), 0);
	assert_false(stats(f).flags & FC_STATS_UNRULED);
}

static void the_default_cap_is_for_interfaces_without_a_rule(void **state)
{
	struct fc_opts o = defaults();
	struct fc *other;
	struct fc_iface *f;

	(void)state;
	o.default_cap = 3;
	other = context(&o);
	f = fc_iface_get(other, "unruled");
	assert_true(stats(f).flags & FC_STATS_UNRULED);
	assert_int_equal(stats(f).cap, 3);
	assert_int_equal(let_in(f, 10), 3);
	assert_int_equal(let_in(capped(other, "ruled", 5), 10), 5);
	assert_int_equal(fc_iface_set(other, "no.number", NULL, &f), 0);
	assert_int_equal(stats(f).cap, 3);
	assert_int_equal(let_in(capped(other, "unlimited", FC_UNLIMITED), 100), 100);
	fc_destroy(other);
}

/* The configuration of an interface that a guard has met before anybody configured it. */
static void a_rule_that_comes_late_is_as_good(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 20, .wait_max = 4, .writeoff = 5);
	FC_OPTS(fc_iface_opts, got, .cap = 0);
	struct fc_iface *f = fc_iface_get(fc, "late");

	(void)state;
	assert_int_equal(fc_iface_set(fc, "late", &o, NULL), 0);
	assert_int_equal(fc_iface_get_opts(f, &got), 0);
	assert_int_equal(got.wait_max, 4);
	assert_int_equal(got.writeoff, 5);
}

/* ---- time -------------------------------------------------------------------------------------- */

/* alibaba/sentinel-golang #409, #327; bucket4j #51: a clock that is set back, or far on. */
static void a_clock_that_jumps_neither_lets_more_in_nor_locks_out(void **state)
{
	static const uint64_t times[] = {
		NOW, NOW - FC_S(900), NOW + FC_S(3600), NOW + FC_S(3600) - FC_MS(1), NOW + FC_S(3600),
		FC_S(315360000ull), 1, FC_S(9460800000ull), 0, UINT64_MAX - 1, NOW,
	};

	(void)state;
	for (size_t i = 0; i < COUNT(times); i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		assert_int_equal(fc_clock_set(fc, times[i]), 0);
		assert_int_equal(let_in(login, 6), 4);
		assert_int_equal(fc_enter(&e, login, NULL), 0);
		assert_int_equal(fc_clock_set(fc, times[(i + 1) % COUNT(times)]), 0);
		(void)fc_tick(fc, 0);
		assert_int_equal(fc_exit_status(&e), 1);
		assert_int_equal(stats(login).in_flight, 0);
	}
}

static void only_a_virtual_clock_can_be_set(void **state)
{
	struct fc *real = NULL;
	uint64_t now;

	(void)state;
	assert_int_equal(fc_create(&real, NULL), 0);
	assert_int_equal(fc_clock_set(real, 1), -EINVAL);
	assert_int_equal(fc_clock_advance(real, 1), -EINVAL);
	now = fc_now_ns(real);
	assert_true(now != 0 && fc_now_ns(real) >= now);
	fc_destroy(real);
	assert_int_equal(fc_clock_set(NULL, 1), -EINVAL);
	assert_int_equal(fc_now_ns(fc), NOW);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nothing_is_no_entry_and_no_handle),
		T(garbage_is_no_handle),
		T(a_dead_handle_is_an_error),
		T(a_refused_entry_needs_no_exit),
		T(a_faulty_call_leaves_a_used_entry_inactive),
		T(stale_copies_of_entries_release_nothing),
		T(the_last_mark_counts),
		T(a_context_of_another_header_is_read_right),
		T(fields_of_a_context_have_bounds),
		T(a_call_takes_as_many_places_as_it_is_heavy),
		T(a_heavy_call_takes_all_its_places_or_none),
		T(the_greatest_weight_can_be_set),
		T(a_heavy_call_without_a_cap_is_never_refused),
		T(a_cap_lets_exactly_so_many_in),
		T(the_greatest_cap_lets_exactly_so_many_in),
		T(a_cap_of_zero_refuses_all),
		T(a_lower_cap_lets_nobody_in_until_the_count_is_under_it),
		T(an_interface_without_a_rule_is_observed_and_never_refused),
		T(a_switch_makes_no_rule),
		T(the_default_cap_is_for_interfaces_without_a_rule),
		T(a_rule_that_comes_late_is_as_good),
		T(a_clock_that_jumps_neither_lets_more_in_nor_locks_out),
		T(only_a_virtual_clock_can_be_set),
	};

	return cmocka_run_group_tests_name("entry", tests, NULL, NULL);
}
