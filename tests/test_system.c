/* SPDX-License-Identifier: BSD-2-Clause */
/* Bounds of the whole process: which calls are refused, when the level moves, what is measured. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/alloc.h"
#include "support/locker.h"
#include "system.h"

#define PERIOD FC_MS(250)

static struct counting_alloc counted;
static struct fc *fc;
static struct fc_iface *plain, *lesser, *least, *outbound;
static struct fc_health_sample given;
static struct { int on, off; uint64_t a, b; } told;

static int source(void *arg, struct fc_health_sample *ret)
{
	(void)arg;
	ret->valid = given.valid;
	ret->cpu_permille = given.cpu_permille;
	ret->load1_permille = given.load1_permille;
	ret->cpus = given.cpus;
	return 0;
}

static void on_event(void *arg, const struct fc_event *event)
{
	(void)arg;
	told.on += event->kind == FC_EVENT_SYSTEM_ON;
	told.off += event->kind == FC_EVENT_SYSTEM_OFF;
	if (event->kind == FC_EVENT_SYSTEM_ON) {
		told.a = event->a;
		told.b = event->b;
	}
}

static struct fc_iface *make(const char *name, uint32_t importance, uint32_t flags)
{
	FC_OPTS(fc_iface_opts, o, .importance = importance, .flags = flags, .latency = FC_LATENCY_EXACT);
	struct fc_iface *f = NULL;

	assert_int_equal(fc_iface_set(fc, name, &o, &f), 0);
	return f;
}

static int setup(void **state)
{
	struct fc_alloc alloc = counting_alloc_init(&counted);
	FC_OPTS(fc_health_opts, health, .half_life_ns = 1);
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .alloc = &alloc, .health = &health, .on_event = on_event);

	(void)state;
	memset(&given, 0, sizeof(given));
	memset(&told, 0, sizeof(told));
	given.valid = FC_HEALTH_CPU | FC_HEALTH_LOAD1;
	given.cpu_permille = 100;
	given.cpus = 4;
	assert_int_equal(fc_create(&fc, &o), 0);
	fc_clock_set(fc, FC_S(1000));
	assert_int_equal(fc_health_set_source(fc, source, NULL), 0);
	plain = make("plain", 0, 0);
	lesser = make("lesser", 3, 0);
	least = make("least", 7, 0);
	outbound = make("outbound", 7, FC_IFACE_OUTBOUND);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fc_destroy(fc);
	assert_int_equal(counted.live, 0);
	assert_int_equal(counted.bad_frees, 0);
	return 0;
}

/* One call, with a priority; its verdict. */
static int call(struct fc_iface *f, uint32_t priority)
{
	FC_OPTS(fc_ctx, ctx, .priority = priority);
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter(&e, f, priority ? &ctx : NULL);

	fc_exit(&e);
	return rc;
}

/* Periods pass, with a call in each so that nobody sleeps; housekeeping does the rest. */
static void periods(int n)
{
	while (n-- > 0) {
		fc_clock_advance(fc, PERIOD);
		(void)call(plain, 0);
		fc_tick(fc, FC_S(1));
	}
}

static void bounds(const struct fc_system_opts *o)
{
	periods(1);
	assert_int_equal(fc_system_set(fc, o), 0);
}

static uint32_t level(void)
{
	return fc_system_level(fc);
}

static void bad_bounds_change_nothing(void **state)
{
	FC_OPTS(fc_system_opts, o, .keep = 8);
	struct { struct fc_system_opts o; uint64_t more; } newer = { { .size = sizeof(newer) }, 0 };

	(void)state;
	assert_int_equal(fc_system_set(NULL, NULL), -EINVAL);
	assert_int_equal(fc_system_set(fc, &o), -EINVAL);
	o.keep = 0;
	o.resv = 1;
	assert_int_equal(fc_system_set(fc, &o), -EINVAL);
	o.resv = 0;
	o.size = 8;
	assert_int_equal(fc_system_set(fc, &o), -EINVAL);
	assert_int_equal(fc_system_set(fc, &newer.o), 0);
	newer.more = 1;
	assert_int_equal(fc_system_set(fc, &newer.o), -E2BIG);
	assert_int_equal(fc_system_set(fc, NULL), 0);
	assert_int_equal(level(), 8);
	assert_int_equal(fc_system_level(NULL), 8);
	assert_null(fc->system);
}

