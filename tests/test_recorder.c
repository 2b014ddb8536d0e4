/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The flight recorder: the last decisions, newest first, sampled where there are many, and read while
 * they are written, from dumps and signal handlers, too. The clock is virtual.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/actors.h"
#include "support/guarded.h"
#include "support/threads.h"

#define ALL 8192

static struct guarded g;
static struct fc_record list[ALL];
static cpu_set_t cpus; /* as the program began */

/* All decisions go into one row as long as this thread stays where it is. */
static void stay_on_this_cpu(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET((unsigned)sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

static void open_slots(uint32_t slots, uint32_t cap)
{
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .flags = FC_NO_STACKS, .max_ifaces = 16, .recorder_slots = slots);

	stay_on_this_cpu();
	memset(&g, 0, sizeof(g));
	assert_int_equal(fc_create(&g.fc, &o), 0);
	g.now = FC_S(1000);
	fc_clock_set(g.fc, g.now);
	assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = cap, .expand = 1 }), 0);
}

static int teardown(void **state)
{
	(void)state;
	sched_setaffinity(0, sizeof(cpus), &cpus);
	return g.fc ? guarded_close(&g) : 0;
}

/* The newest n. */
static int look(uint32_t n)
{
	list[0].size = sizeof(list[0]);
	return fc_recorder(g.fc, list, n);
}

static int call_of(struct fc_iface *f)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter(&e, f, NULL);

	fc_exit(&e);
	return rc;
}

/* n refused calls, one each ns. */
static void flood(unsigned n, uint64_t ns)
{
	while (n-- > 0) {
		guarded_pass(&g, ns);
		assert_int_equal(call_of(g.f), FC_REFUSED_CAP);
	}
}

/* ---- what is shown ----------------------------------------------------------------------------- */

static void decisions_are_shown_newest_first(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	open_slots(0, 1);
	assert_int_equal(look(ALL), 0);
	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	flood(2, FC_MS(1));
	fc_exit(&e);
	guarded_pass(&g, FC_MS(1));
	assert_int_equal(call_of(g.f), 0);
	assert_int_equal(look(ALL), 4);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(list[i].size, sizeof(list[i]));
		assert_int_equal(list[i].time_ns, g.now - i * FC_MS(1));
		assert_int_equal(list[i].status, i == 1 || i == 2 ? FC_REFUSED_CAP : 0);
		assert_int_equal(list[i].in_flight_or_latency, i == 1 || i == 2 ? 1 : 0);
		assert_string_equal(list[i].iface, "guarded");
		assert_int_equal(list[i].tid, syscall(SYS_gettid));
		assert_int_equal(list[i].one_of, 1);
	}
}

static int refuse_with_its_own(struct fc_call *c)
{
	(void)c;
	return FC_REFUSED_USER + 7;
}

static const struct fc_interceptor own = { .size = sizeof(own), .order = FC_ORDER_USER, .name = "own", .pre = refuse_with_its_own };

static void each_interface_and_reason_is_told_apart(void **state)
{
	struct fc_rule rule = { .interceptor = &own };
	struct fc_iface *other;

	(void)state;
	open_slots(0, 1);
	other = fc_iface_get(g.fc, "other");
	assert_int_equal(fc_iface_set_chain(other, &rule, 1), 0);
	assert_int_equal(call_of(g.f), 0);
	guarded_pass(&g, 1);
	assert_int_equal(call_of(other), FC_REFUSED_USER + 7);
	assert_int_equal(look(ALL), 2);
	assert_string_equal(list[0].iface, "other");
	assert_int_equal(list[0].status, FC_REFUSED_USER + 7);
	assert_string_equal(list[1].iface, "guarded");
	assert_int_equal(list[1].status, 0);
}

