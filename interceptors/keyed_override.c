/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keyed_override.c - numbers for single keys and for plans: packed into one word, so that a change is one
 * store or compare-and-swap, and a call sees the old ones or the new ones. See keyed.h.
 *
 *   kind 2 | token 6 + 24 (exponent, mantissa) | burst 5 + 13 | cap 14
 *
 * An entry is a pair: the label's hash, all 64 bits, and the word. It stands in its first bucket, or, when
 * that had less room, in its second: then the first is marked, for ever. So a call of a key without an entry
 * looks at one bucket, beside (not after) its place. When both are full, an entry there that has room in its
 * second bucket moves on.
 */
#include <errno.h>

#include <fcguard/time.h>

#include "keyed_state.h"

#define OWN_WAYS   (WAYS - 1)
#define ENOUGH     5u /* free entries in the first bucket: no need to look at the second */
#define YEAR_NS    (366 * FC_S(86400))
#define KIND(p_)   ((uint32_t)((p_) >> 62))
#define TOKEN(p_)  ((uint32_t)((p_) >> 32) & 0x3fffffffu)
#define BURST(p_)  ((uint32_t)((p_) >> 14) & 0x3ffffu)

enum { NUMBERS = 0, PLAN = 1, DENY = 2, REMOVE = 3 };
#define WORD(kind_) ((uint64_t)(kind_) << 62)

__extension__ typedef unsigned __int128 wide;

/* ---- numbers in a word ------------------------------------------------------------------------- */

/* Rounded up: never more calls than asked for. */
static uint32_t pack_token(const struct fc_rate *limit)
{
	uint64_t t = (uint64_t)((((wide)limit->per_ns << FRAC) + limit->n - 1) / limit->n);
	uint32_t e = 0;

	while (t >> e >= 1u << 24)
		e++;
	t = (t + (1ull << e) - 1) >> e;
	if (t == 1u << 24) {
		t >>= 1;
		e++;
	}
	return e << 24 | (uint32_t)t;
}

uint64_t fci_keyed_token(uint32_t packed)
{
	uint32_t e = packed >> 24 & 63;

	return (uint64_t)(packed & 0xffffff) << (e > 36 ? 36 : e);
}

static uint64_t default_burst(const struct fc_rate *limit)
{
	wide n = (wide)limit->n * FC_S(1) / limit->per_ns;

	return n < 1 ? 1 : n > limit->n ? limit->n : (uint64_t)n;
}

static uint32_t pack_burst(uint64_t burst)
{
	uint32_t e = 0;

	while (burst >> e >= 1u << 13)
		e++;
	return e << 13 | (uint32_t)(burst >> e);
}

int fci_keyed_pack(const struct fc_keyed_numbers *n, uint64_t *ret, const char **ret_what)
{
	uint64_t burst, per_n;
	uint32_t token;

	*ret_what = "flags: FC_KEYED_DENY or 0";
	if (n->flags & ~FC_KEYED_DENY)
		return -EINVAL;
	*ret_what = "cap: 0 to 16383";
	if (n->cap > FC_KEYED_CAP_MAX)
		return -ERANGE;
	*ret = n->flags & FC_KEYED_DENY ? WORD(DENY) : n->cap;
	*ret_what = "burst: it needs a limit";
	if (n->limit.n == 0)
		return n->burst ? -EINVAL : 0;
	*ret_what = "limit: 1 per 366 days to 10^9 per second";
	per_n = n->limit.per_ns / n->limit.n;
	if (per_n > YEAR_NS || n->limit.per_ns < n->limit.n)
		return -ERANGE;
	*ret_what = "burst: 1 to 2^40 tokens, and no more than come in 9 years";
	burst = n->burst ? n->burst : default_burst(&n->limit);
	burst = burst > FC_KEYED_BURST_MAX && !n->burst ? FC_KEYED_BURST_MAX : burst;
	token = pack_token(&n->limit);
	if (burst > FC_KEYED_BURST_MAX || (wide)burst * fci_keyed_token(token) > UNITS_MAX)
		return -ERANGE;
	if (!(n->flags & FC_KEYED_DENY))
		*ret = (uint64_t)token << 32 | (uint64_t)pack_burst(burst) << 14 | n->cap;
	return 0;
}

