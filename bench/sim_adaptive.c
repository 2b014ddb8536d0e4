/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim_adaptive.c - the adaptive limit against others: a server of k workers with a queue, in virtual time.
 *
 *     sim_adaptive [--plot FILE] [--only TEXT] [--seed N] [--rivals 0]
 *
 * Ours is the library itself: an interface on the virtual clock, entered and left. The others are formulas
 * (sim_rivals.c); `fixed` is a limit of 5/4 k, which somebody who knows k would set.
 *
 * Arrivals are random (exponential gaps); a call that is refused is gone. A call that takes longer than its
 * caller waits has timed out and counts for nothing, but has used its worker.
 *
 * score    100 * goodput / fixed's goodput * (fixed's p99 / p99)^(1/4), each factor at most 1
 * --plot   limit over time: lines "case limit seconds places", for bench/plot_adaptive
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcguard/fcguard.h>

#include "sim.h"

#define CALLS (2 * SIM_MAX)

enum shape { EXPONENTIAL, LOG_NORMAL, BIMODAL };

struct load {
	const char *name;
	unsigned workers;
	double service_ms; /* mean */
	enum shape shape;
	double load;       /* of what the workers can do, at first */
	double seconds;
	double timeout_ms; /* of the caller */
	double contention; /* more service time, per worker's share of calls that queue */
	void (*vary)(double s, double *load, double *slower, double *hangs); /* over time; NULL: nothing varies */
};

/* ---- loads ------------------------------------------------------------------------------------- */

static void load_steps(double s, double *load, double *slower, double *hangs)
{
	(void)slower, (void)hangs;
	*load = s < 20 ? 0.5 : s < 40 ? 2.5 : s < 60 ? 0.5 : 1.2;
}

static void latency_step(double s, double *load, double *slower, double *hangs)
{
	(void)load, (void)hangs;
	*slower = s >= 20 && s < 40 ? 4 : 1;
}

static void idle_then_burst(double s, double *load, double *slower, double *hangs)
{
	(void)slower, (void)hangs;
	*load = s < 20 ? 1.5 : s < 40 ? 0 : 0.9;
}

static void drift(double s, double *load, double *slower, double *hangs)
{
	(void)load, (void)hangs;
	*slower = 1 + 2 * s / 120;
}

static void hang(double s, double *load, double *slower, double *hangs)
{
	(void)load, (void)slower;
	*hangs = s >= 20 && s < 30 ? 0.3 : 0;
}

static void incident(double s, double *load, double *slower, double *hangs)
{
	(void)load, (void)hangs;
	*slower = s >= 20 && s < 140 ? 5 : 1;
}

static const struct load loads[] = {
	{ "noisy, 30 % load", 16, 10, LOG_NORMAL, 0.3, 120, 1000, 0, NULL },
	{ "steady overload, 2x", 16, 10, EXPONENTIAL, 2, 120, 500, 0, NULL },
	{ "just overloaded, 1.1x", 64, 20, LOG_NORMAL, 1.1, 120, 500, 0, NULL },
	{ "load steps", 16, 10, EXPONENTIAL, 0.5, 80, 500, 0, load_steps },
	{ "dependency 4x slower, places free", 128, 20, EXPONENTIAL, 0.2, 60, 1000, 0, latency_step },
	{ "dependency 4x slower, full", 16, 10, EXPONENTIAL, 0.8, 60, 500, 0, latency_step },
	{ "slow drift to 3x, overloaded", 16, 10, EXPONENTIAL, 1.5, 120, 500, 0, drift },
	{ "bimodal 2 and 92 ms", 16, 11, BIMODAL, 1.5, 120, 500, 0, NULL },
	{ "tiny, 50 us", 4, 0.05, EXPONENTIAL, 1.5, 10, 50, 0, NULL },
	{ "idle, then burst", 16, 10, EXPONENTIAL, 1.5, 60, 500, 0, idle_then_burst },
	{ "30 % hang for 10 s", 16, 10, EXPONENTIAL, 0.7, 60, 300, 0, hang },
	{ "contention, 2x", 16, 10, EXPONENTIAL, 2, 120, 500, 0.5, NULL },
	{ "slow for 2 min, 1.5x", 16, 10, EXPONENTIAL, 1.5, 200, 1000, 0, incident },
};
#define LOADS (sizeof(loads) / sizeof(loads[0]))

/* ---- random numbers ---------------------------------------------------------------------------- */

static uint64_t seed = 1, rng;

static double uniform(void) /* 0 < u < 1 */
{
	uint64_t z = rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void)
{
	double u = uniform();

	return sqrt(-2 * log(u)) * cos(6.283185307179586 * uniform());
}

static double service(const struct load *l)
{
	switch (l->shape) {
	case LOG_NORMAL: return l->service_ms * exp(normal() - 0.5);
	case BIMODAL: return uniform() < 0.9 ? 2 : 92;
	default: return l->service_ms * -log(uniform());
	}
}

/* ---- one run ----------------------------------------------------------------------------------- */

