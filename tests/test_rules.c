/* SPDX-License-Identifier: BSD-2-Clause */
/* Rules files in force: which entry, all or nothing, state kept, what wins, watching, many threads. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/rules.h"
#include "support/guarded.h"
#include "support/locker.h"
#include "support/threads.h"

#define V "version: 1\n"

static struct guarded g;
static FC_OPTS(fc_rules_error, err, .error = 0);
static char path[64], log_text[16384];

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER; /* the thread of a watched file writes, too */

static void keep_line(void *arg, int level, const char *text)
{
	size_t used;

	(void)arg;
	(void)level;
	pthread_mutex_lock(&log_mutex);
	used = strlen(log_text);
	snprintf(log_text + used, sizeof(log_text) - used, "%s\n", text);
	pthread_mutex_unlock(&log_mutex);
}

static int setup(void **state)
{
	(void)state;
	guarded_context(&g, 0);
	g.fc->log = keep_line;
	log_text[0] = '\0';
	err.size = sizeof(err);
	snprintf(path, sizeof(path), "/tmp/fcguard-rules-%d.yaml", (int)getpid());
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return guarded_close(&g);
}

static int load(const char *text)
{
	return fc_rules_load_text(g.fc, FC_RULES_FILE, "t", text, strlen(text), &err);
}

static int push(const char *text)
{
	return fc_rules_load_text(g.fc, FC_RULES_PUSHED, "p", text, strlen(text), &err);
}

static struct fc_iface_opts opts_of(const char *name)
{
	FC_OPTS(fc_iface_opts, o, .cap = 0);

	assert_int_equal(fc_iface_get_opts(fc_iface_get(g.fc, name), &o), 0);
	return o;
}

static uint32_t cap_of(const char *name)
{
	return opts_of(name).cap;
}

static void write_file(const char *text)
{
	char tmp[80];
	FILE *f;

	snprintf(tmp, sizeof(tmp), "%s.new", path);
	f = fopen(tmp, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	assert_int_equal(rename(tmp, path), 0);
}

/* How many calls in a row the interface lets in, each leaving at once; up to n. */
static unsigned let_in(struct fc_iface *f, unsigned n)
{
	struct fc_entry e = FC_ENTRY_INIT;
	unsigned in = 0;

	while (in < n && fc_enter(&e, f, NULL) == 0) {
		fc_exit(&e);
		in++;
	}
	return in;
}

/* ---- which entry ------------------------------------------------------------------------------- */

static void interfaces_made_before_and_after_get_their_numbers(void **state)
{
	(void)state;
	assert_int_equal(cap_of("a.before"), FC_UNLIMITED);
	assert_int_equal(load(V "interfaces: {a.before: {cap: 5}, a.after: {cap: 6, stuck_after: 2s, dry_run: true}}"), 0);
	assert_int_equal(cap_of("a.before"), 5);
	assert_int_equal(cap_of("a.after"), 6);
	assert_true(opts_of("a.after").stuck_after_ns == FC_S(2));
	assert_int_equal(opts_of("a.after").flags, FC_IFACE_DRY_RUN);
	assert_int_equal(cap_of("else"), FC_UNLIMITED);
}

static void the_most_specific_entry_wins(void **state)
{
	(void)state;
	assert_int_equal(load(V "interfaces:\n  '*': {cap: 1}\n  db.*: {cap: 2}\n  '*.read': {cap: 3}\n  db.*.read: {cap: 4}\n"
	                      "  db.users.read: {cap: 5}\n  db.u*: {cap: 6}\n"), 0);
	assert_int_equal(cap_of("x"), 1);
	assert_int_equal(cap_of("db."), 2);
	assert_int_equal(cap_of("x.read"), 3);
	assert_int_equal(cap_of("db.x.read"), 4); /* as db.* before the star, and more in all */
	assert_int_equal(cap_of("db.users.read"), 5);
	assert_int_equal(cap_of("db.users.write"), 6);
	assert_int_equal(cap_of("db.u.read"), 6); /* more before the star */
}

static void an_entry_is_completed_by_the_defaults(void **state)
{
	(void)state;
	assert_int_equal(load(V "defaults: {cap: 9, stuck_after: 3s, dry_run: true, rules: {rate: {limit: 5/s}}}\n"
	                      "interfaces: {a: {cap: 5}, b: {stuck_after: 1s, dry_run: false, rules: {}}}"), 0);
	assert_int_equal(cap_of("a"), 5);
	assert_true(opts_of("a").stuck_after_ns == FC_S(3) && opts_of("a").flags == FC_IFACE_DRY_RUN);
	assert_int_equal(cap_of("b"), 9);
	assert_true(opts_of("b").stuck_after_ns == FC_S(1) && opts_of("b").flags == 0);
	assert_int_equal(let_in(fc_iface_get(g.fc, "b"), 20), 20);
	assert_int_equal(cap_of("c"), 9);
}

static void what_is_no_longer_named_goes_back(void **state)
{
	struct fc_iface *f = fc_iface_get(g.fc, "a");
	FC_OPTS(fc_stats, s, .cap = 0);

	(void)state;
	assert_int_equal(load(V "interfaces: {a: {cap: 5, rules: {rate: {limit: 1/h, burst: 2}}}}"), 0);
	assert_int_equal(let_in(f, 9), 2);
	assert_int_equal(load(V), 0);
	assert_int_equal(cap_of("a"), FC_UNLIMITED);
	assert_int_equal(let_in(f, 9), 9);
	assert_int_equal(load(V "interfaces: {a: {cap: 5}}"), 0);
	assert_int_equal(fc_rules_clear(g.fc, FC_RULES_FILE), 0);
	assert_int_equal(cap_of("a"), FC_UNLIMITED);
	assert_int_equal(fc_iface_stats(f, &s), 0);
}

/* ---- all or nothing ---------------------------------------------------------------------------- */

static void a_byte_order_mark_and_line_ends_of_windows_do_no_harm(void **state)
{
	(void)state;
	assert_int_equal(load("\xef\xbb\xbfversion: 1\r\ninterfaces:\r\n  a: {cap: 5}\r\n"), 0);
	assert_int_equal(cap_of("a"), 5);
	assert_int_equal(load("\xef\xbb\xbfversion: 1\r\ninterfaces: {a: {cap: x}}\r\n"), -EINVAL);
	assert_non_null(strstr(err.text, "t:2:23: "));
}

static void a_bad_file_changes_nothing(void **state)
{
	struct fc_iface *f = fc_iface_get(g.fc, "a");
	FC_OPTS(fc_rules_status, s, .loads = 0);

	(void)state;
	assert_int_equal(load(V "interfaces: {a: {cap: 5, rules: {rate: {limit: 1/h, burst: 3}}}}"), 0);
	assert_int_equal(load(V "interfaces: {a: {cap: 6}, b: {cap: lots}}"), -EINVAL);
	assert_int_equal(err.n, 1);
	assert_true(err.line == 2 && err.column == 36 && err.error == -EINVAL);
	assert_string_equal(err.text, "t:2:36: key `interfaces/b/cap`: found \"lots\" (no number, or one that is too large); "
	                              "allowed: a number from 1 to 65536, unlimited, 0\n");
	assert_non_null(strstr(log_text, err.text));
	assert_int_equal(cap_of("a"), 5);
	/* What an interceptor refuses is known before anything is changed, too. */
	assert_int_equal(load(V "interfaces: {a: {cap: 6}, b: {rules: {isolate: {group: none}}}}"), -EINVAL);
	assert_int_equal(cap_of("a"), 5);
	assert_int_equal(let_in(f, 9), 3);
	assert_int_equal(fc_rules_status(g.fc, &s), 0);
	assert_true(s.loads == 1 && s.failures == 2 && s.last_error == -EINVAL);
}

static void when_memory_ends_the_old_rules_are_whole(void **state)
{
	static const char *const names[] = { "a", "b", "c" };
	struct fc_iface *f[3];
	struct fci_chain *was[3];
	unsigned long long failed = 0, tries = 1;
	struct fc_health_opts h;
	int rc;

	(void)state;
	for (int i = 0; i < 3; i++)
		f[i] = fc_iface_get(g.fc, names[i]);
	assert_int_equal(load(V "interfaces: {'?': {}, '*': {cap: 5, rules: {rate: {limit: 1/h, burst: 2}}}}"), 0);
	for (int i = 0; i < 3; i++)
		was[i] = atomic_load_explicit(&f[i]->chain, memory_order_acquire);
	do {
		g.mem.fail_at = g.mem.calls + tries++;
		rc = load(V "health: {cpu: 60%}\n"
		          "interfaces: {'*': {cap: 6, max_cap: 500, fallback_on: [cap], rules: {rate: {limit: 2/h, burst: 2}, "
		          "access: {label: ip, deny: [10.1.2.3]}}}}");
		g.mem.fail_at = 0;
		for (int i = 0; rc < 0 && i < 3; i++) {
			assert_int_equal(cap_of(names[i]), 5);
			assert_ptr_equal(was[i], atomic_load_explicit(&f[i]->chain, memory_order_acquire));
		}
		if (rc < 0) {
			failed++;
			assert_true(rc == -ENOMEM && err.n == 1);
			fci_health_get_opts(&g.fc->health, &h);
			assert_int_equal(h.cpu_permille, 800);
		}
	} while (rc < 0 && tries < 200);
	assert_int_equal(rc, 0);
	assert_in_range(failed, 4, 100);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(cap_of(names[i]), 6);
		assert_int_equal(let_in(f[i], 9), 2);
	}
}

