/* SPDX-License-Identifier: BSD-2-Clause */
/* history.c - see history.h. */
#include "history.h"

#define PPM   1000000u
#define TRIES 16

static const struct {
	uint64_t width_ns; /* of a cell */
	uint32_t first, cells;
} rings[FCI_HISTORY_WINDOWS] = {
	{ FC_S(30), 0, 10 },
	{ FC_S(300), 10, 12 },
	{ FC_S(86400), 22, 30 },
};
_Static_assert(10 + 12 + 30 == FCI_HISTORY_CELLS, "all cells are in a ring");

/* pos of a ring: its newest cell, and above that the cell's number on the time line. Numbers wrap
 * after 15 years of 30 s cells and are compared by difference. */
#define PLACE_BITS   8
#define PLACE(pos_)  ((pos_) & ((1u << PLACE_BITS) - 1))
#define NUMBER(pos_) ((pos_) & ~((1u << PLACE_BITS) - 1))

static uint32_t number_at(int ring, uint64_t now)
{
	return (uint32_t)(now / rings[ring].width_ns) << PLACE_BITS;
}

/* Cells that end between the newest one of `pos` and now; all of them after a long time. */
static uint32_t steps_to(int ring, uint32_t pos, uint64_t last, uint64_t now)
{
	uint32_t cells = rings[ring].cells, steps;

	if (now <= last)
		return 0;
	if (now - last >= cells * rings[ring].width_ns)
		return cells;
	steps = (number_at(ring, now) - NUMBER(pos)) >> PLACE_BITS;
	return steps < cells ? steps : cells;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static void store(fci_a64 *cell, uint64_t v)
{
	/* R1 -> A1 (sum): who sees this value also sees seq odd, or later. */
	atomic_store_explicit(cell, v, FCI_REL);
}

static uint64_t load(fci_a64 *a)
{
	/* N1: only housekeeping writes. */
	return atomic_load_explicit(a, FCI_RLX);
}

static void turn(struct fci_history *h, int ring, uint64_t now)
{
	/* N1: only housekeeping writes. */
	uint32_t pos = atomic_load_explicit(&h->pos[ring], FCI_RLX), place = PLACE(pos);
	uint32_t steps = steps_to(ring, pos, load(&h->last_ns), now);

	for (; steps > 0; steps--) {
		place = (place + 1) % rings[ring].cells;
		store(&h->good[rings[ring].first + place], 0);
		store(&h->all[rings[ring].first + place], 0);
	}
	/* R1 -> A1 (sum). */
	atomic_store_explicit(&h->pos[ring], number_at(ring, now) | place, FCI_REL);
}

/* What a counter has grown by since the last tick. */
static uint64_t grown(fci_a64 *last, uint64_t total)
{
	uint64_t before = load(last);

	if (total < before && total >= before / 2)
		return 0;
	/* N1: only housekeeping reads it. */
	atomic_store_explicit(last, total, FCI_RLX);
	return total >= before ? total - before : 0;
}

static void add(struct fci_history *h, int ring, uint64_t good, uint64_t all)
{
	/* N1: only housekeeping writes. */
	uint32_t i = rings[ring].first + PLACE(atomic_load_explicit(&h->pos[ring], FCI_RLX)) % rings[ring].cells;

	store(&h->good[i], load(&h->good[i]) + good);
	store(&h->all[i], load(&h->all[i]) + all);
}

void fci_history_tick(struct fc_iface *f, uint64_t good_total, uint64_t all_total, uint64_t now)
{
	struct fci_history *h = &f->block->history;
	uint64_t good = grown(&h->last_good, good_total), all = grown(&h->last_all, all_total);
	/* N1: only housekeeping writes; odd already if its process was killed in here. */
	uint32_t seq = atomic_load_explicit(&h->seq, FCI_RLX) | 1;

	/* N2: ordered before the cells by each R1. */
	atomic_store_explicit(&h->seq, seq, FCI_RLX);
	for (int ring = 0; ring < FCI_HISTORY_WINDOWS; ring++) {
		turn(h, ring, now);
		if (good || all)
			add(h, ring, good, all);
	}
	store(&h->last_ns, now);
	/* R2 -> A2 (fci_history_ppm): the cells are complete. */
	atomic_store_explicit(&h->seq, seq + 1, FCI_REL);
}

/* ---- reading ----------------------------------------------------------------------------------- */

/* A1 -> R1: a newer cell, position or time makes the second look at seq see a newer seq. */
static void sum(struct fci_history *h, int ring, uint64_t now, uint64_t *good, uint64_t *all)
{
	uint32_t pos = atomic_load_explicit(&h->pos[ring], FCI_ACQ), cells = rings[ring].cells;
	uint32_t old = steps_to(ring, pos, atomic_load_explicit(&h->last_ns, FCI_ACQ), now);

	*good = *all = 0;
	for (uint32_t age = 0; age + old < cells; age++) {
		uint32_t i = rings[ring].first + (PLACE(pos) + cells - age) % cells;

		*good += atomic_load_explicit(&h->good[i], FCI_ACQ);
		*all += atomic_load_explicit(&h->all[i], FCI_ACQ);
	}
}

/* good / all in ppm, without an overflow. */
static uint32_t ppm_of(uint64_t good, uint64_t all)
{
	if (good >= all)
		return PPM;
	while (good > UINT64_MAX / PPM) {
		good >>= 1;
		all >>= 1;
	}
	return (uint32_t)(good * PPM / all);
}

uint32_t fci_history_ppm(const struct fc_iface *f, int which)
{
	struct fci_history *h = &f->block->history;
	uint64_t good = 0, all = 0, now = fci_clock_now(&f->fc->clock);

	if (which < 0 || which >= FCI_HISTORY_WINDOWS)
		return PPM;
	for (int tries = 0; tries < TRIES; tries++) {
		/* A2 -> R2. */
		uint32_t seq = atomic_load_explicit(&h->seq, FCI_ACQ);

		sum(h, which, now, &good, &all);
		/* N3: kept behind the cells by each A1. */
		if (!(seq & 1) && atomic_load_explicit(&h->seq, FCI_RLX) == seq)
			break;
	}
	return ppm_of(good, all);
}
