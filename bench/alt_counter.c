/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * alt_counter.c - one shared counter admits; a slot for the record is searched afterwards, from
 * where this thread found one last.
 *
 * Exact: the counter is raised by compare-and-swap and so never above the cap; a slot is free for
 * everybody whom the counter let in, because exit frees the slot before the count.
 */
#include "alt.h"

#include <stdlib.h>

struct counter {
	/* inside: all threads. Invariant: 0 <= inside <= cap. Order: X1 on enter, R2 on exit. */
	_Alignas(BENCH_LINE) _Atomic uint32_t inside;
	_Alignas(BENCH_LINE) uint32_t cap, mask;
	uint32_t hint[BENCH_THREADS_MAX][16];
	struct alt_slot slots[ALT_CAP_MAX];
};

static int counter_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	struct counter *x = bench_alloc(sizeof(*x));

	x->cap = alt_cap(s, c);
	x->mask = ALT_CAP - 1;
	while (x->mask + 1 < x->cap)
		x->mask = x->mask * 2 + 1;
	for (uint32_t i = 0; i < BENCH_THREADS_MAX; i++)
		x->hint[i][0] = i & x->mask;
	*ret_state = x;
	return 0;
}

static __attribute__((__noinline__)) uint32_t counter_enter(struct counter *x, struct bench_worker *w)
{
	/* N2: X1 repeats the test. */
	uint32_t n = atomic_load_explicit(&x->inside, memory_order_relaxed);
	uint32_t i = x->hint[w->index][0];

	do {
		if (n >= x->cap)
			return ALT_REFUSED;
		/* X1 -> R2: sees the slots that leavers freed. Fails only if another succeeded. */
	} while (!atomic_compare_exchange_weak_explicit(&x->inside, &n, n + 1, memory_order_acquire,
	                                                memory_order_relaxed));
	for (;; i = (i + 1) & x->mask) {
		uint64_t nobody = 0;

		/* N3: a racy look; the exchange decides. */
		if (atomic_load_explicit(&x->slots[i].tid, memory_order_relaxed))
			continue;
		/* X2 -> R3: the slot is this thread's alone. */
		if (atomic_compare_exchange_strong_explicit(&x->slots[i].tid, &nobody, w->tid,
		                                            memory_order_acquire, memory_order_relaxed))
			break;
	}
	/* N4: the thread is there already; a reader may see its start time late (a diagnostic). */
	atomic_store_explicit(&x->slots[i].start_ns, alt_now_ns(), memory_order_relaxed);
	x->hint[w->index][0] = i;
	return i;
}

static __attribute__((__noinline__)) void counter_exit(struct counter *x, struct bench_worker *w,
                                                       uint32_t i)
{
	(void)w;
	/* R3 -> X2: the record is done with. */
	atomic_store_explicit(&x->slots[i].tid, 0, memory_order_release);
	/* R2 -> X1: the slot is free before the count says so; else an admitted call might find none. */
	atomic_fetch_sub_explicit(&x->inside, 1, memory_order_release);
}

static void counter_free(void *x)
{
	free(x);
}

ALT_RUN(counter)
ALT_SUBJECTS(counter, "alt_counter", "one shared counter, then a slot", false);