static void an_unreadable_or_odd_file_is_refused(void **state)
{
	(void)state;
	assert_int_equal(fc_rules_load(g.fc, "/nonexistent/x", &err), -ENOENT);
	assert_string_equal(err.text, "/nonexistent/x: No such file or directory\n");
	assert_int_equal(fc_rules_load(g.fc, "/tmp", &err), -EINVAL);
	assert_int_equal(fc_rules_load(g.fc, "", &err), -EINVAL);
	assert_int_equal(fc_rules_load(NULL, path, &err), -EINVAL);
	assert_int_equal(fc_rules_load_text(g.fc, 2, "t", V, 11, &err), -EINVAL);
	write_file(V "interfaces: {a: {cap: 5, rules: {rate: {limit: 5");
	assert_int_equal(fc_rules_load(g.fc, path, &err), -EINVAL);
	assert_int_equal(fc_rules_load(g.fc, path, NULL), -EINVAL);
	write_file(V "interfaces: {a: {cap: 5}}");
	assert_int_equal(fc_rules_reload(g.fc, &err), 0);
	assert_int_equal(cap_of("a"), 5);
}

static void a_smaller_error_struct_of_an_older_caller_is_not_overrun(void **state)
{
	struct {
		struct fc_rules_error e;
		char after[8];
	} *small = malloc(sizeof(*small));

	(void)state;
	memset(small, 7, sizeof(*small));
	small->e.size = offsetof(struct fc_rules_error, text) + 10;
	assert_int_equal(fc_rules_load_text(g.fc, 0, "name", "x", 1, &small->e), -EINVAL);
	assert_int_equal(strlen(small->e.text), 9);
	assert_int_equal(small->e.text[10], 7);
	free(small);
}

/* ---- state ------------------------------------------------------------------------------------- */

