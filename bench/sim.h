/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim.h - what sim_adaptive.c simulates, and the limits that it compares (sim_rivals.c).
 *
 * Units.    Times in ns of virtual time, latencies in ns, limits in calls.
 */
#ifndef SIM_H
#define SIM_H

#include <stdint.h>

#define SIM_MS  1000000.0
#define SIM_MAX 1000 /* the ceiling of all of them */

/* What a limit sees of a call that has ended. */
struct sim_ended {
	double now, latency;
	int good;       /* 0: it took longer than its caller waited */
	uint32_t inside; /* when it began, itself included */
};

/* A limit. state: SIM_STATE bytes, zeroed. */
struct sim_limit {
	const char *name;
	void (*begin)(void *state);
	void (*ended)(void *state, const struct sim_ended *e);
	double (*limit)(void *state, double now, uint32_t inside); /* places now */
};
#define SIM_STATE 65536

extern const struct sim_limit sim_rivals[];
extern const unsigned sim_n_rivals;

#endif /* SIM_H */
