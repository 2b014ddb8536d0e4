/* SPDX-License-Identifier: BSD-2-Clause */
/* Degrade: levels by hand, the fault flag, outcomes, ways back; and fallbacks that answer refused calls. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>

#include "support/breaking.h"
#include "support/threads.h"

static void rule(struct fc_degrade_conf conf)
{
	assert_int_equal(give_rule(&fc_interceptor_degrade, &conf, 0), 0);
}

static void begin(struct fc_degrade_conf conf)
{
	open_cpus(2);
	rule(conf);
}

static struct fc_breaker_status look(void)
{
	FC_OPTS(fc_breaker_status, s, .state = 0);

	if (fc_degrade_state(g.f, NULL, &s) < 0)
		abort();
	return s;
}

#define assert_state(state_) assert_int_equal(look().state, state_)

/* Just priorities under n get in. */
static void assert_let_in(uint32_t n)
{
	for (uint32_t p = 0; p < 8; p++)
		assert_int_equal(call_of(p, FC_OUTCOME_IGNORED), p < n ? 0 : FC_REFUSED_DEGRADED);
}

/* ---- levels ------------------------------------------------------------------------------------ */

static void a_level_refuses_the_least_important(void **state)
{
	(void)state;
	begin((struct fc_degrade_conf){ .level = 0 });
	for (uint32_t level = 0; level <= 8; level++) {
		assert_int_equal(fc_degrade_set(g.f, NULL, level), 0);
		assert_int_equal(fc_degrade_level(g.f, NULL), level);
		assert_let_in(8 - level);
	}
	assert_int_equal(fc_degrade_set(g.f, NULL, 9), -EINVAL);
	assert_int_equal(fc_degrade_set(g.f, "other", 1), -ENOENT);
	assert_int_equal(fc_degrade_level(g.f, "other"), -ENOENT);
	assert_int_equal(fc_degrade_fault(g.f, "other", 1), -ENOENT);
}

static void a_refusal_says_which_priorities_are_let_in(void **state)
{
	FC_OPTS(fc_decision, d, .status = 0);
	FC_OPTS(fc_ctx, ctx, .priority = 6);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	begin((struct fc_degrade_conf){ .level = 0 });
	fc_degrade_set(g.f, NULL, 3);
	assert_int_equal(fc_enter(&e, g.f, &ctx), FC_REFUSED_DEGRADED);
	assert_int_equal(fc_entry_decision(&e, &d), 0);
	assert_string_equal(d.rule, "degrade");
	assert_true(d.observed == 6 && d.limit == 5 && d.retry_after_ns == 0);
	assert_int_equal(fc_decision_http_status(&d), 503);
}

static void what_a_hand_set_only_a_hand_takes_back(void **state)
{
	(void)state;
	begin((struct fc_degrade_conf){ .trip = { .errors = 5 } });
	fc_degrade_set(g.f, NULL, 8);
	guarded_pass(&g, FC_S(86400));
	fc_tick(g.fc, 0);
	rule((struct fc_degrade_conf){ .level = 2, .trip = { .errors = 7 } });
	fc_degrade_fault(g.f, NULL, 1);
	fc_degrade_fault(g.f, NULL, 0);
	assert_let_in(0);
	fc_degrade_set(g.f, NULL, 0);
	fc_tick(g.fc, 0);
	assert_int_equal(guarded_events(&g, FC_EVENT_DEGRADE_SET), 1);
}

static void the_higher_of_two_levels_holds(void **state)
{
	(void)state;
	begin((struct fc_degrade_conf){ .level = 4 });
	fc_degrade_fault(g.f, NULL, 1);
	assert_let_in(4);
	fc_degrade_set(g.f, NULL, 2);
	assert_let_in(4);
	assert_int_equal(fc_degrade_level(g.f, NULL), 4);
	fc_degrade_set(g.f, NULL, 6);
	assert_let_in(2);
	assert_int_equal(fc_degrade_level(g.f, NULL), 6);
}

/* ---- by itself --------------------------------------------------------------------------------- */

