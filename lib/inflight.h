/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * inflight.h - the in-flight queue: a slot is a permit.
 *
 * Slot i may be used iff rank(i) < limit, so the cap is exact by construction and a new limit is
 * one store. A slot's truth is its word (layout.h), which carries its owner; claim and release are
 * one compare-and-swap each, on a line that belongs to the caller's CPU in the steady state. All
 * else (T, S, hot) is a hint, stale in one direction only: "maybe free" though it is not. "Oldest
 * first" is a view: the busy slots by start time.
 *
 *                    claim  release  list  purge  limit  lend  reset of hints
 *   claim              -       -      -      -      -      -        -
 *   release            -       -      -      -      -      -        -        (of one entry: one wins)
 *   list               -       -      -      -      -      -        -
 *   purge              -       -      -      -      -      -        -
 *   limit              -       -      -      -      -      -        -        (the later version stands)
 *   lend               -       -      -      -      -      -        -        (one at a time: rare.lending)
 *
 * Progress: claim and release are lock-free. A claim probes a line in vain only where a hint was
 * set by a release since it was last cleared, and hints are cleared by one prober at a time; others
 * only look. A thread stopped anywhere makes nobody wait: at worst one free slot stays hidden
 * (stopped between its release and its look at the hints) until the next release in its group or
 * the next check that passes it.
 *
 * Invariants (tests/test_inflight.c, tests/stress_inflight.c, tests/model):
 * I1  slots with rank < limit that are not FREE number at most limit.
 * I2  a word changes as layout.h says; release adds one to its generation.
 * I3  a FREE slot of rank < limit => its T and S are not EMPTY, or its releaser is in the gap between
 *     the word and its look at T (for a raised limit: whoever raised it, before the reset of hints).
 * I4  refused for the cap => at some moment of the call no such slot was FREE, but for the gap; or
 *     others came and went in each of FCI_FIND_PASSES looks at all of T: see fci_find().
 * I5  a record means something iff its word is a call's, the same before and after reading it.
 * I6  any hint may be set to MAYBE, and hot to zero, at any time without harm; versions are never lowered.
 * I7  calls that run <= limit + write-offs in use; after lowering, it only falls until it is under.
 */
#ifndef FCI_INFLIGHT_H
#define FCI_INFLIGHT_H

#include "context.h"

/* Looks at all of T before a refusal, if each finds that others came or went meanwhile. */
#define FCI_FIND_PASSES 8

enum fci_claimed { FCI_GOT = 0, FCI_FULL = 1, FCI_CHANGED = 2 };

/* A claimed slot: word is what stood there before, FREE with its generation. */
struct fci_claim {
	uint64_t word;
	uint32_t slot;
};

/* Out of line: slots of extents, and the search. */
fci_a64 *fci_word_far(const struct fc_iface *f, uint32_t slot);
fci_a32 *fci_more(const struct fc_iface *f, uint32_t slot); /* cells from FCI_CELLS_NEAR on */
struct fci_record *fci_record_far(const struct fc_iface *f, uint32_t slot);
int fci_find(struct fc_iface *f, uint32_t home, uint64_t gate, int any_rank, struct fci_claim *c);
int fci_full_far(const struct fc_iface *f);

/* Slots the process knows of: indices below are safe to use. */
static inline uint32_t fci_slots(const struct fc_iface *f)
{
	/* A1 -> R1 (fci_extents_attach): the extent's numbers are there. */
	uint32_t n = atomic_load_explicit(&f->n_extents, FCI_ACQ);

	return n ? f->extent[n - 1].first + f->extent[n - 1].slots : 0;
}

FCI_INLINE fci_a64 *fci_word(const struct fc_iface *f, uint32_t slot)
{
	return fci_likely(slot < f->slots0) ? &f->words[slot] : fci_word_far(f, slot);
}

