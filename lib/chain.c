/* SPDX-License-Identifier: BSD-2-Clause */
/* chain.c - running, replacing and freeing chains. See chain.h. */
#include <errno.h>
#include <stdlib.h>

#include "chain.h"
#include "iface.h"
#include "limit.h"
#include "rule.h"
#include "ruled.h"

#define LIVING_MAX 50000u /* chains of one interface that calls still use */

static struct fc_call call_of(struct fc_iface *f, const struct fci_stage *s)
{
	return (struct fc_call){ .iface = f, .state = s->state, .conf = s->conf };
}

/* The same call, for the next stage. */
FCI_INLINE void for_stage(struct fc_call *c, const struct fci_stage *s, uint32_t *cells)
{
	c->state = s->state;
	c->conf = s->conf;
	c->cells = cells ? cells + s->cell : NULL;
}

/* The same, with the cells of its record. */
FCI_INLINE void for_stage_of(struct fc_call *c, const struct fci_stage *s, const struct fci_way *w)
{
	fci_a32 *cells;

	if (fci_likely(s->cell < FCI_CELLS_NEAR))
		cells = &fci_record(w->f, w->claim.slot)->cells[s->cell];
	else
		cells = &fci_more(w->f, w->claim.slot)[s->cell - FCI_CELLS_NEAR];
	for_stage(c, s, NULL);
	c->cells = (uint32_t *)(void *)cells;
}

/* What is known of a call at any step; what only some steps have is left as it is. Not by an
 * initialiser: what is stored is waited for by the next compare-and-swap. */
FCI_INLINE void call_begin(struct fc_call *c, struct fc_iface *f, const struct fc_ctx *ctx, uint64_t now, uint32_t weight)
{
	c->iface = f;
	c->ctx = ctx;
	c->now_ns = now;
	c->weight = weight;
	c->cpu = fci_cpu_hint(&fci_self);
}

/* And what check and pre may say. */
FCI_INLINE void call_ask(struct fc_call *c, const struct fci_way *w)
{
	call_begin(c, w->f, w->ctx, w->now, w->ctx->weight);
	memset(&c->observed, 0, sizeof(*c) - offsetof(struct fc_call, observed));
}

struct fci_chain *fci_chain_of(struct fc_iface *f, uint32_t version)
{
	/* A1 -> R1 (publish): the chain is complete. */
	struct fci_chain *c = atomic_load_explicit(&f->chain, FCI_ACQ);

	while (c && c->version != version)
		c = atomic_load_explicit(&c->older, FCI_ACQ);
	return c;
}

static int is_dry(const struct fci_way *w, const struct fci_stage *s)
{
	return (s->flags & FC_RULE_DRY_RUN) || (w->gate & FCI_GATE_DRY_RUN);
}

/* A stage says no: note why. 0 when it is a dry run, and the call goes on. */
static int refused_by(struct fci_way *w, const struct fci_stage *s, struct fc_call *c, int rc)
{
	if (is_dry(w, s)) {
		fci_would_refuse(w);
		c->observed = c->limit = c->retry_after_ns = 0; /* the next one's to say */
		return 0;
	}
	if (rc < 0)
		return fci_fault(w->f, rc) == 0 ? 0 : fci_refuse(w->e, w->f, FC_REFUSED_FAULT, s->name, 0, 0, 0, w->now);
	return fci_refuse(w->e, w->f, rc, s->name, c->observed, c->limit, c->retry_after_ns, w->now);
}

int fci_chain_check(struct fci_way *w)
{
	struct fc_call *c = &w->call;

	call_ask(c, w);
	w->asked = 1;
	for (uint32_t i = 0; i < w->chain->n; i++) {
		const struct fci_stage *s = &w->chain->stage[i];
		int rc;

		if (!s->ic->check)
			continue;
		for_stage(c, s, NULL);
		rc = s->ic->check(c);
		if (fci_unlikely(rc != 0) && (rc = refused_by(w, s, c, rc)) != 0)
			return rc;
	}
	return 0;
}

static void undo_from(struct fci_way *w, uint32_t k)
{
	struct fc_call c;

	call_begin(&c, w->f, w->ctx, w->now, w->ctx->weight);
	while (k-- > 0) {
		const struct fci_stage *s = &w->chain->stage[k];

		if (!s->ic->undo)
			continue;
		for_stage_of(&c, s, w);
		s->ic->undo(&c);
	}
}

