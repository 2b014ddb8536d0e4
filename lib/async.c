/* SPDX-License-Identifier: BSD-2-Clause */
/* async.c - see async.h. */
#include <errno.h>
#include <unistd.h>

#include "async.h"
#include "chain.h"
#include "entry.h"
#include "wait.h"

#define JUMP_NS      FC_S(3600) /* a clock that goes back further ends waits */
#define LOOP_LATE_NS FC_MS(1)

/* state: generation << 10 | node << 2 | one of these. A PENDING one is also the word of the entry
 * that waits: no word of a call ends in these two bits, and no two waits have the same. */
enum { EMPTY = 0, PENDING = 1, TAKEN = 2 };
#define STATE(s_)     ((uint32_t)((s_) & 3))
#define NODE(s_)      ((uint32_t)((s_) >> 2) & (FC_WAITERS_MAX - 1))
#define AS(s_, what_) (((s_) & ~(uint64_t)3) | (what_))
#define GENERATION    (FC_WAITERS_MAX << 2)
_Static_assert((FCI_BUSY & 3) != PENDING && (FCI_DETACHED & 3) != PENDING && (FCI_LENDER & 3) != PENDING &&
               (FCI_LENDER_DETACHED & 3) != PENDING && (FCI_UNTRACKED & 3) != PENDING && (FCI_PARKED(0) & 3) != PENDING,
               "a waiting entry is not taken for an active one");

/* What is needed to go on later. */
struct later {
	struct fc_entry *e;
	fc_grant_fn fn;
	void *arg;
	uint64_t pc;
	int reason; /* of a refusal at the end */
	struct fc_ctx ctx;
	struct fc_label labels[FCI_LABELS_MAX];
};

struct element {
	fci_a64 state;
	fci_a64 begun, end; /* of the wait */
	struct later later; /* of who made it PENDING, then of who made it TAKEN */
};

struct fci_async {
	struct fci_async *next; /* in fc->async; set before it is linked */
	struct fc_iface *f;
	uint32_t n;
	fci_a32 pending;        /* elements not EMPTY: polls pass by when there is none */
	struct element el[];
};

static size_t bytes_of(uint32_t n)
{
	return sizeof(struct fci_async) + n * sizeof(struct element);
}

/* The elements of an interface, made when first needed. NULL: no memory, or nobody may wait. */
static struct fci_async *async_of(struct fc_iface *f)
{
	/* A1 -> R1: the elements are complete. */
	struct fci_async *a = atomic_load_explicit(&f->async, FCI_ACQ);

	if (fci_likely(a != NULL) || fci_waiters(f) == 0)
		return a;
	pthread_mutex_lock(&f->fc->setup);
	/* N1: under the mutex. */
	a = atomic_load_explicit(&f->async, FCI_RLX);
	if (!a && (a = fci_alloc(f->fc, bytes_of(fci_waiters(f)))) != NULL) {
		a->f = f;
		a->n = fci_waiters(f);
		for (uint32_t i = 0; i < a->n; i++)
			atomic_store_explicit(&a->el[i].state, (uint64_t)i << 2, FCI_RLX);
		/* N1: under the mutex. */
		a->next = atomic_load_explicit(&f->fc->async, FCI_RLX);
		/* R1 -> A1. */
		atomic_store_explicit(&f->fc->async, a, FCI_REL);
		atomic_store_explicit(&f->async, a, FCI_REL);
	}
	pthread_mutex_unlock(&f->fc->setup);
	return a;
}

static uint64_t gate_of(const struct fc_iface *f)
{
	/* A5 -> X3 (fci_gate_set). */
	return atomic_load_explicit(&f->gate->word, FCI_SC);
}

static void count(struct fc_iface *f, int timed_out)
{
	/* N2: statistics. */
	atomic_fetch_add_explicit(&f->block->rare.waited, 1, FCI_RLX);
	if (timed_out)
		atomic_fetch_add_explicit(&f->block->rare.wait_timeouts, 1, FCI_RLX);
}

/* A place was given to the way after its section had ended: the chain is looked up anew. */
static int admit(struct fci_way *w)
{
	uint64_t was;
	int rc;

	was = fci_section_enter(w->self);
	/* A3 -> R1 of chain.c. */
	w->chain = atomic_load_explicit(&w->f->chain, FCI_ACQ);
	rc = fci_admit(w);
	fci_section_leave(w->self, was);
	return rc;
}

/* ---- in ---------------------------------------------------------------------------------------- */

