/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_explain.c - which number of an interface holds, and why. See fcguard/rules.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "out.h"
#include "ruled.h"
#include "rules.h"

/* What was set by hand, copied out. */
struct hand {
	uint32_t parts;
	uint64_t left_ns; /* FC_NEVER_NS: until it is released */
	struct fci_ruled_opts opts;
};

static void line(struct fci_out *o, const char *format, ...) FC_PRINTF_(2, 3);
static void line(struct fci_out *o, const char *format, ...)
{
	char text[640];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	fci_put(o, text);
	fci_put(o, "\n");
}

static void show_hand(struct fci_out *o, const struct hand *h, const char *what)
{
	char left[32];
	struct fc_field f = { .type = FC_FIELD_DURATION };
	uint64_t ms = h->left_ns / FC_MS(1) * FC_MS(1);

	fci_value_write(left, sizeof(left), &f, NULL, &ms);
	if (h->left_ns == FC_NEVER_NS)
		line(o, "  %s were set by hand, which wins over rules until it is released", what);
	else
		line(o, "  %s were set by hand, which wins over rules for another %s", what, left);
}

/* Why this entry: the first in the order of how specific they are. */
static void show_entry(struct fci_out *o, const struct fci_effect *e, const char *name)
{
	const struct fci_doc *d = e->doc;

	if (!d) {
		line(o, "  no rules are loaded");
		return;
	}
	if (e->entry)
		line(o, "  by `%s`, %s:%u: %s", e->entry->name, d->file, e->entry->at.line,
		     fci_is_pattern(e->entry->name) ? "the most specific pattern that matches" : "its own name, more specific than any pattern");
	else
		line(o, "  no entry of %s names it: defaults alone", d->file);
	for (uint32_t i = 0; e->entry && i < d->n_patterns; i++)
		if (d->patterns[i] != e->entry && fci_pattern_matches(d->patterns[i]->name, name))
			line(o, "  not by `%s`, line %u, which matches too, less specific", d->patterns[i]->name, d->patterns[i]->at.line);
}

static const char *origin(const struct fci_effect *e, uint32_t row, char *buf, size_t len)
{
	uint32_t at = e->opts.at[row].line;

	if (!at)
		return "built in";
	if (e->entry && e->entry->opts.at[row].line == at)
		snprintf(buf, len, "`%s`, line %u", e->entry->name, at);
	else
		snprintf(buf, len, "defaults, line %u", at);
	return buf;
}

static void show_numbers(struct fci_out *o, const struct fci_effect *e, const struct hand *h)
{
	int by_hand = h && (h->parts & FCI_HAND_OPTS);
	const struct fci_key *k, *in;

	for (uint32_t i = 0; (k = fci_keys_row(fci_iface_keys, fci_n_iface_keys, i, &in)) != NULL; i++) {
		int fallback = k->field.type == FC_FIELD_REASONS, hand = fallback ? h && (h->parts & FCI_HAND_FALLBACK) : by_hand;
		const struct fci_ruled_opts *from = by_hand && !fallback ? &h->opts : &e->opts;
		char name[64], value[128], why[192];

		snprintf(name, sizeof(name), "%s%s%s", in ? in->field.name : "", in ? "/" : "", k->field.name);
		if ((by_hand && !fallback) || e->opts.at[i].line)
			fci_value_write(value, sizeof(value), &k->field, k->words, from);
		else
			snprintf(value, sizeof(value), "%s", k->unsaid);
		line(o, "  %-18s %-24s %s", name, hand && fallback ? "?" : value, hand ? "by hand" : origin(e, i, why, sizeof(why)));
	}
}

/* The texts of a list, as many as fit; of anything else, how many there are. */
static void write_list(char *buf, size_t len, const struct fci_node *list)
{
	static const char more[] = ", ... of 4294967295]";
	size_t used = 1;

	if (list->kind != FCI_LIST || !list->first || list->first->kind != FCI_SCALAR) {
		snprintf(buf, len, "(%u)", list->n);
		return;
	}
	buf[0] = '[';
	for (const struct fci_node *n = list->first; n; n = n->next) {
		const char *comma = n == list->first ? "" : ", ";

		if (used + strlen(comma) + strlen(n->text) + sizeof(more) > len) {
			snprintf(buf + used, len - used, "%s... of %u]", comma, list->n);
			return;
		}
		used += (size_t)snprintf(buf + used, len - used, "%s%s", comma, n->text);
	}
	snprintf(buf + used, len - used, "]");
}

/* A choice has a default always: its first word, where the table says nothing else. */
static int has_default(const struct fc_field *f)
{
	return f->type == FC_FIELD_CHOICE || (f->type < FC_FIELD_TEXT && f->def);
}

