/* SPDX-License-Identifier: BSD-2-Clause */
/* Interceptors at the edges of an entry's life: refusals, suspended calls, forks, chains that are replaced. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chain.h"
#include "context.h"
#include "support/entries.h"

static struct {
	unsigned pre, undo, post;
	int outcome;
	uint32_t cell;
} seen;

static int probe_pre(struct fc_call *c)
{
	seen.pre++;
	fc_cell_set(c, 0, 0xdead0000u + seen.pre);
	fc_cell_set(c, 1, 0xbeef0000u);
	return 0;
}

static void probe_undo(struct fc_call *c)
{
	(void)c;
	seen.undo++;
}

static void probe_post(struct fc_call *c)
{
	seen.post++;
	seen.outcome = c->outcome;
	seen.cell = fc_cell_get(c, 0);
}

static const struct fc_interceptor probe = {
	.size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER, .name = "probe", .cells = 2,
	.reason = FC_REFUSED_CUSTOM, .pre = probe_pre, .undo = probe_undo, .post = probe_post,
};

static int refuse_pre(struct fc_call *c)
{
	c->observed = 11;
	c->limit = 10;
	c->retry_after_ns = FC_S(2);
	return FC_REFUSED_USER + 1;
}

static const struct fc_interceptor refuser = {
	.size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER + 1, .name = "refuser",
	.reason = FC_REFUSED_CUSTOM, .pre = refuse_pre,
};

static void set_probe(struct fc_iface *f)
{
	static const struct fc_rule rules[] = { { .interceptor = &probe } };

	memset(&seen, 0, sizeof(seen));
	assert_int_equal(fc_iface_set_chain(f, rules, 1), 0);
}

static void a_refusal_by_an_interceptor_leaves_nothing_and_tells_all(void **state)
{
	static const struct fc_rule rules[] = { { .interceptor = &refuser }, { .interceptor = &probe } };
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc_decision d;

	(void)state;
	memset(&seen, 0, sizeof(seen));
	assert_int_equal(fc_iface_set_chain(login, rules, 2), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(fc_enter(&e, login, NULL), FC_REFUSED_USER + 1);
	d = decision(&e);
	assert_string_equal(d.rule, "refuser");
	assert_true(d.observed == 11 && d.limit == 10 && d.retry_after_ns == FC_S(2));
	assert_int_equal(fc_decision_retry_after_s(&d), 2);
	assert_true(seen.pre == 10 && seen.undo == 10 && seen.post == 0);
	assert_int_equal(stats(login).in_flight, 0);
	assert_int_equal(stats(login).admitted, 0);
	assert_int_equal(stats(login).refused[FC_REFUSED_CUSTOM], 10);
}

static void post_runs_once_for_every_way_of_leaving(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT, moved = FC_ENTRY_INIT, copy;

	(void)state;
	set_probe(login);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	copy = e;
	fc_entry_mark(&e, FC_OUTCOME_ERROR);
	fc_exit(&e);
	fc_exit(&e);
	fc_exit(&copy);
	assert_true(seen.post == 1 && seen.outcome == FC_OUTCOME_ERROR && seen.cell == 0xdead0001u);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	fc_entry_take(&moved, &e);
	fc_exit(&moved);
	assert_true(seen.post == 2 && seen.outcome == FC_OUTCOME_OK && seen.cell == 0xdead0002u);
	/* What interceptors took stays taken while the call is suspended. */
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(fc_entry_suspend(&e), 0);
	assert_true(seen.pre == 3 && seen.post == 2 && seen.undo == 0);
	assert_int_equal(fc_entry_resume(&e), 0);
	assert_int_equal(seen.pre, 3);
	fc_exit(&e);
	assert_true(seen.post == 3 && seen.cell == 0xdead0003u);
	/* And is given back by an exit without a resume. */
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(fc_entry_suspend(&e), 0);
	fc_entry_mark(&e, FC_OUTCOME_TIMEOUT);
	fc_exit(&e);
	assert_true(seen.post == 4 && seen.outcome == FC_OUTCOME_TIMEOUT && seen.cell == 0xdead0004u);
	assert_true(seen.pre == 4 && seen.undo == 0);
}

/* The entry keeps the interceptors' cells while it is suspended: no decision may be made of them. */
static void a_refused_resume_has_a_decision_that_can_be_read(void **state)
{
	struct fc_interceptor three[3] = { probe, probe, probe };
	struct fc_rule rules[3] = { { .interceptor = &three[0], .name = "1" }, { .interceptor = &three[1], .name = "2" },
		                    { .interceptor = &three[2], .name = "3" } };
	FC_OPTS(fc_decision, d, .status = 0);
	struct fc_entry e = FC_ENTRY_INIT, full[4] = { FC_ENTRY_INIT };

	(void)state;
	memset(&seen, 0, sizeof(seen));
	assert_int_equal(fc_iface_set_chain(login, rules, 3), 0);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(fc_entry_suspend(&e), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&full[i], login, NULL), 0);
	assert_int_equal(fc_entry_resume(&e), FC_REFUSED_CAP);
	assert_int_equal(fc_entry_verdict(&e), FC_REFUSED_CAP);
	if (fc_entry_decision(&e, &d) == 0) {
		assert_true((uintptr_t)d.rule >> 32 != 0xbeef0000u);
		assert_string_equal(d.rule, "cap");
		assert_int_equal(d.limit, 4);
	} else {
		assert_null(d.rule);
	}
	for (int i = 0; i < 4; i++)
		fc_exit(&full[i]);
	assert_int_equal(fc_entry_resume(&e), 0);
	fc_exit(&e);
	assert_int_equal(seen.post, 15);
	fc = fc_destroy(fc); /* the interceptors lie on this stack */
	assert_int_equal(setup(NULL), 0);
}

