/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting by callback: grants, time-outs, cancels, and what happens when they meet. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "async.h"
#include "inflight.h"
#include "limit.h"
#include "support/alloc.h"

#define WAITERS 4
#define TIMEOUT FC_MS(100)

static struct counting_alloc counted;
static struct fc *fc;
static struct fc_iface *f;
static struct fc_entry holder;

/* A call that waits, and what became of it. */
struct call {
	struct fc_entry e;
	int done, verdict, order;
};
static int finished;

static void done(void *arg, struct fc_entry *e, int verdict)
{
	struct call *c = arg;

	c->done += e == &c->e ? 1 : 1000;
	c->verdict = verdict;
	c->order = ++finished;
}

static struct fc_iface *make(const char *name, uint32_t cap, uint32_t wait_max, uint32_t order)
{
	FC_OPTS(fc_iface_opts, o, .cap = cap, .wait_max = wait_max, .wait_timeout_ns = TIMEOUT, .wait_order = order, .expand = 1);
	struct fc_iface *made = NULL;

	assert_int_equal(fc_iface_set(fc, name, &o, &made), 0);
	return made;
}

static int setup(void **state)
{
	struct fc_alloc alloc = counting_alloc_init(&counted);
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .alloc = &alloc);

	(void)state;
	fci_test_point = NULL;
	finished = 0;
	holder = (struct fc_entry)FC_ENTRY_INIT;
	assert_int_equal(fc_create(&fc, &o), 0);
	fc_clock_set(fc, FC_S(1000));
	f = make("f", 1, WAITERS, 0);
	return 0;
}

static struct fc_stats stats(void)
{
	FC_OPTS(fc_stats, s, .cap = 0);

	assert_int_equal(fc_iface_stats(f, &s), 0);
	return s;
}

static int teardown(void **state)
{
	struct fc_stats s = stats();

	(void)state;
	fci_test_point = NULL;
	assert_int_equal(s.in_flight, 0);
	assert_int_equal(s.waiting, 0);
	assert_int_equal(s.admitted, s.ok);
	fc_destroy(fc);
	assert_int_equal(counted.live, 0);
	return 0;
}

static void hold(void)
{
	assert_int_equal(fc_enter(&holder, f, NULL), 0);
}

static int start(struct call *c)
{
	*c = (struct call){ .e = FC_ENTRY_INIT };
	return fc_enter_async(&c->e, f, NULL, done, c);
}

