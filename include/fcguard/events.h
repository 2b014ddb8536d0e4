/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/events.h - state changes and stuck calls, told to the program and to the log.
 *
 * Nothing is told from enter or exit: they leave a note, and the next fc_tick() tells it. At most
 * one event per kind, interface and second; the rest are counted in `suppressed` of the next one.
 * Delivery is best effort within a bounded store (256 notes): more are counted as suppressed.
 *
 * Threads.  Callbacks run in the thread that ticks, one at a time. fc_event_name() and fc_in_flight(): any thread.
 * Units.    Times and ages: ns. Errors: -EINVAL.
 * Memory.   None here; what a callback is given lives until it returns, names as long as the context.
 */
#ifndef FC_EVENTS_H
#define FC_EVENTS_H

#include <fcguard/base.h>
#include <fcguard/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Texts carry the event's two values: {a}, {b} plain, {a:c} "1 call", "2 calls", {a:t} a time in ns, {a:s} a
 * status, {a:h} a word of health.h, {a:d} a reason of enum fc_denied, {a:b} a bound of system.h, {a:f} a setting by hand, {a:n} a
 * number or "none", {a:p} " (places: 8)", or nothing of FC_UNLIMITED: the reason has nothing to do with places.
 *          name                      number  level  text */
#define FC_EVENT_MAP(XX)                                                                           \
	XX(FC_EVENT_EXPANDED,             1, INFO,  "limit raised from {a} to {b}: full and healthy") \
	XX(FC_EVENT_EXPAND_KEPT,          2, INFO,  "higher limit kept: completions went from {a} to {b} a second") \
	XX(FC_EVENT_EXPAND_UNDONE,        3, INFO,  "higher limit undone: completions went from {a} to {b} a second") \
	XX(FC_EVENT_LIMIT_BACK,           4, INFO,  "limit back from {a} to {b}: demand fell")     \
	XX(FC_EVENT_LIMIT_UNHEALTHY,      5, WARN,  "limit back from {a} to {b}: health is bad")   \
	XX(FC_EVENT_EXPAND_DENIED,        6, INFO,  "limit {a} reached and not raised: {b:d}")     \
	XX(FC_EVENT_CAP_CHANGED,          7, INFO,  "cap changed from {a:n} to {b:n}")                 \
	XX(FC_EVENT_PURGED,               8, WARN,  "{a:c} purged as stale, {b} inside")           \
	XX(FC_EVENT_WRITTEN_OFF,          9, WARN,  "call of age {a:t} written off, {b} of the budget used") \
	XX(FC_EVENT_WRITEOFF_USED_UP,    10, ERROR, "write-off budget used up ({a} of {b}): calls that are overdue keep their places now") \
	XX(FC_EVENT_WRITEOFF_BACK,       11, INFO,  "written-off call has left after {a:t}, {b} still written off") \
	XX(FC_EVENT_STUCK,               12, WARN,  "{a:c} overdue, oldest {b:t}")                 \
	XX(FC_EVENT_UNSTUCK,             13, INFO,  "no call overdue any more; at most {a} were")  \
	XX(FC_EVENT_HEALTH_BAD,          14, WARN,  "health turned bad: {a:h}")                    \
	XX(FC_EVENT_HEALTH_GOOD,         15, INFO,  "health is good again")                        \
	XX(FC_EVENT_SYSTEM_ON,           16, WARN,  "over the system's bound of {a:b}: refusing importance {b} to 7") \
	XX(FC_EVENT_SYSTEM_OFF,          17, INFO,  "all system bounds kept again")                \
	XX(FC_EVENT_FAULT,               18, ERROR, "the guard failed: {a:s}")                     \
	XX(FC_EVENT_ADAPTED,             19, INFO,  "limit adapted from {a} to {b}")               \
	XX(FC_EVENT_CLOCK,               20, WARN,  "the CPU's counter is {a} ppm off the kernel's clock: " \
	                                         "not used any more")                              \
	XX(FC_EVENT_LEAKED,              21, WARN,  "{a:c} given back at the end of a thread") \
	XX(FC_EVENT_REFUSING,            22, WARN,  "refusing: {a:s}{b:p}")                       \
	XX(FC_EVENT_ADMITTING,           23, INFO,  "refused nobody for {a:t}; {b} were refused before") \
	XX(FC_EVENT_BREAKER_OPENED,      24, WARN,  "breaker open for {a:t}: {b:c} failed or slow")   \
	XX(FC_EVENT_BREAKER_HALF_OPEN,   25, INFO,  "breaker half open: {a:c} at once may probe")   \
	XX(FC_EVENT_BREAKER_RAMP,        26, INFO,  "breaker lets in {a} of 1000 calls, and all in {b:t}") \
	XX(FC_EVENT_BREAKER_CLOSED,      27, INFO,  "breaker closed: {a:c} succeeded")              \
	XX(FC_EVENT_BREAKER_FORCED,      28, WARN,  "breaker set by hand: {a:f}")                   \
	XX(FC_EVENT_DEGRADED,            29, WARN,  "degraded for {a:t}: {b:c} failed or timed out") \
	XX(FC_EVENT_DEGRADE_PROBING,     30, INFO,  "degraded: {a:c} at once may probe")            \
	XX(FC_EVENT_DEGRADE_RAMP,        31, INFO,  "less degraded: lets in {a} of 1000 calls, and all in {b:t}") \
	XX(FC_EVENT_DEGRADE_OVER,        32, INFO,  "not degraded any more: {a:c} succeeded")       \
	XX(FC_EVENT_DEGRADE_SET,         33, WARN,  "level of degradation set by hand from {a} to {b}") \
	XX(FC_EVENT_DEGRADE_FAULT,       34, WARN,  "fault flag of what it needs: {a:f}")

