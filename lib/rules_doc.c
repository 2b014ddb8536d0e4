/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_doc.c - the tree of a rules file to a document: what stands at the top, entries, rules. See rules.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "iface.h"
#include "rules.h"

#define LEN(a_) (uint32_t)(sizeof(a_) / sizeof((a_)[0]))
#define KEY(name_, type_, offset_, min_, max_, words_, help_) \
	{ .field = { .name = name_, .type = type_, .offset = offset_, .min = min_, .max = max_, .help = help_ }, .words = words_ }

static int no_memory(struct fci_parse *p)
{
	fci_rules_bad(p, -ENOMEM, (struct fci_mark){ 0 }, "no memory");
	return -1;
}

/* ---- rules ------------------------------------------------------------------------------------- */

struct rule_head {
	const char *use;
	uint32_t order, dry_run, off, resv;
};

static const struct fci_key rule_keys[] = {
	KEY("use", FC_FIELD_TEXT, offsetof(struct rule_head, use), 1, FC_RULE_NAME_MAX, NULL, "the interceptor"),
	KEY("order", FC_FIELD_COUNT32, offsetof(struct rule_head, order), 1, 1000000, NULL, "its place in the chain"),
	KEY("dry_run", FC_FIELD_BOOL, offsetof(struct rule_head, dry_run), 0, 1, NULL, "count, refuse nothing"),
	KEY("off", FC_FIELD_BOOL, offsetof(struct rule_head, off), 0, 1, NULL, "as if the rule were not there"),
};
static const char *const rule_words[] = { "use", "order", "dry_run", "off", NULL };

/* The keys of any rule, whatever the interceptor: the others are the interceptor's. */
static void read_head(struct fci_parse *p, const struct fci_node *n, struct rule_head *h)
{
	memset(h, 0, sizeof(*h));
	for (uint32_t i = 0; i < LEN(rule_keys); i++) {
		const struct fci_node *c = fci_node_get(n, rule_keys[i].field.name);
		size_t was;

		if (!c)
			continue;
		was = fci_path_in(p, c->key);
		(void)fci_value_read(p, c, &rule_keys[i].field, NULL, h);
		fci_path_out(p, was);
	}
}

/* By `use`, or by the rule's name up to its first point: rate.per_min is a rate. */
static const struct fc_interceptor *interceptor_of(struct fci_parse *p, const struct fci_node *n, const char *use)
{
	char name[FC_RULE_NAME_MAX + 1];
	const struct fc_interceptor *ic;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(use ? use : n->key, use ? "" : "."), use ? use : n->key);
	ic = fc_interceptor_find(name);
	if (!ic)
		fci_rules_bad(p, -EINVAL, n->key_at, "found no interceptor \"%s\"; allowed: one of the library or one registered by the "
		              "program, as name of the rule, before a point in it, or as `use`", name);
	else if (ic == &fc_interceptor_cap)
		fci_rules_bad(p, -EINVAL, n->key_at, "found the cap as a rule; allowed: `cap` of the interface");
	else if (!ic->fields && ic->conf_bytes)
		fci_rules_bad(p, -EINVAL, n->key_at, "found \"%s\", which says nothing of its numbers; allowed: interceptors with fields", name);
	else
		return ic;
	return NULL;
}

static void read_rule(struct fci_parse *p, struct fci_entry_rules *e, const struct fci_node *n)
{
	struct fc_rule *r = &e->rules[e->n_rules];
	struct rule_head h;
	void *conf;

	if (strlen(n->key) > FC_RULE_NAME_MAX) {
		fci_rules_bad(p, -EINVAL, n->key_at, "found a name of %zu bytes; allowed: up to %d", strlen(n->key), FC_RULE_NAME_MAX);
		return;
	}
	if (!fci_is_map(p, n))
		return;
	read_head(p, n, &h);
	r->interceptor = interceptor_of(p, n, h.use);
	if (!r->interceptor)
		return;
	conf = fci_pool_take(p->pool, r->interceptor->conf_bytes + 1);
	if (!conf) {
		no_memory(p);
		return;
	}
	fci_conf_read(p, n, r->interceptor->fields, r->interceptor->n_fields, rule_words, conf);
	r->conf = conf;
	r->name = n->key;
	r->order = h.order;
	r->flags = h.dry_run ? FC_RULE_DRY_RUN : 0;
	e->rule_at[e->n_rules] = n;
	e->n_rules += !h.off;
}