static int readable(void)
{
	struct pollfd p = { .fd = fc_tick_fd(fc), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* What a loop does when the descriptor is readable: it is not, afterwards. */
static void drain_fd(void)
{
	uint64_t n;

	(void)!read(fc_tick_fd(fc), &n, sizeof(n));
}

/* ---- plain ---- */

static void is_admitted_at_once_where_there_is_room(void **state)
{
	struct call c;

	(void)state;
	assert_int_equal(start(&c), 0);
	assert_int_equal(fc_entry_verdict(&c.e), 0);
	assert_int_equal(stats().in_flight, 1);
	assert_int_equal(fc_async_poll(fc), 0);
	fc_exit(&c.e);
	assert_int_equal(c.done, 0);
}

static void without_places_to_wait_it_is_plain_fc_enter(void **state)
{
	struct call c;

	(void)state;
	f = make("none", 1, 0, 0);
	hold();
	assert_int_equal(start(&c), FC_REFUSED_CAP);
	assert_int_equal(stats().refused[FC_REFUSED_CAP], 1);
	assert_null(f->async);
	fc_exit(&holder);
}

static void nonsense_is_refused(void **state)
{
	struct call c = { .e = FC_ENTRY_INIT };
	FC_OPTS(fc_ctx, bad, .priority = 8);

	(void)state;
	assert_int_equal(fc_enter_async(NULL, f, NULL, done, &c), -EINVAL);
	assert_int_equal(fc_enter_async(&c.e, NULL, NULL, done, &c), -EINVAL);
	assert_int_equal(fc_enter_async(&c.e, f, NULL, NULL, &c), -EINVAL);
	assert_int_equal(fc_enter_async(&c.e, f, &bad, done, &c), -EINVAL);
	assert_int_equal(fc_async_poll(NULL), -EINVAL);
	assert_int_equal(fc_enter_cancel(NULL), 0);
	assert_int_equal(fc_enter_cancel(&c.e), 0);
}

static void an_exit_grants_and_a_poll_admits(void **state)
{
	struct call c, other;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	assert_int_equal(fc_entry_verdict(&c.e), FC_PENDING);
	drain_fd();
	assert_int_equal(fc_async_poll(fc), 0);
	assert_false(readable());
	fc_exit(&holder);
	assert_true(readable());
	assert_int_equal(c.done, 0);
	/* The place is the waiter's already: nobody else gets it. */
	assert_int_equal(start(&other), FC_PENDING);
	assert_int_equal(fc_enter_cancel(&other.e), 1);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.done, 1);
	assert_int_equal(c.verdict, 0);
	assert_int_equal(fc_entry_verdict(&c.e), 0);
	assert_int_equal(stats().in_flight, 1);
	assert_int_equal(fc_exit_status(&c.e), 1);
	assert_int_equal(fc_exit_status(&c.e), 0);
	assert_int_equal(fc_async_poll(fc), 0);
	assert_int_equal(stats().admitted, 2);
}

static void a_wait_that_times_out_is_refused_and_leaves_nothing(void **state)
{
	FC_OPTS(fc_decision, d, .status = 0);
	struct call c;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	fc_clock_advance(fc, TIMEOUT - 1);
	assert_int_equal(fc_async_poll(fc), 0);
	assert_int_equal(stats().waiting, 1);
	fc_clock_advance(fc, 1);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.done, 1);
	assert_int_equal(c.verdict, FC_REFUSED_WAIT);
	assert_int_equal(fc_entry_decision(&c.e, &d), 0);
	assert_int_equal(d.status, FC_REFUSED_WAIT);
	assert_int_equal(d.limit, 1);
	assert_string_equal(d.rule, "cap");
	assert_int_equal(fc_exit_status(&c.e), 0);
	assert_int_equal(stats().refused[FC_REFUSED_WAIT], 1);
	assert_int_equal(stats().waited, 1);
	assert_int_equal(stats().wait_timeouts, 1);
	fc_exit(&holder);
	assert_int_equal(start(&c), 0);
	fc_exit(&c.e);
}

static void a_deadline_that_comes_first_is_told_as_such(void **state)
{
	FC_OPTS(fc_ctx, ctx, .deadline_ns = 0);
	struct call c = { .e = FC_ENTRY_INIT };

	(void)state;
	hold();
	ctx.deadline_ns = fc_now_ns(fc) + FC_MS(10);
	assert_int_equal(fc_enter_async(&c.e, f, &ctx, done, &c), FC_PENDING);
	fc_clock_advance(fc, FC_MS(10));
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.verdict, FC_REFUSED_DEADLINE);
	fc_exit(&holder);
}

struct blocked {
	uint64_t deadline_ns;
	int rc;
	struct fc_decision why;
};

static void *wait_in_vain(void *arg)
{
	struct blocked *b = arg;
	FC_OPTS(fc_ctx, ctx, .deadline_ns = b->deadline_ns);
	struct fc_entry e = FC_ENTRY_INIT;

	b->rc = fc_enter(&e, f, &ctx);
	b->why.size = sizeof(b->why);
	(void)fc_entry_decision(&e, &b->why);
	fc_exit(&e);
	return NULL;
}

static void a_blocked_caller_is_told_whether_his_time_or_his_deadline_was_over(void **state)
{
	struct blocked b[] = { { .deadline_ns = 0 }, { .deadline_ns = FC_S(1000) + FC_MS(10) } };
	pthread_t thread[2];

	(void)state;
	hold();
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, wait_in_vain, &b[i]), 0);
	while (stats().waiting != 2)
		usleep(1000);
	fc_clock_advance(fc, FC_MS(10));
	pthread_join(thread[1], NULL);
	assert_int_equal(stats().waiting, 1);
	fc_clock_advance(fc, TIMEOUT);
	pthread_join(thread[0], NULL);
	assert_int_equal(b[0].rc, FC_REFUSED_WAIT);
	assert_int_equal(b[1].rc, FC_REFUSED_DEADLINE);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(b[i].why.status, b[i].rc);
		assert_string_equal(b[i].why.rule, "cap");
		assert_int_equal(stats().refused[b[i].rc], 1);
	}
	assert_int_equal(stats().waited, 2);
	assert_int_equal(stats().wait_timeouts, 2);
	/* Nor does a clock that goes far back hold him for ever. */
	fc_clock_set(fc, FC_S(100000));
	assert_int_equal(pthread_create(&thread[0], NULL, wait_in_vain, &b[0]), 0);
	while (stats().waiting != 1)
		usleep(1000);
	fc_clock_set(fc, FC_S(1000));
	pthread_join(thread[0], NULL);
	assert_int_equal(b[0].rc, FC_REFUSED_WAIT);
	fc_exit(&holder);
}

