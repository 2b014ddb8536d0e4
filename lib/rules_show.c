/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_show.c - what a rules file may say, what it said, and values as it would write them. See rules.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rules_unit.h"

/* The largest first, for writing. */
static const struct fci_unit times[] = {
	{ "d", FC_S(86400) }, { "h", FC_S(3600) }, { "min", FC_S(60) }, { "s", FC_S(1) },
	{ "ms", FC_MS(1) }, { "us", FC_US(1) }, { "ns", 1 },
};
static const struct fci_unit sizes[] = {
	{ "TiB", 1ull << 40 }, { "GiB", 1ull << 30 }, { "MiB", 1ull << 20 }, { "KiB", 1ull << 10 }, { "B", 1 },
};
static const struct fci_unit shares[] = { { "%", 10 } };
static const struct fci_unit factors[] = { { "x", 1000 } };

struct fci_units fci_units_of(uint32_t type)
{
	switch (type) {
	case FC_FIELD_DURATION:
		return (struct fci_units){ times, sizeof(times) / sizeof(times[0]), "a time", "5s, 250ms, 10us, 2min, 1h, 1d" };
	case FC_FIELD_BYTES:
		return (struct fci_units){ sizes, sizeof(sizes) / sizeof(sizes[0]), "a size", "64MiB, 512KiB, 1GiB, 100B" };
	case FC_FIELD_PERMILLE:
		return (struct fci_units){ shares, 1, "a share", "50%, 0.1%" };
	case FC_FIELD_FACTOR:
		return (struct fci_units){ factors, 1, "a factor", "3x, 1.5x" };
	default:
		return (struct fci_units){ NULL, 0, "a number", "100" };
	}
}

/* ---- writing ----------------------------------------------------------------------------------- */

static void write_number(char *buf, size_t len, uint32_t type, uint64_t v)
{
	struct fci_units us = fci_units_of(type);
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

static uint64_t get_number(const struct fc_field *f, const void *conf)
{
	uint64_t v = 0;
	uint32_t v32;

	if (fci_field_wide(f->type)) {
		memcpy(&v, (const char *)conf + f->offset, sizeof(v));
		return v;
	}
	memcpy(&v32, (const char *)conf + f->offset, sizeof(v32));
	return v32;
}

static void append(char *buf, size_t len, const char *text)
{
	size_t used = strlen(buf);

	snprintf(buf + used, len - used, "%s", text);
}

const char *fci_reason_name(uint32_t number, char *buf, size_t len)
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

static uint64_t conf_u64(const struct fc_field *f, const void *conf)
{
	uint64_t v;

	memcpy(&v, (const char *)conf + f->offset, sizeof(v));
	return v;
}

static void write_reasons(char *buf, size_t len, uint64_t bits)
{
	char name[32];

	snprintf(buf, len, "[");
	for (uint32_t i = 1; i < 64; i++)
		if ((bits >> i & 1) && fci_reason_name(i, name, sizeof(name))) {
			append(buf, len, buf[1] ? ", " : "");
			append(buf, len, name);
		}
	append(buf, len, "]");
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
	case FC_FIELD_REASONS:
		write_reasons(buf, len, conf_u64(f, conf));
		return;
	case FC_FIELD_CHOICE:
		v = get_number(f, conf);
		snprintf(buf, len, "%s", v < f->n_choices ? f->choices[v] : "?");
		return;
	case FC_FIELD_BOOL:
		snprintf(buf, len, "%s", get_number(f, conf) ? "true" : "false");
		return;
	default:
		v = get_number(f, conf);
		if ((f->type == FC_FIELD_COUNT32 || f->type == FC_FIELD_COUNT64) && v == fci_field_unlimited(f))
			snprintf(buf, len, "unlimited");
		else
			write_number(buf, len, f->type, v);
	}
}

/* ---- what is allowed, what was found ----------------------------------------------------------- */

static void allowed_number(char *buf, size_t len, const struct fc_field *f)
{
	struct fci_units us = fci_units_of(f->type);
	char from[32], to[32];

	write_number(from, sizeof(from), f->type, f->min);
	write_number(to, sizeof(to), f->type, f->max);
	snprintf(buf, len, "%s from %s", us.kind, from);
	if (f->max && f->max != fci_field_unlimited(f)) {
		append(buf, len, " to ");
		append(buf, len, to);
	}
	if (us.n) {
		append(buf, len, ", as ");
		append(buf, len, us.example);
	} else if (f->max == fci_field_unlimited(f)) {
		append(buf, len, ", unlimited");
	}
}

static void allowed_reasons(char *buf, size_t len)
{
	char name[32];

	snprintf(buf, len, "a list of");
	for (uint32_t i = 1; i < 64; i++)
		if (fci_reason_name(i, name, sizeof(name))) {
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
		append(buf, len, buf[0] ? ", " : "");
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
