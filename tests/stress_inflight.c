/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many threads on one interface: the bodies count themselves, and are never more than the limit in
 * force, while caps change, calls are heavy, moved, ended twice, purged, let through in a dry run, or
 * the limit expands; at the end all places are back and every attempt is accounted for.
 *
 * What is counted here is a little less than what the library counts: after the enter, before the exit.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcguard/fcguard.h>
#include <fcguard/health.h>

#include "lib/leave.h"
#include "support/threads.h"

enum { RESIZE = 1, WEIGHTS = 2, MOVES = 4, TWICE = 8, EXPAND = 16, DRY = 32, PURGE = 64, WORK = 128, OFF = 256 };

#define BOXES 16

struct run {
	unsigned threads;
	uint32_t cap, low; /* low: the other cap of RESIZE */
	unsigned what;
	struct fc *fc;
	struct fc_iface *f;
	_Alignas(64) atomic_uint inside;
	_Alignas(64) atomic_uint phase; /* odd: `low` is in force, and the calls over it have left */
	atomic_uint over, over_low;
	atomic_uint stop;
	atomic_ullong attempts, admitted, refused, exits;
	_Atomic(struct fc_entry *) box[BOXES]; /* moved calls that somebody will end */
	atomic_uint box_weight[BOXES];
};

static int always_good(void *arg, struct fc_health_sample *s)
{
	(void)arg;
	s->valid = FC_HEALTH_CPU;
	s->cpu_permille = 100;
	return 0;
}

/* ---- those who call ---------------------------------------------------------------------------- */

static uint32_t most(const struct run *r, uint32_t cap)
{
	return r->what & EXPAND ? 4 * cap : cap;
}

static void come(struct run *r, unsigned weight)
{
	unsigned before = atomic_load(&r->phase);
	unsigned n = atomic_fetch_add(&r->inside, weight) + weight;

	if (r->what & (PURGE | DRY | OFF))
		return; /* more bodies run than places are taken */
	if (n > most(r, r->cap))
		atomic_fetch_add(&r->over, 1);
	if ((before & 1) && before == atomic_load(&r->phase) && n > most(r, r->low))
		atomic_fetch_add(&r->over_low, 1);
}

static void go(struct run *r, struct fc_entry *e, unsigned weight)
{
	struct fc_entry copy = *e;
	unsigned n;

	atomic_fetch_sub(&r->inside, weight);
	n = fc_exit_status(e) == 1;
	if (r->what & TWICE)
		n += fc_exit_status(&copy) == 1;
	atomic_fetch_add(&r->exits, n);
}

/* Leave the call in a box, and end the one that was there. */
static void swap_box(struct run *r, struct fc_entry *e, unsigned weight, struct rng *rng)
{
	unsigned i = rng_below(rng, BOXES);
	struct fc_entry *mine = NULL, *theirs;

	if (e) {
		mine = malloc(sizeof(*mine));
		if (!mine)
			abort();
		fc_entry_take(mine, e);
		mine->data_[0] = weight; /* where the guard stands: no use for it here */
	}
	theirs = atomic_exchange(&r->box[i], mine);
	if (!theirs)
		return;
	go(r, theirs, (unsigned)theirs->data_[0]);
	free(theirs);
}

static void work(struct run *r, struct rng *rng)
{
	if (!(r->what & WORK))
		return;
	for (volatile unsigned i = rng_below(rng, 2000); i > 0; i--)
		;
}

static void call(struct run *r, struct rng *rng)
{
	unsigned weight = r->what & WEIGHTS ? 1 + rng_below(rng, 4) : 1;
	FC_OPTS(fc_ctx, ctx, .weight = weight);
	struct fc_entry e = FC_ENTRY_INIT;

	atomic_fetch_add(&r->attempts, 1);
	if (fc_enter(&e, r->f, weight > 1 ? &ctx : NULL) != 0) {
		atomic_fetch_add(&r->refused, 1);
		fc_exit(&e);
		return;
	}
	atomic_fetch_add(&r->admitted, 1);
	come(r, weight);
	work(r, rng);
	if ((r->what & MOVES) && rng_chance(rng, 4))
		swap_box(r, &e, weight, rng);
	else
		go(r, &e, weight);
}

