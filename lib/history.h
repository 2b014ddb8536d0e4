/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * history.h - availability: calls that were admitted and did not fail, of all calls, over 5 minutes,
 * 1 hour and 30 days.
 *
 * Three rings of cells (struct fci_history): 10 of 30 s, 12 of 5 min, 30 of 1 day. Calls are added to
 * the newest cell of each ring, so a window covers all of its cells but the part of the newest that
 * is still to come: 4.5 to 5 min, 55 to 60 min, 29 to 30 days.
 *
 * Gaps.     Calls since the previous tick count as of now, however long ago it was; cells in between
 *           are empty. (Housekeeping rests only while no calls come, so after a rest they are new.)
 *           Readers leave out cells that have grown too old since the last tick.
 * Clock.    When it goes back the newest cell stays the newest and begins anew: nothing is lost, and
 *           nothing waits until the clock has caught up.
 * Counters. One that goes back a little (a sum of parts read at different times) is taken as standing
 *           still; one that falls below half was set back, and counts from there.
 *
 *                  tick   read
 *        tick       X      -      X = housekeeping alone; - = free
 *        read       -      -
 *
 * Cost. tick: six adds. read: 30 loads of each kind, again if a tick was in between (at most a few
 * times; then the numbers may be of two moments, a tick apart).
 */
#ifndef FCI_HISTORY_H
#define FCI_HISTORY_H

#include "context.h"

enum { FCI_HISTORY_5MIN = 0, FCI_HISTORY_1H = 1, FCI_HISTORY_30D = 2, FCI_HISTORY_WINDOWS = 3 };

/* good_total: calls that were admitted and did not fail; all_total: all calls; since the beginning. */
void fci_history_tick(struct fc_iface *f, uint64_t good_total, uint64_t all_total, uint64_t now);

/* Availability over a window in parts per million; 10^6 without any calls, or an unknown window. */
uint32_t fci_history_ppm(const struct fc_iface *f, int which);

#endif /* FCI_HISTORY_H */
