/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Callers that wait, blocking and by callback, with time-outs as short as the grants are late, so that
 * grant, time-out and cancel meet as often as can be; many more threads than CPUs; caps of 1 to 8.
 * Never more inside than the cap; at the end no place is lost and every call is accounted for.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "inflight.h"
#include "support/threads.h"

#define THREADS_MAX 64u
#define LOOP_CALLS  12u /* of one event loop at a time */
#define LATE_NS     FC_S(2) /* a machine with two busy CPUs may let a thread wait for its turn */

/* What a worker saw. */
struct seen {
	uint64_t tried, admitted, refused, cancelled, odd;
	uint64_t longest_ns;
};

struct stress {
	struct fc *fc;
	struct fc_iface *f;
	uint32_t cap, wait_us, hold_us;
	atomic_uint_fast64_t end; /* of the stress; begins when the last thread does */
	unsigned threads;
	atomic_uint inside, most, left;
	struct seen seen[THREADS_MAX];
};

static void came(struct stress *s)
{
	unsigned n = atomic_fetch_add(&s->inside, 1) + 1, most = atomic_load(&s->most);

	while (n > most && !atomic_compare_exchange_weak(&s->most, &most, n))
		;
}

static void leave(struct stress *s, struct fc_entry *e, struct seen *seen)
{
	atomic_fetch_sub(&s->inside, 1);
	seen->odd += fc_exit_status(e) != 1;
}

static void work(const struct stress *s, struct rng *rng)
{
	uint64_t until = test_now_ns() + rng_below(rng, s->hold_us * 1000 + 1);

	if (rng_chance(rng, 8))
		sched_yield();
	while (test_now_ns() < until)
		;
}

static int is_refusal(int rc)
{
	return rc == FC_REFUSED_WAIT || rc == FC_REFUSED_QUEUE || rc == FC_REFUSED_DEADLINE;
}

/* ---- a thread that blocks ---- */

static void block(struct stress *s, struct seen *seen, struct rng *rng)
{
	FC_OPTS(fc_ctx, ctx, .weight = 1);

	s->end = stress_end_ns();
	while (test_now_ns() < s->end) {
		struct fc_entry e = FC_ENTRY_INIT;
		uint64_t start = test_now_ns(), took;
		int rc;

		ctx.deadline_ns = rng_chance(rng, 4) ? start + rng_below(rng, s->wait_us * 1000 + 1) + 1 : 0;
		rc = fc_enter(&e, s->f, rng_chance(rng, 2) ? &ctx : NULL);
		took = test_now_ns() - start;
		seen->longest_ns = took > seen->longest_ns ? took : seen->longest_ns;
		seen->tried++;
		if (rc == 0) {
			came(s);
			seen->admitted++;
			work(s, rng);
			leave(s, &e, seen);
		} else {
			seen->refused++;
			seen->odd += !is_refusal(rc);
			if (rc == FC_REFUSED_QUEUE)
				sched_yield();
		}
	}
}

/* ---- a thread that loops, with calls that wait by callback ---- */

enum { IDLE, WAITING, INSIDE };

struct loop_call {
	struct fc_entry e;
	struct stress *s;
	struct seen *seen;
	uint64_t started;
	int state;
};

/* Another loop's poll may run it: the loops share the state of their calls through one lock. */
static pthread_mutex_t loops = PTHREAD_MUTEX_INITIALIZER;

static void ended(struct loop_call *c, int rc)
{
	uint64_t took = test_now_ns() - c->started;

	c->seen->longest_ns = took > c->seen->longest_ns ? took : c->seen->longest_ns;
	c->state = rc == 0 ? INSIDE : IDLE;
	if (rc == 0) {
		came(c->s);
		c->seen->admitted++;
	} else {
		c->seen->refused++;
		c->seen->odd += !is_refusal(rc);
	}
}

static void granted(void *arg, struct fc_entry *e, int rc)
{
	struct loop_call *c = arg;

	c->seen->odd += e != &c->e || c->state != WAITING;
	ended(c, rc);
}

static void step(struct loop_call *c, struct rng *rng)
{
	int rc;

	if (c->state == INSIDE && rng_chance(rng, 2)) {
		leave(c->s, &c->e, c->seen);
		c->state = IDLE;
	} else if (c->state == WAITING && rng_chance(rng, 20)) {
		if (fc_enter_cancel(&c->e) == 1) {
			c->seen->cancelled++;
			c->state = IDLE;
		} else {
			c->seen->odd++; /* nobody polls while we hold the lock */
		}
	} else if (c->state == IDLE) {
		c->started = test_now_ns();
		c->seen->tried++;
		c->state = WAITING;
		rc = fc_enter_async(&c->e, c->s->f, NULL, granted, c);
		if (rc != FC_PENDING)
			ended(c, rc);
	}
}

