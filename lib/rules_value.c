/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_value.c - numbers with units, words and lists of a rules file, to members of a conf and back. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "rules.h"

struct unit {
	const char *name;
	uint64_t value;
};

/* The largest first, for writing. */
static const struct unit times[] = {
	{ "d", FC_S(86400) }, { "h", FC_S(3600) }, { "min", FC_S(60) }, { "s", FC_S(1) },
	{ "ms", FC_MS(1) }, { "us", FC_US(1) }, { "ns", 1 },
};
static const struct unit sizes[] = {
	{ "TiB", 1ull << 40 }, { "GiB", 1ull << 30 }, { "MiB", 1ull << 20 }, { "KiB", 1ull << 10 }, { "B", 1 },
};
static const struct unit shares[] = { { "%", 10 } };
static const struct unit factors[] = { { "x", 1000 } };

struct units {
	const struct unit *u;
	size_t n;
	const char *kind, *example;
};

static struct units units_of(uint32_t type)
{
	switch (type) {
	case FC_FIELD_DURATION:
		return (struct units){ times, sizeof(times) / sizeof(times[0]), "a time", "5s, 250ms, 10us, 2min, 1h, 1d" };
	case FC_FIELD_BYTES:
		return (struct units){ sizes, sizeof(sizes) / sizeof(sizes[0]), "a size", "64MiB, 512KiB, 1GiB, 100B" };
	case FC_FIELD_PERMILLE:
		return (struct units){ shares, 1, "a share", "50%, 0.1%" };
	case FC_FIELD_FACTOR:
		return (struct units){ factors, 1, "a factor", "3x, 1.5x" };
	default:
		return (struct units){ NULL, 0, "a number", "100" };
	}
}

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

static const char *with_unit(const char *text, const struct units *us, uint64_t *ret)
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
	struct units us = units_of(FC_FIELD_DURATION);
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
	struct units none = units_of(FC_FIELD_COUNT64);

	return with_unit(text, &none, ret) ? -1 : 0;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static void write_number(char *buf, size_t len, uint32_t type, uint64_t v)
{
	struct units us = units_of(type);
	size_t i = 0;

	if (type == FC_FIELD_PERMILLE || type == FC_FIELD_FACTOR) {
		uint64_t unit = us.u[0].value, rest = v % unit;
		int width = type == FC_FIELD_PERMILLE ? 1 : 3;

		for (; rest && rest % 10 == 0; width--)
			rest /= 10;
		if (rest)
			snprintf(buf, len, "%" PRIu64 ".%0*" PRIu64 "%s", v / unit, width, rest, us.u[0].name);
		else
			snprintf(buf, len, "%" PRIu64 "%s", v / unit, us.u[0].name);
		return;
	}
	if (!us.n) {
		snprintf(buf, len, "%" PRIu64, v);
		return;
	}
	while (i + 1 < us.n && (v == 0 ? us.u[i].value != FC_S(1) : v % us.u[i].value != 0))
		i++;
	snprintf(buf, len, "%" PRIu64 "%s", v / us.u[i].value, us.u[i].name);
}

static int wide(uint32_t type)
{
	return type == FC_FIELD_COUNT64 || type == FC_FIELD_DURATION || type == FC_FIELD_BYTES;
}

static uint64_t get_number(const struct fc_field *f, const void *conf)
{
	uint64_t v = 0;
	uint32_t v32;

	if (wide(f->type)) {
		memcpy(&v, (const char *)conf + f->offset, sizeof(v));
		return v;
	}
	memcpy(&v32, (const char *)conf + f->offset, sizeof(v32));
	return v32;
}

static void set_number(const struct fc_field *f, void *conf, uint64_t v)
{
	uint32_t v32 = (uint32_t)v;

	if (wide(f->type))
		memcpy((char *)conf + f->offset, &v, sizeof(v));
	else
		memcpy((char *)conf + f->offset, &v32, sizeof(v32));
}

static uint64_t unlimited(const struct fc_field *f)
{
	return f->type == FC_FIELD_COUNT32 ? UINT32_MAX : UINT64_MAX;
}

void fci_value_write(char *buf, size_t len, const struct fc_field *f, const struct fci_word *words, const void *conf)
{
	struct fc_rate r;
	uint64_t v;
	char per[32];

	for (; words && words->text; words++)
		if (get_number(f, conf) == words->value) {
			snprintf(buf, len, "%s", words->text);
			return;
		}
	switch (f->type) {
	case FC_FIELD_RATE:
		memcpy(&r, (const char *)conf + f->offset, sizeof(r));
		write_number(per, sizeof(per), FC_FIELD_DURATION, r.per_ns);
		snprintf(buf, len, "%" PRIu64 "/%s", r.n, per + (per[0] == '1' && (per[1] < '0' || per[1] > '9')));
		return;
	case FC_FIELD_CHOICE:
		v = get_number(f, conf);
		snprintf(buf, len, "%s", v < f->n_choices ? f->choices[v] : "?");
		return;
	case FC_FIELD_BOOL:
		snprintf(buf, len, "%s", get_number(f, conf) ? "true" : "false");
		return;
	case FC_FIELD_COUNT32:
	case FC_FIELD_COUNT64:
		if (get_number(f, conf) == unlimited(f)) {
			snprintf(buf, len, "unlimited");
			return;
		}
		/* fall through */
	default:
		write_number(buf, len, f->type, get_number(f, conf));
	}
}

