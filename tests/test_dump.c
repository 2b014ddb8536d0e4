/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state of everything as text, also from a signal handler; lists of calls inside; who is left
 * over. The clock is virtual unless a case says otherwise.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include <fcguard/fcguard.h>

#include "check.h"
#include "inflight.h"
#include "stuck.h"
#include "support/emulator.h"
#include "support/threads.h"
#include "symbol.h"
#include "taskinfo.h"

#define COUNT(a_) (sizeof(a_) / sizeof((a_)[0]))
#define NOINLINE __attribute__((__noinline__))

static struct fc *fc;
static char logged[8192];

static void on_log(void *arg, int level, const char *msg)
{
	size_t used = strlen(logged);

	(void)arg;
	(void)level;
	snprintf(logged + used, sizeof(logged) - used, "%s\n", msg);
}

static int set_up(void **state)
{
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .log = on_log);

	(void)state;
	logged[0] = '\0';
	if (fc_create(&fc, &o))
		return -1;
	return fc_clock_set(fc, FC_S(1000));
}

static int tear_down(void **state)
{
	(void)state;
	fc = fc_destroy(fc);
	return 0;
}

static struct fc_iface *make_iface(const char *name, uint32_t cap)
{
	FC_OPTS(fc_iface_opts, o, .cap = cap, .expand = 1);
	struct fc_iface *f = NULL;

	assert_int_equal(fc_iface_set(fc, name, &o, &f), 0);
	return f;
}

