/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * weight.h - calls that take several places, all or none.
 *
 * A call of weight w has its primary slot and w - 1 AUX slots, whose records name the primary and
 * its generation. An AUX slot whose primary has moved on belongs to nobody; whoever finds it frees
 * it (only a process killed in between leaves one). Two heavy callers at one moment may both be
 * refused where one of them would fit: each gives back what it has and refuses.
 * Threads: any. Cost: O(slots) at exit, O(w) claims at enter. At most FC_WEIGHT_MAX.
 */
#ifndef FCI_WEIGHT_H
#define FCI_WEIGHT_H

#include "inflight.h"

/* Claim weight - 1 more for the primary. 1 done; 0 not enough places: nothing is held but it. */
int fci_weight_claim(struct fc_iface *f, const struct fci_claim *primary, uint32_t weight, uint64_t gate);

/* Free what was claimed for a primary that is still CLAIMED or BUSY. */
void fci_weight_unclaim(struct fc_iface *f, const struct fci_claim *primary, uint32_t weight);

/* Before the release: AUX slots of a call, and its weight. Returns their number. */
uint32_t fci_weight_list(const struct fc_iface *f, uint32_t slot, uint64_t word, uint32_t *aux, uint32_t *ret_weight);

/* After it. */
void fci_weight_free(struct fc_iface *f, const uint32_t *aux, uint32_t n, uint32_t slot, uint64_t word);

/* Free AUX slots, of these, whose primary has moved on. */
void fci_weight_sweep(struct fc_iface *f, uint32_t from, uint32_t count);

#endif /* FCI_WEIGHT_H */
