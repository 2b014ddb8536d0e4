/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * entry.c - the plain way in and out, and what can be done with an entry. Whatever is not plain
 * (a context, flags in the gate, interceptors, a full table) goes through enter.c and leave.c.
 *
 * The plain way in is one compare-and-swap, and so is the plain way out; see inflight.h for their
 * orders. bench/ measures this file; tests/callgrind counts its instructions.
 */
#include <errno.h>

#include "chain.h"
#include "entry.h"
#include "leave.h"

/* Fill record and entry of a claimed slot, and publish: from here on the call is in the queue. 0. */
FCI_INLINE int publish(struct fc_entry *e, struct fc_iface *f, struct fc_site *site, uint64_t sp,
                       uint64_t now, const struct fci_claim *c)
{
	struct fci_thread *self = &fci_self;
	struct fci_record *r = &f->records[c->slot];
	uint64_t busy = c->word | fci_me(f) | FCI_BUSY, seq, frame;

	seq = self->seq += FCI_SEQ_ONE;
	frame = FCI_FRAME((uintptr_t)e, seq);
	/* N2: R3 publishes them. */
	fci_store_pair(&r->start, now, fci_site_id(f, site) | atomic_load_explicit(&self->tid, FCI_RLX));
	fci_store_pair(&r->frame, frame, FCI_META(0, 1, 0));
	FC_TEST_POINT("record");
	/* R3 -> A7 (fci_view): the record is this call's before the word says BUSY. Only the claimer
	 * stores here. */
	atomic_store_explicit(&f->words[c->slot], busy, FCI_REL);
	/* N3: proof for others that older scopes of this thread are gone; each word has its number. */
	fci_store_pair(&self->last_entry, frame, FCI_FRAME(sp, seq));
	self->held++;
	e->iface_ = f;
	e->slot_ = c->slot;
	e->verdict_ = 0;
	e->meta_ = (uint64_t)(uint32_t)((uintptr_t)e - sp) << 32;
	/* N4: last, so that an entry is active only when complete. */
	__atomic_store_n(&e->word_, busy, __ATOMIC_RELAXED);
	/* N5: a rate of sampling; all ones where every call is measured. */
	if (fci_unlikely(FCI_SCRAMBLED(c->word) <= atomic_load_explicit(&f->gate->sample, FCI_RLX)))
		return fci_sample_start(e, f, now);
	return 0;
}

/* The slot at home could not be had. */
static FCI_NOINLINE int enter_searching(struct fc_entry *e, struct fc_iface *f, struct fc_site *site, uint64_t now)
{
	struct fci_claim c;
	/* A2 -> X3 (fci_gate_set): read again after the claim. */
	uint64_t gate = atomic_load_explicit(&f->gate->word, FCI_ACQ);

	if ((gate & FCI_GATE_ON_ENTER) || fci_claim(f, fci_cpu_hint(&fci_self), gate, &c) != FCI_GOT)
		return fci_enter_long(e, f, NULL, site);
	if (fci_unlikely(c.slot >= f->slots0))
		return fci_enter_claimed(e, f, site, now, c);
	return publish(e, f, site, fci_here_get(e).sp, now, &c);
}

/* Where the guard stands goes into the entry: so the ways that follow are tail calls, and have their
 * arguments in registers. Not before a plain refusal, which would wait for the stores. */
FCI_INLINE int enter(struct fc_entry *e, struct fc_iface *f, const struct fc_ctx *ctx,
                     struct fc_site *site, struct fci_here here)
{
	struct fci_claim c;
	uint64_t gate, now;

	if (fci_unlikely(!e || !fci_iface_ok(f)))
		return fci_enter_wrong(e, -EINVAL);
	/* A2 -> X3 (fci_gate_set): read again after the claim. */
	gate = atomic_load_explicit(&f->gate->word, FCI_ACQ);
	/* N8: own word; 0: the long way registers the thread. */
	if (fci_unlikely((gate & FCI_GATE_ON_ENTER) || ctx || !atomic_load_explicit(&fci_self.tid, FCI_RLX))) {
		fci_here_put(e, here);
		return fci_enter_long(e, f, ctx, site);
	}
	now = fci_now(f);
	if (fci_unlikely(fci_full(f))) {
		/* N10: a hint when to check, the check itself is won by a CAS. A limit that is raised
		 * meanwhile resets the hints after the gate: this call came before. */
		if (fci_likely(!(gate & FCI_GATE_ON_FULL) && now < atomic_load_explicit(&f->gate->next_check, FCI_RLX)))
			return fci_refuse_cap(e, f, gate, now);
		fci_here_put(e, here);
		return fci_enter_long(e, f, NULL, site);
	}
	fci_here_put(e, here);
	if (fci_unlikely(fci_claim_hot(f, fci_cpu_hint(&fci_self), gate, &c) != FCI_GOT))
		return enter_searching(e, f, site, now);
	return publish(e, f, site, here.sp, now, &c);
}