static void loop(struct stress *s, struct seen *seen, struct rng *rng)
{
	struct loop_call calls[LOOP_CALLS];
	int busy = 1;

	s->end = stress_end_ns();
	memset(calls, 0, sizeof(calls));
	for (unsigned i = 0; i < LOOP_CALLS; i++) {
		calls[i].s = s;
		calls[i].seen = seen;
	}
	while (busy) {
		int over = test_now_ns() >= s->end;

		pthread_mutex_lock(&loops);
		if (!over)
			step(&calls[rng_below(rng, LOOP_CALLS)], rng);
		(void)fc_async_poll(s->fc);
		busy = !over;
		for (unsigned i = 0; i < LOOP_CALLS; i++) {
			if (over && calls[i].state == INSIDE) {
				leave(s, &calls[i].e, seen);
				calls[i].state = IDLE;
			}
			busy |= calls[i].state != IDLE;
		}
		pthread_mutex_unlock(&loops);
		if (rng_chance(rng, 4))
			sched_yield();
	}
}

/* ---- cases ---- */

static void one_in_four_loops(void *arg, unsigned index, struct rng *rng)
{
	struct stress *s = arg;

	prctl(PR_SET_TIMERSLACK, 1);
	if (index % 4 == 3)
		loop(s, &s->seen[index], rng);
	else
		block(s, &s->seen[index], rng);
}

static void all_block(void *arg, unsigned index, struct rng *rng)
{
	struct stress *s = arg;

	prctl(PR_SET_TIMERSLACK, 1);
	block(s, &s->seen[index], rng);
}

static void check_end(struct stress *s, unsigned threads)
{
	FC_OPTS(fc_stats, st, .cap = 0);
	struct fc_entry e[8] = { FC_ENTRY_INIT };
	struct seen all = { 0 };
	uint64_t refused = 0;

	for (unsigned i = 0; i < threads; i++) {
		all.tried += s->seen[i].tried;
		all.admitted += s->seen[i].admitted;
		all.refused += s->seen[i].refused;
		all.cancelled += s->seen[i].cancelled;
		all.odd += s->seen[i].odd;
		all.longest_ns = s->seen[i].longest_ns > all.longest_ns ? s->seen[i].longest_ns : all.longest_ns;
	}
	assert_int_equal(fc_iface_stats(s->f, &st), 0);
	for (unsigned i = 0; i < FC_STATS_REASONS; i++)
		refused += st.refused[i];
	print_message("# cap %u, %u threads: %llu tried, %llu admitted, %llu refused, %llu cancelled, %llu waited, longest %llu us\n",
	              s->cap, threads, (unsigned long long)all.tried, (unsigned long long)all.admitted, (unsigned long long)all.refused,
	              (unsigned long long)all.cancelled, (unsigned long long)st.waited, (unsigned long long)all.longest_ns / 1000);
	assert_int_equal(all.odd, 0);
	assert_in_range(s->most, 1, s->cap);
	assert_int_equal(s->inside, 0);
	assert_int_equal(all.tried, all.admitted + all.refused + all.cancelled);
	assert_int_equal(st.admitted, all.admitted);
	assert_int_equal(st.ok, all.admitted);
	assert_int_equal(refused, all.refused);
	assert_int_equal(st.in_flight, 0);
	assert_int_equal(st.waiting, 0);
	assert_int_equal(st.late_exits + st.purged + st.abandoned + st.untracked, 0);
	assert_true(st.waited > 0);
	assert_true(all.longest_ns < s->wait_us * UINT64_C(1000) + LATE_NS);
	/* No place is lost: the cap's worth of calls fits in, and no more. */
	for (uint32_t i = 0; i < s->cap; i++)
		assert_int_equal(fc_enter(&e[i], s->f, NULL), 0);
	assert_int_equal(fc_enter(&(struct fc_entry)FC_ENTRY_INIT, s->f, NULL), FC_REFUSED_WAIT);
	for (uint32_t i = 0; i < s->cap; i++)
		fc_exit(&e[i]);
}

static void run(uint32_t cap, unsigned threads, uint32_t wait_max, uint32_t wait_us, uint32_t hold_us, thread_fn fn)
{
	FC_OPTS(fc_opts, co, .clock = FC_CLOCK_MONOTONIC);
	FC_OPTS(fc_iface_opts, o, .cap = cap, .expand = 1, .wait_max = wait_max, .wait_timeout_ns = FC_US(wait_us),
	        .wait_order = cap % 2 ? FC_WAIT_LIFO : FC_WAIT_FIFO, .writeoff = FC_WRITEOFF_NONE);
	static struct stress s;

	memset(&s, 0, sizeof(s));
	s.cap = cap;
	s.wait_us = wait_us;
	s.hold_us = hold_us;
	s.threads = threads;
	assert_in_range(threads, 1, THREADS_MAX);
	assert_int_equal(fc_create(&s.fc, &co), 0);
	assert_int_equal(fc_iface_set(s.fc, "waited for", &o, &s.f), 0);
	s.end = stress_end_ns();
	run_threads(threads, fn, &s);
	check_end(&s, threads);
	fc_destroy(s.fc);
}