FCI_INLINE struct fci_record *fci_record(const struct fc_iface *f, uint32_t slot)
{
	return fci_likely(slot < f->slots0) ? &f->records[slot] : fci_record_far(f, slot);
}

/* Rank of a slot of extent 0: lines are dealt to groups in turn, and so are their slots, so that
 * any limit is spread evenly over the groups. */
FCI_INLINE uint32_t fci_rank0(const struct fc_iface *f, uint32_t slot)
{
	uint32_t line = slot >> 3, k = slot & 7;

	return ((((line >> f->group_bits) << 3) | k) << f->group_bits) | (line & f->group_mask);
}

uint32_t fci_rank(const struct fc_iface *f, uint32_t slot);

/* Tables that come with a rule. */
static inline uint32_t fci_writeoffs(const struct fc_iface *f)
{
	/* A3 -> R2 (make_tables, iface.c). */
	return atomic_load_explicit(&f->n_writeoffs, FCI_ACQ);
}

static inline uint32_t fci_waiters(const struct fc_iface *f)
{
	/* A4 -> R3 (make_tables, iface.c). */
	return atomic_load_explicit(&f->n_waiters, FCI_ACQ);
}

/* Hints of a group: T. */
FCI_INLINE fci_a64 *fci_t(const struct fc_iface *f, uint32_t group)
{
	return fci_likely(group < FCI_HINTS) ? &f->gate->t0 : &f->block->t[group / FCI_HINTS];
}

/* Everything taken, as far as hints tell? One load for up to 16 groups: a moment when I3 holds for all. */
FCI_INLINE int fci_full(const struct fc_iface *f)
{
	/* A3 -> X2 (fci_free_word, fci_undo): a release that came before this look has set its hint, or is in
	 * the gap. SC with the prober's clearing, see inflight.c. */
	if (fci_likely((uint32_t)atomic_load_explicit(&f->gate->t0, FCI_SC) != FCI_HINTS_EMPTY))
		return 0;
	return f->t_words == 0 || fci_full_far(f);
}

/* Owner bits of this process, in place. */
FCI_INLINE uint64_t fci_me(const struct fc_iface *f)
{
	/* N1: changes in the child of a fork, before it has a second thread. */
	return atomic_load_explicit(&f->owner, FCI_RLX);
}

/* Did anything change that matters to a claim made under `gate`? rank FCI_ANY_RANK: dry run. */
#define FCI_ANY_RANK UINT32_MAX
FCI_INLINE int fci_gate_moved(uint64_t gate, uint64_t now, uint32_t rank)
{
	if (rank == FCI_ANY_RANK)
		return ((gate ^ now) & (FCI_GATE_ON_ENTER | FCI_GATE_DRY_RUN)) != 0;
	return ((gate ^ now) & FCI_GATE_ON_ENTER) != 0 || rank >= FCI_GATE_LIMIT(now);
}

/*
 * Give a CLAIMED slot back as it was: that is a release, so waiters are looked for. fci_undo: of a claim
 * made under `gate`; a granter's leaves the waiters to the granter, who looks again: grants do not nest.
 */
void fci_unclaim(struct fc_iface *f, const struct fci_claim *c);
void fci_undo(struct fc_iface *f, const struct fci_claim *c, uint64_t gate);

/*
 * Claim the slot that was last freed at home, under `gate`, as just read. FCI_GOT: a slot of extent 0;
 * FCI_FULL: that one cannot be had; FCI_CHANGED: the gate has changed meanwhile, nothing is held,
 * read it again. `home`: any number, best that of this CPU.
 */
