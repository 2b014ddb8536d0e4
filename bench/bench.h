/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench.h - the harness that all benches share.
 *
 * A subject is one way to do a thing (a guard that admits, a mutex, a ring). A measurement runs it
 * on n threads for a fixed time and divides the CPU time of the threads by their calls. A round
 * measures PAIR and then every subject once, and rounds are repeated, so that a slow moment of the
 * machine meets all subjects alike; what is reported is the median over the rounds, and the median
 * of the ratios to the PAIR of the same round and number of threads.
 *
 * PAIR is one uncontended atomic add and one sub on the thread's own cache line.
 *
 * Threads.  Everything here is called by the main thread alone, but `run` of a subject.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_LINE        128 /* two cache lines: adjacent lines are fetched together */
#define BENCH_THREADS_MAX 256
#define BENCH_ROUNDS_MAX  101
#define BENCH_SUBJECTS_MAX 32

/* One thread of a measurement, as `run` sees it. */
struct bench_worker {
	_Alignas(BENCH_LINE) uint32_t index; /* 0 .. threads - 1 */
	uint32_t body;                       /* length of the protected work, for bench_work() */
	uint64_t tid;
	/* counter: written by this thread alone (the line of PAIR). Order: irrelevant, N1. */
	_Alignas(BENCH_LINE) _Atomic uint64_t counter;
	char pad[BENCH_LINE - sizeof(uint64_t)];
};

/* What a subject is set up for. */
struct bench_case {
	uint32_t threads;
	uint32_t cap;  /* calls that may be inside; the subject's default when 0 */
	uint32_t body; /* length of the protected work; 0: none */
};

struct bench_subject {
	const char *name;
	const char *what; /* one line for the table */
	/* Make the state for a case; 0, or a negative errno: the subject is left out, with a notice. */
	int (*setup)(const struct bench_subject *s, const struct bench_case *c, void **ret_state);
	/* Call n times; return how many were admitted. */
	uint64_t (*run)(void *state, struct bench_worker *w, uint32_t n);
	void (*teardown)(void *state); /* may be NULL */
	/* Around each measurement: what goes on beside the calls, and beside no other subject's. May be NULL. */
	void (*begin)(void *state);
	void (*end)(void *state);
	uint32_t arg;                  /* the subject's own */
	bool refuses;                  /* every call must be refused: checked */
	bool waits;                    /* one stopped thread stops the others: look whether time is up
	                                * after each call when there are more threads than CPUs */
};

struct bench_result {
	const struct bench_subject *subject;
	struct bench_case c;
	uint32_t rounds;
	double ns[BENCH_ROUNDS_MAX];     /* CPU time a call, by round */
	double ratio[BENCH_ROUNDS_MAX];  /* the same over PAIR of that round */
	double admit[BENCH_ROUNDS_MAX];  /* share of the calls that was admitted */
	double wall_ns[BENCH_ROUNDS_MAX]; /* wall time an admitted call, all threads together */
	double delay[BENCH_ROUNDS_MAX];   /* share of the time that threads waited for a CPU */
	double med_ns, med_ratio, med_admit, med_wall_ns, med_delay, worst_ns;
	double growth_ns;    /* over the result with 1 thread; 0: none */
	double growth_ratio; /* the same of the ratios */
	double extra;        /* for benches: printed to JSON as extra_name when that is set */
	const char *extra_name;
};

/* Command line, the same for all programs. */
struct bench_opts {
	bool quick;
	const char *json;     /* file, or NULL */
	const char *only;     /* comma separated names, or NULL: all */
	uint32_t threads[8];  /* ends with 0 */
	uint32_t rounds, ms;  /* repetitions; duration of one measurement */
	uint64_t count;       /* run exactly so many calls of one subject, then end; 0: measure */
};

/* Parse, or print the usage and exit. Defaults: 1, 2, 8, 64 threads; quick: 1, 2. */
void bench_args(struct bench_opts *o, int argc, char **argv);
bool bench_wanted(const struct bench_opts *o, const char *name);

/*
 * Measure subjects[0..n) for every number of threads in o, `cap` and `body` for all, in interleaved
 * rounds, PAIR first. Returns the results, PAIR's first, by subject then threads; free() them.
 * *ret_n: how many. Exits when a subject breaks its promise (a refuser that admits).
 */
struct bench_result *bench_rounds(const struct bench_opts *o, const struct bench_subject *const *subjects,
                                  uint32_t n, const struct bench_case *c, uint32_t *ret_n);

/*
 * One measurement; `round` of r is filled in (ns, admit, wall_ns, delay). With no more threads than
 * CPUs, one in which other programs took CPU time from the threads is made again, a few times:
 * threads that do not overlap have no contention.
 */
void bench_measure(struct bench_result *r, uint32_t round, void *state, uint32_t ms);
void bench_medians(struct bench_result *r);

/* Markdown to standard output. The table ends with a warning when the machine was busy. */
void bench_heading(const char *what);
void bench_print(const struct bench_result *r, uint32_t n);
/* JSON: an array with one object a line. Nothing is written without o->json. */
void bench_json_open(const struct bench_opts *o);
void bench_json(const struct bench_result *r);
void bench_json_value(const char *name, uint32_t threads, double ns, double ratio_to_pair,
                      const char *key, double value);
void bench_json_close(void);

/*
 * --count N --only NAME: exactly N calls on each thread and nothing else, for tools that count instructions.
 * list has that one subject, else it ends with a message. Sets bench_steady before the subject is set up: time
 * should stand, and nothing run beside the calls.
 */
void bench_count(const struct bench_opts *o, const struct bench_subject *const *list, uint32_t n);
extern bool bench_steady;

/* All of a program that has one list of subjects: arguments, rounds, table, JSON, or --count. */
void bench_list(int argc, char **argv, const char *heading, const struct bench_subject *subjects, size_t n);

double bench_median(const double *v, uint32_t n);
const struct bench_result *bench_find(const struct bench_result *r, uint32_t n, const char *name,
                                      uint32_t threads);
uint64_t bench_cpu_ns(void);  /* of this thread */
uint64_t bench_wall_ns(void);
void bench_pin(uint32_t index);
uint32_t bench_cpus(void);
void bench_die(const char *fmt, ...) __attribute__((__noreturn__, __format__(__printf__, 1, 2)));
void *bench_alloc(size_t bytes); /* zeroed, on its own lines, never NULL; free() it */

extern const struct bench_subject bench_pair;
extern const struct bench_subject bench_call;
extern const struct bench_subject bench_floor;

/* The CPU's counter of time, as exact latency reads it. */
static inline uint64_t bench_counter(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t v;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
	return v;
#else
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

/* Keep the compiler from removing or moving what makes p's target. */
static inline void bench_sink(const void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

/*
 * Work of the program's own between enter and exit, or around them: a chain of dependent
 * multiplications that touches no memory, about 1.3 ns a step at 3 GHz.
 */
static inline void bench_work(uint32_t steps)
{
	uint64_t x = 1;

	for (uint32_t i = 0; i < steps; i++) {
		x = x * 3 + 1;
		__asm__ volatile("" : "+r"(x));
	}
}

#endif /* BENCH_H */
