/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that take several places: all or none, and back however they end. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>

#include "lib/leave.h"
#include "lib/weight.h"
#include "support/actors.h"
#include "support/guarded.h"

static struct guarded g;
static struct fc_entry e[64];

static int teardown(void **state)
{
	(void)state;
	actors_fini();
	return g.fc ? guarded_close(&g) : 0;
}

static void open_cap(uint32_t cap)
{
	memset(e, 0, sizeof(e));
	guarded_open(&g, &(struct fc_iface_opts){ .cap = cap, .expand = 1 });
}

static int enter_heavy(struct fc_entry *entry, uint32_t weight)
{
	FC_OPTS(fc_ctx, ctx, .weight = weight);

	memset(entry, 0, sizeof(*entry));
	return fc_enter(entry, g.f, &ctx);
}

static void assert_whole(uint32_t cap)
{
	assert_int_equal(fc_inside(g.f, NULL), 0);
	assert_int_equal(guarded_fill(&g, e, cap + 1), cap);
	guarded_empty(e, cap);
}

/* sentinel-golang 556: the number asked for was ignored. */
static void a_call_takes_as_many_places_as_it_weighs(void **state)
{
	static const uint32_t caps[] = { 1, 2, 5, 8, 9, 40 };

	(void)state;
	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
		uint32_t cap = caps[i];

		open_cap(cap);
		for (uint32_t weight = 1; weight <= cap; weight++) {
			unsigned n;

			assert_int_equal(enter_heavy(&e[0], weight), 0);
			assert_int_equal(fc_inside(g.f, NULL), weight);
			n = guarded_fill(&g, e + 1, cap + 1);
			assert_int_equal(n, cap - weight);
			assert_int_equal(fc_exit_status(&e[0]), 1);
			assert_int_equal(fc_inside(g.f, NULL), n);
			guarded_empty(e + 1, n);
		}
		assert_whole(cap);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void a_call_heavier_than_its_limit_is_told_so(void **state)
{
	static const uint32_t heavy[] = { 11, 12, 100, FC_WEIGHT_MAX, FC_WEIGHT_MAX + 1, INT32_MAX, UINT32_MAX };
	FC_OPTS(fc_decision, d, .status = 0);

	(void)state;
	open_cap(10);
	for (size_t i = 0; i < sizeof(heavy) / sizeof(heavy[0]); i++) {
		assert_int_equal(enter_heavy(&e[0], heavy[i]), FC_REFUSED_WEIGHT);
		assert_int_equal(fc_entry_decision(&e[0], &d), 0);
		assert_int_equal(d.observed, heavy[i]);
		assert_int_equal(d.limit, heavy[i] > FC_WEIGHT_MAX ? FC_WEIGHT_MAX : 10);
		assert_int_equal(fc_inside(g.f, NULL), 0);
	}
	assert_int_equal(guarded_stats(&g).refused[FC_REFUSED_WEIGHT], sizeof(heavy) / sizeof(heavy[0]));
	assert_int_equal(enter_heavy(&e[0], 0), 0);
	assert_int_equal(fc_inside(g.f, NULL), 1);
	fc_exit(&e[0]);
	assert_whole(10);
}

static void the_greatest_weight_can_be_had(void **state)
{
	(void)state;
	open_cap(2 * FC_WEIGHT_MAX);
	assert_int_equal(enter_heavy(&e[0], FC_WEIGHT_MAX), 0);
	assert_int_equal(enter_heavy(&e[1], FC_WEIGHT_MAX), 0);
	assert_int_equal(fc_inside(g.f, NULL), 2 * FC_WEIGHT_MAX);
	assert_int_equal(enter_heavy(&e[2], 1), FC_REFUSED_CAP);
	guarded_empty(e, 2);
	assert_int_equal(fc_inside(g.f, NULL), 0);
}

static void an_interface_may_allow_less(void **state)
{
	(void)state;
	memset(e, 0, sizeof(e));
	guarded_open(&g, &(struct fc_iface_opts){ .cap = 10, .max_weight = 3, .expand = 1 });
	assert_int_equal(enter_heavy(&e[0], 3), 0);
	assert_int_equal(enter_heavy(&e[1], 4), FC_REFUSED_WEIGHT);
	fc_exit(&e[0]);
	assert_whole(10);
}

static void a_heavy_call_that_does_not_fit_leaves_nothing_behind(void **state)
{
	(void)state;
	open_cap(10);
	assert_int_equal(guarded_fill(&g, e, 7), 7);
	for (int i = 0; i < 20; i++) {
		guarded_pass(&g, FC_MS(3));
		assert_int_equal(enter_heavy(&e[10], 4), FC_REFUSED_CAP);
		assert_int_equal(fc_inside(g.f, NULL), 7);
	}
	assert_int_equal(enter_heavy(&e[10], 3), 0);
	assert_int_equal(fc_inside(g.f, NULL), 10);
	fc_exit(&e[10]);
	guarded_empty(e, 7);
	assert_int_equal(guarded_stats(&g).admitted, 8);
	assert_whole(10);
}

static void statistics_count_calls_and_places_each_as_they_are(void **state)
{
	struct fc_in_flight list[3] = { { .size = sizeof(list[0]) } };
	struct fc_stats s;

	(void)state;
	open_cap(20);
	assert_int_equal(enter_heavy(&e[0], 5), 0);
	guarded_pass(&g, FC_MS(1));
	assert_int_equal(enter_heavy(&e[1], 7), 0);
	assert_int_equal(fc_in_flight(g.f, list, 3), 2);
	assert_int_equal(list[0].weight, 5);
	assert_int_equal(list[1].weight, 7);
	s = guarded_stats(&g);
	assert_int_equal(s.in_flight, 12);
	assert_int_equal(s.headroom, 8);
	assert_int_equal(s.admitted, 2);
	fc_entry_mark(&e[1], FC_OUTCOME_ERROR);
	guarded_empty(e, 2);
	assert_int_equal(enter_heavy(&e[0], 21), FC_REFUSED_WEIGHT);
	s = guarded_stats(&g);
	assert_int_equal(s.admitted, 2);
	assert_int_equal(s.ok, 1);
	assert_int_equal(s.unmarked, 1);
	assert_int_equal(s.error, 1);
	assert_int_equal(guarded_refused(&s), 1);
	assert_int_equal(fc_completed(g.f), 2);
}

static void all_places_come_back_however_a_heavy_call_ends(void **state)
{
	struct fc_entry copy, moved = FC_ENTRY_INIT;
	struct fci_view v;

	(void)state;
	for (int way = 0; way < 5; way++) {
		open_cap(10);
		assert_int_equal(enter_heavy(&e[0], 6), 0);
		copy = e[0];
		switch (way) {
		case 0: /* twice */
			assert_int_equal(fc_exit_status(&e[0]), 1);
			assert_int_equal(fc_exit_status(&copy), -ESTALE);
			break;
		case 1: /* moved */
			fc_entry_take(&moved, &e[0]);
			assert_int_equal(fc_inside(g.f, NULL), 6);
			assert_int_equal(fc_exit_status(&copy), -ESTALE);
			assert_int_equal(fc_inside(g.f, NULL), 6);
			assert_int_equal(fc_exit_status(&moved), 1);
			break;
		case 2: /* purged */
			assert_int_equal(fci_oldest(g.f, &v, 1), 1);
			assert_int_equal(fci_abandon(g.f, &v, g.now), 1);
			assert_int_equal(fc_inside(g.f, NULL), 0);
			assert_int_equal(fc_exit_status(&e[0]), -ESTALE);
			break;
		case 3: /* suspended; resumed with the same weight */
			assert_int_equal(fc_entry_suspend(&e[0]), 0);
			assert_int_equal(fc_inside(g.f, NULL), 0);
			assert_int_equal(fc_entry_resume(&e[0]), 0);
			assert_int_equal(fc_inside(g.f, NULL), 6);
			assert_int_equal(fc_exit_status(&e[0]), 1);
			break;
		default: /* suspended, and ended so */
			assert_int_equal(fc_entry_suspend(&e[0]), 0);
			assert_int_equal(fc_exit_status(&e[0]), 1);
			break;
		}
		assert_int_equal(guarded_stats(&g).admitted, 1);
		assert_whole(10);
		assert_int_equal(guarded_close(&g), 0);
	}
}

/* ---- several ----------------------------------------------------------------------------------- */

static struct fc_entry theirs;
static int theirs_rc;

static void enter_six(struct actor *self)
{
	(void)self;
	theirs_rc = enter_heavy(&theirs, 6);
	actor_point("entered");
	fc_exit(&theirs);
}

static void two_heavy_callers_take_all_or_none(void **state)
{
	static struct actor a;

	(void)state;
	/* The other one has claimed 1 to 6 of ten places. */
	for (unsigned has = 0; has < 6; has++) {
		int rc;

		open_cap(10);
		actors_init();
		actor_start(&a, enter_six, NULL, "claimed");
		assert_int_equal(actor_stopped(&a), 1);
		for (unsigned i = 0; i < has; i++)
			assert_int_equal(actor_step(&a), 1);
		rc = enter_heavy(&e[0], 6);
		assert_int_equal(rc, has + 1 + 6 <= 10 ? 0 : FC_REFUSED_CAP);
		assert_int_equal(fc_inside(g.f, NULL), has + 1 + (rc == 0 ? 6 : 0));
		actor_stop_at(&a, "entered", 0);
		assert_int_equal(actor_step(&a), 1);
		assert_true(rc != 0 || theirs_rc != 0);
		assert_int_equal(fc_inside(g.f, NULL), (rc == 0 ? 6 : 0) + (theirs_rc == 0 ? 6 : 0));
		fc_exit(&e[0]);
		actor_end(&a);
		assert_whole(10);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void a_light_call_gets_in_between(void **state)
{
	static struct actor a;

	(void)state;
	open_cap(10);
	actors_init();
	actor_start(&a, enter_six, NULL, "claimed");
	assert_int_equal(actor_stopped(&a), 1);
	assert_int_equal(guarded_fill(&g, e, 4), 4);
	actor_stop_at(&a, "entered", 0);
	assert_int_equal(actor_step(&a), 1);
	assert_int_equal(theirs_rc, 0);
	assert_int_equal(guarded_fill(&g, e + 4, 1), 0);
	actor_end(&a);
	guarded_empty(e, 4);
	assert_whole(10);
}

/* Its thread is killed between the release of the first place and of the others. */
static void places_of_a_heavy_call_that_was_killed_on_its_way_out_are_swept(void **state)
{
	static struct actor a;
	unsigned n;

	(void)state;
	open_cap(10);
	actors_init();
	actor_start(&a, enter_six, NULL, "released");
	assert_int_equal(actor_stopped(&a), 1);
	assert_int_equal(fc_inside(g.f, NULL), 5);
	actor_kill(&a);
	n = guarded_fill(&g, e, 10);
	assert_in_range(n, 4, 10);
	guarded_pass(&g, FC_MS(20));
	n += guarded_fill(&g, e + n, 11 - n);
	assert_int_equal(n, 10);
	assert_int_equal(fc_inside(g.f, NULL), 10);
	guarded_empty(e, 10);
	assert_int_equal(guarded_stats(&g).admitted, 11);
	assert_whole(10);
}

static void exit_theirs(struct actor *self)
{
	(void)self;
	fc_exit(&theirs);
}

/*
 * One CPU, so that slots are ranks. A heavy call in 6 and 7 leaves, and has just seen that 1 is another
 * one's second place, when that one leaves, the cap is lowered, and 1 is lent for the call in 6: the same
 * record now names it.
 */
static void a_loan_of_a_heavy_call_is_not_taken_for_its_second_place(void **state)
{
	static struct actor a;

	(void)state;
	memset(e, 0, sizeof(e));
	guarded_context(&g, 1);
	assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 8, .expand = 1 }), 0);
	actors_init();
	assert_int_equal(enter_heavy(&e[0], 2), 0);
	assert_int_equal(e[0].slot_, 0);
	assert_int_equal(guarded_fill(&g, e + 1, 4), 4);
	assert_int_equal(enter_heavy(&theirs, 2), 0);
	assert_int_equal(theirs.slot_, 6);
	fc_entry_take(&e[20], &theirs);
	theirs = e[20];
	guarded_empty(e + 1, 4);
	actor_start(&a, exit_theirs, NULL, "tag");
	assert_int_equal(actor_stopped(&a), 1);
	fc_exit(&e[0]);
	assert_int_equal(fc_iface_set_cap(g.f, 4), 0);
	assert_int_equal(FCI_STATE(atomic_load(fci_word(g.f, 1))), FCI_LENT);
	actor_end(&a);
	assert_int_equal(fc_inside(g.f, NULL), 0);
	guarded_pass(&g, FC_MS(300));
	fc_tick(g.fc, 0);
	assert_whole(4);
}

