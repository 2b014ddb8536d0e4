/* SPDX-License-Identifier: BSD-2-Clause */
/* iface.c - making interfaces, changing their numbers, handles. See fcguard/iface.h. */
#include <errno.h>
#include <stdio.h>

#include "async.h"
#include "chain.h"
#include "check.h"
#include "entry.h"
#include "fallback.h"
#include "iface.h"
#include "rule.h"
#include "ruled.h"
#include "limit.h"
#include "wait.h"

#define OPTS_V1_BYTES   sizeof(struct fc_iface_opts)
#define OBSERVED_SLOTS  64u
#define WAIT_TIMEOUT_NS FC_MS(100)
#define CHECK_EVERY_NS  FC_MS(10)
#define RETRY_AFTER_NS  FC_MS(10)

/* ---- options ----------------------------------------------------------------------------------- */

static int bad(struct fc *fc, const char *name, int error, const char *what, uint64_t found, const char *allowed)
{
	fci_log(fc, FC_LOG_ERROR, "%s: %s: %llu; allowed: %s", name, what, (unsigned long long)found, allowed);
	return error;
}

static int check_opts(struct fc *fc, const char *name, const struct fc_iface_opts *o)
{
	if (o->flags & ~(uint32_t)(FC_IFACE_DRY_RUN | FC_IFACE_OFF | FC_IFACE_OUTBOUND))
		return bad(fc, name, -EINVAL, "flags", o->flags, "FC_IFACE_DRY_RUN, FC_IFACE_OFF, FC_IFACE_OUTBOUND");
	if (o->cap > FC_CAP_MAX && o->cap < FC_CAP_REFUSE_ALL)
		return bad(fc, name, -EINVAL, "cap", o->cap, "1 to 65536, FC_CAP_REFUSE_ALL, FC_UNLIMITED");
	if (o->max_cap > FC_CAP_MAX)
		return bad(fc, name, -EINVAL, "max_cap", o->max_cap, "up to 65536");
	if (o->expand > 4)
		return bad(fc, name, -EINVAL, "expand", o->expand, "1 to 4");
	if (o->expand_keep > FC_EXPAND_KEEP_HEALTH)
		return bad(fc, name, -EINVAL, "expand_keep", o->expand_keep, "enum fc_expand_keep");
	if (o->wait_max > FC_WAITERS_MAX)
		return bad(fc, name, -EINVAL, "wait_max", o->wait_max, "up to 256");
	if (o->wait_order > FC_WAIT_FIFO)
		return bad(fc, name, -EINVAL, "wait_order", o->wait_order, "enum fc_wait_order");
	if (o->max_weight > FC_WEIGHT_MAX)
		return bad(fc, name, -EINVAL, "max_weight", o->max_weight, "up to 1024");
	if (o->latency > FC_LATENCY_OFF)
		return bad(fc, name, -EINVAL, "latency", o->latency, "enum fc_latency_mode");
	if (o->on_fault > FC_FAIL_CLOSED)
		return bad(fc, name, -EINVAL, "on_fault", o->on_fault, "enum fc_on_fault");
	if (o->importance > 7)
		return bad(fc, name, -EINVAL, "importance", o->importance, "0 to 7");
	if (o->resv)
		return bad(fc, name, -EINVAL, "resv", o->resv, "0");
	return 0;
}

/* What follows from the cap unless it is given; not filled in, so that it follows the next cap, too. */
static uint32_t max_cap_of(const struct fc_iface_opts *o)
{
	return o->max_cap ? o->max_cap : o->cap >= FC_CAP_REFUSE_ALL ? 1 : o->cap;
}

static uint32_t writeoff_of(const struct fc_iface_opts *o)
{
	uint32_t cap = o->cap >= FC_CAP_REFUSE_ALL ? 0 : o->cap;

	if (o->writeoff == FC_WRITEOFF_NONE || cap == 0)
		return 0;
	if (o->writeoff == 0)
		return cap / 10;
	cap = o->writeoff < cap ? o->writeoff : cap;
	return cap < FCI_WRITEOFF_MAX ? cap : FCI_WRITEOFF_MAX;
}

