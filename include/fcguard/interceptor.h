/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/interceptor.h - write your own stage of the chain. interceptors/ uses only this.
 *
 * A call passes the chain of its interface like this; times are arguments, nobody reads a clock:
 *
 *   1. check   of every interceptor, in order: look, write nothing, refuse if it must. A refusal
 *              here is the cheapest.
 *   2. place   the core takes a place in the in-flight queue (the cap), and the call's record.
 *   3. pre     of every interceptor, in order: take something (a token, a probe). What it took it
 *              notes in its cells, which lie in the record, so that whoever ends the call knows.
 *              If the k-th refuses, undo of k-1 .. 1 run and the place is given back: nothing
 *              remains.
 *   4. the call runs
 *   5. post    of every interceptor, in reverse order, exactly once, by whoever ends the call:
 *              its exit, or the library when it purges or writes the call off
 *              (outcome FC_OUTCOME_ABANDONED). Works on a copy of the cells.
 *
 *   reap       instead of post, when the process of the call was killed: in another process, with
 *              the cells it left. Give back what they say was taken. NULL: post is called.
 *   full       by one refused caller at a time, at most each check_every, when the limit is reached:
 *              return 1 if room was made and the caller should try again.
 *   tick       by housekeeping: slow work. Returns when it wants to run again.
 *
 * Threads.  check, pre, undo, post and reap run on any number of threads at once for one interface
 *           and must be lock-free, must not allocate, block or log. full and tick never run twice
 *           at once for one interface.
 * State.    state_bytes of zeroed memory per interface, in the segment: no pointers in it, and it
 *           may be shared by processes. It survives a new chain as long as the interceptor stays.
 * Memory.   conf is copied at fc_iface_set_chain(); the copy lives until the last call that began
 *           under it has left.
 */
#ifndef FC_INTERCEPTOR_H
#define FC_INTERCEPTOR_H

#include <fcguard/base.h>
#include <fcguard/entry.h>
#include <fcguard/err.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fc_iface;

#define FC_CHAIN_MAX  12 /* interceptors on one interface */
#define FC_CELLS_MAX  6  /* uint32_t cells of one call, over all its interceptors */

/* What an interceptor is given. Use cells through fc_cell_get() and fc_cell_set() alone: others may
 * read them while the call runs. `cells` is NULL in check, full and tick. */
struct fc_call {
	struct fc_iface *iface;
	const struct fc_ctx *ctx;  /* never NULL; full size; NULL in post, undo, reap and tick */
	void *state;               /* of this interceptor on this interface */
	const void *conf;          /* the rule's numbers */
	uint32_t *cells;           /* of this call and interceptor */
	uint64_t now_ns;
	uint64_t start_ns;         /* post: when it entered */
	uint64_t latency_ns;       /* post: now - start; 0 when not measured */
	uint32_t weight;
	int32_t outcome;           /* post: enum fc_outcome */
	/* Set by an interceptor that refuses, for the decision. */
	uint64_t observed, limit, retry_after_ns;
};

static inline uint32_t fc_cell_get(const struct fc_call *c, uint32_t i)
{
	return __atomic_load_n(&c->cells[i], __ATOMIC_RELAXED);
}

static inline void fc_cell_set(const struct fc_call *c, uint32_t i, uint32_t v)
{
	__atomic_store_n(&c->cells[i], v, __ATOMIC_RELAXED);
}

struct fc_interceptor {
	uint32_t size;        /* sizeof(struct fc_interceptor) */
	uint32_t order;       /* place in the default order; see FC_ORDER_* */
	const char *name;     /* static; shown as the refusing rule */
	uint32_t state_bytes; /* 0..4096 */
	uint32_t conf_bytes;  /* 0..65536; size of the conf that fc_iface_set_chain() copies */
	uint32_t cells;       /* 0..2 */
	int32_t reason;       /* counted under this; a status > 0 returned by check or pre wins */
	/* Validate conf, and prepare state (first is 1 when the state is new). 0 or negative errno. */
	int (*setup)(struct fc_iface *iface, void *state, const void *conf, int first);
	int (*check)(struct fc_call *c);  /* 0, or > 0 the reason */
	int (*pre)(struct fc_call *c);    /* 0, or > 0 the reason; < 0 a fault: on_fault */
	void (*undo)(struct fc_call *c);
	void (*post)(struct fc_call *c);
	void (*reap)(struct fc_call *c);
	int (*full)(struct fc_call *c);
	uint64_t (*tick)(struct fc_call *c);
};

