/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_hand.c - what was set by hand, and for how long it holds; status. See rules.h. */
#include <errno.h>

#include "iface.h"
#include "ruled.h"
#include "rules.h"

/* The rules' record of what was by hand says nothing: all of it is set anew. */
static void forget(struct fc_iface *f, uint32_t hand)
{
	if (!f->ruled)
		return;
	if (hand & FCI_HAND_OPTS)
		f->ruled->opts.size = 0; /* none has that */
	if (hand & FCI_HAND_CHAIN)
		f->ruled->rules_node = NULL;
	if (hand & FCI_HAND_FALLBACK)
		f->ruled->fallback_on = 1; /* bit 0 is no reason */
}

/* A chain by hand, where rules have none to put in its place. */
static int empty_chain(struct fc_iface *f, uint32_t hand)
{
	struct fci_chain *c;
	int rc = 0;

	pthread_mutex_lock(&f->fc->setup);
	if ((hand & FCI_HAND_CHAIN) && (!f->ruled || !f->ruled->rules_node)) {
		rc = fci_chain_make(f, NULL, 0, &c);
		if (rc == 0)
			fci_chain_publish(f, c);
	}
	pthread_mutex_unlock(&f->fc->setup);
	return rc;
}

static int release_iface(struct fc *fc, struct fci_rules *r, struct fc_iface *f)
{
	uint32_t hand;
	uint64_t until;
	int rc;

	pthread_mutex_lock(&fc->setup);
	hand = f->by_hand;
	until = f->hand_until;
	f->by_hand = 0;
	f->hand_until = FC_NEVER_NS;
	if (!f->ruled && (f->ruled = fci_alloc(fc, sizeof(*f->ruled))) != NULL)
		f->ruled->fallback_on = FC_FALLBACK_DEFAULT;
	forget(f, hand);
	pthread_mutex_unlock(&fc->setup);
	rc = fci_rules_set(fc, r, f, -1, NULL);
	rc = rc < 0 ? rc : empty_chain(f, hand);
	if (rc < 0) { /* as it was */
		pthread_mutex_lock(&fc->setup);
		f->by_hand |= hand;
		f->hand_until = until;
		pthread_mutex_unlock(&fc->setup);
	}
	return rc;
}

int fci_rules_release(struct fc *fc, struct fc_iface *f)
{
	struct fci_rules *r = fci_rules_of(fc);
	struct fci_doc *none[FCI_LAYERS] = { NULL };
	uint32_t hand;
	int rc;

	if (!r)
		return -ENOMEM;
	if (f)
		return release_iface(fc, r, f);
	pthread_mutex_lock(&fc->setup);
	hand = fc->by_hand;
	fc->by_hand = 0;
	fc->hand_until = FC_NEVER_NS;
	pthread_mutex_unlock(&fc->setup);
	rc = (hand & FCI_HAND_SYSTEM) ? fci_system_set(fc, NULL, 0) : 0;
	if (rc == 0 && (hand & FCI_HAND_HEALTH))
		rc = fci_health_change(fc, NULL, 0);
	return rc < 0 ? rc : fci_rules_set_process(fc, none, r->layer, NULL);
}

/* Does an entry say of an interface what it does not get, because that was set by hand? fc->setup is held. */
static int is_kept(const struct fc_iface *f, const struct fci_entry_rules *e)
{
	const struct fci_key *k, *in;

	if ((f->by_hand & FCI_HAND_CHAIN) && e->rules_node)
		return 1;
	for (uint32_t i = 0; (k = fci_keys_row(fci_iface_keys, fci_n_iface_keys, i, &in)) != NULL; i++)
		if (e->opts.at[i].line && (f->by_hand & (k->field.type == FC_FIELD_REASONS ? FCI_HAND_FALLBACK : FCI_HAND_OPTS)))
			return 1;
	return 0;
}

