/* SPDX-License-Identifier: BSD-2-Clause */
/* trip.c - closed, open, half open, ramp. See trip.h; accesses are relaxed as window.h says. */
#include <string.h>

#include <fcguard/events.h>

#include "trip.h"

#define STATE(w_)      TRIP_STATE(w_)
#define STEPS(w_)      ((uint32_t)(w_) >> 3 & 31u)
#define GENERATION(w_) TRIP_GENERATION(w_)
#define UNTIL(w_)      ((w_) >> 24)
#define UNTIL_MASK     ((1ull << 40) - 1)

/* A lease: until 40 (0: free) | ticket 8 | generation 16. */
#define LEASE_UNTIL(l_)  ((l_) & UNTIL_MASK)
#define LEASE_NUMBER(l_) ((uint32_t)((l_) >> 40) & 0xffu)
#define LEASE_GEN(l_)    ((uint32_t)((l_) >> 48))
#define TICKET(l_)       ((uint32_t)LEASE_NUMBER(l_) << 24 | ((uint32_t)(l_) & 0xffffffu))

#define WHOLE       65536ull   /* credit of a call */
#define CREDIT_MOST (64 * WHOLE)
#define CREDIT_MASK ((1ull << 48) - 1)
#define TRIES       8          /* a word that changes more often is refused for now */

const char *const fci_trip_recovers[3] = { "successes", "at_once", "ramp" };

static struct trip *trip_of(const struct fc_call *c)
{
	return c->state;
}

static uint64_t word_of(uint32_t state, uint32_t steps, uint32_t generation, uint64_t until)
{
	return (until & UNTIL_MASK) << 24 | (uint64_t)(generation & 0xffff) << 8 | (uint64_t)(steps & 31) << 3 | state;
}

static uint32_t open_units(const struct trip_numbers *m, uint32_t steps)
{
	return m->open_u[steps < TRIP_STEPS ? steps : TRIP_STEPS - 1];
}

/* Units until then, of something that lasts `length` in all. More can only be after a jump of the clock: then it
 * is over, so nobody waits for longer than once. */
static uint64_t left_of(uint64_t until, uint64_t u, uint32_t length)
{
	uint64_t left = (until - u) & UNTIL_MASK;

	return left <= (uint64_t)length + LATE_UNITS ? left : 0;
}

static uint64_t open_left(const struct trip_numbers *m, uint64_t w, uint64_t u)
{
	return left_of(UNTIL(w), u, open_units(m, STEPS(w)));
}

static void say(const struct fc_call *c, int kind, uint64_t a, uint64_t b)
{
	fc_event_note(c->iface, kind, a, b);
}

/* ---- transitions ------------------------------------------------------------------------------- */

/* Until is one unit more: u is rounded down. */
static int open_from(struct fc_call *c, const struct trip_numbers *m, uint64_t w, uint32_t steps, uint64_t u,
                     uint64_t bad)
{
	struct trip *t = trip_of(c);
	uint32_t units;

	steps = steps < TRIP_STEPS - 1 ? steps : TRIP_STEPS - 1;
	units = open_units(m, steps);
	if (!swap(&t->word, &w, word_of(FC_BREAKER_OPEN, steps, GENERATION(w) + 1, u + units + 1)))
		return 0;
	__atomic_fetch_add(&t->opened, 1, __ATOMIC_RELAXED); /* N: a statistic */
	say(c, m->opened, (uint64_t)units << UNIT_SHIFT, bad);
	return 1;
}

static void half_open_from(struct fc_call *c, const struct trip_numbers *m, uint64_t w)
{
	if (swap(&trip_of(c)->word, &w, word_of(FC_BREAKER_HALF_OPEN, STEPS(w), GENERATION(w) + 1, 0)))
		say(c, m->half_open, m->probes, 0);
}

