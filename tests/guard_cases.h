/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * guard_cases.h - where every way out of a guard leads: the body of test_guard.c, test_guard_cxx.cc
 * and exits/paths.c. C11 and C++11, public headers and POSIX threads alone.
 *
 * A case returns 0, or the number of the line whose condition did not hold: no asserts that jump, so
 * a failure leaves guards properly; or SKIPPED. Each case runs between begin() and finish(), on a
 * virtual clock, with a default context of its own in which "user.login" has two places.
 *
 * Reports by users of other systems that these cases answer: apache/brpc #1319, #130 (a path out that
 * never gave back), resilience4j #263 (a path that gave back twice), alibaba/Sentinel #2700, #2447
 * (enter here, exit on another thread), vectordotdev/vector PR #26457 (held while idle).
 */
#ifndef FC_TESTS_GUARD_CASES_H
#define FC_TESTS_GUARD_CASES_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcguard/fcguard.h>

#if defined(__SANITIZE_THREAD__)
#define NO_FORK 1 /* TSan allows no threads after a fork of a threaded program */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_FORK 1
#endif
#endif

/* Do thread ends unwind the stack, through cleanups of this file? */
#if defined(__EXCEPTIONS) && defined(__GLIBC__)
#define UNWINDS 1
#else
#define UNWINDS 0
#endif

#define NOINLINE __attribute__((__noinline__))
#define CHECK(cond_)                                                                               \
	do {                                                                                       \
		if (!(cond_)) {                                                                    \
			failed_condition = #cond_;                                                 \
			return __LINE__;                                                           \
		}                                                                                  \
	} while (0)
/* The same for a helper that returns a line. */
#define CHECK_CALL(call_)                                                                          \
	do {                                                                                       \
		int line_ = (call_);                                                               \
		if (line_)                                                                         \
			return line_;                                                              \
	} while (0)

/* A case that cannot work here; failed_condition says why. */
#define SKIPPED (-1)

/* Emulators of single programs abort or hang in a child forked beside other threads. */
#define SKIP_FORK_OF_THREADS()                                                                     \
	do {                                                                                       \
		if (getenv("FC_EMULATED")) {                                                       \
			failed_condition = "fork beside other threads, under an emulator";         \
			return SKIPPED;                                                            \
		}                                                                                  \
	} while (0)

struct guard_case {
	const char *name;
	int (*fn)(void);
};

static struct fc *context;
static struct fc_iface *login, *query;
static const char *failed_condition = "";
static char log_lines[8192];
static unsigned leaked_events;

/* ---- around each case -------------------------------------------------------------------------- */

static void keep_log(void *arg, int level, const char *msg)
{
	size_t have = strlen(log_lines);

	(void)arg;
	(void)level;
	snprintf(log_lines + have, sizeof(log_lines) - have, "%s\n", msg);
}

static void keep_event(void *arg, const struct fc_event *event)
{
	(void)arg;
	if (event->kind == FC_EVENT_LEAKED)
		leaked_events += (unsigned)event->a;
}

static struct fc *new_context(void)
{
	struct fc *fc = NULL;
	struct fc_opts o;

	fc_opts_init(&o);
	o.clock = FC_CLOCK_VIRTUAL;
	o.log = keep_log;
	o.on_event = keep_event;
	return fc_create(&fc, &o) == 0 ? fc : NULL;
}

/* An interface with so many places and no more. */
static struct fc_iface *new_iface(struct fc *fc, const char *name, uint32_t cap)
{
	struct fc_iface *f = NULL;
	struct fc_iface_opts o;

	fc_opts_init(&o);
	o.cap = cap;
	o.expand = 1;
	return fc_iface_set(fc, name, &o, &f) == 0 ? f : NULL;
}

static struct fc_stats stats_of(const struct fc_iface *f)
{
	struct fc_stats s;

	fc_opts_init(&s);
	(void)fc_iface_stats(f, &s);
	return s;
}

static uint32_t inside(const struct fc_iface *f)
{
	return stats_of(f).in_flight;
}

static int begin(void)
{
	log_lines[0] = 0;
	leaked_events = 0;
	context = new_context();
	CHECK(context);
	login = new_iface(context, "user.login", 2);
	query = new_iface(context, "db.query", 2);
	CHECK(login && query);
	CHECK(fc_clock_set(context, FC_S(1000)) == 0);
	CHECK(fc_default_set(context) == 0);
	return 0;
}

/* Nothing may be left inside. */
static int finish(void)
{
	uint32_t left = 0;

	for (uint32_t i = 0; fc_iface_at(context, i); i++)
		left += inside(fc_iface_at(context, i));
	fc_default_set(NULL);
	context = fc_destroy(context);
	CHECK(left == 0);
	return 0;
}

/* Has exactly one call been through, and left by its own exit? */
static int left_once(const struct fc_iface *f)
{
	struct fc_stats s = stats_of(f);

	CHECK(s.admitted == 1);
	CHECK(s.in_flight == 0);
	CHECK(s.ok == 1);
	CHECK(s.abandoned == 0 && s.purged == 0);
	CHECK(s.late_exits == 0);
	return 0;
}

/* Has exactly one call been through, and been taken back by the library? */
static int taken_back_once(const struct fc_iface *f)
{
	struct fc_stats s = stats_of(f);

	CHECK(s.admitted == 1);
	CHECK(s.in_flight == 0);
	CHECK(s.ok == 0);
	CHECK(s.abandoned == 1);
	return 0;
}

/* For code that runs inside a guard. */
static int is_inside(int value)
{
	return inside(login) == 1 ? value : -1;
}

/* ---- plain ways out ---------------------------------------------------------------------------- */

static int the_end_of_the_block_exits_once(void)
{
	int seen = 0;

	FC_GUARD(e, login) {
		seen = is_inside(1);
	} else {
		seen = -2;
	}
	CHECK(seen == 1);
	return left_once(login);
}

static int returns_from_block(void)
{
	FC_GUARD(e, login) {
		return is_inside(7);
	}
	return -2;
}

static int returns_from_scope(void)
{
	struct fc_entry e FC_AUTO_EXIT = FC_ENTRY_INIT;

	if (fc_enter(&e, login, NULL))
		return -2;
	return is_inside(8);
}

static int return_evaluates_its_value_before_the_exit(void)
{
	CHECK(returns_from_block() == 7);
	return left_once(login);
}

