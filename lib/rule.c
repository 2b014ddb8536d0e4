/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rule.c - states of rules, memory that interfaces share, and interceptors by name. See rule.h.
 *
 * States that were in use are never given back: a rule that went and comes again finds its state. One that needs more
 * than it has gets a new piece of the arena, at least twice as large, so that what is left behind is
 * never more than what is in use. All of it is set-up: fc->setup is held.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "iface.h"
#include "rule.h"

#define SHARED_MAX 1024u /* names of what belongs to the context */

static struct fci_state *find_state(struct fc_iface *f, const struct fc_interceptor *ic, const char *name, uint32_t *ret_n)
{
	struct fci_state *st;

	*ret_n = 0;
	for (st = f->states; st; st = st->next, ++*ret_n)
		if (st->ic == ic && !strcmp(st->name, name))
			break;
	return st;
}

struct fci_state *fci_state_get(struct fc_iface *f, const struct fc_interceptor *ic, const char *name, int *ret_error)
{
	uint32_t n;
	struct fci_state *st = find_state(f, ic, name, &n);

	if (st)
		return st;
	*ret_error = -ENOSPC;
	if (n >= (f->pass_through ? SHARED_MAX : FCI_STATES_MAX))
		return NULL;
	*ret_error = -ENOMEM;
	st = fci_alloc(f->fc, sizeof(*st));
	if (!st)
		return NULL;
	st->ic = ic;
	snprintf(st->name, sizeof(st->name), "%s", name);
	st->next = f->states;
	f->states = st;
	return st;
}

int fci_state_prepare(struct fc_iface *f, const struct fci_state *st, uint64_t bytes, struct fc_setup *s)
{
	uint64_t off, taken, want = bytes;

	s->first = st->memory == NULL;
	s->state = st->memory;
	s->state_bytes = st->bytes;
	if (bytes <= st->bytes)
		return 0;
	if (st->bytes && want < st->bytes * 2)
		want = st->bytes * 2;
	taken = (want + FC_STATE_ALIGN + FCI_CACHELINE - 1) & ~(uint64_t)(FCI_CACHELINE - 1);
	off = fci_arena_take(f->fc, taken);
	if (!off)
		return -ENOSPC;
	f->fc->taken += taken;
	off = (off + FC_STATE_ALIGN - 1) & ~(uint64_t)(FC_STATE_ALIGN - 1);
	s->was = st->memory;
	s->was_bytes = st->bytes;
	s->state = FCI_AT(f->fc, off, void);
	s->state_bytes = want;
	s->first = 1;
	return 0;
}

void fci_state_commit(struct fci_state *st, void *memory, uint64_t bytes)
{
	st->memory = memory;
	st->bytes = bytes;
}

void fci_states_mark(const struct fc_iface *f, struct fci_before *ret)
{
	*ret = (struct fci_before){ f->states, f->fc->pass->states, fci_arena_used(f->fc), f->fc->taken };
}

static void free_newer(struct fc *fc, struct fci_state **list, const struct fci_state *than)
{
	struct fci_state *st;

	while ((st = *list) != than) {
		*list = st->next;
		fci_free(fc, st, sizeof(*st));
	}
}

void fci_states_undo(struct fc_iface *f, const struct fci_before *before)
{
	struct fc *fc = f->fc;

	free_newer(fc, &f->states, before->own);
	free_newer(fc, &fc->pass->states, before->shared);
	fci_arena_give(fc, before->arena, fc->taken - before->taken);
	fc->taken = before->taken;
}

void fci_states_forked(struct fc_iface *f)
{
	if (fc_interceptor_cap.forked && f->cap_state)
		fc_interceptor_cap.forked(f->cap_state);
	for (struct fci_state *st = f->states; st; st = st->next)
		if (st->ic && st->ic->forked && st->memory)
			st->ic->forked(st->memory);
}

void fci_states_free(struct fc *fc, struct fc_iface *f)
{
	struct fci_state *st, *next;

	for (st = f->states; st; st = next) {
		next = st->next;
		fci_free(fc, st, sizeof(*st));
	}
}

/* ---- for setup() ------------------------------------------------------------------------------- */

void *fc_iface_alloc(struct fc_iface *f, uint64_t bytes)
{
	return fci_iface_real(f) ? fci_alloc(f->fc, bytes) : NULL;
}

