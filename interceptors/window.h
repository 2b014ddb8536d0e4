/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * window.h - outcomes of calls over a sliding window, of a time or of so many calls; and time that goes
 * on. What breaker and degrade decide by.
 *
 * The window is cut into slices: the current one and `slices` before it count. Each CPU counts on its
 * own lines. A counter is one word with the slice, the generation of the state and the kind of window it
 * is for: who finds another one there begins it anew by a compare-and-swap. So nothing has to be cleared
 * when a slice ends, when a breaker closes or when a rule gets another window; of two who begin a slice
 * one wins and the other adds to it; an addition that meets the end of its slice counts in the next one.
 *
 *   of a time    15 slices, rounded up to units: it reaches back over all of its length, and at most 1/15
 *                of it and 15 units further
 *   of calls     15 slices; a slice ends when its calls have come. CPUs tell the common count of them in
 *                batches, 1/8 of a slice in all at most
 *
 * Units.   2^20 ns. A counter left alone for 2^23 slices (17 hours of a window of 100 ms, 65 days of one of
 *          10 s) may be taken as one of now, if it is of the same generation modulo 256.
 * Cost.    count: one atomic addition on an own line, two when the call failed; of few calls one more
 *          on a common line. sum: 16 loads a CPU.
 */
#ifndef FC_WINDOW_H
#define FC_WINDOW_H

#include <fcguard/interceptor.h>
#include <fcguard/time.h>

#include "word.h" /* accesses are relaxed unless a label says more */

#define WINDOW_LINE      128u
#define WINDOW_SLOTS     16u
#define WINDOW_LANES_MAX 64u
#define UNIT_SHIFT       20u
#define LATE_UNITS       954u   /* 1 s: a now that is older than that may mean a clock set back */

#define UNITS_UP(ns_) (((ns_) + (1u << UNIT_SHIFT) - 1) >> UNIT_SHIFT)

enum window_outcome { WINDOW_GOOD = 0, WINDOW_FAILED = 1, WINDOW_SLOW = 2, WINDOW_NOTHING = 4 };

struct window_numbers {
	uint64_t mult;        /* slice = u * mult / 2^64 */
	uint32_t kind;        /* 0: by calls; else by the length of a slice, to tell one window from another */
	uint32_t slices;
	uint32_t step;        /* `newest` is that many units behind at most, as a shift */
	uint32_t slice_calls; /* by calls */
	uint32_t batch;       /* a power of two */
	uint32_t lanes;
};

struct window_slot {
	uint64_t total, failed, slow, resv;
};

struct window_lane {
	_Alignas(WINDOW_LINE) struct window_slot slot[WINDOW_SLOTS];
};

/* Lanes follow. */
struct window {
	_Alignas(WINDOW_LINE) uint64_t newest; /* now, in units, at most 64 of them behind */
	uint64_t back;      /* first now of a clock that seems set back, and how many; 0: none */
	uint64_t evaluated; /* when somebody last looked whether it is bad; units */
	uint64_t slice;     /* by calls: the current one */
	_Alignas(WINDOW_LINE) uint64_t calls; /* by calls: since ever */
};

struct window_sum {
	uint64_t total, failed, slow;
};

/* Numbers of a window of ns, or of calls if they are not 0. */
void fci_window_make(struct window_numbers *m, uint64_t ns, uint32_t calls, uint32_t cpus);
uint64_t fci_window_bytes(uint32_t cpus); /* of its lanes */

/* Time in units, that never goes back, unless the clock was set back. look: writes nothing; 0: let somebody
 * decide who may. */
uint64_t fci_window_time(struct window *w, const struct window_numbers *m, uint64_t now_ns);
uint64_t fci_window_look(const struct window *w, uint64_t now_ns);

/* The words of a counter: generation 8 | kind 5 | slice 23 | count 28. */
#define WINDOW_COUNT_BITS 28u
#define WINDOW_SLICE_MASK 0x7fffffull
#define WINDOW_EVERY      10 /* units from one look whether it is bad to the next */

__extension__ typedef unsigned __int128 window_wide;

static inline uint64_t window_tag(const struct window_numbers *m, uint32_t generation, uint64_t slice)
{
	return (uint64_t)(generation & 0xff) << 28 | (uint64_t)(m->kind & 31) << 23 | (slice & WINDOW_SLICE_MASK);
}

static inline uint64_t window_slice(const struct window_numbers *m, uint64_t u)
{
	return (uint64_t)((window_wide)u * m->mult >> 64);
}

static inline struct window_slot *window_slots(const struct window *w, uint32_t lane)
{
	return ((struct window_lane *)(void *)(w + 1))[lane].slot;
}

/* Count a good call where that is one addition and nothing else is due: 1. */
static inline int window_count_good(struct window *w, const struct window_numbers *m, uint32_t cpu, uint32_t generation,
                                    uint64_t now_ns)
{
	uint64_t u = now_ns >> UNIT_SHIFT, newest = get(&w->newest), slice;
	struct window_slot *s;
	int64_t ago;

	u = newest - u <= LATE_UNITS ? newest : u; /* clocks of several resolutions meet here */
	slice = window_slice(m, u);
	ago = (int64_t)(u - get(&w->evaluated)); /* a little under 0 after a look by a finer clock */
	if ((u ^ newest) >> m->step != 0 || ago >= WINDOW_EVERY || ago < -(int64_t)LATE_UNITS || !m->kind || cpu >= m->lanes)
		return 0;
	s = &window_slots(w, cpu)[slice % WINDOW_SLOTS];
	if (get(&s->total) >> WINDOW_COUNT_BITS != window_tag(m, generation, slice))
		return 0;
	/* N: a count. When another slice has begun meanwhile it counts there. */
	__atomic_fetch_add(&s->total, 1, __ATOMIC_RELAXED);
	return 1;
}

/* Count one outcome. 1: time to see whether it is too bad. */
int fci_window_count(struct window *w, const struct window_numbers *m, uint32_t cpu, uint32_t generation, uint64_t u,
                     int outcome);

/* Has nobody looked for some time? Who is told 1 does. */
int fci_window_due(struct window *w, uint64_t u);

struct window_sum fci_window_sum(const struct window *w, const struct window_numbers *m, uint32_t generation,
                                 uint64_t u);

#endif /* FC_WINDOW_H */
