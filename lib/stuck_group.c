/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stuck_group.c - which stuck calls make one report, and when: calls of one interface in one place are
 * a group; a place and a call are told of again only after a while. See stuck.h and stuck_work.h.
 */
#include <string.h>

#include "entry.h"
#include "list.h"
#include "stuck_work.h"
#include "symbol.h"

#define HOLD_MAX_NS FC_S(60)

/* ---- when a call and a place are reported next -------------------------------------------------- */

/* The next doubling of the age at which it became overdue, but not a short while from now. */
static uint64_t next_report(const struct fc_iface *f, const struct fci_view *v, uint64_t now)
{
	uint64_t age = fci_age(v->start, now), at = fci_stuck_after(f, v);

	at = at ? at : 1;
	while (at <= age || at - age < age / 2) {
		if (at > FC_NEVER_NS / 4)
			return FC_NEVER_NS;
		at *= 2;
	}
	return v->start <= FC_NEVER_NS - at ? v->start + at : FC_NEVER_NS;
}

static struct fci_stuck_place *find_place(struct fci_stuck_work *w, uint64_t key)
{
	for (uint32_t i = 0; i < FCI_STUCK_PLACES; i++)
		if (w->places[i].key == key)
			return &w->places[i];
	return NULL;
}

/* Until when nothing more is told of a place; 0: tell. */
static uint64_t held_until(struct fci_stuck_work *w, uint64_t key, uint64_t now)
{
	const struct fci_stuck_place *p = find_place(w, key);

	return p && now >= p->last_ns && now - p->last_ns < p->hold_ns ? p->last_ns + p->hold_ns : 0;
}

void fci_stuck_told(struct fci_stuck_work *w, uint64_t key, uint64_t after, uint64_t now)
{
	struct fci_stuck_place *p = find_place(w, key);
	uint64_t hold = after / 2;

	if (p && fci_age(p->last_ns, now) <= 2 * p->hold_ns) {
		hold = 2 * p->hold_ns;
	} else if (!p) {
		p = &w->places[0];
		for (uint32_t i = 1; i < FCI_STUCK_PLACES; i++)
			if (w->places[i].last_ns < p->last_ns)
				p = &w->places[i];
	}
	*p = (struct fci_stuck_place){ .key = key, .last_ns = now, .hold_ns = hold < HOLD_MAX_NS ? hold : HOLD_MAX_NS };
}

/* ---- gathering ---------------------------------------------------------------------------------- */

/* Is it still inside? Takes a new view of it. Written-off calls were seen by the last look. */
static int look_again(struct fci_stuck_call *c)
{
	struct fci_view v;

	if (c->written_off)
		return 1;
	if (!fci_view(c->f, c->v.slot, &v) || !fci_same_call(v.word, c->v.word))
		return 0;
	c->v = v;
	return 1;
}

static struct fci_stuck_call *next_due(struct fci_stuck_work *w)
{
	struct fci_stuck_call *c;

	if (!w->n_due)
		return NULL;
	do {
		c = &w->calls[w->cursor];
		w->cursor = (w->cursor + 1) % FCI_STUCK_CALLS;
	} while (c->state != FCI_STUCK_DUE);
	return c;
}

static struct fci_stuck_group *find_group(struct fci_stuck_work *w, const struct fc_iface *f, uint64_t place)
{
	for (uint32_t i = 0; i < w->n_groups; i++)
		if (w->groups[i].f == f && w->groups[i].place == place)
			return &w->groups[i];
	return NULL;
}

/* Put a call whose stack was just taken into its group. 0: all groups are taken. */
static int put_into_group(struct fci_stuck_work *w, struct fci_stuck_call *c, const struct fci_capture *capture)
{
	struct fci_stuck_group *g = find_group(w, c->f, c->place);

	if (!g) {
		if (w->n_groups == FCI_STUCK_GROUPS)
			return 0;
		g = &w->groups[w->n_groups++];
	} else if (g->v.start <= c->v.start) {
		return 1;
	}
	*g = (struct fci_stuck_group){
		.f = c->f, .place = c->place, .v = c->v, .written_off = c->written_off, .capture = *capture,
	};
	if (w->sym)
		(void)fci_symbol_want_stack(w->sym, &capture->stack);
	return 1;
}

