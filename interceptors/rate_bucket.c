/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rate_bucket.c - the kinds of the rate interceptor that mint tokens: bucket, leaky, warm_up.
 *
 * Units.   Tokens are counted in units of 2^-16, in 64 bits. The units minted until a time t are a function
 *          of t alone, G(t) = floor(t * rate), rate a fixed-point number of 63 bits rounded up: what is
 *          minted in steps adds up without an error, however small or many the steps. (steps:
 *          floor(t / period) * n tokens.)
 * Bucket.  Two words, tokens and the time until which they are minted, change together by one 16-byte
 *          compare-and-swap: G(now) - G(time) comes in, what does not fit is gone, the call's tokens go
 *          out. So nothing is minted twice, a now that is late mints nothing, a jump ahead mints what the
 *          bucket holds, and a thread that is stopped anywhere has nothing in hand that others miss.
 * Leases.  The capacity is spread: the common part holds up to cap - lanes * lease, and each CPU's lane
 *          up to lease. A call takes from its CPU's lane; when that is empty it takes a batch with its
 *          own from the common part; before anyone is refused or has to wait, all lanes are emptied for
 *          him. All parts together never hold more than cap, so the bound is that of one bucket.
 * Bound.   In any time from a to b of the calls' nows, admitted <= burst + rate * (b - a) + 2^-16 tokens, with
 *          any number of threads. By real time add rate * r, r the resolution of the clock (the chain reads
 *          one that is finer than burst / rate / 4) and what nows are late by. Steps: burst + n for each
 *          multiple of the period in it. A thread that is stopped while it carries a batch to its lane
 *          brings it late: at most one lease for each such thread. An interval with a reload in it: the
 *          larger rate, and once more the larger burst. Nothing is lost while tokens are wanted: under
 *          saturation all that is minted is admitted.
 * Waiting. (max_wait_ns) The common part may go below zero by what comes in that time; the call runs when
 *          its tokens are minted. Undo and cancel give back all units. Later reservations keep their
 *          delays; who comes next takes what was given back, and may run at the same time as one of
 *          them. So with cancels the bound is burst + rate * (max_wait + interval); the total up to any
 *          time never passes what was minted until then.
 * leaky    is a bucket of one token with waiting; a call of weight w comes w / rate after the one before.
 * warm_up  as Guava's SmoothWarmingUp and Sentinel: with r = rate, cf = cold factor, W = warm_up_ns,
 *              stored in [0, max]   max = threshold + 2 W r / (1 + cf), threshold = W r / (cf - 1)
 *              price of a token = 1 / r + max(0, stored - threshold) * (cf - 1) / r / (max - threshold)
 *          Time in use lowers stored by the tokens it buys, so from cold to r takes W, and
 *          2 W r / (1 + cf) tokens; time that buys nothing (the bucket is full) raises it by max / W.
 * Killed.  A process that dies between two steps loses what it carried between the common part and the
 *          lanes: less is admitted, once.
 * Cost.    From a lane one compare-and-swap on the CPU's own line; else one on the common line, and the
 *          lanes before a refusal that check did not see coming. A refusal reads time, tokens, lanes.
 */
#include "rate_state.h"

/* What a word may hold, whatever stands there. */
static int64_t sane(int64_t v, int64_t least, int64_t most)
{
	return v < least ? least : v > most ? most : v;
}

/* ---- time and tokens --------------------------------------------------------------------------- */

static double stored_of(const struct rate_state *s, const struct made *k)
{
	double stored = k->cold_max - (double)get(&s->warm) / UNITS(1);

	return stored > 0 ? stored : 0;
}

static double price_of(const struct made *k, double stored)
{
	return k->stable_ns + (stored > k->cold_from ? stored - k->cold_from : 0) * k->slope;
}

/* Tokens that dt buys, by the price halfway. */
static double warm_tokens(const struct made *k, double stored, double dt)
{
	return dt / price_of(k, stored - dt / price_of(k, stored) / 2);
}

/* Units minted from one time to another, at most what can be of use. */
static int64_t minted(const struct fc_call *c, uint64_t from, uint64_t to)
{
	const struct fc_rate_conf *conf = c->conf;
	const struct made *k = made_of(conf);

	if (to <= from)
		return 0;
	if (to - from >= k->full_ns)
		return k->cap + k->wait;
	if (conf->kind == FC_RATE_WARM_UP)
		return (int64_t)(warm_tokens(k, stored_of(c->state, k), (double)(to - from)) * UNITS(1));
	if (conf->refill == FC_RATE_STEPS)
		return UNITS((to / conf->limit.per_ns - from / conf->limit.per_ns) * conf->limit.n);
	/* Both may have wrapped; their difference is small. */
	return (int64_t)((uint64_t)((wide)to * k->mult >> k->shift) - (uint64_t)((wide)from * k->mult >> k->shift));
}