struct call {
	struct fc_entry e;
	double began, ends;
	uint32_t inside;
	int hangs;
	struct call *next; /* in the queue, or free */
};

struct run {
	const struct load *l;
	const struct sim_limit *limit; /* NULL: ours, or fixed */
	void *state;
	unsigned fixed;
	struct fc *fc;
	struct fc_iface *f;
	double now, next_arrival, next_tick, next_plot, factor, slower, hangs;
	struct call calls[CALLS], *free, *head, **tail;
	struct call *heap[CALLS]; /* of those that are served, by their end */
	unsigned busy, inside;
	uint64_t came, refused, good, bad;
	double limit_sum;
	unsigned limit_n;
	float *latency;
	size_t n_latency;
};

static double limit_of(struct run *r)
{
	if (r->fixed)
		return r->fixed;
	return r->limit ? floor(r->limit->limit(r->state, r->now, r->inside)) : fc_limit_get(r->f);
}

static void push(struct run *r, struct call *c)
{
	unsigned i = r->busy++;

	for (; i > 0 && r->heap[(i - 1) / 2]->ends > c->ends; i = (i - 1) / 2)
		r->heap[i] = r->heap[(i - 1) / 2];
	r->heap[i] = c;
}

static struct call *pop(struct run *r)
{
	struct call *top = r->heap[0], *last = r->heap[--r->busy];
	unsigned i = 0, k;

	while ((k = 2 * i + 1) < r->busy) {
		k += k + 1 < r->busy && r->heap[k + 1]->ends < r->heap[k]->ends;
		if (last->ends <= r->heap[k]->ends)
			break;
		r->heap[i] = r->heap[k];
		i = k;
	}
	r->heap[i] = last;
	return top;
}

static void serve(struct run *r)
{
	while (r->busy < r->l->workers && r->head) {
		struct call *c = r->head;
		double queued = r->inside > r->l->workers ? r->inside - r->l->workers : 0, ms;

		r->head = c->next;
		if (!r->head)
			r->tail = &r->head;
		ms = service(r->l) * r->slower * (1 + r->l->contention * queued / r->l->workers);
		c->ends = r->now + (uniform() < r->hangs ? 1000 : ms) * SIM_MS;
		push(r, c);
	}
}

static void vary(struct run *r)
{
	double load = r->l->load;

	r->slower = 1;
	r->hangs = 0;
	if (r->l->vary)
		r->l->vary(r->now / 1e9, &load, &r->slower, &r->hangs);
	r->factor = load * r->l->workers / (r->l->service_ms * SIM_MS);
}

static void arrive(struct run *r)
{
	struct call *c = r->free;
	int ours = !r->limit && !r->fixed, no;

	r->came++;
	if (!c)
		no = 1;
	else if (ours)
		no = (memset(&c->e, 0, sizeof(c->e)), fc_enter(&c->e, r->f, NULL)) != 0;
	else
		no = r->inside + 1 > limit_of(r);
	if (no) {
		r->refused++;
		return;
	}
	r->free = c->next;
	c->next = NULL;
	c->began = r->now;
	c->inside = ++r->inside;
	*r->tail = c;
	r->tail = &c->next;
	serve(r);
}

static void leave(struct run *r)
{
	struct call *c = pop(r);
	struct sim_ended e = { .now = r->now, .latency = r->now - c->began, .inside = c->inside };

	e.good = e.latency <= r->l->timeout_ms * SIM_MS;
	r->inside--;
	if (r->limit) {
		r->limit->ended(r->state, &e);
	} else if (!r->fixed) {
		if (!e.good)
			fc_entry_mark(&c->e, FC_OUTCOME_TIMEOUT);
		fc_exit(&c->e);
	}
	r->good += (unsigned)e.good;
	r->bad += !e.good;
	if ((r->n_latency & (r->n_latency + 1)) == 0)
		r->latency = realloc(r->latency, (2 * r->n_latency + 2) * sizeof(float));
	r->latency[r->n_latency++] = (float)e.latency;
	c->next = r->free;
	r->free = c;
	serve(r);
}

static void begin(struct run *r)
{
	static const struct fc_adaptive_conf conf = { .initial = 20 };
	struct fc_rule rule = { .interceptor = &fc_interceptor_adaptive, .conf = &conf };
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .flags = FC_NO_STACKS);
	FC_OPTS(fc_iface_opts, io, .cap = SIM_MAX, .stuck_after_ns = FC_NEVER_NS, .writeoff_after_ns = FC_NEVER_NS);

	rng = seed;
	for (unsigned i = 0; i < CALLS; i++) {
		r->calls[i].next = r->free;
		r->free = &r->calls[i];
	}
	r->tail = &r->head;
	if (r->limit) {
		r->state = calloc(1, SIM_STATE);
		r->limit->begin(r->state);
	} else if (!r->fixed && (fc_create(&r->fc, &o) < 0 || fc_iface_set(r->fc, "sim", &io, &r->f) < 0 ||
	                         fc_iface_set_chain(r->f, &rule, 1) < 0)) {
		abort();
	}
}

