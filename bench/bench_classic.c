/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_classic.c - what a C server has without a library: a mutex with a counter, a semaphore,
 * Concurrency Kit's ring and FIFO as a store of permits. None of them knows who is inside or since
 * when. Names: mutex_counter, sem, ck_ring_mpmc, ck_fifo; with _refuse: the same, full.
 */
#include "bench.h"

#include <ck_fifo.h>
#include <ck_ring.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#define CAP 64

static uint32_t cap_of(const struct bench_subject *s, const struct bench_case *c)
{
	return s->refuses ? 0 : c->cap ? c->cap : CAP;
}

/* A mutex around a counter, taken once to enter and once to leave. */

struct counted {
	_Alignas(BENCH_LINE) pthread_mutex_t lock;
	uint32_t inside, cap;
};

static int mutex_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	struct counted *m = bench_alloc(sizeof(*m));

	m->cap = cap_of(s, c);
	*ret_state = m;
	return -pthread_mutex_init(&m->lock, NULL);
}

static uint64_t mutex_run(void *state, struct bench_worker *w, uint32_t n)
{
	struct counted *m = state;
	uint64_t admitted = 0;

	for (uint32_t i = 0; i < n; i++) {
		bool in;

		pthread_mutex_lock(&m->lock);
		in = m->inside < m->cap;
		m->inside += in;
		pthread_mutex_unlock(&m->lock);
		if (!in)
			continue;
		admitted++;
		bench_work(w->body);
		pthread_mutex_lock(&m->lock);
		m->inside--;
		pthread_mutex_unlock(&m->lock);
	}
	return admitted;
}

/* sem_trywait() and sem_post(). */

static int sem_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	sem_t *sem = bench_alloc(sizeof(*sem));

	*ret_state = sem;
	return sem_init(sem, 0, cap_of(s, c)) ? -errno : 0;
}

static uint64_t sem_run(void *state, struct bench_worker *w, uint32_t n)
{
	sem_t *sem = state;
	uint64_t admitted = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (sem_trywait(sem))
			continue;
		admitted++;
		bench_work(w->body);
		sem_post(sem);
	}
	return admitted;
}

/* The permits lie in a ring: dequeue one to enter, enqueue it to leave. */

struct ring {
	_Alignas(BENCH_LINE) ck_ring_t ring;
	_Alignas(BENCH_LINE) ck_ring_buffer_t buffer[4096];
};

static int ring_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	struct ring *r = bench_alloc(sizeof(*r));

	ck_ring_init(&r->ring, 4096);
	for (uintptr_t i = 0; i < cap_of(s, c); i++)
		if (!ck_ring_enqueue_mpmc(&r->ring, r->buffer, (void *)(i + 1)))
			return -ENOSPC;
	*ret_state = r;
	return 0;
}

static uint64_t ring_run(void *state, struct bench_worker *w, uint32_t n)
{
	struct ring *r = state;
	uint64_t admitted = 0;

	for (uint32_t i = 0; i < n; i++) {
		void *permit;

		if (!ck_ring_dequeue_mpmc(&r->ring, r->buffer, &permit))
			continue;
		admitted++;
		bench_work(w->body);
		/* Never full: there are fewer permits than places. */
		while (!ck_ring_enqueue_mpmc(&r->ring, r->buffer, permit))
			;
	}
	return admitted;
}

/* The same with the FIFO; the node that a dequeue frees carries the next enqueue. */

struct fifo {
	_Alignas(BENCH_LINE) ck_fifo_mpmc_t fifo;
	_Alignas(BENCH_LINE) ck_fifo_mpmc_entry_t nodes[4097];
};

static int fifo_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	struct fifo *f = bench_alloc(sizeof(*f));

	ck_fifo_mpmc_init(&f->fifo, &f->nodes[0]);
	for (uintptr_t i = 1; i <= cap_of(s, c); i++)
		ck_fifo_mpmc_enqueue(&f->fifo, &f->nodes[i], (void *)i);
	*ret_state = f;
	return 0;
}

static uint64_t fifo_run(void *state, struct bench_worker *w, uint32_t n)
{
	struct fifo *f = state;
	uint64_t admitted = 0;

	for (uint32_t i = 0; i < n; i++) {
		ck_fifo_mpmc_entry_t *node;
		void *permit;

		if (!ck_fifo_mpmc_dequeue(&f->fifo, &permit, &node))
			continue;
		admitted++;
		bench_work(w->body);
		ck_fifo_mpmc_enqueue(&f->fifo, node, permit);
	}
	return admitted;
}

#define SUBJECT(name_, what_, stem_, waits_)                                                       \
	{ .name = name_, .what = what_, .setup = stem_##_setup, .run = stem_##_run, .teardown = free, \
	  .waits = waits_ }
#define REFUSER(name_, what_, stem_)                                                               \
	{ .name = name_, .what = what_, .setup = stem_##_setup, .run = stem_##_run, .teardown = free, \
	  .refuses = true }

static const struct bench_subject subjects[] = {
	SUBJECT("mutex_counter", "pthread mutex and a counter", mutex, false),
	SUBJECT("sem", "sem_trywait and sem_post", sem, false),
	SUBJECT("ck_ring_mpmc", "ck_ring, MPMC", ring, true),
	SUBJECT("ck_fifo", "ck_fifo, MPMC", fifo, false),
	REFUSER("mutex_counter_refuse", "the same, full", mutex),
	REFUSER("sem_refuse", "the same, full", sem),
	REFUSER("ck_ring_mpmc_refuse", "the same, empty", ring),
	REFUSER("ck_fifo_refuse", "the same, empty", fifo),
};

int main(int argc, char **argv)
{
	const struct bench_subject *list[sizeof(subjects) / sizeof(subjects[0]) + 1];
	const struct bench_case c = { 0 };
	struct bench_result *r;
	struct bench_opts o;
	uint32_t n = 0, got;

	bench_args(&o, argc, argv);
	if (bench_wanted(&o, bench_call.name))
		list[n++] = &bench_call;
	for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
		if (bench_wanted(&o, subjects[i].name))
			list[n++] = &subjects[i];
	r = bench_rounds(&o, list, n, &c, &got);
	bench_heading("Without a library");
	bench_print(r, got);
	bench_json_open(&o);
	for (uint32_t i = 0; i < got; i++)
		if (bench_wanted(&o, r[i].subject->name))
			bench_json(&r[i]);
	bench_json_close();
	free(r);
	return 0;
}
