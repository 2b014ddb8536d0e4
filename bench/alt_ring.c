/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * alt_ring.c - the free slots lie in Concurrency Kit's MPMC ring: enter takes one, exit returns it.
 *
 * Exact: there are `cap` slots. A producer that is stopped between its two steps makes every later
 * producer wait for it; that is the ring's design, and what this file is here to show.
 */
#include "alt.h"

#include <ck_ring.h>
#include <stdlib.h>

#define RING_SIZE (2 * ALT_CAP_MAX)

struct ring {
	_Alignas(BENCH_LINE) ck_ring_t ring;
	_Alignas(BENCH_LINE) ck_ring_buffer_t buffer[RING_SIZE];
	struct alt_slot slots[ALT_CAP_MAX];
};

static void give(struct ring *r, uint32_t i)
{
	/* Never full: there are fewer slots than places; false means a stale look at the head. */
	while (!ck_ring_enqueue_mpmc(&r->ring, r->buffer, (void *)(uintptr_t)(i + 1)))
		ck_pr_stall();
}

static int ring_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	struct ring *r = bench_alloc(sizeof(*r));

	ck_ring_init(&r->ring, RING_SIZE);
	for (uint32_t i = 0; i < alt_cap(s, c); i++)
		give(r, i);
	*ret_state = r;
	return 0;
}

static __attribute__((__noinline__)) uint32_t ring_enter(struct ring *r, struct bench_worker *w)
{
	void *p;
	uint32_t i;

	if (!ck_ring_dequeue_mpmc(&r->ring, r->buffer, &p))
		return ALT_REFUSED;
	i = (uint32_t)(uintptr_t)p - 1;
	alt_record(&r->slots[i], w->tid);
	return i;
}

static __attribute__((__noinline__)) void ring_exit(struct ring *r, struct bench_worker *w, uint32_t i)
{
	(void)w;
	/* N2: the ring's own release orders it before the next holder. */
	atomic_store_explicit(&r->slots[i].tid, 0, memory_order_relaxed);
	give(r, i);
}

static void ring_free(void *r)
{
	free(r);
}

ALT_RUN(ring)
ALT_SUBJECTS(ring, "alt_ring", "ck_ring MPMC of free slots", true);
