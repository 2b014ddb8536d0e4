/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Changing the limit while calls are inside: raised, lowered, lent for, lowered again, raised back;
 * places beyond the first allocation; and threads stopped in the middle of it.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>

#include "lib/leave.h"
#include "lib/limit.h"
#include "support/actors.h"
#include "support/guarded.h"
#include "support/threads.h"

static struct guarded g;
static struct fc_entry e[1024];

static int teardown(void **state)
{
	(void)state;
	actors_fini();
	return g.fc ? guarded_close(&g) : 0;
}

static void open_cap(uint32_t cap)
{
	memset(e, 0, sizeof(e));
	guarded_open(&g, &(struct fc_iface_opts){ .cap = cap, .expand = 1, .writeoff = FC_WRITEOFF_NONE });
}

static void tick(void)
{
	guarded_pass(&g, FC_MS(300));
	fc_tick(g.fc, 0);
}

static int is_draining(void)
{
	return (atomic_load(&g.f->gate->word) & FCI_GATE_DRAIN) != 0;
}

static unsigned in_state(uint32_t state)
{
	unsigned n = 0;

	for (uint32_t s = 0; s < fci_slots(g.f); s++)
		n += FCI_STATE(atomic_load(fci_word(g.f, s))) == state;
	return n;
}

/* Exactly cap more can come, then all leave. */
static void assert_whole(uint32_t cap)
{
	assert_int_equal(fc_inside(g.f, NULL), 0);
	tick();
	assert_int_equal(guarded_fill(&g, e, cap + 1), cap);
	guarded_empty(e, cap);
	assert_int_equal(in_state(FCI_LENT), 0);
	assert_int_equal(in_state(FCI_AUX), 0);
	assert_int_equal(fc_inside(g.f, NULL), 0);
}

/* ---- raising ----------------------------------------------------------------------------------- */

static void a_raised_cap_is_in_force_at_once(void **state)
{
	(void)state;
	open_cap(3);
	assert_int_equal(guarded_fill(&g, e, 5), 3);
	assert_int_equal(fc_iface_set_cap(g.f, 7), 0);
	assert_int_equal(guarded_fill(&g, e + 3, 9), 4);
	guarded_empty(e, 7);
	assert_whole(7);
}

/* At three in the morning a cap must be raisable beyond what was foreseen. */
static void a_cap_can_be_raised_beyond_its_first_places(void **state)
{
	static const uint32_t first[] = { 1, 3, 64 }, then[] = { 9, 100, 1000 };

	(void)state;
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 3; j++) {
			unsigned n;

			open_cap(first[i]);
			n = guarded_fill(&g, e, first[i]);
			assert_int_equal(fc_iface_set_cap(g.f, then[j]), 0);
			n = then[j] > n ? n + guarded_fill(&g, e + n, then[j] - n + 1) : n;
			assert_int_equal(n, then[j] > first[i] ? then[j] : first[i]);
			guarded_empty(e, n);
			assert_whole(then[j]);
			assert_int_equal(guarded_close(&g), 0);
		}
	}
}

static void a_limit_is_four_times_the_cap_at_most(void **state)
{
	(void)state;
	open_cap(10);
	assert_int_equal(fc_limit_set(g.f, 1000), 0);
	assert_int_equal(fc_limit_get(g.f), 40);
	assert_int_equal(guarded_fill(&g, e, 60), 40);
	guarded_empty(e, 40);
	assert_int_equal(fc_limit_set(g.f, 7), 0);
	assert_int_equal(fc_limit_get(g.f), 7);
	assert_int_equal(fc_limit_set(NULL, 7), -EINVAL);
}

static void a_cap_of_one_can_be_raised_to_the_greatest(void **state)
{
	(void)state;
	open_cap(1);
	assert_int_equal(fc_iface_set_cap(g.f, FC_CAP_MAX), 0);
	assert_int_equal(fc_limit_get(g.f), FC_CAP_MAX);
	assert_int_equal(fc_limit_set(g.f, 4 * FC_CAP_MAX), 0);
	assert_int_equal(fc_limit_get(g.f), 4 * FC_CAP_MAX);
	assert_int_equal(guarded_fill(&g, e, 1000), 1000);
	guarded_empty(e, 1000);
}

