/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Entries, interfaces and contexts at their edges: bad arguments, old and new headers, full tables,
 * switches, drains, injected faults, dry runs. Virtual clock throughout.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcguard/fcguard.h>

#include "context.h"
#include "hash.h"
#include "chain.h"
#include "support/emulator.h"
#include "support/threads.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define COUNT(a_) (sizeof(a_) / sizeof((a_)[0]))
#define NOW       FC_S(1000)

static struct fc *fc;
static struct fc_iface *login; /* cap 4, never more */
static char last_log[1024];
static unsigned log_lines;

static void keep_log(void *arg, int level, const char *msg)
{
	(void)arg;
	(void)level;
	snprintf(last_log, sizeof(last_log), "%s", msg);
	log_lines++;
}

static struct fc_opts defaults(void)
{
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .log = keep_log);

	return o;
}

static struct fc *context(const struct fc_opts *o)
{
	struct fc *ret = NULL;

	assert_int_equal(fc_create(&ret, o), 0);
	assert_int_equal(fc_clock_set(ret, NOW), 0);
	return ret;
}

static struct fc_iface *capped(struct fc *where, const char *name, uint32_t cap)
{
	FC_OPTS(fc_iface_opts, o, .cap = cap, .expand = 1);
	struct fc_iface *f = NULL;

	assert_int_equal(fc_iface_set(where, name, &o, &f), 0);
	return f;
}

static struct fc_stats stats(const struct fc_iface *f)
{
	FC_OPTS(fc_stats, s, .cap = 0);

	assert_int_equal(fc_iface_stats(f, &s), 0);
	return s;
}

static struct fc_decision decision(const struct fc_entry *e)
{
	FC_OPTS(fc_decision, d, .status = 0);

	assert_int_equal(fc_entry_decision(e, &d), 0);
	return d;
}

static struct fc_totals totals(struct fc *of)
{
	FC_OPTS(fc_totals, t, .ifaces = 0);

	assert_int_equal(fc_totals(of, &t), 0);
	return t;
}

static int setup(void **state)
{
	struct fc_opts o = defaults();

	(void)state;
	last_log[0] = 0;
	log_lines = 0;
	fc = context(&o);
	login = capped(fc, "user.login", 4);
	return 0;
}

static int teardown(void **state)
{
	uint32_t left = 0;

	(void)state;
	for (uint32_t i = 0; fc_iface_at(fc, i); i++)
		left += stats(fc_iface_at(fc, i)).in_flight;
	fc = fc_destroy(fc);
	return left != 0;
}

/* n calls through f; how many were let in; all have left afterwards. */
static uint32_t let_in(struct fc_iface *f, uint32_t n)
{
	struct fc_entry *e = calloc(n, sizeof(*e));
	uint32_t in = 0;

	assert_non_null(e);
	for (uint32_t i = 0; i < n; i++)
		in += fc_enter(&e[i], f, NULL) == 0;
	for (uint32_t i = 0; i < n; i++)
		fc_exit(&e[i]);
	free(e);
	return in;
}

/* One call: what was said. */
static int call(struct fc_iface *f, const struct fc_ctx *ctx)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter(&e, f, ctx);

	fc_exit(&e);
	return rc;
}

/* ---- arguments --------------------------------------------------------------------------------- */

static void nothing_is_no_entry_and_no_handle(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT, zero = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(NULL, login, NULL), -EINVAL);
	assert_int_equal(fc_enter(&e, NULL, NULL), -EINVAL);
	assert_int_equal((fc_enter)(NULL, NULL, NULL), -EINVAL);
	assert_int_equal(fc_entry_verdict(&e), -EINVAL);
	zero.verdict_ = -EINVAL;
	assert_memory_equal(&e, &zero, sizeof(e));
	fc_exit(NULL);
	fc_exit(&e);
	assert_int_equal(fc_exit_status(NULL), 0);
	assert_int_equal(fc_exit_status(&e), 0);
	fc_entry_mark(NULL, FC_OUTCOME_ERROR);
	fc_entry_mark(&e, FC_OUTCOME_ERROR);
	fc_entry_take(&e, NULL);
	fc_entry_take(NULL, NULL);
	assert_int_equal(fc_entry_verdict(NULL), -EINVAL);
	assert_int_equal(fc_entry_decision(NULL, NULL), -EINVAL);
	assert_int_equal(fc_entry_decision(&e, NULL), -EINVAL);
	assert_memory_equal(&e, &zero, sizeof(e));
	assert_int_equal(stats(login).admitted, 0);
}

static void garbage_is_no_handle(void **state)
{
	_Alignas(64) unsigned char garbage[4096];
	struct fc_entry e = FC_ENTRY_INIT;
	FC_OPTS(fc_stats, s, .cap = 0);
	FC_OPTS(fc_iface_opts, o, .cap = 0);

	(void)state;
	for (int fill = 0; fill < 256; fill += 51) {
		struct fc_iface *f = (struct fc_iface *)(void *)garbage;

		memset(garbage, fill, sizeof(garbage));
		assert_int_equal(fc_enter(&e, f, NULL), -EINVAL);
		assert_int_equal(fc_enter_at(&e, f, NULL, NULL), -EINVAL);
		assert_int_equal(fc_iface_stats(f, &s), -EINVAL);
		assert_int_equal(fc_iface_get_opts(f, &o), -EINVAL);
		assert_int_equal(fc_iface_set_cap(f, 1), -EINVAL);
		assert_int_equal(fc_iface_inject(f, 1, 1), -EINVAL);
		assert_int_equal(fc_iface_drain(f, 0), -EINVAL);
		assert_int_equal(fc_in_flight(f, NULL, 0), -EINVAL);
		assert_int_equal(fc_iface_set_chain(f, NULL, 0), -EINVAL);
		assert_null(fc_iface_context(f));
		assert_string_equal(fc_iface_name(f), "?");
		fc_iface_undrain(f);
	}
	assert_int_equal(e.word_, 0);
}

/* Memory that is never given back, so that a dead handle can be looked at. */
static void *keep_alloc(void *arg, size_t bytes)
{
	static _Alignas(64) char pool[1 << 20];
	size_t *used = arg, at = (*used + 63) & ~(size_t)63;

	if (at + bytes > sizeof(pool))
		return NULL;
	*used = at + bytes;
	return pool + at;
}

static void keep_free(void *arg, void *ptr, size_t bytes)
{
	(void)arg;
	(void)ptr;
	(void)bytes;
}

static void a_dead_handle_is_an_error(void **state)
{
	size_t used = 0;
	struct fc_alloc keep = { keep_alloc, keep_free, &used };
	struct fc_opts o = defaults();
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc_iface *f, *pass;
	struct fc *dead;

	(void)state;
	o.alloc = &keep;
	dead = context(&o);
	f = capped(dead, "user.login", 1);
	pass = fc_iface_get(dead, "");
	assert_null(fc_destroy(dead));
	assert_int_equal(fc_enter(&e, f, NULL), -EINVAL);
	assert_int_equal(fc_enter(&e, pass, NULL), -EINVAL);
	assert_int_equal(fc_iface_set(dead, "user.login", NULL, NULL), -EINVAL);
	assert_null(fc_iface_find(dead, "user.login"));
	assert_null(fc_destroy(dead));
	assert_null(fc_destroy(NULL));
}

static void a_refused_entry_needs_no_exit(void **state)
{
	struct fc_entry e[5] = { FC_ENTRY_INIT };

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&e[i], login, NULL), 0);
	assert_int_equal(fc_enter(&e[4], login, NULL), FC_REFUSED_CAP);
	assert_int_equal(fc_entry_verdict(&e[4]), FC_REFUSED_CAP);
	fc_entry_mark(&e[4], FC_OUTCOME_ERROR);
	for (int i = 0; i < 3; i++)
		assert_int_equal(fc_exit_status(&e[4]), 0);
	assert_int_equal(stats(login).in_flight, 4);
	assert_int_equal(fc_entry_suspend(&e[4]), -EINVAL);
	fc_exit(&e[0]);
	/* The same entry serves again. */
	assert_int_equal(fc_enter(&e[4], login, NULL), 0);
	assert_int_equal(fc_entry_verdict(&e[4]), 0);
	for (int i = 0; i < 5; i++)
		fc_exit(&e[i]);
	assert_int_equal(stats(login).ok, 5);
	assert_int_equal(stats(login).error, 0);
}

static void a_faulty_call_leaves_a_used_entry_inactive(void **state)
{
	FC_OPTS(fc_ctx, bad, .priority = 8);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	fc_exit(&e);
	assert_int_equal(fc_enter(&e, login, &bad), -EINVAL);
	assert_int_equal(fc_exit_status(&e), 0);
	assert_int_equal(stats(login).in_flight, 0);
	assert_int_equal(stats(login).ok, 1);
}

/* Netflix/concurrency-limits #163, hyperledger/besu #11277: released again and again until the count
 * was below zero, and admission off for good. */
static void stale_copies_of_entries_release_nothing(void **state)
{
	enum { N = 64 };
	static struct fc_entry live[N], stale[N];
	struct fc_iface *f = capped(fc, "fuzz", N / 2);
	uint32_t inside = 0;
	struct rng rng;

	(void)state;
	memset(live, 0, sizeof(live));
	memset(stale, 0, sizeof(stale));
	rng_init(&rng, 163);
	for (int round = 0; round < 20000; round++) {
		uint32_t i = rng_below(&rng, N);
		struct fc_entry copy = live[i];

		switch (rng_below(&rng, 4)) {
		case 0:
			if (live[i].word_)
				break;
			assert_int_equal(fc_enter(&live[i], f, NULL), inside < N / 2 ? 0 : FC_REFUSED_CAP);
			inside += live[i].word_ != 0;
			break;
		case 1:
			assert_int_equal(fc_exit_status(&live[i]), copy.word_ ? 1 : 0);
			inside -= copy.word_ != 0;
			if (copy.word_)
				stale[i] = copy;
			break;
		default:
			copy = stale[rng_below(&rng, N)];
			assert_int_not_equal(fc_exit_status(&copy), 1);
		}
		assert_int_equal(stats(f).in_flight, inside);
	}
	for (int i = 0; i < N; i++)
		fc_exit(&live[i]);
	assert_int_equal(stats(f).in_flight, 0);
	assert_int_equal(let_in(f, N), N / 2);
}

static void the_last_mark_counts(void **state)
{
	static const int marks[][3] = {
		{ FC_OUTCOME_ERROR, FC_OUTCOME_TIMEOUT, FC_OUTCOME_OK },
		{ FC_OUTCOME_OK, FC_OUTCOME_OK, FC_OUTCOME_ERROR },
		{ FC_OUTCOME_ERROR, FC_OUTCOME_IGNORED, FC_OUTCOME_TIMEOUT },
		{ FC_OUTCOME_ERROR, FC_OUTCOME_ERROR, FC_OUTCOME_IGNORED },
		/* What the program may not say is no mark. */
		{ FC_OUTCOME_ABANDONED, -1, 5 },
		{ FC_OUTCOME_ERROR, FC_OUTCOME_ABANDONED, INT32_MAX },
	};
	struct fc_stats s;

	(void)state;
	for (size_t i = 0; i < COUNT(marks); i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		assert_int_equal(fc_enter(&e, login, NULL), 0);
		for (int k = 0; k < 3; k++)
			fc_entry_mark(&e, marks[i][k]);
		fc_exit(&e);
	}
	s = stats(login);
	assert_int_equal(s.ok, 2);
	assert_int_equal(s.unmarked, 1);
	assert_int_equal(s.error, 2);
	assert_int_equal(s.timeout, 1);
	assert_int_equal(s.ignored, 1);
	assert_int_equal(s.abandoned, 0);
	assert_int_equal(s.admitted, 6);
}