/* Zeros become the defaults, but for what follows from the cap. */
static void fill_opts(struct fc *fc, struct fc_iface_opts *o)
{
	if (o->cap == 0)
		o->cap = fc->default_cap ? fc->default_cap : FC_UNLIMITED;
	if (o->expand == 0)
		o->expand = 4;
	if (o->expand_keep == 0)
		o->expand_keep = FC_EXPAND_KEEP_EVIDENCE;
	if (o->wait_order == 0)
		o->wait_order = FC_WAIT_LIFO;
	if (o->max_weight == 0)
		o->max_weight = FC_WEIGHT_MAX;
	if (o->latency == 0)
		o->latency = FC_LATENCY_SAMPLED;
	if (o->on_fault == 0)
		o->on_fault = fc->on_fault;
	if (o->stuck_after_ns == 0)
		o->stuck_after_ns = fc->stuck_after_ns;
	if (o->writeoff_after_ns == 0)
		o->writeoff_after_ns = o->stuck_after_ns > UINT64_MAX / 4 ? UINT64_MAX : 4 * o->stuck_after_ns;
	if (o->wait_timeout_ns == 0)
		o->wait_timeout_ns = o->wait_max ? WAIT_TIMEOUT_NS : 0;
	if (o->check_every_ns == 0)
		o->check_every_ns = CHECK_EVERY_NS;
}

static uint32_t limit_of(const struct fc_iface *f, uint32_t cap)
{
	if (cap == FC_UNLIMITED)
		return fci_slots(f);
	return cap == FC_CAP_REFUSE_ALL ? 0 : cap;
}

static uint64_t gate_flags(const struct fc_iface_opts *o)
{
	return (o->flags & FC_IFACE_DRY_RUN ? FCI_GATE_DRY_RUN : 0) | (o->flags & FC_IFACE_OFF ? FCI_GATE_OFF : 0) |
	       (o->cap == FC_UNLIMITED ? FCI_GATE_UNRULED : 0) | (o->wait_max ? FCI_GATE_WAITS : 0);
}

/* N1: settings. */
void fci_iface_choose_clock(struct fc_iface *f)
{
	int exact = f->fine || atomic_load_explicit(&f->block->config.latency, FCI_RLX) == FC_LATENCY_EXACT;

	atomic_store_explicit(&f->clock, exact ? fci_clock_exact(&f->fc->clock) : fci_clock_coarse(&f->fc->clock), FCI_RLX);
}

/* N1: numbers, each true by itself; new calls see them soon. */
static void store_config(struct fc_iface *f, const struct fc_iface_opts *o, uint32_t extra)
{
	struct fci_config *c = &f->block->config;

	atomic_store_explicit(&c->cap, o->cap == FC_CAP_REFUSE_ALL ? 0 : o->cap, FCI_RLX);
	atomic_store_explicit(&c->flags, o->flags | extra, FCI_RLX);
	atomic_store_explicit(&c->expand, o->expand, FCI_RLX);
	atomic_store_explicit(&c->expand_keep, o->expand_keep, FCI_RLX);
	atomic_store_explicit(&c->writeoff, writeoff_of(o), FCI_RLX);
	atomic_store_explicit(&c->wait_max, o->wait_max, FCI_RLX);
	atomic_store_explicit(&c->wait_order, o->wait_order, FCI_RLX);
	atomic_store_explicit(&c->max_weight, o->max_weight, FCI_RLX);
	atomic_store_explicit(&c->latency, o->latency, FCI_RLX);
	atomic_store_explicit(&c->on_fault, o->on_fault, FCI_RLX);
	atomic_store_explicit(&c->importance, o->importance, FCI_RLX);
	atomic_store_explicit(&c->max_cap, max_cap_of(o), FCI_RLX);
	atomic_store_explicit(&c->writeoff_asked, o->writeoff, FCI_RLX);
	atomic_store_explicit(&c->max_cap_asked, o->max_cap, FCI_RLX);
	atomic_store_explicit(&c->stuck_after_ns, o->stuck_after_ns, FCI_RLX);
	atomic_store_explicit(&c->writeoff_after_ns, o->writeoff_after_ns, FCI_RLX);
	atomic_store_explicit(&c->wait_timeout_ns, o->wait_timeout_ns, FCI_RLX);
	atomic_store_explicit(&c->check_every_ns, o->check_every_ns, FCI_RLX);
	if (o->latency == FC_LATENCY_EXACT)
		atomic_store_explicit(&f->gate->sample, UINT64_MAX, FCI_RLX);
	atomic_store_explicit(&f->exact, o->latency == FC_LATENCY_SAMPLED ? 0 : o->latency, FCI_RLX);
	fci_iface_choose_clock(f);
}

