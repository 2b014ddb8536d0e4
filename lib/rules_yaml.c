/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rules_yaml.c - the text of a rules file to a tree, by libyaml's events. See rules.h.
 *
 * Nothing is trusted: depth and number of nodes are bounded while events come, so that deep nesting ends the
 * parsing early; what could make a small text large or ambiguous (anchors, aliases, tags, merge keys, more
 * documents, keys twice) is refused.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "rules.h"

#define BLOCK_BYTES 16384u

/* ---- memory ------------------------------------------------------------------------------------ */

struct fci_pool_block {
	struct fci_pool_block *next;
	max_align_t memory[];
};

void *fci_pool_take(struct fci_pool *p, size_t bytes)
{
	size_t want = (bytes + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1), block = want > BLOCK_BYTES / 4 ? want : BLOCK_BYTES;
	struct fci_pool_block *b;
	char *r;

	if (want < bytes)
		return NULL;
	if (want <= p->left) {
		r = p->next;
		p->next += want;
		p->left -= want;
		return r;
	}
	b = calloc(1, sizeof(*b) + block);
	if (!b)
		return NULL;
	b->next = p->blocks;
	p->blocks = b;
	if (block == want) /* its own; the one begun goes on */
		return b->memory;
	p->next = (char *)b->memory + want;
	p->left = block - want;
	return b->memory;
}

char *fci_pool_text(struct fci_pool *p, const char *text, size_t len)
{
	char *r = fci_pool_take(p, len + 1);

	return r ? memcpy(r, text, len) : NULL;
}

void fci_pool_free(struct fci_pool *p)
{
	struct fci_pool_block *b, *next;

	for (b = p->blocks; b; b = next) {
		next = b->next;
		free(b);
	}
	*p = (struct fci_pool){ 0 };
}

/* ---- messages ---------------------------------------------------------------------------------- */

int fci_rules_full(const struct fci_parse *p)
{
	return p->err->n >= FC_RULES_ERRORS_MAX;
}

void fci_rules_bad(struct fci_parse *p, int error, struct fci_mark at, const char *format, ...)
{
	struct fc_rules_error *e = p->err;
	size_t room = sizeof(e->text) / FC_RULES_ERRORS_MAX, used = strlen(e->text), n;
	char line[sizeof(e->text) / FC_RULES_ERRORS_MAX - 2];
	va_list ap;

	if (fci_rules_full(p) || sizeof(e->text) - used <= room)
		return;
	n = (size_t)snprintf(line, sizeof(line), "%.100s:", p->file);
	if (at.line)
		n += (size_t)snprintf(line + n, sizeof(line) - n, "%u:%u:", at.line, at.column);
	n += (size_t)snprintf(line + n, sizeof(line) - n, at.line && p->path_len ? " key `%.160s`: " : " ", p->path);
	va_start(ap, format);
	vsnprintf(line + n, sizeof(line) - n, format, ap);
	va_end(ap);
	for (char *c = line; *c; c++)
		if ((unsigned char)*c < 32 || *c == 127) /* of a name: one message is one line */
			*c = '?';
	snprintf(e->text + used, sizeof(e->text) - used, "%s\n", line);
	if (e->n++ == 0) {
		e->error = error;
		e->line = at.line;
		e->column = at.column;
	}
}

size_t fci_path_in(struct fci_parse *p, const char *key)
{
	size_t was = p->path_len;
	int n = snprintf(p->path + was, sizeof(p->path) - was, "%s%.64s", was ? "/" : "", key);

	p->path_len = n < 0 || was + (size_t)n >= sizeof(p->path) ? sizeof(p->path) - 1 : was + (size_t)n;
	return was;
}

void fci_path_out(struct fci_parse *p, size_t was)
{
	p->path_len = was;
	p->path[was] = '\0';
}

/* ---- the tree ---------------------------------------------------------------------------------- */

struct reader {
	struct fci_parse *p;
	yaml_parser_t yaml;
	const char *text;
	size_t len;
};

static struct fci_mark mark_of(yaml_mark_t m)
{
	return (struct fci_mark){ (uint32_t)m.line + 1, (uint32_t)m.column + 1 };
}

/* What libyaml does not like. Its reader (bytes that are no UTF-8) knows only the place in bytes. */
static void bad_yaml(struct reader *r)
{
	const yaml_parser_t *y = &r->yaml;
	struct fci_mark at = mark_of(y->problem_mark);

	if (y->error == YAML_MEMORY_ERROR) {
		fci_rules_bad(r->p, -ENOMEM, (struct fci_mark){ 0 }, "no memory");
		return;
	}
	if (y->error == YAML_READER_ERROR) {
		at = (struct fci_mark){ 1, 1 };
		for (size_t i = 0; i < y->problem_offset && i < r->len; i++) {
			at.line += r->text[i] == '\n';
			at.column = r->text[i] == '\n' ? 1 : at.column + 1;
		}
	}
	fci_rules_bad(r->p, -EINVAL, at, "found what is no YAML: %s%s%s; allowed: YAML in UTF-8%s", y->problem ? y->problem : "?",
	              y->context ? ", " : "", y->context ? y->context : "",
	              y->context && strstr(y->context, "alias") ? ", names that begin with a * in quotes" : "");
}