int fc_enter_at(struct fc_entry *e, struct fc_iface *f, const struct fc_ctx *ctx, struct fc_site *site)
{
	return enter(e, f, ctx, site, FCI_HERE);
}

int (fc_enter)(struct fc_entry *e, struct fc_iface *f, const struct fc_ctx *ctx)
{
	return enter(e, f, ctx, NULL, FCI_HERE);
}

/* A site's handle is cached with the serial number of the context it came from. */
int fc_enter_name(struct fc_entry *e, const char *name, int literal, const struct fc_ctx *ctx,
                  struct fc_site *site)
{
	return enter(e, fci_site_iface(site, name, literal), ctx, site, FCI_HERE);
}

int fc_enter_function(struct fc_entry *e, const char *module, struct fc_site *site)
{
	return enter(e, fci_site_iface_fn(site, module), NULL, site, FCI_HERE);
}

/* A measured exit that has more to do: its CPU's counter could not be had. */
static FCI_NOINLINE int measured_far(struct fc_iface *f, uint32_t slot, uint64_t latency)
{
	fci_latency_add(f, latency);
	return fci_freed(f, slot);
}

/* The plain way out: whose latency is measured or not, of a slot of extent 0. */
FCI_INLINE int leave_plain(struct fc_entry *e, struct fc_iface *f, uint64_t w, uint32_t slot, int measured)
{
	/* Read first: where the counter waits for what is under way, that is the CAS. */
	uint64_t now = measured ? fci_clock_now(&f->fc->clock) : 0, start = measured ? e->start_ : 0, latency;

	__atomic_store_n(&e->word_, 0, __ATOMIC_RELAXED); /* N9 */
	fci_self.held--;
	if (fci_unlikely(!fci_free_word(&f->words[slot], w)))
		return fci_leave_late(f, slot, w, start, measured ? FCI_E_SAMPLED : 0);
	FC_TEST_POINT("released");
	if (measured) {
		latency = fci_likely(now > start) ? now - start : 0;
		if (fci_unlikely(!fci_percpu_try_add(&f->counters, FCI_HIST_OFFSET(latency), 1)))
			return measured_far(f, slot, latency);
	}
	return fci_freed(f, slot);
}

static FCI_NOINLINE int leave_measured(struct fc_entry *e, struct fc_iface *f, uint64_t w)
{
	return leave_plain(e, f, w, e->slot_, 1);
}

FCI_INLINE int leave(struct fc_entry *e)
{
	uint64_t w, meta;
	struct fc_iface *f;

	if (fci_unlikely(!e))
		return 0;
	/* N9: two threads may exit one entry: the CAS in fci_free_word decides. */
	w = __atomic_load_n(&e->word_, __ATOMIC_RELAXED);
	if (fci_unlikely(!w))
		return 0;
	f = e->iface_;
	meta = __atomic_load_n(&e->meta_, __ATOMIC_RELAXED) & FCI_E_SLOW;
	if (fci_unlikely(meta & ~(uint64_t)FCI_E_SAMPLED) || fci_unlikely(e->slot_ >= f->slots0))
		return fci_leave_long(e, w);
	if (meta)
		return leave_measured(e, f, w);
	return leave_plain(e, f, w, e->slot_, 0);
}

void fc_exit(struct fc_entry *e)
{
	(void)leave(e);
}

int fc_exit_status(struct fc_entry *e)
{
	return leave(e);
}

void fc_entry_mark(struct fc_entry *e, int outcome)
{
	/* N9: as above. */
	if (!e || !__atomic_load_n(&e->word_, __ATOMIC_RELAXED) || outcome < 0 || outcome >= FC_OUTCOME_ABANDONED)
		return;
	e->meta_ = (e->meta_ & ~(uint64_t)FCI_E_OUTCOME) | FCI_E_MARKED | (uint64_t)outcome;
}
