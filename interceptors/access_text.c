/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * access_text.c - values and beginnings: tables by hash. See access.c.
 */
#include <errno.h>

#include "access_index.h"

static uint64_t hash_on(uint64_t hash, unsigned char byte)
{
	return (hash ^ byte) * 0x9e3779b97f4a7c15ull ^ hash >> 29;
}

static uint64_t slot_of(uint64_t hash)
{
	return hash ^ hash >> 32;
}

/* NULL: not there. text NULL: the hash will do. The table is never full. */
static const struct slot *table_find(const struct index *x, const struct table *t, uint64_t hash, const char *text,
                                     uint32_t length)
{
	for (uint64_t i = slot_of(hash) & t->mask; t->slot[i].at; i = (i + 1) & t->mask) {
		const struct slot *s = &t->slot[i];

		if (s->hash == hash &&
		    (!text || (s->what >> 1 == length && !memcmp(x->texts + s->at, text, length))))
			return s;
	}
	return NULL;
}

uint32_t fci_access_value(const struct index *x, const struct fc_label *l)
{
	const struct slot *s;

	if (!x->values.slot || !x->values.slot[slot_of(l->value) & x->values.mask].at)
		return NO_VERDICT;
	s = table_find(x, &x->values, l->value, l->text, l->text ? (uint32_t)strlen(l->text) : 0);
	return s ? s->what & 1 : NO_VERDICT;
}

/* The longest beginning. */
uint32_t fci_access_prefix(const struct index *x, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	uint32_t verdict = NO_VERDICT, k = 0, i = 0;
	uint64_t hash = 0;

	if (!x->any_start && (!p[0] || !(x->starts[p[0]][p[1] / 8] >> (p[1] & 7) & 1)))
		return verdict;
	for (;; i++) {
		const struct slot *s;

		if (i == x->length[k]) {
			s = table_find(x, &x->prefixes, hash, text, i);
			if (s)
				verdict = s->what & 1;
			if (++k == x->n_lengths)
				return verdict;
		}
		if (!p[i])
			return verdict;
		hash = hash_on(hash, p[i]);
	}
}

/* ---- building ---------------------------------------------------------------------------------- */

int fci_access_make_table(struct fc_iface *f, struct table *t, uint64_t n)
{
	uint64_t slots = 8;

	if (n == 0)
		return 0;
	while (slots < 2 * n)
		slots *= 2;
	t->mask = slots - 1;
	t->bytes = slots * sizeof(*t->slot);
	t->slot = fc_iface_alloc(f, t->bytes);
	return t->slot ? 0 : -ENOMEM;
}

/* The entry that a slot's text came from: only for the line in the log. */
static uint32_t entry_of(const struct build *b, const char *text, uint32_t length, int prefix)
{
	for (uint32_t v = 0; v < 2; v++) {
		const struct fc_texts *list = v ? &b->conf->deny : &b->conf->allow;

		for (uint32_t i = 0; i < list->n; i++)
			if (!strncmp(list->text[i], text, length) && !strcmp(list->text[i] + length, prefix ? "*" : ""))
				return i << 1 | v;
	}
	return 0;
}

int fci_access_add_text(struct build *b, struct table *t, uint64_t hash, const char *text, uint32_t length,
                        uint32_t entry)
{
	struct index *x = b->x;
	uint64_t i = slot_of(hash) & t->mask;

	if (table_find(x, t, hash, text, length))
		return fci_access_twice(b, entry_of(b, text, length, t == &x->prefixes), entry);
	while (t->slot[i].at)
		i = (i + 1) & t->mask;
	memcpy(x->texts + x->texts_used, text, length);
	t->slot[i] = (struct slot){ hash, (uint32_t)x->texts_used, length << 1 | (entry & 1) };
	x->texts_used += length + 1; /* and a NUL */
	return 0;
}

int fci_access_add_prefix(struct build *b, const char *text, uint32_t length, uint32_t entry)
{
	const unsigned char *p = (const unsigned char *)text;
	struct index *x = b->x;
	uint64_t hash = 0;

	if (length > PREFIX_MAX)
		return fci_access_bad(b, entry, "its beginning is longer", "255 bytes and a *");
	for (uint32_t i = 0; i < length; i++)
		hash = hash_on(hash, p[i]);
	x->has_length[length] = 1;
	if (length < 2)
		x->any_start = 1;
	else
		x->starts[p[0]][p[1] / 8] |= (uint8_t)(1u << (p[1] & 7));
	return fci_access_add_text(b, &x->prefixes, hash, text, length, entry);
}
