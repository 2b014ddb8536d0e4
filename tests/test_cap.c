/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the limit moves (interceptors/cap.c), on the virtual clock, with a simulated server behind the
 * guard: calls come at a rate, and leave after a latency or as fast as a dependency serves them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <poll.h>

#include <fcguard/health.h>

#include "support/guarded.h"

#define CAP   10u
#define CALLS 512
#define YEAR  (FC_S(86400) * 365)

static struct guarded g;
static struct fc_health_sample health;

static struct {
	struct fc_entry entry;
	uint64_t ends; /* 0: no call */
} calls[CALLS];

static struct {
	uint64_t per_s;     /* calls that come */
	uint64_t latency;   /* of a call that waits for nobody */
	uint64_t served_ns; /* one call each of these, whoever waits; 0: all at once */
	uint64_t served_at; /* the dependency is busy until */
	uint64_t owed;      /* fractions of calls, 1e9 */
	uint64_t next_tick;
	uint64_t came, admitted, left;
	unsigned running, over;
	int trembles;       /* the clock: each other millisecond it is two behind */
	uint32_t low, high; /* the limit was never outside; running not above high */
} sim;

static int supplied(void *arg, struct fc_health_sample *s)
{
	(void)arg;
	health.size = s->size;
	health.now_ns = s->now_ns;
	*s = health;
	return 0;
}

static void make_health(uint32_t cpu, uint32_t memory, uint32_t psi)
{
	health = (struct fc_health_sample){ .valid = FC_HEALTH_CPU | FC_HEALTH_MEMORY | FC_HEALTH_PSI_CPU,
		.cpu_permille = cpu, .memory_permille = memory, .psi_cpu_permille = psi };
}

static void start(const struct fc_iface_opts *more)
{
	struct fc_iface_opts o = *more;

	if (!o.cap)
		o.cap = CAP;
	memset(calls, 0, sizeof(calls));
	memset(&sim, 0, sizeof(sim));
	make_health(300, 300, 10);
	guarded_open(&g, &o);
	assert_int_equal(fc_health_set_source(g.fc, supplied, NULL), 0);
	fc_tick(g.fc, FC_S(1));
	sim.low = o.cap;
	sim.high = o.cap * (o.expand ? o.expand : 4);
	sim.latency = FC_MS(100);
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < CALLS; i++)
		fc_exit(&calls[i].entry);
	return g.fc ? guarded_close(&g) : 0;
}

/* ---- the simulation: a step is a millisecond --------------------------------------------------- */

static void leave(void)
{
	for (int i = 0; i < CALLS; i++) {
		if (!calls[i].ends || calls[i].ends > g.now)
			continue;
		fc_exit(&calls[i].entry);
		calls[i].ends = 0;
		sim.running--;
		sim.left++;
	}
}

static uint64_t end_of_a_call(void)
{
	uint64_t ends = g.now + sim.latency;

	if (sim.served_ns) {
		sim.served_at = (sim.served_at > g.now ? sim.served_at : g.now) + sim.served_ns;
		if (sim.served_at > ends)
			ends = sim.served_at;
	}
	return ends;
}

static void come(void)
{
	unsigned i = 0;

	while (i < CALLS - 1 && calls[i].ends)
		i++;
	memset(&calls[i].entry, 0, sizeof(calls[i].entry));
	sim.came++;
	if (fc_enter(&calls[i].entry, g.f, NULL) != 0)
		return;
	calls[i].ends = end_of_a_call();
	sim.admitted++;
	sim.running++;
	sim.over += sim.running > fc_limit_get(g.f);
}

/* As an event loop does: when it said, or when its descriptor says. */
static int tick_is_due(void)
{
	struct pollfd woken = { .fd = fc_tick_fd(g.fc), .events = POLLIN };

	return g.now >= sim.next_tick || (sim.next_tick == FC_NEVER_NS && poll(&woken, 1, 0) == 1);
}

