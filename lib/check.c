/* SPDX-License-Identifier: BSD-2-Clause */
/* check.c - see check.h. */
#include "chain.h"
#include "check.h"
#include "leave.h"
#include "limit.h"
#include "weight.h"

#define LOOK_AT 16u /* oldest calls that one check looks at */

/* ---- proof ------------------------------------------------------------------------------------- */

static int on_stack(const struct fci_thread_view *t, uint64_t addr)
{
	return addr >= t->stack_lo && addr < t->stack_hi;
}

/* Did the thread's word come after the call's? The thread publishes its call before its words, so
 * they may also be older. Numbers wrap: a difference of more than half the range proves nothing. */
static int is_newer(uint64_t word, uint64_t frame)
{
	return (int16_t)(uint16_t)(FCI_FRAME_SEQ(word) - FCI_FRAME_SEQ(frame)) > 0;
}

/* Has the thread entered a guard since, from where the call's scope cannot be alive? Each word of
 * the thread carries its own entry number, so each is a proof by itself. */
static int scope_left(const struct fci_view *v, const struct fci_thread_view *t)
{
	uint64_t addr = FCI_FRAME_ADDR(v->frame), e = FCI_FRAME_ADDR(t->last_entry), sp = FCI_FRAME_ADDR(t->last_sp);

	if (!on_stack(t, addr))
		return 0;
	if (is_newer(t->last_entry, v->frame) && on_stack(t, e) &&
	    e + sizeof(struct fc_entry) > addr && e < addr + sizeof(struct fc_entry))
		return 1;
	return is_newer(t->last_sp, v->frame) && on_stack(t, sp) && sp > addr;
}

/* Only calls of this process can be judged here. */
static int is_stale(const struct fc_iface *f, const struct fci_view *v)
{
	struct fci_thread_view t;
	int alive;

	if (fci_is_detached(v->word) || (uint64_t)FCI_OWNER(v->word) << 3 != fci_me(f))
		return 0;
	alive = fci_thread_look(v->tid, &t);
	return alive == 0 || (alive == 1 && scope_left(v, &t));
}

/* ---- purge ------------------------------------------------------------------------------------- */

static void purged(struct fc_iface *f, uint32_t n)
{
	/* N1: a statistic. */
	atomic_fetch_add_explicit(&f->block->rare.purged, n, FCI_RLX);
	fc_event_note(f, FC_EVENT_PURGED, n, fci_inside_count(f, UINT32_MAX, NULL));
}

uint32_t fci_purge_stale(struct fc_iface *f, uint64_t now)
{
	struct fci_view v[LOOK_AT];
	uint32_t have = fci_oldest(f, v, LOOK_AT), n = 0;

	for (uint32_t i = 0; i < have; i++)
		if (is_stale(f, &v[i]))
			n += (uint32_t)fci_abandon(f, &v[i], now);
	if (n)
		purged(f, n);
	return n;
}

uint32_t fci_purge_thread(struct fc_iface *f, uint32_t tid, uint64_t now)
{
	uint32_t n = 0, slots = fci_slots(f);
	struct fci_view v;

	for (uint32_t s = 0; s < slots; s++) {
		if (!fci_view(f, s, &v) || (uint64_t)FCI_OWNER(v.word) << 3 != fci_me(f) ||
		    (tid != UINT32_MAX && (v.tid != tid || fci_is_detached(v.word))))
			continue;
		n += (uint32_t)fci_abandon(f, &v, now);
	}
	if (n)
		/* N1: a statistic. */
		atomic_fetch_add_explicit(&f->block->rare.leaked, n, FCI_RLX);
	return n;
}

/* ---- write-off --------------------------------------------------------------------------------- */

/* key: state << 62 | slot << 42 | low 42 bits of the generation. */
#define KEY_EMPTY  0u
#define KEY_PREP   1u
#define KEY_ACTIVE 2u
#define KEY_STATE(k_) ((uint32_t)((k_) >> 62))
#define KEY_SLOT(k_)  ((uint32_t)((k_) >> 42) & 0xfffff)
#define KEY_GEN(k_)   ((k_) & 0x3ffffffffffull)
#define KEY(state_, slot_, word_)                                                                  \
	((uint64_t)(state_) << 62 | (uint64_t)(slot_) << 42 | (FCI_GEN(word_) & 0x3ffffffffffull))

static struct fci_writeoff *element(const struct fc_iface *f, uint32_t i)
{
	return FCI_AT(f->fc, f->writeoffs_off, struct fci_writeoff) + i;
}

static uint32_t budget_of(const struct fc_iface *f)
{
	/* N2: a setting, bounded by what was taken from the arena. */
	uint32_t n = atomic_load_explicit(&f->block->config.writeoff, FCI_RLX);

	return n < fci_writeoffs(f) ? n : fci_writeoffs(f);
}

uint32_t fci_writeoff_used(const struct fc_iface *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fci_writeoffs(f); i++)
		/* N3: a count of the moment. */
		n += KEY_STATE(atomic_load_explicit(&element(f, i)->key, FCI_RLX)) != KEY_EMPTY;
	return n;
}