FCI_INLINE int fci_claim_hot(struct fc_iface *f, uint32_t home, uint64_t gate, struct fci_claim *c)
{
	uint32_t g = home & f->group_mask, slot;
	fci_a64 *gate_word = &f->gate->word, *word;
	/* N2: a hint, written by fci_set_hot with the right rank beside the slot. */
	uint64_t hot = atomic_load_explicit(&f->groups[g].hot, FCI_RLX), w, now;

	if (fci_unlikely(hot == 0))
		hot = (uint64_t)g << 32 | g << 3;
	slot = (uint32_t)hot;
	if (fci_unlikely(slot >= f->slots0) || fci_unlikely((uint32_t)(hot >> 32) >= FCI_GATE_LIMIT(gate)))
		return FCI_FULL;
	word = &f->words[slot];
	/* N3: re-checked by the CAS. */
	w = atomic_load_explicit(word, FCI_RLX);
	if (fci_unlikely(FCI_LOW(w) != FCI_FREE))
		return FCI_FULL;
	/* X1 -> X2 (fci_free_word, fci_undo): the last holder's uses of the record are over. SC because the gate
	 * is read again after it. Litmus: T1: word = claimed; g = gate - T2: gate = lower; n = words.
	 * T1 sees the old gate and T2 the free word: forbidden, else a claim slips through under a
	 * limit that its setter believes in force. */
	if (fci_unlikely(!atomic_compare_exchange_strong_explicit(word, &w, w | fci_me(f) | FCI_CLAIMED, FCI_SC, FCI_RLX)))
		return FCI_FULL;
	FC_TEST_POINT("claimed");
	c->slot = slot;
	c->word = w;
	/* A2 -> X3 (fci_gate_set): see X1. */
	now = atomic_load_explicit(gate_word, FCI_SC);
	if (fci_unlikely(now != gate) && fci_gate_moved(gate, now, (uint32_t)(hot >> 32))) {
		struct fci_claim copy = *c; /* keeps *c in registers */

		fci_undo(f, &copy, gate);
		return FCI_CHANGED;
	}
	return FCI_GOT;
}

/*
 * Claim any slot under `gate`, as just read; whether all are taken (fci_full) the caller has looked.
 * FCI_GOT, FCI_FULL, FCI_CHANGED.
 */
FCI_INLINE int fci_claim(struct fc_iface *f, uint32_t home, uint64_t gate, struct fci_claim *c)
{
	int rc = fci_claim_hot(f, home, gate, c);

	return fci_likely(rc != FCI_FULL) ? rc : fci_find(f, home & f->group_mask, gate, 0, c);
}

/* wait.c: give free places to those who wait; the same if the gate says that somebody does. */
void fci_grant(struct fc_iface *f);
void fci_offer(struct fc_iface *f);

/* What is owed after a slot was freed: hints, for a prober may have seen it taken. */
void fci_hint(struct fc_iface *f, uint32_t slot);
/* The same, and a look for waiters: what an exit owes. Returns 1. */
int fci_freed_far(struct fc_iface *f, uint32_t slot);

/* Remember a slot of extent 0 for the next claim at its home. */
FCI_INLINE void fci_set_hot(struct fc_iface *f, uint32_t slot)
{
	fci_a64 *hot = &f->groups[(slot >> 3) & f->group_mask].hot;

	/* N2: a hint. Written only when different, so that the line stays shared. */
	if (fci_unlikely((uint32_t)atomic_load_explicit(hot, FCI_RLX) != slot))
		atomic_store_explicit(hot, (uint64_t)fci_rank0(f, slot) << 32 | slot, FCI_RLX);
}

/* Is nothing more owed for a slot of extent 0 that was just freed? */
FCI_INLINE int fci_is_settled(const struct fc_iface *f, uint32_t slot)
{
	uint32_t g = (slot >> 3) & f->group_mask;

	/* A4, A5 -> X4 (hint_suspect): read after X2, both SC. Litmus: T1: word = FREE; t = T - T2: T =
	 * SUSPECT; w = word. T1 sees MAYBE and T2 sees BUSY: forbidden, else the slot would be free
	 * behind an EMPTY hint. Any part's hint of the group that is set leads to the exact look.
	 * Versions are of no interest here. */
	return fci_likely((uint32_t)atomic_load_explicit(&f->groups[g].s[0], FCI_SC) == 0) &&
	       (fci_likely((uint32_t)atomic_load_explicit(&f->gate->t0, FCI_SC) == f->t0_none) ||
	        (atomic_load_explicit(fci_t(f, g), FCI_SC) >> FCI_HINT_SHIFT(g) & 3) == FCI_MAYBE) &&
	       /* A6 -> X5 (wait.c): a waiter that missed the free slot has set WAITERS before. SC as A4. */
	       fci_likely(!(atomic_load_explicit(&f->gate->word, FCI_SC) & FCI_GATE_WAITERS));
}