/* Units that can be had by waiting so long. */
static int64_t units_in(const struct fc_call *c, uint64_t ns)
{
	const struct fc_rate_conf *conf = c->conf;
	const struct made *k = made_of(conf);
	uint64_t per = conf->limit.per_ns, steps;

	if (ns >= conf->max_wait_ns && conf->refill != FC_RATE_STEPS)
		return k->wait;
	if (conf->refill != FC_RATE_STEPS)
		return (int64_t)((wide)ns * k->mult >> k->shift);
	steps = (c->now_ns % per + ns) / per;
	return steps > FC_RATE_TOKENS_MAX / conf->limit.n ? k->wait : at_most(UNITS(steps * conf->limit.n), k->wait);
}

/* When so many units will have been minted. */
static uint64_t ns_until(const struct fc_call *c, int64_t units)
{
	const struct fc_rate_conf *conf = c->conf;
	const struct made *k = made_of(conf);
	uint64_t per = conf->limit.per_ns, steps;
	double cold;
	wide ns;

	if (units <= 0)
		return 0;
	if (conf->kind == FC_RATE_WARM_UP) {
		cold = (double)units / UNITS(1) * price_of(k, stored_of(c->state, k)) + 1;
		return cold < 9e18 ? (uint64_t)cold : FC_NEVER_NS;
	}
	if (conf->refill == FC_RATE_STEPS) {
		steps = ((uint64_t)units + (uint64_t)UNITS(conf->limit.n) - 1) / (uint64_t)UNITS(conf->limit.n);
		ns = (wide)steps * per - c->now_ns % per;
	} else {
		ns = ((wide)(uint64_t)units * k->inv_mult + (((wide)1 << k->inv_shift) - 1)) >> k->inv_shift;
	}
	return ns < INFINITE_NS ? (uint64_t)ns : INFINITE_NS;
}

/* Time has made `units`. Those that the bucket has no room for nobody buys: it cooled. */
static void warm_up(const struct fc_call *c, uint64_t ns, int64_t units, int64_t room)
{
	struct rate_state *s = c->state;
	const struct made *k = made_of(c->conf);
	double bought = (double)at_most(units, room), most = k->cold_max * UNITS(1), idle = 0, v;
	uint64_t was = get(&s->warm);

	if (units >= room)
		idle = (double)ns - bought / UNITS(1) * price_of(k, stored_of(s, k));
	do {
		v = (double)was + bought;
		if (idle > 0)
			v -= idle * most / (double)((const struct fc_rate_conf *)c->conf)->warm_up_ns;
		v = v < 0 ? 0 : v > most ? most : v;
	} while (!swap(&s->warm, &was, (uint64_t)v));
}

/* Until when units are minted now, and how many that makes. A late now mints none. */
static int64_t mint(const struct fc_call *c, uint64_t *time)
{
	uint64_t since = *time;
	int64_t units;

	if (c->now_ns < since && (since - c->now_ns < LATE_NS || !rate_set_back(c->state, c->now_ns, &since)))
		return 0;
	units = minted(c, since, c->now_ns);
	if (units > 0 || c->now_ns < *time)
		*time = c->now_ns;
	return units;
}

/* ---- the parts of the bucket ------------------------------------------------------------------- */

/* Fill a lane; what did not fit. */
static int64_t lane_fill(uint64_t *lane, const struct made *k, int64_t units)
{
	uint64_t was = get(lane);
	int64_t more;

	do {
		more = at_most(k->lease - lane_has(k, was), units);
		if (more == 0)
			return units;
	} while (!swap(lane, &was, lane_word(was, lane_has(k, was) + more)));
	return units - more;
}

/* Units over the common part go to the lanes; when all is full they are gone. */
static void spread(const struct fc_call *c, int64_t units)
{
	const struct made *k = made_of(c->conf);
	uint32_t first = k->lanes ? own_lane(c, k) : 0;

	for (uint32_t i = 0; i < k->lanes && units > 0; i++)
		units = lane_fill(lane_at(c, (first + i) % k->lanes), k, units);
}

/*
 * Newly minted units over the common part: to the first n lanes from the own one. Room that calls made
 * after the units were minted is not for them: they came to a full bucket. So all that is filled in was
 * minted after the last take from any lane that gets some.
 */