static void no_memory_is_told(void **state)
{
	FC_OPTS(fc_system_opts, o, .cpu_permille = 1);

	(void)state;
	counted.fail_at = counted.calls + 1;
	assert_int_equal(fc_system_set(fc, &o), -ENOMEM);
	given.cpu_permille = 1000;
	periods(3);
	assert_int_equal(level(), 8);
	assert_int_equal(fc_system_set(fc, &o), 0);
}

static void answers_a_step_of_the_cpu_within_two_periods(void **state)
{
	FC_OPTS(fc_system_opts, o, .cpu_permille = 800);

	(void)state;
	bounds(&o);
	given.cpu_permille = 800; /* at the bound is not over it */
	periods(5);
	assert_int_equal(level(), 8);
	assert_int_equal(call(least, 0), 0);
	given.cpu_permille = 801;
	periods(2);
	assert_in_range(level(), 6, 7);
	assert_int_equal(call(least, 0), FC_REFUSED_SYSTEM);
	assert_int_equal(told.on, 1);
	assert_int_equal(told.a, FC_SYSTEM_CPU);
}

static void goes_down_one_class_a_period_and_spares_what_is_to_be_kept(void **state)
{
	FC_OPTS(fc_system_opts, o, .cpu_permille = 500, .keep = 2);

	(void)state;
	bounds(&o);
	given.cpu_permille = 900;
	for (uint32_t want = 7; want >= 3; want--) {
		periods(1);
		assert_int_equal(level(), want);
	}
	periods(10);
	assert_int_equal(level(), 3);
	assert_int_equal(call(plain, 2), 0);
	assert_int_equal(call(plain, 3), FC_REFUSED_SYSTEM);
	assert_int_equal(call(lesser, 0), FC_REFUSED_SYSTEM);
}

static void comes_back_one_class_each_four_periods(void **state)
{
	FC_OPTS(fc_system_opts, o, .cpu_permille = 500);

	(void)state;
	bounds(&o);
	given.cpu_permille = 900;
	periods(3);
	assert_int_equal(level(), 5);
	given.cpu_permille = 100;
	for (uint32_t was = 5; was < 8; was++) {
		periods(3);
		assert_int_equal(level(), was);
		assert_int_equal(told.off, 0);
		periods(1);
		assert_int_equal(level(), was + 1);
	}
	periods(1);
	assert_int_equal(told.off, 1);
	assert_int_equal(call(least, 7), 0);
	/* With nothing refused the plain way in is the plain one again. */
	assert_int_equal(atomic_load(&fc->head->control), 0);
}

/* A bound that is passed now and then never lets the next class in. */
static void calm_begins_anew_with_every_passing(void **state)
{
	FC_OPTS(fc_system_opts, o, .cpu_permille = 500, .keep = 5);

	(void)state;
	bounds(&o);
	given.cpu_permille = 900;
	periods(5);
	for (int i = 0; i < 5; i++) {
		given.cpu_permille = 100;
		periods(3);
		assert_int_equal(level(), 6);
		given.cpu_permille = 900;
		periods(1);
		assert_int_equal(level(), 6);
	}
}

static void class_is_the_lesser_of_interface_and_call(void **state)
{
	FC_OPTS(fc_ctx, ctx, .priority = 0);
	struct fc_ctx *c = &ctx;
	uint32_t control = FCI_CONTROL_SYSTEM | 4u << 8;

	(void)state;
	assert_false(fci_system_refuses(lesser, c, control));
	ctx.priority = 4;
	assert_true(fci_system_refuses(lesser, c, control));
	assert_true(fci_system_refuses(plain, c, control));
	ctx.priority = 0;
	assert_false(fci_system_refuses(plain, c, control));
	assert_true(fci_system_refuses(least, c, control));
	ctx.priority = 7;
	assert_false(fci_system_refuses(outbound, c, control));
}