/* What `dump` writes, as a string that lives until the next call. */
static const char *text_of(int (*dump)(struct fc *, int), int *ret)
{
	static char text[1 << 20];
	int fd = memfd_create("dump", MFD_CLOEXEC);
	ssize_t n;

	assert_true(fd >= 0);
	*ret = dump(fc, fd);
	n = pread(fd, text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	close(fd);
	return text;
}

/* ---- dumps ------------------------------------------------------------------------------------- */

struct waiter {
	pthread_t thread;
	struct fc_iface *iface;
	int pipe[2];
	_Atomic int tid;
};

static NOINLINE int wait_for_dependency(struct waiter *w)
{
	struct pollfd p = { .fd = w->pipe[0], .events = POLLIN };

	return poll(&p, 1, -1);
}

static void *waiter_main(void *arg)
{
	FC_OPTS(fc_ctx, ctx, .request_id = 4711);
	struct fc_entry e = FC_ENTRY_INIT;
	struct waiter *w = arg;
	int rc = fc_enter(&e, w->iface, &ctx);

	w->tid = (int)syscall(SYS_gettid);
	if (rc == 0)
		rc = wait_for_dependency(w);
	fc_exit(&e);
	return rc == 1 ? NULL : w;
}

static void waiter_start(struct waiter *w, struct fc_iface *f)
{
	struct fci_taskinfo info;

	w->iface = f;
	w->tid = 0;
	assert_int_equal(pipe(w->pipe), 0);
	assert_int_equal(pthread_create(&w->thread, NULL, waiter_main, w), 0);
	while (!w->tid || fci_taskinfo_read(w->tid, &info) || info.state != 'S' || info.where.running ||
	       info.where.syscall_nr < 0)
		usleep(100);
}

static void waiter_stop(struct waiter *w)
{
	void *disturbed;

	assert_int_equal(write(w->pipe[1], "x", 1), 1);
	assert_int_equal(pthread_join(w->thread, &disturbed), 0);
	assert_null(disturbed);
	close(w->pipe[0]);
	close(w->pipe[1]);
}

static void dump_shows_totals_interfaces_calls_and_stacks(void **state)
{
	struct fc_iface *f = make_iface("shop.report", 2);
	struct fc_entry e = FC_ENTRY_INIT;
	struct waiter w[2];
	const char *text;
	int rc;

	(void)state;
	make_iface("user.login", 8);
	waiter_start(&w[0], f);
	waiter_start(&w[1], f);
	assert_int_equal(fc_enter(&e, f, NULL), FC_REFUSED_CAP);
	fc_clock_advance(fc, FC_S(7));
	text = text_of(fc_dump, &rc);
	if (getenv("FC_SHOW"))
		fputs(text, stdout);
	assert_int_equal(rc, 0);
	assert_non_null(strstr(text, "interfaces 2, time 1007.000 s"));
	assert_non_null(strstr(text, "health: "));
	assert_non_null(strstr(text, "\nuser.login: cap 8"));
	assert_non_null(strstr(text, "\nshop.report: cap 2, limit 2, in flight 2"));
	assert_non_null(strstr(text, "refused: FC_REFUSED_CAP 1"));
	assert_non_null(strstr(text, "inside for 7.000 s: thread "));
	assert_non_null(strstr(text, "test_dump.c:"));
	assert_non_null(strstr(text, "request 4711, OVERDUE"));
	assert_non_null(strstr(text, emulated() ? "sleeping in " : "sleeping in poll"));
	assert_non_null(strstr(text, "stack as that of thread "));
	assert_non_null(strstr(text, "shop.report FC_REFUSED_CAP limit 2"));
	if (fci_symbol_available() && !emulated()) {
		assert_non_null(strstr(text, "wait_for_dependency"));
		assert_non_null(strstr(text, "<- guard"));
	}
	waiter_stop(&w[0]);
	waiter_stop(&w[1]);
}

static void dump_for_signals_shows_the_same_without_stacks(void **state)
{
	struct fc_iface *f = make_iface("shop.report", 2);
	struct fc_entry e[2] = { FC_ENTRY_INIT, FC_ENTRY_INIT }, refused = FC_ENTRY_INIT;
	const char *text;
	int rc;

	(void)state;
	assert_int_equal(fc_enter(&e[0], f, NULL), 0);
	fc_clock_advance(fc, FC_S(6));
	assert_int_equal(fc_enter(&e[1], f, NULL), 0);
	assert_int_equal(fc_enter(&refused, f, NULL), FC_REFUSED_CAP);
	fc_clock_advance(fc, FC_MS(1500));
	text = text_of(fc_dump_signal, &rc);
	if (getenv("FC_SHOW"))
		fputs(text, stdout);
	assert_int_equal(rc, 0);
	assert_non_null(strstr(text, "\nshop.report: cap 2, limit 2, in flight 2"));
	assert_non_null(strstr(text, "inside for 7.500 s: thread "));
	assert_non_null(strstr(text, "OVERDUE"));
	assert_true(strstr(text, "inside for 7.500 s") < strstr(text, "inside for 1.500 s"));
	assert_non_null(strstr(text, "1.500 s ago: shop.report FC_REFUSED_CAP limit 2, thread "));
	assert_true(strstr(text, "1.500 s ago: shop.report FC_REFUSED_CAP") < strstr(text, "7.500 s ago: shop.report admitted"));
	fc_exit(&e[0]);
	fc_exit(&e[1]);
}

static void long_lists_are_cut_and_say_so(void **state)
{
	struct fc_iface *f = make_iface("wide", 512);
	static struct fc_entry e[300];
	const char *text;
	int rc;

	(void)state;
	for (int i = 0; i < 300; i++)
		assert_int_equal(fc_enter(&e[i], f, NULL), 0);
	text = text_of(fc_dump_signal, &rc);
	assert_non_null(strstr(text, "  and 284 more\n"));
	text = text_of(fc_dump, &rc);
	assert_non_null(strstr(text, "  and 44 more\n"));
	for (int i = 0; i < 300; i++)
		fc_exit(&e[i]);
}

static void errors_of_writing_come_back(void **state)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	(void)state;
	make_iface("user.login", 8);
	assert_int_equal(fc_dump(fc, -1), -EBADF);
	assert_int_equal(fc_dump_signal(fc, -1), -EBADF);
	assert_int_equal(fc_dump_signal(fc, full), -ENOSPC);
	assert_int_equal(fc_dump(NULL, 1), -EINVAL);
	assert_int_equal(fc_dump_signal(NULL, 1), -EINVAL);
	close(full);
}

/* ---- a dump inside a signal handler ------------------------------------------------------------ */

static struct {
	struct fc *fc;
	int fd;
	atomic_uint dumps, failed;
	atomic_int stop;
	FILE *null;
} in_signal;

static void dump_now(int signal)
{
	(void)signal;
	if (fc_dump_signal(in_signal.fc, in_signal.fd) == 0)
		atomic_fetch_add(&in_signal.dumps, 1);
	else
		atomic_fetch_add(&in_signal.failed, 1);
}

