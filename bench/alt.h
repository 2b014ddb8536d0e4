/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * alt.h - other ways to build the in-flight queue, for bench_queue.c. Each keeps for every call
 * inside its start time (coarse clock) and thread, and admits at most `cap`, exactly. None of them
 * has generations, survives a killed process, or has the rest of a guard.
 *
 * enter and exit are not inlined, as calls into a library are not.
 *
 *   alt_counter.c  one shared counter admits, then a slot is searched
 *   alt_ring.c     Concurrency Kit's MPMC ring holds the free slots
 *   alt_fifo.c     Concurrency Kit's MPMC FIFO holds the free slots
 *   alt_leased.c   counts of permits leased to CPUs, records in the thread's own line
 */
#ifndef BENCH_ALT_H
#define BENCH_ALT_H

#include "bench.h"

#include <stdatomic.h>
#include <time.h>

#define ALT_CAP     64   /* when the case names none */
#define ALT_CAP_MAX 1024

/* One call inside. */
struct alt_slot {
	/* start_ns, tid: written by the holder, read by whoever asks who is inside (a diagnostic: a
	 * torn pair shows a call that has just left). tid 0: free. Order: R1 on tid at enter. */
	_Alignas(64) _Atomic uint64_t start_ns;
	_Atomic uint64_t tid;
};

static inline uint64_t alt_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void alt_record(struct alt_slot *slot, uint64_t tid)
{
	/* N1: R1 orders it. */
	atomic_store_explicit(&slot->start_ns, alt_now_ns(), memory_order_relaxed);
	/* R1 -> a reader's acquire load of tid: who sees the thread sees its start time. */
	atomic_store_explicit(&slot->tid, tid, memory_order_release);
}

static inline uint32_t alt_cap(const struct bench_subject *s, const struct bench_case *c)
{
	return s->refuses ? 0 : c->cap ? c->cap : ALT_CAP;
}

/* Defines NAME_run: enter returns a handle, or ALT_REFUSED. */
#define ALT_REFUSED UINT32_MAX
#define ALT_RUN(stem_)                                                                             \
	static uint64_t stem_##_run(void *state, struct bench_worker *w, uint32_t n)               \
	{                                                                                          \
		uint64_t admitted = 0;                                                             \
                                                                                                   \
		for (uint32_t i = 0; i < n; i++) {                                                 \
			uint32_t h = stem_##_enter(state, w);                                      \
                                                                                                   \
			if (h == ALT_REFUSED)                                                      \
				continue;                                                          \
			admitted++;                                                                \
			bench_work(w->body);                                                       \
			stem_##_exit(state, w, h);                                                 \
		}                                                                                  \
		return admitted;                                                                   \
	}

#define ALT_SUBJECTS(stem_, name_, what_, waits_)                                                  \
	const struct bench_subject alt_##stem_ = {                                                 \
		.name = name_, .what = what_, .setup = stem_##_setup, .run = stem_##_run,          \
		.teardown = stem_##_free, .waits = waits_ };                                       \
	const struct bench_subject alt_##stem_##_refuse = {                                        \
		.name = name_ "_refuse", .what = "the same, full", .setup = stem_##_setup,         \
		.run = stem_##_run, .teardown = stem_##_free, .refuses = true }

extern const struct bench_subject alt_counter, alt_counter_refuse, alt_ring, alt_ring_refuse,
	alt_fifo, alt_fifo_refuse, alt_leased, alt_leased_refuse;

#endif /* BENCH_ALT_H */