static void a_clock_that_goes_far_back_ends_the_wait(void **state)
{
	struct call c;

	(void)state;
	fc_clock_set(fc, FC_S(100000));
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	fc_clock_set(fc, FC_S(1000));
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.verdict, FC_REFUSED_WAIT);
	fc_exit(&holder);
}

static void a_higher_limit_lets_those_who_wait_in_at_once(void **state)
{
	struct call c;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	assert_int_equal(fc_iface_set_cap(f, 2), 0);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.verdict, 0);
	fc_exit(&c.e);
	fc_exit(&holder);
}

/* As if a granter had been stopped before it said that somebody waits: housekeeping says it. */
static void a_waiter_that_exits_do_not_know_of_is_found_by_housekeeping(void **state)
{
	struct call c;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	fci_gate_set(f, 0, FCI_GATE_WAITERS);
	fc_exit(&holder);
	assert_int_equal(fc_async_poll(fc), 0);
	(void)fc_tick(fc, 0);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.verdict, 0);
	fc_exit(&c.e);
}

static void only_so_many_wait(void **state)
{
	struct call c[WAITERS + 1];

	(void)state;
	hold();
	for (int i = 0; i < WAITERS; i++)
		assert_int_equal(start(&c[i]), FC_PENDING);
	assert_int_equal(start(&c[WAITERS]), FC_REFUSED_QUEUE);
	assert_int_equal(stats().refused[FC_REFUSED_QUEUE], 1);
	fc_clock_advance(fc, TIMEOUT);
	assert_int_equal(fc_async_poll(fc), WAITERS);
	fc_exit(&holder);
}

/* One place goes round: each call that is admitted leaves, and so the next is granted. */
static void go_round(const int *order)
{
	struct call c[WAITERS];

	finished = 0;
	hold();
	for (int i = 0; i < WAITERS; i++)
		assert_int_equal(start(&c[i]), FC_PENDING);
	fc_exit(&holder);
	for (int i = 0; i < WAITERS; i++) {
		assert_int_equal(fc_async_poll(fc), 1);
		for (int k = 0; k < WAITERS; k++)
			if (c[k].order == i + 1) {
				assert_int_equal(k, order[i]);
				fc_exit(&c[k].e);
			}
	}
	assert_int_equal(finished, WAITERS);
}

static void newest_first_or_oldest_first(void **state)
{
	(void)state;
	go_round((const int[]){ 3, 2, 1, 0 });
	f = make("fifo", 1, WAITERS, FC_WAIT_FIFO);
	go_round((const int[]){ 0, 1, 2, 3 });
}

static void a_callback_may_wait_again(void *arg, struct fc_entry *e, int verdict)
{
	struct call *c = arg;

	done(arg, e, verdict);
	if (c->done < 3) {
		fc_exit(e);
		c->verdict = fc_enter_async(e, f, NULL, a_callback_may_wait_again, c);
	}
}

static void callbacks_may_use_the_library(void **state)
{
	struct call c = { .e = FC_ENTRY_INIT };

	(void)state;
	hold();
	assert_int_equal(fc_enter_async(&c.e, f, NULL, a_callback_may_wait_again, &c), FC_PENDING);
	fc_clock_advance(fc, TIMEOUT);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.verdict, FC_PENDING);
	fc_clock_advance(fc, TIMEOUT);
	assert_int_equal(fc_async_poll(fc), 1);
	fc_exit(&holder);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.done, 3);
	assert_int_equal(c.verdict, 0);
	fc_exit(&c.e);
}

/* ---- cancelling ---- */

