/* SPDX-License-Identifier: BSD-2-Clause */
/* What housekeeping tells and counts, what happens without it, and what the child of a fork has of it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/guarded.h"
#include "support/threads.h"

static struct guarded g;
static char lines[4096]; /* of the log */

static void keep_line(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines), "%s\n", line);
}

static void open_cap(uint32_t cap)
{
	guarded_open(&g, &(struct fc_iface_opts){ .cap = cap, .expand = 1 });
	g.fc->log = keep_line;
	lines[0] = 0;
}

static int teardown(void **state)
{
	(void)state;
	return g.fc ? guarded_close(&g) : 0;
}

static void tick(void)
{
	guarded_pass(&g, FC_MS(300));
	fc_tick(g.fc, FC_S(1));
}

static void refuse_for(unsigned checks)
{
	struct fc_entry held = FC_ENTRY_INIT, e = FC_ENTRY_INIT;

	assert_int_equal(fc_enter(&held, g.f, NULL), 0);
	for (unsigned i = 0; i < checks; i++) {
		guarded_pass(&g, FC_MS(11));
		assert_int_equal(fc_enter(&e, g.f, NULL), FC_REFUSED_CAP);
	}
	fc_exit(&held);
}

static void that_nobody_ticks_is_told_once(void **state)
{
	(void)state;
	open_cap(1);
	refuse_for(50);
	assert_string_equal(lines, "");
	refuse_for(60);
	assert_non_null(strstr(lines, "nobody ticks: call fc_tick() or fc_start()"));
	lines[0] = 0;
	refuse_for(300);
	assert_string_equal(lines, "");
}

static void a_context_that_is_ticked_is_not_told_of_it(void **state)
{
	(void)state;
	open_cap(1);
	for (int i = 0; i < 10; i++) {
		tick();
		refuse_for(40);
	}
	assert_null(strstr(lines, "nobody ticks"));
}

static int refuse_all(struct fc_call *c)
{
	(void)c;
	return FC_REFUSED_CUSTOM;
}

static const struct fc_interceptor refuser = { .size = sizeof(refuser), .order = FC_ORDER_USER, .name = "refuser", .pre = refuse_all };

static void call(unsigned n, int outcome)
{
	for (unsigned i = 0; i < n; i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		if (fc_enter(&e, g.f, NULL) == 0)
			fc_entry_mark(&e, outcome);
		fc_exit(&e);
	}
}

static void a_call_that_was_refused_by_an_interceptor_was_not_available(void **state)
{
	struct fc_rule rule = { .interceptor = &refuser };
	struct fc_stats s;

	(void)state;
	open_cap(8);
	tick();
	assert_int_equal(fc_iface_set_chain(g.f, &rule, 1), 0);
	for (int i = 0; i < 10; i++) {
		call(20, FC_OUTCOME_OK);
		tick();
	}
	s = guarded_stats(&g);
	assert_true(s.admitted == 0 && s.refused[FC_REFUSED_CUSTOM] == 200);
	assert_int_equal(s.availability_5min_ppm, 0);
	/* And of as many that get in half fail. */
	assert_int_equal(fc_iface_set_chain(g.f, NULL, 0), 0);
	for (int i = 0; i < 10; i++) {
		call(10, FC_OUTCOME_OK);
		call(10, FC_OUTCOME_ERROR);
		tick();
	}
	assert_in_range(guarded_stats(&g).availability_5min_ppm, 249000, 251000);
}

static void the_reason_that_is_told_is_the_one_that_has_begun(void **state)
{
	struct fc_rule rule = { .interceptor = &refuser };

	(void)state;
	open_cap(1);
	tick();
	refuse_for(90);
	tick();
	assert_int_equal(guarded_last(&g, FC_EVENT_REFUSING)->a, FC_REFUSED_CAP);
	assert_int_equal(guarded_last(&g, FC_EVENT_REFUSING)->b, 1);
	for (int i = 0; i < 30; i++)
		tick();
	assert_int_equal(guarded_events(&g, FC_EVENT_ADMITTING), 1);
	assert_int_equal(fc_iface_set_chain(g.f, &rule, 1), 0);
	call(3, 0);
	tick();
	tick();
	assert_int_equal(guarded_events(&g, FC_EVENT_REFUSING), 2);
	assert_int_equal(guarded_last(&g, FC_EVENT_REFUSING)->a, FC_REFUSED_CUSTOM);
	assert_true(guarded_last(&g, FC_EVENT_REFUSING)->b == FC_UNLIMITED); /* that has to do with no places */
}

/* ---- doors ------------------------------------------------------------------------------------- */

static atomic_int go;

static void *make_some(void *arg)
{
	struct fc *fc = arg;

	atomic_fetch_add(&go, 1);
	for (int i = 0; i < 12; i++) {
		char name[16];

		snprintf(name, sizeof(name), "new%d", i);
		(void)fc_iface_get(fc, name);
	}
	return NULL;
}

static void an_interface_made_while_doors_are_closed_is_closed(void **state)
{
	(void)state;
	for (int round = 0; round < 200; round++) {
		pthread_t thread;

		open_cap(1);
		atomic_store(&go, 0);
		assert_int_equal(pthread_create(&thread, NULL, make_some, g.fc), 0);
		while (!atomic_load(&go))
			;
		fc_drain(g.fc, 0);
		pthread_join(thread, NULL);
		for (uint32_t i = 0; i < 13; i++) {
			struct fc_entry e = FC_ENTRY_INIT;

			assert_int_equal(fc_enter(&e, fc_iface_at(g.fc, i), NULL), FC_REFUSED_DRAINING);
		}
		assert_int_equal(guarded_close(&g), 0);
		g.fc = NULL;
	}
}

/* What the child says of itself: 0, or a bit for each thing that is not as it should be. */
static int in_child(int (*fn)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(fn());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int open_doors(void)
{
	struct fc_entry a = FC_ENTRY_INIT, b = FC_ENTRY_INIT;
	int bad = (fc_enter(&a, g.f, NULL) != 0) | (fc_enter(&b, fc_iface_get(g.fc, "new"), NULL) != 0) << 1;

	fc_exit(&a);
	fc_exit(&b);
	return bad;
}

static void the_child_of_a_draining_parent_has_open_doors(void **state)
{
	(void)state;
	open_cap(1);
	fc_drain(g.fc, 0);
	assert_int_equal(in_child(open_doors), 0);
}

/* Another thread of the parent was deciding about the limit: here nobody is. */
static int limit_moves(void)
{
	return fc_interceptor_cap.forked == NULL || *(uint32_t *)g.f->cap_state != 0;
}

static void nobody_is_at_work_on_the_limit_in_a_child(void **state)
{
	(void)state;
	open_cap(1);
	*(uint32_t *)g.f->cap_state = 1; /* busy: as if its thread stood there */
	assert_int_equal(in_child(limit_moves), 0);
	*(uint32_t *)g.f->cap_state = 0;
}

int main(void)
{
#define T(f_) cmocka_unit_test_teardown(f_, teardown)
	static const struct CMUnitTest tests[] = {
		T(that_nobody_ticks_is_told_once),
		T(a_context_that_is_ticked_is_not_told_of_it),
		T(a_call_that_was_refused_by_an_interceptor_was_not_available),
		T(the_reason_that_is_told_is_the_one_that_has_begun),
		T(an_interface_made_while_doors_are_closed_is_closed),
		T(the_child_of_a_draining_parent_has_open_doors),
		T(nobody_is_at_work_on_the_limit_in_a_child),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
