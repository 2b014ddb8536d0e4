/* SPDX-License-Identifier: BSD-2-Clause */
/* Names and options of contexts and interfaces: bad ones, those of old and new headers, full tables. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "context.h"
#include "support/alloc.h"
#include "support/entries.h"

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
	struct counting_alloc mem;
	const struct fc_alloc whole = counting_alloc_init(&mem);
	struct fc_alloc half[2] = { { whole.alloc, NULL, NULL }, { NULL, whole.free, NULL } };
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
	assert_int_equal(fc->max_reports_per_min, 30);
}

/* A program's allocator need not know alignment; what is in the blocks does. */
static void blocks_are_aligned_whatever_the_allocator_gives(void **state)
{
	struct counting_alloc counted;
	struct fc_alloc alloc = counting_alloc_init(&counted);
	struct fc_opts o = defaults();
	struct fc *own;

	(void)state;
	o.alloc = &alloc;
	own = context(&o);
	assert_int_equal((uintptr_t)own % FCI_CACHELINE, 0);
	for (int i = 0; i < 20; i++) {
		char name[8];

		snprintf(name, sizeof(name), "%d", i);
		assert_int_equal((uintptr_t)fc_iface_get(own, name) % FCI_CACHELINE, 0);
	}
	fc_destroy(own);
	assert_int_equal(counted.live, 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(names_have_rules),
		T(interfaces_are_listed_in_order_of_creation),
		T(options_of_older_and_newer_headers_are_read_right),
		T(results_fit_older_and_newer_headers),
		T(bad_fields_make_no_context),
		T(bad_fields_change_nothing_and_are_named),
		T(options_that_were_set_are_those_in_force),
		T(defaults_are_those_of_the_header),
		T(blocks_are_aligned_whatever_the_allocator_gives),
		T(no_options_are_no_cap),
		T(a_full_table_of_interfaces_lets_calls_pass_when_open),
		T(a_full_table_of_interfaces_refuses_calls_when_closed),
		T(lookups_that_fail_are_logged_once),
		T(a_segment_that_is_too_small_makes_no_context),
		T(a_full_segment_lets_calls_pass_when_open),
		T(a_full_segment_refuses_calls_when_closed),
		T(an_interface_takes_no_more_memory_than_published),
		T(entries_that_nobody_ends_take_bounded_memory),
		T(an_interface_takes_of_the_segment_what_is_published),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
