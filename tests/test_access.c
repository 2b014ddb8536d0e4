/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allow and deny lists: which entry decides, addresses and networks against a plain search, bad entries, a
 * hundred thousand of them, new lists while calls run.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>

#include <fcguard/access.h>

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

static int lists(const char *const *allow, uint64_t n_allow, const char *const *deny, uint64_t n_deny, uint32_t otherwise)
{
	struct fc_access_conf conf = { .label = "ip", .allow = { allow, n_allow }, .deny = { deny, n_deny }, .otherwise = otherwise };
	struct fc_rule rule = { .interceptor = &fc_interceptor_access, .conf = &conf };

	return fc_iface_set_chain(g.f, &rule, 1);
}

#define TEXTS(...) (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)

static int call(const struct fc_label *l)
{
	FC_OPTS(fc_ctx, ctx, .labels = l, .n_labels = l ? 1 : 0);
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter(&e, g.f, &ctx);

	fc_exit(&e);
	return rc;
}

static int text(const char *value)
{
	struct fc_label l = fc_label("ip", value);

	return call(&l);
}

static int ip(const char *value)
{
	struct fc_label l = fc_label_ip("ip", value);

	return call(&l);
}

#define NO FC_REFUSED_ACCESS

static void the_most_specific_entry_decides(void **state)
{
	FC_OPTS(fc_decision, d, .status = 0);
	struct fc_label l = fc_label("ip", "bot-9");
	FC_OPTS(fc_ctx, ctx, .labels = &l, .n_labels = 1);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(lists(TEXTS("bot-good*", "bot-good-bad-1", "10.1.0.0/16", "10.1.2.3", "2001:db8:1::/48"),
	                       TEXTS("mallory", "bot-*", "bot-good-bad*", "10.0.0.0/8", "10.1.2.0/24", "2001:db8::/32"),
	                       FC_ACCESS_ALLOW), 0);
	assert_int_equal(text("alice"), 0);
	assert_int_equal(text("mallory"), NO);
	assert_int_equal(text("mallory2"), 0);
	assert_int_equal(text("mallor"), 0);
	assert_int_equal(text("bot-"), NO);
	assert_int_equal(text("bot"), 0);
	assert_int_equal(text("bot-7"), NO);
	assert_int_equal(text("bot-good"), 0);
	assert_int_equal(text("bot-good-7"), 0);
	assert_int_equal(text("bot-good-bad"), NO);
	assert_int_equal(text("bot-good-bad-2"), NO);
	assert_int_equal(text("bot-good-bad-1"), 0);
	assert_int_equal(text("bot-good-bad-11"), NO);
	assert_int_equal(text(""), 0);
	assert_int_equal(ip("10.2.3.4"), NO);
	assert_int_equal(ip("10.255.255.255"), NO);
	assert_int_equal(ip("11.0.0.0"), 0);
	assert_int_equal(ip("9.255.255.255"), 0);
	assert_int_equal(ip("10.1.3.4"), 0);
	assert_int_equal(ip("10.1.2.4"), NO);
	assert_int_equal(ip("10.1.2.3"), 0);
	assert_int_equal(text("10.1.2.3"), 0);
	assert_int_equal(ip("::ffff:10.1.2.4"), NO);
	assert_int_equal(ip("2001:db8::1"), NO);
	assert_int_equal(ip("2001:db8:1::1"), 0);
	assert_int_equal(ip("2001:db9::"), 0);
	assert_int_equal(fc_enter(&e, g.f, &ctx), NO);
	assert_int_equal(fc_entry_decision(&e, &d), 0);
	assert_string_equal(d.rule, "access");
	assert_int_equal(fc_decision_http_status(&d), 403);
	assert_int_equal(fc_access_look(g.f, NULL, &l), NO);
	assert_int_equal(fc_access_look(g.f, "other", &l), -ENOENT);
}

