/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stuck.h - calls that are overdue: counted, told as events, and reported with the place where they
 * stand.
 *
 * Nothing is done on enter or exit. Housekeeping looks at the calls inside (fci_stuck_tick), remembers
 * the overdue ones, and makes those that are due stand in line; fci_stuck_step then takes their
 * threads' stacks, which disturbs none of them, has the addresses looked up and writes the reports.
 *
 * Due.      A call is reported when it becomes overdue, and then each time its age has doubled.
 * Groups.   Calls of one interface that stand in one place (call site and stack) make one report,
 *           which counts all of them. Who gets stuck later in a place that has been reported is told
 *           of with the next report of that place: after half of stuck_after at first, then twice as
 *           long each time, at most a minute.
 * Bounds.   CALLS overdue calls are remembered, at most half of them of one interface; the others
 *           are only counted. max_reports_per_min reports in a minute; the others are counted, and
 *           the next report says how many.
 *
 *                   tick   step   destroy   leaks
 *        tick        X      X       X         -        X = the ticking thread alone
 *        step        X      X       X         -        - = free
 *        leaks       -      -       X         -
 *
 * Memory.   Nothing before the first overdue call; then 170 KiB, and what stack.h and symbol.h say.
 * Cost.     tick: a look at each place. step: some 50 us per call that is due.
 */
#ifndef FCI_STUCK_H
#define FCI_STUCK_H

#include "inflight.h"

/* 0 or -ENOMEM. */
int fci_stuck_create(struct fc *fc);
void fci_stuck_destroy(struct fc *fc);

/* After fork: nothing is overdue. The ticking lock was held across it. */
void fci_stuck_fork_child(struct fc *fc);

/* Count, note STUCK and UNSTUCK, put due calls in line. Returns when to look again; FC_NEVER_NS when
 * nobody is inside. */
uint64_t fci_stuck_tick(struct fc_iface *f, uint64_t now);

/* Go on with reports until until_ns on CLOCK_MONOTONIC, roughly. Returns when to go on; FC_NEVER_NS
 * when nothing is under way. */
uint64_t fci_stuck_step(struct fc *fc, uint64_t now, uint64_t until_ns);

/* leaks.c: calls that nobody can end (all: every call inside), by call site, to fd or (-1) the log.
 * Returns their number. */
int fci_leaks_report(struct fc *fc, int fd, int all);

#endif /* FCI_STUCK_H */
