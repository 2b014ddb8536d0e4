/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/degrade.h - switch an interface off, wholly or for the less important calls; what is refused
 * may be answered by the interface's fallback (fallback.h).
 *
 * Level L refuses calls of priority 8 - L and more (0 is the most important): 0 nobody, 1 those of
 * priority 7, 8 all. Three things set it; the highest holds:
 *
 *   by hand      fc_degrade_set(): until it is taken back by hand
 *   fault flag   fc_degrade_fault(): what the interface needs is known to be broken. While it is set
 *                conf.level holds; when it is taken away the interface comes back by probes
 *   outcomes     of its calls, as a breaker's: too many failed (trip.error_permille, trip.errors) or
 *                timed out (timeout_permille, timeouts). conf.level holds until it comes back by the
 *                breaker's ways. Without such numbers it is never switched off by itself
 *
 *     struct fc_degrade_conf conf = { .level = 4, .timeout_permille = 300 };
 *     struct fc_rule rule = { .interceptor = &fc_interceptor_degrade, .conf = &conf };
 *     fc_iface_set_chain(iface, &rule, 1);
 *
 * Threads, units, bounds, time: as of breaker.h. Calls that level leaves alone run on and are counted while
 * it is closed or a ramp; probes are calls that level would refuse.
 * Errors.   -EINVAL, -ENOENT (no such rule of the interface).
 * Memory.   as a breaker's. The level by hand and the fault flag are state: they survive a reload.
 * Cost.     two loads a call without outcomes; else as a breaker's.
 */
#ifndef FC_DEGRADE_H
#define FC_DEGRADE_H

#include <fcguard/breaker.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FC_DEGRADE_ALL 8

/* Zero means "default" in every field. */
struct fc_degrade_conf {
	uint32_t level;            /* of outcomes and the fault flag; 1..8; default FC_DEGRADE_ALL */
	uint32_t timeout_permille; /* so many timed out, were purged or written off; 1..1000; 0: not by it */
	uint32_t timeouts;         /* in the window, of however many; 0: not by it */
	uint32_t resv;
	struct fc_breaker_conf trip; /* window and recovery. slow_ns, slow_permille: 0. error_permille 0: not
	                              * by it. Timeouts have failed, too */
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_degrade_conf, 360);
#endif

FC_API extern const struct fc_interceptor fc_interceptor_degrade;

/* By hand: rule NULL is "degrade"; level 0 (off) .. FC_DEGRADE_ALL. */
FC_API int fc_degrade_set(struct fc_iface *iface, const char *rule, uint32_t level) FC_NOEXCEPT;

/* Set (1) or take away (0) the fault flag. */
FC_API int fc_degrade_fault(struct fc_iface *iface, const char *rule, int on) FC_NOEXCEPT;

/* The level in force, or a negative errno. While it comes back (probes, ramp) that is still conf.level. */
FC_API int fc_degrade_level(struct fc_iface *iface, const char *rule) FC_NOEXCEPT;

/* Of outcomes and the fault flag (FC_BREAKER_FORCED_OPEN); failed, slow: those that timed out. */
FC_API int fc_degrade_state(struct fc_iface *iface, const char *rule, struct fc_breaker_status *ret) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_DEGRADE_H */