/* Each 10 ms: housekeeping, and what the run is looked at by. */
static void tick(struct run *r, FILE *plot, const char *name)
{
	double limit;

	vary(r);
	if (r->f)
		(void)fc_tick(r->fc, FC_MS(100));
	limit = limit_of(r);
	r->limit_sum += limit;
	r->limit_n++;
	if (plot && r->now >= r->next_plot) {
		fprintf(plot, "\"%s\" \"%s\" %.1f %.0f\n", r->l->name, name, r->now / 1e9, limit);
		r->next_plot = r->now + 1000 * SIM_MS;
	}
}

static void simulate(struct run *r, FILE *plot, const char *name)
{
	double end = r->l->seconds * 1e9;

	begin(r);
	vary(r);
	while (r->now < end) {
		double next = r->next_tick < r->next_arrival ? r->next_tick : r->next_arrival;

		if (r->busy && r->heap[0]->ends < next)
			next = r->heap[0]->ends;
		r->now = next;
		if (r->f)
			fc_clock_set(r->fc, FC_S(1000) + (uint64_t)r->now);
		if (r->busy && r->heap[0]->ends <= next) {
			leave(r);
		} else if (r->next_tick <= next) {
			r->next_tick += 10 * SIM_MS;
			tick(r, plot, name);
		} else {
			if (r->factor > 0)
				arrive(r);
			r->next_arrival = r->now + (r->factor > 0 ? -log(uniform()) / r->factor : 10 * SIM_MS);
		}
	}
	while (r->busy) {
		r->now = r->heap[0]->ends;
		leave(r);
	}
}

static int by_size(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

struct result {
	double goodput, p99_ms, refused, limit;
};

static struct result result_of(struct run *r)
{
	struct result q = { .goodput = (double)r->good / r->l->seconds, .limit = r->limit_sum / r->limit_n };

	q.refused = 100.0 * (double)r->refused / (double)r->came;
	qsort(r->latency, r->n_latency, sizeof(float), by_size);
	q.p99_ms = r->n_latency ? r->latency[r->n_latency * 99 / 100] / SIM_MS : 0;
	return q;
}

static struct result one(const struct load *l, const struct sim_limit *limit, unsigned fixed, FILE *plot,
                         const char *name)
{
	struct run *r = calloc(1, sizeof(*r));
	struct result q;

	if (!r)
		abort();
	r->l = l;
	r->limit = limit;
	r->fixed = fixed;
	simulate(r, plot, name);
	q = result_of(r);
	free(r->latency);
	free(r->state);
	if (r->fc)
		fc_destroy(r->fc);
	free(r);
	return q;
}

static double at_most_1(double v)
{
	return v < 1 ? v : 1;
}

static double show(const struct load *l, const char *name, const struct result *q, const struct result *fixed)
{
	double score = 100 * at_most_1(q->goodput / fixed->goodput) * at_most_1(pow(fixed->p99_ms / q->p99_ms, 0.25));

	printf("| %s | %s | %.0f | %.2f | %.2f | %.0f | %.1f |\n", l->name, name, q->goodput, q->p99_ms, q->refused,
	       q->limit, score);
	fflush(stdout);
	return score;
}

int main(int argc, char **argv)
{
	double sum[16] = { 0 }, least[16];
	const char *only = "";
	FILE *plot = NULL;
	unsigned n = 0, rivals = sim_n_rivals;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--plot"))
			plot = fopen(argv[i + 1], "w");
		else if (!strcmp(argv[i], "--only"))
			only = argv[i + 1];
		else if (!strcmp(argv[i], "--seed"))
			seed = strtoull(argv[i + 1], NULL, 10);
		else if (!strcmp(argv[i], "--rivals"))
			rivals = argv[i + 1][0] == '0' ? 0 : rivals;
	}
	for (unsigned k = 0; k < 16; k++)
		least[k] = 100;
	printf("| case | limit | goodput/s | p99 ms | refused %% | mean limit | score |\n"
	       "|---|---|---:|---:|---:|---:|---:|\n");
	for (unsigned i = 0; i < LOADS; i++) {
		const struct load *l = &loads[i];
		struct result fixed, q;

		if (!strstr(l->name, only))
			continue;
		n++;
		fixed = one(l, NULL, l->workers * 5 / 4, NULL, "fixed");
		show(l, "fixed", &fixed, &fixed);
		for (unsigned k = 0; k <= rivals; k++) {
			const struct sim_limit *limit = k ? &sim_rivals[k - 1] : NULL;
			const char *name = limit ? limit->name : "fcguard";
			double score;

			q = one(l, limit, 0, plot, name);
			score = show(l, name, &q, &fixed);
			sum[k] += score;
			least[k] = score < least[k] ? score : least[k];
		}
	}
	printf("\n| limit | mean score | worst |\n|---|---:|---:|\n");
	for (unsigned k = 0; k <= rivals && n; k++)
		printf("| %s | %.1f | %.1f |\n", k ? sim_rivals[k - 1].name : "fcguard", sum[k] / n, least[k]);
	if (plot)
		fclose(plot);
	return 0;
}