static void without_numbers_it_is_never_degraded_by_itself(void **state)
{
	(void)state;
	begin((struct fc_degrade_conf){ .level = 8 });
	assert_int_equal(calls(1000, FC_OUTCOME_TIMEOUT), 1000);
	assert_int_equal(look().calls, 0);
	assert_int_equal(fc_degrade_level(g.f, NULL), 0);
}

static void timeouts_degrade_and_probes_bring_it_back(void **state)
{
	(void)state;
	begin((struct fc_degrade_conf){ .timeout_permille = 500, .trip = { .min_calls = 10, .open_ns = FC_S(5) } });
	assert_int_equal(calls(9, FC_OUTCOME_ERROR), 9); /* other failures are not asked for */
	assert_int_equal(calls(8, FC_OUTCOME_TIMEOUT), 8);
	assert_state(FC_BREAKER_CLOSED);
	assert_int_equal(calls(10, FC_OUTCOME_TIMEOUT), 1);
	assert_int_equal(fc_degrade_level(g.f, NULL), 8);
	guarded_pass(&g, FC_S(5) + 2 * UNIT_NS);
	assert_int_equal(calls(2, FC_OUTCOME_OK), 2);
	assert_int_equal(fc_degrade_level(g.f, NULL), 8);
	assert_int_equal(calls(1, FC_OUTCOME_OK), 1);
	assert_int_equal(fc_degrade_level(g.f, NULL), 0);
	fc_tick(g.fc, 0);
	assert_non_null(guarded_last(&g, FC_EVENT_DEGRADED));
	assert_non_null(guarded_last(&g, FC_EVENT_DEGRADE_OVER));
}

static void so_many_timeouts_or_failures_degrade(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	begin((struct fc_degrade_conf){ .timeouts = 3, .trip = { .errors = 10 } });
	calls(1000, FC_OUTCOME_OK);
	calls(2, FC_OUTCOME_TIMEOUT);
	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	abandon(); /* as one that hangs */
	fc_exit(&e);
	assert_state(FC_BREAKER_OPEN);
	begin((struct fc_degrade_conf){ .timeouts = 3, .trip = { .errors = 10 } });
	assert_int_equal(calls(9, FC_OUTCOME_ERROR), 9);
	assert_int_equal(calls(100, FC_OUTCOME_IGNORED), 100); /* they say nothing, good nor bad */
	assert_int_equal(look().calls, 9);
	assert_int_equal(calls(9, FC_OUTCOME_TIMEOUT), 1);
}

static void the_more_important_go_on_and_do_not_probe(void **state)
{
	FC_OPTS(fc_ctx, ctx, .priority = 5);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	begin((struct fc_degrade_conf){ .level = 4, .trip = { .errors = 5, .probes = 1 } });
	for (int i = 0; i < 5; i++)
		assert_int_equal(call_of((uint32_t)i, FC_OUTCOME_ERROR), 0); /* all count */
	assert_state(FC_BREAKER_OPEN);
	for (int i = 0; i < 50; i++)
		assert_int_equal(call_of(3, FC_OUTCOME_ERROR), 0);
	assert_int_equal(call_of(4, FC_OUTCOME_OK), FC_REFUSED_DEGRADED);
	guarded_pass(&g, look().left_ns);
	assert_int_equal(fc_enter(&e, g.f, &ctx), 0); /* the probe */
	assert_int_equal(call_of(3, FC_OUTCOME_ERROR), 0);
	assert_int_equal(call_of(4, FC_OUTCOME_OK), FC_REFUSED_DEGRADED);
	assert_state(FC_BREAKER_HALF_OPEN);
	fc_exit(&e);
	assert_int_equal(fc_degrade_level(g.f, NULL), 0);
}

