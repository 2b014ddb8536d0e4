/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * alt_leased.c - counts of permits leased to CPUs. Enter takes one from the count of its CPU; when
 * that is empty it takes half of the richest other CPU's. Exit gives to the CPU that it runs on.
 *
 * Exact: permits are moved and never made, so at most `cap` calls are inside. A call may be refused
 * while the last permits are in a mover's hands. A count has no owner: the permit of a process that
 * is killed is lost, and a lower cap has to be collected from all the CPUs.
 *
 * The record lies in the thread's own line (one call a thread at a time, which is enough here).
 */
#define _GNU_SOURCE
#include "alt.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

struct pool {
	/* free: its CPU's threads mostly; others when they are out. Order: X1 on take, R2 on give. */
	_Alignas(BENCH_LINE) _Atomic uint32_t free;
	char pad[BENCH_LINE - sizeof(uint32_t)];
};

struct leased {
	uint32_t cpus;
	struct pool *pools;
	struct alt_slot slots[BENCH_THREADS_MAX];
};

static int leased_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	struct leased *l = bench_alloc(sizeof(*l));
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	uint32_t cap = alt_cap(s, c);

	l->cpus = cpus < 1 ? 1 : (uint32_t)cpus;
	l->pools = bench_alloc(l->cpus * sizeof(*l->pools));
	/* N1: before the threads start. */
	for (uint32_t i = 0; i < l->cpus; i++)
		atomic_store_explicit(&l->pools[i].free, cap / l->cpus + (i < cap % l->cpus),
		                      memory_order_relaxed);
	*ret_state = l;
	return 0;
}

/* Take up to `want` from a pool; returns how many. */
static uint32_t take(struct pool *p, uint32_t want)
{
	/* N2: X1 repeats the test. */
	uint32_t n = atomic_load_explicit(&p->free, memory_order_relaxed), got;

	do {
		if (!n)
			return 0;
		got = want ? want : (n + 1) / 2;
		/* X1 -> R2: what the last holder did is over. Fails only if another succeeded. */
	} while (!atomic_compare_exchange_weak_explicit(&p->free, &n, n - got, memory_order_acquire,
	                                                memory_order_relaxed));
	return got;
}

static void give(struct pool *p, uint32_t n)
{
	/* R2 -> X1 (take): the call is over before its permit is seen. */
	atomic_fetch_add_explicit(&p->free, n, memory_order_release);
}

static __attribute__((__noinline__)) bool steal(struct leased *l, uint32_t cpu)
{
	uint32_t best = 0, most = 0, got;

	for (uint32_t i = 0; i < l->cpus; i++) {
		/* N3: a guess whom to rob; take() decides. */
		uint32_t n = atomic_load_explicit(&l->pools[i].free, memory_order_relaxed);

		if (n > most)
			most = n, best = i;
	}
	got = most ? take(&l->pools[best], 0) : 0;
	if (got > 1)
		give(&l->pools[cpu], got - 1);
	return got > 0;
}

static uint32_t this_cpu(const struct leased *l)
{
	/* glibc reads it from the thread's rseq area: no system call. */
	int cpu = sched_getcpu();

	return cpu < 0 ? 0 : (uint32_t)cpu % l->cpus;
}

static __attribute__((__noinline__)) uint32_t leased_enter(struct leased *l, struct bench_worker *w)
{
	uint32_t cpu = this_cpu(l);

	if (!take(&l->pools[cpu], 1) && !steal(l, cpu))
		return ALT_REFUSED;
	alt_record(&l->slots[w->index], w->tid);
	return w->index;
}

static __attribute__((__noinline__)) void leased_exit(struct leased *l, struct bench_worker *w, uint32_t i)
{
	(void)w;
	/* N4: a diagnostic; nobody else uses the slot. */
	atomic_store_explicit(&l->slots[i].tid, 0, memory_order_relaxed);
	give(&l->pools[this_cpu(l)], 1);
}

static void leased_free(void *state)
{
	struct leased *l = state;

	free(l->pools);
	free(l);
}

ALT_RUN(leased)
ALT_SUBJECTS(leased, "alt_leased", "counts leased to CPUs", false);