/* ---- the caller's context ---------------------------------------------------------------------- */

static void a_context_of_another_header_is_read_right(void **state)
{
	struct {
		struct fc_ctx ctx;
		uint64_t newer[2];
	} c;

	(void)state;
	memset(&c, 0, sizeof(c));
	assert_int_equal(call(login, &c.ctx), -EINVAL);
	c.ctx.size = sizeof(struct fc_ctx) - 1;
	assert_int_equal(call(login, &c.ctx), -EINVAL);
	c.ctx.size = sizeof(struct fc_ctx);
	assert_int_equal(call(login, &c.ctx), 0);
	c.newer[0] = 1; /* behind its size: not read */
	assert_int_equal(call(login, &c.ctx), 0);
	c.ctx.size = sizeof(c);
	assert_int_equal(call(login, &c.ctx), -E2BIG);
	c.newer[0] = 0;
	assert_int_equal(call(login, &c.ctx), 0);
	c.newer[1] = 1ull << 63;
	assert_int_equal(call(login, &c.ctx), -E2BIG);
	assert_int_equal(stats(login).admitted, 3);
}

static void fields_of_a_context_have_bounds(void **state)
{
	struct fc_label labels[17];
	FC_OPTS(fc_ctx, c, .n_labels = 16, .labels = labels);

	(void)state;
	memset(labels, 0, sizeof(labels));
	assert_int_equal(call(login, &c), 0);
	c.n_labels = 17;
	assert_int_equal(call(login, &c), -EINVAL);
	c.n_labels = UINT32_MAX;
	assert_int_equal(call(login, &c), -EINVAL);
	c.n_labels = 1;
	c.labels = NULL;
	assert_int_equal(call(login, &c), -EINVAL);
	c.n_labels = 0;
	for (c.priority = 0; c.priority <= 7; c.priority++)
		assert_int_equal(call(login, &c), 0);
	assert_int_equal(call(login, &c), -EINVAL);
	c.priority = UINT32_MAX;
	assert_int_equal(call(login, &c), -EINVAL);
	c.priority = 0;
	c.stuck_after_ns = FC_S(49 * 86400ull);
	assert_int_equal(call(login, &c), 0);
	c.stuck_after_ns = FC_S(50 * 86400ull);
	assert_int_equal(call(login, &c), -EINVAL);
	c.stuck_after_ns = FC_NEVER_NS;
	assert_int_equal(call(login, &c), -EINVAL);
	assert_int_equal(stats(login).admitted, 10);
}

/* alibaba/sentinel-golang #556, PR #557: the batch count was ignored. */
static void a_call_takes_as_many_places_as_it_is_heavy(void **state)
{
	static const struct { uint32_t weight; int rc; uint32_t places; } cases[] = {
		{ 0, 0, 1 }, { 1, 0, 1 }, { 2, 0, 2 }, { 3, 0, 3 }, { 4, 0, 4 },
		{ 5, FC_REFUSED_WEIGHT, 0 }, { FC_WEIGHT_MAX, FC_REFUSED_WEIGHT, 0 },
		{ FC_WEIGHT_MAX + 1, FC_REFUSED_WEIGHT, 0 }, { UINT32_MAX, FC_REFUSED_WEIGHT, 0 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		FC_OPTS(fc_ctx, c, .weight = cases[i].weight);
		struct fc_entry e = FC_ENTRY_INIT;
		int rc = fc_enter(&e, login, &c);

		assert_int_equal(rc, cases[i].rc);
		assert_int_equal(stats(login).in_flight, cases[i].places);
		if (rc) {
			struct fc_decision d = decision(&e);

			assert_int_equal(d.observed, cases[i].weight);
			assert_int_equal(d.limit, cases[i].weight > FC_WEIGHT_MAX ? FC_WEIGHT_MAX : 4);
		}
		fc_exit(&e);
		assert_int_equal(stats(login).in_flight, 0);
	}
	assert_int_equal(stats(login).admitted, 5);
	assert_int_equal(let_in(login, 6), 4);
}

static void a_heavy_call_takes_all_its_places_or_none(void **state)
{
	FC_OPTS(fc_ctx, three, .weight = 3);
	struct fc_entry a = FC_ENTRY_INIT, b = FC_ENTRY_INIT, c = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&a, login, NULL), 0);
	assert_int_equal(fc_enter(&b, login, NULL), 0);
	assert_int_equal(fc_enter(&c, login, &three), FC_REFUSED_CAP);
	assert_int_equal(stats(login).in_flight, 2);
	fc_exit(&a);
	assert_int_equal(fc_enter(&c, login, &three), 0);
	assert_int_equal(stats(login).in_flight, 4);
	assert_int_equal(call(login, NULL), FC_REFUSED_CAP);
	fc_exit(&b);
	fc_exit(&c);
	assert_int_equal(stats(login).in_flight, 0);
	assert_int_equal(stats(login).admitted, 3);
	assert_int_equal(let_in(login, 6), 4);
}

static void the_greatest_weight_can_be_set(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 2048, .expand = 1, .max_weight = 2);
	FC_OPTS(fc_ctx, c, .weight = 2);
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "heavy", &o, &f), 0);
	assert_int_equal(call(f, &c), 0);
	c.weight = 3;
	assert_int_equal(call(f, &c), FC_REFUSED_WEIGHT);
	o.max_weight = 0; /* the default: as much as there is */
	assert_int_equal(fc_iface_set(fc, "heavy", &o, &f), 0);
	c.weight = FC_WEIGHT_MAX;
	assert_int_equal(call(f, &c), 0);
	o.max_weight = FC_WEIGHT_MAX + 1;
	assert_int_equal(fc_iface_set(fc, "heavy", &o, &f), -EINVAL);
	assert_int_equal(stats(f).in_flight, 0);
}

static void a_heavy_call_without_a_cap_is_never_refused(void **state)
{
	struct fc_iface *f = fc_iface_get(fc, "observed");
	FC_OPTS(fc_ctx, c, .weight = FC_WEIGHT_MAX);
	struct fc_entry e[6] = { FC_ENTRY_INIT };

	(void)state;
	for (size_t i = 0; i < COUNT(e); i++)
		assert_int_equal(fc_enter(&e[i], f, &c), 0);
	for (size_t i = 0; i < COUNT(e); i++)
		fc_exit(&e[i]);
	assert_int_equal(stats(f).in_flight, 0);
}

/* ---- names ------------------------------------------------------------------------------------- */

static void names_have_rules(void **state)
{
	char longest[FC_NAME_MAX + 2];
	const struct { const char *name; int rc; } cases[] = {
		{ "a", 0 }, { "user.login", 0 }, { " ", 0 }, { "with space", 0 }, { "\xc3\xa4", 0 },
		{ "\xe2\x82\xac", 0 }, { "\xf0\x9f\x98\x80", 0 }, { "\xf4\x8f\xbf\xbf", 0 },
		{ "%s%n", 0 }, { longest, 0 },
		{ NULL, -EINVAL }, { "", -EINVAL }, { "a\nb", -EINVAL }, { "\t", -EINVAL }, { "a\x7f", -EINVAL },
		{ "\x1f", -EINVAL },
		{ "\x80", -EILSEQ }, { "a\xff", -EILSEQ }, { "\xc0\x80", -EILSEQ }, { "\xc1\xbf", -EILSEQ },
		{ "\xc3", -EILSEQ }, { "\xe2\x82", -EILSEQ }, { "\xe0\x80\x80", -EILSEQ },
		{ "\xed\xa0\x80", -EILSEQ }, { "\xf4\x90\x80\x80", -EILSEQ }, { "\xf0\x80\x80\x80", -EILSEQ },
		{ "\xf5\x80\x80\x80", -EILSEQ },
	};

	(void)state;
	memset(longest, 'x', sizeof(longest));
	longest[FC_NAME_MAX] = 0;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct fc_iface *f = login;
		uint32_t before = totals(fc).ifaces;

		if (cases[i].name && !strcmp(cases[i].name, "user.login"))
			before--;
		assert_int_equal(fc_iface_set(fc, cases[i].name, NULL, &f), cases[i].rc);
		assert_int_equal(totals(fc).ifaces, before + (cases[i].rc == 0));
		if (cases[i].rc == 0) {
			assert_string_equal(fc_iface_name(f), cases[i].name);
			assert_ptr_equal(fc_iface_find(fc, cases[i].name), f);
			assert_ptr_equal(fc_iface_get(fc, cases[i].name), f);
		} else {
			assert_ptr_equal(f, login);
			assert_null(fc_iface_find(fc, cases[i].name));
			assert_true(strstr(last_log, "interface") != NULL);
			assert_true(stats(fc_iface_get(fc, cases[i].name)).flags & FC_STATS_PASS_THROUGH);
		}
	}
	longest[FC_NAME_MAX] = 'x';
	longest[FC_NAME_MAX + 1] = 0;
	assert_int_equal(fc_iface_set(fc, longest, NULL, NULL), -ENAMETOOLONG);
	assert_true(stats(fc_iface_get(fc, longest)).flags & FC_STATS_PASS_THROUGH);
	assert_null(fc_iface_find(fc, longest));
}

static void interfaces_are_listed_in_order_of_creation(void **state)
{
	struct fc_iface *f;
	char name[16];

	(void)state;
	for (uint32_t i = 1; i < 300; i++) {
		snprintf(name, sizeof(name), "iface.%u", i);
		f = fc_iface_get(fc, name);
		assert_ptr_equal(fc_iface_at(fc, i), f);
		assert_ptr_equal(fc_iface_context(fc_iface_at(fc, i)), fc);
	}
	for (uint32_t i = 1; i < 300; i++) {
		snprintf(name, sizeof(name), "iface.%u", i);
		assert_ptr_equal(fc_iface_find(fc, name), fc_iface_at(fc, i));
	}
	assert_ptr_equal(fc_iface_at(fc, 0), login);
	assert_null(fc_iface_at(fc, 300));
	assert_null(fc_iface_at(fc, UINT32_MAX));
	assert_null(fc_iface_at(NULL, 0));
	assert_null(fc_iface_find(fc, "iface"));
	assert_null(fc_iface_find(fc, NULL));
	assert_null(fc_iface_find(NULL, "iface.1"));
	assert_int_equal(fc_iface_set(NULL, "iface.1", NULL, NULL), -EINVAL);
}

/* ---- options ----------------------------------------------------------------------------------- */

/* Sizes that every options struct must answer alike: given the struct with room behind it, and the call. */
static void sizes(void *opts, uint32_t known, uint32_t v1, int (*use)(const void *))
{
	uint32_t *size = opts;
	unsigned char *bytes = opts;

	*size = 0;
	assert_int_equal(use(opts), -EINVAL);
	*size = 4;
	assert_int_equal(use(opts), -EINVAL);
	*size = v1 - 1;
	assert_int_equal(use(opts), -EINVAL);
	*size = v1;
	assert_int_equal(use(opts), 0);
	*size = known;
	bytes[known] = 1;
	assert_int_equal(use(opts), 0);
	*size = known + 16;
	assert_int_equal(use(opts), -E2BIG);
	bytes[known] = 0;
	bytes[known + 15] = 1;
	assert_int_equal(use(opts), -E2BIG);
	bytes[known + 15] = 0;
	assert_int_equal(use(opts), 0);
	assert_int_equal(use(NULL), 0);
}

