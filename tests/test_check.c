/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Before a refusal: what is stale is purged, on proof alone; what is stuck is written off, within the
 * budget; and the two models of a queue that cannot say who is the oldest.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <ucontext.h>

#include "lib/leave.h"
#include "support/actors.h"
#include "support/guarded.h"
#include "support/threads.h"

static struct guarded g;
static struct fc_entry e[256];

static int teardown(void **state)
{
	(void)state;
	actors_fini();
	return g.fc ? guarded_close(&g) : 0;
}

static void open_with(const struct fc_iface_opts *o)
{
	memset(e, 0, sizeof(e));
	guarded_open(&g, o);
}

static void open_cap(uint32_t cap)
{
	open_with(&(struct fc_iface_opts){ .cap = cap, .expand = 1 });
}

/* A time after which the next refused caller looks. */
static void check_is_due(void)
{
	guarded_pass(&g, FC_MS(10));
}

static int refused_now(void)
{
	struct fc_entry one = FC_ENTRY_INIT;
	int rc = fc_enter(&one, g.f, NULL);

	fc_exit(&one);
	return rc;
}

/* ---- frames ------------------------------------------------------------------------------------ */

static int (*volatile at_bottom)(struct fc_entry *entry);

/* Call at_bottom so many frames further down, with an entry that lies there. */
static __attribute__((__noinline__)) int further_down(unsigned depth)
{
	volatile char frame[256];
	struct fc_entry entry = FC_ENTRY_INIT;
	int rc;

	frame[0] = 1;
	rc = depth ? further_down(depth - 1) : at_bottom(&entry);
	frame[1] = frame[0];
	return rc;
}

static int enter_and_forget(struct fc_entry *entry)
{
	return fc_enter(entry, g.f, NULL);
}

static int enter_and_exit(struct fc_entry *entry)
{
	int rc = fc_enter(entry, g.f, NULL);

	fc_exit(entry);
	return rc;
}

static int enter_and_move(struct fc_entry *entry)
{
	int rc = fc_enter(entry, g.f, NULL);

	fc_entry_take(&e[100], entry);
	return rc;
}

static int down(unsigned depth, int (*fn)(struct fc_entry *))
{
	at_bottom = fn;
	return further_down(depth);
}

/* ---- stale ------------------------------------------------------------------------------------- */

static void a_scope_entered_again_at_the_same_place_was_left(void **state)
{
	(void)state;
	open_cap(2);
	assert_int_equal(down(3, enter_and_forget), 0);
	assert_int_equal(down(3, enter_and_forget), 0);
	assert_int_equal(fc_inside(g.f, NULL), 2);
	check_is_due();
	assert_int_equal(down(3, enter_and_exit), 0);
	/* Both: the third attempt stands where they stood. */
	assert_int_equal(guarded_stats(&g).purged, 2);
	assert_int_equal(guarded_stats(&g).abandoned, 2);
	assert_int_equal(guarded_fill(&g, e, 3), 2);
	assert_int_equal(fc_inside(g.f, NULL), 2);
	fc_tick(g.fc, 0);
	assert_int_equal(guarded_events(&g, FC_EVENT_PURGED), 1);
	guarded_empty(e, 2);
}

/* A check passes over 512 places; the next goes on behind them, all round. */
static void of_a_large_cap_each_check_looks_at_a_part(void **state)
{
	enum { MANY = 2000 };
	struct fc_entry *many = calloc(MANY, sizeof(*many));

	(void)state;
	assert_non_null(many);
	open_cap(MANY);
	for (int round = 0; round < 10; round++) { /* wherever the stale ones stand */
		unsigned first = guarded_fill(&g, many, 199 * (unsigned)round);

		assert_int_equal(down(3, enter_and_forget), 0);
		guarded_pass(&g, 1);
		guarded_empty(many, first); /* now it is the oldest */
		assert_int_equal(guarded_fill(&g, many, MANY - 1), MANY - 1);
		for (int i = 0; i < 4; i++) {
			check_is_due();
			if (down(3, enter_and_exit) == 0)
				break;
		}
		assert_int_equal(guarded_stats(&g).purged, round + 1);
		guarded_empty(many, MANY - 1);
	}
	free(many);
}

static void a_guard_entered_above_the_frame_of_a_call_proves_that_it_was_left(void **state)
{
	(void)state;
	open_cap(2);
	assert_int_equal(down(5, enter_and_forget), 0);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	check_is_due();
	assert_int_equal(guarded_fill(&g, e + 1, 1), 1);
	assert_int_equal(guarded_stats(&g).purged, 1);
	guarded_empty(e, 2);
}

/* However many live before it: each check looks at some in turn. */
static void scopes_that_were_left_are_found_behind_many_living_calls(void **state)
{
	(void)state;
	for (unsigned living = 15; living < 40; living += 8) {
		open_cap(living + 4);
		for (unsigned i = 0; i < living; i++) {
			if (i % 2) {
				assert_int_equal(guarded_fill(&g, &e[i], 1), 1); /* lives, in this frame's caller's */
				continue;
			}
			assert_int_equal(guarded_fill(&g, &e[100], 1), 1);
			fc_entry_take(&e[i], &e[100]);
		}
		guarded_pass(&g, FC_MS(5));
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(down(5 + i, enter_and_forget), 0);
		for (int k = 0; k < 20; k++) {
			check_is_due();
			if (fc_enter(&e[101], g.f, NULL) == 0)
				fc_exit(&e[101]);
		}
		assert_true(guarded_stats(&g).purged > 0);
		for (int k = 0; k < 20; k++) { /* what nobody waits for, housekeeping finds */
			guarded_pass(&g, FC_MS(300));
			fc_tick(g.fc, FC_S(1));
		}
		assert_int_equal(guarded_stats(&g).purged, 4);
		assert_int_equal(fc_inside(g.f, NULL), living);
		guarded_empty(e, living);
		assert_int_equal(guarded_close(&g), 0);
		g.fc = NULL;
	}
}

