/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_queue.c - the in-flight queue against other ways to build one (alt.h), in one run: admitted
 * and refused, and at the edge, where the cap is just below the number of threads.
 */
#include "alt.h"
#include "guard.h"

#include <stdio.h>
#include <stdlib.h>

static const struct bench_subject *const all[] = {
	&guard_admit, &alt_counter, &alt_ring, &alt_fifo, &alt_leased,
	&guard_refuse, &alt_counter_refuse, &alt_ring_refuse, &alt_fifo_refuse, &alt_leased_refuse,
};
#define N_ADMIT 5

static void edge(const struct bench_opts *o, const struct bench_case *c)
{
	const struct bench_subject *list[N_ADMIT];
	struct bench_opts one = *o;
	struct bench_result *r;
	uint32_t n = 0, got;

	for (uint32_t i = 0; i < N_ADMIT; i++)
		if (bench_wanted(o, all[i]->name))
			list[n++] = all[i];
	one.threads[0] = c->threads;
	one.threads[1] = 0;
	one.rounds = o->rounds > 5 ? 5 : o->rounds;
	r = bench_rounds(&one, list, n, c, &got);
	for (uint32_t i = 1; i < got; i++) {
		char name[96];

		printf("| %u | %u | %u | %s | %.1f | ", c->threads, c->cap, c->body, r[i].subject->name,
		       r[i].med_ns);
		if (r[i].med_admit > 0)
			printf("%.1f | %.1f %% | %.1f |\n", r[i].med_ns / r[i].med_admit,
			       100 * r[i].med_admit, r[i].med_wall_ns);
		else
			printf("none ended | | |\n");
		snprintf(name, sizeof(name), "edge_cap%u_body%u_%s", c->cap, c->body, r[i].subject->name);
		bench_json_value(name, c->threads, r[i].med_ns, r[i].med_ratio, "admitted",
		                 r[i].med_admit);
	}
	fflush(stdout);
	free(r);
}

int main(int argc, char **argv)
{
	static const uint32_t edges[][2] = { { 2, 1 }, { 3, 2 }, { 8, 7 }, { 64, 63 }, { 64, 8 } };
	static const uint32_t bodies[] = { 0, 300, 3000 };
	const struct bench_subject *list[sizeof(all) / sizeof(all[0])];
	const struct bench_case c = { .cap = 64 };
	struct bench_result *r;
	struct bench_opts o;
	uint32_t n = 0, got;

	bench_args(&o, argc, argv);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (bench_wanted(&o, all[i]->name))
			list[n++] = all[i];
	bench_json_open(&o);
	r = bench_rounds(&o, list, n, &c, &got);
	bench_heading("The in-flight queue and other ways to build one, cap 64");
	bench_print(r, got);
	/* PAIR and the guard are bench_guard's to report. */
	for (uint32_t i = 0; i < got; i++)
		if (r[i].subject->name[0] == 'a')
			bench_json(&r[i]);
	free(r);
	if (!o.quick) {
		bench_heading("At the edge: cap just below the threads; body in steps of bench_work()");
		printf("| threads | cap | body | subject | CPU ns a try | CPU ns an admission | admitted | "
		       "wall ns an admission |\n|--:|--:|--:|---|--:|--:|--:|--:|\n");
		for (size_t e = 0; e < sizeof(edges) / sizeof(edges[0]); e++)
			for (size_t b = 0; b < sizeof(bodies) / sizeof(bodies[0]); b++)
				edge(&o, &(struct bench_case){ .threads = edges[e][0], .cap = edges[e][1],
				                               .body = bodies[b] });
	}
	bench_json_close();
	guard_release();
	fc_destroy(guard_context());
	return 0;
}
