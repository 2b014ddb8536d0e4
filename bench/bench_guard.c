/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_guard.c - the guard: what a call through it costs, admitted and refused; what interceptors
 * add; what it adds to a program's own work; what an idle context costs.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Interceptors that do nothing: three different ones. */

static int no_op(struct fc_call *call)
{
	bench_sink(call);
	return 0;
}

static void no_op_post(struct fc_call *call)
{
	bench_sink(call);
}

#define NO_OP(n_)                                                                                  \
	{ .size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER + (n_),                    \
	  .name = "bench_no_op_" #n_, .reason = FC_REFUSED_CUSTOM, .pre = no_op,                   \
	  .undo = no_op_post, .post = no_op_post }
static const struct fc_interceptor no_ops[] = { NO_OP(1), NO_OP(2), NO_OP(3) };

static int chain_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	struct fc_iface *iface = guard_iface(s->name, NULL);
	struct fc_rule rules[3] = { 0 };

	(void)c;
	for (uint32_t i = 0; i < s->arg; i++)
		rules[i].interceptor = &no_ops[i];
	*ret_state = iface;
	return fc_iface_set_chain(iface, rules, s->arg);
}

/* Other ways to write the same, other settings. */

static uint64_t block_run(void *state, struct bench_worker *w, uint32_t n)
{
	struct fc_iface *iface = state;
	uint64_t admitted = 0;

	for (uint32_t i = 0; i < n; i++)
		FC_GUARD(e, iface) {
			admitted++;
			bench_work(w->body);
		}
	return admitted;
}

static int uncapped_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	FC_OPTS(fc_iface_opts, o, .flags = 0);

	(void)c;
	*ret_state = guard_iface(s->name, &o);
	return 0;
}

static int off_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	int rc = guard_setup(s, c, ret_state);

	return rc ? rc : fc_iface_set_off(*ret_state, 1);
}

/* A refusal that looks at those inside before, as one does each check_every. */

struct full {
	struct fc_iface *iface;
	struct fc_entry *entries;
	uint32_t n;
};

static int check_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	FC_OPTS(fc_iface_opts, o, .cap = s->arg, .expand = 1, .check_every_ns = 1, .latency = FC_LATENCY_EXACT,
	        .stuck_after_ns = FC_NEVER_NS);
	struct full *full = bench_alloc(sizeof(*full));

	(void)c;
	*full = (struct full){ .iface = guard_iface(s->name, &o), .entries = bench_alloc(s->arg * sizeof(struct fc_entry)), .n = s->arg };
	for (uint32_t i = 0; i < full->n; i++) {
		full->entries[i] = (struct fc_entry)FC_ENTRY_INIT;
		if (fc_enter(&full->entries[i], full->iface, NULL))
			bench_die("cannot fill the cap: call %u of %u", i + 1, full->n);
	}
	*ret_state = full;
	return 0;
}

static uint64_t check_run(void *state, struct bench_worker *w, uint32_t n)
{
	const struct full *full = state;

	return guard_run(full->iface, w, n);
}

static void check_teardown(void *state)
{
	struct full *full = state;

	for (uint32_t i = 0; i < full->n; i++)
		fc_exit(&full->entries[i]);
	free(full->entries);
	free(full);
}

#define SUBJECT(name_, what_, setup_, run_, arg_)                                                  \
	{ .name = name_, .what = what_, .setup = setup_, .run = run_, .arg = arg_ }

/* The same, of an interface. */
#define GUARD(name_, what_, setup_, run_, arg_)                                                    \
	{ .name = name_, .what = what_, .setup = setup_, .run = run_, .arg = arg_,                 \
	  .teardown = guard_teardown }

#define CHECK(name_, what_, cap_)                                                                  \
	{ .name = name_, .what = what_, .setup = check_setup, .run = check_run,                     \
	  .teardown = check_teardown, .refuses = true, .arg = cap_ }

static const struct bench_subject more[] = {
	GUARD("guard_block", "the same as FC_GUARD(e, handle) { }", guard_setup, block_run, 0),
	GUARD("guard_latency_off", "without latency", guard_setup, guard_run, FC_LATENCY_OFF),
	GUARD("guard_uncapped", "no rule: observed", uncapped_setup, guard_run, 0),
	GUARD("guard_off", "switched off", off_setup, guard_run, 0),
	GUARD("guard_no_op_1", "and 1 interceptor that does nothing", chain_setup, guard_run, 1),
	GUARD("guard_no_op_2", "and 2", chain_setup, guard_run, 2),
	GUARD("guard_no_op_3", "and 3", chain_setup, guard_run, 3),
	CHECK("check_64", "a refusal with its check of those inside: 64", 64),
	CHECK("check_1024", "1024", 1024),
	CHECK("check_65536", "65536", 65536),
};

/* Spaced: 1.7 us of own work a call, half of it inside the guard. */

static uint64_t spaced_bare_run(void *state, struct bench_worker *w, uint32_t n)
{
	(void)state;
	for (uint32_t i = 0; i < n; i++) {
		bench_work(w->body);
		bench_sink(w);
		bench_work(w->body);
	}
	return n;
}

static uint64_t spaced_run(void *state, struct bench_worker *w, uint32_t n)
{
	struct fc_iface *iface = state;
	uint64_t admitted = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		bench_work(w->body);
		if (fc_enter(&e, iface, NULL))
			continue;
		admitted++;
		bench_work(w->body);
		fc_exit(&e);
	}
	return admitted;
}

static struct { _Alignas(BENCH_LINE) _Atomic uint64_t n; char pad[BENCH_LINE - 8]; } shared;