static void take_stack(struct fc *fc, struct fci_stuck_work *w, const struct fci_stuck_call *c,
                       struct fci_capture *ret)
{
	const char *why_not = "no stack: switched off (FC_NO_STACKS)";

	if (!(fc->flags & FC_NO_STACKS)) {
		why_not = "no stack: out of memory";
		if (!w->unwinder)
			(void)fci_unwinder_create(&w->unwinder);
		if (!w->sym)
			(void)fci_symboliser_create(&w->sym);
	}
	fci_capture(c->f, &c->v, w->unwinder, why_not, ret);
}

static uint64_t place_of(const struct fci_stuck_call *c, const struct fci_capture *capture)
{
	return (fci_capture_hash(capture) ^ (uint64_t)c->v.site << 40 ^ c->f->index) * FCI_SCRAMBLE | 1;
}

int fci_stuck_gather(struct fc *fc, struct fci_stuck_work *w, uint64_t now)
{
	struct fci_stuck_call *c = next_due(w);
	struct fci_capture capture;
	uint64_t held;

	if (!c)
		return 0;
	if (!look_again(c)) {
		c->state = FCI_STUCK_WATCHED;
		w->n_due--;
		return 1;
	}
	take_stack(fc, w, c, &capture);
	c->place = place_of(c, &capture);
	held = find_group(w, c->f, c->place) ? 0 : held_until(w, c->place, now);
	if (held) {
		c->at = held;
	} else if (!put_into_group(w, c, &capture)) {
		return 0;
	}
	c->state = held ? FCI_STUCK_WATCHED : FCI_STUCK_GROUPED;
	w->n_due--;
	return 1;
}

/* ---- what is said of a group -------------------------------------------------------------------- */

/* A call of the group that is still there. One at least half as old as the oldest goes on in step
 * with it, so that threads which came one after the other stay one report. */
static void count_member(struct fci_stuck_call *c, const struct fci_stuck_group *g, uint64_t with_oldest,
                         uint64_t now, struct fci_stuck_members *m)
{
	uint64_t age = fci_age(c->v.start, now);

	if (c->at < with_oldest && age >= fci_age(g->v.start, now) / 2)
		c->at = with_oldest;
	m->count++;
	m->first = !m->first || c->v.start < m->first->v.start ? c : m->first;
	m->oldest = c->v.start < m->oldest ? c->v.start : m->oldest;
	m->youngest = c->v.start > m->youngest ? c->v.start : m->youngest;
	if (m->n_tids <= FCI_STUCK_TIDS)
		m->tids[m->n_tids++] = c->v.tid;
}

void fci_stuck_collect(struct fci_stuck_work *w, const struct fci_stuck_group *g, uint64_t now,
                       struct fci_stuck_members *m)
{
	uint64_t with_oldest = next_report(g->f, &g->v, now);

	*m = (struct fci_stuck_members){ .oldest = g->v.start, .youngest = g->v.start };
	for (uint32_t i = 0; i < FCI_STUCK_CALLS; i++) {
		struct fci_stuck_call *c = &w->calls[i];

		if (c->state == FCI_STUCK_FREE || c->f != g->f || c->place != g->place)
			continue;
		w->n_due -= c->state == FCI_STUCK_DUE;
		c->state = FCI_STUCK_WATCHED;
		c->at = next_report(c->f, &c->v, now);
		if (look_again(c))
			count_member(c, g, with_oldest, now, m);
	}
	m->count = m->count ? m->count : 1; /* it has left since its stack was taken */
}

void fci_stuck_show_oldest(struct fc *fc, struct fci_stuck_work *w, struct fci_stuck_group *g,
                           const struct fci_stuck_call *first)
{
	struct fci_capture capture;

	if (!first || first->v.start >= g->v.start)
		return;
	take_stack(fc, w, first, &capture);
	if (place_of(first, &capture) != g->place)
		return;
	g->v = first->v;
	g->written_off = first->written_off;
	g->capture = capture;
}
