/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_interceptors.c - what the interceptors cost by themselves: check and pre as the chain calls them,
 * with the time given, on one state for all threads; beside them what others do, written here.
 */
#include "guard.h"

#include <stdio.h>
#include <stdlib.h>

#include <fcguard/interceptor.h>

/* Time goes on by itself from a reading now and then: what reading a clock costs is measured elsewhere. */
#define STEP_NS 10u

/* One rule's state and numbers, as a chain would hold them. */
struct rule {
	const struct fc_interceptor *ic;
	void *state, *conf;
	struct fc_iface *iface;
};

static int rule_setup(struct rule **ret, const char *name, const struct fc_interceptor *ic, const void *conf)
{
	struct rule *r = bench_alloc(sizeof(*r));
	uint64_t bytes = ic->state_size ? ic->state_size(conf, bench_cpus()) : ic->state_bytes;
	struct fc_setup s = { .rule = name, .state_bytes = bytes, .first = 1, .cpus = bench_cpus() };

	r->ic = ic;
	r->iface = s.iface = guard_iface(name, NULL);
	r->state = s.state = bench_alloc(bytes);
	r->conf = s.conf = bench_alloc(ic->conf_bytes);
	for (uint32_t i = 0; i < ic->conf_bytes; i++)
		((char *)r->conf)[i] = ((const char *)conf)[i];
	s.now_ns = bench_wall_ns();
	*ret = r;
	return ic->setup ? ic->setup(&s) : 0;
}

static void rule_teardown(void *state)
{
	struct rule *r = state;

	free(r->state);
	free(r->conf);
	free(r);
}

/* check and pre of a call; post where there is one. */
static uint64_t rule_run(void *state, struct bench_worker *w, uint32_t n)
{
	uint64_t now = bench_wall_ns();
	const struct rule *r = state;
	const struct fc_interceptor ic = *r->ic;
	FC_OPTS(fc_ctx, ctx, .weight = 1);
	uint32_t cells[2] = { 0, 0 };
	uint64_t admitted = 0;
	struct fc_call c = { .iface = r->iface, .ctx = &ctx, .state = r->state, .conf = r->conf, .weight = 1, .cpu = w->index };

	for (uint32_t i = 0; i < n; i++) {
		c.now_ns = now += STEP_NS;
		c.cells = NULL;
		if (ic.check && ic.check(&c))
			continue;
		c.cells = cells;
		if (ic.pre && ic.pre(&c))
			continue;
		if (ic.post)
			ic.post(&c);
		admitted++;
		bench_sink(&c);
	}
	return admitted;
}

/* ---- rate -------------------------------------------------------------------------------------- */

static int rate_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	const struct fc_rate_conf confs[] = {
		{ .limit = { 1000000000, FC_S(1) }, .burst = 1000000 },
		{ .limit = { 1000000000, FC_S(1) }, .burst = 1000000, .lease = FC_RATE_NO_LEASE },
		{ .limit = { 1, FC_S(1000) }, .burst = 1, .start = FC_RATE_EMPTY },
		{ .limit = { 1ull << 40, FC_S(2000) }, .kind = FC_RATE_FIXED },
		{ .limit = { 10000000, FC_MS(10) }, .kind = FC_RATE_SLIDING },
	};

	(void)c;
	return rule_setup((struct rule **)ret_state, s->name, &fc_interceptor_rate, &confs[s->arg]);
}

/* A token bucket of one word, the time at which it was empty: what folly's TokenBucket does, in ns. */
static int plain_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	(void)s, (void)c;
	*ret_state = bench_alloc(BENCH_LINE);
	return 0;
}

static uint64_t plain_run(void *state, struct bench_worker *w, uint32_t n)
{
	uint64_t now = bench_wall_ns();
	const uint64_t burst_ns = 1000000, token_ns = 1;
	uint64_t *zero = state, admitted = 0;

	(void)w;
	for (uint32_t i = 0; i < n; i++) {
		/* N: one word, tokens carry no data. */
		uint64_t was = __atomic_load_n(zero, __ATOMIC_RELAXED), to;

		now += STEP_NS;
		do {
			to = now > burst_ns && was < now - burst_ns ? now - burst_ns : was;
			to += token_ns;
			if (to > now)
				break;
		} while (!__atomic_compare_exchange_n(zero, &was, to, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
		admitted += to <= now;
		bench_sink(&now);
	}
	return admitted;
}

static void plain_teardown(void *state)
{
	free(state);
}

/* ---- keyed, access ----------------------------------------------------------------------------- */

#define VALUES  1024u   /* labels that calls come with, in turn */
#define ENTRIES 100000u

/* Calls whose labels are made already, as a server keeps them with a session. */
static uint64_t labelled_run(void *state, struct bench_worker *w, uint32_t n)
{
	static struct fc_label labels[VALUES];
	static bool made;
	uint64_t now = bench_wall_ns();
	const struct rule *r = state;
	const struct fc_interceptor ic = *r->ic;
	FC_OPTS(fc_ctx, ctx, .weight = 1, .n_labels = 1);
	uint32_t cells[2] = { 0, 0 };
	uint64_t admitted = 0;
	struct fc_call c = { .iface = r->iface, .ctx = &ctx, .state = r->state, .conf = r->conf, .weight = 1, .cpu = w->index };

	for (uint32_t i = 0; !made && i < VALUES; i++) {
		static char text[VALUES][16];

		snprintf(text[i], sizeof(text[i]), "11.%u.%u.%u", i * 7 % 256, i % 256, i * 13 % 256);
		labels[i] = fc_label_ip("ip", text[i]);
		made = i + 1 == VALUES; /* all threads write the same */
	}
	for (uint32_t i = 0; i < n; i++) {
		ctx.labels = &labels[(w->index * (VALUES / 4) + i) % VALUES];
		c.now_ns = now += STEP_NS;
		c.cells = NULL;
		if (ic.check && ic.check(&c))
			continue;
		c.cells = cells;
		if (ic.pre && ic.pre(&c))
			continue;
		if (ic.post)
			ic.post(&c);
		admitted++;
		bench_sink(&c);
	}
	return admitted;
}

static int keyed_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	const struct fc_keyed_conf confs[] = {
		{ .label = "ip", .limit = { 1000000000, FC_S(1) }, .burst = 1000000 },
		{ .label = "ip", .limit = { 1000000000, FC_S(1) }, .burst = 1000000, .cap = 1000 },
	};

	(void)c;
	return rule_setup((struct rule **)ret_state, s->name, &fc_interceptor_keyed, &confs[s->arg]);
}

/* Of each kind a third: values, beginnings, networks; none of them matches. */
static int access_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	static char text[ENTRIES][32];
	static const char *list[ENTRIES];
	struct fc_access_conf conf = { .label = "ip", .deny = { list, ENTRIES } };

	(void)c;
	for (uint32_t i = 0; i < ENTRIES; i++) {
		snprintf(text[i], sizeof(text[i]), i % 3 == 0 ? "user%u" : i % 3 == 1 ? "group%u-*" : "%u.%u.%u.0/24",
		         i % 3 == 2 ? 12 + i / 65536 : i, i / 256 % 256, i % 256);
		list[i] = text[i];
	}
	return rule_setup((struct rule **)ret_state, s->name, &fc_interceptor_access, &conf);
}

