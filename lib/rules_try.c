/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rules_try.c - a document tried out before it is put in force: each entry is set up in a context made for
 * that, so that what interceptors refuse is known, with the line of the rule, before anything is changed. The
 * context's memory goes with it; nothing of the real one is touched.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ruled.h"
#include "rules.h"

#define BATCH       128u /* entries in one context */
#define TRIAL_BYTES (4ull << 30) /* of address space: states of any size */

struct trial {
	const struct fci_doc *doc;
	struct fci_parse p;
	struct fc *real, *fc;
	uint32_t left;      /* entries that this context still takes */
	int failed;         /* there is no context for more */
	char said[512];     /* the first line that was logged */
};

static void keep_line(void *arg, int level, const char *line)
{
	struct trial *t = arg;

	if (level == FC_LOG_ERROR && !t->said[0])
		snprintf(t->said, sizeof(t->said), "%s", line);
}

/* The line without "INTERFACE: RULE: " in front. */
static const char *said(const struct trial *t, const char *iface, const char *rule)
{
	const char *s = t->said;

	if (!strncmp(s, iface, strlen(iface)) && !strncmp(s + strlen(iface), ": ", 2))
		s += strlen(iface) + 2;
	if (rule && !strncmp(s, rule, strlen(rule)) && !strncmp(s + strlen(rule), ": ", 2))
		s += strlen(rule) + 2;
	return *s ? s : "not accepted";
}

/* ---- groups ------------------------------------------------------------------------------------ */

static const struct fci_rules_group *declared(const struct fci_doc *d, const char *name)
{
	for (uint32_t i = 0; i < d->n_groups; i++)
		if (!strcmp(d->groups[i].name, name))
			return &d->groups[i];
	return NULL;
}

static void try_group(struct trial *t, const struct fci_rules_group *g)
{
	int rc;

	t->said[0] = '\0';
	rc = fc_isolate_group(t->fc, g->name, &g->opts);
	if (rc < 0)
		fci_rules_bad(&t->p, rc, g->at, "group %s: %s", g->name, said(t, g->name, NULL));
}

/* A group that the program has made, or another layer: as far as this rule needs it. */
static void lend_group(struct trial *t, const struct fc_isolate_conf *conf)
{
	struct fc_isolate_member m = { .name = conf->member ? conf->member : "-" };
	FC_OPTS(fc_isolate_opts, o, .cap = 1000000, .members = &m, .n_members = 1);
	uint32_t own, borrowed;

	if (conf->group && t->real && !declared(t->doc, conf->group) &&
	    fc_isolate_used(t->real, conf->group, conf->member, &own, &borrowed) == 0)
		(void)fc_isolate_group(t->fc, conf->group, &o);
}

/* ---- entries ----------------------------------------------------------------------------------- */

static int new_context(struct trial *t)
{
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .flags = FC_NO_STACKS, .max_ifaces = BATCH, .recorder_slots = 1,
	        .segment_bytes = TRIAL_BYTES, .log = keep_line, .log_arg = t);
	uint32_t before;
	int rc;

	fc_destroy(t->fc);
	t->fc = NULL;
	rc = fc_create(&t->fc, &o);
	if (rc == -ENOMEM) { /* no such large addresses here */
		o.segment_bytes = 0;
		rc = fc_create(&t->fc, &o);
	}
	if (rc < 0) {
		fci_rules_bad(&t->p, rc, (struct fci_mark){ 0 }, "cannot be tried out: %s", fc_status_text(rc));
		t->failed = 1;
		return rc;
	}
	t->left = BATCH;
	before = t->p.err->n;
	for (uint32_t i = 0; i < t->doc->n_groups; i++)
		try_group(t, &t->doc->groups[i]);
	t->failed = t->p.err->n != before; /* rules of a bad group would only say so again */
	return t->failed ? -EINVAL : 0;
}

/* As for fc_iface_set_chain(), but no call will see the chain, so nobody has to be waited for. */
static int try_chain(struct fc_iface *f, const struct fc_rule *rules, uint32_t n)
{
	struct fci_chain *c;
	int rc;

	pthread_mutex_lock(&f->fc->setup);
	rc = fci_chain_make(f, rules, n, &c);
	if (rc == 0)
		fci_chain_drop(f, c);
	pthread_mutex_unlock(&f->fc->setup);
	return rc;
}

/* Each rule alone, for messages with the line of each; then all together. */
static void try_rules(struct trial *t, struct fc_iface *f, const struct fci_entry_rules *e)
{
	uint32_t bad = 0;
	int rc;

	for (uint32_t i = 0; i < e->n_rules && !fci_rules_full(&t->p); i++) {
		const struct fc_rule *r = &e->rules[i];
		size_t was;

		if (r->interceptor == &fc_interceptor_isolate)
			lend_group(t, r->conf);
		t->said[0] = '\0';
		rc = try_chain(f, r, 1);
		if (rc == 0)
			continue;
		bad++;
		was = fci_path_in(&t->p, r->name);
		fci_rules_bad(&t->p, rc == -ENOMEM || rc == -ENOSPC ? rc : -EINVAL, e->rule_at[i]->key_at, "found numbers that \"%s\" refuses: %s",
		              r->interceptor->name, said(t, fc_iface_name(f), r->name));
		fci_path_out(&t->p, was);
	}
	t->said[0] = '\0';
	if (!bad && e->n_rules > 1 && (rc = try_chain(f, e->rules, e->n_rules)) < 0)
		fci_rules_bad(&t->p, rc == -ENOMEM || rc == -ENOSPC ? rc : -EINVAL, e->rules_node->key_at,
		              "found rules that do not go together: %s", said(t, fc_iface_name(f), NULL));
}

