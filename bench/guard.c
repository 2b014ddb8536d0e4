/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * guard.c - the library as a subject of the harness. Everything is as a server has it: shared
 * library, housekeeping thread, fc_enter() with its call site, interceptors at their defaults. See
 * guard.h.
 */
#include "guard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAP 64

struct fc *guard_context(void)
{
	static struct fc *fc;
	/* Without a log: refusing is what some subjects are for. */
	FC_OPTS(fc_opts, o, .flags = FC_THREAD, .max_ifaces = 4096);
	int rc;

	if (fc)
		return fc;
	if (bench_steady) {
		o.flags = 0;
		o.clock = FC_CLOCK_VIRTUAL;
	}
	rc = fc_create(&fc, &o);
	if (rc)
		bench_die("fc_create: %s", fc_status_text(rc));
	return fc;
}

struct fc_iface *guard_iface(const char *stem, const struct fc_iface_opts *opts)
{
	FC_OPTS(fc_iface_opts, standard, .cap = CAP);
	static uint32_t serial;
	struct fc_iface *iface;
	char name[64];
	int rc;

	snprintf(name, sizeof(name), "bench.%s.%u", stem, serial++);
	rc = fc_iface_set(guard_context(), name, opts ? opts : &standard, &iface);
	if (rc)
		bench_die("fc_iface_set %s: %s", name, fc_status_text(rc));
	return iface;
}

/* The idle holder. */

static struct {
	pthread_t thread;
	struct fc_iface *iface;
	struct fc_entry *entries;
	uint32_t n;
	pthread_barrier_t ready, done;
	bool running;
} holder;

static void *hold(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < holder.n; i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		if (fc_enter(&e, holder.iface, NULL))
			bench_die("cannot fill the cap: call %u of %u", i + 1, holder.n);
		/* Moved: or the next enter from this frame would prove that this one is over. */
		fc_entry_take(&holder.entries[i], &e);
	}
	pthread_barrier_wait(&holder.ready);
	pthread_barrier_wait(&holder.done);
	for (uint32_t i = 0; i < holder.n; i++)
		fc_exit(&holder.entries[i]);
	return NULL;
}

void guard_hold(struct fc_iface *iface, uint32_t n)
{
	holder.iface = iface;
	holder.n = n;
	holder.entries = bench_alloc(n * sizeof(*holder.entries));
	if (holder.running || pthread_barrier_init(&holder.ready, NULL, 2) ||
	    pthread_barrier_init(&holder.done, NULL, 2) ||
	    pthread_create(&holder.thread, NULL, hold, NULL))
		bench_die("cannot start the holder");
	holder.running = true;
	pthread_barrier_wait(&holder.ready);
}

void guard_release(void)
{
	if (!holder.running)
		return;
	pthread_barrier_wait(&holder.done);
	pthread_join(holder.thread, NULL);
	pthread_barrier_destroy(&holder.ready);
	pthread_barrier_destroy(&holder.done);
	free(holder.entries);
	holder.running = false;
}

/* The subjects */

int guard_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	FC_OPTS(fc_iface_opts, o, .cap = c->cap ? c->cap : CAP, .latency = s->arg);

	/* A case with a cap is about that cap: no expansion. */
	o.expand = c->cap ? 1 : 0;
	*ret_state = guard_iface(s->name, &o);
	return 0;
}

static int refuse_all_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	FC_OPTS(fc_iface_opts, o, .cap = FC_CAP_REFUSE_ALL);

	(void)c;
	*ret_state = guard_iface(s->name, &o);
	return 0;
}

/*
 * One full interface for all cases. The calls that fill it are meant to stay: they are never
 * overdue and never written off, and the limit does not grow.
 */
static int refuse_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	static struct fc_iface *full;
	FC_OPTS(fc_iface_opts, o, .cap = CAP, .expand = 1, .writeoff = FC_WRITEOFF_NONE,
	        .stuck_after_ns = FC_S(86400));

	(void)c;
	if (!full) {
		full = guard_iface(s->name, &o);
		guard_hold(full, CAP);
	}
	*ret_state = full;
	return 0;
}

/* These loops leave every call that they enter: nothing may have been purged or left late. */
void guard_teardown(void *state)
{
	struct fc_stats s = { .size = sizeof(s) };

	if (fc_iface_stats(state, &s))
		bench_die("no statistics");
	if (s.purged || s.late_exits || s.abandoned)
		printf("\n**%s: %llu running calls were purged, %llu left late.**\n", fc_iface_name(state),
		       (unsigned long long)s.purged, (unsigned long long)s.late_exits);
}

uint64_t guard_run(void *state, struct bench_worker *w, uint32_t n)
{
	struct fc_iface *iface = state;
	uint64_t admitted = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		if (fc_enter(&e, iface, NULL))
			continue;
		admitted++;
		bench_work(w->body);
		fc_exit(&e);
	}
	return admitted;
}

const struct bench_subject guard_admit = {
	.name = "guard_admit", .what = "fcguard: enter + exit, cap 64", .setup = guard_setup,
	.run = guard_run, .teardown = guard_teardown,
};
const struct bench_subject guard_admit_exact = {
	.name = "guard_admit_exact_latency", .what = "fcguard: every call's latency exactly",
	.setup = guard_setup, .run = guard_run, .teardown = guard_teardown, .arg = FC_LATENCY_EXACT,
};
const struct bench_subject guard_refuse = {
	.name = "guard_refuse", .what = "fcguard: cap 64, full", .setup = refuse_setup,
	.run = guard_run, .teardown = guard_teardown, .refuses = true,
};
const struct bench_subject guard_refuse_all = {
	.name = "guard_refuse_all", .what = "fcguard: a cap that lets nobody in",
	.setup = refuse_all_setup, .run = guard_run, .teardown = guard_teardown, .refuses = true,
};