static void access_teardown(void *state)
{
	const struct rule *r = state;

	r->ic->drop(r->iface, r->conf);
	rule_teardown(state);
}

/* ---- breaker, degrade -------------------------------------------------------------------------- */

/* A window of a time, one of calls, and one that is open for an hour. */
static int breaker_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	const struct fc_breaker_conf confs[] = {
		{ .error_permille = 500 },
		{ .error_permille = 500, .window_calls = 1000 },
		{ .min_calls = 1, .open_ns = FC_S(3600) },
	};
	uint32_t cells[2] = { 0, 0 };
	struct fc_call call = { .cells = cells, .outcome = FC_OUTCOME_ERROR, .now_ns = bench_wall_ns() };
	int rc = rule_setup((struct rule **)ret_state, s->name, &fc_interceptor_breaker, &confs[s->arg]);
	const struct rule *r = *ret_state;

	(void)c;
	call.iface = r->iface;
	call.state = r->state;
	call.conf = r->conf;
	if (rc == 0 && s->refuses && fc_interceptor_breaker.pre(&call) == 0)
		fc_interceptor_breaker.post(&call);
	return rc;
}

static int degrade_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	const struct fc_degrade_conf conf = { .level = FC_DEGRADE_ALL };

	(void)c;
	return rule_setup((struct rule **)ret_state, s->name, &fc_interceptor_degrade, &conf);
}

/* ---- adaptive ---------------------------------------------------------------------------------- */

static int adaptive_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state)
{
	const struct fc_adaptive_conf conf = { .initial = 20 };

	(void)c;
	return rule_setup((struct rule **)ret_state, s->name, &fc_interceptor_adaptive, &conf);
}

#define RULE(name_, what_, setup_, arg_) \
	{ .name = name_, .what = what_, .setup = setup_, .run = rule_run, .teardown = rule_teardown, .arg = arg_ }

static const struct bench_subject subjects[] = {
	RULE("token_bucket", "rate: bucket with leases, time given", rate_setup, 0),
	RULE("token_bucket_common", "the same without leases", rate_setup, 1),
	{ .name = "token_bucket_refuse", .what = "an empty one", .setup = rate_setup, .run = rule_run,
	  .teardown = rule_teardown, .arg = 2, .refuses = true },
	RULE("fixed_window", "rate: fixed window", rate_setup, 3),
	RULE("sliding_window", "rate: sliding window", rate_setup, 4),
	{ .name = "keyed_hit", .what = "keyed: 1024 users in turn, a rate", .setup = keyed_setup, .run = labelled_run,
	  .teardown = rule_teardown },
	{ .name = "keyed_hit_cap", .what = "the same with a cap too", .setup = keyed_setup, .run = labelled_run,
	  .teardown = rule_teardown, .arg = 1 },
	{ .name = "access_100k", .what = "access: 1024 addresses, 100000 entries", .setup = access_setup,
	  .run = labelled_run, .teardown = access_teardown },
	RULE("breaker", "closed, all calls good", breaker_setup, 0),
	RULE("breaker_calls", "the same over the last 1000 calls", breaker_setup, 1),
	{ .name = "breaker_refuse", .what = "an open one", .setup = breaker_setup, .run = rule_run,
	  .teardown = rule_teardown, .arg = 2, .refuses = true },
	RULE("degrade", "degrade: nothing set, without outcomes", degrade_setup, 0),
	RULE("adaptive", "adaptive: latency and outcome counted, time given", adaptive_setup, 0),
	{ .name = "plain_bucket", .what = "one word, one CAS, as folly's with the time given", .setup = plain_setup,
	  .run = plain_run, .teardown = plain_teardown },
};

int main(int argc, char **argv)
{
	bench_list(argc, argv, "Interceptors alone", subjects, sizeof(subjects) / sizeof(subjects[0]));
	fc_destroy(guard_context());
	return 0;
}
