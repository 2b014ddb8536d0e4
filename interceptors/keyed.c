/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keyed.c - a rate and a cap for each value of a label, in a table of fixed size. See keyed.h.
 *
 * Rate.    GCRA: a place has the time at which its bucket will be full again. A call moves it on by its
 *          weight in tokens' times, and is refused if that would be more than `burst` of them away.
 * Place.   Two words, changed at once: 44 bits of the key's hash, calls inside, epoch, 1/16 ns; and the
 *          time. A place whose time is over and that has nobody inside is as a fresh one: it is free,
 *          whoever had it. So taking a place from an idle key and admitting a call are compare-and-swaps of
 *          the same pair, and cannot both succeed: nothing is forgiven, whoever stops where.
 * Finding. 8 places in each of two buckets; a new key goes to the first while that has room, then to the
 *          one that has more.
 * A new key. Two callers must not give one key two places. A place is claimed (epoch CLAIMED, with a ticket
 *          that no other claim has), then all 16 are looked through. Another place that has the key: the
 *          claim is taken back. Another claim for it: the one in front goes on, the other is taken back,
 *          whoever does it. None: the claim becomes the place, with the first call's tokens taken already.
 *          Of two claims at least one caller sees the other's (X1), and a claim that has been taken back
 *          cannot become a place, since its ticket is gone: so one remains. Whoever meets a claim of his
 *          key finishes it; nobody waits for one who was stopped.
 * Time.    A late now finds its key's time further away: it is refused rather. The clock may be set back: if
 *          nothing but calls of more than LATE_NS ago comes for LATE_NS it was. Then times that are
 *          further away than burst and LATE_NS are brought to burst: empty, but not locked out.
 * Leases.  With a cap, the time of a place is that of its key's last call at least: when that was lease_ns
 *          ago, those inside are lost. Its epoch goes on, so that one who ends late gives nothing back.
 *
 * Units.   ns, and 1/16 ns, the unit of tokens' times: rounded up, a token of 62 ns by at most 0.1 %.
 * Bounds.  burst + limit * t in any t; cap: both exactly, also while keys are evicted and numbers changed.
 * Cost.    A call that is admitted: two lines that only calls of the same 8 keys write, read-mostly ones,
 *          and one compare-and-swap; with a cap another one at the end. A refusal only looks.
 * Source.  GCRA: ITU-T I.371. Two buckets: Azar, Broder, Karlin, Upfal, Balanced Allocations (1994).
 */
#include <errno.h>
#include <stdio.h>

#include <fcguard/err.h>
#include <fcguard/time.h>

#include "keyed_state.h"

#define LATE_NS   FC_S(1)
#define NEWEST_NS FC_MS(64)
#define ENOUGH    4u    /* free places in the first bucket: no need to look at the second */
#define ROUNDS    1000u /* of looking for a place: each means that another caller got on */

/* Of a place's first word. */
#define KEY_BITS  44u
#define CLAIMED   3u
#define KEY(a_)    ((a_) >> 20)
#define INSIDE(a_) ((uint32_t)((a_) >> 6) & FC_KEYED_CAP_MAX)
#define EPOCH(a_)  ((uint32_t)((a_) >> 4) & 3)
#define PART(a_)   ((uint32_t)(a_) & 15)
#define FIRST(key_, inside_, epoch_, part_) \
	((key_) << 20 | (uint64_t)(inside_) << 6 | (uint64_t)(epoch_) << 4 | (part_))

/* Cells. 0: index of the place + 1 (23 bits), its epoch (2), bits of its key (7); 0: nothing is held.
 * 1: packed token, to undo by, and what was taken. */
#define CELL_KEY(key_) ((uint32_t)((key_) & 0x7f))
#define TOOK_RATE (1u << 30)
#define TOOK_CAP  (1u << 31)

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

static void find_buckets(struct key *k, uint32_t mask)
{
	k->bucket[0] = k->low & mask;
	k->bucket[1] = second(k->key << 20 | k->low, mask);
}

INLINE struct key key_of(const struct head *h, uint32_t mask, uint64_t value)
{
	uint64_t hash = mix(value, h->seed);
	struct key k = { .key = hash >> 20, .low = (uint32_t)hash & 0xfffff };

	k.key += k.key == 0;
	k.bucket[0] = k.low & mask; /* the other one is seldom looked at: find_far */
	return k;
}

