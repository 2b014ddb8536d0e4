/* SPDX-License-Identifier: BSD-2-Clause */
/* weight.c - see weight.h. */
#include "limit.h"
#include "weight.h"

#define REF_GEN(tag_) ((tag_) & 0xffffffffffull)

static uint64_t tag_of(const struct fc_iface *f, uint32_t slot)
{
	FC_TEST_POINT("tag");
	/* A1 -> R1 (fci_weight_claim) through the word AUX, which the caller has read. */
	return atomic_load_explicit(&fci_record(f, slot)->tag, FCI_ACQ);
}

/* Is `slot` an AUX of that call? *ret_word is its word. */
static int is_aux_of(const struct fc_iface *f, uint32_t slot, uint64_t ref, uint64_t *ret_word)
{
	/* A1 -> R1. */
	*ret_word = atomic_load_explicit(fci_word(f, slot), FCI_ACQ);
	if (FCI_STATE(*ret_word) != FCI_AUX || tag_of(f, slot) != ref)
		return 0;
	/* N4: the tag is of that word: a next claimer's store comes after its CAS, and the tag's acquire
	 * keeps this look behind it (I5). Else a loan of the same call would be taken for its AUX. */
	return atomic_load_explicit(fci_word(f, slot), FCI_RLX) == *ret_word;
}

/* One more. Under a new gate when it changes: its limit counts what is held already. Again only when
 * somebody has changed it. */
static int claim_one(struct fc_iface *f, uint64_t *gate, struct fci_claim *c)
{
	int rc;

	while ((rc = fci_claim_counted(f, *gate, c)) == FCI_CHANGED) {
		/* A3 -> X3 (fci_gate_set). */
		*gate = atomic_load_explicit(&f->gate->word, FCI_SC);
		if (*gate & (FCI_GATE_OFF | FCI_GATE_DRAINING))
			break;
	}
	return rc;
}

int fci_weight_claim(struct fc_iface *f, const struct fci_claim *primary, uint32_t weight, uint64_t gate)
{
	for (uint32_t i = 1; i < weight; i++) {
		struct fci_claim c;

		if (claim_one(f, &gate, &c) != FCI_GOT) {
			fci_weight_unclaim(f, primary, i);
			return 0;
		}
		/* N2: R1 publishes it. */
		atomic_store_explicit(&fci_record(f, c.slot)->tag, FCI_REF(primary->slot, primary->word), FCI_RLX);
		/* R1 -> A1: the record names the primary before the word says AUX. */
		atomic_store_explicit(fci_word(f, c.slot), c.word | fci_me(f) | FCI_AUX, FCI_REL);
	}
	return 1;
}

void fci_weight_unclaim(struct fc_iface *f, const struct fci_claim *primary, uint32_t weight)
{
	uint32_t slots = weight > 1 ? fci_slots(f) : 0, left = weight - 1;
	uint64_t word;

	for (uint32_t s = 0; s < slots && left; s++)
		if (is_aux_of(f, s, FCI_REF(primary->slot, primary->word), &word)) {
			fci_aux_free(f, s, word);
			left--;
		}
}

uint32_t fci_weight_list(const struct fc_iface *f, uint32_t slot, uint64_t word, uint32_t *aux, uint32_t *ret_weight)
{
	/* N3: the caller's own record, or one whose release it has yet to win. */
	uint32_t weight = FCI_META_WEIGHT(atomic_load_explicit(&fci_record(f, slot)->meta, FCI_RLX));
	uint32_t n = 0, slots = fci_slots(f);
	uint64_t w;

	if (weight > FC_WEIGHT_MAX)
		weight = FC_WEIGHT_MAX;
	for (uint32_t s = 0; s < slots && n + 1 < weight; s++)
		if (is_aux_of(f, s, FCI_REF(slot, word), &w))
			aux[n++] = s;
	*ret_weight = weight ? weight : 1;
	return n;
}

void fci_weight_free(struct fc_iface *f, const uint32_t *aux, uint32_t n, uint32_t slot, uint64_t word)
{
	uint64_t w;

	for (uint32_t i = 0; i < n; i++)
		if (is_aux_of(f, aux[i], FCI_REF(slot, word), &w))
			fci_aux_free(f, aux[i], w);
}

void fci_weight_sweep(struct fc_iface *f, uint32_t from, uint32_t count)
{
	uint32_t slots = fci_slots(f);

	for (uint32_t s = from; s < from + count; s++) {
		/* A1 -> R1. */
		uint64_t w = atomic_load_explicit(fci_word(f, s), FCI_ACQ), tag, primary;

		if (FCI_STATE(w) != FCI_AUX)
			continue;
		tag = tag_of(f, s);
		if (FCI_REF_SLOT(tag) >= slots)
			continue; /* spoilt */
		/* A2 -> X2 of inflight.h: the primary's release, if it was. */
		primary = atomic_load_explicit(fci_word(f, FCI_REF_SLOT(tag)), FCI_ACQ);
		if ((FCI_GEN(primary) & 0xffffffffffull) != REF_GEN(tag) || FCI_LOW(primary) == FCI_FREE)
			fci_aux_free(f, s, w);
	}
}
