/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim_rivals.c - other adaptive limits, as their formulas and default constants are described; written anew
 * for the simulation, without their queues, threads and clocks.
 */
#include <math.h>
#include <string.h>

#include "sim.h"

static double clamp(double v, double low, double high)
{
	return v > low ? v < high ? v : high : low;
}

/* ---- windows of Netflix's limits: 1 s, 10 samples ---------------------------------------------- */

struct window {
	double began, sum;
	uint32_t n, inside;
	int drop;
};

/* 1: the window has ended; *ret has it. */
static int window_add(struct window *w, const struct sim_ended *e, struct window *ret)
{
	if (w->began <= 0)
		w->began = e->now;
	w->sum += e->latency;
	w->n++;
	w->drop |= !e->good;
	w->inside = e->inside > w->inside ? e->inside : w->inside;
	if (e->now - w->began < 1000 * SIM_MS || w->n < 10)
		return 0;
	*ret = *w;
	*w = (struct window){ .began = e->now };
	return 1;
}

/* ---- Gradient2 --------------------------------------------------------------------------------- */

struct gradient {
	struct window w;
	double limit, lasting;
	uint32_t n;
};

static void gradient_begin(void *state)
{
	((struct gradient *)state)->limit = 20;
}

static void gradient_ended(void *state, const struct sim_ended *e)
{
	struct gradient *g = state;
	struct window w;
	double recent, slope;

	if (!window_add(&g->w, e, &w))
		return;
	recent = w.sum / w.n;
	g->n++; /* warm-up: a plain mean of 10, then an exponential one over 600 */
	g->lasting += (recent - g->lasting) * (g->n <= 10 ? 1.0 / g->n : 2.0 / 601);
	if (g->lasting / recent > 2)
		g->lasting *= 0.95;
	if (w.inside < g->limit / 2)
		return;
	slope = clamp(1.5 * g->lasting / recent, 0.5, 1);
	g->limit = clamp(0.8 * g->limit + 0.2 * (g->limit * slope + 4), 20, 200);
}

static double gradient_limit(void *state, double now, uint32_t inside)
{
	(void)now, (void)inside;
	return ((struct gradient *)state)->limit;
}

/* ---- Vegas ------------------------------------------------------------------------------------- */

struct vegas {
	struct window w;
	double limit, least;
	uint32_t samples;
	double probe_at;
};

static void vegas_begin(void *state)
{
	struct vegas *v = state;

	v->limit = 20;
	v->probe_at = 0.75;
}

static void vegas_ended(void *state, const struct sim_ended *e)
{
	struct vegas *v = state;
	struct window w;
	double recent, queue, step;

	if (!window_add(&v->w, e, &w))
		return;
	recent = w.sum / w.n;
	if (++v->samples > v->probe_at * 30 * v->limit) { /* samples are windows */
		v->samples = 0;
		v->probe_at = 0.5 + fmod(v->probe_at * 1.618, 0.5);
		v->least = recent;
		return;
	}
	if (v->least <= 0 || recent < v->least) {
		v->least = recent;
		return;
	}
	step = fmax(1, log10(v->limit));
	queue = ceil(v->limit * (1 - v->least / recent));
	if (w.drop)
		v->limit -= step;
	else if (w.inside * 2 < v->limit)
		return;
	else if (queue <= step)
		v->limit += 6 * step;
	else if (queue < 3 * step)
		v->limit += step;
	else if (queue > 6 * step)
		v->limit -= step;
	v->limit = clamp(v->limit, 1, SIM_MAX);
}

static double vegas_limit(void *state, double now, uint32_t inside)
{
	(void)now, (void)inside;
	return ((struct vegas *)state)->limit;
}

/* ---- brpc's auto limiter ----------------------------------------------------------------------- */

struct brpc {
	double limit, began, last, least, most_qps, explore, measure_at, reset_at;
	double sum;
	uint32_t n, bad;
	double bad_sum;
};

static void brpc_begin(void *state)
{
	struct brpc *b = state;

	b->limit = 40;
	b->least = -1;
	b->most_qps = -1;
	b->explore = 0.3;
	b->measure_at = 50000 * SIM_MS;
}