void fci_keyed_unpack(uint64_t packed, struct numbers *n)
{
	uint32_t burst = BURST(packed);

	n->packed_token = TOKEN(packed);
	n->token = fci_keyed_token(n->packed_token);
	n->burst = (uint64_t)(burst & 0x1fff) << (burst >> 13);
	if (__builtin_mul_overflow(n->token, n->burst, &n->full) || n->full > UNITS_MAX)
		n->full = UNITS_MAX;
	n->cap = (uint32_t)packed & FC_KEYED_CAP_MAX;
	n->deny = KIND(packed) == DENY;
}

/* ---- the table --------------------------------------------------------------------------------- */

/* What identifies a value; 0 is nobody's. */
static uint64_t name_of(uint64_t value)
{
	return value ? value : 1;
}

static struct pair *find_in(const struct overrides *o, uint64_t name)
{
	/* A1 -> X1 (pair.h): an entry that is gone from here stands in the second bucket already. */
	for (uint32_t i = 0; i < OWN_WAYS; i++)
		if (__atomic_load_n(&o->way[i].a, __ATOMIC_ACQUIRE) == name)
			return (struct pair *)(uintptr_t)&o->way[i];
	return NULL;
}

static uint64_t *mark_of(struct overrides *o)
{
	return &o->way[OWN_WAYS].a;
}

struct table {
	struct overrides *bucket;
	uint32_t mask;
	uint64_t seed;
};

static struct table table_of(const struct head *h, uint32_t b_mask, uint32_t o_mask)
{
	return (struct table){ overrides_of(h, b_mask + 1), o_mask, h->seed };
}

static struct pair *find(const struct table *t, uint64_t name)
{
	uint64_t hash = mix(name, t->seed);
	struct overrides *home = &t->bucket[hash & t->mask];
	struct pair *p = find_in(home, name);

	/* N: the mark is set before an entry stands in the second bucket; a call beside that sees either. */
	if (p || !get(mark_of(home)))
		return p;
	return find_in(&t->bucket[second(hash, t->mask)], name);
}

/* Free entries of a bucket: how many, and one of them. */
static uint32_t free_ways(struct overrides *o, struct pair **ret, struct pair *ret_was)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < OWN_WAYS; i++) {
		struct pair p = read_pair(&o->way[i]);

		if (p.a != 0)
			continue;
		*ret = &o->way[i];
		*ret_was = p;
		n++;
	}
	return n;
}

/* A free entry for a hash; NULL: there is none. */
static struct pair *find_free(const struct table *t, uint64_t hash, struct pair *ret_was)
{
	struct overrides *home = &t->bucket[hash & t->mask];
	struct pair *p[2] = { NULL, NULL }, was[2] = { { 0, 0 }, { 0, 0 } };
	uint32_t n[2] = { free_ways(home, &p[0], &was[0]), 0 };

	if (n[0] < ENOUGH)
		n[1] = free_ways(&t->bucket[second(hash, t->mask)], &p[1], &was[1]);
	if (n[1] > n[0])
		put(mark_of(home), 1);
	*ret_was = was[n[1] > n[0]];
	return p[n[1] > n[0]];
}

/* Move one entry of its first bucket to its second. A reader finds one of the two, or both. 1: done. */
static int move_one(const struct table *t, struct pair *from)
{
	struct pair e = read_pair(from), was, *to;
	uint64_t hash = mix(e.a, t->seed);
	struct overrides *home = &t->bucket[hash & t->mask];

	if (from < home->way || from >= home->way + OWN_WAYS || !free_ways(&t->bucket[second(hash, t->mask)], &to, &was))
		return 0;
	put(mark_of(home), 1);
	if (!swap_pair(to, was, e))
		return 0;
	if (swap_pair(from, e, nobody))
		return 1;
	(void)swap_pair(to, e, nobody); /* it was changed: so it stays */
	return 0;
}