static void step(void)
{
	guarded_pass(&g, FC_MS(1));
	if (sim.trembles && g.now / FC_MS(1) % 2)
		fc_clock_set(g.fc, g.now - FC_MS(2));
	leave();
	for (sim.owed += sim.per_s * 1000000; sim.owed >= 1000000000; sim.owed -= 1000000000)
		come();
	if (tick_is_due())
		sim.next_tick = fc_tick(g.fc, FC_S(1));
	sim.over += fc_limit_get(g.f) < sim.low || fc_limit_get(g.f) > sim.high;
}

static void pass(uint64_t ns)
{
	for (uint64_t t = 0; t < ns; t += FC_MS(1))
		step();
	assert_int_equal(sim.over, 0);
}

/* Completions per second over that time. */
static uint64_t throughput(uint64_t ns)
{
	uint64_t before = sim.left;

	pass(ns);
	return (sim.left - before) * 1000 / (ns / 1000000);
}

static unsigned told(int kind)
{
	return guarded_events(&g, kind);
}

static struct fc_event last(int kind)
{
	const struct fc_event *e = guarded_last(&g, kind);

	return e ? *e : (struct fc_event){ .size = 0 };
}

static void pass_until(int kind, uint64_t at_most)
{
	unsigned before = told(kind);

	for (uint64_t t = 0; t < at_most && told(kind) == before; t += FC_MS(1))
		step();
	assert_int_equal(sim.over, 0);
	if (told(kind) == before)
		fail_msg("no %s within %u s", fc_event_name(kind), (unsigned)(at_most / FC_S(1)));
}

/* A little work, as before a restart. */
static void warm_up(void)
{
	sim.per_s = 50;
	pass(FC_S(5));
	assert_int_equal(fc_limit_get(g.f), sim.low);
}

/* ---- steps up ---------------------------------------------------------------------------------- */

static void a_pile_up_is_let_through_and_the_step_is_kept(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	warm_up();
	sim.per_s = 300; /* 30 places; the cap lets 100 a second through */
	pass(FC_S(8));
	assert_int_equal(fc_limit_get(g.f), 40);
	assert_int_equal(told(FC_EVENT_EXPANDED), 2);
	assert_int_equal(told(FC_EVENT_EXPAND_KEPT), 2);
	assert_int_equal(told(FC_EVENT_EXPAND_UNDONE), 0);
	assert_in_range(throughput(FC_S(5)), 295, 300);
	assert_int_equal(fc_limit_get(g.f), 40);
}

static void a_pile_up_at_the_start_is_let_through(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	sim.per_s = 300;
	pass(FC_S(8));
	assert_int_equal(told(FC_EVENT_EXPAND_UNDONE), 0);
	assert_in_range(throughput(FC_S(5)), 295, 300);
}

static void steps_are_told_with_what_they_did(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	warm_up();
	sim.per_s = 1000;
	pass_until(FC_EVENT_EXPANDED, FC_S(5));
	assert_int_equal(last(FC_EVENT_EXPANDED).a, CAP);
	assert_int_equal(last(FC_EVENT_EXPANDED).b, 2 * CAP);
	assert_string_equal(last(FC_EVENT_EXPANDED).iface, "guarded");
	pass_until(FC_EVENT_EXPAND_KEPT, FC_S(5));
	assert_true(last(FC_EVENT_EXPAND_KEPT).b > last(FC_EVENT_EXPAND_KEPT).a);
	assert_in_range(last(FC_EVENT_EXPAND_KEPT).b, 150, 220);
	pass(FC_S(5));
	/* As high as it may be: told once. */
	assert_int_equal(last(FC_EVENT_EXPAND_DENIED).b, FC_DENIED_AT_MOST);
	assert_int_equal(guarded_stats(&g).expansions, 2);
	assert_int_equal(guarded_stats(&g).expansions_undone, 0);
}

static void the_limit_goes_up_to_expand_times_the_cap(void **state)
{
	(void)state;
	for (uint32_t expand = 1; expand <= 4; expand++) {
		start(&(struct fc_iface_opts){ .expand = expand });
		sim.per_s = 2000;
		pass(FC_S(10));
		assert_int_equal(fc_limit_get(g.f), expand * CAP);
		assert_int_equal(told(FC_EVENT_EXPANDED), expand == 1 ? 0 : expand == 2 ? 1 : 2);
		assert_int_equal(teardown(state), 0);
	}
}

