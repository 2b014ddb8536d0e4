/* SPDX-License-Identifier: BSD-2-Clause */
/* Switches, injected faults, drains, dry runs. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "lib/wait.h"
#include "support/threads.h"
#include "support/entries.h"

/* ---- switches ---------------------------------------------------------------------------------- */

static void off_lets_new_calls_through_and_those_inside_leave(void **state)
{
	struct fc_entry e[4] = { FC_ENTRY_INIT };
	uint64_t untracked;

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&e[i], login, NULL), 0);
	fc_off_set(fc, 1);
	assert_true(fc_off_get(fc));
	assert_int_equal(let_in(login, 10), 10);
	assert_int_equal(let_in(fc_iface_get(fc, "made.while.off"), 10), 10);
	assert_int_equal(stats(fc_iface_get(fc, "made.while.off")).untracked, 10);
	assert_int_equal(stats(login).untracked, 10);
	assert_int_equal(stats(login).in_flight, 4);
	assert_int_equal(fc_exit_status(&e[0]), 1);
	assert_int_equal(stats(login).in_flight, 3);
	/* A call that began while off ends after it. */
	assert_int_equal(fc_enter(&e[0], login, NULL), 0);
	fc_off_set(fc, 0);
	assert_false(fc_off_get(fc));
	untracked = stats(login).untracked;
	assert_int_equal(let_in(login, 10), 1);
	assert_int_equal(fc_exit_status(&e[0]), 1);
	for (int i = 1; i < 4; i++)
		assert_int_equal(fc_exit_status(&e[i]), 1);
	assert_int_equal(let_in(login, 10), 4);
	assert_int_equal(stats(login).untracked, untracked);
	assert_int_equal(stats(login).late_exits, 0);
	fc_off_set(NULL, 1);
	assert_false(fc_off_get(NULL));
}

static void a_suspended_call_goes_on_without_a_place_while_all_is_off(void **state)
{
	struct fc_entry e[4] = { FC_ENTRY_INIT }, suspended = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&suspended, login, NULL), 0);
	assert_int_equal(fc_entry_suspend(&suspended), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&e[i], login, NULL), 0);
	assert_int_equal(fc_entry_resume(&suspended), FC_REFUSED_CAP);
	fc_off_set(fc, 1);
	assert_int_equal(fc_entry_resume(&suspended), 0);
	assert_int_equal(stats(login).in_flight, 4);
	assert_int_equal(fc_exit_status(&suspended), 1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_exit_status(&e[i]), 1);
	assert_int_equal(stats(login).ok, 5);
}

static void one_interface_can_be_off(void **state)
{
	struct fc_iface *other = capped(fc, "other", 1);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(fc_iface_set_off(login, 1), 0);
	assert_true(stats(login).flags & FC_IFACE_OFF);
	assert_int_equal(let_in(login, 10), 10);
	assert_int_equal(let_in(other, 10), 1);
	/* The global switch does not switch it on. */
	fc_off_set(fc, 1);
	fc_off_set(fc, 0);
	assert_int_equal(let_in(login, 10), 10);
	assert_int_equal(fc_iface_set_off(login, 0), 0);
	assert_int_equal(let_in(login, 10), 3);
	assert_int_equal(fc_exit_status(&e), 1);
	assert_int_equal(let_in(login, 10), 4);
}

static void an_interface_can_be_made_off(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 1, .flags = FC_IFACE_OFF);
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "off", &o, &f), 0);
	assert_int_equal(let_in(f, 10), 10);
	o.flags = 0;
	assert_int_equal(fc_iface_set(fc, "off", &o, &f), 0);
	assert_int_equal(let_in(f, 10), 1);
}

static unsigned told_off;

static void count_told_off(void *arg, int level, const char *msg)
{
	(void)arg, (void)level;
	told_off += strstr(msg, "FCGUARD_OFF") != NULL;
}