static void the_fault_flag_degrades_at_once_and_probes_follow_it(void **state)
{
	static const struct { uint32_t recover; int after; } ways[] = {
		{ FC_RECOVER_AT_ONCE, FC_BREAKER_CLOSED }, { FC_RECOVER_RAMP, FC_BREAKER_RAMP },
	};

	(void)state;
	for (int i = 0; i < 2; i++) {
		begin((struct fc_degrade_conf){ .trip = { .recover = ways[i].recover, .probes = 1 } });
		assert_int_equal(fc_degrade_fault(g.f, NULL, 0), 0); /* nothing to take away */
		assert_let_in(8);
		assert_int_equal(fc_degrade_fault(g.f, NULL, 1), 0);
		guarded_pass(&g, FC_S(86400));
		assert_let_in(0);
		assert_int_equal(fc_degrade_fault(g.f, NULL, 0), 0);
		assert_state(FC_BREAKER_HALF_OPEN);
		later_refuses = 1;
		assert_int_equal(call(FC_OUTCOME_OK), FC_REFUSED_CUSTOM); /* it gives the probe back */
		later_refuses = 0;
		assert_int_equal(call(FC_OUTCOME_OK), 0);
		assert_state(ways[i].after);
	}
}

static void a_reload_keeps_level_and_flag(void **state)
{
	(void)state;
	begin((struct fc_degrade_conf){ .level = 4 });
	fc_degrade_fault(g.f, NULL, 1);
	fc_degrade_set(g.f, NULL, 1);
	rule((struct fc_degrade_conf){ .level = 5 });
	assert_let_in(3);
	assert_int_equal(fc_iface_set_chain(g.f, NULL, 0), 0);
	assert_let_in(8);
	rule((struct fc_degrade_conf){ .level = 5 });
	assert_let_in(3);
	fc_degrade_fault(g.f, NULL, 0);
	call_of(7, FC_OUTCOME_ERROR);
	assert_int_equal(fc_degrade_level(g.f, NULL), 5);
}

static void a_dry_run_refuses_nobody(void **state)
{
	struct fc_degrade_conf conf = { .level = 8 };

	(void)state;
	begin(conf);
	assert_int_equal(give_rule(&fc_interceptor_degrade, &conf, FC_RULE_DRY_RUN), 0);
	fc_degrade_set(g.f, NULL, 8);
	assert_int_equal(calls(10, FC_OUTCOME_OK), 10);
	assert_int_equal(guarded_stats(&g).would_refuse, 10);
}

static void bad_numbers_are_refused_with_words(void **state)
{
	static const struct { struct fc_degrade_conf conf; const char *says; } bad[] = {
		{ { .level = 9 }, "guarded: degrade: level is over 8" },
		{ { .timeout_permille = 1001 }, "guarded: degrade: timeouts_ratio is over 100 %" },
		{ { .trip = { .slow_ns = 5 } },
		  "guarded: degrade: slow and slow_ratio are set, which only a breaker has: use timeouts_ratio" },
		{ { .trip = { .open_ns = 1 } }, "guarded: degrade: open is not between 2 ms and 1 h" },
	};

	(void)state;
	begin((struct fc_degrade_conf){ .level = 1 });
	g.fc->log = keep_line;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(give_rule(&fc_interceptor_degrade, &bad[i].conf, 0), -EINVAL);
		assert_string_equal(first_logged, bad[i].says);
		first_logged[0] = 0;
	}
}

/* ---- fallbacks --------------------------------------------------------------------------------- */

static int answered;

static int answer(void *arg, const struct fc_decision *why, void *call)
{
	answered++;
	assert_ptr_equal(call, &answered);
	return *(int *)arg + why->status;
}

static int answer_by_another_guard(void *arg, const struct fc_decision *why, void *call)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter(&e, arg, NULL);

	(void)why, (void)call;
	fc_exit(&e);
	return rc;
}

/* What a program would write. */
static int guarded_call(void)
{
	int rc = -1;

	FC_GUARD_OR_FALLBACK(rc, &answered, e, g.f) {
		rc = 1;
	} else {
		rc = -fc_entry_verdict(&e);
	}
	return rc;
}

static int a_thousand = 1000, two_thousand = 2000;

