/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * check.h - before a refusal: are the oldest calls really there?
 *
 * One refused caller each check_every looks at the oldest calls; all others pass by at the price of
 * one comparison. Stale calls are ended (purged) at once. Proof that a call has left:
 *   - its thread is gone; or
 *   - its thread has since entered a guard, on the same known stack, whose entry overlaps the
 *     call's entry, or from a frame wholly above it: then the scope that held the entry is dead (a
 *     longjmp, or an exit that was forgotten). Never for moved calls, nor for entries that are not
 *     on the thread's own stack (heap, coroutines).
 * A call past writeoff_after may be written off though it runs: it goes on, its place is given to
 * another, and it is kept in a table as large as the budget until it leaves. So calls that run
 * number at most limit + budget.
 *
 *     element: EMPTY -> PREP(slot, generation) -> ACTIVE -> EMPTY
 *
 * PREP is set before the word's CAS, so a late exit always finds its element. A purger that is stopped
 * between them keeps that part of the budget until it goes on; for one that is gone housekeeping
 * finishes: the word has moved on: ACTIVE; it has not: EMPTY.
 */
#ifndef FCI_CHECK_H
#define FCI_CHECK_H

#include "inflight.h"

/* By a refused caller. 1: room may have been made, try again. Lock-free; a few us. */
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