/* ---- making ------------------------------------------------------------------------------------ */

/* Groups: a power of two, no more than CPUs nor places. */
static uint32_t group_bits(uint32_t ncpus, uint32_t cap)
{
	uint32_t bits = 0, most = cap < FCI_GROUPS_MAX ? cap : FCI_GROUPS_MAX;

	while ((1u << bits) < ncpus && (2u << bits) <= most)
		bits++;
	return bits;
}

/* Elements for `n` written-off calls; those that are in use stay where they are. fc->setup is held. */
static int make_writeoffs(struct fc_iface *f, uint32_t n)
{
	struct fci_block *b = f->block;

	if (n <= b->n_writeoffs)
		return 0;
	for (uint32_t p = 0; p < FCI_WRITEOFF_PARTS && FCI_WRITEOFF_FIRST(p) < n; p++) {
		if (!b->writeoffs[p])
			b->writeoffs[p] = fci_arena_take(f->fc, FCI_WRITEOFF_IN(p) * sizeof(struct fci_writeoff));
		if (!b->writeoffs[p])
			return -ENOSPC;
		if (!f->writeoffs_off[p]) /* once: others read those that are counted already */
			f->writeoffs_off[p] = b->writeoffs[p];
	}
	b->n_writeoffs = n;
	/* R2 -> A3 (fci_writeoffs): the table is there. */
	atomic_store_explicit(&f->n_writeoffs, n, FCI_REL);
	return 0;
}

/*
 * Waiters and write-offs, when a rule first wants them: room for as many waiters as there may be, and
 * for the budget of the largest cap foreseen. fc->setup is held.
 */
static int make_tables(struct fc_iface *f, const struct fc_iface_opts *o)
{
	struct fci_block *b = f->block;
	uint32_t writeoffs = writeoff_of(o), foreseen = max_cap_of(o) / 10;
	int rc;

	if (writeoffs) {
		rc = make_writeoffs(f, writeoffs > foreseen ? writeoffs : foreseen);
		if (rc < 0)
			return rc;
	}
	if (o->wait_max && !b->n_waiters) {
		b->waiters = fci_arena_take(f->fc, (uint64_t)FC_WAITERS_MAX * sizeof(struct fci_waiter));
		if (!b->waiters)
			return -ENOSPC;
		b->n_waiters = FC_WAITERS_MAX;
		f->waiters_off = b->waiters;
		/* R3 -> A4 (fci_waiters): the table is there. */
		atomic_store_explicit(&f->n_waiters, FC_WAITERS_MAX, FCI_REL);
	}
	return 0;
}

/* The block and its groups, in the segment. 0 or -ENOSPC. */
static int make_block(struct fc *fc, const char *name, const struct fc_iface_opts *o, uint32_t index, uint64_t *ret_off)
{
	uint32_t places = o->cap >= FC_CAP_REFUSE_ALL ? OBSERVED_SLOTS : max_cap_of(o) > o->cap ? o->max_cap : o->cap;
	uint32_t bits = group_bits(fc->geo.ncpus, places);
	uint64_t off = fci_arena_take(fc, sizeof(struct fci_block));
	struct fci_block *b;

	if (!off)
		return -ENOSPC;
	b = FCI_AT(fc, off, struct fci_block);
	b->group_bits = bits;
	b->t_words = ((1u << bits) - 1) / FCI_HINTS;
	b->groups = fci_arena_take(fc, ((uint64_t)1 << bits) * sizeof(struct fci_group));
	b->cap_state = fci_arena_take(fc, fc_interceptor_cap.state_bytes);
	if (!b->groups || !b->cap_state)
		return -ENOSPC;
	snprintf(b->name, sizeof(b->name), "%s", name);
	/* N2: nobody sees the block yet. */
	atomic_store_explicit(&b->gate.sample, UINT64_MAX, FCI_RLX);
	atomic_store_explicit(&b->rare.sample_exact, UINT64_MAX, FCI_RLX);
	atomic_store_explicit(&b->gate.sample_refused, UINT64_MAX, FCI_RLX);
	atomic_store_explicit(&b->gate.retry_after_ns, RETRY_AFTER_NS, FCI_RLX);
	atomic_store_explicit(&b->gate.word, FCI_GATE_ASLEEP, FCI_RLX);
	FCI_AT(fc, fc->geo.blocks, uint64_t)[index] = off;
	*ret_off = off;
	return 0;
}

