/* SPDX-License-Identifier: BSD-2-Clause */
/* context.c - making and ending contexts, the default one, thread ends, fork. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "async.h"
#include "chain.h"
#include "check.h"
#include "drain.h"
#include "entry.h"
#include "events.h"
#include "iface.h"
#include "leave.h"
#include "limit.h"
#include "rule.h"
#include "segment.h"
#include "stuck.h"
#include "system.h"
#include "tick.h"
#include "wait.h"
#include "ruled.h"

#define OPTS_V1_BYTES   offsetof(struct fc_opts, stuck_arg) + sizeof(void *)
#define REPORTS_PER_MIN 30u
#define STUCK_AFTER_NS  FC_S(5)

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fc *list;
static fci_a64 serials = 1;
static struct fc *_Atomic default_fc;
static struct fc *default_own; /* the one that fc_default() made */
static pthread_mutex_t default_mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- making ------------------------------------------------------------------------------------ */

static void *libc_alloc(void *arg, size_t bytes)
{
	(void)arg;
	return aligned_alloc(FCI_CACHELINE, bytes);
}

static void libc_free(void *arg, void *ptr, size_t bytes)
{
	(void)arg;
	(void)bytes;
	free(ptr);
}

static int check_opts(const struct fc_opts *o)
{
	if (o->flags & ~(uint32_t)(FC_LOG_STDERR | FC_THREAD | FC_NO_RSEQ | FC_NO_STACKS))
		return -EINVAL;
	if (o->clock > FC_CLOCK_VIRTUAL || o->on_fault > FC_FAIL_CLOSED || o->max_ifaces > FC_IFACES_MAX ||
	    (o->default_cap > FC_CAP_MAX && o->default_cap != FC_UNLIMITED))
		return -EINVAL;
	if (o->recorder_slots & (o->recorder_slots - 1) || o->recorder_slots > 65536)
		return -EINVAL;
	return o->alloc && (!o->alloc->alloc != !o->alloc->free) ? -EINVAL : 0;
}

static void fill_opts(struct fc *fc, const struct fc_opts *o)
{
	fc->magic = FCI_FC_MAGIC;
	fc->flags = o->flags;
	fc->log = o->log;
	fc->on_event = o->on_event;
	fc->on_stuck = o->on_stuck;
	fc->log_arg = o->log_arg;
	fc->event_arg = o->event_arg;
	fc->stuck_arg = o->stuck_arg;
	fc->on_fault = o->on_fault ? o->on_fault : FC_FAIL_OPEN;
	fc->default_cap = o->default_cap;
	fc->stuck_after_ns = o->stuck_after_ns ? o->stuck_after_ns : STUCK_AFTER_NS;
	fc->max_reports_per_min = o->max_reports_per_min ? o->max_reports_per_min : REPORTS_PER_MIN;
	fc->owner = 1;
	fc->tick_fd = fc->thread_fd = -1;
	/* N9: nobody knows it yet. The first call asks for the first tick. */
	atomic_store_explicit(&fc->idle, 1, FCI_RLX);
	/* N4: a number. */
	fc->serial = atomic_fetch_add_explicit(&serials, 1, FCI_RLX);
}

static size_t ifaces_bytes(const struct fc *fc)
{
	return (size_t)fc->geo.max_ifaces * sizeof(struct fc_iface *);
}

