/* SPDX-License-Identifier: BSD-2-Clause */
/* limit.c - see limit.h. */
#include <errno.h>

#include "limit.h"

#define OWNER_MASK ((uint64_t)FCI_OWNER_MAX << 3)

uint64_t fci_gate_set(struct fc_iface *f, uint64_t set, uint64_t clear)
{
	/* N1: re-checked by the CAS. */
	uint64_t g = atomic_load_explicit(&f->gate->word, FCI_RLX);

	/* X3 -> A2 of inflight.h: a claim sees the old gate and is seen by what follows here, or sees
	 * the new one. Fails only when another setting went in: lock-free. */
	while (!atomic_compare_exchange_weak_explicit(&f->gate->word, &g, (g & ~clear) | set, FCI_SC, FCI_RLX))
		;
	return g;
}

/* `g` with another limit. DRAIN when it is raised, too: loans may be of no use any more. */
static uint64_t with_limit(uint64_t g, uint32_t limit)
{
	uint64_t next = ((g & ~(uint64_t)UINT32_MAX) | limit) + ((uint64_t)1 << FCI_GATE_VER_SHIFT);

	return limit != FCI_GATE_LIMIT(g) ? next | FCI_GATE_DRAIN : next;
}

/* What is owed after the limit has changed. */
static void limit_changed(struct fc_iface *f, uint32_t before, uint32_t limit)
{
	FC_TEST_POINT("limit");
	if (limit > before)
		fci_hints_reset(f); /* the new ranks may be free */
	(void)fci_limit_tick(f);
	if (limit > before)
		fci_offer(f);
}

void fci_limit_change(struct fc_iface *f, uint32_t limit)
{
	/* N1: re-checked by the CAS. */
	uint64_t g = atomic_load_explicit(&f->gate->word, FCI_RLX);

	/* X3 -> A2 of inflight.h. Fails only when another setting went in: lock-free. */
	while (!atomic_compare_exchange_weak_explicit(&f->gate->word, &g, with_limit(g, limit), FCI_SC, FCI_RLX))
		;
	limit_changed(f, FCI_GATE_LIMIT(g), limit);
}

int fci_limit_change_from(struct fc_iface *f, uint64_t gate, uint32_t limit)
{
	/* N1: re-checked by the CAS. */
	uint64_t g = atomic_load_explicit(&f->gate->word, FCI_RLX);

	while (((g ^ gate) & (FCI_GATE_VER | FCI_GATE_UNRULED)) == 0)
		/* X3 -> A2 of inflight.h. Fails only when another setting went in: lock-free. */
		if (atomic_compare_exchange_weak_explicit(&f->gate->word, &g, with_limit(g, limit), FCI_SC, FCI_RLX)) {
			limit_changed(f, FCI_GATE_LIMIT(g), limit);
			return 0;
		}
	return -EAGAIN;
}

/* One at a time makes loans, takes them back, and ends DRAIN: so a loan half made is not taken for one
 * that stands for nobody, nor DRAIN ended on the strength of a loan that is just being taken back. Who
 * comes second does nothing: DRAIN stays, and counts are exact. */
static int take_lending(struct fc_iface *f)
{
	uint32_t free = 0;

	/* X2: acquire: what the last one did; released by give_lending. */
	return atomic_compare_exchange_strong_explicit(&f->block->rare.lending, &free, 1, FCI_ACQ, FCI_RLX);
}

static void give_lending(struct fc_iface *f)
{
	/* X2: hand over. */
	atomic_store_explicit(&f->block->rare.lending, 0, FCI_REL);
}

void fci_drain_clear(struct fc_iface *f, uint64_t gate)
{
	uint32_t over;

	FC_TEST_POINT("drain");
	if (!take_lending(f))
		return;
	(void)fci_inside_count(f, FCI_GATE_LIMIT(gate), &over);
	/* X3 -> A2 of inflight.h. The version in the word makes sure that no other limit came between
	 * the count and this. A failure means that somebody else set something: the next one clears. */
	if (over == 0)
		atomic_compare_exchange_strong_explicit(&f->gate->word, &gate, gate & ~FCI_GATE_DRAIN, FCI_SC, FCI_RLX);
	give_lending(f);
}