/* ---- a slow dependency ------------------------------------------------------------------------- */

/* It serves as many as the cap lets through, and no more. */
static void dependency_is_saturated(void)
{
	sim.served_ns = FC_MS(10);
	sim.per_s = 300;
}

static void assert_no_step_for_ten_windows(void)
{
	uint64_t undone = last(FC_EVENT_EXPAND_UNDONE).time_ns;
	unsigned steps = told(FC_EVENT_EXPANDED);

	assert_int_equal(fc_limit_get(g.f), CAP);
	while (g.now < undone + FC_S(10) - FC_MS(20))
		step();
	assert_int_equal(told(FC_EVENT_EXPANDED), steps);
	assert_int_equal(fc_limit_get(g.f), CAP);
	assert_int_equal(last(FC_EVENT_EXPAND_DENIED).b, FC_DENIED_UNDONE);
}

static void behind_a_saturated_dependency_the_step_is_undone_and_not_retried_soon(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	/* Saturated for a while before it may expand. */
	make_health(990, 300, 10);
	pass(FC_S(2));
	dependency_is_saturated();
	pass(FC_S(5));
	assert_int_equal(told(FC_EVENT_EXPANDED), 0);
	make_health(300, 300, 10);
	pass_until(FC_EVENT_EXPANDED, FC_S(10));
	pass_until(FC_EVENT_EXPAND_UNDONE, FC_S(10));
	assert_int_equal(told(FC_EVENT_EXPAND_KEPT), 0);
	assert_in_range(last(FC_EVENT_EXPAND_UNDONE).a, 95, 105);
	assert_in_range(last(FC_EVENT_EXPAND_UNDONE).b, 95, 105);
	assert_no_step_for_ten_windows();
	/* And then it is tried again, once. */
	pass_until(FC_EVENT_EXPANDED, FC_S(2));
	pass_until(FC_EVENT_EXPAND_UNDONE, FC_S(5));
	assert_int_equal(told(FC_EVENT_EXPAND_KEPT), 0);
}

/* That more comes through than before the rush is no evidence: the cap alone would have done it. */
static void a_rush_to_a_saturated_dependency_is_no_evidence(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	warm_up();
	dependency_is_saturated();
	pass(FC_S(8));
	assert_int_equal(fc_limit_get(g.f), CAP);
	assert_int_equal(told(FC_EVENT_EXPAND_KEPT), 0);
	assert_in_range(throughput(FC_S(2)), 98, 102);
}

static void a_saturated_dependency_at_the_start_is_no_evidence(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	dependency_is_saturated();
	pass(FC_S(8));
	assert_int_equal(fc_limit_get(g.f), CAP);
	assert_int_equal(told(FC_EVENT_EXPAND_KEPT), 0);
}

static void an_idle_time_before_is_no_evidence(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	warm_up();
	sim.per_s = 0;
	pass(FC_S(20));
	dependency_is_saturated();
	pass(FC_S(8));
	assert_int_equal(fc_limit_get(g.f), CAP);
	assert_int_equal(told(FC_EVENT_EXPAND_KEPT), 0);
}

static void with_keep_health_good_health_alone_keeps_a_step(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4, .expand_keep = FC_EXPAND_KEEP_HEALTH });
	dependency_is_saturated();
	pass(FC_S(10));
	assert_int_equal(fc_limit_get(g.f), 4 * CAP);
	assert_int_equal(told(FC_EVENT_EXPAND_UNDONE), 0);
	assert_int_equal(told(FC_EVENT_EXPAND_KEPT), 2);
}

static void lower_the_cap(const char *point)
{
	if (strcmp(point, "deciding") != 0 || atomic_load(&g.fc->ticking))
		return; /* a refused caller's */
	fci_test_point = NULL;
	assert_int_equal(fc_iface_set(g.fc, fc_iface_name(g.f), &(struct fc_iface_opts){ .size = sizeof(struct fc_iface_opts),
	                              .cap = CAP / 2, .expand = 1 }, NULL), 0);
}

