/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/iface.h - interfaces: what is protected, by name, and with which numbers.
 *
 * Names.    1 to 127 bytes of UTF-8 without control characters. Permanent: an interface lives as
 *           long as its context, and there are at most max_ifaces of them, so a name must never be
 *           made from user input (put that into labels).
 * Handles.  Permanent too; look up once, keep. A look-up that fails gives a pass-through handle,
 *           never NULL: it follows on_fault, and is counted.
 * Threads.  Every call here may run beside every other call, on any threads. Setting is serialised
 *           inside (a mutex); enter and exit never wait for it.
 * Units.    cap, limit: calls inside (places; a call of weight w takes w). Times: ns.
 * Errors.   0 or a negative errno; nothing sets errno. A failed call changes nothing, and is
 *           logged with what was found and what is allowed.
 */
#ifndef FC_IFACE_H
#define FC_IFACE_H

#include <fcguard/base.h>
#include <fcguard/context.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fc;
struct fc_iface;

#define FC_NAME_MAX      127
#define FC_CAP_MAX       65536u          /* a limit goes up to 4 times this */
#define FC_WEIGHT_MAX    1024u
#define FC_WAITERS_MAX   256u

/* For fields where 0 means "default". */
#define FC_CAP_REFUSE_ALL (UINT32_MAX - 1) /* cap: let nobody in */
#define FC_WRITEOFF_NONE  (UINT32_MAX - 1) /* writeoff: never write a running call off */

enum fc_expand_keep {
	FC_EXPAND_KEEP_DEFAULT = 0,
	FC_EXPAND_KEEP_EVIDENCE = 1, /* default: a step stays only if completions/s rose */
	FC_EXPAND_KEEP_HEALTH = 2,   /* good health alone keeps it */
	FC_EXPAND_KEEP_FORCE_INT_ = INT32_MAX
};

enum fc_latency_mode {
	FC_LATENCY_DEFAULT = 0,
	FC_LATENCY_SAMPLED = 1, /* default: every call while there are under about 1000/s, then about
	                         * 1000 a second, chosen without regard to the caller */
	FC_LATENCY_EXACT = 2,   /* every call, with an exact clock */
	FC_LATENCY_OFF = 3,
	FC_LATENCY_FORCE_INT_ = INT32_MAX
};

enum fc_wait_order {
	FC_WAIT_DEFAULT = 0,
	FC_WAIT_LIFO = 1, /* default: newest first, so that under overload some callers are served in
	                   * time instead of all of them too late */
	FC_WAIT_FIFO = 2,
	FC_WAIT_FORCE_INT_ = INT32_MAX
};

enum fc_iface_flags {
	FC_IFACE_DRY_RUN = 1u << 0,  /* count what would be refused, refuse nothing */
	FC_IFACE_OFF = 1u << 1,      /* let everything through unguarded */
	FC_IFACE_OUTBOUND = 1u << 2, /* a call to a dependency: system-wide rules leave it alone */
	FC_IFACE_FLAGS_FORCE_INT_ = INT32_MAX
};

/* Zero means "default" in every field. Defaults of an interface that nobody configured: no cap. */
struct fc_iface_opts {
	uint32_t size;              /* sizeof(struct fc_iface_opts) as the caller compiled it */
	uint32_t flags;             /* FC_IFACE_*; default 0 */
	uint32_t cap;               /* 1..FC_CAP_MAX, FC_CAP_REFUSE_ALL; default: the context's
	                             * default_cap, else none: observed, never refused */
	uint32_t max_cap;           /* what the cap may be raised to without losing speed; default cap */
	uint32_t expand;            /* the limit may grow to expand * cap: 1..4; default 4 */
	uint32_t expand_keep;       /* enum fc_expand_keep; default FC_EXPAND_KEEP_EVIDENCE */
	uint32_t writeoff;          /* running calls that may be written off: 1..cap, FC_UNLIMITED,
	                             * FC_WRITEOFF_NONE; default cap / 10 */
	uint32_t wait_max;          /* callers that may wait for a place; default 0: none waits */
	uint32_t wait_order;        /* enum fc_wait_order; default FC_WAIT_LIFO */
	uint32_t max_weight;        /* 1..FC_WEIGHT_MAX; default FC_WEIGHT_MAX */
	uint32_t latency;           /* enum fc_latency_mode; default FC_LATENCY_SAMPLED */
	uint32_t on_fault;          /* enum fc_on_fault; default the context's */
	uint32_t importance;        /* class for system-wide rules, 0 (most important) to 7; default 0 */
	uint32_t resv;              /* zero */
	uint64_t stuck_after_ns;    /* a call is reported after; default the context's (5 s) */
	uint64_t writeoff_after_ns; /* and may be written off after; default 4 * stuck_after_ns */
	uint64_t wait_timeout_ns;   /* at most this long; default 100 ms when wait_max is set */
	uint64_t check_every_ns;    /* between looks at the oldest call by refused callers;
	                             * default 10 ms */
};
FC_OPTS_ASSERT(struct fc_iface_opts, 88);

