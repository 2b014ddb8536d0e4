/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * alt_fifo.c - the free slots lie in Concurrency Kit's MPMC FIFO: enter takes one, exit returns it.
 *
 * Exact: there are `cap` slots. A dequeue frees a node; the call keeps it and its exit enqueues
 * with it, so there are never fewer nodes than needed. Nodes are never given back to malloc(),
 * which the FIFO's late readers need.
 */
#include "alt.h"

#include <ck_fifo.h>
#include <stdlib.h>

struct fifo {
	_Alignas(BENCH_LINE) ck_fifo_mpmc_t fifo;
	_Alignas(BENCH_LINE) ck_fifo_mpmc_entry_t nodes[ALT_CAP_MAX + 1];
	ck_fifo_mpmc_entry_t *kept[ALT_CAP_MAX]; /* by slot: the holder's alone */
	struct alt_slot slots[ALT_CAP_MAX];
};

static int fifo_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	struct fifo *f = bench_alloc(sizeof(*f));

	ck_fifo_mpmc_init(&f->fifo, &f->nodes[ALT_CAP_MAX]);
	for (uint32_t i = 0; i < alt_cap(s, c); i++)
		ck_fifo_mpmc_enqueue(&f->fifo, &f->nodes[i], (void *)(uintptr_t)(i + 1));
	*ret_state = f;
	return 0;
}

static __attribute__((__noinline__)) uint32_t fifo_enter(struct fifo *f, struct bench_worker *w)
{
	ck_fifo_mpmc_entry_t *node;
	void *p;
	uint32_t i;

	if (!ck_fifo_mpmc_dequeue(&f->fifo, &p, &node))
		return ALT_REFUSED;
	i = (uint32_t)(uintptr_t)p - 1;
	f->kept[i] = node;
	alt_record(&f->slots[i], w->tid);
	return i;
}

static __attribute__((__noinline__)) void fifo_exit(struct fifo *f, struct bench_worker *w, uint32_t i)
{
	(void)w;
	/* N2: the FIFO's own fences order it before the next holder. */
	atomic_store_explicit(&f->slots[i].tid, 0, memory_order_relaxed);
	ck_fifo_mpmc_enqueue(&f->fifo, f->kept[i], (void *)(uintptr_t)(i + 1));
}

static void fifo_free(void *f)
{
	free(f);
}

ALT_RUN(fifo)
ALT_SUBJECTS(fifo, "alt_fifo", "ck_fifo MPMC of free slots", false);