static void a_reload_keeps_tokens_and_touches_only_what_changed(void **state)
{
	struct fc_iface *a = fc_iface_get(g.fc, "a"), *b = fc_iface_get(g.fc, "b");
	struct fci_chain *was;
	FC_OPTS(fc_rules_status, s, .loads = 0);

	(void)state;
	assert_int_equal(load(V "interfaces: {a: {rules: {rate: {limit: 1/h, burst: 5}}}, b: {rules: {rate: {limit: 1/h, burst: 5}}}}"), 0);
	assert_int_equal(let_in(a, 3), 3);
	was = atomic_load_explicit(&a->chain, memory_order_acquire);
	assert_int_equal(load("# other words for the same\n" V "interfaces:\n  a: {rules: {rate: {limit: 1/h, burst: 5}}}\n"
	                      "  b: {rules: {rate: {limit: 1/h, burst: 6}}}\n"), 0);
	assert_ptr_equal(was, atomic_load_explicit(&a->chain, memory_order_acquire));
	assert_int_equal(let_in(a, 9), 2);
	assert_int_equal(fc_rules_status(g.fc, &s), 0);
	assert_int_equal(s.changed, 3); /* both, then b */
	/* Gone and come again: its state has waited. */
	assert_int_equal(load(V "interfaces: {a: {rules: {}}}"), 0);
	assert_int_equal(let_in(a, 9), 9);
	assert_int_equal(load(V "interfaces: {a: {rules: {rate: {limit: 1/h, burst: 5}}}}"), 0);
	assert_int_equal(let_in(a, 9), 0);
	assert_int_equal(let_in(b, 9), 9);
}

static void a_call_inside_ends_under_the_rules_it_began_with(void **state)
{
	struct fc_iface *f = fc_iface_get(g.fc, "a");
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(load(V "interfaces: {a: {cap: 1, rules: {breaker: {errors: 1}}}}"), 0);
	assert_int_equal(fc_enter(&e, f, NULL), 0);
	assert_int_equal(load(V "interfaces: {a: {cap: 1}}"), 0);
	fc_entry_mark(&e, FC_OUTCOME_ERROR);
	fc_exit(&e);
	assert_int_equal(load(V "interfaces: {a: {cap: 1, rules: {breaker: {errors: 1}}}}"), 0);
	assert_int_equal(fc_enter(&e, f, NULL), FC_REFUSED_BREAKER); /* its error was counted */
}

static void a_rule_may_run_dry_be_off_or_stand_elsewhere(void **state)
{
	struct fc_iface *f = fc_iface_get(g.fc, "a");
	struct fc_entry e = FC_ENTRY_INIT;
	FC_OPTS(fc_decision, d, .status = 0);

	(void)state;
	assert_int_equal(load(V "interfaces: {a: {rules: {rate: {limit: 1/h, burst: 1, dry_run: true}}}}"), 0);
	assert_int_equal(let_in(f, 9), 9);
	assert_int_equal(load(V "interfaces: {a: {rules: {x: {use: rate, limit: 1/h, burst: 1}, rate.y: {limit: 1/h, burst: 1}}}}"), 0);
	assert_int_equal(let_in(f, 9), 1);
	assert_int_equal(fc_enter(&e, f, NULL), FC_REFUSED_RATE);
	assert_int_equal(fc_entry_decision(&e, &d), 0);
	assert_string_equal(d.rule, "x");
	assert_int_equal(load(V "interfaces: {a: {rules: {x: {use: rate, limit: 1/h, burst: 1}, rate.y: {limit: 1/h, burst: 1, order: 5}}}}"), 0);
	assert_int_equal(fc_enter(&e, f, NULL), FC_REFUSED_RATE);
	assert_int_equal(fc_entry_decision(&e, &d), 0);
	assert_string_equal(d.rule, "rate.y");
	assert_int_equal(load(V "interfaces: {a: {rules: {x: {use: rate, limit: 1/h, burst: 1, off: true}}}}"), 0);
	assert_int_equal(let_in(f, 9), 9);
}

/* ---- what wins --------------------------------------------------------------------------------- */

static void by_hand_wins_until_it_is_released(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 3);
	struct fc_rate_conf conf = { .limit = { 1, FC_S(3600) }, .burst = 2 };
	struct fc_rule rule = { .interceptor = &fc_interceptor_rate, .conf = &conf };
	struct fc_iface *f;
	FC_OPTS(fc_rules_status, s, .loads = 0);

	(void)state;
	assert_int_equal(load(V "interfaces: {a: {cap: 5, rules: {rate: {limit: 1/h, burst: 4}}}}"), 0);
	f = fc_iface_get(g.fc, "a");
	assert_int_equal(fc_rules_hold(g.fc, "a", 0), -ENOENT);
	assert_int_equal(fc_iface_set(g.fc, "a", &o, NULL), 0);
	assert_int_equal(load(V "interfaces: {a: {cap: 6, rules: {rate: {limit: 1/h, burst: 4}}}}"), 0);
	assert_int_equal(cap_of("a"), 3);
	assert_int_equal(let_in(f, 9), 4); /* its rules were not set by hand */
	assert_int_equal(fc_iface_set_chain(f, NULL, 0), 0);
	assert_int_equal(load(V "interfaces: {a: {cap: 7, rules: {rate: {limit: 2/h, burst: 4}}}}"), 0);
	assert_int_equal(let_in(f, 9), 9);
	assert_int_equal(fc_rules_status(g.fc, &s), 0);
	assert_int_equal(s.held, 1);
	assert_int_equal(fc_rules_hold(g.fc, "a", 0), 0);
	assert_int_equal(cap_of("a"), 7);
	assert_int_equal(let_in(f, 9), 0);
	/* A chain by hand where rules have none. */
	assert_int_equal(load(V "interfaces: {a: {cap: 7}}"), 0);
	assert_int_equal(fc_iface_set_chain(f, &rule, 1), 0);
	assert_int_equal(fc_rules_hold(g.fc, "a", 0), 0);
	assert_int_equal(let_in(f, 9), 9);
	/* One made by hand after loading: its numbers are by hand, its rules are the file's. */
	assert_int_equal(load(V "interfaces: {b: {cap: 7, rules: {rate: {limit: 1/h, burst: 4}}}}"), 0);
	assert_int_equal(fc_iface_set(g.fc, "b", &o, &f), 0);
	assert_int_equal(cap_of("b"), 3);
	assert_int_equal(let_in(f, 9), 4);
	assert_int_equal(fc_rules_hold(g.fc, "b", 0), 0);
	assert_int_equal(cap_of("b"), 7);
}

