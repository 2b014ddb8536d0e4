/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tests/support/entries.h - a context on the virtual clock with one interface, its log kept.
 *
 *     T(a_case)            a case of main()'s list, with setup() and teardown()
 *
 * Threads.  The main thread sets up, ends and reads the log.
 */
#ifndef FC_TESTS_ENTRIES_H
#define FC_TESTS_ENTRIES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcguard/fcguard.h>

#define COUNT(a_) (sizeof(a_) / sizeof((a_)[0]))
#define NOW       FC_S(1000)

static struct fc *fc;
static struct fc_iface *login; /* cap 4, never more */
static char last_log[1024];
static unsigned log_lines;

static inline void keep_log(void *arg, int level, const char *msg)
{
	(void)arg;
	(void)level;
	snprintf(last_log, sizeof(last_log), "%s", msg);
	log_lines++;
}

static inline struct fc_opts defaults(void)
{
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .log = keep_log);

	return o;
}

static inline struct fc *context(const struct fc_opts *o)
{
	struct fc *ret = NULL;

	assert_int_equal(fc_create(&ret, o), 0);
	assert_int_equal(fc_clock_set(ret, NOW), 0);
	return ret;
}

static inline struct fc_iface *capped(struct fc *where, const char *name, uint32_t cap)
{
	FC_OPTS(fc_iface_opts, o, .cap = cap, .expand = 1);
	struct fc_iface *f = NULL;

	assert_int_equal(fc_iface_set(where, name, &o, &f), 0);
	return f;
}

static inline struct fc_stats stats(const struct fc_iface *f)
{
	FC_OPTS(fc_stats, s, .cap = 0);

	assert_int_equal(fc_iface_stats(f, &s), 0);
	return s;
}

static inline struct fc_decision decision(const struct fc_entry *e)
{
	FC_OPTS(fc_decision, d, .status = 0);

	assert_int_equal(fc_entry_decision(e, &d), 0);
	return d;
}

static inline struct fc_totals totals(struct fc *of)
{
	FC_OPTS(fc_totals, t, .ifaces = 0);

	assert_int_equal(fc_totals(of, &t), 0);
	return t;
}

static inline int setup(void **state)
{
	struct fc_opts o = defaults();

	(void)state;
	last_log[0] = 0;
	log_lines = 0;
	fc = context(&o);
	login = capped(fc, "user.login", 4);
	return 0;
}

static inline int teardown(void **state)
{
	uint32_t left = 0;

	(void)state;
	for (uint32_t i = 0; fc_iface_at(fc, i); i++)
		left += stats(fc_iface_at(fc, i)).in_flight;
	fc = fc_destroy(fc);
	return left != 0;
}

/* n calls through f; how many were let in; all have left afterwards. */
static inline uint32_t let_in(struct fc_iface *f, uint32_t n)
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
static inline int call(struct fc_iface *f, const struct fc_ctx *ctx)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter(&e, f, ctx);

	fc_exit(&e);
	return rc;
}

#define T(name_) cmocka_unit_test_setup_teardown(name_, setup, teardown)

#endif /* FC_TESTS_ENTRIES_H */
