/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * enter.c - the long way in: contexts, switches, interceptors, weights, waiting, dry run, tables
 * that are full, and refusals. See interceptor.h for the order of a call's steps.
 */
#include <errno.h>

#include "chain.h"
#include "check.h"
#include "iface.h"
#include "leave.h"
#include "limit.h"
#include "system.h"
#include "wait.h"
#include "weight.h"

#define CTX_V1_BYTES  sizeof(struct fc_ctx)
#define PRIORITY_MAX  7u
#define STUCK_MS_MAX  UINT32_MAX
#define NOW_SLACK     FC_S(1)

/* ---- refusing ---------------------------------------------------------------------------------- */

FCI_INLINE void fill_decision(struct fc_entry *e, struct fc_iface *f, int reason, const char *rule, uint64_t observed,
                              uint64_t limit, uint64_t retry_after_ns)
{
	e->word_ = 0;
	e->iface_ = f;
	e->start_ = observed;
	e->verdict_ = reason;
	e->data_[0] = limit;
	e->data_[1] = retry_after_ns;
	e->data_[2] = (uint64_t)(uintptr_t)rule;
}

/* One of some is recorded. */
FCI_INLINE int sampled(struct fc_iface *f)
{
	/* N1: a rate of sampling. */
	return ++fci_self.sample * FCI_SCRAMBLE <= atomic_load_explicit(&f->gate->sample_refused, FCI_RLX);
}

FCI_INLINE uint32_t class_of(int reason)
{
	return (uint32_t)reason < FC_STATS_REASONS ? (uint32_t)reason : FC_REFUSED_CUSTOM;
}

/* Count a refusal, and perhaps record it, at any price. */
static FCI_NOINLINE int refused_far(struct fc_iface *f, int reason, uint64_t limit, uint64_t now)
{
	fci_count(f, class_of(reason), 1);
	return sampled(f) ? fci_sampled(f, reason, limit, now) : reason;
}

/* The same, kept short for the common case. */
FCI_INLINE int refused(struct fc_iface *f, int reason, uint64_t limit, uint64_t now)
{
	if (fci_unlikely(!fci_percpu_try_add(&f->counters, class_of(reason) * sizeof(uint64_t), 1)))
		return refused_far(f, reason, limit, now);
	return fci_unlikely(sampled(f)) ? fci_sampled(f, reason, limit, now) : reason;
}

FCI_NOINLINE int fci_refuse(struct fc_entry *e, struct fc_iface *f, int reason, const char *rule, uint64_t observed,
                            uint64_t limit, uint64_t retry_after_ns, uint64_t now)
{
	fill_decision(e, f, reason, rule, observed, limit, retry_after_ns);
	return refused(f, reason, limit, now);
}

/* The commonest refusal. */
FCI_NOINLINE int fci_refuse_cap(struct fc_entry *e, struct fc_iface *f, uint64_t gate, uint64_t now)
{
	/* N4: advice. */
	fill_decision(e, f, FC_REFUSED_CAP, "cap", FCI_GATE_LIMIT(gate), FCI_GATE_LIMIT(gate),
	              atomic_load_explicit(&f->gate->retry_after_ns, FCI_RLX));
	return refused(f, FC_REFUSED_CAP, FCI_GATE_LIMIT(gate), now);
}

/* Let a call through that the queue does not know: the exit has nothing to give back. */
static int admit_untracked(struct fc_entry *e, struct fc_iface *f)
{
	fci_count(f, FCI_C_UNTRACKED, 1);
	e->iface_ = f;
	e->verdict_ = 0;
	e->meta_ = FCI_E_MARKED;
	e->word_ = FCI_UNTRACKED;
	return 0;
}

/* The guard itself cannot decide: on_fault does. */
int fci_enter_fault(struct fc_entry *e, struct fc_iface *f, int error)
{
	if (fci_fault(f, error) == 0)
		return admit_untracked(e, f);
	return fci_refuse(e, f, FC_REFUSED_FAULT, "on_fault", 0, 0, 0, 0);
}

/* ---- the caller's context ---------------------------------------------------------------------- */

FCI_COLD int fci_enter_wrong(struct fc_entry *e, int error)
{
	if (e) {
		e->word_ = 0;
		e->verdict_ = error;
	}
	return error;
}

const struct fc_ctx fci_no_ctx = { .size = sizeof(struct fc_ctx), .weight = 1 };

