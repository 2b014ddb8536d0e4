/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * async.h - waiting for a place without a thread: fc_enter_async(), fc_enter_cancel(),
 * fc_async_poll(). See fcguard/iface.h.
 *
 * A wait is a node in the segment (wait.h) and, beside it, an element of this process with what is
 * needed later: callback, entry, context, labels. The element belongs to whoever owns the node:
 *
 *     EMPTY -> PENDING -> TAKEN -> EMPTY      and a generation, +1 with every wait
 *     enter    enter      poll or cancel      by one CAS: a callback and a cancel cannot both happen
 *
 * An element is empty again before its node is free, for the next wait may get both at once. A grant
 * that comes before its element is PENDING finds nothing to call; so enter looks at the node once
 * more after that, and makes the descriptor readable again.
 *
 *                 enter   poll   cancel
 *      enter        -       -       -        - = free, on different entries
 *      poll         -       -       -
 *      cancel       -       -       -        (of one wait: one wins)
 *
 * The admitted entry is a moved one (fc_entry_take): it survives the thread that polled. Its record
 * names that thread and the place where the wait began.
 */
#ifndef FCI_ASYNC_H
#define FCI_ASYNC_H

#include "context.h"

/* Housekeeping: when the loop has to poll next for a time-out; FC_NEVER_NS: nobody waits. A wait
 * that could be ended already is given a millisecond: ending it is up to the loop. */
uint64_t fci_async_next(struct fc *fc);

/* At the end of the context. Callbacks do not run. */
void fci_async_free(struct fc_iface *f);

/* In the child of a fork: the parent's waits are the parent's; their entries are inactive here. */
void fci_async_fork_child(struct fc *fc);

#endif /* FCI_ASYNC_H */