static int return_from_function_scope_evaluates_its_value_before_the_exit(void)
{
	CHECK(returns_from_scope() == 8);
	return left_once(login);
}

static int goto_out_exits_once(void)
{
	int after = 0;

	FC_GUARD(e, login) {
		if (is_inside(1) == 1)
			goto out;
		after = 1;
	}
	after = 2;
out:
	CHECK(after == 0);
	return left_once(login);
}

static int break_ends_the_guarded_block_alone(void)
{
	int rounds = 0, behind = 0, skipped = 1;

	for (int i = 0; i < 3; i++) {
		FC_GUARD(e, login) {
			rounds += is_inside(1);
			if (i >= 0)
				break;
			skipped = 0;
		}
		behind += inside(login) == 0;
	}
	CHECK(rounds == 3 && behind == 3 && skipped);
	CHECK(stats_of(login).ok == 3);
	return 0;
}

static int continue_ends_the_guarded_block_alone(void)
{
	int rounds = 0, behind = 0, skipped = 1;

	for (int i = 0; i < 3; i++) {
		FC_GUARD(e, login) {
			rounds += is_inside(1);
			if (i >= 0)
				continue;
			skipped = 0;
		}
		behind += inside(login) == 0;
	}
	CHECK(rounds == 3 && behind == 3 && skipped);
	CHECK(stats_of(login).ok == 3);
	return 0;
}

static int break_and_continue_at_function_scope_keep_their_meaning(void)
{
	int entered = 0, behind = 0;

	for (int i = 0; i < 5; i++) {
		struct fc_entry e FC_AUTO_EXIT = FC_ENTRY_INIT;

		CHECK(fc_enter(&e, login, NULL) == 0);
		entered += is_inside(1);
		if (i == 1)
			continue;
		if (i == 3)
			break;
		behind++;
	}
	CHECK(entered == 4 && behind == 2);
	CHECK(stats_of(login).ok == 4 && inside(login) == 0);
	return 0;
}

static int a_switch_inside_the_block_keeps_its_break(void)
{
	int seen = 0;

	FC_GUARD(e, login) {
		switch (is_inside(1)) {
		case 1:
			seen = 1;
			break;
		default:
			seen = -1;
		}
		seen += is_inside(1);
	}
	CHECK(seen == 2);
	return left_once(login);
}

static int returns_through_both(void)
{
	FC_GUARD(outer, login) {
		FC_GUARD(inner, query) {
			return is_inside(1) == 1 && inside(query) == 1;
		}
	}
	return -1;
}

static int nested_guards_both_exit_once(void)
{
	CHECK(returns_through_both() == 1);
	CHECK_CALL(left_once(login));
	return left_once(query);
}

static int a_nested_guard_of_the_same_interface_takes_a_second_place(void)
{
	int both = 0, third = 0;

	FC_GUARD(outer, login) {
		FC_GUARD(inner, login) {
			both = inside(login) == 2;
			FC_GUARD(one_more, login) {
				third = -1;
			} else {
				third = fc_entry_verdict(&one_more);
			}
		}
	}
	CHECK(both && third == FC_REFUSED_CAP);
	CHECK(inside(login) == 0 && stats_of(login).ok == 2);
	return 0;
}

static int two_guards_on_lines_of_one_function_do_not_meet(void)
{
	int n = 0;

	FC_GUARD(e, login) {
		n++;
	}
	FC_GUARD(e, login) {
		n++;
	}
	CHECK(n == 2 && stats_of(login).ok == 2);
	return 0;
}

#define BOTH_IN_TURN(n_)                                                                           \
	FC_GUARD(e, login) { (n_) += inside(login) == 1; }                                         \
	FC_GUARD(e, query) { (n_) += inside(login) == 0 && inside(query) == 1; }

static int guards_on_one_line_exit_each_once(void)
{
	int n = 0;

	FC_GUARD(e, login) { n += inside(login) == 1; } FC_GUARD(e, query) { n += inside(query) == 1 && !inside(login); }
	CHECK(n == 2 && inside(query) == 0);
	FC_GUARD(e, login) { FC_GUARD(f, query) { n += inside(query) == 1; } n += inside(login) == 1 && !inside(query); }
	CHECK(n == 4 && inside(login) == 0);
	FC_GUARD_OR(n = -9, e, login) { FC_GUARD_OR(n = -9, f, query) { n++; continue; } n++; } n += inside(login) == 0;
	CHECK(n == 7);
	BOTH_IN_TURN(n)
	CHECK(n == 9 && inside(query) == 0);
	n += FC_GUARD_CALL(login, -9, FC_GUARD_CALL(query, -9, inside(login) + inside(query) == 2 ? 1 : -9));
	CHECK(n == 10 && stats_of(login).ok == 5 && stats_of(query).ok == 5);
	return 0;
}

/* ---- refused ----------------------------------------------------------------------------------- */

/* Fill the two places of "user.login". */
static int fill(struct fc_entry *two)
{
	CHECK(fc_enter(&two[0], login, NULL) == 0);
	CHECK(fc_enter(&two[1], login, NULL) == 0);
	return 0;
}

static int returns_refused(void)
{
	FC_GUARD(e, login) {
		return -1;
	} else {
		struct fc_decision d;

		fc_opts_init(&d);
		if (fc_entry_decision(&e, &d) != 0)
			return -2;
		return d.status;
	}
	return -3;
}

static int a_refused_guard_tells_why_and_needs_no_exit(void)
{
	struct fc_entry two[2] = { FC_ENTRY_INIT, FC_ENTRY_INIT };
	struct fc_decision d;
	int rc = 0;

	fc_opts_init(&d);
	CHECK_CALL(fill(two));
	FC_GUARD(e, login) {
		rc = -1;
	} else {
		rc = fc_entry_decision(&e, &d);
		fc_exit(&e);
	}
	CHECK(rc == 0 && d.status == FC_REFUSED_CAP);
	CHECK(strcmp(d.rule, "cap") == 0 && strcmp(d.iface, "user.login") == 0);
	CHECK(d.observed == 2 && d.limit == 2);
	CHECK(returns_refused() == FC_REFUSED_CAP);
	CHECK(inside(login) == 2);
	fc_exit(&two[0]);
	fc_exit(&two[1]);
	CHECK(stats_of(login).ok == 2 && stats_of(login).refused[FC_REFUSED_CAP] == 2);
	return 0;
}