static void a_cancelled_wait_never_calls_back(void **state)
{
	struct call c;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	assert_int_equal(fc_enter_cancel(&c.e), 1);
	assert_int_equal(fc_enter_cancel(&c.e), 0);
	assert_int_equal(fc_exit_status(&c.e), 0);
	fc_clock_advance(fc, TIMEOUT);
	assert_int_equal(fc_async_poll(fc), 0);
	assert_int_equal(c.done, 0);
	assert_int_equal(stats().refused[FC_REFUSED_WAIT], 0);
	fc_exit(&holder);
}

static void an_exit_of_a_waiting_entry_cancels(void **state)
{
	struct call c;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	assert_int_equal(fc_exit_status(&c.e), 1);
	fc_exit(&holder);
	assert_int_equal(fc_async_poll(fc), 0);
	assert_int_equal(c.done, 0);
}

static void a_cancel_after_the_callback_is_too_late(void **state)
{
	struct call c;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	fc_exit(&holder);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(fc_enter_cancel(&c.e), 0);
	assert_int_equal(stats().in_flight, 1);
	fc_exit(&c.e);
}

static void a_cancelled_grant_goes_to_the_next(void **state)
{
	struct call a, b;

	(void)state;
	hold();
	assert_int_equal(start(&a), FC_PENDING);
	assert_int_equal(start(&b), FC_PENDING);
	fc_exit(&holder); /* granted to b, the newest */
	assert_int_equal(fc_enter_cancel(&b.e), 1);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(b.done, 0);
	assert_int_equal(a.verdict, 0);
	fc_exit(&a.e);
}

/* ---- where grant, cancel and enter meet ---- */

static const char *at;
static struct call *met;

static void leave_at(const char *name)
{
	if (at && strcmp(name, at) == 0) {
		at = NULL;
		fc_exit(&holder);
		drain_fd(); /* a poll that comes now has nothing to find */
		(void)fc_async_poll(fc);
	}
}

static void leave_late(const char *name)
{
	if (!at || strcmp(name, at) != 0)
		return;
	leave_at(name);
	fc_clock_advance(fc, TIMEOUT);
}

static void leave_twice(const char *name)
{
	if (strcmp(name, "waiting") == 0)
		fc_exit(&holder);
	else if (strcmp(name, "again") == 0)
		fc_exit(&met[0].e);
}

static void cancel_at(const char *name)
{
	if (at && strcmp(name, at) == 0) {
		at = NULL;
		assert_int_equal(fc_enter_cancel(&met->e), 1);
	}
}

static void a_place_freed_before_the_wait_is_known_is_taken_at_once(void **state)
{
	struct call c;

	(void)state;
	hold();
	at = "waiting";
	fci_test_point = leave_at;
	assert_int_equal(start(&c), 0);
	fci_test_point = NULL;
	assert_int_equal(c.done, 0);
	assert_int_equal(stats().in_flight, 1);
	assert_int_equal(stats().waiting, 0);
	fc_exit(&c.e);
}

static void a_place_freed_before_a_blocking_wait_is_known_is_taken_at_once(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	hold();
	at = "waiting";
	fci_test_point = leave_late;
	assert_int_equal(fc_enter(&e, f, NULL), 0);
	fci_test_point = NULL;
	fc_exit(&e);
}

/* One place is free before the wait is known, another is granted while it takes the first. */
static void of_a_place_found_and_one_granted_one_is_given_back(void **state)
{
	struct call c[2];

	(void)state;
	f = make("two", 2, WAITERS, 0);
	hold();
	assert_int_equal(start(&c[0]), 0);
	met = c;
	fci_test_point = leave_twice;
	assert_int_equal(start(&c[1]), 0);
	fci_test_point = NULL;
	assert_int_equal(stats().in_flight, 1);
	hold();
	fc_exit(&holder);
	fc_exit(&c[1].e);
}

static void a_grant_to_nobody_is_given_back(void **state)
{
	struct call c;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	met = &c;
	at = "granting";
	fci_test_point = cancel_at;
	fc_exit(&holder);
	fci_test_point = NULL;
	assert_int_equal(stats().in_flight, 0);
	assert_int_equal(start(&c), 0);
	fc_exit(&c.e);
}

