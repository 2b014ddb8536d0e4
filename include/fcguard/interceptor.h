/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/interceptor.h - write your own stage of the chain. interceptors/ uses only this;
 * docs/interceptors.md shows one.
 *
 * A call passes the chain of its interface like this; times are arguments, nobody reads a clock:
 *
 *   1. check   of every interceptor, in order: look, write nothing, refuse if it must. A refusal
 *              here is the cheapest.
 *   2. place   the core takes a place in the in-flight queue (the cap), and the call's record.
 *   3. pre     of every interceptor, in order: take something (a token, a probe). What it took it
 *              notes in its cells, which are 0 at first and lie in the record, so that whoever ends
 *              the call knows.
 *              If the k-th refuses, undo of k-1 .. 1 run and the place is given back: nothing
 *              remains.
 *   4. the call runs
 *   5. post    of every interceptor, in reverse order, exactly once, by whoever ends the call:
 *              its exit, or the library when it purges or writes the call off
 *              (outcome FC_OUTCOME_ABANDONED). Works on a copy of the cells.
 *
 *   reap       instead of post, when the call has no end here: its process was killed, or it is the
 *              parent's of a fork. Give back what the cells say was taken; some may still be 0. NULL: post is
 *              called, with FC_OUTCOME_IGNORED.
 *   full       by one refused caller at a time, at most each check_every, when the limit is reached:
 *              return 1 if room was made and the caller should try again.
 *   tick       by housekeeping: slow work. Returns when it wants to run again.
 *
 * Threads.  check, pre, undo, post and reap run on any number of threads at once for one interface
 *           and must be lock-free, must not allocate, block or log. full and tick never run twice
 *           at once for one interface.
 * State.    zeroed memory per rule of an interface, in the segment: no pointers in it, and it may be
 *           shared by processes. It survives a new chain as long as a rule of that interceptor and
 *           name stays, and comes back when such a rule does.
 * Memory.   conf is copied at fc_iface_set_chain(); the copy lives until the last call that began
 *           under it has left. What setup() adds to the copy, drop() frees.
 */
#ifndef FC_INTERCEPTOR_H
#define FC_INTERCEPTOR_H

#include <fcguard/base.h>
#include <fcguard/entry.h>
#include <fcguard/err.h>
#include <fcguard/field.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fc;
struct fc_iface;

#define FC_CHAIN_MAX  12 /* interceptors on one interface */
#define FC_CELLS_MAX  14 /* uint32_t cells of one call, over all its interceptors */

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
	uint64_t latency_ns;       /* post: now - start, as fine as the chain's clock: resolution_ns */
	uint32_t weight;
	int32_t outcome;           /* post: enum fc_outcome */
	uint32_t cpu;              /* of the caller, as far as known: to spread cells over lines */
	/* Set by an interceptor that refuses, for the decision. */
	uint64_t observed, limit, retry_after_ns;
	/* pre may set delay_ns, up to max_delay_ns (0: the caller cannot sleep; else what is left to its
	 * deadline): the call does not run before now_ns + delay_ns. Its caller sleeps, in its place. */
	uint64_t delay_ns, max_delay_ns;
};

static inline uint32_t fc_cell_get(const struct fc_call *c, uint32_t i)
{
	return __atomic_load_n(&c->cells[i], __ATOMIC_RELAXED);
}

static inline void fc_cell_set(const struct fc_call *c, uint32_t i, uint32_t v)
{
	__atomic_store_n(&c->cells[i], v, __ATOMIC_RELAXED);
}

/* What setup() is given. */
struct fc_setup {
	struct fc_iface *iface;
	const char *rule;     /* its name */
	void *conf;           /* the copy that calls will see; setup may complete it */
	void *state;
	uint64_t state_bytes; /* at least what was asked for */
	const void *was;      /* the state so far, when the rule now needs a larger one: carry over. Calls
	                       * that began under it still use it. NULL: there is none */
	uint64_t was_bytes;
	uint64_t now_ns;
	uint32_t first;       /* 1: state is zeroed */
	uint32_t cpus;        /* fc_call.cpu is under it */
	uint32_t flags;       /* of the rule: FC_RULE_* */
	uint32_t resv;
};

struct fc_interceptor {
	uint32_t size;        /* sizeof(struct fc_interceptor) */
	uint32_t order;       /* place in the default order; see FC_ORDER_* */
	const char *name;     /* static; the name of rules that have none of their own */
	uint32_t state_bytes; /* 0..4096; more: state_size */
	uint32_t conf_bytes;  /* 0..65536; size of the conf that fc_iface_set_chain() copies */
	uint32_t cells;       /* 0..2 */
	int32_t reason;       /* what it refuses with as a rule (err.h): for lists; check and pre say it themselves */
	/* Bytes of state that this conf needs, instead of state_bytes; 0..FC_STATE_MAX. conf is valid as
	 * far as setup() would say: check it here, return UINT64_MAX when it is not. */
	uint64_t (*state_size)(const void *conf, uint32_t cpus);
	/* Resolution of time that this conf needs, in ns; the chain reads the cheapest clock that has it.
	 * NULL or 0: any will do. */
	uint64_t (*resolution_ns)(const void *conf);
	/* Validate conf, and prepare state. 0, or negative errno with a line in the log: then nothing has
	 * changed and drop() is not called. */
	int (*setup)(struct fc_setup *s);
	/* The conf's copy ends: free what setup() added to it. */
	void (*drop)(struct fc_iface *iface, void *conf);
	int (*check)(struct fc_call *c);  /* 0, or > 0 the reason */
	int (*pre)(struct fc_call *c);    /* 0, or > 0 the reason; < 0 a fault: on_fault */
	void (*undo)(struct fc_call *c);
	void (*post)(struct fc_call *c);
	void (*reap)(struct fc_call *c);
	int (*full)(struct fc_call *c);
	uint64_t (*tick)(struct fc_call *c);
	/* In the child of a fork, alone: what another thread of the parent was in the middle of is over. */
	void (*forked)(void *state);
	/* What a rules file may say of conf: field.h. NULL: the API alone configures it. */
	const struct fc_field *fields;
	uint32_t n_fields;
	uint32_t flags;       /* FC_INTERCEPTOR_* */
};