/* Decided by the cap and the factor of before, nothing is put in force. */
static void a_cap_that_is_set_while_a_step_is_decided_stands(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4, .expand_keep = FC_EXPAND_KEEP_HEALTH });
	warm_up();
	sim.per_s = 300;
	sim.low = CAP / 2;
	fci_test_point = lower_the_cap;
	for (int i = 0; i < 5000 && fci_test_point; i++) {
		step();
		if (!fci_test_point)
			assert_int_equal(fc_limit_get(g.f), CAP / 2);
	}
	assert_null(fci_test_point);
}

/* With a window of one second, no call of the step would have left. */
static void a_good_step_of_slow_calls_is_kept(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	sim.latency = FC_S(3);
	sim.per_s = 2;
	pass(FC_S(20));
	sim.per_s = 10; /* 30 places */
	pass(FC_S(60));
	assert_int_equal(told(FC_EVENT_EXPAND_UNDONE), 0);
	assert_int_equal(told(FC_EVENT_EXPAND_KEPT), 2);
	assert_int_equal(fc_limit_get(g.f), 40);
	assert_in_range(throughput(FC_S(10)), 9, 10);
}

static void calls_of_three_seconds_behind_a_saturated_dependency_stay_at_the_cap(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	sim.latency = FC_S(3);
	sim.served_ns = FC_MS(300);
	sim.per_s = 10;
	pass(FC_S(60));
	assert_int_equal(told(FC_EVENT_EXPAND_KEPT), 0);
	assert_int_equal(fc_limit_get(g.f), CAP);
}

/* Nobody knows whether it would have helped; when demand is back it may be tried at once. */
static void a_step_that_demand_did_not_need_goes_back_without_a_rest(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	warm_up();
	for (int i = 0; i < 3; i++) {
		sim.per_s = 300;
		pass_until(FC_EVENT_EXPANDED, FC_S(5));
		sim.per_s = 20;
		pass_until(FC_EVENT_LIMIT_BACK, FC_S(5));
		assert_int_equal(last(FC_EVENT_LIMIT_BACK).a, 2 * CAP);
		assert_int_equal(last(FC_EVENT_LIMIT_BACK).b, CAP);
		assert_int_equal(fc_limit_get(g.f), CAP);
		assert_int_equal(told(FC_EVENT_EXPAND_UNDONE), 0);
	}
	assert_int_equal(guarded_stats(&g).expansions, 3);
	assert_int_equal(guarded_stats(&g).expansions_undone, 0);
	/* And then one that helps. */
	sim.per_s = 300;
	pass_until(FC_EVENT_EXPAND_KEPT, FC_S(5));
}

/* ---- no step ----------------------------------------------------------------------------------- */

static void in_bad_health_nothing_expands(void **state)
{
	static const uint32_t bad[][3] = { { 950, 300, 10 }, { 300, 950, 10 }, { 300, 300, 400 } };

	(void)state;
	for (int i = 0; i < 3; i++) {
		start(&(struct fc_iface_opts){ .expand = 4 });
		make_health(bad[i][0], bad[i][1], bad[i][2]);
		sim.per_s = 5;
		pass(FC_S(5));
		assert_true(fc_health_word(g.f) != 0);
		sim.per_s = 300;
		pass(FC_S(10));
		assert_int_equal(told(FC_EVENT_EXPANDED), 0);
		assert_int_equal(fc_limit_get(g.f), CAP);
		assert_int_equal((uint32_t)last(FC_EVENT_EXPAND_DENIED).b, FC_DENIED_HEALTH);
		assert_true(last(FC_EVENT_EXPAND_DENIED).b >> 32); /* what is not good */
		assert_int_equal(teardown(state), 0);
	}
}