/* ---- the one who disturbs ---------------------------------------------------------------------- */

static void settle_low(struct run *r, uint64_t end)
{
	(void)fc_iface_set_cap(r->f, r->low);
	/* Calls in boxes leave when somebody else comes by: help. */
	while (fc_inside(r->f, NULL) > r->low && test_now_ns() < end) {
		struct rng rng = { test_now_ns() };

		swap_box(r, NULL, 0, &rng);
	}
	if (fc_inside(r->f, NULL) <= r->low)
		atomic_fetch_add(&r->phase, 1);
}

static void resize(struct run *r, unsigned step, uint64_t end)
{
	if (step % 2) {
		if (atomic_load(&r->phase) & 1)
			atomic_fetch_add(&r->phase, 1);
		(void)fc_iface_set_cap(r->f, r->cap);
	} else {
		settle_low(r, end);
	}
}

static void purge_one(struct run *r, struct rng *rng)
{
	uint32_t slot = rng_below(rng, fci_slots(r->f));
	struct fci_view v;

	if (fci_view(r->f, slot, &v) && !FCI_META_IN_PRE(v.meta))
		(void)fci_abandon(r->f, &v, test_now_ns());
}

static void disturb(struct run *r, struct rng *rng)
{
	uint64_t end = stress_end_ns();

	for (unsigned step = 0; test_now_ns() < end; step++) {
		if (r->what & RESIZE)
			resize(r, step, end);
		if (r->what & DRY)
			(void)fc_iface_set_dry_run(r->f, (int)rng_below(rng, 2));
		if (r->what & OFF)
			(void)fc_iface_set_off(r->f, (int)rng_below(rng, 2));
		for (int i = 0; (r->what & PURGE) && i < 20; i++)
			purge_one(r, rng);
		fc_tick(r->fc, 0);
		test_sleep_ms(1);
	}
	atomic_store(&r->stop, 1);
}

static void take_part(void *arg, unsigned index, struct rng *rng)
{
	struct run *r = arg;

	if (index == 0)
		disturb(r, rng);
	while (!atomic_load(&r->stop))
		call(r, rng);
}

/* ---- one configuration ------------------------------------------------------------------------- */

static void at_rest(struct run *r)
{
	FC_OPTS(fc_stats, s, .cap = 0);
	struct rng rng = { 1 };
	uint64_t refused = 0;

	for (int i = 0; i < 10000; i++)
		swap_box(r, NULL, 0, &rng);
	(void)fc_iface_set_cap(r->f, r->cap);
	fc_tick(r->fc, 0);
	assert_int_equal(fc_iface_stats(r->f, &s), 0);
	for (int i = 0; i < FC_STATS_REASONS; i++)
		refused += s.refused[i];
	assert_int_equal(atomic_load(&r->over), 0);
	assert_int_equal(atomic_load(&r->over_low), 0);
	assert_int_equal(s.in_flight, 0);
	assert_int_equal(atomic_load(&r->inside), 0);
	assert_int_equal(atomic_load(&r->admitted) + atomic_load(&r->refused), atomic_load(&r->attempts));
	assert_int_equal(refused, atomic_load(&r->refused));
	assert_int_equal(s.admitted + s.untracked, atomic_load(&r->admitted));
	assert_int_equal(s.ok + s.abandoned, s.admitted);
	if (!(r->what & (DRY | OFF)))
		assert_int_equal(s.ok, atomic_load(&r->exits));
	if (!(r->what & PURGE))
		assert_int_equal(s.abandoned, 0);
	assert_true(s.admitted + s.untracked > 0);
}

/* All places can be had again, and not one more. */
static void whole_again(struct run *r)
{
	struct fc_entry *e = calloc(r->cap + 1, sizeof(*e));
	FC_OPTS(fc_iface_opts, o, .cap = r->cap, .expand = 1);

	assert_non_null(e);
	assert_int_equal(fc_iface_set(r->fc, "stress", &o, NULL), 0);
	for (uint32_t i = 0; i < r->cap; i++)
		assert_int_equal(fc_enter(&e[i], r->f, NULL), 0);
	assert_int_equal(fc_enter(&e[r->cap], r->f, NULL), FC_REFUSED_CAP);
	for (uint32_t i = 0; i < r->cap; i++)
		fc_exit(&e[i]);
	free(e);
}