static int use_opts(const void *opts)
{
	struct fc *made = NULL;
	int rc = fc_create(&made, opts);

	assert_true((rc == 0) == (made != NULL));
	fc_destroy(made);
	return rc;
}

static int use_iface_opts(const void *opts)
{
	return fc_iface_set(fc, "sizes", opts, NULL);
}

static int use_system_opts(const void *opts)
{
	return fc_system_set(fc, opts);
}

static int use_health_opts(const void *opts)
{
	FC_OPTS(fc_opts, o, .health = opts);

	return use_opts(&o);
}

static void options_of_older_and_newer_headers_are_read_right(void **state)
{
	union {
		struct fc_opts opts;
		struct fc_iface_opts iface;
		struct fc_system_opts system;
		struct fc_health_opts health;
		unsigned char bytes[512];
	} u;

	(void)state;
	memset(&u, 0, sizeof(u));
	sizes(&u, sizeof(u.opts), sizeof(u.opts), use_opts);
	memset(&u, 0, sizeof(u));
	sizes(&u, sizeof(u.iface), sizeof(u.iface), use_iface_opts);
	memset(&u, 0, sizeof(u));
	sizes(&u, sizeof(u.system), sizeof(u.system), use_system_opts);
	memset(&u, 0, sizeof(u));
	sizes(&u, sizeof(u.health), sizeof(u.health), use_health_opts);
}

static int get_stats(void *ret)
{
	return fc_iface_stats(login, ret);
}

static int get_opts(void *ret)
{
	return fc_iface_get_opts(login, ret);
}

static int get_totals(void *ret)
{
	return fc_totals(fc, ret);
}

static int get_health(void *ret)
{
	return fc_health_get(fc, ret);
}

static int get_decision(void *ret)
{
	struct fc_entry e = FC_ENTRY_INIT;

	assert_int_equal(fc_enter(&e, login, NULL), FC_REFUSED_INJECTED);
	return fc_entry_decision(&e, ret);
}

static void results_fit_older_and_newer_headers(void **state)
{
	static const struct { uint32_t size; int (*get)(void *); } cases[] = {
		{ sizeof(struct fc_stats), get_stats }, { sizeof(struct fc_iface_opts), get_opts },
		{ sizeof(struct fc_totals), get_totals }, { sizeof(struct fc_decision), get_decision },
		{ sizeof(struct fc_health), get_health },
	};
	static _Alignas(8) unsigned char buffer[1024];
	uint32_t *size = (uint32_t *)(void *)buffer;

	(void)state;
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_INJECTED, FC_UNLIMITED), 0);
	for (size_t i = 0; i < COUNT(cases); i++) {
		memset(buffer, 0xee, sizeof(buffer));
		*size = 0;
		assert_int_equal(cases[i].get(buffer), -EINVAL);
		*size = cases[i].size - 1;
		assert_int_equal(cases[i].get(buffer), -EINVAL);
		*size = cases[i].size;
		assert_int_equal(cases[i].get(buffer), 0);
		assert_int_equal(*size, cases[i].size);
		assert_int_equal(buffer[cases[i].size], 0xee);
		*size = cases[i].size + 64; /* what the library does not know is zero */
		assert_int_equal(cases[i].get(buffer), 0);
		assert_int_equal(*size, cases[i].size + 64);
		for (uint32_t k = 0; k < 64; k++)
			assert_int_equal(buffer[cases[i].size + k], 0);
		assert_int_equal(buffer[cases[i].size + 64], 0xee);
		assert_int_equal(cases[i].get(NULL), -EINVAL);
	}
	assert_int_equal(fc_iface_inject(login, 0, 0), 0);
}

static void bad_fields_make_no_context(void **state)
{
	static void *(*const some)(void *, size_t) = keep_alloc;
	struct fc_alloc half[2] = { { some, NULL, NULL }, { NULL, keep_free, NULL } };
	struct fc_opts bad[10];
	struct fc *made = fc;

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++)
		bad[i] = defaults();
	bad[0].flags = 1u << 31;
	bad[1].clock = FC_CLOCK_VIRTUAL + 1;
	bad[2].on_fault = FC_FAIL_CLOSED + 1;
	bad[3].max_ifaces = FC_IFACES_MAX + 1;
	bad[4].default_cap = FC_CAP_MAX + 1;
	bad[5].recorder_slots = 3;
	bad[6].recorder_slots = 131072;
	bad[7].alloc = &half[0];
	bad[8].alloc = &half[1];
	bad[9].max_ifaces = UINT32_MAX;
	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_int_equal(fc_create(&made, &bad[i]), -EINVAL);
		assert_ptr_equal(made, fc);
	}
	assert_int_equal(fc_create(NULL, NULL), -EINVAL);
}

static void bad_fields_change_nothing_and_are_named(void **state)
{
	static const struct { const char *what; size_t offset; uint32_t value; } cases[] = {
		{ "flags", offsetof(struct fc_iface_opts, flags), 8 },
		{ "cap", offsetof(struct fc_iface_opts, cap), FC_CAP_MAX + 1 },
		{ "cap", offsetof(struct fc_iface_opts, cap), FC_CAP_REFUSE_ALL - 1 },
		{ "max_cap", offsetof(struct fc_iface_opts, max_cap), FC_CAP_MAX + 1 },
		{ "max_cap", offsetof(struct fc_iface_opts, max_cap), FC_UNLIMITED },
		{ "expand", offsetof(struct fc_iface_opts, expand), 5 },
		{ "expand_keep", offsetof(struct fc_iface_opts, expand_keep), 3 },
		{ "wait_max", offsetof(struct fc_iface_opts, wait_max), FC_WAITERS_MAX + 1 },
		{ "wait_order", offsetof(struct fc_iface_opts, wait_order), 3 },
		{ "max_weight", offsetof(struct fc_iface_opts, max_weight), FC_WEIGHT_MAX + 1 },
		{ "latency", offsetof(struct fc_iface_opts, latency), 4 },
		{ "on_fault", offsetof(struct fc_iface_opts, on_fault), 3 },
		{ "importance", offsetof(struct fc_iface_opts, importance), 8 },
		{ "resv", offsetof(struct fc_iface_opts, resv), 1 },
	};
	FC_OPTS(fc_iface_opts, before, .cap = 0);
	FC_OPTS(fc_iface_opts, after, .cap = 0);

	(void)state;
	assert_int_equal(fc_iface_get_opts(login, &before), 0);
	for (size_t i = 0; i < COUNT(cases); i++) {
		FC_OPTS(fc_iface_opts, o, .cap = 7);
		struct fc_iface *ret = NULL;

		memcpy((char *)&o + cases[i].offset, &cases[i].value, sizeof(uint32_t));
		last_log[0] = 0;
		assert_int_equal(fc_iface_set(fc, "user.login", &o, &ret), -EINVAL);
		assert_true(strstr(last_log, "user.login") && strstr(last_log, cases[i].what) && strstr(last_log, "allowed"));
		assert_int_equal(fc_iface_set(fc, "new", &o, &ret), -EINVAL);
		assert_null(ret);
	}
	assert_null(fc_iface_find(fc, "new"));
	assert_int_equal(fc_iface_get_opts(login, &after), 0);
	assert_memory_equal(&before, &after, sizeof(before));
}

static void options_that_were_set_are_those_in_force(void **state)
{
	FC_OPTS(fc_iface_opts, set, .flags = FC_IFACE_OUTBOUND, .cap = 100, .max_cap = 200, .expand = 2,
	        .expand_keep = FC_EXPAND_KEEP_HEALTH, .writeoff = 7, .wait_max = 9, .wait_order = FC_WAIT_FIFO,
	        .max_weight = 10, .latency = FC_LATENCY_EXACT, .on_fault = FC_FAIL_CLOSED, .importance = 5,
	        .stuck_after_ns = FC_S(3), .writeoff_after_ns = FC_S(4), .wait_timeout_ns = FC_MS(5),
	        .check_every_ns = FC_MS(6));
	FC_OPTS(fc_iface_opts, got, .cap = 0);
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "all", &set, &f), 0);
	assert_int_equal(fc_iface_get_opts(f, &got), 0);
	assert_memory_equal(&set, &got, sizeof(set));
	/* What was got can be set. */
	assert_int_equal(fc_iface_set(fc, "all", &got, NULL), 0);
	assert_int_equal(fc_iface_get_opts(f, &got), 0);
	assert_memory_equal(&set, &got, sizeof(set));
	/* One number alone. */
	assert_int_equal(fc_iface_set_cap(f, 150), 0);
	assert_int_equal(fc_iface_set_dry_run(f, 1), 0);
	assert_int_equal(fc_iface_get_opts(f, &got), 0);
	set.cap = 150;
	set.flags |= FC_IFACE_DRY_RUN;
	assert_memory_equal(&set, &got, sizeof(set));
}

static void defaults_are_those_of_the_header(void **state)
{
	FC_OPTS(fc_iface_opts, got, .cap = 0);
	FC_OPTS(fc_iface_opts, o, .cap = 64, .wait_max = 1);
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "plain", &o, &f), 0);
	assert_int_equal(fc_iface_get_opts(f, &got), 0);
	assert_int_equal(got.max_cap, 64);
	assert_int_equal(got.expand, 4);
	assert_int_equal(got.expand_keep, FC_EXPAND_KEEP_EVIDENCE);
	assert_int_equal(got.writeoff, 6);
	assert_int_equal(got.wait_order, FC_WAIT_LIFO);
	assert_int_equal(got.max_weight, FC_WEIGHT_MAX);
	assert_int_equal(got.latency, FC_LATENCY_SAMPLED);
	assert_int_equal(got.on_fault, FC_FAIL_OPEN);
	assert_int_equal(got.stuck_after_ns, FC_S(5));
	assert_int_equal(got.writeoff_after_ns, FC_S(20));
	assert_int_equal(got.wait_timeout_ns, FC_MS(100));
	assert_int_equal(got.check_every_ns, FC_MS(10));
}

static void no_options_are_no_cap(void **state)
{
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "plain", NULL, &f), 0);
	assert_int_equal(stats(f).cap, FC_UNLIMITED);
	assert_int_equal(stats(f).limit, FC_UNLIMITED);
	assert_int_equal(let_in(f, 200), 200);
}

/* ---- caps -------------------------------------------------------------------------------------- */

/* scireum/sirius-biz PR #2408: limit + 1 admitted. */
static void a_cap_lets_exactly_so_many_in(void **state)
{
	(void)state;
	for (uint32_t cap = 1; cap <= 70; cap++) {
		char name[16];
		struct fc_iface *f;

		snprintf(name, sizeof(name), "cap.%u", cap);
		f = capped(fc, name, cap);
		assert_int_equal(let_in(f, cap + 3), cap);
		assert_int_equal(let_in(f, cap + 3), cap);
		assert_int_equal(stats(f).refused[FC_REFUSED_CAP], 6);
	}
}

static void the_greatest_cap_lets_exactly_so_many_in(void **state)
{
	struct fc_iface *f = capped(fc, "greatest", FC_CAP_MAX);

	(void)state;
	assert_int_equal(let_in(f, FC_CAP_MAX + 1), FC_CAP_MAX);
	assert_int_equal(fc_iface_set_cap(f, FC_CAP_MAX + 1), -EINVAL);
	assert_int_equal(stats(f).cap, FC_CAP_MAX);
}

