/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/context.h - a context: the interfaces of one program or library, their memory, their
 * clock, their housekeeping.
 *
 * A program needs none of this to begin with: the guard macros use a default context, made when
 * first needed. A library that must not meet the interfaces of its host makes its own.
 *
 * Threads.  fc_create(), fc_default(), fc_default_set() and everything that takes a `struct fc *`
 *           may run on any number of threads at once, with one exception: fc_destroy() needs that
 *           no other call on the context is running or comes later (calls inside may still be
 *           there; their late exits are no-ops only until the memory is gone, so drain first).
 *           fc_tick() runs in one thread at a time; a second caller returns at once.
 * fork.     The child may go on using every context: it starts with nothing in flight (entries that
 *           were open count in the parent alone, their copies in the child are inactive) and
 *           without the housekeeping thread; call fc_start() again to have one.
 * Signals.  Nothing here is async-signal-safe but fc_dump_signal(), fc_off_set() and
 *           fc_version().
 * Memory.   One mapping for the segment (mmap, pages touched when used) and small blocks from the
 *           allocator, all in fc_create() and at set-up of interfaces; none on enter and exit.
 * Errors.   0 or a negative errno; nothing sets errno. A NULL context, or what is none, is -EINVAL (FC_NEVER_NS
 *           from fc_tick(), nothing from void functions). Times are ns.
 */
#ifndef FC_CONTEXT_H
#define FC_CONTEXT_H

#include <fcguard/base.h>
#include <fcguard/err.h>
#include <fcguard/time.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fc;               /* opaque */
struct fc_iface;         /* opaque: iface.h */
struct fc_health_opts;   /* health.h */
struct fc_event;         /* events.h */
struct fc_stuck;         /* events.h */

/*
 * Memory for set-up. Both members NULL: those of libc. The size comes back with the free; blocks need no
 * alignment. Both may be called by any thread that sets something up or ticks, never from enter or exit.
 * NULL from alloc is -ENOMEM of the set-up. arg must live as long as the context.
 */
struct fc_alloc {
	void *(*alloc)(void *arg, size_t bytes);
	void (*free)(void *arg, void *ptr, size_t bytes);
	void *arg;
};

enum fc_log_level {
	FC_LOG_ERROR = 0,
	FC_LOG_WARN = 1,
	FC_LOG_INFO = 2,
	FC_LOG_DEBUG = 3,
	FC_LOG_FORCE_INT_ = INT32_MAX
};

/*
 * Where log lines go. msg is one formatted line without a newline; it lives until fn returns.
 * fn may be called by any thread that ticks or sets something up, never from enter or exit (but for one
 * line in a context's life: that nobody ticks it, after about a second of refusals), and must not call
 * back into fcguard. NULL fn: silent, or standard error with FC_LOG_STDERR below.
 */
typedef void (*fc_log_fn)(void *arg, int level, const char *msg);

/* A state change (events.h). Same rules as fc_log_fn. */
typedef void (*fc_event_fn)(void *arg, const struct fc_event *event);

/* A call that is overdue, or a group of them in one place (events.h). Same rules as fc_log_fn. */
typedef void (*fc_stuck_fn)(void *arg, const struct fc_stuck *stuck);

/* What a guard does when the library itself fails (no memory for an interface, segment full). */
enum fc_on_fault {
	FC_FAIL_DEFAULT = 0, /* the context's choice; there: open */
	FC_FAIL_OPEN = 1,    /* the call goes through, untracked and counted */
	FC_FAIL_CLOSED = 2,  /* the call is refused: FC_REFUSED_FAULT */
	FC_FAIL_FORCE_INT_ = INT32_MAX
};

enum fc_opts_flags {
	FC_LOG_STDERR = 1u << 0,     /* without a log fn: write to standard error */
	FC_THREAD = 1u << 1,         /* start the housekeeping thread in fc_create() */
	FC_NO_RSEQ = 1u << 2,        /* count with atomic adds even where rseq works */
	FC_NO_STACKS = 1u << 3,      /* stuck reports without stacks */
	FC_OPTS_FLAGS_FORCE_INT_ = INT32_MAX
};

/* Zero means "default" in every field. */
struct fc_opts {
	uint32_t size;             /* sizeof(struct fc_opts) as the caller compiled it */
	uint32_t flags;            /* FC_LOG_STDERR | FC_THREAD | ...; default 0 */
	uint32_t clock;            /* enum fc_clock; default FC_CLOCK_AUTO */
	uint32_t on_fault;         /* enum fc_on_fault; default FC_FAIL_OPEN */
	uint32_t max_ifaces;       /* interfaces; default 1024, at most FC_IFACES_MAX */
	uint32_t default_cap;      /* cap of an interface without a rule, up to FC_CAP_MAX; default 0,
	                            * or FC_UNLIMITED: it is observed and never refused */
	uint64_t segment_bytes;    /* of address space for all mutable state, touched when used;
	                            * default: enough for max_ifaces with caps of 64 */
	uint64_t stuck_after_ns;   /* default of interfaces; default 5 s; FC_NEVER_NS: never */
	uint32_t recorder_slots;   /* decisions kept by the flight recorder on each CPU, a power of
	                            * two up to 65536; default 256 */
	uint32_t max_reports_per_min; /* stuck reports; default 30 */
	const struct fc_health_opts *health; /* NULL: host and cgroup with the defaults */
	const struct fc_alloc *alloc;        /* NULL: malloc and free */
	fc_log_fn log;
	fc_event_fn on_event;
	fc_stuck_fn on_stuck;
	void *log_arg, *event_arg, *stuck_arg;
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_opts, 112);
#endif

