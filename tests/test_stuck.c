/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stuck calls: found, counted, reported with the place where they stand. The clock is virtual, so
 * seconds take no time; the threads that are stuck are real.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <fcguard/fcguard.h>

#include "report.h"
#include "stuck.h"
#include "support/alloc.h"
#include "support/threads.h"
#include "symbol.h"
#include "taskinfo.h"

#ifndef __has_feature
#define __has_feature(feature_) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define CHILDREN_HAVE_THREADS 0
#else
#define CHILDREN_HAVE_THREADS 1
#endif

#define NOINLINE __attribute__((__noinline__))
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

static void on_log(void *arg, int level, const char *msg)
{
	(void)arg;
	(void)level;
	assert_null(strchr(msg, '\n'));
	if (told.n < LINES)
		told.line[told.n++] = strdup(msg);
}

static void on_event(void *arg, const struct fc_event *event)
{
	(void)arg;
	told.stuck_events += event->kind == FC_EVENT_STUCK;
	told.unstuck_events += event->kind == FC_EVENT_UNSTUCK;
	if (event->kind == FC_EVENT_STUCK || event->kind == FC_EVENT_UNSTUCK)
		told.last_a = event->a;
}

static void on_stuck(void *arg, const struct fc_stuck *stuck)
{
	(void)arg;
	told.calls_back++;
	told.stuck = *stuck;
	snprintf(told.thread_name, sizeof(told.thread_name), "%s", stuck->thread_name);
	snprintf(told.stack, sizeof(told.stack), "%s", stuck->stack);
}

static void forget(void)
{
	for (unsigned i = 0; i < told.n; i++)
		free(told.line[i]);
	memset(&told, 0, sizeof(told));
}

/* The first line from `from` on that contains all of them, or -1. */
static int find_line(unsigned from, const char *a, const char *b)
{
	for (unsigned i = from; i < told.n; i++)
		if (strstr(told.line[i], a) && (!b || strstr(told.line[i], b)))
			return (int)i;
	return -1;
}

/* Reports: their first lines. */
static unsigned reports(void)
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

static void *sleeper_main(void *arg)
{
	struct sleeper *s = arg;

	pthread_setname_np(pthread_self(), "worker-3");
	s->tid = (int)syscall(SYS_gettid);
	handle_request(s);
	return NULL;
}

/* Start, and wait until it is inside and sleeps. */
static void sleeper_start(struct sleeper *s, struct fc_iface *f, int (*block)(struct sleeper *), const struct fc_ctx *ctx)
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
	while (block != spin_until_told && (fci_taskinfo_read(s->tid, &info) != 0 || info.state != 'S' || info.where.running ||
	       info.where.syscall_nr < 0))
		usleep(100);
}

/* Let it go on; what its call returned. */
static int sleeper_stop(struct sleeper *s)
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

static void make_context(uint32_t flags, uint32_t max_reports, int with_log)
{
	struct fc_alloc alloc = counting_alloc_init(&counting);
	FC_OPTS(fc_opts, o, .flags = flags, .clock = FC_CLOCK_VIRTUAL, .max_reports_per_min = max_reports, .alloc = &alloc,
	        .log = with_log ? on_log : NULL, .on_event = on_event, .on_stuck = with_log ? on_stuck : NULL);

	forget();
	assert_int_equal(fc_create(&fc, &o), 0);
	fc_clock_set(fc, FC_S(1000));
}

static int set_up(void **state)
{
	(void)state;
	make_context(0, 0, 1);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fc = fc_destroy(fc);
	forget();
	return counting.live != 0;
}

static struct fc_iface *make_iface(const char *name, uint32_t cap)
{
	FC_OPTS(fc_iface_opts, o, .cap = cap, .expand = 1);
	struct fc_iface *f = NULL;

	assert_int_equal(fc_iface_set(fc, name, &o, &f), 0);
	return f;
}

/* A tick, and the rest of the reports it began: symbols take real time. */
static void tick(void)
{
	(void)fc_tick(fc, 0);
	while (fci_stuck_step(fc, fc_now_ns(fc), test_now_ns() + FC_MS(1)) != FC_NEVER_NS)
		test_sleep_ms(1);
}