/* Enough probes have succeeded. Closed remembers for how long it had been open, for the back-off. */
static void recover_from(struct fc_call *c, const struct trip_numbers *m, uint64_t w, uint64_t u)
{
	uint32_t state = m->ramps ? FC_BREAKER_RAMP : FC_BREAKER_CLOSED;
	uint64_t until = u + 1 + (m->ramps ? m->ramp_u : open_units(m, STEPS(w)));

	if (!swap(&trip_of(c)->word, &w, word_of(state, STEPS(w), GENERATION(w) + 1, until)))
		return;
	if (m->ramps)
		say(c, m->ramp, m->ramp_from * 1000 / WHOLE, (uint64_t)m->ramp_u << UNIT_SHIFT);
	else
		say(c, m->closed, m->successes, 0);
}

/* The window goes on. */
static void ramp_is_over(struct fc_call *c, const struct trip_numbers *m, uint64_t w, uint64_t u)
{
	uint64_t until = u + 1 + open_units(m, STEPS(w));

	if (swap(&trip_of(c)->word, &w, word_of(FC_BREAKER_CLOSED, STEPS(w), GENERATION(w), until)))
		say(c, m->closed, m->successes, 0);
}

static int too_bad(const struct trip_numbers *m, const struct window_sum *s)
{
	if ((m->failed_most && s->failed >= m->failed_most) || (m->slow_most && s->slow >= m->slow_most))
		return 1;
	if (s->total < m->min_calls)
		return 0;
	return (m->failed_permille && s->failed * 1000 >= s->total * m->failed_permille) ||
	       (m->slow_permille && s->slow * 1000 >= s->total * m->slow_permille);
}

static void evaluate(struct fc_call *c, const struct trip_numbers *m, uint64_t w, uint64_t u)
{
	struct window_sum sum = fci_window_sum(&trip_of(c)->window, &m->window, GENERATION(w), u);
	int again = STATE(w) == FC_BREAKER_RAMP || open_left(m, w, u) > 0;

	if (too_bad(m, &sum))
		(void)open_from(c, m, w, again ? STEPS(w) + 1 : 0, u, sum.failed > sum.slow ? sum.failed : sum.slow);
}

/* ---- probes ------------------------------------------------------------------------------------ */

static int probe_is_free(const struct trip_numbers *m, uint64_t lease, uint32_t generation, uint64_t u)
{
	return LEASE_UNTIL(lease) == 0 || LEASE_GEN(lease) != generation ||
	       left_of(LEASE_UNTIL(lease), u, m->lease_u) == 0;
}

static uint64_t lease_of(const struct trip_numbers *m, uint64_t was, uint32_t generation, uint64_t u)
{
	uint64_t until = (u + 1 + m->lease_u) & UNTIL_MASK;

	return (uint64_t)generation << 48 | (uint64_t)((LEASE_NUMBER(was) + 1) & 0xff) << 40 | (until ? until : 1);
}

static uint32_t probes_out(const struct trip *t, const struct trip_numbers *m, uint32_t generation, uint64_t u)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->probes; i++)
		n += !probe_is_free(m, get(&t->probe[i]), generation, u);
	return n;
}

/*
 * One of the places of word w; *ret_lease. -1: none is free, or w is old. A lease of another generation is
 * of one that is over, unless w is old.
 *
 * A1 -> R1: who finds a lease of a later generation there sees the word that it was taken under, or a later
 * one, and takes nothing. Without it a caller who was stopped would take a probe that is out.
 */
