/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/rate.h - at most so many calls (tokens, when calls have a weight) in a time, or in all.
 *
 *   bucket    tokens come steadily, up to `burst` are kept. In any interval at most
 *             burst + rate * interval. The default, and the one to take without a reason for another
 *   leaky     pacing: calls run `1 / rate` apart; those that come sooner sleep for up to max_wait_ns
 *   warm_up   a bucket whose rate grows from rate / cold_factor to rate in warm_up_ns of use, and goes
 *             back when it is not used
 *   fixed     at most n in each window of the clock; at an edge of windows up to 2 n within one's length
 *   sliding   at most n in any window of that length, wherever it begins; to pay for that, one that is
 *             always asked for more gives 128/129 of its rate
 *   total     at most `total` in all, for ever; a reload with a larger total adds the difference
 *
 *     struct fc_rate_conf conf = { .limit = { 500, FC_S(1) }, .burst = 50 };
 *     struct fc_rule rule = { .interceptor = &fc_interceptor_rate, .conf = &conf };
 *     fc_iface_set_chain(iface, &rule, 1);
 *
 * Threads.  Everything below from any thread at once; lock-free, no allocation.
 * Units.    Times in ns on the context's clock. A call takes its weight in tokens.
 * Time.     A now that is late mints nothing and takes nothing away. A clock that is set back stops the
 *           refill until 1 s has passed by it and 8 calls have come.
 * Memory.   1.2 KiB and 128 bytes a CPU (64 of them at most) of the segment, a rule.
 * Cost.     bench/RESULTS.md: token_bucket. A refusal only looks.
 */
#ifndef FC_RATE_H
#define FC_RATE_H

#include <fcguard/base.h>
#include <fcguard/field.h>
#include <fcguard/interceptor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fc_rate_kind {
	FC_RATE_BUCKET = 0, FC_RATE_FIXED = 1, FC_RATE_SLIDING = 2, FC_RATE_LEAKY = 3, FC_RATE_WARM_UP = 4,
	FC_RATE_TOTAL = 5,
	FC_RATE_KIND_FORCE_INT_ = INT32_MAX
};

/* Steps: n tokens at once at each multiple of limit.per_ns on the clock. */
enum fc_rate_refill { FC_RATE_CONTINUOUS = 0, FC_RATE_STEPS = 1, FC_RATE_REFILL_FORCE_INT_ = INT32_MAX };

enum fc_rate_start { FC_RATE_FULL = 0, FC_RATE_EMPTY = 1, FC_RATE_START_FORCE_INT_ = INT32_MAX };

#define FC_RATE_NO_LEASE   UINT32_MAX
#define FC_RATE_TOKENS_MAX (1ull << 44) /* of burst, and what may come in max_wait_ns */

/* Zero means "default" in every field. */
struct fc_rate_conf {
	struct fc_rate limit;   /* n per per_ns; 1 per 366 days .. 10^9 per second; all but total: required.
	                         * fixed: n at most 2^47; sliding: 16777215 */
	uint32_t kind;          /* enum fc_rate_kind */
	uint32_t refill;        /* bucket: enum fc_rate_refill */
	uint64_t burst;         /* tokens that are kept, at most FC_RATE_TOKENS_MAX. Default: bucket: those of
	                         * a second, but at most n, steps: n; leaky: 1; warm_up: those of 10 ms */
	uint64_t initial;       /* bucket: tokens at first; default: as start says */
	uint64_t total;         /* total: how many in all; required */
	uint64_t max_wait_ns;   /* bucket, leaky: a call may sleep so long for its tokens; default 0: refuse */
	uint64_t warm_up_ns;    /* warm_up; default 10 s, at most 1 h */
	uint32_t cold_factor_permille; /* warm_up: rate / cold rate, 1001..100000; default 3000 */
	uint32_t start;         /* bucket: enum fc_rate_start */
	uint32_t lease;         /* bucket, warm_up: tokens of `burst` that each CPU keeps for itself, so that
	                         * most calls touch no shared line; part of burst, and taken from there
	                         * before anyone is refused. At most 256, and burst / 2 / CPUs. Default
	                         * burst / 4 / CPUs, if that is 8 or more;
	                         * FC_RATE_NO_LEASE: none */
	uint32_t resv;
	uint64_t made_[16];     /* the library's */
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_rate_conf, 208);
#endif

FC_API extern const struct fc_interceptor fc_interceptor_rate;

/* What fc_rate_reserve() took. */
struct fc_rate_hold {
	uint64_t delay_ns; /* the holder may go ahead after that time */
	uint32_t n;        /* 0: nothing is held */
	uint32_t at_;
};

/*
 * For code that is no guarded call: take n tokens of a rule (name NULL: "rate"). try: now or not at all.
 * reserve: with a delay of at most max_wait_ns and the rule's; other kinds than bucket and leaky never
 * delay. cancel: give all of it back, once; what was reserved later keeps its delay, and the tokens
 * serve whoever asks next.
 * 0; FC_REFUSED_RATE; -EINVAL (n is 0); -ENOENT: there is no such rule.
 */
FC_API FC_MUST_CHECK int fc_rate_try(struct fc_iface *iface, const char *rule, uint32_t n) FC_NOEXCEPT;
FC_API FC_MUST_CHECK int fc_rate_reserve(struct fc_iface *iface, const char *rule, uint32_t n, uint64_t max_wait_ns,
                                         struct fc_rate_hold *ret_hold) FC_NOEXCEPT;
FC_API int fc_rate_cancel(struct fc_iface *iface, const char *rule, struct fc_rate_hold *hold) FC_NOEXCEPT;

/* Tokens that a call could take now; negative: so many are reserved ahead. Writes nothing. */
FC_API int fc_rate_available(struct fc_iface *iface, const char *rule, int64_t *ret_tokens) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_RATE_H */
