/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rate_window.c - the kinds of the rate interceptor that count in windows: fixed and sliding.
 *
 *   fixed     One word: number of the window, count. Windows are multiples of the period on the clock.
 *             Bound: n in each of them, so 2 n in a time of that length that has an edge in it.
 *   sliding   The period is cut into 128 slots. One word has the number of the newest slot, its count and
 *             that of the slot before; counts of older ones stand in a ring. A call is admitted when the
 *             counts of its slot and of the 128 before it leave room, all compared at once by the
 *             compare-and-swap of the word. They cover more than a period, so the bound is n in every
 *             window of its length, exactly; the price is that tokens come back up to a slot late.
 *
 * Closing a slot. The word moves on to a later slot by compare-and-swap; before that, whoever moves it has
 *   written both counts to the ring. A helper that was stopped on the way cannot spoil a later entry: it
 *   looks at the word after it has read the entry, and swaps from that. Entries are only raised.
 * Late calls are counted in the newest slot (`time` in the state, which moves before the word does).
 * Numbers of slots wrap in the word (16 bits) and in the ring (40 bits): after an idle time of exactly
 *   that length old counts may count once more, never less.
 * A reload that changes n keeps the counts; one that changes the period begins with new windows.
 * Cost.  Three atomics; each slot of a sliding window sums up 128 words once, and a refusal looks for
 *   the slot whose end makes room.
 */
#include "rate_state.h"

#define OLD_BITS   24u /* of a count in sliding windows */
#define OLD_MASK   ((1ull << OLD_BITS) - 1)
#define FIXED_MASK ((1ull << 48) - 1)
#define RING_MASK  ((1ull << 40) - 1) /* of a slot's number */

/* The word taken apart, as seen from a slot that is `age` later. */
struct window {
	uint64_t word;
	uint64_t now_ns;   /* newest */
	uint64_t slot;
	uint64_t count, before;
	uint32_t age;
	uint32_t behind;   /* the word is of a later slot */
};

static int is_sliding(const struct fc_call *c)
{
	return ((const struct fc_rate_conf *)c->conf)->kind == FC_RATE_SLIDING;
}

static uint64_t word_of(const struct fc_call *c, uint64_t slot, uint64_t before, uint64_t count)
{
	return slot << 48 | (is_sliding(c) ? before << OLD_BITS | count : count);
}

/* Time that only goes on; a slot's begin is never passed without `time`. */
static uint64_t steady(const struct fc_call *c)
{
	struct rate_state *s = c->state;
	uint64_t slot_ns = made_of(c->conf)->slot_ns, now = c->now_ns, time = get(&s->time), since;

	if (now >= time) {
		rate_in_time(s);
		while (time < now / slot_ns * slot_ns && !swap(&s->time, &time, now))
			;
		return now > time ? now : time;
	}
	if (time - now < LATE_NS || !rate_set_back(s, now, &since) || !swap(&s->time, &time, now))
		return time;
	rate_in_time(s);
	return now;
}

/* The same to look only. */
static uint64_t newest(const struct fc_call *c)
{
	uint64_t time = get(&((struct rate_state *)c->state)->time);

	return c->now_ns > time ? c->now_ns : time;
}

/* The word first, then the time: so the word is behind only if the clock was set back. */
static void look(const struct fc_call *c, uint64_t (*time_of)(const struct fc_call *c), struct window *w)
{
	const struct rate_state *s = c->state;
	int16_t age;

	/* A1 -> R1 (count_in): `time` is at least as new as the slot in the word, and the ring complete. */
	w->word = __atomic_load_n(&s->window, __ATOMIC_ACQUIRE);
	w->now_ns = time_of(c);
	w->slot = w->now_ns / made_of(c->conf)->slot_ns;
	age = (int16_t)(uint16_t)(w->slot - (w->word >> 48));
	w->behind = age < 0;
	w->age = age < 0 ? UINT16_MAX : (uint32_t)age;
	w->count = is_sliding(c) ? w->word & OLD_MASK : w->word & FIXED_MASK;
	w->before = is_sliding(c) ? w->word >> OLD_BITS & OLD_MASK : 0;
}

/* ---- the ring ---------------------------------------------------------------------------------- */

static uint64_t age_in_ring(uint64_t slot, uint64_t entry)
{
	return (slot - (entry >> OLD_BITS)) & RING_MASK;
}

/* Count of a slot that the ring has; 0: none. */
static uint64_t ring_count(const struct rate_state *s, uint64_t slot)
{
	uint64_t entry = get(&s->slot[slot % SLOTS]);

	return age_in_ring(slot, entry) == 0 ? entry & OLD_MASK : 0;
}

static uint64_t ring_sum(const struct rate_state *s, uint64_t slot, uint32_t youngest)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < SLOTS; i++) {
		uint64_t entry = get(&s->slot[i]), age = age_in_ring(slot, entry);

		if (age >= youngest && age <= SLOTS)
			sum += entry & OLD_MASK;
	}
	return sum;
}

/*
 * Counts that stand in the ring, as seen from the slot. While the word is at that slot they do not grow
 * any more, so their sum is kept for the next call. (check does so too: a cache says nothing new.)
 */
static uint64_t older(struct rate_state *s, const struct window *w)
{
	uint64_t kept = get(&s->older), sum;

	if (w->age == 0 && kept >> OLD_BITS == (w->slot & RING_MASK) && kept != 0)
		return kept & OLD_MASK;
	sum = ring_sum(s, w->slot, w->age + 2);
	if (w->age == 0)
		put(&s->older, (w->slot & RING_MASK) << OLD_BITS | (sum > OLD_MASK ? OLD_MASK : sum));
	return sum;
}