static void the_environment_switches_all_off(void **state)
{
	static const struct { const char *value; int off; } cases[] = { { "1", 1 }, { "0", 0 }, { "", 0 } };

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct fc_opts o = defaults();
		struct fc *made;

		o.log = count_told_off;
		told_off = 0;
		assert_int_equal(setenv("FCGUARD_OFF", cases[i].value, 1), 0);
		made = context(&o);
		assert_int_equal(unsetenv("FCGUARD_OFF"), 0);
		assert_int_equal(fc_off_get(made), cases[i].off);
		assert_int_equal(told_off, cases[i].off);
		assert_int_equal(let_in(capped(made, "f", 1), 5), cases[i].off ? 5 : 1);
		fc_off_set(made, 0);
		assert_int_equal(let_in(fc_iface_get(made, "f"), 5), 1);
		fc_destroy(made);
	}
}

static void injected_refusals_are_counted_down(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_INJECTED, 2), 0);
	assert_int_equal(fc_enter(&e, login, NULL), FC_REFUSED_INJECTED);
	assert_string_equal(decision(&e).rule, "inject");
	assert_int_equal(call(login, NULL), FC_REFUSED_INJECTED);
	assert_int_equal(call(login, NULL), 0);
	assert_int_equal(stats(login).refused[FC_REFUSED_INJECTED], 2);
	/* Any reason, the program's own too. */
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_QUOTA, 1), 0);
	assert_int_equal(call(login, NULL), FC_REFUSED_QUOTA);
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_USER + 7, 1), 0);
	assert_int_equal(call(login, NULL), FC_REFUSED_USER + 7);
	assert_int_equal(stats(login).refused[FC_REFUSED_CUSTOM], 1);
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_INJECTED, FC_UNLIMITED), 0);
	assert_int_equal(let_in(login, 1000), 0);
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_INJECTED, 0), 0);
	assert_int_equal(let_in(login, 10), 4);
	assert_int_equal(fc_iface_inject(login, 0, 1), -EINVAL);
	assert_int_equal(fc_iface_inject(login, 0, 0), 0);
	assert_int_equal(fc_iface_inject(NULL, 1, 1), -EINVAL);
	/* It stops nobody who is inside. */
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_INJECTED, 1), 0);
	assert_int_equal(fc_exit_status(&e), 1);
	assert_int_equal(call(login, NULL), FC_REFUSED_INJECTED);
}

static void an_injected_fault_follows_on_fault(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 4, .on_fault = FC_FAIL_CLOSED);
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_iface_inject(login, -ENOMEM, 2), 0);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(stats(login).in_flight, 0);
	assert_int_equal(fc_exit_status(&e), 1);
	assert_int_equal(call(login, NULL), 0);
	assert_int_equal(stats(login).untracked, 2);
	assert_int_equal(totals(fc).faults, 2);
	assert_int_equal(let_in(login, 10), 4);
	assert_int_equal(fc_iface_set(fc, "closed", &o, &f), 0);
	assert_int_equal(fc_iface_inject(f, -ENOMEM, 1), 0);
	assert_int_equal(fc_enter(&e, f, NULL), FC_REFUSED_FAULT);
	assert_string_equal(decision(&e).rule, "on_fault");
	assert_int_equal(stats(f).refused[FC_REFUSED_FAULT], 1);
	assert_int_equal(stats(f).untracked, 0);
	assert_int_equal(totals(fc).faults, 3);
	assert_int_equal(call(f, NULL), 0);
}

struct injected {
	struct fc_iface *f;
	_Atomic uint32_t refused;
};

static void call_often(void *arg, unsigned index, struct rng *rng)
{
	struct injected *in = arg;

	(void)index;
	(void)rng;
	for (int i = 0; i < 1000; i++)
		if (call(in->f, NULL) == FC_REFUSED_INJECTED)
			atomic_fetch_add(&in->refused, 1);
}

static void injected_refusals_are_exact_under_threads(void **state)
{
	struct injected in = { .f = fc_iface_get(fc, "observed") };

	(void)state;
	assert_int_equal(fc_iface_inject(in.f, FC_REFUSED_INJECTED, 777), 0);
	run_threads(4, call_often, &in);
	assert_int_equal(in.refused, 777);
	assert_int_equal(stats(in.f).refused[FC_REFUSED_INJECTED], 777);
}