/* The handle over a block: geometry is copied here and never read again. */
static void attach(struct fc_iface *f, struct fc *fc, uint64_t off, uint32_t index)
{
	struct fci_block *b = FCI_AT(fc, off, struct fci_block);

	f->magic = FCI_IFACE_MAGIC;
	f->fc = fc;
	f->serial = fc->serial;
	f->block = b;
	f->gate = &b->gate;
	f->index = index;
	f->group_bits = b->group_bits;
	f->group_mask = (1u << b->group_bits) - 1;
	f->t_words = b->t_words;
	f->groups = FCI_AT(fc, b->groups, struct fci_group);
	f->cap_state = FCI_AT(fc, b->cap_state, void);
	f->counters = fc->percpu;
	f->counters.base += (size_t)index * sizeof(struct fci_counters);
	/* N1: the process number. */
	atomic_store_explicit(&f->owner, fc->owner << 3, FCI_RLX);
	snprintf(f->name, sizeof(f->name), "%s", b->name);
}

static void attach_slots(struct fc_iface *f)
{
	fci_extents_attach(f);
	f->words = FCI_AT(f->fc, f->extent[0].words, fci_a64);
	f->records = FCI_AT(f->fc, f->extent[0].records, struct fci_record);
	f->slots0 = f->extent[0].slots;
	f->t0_none = f->t_words ? 0x55555555u : (uint32_t)fci_t_none(f, 0); /* 01 is no hint */
}

static int full(struct fc *fc, const char *name, int rc)
{
	if (rc == -ENOSPC)
		fci_log(fc, FC_LOG_ERROR, "%s: no room: %u of %u interfaces, %llu of %llu bytes of the segment", name,
		        atomic_load_explicit(&fc->n_ifaces, FCI_RLX), fc->geo.max_ifaces, /* N3: for the text */
		        (unsigned long long)fci_arena_used(fc), (unsigned long long)fc->geo.bytes);
	return rc;
}

/* A new interface; fc->setup is held, the name is good and unknown. */
static int make(struct fc *fc, const char *name, const struct fc_iface_opts *o, uint32_t extra, struct fc_iface **ret)
{
	/* N3: fc->setup is held. */
	uint32_t index = atomic_load_explicit(&fc->n_ifaces, FCI_RLX), slots;
	struct fc_iface *f;
	uint64_t off;
	int rc;

	if (index >= fc->geo.max_ifaces)
		return full(fc, name, -ENOSPC);
	f = fci_alloc(fc, sizeof(*f));
	if (!f)
		return -ENOMEM;
	rc = make_block(fc, name, o, index, &off);
	if (rc == 0) {
		attach(f, fc, off, index);
		slots = o->cap >= FC_CAP_REFUSE_ALL ? OBSERVED_SLOTS : o->cap;
		rc = make_tables(f, o);
		rc = rc < 0 ? rc : fci_extents_grow(f, slots);
	}
	if (rc == 0) {
		attach_slots(f);
		store_config(f, o, extra);
		/* CONTROL: the first call looks at the context's word, and clears the flag. */
		fci_gate_set(f, gate_flags(o) | FCI_GATE_CONTROL, 0);
		/* N6: a switch. */
		if (atomic_load_explicit(&fc->draining, FCI_SC))
			fci_gate_set(f, FCI_GATE_DRAINING, 0);
		fci_limit_change(f, limit_of(f, o->cap));
		fci_hints_reset(f);
		rc = fci_names_add(fc, f);
	}
	if (rc < 0) {
		fci_free(fc, f, sizeof(*f));
		return full(fc, name, rc);
	}
	fc->ifaces[index] = f;
	/* R1 -> A1 (fc_iface_at): the handle is complete. */
	atomic_store_explicit(&fc->head->n_ifaces, index + 1, FCI_REL);
	atomic_store_explicit(&fc->n_ifaces, index + 1, FCI_REL);
	*ret = f;
	return 0;
}

/* The same cap again: is what the limit was expanded to still allowed? Then it stays. */
static int keeps_limit(const struct fc_iface *f, const struct fc_iface_opts *o, uint32_t old)
{
	uint32_t limit = fc_limit_get(f);

	return o->cap < FC_CAP_REFUSE_ALL && o->cap == old && limit >= o->cap && limit <= o->cap * o->expand;
}