/* How often the log says that the program's numbers hold, since the last question. */
static uint32_t told_kept(const char *of)
{
	char want[128];
	uint32_t n = 0;

	snprintf(want, sizeof(want), "rules: %s: what the program has set holds", of);
	for (const char *s = log_text; (s = strstr(s, want)) != NULL; s++)
		n++;
	log_text[0] = '\0';
	return n;
}

static void what_a_file_says_in_vain_is_told(void **state)
{
	FC_OPTS(fc_iface_opts, o, .cap = 3);
	struct fc_iface *f;

	(void)state;
	assert_int_equal(fc_iface_set(g.fc, "a", &o, &f), 0);
	assert_int_equal(load(V "interfaces: {b: {cap: 5}, a: {rules: {rate: {limit: 1/h}}}}"), 0);
	assert_int_equal(told_kept("a"), 0); /* its numbers and these rules go together */
	assert_int_equal(load(V "defaults: {cap: 9}"), 0);
	assert_int_equal(told_kept("a"), 0);
	assert_int_equal(load(V "interfaces: {a: {cap: 5}}"), 0);
	assert_int_equal(told_kept("a"), 1);
	assert_int_equal(fc_iface_set(g.fc, "b", &o, NULL), 0);
	assert_int_equal(load(V "interfaces: {'*': {cap: 5}}"), 0);
	assert_int_equal(told_kept("a and 1 other interface"), 1);
	assert_int_equal(fc_rules_hold(g.fc, "a", 0), 0);
	assert_int_equal(fc_rules_hold(g.fc, "b", 0), 0);
	assert_int_equal(fc_iface_set_chain(f, NULL, 0), 0);
	assert_int_equal(load(V "interfaces: {a: {cap: 6}}"), 0);
	assert_int_equal(told_kept("a"), 0);
	assert_int_equal(load(V "interfaces: {a: {rules: {rate: {limit: 1/h}}}}"), 0);
	assert_int_equal(told_kept("a"), 1);
	assert_int_equal(fc_iface_fallback_on(f, 1u << FC_REFUSED_CAP), 0);
	assert_int_equal(load(V "interfaces: {a: {fallback_on: [breaker]}}"), 0);
	assert_int_equal(told_kept("a"), 1);
}

static void what_is_set_by_hand_may_expire(void **state)
{
	struct fc_iface *f;

	(void)state;
	assert_int_equal(load(V "interfaces: {a: {cap: 5}}"), 0);
	f = fc_iface_get(g.fc, "a");
	assert_int_equal(fc_iface_set_cap(f, 9), 0);
	assert_int_equal(fc_rules_hold(g.fc, "a", FC_S(10)), 0);
	guarded_pass(&g, FC_S(9));
	fc_tick(g.fc, 0);
	assert_int_equal(cap_of("a"), 9);
	guarded_pass(&g, FC_S(1));
	fc_tick(g.fc, 0);
	assert_int_equal(cap_of("a"), 5);
	/* Set again: for good. */
	assert_int_equal(fc_iface_set_cap(f, 9), 0);
	guarded_pass(&g, FC_S(1000));
	fc_tick(g.fc, 0);
	assert_int_equal(cap_of("a"), 9);
}

static int answer(void *arg, const struct fc_decision *why, void *call)
{
	(void)arg, (void)call;
	return why->status;
}

/* Is a refusal for the cap (of 1) answered? */
static int answers_cap(struct fc_iface *f)
{
	struct fc_entry in = FC_ENTRY_INIT, e = FC_ENTRY_INIT;
	int said = 0;

	assert_int_equal(fc_enter(&in, f, NULL), 0);
	assert_int_equal(fc_enter(&e, f, NULL), FC_REFUSED_CAP);
	(void)fc_fallback(&e, NULL, &said);
	fc_exit(&in);
	return said == FC_REFUSED_CAP;
}

/* Are 20 calls inside over the bound? */
static int refuses_twenty(struct fc_iface *f)
{
	struct fc_entry e[20];
	uint32_t level;

	assert_int_equal(guarded_fill(&(struct guarded){ .f = f }, e, 20), 20);
	for (int i = 0; i < 3; i++) {
		guarded_pass(&g, FC_MS(250));
		(void)fc_tick(g.fc, 0);
	}
	level = fc_system_level(g.fc);
	guarded_empty(e, 20);
	while (fc_system_level(g.fc) < 8) {
		guarded_pass(&g, FC_S(10));
		(void)fc_tick(g.fc, 0);
	}
	return level < 8;
}

static void what_is_set_by_hand_of_the_process_and_of_fallbacks_wins_as_well(void **state)
{
	FC_OPTS(fc_system_opts, system, .in_flight = 99);
	FC_OPTS(fc_health_opts, health, .cpu_permille = 700);
	struct fc_iface *a, *many;
	struct fc_health_opts h;

	(void)state;
	assert_int_equal(load(V "system: {in_flight: 7}\nhealth: {cpu: 60%}\n"
	                      "interfaces: {a: {cap: 1, fallback_on: [rate]}}"), 0);
	a = fc_iface_get(g.fc, "a");
	many = fc_iface_get(g.fc, "many");
	assert_int_equal(fc_iface_fallback(a, answer, NULL), 0);
	assert_true(refuses_twenty(many) && !answers_cap(a));
	assert_int_equal(fc_system_set(g.fc, &system), 0);
	assert_int_equal(fc_health_set(g.fc, &health), 0);
	assert_int_equal(fc_iface_fallback_on(a, FC_FALLBACK_BIT(FC_REFUSED_CAP)), 0);
	assert_int_equal(load(V "system: {in_flight: 8}\nhealth: {cpu: 61%}\n"
	                      "interfaces: {a: {cap: 1, fallback_on: [breaker]}}"), 0);
	fci_health_get_opts(&g.fc->health, &h);
	assert_int_equal(h.cpu_permille, 700);
	assert_true(!refuses_twenty(many) && answers_cap(a));
	/* The file's turn. */
	assert_int_equal(fc_rules_hold(g.fc, NULL, 0), 0);
	assert_int_equal(fc_rules_hold(g.fc, "a", 0), 0);
	fci_health_get_opts(&g.fc->health, &h);
	assert_int_equal(h.cpu_permille, 610);
	assert_true(refuses_twenty(many) && !answers_cap(a));
}