static void what_no_entry_matches_goes_as_otherwise_says(void **state)
{
	struct fc_access_conf conf = { .label = "ip", .otherwise = FC_ACCESS_DENY };
	struct fc_rule rule = { .interceptor = &fc_interceptor_access, .conf = &conf };
	struct fc_label other = fc_label("user", "x");

	(void)state;
	assert_int_equal(lists(TEXTS("alice", "192.0.2.0/24"), NULL, 0, FC_ACCESS_DENY), 0);
	assert_int_equal(text("alice"), 0);
	assert_int_equal(text("bob"), NO);
	assert_int_equal(ip("192.0.2.1"), 0);
	assert_int_equal(ip("192.0.3.1"), NO);
	assert_int_equal(ip("::1"), NO);
	assert_int_equal(call(NULL), NO);
	/* No lists at all; calls without the label. */
	for (uint32_t without = 0; without < 3; without++) {
		conf.without = without;
		assert_int_equal(fc_iface_set_chain(g.f, &rule, 1), 0);
		assert_int_equal(text("alice"), NO);
		assert_int_equal(call(&other), without == FC_ACCESS_WITHOUT_ALLOW ? 0 : NO);
	}
	/* All of them. */
	assert_int_equal(lists(TEXTS("*"), TEXTS("x*", "0.0.0.0/0", "::/0"), FC_ACCESS_DENY), 0);
	assert_int_equal(text("anybody"), 0);
	assert_int_equal(text("x"), NO);
	assert_int_equal(ip("8.8.8.8"), NO); /* a text allows, a network denies */
	assert_int_equal(ip("fe80::1"), NO);
	assert_int_equal(lists(TEXTS("255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::ffff:1.2.3.0/120", "a/b"),
	                       NULL, 0, FC_ACCESS_DENY), 0);
	assert_int_equal(ip("255.255.255.255"), 0);
	assert_int_equal(ip("255.255.255.254"), NO);
	assert_int_equal(ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), 0);
	assert_int_equal(ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"), NO);
	assert_int_equal(ip("1.2.3.77"), 0);
	assert_int_equal(text("a/b"), 0);
}

static void a_label_without_a_text_is_found_by_its_value(void **state)
{
	struct fc_label l = fc_label("ip", "mallory");

	(void)state;
	assert_int_equal(lists(NULL, 0, TEXTS("mallory", "bot*"), FC_ACCESS_ALLOW), 0);
	l.text = NULL;
	assert_int_equal(call(&l), NO);
	/* Another value with the number of a listed one is not that value. */
	l.text = "innocent";
	assert_int_equal(call(&l), 0);
}

static void bad_entries_say_which_and_what_is_allowed(void **state)
{
	static const struct { const char *allow[2], *deny[2]; const char *line; } cases[] = {
		{ { "a", "" }, { "b", "c" }, "allow[1] \"\": empty; allowed: a value, a beginning and *, an address, a network" },
		{ { "a", "b" }, { "c", "x*y" }, "deny[1] \"x*y\": * is not at the end; allowed: a beginning and one *" },
		{ { "a", "b" }, { "10.0.0.1/8", "c" },
		  "deny[0] \"10.0.0.1/8\": bits beyond its length are set; allowed: addresses of networks end in zeros" },
		{ { "a", "10.0.0.0/33" }, { "b", "c" }, "allow[1] \"10.0.0.0/33\": no such network; allowed: a length of 0 to 32" },
		{ { "a", "10.0.0.0/8x" }, { "b", "c" }, "allow[1] \"10.0.0.0/8x\": no such network; allowed: a length of 0 to 32" },
		{ { "a", "10.0.0.0/" }, { "b", "c" }, "allow[1] \"10.0.0.0/\": no such network; allowed: a length of 0 to 32" },
		{ { "a", "::/129" }, { "b", "c" }, "allow[1] \"::/129\": no such network; allowed: a length of 0 to 128" },
		{ { "a", "2001:db8::1/64" }, { "b", "c" },
		  "allow[1] \"2001:db8::1/64\": bits beyond its length are set; allowed: addresses of networks end in zeros" },
		{ { "a", "a" }, { "b", "c" }, "allow[1] \"a\": it is allow[0] \"a\" too; allowed: each once, in one list" },
		{ { "a", "b" }, { "c", "b" }, "deny[1] \"b\": it is allow[1] \"b\" too; allowed: each once, in one list" },
		{ { "b", "b*" }, { "b*", "c" }, "deny[0] \"b*\": it is allow[1] \"b*\" too; allowed: each once, in one list" },
		{ { "a", "10.0.0.0/8" }, { "b", "10.0.0.0/8" },
		  "deny[1] \"10.0.0.0/8\": it is allow[1] \"10.0.0.0/8\" too; allowed: each once, in one list" },
		{ { "a", "10.1.1.1" }, { "b", "::ffff:10.1.1.1" },
		  "deny[1] \"::ffff:10.1.1.1\": it is allow[1] \"10.1.1.1\" too; allowed: each once, in one list" },
	};
	struct fc_access_conf conf = { .label = "ip", .otherwise = 2 };
	struct fc_rule rule = { .interceptor = &fc_interceptor_access, .conf = &conf };
	long long live;
	char expected[256];

	(void)state;
	assert_int_equal(lists(NULL, 0, TEXTS("mallory"), FC_ACCESS_ALLOW), 0);
	live = atomic_load(&g.mem.live_bytes);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		last_lines[0] = 0;
		assert_int_equal(lists(cases[i].allow, 2, cases[i].deny, 2, 0), -EINVAL);
		snprintf(expected, sizeof(expected), "guarded: access: %s\n", cases[i].line);
		assert_memory_equal(last_lines, expected, strlen(expected));
	}
	last_lines[0] = 0;
	assert_int_equal(fc_iface_set_chain(g.f, &rule, 1), -EINVAL);
	assert_non_null(strstr(last_lines, "otherwise: 2; allowed: allow (0), deny (1)"));
	assert_int_equal(atomic_load(&g.mem.live_bytes), live);
	assert_int_equal(text("mallory"), NO); /* nothing has changed */
}