#define FC_IFACES_MAX (1u << 20)

/*
 * Create a context. opts NULL: all defaults. *ret_fc is written only on success.
 * Returns 0; -EINVAL (a field out of range, size too small); -E2BIG (a field that this library
 * does not know is set); -ENOMEM; -ENOSPC (segment_bytes too small for max_ifaces); with FC_THREAD the errors
 * of fc_start(). Cost: some 100 us.
 */
FC_API FC_MUST_CHECK int fc_create(struct fc **ret_fc, const struct fc_opts *opts) FC_NOEXCEPT;

/* Stop the thread, report leaks (fc_leaks), free everything. NULL is fine. Returns NULL. */
FC_API struct fc *fc_destroy(struct fc *fc) FC_NOEXCEPT;

/*
 * The context that the macros use: the one set, else one made with the defaults, FC_LOG_STDERR
 * and FC_THREAD at the first call. Never NULL: when it cannot be made, a pass-through context
 * serves (every call is admitted untracked, and counted) and the next call tries again.
 * fc_default_set() returns 0; -EBUSY when a default context is in use already; -EINVAL; it takes no
 * ownership. fc_default_set(NULL) forgets it. Set it before the first guard runs.
 */
FC_API struct fc *fc_default(void) FC_NOEXCEPT;
FC_API int fc_default_set(struct fc *fc) FC_NOEXCEPT;

/*
 * Housekeeping: stuck reports, expansion, health samples, purges nobody waited for, log lines.
 * Works for at most about budget_ns (0: 1 ms; one interface is looked at as a whole, which takes about 2 ms
 * with 65536 calls inside, 0.3 ms with 4096), then returns the time on the context's clock at
 * which it wants to run again; FC_NEVER_NS when everything is idle: then the first call through a
 * guard asks for it (fc_tick_fd). Never blocks. A program either calls it from its event loop or
 * asks for a thread; one that does neither is told so in the log once, and refusals do the least
 * that correctness needs.
 */
FC_API uint64_t fc_tick(struct fc *fc, uint64_t budget_ns) FC_NOEXCEPT;

/*
 * A file descriptor (eventfd) that becomes readable when an idle context is needed again, for
 * poll loops that tick by themselves, or when a wait by callback may have ended (iface.h); a negative errno
 * when there is none. Owned by fc. fc_async_poll() reads it empty, and so does fc_tick() while fc_start() has
 * no thread running: call fc_async_poll() after each fc_tick() where calls wait by callback.
 */
FC_API int fc_tick_fd(struct fc *fc) FC_NOEXCEPT;

/*
 * Start and stop one housekeeping thread (all signals blocked, name "fcguard"). 0; -EALREADY;
 * -EAGAIN when the system gives no thread. fc_stop() waits for it to end, so not from a callback. After
 * fork() the child calls fc_start() if it wants one.
 */
FC_API int fc_start(struct fc *fc) FC_NOEXCEPT;
FC_API void fc_stop(struct fc *fc) FC_NOEXCEPT;

/*
 * The switch for all interfaces of a context: off lets every new call through unguarded; calls
 * inside still leave properly. The environment variable FCGUARD_OFF=1, read in fc_create(), sets
 * it too. Lock-free, async-signal-safe; one store per interface.
 */
FC_API void fc_off_set(struct fc *fc, int off) FC_NOEXCEPT;
FC_API int fc_off_get(const struct fc *fc) FC_NOEXCEPT;

/*
 * Refuse new calls everywhere (FC_REFUSED_DRAINING) and wait until nobody is inside or timeout_ns
 * has passed (real time, whatever the clock of the context). Returns the number of calls still inside, written-off
 * ones too (list them with fc_in_flight); 0 is success. fc_undrain() opens the doors again. Blocks the caller;
 * not from a guarded call.
 */
FC_API int fc_drain(struct fc *fc, uint64_t timeout_ns) FC_NOEXCEPT;
FC_API void fc_undrain(struct fc *fc) FC_NOEXCEPT;

/*
 * Write the state of everything as text to a file descriptor: interfaces, calls inside oldest
 * first, health, the flight recorder. fc_dump() adds the stacks of overdue calls and may allocate;
 * fc_dump_signal() does neither, takes no lock and may be called inside a signal handler.
 * Both return 0 or a negative errno of write().
 */
FC_API int fc_dump(struct fc *fc, int fd) FC_NOEXCEPT;
FC_API int fc_dump_signal(struct fc *fc, int fd) FC_NOEXCEPT;

/*
 * Write calls that are inside although nobody can ever end them (their thread is gone), by call
 * site, to fd (-1: the log). Returns their number. Also done by fc_destroy(), which reports every
 * call that is still inside. May allocate; not in a signal handler.
 */
FC_API int fc_leaks(struct fc *fc, int fd) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_CONTEXT_H */