static void a_load_that_was_overtaken_changes_nothing(void **state)
{
	static const char old[] = V "interfaces: {a: {cap: 4}}";
	struct fc_rules_error own;
	struct fci_doc *d;

	(void)state;
	assert_int_equal(load(V "interfaces: {a: {cap: 5}}"), 0);
	assert_int_equal(load(V "interfaces: {a: {cap: 6}}"), 0);
	d = fci_doc_read("old", old, strlen(old), fci_rules_begin(&own));
	assert_non_null(d);
	assert_int_equal(fci_rules_apply(g.fc, FC_RULES_FILE, d, 1, &own), 0); /* it was called first */
	assert_int_equal(cap_of("a"), 6);
}

static void pushed_wins_over_the_file(void **state)
{
	(void)state;
	assert_int_equal(load(V "interfaces: {a: {cap: 5}, b: {cap: 6}}"), 0);
	assert_int_equal(push(V "interfaces: {a: {cap: 15}, c*: {cap: 16}}"), 0);
	assert_int_equal(cap_of("a"), 15);
	assert_int_equal(cap_of("b"), 6);
	assert_int_equal(cap_of("cc"), 16);
	assert_int_equal(load(V "interfaces: {a: {cap: 7}, cc: {cap: 8}}"), 0);
	assert_int_equal(cap_of("a"), 15);
	assert_int_equal(cap_of("cc"), 16);
	assert_int_equal(fc_rules_clear(g.fc, FC_RULES_PUSHED), 0);
	assert_int_equal(cap_of("a"), 7);
	assert_int_equal(cap_of("cc"), 8);
}

/* ---- the process ------------------------------------------------------------------------------- */

/* Calls of member a that are let in while the group is so. */
static unsigned members_let_in(const char *group)
{
	struct fc_entry e[9];
	char text[256];
	unsigned in;

	snprintf(text, sizeof(text), V "groups: {g: %s}\ninterfaces: {a: {rules: {isolate: {group: g}}}}", group);
	assert_int_equal(load(text), 0);
	in = guarded_fill(&(struct guarded){ .f = fc_iface_get(g.fc, "a") }, e, 9);
	guarded_empty(e, in);
	return in;
}

static void system_health_and_groups_follow(void **state)
{
	FC_OPTS(fc_system_opts, by_hand, .in_flight = 99);
	struct fc_health_opts h;
	uint32_t own, borrowed;

	(void)state;
	assert_int_equal(load(V "system: {in_flight: 7, rate: 120/min, load: 1.5x, cpu: 90.5%}\nhealth: {cpu: 60%, psi_io: off}\n"
	                      "groups: {g: {cap: 5, members: {a: {share: 2}}}}\ninterfaces: {a: {rules: {isolate: {group: g}}}}"), 0);
	fci_health_get_opts(&g.fc->health, &h);
	assert_true(h.cpu_permille == 600 && h.psi_io_permille == FC_HEALTH_OFF && h.memory_permille == 850);
	assert_int_equal(fc_isolate_used(g.fc, "g", "a", &own, &borrowed), 0);
	/* Any number of a group that differs. */
	assert_int_equal(members_let_in("{cap: 5, members: {a: {share: 1}}}"), 5);
	assert_int_equal(members_let_in("{cap: 5, members: {a: {share: 1, most: 2}}}"), 2);
	assert_int_equal(members_let_in("{cap: 5, members: {a: {share: 1, most: 3}}}"), 3);
	assert_int_equal(members_let_in("{cap: 2, members: {a: {share: 1, most: 2}}}"), 2);
	assert_int_equal(load(V), 0);
	fci_health_get_opts(&g.fc->health, &h);
	assert_true(h.cpu_permille == 800 && h.psi_io_permille == 100);
	/* By hand: the file waits. */
	assert_int_equal(fc_system_set(g.fc, &by_hand), 0);
	assert_int_equal(load(V "system: {in_flight: 7}"), 0);
	assert_int_equal(fc_rules_hold(g.fc, NULL, 0), 0);
	assert_int_equal(fc_rules_hold(g.fc, NULL, 0), -ENOENT);
	/* A group of the program's own is known to a file in its context. */
	assert_int_equal(fc_isolate_group(g.fc, "own", &(struct fc_isolate_opts){ .size = sizeof(struct fc_isolate_opts), .cap = 3 }), 0);
	assert_int_equal(load(V "interfaces: {a: {rules: {isolate: {group: own}}}}"), 0);
	assert_int_equal(load(V "interfaces: {a: {rules: {isolate: {group: own, member: b}}}}"), -EINVAL);
}

/* ---- an interceptor of the program's own --------------------------------------------------------- */

struct item {
	const char *name;
	uint64_t bytes;
};

struct all_conf {
	uint32_t c32, permille, factor, choice, yes, resv;
	uint64_t c64, ns, bytes, reasons, def;
	struct fc_rate rate;
	const char *text;
	struct fc_texts texts;
	struct fc_list list;
};