static int or_returns(int *ran)
{
	FC_GUARD_OR(return -EBUSY, e, login) {
		*ran += is_inside(1);
		return 5;
	}
	return 0;
}

static int or_ends(int *ran)
{
	int i;

	for (i = 0; i < 3; i++) {
		FC_GUARD_OR(return -EBUSY, e, login) {
			if (i == 1)
				continue;
			if (i == 2)
				break;
			*ran += is_inside(1);
		}
	}
	return i;
}

static int guard_or_runs_the_block_or_its_statement(void)
{
	struct fc_entry two[2] = { FC_ENTRY_INIT, FC_ENTRY_INIT };
	int ran = 0;

	CHECK(or_returns(&ran) == 5 && ran == 1);
	CHECK(or_ends(&ran) == 3 && ran == 2);
	CHECK(inside(login) == 0 && stats_of(login).ok == 4);
	CHECK_CALL(fill(two));
	CHECK(or_returns(&ran) == -EBUSY && or_ends(&ran) == -EBUSY && ran == 2);
	fc_exit(&two[0]);
	fc_exit(&two[1]);
	return 0;
}

static int guard_call_gives_the_value_or_the_refusal(void)
{
	struct fc_entry two[2] = { FC_ENTRY_INIT, FC_ENTRY_INIT };
	const char *text;

	CHECK(FC_GUARD_CALL(login, -EBUSY, is_inside(3)) == 3);
	CHECK_CALL(left_once(login));
	text = FC_GUARD_CALL("user.login", "refused", inside(login) == 1 ? "inside" : "outside");
	CHECK(strcmp(text, "inside") == 0);
	CHECK_CALL(fill(two));
	CHECK(FC_GUARD_CALL(login, -EBUSY, is_inside(3)) == -EBUSY);
	CHECK(FC_GUARD_CALL("user.login", -EBUSY, is_inside(3)) == -EBUSY);
	fc_exit(&two[0]);
	fc_exit(&two[1]);
	return 0;
}

static int add_impl(int a, int b)
{
	return is_inside(a + b);
}

static FC_GUARDED_FUNCTION(int, add, (int a, int b), add_impl(a, b), "user.login", -EBUSY)

static int a_guarded_function_guards_all_its_callers(void)
{
	struct fc_entry two[2] = { FC_ENTRY_INIT, FC_ENTRY_INIT };

	CHECK(add(2, 3) == 5);
	CHECK_CALL(left_once(login));
	CHECK(add(20, 30) == 50);
	CHECK_CALL(fill(two));
	CHECK(add(2, 3) == -EBUSY);
	fc_exit(&two[0]);
	fc_exit(&two[1]);
	return 0;
}

static int a_guard_without_a_handle_runs_the_refused_branch(void)
{
	struct fc_iface *none = NULL;
	struct fc_decision d;
	int verdict = 0, rc = 0;

	fc_opts_init(&d);
	FC_GUARD(e, none) {
		verdict = 1;
	} else {
		verdict = fc_entry_verdict(&e);
		rc = fc_entry_decision(&e, &d);
	}
	CHECK(verdict == -EINVAL);
	CHECK(rc == 0 && d.status == -EINVAL && fc_decision_http_status(&d) == 500);
	return 0;
}

static int a_guard_passes_its_context_on(void)
{
	struct fc_in_flight one;
	struct fc_ctx ctx;
	int n = 0;

	fc_opts_init(&ctx);
	fc_opts_init(&one);
	ctx.request_id = 4711;
	ctx.weight = 2;
	FC_GUARD(e, login, &ctx) {
		n = fc_in_flight(login, &one, 1);
	}
	CHECK(n == 1 && one.request_id == 4711 && one.weight == 2);
	one.request_id = 0;
	FC_GUARD(e, "user.login", &ctx) {
		n = fc_in_flight(login, &one, 1);
	}
	CHECK(n == 1 && one.request_id == 4711);
	return 0;
}

/* ---- names ------------------------------------------------------------------------------------- */

static uint64_t admitted(struct fc *fc, const char *name)
{
	struct fc_iface *f = fc_iface_find(fc, name);

	return f ? stats_of(f).admitted : 0;
}

static int a_name_buffer_is_looked_up_at_each_call(void)
{
	char array[16] = "first";
	char *pointer = array;
	const char *constant = array;

	for (int i = 0; i < 4; i++) {
		snprintf(array, sizeof(array), "%s", i % 2 ? "second" : "first");
		FC_GUARD(e, array) {
		}
		FC_GUARD(e, pointer) {
		}
		FC_GUARD(e, constant) {
		}
	}
	CHECK(admitted(context, "first") == 6 && admitted(context, "second") == 6);
	return 0;
}

static inline __attribute__((__always_inline__)) void guarded_as(const char *name)
{
	FC_GUARD(e, name) {
	}
}

static int an_inlined_wrapper_given_literals_keeps_them_apart(void)
{
	for (int i = 0; i < 2; i++) {
		guarded_as("inlined.first");
		guarded_as("inlined.second");
	}
	CHECK(admitted(context, "inlined.first") == 2 && admitted(context, "inlined.second") == 2);
	return 0;
}

static void by_literal(void)
{
	FC_GUARD(e, "cached.literal") {
	}
}

static void by_function(void)
{
	FC_GUARD_FN(e) {
	}
}

static int the_cache_of_a_call_site_notices_a_new_default_context(void)
{
	struct fc *first = context, *second;

	for (int round = 0; round < 3; round++) {
		by_literal();
		by_literal();
		by_function();
		second = new_context();
		CHECK(second && fc_default_set(second) == -EBUSY);
		CHECK(fc_default_set(NULL) == 0 && fc_default_set(second) == 0);
		by_literal();
		by_function();
		CHECK(admitted(second, "cached.literal") == 1);
		CHECK(admitted(second, "guard_cases.by_function") == 1);
		CHECK(admitted(first, "cached.literal") == 2u + 2u * (unsigned)round);
		/* The next one may lie at the same address. */
		fc_default_set(NULL);
		fc_destroy(second);
		CHECK(fc_default_set(first) == 0);
	}
	CHECK(admitted(first, "guard_cases.by_function") == 3);
	return 0;
}