static void stress(unsigned threads, uint32_t cap, uint32_t low, unsigned what)
{
	static struct run r;
	FC_OPTS(fc_iface_opts, o, .cap = cap, .expand = what & EXPAND ? 4 : 1, .expand_keep = FC_EXPAND_KEEP_HEALTH,
	        .writeoff = FC_WRITEOFF_NONE, .check_every_ns = FC_MS(1));

	printf("# %u threads, cap %u, what %u\n", threads, cap, what);
	fflush(stdout);
	memset(&r, 0, sizeof(r));
	r.threads = threads;
	r.cap = cap;
	r.low = low;
	r.what = what;
	assert_int_equal(fc_create(&r.fc, NULL), 0);
	assert_int_equal(fc_health_set_source(r.fc, always_good, NULL), 0);
	assert_int_equal(fc_iface_set(r.fc, "stress", &o, &r.f), 0);
	fc_tick(r.fc, 0);
	run_threads(threads + 1, take_part, &r);
	at_rest(&r);
	whole_again(&r);
	fc_destroy(r.fc);
}

/* alibaba/Sentinel 628, spring-cloud-alibaba 1861: a burst of calls passed the threshold. */
static void bodies_are_never_more_than_the_cap(void **state)
{
	(void)state;
	stress(1, 1, 1, 0);
	stress(8, 7, 7, 0);
	stress(100, 63, 63, WORK);
}

/* haproxy 2743: after a maintenance up to twice maxconn. */
static void a_lowered_cap_is_kept_as_soon_as_it_is_reached(void **state)
{
	(void)state;
	stress(4, 3, 1, RESIZE);
	stress(30, 20, 5, RESIZE | WORK);
	stress(40, 200, 3, RESIZE | MOVES | WORK);
}

/* apache/brpc 2227: a count stayed at the maximum after the load had gone. */
static void whatever_calls_do_all_places_come_back(void **state)
{
	(void)state;
	stress(6, 5, 2, MOVES | TWICE);
	stress(8, 9, 4, WEIGHTS | TWICE | MOVES);
	stress(12, 30, 6, RESIZE | WEIGHTS | MOVES | TWICE | WORK);
}

static void purged_calls_give_back_one_place_once(void **state)
{
	(void)state;
	stress(6, 4, 2, PURGE | TWICE);
	stress(8, 12, 3, PURGE | RESIZE | WEIGHTS | MOVES | TWICE);
}

static void an_expanded_limit_is_a_bound_too(void **state)
{
	(void)state;
	stress(30, 4, 2, EXPAND | WORK);
	stress(40, 10, 3, EXPAND | RESIZE | MOVES | TWICE | WORK);
}

static void switching_dry_run_and_off_loses_nothing(void **state)
{
	(void)state;
	stress(8, 3, 2, DRY | TWICE);
	stress(8, 3, 2, DRY | RESIZE | MOVES);
	stress(8, 3, 2, OFF | MOVES);
}

/* More of the same, when there is time. */
static void many_configurations(void **state)
{
	static const unsigned threads[] = { 1, 2, 3, 16, 64, 100 };
	static const uint32_t caps[] = { 1, 2, 7, 8, 65, 200 };
	const char *ms = getenv("FC_STRESS_MS");
	unsigned k = 0;

	(void)state;
	if (!ms || strtoul(ms, NULL, 0) < 1000)
		return; /* nothing to try in the short form */
	for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++)
		for (size_t j = 0; j < sizeof(caps) / sizeof(caps[0]); j++)
			stress(threads[i], caps[j], caps[j] / 3 + 1, (k += 37) & (RESIZE | WEIGHTS | MOVES | TWICE | EXPAND | DRY | PURGE | WORK));
}

/* ---- fork -------------------------------------------------------------------------------------- */

