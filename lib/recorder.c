/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recorder.c - the flight recorder, sampling, and the latency histogram's adding side.
 *
 * Sampling. A call is sampled when its number, scrambled, is at most a threshold; the threshold
 * starts at "every call". The sampler halves it when 256 samples came in under 128 ms and doubles
 * it when they took over 512 ms; housekeeping puts it back when traffic has gone (tick.c). So an
 * interface is sampled completely up to about 1000 calls a second, and about 1000 times a second
 * above. The scrambling (multiplication by the golden ratio) has no period that traffic could fall
 * in step with. Admissions and refusals are sampled apart, so a flood does not hide the others.
 *
 * The recorder is a ring of decisions per CPU row. Writers take a place by an atomic add (they are
 * rare by sampling); a place's sequence number is odd while it is written.
 */
#include <errno.h>
#include <stdlib.h>

#include "entry.h"

#define WINDOW     256u
#define SHORT_MS   128u
#define LONG_MS    512u
#define FLOOR      (UINT64_MAX >> 24) /* at least one of 16 million */

/* A row: a line with the place counter, then the decisions. */
struct row {
	FCI_ALIGNED fci_a64 head;
	FCI_ALIGNED struct fci_decision d[];
};

static struct row *row_at(const struct fc *fc, uint32_t cpu)
{
	size_t bytes = FCI_CACHELINE + (size_t)fc->geo.recorder_slots * sizeof(struct fci_decision);

	return (struct row *)(void *)(fc->seg + fc->geo.recorder + cpu * bytes);
}

uint64_t fci_recorder_bytes(uint32_t ncpus, uint32_t slots)
{
	return (uint64_t)(ncpus + 1) * (FCI_CACHELINE + (uint64_t)slots * sizeof(struct fci_decision));
}

/* Every WINDOW samples: how long did they take? N1: an approximation; two threads that meet here may
 * both adapt, which the next window mends. */
static void adapt(fci_a64 *window, fci_a64 *threshold, uint64_t now)
{
	uint32_t ms = (uint32_t)(now / 1000000), took;
	uint64_t w = atomic_fetch_add_explicit(window, 1, FCI_RLX) + 1, t;

	if ((uint32_t)w < WINDOW)
		return;
	if (!atomic_compare_exchange_strong_explicit(window, &w, (uint64_t)ms << 32, FCI_RLX, FCI_RLX))
		return;
	took = ms - (uint32_t)(w >> 32);
	t = atomic_load_explicit(threshold, FCI_RLX);
	if (took < SHORT_MS && t > FLOOR)
		atomic_store_explicit(threshold, t >> 1, FCI_RLX);
	else if (took > LONG_MS && took < UINT32_MAX / 2)
		atomic_store_explicit(threshold, t << 1 | 1, FCI_RLX);
}

static void record(struct fc_iface *f, int status, uint64_t detail, uint32_t shift, uint64_t now)
{
	struct fc *fc = f->fc;
	struct row *row = row_at(fc, fci_cpu_hint(fci_thread_self()) % fc->percpu.ncpus);
	/* N2: a place in turn. */
	uint64_t i = atomic_fetch_add_explicit(&row->head, 1, FCI_RLX);
	struct fci_decision *d = &row->d[i & (fc->geo.recorder_slots - 1)];
	/* N2: re-checked by the CAS. A writer that is stopped keeps its place; who comes by a lap later is lost. */
	uint64_t seq = atomic_load_explicit(&d->seq, FCI_RLX);

	/* X1: acquire: the last writer is done with the fields (R2). */
	if ((seq & 1) || seq > 2 * i || !atomic_compare_exchange_strong_explicit(&d->seq, &seq, 2 * i + 1, FCI_ACQ, FCI_RLX))
		return;
	/* R1 -> A1 (read_one): who sees a new field sees the odd number, or a later one. */
	atomic_store_explicit(&d->time_ns, now, FCI_REL);
	FC_TEST_POINT("recording");
	atomic_store_explicit(&d->what, (uint64_t)f->index << 32 | (uint32_t)status, FCI_REL);
	atomic_store_explicit(&d->detail, (detail & 0xffffff) << 40 | (uint64_t)(shift & 0xff) << 32 |
	                                  atomic_load_explicit(&fci_self.tid, FCI_RLX), FCI_REL);
	/* R2 -> A2 (read_one): complete. */
	atomic_store_explicit(&d->seq, 2 * i + 2, FCI_REL);
}