static int two_contexts_do_not_collide(void)
{
	struct fc *mine = new_context();
	struct fc_entry a = FC_ENTRY_INIT, b = FC_ENTRY_INIT, c = FC_ENTRY_INIT;
	struct fc_iface *f;

	CHECK(mine);
	f = new_iface(mine, "user.login", 1);
	CHECK(f && f != login && fc_iface_context(f) == mine && fc_iface_context(login) == context);
	CHECK(fc_enter(&a, f, NULL) == 0 && fc_enter(&b, f, NULL) == FC_REFUSED_CAP);
	CHECK(inside(login) == 0);
	CHECK(fc_enter(&b, login, NULL) == 0 && fc_enter(&c, login, NULL) == 0);
	fc_drain(mine, 0);
	fc_off_set(context, 1);
	CHECK(!fc_off_get(mine));
	fc_off_set(context, 0);
	fc_exit(&a);
	CHECK(inside(f) == 0 && inside(login) == 2);
	CHECK(fc_enter(&a, f, NULL) == FC_REFUSED_DRAINING);
	fc_destroy(mine);
	fc_exit(&b);
	fc_exit(&c);
	CHECK(stats_of(login).ok == 2);
	return 0;
}

/* A call site that is used with handles of two contexts in turn names itself in both. */
static int a_call_site_is_known_in_each_context(void)
{
	struct fc *second = new_context();
	struct fc_iface *both[2];
	struct fc_in_flight one;

	CHECK(second);
	both[0] = login;
	both[1] = new_iface(second, "user.login", 1);
	fc_opts_init(&one);
	for (int i = 0; i < 4; i++) {
		unsigned line = 0;

		FC_GUARD(e, both[i % 2]) { line = __LINE__; fc_in_flight(both[i % 2], &one, 1); }
		CHECK(one.line == line && strstr(one.file, "guard_cases.h") && strcmp(one.func, __func__) == 0);
	}
	fc_destroy(second);
	return 0;
}

static int a_function_guard_is_named_by_file_and_function(void)
{
	FC_GUARD_FN(e) {
		CHECK(admitted(context, "guard_cases.a_function_guard_is_named_by_file_and_function") == 1);
	}
	return 0;
}

#undef FC_MODULE
#define FC_MODULE "module"
static int a_function_guard_is_named_by_the_module_that_the_file_defines(void)
{
	FC_GUARD_FN(e) {
		CHECK(admitted(context, "module.a_function_guard_is_named_by_the_module_that_the_file_defines") == 1);
	}
	return 0;
}

/* 126 bytes and a letter of two, so that the cut falls between these. */
#undef FC_MODULE
#define FC_MODULE                                                                                  \
	"0123456789012345678901234567890123456789012345678901234567890123456789"                   \
	"01234567890123456789012345678901234567890123456789012345\xc3\xa4"
static int a_function_name_that_is_cut_is_still_a_name(void)
{
	struct fc_totals before, after;
	uint64_t untracked = 1;

	fc_opts_init(&before);
	fc_opts_init(&after);
	CHECK(fc_totals(context, &before) == 0);
	FC_GUARD_FN(e) {
		untracked = 0;
	}
	CHECK(fc_totals(context, &after) == 0);
	CHECK(untracked == 0 && after.faults == before.faults && after.ifaces == before.ifaces + 1);
	CHECK(strlen(fc_iface_name(fc_iface_at(context, after.ifaces - 1))) == 126);
	return 0;
}
#undef FC_MODULE
#define FC_MODULE ((const char *)0)

/* ---- jumps: the place is held until proof or the end of the thread ------------------------------ */

static NOINLINE void visit(struct fc_iface *f, jmp_buf *out)
{
	FC_GUARD(e, f) {
		if (out)
			longjmp(*out, 1);
	}
}

static NOINLINE void jump_out_of(struct fc_iface *f)
{
	jmp_buf out;

	if (setjmp(out) == 0)
		visit(f, &out);
}

/* A full interface, and time for a look at who is inside. */
static int try_again(struct fc_iface *f)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int rc;

	fc_clock_advance(context, FC_MS(20));
	rc = fc_enter(&e, f, NULL);
	fc_exit(&e);
	return rc;
}

static int a_place_left_by_longjmp_is_held_and_shown(void)
{
	struct fc_entry held = FC_ENTRY_INIT;
	struct fc_in_flight two[2];

	fc_opts_init(&two[0]);
	CHECK(fc_enter(&held, login, NULL) == 0);
	fc_clock_advance(context, 1);
	jump_out_of(login);
	CHECK(fc_in_flight(login, two, 2) == 2);
	CHECK(strstr(two[1].file, "guard_cases.h") && two[1].line != 0 && strcmp(two[1].func, "visit") == 0);
	CHECK(fc_exit_status(&held) == 1);
	/* The end of the context says where. */
	fc_default_set(NULL);
	context = fc_destroy(context);
	CHECK(strstr(log_lines, "guard_cases.h") && strstr(log_lines, "user.login"));
	return begin();
}

static int a_place_left_by_longjmp_comes_back_by_proof(void)
{
	struct fc_entry held = FC_ENTRY_INIT;
	struct fc_stats s;

	CHECK(fc_enter(&held, login, NULL) == 0);
	jump_out_of(login);
	/* The thread stands before a guard, above the scope that it left: that is gone. `held` is not. */
	CHECK(try_again(login) == 0);
	s = stats_of(login);
	CHECK(s.in_flight == 1 && s.purged == 1 && s.abandoned == 1 && s.ok == 1);
	CHECK(fc_exit_status(&held) == 1);
	return 0;
}

static void *jump_and_end(void *arg)
{
	jump_out_of((struct fc_iface *)arg);
	return NULL;
}

/* Run fn in a thread of its own until it has ended. */
static int in_thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	CHECK(pthread_create(&t, NULL, fn, arg) == 0);
	CHECK(pthread_join(t, NULL) == 0);
	return 0;
}

static int a_place_left_by_longjmp_comes_back_at_the_end_of_its_thread(void)
{
	CHECK_CALL(in_thread(jump_and_end, login));
	CHECK_CALL(taken_back_once(login));
	(void)fc_tick(context, 0);
	CHECK(leaked_events == 1);
	return 0;
}

static void *leak_after_foreign_exit(void *arg)
{
	struct fc_entry *e = (struct fc_entry *)arg;

	fc_exit(&e[0]); /* another thread's, moved out */
	fc_exit(&e[1]); /* nothing */
	jump_out_of(login);
	return NULL;
}

