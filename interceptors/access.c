/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * access.c - allow and deny lists. See access.h for what entries mean.
 *
 * setup() builds an index that never changes and hangs it on the conf's copy; drop() frees it.
 *
 *   values      open addressing, at most half full, by the label's hash; the text is compared where the
 *               label has one
 *   beginnings  the same, by a hash that goes on from byte to byte, looked up at those lengths only that
 *               there are; values whose first two bytes begin no entry are not looked at further
 *   networks    flattened into neighbouring ranges, each with the verdict of the smallest network around
 *               it, sorted; 65536 steps over them tell where to begin. IPv4 and IPv6 each for itself
 *
 * Bounds.  The time of a look does not depend on how many values there are; of networks it is one step and
 *          a binary search in it: of ranges that are spread one or two, 18 of 100000 in one /16.
 * Cost.    A value: a cache line. An address: three.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <fcguard/access.h>

#define PREFIX_MAX 255u
#define STEPS      65536u
#define NO_VERDICT 2u

__extension__ typedef unsigned __int128 wide;

/* ---- the index --------------------------------------------------------------------------------- */

struct slot {
	uint64_t hash;
	uint32_t at;   /* text in `texts`; 0: the slot is empty */
	uint32_t what; /* length << 1 | verdict */
};

struct table {
	struct slot *slot;
	uint64_t mask, bytes;
};

/* Ranges, from each start to the next. The first starts at 0. */
struct ranges {
	uint64_t *hi, *lo; /* lo NULL: IPv4, in the upper half of hi */
	uint8_t *verdict;
	uint32_t *step;    /* first range that starts in this step or later */
	uint64_t min;
	uint32_t n, shift;
	uint64_t room;     /* of the arrays */
};

struct index {
	char *texts;
	uint64_t texts_bytes, texts_used;
	struct table values, prefixes;
	struct ranges v4, v6;
	uint32_t n_lengths;
	uint8_t length[PREFIX_MAX + 1]; /* of beginnings, ascending */
	uint8_t has_length[PREFIX_MAX + 1];
	uint8_t starts[256][32];        /* a bit each two bytes that begin a beginning */
	uint32_t any_start;             /* there are beginnings of less than 2 bytes */
};

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

static uint32_t find_value(const struct index *x, const struct fc_label *l)
{
	const struct slot *s;

	if (!x->values.slot || !x->values.slot[slot_of(l->value) & x->values.mask].at)
		return NO_VERDICT;
	s = table_find(x, &x->values, l->value, l->text, l->text ? (uint32_t)strlen(l->text) : 0);
	return s ? s->what & 1 : NO_VERDICT;
}

/* The longest beginning. */
static uint32_t find_prefix(const struct index *x, const char *text)
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

static uint32_t find_range(const struct ranges *r, uint64_t hi, uint64_t lo)
{
	uint64_t step;
	uint32_t left, right;

	if (r->n == 0 || hi < r->min)
		return r->n ? r->verdict[0] : NO_VERDICT;
	step = (hi - r->min) >> r->shift;
	step = step < STEPS ? step : STEPS - 1;
	left = r->step[step] - 1;
	right = step < STEPS - 1 ? r->step[step + 1] : r->n;
	while (right - left > 1) {
		uint32_t m = left + (right - left) / 2;

		if (r->hi[m] < hi || (r->hi[m] == hi && (!r->lo || r->lo[m] <= lo)))
			left = m;
		else
			right = m;
	}
	return r->verdict[left];
}

static int is_mapped(uint64_t hi, uint64_t lo)
{
	return hi == 0 && lo >> 32 == 0xffff;
}

static uint32_t find_address(const struct index *x, const uint64_t *ip)
{
	return is_mapped(ip[0], ip[1]) ? find_range(&x->v4, ip[1] << 32, 0) : find_range(&x->v6, ip[0], ip[1]);
}

static uint32_t look(const struct index *x, const struct fc_label *l)
{
	uint32_t text = find_value(x, l), address = NO_VERDICT;

	if (text == NO_VERDICT && x->n_lengths && l->text)
		text = find_prefix(x, l->text);
	if (l->ip[0] | l->ip[1])
		address = find_address(x, l->ip);
	if (text == NO_VERDICT || address == NO_VERDICT)
		return text == NO_VERDICT ? address : text;
	return text | address; /* FC_ACCESS_DENY wins */
}

/* ---- reading entries --------------------------------------------------------------------------- */

