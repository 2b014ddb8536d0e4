/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every allocation of every set-up fails once, in turn: the call says -ENOMEM, changes nothing, loses
 * nothing, and works at the next try. And calls through guards allocate nothing at all, counted at the
 * context's allocator and at malloc() itself.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcguard/fcguard.h>

#include "support/alloc.h"
#include "support/threads.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* ---- malloc() itself --------------------------------------------------------------------------- */

static atomic_ullong mallocs;

#if !defined(SANITIZED) && defined(__GLIBC__)
#define COUNTS_MALLOC 1
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *ptr, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

void *malloc(size_t bytes)
{
	atomic_fetch_add_explicit(&mallocs, 1, memory_order_relaxed);
	return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	atomic_fetch_add_explicit(&mallocs, 1, memory_order_relaxed);
	return __libc_calloc(n, bytes);
}

void *realloc(void *ptr, size_t bytes)
{
	atomic_fetch_add_explicit(&mallocs, 1, memory_order_relaxed);
	return __libc_realloc(ptr, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
	atomic_fetch_add_explicit(&mallocs, 1, memory_order_relaxed);
	return __libc_memalign(align, bytes);
}

int posix_memalign(void **ret, size_t align, size_t bytes)
{
	atomic_fetch_add_explicit(&mallocs, 1, memory_order_relaxed);
	*ret = __libc_memalign(align, bytes);
	return *ret ? 0 : ENOMEM;
}
#else
#define COUNTS_MALLOC 0
#endif

/* ---- contexts ---------------------------------------------------------------------------------- */

static struct counting_alloc mem;
static struct fc_alloc counting;
static struct fc *fc;
static struct fc_iface *login;

static int create(struct fc **ret)
{
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .alloc = &counting, .max_ifaces = 512);

	return fc_create(ret, &o);
}

static int setup(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 4, .expand = 1, .wait_max = 2);

	(void)state;
	counting = counting_alloc_init(&mem);
	if (create(&fc) || fc_clock_set(fc, FC_S(1000)) || fc_iface_set(fc, "user.login", &o, &login))
		return -1;
	return 0;
}

static int teardown(void **state)
{
	uint32_t left = 0;

	(void)state;
	for (uint32_t i = 0; fc_iface_at(fc, i); i++)
		left += fc_inside(fc_iface_at(fc, i), NULL);
	mem.fail_at = 0;
	fc = fc_destroy(fc);
	return left != 0 || mem.live != 0 || mem.live_bytes != 0 || mem.bad_frees != 0;
}

/* Fail the n-th allocation from now on; 0: none. */
static void fail_next(unsigned long long n)
{
	mem.fail_at = n ? mem.calls + n : 0;
}

/*
 * Let every allocation of a set-up fail in turn, until one try needs fewer. `once` does it and
 * returns its result; it is called once more after each failure, when there is memory again, and
 * `undo` (or NULL) makes it new for the next try. Returns how many allocations it needs.
 */
static unsigned each_allocation(int (*once)(void), void (*undo)(void))
{
	for (unsigned n = 1;; n++) {
		unsigned long long before = mem.calls;
		long long live = mem.live;
		int rc;

		assert_true(n < 1000);
		fail_next(n);
		rc = once();
		fail_next(0);
		if (rc == 0 && mem.calls - before < n)
			return n - 1;
		if (rc != 0) {
			assert_int_equal(rc, -ENOMEM);
			assert_true(mem.live <= live); /* less: what had been kept for a while was freed */
			assert_int_equal(once(), 0);
		}
		if (undo)
			undo();
	}
}

static struct fc *made;

static int create_another(void)
{
	struct fc *ret = fc;
	int rc = create(&ret);

	if (rc == 0)
		made = ret;
	else
		assert_ptr_equal(ret, fc);
	return rc;
}

static void destroy_another(void)
{
	made = fc_destroy(made);
}

static void a_context_needs_all_of_its_allocations_or_none_is_kept(void **state)
{
	(void)state;
	assert_true(each_allocation(create_another, destroy_another) >= 3);
	destroy_another();
}

static unsigned names;

static int set_another(void)
{
	FC_OPTS(fc_iface_opts, o, .cap = 8, .wait_max = 4);
	struct fc_iface *f = login;
	char name[32];
	int rc;

	snprintf(name, sizeof(name), "iface.%u", names);
	rc = fc_iface_set(fc, name, &o, &f);
	assert_ptr_equal(fc_iface_find(fc, name), rc == 0 ? f : NULL);
	if (rc)
		assert_ptr_equal(f, login);
	return rc;
}