/* The refused attempt itself is the proof: else a scope left by longjmp with the only place would shut
 * the door for as long as its thread lives. */
static void the_only_place_of_a_scope_that_was_left_is_found(void **state)
{
	(void)state;
	open_cap(1);
	assert_int_equal(down(3, enter_and_forget), 0);
	check_is_due();
	assert_int_equal(down(3, enter_and_exit), 0);
	assert_int_equal(fc_inside(g.f, NULL), 0);
	assert_int_equal(down(3, enter_and_forget), 0);
	check_is_due();
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	guarded_empty(e, 1);
}

static void calls_of_living_scopes_stay(void **state)
{
	struct fc_entry here = FC_ENTRY_INIT;

	(void)state;
	open_cap(2);
	assert_int_equal(fc_enter(&here, g.f, NULL), 0);
	for (unsigned i = 0; i < 100; i++) {
		check_is_due();
		assert_int_equal(down(i % 7, enter_and_exit), 0);
	}
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	for (unsigned i = 0; i < 100; i++) {
		check_is_due();
		assert_int_equal(down(i % 7, enter_and_exit), FC_REFUSED_CAP);
		fc_tick(g.fc, 0);
	}
	assert_int_equal(guarded_stats(&g).purged, 0);
	assert_int_equal(fc_exit_status(&here), 1);
	guarded_empty(e, 1);
}

static void moved_calls_are_never_stale(void **state)
{
	(void)state;
	open_cap(2);
	assert_int_equal(down(3, enter_and_move), 0);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	for (unsigned i = 0; i < 10; i++) {
		check_is_due();
		assert_int_equal(down(3, enter_and_exit), FC_REFUSED_CAP);
		assert_int_equal(refused_now(), FC_REFUSED_CAP);
		guarded_pass(&g, FC_S(1));
		fc_tick(g.fc, 0);
	}
	assert_int_equal(fc_exit_status(&e[100]), 1);
	guarded_empty(e, 1);
	assert_int_equal(guarded_stats(&g).purged, 0);
}

static void calls_whose_entries_are_not_on_the_stack_are_never_stale(void **state)
{
	struct fc_entry *heap = calloc(2, sizeof(*heap));

	(void)state;
	assert_non_null(heap);
	open_cap(2);
	assert_int_equal(fc_enter(&heap[0], g.f, NULL), 0);
	assert_int_equal(fc_enter(&heap[1], g.f, NULL), 0);
	for (unsigned i = 0; i < 10; i++) {
		check_is_due();
		assert_int_equal(down(i, enter_and_exit), FC_REFUSED_CAP);
		assert_int_equal(fc_enter(&e[0], g.f, NULL), FC_REFUSED_CAP);
		fc_tick(g.fc, 0);
	}
	assert_int_equal(fc_exit_status(&heap[0]), 1);
	assert_int_equal(fc_exit_status(&heap[1]), 1);
	free(heap);
}

static ucontext_t main_context, coroutine;
static int entered_there, left_there;

static void coroutine_main(void)
{
	struct fc_entry there = FC_ENTRY_INIT;

	entered_there = fc_enter(&there, g.f, NULL);
	swapcontext(&coroutine, &main_context);
	left_there = fc_exit_status(&there);
}

static void calls_on_other_stacks_are_never_stale(void **state)
{
	static char stack[256 * 1024];

	(void)state;
	open_cap(2);
	assert_int_equal(getcontext(&coroutine), 0);
	coroutine.uc_stack.ss_sp = stack;
	coroutine.uc_stack.ss_size = sizeof(stack);
	coroutine.uc_link = &main_context;
	makecontext(&coroutine, coroutine_main, 0);
	swapcontext(&main_context, &coroutine);
	assert_int_equal(entered_there, 0);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	for (unsigned i = 0; i < 10; i++) {
		check_is_due();
		assert_int_equal(down(i, enter_and_exit), FC_REFUSED_CAP);
		fc_tick(g.fc, 0);
	}
	swapcontext(&main_context, &coroutine);
	assert_int_equal(left_there, 1);
	guarded_empty(e, 1);
}

/* Takes part in a call: time passes in it. */
static int slow_pre(struct fc_call *c)
{
	(void)c;
	return 0;
}

static const struct fc_interceptor slow = {
	.size = sizeof(slow), .order = FC_ORDER_USER, .name = "slow", .pre = slow_pre,
};

/* One call after another from the same place, as a server's worker does. */
static void calls_in_a_loop(struct actor *self)
{
	(void)self;
	for (int i = 0; i < 2; i++) {
		struct fc_entry entry = FC_ENTRY_INIT;

		if (fc_enter(&entry, g.f, NULL) == 0)
			fc_exit(&entry);
	}
}

