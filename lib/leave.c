/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * leave.c - the ways out that are not plain: outcomes, latency, interceptors' posts, moved and
 * suspended entries, and exits that come too late.
 *
 * post runs exactly once, by whoever wins the release (fci_release_call), on a copy of the cells
 * taken before it: after it the record belongs to the next call (W8 of the study).
 */
#include <errno.h>

#include "chain.h"
#include "check.h"
#include "iface.h"
#include "leave.h"
#include "wait.h"
#include "weight.h"

/* What is owed when a call has ended: copied before the release. */
struct ending {
	struct fci_ended call;
	uint32_t version;
	int marked, measured;
};

static void count_outcome(struct fc_iface *f, const struct ending *d)
{
	int outcome = d->call.outcome;

	if (outcome == FC_OUTCOME_OK && d->marked)
		fci_count(f, FCI_C_MARKED_OK, 1);
	else if (outcome == FC_OUTCOME_ERROR)
		fci_count(f, FCI_C_ERROR, 1);
	else if (outcome == FC_OUTCOME_TIMEOUT)
		fci_count(f, FCI_C_TIMEOUT, 1);
	else if (outcome == FC_OUTCOME_IGNORED)
		fci_count(f, FCI_C_IGNORED, 1);
}

/* Inside a section that began before the release: the chain must outlive the slot until its post has run. */
static void finish(struct fc_iface *f, struct ending *d)
{
	const struct fci_ended *c = &d->call;
	struct fci_chain *chain;

	if (d->measured && c->outcome != FC_OUTCOME_IGNORED && c->outcome != FC_OUTCOME_ABANDONED)
		fci_latency_add(f, c->now > c->start ? c->now - c->start : 0);
	count_outcome(f, d);
	if (d->version && (chain = fci_chain_of(f, d->version)) != NULL)
		fci_chain_post(chain, &d->call);
}

/* N1: this call's own, as long as the release is won. */
FCI_INLINE void copy_cells(struct fc_iface *f, uint32_t slot, uint32_t *cells, uint32_t n)
{
	struct fci_record *r = fci_record(f, slot);

	for (uint32_t i = 0; i < n && i < FCI_CELLS_NEAR; i++)
		cells[i] = atomic_load_explicit(&r->cells[i], FCI_RLX);
	for (uint32_t i = FCI_CELLS_NEAR; fci_unlikely(i < n) && i < FC_CELLS_MAX; i++)
		cells[i] = atomic_load_explicit(&fci_more(f, slot)[i - FCI_CELLS_NEAR], FCI_RLX);
}

static struct ending ending_of(const struct fc_entry *e, uint64_t meta)
{
	struct ending d = { .call.weight = 1, .call.outcome = (int)(meta & FCI_E_OUTCOME) };

	d.marked = (meta & FCI_E_MARKED) != 0;
	d.measured = (meta & FCI_E_SAMPLED) != 0;
	d.version = meta & FCI_E_CHAIN ? FCI_E_VER(meta) : 0;
	d.call.start = e->start_;
	if (d.measured)
		d.call.now = fci_clock_now(&e->iface_->fc->clock);
	else if (d.version)
		d.call.now = fci_now(e->iface_);
	return d;
}

