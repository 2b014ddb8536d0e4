/* SPDX-License-Identifier: BSD-2-Clause */
/* Who is refused under overload: the least important first, the same users everywhere, and how the
 * threshold moves. A window is one second of the virtual clock. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>

#include <fcguard/priority.h>

#include "support/guarded.h"
#include "support/threads.h"

#define ALL (FC_PRIORITY_LEVELS - 1)

static struct guarded g;
static char last_line[256];

static void keep_line(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	snprintf(last_line, sizeof(last_line), "%s", line);
}

static int setup(void **state)
{
	(void)state;
	guarded_open(&g, &(struct fc_iface_opts){ .cap = 64 });
	g.fc->log = keep_line;
	last_line[0] = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return guarded_close(&g);
}

static int use(struct fc_iface *f, const struct fc_priority_conf *conf, uint32_t flags)
{
	struct fc_rule rule = { .interceptor = &fc_interceptor_priority, .conf = conf, .flags = flags };

	return fc_iface_set_chain(f, &rule, 1);
}

static const struct fc_priority_conf plain = { .no_health = 1, .window_calls = 1000000 };

/* One call of a user, that has queued for so long: what became of it. */
static int enter_once(struct fc_iface *f, uint32_t priority, uint64_t user, uint64_t queued_ns)
{
	struct fc_label l = { .key = fc_label("user", "").key, .value = user };
	struct fc_ctx ctx = { .size = sizeof(ctx), .priority = priority, .labels = &l, .n_labels = 1,
		              .arrival_ns = g.now - queued_ns };
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter(&e, f, &ctx);

	fc_exit(&e);
	return rc;
}

/* Was it let in? */
static int call(struct fc_iface *f, uint32_t priority, uint64_t user, uint64_t queued_ns)
{
	int rc = enter_once(f, priority, user, queued_ns);

	if (rc != 0)
		assert_int_equal(rc, FC_REFUSED_PRIORITY);
	return rc == 0;
}

/* A window of n calls of many users, evenly over priorities 0 to 7; how many got in. */
static unsigned window(unsigned n, uint64_t queued_ns)
{
	unsigned in = 0;

	for (unsigned i = 0; i < n; i++)
		in += (unsigned)call(g.f, i % 8, fc_label("", "").value + i * 0x9e3779b97f4a7c15ull, queued_ns);
	guarded_pass(&g, FC_S(1));
	return in;
}

static void without_overload_all_are_let_in(void **state)
{
	(void)state;
	assert_int_equal(use(g.f, &plain, 0), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(window(800, FC_MS(19)), 800);
	assert_int_equal(fc_priority_threshold(g.fc, NULL), ALL);
}

static void overload_takes_five_percent_a_window_from_below(void **state)
{
	unsigned in, was = 8000;

	(void)state;
	assert_int_equal(use(g.f, &plain, 0), 0);
	assert_int_equal(window(8000, FC_MS(30)), 8000);
	for (int i = 0; i < 20; i++) {
		in = window(8000, FC_MS(30));
		assert_true(in <= was * 96 / 100 && in >= was * 90 / 100);
		was = in;
	}
	/* The most important are all let in, the least important none. */
	assert_true(fc_priority_threshold(g.fc, NULL) < 7 * 128);
	for (uint64_t u = 0; u < 500; u++) {
		assert_true(call(g.f, 0, u * 0x12345678abcdefull, FC_MS(30)));
		assert_false(call(g.f, 7, u * 0x12345678abcdefull, FC_MS(30)));
	}
}

static void it_comes_back_slowly(void **state)
{
	int before, after;
	unsigned windows = 0;

	(void)state;
	assert_int_equal(use(g.f, &plain, 0), 0);
	for (int i = 0; i < 15; i++)
		window(4000, FC_MS(30));
	before = fc_priority_threshold(g.fc, NULL);
	window(4000, 0); /* the last window was still overloaded */
	window(4000, 0);
	after = fc_priority_threshold(g.fc, NULL);
	assert_true(after >= before - 80 && after <= before + 25);
	while (fc_priority_threshold(g.fc, NULL) < ALL && windows++ < 400)
		window(4000, 0);
	assert_in_range(windows, 30, 120); /* about 1 % of what comes a window */
	assert_int_equal(window(4000, 0), 4000);
}

static void level_zero_is_always_let_in(void **state)
{
	uint64_t user = 0;

	(void)state;
	while (fc_priority_level(0, user, 0) != 0)
		user += 0x9e3779b97f4a7c15ull;
	assert_int_equal(use(g.f, &plain, 0), 0);
	for (int i = 0; i < 600; i++)
		window(100, FC_S(50));
	for (int i = 0; i < 100; i++)
		assert_true(call(g.f, 0, user, FC_S(50)));
}

static void the_same_users_are_refused_everywhere(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 64);
	struct fc_iface *next;
	unsigned refused = 0;

	(void)state;
	assert_int_equal(fc_iface_set(g.fc, "next", &o, &next), 0);
	assert_int_equal(use(g.f, &plain, 0), 0);
	assert_int_equal(use(next, &plain, 0), 0);
	for (int i = 0; i < 12; i++)
		window(4000, FC_MS(30));
	for (uint64_t u = 1; u < 2000; u++) {
		int first = call(g.f, 4, u << 40, 0), second = call(next, 4, u << 40, 0);

		assert_int_equal(first, second);
		assert_int_equal(call(g.f, 4, u << 40, 0), first); /* and not by luck */
		refused += !first;
	}
	assert_in_range(refused, 1, 1998);
	/* Groups of their own have thresholds of their own. */
	assert_int_equal(use(next, &(struct fc_priority_conf){ .group = "batch", .no_health = 1 }, 0), 0);
	assert_int_equal(fc_priority_threshold(g.fc, "batch"), ALL);
	assert_true(call(next, 7, 5, 0));
	assert_int_equal(fc_priority_threshold(g.fc, "none"), -ENOENT);
}