static void no_more_are_written_than_asked_for_and_those_are_the_newest(void **state)
{
	(void)state;
	open_slots(0, 4);
	for (int i = 0; i < 20; i++) {
		guarded_pass(&g, 1);
		assert_int_equal(call_of(g.f), 0);
	}
	memset(list, 0, sizeof(list));
	assert_int_equal(look(3), 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(list[i].time_ns, g.now - i);
	assert_int_equal(list[3].size, 0);
	assert_int_equal(fc_recorder(g.fc, NULL, 0), 0);
}

static void a_wrong_list_is_refused(void **state)
{
	(void)state;
	open_slots(0, 1);
	assert_int_equal(fc_recorder(g.fc, NULL, 1), -EINVAL);
	assert_int_equal(fc_recorder(NULL, NULL, 0), -EINVAL);
	list[0].size = 0;
	assert_int_equal(fc_recorder(g.fc, list, 1), -EINVAL);
}

static void a_full_ring_keeps_the_last(void **state)
{
	(void)state;
	open_slots(16, 4);
	for (unsigned i = 0; i < 100; i++) {
		guarded_pass(&g, 1);
		assert_int_equal(call_of(g.f), 0);
		assert_int_equal(look(ALL), i < 16 ? i + 1 : 16);
		for (uint32_t k = 0; k < 16 && k <= i; k++)
			assert_int_equal(list[k].time_ns, g.now - k);
	}
}

static void latencies_that_are_all_measured_are_recorded_like_others(void **state)
{
	int n;

	(void)state;
	open_slots(0, 4);
	assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 4, .expand = 1, .latency = FC_LATENCY_EXACT }), 0);
	for (int i = 0; i < 10; i++) {
		guarded_pass(&g, 1);
		assert_int_equal(call_of(g.f), 0);
	}
	assert_int_equal(look(ALL), 10);
	for (int i = 0; i < 20000; i++) { /* a million a second: sampled, too */
		guarded_pass(&g, FC_US(1));
		assert_int_equal(call_of(g.f), 0);
	}
	n = look(ALL);
	assert_true(list[0].one_of > 1);
	assert_true(list[0].time_ns - list[n - 1].time_ns > (uint64_t)n * FC_US(4)); /* not one after the other */
}

/* ---- sampling ---------------------------------------------------------------------------------- */

/* What the records of a status stand for. */
static uint64_t stands_for(int n, int status)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += list[i].status == status ? list[i].one_of : 0;
	return sum;
}

static unsigned shown(int n, int status)
{
	unsigned of = 0;

	for (int i = 0; i < n; i++)
		of += list[i].status == status;
	return of;
}

static void a_flood_of_refusals_is_sampled_and_does_not_hide_admissions(void **state)
{
	struct fc_iface *quiet;
	struct fc_entry e = FC_ENTRY_INIT;
	uint64_t began;
	int n;

	(void)state;
	open_slots(0, 1);
	quiet = fc_iface_get(g.fc, "quiet");
	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	began = g.now;
	for (int i = 0; i < 1000; i++) {
		flood(1000, FC_US(1));
		assert_int_equal(call_of(quiet), 0);
	}
	n = look(ALL);
	assert_int_equal(n, 256);
	/* About one refusal of a ms, and each admission, one a ms: half of the ring each. */
	assert_in_range(shown(n, 0), 64, 192);
	assert_int_equal(stands_for(n, 0), shown(n, 0));
	assert_in_range(list[0].one_of + list[1].one_of + list[2].one_of, 3, 3 * 4096);
	/* What the sampled ones stand for is what came in that time: one each us. */
	assert_true(list[n - 1].time_ns > began);
	assert_in_range(stands_for(n, FC_REFUSED_CAP), (g.now - list[n - 1].time_ns) / 1000 * 6 / 10,
	                (g.now - list[n - 1].time_ns) / 1000 * 14 / 10);
	/* And all of them are counted. */
	assert_int_equal(guarded_stats(&g).refused[FC_REFUSED_CAP], 1000000);
	fc_exit(&e);
}

static void admissions_in_great_number_are_sampled_too(void **state)
{
	int n;

	(void)state;
	open_slots(1024, 1);
	for (int i = 0; i < 1000000; i++) {
		guarded_pass(&g, FC_US(1));
		assert_int_equal(call_of(g.f), 0);
	}
	n = look(ALL);
	assert_int_equal(n, 1024);
	assert_true(list[0].one_of >= 256 && list[0].one_of <= 4096);
	/* The last 100 or so: about as many ms. */
	assert_in_range(g.now - list[100].time_ns, FC_MS(25), FC_MS(400));
}

static void when_the_flood_is_over_each_decision_is_recorded_again(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	open_slots(0, 1);
	fc_tick(g.fc, FC_S(1));
	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	flood(100000, FC_US(1));
	assert_int_equal(look(ALL), 256);
	assert_true(list[0].one_of > 16);
	guarded_pass(&g, FC_MS(300));
	fc_tick(g.fc, FC_S(1));
	guarded_pass(&g, FC_S(2));
	fc_tick(g.fc, FC_S(1));
	flood(50, FC_MS(1));
	assert_int_equal(look(ALL), 256);
	for (uint32_t i = 0; i < 50; i++) {
		assert_int_equal(list[i].time_ns, g.now - i * FC_MS(1));
		assert_int_equal(list[i].one_of, 1);
	}
	fc_exit(&e);
}

