/* SPDX-License-Identifier: BSD-2-Clause */
/* drain.c - closing the doors and waiting for those inside. See fcguard/context.h. */
#include <errno.h>
#include <time.h>

#include "check.h"
#include "drain.h"
#include "inflight.h"
#include "limit.h"
#include "wait.h"

#define LOOK_NS FC_MS(1)

static void close_door(struct fc_iface *f)
{
	fci_gate_set(f, FCI_GATE_DRAINING, 0);
	fci_wait_look_again(f);
}

/* Calls that run: those in the queue and those written off. */
static uint32_t running(struct fc_iface *f)
{
	return fci_inside_count(f, UINT32_MAX, NULL) + fci_writeoff_used(f);
}

static uint32_t running_all(struct fc *fc, struct fc_iface *one)
{
	uint32_t n = 0;
	struct fc_iface *f;

	if (one)
		return running(one);
	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++)
		n += running(f);
	return n;
}

/* Waiting for people to leave is no hot path: look each millisecond. Real time counts, whatever the
 * context's clock. */
static int wait_empty(struct fc *fc, struct fc_iface *one, uint64_t timeout_ns)
{
	uint64_t start = fci_clock_os(CLOCK_MONOTONIC);
	uint32_t n;

	while ((n = running_all(fc, one)) != 0 && fci_clock_os(CLOCK_MONOTONIC) - start < timeout_ns)
		(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
	return (int)n;
}

int fc_drain(struct fc *fc, uint64_t timeout_ns)
{
	struct fc_iface *f;

	if (!fci_fc_ok(fc) || !fc->seg)
		return -EINVAL;
	/* Interfaces are made under the mutex, too: each sees the switch, or is seen here. */
	pthread_mutex_lock(&fc->setup);
	atomic_store_explicit(&fc->draining, 1, FCI_RLX); /* N1: for interfaces that are made from now on */
	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++)
		close_door(f);
	pthread_mutex_unlock(&fc->setup);
	return wait_empty(fc, NULL, timeout_ns);
}

void fc_undrain(struct fc *fc)
{
	struct fc_iface *f;

	if (!fci_fc_ok(fc) || !fc->seg)
		return;
	pthread_mutex_lock(&fc->setup);
	/* N1: as in fc_drain. */
	atomic_store_explicit(&fc->draining, 0, FCI_RLX);
	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++)
		fci_gate_set(f, 0, FCI_GATE_DRAINING);
	pthread_mutex_unlock(&fc->setup);
}

int fc_iface_drain(struct fc_iface *f, uint64_t timeout_ns)
{
	if (!fci_iface_real(f))
		return -EINVAL;
	close_door(f);
	return wait_empty(f->fc, f, timeout_ns);
}

void fc_iface_undrain(struct fc_iface *f)
{
	if (fci_iface_real(f))
		fci_gate_set(f, 0, FCI_GATE_DRAINING);
}

void fci_drain_reset(struct fc_iface *f)
{
	fci_gate_set(f, 0, FCI_GATE_DRAINING | FCI_GATE_DRAIN);
}