/* Numbers that contradict each other, defaults taken in. */
static void contradictions(struct fci_parse *p, const struct fc_iface_opts *o, struct fci_mark at)
{
	uint32_t cap = o->cap <= FC_CAP_MAX ? o->cap : 0;

	if (o->max_cap && o->max_cap < cap)
		fci_rules_bad(p, -EINVAL, at, "found max_cap %u under cap %u; allowed: at least cap", o->max_cap, cap);
	if (cap && o->writeoff > cap && o->writeoff <= FC_CAP_MAX)
		fci_rules_bad(p, -EINVAL, at, "found writeoff %u over cap %u; allowed: at most cap", o->writeoff, cap);
	if (o->stuck_after_ns && o->writeoff_after_ns && o->writeoff_after_ns < o->stuck_after_ns)
		fci_rules_bad(p, -EINVAL, at, "found writeoff_after under stuck_after; allowed: at least stuck_after");
	if (o->wait_timeout_ns && !o->wait_max)
		fci_rules_bad(p, -EINVAL, at, "found wait/timeout without waiters; allowed: with wait/max_waiters from 1 to 256");
	if (o->wait_max && !cap)
		fci_rules_bad(p, -EINVAL, at, "found wait/max_waiters without a cap to wait for; allowed: with cap from 1 to 65536");
}

static void try_entry(struct trial *t, const struct fci_entry_rules *e, int is_defaults)
{
	struct fci_effect effect;
	struct fc_iface *f;
	size_t was;
	int rc;

	if (t->left == 0 && new_context(t) < 0)
		return;
	t->left--;
	fci_entry_effect(t->doc, is_defaults ? NULL : e, &effect);
	t->p.path_len = 0;
	was = fci_path_in(&t->p, is_defaults ? "defaults" : "interfaces");
	if (!is_defaults)
		(void)fci_path_in(&t->p, e->name);
	contradictions(&t->p, &effect.opts.o, e->at);
	t->said[0] = '\0';
	rc = fc_iface_set(t->fc, e->name, &effect.opts.o, &f);
	if (rc < 0)
		fci_rules_bad(&t->p, rc, e->at, "found numbers that do not go together: %s", said(t, e->name, NULL));
	if (rc == 0 && e->n_rules) {
		(void)fci_path_in(&t->p, "rules");
		try_rules(t, f, e);
	}
	fci_path_out(&t->p, was);
}

/* ---- what is new ------------------------------------------------------------------------------- */

static const struct fci_node *top(const struct fci_doc *d, const char *key)
{
	return fci_node_get(d->root, key);
}

static const struct fci_entry_rules *same_name(const struct fci_doc *d, const struct fci_entry_rules *e)
{
	const struct fci_entry_rules *x;

	if (!fci_is_pattern(e->name)) {
		x = fci_doc_match(d, e->name);
		return x && !strcmp(x->name, e->name) ? x : NULL;
	}
	for (uint32_t i = 0; i < d->n_patterns; i++)
		if (!strcmp(d->patterns[i]->name, e->name))
			return d->patterns[i];
	return NULL;
}

static void try_new(struct trial *t, const struct fci_doc *was, const struct fci_entry_rules *e)
{
	const struct fci_entry_rules *x = was ? same_name(was, e) : NULL;

	if (!(x && fci_node_equal(x->node, e->node)) && !fci_rules_full(&t->p) && !t->failed)
		try_entry(t, e, 0);
}

int fci_doc_try(const struct fci_doc *d, const struct fci_doc *was, struct fc *fc, struct fc_rules_error *err)
{
	struct trial t = { .doc = d, .real = fc, .p = { .file = d->file, .err = err } };

	/* What all entries depend on. */
	if (was && (!fci_node_equal(top(was, "defaults"), top(d, "defaults")) || !fci_node_equal(top(was, "groups"), top(d, "groups"))))
		was = NULL;
	if (d->n_groups && !was)
		(void)new_context(&t);
	if (d->defaults.node && !was && !t.failed)
		try_entry(&t, &d->defaults, 1);
	for (uint32_t i = 0; i < d->n_exact; i++)
		try_new(&t, was, d->exact[i]);
	for (uint32_t i = 0; i < d->n_patterns; i++)
		try_new(&t, was, d->patterns[i]);
	fc_destroy(t.fc);
	return err->n ? err->error : 0;
}
