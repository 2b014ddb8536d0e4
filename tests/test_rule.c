/* SPDX-License-Identifier: BSD-2-Clause */
/* What interceptors are given beside calls: states by name and size, confs that are completed and dropped,
 * shared memory, names, delays. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>

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

static int setup(void **state)
{
	(void)state;
	guarded_open(&g, &(struct fc_iface_opts){ .cap = 4 });
	g.fc->log = keep_line;
	lines[0] = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return guarded_close(&g);
}

/* ---- an interceptor that grows, and one that does not like its conf ----------------------------- */

struct conf {
	uint64_t bytes;  /* of state */
	uint32_t fail;   /* setup says no */
	uint32_t mark;
	void *made;
};

struct kept {
	uint64_t calls, bytes;
};

static struct {
	unsigned setups, firsts, carried, drops;
	uint64_t delay, max_delay;
} seen;

static uint64_t state_size(const void *conf, uint32_t cpus)
{
	const struct conf *c = conf;

	return cpus ? c->bytes : UINT64_MAX;
}

static int set_up(struct fc_setup *s)
{
	struct conf *c = s->conf;
	struct kept *k = s->state;

	seen.setups++;
	if (c->fail) {
		fc_iface_log(s->iface, s->rule, "found %u, allowed: 0", c->fail);
		return -EDOM;
	}
	if ((uintptr_t)s->state % FC_STATE_ALIGN || s->state_bytes < c->bytes || !s->rule[0])
		return -EFAULT;
	seen.firsts += s->first;
	if (s->first && (k->calls || k->bytes))
		return -EFAULT;
	if (s->was) {
		seen.carried++;
		k->calls = ((const struct kept *)s->was)->calls;
	}
	k->bytes = s->state_bytes;
	c->made = fc_iface_alloc(s->iface, 64);
	return c->made ? 0 : -ENOMEM;
}

static void drop(struct fc_iface *f, void *conf)
{
	struct conf *c = conf;

	seen.drops++;
	fc_iface_free(f, c->made, 64);
}

static int pre(struct fc_call *c)
{
	__atomic_fetch_add(&((struct kept *)c->state)->calls, 1, __ATOMIC_RELAXED);
	seen.max_delay = c->max_delay_ns;
	if (seen.delay > c->max_delay_ns)
		return FC_REFUSED_RATE;
	c->delay_ns = seen.delay;
	return 0;
}

static const struct fc_interceptor growing = {
	.size = sizeof(growing), .order = FC_ORDER_USER, .name = "growing", .conf_bytes = sizeof(struct conf),
	.state_size = state_size, .setup = set_up, .drop = drop, .pre = pre,
};

static int use(const struct conf *confs, const char *const *names, uint32_t n)
{
	struct fc_rule rules[FC_CHAIN_MAX];

	for (uint32_t i = 0; i < n; i++)
		rules[i] = (struct fc_rule){ .interceptor = &growing, .conf = &confs[i], .name = names ? names[i] : NULL };
	return fc_iface_set_chain(g.f, rules, n);
}

static void call(void)
{
	struct fc_entry e = FC_ENTRY_INIT;

	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	fc_exit(&e);
}

static int calls_of(struct fc_call *c, void *arg)
{
	*(struct kept *)arg = *(struct kept *)c->state;
	return 7;
}

static uint64_t calls(const char *name)
{
	struct kept k = { 0, 0 };

	assert_int_equal(fc_iface_with(g.f, &growing, name, calls_of, &k), 7);
	return k.calls;
}

/* All replaced chains are gone: each conf that was completed has been dropped but those in force. */
static void assert_dropped_but(unsigned in_force, unsigned failed)
{
	for (int i = 0; i < 8; i++)
		fc_tick(g.fc, FC_S(1));
	assert_int_equal(seen.drops, seen.setups - failed - in_force);
}

static void a_state_belongs_to_a_name_and_survives_chains(void **state)
{
	static const char *const ab[] = { "a", "b" };
	struct conf two[2] = { { .bytes = 64 }, { .bytes = 64 } };

	(void)state;
	memset(&seen, 0, sizeof(seen));
	assert_int_equal(use(two, ab, 2), 0);
	assert_int_equal(seen.firsts, 2);
	call();
	assert_int_equal(use(two, ab + 1, 1), 0);
	call();
	assert_int_equal(use(two, ab, 2), 0);
	assert_true(calls("a") == 1 && calls("b") == 2);
	assert_int_equal(seen.firsts, 2);
	assert_int_equal(fc_iface_with(g.f, &growing, NULL, calls_of, NULL), -ENOENT);
	assert_int_equal(fc_iface_with(g.f, &growing, "c", calls_of, NULL), -ENOENT);
	assert_dropped_but(2, 0);
}