static uint64_t me(void)
{
	/* N4: own word. */
	return atomic_load_explicit(&fci_thread_self()->tid, FCI_RLX);
}

/* Give an element back, if its key still is k. */
static int empty(struct fci_writeoff *w, uint64_t *k)
{
	/* N4: see prepare. Should the CAS fail, the purger is not known any more: that is allowed. */
	atomic_store_explicit(&w->purger, 0, FCI_SC);
	/* X3: PREP may become ACTIVE under us. */
	return atomic_compare_exchange_strong_explicit(&w->key, k, 0, FCI_SC, FCI_SC);
}

/* An element of the budget for this call: PREP (X1). NULL: used up. N4: its fields are published by X2. */
static struct fci_writeoff *prepare(struct fc_iface *f, const struct fci_view *v)
{
	uint32_t budget = budget_of(f);

	if (fci_writeoff_used(f) >= budget)
		return NULL; /* also when the budget was made smaller */
	for (uint32_t i = 0; i < budget; i++) {
		struct fci_writeoff *w = element(f, i);
		uint64_t empty = 0;

		/* X1 -> A1 (fci_writeoff_left): before the word's CAS, so that a late exit finds it. */
		if (!atomic_compare_exchange_strong_explicit(&w->key, &empty, KEY(KEY_PREP, v->slot, v->word), FCI_SC, FCI_RLX))
			continue;
		/* N4: published by X2. The purger after PREP and taken away before EMPTY, so that it is
		 * never that of another time. */
		atomic_store_explicit(&w->purger, me(), FCI_RLX);
		atomic_store_explicit(&w->start, v->start, FCI_RLX);
		atomic_store_explicit(&w->who, (uint64_t)v->site << 32 | v->tid, FCI_RLX);
		atomic_store_explicit(&w->frame, v->frame, FCI_RLX);
		atomic_store_explicit(&w->meta, v->meta, FCI_RLX);
		atomic_store_explicit(&w->tag, v->tag, FCI_RLX);
		atomic_store_explicit(&w->word, v->word, FCI_RLX);
		return w;
	}
	return NULL;
}

static int write_off(struct fc_iface *f, const struct fci_view *v, uint64_t now)
{
	struct fci_writeoff *w = prepare(f, v);
	uint64_t prep = KEY(KEY_PREP, v->slot, v->word);

	if (!w) {
		fc_event_note(f, FC_EVENT_WRITEOFF_USED_UP, fci_writeoff_used(f), budget_of(f));
		return 0;
	}
	FC_TEST_POINT("writeoff_prep");
	if (!fci_abandon(f, v, now)) {
		(void)empty(w, &prep); /* it has left by itself */
		return 0;
	}
	FC_TEST_POINT("writeoff_freed");
	/* X2 -> A2 (fci_writeoff_view): fails when its late exit was faster. */
	atomic_compare_exchange_strong_explicit(&w->key, &prep, KEY(KEY_ACTIVE, v->slot, v->word), FCI_SC, FCI_RLX);
	/* N1: a statistic. */
	atomic_fetch_add_explicit(&f->block->rare.writeoffs, 1, FCI_RLX);
	fc_event_note(f, FC_EVENT_WRITTEN_OFF, now - v->start, fci_writeoff_used(f));
	return 1;
}

int fci_writeoff_left(struct fc_iface *f, uint32_t slot, uint64_t word)
{
	int found = 0;

	/* All of them: of two checks that met over one call, one has yet to give its element back. */
	for (uint32_t i = 0; i < fci_writeoffs(f); i++) {
		struct fci_writeoff *w = element(f, i);
		/* A1 -> X1: SC. */
		uint64_t k = atomic_load_explicit(&w->key, FCI_SC);

		while (KEY_STATE(k) != KEY_EMPTY && KEY_SLOT(k) == slot && KEY_GEN(k) == KEY_GEN(KEY(0, 0, word))) {
			uint64_t start = atomic_load_explicit(&w->start, FCI_RLX), now = fci_clock_now(&f->fc->clock); /* N5: for the note */

			if (!empty(w, &k))
				continue; /* once more */
			fc_event_note(f, FC_EVENT_WRITEOFF_BACK, now > start ? now - start : 0, fci_writeoff_used(f));
			found = 1;
			break;
		}
	}
	return found;
}

/* A2 -> X2, A3: the key, the fields, the key again. */
int fci_writeoff_view(const struct fc_iface *f, uint32_t i, struct fci_view *v)
{
	struct fci_writeoff *w = element(f, i);
	/* A2 -> X2. */
	uint64_t k = atomic_load_explicit(&w->key, FCI_ACQ), who;

	if (KEY_STATE(k) != KEY_ACTIVE)
		return 0;
	/* A3: acquire keeps the second look at the key behind the fields. */
	v->start = atomic_load_explicit(&w->start, FCI_ACQ);
	who = atomic_load_explicit(&w->who, FCI_ACQ);
	v->frame = atomic_load_explicit(&w->frame, FCI_ACQ);
	v->meta = atomic_load_explicit(&w->meta, FCI_ACQ);
	v->tag = atomic_load_explicit(&w->tag, FCI_ACQ);
	v->slot = KEY_SLOT(k);
	v->word = atomic_load_explicit(&w->word, FCI_ACQ);
	v->tid = (uint32_t)who;
	v->site = (uint32_t)(who >> 32);
	/* N3: ordered by A3. */
	return atomic_load_explicit(&w->key, FCI_RLX) == k;
}

