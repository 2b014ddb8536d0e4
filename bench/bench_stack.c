/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_stack.c - whole calls through chains of the library's interceptors: fc_enter() and fc_exit(), cap,
 * counters and clock included; and what a new chain, or a new rules file, each millisecond costs the calls that
 * run.
 */
#include "guard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <fcguard/rules.h>

#define EVER { 1000000000, FC_S(1) } /* more than any thread asks for: what is admitted is measured */

static const struct fc_rate_conf rate = { .limit = EVER };
static const struct fc_breaker_conf breaker = { .error_permille = 500 };
static const struct fc_isolate_member members[] = { { "bench", 32, 0 } };
static const struct fc_isolate_conf isolate = { .group = "bench", .member = "bench" };
static const struct fc_priority_conf priority = { .no_health = 1 };

static const struct fc_rule stack[] = {
	{ .interceptor = &fc_interceptor_rate, .conf = &rate },
	{ .interceptor = &fc_interceptor_breaker, .conf = &breaker },
	{ .interceptor = &fc_interceptor_isolate, .conf = &isolate },
	{ .interceptor = &fc_interceptor_priority, .conf = &priority },
};

/* The first `arg` rules of the stack; with 4 the group of the third is there. */
static int stack_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	FC_OPTS(fc_isolate_opts, group, .cap = 64, .members = members, .n_members = 1);
	FC_OPTS(fc_iface_opts, o, .cap = 64);

	(void)c;
	*ret_state = guard_iface(s->name, &o);
	if (fc_isolate_group(guard_context(), "bench", &group))
		return -1;
	return fc_iface_set_chain(*ret_state, stack, s->arg);
}

/* ---- something new each millisecond ------------------------------------------------------------ */

static struct {
	pthread_t thread;
	struct fc_iface *iface;
	void (*fn)(void);
	int stop;
	unsigned reloads;
} reload;

static void new_chain(void)
{
	if (fc_iface_set_chain(reload.iface, stack, 2))
		bench_die("a reload failed");
}

/* Each differs from the last one, for this interface and for one that nobody calls. */
static void new_rules(void)
{
	char text[512];

	snprintf(text, sizeof(text),
	         "version: 1\ninterfaces:\n  %s: {cap: 64, rules: {rate: {limit: %u/s}, breaker: {errors_ratio: 50%%}}}\n"
	         "  bench.other: {cap: %u}\n",
	         fc_iface_name(reload.iface), 1000000000 - reload.reloads % 100, 10 + reload.reloads % 100);
	if (fc_rules_load_text(guard_context(), FC_RULES_FILE, "bench", text, strlen(text), NULL))
		bench_die("a rules file was refused");
}

static void *reload_on(void *arg)
{
	const struct timespec ms = { .tv_nsec = 1000000 };

	(void)arg;
	/* N1: a flag. */
	while (!__atomic_load_n(&reload.stop, __ATOMIC_RELAXED)) {
		nanosleep(&ms, NULL);
		reload.fn();
		reload.reloads++;
	}
	return NULL;
}

static void reload_begin(struct fc_iface *iface, void (*fn)(void))
{
	reload.iface = iface;
	reload.fn = fn;
	reload.stop = 0;
	fn();
	if (pthread_create(&reload.thread, NULL, reload_on, NULL))
		bench_die("no thread");
}

static void chain_begin(void *state)
{
	reload_begin(state, new_chain);
}

static void rules_begin(void *state)
{
	reload_begin(state, new_rules);
}

static void reload_end(void *state)
{
	(void)state;
	__atomic_store_n(&reload.stop, 1, __ATOMIC_RELAXED);
	pthread_join(reload.thread, NULL);
}

/* Nothing of it is set by hand; left out where the library was built without rules. */
static int rules_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	int rc = stack_setup(s, c, ret_state);

	return rc ? rc : fc_rules_hold(guard_context(), fc_iface_name(*ret_state), 0);
}

#define STACK(name_, what_, rules_) \
	{ .name = name_, .what = what_, .setup = stack_setup, .run = guard_run, .teardown = guard_teardown, .arg = rules_ }

static const struct bench_subject subjects[] = {
	STACK("stack_cap", "cap alone", 0),
	STACK("stack_cap_rate", "cap and rate", 1),
	STACK("stack_cap_rate_breaker", "cap, rate, breaker", 2),
	STACK("stack_five", "cap, rate, breaker, isolate, priority", 4),
	{ .name = "stack_reloaded", .what = "cap, rate, breaker; a new chain each ms", .setup = stack_setup,
	  .begin = chain_begin, .end = reload_end, .run = guard_run, .teardown = guard_teardown, .arg = 2 },
	{ .name = "stack_rules_reloaded", .what = "the same; a new rules file each ms", .setup = rules_setup,
	  .begin = rules_begin, .end = reload_end, .run = guard_run, .teardown = guard_teardown, .arg = 2 },
};

int main(int argc, char **argv)
{
	bench_list(argc, argv, "Chains", subjects, sizeof(subjects) / sizeof(subjects[0]));
	fc_destroy(guard_context());
	return 0;
}