static void make_fds(struct fc *fc)
{
	fc->tick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fc->thread_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void close_fds(struct fc *fc)
{
	if (fc->tick_fd >= 0)
		close(fc->tick_fd);
	if (fc->thread_fd >= 0)
		close(fc->thread_fd);
}

/* Everything that may fail, in order; fc_destroy() undoes what is there. */
static int make_parts(struct fc *fc, const struct fc_opts *o)
{
	int rc = fci_segment_open(fc, o);

	if (rc < 0)
		return rc;
	fc->percpu.rseq = o->flags & FC_NO_RSEQ ? 0 : fci_rseq_offset();
	fci_clock_init(&fc->clock, o->clock);
	/* N5: as above. */
	atomic_store_explicit(&fc->head->ticked_ns, fci_clock_now(&fc->clock), FCI_RLX);
	fc->ifaces = fci_alloc(fc, ifaces_bytes(fc));
	fc->pass = fci_alloc(fc, sizeof(*fc->pass));
	if (!fc->ifaces || !fc->pass)
		return -ENOMEM;
	fci_iface_pass_init(fc->pass, fc);
	rc = fci_names_create(fc);
	rc = rc < 0 ? rc : fci_events_create(fc);
	rc = rc < 0 ? rc : fci_stuck_create(fc);
	rc = rc < 0 ? rc : fci_health_init(&fc->health, o->health);
	fc->has_health = rc == 0;
	if (rc == 0)
		fci_health_get_opts(&fc->health, &fc->health_made);
	make_fds(fc);
	return rc;
}

static void link_context(struct fc *fc)
{
	pthread_mutex_lock(&list_mutex);
	fc->next = list;
	list = fc;
	pthread_mutex_unlock(&list_mutex);
}

static void unlink_context(struct fc *fc)
{
	struct fc **p;

	pthread_mutex_lock(&list_mutex);
	for (p = &list; *p && *p != fc; p = &(*p)->next)
		;
	if (*p)
		*p = fc->next;
	pthread_mutex_unlock(&list_mutex);
}

static void free_parts(struct fc *fc)
{
	/* N5: nobody else is there any more. */
	uint32_t n = atomic_load_explicit(&fc->n_ifaces, FCI_RLX);

	fci_rules_free(fc);
	fci_system_free(fc);
	fci_stuck_destroy(fc);
	fci_chain_free_retired(fc);
	for (uint32_t i = 0; i < n; i++) {
		fc->ifaces[i]->magic = 0; /* whoever has kept the handle may be told so */
		fci_iface_free(fc, fc->ifaces[i]);
	}
	fci_names_destroy(fc);
	fci_events_destroy(fc);
	if (fc->has_health)
		fci_health_fini(&fc->health);
	if (fc->ifaces)
		fci_free(fc, fc->ifaces, ifaces_bytes(fc));
	if (fc->pass) {
		fci_states_free(fc, fc->pass);
		fc->pass->magic = 0;
		fci_free(fc, fc->pass, sizeof(*fc->pass));
	}
	close_fds(fc);
	fci_segment_close(fc);
}

/* The end of a context, whole or half made. */
static void end_context(struct fc *fc)
{
	struct fc_alloc alloc = fc->alloc;

	fc_stop(fc);
	fci_rules_stop(fc);
	if (fc->events && fc->stuck) {
		fci_events_tell(fc, fci_clock_now(&fc->clock));
		(void)fci_leaks_report(fc, -1, 1);
	}
	unlink_context(fc);
	free_parts(fc);
	pthread_mutex_destroy(&fc->setup);
	pthread_mutex_destroy(&fc->rules_mutex);
	pthread_mutex_destroy(&fc->thread_mutex);
	fc->magic = 0;
	fci_free(&(struct fc){ .alloc = alloc }, fc, sizeof(*fc));
}

/* Housekeeping tries to take it, and then calls what takes it. */
static void init_recursive(pthread_mutex_t *m)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(m, &attr);
	pthread_mutexattr_destroy(&attr);
}

/* By whoever started the program, which is easily forgotten. */
static void switched_off(struct fc *fc)
{
	fc_off_set(fc, 1);
	fci_log(fc, FC_LOG_WARN, "every call goes through unguarded: FCGUARD_OFF is 1");
}

