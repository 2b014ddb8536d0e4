/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_value.c - numbers with units, words and lists of a rules file, into members of a conf. See rules.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rules_unit.h"

/* ---- numbers ----------------------------------------------------------------------------------- */

/* Digits with at most one point among them, as a whole number and how many of them come after the point.
 * Where they end; NULL: no number, or one that does not fit. */
static const char *digits(const char *s, uint64_t *ret, unsigned *ret_decimals)
{
	const char *begin = s, *point = NULL;
	uint64_t v = 0;

	for (; (*s >= '0' && *s <= '9') || (*s == '.' && !point); s++) {
		if (*s == '.')
			point = s;
		else if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return NULL;
	}
	if (s == begin || point == begin || (point && point + 1 == s))
		return NULL;
	*ret = v;
	*ret_decimals = point ? (unsigned)(s - point - 1) : 0;
	return s;
}

/* v * unit / 10^decimals, if it is whole and fits. */
static int scaled(uint64_t v, unsigned decimals, uint64_t unit, uint64_t *ret)
{
	for (; decimals && unit % 10 == 0; decimals--)
		unit /= 10;
	if (__builtin_mul_overflow(v, unit, ret))
		return -1;
	for (; decimals; decimals--) {
		if (*ret % 10)
			return -1;
		*ret /= 10;
	}
	return 0;
}

static const char *with_unit(const char *text, const struct fci_units *us, uint64_t *ret)
{
	unsigned decimals;
	const char *s = digits(text, ret, &decimals);

	if (!s)
		return "no number, or one that is too large";
	if (!us->n)
		return *s || decimals ? "not a whole number" : NULL;
	if (!*s)
		return "no unit";
	for (size_t i = 0; i < us->n; i++)
		if (!strcmp(us->u[i].name, s))
			return scaled(*ret, decimals, us->u[i].value, ret) < 0 ? "too large or too fine" : NULL;
	return "an unknown unit";
}

/* 500/s, 20/100ms */
static const char *rate_of(const char *text, struct fc_rate *r)
{
	struct fci_units us = fci_units_of(FC_FIELD_DURATION);
	unsigned decimals;
	const char *s = digits(text, &r->n, &decimals), *problem;

	if (!s || decimals)
		return "no whole number, or one that is too large, before the /";
	if (*s++ != '/')
		return "no time it is for";
	for (size_t i = 0; i < us.n; i++)
		if (!strcmp(us.u[i].name, s)) {
			r->per_ns = us.u[i].value;
			return NULL;
		}
	problem = with_unit(s, &us, &r->per_ns);
	return problem ? problem : r->per_ns == 0 ? "no time it is for" : NULL;
}

int fci_value_whole(const char *text, uint64_t *ret)
{
	struct fci_units none = fci_units_of(FC_FIELD_COUNT64);

	return with_unit(text, &none, ret) ? -1 : 0;
}

/* ---- reading ----------------------------------------------------------------------------------- */

static void set_number(const struct fc_field *f, void *conf, uint64_t v)
{
	uint32_t v32 = (uint32_t)v;

	if (fci_field_wide(f->type))
		memcpy((char *)conf + f->offset, &v, sizeof(v));
	else
		memcpy((char *)conf + f->offset, &v32, sizeof(v32));
}

static int bad(struct fci_parse *p, const struct fci_node *n, const struct fc_field *f, const struct fci_word *words,
               const char *problem)
{
	char allowed[FCI_ALLOWED_BYTES], found[80];

	fci_value_allowed(allowed, sizeof(allowed), f, words);
	fci_rules_bad(p, -EINVAL, n->at, "found %s%s%s%s; allowed: %s", fci_node_show(n, found, sizeof(found)), problem ? " (" : "",
	              problem ? problem : "", problem ? ")" : "", allowed);
	return -1;
}

static const char *bounded(const struct fc_field *f, uint64_t v)
{
	if (v < f->min)
		return "too small";
	return (f->max && v > f->max) || (!fci_field_wide(f->type) && f->type != FC_FIELD_RATE && v > UINT32_MAX) ? "too large" : NULL;
}

static int read_word(const char *text, const struct fc_field *f, const struct fci_word *words, uint64_t *ret)
{
	for (; words && words->text; words++)
		if (!strcmp(words->text, text)) {
			*ret = words->value;
			return 1;
		}
	if ((f->type == FC_FIELD_COUNT32 || f->type == FC_FIELD_COUNT64) && f->max == fci_field_unlimited(f) && !strcmp(text, "unlimited")) {
		*ret = f->max;
		return 1;
	}
	return 0;
}