/* Takes and gives malloc's and stdio's locks, and runs calls, all the time: signals hit it inside. */
static void *busy_main(void *arg)
{
	struct fc_iface *f = arg;
	struct fc_entry e = FC_ENTRY_INIT;

	while (!atomic_load(&in_signal.stop)) {
		void *p = malloc(200000), *q = malloc(3000);

		fprintf(in_signal.null, "%p %p\n", p, q);
		free(p);
		free(q);
		flockfile(in_signal.null);
		for (volatile int i = 0; i < 1000; i++)
			;
		funlockfile(in_signal.null);
		if (fc_enter(&e, f, NULL) == 0)
			fc_exit(&e);
	}
	return NULL;
}

static void dump_works_in_a_handler_while_threads_hold_the_locks_of_malloc_and_stdio(void **state)
{
	struct sigaction action = { .sa_handler = dump_now };
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_TSC, .flags = FC_THREAD, .log = on_log);
	pthread_t busy[3];
	uint64_t end = test_now_ns() + FC_S(20);

	(void)state;
	assert_int_equal(fc_create(&in_signal.fc, &o), 0);
	in_signal.fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	in_signal.null = fopen("/dev/null", "we");
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&busy[i], NULL, busy_main, fc_iface_get(in_signal.fc, "busy")), 0);
	for (unsigned i = 0; i < 300; i++) {
		assert_int_equal(pthread_kill(busy[i % 3], SIGUSR1), 0);
		while (atomic_load(&in_signal.dumps) + atomic_load(&in_signal.failed) <= i && test_now_ns() < end)
			usleep(50);
	}
	assert_int_equal(atomic_load(&in_signal.dumps), 300);
	atomic_store(&in_signal.stop, 1);
	for (int i = 0; i < 3; i++)
		pthread_join(busy[i], NULL);
	fclose(in_signal.null);
	close(in_signal.fd);
	in_signal.fc = fc_destroy(in_signal.fc);
}

/* ---- lists ------------------------------------------------------------------------------------- */

static void list_is_oldest_first(void **state)
{
	struct fc_iface *f = make_iface("user.login", 64);
	struct fc_in_flight list[64];
	struct fc_entry e[50];
	FC_OPTS(fc_ctx, ctx, .request_id = 0);

	(void)state;
	list[0].size = sizeof(list[0]);
	assert_int_equal(fc_in_flight(f, list, 64), 0);
	memset(e, 0, sizeof(e));
	for (unsigned i = 0; i < 50; i++) {
		fc_clock_set(fc, FC_S(900) + (i * 37 % 50) * FC_S(1));
		ctx.request_id = i + 1;
		assert_int_equal(fc_enter(&e[i], f, &ctx), 0);
	}
	fc_clock_set(fc, FC_S(950));
	assert_int_equal(fc_in_flight(f, list, 64), 50);
	for (unsigned i = 0; i < 50; i++) {
		assert_int_equal(list[i].size, sizeof(list[i]));
		assert_int_equal(list[i].start_ns, FC_S(900) + i * FC_S(1));
		assert_int_equal(list[i].age_ns, FC_S(50) - i * FC_S(1));
		assert_int_equal((list[i].request_id - 1) * 37 % 50, i);
		assert_int_equal(list[i].tid, (int)syscall(SYS_gettid));
		assert_int_equal(list[i].pid, getpid());
		assert_int_equal(list[i].weight, 1);
		assert_string_equal(list[i].iface, "user.login");
		assert_string_equal(list[i].func, __func__);
		assert_non_null(strstr(list[i].file, "test_dump.c"));
		assert_int_equal(list[i].flags, i <= 45 ? FC_IN_FLIGHT_OVERDUE : 0);
	}
	for (int i = 0; i < 50; i++)
		fc_exit(&e[i]);
}