/* For how long the caller could sleep. */
static uint64_t max_delay(const struct fci_way *w)
{
	if (w->async)
		return 0;
	if (!w->ctx->deadline_ns)
		return UINT64_MAX;
	return w->ctx->deadline_ns > w->now ? w->ctx->deadline_ns - w->now : 0;
}

int fci_chain_pre(struct fci_way *w)
{
	struct fc_call *c = &w->call;

	if (!w->asked)
		call_ask(c, w);
	c->max_delay_ns = max_delay(w);
	for (uint32_t i = 0; i < w->chain->n; i++) {
		const struct fci_stage *s = &w->chain->stage[i];
		int rc;

		if (!s->ic->pre)
			continue;
		for_stage_of(c, s, w);
		FC_TEST_POINT("pre");
		rc = s->ic->pre(c);
		if (fci_unlikely(rc != 0) && (rc = refused_by(w, s, c, rc)) != 0) {
			undo_from(w, i);
			return rc;
		}
		if (fci_unlikely(c->delay_ns)) {
			if (c->delay_ns > w->delay && !is_dry(w, s))
				w->delay = c->delay_ns < c->max_delay_ns ? c->delay_ns : c->max_delay_ns;
			c->delay_ns = 0;
		}
	}
	return 0;
}

void fci_chain_park(struct fc_iface *f, uint32_t version, int n)
{
	uint64_t was = fci_section_enter(fci_thread_self());
	struct fci_chain *c = version ? fci_chain_of(f, version) : NULL;

	/* X2 -> A3 (is_parked); and of f: a count for statistics. */
	if (c)
		atomic_fetch_add_explicit(&c->parked, (uint32_t)n, FCI_SC);
	atomic_fetch_add_explicit(&f->parked, (uint32_t)n, FCI_SC);
	fci_section_leave(&fci_self, was);
}

void fci_chain_park_reset(struct fc_iface *f)
{
	/* N4: nobody else is there. Suspended ones are the parent's calls, too: see stats.c. */
	fci_count(f, FCI_C_UNDONE, atomic_load_explicit(&f->parked, FCI_RLX));
	atomic_store_explicit(&f->parked, 0, FCI_RLX);
	for (struct fci_chain *c = atomic_load_explicit(&f->chain, FCI_RLX); c; c = atomic_load_explicit(&c->older, FCI_RLX))
		atomic_store_explicit(&c->parked, 0, FCI_RLX);
}

static void end_stages(struct fci_chain *chain, struct fci_ended *d, int is_dead)
{
	struct fc_call c;

	call_begin(&c, chain->iface, NULL, d->now, d->weight);
	c.start_ns = d->start;
	c.latency_ns = d->now > d->start ? d->now - d->start : 0;
	c.outcome = d->outcome;
	for (uint32_t i = chain->n; i-- > 0;) {
		const struct fci_stage *s = &chain->stage[i];
		void (*end)(struct fc_call *) = is_dead && s->ic->reap ? s->ic->reap : s->ic->post;

		if (!end)
			continue;
		for_stage(&c, s, d->cells);
		end(&c);
	}
}

void fci_chain_post(struct fci_chain *chain, struct fci_ended *d)
{
	end_stages(chain, d, 0);
}

void fci_chain_reap(struct fci_chain *chain, struct fci_ended *d)
{
	d->outcome = FC_OUTCOME_IGNORED;
	end_stages(chain, d, 1);
}

/* The cap's own stage is not in the chain: its check is the claim. It has full and tick. A limit that these
 * set stands only if no cap or limit was put in force since this began. */
static struct fci_stage cap_stage(struct fc_iface *f, struct fc_cap_conf *conf)
{
	const struct fci_config *g = &f->block->config;

	/* A2 -> X3 (fci_gate_set, limit.c): before the settings. */
	fci_thread_self()->gate = atomic_load_explicit(&f->gate->word, FCI_SC);
	/* N1: settings, taken one by one. */
	conf->cap = atomic_load_explicit(&g->cap, FCI_RLX);
	conf->expand = atomic_load_explicit(&g->expand, FCI_RLX);
	conf->expand_keep = atomic_load_explicit(&g->expand_keep, FCI_RLX);
	conf->resv = 0;
	FC_TEST_POINT("deciding");
	return (struct fci_stage){ .ic = &fc_interceptor_cap, .state = f->cap_state, .conf = conf };
}

