/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_conf.c - maps of a rules file into structs by tables, and the table of interface options. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rules.h"

/* ---- names that are not known ------------------------------------------------------------------ */

#define NEAR_MAX 48u

/* Edits between two names: Levenshtein, one row at a time. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[NEAR_MAX + 1], n = (unsigned)strlen(b);

	if (n > NEAR_MAX || strlen(a) > NEAR_MAX)
		return UINT32_MAX;
	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; *a; a++, i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= n; j++) {
			unsigned above = row[j], best = diagonal + (*a != b[j - 1]);

			best = above + 1 < best ? above + 1 : best;
			best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
			diagonal = above;
			row[j] = best;
		}
	}
	return row[n];
}

void fci_unknown_key(struct fci_parse *p, const struct fci_node *n, const char *(*name)(const void *table, uint32_t i),
                     const void *table)
{
	char allowed[320] = "";
	const char *best = NULL, *s;
	unsigned least = (unsigned)strlen(n->key) / 3 + 1;
	size_t was, used = 0;

	for (uint32_t i = 0; (s = name(table, i)) != NULL; i++) {
		unsigned d = distance(n->key, s);

		if (d <= least) {
			least = d > 0 ? d - 1 : 0;
			best = s;
		}
		if (used < sizeof(allowed))
			used += (size_t)snprintf(allowed + used, sizeof(allowed) - used, "%s%s", i ? ", " : "", s);
	}
	was = fci_path_in(p, n->key);
	fci_rules_bad(p, -EINVAL, n->key_at, "found a key that is not known%s%s%s; allowed: %s", best ? ", perhaps `" : "", best ? best : "",
	              best ? "` is meant" : "", allowed);
	fci_path_out(p, was);
}

int fci_is_map(struct fci_parse *p, const struct fci_node *n)
{
	char found[80];

	if (n->kind == FCI_MAP)
		return 1;
	fci_rules_bad(p, -EINVAL, n->at, "found %s; allowed: a map of keys and values", fci_node_show(n, found, sizeof(found)));
	return 0;
}

static int listed(const char *const *names, const char *key)
{
	for (; names && *names; names++)
		if (!strcmp(*names, key))
			return 1;
	return 0;
}

/* ---- an interceptor's conf --------------------------------------------------------------------- */

struct fields {
	const struct fc_field *f;
	uint32_t n;
	const char *const *others;
};

static const char *field_name(const void *table, uint32_t i)
{
	const struct fields *t = table;

	if (i < t->n)
		return t->f[i].name;
	for (uint32_t j = t->n; t->others && t->others[j - t->n]; j++)
		if (j == i)
			return t->others[j - t->n];
	return NULL;
}

void fci_conf_read(struct fci_parse *p, const struct fci_node *map, const struct fc_field *f, uint32_t n,
                   const char *const *others, void *conf)
{
	struct fields table = { f, n, others };
	char allowed[FCI_ALLOWED_BYTES];

	if (!fci_is_map(p, map))
		return;
	for (uint32_t i = 0; i < n; i++) {
		fci_value_default(&f[i], conf);
		if ((f[i].flags & FC_FIELD_REQUIRED) && !fci_node_get(map, f[i].name)) {
			fci_value_allowed(allowed, sizeof(allowed), &f[i], NULL);
			fci_rules_bad(p, -EINVAL, map->at, "found no `%s`, which must be given; allowed: %s", f[i].name, allowed);
		}
	}
	for (const struct fci_node *c = map->first; c && !fci_rules_full(p); c = c->next) {
		uint32_t i = 0;
		size_t was;

		if (listed(others, c->key))
			continue;
		while (i < n && strcmp(f[i].name, c->key) != 0)
			i++;
		if (i == n) {
			fci_unknown_key(p, c, field_name, &table);
			continue;
		}
		was = fci_path_in(p, c->key);
		(void)fci_value_read(p, c, &f[i], NULL, conf);
		fci_path_out(p, was);
	}
}

/* ---- the library's own structs ----------------------------------------------------------------- */

struct keys {
	const struct fci_key *k;
	uint32_t n;
	const char *const *others;
};

static const char *key_name(const void *table, uint32_t i)
{
	const struct keys *t = table;

	if (i < t->n)
		return t->k[i].field.name;
	for (uint32_t j = t->n; t->others && t->others[j - t->n]; j++)
		if (j == i)
			return t->others[j - t->n];
	return NULL;
}

static uint32_t rows_of(const struct fci_key *k)
{
	return k->sub ? k->n_sub : 1;
}

const struct fci_key *fci_keys_row(const struct fci_key *k, uint32_t n, uint32_t i, const struct fci_key **ret_in)
{
	*ret_in = NULL;
	for (; n; i -= rows_of(k), k++, n--)
		if (i < rows_of(k)) {
			*ret_in = k->sub ? k : NULL;
			return k->sub ? &k->sub[i] : k;
		}
	return NULL;
}

void fci_keys_read(struct fci_parse *p, const struct fci_node *map, const struct fci_key *k, uint32_t n,
                   const char *const *others, void *conf, struct fci_mark *at)
{
	struct keys table = { k, n, others };

	if (!fci_is_map(p, map))
		return;
	for (const struct fci_node *c = map->first; c && !fci_rules_full(p); c = c->next) {
		uint32_t i = 0, row = 0;
		size_t was;

		if (listed(others, c->key))
			continue;
		for (; i < n && strcmp(k[i].field.name, c->key) != 0; i++)
			row += rows_of(&k[i]);
		if (i == n) {
			fci_unknown_key(p, c, key_name, &table);
			continue;
		}
		was = fci_path_in(p, c->key);
		if (k[i].sub)
			fci_keys_read(p, c, k[i].sub, k[i].n_sub, NULL, conf, at ? at + row : NULL);
		else if (fci_value_read(p, c, &k[i].field, k[i].words, conf) == 0 && at)
			at[row] = c->key_at;
		fci_path_out(p, was);
	}
}