static void a_fallback_answers_what_degrade_refuses(void **state)
{
	(void)state;
	begin((struct fc_degrade_conf){ .level = 8 });
	answered = 0;
	assert_int_equal(guarded_call(), 1);
	fc_degrade_set(g.f, NULL, 8);
	assert_int_equal(guarded_call(), -FC_REFUSED_DEGRADED); /* there is none */
	assert_int_equal(fc_iface_fallback(g.f, answer, &a_thousand), 0);
	assert_int_equal(guarded_call(), 1000 + FC_REFUSED_DEGRADED);
	assert_int_equal(fc_iface_fallback(g.f, answer, &two_thousand), 0);
	assert_int_equal(guarded_call(), 2000 + FC_REFUSED_DEGRADED);
	assert_int_equal(fc_iface_fallbacks(g.f), 2);
	assert_int_equal(fc_iface_fallback(g.f, NULL, NULL), 0);
	assert_int_equal(guarded_call(), -FC_REFUSED_DEGRADED);
	assert_int_equal(answered, 2);
	assert_int_equal(guarded_stats(&g).refused[FC_REFUSED_DEGRADED], 4); /* they were refused all the same */
}

static void other_reasons_are_answered_when_named(void **state)
{
	(void)state;
	begin((struct fc_degrade_conf){ .level = 8 });
	fc_iface_fallback(g.f, answer, &a_thousand);
	later_refuses = 1;
	assert_int_equal(guarded_call(), -FC_REFUSED_CUSTOM);
	assert_int_equal(fc_iface_inject(g.f, FC_REFUSED_CAP, 1), 0);
	assert_int_equal(guarded_call(), -FC_REFUSED_CAP);
	assert_int_equal(fc_iface_inject(g.f, FC_REFUSED_BREAKER, 1), 0); /* named from the beginning */
	assert_int_equal(guarded_call(), 1000 + FC_REFUSED_BREAKER);
	assert_int_equal(fc_iface_fallback_on(g.f, FC_FALLBACK_DEFAULT | FC_FALLBACK_BIT(FC_REFUSED_CUSTOM)), 0);
	assert_int_equal(guarded_call(), 1000 + FC_REFUSED_CUSTOM);
	assert_int_equal(fc_iface_inject(g.f, FC_REFUSED_USER + 5, 1), 0); /* all of the program's own are one */
	assert_int_equal(guarded_call(), 1000 + FC_REFUSED_USER + 5);
	assert_int_equal(fc_iface_fallback_on(g.f, 0), 0);
	fc_degrade_set(g.f, NULL, 8);
	assert_int_equal(guarded_call(), -FC_REFUSED_DEGRADED);
}

static void a_fallback_may_enter_other_guards(void **state)
{
	static const struct fc_iface_opts o = { .size = sizeof(o), .cap = 1 };
	struct fc_iface *f;

	(void)state;
	begin((struct fc_degrade_conf){ .level = 8 });
	assert_int_equal(fc_iface_set(g.fc, "another", &o, &f), 0);
	fc_degrade_set(g.f, NULL, 8);
	fc_iface_fallback(g.f, answer_by_another_guard, f);
	assert_int_equal(guarded_call(), 0);
}

static void what_was_not_refused_is_not_answered(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int ret = 77;

	(void)state;
	begin((struct fc_degrade_conf){ .level = 8 });
	fc_iface_fallback(g.f, answer, &a_thousand);
	assert_int_equal(fc_fallback(NULL, NULL, &ret), 0);
	assert_int_equal(fc_fallback(&e, NULL, &ret), 0);
	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	assert_int_equal(fc_fallback(&e, NULL, &ret), 0);
	fc_exit(&e);
	assert_int_equal(fc_fallback(&e, NULL, &ret), 0);
	assert_int_equal(ret, 77);
	assert_int_equal(fc_iface_fallback(NULL, answer, NULL), -EINVAL);
	assert_int_equal(fc_iface_fallback_on(NULL, 1), -EINVAL);
	assert_int_equal(fc_iface_fallbacks(NULL), 0);
}