static const char *read_scalar(const char *text, const struct fc_field *f, void *conf)
{
	struct fci_units us = fci_units_of(f->type);
	struct fc_rate r;
	const char *problem;
	uint64_t v = 0;

	switch (f->type) {
	case FC_FIELD_RATE:
		problem = rate_of(text, &r);
		problem = problem ? problem : bounded(f, r.n);
		if (!problem)
			memcpy((char *)conf + f->offset, &r, sizeof(r));
		return problem;
	case FC_FIELD_CHOICE:
		while (v < f->n_choices && strcmp(f->choices[v], text) != 0)
			v++;
		problem = v == f->n_choices ? "not one of them" : NULL;
		break;
	case FC_FIELD_BOOL:
		v = !strcmp(text, "true");
		problem = v || !strcmp(text, "false") ? NULL : "not one of them";
		break;
	default:
		problem = with_unit(text, &us, &v);
		problem = problem ? problem : bounded(f, v);
	}
	if (!problem)
		set_number(f, conf, v);
	return problem;
}

static int no_memory(struct fci_parse *p)
{
	fci_rules_bad(p, -ENOMEM, (struct fci_mark){ 0 }, "no memory");
	return -1;
}

static int read_text(struct fci_parse *p, const struct fci_node *n, const struct fc_field *f, void *conf)
{
	size_t len = strlen(n->text);

	if (len < f->min || (f->max && len > f->max))
		return bad(p, n, f, NULL, len < f->min ? "too short" : "too long");
	memcpy((char *)conf + f->offset, &n->text, sizeof(n->text));
	return 0;
}

static int read_texts(struct fci_parse *p, const struct fci_node *n, const struct fc_field *f, void *conf)
{
	const char **text = fci_pool_take(p->pool, (n->n + 1) * sizeof(*text));
	struct fc_texts r = { text, 0 };

	if (!text)
		return no_memory(p);
	for (const struct fci_node *c = n->first; c; c = c->next) {
		if (c->kind != FCI_SCALAR)
			return bad(p, c, f, NULL, NULL);
		text[r.n++] = c->text;
	}
	memcpy((char *)conf + f->offset, &r, sizeof(r));
	return 0;
}

static int read_reasons(struct fci_parse *p, const struct fci_node *n, const struct fc_field *f, void *conf)
{
	uint64_t bits = 0;
	char name[32];

	for (const struct fci_node *c = n->first; c; c = c->next) {
		uint32_t i = 1;

		while (i < 64 && (c->kind != FCI_SCALAR || !fci_reason_name(i, name, sizeof(name)) || strcmp(name, c->text) != 0))
			i++;
		if (i == 64)
			return bad(p, c, f, NULL, "not one of them");
		bits |= 1ull << i;
	}
	memcpy((char *)conf + f->offset, &bits, sizeof(bits));
	return 0;
}

static int read_list(struct fci_parse *p, const struct fci_node *n, const struct fc_field *f, void *conf)
{
	struct fc_list r = { NULL, n->n };
	char *items, number[32];
	uint32_t i = 0;

	if (f->item_bytes && n->n > (256u << 20) / f->item_bytes)
		return bad(p, n, f, NULL, "too long");
	items = fci_pool_take(p->pool, ((size_t)n->n + 1) * f->item_bytes);
	if (!items)
		return no_memory(p);
	for (const struct fci_node *c = n->first; c && !fci_rules_full(p); c = c->next, i++) {
		size_t was;

		snprintf(number, sizeof(number), "%u", i + 1);
		was = fci_path_in(p, number);
		fci_conf_read(p, c, f->sub, f->n_sub, NULL, items + (size_t)i * f->item_bytes);
		fci_path_out(p, was);
	}
	r.items = items;
	memcpy((char *)conf + f->offset, &r, sizeof(r));
	return 0;
}

int fci_value_read(struct fci_parse *p, const struct fci_node *n, const struct fc_field *f, const struct fci_word *words,
                   void *conf)
{
	int list = f->type == FC_FIELD_TEXTS || f->type == FC_FIELD_LIST || f->type == FC_FIELD_REASONS;
	const char *problem;
	uint64_t v;

	if (n->kind != (list ? FCI_LIST : FCI_SCALAR))
		return bad(p, n, f, words, NULL);
	if (list && f->type != FC_FIELD_REASONS && (n->n < f->min || (f->max && n->n > f->max)))
		return bad(p, n, f, words, n->n < f->min ? "too short" : "too long");
	switch (f->type) {
	case FC_FIELD_TEXT:
		return read_text(p, n, f, conf);
	case FC_FIELD_TEXTS:
		return read_texts(p, n, f, conf);
	case FC_FIELD_LIST:
		return read_list(p, n, f, conf);
	case FC_FIELD_REASONS:
		return read_reasons(p, n, f, conf);
	default:
		if (read_word(n->text, f, words, &v)) {
			set_number(f, conf, v);
			return 0;
		}
		problem = read_scalar(n->text, f, conf);
		return problem ? bad(p, n, f, words, *n->text ? problem : NULL) : 0;
	}
}

void fci_value_default(const struct fc_field *f, void *conf)
{
	struct fc_rate r = { f->def, FC_S(1) };

	if (f->type == FC_FIELD_RATE && f->def)
		memcpy((char *)conf + f->offset, &r, sizeof(r));
	else if (f->type == FC_FIELD_REASONS)
		memcpy((char *)conf + f->offset, &f->def, sizeof(f->def));
	else if (f->type < FC_FIELD_TEXT && f->type != FC_FIELD_RATE)
		set_number(f, conf, f->def);
}
