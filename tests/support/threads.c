/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "threads.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct worker {
	pthread_t thread;
	pthread_barrier_t *start;
	thread_fn fn;
	void *arg;
	unsigned index;
	struct rng rng;
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	pthread_barrier_wait(w->start);
	w->fn(w->arg, w->index, &w->rng);
	return NULL;
}

static void must(int err, const char *what)
{
	if (!err)
		return;
	errno = err;
	perror(what);
	abort();
}

void run_threads(unsigned n, thread_fn fn, void *arg)
{
	static uint64_t runs; /* main thread only */
	struct worker *workers = calloc(n, sizeof(*workers));
	pthread_barrier_t start;

	must(workers ? 0 : ENOMEM, "run_threads");
	must(pthread_barrier_init(&start, NULL, n), "pthread_barrier_init");
	runs++;
	for (unsigned i = 0; i < n; i++) {
		struct worker *w = &workers[i];

		w->start = &start;
		w->fn = fn;
		w->arg = arg;
		w->index = i;
		rng_init(&w->rng, runs << 32 | i);
		must(pthread_create(&w->thread, NULL, worker_main, w), "pthread_create");
	}
	for (unsigned i = 0; i < n; i++)
		must(pthread_join(workers[i].thread, NULL), "pthread_join");
	pthread_barrier_destroy(&start);
	free(workers);
}

uint64_t test_seed(void)
{
	static uint64_t seed; /* main thread only: run_threads() asks before it makes threads */
	const char *given;

	if (seed)
		return seed;
	given = getenv("FC_SEED");
	seed = given ? strtoull(given, NULL, 0) : test_now_ns() % 1000000007u;
	if (!seed)
		seed = 1;
	printf("# FC_SEED=%" PRIu64 "\n", seed);
	fflush(stdout);
	return seed;
}

/* splitmix64: any state is a good one, so that seed and stream can simply be mixed. */
uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

void rng_init(struct rng *rng, uint64_t stream)
{
	rng->state = test_seed();
	rng->state = rng_next(rng) ^ stream;
	rng->state = rng_next(rng);
}

uint32_t rng_below(struct rng *rng, uint32_t bound)
{
	return (uint32_t)((rng_next(rng) >> 32) * bound >> 32);
}

bool rng_chance(struct rng *rng, uint32_t one_in)
{
	return rng_below(rng, one_in) == 0;
}

uint64_t test_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t stress_end_ns(void)
{
	const char *given = getenv("FC_STRESS_MS");
	uint64_t ms = given ? strtoull(given, NULL, 0) : 200;

	return test_now_ns() + ms * 1000000u;
}

void test_sleep_ms(unsigned ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

unsigned test_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return (unsigned)CPU_COUNT(&set);
}