/* Count of the slot that is so old, wherever it stands. */
static uint64_t count_at(const struct rate_state *s, const struct window *w, uint32_t age)
{
	if (age == w->age)
		return w->count;
	if (age == w->age + 1)
		return w->before;
	return age > w->age ? ring_count(s, w->slot - age) : 0;
}

/* What counts against the limit. */
static uint64_t used(const struct fc_call *c, const struct window *w)
{
	uint64_t sum = 0;

	if (!is_sliding(c))
		return w->age == 0 ? w->count : 0;
	if (w->behind)
		return 0;
	if (w->age <= SLOTS)
		sum = w->count;
	if (w->age + 1 <= SLOTS)
		sum += w->before + older(c->state, w);
	return sum;
}

/* When the oldest slots that must end for it have ended. */
static uint64_t retry_ns(const struct fc_call *c, const struct window *w, uint64_t over)
{
	uint64_t slot_ns = made_of(c->conf)->slot_ns, freed = 0, end;
	uint32_t age = SLOTS;

	if (!is_sliding(c))
		return (w->slot + 1) * slot_ns - w->now_ns;
	while (age > 0 && (freed += count_at(c->state, w, age)) < over)
		age--;
	end = (w->slot - age + SLOTS + 1) * slot_ns;
	return end > w->now_ns ? end - w->now_ns : 0;
}

static int full(struct fc_call *c, const struct window *w, uint64_t sum)
{
	uint64_t n = ((const struct fc_rate_conf *)c->conf)->limit.n;

	if (c->weight > n)
		return refuse(c, c->weight, n, 0);
	if (sum <= n && c->weight <= n - sum)
		return 0;
	return refuse(c, sum, n, retry_ns(c, w, sum + c->weight - n));
}

int fci_rate_window_check(struct fc_call *c)
{
	struct rate_state *s = c->state;
	uint64_t time = get(&s->time), now = c->now_ns;
	struct window w;

	if (now < time && time - now >= LATE_NS)
		return 0; /* set back, or late: pre finds out */
	look(c, newest, &w);
	return w.behind ? 0 : full(c, &w, used(c, &w));
}

/* Write a count to the ring while the word is still the same. 0: it is not. */
static int close_slot(struct rate_state *s, const struct window *w, uint32_t age, uint64_t count)
{
	uint64_t slot = w->slot - age, *at = &s->slot[slot % SLOTS], entry;
	int done;

	/* A2 -> R1 (count_in): acquire, here and when the swap fails: the look at the word comes later. */
	entry = __atomic_load_n(at, __ATOMIC_ACQUIRE);
	do {
		if (get(&s->window) != w->word)
			return 0;
		if (age_in_ring(slot, entry) == 0 && (entry & OLD_MASK) >= count)
			return 1;
		done = __atomic_compare_exchange_n(at, &entry, (slot & RING_MASK) << OLD_BITS | count, 0,
		                                   __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE);
	} while (!done);
	return 1;
}

/* The word counts the call: in its slot, or in the first of a later one. */
static int count_in(struct fc_call *c, struct window *w)
{
	struct rate_state *s = c->state;
	uint64_t before = 0, count = c->weight;

	if (w->age == 0) {
		before = w->before;
		count += w->count;
	} else if (is_sliding(c) && !w->behind) {
		if (!close_slot(s, w, w->age + 1, w->before) ||
		    (w->age > 1 && !close_slot(s, w, w->age, w->count)))
			return 0;
		before = w->age == 1 ? w->count : 0;
	}
	/* R1 -> A1, A2 (look, close_slot): `time` and the ring before the slot that needs them. */
	return __atomic_compare_exchange_n(&s->window, &w->word, word_of(c, w->slot, before, count), 0,
	                                   __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

int fci_rate_window_take(struct fc_call *c, uint32_t *at)
{
	struct window w;

	/* Again only when somebody else changed the word: lock-free. */
	do {
		int rc;

		look(c, steady, &w);
		rc = full(c, &w, used(c, &w));
		if (rc)
			return rc;
	} while (!count_in(c, &w));
	*at = (uint32_t)(w.slot & UINT16_MAX);
	return 0;
}

/* Less, but not below zero: the field at `shift`. */
static uint64_t less(uint64_t word, uint32_t shift, uint64_t mask, uint64_t n)
{
	uint64_t count = word >> shift & mask;

	return word - ((count < n ? count : n) << shift);
}

/* From where the call's count stands now; nowhere: its window is over. */
void fci_rate_window_give(struct fc_call *c, uint32_t at)
{
	struct rate_state *s = c->state;
	uint64_t mask = is_sliding(c) ? OLD_MASK : FIXED_MASK, *entry = &s->slot[at % SLOTS];
	/* N: see rate_state.h; the swap decides. */
	uint64_t word = get(&s->window), to;

	do {
		uint32_t age = ((uint32_t)(word >> 48) - at) & UINT16_MAX;

		if (age != 0 && (age != 1 || !is_sliding(c)))
			break;
		to = less(word, age ? OLD_BITS : 0, mask, c->weight);
		/* R1 -> A1: it hands on what the last one released. */
		if (__atomic_compare_exchange_n(&s->window, &word, to, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			return;
	} while (1);
	if (!is_sliding(c))
		return;
	word = get(entry);
	while ((word >> OLD_BITS & UINT16_MAX) == at && !swap(entry, &word, less(word, 0, OLD_MASK, c->weight)))
		;
	put(&s->older, 0);
}

uint64_t fci_rate_window_used(struct fc_call *c)
{
	struct window w;

	look(c, newest, &w);
	return used(c, &w);
}
