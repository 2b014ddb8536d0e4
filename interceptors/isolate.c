/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * isolate.c - bulkheads. See isolate.h for what a group is.
 *
 *   pre    takes as many places of the member's own share as are free, the rest from the pool. Own and
 *          borrowed places of a member are one word, so that a compare-and-swap changes both.
 *   check  looks whether that could work now.
 *   post   gives both back, as the cells say: code, and how many are own.
 *
 * Numbers of a group lie twice in the segment, and `current` says which are in force: a change fills
 * the others and turns it. A call that was stopped over two changes may read a mix once: it decides by
 * one wrong number, and takes and gives back the same places all the same.
 *
 * Units.   places; a call takes its weight.
 * Bounds.  sum of own <= sum of shares; pool in use <= cap - sum of shares; own + borrowed <= most; so
 *          all together <= cap. After a change each of them holds for new calls at once, and a count
 *          that is over its bound only falls; the whole may be over cap by what had been borrowed.
 * Cost.    1 compare-and-swap in, 1 out; 2 while borrowing.
 * Source.  Bulkheads as in Nygard, Release It (2007); shares with borrowing as in hierarchical token
 *          buckets. Own places first, so that the pool is left to those who need it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <fcguard/context.h>
#include <fcguard/iface.h>
#include <fcguard/isolate.h>

#define MEMBERS  FC_ISOLATE_MEMBERS_MAX
#define NOBODY   MEMBERS            /* index of a call that is of no member */
#define CAP_MAX  1000000u
#define OWN(w_)      ((uint32_t)(w_))
#define BORROWED(w_) ((uint32_t)((w_) >> 32))
#define WORD(own_, borrowed_) ((uint64_t)(borrowed_) << 32 | (own_))

struct numbers {
	uint32_t cap, pool;
	uint32_t share[MEMBERS], most[MEMBERS];
};

struct member {
	uint64_t id;   /* hash of its name; 0: none. Set once */
	uint64_t used; /* own | borrowed << 32 */
	uint64_t resv[6]; /* a line each */
};

struct group {
	uint32_t current;   /* 0: not defined; else 1 + index of numbers */
	uint32_t n_members; /* names so far */
	uint64_t resv[7];
	uint64_t pool_used;
	uint64_t resv2[7];
	struct member member[MEMBERS + 1]; /* the last: calls of no member */
	struct numbers numbers[2];
};

/* Held over a fork, or the child could find it locked for ever. */
static pthread_mutex_t defining = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void lock_defining(void)
{
	pthread_mutex_lock(&defining);
}

static void unlock_defining(void)
{
	pthread_mutex_unlock(&defining);
}

static void watch_forks(void)
{
	pthread_atfork(lock_defining, unlock_defining, unlock_defining);
}

