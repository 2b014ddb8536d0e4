/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * health.h - judges samples of CPU, memory and pressure: one word that says "healthy or why not".
 *
 * Threads.
 *                            sample  snapshot  set_opts, set_source  get_opts  init, fini
 *     sample                    X       -               X                -         X
 *     snapshot                  -       -               -                -         X
 *     set_opts, set_source      X       -               X                X         X
 *     get_opts                  -       -               X                -         X
 *     X = the caller excludes, - = free
 *
 * Fork.     As in health_read.h. A child that inherits a half written snapshot gets -EAGAIN
 *           from it until its first own sample.
 * Memory.   The caller's; a few kB of its stack. File descriptors are kept open until fini.
 * Cost.     sample: the source, the judgement (about 0.2 us), jemalloc's figures (about 5 us).
 *           With memory bad and jemalloc dirty also one purge: see FCI_HEALTH_PURGE_BYTES.
 *
 * A rest.   When the previous sample is more than max_age_ns ago, or there is none, what was
 *           known is forgotten: nothing is bad from before, nothing good either. Levels
 *           (memory, pressure, load) are judged at once from the new sample. An average since
 *           the previous call (CPU, throttling) then covers the rest, in which nothing ran: low
 *           values say nothing about now and are not used; a bad one is used, since the
 *           machine was that busy all along (it is also what a starved housekeeper sees), and
 *           is replaced, not blended, by the next. The next sample is wanted after a quarter
 *           of a period, so that health is known again soon.
 *
 * The clock. A time before the previous one by up to max_age_ns, or the same, changes nothing.
 *           Further back, the clock has jumped: treated as a rest.
 */
#ifndef FCI_HEALTH_H
#define FCI_HEALTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <fcguard/health.h>

#include "health_read.h"
#include "jemalloc.h"

#define FCI_HEALTH_NUMBERS 7u /* FC_HEALTH_CPU .. FC_HEALTH_LOAD1, by bit number */

/* Most that one sample asks of jemalloc: about 1 ms, unless one arena holds more. */
#define FCI_HEALTH_PURGE_BYTES (UINT64_C(16) << 20)

enum fci_health_known {
	FCI_HEALTH_NONE = 0, /* no such number */
	FCI_HEALTH_LIVE = 1,
	FCI_HEALTH_LOST = 2, /* it exists, but there was no news for max_age */
};

struct fci_health_number {
	uint32_t ema_q8;     /* permille << 8; a load does not fit and is kept as it is */
	uint32_t high;       /* bad at or above */
	uint32_t low;        /* good again below */
	uint8_t known;       /* enum fci_health_known */
	bool bad;
	bool provisional;    /* from a rest: the next value replaces it */
	uint64_t renewed_ns; /* when the last news was measured */
};

struct fci_health_shown {
	struct fc_health health; /* age_ns is not used */
	uint64_t sampled_ns;
	uint64_t max_age_ns;
};

#define FCI_HEALTH_WORDS (sizeof(struct fci_health_shown) / sizeof(uint64_t))

struct fci_health {
	struct fc_health_opts opts; /* complete, nothing left at 0; root is NULL */
	struct fci_health_read read;
	struct fci_jemalloc jemalloc;
	struct fci_health_number number[FCI_HEALTH_NUMBERS];
	fc_health_fn fn;
	void *arg;
	uint32_t need;              /* one of these numbers must be known to be good */
	bool ran;                   /* last_ns and next_ns mean something */
	uint64_t last_ns;
	uint64_t next_ns;
	struct fci_health_shown now;

	/* seq: written by the sampling thread only, odd while shown[] is being written. A reader
	 * copies shown[] between two equal, even readings; it never waits for a writer. */
	_Atomic uint32_t seq;
	/* shown: the words of a struct fci_health_shown, written by the sampling thread, read by
	 * any. Each word is whole by itself; that they belong together is what seq says. */
	_Atomic uint64_t shown[FCI_HEALTH_WORDS];
};

/*
 * opts NULL: all defaults. root is used here only. Returns 0; -EINVAL (a field out of range,
 * a size below the first version's); -E2BIG (an unknown field is set); -errno of opening root.
 */
int fci_health_init(struct fci_health *h, const struct fc_health_opts *opts);
void fci_health_fini(struct fci_health *h);

/* New thresholds and times; root is not looked at. What is known stays. Returns as init. */
int fci_health_set_opts(struct fci_health *h, const struct fc_health_opts *opts);
void fci_health_get_opts(const struct fci_health *h, struct fc_health_opts *ret);

/* fn NULL: the library's own reader. Forgets what is known; the next sample may run at once. */
void fci_health_set_source(struct fci_health *h, fc_health_fn fn, void *arg);

/*
 * Sample and judge if the time has come; *ret_word is always written: enum fc_health_state bits,
 * FC_HEALTH_GOOD alone or without it. Returns when to call next (earlier is harmless and cheap).
 */
uint64_t fci_health_sample(struct fci_health *h, uint64_t now_ns, uint32_t *ret_word);

/* Copy out. ret->size set by the caller. Returns 0, -EINVAL (size), -EAGAIN (see Fork). */
int fci_health_snapshot(struct fci_health *h, uint64_t now_ns, struct fc_health *ret);

#endif /* FCI_HEALTH_H */
