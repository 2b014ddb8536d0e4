/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rules_watch.c - a rules file that is read again when it changes. See fcguard/rules.h.
 *
 * Housekeeping only asks for the file's identity, once a second. A file that differs from what was read last
 * and has not changed between two looks is read by a thread of its own: reading, checking and trying out a
 * large file takes longer than housekeeping may. A file that was found bad is not read again until it changes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "rules.h"
#include "ruled.h"

#define LOOK_NS      FC_S(1)
#define WHILE_NS     FC_MS(50) /* between looks for the thread's end */
#define THREAD_STACK (512u * 1024)

struct fci_watch {
	struct fc *fc;
	struct fci_file_id loaded, seen; /* read last; at the last look */
	uint64_t look_at, now;           /* when; at the last tick */
	pthread_t thread;
	int running;
	fci_a32 done;                    /* R1 -> A1: id and error of the thread */
	struct fci_file_id id;           /* what the thread read */
	int error;
	char path[4096];
};

static int same(const struct fci_file_id *a, const struct fci_file_id *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static void *reload(void *arg)
{
	struct fci_watch *w = arg;
	struct fc_rules_error own;
	int rc = fci_rules_load(w->fc, w->path, fci_rules_ticket(), &w->id, fci_rules_begin(&own));

	w->error = fci_rules_end(w->fc, w->path, rc, &own, NULL);
	/* R1 -> A1. */
	atomic_store_explicit(&w->done, 1, FCI_REL);
	return NULL;
}

static void start(struct fci_watch *w)
{
	pthread_attr_t attr;
	sigset_t all, old;

	/* N1: no thread yet. */
	atomic_store_explicit(&w->done, 0, FCI_RLX);
	if (pthread_attr_init(&attr) != 0)
		return;
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	w->running = pthread_create(&w->thread, &attr, reload, w) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
}

/* The thread, if it has ended. A file that changed while it was read is read again. */
static void finish(struct fci_watch *w)
{
	/* A1 -> R1. */
	if (!atomic_load_explicit(&w->done, FCI_ACQ) || pthread_tryjoin_np(w->thread, NULL) != 0)
		return;
	w->running = 0;
	if (w->error != -EAGAIN)
		w->loaded = w->id;
}

static void look(struct fci_watch *w)
{
	struct fci_file_id now;
	int rc = fci_file_id(w->path, &now);

	if (rc < 0 && !same(&now, &w->seen))
		fci_log(w->fc, FC_LOG_ERROR, "rules: %s: %s; the rules stay as they are", w->path, strerror(-rc));
	if (rc == 0 && !same(&now, &w->loaded) && same(&now, &w->seen))
		start(w);
	w->seen = now;
}

uint64_t fci_watch_tick(struct fci_rules *r, uint64_t now)
{
	struct fci_watch *w = r->watch;

	if (!w)
		return FC_NEVER_NS;
	if (w->running)
		finish(w);
	if (w->running)
		return now + WHILE_NS;
	if (now >= w->look_at || w->look_at > now + LOOK_NS) { /* further off, the clock was set back */
		look(w);
		w->look_at = now + LOOK_NS;
	}
	return w->running ? now + WHILE_NS : w->look_at;
}

/* Out of the context under its lock; its thread needs that lock, so it is waited for without. */
static void end(struct fc *fc, struct fci_watch *w)
{
	if (w && w->running)
		pthread_join(w->thread, NULL);
	if (w)
		fci_free(fc, w, sizeof(*w));
}

static int exchange(struct fc *fc, struct fci_watch *w)
{
	struct fci_watch *old = NULL;
	struct fci_rules *r;

	pthread_mutex_lock(&fc->rules_mutex);
	r = fci_rules_of(fc);
	if (r) {
		old = r->watch;
		r->watch = w;
		if (w)
			strcpy(r->path, w->path);
	}
	pthread_mutex_unlock(&fc->rules_mutex);
	end(fc, old);
	return r ? 0 : -ENOMEM;
}

void fci_watch_stop(struct fc *fc)
{
	/* N2: nobody else is there any more. */
	if (atomic_load_explicit(&fc->rules, FCI_RLX))
		(void)exchange(fc, NULL);
}

/* The thread was not copied. */
void fci_watch_fork_child(struct fci_rules *r)
{
	if (r->watch)
		r->watch->running = 0;
}

int fc_rules_watch(struct fc *fc, const char *path, struct fc_rules_error *err)
{
	struct fc_rules_error own;
	struct fci_watch *w;
	int rc;

	if (!fci_fc_ok(fc) || !fc->seg || (path && !*path))
		return -EINVAL;
	if (!path)
		return exchange(fc, NULL);
	if (strlen(path) >= sizeof(w->path))
		return -ENAMETOOLONG;
	w = fci_alloc(fc, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->fc = fc;
	strcpy(w->path, path);
	rc = fci_rules_load(fc, path, fci_rules_ticket(), &w->loaded, fci_rules_begin(&own));
	w->seen = w->loaded;
	if (rc == -EAGAIN)
		memset(&w->loaded, 0, sizeof(w->loaded));
	rc = fci_rules_end(fc, path, rc, &own, err);
	if (exchange(fc, w) < 0) {
		fci_free(fc, w, sizeof(*w));
		return -ENOMEM;
	}
	fci_wake(fc); /* housekeeping may sleep */
	return rc;
}