/* ---- dumps ------------------------------------------------------------------------------------- */

static int dump_fd;

static void dump_now(int signal)
{
	(void)signal;
	fc_dump_signal(g.fc, dump_fd);
}

static const char *dumped(int by_signal)
{
	static char text[1 << 17];
	ssize_t n;

	dump_fd = memfd_create("dump", MFD_CLOEXEC);
	assert_true(dump_fd >= 0);
	if (by_signal) {
		struct sigaction sa = { .sa_handler = dump_now }, old;

		sigaction(SIGUSR1, &sa, &old);
		raise(SIGUSR1);
		sigaction(SIGUSR1, &old, NULL);
	} else {
		assert_int_equal(fc_dump(g.fc, dump_fd), 0);
	}
	n = pread(dump_fd, text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = 0;
	close(dump_fd);
	return text;
}

static unsigned lines_with(const char *text, const char *what)
{
	unsigned n = 0;

	while ((text = strstr(text, what)) != NULL) {
		n++;
		text++;
	}
	return n;
}

static void both_dumps_show_the_last_decisions_newest_first(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	open_slots(0, 1);
	assert_null(strstr(dumped(0), "\ndecisions"));
	assert_null(strstr(dumped(1), "\ndecisions"));
	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	flood(3, FC_S(1));
	for (int by_signal = 0; by_signal < 2; by_signal++) {
		const char *text = dumped(by_signal), *begin = strstr(text, "\ndecisions"), *refused, *admitted;

		assert_non_null(begin);
		assert_int_equal(lines_with(text, "\ndecisions"), 1);
		if (by_signal)
			assert_int_equal(strncmp(begin, "\ndecisions on CPU ", 18), 0);
		assert_non_null(strstr(begin, "newest first:\n"));
		refused = strstr(begin, "0.000 s ago: guarded FC_REFUSED_CAP limit 1, thread ");
		admitted = strstr(begin, "3.000 s ago: guarded admitted, thread ");
		assert_true(refused && admitted && refused < admitted);
		assert_int_equal(lines_with(begin, " ago: "), 4);
		assert_null(strstr(begin, "one of"));
	}
	fc_exit(&e);
}

static void dumps_say_what_a_sampled_decision_stands_for(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	open_slots(0, 1);
	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	flood(20000, FC_US(1));
	assert_int_equal(lines_with(dumped(0), " ago: "), 256);
	assert_true(lines_with(dumped(0), ", one of ") > 200);
	assert_int_equal(lines_with(dumped(1), " ago: "), 64); /* of each CPU */
	assert_int_equal(lines_with(dumped(1), ", one of "), 64);
	fc_exit(&e);
}

/* ---- reading beside writers -------------------------------------------------------------------- */

#define WRITERS 4u

/* Each writer has an interface with a cap of its own, holds all its places, and is refused; then it
 * gives one back and is admitted. So each record is known but for its time. */
struct beside {
	struct fc_iface *f[WRITERS];
	atomic_uint tid[WRITERS];
	atomic_uint stop, bad;
	uint64_t seen, refusals, admissions;
};

static uint32_t cap_of(unsigned writer)
{
	return 3 + 5 * writer;
}

static void write_decisions(struct beside *b, unsigned i)
{
	struct fc_entry e[3 + 5 * WRITERS], more = FC_ENTRY_INIT;
	uint32_t cap = cap_of(i);

	memset(e, 0, sizeof(e));
	atomic_store(&b->tid[i], (unsigned)syscall(SYS_gettid));
	for (uint32_t k = 0; k < cap; k++)
		atomic_fetch_add(&b->bad, fc_enter(&e[k], b->f[i], NULL) != 0);
	while (!atomic_load(&b->stop)) {
		atomic_fetch_add(&b->bad, fc_enter(&more, b->f[i], NULL) != FC_REFUSED_CAP);
		fc_exit(&e[0]);
		atomic_fetch_add(&b->bad, fc_enter(&e[0], b->f[i], NULL) != 0);
		(void)fc_clock_advance(g.fc, 1000);
	}
	for (uint32_t k = 0; k < cap; k++)
		fc_exit(&e[k]);
}

/* Is it one that somebody wrote? */
static int true_record(struct beside *b, const struct fc_record *r)
{
	unsigned i = (unsigned)(r->iface[0] - '0');

	if (i >= WRITERS || r->iface[1] || r->tid != atomic_load(&b->tid[i]) || r->time_ns < FC_S(1000))
		return 0;
	return r->status == 0 ? r->in_flight_or_latency == 0
	                      : r->status == FC_REFUSED_CAP && r->in_flight_or_latency == cap_of(i);
}

static void read_decisions(struct beside *b)
{
	uint64_t end = stress_end_ns();

	while (test_now_ns() < end) {
		int n = look(ALL);

		for (int i = 0; i < n; i++) {
			atomic_fetch_add(&b->bad, !true_record(b, &list[i]));
			atomic_fetch_add(&b->bad, i > 0 && list[i].time_ns > list[i - 1].time_ns);
			b->refusals += list[i].status != 0;
			b->admissions += list[i].status == 0;
		}
		b->seen += (uint64_t)n;
	}
	atomic_store(&b->stop, 1);
}

static void read_or_write(void *arg, unsigned index, struct rng *rng)
{
	struct beside *b = arg;

	(void)rng;
	if (index == WRITERS)
		read_decisions(b);
	else
		write_decisions(b, index);
}

static void what_is_read_beside_writers_is_what_somebody_wrote(void **state)
{
	static struct beside b;

	(void)state;
	memset(&b, 0, sizeof(b));
	open_slots(64, 1);
	g.fc->percpu.ncpus = 1; /* all threads write to one row */
	sched_setaffinity(0, sizeof(cpus), &cpus);
	for (unsigned i = 0; i < WRITERS; i++) {
		FC_OPTS(fc_iface_opts, o, .cap = cap_of(i), .expand = 1);
		char name[2] = { (char)('0' + i), 0 };

		assert_int_equal(fc_iface_set(g.fc, name, &o, &b.f[i]), 0);
	}
	run_threads(WRITERS + 1, read_or_write, &b);
	assert_int_equal(atomic_load(&b.bad), 0);
	assert_true(b.refusals > 0 && b.admissions > 0);
}

static void call_in_actor(struct actor *a)
{
	assert_int_equal(sched_setaffinity(0, sizeof(cpu_set_t), a->arg), 0);
	(void)call_of(g.f);
}

/* Stopped half-way, it is passed by a whole lap. */
static void a_writer_that_was_stopped_mixes_no_two_decisions(void **state)
{
	static struct actor a;
	struct fc_iface *other;
	cpu_set_t here;
	int n;

	(void)state;
	open_slots(1, 4);
	assert_int_equal(fc_iface_set(g.fc, "other", &(struct fc_iface_opts){ .size = sizeof(struct fc_iface_opts),
	                              .cap = FC_CAP_REFUSE_ALL }, &other), 0);
	CPU_ZERO(&here);
	CPU_SET((unsigned)sched_getcpu(), &here);
	actors_init();
	actor_start(&a, call_in_actor, &here, "recording");
	assert_int_equal(actor_stopped(&a), 1);
	guarded_pass(&g, FC_S(1));
	assert_int_equal(call_of(other), FC_REFUSED_CAP);
	actor_end(&a);
	n = look(1);
	assert_int_equal(n, 1);
	assert_string_equal(list[0].iface, fc_iface_name(g.f));
	assert_int_equal(list[0].time_ns, g.now - FC_S(1));
	guarded_pass(&g, FC_S(1));
	assert_int_equal(call_of(other), FC_REFUSED_CAP);
	assert_int_equal(look(1), 1);
	assert_string_equal(list[0].iface, "other");
}

int main(void)
{
#define T(f_) cmocka_unit_test_teardown(f_, teardown)
	static const struct CMUnitTest tests[] = {
		T(decisions_are_shown_newest_first),
		T(each_interface_and_reason_is_told_apart),
		T(no_more_are_written_than_asked_for_and_those_are_the_newest),
		T(a_wrong_list_is_refused),
		T(a_full_ring_keeps_the_last),
		T(latencies_that_are_all_measured_are_recorded_like_others),
		T(a_flood_of_refusals_is_sampled_and_does_not_hide_admissions),
		T(admissions_in_great_number_are_sampled_too),
		T(when_the_flood_is_over_each_decision_is_recorded_again),
		T(both_dumps_show_the_last_decisions_newest_first),
		T(dumps_say_what_a_sampled_decision_stands_for),
		T(what_is_read_beside_writers_is_what_somebody_wrote),
		T(a_writer_that_was_stopped_mixes_no_two_decisions),
	};

	sched_getaffinity(0, sizeof(cpus), &cpus);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