static void a_grant_before_the_callback_is_known_makes_the_loop_poll_again(void **state)
{
	struct call c;

	(void)state;
	hold();
	at = "async";
	fci_test_point = leave_at;
	assert_int_equal(start(&c), FC_PENDING);
	fci_test_point = NULL;
	assert_int_equal(c.done, 0);
	assert_true(readable());
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.verdict, 0);
	fc_exit(&c.e);
}

static void a_grant_in_the_middle_of_a_cancel_is_given_back(void **state)
{
	struct call c;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	at = "async_cancel";
	fci_test_point = leave_at;
	assert_int_equal(fc_enter_cancel(&c.e), 1);
	fci_test_point = NULL;
	assert_null(at);
	assert_int_equal(c.done, 0);
	assert_int_equal(stats().in_flight, 0);
	assert_int_equal(start(&c), 0);
	fc_exit(&c.e);
}

/* The granter is in the middle of handing over when the wait ends, and another begins on its node
 * and is granted too. Each place is one's own. */
static void stop_granter(const char *name)
{
	struct call *c = met;

	if (!at || strcmp(name, at) != 0)
		return;
	at = NULL;
	assert_int_equal(fc_enter_cancel(&c[0].e), 1);
	assert_int_equal(start(&c[1]), FC_PENDING);
	fc_exit(&c[2].e); /* grants the node that is another's now */
}

static void a_slow_granter_spoils_no_other_grant(void **state)
{
	struct call c[3];

	(void)state;
	f = make("two", 2, 1, 0);
	hold();
	assert_int_equal(start(&c[2]), 0);
	assert_int_equal(start(&c[0]), FC_PENDING);
	met = c;
	at = "granting";
	fci_test_point = stop_granter;
	fc_exit(&holder);
	fci_test_point = NULL;
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c[1].done, 1);
	assert_int_equal(c[1].verdict, 0);
	assert_int_equal(stats().in_flight, 1);
	assert_int_equal(fc_exit_status(&c[1].e), 1);
	assert_int_equal(stats().in_flight, 0);
}

/* ---- interceptors and contexts ---- */

static int pre_status, pre_seen, posts;
static uint64_t pre_label, pre_tag;
static const char *pre_text;

static int pre(struct fc_call *c)
{
	pre_seen++;
	pre_label = c->ctx->n_labels == 2 ? c->ctx->labels[1].value : 0;
	pre_text = c->ctx->n_labels == 2 ? c->ctx->labels[1].text : "none";
	pre_tag = c->ctx->request_id;
	return pre_status;
}

static void post(struct fc_call *c)
{
	posts += c->outcome == FC_OUTCOME_OK;
}

static const struct fc_interceptor spy = {
	.size = sizeof(spy), .order = FC_ORDER_USER, .name = "spy", .reason = 1001, .pre = pre, .post = post,
};

static void spy_on(int status)
{
	struct fc_rule rule = { .interceptor = &spy };

	pre_status = status;
	pre_seen = posts = 0;
	assert_int_equal(fc_iface_set_chain(f, &rule, 1), 0);
}

static void what_the_call_said_of_itself_is_kept(void **state)
{
	struct fc_label *labels = test_malloc(2 * sizeof(*labels));
	FC_OPTS(fc_ctx, ctx, .request_id = 4711, .n_labels = 2);
	FC_OPTS(fc_in_flight, one, .line = 0);
	struct call c = { .e = FC_ENTRY_INIT };
	uint64_t want = fc_label("user", "ann").value;

	(void)state;
	spy_on(0);
	hold();
	labels[0] = fc_label("ip", "::1");
	labels[1] = fc_label("user", "ann");
	ctx.labels = labels;
	assert_int_equal(fc_enter_async(&c.e, f, &ctx, done, &c), FC_PENDING);
	memset(labels, 0, 2 * sizeof(*labels));
	test_free(labels);
	fc_exit(&holder);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(pre_seen, 2);
	assert_int_equal(pre_tag, 4711);
	assert_true(pre_label == want);
	assert_null(pre_text); /* it was the caller's, and may be gone */
	assert_int_equal(fc_in_flight(f, &one, 1), 1);
	assert_int_equal(one.request_id, 4711);
	assert_true(one.flags & FC_IN_FLIGHT_MOVED);
	fc_exit(&c.e);
	assert_int_equal(posts, 2);
}