static const struct fc_field item_fields[] = {
	{ .name = "name", .type = FC_FIELD_TEXT, .offset = offsetof(struct item, name), .min = 1, .flags = FC_FIELD_REQUIRED },
	{ .name = "bytes", .type = FC_FIELD_BYTES, .offset = offsetof(struct item, bytes), .max = UINT64_MAX, .def = 5 },
};
static const char *const choices[] = { "red", "green" };
#define AT(m_) .offset = offsetof(struct all_conf, m_)
static const struct fc_field all_fields[] = {
	{ .name = "c32", .type = FC_FIELD_COUNT32, AT(c32), .max = UINT32_MAX },
	{ .name = "c64", .type = FC_FIELD_COUNT64, AT(c64), .max = UINT64_MAX },
	{ .name = "ns", .type = FC_FIELD_DURATION, AT(ns), .max = UINT64_MAX },
	{ .name = "bytes", .type = FC_FIELD_BYTES, AT(bytes), .max = UINT64_MAX },
	{ .name = "permille", .type = FC_FIELD_PERMILLE, AT(permille), .max = 1000 },
	{ .name = "factor", .type = FC_FIELD_FACTOR, AT(factor), .max = 100000 },
	{ .name = "choice", .type = FC_FIELD_CHOICE, AT(choice), .choices = choices, .n_choices = 2 },
	{ .name = "yes", .type = FC_FIELD_BOOL, AT(yes), .max = 1 },
	{ .name = "rate", .type = FC_FIELD_RATE, AT(rate), .max = UINT64_MAX },
	{ .name = "text", .type = FC_FIELD_TEXT, AT(text), .max = 9 },
	{ .name = "texts", .type = FC_FIELD_TEXTS, AT(texts), .max = 3 },
	{ .name = "list", .type = FC_FIELD_LIST, AT(list), .max = 2, .sub = item_fields, .n_sub = 2, .item_bytes = sizeof(struct item) },
	{ .name = "reasons", .type = FC_FIELD_REASONS, AT(reasons) },
	{ .name = "def", .type = FC_FIELD_DURATION, AT(def), .max = FC_S(9), .def = FC_S(7) },
};

static struct all_conf seen;
static int n_items;
static uint64_t item_bytes;

static int all_setup(struct fc_setup *s)
{
	seen = *(const struct all_conf *)s->conf;
	n_items = (int)seen.list.n;
	item_bytes = 0;
	for (uint64_t i = 0; i < seen.list.n; i++)
		item_bytes += ((const struct item *)seen.list.items)[i].bytes;
	if (seen.c32 == 666) {
		fc_iface_log(s->iface, s->rule, "c32: 666; allowed: others");
		return -EINVAL;
	}
	return 0;
}

static const struct fc_interceptor all = {
	.size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER, .name = "all", .conf_bytes = sizeof(struct all_conf),
	.setup = all_setup, .fields = all_fields, .n_fields = sizeof(all_fields) / sizeof(all_fields[0]),
};

static void every_type_of_field_is_read(void **state)
{
	(void)state;
	(void)fc_iface_get(g.fc, "a");
	assert_int_equal(load(V "interfaces: {a: {rules: {all: {c32: unlimited, c64: 18446744073709551615, ns: 1.5us, bytes: 2.5KiB, "
	                      "permille: 12.5%, factor: 1.001x, choice: green, yes: true, rate: 3/1.5s, text: 'a: b', texts: [x, 'y'], "
	                      "list: [{name: n}, {name: m, bytes: 1MiB}], reasons: [cap, key]}}}}"), 0);
	assert_true(seen.c32 == UINT32_MAX && seen.c64 == UINT64_MAX && seen.ns == 1500 && seen.bytes == 2560);
	assert_true(seen.permille == 125 && seen.factor == 1001 && seen.choice == 1 && seen.yes == 1);
	assert_true(seen.rate.n == 3 && seen.rate.per_ns == FC_MS(1500) && seen.def == FC_S(7));
	assert_true(seen.reasons == (1ull << FC_REFUSED_CAP | 1ull << FC_REFUSED_KEY));
	assert_true(n_items == 2 && item_bytes == (1u << 20) + 5 && seen.texts.n == 2);
}

static void what_is_wrong_with_a_field_is_told_with_its_place(void **state)
{
	(void)state;
	assert_int_equal(load(V "interfaces:\n  a:\n    rules:\n      all:\n        c32: 4294967296\n        text: 0123456789\n"
	                      "        texts: [a, b, c, d]\n        list: [{bytes: 5}]\n        reasons: [nosuch]\n"), -EINVAL);
	assert_int_equal(err.n, 6);
	assert_non_null(strstr(err.text, "t:6:14: key `interfaces/a/rules/all/c32`: found \"4294967296\" (too large); allowed: a number from 0, unlimited\n"));
	assert_non_null(strstr(err.text, "t:7:15: key `interfaces/a/rules/all/text`: found \"0123456789\" (too long)"));
	assert_non_null(strstr(err.text, "t:8:16: key `interfaces/a/rules/all/texts`: found a list (too long); allowed: a list of 0 to 3 texts\n"));
	assert_non_null(strstr(err.text, "t:9:16: key `interfaces/a/rules/all/list/1`: found no `name`, which must be given; allowed: a text"));
	assert_non_null(strstr(err.text, "t:10:19: key `interfaces/a/rules/all/reasons`: found \"nosuch\" (not one of them); allowed: a list of cap, rate"));
	assert_int_equal(load(V "interfaces: {a: {rules: {all: {c32: 666}}}}"), -EINVAL);
	assert_string_equal(err.text, "t:2:26: key `interfaces/a/rules/all`: found numbers that \"all\" refuses: c32: 666; allowed: others\n");
}

/* ---- explain ----------------------------------------------------------------------------------- */

static char explained[8192];

static void explain(const char *name)
{
	FILE *f = tmpfile();
	size_t n;

	assert_int_equal(fc_rules_explain(g.fc, name, fileno(f)), 0);
	rewind(f);
	n = fread(explained, 1, sizeof(explained) - 1, f);
	explained[n] = '\0';
	fclose(f);
}