/*
 * Look an interface up, or create it (observed, or with the default cap) when it is new. Never
 * NULL: see Handles above. name is copied. Cost: some 50 ns when known; a set-up when new.
 */
FC_API struct fc_iface *fc_iface_get(struct fc *fc, const char *name) FC_NOEXCEPT;

/* The same without creating: NULL when unknown. */
FC_API struct fc_iface *fc_iface_find(struct fc *fc, const char *name) FC_NOEXCEPT;

/*
 * Create an interface with these numbers, or give a known one new numbers (calls inside go on).
 * *ret_iface (may be NULL) is written on success only.
 * Returns 0; -EINVAL; -E2BIG; -ENAMETOOLONG; -EILSEQ (the name is not UTF-8); -ENOSPC (max_ifaces
 * reached, or the segment is full); -ENOMEM.
 */
FC_API int fc_iface_set(struct fc *fc, const char *name, const struct fc_iface_opts *opts,
                        struct fc_iface **ret_iface) FC_NOEXCEPT;

/* The numbers in force, defaults filled in. ret->size must be set. 0, -EINVAL, -E2BIG. */
FC_API int fc_iface_get_opts(const struct fc_iface *iface, struct fc_iface_opts *ret) FC_NOEXCEPT;

/*
 * Change one number at run time. cap: 0 refuses all; FC_UNLIMITED takes the cap away. Lowering
 * never blocks and never kills: no new call is admitted until the count is under the new limit.
 * 0, -EINVAL (over FC_CAP_MAX, or a pass-through handle), -ENOSPC (no memory for the places).
 */
FC_API int fc_iface_set_cap(struct fc_iface *iface, uint32_t cap) FC_NOEXCEPT;
FC_API int fc_iface_set_dry_run(struct fc_iface *iface, int on) FC_NOEXCEPT;
FC_API int fc_iface_set_off(struct fc_iface *iface, int on) FC_NOEXCEPT;

FC_API const char *fc_iface_name(const struct fc_iface *iface) FC_NOEXCEPT;
FC_API struct fc *fc_iface_context(const struct fc_iface *iface) FC_NOEXCEPT;

/* The i-th interface of a context, in order of creation; NULL past the last. */
FC_API struct fc_iface *fc_iface_at(struct fc *fc, uint32_t i) FC_NOEXCEPT;

/* fc_drain() for one interface. */
FC_API int fc_iface_drain(struct fc_iface *iface, uint64_t timeout_ns) FC_NOEXCEPT;
FC_API void fc_iface_undrain(struct fc_iface *iface) FC_NOEXCEPT;

/*
 * For users' tests: let the next `count` calls (FC_UNLIMITED: all) of an interface end with
 * `status`: > 0 refused with that reason, < 0 a fault (which follows on_fault). count 0 stops it.
 */
FC_API int fc_iface_inject(struct fc_iface *iface, int status, uint32_t count) FC_NOEXCEPT;

/*
 * Event loops and coroutines wait by callback. fc_enter_async() returns 0 (admitted at once),
 * > 0 (refused), < 0, or FC_PENDING: then exactly one of two things happens within
 * wait_timeout_ns: fn(arg, e, 0) with the entry admitted, or fn(arg, e, FC_REFUSED_WAIT). The entry
 * must stay where it is until then. fn runs in fc_async_poll(), which the loop calls when
 * fc_tick_fd() is readable, at the latest each wait_timeout_ns. fc_enter_cancel() returns 1 when
 * it took the wait back (fn will not run), 0 when it was over already.
 */
#define FC_PENDING (-115) /* -EINPROGRESS */
struct fc_entry;
struct fc_ctx;
typedef void (*fc_grant_fn)(void *arg, struct fc_entry *e, int verdict);
FC_API int fc_enter_async(struct fc_entry *e, struct fc_iface *iface, const struct fc_ctx *ctx,
                          fc_grant_fn fn, void *arg) FC_NOEXCEPT;
FC_API int fc_enter_cancel(struct fc_entry *e) FC_NOEXCEPT;
FC_API int fc_async_poll(struct fc *fc) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_IFACE_H */