/* ---- draining ---------------------------------------------------------------------------------- */

static void a_drain_refuses_and_says_who_is_left(void **state)
{
	struct fc_entry a = FC_ENTRY_INIT, b = FC_ENTRY_INIT, e = FC_ENTRY_INIT;
	struct fc_iface *other = capped(fc, "other", 4);

	(void)state;
	assert_int_equal(fc_enter(&a, login, NULL), 0);
	assert_int_equal(fc_enter(&b, other, NULL), 0);
	assert_int_equal(fc_drain(fc, FC_MS(3)), 2);
	assert_int_equal(fc_enter(&e, login, NULL), FC_REFUSED_DRAINING);
	assert_string_equal(decision(&e).rule, "drain");
	assert_true(stats(login).flags & FC_STATS_DRAINING);
	assert_int_equal(stats(login).refused[FC_REFUSED_DRAINING], 1);
	assert_int_equal(fc_in_flight(login, NULL, 0), 1);
	fc_exit(&a);
	assert_int_equal(fc_drain(fc, 0), 1);
	fc_exit(&b);
	assert_int_equal(fc_drain(fc, 0), 0);
	assert_int_equal(let_in(other, 10), 0);
	fc_undrain(fc);
	assert_int_equal(let_in(login, 10), 4);
	assert_int_equal(let_in(other, 10), 4);
	assert_int_equal(fc_drain(NULL, 0), -EINVAL);
	fc_undrain(NULL);
}

static void a_drain_counts_suspended_calls_out_and_lets_none_back(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(fc_entry_suspend(&e), 0);
	assert_int_equal(fc_drain(fc, 0), 0);
	assert_int_equal(fc_entry_resume(&e), FC_REFUSED_DRAINING);
	fc_undrain(fc);
	assert_int_equal(fc_entry_resume(&e), 0);
	assert_int_equal(fc_exit_status(&e), 1);
}

static void a_drain_counts_calls_that_were_written_off(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 2, .expand = 1, .writeoff = 1, .stuck_after_ns = FC_S(1));
	struct fc_entry stuck = FC_ENTRY_INIT, later = FC_ENTRY_INIT, e = FC_ENTRY_INIT;
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "written.off", &o, &f), 0);
	assert_int_equal(fc_enter(&stuck, f, NULL), 0);
	assert_int_equal(fc_clock_advance(fc, FC_S(5)), 0);
	assert_int_equal(fc_enter(&later, f, NULL), 0);
	assert_int_equal(fc_enter(&e, f, NULL), 0); /* in the stuck one's place */
	assert_int_equal(stats(f).written_off, 1);
	fc_exit(&e);
	fc_exit(&later);
	assert_int_equal(stats(f).in_flight, 0);
	assert_int_equal(fc_iface_drain(f, 0), 1);
	assert_int_equal(fc_drain(fc, 0), 1);
	assert_int_equal(fc_exit_status(&stuck), -ESTALE);
	assert_int_equal(fc_iface_drain(f, 0), 0);
	assert_int_equal(fc_drain(fc, 0), 0);
}

static void a_drain_is_for_interfaces_that_come_later_too(void **state)
{
	(void)state;
	assert_int_equal(fc_drain(fc, 0), 0);
	assert_int_equal(call(fc_iface_get(fc, "new"), NULL), FC_REFUSED_DRAINING);
	fc_undrain(fc);
	assert_int_equal(call(fc_iface_get(fc, "new"), NULL), 0);
	assert_int_equal(call(fc_iface_get(fc, "newer"), NULL), 0);
}

static void one_interface_can_be_drained(void **state)
{
	struct fc_iface *other = capped(fc, "other", 4);

	(void)state;
	assert_int_equal(fc_iface_drain(login, FC_MS(1)), 0);
	assert_int_equal(call(login, NULL), FC_REFUSED_DRAINING);
	assert_int_equal(call(other, NULL), 0);
	fc_iface_undrain(login);
	assert_int_equal(call(login, NULL), 0);
}

struct who_waits {
	struct fc_iface *f;
	struct fc_entry e;
	int rc, status;
};