static void a_cap_that_has_no_memory_changes_nothing(void **state)
{
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .max_ifaces = 1, .flags = FC_NO_STACKS);
	FC_OPTS(fc_iface_opts, io, .cap = 4);
	struct fc_entry one[5] = { FC_ENTRY_INIT };

	(void)state;
	assert_int_equal(fc_create(&g.fc, &o), 0);
	assert_int_equal(fc_iface_set(g.fc, "small", &io, &g.f), 0);
	assert_int_equal(fc_iface_set_cap(g.f, FC_CAP_MAX), -ENOSPC);
	assert_int_equal(fc_limit_get(g.f), 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&one[i], g.f, NULL), 0);
	assert_int_equal(fc_enter(&one[4], g.f, NULL), FC_REFUSED_CAP);
	for (int i = 0; i < 4; i++)
		fc_exit(&one[i]);
}

/* ---- lowering ---------------------------------------------------------------------------------- */

/* haproxy 2743: twice maxconn after a maintenance. */
static void nobody_comes_in_before_the_count_is_under_a_lowered_cap(void **state)
{
	(void)state;
	open_cap(20);
	assert_int_equal(guarded_fill(&g, e, 20), 20);
	assert_int_equal(fc_iface_set_cap(g.f, 5), 0);
	for (unsigned in = 20; in > 5; in--) {
		assert_int_equal(guarded_fill(&g, e + 100, 3), 0);
		assert_int_equal(fc_exit_status(&e[in - 1]), 1);
	}
	assert_int_equal(guarded_fill(&g, e + 100, 3), 0);
	fc_exit(&e[0]);
	assert_int_equal(guarded_fill(&g, e + 100, 3), 1);
	guarded_empty(e, 101);
	assert_whole(5);
}

static void the_order_of_leaving_does_not_matter(void **state)
{
	struct rng rng;

	(void)state;
	rng_init(&rng, 11);
	for (int round = 0; round < 50; round++) {
		uint32_t low = rng_below(&rng, 20);
		unsigned in = 20;

		open_cap(20);
		assert_int_equal(guarded_fill(&g, e, 20), 20);
		assert_int_equal(fc_iface_set_cap(g.f, low), 0);
		while (in > 0) {
			unsigned k = rng_below(&rng, in--);

			fc_exit(&e[k]);
			e[k] = e[in];
			if (rng_chance(&rng, 4))
				tick();
			assert_int_equal(guarded_fill(&g, e + in, 1), in < low);
			if (in < low)
				fc_exit(&e[in]);
		}
		assert_whole(low);
		assert_int_equal(guarded_close(&g), 0);
	}
}

/* An enter succeeds if and only if fewer than the limit are inside, whatever was changed when. */
static void the_limit_is_exact_after_any_changes(void **state)
{
	static uint32_t weight[1024];
	struct rng rng;

	(void)state;
	rng_init(&rng, 12);
	for (int heavy = 0; heavy < 2; heavy++) {
		unsigned n = 0, places = 0;
		uint32_t cap = 30;

		open_cap(cap);
		for (int i = 0; i < 60000; i++) {
			FC_OPTS(fc_ctx, ctx, .weight = heavy ? 1 + rng_below(&rng, 3) : 1);
			unsigned k;
			int rc;

			switch (rng_below(&rng, 40)) {
			case 0:
				cap = rng_below(&rng, 40);
				assert_int_equal(fc_iface_set_cap(g.f, cap), 0);
				break;
			case 1:
				tick();
				break;
			case 2: /* moved */
				if (n == 0)
					break;
				k = rng_below(&rng, n);
				fc_entry_take(&e[1023], &e[k]);
				e[k] = e[1023];
				assert_true(e[k].word_ != 0);
				break;
			default:
				if (rng_chance(&rng, 2) && n) {
					k = rng_below(&rng, n--);
					places -= weight[k];
					assert_int_equal(fc_exit_status(&e[k]), 1);
					e[k] = e[n];
					weight[k] = weight[n];
					break;
				}
				memset(&e[n], 0, sizeof(e[n]));
				rc = fc_enter(&e[n], g.f, heavy || rng_chance(&rng, 2) ? &ctx : NULL);
				if ((rc == 0) != (places + ctx.weight <= cap))
					fail_msg("step %d: %u inside, weight %u, cap %u: %d", i, places, ctx.weight, cap, rc);
				if (rc == 0) {
					weight[n++] = ctx.weight;
					places += ctx.weight;
				}
			}
			assert_int_equal(fc_inside(g.f, NULL), places);
		}
		guarded_empty(e, n);
		assert_int_equal(fc_iface_set_cap(g.f, 10), 0);
		assert_whole(10);
		assert_int_equal(guarded_close(&g), 0);
	}
}