static void spread_minted(const struct fc_call *c, int64_t units, uint32_t n)
{
	const struct made *k = made_of(c->conf);
	uint64_t age_ns = c->now_ns;
	int64_t filled = 0;

	for (uint32_t i = 0; i < n && filled < units; i++) {
		uint64_t *lane = lane_at(c, (own_lane(c, k) + i) % k->lanes), was = get(lane), age;
		int64_t more;

		do {
			age = lane_age_ns(was, c->now_ns);
			age = age < age_ns ? age : age_ns;
			more = at_most(minted(c, c->now_ns - age, c->now_ns), units) - filled;
			more = at_most(k->lease - lane_has(k, was), more);
		} while (more > 0 && !swap(lane, &was, lane_word(was, lane_has(k, was) + more)));
		if (more > 0) {
			age_ns = age;
			filled += more;
		}
	}
}

/* All lanes are filled from time to time only: it touches their lines. */
static int spread_due(const struct fc_call *c)
{
	struct rate_state *s = c->state;
	uint64_t last = get(&s->spread_ns), ns = made_of(c->conf)->spread_us * 1000ull;

	return (c->now_ns - last >= ns || c->now_ns < last) && swap(&s->spread_ns, &last, c->now_ns);
}

/* Everything out of the lanes. */
static int64_t collect(const struct fc_call *c)
{
	const struct made *k = made_of(c->conf);
	int64_t sum = 0;

	for (uint32_t i = 0; i < k->lanes; i++) {
		uint64_t *lane = lane_at(c, i), was = get(lane);

		while (lane_has(k, was) > 0 && !swap(lane, &was, lane_taken(was, 0, c->now_ns)))
			;
		sum += lane_has(k, was);
	}
	return sum;
}

/* What the lanes have, by looking; enough of it is enough. */
static int64_t in_lanes(const struct fc_call *c, int64_t enough)
{
	const struct made *k = made_of(c->conf);
	int64_t sum = 0;

	for (uint32_t i = 0; i < k->lanes && sum < enough; i++)
		sum += lane_has(k, get(lane_at(c, i)));
	return sum;
}

/* A batch for a lane with room: less when little is left in the common part, so that it serves all. */
static int64_t batch(const struct made *k, int64_t left, int64_t room)
{
	int64_t n = k->lanes ? at_most(room, left / (2 * k->lanes)) : 0;

	return n > 0 ? n & ~(UNITS(1) - 1) : 0;
}

/* What settle() is to do, and has done. */
struct deal {
	int64_t give;         /* units that were in the bucket before: undone, or from the lanes */
	int64_t want, debt;   /* take so many, if that leaves no less than -debt */
	int64_t fresh, room, over, more, back;
	struct common left;
};

/* The common part as it becomes. 1: the wanted units are taken. */
static int reckon(const struct fc_call *c, struct deal *d, struct common was, int64_t lane_room)
{
	const struct made *k = made_of(c->conf);
	int64_t to = sane(was.tokens, -UNITS(FC_RATE_TOKENS_MAX), k->cap);
	int got;

	d->left.time = was.time;
	d->fresh = mint(c, &d->left.time);
	d->room = to < k->common ? k->common - to : 0;
	d->over = d->fresh - at_most(d->fresh, d->room);
	to += d->fresh - d->over + d->give;
	if (was.tokens > k->common)
		d->over = 0; /* other numbers held before: the lanes get what is there */
	got = to - d->want >= -d->debt;
	to -= got ? d->want : 0;
	d->more = got && d->want ? batch(k, to, lane_room) : 0;
	to -= d->more;
	d->back = to > k->common ? to - k->common : 0;
	d->left.tokens = to - d->back;
	return got;
}

/*
 * Bring the common part up to now, give and take, all at once: minted units fill it, and the lanes, before
 * anything is taken; given ones may pass through. A batch goes to the own lane. 1: taken.
 */
static int settle(struct fc_call *c, struct deal *d)
{
	struct rate_state *s = c->state;
	const struct made *k = made_of(c->conf);
	uint64_t *own = k->lanes ? lane_at(c, own_lane(c, k)) : NULL;
	struct common was = get_common(&s->common);
	int got;

	do {
		got = reckon(c, d, was, own ? k->lease - lane_has(k, get(own)) : 0);
	} while ((d->left.tokens != was.tokens || d->left.time != was.time) && !swap_common(&s->common, &was, d->left));
	if (c->now_ns >= was.time || d->left.time < was.time)
		rate_in_time(s);
	if (d->fresh > 0 && ((const struct fc_rate_conf *)c->conf)->kind == FC_RATE_WARM_UP)
		warm_up(c, c->now_ns - was.time, d->fresh, d->room);
	if (d->over > 0 && own)
		spread_minted(c, d->over, spread_due(c) ? k->lanes : 1);
	if (d->back > 0)
		spread(c, d->back);
	if (d->more > 0 && (d->more = lane_fill(own, k, d->more)) > 0) {
		struct deal rest = { .give = d->more }; /* another thread of this CPU filled it */

		(void)settle(c, &rest); /* once: it wants nothing */
	}
	return got;
}

