/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/err.h - what fc_enter() and the other calls return, with names and texts.
 *
 * One int: 0 admitted, > 0 refused (a reason below: a normal answer), < 0 negative errno (the
 * library or the program is at fault). `if (rc)` stops everything; `if (rc < 0)` finds faults.
 * Reasons never change number or name once released. Numbers from FC_REFUSED_USER up belong to
 * the program's own interceptors. Threads, memory: nothing here has state or allocates.
 */
#ifndef FC_ERR_H
#define FC_ERR_H

#include <fcguard/base.h>

/*          name                   number  text */
#define FC_STATUS_MAP(XX)                                                                          \
	XX(FC_OK,                   0, "admitted")                                                 \
	XX(FC_REFUSED_CAP,          1, "too many calls in flight")                                 \
	XX(FC_REFUSED_RATE,         2, "rate limit reached")                                       \
	XX(FC_REFUSED_BREAKER,      3, "circuit breaker open")                                     \
	XX(FC_REFUSED_QUEUE,        4, "too many callers are waiting already")                     \
	XX(FC_REFUSED_DEADLINE,     5, "deadline passed, or would pass while waiting")             \
	XX(FC_REFUSED_QUOTA,        6, "global quota used up")                                     \
	XX(FC_REFUSED_CUSTOM,       7, "refused by an interceptor of the program")                 \
	XX(FC_REFUSED_WAIT,         8, "no place became free while waiting")                       \
	XX(FC_REFUSED_DRAINING,     9, "draining: no new calls")                                   \
	XX(FC_REFUSED_SYSTEM,      10, "the whole system is over one of its bounds")               \
	XX(FC_REFUSED_FAULT,       11, "the guard failed and its policy is closed")                \
	XX(FC_REFUSED_WEIGHT,      12, "the call is heavier than its limit allows")                \
	XX(FC_REFUSED_INJECTED,    13, "refused on request of a test")                             \
	XX(FC_REFUSED_ACCESS,      14, "denied by a list")                                          \
	XX(FC_REFUSED_DEGRADED,    15, "switched off, by hand or because what it needs fails")     \
	XX(FC_REFUSED_PRIORITY,    16, "overloaded: calls of this priority have to wait")          \
	XX(FC_REFUSED_ISOLATED,    17, "its group has no place left, or keeps it for others")      \
	XX(FC_REFUSED_KEY,         18, "this user, address or other key asks too much")

#define FC_STATUS_ENUM_(name_, number_, text_) name_ = (number_),
enum fc_status {
	FC_STATUS_MAP(FC_STATUS_ENUM_)
	FC_REFUSED_USER = 1000, /* first number of the program's own reasons */
	FC_STATUS_FORCE_INT_ = INT32_MAX
};

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Names ("FC_REFUSED_CAP", "EINVAL") and texts of a result, of either sign. Static strings, never
 * NULL; an unknown number gives "unknown". Any thread, async-signal-safe, no allocation.
 */
FC_API const char *fc_status_name(int status) FC_NOEXCEPT;
FC_API const char *fc_status_text(int status) FC_NOEXCEPT;

/* Like fc_status_text(), but an unknown number is printed too ("unknown (4711)"), into buf. */
FC_API const char *fc_status_text_r(int status, char *buf, size_t len) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_ERR_H */