static void users_can_be_dealt_anew(void **state)
{
	unsigned moved = 0;

	(void)state;
	for (uint64_t u = 0; u < 1000; u++)
		moved += fc_priority_level(3, u, 0) != fc_priority_level(3, u, 1);
	assert_true(moved > 900);
	assert_int_equal(fc_priority_level(99, 0, 0) / 128, 7);
	assert_int_equal(fc_priority_rotate(g.fc, NULL, 1), -ENOENT);
	assert_int_equal(use(g.f, &plain, 0), 0);
	assert_int_equal(fc_priority_rotate(g.fc, NULL, 1), 0);
	assert_true(call(g.f, 3, 77, 0));
}

static int copy_conf(struct fc_call *c, void *arg)
{
	*(struct fc_priority_conf *)arg = *(const struct fc_priority_conf *)c->conf;
	return 0;
}

static void numbers_that_are_not_said_are_those_of_the_header(void **state)
{
	struct fc_priority_conf conf = { .group = NULL };

	(void)state;
	assert_int_equal(use(g.f, &conf, 0), 0);
	assert_int_equal(fc_iface_with(g.f, &fc_interceptor_priority, NULL, copy_conf, &conf), 0);
	assert_true(conf.queue_ns == FC_MS(20) && conf.window_ns == FC_S(1) && conf.window_calls == 2000);
	assert_true(conf.down_permille == 50 && conf.up_permille == 10 && conf.no_health == 0);
	assert_true(conf.label_ == fc_label("user", "").key);
	assert_int_equal(fc_priority_threshold(g.fc, "default"), ALL);
}

static void bad_health_is_overload(void **state)
{
	struct fc_priority_conf conf = { .window_calls = 1000000 };

	(void)state;
	assert_int_equal(use(g.f, &conf, 0), 0);
	window(1000, 0);
	atomic_store(&g.fc->head->health, FC_HEALTH_BAD_CPU);
	window(1000, 0);
	window(1000, 0);
	assert_true(fc_priority_threshold(g.fc, NULL) < ALL);
	atomic_store(&g.fc->head->health, 0);
}

static void where_it_says_so_queueing_alone_is_overload(void **state)
{
	(void)state;
	assert_int_equal(use(g.f, &plain, 0), 0); /* no_health */
	atomic_store(&g.fc->head->health, FC_HEALTH_BAD_CPU);
	for (int i = 0; i < 3; i++)
		assert_int_equal(window(1000, FC_MS(19)), 1000);
	assert_int_equal(fc_priority_threshold(g.fc, NULL), ALL);
	atomic_store(&g.fc->head->health, 0);
}