static void a_living_heavy_call_is_not_swept(void **state)
{
	(void)state;
	open_cap(10);
	assert_int_equal(enter_heavy(&e[0], 10), 0);
	for (int i = 0; i < 10; i++) {
		guarded_pass(&g, FC_MS(20));
		assert_int_equal(enter_heavy(&e[1], 1), FC_REFUSED_CAP);
		fci_weight_sweep(g.f, 0, fci_slots(g.f));
		assert_int_equal(fc_inside(g.f, NULL), 10);
	}
	fc_exit(&e[0]);
	assert_whole(10);
}

static void a_heavy_call_over_a_lowered_cap_counts_in_full(void **state)
{
	(void)state;
	open_cap(10);
	assert_int_equal(enter_heavy(&e[0], 5), 0);
	assert_int_equal(enter_heavy(&e[1], 5), 0);
	assert_int_equal(fc_iface_set_cap(g.f, 6), 0);
	for (int i = 0; i < 3; i++) {
		guarded_pass(&g, FC_MS(300));
		fc_tick(g.fc, 0);
		assert_int_equal(guarded_fill(&g, e + 2, 1), 0);
	}
	fc_exit(&e[0]);
	assert_int_equal(guarded_fill(&g, e + 2, 3), 1);
	fc_exit(&e[2]);
	assert_int_equal(enter_heavy(&e[2], 2), FC_REFUSED_CAP);
	fc_exit(&e[1]);
	assert_int_equal(enter_heavy(&e[1], 6), 0);
	fc_exit(&e[1]);
	assert_whole(6);
}