/* golang/go #47221, resilience4j #417: zero behaved as unlimited. */
static void a_cap_of_zero_refuses_all(void **state)
{
	struct fc_iface *f = capped(fc, "closed", FC_CAP_REFUSE_ALL);
	FC_OPTS(fc_ctx, heavy, .weight = 2);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(let_in(f, 10), 0);
	assert_int_equal(fc_enter(&e, f, &heavy), FC_REFUSED_CAP);
	assert_int_equal(fc_enter(&e, f, NULL), FC_REFUSED_CAP);
	assert_int_equal(decision(&e).limit, 0);
	assert_int_equal(stats(f).cap, 0);
	assert_int_equal(stats(f).limit, 0);
	assert_int_equal(fc_iface_set_cap(f, 3), 0);
	assert_int_equal(let_in(f, 10), 3);
	assert_int_equal(fc_iface_set_cap(f, 0), 0);
	assert_int_equal(let_in(f, 10), 0);
	assert_int_equal(fc_iface_set_cap(f, FC_UNLIMITED), 0);
	assert_int_equal(let_in(f, 300), 300);
	assert_int_equal(fc_iface_set_cap(f, 5), 0);
	assert_int_equal(let_in(f, 300), 5);
}

static void a_lower_cap_lets_nobody_in_until_the_count_is_under_it(void **state)
{
	struct fc_entry e[4] = { FC_ENTRY_INIT };

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&e[i], login, NULL), 0);
	assert_int_equal(fc_iface_set_cap(login, 2), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(call(login, NULL), FC_REFUSED_CAP);
		fc_exit(&e[i]);
	}
	assert_int_equal(stats(login).in_flight, 1);
	assert_int_equal(call(login, NULL), 0);
	fc_exit(&e[3]);
	assert_int_equal(let_in(login, 5), 2);
}

static void an_interface_without_a_rule_is_observed_and_never_refused(void **state)
{
	struct fc_iface *f = fc_iface_get(fc, "observed");
	struct fc_stats s = stats(f);

	(void)state;
	assert_true(s.flags & FC_STATS_UNRULED);
	assert_int_equal(s.cap, FC_UNLIMITED);
	assert_int_equal(let_in(f, 10000), 10000);
	s = stats(f);
	assert_int_equal(s.admitted + s.untracked, 10000);
	assert_true(s.admitted >= 4096);
	assert_int_equal(s.in_flight, 0);
	for (int i = 0; i < FC_STATS_REASONS; i++)
		assert_int_equal(s.refused[i], 0);
	/* A rule ends that. */
	(void)capped(fc, "observed", 10);
	assert_false(stats(f).flags & FC_STATS_UNRULED);
	assert_int_equal(let_in(f, 100), 10);
}

static void a_switch_makes_no_rule(void **state)
{
	struct fc_iface *f = fc_iface_get(fc, "observed");

	(void)state;
	assert_int_equal(fc_iface_set_off(f, 1), 0);
	assert_true(stats(f).flags & FC_STATS_UNRULED);
	assert_int_equal(fc_iface_set_off(f, 0), 0);
	assert_int_equal(fc_iface_set_dry_run(f, 1), 0);
	assert_int_equal(fc_iface_set_dry_run(f, 0), 0);
	assert_true(stats(f).flags & FC_STATS_UNRULED);
	assert_int_equal(fc_iface_set_cap(f, 3), 0);
	assert_false(stats(f).flags & FC_STATS_UNRULED);
}

static void the_default_cap_is_for_interfaces_without_a_rule(void **state)
{
	struct fc_opts o = defaults();
	struct fc *other;
	struct fc_iface *f;

	(void)state;
	o.default_cap = 3;
	other = context(&o);
	f = fc_iface_get(other, "unruled");
	assert_true(stats(f).flags & FC_STATS_UNRULED);
	assert_int_equal(stats(f).cap, 3);
	assert_int_equal(let_in(f, 10), 3);
	assert_int_equal(let_in(capped(other, "ruled", 5), 10), 5);
	assert_int_equal(fc_iface_set(other, "no.number", NULL, &f), 0);
	assert_int_equal(stats(f).cap, 3);
	assert_int_equal(let_in(capped(other, "unlimited", FC_UNLIMITED), 100), 100);
	fc_destroy(other);
}

/* The configuration of an interface that a guard has met before anybody configured it. */
static void a_rule_that_comes_late_is_as_good(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 20, .wait_max = 4, .writeoff = 5);
	FC_OPTS(fc_iface_opts, got, .cap = 0);
	struct fc_iface *f = fc_iface_get(fc, "late");

	(void)state;
	assert_int_equal(fc_iface_set(fc, "late", &o, NULL), 0);
	assert_int_equal(fc_iface_get_opts(f, &got), 0);
	assert_int_equal(got.wait_max, 4);
	assert_int_equal(got.writeoff, 5);
}

/* ---- full tables ------------------------------------------------------------------------------- */

/* Calls through a handle that stands for nothing. */
static void check_pass_through(struct fc *of, struct fc_iface *f, int closed)
{
	FC_OPTS(fc_iface_opts, o, .cap = 0);
	struct fc_entry e[3] = { FC_ENTRY_INIT };
	uint64_t before = totals(of).pass_through;
	int want = closed ? FC_REFUSED_FAULT : 0;

	assert_non_null(f);
	assert_ptr_equal(fc_iface_context(f), of);
	assert_true(stats(f).flags & FC_STATS_PASS_THROUGH);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fc_enter(&e[i], f, NULL), want);
		assert_int_equal(fc_entry_verdict(&e[i]), want);
	}
	if (closed)
		assert_string_equal(decision(&e[0]).rule, "on_fault");
	assert_int_equal(totals(of).pass_through, before + 3);
	fc_entry_mark(&e[0], FC_OUTCOME_ERROR);
	assert_int_equal(fc_entry_suspend(&e[0]), -EINVAL);
	fc_entry_take(&e[2], &e[1]);
	assert_int_equal(fc_exit_status(&e[0]), !closed);
	assert_int_equal(fc_exit_status(&e[0]), 0);
	assert_int_equal(fc_exit_status(&e[1]), 0);
	assert_int_equal(fc_exit_status(&e[2]), !closed);
	assert_int_equal(fc_in_flight(f, NULL, 0), 0);
	assert_int_equal(fc_iface_set_cap(f, 1), -EINVAL);
	assert_int_equal(fc_iface_set_off(f, 1), -EINVAL);
	assert_int_equal(fc_iface_set_dry_run(f, 1), -EINVAL);
	assert_int_equal(fc_iface_inject(f, FC_REFUSED_INJECTED, 1), -EINVAL);
	assert_int_equal(fc_iface_drain(f, 0), -EINVAL);
	assert_int_equal(fc_iface_get_opts(f, &o), -EINVAL);
	assert_int_equal(fc_iface_set_chain(f, NULL, 0), -EINVAL);
	fc_iface_undrain(f);
}

static void a_full_table_of_interfaces(uint32_t on_fault)
{
	struct fc_opts o = defaults();
	struct fc_iface *known, *f = NULL;
	struct fc *small;

	o.max_ifaces = 2;
	o.on_fault = on_fault;
	small = context(&o);
	known = capped(small, "known", 1);
	(void)capped(small, "second", 1);
	last_log[0] = 0;
	assert_int_equal(fc_iface_set(small, "third", NULL, &f), -ENOSPC);
	assert_null(f);
	assert_true(strstr(last_log, "third") && strstr(last_log, "2 of 2"));
	check_pass_through(small, fc_iface_get(small, "third"), on_fault == FC_FAIL_CLOSED);
	assert_null(fc_iface_find(small, "third"));
	assert_true(totals(small).faults >= 1);
	assert_int_equal(totals(small).ifaces, 2);
	/* The others go on. */
	assert_int_equal(let_in(known, 3), 1);
	assert_int_equal(fc_iface_set_cap(known, 2), 0);
	assert_ptr_equal(fc_iface_get(small, "known"), known);
	assert_int_equal(let_in(known, 3), 2);
	fc_destroy(small);
}

static void a_full_table_of_interfaces_lets_calls_pass_when_open(void **state)
{
	(void)state;
	a_full_table_of_interfaces(FC_FAIL_DEFAULT);
	a_full_table_of_interfaces(FC_FAIL_OPEN);
}

static void a_full_table_of_interfaces_refuses_calls_when_closed(void **state)
{
	(void)state;
	a_full_table_of_interfaces(FC_FAIL_CLOSED);
}

static void lookups_that_fail_are_logged_once(void **state)
{
	(void)state;
	log_lines = 0;
	for (int i = 0; i < 100; i++)
		(void)fc_iface_get(fc, "");
	assert_int_equal(log_lines, 1);
	assert_int_equal(totals(fc).faults, 100);
}

static void a_segment_that_is_too_small_makes_no_context(void **state)
{
	struct fc_opts o = defaults();
	struct fc *made = NULL;

	(void)state;
	o.segment_bytes = 1;
	assert_int_equal(fc_create(&made, &o), -ENOSPC);
	o.segment_bytes = 4096;
	assert_int_equal(fc_create(&made, &o), -ENOSPC);
	assert_null(made);
}

/* The smallest segment that a context can be made in. */
static uint64_t smallest(struct fc_opts *o)
{
	uint64_t low = 1, high = 1ull << 32;
	struct fc *made = NULL;

	while (low < high) {
		o->segment_bytes = low + (high - low) / 2;
		if (fc_create(&made, o) == 0) {
			fc_destroy(made);
			high = o->segment_bytes;
		} else {
			low = o->segment_bytes + 1;
		}
	}
	return low;
}

static void a_full_segment(uint32_t on_fault)
{
	struct fc_opts o = defaults();
	struct fc_iface *first, *f = NULL;
	struct fc *small;
	int rc = 0, n;

	o.max_ifaces = 64;
	o.recorder_slots = 16;
	o.on_fault = on_fault;
	o.segment_bytes = smallest(&o);
	small = context(&o);
	first = capped(small, "first", 4);
	for (n = 0; n < 63 && rc == 0; n++) {
		char name[16];
		FC_OPTS(fc_iface_opts, i, .cap = 16, .expand = 1);

		snprintf(name, sizeof(name), "iface.%d", n);
		rc = fc_iface_set(small, name, &i, &f);
		if (rc)
			assert_null(fc_iface_find(small, name));
	}
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(totals(small).ifaces, n);
	check_pass_through(small, fc_iface_get(small, "one.more"), on_fault == FC_FAIL_CLOSED);
	/* A greater cap finds no memory and changes nothing; a smaller one needs none. */
	last_log[0] = 0;
	assert_int_equal(fc_iface_set_cap(first, FC_CAP_MAX), -ENOSPC);
	assert_true(strstr(last_log, "first") && strstr(last_log, "segment"));
	assert_int_equal(stats(first).cap, 4);
	assert_int_equal(let_in(first, 9), 4);
	assert_int_equal(fc_iface_set_cap(first, 2), 0);
	assert_int_equal(let_in(first, 9), 2);
	assert_true(totals(small).bytes_used <= totals(small).bytes_mapped);
	fc_destroy(small);
}

static void a_full_segment_lets_calls_pass_when_open(void **state)
{
	(void)state;
	a_full_segment(FC_FAIL_OPEN);
}

static void a_full_segment_refuses_calls_when_closed(void **state)
{
	(void)state;
	a_full_segment(FC_FAIL_CLOSED);
}

