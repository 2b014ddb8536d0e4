/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters out: the latency histogram and its quantiles, peak, headroom, availability. Virtual clock. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "percpu.h"
#include "support/guarded.h"
#include "support/threads.h"

#define LAST (FC_HIST_BUCKETS - 1)

static struct guarded g;

static int teardown(void **state)
{
	(void)state;
	return g.fc ? guarded_close(&g) : 0;
}

static void open_with(uint32_t cap, uint32_t latency)
{
	guarded_open(&g, &(struct fc_iface_opts){ .cap = cap, .expand = 1, .latency = latency });
}

/* A call that takes so long. */
static int call_for(uint64_t ns, int outcome)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter(&e, g.f, NULL);

	guarded_pass(&g, ns);
	if (rc == 0)
		fc_entry_mark(&e, outcome);
	fc_exit(&e);
	return rc;
}

/* ---- buckets ----------------------------------------------------------------------------------- */

static void buckets_have_no_gaps_and_each_bound_begins_the_next(void **state)
{
	(void)state;
	assert_int_equal(fc_hist_bucket(0), 0);
	assert_int_equal(fc_hist_bucket(255), 0);
	assert_int_equal(fc_hist_bucket(256), 0);
	for (uint32_t b = 0; b < LAST; b++) {
		uint64_t bound = fc_hist_bound_ns(b);

		assert_int_equal(fc_hist_bucket(bound - 1), b);
		assert_int_equal(fc_hist_bucket(bound), b + 1);
	}
	assert_int_equal(fc_hist_bucket(UINT64_MAX), LAST);
}

static void there_are_four_to_a_doubling_from_256_ns_to_17_s(void **state)
{
	(void)state;
	assert_true(fc_hist_bound_ns(3) == 512);
	for (uint32_t b = 0; b + 4 <= LAST; b++)
		assert_true(fc_hist_bound_ns(b + 4) == 2 * fc_hist_bound_ns(b));
	assert_in_range(fc_hist_bound_ns(LAST), FC_S(17), FC_S(18));
	assert_true(fc_hist_bound_ns(LAST + 1) == fc_hist_bound_ns(LAST));
	assert_true(fc_hist_bound_ns(UINT32_MAX) == fc_hist_bound_ns(LAST));
}

static void a_bound_is_at_most_a_quarter_too_high(void **state)
{
	(void)state;
	for (uint64_t ns = 256; ns < FC_S(17); ns += 1 + ns / 97) {
		uint64_t bound = fc_hist_bound_ns(fc_hist_bucket(ns));

		assert_true(bound > ns && bound - ns <= ns / 4 + 1);
	}
}

/* ---- quantiles --------------------------------------------------------------------------------- */

static void of_nothing_each_quantile_is_zero(void **state)
{
	static struct fc_hist none, h;

	(void)state;
	h = none;
	h.count[5] = 3;
	assert_int_equal(fc_hist_quantile_ns(NULL, NULL, 500), 0);
	assert_int_equal(fc_hist_quantile_ns(&none, NULL, 500), 0);
	assert_int_equal(fc_hist_quantile_ns(&h, &h, 500), 0);
}

static void a_quantile_is_the_bound_of_the_bucket_that_reaches_it(void **state)
{
	static struct fc_hist h;

	(void)state;
	memset(&h, 0, sizeof(h));
	h.count[10] = 900;
	h.count[20] = 90;
	h.count[30] = 10;
	assert_true(fc_hist_quantile_ns(&h, NULL, 0) == fc_hist_bound_ns(10));
	assert_true(fc_hist_quantile_ns(&h, NULL, 1) == fc_hist_bound_ns(10));
	assert_true(fc_hist_quantile_ns(&h, NULL, 900) == fc_hist_bound_ns(10));
	assert_true(fc_hist_quantile_ns(&h, NULL, 901) == fc_hist_bound_ns(20));
	assert_true(fc_hist_quantile_ns(&h, NULL, 990) == fc_hist_bound_ns(20));
	assert_true(fc_hist_quantile_ns(&h, NULL, 991) == fc_hist_bound_ns(30));
	assert_true(fc_hist_quantile_ns(&h, NULL, 1000) == fc_hist_bound_ns(30));
	assert_true(fc_hist_quantile_ns(&h, NULL, 5000) == fc_hist_bound_ns(30));
}