static void an_interceptor_may_refuse_at_the_grant(void **state)
{
	struct call a, b;

	(void)state;
	hold();
	assert_int_equal(start(&a), FC_PENDING);
	spy_on(1001);
	fc_exit(&holder);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(a.verdict, 1001);
	assert_int_equal(fc_entry_verdict(&a.e), 1001);
	assert_int_equal(stats().in_flight, 0);
	assert_int_equal(fc_exit_status(&a.e), 0);
	assert_int_equal(posts, 0);
	spy_on(0);
	assert_int_equal(start(&b), 0);
	fc_exit(&b.e);
	assert_int_equal(posts, 1);
}

static void draining_sends_those_who_wait_away(void **state)
{
	struct call c;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	(void)fc_iface_drain(f, 0);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.verdict, FC_REFUSED_DRAINING);
	fc_iface_undrain(f);
	fc_exit(&holder);
}

static void switching_off_lets_those_who_wait_go_on_unguarded(void **state)
{
	struct call c[2];

	(void)state;
	for (int context = 0; context < 2; context++) {
		hold();
		for (int i = 0; i < 2; i++)
			assert_int_equal(start(&c[i]), FC_PENDING);
		drain_fd();
		if (context)
			fc_off_set(fc, 1);
		else
			assert_int_equal(fc_iface_set_off(f, 1), 0);
		assert_true(readable());
		assert_int_equal(fc_async_poll(fc), 2);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(c[i].done, 1);
			assert_int_equal(c[i].verdict, 0);
			assert_int_equal(fc_exit_status(&c[i].e), 1);
		}
		assert_int_equal(stats().untracked, 2 * (context + 1));
		assert_int_equal(stats().wait_timeouts, 0);
		fc_off_set(fc, 0);
		assert_int_equal(fc_iface_set_off(f, 0), 0);
		fc_exit(&holder);
	}
}

static void a_rule_turned_into_a_dry_run_lets_those_who_wait_in(void **state)
{
	struct call c;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	assert_int_equal(fc_iface_set_dry_run(f, 1), 0);
	fc_clock_advance(fc, TIMEOUT);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.verdict, 0);
	fc_exit(&c.e);
	fc_exit(&holder);
}

/* ---- threads, processes, memory ---- */

static void *poll_once(void *arg)
{
	*(int *)arg = fc_async_poll(fc);
	return NULL;
}

static void the_entry_survives_the_thread_that_polled(void **state)
{
	pthread_t t;
	struct call c;
	int n = 0;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	fc_exit(&holder);
	assert_int_equal(pthread_create(&t, NULL, poll_once, &n), 0);
	pthread_join(t, NULL);
	assert_int_equal(n, 1);
	fc_clock_advance(fc, FC_S(1));
	fc_tick(fc, FC_S(1));
	assert_int_equal(stats().in_flight, 1);
	assert_int_equal(fc_exit_status(&c.e), 1);
}

