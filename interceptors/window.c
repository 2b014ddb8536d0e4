/* SPDX-License-Identifier: BSD-2-Clause */
/* window.c - outcomes over a sliding window. See window.h. */
#include "window.h"

#define COUNT_BITS  WINDOW_COUNT_BITS
#define COUNT_MASK  ((1ull << COUNT_BITS) - 1)
#define STEP_MOST   6u
#define LATE_CALLS  7ull  /* a mask */
#define FEW_BAD     64u
#define BAD_BATCH   16u

uint64_t fci_window_bytes(uint32_t cpus)
{
	return (cpus < WINDOW_LANES_MAX ? cpus : WINDOW_LANES_MAX) * sizeof(struct window_lane);
}

void fci_window_make(struct window_numbers *m, uint64_t ns, uint32_t calls, uint32_t cpus)
{
	uint64_t slice = (UNITS_UP(ns) + WINDOW_SLOTS - 2) / (WINDOW_SLOTS - 1);

	m->lanes = cpus < WINDOW_LANES_MAX ? cpus : WINDOW_LANES_MAX;
	m->batch = 1;
	m->slices = WINDOW_SLOTS - 1;
	m->step = STEP_MOST;
	if (calls) {
		m->slice_calls = (calls + m->slices - 1) / m->slices;
		while (m->batch * 2 * m->lanes <= m->slice_calls / 8)
			m->batch *= 2;
		/* Small windows: fewer slices rather than more calls. */
		m->slices = (calls + m->slice_calls - 1) / m->slice_calls;
		return;
	}
	while (1u << m->step > slice)
		m->step--;
	m->kind = 1 + (uint32_t)(slice % 31);
	m->mult = UINT64_MAX / slice + 1; /* u is under 2^44, so that is exact */
}

/* ---- time -------------------------------------------------------------------------------------- */

/*
 * u is so far behind that the clock may have been set back. It was, if for 1 s nothing but such comes, and
 * 8 times at least: 1. What comes in time takes the suspicion back. `back`: the first one, and their number
 * in its low bits.
 */
static int set_back(struct window *w, uint64_t u)
{
	uint64_t back = get(&w->back), since = back >> 3;

	if (back == 0 || u < since) {
		(void)swap(&w->back, &back, u << 3 | 1);
		return 0;
	}
	if ((back & LATE_CALLS) < LATE_CALLS) {
		(void)swap(&w->back, &back, back + 1);
		return 0;
	}
	return u - since >= LATE_UNITS;
}

uint64_t fci_window_time(struct window *w, const struct window_numbers *m, uint64_t now_ns)
{
	uint64_t u = now_ns >> UNIT_SHIFT, newest = get(&w->newest);

	if (u >> m->step == newest >> m->step)
		return u > newest ? u : newest;
	while (u > newest)
		if (swap(&w->newest, &newest, u)) {
			if (get(&w->back) != 0)
				put(&w->back, 0);
			return u;
		}
	if (newest - u <= LATE_UNITS || !set_back(w, u))
		return newest;
	put(&w->back, 0);
	return swap(&w->newest, &newest, u) ? u : newest;
}

uint64_t fci_window_look(const struct window *w, uint64_t now_ns)
{
	uint64_t u = now_ns >> UNIT_SHIFT, newest = get(&w->newest);

	if (u >= newest)
		return u;
	return newest - u <= LATE_UNITS ? newest : 0;
}

int fci_window_due(struct window *w, uint64_t u)
{
	uint64_t last = get(&w->evaluated);
	int64_t ago = (int64_t)(u - last);

	if (ago < WINDOW_EVERY && ago >= -(int64_t)LATE_UNITS)
		return 0;
	return swap(&w->evaluated, &last, u);
}

/* ---- counting ---------------------------------------------------------------------------------- */

static uint64_t slice_of(const struct window *w, const struct window_numbers *m, uint64_t u)
{
	return m->kind ? window_slice(m, u) : get(&w->slice);
}

/* Returns the count with this one. */
static uint64_t add(uint64_t *counter, uint64_t tag)
{
	uint64_t was = get(counter);

	while (was >> COUNT_BITS != tag)
		if (swap(counter, &was, tag << COUNT_BITS | 1))
			return 1;
	/* N: a count. When another slice has begun meanwhile it counts there. */
	return (__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED) + 1) & COUNT_MASK;
}

/* By calls: a CPU's batch is full. Calls since ever say which slice it is; other numbers may say a lower one. */
static void tell(struct window *w, const struct window_numbers *m, uint64_t slice)
{
	/* N: a count. */
	uint64_t now = __atomic_add_fetch(&w->calls, m->batch, __ATOMIC_RELAXED) / m->slice_calls;

	if (now != slice)
		(void)swap(&w->slice, &slice, now);
}

int fci_window_count(struct window *w, const struct window_numbers *m, uint32_t cpu, uint32_t generation, uint64_t u,
                     int outcome)
{
	uint64_t slice = slice_of(w, m, u), tag = window_tag(m, generation, slice), n, bad = 0;
	uint32_t lane = cpu < m->lanes ? cpu : cpu % m->lanes;
	struct window_slot *s = &window_slots(w, lane)[slice % WINDOW_SLOTS];

	n = add(&s->total, tag);
	if (outcome & WINDOW_FAILED)
		bad = add(&s->failed, tag);
	if (outcome & WINDOW_SLOW) {
		uint64_t slow = add(&s->slow, tag);

		bad = bad && bad < slow ? bad : slow;
	}
	if (!m->kind && (n & (m->batch - 1)) == 0)
		tell(w, m, slice);
	return bad && (bad <= FEW_BAD || bad % BAD_BATCH == 0);
}

static uint64_t count_of(const uint64_t *counter, uint64_t tag)
{
	uint64_t v = get(counter);

	return v >> COUNT_BITS == tag ? v & COUNT_MASK : 0;
}

struct window_sum fci_window_sum(const struct window *w, const struct window_numbers *m, uint32_t generation,
                                 uint64_t u)
{
	struct window_sum sum = { 0, 0, 0 };
	uint64_t slice = slice_of(w, m, u);

	for (uint32_t i = 0; i <= m->slices && i <= slice; i++) {
		uint64_t tag = window_tag(m, generation, slice - i);

		for (uint32_t lane = 0; lane < m->lanes; lane++) {
			const struct window_slot *s = &window_slots(w, lane)[(slice - i) % WINDOW_SLOTS];
			uint64_t n = count_of(&s->total, tag);

			if (n == 0)
				continue;
			sum.total += n;
			sum.failed += count_of(&s->failed, tag);
			sum.slow += count_of(&s->slow, tag);
		}
	}
	return sum;
}
