/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stuck.c - see stuck.h. Here: finding overdue calls, and the steps from there to a report. Grouping is
 * in stuck_group.c, writing in stuck_write.c. The states of a remembered call:
 *
 *     WATCHED -> DUE        its time has come (fci_stuck_tick)
 *     DUE -> GROUPED        its stack is taken (fci_stuck_gather)
 *     DUE -> WATCHED        its place was reported a short while ago: later
 *     GROUPED -> WATCHED    the report is written, or suppressed
 *     any -> FREE           a look did not find it any more
 *
 * Reports are made in batches: gather groups until nothing is due or all groups are taken, look the
 * addresses up (a thread of symbol.c does it, we come back), write.
 *
 * Only the ticking thread touches what is here. It is plain memory but for the counter in struct fc.
 */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "entry.h"
#include "list.h"
#include "stuck.h"
#include "stuck_work.h"
#include "symbol.h"

#define CALLS_PER_IFACE (FCI_STUCK_CALLS / 2)
#define NONE            UINT16_MAX
#define LOOK_UP_NS      FC_MS(5)  /* between looks at the symboliser */
#define GIVE_UP_NS      FC_S(10)  /* then without symbols; real time */

/* ---- remembered calls --------------------------------------------------------------------------- */

static void forget_all(struct fci_stuck_work *w)
{
	for (uint32_t i = 0; i < FCI_STUCK_HEADS; i++)
		w->heads[i] = NONE;
	for (uint32_t i = 0; i < FCI_STUCK_CALLS; i++) {
		w->calls[i].state = FCI_STUCK_FREE;
		w->calls[i].next = i + 1 < FCI_STUCK_CALLS ? (uint16_t)(i + 1) : NONE;
	}
	w->free = 0;
	w->n_due = w->n_groups = w->written = 0;
	w->phase = FCI_STUCK_GATHER;
	memset(w->places, 0, sizeof(w->places));
}

static uint16_t *head_of(struct fci_stuck_work *w, const struct fc_iface *f, const struct fci_view *v)
{
	uint64_t h = ((uint64_t)f->index << 32 ^ v->slot) * FCI_SCRAMBLE;

	return &w->heads[(h >> 40) % FCI_STUCK_HEADS];
}

static struct fci_stuck_call *find(struct fci_stuck_work *w, const struct fc_iface *f, const struct fci_view *v)
{
	for (uint16_t i = *head_of(w, f, v); i != NONE; i = w->calls[i].next) {
		struct fci_stuck_call *c = &w->calls[i];

		if (c->f == f && c->v.slot == v->slot && fci_same_call(c->v.word, v->word))
			return c;
	}
	return NULL;
}

static struct fci_stuck_call *add(struct fci_stuck_work *w, struct fc_iface *f, const struct fci_view *v)
{
	uint16_t i = w->free, *head = head_of(w, f, v);
	struct fci_stuck_call *c;

	if (i == NONE)
		return NULL;
	c = &w->calls[i];
	w->free = c->next;
	*c = (struct fci_stuck_call){ .v = *v, .f = f, .state = FCI_STUCK_WATCHED, .next = *head };
	*head = i;
	return c;
}

static void forget(struct fci_stuck_work *w, struct fci_stuck_call *c)
{
	uint16_t *p = head_of(w, c->f, &c->v), i = (uint16_t)(c - w->calls);

	while (*p != i)
		p = &w->calls[*p].next;
	*p = c->next;
	if (c->state == FCI_STUCK_DUE)
		w->n_due--;
	c->state = FCI_STUCK_FREE;
	c->next = w->free;
	w->free = i;
}

/* What the look of this number did not see has left. */
static void forget_unseen(struct fci_stuck_work *w, const struct fc_iface *f)
{
	for (uint32_t i = 0; i < FCI_STUCK_CALLS; i++)
		if (w->calls[i].state != FCI_STUCK_FREE && w->calls[i].f == f && w->calls[i].scan != w->scan)
			forget(w, &w->calls[i]);
}

