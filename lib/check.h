/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * check.h - before a refusal: are the oldest calls really there?
 *
 * One refused caller each check_every passes over up to 512 places, the next one over those behind them, and
 * looks at the oldest calls there; all others pass by at the price of one comparison. (Housekeeping looks at the
 * oldest of all.) Stale calls are ended (purged) at once. Proof that a call has left:
 *   - its thread is gone; or
 *   - its thread has since entered a guard, on the same known stack, whose entry overlaps the
 *     call's entry, or from a frame wholly above it: then the scope that held the entry is dead (a
 *     longjmp, or an exit that was forgotten). Never for moved calls, nor for entries that are not
 *     on the thread's own stack (heap, coroutines).
 * A call past writeoff_after may be written off though it runs: it goes on, its place is given to
 * another, and it is kept in a table as large as the budget until it leaves. So calls that run
 * number at most limit + budget.
 *
 *     element:  EMPTY -> RESV -> PREP          -> ACTIVE          -> EMPTY, generation of its own + 1
 *     slot:                           -> CLAIMED         -> FREE
 *
 * An element's key says its state, its generation and who writes off; all changes are a CAS of it. The
 * fields are filled in under RESV. The slot is freed in two steps, so that at any moment the two words
 * tell how far a purger got that is stopped or gone: the slot CLAIMED under the generation of the call:
 * the call is written off, and anybody (housekeeping, its late exit) may do what is left; not so: PREP
 * is of a call that runs on in its place, or has left by itself, and is given back when the purger is
 * gone. A late exit frees the slot first, then clears every element that names its call. So nothing
 * comes back while the call runs, and all comes back in the end; tests/model/writeoff.pml.
 *
 *               check  purge  left  used, view  tick  reset
 *   check         -      -      -       -        -      X
 *   purge         -      -      -       -        -      X      of one call: one ends it
 *   left          -      -      -       -        -      X      of one element: one frees it
 *   used, view    -      -      -       -        -      X
 *   tick          -      -      -       -        -      X
 *   reset         X      X      X       X        X      X      X: in the child of a fork, alone
 */
#ifndef FCI_CHECK_H
#define FCI_CHECK_H

#include "inflight.h"

/* By a refused caller. 1: room may have been made, try again. Lock-free; 1 us for 64 places, 5 us for 512 and
 * more, with few threads. */
int fci_check(struct fc_iface *f, uint64_t now);

/* Purge what is stale among the oldest, as housekeeping. Returns how many. */
uint32_t fci_purge_stale(struct fc_iface *f, uint64_t now);

/* End all calls of this process's thread tid (moved ones apart), or of all threads (UINT32_MAX). */
uint32_t fci_purge_thread(struct fc_iface *f, uint32_t tid, uint64_t now);

/* A late exit: was this call written off? Then its part of the budget comes back. */
int fci_writeoff_left(struct fc_iface *f, uint32_t slot, uint64_t word);

/* Elements in use; and free those of dead threads, as housekeeping. */
uint32_t fci_writeoff_used(const struct fc_iface *f);
void fci_writeoff_tick(struct fc_iface *f, uint64_t now);

/* The i-th element as a view; 0 when it is not in use. */
int fci_writeoff_view(const struct fc_iface *f, uint32_t i, struct fci_view *v);

/* After fork: nothing is written off. */
void fci_writeoff_reset(struct fc_iface *f);

#endif /* FCI_CHECK_H */