static void next_name(void)
{
	names++;
}

static void an_interface_is_made_whole_or_not_at_all(void **state)
{
	uint32_t n;

	(void)state;
	names = 0;
	/* Until the table of names has grown several times, so that growth fails too. */
	for (n = 0; n < 300; n++) {
		(void)each_allocation(set_another, next_name);
		next_name();
		if (names > 300)
			break;
	}
	for (unsigned i = 0; i <= 300; i++) {
		char name[32];
		struct fc_iface *f;
		struct fc_entry e = FC_ENTRY_INIT;

		snprintf(name, sizeof(name), "iface.%u", i);
		f = fc_iface_find(fc, name);
		assert_non_null(f);
		assert_string_equal(fc_iface_name(f), name);
		assert_int_equal(fc_enter(&e, f, NULL), 0);
		fc_exit(&e);
	}
}

static int get_another(void)
{
	char name[32];
	struct fc_iface *f;

	snprintf(name, sizeof(name), "iface.%u", names);
	f = fc_iface_get(fc, name);
	assert_non_null(f);
	return fc_iface_find(fc, name) == f ? 0 : -ENOMEM;
}

static void a_failed_lookup_gives_a_handle_that_lets_calls_pass(void **state)
{
	FC_OPTS(fc_stats, s, .cap = 0);
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc_iface *f;

	(void)state;
	names = 1000;
	assert_true(each_allocation(get_another, next_name) >= 1);
	fail_next(1);
	f = fc_iface_get(fc, "never.seen");
	fail_next(0);
	assert_int_equal(fc_iface_stats(f, &s), 0);
	assert_true(s.flags & FC_STATS_PASS_THROUGH);
	assert_int_equal(fc_enter(&e, f, NULL), 0);
	assert_int_equal(fc_exit_status(&e), 1);
	assert_ptr_not_equal(fc_iface_get(fc, "never.seen"), f);
}

static void an_iface_can_be_changed_without_an_allocation(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 100);
	unsigned long long before;

	(void)state;
	before = mem.calls;
	assert_int_equal(fc_iface_set(fc, "user.login", &o, NULL), 0);
	assert_int_equal(fc_iface_set_cap(login, 4), 0);
	assert_int_equal(fc_iface_set_off(login, 0), 0);
	assert_int_equal(fc_iface_set_dry_run(login, 0), 0);
	assert_int_equal(fc_iface_inject(login, 0, 0), 0);
	assert_int_equal(mem.calls, before);
}

static int pass(struct fc_call *c)
{
	(void)c;
	return 0;
}

static void done(struct fc_call *c)
{
	(void)c;
}

struct conf {
	char bytes[100];
};

static const struct fc_interceptor stage = {
	.size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER, .name = "stage", .state_bytes = 64,
	.conf_bytes = sizeof(struct conf), .cells = 1, .reason = FC_REFUSED_CUSTOM, .check = pass, .pre = pass,
	.post = done,
};

static int set_chain(void)
{
	static const struct conf conf = { { 1 } };
	struct fc_rule rule = { .interceptor = &stage, .conf = &conf };

	return fc_iface_set_chain(login, &rule, 1);
}

static void clear_chain(void)
{
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_iface_set_chain(login, NULL, 0), 0);
}

static void a_chain_is_set_whole_or_stays_as_it_was(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;
	long long live;

	(void)state;
	clear_chain();
	assert_true(each_allocation(set_chain, clear_chain) >= 1);
	/* Replaced chains are freed. */
	for (int i = 0; i < 10; i++)
		assert_int_equal(set_chain(), 0);
	live = mem.live;
	for (int i = 0; i < 100; i++)
		assert_int_equal(set_chain(), 0);
	assert_true(mem.live <= live + 1);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	fc_exit(&e);
}

static void granted(void *arg, struct fc_entry *e, int verdict)
{
	(void)verdict;
	*(int *)arg += 1;
	fc_exit(e);
}