/* Room for these numbers, with the defaults filled in. 0, or -ENOSPC and nothing has changed. */
static int make_room(struct fc_iface *f, const struct fc_iface_opts *o)
{
	uint32_t cap = o->cap >= FC_CAP_REFUSE_ALL ? 0 : o->cap;
	int rc = make_tables(f, o);

	if (rc == 0 && cap > fci_slots(f))
		rc = fci_extents_grow(f, cap);
	return rc < 0 ? full(f->fc, f->name, rc) : 0;
}

/* New numbers for a known interface; extra: FCI_CONFIG_*. fc->setup is held. */
static int change(struct fc_iface *f, const struct fc_iface_opts *o, uint32_t extra)
{
	uint32_t old = fci_iface_cap(f);
	uint64_t flags = gate_flags(o);
	int rc = make_room(f, o);

	if (rc < 0)
		return rc;
	store_config(f, o, extra);
	/* N3: fc->setup is held: nobody else changes these flags. A dry run may leave calls over the limit:
	 * whoever counts none of them clears DRAIN. */
	if (atomic_load_explicit(&f->gate->word, FCI_RLX) & ~flags & FCI_GATE_DRY_RUN)
		flags |= FCI_GATE_DRAIN;
	fci_gate_set(f, flags, (FCI_GATE_DRY_RUN | FCI_GATE_OFF | FCI_GATE_UNRULED | FCI_GATE_WAITS) & ~flags);
	if (flags & (FCI_GATE_OFF | FCI_GATE_DRY_RUN))
		fci_wait_look_again(f);
	/* The same limit again raises the version: who decided by the rule of before finds it out. */
	fci_limit_change(f, keeps_limit(f, o, old) ? fc_limit_get(f) : limit_of(f, o->cap));
	if (old != fci_iface_cap(f))
		fc_event_note(f, FC_EVENT_CAP_CHANGED, old, fci_iface_cap(f));
	return 0;
}

/* It is by hand now what it is, until that is released. fc->setup is held. */
static void by_hand(struct fc_iface *f, uint32_t what)
{
	f->by_hand |= what;
	f->hand_until = FC_NEVER_NS;
}

int fci_iface_room(struct fc_iface *f, const struct fc_iface_opts *opts)
{
	struct fc_iface_opts o = *opts;

	fill_opts(f->fc, &o);
	return make_room(f, &o);
}

void fci_iface_settle(struct fc_iface *f, const struct fc_iface_opts *opts, int ruled)
{
	struct fc_iface_opts o = *opts;

	fill_opts(f->fc, &o);
	(void)change(f, &o, ruled ? 0 : FCI_CONFIG_UNRULED);
}

int fc_iface_set(struct fc *fc, const char *name, const struct fc_iface_opts *opts, struct fc_iface **ret)
{
	struct fc_iface_opts o;
	struct fc_iface *f = NULL;
	int rc, is_new;

	if (!fci_fc_ok(fc) || !fc->seg)
		return -EINVAL;
	rc = fci_name_check(name);
	if (rc < 0) {
		fci_log(fc, FC_LOG_ERROR, "interface name: %s; allowed: 1 to %d bytes of UTF-8, no control characters",
		        rc == -EILSEQ ? "not UTF-8" : rc == -ENAMETOOLONG ? "too long" : "empty or with a control character", FC_NAME_MAX);
		return rc;
	}
	rc = fci_opts_import(&o, sizeof(o), OPTS_V1_BYTES, opts);
	if (rc < 0)
		return bad(fc, name, rc, "size of fc_iface_opts", opts ? opts->size : 0, "that of this library's header, or a tail of zeros");
	rc = check_opts(fc, name, &o);
	if (rc < 0)
		return rc;
	fill_opts(fc, &o);
	pthread_mutex_lock(&fc->setup);
	f = fci_names_find(fc, name);
	is_new = !f;
	rc = f ? change(f, &o, 0) : make(fc, name, &o, 0, &f);
	if (rc == 0)
		by_hand(f, FCI_HAND_OPTS);
	if (rc == 0 && is_new)
		fci_ruled_made(f);
	pthread_mutex_unlock(&fc->setup);
	if (rc == 0 && ret)
		*ret = f;
	return rc;
}

/* ---- finding ----------------------------------------------------------------------------------- */