static void advance(uint64_t ns)
{
	fc_clock_advance(fc, ns);
	tick();
}

static uint32_t overdue(const struct fc_iface *f)
{
	FC_OPTS(fc_stats, s, .cap = 0);

	assert_int_equal(fc_iface_stats(f, &s), 0);
	return s.overdue;
}

/* ---- cases ------------------------------------------------------------------------------------- */

static void one_call_stuck_among_1000_a_second_is_named_within_stuck_after_and_one_tick(void **state)
{
	struct fc_iface *f = make_iface("user.login", 64);
	struct sleeper s = { 0 };
	struct fc_entry e = FC_ENTRY_INIT;
	uint64_t began = fc_now_ns(fc);
	char place[64];

	(void)state;
	sleeper_start(&s, f, wait_for_dependency, NULL);
	while (reports() == 0 && fc_now_ns(fc) < began + FC_S(20)) {
		for (int i = 0; i < 100; i++) {
			assert_int_equal(fc_enter(&e, f, NULL), 0);
			fc_clock_advance(fc, FC_MS(1));
			fc_exit(&e);
		}
		tick();
	}
	assert_true(fc_now_ns(fc) - began <= FC_S(5) + FC_MS(250));
	assert_int_equal(reports(), 1);
	snprintf(place, sizeof(place), "test_stuck.c:%d handle_request", guard_line);
	assert_int_not_equal(find_line(0, "stuck: user.login: 1 call inside for 5.", place), -1);
	assert_int_not_equal(find_line(0, "limit 64, in flight 1, overdue 1", NULL), -1);
	assert_int_equal(overdue(f), 1);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void report_shows_thread_kernel_state_and_stack_with_function_and_line(void **state)
{
	struct fc_iface *f = make_iface("shop.report", 8);
	struct sleeper s = { 0 };
	char tid[32];
	int head, guard;

	(void)state;
	sleeper_start(&s, f, wait_for_dependency, NULL);
	advance(FC_S(5));
	head = find_line(0, "stuck: shop.report", NULL);
	assert_int_not_equal(head, -1);
	snprintf(tid, sizeof(tid), "tid %d", s.tid);
	assert_int_equal(find_line((unsigned)head, "  thread worker-3", tid), head + 1);
	assert_int_equal(find_line((unsigned)head, "sleeping in poll", "kernel"), head + 1);
	if (fci_symbol_available()) {
		assert_int_not_equal(find_line((unsigned)head, "#0 ", NULL), -1);
		assert_int_not_equal(find_line((unsigned)head, " wait_for_dependency", "test_stuck.c:"), -1);
		guard = find_line((unsigned)head, " handle_request", "<- guard");
		assert_int_not_equal(guard, -1);
		assert_non_null(strstr(told.line[guard], "test_stuck.c:"));
		assert_int_not_equal(find_line((unsigned)guard, " sleeper_main", NULL), -1);
	}
	for (unsigned i = (unsigned)head + 1; i < told.n && strncmp(told.line[i], "  ", 2) == 0; i++)
		assert_true(strlen(told.line[i]) > 4);
	if (getenv("FC_SHOW"))
		for (unsigned i = 0; i < told.n; i++)
			printf("# %s\n", told.line[i]);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void stuck_call_is_not_disturbed_by_its_reports(void **state)
{
	struct fc_iface *f = make_iface("shop.report", 8);
	struct sleeper s[2] = { 0 };

	(void)state;
	sleeper_start(&s[0], f, wait_for_dependency, NULL);
	sleeper_start(&s[1], f, wait_for_semaphore, NULL);
	for (int i = 0; i < 20; i++)
		advance(FC_S(5));
	assert_true(reports() >= 5);
	assert_int_equal(s[0].returned, 0);
	assert_int_equal(s[1].returned, 0);
	assert_int_equal(sleeper_stop(&s[0]), 0);
	assert_int_equal(sleeper_stop(&s[1]), 0);
}

static void hundred_threads_stuck_in_one_place_make_one_report_with_a_count(void **state)
{
	static struct sleeper s[100];
	struct fc_iface *f = make_iface("shop.report", 128);
	int head;

	(void)state;
	for (int i = 0; i < 100; i++)
		sleeper_start(&s[i], f, wait_for_semaphore, NULL);
	advance(FC_S(5) + FC_MS(200));
	assert_int_equal(reports(), 1);
	head = find_line(0, "stuck: shop.report: 100 calls inside for over 5.2 s (oldest 5.2 s) at ", NULL);
	assert_int_not_equal(head, -1);
	assert_int_not_equal(find_line((unsigned)head, "  and threads ", " and 91 more"), -1);
	assert_int_equal(overdue(f), 100);
	assert_int_equal(told.calls_back, 1);
	assert_int_equal(told.stuck.count, 100);
	for (int i = 0; i < 100; i++)
		assert_int_equal(sleeper_stop(&s[i]), 0);
}

static void threads_that_follow_into_one_place_are_told_together(void **state)
{
	static struct sleeper s[20];
	struct fc_iface *f = make_iface("shop.report", 128);
	uint64_t began = fc_now_ns(fc);
	unsigned seen = 0;

	(void)state;
	for (int i = 0; i < 20; i++) {
		sleeper_start(&s[i], f, wait_for_semaphore, NULL);
		advance(FC_MS(50));
	}
	while (fc_now_ns(fc) < began + FC_S(19)) {
		advance(FC_MS(50));
		if (reports() == seen)
			continue;
		seen = reports();
		if (seen == 1)
			assert_true(fc_now_ns(fc) - began == FC_S(5));
		if (seen == 2)
			assert_true(fc_now_ns(fc) - began == FC_MS(7500));
	}
	assert_int_equal(seen, 2);
	assert_int_not_equal(find_line(0, "stuck: shop.report: 1 call ", NULL), -1);
	assert_int_not_equal(find_line(0, "stuck: shop.report: 20 calls ", NULL), -1);
	assert_int_equal(told.stuck.count, 20);
	assert_int_equal(told.stuck.call.tid, s[0].tid); /* the oldest, though only the others were due */
	for (int i = 0; i < 20; i++)
		assert_int_equal(sleeper_stop(&s[i]), 0);
}

static void calls_stuck_in_two_places_make_two_reports(void **state)
{
	struct fc_iface *f = make_iface("shop.report", 8);
	struct sleeper s[4] = { 0 };

	(void)state;
	for (int i = 0; i < 4; i++)
		sleeper_start(&s[i], f, i < 3 ? wait_for_semaphore : wait_for_dependency, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 2);
	assert_int_not_equal(find_line(0, "stuck: shop.report: 3 calls", NULL), -1);
	assert_int_not_equal(find_line(0, "stuck: shop.report: 1 call ", NULL), -1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(sleeper_stop(&s[i]), 0);
}

static void report_comes_again_at_doubling_ages(void **state)
{
	static const unsigned at[] = { 5, 10, 20, 40, 80, 160, 320 };
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { 0 };
	unsigned seen = 0;

	(void)state;
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	for (unsigned age = 1; age <= 330; age++) {
		advance(FC_S(1));
		if (reports() == seen)
			continue;
		assert_int_equal(reports(), seen + 1);
		assert_true(seen < sizeof(at) / sizeof(at[0]));
		assert_int_equal(age, at[seen]);
		seen++;
	}
	assert_int_equal(seen, sizeof(at) / sizeof(at[0]));
	assert_int_equal(sleeper_stop(&s), 0);
}

static void too_many_reports_are_counted_and_the_next_one_says_so(void **state)
{
	struct fc_iface *f[3];
	struct sleeper s[3] = { 0 };
	FC_OPTS(fc_totals, t, .ifaces = 0);

	(void)state;
	(void)tear_down(state);
	make_context(0, 1, 1);
	f[0] = make_iface("a", 8);
	f[1] = make_iface("b", 8);
	f[2] = make_iface("c", 8);
	for (int i = 0; i < 3; i++)
		sleeper_start(&s[i], f[i], wait_for_semaphore, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_equal(told.calls_back, 1);
	assert_int_equal(fc_totals(fc, &t), 0);
	assert_int_equal(t.reports_suppressed, 2);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	advance(FC_S(70));
	assert_int_equal(reports(), 2);
	assert_int_not_equal(find_line(0, "; 5 reports suppressed before", NULL), -1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sleeper_stop(&s[i]), 0);
}

static void call_may_set_its_own_stuck_after(void **state)
{
	FC_OPTS(fc_ctx, slow, .stuck_after_ns = FC_S(60));
	FC_OPTS(fc_ctx, quick, .stuck_after_ns = FC_MS(100));
	struct fc_iface *f = make_iface("upload", 8), *g = make_iface("ping", 8);
	struct sleeper s[2] = { 0 };

	(void)state;
	sleeper_start(&s[0], f, wait_for_semaphore, &slow);
	sleeper_start(&s[1], g, wait_for_semaphore, &quick);
	advance(FC_MS(100));
	assert_int_not_equal(find_line(0, "stuck: ping: 1 call inside for 100 ms", NULL), -1);
	assert_int_equal(sleeper_stop(&s[1]), 0);
	for (int i = 0; i < 59; i++)
		advance(FC_S(1));
	assert_int_equal(find_line(0, "stuck: upload", NULL), -1);
	advance(FC_S(1));
	assert_int_not_equal(find_line(0, "stuck: upload: 1 call inside for 60.", NULL), -1);
	assert_int_equal(sleeper_stop(&s[0]), 0);
}

static void interface_may_set_its_own_stuck_after(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 8, .stuck_after_ns = FC_MS(300));
	struct fc_iface *f = NULL;
	struct sleeper s = { 0 };

	(void)state;
	assert_int_equal(fc_iface_set(fc, "cache.get", &o, &f), 0);
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	advance(FC_MS(299));
	assert_int_equal(reports(), 0);
	advance(FC_MS(1));
	advance(0);
	assert_int_equal(reports(), 1);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void request_id_is_shown(void **state)
{
	FC_OPTS(fc_ctx, ctx, .request_id = 4711);
	struct sleeper s = { 0 };

	(void)state;
	sleeper_start(&s, make_iface("user.login", 8), wait_for_semaphore, &ctx);
	advance(FC_S(5));
	assert_int_not_equal(find_line(0, "stuck: user.login", ", request 4711;"), -1);
	assert_int_equal(told.stuck.call.request_id, 4711);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void callback_gets_the_call_its_thread_and_the_stack(void **state)
{
	struct sleeper s = { 0 };

	(void)state;
	sleeper_start(&s, make_iface("user.login", 8), wait_for_dependency, NULL);
	advance(FC_S(6));
	assert_int_equal(told.calls_back, 1);
	assert_int_equal(told.stuck.size, sizeof(struct fc_stuck));
	assert_int_equal(told.stuck.count, 1);
	assert_int_equal(told.stuck.call.tid, s.tid);
	assert_int_equal(told.stuck.call.pid, getpid());
	assert_int_equal(told.stuck.call.line, guard_line);
	assert_int_equal(told.stuck.call.age_ns, FC_S(6));
	assert_true(told.stuck.call.flags & FC_IN_FLIGHT_OVERDUE);
	assert_string_equal(told.thread_name, "worker-3");
	assert_int_equal(told.stuck.limit, 8);
	assert_int_equal(told.stuck.in_flight, 1);
	if (fci_symbol_available())
		assert_non_null(strstr(told.stack, "wait_for_dependency"));
	assert_int_equal(sleeper_stop(&s), 0);
}

static void moved_call_is_reported_without_a_stack(void **state)
{
	struct fc_iface *f = make_iface("async.fetch", 8);
	struct fc_entry a = FC_ENTRY_INIT, b = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&a, f, NULL), 0);
	fc_entry_take(&b, &a);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_not_equal(find_line(0, "  entered by thread ", "moved out of it"), -1);
	assert_int_equal(find_line(0, "#0", NULL), -1);
	assert_non_null(strstr(told.stack, "moved out"));
	fc_exit(&b);
	advance(FC_MS(300));
	assert_int_equal(overdue(f), 0);
}

static void calls_own_thread_may_be_the_one_that_ticks(void **state)
{
	struct fc_iface *f = make_iface("loop", 8);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&e, f, NULL), 0);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	if (fci_symbol_available())
		assert_int_not_equal(find_line(0, "the thread is running", NULL), -1);
	fc_exit(&e);
}

static void running_thread_shows_the_frames_outside_its_guard(void **state)
{
	struct sleeper s = { 0 };

	(void)state;
	sleeper_start(&s, make_iface("spin", 8), spin_until_told, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_not_equal(find_line(0, "  thread worker-3", NULL), -1);
	if (fci_symbol_available())
		assert_int_not_equal(find_line(0, " handle_request", "<- guard"), -1);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void entry_on_the_heap_gives_a_stack_without_an_anchor(void **state)
{
	struct fc_entry *heap = calloc(1, sizeof(*heap));
	struct sleeper s = { .heap = heap };

	(void)state;
	sleeper_start(&s, make_iface("heap", 8), wait_for_semaphore, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_equal(find_line(0, "<- guard", NULL), -1);
	assert_int_equal(find_line(0, "its entry is not where it was", NULL), -1);
	if (fci_symbol_available())
		assert_int_not_equal(find_line(0, " wait_for_semaphore", NULL), -1);
	assert_int_equal(sleeper_stop(&s), 0);
	free(heap);
}

static void entry_that_was_overwritten_is_told(void **state)
{
	struct fc_entry *heap = calloc(1, sizeof(*heap)), copy;
	struct sleeper s = { .heap = heap };

	(void)state;
	sleeper_start(&s, make_iface("heap", 8), wait_for_semaphore, NULL);
	copy = *heap;
	memset(heap, 0, sizeof(*heap));
	advance(FC_S(5));
	assert_int_not_equal(find_line(0, "its entry is not where it was", NULL), -1);
	*heap = copy;
	assert_int_equal(sleeper_stop(&s), 0);
	free(heap);
}

static void thread_that_ends_is_not_reported_again(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { .leave_by_ending = 1 };

	(void)state;
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_equal(sleeper_stop(&s), 0);
	for (int i = 0; i < 20; i++)
		advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_equal(overdue(f), 0);
	assert_int_equal(told.unstuck_events, 1);
}

static void thread_that_is_gone_is_told_in_words(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct fci_capture c;
	struct fci_view v;
	struct fci_text t;
	struct sleeper s = { 0 };
	char text[512];

	(void)state;
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	assert_int_equal(fci_oldest(f, &v, 1), 1);
	assert_int_equal(sleeper_stop(&s), 0);
	fci_capture(f, &v, NULL, "no stack", &c);
	assert_int_equal(c.standing, FCI_ENDED);
	fci_text_init(&t, text, sizeof(text));
	fci_capture_thread(&c, &t);
	assert_non_null(strstr(text, "has ended"));
	v.word = FCI_WORD(FCI_GEN(v.word), FCI_OWNER(v.word) + 1, FCI_BUSY);
	fci_capture(f, &v, NULL, "no stack", &c);
	assert_int_equal(c.standing, FCI_FOREIGN);
}

static void events_tell_when_an_interface_gets_stuck_and_when_it_is_free(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s[2] = { 0 };

	(void)state;
	sleeper_start(&s[0], f, wait_for_semaphore, NULL);
	sleeper_start(&s[1], f, wait_for_semaphore, NULL);
	advance(FC_S(4));
	assert_int_equal(told.stuck_events, 0);
	advance(FC_S(1));
	assert_int_equal(told.stuck_events, 1);
	assert_int_equal(told.last_a, 2);
	assert_int_equal(sleeper_stop(&s[0]), 0);
	advance(FC_S(2));
	assert_int_equal(told.unstuck_events, 0);
	assert_int_equal(overdue(f), 1);
	assert_int_equal(sleeper_stop(&s[1]), 0);
	advance(FC_S(2));
	assert_int_equal(told.unstuck_events, 1);
	assert_int_equal(told.last_a, 2);
	advance(FC_S(2));
	assert_int_equal(told.stuck_events, 1);
	assert_int_equal(told.unstuck_events, 1);
}

static void written_off_call_stays_in_the_reports(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 1, .expand = 1, .writeoff = 1);
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc_iface *f = NULL;
	struct sleeper s = { 0 };

	(void)state;
	assert_int_equal(fc_iface_set(fc, "slow", &o, &f), 0);
	sleeper_start(&s, f, wait_for_dependency, NULL);
	advance(FC_S(21));
	assert_int_equal(reports(), 1);
	assert_int_equal(fc_enter(&e, f, NULL), 0);
	advance(FC_S(1));
	fc_exit(&e);
	assert_int_equal(overdue(f), 0);
	assert_int_equal(told.unstuck_events, 0);
	advance(FC_S(20));
	assert_int_equal(reports(), 2);
	assert_int_not_equal(find_line(0, "stuck: slow: 1 call", "written off"), -1);
	assert_int_equal(sleeper_stop(&s), 0);
	advance(FC_S(1));
	assert_int_equal(told.unstuck_events, 1);
}

static void more_overdue_calls_than_can_be_remembered_are_still_counted(void **state)
{
	static struct fc_entry e[700];
	struct fc_iface *f = make_iface("wide", 1024);

	(void)state;
	for (int i = 0; i < 700; i++)
		assert_int_equal(fc_enter(&e[i], f, NULL), 0);
	advance(FC_S(5));
	assert_int_equal(overdue(f), 700);
	assert_int_equal(reports(), 1);
	assert_int_not_equal(find_line(0, "in flight 700, overdue 700", NULL), -1);
	for (int i = 0; i < 700; i++)
		fc_exit(&e[i]);
	advance(FC_S(1));
	assert_int_equal(overdue(f), 0);
}

static void nothing_is_allocated_after_the_first_report(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { 0 };
	unsigned long long before;

	(void)state;
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	advance(FC_S(5));
	before = counting.calls;
	for (int i = 0; i < 50; i++)
		advance(FC_S(5));
	assert_int_equal(counting.calls, before);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void without_memory_calls_are_still_counted(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { 0 };

	(void)state;
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	counting.fail_at = counting.calls + 1;
	advance(FC_S(5));
	assert_int_equal(overdue(f), 1);
	assert_int_equal(reports(), 0);
	assert_int_equal(told.stuck_events, 1);
	advance(FC_MS(300));
	assert_int_equal(reports(), 1);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void stacks_can_be_switched_off(void **state)
{
	struct sleeper s = { 0 };

	(void)state;
	(void)tear_down(state);
	make_context(FC_NO_STACKS, 0, 1);
	sleeper_start(&s, make_iface("user.login", 8), wait_for_dependency, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	assert_int_not_equal(find_line(0, "sleeping in poll", NULL), -1);
	assert_int_not_equal(find_line(0, "FC_NO_STACKS", NULL), -1);
	assert_int_equal(find_line(0, "#0", NULL), -1);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void without_a_listener_calls_are_only_counted(void **state)
{
	struct sleeper s = { 0 };
	unsigned long long before;
	struct fc_iface *f;

	(void)state;
	(void)tear_down(state);
	make_context(0, 0, 0);
	f = make_iface("user.login", 8);
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	before = counting.calls;
	advance(FC_S(5));
	assert_int_equal(overdue(f), 1);
	assert_int_equal(counting.calls, before);
	assert_int_equal(sleeper_stop(&s), 0);
}

static void clock_that_goes_back_does_no_harm(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { 0 };

	(void)state;
	fc_clock_set(fc, FC_S(20000));
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	advance(FC_S(5));
	assert_int_equal(reports(), 1);
	fc_clock_set(fc, FC_S(10));
	tick();
	assert_int_equal(overdue(f), 0);
	assert_int_equal(reports(), 1);
	fc_clock_set(fc, FC_S(20010));
	tick();
	assert_int_equal(overdue(f), 1);
	assert_int_equal(sleeper_stop(&s), 0);
}

#if CHILDREN_HAVE_THREADS
/* 0, or the line that failed. */
static int in_child(struct fc_iface *f)
{
	struct sleeper s = { 0 };

	forget();
	advance(FC_S(1));
	if (overdue(f) || reports())
		return __LINE__ % 250;
	sleeper_start(&s, f, wait_for_dependency, NULL);
	advance(FC_S(5));
	if (overdue(f) != 1 || reports() != 1 || (fci_symbol_available() && find_line(0, "wait_for_dependency", NULL) < 0))
		return __LINE__ % 250;
	return sleeper_stop(&s);
}

static void child_of_a_fork_starts_with_nothing_overdue_and_reports_its_own(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct sleeper s = { 0 };
	int status;
	pid_t pid;

	(void)state;
	sleeper_start(&s, f, wait_for_semaphore, NULL);
	fc_clock_advance(fc, FC_S(5));
	(void)fc_tick(fc, 0); /* a report is under way */
	pid = fork();
	if (pid == 0)
		_exit(in_child(f));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	tick();
	assert_int_equal(reports(), 1);
	assert_int_equal(sleeper_stop(&s), 0);
}
#endif

static void threads_come_and_go_while_reports_are_made(void **state)
{
	struct fc_iface *f = make_iface("user.login", 64);
	uint64_t end = stress_end_ns();
	struct sleeper s[8];

	(void)state;
	while (test_now_ns() < end) {
		memset(s, 0, sizeof(s));
		for (int i = 0; i < 8; i++)
			sleeper_start(&s[i], f, i % 2 ? wait_for_semaphore : spin_until_told, NULL);
		fc_clock_advance(fc, FC_S(5));
		(void)fc_tick(fc, 0);
		for (int i = 0; i < 8; i++) {
			(void)fci_stuck_step(fc, fc_now_ns(fc), 0);
			assert_int_equal(sleeper_stop(&s[i]), 0);
		}
		tick();
		forget();
	}
	assert_int_equal(fc_in_flight(f, NULL, 0), 0);
}

int main(void)
{
#define CASE(name_) cmocka_unit_test_setup_teardown(name_, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(one_call_stuck_among_1000_a_second_is_named_within_stuck_after_and_one_tick),
		CASE(report_shows_thread_kernel_state_and_stack_with_function_and_line),
		CASE(stuck_call_is_not_disturbed_by_its_reports),
		CASE(hundred_threads_stuck_in_one_place_make_one_report_with_a_count),
		CASE(threads_that_follow_into_one_place_are_told_together),
		CASE(calls_stuck_in_two_places_make_two_reports),
		CASE(report_comes_again_at_doubling_ages),
		CASE(too_many_reports_are_counted_and_the_next_one_says_so),
		CASE(call_may_set_its_own_stuck_after),
		CASE(interface_may_set_its_own_stuck_after),
		CASE(request_id_is_shown),
		CASE(callback_gets_the_call_its_thread_and_the_stack),
		CASE(moved_call_is_reported_without_a_stack),
		CASE(calls_own_thread_may_be_the_one_that_ticks),
		CASE(running_thread_shows_the_frames_outside_its_guard),
		CASE(entry_on_the_heap_gives_a_stack_without_an_anchor),
		CASE(entry_that_was_overwritten_is_told),
		CASE(thread_that_ends_is_not_reported_again),
		CASE(thread_that_is_gone_is_told_in_words),
		CASE(events_tell_when_an_interface_gets_stuck_and_when_it_is_free),
		CASE(written_off_call_stays_in_the_reports),
		CASE(more_overdue_calls_than_can_be_remembered_are_still_counted),
		CASE(nothing_is_allocated_after_the_first_report),
		CASE(without_memory_calls_are_still_counted),
		CASE(stacks_can_be_switched_off),
		CASE(without_a_listener_calls_are_only_counted),
		CASE(clock_that_goes_back_does_no_harm),
#if CHILDREN_HAVE_THREADS
		CASE(child_of_a_fork_starts_with_nothing_overdue_and_reports_its_own),
#endif
		CASE(threads_come_and_go_while_reports_are_made),
	};

	return cmocka_run_group_tests_name("stuck", tests, NULL, NULL);
}
