/* SPDX-License-Identifier: BSD-2-Clause */
/* Bulkheads: shares, the pool, callers by label, weights, changes, undo, and many threads. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcguard/isolate.h>

#include "support/guarded.h"
#include "support/threads.h"

static struct guarded g;
static char last_lines[4096]; /* of the log */

static void keep_line(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	snprintf(last_lines + strlen(last_lines), sizeof(last_lines) - strlen(last_lines), "%s\n", line);
}

static int setup(void **state)
{
	(void)state;
	guarded_open(&g, &(struct fc_iface_opts){ .cap = 64 });
	g.fc->log = keep_line;
	last_lines[0] = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return guarded_close(&g);
}

static int group(const char *name, uint32_t cap, const struct fc_isolate_member *m, uint32_t n)
{
	FC_OPTS(fc_isolate_opts, o, .cap = cap, .members = m, .n_members = n);

	return fc_isolate_group(g.fc, name, &o);
}

static int rule_of(struct fc_iface *f, const char *grp, const char *member, const char *label, uint32_t flags)
{
	struct fc_isolate_conf conf = { .group = grp, .member = member, .label = label };
	struct fc_rule rule = { .interceptor = &fc_interceptor_isolate, .conf = &conf, .flags = flags };

	return fc_iface_set_chain(f, &rule, 1);
}

static struct fc_iface *another(const char *name)
{
	FC_OPTS(fc_iface_opts, o, .cap = 64);
	struct fc_iface *f;

	assert_int_equal(fc_iface_set(g.fc, name, &o, &f), 0);
	return f;
}

/* How many of n calls get in; they come first in e. */
static unsigned fill(struct fc_iface *f, struct fc_entry *e, unsigned n, const struct fc_ctx *ctx)
{
	unsigned in = 0;

	for (unsigned i = 0; i < n; i++) {
		memset(&e[in], 0, sizeof(e[in]));
		in += fc_enter(&e[in], f, ctx) == 0;
	}
	return in;
}

static void assert_used(const char *member, uint32_t own, uint32_t borrowed)
{
	uint32_t o, b;

	assert_int_equal(fc_isolate_used(g.fc, "db", member, &o, &b), 0);
	assert_int_equal(o, own);
	assert_int_equal(b, borrowed);
}

static void a_hanging_member_leaves_the_others_their_shares(void **state)
{
	static const struct fc_isolate_member m[] = { { "checkout", 3, 0 }, { "search", 2, 0 } };
	struct fc_iface *search = another("search");
	FC_OPTS(fc_decision, d, .status = 0);
	struct fc_entry a[20], b[20];

	(void)state;
	assert_int_equal(group("db", 10, m, 2), 0);
	assert_int_equal(rule_of(g.f, "db", "checkout", NULL, 0), 0);
	assert_int_equal(rule_of(search, "db", NULL, NULL, 0), 0); /* by its name */
	assert_int_equal(fill(g.f, a, 20, NULL), 8); /* its 3 and the pool's 5 */
	assert_used("checkout", 3, 5);
	assert_used(NULL, 8, 5);
	assert_int_equal(fc_enter(&a[8], g.f, NULL), FC_REFUSED_ISOLATED);
	assert_int_equal(fc_entry_decision(&a[8], &d), 0);
	assert_true(d.observed == 8 && d.limit == 10 && !strcmp(d.rule, "isolate"));
	assert_int_equal(fill(search, b, 20, NULL), 2);
	assert_used("search", 2, 0);
	/* What the other gives back is what it borrowed last; then the pool is there for search. */
	for (int i = 0; i < 8; i++)
		fc_exit(&a[i]);
	assert_int_equal(fill(search, b + 2, 18, NULL), 5);
	for (int i = 0; i < 7; i++)
		fc_exit(&b[i]);
	assert_used("checkout", 0, 0);
	assert_used("search", 0, 0);
	assert_used(NULL, 0, 0);
}

