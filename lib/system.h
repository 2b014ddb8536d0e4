/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * system.h - bounds of the whole process. See fcguard/system.h.
 *
 * The level in force lies in the segment's control word, which every call reads anyway; the bounds,
 * and what the counters were at the last look, are this process's own. Setting and the look at the
 * bounds are serialised by fc->setup; the look comes back later when somebody holds it. A look at many
 * interfaces takes several ticks, and the mutex is free between them.
 *
 *                 set   level   refuses   tick
 *      set         X      -        -       X      - = free; X = fc->setup serialises
 *      tick        X      -        -       X
 */
#ifndef FCI_SYSTEM_H
#define FCI_SYSTEM_H

#include "context.h"

/* Is this call to be refused? By enter, while FCI_CONTROL_SYSTEM is set in `control`, as just read. */
int fci_system_refuses(const struct fc_iface *f, const struct fc_ctx *ctx, uint32_t control);

/* Housekeeping, once a health period: look at the bounds, move the level. Looks at one interface at least,
 * and at others until then (CLOCK_MONOTONIC). Returns when to go on with this look; FC_NEVER_NS: it is
 * over. */
uint64_t fci_system_tick(struct fc *fc, uint64_t now, uint64_t until);

/* In the child of a fork, alone: what a look has found in the parent is not here. */
void fci_system_fork_child(struct fc *fc);

void fci_system_free(struct fc *fc);

#endif /* FCI_SYSTEM_H */