/* ---- lending ----------------------------------------------------------------------------------- */

static struct fc_entry lender;

/* One call of rank >= low alone is inside, entered as ctx says, and has a loan. */
static void make_lender(uint32_t cap, uint32_t low, const struct fc_ctx *ctx)
{
	unsigned n;

	open_cap(cap);
	n = guarded_fill(&g, e, cap);
	assert_int_equal(n, cap);
	/* The place of the greatest rank becomes free, and the next call takes it. */
	for (unsigned i = 0; i < n; i++) {
		if (fci_rank(g.f, e[i].slot_) != cap - 1)
			continue;
		fc_exit(&e[i]);
		memset(&lender, 0, sizeof(lender));
		assert_int_equal(fc_enter(&lender, g.f, ctx), 0);
	}
	assert_int_equal(fci_rank(g.f, lender.slot_), cap - 1);
	guarded_empty(e, n);
	assert_int_equal(fc_inside(g.f, NULL), 1);
	assert_int_equal(fc_iface_set_cap(g.f, low), 0);
	tick();
	assert_int_equal(in_state(FCI_LENDER) + in_state(FCI_LENDER_DETACHED), 1);
	assert_int_equal(in_state(FCI_LENT), 1);
	assert_int_equal(is_draining(), 0);
	assert_int_equal(fc_inside(g.f, NULL), 1);
}

static void a_call_that_stays_over_a_lowered_limit_counts_under_it(void **state)
{
	(void)state;
	make_lender(8, 4, NULL);
	assert_int_equal(guarded_fill(&g, e, 8), 3);
	assert_int_equal(fc_inside(g.f, NULL), 4);
	fc_exit(&lender);
	assert_int_equal(guarded_fill(&g, e + 3, 8), 1);
	guarded_empty(e, 4);
	assert_whole(4);
}