/* Why a limit was reached and not raised. */
enum fc_denied {
	FC_DENIED_OFF = 1,      /* expand is 1: no event, nobody asked for more */
	FC_DENIED_AT_MOST = 2,  /* it is at expand * cap already */
	FC_DENIED_HEALTH = 3,   /* with the word of fc_health_word() << 32 */
	FC_DENIED_OVERDUE = 4,  /* the pile-up is made of overdue calls */
	FC_DENIED_UNDONE = 5,   /* a step was undone less than 10 windows ago */
	FC_DENIED_JUDGING = 6,  /* a step is being judged: no event, that comes with the judgement */
	FC_DENIED_MEMORY = 7,   /* no room for more places in the segment */
	FC_DENIED_FORCE_INT_ = INT32_MAX
};

/* What was set by hand. */
enum fc_set {
	FC_SET_AUTO = 0, FC_SET_OPEN = 1, FC_SET_CLOSED = 2, FC_SET_ON = 3, FC_SET_OFF = 4,
	FC_SET_FORCE_INT_ = INT32_MAX
};

#define FC_EVENT_ENUM_(name_, number_, level_, text_) name_ = (number_),
enum fc_event_kind {
	FC_EVENT_NONE = 0,
	FC_EVENT_MAP(FC_EVENT_ENUM_)
	FC_EVENT_FORCE_INT_ = INT32_MAX
};

struct fc_event {
	uint32_t size;
	int32_t kind;          /* enum fc_event_kind */
	uint64_t time_ns;      /* on the context's clock */
	const char *iface;     /* name, or NULL for the whole context */
	const char *text;      /* one line, values filled in; lives until the callback returns */
	uint64_t a, b;         /* see FC_EVENT_MAP */
	uint64_t suppressed;   /* of this kind and interface since the last one told */
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_event, 56);
#endif

/* "FC_EVENT_STUCK"; "unknown" for others. Static. */
FC_API const char *fc_event_name(int kind) FC_NOEXCEPT;

/* One call that is inside, as lists and reports show it. */
struct fc_in_flight {
	uint32_t size;
	uint32_t line;          /* of the guard; 0 unknown */
	const char *iface;      /* name */
	const char *file;       /* of the guard, or "?" */
	const char *func;
	uint64_t start_ns;
	uint64_t age_ns;        /* when listed */
	uint64_t request_id;    /* 0 none */
	uint32_t pid;
	uint32_t tid;           /* of the thread that entered */
	uint32_t weight;
	uint32_t flags;         /* FC_IN_FLIGHT_* */
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_in_flight, 72);
#endif

enum fc_in_flight_flags {
	FC_IN_FLIGHT_MOVED = 1u << 0,       /* moved out of its thread */
	FC_IN_FLIGHT_OVERDUE = 1u << 1,
	FC_IN_FLIGHT_WRITTEN_OFF = 1u << 2, /* running, but not counted any more */
	FC_IN_FLIGHT_OVER_LIMIT = 1u << 3,  /* dry run: would have been refused */
	FC_IN_FLIGHT_FORCE_INT_ = INT32_MAX
};

/*
 * The calls inside an interface, oldest first, written-off ones last; at most n are written.
 * Returns how many there are (may be more than n), or -EINVAL. A snapshot: calls come and go
 * while it is taken; each element by itself was true at one moment. Reads only; any thread;
 * O(places). list may be NULL when n is 0. list[0].size must be set when n > 0.
 */
FC_API int fc_in_flight(const struct fc_iface *iface, struct fc_in_flight *list, uint32_t n) FC_NOEXCEPT;

/* A stuck report: one place where `count` calls are overdue. `call` is the oldest of them. */
struct fc_stuck {
	uint32_t size;
	uint32_t count;
	struct fc_in_flight call;
	const char *thread_name; /* or "?" */
	const char *stack;       /* lines, or why there are none */
	uint64_t limit, in_flight;
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_stuck, 112);
#endif

#ifdef __cplusplus
}
#endif
#endif /* FC_EVENTS_H */