static int enter_async(void)
{
	struct fc_entry full[4] = { FC_ENTRY_INIT }, e = FC_ENTRY_INIT;
	int rc, grants = 0;

	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&full[i], login, NULL), 0);
	rc = fc_enter_async(&e, login, NULL, granted, &grants);
	if (rc == FC_PENDING)
		assert_int_equal(fc_enter_cancel(&e), 1);
	assert_int_equal(grants, 0);
	for (int i = 0; i < 4; i++)
		fc_exit(&full[i]);
	/* No memory for a callback is a fault of the library: on_fault lets it pass. */
	if (rc == 0) {
		fc_exit(&e);
		return -ENOMEM;
	}
	return rc == FC_PENDING ? 0 : rc;
}

static void the_first_wait_by_callback_without_memory_follows_on_fault(void **state)
{
	(void)state;
	assert_true(each_allocation(enter_async, NULL) <= 2);
	assert_int_equal(fc_inside(login, NULL), 0);
}

static int set_system(void)
{
	FC_OPTS(fc_system_opts, o, .in_flight = 100);

	return fc_system_set(fc, &o);
}

static void bounds_of_the_system_are_set_or_not(void **state)
{
	(void)state;
	(void)each_allocation(set_system, NULL);
	assert_int_equal(fc_system_set(fc, NULL), 0);
}

static int run_housekeeping(void)
{
	int rc = fc_start(fc);

	fc_stop(fc);
	return rc;
}

static void housekeeping_goes_on_without_memory(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	(void)each_allocation(run_housekeeping, NULL);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	fc_clock_advance(fc, FC_S(6));
	for (int i = 0; i < 30; i++) { /* a stuck report, one allocation of it missing */
		fail_next((unsigned)i % 5 + 1);
		(void)fc_tick(fc, 0);
		fc_clock_advance(fc, FC_S(7));
	}
	fail_next(0);
	fc_exit(&e);
}

/* Without any memory at all from the first allocation on. */
static void *no_alloc(void *arg, size_t bytes)
{
	(void)bytes;
	++*(int *)arg;
	return NULL;
}

static void no_free(void *arg, void *ptr, size_t bytes)
{
	(void)arg;
	(void)ptr;
	(void)bytes;
	abort();
}

static void an_allocator_that_has_nothing_makes_no_context(void **state)
{
	int asked = 0;
	struct fc_alloc none = { no_alloc, no_free, &asked };
	FC_OPTS(fc_opts, o, .alloc = &none);
	struct fc *ret = NULL;

	(void)state;
	assert_int_equal(fc_create(&ret, &o), -ENOMEM);
	assert_null(ret);
	assert_int_equal(asked, 1);
}

/* ---- the steady state -------------------------------------------------------------------------- */

#define CALLS 1000000

struct counts {
	unsigned long long own, libc;
};

static struct counts counts_now(void)
{
	return (struct counts){ mem.calls, mallocs };
}

static void assert_none_since(struct counts c)
{
	assert_int_equal(mem.calls - c.own, 0);
	if (COUNTS_MALLOC)
		assert_int_equal(mallocs - c.libc, 0);
}

static void a_million_calls_allocate_nothing(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;
	struct counts c;
	uint32_t bad = 0;

	(void)state;
	if (COUNTS_MALLOC) {
		unsigned long long before = mallocs;
		void *volatile one = malloc(1);

		free(one); /* the count works */
		assert_int_equal(mallocs, before + 1);
	}
	bad += fc_enter(&e, login, NULL) != 0;
	fc_exit(&e);
	c = counts_now();
	for (int i = 0; i < CALLS; i++) {
		bad += fc_enter(&e, login, NULL) != 0;
		fc_exit(&e);
	}
	assert_none_since(c);
	assert_int_equal(bad, 0);
}

static void a_million_refusals_allocate_nothing(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 1, .expand = 1);
	struct fc_entry held = FC_ENTRY_INIT, e = FC_ENTRY_INIT;
	struct fc_iface *f;
	struct counts c;
	uint32_t refused = 0;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "full", &o, &f), 0);
	assert_int_equal(fc_enter(&held, f, NULL), 0);
	assert_int_equal(fc_enter(&e, f, NULL), FC_REFUSED_CAP);
	c = counts_now();
	for (int i = 0; i < CALLS; i++) {
		refused += fc_enter(&e, f, NULL) == FC_REFUSED_CAP;
		if (i % 1000 == 0)
			fc_clock_advance(fc, FC_MS(11)); /* a look at who is inside is due */
	}
	assert_none_since(c);
	assert_int_equal(refused, CALLS);
	fc_exit(&held);
}