/* alibaba/Sentinel #1170, #1484: gigabytes for many resources. */
static void an_interface_takes_no_more_memory_than_published(void **state)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	uint64_t before = totals(fc).bytes_used, touched = 0, published = fc_iface_bytes(64, (uint32_t)cpus, &touched);
	char name[16];

	(void)state;
	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "iface.%d", i);
		(void)capped(fc, name, 64);
	}
	assert_true(totals(fc).bytes_used - before <= 500 * published);
	assert_true(touched > 0 && touched < published);
	/* 10^5 interfaces on 256 CPUs are affordable: address space, of which little is touched. */
	assert_true(fc_iface_bytes(64, 256, &touched) < 512 * 1024);
	assert_true(touched < 8192);
}

/* alibaba/Sentinel #2485: asynchronous entries that nobody ever ended were chained until memory ran out. */
static void entries_that_nobody_ends_take_bounded_memory(void **state)
{
	struct fc_iface *f = fc_iface_get(fc, "observed");
	uint64_t used;

	(void)state;
	for (uint32_t i = 0; i < 200000; i++) {
		struct fc_entry e = FC_ENTRY_INIT, lost;

		assert_int_equal(fc_enter(&e, f, NULL), 0);
		fc_entry_take(&lost, &e);
		if (i == 10000)
			used = totals(fc).bytes_used;
	}
	assert_int_equal(totals(fc).bytes_used, used);
	assert_true(stats(f).in_flight <= 4096);
	assert_int_equal(stats(f).in_flight + stats(f).untracked, 200000);
	/* With a cap: refusals, and a report. */
	for (int i = 0; i < 4; i++) {
		struct fc_entry e = FC_ENTRY_INIT, lost;

		assert_int_equal(fc_enter(&e, login, NULL), 0);
		fc_entry_take(&lost, &e);
	}
	assert_int_equal(call(login, NULL), FC_REFUSED_CAP);
	fc_clock_advance(fc, FC_S(6));
	for (int i = 0; i < 20; i++)
		(void)fc_tick(fc, 0);
	assert_int_equal(stats(login).overdue, 4);
	fc = fc_destroy(fc);
	assert_int_equal(setup(NULL), 0);
}

/* ---- names and texts --------------------------------------------------------------------------- */

static void each_status_has_a_name_and_a_text(void **state)
{
#define STATUS(name_, number_, text_) { name_, #name_, text_, number_ },
	static const struct { int value; const char *name, *text; int number; } all[] = { FC_STATUS_MAP(STATUS) };
	char buf[64];

	(void)state;
	for (size_t i = 0; i < COUNT(all); i++) {
		assert_int_equal(all[i].value, all[i].number);
		assert_string_equal(fc_status_name(all[i].value), all[i].name);
		assert_string_equal(fc_status_text(all[i].value), all[i].text);
		assert_string_equal(fc_status_text_r(all[i].value, buf, sizeof(buf)), all[i].text);
		assert_true(all[i].number < FC_STATS_REASONS);
		for (size_t k = 0; k < i; k++)
			assert_int_not_equal(all[i].number, all[k].number);
	}
}

static void each_fault_has_a_name_and_a_text(void **state)
{
	static const struct { int value; const char *name; } all[] = {
		{ -EINVAL, "EINVAL" }, { -E2BIG, "E2BIG" }, { -ENOMEM, "ENOMEM" }, { -ENOSPC, "ENOSPC" },
		{ -ENAMETOOLONG, "ENAMETOOLONG" }, { -EILSEQ, "EILSEQ" }, { -EBUSY, "EBUSY" }, { -EAGAIN, "EAGAIN" },
		{ -EALREADY, "EALREADY" }, { -ESTALE, "ESTALE" }, { -ENODATA, "ENODATA" }, { FC_PENDING, "EINPROGRESS" },
	};

	(void)state;
	assert_int_equal(FC_PENDING, -EINPROGRESS);
	for (size_t i = 0; i < COUNT(all); i++) {
		assert_string_equal(fc_status_name(all[i].value), all[i].name);
		assert_true(strlen(fc_status_text(all[i].value)) > 3);
		assert_string_not_equal(fc_status_text(all[i].value), "unknown");
	}
}

static void an_unknown_status_is_said_to_be_unknown(void **state)
{
	char buf[32], tiny[4];

	(void)state;
	assert_string_equal(fc_status_name(500), "unknown");
	assert_string_equal(fc_status_text(-99999), "unknown");
	assert_string_equal(fc_status_text_r(500, buf, sizeof(buf)), "unknown (500)");
	assert_string_equal(fc_status_text_r(INT32_MIN, buf, sizeof(buf)), "unknown (-2147483648)");
	assert_string_equal(fc_status_text_r(500, tiny, sizeof(tiny)), "unk");
	assert_string_equal(fc_status_text_r(FC_OK, NULL, 0), "admitted");
	assert_string_equal(fc_status_name(FC_REFUSED_USER), "FC_REFUSED_USER");
	assert_string_equal(fc_status_name(4711), "FC_REFUSED_USER");
	assert_non_null(strstr(fc_status_text(4711), "own"));
}

static void each_event_has_its_name(void **state)
{
#define EVENT(name_, number_, level_, text_) { name_, #name_, number_, FC_LOG_##level_, text_ },
	static const struct { int value; const char *name; int number, level; const char *text; } all[] = { FC_EVENT_MAP(EVENT) };

	(void)state;
	for (size_t i = 0; i < COUNT(all); i++) {
		assert_int_equal(all[i].value, all[i].number);
		assert_int_equal(all[i].number, i + 1);
		assert_string_equal(fc_event_name(all[i].value), all[i].name);
		assert_true(all[i].text[0] != 0 && all[i].level <= FC_LOG_DEBUG);
	}
	assert_string_equal(fc_event_name(FC_EVENT_NONE), "unknown");
	assert_string_equal(fc_event_name((int)COUNT(all) + 1), "unknown");
	assert_string_equal(fc_event_name(-1), "unknown");
	assert_string_equal(fc_event_name(INT32_MIN), "unknown");
}

static void a_decision_becomes_an_answer_of_http(void **state)
{
#define NUMBER(name_, number_, text_) number_,
	static const int all[] = { FC_STATUS_MAP(NUMBER) FC_REFUSED_USER, INT32_MAX };
	static const struct { uint64_t ns; uint32_t s; } retry[] = {
		{ 0, 1 }, { 1, 1 }, { FC_MS(999), 1 }, { FC_S(1), 1 }, { FC_S(1) + 1, 2 }, { FC_S(60), 60 },
		{ FC_S(4294967294ull) + 1, UINT32_MAX }, { UINT64_MAX, UINT32_MAX },
	};
	FC_OPTS(fc_decision, d, .status = 0);

	(void)state;
	for (size_t i = 0; i < COUNT(all); i++) {
		d.status = all[i];
		assert_int_equal(fc_decision_http_status(&d), all[i] == FC_OK ? 200 :
		                 all[i] == FC_REFUSED_ACCESS ? 403 :
		                 all[i] == FC_REFUSED_RATE || all[i] == FC_REFUSED_QUOTA || all[i] == FC_REFUSED_KEY ? 429 : 503);
	}
	assert_int_equal(fc_decision_http_status(NULL), 200);
	for (size_t i = 0; i < COUNT(retry); i++) {
		d.retry_after_ns = retry[i].ns;
		assert_int_equal(fc_decision_retry_after_s(&d), retry[i].s);
	}
	assert_int_equal(fc_decision_retry_after_s(NULL), 1);
}

static void labels_are_hashed_by_key_and_value(void **state)
{
	struct fc_label a = fc_label("user", "alice"), b = fc_label("user", "bob"), c = fc_label("ip", "alice");
	struct fc_label none = fc_label(NULL, NULL), empty = fc_label("", "");
	struct fc_label four = fc_label_ip("ip", "192.0.2.7"), six = fc_label_ip("ip", "::ffff:192.0.2.7");
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000207) };
	struct fc_label addr = fc_label_addr("ip", (const struct sockaddr *)&in), text = fc_label_ip("ip", "nobody");

	(void)state;
	assert_true(a.key == b.key && a.value != b.value);
	assert_true(a.key != c.key && a.value == c.value);
	assert_true(none.key == empty.key && none.value == empty.value);
	assert_true(four.ip[0] == 0 && four.ip[1] == 0xffffc0000207ull && four.key == fc_label("ip", "").key);
	assert_true(six.value == four.value && addr.value == four.value && addr.ip[1] == four.ip[1]);
	assert_true(six.ip[1] == four.ip[1] && four.value != fc_label("ip", "192.0.2.7").value);
	assert_true(text.ip[0] == 0 && text.ip[1] == 0 && text.value == fc_label("ip", "nobody").value);
	in.sin_family = AF_UNIX;
	assert_true(fc_label_addr("ip", (const struct sockaddr *)&in).value == none.value);
	assert_true(fc_label_addr("ip", NULL).value == none.value);
}

/* The published vector, so that other programs and other versions give a label the same number. */
static void the_hash_is_siphash_2_4(void **state)
{
	const uint64_t key[2] = { 0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull };
	unsigned char in[15];

	(void)state;
	for (unsigned i = 0; i < sizeof(in); i++)
		in[i] = (unsigned char)i;
	assert_true(fci_siphash(key, in, sizeof(in)) == 0xa129ca6149be45e5ull);
	assert_true(fci_siphash(key, in, 8) == 0x93f5f5799a932462ull);
}

static void an_admitted_entry_has_no_decision(void **state)
{
	FC_OPTS(fc_decision, d, .status = 7);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_entry_decision(&e, &d), -ENODATA);
	assert_int_equal(d.status, 0);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	d.status = 7;
	assert_int_equal(fc_entry_decision(&e, &d), -ENODATA);
	assert_int_equal(d.status, 0);
	assert_null(d.rule);
	fc_exit(&e);
}

/* ---- switches ---------------------------------------------------------------------------------- */

static void off_lets_new_calls_through_and_those_inside_leave(void **state)
{
	struct fc_entry e[4] = { FC_ENTRY_INIT };
	uint64_t untracked;

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(fc_enter(&e[i], login, NULL), 0);
	fc_off_set(fc, 1);
	assert_true(fc_off_get(fc));
	assert_int_equal(let_in(login, 10), 10);
	assert_int_equal(let_in(fc_iface_get(fc, "made.while.off"), 10), 10);
	assert_int_equal(stats(fc_iface_get(fc, "made.while.off")).untracked, 10);
	assert_int_equal(stats(login).untracked, 10);
	assert_int_equal(stats(login).in_flight, 4);
	assert_int_equal(fc_exit_status(&e[0]), 1);
	assert_int_equal(stats(login).in_flight, 3);
	/* A call that began while off ends after it. */
	assert_int_equal(fc_enter(&e[0], login, NULL), 0);
	fc_off_set(fc, 0);
	assert_false(fc_off_get(fc));
	untracked = stats(login).untracked;
	assert_int_equal(let_in(login, 10), 1);
	assert_int_equal(fc_exit_status(&e[0]), 1);
	for (int i = 1; i < 4; i++)
		assert_int_equal(fc_exit_status(&e[i]), 1);
	assert_int_equal(let_in(login, 10), 4);
	assert_int_equal(stats(login).untracked, untracked);
	assert_int_equal(stats(login).late_exits, 0);
	fc_off_set(NULL, 1);
	assert_false(fc_off_get(NULL));
}