static int a_thread_that_exits_for_others_still_gives_back_its_own(void)
{
	struct fc_entry own = FC_ENTRY_INIT, moved[2] = { FC_ENTRY_INIT, FC_ENTRY_INIT };

	CHECK(fc_enter(&own, login, NULL) == 0);
	fc_entry_take(&moved[0], &own);
	CHECK_CALL(in_thread(leak_after_foreign_exit, moved));
	CHECK(inside(login) == 0 && stats_of(login).ok == 1 && stats_of(login).abandoned == 1);
	return 0;
}

/* ---- ends of threads --------------------------------------------------------------------------- */

static int left_at_thread_end(void)
{
	return UNWINDS ? left_once(login) : taken_back_once(login);
}

static NOINLINE void *end_inside(void *arg)
{
	FC_GUARD(e, (struct fc_iface *)arg) {
		pthread_exit(NULL);
	}
	return NULL;
}

static int pthread_exit_gives_the_place_back(void)
{
	CHECK_CALL(in_thread(end_inside, login));
	return left_at_thread_end();
}

static int entered; /* of the thread to be cancelled; accessed by atomics */

static NOINLINE void *wait_inside(void *arg)
{
	FC_GUARD(e, (struct fc_iface *)arg) {
		__atomic_store_n(&entered, 1, __ATOMIC_RELEASE);
		for (;;) {
			pthread_testcancel();
			sched_yield();
		}
	}
	return NULL;
}

__attribute__((__unused__)) static int a_deferred_cancel_gives_the_place_back(void)
{
	pthread_t t;

	__atomic_store_n(&entered, 0, __ATOMIC_RELEASE);
	CHECK(pthread_create(&t, NULL, wait_inside, login) == 0);
	while (!__atomic_load_n(&entered, __ATOMIC_ACQUIRE))
		sched_yield();
	CHECK(pthread_cancel(t) == 0 && pthread_join(t, NULL) == 0);
	return left_at_thread_end();
}

static void *cancelled_between(void *arg)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int *done = (int *)arg, old;

	pthread_cancel(pthread_self());
	/* Neither is a cancellation point. */
	done[0] = fc_enter(&e, login, NULL) == 0;
	done[0] += fc_exit_status(&e);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	return NULL;
}

__attribute__((__unused__)) static int enter_and_exit_are_no_cancellation_points(void)
{
	int done = 0;

	CHECK_CALL(in_thread(cancelled_between, &done));
	CHECK(done == 2);
	return left_once(login);
}

static pthread_key_t late_key;

static void late_guard(void *arg)
{
	visit((struct fc_iface *)arg, NULL);
	jump_out_of((struct fc_iface *)arg);
}

static void *set_late_key(void *arg)
{
	visit(query, NULL); /* the library's own hook comes first */
	pthread_setspecific(late_key, arg);
	return NULL;
}

static int a_guard_in_a_destructor_of_the_thread_leaks_nothing(void)
{
	struct fc_stats s;

	CHECK(pthread_key_create(&late_key, late_guard) == 0);
	CHECK_CALL(in_thread(set_late_key, login));
	pthread_key_delete(late_key);
	s = stats_of(login);
	CHECK(s.admitted == 2 && s.in_flight == 0 && s.ok == 1 && s.abandoned == 1);
	return 0;
}

/* ---- moved out --------------------------------------------------------------------------------- */

static struct fc_entry pending;

static void *enter_and_move(void *arg)
{
	FC_GUARD(e, (struct fc_iface *)arg) {
		fc_entry_take(&pending, &e);
		fc_entry_mark(&e, FC_OUTCOME_TIMEOUT); /* not its entry any more */
	}
	return NULL;
}

static void *finish_pending(void *arg)
{
	fc_entry_mark(&pending, FC_OUTCOME_ERROR);
	*(int *)arg = fc_exit_status(&pending);
	return NULL;
}

static int a_moved_entry_outlives_its_thread_and_exits_on_another(void)
{
	struct fc_in_flight one;
	struct fc_stats s;
	int status = 0;

	fc_opts_init(&one);
	CHECK_CALL(in_thread(enter_and_move, login));
	CHECK(fc_in_flight(login, &one, 1) == 1 && (one.flags & FC_IN_FLIGHT_MOVED));
	/* Nor does a look at a full table take it for a leak. */
	FC_GUARD(e, login) {
		CHECK(try_again(login) == FC_REFUSED_CAP);
	}
	CHECK_CALL(in_thread(finish_pending, &status));
	CHECK(status == 1);
	CHECK(fc_exit_status(&pending) == 0);
	s = stats_of(login);
	CHECK(s.in_flight == 0 && s.error == 1 && s.timeout == 0 && s.late_exits == 0 && s.abandoned == 0);
	return 0;
}

static void *enter_and_keep_in_place(void *iface)
{
	struct fc_entry none = FC_ENTRY_INIT;

	pending = none;
	if (fc_enter(&pending, (struct fc_iface *)iface, NULL) != 0)
		return &pending;
	fc_entry_take(&pending, &pending);
	return NULL;
}

static int an_entry_taken_in_place_survives_its_thread(void)
{
	struct fc_in_flight one;
	int status = 0;

	fc_opts_init(&one);
	CHECK_CALL(in_thread(enter_and_keep_in_place, login));
	CHECK(fc_in_flight(login, &one, 1) == 1 && (one.flags & FC_IN_FLIGHT_MOVED));
	CHECK_CALL(in_thread(finish_pending, &status));
	CHECK(status == 1 && fc_exit_status(&pending) == 0);
	CHECK(stats_of(login).error == 1 && stats_of(login).abandoned == 0);
	return 0;
}

static int a_moved_out_entry_leaves_nothing_behind(void)
{
	struct fc_entry a = FC_ENTRY_INIT, b = FC_ENTRY_INIT, c = FC_ENTRY_INIT;

	fc_entry_take(&b, &a); /* inactive stays inactive */
	CHECK(fc_exit_status(&b) == 0);
	fc_entry_take(NULL, &a);
	fc_entry_take(&a, NULL);
	CHECK(fc_enter(&a, login, NULL) == 0);
	fc_entry_take(&a, &a);
	CHECK(inside(login) == 1);
	fc_entry_take(&b, &a);
	CHECK(fc_exit_status(&a) == 0 && inside(login) == 1);
	fc_entry_take(&c, &b);
	CHECK(fc_exit_status(&b) == 0 && inside(login) == 1);
	CHECK(fc_exit_status(&c) == 1);
	return left_once(login);
}

/* ---- twice ------------------------------------------------------------------------------------- */

