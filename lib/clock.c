/* SPDX-License-Identifier: BSD-2-Clause */
/* clock.c - which clocks can be trusted, and the rate of the TSC. See clock.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "context.h"

#define CALIBRATE_NS     10000000u   /* first measurement: 10 ms apart in the worst case */
#define RECHECK_NS       250000000u
#define DISTRUST_PPM     2000u       /* NTP slews by 500 at most */

/* Does the CPU promise a counter of constant rate that never stops? */
static int tsc_promised(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
#elif defined(__aarch64__)
	return 1;
#else
	return 0;
#endif
}

#ifdef FC_TEST_POINTS
/* A test's own counter and kernel's clock. */
void (*fci_test_clocks)(uint64_t *tsc, uint64_t *ns);
#endif

/* TSC and CLOCK_MONOTONIC of one moment: the closest of a few tries. */
static void read_pair(uint64_t *tsc, uint64_t *ns)
{
	uint64_t best = UINT64_MAX;

#ifdef FC_TEST_POINTS
	if (fci_test_clocks) {
		fci_test_clocks(tsc, ns);
		return;
	}
#endif
	for (int i = 0; i < 5; i++) {
		uint64_t t0 = fci_tsc(), n = fci_clock_os(CLOCK_MONOTONIC), t1 = fci_tsc();

		if (t1 - t0 < best) {
			best = t1 - t0;
			*tsc = t0 + (t1 - t0) / 2;
			*ns = n;
		}
	}
}

static void publish(struct fci_clock *c, uint64_t tsc, uint64_t ns, uint64_t mult)
{
	/* N1: one writer; ordered by R2. */
	atomic_store_explicit(&c->tsc, 0, FCI_RLX);
	/* R2 -> A2 (fci_clock_now): who sees a new field sees that there is none, or a later set. */
	atomic_store_explicit(&c->ns, ns, FCI_REL);
	atomic_store_explicit(&c->mult, mult, FCI_REL);
	/* R1 -> A1 (fci_clock_now): the fields are complete. */
	atomic_store_explicit(&c->tsc, tsc, FCI_REL);
}

static uint64_t rate(uint64_t ns, uint64_t ticks)
{
	return ticks ? (uint64_t)(((fci_u128)ns << 32) / ticks) : 0;
}

void fci_clock_init(struct fci_clock *c, uint32_t kind)
{
	uint64_t t0 = 0, n0 = 0, t1, n1;

	c->kind = kind;
	if (kind == FC_CLOCK_VIRTUAL || kind == FC_CLOCK_COARSE || kind == FC_CLOCK_MONOTONIC || !tsc_promised())
		return;
	read_pair(&t0, &n0);
	do {
		read_pair(&t1, &n1);
	} while (n1 - n0 < CALIBRATE_NS / 20); /* half a millisecond: good to 100 ppm */
	c->check_ns = n1 + RECHECK_NS;
	if (t1 <= t0)
		return;
	publish(c, t1, n1, rate(n1 - n0, t1 - t0));
	/* N3: a switch; readers that miss it read the kernel's clock. */
	atomic_store_explicit(&c->tsc_ok, 1, FCI_RLX);
}

/* N1, N3: this thread is the only writer. */
uint64_t fci_clock_calibrate(struct fci_clock *c)
{
	uint64_t tsc, ns, old_tsc, old_ns, old_mult, mult, ppm;

	if (!atomic_load_explicit(&c->tsc_ok, FCI_RLX))
		return 0;
	read_pair(&tsc, &ns);
	if (ns < c->check_ns)
		return 0;
	old_tsc = atomic_load_explicit(&c->tsc, FCI_RLX);
	old_ns = atomic_load_explicit(&c->ns, FCI_RLX);
	old_mult = atomic_load_explicit(&c->mult, FCI_RLX);
	mult = tsc > old_tsc && ns > old_ns ? rate(ns - old_ns, tsc - old_tsc) : 0;
	ppm = mult > old_mult ? (mult - old_mult) * 1000000u / old_mult : (old_mult - mult) * 1000000u / old_mult;
	c->check_ns = ns + RECHECK_NS;
	if (ppm > DISTRUST_PPM) {
		atomic_store_explicit(&c->tsc_ok, 0, FCI_RLX);
		atomic_store_explicit(&c->tsc, 0, FCI_RLX);
		return ppm;
	}
	publish(c, tsc, ns, mult);
	return 0;
}

uint32_t fci_clock_coarse(const struct fci_clock *c)
{
	if (c->kind == FC_CLOCK_AUTO)
		return FC_CLOCK_COARSE;
	return c->kind == FC_CLOCK_TSC ? fci_clock_exact(c) : c->kind;
}

void fci_clock_sleep(const struct fci_clock *c, uint64_t ns)
{
	/* A virtual clock is moved by somebody else: look at it now and then. */
	uint64_t slice = c->kind == FC_CLOCK_VIRTUAL ? FC_MS(1) : ns;
	struct timespec t = { .tv_sec = (time_t)(slice / 1000000000u), .tv_nsec = (long)(slice % 1000000000u) };

	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, NULL);
}

uint64_t fci_clock_coarse_ns(void)
{
	struct timespec t = { 0, 0 };

	clock_getres(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint32_t fci_clock_exact(const struct fci_clock *c)
{
	if (c->kind == FC_CLOCK_VIRTUAL)
		return FC_CLOCK_VIRTUAL;
	/* N3: a switch. */
	return atomic_load_explicit(&c->tsc_ok, FCI_RLX) ? FC_CLOCK_TSC : FC_CLOCK_MONOTONIC;
}

FCI_NOINLINE uint64_t fci_clock_slow(const struct fci_clock *c)
{
	if (c->kind == FC_CLOCK_VIRTUAL)
		/* N2: a virtual clock says nothing about other memory. */
		return atomic_load_explicit(&c->virtual_ns, FCI_RLX);
	return fci_clock_os(CLOCK_MONOTONIC);
}

uint64_t fc_now_ns(struct fc *fc)
{
	return fci_fc_ok(fc) ? fci_clock_now(&fc->clock) : 0;
}

int fc_clock_set(struct fc *fc, uint64_t now_ns)
{
	struct fc_iface *f;

	if (!fci_fc_ok(fc) || fc->clock.kind != FC_CLOCK_VIRTUAL)
		return -EINVAL;
	/* N2: says nothing about other memory. A look at the clock that was set is of no use any more. */
	atomic_store_explicit(&fc->head->ticked_ns, now_ns, FCI_RLX);
	if (atomic_exchange_explicit(&fc->clock.virtual_ns, now_ns, FCI_RLX) <= now_ns)
		return 0;
	/* N2: it went back: the next check would be far off. */
	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++)
		atomic_store_explicit(&f->gate->next_check, 0, FCI_RLX);
	return 0;
}

int fc_clock_advance(struct fc *fc, uint64_t delta_ns)
{
	if (!fci_fc_ok(fc) || fc->clock.kind != FC_CLOCK_VIRTUAL)
		return -EINVAL;
	/* N2: says nothing about other memory. */
	atomic_fetch_add_explicit(&fc->clock.virtual_ns, delta_ns, FCI_RLX);
	return 0;
}
