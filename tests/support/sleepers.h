/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * support/sleepers.h - what the tests of stuck calls share: threads that get stuck inside a call, a
 * context under a virtual clock, and all that it tells of them. After <cmocka.h>.
 */
#ifndef FC_TESTS_SLEEPERS_H
#define FC_TESTS_SLEEPERS_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fcguard/fcguard.h>

#include "stuck.h"
#include "support/alloc.h"
#include "support/emulator.h"
#include "support/threads.h"
#include "symbol.h"
#include "taskinfo.h"

#define NOINLINE __attribute__((__noinline__, __unused__))
#define LINES    4096

/* ---- what was told ----------------------------------------------------------------------------- */

static struct {
	char *line[LINES];
	unsigned n;
	unsigned stuck_events, unstuck_events;
	uint64_t last_a;
	unsigned calls_back;
	struct fc_stuck stuck;
	char thread_name[32], stack[8192];
} told;

static inline void on_log(void *arg, int level, const char *msg)
{
	(void)arg;
	(void)level;
	assert_null(strchr(msg, '\n'));
	if (told.n < LINES)
		told.line[told.n++] = strdup(msg);
}

static inline void on_event(void *arg, const struct fc_event *event)
{
	(void)arg;
	told.stuck_events += event->kind == FC_EVENT_STUCK;
	told.unstuck_events += event->kind == FC_EVENT_UNSTUCK;
	if (event->kind == FC_EVENT_STUCK || event->kind == FC_EVENT_UNSTUCK)
		told.last_a = event->a;
}

static inline void on_stuck(void *arg, const struct fc_stuck *stuck)
{
	(void)arg;
	told.calls_back++;
	told.stuck = *stuck;
	snprintf(told.thread_name, sizeof(told.thread_name), "%s", stuck->thread_name);
	snprintf(told.stack, sizeof(told.stack), "%s", stuck->stack);
}

static inline void forget(void)
{
	for (unsigned i = 0; i < told.n; i++)
		free(told.line[i]);
	memset(&told, 0, sizeof(told));
}

/* The first line from `from` on that contains all of them, or -1. */
static inline int find_line(unsigned from, const char *a, const char *b)
{
	for (unsigned i = from; i < told.n; i++)
		if (strstr(told.line[i], a) && (!b || strstr(told.line[i], b)))
			return (int)i;
	return -1;
}

/* Can stacks be had? Under an emulator they are its own. */
static inline int stacks_shown(void)
{
	return fci_symbol_available() && !emulated();
}

/* Reports: their first lines. */
static inline unsigned reports(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < told.n; i++)
		n += strncmp(told.line[i], "stuck: ", 7) == 0;
	return n;
}

/* ---- threads that get stuck -------------------------------------------------------------------- */

struct sleeper {
	pthread_t thread;
	struct fc_iface *iface;
	const struct fc_ctx *ctx;
	int (*block)(struct sleeper *s);
	sem_t go;
	int pipe[2];
	_Atomic int tid;
	_Atomic int entered, returned;
	int verdict, error, leave_by_ending;
	struct fc_entry *heap;
};

static _Atomic int guard_line;

static NOINLINE int wait_for_semaphore(struct sleeper *s)
{
	int rc = sem_wait(&s->go);

	s->returned = 1;
	return rc ? errno : 0;
}

static NOINLINE int wait_for_dependency(struct sleeper *s)
{
	struct pollfd p = { .fd = s->pipe[0], .events = POLLIN };
	int rc = poll(&p, 1, -1);

	s->returned = 1;
	return rc == 1 ? 0 : errno;
}

static NOINLINE int spin_until_told(struct sleeper *s)
{
	int rc;

	while ((rc = sem_trywait(&s->go)) != 0)
		;
	s->returned = 1;
	return rc;
}

static NOINLINE void handle_request(struct sleeper *s)
{
	struct fc_entry own = FC_ENTRY_INIT, *e = s->heap ? s->heap : &own;

	s->verdict = fc_enter(e, s->iface, s->ctx); guard_line = __LINE__;
	s->entered = 1;
	if (s->verdict == 0)
		s->error = s->block(s);
	if (s->leave_by_ending)
		pthread_exit(NULL);
	fc_exit(e);
}

static inline void *sleeper_main(void *arg)
{
	struct sleeper *s = arg;

	pthread_setname_np(pthread_self(), "worker-3");
	s->tid = (int)syscall(SYS_gettid);
	handle_request(s);
	return NULL;
}

/* Start, and wait until it is inside and sleeps. */
static inline void sleeper_start(struct sleeper *s, struct fc_iface *f, int (*block)(struct sleeper *),
                                 const struct fc_ctx *ctx)
{
	struct fci_taskinfo info;

	s->iface = f;
	s->block = block;
	s->ctx = ctx;
	s->entered = s->returned = 0;
	s->tid = 0;
	sem_init(&s->go, 0, 0);
	if (pipe(s->pipe) || pthread_create(&s->thread, NULL, sleeper_main, s))
		abort();
	while (!s->entered)
		usleep(100);
	while (block != spin_until_told && (fci_taskinfo_read(s->tid, &info) != 0 || info.state != 'S' ||
	                                    info.where.running || info.where.syscall_nr < 0))
		usleep(100);
}

/* Let it go on; what its call returned. */
static inline int sleeper_stop(struct sleeper *s)
{
	sem_post(&s->go);
	if (write(s->pipe[1], "x", 1) != 1)
		abort();
	pthread_join(s->thread, NULL);
	close(s->pipe[0]);
	close(s->pipe[1]);
	sem_destroy(&s->go);
	return s->error;
}

/* ---- a context under a virtual clock ----------------------------------------------------------- */

static struct fc *fc;
static struct counting_alloc counting;

static inline void make_context(uint32_t flags, uint32_t max_reports, int with_log)
{
	struct fc_alloc alloc = counting_alloc_init(&counting);
	FC_OPTS(fc_opts, o, .flags = flags, .clock = FC_CLOCK_VIRTUAL, .max_reports_per_min = max_reports, .alloc = &alloc,
	        .log = with_log ? on_log : NULL, .on_event = on_event, .on_stuck = with_log ? on_stuck : NULL);

	forget();
	assert_int_equal(fc_create(&fc, &o), 0);
	fc_clock_set(fc, FC_S(1000));
}

static inline int set_up(void **state)
{
	(void)state;
	make_context(0, 0, 1);
	return 0;
}

static inline int tear_down(void **state)
{
	(void)state;
	fc = fc_destroy(fc);
	forget();
	return counting.live != 0;
}

static inline struct fc_iface *make_iface(const char *name, uint32_t cap)
{
	FC_OPTS(fc_iface_opts, o, .cap = cap, .expand = 1);
	struct fc_iface *f = NULL;

	assert_int_equal(fc_iface_set(fc, name, &o, &f), 0);
	return f;
}

/* A tick that looks at everything, and the rest of the reports it began: symbols take real time. */
static inline void tick(void)
{
	(void)fc_tick(fc, FC_S(1));
	while (fci_stuck_step(fc, fc_now_ns(fc), test_now_ns() + FC_MS(1)) != FC_NEVER_NS)
		test_sleep_ms(1);
}

static inline void advance(uint64_t ns)
{
	fc_clock_advance(fc, ns);
	tick();
}

static inline uint32_t overdue(const struct fc_iface *f)
{
	FC_OPTS(fc_stats, s, .cap = 0);

	assert_int_equal(fc_iface_stats(f, &s), 0);
	return s.overdue;
}

#endif /* FC_TESTS_SLEEPERS_H */