int fci_chain_full(struct fc_iface *f, uint64_t now)
{
	struct fc_cap_conf conf;
	struct fci_stage cap = cap_stage(f, &conf);
	struct fci_thread *self = fci_thread_self();
	struct fc_call c = call_of(f, &cap);
	struct fci_chain *chain;
	uint64_t was;
	int room;

	c.now_ns = now;
	was = fci_section_enter(self);
	/* A1 -> R1 (publish). */
	chain = atomic_load_explicit(&f->chain, FCI_ACQ);
	room = conf.cap != FC_UNLIMITED && !(chain && chain->steers) && cap.ic->full(&c);
	for (uint32_t i = 0; chain && i < chain->n; i++) {
		if (!chain->stage[i].ic->full)
			continue;
		c = call_of(f, &chain->stage[i]);
		c.now_ns = now;
		room |= chain->stage[i].ic->full(&c);
	}
	self->gate = 0;
	fci_section_leave(self, was);
	return room;
}

/* Does a stage steer the limit? If it has just ceased to, the limit is the cap again. */
static int hand_over(struct fc_iface *f, const struct fci_chain *chain, uint32_t cap)
{
	int steers = chain && chain->steers;

	if (f->steered && !steers)
		(void)fc_limit_set(f, cap);
	f->steered = steers;
	return steers;
}

uint64_t fci_chain_tick(struct fc_iface *f, uint64_t now)
{
	struct fc_cap_conf conf;
	struct fci_stage cap = cap_stage(f, &conf);
	struct fci_thread *self = fci_thread_self();
	struct fc_call c = call_of(f, &cap);
	struct fci_chain *chain;
	uint64_t next = FC_NEVER_NS, one, was;

	c.now_ns = now;
	was = fci_section_enter(self);
	/* A1 -> R1 (publish). */
	chain = atomic_load_explicit(&f->chain, FCI_ACQ);
	if (conf.cap != FC_UNLIMITED && !hand_over(f, chain, conf.cap))
		next = cap.ic->tick(&c);
	for (uint32_t i = 0; chain && i < chain->n; i++) {
		if (!chain->stage[i].ic->tick)
			continue;
		c = call_of(f, &chain->stage[i]);
		c.now_ns = now;
		one = chain->stage[i].ic->tick(&c);
		next = one < next ? one : next;
	}
	self->gate = 0;
	fci_section_leave(self, was);
	return next;
}

int fc_iface_with(struct fc_iface *f, const struct fc_interceptor *ic, const char *name,
                  int (*fn)(struct fc_call *c, void *arg), void *arg)
{
	struct fci_thread *self;
	struct fci_chain *chain;
	int rc = -ENOENT;
	uint64_t was;

	if (!fci_iface_real(f) || !ic || !fn)
		return -EINVAL;
	self = fci_thread_self();
	was = fci_section_enter(self);
	/* A1 -> R1 (publish). */
	chain = atomic_load_explicit(&f->chain, FCI_ACQ);
	for (uint32_t i = 0; chain && i < chain->n; i++) {
		const struct fci_stage *s = &chain->stage[i];
		struct fc_call c;

		if (s->ic != ic || strcmp(s->name, name ? name : ic->name) != 0)
			continue;
		call_begin(&c, f, NULL, fci_clock_now(&f->fc->clock), 1);
		memset(&c.observed, 0, sizeof(c) - offsetof(struct fc_call, observed));
		for_stage(&c, s, NULL);
		rc = fn(&c, arg);
		break;
	}
	fci_section_leave(self, was);
	return rc;
}

/* ---- replacing --------------------------------------------------------------------------------- */

static int refuse_rule(struct fc_iface *f, uint32_t i, int error, const char *what)
{
	fci_log(f->fc, FC_LOG_ERROR, "%s: rule %u: %s", f->name, i, what);
	return error;
}

static const char *name_of(const struct fc_rule *r)
{
	return r->name && *r->name ? r->name : r->interceptor->name;
}

