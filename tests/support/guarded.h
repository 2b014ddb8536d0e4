/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tests/support/guarded.h - a context on the virtual clock with one interface, its events kept.
 *
 *     static struct guarded g;
 *     guarded_open(&g, &(struct fc_iface_opts){ .cap = 3 });
 *     ...
 *     guarded_close(&g);
 *
 * Threads.  The main thread opens, closes, ticks and reads events.
 */
#ifndef FC_TESTS_GUARDED_H
#define FC_TESTS_GUARDED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/check.h"
#include "lib/inflight.h"
#include "alloc.h"

#define GUARDED_EVENTS 4096

struct guarded {
	struct fc *fc;
	struct fc_iface *f;
	struct counting_alloc mem;
	struct fc_alloc alloc;
	uint64_t now;
	unsigned n_events;
	struct fc_event events[GUARDED_EVENTS];
};

static inline void guarded_event(void *arg, const struct fc_event *e)
{
	struct guarded *g = arg;

	if (g->n_events < GUARDED_EVENTS)
		g->events[g->n_events++] = *e;
}

/* A context whose interfaces believe in ncpus CPUs; 0: as many as there are. */
static inline void guarded_context(struct guarded *g, uint32_t ncpus)
{
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .flags = FC_NO_STACKS, .max_ifaces = 16,
	        .segment_bytes = 64u << 20);

	memset(g, 0, sizeof(*g));
	g->alloc = counting_alloc_init(&g->mem);
	o.alloc = &g->alloc;
	o.on_event = guarded_event;
	o.event_arg = g;
	if (fc_create(&g->fc, &o) < 0)
		abort();
	if (ncpus)
		g->fc->geo.ncpus = ncpus;
	g->now = FC_S(1000);
	fc_clock_set(g->fc, g->now);
}

static inline int guarded_iface(struct guarded *g, const struct fc_iface_opts *opts)
{
	struct fc_iface_opts o = *opts;

	o.size = sizeof(o);
	return fc_iface_set(g->fc, "guarded", &o, &g->f);
}

static inline void guarded_open(struct guarded *g, const struct fc_iface_opts *opts)
{
	guarded_context(g, 0);
	if (guarded_iface(g, opts) < 0)
		abort();
}

/* Returns how many calls are still inside, or a negative number when memory was not given back. */
static inline int guarded_close(struct guarded *g)
{
	int left = g->f ? (int)fc_inside(g->f, NULL) : 0;

	fc_destroy(g->fc);
	g->fc = NULL;
	g->f = NULL;
	if (g->mem.live != 0 || g->mem.bad_frees != 0)
		return -1;
	return left;
}

static inline void guarded_pass(struct guarded *g, uint64_t ns)
{
	g->now += ns;
	fc_clock_set(g->fc, g->now);
}

static inline struct fc_stats guarded_stats(const struct guarded *g)
{
	FC_OPTS(fc_stats, s, .cap = 0);

	if (fc_iface_stats(g->f, &s) < 0)
		abort();
	return s;
}

static inline uint64_t guarded_refused(const struct fc_stats *s)
{
	uint64_t n = 0;

	for (int i = 0; i < FC_STATS_REASONS; i++)
		n += s->refused[i];
	return n;
}

/* Enter n calls; how many got in. They come first in e. */
static inline unsigned guarded_fill(struct guarded *g, struct fc_entry *e, unsigned n)
{
	unsigned in = 0;

	for (unsigned i = 0; i < n; i++) {
		memset(&e[in], 0, sizeof(e[in]));
		in += fc_enter(&e[in], g->f, NULL) == 0;
	}
	return in;
}

static inline void guarded_empty(struct fc_entry *e, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		fc_exit(&e[i]);
}

static inline unsigned guarded_events(const struct guarded *g, int kind)
{
	unsigned n = 0;

	for (unsigned i = 0; i < g->n_events; i++)
		n += g->events[i].kind == kind;
	return n;
}

/* The last event of a kind, or NULL. */
static inline const struct fc_event *guarded_last(const struct guarded *g, int kind)
{
	for (unsigned i = g->n_events; i-- > 0;)
		if (g->events[i].kind == kind)
			return &g->events[i];
	return NULL;
}

/* Free words that a caller may take. */
static inline uint32_t guarded_free(const struct guarded *g)
{
	uint32_t n = 0, slots = fci_slots(g->f), limit = fc_limit_get(g->f);

	for (uint32_t s = 0; s < slots; s++)
		n += fci_rank(g->f, s) < limit && FCI_LOW(atomic_load_explicit(fci_word(g->f, s), FCI_SC)) == FCI_FREE;
	return n;
}

#endif /* FC_TESTS_GUARDED_H */
