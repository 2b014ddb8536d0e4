/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/entry.h - one call through a guard: enter, mark, exit, move to another thread.
 *
 * Life.     FC_ENTRY_INIT -> fc_enter() == 0 -> fc_entry_mark() -> fc_exit().
 *           fc_enter() > 0: refused; the entry holds the decision and needs no exit (one is
 *           harmless). An entry lives on the caller's stack or in the caller's request, and must
 *           not be copied while active: move it with fc_entry_take().
 *           One in a request on the heap, whose call goes on after the function that entered has
 *           returned: fc_entry_take(&r->e, &r->e) behind fc_enter(). Else it is the thread's, and is
 *           given back when the thread ends.
 *
 * Threads.  Together on ONE entry (X = the caller must exclude, - = free):
 *
 *                        enter  mark  exit  take  suspend  resume
 *              enter       X     X     X     X      X        X
 *              mark        X     X     X     X      X        X
 *              exit        X     X     -     X      X        X     exit || exit: one counts
 *              take        X     X     X     X      X        X
 *              suspend     X     X     X     X      X        X
 *              resume      X     X     X     X      X        X
 *
 *           On different entries everything is free. exit may run on any thread, also after the
 *           thread that entered has ended, if the entry was moved out with fc_entry_take();
 *           an entry that was not moved is given back when its thread ends.
 * Progress. fc_enter() and fc_exit() are lock-free and make no system call, allocation or log
 *           entry in the steady state. The first call of each thread registers it; a refused
 *           caller makes a check of a few microseconds each check_every (10 ms), whatever the cap, and the
 *           first call after a rest wakes the housekeeping thread. With `wait` set, fc_enter()
 *           blocks up to its timeout.
 * Coroutines. An entry may lie on a coroutine's stack. If that stack is memory of a thread's own stack (a local
 *           array, alloca()), move the entry with fc_entry_take() at once: what the thread enters meanwhile
 *           would else prove that the scope of the entry is over, and its call be purged.
 * Cancel.   Neither is a cancellation point.
 * Signals.  Not async-signal-safe: a handler that interrupts fc_enter() or fc_exit() on the same
 *           thread may call neither. fork() in the middle of a guarded block is fine (context.h).
 * Errors.   fc_enter(): 0, enum fc_status > 0, or -EINVAL (NULL entry or handle, a handle that is
 *           none, bad fc_ctx): for programming errors alone. Faults follow on_fault.
 * Memory.   64 bytes, the caller's.
 * Cost.     About two uncontended compare-and-swaps for both calls; bench/RESULTS.md in the sources has
 *           the numbers.
 */
#ifndef FC_ENTRY_H
#define FC_ENTRY_H

#include <fcguard/base.h>
#include <fcguard/err.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fc_iface;

/* Opaque; all zero is a valid inactive entry. */
struct fc_entry {
	uint64_t word_;          /* 0: inactive */
	struct fc_iface *iface_;
	uint64_t start_;         /* admitted: when; refused: observed value */
	uint32_t slot_;
	int32_t verdict_;
	uint64_t meta_;          /* outcome, flags, weight or rule */
	uint64_t data_[3];       /* admitted: where the guard stands; refused: limit, retry */
};
FC_STATIC_ASSERT(sizeof(struct fc_entry) == 64, "an entry is one cache line");

#ifdef __cplusplus
#define FC_ENTRY_INIT {}
#else
#define FC_ENTRY_INIT { 0 }
#endif

/* A label of a call: user, ip, caller, ... Made once by fc_label() and the like, cheap to carry. */
struct fc_label {
	uint64_t key;     /* hash of the key's name */
	uint64_t value;   /* hash of the value */
	const char *text; /* the value, for rules that look at its beginning; NULL: none. Must live while
	                   * fc_enter() runs */
	uint64_t ip[2];   /* the value as an IPv6 address, first bytes in ip[0], highest first; of IPv4
	                   * ::ffff:0:0/96; both 0: it is none */
};

/* What a call may say of itself. Zero means "default" in every field. Live during fc_enter(). */
struct fc_ctx {
	uint32_t size;           /* sizeof(struct fc_ctx) as the caller compiled it */
	uint32_t weight;         /* places it takes; default 1, at most the interface's max_weight */
	uint32_t priority;       /* 0..7; 0 the most important; default 0 */
	uint32_t n_labels;       /* at most 16 */
	uint64_t deadline_ns;    /* on the context's clock; passed: FC_REFUSED_DEADLINE; default none */
	uint64_t arrival_ns;     /* when the call reached the server; default: now */
	uint64_t now_ns;         /* the time, if the caller knows it (a loop's own); default: read the clock,
	                          * as when it is off by more than a second */
	uint64_t request_id;     /* shown in stuck reports; default none */
	uint64_t stuck_after_ns; /* of this call, up to 49 days; default the interface's */
	const struct fc_label *labels;
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_ctx, 64);
#endif

/* What became of an admitted call. The last mark before the exit counts; unmarked is OK. */
enum fc_outcome {
	FC_OUTCOME_OK = 0,
	FC_OUTCOME_ERROR = 1,
	FC_OUTCOME_TIMEOUT = 2,
	FC_OUTCOME_IGNORED = 3,  /* says nothing about health: not in latency, not in errors */
	FC_OUTCOME_ABANDONED = 4, /* by the library alone: purged or written off */
	FC_OUTCOME_FORCE_INT_ = INT32_MAX
};

/* Why a call was refused. */
struct fc_decision {
	uint32_t size;
	int32_t status;          /* enum fc_status, or a reason of the program's own */
	const char *rule;        /* name of the refusing interceptor ("cap"), static */
	const char *iface;       /* name of the interface */
	uint64_t observed;       /* what was measured: calls in flight, tokens, ... */
	uint64_t limit;          /* what was allowed */
	uint64_t retry_after_ns; /* when it is worth trying again; 0: unknown */
	uint64_t resv;
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_decision, 56);
#endif

