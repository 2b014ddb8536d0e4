/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wait.h - bounded waiting for a place.
 *
 * A waiter is a node in an array of at most FC_WAITERS_MAX, not a link in a list, so that one that
 * times out or is killed leaves nothing behind. Its state is one word with its owner:
 *
 *     FREE -> SETUP -> WAITING -> GRANTING -> GRANTED -> FREE   GRANTED says which place
 *                      WAITING, GRANTING -> FREE                timed out, cancelled, served itself
 *
 * A granter claims a place, takes a waiter's turn by WAITING -> GRANTING, makes the waiter's process
 * the place's owner, and hands the place over in the same word by GRANTING -> GRANTED. Each step is
 * one CAS, so grant and time-out cannot both happen: a granter that loses gives the place back and
 * looks again. One that is stopped or killed half-way costs one waiter its turn, no more. A release
 * looks for waiters when the gate says WAITERS; a waiter publishes its node, sets that, and then
 * tries once more itself, so that a place that was freed meanwhile is not missed.
 *
 *                 wait   grant   poll    cancel
 *      wait         -      -       -       -         - = free
 *      grant        -      -       -       -         X = one thread per node
 *      poll         -      -       X       -
 *      cancel       -      -       -       X
 *
 * Newest first (default): under overload those who just came are served in time, the oldest time
 * out; with oldest first everybody would be served too late. FC_WAIT_FIFO chooses the latter.
 * A call of weight over 1 never waits. Newcomers may overtake.
 */
#ifndef FCI_WAIT_H
#define FCI_WAIT_H

#include "entry.h"

enum { FCI_W_FREE = 0, FCI_W_SETUP = 1, FCI_W_WAITING = 2, FCI_W_GRANTING = 3, FCI_W_GRANTED = 4 };
#define FCI_W_STATE(s_) ((uint32_t)((s_) & 7))

/* Wait for a place for this way. FCI_GOT, or a reason > FCI_CHANGED. Blocks. */
int fci_wait(struct fci_way *w);

/* The steps, for fci_wait and async.c. begin: a node, WAITING; its index, or -1: all taken. */
int fci_wait_begin(struct fc_iface *f, uint64_t now, int async);
/* After begin, and the gate read anew into w->gate: one more try, for places freed before. 1: claim
 * is set, and the node is free again. */
int fci_wait_again(struct fci_way *w, uint32_t node);
/* When a wait that begins at w->now ends: time-out or deadline. */
uint64_t fci_wait_until(const struct fci_way *w);
/* Granted? Looks only. */
int fci_wait_is_granted(const struct fc_iface *f, uint32_t node);
/* Granted? 1: claim is set and the node free again. */
int fci_wait_granted(struct fc_iface *f, uint32_t node, struct fci_claim *c);
/* Stop waiting. 1: stopped; 0: it was granted just now, claim is set. */
int fci_wait_stop(struct fc_iface *f, uint32_t node, struct fci_claim *c);

uint32_t fci_waiting(const struct fc_iface *f);

/* After fork: nobody waits. */
void fci_wait_reset(struct fc_iface *f);

#endif /* FCI_WAIT_H */
