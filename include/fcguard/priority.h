/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/priority.h - under overload refuse by priority, and the same users first everywhere.
 *
 * A call has a level: its priority (fc_ctx.priority, 0 the most important, 8 of them), and within it one
 * of 128 parts by its user's hash. Calls over the threshold are refused. When calls queue before the
 * guard for too long (fc_ctx.arrival_ns), or health is bad, the threshold goes down so far that 5 % of
 * what is let in now is refused; else up so far that 1 % of what comes is let in again. A user's part is
 * the same on every machine and in every service, so a request that was let in at the front is not
 * refused half way down the chain, after others have worked for it; and who is refused is not refused
 * by the luck of each try.
 *
 * Interfaces of one group share a threshold; by default all of a context do.
 *
 *     struct fc_priority_conf conf = { .queue_ns = FC_MS(20) };
 *     struct fc_rule rule = { .interceptor = &fc_interceptor_priority, .conf = &conf };
 *     fc_iface_set_chain(iface, &rule, 1);
 *     ...
 *     struct fc_label user = fc_label("user", r->user);
 *     FC_OPTS(fc_ctx, ctx, .priority = r->is_batch ? 7 : 0, .arrival_ns = r->arrived, .n_labels = 1, .labels = &user);
 *     FC_GUARD(e, iface, &ctx) { serve(r); } else { busy(r, &e); }
 *
 * Threads.  Functions from any thread. Units: ns. Errors: 0 or a negative errno.
 * Memory.   8 KiB a group and CPU.
 * Cost.     A few loads and plain stores to the CPU's own lines; one call a window works for some us.
 */
#ifndef FC_PRIORITY_H
#define FC_PRIORITY_H

#include <fcguard/base.h>
#include <fcguard/interceptor.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FC_PRIORITY_LEVELS   1024 /* 8 priorities of 128 parts */
#define FC_PRIORITY_NAME_MAX 38

struct fc_priority_conf {
	const char *group;   /* default "default" */
	const char *label;   /* whose value is the user; default "user". A call without it: part by nothing */
	uint64_t queue_ns;   /* mean queueing of a window that is overload; default 20 ms */
	uint64_t window_ns;  /* 10 ms..60 s; default 1 s */
	uint32_t window_calls; /* a window ends early after so many calls; default 2000, at least 100 */
	uint32_t down_permille;   /* of what is let in, refused after an overloaded window; 1..500; default 50 */
	uint32_t up_permille;     /* of what comes, let in after another one; 1..500; default 10 */
	uint32_t no_health;       /* 1: health says nothing; default 0: bad health is overload */
	void *group_;
	uint64_t label_;
	uint32_t cpus_, resv_;
};

FC_API extern const struct fc_interceptor fc_interceptor_priority;

/* The highest level that is let in now: FC_PRIORITY_LEVELS - 1 is all; also to be told to callers of this
 * service, which need not send what would be refused. -ENOENT: no such group (NULL: the default one). */
FC_API int fc_priority_threshold(struct fc *fc, const char *group) FC_NOEXCEPT;

/* The level of a call. user: fc_label(...).value; epoch as given to fc_priority_rotate(). */
FC_API uint32_t fc_priority_level(uint32_t priority, uint64_t user, uint32_t epoch) FC_NOEXCEPT;

/* Deal the users to other parts: give all machines the same number at about the same time (the hour, for
 * example), or the same users are always the first. Starts at 0. 0; -ENOENT. */
FC_API int fc_priority_rotate(struct fc *fc, const char *group, uint32_t epoch) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_PRIORITY_H */
