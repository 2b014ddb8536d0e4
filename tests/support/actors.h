/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tests/support/actors.h - threads that stop at the library's test points, one step at a time.
 *
 *     struct actor a;
 *     actor_start(&a, fn, arg, "released");     runs fn until it comes to that point
 *     if (actor_stopped(&a)) ...                waits: 1 it stands there, 0 fn has ended
 *     actor_stop_at(&a, "hint");                where to stop next; NULL: nowhere, "": everywhere
 *     actor_go(&a);                             on; returns at once
 *     actor_end(&a);                            let it run to its end, and join
 *
 * Threads.  The test's main thread drives; an actor must not use cmocka's asserts. Threads that are
 *           no actors pass all points. actors_init() sets the hook, before other threads run.
 * Failure.  actors_fini(), for the teardown, lets all run that a failed test has left standing. So an
 *           actor must be static.
 */
#ifndef FC_TESTS_ACTORS_H
#define FC_TESTS_ACTORS_H

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/atomic.h"

struct actor {
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	void (*fn)(struct actor *self);
	void *arg;
	int index;
	pid_t tid; /* read after the join */
	const char *stop_at; /* under mutex, as all below */
	unsigned skip;       /* pass the point so often before */
	const char *at;      /* where it stands; NULL: it runs, or has ended */
	int ended, go, die;
};

#define ACTORS_MAX 64

static __thread struct actor *actor_self;
static struct actor *actors_alive[ACTORS_MAX]; /* main thread only */

static inline void actor_point(const char *name)
{
	struct actor *a = actor_self;
	int die;

	if (!a)
		return;
	pthread_mutex_lock(&a->mutex);
	if (a->stop_at && (!*a->stop_at || !strcmp(a->stop_at, name))) {
		if (a->skip) {
			a->skip--;
		} else {
			a->at = name;
			a->go = 0;
			pthread_cond_broadcast(&a->cond);
			while (!a->go)
				pthread_cond_wait(&a->cond, &a->mutex);
			a->at = NULL;
		}
	}
	die = a->die;
	pthread_mutex_unlock(&a->mutex);
	if (die)
		pthread_exit(NULL);
}

static inline void actors_init(void)
{
	fci_test_point = actor_point;
}

static inline void actor_ended(void *arg)
{
	struct actor *a = arg;

	actor_self = NULL;
	pthread_mutex_lock(&a->mutex);
	a->ended = 1;
	pthread_cond_broadcast(&a->cond);
	pthread_mutex_unlock(&a->mutex);
}

static inline void *actor_main(void *arg)
{
	struct actor *a = arg;

	actor_self = a;
	a->tid = (pid_t)syscall(SYS_gettid);
	pthread_cleanup_push(actor_ended, a);
	a->fn(a);
	pthread_cleanup_pop(1);
	return NULL;
}

static inline void actor_start(struct actor *a, void (*fn)(struct actor *), void *arg, const char *stop_at)
{
	memset(a, 0, sizeof(*a));
	pthread_mutex_init(&a->mutex, NULL);
	pthread_cond_init(&a->cond, NULL);
	a->fn = fn;
	a->arg = arg;
	a->stop_at = stop_at;
	for (int i = 0; i <= ACTORS_MAX; i++) {
		if (i == ACTORS_MAX)
			abort();
		if (!actors_alive[i]) {
			actors_alive[i] = a;
			break;
		}
	}
	if (pthread_create(&a->thread, NULL, actor_main, a))
		abort();
}

/* Wait until it stands at a point (1) or has ended (0). */
static inline int actor_stopped(struct actor *a)
{
	int stopped;

	pthread_mutex_lock(&a->mutex);
	while (!a->ended && (!a->at || a->go))
		pthread_cond_wait(&a->cond, &a->mutex);
	stopped = !a->ended;
	pthread_mutex_unlock(&a->mutex);
	return stopped;
}

static inline void actor_stop_at(struct actor *a, const char *stop_at, unsigned skip)
{
	pthread_mutex_lock(&a->mutex);
	a->stop_at = stop_at;
	a->skip = skip;
	pthread_mutex_unlock(&a->mutex);
}

static inline void actor_go(struct actor *a)
{
	pthread_mutex_lock(&a->mutex);
	a->go = 1;
	pthread_cond_broadcast(&a->cond);
	pthread_mutex_unlock(&a->mutex);
}

/* On to the next point: 1 it stands there, 0 it has ended. */
static inline int actor_step(struct actor *a)
{
	actor_go(a);
	return actor_stopped(a);
}

static inline void actor_join(struct actor *a)
{
	pthread_join(a->thread, NULL);
	for (int i = 0; i < ACTORS_MAX; i++)
		if (actors_alive[i] == a)
			actors_alive[i] = NULL;
	pthread_cond_destroy(&a->cond);
	pthread_mutex_destroy(&a->mutex);
}

static inline void actor_end(struct actor *a)
{
	actor_stop_at(a, NULL, 0);
	actor_go(a);
	actor_join(a);
}

static inline void actors_fini(void)
{
	for (int i = 0; i < ACTORS_MAX; i++)
		if (actors_alive[i])
			actor_end(actors_alive[i]);
	fci_test_point = NULL;
}

/* End the thread where it stands. The kernel may know it a moment longer than join. */
static inline void actor_kill(struct actor *a)
{
	pthread_mutex_lock(&a->mutex);
	a->die = 1;
	pthread_mutex_unlock(&a->mutex);
	actor_end(a);
	while (syscall(SYS_tgkill, getpid(), a->tid, 0) == 0)
		sched_yield();
}

#endif /* FC_TESTS_ACTORS_H */
