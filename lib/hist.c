/* SPDX-License-Identifier: BSD-2-Clause */
/* hist.c - the latency histogram: four buckets to a doubling, from 256 ns. See fcguard/stats.h. */
#include <errno.h>

#include "context.h"

uint32_t fc_hist_bucket(uint64_t ns)
{
	return fci_hist_bucket(ns);
}

uint64_t fc_hist_bound_ns(uint32_t b)
{
	if (b >= FC_HIST_BUCKETS)
		b = FC_HIST_BUCKETS - 1;
	return (uint64_t)(5 + (b & 3)) << (b / 4 + FCI_HIST_FIRST_BIT - 2);
}

uint64_t fc_hist_quantile_ns(const struct fc_hist *h, const struct fc_hist *base, uint32_t q_permille)
{
	uint64_t total = 0, want, seen = 0;

	if (!h)
		return 0;
	for (uint32_t i = 0; i < FC_HIST_BUCKETS; i++)
		total += h->count[i] - (base ? base->count[i] : 0);
	if (total == 0)
		return 0;
	q_permille = q_permille < 1000 ? q_permille : 1000;
	want = (total / 1000) * q_permille + ((total % 1000) * q_permille + 999) / 1000;
	for (uint32_t i = 0; i < FC_HIST_BUCKETS; i++) {
		seen += h->count[i] - (base ? base->count[i] : 0);
		if (seen >= want && seen > 0)
			return fc_hist_bound_ns(i);
	}
	return fc_hist_bound_ns(FC_HIST_BUCKETS - 1);
}

int fc_iface_hist(const struct fc_iface *f, struct fc_hist *ret)
{
	if (!fci_iface_real(f) || !ret)
		return -EINVAL;
	for (uint32_t i = 0; i < FC_HIST_BUCKETS; i++)
		ret->count[i] = fci_percpu_sum(&f->counters, offsetof(struct fci_counters, hist) + i * sizeof(uint64_t));
	return 0;
}