static void a_state_that_has_to_grow_is_carried_over(void **state)
{
	struct conf c = { .bytes = 64 };

	(void)state;
	memset(&seen, 0, sizeof(seen));
	assert_int_equal(use(&c, NULL, 1), 0);
	call();
	c.bytes = 5000;
	assert_int_equal(use(&c, NULL, 1), 0);
	assert_true(seen.carried == 1 && seen.firsts == 2);
	call();
	assert_int_equal(calls(NULL), 2);
	c.bytes = 100; /* what is there is enough */
	assert_int_equal(use(&c, NULL, 1), 0);
	assert_true(seen.carried == 1 && calls(NULL) == 2);
	c.bytes = 1u << 20;
	assert_int_equal(use(&c, NULL, 1), 0);
	assert_true(seen.carried == 2 && calls(NULL) == 2);
	assert_dropped_but(1, 0);
}

static void a_chain_that_is_refused_at_any_place_changes_nothing(void **state)
{
	static const char *const names[] = { "a", "b", "c", "d" };
	struct conf good[4] = { { .bytes = 64 }, { .bytes = 64 }, { .bytes = 64 }, { .bytes = 64 } };

	(void)state;
	memset(&seen, 0, sizeof(seen));
	assert_int_equal(use(good, names, 4), 0);
	call();
	for (unsigned k = 0; k < 4; k++) {
		struct conf bad[4];

		memcpy(bad, good, sizeof(bad));
		for (unsigned i = 0; i < 4; i++)
			bad[i].bytes = 9000; /* even those before it that grow */
		bad[k].fail = 5;
		lines[0] = 0;
		assert_int_equal(use(bad, names, 4), -EDOM);
		assert_non_null(strstr(lines, names[k]));
		assert_non_null(strstr(lines, "found 5, allowed: 0"));
		assert_non_null(strstr(lines, "the interceptor does not accept its conf"));
		call();
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(calls(names[i]), 2 + k);
	}
	good[0].bytes = FC_STATE_MAX + 1;
	assert_int_equal(use(good, names, 1), -EINVAL);
	good[0].bytes = FC_STATE_MAX;
	assert_int_equal(use(good, names, 1), -ENOSPC); /* the segment has less */
	call();
	assert_dropped_but(4, 4);
}

static uint64_t used(void)
{
	FC_OPTS(fc_totals, t, .ifaces = 0);

	assert_int_equal(fc_totals(g.fc, &t), 0);
	return t.bytes_used;
}

/* Nor does it use up memory, names or what is shared. */
static void refused_chains_use_nothing(void **state)
{
	struct conf c[3] = { { .bytes = 64 }, { .bytes = 1u << 20 }, { .bytes = 64, .fail = 1 } };
	char name[3][16];
	const char *names[3] = { name[0], name[1], name[2] };
	uint64_t before;
	int first;

	(void)state;
	memset(&seen, 0, sizeof(seen));
	call();
	before = used();
	for (unsigned i = 0; i < 3000; i++) {
		for (unsigned k = 0; k < 3; k++)
			snprintf(name[k], sizeof(name[k]), "n%u.%u", i, k);
		assert_int_equal(use(c, names, 3), -EDOM);
		assert_null(fc_shared(g.fc, names[0], 1u << 29, &first)); /* the segment has less */
		lines[0] = 0;
	}
	assert_int_equal(used(), before);
	c[2].fail = 0;
	assert_int_equal(use(c, names, 3), 0); /* zeroed memory, says setup */
	assert_dropped_but(3, 3000);
}

static void an_interface_has_so_many_names_in_its_life(void **state)
{
	struct conf c = { .bytes = 64 };
	char name[16];
	const char *one[] = { name };
	int rc = 0;
	unsigned n = 0;

	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (; rc == 0 && n < 100; n++) {
		snprintf(name, sizeof(name), "n%u", n);
		rc = use(&c, one, 1);
	}
	assert_true(rc == -ENOSPC && n == FCI_STATES_MAX + 1);
	snprintf(name, sizeof(name), "n0");
	assert_int_equal(use(&c, one, 1), 0); /* an old one is there still */
}

static void memory_is_shared_by_name(void **state)
{
	char *a, *b;
	int first;

	(void)state;
	assert_null(fc_shared_find(g.fc, "board"));
	a = fc_shared(g.fc, "board", 1000, &first);
	assert_true(a && first == 1 && (uintptr_t)a % FC_STATE_ALIGN == 0 && a[999] == 0);
	b = fc_shared(g.fc, "board", 900, &first);
	assert_true(a == b && first == 0 && fc_shared_find(g.fc, "board") == a);
	assert_null(fc_shared(g.fc, "board", 1001, &first));
	assert_null(fc_shared(g.fc, "", 1, &first));
	assert_null(fc_shared(g.fc, "x", 0, &first));
	assert_null(fc_shared(g.fc, "x", FC_STATE_MAX + 1, &first));
	assert_null(fc_shared(g.fc, "x", 1u << 29, &first)); /* the segment is full */
	assert_null(fc_shared(NULL, "x", 1, &first));
	assert_null(fc_shared(g.fc, "a name of more than forty-seven bytes is too long", 1, &first));
}