static void short_list_has_the_oldest_and_says_how_many_there_are(void **state)
{
	struct fc_iface *f = make_iface("user.login", 64);
	struct fc_in_flight list[8];
	struct fc_entry e[50];

	(void)state;
	memset(e, 0, sizeof(e));
	for (unsigned i = 0; i < 50; i++) {
		fc_clock_set(fc, FC_S(900) + (i * 37 % 50) * FC_S(1));
		assert_int_equal(fc_enter(&e[i], f, NULL), 0);
	}
	list[0].size = sizeof(list[0]);
	assert_int_equal(fc_in_flight(f, list, 8), 50);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(list[i].start_ns, FC_S(900) + i * FC_S(1));
	assert_int_equal(fc_in_flight(f, NULL, 0), 50);
	for (int i = 0; i < 50; i++)
		fc_exit(&e[i]);
}

static void list_of_a_newer_caller_keeps_its_stride(void **state)
{
	struct newer {
		struct fc_in_flight known;
		uint64_t more;
	} list[3] = { { .more = 7 }, { .more = 8 }, { .more = 9 } };
	struct fc_iface *f = make_iface("user.login", 8);
	struct fc_entry e[2] = { FC_ENTRY_INIT, FC_ENTRY_INIT };

	(void)state;
	assert_int_equal(fc_enter(&e[0], f, NULL), 0);
	fc_clock_advance(fc, FC_S(1));
	assert_int_equal(fc_enter(&e[1], f, NULL), 0);
	list[0].known.size = sizeof(list[0]);
	assert_int_equal(fc_in_flight(f, &list[0].known, 3), 2);
	assert_int_equal(list[0].known.start_ns, FC_S(1000));
	assert_int_equal(list[1].known.start_ns, FC_S(1001));
	assert_int_equal(list[1].known.size, sizeof(list[0]));
	assert_int_equal(list[0].more + list[1].more + list[2].more, 24);
	fc_exit(&e[0]);
	fc_exit(&e[1]);
}

static void bad_arguments_of_a_list_are_told(void **state)
{
	struct fc_iface *f = make_iface("user.login", 8);
	struct fc_in_flight one = { .size = 0 };

	(void)state;
	assert_int_equal(fc_in_flight(NULL, NULL, 0), -EINVAL);
	assert_int_equal(fc_in_flight(f, NULL, 1), -EINVAL);
	assert_int_equal(fc_in_flight(f, &one, 1), -EINVAL);
	one.size = sizeof(one) + 1;
	assert_int_equal(fc_in_flight(f, &one, 1), -EINVAL);
}

static void moved_weighted_and_written_off_calls_are_marked_in_the_list(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 3, .expand = 1, .writeoff = 1);
	FC_OPTS(fc_ctx, heavy, .weight = 2);
	struct fc_entry e[4], moved = FC_ENTRY_INIT;
	struct fc_in_flight list[4];
	struct fc_iface *f = NULL;

	(void)state;
	memset(e, 0, sizeof(e));
	assert_int_equal(fc_iface_set(fc, "mixed", &o, &f), 0);
	assert_int_equal(fc_enter(&e[0], f, NULL), 0);
	fc_clock_advance(fc, FC_S(19));
	assert_int_equal(fc_enter(&e[1], f, &heavy), 0);
	fc_clock_advance(fc, FC_S(1));
	assert_int_equal(fc_enter(&e[2], f, NULL), 0); /* writes e[0] off */
	fc_entry_take(&moved, &e[2]);
	list[0].size = sizeof(list[0]);
	assert_int_equal(fc_in_flight(f, list, 4), 3);
	assert_int_equal(list[0].start_ns, FC_S(1019));
	assert_int_equal(list[0].weight, 2);
	assert_int_equal(list[0].flags, 0);
	assert_int_equal(list[1].start_ns, FC_S(1020));
	assert_int_equal(list[1].flags, FC_IN_FLIGHT_MOVED);
	assert_int_equal(list[2].start_ns, FC_S(1000));
	assert_int_equal(list[2].flags, FC_IN_FLIGHT_OVERDUE | FC_IN_FLIGHT_WRITTEN_OFF);
	assert_int_equal(fc_exit_status(&e[0]), -ESTALE);
	assert_int_equal(fc_in_flight(f, list, 4), 2);
	fc_exit(&e[1]);
	fc_exit(&moved);
}

