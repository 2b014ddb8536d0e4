/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * list.c - fc_in_flight(): a list of the oldest calls, made in the caller's own memory. The places
 * come in no order, so the list is a heap with the youngest on top while it is filled (who is younger
 * than that is left out), and is sorted at the end: O(places * log n), and no memory but the list.
 */
#include <errno.h>
#include <unistd.h>

#include "check.h"
#include "entry.h"
#include "list.h"

#define ELEMENT_V1_BYTES sizeof(struct fc_in_flight)

uint64_t fci_stuck_after(const struct fc_iface *f, const struct fci_view *v)
{
	uint32_t own = FCI_META_STUCK_MS(v->meta);

	/* N1: a setting. */
	return own ? FC_MS(own) : atomic_load_explicit(&f->block->config.stuck_after_ns, FCI_RLX);
}

uint32_t fci_list_limit(const struct fc_iface *f)
{
	/* N2: a number to be shown. */
	uint64_t gate = atomic_load_explicit(&f->gate->word, FCI_RLX);

	return gate & FCI_GATE_UNRULED ? FC_UNLIMITED : FCI_GATE_LIMIT(gate);
}

void fci_list_fill(const struct fc_iface *f, const struct fci_view *v, int written_off, uint64_t now,
                   struct fc_in_flight *ret)
{
	const struct fci_site *site = fci_site_at(f->fc, v->site);
	/* N2: a number to be shown. */
	uint64_t gate = atomic_load_explicit(&f->gate->word, FCI_RLX);

	ret->line = site->line;
	ret->iface = f->name;
	ret->file = site->file;
	ret->func = site->func;
	ret->start_ns = v->start;
	ret->age_ns = fci_age(v->start, now);
	ret->request_id = FCI_META_HAS_TAG(v->meta) ? v->tag : 0;
	ret->pid = (uint64_t)FCI_OWNER(v->word) << 3 == fci_me(f) ? (uint32_t)getpid() : 0;
	ret->tid = v->tid;
	ret->weight = FCI_META_WEIGHT(v->meta);
	ret->flags = fci_is_detached(v->word) ? FC_IN_FLIGHT_MOVED : 0;
	if (fci_overdue(f, v, now))
		ret->flags |= FC_IN_FLIGHT_OVERDUE;
	if (written_off)
		ret->flags |= FC_IN_FLIGHT_WRITTEN_OFF;
	else if ((gate & FCI_GATE_DRY_RUN) && fci_rank(f, v->slot) >= FCI_GATE_LIMIT(gate))
		ret->flags |= FC_IN_FLIGHT_OVER_LIMIT;
}

uint32_t fci_list_count(const struct fc_iface *f)
{
	uint32_t n = fci_writeoff_used(f), slots = fci_slots(f);

	for (uint32_t s = 0; s < slots; s++)
		/* N3: a count of the moment. */
		n += (uint32_t)fci_is_call(atomic_load_explicit(fci_word(f, s), FCI_RLX));
	return n;
}

/* ---- a heap in the caller's list --------------------------------------------------------------- */

/* The caller's elements may be larger than ours: a newer header. */
struct list {
	char *base;
	size_t stride;
	uint32_t n, have;
};

static struct fc_in_flight *at(const struct list *l, uint32_t i)
{
	return (struct fc_in_flight *)(void *)(l->base + i * l->stride);
}

static void swap(const struct list *l, uint32_t i, uint32_t j)
{
	struct fc_in_flight t = *at(l, i);

	*at(l, i) = *at(l, j);
	*at(l, j) = t;
}

static void sift_up(const struct list *l, uint32_t i)
{
	for (; i > 0 && at(l, (i - 1) / 2)->start_ns < at(l, i)->start_ns; i = (i - 1) / 2)
		swap(l, i, (i - 1) / 2);
}

static void sift_down(const struct list *l, uint32_t i, uint32_t n)
{
	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= n)
			return;
		if (child + 1 < n && at(l, child + 1)->start_ns > at(l, child)->start_ns)
			child++;
		if (at(l, i)->start_ns >= at(l, child)->start_ns)
			return;
		swap(l, i, child);
		i = child;
	}
}

static void offer(struct list *l, const struct fc_in_flight *one)
{
	if (l->have < l->n) {
		*at(l, l->have) = *one;
		sift_up(l, l->have++);
	} else if (l->n && one->start_ns < at(l, 0)->start_ns) {
		*at(l, 0) = *one;
		sift_down(l, 0, l->have);
	}
}

static void sort(const struct list *l)
{
	for (uint32_t n = l->have; n > 1; n--) {
		swap(l, 0, n - 1);
		sift_down(l, 0, n - 1);
	}
}

/* Written-off calls, after the others and in order among themselves. */
static uint32_t add_written_off(const struct fc_iface *f, struct list *l, struct fc_in_flight *one, uint64_t now)
{
	struct list rest = { .base = (char *)at(l, l->have), .stride = l->stride, .n = l->n - l->have };
	uint32_t total = 0;
	struct fci_view v;

	for (uint32_t i = 0; i < fci_writeoffs(f); i++) {
		if (!fci_writeoff_view(f, i, &v))
			continue;
		total++;
		fci_list_fill(f, &v, 1, now, one);
		offer(&rest, one);
	}
	sort(&rest);
	return total;
}

int fc_in_flight(const struct fc_iface *f, struct fc_in_flight *ret, uint32_t n)
{
	struct fc_in_flight one = { .size = 0 };
	struct list l = { .base = (char *)ret, .n = n };
	uint32_t total = 0, slots;
	struct fci_view v;
	uint64_t now;

	if (!fci_iface_ok(f) || (n && (!ret || ret->size < ELEMENT_V1_BYTES || ret->size % sizeof(uint64_t))))
		return -EINVAL;
	if (f->pass_through)
		return 0;
	l.stride = one.size = n ? ret->size : 0;
	now = fci_clock_now(&f->fc->clock);
	slots = fci_slots(f);
	for (uint32_t s = 0; s < slots; s++) {
		if (!fci_view(f, s, &v))
			continue;
		total++;
		fci_list_fill(f, &v, 0, now, &one);
		offer(&l, &one);
	}
	sort(&l);
	return (int)(total + add_written_off(f, &l, &one, now));
}