static void explain_says_which_won(void **state)
{
	(void)state;
	explain("a");
	assert_non_null(strstr(explained, "no rules are loaded"));
	assert_int_equal(load(V "defaults: {stuck_after: 2s}\ninterfaces:\n  a: {cap: 5}\n  a*: {cap: 6}\n"), 0);
	explain("a");
	assert_non_null(strstr(explained, "by `a`, t:4: its own name"));
	assert_non_null(strstr(explained, "not by `a*`, line 5"));
	assert_non_null(strstr(explained, "  stuck_after        2s                       defaults, line 2\n"));
	assert_non_null(strstr(explained, "  cap                5                        `a`, line 4\n"));
	assert_int_equal(push(V "interfaces: {'*': {cap: 7, rules: {rate: {limit: 5/s}}}}"), 0);
	explain("a");
	assert_non_null(strstr(explained, "pushed, which wins over the file t"));
	assert_non_null(strstr(explained, "    rate: rate, line 2\n"));
	assert_int_equal(fc_iface_set_cap(fc_iface_get(g.fc, "a"), 8), 0);
	assert_int_equal(fc_rules_hold(g.fc, "a", FC_S(90)), 0);
	explain("a");
	assert_non_null(strstr(explained, "its numbers were set by hand, which wins over rules for another 90s"));
	assert_non_null(strstr(explained, "  cap                8                        by hand\n"));
	assert_int_equal(fc_rules_explain(g.fc, NULL, 1), -EINVAL);
	assert_int_equal(fc_rules_explain(g.fc, "a", -1), -EBADF);
}

/* Housekeeping waits for nobody who sets something up: what was held by hand ends a little later. */
static void the_end_of_a_hold_waits_for_nobody(void **state)
{
	struct locker l;

	(void)state;
	assert_int_equal(load(V "interfaces: {a: {cap: 5}}"), 0);
	assert_int_equal(fc_iface_set_cap(fc_iface_get(g.fc, "a"), 9), 0);
	assert_int_equal(fc_rules_hold(g.fc, "a", FC_S(1)), 0);
	guarded_pass(&g, FC_S(2));
	locker_start(&l, &g.fc->setup);
	assert_true(fc_tick(g.fc, 0) <= g.now + FC_MS(10)); /* it comes back at once */
	assert_int_equal(cap_of("a"), 9);
	locker_end(&l);
	guarded_pass(&g, FC_MS(10));
	fc_tick(g.fc, 0);
	assert_int_equal(cap_of("a"), 5);
}

/* ---- watching ---------------------------------------------------------------------------------- */

/* Housekeeping for some seconds of its clock, and some time for the thread that reads. */
static void pass_seconds(unsigned n)
{
	for (unsigned i = 0; i < n * 20; i++) {
		fc_tick(g.fc, 0);
		guarded_pass(&g, FC_MS(50));
		if (i % 20 == 0)
			test_sleep_ms(20);
	}
}

/* The same until the cap of "a" is this, as long as it takes the thread. */
static void pass_until_cap(uint32_t cap)
{
	uint64_t end = test_now_ns() + FC_S(20);

	while (cap_of("a") != cap && test_now_ns() < end)
		pass_seconds(1);
	assert_int_equal(cap_of("a"), cap);
}

static void pass_until_failures(uint64_t n)
{
	uint64_t end = test_now_ns() + FC_S(20);
	FC_OPTS(fc_rules_status, s, .loads = 0);

	do {
		pass_seconds(1);
		assert_int_equal(fc_rules_status(g.fc, &s), 0);
	} while (s.failures < n && test_now_ns() < end);
}

static void a_watched_file_is_read_again_when_it_changes(void **state)
{
	FC_OPTS(fc_rules_status, s, .loads = 0);

	(void)state;
	assert_int_equal(fc_rules_watch(g.fc, path, &err), -ENOENT); /* it may come yet */
	write_file(V "interfaces: {a: {cap: 5}}");
	pass_until_cap(5);
	write_file(V "interfaces: {a: {cap: 65}}");
	pass_until_cap(65);
	write_file(V "interfaces: {a: {cap: -65}}");
	pass_until_failures(2);
	pass_seconds(4);
	assert_int_equal(cap_of("a"), 65);
	assert_int_equal(fc_rules_status(g.fc, &s), 0);
	assert_true(s.watching == 1 && s.loads == 2 && s.failures == 2); /* told once, not each second */
	assert_int_equal(unlink(path), 0);
	pass_seconds(3);
	assert_int_equal(cap_of("a"), 65);
	write_file(V "interfaces: {a: {cap: 7}}");
	pass_until_cap(7);
	assert_int_equal(fc_rules_watch(g.fc, NULL, NULL), 0);
	write_file(V "interfaces: {a: {cap: 8}}");
	pass_seconds(4);
	assert_int_equal(cap_of("a"), 7);
	assert_int_equal(fc_rules_reload(g.fc, &err), 0);
	assert_int_equal(cap_of("a"), 8);
}

static void a_file_that_is_being_written_is_left_alone(void **state)
{
	FC_OPTS(fc_rules_status, s, .loads = 0);
	char text[64];

	(void)state;
	write_file(V "interfaces: {a: {cap: 5}}");
	assert_int_equal(fc_rules_watch(g.fc, path, &err), 0);
	for (int i = 0; i < 5; i++) { /* it changes between any two looks */
		snprintf(text, sizeof(text), V "interfaces: {a: {cap: 6}} # %*d", i + 1, i);
		write_file(text);
		fc_tick(g.fc, 0);
		test_sleep_ms(20);
		guarded_pass(&g, FC_S(1));
	}
	assert_int_equal(fc_rules_status(g.fc, &s), 0);
	assert_int_equal(s.loads, 1);
	assert_int_equal(cap_of("a"), 5);
	pass_until_cap(6);
}

static void append(const char *point)
{
	int fd;

	if (strcmp(point, "rules_read") != 0)
		return;
	fci_test_point = NULL;
	fd = open(path, O_WRONLY | O_APPEND);
	(void)!write(fd, "# more", 6);
	close(fd);
}