int fci_claim_counted(struct fc_iface *f, uint64_t gate, struct fci_claim *c)
{
	uint32_t inside, over, changed;
	uint64_t now;
	int rc = fci_claim(f, fci_cpu_hint(fci_thread_self()), gate, c);

	if (fci_likely(rc != FCI_GOT || !(gate & FCI_GATE_DRAIN)))
		return rc;
	inside = fci_inside_count(f, FCI_GATE_LIMIT(gate), &over);
	FC_TEST_POINT("counted");
	/* A2 -> X3: the count was made under one gate, or it says nothing of the limit in force. */
	now = atomic_load_explicit(&f->gate->word, FCI_SC);
	changed = ((now ^ gate) & (UINT32_MAX | FCI_GATE_DRAIN | FCI_GATE_VER)) != 0;
	if (changed || inside > FCI_GATE_LIMIT(gate)) {
		fci_undo(f, c, gate);
		/* A granter looks again: somebody else may have counted what was just given back. */
		return changed || (gate & FCI_GATE_GRANTING) ? FCI_CHANGED : FCI_FULL;
	}
	if (over == 0)
		fci_drain_clear(f, now);
	return FCI_GOT;
}

/* ---- lending ----------------------------------------------------------------------------------- */

static uint64_t partner_tag(const struct fc_iface *f, uint32_t lent)
{
	/* A1 -> R1 (lend_to) through the word LENT. */
	return atomic_load_explicit(&fci_record(f, lent)->tag, FCI_ACQ);
}

/* The slot (and in *ret_word its word) that is lent for call `slot` with word `w`, or UINT32_MAX. O(slots) while
 * there are loans. */
static uint32_t find_lent(const struct fc_iface *f, uint32_t slot, uint64_t w, uint64_t *ret_word)
{
	/* A3 -> X4: whoever has made the call a lender has counted the loan before. */
	uint32_t slots = atomic_load_explicit(&f->block->rare.loans, FCI_SC) ? fci_slots(f) : 0;

	for (uint32_t s = 0; s < slots; s++) {
		/* A1 -> R1. */
		*ret_word = atomic_load_explicit(fci_word(f, s), FCI_ACQ);
		if (FCI_STATE(*ret_word) == FCI_LENT && partner_tag(f, s) == FCI_REF(slot, w))
			return s;
	}
	return UINT32_MAX;
}

void fci_aux_free(struct fc_iface *f, uint32_t slot, uint64_t w)
{
	fci_a64 *n = &f->block->rare.aux;

	/* N2: a statistic: releases that were no exits. Before the release, which publishes it: stats.c. */
	atomic_fetch_add_explicit(n, 1, FCI_RLX);
	if (!fci_release(f, slot, w))
		atomic_fetch_sub_explicit(n, 1, FCI_RLX);
	else if (FCI_STATE(w) == FCI_LENT)
		/* N6: late is slow, not wrong: there seem to be loans still. */
		atomic_fetch_sub_explicit(&f->block->rare.loans, 1, FCI_RLX);
}

/* Free the slot that was lent for a call. */
void fci_loan_free(struct fc_iface *f, uint32_t slot, uint64_t w)
{
	uint64_t lent;
	uint32_t s = find_lent(f, slot, w, &lent);

	/* By the word that was looked at: by now the slot may be lent to another. */
	if (s != UINT32_MAX)
		fci_aux_free(f, s, lent);
}

int fci_release_call(struct fc_iface *f, uint32_t slot, uint64_t w)
{
	uint32_t state = FCI_STATE(w);
	uint64_t lender = FCI_WITH_STATE(w, state == FCI_BUSY ? FCI_LENDER : FCI_LENDER_DETACHED), now = w;

	if (state == FCI_LENDER || state == FCI_LENDER_DETACHED)
		lender = w; /* somebody's view of the call */
	/* Again only when housekeeping has lent or taken back meanwhile: lock-free. */
	while (now == w || now == lender) {
		if (fci_likely(fci_release(f, slot, now))) {
			if (now == lender)
				fci_loan_free(f, slot, w);
			return 1;
		}
		/* N5: re-checked by the CAS. */
		now = atomic_load_explicit(fci_word(f, slot), FCI_RLX);
	}
	return 0;
}