static int check_rule(struct fc_iface *f, const struct fc_rule *r, uint32_t i)
{
	const struct fc_interceptor *ic = r->interceptor;

	if (!ic || ic->size < sizeof(struct fc_interceptor))
		return refuse_rule(f, i, -EINVAL, "no interceptor, or one of an older header");
	if (!ic->name || !*ic->name || strlen(name_of(r)) > FC_RULE_NAME_MAX)
		return refuse_rule(f, i, -EINVAL, "the interceptor has no name, or the rule's is longer than 47 bytes");
	if (ic->state_bytes > 4096 || ic->conf_bytes > 65536 || ic->cells > 2)
		return refuse_rule(f, i, -EINVAL, "state_bytes over 4096, conf_bytes over 65536 or cells over 2");
	if (ic->conf_bytes && !r->conf)
		return refuse_rule(f, i, -EINVAL, "conf is missing");
	if (r->flags & ~(uint32_t)FC_RULE_DRY_RUN)
		return refuse_rule(f, i, -EINVAL, "unknown flags");
	return 0;
}

static uint32_t order_of(const struct fc_rule *r)
{
	return r->order ? r->order : r->interceptor->order;
}

/* Indices of the rules by order; equal orders stay as given. */
static void sort_rules(const struct fc_rule *rules, uint32_t n, uint32_t *idx)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = i;

		for (; j > 0 && order_of(&rules[idx[j - 1]]) > order_of(&rules[i]); j--)
			idx[j] = idx[j - 1];
		idx[j] = i;
	}
}

static size_t align16(size_t n)
{
	return (n + 15) & ~(size_t)15;
}

static struct fci_chain *allocate(struct fc_iface *f, const struct fc_rule *rules, uint32_t n)
{
	size_t bytes = align16(sizeof(struct fci_chain) + n * sizeof(struct fci_stage));
	struct fci_chain *c;

	for (uint32_t i = 0; i < n; i++)
		bytes += align16(rules[i].interceptor->conf_bytes);
	c = fci_alloc(f->fc, bytes);
	if (c) {
		c->bytes = bytes;
		c->iface = f;
	}
	return c;
}

/* A chain and what its interceptors have added to their confs. */
static void free_chain(struct fc *fc, struct fci_chain *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (c->stage[i].ic->drop)
			c->stage[i].ic->drop(c->iface, c->stage[i].conf);
	fci_free(fc, c, c->bytes);
}

static int same_name(const struct fci_chain *c, const char *name)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (!strcmp(c->stage[i].name, name))
			return 1;
	return 0;
}

/* State and conf of one stage. 0 or negative errno, and then `what` is wrong. */
static int set_up(struct fc_iface *f, struct fci_stage *s, const char *name, const char **ret_what)
{
	const struct fc_interceptor *ic = s->ic;
	struct fc_setup setup = { .iface = f, .rule = name, .conf = s->conf, .cpus = f->fc->geo.ncpus, .flags = s->flags };
	uint64_t bytes = ic->state_size ? ic->state_size(s->conf, setup.cpus) : ic->state_bytes;
	struct fci_state *st;
	int rc;

	*ret_what = "the interceptor does not accept its conf";
	if (bytes > FC_STATE_MAX)
		return -EINVAL;
	*ret_what = "no memory for its state";
	st = fci_state_get(f, ic, name, &rc);
	if (!st || (rc = fci_state_prepare(f, st, bytes, &setup)) < 0)
		return rc;
	setup.now_ns = fci_clock_now(&f->fc->clock);
	*ret_what = "the interceptor does not accept its conf";
	rc = ic->setup ? ic->setup(&setup) : 0;
	if (rc < 0)
		return rc;
	s->kept = st;
	s->state = setup.state;
	s->state_bytes = setup.state_bytes;
	s->name = st->name;
	return 0;
}

/* What the chain as a whole does and needs. */
static void sum_up(struct fci_chain *c, const struct fci_stage *s)
{
	const struct fc_interceptor *ic = s->ic;
	uint64_t ns = ic->resolution_ns ? ic->resolution_ns(s->conf) : 0;

	c->has_check |= ic->check != NULL;
	c->has_pre |= ic->pre != NULL;
	c->has_post |= ic->post != NULL || ic->reap != NULL;
	c->fine |= ns != 0 && ns < fci_clock_coarse_ns();
	c->steers |= (ic->flags & FC_INTERCEPTOR_STEERS) && !(s->flags & FC_RULE_DRY_RUN);
}