static void counters_never_go_back_while_calls_are_suspended(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(stats(login).admitted, 1);
	assert_int_equal(fc_entry_suspend(&e), 0);
	assert_int_equal(stats(login).admitted, 1);
	assert_int_equal(stats(login).ok, 0);
	assert_int_equal(fc_entry_resume(&e), 0);
	assert_int_equal(stats(login).admitted, 1);
	assert_int_equal(fc_entry_suspend(&e), 0);
	fc_exit(&e);
	assert_int_equal(stats(login).admitted, 1);
	assert_int_equal(stats(login).ok, 1);
}

struct counted {
	struct fc_iface *f;
	_Atomic uint64_t begun;
	_Atomic int end;
};

static void *heavy_and_resumed_calls(void *arg)
{
	struct counted *c = arg;
	FC_OPTS(fc_ctx, heavy, .weight = 3);
	struct fc_entry e = FC_ENTRY_INIT;

	for (int i = 0; i < 20000; i++) {
		atomic_fetch_add(&c->begun, 1);
		if (fc_enter(&e, c->f, i % 2 ? &heavy : NULL) != 0)
			continue;
		(void)fc_entry_suspend(&e);
		if (i % 3)
			(void)!fc_entry_resume(&e);
		fc_exit(&e);
	}
	atomic_store(&c->end, 1);
	return NULL;
}

static void no_look_finds_more_calls_than_have_begun(void **state)
{
	static struct counted c;
	uint64_t most = 0, last = 0, left = 0;
	pthread_t thread;

	(void)state;
	c = (struct counted){ .f = login };
	assert_int_equal(pthread_create(&thread, NULL, heavy_and_resumed_calls, &c), 0);
	do {
		struct fc_stats s = stats(login);
		uint64_t done = fc_completed(login), begun = atomic_load(&c.begun);

		most = s.admitted > begun && s.admitted - begun > most ? s.admitted - begun : most;
		left = done > begun && done - begun > left ? done - begun : left;
		assert_true(s.admitted >= last);
		last = s.admitted;
	} while (!atomic_load(&c.end));
	pthread_join(thread, NULL);
	assert_int_equal(most, 0);
	assert_int_equal(left, 0);
	assert_int_equal(stats(login).admitted, 20000);
	assert_int_equal(stats(login).ok, 20000);
}

/* In the child: 0 if the parent's suspended call is nobody's there. */
static int in_the_child(struct fc_entry *e)
{
	FC_OPTS(fc_stats, s, .cap = 0);
	struct fc_entry own = FC_ENTRY_INIT, moved = FC_ENTRY_INIT;
	unsigned post = seen.post;
	int bad = 0;

	bad |= fc_entry_resume(e) != -EINVAL;
	fc_entry_take(&moved, e);
	bad |= (fc_exit_status(&moved) != 0) << 1 | (fc_exit_status(e) != 0) << 1;
	bad |= (seen.post != post) << 2;
	/* Its own calls are as ever. */
	bad |= (fc_enter(&own, login, NULL) != 0 || fc_entry_suspend(&own) != 0 || fc_entry_resume(&own) != 0 ||
	        fc_entry_suspend(&own) != 0 || fc_exit_status(&own) != 1) << 3;
	bad |= (seen.post != post + 1) << 4;
	bad |= (fc_iface_stats(login, &s) != 0 || s.in_flight != 0 || s.admitted != 1 || s.ok != 1) << 5;
	/* The chain has no suspended calls that would keep it for ever. */
	bad |= (atomic_load(&login->parked) != 0) << 6;
	for (const struct fci_chain *c = atomic_load(&login->chain); c; c = atomic_load(&c->older))
		bad |= (atomic_load(&c->parked) != 0) << 6;
	return bad;
}

static void a_suspended_call_is_inactive_in_the_child_of_a_fork(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int status = -1;
	pid_t pid;

	(void)state;
	set_probe(login);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(fc_entry_suspend(&e), 0);
	pid = fork();
	if (pid == 0)
		_exit(in_the_child(&e));
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(fc_entry_resume(&e), 0);
	assert_int_equal(fc_exit_status(&e), 1);
	assert_int_equal(seen.post, 1);
}

/* Test points: what happens between two atomics of an exit. */
static int replacing;

static void replace_chain_after_release(const char *name)
{
	static const struct fc_rule rules[] = { { .interceptor = &probe } };

	if (strcmp(name, "released") != 0 || replacing)
		return;
	replacing = 1;
	for (int i = 0; i < 4; i++)
		(void)fc_iface_set_chain(login, rules, 1);
}

static void post_runs_though_its_chain_is_replaced_behind_the_release(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	set_probe(login);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	replacing = 0;
	fci_test_point = replace_chain_after_release;
	fc_exit(&e);
	fci_test_point = NULL;
	assert_int_equal(replacing, 1);
	assert_int_equal(seen.post, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_refusal_by_an_interceptor_leaves_nothing_and_tells_all),
		T(post_runs_once_for_every_way_of_leaving),
		T(a_refused_resume_has_a_decision_that_can_be_read),
		T(counters_never_go_back_while_calls_are_suspended),
		T(no_look_finds_more_calls_than_have_begun),
		T(a_suspended_call_is_inactive_in_the_child_of_a_fork),
		T(post_runs_though_its_chain_is_replaced_behind_the_release),
	};

	return cmocka_run_group_tests_name("life", tests, NULL, NULL);
}
