/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/adaptive.h - a limit that finds its place by itself, under the cap as its ceiling.
 *
 * Every call's latency and outcome are counted; once a window the limit may move. It moves by experiments
 * while callers are being refused: a step that did not pay is undone. See adaptive.c.
 *
 *     FC_OPTS(fc_iface_opts, opts, .cap = 256);
 *     fc_iface_set(fc, "search", &opts, &iface);
 *     struct fc_adaptive_conf conf = { .initial = 20 };
 *     struct fc_rule rule = { .interceptor = &fc_interceptor_adaptive, .conf = &conf };
 *     fc_iface_set_chain(iface, &rule, 1);
 *
 * It takes the place of the cap's expansion, whatever `expand` says. When the rule goes, the limit is the
 * cap again. With FC_RULE_DRY_RUN it measures, and leaves the limit alone.
 *
 * Threads.  fc_adaptive_state() from any thread at once; lock-free.
 * Units.    Limits in places; latencies and times in ns.
 * Bounds.   min <= limit <= max <= cap, and never 0 unless the cap is. Of a cap or floor that changes, from
 *           the next tick on.
 * Time.     A clock that jumps costs the running window; the limit stays.
 * Reload.   The limit and what is known of latency stay.
 * Memory.   512 bytes and 128 a CPU of the segment, a rule.
 * Cost.     one clock reading more at each end of a call (latency to the us), some plain stores.
 */
#ifndef FC_ADAPTIVE_H
#define FC_ADAPTIVE_H

#include <fcguard/base.h>
#include <fcguard/interceptor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero means "default" in every field. */
struct fc_adaptive_conf {
	uint32_t min;              /* 1..65536; default 4, or max if that is less */
	uint32_t max;              /* 1..65536; default the cap, which is the ceiling in any case */
	uint32_t initial;          /* min..max; default 20, within min and max */
	uint32_t tolerance_permille; /* 1050..5000: latency that is suspect, in thousandths of that without
	                            * queueing; default 1800. More of it: more throughput, more queueing */
	uint64_t slack_ns;         /* up to 10 s: queueing that does not matter; default 20 us */
	uint64_t window_ns;        /* 50 ms..10 s; default 250 ms; longer of slow calls (4 mean latencies) */
	uint32_t min_calls;        /* 5..100000: fewer in a window say nothing; default 20 */
	uint32_t timeout_permille; /* 1..1000: time-outs among the calls that lower the limit; default 50 */
	uint32_t timeout_weight_permille; /* 100..10000: by how much of their share; default 1000 */
	uint32_t cpus_;            /* the library's */
	uint32_t dry_run_, resv_;
};
FC_OPTS_ASSERT(struct fc_adaptive_conf, 56);

FC_API extern const struct fc_interceptor fc_interceptor_adaptive;

struct fc_adaptive_status {
	uint32_t size;
	uint32_t limit;          /* that it wants; in an experiment: the one that is tried */
	uint32_t base;           /* outside of it: the one that is kept */
	uint32_t measured;       /* windows that said something; wraps */
	uint32_t kept, undone;   /* experiments; wrap */
	uint64_t latency_ns;     /* typical (geometric mean), of the last window */
	uint64_t unloaded_ns;    /* the same as known without queueing */
	uint64_t per_1000s;      /* places that completed well, in 1000 s */
};
FC_OPTS_ASSERT(struct fc_adaptive_status, 48);

/* ret->size must be set; rule NULL: "adaptive". 0, -EINVAL, -ENOENT. */
FC_API int fc_adaptive_state(struct fc_iface *iface, const char *rule, struct fc_adaptive_status *ret) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_ADAPTIVE_H */
