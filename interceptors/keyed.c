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

#include "keyed_table.h"

#define NEWEST_NS FC_MS(64)
#define ROUNDS    1000u /* of looking for a place: each means that another caller got on */

/* Cells. 0: index of the place + 1 (23 bits), its epoch (2), bits of its key (7); 0: nothing is held.
 * 1: packed token, to undo by, and what was taken. */
#define CELL_KEY(key_) ((uint32_t)((key_) & 0x7f))
#define TOOK_RATE (1u << 30)
#define TOOK_CAP  (1u << 31)

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
	p = index >= 0 ? read_pair(place_at(a.h, (uint32_t)index)) : fci_keyed_fresh(&a);
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
		return fci_keyed_take_new(a, index);
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

/* ---- the interceptor --------------------------------------------------------------------------- */

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
	.state_size = fci_keyed_state_size,
	.setup = fci_keyed_setup,
	.check = keyed_check,
	.pre = keyed_pre,
	.undo = keyed_undo,
	.post = keyed_post,
	.fields = fields,
	.n_fields = sizeof(fields) / sizeof(fields[0]),
};
