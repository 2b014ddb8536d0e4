/* SPDX-License-Identifier: BSD-2-Clause */
/* What a tick looks at, who asks for one, and what it finds out for refused callers. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "context.h"
#include "support/entries.h"

#define MANY 20000u

static uint32_t ticked(struct fc *many)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MANY; i++)
		n += many->ifaces[i]->tick_last != 0;
	return n;
}

/* So many fc_tick() with that budget, until there is nothing to do at the moment; each looks at `most` at most. */
static unsigned tick_through(struct fc *many, uint64_t budget, uint32_t most)
{
	uint64_t next;
	unsigned n = 0;

	do {
		uint32_t before = many->tick_left ? many->tick_left : MANY, seen_before = ticked(many);

		next = fc_tick(many, budget);
		assert_in_range(before - many->tick_left, 0, most);
		assert_in_range(ticked(many) - seen_before, 0, most);
		n++;
	} while (next <= fc_now_ns(many));
	return n;
}

static void a_tick_looks_at_no_more_interfaces_than_its_budget_allows(void **state)
{
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .max_ifaces = MANY);
	struct fc *many = context(&o);
	char name[16];

	(void)state;
	for (uint32_t i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%u", i);
		assert_ptr_not_equal(fc_iface_get(many, name), many->pass);
	}
	/* All asleep: a hundred a 10 us, no more. */
	assert_in_range(tick_through(many, FC_US(10), 101), MANY / 101, MANY);
	assert_int_equal(ticked(many), 0);
	/* All awake: whoever is looked at is looked at once. */
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(call(many->ifaces[i], NULL), 0);
	(void)tick_through(many, FC_MS(1), 10001);
	assert_int_equal(ticked(many), MANY);
	/* And back to sleep, so that no more ticks are asked for. */
	for (int i = 0; i < 40; i++) {
		fc_clock_advance(many, FC_S(1));
		(void)tick_through(many, FC_MS(1), 10001);
	}
	assert_true(fc_tick(many, FC_S(1)) == FC_NEVER_NS);
	assert_int_equal(atomic_load(&many->idle), 1);
	assert_int_equal(call(many->ifaces[MANY / 2], NULL), 0);
	assert_int_equal(atomic_load(&many->idle), 0);
	assert_true(fc_tick(many, FC_S(1)) != FC_NEVER_NS);
	fc_destroy(many);
}

static unsigned ticks_in_check;

/* Between the look that wakes the interface and the claim of a place. */
static int tick_in_check(struct fc_call *c)
{
	for (unsigned i = 0; i < ticks_in_check; i++) {
		fc_clock_advance(fc_iface_context(c->iface), FC_MS(300));
		(void)fc_tick(fc_iface_context(c->iface), 0);
	}
	return 0;
}

static const struct fc_interceptor ticker = { .size = sizeof(ticker), .order = FC_ORDER_USER, .name = "ticker", .check = tick_in_check };

static void a_call_that_wakes_its_interface_is_seen_though_a_tick_comes_before_its_place(void **state)
{
	static const struct fc_rule rules[] = { { .interceptor = &ticker } };
	struct fc_entry e = FC_ENTRY_INIT;
	FC_OPTS(fc_ctx, heavy, .weight = 2);

	(void)state;
	assert_int_equal(fc_iface_set_chain(login, rules, 1), 0);
	for (int i = 0; i < 4; i++) {
		const struct fc_ctx *ctx = i % 2 ? &heavy : NULL;

		ticks_in_check = 0;
		for (int n = 0; n < 40; n++) {
			fc_clock_advance(fc, FC_S(1));
			(void)fc_tick(fc, 0);
		}
		assert_true(atomic_load(&login->gate->word) & FCI_GATE_ASLEEP);
		ticks_in_check = 1 + (unsigned)i / 2 * 3;
		assert_int_equal(fc_enter(&e, login, ctx), 0);
		assert_false(atomic_load(&login->gate->word) & FCI_GATE_ASLEEP);
		assert_true(fc_tick(fc, 0) != FC_NEVER_NS);
		fc_clock_advance(fc, FC_S(20));
		(void)fc_tick(fc, 0);
		assert_int_equal(stats(login).overdue, 1);
		fc_exit(&e);
	}
}