static void one_wrong_arrival_is_no_overload(void **state)
{
	(void)state;
	assert_int_equal(use(g.f, &plain, 0), 0);
	guarded_pass(&g, FC_S(100000));
	for (int i = 0; i < 3; i++) {
		assert_true(call(g.f, 0, 1, FC_S(90000))); /* counts as a minute */
		assert_int_equal(window(10000, 0), 10000);
	}
	assert_int_equal(fc_priority_threshold(g.fc, NULL), ALL);
}

static void a_flood_ends_its_window_early(void **state)
{
	struct fc_priority_conf conf = { .no_health = 1, .window_calls = 2000 };

	(void)state;
	assert_int_equal(use(g.f, &conf, 0), 0);
	for (int i = 0; i < 5; i++) {
		for (unsigned k = 0; k < 4000; k++)
			call(g.f, k % 8, k * 0x9e3779b97f4a7c15ull, FC_MS(30));
		guarded_pass(&g, FC_MS(20)); /* far less than a window */
	}
	assert_true(fc_priority_threshold(g.fc, NULL) < ALL - 40);
}

static void the_clock_may_jump(void **state)
{
	(void)state;
	assert_int_equal(use(g.f, &plain, 0), 0);
	window(1000, FC_MS(30));
	g.now -= FC_S(900);
	fc_clock_set(g.fc, g.now);
	for (int i = 0; i < 30; i++)
		window(1000, 0);
	assert_int_equal(window(1000, 0), 1000);
	g.now += FC_S(1000000);
	fc_clock_set(g.fc, g.now);
	assert_int_equal(window(1000, 0), 1000);
	/* An arrival that lies ahead, or far back, says little. */
	assert_true(call(g.f, 0, 1, (uint64_t)-FC_S(5)));
}

static void a_dry_run_refuses_nobody(void **state)
{
	(void)state;
	assert_int_equal(use(g.f, &plain, FC_RULE_DRY_RUN), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(window(1000, FC_MS(50)), 1000);
	assert_true(guarded_stats(&g).would_refuse > 0);
}

static void bad_numbers_are_refused(void **state)
{
	static const struct fc_priority_conf bad[] = {
		{ .window_ns = FC_MS(9) }, { .window_ns = FC_S(61) }, { .window_calls = 99 }, { .down_permille = 501 },
		{ .up_permille = 501 }, { .queue_ns = FC_S(61) }, { .group = "" },
		{ .group = "a name that is too long to be of a group" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(use(g.f, &bad[i], 0), -EINVAL);
	assert_true(call(g.f, 7, 1, FC_S(10)));
}

static void worker(void *arg, unsigned index, struct rng *rng)
{
	uint64_t end = *(uint64_t *)arg;

	while (test_now_ns() < end) {
		(void)enter_once(g.f, rng_below(rng, 8), rng_next(rng), FC_MS(rng_below(rng, 60)));
		if (index == 0 && rng_chance(rng, 1000))
			fc_clock_advance(g.fc, FC_MS(300));
	}
}

static void many_threads_share_a_threshold(void **state)
{
	uint64_t end = stress_end_ns();

	(void)state;
	assert_int_equal(use(g.f, &plain, 0), 0);
	run_threads(4 * test_cpus() + 1, worker, &end);
	assert_in_range(fc_priority_threshold(g.fc, NULL), 0, ALL);
	assert_int_equal(fc_inside(g.f, NULL), 0);
}

int main(void)
{
#define T(f_) cmocka_unit_test_setup_teardown(f_, setup, teardown)
	static const struct CMUnitTest tests[] = {
		T(without_overload_all_are_let_in),
		T(overload_takes_five_percent_a_window_from_below),
		T(it_comes_back_slowly),
		T(level_zero_is_always_let_in),
		T(the_same_users_are_refused_everywhere),
		T(users_can_be_dealt_anew),
		T(bad_health_is_overload),
		T(numbers_that_are_not_said_are_those_of_the_header),
		T(where_it_says_so_queueing_alone_is_overload),
		T(one_wrong_arrival_is_no_overload),
		T(a_flood_ends_its_window_early),
		T(the_clock_may_jump),
		T(a_dry_run_refuses_nobody),
		T(bad_numbers_are_refused),
		T(many_threads_share_a_threshold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