static void one_sample_is_every_quantile(void **state)
{
	static struct fc_hist h;

	(void)state;
	memset(&h, 0, sizeof(h));
	h.count[LAST] = 1;
	for (uint32_t q = 0; q <= 1000; q++)
		assert_true(fc_hist_quantile_ns(&h, NULL, q) == fc_hist_bound_ns(LAST));
}

static void large_counts_do_not_overflow(void **state)
{
	static struct fc_hist h;

	(void)state;
	memset(&h, 0, sizeof(h));
	h.count[1] = UINT64_MAX / 2;
	h.count[2] = UINT64_MAX / 2;
	assert_true(fc_hist_quantile_ns(&h, NULL, 499) == fc_hist_bound_ns(1));
	assert_true(fc_hist_quantile_ns(&h, NULL, 501) == fc_hist_bound_ns(2));
	assert_true(fc_hist_quantile_ns(&h, NULL, 1000) == fc_hist_bound_ns(2));
}

/* ---- histograms of interfaces ------------------------------------------------------------------ */

static uint64_t samples(const struct fc_hist *h)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < FC_HIST_BUCKETS; i++)
		n += h->count[i];
	return n;
}

static void each_call_is_counted_under_its_latency(void **state)
{
	struct fc_hist h;

	(void)state;
	open_with(4, FC_LATENCY_EXACT);
	for (int i = 0; i < 10; i++)
		call_for(FC_MS(1), i % 2 ? FC_OUTCOME_OK : FC_OUTCOME_ERROR);
	for (int i = 0; i < 5; i++)
		call_for(FC_MS(20), FC_OUTCOME_OK);
	call_for(0, FC_OUTCOME_OK);
	call_for(FC_S(1000), FC_OUTCOME_OK);
	assert_int_equal(fc_iface_hist(g.f, &h), 0);
	assert_int_equal(h.count[0], 1);
	assert_int_equal(h.count[fc_hist_bucket(FC_MS(1))], 10);
	assert_int_equal(h.count[fc_hist_bucket(FC_MS(20))], 5);
	assert_int_equal(h.count[LAST], 1);
	assert_int_equal(samples(&h), 17);
	assert_in_range(fc_hist_quantile_ns(&h, NULL, 500), FC_MS(1), FC_MS(5) / 4);
	assert_in_range(fc_hist_quantile_ns(&h, NULL, 900), FC_MS(20), FC_MS(25));
}

static void a_quantile_since_an_earlier_histogram_knows_what_came_after(void **state)
{
	struct fc_hist before, after;

	(void)state;
	open_with(4, FC_LATENCY_EXACT);
	for (int i = 0; i < 100; i++)
		call_for(FC_MS(1), FC_OUTCOME_OK);
	assert_int_equal(fc_iface_hist(g.f, &before), 0);
	for (int i = 0; i < 10; i++)
		call_for(FC_MS(50), FC_OUTCOME_OK);
	assert_int_equal(fc_iface_hist(g.f, &after), 0);
	assert_in_range(fc_hist_quantile_ns(&after, NULL, 500), FC_MS(1), FC_MS(5) / 4);
	assert_in_range(fc_hist_quantile_ns(&after, &before, 1), FC_MS(50), FC_MS(125) / 2);
}