static void outbound_calls_are_left_alone(void **state)
{
	FC_OPTS(fc_system_opts, o, .cpu_permille = 500);

	(void)state;
	bounds(&o);
	given.cpu_permille = 900;
	periods(10);
	assert_int_equal(level(), 1);
	assert_int_equal(call(outbound, 7), 0);
	assert_int_equal(call(plain, 0), 0);
	assert_int_equal(call(plain, 1), FC_REFUSED_SYSTEM);
}

static void a_refusal_says_why(void **state)
{
	FC_OPTS(fc_system_opts, o, .cpu_permille = 500);
	FC_OPTS(fc_decision, d, .status = 0);
	FC_OPTS(fc_stats, s, .cap = 0);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	bounds(&o);
	given.cpu_permille = 900;
	periods(2);
	assert_int_equal(fc_enter(&e, least, NULL), FC_REFUSED_SYSTEM);
	assert_int_equal(fc_entry_decision(&e, &d), 0);
	assert_int_equal(d.status, FC_REFUSED_SYSTEM);
	assert_string_equal(d.rule, "system");
	assert_true(d.retry_after_ns > 0);
	assert_int_equal(fc_iface_stats(least, &s), 0);
	assert_int_equal(s.refused[FC_REFUSED_SYSTEM], 1);
}

static void load_is_per_cpu(void **state)
{
	FC_OPTS(fc_system_opts, o, .load_permille = 1500);

	(void)state;
	bounds(&o);
	given.load1_permille = 6000; /* 4 CPUs */
	periods(3);
	assert_int_equal(level(), 8);
	given.load1_permille = 6004;
	periods(1);
	assert_int_equal(level(), 7);
	assert_int_equal(told.a, FC_SYSTEM_LOAD);
}

static void a_number_that_is_not_known_passes_no_bound(void **state)
{
	FC_OPTS(fc_system_opts, o, .cpu_permille = 1, .load_permille = 1);

	(void)state;
	bounds(&o);
	given.valid = 0;
	given.load1_permille = 100000;
	given.cpu_permille = 1000;
	periods(5);
	assert_int_equal(level(), 8);
	given.valid = FC_HEALTH_LOAD1;
	given.cpus = 0;
	periods(5);
	assert_int_equal(level(), 8);
}

static void counts_calls_inside_over_all_inbound_interfaces(void **state)
{
	FC_OPTS(fc_system_opts, o, .in_flight = 5);
	struct fc_entry in[6] = { FC_ENTRY_INIT }, out[10] = { FC_ENTRY_INIT };

	(void)state;
	bounds(&o);
	for (int i = 0; i < 10; i++)
		assert_int_equal(fc_enter(&out[i], outbound, NULL), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(fc_enter(&in[i], i % 2 ? plain : lesser, NULL), 0);
	periods(3);
	assert_int_equal(level(), 8);
	assert_int_equal(fc_enter(&in[5], lesser, NULL), 0);
	periods(1);
	assert_int_equal(level(), 7);
	assert_int_equal(told.a, FC_SYSTEM_IN_FLIGHT);
	for (int i = 0; i < 6; i++)
		fc_exit(&in[i]);
	for (int i = 0; i < 10; i++)
		fc_exit(&out[i]);
	periods(4);
	assert_int_equal(level(), 8);
}

static void many(struct fc_iface *f, int n)
{
	while (n-- > 0)
		(void)call(f, 0);
}

static void counts_admitted_calls_a_second(void **state)
{
	FC_OPTS(fc_system_opts, o, .rate_per_s = 100);

	(void)state;
	many(plain, 5000); /* before there was a bound */
	bounds(&o);
	for (int i = 0; i < 5; i++) {
		many(plain, 14); /* with the one of periods(), 25 a quarter of a second */
		many(lesser, 10);
		many(outbound, 50);
		periods(1);
		assert_int_equal(level(), 8);
	}
	many(lesser, 25);
	periods(1);
	assert_int_equal(level(), 7);
	assert_int_equal(told.a, FC_SYSTEM_RATE);
	for (int i = 0; i < 4; i++) {
		many(least, 50); /* refused: not admitted */
		periods(1);
	}
	assert_int_equal(level(), 8);
}

static void an_interface_that_turns_inbound_brings_no_past(void **state)
{
	FC_OPTS(fc_iface_opts, inbound, .importance = 7, .latency = FC_LATENCY_EXACT);
	FC_OPTS(fc_system_opts, o, .rate_per_s = 100);

	(void)state;
	bounds(&o);
	many(outbound, 5000);
	periods(1);
	assert_int_equal(fc_iface_set(fc, "outbound", &inbound, NULL), 0);
	many(outbound, 1);
	periods(1);
	assert_int_equal(level(), 8);
	many(outbound, 100);
	periods(1);
	assert_int_equal(level(), 7);
}

static void slow(struct fc_iface *f, uint64_t ns)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)!fc_enter(&e, f, NULL);
	fc_clock_advance(fc, ns);
	fc_exit(&e);
}