static void show_fields(struct fci_out *o, const struct fc_rule *r, const struct fci_node *at)
{
	const struct fc_interceptor *ic = r->interceptor;
	char value[101]; /* as much as a line shows */

	for (uint32_t i = 0; i < ic->n_fields; i++) {
		const struct fc_field *f = &ic->fields[i];
		const struct fci_node *n = fci_node_get(at, f->name);

		if (n && n->kind == FCI_SCALAR)
			snprintf(value, sizeof(value), "%s", n->text);
		else if (n)
			write_list(value, sizeof(value), n);
		else if (has_default(f))
			fci_value_write(value, sizeof(value), f, NULL, r->conf);
		else
			continue;
		if (n)
			line(o, "      %-16s %-24.100s line %u", f->name, value, n->key_at.line);
		else
			line(o, "      %-16s %-24.100s built in", f->name, value);
	}
}

static uint32_t order_of(const struct fc_rule *r)
{
	return r->order ? r->order : r->interceptor->order;
}

/* In the order of the chain; equal ones as they are given. */
static void show_rules(struct fci_out *o, const struct fci_effect *e)
{
	const struct fci_entry_rules *from = e->rules;
	uint32_t shown = 0, order = 0;

	if (!from || !from->n_rules) {
		line(o, "  no rules beside the cap");
		return;
	}
	line(o, "  rules of `%s`, line %u, in the order in which calls meet them:", from->name, from->rules_node->key_at.line);
	while (shown < from->n_rules) {
		uint32_t next = UINT32_MAX;

		for (uint32_t i = 0; i < from->n_rules; i++) {
			const struct fc_rule *r = &from->rules[i];

			if (order_of(r) == order) {
				line(o, "    %s: %s%s, line %u", r->name, r->interceptor->name, r->flags & FC_RULE_DRY_RUN ? " in dry run" : "",
				     from->rule_at[i]->key_at.line);
				show_fields(o, r, from->rule_at[i]);
				shown++;
			} else if (order_of(r) > order && order_of(r) < next) {
				next = order_of(r);
			}
		}
		order = next;
	}
}

static int explain(struct fci_doc *const *layers, const char *name, const struct hand *h, int fd)
{
	struct fci_out o = { .fd = fd };
	struct fci_effect e;

	(void)fci_effect_of(layers, name, &e);
	line(&o, "%s", name);
	if (h && (h->parts & FCI_HAND_OPTS))
		show_hand(&o, h, "its numbers");
	if (h && (h->parts & FCI_HAND_CHAIN))
		show_hand(&o, h, "its rules");
	show_entry(&o, &e, name);
	if (e.doc && e.doc == layers[FC_RULES_PUSHED] && layers[FC_RULES_FILE])
		line(&o, "  pushed, which wins over the file %s", layers[FC_RULES_FILE]->file);
	show_numbers(&o, &e, h);
	if (h && (h->parts & FCI_HAND_CHAIN))
		line(&o, "  rules: by hand");
	else
		show_rules(&o, &e);
	fci_put_flush(&o);
	return o.error;
}

static void look_at_hand(struct fc *fc, const char *name, struct hand *h)
{
	struct fc_iface *f = fc_iface_find(fc, name);
	uint64_t now = fci_clock_now(&fc->clock);

	memset(h, 0, sizeof(*h));
	if (!f)
		return;
	pthread_mutex_lock(&fc->setup);
	h->parts = f->by_hand;
	h->left_ns = f->hand_until == FC_NEVER_NS ? FC_NEVER_NS : f->hand_until > now ? f->hand_until - now : 0;
	pthread_mutex_unlock(&fc->setup);
	h->opts.o.size = sizeof(h->opts.o);
	(void)fc_iface_get_opts(f, &h->opts.o);
	h->opts.dry_run = (h->opts.o.flags & FC_IFACE_DRY_RUN) != 0;
	h->opts.off = (h->opts.o.flags & FC_IFACE_OFF) != 0;
	h->opts.outbound = (h->opts.o.flags & FC_IFACE_OUTBOUND) != 0;
}

int fc_rules_explain(struct fc *fc, const char *name, int fd)
{
	struct fci_rules *r;
	struct hand h;
	int rc = -ENOMEM;

	if (!fci_fc_ok(fc) || !fc->seg || !name)
		return -EINVAL;
	look_at_hand(fc, name, &h);
	pthread_mutex_lock(&fc->rules_mutex);
	r = fci_rules_of(fc);
	if (r)
		rc = explain(r->layer, name, &h, fd);
	pthread_mutex_unlock(&fc->rules_mutex);
	return rc;
}

int fc_rules_explain_file(const char *path, const char *name, int fd, struct fc_rules_error *err)
{
	struct fci_doc *layers[FCI_LAYERS] = { NULL };
	struct fc_rules_error own;
	struct fci_file_id id;
	char *text = NULL;
	size_t len;
	int rc;

	if (!path || !*path || !name)
		return -EINVAL;
	rc = fci_file_read(path, &text, &len, &id, fci_rules_begin(&own));
	if (rc == 0) {
		layers[0] = fci_doc_read(path, text, len, &own);
		rc = layers[0] ? fci_doc_try(layers[0], NULL, NULL, &own) : own.error;
	}
	if (rc == 0)
		rc = explain(layers, name, NULL, fd);
	fci_doc_free(layers[0]);
	free(text);
	return fci_rules_end(NULL, path, rc, &own, err);
}