static void one_interface_can_be_off(void **state)
{
	struct fc_iface *other = capped(fc, "other", 1);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(fc_iface_set_off(login, 1), 0);
	assert_true(stats(login).flags & FC_IFACE_OFF);
	assert_int_equal(let_in(login, 10), 10);
	assert_int_equal(let_in(other, 10), 1);
	/* The global switch does not switch it on. */
	fc_off_set(fc, 1);
	fc_off_set(fc, 0);
	assert_int_equal(let_in(login, 10), 10);
	assert_int_equal(fc_iface_set_off(login, 0), 0);
	assert_int_equal(let_in(login, 10), 3);
	assert_int_equal(fc_exit_status(&e), 1);
	assert_int_equal(let_in(login, 10), 4);
}

static void an_interface_can_be_made_off(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 1, .flags = FC_IFACE_OFF);
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_iface_set(fc, "off", &o, &f), 0);
	assert_int_equal(let_in(f, 10), 10);
	o.flags = 0;
	assert_int_equal(fc_iface_set(fc, "off", &o, &f), 0);
	assert_int_equal(let_in(f, 10), 1);
}

static void the_environment_switches_all_off(void **state)
{
	static const struct { const char *value; int off; } cases[] = { { "1", 1 }, { "0", 0 }, { "", 0 } };

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct fc_opts o = defaults();
		struct fc *made;

		assert_int_equal(setenv("FCGUARD_OFF", cases[i].value, 1), 0);
		made = context(&o);
		assert_int_equal(unsetenv("FCGUARD_OFF"), 0);
		assert_int_equal(fc_off_get(made), cases[i].off);
		assert_int_equal(let_in(capped(made, "f", 1), 5), cases[i].off ? 5 : 1);
		fc_off_set(made, 0);
		assert_int_equal(let_in(fc_iface_get(made, "f"), 5), 1);
		fc_destroy(made);
	}
}

static void injected_refusals_are_counted_down(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_INJECTED, 2), 0);
	assert_int_equal(fc_enter(&e, login, NULL), FC_REFUSED_INJECTED);
	assert_string_equal(decision(&e).rule, "inject");
	assert_int_equal(call(login, NULL), FC_REFUSED_INJECTED);
	assert_int_equal(call(login, NULL), 0);
	assert_int_equal(stats(login).refused[FC_REFUSED_INJECTED], 2);
	/* Any reason, the program's own too. */
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_QUOTA, 1), 0);
	assert_int_equal(call(login, NULL), FC_REFUSED_QUOTA);
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_USER + 7, 1), 0);
	assert_int_equal(call(login, NULL), FC_REFUSED_USER + 7);
	assert_int_equal(stats(login).refused[FC_REFUSED_CUSTOM], 1);
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_INJECTED, FC_UNLIMITED), 0);
	assert_int_equal(let_in(login, 1000), 0);
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_INJECTED, 0), 0);
	assert_int_equal(let_in(login, 10), 4);
	assert_int_equal(fc_iface_inject(login, 0, 1), -EINVAL);
	assert_int_equal(fc_iface_inject(login, 0, 0), 0);
	assert_int_equal(fc_iface_inject(NULL, 1, 1), -EINVAL);
	/* It stops nobody who is inside. */
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(fc_iface_inject(login, FC_REFUSED_INJECTED, 1), 0);
	assert_int_equal(fc_exit_status(&e), 1);
	assert_int_equal(call(login, NULL), FC_REFUSED_INJECTED);
}

static void an_injected_fault_follows_on_fault(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 4, .on_fault = FC_FAIL_CLOSED);
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_iface_inject(login, -ENOMEM, 2), 0);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(stats(login).in_flight, 0);
	assert_int_equal(fc_exit_status(&e), 1);
	assert_int_equal(call(login, NULL), 0);
	assert_int_equal(stats(login).untracked, 2);
	assert_int_equal(totals(fc).faults, 2);
	assert_int_equal(let_in(login, 10), 4);
	assert_int_equal(fc_iface_set(fc, "closed", &o, &f), 0);
	assert_int_equal(fc_iface_inject(f, -ENOMEM, 1), 0);
	assert_int_equal(fc_enter(&e, f, NULL), FC_REFUSED_FAULT);
	assert_string_equal(decision(&e).rule, "on_fault");
	assert_int_equal(stats(f).refused[FC_REFUSED_FAULT], 1);
	assert_int_equal(stats(f).untracked, 0);
	assert_int_equal(totals(fc).faults, 3);
	assert_int_equal(call(f, NULL), 0);
}

struct injected {
	struct fc_iface *f;
	_Atomic uint32_t refused;
};

static void call_often(void *arg, unsigned index, struct rng *rng)
{
	struct injected *in = arg;

	(void)index;
	(void)rng;
	for (int i = 0; i < 1000; i++)
		if (call(in->f, NULL) == FC_REFUSED_INJECTED)
			atomic_fetch_add(&in->refused, 1);
}

static void injected_refusals_are_exact_under_threads(void **state)
{
	struct injected in = { .f = fc_iface_get(fc, "observed") };

	(void)state;
	assert_int_equal(fc_iface_inject(in.f, FC_REFUSED_INJECTED, 777), 0);
	run_threads(4, call_often, &in);
	assert_int_equal(in.refused, 777);
	assert_int_equal(stats(in.f).refused[FC_REFUSED_INJECTED], 777);
}

/* ---- draining ---------------------------------------------------------------------------------- */

static void a_drain_refuses_and_says_who_is_left(void **state)
{
	struct fc_entry a = FC_ENTRY_INIT, b = FC_ENTRY_INIT, e = FC_ENTRY_INIT;
	struct fc_iface *other = capped(fc, "other", 4);

	(void)state;
	assert_int_equal(fc_enter(&a, login, NULL), 0);
	assert_int_equal(fc_enter(&b, other, NULL), 0);
	assert_int_equal(fc_drain(fc, FC_MS(3)), 2);
	assert_int_equal(fc_enter(&e, login, NULL), FC_REFUSED_DRAINING);
	assert_string_equal(decision(&e).rule, "drain");
	assert_true(stats(login).flags & FC_STATS_DRAINING);
	assert_int_equal(stats(login).refused[FC_REFUSED_DRAINING], 1);
	assert_int_equal(fc_in_flight(login, NULL, 0), 1);
	fc_exit(&a);
	assert_int_equal(fc_drain(fc, 0), 1);
	fc_exit(&b);
	assert_int_equal(fc_drain(fc, 0), 0);
	assert_int_equal(let_in(other, 10), 0);
	fc_undrain(fc);
	assert_int_equal(let_in(login, 10), 4);
	assert_int_equal(let_in(other, 10), 4);
	assert_int_equal(fc_drain(NULL, 0), -EINVAL);
	fc_undrain(NULL);
}

static void a_drain_counts_suspended_calls_out_and_lets_none_back(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	assert_int_equal(fc_entry_suspend(&e), 0);
	assert_int_equal(fc_drain(fc, 0), 0);
	assert_int_equal(fc_entry_resume(&e), FC_REFUSED_DRAINING);
	fc_undrain(fc);
	assert_int_equal(fc_entry_resume(&e), 0);
	assert_int_equal(fc_exit_status(&e), 1);
}

static void a_drain_is_for_interfaces_that_come_later_too(void **state)
{
	(void)state;
	assert_int_equal(fc_drain(fc, 0), 0);
	assert_int_equal(call(fc_iface_get(fc, "new"), NULL), FC_REFUSED_DRAINING);
	fc_undrain(fc);
	assert_int_equal(call(fc_iface_get(fc, "new"), NULL), 0);
}

static void one_interface_can_be_drained(void **state)
{
	struct fc_iface *other = capped(fc, "other", 4);

	(void)state;
	assert_int_equal(fc_iface_drain(login, FC_MS(1)), 0);
	assert_int_equal(call(login, NULL), FC_REFUSED_DRAINING);
	assert_int_equal(call(other, NULL), 0);
	fc_iface_undrain(login);
	assert_int_equal(call(login, NULL), 0);
}

struct who_waits {
	struct fc_iface *f;
	struct fc_entry e;
	int rc, status;
};

static void *wait_for_a_place(void *arg)
{
	struct who_waits *w = arg;

	w->rc = fc_enter(&w->e, w->f, NULL);
	w->status = fc_exit_status(&w->e);
	return NULL;
}

/* Three callers wait for the one place, and are let go at once, not when their time is over. */
static void those_who_wait_go_on_when_an_interface_is_switched_off_or_drained(void **state)
{
	FC_OPTS(fc_opts, real, .log = keep_log);
	FC_OPTS(fc_iface_opts, o, .cap = 1, .expand = 1, .wait_max = 4, .wait_timeout_ns = FC_S(40));
	struct fc *own;

	(void)state;
	assert_int_equal(fc_create(&own, &real), 0);
	for (int how = 0; how < 4; how++) {
		struct fc_entry hold = FC_ENTRY_INIT;
		struct who_waits w[3];
		pthread_t threads[3];
		struct fc_iface *f;
		char name[] = "waits 0";

		name[6] = (char)('0' + how);
		assert_int_equal(fc_iface_set(own, name, &o, &f), 0);
		assert_int_equal(fc_enter(&hold, f, NULL), 0);
		for (int i = 0; i < 3; i++) {
			w[i] = (struct who_waits){ .f = f };
			assert_int_equal(pthread_create(&threads[i], NULL, wait_for_a_place, &w[i]), 0);
		}
		while (stats(f).waiting != 3)
			usleep(1000);
		usleep(20000); /* asleep by now, as a rule */
		if (how == 0)
			assert_int_equal(fc_iface_set_off(f, 1), 0);
		else if (how == 1)
			fc_off_set(own, 1);
		else if (how == 2)
			(void)fc_iface_drain(f, 0);
		else
			(void)fc_drain(own, 0);
		for (int i = 0; i < 3; i++) {
			pthread_join(threads[i], NULL);
			assert_int_equal(w[i].rc, how < 2 ? 0 : FC_REFUSED_DRAINING);
			assert_int_equal(w[i].status, how < 2 ? 1 : 0);
			if (how >= 2)
				assert_string_equal(decision(&w[i].e).rule, "drain");
		}
		assert_int_equal(stats(f).untracked, how < 2 ? 3u : 0u);
		assert_int_equal(stats(f).wait_timeouts, 0);
		assert_int_equal(stats(f).waiting, 0);
		fc_off_set(own, 0);
		fc_exit(&hold);
	}
	fc_destroy(own);
}

struct leaver {
	struct fc_iface *f;
	_Atomic int inside;
};

static void *leave_when_refused(void *arg)
{
	struct leaver *l = arg;
	struct fc_entry e = FC_ENTRY_INIT;

	if (fc_enter(&e, l->f, NULL) == 0)
		atomic_store(&l->inside, 1);
	while (call(l->f, NULL) == 0)
		sched_yield();
	fc_exit(&e);
	return NULL;
}

static void a_drain_waits_for_those_inside(void **state)
{
	struct leaver l = { .f = login };
	pthread_t t;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, leave_when_refused, &l), 0);
	while (!atomic_load(&l.inside))
		sched_yield();
	assert_int_equal(fc_drain(fc, FC_S(20)), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	fc_undrain(fc);
}

/* ---- dry run ----------------------------------------------------------------------------------- */