static void a_file_that_changes_while_it_is_read_is_read_again(void **state)
{
	(void)state;
	write_file(V "interfaces: {a: {cap: 5}}");
	fci_test_point = append;
	assert_int_equal(fc_rules_load(g.fc, path, &err), -EAGAIN);
	assert_non_null(strstr(err.text, "it was written to while it was read"));
	assert_int_equal(cap_of("a"), FC_UNLIMITED);
	fci_test_point = append;
	assert_int_equal(fc_rules_watch(g.fc, path, &err), -EAGAIN);
	pass_until_cap(5);
}

static void a_context_may_end_while_its_file_is_read(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		write_file(V "interfaces: {a: {cap: 5}}");
		assert_int_equal(fc_rules_watch(g.fc, path, &err), 0);
		write_file(V "interfaces: {a: {cap: 55}}");
		guarded_pass(&g, FC_S(1));
		fc_tick(g.fc, 0);
		guarded_pass(&g, FC_S(1));
		fc_tick(g.fc, 0);
		if (i % 2)
			assert_int_equal(fc_rules_watch(g.fc, NULL, NULL), 0);
	}
}

static void the_child_of_a_fork_may_load(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	write_file(V "interfaces: {a: {cap: 5}}");
	assert_int_equal(fc_rules_watch(g.fc, path, &err), 0);
	pid = fork();
	if (pid == 0)
		_exit(load(V "interfaces: {a: {cap: 6}}") == 0 && fc_rules_watch(g.fc, NULL, NULL) == 0 && cap_of("a") == 6 ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(cap_of("a"), 5);
}

/* ---- threads ----------------------------------------------------------------------------------- */

#define ENOUGH_LOADS 4

struct busy {
	struct fc_iface *f[4];
	uint64_t end;
	atomic_ullong calls, refused, loads, failed;
};

/* The first thread loads three files in turn, as often as it can and each of them at least once; the second sets by hand; the others call. */
static void busy(void *arg, unsigned index, struct rng *rng)
{
	static const char *const texts[] = {
		V "interfaces: {'*': {cap: 900, rules: {rate: {limit: 1000000000/s}, breaker: {errors_ratio: 100%}}}}",
		V "interfaces: {'*': {cap: 901, expand: 1x, rules: {rate: {limit: 900000000/s}, keyed: {label: user, limit: 1000/s}}}}",
		V "interfaces: {i1: {cap: bad}}",
	};
	struct busy *b = arg;

	for (unsigned i = 0; test_now_ns() < b->end || b->loads < ENOUGH_LOADS; i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		if (index == 0) {
			const char *text = texts[i % 3];
			int rc = fc_rules_load_text(g.fc, FC_RULES_FILE, "t", text, strlen(text), NULL);

			b->failed += (rc == 0) == (i % 3 == 2);
			b->loads++;
			continue;
		}
		if (index == 1 && rng_chance(rng, 16)) {
			(void)fc_iface_set_cap(b->f[rng_below(rng, 4)], 500);
			(void)fc_rules_hold(g.fc, fc_iface_name(b->f[rng_below(rng, 4)]), rng_below(rng, 2));
			continue;
		}
		if (fc_enter(&e, b->f[rng_below(rng, 4)], NULL) != 0)
			b->refused++;
		fc_exit(&e);
		b->calls++;
	}
}

static void loads_under_full_load_lose_no_call(void **state)
{
	static struct busy b;
	uint64_t admitted = 0;
	char name[4];

	(void)state;
	memset(&b, 0, sizeof(b));
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "i%d", i);
		b.f[i] = fc_iface_get(g.fc, name);
	}
	b.end = stress_end_ns();
	g.fc->log = NULL;
	run_threads(6, busy, &b);
	for (int i = 0; i < 4; i++) {
		FC_OPTS(fc_stats, s, .cap = 0);

		assert_int_equal(fc_iface_stats(b.f[i], &s), 0);
		admitted += s.admitted;
		assert_int_equal(fc_inside(b.f[i], NULL), 0);
	}
	assert_int_equal(b.failed, 0);
	assert_true(b.loads >= ENOUGH_LOADS);
	assert_int_equal(b.refused, 0);
	assert_int_equal(admitted, b.calls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f_) cmocka_unit_test_setup_teardown(f_, setup, teardown)
		CASE(interfaces_made_before_and_after_get_their_numbers),
		CASE(the_most_specific_entry_wins),
		CASE(an_entry_is_completed_by_the_defaults),
		CASE(what_is_no_longer_named_goes_back),
		CASE(a_byte_order_mark_and_line_ends_of_windows_do_no_harm),
		CASE(a_bad_file_changes_nothing),
		CASE(when_memory_ends_the_old_rules_are_whole),
		CASE(an_unreadable_or_odd_file_is_refused),
		CASE(a_smaller_error_struct_of_an_older_caller_is_not_overrun),
		CASE(a_reload_keeps_tokens_and_touches_only_what_changed),
		CASE(a_call_inside_ends_under_the_rules_it_began_with),
		CASE(a_rule_may_run_dry_be_off_or_stand_elsewhere),
		CASE(by_hand_wins_until_it_is_released),
		CASE(what_a_file_says_in_vain_is_told),
		CASE(what_is_set_by_hand_may_expire),
		CASE(the_end_of_a_hold_waits_for_nobody),
		CASE(what_is_set_by_hand_of_the_process_and_of_fallbacks_wins_as_well),
		CASE(pushed_wins_over_the_file),
		CASE(a_load_that_was_overtaken_changes_nothing),
		CASE(system_health_and_groups_follow),
		CASE(every_type_of_field_is_read),
		CASE(what_is_wrong_with_a_field_is_told_with_its_place),
		CASE(explain_says_which_won),
		CASE(a_watched_file_is_read_again_when_it_changes),
		CASE(a_file_that_is_being_written_is_left_alone),
		CASE(a_file_that_changes_while_it_is_read_is_read_again),
		CASE(a_context_may_end_while_its_file_is_read),
		CASE(the_child_of_a_fork_may_load),
		CASE(loads_under_full_load_lose_no_call),
	};

	if (fc_interceptor_register(&all) < 0)
		return 1;
	return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
