/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tests/support/breaking.h - calls with outcomes on a guarded interface, for breaker and degrade; and a
 * later rule that refuses when told to.
 *
 * Threads.  As guarded.h says; the functions here from the main thread.
 */
#ifndef FC_TESTS_BREAKING_H
#define FC_TESTS_BREAKING_H

#include <fcguard/fcguard.h>

#include "lib/leave.h"

#include "guarded.h"

#define UNIT_NS (1u << 20) /* in which breakers keep time */

static struct guarded g;
static char first_logged[512]; /* line of the log */
static int later_refuses;

static inline void keep_line(void *arg, int level, const char *msg)
{
	(void)arg, (void)level;
	if (!first_logged[0])
		snprintf(first_logged, sizeof(first_logged), "%s", msg);
}

static inline int later_pre(struct fc_call *c)
{
	(void)c;
	return later_refuses ? FC_REFUSED_CUSTOM : 0;
}

static const struct fc_interceptor later = {
	.size = sizeof(struct fc_interceptor), .order = FC_ORDER_USER, .name = "later", .reason = FC_REFUSED_CUSTOM,
	.pre = later_pre,
};

static inline void open_cpus(uint32_t cpus)
{
	static const struct fc_iface_opts o = { .cap = 4096, .expand = 1, .latency = FC_LATENCY_EXACT };

	if (g.fc)
		guarded_close(&g);
	guarded_context(&g, cpus);
	if (guarded_iface(&g, &o) < 0)
		abort();
	later_refuses = 0;
	first_logged[0] = 0;
}

static inline int teardown(void **state)
{
	(void)state;
	return g.fc ? guarded_close(&g) : 0;
}

static inline int give_rule(const struct fc_interceptor *ic, const void *conf, uint32_t flags)
{
	struct fc_rule rules[2] = { { .interceptor = ic, .conf = conf, .flags = flags }, { .interceptor = &later } };

	return fc_iface_set_chain(g.f, rules, 2);
}

/* One call, that ends at once. */
static inline int call_of(uint32_t priority, int outcome)
{
	FC_OPTS(fc_ctx, ctx, .priority = priority);
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter(&e, g.f, priority ? &ctx : NULL);

	if (rc == 0 && outcome != FC_OUTCOME_OK)
		fc_entry_mark(&e, outcome);
	fc_exit(&e);
	return rc;
}

static inline int call(int outcome)
{
	return call_of(0, outcome);
}

/* n calls; how many got in. */
static inline unsigned calls(unsigned n, int outcome)
{
	unsigned in = 0;

	while (n-- > 0)
		in += call(outcome) == 0;
	return in;
}

static inline int call_for(uint64_t ns, int outcome)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter(&e, g.f, NULL);

	if (rc == 0) {
		guarded_pass(&g, ns);
		fc_entry_mark(&e, outcome);
	}
	fc_exit(&e);
	return rc;
}

/* Someone ends it from outside, as a purge or a write-off does. */
static inline void abandon(void)
{
	uint32_t slots = fci_slots(g.f);
	struct fci_view v;

	for (uint32_t s = 0; s < slots; s++)
		if (fci_is_call(atomic_load_explicit(fci_word(g.f, s), FCI_SC)) && fci_view(g.f, s, &v) &&
		    fci_abandon(g.f, &v, g.now) == 1)
			return;
	abort();
}

#endif /* FC_TESTS_BREAKING_H */
