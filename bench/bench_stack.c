/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_stack.c - whole calls through chains of the library's interceptors: fc_enter() and fc_exit(), cap,
 * counters and clock included; and what a new chain each millisecond costs the calls that run.
 */
#include "guard.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

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

/* ---- a new chain each millisecond -------------------------------------------------------------- */

static struct {
	pthread_t thread;
	struct fc_iface *iface;
	int stop;
	unsigned reloads;
} reload;

static void *reload_on(void *arg)
{
	const struct timespec ms = { .tv_nsec = 1000000 };

	(void)arg;
	/* N1: a flag; N2: a count that is read after the join. */
	while (!__atomic_load_n(&reload.stop, __ATOMIC_RELAXED)) {
		nanosleep(&ms, NULL);
		if (fc_iface_set_chain(reload.iface, stack, 2))
			bench_die("a reload failed");
		reload.reloads++;
	}
	return NULL;
}

static int reload_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	int rc = stack_setup(s, c, ret_state);

	reload.iface = *ret_state;
	reload.stop = 0;
	return rc ? rc : pthread_create(&reload.thread, NULL, reload_on, NULL);
}

static void reload_teardown(void *state)
{
	__atomic_store_n(&reload.stop, 1, __ATOMIC_RELAXED);
	pthread_join(reload.thread, NULL);
	guard_teardown(state);
}

#define STACK(name_, what_, rules_) \
	{ .name = name_, .what = what_, .setup = stack_setup, .run = guard_run, .teardown = guard_teardown, .arg = rules_ }

static const struct bench_subject subjects[] = {
	STACK("stack_cap", "cap alone", 0),
	STACK("stack_cap_rate", "cap and rate", 1),
	STACK("stack_cap_rate_breaker", "cap, rate, breaker", 2),
	STACK("stack_five", "cap, rate, breaker, isolate, priority", 4),
	{ .name = "stack_reloaded", .what = "cap, rate, breaker; a new chain each ms", .setup = reload_setup,
	  .run = guard_run, .teardown = reload_teardown, .arg = 2 },
};

int main(int argc, char **argv)
{
	bench_list(argc, argv, "Chains", subjects, sizeof(subjects) / sizeof(subjects[0]));
	fc_destroy(guard_context());
	return 0;
}