static void *wait_for_a_place(void *arg)
{
	struct who_waits *w = arg;

	w->rc = fc_enter(&w->e, w->f, NULL);
	w->status = fc_exit_status(&w->e);
	return NULL;
}

/* Of the first three waiters, those that were woken: they look at the door once a second by themselves, too,
 * so the time says nothing. */
static unsigned woken(const struct fc_iface *f)
{
	unsigned n = 0;

	for (int i = 0; i < 3; i++)
		n += atomic_load(&FCI_AT(f->fc, f->waiters_off, struct fci_waiter)[i].futex) != 0;
	return n;
}

/* Three callers wait for the one place, and are let go at once, not when their time is over. */
static void those_who_wait_go_on_when_an_interface_is_switched_off_or_drained(void **state)
{
	FC_OPTS(fc_opts, real, .log = keep_log);
	FC_OPTS(fc_iface_opts, o, .cap = 1, .expand = 1, .wait_max = 4, .wait_timeout_ns = FC_S(40));
	struct fc *own;

	(void)state;
	assert_int_equal(fc_create(&own, &real), 0);
	for (int how = 0; how < 4; how++) {
		struct fc_entry hold = FC_ENTRY_INIT;
		struct who_waits w[3];
		pthread_t threads[3];
		struct fc_iface *f;
		char name[] = "waits 0";

		name[6] = (char)('0' + how);
		assert_int_equal(fc_iface_set(own, name, &o, &f), 0);
		assert_int_equal(fc_enter(&hold, f, NULL), 0);
		for (int i = 0; i < 3; i++) {
			w[i] = (struct who_waits){ .f = f };
			assert_int_equal(pthread_create(&threads[i], NULL, wait_for_a_place, &w[i]), 0);
		}
		while (stats(f).waiting != 3)
			usleep(1000);
		usleep(20000); /* asleep by now, as a rule */
		if (how == 0)
			assert_int_equal(fc_iface_set_off(f, 1), 0);
		else if (how == 1)
			fc_off_set(own, 1);
		else if (how == 2)
			(void)fc_iface_drain(f, 0);
		else
			(void)fc_drain(own, 0);
		for (int i = 0; i < 3; i++) {
			pthread_join(threads[i], NULL);
			assert_int_equal(w[i].rc, how < 2 ? 0 : FC_REFUSED_DRAINING);
			assert_int_equal(w[i].status, how < 2 ? 1 : 0);
			if (how >= 2)
				assert_string_equal(decision(&w[i].e).rule, "drain");
		}
		assert_true(woken(f) > 0); /* one that was just looking may have been faster */
		assert_int_equal(stats(f).untracked, how < 2 ? 3u : 0u);
		assert_int_equal(stats(f).wait_timeouts, 0);
		assert_int_equal(stats(f).waiting, 0);
		fc_off_set(own, 0);
		fc_exit(&hold);
	}
	fc_destroy(own);
}

struct leaver {
	struct fc_iface *f;
	_Atomic int inside;
};

static void *leave_when_refused(void *arg)
{
	struct leaver *l = arg;
	struct fc_entry e = FC_ENTRY_INIT;

	if (fc_enter(&e, l->f, NULL) == 0)
		atomic_store(&l->inside, 1);
	while (call(l->f, NULL) == 0)
		sched_yield();
	fc_exit(&e);
	return NULL;
}

static void a_drain_waits_for_those_inside(void **state)
{
	struct leaver l = { .f = login };
	pthread_t t;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, leave_when_refused, &l), 0);
	while (!atomic_load(&l.inside))
		sched_yield();
	assert_int_equal(fc_drain(fc, FC_S(20)), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	fc_undrain(fc);
}

/* ---- dry run ----------------------------------------------------------------------------------- */