static void a_call_that_is_just_being_made_is_not_stale(void **state)
{
	static const char *const points[] = { "claimed", "record", "pre" };
	static struct actor a;

	(void)state;
	for (int p = 0; p < 3; p++) {
		open_cap(1);
		assert_int_equal(fc_iface_set_chain(g.f, &(struct fc_rule){ .interceptor = &slow }, 1), 0);
		actors_init();
		actor_start(&a, calls_in_a_loop, NULL, points[p]);
		assert_int_equal(actor_stopped(&a), 1);
		assert_int_equal(actor_step(&a), 1);
		guarded_pass(&g, FC_S(3600));
		assert_int_equal(refused_now(), FC_REFUSED_CAP);
		fc_tick(g.fc, 0);
		assert_int_equal(refused_now(), FC_REFUSED_CAP);
		assert_int_equal(fc_inside(g.f, NULL), 1);
		actor_end(&a);
		assert_int_equal(guarded_stats(&g).purged, 0);
		assert_int_equal(guarded_stats(&g).late_exits, 0);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void enter_and_end(struct actor *self)
{
	static __thread struct fc_entry mine[3];

	for (int i = 0; i < 3; i++)
		(void)!fc_enter(&mine[i], g.f, NULL);
	fc_entry_take(self->arg, &mine[1]);
}

/* apache/brpc 1319: a path of the handler never called done. */
static void a_thread_that_ends_gives_back_what_it_holds_but_for_moved_calls(void **state)
{
	struct fc_stats s;
	static struct actor a;

	(void)state;
	open_cap(3);
	actor_start(&a, enter_and_end, &e[0], NULL);
	actor_end(&a);
	assert_int_equal(fc_inside(g.f, NULL), 1);
	assert_int_equal(fc_exit_status(&e[0]), 1);
	s = guarded_stats(&g);
	assert_int_equal(s.admitted, 3);
	assert_int_equal(s.abandoned, 2);
	fc_tick(g.fc, 0);
	assert_int_equal(guarded_events(&g, FC_EVENT_LEAKED), 1);
	assert_int_equal(guarded_last(&g, FC_EVENT_LEAKED)->a, 2);
}

/* ---- when it is looked ------------------------------------------------------------------------- */

static void a_check_comes_when_it_is_due_and_no_sooner(void **state)
{
	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 2, .expand = 1, .check_every_ns = FC_MS(100) });
	assert_int_equal(guarded_fill(&g, e, 2), 2);
	assert_int_equal(refused_now(), FC_REFUSED_CAP);
	guarded_empty(e, 2);
	assert_int_equal(down(4, enter_and_forget), 0);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	guarded_pass(&g, FC_MS(99));
	assert_int_equal(refused_now(), FC_REFUSED_CAP);
	assert_int_equal(guarded_stats(&g).purged, 0);
	guarded_pass(&g, FC_MS(1));
	assert_int_equal(refused_now(), 0);
	assert_int_equal(guarded_stats(&g).purged, 1);
	guarded_empty(e, 1);
}

/* alibaba/sentinel-golang 409: the clock was set back, and the door stayed shut. */
static void a_clock_that_was_set_back_does_not_put_checks_off(void **state)
{
	(void)state;
	open_cap(2);
	assert_int_equal(guarded_fill(&g, e, 2), 2);
	assert_int_equal(refused_now(), FC_REFUSED_CAP);
	guarded_empty(e, 2);
	g.now -= FC_S(900);
	fc_clock_set(g.fc, g.now);
	assert_int_equal(down(4, enter_and_forget), 0);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	check_is_due();
	assert_int_equal(refused_now(), 0);
	assert_int_equal(guarded_stats(&g).purged, 1);
	guarded_empty(e, 1);
}

static void housekeeping_purges_what_nobody_waited_for(void **state)
{
	(void)state;
	open_cap(5);
	for (int i = 0; i < 3; i++)
		assert_int_equal(down(4, enter_and_forget), 0);
	guarded_pass(&g, FC_S(1));
	fc_tick(g.fc, 0);
	assert_int_equal(fc_inside(g.f, NULL), 1);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	guarded_pass(&g, FC_S(1));
	fc_tick(g.fc, 0);
	assert_int_equal(fc_inside(g.f, NULL), 1);
	assert_int_equal(guarded_stats(&g).purged, 3);
	guarded_empty(e, 1);
}

/* More resumes than half the range of the entry's number: the live call must not look like an old one. */
static void a_call_is_live_however_often_another_of_its_thread_is_resumed(void **state)
{
	(void)state;
	open_cap(2);
	assert_int_equal(guarded_fill(&g, e, 2), 2);
	for (int i = 0; i < 40000; i++) {
		assert_int_equal(fc_entry_suspend(&e[1]), 0);
		assert_int_equal(fc_entry_resume(&e[1]), 0);
		if (i % 5000 == 0) {
			check_is_due();
			assert_int_equal(refused_now(), FC_REFUSED_CAP);
			guarded_pass(&g, FC_S(1));
			fc_tick(g.fc, 0);
		}
	}
	assert_int_equal(guarded_stats(&g).purged, 0);
	assert_int_equal(fc_exit_status(&e[0]), 1);
	assert_int_equal(fc_exit_status(&e[1]), 1);
	assert_int_equal(guarded_stats(&g).admitted, 2);
}

/* ---- write-off --------------------------------------------------------------------------------- */

#define STUCK FC_S(1)
#define OFF_AFTER (4 * STUCK)

static void open_budget(uint32_t cap, uint32_t writeoff)
{
	open_with(&(struct fc_iface_opts){ .cap = cap, .expand = 1, .writeoff = writeoff, .stuck_after_ns = STUCK });
}

static uint32_t budget_in_force(void)
{
	FC_OPTS(fc_iface_opts, o, .cap = 0);

	assert_int_equal(fc_iface_get_opts(g.f, &o), 0);
	return o.writeoff == FC_WRITEOFF_NONE ? 0 : o.writeoff;
}