static int a_permit_released_twice_counts_once(void) /* resilience4j #263 */
{
	struct fc_entry e = FC_ENTRY_INIT, held = FC_ENTRY_INIT;

	CHECK(fc_enter(&held, login, NULL) == 0);
	CHECK(fc_enter(&e, login, NULL) == 0);
	CHECK(fc_exit_status(&e) == 1);
	CHECK(fc_exit_status(&e) == 0);
	fc_exit(&e);
	CHECK(inside(login) == 1 && stats_of(login).ok == 1 && stats_of(login).late_exits == 0);
	fc_exit(&held);
	return 0;
}

#define TWICE_ROUNDS 3000

struct twice {
	struct fc_entry e;
	unsigned round;   /* that may begin */
	unsigned arrived; /* threads that are done with it */
	int won[2];       /* exits that counted, by thread */
	int odd;          /* exits that said anything unknown */
};

static struct twice twice;

static void exit_when_told(int who)
{
	for (unsigned r = 1; r <= TWICE_ROUNDS; r++) {
		int rc;

		while (__atomic_load_n(&twice.round, __ATOMIC_ACQUIRE) < r)
			sched_yield();
		rc = fc_exit_status(&twice.e);
		twice.won[who] += rc == 1;
		if (rc != 1 && rc != 0 && rc != -ESTALE)
			__atomic_store_n(&twice.odd, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&twice.arrived, 1, __ATOMIC_ACQ_REL);
	}
}

static void *first_exiter(void *arg)
{
	(void)arg;
	exit_when_told(0);
	return NULL;
}

static void *second_exiter(void *arg)
{
	(void)arg;
	exit_when_told(1);
	return NULL;
}

/* kind 0: plain; 1: moved; 2: suspended; 3: heavy */
static int exit_by_two(int kind)
{
	pthread_t a, b;
	struct fc_ctx ctx;
	uint32_t bad = 0;

	fc_opts_init(&ctx);
	ctx.weight = 2;
	memset(&twice, 0, sizeof(twice));
	CHECK(pthread_create(&a, NULL, first_exiter, NULL) == 0);
	CHECK(pthread_create(&b, NULL, second_exiter, NULL) == 0);
	for (unsigned r = 1; r <= TWICE_ROUNDS; r++) {
		struct fc_entry e = FC_ENTRY_INIT;

		bad += fc_enter(&e, login, kind == 3 ? &ctx : NULL) != 0;
		if (kind == 1)
			fc_entry_take(&twice.e, &e);
		else
			memcpy(&twice.e, &e, sizeof(e));
		if (kind == 2)
			bad += fc_entry_suspend(&twice.e) != 0;
		__atomic_store_n(&twice.round, r, __ATOMIC_RELEASE);
		while (__atomic_load_n(&twice.arrived, __ATOMIC_ACQUIRE) < 2 * r)
			sched_yield();
		bad += inside(login) != 0;
	}
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	CHECK(bad == 0 && !twice.odd);
	CHECK(twice.won[0] + twice.won[1] == TWICE_ROUNDS);
	CHECK(stats_of(login).ok == TWICE_ROUNDS && stats_of(login).abandoned == 0);
	return 0;
}

static int two_threads_exiting_one_entry_release_it_once(void)
{
	return exit_by_two(0);
}

static int two_threads_exiting_one_moved_entry_release_it_once(void)
{
	return exit_by_two(1);
}

static int two_threads_exiting_one_suspended_entry_end_it_once(void)
{
	return exit_by_two(2);
}

static int two_threads_exiting_one_heavy_entry_release_it_once(void)
{
	return exit_by_two(3);
}

/* ---- suspended --------------------------------------------------------------------------------- */

static int a_suspended_entry_holds_no_place_until_it_is_resumed(void) /* vector PR #26457 */
{
	struct fc_entry e[3] = { FC_ENTRY_INIT, FC_ENTRY_INIT, FC_ENTRY_INIT };

	CHECK_CALL(fill(e));
	CHECK(fc_entry_suspend(&e[0]) == 0);
	CHECK(inside(login) == 1 && fc_in_flight(login, NULL, 0) == 1);
	CHECK(fc_entry_suspend(&e[0]) == -EINVAL);
	CHECK(fc_enter(&e[2], login, NULL) == 0);
	CHECK(fc_entry_resume(&e[2]) == -EINVAL);
	CHECK(fc_entry_resume(&e[0]) == FC_REFUSED_CAP);
	CHECK(fc_entry_resume(&e[0]) == FC_REFUSED_CAP);
	fc_exit(&e[2]);
	CHECK(fc_entry_resume(&e[0]) == 0 && fc_entry_verdict(&e[0]) == 0 && inside(login) == 2);
	CHECK(fc_exit_status(&e[0]) == 1 && fc_exit_status(&e[0]) == 0);
	CHECK(fc_entry_suspend(&e[1]) == 0);
	fc_entry_mark(&e[1], FC_OUTCOME_ERROR);
	CHECK(fc_exit_status(&e[1]) == 1); /* without being resumed */
	CHECK(fc_entry_resume(&e[1]) == -EINVAL);
	CHECK(fc_entry_suspend(&e[1]) == -EINVAL && fc_entry_suspend(NULL) == -EINVAL && fc_entry_resume(NULL) == -EINVAL);
	CHECK(inside(login) == 0 && stats_of(login).admitted == 3 && stats_of(login).ok == 2 && stats_of(login).error == 1);
	return 0;
}

static void *suspend_and_move(void *arg)
{
	FC_GUARD(e, (struct fc_iface *)arg) {
		if (fc_entry_suspend(&e) == 0)
			fc_entry_take(&pending, &e);
	}
	return NULL;
}

static int a_suspended_entry_is_resumed_on_another_thread(void)
{
	CHECK_CALL(in_thread(suspend_and_move, login));
	CHECK(inside(login) == 0);
	CHECK(fc_entry_resume(&pending) == 0 && inside(login) == 1);
	CHECK(fc_exit_status(&pending) == 1);
	return left_once(login);
}

static void *resume_pending(void *arg)
{
	*(int *)arg = fc_entry_resume(&pending);
	return NULL;
}

static int a_moved_entry_stays_moved_when_it_is_resumed(void)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = -1;

	CHECK(fc_enter(&e, login, NULL) == 0);
	fc_entry_take(&pending, &e);
	CHECK(fc_entry_suspend(&pending) == 0);
	CHECK_CALL(in_thread(resume_pending, &rc));
	CHECK(rc == 0 && inside(login) == 1); /* though that thread has ended */
	CHECK(fc_exit_status(&pending) == 1);
	return left_once(login);
}