/* The caller's own, when it is of this size and complete, else a copy. */
static int import_ctx(struct fci_way *w, const struct fc_ctx *ctx)
{
	int rc;

	if (fci_unlikely(ctx->size != sizeof(*ctx) || ctx->weight == 0)) {
		w->own = fci_no_ctx;
		rc = fci_opts_import(&w->own, sizeof(w->own), CTX_V1_BYTES, ctx);
		if (rc < 0)
			return rc;
		if (w->own.weight == 0)
			w->own.weight = 1;
		ctx = &w->own;
	}
	if (ctx->priority > PRIORITY_MAX || ctx->n_labels > FCI_LABELS_MAX || (ctx->n_labels && !ctx->labels) ||
	    ctx->stuck_after_ns > FC_MS(STUCK_MS_MAX))
		return -EINVAL;
	w->ctx = ctx;
	return 0;
}

/* What a caller says the time is holds when it is near housekeeping's last look at the clock, else when it is
 * near the clock: a call of yesterday would be stuck, and written off, as soon as it is inside. */
static int is_near(uint64_t a, uint64_t b)
{
	return a - b + NOW_SLACK <= 2 * NOW_SLACK;
}

static uint64_t believed(const struct fc_iface *f, uint64_t said)
{
	uint64_t now;

	/* N10: any look that is not long ago will do. */
	if (fci_likely(is_near(said, atomic_load_explicit(&f->fc->head->ticked_ns, FCI_RLX))))
		return said;
	now = fci_now(f);
	return is_near(said, now) ? said : now;
}

/* ---- what stands before the queue -------------------------------------------------------------- */

/* A test wants this call to end so. 0: it does not. */
static int injected(struct fci_way *w)
{
	fci_a64 *a = &w->f->block->rare.inject;
	/* N2: re-checked by the CAS; order is nothing. */
	uint64_t v = atomic_load_explicit(a, FCI_RLX);

	while ((uint32_t)v != 0) {
		uint64_t next = (uint32_t)v == FC_UNLIMITED ? v : v - 1;

		if (atomic_compare_exchange_weak_explicit(a, &v, next, FCI_RLX, FCI_RLX))
			return (int32_t)(uint32_t)(v >> 32);
	}
	return 0;
}

/* No interface stands behind the handle; its gate is always OFF. */
static int pass_through(struct fci_way *w)
{
	/* N9: a statistic. */
	atomic_fetch_add_explicit(&w->f->fc->pass_calls, 1, FCI_RLX);
	if (w->f->fc->on_fault != FC_FAIL_CLOSED)
		return admit_untracked(w->e, w->f);
	return fci_refuse(w->e, w->f, FC_REFUSED_FAULT, "on_fault", 0, 0, 0, 0);
}

/* Would this call be refused, but for a dry run of the interface? It is counted once. */
static int refuses(struct fci_way *w)
{
	if (!(w->gate & FCI_GATE_DRY_RUN))
		return 1;
	fci_would_refuse(w);
	return 0;
}

/* Switches that end a call before anything is taken. 1: go on. */
static int switched(struct fci_way *w, int *ret)
{
	struct fc_iface *f = w->f;
	uint32_t control = w->gate & FCI_GATE_CONTROL ? fci_control(f) : 0;
	int status;

	if (f->pass_through) {
		*ret = pass_through(w);
		return 0;
	}
	if ((control & FCI_CONTROL_OFF) || (w->gate & FCI_GATE_OFF)) {
		*ret = admit_untracked(w->e, f);
		return 0;
	}
	if ((w->gate & FCI_GATE_INJECT) && (status = injected(w)) != 0) {
		*ret = status < 0 ? fci_enter_fault(w->e, f, status)
		                  : fci_refuse(w->e, f, status, "inject", 0, 0, 0, w->now);
		return 0;
	}
	if (w->gate & FCI_GATE_DRAINING) {
		*ret = fci_refuse(w->e, f, FC_REFUSED_DRAINING, "drain", 0, 0, 0, w->now);
		return 0;
	}
	if ((control & FCI_CONTROL_SYSTEM) && fci_system_refuses(f, w->ctx, control) && refuses(w)) {
		*ret = fci_refuse(w->e, f, FC_REFUSED_SYSTEM, "system", FCI_CONTROL_LEVEL(control),
		                  FCI_CONTROL_LEVEL(control), FC_S(1), w->now);
		return 0;
	}
	if (w->ctx->deadline_ns && w->now >= w->ctx->deadline_ns && refuses(w)) {
		*ret = fci_refuse(w->e, f, FC_REFUSED_DEADLINE, "deadline", w->now, w->ctx->deadline_ns, 0, w->now);
		return 0;
	}
	return 1;
}