static void calls_of_every_kind_allocate_nothing(void **state)
{
	struct fc_label labels[2] = { fc_label("user", "a"), fc_label("ip", "b") };
	FC_OPTS(fc_ctx, ctx, .weight = 2, .priority = 3, .n_labels = 2, .labels = labels, .request_id = 7);
	struct fc_iface *observed = fc_iface_get(fc, "observed");
	struct fc_entry e = FC_ENTRY_INIT, moved = FC_ENTRY_INIT;
	struct counts c = { 0, 0 };
	uint32_t bad = 0;

	(void)state;
	assert_int_equal(set_chain(), 0);
	assert_int_equal(fc_default_set(fc), 0);
	for (int i = 0; i < CALLS / 5; i++) {
		if (i == 1) /* each call site has its number, each name its handle */
			c = counts_now();
		ctx.deadline_ns = fc_now_ns(fc) + FC_MS(1);
		bad += fc_enter(&e, login, &ctx) != 0;
		fc_entry_mark(&e, FC_OUTCOME_ERROR);
		bad += fc_entry_suspend(&e) != 0;
		bad += fc_entry_resume(&e) != 0;
		fc_entry_take(&moved, &e);
		fc_exit(&moved);
		bad += fc_enter(&e, observed, NULL) != 0;
		fc_exit(&e);
		FC_GUARD(g, "user.login") {
			bad += fc_entry_deadline_left(&g) != FC_NEVER_NS;
		}
		FC_GUARD_FN(g) {
			fc_entry_mark(&g, FC_OUTCOME_OK);
		}
		bad += fc_iface_get(fc, "observed") != observed;
	}
	assert_none_since(c);
	assert_int_equal(bad, 0);
	assert_int_equal(fc_default_set(NULL), 0);
}

struct load {
	struct fc_iface *f;
	atomic_uint ready, go, wrong;
	unsigned long long own, libc;
};

static void call_often(void *arg, unsigned index, struct rng *rng)
{
	struct load *l = arg;
	struct fc_entry e = FC_ENTRY_INIT;
	unsigned wrong = 0;

	(void)rng;
	wrong += fc_enter(&e, l->f, NULL) < 0; /* registers the thread */
	fc_exit(&e);
	atomic_fetch_add(&l->ready, 1);
	if (index == 0) {
		while (atomic_load(&l->ready) < 4)
			sched_yield();
		l->own = mem.calls;
		l->libc = mallocs;
		atomic_store(&l->go, 1);
	}
	while (!atomic_load(&l->go))
		sched_yield();
	for (int i = 0; i < CALLS / 4; i++) {
		wrong += fc_enter(&e, l->f, NULL) < 0; /* admitted, at once or after a wait, or refused */
		fc_exit(&e);
	}
	atomic_fetch_add(&l->wrong, wrong);
	atomic_fetch_add(&l->ready, 1);
	while (atomic_load(&l->ready) < 8)
		sched_yield();
	if (index == 0) {
		l->own = mem.calls - l->own;
		l->libc = mallocs - l->libc;
		atomic_fetch_add(&l->ready, 1);
	}
	while (atomic_load(&l->ready) < 9)
		sched_yield();
}

static void calls_of_many_threads_allocate_nothing(void **state)
{
	struct load l = { .f = login };

	(void)state;
	assert_int_equal(fc_iface_set_cap(login, 2), 0);
	run_threads(4, call_often, &l);
	assert_int_equal(l.wrong, 0);
	assert_int_equal(l.own, 0);
	if (COUNTS_MALLOC)
		assert_int_equal(l.libc, 0);
}

#define T(name_) cmocka_unit_test_setup_teardown(name_, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_context_needs_all_of_its_allocations_or_none_is_kept),
		T(an_interface_is_made_whole_or_not_at_all),
		T(a_failed_lookup_gives_a_handle_that_lets_calls_pass),
		T(an_iface_can_be_changed_without_an_allocation),
		T(a_chain_is_set_whole_or_stays_as_it_was),
		T(the_first_wait_by_callback_without_memory_follows_on_fault),
		T(bounds_of_the_system_are_set_or_not),
		T(housekeeping_goes_on_without_memory),
		T(an_allocator_that_has_nothing_makes_no_context),
		T(a_million_calls_allocate_nothing),
		T(a_million_refusals_allocate_nothing),
		T(calls_of_every_kind_allocate_nothing),
		T(calls_of_many_threads_allocate_nothing),
	};

	return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