static void averages_latency_over_the_calls_of_a_period(void **state)
{
	FC_OPTS(fc_system_opts, o, .avg_latency_ns = FC_MS(10));

	(void)state;
	for (int i = 0; i < 20; i++)
		slow(plain, FC_MS(50)); /* before there was a bound */
	bounds(&o);
	periods(1);
	for (int i = 0; i < 20; i++)
		slow(outbound, FC_MS(50));
	slow(lesser, FC_MS(20));
	many(plain, 8);
	fc_clock_advance(fc, PERIOD);
	fc_tick(fc, FC_S(1));
	assert_int_equal(level(), 8); /* 20 ms of 9 calls */
	for (int i = 0; i < 4; i++)
		slow(lesser, FC_MS(20));
	many(plain, 2);
	fc_clock_advance(fc, PERIOD);
	fc_tick(fc, FC_S(1));
	assert_int_equal(level(), 7);
	assert_int_equal(told.a, FC_SYSTEM_LATENCY);
}

/* Interfaces are sampled at rates of their own: an interface weighs as much as the calls that left it. */
static void a_sample_stands_for_all_calls_it_was_taken_from(void **state)
{
	FC_OPTS(fc_iface_opts, sampled, .latency = FC_LATENCY_SAMPLED);
	FC_OPTS(fc_system_opts, o, .avg_latency_ns = FC_MS(10));

	(void)state;
	assert_int_equal(fc_iface_set(fc, "lesser", &sampled, NULL), 0);
	bounds(&o);
	periods(1);
	atomic_store(&lesser->gate->sample, UINT64_MAX);
	slow(lesser, FC_MS(20));
	atomic_store(&lesser->gate->sample, 0);
	for (int i = 0; i < 9; i++)
		slow(lesser, FC_MS(20));
	many(plain, 5);
	fc_clock_advance(fc, PERIOD);
	(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX);
	assert_int_equal(level(), 7); /* 200 ms of 15 calls */
	many(plain, 20);
	slow(lesser, FC_MS(1)); /* not sampled: nothing is known of it */
	fc_clock_advance(fc, PERIOD);
	(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX);
	assert_int_equal(level(), 7);
}

static void ignore(struct fc_iface *f, int n)
{
	while (n-- > 0) {
		struct fc_entry e = FC_ENTRY_INIT;

		assert_int_equal(fc_enter(&e, f, NULL), 0);
		fc_entry_mark(&e, FC_OUTCOME_IGNORED);
		fc_exit(&e);
	}
}