static void read_rules(struct fci_parse *p, struct fci_entry_rules *e, const struct fci_node *n)
{
	if (!fci_is_map(p, n))
		return;
	e->rules_node = n;
	e->rules = fci_pool_take(p->pool, (n->n + 1) * sizeof(*e->rules));
	e->rule_at = fci_pool_take(p->pool, (n->n + 1) * sizeof(*e->rule_at));
	if (!e->rules || !e->rule_at) {
		no_memory(p);
		return;
	}
	for (const struct fci_node *c = n->first; c && !fci_rules_full(p); c = c->next) {
		size_t was = fci_path_in(p, c->key);

		read_rule(p, e, c);
		fci_path_out(p, was);
	}
	if (e->n_rules > FC_CHAIN_MAX)
		fci_rules_bad(p, -EINVAL, n->key_at, "found %u rules; allowed: up to %d on one interface", e->n_rules, FC_CHAIN_MAX);
}

/* ---- entries ----------------------------------------------------------------------------------- */

static const char *const entry_words[] = { "rules", NULL };

static void read_entry(struct fci_parse *p, struct fci_entry_rules *e, const struct fci_node *n)
{
	const struct fci_node *rules;
	size_t was;

	e->name = n->key;
	e->node = n;
	e->at = n->key_at;
	if (!fci_is_map(p, n))
		return;
	fci_keys_read(p, n, fci_iface_keys, fci_n_iface_keys, entry_words, &e->opts, e->opts.at);
	rules = fci_node_get(n, "rules");
	if (!rules)
		return;
	was = fci_path_in(p, "rules");
	read_rules(p, e, rules);
	fci_path_out(p, was);
}

