/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/fallback.h - another answer for refused calls: a cached value, a default, an apology.
 *
 * An interface has one fallback, for all places that call it. It answers refusals of some reasons: by
 * default those of degrade and breaker.
 *
 *     static int stale(void *cache, const struct fc_decision *why, void *call) { ... return 0; }
 *
 *     fc_iface_fallback(iface, stale, cache);
 *     ...
 *     FC_GUARD_OR_FALLBACK(rc, r, e, iface) {
 *             rc = serve(r);
 *     } else {
 *             rc = busy(r, &e);   refused, and nothing answers for it
 *     }
 *
 * Threads.  Everything from any thread at once; reading is lock-free. A fallback that is replaced may still be
 *           running, and one more call may come to it.
 * Where.    In the thread of the refused call, after it was refused: it holds no place, no lock and
 *           nothing of the library, and may enter other guards.
 * Errors.   -EINVAL: a handle that is none, or a pass-through; -ENOMEM.
 * Memory.   24 bytes a different pair of fn and arg of an interface, until the context ends.
 */
#ifndef FC_FALLBACK_H
#define FC_FALLBACK_H

#include <fcguard/base.h>
#include <fcguard/entry.h>
#include <fcguard/guard.h>

#ifdef __cplusplus
extern "C" {
#endif

/* why: the decision; call: what fc_fallback() was given. What it returns goes to *ret. */
typedef int (*fc_fallback_fn)(void *arg, const struct fc_decision *why, void *call);

/* Which function; NULL: none any more. */
FC_API int fc_iface_fallback(struct fc_iface *iface, fc_fallback_fn fn, void *arg) FC_NOEXCEPT;

/* For which reasons: bits of enum fc_status, FC_FALLBACK_BIT(FC_REFUSED_CAP) | ...; a program's own reasons
 * (FC_REFUSED_USER and more) are FC_REFUSED_CUSTOM. 0: for none. */
#define FC_FALLBACK_BIT(reason_) (1ull << (reason_))
#define FC_FALLBACK_DEFAULT      (FC_FALLBACK_BIT(FC_REFUSED_DEGRADED) | FC_FALLBACK_BIT(FC_REFUSED_BREAKER))
FC_API int fc_iface_fallback_on(struct fc_iface *iface, uint64_t reasons) FC_NOEXCEPT;

/*
 * Answer a refused call. 1: the fallback ran, *ret (may be NULL) is what it said; 0: none is there for this
 * reason, or the entry was not refused. May throw what fn throws.
 */
FC_API int fc_fallback(const struct fc_entry *refused, void *call, int *ret);

/* How many it has answered in this process. */
FC_API uint64_t fc_iface_fallbacks(const struct fc_iface *iface) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#if defined(__GNUC__)
#ifdef FC_DISABLE
#define fc_fallback(e_, call_, ret_) ((void)(e_), (void)sizeof(call_), (void)sizeof(ret_), 0)
#endif

/*
 * FC_GUARD of guard.h whose refused calls go to the fallback first: rc_ (an int variable) gets its answer,
 * and neither block runs. call_ is handed to it. The else block is for what nothing answered.
 */
#define FC_GUARD_OR_FALLBACK(rc_, call_, e_, ...) FC_GUARD_OR_FALLBACK2_(rc_, call_, e_, FC_DONE_, __VA_ARGS__)
#define FC_GUARD_OR_FALLBACK2_(rc_, call_, e_, done_, ...)                                         \
	FC_GUARD_HEAD_(e_, done_, __VA_ARGS__)                                                     \
		if (!FC_GUARD_ADMITTED_(e_##_p_) && fc_fallback(&e_, (call_), &(rc_))) {           \
		} else if (FC_GUARD_ADMITTED_(e_##_p_))
#endif /* __GNUC__ */

#endif /* FC_FALLBACK_H */