static void a_source_that_fails_is_not_good_health(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	health.valid = 0;
	sim.per_s = 5;
	pass(FC_S(5));
	sim.per_s = 300;
	pass(FC_S(10));
	assert_int_equal(told(FC_EVENT_EXPANDED), 0);
}

static void a_pile_up_of_overdue_calls_gives_no_step(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4, .stuck_after_ns = FC_S(1), .writeoff = FC_WRITEOFF_NONE });
	warm_up();
	sim.latency = FC_S(1000);
	sim.per_s = 5; /* full after two seconds, when most are overdue */
	pass(FC_S(20));
	assert_int_equal(told(FC_EVENT_EXPANDED), 0);
	assert_int_equal(fc_limit_get(g.f), CAP);
	assert_int_equal(last(FC_EVENT_EXPAND_DENIED).b, FC_DENIED_OVERDUE);
}

static void expand_one_means_never(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 1 });
	sim.per_s = 1000;
	pass(FC_S(10));
	assert_int_equal(told(FC_EVENT_EXPANDED), 0);
	assert_int_equal(told(FC_EVENT_EXPAND_DENIED), 0);
	assert_in_range(throughput(FC_S(5)), 98, 100);
}

/* ---- back -------------------------------------------------------------------------------------- */

static void expand_fully(void)
{
	warm_up();
	sim.per_s = 300;
	pass(FC_S(8));
	assert_int_equal(fc_limit_get(g.f), 4 * CAP);
}

static void when_demand_falls_the_limit_steps_back_to_the_cap(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	expand_fully();
	sim.per_s = 20;
	pass(FC_S(6));
	assert_int_equal(fc_limit_get(g.f), CAP);
	assert_int_equal(told(FC_EVENT_LIMIT_BACK), 2);
	assert_int_equal(last(FC_EVENT_LIMIT_BACK).a, 2 * CAP);
	assert_int_equal(last(FC_EVENT_LIMIT_BACK).b, CAP);
}

static void while_demand_lasts_the_limit_stays(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	expand_fully();
	pass(FC_S(60));
	assert_int_equal(fc_limit_get(g.f), 4 * CAP);
	assert_int_equal(told(FC_EVENT_LIMIT_BACK), 0);
}

/* Nobody comes any more: housekeeping must not rest before the limit is back. */
static void when_calls_stop_the_limit_goes_back_to_the_cap(void **state)
{
	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		start(&(struct fc_iface_opts){ .expand = 4 });
		if (slow) {
			sim.latency = FC_S(3);
			sim.per_s = 2;
			pass(FC_S(20));
			sim.per_s = 10;
			pass(FC_S(60));
		} else {
			expand_fully();
		}
		assert_true(fc_limit_get(g.f) > CAP);
		sim.per_s = 0;
		pass(FC_S(60));
		assert_int_equal(fc_limit_get(g.f), CAP);
		assert_int_equal(sim.next_tick, FC_NEVER_NS);
		assert_int_equal(teardown(state), 0);
	}
}

static void when_health_turns_bad_the_limit_is_the_cap_at_once(void **state)
{
	uint64_t bad_at;
	unsigned running;

	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	expand_fully();
	make_health(300, 990, 10); /* memory is not smoothed */
	pass_until(FC_EVENT_HEALTH_BAD, FC_S(2));
	bad_at = g.now;
	running = sim.running;
	while (fc_limit_get(g.f) > CAP && g.now < bad_at + FC_S(2))
		step();
	assert_int_equal(fc_limit_get(g.f), CAP);
	assert_in_range(g.now - bad_at, 0, FC_MS(1));
	/* Those inside go on; nobody new comes in before they are fewer. */
	assert_in_range(sim.running, CAP + 1, running);
	pass(FC_S(1));
	assert_in_range(sim.running, 0, CAP);
	assert_int_equal(told(FC_EVENT_LIMIT_UNHEALTHY), 1);
	assert_int_equal(last(FC_EVENT_LIMIT_UNHEALTHY).a, 4 * CAP);
	assert_int_equal(last(FC_EVENT_LIMIT_UNHEALTHY).b, CAP);
	make_health(300, 300, 10);
	pass(FC_S(15));
	assert_int_equal(fc_limit_get(g.f), 4 * CAP);
}

