/* SPDX-License-Identifier: BSD-2-Clause */
/* Availability over time: cells that turn, gaps, clocks that jump, counters that stand or fall back. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "history.h"
#include "support/guarded.h"
#include "support/threads.h"

#define CELL FC_S(30)

static struct fc fc;
static struct fci_head head;
static struct fci_block block;
static struct fc_iface iface;
static uint64_t good, all, now;

static int setup(void **state)
{
	(void)state;
	memset(&fc, 0, sizeof(fc));
	memset(&block, 0, sizeof(block));
	memset(&iface, 0, sizeof(iface));
	fc.magic = FCI_FC_MAGIC;
	fc.clock.kind = FC_CLOCK_VIRTUAL;
	fc.head = &head;
	iface.fc = &fc;
	iface.block = &block;
	good = all = 0;
	now = FC_S(86400) * 20000 + FC_S(7);
	return 0;
}

/* g good ones of n calls, and a tick at the time it is. */
static void calls(uint64_t g, uint64_t n)
{
	good += g;
	all += n;
	fc_clock_set(&fc, now);
	fci_history_tick(&iface, good, all, now);
}

static void pass(uint64_t ns)
{
	now += ns;
	fc_clock_set(&fc, now);
}

static uint32_t ppm(int which)
{
	return fci_history_ppm(&iface, which);
}

static uint64_t sum(const fci_a64 *cells, int from, int n)
{
	uint64_t s = 0;

	for (int i = from; i < from + n; i++)
		s += atomic_load_explicit(&cells[i], FCI_RLX);
	return s;
}

static void without_calls_everything_is_available(void **state)
{
	(void)state;
	for (int i = 0; i < FCI_HISTORY_WINDOWS; i++)
		assert_int_equal(ppm(i), 1000000);
	calls(0, 0);
	assert_int_equal(ppm(FCI_HISTORY_5MIN), 1000000);
	assert_int_equal(ppm(-1), 1000000);
	assert_int_equal(ppm(3), 1000000);
}

static void is_the_share_of_good_calls(void **state)
{
	(void)state;
	calls(90, 100);
	for (int i = 0; i < FCI_HISTORY_WINDOWS; i++)
		assert_int_equal(ppm(i), 900000);
	pass(CELL);
	calls(0, 100);
	for (int i = 0; i < FCI_HISTORY_WINDOWS; i++)
		assert_int_equal(ppm(i), 450000);
}

static void bad_minutes_leave_the_short_window_first(void **state)
{
	(void)state;
	calls(0, 1000);
	for (int i = 0; i < 9; i++) {
		pass(CELL);
		calls(100, 100);
		assert_in_range(ppm(FCI_HISTORY_5MIN), 0, 500000);
	}
	pass(CELL);
	calls(100, 100);
	assert_int_equal(ppm(FCI_HISTORY_5MIN), 1000000);
	assert_int_equal(ppm(FCI_HISTORY_1H), 500000);
	for (int i = 0; i < 12; i++) {
		pass(FC_S(300));
		calls(100, 100);
	}
	assert_int_equal(ppm(FCI_HISTORY_1H), 1000000);
	assert_in_range(ppm(FCI_HISTORY_30D), 600000, 999999);
	for (int i = 0; i < 30; i++) {
		pass(FC_S(86400));
		calls(100, 100);
	}
	assert_int_equal(ppm(FCI_HISTORY_30D), 1000000);
}

static void windows_forget_without_a_tick(void **state)
{
	(void)state;
	calls(0, 10);
	pass(FC_S(292)); /* 7 s of its cell were over */
	assert_int_equal(ppm(FCI_HISTORY_5MIN), 0);
	pass(FC_S(1));
	assert_int_equal(ppm(FCI_HISTORY_5MIN), 1000000);
	assert_int_equal(ppm(FCI_HISTORY_1H), 0);
	pass(FC_S(3600));
	assert_int_equal(ppm(FCI_HISTORY_1H), 1000000);
	assert_int_equal(ppm(FCI_HISTORY_30D), 0);
	pass(FC_S(86400) * 30);
	assert_int_equal(ppm(FCI_HISTORY_30D), 1000000);
}