static void interceptors_are_found_by_name(void **state)
{
	static const struct fc_interceptor other = { .size = sizeof(other), .name = "growing" };
	static const struct fc_interceptor cap = { .size = sizeof(cap), .name = "cap" };
	static const struct fc_interceptor bad = { .size = sizeof(bad), .name = "" };

	(void)state;
	assert_ptr_equal(fc_interceptor_find("cap"), &fc_interceptor_cap);
	assert_ptr_equal(fc_interceptor_find("rate"), &fc_interceptor_rate);
	assert_null(fc_interceptor_find("growing"));
	assert_null(fc_interceptor_find(NULL));
	assert_int_equal(fc_interceptor_register(&growing), 0);
	assert_int_equal(fc_interceptor_register(&growing), 0);
	assert_ptr_equal(fc_interceptor_find("growing"), &growing);
	assert_int_equal(fc_interceptor_register(&other), -EEXIST);
	assert_int_equal(fc_interceptor_register(&cap), -EEXIST);
	assert_int_equal(fc_interceptor_register(&bad), -EINVAL);
	assert_int_equal(fc_interceptor_register(NULL), -EINVAL);
}

/* ---- delays ------------------------------------------------------------------------------------ */

static atomic_int entered;

static void *enter_later(void *arg)
{
	struct fc_entry e = FC_ENTRY_INIT;

	if (fc_enter(&e, g.f, arg) == 0)
		atomic_store(&entered, 1);
	fc_exit(&e);
	return NULL;
}

static void a_call_that_is_delayed_sleeps_in_its_place(void **state)
{
	struct conf c = { .bytes = 64 };
	pthread_t thread;

	(void)state;
	memset(&seen, 0, sizeof(seen));
	assert_int_equal(use(&c, NULL, 1), 0);
	seen.delay = FC_S(2);
	atomic_store(&entered, 0);
	assert_int_equal(pthread_create(&thread, NULL, enter_later, NULL), 0);
	while (fc_inside(g.f, NULL) == 0)
		test_sleep_ms(1);
	guarded_pass(&g, FC_S(2) - 1);
	test_sleep_ms(20);
	assert_int_equal(atomic_load(&entered), 0);
	assert_int_equal(fc_inside(g.f, NULL), 1);
	guarded_pass(&g, 1);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&entered), 1);
	assert_true(seen.max_delay == UINT64_MAX);
}

static void granted(void *arg, struct fc_entry *e, int status)
{
	(void)arg;
	(void)e;
	(void)status;
}

static void nobody_is_delayed_beyond_his_time(void **state)
{
	struct fc_ctx ctx = { .size = sizeof(ctx), .deadline_ns = g.now + FC_S(1) };
	struct fc_entry e = FC_ENTRY_INIT;
	struct conf c = { .bytes = 64 };

	(void)state;
	memset(&seen, 0, sizeof(seen));
	assert_int_equal(use(&c, NULL, 1), 0);
	seen.delay = FC_S(1) + 1;
	assert_int_equal(fc_enter(&e, g.f, &ctx), FC_REFUSED_RATE);
	assert_true(seen.max_delay == FC_S(1) && fc_inside(g.f, NULL) == 0);
	/* Whoever cannot sleep is not asked to. */
	assert_int_equal(fc_enter_async(&e, g.f, NULL, granted, NULL), FC_REFUSED_RATE);
	assert_int_equal(seen.max_delay, 0);
	seen.delay = 0;
	assert_int_equal(fc_enter_async(&e, g.f, NULL, granted, NULL), 0);
	fc_exit(&e);
}

static void a_dry_run_delays_nobody(void **state)
{
	struct conf c = { .bytes = 64 };
	struct fc_rule rule = { .interceptor = &growing, .conf = &c, .flags = FC_RULE_DRY_RUN };

	(void)state;
	memset(&seen, 0, sizeof(seen));
	assert_int_equal(fc_iface_set_chain(g.f, &rule, 1), 0);
	seen.delay = FC_S(3600);
	call();
}

int main(void)
{
#define T(f_) cmocka_unit_test_setup_teardown(f_, setup, teardown)
	static const struct CMUnitTest tests[] = {
		T(a_state_belongs_to_a_name_and_survives_chains),
		T(a_state_that_has_to_grow_is_carried_over),
		T(a_chain_that_is_refused_at_any_place_changes_nothing),
		T(refused_chains_use_nothing),
		T(an_interface_has_so_many_names_in_its_life),
		T(memory_is_shared_by_name),
		T(interceptors_are_found_by_name),
		T(a_call_that_is_delayed_sleeps_in_its_place),
		T(nobody_is_delayed_beyond_his_time),
		T(a_dry_run_delays_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