static uint32_t index_of(const struct key *k, uint32_t way)
{
	return k->bucket[way / WAYS] * WAYS + way % WAYS;
}

static struct pair *place_at(const struct head *h, uint32_t index)
{
	return &places_of(h)[index / WAYS].way[index % WAYS];
}

static struct lane *lane_of(const struct fc_call *c)
{
	return &((struct head *)c->state)->lane[c->cpu % LANES];
}

static int refuse(struct fc_call *c, uint64_t observed, uint64_t limit, uint64_t retry_ns)
{
	c->observed = observed;
	c->limit = limit;
	c->retry_after_ns = retry_ns;
	return FC_REFUSED_KEY;
}

/* ---- time -------------------------------------------------------------------------------------- */

/* Long before what has been seen: a late call, or the clock was set back. */
static int is_behind(const struct head *h, uint64_t now)
{
	uint64_t newest = get(&h->newest);

	return now < newest && newest - now > LATE_NS;
}

static uint64_t behind(struct head *h, uint64_t now)
{
	uint64_t back = get(&h->back), newest = get(&h->newest);

	if (back == 0 || now < back)
		(void)swap(&h->back, &back, now ? now : 1);
	else if (now - back >= LATE_NS && swap(&h->newest, &newest, now))
		put(&h->back, 0);
	else
		return newest;
	return get(&h->newest);
}

/* Time that a call goes by. */
INLINE uint64_t steady(struct head *h, uint64_t now)
{
	uint64_t newest = get(&h->newest);

	if (__builtin_expect(now < newest && newest - now > LATE_NS, 0))
		return behind(h, now);
	if (__builtin_expect(now > newest && now - newest > NEWEST_NS, 0))
		(void)swap(&h->newest, &newest, now);
	if (__builtin_expect(get(&h->back) != 0, 0))
		put(&h->back, 0);
	return now;
}

/* ---- one place --------------------------------------------------------------------------------- */

/* Units until the bucket is full again. */
INLINE uint64_t owed(struct pair p, uint64_t now)
{
	uint64_t ns = p.b > now ? p.b - now : 0;

	if (p.b < now)
		return 0;
	return ns >= UNITS_MAX >> FRAC ? UNITS_MAX : ns << FRAC | PART(p.a);
}

static int lease_over(const struct made *m, struct pair p, uint64_t now)
{
	return INSIDE(p.a) && now > p.b && now - p.b > m->lease_ns;
}

static uint32_t next_epoch(uint32_t epoch)
{
	return epoch >= CLAIMED - 1 ? 0 : epoch + 1;
}

/* As a fresh one: whoever has it loses nothing by losing it. */
static int is_free(const struct made *m, struct pair p, uint64_t now)
{
	return EPOCH(p.a) != CLAIMED && owed(p, now) == 0 && (INSIDE(p.a) == 0 || lease_over(m, p, now));
}

/* The call's time in units; more than anybody may owe: never. */
static uint64_t cost(const struct numbers *n, uint32_t weight)
{
	uint64_t units;

	return __builtin_mul_overflow(n->token, weight, &units) ? UINT64_MAX : units;
}

/* ---- deciding ---------------------------------------------------------------------------------- */

/* Of the table before it grew: what this key has there. */
static struct pair was_place(const struct ask *a)
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

/* What a key without a place would have. */
static struct pair fresh(const struct ask *a)
{
	struct pair p = was_place(a);

