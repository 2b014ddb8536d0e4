/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keyed_table.h - a key's place in the table, and whether a call may have it: what every call goes through is
 * here, so that it stands in one function. keyed_table.c has the rest. keyed.c tells how it all works.
 */
#ifndef FC_KEYED_TABLE_H
#define FC_KEYED_TABLE_H

#include <fcguard/err.h>
#include <fcguard/time.h>

#include "keyed_state.h"

#define LATE_NS FC_S(1)

/* Of a place's first word. */
#define CLAIMED   3u
#define KEY(a_)    ((a_) >> 20)
#define INSIDE(a_) ((uint32_t)((a_) >> 6) & FC_KEYED_CAP_MAX)
#define EPOCH(a_)  ((uint32_t)((a_) >> 4) & 3)
#define PART(a_)   ((uint32_t)(a_) & 15)
#define FIRST(key_, inside_, epoch_, part_) \
	((key_) << 20 | (uint64_t)(inside_) << 6 | (uint64_t)(epoch_) << 4 | (part_))

/* A call's key, and where it may be. */
struct key {
	uint64_t key;
	uint32_t low; /* the hash's other bits */
	uint32_t bucket[2];
};

/* All that a call knows. */
struct ask {
	struct fc_call *c;
	struct head *h;
	const struct made *m;
	const struct numbers *n;
	struct numbers own; /* *n, when it is not the default */
	struct key k;
	uint64_t now_ns;
	struct pair to; /* of its place, when it is admitted */
};

enum { TAKEN = -1, AGAIN = -2, FULL = -3 }; /* or a status: 0, or > 0 refused */

/* keyed_table.c. What a key has in the table before that grew; what it would have without a place. */
struct pair fci_keyed_was(const struct ask *a);
struct pair fci_keyed_fresh(const struct ask *a);

/* Index of the key's place, or FULL: it has none; then *ret_claim is a claim of it, or FULL. */
int64_t fci_keyed_find_far(struct ask *a, int64_t *ret_claim);

/* The key has no place. TAKEN: *index is one, with what the call takes; AGAIN, FULL, or > 0: refused. */
int fci_keyed_take_new(struct ask *a, int64_t *index);

INLINE struct key key_of(const struct head *h, uint32_t mask, uint64_t value)
{
	uint64_t hash = mix(value, h->seed);
	struct key k = { .key = hash >> 20, .low = (uint32_t)hash & 0xfffff };

	k.key += k.key == 0;
	k.bucket[0] = k.low & mask; /* the other one is seldom looked at */
	return k;
}

static inline uint32_t index_of(const struct key *k, uint32_t way)
{
	return k->bucket[way / WAYS] * WAYS + way % WAYS;
}

static inline struct pair *place_at(const struct head *h, uint32_t index)
{
	return &places_of(h)[index / WAYS].way[index % WAYS];
}

static inline struct lane *lane_of(const struct fc_call *c)
{
	return &((struct head *)c->state)->lane[c->cpu % LANES];
}

static inline int refuse(struct fc_call *c, uint64_t observed, uint64_t limit, uint64_t retry_ns)
{
	c->observed = observed;
	c->limit = limit;
	c->retry_after_ns = retry_ns;
	return FC_REFUSED_KEY;
}

/* Units until the bucket is full again. */
INLINE uint64_t owed(struct pair p, uint64_t now)
{
	uint64_t ns = p.b > now ? p.b - now : 0;

	if (p.b < now)
		return 0;
	return ns >= UNITS_MAX >> FRAC ? UNITS_MAX : ns << FRAC | PART(p.a);
}

static inline int lease_over(const struct made *m, struct pair p, uint64_t now)
{
	return INSIDE(p.a) && now > p.b && now - p.b > m->lease_ns;
}

static inline uint32_t next_epoch(uint32_t epoch)
{
	return epoch >= CLAIMED - 1 ? 0 : epoch + 1;
}

/* The call's time in units; more than anybody may owe: never. */
static inline uint64_t cost(const struct numbers *n, uint32_t weight)
{
	uint64_t units;

	return __builtin_mul_overflow(n->token, weight, &units) ? UINT64_MAX : units;
}

/*
 * May the call pass? 0: a->to is the place with what it takes; > 0: refused. *ret_set_back: what the place
 * says is of a clock that has been set back; a->to is what it should be, when the call is refused.
 */
INLINE int decide(struct ask *a, struct pair p, int *ret_set_back)
{
	const struct numbers *n = a->n;
	uint64_t owes = owed(p, a->now_ns), price, inside = INSIDE(p.a), others = 0;
	uint32_t epoch = EPOCH(p.a);

	*ret_set_back = owes > n->full + (LATE_NS << FRAC);
	if (*ret_set_back)
		owes = n->full;
	if (lease_over(a->m, p, a->now_ns)) {
		inside = 0;
		epoch = next_epoch(epoch);
	}
	a->to = (struct pair){ FIRST(a->k.key, inside, epoch, owes & 15), a->now_ns + (owes >> FRAC) };
	if (n->cap) {
		others = a->m->was ? INSIDE(fci_keyed_was(a).a) : 0;
		if (inside + others + a->c->weight > n->cap)
			return refuse(a->c, inside + others, n->cap, 0);
		inside += a->c->weight;
	}
	if (n->token) {
		price = cost(n, a->c->weight);
		if (price > n->full)
			return refuse(a->c, a->c->weight, n->burst, 0);
		if (owes > n->full - price)
			return refuse(a->c, owes / n->token, n->burst, (owes + price - n->full + 15) >> FRAC);
		owes += price;
	}
	a->to = (struct pair){ FIRST(a->k.key, inside, epoch, owes & 15), a->now_ns + (owes >> FRAC) };
	return 0;
}

/* In the first bucket without a branch for each place: which one it is nobody can foresee. */
INLINE int64_t find(struct ask *a, int64_t *ret_claim)
{
	const struct places *home = &places_of(a->h)[a->k.bucket[0]];
	uint32_t hits = 0, way;

	*ret_claim = FULL;
	for (uint32_t i = 0; i < WAYS; i++)
		hits |= (uint32_t)(KEY(get(&home->way[i].a)) == a->k.key) << i;
	way = hits ? (uint32_t)__builtin_ctz(hits) : 0;
	if (__builtin_expect(hits != 0 && EPOCH(get(&home->way[way].a)) != CLAIMED, 1))
		return a->k.bucket[0] * WAYS + way;
	return fci_keyed_find_far(a, ret_claim);
}

#endif /* FC_KEYED_TABLE_H */
