/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_match.c - which entry of which layer an interface gets. See rules.h. */
#include <stdlib.h>
#include <string.h>

#include "rules.h"

int fci_is_pattern(const char *name)
{
	return strchr(name, '*') != NULL;
}

/* A * stands for any characters, also none. At a mismatch only the last * needs another try, so this is at
 * most the product of the lengths. */
int fci_pattern_matches(const char *p, const char *s)
{
	const char *star = NULL, *from = NULL;

	while (*s) {
		if (*p == '*') {
			star = p++;
			from = s;
		} else if (*p == *s) {
			p++;
			s++;
		} else if (star) {
			p = star + 1;
			s = ++from;
		} else {
			return 0;
		}
	}
	while (*p == '*')
		p++;
	return !*p;
}

/* Exact names by binary search; patterns are sorted, the most specific first. */
const struct fci_entry_rules *fci_doc_match(const struct fci_doc *d, const char *name)
{
	uint32_t low = 0, high = d->n_exact;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		int r = strcmp(d->exact[mid]->name, name);

		if (r == 0)
			return d->exact[mid];
		if (r < 0)
			low = mid + 1;
		else
			high = mid;
	}
	for (uint32_t i = 0; i < d->n_patterns; i++)
		if (fci_pattern_matches(d->patterns[i]->name, name))
			return d->patterns[i];
	return NULL;
}

static size_t bytes_of(const struct fc_field *f)
{
	return f->type == FC_FIELD_DURATION || f->type == FC_FIELD_REASONS ? sizeof(uint64_t) : sizeof(uint32_t);
}

/* The numbers of b where r says nothing. */
static void complete(struct fci_ruled_opts *r, const struct fci_ruled_opts *b)
{
	const struct fci_key *k, *in;

	for (uint32_t i = 0; (k = fci_keys_row(fci_iface_keys, fci_n_iface_keys, i, &in)) != NULL; i++)
		if (!r->at[i].line && b->at[i].line) {
			memcpy((char *)r + k->field.offset, (const char *)b + k->field.offset, bytes_of(&k->field));
			r->at[i] = b->at[i];
		}
	r->o.size = sizeof(r->o);
	r->o.flags = (r->dry_run ? FC_IFACE_DRY_RUN : 0) | (r->off ? FC_IFACE_OFF : 0) | (r->outbound ? FC_IFACE_OUTBOUND : 0);
}

void fci_entry_effect(const struct fci_doc *d, const struct fci_entry_rules *e, struct fci_effect *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->doc = d;
	ret->entry = e;
	if (e)
		ret->opts = e->opts;
	complete(&ret->opts, &d->defaults.opts);
	ret->rules = e && e->rules_node ? e : d->defaults.rules_node ? &d->defaults : NULL;
	ret->ruled = e || ret->rules || ret->opts.o.cap;
	if (!fci_said(&ret->opts, "fallback_on"))
		ret->opts.fallback_on = FC_FALLBACK_DEFAULT;
}

int fci_said(const struct fci_ruled_opts *o, const char *key)
{
	const struct fci_key *k, *in;

	for (uint32_t i = 0; (k = fci_keys_row(fci_iface_keys, fci_n_iface_keys, i, &in)) != NULL; i++)
		if (!in && !strcmp(k->field.name, key))
			return o->at[i].line != 0;
	return 0;
}

int fci_effect_of(struct fci_doc *const *layers, const char *name, struct fci_effect *ret)
{
	const struct fci_entry_rules *e;

	for (int i = FCI_LAYERS; i-- > 0;)
		if (layers[i] && (e = fci_doc_match(layers[i], name)) != NULL) {
			fci_entry_effect(layers[i], e, ret);
			return 1;
		}
	for (int i = 0; i < FCI_LAYERS; i++)
		if (layers[i]) {
			fci_entry_effect(layers[i], NULL, ret);
			return 1;
		}
	memset(ret, 0, sizeof(*ret));
	ret->opts.o.size = sizeof(ret->opts.o);
	ret->opts.fallback_on = FC_FALLBACK_DEFAULT;
	return 0;
}