static void the_child_of_a_fork_waits_for_nothing(void **state)
{
	struct call c;
	int status = 0;
	pid_t pid;

	(void)state;
	hold();
	assert_int_equal(start(&c), FC_PENDING);
	pid = fork();
	if (pid == 0) {
		int bad = fc_enter_cancel(&c.e) != 0 || fc_exit_status(&c.e) != 0 || fc_async_poll(fc) != 0;
		struct call own[2];

		bad |= start(&own[0]) != 0 || start(&own[1]) != FC_PENDING;
		fc_exit(&own[0].e);
		bad |= fc_async_poll(fc) != 1 || own[1].verdict != 0 || c.done != 0;
		_exit(bad);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	fc_exit(&holder);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(c.verdict, 0);
	fc_exit(&c.e);
}

static void memory_is_taken_once(void **state)
{
	unsigned long long calls;
	struct call c;

	(void)state;
	assert_int_equal(start(&c), 0);
	fc_exit(&c.e);
	calls = counted.calls;
	for (int i = 0; i < 100; i++) {
		hold();
		assert_int_equal(start(&c), FC_PENDING);
		fc_exit(&holder);
		assert_int_equal(fc_async_poll(fc), 1);
		fc_exit(&c.e);
	}
	assert_int_equal(counted.calls, calls);
}

static void without_memory_on_fault_decides(void **state)
{
	struct call c;

	(void)state;
	hold();
	counted.fail_at = counted.calls + 1;
	assert_int_equal(start(&c), 0);
	assert_int_equal(stats().untracked, 1);
	fc_exit(&c.e);
	assert_int_equal(start(&c), FC_PENDING);
	assert_int_equal(fc_enter_cancel(&c.e), 1);
	fc_exit(&holder);
}

static void housekeeping_knows_the_next_time_out(void **state)
{
	struct call a, b;
	uint64_t now = fc_now_ns(fc);

	(void)state;
	assert_true(fci_async_next(fc) == FC_NEVER_NS);
	hold();
	assert_int_equal(start(&a), FC_PENDING);
	fc_clock_advance(fc, FC_MS(10));
	assert_int_equal(start(&b), FC_PENDING);
	assert_true(fci_async_next(fc) == now + TIMEOUT);
	assert_true(fc_tick(fc, FC_S(1)) <= now + TIMEOUT);
	assert_int_equal(fc_enter_cancel(&a.e), 1);
	assert_true(fci_async_next(fc) == now + FC_MS(10) + TIMEOUT);
	fc_exit(&holder);
	assert_true(fci_async_next(fc) == now + FC_MS(11)); /* ready: soon, but no storm */
	assert_int_equal(fc_async_poll(fc), 1);
	assert_true(fci_async_next(fc) == FC_NEVER_NS);
	fc_exit(&b.e);
}

static void an_entry_is_not_taken_for_a_wait_that_came_later(void **state)
{
	struct fc_entry copy;
	struct call a, b;

	(void)state;
	f = make("one", 1, 1, 0);
	hold();
	assert_int_equal(start(&a), FC_PENDING);
	copy = a.e;
	assert_int_equal(fc_enter_cancel(&a.e), 1);
	assert_int_equal(start(&b), FC_PENDING); /* on the same node */
	assert_int_equal(fc_enter_cancel(&copy), 0);
	fc_exit(&holder);
	assert_int_equal(fc_async_poll(fc), 1);
	assert_int_equal(b.verdict, 0);
	fc_exit(&b.e);
}

#define T(name_) cmocka_unit_test_setup_teardown(name_, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(is_admitted_at_once_where_there_is_room),
		T(without_places_to_wait_it_is_plain_fc_enter),
		T(nonsense_is_refused),
		T(an_exit_grants_and_a_poll_admits),
		T(a_wait_that_times_out_is_refused_and_leaves_nothing),
		T(a_deadline_that_comes_first_is_told_as_such),
		T(a_blocked_caller_is_told_whether_his_time_or_his_deadline_was_over),
		T(a_clock_that_goes_far_back_ends_the_wait),
		T(a_waiter_that_exits_do_not_know_of_is_found_by_housekeeping),
		T(a_higher_limit_lets_those_who_wait_in_at_once),
		T(only_so_many_wait),
		T(newest_first_or_oldest_first),
		T(callbacks_may_use_the_library),
		T(a_cancelled_wait_never_calls_back),
		T(an_exit_of_a_waiting_entry_cancels),
		T(a_cancel_after_the_callback_is_too_late),
		T(a_cancelled_grant_goes_to_the_next),
		T(a_place_freed_before_the_wait_is_known_is_taken_at_once),
		T(a_place_freed_before_a_blocking_wait_is_known_is_taken_at_once),
		T(of_a_place_found_and_one_granted_one_is_given_back),
		T(a_grant_to_nobody_is_given_back),
		T(a_grant_before_the_callback_is_known_makes_the_loop_poll_again),
		T(a_grant_in_the_middle_of_a_cancel_is_given_back),
		T(a_slow_granter_spoils_no_other_grant),
		T(what_the_call_said_of_itself_is_kept),
		T(an_interceptor_may_refuse_at_the_grant),
		T(draining_sends_those_who_wait_away),
		T(switching_off_lets_those_who_wait_go_on_unguarded),
		T(a_rule_turned_into_a_dry_run_lets_those_who_wait_in),
		T(the_entry_survives_the_thread_that_polled),
		T(the_child_of_a_fork_waits_for_nothing),
		T(memory_is_taken_once),
		T(without_memory_on_fault_decides),
		T(housekeeping_knows_the_next_time_out),
		T(an_entry_is_not_taken_for_a_wait_that_came_later),
	};

	return cmocka_run_group_tests_name("async", tests, NULL, NULL);
}