/* It steers the limit, instead of the cap, whose own full and tick rest as long as a chain has such a rule
 * (without FC_RULE_DRY_RUN); one a chain. When it goes, the next tick makes the cap the limit again. */
#define FC_INTERCEPTOR_STEERS (1u << 0)

#define FC_STATE_MAX   (1ull << 30)
#define FC_STATE_ALIGN 128 /* of states and shared memory: two lines, as CPUs fetch them */

/* Default order. A rule may place itself elsewhere. */
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
	uint32_t order;   /* 0: the interceptor's */
	uint32_t flags;   /* FC_RULE_* */
	const char *name; /* shown in decisions, and whose state it is; NULL: the interceptor's. At most
	                   * FC_RULE_NAME_MAX bytes; two rules of an interface must differ in it */
};
#define FC_RULE_NAME_MAX 47

/*
 * Give an interface these interceptors instead of those it has, all or nothing (the cap's own part
 * stays; it comes from fc_iface_set). Calls inside finish under the chain they began with. The
 * structs behind `interceptor` must live as long as the context. Never blocks calls.
 * Returns 0; -EINVAL (with a log line: which rule, what is wrong); -EEXIST (two rules of one name, or two
 * that steer the limit);
 * -E2BIG (more than FC_CHAIN_MAX, or more than FC_CELLS_MAX cells); -ENOMEM; -ENOSPC (segment full,
 * or more than 32 names of rules in the life of the interface); -EAGAIN (50000 replaced chains have calls
 * inside still); what setup() returned.
 */
FC_API int fc_iface_set_chain(struct fc_iface *iface, const struct fc_rule *rules, uint32_t n) FC_NOEXCEPT;

/*
 * Run fn on the state and conf of a rule, as tick would be given them (name NULL: the interceptor's):
 * for switches and queries. The rule cannot go away meanwhile. Any thread, also at once: fn must be
 * lock-free as pre is. What fn returned; -ENOENT: there is no such rule.
 */
FC_API int fc_iface_with(struct fc_iface *iface, const struct fc_interceptor *ic, const char *name,
                         int (*fn)(struct fc_call *c, void *arg), void *arg) FC_NOEXCEPT;

/* For setup(): memory of this process by the context's allocator, zeroed, and back (drop). */
FC_API void *fc_iface_alloc(struct fc_iface *iface, uint64_t bytes) FC_NOEXCEPT;
FC_API void fc_iface_free(struct fc_iface *iface, void *p, uint64_t bytes) FC_NOEXCEPT;

/*
 * Memory of the segment that all who ask for the same name share, for ever: zeroed at first
 * (*ret_first 1), aligned to FC_STATE_ALIGN, at most FC_STATE_MAX bytes; at most 1024 names of up to
 * FC_RULE_NAME_MAX bytes in a context. NULL: the segment is full, the name is there with fewer bytes,
 * or an argument is bad. fc_shared() takes the context's set-up lock: not from setup(), which holds it
 * and uses fc_iface_shared().
 */
FC_API void *fc_shared(struct fc *fc, const char *name, uint64_t bytes, int *ret_first) FC_NOEXCEPT;
FC_API void *fc_shared_find(struct fc *fc, const char *name) FC_NOEXCEPT; /* NULL: it is not there */
FC_API void *fc_iface_shared(struct fc_iface *iface, const char *name, uint64_t bytes, int *ret_first) FC_NOEXCEPT;

/* A line to the context's log, of at most 255 bytes, as the library writes its own: fc_iface_log() from
 * setup, full and tick, "<interface>: <rule>: text". Not on enter or exit. level: enum fc_log_level. */
FC_API void fc_log(struct fc *fc, int level, const char *format, ...) FC_NOEXCEPT FC_PRINTF_(3, 4);
FC_API void fc_iface_log(struct fc_iface *iface, const char *rule, const char *format, ...) FC_NOEXCEPT FC_PRINTF_(3, 4);

/* Interceptors by name, for rules files: those of the library are there. A name is given once in a
 * process. 0, -EINVAL, -EEXIST, -ENOSPC (more than 64). Not on enter or exit. */
FC_API int fc_interceptor_register(const struct fc_interceptor *ic) FC_NOEXCEPT;
FC_API const struct fc_interceptor *fc_interceptor_find(const char *name) FC_NOEXCEPT;

/*
 * For interceptors that steer the limit (the cap does; others say so: FC_INTERCEPTOR_STEERS): the limit in
 * force, and a new one.
 * fc_limit_set() never blocks; a lower limit lets nobody in until the count is under it. It is
 * bounded to 4 * cap; -ENOSPC when there is no memory for the places; -EAGAIN when a cap or limit has been
 * set meanwhile: decide anew. Only from full and tick.
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