static uint64_t tokens_of(int64_t units)
{
	return units > 0 ? (uint64_t)units >> UNIT_BITS : 0;
}

/* The common part, as it would be at now. */
static int64_t common_now(const struct fc_call *c)
{
	struct common is = get_common(&((const struct rate_state *)c->state)->common);
	const struct made *k = made_of(c->conf);
	int64_t has = sane(is.tokens, -UNITS(FC_RATE_TOKENS_MAX), k->cap);

	return at_most(has + minted(c, is.time, c->now_ns), k->cap);
}

/* The most that one call may take: a paced one may wait for its own tokens. */
static int64_t heaviest(const struct fc_call *c)
{
	const struct fc_rate_conf *conf = c->conf;

	return made_of(conf)->cap + (conf->kind == FC_RATE_LEAKY ? made_of(conf)->wait : 0);
}

static int too_heavy(const struct fc_call *c)
{
	return UNITS(c->weight) > heaviest(c);
}

static int no_tokens(struct fc_call *c, int64_t has, int64_t debt)
{
	const struct made *k = made_of(c->conf);

	if (too_heavy(c))
		return refuse(c, c->weight, tokens_of(heaviest(c)), 0);
	return refuse(c, tokens_of(has), tokens_of(k->cap), ns_until(c, UNITS(c->weight) - has - debt));
}

/* The own lane has not enough, here and in take. */
int fci_rate_bucket_check(struct fc_call *c)
{
	const struct rate_state *s = c->state;
	const struct made *k = made_of(c->conf);
	int64_t want = UNITS(c->weight), has;
	uint64_t time;

	time = get(&s->common.time);
	if (c->now_ns < time && time - c->now_ns >= LATE_NS)
		return 0; /* set back, or late: pre finds out */
	has = common_now(c);
	if (!too_heavy(c) && (has + k->wait >= want || has + in_lanes(c, want - has) >= want))
		return 0;
	return no_tokens(c, has, k->wait);
}

/* Reserve what is to come: with a delay. */
static int bucket_wait(struct fc_call *c, int64_t want)
{
	const struct fc_rate_conf *conf = c->conf;
	uint64_t ns = c->max_delay_ns < conf->max_wait_ns ? c->max_delay_ns : conf->max_wait_ns;
	int64_t debt = ns ? units_in(c, ns) : 0;
	struct deal d = { .want = want, .debt = debt }, undo = { .give = want };

	if (debt <= 0 || !settle(c, &d))
		return no_tokens(c, common_now(c), debt);
	c->delay_ns = d.left.tokens < 0 ? ns_until(c, -d.left.tokens) : 0;
	if (d.left.time > c->now_ns && d.left.tokens < 0)
		c->delay_ns += d.left.time - c->now_ns; /* minted until then already */
	if (c->delay_ns <= ns)
		return 0;
	c->delay_ns = 0;
	(void)settle(c, &undo);
	return no_tokens(c, common_now(c), debt);
}

int fci_rate_bucket_take(struct fc_call *c)
{
	const struct made *k = made_of(c->conf);
	struct deal now = { .want = UNITS(c->weight) }, all = now;

	if (too_heavy(c))
		return no_tokens(c, 0, 0);
	if (settle(c, &now))
		return 0;
	if (k->lanes && (all.give = collect(c)) > 0 && settle(c, &all))
		return 0;
	return bucket_wait(c, now.want);
}

void fci_rate_bucket_give(struct fc_call *c)
{
	struct deal d = { .give = UNITS(c->weight) };

	(void)settle(c, &d);
}

int64_t fci_rate_bucket_has(struct fc_call *c)
{
	int64_t units = at_most(common_now(c) + in_lanes(c, INT64_MAX), made_of(c->conf)->cap);

	return units < 0 ? -((-units + UNITS(1) - 1) >> UNIT_BITS) : units >> UNIT_BITS;
}

void fci_rate_bucket_begin(struct fc_call *c, uint64_t tokens)
{
	struct deal d = { .give = at_most(UNITS(tokens), made_of(c->conf)->cap) };
	struct rate_state *s = c->state;

	put(&s->common.time, c->now_ns);
	(void)settle(c, &d);
}

void fci_rate_bucket_settle(struct fc_call *c)
{
	struct deal d = { .give = 0 };

	(void)settle(c, &d);
}