/* ---- deadlines --------------------------------------------------------------------------------- */

static int the_deadline_left_can_be_read_until_the_exit(void)
{
	struct fc_entry e = FC_ENTRY_INIT, moved = FC_ENTRY_INIT;
	struct fc_ctx ctx;
	struct fc_decision d;

	fc_opts_init(&ctx);
	fc_opts_init(&d);
	CHECK(fc_entry_deadline_left(&e) == FC_NEVER_NS && fc_entry_deadline_left(NULL) == FC_NEVER_NS);
	ctx.deadline_ns = fc_now_ns(context) + FC_MS(50);
	CHECK(fc_enter(&e, login, &ctx) == 0);
	CHECK(fc_entry_deadline_left(&e) == FC_MS(50));
	fc_clock_advance(context, FC_MS(20));
	CHECK(fc_entry_deadline_left(&e) == FC_MS(30));
	fc_entry_take(&moved, &e);
	CHECK(fc_entry_deadline_left(&e) == FC_NEVER_NS && fc_entry_deadline_left(&moved) == FC_MS(30));
	fc_clock_advance(context, FC_MS(40));
	CHECK(fc_entry_deadline_left(&moved) == 0);
	fc_exit(&moved);
	CHECK(fc_entry_deadline_left(&moved) == FC_NEVER_NS);
	CHECK(fc_enter(&e, login, &ctx) == FC_REFUSED_DEADLINE);
	CHECK(fc_entry_decision(&e, &d) == 0 && strcmp(d.rule, "deadline") == 0);
	CHECK(d.observed == fc_now_ns(context) && d.limit == ctx.deadline_ns);
	return 0;
}

/* ---- fork -------------------------------------------------------------------------------------- */

#ifndef NO_FORK
/* Run fn in a forked child; its line is the child's status. */
static int in_child(int (*fn)(struct fc_entry *of_parent), struct fc_entry *of_parent)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		int line = fn(of_parent);

		if (line)
			fprintf(stderr, "# in the child, line %d: %s\n", line, failed_condition);
		_exit(line != 0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}

static int child_starts_clean(struct fc_entry *of_parent)
{
	struct fc_entry two[2] = { FC_ENTRY_INIT, FC_ENTRY_INIT }, third = FC_ENTRY_INIT;
	struct fc_stats s = stats_of(login);

	/* They are inside in the parent, where they will be counted when they leave. */
	CHECK(s.in_flight == 0 && s.admitted == 0 && s.ok == 0 && s.abandoned == 0);
	CHECK(fc_exit_status(of_parent) == 0 && fc_exit_status(of_parent) == 0);
	CHECK(inside(login) == 0 && stats_of(login).late_exits == 0);
	CHECK_CALL(fill(two));
	CHECK(fc_enter(&third, login, NULL) == FC_REFUSED_CAP);
	CHECK(fc_exit_status(&two[0]) == 1 && fc_exit_status(&two[1]) == 1);
	CHECK(inside(login) == 0);
	CHECK(fc_start(context) == 0 && fc_start(context) == -EALREADY);
	visit(login, NULL);
	fc_stop(context);
	CHECK_CALL(in_thread(jump_and_end, login));
	CHECK(inside(login) == 0);
	CHECK(fc_iface_get(context, "made.in.the.child") != NULL);
	return 0;
}

static int fork_counts_an_open_entry_once_and_the_child_starts_clean(void)
{
	FC_GUARD(e, login) {
		CHECK_CALL(in_child(child_starts_clean, &e));
		CHECK(inside(login) == 1);
	}
	CHECK(!fc_iface_find(context, "made.in.the.child"));
	return left_once(login);
}

static int fork_counts_a_moved_entry_once(void)
{
	struct fc_entry e = FC_ENTRY_INIT;

	CHECK(fc_enter(&e, login, NULL) == 0);
	fc_entry_take(&pending, &e);
	CHECK_CALL(in_child(child_starts_clean, &pending));
	CHECK(inside(login) == 1 && fc_exit_status(&pending) == 1);
	return left_once(login);
}

static int let_go; /* accessed by atomics */

static void *hold_until_let_go(void *arg)
{
	FC_GUARD(e, (struct fc_iface *)arg) {
		__atomic_store_n(&entered, 1, __ATOMIC_RELEASE);
		while (!__atomic_load_n(&let_go, __ATOMIC_ACQUIRE))
			sched_yield();
	}
	return NULL;
}

static int fork_frees_in_the_child_what_other_threads_held(void)
{
	struct fc_entry none = FC_ENTRY_INIT;
	pthread_t t;
	int line;

	SKIP_FORK_OF_THREADS();
	__atomic_store_n(&entered, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&let_go, 0, __ATOMIC_RELEASE);
	CHECK(pthread_create(&t, NULL, hold_until_let_go, login) == 0);
	while (!__atomic_load_n(&entered, __ATOMIC_ACQUIRE))
		sched_yield();
	line = in_child(child_starts_clean, &none);
	__atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	CHECK_CALL(line);
	return left_once(login);
}

static int grandchild(struct fc_entry *of_parent)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int line;

	CHECK(fc_exit_status(of_parent) == 0);
	CHECK(fc_enter(&e, login, NULL) == 0);
	line = in_child(child_starts_clean, &e);
	CHECK(line == 0 && inside(login) == 1 && fc_exit_status(&e) == 1);
	return 0;
}

static int a_child_may_fork_again(void)
{
	struct fc_entry e = FC_ENTRY_INIT;

	CHECK(fc_enter(&e, login, NULL) == 0);
	CHECK_CALL(in_child(grandchild, &e));
	CHECK(inside(login) == 1 && fc_exit_status(&e) == 1);
	return 0;
}

#ifdef __GLIBC__
/* The forking thread drops its copy, leaks a place of its own, and ends. (musl 1.2.3 never ends a process
 * whose forked thread ends before the others.) */
static pthread_t forker;

static void *check_after_forker(void *arg)
{
	uint32_t left;

	(void)arg;
	pthread_join(forker, NULL);
	left = inside(login);
	if (left)
		fprintf(stderr, "# in the child: %u left inside\n", left);
	_exit(left != 0);
}