uint32_t fci_rules_kept(struct fc *fc, const struct fci_rules *r, const char **ret_first)
{
	struct fci_effect e;
	struct fc_iface *f;
	uint32_t n = 0;

	*ret_first = "";
	pthread_mutex_lock(&fc->setup);
	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++) {
		if (!f->by_hand || !fci_effect_of(r->layer, f->name, &e) || !e.entry || !is_kept(f, e.entry))
			continue;
		if (!n++)
			*ret_first = f->name;
	}
	pthread_mutex_unlock(&fc->setup);
	return n;
}

/* Until when something set by hand holds; 0: nothing was. */
static uint64_t held_until(struct fc *fc, const struct fc_iface *f)
{
	uint64_t until;

	pthread_mutex_lock(&fc->setup);
	until = !(f ? f->by_hand : fc->by_hand) ? 0 : f ? f->hand_until : fc->hand_until;
	pthread_mutex_unlock(&fc->setup);
	return until;
}

/* One hold, if it is over; when it ends else, or when to try again. */
static uint64_t expire(struct fc *fc, struct fc_iface *f, uint64_t now)
{
	uint64_t until = held_until(fc, f);

	if (until == 0)
		return FC_NEVER_NS;
	if (until > now)
		return until;
	return fci_rules_release(fc, f) < 0 ? now + FC_S(1) : FC_NEVER_NS;
}

/* Holds that have ended, and when the next will. */
void fci_rules_expire(struct fc *fc, struct fci_rules *r, uint64_t now)
{
	uint64_t next = expire(fc, NULL, now), one;
	struct fc_iface *f;

	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++) {
		one = expire(fc, f, now);
		next = one < next ? one : next;
	}
	r->expiry_at = next;
}

static int hold(struct fc *fc, struct fci_rules *r, struct fc_iface *f, uint64_t ttl)
{
	uint64_t now = fci_clock_now(&fc->clock), until = ttl > UINT64_MAX - now ? FC_NEVER_NS : now + ttl;
	uint32_t hand;

	pthread_mutex_lock(&fc->setup);
	hand = f ? f->by_hand : fc->by_hand;
	if (hand && ttl)
		*(f ? &f->hand_until : &fc->hand_until) = until;
	pthread_mutex_unlock(&fc->setup);
	if (!hand)
		return -ENOENT;
	if (!ttl)
		return fci_rules_release(fc, f);
	if (until < r->expiry_at)
		r->expiry_at = until;
	return 0;
}

int fc_rules_hold(struct fc *fc, const char *name, uint64_t ttl_ns)
{
	struct fc_iface *f = NULL;
	struct fci_rules *r;
	int rc;

	if (!fci_fc_ok(fc) || !fc->seg)
		return -EINVAL;
	if (name && (f = fc_iface_find(fc, name)) == NULL)
		return -ENOENT;
	pthread_mutex_lock(&fc->rules_mutex);
	r = fci_rules_of(fc);
	rc = r ? hold(fc, r, f, ttl_ns) : -ENOMEM;
	pthread_mutex_unlock(&fc->rules_mutex);
	if (rc >= 0 && ttl_ns != 0)
		fci_wake(fc); /* housekeeping may sleep longer than that */
	return rc < 0 ? rc : 0;
}

int fc_rules_status(struct fc *fc, struct fc_rules_status *ret)
{
	struct fc_rules_status s = { .size = sizeof(s) };
	struct fci_rules *r;
	struct fc_iface *f;

	if (!fci_fc_ok(fc) || !fc->seg || !ret)
		return -EINVAL;
	pthread_mutex_lock(&fc->rules_mutex);
	r = fci_rules_of(fc);
	if (r) {
		s = r->status;
		s.watching = r->watch != NULL;
	}
	pthread_mutex_lock(&fc->setup);
	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++)
		s.held += f->by_hand != 0;
	pthread_mutex_unlock(&fc->setup);
	pthread_mutex_unlock(&fc->rules_mutex);
	return fci_opts_export(ret, &s, sizeof(s), sizeof(s));
}
