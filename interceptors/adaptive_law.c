/* SPDX-License-Identifier: BSD-2-Clause */
/* adaptive_law.c - see adaptive_law.h; what it does and why stands in adaptive.c. */
#include "adaptive_law.h"

#define WIDTH          0.26  /* log2(1.2): latency over the unloaded one that is no queueing */
#define STEP_SMALL     1.25
#define STEP_FREE      1.25  /* up, while nothing queues */
#define STEP_DOWN_MOST 0.5
#define STEP_DOWN_LEAST 0.87
#define WORTH          0.3   /* of the change of a limit, throughput must follow by this share */
#define REST           8u    /* windows between small steps */
#define REST_MOST      64u
#define REST_SHARE     3u    /* at least so many times as long as the step that was undone */
#define WINDOWS_MOST   4u    /* of one experiment */
#define WINDOWS_FEW    32u   /* of one whose windows have few calls */
#define CALLS_FEW      1000.0 /* as many say enough of a step of 25 % */
#define SURE           2.5   /* standard deviations, of a gain */
#define TELLABLE       1.5   /* the same, of the gain that a step should have */
#define HERE_MOST      4.0   /* windows that a mean remembers */
#define JUMP           0.5   /* log2: the world has changed */

/* ---- numbers ----------------------------------------------------------------------------------- */

double fci_law_log2(double v)
{
	double e = 0, z, zz;

	if (!(v > 1e-30) || v > 1e30)
		return v > 1 ? 100 : -100;
	for (; v >= 1.4142135623730951; v /= 2)
		e++;
	for (; v < 0.7071067811865476; v *= 2)
		e--;
	z = (v - 1) / (v + 1);
	zz = z * z;
	return e + 2.885390081777927 * z * (1 + zz * (1.0 / 3 + zz * (1.0 / 5 + zz / 7)));
}

double fci_law_exp2(double v)
{
	double x, r = 1;

	if (!(v > -100) || v > 100)
		return v > 0 ? 1e30 : 0;
	for (; v >= 0.5; v--)
		r *= 2;
	for (; v < -0.5; v++)
		r /= 2;
	x = v * 0.6931471805599453;
	return r * (1 + x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4))));
}

static double clamp(double v, double low, double high)
{
	return v > low ? v < high ? v : high : low; /* NaN: low */
}

static double root(double v)
{
	return v > 0 ? fci_law_exp2(fci_law_log2(v) / 2) : 0;
}

static int sane(double v, double low, double high)
{
	return v >= low && v <= high;
}

/* ---- what is known ----------------------------------------------------------------------------- */

/* Variance of the logarithm of a count of calls. The squared variation of their latencies is taken for the
 * variance of the natural logarithm: right for narrow latencies, two thirds over for exponential ones. */
static double noise_of(const struct law_sample *s)
{
	double cv2 = 0.48 * clamp(s->variance, 0, 8);

	return 2.1 * (cv2 > 0.1 ? cv2 : 0.1); /* (log2 e)^2 */
}

/* One more window at this limit. */
static void learn(struct law_point *p, const struct law_sample *s, double most)
{
	double share, weight = p->weight + s->calls;

	most = most * s->calls > CALLS_FEW ? most * s->calls : CALLS_FEW;
	if (weight > most)
		weight = most;
	share = s->calls / weight;
	p->latency += share * (s->latency - p->latency);
	p->throughput += share * (fci_law_log2(s->throughput) - p->throughput);
	p->noise = noise_of(s) / weight;
	p->spread = s->variance / weight;
	p->weight = weight;
}

/* How much more throughput `there` has than a step from `base` to `limit` must have brought to be worth it. */
static double gain(const struct law *l)
{
	return l->there.throughput - l->here.throughput - WORTH * fci_law_log2(l->limit / l->base);
}

/* Latency of `here` over the unloaded one, that which does not matter and what may be chance left out. */
static double queueing(const struct law *l, const struct law_conf *c)
{
	double q = l->here.latency - fci_law_log2(fci_law_exp2(l->unloaded) + c->slack_ns);

	if (l->unloaded <= 0)
		return 0;
	return q > 0 ? clamp(q - root(l->here.spread), 0, q) : q;
}