/* ---- the queue --------------------------------------------------------------------------------- */

/* One try: a place, or as many as the call is heavy, under the gate as it is now. */
static int claim_once(struct fci_way *w, int any_rank)
{
	struct fc_iface *f = w->f;
	int rc;

	/* A2 -> X3 (fci_gate_set): SC; read again after the claim. */
	w->gate = atomic_load_explicit(&f->gate->word, FCI_SC);
	if (fci_unlikely(w->gate & FCI_GATE_ASLEEP)) {
		/* Should housekeeping put it to sleep again before the claim is seen, the gate has moved. */
		fci_iface_wake(f);
		w->gate &= ~FCI_GATE_ASLEEP;
	}
	if (any_rank && (w->gate & FCI_GATE_DRY_RUN)) /* of weight 1 */
		rc = fci_find(f, fci_cpu_hint(w->self) & f->group_mask, w->gate, 1, &w->claim);
	else
		rc = fci_claim_counted(f, w->gate, &w->claim);
	if (rc != FCI_GOT || w->ctx->weight == 1)
		return rc;
	if (!fci_weight_claim(f, &w->claim, w->ctx->weight, w->gate)) {
		fci_unclaim(f, &w->claim);
		return FCI_FULL;
	}
	return FCI_GOT;
}

/* Claims again as long as the gate changes under it; somebody else made progress each time. */
static int claim(struct fci_way *w, int any_rank)
{
	int rc;

	do {
		rc = claim_once(w, any_rank);
	} while (rc == FCI_CHANGED && !(w->gate & (FCI_GATE_OFF | FCI_GATE_DRAINING)));
	return rc;
}

/* Dry run: a place over the limit, so that the call is tracked; more of them when none is left. A heavy call
 * passes untracked: of those over the limit there would be no end of places. */
static int claim_over(struct fci_way *w)
{
	int rc;

	if (w->ctx->weight > 1)
		return FCI_FULL;
	rc = claim(w, 1);

	if (rc == FCI_FULL && fci_slots(w->f) < FCI_OBSERVED_MAX && fci_extents_grow(w->f, fci_slots(w->f) * 2) == 0)
		rc = claim(w, 1);
	return rc;
}

/* A refused caller stands here too: that proves that older scopes of its thread are gone. */
static void stand_here(struct fci_way *w)
{
	uint64_t seq = w->self->seq += FCI_SEQ_ONE, sp = fci_here_get(w->e).sp;

	if (sp)
		fci_store_pair(&w->self->last_entry, FCI_FRAME((uintptr_t)w->e, seq), FCI_FRAME(sp, seq));
}

/* Wait, but not in a section, which would keep every chain that is replaced meanwhile. The call goes on
 * under the chain that it finds then. */
static int wait_outside(struct fci_way *w)
{
	int rc;

	if (w->section == UINT64_MAX)
		return fci_wait(w);
	fci_section_leave(w->self, w->section);
	rc = fci_wait(w);
	w->section = fci_section_enter(w->self);
	/* A1 -> R1 (publish, chain.c). */
	w->chain = atomic_load_explicit(&w->f->chain, FCI_ACQ);
	return rc;
}

/* No place: purge, expand, grow, or let it be. FCI_GOT when the way has a place now. */
static int claim_harder(struct fci_way *w)
{
	struct fc_iface *f = w->f;

	if ((w->gate & FCI_GATE_UNRULED) && fci_iface_grow(f) == 0)
		return claim(w, 0);
	if (w->ctx->now_ns) /* good enough to be let in by, but not to judge others by, nor to wait from */
		w->now = fci_now(f);
	stand_here(w);
	if (fci_check(f, w->now) && claim(w, 0) == FCI_GOT)
		return FCI_GOT;
	if (!refuses(w))
		return claim_over(w);
	if ((w->gate & FCI_GATE_WAITS) && w->ctx->weight == 1)
		return w->async ? FC_PENDING : wait_outside(w);
	return FCI_FULL;
}

