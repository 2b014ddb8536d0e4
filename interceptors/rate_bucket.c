/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rate_bucket.c - the kinds of the rate interceptor that mint tokens: bucket, leaky, warm_up.
 *
 * Units.   Tokens are counted in units of 2^-16, in 64 bits. The units minted until a time t are a function
 *          of t alone, G(t) = floor(t * rate), rate a fixed-point number of 63 bits rounded up: what is
 *          minted in steps adds up without an error, however small or many the steps. (steps:
 *          floor(t / period) * n tokens.)
 * Bucket.  `time`: minted until then. A call that finds now later moves it by compare-and-swap; who
 *          succeeds, alone, adds G(now) - G(time). So nothing is minted twice, a now that is late or went
 *          back mints nothing, and a jump ahead mints what the bucket holds.
 * Leases.  The capacity is spread: the common part holds up to cap - lanes * lease, and each CPU's lane
 *          up to lease. A call takes from its CPU's lane; when that is empty it takes a batch with its
 *          own from the common part; before anyone is refused or has to wait, all lanes are emptied for
 *          him. All parts together never hold more than cap, so the bound is that of one bucket.
 * Bound.   In any time from a to b of the calls' nows, admitted <= burst + rate * (b - a) + 2^-16 tokens,
 *          exactly, with any number of threads. By real time add rate * r, r the resolution of the
 *          clock (the chain reads one that is finer than burst / rate / 4) and what nows are late by. Steps: burst + n for each
 *          multiple of the period in it. An interval with a reload in it: the larger rate, and once more
 *          the larger burst. Nothing is lost while tokens are wanted: under saturation all that is
 *          minted is admitted.
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
 * Killed.  A process that dies between two steps loses what it held in hand: less is admitted, once. A
 *          thread that is stopped between claiming time and adding the tokens makes others miss them until
 *          it goes on.
 * Cost.    From a lane one compare-and-swap on the CPU's own line; else two on the common line, and the
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
	wide ns;

	if (units <= 0)
		return 0;
	if (conf->kind == FC_RATE_WARM_UP)
		return (uint64_t)((double)units / UNITS(1) * price_of(k, stored_of(c->state, k))) + 1;
	if (conf->refill == FC_RATE_STEPS) {
		steps = ((uint64_t)units + (uint64_t)UNITS(conf->limit.n) - 1) / (uint64_t)UNITS(conf->limit.n);
		ns = (wide)steps * per - c->now_ns % per;
	} else {
		ns = ((wide)(uint64_t)units * k->inv_mult + (((wide)1 << k->inv_shift) - 1)) >> k->inv_shift;
	}
	return ns < INFINITE_NS ? (uint64_t)ns : INFINITE_NS;
}