static void a_dry_run_counts_what_it_would_refuse_and_refuses_none(void **state)
{
	struct fc_entry e[20] = { FC_ENTRY_INIT };
	struct fc_in_flight list[20];
	uint32_t over = 0;

	(void)state;
	assert_int_equal(fc_iface_set_dry_run(login, 1), 0);
	assert_true(stats(login).flags & FC_IFACE_DRY_RUN);
	for (int i = 0; i < 20; i++)
		assert_int_equal(fc_enter(&e[i], login, NULL), 0);
	assert_int_equal(stats(login).would_refuse, 16);
	assert_int_equal(stats(login).refused[FC_REFUSED_CAP], 0);
	/* Those above the limit are tracked as the others. */
	assert_int_equal(stats(login).untracked, 0);
	assert_int_equal(stats(login).in_flight, 20);
	assert_int_equal(stats(login).limit, 4);
	memset(list, 0, sizeof(list));
	list[0].size = sizeof(list[0]);
	assert_int_equal(fc_in_flight(login, list, 20), 20);
	for (int i = 0; i < 20; i++)
		over += (list[i].flags & FC_IN_FLIGHT_OVER_LIMIT) != 0;
	assert_int_equal(over, 16);
	/* In earnest from now on: nobody gets in until the count is under the limit. */
	assert_int_equal(fc_iface_set_dry_run(login, 0), 0);
	for (int i = 0; i < 16; i++) {
		assert_int_equal(call(login, NULL), FC_REFUSED_CAP);
		fc_exit(&e[i]);
	}
	assert_int_equal(call(login, NULL), FC_REFUSED_CAP);
	for (int i = 16; i < 20; i++)
		fc_exit(&e[i]);
	assert_int_equal(let_in(login, 10), 4);
}

static void a_heavy_call_over_the_limit_is_not_refused_in_a_dry_run(void **state)
{
	FC_OPTS(fc_ctx, three, .weight = 3);
	FC_OPTS(fc_ctx, five, .weight = 5);
	struct fc_entry e[3] = { FC_ENTRY_INIT };

	(void)state;
	assert_int_equal(fc_iface_set_dry_run(login, 1), 0);
	assert_int_equal(fc_enter(&e[0], login, &three), 0);
	assert_int_equal(fc_enter(&e[1], login, &three), 0);
	assert_int_equal(fc_enter(&e[2], login, &five), 0);
	assert_int_equal(stats(login).would_refuse, 2);
	for (int i = 0; i < 3; i++)
		fc_exit(&e[i]);
	assert_int_equal(stats(login).in_flight, 0);
	assert_int_equal(fc_iface_set_dry_run(login, 0), 0);
	assert_int_equal(let_in(login, 10), 4);
}

static void a_dry_run_of_a_cap_of_zero_refuses_nothing(void **state)
{
	struct fc_iface *f = capped(fc, "dry", FC_CAP_REFUSE_ALL);

	(void)state;
	alarm(20); /* it looked for a place for ever */
	assert_int_equal(fc_iface_set_dry_run(f, 1), 0);
	assert_int_equal(let_in(f, 10), 10);
	alarm(0);
	assert_int_equal(stats(f).would_refuse, 10);
	assert_int_equal(stats(f).untracked, 0);
}

/* ---- interceptors at the edges of an entry's life ---------------------------------------------- */

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

/* ---- housekeeping ------------------------------------------------------------------------------ */

#define MANY 20000u

static uint32_t ticked(struct fc *many)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MANY; i++)
		n += many->ifaces[i]->tick_last != 0;
	return n;
}

/* So many fc_tick() with that budget, until there is nothing to do at the moment; each looks at `most` at most. */
static unsigned tick_through(struct fc *many, uint64_t budget, uint32_t most)
{
	uint64_t next;
	unsigned n = 0;

	do {
		uint32_t before = many->tick_left ? many->tick_left : MANY, seen_before = ticked(many);

		next = fc_tick(many, budget);
		assert_in_range(before - many->tick_left, 0, most);
		assert_in_range(ticked(many) - seen_before, 0, most);
		n++;
	} while (next <= fc_now_ns(many));
	return n;
}

static void a_tick_looks_at_no_more_interfaces_than_its_budget_allows(void **state)
{
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .max_ifaces = MANY);
	struct fc *many = context(&o);
	char name[16];

	(void)state;
	for (uint32_t i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%u", i);
		assert_ptr_not_equal(fc_iface_get(many, name), many->pass);
	}
	/* All asleep: a hundred a 10 us, no more. */
	assert_in_range(tick_through(many, FC_US(10), 101), MANY / 101, MANY);
	assert_int_equal(ticked(many), 0);
	/* All awake: whoever is looked at is looked at once. */
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(call(many->ifaces[i], NULL), 0);
	(void)tick_through(many, FC_MS(1), 10001);
	assert_int_equal(ticked(many), MANY);
	/* And back to sleep, so that no more ticks are asked for. */
	for (int i = 0; i < 40; i++) {
		fc_clock_advance(many, FC_S(1));
		(void)tick_through(many, FC_MS(1), 10001);
	}
	assert_true(fc_tick(many, FC_S(1)) == FC_NEVER_NS);
	assert_int_equal(atomic_load(&many->idle), 1);
	assert_int_equal(call(many->ifaces[MANY / 2], NULL), 0);
	assert_int_equal(atomic_load(&many->idle), 0);
	assert_true(fc_tick(many, FC_S(1)) != FC_NEVER_NS);
	fc_destroy(many);
}

static unsigned ticks_in_check;

/* Between the look that wakes the interface and the claim of a place. */
static int tick_in_check(struct fc_call *c)
{
	for (unsigned i = 0; i < ticks_in_check; i++) {
		fc_clock_advance(fc_iface_context(c->iface), FC_MS(300));
		(void)fc_tick(fc_iface_context(c->iface), 0);
	}
	return 0;
}

static const struct fc_interceptor ticker = { .size = sizeof(ticker), .order = FC_ORDER_USER, .name = "ticker", .check = tick_in_check };