/* Why there is no place, in the caller's words. */
int fci_refuse_full(struct fci_way *w, int waited)
{
	struct fc_iface *f = w->f;
	uint32_t limit = FCI_GATE_LIMIT(w->gate);
	/* N4: advice. */
	uint64_t retry = atomic_load_explicit(&f->gate->retry_after_ns, FCI_RLX);

	if (w->gate & (FCI_GATE_DRY_RUN | FCI_GATE_UNRULED))
		return admit_untracked(w->e, f);
	if (waited)
		return fci_refuse(w->e, f, waited, "cap", limit, limit, retry, w->now);
	if (w->ctx->weight > limit && limit != 0)
		return fci_refuse(w->e, f, FC_REFUSED_WEIGHT, "cap", w->ctx->weight, limit, 0, w->now);
	return fci_refuse(w->e, f, FC_REFUSED_CAP, "cap", limit, limit, retry, w->now);
}

/* ---- in ---------------------------------------------------------------------------------------- */

/* The chain whose post this call owes; 0: none. */
FCI_INLINE uint32_t version_of(const struct fci_way *w)
{
	return w->chain && w->chain->has_post ? w->chain->version : 0;
}

/* Fill the record of the claimed slot; returns its meta. N5: R3 (fci_admit) publishes it. */
FCI_INLINE uint64_t fill_record(struct fci_way *w, struct fci_record *r, uint64_t frame, uint32_t flags)
{
	const struct fc_ctx *ctx = w->ctx;
	uint32_t stuck_ms = fci_unlikely(ctx->stuck_after_ns) ? (uint32_t)(ctx->stuck_after_ns / 1000000) : 0;
	uint64_t meta;

	if (ctx->request_id)
		flags |= FCI_META_TAG;
	fci_store_pair(&r->start, w->now, fci_site_id(w->f, w->site) | atomic_load_explicit(&w->self->tid, FCI_RLX));
	meta = FCI_META(version_of(w), ctx->weight | flags, stuck_ms);
	fci_store_pair(&r->frame, frame, meta);
	if (ctx->request_id)
		atomic_store_explicit(&r->tag, ctx->request_id, FCI_RLX);
	if (w->chain) {
		for (uint32_t i = 0; i < w->chain->cells && i < FCI_CELLS_NEAR; i++)
			atomic_store_explicit(&r->cells[i], 0, FCI_RLX);
		for (uint32_t i = FCI_CELLS_NEAR; i < w->chain->cells; i++)
			atomic_store_explicit(&fci_more(w->f, w->claim.slot)[i - FCI_CELLS_NEAR], 0, FCI_RLX);
	}
	return meta;
}

FCI_INLINE void fill_entry(struct fci_way *w, uint64_t busy, uint64_t sp)
{
	const struct fc_ctx *ctx = w->ctx;
	struct fc_entry *e = w->e;
	uint64_t flags = 0;

	if (version_of(w))
		flags |= FCI_E_CHAIN | (uint64_t)version_of(w) << 16;
	if (ctx->weight > 1)
		flags |= FCI_E_WEIGHTED;
	if (ctx->deadline_ns)
		flags |= FCI_E_DEADLINE;
	e->iface_ = w->f;
	e->start_ = w->now;
	e->slot_ = w->claim.slot;
	e->verdict_ = 0;
	e->meta_ = flags | (uint64_t)(uint32_t)((uintptr_t)e - sp) << 32;
	e->data_[2] = ctx->deadline_ns; /* the others are there: fci_here_put */
	/* N6: last, as in entry.c. */
	__atomic_store_n(&e->word_, busy, __ATOMIC_RELAXED);
}

/* Interceptors refuse: nothing remains. */
static FCI_NOINLINE void take_back(struct fci_way *w, uint64_t busy)
{
	fci_count(w->f, FCI_C_UNDONE, 1);
	fci_weight_unclaim(w->f, &w->claim, w->ctx->weight);
	(void)fci_release_call(w->f, w->claim.slot, busy);
}

int fci_admit(struct fci_way *w)
{
	struct fc_iface *f = w->f;
	struct fci_record *r = fci_record(f, w->claim.slot);
	uint64_t busy = w->claim.word | fci_me(f) | FCI_BUSY, sp = fci_here_get(w->e).sp, frame, meta;
	uint64_t seq = w->self->seq += FCI_SEQ_ONE;
	int pre = w->chain && w->chain->has_pre, rc;

	frame = FCI_FRAME((uintptr_t)w->e, seq);
	meta = fill_record(w, r, frame, pre ? FCI_META_PRE : 0);
	FC_TEST_POINT("record");
	/* R3 -> A7 (fci_view). */
	atomic_store_explicit(fci_word(f, w->claim.slot), busy, FCI_REL);
	if (pre) {
		rc = fci_chain_pre(w);
		if (fci_unlikely(rc != 0)) {
			take_back(w, busy);
			return rc;
		}
		/* R5 -> A8 (fci_view): the cells are complete when PRE is seen gone. */
		atomic_store_explicit(&r->meta, meta & ~((uint64_t)FCI_META_PRE << 32), FCI_REL);
	}
	/* N7: proof for others that older scopes of this thread are gone; each word has its number. */
	fci_store_pair(&w->self->last_entry, frame, FCI_FRAME(sp, seq));
	w->self->held++;
	fill_entry(w, busy, sp);
	/* N8: a rate of sampling. */
	if (fci_unlikely(FCI_SCRAMBLED(w->claim.word) <= atomic_load_explicit(&f->gate->sample, FCI_RLX)))
		fci_sample_start(w->e, f, w->now);
	return 0;
}