/* alibaba/Sentinel 2447: exits that came another way left things behind. */
static void a_lender_gives_both_places_back_however_it_leaves(void **state)
{
	struct fc_ctx heavy = { .size = sizeof(heavy), .weight = 1, .request_id = 5 };
	struct fc_entry moved = FC_ENTRY_INIT, copy;
	struct fci_view v;

	(void)state;
	for (int way = 0; way < 7; way++) {
		make_lender(8, 4, way == 2 ? &heavy : NULL);
		if (way == 6)
			atomic_store(&g.f->gate->sample, 0); /* latency not measured: the plain way out */
		copy = lender;
		switch (way) {
		case 3: /* moved while it has a loan */
			fc_entry_take(&moved, &lender);
			assert_int_equal(fc_exit_status(&copy), -ESTALE);
			assert_int_equal(fc_exit_status(&moved), 1);
			break;
		case 4: /* purged */
			assert_int_equal(fci_oldest(g.f, &v, 1), 1);
			assert_int_equal(fci_abandon(g.f, &v, g.now), 1);
			assert_int_equal(fc_exit_status(&lender), -ESTALE);
			break;
		case 5: /* suspended, resumed */
			assert_int_equal(fc_entry_suspend(&lender), 0);
			assert_int_equal(in_state(FCI_LENT), 0);
			assert_int_equal(fc_entry_resume(&lender), 0);
			assert_int_equal(fc_exit_status(&lender), 1);
			break;
		default:
			fc_entry_mark(&lender, way == 1 ? FC_OUTCOME_ERROR : FC_OUTCOME_OK);
			assert_int_equal(fc_exit_status(&lender), 1);
			break;
		}
		assert_int_equal(fc_inside(g.f, NULL), 0);
		assert_int_equal(in_state(FCI_LENT), 0);
		assert_int_equal(guarded_stats(&g).admitted, 9);
		assert_int_equal(guarded_stats(&g).ok + guarded_stats(&g).error + guarded_stats(&g).abandoned, 9);
		assert_whole(4);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void plain_exit_of_an_unmeasured_lender(void **state)
{
	(void)state;
	memset(e, 0, sizeof(e));
	guarded_open(&g, &(struct fc_iface_opts){ .cap = 8, .expand = 1, .latency = FC_LATENCY_OFF });
	assert_int_equal(guarded_fill(&g, e, 8), 8);
	assert_int_equal(fc_iface_set_cap(g.f, 4), 0);
	for (unsigned i = 0; i < 8; i++)
		if (fci_rank(g.f, e[i].slot_) != 7)
			fc_exit(&e[i]);
	tick();
	assert_int_equal(in_state(FCI_LENDER), 1);
	for (unsigned i = 0; i < 8; i++)
		if (e[i].word_)
			assert_int_equal(fc_exit_status(&e[i]), 1);
	assert_whole(4);
}

static void hold_the_lender(struct actor *self)
{
	static __thread struct fc_entry mine[8];

	(void)self;
	for (int i = 0; i < 8; i++)
		(void)!fc_enter(&mine[i], g.f, NULL);
	for (int i = 0; i < 8; i++)
		if (fci_rank(g.f, mine[i].slot_) != 7)
			fc_exit(&mine[i]);
	actor_point("held");
}

static void the_end_of_a_lenders_thread_gives_both_places_back(void **state)
{
	static struct actor a;

	(void)state;
	open_cap(8);
	actors_init();
	actor_start(&a, hold_the_lender, NULL, "held");
	assert_int_equal(actor_stopped(&a), 1);
	assert_int_equal(fc_iface_set_cap(g.f, 4), 0);
	tick();
	assert_int_equal(in_state(FCI_LENDER), 1);
	actor_end(&a);
	assert_int_equal(fc_inside(g.f, NULL), 0);
	assert_int_equal(in_state(FCI_LENT), 0);
	assert_whole(4);
}

static void a_loan_survives_a_limit_that_is_lowered_again(void **state)
{
	(void)state;
	for (uint32_t low = 0; low < 4; low++) {
		make_lender(8, 4, NULL);
		assert_int_equal(fc_iface_set_cap(g.f, low), 0);
		assert_int_equal(guarded_fill(&g, e, 8), low ? low - 1 : 0);
		guarded_empty(e, low);
		tick();
		tick();
		assert_int_equal(guarded_fill(&g, e, 8), low ? low - 1 : 0);
		fc_exit(&lender);
		guarded_empty(e, low);
		assert_whole(low);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void a_loan_is_taken_back_when_the_limit_is_raised_back(void **state)
{
	(void)state;
	make_lender(8, 4, NULL);
	assert_int_equal(fc_iface_set_cap(g.f, 8), 0);
	assert_int_equal(guarded_fill(&g, e, 9), 7);
	guarded_empty(e, 7);
	tick();
	assert_int_equal(in_state(FCI_LENT), 0);
	assert_int_equal(guarded_fill(&g, e, 9), 7);
	guarded_empty(e, 7);
	fc_exit(&lender);
	assert_whole(8);
}

static void lending_waits_until_there_is_a_free_place(void **state)
{
	(void)state;
	open_cap(8);
	assert_int_equal(guarded_fill(&g, e, 8), 8);
	assert_int_equal(fc_iface_set_cap(g.f, 4), 0);
	for (int i = 0; i < 5; i++)
		tick();
	assert_int_equal(in_state(FCI_LENT), 0);
	assert_int_equal(is_draining(), 1);
	assert_int_equal(guarded_fill(&g, e + 8, 1), 0);
	guarded_empty(e, 8);
	assert_whole(4);
	assert_int_equal(is_draining(), 0);
}

/* ---- other ways to a lower limit --------------------------------------------------------------- */

static void calls_that_a_dry_run_let_in_count_when_it_is_over(void **state)
{
	unsigned n = 6;

	(void)state;
	open_cap(2);
	assert_int_equal(fc_iface_set_dry_run(g.f, 1), 0);
	assert_int_equal(guarded_fill(&g, e, n), n);
	assert_int_equal(fc_inside(g.f, NULL), n);
	assert_int_equal(guarded_stats(&g).would_refuse, 4);
	assert_int_equal(fc_iface_set_dry_run(g.f, 0), 0);
	while (n-- > 0) {
		/* Those under the limit leave first. */
		unsigned k = 0;

		for (unsigned i = 0; i < 6; i++)
			if (e[i].word_ && (!e[k].word_ || fci_rank(g.f, e[i].slot_) < fci_rank(g.f, e[k].slot_)))
				k = i;
		fc_exit(&e[k]);
		assert_int_equal(guarded_fill(&g, e + 10, 1), n < 2);
		fc_exit(&e[10]);
	}
	assert_whole(2);
}

static void a_cap_given_to_an_interface_without_one_is_kept_at_once(void **state)
{
	(void)state;
	memset(e, 0, sizeof(e));
	guarded_context(&g, 0);
	g.f = fc_iface_get(g.fc, "observed");
	assert_int_equal(guarded_fill(&g, e, 500), 500);
	assert_int_equal(fc_inside(g.f, NULL), 500);
	assert_int_equal(fc_iface_set_cap(g.f, 10), 0);
	for (unsigned n = 500; n > 10; n--) {
		if (n % 17 == 0)
			assert_int_equal(guarded_fill(&g, e + 600, 1), 0);
		fc_exit(&e[n - 1]);
	}
	assert_int_equal(guarded_fill(&g, e + 600, 1), 0);
	fc_exit(&e[0]);
	assert_int_equal(guarded_fill(&g, e + 600, 2), 1);
	assert_int_equal(fc_iface_set_cap(g.f, FC_UNLIMITED), 0);
	assert_int_equal(guarded_fill(&g, e + 700, 300), 300);
	guarded_empty(e, 1000);
	assert_int_equal(fc_inside(g.f, NULL), 0);
}

static void closing_and_opening_the_door_keeps_the_count(void **state)
{
	(void)state;
	open_cap(4);
	for (int round = 0; round < 5; round++) {
		assert_int_equal(guarded_fill(&g, e, 5), 4);
		assert_int_equal(fc_iface_drain(g.f, 0), 4);
		assert_int_equal(fc_enter(&e[10], g.f, NULL), FC_REFUSED_DRAINING);
		fc_iface_undrain(g.f);
		assert_int_equal(fc_enter(&e[10], g.f, NULL), FC_REFUSED_CAP);
		assert_int_equal(fc_iface_set_off(g.f, 1), 0);
		assert_int_equal(fc_enter(&e[11], g.f, NULL), 0);
		assert_int_equal(fc_iface_set_off(g.f, 0), 0);
		assert_int_equal(fc_enter(&e[10], g.f, NULL), FC_REFUSED_CAP);
		fc_exit(&e[11]);
		assert_int_equal(fc_inside(g.f, NULL), 4);
		guarded_empty(e, 4);
	}
	assert_whole(4);
}

/* ---- threads stopped in the middle ------------------------------------------------------------- */

static int one_rc;
static struct fc_entry one_entry;

static void enter_only(struct actor *self)
{
	(void)self;
	memset(&one_entry, 0, sizeof(one_entry));
	one_rc = fc_enter(&one_entry, g.f, NULL);
	if (one_rc == 0) {
		struct fc_entry moved;

		fc_entry_take(&moved, &one_entry);
		one_entry = moved;
	}
}

/* W3 of the study: a claim must not slip through under a limit that its setter believes in force. */
static void a_claim_that_meets_a_falling_limit_gives_its_place_back(void **state)
{
	static struct actor a;

	(void)state;
	for (uint32_t n = 0; n < 8; n++) {
		uint32_t low = n % 4;

		memset(e, 0, sizeof(e));
		guarded_context(&g, 1);
		assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 4, .expand = 1 }), 0);
		actors_init();
		/* It searches, or takes at once the place that was freed last. */
		assert_int_equal(guarded_fill(&g, e, 4), 4);
		fc_exit(&e[3]);
		if (n >= 4)
			atomic_store(&g.f->groups[0].hot, 0);
		actor_start(&a, enter_only, NULL, "claimed");
		assert_int_equal(actor_stopped(&a), 1);
		assert_int_equal(fc_iface_set_cap(g.f, low), 0);
		actor_end(&a);
		assert_int_equal(one_rc, FC_REFUSED_CAP);
		assert_int_equal(fc_inside(g.f, NULL), 3);
		guarded_empty(e, 3);
		assert_whole(low);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void set_cap_to(struct actor *self)
{
	(void)fc_iface_set_cap(g.f, (uint32_t)(uintptr_t)self->arg);
}

static void a_setter_stopped_after_its_store_holds_nobody_up(void **state)
{
	static struct actor a;

	(void)state;
	for (uint32_t cap = 0; cap < 12; cap++) {
		unsigned in = 6;

		if (cap == 6)
			continue;
		open_cap(6);
		actors_init();
		assert_int_equal(guarded_fill(&g, e, 6), 6);
		actor_start(&a, set_cap_to, (void *)(uintptr_t)cap, "limit");
		assert_int_equal(actor_stopped(&a), 1);
		/* Raised: the hints still hide the new places, but for a check. */
		guarded_pass(&g, FC_MS(20));
		if (cap > 6) {
			in += guarded_fill(&g, e + 6, 20);
			assert_in_range(in, 7, cap);
		}
		while (in > 0) {
			fc_exit(&e[--in]);
			guarded_pass(&g, FC_MS(20));
			assert_int_equal(guarded_fill(&g, e + 50, 1), in < cap);
			fc_exit(&e[50]);
		}
		actor_end(&a);
		assert_whole(cap);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void lend(struct actor *self)
{
	(void)self;
	(void)fci_limit_tick(g.f);
}

/* A lender is stopped between the loan and the word of the call. */
static void lender_stands_at_lent(struct actor *a)
{
	open_cap(8);
	actors_init();
	assert_int_equal(guarded_fill(&g, e, 8), 8);
	assert_int_equal(fc_iface_set_cap(g.f, 4), 0);
	for (unsigned i = 0; i < 8; i++) {
		if (fci_rank(g.f, e[i].slot_) == 7)
			lender = e[i];
		else
			fc_exit(&e[i]);
	}
	actor_start(a, lend, NULL, "lent");
	assert_int_equal(actor_stopped(a), 1);
}

static void whoever_meets_a_loan_half_made_finds_the_limit_exact(void **state)
{
	static struct actor a;

	(void)state;
	for (int what = 0; what < 6; what++) {
		uint32_t limit = what == 4 ? 2 : what == 5 ? 8 : 4;
		unsigned n;

		lender_stands_at_lent(&a);
		switch (what) {
		case 0: /* the call leaves */
			assert_int_equal(fc_exit_status(&lender), 1);
			assert_int_equal(fc_inside(g.f, NULL), 0);
			break;
		case 1: /* others look after the loans too */
			(void)fci_limit_tick(g.f);
			tick();
			break;
		case 2: /* and somebody comes */
			(void)fci_limit_tick(g.f);
			break;
		case 3: /* it is moved */
			fc_entry_take(&e[500], &lender);
			lender = e[500];
			break;
		default:
			assert_int_equal(fc_iface_set_cap(g.f, limit), 0);
			break;
		}
		n = guarded_fill(&g, e, 10);
		assert_in_range(fc_inside(g.f, NULL), n, limit);
		actor_end(&a);
		n += guarded_fill(&g, e + n, 10);
		assert_in_range(fc_inside(g.f, NULL), n, limit);
		tick();
		tick();
		n += guarded_fill(&g, e + n, 10);
		assert_int_equal(fc_inside(g.f, NULL), limit);
		assert_int_equal(n + (lender.word_ != 0), limit);
		fc_exit(&lender);
		guarded_empty(e, n);
		assert_whole(limit);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void end_draining(struct actor *self)
{
	(void)self;
	(void)fci_limit_tick(g.f);
}

static void set_cap_to_six(struct actor *self)
{
	(void)self;
	(void)fc_iface_set_cap(g.f, 6);
}

/* Two CPUs, cap 8: the calls in slots 0 and 1 (ranks 0 and 2) and 10 (rank 5) stay. The cap is 4, and the
 * third one has a loan; a setter of 6 is about to take it back when 4 is set again. */
static void a_loan_that_is_being_taken_back_does_not_end_the_draining(void **state)
{
	static struct actor a, b;
	unsigned n;

	(void)state;
	memset(e, 0, sizeof(e));
	guarded_context(&g, 2);
	assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 8, .expand = 1 }), 0);
	actors_init();
	assert_int_equal(guarded_fill(&g, e, 8), 8);
	for (unsigned i = 0; i < 8; i++)
		if (e[i].slot_ != 0 && e[i].slot_ != 1 && e[i].slot_ != 10)
			fc_exit(&e[i]);
	assert_int_equal(fc_iface_set_cap(g.f, 4), 0);
	tick();
	assert_int_equal(in_state(FCI_LENT), 1);
	actor_start(&a, set_cap_to_six, NULL, "unlend");
	assert_int_equal(actor_stopped(&a), 1);
	fci_limit_change(g.f, 4);
	/* Another one has just counted nobody over the limit. */
	actor_start(&b, end_draining, NULL, "drain");
	assert_int_equal(actor_stopped(&b), 1);
	n = guarded_fill(&g, e + 10, 8);
	assert_int_equal(n, 1);
	assert_int_equal(fc_inside(g.f, NULL), 4);
	actor_end(&a);
	actor_end(&b);
	n += guarded_fill(&g, e + 10 + n, 8);
	assert_int_equal(fc_inside(g.f, NULL), 4);
	assert_int_equal(n, 1);
	guarded_empty(e, 10 + n);
	assert_whole(4);
}

static uint64_t gate_now(void)
{
	return atomic_load(&g.f->gate->word);
}

/* Who decides on a limit does so by what was in force: not over a cap that came meanwhile. */
static void a_limit_decided_before_a_cap_was_set_is_not_put_in_force(void **state)
{
	uint64_t gate;

	(void)state;
	open_cap(8);
	gate = gate_now();
	assert_int_equal(fci_limit_change_from(g.f, gate, 16), 0);
	assert_int_equal(fci_limit_change_from(g.f, gate, 20), -EAGAIN);
	assert_int_equal(fc_limit_get(g.f), 16);
	gate = gate_now();
	assert_int_equal(fc_iface_set_cap(g.f, 16), 0);
	gate = gate_now();
	assert_int_equal(fc_iface_set_cap(g.f, 16), 0); /* the same again is a decision too */
	assert_int_equal(fci_limit_change_from(g.f, gate, 20), -EAGAIN);
	assert_int_equal(fc_limit_get(g.f), 16);
	/* Flags of others are no reason. */
	gate = gate_now();
	fci_gate_set(g.f, FCI_GATE_WAITERS, 0);
	assert_int_equal(fci_limit_change_from(g.f, gate, 12), 0);
	assert_int_equal(fc_limit_get(g.f), 12);
	gate = gate_now();
	fci_gate_set(g.f, FCI_GATE_UNRULED, 0);
	assert_int_equal(fci_limit_change_from(g.f, gate, 14), -EAGAIN);
	fci_gate_set(g.f, 0, FCI_GATE_UNRULED);
}

/* A count made under one gate says nothing of another. */
static void a_claim_is_counted_between_two_looks_at_the_same_gate(void **state)
{
	static struct actor a;
	unsigned n;

	(void)state;
	memset(e, 0, sizeof(e));
	open_cap(4);
	actors_init();
	assert_int_equal(guarded_fill(&g, e, 4), 4);
	assert_int_equal(fc_iface_set_cap(g.f, 3), 0); /* draining */
	for (n = 0; n < 4; n++) /* the one over the limit stays */
		if (fci_rank(g.f, e[n].slot_) < 2)
			fc_exit(&e[n]);
	assert_int_equal(fc_inside(g.f, NULL), 2);
	actor_start(&a, enter_only, NULL, "counted");
	assert_int_equal(actor_stopped(&a), 1);
	fci_limit_change(g.f, 2);
	actor_end(&a);
	assert_int_equal(fc_inside(g.f, NULL), 2);
	guarded_empty(e, 4);
}

/* ---- several at once --------------------------------------------------------------------------- */

static fci_a32 most, now_inside;

static void enter_or_set(void *arg, unsigned index, struct rng *rng)
{
	(void)arg;
	for (int i = 0; i < 3000; i++) {
		struct fc_entry entry = FC_ENTRY_INIT;

		if (index == 0) {
			(void)fc_iface_set_cap(g.f, 1 + rng_below(rng, 6));
			if (i % 8 == 0)
				fc_tick(g.fc, 0);
			continue;
		}
		if (fc_enter(&entry, g.f, NULL) != 0)
			continue;
		fci_max_u32(&most, atomic_fetch_add(&now_inside, 1) + 1);
		atomic_fetch_sub(&now_inside, 1);
		fc_exit(&entry);
	}
}

/* Netflix/concurrency-limits 140: in flight against limit, racing. */
static void changes_at_any_rate_never_let_in_more_than_the_largest_cap(void **state)
{
	(void)state;
	open_cap(6);
	atomic_store(&most, 0);
	run_threads(9, enter_or_set, NULL);
	assert_in_range(atomic_load(&most), 0, 6);
	assert_int_equal(fc_inside(g.f, NULL), 0);
	assert_int_equal(fc_iface_set_cap(g.f, 6), 0);
	assert_whole(6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_raised_cap_is_in_force_at_once, teardown),
		cmocka_unit_test_teardown(a_cap_can_be_raised_beyond_its_first_places, teardown),
		cmocka_unit_test_teardown(a_cap_of_one_can_be_raised_to_the_greatest, teardown),
		cmocka_unit_test_teardown(a_limit_is_four_times_the_cap_at_most, teardown),
		cmocka_unit_test_teardown(a_cap_that_has_no_memory_changes_nothing, teardown),
		cmocka_unit_test_teardown(nobody_comes_in_before_the_count_is_under_a_lowered_cap, teardown),
		cmocka_unit_test_teardown(the_order_of_leaving_does_not_matter, teardown),
		cmocka_unit_test_teardown(the_limit_is_exact_after_any_changes, teardown),
		cmocka_unit_test_teardown(a_call_that_stays_over_a_lowered_limit_counts_under_it, teardown),
		cmocka_unit_test_teardown(a_lender_gives_both_places_back_however_it_leaves, teardown),
		cmocka_unit_test_teardown(plain_exit_of_an_unmeasured_lender, teardown),
		cmocka_unit_test_teardown(the_end_of_a_lenders_thread_gives_both_places_back, teardown),
		cmocka_unit_test_teardown(a_loan_survives_a_limit_that_is_lowered_again, teardown),
		cmocka_unit_test_teardown(a_loan_is_taken_back_when_the_limit_is_raised_back, teardown),
		cmocka_unit_test_teardown(lending_waits_until_there_is_a_free_place, teardown),
		cmocka_unit_test_teardown(calls_that_a_dry_run_let_in_count_when_it_is_over, teardown),
		cmocka_unit_test_teardown(a_cap_given_to_an_interface_without_one_is_kept_at_once, teardown),
		cmocka_unit_test_teardown(closing_and_opening_the_door_keeps_the_count, teardown),
		cmocka_unit_test_teardown(a_claim_that_meets_a_falling_limit_gives_its_place_back, teardown),
		cmocka_unit_test_teardown(a_setter_stopped_after_its_store_holds_nobody_up, teardown),
		cmocka_unit_test_teardown(whoever_meets_a_loan_half_made_finds_the_limit_exact, teardown),
		cmocka_unit_test_teardown(a_loan_that_is_being_taken_back_does_not_end_the_draining, teardown),
		cmocka_unit_test_teardown(a_limit_decided_before_a_cap_was_set_is_not_put_in_force, teardown),
		cmocka_unit_test_teardown(a_claim_is_counted_between_two_looks_at_the_same_gate, teardown),
		cmocka_unit_test_teardown(changes_at_any_rate_never_let_in_more_than_the_largest_cap, teardown),
	};

	return cmocka_run_group_tests_name("limit", tests, NULL, NULL);
}