static FCI_COLD struct fc_iface *pass_through(struct fc *fc, const char *name, int error)
{
	/* N4: a statistic. */
	if (atomic_fetch_add_explicit(&fc->faults, 1, FCI_RLX) == 0)
		fci_log(fc, FC_LOG_ERROR, "interface \"%.40s\": %s: its calls are %s (told once)", name ? name : "",
		        fc_status_text(error), fc->on_fault == FC_FAIL_CLOSED ? "refused" : "not guarded");
	return fc->pass;
}

struct fc_iface *fc_iface_get(struct fc *fc, const char *name)
{
	struct fc_iface_opts o = { .size = sizeof(o) };
	struct fc_iface *f;
	int rc = 0;

	if (!fci_fc_ok(fc))
		return fc_default()->pass;
	if (!fc->seg || (rc = fci_name_check(name)) < 0)
		return pass_through(fc, name, fc->seg ? rc : -ENOMEM);
	f = fci_names_find(fc, name);
	if (fci_likely(f != NULL))
		return f;
	pthread_mutex_lock(&fc->setup);
	f = fci_names_find(fc, name);
	if (!f) {
		uint32_t unruled = fci_ruled_opts(fc, name, &o);

		fill_opts(fc, &o);
		rc = make(fc, name, &o, unruled, &f);
		if (rc == 0)
			fci_ruled_made(f);
	}
	pthread_mutex_unlock(&fc->setup);
	return rc == 0 ? f : pass_through(fc, name, rc);
}

struct fc_iface *fc_iface_find(struct fc *fc, const char *name)
{
	return fci_fc_ok(fc) && fc->seg && name ? fci_names_find(fc, name) : NULL;
}

struct fc_iface *fc_iface_at(struct fc *fc, uint32_t i)
{
	/* A1 -> R1 (make). */
	if (!fci_fc_ok(fc) || i >= atomic_load_explicit(&fc->n_ifaces, FCI_ACQ))
		return NULL;
	return fc->ifaces[i];
}

const char *fc_iface_name(const struct fc_iface *f)
{
	return fci_iface_ok(f) ? f->name : "?";
}

struct fc *fc_iface_context(const struct fc_iface *f)
{
	return fci_iface_ok(f) ? f->fc : NULL;
}

/* ---- changing ---------------------------------------------------------------------------------- */

/* As asked for. N1: as store_config. */
static void opts_of(const struct fc_iface *f, struct fc_iface_opts *o)
{
	const struct fci_config *c = &f->block->config;

	*o = (struct fc_iface_opts){ .size = sizeof(*o) };
	o->flags = atomic_load_explicit(&c->flags, FCI_RLX) & (FC_IFACE_DRY_RUN | FC_IFACE_OFF | FC_IFACE_OUTBOUND);
	o->cap = atomic_load_explicit(&c->cap, FCI_RLX);
	o->max_cap = atomic_load_explicit(&c->max_cap_asked, FCI_RLX);
	o->expand = atomic_load_explicit(&c->expand, FCI_RLX);
	o->expand_keep = atomic_load_explicit(&c->expand_keep, FCI_RLX);
	o->writeoff = atomic_load_explicit(&c->writeoff_asked, FCI_RLX);
	o->wait_max = atomic_load_explicit(&c->wait_max, FCI_RLX);
	o->wait_order = atomic_load_explicit(&c->wait_order, FCI_RLX);
	o->max_weight = atomic_load_explicit(&c->max_weight, FCI_RLX);
	o->latency = atomic_load_explicit(&c->latency, FCI_RLX);
	o->on_fault = atomic_load_explicit(&c->on_fault, FCI_RLX);
	o->importance = atomic_load_explicit(&c->importance, FCI_RLX);
	o->stuck_after_ns = atomic_load_explicit(&c->stuck_after_ns, FCI_RLX);
	o->writeoff_after_ns = atomic_load_explicit(&c->writeoff_after_ns, FCI_RLX);
	o->wait_timeout_ns = atomic_load_explicit(&c->wait_timeout_ns, FCI_RLX);
	o->check_every_ns = atomic_load_explicit(&c->check_every_ns, FCI_RLX);
	if (o->cap == 0)
		o->cap = FC_CAP_REFUSE_ALL;
}

int fc_iface_get_opts(const struct fc_iface *f, struct fc_iface_opts *ret)
{
	struct fc_iface_opts o;

	if (!fci_iface_real(f) || !ret)
		return -EINVAL;
	opts_of(f, &o);
	o.max_cap = max_cap_of(&o);
	o.writeoff = writeoff_of(&o) ? writeoff_of(&o) : FC_WRITEOFF_NONE;
	return fci_opts_export(ret, &o, sizeof(o), OPTS_V1_BYTES);
}