static void a_dry_run_counts_what_it_would_refuse_and_refuses_none(void **state)
{
	struct fc_entry e[20] = { FC_ENTRY_INIT };
	struct fc_in_flight list[20];
	uint32_t over = 0;

	(void)state;
	assert_int_equal(fc_iface_set_dry_run(login, 1), 0);
	assert_true(stats(login).flags & FC_IFACE_DRY_RUN);
	for (int i = 0; i < 20; i++)
		assert_int_equal(fc_enter(&e[i], login, NULL), 0);
	assert_int_equal(stats(login).would_refuse, 16);
	assert_int_equal(stats(login).refused[FC_REFUSED_CAP], 0);
	/* Those above the limit are tracked as the others. */
	assert_int_equal(stats(login).untracked, 0);
	assert_int_equal(stats(login).in_flight, 20);
	assert_int_equal(stats(login).limit, 4);
	memset(list, 0, sizeof(list));
	list[0].size = sizeof(list[0]);
	assert_int_equal(fc_in_flight(login, list, 20), 20);
	for (int i = 0; i < 20; i++)
		over += (list[i].flags & FC_IN_FLIGHT_OVER_LIMIT) != 0;
	assert_int_equal(over, 16);
	/* In earnest from now on: nobody gets in until the count is under the limit. */
	assert_int_equal(fc_iface_set_dry_run(login, 0), 0);
	for (int i = 0; i < 16; i++) {
		assert_int_equal(call(login, NULL), FC_REFUSED_CAP);
		fc_exit(&e[i]);
	}
	assert_int_equal(call(login, NULL), FC_REFUSED_CAP);
	for (int i = 16; i < 20; i++)
		fc_exit(&e[i]);
	assert_int_equal(let_in(login, 10), 4);
}

static void a_heavy_call_over_the_limit_is_not_refused_in_a_dry_run(void **state)
{
	FC_OPTS(fc_ctx, three, .weight = 3);
	FC_OPTS(fc_ctx, five, .weight = 5);
	struct fc_entry e[3] = { FC_ENTRY_INIT };

	(void)state;
	assert_int_equal(fc_iface_set_dry_run(login, 1), 0);
	assert_int_equal(fc_enter(&e[0], login, &three), 0);
	assert_int_equal(fc_enter(&e[1], login, &three), 0);
	assert_int_equal(fc_enter(&e[2], login, &five), 0);
	assert_int_equal(stats(login).would_refuse, 2);
	for (int i = 0; i < 3; i++)
		fc_exit(&e[i]);
	assert_int_equal(stats(login).in_flight, 0);
	assert_int_equal(fc_iface_set_dry_run(login, 0), 0);
	assert_int_equal(let_in(login, 10), 4);
}

static void a_dry_run_of_a_cap_of_zero_refuses_nothing(void **state)
{
	struct fc_iface *f = capped(fc, "dry", FC_CAP_REFUSE_ALL);

	(void)state;
	alarm(20); /* it looked for a place for ever */
	assert_int_equal(fc_iface_set_dry_run(f, 1), 0);
	assert_int_equal(let_in(f, 10), 10);
	alarm(0);
	assert_int_equal(stats(f).would_refuse, 10);
	assert_int_equal(stats(f).untracked, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(off_lets_new_calls_through_and_those_inside_leave),
		T(a_suspended_call_goes_on_without_a_place_while_all_is_off),
		T(one_interface_can_be_off),
		T(an_interface_can_be_made_off),
		T(the_environment_switches_all_off),
		T(injected_refusals_are_counted_down),
		T(an_injected_fault_follows_on_fault),
		T(injected_refusals_are_exact_under_threads),
		T(a_drain_refuses_and_says_who_is_left),
		T(a_drain_counts_suspended_calls_out_and_lets_none_back),
		T(those_who_wait_go_on_when_an_interface_is_switched_off_or_drained),
		T(a_drain_counts_calls_that_were_written_off),
		T(a_drain_is_for_interfaces_that_come_later_too),
		T(one_interface_can_be_drained),
		T(a_drain_waits_for_those_inside),
		T(a_dry_run_counts_what_it_would_refuse_and_refuses_none),
		T(a_heavy_call_over_the_limit_is_not_refused_in_a_dry_run),
		T(a_dry_run_of_a_cap_of_zero_refuses_nothing),
	};

	return cmocka_run_group_tests_name("switches", tests, NULL, NULL);
}