int fc_create(struct fc **ret, const struct fc_opts *opts)
{
	struct fc_alloc alloc = { libc_alloc, libc_free, NULL };
	struct fc_opts o;
	struct fc *fc;
	int rc;

	if (!ret)
		return -EINVAL;
	rc = fci_opts_import(&o, sizeof(o), OPTS_V1_BYTES, opts);
	rc = rc < 0 ? rc : check_opts(&o);
	if (rc < 0)
		return rc;
	if (o.alloc && o.alloc->alloc)
		alloc = *o.alloc;
	fc = fci_alloc(&(struct fc){ .alloc = alloc }, sizeof(*fc));
	if (!fc)
		return -ENOMEM;
	fc->alloc = alloc;
	fill_opts(fc, &o);
	init_recursive(&fc->setup);
	pthread_mutex_init(&fc->rules_mutex, NULL);
	pthread_mutex_init(&fc->thread_mutex, NULL);
	(void)fci_thread_self();
	rc = make_parts(fc, &o);
	link_context(fc);
	if (rc == 0 && (o.flags & FC_THREAD))
		rc = fc_start(fc);
	if (rc < 0) {
		end_context(fc); /* nobody knows it; the default's mutex may be held */
		return rc;
	}
	if (getenv("FCGUARD_OFF") && strcmp(getenv("FCGUARD_OFF"), "1") == 0)
		switched_off(fc);
	*ret = fc;
	return 0;
}

struct fc *fc_destroy(struct fc *fc)
{
	if (!fci_fc_ok(fc))
		return NULL;
	pthread_mutex_lock(&default_mutex);
	/* N6: under the mutex. */
	if (atomic_load_explicit(&default_fc, FCI_RLX) == fc)
		atomic_store_explicit(&default_fc, NULL, FCI_RLX);
	if (default_own == fc)
		default_own = NULL;
	pthread_mutex_unlock(&default_mutex);
	end_context(fc);
	return NULL;
}

/* ---- the default context ----------------------------------------------------------------------- */

/* Stands in when none could be made: it has no segment, so every look-up gives its handle. */
static struct fc *stand_in(void)
{
	static struct fc fc;
	static struct fc_iface pass;

	if (!fc.magic) {
		fc = (struct fc){ .flags = FC_LOG_STDERR, .on_fault = FC_FAIL_OPEN, .pass = &pass, .tick_fd = -1, .thread_fd = -1 };
		fci_iface_pass_init(&pass, &fc);
		fc.magic = FCI_FC_MAGIC;
	}
	return &fc;
}

static FCI_COLD struct fc *make_default(void)
{
	FC_OPTS(fc_opts, o, .flags = FC_LOG_STDERR | FC_THREAD);
	struct fc *fc;

	pthread_mutex_lock(&default_mutex);
	/* N6: under the mutex. */
	fc = atomic_load_explicit(&default_fc, FCI_RLX);
	if (!fc && fc_create(&fc, &o) == 0) {
		default_own = fc;
		/* R1 -> A1 (fc_default): the context is complete. */
		atomic_store_explicit(&default_fc, fc, FCI_REL);
	}
	if (!fc)
		fc = stand_in();
	pthread_mutex_unlock(&default_mutex);
	return fc;
}

struct fc *fc_default(void)
{
	/* A1 -> R1 (make_default, fc_default_set). */
	struct fc *fc = atomic_load_explicit(&default_fc, FCI_ACQ);

	return fci_likely(fc != NULL) ? fc : make_default();
}

int fc_default_set(struct fc *fc)
{
	int rc = 0;

	if (fc && !fci_fc_ok(fc))
		return -EINVAL;
	pthread_mutex_lock(&default_mutex);
	/* N6: under the mutex; R1 -> A1. */
	if (fc && atomic_load_explicit(&default_fc, FCI_RLX))
		rc = -EBUSY;
	else
		atomic_store_explicit(&default_fc, fc, FCI_REL);
	pthread_mutex_unlock(&default_mutex);
	return rc;
}

/* ---- threads that end, fork -------------------------------------------------------------------- */

