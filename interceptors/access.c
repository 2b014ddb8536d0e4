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

#include "access_index.h"

/* ---- reading entries --------------------------------------------------------------------------- */

static const char *text_of(const struct build *b, uint32_t entry)
{
	return (entry & 1 ? b->conf->deny.text : b->conf->allow.text)[entry >> 1];
}

static const char *list_of(uint32_t entry)
{
	return entry & 1 ? "deny" : "allow";
}

int fci_access_bad(const struct build *b, uint32_t entry, const char *what, const char *allowed)
{
	fc_iface_log(b->s->iface, b->s->rule, "%s[%u] \"%.60s\": %s; allowed: %s", list_of(entry), entry >> 1,
	             text_of(b, entry), what, allowed);
	return -EINVAL;
}

int fci_access_twice(const struct build *b, uint32_t first, uint32_t entry)
{
	fc_iface_log(b->s->iface, b->s->rule,
	             "%s[%u] \"%.60s\": it is %s[%u] \"%.60s\" too; allowed: each once, in one list", list_of(entry),
	             entry >> 1, text_of(b, entry), list_of(first), first >> 1, text_of(b, first));
	return -EINVAL;
}

static int add_entry(struct build *b, uint32_t entry)
{
	const char *text = text_of(b, entry), *star, *slash;
	size_t length;
	int rc = 0;

	if (!text || !*text)
		return fci_access_bad(b, entry, "empty", "a value, a beginning and *, an address, a network");
	length = strlen(text);
	if (length > 65535)
		return fci_access_bad(b, entry, "too long", "65535 bytes");
	star = strchr(text, '*');
	if (star && star[1])
		return fci_access_bad(b, entry, "* is not at the end", "a beginning and one *");
	if (star)
		return fci_access_add_prefix(b, text, (uint32_t)(length - 1), entry);
	slash = strchr(text, '/');
	rc = fci_access_add_network(b, text, slash, entry);
	if (rc < 0 || (rc > 0 && slash))
		return rc < 0 ? rc : 0;
	return fci_access_add_text(b, &b->x->values, fc_label("", text).value, text, (uint32_t)length, entry);
}

/* ---- setting up -------------------------------------------------------------------------------- */

static void free_index(struct fc_iface *f, struct index *x)
{
	if (!x)
		return;
	fc_iface_free(f, x->texts, x->texts_bytes);
	fc_iface_free(f, x->values.slot, x->values.bytes);
	fc_iface_free(f, x->prefixes.slot, x->prefixes.bytes);
	fci_access_free_ranges(f, &x->v4);
	fci_access_free_ranges(f, &x->v6);
	fc_iface_free(f, x, sizeof(*x));
}

static uint64_t at_least_one(uint64_t n)
{
	return n ? n : 1;
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
	if (fci_access_make_table(f, &b->x->values, values) < 0)
		return -ENOMEM;
	return fci_access_make_table(f, &b->x->prefixes, prefixes);
}

static int fill(struct build *b)
{
	int rc = make_room(b);

	for (uint32_t i = 0; rc == 0 && i < b->conf->allow.n; i++)
		rc = add_entry(b, i << 1 | FC_ACCESS_ALLOW);
	for (uint32_t i = 0; rc == 0 && i < b->conf->deny.n; i++)
		rc = add_entry(b, i << 1 | FC_ACCESS_DENY);
	if (rc == 0)
		rc = fci_access_make_ranges(b, &b->x->v4, b->net, b->n4, 0);
	if (rc == 0)
		rc = fci_access_make_ranges(b, &b->x->v6, b->net + (b->room - b->n6), b->n6, 1);
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

static uint32_t look(const struct index *x, const struct fc_label *l)
{
	uint32_t text = fci_access_value(x, l), address = NO_VERDICT;

	if (text == NO_VERDICT && x->n_lengths && l->text)
		text = fci_access_prefix(x, l->text);
	if (l->ip[0] | l->ip[1])
		address = fci_access_address(x, l->ip);
	if (text == NO_VERDICT || address == NO_VERDICT)
		return text == NO_VERDICT ? address : text;
	return text | address; /* FC_ACCESS_DENY wins */
}

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
