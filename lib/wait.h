/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wait.h - bounded waiting for a place.
 *
 * A waiter is a node in an array of at most FC_WAITERS_MAX, not a link in a list, so that one that
 * times out or is killed leaves nothing behind. Its state is one word with its owner:
 *
 *     FREE -> SETUP -> WAITING -> GRANTED -> FREE   GRANTED says which place, and its generation
 *                      WAITING -> FREE              timed out, cancelled, served itself
 *                      GRANTED -> WAITING           the place was reaped: see below
 *
 * A granter claims a place and hands it over by WAITING -> GRANTED: one CAS, so grant and time-out cannot
 * both happen. A granter that loses gives the place back and looks again. One that is stopped or killed
 * half-way costs one waiter its turn, no more. A release looks for waiters when the gate says WAITERS; a
 * waiter publishes its node, sets that, and then tries once more itself, so that a place that was freed
 * meanwhile is not missed. Who finds no waiter takes WAITERS off and looks once more; should it be
 * stopped in between, housekeeping sets it again.
 *
 * Owners. The place's word keeps the granter's owner until the waiter takes it: by CAS, word first, node
 * second. So a reaper of dead owners needs no help: a CLAIMED word of a dead granter goes back like any
 * claim, whether handed over or not, for a waiter whose CAS finds another word waits again. A node
 * GRANTED of a dead waiter: the place goes back by CAS if its word is CLAIMED with that generation, then
 * the node.
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

enum { FCI_W_FREE = 0, FCI_W_SETUP = 1, FCI_W_WAITING = 2, FCI_W_GRANTED = 3 };
#define FCI_W_STATE(s_) ((uint32_t)((s_) & 7))

/* Wait for a place for this way. FCI_GOT; FCI_CHANGED: the interface was switched off or is draining: look
 * at its gate again; or a reason > FCI_CHANGED. Blocks. */
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

/* Must those who wait go on without a place: admitted unguarded (off), or refused (draining)? */
int fci_wait_called_off(const struct fc_iface *f);
/* The same, for those who sleep: wake them, after the switch. */
void fci_wait_look_again(struct fc_iface *f);

uint32_t fci_waiting(const struct fc_iface *f);

/* Housekeeping: give free places to those who wait, whatever the gate says. */
void fci_wait_tick(struct fc_iface *f);

/* After fork: nobody waits. */
void fci_wait_reset(struct fc_iface *f);

#endif /* FCI_WAIT_H */