static int asks_for_a_tick(void)
{
	struct pollfd p = { .fd = fc_tick_fd(fc), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* A loop that waits for the descriptor and nothing else begins with the first call, and in the child of a
 * fork with the first there. */
static void the_first_call_asks_for_the_first_tick(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	assert_false(asks_for_a_tick());
	assert_int_equal(call(login, NULL), 0);
	assert_true(asks_for_a_tick());
	(void)fc_tick(fc, 0);
	assert_false(asks_for_a_tick());
	assert_int_equal(call(login, NULL), 0); /* it is awake */
	assert_false(asks_for_a_tick());
	pid = fork();
	if (pid == 0) {
		int early = asks_for_a_tick();

		(void)call(login, NULL);
		_exit(early | !asks_for_a_tick() << 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- advice ------------------------------------------------------------------------------------ */

/* n calls that take ns each, and ticks as time goes by. */
static void calls_of(struct fc_iface *f, unsigned n, uint64_t ns)
{
	for (unsigned i = 0; i < n; i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		assert_int_equal(fc_enter(&e, f, NULL), 0);
		fc_clock_advance(fc, ns);
		fc_exit(&e);
		fc_clock_advance(fc, FC_MS(10));
		(void)fc_tick(fc, FC_S(1));
	}
}

static uint64_t advice(struct fc_iface *f)
{
	struct fc_entry in = FC_ENTRY_INIT, out = FC_ENTRY_INIT;
	uint64_t ns;

	assert_int_equal(fc_enter(&in, f, NULL), 0);
	assert_int_equal(fc_enter(&out, f, NULL), FC_REFUSED_CAP);
	ns = decision(&out).retry_after_ns;
	fc_exit(&in);
	return ns;
}

static void refused_callers_are_advised_by_the_last_calls_and_not_by_all_there_were(void **state)
{
	struct fc_iface *f = capped(fc, "slows down", 1);

	(void)state;
	calls_of(f, 5000, FC_MS(4));
	assert_in_range(advice(f), FC_MS(4), FC_MS(5));
	calls_of(f, 60, FC_S(1));
	assert_in_range(advice(f), FC_S(1), FC_MS(1250));
	calls_of(f, 3000, FC_MS(4));
	assert_in_range(advice(f), FC_MS(4), FC_MS(5));
	/* A few calls after many say nothing. */
	calls_of(f, 5, FC_S(1));
	assert_in_range(advice(f), FC_MS(4), FC_MS(5));
}

static void the_first_calls_advise_though_they_are_few(void **state)
{
	struct fc_iface *f = capped(fc, "new", 1);

	(void)state;
	calls_of(f, 3, FC_S(2));
	assert_in_range(advice(f), FC_S(2), FC_MS(2500));
	/* And with a clock that goes back later ones do. */
	calls_of(f, 40, FC_S(2));
	fc_clock_set(fc, NOW);
	calls_of(f, 100, FC_MS(4));
	assert_in_range(advice(f), FC_MS(4), FC_MS(5));
}

/* The first one asks for a tick by a write(), which fails here. */
static void a_call_leaves_errno_alone(void **state)
{
	int was = fc->tick_fd;

	(void)state;
	fc->tick_fd = 1000000;
	errno = E2BIG;
	assert_int_equal(call(login, NULL), 0);
	assert_int_equal(errno, E2BIG);
	fc->tick_fd = was;
}

static int sample(void *arg, struct fc_health_sample *ret)
{
	(void)ret;
	++*(unsigned *)arg;
	return 0;
}

static void health_is_not_sampled_while_no_calls_come(void **state)
{
	unsigned samples = 0, busy;
	uint64_t next;

	(void)state;
	assert_int_equal(fc_health_set_source(fc, sample, &samples), 0);
	for (int i = 0; i < 40; i++) {
		assert_int_equal(call(login, NULL), 0);
		(void)fc_clock_advance(fc, FC_MS(100));
		(void)fc_tick(fc, 0);
	}
	assert_in_range(samples, 12, 20); /* each 250 ms */
	for (next = 0; next != FC_NEVER_NS; next = fc_tick(fc, 0))
		(void)fc_clock_advance(fc, FC_MS(100)); /* until it falls asleep */
	busy = samples;
	for (int i = 0; i < 40; i++) {
		(void)fc_clock_advance(fc, FC_MS(100));
		assert_int_equal(fc_tick(fc, 0), FC_NEVER_NS);
	}
	assert_int_equal(samples, busy);
	assert_int_equal(call(login, NULL), 0);
	(void)fc_tick(fc, 0);
	assert_int_equal(samples, busy + 1);
	/* A clock that was set back does not put the next one off. */
	assert_int_equal(fc_clock_set(fc, NOW - FC_S(500)), 0);
	assert_int_equal(call(login, NULL), 0);
	(void)fc_tick(fc, 0);
	assert_int_equal(samples, busy + 2);
}

static void an_interface_with_a_written_off_call_is_not_asleep(void **state)
{
	FC_OPTS(fc_opts, quiet, .clock = FC_CLOCK_VIRTUAL, .flags = FC_NO_STACKS);
	FC_OPTS(fc_iface_opts, o, .cap = 1, .expand = 1, .writeoff = 1, .stuck_after_ns = FC_S(1));
	struct fc_entry stuck = FC_ENTRY_INIT;
	struct fc *own = context(&quiet);
	struct fc_iface *f;
	int ticks = 0;

	(void)state;
	assert_int_equal(fc_iface_set(own, "f", &o, &f), 0);
	assert_int_equal(fc_enter(&stuck, f, NULL), 0);
	(void)fc_clock_advance(own, FC_S(5));
	assert_int_equal(call(f, NULL), 0);
	assert_true(stats(f).written_off == 1 && stats(f).in_flight == 0);
	for (int i = 0; i < 100; i++) {
		(void)fc_clock_advance(own, FC_MS(250));
		assert_true(fc_tick(own, 0) != FC_NEVER_NS);
	}
	fc_exit(&stuck);
	do {
		(void)fc_clock_advance(own, FC_MS(250));
	} while (fc_tick(own, 0) != FC_NEVER_NS && ticks++ < 100);
	assert_in_range(ticks, 0, 50);
	fc_destroy(own);
}

/* Its descriptors are its own: a call there wakes nobody here. */
static void the_child_of_a_fork_does_not_wake_its_parent(void **state)
{
	struct pollfd thread = { .fd = fc->thread_fd, .events = POLLIN };
	int status;
	pid_t pid;

	(void)state;
	assert_false(asks_for_a_tick());
	pid = fork();
	if (pid == 0)
		_exit(call(login, NULL) | !asks_for_a_tick());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_false(asks_for_a_tick());
	assert_int_equal(poll(&thread, 1, 0), 0);
}

static uint64_t ticks(struct fc *of)
{
	return totals(of).ticks;
}

/* Real time: the thread ticks when calls come, and sleeps when they do not. */
static void the_thread_ticks_while_calls_come_and_sleeps_after_them(void **state)
{
	FC_OPTS(fc_opts, o, .flags = FC_THREAD);
	struct fc_iface *f;
	struct fc *own;
	uint64_t before;

	(void)state;
	assert_int_equal(fc_create(&own, &o), 0);
	assert_int_equal(fc_start(own), -EALREADY);
	f = capped(own, "f", 1);
	for (before = ticks(own); ticks(own) < before + 3;) {
		assert_int_equal(call(f, NULL), 0);
		usleep(1000);
	}
	do { /* until it has fallen asleep */
		before = ticks(own);
		usleep(600000);
	} while (ticks(own) != before);
	assert_int_equal(call(f, NULL), 0);
	while (ticks(own) == before)
		usleep(1000);
	fc_stop(own);
	before = ticks(own);
	assert_int_equal(call(f, NULL), 0);
	usleep(20000);
	assert_int_equal(ticks(own), before);
	fc_destroy(own);
}

static unsigned told;

static void tick_in_a_callback(void *arg, const struct fc_event *e)
{
	struct fc **of = arg;

	(void)e;
	told++;
	assert_int_equal(fc_tick(*of, 0), fc_now_ns(*of) + FC_MS(1)); /* come again */
}

static void while_one_ticks_another_returns_at_once(void **state)
{
	struct fc *own;
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .on_event = tick_in_a_callback, .event_arg = &own);

	(void)state;
	told = 0;
	own = context(&o);
	assert_int_equal(fc_iface_set_cap(capped(own, "f", 1), 2), 0);
	(void)fc_tick(own, 0);
	assert_int_equal(told, 1);
	assert_int_equal(totals(own).ticks, 1);
	(void)fc_tick(own, 0);
	assert_int_equal(totals(own).ticks, 2);
	fc_destroy(own);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_tick_looks_at_no_more_interfaces_than_its_budget_allows),
		T(a_call_that_wakes_its_interface_is_seen_though_a_tick_comes_before_its_place),
		T(refused_callers_are_advised_by_the_last_calls_and_not_by_all_there_were),
		T(the_first_calls_advise_though_they_are_few),
		T(the_first_call_asks_for_the_first_tick),
		T(a_call_leaves_errno_alone),
		T(health_is_not_sampled_while_no_calls_come),
		T(an_interface_with_a_written_off_call_is_not_asleep),
		T(the_child_of_a_fork_does_not_wake_its_parent),
		T(while_one_ticks_another_returns_at_once),
		T(the_thread_ticks_while_calls_come_and_sleeps_after_them),
	};

	return cmocka_run_group_tests_name("tick", tests, NULL, NULL);
}
