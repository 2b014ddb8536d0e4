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
 * Memory.   An interface takes its block from the segment (fc_iface_bytes in stats.h: about 16 KiB
 *           of address space with a cap of 64) and a handle from the context's allocator, when it is
 *           made or its cap is raised above max_cap. Nothing is given back before fc_destroy().
 * Cost.     Set-up: microseconds, more where places must be made. Nothing here is for a hot path but
 *           fc_iface_get(), fc_enter_async() and fc_enter_cancel(). Blocking: fc_iface_drain() alone.
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
	FC_LATENCY_OFF = 3,     /* none: the histogram stays empty, so refused callers are told 10 ms, an
	                         * expansion is judged by 1 s (of calls slower than 0.5 s that may undo good
	                         * steps), and the process's bound of latency does not see these calls */
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
	FC_IFACE_DRY_RUN = 1u << 0,  /* count what would be refused (cap, rules, system, deadline), refuse
	                              * nothing; a call heavier than the places left passes untracked */
	FC_IFACE_OFF = 1u << 1,      /* let everything through unguarded */
	FC_IFACE_OUTBOUND = 1u << 2, /* a call to a dependency: system-wide rules leave it alone */
	FC_IFACE_FLAGS_FORCE_INT_ = INT32_MAX
};

/* Zero means "default" in every field. Defaults of an interface that nobody configured: no cap. */
struct fc_iface_opts {
	uint32_t size;              /* sizeof(struct fc_iface_opts) as the caller compiled it */
	uint32_t flags;             /* FC_IFACE_*; default 0 */
	uint32_t cap;               /* 1..FC_CAP_MAX, FC_UNLIMITED (observed, never refused) or
	                             * FC_CAP_REFUSE_ALL; default the context's default_cap, else
	                             * FC_UNLIMITED */
	uint32_t max_cap;           /* what the cap may be raised to without losing speed, up to
	                             * FC_CAP_MAX; default cap */
	uint32_t expand;            /* the limit may grow to expand * cap: 1..4; default 4 */
	uint32_t expand_keep;       /* enum fc_expand_keep; default FC_EXPAND_KEEP_EVIDENCE */
	uint32_t writeoff;          /* running calls that may be written off at a time: a number or
	                             * FC_UNLIMITED (no more than cap, at most 4096), or
	                             * FC_WRITEOFF_NONE; default cap / 10, so none under a cap of 10 */
	uint32_t wait_max;          /* callers that may wait for a place, up to FC_WAITERS_MAX;
	                             * default 0: none waits. A call of weight over 1 never waits. New
	                             * numbers are for calls that come then */
	uint32_t wait_order;        /* enum fc_wait_order; default FC_WAIT_LIFO */
	uint32_t max_weight;        /* 1..FC_WEIGHT_MAX; default FC_WEIGHT_MAX */
	uint32_t latency;           /* enum fc_latency_mode; default FC_LATENCY_SAMPLED */
	uint32_t on_fault;          /* enum fc_on_fault; default the context's */
	uint32_t importance;        /* class for system-wide rules, 0 (most important) to 7; default 0 */
	uint32_t resv;              /* zero */
	uint64_t stuck_after_ns;    /* a call is reported after; default the context's (5 s);
	                             * FC_NEVER_NS: never */
	uint64_t writeoff_after_ns; /* and may be written off after; default 4 * stuck_after_ns;
	                             * FC_NEVER_NS: never */
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

/* The same without creating: NULL when unknown. Any thread; lock-free, no allocation. */
FC_API struct fc_iface *fc_iface_find(struct fc *fc, const char *name) FC_NOEXCEPT;

/*
 * Create an interface with these numbers, or give a known one new numbers (calls inside go on).
 * *ret_iface (may be NULL) is written on success only.
 * Returns 0; -EINVAL (a field out of range, an empty name or one with control characters); -E2BIG (a
 * field that this library does not know is set); -ENAMETOOLONG; -EILSEQ (the name is not UTF-8);
 * -ENOSPC (max_ifaces reached, or the segment is full); -ENOMEM. opts NULL: all defaults.
 */
FC_API int fc_iface_set(struct fc *fc, const char *name, const struct fc_iface_opts *opts,
                        struct fc_iface **ret_iface) FC_NOEXCEPT;

/* The numbers in force, defaults filled in. ret->size must be set; what this library does not know is
 * zeroed. Returns 0; -EINVAL (size, or a pass-through handle). */
FC_API int fc_iface_get_opts(const struct fc_iface *iface, struct fc_iface_opts *ret) FC_NOEXCEPT;

/*
 * Change one number at run time. cap: 0 (or FC_CAP_REFUSE_ALL) refuses all; FC_UNLIMITED takes the cap
 * away. Lowering never blocks and never kills: no new call is admitted until the count is under the new
 * limit. Returns 0; -EINVAL (over FC_CAP_MAX, or a pass-through handle); -ENOSPC (no memory for the
 * places).
 */
FC_API int fc_iface_set_cap(struct fc_iface *iface, uint32_t cap) FC_NOEXCEPT;
FC_API int fc_iface_set_dry_run(struct fc_iface *iface, int on) FC_NOEXCEPT;
FC_API int fc_iface_set_off(struct fc_iface *iface, int on) FC_NOEXCEPT;

/* Name (lives as long as the context; "?" of no handle) and context of a handle. */
FC_API const char *fc_iface_name(const struct fc_iface *iface) FC_NOEXCEPT;
FC_API struct fc *fc_iface_context(const struct fc_iface *iface) FC_NOEXCEPT;

/* The i-th interface of a context, in order of creation; NULL past the last. */
FC_API struct fc_iface *fc_iface_at(struct fc *fc, uint32_t i) FC_NOEXCEPT;

/* fc_drain() and fc_undrain() (context.h) for one interface. Blocks; -EINVAL for a pass-through handle. */
FC_API int fc_iface_drain(struct fc_iface *iface, uint64_t timeout_ns) FC_NOEXCEPT;
FC_API void fc_iface_undrain(struct fc_iface *iface) FC_NOEXCEPT;

/*
 * For users' tests: let the next `count` calls (FC_UNLIMITED: all) of an interface end with
 * `status`: > 0 refused with that reason, < 0 a fault (which follows on_fault). count 0 stops it.
 * Returns 0; -EINVAL (status 0 with a count, a pass-through handle).
 */
FC_API int fc_iface_inject(struct fc_iface *iface, int status, uint32_t count) FC_NOEXCEPT;

/*
 * Event loops and coroutines wait by callback, where the interface has wait_max set. fc_enter_async()
 * returns 0 (admitted at once), > 0 (refused), -EINVAL (as fc_enter(); fn NULL), or FC_PENDING: then fn
 * runs once, in fc_async_poll(), with the entry and what became of it, as fc_enter() would return it:
 *
 *        0                       admitted; the entry is a moved one (fc_entry_take): any thread exits it
 *        FC_REFUSED_WAIT         no place became free within wait_timeout_ns
 *        FC_REFUSED_DEADLINE     the deadline of ctx came first
 *        FC_REFUSED_DRAINING     the interface began to drain meanwhile
 *        another reason          an interceptor refused it after the place was found, the system is over a
 *                                bound, or a fault met on_fault "closed"
 *
 * The loop calls fc_async_poll() when fc_tick_fd() is readable, after each fc_tick() (which reads that
 * descriptor empty and may free places), and at the latest each wait_timeout_ns: nothing else ends a
 * wait. It returns the number of waits that ended, or -EINVAL.
 *
 * The entry stays where it is until fn has run or the wait is cancelled: no copy, no fc_entry_take(), no
 * second enter, no end of its memory. ctx and its labels are copied; a label keeps its hash and loses its
 * text, so later stages do not see the text. fn may call everything but fc_destroy().
 *
 * fc_enter_cancel() returns 1 when it took the wait back (fn will not run), 0 when it was over already:
 * then fn has run, or is running in another thread's poll, so where threads differ the memory must
 * outlive that poll. fc_exit() of a waiting entry cancels, too.
 *
 * Threads.  Any may enter, poll and cancel, each beside the others: of one wait exactly one poll or
 *           cancel wins. fn runs in the thread that polls, without a lock.
 * Memory.   A table of FC_WAITERS_MAX waits (about 200 KiB) from the context's allocator at the first
 *           fc_enter_async() of an interface with wait_max; none later. No memory: a fault (on_fault).
 * Cost.     That of fc_enter(); a poll looks at interfaces where somebody waits, 256 words each.
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