struct forking {
	struct fc *fc;
	struct fc_iface *f;
	atomic_uint stop, bad;
	unsigned forks;
};

/* In the child: nothing is inside, the whole cap is there, and the copy of an entry means nothing. */
static int child(struct forking *k, struct fc_entry *open)
{
	struct fc_entry e[6];

	if (fc_inside(k->f, NULL) != 0)
		return 2;
	if (fc_exit_status(open) != 0 || fc_inside(k->f, NULL) != 0)
		return 3;
	memset(e, 0, sizeof(e));
	for (int i = 0; i < 5; i++)
		if (fc_enter(&e[i], k->f, NULL) != 0)
			return 4;
	if (fc_enter(&e[5], k->f, NULL) != FC_REFUSED_CAP)
		return 5;
	for (int i = 0; i < 5; i++)
		if (fc_exit_status(&e[i]) != 1)
			return 6;
	fc_tick(k->fc, 0);
	if (fc_iface_set_cap(k->f, 2) != 0 || fc_iface_get(k->fc, "another") == NULL)
		return 7;
	return fc_inside(k->f, NULL) != 0 ? 8 : 0;
}

static void fork_or_call(void *arg, unsigned index, struct rng *rng)
{
	struct forking *k = arg;
	uint64_t end = stress_end_ns();

	while (index != 0 && !atomic_load(&k->stop)) {
		FC_OPTS(fc_ctx, ctx, .weight = 1 + rng_below(rng, 2));
		struct fc_entry e = FC_ENTRY_INIT;

		if (fc_enter(&e, k->f, rng_chance(rng, 3) ? &ctx : NULL) == 0)
			fc_exit(&e);
		if (rng_chance(rng, 1000))
			(void)fc_iface_set_cap(k->f, 5);
		if (rng_chance(rng, 1000))
			fc_tick(k->fc, 0);
	}
	while (index == 0 && test_now_ns() < end) {
		struct fc_entry open = FC_ENTRY_INIT;
		int status, rc = fc_enter(&open, k->f, NULL);
		pid_t pid = fork();

		if (pid == 0) {
			alarm(20);
			_exit(child(k, &open));
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			atomic_fetch_add(&k->bad, 1);
			fprintf(stderr, "# child ended with %d, signal %d\n", pid < 0 ? -1 : WEXITSTATUS(status),
			        pid < 0 || !WIFSIGNALED(status) ? 0 : WTERMSIG(status));
		}
		k->forks++;
		if (rc == 0)
			atomic_fetch_add(&k->bad, fc_exit_status(&open) != 1);
	}
	if (index == 0)
		atomic_store(&k->stop, 1);
}

static void a_child_forked_in_the_middle_of_calls_starts_clean(void **state)
{
	static struct forking k;
	FC_OPTS(fc_iface_opts, o, .cap = 5, .expand = 1);

	(void)state;
#if defined(__SANITIZE_THREAD__)
	return; /* its runtime does not go on in a child of many threads */
#endif
	memset(&k, 0, sizeof(k));
	assert_int_equal(fc_create(&k.fc, NULL), 0);
	assert_int_equal(fc_iface_set(k.fc, "fork", &o, &k.f), 0);
	run_threads(5, fork_or_call, &k);
	assert_true(k.forks > 0);
	assert_int_equal(atomic_load(&k.bad), 0);
	assert_int_equal(fc_inside(k.f, NULL), 0);
	fc_destroy(k.fc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bodies_are_never_more_than_the_cap),
		cmocka_unit_test(a_lowered_cap_is_kept_as_soon_as_it_is_reached),
		cmocka_unit_test(whatever_calls_do_all_places_come_back),
		cmocka_unit_test(purged_calls_give_back_one_place_once),
		cmocka_unit_test(an_expanded_limit_is_a_bound_too),
		cmocka_unit_test(switching_dry_run_and_off_loses_nothing),
		cmocka_unit_test(a_child_forked_in_the_middle_of_calls_starts_clean),
		cmocka_unit_test(many_configurations),
	};

	return cmocka_run_group_tests_name("inflight stress", tests, NULL, NULL);
}