FCI_NOINLINE int fci_sampled(struct fc_iface *f, int status, uint64_t detail, uint64_t now)
{
	/* N1: a setting, and a rate. */
	int exact = atomic_load_explicit(&f->exact, FCI_RLX) == FC_LATENCY_EXACT;
	fci_a64 *threshold = status ? &f->gate->sample_refused : exact ? &f->block->rare.sample_exact : &f->gate->sample;
	uint64_t t = atomic_load_explicit(threshold, FCI_RLX);

	if (fci_self.cpu_at == &fci_self.cpu)
		(void)fci_thread_cpu_refresh(&fci_self);
	if (!now)
		now = fci_now(f);
	record(f, status, detail, (uint32_t)__builtin_clzll(t | 1), now);
	adapt(status ? &f->gate->sampled_refused : &f->gate->sampled, threshold, now);
	return status;
}

/* ---- reading ----------------------------------------------------------------------------------- */

int fci_recorder_read(const struct fc *fc, uint32_t row_index, uint32_t i, struct fc_record *ret)
{
	const struct fci_decision *d = &row_at(fc, row_index)->d[i & (fc->geo.recorder_slots - 1)];
	/* A2 -> R2 (record): the fields are at least as new. */
	uint64_t seq = atomic_load_explicit(&d->seq, FCI_ACQ), what, detail, shift;
	struct fc_iface *f;

	if (seq == 0 || (seq & 1))
		return 0;
	/* A1 -> R1 (record): acquire keeps the second look at seq behind the fields. */
	ret->time_ns = atomic_load_explicit(&d->time_ns, FCI_ACQ);
	what = atomic_load_explicit(&d->what, FCI_ACQ);
	detail = atomic_load_explicit(&d->detail, FCI_ACQ);
	if (atomic_load_explicit(&d->seq, FCI_RLX) != seq) /* N3: ordered by A1 */
		return 0;
	f = fc_iface_at((struct fc *)(uintptr_t)fc, (uint32_t)(what >> 32));
	shift = (detail >> 32) & 0xff;
	ret->size = sizeof(*ret);
	ret->status = (int32_t)(uint32_t)what;
	ret->iface = f ? f->name : "?";
	ret->in_flight_or_latency = detail >> 40;
	ret->tid = (uint32_t)detail;
	ret->one_of = shift < 32 ? 1u << shift : UINT32_MAX;
	return 1;
}

static int newer_first(const void *a, const void *b)
{
	const struct fc_record *x = a, *y = b;

	return x->time_ns < y->time_ns ? 1 : x->time_ns > y->time_ns ? -1 : 0;
}

/* Put one into the list of the n newest so far, unsorted when it is not full yet. */
static uint32_t keep(struct fc_record *list, uint32_t have, uint32_t n, const struct fc_record *one)
{
	uint32_t oldest = 0;

	if (have < n) {
		list[have] = *one;
		return have + 1;
	}
	for (uint32_t i = 1; i < n; i++)
		if (list[i].time_ns < list[oldest].time_ns)
			oldest = i;
	if (one->time_ns > list[oldest].time_ns)
		list[oldest] = *one;
	return have;
}

int fc_recorder(struct fc *fc, struct fc_record *list, uint32_t n)
{
	struct fc_record one;
	uint32_t have = 0;

	if (!fci_fc_ok(fc) || !fc->seg || (n && (!list || list[0].size != sizeof(*list))))
		return -EINVAL;
	for (uint32_t cpu = 0; n && cpu <= fc->percpu.ncpus; cpu++)
		for (uint32_t i = 0; i < fc->geo.recorder_slots; i++)
			if (fci_recorder_read(fc, cpu, i, &one))
				have = keep(list, have, n, &one);
	if (have)
		qsort(list, have, sizeof(*list), newer_first);
	return (int)have;
}