/* The way goes on in a poll. The node is this way's, so the element is. */
static int pend(struct fci_way *w, struct element *el, struct fci_async *a, fc_grant_fn fn, void *arg)
{
	struct later *l = &el->later;
	uint64_t end = fci_wait_until(w), state;

	*l = (struct later){ .e = w->e, .fn = fn, .arg = arg, .pc = fci_here_get(w->e).pc, .ctx = *w->ctx };
	l->reason = w->ctx->deadline_ns && end == w->ctx->deadline_ns ? FC_REFUSED_DEADLINE : FC_REFUSED_WAIT;
	for (uint32_t i = 0; i < w->ctx->n_labels; i++)
		l->labels[i] = w->ctx->labels[i], l->labels[i].text = NULL; /* it lived for fc_enter() */
	/* R2 -> A4 (over): of this wait, or of one whose element has changed. */
	atomic_store_explicit(&el->begun, w->now, FCI_REL);
	atomic_store_explicit(&el->end, end, FCI_REL);
	/* N3: nobody else writes it while it is EMPTY. */
	state = AS(atomic_load_explicit(&el->state, FCI_RLX), PENDING) + GENERATION;
	w->e->iface_ = w->f;
	w->e->verdict_ = FC_PENDING;
	w->e->meta_ = FCI_E_ASYNC;
	w->e->word_ = state;
	FC_TEST_POINT("async");
	/* X1 -> X2 (fc_async_poll): element and entry are complete. SC, with the look at the node:
	 * T1: element = PENDING; granted? - T2: node = GRANTED; wake; poll: PENDING? Both missing
	 * the other is forbidden, else a grant would lie there unseen. */
	atomic_fetch_add_explicit(&a->pending, 1, FCI_SC);
	atomic_store_explicit(&el->state, state, FCI_SC);
	if (fci_wait_is_granted(w->f, NODE(state)))
		fci_wake(w->f->fc);
	return FC_PENDING;
}

static int wait_for(struct fci_way *w, struct fci_async *a, fc_grant_fn fn, void *arg)
{
	int node;

	if (!a)
		return fci_enter_fault(w->e, w->f, -ENOMEM);
	node = fci_wait_begin(w->f, w->now, 1);
	w->gate = gate_of(w->f);
	if (node < 0)
		return fci_refuse_full(w, FC_REFUSED_QUEUE);
	if (!fci_wait_again(w, (uint32_t)node))
		return pend(w, &a->el[node], a, fn, arg);
	count(w->f, 0);
	return admit(w);
}

int fc_enter_async(struct fc_entry *e, struct fc_iface *f, const struct fc_ctx *ctx, fc_grant_fn fn, void *arg)
{
	struct fci_async *a;
	struct fci_way w;
	int rc;

	if (!e || !fci_iface_ok(f) || !fn)
		return -EINVAL;
	fci_way_begin(&w, e, f, NULL);
	w.async = 1;
	fci_here_put(e, FCI_HERE);
	a = async_of(f);
	rc = fci_enter_way(&w, ctx);
	return rc == FC_PENDING ? wait_for(&w, a, fn, arg) : rc;
}

/* ---- out --------------------------------------------------------------------------------------- */

/* Make a wait this caller's to end, and its element empty. 0: somebody was faster. */
static int take(struct fci_async *a, uint64_t state, struct later *ret)
{
	struct element *el = &a->el[NODE(state)];

	/* X2 -> X1, X2: exactly one ends the wait; the element is as pend() left it. */
	if (!atomic_compare_exchange_strong_explicit(&el->state, &state, AS(state, TAKEN), FCI_SC, FCI_RLX))
		return 0;
	*ret = el->later;
	/* R3: before the node is free (wait.c, R2 -> X2), since its next owner fills the element. */
	atomic_store_explicit(&el->state, AS(state, EMPTY), FCI_REL);
	atomic_fetch_sub_explicit(&a->pending, 1, FCI_REL);
	return 1;
}

int fc_enter_cancel(struct fc_entry *e)
{
	struct fci_async *a;
	struct fci_claim claim;
	struct later later;
	uint64_t state;

	/* N4: a poll may change it just now; then it is no wait's word any more, or take() fails. */
	state = e ? __atomic_load_n(&e->word_, __ATOMIC_RELAXED) : 0;
	if (STATE(state) != PENDING || !fci_iface_ok(e->iface_))
		return 0;
	/* A1 -> R1. */
	a = atomic_load_explicit(&e->iface_->async, FCI_ACQ);
	if (!a || NODE(state) >= a->n || !take(a, state, &later))
		return 0;
	FC_TEST_POINT("async_cancel");
	__atomic_store_n(&e->word_, 0, __ATOMIC_RELAXED);
	e->verdict_ = 0;
	e->meta_ = 0;
	count(a->f, 0);
	if (!fci_wait_stop(a->f, NODE(state), &claim))
		fci_unclaim(a->f, &claim); /* granted: on to the next */
	return 1;
}

/* Is there anything to do for the wait in `el`? Looks only; take() makes sure it is the same one. */
static int over(const struct fci_async *a, uint32_t node, uint64_t now)
{
	const struct element *el = &a->el[node];
	/* A4 -> R2. */
	uint64_t begun = atomic_load_explicit(&el->begun, FCI_ACQ), end = atomic_load_explicit(&el->end, FCI_ACQ);

	return fci_wait_is_granted(a->f, node) || now >= end || (now < begun && begun - now > JUMP_NS) ||
	       fci_wait_called_off(a->f);
}