static int take_probe(struct fc_call *c, const struct trip_numbers *m, uint64_t w, uint64_t u, uint64_t *ret_lease)
{
	struct trip *t = trip_of(c);

	for (uint32_t i = 0; i < m->probes; i++) {
		uint64_t *p = &t->probe[(c->cpu + i) % m->probes], was, lease;

		was = __atomic_load_n(p, __ATOMIC_ACQUIRE); /* A1 -> R1 */
		if (!probe_is_free(m, was, GENERATION(w), u))
			continue;
		if (get(&t->word) != w)
			return -1;
		lease = lease_of(m, was, GENERATION(w), u);
		/* R1 -> A1. Lost to another: it is taken, or was given back for who comes later. */
		if (!__atomic_compare_exchange_n(p, &was, lease, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			continue;
		*ret_lease = lease;
		if (get(&t->word) == w)
			return (int)(p - t->probe);
		(void)swap(p, &lease, lease & ~UNTIL_MASK);
		return -1;
	}
	return -1;
}

/* Does the call still hold its probe? */
static int holds_probe(const struct trip *t, uint32_t cell, uint32_t ticket, uint64_t *ret_lease)
{
	uint32_t i = CELL_INDEX(cell);

	if (i >= FC_BREAKER_PROBES_MAX)
		return 0;
	*ret_lease = get(&t->probe[i]);
	return LEASE_UNTIL(*ret_lease) != 0 && LEASE_GEN(*ret_lease) == (cell & 0xffff) && TICKET(*ret_lease) == ticket;
}

static void give_probe(struct trip *t, uint32_t cell, uint64_t lease)
{
	/* The number stays, so that no later lease looks like this one. */
	(void)swap(&t->probe[CELL_INDEX(cell)], &lease, lease & ~UNTIL_MASK);
}

static void probe_succeeded(struct fc_call *c, const struct trip_numbers *m, uint64_t w, uint64_t u)
{
	struct trip *t = trip_of(c);
	uint64_t was = get(&t->successes), n;

	do {
		n = was >> 32 == GENERATION(w) ? (was & UINT32_MAX) + 1 : 1;
	} while (!swap(&t->successes, &was, (uint64_t)GENERATION(w) << 32 | n));
	if (n >= m->successes)
		recover_from(c, m, w, u);
}

/* ---- the ramp ---------------------------------------------------------------------------------- */

static uint64_t share_of(const struct trip_numbers *m, uint64_t left)
{
	uint64_t passed = left < m->ramp_u ? m->ramp_u - left : 0;

	return m->ramp_from + (WHOLE - m->ramp_from) * passed / m->ramp_u;
}

/* Add to the credit of a generation; 1: a whole one was there and has been taken, if take is set. */
static int add_credit(struct trip *t, uint32_t generation, uint64_t add, int take)
{
	uint64_t was = get(&t->credit), credit;
	int whole;

	do {
		credit = (was >> 48 == generation ? was & CREDIT_MASK : 0) + add;
		whole = take && credit >= WHOLE;
		credit -= whole ? WHOLE : 0;
		credit = credit < CREDIT_MOST ? credit : CREDIT_MOST;
	} while (!swap(&t->credit, &was, (uint64_t)generation << 48 | credit));
	return whole;
}

/* ---- steps of a call --------------------------------------------------------------------------- */

static int refuse(struct fc_call *c, uint64_t observed, uint64_t limit, uint64_t left_units)
{
	c->observed = observed;
	c->limit = limit;
	c->retry_after_ns = left_units << UNIT_SHIFT;
	return 1;
}

static int refuse_open(struct fc_call *c, uint64_t w, uint64_t left)
{
	return refuse(c, STEPS(w) + 1u, 0, left);
}

int fci_trip_check_slowly(struct fc_call *c, const struct trip_numbers *m)
{
	const struct trip *t = trip_of(c);
	uint64_t w = get(&t->word), u, left;

	if (STATE(w) == FC_BREAKER_FORCED_OPEN)
		return refuse_open(c, w, 0);
	u = fci_window_look(&t->window, c->now_ns);
	if (u == 0)
		return 0; /* pre decides */
	if (STATE(w) == FC_BREAKER_OPEN)
		return (left = open_left(m, w, u)) ? refuse_open(c, w, left) : 0;
	if (STATE(w) == FC_BREAKER_HALF_OPEN && probes_out(t, m, GENERATION(w), u) == m->probes)
		return refuse(c, m->probes, m->probes, 0);
	return 0;
}

static int pre_half_open(struct fc_call *c, const struct trip_numbers *m, uint64_t w, uint64_t u)
{
	uint64_t lease;
	int i = take_probe(c, m, w, u, &lease);

	if (i < 0)
		return refuse(c, m->probes, m->probes, 0);
	fc_cell_set(c, 1, TICKET(lease));
	fc_cell_set(c, 0, CELL_COUNTS | CELL_PROBE | (uint32_t)i << 16 | GENERATION(w));
	return 0;
}

static int pre_ramp(struct fc_call *c, const struct trip_numbers *m, uint64_t w, uint64_t left)
{
	uint64_t share = share_of(m, left);

	if (!add_credit(trip_of(c), GENERATION(w), share, 1))
		return refuse(c, 1000, share * 1000 / WHOLE, 0);
	fc_cell_set(c, 0, CELL_COUNTS | CELL_CREDIT | GENERATION(w));
	return 0;
}

int fci_trip_pre_slowly(struct fc_call *c, const struct trip_numbers *m)
{
	struct trip *t = trip_of(c);
	uint64_t u = fci_window_time(&t->window, &m->window, c->now_ns), w, left;

	for (int i = 0; i < TRIES; i++) {
		w = get(&t->word);
		switch (STATE(w)) {
		case FC_BREAKER_OPEN:
			left = open_left(m, w, u);
			if (left)
				return refuse_open(c, w, left);
			half_open_from(c, m, w);
			break;
		case FC_BREAKER_HALF_OPEN:
			if (pre_half_open(c, m, w, u) == 0)
				return 0;
			if (get(&t->word) == w)
				return 1;
			break;
		case FC_BREAKER_RAMP:
			left = left_of(UNTIL(w), u, m->ramp_u);
			if (left)
				return pre_ramp(c, m, w, left);
			ramp_is_over(c, m, w, u);
			break;
		case FC_BREAKER_FORCED_OPEN:
			return refuse_open(c, w, 0);
		case FC_BREAKER_FORCED_CLOSED:
			return 0;
		case FC_BREAKER_CLOSED:
			fci_trip_join(c, m);
			return 0;
		default: /* spoilt memory */
			(void)swap(&t->word, &w, word_of(FC_BREAKER_CLOSED, 0, GENERATION(w) + 1, 0));
			break;
		}
	}
	return refuse(c, 0, 0, 0);
}

void fci_trip_join(struct fc_call *c, const struct trip_numbers *m)
{
	uint64_t w = get(&trip_of(c)->word);

	if (m->counts && (STATE(w) == FC_BREAKER_CLOSED || STATE(w) == FC_BREAKER_RAMP))
		fc_cell_set(c, 0, CELL_COUNTS | GENERATION(w));
}

void fci_trip_undo(struct fc_call *c, const struct trip_numbers *m)
{
	uint32_t cell = fc_cell_get(c, 0);
	struct trip *t = trip_of(c);
	uint64_t lease;

	(void)m;
	fc_cell_set(c, 0, 0);
	if ((cell & CELL_PROBE) && holds_probe(t, cell, fc_cell_get(c, 1), &lease))
		give_probe(t, cell, lease);
	if ((cell & CELL_CREDIT) && GENERATION(get(&t->word)) == (cell & 0xffff))
		(void)add_credit(t, cell & 0xffff, WHOLE, 0);
}

/* A probe has come back. The state changes first, so that nobody gets its place who need not. */
static void post_probe(struct fc_call *c, const struct trip_numbers *m, uint32_t cell, int outcome)
{
	struct trip *t = trip_of(c);
	uint64_t w = get(&t->word), u, lease;

	if (!holds_probe(t, cell, fc_cell_get(c, 1), &lease))
		return;
	if (GENERATION(w) == (cell & 0xffff) && STATE(w) == FC_BREAKER_HALF_OPEN && outcome != WINDOW_NOTHING) {
		u = fci_window_time(&t->window, &m->window, c->now_ns);
		if (outcome == WINDOW_GOOD)
			probe_succeeded(c, m, w, u);
		else
			(void)open_from(c, m, w, STEPS(w) + 1, u, 1);
	}
	give_probe(t, cell, lease);
}

void fci_trip_post_slowly(struct fc_call *c, const struct trip_numbers *m, int outcome)
{
	struct trip *t = trip_of(c);
	uint32_t cell = fc_cell_get(c, 0);
	uint64_t w, u;

	if (cell & CELL_PROBE) {
		post_probe(c, m, cell, outcome);
		return;
	}
	w = get(&t->word);
	if (!(cell & CELL_COUNTS) || GENERATION(w) != (cell & 0xffff) || outcome == WINDOW_NOTHING || !m->counts ||
	    (STATE(w) != FC_BREAKER_CLOSED && STATE(w) != FC_BREAKER_RAMP))
		return;
	u = fci_window_time(&t->window, &m->window, c->now_ns);
	if (fci_window_count(&t->window, &m->window, c->cpu, GENERATION(w), u, outcome) ||
	    fci_window_due(&t->window, u))
		evaluate(c, m, w, u);
}

/* Its process was killed: that says nothing of what it called. */
void fci_trip_reap(struct fc_call *c, const struct trip_numbers *m)
{
	fci_trip_post_slowly(c, m, WINDOW_NOTHING);
}

uint64_t fci_trip_tick(struct fc_call *c, const struct trip_numbers *m)
{
	struct trip *t = trip_of(c);
	uint64_t u = fci_window_time(&t->window, &m->window, c->now_ns), w = get(&t->word), left;

	switch (STATE(w)) {
	case FC_BREAKER_OPEN:
		left = open_left(m, w, u);
		if (left == 0)
			half_open_from(c, m, w);
		return left ? c->now_ns + (left << UNIT_SHIFT) : FC_NEVER_NS;
	case FC_BREAKER_RAMP:
		left = left_of(UNTIL(w), u, m->ramp_u);
		if (left == 0)
			ramp_is_over(c, m, w, u);
		else
			evaluate(c, m, w, u);
		return left ? c->now_ns + (left << UNIT_SHIFT) : FC_NEVER_NS;
	case FC_BREAKER_CLOSED:
		if (m->counts)
			evaluate(c, m, w, u);
		return FC_NEVER_NS;
	default:
		return FC_NEVER_NS;
	}
}

/* ---- by hand, and looking ---------------------------------------------------------------------- */

int fci_trip_set(struct fc_call *c, int only_from, int to)
{
	struct trip *t = trip_of(c);
	uint64_t w = get(&t->word);

	do {
		if (STATE(w) == (uint32_t)to || (only_from >= 0 && STATE(w) != (uint32_t)only_from))
			return 0;
	} while (!swap(&t->word, &w, word_of((uint32_t)to, 0, GENERATION(w) + 1, 0)));
	return 1;
}

static uint32_t state_at(uint64_t w, uint64_t left)
{
	if (left == 0 && STATE(w) == FC_BREAKER_OPEN)
		return FC_BREAKER_HALF_OPEN;
	if (left == 0 && STATE(w) == FC_BREAKER_RAMP)
		return FC_BREAKER_CLOSED;
	return STATE(w);
}

void fci_trip_status(struct fc_call *c, const struct trip_numbers *m, struct fc_breaker_status *ret)
{
	const struct trip *t = trip_of(c);
	uint64_t w = get(&t->word), u = fci_window_look(&t->window, c->now_ns), left = 0;
	struct window_sum sum;

	if (u == 0)
		u = get(&t->window.newest);
	if (STATE(w) == FC_BREAKER_OPEN)
		left = open_left(m, w, u);
	else if (STATE(w) == FC_BREAKER_RAMP)
		left = left_of(UNTIL(w), u, m->ramp_u);
	sum = fci_window_sum(&t->window, &m->window, GENERATION(w), u);
	ret->state = state_at(w, left);
	ret->generation = GENERATION(w);
	ret->probes = STATE(w) == FC_BREAKER_HALF_OPEN ? probes_out(t, m, GENERATION(w), u) : 0;
	ret->calls = sum.total;
	ret->failed = sum.failed;
	ret->slow = sum.slow;
	ret->left_ns = left << UNIT_SHIFT;
	ret->opened = get(&t->opened);
	ret->share_permille = ret->state == FC_BREAKER_CLOSED || ret->state == FC_BREAKER_FORCED_CLOSED ? 1000
	                    : ret->state == FC_BREAKER_RAMP ? (uint32_t)(share_of(m, left) * 1000 / WHOLE) : 0;
}