/* Fill the stages; conf copies lie behind them. c->n says how many are complete. */
static int fill(struct fci_chain *c, struct fc_iface *f, const struct fc_rule *rules, uint32_t n, const uint32_t *idx)
{
	char *conf = (char *)c + align16(sizeof(*c) + n * sizeof(struct fci_stage));
	uint32_t cells = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct fc_rule *r = &rules[idx[i]];
		const struct fc_interceptor *ic = r->interceptor;
		struct fci_stage *s = &c->stage[i];
		const char *what;
		int rc;

		if (cells < FCI_CELLS_NEAR && cells + ic->cells > FCI_CELLS_NEAR)
			cells = FCI_CELLS_NEAR; /* a rule's cells lie together */
		if (cells + ic->cells > FC_CELLS_MAX)
			return refuse_rule(f, idx[i], -E2BIG, "the rules need more than 14 cells");
		if (same_name(c, name_of(r)))
			return refuse_rule(f, idx[i], -EEXIST, "another rule has its name");
		if (c->steers && (ic->flags & FC_INTERCEPTOR_STEERS) && !(r->flags & FC_RULE_DRY_RUN))
			return refuse_rule(f, idx[i], -EEXIST, "another rule steers the limit");
		*s = (struct fci_stage){ .ic = ic, .conf = conf, .cell = cells, .flags = r->flags };
		if (ic->conf_bytes)
			memcpy(conf, r->conf, ic->conf_bytes);
		rc = set_up(f, s, name_of(r), &what);
		if (rc < 0)
			return refuse_rule(f, idx[i], rc, what);
		conf += align16(ic->conf_bytes);
		cells += ic->cells;
		c->cells = cells;
		sum_up(c, s);
		c->n = i + 1;
	}
	return 0;
}

/* A version that no living chain has; 0: there are too many of them. */
static uint32_t new_version(struct fc_iface *f)
{
	/* N2: fc->setup is held. */
	const struct fci_chain *c = atomic_load_explicit(&f->chain, FCI_RLX);
	uint32_t version = c ? c->version : 0, living = 0;

	while (c) {
		living++;
		c = atomic_load_explicit(&c->older, FCI_RLX); /* N2 */
	}
	if (living >= LIVING_MAX)
		return 0;
	do {
		version = version % 65535 + 1;
	} while (fci_chain_of(f, version));
	return version;
}

/* N2: fc->setup is held; R1 -> A1 makes it visible. */
static void publish(struct fc_iface *f, struct fci_chain *c)
{
	/* N2: fc->setup is held: nobody else changes it. */
	struct fci_chain *old = atomic_load_explicit(&f->chain, FCI_RLX);

	atomic_store_explicit(&c->older, old, FCI_RLX);
	/* R1 -> A1. */
	atomic_store_explicit(&f->chain, c, FCI_REL);
	fci_gate_set(f, c->n ? FCI_GATE_CHAIN : 0, c->n ? 0 : FCI_GATE_CHAIN);
	f->fine = c->fine;
	fci_iface_choose_clock(f);
	for (uint32_t i = 0; i < c->n; i++)
		fci_state_commit(c->stage[i].kept, c->stage[i].state, c->stage[i].state_bytes);
	if (c->steers || (old && old->steers))
		fci_iface_wake(f); /* the next tick sets the limit */
	if (old) {
		/* X1: sections that begin now get a later epoch. */
		old->epoch = atomic_fetch_add_explicit(&fci_thread_epoch, 1, FCI_AR);
		old->next_retired = f->fc->retired;
		f->fc->retired = old;
	}
}

void fci_chain_drop(struct fc_iface *f, struct fci_chain *c)
{
	struct fci_before before = c->before;

	free_chain(f->fc, c);
	fci_states_undo(f, &before);
}

int fci_chain_make(struct fc_iface *f, const struct fc_rule *rules, uint32_t n, struct fci_chain **ret)
{
	uint32_t idx[FC_CHAIN_MAX];
	struct fci_chain *c;
	int rc = 0;

	if (n > FC_CHAIN_MAX)
		return refuse_rule(f, n, -E2BIG, "more than 12 rules");
	for (uint32_t i = 0; i < n; i++)
		if ((rc = check_rule(f, &rules[i], i)) < 0)
			return rc;
	sort_rules(rules, n, idx);
	c = allocate(f, rules, n);
	if (!c)
		return -ENOMEM;
	fci_states_mark(f, &c->before);
	if ((c->version = new_version(f)) == 0)
		rc = refuse_rule(f, 0, -EAGAIN, "50000 replaced chains are in use still");
	else
		rc = fill(c, f, rules, n, idx);
	if (rc < 0)
		fci_chain_drop(f, c);
	else
		*ret = c;
	return rc;
}