static int by_name(const void *a, const void *b)
{
	const struct fci_entry_rules *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* More characters before the first *, then more in all, then the one that stands first. */
static int by_specific(const void *a, const void *b)
{
	const struct fci_entry_rules *x = *(const struct fci_entry_rules *const *)a, *y = *(const struct fci_entry_rules *const *)b;

	if (x->prefix != y->prefix)
		return x->prefix > y->prefix ? -1 : 1;
	if (x->literal != y->literal)
		return x->literal > y->literal ? -1 : 1;
	return x->at.line != y->at.line ? (x->at.line < y->at.line ? -1 : 1) : x->at.column < y->at.column ? -1 : 1;
}

static int name_ok(struct fci_parse *p, const struct fci_node *n)
{
	int rc = fci_name_check(n->key);

	if (rc < 0)
		fci_rules_bad(p, -EINVAL, n->key_at, "found a name that is %s; allowed: 1 to %d bytes of UTF-8 without control characters",
		              rc == -ENAMETOOLONG ? "too long" : "not text", FC_NAME_MAX);
	return rc == 0;
}

static void add_entry(struct fci_parse *p, struct fci_doc *d, const struct fci_node *n)
{
	struct fci_entry_rules *e;

	if (!name_ok(p, n))
		return;
	e = fci_pool_take(p->pool, sizeof(*e));
	if (!e) {
		no_memory(p);
		return;
	}
	read_entry(p, e, n);
	e->prefix = (uint32_t)strcspn(n->key, "*");
	for (const char *s = n->key; *s; s++)
		e->literal += *s != '*';
	if (!fci_is_pattern(n->key))
		d->exact[d->n_exact++] = e;
	else if (d->n_patterns < FC_RULES_PATTERNS_MAX)
		d->patterns[d->n_patterns++] = e;
	else
		fci_rules_bad(p, -E2BIG, n->key_at, "found more than %u patterns; allowed: up to that many", FC_RULES_PATTERNS_MAX);
}

static void read_entries(struct fci_parse *p, struct fci_doc *d, const struct fci_node *n)
{
	if (!fci_is_map(p, n))
		return;
	if (n->n > FC_RULES_ENTRIES_MAX) {
		fci_rules_bad(p, -E2BIG, n->at, "found %u entries; allowed: up to %u", n->n, FC_RULES_ENTRIES_MAX);
		return;
	}
	d->exact = fci_pool_take(p->pool, (n->n + 1) * sizeof(*d->exact));
	d->patterns = fci_pool_take(p->pool, (n->n + 1) * sizeof(*d->patterns));
	if (!d->exact || !d->patterns) {
		no_memory(p);
		return;
	}
	for (const struct fci_node *c = n->first; c && !fci_rules_full(p); c = c->next) {
		size_t was = fci_path_in(p, c->key);

		add_entry(p, d, c);
		fci_path_out(p, was);
	}
	if (d->n_exact > 1)
		qsort(d->exact, d->n_exact, sizeof(*d->exact), by_name);
	if (d->n_patterns > 1)
		qsort(d->patterns, d->n_patterns, sizeof(*d->patterns), by_specific);
}

/* ---- the whole process ------------------------------------------------------------------------- */

struct system_conf {
	struct fc_system_opts o;
	struct fc_rate rate;
};

#define SYSTEM(m_) offsetof(struct system_conf, m_)
#define HEALTH(m_) offsetof(struct fc_health_opts, m_)

static const struct fci_word off_words[] = { { "off", FC_HEALTH_OFF }, { NULL, 0 } };

static const struct fci_key system_keys[] = {
	KEY("cpu", FC_FIELD_PERMILLE, SYSTEM(o.cpu_permille), 1, 1000, NULL, "of what the process may use"),
	KEY("load", FC_FIELD_FACTOR, SYSTEM(o.load_permille), 1, 1000000, NULL, "load average over the number of CPUs"),
	KEY("in_flight", FC_FIELD_COUNT32, SYSTEM(o.in_flight), 1, 1000000000, NULL, "calls inside, of all inbound interfaces"),
	KEY("rate", FC_FIELD_RATE, SYSTEM(rate), 1, 1000000000, NULL, "admitted, of all inbound interfaces"),
	KEY("avg_latency", FC_FIELD_DURATION, SYSTEM(o.avg_latency_ns), 1, FC_S(86400), NULL, "of calls that left lately"),
	KEY("keep", FC_FIELD_COUNT32, SYSTEM(o.keep), 0, 7, NULL, "classes up to this one are never refused"),
};

static const struct fci_key health_keys[] = {
	KEY("cpu", FC_FIELD_PERMILLE, HEALTH(cpu_permille), 1, 1000, off_words, "of what the process may use"),
	KEY("throttled", FC_FIELD_PERMILLE, HEALTH(throttled_permille), 1, 1000, off_words, "of the cgroup's periods"),
	KEY("memory", FC_FIELD_PERMILLE, HEALTH(memory_permille), 1, 1000, off_words, "of the limit"),
	KEY("psi_cpu", FC_FIELD_PERMILLE, HEALTH(psi_cpu_permille), 1, 1000, off_words, "pressure, some avg10"),
	KEY("psi_memory", FC_FIELD_PERMILLE, HEALTH(psi_memory_permille), 1, 1000, off_words, "pressure, some avg10"),
	KEY("psi_io", FC_FIELD_PERMILLE, HEALTH(psi_io_permille), 1, 1000, off_words, "pressure, some avg10"),
	KEY("load", FC_FIELD_FACTOR, HEALTH(load1_permille), 1, 1000000000, off_words, "load average of the machine"),
	KEY("hysteresis", FC_FIELD_PERMILLE, HEALTH(hysteresis_permille), 1, 1000, off_words, "so much lower it is good again"),
};

static void read_system(struct fci_parse *p, struct fci_doc *d, const struct fci_node *n)
{
	struct system_conf c = { .o = { .size = sizeof(c.o) } };
	__extension__ unsigned __int128 per_s;

	d->system_node = n;
	fci_keys_read(p, n, system_keys, LEN(system_keys), NULL, &c, NULL);
	if (c.rate.per_ns) {
		per_s = (__extension__ (unsigned __int128)c.rate.n) * FC_S(1) / c.rate.per_ns;
		c.o.rate_per_s = per_s > UINT64_MAX ? UINT64_MAX : (uint64_t)per_s;
		if (!c.o.rate_per_s)
			fci_rules_bad(p, -EINVAL, n->key_at, "found a rate under one a second; allowed: 1/s or more");
	}
	d->system = c.o;
}

static void read_health(struct fci_parse *p, struct fci_doc *d, const struct fci_node *n)
{
	d->health_node = n;
	d->health.size = sizeof(d->health);
	fci_keys_read(p, n, health_keys, LEN(health_keys), NULL, &d->health, NULL);
}

/* ---- groups ------------------------------------------------------------------------------------ */

static const struct fci_key group_keys[] = {
	KEY("cap", FC_FIELD_COUNT32, offsetof(struct fc_isolate_opts, cap), 1, 1000000, NULL, "places of the group"),
};
static const char *const group_words[] = { "members", NULL };
static const struct fci_key member_keys[] = {
	KEY("share", FC_FIELD_COUNT32, offsetof(struct fc_isolate_member, share), 0, 1000000, NULL, "places for it alone"),
	KEY("most", FC_FIELD_COUNT32, offsetof(struct fc_isolate_member, most), 1, 1000000, NULL, "places it may have in all"),
};

static void read_members(struct fci_parse *p, struct fc_isolate_opts *o, const struct fci_node *n)
{
	struct fc_isolate_member *m;
	uint32_t i = 0;
	size_t was;

	if (!fci_is_map(p, n))
		return;
	m = fci_pool_take(p->pool, (n->n + 1) * sizeof(*m));
	if (!m) {
		no_memory(p);
		return;
	}
	for (const struct fci_node *c = n->first; c; c = c->next, i++) {
		was = fci_path_in(p, c->key);
		m[i].name = c->key;
		fci_keys_read(p, c, member_keys, LEN(member_keys), NULL, &m[i], NULL);
		fci_path_out(p, was);
	}
	o->members = m;
	o->n_members = n->n;
}

static void read_groups(struct fci_parse *p, struct fci_doc *d, const struct fci_node *n)
{
	if (!fci_is_map(p, n))
		return;
	d->groups = fci_pool_take(p->pool, (n->n + 1) * sizeof(*d->groups));
	if (!d->groups) {
		no_memory(p);
		return;
	}
	for (const struct fci_node *c = n->first; c && !fci_rules_full(p); c = c->next) {
		struct fci_rules_group *g = &d->groups[d->n_groups++];
		const struct fci_node *members = fci_node_get(c, "members");
		size_t was = fci_path_in(p, c->key);

		g->name = c->key;
		g->at = c->key_at;
		g->opts.size = sizeof(g->opts);
		fci_keys_read(p, c, group_keys, LEN(group_keys), group_words, &g->opts, NULL);
		if (members)
			read_members(p, &g->opts, members);
		fci_path_out(p, was);
	}
}

/* ---- the top ----------------------------------------------------------------------------------- */

static void read_version(struct fci_parse *p, struct fci_doc *d, const struct fci_node *n)
{
	char found[80];

	(void)d;
	if (n->kind != FCI_SCALAR || strcmp(n->text, "1") != 0)
		fci_rules_bad(p, -EINVAL, n->at, "found %s; allowed: 1", fci_node_show(n, found, sizeof(found)));
}

static void read_defaults(struct fci_parse *p, struct fci_doc *d, const struct fci_node *n)
{
	read_entry(p, &d->defaults, n);
}

static const struct part {
	const char *name;
	void (*read)(struct fci_parse *p, struct fci_doc *d, const struct fci_node *n);
} parts[] = {
	{ "version", read_version }, { "defaults", read_defaults }, { "interfaces", read_entries },
	{ "groups", read_groups }, { "system", read_system }, { "health", read_health },
};

static const char *part_name(const void *table, uint32_t i)
{
	(void)table;
	return i < LEN(parts) ? parts[i].name : NULL;
}

static void read_top(struct fci_parse *p, struct fci_doc *d)
{
	if (!fci_is_map(p, d->root))
		return;
	if (!fci_node_get(d->root, "version"))
		fci_rules_bad(p, -EINVAL, d->root->at, "found no `version`, which must be given; allowed: version: 1");
	for (const struct fci_node *c = d->root->first; c && !fci_rules_full(p); c = c->next) {
		uint32_t i = 0;
		size_t was;

		while (i < LEN(parts) && strcmp(parts[i].name, c->key) != 0)
			i++;
		if (i == LEN(parts)) {
			fci_unknown_key(p, c, part_name, NULL);
			continue;
		}
		was = fci_path_in(p, c->key);
		parts[i].read(p, d, c);
		fci_path_out(p, was);
	}
}

struct fci_doc *fci_doc_read(const char *file, const char *text, size_t len, struct fc_rules_error *err)
{
	struct fci_doc *d = calloc(1, sizeof(*d));
	struct fci_parse p = { .file = file, .err = err };

	if (!d) {
		no_memory(&p);
		return NULL;
	}
	d->users = 1;
	p.pool = &d->pool;
	d->defaults.name = "defaults";
	d->file = fci_pool_text(&d->pool, file, strlen(file));
	d->root = fci_yaml_read(&p, text, len);
	if (d->root && d->file)
		read_top(&p, d);
	if (!d->file)
		no_memory(&p);
	return err->n ? fci_doc_free(d) : d;
}

void fci_doc_leave(struct fci_doc *d)
{
	if (d && --d->users == 0)
		fci_doc_free(d);
}

struct fci_doc *fci_doc_free(struct fci_doc *d)
{
	if (d) {
		fci_pool_free(&d->pool);
		free(d);
	}
	return NULL;
}