/* Turn a call back from LENDER, and free what was lent. */
static void unlend(struct fc_iface *f, uint32_t slot, uint64_t w)
{
	uint64_t plain = FCI_WITH_STATE(w, FCI_STATE(w) == FCI_LENDER ? FCI_BUSY : FCI_DETACHED);

	FC_TEST_POINT("unlend");
	/* X1: fails when the call has left: then its exit frees what was lent. SC as all words. */
	if (atomic_compare_exchange_strong_explicit(fci_word(f, slot), &w, plain, FCI_SC, FCI_RLX))
		fci_loan_free(f, slot, w);
}

/* Lend a free slot to the call in `slot`. */
static void lend_to(struct fc_iface *f, uint32_t slot, uint64_t w, uint64_t gate)
{
	uint64_t lender = FCI_WITH_STATE(w, FCI_STATE(w) == FCI_BUSY ? FCI_LENDER : FCI_LENDER_DETACHED);
	struct fci_claim c;
	uint64_t lent;

	if (fci_claim(f, fci_cpu_hint(fci_thread_self()), gate, &c) != FCI_GOT)
		return;
	/* N3: R1 publishes it. */
	atomic_store_explicit(&fci_record(f, c.slot)->tag, FCI_REF(slot, w), FCI_RLX);
	/* R1 -> A1: the record names the call before the word says LENT. The owner is the call's: a reaper
	 * of its process finds both. */
	lent = c.word | (w & OWNER_MASK) | FCI_LENT;
	/* X4 -> A3: before the call is a lender. */
	atomic_fetch_add_explicit(&f->block->rare.loans, 1, FCI_SC);
	atomic_store_explicit(fci_word(f, c.slot), lent, FCI_SC);
	FC_TEST_POINT("lent");
	/* X1: SC as all words. */
	if (!atomic_compare_exchange_strong_explicit(fci_word(f, slot), &w, lender, FCI_SC, FCI_RLX))
		fci_aux_free(f, c.slot, lent); /* it has left */
}

/* A LENT slot that stands for nobody, or for a call that needs no loan any more. */
static void check_lent(struct fc_iface *f, uint32_t s, uint64_t w, uint32_t limit)
{
	uint64_t tag = partner_tag(f, s), call;
	uint32_t m = FCI_REF_SLOT(tag);

	if (m >= fci_slots(f))
		return; /* spoilt */
	/* A2 -> X2 of inflight.h. */
	call = atomic_load_explicit(fci_word(f, m), FCI_SC);
	if (FCI_REF(m, call) == tag && (FCI_STATE(call) == FCI_LENDER || FCI_STATE(call) == FCI_LENDER_DETACHED)) {
		if (fci_rank(f, s) >= limit || fci_rank(f, m) < limit)
			unlend(f, m, call);
	} else {
		fci_aux_free(f, s, w);
	}
}

/* Calls over the limit get a loan; loans that help nobody are taken back. */
static void lend_all(struct fc_iface *f)
{
	uint32_t slots = fci_slots(f), limit;
	uint64_t gate;

	if (!take_lending(f))
		return;
	/* A2 -> X3: a limit that comes later sets DRAIN, which nobody ends before we are done. */
	gate = atomic_load_explicit(&f->gate->word, FCI_SC);
	limit = FCI_GATE_LIMIT(gate);
	for (uint32_t s = 0; s < slots; s++) {
		/* A2 -> X2 of inflight.h. */
		uint64_t w = atomic_load_explicit(fci_word(f, s), FCI_SC);

		if (FCI_STATE(w) == FCI_LENT)
			check_lent(f, s, w, limit);
		else if ((FCI_STATE(w) == FCI_BUSY || FCI_STATE(w) == FCI_DETACHED) && fci_rank(f, s) >= limit)
			lend_to(f, s, w, gate);
	}
	give_lending(f);
}

int fci_limit_tick(struct fc_iface *f)
{
	/* A2 -> X3. */
	uint64_t gate = atomic_load_explicit(&f->gate->word, FCI_SC);
	uint32_t over;

	if (!(gate & FCI_GATE_DRAIN))
		return 0;
	(void)fci_inside_count(f, FCI_GATE_LIMIT(gate), &over);
	if (over != 0) {
		lend_all(f);
		(void)fci_inside_count(f, FCI_GATE_LIMIT(gate), &over);
	}
	if (over == 0)
		fci_drain_clear(f, gate);
	return over != 0;
}
