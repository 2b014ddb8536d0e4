/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Clocks: when the CPU's counter is trusted, what is read when it is not, and times that come late or go
 * back. The counter and the kernel's clock that calibration sees are made up here.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "support/guarded.h"
#include "support/threads.h"

#define HZ 3000000000u /* of the made-up counter */

/* One moment as both clocks show it; init asks until half a ms has passed, so each look takes a little. */
static struct {
	uint64_t tsc, ns, step_ns;
	int64_t ppm; /* how fast the counter is now */
} made;

static void make_clocks(uint64_t *tsc, uint64_t *ns)
{
	made.ns += made.step_ns;
	made.tsc += (uint64_t)((double)made.step_ns * 1e-9 * HZ * (1 + (double)made.ppm * 1e-6) + 0.5);
	*tsc = made.tsc;
	*ns = made.ns;
}

static struct fci_clock c;

/* A trusted counter, whether or not this CPU promises one. */
static void trust(void)
{
	memset(&c, 0, sizeof(c));
	memset(&made, 0, sizeof(made));
	made.tsc = (uint64_t)1 << 40;
	made.ns = FC_S(1000);
	c.kind = FC_CLOCK_TSC;
	atomic_store(&c.tsc, made.tsc);
	atomic_store(&c.ns, made.ns);
	atomic_store(&c.mult, ((uint64_t)1000000000 << 32) / HZ);
	atomic_store(&c.tsc_ok, 1);
	made.step_ns = FC_MS(300);
	fci_test_clocks = make_clocks;
}

static int teardown(void **state)
{
	(void)state;
	fci_test_clocks = NULL;
	return 0;
}

#define assert_trusted()                                                  \
	do {                                                              \
		assert_int_equal(fci_clock_exact(&c), FC_CLOCK_TSC);      \
		assert_int_equal(fci_clock_coarse(&c), FC_CLOCK_TSC);     \
		assert_true(atomic_load(&c.tsc) == made.tsc);             \
		assert_true(atomic_load(&c.ns) == made.ns);               \
	} while (0)

#define assert_distrusted()                                               \
	do {                                                              \
		assert_int_equal(fci_clock_exact(&c), FC_CLOCK_MONOTONIC); \
		assert_int_equal(fci_clock_coarse(&c), FC_CLOCK_MONOTONIC); \
		assert_true(atomic_load(&c.tsc) == 0);                    \
	} while (0)

/* ---- trust ------------------------------------------------------------------------------------- */

static void a_counter_that_keeps_its_rate_stays_trusted(void **state)
{
	(void)state;
	trust();
	for (int i = 0; i < 1000; i++)
		assert_int_equal(fci_clock_calibrate(&c), 0);
	assert_trusted();
}

static void a_rate_is_followed_up_to_2000_ppm_and_not_beyond(void **state)
{
	static const int64_t good[] = { 1900, 0, -1900, 50, -50 }, bad[] = { 2100, -2100, 50000, -500000 };

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		trust();
		made.ppm = good[i];
		assert_int_equal(fci_clock_calibrate(&c), 0);
		assert_trusted();
		/* And what is followed is what the next look is compared with. */
		assert_int_equal(fci_clock_calibrate(&c), 0);
		assert_trusted();
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint64_t ppm, told = (uint64_t)(bad[i] < 0 ? -bad[i] : bad[i]);

		trust();
		made.ppm = bad[i];
		ppm = fci_clock_calibrate(&c);
		/* Told of the time that it makes: a slow counter's is off by more than it is slow. */
		assert_in_range(ppm, told * 9 / 10, told * 11 / 10 + (told > 100000 ? told : 0));
		assert_distrusted();
		/* For ever, and told once. */
		made.ppm = 0;
		for (int k = 0; k < 10; k++)
			assert_int_equal(fci_clock_calibrate(&c), 0);
		assert_distrusted();
	}
}

/* NTP slews by 500 ppm at most: many such looks one after the other are followed without an error that grows. */
static void a_slow_change_of_rate_is_followed_for_ever(void **state)
{
	(void)state;
	trust();
	for (int i = 0; i < 100; i++) {
		made.ppm += i < 50 ? 500 : -500;
		assert_int_equal(fci_clock_calibrate(&c), 0);
		assert_trusted();
	}
}