/* Latency without queueing: down with what is seen, but not by chance: the least of many noisy means is far
 * below the true one. Up on its own only while nobody is refused and half of the places are free; else by an
 * experiment alone. */
static void learn_unloaded(struct law *l, const struct law_sample *s)
{
	double more = s->latency - l->unloaded, chance = root(s->variance / s->calls);

	if (l->unloaded <= 0)
		l->unloaded = s->latency;
	else if (more < 0)
		l->unloaded += more + chance < 0 ? (more + chance) / 2 : 0;
	else if (s->refusing <= 0 && s->bad_calls <= 0 && s->inside * 2 < l->limit)
		l->unloaded += more / 16;
}

/* ---- steps ------------------------------------------------------------------------------------- */

static void forget(struct law_point *p)
{
	*p = (struct law_point){ 0 };
}

static void settle_at(struct law *l, double limit)
{
	l->limit = l->base = limit;
	l->windows = 0;
	l->tried = 0;
	forget(&l->there);
}

void fci_law_give_up(struct law *l)
{
	settle_at(l, l->base);
}

/* Try `limit`; the one so far stays in `base`. */
static void try_limit(struct law *l, const struct law_conf *c, double limit)
{
	limit = clamp(limit, c->min, c->max);
	if ((uint32_t)limit == (uint32_t)l->base)
		limit = clamp(limit > l->base ? l->base + 1 : l->base - 1, c->min, c->max);
	if ((uint32_t)limit == (uint32_t)l->base)
		return;
	forget(&l->there);
	l->windows = 0;
	l->tried = 0;
	l->limit = limit;
}

static void keep(struct law *l)
{
	l->kept++;
	l->failures = 0;
	l->wait = 0;
	l->upwards = l->limit > l->base;
	l->down_pays = !l->upwards;
	if (l->down_pays && l->there.latency < l->unloaded)
		l->unloaded = l->there.latency;
	l->here = l->there;
	settle_at(l, l->limit);
}

/* Back, and see whether throughput comes back too: only then it was the step that took it. */
static void undo(struct law *l)
{
	uint32_t rest = REST << (l->failures < 8 ? l->failures : 8);

	rest = rest > REST_SHARE * l->windows ? rest : REST_SHARE * l->windows;
	l->undone++;
	l->failures++;
	l->wait = rest < REST_MOST ? rest : REST_MOST;
	l->upwards = l->limit < l->base;
	l->down_pays = 0;
	l->tried = l->limit;
	l->limit = l->base;
	l->windows = 0;
	forget(&l->here);
}

/* The first window after an undone step. */
static void confirm(struct law *l, const struct law_sample *s)
{
	double step = fci_law_log2(l->base / l->tried), more = fci_law_log2(s->throughput) - l->there.throughput;
	double surely = l->there.latency - root(l->there.spread);
	int down = l->tried < l->base;

	if (down && s->refusing > 0 && more <= WORTH * step) {
		l->failures = 0; /* the world has changed meanwhile: nothing is known */
		l->wait = 0;
	} else if (down && s->refusing > 0 && surely > l->unloaded) {
		l->unloaded = surely; /* fewer calls did not make it less: nothing had queued */
	}
	l->tried = 0;
	forget(&l->there);
}

/* A step is being tried. Enough is known when the gain is clear, or after some windows. */
static void judge(struct law *l, const struct law_sample *s)
{
	double g, noise;
	int down = l->limit < l->base;

	learn(&l->there, s, 1e9);
	l->windows++;
	if (down && s->refusing <= 0) { /* nobody was refused even so: demand fell, and that says nothing */
		fci_law_give_up(l);
		return;
	}
	g = gain(l);
	noise = SURE * SURE * (l->here.noise + l->there.noise);
	if (g * g < noise && l->windows < (l->there.weight < CALLS_FEW ? WINDOWS_FEW : WINDOWS_MOST))
		return;
	if (g > 0)
		keep(l);
	else
		undo(l);
}