static void most_bounds_what_a_member_may_borrow(void **state)
{
	static const struct fc_isolate_member m[] = { { "a", 1, 3 }, { "b", 0, 2 } };
	struct fc_iface *f = another("b");
	struct fc_entry e[10];

	(void)state;
	assert_int_equal(group("db", 10, m, 2), 0);
	assert_int_equal(rule_of(g.f, "db", "a", NULL, 0), 0);
	assert_int_equal(rule_of(f, "db", "b", NULL, 0), 0);
	assert_int_equal(fill(g.f, e, 4, NULL), 3);
	assert_int_equal(fill(f, e + 3, 4, NULL), 2);
	for (int i = 0; i < 5; i++)
		fc_exit(&e[i]);
	assert_used(NULL, 0, 0);
}

static void callers_are_told_apart_by_a_label(void **state)
{
	static const struct fc_isolate_member m[] = { { "gold", 3, 0 }, { "free", 0, 2 } };
	struct fc_label l[3] = { fc_label("plan", "gold"), fc_label("plan", "free"), fc_label("plan", "nobody") };
	struct fc_ctx ctx[3];
	struct fc_entry e[20];
	unsigned n = 0;

	(void)state;
	for (int i = 0; i < 3; i++)
		ctx[i] = (struct fc_ctx){ .size = sizeof(ctx[i]), .labels = &l[i], .n_labels = 1 };
	assert_int_equal(group("db", 6, m, 2), 0);
	assert_int_equal(rule_of(g.f, "db", NULL, "plan", 0), 0);
	n += fill(g.f, e, 5, &ctx[1]);
	assert_int_equal(n, 2);
	n += fill(g.f, e + n, 5, &ctx[2]); /* of no member: the pool alone */
	assert_int_equal(n, 3);
	n += fill(g.f, e + n, 5, NULL);
	assert_int_equal(n, 3);
	n += fill(g.f, e + n, 5, &ctx[0]);
	assert_int_equal(n, 6);
	assert_used("gold", 3, 0);
	while (n > 0)
		fc_exit(&e[--n]);
	assert_used(NULL, 0, 0);
}

static void a_heavy_call_takes_own_and_borrowed_places(void **state)
{
	static const struct fc_isolate_member m[] = { { "a", 2, 0 } };
	struct fc_ctx ctx = { .size = sizeof(ctx), .weight = 3 };
	struct fc_iface *f;
	FC_OPTS(fc_iface_opts, o, .cap = 64, .max_weight = 8);
	struct fc_entry e[3] = { FC_ENTRY_INIT };

	(void)state;
	assert_int_equal(fc_iface_set(g.fc, "heavy", &o, &f), 0);
	assert_int_equal(group("db", 5, m, 1), 0);
	assert_int_equal(rule_of(f, "db", "a", NULL, 0), 0);
	assert_int_equal(fc_enter(&e[0], f, &ctx), 0);
	assert_used("a", 2, 1);
	assert_int_equal(fc_enter(&e[1], f, &ctx), FC_REFUSED_ISOLATED); /* all or none */
	assert_used("a", 2, 1);
	ctx.weight = 2;
	assert_int_equal(fc_enter(&e[1], f, &ctx), 0);
	assert_used("a", 2, 3);
	fc_exit(&e[0]);
	assert_used("a", 0, 2);
	fc_exit(&e[1]);
	assert_used(NULL, 0, 0);
}

static void numbers_change_for_new_calls_and_inside_only_falls(void **state)
{
	static const struct fc_isolate_member before[] = { { "a", 0, 0 } }, after[] = { { "a", 0, 0 }, { "b", 4, 0 } };
	struct fc_iface *f = another("b");
	struct fc_entry e[20], b[20];

	(void)state;
	assert_int_equal(group("db", 8, before, 1), 0);
	assert_int_equal(rule_of(g.f, "db", "a", NULL, 0), 0);
	assert_int_equal(rule_of(f, "db", "b", NULL, 0), -ENOENT);
	assert_non_null(strstr(last_lines, "\"b\" is no member of group \"db\""));
	assert_int_equal(fill(g.f, e, 20, NULL), 8);
	assert_int_equal(group("db", 8, after, 2), 0); /* the pool is 4 now, and 8 are in it */
	assert_int_equal(rule_of(f, "db", "b", NULL, 0), 0);
	assert_int_equal(fill(g.f, e + 8, 1, NULL), 0);
	assert_int_equal(fill(f, b, 20, NULL), 4); /* its share is there at once */
	for (int i = 0; i < 5; i++)
		fc_exit(&e[i]);
	assert_used("a", 0, 3);
	assert_int_equal(fill(g.f, e, 5, NULL), 1);
	assert_int_equal(group("db", 8, before, 1), 0); /* and b has none any more */
	assert_int_equal(fill(f, b + 4, 9, NULL), 4);
	for (int i = 0; i < 8; i++)
		fc_exit(&b[i]);
	fc_exit(&e[0]);
	for (int i = 5; i < 8; i++)
		fc_exit(&e[i]);
	assert_used(NULL, 0, 0);
}