/* A purger that is gone: finish for it. */
static void mend_prep(struct fc_iface *f, struct fci_writeoff *w, uint64_t k)
{
	uint32_t slot = KEY_SLOT(k);
	/* N4: see prepare. */
	uint64_t purger = atomic_load_explicit(&w->purger, FCI_SC), word;
	struct fci_thread_view t;

	if (purger == 0 || slot >= fci_slots(f) || fci_thread_look((uint32_t)purger, &t) != 0)
		return;
	/* A4 -> X2 of inflight.h. */
	word = atomic_load_explicit(fci_word(f, slot), FCI_SC);
	if (KEY_GEN(KEY(0, 0, word)) == KEY_GEN(k))
		(void)empty(w, &k);
	else
		/* X2 -> A2 (fci_writeoff_view). */
		atomic_compare_exchange_strong_explicit(&w->key, &k, k ^ ((uint64_t)(KEY_PREP ^ KEY_ACTIVE) << 62), FCI_SC, FCI_RLX);
}

void fci_writeoff_tick(struct fc_iface *f, uint64_t now)
{
	uint32_t n = fci_writeoffs(f);
	struct fci_view v;

	for (uint32_t i = 0; i < n; i++) {
		struct fci_writeoff *w = element(f, i);
		/* A1 -> X1. */
		uint64_t k = atomic_load_explicit(&w->key, FCI_SC);

		if (KEY_STATE(k) == KEY_PREP)
			mend_prep(f, w, k);
		/* Its thread is gone: the budget comes back. */
		if (KEY_STATE(k) == KEY_ACTIVE && fci_writeoff_view(f, i, &v) && is_stale(f, &v) && empty(w, &k))
			fc_event_note(f, FC_EVENT_WRITEOFF_BACK, now > v.start ? now - v.start : 0, fci_writeoff_used(f));
	}
}

void fci_writeoff_reset(struct fc_iface *f)
{
	for (uint32_t i = 0; i < fci_writeoffs(f); i++)
		/* N7: in the child of a fork, alone. */
		atomic_store_explicit(&element(f, i)->key, 0, FCI_RLX);
}

/* ---- the check --------------------------------------------------------------------------------- */

static uint64_t writeoff_after(const struct fc_iface *f, const struct fci_view *v)
{
	uint32_t own = FCI_META_STUCK_MS(v->meta);

	/* N2: a setting. */
	return own ? FC_MS(own) * 4 : atomic_load_explicit(&f->block->config.writeoff_after_ns, FCI_RLX);
}

/* Write the oldest overdue calls off, as far as the budget goes. */
static uint32_t write_off_overdue(struct fc_iface *f, uint64_t now)
{
	struct fci_view v[LOOK_AT];
	uint32_t have = budget_of(f) ? fci_oldest(f, v, LOOK_AT) : 0, n = 0;

	for (uint32_t i = 0; i < have; i++) {
		if (now < v[i].start || now - v[i].start < writeoff_after(f, &v[i]) || FCI_META_IN_PRE(v[i].meta))
			continue;
		if (!write_off(f, &v[i], now))
			break;
		n++;
	}
	return n;
}

/* The next check is this caller's if it wins the CAS. N8: times; order is nothing. */
static int win_check(struct fc_iface *f, uint64_t now)
{
	uint64_t next = atomic_load_explicit(&f->gate->next_check, FCI_RLX);
	uint64_t every = atomic_load_explicit(&f->block->config.check_every_ns, FCI_RLX);

	/* A clock that went back far must not put checks off for ever. */
	if (now < next && next - now <= every)
		return 0;
	return atomic_compare_exchange_strong_explicit(&f->gate->next_check, &next, now + every, FCI_RLX, FCI_RLX);
}

/* A2 -> X3 of limit.c: the limit; N1: statistics. */
int fci_check(struct fc_iface *f, uint64_t now)
{
	struct fci_rare *r = &f->block->rare;
	uint32_t limit = FCI_GATE_LIMIT(atomic_load_explicit(&f->gate->word, FCI_SC)), room;

	if (!win_check(f, now))
		return 0;
	fci_max_u32(&r->peak, limit);
	room = fci_purge_stale(f, now);
	if (!room)
		room = write_off_overdue(f, now);
	fci_weight_sweep(f);
	(void)fci_limit_tick(f);
	fci_hints_reset(f); /* whatever a stopped releaser may have hidden */
	if (!room && fci_chain_full(f, now))
		room = 1;
	atomic_store_explicit(&r->last_refused_ns, now, FCI_RLX);
	return 1; /* the hints were reset, so a free place would be found now */
}