/* What an exit owes for a slot of extent 0. Returns 1. */
FCI_INLINE int fci_freed(struct fc_iface *f, uint32_t slot)
{
	fci_set_hot(f, slot);
	return fci_likely(fci_is_settled(f, slot)) ? 1 : fci_freed_far(f, slot);
}

/* Free the slot of a call if its word is still `w`: exactly one caller gets 1, and owes fci_freed(). */
FCI_INLINE int fci_free_word(fci_a64 *word, uint64_t w)
{
	/* X2 -> X1, A3: all of the call is before it, the next holder behind it. SC: see fci_is_settled. */
	return atomic_compare_exchange_strong_explicit(word, &w, FCI_NEXT_FREE(w), FCI_SC, FCI_RLX);
}

/* End the call in `slot` if its word is still `w`: exactly one caller gets 1. */
FCI_INLINE int fci_release(struct fc_iface *f, uint32_t slot, uint64_t w)
{
	if (fci_unlikely(!fci_free_word(fci_word(f, slot), w)))
		return 0;
	FC_TEST_POINT("released");
	return fci_likely(slot < f->slots0) ? fci_freed(f, slot) : fci_freed_far(f, slot);
}

/* The same for a call whose word may have been changed by a lender since: also frees what was lent
 * for it. `w` as the entry remembers it. */
int fci_release_call(struct fc_iface *f, uint32_t slot, uint64_t w);

/* A copy of a record, and whether it meant something (I5). */
struct fci_view {
	uint64_t word, start, frame, meta, tag;
	uint32_t slot, tid, site;
	uint32_t cells[FC_CELLS_MAX];
};
int fci_view(const struct fc_iface *f, uint32_t slot, struct fci_view *v);

/* Oldest first: the n oldest calls, sorted; returns how many were written. O(slots). */
uint32_t fci_oldest(const struct fc_iface *f, struct fci_view *v, uint32_t n);

/* The same of those in the `count` slots from `from` on that `pick` wants. O(count). */
typedef int (*fci_pick_fn)(const struct fc_iface *f, const struct fci_view *v, uint64_t arg);
uint32_t fci_oldest_of(const struct fc_iface *f, uint32_t from, uint32_t count, struct fci_view *v, uint32_t n,
                       fci_pick_fn pick, uint64_t arg);

/* Places taken (lent ones once), any rank; of them with rank >= limit in *ret_over. O(slots). */
uint32_t fci_inside_count(const struct fc_iface *f, uint32_t limit, uint32_t *ret_over);

/* Sum of generations: releases so far. O(slots). */
uint64_t fci_generations(const struct fc_iface *f);

/* A word of T without any hint set, version 0: bits of groups that do not exist stay EMPTY. */
uint64_t fci_t_none(const struct fc_iface *f, uint32_t i);

/* All hints back to MAYBE (I6). */
void fci_hints_reset(struct fc_iface *f);

/* In the child of a fork, alone: all places are free, and no call of the parent was admitted here. */
void fci_inflight_reset(struct fc_iface *f);

/* Extents: attach those that the segment has and this handle lacks; make room for `slots` in all.
 * 0, -ENOSPC, -EAGAIN (somebody else is at it). */
void fci_extents_attach(struct fc_iface *f);
int fci_extents_grow(struct fc_iface *f, uint32_t slots);

#endif /* FCI_INFLIGHT_H */
