/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * clock.h - reading the time, as cheaply as its use allows. See fcguard/time.h.
 *
 * TSC. The CPU's counter is turned into nanoseconds of CLOCK_MONOTONIC by {tsc, ns, mult}, which
 * housekeeping corrects; readers use a sequence lock (fields are atomics, so a torn set is seen and
 * read again, never used). Threads: read any; init and calibrate one at a time.
 */
#ifndef FCI_CLOCK_H
#define FCI_CLOCK_H

#include <time.h>

#include <fcguard/time.h>

#include "atomic.h"

struct fci_clock {
	FCI_ALIGNED fci_a32 seq;  /* even: stable. R1 -> A1 */
	uint32_t kind;            /* what the program asked for: enum fc_clock */
	fci_a64 tsc, ns, mult;    /* ns + ((now - tsc) * mult >> 32) */
	fci_a64 virtual_ns;
	fci_a32 tsc_ok;           /* 1: TSC may be used */
	uint32_t resv;
	uint64_t check_ns;        /* calibrating thread: next look */
};

void fci_clock_init(struct fci_clock *c, uint32_t kind);

/* Correct the TSC's rate; returns 0, or the disagreement in ppm when it was found untrustworthy
 * just now (its readers fall back to CLOCK_MONOTONIC). */
uint64_t fci_clock_calibrate(struct fci_clock *c);

/* The cheapest kind that has the resolution: coarse or exact. */
uint32_t fci_clock_coarse(const struct fci_clock *c);
uint32_t fci_clock_exact(const struct fci_clock *c);

FCI_INLINE uint64_t fci_clock_os(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
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

FCI_INLINE uint64_t fci_clock_tsc(const struct fci_clock *c)
{
	uint32_t seq;
	uint64_t tsc, ns, mult, now;

	do {
		/* A1 -> R1 (fci_clock_calibrate): the fields are at least as new as seq says. */
		seq = atomic_load_explicit(&c->seq, FCI_ACQ);
		/* A2 -> R2: acquire keeps the second look at seq behind them. */
		tsc = atomic_load_explicit(&c->tsc, FCI_ACQ);
		ns = atomic_load_explicit(&c->ns, FCI_ACQ);
		mult = atomic_load_explicit(&c->mult, FCI_ACQ);
		/* N1: an odd or changed seq means: again. Bounded by calibrations, four a second. */
	} while (fci_unlikely((seq & 1) || seq != atomic_load_explicit(&c->seq, FCI_RLX)));
	now = fci_tsc();
	/* Another CPU's counter may be a little behind the calibration's. */
	return now < tsc ? ns : ns + (uint64_t)(((fci_u128)(now - tsc) * mult) >> 32);
}

FCI_INLINE uint64_t fci_clock_read(const struct fci_clock *c, uint32_t kind)
{
	if (fci_likely(kind == FC_CLOCK_COARSE))
		return fci_clock_os(CLOCK_MONOTONIC_COARSE);
	if (kind == FC_CLOCK_TSC)
		return fci_clock_tsc(c);
	if (kind == FC_CLOCK_VIRTUAL)
		/* N2: a virtual clock says nothing about other memory. */
		return atomic_load_explicit(&c->virtual_ns, FCI_RLX);
	return fci_clock_os(CLOCK_MONOTONIC);
}

/* Exact, for measuring and for housekeeping. */
FCI_INLINE uint64_t fci_clock_now(const struct fci_clock *c)
{
	return fci_clock_read(c, fci_clock_exact(c));
}

#endif /* FCI_CLOCK_H */
