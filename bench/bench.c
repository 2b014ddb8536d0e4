/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench.c - the harness: threads, clocks, interleaved rounds, medians. See bench.h.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64 /* calls between two looks at the phase */

/* A measurement is disturbed when its threads waited for a CPU for more of the time than this. */
#define DISTURBED 0.05
#define TRIES     4

enum phase { PHASE_WARM, PHASE_MEASURE, PHASE_STOP };

struct job {
	struct bench_worker w;
	const struct bench_subject *subject;
	void *state;
	uint64_t cpu_ns, calls, admitted, delay_ns;
	bool pin;
};

/* phase: written by the main thread. Order: relaxed; the joins order the results (N2). */
static _Atomic int phase;
static pthread_barrier_t start_line;

void bench_die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("bench: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

void *bench_alloc(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	if (!p)
		bench_die("no memory for %zu bytes", bytes);
	return memset(p, 0, bytes);
}

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t bench_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t bench_wall_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint32_t bench_cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : (uint32_t)CPU_COUNT(&set);
}

/* Pin the calling thread to the index-th CPU that it may use. */
void bench_pin(uint32_t index)
{
	cpu_set_t may, one;
	uint32_t left = index % bench_cpus();

	if (sched_getaffinity(0, sizeof(may), &may))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &may) || left--)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		(void)pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
		return;
	}
}

/* PAIR */

static int pair_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	(void)s, (void)c;
	*ret_state = NULL;
	return 0;
}

static uint64_t pair_run(void *state, struct bench_worker *w, uint32_t n)
{
	(void)state;
	for (uint32_t i = 0; i < n; i++) {
		/* N1: nobody else touches the line; the price of the locked operation is the point. */
		atomic_fetch_add_explicit(&w->counter, 1, memory_order_relaxed);
		bench_sink(w);
		atomic_fetch_sub_explicit(&w->counter, 1, memory_order_relaxed);
	}
	return n;
}

const struct bench_subject bench_pair = {
	.name = "pair", .what = "one uncontended atomic add + sub", .setup = pair_setup, .run = pair_run,
};

/* The floor: the loop and a call that does nothing. */

static __attribute__((__noinline__)) void empty_call(struct bench_worker *w)
{
	bench_sink(w);
}

static uint64_t call_run(void *state, struct bench_worker *w, uint32_t n)
{
	(void)state;
	for (uint32_t i = 0; i < n; i++) {
		empty_call(w);
		bench_work(w->body);
	}
	return n;
}

const struct bench_subject bench_call = {
	.name = "bare_call", .what = "an empty function", .setup = pair_setup, .run = call_run,
};

/* What exact latency costs at least: PAIR between two readings of the CPU's counter. */

static uint64_t floor_run(void *state, struct bench_worker *w, uint32_t n)
{
	uint64_t sum = 0;

	(void)state;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t begin = bench_counter(), end;

		/* N1: as PAIR. */
		atomic_fetch_add_explicit(&w->counter, 1, memory_order_relaxed);
		bench_sink(w);
		atomic_fetch_sub_explicit(&w->counter, 1, memory_order_relaxed);
		end = bench_counter();
		sum += end - begin;
	}
	bench_sink(&sum);
	return n;
}

const struct bench_subject bench_floor = {
	.name = "pair_timed", .what = "PAIR between two readings of the CPU's counter: the floor of exact latency",
	.setup = pair_setup, .run = floor_run,
};

/* One measurement */

/* How long this thread has waited for a CPU since it began; 0 where the kernel does not say. */
static uint64_t run_delay_ns(void)
{
	unsigned long long delay = 0;
	FILE *f = fopen("/proc/thread-self/schedstat", "r");

	if (!f)
		return 0;
	if (fscanf(f, "%*u %llu", &delay) != 1)
		delay = 0;
	fclose(f);
	return delay;
}

static void *worker(void *arg)
{
	struct job *j = arg;
	uint32_t batch = j->subject->waits && !j->pin ? 1 : BATCH;
	uint64_t start_ns;

	if (j->pin)
		bench_pin(j->w.index);
	j->w.tid = (uint64_t)gettid();
	pthread_barrier_wait(&start_line);
	/* N2: a late look makes a longer warm-up, no wrong figure. */
	do {
		j->subject->run(j->state, &j->w, batch);
	} while (atomic_load_explicit(&phase, memory_order_relaxed) == PHASE_WARM);
	j->delay_ns = run_delay_ns();
	start_ns = bench_cpu_ns();
	while (atomic_load_explicit(&phase, memory_order_relaxed) == PHASE_MEASURE) {
		j->admitted += j->subject->run(j->state, &j->w, batch);
		j->calls += batch;
	}
	j->cpu_ns = bench_cpu_ns() - start_ns;
	j->delay_ns = run_delay_ns() - j->delay_ns;
	return NULL;
}