static uint32_t remembered(const struct fci_stuck_work *w, const struct fc_iface *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < FCI_STUCK_CALLS; i++)
		n += w->calls[i].state != FCI_STUCK_FREE && w->calls[i].f == f;
	return n;
}

/* ---- looking at an interface -------------------------------------------------------------------- */

struct scan {
	struct fc_iface *f;
	struct fci_stuck_work *work;   /* NULL: only count */
	uint64_t now, next, oldest;
	uint32_t peak;       /* of overdue calls; not 0 from the first one until none is left */
	uint32_t overdue, with_place, n_remembered;
};

static void next_look(struct scan *s, uint64_t at)
{
	if (at < s->next)
		s->next = at;
}

/* Does anybody want reports? */
static int wanted(const struct fc *fc)
{
	return fc->log || fc->on_stuck || (fc->flags & FC_LOG_STDERR);
}

static struct fci_stuck_work *work_of(struct fc *fc)
{
	if (!fc->stuck->work && wanted(fc)) {
		fc->stuck->work = fci_alloc(fc, sizeof(struct fci_stuck_work));
		if (fc->stuck->work)
			forget_all(fc->stuck->work);
	}
	return fc->stuck->work;
}

static void remember(struct scan *s, const struct fci_view *v, int written_off)
{
	struct fci_stuck_work *w = s->work = s->work ? s->work : work_of(s->f->fc);
	struct fci_stuck_call *c;

	if (!w)
		return;
	c = find(w, s->f, v);
	if (!c && s->n_remembered < CALLS_PER_IFACE && (c = add(w, s->f, v)) != NULL)
		s->n_remembered++;
	if (!c)
		return;
	c->v = *v;
	c->written_off = (uint8_t)written_off;
	c->scan = w->scan;
	if (c->state == FCI_STUCK_WATCHED && c->at <= s->now) {
		c->state = FCI_STUCK_DUE;
		w->n_due++;
	}
	if (c->state == FCI_STUCK_WATCHED)
		next_look(s, c->at);
}

static void look(struct scan *s, const struct fci_view *v, int written_off)
{
	uint64_t after = fci_stuck_after(s->f, v), age = fci_age(v->start, s->now);

	if (age < after) {
		next_look(s, v->start <= UINT64_MAX - after ? v->start + after : FC_NEVER_NS);
		return;
	}
	s->overdue++;
	s->with_place += !written_off;
	if (age > s->oldest)
		s->oldest = age;
	remember(s, v, written_off);
}

static void tell_edges(const struct scan *s)
{
	struct fci_rare *r = &s->f->block->rare;

	if (s->overdue && !s->peak)
		fc_event_note(s->f, FC_EVENT_STUCK, s->overdue, s->oldest);
	if (!s->overdue && s->peak)
		fc_event_note(s->f, FC_EVENT_UNSTUCK, s->peak, 0);
	/* N1: only the ticking thread writes these; others show them. */
	atomic_store_explicit(&r->overdue, s->with_place, FCI_RLX);
	if (!s->overdue || s->overdue > s->peak)
		atomic_store_explicit(&r->overdue_peak, s->overdue, FCI_RLX);
}

uint64_t fci_stuck_tick(struct fc_iface *f, uint64_t now)
{
	struct scan s = { .f = f, .work = f->fc->stuck->work, .now = now, .next = FC_NEVER_NS };
	uint32_t slots = fci_slots(f);
	struct fci_view v;

	/* N1: see tell_edges. */
	s.peak = atomic_load_explicit(&f->block->rare.overdue_peak, FCI_RLX);
	if (s.work) {
		s.work->scan++;
		s.n_remembered = s.peak ? remembered(s.work, f) : 0;
	}
	for (uint32_t i = 0; i < slots; i++)
		if (fci_view(f, i, &v))
			look(&s, &v, 0);
	for (uint32_t i = 0; i < fci_writeoffs(f); i++)
		if (fci_writeoff_view(f, i, &v))
			look(&s, &v, 1);
	tell_edges(&s);
	if (s.work && s.n_remembered)
		forget_unseen(s.work, f);
	/* That the last of them has left is worth a look a second. */
	if (s.overdue)
		next_look(&s, now + FC_S(1));
	return s.next;
}

