/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * adaptive_law.h - how the adaptive limit moves: what one window says, and the limit for the next. See
 * adaptive.c. No clock, no memory, no atomics: one caller at a time.
 *
 * Units.    Latencies as logarithms to base 2 of ns, throughput in places per second, its logarithm to
 *           base 2, limits in places.
 */
#ifndef FC_ADAPTIVE_LAW_H
#define FC_ADAPTIVE_LAW_H

#include <stdint.h>

/* What the rule allows, completed. */
struct law_conf {
	double min, max, initial;
	double tolerance; /* log2 of the latency that is suspect, over that without queueing */
	double slack_ns;
	double bad_share, bad_weight; /* time-outs: from which share on, and how much they lower */
	double min_calls;
};

/* A measured window. */
struct law_sample {
	double seconds;
	double calls;     /* that completed well: of them are latency and throughput */
	double latency;   /* mean of the logarithms */
	double variance;  /* of one call's */
	double throughput;
	double inside;    /* mean places taken, by Little's law */
	double bad;       /* share of time-outs among all calls */
	double bad_calls;
	double refusing;  /* 0..1: share of the window in which callers were refused */
};

/* What is known of one limit: means over windows. */
struct law_point {
	double weight; /* calls; 0: nothing */
	double latency, throughput; /* logarithms */
	double noise;  /* variance of the logarithm of throughput */
	double spread; /* variance of the mean latency */
};

struct law {
	double limit; /* in force; 0: not begun */
	double base;  /* kept if the experiment fails; = limit outside of one */
	double tried; /* the step that was just undone; 0: none */
	double unloaded; /* latency without queueing; 0: not known */
	struct law_point here;  /* at `base` */
	struct law_point there; /* at `limit`, in an experiment */
	uint32_t windows; /* of the experiment so far */
	uint32_t wait;    /* windows until the next one */
	uint32_t failures; /* one after the other */
	uint32_t upwards; /* 1: the next small step goes up */
	uint32_t down_pays; /* 1: the last step down was kept; what queues is not known yet */
	uint32_t kept, undone, measured;
};

/* One window has ended: the limit for the next. */
double fci_law_window(struct law *l, const struct law_conf *c, const struct law_sample *s);

/* What was being tried cannot be judged: back. */
void fci_law_give_up(struct law *l);

/* Numbers that cannot be (from a spoilt segment) begin anew; bounds that have changed are kept. */
void fci_law_check(struct law *l, const struct law_conf *c);

/* Logarithm to base 2 of v > 0, and back, to 0.1 %. */
double fci_law_log2(double v);
double fci_law_exp2(double v);

#endif /* FC_ADAPTIVE_LAW_H */