static void calls_after_a_gap_are_of_now(void **state)
{
	const uint64_t gaps[] = { FC_S(86400) * 31, FC_S(86400) * 365 * 40, CELL << 24, (CELL << 24) + CELL };

	(void)state;
	for (unsigned k = 0; k < sizeof(gaps) / sizeof(*gaps); k++) { /* cells' numbers wrap in between */
		setup(NULL);
		calls(0, 1000);
		pass(gaps[k]);
		calls(50, 100);
		for (int i = 0; i < FCI_HISTORY_WINDOWS; i++)
			assert_int_equal(ppm(i), 500000);
		assert_int_equal(sum(block.history.all, 0, FCI_HISTORY_CELLS), 3 * 100);
	}
}

static void a_gap_of_a_whole_turn_of_the_ring_leaves_nothing(void **state)
{
	(void)state;
	for (uint64_t cells = 9; cells < 25; cells++) {
		setup(NULL);
		calls(0, 1000);
		pass(CELL * cells);
		calls(1, 1);
		assert_int_equal(ppm(FCI_HISTORY_5MIN), cells < 10 ? 999 : 1000000);
	}
}

static void a_clock_that_goes_back_loses_nothing_and_holds_nothing_up(void **state)
{
	(void)state;
	calls(100, 100);
	now -= FC_S(86400) * 3;
	calls(0, 100);
	assert_int_equal(ppm(FCI_HISTORY_5MIN), 500000);
	/* From here time passes as usual, although it is the past. */
	for (int i = 0; i < 10; i++) {
		pass(CELL);
		calls(100, 100);
	}
	assert_int_equal(ppm(FCI_HISTORY_5MIN), 1000000);
	assert_int_equal(sum(block.history.all, 22, 30), 1200);
}

static void counters_that_stand_still_change_nothing(void **state)
{
	(void)state;
	calls(1, 2);
	for (int i = 0; i < 5; i++) {
		pass(FC_MS(250));
		calls(0, 0);
	}
	for (int i = 0; i < FCI_HISTORY_WINDOWS; i++)
		assert_int_equal(ppm(i), 500000);
	assert_int_equal(sum(block.history.all, 0, FCI_HISTORY_CELLS), 3 * 2);
}

static void a_counter_that_wobbles_is_not_counted_twice(void **state)
{
	(void)state;
	calls(1000, 1000);
	good -= 3;
	all -= 2;
	calls(0, 0);
	good += 3;
	all += 2;
	calls(10, 10);
	assert_int_equal(sum(block.history.all, 0, 10), 1010);
	assert_int_equal(sum(block.history.good, 0, 10), 1010);
}

static void counters_that_were_set_back_count_from_there(void **state)
{
	(void)state;
	calls(1000, 1000);
	good = all = 5;
	calls(0, 0);
	calls(10, 20);
	assert_int_equal(sum(block.history.all, 0, 10), 1020);
	assert_int_equal(sum(block.history.good, 0, 10), 1010);
}

/* Good ones are counted at the end of calls, all at their beginning: a tick may be in between. */
static void more_good_calls_than_calls_in_a_cell_are_kept(void **state)
{
	(void)state;
	calls(0, 100);
	pass(CELL);
	calls(100, 0);
	assert_int_equal(ppm(FCI_HISTORY_5MIN), 1000000);
	assert_int_equal(sum(block.history.good, 0, 10), 100);
}

static void every_call_is_in_one_cell_of_each_ring(void **state)
{
	uint64_t since_day = now;
	struct rng rng;

	(void)state;
	rng_init(&rng, 1);
	for (int i = 0; i < 20000 && now - since_day < FC_S(86400) * 28; i++) {
		uint64_t n = rng_below(&rng, 1000);

		pass(rng_chance(&rng, 50) ? FC_S(rng_below(&rng, 40000)) : FC_MS(rng_below(&rng, 60000)));
		calls(rng_below(&rng, (uint32_t)n + 1), n);
		assert_int_equal(sum(block.history.all, 22, 30), all);
		assert_int_equal(sum(block.history.good, 22, 30), good);
		assert_true(sum(block.history.all, 0, 10) <= sum(block.history.all, 10, 12));
		assert_true(sum(block.history.all, 10, 12) <= all);
	}
}