/*
 * A place in the source, static, one per guard. id_ caches its number in the segment's table of
 * call sites, with the serial number of the context that gave it.
 */
struct fc_site {
	const char *file;
	const char *func;
	const char *name; /* literal name of the interface, or NULL */
	uint32_t line;
	uint32_t resv;
	uint64_t id_;
	struct fc_iface *iface_;
	uint64_t serial_;
};

/*
 * Enter. ctx NULL: all defaults. fc_enter() is also a macro, which passes the place of the call;
 * (fc_enter)(e, iface, ctx) calls the function.
 */
FC_API FC_MUST_CHECK int fc_enter(struct fc_entry *e, struct fc_iface *iface,
                                  const struct fc_ctx *ctx) FC_NOEXCEPT;
FC_API FC_MUST_CHECK int fc_enter_at(struct fc_entry *e, struct fc_iface *iface,
                                     const struct fc_ctx *ctx, struct fc_site *site) FC_NOEXCEPT;

/* Leave. Idempotent; NULL, zero, refused and moved-out entries are no-ops. */
FC_API void fc_exit(struct fc_entry *e) FC_NOEXCEPT;

/* The same, and says whether this call was the one that counted: 1 yes; 0 nothing to do; -ESTALE
 * the library had taken the place back before (purged or written off): no outcome is reported. */
FC_API int fc_exit_status(struct fc_entry *e) FC_NOEXCEPT;

/* Record the outcome of an active entry (enum fc_outcome but ABANDONED); else a no-op. */
FC_API void fc_entry_mark(struct fc_entry *e, int outcome) FC_NOEXCEPT;

/*
 * Move an active entry out of its scope: `to` becomes the entry, `from` inactive. From now on any
 * thread may exit it, and it survives the end of the thread that entered. If the library has
 * taken the place back meanwhile, `to` is inactive too. `to` may be `from`: an entry that was made where it
 * is to stay, in the request of an event loop.
 */
FC_API void fc_entry_take(struct fc_entry *to, struct fc_entry *from) FC_NOEXCEPT;

/*
 * Give the place back while the call waits for something that needs none, and take one again.
 * Suspend returns 0; -EINVAL when e is not active, waits (fc_enter_async) or was let through untracked;
 * -ESTALE when the library had taken the place back before: e is inactive then; -E2BIG when the chain's
 * interceptors keep more than 6 cells of it (interceptor.h): e goes on. Resume returns like
 * fc_enter(); when refused the entry stays suspended: try again or exit it. What interceptors took stays
 * taken. Latency includes the pause. A suspended entry is in no list of calls in flight, keeps no
 * deadline to ask for, and may be resumed by another thread.
 */
FC_API int fc_entry_suspend(struct fc_entry *e) FC_NOEXCEPT;
FC_API FC_MUST_CHECK int fc_entry_resume(struct fc_entry *e) FC_NOEXCEPT;

/* What fc_enter() said; 0 while admitted; FC_PENDING while it waits (iface.h). NULL: -EINVAL. */
FC_API int fc_entry_verdict(const struct fc_entry *e) FC_NOEXCEPT;

/* The decision of a refused entry, in full; a call that was not even asked about, for a programming error,
 * has that negative errno as its status. ret->size must be set. 0; -ENODATA when it was not refused (then
 * status 0); -EINVAL (NULL, size). */
FC_API int fc_entry_decision(const struct fc_entry *e, struct fc_decision *ret) FC_NOEXCEPT;

/*
 * What is left of the deadline now (0: passed); FC_NEVER_NS without one. Reads the clock.
 * The deadline is kept for active entries only.
 */
FC_API uint64_t fc_entry_deadline_left(const struct fc_entry *e) FC_NOEXCEPT;

/*
 * A decision for HTTP: 429 when the caller asked too often (rate, key, quota), 403 when a list denies
 * it (access), 500 for a negative status (a
 * programming error), 503 for all else; 200 when admitted. Seconds for Retry-After, rounded up, at least 1. d may be
 * NULL: admitted.
 */
FC_API int fc_decision_http_status(const struct fc_decision *d) FC_NOEXCEPT;
FC_API uint32_t fc_decision_retry_after_s(const struct fc_decision *d) FC_NOEXCEPT;

/*
 * Hash a label once. key and value are NUL-terminated; NULL counts as "". fc_label() keeps a pointer to
 * value. fc_label_ip() is for addresses, so that rules can match networks: from a text ("192.0.2.7",
 * "2001:db8::1"; another text gives a label as fc_label() does), or from what accept() returned. The
 * same address has the same value either way; an IPv4 address is that of ::ffff:a.b.c.d.
 * fc_label_addr() of another family gives the label of "". Cost: about 1 ns a byte; addresses 100 ns.
 */
struct sockaddr;
FC_API struct fc_label fc_label(const char *key, const char *value) FC_NOEXCEPT;
FC_API struct fc_label fc_label_ip(const char *key, const char *text) FC_NOEXCEPT;
FC_API struct fc_label fc_label_addr(const char *key, const struct sockaddr *addr) FC_NOEXCEPT;

/* The label of a call under a hashed key; NULL: it has none. */
static inline const struct fc_label *fc_ctx_label(const struct fc_ctx *ctx, uint64_t key)
{
	for (uint32_t i = 0; i < ctx->n_labels; i++)
		if (ctx->labels[i].key == key)
			return &ctx->labels[i];
	return NULL;
}

#ifdef __cplusplus
}
#endif
#endif /* FC_ENTRY_H */