static void brpc_update(struct brpc *b, double now)
{
	double qps = b->n / (now - b->began) * 1e9, mean = (b->sum + b->bad_sum) / b->n, next;

	if (b->least <= 0)
		b->least = mean;
	else if (mean < b->least)
		b->least += 0.1 * (mean - b->least);
	b->most_qps = qps >= b->most_qps ? qps : b->most_qps + 0.01 * (qps - b->most_qps);
	if (b->measure_at < now) {
		b->reset_at = now + 2 * mean;
		next = b->most_qps / 1e9 * b->least * 0.9;
		b->measure_at = now + (25000 + fmod(now / SIM_MS, 25000)) * SIM_MS;
	} else {
		if (mean <= b->least * (1 + 0.06) || qps <= b->most_qps / (1 + 0.06))
			b->explore = fmin(0.3, b->explore + 0.02);
		else
			b->explore = fmax(0.06, b->explore - 0.02);
		next = b->least * b->most_qps / 1e9 * (1 + b->explore);
	}
	b->limit = clamp(next, 4, SIM_MAX);
}

static void brpc_ended(void *state, const struct sim_ended *e)
{
	struct brpc *b = state;

	if (b->reset_at > 0) { /* calls of the time before are not looked at */
		if (e->now < b->reset_at)
			return;
		b->reset_at = 0;
		b->least = -1;
		b->began = 0;
	}
	if (b->began <= 0) {
		b->began = e->now;
		b->n = b->bad = 0;
		b->sum = b->bad_sum = 0;
	}
	if (e->now - b->last < 0.1 * SIM_MS)
		return;
	b->last = e->now;
	if (e->good)
		b->sum += e->latency;
	else
		b->bad++, b->bad_sum += e->latency;
	b->n++;
	if (b->n < 100) {
		if (e->now - b->began >= 1000 * SIM_MS)
			b->began = 0;
		return;
	}
	if (e->now - b->began < 1000 * SIM_MS && b->n < 200)
		return;
	if (b->bad == b->n)
		b->limit = fmax(4, b->limit / 2);
	else
		brpc_update(b, e->now);
	b->began = 0;
}

static double brpc_limit(void *state, double now, uint32_t inside)
{
	(void)now, (void)inside;
	return ((struct brpc *)state)->limit;
}

/* ---- BBR-like: most completions x least latency of 10 s in 100 ms buckets ---------------------- */

#define BUCKETS 100

struct bbr {
	double last_full;
	uint64_t index[BUCKETS];
	uint32_t n[BUCKETS];
	double sum[BUCKETS];
	double until;
	double cached;
};

static void bbr_ended(void *state, const struct sim_ended *e)
{
	struct bbr *b = state;
	uint64_t at = (uint64_t)(e->now / (100 * SIM_MS));
	uint32_t i = at % BUCKETS;

	if (b->index[i] != at) {
		b->index[i] = at;
		b->n[i] = 0;
		b->sum[i] = 0;
	}
	b->n[i]++;
	b->sum[i] += e->latency;
}

/* Their CPU gate is taken as passed: a saturated server is what is simulated. */
static double bbr_limit(void *state, double now, uint32_t inside)
{
	struct bbr *b = state;
	uint64_t at = (uint64_t)(now / (100 * SIM_MS));
	double most = 0, least = 1e30;

	(void)inside;
	if (now < b->until)
		return b->cached;
	for (uint32_t i = 0; i < BUCKETS; i++) {
		if (b->index[i] + BUCKETS <= at || b->index[i] >= at || b->n[i] == 0)
			continue;
		most = fmax(most, b->n[i]);
		least = fmin(least, b->sum[i] / b->n[i]);
	}
	b->until = now + 100 * SIM_MS;
	b->cached = most > 0 ? clamp(floor(most * 10 * least / 1e9 + 0.5), 1, SIM_MAX) : SIM_MAX;
	return b->cached;
}

/* ---- failsafe-go: Vegas by quantiles, with a gate by correlation ------------------------------- */

#define PAST 50
#define LATENCIES 1024

struct failsafe {
	double limit, began, baseline, smooth;
	double lat[LATENCIES], median[5];
	uint32_t n, seen, windows, inside;
	double past_inside[PAST], past_rate[PAST], past_latency[PAST];
};