static int next_event(struct reader *r, yaml_event_t *e)
{
	if (yaml_parser_parse(&r->yaml, e))
		return 0;
	bad_yaml(r);
	return -1;
}

static int refuse(struct reader *r, yaml_event_t *e, int error, const char *found)
{
	fci_rules_bad(r->p, error, mark_of(e->start_mark), "found %s", found);
	yaml_event_delete(e);
	return -1;
}

static int plain_map_or_list(struct reader *r, yaml_event_t *e, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	if (anchor)
		return refuse(r, e, -EINVAL, "an anchor (&); allowed: each value written out");
	if (tag)
		return refuse(r, e, -EINVAL, "a tag (!); allowed: values without tags");
	return 0;
}

/* Is this event one that a value may begin with? */
static int acceptable(struct reader *r, yaml_event_t *e)
{
	switch (e->type) {
	case YAML_SCALAR_EVENT:
		return plain_map_or_list(r, e, e->data.scalar.anchor, e->data.scalar.tag);
	case YAML_MAPPING_START_EVENT:
		return plain_map_or_list(r, e, e->data.mapping_start.anchor, e->data.mapping_start.tag);
	case YAML_SEQUENCE_START_EVENT:
		return plain_map_or_list(r, e, e->data.sequence_start.anchor, e->data.sequence_start.tag);
	case YAML_ALIAS_EVENT:
		return refuse(r, e, -EINVAL, "an alias (*); allowed: each value written out, and names with a * in quotes");
	default:
		return refuse(r, e, -EINVAL, "no value");
	}
}

static struct fci_node *no_memory(struct reader *r)
{
	fci_rules_bad(r->p, -ENOMEM, (struct fci_mark){ 0 }, "no memory");
	return NULL;
}

static struct fci_node *make_node(struct reader *r, const yaml_event_t *e)
{
	struct fci_node *n;

	if (++r->p->nodes > FC_RULES_NODES_MAX) {
		fci_rules_bad(r->p, -E2BIG, mark_of(e->start_mark), "found more than %u values; allowed: up to that many", FC_RULES_NODES_MAX);
		return NULL;
	}
	n = fci_pool_take(r->p->pool, sizeof(*n));
	if (!n)
		return no_memory(r);
	n->at = n->key_at = mark_of(e->start_mark);
	n->kind = e->type == YAML_SCALAR_EVENT ? FCI_SCALAR : e->type == YAML_MAPPING_START_EVENT ? FCI_MAP : FCI_LIST;
	return n;
}

static int by_key(const void *a, const void *b)
{
	const struct fci_node *const *x = a, *const *y = b;
	int r = strcmp((*x)->key, (*y)->key);

	return r ? r : (*x)->key_at.line < (*y)->key_at.line ? -1 : (*x)->key_at.line > (*y)->key_at.line;
}

/* Sorted, so that many keys take no long time. */
static int no_key_twice(struct reader *r, const struct fci_node *map)
{
	const struct fci_node **all;
	uint32_t i = 0, bad = 0;

	if (map->n < 2)
		return 0;
	all = malloc(map->n * sizeof(*all));
	if (!all) {
		no_memory(r);
		return -1;
	}
	for (const struct fci_node *c = map->first; c; c = c->next)
		all[i++] = c;
	qsort(all, i, sizeof(*all), by_key);
	for (i = 1; i < map->n; i++)
		if (!strcmp(all[i - 1]->key, all[i]->key)) {
			fci_rules_bad(r->p, -EINVAL, all[i]->key_at, "found the key \"%.64s\" twice, first in line %u; allowed: once", all[i]->key,
			              all[i - 1]->key_at.line);
			bad = 1;
		}
	free(all);
	return bad ? -1 : 0;
}

static struct fci_node *read_value(struct reader *r, yaml_event_t *e, unsigned depth);

/* The next key of a map into *ret; NULL at its end. */
static int read_key(struct reader *r, char **ret, struct fci_mark *at)
{
	yaml_event_t e;

	*ret = NULL;
	if (next_event(r, &e) < 0)
		return -1;
	if (e.type == YAML_MAPPING_END_EVENT) {
		yaml_event_delete(&e);
		return 0;
	}
	if (acceptable(r, &e) < 0)
		return -1;
	if (e.type != YAML_SCALAR_EVENT)
		return refuse(r, &e, -EINVAL, "a map or list as a key; allowed: a name");
	if (strlen((const char *)e.data.scalar.value) != e.data.scalar.length || e.data.scalar.length == 0)
		return refuse(r, &e, -EINVAL, "an empty key, or one with a zero byte; allowed: a name");
	if (!strcmp((const char *)e.data.scalar.value, "<<"))
		return refuse(r, &e, -EINVAL, "a merge key (<<); allowed: each value written out, and defaults:");
	*at = mark_of(e.start_mark);
	*ret = fci_pool_text(r->p->pool, (const char *)e.data.scalar.value, e.data.scalar.length);
	yaml_event_delete(&e);
	if (*ret)
		return 0;
	no_memory(r);
	return -1;
}

