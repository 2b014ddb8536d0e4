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

/* The numbers of b where a says nothing. */
static int merge(struct fci_ruled_opts *r, const struct fci_ruled_opts *a, const struct fci_ruled_opts *b)
{
	const struct fci_key *k, *in;
	int said = 0;

	if (a)
		*r = *a;
	else
		memset(r, 0, sizeof(*r));
	for (uint32_t i = 0; (k = fci_keys_row(fci_iface_keys, fci_n_iface_keys, i, &in)) != NULL; i++) {
		size_t bytes = k->field.type == FC_FIELD_DURATION ? sizeof(uint64_t) : sizeof(uint32_t);

		if (!r->at[i].line && b->at[i].line) {
			memcpy((char *)r + k->field.offset, (const char *)b + k->field.offset, bytes);
			r->at[i] = b->at[i];
		}
		said |= r->at[i].line != 0;
	}
	r->o.size = sizeof(r->o);
	r->o.flags = (r->dry_run ? FC_IFACE_DRY_RUN : 0) | (r->off ? FC_IFACE_OFF : 0) | (r->outbound ? FC_IFACE_OUTBOUND : 0);
	return said;
}

void fci_effect_of(const struct fci_doc *const *layers, const char *name, struct fci_effect *ret)
{
	struct fci_ruled_opts o;

	memset(ret, 0, sizeof(*ret));
	ret->opts.size = sizeof(ret->opts);
	for (int i = FCI_LAYERS; i-- > 0 && !ret->entry;)
		if (layers[i] && (ret->entry = fci_doc_match(layers[i], name)) != NULL)
			ret->doc = layers[i];
	for (int i = 0; i < FCI_LAYERS && !ret->doc; i++)
		ret->doc = layers[i];
	if (!ret->doc)
		return;
	ret->rules = ret->entry && ret->entry->rules_node ? ret->entry : ret->doc->defaults.rules_node ? &ret->doc->defaults : NULL;
	ret->ruled = merge(&o, ret->entry ? &ret->entry->opts : NULL, &ret->doc->defaults.opts);
	ret->opts = o.o;
}