static void calls_over_the_limit_of_a_dry_run_are_marked_in_the_list(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 8, .expand = 1, .flags = FC_IFACE_DRY_RUN, .writeoff = FC_WRITEOFF_NONE);
	struct fc_entry e[2] = { FC_ENTRY_INIT, FC_ENTRY_INIT };
	struct fc_in_flight list[2];
	struct fc_iface *f = NULL;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "dry", &o, &f), 0);
	assert_int_equal(fc_enter(&e[0], f, NULL), 0);
	assert_int_equal(fc_enter(&e[1], f, NULL), 0);
	list[0].size = sizeof(list[0]);
	assert_int_equal(fc_in_flight(f, list, 2), 2);
	assert_int_equal(list[0].flags | list[1].flags, 0);
	assert_int_equal(fc_iface_set_cap(f, 1), 0);
	assert_int_equal(fc_in_flight(f, list, 2), 2);
	assert_int_equal(list[0].flags | list[1].flags, FC_IN_FLIGHT_OVER_LIMIT);
	fc_exit(&e[0]);
	fc_exit(&e[1]);
}

struct churn {
	struct fc_iface *f;
	atomic_uint bad;
	uint64_t end;
};

/* Worker 0 lists, the others come and go. */
static void list_or_call(void *arg, unsigned index, struct rng *rng)
{
	struct churn *c = arg;
	struct fc_in_flight list[16];
	struct fc_entry e = FC_ENTRY_INIT;

	while (test_now_ns() < c->end) {
		if (index != 0) {
			if (fc_enter(&e, c->f, NULL) == 0 && rng_chance(rng, 16))
				sched_yield();
			fc_exit(&e);
			continue;
		}
		list[0].size = sizeof(list[0]);
		int n = fc_in_flight(c->f, list, 16);

		for (int i = 0; i < n && i < 16; i++)
			if (list[i].tid == 0 || strcmp(list[i].func, "list_or_call") != 0 ||
			    (i > 0 && list[i].start_ns < list[i - 1].start_ns))
				atomic_fetch_add(&c->bad, 1);
		if (n < 0 || n > 16)
			atomic_fetch_add(&c->bad, 1);
	}
}

static void list_is_sane_while_calls_come_and_go(void **state)
{
	struct churn c = { .f = make_iface("churn", 16), .end = stress_end_ns() };

	(void)state;
	run_threads(4, list_or_call, &c);
	assert_int_equal(atomic_load(&c.bad), 0);
}

/* ---- leaks ------------------------------------------------------------------------------------- */

static NOINLINE void leak_here(struct fc_entry *e, struct fc_iface *f)
{
	assert_int_equal(fc_enter(e, f, NULL), 0);
}

static NOINLINE void leak_there(struct fc_entry *e, struct fc_iface *f)
{
	assert_int_equal(fc_enter(e, f, NULL), 0);
}

/* Make the calls inside look as if their thread were gone. */
static void thread_is_gone(const struct fc_iface *f)
{
	uint32_t slots = fci_slots(f);

	for (uint32_t s = 0; s < slots; s++) {
		struct fci_record *r = fci_record(f, s);

		atomic_store(&r->who, (atomic_load(&r->who) & ~(uint64_t)UINT32_MAX) | 0x7ffffff0u);
	}
}

static void calls_that_nobody_can_end_are_told_by_call_site(void **state)
{
	struct fc_iface *f = make_iface("shop.report", 16);
	struct fc_entry e[6], moved = FC_ENTRY_INIT;
	const char *text;
	int n;

	(void)state;
	memset(e, 0, sizeof(e));
	for (int i = 0; i < 3; i++)
		leak_here(&e[i], f);
	for (int i = 3; i < 5; i++)
		leak_there(&e[i], f);
	leak_here(&e[5], f);
	fc_entry_take(&moved, &e[5]);
	fc_clock_advance(fc, FC_S(12));
	text = text_of(fc_leaks, &n);
	assert_int_equal(n, 0);
	assert_string_equal(text, "");
	thread_is_gone(f);
	text = text_of(fc_leaks, &n);
	assert_int_equal(n, 5);
	assert_non_null(strstr(text, "leaked: shop.report: 3 calls from "));
	assert_non_null(strstr(text, " leak_here, oldest 12.0 s; threads 2147483632"));
	assert_non_null(strstr(text, "leaked: shop.report: 2 calls from "));
	assert_int_equal(fc_leaks(fc, -1), 5);
	assert_non_null(strstr(logged, "leaked: shop.report: 3 calls from "));
	assert_int_equal(fc_leaks(NULL, -1), -EINVAL);
	for (int i = 0; i < 5; i++)
		fc_exit(&e[i]);
	fc_exit(&moved);
}

