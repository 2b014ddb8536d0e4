/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/stats.h - counters out.
 *
 * Counters are sums of per-CPU parts; taking them costs the calls nothing. They never go back.
 * `admitted` is exact at rest; while calls run, a snapshot may miss the last few of each CPU.
 * Threads.  Any, beside everything. Reads only; no allocation (fc_recorder() sorts with qsort()).
 * Units.    Places and calls; ns; ppm: 10^6 = all of them; permille: 1000 = all.
 * Errors.   0 or -EINVAL (a size that is not set, NULL, a handle that is none).
 * Cost.     O(CPUs + places) per interface: about 1 us for 2 CPUs and 64 places.
 */
#ifndef FC_STATS_H
#define FC_STATS_H

#include <fcguard/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fc;
struct fc_iface;

/* refused[] is indexed by enum fc_status; reasons of the program's own are in [FC_REFUSED_CUSTOM]. */
#define FC_STATS_REASONS 32

struct fc_stats {
	uint32_t size;
	uint32_t cap;               /* FC_UNLIMITED: none */
	uint32_t limit;             /* in force now */
	uint32_t in_flight;         /* places taken now, written-off calls apart */
	uint32_t peak;              /* largest in_flight seen (at ticks, and the limit once refused) */
	uint32_t headroom;          /* limit - in_flight, not below 0 */
	uint32_t waiting;           /* callers waiting for a place now */
	uint32_t overdue;           /* calls inside for longer than stuck_after, at the last tick */
	uint32_t written_off;       /* running calls that are not counted now */
	uint32_t flags;             /* FC_IFACE_* | FC_STATS_UNRULED | ... */
	uint64_t admitted;
	uint64_t refused[FC_STATS_REASONS];
	uint64_t would_refuse;      /* calls that a dry run has let pass, of the interface or of rules; each once */
	uint64_t ok, error, timeout, ignored, abandoned; /* outcomes of calls that have left */
	uint64_t unmarked;          /* of ok: nobody called fc_entry_mark() */
	uint64_t late_exits;        /* exits of calls that had been purged or written off */
	uint64_t untracked;         /* admitted without a place: faults, full tables, off */
	uint64_t expansions, expansions_undone;
	uint64_t purged, writeoffs;
	uint64_t waited, wait_timeouts;
	uint32_t availability_5min_ppm; /* admitted and not failed, of all calls; 10^6 without any */
	uint32_t availability_1h_ppm;
	uint32_t availability_30d_ppm;
	uint32_t resv;
};
FC_OPTS_ASSERT(struct fc_stats, 440);

enum fc_stats_flags {
	FC_STATS_UNRULED = 1u << 16,  /* no rule: observed, never refused (or the default cap) */
	FC_STATS_DRAINING = 1u << 17,
	FC_STATS_PASS_THROUGH = 1u << 18,
	FC_STATS_FLAGS_FORCE_INT_ = INT32_MAX
};

/* ret->size must be set; what this library does not know is zeroed. */
FC_API int fc_iface_stats(const struct fc_iface *iface, struct fc_stats *ret) FC_NOEXCEPT;

/*
 * Latency histogram: four buckets to a doubling from 256 ns to 17 s, so a quantile is right within
 * 25 %. Counts are samples (iface.h: enum fc_latency_mode). O(CPUs * buckets).
 */
#define FC_HIST_BUCKETS 104
struct fc_hist {
	uint64_t count[FC_HIST_BUCKETS];
};

FC_API int fc_iface_hist(const struct fc_iface *iface, struct fc_hist *ret) FC_NOEXCEPT;

/* Pure helpers. The bucket of a latency; upper bound of a bucket in ns; quantile q_permille (500 =
 * median) of h minus `base` (NULL: of h): upper bound of its bucket in ns, 0 when empty. */
FC_API uint32_t fc_hist_bucket(uint64_t latency_ns) FC_NOEXCEPT;
FC_API uint64_t fc_hist_bound_ns(uint32_t bucket) FC_NOEXCEPT;
FC_API uint64_t fc_hist_quantile_ns(const struct fc_hist *h, const struct fc_hist *base,
                                    uint32_t q_permille) FC_NOEXCEPT;

/* Of a whole context. */
struct fc_totals {
	uint32_t size;
	uint32_t ifaces;
	uint64_t bytes_mapped;       /* address space of the segment */
	uint64_t bytes_used;         /* of it, given out to interfaces and counters */
	uint64_t faults;             /* failed look-ups and set-ups */
	uint64_t pass_through;       /* calls through a pass-through handle */
	uint64_t events_suppressed;
	uint64_t ticks;
	uint64_t reports_suppressed; /* stuck reports */
};
FC_OPTS_ASSERT(struct fc_totals, 64);
FC_API int fc_totals(struct fc *fc, struct fc_totals *ret) FC_NOEXCEPT;

/*
 * Address space that one interface with this cap takes when it is made, and how much of it is touched by
 * one CPU's traffic; for planning. cap 0: without a cap. What comes with a rule or when it is first needed
 * comes on top, of the segment's space as well:
 *     wait_max           16 KiB, once it is set
 *     places             about 104 bytes each above the cap: when the limit is expanded (up to 3 * cap more),
 *                        max_cap is above the cap, or more calls are inside than an interface without a cap
 *                        had places for (64 at first); what is added is at least what there was
 *     writeoff           64 bytes for each above cap / 10
 *     rules of a chain   what their interceptors keep (state_bytes, or what their headers say)
 */
FC_API uint64_t fc_iface_bytes(uint32_t cap, uint32_t ncpus, uint64_t *ret_touched) FC_NOEXCEPT;

/*
 * The flight recorder: the last decisions of each CPU, newest first, merged by time; at most n.
 * Every refusal and every admission is recorded while there are few; under load one of 2^k.
 * Returns how many were written. list[0].size must be set when n > 0. O(CPUs * recorder_slots).
 */
struct fc_record {
	uint32_t size;
	int32_t status;         /* 0 admitted, or the reason */
	uint64_t time_ns;
	const char *iface;      /* name */
	uint64_t in_flight_or_latency; /* refused: limit met; admitted: 0 */
	uint32_t tid;
	uint32_t one_of;        /* this record stands for so many decisions */
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_record, 40);
#endif
FC_API int fc_recorder(struct fc *fc, struct fc_record *list, uint32_t n) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_STATS_H */