static void great_numbers_do_not_overflow(void **state)
{
	(void)state;
	calls(UINT64_MAX / 4, UINT64_MAX / 2);
	assert_in_range(ppm(FCI_HISTORY_30D), 499999, 500000);
}

/* ---- readers beside the writer ---- */

struct race {
	atomic_int stop;
	atomic_uint wrong, reads;
};

/* Half of the calls fail, always, so that every reading is a half, or nothing at all. */
static void write_or_read(void *arg, unsigned index, struct rng *rng)
{
	struct race *r = arg;

	if (index == 0) {
		uint64_t end = stress_end_ns();

		while (test_now_ns() < end) {
			pass(rng_below(rng, 4) * (CELL / 2));
			calls(500, 1000);
		}
		r->stop = 1;
		return;
	}
	while (!r->stop) {
		uint32_t before = atomic_load(&block.history.seq), p = ppm((int)rng_below(rng, 3));

		/* Beside a writer that is stopped half-way a reading may be of two moments. */
		if ((before & 1) || before != atomic_load(&block.history.seq))
			continue;
		r->reads++;
		r->wrong += p != 500000 && p != 1000000;
	}
}

static void readers_see_cells_whole(void **state)
{
	struct race r = { 0 };

	(void)state;
	calls(500, 1000);
	run_threads(3, write_or_read, &r);
	assert_true(r.reads > 0);
	assert_int_equal(r.wrong, 0);
}

/* Ended by a longjmp: the call's thread enters from above it, and it is purged. */
__attribute__((noinline)) static void enter_and_jump(struct fc_iface *f, jmp_buf *out)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)!fc_enter(&e, f, NULL);
	__asm__ volatile("" ::"r"(&e) : "memory");
	longjmp(*out, 1);
}

/* One in two calls is lost, one in four has failed: a quarter is good. */
static void a_call_that_was_abandoned_was_one_that_did_not_go_well(void **state)
{
	static struct guarded g;
	struct fc_stats s;

	(void)state;
	guarded_open(&g, &(struct fc_iface_opts){ .cap = 50 });
	fc_tick(g.fc, FC_S(1));
	for (int i = 0; i < 40; i++) {
		struct fc_entry e = FC_ENTRY_INIT;
		jmp_buf out;

		if (!setjmp(out))
			enter_and_jump(g.f, &out);
		assert_int_equal(fc_enter(&e, g.f, NULL), 0);
		if (i % 2)
			fc_entry_mark(&e, FC_OUTCOME_ERROR);
		fc_exit(&e);
		guarded_pass(&g, FC_MS(300));
		fc_tick(g.fc, FC_S(1));
	}
	s = guarded_stats(&g);
	assert_true(s.admitted == 80 && s.abandoned == 40 && s.ok == 20 && s.error == 20);
	assert_int_equal(s.availability_5min_ppm, 250000);
	assert_int_equal(guarded_close(&g), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(without_calls_everything_is_available, setup),
		cmocka_unit_test_setup(is_the_share_of_good_calls, setup),
		cmocka_unit_test_setup(bad_minutes_leave_the_short_window_first, setup),
		cmocka_unit_test_setup(windows_forget_without_a_tick, setup),
		cmocka_unit_test_setup(calls_after_a_gap_are_of_now, setup),
		cmocka_unit_test_setup(a_gap_of_a_whole_turn_of_the_ring_leaves_nothing, setup),
		cmocka_unit_test_setup(a_clock_that_goes_back_loses_nothing_and_holds_nothing_up, setup),
		cmocka_unit_test_setup(counters_that_stand_still_change_nothing, setup),
		cmocka_unit_test_setup(a_counter_that_wobbles_is_not_counted_twice, setup),
		cmocka_unit_test_setup(counters_that_were_set_back_count_from_there, setup),
		cmocka_unit_test_setup(more_good_calls_than_calls_in_a_cell_are_kept, setup),
		cmocka_unit_test_setup(every_call_is_in_one_cell_of_each_ring, setup),
		cmocka_unit_test_setup(great_numbers_do_not_overflow, setup),
		cmocka_unit_test_setup(readers_see_cells_whole, setup),
		cmocka_unit_test(a_call_that_was_abandoned_was_one_that_did_not_go_well),
	};

	return cmocka_run_group_tests_name("history", tests, NULL, NULL);
}
