/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tests/support/threads.h - threads that start together, repeatable random numbers, time.
 *
 * Threads.  A worker must not use cmocka's asserts: they longjmp. It writes what it saw into its
 *           own struct or an atomic, and the main thread asserts after run_threads().
 * Seed.     FC_SEED in the environment, else made from the clock. The line "# FC_SEED=..." is
 *           printed by the first use of a random number, so every failure shows how to repeat it.
 * Time.     FC_STRESS_MS (default 200) is how long one stress case runs.
 */
#ifndef FC_TESTS_THREADS_H
#define FC_TESTS_THREADS_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t state;
};

/* index is 0 .. n-1. rng is the worker's own, the same in each run with the same seed. */
typedef void (*thread_fn)(void *arg, unsigned index, struct rng *rng);

/* Run fn on n threads behind one start barrier; returns when all have ended. Aborts if it can't. */
void run_threads(unsigned n, thread_fn fn, void *arg);

/* The seed of this run; a generator for the main thread; its numbers. */
uint64_t test_seed(void);
void rng_init(struct rng *rng, uint64_t stream);
uint64_t rng_next(struct rng *rng);
uint32_t rng_below(struct rng *rng, uint32_t bound); /* 0 .. bound-1; bound > 0 */
bool rng_chance(struct rng *rng, uint32_t one_in);

/* Monotonic time, and the end of a stress case that begins now. */
uint64_t test_now_ns(void);
uint64_t stress_end_ns(void);
void test_sleep_ms(unsigned ms);

/* CPUs this process may run on. Stress cases run with one thread, this many, and four times more. */
unsigned test_cpus(void);

#endif /* FC_TESTS_THREADS_H */