static void time_outs_meet_grants(void **state)
{
	(void)state;
	for (uint32_t cap = 1; cap <= 8; cap *= 2)
		run(cap, 8 * test_cpus() < THREADS_MAX ? 8 * test_cpus() : THREADS_MAX, 16, 60, 20, all_block);
}

static void callbacks_and_blocked_threads_share_the_places(void **state)
{
	(void)state;
	for (uint32_t cap = 1; cap <= 8; cap += 2)
		run(cap, 16, 32, 300, 20, one_in_four_loops);
}

static void one_node_is_used_by_all(void **state)
{
	(void)state;
	run(2, 16, 1, 30, 10, one_in_four_loops);
}

/* ---- cancels on one thread, polls on another ---- */

struct lone_call {
	struct fc_entry e;
	int verdict;
	atomic_int done;
};

static void tell(void *arg, struct fc_entry *e, int verdict)
{
	struct lone_call *c = arg;

	(void)e;
	c->verdict = verdict;
	atomic_store(&c->done, 1);
}

/* Either the cancel takes the wait back, or the callback runs: never both, never neither. */
static void cancel_soon(struct stress *s, struct seen *seen, struct rng *rng)
{
	struct lone_call c;
	int rc;

	s->end = stress_end_ns();
	while (test_now_ns() < s->end) {
		memset(&c, 0, sizeof(c));
		seen->tried++;
		rc = fc_enter_async(&c.e, s->f, NULL, tell, &c);
		if (rc == FC_PENDING) {
			work(s, rng);
			if (fc_enter_cancel(&c.e) == 1) {
				sched_yield();
				seen->odd += c.done != 0;
				seen->cancelled++;
				continue;
			}
			while (!c.done)
				sched_yield();
			rc = c.verdict;
		}
		if (rc == 0) {
			came(s);
			seen->admitted++;
			work(s, rng);
			leave(s, &c.e, seen);
		} else {
			seen->refused++;
			seen->odd += !is_refusal(rc);
		}
	}
	atomic_fetch_add(&s->left, 1);
}

static void the_first_polls(void *arg, unsigned index, struct rng *rng)
{
	struct stress *s = arg;

	if (index != 0) {
		cancel_soon(s, &s->seen[index], rng);
		return;
	}
	while (s->left < s->threads - 1) {
		(void)fc_async_poll(s->fc);
		if (rng_chance(rng, 8))
			sched_yield();
	}
}

static void cancels_meet_polls(void **state)
{
	(void)state;
	run(1, 6, 8, 100, 5, the_first_polls);
	run(2, 6, 2, 100, 5, the_first_polls);
}

/* ---- with time for everybody ---- */

/* Nobody sleeps beside a free place: the wait is over when a turn comes. */
struct calm {
	struct stress s;
	atomic_uint refused;
};

static void few_at_a_time(void *arg, unsigned index, struct rng *rng)
{
	struct calm *c = arg;

	(void)index;
	c->s.end = stress_end_ns();
	while (test_now_ns() < c->s.end) {
		struct fc_entry e = FC_ENTRY_INIT;
		uint64_t start = test_now_ns(), took;

		if (fc_enter(&e, c->s.f, NULL) != 0) {
			c->refused++;
			continue;
		}
		took = test_now_ns() - start;
		c->s.seen[index].longest_ns = took > c->s.seen[index].longest_ns ? took : c->s.seen[index].longest_ns;
		work(&c->s, rng);
		fc_exit(&e);
	}
}

static void nobody_sleeps_beside_a_free_place(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 1, .expand = 1, .wait_max = 8, .wait_timeout_ns = FC_S(20), .wait_order = FC_WAIT_FIFO,
	        .writeoff = FC_WRITEOFF_NONE);
	static struct calm c;

	(void)state;
	c.s.hold_us = 5;
	assert_int_equal(fc_create(&c.s.fc, NULL), 0);
	assert_int_equal(fc_iface_set(c.s.fc, "calm", &o, &c.s.f), 0);
	c.s.end = stress_end_ns();
	run_threads(3, few_at_a_time, &c);
	assert_int_equal(c.refused, 0);
	for (int i = 0; i < 3; i++)
		assert_true(c.s.seen[i].longest_ns < LATE_NS);
	fc_destroy(c.s.fc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_outs_meet_grants),
		cmocka_unit_test(callbacks_and_blocked_threads_share_the_places),
		cmocka_unit_test(one_node_is_used_by_all),
		cmocka_unit_test(cancels_meet_polls),
		cmocka_unit_test(nobody_sleeps_beside_a_free_place),
	};

	return cmocka_run_group_tests_name("wait", tests, NULL, NULL);
}
