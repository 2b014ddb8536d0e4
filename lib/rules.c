/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rules.c - putting documents in force. See rules.h and ruled.h.
 *
 * Under fc->setup everything that can fail is done for all interfaces first (places, chains, memory); then
 * nothing can fail any more, and numbers and chains are stored. An interface whose numbers and rules are what
 * they were is not touched.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "chain.h"
#include "ruled.h"
#include "rules.h"

/* What is to be changed on one interface. */
struct change {
	struct fc_iface *f;
	struct fci_effect effect;
	struct fci_chain *chain; /* made, not yet published */
	int opts, rules, fallback;
};

struct fci_rules *fci_rules_of(struct fc *fc)
{
	/* N1: fc->rules_mutex is held. */
	struct fci_rules *r = atomic_load_explicit(&fc->rules, FCI_RLX);

	if (r)
		return r;
	r = fci_alloc(fc, sizeof(*r));
	if (!r)
		return NULL;
	r->expiry_at = FC_NEVER_NS;
	r->status.size = sizeof(r->status);
	/* R1 -> A1 (look): it is complete. */
	atomic_store_explicit(&fc->rules, r, FCI_REL);
	return r;
}

static struct fci_rules *look(struct fc *fc)
{
	/* A1 -> R1 (fci_rules_of). */
	return atomic_load_explicit(&fc->rules, FCI_ACQ);
}

uint64_t fci_rules_ticket(void)
{
	static fci_a64 tickets;

	/* N2: a number; it orders loads of one layer as they were called. */
	return atomic_fetch_add_explicit(&tickets, 1, FCI_RLX) + 1;
}

/* ---- one interface; fc->setup is held ---------------------------------------------------------- */

static struct fci_ruled *record(struct fc_iface *f)
{
	if (!f->ruled) {
		f->ruled = fci_alloc(f->fc, sizeof(*f->ruled));
		if (f->ruled) {
			f->ruled->opts.size = sizeof(f->ruled->opts);
			f->ruled->fallback_on = FC_FALLBACK_DEFAULT;
		}
	}
	return f->ruled;
}

static const struct fci_node *rules_of(const struct fci_effect *e)
{
	return e->rules ? e->rules->rules_node : NULL;
}

/* What differs from what rules gave it last. 1: something does. */
static int differs(struct change *c)
{
	const struct fci_ruled *was = c->f->ruled;

	c->opts = memcmp(&was->opts, &c->effect.opts.o, sizeof(was->opts)) != 0 || was->ruled != c->effect.ruled;
	c->rules = !fci_node_equal(was->rules_node, rules_of(&c->effect));
	c->fallback = was->fallback_on != c->effect.opts.fallback_on;
	c->opts &= !(c->f->by_hand & FCI_HAND_OPTS);
	c->rules &= !(c->f->by_hand & FCI_HAND_CHAIN);
	c->fallback &= !(c->f->by_hand & FCI_HAND_FALLBACK);
	return c->opts | c->rules | c->fallback;
}

/* All that can fail. */
static int prepare(struct change *c)
{
	const struct fci_entry_rules *e = c->effect.rules;
	int rc = 0;

	if (c->opts)
		rc = fci_iface_room(c->f, &c->effect.opts.o);
	if (rc == 0 && c->fallback)
		rc = fci_fallback_room(c->f);
	if (rc == 0 && c->rules)
		rc = fci_chain_make(c->f, e ? e->rules : NULL, e ? e->n_rules : 0, &c->chain);
	return rc;
}

/* And what cannot. The record names the new document's rules even if they are the same. */
static void commit(struct change *c)
{
	struct fci_ruled *now = c->f->ruled;

	if (c->opts)
		fci_iface_settle(c->f, &c->effect.opts.o, c->effect.ruled);
	if (c->fallback)
		fci_fallback_settle(c->f, c->effect.opts.fallback_on);
	if (c->chain)
		fci_chain_publish(c->f, c->chain);
	now->opts = c->effect.opts.o;
	now->ruled = c->effect.ruled;
	now->fallback_on = c->effect.opts.fallback_on;
	now->rules_node = rules_of(&c->effect);
}

static void give_up(struct change *c, uint32_t n)
{
	while (n-- > 0) /* the last one first */
		if (c[n].chain)
			fci_chain_drop(c[n].f, c[n].chain);
}

/* ---- all of them ------------------------------------------------------------------------------- */

/* Find what is to be changed and prepare it. changes hold those that differ. */
static int prepare_all(struct fc *fc, struct fc_iface *only, struct fci_doc *const *layers, struct change **ret, uint32_t *ret_n)
{
	struct change *all = NULL, *more;
	uint32_t n = 0, room = 0;
	struct fc_iface *f;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && (f = only ? only : fc_iface_at(fc, i)) != NULL; i++) {
		if (n == room) {
			room = room ? room * 2 : 8;
			more = realloc(all, room * sizeof(*all));
			if (!more) {
				rc = -ENOMEM;
				break;
			}
			all = more;
		}
		memset(&all[n], 0, sizeof(all[n]));
		all[n].f = f;
		(void)fci_effect_of(layers, f->name, &all[n].effect);
		rc = record(f) ? 0 : -ENOMEM;
		if (rc == 0 && differs(&all[n])) {
			rc = prepare(&all[n]);
			n++;
		}
		if (only)
			break;
	}
	*ret = all;
	*ret_n = n;
	return rc;
}

