/* SPDX-License-Identifier: BSD-2-Clause */
/* guard_cases_cxx.h - what C++ alone can do: exceptions, and fc::entry. Form as in guard_cases.h. */
#ifndef FC_TESTS_GUARD_CASES_CXX_H
#define FC_TESTS_GUARD_CASES_CXX_H

#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <fcguard/fcguard.hpp>

#include "guard_cases.h"

static void throws_from_block()
{
	FC_GUARD(e, login) {
		if (is_inside(1) == 1)
			throw std::runtime_error("inside");
	}
}

static void throws_from_scope()
{
	struct fc_entry e FC_AUTO_EXIT = FC_ENTRY_INIT;

	if (fc_enter(&e, login, nullptr) == 0)
		throw std::runtime_error("inside");
}

static int throws(int value)
{
	if (value)
		throw std::runtime_error("inside");
	return value;
}

static int an_exception_exits_once()
{
	int caught = 0;

	try {
		throws_from_block();
	} catch (const std::runtime_error &) {
		caught = inside(login) == 0;
	}
	CHECK(caught == 1);
	CHECK_CALL(left_once(login));
	try {
		throws_from_scope();
	} catch (const std::runtime_error &) {
		caught += inside(login) == 0;
	}
	try {
		caught += FC_GUARD_CALL("user.login", -1, throws(1));
	} catch (const std::runtime_error &) {
		caught += inside(login) == 0;
	}
	CHECK(caught == 3 && stats_of(login).ok == 3);
	return 0;
}

static int an_exception_caught_inside_does_not_leave()
{
	int seen = 0;

	FC_GUARD(e, login) {
		try {
			(void)throws(1);
		} catch (const std::runtime_error &) {
			seen = is_inside(1);
		}
		seen += is_inside(1);
	}
	CHECK(seen == 2);
	return left_once(login);
}

template <typename T> static int guarded_with(T what)
{
	FC_GUARD(e, what) {
		return is_inside(1);
	}
	return 0;
}

static int a_guard_in_a_template_takes_handles_and_names()
{
	CHECK(guarded_with(login) == 1 && guarded_with("user.login") == 1);
	CHECK(([] { FC_GUARD(e, login) { return is_inside(1); } return 0; })() == 1);
	CHECK(stats_of(login).ok == 3);
	return 0;
}

static int an_object_enters_and_leaves_with_its_scope()
{
	{
		fc::entry e{login};

		CHECK(e && e.verdict() == 0 && is_inside(1) == 1);
		CHECK(e.decision().status == 0);
	}
	CHECK_CALL(left_once(login));
	{
		fc::entry e{"user.login"};

		CHECK(e && is_inside(1) == 1);
		e.exit();
		CHECK(!e && inside(login) == 0);
		e.exit();
	}
	CHECK(stats_of(login).ok == 2 && stats_of(login).unmarked == 2);
	return 0;
}

static int a_refused_object_tells_why()
{
	fc::entry a{login}, b{login}, c{login};

	CHECK(a && b && !c);
	CHECK(c.verdict() == FC_REFUSED_CAP);
	CHECK(c.decision().status == FC_REFUSED_CAP && c.decision().limit == 2);
	CHECK(strcmp(c.decision().rule, "cap") == 0);
	c.mark(FC_OUTCOME_ERROR);
	c.exit();
	CHECK(inside(login) == 2);
	return 0;
}

static int an_object_takes_a_context()
{
	struct fc_ctx ctx;

	fc_opts_init(&ctx);
	ctx.weight = 2;
	ctx.deadline_ns = fc_now_ns(context) + FC_MS(5);
	fc::entry e{login, &ctx};
	CHECK(e && inside(login) == 2 && fc_entry_deadline_left(e.get()) == FC_MS(5));
	e.exit();
	FC_ENTRY(named, "user.login", &ctx);
	CHECK(named && inside(login) == 2);
	return 0;
}

static int a_macro_made_object_shows_its_place()
{
	struct fc_in_flight one;
	unsigned line;

	fc_opts_init(&one);
	FC_ENTRY(e, login); line = __LINE__;
	CHECK(e && fc_in_flight(login, &one, 1) == 1);
	CHECK(one.line == line && strstr(one.file, "guard_cases_cxx.h") && strcmp(one.func, __func__) == 0);
	return 0;
}

static void object_by_literal()
{
	FC_ENTRY(e, "cached.object");
}

static int a_macro_made_object_notices_a_new_default_context()
{
	struct fc *second = new_context();

	CHECK(second);
	object_by_literal();
	fc_default_set(nullptr);
	CHECK(fc_default_set(second) == 0);
	object_by_literal();
	object_by_literal();
	CHECK(admitted(second, "cached.object") == 2 && admitted(context, "cached.object") == 1);
	fc_default_set(nullptr);
	fc_destroy(second);
	CHECK(fc_default_set(context) == 0);
	return 0;
}