static void sleep_us(uint64_t us)
{
	struct timespec t = { (time_t)(us / 1000000), (long)(us % 1000000 * 1000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

static void measure_once(struct bench_result *r, uint32_t round, void *state, uint32_t ms)
{
	uint32_t n = r->c.threads;
	struct job *jobs = bench_alloc(n * sizeof(*jobs));
	pthread_t threads[BENCH_THREADS_MAX];
	uint64_t cpu_ns = 0, calls = 0, admitted = 0, delay_ns = 0, wall_ns;

	atomic_store_explicit(&phase, PHASE_WARM, memory_order_relaxed);
	if (pthread_barrier_init(&start_line, NULL, n + 1))
		bench_die("no barrier");
	for (uint32_t i = 0; i < n; i++) {
		jobs[i] = (struct job){ .w = { .index = i, .body = r->c.body }, .subject = r->subject,
		                        .state = state, .pin = n <= bench_cpus() };
		if (pthread_create(&threads[i], NULL, worker, &jobs[i]))
			bench_die("cannot start thread %u", i);
	}
	pthread_barrier_wait(&start_line);
	sleep_us(ms * 150);
	wall_ns = bench_wall_ns();
	atomic_store_explicit(&phase, PHASE_MEASURE, memory_order_relaxed);
	sleep_us(ms * 1000);
	atomic_store_explicit(&phase, PHASE_STOP, memory_order_relaxed);
	wall_ns = bench_wall_ns() - wall_ns;
	for (uint32_t i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
		cpu_ns += jobs[i].cpu_ns;
		calls += jobs[i].calls;
		admitted += jobs[i].admitted;
		delay_ns += jobs[i].delay_ns;
	}
	pthread_barrier_destroy(&start_line);
	free(jobs);
	if (r->subject->refuses && admitted)
		bench_die("%s admitted %llu calls", r->subject->name, (unsigned long long)admitted);
	/* Not one call came to its end: one call costs at least this. */
	r->ns[round] = (double)cpu_ns / (double)(calls ? calls : 1);
	r->delay[round] = (double)delay_ns / ((double)wall_ns * n);
	r->admit[round] = calls ? (double)admitted / (double)calls : 0;
	r->wall_ns[round] = admitted ? (double)wall_ns / (double)admitted : 0;
}

void bench_measure(struct bench_result *r, uint32_t round, void *state, uint32_t ms)
{
	/* Tries in excess of one a measurement, saved up: at most half as many as measurements. */
	static double spare = TRIES;
	struct bench_result best = *r;

	if (r->subject->begin)
		r->subject->begin(state);
	spare += 0.5;
	measure_once(&best, round, state, ms);
	for (int i = 1; i < TRIES && spare >= 1 && best.delay[round] > DISTURBED; i++) {
		struct bench_result again = *r;

		if (r->c.threads > bench_cpus())
			break;
		spare--;
		measure_once(&again, round, state, ms);
		if (again.delay[round] < best.delay[round])
			best = again;
	}
	*r = best;
	if (r->subject->end)
		r->subject->end(state);
}

/* Rounds */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(const double *v, uint32_t n, uint32_t permille)
{
	double sorted[BENCH_ROUNDS_MAX];

	if (!n)
		return 0;
	if (n > BENCH_ROUNDS_MAX)
		bench_die("%u values are too many", n);
	memcpy(sorted, v, n * sizeof(*v));
	qsort(sorted, n, sizeof(*sorted), by_value);
	if (permille == 500 && n % 2 == 0)
		return (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
	return sorted[(n - 1) * permille / 1000];
}

double bench_median(const double *v, uint32_t n)
{
	return quantile(v, n, 500);
}

void bench_medians(struct bench_result *r)
{
	r->med_ns = bench_median(r->ns, r->rounds);
	r->worst_ns = quantile(r->ns, r->rounds, 1000);
	r->med_delay = bench_median(r->delay, r->rounds);
	r->med_ratio = bench_median(r->ratio, r->rounds);
	r->med_admit = bench_median(r->admit, r->rounds);
	r->med_wall_ns = bench_median(r->wall_ns, r->rounds);
}

const struct bench_result *bench_find(const struct bench_result *r, uint32_t n, const char *name,
                                      uint32_t threads)
{
	for (uint32_t i = 0; i < n; i++)
		if (r[i].c.threads == threads && !strcmp(r[i].subject->name, name))
			return &r[i];
	return NULL;
}

/* What a second thread costs: by round, against the same subject with one thread. */
static void growth(struct bench_result *r, const struct bench_result *one)
{
	double ns[BENCH_ROUNDS_MAX], ratio[BENCH_ROUNDS_MAX];

	for (uint32_t i = 0; i < r->rounds; i++) {
		ns[i] = one->ns[i] > 0 ? r->ns[i] / one->ns[i] : 0;
		ratio[i] = one->ratio[i] > 0 ? r->ratio[i] / one->ratio[i] : 0;
	}
	r->growth_ns = bench_median(ns, r->rounds);
	r->growth_ratio = bench_median(ratio, r->rounds);
}

struct bench_result *bench_rounds(const struct bench_opts *o, const struct bench_subject *const *subjects,
                                  uint32_t n, const struct bench_case *c, uint32_t *ret_n)
{
	uint32_t nt = 0, used = 0, total;
	struct bench_result *r;
	void **state;

	while (o->threads[nt])
		nt++;
	total = (n + 1) * nt;
	r = bench_alloc(total * sizeof(*r));
	state = bench_alloc(total * sizeof(*state));
	for (uint32_t s = 0; s <= n; s++)
		for (uint32_t t = 0; t < nt; t++) {
			struct bench_result *x = &r[used];
			int rc;

			x->subject = s ? subjects[s - 1] : &bench_pair;
			x->c = *c;
			x->c.threads = o->threads[t];
			x->rounds = o->rounds;
			rc = x->subject->setup(x->subject, &x->c, &state[used]);
			if (rc < 0)
				fprintf(stderr, "bench: skipped: %s: %s\n", x->subject->name, strerror(-rc));
			else
				used++;
		}
	for (uint32_t round = 0; round < o->rounds; round++)
		for (uint32_t t = 0; t < nt; t++)
			for (uint32_t i = 0; i < used; i++) {
				if (r[i].c.threads != o->threads[t])
					continue;
				bench_measure(&r[i], round, state[i], o->ms);
				/* PAIR of t threads is result t: it is the first subject. */
				r[i].ratio[round] = r[i].ns[round] / r[t].ns[round];
			}
	for (uint32_t i = 0; i < used; i++) {
		const struct bench_result *one = bench_find(r, used, r[i].subject->name, 1);

		bench_medians(&r[i]);
		if (one && one != &r[i])
			growth(&r[i], one);
		if (r[i].subject->teardown)
			r[i].subject->teardown(state[i]);
	}
	free(state);
	*ret_n = used;
	return r;
}

/* Exactly n calls. */

bool bench_steady;

struct counted {
	const struct bench_subject *subject;
	void *state;
	uint64_t count;
};

static void *count_calls(void *arg)
{
	const struct counted *x = arg;
	struct bench_worker w = { 0 };

	for (uint64_t left = x->count; left;) {
		uint32_t n = left > 1u << 30 ? 1u << 30 : (uint32_t)left;

		x->subject->run(x->state, &w, n);
		left -= n;
	}
	return NULL;
}

void bench_count(const struct bench_opts *o, const struct bench_subject *const *list, uint32_t n)
{
	const struct bench_case c = { .threads = o->threads[0] };
	pthread_t threads[BENCH_THREADS_MAX];
	struct counted x = { .count = o->count };

	if (n != 1)
		bench_die("--count wants --only with one subject; found: %u of them", n);
	x.subject = list[0];
	bench_steady = true;
	if (x.subject->setup(x.subject, &c, &x.state))
		bench_die("%s: cannot be set up", x.subject->name);
	for (uint32_t i = 1; i < c.threads; i++)
		if (pthread_create(&threads[i], NULL, count_calls, &x))
			bench_die("cannot start thread %u", i);
	count_calls(&x);
	for (uint32_t i = 1; i < c.threads; i++)
		pthread_join(threads[i], NULL);
}