void fc_iface_free(struct fc_iface *f, void *p, uint64_t bytes)
{
	if (p)
		fci_free(f->fc, p, bytes);
}

/* The context's own handle keeps what belongs to no interface. fc->setup is held. */
static void *shared(struct fc *fc, const char *name, uint64_t bytes, int *ret_first)
{
	struct fc_setup s = { 0 };
	struct fci_before before;
	struct fci_state *st;
	int error;

	*ret_first = 0;
	if (!name || !*name || strlen(name) > FC_RULE_NAME_MAX || bytes == 0 || bytes > FC_STATE_MAX)
		return NULL;
	fci_states_mark(fc->pass, &before);
	st = fci_state_get(fc->pass, NULL, name, &error);
	if (!st || (st->memory && st->bytes < bytes) || fci_state_prepare(fc->pass, st, bytes, &s) < 0) {
		fci_states_undo(fc->pass, &before);
		return NULL;
	}
	fci_state_commit(st, s.state, s.state_bytes);
	*ret_first = (int)s.first;
	return s.state;
}

void *fc_iface_shared(struct fc_iface *f, const char *name, uint64_t bytes, int *ret_first)
{
	return fci_iface_real(f) ? shared(f->fc, name, bytes, ret_first) : NULL;
}

void *fc_shared(struct fc *fc, const char *name, uint64_t bytes, int *ret_first)
{
	void *p;

	if (!fci_fc_ok(fc))
		return NULL;
	pthread_mutex_lock(&fc->setup);
	p = shared(fc, name, bytes, ret_first);
	pthread_mutex_unlock(&fc->setup);
	return p;
}

void *fc_shared_find(struct fc *fc, const char *name)
{
	struct fci_state *st;
	uint32_t n;

	if (!fci_fc_ok(fc) || !name)
		return NULL;
	pthread_mutex_lock(&fc->setup);
	st = find_state(fc->pass, NULL, name, &n);
	pthread_mutex_unlock(&fc->setup);
	return st ? st->memory : NULL;
}

void fc_log(struct fc *fc, int level, const char *format, ...)
{
	char text[256];
	va_list ap;

	if (!fci_fc_ok(fc))
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	fci_log(fc, level, "%s", text);
}

void fc_iface_log(struct fc_iface *f, const char *rule, const char *format, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	fci_log(f->fc, FC_LOG_ERROR, "%s: %s: %s", f->name, rule, text);
}

/* ---- by name ----------------------------------------------------------------------------------- */

#define REGISTERED_MAX 64

static const struct fc_interceptor *const own[] = {
	&fc_interceptor_cap, &fc_interceptor_isolate, &fc_interceptor_priority, &fc_interceptor_rate,
	&fc_interceptor_access, &fc_interceptor_keyed, &fc_interceptor_breaker, &fc_interceptor_degrade,
	&fc_interceptor_adaptive,
};
static const struct fc_interceptor *registered[REGISTERED_MAX];
static uint32_t n_registered;
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;

void fci_registry_lock(void)
{
	pthread_mutex_lock(&registry);
}

void fci_registry_unlock(void)
{
	pthread_mutex_unlock(&registry);
}

static const struct fc_interceptor *find(const char *name)
{
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (!strcmp(own[i]->name, name))
			return own[i];
	for (uint32_t i = 0; i < n_registered; i++)
		if (!strcmp(registered[i]->name, name))
			return registered[i];
	return NULL;
}

const struct fc_interceptor *fc_interceptor_find(const char *name)
{
	const struct fc_interceptor *ic;

	if (!name)
		return NULL;
	pthread_mutex_lock(&registry);
	ic = find(name);
	pthread_mutex_unlock(&registry);
	return ic;
}

int fc_interceptor_register(const struct fc_interceptor *ic)
{
	int rc = 0;

	if (!ic || ic->size < sizeof(*ic) || !ic->name || !*ic->name || strlen(ic->name) > FC_RULE_NAME_MAX)
		return -EINVAL;
	pthread_mutex_lock(&registry);
	if (find(ic->name))
		rc = find(ic->name) == ic ? 0 : -EEXIST;
	else if (n_registered == REGISTERED_MAX)
		rc = -ENOSPC;
	else
		registered[n_registered++] = ic;
	pthread_mutex_unlock(&registry);
	return rc;
}