/* What the end of a context tells, into fd. */
static int all_inside(struct fc *of, int fd)
{
	return fci_leaks_report(of, fd, 1);
}

static void calls_of_more_call_sites_than_are_told_apart_are_told_together(void **state)
{
	static struct fc_site sites[40];
	struct fc_iface *f = make_iface("f", 64);
	static struct fc_entry e[COUNT(sites)];
	const char *text, *line;
	unsigned lines = 0;
	int n;

	(void)state;
	memset(e, 0, sizeof(e));
	for (uint32_t i = 0; i < COUNT(sites); i++) {
		sites[i] = (struct fc_site){ .file = "x.c", .func = "x", .line = i + 1 };
		assert_int_equal(fc_enter_at(&e[i], f, NULL, &sites[i]), 0);
	}
	text = text_of(all_inside, &n);
	assert_int_equal(n, COUNT(sites));
	for (line = text; (line = strchr(line, '\n')) != NULL; line++)
		lines++;
	assert_int_equal(lines, 32);
	assert_non_null(strstr(text, "still inside: f: 1 call from x.c:1 x, oldest "));
	assert_non_null(strstr(text, "still inside: f: 9 calls from ?:0 ?, oldest "));
	for (uint32_t i = 0; i < COUNT(sites); i++)
		fc_exit(&e[i]);
}

static void calls_that_were_written_off_are_told_as_well(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 1, .expand = 1, .writeoff = 1, .stuck_after_ns = FC_S(1));
	struct fc_entry stuck = FC_ENTRY_INIT, next = FC_ENTRY_INIT;
	struct fc_iface *f;
	const char *text;
	int n;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "f", &o, &f), 0);
	leak_here(&stuck, f);
	fc_clock_advance(fc, FC_S(5));
	assert_int_equal(fc_enter(&next, f, NULL), 0); /* in its place */
	fc_exit(&next);
	text = text_of(all_inside, &n);
	assert_int_equal(n, 1);
	assert_non_null(strstr(text, "still inside: f: 1 call from "));
	assert_non_null(strstr(text, " leak_here, oldest 5.0 s"));
	assert_int_equal(fc_exit_status(&stuck), -ESTALE);
	text = text_of(all_inside, &n);
	assert_int_equal(n, 0);
	assert_string_equal(text, "");
}

static void end_of_a_context_tells_who_is_still_inside(void **state)
{
	struct fc_iface *f = make_iface("shop.report", 16);
	struct fc_entry e[3];

	(void)state;
	memset(e, 0, sizeof(e));
	for (int i = 0; i < 3; i++)
		leak_here(&e[i], f);
	fc = fc_destroy(fc);
	assert_non_null(strstr(logged, "still inside: shop.report: 3 calls from "));
	assert_non_null(strstr(logged, " leak_here, oldest "));
}

int main(void)
{
#define CASE(name_) cmocka_unit_test_setup_teardown(name_, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(dump_shows_totals_interfaces_calls_and_stacks),
		CASE(dump_for_signals_shows_the_same_without_stacks),
		CASE(long_lists_are_cut_and_say_so),
		CASE(errors_of_writing_come_back),
		CASE(dump_works_in_a_handler_while_threads_hold_the_locks_of_malloc_and_stdio),
		CASE(list_is_oldest_first),
		CASE(short_list_has_the_oldest_and_says_how_many_there_are),
		CASE(list_of_a_newer_caller_keeps_its_stride),
		CASE(bad_arguments_of_a_list_are_told),
		CASE(moved_weighted_and_written_off_calls_are_marked_in_the_list),
		CASE(calls_over_the_limit_of_a_dry_run_are_marked_in_the_list),
		CASE(list_is_sane_while_calls_come_and_go),
		CASE(calls_that_nobody_can_end_are_told_by_call_site),
		CASE(calls_of_more_call_sites_than_are_told_apart_are_told_together),
		CASE(calls_that_were_written_off_are_told_as_well),
		CASE(end_of_a_context_tells_who_is_still_inside),
	};

	return cmocka_run_group_tests_name("dump", tests, NULL, NULL);
}
