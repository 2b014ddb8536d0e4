/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * clock.h - reading the time, as cheaply as its use allows. See fcguard/time.h.
 *
 * TSC. The CPU's counter is turned into nanoseconds of CLOCK_MONOTONIC by {tsc, ns, mult}, which
 * housekeeping corrects. tsc is different in each set and 0 while the others are changed, so it
 * serves as the set's number; who meets a change, or an untrusted counter, asks the kernel: nobody
 * waits. Threads: read any, signal handlers too; init and calibrate one at a time.
 */
#ifndef FCI_CLOCK_H
#define FCI_CLOCK_H

#include <time.h>

#include <fcguard/time.h>

#include "atomic.h"

struct fci_clock {
	FCI_ALIGNED fci_a64 tsc;  /* of ns; 0: none, not to be used now. R1 -> A1 */
	fci_a64 ns, mult;         /* ns + ((now - tsc) * mult >> 32) */
	fci_a64 virtual_ns;
	uint32_t kind;            /* what the program asked for: enum fc_clock */
	fci_a32 tsc_ok;           /* 1: TSC is trusted */
	uint64_t check_ns;        /* calibrating thread: next look */
};

void fci_clock_init(struct fci_clock *c, uint32_t kind);

/* Correct the TSC's rate; returns 0, or the disagreement in ppm when it was found untrustworthy
 * just now (its readers fall back to CLOCK_MONOTONIC). */
uint64_t fci_clock_calibrate(struct fci_clock *c);

/* The cheapest kind that has the resolution: coarse or exact. */
uint32_t fci_clock_coarse(const struct fci_clock *c);
/* Sleep for at most ns of it. Not a cancellation point; may end early. */
void fci_clock_sleep(const struct fci_clock *c, uint64_t ns);

uint64_t fci_clock_coarse_ns(void); /* resolution of the coarse one. A system call */
uint32_t fci_clock_exact(const struct fci_clock *c);

#ifdef FC_TEST_POINTS
extern void (*fci_test_clocks)(uint64_t *tsc, uint64_t *ns);
#endif

/* clock_gettime(), the short way: vdso.c. Set before main. */
typedef int (*fci_gettime_fn)(clockid_t, struct timespec *);
extern fci_gettime_fn fci_gettime;

FCI_INLINE uint64_t fci_clock_os(clockid_t id)
{
	struct timespec t;

	fci_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

FCI_INLINE uint64_t fci_tsc(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t v;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
	return v;
#else
	return 0;
#endif
}

/* Exact, without the TSC. */
uint64_t fci_clock_slow(const struct fci_clock *c);

/* Exact, for measuring and for housekeeping. */
FCI_INLINE uint64_t fci_clock_now(const struct fci_clock *c)
{
	/* A1 -> R1 (fci_clock_calibrate): the fields are at least as new as tsc. */
	uint64_t tsc = atomic_load_explicit(&c->tsc, FCI_ACQ), now;
	/* A2 -> R2: acquire keeps the second look at tsc behind them. */
	uint64_t ns = atomic_load_explicit(&c->ns, FCI_ACQ), mult = atomic_load_explicit(&c->mult, FCI_ACQ);

	/* N1: another tsc now means that the fields may be of another set. */
	if (fci_unlikely(tsc != atomic_load_explicit(&c->tsc, FCI_RLX)))
		return fci_clock_slow(c);
	now = fci_tsc();
	/* Another CPU's counter may be a little behind the calibration's. */
	if (fci_unlikely(tsc == 0) || fci_unlikely(now < tsc))
		return fci_clock_slow(c);
	return ns + (uint64_t)(((fci_u128)(now - tsc) * mult) >> 32);
}

FCI_INLINE uint64_t fci_clock_read(const struct fci_clock *c, uint32_t kind)
{
	if (fci_likely(kind == FC_CLOCK_COARSE))
		return fci_clock_os(CLOCK_MONOTONIC_COARSE);
	return fci_likely(kind == FC_CLOCK_TSC) ? fci_clock_now(c) : fci_clock_slow(c);
}

#endif /* FCI_CLOCK_H */