static uint32_t get32(const uint32_t *p)
{
	/* N1: a number as good as any other of this moment. */
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void set32(uint32_t *p, uint32_t v)
{
	/* N1: R1 publishes what is new. */
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

static uint64_t get64(const uint64_t *p)
{
	/* N2: re-checked by a compare-and-swap, or a look. */
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static uint64_t id_of(const char *name)
{
	uint64_t id = fc_label("", name).value;

	return id ? id : 1;
}

/* The numbers in force; NULL: the group is not defined. */
static const struct numbers *numbers_of(const struct group *g)
{
	/* A1 -> R1 (fill): they are complete. */
	uint32_t current = __atomic_load_n(&g->current, __ATOMIC_ACQUIRE);

	return current ? &g->numbers[(current - 1) & 1] : NULL;
}

static uint32_t find_member(const struct group *g, uint64_t id)
{
	uint32_t i = 0;

	/* A2 -> R2 (add_member). */
	while (i < MEMBERS && __atomic_load_n(&g->member[i].id, __ATOMIC_ACQUIRE) != id)
		i++;
	return i;
}

/* ---- the group --------------------------------------------------------------------------------- */

static int bad(struct fc *fc, const char *group, const char *what, const char *name)
{
	fc_log(fc, FC_LOG_ERROR, "isolate: group \"%.39s\": %s%.39s", group, what, name);
	return -EINVAL;
}

static int check_opts(struct fc *fc, const char *group, const struct fc_isolate_opts *o)
{
	uint64_t shares = 0;

	if (o->cap < 1 || o->cap > CAP_MAX)
		return bad(fc, group, "cap must be 1 to 1000000", "");
	if (o->n_members > MEMBERS || (o->n_members && !o->members))
		return bad(fc, group, "more than 64 members, or none given", "");
	for (uint32_t i = 0; i < o->n_members; i++) {
		const struct fc_isolate_member *m = &o->members[i];

		if (!m->name || !*m->name || strlen(m->name) > FC_ISOLATE_NAME_MAX)
			return bad(fc, group, "a member's name is empty or longer than 39 bytes", "");
		for (uint32_t k = 0; k < i; k++)
			if (!strcmp(m->name, o->members[k].name))
				return bad(fc, group, "twice the member ", m->name);
		if (m->most > o->cap || (m->most && m->share > m->most))
			return bad(fc, group, "most must be at least the share and at most the cap: ", m->name);
		shares += m->share;
	}
	if (shares > o->cap)
		return bad(fc, group, "the shares are more than the cap", "");
	return 0;
}

/* Index of a member, new or not; MEMBERS: no room for another name. */
static uint32_t add_member(struct group *g, const char *name)
{
	uint64_t id = id_of(name);
	uint32_t i = find_member(g, id);

	if (i < MEMBERS || (i = get32(&g->n_members)) >= MEMBERS)
		return i;
	set32(&g->n_members, i + 1);
	/* R2 -> A2. */
	__atomic_store_n(&g->member[i].id, id, __ATOMIC_RELEASE);
	return i;
}

static int fill(struct group *g, const struct fc_isolate_opts *o)
{
	uint32_t next = g->current == 1 ? 2 : 1, at[MEMBERS], shares = 0;
	struct numbers *n = &g->numbers[next - 1];

	for (uint32_t i = 0; i < o->n_members; i++)
		if ((at[i] = add_member(g, o->members[i].name)) >= MEMBERS)
			return -ENOSPC;
	for (uint32_t i = 0; i < MEMBERS; i++) {
		set32(&n->share[i], 0);
		set32(&n->most[i], o->cap);
	}
	for (uint32_t i = 0; i < o->n_members; i++) {
		set32(&n->share[at[i]], o->members[i].share);
		set32(&n->most[at[i]], o->members[i].most ? o->members[i].most : o->cap);
		shares += o->members[i].share;
	}
	set32(&n->cap, o->cap);
	set32(&n->pool, o->cap - shares);
	/* R1 -> A1. */
	__atomic_store_n(&g->current, next, __ATOMIC_RELEASE);
	return 0;
}

static int key_of(const char *group, char *key, size_t bytes)
{
	if (!group || !*group || strlen(group) > FC_ISOLATE_NAME_MAX)
		return -EINVAL;
	snprintf(key, bytes, "isolate.%s", group);
	return 0;
}

int fc_isolate_group(struct fc *fc, const char *group, const struct fc_isolate_opts *opts)
{
	char key[FC_RULE_NAME_MAX + 1];
	struct group *g;
	int rc, first;

	if (!fc || !opts || opts->size < sizeof(*opts) || key_of(group, key, sizeof(key)) < 0)
		return -EINVAL;
	rc = check_opts(fc, group, opts);
	if (rc < 0)
		return rc;
	g = fc_shared(fc, key, sizeof(*g), &first);
	if (!g)
		return -ENOSPC;
	pthread_once(&once, watch_forks);
	lock_defining();
	rc = fill(g, opts);
	unlock_defining();
	return rc;
}

int fc_isolate_used(struct fc *fc, const char *group, const char *member, uint32_t *ret_own, uint32_t *ret_borrowed)
{
	char key[FC_RULE_NAME_MAX + 1];
	uint32_t i, own = 0;
	struct group *g;
	uint64_t used;

	*ret_own = *ret_borrowed = 0;
	if (!fc || key_of(group, key, sizeof(key)) < 0)
		return -ENOENT;
	g = fc_shared_find(fc, key);
	if (!g || !numbers_of(g))
		return -ENOENT;
	if (member) {
		i = find_member(g, id_of(member));
		if (i == MEMBERS)
			return -ENOENT;
		used = get64(&g->member[i].used);
		*ret_own = OWN(used);
		*ret_borrowed = BORROWED(used);
		return 0;
	}
	for (i = 0; i < MEMBERS; i++)
		own += OWN(get64(&g->member[i].used));
	*ret_borrowed = (uint32_t)get64(&g->pool_used);
	*ret_own = own + *ret_borrowed;
	return 0;
}

/* ---- a call ------------------------------------------------------------------------------------ */

/* Cells: index of the member + 1, 0: nothing is held; how many places are own. */

static uint32_t member_of(const struct fc_call *c, const struct fc_isolate_conf *conf, const struct group *g)
{
	const struct fc_label *l;

	if (!conf->label_)
		return conf->member_ < MEMBERS ? conf->member_ : NOBODY;
	l = fc_ctx_label(c->ctx, conf->label_);
	return l ? find_member(g, l->value ? l->value : 1) : NOBODY;
}

/* What a call needs now. */
struct need {
	uint32_t own, borrowed; /* to take */
	int fits;
};

static struct need need_of(const struct group *g, const struct numbers *n, uint32_t i, uint64_t used, uint32_t weight)
{
	uint32_t share = i < MEMBERS ? get32(&n->share[i]) : 0, most = i < MEMBERS ? get32(&n->most[i]) : get32(&n->cap);
	uint32_t free_own = OWN(used) < share ? share - OWN(used) : 0;
	struct need r = { .own = free_own < weight ? free_own : weight };

	r.borrowed = weight - r.own;
	r.fits = (uint64_t)OWN(used) + BORROWED(used) + weight <= most &&
	         (r.borrowed == 0 || get64(&g->pool_used) + r.borrowed <= get32(&n->pool));
	return r;
}

/* Take from the pool. Fails and retries only when another call took or gave back: lock-free. */
static int take_pool(struct group *g, const struct numbers *n, uint32_t places)
{
	uint64_t used = get64(&g->pool_used);

	do {
		if (used + places > get32(&n->pool))
			return 0;
		/* N3: a count: nothing else is handed over by it. */
	} while (!__atomic_compare_exchange_n(&g->pool_used, &used, used + places, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return 1;
}

static void give_pool(struct group *g, uint32_t places)
{
	if (places)
		__atomic_fetch_sub(&g->pool_used, places, __ATOMIC_RELAXED); /* N3 */
}

static int refuse(struct fc_call *c, const struct group *g, const struct numbers *n, uint32_t i)
{
	uint64_t used = get64(&g->member[i].used);

	c->observed = (uint64_t)OWN(used) + BORROWED(used);
	c->limit = i < MEMBERS ? get32(&n->most[i]) : get32(&n->pool);
	return FC_REFUSED_ISOLATED;
}

static int isolate_check(struct fc_call *c)
{
	const struct fc_isolate_conf *conf = c->conf;
	const struct group *g = conf->group_;
	const struct numbers *n = numbers_of(g);
	uint32_t i = member_of(c, conf, g);

	if (!n || need_of(g, n, i, get64(&g->member[i].used), c->weight).fits)
		return 0;
	return refuse(c, g, n, i);
}

static int isolate_pre(struct fc_call *c)
{
	const struct fc_isolate_conf *conf = c->conf;
	struct group *g = conf->group_;
	const struct numbers *n = numbers_of(g);
	uint32_t i = member_of(c, conf, g);
	uint64_t used = get64(&g->member[i].used);

	/* Again only when another call of this member came or went: lock-free. */
	for (;;) {
		struct need need = need_of(g, n, i, used, c->weight);

		if (!need.fits || (need.borrowed && !take_pool(g, n, need.borrowed)))
			return refuse(c, g, n, i);
		/* N3. */
		if (__atomic_compare_exchange_n(&g->member[i].used, &used, used + WORD(need.own, need.borrowed), 0,
		                                __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			fc_cell_set(c, 1, need.own);
			fc_cell_set(c, 0, i + 1);
			return 0;
		}
		give_pool(g, need.borrowed);
	}
}

static void isolate_post(struct fc_call *c)
{
	const struct fc_isolate_conf *conf = c->conf;
	struct group *g = conf->group_;
	uint32_t i = fc_cell_get(c, 0), own = fc_cell_get(c, 1);

	if (i == 0 || i > MEMBERS + 1)
		return;
	if (own > c->weight)
		own = c->weight; /* spoilt */
	__atomic_fetch_sub(&g->member[i - 1].used, WORD(own, c->weight - own), __ATOMIC_RELAXED); /* N3 */
	give_pool(g, c->weight - own);
	fc_cell_set(c, 0, 0);
}

static int isolate_setup(struct fc_setup *s)
{
	struct fc_isolate_conf *conf = s->conf;
	const char *member = conf->member ? conf->member : fc_iface_name(s->iface);
	char key[FC_RULE_NAME_MAX + 1];
	struct group *g;
	int first;

	if (key_of(conf->group, key, sizeof(key)) < 0 || (conf->member && conf->label)) {
		fc_iface_log(s->iface, s->rule, "a group of 1 to 39 bytes is needed, and not both member and label");
		return -EINVAL;
	}
	g = fc_iface_shared(s->iface, key, sizeof(*g), &first);
	if (!g)
		return -ENOSPC;
	if (!numbers_of(g)) {
		fc_iface_log(s->iface, s->rule, "there is no group \"%s\": `groups` of a rules file or fc_isolate_group() make it", conf->group);
		return -ENOENT;
	}
	conf->group_ = g;
	conf->label_ = conf->label ? fc_label(conf->label, "").key : 0;
	conf->member_ = find_member(g, id_of(member));
	if (!conf->label && conf->member && conf->member_ == MEMBERS) {
		fc_iface_log(s->iface, s->rule, "\"%s\" is no member of group \"%s\"", member, conf->group);
		return -ENOENT;
	}
	conf->group = conf->member = conf->label = NULL; /* they are the caller's */
	return 0;
}

static const struct fc_field fields[] = {
	{ .name = "group", .type = FC_FIELD_TEXT, .offset = offsetof(struct fc_isolate_conf, group), .min = 1,
	  .max = FC_ISOLATE_NAME_MAX, .flags = FC_FIELD_REQUIRED, .help = "the group whose places are shared" },
	{ .name = "member", .type = FC_FIELD_TEXT, .offset = offsetof(struct fc_isolate_conf, member), .min = 1,
	  .max = FC_ISOLATE_NAME_MAX, .help = "whose share these calls use; default: the interface's name; the pool alone if the group has no such member" },
	{ .name = "label", .type = FC_FIELD_TEXT, .offset = offsetof(struct fc_isolate_conf, label), .min = 1,
	  .max = FC_ISOLATE_NAME_MAX, .help = "the value of this label is the member" },
};

const struct fc_interceptor fc_interceptor_isolate = {
	.size = sizeof(struct fc_interceptor),
	.order = FC_ORDER_ISOLATE,
	.name = "isolate",
	.conf_bytes = sizeof(struct fc_isolate_conf),
	.cells = 2,
	.reason = FC_REFUSED_ISOLATED,
	.setup = isolate_setup,
	.check = isolate_check,
	.pre = isolate_pre,
	.undo = isolate_post,
	.post = isolate_post,
	.fields = fields,
	.n_fields = sizeof(fields) / sizeof(fields[0]),
};