static int a_macro_made_object_reads_a_buffer_each_time()
{
	char name[16];

	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "%s", i % 2 ? "second" : "first");
		FC_ENTRY(e, name);
		CHECK(e);
	}
	CHECK(admitted(context, "first") == 2 && admitted(context, "second") == 2);
	return 0;
}

static void object_throws(int mark)
{
	fc::entry e{login};

	if (mark >= 0)
		e.mark(mark);
	throw std::runtime_error("inside");
}

static int an_exception_marks_an_error_unless_the_program_has_marked()
{
	const int marks[] = { -1, FC_OUTCOME_TIMEOUT, FC_OUTCOME_OK, FC_OUTCOME_IGNORED };
	struct fc_stats s;

	for (int mark : marks) {
		try {
			object_throws(mark);
		} catch (const std::runtime_error &) {
		}
	}
	s = stats_of(login);
	CHECK(s.error == 1 && s.timeout == 1 && s.ok == 1 && s.ignored == 1 && s.unmarked == 0);
	return 0;
}

struct guards_while_unwinding {
	~guards_while_unwinding()
	{
		fc::entry e{query};
	}
};

static int an_object_made_and_left_while_an_exception_passes_is_no_error()
{
	try {
		guards_while_unwinding g;
		throw std::runtime_error("outside");
	} catch (const std::runtime_error &) {
	}
	CHECK(stats_of(query).ok == 1 && stats_of(query).error == 0);
	return 0;
}

static int an_exception_caught_before_the_end_of_the_scope_is_no_error()
{
	{
		fc::entry e{login};

		try {
			(void)throws(1);
		} catch (const std::runtime_error &) {
		}
	}
	return left_once(login);
}

static int a_moved_object_leaves_once()
{
	fc::entry outer;

	CHECK(!outer && outer.verdict() == 0);
	{
		fc::entry inner{login};

		inner.mark(FC_OUTCOME_ERROR);
		outer = std::move(inner);
		CHECK(!inner && outer);
	}
	CHECK(inside(login) == 1);
	fc::entry last{std::move(outer)};
	CHECK(!outer && last && inside(login) == 1);
	last = fc::entry{query}; /* leaves the first */
	CHECK(inside(login) == 0 && inside(query) == 1 && stats_of(login).error == 1);
	fc::entry &self = last;
	last = std::move(self);
	CHECK(last && inside(query) == 1);
	return 0;
}

static int a_moved_object_leaves_on_another_thread()
{
	std::unique_ptr<fc::entry> moved;

	std::thread([&moved] {
		fc::entry e{login};
		moved.reset(new fc::entry{std::move(e)});
	}).join();
	CHECK(*moved && inside(login) == 1);
	std::thread([&moved] { moved.reset(); }).join();
	return left_once(login);
}

static int objects_live_in_containers()
{
	std::vector<fc::entry> v;

	for (int i = 0; i < 3; i++)
		v.emplace_back(login);
	CHECK(v[0] && v[1] && !v[2] && inside(login) == 2);
	v.erase(v.begin());
	CHECK(inside(login) == 1);
	v.clear();
	CHECK(stats_of(login).ok == 2);
	return 0;
}

static void *object_ends_inside(void *arg)
{
	fc::entry e{static_cast<struct fc_iface *>(arg)};

	pthread_exit(nullptr);
}

static int a_thread_that_ends_inside_an_object_is_no_error()
{
	struct fc_stats s;

	CHECK_CALL(in_thread(object_ends_inside, login));
	s = stats_of(login);
	CHECK(s.in_flight == 0 && s.error == 0 && s.ok + s.abandoned == 1);
	return UNWINDS ? left_once(login) : taken_back_once(login);
}

static const struct guard_case guard_cases_cxx[] = {
	CASE(an_exception_exits_once),
	CASE(an_exception_caught_inside_does_not_leave),
	CASE(a_guard_in_a_template_takes_handles_and_names),
	CASE(an_object_enters_and_leaves_with_its_scope),
	CASE(a_refused_object_tells_why),
	CASE(an_object_takes_a_context),
	CASE(a_macro_made_object_shows_its_place),
	CASE(a_macro_made_object_notices_a_new_default_context),
	CASE(a_macro_made_object_reads_a_buffer_each_time),
	CASE(an_exception_marks_an_error_unless_the_program_has_marked),
	CASE(an_object_made_and_left_while_an_exception_passes_is_no_error),
	CASE(an_exception_caught_before_the_end_of_the_scope_is_no_error),
	CASE(a_moved_object_leaves_once),
	CASE(a_moved_object_leaves_on_another_thread),
	CASE(objects_live_in_containers),
	CASE(a_thread_that_ends_inside_an_object_is_no_error),
};
#define N_GUARD_CASES_CXX (sizeof(guard_cases_cxx) / sizeof(guard_cases_cxx[0]))

#endif /* FC_TESTS_GUARD_CASES_CXX_H */