static void a_step_of_either_clock_ends_the_trust(void **state)
{
	(void)state;
	for (int way = 0; way < 4; way++) {
		trust();
		assert_int_equal(fci_clock_calibrate(&c), 0);
		switch (way) {
		case 0: made.tsc += HZ; break;             /* the counter a second on */
		case 1: made.tsc -= HZ; break;             /* back: a CPU that was off, a migrated guest */
		case 2: made.ns += FC_S(1); break;         /* it stood still for a second: suspended */
		case 3: made.tsc = 0; break;
		}
		assert_true(fci_clock_calibrate(&c) > 2000);
		assert_distrusted();
	}
}

static void looks_that_come_soon_change_nothing(void **state)
{
	uint64_t tsc;

	(void)state;
	trust();
	assert_int_equal(fci_clock_calibrate(&c), 0);
	tsc = atomic_load(&c.tsc);
	made.step_ns = FC_MS(1);
	made.ppm = 100000;
	for (int i = 0; i < 200; i++)
		assert_int_equal(fci_clock_calibrate(&c), 0);
	assert_true(atomic_load(&c.tsc) == tsc);
}

/* ---- kinds ------------------------------------------------------------------------------------- */

static void each_kind_reads_the_cheapest_clock_that_has_the_resolution(void **state)
{
	static const struct {
		uint32_t kind, coarse, exact;
	} kinds[] = {
		{ FC_CLOCK_MONOTONIC, FC_CLOCK_MONOTONIC, FC_CLOCK_MONOTONIC },
		{ FC_CLOCK_COARSE, FC_CLOCK_COARSE, FC_CLOCK_MONOTONIC },
		{ FC_CLOCK_VIRTUAL, FC_CLOCK_VIRTUAL, FC_CLOCK_VIRTUAL },
		{ FC_CLOCK_AUTO, FC_CLOCK_COARSE, 0 },
		{ FC_CLOCK_TSC, 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		uint32_t best;

		memset(&c, 0, sizeof(c));
		fci_clock_init(&c, kinds[i].kind);
		best = atomic_load(&c.tsc_ok) ? FC_CLOCK_TSC : FC_CLOCK_MONOTONIC;
		assert_int_equal(fci_clock_coarse(&c), kinds[i].coarse ? kinds[i].coarse : best);
		assert_int_equal(fci_clock_exact(&c), kinds[i].exact ? kinds[i].exact : best);
	}
}

static uint64_t kernel_ns(void)
{
	return fci_clock_os(CLOCK_MONOTONIC);
}

static void all_kinds_are_on_the_time_line_of_the_kernels_clock(void **state)
{
	uint64_t tick = fci_clock_coarse_ns();

	(void)state;
	assert_in_range(tick, 1, FC_MS(20));
	for (uint32_t kind = FC_CLOCK_AUTO; kind <= FC_CLOCK_TSC; kind++) {
		memset(&c, 0, sizeof(c));
		fci_clock_init(&c, kind);
		for (int i = 0; i < 1000; i++) {
			uint64_t before = kernel_ns(), exact = fci_clock_read(&c, fci_clock_exact(&c));
			uint64_t coarse = fci_clock_read(&c, fci_clock_coarse(&c)), after = kernel_ns();

			/* Half a ms of measuring is good to 100 ppm, of less than a second here. */
			assert_in_range(exact, before - FC_MS(1), after + FC_MS(1));
			assert_in_range(coarse, before - 2 * tick - FC_MS(1), after + FC_MS(1));
		}
	}
}

static void who_is_behind_the_calibration_asks_the_kernel(void **state)
{
	uint64_t before, now;

	(void)state;
	trust();
	/* Another CPU's counter is a little behind, or a set is being changed. */
	atomic_store(&c.tsc, UINT64_MAX - 1);
	atomic_store(&c.ns, 12345);
	before = kernel_ns();
	now = fci_clock_now(&c);
	assert_in_range(now, before, kernel_ns());
	atomic_store(&c.tsc, 0);
	before = kernel_ns();
	now = fci_clock_now(&c);
	assert_in_range(now, before, kernel_ns());
}

/* ---- in a context ------------------------------------------------------------------------------ */

static char lines[1024];
static struct fc_event event;
static unsigned clock_events;

static void on_log(void *arg, int level, const char *line)
{
	(void)arg;
	if (strstr(line, "counter"))
		snprintf(lines, sizeof(lines), "%d %s", level, line);
}

static void on_event(void *arg, const struct fc_event *e)
{
	(void)arg;
	if (e->kind == FC_EVENT_CLOCK) {
		event = *e;
		clock_events++;
	}
}

static struct fc *create(uint32_t kind)
{
	FC_OPTS(fc_opts, o, .clock = kind, .flags = FC_NO_STACKS, .max_ifaces = 4, .log = on_log, .on_event = on_event);
	struct fc *fc = NULL;

	lines[0] = 0;
	clock_events = 0;
	assert_int_equal(fc_create(&fc, &o), 0);
	return fc;
}

static void call(struct fc *fc)
{
	struct fc_entry e = FC_ENTRY_INIT;
	FC_OPTS(fc_in_flight, in, .line = 0);
	uint64_t before = kernel_ns();
	struct fc_iface *f = fc_iface_get(fc, "clocked");

	assert_int_equal(fc_enter(&e, f, NULL), 0);
	assert_int_equal(fc_in_flight(f, &in, 1), 1);
	assert_in_range(in.start_ns, before - 2 * fci_clock_coarse_ns() - FC_MS(1), kernel_ns() + FC_MS(1));
	assert_in_range(fc_now_ns(fc), before - FC_MS(1), kernel_ns() + FC_MS(1));
	fc_exit(&e);
}

static void a_counter_that_fails_is_told_and_left(void **state)
{
	struct fc *fc = create(FC_CLOCK_TSC);

	(void)state;
	call(fc);
	fc_tick(fc, FC_S(1));
	assert_int_equal(clock_events, 0);
	/* Now as if the CPU had promised it, and it ran 3 % too fast. */
	trust();
	fc->clock.check_ns = 0;
	atomic_store(&fc->clock.ns, made.ns);
	atomic_store(&fc->clock.mult, atomic_load(&c.mult));
	atomic_store(&fc->clock.tsc, made.tsc);
	atomic_store(&fc->clock.tsc_ok, 1);
	made.ppm = -30000;
	for (int i = 0; i < 5; i++)
		fc_tick(fc, FC_S(1));
	assert_int_equal(clock_events, 1);
	assert_in_range(event.a, 30000, 31500);
	assert_null(event.iface);
	assert_non_null(strstr(lines, "1 the CPU's counter is 3"));
	assert_non_null(strstr(lines, " ppm off the kernel's clock: not used any more"));
	/* Interfaces that were told to read it go on. */
	for (int i = 0; i < 100; i++)
		call(fc);
	fc_destroy(fc);
}

static void calls_are_timed_with_each_clock(void **state)
{
	(void)state;
	for (uint32_t kind = FC_CLOCK_AUTO; kind <= FC_CLOCK_TSC; kind++) {
		struct fc *fc = create(kind);

		for (int i = 0; i < 10; i++)
			call(fc);
		fc_destroy(fc);
	}
}

/* ---- late, and back ---------------------------------------------------------------------------- */

static struct guarded g;

static int close_guarded(void **state)
{
	(void)state;
	return guarded_close(&g);
}

static int enter_at(struct fc_entry *e, uint64_t now)
{
	FC_OPTS(fc_ctx, ctx, .now_ns = now);

	return fc_enter(e, g.f, &ctx);
}

static void a_callers_time_of_an_hour_ago_or_ahead_changes_no_verdict(void **state)
{
	const uint64_t hour = FC_S(3600);

	(void)state;
	guarded_open(&g, &(struct fc_iface_opts){ .cap = 2, .expand = 1, .latency = FC_LATENCY_EXACT });
	for (int i = 0; i < 100; i++) {
		uint64_t now = g.now + (i % 3 == 0 ? hour : i % 3 == 1 ? 0 : -hour);
		struct fc_entry a = FC_ENTRY_INIT, b = FC_ENTRY_INIT, no = FC_ENTRY_INIT;

		assert_int_equal(enter_at(&a, now), 0);
		assert_int_equal(enter_at(&b, g.now), 0);
		assert_int_equal(enter_at(&no, now), FC_REFUSED_CAP);
		assert_int_equal(enter_at(&no, g.now), FC_REFUSED_CAP);
		assert_int_equal(fc_inside(g.f, NULL), 2);
		guarded_pass(&g, FC_MS(20));
		if (i % 10 == 0)
			fc_tick(g.fc, FC_S(1));
		fc_exit(&a);
		fc_exit(&b);
	}
	assert_int_equal(guarded_stats(&g).abandoned, 0);
	assert_int_equal(guarded_stats(&g).admitted, 200);
	assert_int_equal(guarded_stats(&g).late_exits, 0);
}

static void ages_that_would_be_negative_are_zero(void **state)
{
	FC_OPTS(fc_in_flight, in, .line = 0);
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc_hist h;

	(void)state;
	guarded_open(&g, &(struct fc_iface_opts){ .cap = 2, .expand = 1, .latency = FC_LATENCY_EXACT });
	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	guarded_pass(&g, -FC_S(100));
	assert_int_equal(fc_in_flight(g.f, &in, 1), 1);
	assert_int_equal(in.age_ns, 0);
	fc_tick(g.fc, FC_S(1));
	assert_int_equal(guarded_stats(&g).overdue, 0);
	fc_exit(&e);
	assert_int_equal(fc_iface_hist(g.f, &h), 0);
	assert_int_equal(h.count[0], 1);
}

static uint64_t as_conf_says(const void *conf)
{
	return *(const uint64_t *)conf;
}

static const struct fc_interceptor fine = {
	.size = sizeof(struct fc_interceptor), .name = "fine", .order = FC_ORDER_USER, .conf_bytes = sizeof(uint64_t),
	.resolution_ns = as_conf_says,
};

static void an_interface_reads_the_cheapest_clock_that_suits_its_rules(void **state)
{
	static const uint64_t any = 0, second = FC_S(1), microsecond = FC_US(1);
	const struct fc_rule rules[] = {
		{ .interceptor = &fine, .conf = &any, .name = "any" },
		{ .interceptor = &fine, .conf = &second, .name = "second" },
		{ .interceptor = &fine, .conf = &microsecond, .name = "microsecond" },
	};
	FC_OPTS(fc_iface_opts, exact, .latency = FC_LATENCY_EXACT);
	struct fc *fc;
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_create(&fc, NULL), 0);
	f = fc_iface_get(fc, "f");
	for (uint32_t n = 0; n <= 3; n++) {
		assert_int_equal(fc_iface_set_chain(f, rules, n), 0);
		assert_int_equal(atomic_load(&f->clock),
		                 n < 3 ? fci_clock_coarse(&fc->clock) : fci_clock_exact(&fc->clock));
	}
	assert_int_equal(fc_iface_set_chain(f, NULL, 0), 0);
	assert_int_equal(atomic_load(&f->clock), FC_CLOCK_COARSE);
	assert_int_equal(fc_iface_set(fc, "f", &exact, NULL), 0);
	assert_int_equal(atomic_load(&f->clock), fci_clock_exact(&fc->clock));
	assert_int_not_equal(atomic_load(&f->clock), FC_CLOCK_COARSE);
	fc_destroy(fc);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_counter_that_keeps_its_rate_stays_trusted, teardown),
		cmocka_unit_test_teardown(a_rate_is_followed_up_to_2000_ppm_and_not_beyond, teardown),
		cmocka_unit_test_teardown(a_slow_change_of_rate_is_followed_for_ever, teardown),
		cmocka_unit_test_teardown(a_step_of_either_clock_ends_the_trust, teardown),
		cmocka_unit_test_teardown(looks_that_come_soon_change_nothing, teardown),
		cmocka_unit_test_teardown(each_kind_reads_the_cheapest_clock_that_has_the_resolution, teardown),
		cmocka_unit_test_teardown(an_interface_reads_the_cheapest_clock_that_suits_its_rules, teardown),
		cmocka_unit_test_teardown(all_kinds_are_on_the_time_line_of_the_kernels_clock, teardown),
		cmocka_unit_test_teardown(who_is_behind_the_calibration_asks_the_kernel, teardown),
		cmocka_unit_test_teardown(a_counter_that_fails_is_told_and_left, teardown),
		cmocka_unit_test_teardown(calls_are_timed_with_each_clock, teardown),
		cmocka_unit_test_teardown(a_callers_time_of_an_hour_ago_or_ahead_changes_no_verdict, close_guarded),
		cmocka_unit_test_teardown(ages_that_would_be_negative_are_zero, close_guarded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