static uint64_t spaced_counter_run(void *state, struct bench_worker *w, uint32_t n)
{
	(void)state;
	for (uint32_t i = 0; i < n; i++) {
		bench_work(w->body);
		/* N1: a counter and nothing else; the price of sharing its line is the point. */
		atomic_fetch_add_explicit(&shared.n, 1, memory_order_relaxed);
		bench_work(w->body);
		atomic_fetch_sub_explicit(&shared.n, 1, memory_order_relaxed);
	}
	return n;
}

static int nothing_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	(void)s, (void)c;
	*ret_state = NULL;
	return 0;
}

static const struct bench_subject spaced[] = {
	SUBJECT("spaced_bare", "1.7 us of own work", nothing_setup, spaced_bare_run, 0),
	SUBJECT("spaced_counter", "and one shared atomic counter", nothing_setup, spaced_counter_run, 0),
	GUARD("spaced_guard", "and a guard", guard_setup, spaced_run, 0),
	GUARD("spaced_guard_exact", "and a guard with exact latency", guard_setup, spaced_run,
	        FC_LATENCY_EXACT),
};
#define N_SPACED (sizeof(spaced) / sizeof(spaced[0]))

/* Steps of bench_work() that take half of 1.7 us here: the fastest of some tries. */
static uint32_t half_of_own_work(void)
{
	const uint32_t steps = 100000;
	double best_ns = 1e9;

	for (int i = 0; i < 20; i++) {
		uint64_t start_ns = bench_cpu_ns();
		double ns;

		bench_work(steps);
		ns = (double)(bench_cpu_ns() - start_ns) / steps;
		if (ns < best_ns)
			best_ns = ns;
	}
	return (uint32_t)(850 / best_ns);
}

static void bench_spaced(const struct bench_opts *o)
{
	const struct bench_subject *list[N_SPACED];
	const struct bench_case c = { .body = half_of_own_work() };
	struct bench_opts two = *o;
	struct bench_result *r;
	uint32_t n = 0, got;

	for (size_t i = 0; i < N_SPACED; i++)
		if (!i || !o->only || bench_wanted(o, spaced[i].name))
			list[n++] = &spaced[i];
	if (n < 2)
		return;
	memcpy(two.threads, (uint32_t[]){ 1, 2, 0 }, 3 * sizeof(uint32_t));
	r = bench_rounds(&two, list, n, &c, &got);
	bench_heading("Added to 1.7 us of own work, same interface");
	printf("| subject | threads | ns a call | ns added |\n|---|--:|--:|--:|\n");
	for (uint32_t i = 0; i < got; i++) {
		const struct bench_result *bare = bench_find(r, got, "spaced_bare", r[i].c.threads);
		double added[BENCH_ROUNDS_MAX];

		if (r[i].subject == &bench_pair)
			continue;
		for (uint32_t k = 0; k < r[i].rounds; k++)
			added[k] = r[i].ns[k] - bare->ns[k];
		r[i].extra = bench_median(added, r[i].rounds);
		r[i].extra_name = "added_ns";
		printf("| %s | %u | %.1f | %.1f |\n", r[i].subject->name, r[i].c.threads, r[i].med_ns,
		       r[i].extra);
		bench_json(&r[i]);
	}
	fflush(stdout);
	free(r);
}

/* A context that has nothing to do. */

static void bench_idle(void)
{
	const struct timespec settle = { .tv_sec = 3 }, look = { .tv_sec = 5 };
	struct timespec cpu[2];
	struct rusage u[2];

	nanosleep(&settle, NULL);
	getrusage(RUSAGE_SELF, &u[0]);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[0]);
	nanosleep(&look, NULL);
	getrusage(RUSAGE_SELF, &u[1]);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[1]);
	bench_heading("A context that nobody calls, with its housekeeping thread");
	/* One of the switches is this thread's own. */
	printf("%.1f wake-ups and %.1f us of CPU time a second.\n",
	       (double)(u[1].ru_nvcsw - u[0].ru_nvcsw - 1) / 5,
	       ((double)(cpu[1].tv_sec - cpu[0].tv_sec) * 1e9 +
	        (double)(cpu[1].tv_nsec - cpu[0].tv_nsec)) / 5000);
}

int main(int argc, char **argv)
{
	static const struct bench_subject *const first[] = { &bench_call, &bench_floor, &guard_admit, &guard_admit_exact,
		                                             &guard_refuse, &guard_refuse_all };
	const struct bench_subject *list[BENCH_SUBJECTS_MAX];
	const struct bench_case c = { 0 };
	struct bench_result *r;
	struct bench_opts o;
	uint32_t n = 0, got;

	bench_args(&o, argc, argv);
	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		if (bench_wanted(&o, first[i]->name))
			list[n++] = first[i];
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
		if (bench_wanted(&o, more[i].name))
			list[n++] = &more[i];
	if (o.count) {
		bench_count(&o, list, n);
		guard_release();
		fc_destroy(guard_context());
		return 0;
	}
	bench_json_open(&o);
	if (n || bench_wanted(&o, bench_pair.name)) {
		r = bench_rounds(&o, list, n, &c, &got);
		bench_heading("The guard, cap 64");
		bench_print(r, got);
		for (uint32_t i = 0; i < got; i++)
			if (bench_wanted(&o, r[i].subject->name))
				bench_json(&r[i]);
		free(r);
	}
	bench_spaced(&o);
	bench_json_close();
	guard_release();
	if (!o.quick && !o.only)
		bench_idle();
	fc_destroy(guard_context());
	return 0;
}