static void refused_and_unmeasured_calls_leave_no_latency(void **state)
{
	struct fc_entry held = FC_ENTRY_INIT;
	struct fc_hist h;

	(void)state;
	open_with(1, FC_LATENCY_EXACT);
	assert_int_equal(fc_enter(&held, g.f, NULL), 0);
	assert_int_equal(call_for(FC_MS(1), 0), FC_REFUSED_CAP);
	assert_int_equal(fc_iface_hist(g.f, &h), 0);
	assert_int_equal(samples(&h), 0);
	fc_exit(&held);
	assert_int_equal(call_for(FC_MS(1), FC_OUTCOME_IGNORED), 0);
	assert_int_equal(fc_iface_hist(g.f, &h), 0);
	assert_int_equal(samples(&h), 1); /* the one that was held */
	assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 1, .expand = 1, .latency = FC_LATENCY_OFF }), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(call_for(FC_MS(1), FC_OUTCOME_OK), 0);
	assert_int_equal(fc_iface_hist(g.f, &h), 0);
	assert_int_equal(samples(&h), 1);
}

static uint64_t latency_seen;

static void see_latency(struct fc_call *c)
{
	latency_seen = c->latency_ns;
}

static const struct fc_interceptor sees = {
	.size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER, .name = "sees", .post = see_latency,
};