/* One field of the options, by name, as fc_iface_set would. N1: settings. */
static int set_again(struct fc_iface *f, uint32_t cap, int change_cap, uint32_t set, uint32_t clear)
{
	struct fc_iface_opts o;
	int rc;

	if (!fci_iface_real(f))
		return -EINVAL;
	pthread_mutex_lock(&f->fc->setup);
	opts_of(f, &o);
	o.flags = (o.flags | set) & ~clear;
	if (change_cap) {
		o.cap = cap == 0 ? FC_CAP_REFUSE_ALL : cap;
		rc = check_opts(f->fc, f->name, &o);
	} else {
		rc = 0;
	}
	if (rc == 0) /* a switch makes no rule of an interface that has none; a cap does */
		rc = change(f, &o, change_cap ? 0 : atomic_load_explicit(&f->block->config.flags, FCI_RLX) & FCI_CONFIG_UNRULED);
	if (rc == 0)
		by_hand(f, FCI_HAND_OPTS);
	pthread_mutex_unlock(&f->fc->setup);
	return rc;
}

int fc_iface_set_cap(struct fc_iface *f, uint32_t cap)
{
	return set_again(f, cap, 1, 0, 0);
}

int fc_iface_set_dry_run(struct fc_iface *f, int on)
{
	return set_again(f, 0, 0, on ? FC_IFACE_DRY_RUN : 0, on ? 0 : FC_IFACE_DRY_RUN);
}

int fc_iface_set_off(struct fc_iface *f, int on)
{
	return set_again(f, 0, 0, on ? FC_IFACE_OFF : 0, on ? 0 : FC_IFACE_OFF);
}

int fc_iface_inject(struct fc_iface *f, int status, uint32_t count)
{
	if (!fci_iface_real(f) || (count && status == 0))
		return -EINVAL;
	/* N5: for tests; new calls see it soon. */
	atomic_store_explicit(&f->block->rare.inject, (uint64_t)(uint32_t)status << 32 | count, FCI_RLX);
	fci_gate_set(f, count ? FCI_GATE_INJECT : 0, count ? 0 : FCI_GATE_INJECT);
	return 0;
}

/* ---- for the rest of the library --------------------------------------------------------------- */

FCI_COLD void fci_iface_wake(struct fc_iface *f)
{
	fci_gate_set(f, 0, FCI_GATE_ASLEEP);
	/* X1 -> X1 (begin_pass, tick.c): whoever finds housekeeping asleep wakes it, once. SC with its
	 * look at the flags. */
	if (atomic_exchange_explicit(&f->fc->idle, 0, FCI_SC))
		fci_wake(f->fc);
}

int fci_iface_grow(struct fc_iface *f)
{
	/* A2 -> X3 (fci_gate_set): under this gate or not at all. */
	uint64_t gate = atomic_load_explicit(&f->gate->word, FCI_SC);
	uint32_t slots = fci_slots(f);
	int rc;

	if (!(gate & FCI_GATE_UNRULED))
		return 0; /* it has got a cap: look again */
	rc = slots >= FCI_OBSERVED_MAX ? -ENOSPC : fci_extents_grow(f, slots * 2);
	if (rc == 0)
		rc = fci_limit_change_from(f, gate, fci_slots(f));
	return rc == -EAGAIN ? 0 : rc; /* somebody else is at it: try again */
}

/* A gate of its own that always leads to the long way; see fci_enter_long. */
void fci_iface_pass_init(struct fc_iface *f, struct fc *fc)
{
	static struct fci_gate gate = { .word = FCI_GATE_OFF };
	static struct fci_counters nowhere; /* what its calls count is in fc->pass_calls */

	f->magic = FCI_IFACE_MAGIC;
	f->gate = &gate;
	f->fc = fc;
	f->serial = fc->serial;
	f->pass_through = 1;
	f->counters = (struct fci_percpu){ .base = (char *)&nowhere, .ncpus = 1 };
	snprintf(f->name, sizeof(f->name), "(pass-through)");
}

void fci_iface_free(struct fc *fc, struct fc_iface *f)
{
	fci_chain_free_all(fc, f);
	fci_async_free(f);
	fci_fallback_free(fc, f);
	fci_states_free(fc, f);
	fci_ruled_free(f);
	fci_free(fc, f, sizeof(*f));
}