static void ignored_calls_give_no_weight(void **state)
{
	FC_OPTS(fc_system_opts, o, .avg_latency_ns = FC_MS(10));

	(void)state;
	bounds(&o);
	periods(1);
	slow(lesser, FC_MS(15));
	ignore(lesser, 20);
	slow(plain, FC_MS(1));
	fc_clock_advance(fc, PERIOD);
	(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX);
	assert_int_equal(level(), 8); /* 16 ms of 2 calls */
	slow(lesser, FC_MS(30));
	ignore(plain, 20);
	slow(plain, FC_MS(1));
	fc_clock_advance(fc, PERIOD);
	(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX);
	assert_int_equal(level(), 7); /* 31 ms of 2 calls */
}

static void bounds_taken_away_let_everybody_in_at_once(void **state)
{
	FC_OPTS(fc_system_opts, o, .cpu_permille = 500);

	(void)state;
	bounds(&o);
	given.cpu_permille = 900;
	periods(4);
	assert_int_equal(call(least, 0), FC_REFUSED_SYSTEM);
	assert_int_equal(fc_system_set(fc, NULL), 0);
	assert_int_equal(level(), 8);
	assert_int_equal(call(least, 0), 0);
	periods(5);
	assert_int_equal(level(), 8);
	assert_int_equal(told.off, 1);
}

static void a_higher_keep_holds_at_once(void **state)
{
	FC_OPTS(fc_system_opts, o, .cpu_permille = 500);

	(void)state;
	bounds(&o);
	given.cpu_permille = 900;
	periods(10);
	assert_int_equal(level(), 1);
	o.keep = 4;
	assert_int_equal(fc_system_set(fc, &o), 0);
	assert_int_equal(level(), 5);
	assert_int_equal(call(plain, 4), 0);
	assert_int_equal(call(plain, 5), FC_REFUSED_SYSTEM);
}

static void the_off_switch_is_not_disturbed(void **state)
{
	FC_OPTS(fc_system_opts, o, .cpu_permille = 500);

	(void)state;
	bounds(&o);
	fc_off_set(fc, 1);
	given.cpu_permille = 900;
	fc_clock_advance(fc, PERIOD);
	(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX); /* health was not sampled: nothing yet */
	assert_int_equal(fc_off_get(fc), 1);
	fc_off_set(fc, 0);
	periods(3);
	assert_true(level() < 8);
	fc_off_set(fc, 1);
	assert_int_equal(call(least, 0), 0);
	assert_true(level() < 8);
	fc_off_set(fc, 0);
	assert_int_equal(call(least, 0), FC_REFUSED_SYSTEM);
	fc_off_set(fc, 1);
	assert_int_equal(fc_system_set(fc, NULL), 0);
	assert_int_equal(fc_off_get(fc), 1);
	assert_int_equal(level(), 8);
}

static void a_rest_without_calls_counts_as_calm(void **state)
{
	FC_OPTS(fc_system_opts, o, .in_flight = 1);
	struct fc_entry e[2] = { FC_ENTRY_INIT };

	(void)state;
	bounds(&o);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fc_enter(&e[i], plain, NULL), 0);
	periods(6);
	assert_int_equal(level(), 2);
	for (int i = 0; i < 2; i++)
		fc_exit(&e[i]);
	fc_clock_advance(fc, FC_S(60));
	(void)call(plain, 0);
	fc_tick(fc, FC_S(1));
	assert_int_equal(level(), 8);
}

static void looks_that_come_too_soon_move_nothing(void **state)
{
	FC_OPTS(fc_system_opts, o, .in_flight = 1);
	struct fc_entry e[2] = { FC_ENTRY_INIT };

	(void)state;
	bounds(&o);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fc_enter(&e[i], plain, NULL), 0);
	periods(1);
	assert_int_equal(level(), 7);
	for (int i = 0; i < 20; i++) {
		fc_clock_advance(fc, FC_MS(1));
		(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX);
	}
	assert_int_equal(level(), 7);
	for (int i = 0; i < 2; i++)
		fc_exit(&e[i]);
}

