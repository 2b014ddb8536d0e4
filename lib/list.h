/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * list.h - calls that are inside, one at a time and as a list: what fc_in_flight(), the stuck reports
 * and the dumps share. Reads only; any thread; async-signal-safe.
 */
#ifndef FCI_LIST_H
#define FCI_LIST_H

#include "inflight.h"

/* Do two words of one slot belong to one call? A write-off keeps only 42 bits of the generation. */
static inline int fci_same_call(uint64_t a, uint64_t b)
{
	return ((FCI_GEN(a) ^ FCI_GEN(b)) & 0x3ffffffffffull) == 0;
}

/* How long this call may be inside before it is overdue; FC_NEVER_NS: for ever. */
uint64_t fci_stuck_after(const struct fc_iface *f, const struct fci_view *v);

static inline uint64_t fci_age(uint64_t start, uint64_t now)
{
	return now > start ? now - start : 0;
}

static inline int fci_overdue(const struct fc_iface *f, const struct fci_view *v, uint64_t now)
{
	return fci_age(v->start, now) >= fci_stuck_after(f, v);
}

/* A call as lists and reports show it; only `size` is not touched. */
void fci_list_fill(const struct fc_iface *f, const struct fci_view *v, int written_off, uint64_t now,
                   struct fc_in_flight *ret);

/* Calls inside, written-off ones too. O(places). */
uint32_t fci_list_count(const struct fc_iface *f);

/* Places taken, and the limit as people write it: FC_UNLIMITED when there is none. */
uint32_t fci_list_limit(const struct fc_iface *f);

#endif /* FCI_LIST_H */