/* The least step whose gain, should there be none in throughput, can be told from chance. */
static double least_step(const struct law *l)
{
	return fci_law_exp2(clamp(TELLABLE * root(2 * l->here.noise) / WORTH, 0, 1));
}

/* Callers are being refused, and no step is under way: is it time for one? */
static void consider(struct law *l, const struct law_conf *c, const struct law_sample *s)
{
	double least = least_step(l), small = least > STEP_SMALL ? least : STEP_SMALL;
	double q = queueing(l, c);
	int can_fall = (uint32_t)l->base > (uint32_t)c->min; /* by a whole place */

	if (q > c->tolerance && can_fall) {
		if (l->failures == 0 || l->wait == 0)
			try_limit(l, c, l->base * clamp(fci_law_exp2(-q / 2), STEP_DOWN_MOST, clamp(1 / least, 0, STEP_DOWN_LEAST)));
	} else if (l->down_pays && s->refusing > 0.5 && can_fall) {
		try_limit(l, c, l->base / small);
	} else if (q < WIDTH && l->base < c->max) {
		settle_at(l, clamp(l->base * (1 + (STEP_FREE - 1) * (1 - clamp(q / WIDTH, 0, 0.8))), l->base + 1, c->max));
		forget(&l->here);
	} else if (l->wait == 0 && s->refusing > 0.5) {
		try_limit(l, c, l->upwards ? l->base * small : l->base / small);
		l->upwards = !l->upwards;
		l->wait = REST;
	}
}

/* Time-outs lower the limit whatever else is known. */
static int lowered_by_bad(struct law *l, const struct law_conf *c, const struct law_sample *s)
{
	if (s->bad_calls < 3 || s->bad < c->bad_share)
		return 0;
	settle_at(l, clamp(l->base * clamp(1 - c->bad_weight * s->bad, STEP_DOWN_MOST, 1), c->min, c->max));
	forget(&l->here);
	l->wait = 0;
	l->failures = 0;
	l->down_pays = 0;
	return 1;
}

/* Another latency than so far at this limit, and not by chance. */
static int has_jumped(const struct law *l, const struct law_sample *s)
{
	double by = s->latency - l->here.latency, chance = 3 * root(s->variance / s->calls);

	return by * by > JUMP * JUMP && by * by > chance * chance;
}

double fci_law_window(struct law *l, const struct law_conf *c, const struct law_sample *s)
{
	if (lowered_by_bad(l, c, s) || s->calls < c->min_calls)
		return l->limit;
	l->measured++;
	if (l->limit < l->base || l->limit > l->base) {
		learn_unloaded(l, s);
		judge(l, s);
		return l->limit;
	}
	learn_unloaded(l, s);
	if (l->tried > 0)
		confirm(l, s);
	if (has_jumped(l, s))
		forget(&l->here);
	learn(&l->here, s, HERE_MOST);
	l->wait -= l->wait > 0;
	if (s->refusing > 0)
		consider(l, c, s);
	return l->limit;
}

void fci_law_check(struct law *l, const struct law_conf *c)
{
	const double *v[] = { &l->unloaded, &l->here.latency, &l->here.throughput, &l->there.latency, &l->there.throughput };
	int ok = sane(l->limit, 0, 1e9) && sane(l->tried, 0, 1e9) && sane(l->base, 0, 1e9) && sane(l->here.weight, 0, 1e12) &&
	         sane(l->there.weight, 0, 1e12) && sane(l->here.noise, 0, 1e12) && sane(l->there.noise, 0, 1e12) &&
	         sane(l->here.spread, 0, 1e12) && sane(l->there.spread, 0, 1e12);

	for (unsigned i = 0; i < sizeof(v) / sizeof(v[0]); i++)
		ok &= sane(*v[i], -200, 200);
	if (!ok || l->limit <= 0)
		*l = (struct law){ .limit = c->initial, .base = c->initial };
	if (!sane(l->base, c->min, c->max) || !sane(l->limit, c->min, c->max))
		settle_at(l, clamp(l->base, c->min, c->max));
}
