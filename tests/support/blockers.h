/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * blockers.h - threads that wait in each of 21 blocking calls, and know their own stack.
 *
 * Each thread goes through blocked_main -> serve -> handle -> relay -> a function that blocks.
 * `handle` plays the guarded function and fills the anchor. Every function writes down its
 * return address, so that a test can compare a captured stack with the truth. Before it blocks,
 * each leaves old frames of finished calls on the stack, as real programs do.
 *
 * Threads.  A struct blocked belongs to the test; the thread writes `entered`, `error`,
 *           `returned` with release, the test reads them with acquire.
 */
#ifndef FC_TEST_BLOCKERS_H
#define FC_TEST_BLOCKERS_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stack.h"

#define NBLOCKERS 21u
#define NTRUTH    5u

struct blocked;

struct blocker {
	const char *name;
	int (*prepare)(struct blocked *b); /* 0 or errno */
	int (*block)(struct blocked *b);   /* 0 or errno */
	void (*release)(struct blocked *b);
	bool by_signal;                    /* only a signal can end it early */
};

struct blocked {
	const struct blocker *kind;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	sem_t sem;
	int fd[3];
	int ipc;
	bool done; /* under mutex: the condition of cond_wait */
	_Atomic uint32_t word;
	_Atomic pid_t tid;
	_Atomic bool entered;
	_Atomic bool returned;
	char bytes[512];
	int error; /* what block returned; valid after returned */
	struct fci_anchor anchor;
	uint64_t truth[NTRUTH]; /* return addresses, innermost first: into relay, handle, serve, ... */
};

extern const struct blocker blockers[NBLOCKERS];

/* The blocker of that name. */
const struct blocker *blocker_named(const char *name);

/* Start a thread and wait until it sleeps in the call. 0 or errno. */
int blocked_start(struct blocked *b, const struct blocker *kind);

/* Has the call come back on its own? */
bool blocked_disturbed(const struct blocked *b);

/* End the call, join the thread, free. Returns what the call returned: 0 or errno. */
int blocked_finish(struct blocked *b);

/* A signal without SA_RESTART to the thread: what a dump by signals would do. */
void blocked_poke(struct blocked *b);

#endif /* FC_TEST_BLOCKERS_H */