/* ---- options of an interface ------------------------------------------------------------------- */

#define OPT(m_)  offsetof(struct fci_ruled_opts, o.m_)
#define FLAG(m_) offsetof(struct fci_ruled_opts, m_)
#define LEN(a_)  (uint32_t)(sizeof(a_) / sizeof((a_)[0]))
#define KEY(name_, type_, offset_, min_, max_, words_, unsaid_) \
	{ .field = { .name = name_, .type = type_, .offset = offset_, .min = min_, .max = max_ }, .words = words_, .unsaid = unsaid_ }

static const struct fci_word keep_words[] = { { "evidence", FC_EXPAND_KEEP_EVIDENCE }, { "health", FC_EXPAND_KEEP_HEALTH }, { NULL, 0 } };
static const struct fci_word order_words[] = { { "newest_first", FC_WAIT_LIFO }, { "oldest_first", FC_WAIT_FIFO }, { NULL, 0 } };
static const struct fci_word latency_words[] = {
	{ "sampled", FC_LATENCY_SAMPLED }, { "exact", FC_LATENCY_EXACT }, { "off", FC_LATENCY_OFF }, { NULL, 0 },
};
static const struct fci_word fault_words[] = { { "open", FC_FAIL_OPEN }, { "closed", FC_FAIL_CLOSED }, { NULL, 0 } };
static const struct fci_word cap_words[] = { { "unlimited", FC_UNLIMITED }, { "0", FC_CAP_REFUSE_ALL }, { NULL, 0 } };
static const struct fci_word writeoff_words[] = { { "unlimited", FC_UNLIMITED }, { "0", FC_WRITEOFF_NONE }, { NULL, 0 } };
static const struct fci_word never_words[] = { { "never", FC_NEVER_NS }, { NULL, 0 } };
static const struct fci_word expand_words[] = { { "1x", 1 }, { "2x", 2 }, { "3x", 3 }, { "4x", 4 }, { NULL, 0 } };

static const struct fci_key wait_keys[] = {
	KEY("max_waiters", FC_FIELD_COUNT32, OPT(wait_max), 0, FC_WAITERS_MAX, NULL, "0"),
	KEY("timeout", FC_FIELD_DURATION, OPT(wait_timeout_ns), 1, FC_S(86400), NULL, "100ms, where callers wait"),
	KEY("order", FC_FIELD_CHOICE, OPT(wait_order), 0, 0, order_words, "newest_first"),
};

/* Words: NAME, UNITS, MEMBER, BOUNDS, other words, what holds when nothing is said. */
const struct fci_key fci_iface_keys[] = {
	KEY("cap", FC_FIELD_COUNT32, OPT(cap), 1, FC_CAP_MAX, cap_words, "unlimited, or the program's default_cap"),
	KEY("max_cap", FC_FIELD_COUNT32, OPT(max_cap), 1, FC_CAP_MAX, NULL, "cap"),
	KEY("expand", FC_FIELD_CHOICE, OPT(expand), 0, 0, expand_words, "4x"),
	KEY("expand_keep", FC_FIELD_CHOICE, OPT(expand_keep), 0, 0, keep_words, "evidence"),
	KEY("writeoff", FC_FIELD_COUNT32, OPT(writeoff), 1, FC_CAP_MAX, writeoff_words, "cap / 10"),
	{ .field = { .name = "wait" }, .sub = wait_keys, .n_sub = LEN(wait_keys) },
	KEY("max_weight", FC_FIELD_COUNT32, OPT(max_weight), 1, FC_WEIGHT_MAX, NULL, "1024"),
	KEY("latency", FC_FIELD_CHOICE, OPT(latency), 0, 0, latency_words, "sampled"),
	KEY("on_fault", FC_FIELD_CHOICE, OPT(on_fault), 0, 0, fault_words, "open, or the program's"),
	KEY("importance", FC_FIELD_COUNT32, OPT(importance), 0, 7, NULL, "0"),
	KEY("stuck_after", FC_FIELD_DURATION, OPT(stuck_after_ns), FC_MS(1), FC_S(86400) * 366, never_words, "5s, or the program's"),
	KEY("writeoff_after", FC_FIELD_DURATION, OPT(writeoff_after_ns), FC_MS(1), FC_S(86400) * 366, never_words, "4 * stuck_after"),
	KEY("check_every", FC_FIELD_DURATION, OPT(check_every_ns), FC_US(1), FC_S(60), NULL, "10ms"),
	KEY("dry_run", FC_FIELD_BOOL, FLAG(dry_run), 0, 1, NULL, "false"),
	KEY("off", FC_FIELD_BOOL, FLAG(off), 0, 1, NULL, "false"),
	KEY("outbound", FC_FIELD_BOOL, FLAG(outbound), 0, 1, NULL, "false"),
	KEY("fallback_on", FC_FIELD_REASONS, FLAG(fallback_on), 0, 0, NULL, "[degraded, breaker]"),
};
const uint32_t fci_n_iface_keys = LEN(fci_iface_keys);
_Static_assert(LEN(fci_iface_keys) - 1 + LEN(wait_keys) <= FCI_IFACE_ROWS, "marks of all rows");