/* Time was claimed and made `units`. Those that the bucket has no room for nobody buys: it cooled. */
static void warm_up(const struct fc_call *c, uint64_t ns, int64_t units)
{
	struct rate_state *s = c->state;
	const struct made *k = made_of(c->conf);
	int64_t room = k->cap - sane(get_units(&s->tokens), 0, k->cap);
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

/* Claim the time until now, and with it the units it has minted. */
static int64_t claim(struct fc_call *c)
{
	struct rate_state *s = c->state;
	uint64_t time = get(&s->time), since;
	int64_t units;

	if (c->now_ns < time)
		return time - c->now_ns >= LATE_NS && rate_set_back(s, c->now_ns, time, &since) ?
		       minted(c, since, c->now_ns) : 0;
	rate_in_time(s);
	units = minted(c, time, c->now_ns);
	if (units <= 0 || !swap(&s->time, &time, c->now_ns))
		return 0;
	if (((const struct fc_rate_conf *)c->conf)->kind == FC_RATE_WARM_UP)
		warm_up(c, c->now_ns - time, units);
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

/*
 * Put units into the common part, and take `want` out, if that leaves no less than -debt: 1. *ret_left is
 * what it leaves. Minted units (`fresh`) fill the common part, then the lanes, before anything is taken;
 * given ones, which were in the bucket before, may pass through. A batch goes to the own lane with it.
 */
static int settle(struct fc_call *c, int64_t units, int fresh, int64_t want, int64_t debt, int64_t *ret_left)
{
	struct rate_state *s = c->state;
	const struct made *k = made_of(c->conf);
	uint64_t *own = k->lanes ? lane_at(c, own_lane(c, k)) : NULL;
	int64_t room = own ? k->lease - lane_has(k, get(own)) : 0;
	int64_t was = get_units(&s->tokens), to, over, more, back, ignored;
	int got;

	do {
		to = sane(was, -UNITS(FC_RATE_TOKENS_MAX), k->cap);
		over = fresh ? units - at_most(units, to < k->common ? k->common - to : 0) : 0;
		to += units - over;
		over = was > k->common ? 0 : over; /* other numbers held before: the lanes get what is there */
		got = to - want >= -debt;
		to -= got ? want : 0;
		more = got && want ? batch(k, to, room - over) : 0;
		to -= more;
		back = to > k->common ? to - k->common : 0;
		to -= back;
	} while (to != was && !swap_units(&s->tokens, &was, to));
	if (more > 0 && (more = lane_fill(own, k, more)) > 0)
		(void)settle(c, more, 0, 0, 0, &ignored); /* another thread of this CPU filled it: once, as want is 0 */
	if (back > 0)
		spread(c, back);
	if (over > 0 && own)
		spread_minted(c, over, spread_due(c) ? k->lanes : 1);
	*ret_left = to;
	return got;
}

static uint64_t tokens_of(int64_t units)
{
	return units > 0 ? (uint64_t)units >> UNIT_BITS : 0;
}

/* The common part, as it would be at now. */
static int64_t common_now(const struct fc_call *c)
{
	const struct rate_state *s = c->state;
	const struct made *k = made_of(c->conf);
	int64_t has = sane(get_units(&s->tokens), -UNITS(FC_RATE_TOKENS_MAX), k->cap);

	return at_most(has + minted(c, get(&s->time), c->now_ns), k->cap);
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

	time = get(&s->time);
	if (c->now_ns < time && time - c->now_ns >= LATE_NS)
		return 0; /* set back, or late: pre finds out */
	has = common_now(c);
	if (!too_heavy(c) && (has + k->wait >= want || has + in_lanes(c, want - has) >= want))
		return 0;
	return no_tokens(c, has, k->wait);
}

/* Reserve what is to come: with a delay. */
static int bucket_wait(struct fc_call *c, int64_t want, uint64_t max_ns)
{
	const struct fc_rate_conf *conf = c->conf;
	uint64_t ns = max_ns < conf->max_wait_ns ? max_ns : conf->max_wait_ns, time;
	int64_t debt = ns ? units_in(c, ns) : 0, left;

	if (debt <= 0 || !settle(c, 0, 0, want, debt, &left))
		return no_tokens(c, common_now(c), debt);
	c->delay_ns = left < 0 ? ns_until(c, -left) : 0;
	time = get(&((struct rate_state *)c->state)->time);
	if (time > c->now_ns && left < 0)
		c->delay_ns += time - c->now_ns; /* minted until then already */
	if (c->delay_ns <= ns)
		return 0;
	c->delay_ns = 0;
	(void)settle(c, want, 0, 0, 0, &left);
	return no_tokens(c, common_now(c), debt);
}

int fci_rate_bucket_take(struct fc_call *c)
{
	const struct made *k = made_of(c->conf);
	int64_t want = UNITS(c->weight), left;

	if (too_heavy(c))
		return no_tokens(c, 0, 0);
	if (settle(c, claim(c), 1, want, 0, &left))
		return 0;
	if (k->lanes && settle(c, collect(c), 0, want, 0, &left))
		return 0;
	return bucket_wait(c, want, c->max_delay_ns);
}

void fci_rate_bucket_give(struct fc_call *c)
{
	int64_t left;

	(void)settle(c, UNITS(c->weight), 0, 0, 0, &left);
}

int64_t fci_rate_bucket_has(struct fc_call *c)
{
	int64_t units = at_most(common_now(c) + in_lanes(c, INT64_MAX), made_of(c->conf)->cap);

	return units < 0 ? -((-units + UNITS(1) - 1) >> UNIT_BITS) : units >> UNIT_BITS;
}

void fci_rate_bucket_fill(struct fc_call *c, uint64_t tokens)
{
	const struct made *k = made_of(c->conf);
	int64_t left;

	(void)settle(c, UNITS(tokens) < k->cap ? UNITS(tokens) : k->cap, 0, 0, 0, &left);
}

/* What has been minted until now comes by the numbers so far. */
void fci_rate_bucket_settle(struct fc_call *c)
{
	int64_t left;

	(void)settle(c, claim(c), 1, 0, 0, &left);
}