/* The slot at home, under the gate as read: what most calls get. */
FCI_INLINE int claim_plain(struct fci_way *w)
{
	if ((w->gate & (FCI_GATE_DRAIN | FCI_GATE_ASLEEP)) || w->ctx->weight != 1 || fci_full(w->f))
		return FCI_FULL;
	return fci_claim_hot(w->f, fci_cpu_hint(w->self), w->gate, &w->claim);
}

/* Heavier than any call may be. Nobody could hold so many places: a dry run lets it pass untracked. */
static FCI_NOINLINE int too_heavy(struct fci_way *w)
{
	uint32_t most = fci_iface_max_weight(w->f);

	if (refuses(w))
		return fci_refuse(w->e, w->f, FC_REFUSED_WEIGHT, "cap", w->ctx->weight, most, 0, w->now);
	return admit_untracked(w->e, w->f);
}

/* From the checks to the call; inside a section when there is a chain. */
FCI_INLINE int enter_chain(struct fci_way *w)
{
	int rc, waited = 0;

	if (w->chain && w->chain->has_check && (rc = fci_chain_check(w)) != 0)
		return rc;
	if (fci_likely(claim_plain(w) == FCI_GOT))
		return fci_admit(w);
	if (w->ctx->weight > 1 && w->ctx->weight > fci_iface_max_weight(w->f))
		return too_heavy(w);
	rc = claim(w, 0);
	if (rc == FCI_FULL)
		rc = claim_harder(w);
	if (rc > FCI_CHANGED) { /* a reason of the wait */
		waited = rc;
		rc = FCI_FULL;
	}
	if (rc == FCI_FULL)
		return fci_refuse_full(w, waited);
	if (rc == FC_PENDING)
		return rc;
	return rc == FCI_GOT ? fci_admit(w) : -EAGAIN;
}

/* What interceptors want: the call runs later. It holds its place; its deadline leaves the time. */
static FCI_NOINLINE void sleep_out(const struct fci_way *w)
{
	const struct fci_clock *clock = &w->f->fc->clock;
	uint64_t now = fci_clock_now(clock), end = (w->now < now ? w->now : now) + w->delay;

	for (; now < end; now = fci_clock_now(clock))
		fci_clock_sleep(clock, end - now);
}

FCI_INLINE int try_way(struct fci_way *w)
{
	struct fc_iface *f = w->f;
	int rc;

	do {
		/* A2 -> X3 (fci_gate_set). */
		w->gate = atomic_load_explicit(&f->gate->word, FCI_SC);
		if (fci_unlikely(w->gate & FCI_GATE_ASLEEP))
			fci_iface_wake(f);
		if (((w->gate & FCI_GATE_SWITCHES) || w->ctx->deadline_ns) && !switched(w, &rc))
			return rc;
		/* A1 -> R1 (publish, chain.c); in a section, so that it is not freed. */
		w->section = fci_section_enter(w->self);
		w->chain = atomic_load_explicit(&f->chain, FCI_ACQ);
		rc = enter_chain(w);
		fci_section_leave(w->self, w->section);
	} while (rc == -EAGAIN); /* the gate was switched meanwhile */
	return rc;
}

int fci_enter_way(struct fci_way *w, const struct fc_ctx *ctx)
{
	struct fc_iface *f = w->f;
	int rc;

	rc = ctx ? import_ctx(w, ctx) : 0;
	if (rc < 0)
		return fci_enter_wrong(w->e, rc);
	w->now = w->ctx->now_ns ? believed(f, w->ctx->now_ns) : fci_now(f);
	rc = try_way(w);
	if (fci_unlikely(w->delay) && rc == 0)
		sleep_out(w);
	return rc;
}

