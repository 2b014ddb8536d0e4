/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * limit.h - changing the limit while calls are inside.
 *
 * Raising is one store (after there is room for the ranks). Lowering under the number inside sets
 * DRAIN: ranks say too little until the calls over the new limit have left, so a claim counts all
 * calls inside and gives up when they exceed the limit. Whoever finds no call of rank >= limit
 * clears DRAIN. A call that is stuck over the limit would keep it for ever; so housekeeping lends it
 * a free slot under the limit: that becomes LENT and names the call, the call becomes LENDER, and
 * both are freed together. (Of a weighted call the primary is lent for, its AUX slots over the limit
 * are not: while there are any DRAIN stays, which costs a count per enter, 17 ns a 64 slots.)
 *
 *                  claim  release  change  lend  clear
 *      change        -       -       -      -     -       a CAS of the gate, version + 1: the later one stands
 *      lend          -       -       -      -     -       one at a time, as clear: who comes second at
 *      clear         -       -       -      -     -           rare.lending does nothing
 */
#ifndef FCI_LIMIT_H
#define FCI_LIMIT_H

#include "inflight.h"

/* Put a new limit in force; it sets DRAIN, which ends when no call is inside over it. The version rises
 * even if the limit stays: who decided on one before that finds it out. Lock-free. */
void fci_limit_change(struct fc_iface *f, uint32_t limit);

/* The same for who decided by `gate`. 0; -EAGAIN: somebody has put a limit in force since, or has given
 * it a cap or taken that: nothing is changed. */
int fci_limit_change_from(struct fc_iface *f, uint64_t gate, uint32_t limit);

/* Set and clear flags of the gate. Returns the word before. */
uint64_t fci_gate_set(struct fc_iface *f, uint64_t set, uint64_t clear);

/* Nobody is over the limit of `gate` as just counted: end DRAIN if it is still the same gate. */
void fci_drain_clear(struct fc_iface *f, uint64_t gate);

/* fci_claim(), and while draining the count that it needs, between two looks at the same gate. */
int fci_claim_counted(struct fc_iface *f, uint64_t gate, struct fci_claim *c);

/* Housekeeping: clear DRAIN, or lend for calls that keep it. Returns 1 while draining. */
int fci_limit_tick(struct fc_iface *f);

/* Release a slot that is no call's own (AUX, LENT), if its word is still `w`: others may free it too. Its
 * generation counts one more release. */
void fci_aux_free(struct fc_iface *f, uint32_t slot, uint64_t w);

/* The call in `slot` with word `w` is no more: free what was lent for it, if anything was. O(slots). */
void fci_loan_free(struct fc_iface *f, uint32_t slot, uint64_t w);

#endif /* FCI_LIMIT_H */