static void in_a_dry_run_a_call_that_is_too_heavy_goes_through(void **state)
{
	(void)state;
	open_cap(4);
	assert_int_equal(fc_iface_set_dry_run(g.f, 1), 0);
	assert_int_equal(enter_heavy(&e[0], 3), 0);
	assert_int_equal(enter_heavy(&e[1], 3), 0);
	assert_true(guarded_stats(&g).would_refuse >= 1);
	fc_exit(&e[0]);
	fc_exit(&e[1]);
	assert_int_equal(fc_inside(g.f, NULL), 0);
	assert_int_equal(fc_iface_set_dry_run(g.f, 0), 0);
	assert_whole(4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_call_takes_as_many_places_as_it_weighs, teardown),
		cmocka_unit_test_teardown(a_call_heavier_than_its_limit_is_told_so, teardown),
		cmocka_unit_test_teardown(the_greatest_weight_can_be_had, teardown),
		cmocka_unit_test_teardown(an_interface_may_allow_less, teardown),
		cmocka_unit_test_teardown(a_heavy_call_that_does_not_fit_leaves_nothing_behind, teardown),
		cmocka_unit_test_teardown(statistics_count_calls_and_places_each_as_they_are, teardown),
		cmocka_unit_test_teardown(all_places_come_back_however_a_heavy_call_ends, teardown),
		cmocka_unit_test_teardown(two_heavy_callers_take_all_or_none, teardown),
		cmocka_unit_test_teardown(a_light_call_gets_in_between, teardown),
		cmocka_unit_test_teardown(places_of_a_heavy_call_that_was_killed_on_its_way_out_are_swept, teardown),
		cmocka_unit_test_teardown(a_loan_of_a_heavy_call_is_not_taken_for_its_second_place, teardown),
		cmocka_unit_test_teardown(a_living_heavy_call_is_not_swept, teardown),
		cmocka_unit_test_teardown(a_heavy_call_over_a_lowered_cap_counts_in_full, teardown),
		cmocka_unit_test_teardown(in_a_dry_run_a_call_that_is_too_heavy_goes_through, teardown),
	};

	return cmocka_run_group_tests_name("weight", tests, NULL, NULL);
}
