/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/system.h - bounds of the whole process: when one is passed, less important inbound calls
 * are refused (FC_REFUSED_SYSTEM) until all are kept again.
 *
 * Bounds are looked at once a health period (250 ms), so the answer to a step comes within two
 * periods. While a bound is passed, the level of importance that still gets in goes down by one
 * class a period, from 7 towards the `keep` classes; it comes back one class each four periods.
 * Interfaces marked FC_IFACE_OUTBOUND are left alone.
 * Threads.  Any; serialised inside (a mutex that enter and exit never wait for).
 * Memory.   A table with a line for each interface, from the context's allocator when bounds are first set.
 * Cost.     On enter none until a bound is passed; while one is, calls take the longer way in.
 */
#ifndef FC_SYSTEM_H
#define FC_SYSTEM_H

#include <fcguard/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fc;

/* Zero: no such bound. */
struct fc_system_opts {
	uint32_t size;
	uint32_t cpu_permille;        /* of what the process may use */
	uint32_t load_permille;       /* 1-minute load average * 1000 / CPUs */
	uint32_t in_flight;           /* calls inside, all inbound interfaces */
	uint64_t rate_per_s;          /* admitted, all inbound interfaces */
	uint64_t avg_latency_ns;      /* of calls that left in the last period, inbound */
	uint32_t keep;                /* classes 0..keep are never refused; 0..7, default 0 */
	uint32_t resv;                /* zero */
};
FC_OPTS_ASSERT(struct fc_system_opts, 40);

/* Which bound was passed: `a` of FC_EVENT_SYSTEM_ON. */
enum fc_system_bound {
	FC_SYSTEM_CPU = 1,
	FC_SYSTEM_LOAD = 2,
	FC_SYSTEM_IN_FLIGHT = 3,
	FC_SYSTEM_RATE = 4,
	FC_SYSTEM_LATENCY = 5,
	FC_SYSTEM_FORCE_INT_ = INT32_MAX
};

/* opts NULL: no bounds, and everybody gets in again at once. Returns 0; -EINVAL (a field out of range, size);
 * -E2BIG (a field that this library does not know is set); -ENOMEM. */
FC_API int fc_system_set(struct fc *fc, const struct fc_system_opts *opts) FC_NOEXCEPT;

/* Classes >= the result are refused now; 8: nobody is. */
FC_API uint32_t fc_system_level(const struct fc *fc) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_SYSTEM_H */