/* The entry of a wait gets what became of it. A cancel may look at its word at the same moment. */
static void deliver(struct fc_entry *e, const struct fc_entry *from)
{
	e->start_ = from->start_;
	e->slot_ = from->slot_;
	e->verdict_ = from->verdict_;
	memcpy(e->data_, from->data_, sizeof(e->data_));
	__atomic_store_n(&e->meta_, from->meta_, __ATOMIC_RELAXED);
	__atomic_store_n(&e->word_, from->word_, __ATOMIC_RELAXED); /* N4 */
}

/* End the wait that was taken: admit if it was granted, else refuse. Then tell. */
static void end_wait(struct fc_iface *f, uint32_t node, struct later *l, uint64_t now)
{
	struct fc_entry entered = FC_ENTRY_INIT, moved = FC_ENTRY_INIT;
	struct fci_way w;
	int granted, called_off, rc;

	fci_way_begin(&w, &entered, f, NULL);
	w.async = 1;
	fci_here_put(&entered, (struct fci_here){ .pc = l->pc });
	w.now = now;
	l->ctx.labels = l->ctx.n_labels ? l->labels : NULL;
	w.ctx = &l->ctx;
	granted = !fci_wait_stop(f, node, &w.claim);
	w.gate = gate_of(f);
	called_off = !granted && fci_wait_called_off(f);
	count(f, !granted && !called_off);
	if (granted)
		rc = admit(&w);
	else if (!called_off || (rc = fci_enter_way(&w, &l->ctx)) == FC_PENDING)
		rc = fci_refuse_full(&w, l->reason);
	if (rc == 0)
		fc_entry_take(&moved, &entered);
	else
		moved = entered;
	deliver(l->e, &moved);
	l->fn(l->arg, l->e, rc);
}

static int poll_iface(struct fci_async *a, uint64_t now)
{
	struct later later;
	int n = 0;

	for (uint32_t i = 0; i < a->n; i++) {
		/* X2 -> X1: SC, see pend. */
		uint64_t state = atomic_load_explicit(&a->el[i].state, FCI_SC);

		if (STATE(state) != PENDING || !over(a, i, now) || !take(a, state, &later))
			continue;
		end_wait(a->f, i, &later, now);
		n++;
	}
	return n;
}

int fc_async_poll(struct fc *fc)
{
	struct fci_async *a;
	uint64_t now, count;
	int n = 0;

	if (!fci_fc_ok(fc))
		return -EINVAL;
	if (fc->tick_fd >= 0)
		(void)!read(fc->tick_fd, &count, sizeof(count)); /* before the look: a later grant wakes again */
	now = fci_clock_now(&fc->clock);
	/* A1 -> R1; X2 -> X1: SC, see pend. */
	for (a = atomic_load_explicit(&fc->async, FCI_ACQ); a; a = a->next)
		if (atomic_load_explicit(&a->pending, FCI_SC))
			n += poll_iface(a, now);
	return n;
}

/* ---- for the rest of the library --------------------------------------------------------------- */

uint64_t fci_async_next(struct fc *fc)
{
	uint64_t next = FC_NEVER_NS, now = fci_clock_now(&fc->clock);

	/* A1 -> R1. N5: who begins to wait later says so to fc_tick by its own call. */
	for (struct fci_async *a = atomic_load_explicit(&fc->async, FCI_ACQ); a; a = a->next) {
		for (uint32_t i = 0; i < a->n && atomic_load_explicit(&a->pending, FCI_RLX); i++) {
			uint64_t end;

			if (STATE(atomic_load_explicit(&a->el[i].state, FCI_ACQ)) != PENDING)
				continue;
			/* A4 -> R2. */
			end = over(a, i, now) ? now + LOOP_LATE_NS : atomic_load_explicit(&a->el[i].end, FCI_ACQ);
			next = end < next ? end : next;
		}
	}
	return next;
}

void fci_async_free(struct fc_iface *f)
{
	/* N6: nobody else is there any more; the list goes with the context. */
	struct fci_async *a = atomic_load_explicit(&f->async, FCI_RLX);

	if (a)
		fci_free(f->fc, a, bytes_of(a->n));
	atomic_store_explicit(&f->async, NULL, FCI_RLX);
}

void fci_async_fork_child(struct fc *fc)
{
	/* N7: alone in the child. What is EMPTY fits no entry's word, nor will its next generation. */
	for (struct fci_async *a = atomic_load_explicit(&fc->async, FCI_RLX); a; a = a->next) {
		for (uint32_t i = 0; i < a->n; i++) {
			uint64_t state = atomic_load_explicit(&a->el[i].state, FCI_RLX);

			atomic_store_explicit(&a->el[i].state, AS(state, EMPTY), FCI_RLX);
		}
		/* N7: as above. */
		atomic_store_explicit(&a->pending, 0, FCI_RLX);
	}
}
