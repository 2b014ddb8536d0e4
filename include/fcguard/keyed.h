/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/keyed.h - a rate, or a number of calls in flight, for each user, address or other value of a
 * label: one default, and other numbers for those who have their own or a plan.
 *
 *     struct fc_keyed_conf conf = { .label = "user", .limit = { 10, FC_S(1) }, .burst = 20, .cap = 4 };
 *     struct fc_rule rule = { .interceptor = &fc_interceptor_keyed, .conf = &conf };
 *     fc_iface_set_chain(iface, &rule, 1);
 *     ...
 *     fc_keyed_plan(iface, NULL, "gold", &(struct fc_keyed_numbers){ .limit = { 100, FC_S(1) } });
 *     fc_keyed_assign(iface, NULL, "alice", "gold");
 *
 * Bounds.   A key's calls in any interval: at most burst + limit * interval. In flight: at most cap; those
 *           forgotten by a lease (below) excepted.
 * Places.   Each key that is not as a fresh one would be (its bucket is not full again, or a call of it
 *           is inside) has a place; a place of a key that is gives way to a new key, and nothing is
 *           forgiven. So memory is the same for any number of keys seen. When no place of the 16 where a
 *           new key may be gives way, the call is an overflow: counted, and admitted without a limit of its
 *           own, or refused. Choose twice as many places as keys ask within burst / limit: then practically
 *           none overflows; with 3 of 4 places used, 1 new key of 100.
 * Odds.     A place knows its key by 44 bits of a seeded hash, and by its bucket: that any two of 10^8 keys
 *           ever share a place has a chance of 1 in 10000.
 * Leases.   A process that is killed between taking and noting leaves a call inside that nobody ends: it
 *           is forgotten when the key has had no new call for `lease_ns`.
 * Threads.  Everything below from any thread at once; lock-free, no allocation.
 * Units.    Times in ns on the context's clock. A call takes its weight in tokens and places of its cap.
 * Memory.   16 bytes of the segment a place, 28 to 55 an override.
 * Cost.     bench/RESULTS.md: keyed_hit. One compare-and-swap a call, and one to end it with a cap.
 */
#ifndef FC_KEYED_H
#define FC_KEYED_H

#include <fcguard/base.h>
#include <fcguard/field.h>
#include <fcguard/interceptor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls without the label: let pass; refused; all of them are one key. */
enum fc_keyed_without {
	FC_KEYED_WITHOUT_ADMIT = 0, FC_KEYED_WITHOUT_REFUSE = 1, FC_KEYED_WITHOUT_SHARED = 2,
	FC_KEYED_WITHOUT_FORCE_INT_ = INT32_MAX
};

enum fc_keyed_overflow { FC_KEYED_ADMIT = 0, FC_KEYED_REFUSE = 1, FC_KEYED_OVERFLOW_FORCE_INT_ = INT32_MAX };

#define FC_KEYED_CAP_MAX       16383u
#define FC_KEYED_BURST_MAX     (1ull << 40)
#define FC_KEYED_PLACES_MAX    (1u << 22)
#define FC_KEYED_OVERRIDES_MAX (1u << 22)
#define FC_KEYED_PLANS_MAX     255u

/* Zero means "default" in every field. */
struct fc_keyed_conf {
	const char *label;     /* whose value is the key; required. It lives until fc_iface_set_chain() returns */
	struct fc_rate limit;  /* n per per_ns, 1 per 366 days .. 10^9 per second; n 0: none, and with cap 0 only values
	                        * that are given numbers of their own are limited */
	uint64_t burst;        /* tokens that are kept, up to FC_KEYED_BURST_MAX; over 8191 it is rounded down by
	                        * at most 1/8192. Default: those of a second, but at least 1 and at most n */
	uint32_t cap;          /* calls in flight, up to FC_KEYED_CAP_MAX; 0: none */
	uint32_t places;       /* 1024..FC_KEYED_PLACES_MAX, rounded up to a power of two; default 65536 */
	uint32_t max_overrides; /* up to FC_KEYED_OVERRIDES_MAX; default 1024 */
	uint32_t without;      /* enum fc_keyed_without */
	uint32_t overflow;     /* enum fc_keyed_overflow */
	uint32_t resv;
	uint64_t lease_ns;     /* default 1 h, at least 1 s */
	uint64_t made_[16];    /* the library's */
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_keyed_conf, 192);
#endif

FC_API extern const struct fc_interceptor fc_interceptor_keyed;

#define FC_KEYED_DENY (1u << 0) /* refuse all calls of the key */

/* Numbers for a key or a plan instead of the default; as in the conf. Neither limit nor cap: unlimited. */
struct fc_keyed_numbers {
	struct fc_rate limit;
	uint64_t burst;
	uint32_t cap;
	uint32_t flags; /* FC_KEYED_DENY */
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_keyed_numbers, 32);
#endif

/*
 * Change numbers while calls run, for all who share the segment, at once. They stay when a chain is
 * replaced. rule NULL: "keyed". value: of the label; the text of an address stands for labels of both
 * fc_label() and fc_label_ip().
 *   override   this value has numbers of its own; NULL: no more
 *   plan       what a plan's numbers are, a name of up to 47 bytes; the first time makes the plan
 *   assign     this value has the plan's numbers; NULL: no more. The value has a plan or its own numbers
 * 0; -EINVAL, -ERANGE (numbers); -ENOENT (no such rule or plan); -ENOSPC (more than max_overrides, or than
 * FC_KEYED_PLANS_MAX names of plans). Two that set the same new value at once: one of them wins.
 */
FC_API int fc_keyed_override(struct fc_iface *iface, const char *rule, const char *value,
                             const struct fc_keyed_numbers *numbers) FC_NOEXCEPT;
FC_API int fc_keyed_plan(struct fc_iface *iface, const char *rule, const char *plan,
                         const struct fc_keyed_numbers *numbers) FC_NOEXCEPT;
FC_API int fc_keyed_assign(struct fc_iface *iface, const char *rule, const char *value, const char *plan) FC_NOEXCEPT;

struct fc_keyed_stats {
	uint32_t size;       /* sizeof(struct fc_keyed_stats) */
	uint32_t places;
	uint32_t used;       /* places of keys that have used something, or are inside */
	uint32_t limited;    /* of them, those whose next call the default numbers would refuse */
	uint64_t inside;     /* in flight, of keys with a cap */
	uint64_t inserted;   /* times that a key got a place */
	uint64_t evicted;    /* of them, times that another key had it before */
	uint64_t overflows;  /* calls that found no place */
	uint64_t without;    /* calls without the label */
	uint64_t overrides;  /* values with numbers of their own, or a plan */
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_keyed_stats, 64);
#endif

/* O(places + max_overrides). 0, -EINVAL, -ENOENT. */
FC_API int fc_keyed_stats(struct fc_iface *iface, const char *rule, struct fc_keyed_stats *ret) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_KEYED_H */