static void a_clock_that_goes_back_is_no_flood_and_holds_nothing_up(void **state)
{
	FC_OPTS(fc_system_opts, o, .rate_per_s = 1000);

	(void)state;
	bounds(&o);
	periods(2);
	many(plain, 100);
	fc_clock_set(fc, FC_S(10));
	(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX);
	assert_int_equal(level(), 8);
	for (uint32_t want = 7; want > 4; want--) {
		many(plain, 300);
		fc_clock_advance(fc, PERIOD);
		(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX);
		assert_int_equal(level(), want);
	}
	fc_clock_set(fc, FC_S(1));
	(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX);
	assert_int_equal(level(), 5); /* one period's calm at most */
}

static void set_up_under_way_delays_the_look(void **state)
{
	FC_OPTS(fc_system_opts, o, .in_flight = 1);
	struct fc_entry e[2] = { FC_ENTRY_INIT };
	struct locker l;

	(void)state;
	bounds(&o);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fc_enter(&e[i], plain, NULL), 0);
	locker_start(&l, &fc->setup);
	fc_clock_advance(fc, PERIOD);
	(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX);
	locker_end(&l);
	assert_int_equal(level(), 8);
	(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX);
	assert_int_equal(level(), 7);
	for (int i = 0; i < 2; i++)
		fc_exit(&e[i]);
}

/* Bounds that come later begin with what is then. */
static void a_bound_that_is_added_brings_no_past(void **state)
{
	FC_OPTS(fc_system_opts, o, .in_flight = 1000);

	(void)state;
	bounds(&o);
	many(plain, 5000);
	periods(3);
	o.rate_per_s = 100;
	assert_int_equal(fc_system_set(fc, &o), 0);
	periods(4);
	assert_int_equal(level(), 8);
	many(plain, 100);
	periods(1);
	assert_int_equal(level(), 7);
}

static void an_interface_that_slept_brings_no_past(void **state)
{
	FC_OPTS(fc_system_opts, o, .rate_per_s = 100);

	(void)state;
	many(lesser, 5000);
	periods(20);
	assert_true(atomic_load(&lesser->gate->word) & FCI_GATE_ASLEEP);
	bounds(&o);
	periods(4);
	many(lesser, 1);
	periods(2);
	assert_int_equal(level(), 8);
	many(lesser, 100);
	periods(1);
	assert_int_equal(level(), 7);
}

/* A look that has no time for more than one interface a tick: it ends, and others set up in between. */
static void a_look_goes_on_from_tick_to_tick(void **state)
{
	FC_OPTS(fc_system_opts, o, .in_flight = 1);
	struct fc_entry e[2] = { FC_ENTRY_INIT };
	unsigned ticks = 1;
	struct locker l;

	(void)state;
	bounds(&o);
	assert_int_equal(fc_enter(&e[0], plain, NULL), 0);
	assert_int_equal(fc_enter(&e[1], lesser, NULL), 0);
	fc_clock_advance(fc, PERIOD);
	while (fci_system_tick(fc, fc_now_ns(fc), 0) != FC_NEVER_NS) {
		locker_start(&l, &fc->setup); /* it is free */
		locker_end(&l);
		assert_int_equal(level(), 8);
		ticks++;
	}
	assert_int_equal(ticks, 5); /* of four interfaces, and to see that there are no more */
	assert_int_equal(level(), 7);
	fc_exit(&e[0]);
	fc_exit(&e[1]);
}

#define MANY 200u