void fci_chain_publish(struct fc_iface *f, struct fci_chain *c)
{
	publish(f, c);
}

int fc_iface_set_chain(struct fc_iface *f, const struct fc_rule *rules, uint32_t n)
{
	struct fci_chain *c;
	int rc;

	if (!fci_iface_real(f) || (n && !rules))
		return -EINVAL;
	pthread_mutex_lock(&f->fc->setup);
	rc = fci_chain_make(f, rules, n, &c);
	if (rc == 0) {
		publish(f, c);
		f->by_hand |= FCI_HAND_CHAIN;
		f->hand_until = FC_NEVER_NS;
	}
	fci_chain_reclaim(f->fc);
	pthread_mutex_unlock(&f->fc->setup);
	return rc;
}

/* ---- freeing ----------------------------------------------------------------------------------- */

static int is_parked(const struct fci_chain *c)
{
	/* A3 -> X2 (fci_chain_park). */
	return atomic_load_explicit(&c->parked, FCI_SC) != 0;
}

/* Is a call inside that began under this version? Suspended ones are counted in `parked`. */
static int in_use(struct fc_iface *f, const struct fci_chain *c)
{
	uint32_t slots = fci_slots(f);
	struct fci_view v;

	/* Before the look and after it: a call may be suspended or resumed meanwhile. */
	if (is_parked(c))
		return 1;
	for (uint32_t s = 0; s < slots; s++) {
		/* A2 -> X1 of inflight.h: SC; a claim not seen here sees the new chain. */
		uint64_t w = atomic_load_explicit(fci_word(f, s), FCI_SC);

		if (FCI_STATE(w) == FCI_CLAIMED)
			return 1;
		if (fci_is_call(w) && (!fci_view(f, s, &v) || FCI_META_VER(v.meta) == c->version))
			return 1;
	}
	return is_parked(c);
}

static void unlink_chain(struct fci_chain *c)
{
	/* N2: fc->setup is held. */
	struct fci_chain *p = atomic_load_explicit(&c->iface->chain, FCI_RLX);

	while (p && atomic_load_explicit(&p->older, FCI_RLX) != c)
		p = atomic_load_explicit(&p->older, FCI_RLX);
	if (p)
		/* R1 -> A1: c's older ones are complete. */
		atomic_store_explicit(&p->older, atomic_load_explicit(&c->older, FCI_RLX), FCI_REL);
}

enum { IN_USE = 0, LEFT = 1, UNLINKED = 2 }; /* fci_chain.left */

/*
 * X1: a new epoch for each step, which waits until no section of the last one is under way.
 *   IN_USE -> LEFT       no call that began under it is inside: one may just be leaving, and look for it
 *   LEFT -> UNLINKED     nobody looks for it any more; sections may still hold it
 *   UNLINKED -> freed
 */
void fci_chain_reclaim(struct fc *fc)
{
	struct fci_chain **p = &fc->retired;
	uint64_t min;

	if (!*p)
		return;
	fci_thread_fence_all(); /* A1 of thread.h: sections begun before are seen */
	min = fci_thread_min_section();
	while (*p) {
		struct fci_chain *c = *p;

		if (min <= c->epoch) {
			p = &c->next_retired;
		} else if (c->left != UNLINKED) {
			if (in_use(c->iface, c)) {
				c->left = IN_USE;
			} else {
				if (c->left == LEFT)
					unlink_chain(c);
				c->left++;
				c->epoch = atomic_fetch_add_explicit(&fci_thread_epoch, 1, FCI_AR); /* X1 */
			}
			p = &c->next_retired;
		} else {
			*p = c->next_retired;
			free_chain(fc, c);
		}
	}
}

void fci_chain_free_retired(struct fc *fc)
{
	struct fci_chain *c, *next;

	for (c = fc->retired; c; c = next) {
		next = c->next_retired;
		if (c->left == UNLINKED)
			free_chain(fc, c);
	}
	fc->retired = NULL;
}

/* N3: nobody else is there any more. */
void fci_chain_free_all(struct fc *fc, struct fc_iface *f)
{
	struct fci_chain *c = atomic_load_explicit(&f->chain, FCI_RLX), *next;

	for (; c; c = next) {
		next = atomic_load_explicit(&c->older, FCI_RLX);
		free_chain(fc, c);
	}
	atomic_store_explicit(&f->chain, NULL, FCI_RLX);
}
