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

/* No place at once: refused, cheaply, unless there is more to do than to say no. */
static int enter_refused(struct fc_entry *e, struct fc_iface *f, struct fc_site *site, struct fci_here here,
                         uint64_t gate, uint64_t now, int rc)
{
	/* N6: a hint when to check; the check itself is won by a CAS. */
	if (fci_unlikely(rc != FCI_FULL || (gate & FCI_GATE_ON_FULL) ||
	                 now >= atomic_load_explicit(&f->gate->next_check, FCI_RLX)))
		return fci_enter_long(e, f, NULL, site, here);
	return fci_refuse(e, f, FC_REFUSED_CAP, "cap", FCI_GATE_LIMIT(gate), FCI_GATE_LIMIT(gate),
	                  /* N7: advice. */
	                  atomic_load_explicit(&f->gate->retry_after_ns, FCI_RLX), now);
}

/* Fill record and entry of a claimed slot, and publish: from here on the call is in the queue. */
FCI_INLINE void publish(struct fc_entry *e, struct fc_iface *f, struct fc_site *site,
                        const struct fci_here *here, struct fci_thread *self, uint64_t now,
                        const struct fci_claim *c)
{
	struct fci_record *r = &f->records[c->slot];
	uint64_t busy = c->word | fci_me(f) | FCI_BUSY, sp = fci_here_sp(here), seq, frame;

	seq = self->seq += FCI_SEQ_ONE;
	frame = FCI_FRAME((uintptr_t)e, seq);
	/* N2: R3 publishes them. */
	fci_store_pair(&r->start, now, (uint64_t)fci_site_id(f, site) << 32 | atomic_load_explicit(&self->tid, FCI_RLX));
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
	e->data_[0] = (uint64_t)(uintptr_t)here->pc;
	e->data_[1] = fci_here_bp(here);
	/* N4: last, so that an entry is active only when complete. */
	__atomic_store_n(&e->word_, busy, __ATOMIC_RELAXED);
}

FCI_INLINE int enter(struct fc_entry *e, struct fc_iface *f, const struct fc_ctx *ctx,
                     struct fc_site *site, struct fci_here here)
{
	struct fci_thread *self;
	struct fci_claim c;
	uint64_t gate, now;
	int rc;

	if (fci_unlikely(!e || !fci_iface_ok(f)))
		return -EINVAL;
	self = fci_thread_self();
	/* A2 -> X3 (set of the gate): read again after the claim. */
	gate = atomic_load_explicit(&f->gate->word, FCI_ACQ);
	if (fci_unlikely((gate & FCI_GATE_ON_ENTER) || ctx))
		return fci_enter_long(e, f, ctx, site, here);
	now = fci_now(f);
	rc = fci_claim(f, fci_cpu_hint(&f->counters), gate, &c);
	if (fci_unlikely(rc != FCI_GOT))
		return enter_refused(e, f, site, here, gate, now, rc);
	if (fci_unlikely(c.slot >= f->slots0))
		return fci_enter_claimed(e, f, site, here, now, &c);
	publish(e, f, site, &here, self, now, &c);
	/* N5: a rate of sampling; all ones where every call is measured. */
	if (fci_unlikely(FCI_GEN(c.word) * FCI_SCRAMBLE <= atomic_load_explicit(&f->gate->sample, FCI_RLX)))
		fci_sample_start(e, f, now);
	return 0;
}

int fc_enter_at(struct fc_entry *e, struct fc_iface *f, const struct fc_ctx *ctx, struct fc_site *site)
{
	return enter(e, f, ctx, site, (struct fci_here){ __builtin_frame_address(0), __builtin_return_address(0) });
}

int (fc_enter)(struct fc_entry *e, struct fc_iface *f, const struct fc_ctx *ctx)
{
	return enter(e, f, ctx, NULL, (struct fci_here){ __builtin_frame_address(0), __builtin_return_address(0) });
}

/* A site's handle is cached with the serial number of the context it came from. */
int fc_enter_name(struct fc_entry *e, const char *name, int literal, const struct fc_ctx *ctx,
                  struct fc_site *site)
{
	struct fci_here here = { __builtin_frame_address(0), __builtin_return_address(0) };

	return enter(e, fci_site_iface(site, name, literal), ctx, site, here);
}

int fc_enter_function(struct fc_entry *e, const char *module, struct fc_site *site)
{
	struct fci_here here = { __builtin_frame_address(0), __builtin_return_address(0) };

	return enter(e, fci_site_iface_fn(site, module), NULL, site, here);
}

/* The plain way out of a call whose latency is measured. */
static int leave_measured(struct fc_entry *e, struct fc_iface *f, uint64_t w)
{
	uint64_t start = e->start_, now = fci_clock_now(&f->fc->clock);

	__atomic_store_n(&e->word_, 0, __ATOMIC_RELAXED); /* N9 */
	fci_self.held--;
	if (fci_unlikely(!fci_release(f, e->slot_, w)))
		return fci_leave_late(f, e->slot_, w, start, FCI_E_SAMPLED);
	fci_latency_add(f, now > start ? now - start : 0);
	return 1;
}

FCI_INLINE int leave(struct fc_entry *e)
{
	uint64_t w, meta;
	struct fc_iface *f;

	if (fci_unlikely(!e))
		return 0;
	/* N9: two threads may exit one entry: the CAS in fci_release decides. */
	w = __atomic_load_n(&e->word_, __ATOMIC_RELAXED);
	if (fci_unlikely(!w))
		return 0;
	f = e->iface_;
	meta = __atomic_load_n(&e->meta_, __ATOMIC_RELAXED);
	if (fci_unlikely(meta & FCI_E_SLOW)) {
		if ((meta & FCI_E_SLOW) != FCI_E_SAMPLED)
			return fci_leave_long(e, w);
		return leave_measured(e, f, w);
	}
	__atomic_store_n(&e->word_, 0, __ATOMIC_RELAXED);
	fci_self.held--;
	if (fci_unlikely(!fci_release(f, e->slot_, w)))
		return fci_leave_late(f, e->slot_, w, e->start_, 0);
	return 1;
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