/* Whichever way a call leaves: plain, heavy, with interceptors, heavy with them. */
static void a_clock_that_goes_back_makes_no_call_slow(void **state)
{
	static const struct fc_rule rule = { .interceptor = &sees };
	struct fc_hist h;

	(void)state;
	for (uint32_t way = 0; way < 4; way++) {
		FC_OPTS(fc_ctx, ctx, .weight = 1 + (way & 1));
		struct fc_entry e = FC_ENTRY_INIT;

		open_with(4, FC_LATENCY_EXACT);
		assert_int_equal(fc_iface_set_chain(g.f, &rule, way >> 1), 0);
		latency_seen = 0;
		assert_int_equal(fc_enter(&e, g.f, &ctx), 0);
		fc_clock_set(g.fc, g.now - FC_S(500));
		fc_exit(&e);
		assert_int_equal(fc_iface_hist(g.f, &h), 0);
		assert_int_equal(samples(&h), 1);
		assert_int_equal(h.count[0], 1);
		assert_int_equal(latency_seen, 0);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void few_calls_are_all_sampled_many_about_a_thousand_a_second(void **state)
{
	struct fc_hist few, h;

	(void)state;
	open_with(4, FC_LATENCY_SAMPLED);
	for (int i = 0; i < 200; i++)
		call_for(FC_MS(5), FC_OUTCOME_OK);
	assert_int_equal(fc_iface_hist(g.f, &few), 0);
	assert_int_equal(samples(&few), 200);
	/* Get used to it for a second, then count for two. */
	for (int i = 0; i < 200000; i++)
		call_for(FC_US(5), FC_OUTCOME_OK);
	assert_int_equal(fc_iface_hist(g.f, &few), 0);
	for (int i = 0; i < 400000; i++)
		call_for(FC_US(5), FC_OUTCOME_OK);
	assert_int_equal(fc_iface_hist(g.f, &h), 0);
	assert_in_range(samples(&h) - samples(&few), 800, 4000);
}

static void a_histogram_of_no_interface_is_refused(void **state)
{
	struct fc_hist h;

	(void)state;
	open_with(1, 0);
	assert_int_equal(fc_iface_hist(NULL, &h), -EINVAL);
	assert_int_equal(fc_iface_hist(g.f, NULL), -EINVAL);
	assert_int_equal(fc_iface_hist(fc_iface_get(g.fc, ""), &h), -EINVAL);
}

/* ---- peak and headroom ------------------------------------------------------------------------- */

static void headroom_is_what_the_limit_leaves(void **state)
{
	struct fc_entry e[8];

	(void)state;
	open_with(8, 0);
	for (unsigned n = 0; n <= 8; n++) {
		assert_int_equal(guarded_stats(&g).headroom, 8 - n);
		assert_int_equal(guarded_stats(&g).in_flight, n);
		if (n < 8)
			assert_int_equal(guarded_fill(&g, &e[n], 1), 1);
	}
	/* Not below zero. */
	assert_int_equal(fc_iface_set_cap(g.f, 3), 0);
	assert_int_equal(guarded_stats(&g).limit, 3);
	assert_int_equal(guarded_stats(&g).headroom, 0);
	guarded_empty(e, 6);
	assert_int_equal(guarded_stats(&g).headroom, 1);
	guarded_empty(&e[6], 2);
	/* Without a cap there is no end to it, but for the number. */
	assert_int_equal(fc_iface_set_cap(g.f, FC_UNLIMITED), 0);
	assert_int_equal(guarded_fill(&g, e, 5), 5);
	assert_true(guarded_stats(&g).limit == FC_UNLIMITED && guarded_stats(&g).headroom == FC_UNLIMITED - 5);
	guarded_empty(e, 5);
}

static void the_peak_is_what_was_inside_at_ticks_or_now(void **state)
{
	struct fc_entry e[8];

	(void)state;
	open_with(8, 0);
	assert_int_equal(guarded_stats(&g).peak, 0);
	assert_int_equal(guarded_fill(&g, e, 5), 5);
	assert_int_equal(guarded_stats(&g).peak, 5);
	guarded_pass(&g, FC_S(1));
	fc_tick(g.fc, FC_S(1));
	guarded_empty(e, 5);
	assert_int_equal(guarded_stats(&g).peak, 5);
	/* Between ticks, and nobody was refused: it may be missed, and it never falls. */
	assert_int_equal(guarded_fill(&g, e, 7), 7);
	guarded_empty(e, 7);
	assert_in_range(guarded_stats(&g).peak, 5, 7);
	guarded_pass(&g, FC_S(1));
	fc_tick(g.fc, FC_S(1));
	assert_in_range(guarded_stats(&g).peak, 5, 7);
}

static void once_refused_the_peak_is_the_limit(void **state)
{
	struct fc_entry e[9];

	(void)state;
	open_with(8, 0);
	assert_int_equal(guarded_fill(&g, e, 8), 8);
	guarded_pass(&g, FC_S(1));
	assert_int_equal(fc_enter(&(struct fc_entry)FC_ENTRY_INIT, g.f, NULL), FC_REFUSED_CAP);
	guarded_empty(e, 8);
	assert_int_equal(guarded_stats(&g).in_flight, 0);
	assert_int_equal(guarded_stats(&g).peak, 8);
}

/* ---- availability ------------------------------------------------------------------------------ */

static void assert_available(uint32_t min5, uint32_t h1, uint32_t d30)
{
	struct fc_stats s = guarded_stats(&g);

	assert_in_range(s.availability_5min_ppm, min5 - (min5 > 0), min5 + 1);
	assert_in_range(s.availability_1h_ppm, h1 - (h1 > 0), h1 + 1);
	assert_in_range(s.availability_30d_ppm, d30 - (d30 > 0), d30 + 1);
}

static void pass_and_tick(uint64_t ns)
{
	guarded_pass(&g, ns);
	fc_tick(g.fc, FC_S(1));
}

/* 100 calls, so many of them with this outcome. */
static void hundred(unsigned n, int outcome)
{
	for (unsigned i = 0; i < 100; i++)
		call_for(0, i < n ? outcome : FC_OUTCOME_OK);
	pass_and_tick(FC_S(1));
}

static void availability_is_of_the_last_5_minutes_hour_and_30_days(void **state)
{
	(void)state;
	open_with(4, 0);
	pass_and_tick(FC_S(1));
	assert_available(1000000, 1000000, 1000000);
	hundred(10, FC_OUTCOME_ERROR);
	assert_available(900000, 900000, 900000);
	pass_and_tick(FC_S(360));
	assert_available(1000000, 900000, 900000);
	hundred(0, 0);
	assert_available(1000000, 950000, 950000);
	pass_and_tick(FC_S(3700));
	assert_available(1000000, 1000000, 950000);
	hundred(50, FC_OUTCOME_TIMEOUT);
	assert_available(500000, 500000, 800000);
	pass_and_tick(FC_S(86400) * 31);
	assert_available(1000000, 1000000, 1000000);
}

static void refused_calls_were_not_available_and_ignored_ones_were(void **state)
{
	struct fc_entry e[4];

	(void)state;
	open_with(4, 0);
	pass_and_tick(FC_S(1));
	hundred(30, FC_OUTCOME_IGNORED);
	assert_available(1000000, 1000000, 1000000);
	assert_int_equal(guarded_fill(&g, e, 4), 4);
	hundred(0, 0); /* all refused */
	guarded_empty(e, 4);
	pass_and_tick(FC_S(1));
	assert_available(509803, 509803, 509803); /* 104 of 204 */
}

/* ---- ways to add ------------------------------------------------------------------------------- */

enum { WITH_RSEQ, WITHOUT_RSEQ, THREADS_WITHOUT_IT, WAYS };
#define EACH 20000u

/* As in a thread that was made by something else than this libc. */
static void unregister_rseq(void)
{
#if FCI_RSEQ_ADD
	syscall(SYS_rseq, fci_rseq_area(), __rseq_size < 32 ? 32 : __rseq_size, RSEQ_FLAG_UNREGISTER, RSEQ_SIG);
#endif
}

static void refused_and_failed(void *arg, unsigned index, struct rng *rng)
{
	int way = *(int *)arg;

	(void)rng;
	if (way == THREADS_WITHOUT_IT && index % 2)
		unregister_rseq();
	for (unsigned i = 0; i < EACH; i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		if (fc_enter(&e, g.f, NULL) == 0)
			fc_entry_mark(&e, FC_OUTCOME_ERROR);
		fc_exit(&e);
	}
}

/* Threads that are moved between CPUs all the time lose none, with restartable sequences and without. */
static void no_count_is_lost_whichever_way_it_is_added(void **state)
{
	unsigned n = 4 * test_cpus();

	(void)state;
	for (int way = 0; way < WAYS; way++) {
		struct fc_stats s;

		open_with(1, 0);
		if (way == WITHOUT_RSEQ)
			g.f->counters.rseq = 0;
		run_threads(n, refused_and_failed, &way);
		s = guarded_stats(&g);
		assert_int_equal(s.error + s.refused[FC_REFUSED_CAP], (uint64_t)n * EACH);
		assert_int_equal(s.error, s.admitted);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void the_flag_takes_restartable_sequences_away(void **state)
{
	FC_OPTS(fc_opts, o, .flags = FC_NO_RSEQ);
	struct fc *with, *without;

	(void)state;
	assert_int_equal(fc_create(&with, NULL), 0);
	assert_int_equal(fc_create(&without, &o), 0);
	assert_int_equal(with->percpu.rseq, fci_rseq_offset());
	assert_int_equal(without->percpu.rseq, 0);
	fc_destroy(with);
	fc_destroy(without);
}

int main(void)
{
#define T(f_) cmocka_unit_test_teardown(f_, teardown)
	static const struct CMUnitTest tests[] = {
		T(buckets_have_no_gaps_and_each_bound_begins_the_next),
		T(there_are_four_to_a_doubling_from_256_ns_to_17_s),
		T(a_bound_is_at_most_a_quarter_too_high),
		T(of_nothing_each_quantile_is_zero),
		T(a_quantile_is_the_bound_of_the_bucket_that_reaches_it),
		T(one_sample_is_every_quantile),
		T(large_counts_do_not_overflow),
		T(each_call_is_counted_under_its_latency),
		T(a_quantile_since_an_earlier_histogram_knows_what_came_after),
		T(refused_and_unmeasured_calls_leave_no_latency),
		T(a_clock_that_goes_back_makes_no_call_slow),
		T(few_calls_are_all_sampled_many_about_a_thousand_a_second),
		T(a_histogram_of_no_interface_is_refused),
		T(headroom_is_what_the_limit_leaves),
		T(the_peak_is_what_was_inside_at_ticks_or_now),
		T(once_refused_the_peak_is_the_limit),
		T(availability_is_of_the_last_5_minutes_hour_and_30_days),
		T(refused_calls_were_not_available_and_ignored_ones_were),
		T(no_count_is_lost_whichever_way_it_is_added),
		T(the_flag_takes_restartable_sequences_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
