/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * support/locker.h - another thread holds a lock.
 *
 *     struct locker l;
 *     locker_start(&l, &fc->setup);   returns when it has it
 *     ...
 *     locker_end(&l);
 *
 * Threads.  One starts and ends it.
 */
#ifndef FC_TESTS_LOCKER_H
#define FC_TESTS_LOCKER_H

#include <pthread.h>
#include <stdlib.h>

struct locker {
	pthread_mutex_t *lock;
	pthread_barrier_t turn;
	pthread_t thread;
};

static inline void *locker_main(void *arg)
{
	struct locker *l = arg;

	pthread_mutex_lock(l->lock);
	pthread_barrier_wait(&l->turn);
	pthread_barrier_wait(&l->turn);
	pthread_mutex_unlock(l->lock);
	return NULL;
}

static inline void locker_start(struct locker *l, pthread_mutex_t *lock)
{
	l->lock = lock;
	pthread_barrier_init(&l->turn, NULL, 2);
	if (pthread_create(&l->thread, NULL, locker_main, l))
		abort();
	pthread_barrier_wait(&l->turn);
}

static inline void locker_end(struct locker *l)
{
	pthread_barrier_wait(&l->turn);
	pthread_join(l->thread, NULL);
	pthread_barrier_destroy(&l->turn);
}

#endif /* FC_TESTS_LOCKER_H */