/* ---- many -------------------------------------------------------------------------------------- */

#define MANY 100000

static char many[MANY][48];
static const char *list[MANY];
static struct { uint8_t bytes[16]; int length, deny; } nets[2000];

/* A plain search of all of them. */
static int plain(const uint8_t *address, int from, int n)
{
	int best = -1, verdict = 0;

	for (int i = 0; i < n; i++) {
		int k = 0;

		while (k < nets[i].length && (address[(from + k) / 8] >> (7 - (from + k) % 8) & 1) ==
		                                     (nets[i].bytes[(from + k) / 8] >> (7 - (from + k) % 8) & 1))
			k++;
		if (k == nets[i].length && k > best) {
			best = k;
			verdict = nets[i].deny;
		}
	}
	return verdict ? NO : 0;
}

/* Networks of n random lengths in a small part of the addresses, so that many contain one another. */
static int random_networks(struct rng *rng, int family, const char **allow, const char **deny, uint64_t *n_allow, uint64_t *n_deny)
{
	int n = 1 + (int)rng_below(rng, 400), from = family == AF_INET ? 96 : 0, size = 128 - from;

	*n_allow = *n_deny = 0;
	for (int i = 0; i < n; i++) {
		char shown[INET6_ADDRSTRLEN];
		int length = (int)rng_below(rng, (uint32_t)size + 1), again;

		memset(nets[i].bytes, 0, 16);
		for (int k = 0; k < length; k++)
			if (rng_chance(rng, 5))
				nets[i].bytes[(from + k) / 8] |= (uint8_t)(128 >> ((from + k) % 8));
		nets[i].length = length;
		nets[i].deny = rng_chance(rng, 2);
		for (again = 0; again < i; again++)
			if (nets[again].length == length && !memcmp(nets[again].bytes, nets[i].bytes, 16))
				break;
		/* Nor one that would be IPv4. */
		if (again < i || (family == AF_INET6 && length >= 96 && !memcmp(nets[i].bytes, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12))) {
			i--;
			n--;
			continue;
		}
		inet_ntop(family, nets[i].bytes + from / 8, shown, sizeof(shown));
		snprintf(many[i], sizeof(many[i]), "%s/%d", shown, length);
		*(nets[i].deny ? &deny[(*n_deny)++] : &allow[(*n_allow)++]) = many[i];
	}
	return n;
}

static void networks_are_found_as_a_plain_search_finds_them(void **state)
{
	static const char *allow[2000], *deny[2000];
	struct rng rng;

	(void)state;
	rng_init(&rng, 1);
	for (int round = 0; round < 60; round++) {
		int family = round & 1 ? AF_INET6 : AF_INET, from = family == AF_INET ? 96 : 0;
		uint64_t n_allow, n_deny;
		int n = random_networks(&rng, family, allow, deny, &n_allow, &n_deny);

		assert_int_equal(lists(allow, n_allow, deny, n_deny, FC_ACCESS_ALLOW), 0);
		for (int i = 0; i < 300; i++) {
			uint8_t a[16] = { 0 };
			char shown[INET6_ADDRSTRLEN];

			/* Near one of them, or anywhere. */
			memcpy(a, nets[rng_below(&rng, (uint32_t)n)].bytes, 16);
			for (uint32_t k = rng_below(&rng, 6); k > 0; k--)
				a[from / 8 + (int)rng_below(&rng, (uint32_t)(16 - from / 8))] ^= (uint8_t)(1u << rng_below(&rng, 8));
			if (rng_chance(&rng, 4))
				memset(a + 12, 255, 4);
			if (family == AF_INET6 && !memcmp(a, "\0\0\0\0\0\0\0\0\0\0", 10))
				continue;
			inet_ntop(family, a + from / 8, shown, sizeof(shown));
			if (ip(shown) != plain(a, from, n))
				fail_msg("%s: found %d, wrong", shown, ip(shown));
		}
	}
}