/* All of it by fc_tick(): with a short budget it takes more of them, and finds the same. */
static void a_small_budget_delays_a_look_and_does_not_lose_it(void **state)
{
	FC_OPTS(fc_system_opts, o, .in_flight = MANY - 1);
	static struct fc_entry e[MANY];
	unsigned ticks = 0;
	uint64_t next;

	(void)state;
	bounds(&o);
	for (uint32_t i = 0; i < MANY; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", i);
		memset(&e[i], 0, sizeof(e[i]));
		assert_int_equal(fc_enter(&e[i], make(name, 0, 0), NULL), 0);
	}
	fc_clock_advance(fc, 2 * PERIOD);
	do {
		next = fc_tick(fc, FC_US(20));
		assert_true(++ticks < 100 * MANY);
	} while (next <= fc_now_ns(fc));
	assert_true(ticks > 1);
	assert_int_equal(level(), 7);
	assert_int_equal(told.a, FC_SYSTEM_IN_FLIGHT);
	for (uint32_t i = 0; i < MANY; i++)
		fc_exit(&e[i]);
}

static void bounds_taken_away_end_a_look(void **state)
{
	FC_OPTS(fc_system_opts, o, .in_flight = 1);
	struct fc_entry e[2] = { FC_ENTRY_INIT };

	(void)state;
	bounds(&o);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fc_enter(&e[i], plain, NULL), 0);
	fc_clock_advance(fc, PERIOD);
	assert_true(fci_system_tick(fc, fc_now_ns(fc), 0) != FC_NEVER_NS);
	assert_int_equal(fc_system_set(fc, NULL), 0);
	assert_true(fci_system_tick(fc, fc_now_ns(fc), 0) == FC_NEVER_NS);
	assert_int_equal(level(), 8);
	for (int i = 0; i < 2; i++)
		fc_exit(&e[i]);
}

/* What the parent's look had found is not inside in the child. */
static void the_child_of_a_fork_looks_from_the_beginning(void **state)
{
	FC_OPTS(fc_system_opts, o, .in_flight = 1);
	struct fc_entry e[2] = { FC_ENTRY_INIT };
	int status;
	pid_t pid;

	(void)state;
	bounds(&o);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fc_enter(&e[i], plain, NULL), 0);
	fc_clock_advance(fc, PERIOD);
	assert_true(fci_system_tick(fc, fc_now_ns(fc), 0) != FC_NEVER_NS);
	pid = fork();
	if (pid == 0) {
		(void)fci_system_tick(fc, fc_now_ns(fc), UINT64_MAX);
		_exit((int)level());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 8);
	for (int i = 0; i < 2; i++)
		fc_exit(&e[i]);
}

#define T(name_) cmocka_unit_test_setup_teardown(name_, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(bad_bounds_change_nothing),
		T(no_memory_is_told),
		T(answers_a_step_of_the_cpu_within_two_periods),
		T(goes_down_one_class_a_period_and_spares_what_is_to_be_kept),
		T(comes_back_one_class_each_four_periods),
		T(calm_begins_anew_with_every_passing),
		T(class_is_the_lesser_of_interface_and_call),
		T(outbound_calls_are_left_alone),
		T(a_refusal_says_why),
		T(load_is_per_cpu),
		T(a_number_that_is_not_known_passes_no_bound),
		T(counts_calls_inside_over_all_inbound_interfaces),
		T(counts_admitted_calls_a_second),
		T(an_interface_that_turns_inbound_brings_no_past),
		T(averages_latency_over_the_calls_of_a_period),
		T(a_sample_stands_for_all_calls_it_was_taken_from),
		T(ignored_calls_give_no_weight),
		T(bounds_taken_away_let_everybody_in_at_once),
		T(a_higher_keep_holds_at_once),
		T(the_off_switch_is_not_disturbed),
		T(a_rest_without_calls_counts_as_calm),
		T(looks_that_come_too_soon_move_nothing),
		T(a_clock_that_goes_back_is_no_flood_and_holds_nothing_up),
		T(set_up_under_way_delays_the_look),
		T(a_bound_that_is_added_brings_no_past),
		T(an_interface_that_slept_brings_no_past),
		T(a_look_goes_on_from_tick_to_tick),
		T(a_small_budget_delays_a_look_and_does_not_lose_it),
		T(bounds_taken_away_end_a_look),
		T(the_child_of_a_fork_looks_from_the_beginning),
	};

	return cmocka_run_group_tests_name("system", tests, NULL, NULL);
}