/* A suspended entry has no slot: whoever takes its word ends it. */
static int leave_parked(struct fc_entry *e, uint64_t meta)
{
	struct fc_iface *f = e->iface_;
	struct ending d = ending_of(e, meta);
	uint64_t word = FCI_PARKED(fci_me(f)), was;

	d.call.weight = e->slot_;
	memcpy(d.call.cells, e->data_, sizeof(e->data_)); /* it has no more: fc_entry_suspend */
	/* X1: of two exits one wins; it sees the entry as suspend left it. In the child of a fork none does:
	 * the word is the parent's. */
	if (!__atomic_compare_exchange_n(&e->word_, &word, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return 0;
	was = fci_section_enter(fci_thread_self());
	finish(f, &d);
	fci_section_leave(&fci_self, was);
	fci_chain_park(f, d.version, -1);
	return 1;
}

/* A call of weight 1 with interceptors, in its own thread: the commonest of the long ways. */
static int leave_chained(struct fc_entry *e, uint64_t word, uint64_t meta)
{
	struct fc_iface *f = e->iface_;
	struct fci_thread *self = fci_thread_self();
	uint64_t was = fci_section_enter(self);
	struct fci_chain *chain = fci_chain_of(f, FCI_E_VER(meta));
	uint32_t slot = e->slot_;
	struct fci_ended d;
	int won;

	d.start = e->start_;
	d.now = meta & FCI_E_SAMPLED ? fci_clock_now(&f->fc->clock) : fci_now(f);
	d.weight = 1;
	d.outcome = FC_OUTCOME_OK;
	copy_cells(f, slot, d.cells, chain ? chain->cells : 0);
	__atomic_store_n(&e->word_, 0, __ATOMIC_RELAXED);
	self->held--;
	won = fci_likely(fci_release(f, slot, word)) || fci_release_call(f, slot, word);
	if (fci_likely(won)) {
		if (fci_unlikely(meta & FCI_E_SAMPLED))
			fci_latency_add(f, d.now > d.start ? d.now - d.start : 0);
		if (fci_likely(chain != NULL))
			fci_chain_post(chain, &d);
	}
	fci_section_leave(self, was);
	return fci_likely(won) ? 1 : fci_leave_late(f, slot, word, d.start, meta);
}

int fci_leave_long(struct fc_entry *e, uint64_t word)
{
	/* N2: a second exit reads the same or finds the word gone. */
	uint64_t meta = __atomic_load_n(&e->meta_, __ATOMIC_RELAXED);
	struct fc_iface *f = e->iface_;
	uint32_t slot = e->slot_, aux[FC_WEIGHT_MAX], n_aux = 0;
	struct ending d;
	uint64_t was;
	int won;

	if ((meta & FCI_E_SLOW & ~(uint64_t)FCI_E_SAMPLED) == FCI_E_CHAIN)
		return leave_chained(e, word, meta);
	if (meta & FCI_E_ASYNC)
		return fc_enter_cancel(e);
	if (word == FCI_UNTRACKED) {
		__atomic_store_n(&e->word_, 0, __ATOMIC_RELAXED);
		return 1;
	}
	if (FCI_IS_PARKED(word))
		return leave_parked(e, meta);
	d = ending_of(e, meta);
	if (d.version)
		copy_cells(f, slot, d.call.cells, FC_CELLS_MAX);
	if (meta & FCI_E_WEIGHTED)
		n_aux = fci_weight_list(f, slot, word, aux, &d.call.weight);
	__atomic_store_n(&e->word_, 0, __ATOMIC_RELAXED);
	if (!(meta & FCI_E_DETACHED))
		fci_self.held--;
	was = fci_section_enter(fci_thread_self()); /* the chain must outlive the slot until its post has run */
	won = fci_release_call(f, slot, word);
	if (won) {
		fci_weight_free(f, aux, n_aux, slot, word);
		finish(f, &d);
	}
	fci_section_leave(&fci_self, was);
	return won ? 1 : fci_leave_late(f, slot, word, d.call.start, meta);
}

/* The call had been ended by others when its entry wanted to leave: what was written off comes back. Or
 * this is the child of a fork, where no entry of the parent counts, nor was one held. Returns what an exit
 * does. */
static int ended_before(struct fc_iface *f, uint32_t slot, uint64_t word, uint64_t meta)
{
	if ((uint64_t)FCI_OWNER(word) << 3 != fci_me(f)) {
		if (!(meta & FCI_E_DETACHED))
			fci_self.held++;
		return 0;
	}
	(void)fci_writeoff_left(f, slot, word);
	fci_count(f, FCI_C_LATE, 1);
	return -ESTALE;
}

FCI_COLD int fci_leave_late(struct fc_iface *f, uint32_t slot, uint64_t word, uint64_t start, uint64_t meta)
{
	struct ending d = { .call.weight = 1, .call.start = start };

	/* A plain or measured exit comes here too when housekeeping had lent a place for its call. */
	if ((uint64_t)FCI_OWNER(word) << 3 == fci_me(f) && !(meta & FCI_E_SLOW & ~FCI_E_SAMPLED) &&
	    fci_release_call(f, slot, word)) {
		d.measured = (meta & FCI_E_SAMPLED) != 0;
		d.call.now = d.measured ? fci_clock_now(&f->fc->clock) : 0;
		finish(f, &d);
		return 1;
	}
	return ended_before(f, slot, word, meta);
}

int fci_abandon_by(struct fc_iface *f, const struct fci_view *v, uint64_t now, fci_end_fn end, void *arg)
{
	struct ending d = { .call.weight = FCI_META_WEIGHT(v->meta), .version = FCI_META_VER(v->meta) };
	uint32_t aux[FC_WEIGHT_MAX], n_aux = 0, ignored;
	uint64_t was;
	int won;

	d.call.outcome = FC_OUTCOME_ABANDONED;
	d.call.start = v->start;
	d.call.now = now;
	memcpy(d.call.cells, v->cells, sizeof(d.call.cells));
	if (d.call.weight > 1)
		n_aux = fci_weight_list(f, v->slot, v->word, aux, &ignored);
	was = fci_section_enter(fci_thread_self());
	won = end(f, v, arg);
	if (won) {
		fci_weight_free(f, aux, n_aux, v->slot, v->word);
		/* N3: a statistic. */
		atomic_fetch_add_explicit(&f->block->rare.abandoned, 1, FCI_RLX);
		finish(f, &d);
	}
	fci_section_leave(&fci_self, was);
	return won;
}

static int release_viewed(struct fc_iface *f, const struct fci_view *v, void *arg)
{
	(void)arg;
	return fci_release_call(f, v->slot, v->word);
}

int fci_abandon(struct fc_iface *f, const struct fci_view *v, uint64_t now)
{
	return fci_abandon_by(f, v, now, release_viewed, NULL);
}

void fci_reap_all(struct fc_iface *f, uint64_t now)
{
	uint32_t slots = fci_slots(f);
	struct fci_view v;

	for (uint32_t s = 0; s < slots; s++) {
		struct fci_chain *chain = fci_view(f, s, &v) ? fci_chain_of(f, FCI_META_VER(v.meta)) : NULL;
		struct fci_ended d = { .weight = FCI_META_WEIGHT(v.meta), .start = v.start, .now = now };

		if (!chain)
			continue;
		memcpy(d.cells, v.cells, sizeof(d.cells));
		fci_chain_reap(chain, &d);
	}
}

FCI_NOINLINE int fci_sample_start(struct fc_entry *e, struct fc_iface *f, uint64_t now)
{
	/* N4: a setting. */
	uint32_t mode = atomic_load_explicit(&f->exact, FCI_RLX);

	e->start_ = now;
	if (mode == FC_LATENCY_EXACT) {
		e->meta_ |= FCI_E_SAMPLED;
		/* N4: a rate: every call comes here, the recorder takes some. */
		if (fci_likely(FCI_SCRAMBLED(e->word_) > atomic_load_explicit(&f->block->rare.sample_exact, FCI_RLX)))
			return 0;
	} else if (mode != FC_LATENCY_OFF) {
		e->meta_ |= FCI_E_SAMPLED;
		e->start_ = fci_clock_now(&f->fc->clock);
	}
	return fci_sampled(f, FC_OK, 0, now);
}

/* ---- moving, suspending ------------------------------------------------------------------------ */

void fc_entry_take(struct fc_entry *to, struct fc_entry *from)
{
	uint64_t w, detached;

	if (!to || !from)
		return;
	if (from->meta_ & FCI_E_ASYNC) { /* its grant comes to where it is */
		if (to != from)
			*to = (struct fc_entry){ 0 };
		return;
	}
	w = from->word_;
	if (to != from) {
		*to = *from;
		from->word_ = 0;
	}
	if (!w || w == FCI_UNTRACKED || FCI_IS_PARKED(w) || (to->meta_ & FCI_E_DETACHED))
		return;
	fci_self.held--;
	/* X2: DETACHED is a state of the word, so that the old copy of the entry matches no more.
	 * Fails when the call was purged meanwhile, or lent for. SC like all changes of words. */
	for (detached = FCI_WITH_STATE(w, FCI_DETACHED);; detached = FCI_WITH_STATE(w, FCI_LENDER_DETACHED)) {
		uint64_t expected = w;

		if (atomic_compare_exchange_strong_explicit(fci_word(to->iface_, to->slot_), &expected, detached,
		                                            FCI_SC, FCI_RLX))
			break;
		if (expected != FCI_WITH_STATE(w, FCI_LENDER)) {
			to->word_ = 0;
			(void)ended_before(to->iface_, to->slot_, w, to->meta_);
			return;
		}
		w = expected;
	}
	to->word_ = FCI_WITH_STATE(w, FCI_DETACHED);
	to->meta_ |= FCI_E_DETACHED;
}

/* Do the cells of the call fit into an entry? */
static int fits_entry(struct fc_iface *f, uint64_t meta)
{
	uint64_t was = fci_section_enter(fci_thread_self());
	struct fci_chain *chain = meta & FCI_E_CHAIN ? fci_chain_of(f, FCI_E_VER(meta)) : NULL;
	int fits = !chain || chain->cells <= FCI_CELLS_NEAR;

	fci_section_leave(&fci_self, was);
	return fits;
}

int fc_entry_suspend(struct fc_entry *e)
{
	uint32_t aux[FC_WEIGHT_MAX], n_aux = 0, weight = 1;
	uint64_t word, meta;
	struct fc_iface *f;

	if (!e || !e->word_ || e->word_ == FCI_UNTRACKED || FCI_IS_PARKED(e->word_) || (e->meta_ & FCI_E_ASYNC))
		return -EINVAL;
	f = e->iface_;
	word = e->word_;
	meta = e->meta_;
	if (!fits_entry(f, meta))
		return -E2BIG;
	if (meta & FCI_E_WEIGHTED)
		n_aux = fci_weight_list(f, e->slot_, word, aux, &weight);
	copy_cells(f, e->slot_, (uint32_t *)(void *)e->data_, FCI_CELLS_NEAR);
	if (!(meta & FCI_E_DETACHED))
		fci_self.held--;
	fci_chain_park(f, meta & FCI_E_CHAIN ? FCI_E_VER(meta) : 0, 1);
	if (!fci_release_call(f, e->slot_, word)) {
		fci_chain_park(f, meta & FCI_E_CHAIN ? FCI_E_VER(meta) : 0, -1);
		e->word_ = 0;
		(void)ended_before(f, e->slot_, word, meta);
		return -ESTALE;
	}
	fci_weight_free(f, aux, n_aux, e->slot_, word);
	e->slot_ = weight;
	e->meta_ = (e->meta_ & 0xffffffffu) | FCI_E_PARKED; /* the guard does not stand there any more */
	e->word_ = FCI_PARKED(fci_me(f));
	return 0;
}