/* The memory of fallbacks that come and go is bounded by how many different ones there are. */
static void a_fallback_that_is_set_again_takes_no_memory(void **state)
{
	uint64_t live;

	(void)state;
	begin((struct fc_degrade_conf){ .level = 8 });
	fc_iface_fallback(g.f, answer, &a_thousand);
	fc_iface_fallback(g.f, answer, &two_thousand);
	live = (uint64_t)g.mem.live;
	for (int i = 0; i < 1000; i++)
		fc_iface_fallback(g.f, answer, i % 2 ? &a_thousand : &two_thousand);
	assert_int_equal(g.mem.live, live);
}

/* ---- threads ----------------------------------------------------------------------------------- */

static struct {
	uint64_t end;
	atomic_uint wrong, answers;
} race;

static int say_where(void *arg, const struct fc_decision *why, void *call)
{
	(void)call;
	return why->status == FC_REFUSED_DEGRADED ? *(int *)arg : -1;
}

static void switching(void *arg, unsigned index, struct rng *rng)
{
	uint64_t end = stress_end_ns();
	(void)arg;
	while (test_now_ns() < end) {
		FC_OPTS(fc_ctx, ctx, .priority = rng_below(rng, 8));
		struct fc_entry e = FC_ENTRY_INIT;
		int rc = fc_enter(&e, g.f, &ctx), ret = 0;

		if (rc > 0 && fc_fallback(&e, NULL, &ret)) {
			atomic_fetch_add(&race.answers, 1);
			if (ret != a_thousand && ret != two_thousand)
				atomic_fetch_add(&race.wrong, 1);
		} else if (rc == 0 && rng_chance(rng, 3)) {
			fc_entry_mark(&e, FC_OUTCOME_TIMEOUT);
		}
		fc_exit(&e);
		if (index == 0)
			fc_iface_fallback(g.f, rng_chance(rng, 3) ? NULL : say_where,
			                  rng_chance(rng, 2) ? &a_thousand : &two_thousand);
		if (index == 1) {
			fc_degrade_set(g.f, NULL, rng_below(rng, 9));
			fc_degrade_fault(g.f, NULL, rng_chance(rng, 2));
			fc_clock_advance(g.fc, FC_MS(1));
		}
	}
}

static void everything_at_once_and_it_comes_back(void **state)
{
	(void)state;
	begin((struct fc_degrade_conf){ .level = 6, .timeout_permille = 300,
	                                .trip = { .open_ns = FC_MS(5), .max_open_ns = FC_MS(20),
	                                          .recover = FC_RECOVER_RAMP, .ramp_ns = FC_MS(20) } });
	run_threads(4 * test_cpus() + 2, switching, NULL);
	assert_int_equal(atomic_load(&race.wrong), 0);
	assert_true(atomic_load(&race.answers) > 0);
	fc_degrade_set(g.f, NULL, 0);
	fc_degrade_fault(g.f, NULL, 0);
	g.now = fc_now_ns(g.fc);
	for (int i = 0; i < 1000 && fc_degrade_level(g.f, NULL); i++) {
		guarded_pass(&g, FC_MS(1));
		call_of(7, FC_OUTCOME_OK);
	}
	guarded_pass(&g, FC_S(20));
	assert_let_in(8);
}

int main(void)
{
#define T(f_) cmocka_unit_test_teardown(f_, teardown)
	static const struct CMUnitTest tests[] = {
		T(a_level_refuses_the_least_important),
		T(a_refusal_says_which_priorities_are_let_in),
		T(what_a_hand_set_only_a_hand_takes_back),
		T(the_higher_of_two_levels_holds),
		T(without_numbers_it_is_never_degraded_by_itself),
		T(timeouts_degrade_and_probes_bring_it_back),
		T(so_many_timeouts_or_failures_degrade),
		T(the_more_important_go_on_and_do_not_probe),
		T(the_fault_flag_degrades_at_once_and_probes_follow_it),
		T(a_reload_keeps_level_and_flag),
		T(a_dry_run_refuses_nobody),
		T(bad_numbers_are_refused_with_words),
		T(a_fallback_answers_what_degrade_refuses),
		T(other_reasons_are_answered_when_named),
		T(a_fallback_may_enter_other_guards),
		T(what_was_not_refused_is_not_answered),
		T(a_fallback_that_is_set_again_takes_no_memory),
		T(everything_at_once_and_it_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