/* ---- changed by hand meanwhile ----------------------------------------------------------------- */

static void an_undone_step_does_not_raise_a_cap_that_was_lowered_meanwhile(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .cap = 40, .expand = 2 });
	sim.low = 5;
	make_health(990, 300, 10);
	pass(FC_S(2));
	sim.served_ns = FC_MS(10);
	sim.per_s = 600;
	pass(FC_S(5));
	make_health(300, 300, 10);
	pass_until(FC_EVENT_EXPANDED, FC_S(10));
	assert_int_equal(fc_limit_get(g.f), 80);
	assert_int_equal(fc_iface_set_cap(g.f, 10), 0);
	assert_int_equal(fc_limit_get(g.f), 10);
	sim.low = 10;
	sim.high = 20;
	pass(FC_S(30));
	assert_in_range(fc_limit_get(g.f), 10, 20);
}

/* A file that is loaded again with the same numbers is not news. */
static void setting_the_same_numbers_again_keeps_the_limit(void **state)
{
	FC_OPTS(fc_iface_opts, same, .cap = CAP, .expand = 4);

	(void)state;
	start(&same);
	expand_fully();
	assert_int_equal(fc_iface_set(g.fc, "guarded", &same, NULL), 0);
	assert_int_equal(fc_limit_get(g.f), 4 * CAP);
	assert_int_equal(fc_iface_set_dry_run(g.f, 0), 0);
	assert_int_equal(fc_limit_get(g.f), 4 * CAP);
	same.expand = 2;
	assert_int_equal(fc_iface_set(g.fc, "guarded", &same, NULL), 0);
	assert_in_range(fc_limit_get(g.f), CAP, 2 * CAP); /* at once, whoever ticks */
	pass(FC_S(1));
	assert_in_range(fc_limit_get(g.f), CAP, 2 * CAP);
}

static void a_cap_of_zero_does_not_expand(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .cap = FC_CAP_REFUSE_ALL, .expand = 4 });
	sim.low = sim.high = 0;
	sim.per_s = 300;
	pass(FC_S(10));
	assert_int_equal(sim.admitted, 0);
	assert_int_equal(told(FC_EVENT_EXPANDED), 0);
}

/* ---- time -------------------------------------------------------------------------------------- */

/* sentinel-golang 409, MediaWiki-MCP-Server 557: the clock was set back, and callers were locked out. */
static void a_clock_that_goes_back_locks_no_step_out(void **state)
{
	static const uint64_t back[] = { FC_MS(1), FC_S(1), FC_S(900) };

	(void)state;
	for (int i = 0; i < 3; i++) {
		start(&(struct fc_iface_opts){ .expand = 4 });
		warm_up();
		sim.per_s = 300;
		pass_until(FC_EVENT_EXPANDED, FC_S(5)); /* it is being judged */
		for (int k = 0; k < CALLS; k++)
			calls[k].ends = calls[k].ends ? calls[k].ends - back[i] : 0;
		sim.next_tick = 0;
		g.now -= back[i];
		fc_clock_set(g.fc, g.now);
		pass(FC_S(40));
		assert_int_equal(fc_limit_get(g.f), 4 * CAP);
		assert_in_range(throughput(FC_S(2)), 290, 300);
		assert_int_equal(teardown(state), 0);
	}
}

static void a_clock_that_trembles_changes_nothing(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	warm_up();
	sim.trembles = 1;
	sim.per_s = 300;
	pass(FC_S(8));
	assert_int_equal(fc_limit_get(g.f), 4 * CAP);
	assert_int_equal(told(FC_EVENT_EXPAND_UNDONE), 0);
	assert_in_range(throughput(FC_S(5)), 290, 300);
}