FCI_NOINLINE int fci_enter_long(struct fc_entry *e, struct fc_iface *f, const struct fc_ctx *ctx,
                                struct fc_site *site)
{
	struct fci_way w;

	fci_way_begin(&w, e, f, site);
	return fci_enter_way(&w, ctx);
}

FCI_NOINLINE int fci_enter_claimed(struct fc_entry *e, struct fc_iface *f, struct fc_site *site, uint64_t now,
                                   struct fci_claim c)
{
	struct fci_way w;

	fci_way_begin(&w, e, f, site);
	w.claim = c;
	w.now = now;
	return fci_admit(&w);
}

/* Put a resumed call into its new slot: as fci_admit, but nothing is taken again. */
static void admit_resumed(struct fci_way *w, const struct fc_entry *was, const uint32_t *cells)
{
	struct fci_record *r = fci_record(w->f, w->claim.slot);
	uint64_t busy = w->claim.word | fci_me(w->f) | (was->meta_ & FCI_E_DETACHED ? FCI_DETACHED : FCI_BUSY);
	uint32_t version = was->meta_ & FCI_E_CHAIN ? FCI_E_VER(was->meta_) : 0;
	uint64_t seq = w->self->seq += FCI_SEQ_ONE;

	(void)fill_record(w, r, FCI_FRAME((uintptr_t)w->e, seq), 0);
	/* N7: this thread's newest entry; from where it resumes says nothing of older scopes. */
	fci_store_pair(&w->self->last_entry, FCI_FRAME((uintptr_t)w->e, seq), seq);
	/* N5: as fill_record. */
	atomic_store_explicit(&r->meta, FCI_META(version, w->ctx->weight, 0), FCI_RLX);
	for (uint32_t i = 0; i < FCI_CELLS_NEAR; i++)
		atomic_store_explicit(&r->cells[i], cells[i], FCI_RLX);
	fci_count(w->f, FCI_C_UNDONE, 1); /* it was admitted once; before the word: see stats.c */
	/* R3 -> A7 (fci_view). */
	atomic_store_explicit(fci_word(w->f, w->claim.slot), busy, FCI_REL);
	if (!(was->meta_ & FCI_E_DETACHED))
		w->self->held++;
	*w->e = *was;
	w->e->slot_ = w->claim.slot;
	w->e->verdict_ = 0;
	memset(w->e->data_, 0, sizeof(w->e->data_)); /* the guard stands somewhere else now */
	w->e->meta_ &= ~(uint64_t)FCI_E_DEADLINE;
	__atomic_store_n(&w->e->word_, busy, __ATOMIC_RELAXED); /* N6: last, as in entry.c */
	fci_chain_park(w->f, version, -1);
}

int fc_entry_resume(struct fc_entry *e)
{
	uint32_t cells[FCI_CELLS_NEAR];
	struct fc_entry was;
	struct fci_way w;
	int rc;

	if (!e || !FCI_IS_PARKED(e->word_) || e->word_ != FCI_PARKED(fci_me(e->iface_)))
		return -EINVAL; /* not suspended, or in the parent of a fork */
	was = *e;
	fci_way_begin(&w, e, e->iface_, NULL);
	memcpy(cells, e->data_, sizeof(cells));
	fci_here_put(e, (struct fci_here){ 0, 0, 0 });
	w.own = fci_no_ctx;
	w.own.weight = e->slot_;
	w.ctx = &w.own;
	w.now = fci_now(w.f);
	/* A2 -> X3 (fci_gate_set). */
	w.gate = atomic_load_explicit(&w.f->gate->word, FCI_SC);
	rc = (w.gate & (FCI_GATE_DRAINING | FCI_GATE_OFF)) || fc_off_get(w.f->fc) ? FCI_CHANGED : claim(&w, 0);
	if (rc == FCI_FULL)
		rc = claim_harder(&w);
	if (rc == FCI_GOT) {
		admit_resumed(&w, &was, cells);
		return 0;
	}
	if (w.gate & FCI_GATE_DRAINING)
		rc = fci_refuse(e, w.f, FC_REFUSED_DRAINING, "drain", 0, 0, 0, w.now);
	else if (rc == FCI_CHANGED) /* switched off: goes on unguarded */
		rc = admit_untracked(e, w.f);
	else
		rc = fci_refuse_full(&w, rc > FCI_CHANGED ? rc : 0);
	/* Refused or untracked it has no place: what interceptors took stays noted in the entry. */
	*e = was;
	e->verdict_ = rc;
	return rc;
}