static void a_hundred_thousand_entries_are_all_found(void **state)
{
	(void)state;
	for (int i = 0; i < MANY; i++) {
		if (i % 4 == 0)
			snprintf(many[i], sizeof(many[i]), "user%d", i);
		else if (i % 4 == 1)
			snprintf(many[i], sizeof(many[i]), "group%d-*", i);
		else if (i % 4 == 2)
			snprintf(many[i], sizeof(many[i]), "10.%d.%d.%d/31", i / 65536, i / 256 % 256, i % 256);
		else
			snprintf(many[i], sizeof(many[i]), "2001:db8:%x::/48", i % 65536 + (i / 65536) * 0);
		list[i] = many[i];
	}
	for (int i = 3; i < MANY; i += 4) /* 48 bits have room for 65536 */
		snprintf(many[i], sizeof(many[i]), "2001:%x:%x::/48", 0xdb8 + i / 65536, i % 65536);
	assert_int_equal(lists(NULL, 0, list, MANY, FC_ACCESS_ALLOW), 0);
	for (int i = 0; i < MANY; i += 7) {
		char value[64];

		snprintf(value, sizeof(value), "%.*s%s", (int)strcspn(many[i], i % 4 == 1 ? "*" : "/"), many[i], i % 4 == 1 ? "7" : "");
		if (ip(value) != NO)
			fail_msg("%s", value);
	}
	for (int i = 0; i < 2000; i++) {
		char value[64];

		snprintf(value, sizeof(value), i & 1 ? "user%d" : "group%d", 4 * i + 1);
		assert_int_equal(ip(value), 0);
		snprintf(value, sizeof(value), "11.%d.%d.1", i % 256, i / 256);
		assert_int_equal(ip(value), 0);
	}
}

/* FAULTS K: new lists each moment, under load; memory of old ones is given back (teardown looks). */
static struct { uint64_t end; atomic_uint wrong, calls; } race;

static void change_or_call(void *arg, unsigned index, struct rng *rng)
{
	uint64_t end = stress_end_ns();
	(void)arg;
	while (test_now_ns() < end) {
		if (index == 0) {
			if (rng_chance(rng, 2))
				(void)lists(TEXTS("10.1.0.0/16"), TEXTS("mallory", "x*", "10.0.0.0/8"), FC_ACCESS_ALLOW);
			else
				(void)lists(TEXTS("alice", "10.1.2.0/24"), TEXTS("mallory", "10.1.9.0/24"), FC_ACCESS_ALLOW);
			continue;
		}
		atomic_fetch_add(&race.calls, 1);
		if (text("mallory") != NO || text("alice") != 0 || ip("10.1.2.3") != 0)
			atomic_fetch_add(&race.wrong, 1);
	}
}

static void lists_change_while_calls_run(void **state)
{
	(void)state;
	assert_int_equal(lists(NULL, 0, TEXTS("mallory"), FC_ACCESS_ALLOW), 0);
	memset(&race, 0, sizeof(race));
	run_threads(test_cpus() + 3, change_or_call, NULL);
	assert_int_equal(atomic_load(&race.wrong), 0);
	assert_true(atomic_load(&race.calls) > 0);
}

/* Every allocation fails once: nothing is kept, the old lists hold. */
static void without_memory_the_old_lists_hold(void **state)
{
	long long live;
	int rc = -ENOMEM;

	(void)state;
	assert_int_equal(lists(NULL, 0, TEXTS("mallory"), FC_ACCESS_ALLOW), 0);
	for (unsigned long long i = 1; rc != 0 && i < 100; i++) {
		live = atomic_load(&g.mem.live_bytes);
		atomic_store(&g.mem.fail_at, atomic_load(&g.mem.calls) + i);
		rc = lists(TEXTS("a", "b*", "10.0.0.0/8"), TEXTS("c", "2001:db8::/32"), FC_ACCESS_ALLOW);
		if (rc != 0) {
			assert_int_equal(rc, -ENOMEM);
			assert_int_equal(atomic_load(&g.mem.live_bytes), live);
			assert_int_equal(text("mallory"), NO);
		}
	}
	atomic_store(&g.mem.fail_at, 0);
	assert_int_equal(rc, 0);
	assert_int_equal(text("mallory"), 0);
}

int main(void)
{
#define T(f_) cmocka_unit_test_setup_teardown(f_, setup, teardown)
	static const struct CMUnitTest tests[] = {
		T(the_most_specific_entry_decides),
		T(what_no_entry_matches_goes_as_otherwise_says),
		T(a_label_without_a_text_is_found_by_its_value),
		T(bad_entries_say_which_and_what_is_allowed),
		T(networks_are_found_as_a_plain_search_finds_them),
		T(a_hundred_thousand_entries_are_all_found),
		T(lists_change_while_calls_run),
		T(without_memory_the_old_lists_hold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