/* Room in one of the buckets of a hash. 0: there is none. */
static int make_room(const struct table *t, uint64_t hash)
{
	struct overrides *o[2] = { &t->bucket[hash & t->mask], &t->bucket[second(hash, t->mask)] };

	for (uint32_t i = 0; i < 2 * OWN_WAYS; i++)
		if (move_one(t, &o[i / OWN_WAYS]->way[i % OWN_WAYS]))
			return 1;
	return 0;
}

/* Of several entries of one name, which only two writers at once can make, the first stays. */
static void only_one(const struct table *t, uint64_t name)
{
	uint64_t hash = mix(name, t->seed);
	struct overrides *o[2] = { &t->bucket[hash & t->mask], &t->bucket[second(hash, t->mask)] };
	int seen = 0;

	for (uint32_t i = 0; i < 2 * OWN_WAYS; i++) {
		struct pair *p = &o[i / OWN_WAYS]->way[i % OWN_WAYS], was = read_pair(p);

		if (was.a == name && seen++)
			(void)swap_pair(p, was, nobody);
	}
}

/* 0: somebody else was faster, once more; 1: done; -ENOSPC. */
static int try_set(const struct table *t, uint64_t name, uint64_t packed)
{
	struct pair *p = find(t, name), was, to = KIND(packed) == REMOVE ? nobody : (struct pair){ name, packed };

	if (p) {
		was = read_pair(p);
		return was.a == name && swap_pair(p, was, to);
	}
	if (KIND(packed) == REMOVE)
		return 1;
	p = find_free(t, mix(name, t->seed), &was);
	if (!p)
		return make_room(t, mix(name, t->seed)) ? 0 : -ENOSPC;
	if (!swap_pair(p, was, to))
		return 0;
	only_one(t, name);
	return 1;
}

static int set(const struct table *t, uint64_t name, uint64_t packed)
{
	int rc = 0;

	/* It fails only when another writer of this bucket succeeded; bounded, should all of it be spoilt. */
	for (int i = 0; i < 10000 && rc == 0; i++)
		rc = try_set(t, name, packed);
	return rc < 0 ? rc : rc ? 0 : -EAGAIN;
}

int fci_keyed_find(const struct head *h, const struct made *m, uint64_t value, struct numbers *ret)
{
	struct table t = table_of(h, m->b_mask, m->o_mask);
	struct pair *p = find(&t, name_of(value)), e;

	if (!p)
		return 0;
	e = read_pair(p);
	if (e.a != name_of(value))
		return 0;
	if (KIND(e.b) == PLAN)
		e.b = get(&h->plan[e.b & FC_KEYED_PLANS_MAX].numbers);
	fci_keyed_unpack(e.b, ret);
	return 1;
}

/* Into a table that nobody uses yet. */
void fci_keyed_carry(const struct head *was, uint32_t was_buckets, uint32_t was_o, struct head *h)
{
	const struct overrides *from = overrides_of(was, was_buckets);
	struct table to = table_of(h, h->buckets - 1, h->o_buckets - 1);

	memcpy(h->plan, was->plan, sizeof(h->plan));
	h->most_ns = get(&was->most_ns);
	h->overriding = get(&was->overriding);
	for (uint64_t i = 0; i < (uint64_t)was_o * WAYS; i++) {
		struct pair e = read_pair(&from[i / WAYS].way[i % WAYS]);

		if (i % WAYS != OWN_WAYS && e.a != 0)
			(void)set(&to, e.a, e.b);
	}
}