	return (struct pair){ FIRST(a->k.key, 0, 0, PART(p.a)), p.b };
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
		others = a->m->was ? INSIDE(was_place(a).a) : 0;
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

/* Index of the key's place, or FULL: it has none; then *ret_claim is a claim of it, or FULL. */
static __attribute__((__noinline__)) int64_t find_far(struct ask *a, int64_t *ret_claim)
{
	find_buckets(&a->k, a->m->b_mask);
	for (uint32_t i = 0; i < 2 * WAYS; i++) {
		uint32_t index = index_of(&a->k, i);
		/* A1 -> X1 (keyed_state.h): a claim or a place that is seen later is looked for again. */
		uint64_t first = __atomic_load_n(&place_at(a->h, index)->a, __ATOMIC_ACQUIRE);

		if (KEY(first) != a->k.key)
			continue;
		if (EPOCH(first) != CLAIMED)
			return index;
		*ret_claim = index;
	}
	return FULL;
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
	return find_far(a, ret_claim);
}

/* ---- a new key --------------------------------------------------------------------------------- */

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

/* The key has no place. TAKEN: *index is one, with what the call takes; AGAIN, FULL, or > 0: refused. */
static __attribute__((__noinline__)) int take_new(struct ask *a, int64_t *index)
{
	struct pair claim;
	int set_back, rc = decide(a, fresh(a), &set_back);

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

/* ---- a call ------------------------------------------------------------------------------------ */

static int overflow(struct fc_call *c)
{
	count(&lane_of(c)->overflows);
	return ((const struct fc_keyed_conf *)c->conf)->overflow == FC_KEYED_REFUSE ? refuse(c, 0, 0, 0) : 0;
}

static int without(struct fc_call *c)
{
	count(&lane_of(c)->without);
	return ((const struct fc_keyed_conf *)c->conf)->without == FC_KEYED_WITHOUT_REFUSE ? refuse(c, 0, 0, 0) : 0;
}

/* Whose call it is. 0: nobody's. */
static int value_of(const struct fc_call *c, uint64_t *ret_value)
{
	const struct fc_keyed_conf *conf = c->conf;
	const struct fc_label *l = fc_ctx_label(c->ctx, made_of(conf)->label);

	*ret_value = l ? l->value : 0;
	return l != NULL || conf->without == FC_KEYED_WITHOUT_SHARED;
}

/* Numbers and key. 0: nothing limits it. */
INLINE int ask(struct ask *a, struct fc_call *c, uint64_t value)
{
	a->c = c;
	a->h = c->state;
	a->m = made_of(c->conf);
	a->n = &a->m->numbers;
	a->k = key_of(a->h, a->m->b_mask, value);
	a->now_ns = c->now_ns;
	if (__builtin_expect(get(&a->h->overriding) != 0, 0) && fci_keyed_find(a->h, a->m, value, &a->own))
		a->n = &a->own;
	return a->n->token || a->n->cap || a->n->deny;
}

/* Would the call be refused now? */
static __attribute__((__noinline__)) int look(struct fc_call *c, uint64_t value)
{
	int64_t index, claim;
	struct ask a;
	struct pair p;
	int set_back = 0, rc = 0;

	if (!ask(&a, c, value))
		return 0;
	if (a.n->deny)
		return refuse(c, 0, 0, 0);
	if (is_behind(a.h, a.now_ns))
		return 0; /* pre finds out */
	index = find(&a, &claim);
	p = index >= 0 ? read_pair(place_at(a.h, (uint32_t)index)) : fresh(&a);
	if (KEY(p.a) == a.k.key && EPOCH(p.a) != CLAIMED)
		rc = decide(&a, p, &set_back);
	return set_back ? 0 : rc;
}

/*
 * A look costs as much as an admission, and hardly any call is refused. So pre notes whom it refuses, and
 * check looks only for them: from the second refusal on a key that floods takes no place in the queue.
 */
static uint64_t *note_of(struct fc_call *c, uint64_t value)
{
	return &((struct head *)c->state)->refused[value % NOTES];
}

static int keyed_check(struct fc_call *c)
{
	uint64_t value;
	int rc;

	if (!value_of(c, &value) || __builtin_expect(get(note_of(c, value)) != value, 1))
		return 0;
	rc = look(c, value);
	if (rc == 0)
		put(note_of(c, value), ~value);
	return rc;
}

/* TAKEN, AGAIN, FULL, or > 0: refused. */
INLINE int try_take(struct ask *a, int64_t *index)
{
	struct pair p, *at;
	int64_t claim;
	int set_back, rc;

	*index = find(a, &claim);
	if (__builtin_expect(*index < 0, 0)) {
		*index = claim;
		return take_new(a, index);
	}
	at = place_at(a->h, (uint32_t)*index);
	p = read_pair(at);
	if (KEY(p.a) != a->k.key || EPOCH(p.a) == CLAIMED)
		return AGAIN;
	rc = decide(a, p, &set_back);
	if (rc == 0)
		return swap_pair(at, p, a->to) ? TAKEN : AGAIN;
	if (set_back)
		(void)swap_pair(at, p, a->to);
	return rc;
}

/* Tells post and undo what was taken; the index last. */
static void note(const struct ask *a, int64_t index)
{
	fc_cell_set(a->c, 1, a->n->packed_token | (a->n->token ? TOOK_RATE : 0) | (a->n->cap ? TOOK_CAP : 0));
	fc_cell_set(a->c, 0, ((uint32_t)index + 1) | EPOCH(a->to.a) << 23 | CELL_KEY(a->k.key) << 25);
}

static int keyed_pre(struct fc_call *c)
{
	int64_t index = FULL;
	uint64_t value;
	struct ask a;
	int rc = AGAIN;

	if (!value_of(c, &value))
		return without(c);
	if (!ask(&a, c, value))
		return 0;
	a.now_ns = steady(a.h, c->now_ns);
	if (a.n->deny)
		rc = refuse(c, 0, 0, 0);
	for (uint32_t i = 0; i < ROUNDS && rc == AGAIN; i++)
		rc = try_take(&a, &index);
	if (__builtin_expect(rc == TAKEN, 1)) {
		note(&a, index);
		return 0;
	}
	if (rc < 0)
		return overflow(c);
	put(note_of(c, value), value);
	return rc;
}

/* The place less what was taken; tokens only when the call did not run. 0: the place is not the call's. */
static int less(const struct fc_call *c, uint32_t cell, uint32_t what, uint32_t tokens, struct pair p, struct pair *ret)
{
	uint32_t inside = INSIDE(p.a);
	uint64_t back, part = PART(p.a);

	if (CELL_KEY(KEY(p.a)) != cell >> 25 || EPOCH(p.a) != (cell >> 23 & 3))
		return 0;
	if (what & TOOK_CAP)
		inside -= inside < c->weight ? inside : c->weight;
	*ret = (struct pair){ FIRST(KEY(p.a), inside, EPOCH(p.a), part), p.b };
	if (!tokens || !(what & TOOK_RATE))
		return 1;
	if (__builtin_mul_overflow(fci_keyed_token(what & (TOOK_RATE - 1)), c->weight, &back))
		return 1;
	if (part < (back & 15)) {
		part += 16;
		ret->b -= 1;
	}
	ret->a = FIRST(KEY(p.a), inside, EPOCH(p.a), part - (back & 15));
	ret->b = ret->b > back >> FRAC ? ret->b - (back >> FRAC) : 0;
	return 1;
}

static void give_back(struct fc_call *c, uint32_t tokens)
{
	const struct made *m = made_of(c->conf);
	uint32_t cell = fc_cell_get(c, 0), what = fc_cell_get(c, 1), index = (cell & 0x7fffff) - 1;
	struct pair *at, p, to;

	if (cell == 0 || index >= (m->b_mask + 1) * WAYS || (!tokens && !(what & TOOK_CAP)))
		return;
	fc_cell_set(c, 0, 0);
	at = place_at(c->state, index);
	do {
		p = read_pair(at);
		if (!less(c, cell, what, tokens, p, &to))
			return;
		/* Again only when another call of the key came or went: lock-free. */
	} while (!swap_pair(at, p, to));
}

static void keyed_undo(struct fc_call *c)
{
	give_back(c, 1);
}

static void keyed_post(struct fc_call *c)
{
	give_back(c, 0);
}

/* ---- setting up -------------------------------------------------------------------------------- */

#define PLACES_MIN 1024u
#define PLACES     65536u
#define OVERRIDES  1024u
#define LEASE_NS   FC_S(3600)

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 2;

	while (p < n)
		p *= 2;
	return p;
}

/* Buckets that a conf asks for; of numbers that setup refuses, those of the default. */
static void sizes(const struct fc_keyed_conf *conf, uint32_t *ret_buckets, uint32_t *ret_o_buckets)
{
	uint32_t places = conf->places && conf->places <= FC_KEYED_PLACES_MAX ? conf->places : PLACES;
	uint32_t n = conf->max_overrides;

	n = n && n <= FC_KEYED_OVERRIDES_MAX ? n : OVERRIDES;
	*ret_buckets = power_of_two((places + WAYS - 1) / WAYS);
	*ret_o_buckets = power_of_two((n / 2 * 3 + WAYS + 1) / (WAYS - 1));
}

static uint64_t keyed_state_size(const void *conf, uint32_t cpus)
{
	uint32_t buckets, o_buckets;

	(void)cpus;
	sizes(conf, &buckets, &o_buckets);
	return bytes_of(buckets, o_buckets);
}

static int bad(const struct fc_setup *s, int error, const char *what, uint64_t found, const char *allowed)
{
	fc_iface_log(s->iface, s->rule, "%s: %llu; allowed: %s", what, (unsigned long long)found, allowed);
	return error;
}

static int check_conf(const struct fc_setup *s, const struct fc_keyed_conf *conf)
{
	if (!conf->label || !*conf->label) {
		fc_iface_log(s->iface, s->rule, "label: none; allowed: the name of a label");
		return -EINVAL;
	}
	if (conf->places && (conf->places < PLACES_MIN || conf->places > FC_KEYED_PLACES_MAX))
		return bad(s, -ERANGE, "places", conf->places, "1024 to 4194304");
	if (conf->max_overrides > FC_KEYED_OVERRIDES_MAX)
		return bad(s, -ERANGE, "max_overrides", conf->max_overrides, "1 to 4194304");
	if (conf->lease_ns && conf->lease_ns < FC_S(1))
		return bad(s, -ERANGE, "lease in ns", conf->lease_ns, "1 s or more");
	if (conf->without > FC_KEYED_WITHOUT_SHARED)
		return bad(s, -EINVAL, "without", conf->without, "admit (0), refuse (1), shared (2)");
	if (conf->overflow > FC_KEYED_REFUSE)
		return bad(s, -EINVAL, "overflow", conf->overflow, "admit (0), refuse (1)");
	return 0;
}

static int is_power_of_two(uint32_t n)
{
	return n >= 2 && (n & (n - 1)) == 0;
}

static int sizes_fit(const struct head *h, uint64_t bytes)
{
	return bytes >= sizeof(*h) && is_power_of_two(h->buckets) && is_power_of_two(h->o_buckets) &&
	       h->buckets <= FC_KEYED_PLACES_MAX / WAYS && bytes_of(h->buckets, h->o_buckets) <= bytes;
}

/* Where a process has its memory, and when it began, nobody outside knows: so nobody can choose keys that
 * all want the same bucket. */
static uint64_t new_seed(const struct fc_setup *s)
{
	char text[96];

	snprintf(text, sizeof(text), "%p %p %p %llu", (void *)text, s->state, s->conf, (unsigned long long)s->now_ns);
	return fc_label("", text).value;
}

/* A new table, of nobody yet. */
static void begin(const struct fc_setup *s, struct made *m)
{
	const struct head *was = s->was;
	struct head *h = s->state;

	sizes(s->conf, &h->buckets, &h->o_buckets);
	h->seed = new_seed(s);
	if (!was || !sizes_fit(was, s->was_bytes))
		return;
	h->seed = was->seed;
	h->newest = get(&was->newest);
	m->was = was;
	m->was_mask = was->buckets - 1;
	fci_keyed_carry(was, was->buckets, was->o_buckets, h);
}

static int keyed_setup(struct fc_setup *s)
{
	struct fc_keyed_conf *conf = s->conf;
	const struct fc_keyed_numbers numbers = { conf->limit, conf->burst, conf->cap, 0 };
	struct made m = { .lease_ns = conf->lease_ns ? conf->lease_ns : LEASE_NS };
	struct head *h = s->state;
	uint32_t buckets, o_buckets;
	const char *what;
	uint64_t packed;
	int rc = check_conf(s, conf);

	if (rc < 0)
		return rc;
	rc = fci_keyed_pack(&numbers, &packed, &what);
	if (rc < 0) {
		fc_iface_log(s->iface, s->rule, "limit %llu per %llu ns, burst %llu, cap %u; allowed: %s",
		             (unsigned long long)conf->limit.n, (unsigned long long)conf->limit.per_ns,
		             (unsigned long long)conf->burst, conf->cap, what);
		return rc;
	}
	if (s->first)
		begin(s, &m);
	if (!sizes_fit(h, s->state_bytes))
		return bad(s, -EINVAL, "its table is spoilt: buckets", h->buckets, "what was set up");
	sizes(conf, &buckets, &o_buckets);
	if (buckets > h->buckets || o_buckets > h->o_buckets)
		fc_iface_log(s->iface, s->rule, "keeps its %u places, and room for %u overrides: a rule of another "
		             "name has other sizes", h->buckets * WAYS, h->o_buckets * (WAYS - 1) / 3 * 2);
	fci_keyed_unpack(packed, &m.numbers);
	m.label = fc_label(conf->label, "").key;
	m.b_mask = h->buckets - 1;
	m.o_mask = h->o_buckets - 1;
	*made_of(conf) = m;
	conf->label = NULL; /* it is the caller's */
	return 0;
}

/* ---- queries ----------------------------------------------------------------------------------- */

static void add_place(struct fc_keyed_stats *r, const struct numbers *n, struct pair p, uint64_t now)
{
	uint64_t owes = owed(p, now);

	if (KEY(p.a) == 0 || EPOCH(p.a) == CLAIMED || (owes == 0 && INSIDE(p.a) == 0))
		return;
	r->used++;
	r->inside += INSIDE(p.a);
	r->limited += (n->token && owes + n->token > n->full) || (n->cap && INSIDE(p.a) >= n->cap);
}

static int stats(struct fc_call *c, void *arg)
{
	const struct made *m = made_of(c->conf);
	const struct head *h = c->state;
	struct fc_keyed_stats *r = arg, n = { .size = r->size, .places = (m->b_mask + 1) * WAYS };

	for (uint32_t i = 0; i < n.places; i++)
		add_place(&n, &m->numbers, read_pair(place_at(h, i)), c->now_ns);
	for (uint32_t i = 0; i < LANES; i++) {
		n.inserted += get(&h->lane[i].inserted);
		n.evicted += get(&h->lane[i].evicted);
		n.overflows += get(&h->lane[i].overflows);
		n.without += get(&h->lane[i].without);
	}
	n.overrides = fci_keyed_overrides(h, m);
	*r = n;
	return 0;
}

int fc_keyed_stats(struct fc_iface *iface, const char *rule, struct fc_keyed_stats *ret)
{
	if (!ret || ret->size < sizeof(*ret))
		return -EINVAL;
	return fc_iface_with(iface, &fc_interceptor_keyed, rule, stats, ret);
}

static const char *const withouts[] = { "admit", "refuse", "shared" };
static const char *const overflows[] = { "admit", "refuse" };

#define AT(member_) offsetof(struct fc_keyed_conf, member_)
static const struct fc_field fields[] = {
	{ .name = "label", .type = FC_FIELD_TEXT, .offset = AT(label), .min = 1, .max = 255, .flags = FC_FIELD_REQUIRED,
	  .help = "the label whose values have a limit each" },
	{ .name = "limit", .type = FC_FIELD_RATE, .offset = AT(limit), .max = UINT64_MAX,
	  .help = "calls of one value in a time" },
	{ .name = "burst", .type = FC_FIELD_COUNT64, .offset = AT(burst), .max = FC_KEYED_BURST_MAX,
	  .help = "calls of one value that may come at once; default: those of a second" },
	{ .name = "cap", .type = FC_FIELD_COUNT32, .offset = AT(cap), .max = FC_KEYED_CAP_MAX,
	  .help = "calls of one value that may run at once; 0: any number" },
	{ .name = "places", .type = FC_FIELD_COUNT32, .offset = AT(places), .min = PLACES_MIN, .max = FC_KEYED_PLACES_MAX,
	  .def = PLACES, .help = "values that can be limited at once, 16 bytes each" },
	{ .name = "max_overrides", .type = FC_FIELD_COUNT32, .offset = AT(max_overrides), .min = 1,
	  .max = FC_KEYED_OVERRIDES_MAX, .def = OVERRIDES, .help = "values that can have numbers of their own, or a plan" },
	{ .name = "without", .type = FC_FIELD_CHOICE, .offset = AT(without), .choices = withouts, .n_choices = 3,
	  .help = "calls without the label: let pass, refused, or all of them one value" },
	{ .name = "overflow", .type = FC_FIELD_CHOICE, .offset = AT(overflow), .choices = overflows, .n_choices = 2,
	  .help = "calls of values for which no place is left: let pass or refused" },
	{ .name = "lease", .type = FC_FIELD_DURATION, .offset = AT(lease_ns), .min = FC_S(1), .max = FC_S(86400) * 366,
	  .def = LEASE_NS, .help = "calls lost with a killed process are forgotten after that time without a new one" },
};

const struct fc_interceptor fc_interceptor_keyed = {
	.size = sizeof(struct fc_interceptor),
	.order = FC_ORDER_KEYED,
	.name = "keyed",
	.conf_bytes = sizeof(struct fc_keyed_conf),
	.cells = 2,
	.reason = FC_REFUSED_KEY,
	.state_size = keyed_state_size,
	.setup = keyed_setup,
	.check = keyed_check,
	.pre = keyed_pre,
	.undo = keyed_undo,
	.post = keyed_post,
	.fields = fields,
	.n_fields = sizeof(fields) / sizeof(fields[0]),
};
