/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keyed_table.c - what a call seldom needs of the table: the second bucket, the table before it grew, and a
 * place for a new key. keyed.c tells how.
 */
#include "keyed_table.h"

#define ENOUGH 4u /* free places in the first bucket: no need to look at the second */

static void find_buckets(struct key *k, uint32_t mask)
{
	k->bucket[0] = k->low & mask;
	k->bucket[1] = second(k->key << 20 | k->low, mask);
}

struct pair fci_keyed_was(const struct ask *a)
{
	struct key k = a->k;
	struct pair p;

	if (a->m->was == NULL)
		return nobody;
	find_buckets(&k, a->m->was_mask);
	for (uint32_t i = 0; i < 2 * WAYS; i++) {
		p = read_pair(place_at(a->m->was, index_of(&k, i)));
		if (KEY(p.a) == k.key && EPOCH(p.a) != CLAIMED)
			return p;
	}
	return nobody;
}

struct pair fci_keyed_fresh(const struct ask *a)
{
	struct pair p = fci_keyed_was(a);

	return (struct pair){ FIRST(a->k.key, 0, 0, PART(p.a)), p.b };
}

int64_t fci_keyed_find_far(struct ask *a, int64_t *ret_claim)
{
	find_buckets(&a->k, a->m->b_mask);
	for (uint32_t i = 0; i < 2 * WAYS; i++) {
		uint32_t index = index_of(&a->k, i);
		/* A1 -> X1 (pair.h): a claim or a place that is seen later is looked for again. */
		uint64_t first = __atomic_load_n(&place_at(a->h, index)->a, __ATOMIC_ACQUIRE);

		if (KEY(first) != a->k.key)
			continue;
		if (EPOCH(first) != CLAIMED)
			return index;
		*ret_claim = index;
	}
	return FULL;
}

/* ---- a new key --------------------------------------------------------------------------------- */

/* As a fresh one: whoever has it loses nothing by losing it. */
static int is_free(const struct made *m, struct pair p, uint64_t now)
{
	return EPOCH(p.a) != CLAIMED && owed(p, now) == 0 && (INSIDE(p.a) == 0 || lease_over(m, p, now));
}

/* A key's time that is further away than any numbers make it is of a clock that was set back. */
static struct pair bring_back(const struct ask *a, struct pair *at, struct pair p)
{
	uint64_t most = a->m->numbers.full >> FRAC, other = get(&a->h->most_ns);
	struct pair to = { p.a, a->now_ns + (most > other ? most : other) };

	if (EPOCH(p.a) == CLAIMED || p.b <= to.b + LATE_NS || !swap_pair(at, p, to))
		return p;
	return to;
}

/* Free places of a bucket: how many, and one of them. */
static uint32_t free_ways(const struct ask *a, uint32_t which, uint32_t *ret_index, struct pair *ret_was)
{
	uint32_t n = 0;

	for (uint32_t i = which * WAYS; i < (which + 1) * WAYS; i++) {
		uint32_t index = index_of(&a->k, i);
		struct pair p = bring_back(a, place_at(a->h, index), read_pair(place_at(a->h, index)));

		if (!is_free(a->m, p, a->now_ns))
			continue;
		*ret_index = index;
		*ret_was = p;
		n++;
	}
	return n;
}

/* A place for a new key; FULL: there is none. *ret_was: what it is now. */
static int64_t find_free(const struct ask *a, struct pair *ret_was)
{
	uint32_t index[2], n[2] = { 0, 0 };
	struct pair was[2];

	n[0] = free_ways(a, 0, &index[0], &was[0]);
	if (n[0] < ENOUGH)
		n[1] = free_ways(a, 1, &index[1], &was[1]);
	if (n[0] || n[1]) {
		*ret_was = was[n[1] > n[0]];
		return index[n[1] > n[0]];
	}
	/* Claims that somebody died over, or will make again. */
	for (uint32_t i = 0; i < 2 * WAYS; i++) {
		*ret_was = read_pair(place_at(a->h, index_of(&a->k, i)));
		if (EPOCH(ret_was->a) == CLAIMED)
			return index_of(&a->k, i);
	}
	return FULL;
}

/* Claim a place for the key. Index, or AGAIN, FULL. */
static int64_t claim_place(struct ask *a, struct pair *ret_claim)
{
	struct pair was;
	int64_t i = find_free(a, &was);
	uint32_t epoch;

	if (i < 0)
		return FULL;
	epoch = EPOCH(was.a) == CLAIMED ? was.b & 3 : next_epoch(EPOCH(was.a));
	/* N: a number that nobody else has. */
	ret_claim->b = (__atomic_fetch_add(&a->h->ticket, 1, __ATOMIC_RELAXED) + 1) << 2 | epoch;
	ret_claim->a = FIRST(a->k.key, 0, CLAIMED, 0);
	if (!swap_pair(place_at(a->h, (uint32_t)i), was, *ret_claim))
		return AGAIN;
	if (KEY(was.a) && EPOCH(was.a) != CLAIMED)
		count(&lane_of(a->c)->evicted);
	return i;
}

/* Is the claim the only place of its key? If not, the claim or the other is taken back. */
static int is_only(struct ask *a, uint32_t index, struct pair claim)
{
	for (uint32_t i = 0; i < 2 * WAYS; i++) {
		uint32_t other = index_of(&a->k, i);
		struct pair p;

		if (other == index)
			continue;
		p = read_pair(place_at(a->h, other));
		if (KEY(p.a) != a->k.key)
			continue;
		if (EPOCH(p.a) != CLAIMED || other < index) {
			(void)swap_pair(place_at(a->h, index), claim, nobody);
			return 0;
		}
		if (!swap_pair(place_at(a->h, other), p, nobody))
			return 0; /* it became a place, or ended: look again */
	}
	return 1;
}

int fci_keyed_take_new(struct ask *a, int64_t *index)
{
	struct pair claim;
	int set_back, rc = decide(a, fci_keyed_fresh(a), &set_back);

	if (rc)
		return rc;
	if (*index >= 0) {
		claim = read_pair(place_at(a->h, (uint32_t)*index));
		if (KEY(claim.a) != a->k.key || EPOCH(claim.a) != CLAIMED)
			return AGAIN;
	} else {
		*index = claim_place(a, &claim);
		if (*index < 0)
			return (int)*index;
	}
	if (!is_only(a, (uint32_t)*index, claim))
		return AGAIN;
	a->to.a |= (claim.b & 3) << 4; /* the epoch of a fresh one is 0 */
	if (!swap_pair(place_at(a->h, (uint32_t)*index), claim, a->to))
		return AGAIN;
	count(&lane_of(a->c)->inserted);
	return TAKEN;
}