/* ---- what is allowed, what was found ----------------------------------------------------------- */

static void append(char *buf, size_t len, const char *text)
{
	size_t used = strlen(buf);

	snprintf(buf + used, len - used, "%s", text);
}

static void allowed_number(char *buf, size_t len, const struct fc_field *f)
{
	struct units us = units_of(f->type);
	char from[32], to[32];

	write_number(from, sizeof(from), f->type, f->min);
	write_number(to, sizeof(to), f->type, f->max);
	snprintf(buf, len, "%s from %s", us.kind, from);
	if (f->max && f->max != unlimited(f)) {
		append(buf, len, " to ");
		append(buf, len, to);
	}
	if (us.n) {
		append(buf, len, ", as ");
		append(buf, len, us.example);
	} else if (f->max == unlimited(f)) {
		append(buf, len, ", unlimited");
	}
}

/* Names of reasons, as a file writes them: "cap" of FC_REFUSED_CAP. */
static const char *reason_name(uint32_t number, char *buf, size_t len)
{
	const char *name = fc_status_name((int)number);
	size_t i = 0;

	if (strncmp(name, "FC_REFUSED_", 11) != 0 || !strcmp(name, "FC_REFUSED_USER"))
		return NULL;
	for (name += 11; name[i] && i + 1 < len; i++)
		buf[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + 'a' - 'A') : name[i];
	buf[i] = '\0';
	return buf;
}

static void allowed_reasons(char *buf, size_t len)
{
	char name[32];

	snprintf(buf, len, "a list of");
	for (uint32_t i = 1; i < 64; i++)
		if (reason_name(i, name, sizeof(name))) {
			append(buf, len, i == 1 ? " " : ", ");
			append(buf, len, name);
		}
}

void fci_value_allowed(char *buf, size_t len, const struct fc_field *f, const struct fci_word *words)
{
	char number[32];

	buf[0] = '\0';
	switch (f->type) {
	case FC_FIELD_RATE:
		snprintf(buf, len, "a rate as 500/s, 10/min, 3/h, 1/d, 20/100ms");
		if (f->max && f->max != UINT64_MAX) {
			snprintf(number, sizeof(number), " of %" PRIu64 " to %" PRIu64, f->min, f->max);
			append(buf, len, number);
		}
		break;
	case FC_FIELD_CHOICE:
		for (uint32_t i = 0; i < f->n_choices; i++) {
			append(buf, len, i ? ", " : "");
			append(buf, len, f->choices[i]);
		}
		break;
	case FC_FIELD_BOOL:
		snprintf(buf, len, "true, false");
		break;
	case FC_FIELD_TEXT:
		snprintf(buf, len, "a text of %" PRIu64 " to %" PRIu64 " bytes", f->min, f->max ? f->max : (uint64_t)FC_RULES_BYTES_MAX);
		break;
	case FC_FIELD_TEXTS:
	case FC_FIELD_LIST:
		snprintf(buf, len, "a list of %" PRIu64 " to %" PRIu64 " %s", f->min, f->max ? f->max : (uint64_t)FC_RULES_NODES_MAX,
		         f->type == FC_FIELD_LIST ? "maps" : "texts");
		break;
	case FC_FIELD_REASONS:
		allowed_reasons(buf, len);
		break;
	default:
		allowed_number(buf, len, f);
	}
	for (; words && words->text; words++) {
		append(buf, len, ", ");
		append(buf, len, words->text);
	}
}

const char *fci_node_show(const struct fci_node *n, char *buf, size_t len)
{
	size_t i = 0;

	if (n->kind != FCI_SCALAR)
		return n->kind == FCI_MAP ? "a map" : "a list";
	if (!*n->text)
		return "nothing";
	buf[i++] = '"';
	for (const char *s = n->text; *s && i + 5 < len && i < 64; s++)
		buf[i++] = (unsigned char)*s < 32 || *s == 127 ? '?' : *s;
	snprintf(buf + i, len - i, i >= 64 ? "...\"" : "\"");
	return buf;
}

/* ---- reading ----------------------------------------------------------------------------------- */

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
	return (f->max && v > f->max) || (!wide(f->type) && f->type != FC_FIELD_RATE && v > UINT32_MAX) ? "too large" : NULL;
}

static int read_word(const char *text, const struct fc_field *f, const struct fci_word *words, uint64_t *ret)
{
	for (; words && words->text; words++)
		if (!strcmp(words->text, text)) {
			*ret = words->value;
			return 1;
		}
	if ((f->type == FC_FIELD_COUNT32 || f->type == FC_FIELD_COUNT64) && f->max == unlimited(f) && !strcmp(text, "unlimited")) {
		*ret = f->max;
		return 1;
	}
	return 0;
}

static const char *read_scalar(const char *text, const struct fc_field *f, void *conf)
{
	struct units us = units_of(f->type);
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

		while (i < 64 && (c->kind != FCI_SCALAR || !reason_name(i, name, sizeof(name)) || strcmp(name, c->text) != 0))
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