/* Rules that stay the same are those of another document now. */
static void repoint(struct fc *fc, struct fci_doc *const *layers)
{
	struct fci_effect e;
	struct fc_iface *f;

	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++) {
		(void)fci_effect_of(layers, f->name, &e);
		if (!f->ruled)
			continue;
		if (f->by_hand & FCI_HAND_CHAIN)
			f->ruled->rules_node = NULL;
		else
			f->ruled->rules_node = rules_of(&e);
	}
}

int fci_rules_set(struct fc *fc, struct fci_rules *r, struct fc_iface *f, int layer, struct fci_doc *d)
{
	struct fci_doc *layers[FCI_LAYERS];
	struct change *all;
	uint32_t n;
	int rc;

	memcpy(layers, r->layer, sizeof(layers));
	if (layer >= 0)
		layers[layer] = d;
	pthread_mutex_lock(&fc->setup);
	rc = prepare_all(fc, f, layers, &all, &n);
	if (rc == 0) {
		for (uint32_t i = 0; i < n; i++)
			commit(&all[i]);
		if (layer >= 0) {
			repoint(fc, layers);
			r->layer[layer] = d;
		}
		r->status.changed += n;
	} else {
		give_up(all, n);
	}
	fci_chain_reclaim(fc);
	pthread_mutex_unlock(&fc->setup);
	free(all);
	return rc < 0 ? rc : (int)n;
}

static void no_room(const char *file, int rc, struct fc_rules_error *err)
{
	struct fci_parse p = { .file = file, .err = err };

	if (!err->n)
		fci_rules_bad(&p, rc, (struct fci_mark){ 0 }, "cannot be put in force: %s; nothing was changed", fc_status_text(rc));
}

int fci_rules_apply(struct fc *fc, int layer, struct fci_doc *d, uint64_t ticket, struct fc_rules_error *err)
{
	struct fci_doc *from[FCI_LAYERS], *to[FCI_LAYERS], *old = NULL;
	struct fci_rules *r;
	int rc = -ENOMEM;

	pthread_mutex_lock(&fc->rules_mutex);
	r = fci_rules_of(fc);
	if (r && ticket < r->applied[layer]) { /* a later one is in force */
		fci_doc_leave(d);
		pthread_mutex_unlock(&fc->rules_mutex);
		return 0;
	}
	if (r) {
		memcpy(from, r->layer, sizeof(from));
		memcpy(to, r->layer, sizeof(to));
		to[layer] = d;
		rc = fci_rules_set_process(fc, from, to, err);
		if (rc == 0 && (rc = fci_rules_set(fc, r, NULL, layer, d)) < 0)
			(void)fci_rules_set_process(fc, to, from, NULL);
		if (rc >= 0) {
			old = from[layer];
			r->applied[layer] = ticket;
		}
	}
	if (rc < 0)
		no_room(d ? d->file : "rules", rc, err);
	fci_doc_leave(rc < 0 ? d : old);
	pthread_mutex_unlock(&fc->rules_mutex);
	return rc < 0 ? rc : 0;
}

/* ---- for the rest of the library --------------------------------------------------------------- */

uint32_t fci_ruled_opts(struct fc *fc, const char *name, struct fc_iface_opts *o)
{
	struct fci_rules *r = look(fc);
	struct fci_effect e;

	if (!r || !fci_effect_of(r->layer, name, &e))
		return FCI_CONFIG_UNRULED;
	*o = e.opts.o;
	return e.ruled ? 0 : FCI_CONFIG_UNRULED;
}

void fci_ruled_made(struct fc_iface *f)
{
	struct fci_rules *r = look(f->fc);
	struct change c = { .f = f };
	int rc = -ENOMEM;

	if (!r || !fci_effect_of(r->layer, f->name, &c.effect))
		return;
	if (record(f)) {
		(void)differs(&c);
		c.opts = 0; /* it was made with them, or by hand */
		rc = prepare(&c);
	}
	if (rc == 0)
		commit(&c);
	else
		fci_log(f->fc, FC_LOG_ERROR, "%s: its rules cannot be put in force: %s; it has its cap alone", f->name, fc_status_text(rc));
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t fci_rules_tick(struct fc *fc, uint64_t now)
{
	struct fci_rules *r = look(fc);
	uint64_t next;

	if (!r)
		return FC_NEVER_NS;
	if (pthread_mutex_trylock(&fc->rules_mutex) != 0)
		return now + FC_MS(10); /* a load is under way */
	next = fci_watch_tick(r, now);
	if (r->expiry_at <= now && pthread_mutex_trylock(&fc->setup) == 0) {
		fci_rules_expire(fc, r, now);
		pthread_mutex_unlock(&fc->setup);
	}
	if (r->expiry_at <= now)
		next = earlier(next, now + FC_MS(10)); /* somebody sets something up, for as long as that takes */
	else
		next = earlier(next, r->expiry_at);
	pthread_mutex_unlock(&fc->rules_mutex);
	return next;
}

void fci_rules_stop(struct fc *fc)
{
	fci_watch_stop(fc);
}

void fci_rules_free(struct fc *fc)
{
	struct fci_rules *r = look(fc);

	if (!r)
		return;
	for (int i = 0; i < FCI_LAYERS; i++)
		fci_doc_leave(r->layer[i]);
	fci_free(fc, r, sizeof(*r));
}

void fci_ruled_free(struct fc_iface *f)
{
	fci_free(f->fc, f->ruled, sizeof(*f->ruled));
}

void fci_rules_fork_child(struct fc *fc)
{
	struct fci_rules *r = look(fc);

	if (r)
		fci_watch_fork_child(r);
}