uint64_t fci_keyed_overrides(const struct head *h, const struct made *m)
{
	const struct overrides *o = overrides_of(h, m->b_mask + 1);
	uint64_t n = 0;

	for (uint64_t i = 0; get(&h->overriding) && i < ((uint64_t)m->o_mask + 1) * WAYS; i++) {
		struct pair e = read_pair(&o[i / WAYS].way[i % WAYS]);

		n += i % WAYS != OWN_WAYS && e.a != 0;
	}
	return n;
}

/* ---- changing ---------------------------------------------------------------------------------- */

/* Before the numbers are there: whoever looks for idle keys knows how long one may be limited. */
static void raise_most(struct head *h, uint64_t packed)
{
	uint64_t most = get(&h->most_ns);
	struct numbers n;

	fci_keyed_unpack(packed, &n);
	while (most < n.full >> FRAC && !swap(&h->most_ns, &most, n.full >> FRAC))
		;
}

struct change {
	const char *value, *plan;
	uint64_t packed;
};

static uint32_t find_plan(const struct head *h, const char *name, uint64_t *ret_id)
{
	uint32_t i = 1;

	*ret_id = name_of(fc_label("", name).value);
	while (i < PLANS && get(&h->plan[i].id) != *ret_id)
		i++;
	return i;
}

static int change_value(struct fc_call *c, void *arg)
{
	const struct made *m = made_of(c->conf);
	const struct change *x = arg;
	struct head *h = c->state;
	struct table t = table_of(h, m->b_mask, m->o_mask);
	uint64_t packed = x->packed, text = name_of(fc_label("", x->value).value), id;
	uint64_t address = name_of(fc_label_ip("", x->value).value);
	int rc;

	if (x->plan) {
		packed = find_plan(h, x->plan, &id);
		if (packed == PLANS)
			return -ENOENT;
		packed |= WORD(PLAN);
	} else {
		raise_most(h, packed);
	}
	if (KIND(packed) != REMOVE)
		put(&h->overriding, 1);
	rc = set(&t, text, packed);
	if (rc == 0 && address != text)
		rc = set(&t, address, packed);
	return rc;
}

static int change_plan(struct fc_call *c, void *arg)
{
	const struct change *x = arg;
	struct head *h = c->state;
	uint64_t id, none = 0;
	uint32_t i = find_plan(h, x->plan, &id);

	if (i == PLANS)
		for (i = 1; i < PLANS && !swap(&h->plan[i].id, &none, id) && none != id; i++)
			none = 0;
	if (i == PLANS)
		return -ENOSPC;
	raise_most(h, x->packed);
	put(&h->plan[i].numbers, x->packed);
	return 0;
}

static int change(struct fc_iface *f, const char *rule, struct change *x, const struct fc_keyed_numbers *n,
                  int (*fn)(struct fc_call *, void *))
{
	const char *what;
	int rc = n ? fci_keyed_pack(n, &x->packed, &what) : 0;

	return rc < 0 ? rc : fc_iface_with(f, &fc_interceptor_keyed, rule, fn, x);
}

int fc_keyed_override(struct fc_iface *f, const char *rule, const char *value, const struct fc_keyed_numbers *n)
{
	struct change x = { .value = value, .packed = WORD(REMOVE) };

	return value ? change(f, rule, &x, n, change_value) : -EINVAL;
}

int fc_keyed_assign(struct fc_iface *f, const char *rule, const char *value, const char *plan)
{
	struct change x = { .value = value, .plan = plan, .packed = WORD(REMOVE) };

	return value ? change(f, rule, &x, NULL, change_value) : -EINVAL;
}

int fc_keyed_plan(struct fc_iface *f, const char *rule, const char *plan, const struct fc_keyed_numbers *n)
{
	struct change x = { .plan = plan };

	if (!plan || !*plan || strlen(plan) > FC_RULE_NAME_MAX || !n)
		return -EINVAL;
	return change(f, rule, &x, n, change_plan);
}