/* ---- a step ------------------------------------------------------------------------------------- */

static int over(uint64_t until_ns)
{
	return fci_clock_os(CLOCK_MONOTONIC) >= until_ns;
}

/* Each phase returns 1 when it is through. */
static int gather_batch(struct fc *fc, struct fci_stuck_work *w, uint64_t now, uint64_t until_ns)
{
	while (fci_stuck_gather(fc, w, now))
		if (over(until_ns))
			return 0;
	return 1;
}

static int write_batch(struct fc *fc, struct fci_stuck_work *w, uint64_t now, uint64_t until_ns)
{
	while (w->written < w->n_groups) {
		fci_stuck_report(fc, w, &w->groups[w->written++], now);
		if (over(until_ns))
			break;
	}
	return w->written == w->n_groups;
}

uint64_t fci_stuck_step(struct fc *fc, uint64_t now, uint64_t until_ns)
{
	struct fci_stuck_work *w = fc->stuck ? fc->stuck->work : NULL;

	if (!w)
		return FC_NEVER_NS;
	if (w->phase == FCI_STUCK_GATHER) {
		if (!gather_batch(fc, w, now, until_ns))
			return now;
		if (w->n_groups == 0)
			return FC_NEVER_NS;
		w->phase = FCI_STUCK_LOOK_UP;
		w->give_up_ns = fci_clock_os(CLOCK_MONOTONIC) + GIVE_UP_NS;
	}
	if (w->phase == FCI_STUCK_LOOK_UP) {
		if (w->sym && fci_symbol_step(w->sym) != 0 && !over(w->give_up_ns))
			return now + LOOK_UP_NS;
		w->phase = FCI_STUCK_WRITE;
		w->written = 0;
	}
	if (!write_batch(fc, w, now, until_ns))
		return now;
	w->n_groups = 0;
	w->phase = FCI_STUCK_GATHER;
	return w->n_due ? now : FC_NEVER_NS;
}

/* ---- life --------------------------------------------------------------------------------------- */

int fci_stuck_create(struct fc *fc)
{
	fc->stuck = fci_alloc(fc, sizeof(*fc->stuck));
	return fc->stuck ? 0 : -ENOMEM;
}

static void drop_tools(struct fci_stuck_work *w)
{
	w->unwinder = fci_unwinder_destroy(w->unwinder);
	w->sym = fci_symboliser_destroy(w->sym);
}

void fci_stuck_destroy(struct fc *fc)
{
	if (!fc->stuck)
		return;
	if (fc->stuck->work) {
		drop_tools(fc->stuck->work);
		fci_free(fc, fc->stuck->work, sizeof(struct fci_stuck_work));
	}
	fci_free(fc, fc->stuck, sizeof(*fc->stuck));
	fc->stuck = NULL;
}

/* The stacks' and symbols' own thread stayed in the parent; both are made anew when needed. */
void fci_stuck_fork_child(struct fc *fc)
{
	struct fci_stuck *s = fc->stuck;
	struct fc_iface *f;

	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++) {
		/* N4: alone in the child. */
		atomic_store_explicit(&f->block->rare.overdue, 0, FCI_RLX);
		atomic_store_explicit(&f->block->rare.overdue_peak, 0, FCI_RLX);
	}
	if (!s)
		return;
	s->minute_runs = 0;
	s->suppressed = 0;
	if (s->work) {
		forget_all(s->work);
		drop_tools(s->work);
	}
}