static void end_thread_in(struct fc *fc, uint32_t tid)
{
	uint64_t now = fci_clock_now(&fc->clock);
	struct fc_iface *f;

	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++) {
		uint32_t n = fci_purge_thread(f, tid, now);

		if (n)
			fc_event_note(f, FC_EVENT_LEAKED, n, tid);
	}
}

void fci_context_thread_ended(uint32_t tid)
{
	pthread_mutex_lock(&list_mutex);
	for (struct fc *fc = list; fc; fc = fc->next)
		if (fc->seg && fc->events)
			end_thread_in(fc, tid);
	pthread_mutex_unlock(&list_mutex);
}

/* fork() must not happen while another thread holds one of our locks: the child could never take
 * it again. */
void fci_context_fork_prepare(void)
{
	pthread_mutex_lock(&default_mutex);
	pthread_mutex_lock(&list_mutex);
	for (struct fc *fc = list; fc; fc = fc->next) {
		pthread_mutex_lock(&fc->rules_mutex);
		pthread_mutex_lock(&fc->thread_mutex);
		fc->fork_locked = fci_tick_lock(fc);
		pthread_mutex_lock(&fc->setup);
	}
	fci_registry_lock();
}

/* A recursive mutex belongs to a thread id, which the child has not: there it cannot be unlocked (but the
 * tools that follow locks take it for that), and is made anew. */
static void fork_unlock(int in_child)
{
	fci_registry_unlock();
	for (struct fc *fc = list; fc; fc = fc->next) {
		pthread_mutex_unlock(&fc->setup);
		if (in_child)
			init_recursive(&fc->setup);
		if (fc->fork_locked)
			fci_tick_unlock(fc);
		pthread_mutex_unlock(&fc->thread_mutex);
		pthread_mutex_unlock(&fc->rules_mutex);
	}
	pthread_mutex_unlock(&list_mutex);
	pthread_mutex_unlock(&default_mutex);
}

void fci_context_fork_parent(void)
{
	fork_unlock(0);
}

/* The child is a new owner with nothing in flight: what other threads of the parent held is free,
 * and so are the entries of the forking thread, which count in the parent. */
static void fork_child_in(struct fc *fc)
{
	struct fc_iface *f;

	fc->owner = fc->owner % FCI_OWNER_MAX + 1;
	fc->thread_runs = 0;
	/* N9: alone in the child, whose doors are open, and which nobody has ticked yet. */
	atomic_store_explicit(&fc->draining, 0, FCI_RLX);
	atomic_store_explicit(&fc->ticks, 0, FCI_RLX);
	atomic_store_explicit(&fc->checks_unticked, 0, FCI_RLX);
	atomic_store_explicit(&fc->idle, 1, FCI_RLX);
	if (!fc->fork_locked)
		/* N9: alone in the child: forked in a callback of the tick, which goes on here. */
		atomic_store_explicit(&fc->ticking, atomic_load_explicit(&fci_thread_self()->tid, FCI_RLX), FCI_RLX);
	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++) {
		fci_reap_all(f, fci_clock_now(&fc->clock));
		fci_inflight_reset(f);
		fci_writeoff_reset(f);
		fci_wait_reset(f);
		fci_drain_reset(f);
		fci_chain_park_reset(f);
		fci_states_forked(f);
		fci_gate_set(f, FCI_GATE_ASLEEP, 0); /* nobody is inside, and the first call asks for a tick */
		/* N9: alone in the child. */
		atomic_store_explicit(&f->owner, fc->owner << 3, FCI_RLX);
	}
	fci_system_fork_child(fc);
	fci_events_reset(fc);
	fci_stuck_fork_child(fc);
	fci_async_fork_child(fc);
	fci_rules_fork_child(fc);
	close_fds(fc); /* the parent's would wake the parent */
	make_fds(fc);
}

void fci_context_fork_child(void)
{
	for (struct fc *fc = list; fc; fc = fc->next)
		if (fc->seg && fc->events)
			fork_child_in(fc);
	fork_unlock(1);
}