/* Default order (SPEC section 6). A rule may place itself elsewhere. */
enum fc_order {
	FC_ORDER_ACCESS = 100, FC_ORDER_DEGRADE = 200, FC_ORDER_BREAKER = 300,
	FC_ORDER_PRIORITY = 400, FC_ORDER_ISOLATE = 500, FC_ORDER_CAP = 600,
	FC_ORDER_RATE = 700, FC_ORDER_KEYED = 800, FC_ORDER_QUOTA = 900, FC_ORDER_USER = 1000,
	FC_ORDER_FORCE_INT_ = INT32_MAX
};

enum fc_rule_flags {
	FC_RULE_DRY_RUN = 1u << 0, /* count as would_refuse, and go on as if it had not refused */
	FC_RULE_FLAGS_FORCE_INT_ = INT32_MAX
};

struct fc_rule {
	const struct fc_interceptor *interceptor;
	const void *conf;
	uint32_t order; /* 0: the interceptor's */
	uint32_t flags; /* FC_RULE_* */
};

/*
 * Give an interface these interceptors instead of those it has, all or nothing (the cap's own part
 * stays; it comes from fc_iface_set). Calls inside finish under the chain they began with. The
 * structs behind `interceptor` must live as long as the context. Never blocks calls.
 * Returns 0; -EINVAL (with a log line: which rule, what is wrong); -E2BIG (more than FC_CHAIN_MAX,
 * or more than FC_CELLS_MAX cells); -ENOMEM; -ENOSPC (segment full); what setup() returned.
 */
FC_API int fc_iface_set_chain(struct fc_iface *iface, const struct fc_rule *rules, uint32_t n) FC_NOEXCEPT;

/*
 * For interceptors that steer the limit (the cap does): the limit in force, and a new one.
 * fc_limit_set() never blocks; a lower limit lets nobody in until the count is under it. It is
 * bounded to 4 * cap; -ENOSPC when there is no memory for the places. Only from full and tick.
 */
FC_API uint32_t fc_limit_get(const struct fc_iface *iface) FC_NOEXCEPT;
FC_API int fc_limit_set(struct fc_iface *iface, uint32_t limit) FC_NOEXCEPT;

/* Calls that have left with an outcome, since the beginning. O(CPUs + places). */
FC_API uint64_t fc_completed(const struct fc_iface *iface) FC_NOEXCEPT;

/* Places taken now, and of them by calls that were overdue at the last look. O(places). */
FC_API uint32_t fc_inside(const struct fc_iface *iface, uint32_t *ret_overdue) FC_NOEXCEPT;

/* Leave a note for the log and the event callback (events.h). From anywhere; never blocks. */
FC_API void fc_event_note(struct fc_iface *iface, int kind, uint64_t a, uint64_t b) FC_NOEXCEPT;

/* The judged health: 0 is good; else bits of health.h. One load. */
FC_API uint32_t fc_health_word(const struct fc_iface *iface) FC_NOEXCEPT;

/* The cap itself: limit policy, expansion on evidence, undo. conf: struct fc_cap_conf. */
struct fc_cap_conf {
	uint32_t cap;
	uint32_t expand;      /* 1..4 */
	uint32_t expand_keep; /* enum fc_expand_keep */
	uint32_t resv;
};
FC_API extern const struct fc_interceptor fc_interceptor_cap;

#ifdef __cplusplus
}
#endif
#endif /* FC_INTERCEPTOR_H */