static int leak_in_the_child(struct fc_entry *of_parent)
{
	pthread_t checker;

	fc_exit(of_parent);
	jump_out_of(login);
	forker = pthread_self();
	CHECK(pthread_create(&checker, NULL, check_after_forker, NULL) == 0);
	pthread_exit(NULL);
}

static int a_thread_of_the_child_gives_back_its_own_places_only(void)
{
	FC_GUARD(e, login) {
		CHECK_CALL(in_child(leak_in_the_child, &e));
	}
	return left_once(login);
}
#endif

/* Threads make contexts and names while others fork: no child may find a lock that nobody opens. */
static void *make_names(void *arg)
{
	char name[32];

	(void)arg;
	for (unsigned i = 0; !__atomic_load_n(&let_go, __ATOMIC_ACQUIRE); i++) {
		struct fc *fc = new_context();

		snprintf(name, sizeof(name), "name.%u", i % 8);
		(void)fc_iface_get(fc, name);
		fc_destroy(fc);
	}
	return NULL;
}

static void *look_for_interceptors(void *arg)
{
	while (!__atomic_load_n(&let_go, __ATOMIC_ACQUIRE))
		(void)fc_interceptor_find("no such");
	return arg;
}

static int child_makes_names(struct fc_entry *of_parent)
{
	struct fc *fc;

	(void)of_parent;
	alarm(20);
	CHECK(fc_interceptor_find("cap") == &fc_interceptor_cap);
	fc = new_context();
	CHECK(fc && fc_iface_get(fc, "made.in.the.child") && fc_iface_find(fc, "made.in.the.child"));
	fc_destroy(fc);
	CHECK(new_iface(context, "made.in.the.child", 1));
	return 0;
}

#ifdef __SANITIZE_ADDRESS__
__attribute__((__unused__))
#endif
static int fork_beside_set_up_leaves_no_lock_closed(void)
{
	pthread_t t[2];
	int line = 0;

	SKIP_FORK_OF_THREADS();
	__atomic_store_n(&let_go, 0, __ATOMIC_RELEASE);
	CHECK(pthread_create(&t[0], NULL, make_names, NULL) == 0);
	CHECK(pthread_create(&t[1], NULL, look_for_interceptors, NULL) == 0);
	for (int i = 0; i < 50 && !line; i++)
		line = in_child(child_makes_names, NULL);
	__atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	return line;
}
#endif /* NO_FORK */

#define CASE(name_) { #name_, name_ }
static const struct guard_case guard_cases[] = {
	CASE(the_end_of_the_block_exits_once),
	CASE(return_evaluates_its_value_before_the_exit),
	CASE(return_from_function_scope_evaluates_its_value_before_the_exit),
	CASE(goto_out_exits_once),
	CASE(break_ends_the_guarded_block_alone),
	CASE(continue_ends_the_guarded_block_alone),
	CASE(break_and_continue_at_function_scope_keep_their_meaning),
	CASE(a_switch_inside_the_block_keeps_its_break),
	CASE(nested_guards_both_exit_once),
	CASE(a_nested_guard_of_the_same_interface_takes_a_second_place),
	CASE(two_guards_on_lines_of_one_function_do_not_meet),
	CASE(guards_on_one_line_exit_each_once),
	CASE(a_refused_guard_tells_why_and_needs_no_exit),
	CASE(guard_or_runs_the_block_or_its_statement),
	CASE(guard_call_gives_the_value_or_the_refusal),
	CASE(a_guarded_function_guards_all_its_callers),
	CASE(a_guard_without_a_handle_runs_the_refused_branch),
	CASE(a_guard_passes_its_context_on),
	CASE(a_name_buffer_is_looked_up_at_each_call),
	CASE(an_inlined_wrapper_given_literals_keeps_them_apart),
	CASE(the_cache_of_a_call_site_notices_a_new_default_context),
	CASE(two_contexts_do_not_collide),
	CASE(a_call_site_is_known_in_each_context),
	CASE(a_function_guard_is_named_by_file_and_function),
	CASE(a_function_guard_is_named_by_the_module_that_the_file_defines),
	CASE(a_function_name_that_is_cut_is_still_a_name),
	CASE(a_place_left_by_longjmp_is_held_and_shown),
	CASE(a_place_left_by_longjmp_comes_back_by_proof),
	CASE(a_place_left_by_longjmp_comes_back_at_the_end_of_its_thread),
	CASE(a_thread_that_exits_for_others_still_gives_back_its_own),
	CASE(pthread_exit_gives_the_place_back),
#if !defined(__SANITIZE_ADDRESS__) || defined(__cplusplus)
	/* Without unwind tables ASan's marks of the frames that a cancel leaves stay behind. */
	CASE(a_deferred_cancel_gives_the_place_back),
	CASE(enter_and_exit_are_no_cancellation_points),
#endif
	CASE(a_guard_in_a_destructor_of_the_thread_leaks_nothing),
	CASE(a_moved_entry_outlives_its_thread_and_exits_on_another),
	CASE(an_entry_taken_in_place_survives_its_thread),
	CASE(a_moved_out_entry_leaves_nothing_behind),
	CASE(a_permit_released_twice_counts_once),
	CASE(two_threads_exiting_one_entry_release_it_once),
	CASE(two_threads_exiting_one_moved_entry_release_it_once),
	CASE(two_threads_exiting_one_suspended_entry_end_it_once),
	CASE(two_threads_exiting_one_heavy_entry_release_it_once),
	CASE(a_suspended_entry_holds_no_place_until_it_is_resumed),
	CASE(a_suspended_entry_is_resumed_on_another_thread),
	CASE(a_moved_entry_stays_moved_when_it_is_resumed),
	CASE(the_deadline_left_can_be_read_until_the_exit),
#ifndef NO_FORK
	CASE(fork_counts_an_open_entry_once_and_the_child_starts_clean),
	CASE(fork_counts_a_moved_entry_once),
	CASE(fork_frees_in_the_child_what_other_threads_held),
	CASE(a_child_may_fork_again),
#ifdef __GLIBC__
	CASE(a_thread_of_the_child_gives_back_its_own_places_only),
#endif
#ifndef __SANITIZE_ADDRESS__ /* whose allocator may be locked in the child of many threads */
	CASE(fork_beside_set_up_leaves_no_lock_closed),
#endif
#endif
};
#define N_GUARD_CASES (sizeof(guard_cases) / sizeof(guard_cases[0]))

#endif /* FC_TESTS_GUARD_CASES_H */