static void the_budget_is_a_tenth_of_the_cap_and_none_below_ten(void **state)
{
	static const struct { uint32_t cap, given, budget; } cases[] = {
		{ 1, 0, 0 }, { 9, 0, 0 }, { 10, 0, 1 }, { 19, 0, 1 }, { 20, 0, 2 }, { 100, 0, 10 },
		{ 9, 3, 3 }, { 9, 50, 9 }, { 9, FC_UNLIMITED, 9 }, { 100, FC_WRITEOFF_NONE, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t cap = cases[i].cap, budget = cases[i].budget, more = 0;

		open_budget(cap, cases[i].given);
		assert_int_equal(budget_in_force(), budget);
		assert_int_equal(guarded_fill(&g, e, cap), cap);
		for (int n = 0; n < 30; n++) {
			guarded_pass(&g, OFF_AFTER);
			more += guarded_fill(&g, e + cap + more, 1);
			assert_in_range(fc_inside(g.f, NULL), 0, cap);
		}
		assert_int_equal(more, budget);
		guarded_empty(e, cap + more);
		assert_int_equal(guarded_stats(&g).written_off, 0);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void a_call_is_written_off_after_its_time_and_not_before(void **state)
{
	FC_OPTS(fc_ctx, own, .stuck_after_ns = 2 * STUCK);

	(void)state;
	open_budget(2, 2);
	assert_int_equal(fc_enter(&e[0], g.f, NULL), 0);
	assert_int_equal(fc_enter(&e[1], g.f, &own), 0);
	guarded_pass(&g, OFF_AFTER - 1);
	assert_int_equal(refused_now(), FC_REFUSED_CAP);
	guarded_pass(&g, FC_MS(10));
	assert_int_equal(guarded_fill(&g, e + 2, 2), 1);
	guarded_pass(&g, OFF_AFTER - FC_MS(20));
	assert_int_equal(refused_now(), FC_REFUSED_CAP);
	guarded_pass(&g, FC_MS(11));
	assert_int_equal(guarded_fill(&g, e + 3, 2), 1);
	assert_int_equal(guarded_stats(&g).writeoffs, 2);
	guarded_empty(e, 4);
}

/* Those that may take long stand before it, and hide it not. */
static void a_call_is_written_off_behind_many_that_have_more_time(void **state)
{
	FC_OPTS(fc_ctx, patient, .stuck_after_ns = 1000 * STUCK);

	(void)state;
	open_budget(20, 4);
	for (int i = 0; i < 18; i++)
		assert_int_equal(fc_enter(&e[i], g.f, &patient), 0);
	guarded_pass(&g, FC_MS(50));
	assert_int_equal(fc_enter(&e[18], g.f, NULL), 0);
	assert_int_equal(fc_enter(&e[19], g.f, NULL), 0);
	guarded_pass(&g, OFF_AFTER + FC_MS(10));
	assert_int_equal(guarded_fill(&g, e + 20, 3), 2);
	assert_int_equal(guarded_stats(&g).writeoffs, 2);
	guarded_empty(e, 22);
}

static void written_off_calls_stay_visible_and_are_bounded(void **state)
{
	struct fc_in_flight list[32];
	unsigned off = 0;
	int n;

	(void)state;
	open_budget(20, 2);
	assert_int_equal(guarded_fill(&g, e, 20), 20);
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(guarded_fill(&g, e + 20, 1), 1);
	assert_int_equal(guarded_fill(&g, e + 21, 5), 1);
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(guarded_fill(&g, e + 22, 5), 0);
	list[0].size = sizeof(list[0]);
	n = fc_in_flight(g.f, list, 32);
	assert_int_equal(n, 22);
	for (int i = 0; i < n; i++)
		off += (list[i].flags & FC_IN_FLIGHT_WRITTEN_OFF) != 0;
	assert_int_equal(off, 2);
	assert_true(list[20].flags & FC_IN_FLIGHT_WRITTEN_OFF);
	assert_int_equal(list[20].age_ns, 2 * OFF_AFTER);
	assert_int_equal(list[20].tid, atomic_load(&fci_self.tid));
	assert_int_equal(guarded_stats(&g).in_flight, 20);
	assert_int_equal(guarded_stats(&g).written_off, 2);
	fc_tick(g.fc, 0);
	assert_int_equal(guarded_events(&g, FC_EVENT_WRITTEN_OFF), 1);
	assert_int_equal(guarded_events(&g, FC_EVENT_WRITEOFF_USED_UP), 1);
	assert_int_equal(guarded_last(&g, FC_EVENT_WRITEOFF_USED_UP)->a, 2);
	assert_int_equal(guarded_last(&g, FC_EVENT_WRITEOFF_USED_UP)->b, 2);
	guarded_empty(e, 22);
	assert_int_equal(guarded_stats(&g).late_exits, 2);
}

static void a_budget_that_stays_used_up_is_told_once(void **state)
{
	(void)state;
	open_budget(4, 1);
	assert_int_equal(guarded_fill(&g, e, 4), 4);
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(guarded_fill(&g, e + 4, 1), 1);
	for (int i = 0; i < 5; i++) {
		guarded_pass(&g, FC_S(2));
		assert_int_equal(guarded_fill(&g, e + 5, 1), 0);
		fc_tick(g.fc, 0);
	}
	assert_int_equal(guarded_events(&g, FC_EVENT_WRITEOFF_USED_UP), 1);
	for (int i = 0; i < 4; i++) /* the one that was written off comes back, and those beside it */
		fc_exit(&e[i]);
	assert_int_equal(guarded_fill(&g, e, 3), 3);
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(guarded_fill(&g, e + 5, 1), 1);
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(guarded_fill(&g, e + 6, 1), 0);
	fc_tick(g.fc, 0);
	assert_int_equal(guarded_events(&g, FC_EVENT_WRITEOFF_USED_UP), 2);
	guarded_empty(e, 6);
}

static void a_budget_made_smaller_is_kept_as_soon_as_it_is_reached(void **state)
{
	(void)state;
	open_budget(6, 3);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(guarded_fill(&g, e + i, 1), 1);
		guarded_pass(&g, FC_MS(1));
	}
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(guarded_fill(&g, e + 6, 4), 3);
	assert_int_equal(guarded_stats(&g).written_off, 3);
	assert_int_equal(fc_iface_set(g.fc, "guarded", &(struct fc_iface_opts){ .size = sizeof(struct fc_iface_opts),
		.cap = 6, .expand = 1, .writeoff = 2, .stuck_after_ns = STUCK }, NULL), 0);
	for (int i = 0; i < 2; i++) {
		guarded_pass(&g, FC_MS(20));
		assert_int_equal(guarded_fill(&g, e + 9, 1), 0);
		assert_int_equal(fc_exit_status(&e[i]), -ESTALE);
	}
	assert_int_equal(guarded_stats(&g).written_off, 1);
	guarded_pass(&g, FC_MS(20));
	assert_int_equal(guarded_fill(&g, e + 9, 2), 1);
	assert_int_equal(guarded_stats(&g).written_off, 2);
	guarded_empty(e, 10);
}

static void a_late_exit_gives_the_budget_back_once(void **state)
{
	struct fc_entry copy;

	(void)state;
	open_budget(2, 1);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	guarded_pass(&g, FC_MS(1));
	assert_int_equal(guarded_fill(&g, e + 1, 1), 1);
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(guarded_fill(&g, e + 2, 2), 1);
	assert_int_equal(guarded_stats(&g).written_off, 1);
	copy = e[0];
	assert_int_equal(fc_exit_status(&e[0]), -ESTALE);
	assert_int_equal(guarded_stats(&g).written_off, 0);
	assert_int_equal(fc_inside(g.f, NULL), 2);
	/* The second call is written off in its turn, with the budget that came back. */
	guarded_pass(&g, FC_MS(10));
	assert_int_equal(guarded_fill(&g, e + 3, 2), 1);
	assert_int_equal(guarded_stats(&g).written_off, 1);
	assert_int_equal(fc_exit_status(&copy), -ESTALE);
	assert_int_equal(guarded_stats(&g).written_off, 1);
	assert_int_equal(fc_exit_status(&e[1]), -ESTALE);
	assert_int_equal(guarded_stats(&g).written_off, 0);
	fc_tick(g.fc, 0);
	assert_true(guarded_events(&g, FC_EVENT_WRITEOFF_BACK) >= 1);
	guarded_empty(e + 2, 2);
}

/* It comes, is stuck, and its thread ends. */
static void be_stuck(struct actor *self)
{
	static __thread struct fc_entry mine;

	(void)!fc_enter(&mine, g.f, NULL);
	if (self->arg)
		fc_entry_take(self->arg, &mine);
	actor_point("stuck");
	fc_exit(&mine);
}

static void the_budget_comes_back_when_a_written_off_call_proves_stale(void **state)
{
	static struct actor a;

	(void)state;
	open_budget(1, 1);
	actors_init();
	actor_start(&a, be_stuck, NULL, "stuck");
	assert_int_equal(actor_stopped(&a), 1);
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(guarded_fill(&g, e, 2), 1);
	assert_int_equal(guarded_stats(&g).written_off, 1);
	actor_kill(&a);
	for (int i = 0; i < 2; i++) {
		guarded_pass(&g, FC_S(1));
		fc_tick(g.fc, 0);
	}
	assert_int_equal(guarded_stats(&g).written_off, 0);
	guarded_empty(e, 1);
}

/* Its thread's end says nothing of a call that runs elsewhere. */
static void the_budget_of_a_moved_call_comes_back_with_its_exit_alone(void **state)
{
	static struct actor a;

	(void)state;
	open_budget(1, 1);
	actor_start(&a, be_stuck, &e[50], NULL);
	actor_end(&a);
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(guarded_fill(&g, e, 2), 1);
	assert_int_equal(guarded_stats(&g).written_off, 1);
	for (int i = 0; i < 4; i++) {
		guarded_pass(&g, FC_S(1));
		fc_tick(g.fc, 0);
	}
	assert_int_equal(guarded_stats(&g).written_off, 1);
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(guarded_fill(&g, e + 1, 1), 0);
	assert_int_equal(fc_exit_status(&e[50]), -ESTALE);
	assert_int_equal(guarded_stats(&g).written_off, 0);
	guarded_empty(e, 1);
}

static void a_call_that_interceptors_are_still_taking_for_is_not_written_off(void **state)
{
	static struct actor a;

	(void)state;
	open_budget(1, 1);
	assert_int_equal(fc_iface_set_chain(g.f, &(struct fc_rule){ .interceptor = &slow }, 1), 0);
	actors_init();
	actor_start(&a, calls_in_a_loop, NULL, "pre");
	assert_int_equal(actor_stopped(&a), 1);
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(refused_now(), FC_REFUSED_CAP);
	actor_end(&a);
	assert_int_equal(guarded_stats(&g).writeoffs, 0);
}

/* ---- a purger that is stopped half-way --------------------------------------------------------- */

struct purger {
	struct fc_entry entry;
	int rc;
};

/* A refused caller: the check is its own. */
static void write_off_one(struct actor *self)
{
	struct purger *p = self->arg;

	p->rc = fc_enter(&p->entry, g.f, NULL);
	actor_point("entered");
	if (p->rc == 0)
		fc_exit(&p->entry);
}

static struct purger purger;

/* One call of cap 1 is overdue, and a purger stands at `point` of writing it off. */
static void purger_stands_at(struct actor *a, const char *point)
{
	open_budget(1, 1);
	actors_init();
	memset(&purger, 0, sizeof(purger));
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	guarded_pass(&g, OFF_AFTER);
	actor_start(a, write_off_one, &purger, point);
	assert_int_equal(actor_stopped(a), 1);
}

/* Bodies that run; nobody but the purger was admitted beside e[0]. */
static void assert_bounded(unsigned running)
{
	assert_in_range(running, 0, fc_limit_get(g.f) + guarded_stats(&g).written_off);
	assert_in_range(guarded_stats(&g).written_off, 0, budget_in_force());
}

static void tick_a_few_times(void)
{
	for (int i = 0; i < 4; i++) {
		guarded_pass(&g, FC_MS(300));
		fc_tick(g.fc, 0);
	}
}

#define STEPS 5u
static const char *const steps[STEPS] = { "writeoff_resv", "writeoff_prep", "writeoff_purged", "writeoff_active", "writeoff_freed" };

static void a_call_that_leaves_while_it_is_written_off_costs_no_budget(void **state)
{
	static struct actor a;

	(void)state;
	for (unsigned p = 0; p < STEPS; p++) {
		purger_stands_at(&a, steps[p]);
		fc_exit(&e[0]);
		actor_end(&a);
		assert_int_equal(purger.rc, 0);
		assert_int_equal(guarded_stats(&g).written_off, 0);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void a_call_that_leaves_while_its_purger_is_stopped_costs_no_budget(void **state)
{
	static struct actor a;

	(void)state;
	for (unsigned p = 0; p < STEPS; p++) {
		purger_stands_at(&a, steps[p]);
		fc_exit(&e[0]);
		tick_a_few_times();
		assert_int_equal(guarded_fill(&g, e, 2), 1);
		assert_bounded(1);
		fc_exit(&e[0]);
		actor_end(&a);
		tick_a_few_times();
		assert_int_equal(guarded_stats(&g).written_off, 0);
		assert_int_equal(fc_inside(g.f, NULL), 0);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void a_purger_that_was_stopped_for_long_keeps_to_the_budget(void **state)
{
	static struct actor a;

	(void)state;
	for (unsigned p = 0; p < 2 * STEPS; p++) {
		unsigned in = 0;

		purger_stands_at(&a, steps[p % STEPS]);
		tick_a_few_times();
		/* Others may write the call off meanwhile, or do not come by. */
		if (p < STEPS)
			in = guarded_fill(&g, e + 1, 2);
		assert_bounded(1 + in);
		actor_stop_at(&a, "entered", 0);
		assert_int_equal(actor_step(&a), 1);
		in += purger.rc == 0;
		assert_bounded(1 + in);
		actor_end(&a);
		fc_exit(&e[0]);
		guarded_empty(e + 1, 1);
		tick_a_few_times();
		assert_int_equal(guarded_stats(&g).written_off, 0);
		assert_int_equal(fc_inside(g.f, NULL), 0);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void a_purger_that_was_killed_leaves_the_call_where_it_is_or_written_off(void **state)
{
	static struct actor a;

	(void)state;
	for (unsigned p = 0; p < STEPS; p++) {
		unsigned in;

		purger_stands_at(&a, steps[p]);
		actor_kill(&a);
		tick_a_few_times();
		in = guarded_fill(&g, e + 1, 2);
		assert_int_equal(in, 1);
		assert_bounded(1 + in);
		assert_int_equal(fc_exit_status(&e[0]), -ESTALE);
		assert_int_equal(guarded_stats(&g).written_off, 0);
		guarded_empty(e + 1, 1);
		assert_int_equal(guarded_close(&g), 0);
	}
}

/* Its PREP must not be taken for a write-off that was done: nobody would ever give that back. */
static void a_purger_that_was_killed_before_the_call_left_costs_no_budget(void **state)
{
	static struct actor a;

	(void)state;
	for (unsigned p = 0; p < STEPS; p++) {
		purger_stands_at(&a, steps[p]);
		actor_kill(&a);
		fc_exit(&e[0]);
		tick_a_few_times();
		assert_int_equal(guarded_stats(&g).written_off, 0);
		assert_int_equal(fc_inside(g.f, NULL), 0);
		/* The budget is whole, and so is the queue. */
		assert_int_equal(guarded_fill(&g, e, 2), 1);
		guarded_pass(&g, OFF_AFTER);
		assert_int_equal(guarded_fill(&g, e + 1, 2), 1);
		assert_int_equal(guarded_stats(&g).written_off, 1);
		guarded_empty(e, 2);
		assert_int_equal(guarded_stats(&g).written_off, 0);
		assert_int_equal(guarded_close(&g), 0);
	}
}

/* Half written off, the call keeps its place in the count until the other half is done. */
static void a_call_that_is_half_written_off_is_covered_at_every_moment(void **state)
{
	static struct actor a;

	(void)state;
	for (unsigned p = 0; p < STEPS; p++) {
		purger_stands_at(&a, steps[p]);
		assert_in_range(1 + guarded_fill(&g, e + 1, 2), 1, fc_limit_get(g.f) + guarded_stats(&g).written_off);
		assert_in_range(guarded_stats(&g).written_off, 0, 1);
		actor_end(&a);
		guarded_empty(e, 2);
		tick_a_few_times();
		assert_int_equal(guarded_stats(&g).written_off, 0);
		assert_int_equal(fc_inside(g.f, NULL), 0);
		assert_int_equal(guarded_close(&g), 0);
	}
}

/* ---- entries of calls that were written off ---------------------------------------------------- */

static void write_off_the_only_call(void)
{
	open_budget(1, 1);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	guarded_pass(&g, OFF_AFTER);
	assert_int_equal(guarded_fill(&g, e + 1, 2), 1);
	assert_int_equal(guarded_stats(&g).written_off, 1);
}

static void moving_an_entry_that_was_written_off_gives_the_budget_back(void **state)
{
	(void)state;
	write_off_the_only_call();
	fc_entry_take(&e[50], &e[0]);
	assert_int_equal(fc_exit_status(&e[50]), 0);
	assert_int_equal(fc_exit_status(&e[0]), 0);
	assert_int_equal(guarded_stats(&g).written_off, 0);
	assert_int_equal(guarded_stats(&g).late_exits, 1);
	guarded_empty(e + 1, 1);
}

static void suspending_an_entry_that_was_written_off_gives_the_budget_back(void **state)
{
	(void)state;
	write_off_the_only_call();
	assert_int_equal(fc_entry_suspend(&e[0]), -ESTALE);
	assert_int_equal(fc_exit_status(&e[0]), 0);
	assert_int_equal(guarded_stats(&g).written_off, 0);
	assert_int_equal(guarded_stats(&g).late_exits, 1);
	assert_int_equal(guarded_stats(&g).admitted, 2);
	guarded_empty(e + 1, 1);
}

/* ---- numbers that follow the cap ---------------------------------------------------------------- */

static void assert_written_off_at_most(uint32_t cap, uint32_t budget)
{
	uint32_t more = 0;

	assert_int_equal(budget_in_force(), budget);
	assert_int_equal(guarded_fill(&g, e, cap), cap);
	for (int n = 0; n < 30; n++) {
		guarded_pass(&g, OFF_AFTER);
		more += guarded_fill(&g, e + cap + more, 1);
	}
	assert_int_equal(more, budget);
	guarded_empty(e, cap + more);
	assert_int_equal(guarded_stats(&g).written_off, 0);
}

static void a_budget_that_was_not_given_follows_the_cap(void **state)
{
	static const uint32_t caps[] = { 5, 100, 20, 9, 200, 10 };
	FC_OPTS(fc_iface_opts, o, .cap = 0);

	(void)state;
	open_budget(5, 0);
	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
		assert_int_equal(fc_iface_set_cap(g.f, caps[i]), 0);
		assert_written_off_at_most(caps[i], caps[i] / 10);
		assert_int_equal(fc_iface_get_opts(g.f, &o), 0);
		assert_int_equal(o.max_cap, caps[i]);
		/* A switch changes none of them. */
		assert_int_equal(fc_iface_set_dry_run(g.f, 1), 0);
		assert_int_equal(fc_iface_set_dry_run(g.f, 0), 0);
		assert_int_equal(budget_in_force(), caps[i] / 10);
	}
}

static void a_budget_that_was_given_stays_when_the_cap_changes(void **state)
{
	(void)state;
	open_budget(5, 12);
	assert_int_equal(budget_in_force(), 5);
	assert_int_equal(fc_iface_set_cap(g.f, 100), 0);
	assert_written_off_at_most(100, 12);
	assert_int_equal(guarded_close(&g), 0);
	open_budget(5, FC_WRITEOFF_NONE);
	assert_int_equal(fc_iface_set_cap(g.f, 100), 0);
	assert_written_off_at_most(100, 0);
}

static void calls_that_are_written_off_stay_so_when_the_table_grows(void **state)
{
	(void)state;
	write_off_the_only_call();
	assert_int_equal(fc_iface_set(g.fc, "guarded", &(struct fc_iface_opts){ .size = sizeof(struct fc_iface_opts),
		.cap = 200, .expand = 1, .writeoff = 100, .stuck_after_ns = STUCK }, NULL), 0);
	assert_int_equal(guarded_stats(&g).written_off, 1);
	assert_int_equal(fc_exit_status(&e[0]), -ESTALE);
	assert_int_equal(guarded_stats(&g).written_off, 0);
	guarded_empty(e + 1, 1);
}

/* ---- the models of CAP-3 ----------------------------------------------------------------------- */

#define RUNNING 256

/* Calls that run: 0 begun: none. */
static struct {
	struct fc_entry entry;
	uint64_t begun;
} run[RUNNING];
static unsigned running, most_running;

static int begin_call(void)
{
	unsigned i = 0;

	while (run[i].begun)
		i++;
	memset(&run[i].entry, 0, sizeof(run[i].entry));
	if (fc_enter(&run[i].entry, g.f, NULL) != 0)
		return 0;
	run[i].begun = g.now;
	running++;
	most_running = running > most_running ? running : most_running;
	return 1;
}

static void end_calls(uint64_t latency, unsigned keep)
{
	for (unsigned i = keep; i < RUNNING; i++) {
		if (!run[i].begun || g.now - run[i].begun < latency)
			continue;
		fc_exit(&run[i].entry);
		run[i].begun = 0;
		running--;
	}
}

static void tick_when_due(uint64_t *next)
{
	if (g.now >= *next)
		*next = fc_tick(g.fc, FC_S(1));
}

/* 1000 calls a second of 50 ms, one of them stuck for ever: the head of a FIFO whose exits pop the head
 * was never seen to be older than 66 ms. */
static void one_stuck_call_among_a_thousand_a_second_is_found(void **state)
{
	struct fc_in_flight oldest = { .size = sizeof(oldest) };
	uint64_t next = 0, begin, found = 0;

	(void)state;
	memset(run, 0, sizeof(run));
	running = most_running = 0;
	open_with(&(struct fc_iface_opts){ .cap = 100, .expand = 1, .stuck_after_ns = FC_S(5), .writeoff = FC_WRITEOFF_NONE });
	begin = g.now;
	assert_int_equal(begin_call(), 1);
	while (!found && g.now < begin + FC_S(10)) {
		guarded_pass(&g, FC_MS(1));
		end_calls(FC_MS(50), 1);
		assert_int_equal(begin_call(), 1);
		tick_when_due(&next);
		assert_int_equal(fc_in_flight(g.f, &oldest, 1), (int)running);
		assert_int_equal(oldest.start_ns, begin);
		assert_int_equal(oldest.age_ns, g.now - begin);
		found = guarded_events(&g, FC_EVENT_STUCK) ? g.now : 0;
	}
	assert_in_range(found, begin + FC_S(5), begin + FC_S(5) + FC_MS(250));
	assert_int_equal(guarded_last(&g, FC_EVENT_STUCK)->a, 1);
	assert_int_equal(guarded_stats(&g).overdue, 1);
	end_calls(0, 0);
}

/* All calls hang for three seconds, while 1000 a second come. A queue that purged its head let 350 into
 * a cap of 100. */
static void a_hang_of_all_lets_no_more_in_than_cap_and_budget(void **state)
{
	uint64_t next = 0, begin;
	struct fc_stats s;

	(void)state;
	memset(run, 0, sizeof(run));
	running = most_running = 0;
	open_with(&(struct fc_iface_opts){ .cap = 100, .expand = 1, .stuck_after_ns = FC_MS(500), .writeoff_after_ns = FC_S(1) });
	begin = g.now;
	while (g.now < begin + FC_S(9)) {
		uint64_t t = g.now - begin;

		guarded_pass(&g, FC_MS(1));
		if (t < FC_S(3) || t >= FC_S(6))
			end_calls(FC_MS(50), 0);
		(void)begin_call();
		tick_when_due(&next);
		assert_in_range(running, 0, 110);
	}
	assert_int_equal(most_running, 110);
	end_calls(0, 0);
	s = guarded_stats(&g);
	assert_int_equal(s.writeoffs, 10);
	assert_int_equal(s.late_exits, 10);
	assert_int_equal(s.written_off, 0);
	assert_int_equal(s.in_flight, 0);
	assert_int_equal(s.admitted, s.ok + s.abandoned);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(of_a_large_cap_each_check_looks_at_a_part, teardown),
		cmocka_unit_test_teardown(a_scope_entered_again_at_the_same_place_was_left, teardown),
		cmocka_unit_test_teardown(a_guard_entered_above_the_frame_of_a_call_proves_that_it_was_left, teardown),
		cmocka_unit_test_teardown(scopes_that_were_left_are_found_behind_many_living_calls, teardown),
		cmocka_unit_test_teardown(the_only_place_of_a_scope_that_was_left_is_found, teardown),
		cmocka_unit_test_teardown(calls_of_living_scopes_stay, teardown),
		cmocka_unit_test_teardown(moved_calls_are_never_stale, teardown),
		cmocka_unit_test_teardown(calls_whose_entries_are_not_on_the_stack_are_never_stale, teardown),
		cmocka_unit_test_teardown(calls_on_other_stacks_are_never_stale, teardown),
		cmocka_unit_test_teardown(a_call_that_is_just_being_made_is_not_stale, teardown),
		cmocka_unit_test_teardown(a_thread_that_ends_gives_back_what_it_holds_but_for_moved_calls, teardown),
		cmocka_unit_test_teardown(a_check_comes_when_it_is_due_and_no_sooner, teardown),
		cmocka_unit_test_teardown(a_clock_that_was_set_back_does_not_put_checks_off, teardown),
		cmocka_unit_test_teardown(housekeeping_purges_what_nobody_waited_for, teardown),
		cmocka_unit_test_teardown(the_budget_is_a_tenth_of_the_cap_and_none_below_ten, teardown),
		cmocka_unit_test_teardown(a_call_is_live_however_often_another_of_its_thread_is_resumed, teardown),
		cmocka_unit_test_teardown(a_call_is_written_off_after_its_time_and_not_before, teardown),
		cmocka_unit_test_teardown(a_call_is_written_off_behind_many_that_have_more_time, teardown),
		cmocka_unit_test_teardown(written_off_calls_stay_visible_and_are_bounded, teardown),
		cmocka_unit_test_teardown(a_budget_that_stays_used_up_is_told_once, teardown),
		cmocka_unit_test_teardown(a_budget_made_smaller_is_kept_as_soon_as_it_is_reached, teardown),
		cmocka_unit_test_teardown(a_late_exit_gives_the_budget_back_once, teardown),
		cmocka_unit_test_teardown(the_budget_comes_back_when_a_written_off_call_proves_stale, teardown),
		cmocka_unit_test_teardown(the_budget_of_a_moved_call_comes_back_with_its_exit_alone, teardown),
		cmocka_unit_test_teardown(a_call_that_interceptors_are_still_taking_for_is_not_written_off, teardown),
		cmocka_unit_test_teardown(a_call_that_leaves_while_it_is_written_off_costs_no_budget, teardown),
		cmocka_unit_test_teardown(a_call_that_leaves_while_its_purger_is_stopped_costs_no_budget, teardown),
		cmocka_unit_test_teardown(a_purger_that_was_stopped_for_long_keeps_to_the_budget, teardown),
		cmocka_unit_test_teardown(a_purger_that_was_killed_leaves_the_call_where_it_is_or_written_off, teardown),
		cmocka_unit_test_teardown(a_purger_that_was_killed_before_the_call_left_costs_no_budget, teardown),
		cmocka_unit_test_teardown(a_call_that_is_half_written_off_is_covered_at_every_moment, teardown),
		cmocka_unit_test_teardown(moving_an_entry_that_was_written_off_gives_the_budget_back, teardown),
		cmocka_unit_test_teardown(suspending_an_entry_that_was_written_off_gives_the_budget_back, teardown),
		cmocka_unit_test_teardown(a_budget_that_was_not_given_follows_the_cap, teardown),
		cmocka_unit_test_teardown(a_budget_that_was_given_stays_when_the_cap_changes, teardown),
		cmocka_unit_test_teardown(calls_that_are_written_off_stay_so_when_the_table_grows, teardown),
		cmocka_unit_test_teardown(one_stuck_call_among_a_thousand_a_second_is_found, teardown),
		cmocka_unit_test_teardown(a_hang_of_all_lets_no_more_in_than_cap_and_budget, teardown),
	};

	return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