/* Children of a map or list, up to its end. */
static int read_children(struct reader *r, struct fci_node *n, unsigned depth)
{
	struct fci_node **tail = &n->first, *c;
	char *key = NULL;
	struct fci_mark at = { 0 };
	yaml_event_t e;

	for (;;) {
		if (n->kind == FCI_MAP && (read_key(r, &key, &at) < 0 || !key))
			return key || r->p->err->n ? -1 : no_key_twice(r, n);
		if (next_event(r, &e) < 0)
			return -1;
		if (e.type == YAML_SEQUENCE_END_EVENT) {
			yaml_event_delete(&e);
			return 0;
		}
		c = read_value(r, &e, depth + 1);
		if (!c)
			return -1;
		if (key) {
			c->key = key;
			c->key_at = at;
		}
		*tail = c;
		tail = &c->next;
		n->n++;
	}
}

static int read_text(struct reader *r, struct fci_node *n, const yaml_event_t *e)
{
	const char *text = (const char *)e->data.scalar.value;

	if (strlen(text) != e->data.scalar.length) {
		fci_rules_bad(r->p, -EINVAL, n->at, "found a zero byte; allowed: text");
		return -1;
	}
	n->text = fci_pool_text(r->p->pool, text, e->data.scalar.length);
	if (!n->text)
		no_memory(r);
	return n->text ? 0 : -1;
}

/* The value that begins with this event, which it takes over. */
static struct fci_node *read_value(struct reader *r, yaml_event_t *e, unsigned depth)
{
	struct fci_node *n;
	int rc;

	if (acceptable(r, e) < 0)
		return NULL;
	if (depth > FC_RULES_DEPTH_MAX) {
		refuse(r, e, -E2BIG, "maps or lists more than 16 deep; allowed: up to 16");
		return NULL;
	}
	n = make_node(r, e);
	rc = !n ? -1 : n->kind == FCI_SCALAR ? read_text(r, n, e) : 0;
	yaml_event_delete(e);
	if (rc == 0 && n->kind != FCI_SCALAR)
		rc = read_children(r, n, depth);
	return rc == 0 ? n : NULL;
}

/* One event of a type that the stream must have here. */
static int expect(struct reader *r, yaml_event_type_t type, const char *found)
{
	yaml_event_t e;

	if (next_event(r, &e) < 0)
		return -1;
	if (e.type != type)
		return refuse(r, &e, -EINVAL, found);
	yaml_event_delete(&e);
	return 0;
}

static struct fci_node *read_stream(struct reader *r)
{
	struct fci_node *root;
	yaml_event_t e;

	if (expect(r, YAML_STREAM_START_EVENT, "no YAML") < 0 ||
	    expect(r, YAML_DOCUMENT_START_EVENT, "nothing; allowed: a map that begins with version: 1") < 0 || next_event(r, &e) < 0)
		return NULL;
	root = read_value(r, &e, 1);
	if (!root || expect(r, YAML_DOCUMENT_END_EVENT, "more than one value") < 0 ||
	    expect(r, YAML_STREAM_END_EVENT, "another document; allowed: one") < 0)
		return NULL;
	return root;
}

struct fci_node *fci_yaml_read(struct fci_parse *p, const char *text, size_t len)
{
	size_t mark = len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0; /* a byte order mark */
	struct reader r = { .p = p, .text = text + mark, .len = len - mark };
	struct fci_node *root;

	if (len > FC_RULES_BYTES_MAX) {
		fci_rules_bad(p, -E2BIG, (struct fci_mark){ 0 }, "found %zu bytes; allowed: up to %u", len, FC_RULES_BYTES_MAX);
		return NULL;
	}
	if (!yaml_parser_initialize(&r.yaml))
		return no_memory(&r);
	yaml_parser_set_encoding(&r.yaml, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.yaml, (const unsigned char *)r.text, r.len);
	root = read_stream(&r);
	yaml_parser_delete(&r.yaml);
	return root;
}

struct fci_node *fci_node_get(const struct fci_node *map, const char *key)
{
	if (!map || map->kind != FCI_MAP)
		return NULL;
	for (struct fci_node *c = map->first; c; c = c->next)
		if (!strcmp(c->key, key))
			return c;
	return NULL;
}

/* The same content: then a rule need not be touched. */
int fci_node_equal(const struct fci_node *a, const struct fci_node *b)
{
	const struct fci_node *x, *y;

	if (!a || !b)
		return a == b;
	if (a->kind != b->kind || a->n != b->n || (a->kind == FCI_SCALAR && strcmp(a->text, b->text) != 0))
		return 0;
	for (x = a->first, y = b->first; x && y; x = x->next, y = y->next)
		if ((a->kind == FCI_MAP && strcmp(x->key, y->key) != 0) || !fci_node_equal(x, y))
			return 0;
	return !x && !y;
}