static void a_call_that_wakes_its_interface_is_seen_though_a_tick_comes_before_its_place(void **state)
{
	static const struct fc_rule rules[] = { { .interceptor = &ticker } };
	struct fc_entry e = FC_ENTRY_INIT;
	FC_OPTS(fc_ctx, heavy, .weight = 2);

	(void)state;
	assert_int_equal(fc_iface_set_chain(login, rules, 1), 0);
	for (int i = 0; i < 4; i++) {
		const struct fc_ctx *ctx = i % 2 ? &heavy : NULL;

		ticks_in_check = 0;
		for (int n = 0; n < 40; n++) {
			fc_clock_advance(fc, FC_S(1));
			(void)fc_tick(fc, 0);
		}
		assert_true(atomic_load(&login->gate->word) & FCI_GATE_ASLEEP);
		ticks_in_check = 1 + (unsigned)i / 2 * 3;
		assert_int_equal(fc_enter(&e, login, ctx), 0);
		assert_false(atomic_load(&login->gate->word) & FCI_GATE_ASLEEP);
		assert_true(fc_tick(fc, 0) != FC_NEVER_NS);
		fc_clock_advance(fc, FC_S(20));
		(void)fc_tick(fc, 0);
		assert_int_equal(stats(login).overdue, 1);
		fc_exit(&e);
	}
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
	bad |= (fc_iface_stats(login, &s) != 0 || s.in_flight != 0 || s.admitted != s.ok) << 5;
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

/* ---- time -------------------------------------------------------------------------------------- */

/* alibaba/sentinel-golang #409, #327; bucket4j #51: a clock that is set back, or far on. */
static void a_clock_that_jumps_neither_lets_more_in_nor_locks_out(void **state)
{
	static const uint64_t times[] = {
		NOW, NOW - FC_S(900), NOW + FC_S(3600), NOW + FC_S(3600) - FC_MS(1), NOW + FC_S(3600),
		FC_S(315360000ull), 1, FC_S(9460800000ull), 0, UINT64_MAX - 1, NOW,
	};

	(void)state;
	for (size_t i = 0; i < COUNT(times); i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		assert_int_equal(fc_clock_set(fc, times[i]), 0);
		assert_int_equal(let_in(login, 6), 4);
		assert_int_equal(fc_enter(&e, login, NULL), 0);
		assert_int_equal(fc_clock_set(fc, times[(i + 1) % COUNT(times)]), 0);
		(void)fc_tick(fc, 0);
		assert_int_equal(fc_exit_status(&e), 1);
		assert_int_equal(stats(login).in_flight, 0);
	}
}

static void only_a_virtual_clock_can_be_set(void **state)
{
	struct fc *real = NULL;
	uint64_t now;

	(void)state;
	assert_int_equal(fc_create(&real, NULL), 0);
	assert_int_equal(fc_clock_set(real, 1), -EINVAL);
	assert_int_equal(fc_clock_advance(real, 1), -EINVAL);
	now = fc_now_ns(real);
	assert_true(now != 0 && fc_now_ns(real) >= now);
	fc_destroy(real);
	assert_int_equal(fc_clock_set(NULL, 1), -EINVAL);
	assert_int_equal(fc_now_ns(fc), NOW);
}

/* ---- the default context ----------------------------------------------------------------------- */

static void there_is_one_default_context_at_a_time(void **state)
{
	struct fc_opts o = defaults();
	struct fc *other = context(&o), *own;

	(void)state;
	assert_int_equal(fc_default_set(fc), 0);
	assert_ptr_equal(fc_default(), fc);
	assert_int_equal(fc_default_set(other), -EBUSY);
	assert_ptr_equal(fc_default(), fc);
	assert_int_equal(fc_default_set(NULL), 0);
	assert_int_equal(fc_default_set(other), 0);
	assert_ptr_equal(fc_default(), other);
	fc_destroy(other); /* is forgotten */
	own = fc_default();
	assert_non_null(own);
	assert_ptr_equal(fc_default(), own);
	assert_ptr_not_equal(own, fc);
	assert_int_equal(fc_default_set(fc), -EBUSY);
	fc_destroy(own);
	assert_int_equal(fc_default_set(fc), 0);
	assert_int_equal(fc_default_set(NULL), 0);
	assert_int_equal(fc_default_set((struct fc *)(void *)&o), -EINVAL);
}

#if !SANITIZED
/* In a child without address space: no context can be made, and the program goes on. */
static int without_memory(void)
{
	struct rlimit none = { 0, RLIM_INFINITY }, was;
	struct fc_totals t;
	struct fc_iface *f;
	struct fc *standin;
	int ran = 0;

	if (!freopen("/dev/null", "w", stderr))
		return 9;
	getrlimit(RLIMIT_AS, &was);
	none.rlim_max = was.rlim_max;
	if (setrlimit(RLIMIT_AS, &none))
		return 1;
	standin = fc_default();
	if (!standin || fc_default() != standin)
		return 2;
	FC_GUARD(e, "user.login") {
		ran++;
	}
	FC_GUARD_FN(e) {
		ran++;
	}
	if (ran != 2)
		return 3;
	f = fc_iface_get(standin, "x");
	fc_opts_init(&t);
	if (!f || fc_totals(standin, &t) || t.pass_through != 2)
		return 4;
	if (fc_iface_set(standin, "x", NULL, NULL) != -EINVAL || fc_iface_find(standin, "x") || fc_iface_at(standin, 0))
		return 5;
	/* Whatever takes a context takes this one. */
	fc_off_set(standin, 1);
	(void)fc_off_get(standin);
	(void)fc_tick(standin, 0);
	(void)fc_tick_fd(standin);
	(void)fc_drain(standin, 0);
	fc_undrain(standin);
	(void)fc_dump(standin, -1);
	(void)fc_dump_signal(standin, -1);
	(void)fc_leaks(standin, -1);
	(void)fc_now_ns(standin);
	(void)fc_recorder(standin, NULL, 0);
	(void)fc_system_set(standin, NULL);
	(void)fc_system_level(standin);
	(void)fc_async_poll(standin);
	(void)fc_clock_set(standin, 1);
	if (fc_health_get(standin, NULL) == 0 || fc_health_set_source(standin, NULL, NULL) == 0)
		return 10;
	(void)fc_start(standin);
	fc_stop(standin);
	(void)fc_health_word(f);
	/* Memory is back: the next call makes it. */
	if (setrlimit(RLIMIT_AS, &was))
		return 6;
	if (fc_default() == standin)
		return 7;
	FC_GUARD(e, "user.login") {
		ran++;
	}
	if (ran != 3 || !fc_iface_find(fc_default(), "user.login"))
		return 8;
	return 0;
}

static void without_memory_the_default_context_lets_calls_pass_and_tries_again(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	SKIP_IF_EMULATED("it gives memory in spite of RLIMIT_AS");
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(without_memory());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* From here on every system call but exit kills. (The strict mode would also forbid the CPU's counter.) */
static int forbid_system_calls(void)
{
	struct sock_filter only_exit[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { .len = 4, .filter = only_exit };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void calls_under_seccomp(struct fc_iface *f, struct fc_iface *full)
{
	FC_OPTS(fc_ctx, ctx, .weight = 2);
	struct fc_entry e = FC_ENTRY_INIT, hold = FC_ENTRY_INIT, moved = FC_ENTRY_INIT;
	int bad = fc_enter(&hold, full, NULL) != 0;

	for (int i = 0; i < 5000; i++) { /* warm: threads registered, sites numbered, housekeeping awake */
		bad |= call(f, NULL);
		bad |= call(f, &ctx);
		(void)call(full, NULL);
	}
	if (forbid_system_calls())
		syscall(SYS_exit, 77);
	for (int i = 0; i < 50000; i++) {
		bad |= fc_enter(&e, f, i % 2 ? NULL : &ctx);
		if (i % 3 == 0)
			fc_entry_mark(&e, FC_OUTCOME_ERROR);
		if (i % 5 == 0) {
			bad |= fc_entry_suspend(&e);
			bad |= fc_entry_resume(&e);
		}
		if (i % 7 == 0)
			fc_entry_take(&moved, &e);
		bad |= fc_exit_status(i % 7 ? &e : &moved) != 1;
		bad |= fc_enter(&e, full, NULL) != FC_REFUSED_CAP;
	}
	syscall(SYS_exit, bad != 0);
}

static void enter_and_exit_make_no_system_call(void **state)
{
	struct fc_opts o = { .size = sizeof(o) };
	struct fc *real;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(fc_create(&real, &o), 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		calls_under_seccomp(capped(real, "f", 8), capped(real, "full", 1));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	fc_destroy(real);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return; /* no such filter in this kernel */
	assert_int_equal(status, 0);
}
#endif

/* Without what comes with a rule, and with nothing to spare for it elsewhere. */
static void an_interface_takes_of_the_segment_what_is_published(void **state)
{
	static const uint32_t caps[] = { 1, 64, 1000, 20000, FC_CAP_MAX };
	uint32_t cpus = (uint32_t)sysconf(_SC_NPROCESSORS_CONF);
	/* Rows of counters are there for all interfaces, and the handle is the allocator's. */
	uint64_t elsewhere = (cpus + 1) * sizeof(struct fci_counters) + sizeof(struct fc_iface);
	char name[16];

	(void)state;
	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
		uint64_t before = totals(fc).bytes_used, published = fc_iface_bytes(caps[i], cpus, NULL);

		snprintf(name, sizeof(name), "cap.%u", caps[i]);
		(void)capped(fc, name, caps[i]);
		assert_true(totals(fc).bytes_used - before <= published - elsewhere);
		assert_true(totals(fc).bytes_used - before >= (published - elsewhere) * 9 / 10);
	}
}

/* n calls that take ns each, and ticks as time goes by. */
static void calls_of(struct fc_iface *f, unsigned n, uint64_t ns)
{
	for (unsigned i = 0; i < n; i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		assert_int_equal(fc_enter(&e, f, NULL), 0);
		fc_clock_advance(fc, ns);
		fc_exit(&e);
		fc_clock_advance(fc, FC_MS(10));
		(void)fc_tick(fc, FC_S(1));
	}
}

static uint64_t advice(struct fc_iface *f)
{
	struct fc_entry in = FC_ENTRY_INIT, out = FC_ENTRY_INIT;
	uint64_t ns;

	assert_int_equal(fc_enter(&in, f, NULL), 0);
	assert_int_equal(fc_enter(&out, f, NULL), FC_REFUSED_CAP);
	ns = decision(&out).retry_after_ns;
	fc_exit(&in);
	return ns;
}

static void refused_callers_are_advised_by_the_last_calls_and_not_by_all_there_were(void **state)
{
	struct fc_iface *f = capped(fc, "slows down", 1);

	(void)state;
	calls_of(f, 5000, FC_MS(4));
	assert_in_range(advice(f), FC_MS(4), FC_MS(5));
	calls_of(f, 60, FC_S(1));
	assert_in_range(advice(f), FC_S(1), FC_MS(1250));
	calls_of(f, 3000, FC_MS(4));
	assert_in_range(advice(f), FC_MS(4), FC_MS(5));
	/* A few calls after many say nothing. */
	calls_of(f, 5, FC_S(1));
	assert_in_range(advice(f), FC_MS(4), FC_MS(5));
}

static void the_first_calls_advise_though_they_are_few(void **state)
{
	struct fc_iface *f = capped(fc, "new", 1);

	(void)state;
	calls_of(f, 3, FC_S(2));
	assert_in_range(advice(f), FC_S(2), FC_MS(2500));
	/* And with a clock that goes back later ones do. */
	calls_of(f, 40, FC_S(2));
	fc_clock_set(fc, NOW);
	calls_of(f, 100, FC_MS(4));
	assert_in_range(advice(f), FC_MS(4), FC_MS(5));
}

static int asks_for_a_tick(void)
{
	struct pollfd p = { .fd = fc_tick_fd(fc), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* A loop that waits for the descriptor and nothing else begins with the first call, and in the child of a
 * fork with the first there. */
static void the_first_call_asks_for_the_first_tick(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	assert_false(asks_for_a_tick());
	assert_int_equal(call(login, NULL), 0);
	assert_true(asks_for_a_tick());
	(void)fc_tick(fc, 0);
	assert_false(asks_for_a_tick());
	assert_int_equal(call(login, NULL), 0); /* it is awake */
	assert_false(asks_for_a_tick());
	pid = fork();
	if (pid == 0) {
		int early = asks_for_a_tick();

		(void)call(login, NULL);
		_exit(early | !asks_for_a_tick() << 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define T(name_) cmocka_unit_test_setup_teardown(name_, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nothing_is_no_entry_and_no_handle),
		T(garbage_is_no_handle),
		T(a_dead_handle_is_an_error),
		T(a_refused_entry_needs_no_exit),
		T(a_faulty_call_leaves_a_used_entry_inactive),
		T(stale_copies_of_entries_release_nothing),
		T(the_last_mark_counts),
		T(a_context_of_another_header_is_read_right),
		T(fields_of_a_context_have_bounds),
		T(a_call_takes_as_many_places_as_it_is_heavy),
		T(a_heavy_call_takes_all_its_places_or_none),
		T(the_greatest_weight_can_be_set),
		T(a_heavy_call_without_a_cap_is_never_refused),
		T(names_have_rules),
		T(interfaces_are_listed_in_order_of_creation),
		T(options_of_older_and_newer_headers_are_read_right),
		T(results_fit_older_and_newer_headers),
		T(bad_fields_make_no_context),
		T(bad_fields_change_nothing_and_are_named),
		T(options_that_were_set_are_those_in_force),
		T(defaults_are_those_of_the_header),
		T(no_options_are_no_cap),
		T(a_cap_lets_exactly_so_many_in),
		T(the_greatest_cap_lets_exactly_so_many_in),
		T(a_cap_of_zero_refuses_all),
		T(a_lower_cap_lets_nobody_in_until_the_count_is_under_it),
		T(an_interface_without_a_rule_is_observed_and_never_refused),
		T(a_switch_makes_no_rule),
		T(the_default_cap_is_for_interfaces_without_a_rule),
		T(a_rule_that_comes_late_is_as_good),
		T(a_full_table_of_interfaces_lets_calls_pass_when_open),
		T(a_full_table_of_interfaces_refuses_calls_when_closed),
		T(lookups_that_fail_are_logged_once),
		T(a_segment_that_is_too_small_makes_no_context),
		T(a_full_segment_lets_calls_pass_when_open),
		T(a_full_segment_refuses_calls_when_closed),
		T(an_interface_takes_no_more_memory_than_published),
		T(entries_that_nobody_ends_take_bounded_memory),
		T(each_status_has_a_name_and_a_text),
		T(each_fault_has_a_name_and_a_text),
		T(an_unknown_status_is_said_to_be_unknown),
		T(each_event_has_its_name),
		T(a_decision_becomes_an_answer_of_http),
		T(labels_are_hashed_by_key_and_value),
		T(the_hash_is_siphash_2_4),
		T(an_admitted_entry_has_no_decision),
		T(off_lets_new_calls_through_and_those_inside_leave),
		T(one_interface_can_be_off),
		T(an_interface_can_be_made_off),
		T(the_environment_switches_all_off),
		T(injected_refusals_are_counted_down),
		T(an_injected_fault_follows_on_fault),
		T(injected_refusals_are_exact_under_threads),
		T(a_drain_refuses_and_says_who_is_left),
		T(a_drain_counts_suspended_calls_out_and_lets_none_back),
		T(those_who_wait_go_on_when_an_interface_is_switched_off_or_drained),
		T(a_tick_looks_at_no_more_interfaces_than_its_budget_allows),
		T(a_call_that_wakes_its_interface_is_seen_though_a_tick_comes_before_its_place),
		T(a_drain_is_for_interfaces_that_come_later_too),
		T(one_interface_can_be_drained),
		T(a_drain_waits_for_those_inside),
		T(a_dry_run_counts_what_it_would_refuse_and_refuses_none),
		T(a_heavy_call_over_the_limit_is_not_refused_in_a_dry_run),
		T(a_refusal_by_an_interceptor_leaves_nothing_and_tells_all),
		T(post_runs_once_for_every_way_of_leaving),
		T(a_refused_resume_has_a_decision_that_can_be_read),
		T(counters_never_go_back_while_calls_are_suspended),
		T(no_look_finds_more_calls_than_have_begun),
		T(a_suspended_call_is_inactive_in_the_child_of_a_fork),
		T(post_runs_though_its_chain_is_replaced_behind_the_release),
		T(a_clock_that_jumps_neither_lets_more_in_nor_locks_out),
		T(only_a_virtual_clock_can_be_set),
		T(there_is_one_default_context_at_a_time),
		T(a_dry_run_of_a_cap_of_zero_refuses_nothing),
		T(an_interface_takes_of_the_segment_what_is_published),
		T(refused_callers_are_advised_by_the_last_calls_and_not_by_all_there_were),
		T(the_first_calls_advise_though_they_are_few),
		T(the_first_call_asks_for_the_first_tick),
#if !SANITIZED
		T(without_memory_the_default_context_lets_calls_pass_and_tries_again),
		T(enter_and_exit_make_no_system_call),
#endif
	};

	return cmocka_run_group_tests_name("entry", tests, NULL, NULL);
}