struct network {
	uint64_t hi, lo;
	uint32_t length, entry; /* entry: index << 1 | verdict */
};

struct build {
	const struct fc_setup *s;
	const struct fc_access_conf *conf;
	struct index *x;
	struct network *net; /* IPv4 from the front, IPv6 from the back */
	uint64_t room, n4, n6;
};

static const char *text_of(const struct build *b, uint32_t entry)
{
	return (entry & 1 ? b->conf->deny.text : b->conf->allow.text)[entry >> 1];
}

static const char *list_of(uint32_t entry)
{
	return entry & 1 ? "deny" : "allow";
}

static int bad_entry(const struct build *b, uint32_t entry, const char *what, const char *allowed)
{
	fc_iface_log(b->s->iface, b->s->rule, "%s[%u] \"%.60s\": %s; allowed: %s", list_of(entry), entry >> 1,
	             text_of(b, entry), what, allowed);
	return -EINVAL;
}

static int twice(const struct build *b, uint32_t first, uint32_t entry)
{
	fc_iface_log(b->s->iface, b->s->rule,
	             "%s[%u] \"%.60s\": it is %s[%u] \"%.60s\" too; allowed: each once, in one list", list_of(entry),
	             entry >> 1, text_of(b, entry), list_of(first), first >> 1, text_of(b, first));
	return -EINVAL;
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

static int add_text(struct build *b, struct table *t, uint64_t hash, const char *text, uint32_t length,
                    uint32_t entry)
{
	struct index *x = b->x;
	uint64_t i = slot_of(hash) & t->mask;

	if (table_find(x, t, hash, text, length))
		return twice(b, entry_of(b, text, length, t == &x->prefixes), entry);
	while (t->slot[i].at)
		i = (i + 1) & t->mask;
	memcpy(x->texts + x->texts_used, text, length);
	t->slot[i] = (struct slot){ hash, (uint32_t)x->texts_used, length << 1 | (entry & 1) };
	x->texts_used += length + 1; /* and a NUL */
	return 0;
}

static int add_prefix(struct build *b, const char *text, uint32_t length, uint32_t entry)
{
	const unsigned char *p = (const unsigned char *)text;
	struct index *x = b->x;
	uint64_t hash = 0;

	if (length > PREFIX_MAX)
		return bad_entry(b, entry, "its beginning is longer", "255 bytes and a *");
	for (uint32_t i = 0; i < length; i++)
		hash = hash_on(hash, p[i]);
	x->has_length[length] = 1;
	if (length < 2)
		x->any_start = 1;
	else
		x->starts[p[0]][p[1] / 8] |= (uint8_t)(1u << (p[1] & 7));
	return add_text(b, &x->prefixes, hash, text, length, entry);
}

/* 32 or 128: how long addresses like this are; 0: it is none. IPv4 in the upper half of hi. */
static uint32_t read_address(const char *text, struct network *n)
{
	struct fc_label l = fc_label_ip("", text);

	if (l.value == fc_label("", text).value)
		return 0; /* a text like another */
	n->hi = strchr(text, ':') ? l.ip[0] : l.ip[1] << 32;
	n->lo = strchr(text, ':') ? l.ip[1] : 0;
	return strchr(text, ':') ? 128 : 32;
}

/* Digits alone, at most `most`. -1: it is no such number. */
static int read_length(const char *text, uint32_t most)
{
	uint32_t n = 0, i;

	for (i = 0; i < 3 && text[i] >= '0' && text[i] <= '9'; i++)
		n = n * 10 + (uint32_t)(text[i] - '0');
	return i == 0 || text[i] || n > most ? -1 : (int)n;
}

static wide bits_of(const struct network *n)
{
	return (wide)n->hi << 64 | n->lo;
}

/* All ones after the network's bits. */
static wide host_bits(uint32_t length)
{
	return length ? ((wide)1 << (128 - length)) - 1 : ~(wide)0;
}

static void add_network(struct build *b, struct network n)
{
	if (n.length >= 96 && is_mapped(n.hi, n.lo)) {
		n.hi = n.lo << 32;
		n.lo = 0;
		n.length -= 96;
		b->net[b->n4++] = n;
	} else {
		b->net[b->room - ++b->n6] = n;
	}
}

/* 1: it is a network or an address, and was added; 0: it is none. */
static int try_network(struct build *b, const char *text, const char *slash, uint32_t entry)
{
	char address[64];
	struct network n = { .entry = entry };
	size_t bytes = slash ? (size_t)(slash - text) : strlen(text);
	uint32_t most;
	int length;

	if (bytes >= sizeof(address))
		return 0;
	memcpy(address, text, bytes);
	address[bytes] = 0;
	most = read_address(address, &n);
	if (most == 0)
		return 0;
	length = slash ? read_length(slash + 1, most) : (int)most;
	if (length < 0)
		return bad_entry(b, entry, "no such network", most == 32 ? "a length of 0 to 32" : "a length of 0 to 128");
	n.length = (uint32_t)length;
	if (bits_of(&n) & host_bits(n.length) & (most == 32 ? ~(((wide)1 << 96) - 1) : ~(wide)0))
		return bad_entry(b, entry, "bits beyond its length are set", "addresses of networks end in zeros");
	if (most == 32)
		b->net[b->n4++] = n;
	else
		add_network(b, n);
	return 1;
}

static int add_entry(struct build *b, uint32_t entry)
{
	const char *text = text_of(b, entry), *star, *slash;
	size_t length;
	int rc = 0;

	if (!text || !*text)
		return bad_entry(b, entry, "empty", "a value, a beginning and *, an address, a network");
	length = strlen(text);
	if (length > 65535)
		return bad_entry(b, entry, "too long", "65535 bytes");
	star = strchr(text, '*');
	if (star && star[1])
		return bad_entry(b, entry, "* is not at the end", "a beginning and one *");
	if (star)
		return add_prefix(b, text, (uint32_t)(length - 1), entry);
	slash = strchr(text, '/');
	rc = try_network(b, text, slash, entry);
	if (rc < 0 || (rc > 0 && slash))
		return rc < 0 ? rc : 0;
	return add_text(b, &b->x->values, fc_label("", text).value, text, (uint32_t)length, entry);
}

/* ---- networks into ranges ---------------------------------------------------------------------- */

static int by_start(const void *l, const void *r)
{
	const struct network *a = l, *b = r;

	if (a->hi != b->hi)
		return a->hi < b->hi ? -1 : 1;
	if (a->lo != b->lo)
		return a->lo < b->lo ? -1 : 1;
	if (a->length != b->length)
		return a->length < b->length ? -1 : 1;
	return a->entry < b->entry ? -1 : 1; /* both are shown when they are the same */
}

static void emit(struct ranges *r, wide start, uint32_t verdict)
{
	uint32_t i = r->n;

	if (i && r->hi[i - 1] == (uint64_t)(start >> 64) && (!r->lo || r->lo[i - 1] == (uint64_t)start))
		i--; /* of no length */
	if (i && r->verdict[i - 1] == verdict) {
		r->n = i;
		return;
	}
	r->hi[i] = (uint64_t)(start >> 64);
	if (r->lo)
		r->lo[i] = (uint64_t)start;
	r->verdict[i] = (uint8_t)verdict;
	r->n = i + 1;
}

static wide end_of(const struct network *n)
{
	return bits_of(n) | host_bits(n->length);
}

/* Networks either contain one another or have nothing in common: so those around a place are a stack. */
static void flatten(struct ranges *r, const struct network *net, uint64_t n)
{
	const struct network *stack[130];
	uint32_t depth = 0;

	emit(r, 0, NO_VERDICT);
	for (uint64_t i = 0; i <= n; i++) {
		while (depth && (i == n || end_of(stack[depth - 1]) < bits_of(&net[i]))) {
			wide next = end_of(stack[--depth]) + 1;

			if (next)
				emit(r, next, depth ? stack[depth - 1]->entry & 1 : NO_VERDICT);
		}
		if (i < n) {
			emit(r, bits_of(&net[i]), net[i].entry & 1);
			stack[depth++] = &net[i];
		}
	}
}

static void make_steps(struct ranges *r)
{
	uint32_t k = 0;

	r->min = r->n > 1 ? r->hi[1] : 0;
	while (r->n > 1 && (r->hi[r->n - 1] - r->min) >> r->shift >= STEPS)
		r->shift++;
	for (uint32_t i = 1; i < r->n; i++) {
		uint64_t step = (r->hi[i] - r->min) >> r->shift;

		while (k <= step)
			r->step[k++] = i;
	}
	while (k < STEPS)
		r->step[k++] = r->n;
}

static uint64_t at_least_one(uint64_t n)
{
	return n ? n : 1;
}

static int make_ranges(struct build *b, struct ranges *r, struct network *net, uint64_t n, int wide_ones)
{
	struct fc_iface *f = b->s->iface;

	if (n == 0)
		return 0;
	qsort(net, n, sizeof(*net), by_start);
	for (uint64_t i = 1; i < n; i++)
		if (net[i].hi == net[i - 1].hi && net[i].lo == net[i - 1].lo && net[i].length == net[i - 1].length)
			return twice(b, net[i - 1].entry, net[i].entry);
	r->room = 2 * n + 1;
	r->hi = fc_iface_alloc(f, r->room * 8);
	r->lo = wide_ones ? fc_iface_alloc(f, r->room * 8) : NULL;
	r->verdict = fc_iface_alloc(f, r->room);
	r->step = fc_iface_alloc(f, STEPS * sizeof(*r->step));
	if (!r->hi || (wide_ones && !r->lo) || !r->verdict || !r->step)
		return -ENOMEM;
	flatten(r, net, n);
	make_steps(r);
	return 0;
}

/* ---- setting up -------------------------------------------------------------------------------- */

static void free_ranges(struct fc_iface *f, struct ranges *r)
{
	fc_iface_free(f, r->hi, r->room * 8);
	fc_iface_free(f, r->lo, r->room * 8);
	fc_iface_free(f, r->verdict, r->room);
	fc_iface_free(f, r->step, STEPS * sizeof(*r->step));
}

static void free_index(struct fc_iface *f, struct index *x)
{
	if (!x)
		return;
	fc_iface_free(f, x->texts, x->texts_bytes);
	fc_iface_free(f, x->values.slot, x->values.bytes);
	fc_iface_free(f, x->prefixes.slot, x->prefixes.bytes);
	free_ranges(f, &x->v4);
	free_ranges(f, &x->v6);
	fc_iface_free(f, x, sizeof(*x));
}

static int make_table(struct fc_iface *f, struct table *t, uint64_t n)
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

/* How much there will be of what. */
static int make_room(struct build *b)
{
	const struct fc_texts *list[2] = { &b->conf->allow, &b->conf->deny };
	uint64_t bytes = 1, prefixes = 0, values = 0, n = list[0]->n + list[1]->n;
	struct fc_iface *f = b->s->iface;

	for (uint64_t i = 0; i < n; i++) {
		const char *text = i < list[0]->n ? list[0]->text[i] : list[1]->text[i - list[0]->n];
		size_t length = text ? strlen(text) : 0;

		bytes += length + 1;
		prefixes += length && text[length - 1] == '*';
	}
	values = n - prefixes;
	if (bytes > UINT32_MAX)
		return -E2BIG;
	b->x->texts_bytes = bytes;
	b->x->texts_used = 1;
	b->x->texts = fc_iface_alloc(f, bytes);
	b->room = at_least_one(values);
	b->net = fc_iface_alloc(f, b->room * sizeof(*b->net));
	if (!b->x->texts || !b->net)
		return -ENOMEM;
	return make_table(f, &b->x->values, values) < 0 ? -ENOMEM : make_table(f, &b->x->prefixes, prefixes);
}

static int fill(struct build *b)
{
	int rc = make_room(b);

	for (uint32_t i = 0; rc == 0 && i < b->conf->allow.n; i++)
		rc = add_entry(b, i << 1 | FC_ACCESS_ALLOW);
	for (uint32_t i = 0; rc == 0 && i < b->conf->deny.n; i++)
		rc = add_entry(b, i << 1 | FC_ACCESS_DENY);
	if (rc == 0)
		rc = make_ranges(b, &b->x->v4, b->net, b->n4, 0);
	if (rc == 0)
		rc = make_ranges(b, &b->x->v6, b->net + (b->room - b->n6), b->n6, 1);
	for (uint32_t i = 0; i <= PREFIX_MAX; i++)
		if (b->x->has_length[i])
			b->x->length[b->x->n_lengths++] = (uint8_t)i;
	fc_iface_free(b->s->iface, b->net, b->room * sizeof(*b->net));
	return rc;
}

static int bad(const struct fc_setup *s, const char *what, uint64_t found, const char *allowed)
{
	fc_iface_log(s->iface, s->rule, "%s: %llu; allowed: %s", what, (unsigned long long)found, allowed);
	return -EINVAL;
}

static int check_conf(const struct fc_setup *s, const struct fc_access_conf *conf)
{
	if (!conf->label || !*conf->label) {
		fc_iface_log(s->iface, s->rule, "label: none; allowed: the name of a label");
		return -EINVAL;
	}
	if (conf->otherwise > FC_ACCESS_DENY)
		return bad(s, "otherwise", conf->otherwise, "allow (0), deny (1)");
	if (conf->without > FC_ACCESS_WITHOUT_DENY)
		return bad(s, "without", conf->without, "otherwise (0), allow (1), deny (2)");
	if (conf->allow.n > FC_ACCESS_MAX || (conf->allow.n && !conf->allow.text))
		return bad(s, "entries of allow", conf->allow.n, "up to 4000000, and their texts");
	if (conf->deny.n > FC_ACCESS_MAX || (conf->deny.n && !conf->deny.text))
		return bad(s, "entries of deny", conf->deny.n, "up to 4000000, and their texts");
	return 0;
}

static int access_setup(struct fc_setup *s)
{
	struct fc_access_conf *conf = s->conf;
	struct build b = { .s = s, .conf = conf };
	int rc = check_conf(s, conf);

	if (rc < 0)
		return rc;
	b.x = fc_iface_alloc(s->iface, sizeof(*b.x));
	rc = b.x ? fill(&b) : -ENOMEM;
	if (rc < 0) {
		free_index(s->iface, b.x);
		return rc;
	}
	conf->index_ = b.x;
	conf->label_ = fc_label(conf->label, "").key;
	conf->label = NULL; /* it is the caller's, as the lists are */
	conf->allow = conf->deny = (struct fc_texts){ 0 };
	return 0;
}

static void access_drop(struct fc_iface *iface, void *conf)
{
	free_index(iface, ((struct fc_access_conf *)conf)->index_);
}

/* ---- a call ------------------------------------------------------------------------------------ */

static int verdict_on(const struct fc_access_conf *conf, const struct fc_label *l)
{
	uint32_t verdict = NO_VERDICT;

	if (l)
		verdict = look(conf->index_, l);
	else if (conf->without != FC_ACCESS_WITHOUT_OTHERWISE)
		verdict = conf->without == FC_ACCESS_WITHOUT_DENY;
	if (verdict == NO_VERDICT)
		verdict = conf->otherwise;
	return verdict == FC_ACCESS_DENY ? FC_REFUSED_ACCESS : 0;
}

static int access_check(struct fc_call *c)
{
	const struct fc_access_conf *conf = c->conf;

	return verdict_on(conf, fc_ctx_label(c->ctx, conf->label_));
}

static int look_for(struct fc_call *c, void *arg)
{
	return verdict_on(c->conf, arg);
}

int fc_access_look(struct fc_iface *iface, const char *rule, const struct fc_label *label)
{
	return fc_iface_with(iface, &fc_interceptor_access, rule, look_for, (void *)(uintptr_t)label);
}

static const char *const verdicts[] = { "allow", "deny" };
static const char *const withouts[] = { "otherwise", "allow", "deny" };

#define AT(member_) offsetof(struct fc_access_conf, member_)
static const struct fc_field fields[] = {
	{ .name = "label", .type = FC_FIELD_TEXT, .offset = AT(label), .min = 1, .max = 255, .flags = FC_FIELD_REQUIRED,
	  .help = "the label whose value is looked up" },
	{ .name = "allow", .type = FC_FIELD_TEXTS, .offset = AT(allow), .max = FC_ACCESS_MAX,
	  .help = "values, beginnings with *, addresses and networks that may call" },
	{ .name = "deny", .type = FC_FIELD_TEXTS, .offset = AT(deny), .max = FC_ACCESS_MAX,
	  .help = "those that may not; the most specific entry of both lists decides" },
	{ .name = "otherwise", .type = FC_FIELD_CHOICE, .offset = AT(otherwise), .choices = verdicts, .n_choices = 2,
	  .help = "what holds when no entry matches" },
	{ .name = "without", .type = FC_FIELD_CHOICE, .offset = AT(without), .choices = withouts, .n_choices = 3,
	  .help = "what holds for calls without the label" },
};

const struct fc_interceptor fc_interceptor_access = {
	.size = sizeof(struct fc_interceptor),
	.order = FC_ORDER_ACCESS,
	.name = "access",
	.conf_bytes = sizeof(struct fc_access_conf),
	.reason = FC_REFUSED_ACCESS,
	.setup = access_setup,
	.drop = access_drop,
	.check = access_check,
	.fields = fields,
	.n_fields = sizeof(fields) / sizeof(fields[0]),
};