static int always(struct fc_call *c)
{
	(void)c;
	return FC_REFUSED_CUSTOM;
}

static void a_refusal_behind_it_gives_all_back(void **state)
{
	static const struct fc_interceptor last = { .size = sizeof(last), .order = FC_ORDER_USER, .name = "last", .pre = always };
	static const struct fc_isolate_member m[] = { { "a", 1, 0 } };
	struct fc_isolate_conf conf = { .group = "db", .member = "a" };
	struct fc_rule rules[] = { { .interceptor = &fc_interceptor_isolate, .conf = &conf }, { .interceptor = &last } };
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(group("db", 2, m, 1), 0);
	assert_int_equal(fc_iface_set_chain(g.f, rules, 2), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(fc_enter(&e, g.f, NULL), FC_REFUSED_CUSTOM);
	assert_used("a", 0, 0);
	assert_used(NULL, 0, 0);
}

static void a_dry_run_lets_all_in_and_holds_nothing_over(void **state)
{
	static const struct fc_isolate_member m[] = { { "a", 1, 0 } };
	struct fc_entry e[8];

	(void)state;
	assert_int_equal(group("db", 2, m, 1), 0);
	assert_int_equal(rule_of(g.f, "db", "a", NULL, FC_RULE_DRY_RUN), 0);
	assert_int_equal(fill(g.f, e, 8, NULL), 8);
	assert_used("a", 1, 1);
	for (int i = 0; i < 8; i++)
		fc_exit(&e[i]);
	assert_used("a", 0, 0);
	assert_true(guarded_stats(&g).would_refuse >= 6);
}

static void bad_groups_change_nothing(void **state)
{
	static const struct fc_isolate_member over[] = { { "a", 3, 0 }, { "b", 3, 0 } }, twice[] = { { "a", 1, 0 }, { "a", 1, 0 } },
		most[] = { { "a", 3, 2 } }, none[] = { { "", 1, 0 } }, good[] = { { "a", 3, 0 } };
	struct fc_isolate_member many[FC_ISOLATE_MEMBERS_MAX];
	char names[FC_ISOLATE_MEMBERS_MAX][8];
	struct fc_entry e[8];

	(void)state;
	assert_int_equal(rule_of(g.f, "db", "a", NULL, 0), -ENOENT);
	assert_non_null(strstr(last_lines, "rule 0"));
	assert_int_equal(group("db", 5, good, 1), 0);
	assert_int_equal(rule_of(g.f, "db", "a", "plan", 0), -EINVAL);
	assert_int_equal(rule_of(g.f, "db", "a", NULL, 0), 0);
	assert_int_equal(group("db", 5, over, 2), -EINVAL);
	assert_non_null(strstr(last_lines, "group \"db\": the shares are more than the cap"));
	assert_int_equal(group("db", 5, twice, 2), -EINVAL);
	assert_non_null(strstr(last_lines, "twice the member a"));
	assert_int_equal(group("db", 5, most, 1), -EINVAL);
	assert_int_equal(group("db", 5, none, 1), -EINVAL);
	assert_int_equal(group("db", 0, NULL, 0), -EINVAL);
	assert_int_equal(group("db", 1000001, NULL, 0), -EINVAL);
	assert_int_equal(group("", 5, good, 1), -EINVAL);
	assert_int_equal(group("a name that is too long for a group of it", 5, good, 1), -EINVAL);
	assert_int_equal(fc_isolate_group(NULL, "db", NULL), -EINVAL);
	assert_int_equal(fill(g.f, e, 8, NULL), 5);
	for (int i = 0; i < 5; i++)
		fc_exit(&e[i]);
	for (int i = 0; i < FC_ISOLATE_MEMBERS_MAX; i++) {
		snprintf(names[i], sizeof(names[i]), "m%d", i);
		many[i] = (struct fc_isolate_member){ names[i], 1, 0 };
	}
	assert_int_equal(group("db", 100, many, FC_ISOLATE_MEMBERS_MAX), -ENOSPC); /* "a" was one */
	assert_int_equal(fill(g.f, e, 8, NULL), 5);
	for (int i = 0; i < 5; i++)
		fc_exit(&e[i]);
}

/* ---- threads ----------------------------------------------------------------------------------- */

static struct {
	struct fc_iface *f[2];
	atomic_int inside, worst;
} race;

static void worker(void *arg, unsigned index, struct rng *rng)
{
	uint64_t end = stress_end_ns();
	struct fc_iface *f = race.f[index & 1];

	(void)arg;
	while (test_now_ns() < end) {
		struct fc_entry e = FC_ENTRY_INIT;
		int now;

		if (fc_enter(&e, f, NULL))
			continue;
		now = atomic_fetch_add(&race.inside, 1) + 1;
		if (now > atomic_load(&race.worst))
			atomic_store(&race.worst, now);
		if (rng_chance(rng, 8))
			test_sleep_ms(0);
		atomic_fetch_sub(&race.inside, 1);
		fc_exit(&e);
	}
}

static void many_threads_never_pass_the_cap_and_leave_nothing(void **state)
{
	static const struct fc_isolate_member m[] = { { "a", 1, 0 }, { "b", 1, 2 } };

	(void)state;
	assert_int_equal(group("db", 4, m, 2), 0);
	race.f[0] = g.f;
	race.f[1] = another("b");
	assert_int_equal(rule_of(race.f[0], "db", "a", NULL, 0), 0);
	assert_int_equal(rule_of(race.f[1], "db", "b", NULL, 0), 0);
	run_threads(4 * test_cpus() + 2, worker, NULL);
	assert_true(atomic_load(&race.worst) >= 2 && atomic_load(&race.worst) <= 4);
	assert_used("a", 0, 0);
	assert_used("b", 0, 0);
	assert_used(NULL, 0, 0);
}

/* The calls inside are the parent's: they leave there. */
static int in_the_child(void)
{
	struct fc_entry e[8];
	uint32_t own, borrowed;
	int bad = fc_isolate_used(g.fc, "db", "checkout", &own, &borrowed) != 0 || own || borrowed;

	bad |= (fc_isolate_used(g.fc, "db", NULL, &own, &borrowed) != 0 || own || borrowed) << 1;
	return bad | (fill(g.f, e, 8, NULL) != 3) << 2;
}

static void the_child_of_a_fork_has_all_places(void **state)
{
	static const struct fc_isolate_member m[] = { { "checkout", 2, 0 } };
	struct fc_entry e[3];
	int status = -1;
	pid_t pid;

	(void)state;
	assert_int_equal(group("db", 3, m, 1), 0);
	assert_int_equal(rule_of(g.f, "db", "checkout", NULL, 0), 0);
	assert_int_equal(fill(g.f, e, 3, NULL), 3);
	pid = fork();
	if (pid == 0)
		_exit(in_the_child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_used("checkout", 2, 1);
	for (int i = 0; i < 3; i++)
		fc_exit(&e[i]);
	assert_used(NULL, 0, 0);
}

int main(void)
{
#define T(f_) cmocka_unit_test_setup_teardown(f_, setup, teardown)
	static const struct CMUnitTest tests[] = {
		T(a_hanging_member_leaves_the_others_their_shares),
		T(most_bounds_what_a_member_may_borrow),
		T(callers_are_told_apart_by_a_label),
		T(a_heavy_call_takes_own_and_borrowed_places),
		T(numbers_change_for_new_calls_and_inside_only_falls),
		T(a_refusal_behind_it_gives_all_back),
		T(a_dry_run_lets_all_in_and_holds_nothing_over),
		T(bad_groups_change_nothing),
		T(the_child_of_a_fork_has_all_places),
		T(many_threads_never_pass_the_cap_and_leave_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
