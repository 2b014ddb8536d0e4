/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tick.h - housekeeping: see fc_tick() in fcguard/context.h.
 *
 * An interface without calls inside or since the last look is put to sleep (a flag in its gate):
 * housekeeping skips it until a call finds the flag, clears it and wakes us. So what a tick costs
 * grows with the interfaces in use, and an idle server is woken by nobody.
 */
#ifndef FCI_TICK_H
#define FCI_TICK_H

#include "context.h"

/* Keep fc_tick() out (waits for one under way); for settings that it reads, and for fork. Returns
 * 0 when this thread is in fc_tick() itself (a callback): then there is nothing to unlock. */
int fci_tick_lock(struct fc *fc);
void fci_tick_unlock(struct fc *fc);

#endif /* FCI_TICK_H */
