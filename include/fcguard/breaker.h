/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/breaker.h - circuit breaker: stop calling what fails, try it again carefully.
 *
 *   closed     calls go through and their outcomes are counted over a window. ERROR, TIMEOUT and calls
 *              that were purged or written off (ABANDONED) have failed; IGNORED says nothing; of a killed
 *              process nothing is said. A call counts once, whatever its weight.
 *   open       all are refused for open_ns; each opening soon after the last one is longer by `backoff`
 *   half open  at most `probes` calls at once. One that fails opens again; `successes` of them, one after
 *              the other or at once, bring it back. A probe that does not come back has its place for
 *              lease_ns only; nothing else that is still running counts.
 *   ramp       a growing share of the calls, ramp_from at first, all after ramp_ns: the credit of a
 *              call is the share of its moment, and whole credits are let in, so exactly that share
 *
 *     struct fc_breaker_conf conf = { .error_permille = 500, .open_ns = FC_S(5) };
 *     struct fc_rule rule = { .interceptor = &fc_interceptor_breaker, .conf = &conf };
 *     fc_iface_set_chain(iface, &rule, 1);
 *
 * Threads.  Everything below from any thread at once; lock-free, no allocation.
 * Units.    Times in ns on the context's clock, kept to 2^20 ns (1.05 ms) and never early.
 * Bounds.   The window reaches back over all of window_ns, and at most 1/15 of it and 16 ms further. It opens with the
 *           failed call that meets the numbers while a CPU has seen up to 64 such in the slice of the
 *           window; else within 16 of them, or at the first call or tick after 10.5 ms.
 * Time.     A now that is late is taken as the newest one. A clock that is set back is believed when for
 *           1 s nothing else came, and 8 calls or ticks; then an open breaker tries again.
 * Reload.   All state stays. Another kind or length of window begins an empty one. What is open stays so for
 *           its time, or until half open at once if that is over 1 s more than a shorter conf allows.
 * Errors.   -EINVAL, -ENOENT (no such rule of the interface).
 * Memory.   1 KiB and 512 bytes a CPU (64 of them at most) of the segment, a rule.
 * Cost.     bench/RESULTS.md: breaker. Closed: one uncontended atomic addition a call; open: two loads.
 */
#ifndef FC_BREAKER_H
#define FC_BREAKER_H

#include <fcguard/base.h>
#include <fcguard/interceptor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fc_recover {
	FC_RECOVER_SUCCESSES = 0, /* after `successes` */
	FC_RECOVER_AT_ONCE = 1,   /* after the first */
	FC_RECOVER_RAMP = 2,      /* after `successes`, by a ramp */
	FC_RECOVER_FORCE_INT_ = INT32_MAX
};

#define FC_BREAKER_PROBES_MAX 64

/* Zero means "default" in every field. */
struct fc_breaker_conf {
	uint64_t window_ns;       /* 100 ms..10 min; default 10 s */
	uint32_t window_calls;    /* instead: over the last so many calls, 10..1000000 (up to 1/5 more) */
	uint32_t min_calls;       /* no ratio says anything of fewer; default 20, at most window_calls */
	uint32_t error_permille;  /* open when so many failed; 1..1000. Default 500 if it is the only reason */
	uint32_t errors;          /* or when so many failed, of however many; 0: not by it */
	uint32_t slow_permille;   /* or when so many took slow_ns or longer; 0: not by it */
	uint32_t recover;         /* enum fc_recover */
	uint64_t slow_ns;         /* required by slow_permille; a slow probe has failed */
	uint64_t open_ns;         /* 2 ms..1 h; default 5 s */
	uint64_t max_open_ns;     /* up to 1 h; default 60 s, or open_ns if longer */
	uint32_t backoff_permille; /* 1000..10000; default 2000: twice as long each time. What counts as
	                            * soon after: within the last open time after it closed */
	uint32_t probes;          /* at once; 1..FC_BREAKER_PROBES_MAX; default 3 */
	uint32_t successes;       /* 1..10000; default `probes` */
	uint32_t ramp_from_permille; /* 1..1000; default 100 */
	uint64_t ramp_ns;         /* 10 ms..1 h; default 30 s */
	uint64_t lease_ns;        /* of a probe; 10 ms..1 h; default 10 s, or 2 * slow_ns if longer */
	uint64_t made_[32];       /* the library's */
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_breaker_conf, 344);
#endif

FC_API extern const struct fc_interceptor fc_interceptor_breaker;

enum fc_breaker_force {
	FC_BREAKER_AUTO = 0,         /* as outcomes say; from a forced state: closed, with an empty window */
	FC_BREAKER_FORCE_OPEN = 1,
	FC_BREAKER_FORCE_CLOSED = 2, /* nothing is counted */
	FC_BREAKER_FORCE_FORCE_INT_ = INT32_MAX
};

enum fc_breaker_state {
	FC_BREAKER_CLOSED = 0, FC_BREAKER_OPEN = 1, FC_BREAKER_HALF_OPEN = 2, FC_BREAKER_RAMP = 3,
	FC_BREAKER_FORCED_OPEN = 4, FC_BREAKER_FORCED_CLOSED = 5,
	FC_BREAKER_STATE_FORCE_INT_ = INT32_MAX
};

struct fc_breaker_status {
	uint32_t size;
	uint32_t state;          /* enum fc_breaker_state; open, but time is up: half open */
	uint32_t generation;     /* grows with each transition; wraps at 65536 */
	uint32_t probes;         /* that are out */
	uint64_t calls, failed, slow; /* in the window */
	uint64_t left_ns;        /* open: until half open; ramp: until closed */
	uint64_t opened;         /* how often it has opened by itself */
	uint32_t share_permille; /* what is let in: 1000, 0, of the ramp, 0 in half open */
	uint32_t resv;
};
FC_OPTS_ASSERT(struct fc_breaker_status, 64);

/* By hand: rule NULL is "breaker"; how: enum fc_breaker_force. 0, -EINVAL, -ENOENT. */
FC_API int fc_breaker_force(struct fc_iface *iface, const char *rule, int how) FC_NOEXCEPT;

/* ret->size must be set. Writes nothing else. 0, -EINVAL, -ENOENT. */
FC_API int fc_breaker_state(struct fc_iface *iface, const char *rule, struct fc_breaker_status *ret) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_BREAKER_H */