static void failsafe_begin(void *state)
{
	((struct failsafe *)state)->limit = 20;
}

static void sort(double *v, uint32_t n)
{
	for (uint32_t gap = n / 2; gap; gap /= 2)
		for (uint32_t i = gap; i < n; i++)
			for (uint32_t j = i; j >= gap && v[j - gap] > v[j]; j -= gap) {
				double t = v[j];

				v[j] = v[j - gap];
				v[j - gap] = t;
			}
}

static double correlation(const double *a, const double *b, uint32_t n, double *ret_cv)
{
	double ma = 0, mb = 0, aa = 0, bb = 0, ab = 0;

	for (uint32_t i = 0; i < n; i++)
		ma += a[i] / n, mb += b[i] / n;
	for (uint32_t i = 0; i < n; i++) {
		aa += (a[i] - ma) * (a[i] - ma);
		bb += (b[i] - mb) * (b[i] - mb);
		ab += (a[i] - ma) * (b[i] - mb);
	}
	*ret_cv = mb > 0 ? sqrt(bb / n) / mb : 0;
	return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static void failsafe_window(struct failsafe *f, double now)
{
	double recent, m[5], queue, cv, cv2, by_rate, by_latency, step = fmax(1, log10(f->limit));
	uint32_t i = f->windows % PAST, have;

	sort(f->lat, f->n);
	f->median[f->windows % 5] = f->lat[f->n * 9 / 10];
	have = f->windows + 1 < 5 ? f->windows + 1 : 5;
	memcpy(m, f->median, sizeof(m));
	sort(m, have);
	f->smooth += (m[have / 2] - f->smooth) * (f->windows ? 2.0 / 6 : 1);
	recent = f->smooth;
	f->baseline += (recent - f->baseline) * (f->windows ? recent < f->baseline ? 1 : 2.0 / 11 / 10 : 1);
	f->past_inside[i] = f->inside;
	f->past_rate[i] = f->seen / (now - f->began) * 1e9;
	f->past_latency[i] = recent;
	f->windows++;
	have = f->windows < PAST ? f->windows : PAST;
	by_rate = correlation(f->past_inside, f->past_rate, have, &cv);
	by_latency = correlation(f->past_inside, f->past_latency, have, &cv2);
	queue = ceil(f->limit * (1 - f->baseline / recent));
	if (queue > 6 * step || by_rate < 0 || (by_rate < 0.3 && by_latency > 0.5) || (cv < 0.2 && by_latency > 0.5))
		f->limit -= step;
	else if (queue < 3 * step && f->limit < 5.0 * f->inside)
		f->limit += step;
	f->limit = clamp(f->limit, 1, 200);
}

static void failsafe_ended(void *state, const struct sim_ended *e)
{
	struct failsafe *f = state;

	if (f->began <= 0)
		f->began = e->now;
	if (f->n < LATENCIES)
		f->lat[f->n++] = e->latency;
	f->seen++;
	f->inside = e->inside > f->inside ? e->inside : f->inside;
	if (e->now - f->began < 1000 * SIM_MS || f->n < 50)
		return;
	failsafe_window(f, e->now);
	f->n = f->seen = f->inside = 0;
	f->began = e->now;
}

static double failsafe_limit(void *state, double now, uint32_t inside)
{
	(void)now, (void)inside;
	return ((struct failsafe *)state)->limit;
}

static void nothing(void *state)
{
	(void)state;
}

const struct sim_limit sim_rivals[] = {
	{ "Gradient2", gradient_begin, gradient_ended, gradient_limit },
	{ "Vegas", vegas_begin, vegas_ended, vegas_limit },
	{ "brpc auto", brpc_begin, brpc_ended, brpc_limit },
	{ "BBR-like", nothing, bbr_ended, bbr_limit },
	{ "failsafe-go", failsafe_begin, failsafe_ended, failsafe_limit },
};
const unsigned sim_n_rivals = sizeof(sim_rivals) / sizeof(sim_rivals[0]);

_Static_assert(sizeof(struct failsafe) <= SIM_STATE && sizeof(struct bbr) <= SIM_STATE, "state is too small");