static void a_jump_of_ten_years_lets_nobody_in_over_the_limit(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4, .writeoff = FC_WRITEOFF_NONE });
	expand_fully();
	guarded_pass(&g, 10 * YEAR);
	pass(FC_S(60));
	assert_in_range(fc_limit_get(g.f), CAP, 4 * CAP);
	assert_true(throughput(FC_S(10)) >= 99);
	sim.per_s = 0;
	pass(FC_S(60));
	assert_int_equal(fc_limit_get(g.f), CAP);
	assert_int_equal(fc_inside(g.f, NULL), 0);
}

/* bucket4j 51: a long idle time overflowed. */
static void three_hundred_idle_years_change_nothing(void **state)
{
	(void)state;
	start(&(struct fc_iface_opts){ .expand = 4 });
	expand_fully();
	sim.per_s = 0;
	pass(FC_S(60));
	guarded_pass(&g, 300 * YEAR);
	pass(FC_S(1));
	assert_int_equal(fc_limit_get(g.f), CAP);
	sim.next_tick = 0;
	sim.per_s = 300;
	pass(FC_S(15));
	assert_int_equal(fc_limit_get(g.f), 4 * CAP);
	assert_in_range(throughput(FC_S(5)), 290, 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_pile_up_is_let_through_and_the_step_is_kept, teardown),
		cmocka_unit_test_teardown(a_pile_up_at_the_start_is_let_through, teardown),
		cmocka_unit_test_teardown(steps_are_told_with_what_they_did, teardown),
		cmocka_unit_test_teardown(the_limit_goes_up_to_expand_times_the_cap, teardown),
		cmocka_unit_test_teardown(behind_a_saturated_dependency_the_step_is_undone_and_not_retried_soon, teardown),
		cmocka_unit_test_teardown(a_rush_to_a_saturated_dependency_is_no_evidence, teardown),
		cmocka_unit_test_teardown(a_saturated_dependency_at_the_start_is_no_evidence, teardown),
		cmocka_unit_test_teardown(an_idle_time_before_is_no_evidence, teardown),
		cmocka_unit_test_teardown(a_cap_that_is_set_while_a_step_is_decided_stands, teardown),
		cmocka_unit_test_teardown(with_keep_health_good_health_alone_keeps_a_step, teardown),
		cmocka_unit_test_teardown(a_good_step_of_slow_calls_is_kept, teardown),
		cmocka_unit_test_teardown(a_step_that_demand_did_not_need_goes_back_without_a_rest, teardown),
		cmocka_unit_test_teardown(calls_of_three_seconds_behind_a_saturated_dependency_stay_at_the_cap, teardown),
		cmocka_unit_test_teardown(in_bad_health_nothing_expands, teardown),
		cmocka_unit_test_teardown(a_source_that_fails_is_not_good_health, teardown),
		cmocka_unit_test_teardown(a_pile_up_of_overdue_calls_gives_no_step, teardown),
		cmocka_unit_test_teardown(expand_one_means_never, teardown),
		cmocka_unit_test_teardown(when_demand_falls_the_limit_steps_back_to_the_cap, teardown),
		cmocka_unit_test_teardown(while_demand_lasts_the_limit_stays, teardown),
		cmocka_unit_test_teardown(when_calls_stop_the_limit_goes_back_to_the_cap, teardown),
		cmocka_unit_test_teardown(when_health_turns_bad_the_limit_is_the_cap_at_once, teardown),
		cmocka_unit_test_teardown(an_undone_step_does_not_raise_a_cap_that_was_lowered_meanwhile, teardown),
		cmocka_unit_test_teardown(setting_the_same_numbers_again_keeps_the_limit, teardown),
		cmocka_unit_test_teardown(a_cap_of_zero_does_not_expand, teardown),
		cmocka_unit_test_teardown(a_clock_that_goes_back_locks_no_step_out, teardown),
		cmocka_unit_test_teardown(a_clock_that_trembles_changes_nothing, teardown),
		cmocka_unit_test_teardown(a_jump_of_ten_years_lets_nobody_in_over_the_limit, teardown),
		cmocka_unit_test_teardown(three_hundred_idle_years_change_nothing, teardown),
	};

	return cmocka_run_group_tests_name("cap", tests, NULL, NULL);
}
