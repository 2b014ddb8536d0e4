/* SPDX-License-Identifier: BSD-2-Clause */
/* wait.c - see wait.h. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "limit.h"
#include "wait.h"

#define W_OWNER(s_)  ((uint64_t)((s_) & 0xfff8)) /* in place, as in slot words */
#define W_TICKET(s_) ((s_) >> 16)
/* In place of the ticket, when granted: the place, and the low bits of its generation. */
#define W_SLOT(s_)   ((uint32_t)((s_) >> 16))
#define W_GEN(s_)    ((s_) >> 48)
#define W_GRANTED(claim_, s_) \
	(FCI_GEN((claim_)->word) << 48 | (uint64_t)(claim_)->slot << 16 | W_OWNER(s_) | FCI_W_GRANTED)
#define W_ASYNC      (1u << 31) /* in futex: an event loop waits, not a thread */
#define VIRTUAL_SLICE_NS 1000000u

static struct fci_waiter *node_at(const struct fc_iface *f, uint32_t i)
{
	return FCI_AT(f->fc, f->waiters_off, struct fci_waiter) + i;
}

static uint32_t nodes_of(const struct fc_iface *f)
{
	/* N1: a setting, bounded by what was taken from the arena. */
	uint32_t n = atomic_load_explicit(&f->block->config.wait_max, FCI_RLX);

	return n < fci_waiters(f) ? n : fci_waiters(f);
}

/* A futex in a segment may be shared by processes: not FUTEX_PRIVATE. */
static void futex_wait(fci_a32 *word, uint32_t value, uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };

	syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

static void wake(struct fc_iface *f, struct fci_waiter *n)
{
	/* X1 -> A1 (fci_wait): the grant comes before the new value that ends the wait. */
	uint32_t v = atomic_fetch_add_explicit(&n->futex, 1, FCI_AR);

	if (v & W_ASYNC)
		fci_wake(f->fc);
	else
		syscall(SYS_futex, &n->futex, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* The node is complete: its turn may come from now on. */
static void publish(struct fc_iface *f, struct fci_waiter *n)
{
	/* N3: only the order of tickets counts. */
	uint64_t ticket = atomic_fetch_add_explicit(&f->block->rare.tickets, 1, FCI_RLX) + 1;

	/* R1 -> A2 (whose_turn): the node is complete. SC with X5. */
	atomic_store_explicit(&n->state, ticket << 16 | fci_me(f) | FCI_W_WAITING, FCI_SC);
	FC_TEST_POINT("waiting");
	/* X5 -> A6 of inflight.h: a release after this sees it; one before it is seen by the
	 * waiter's own try, which follows. SC: store buffering between (release, look at the
	 * gate) and (set the gate, look for a place). */
	fci_gate_set(f, FCI_GATE_WAITERS, 0);
}

int fci_wait_begin(struct fc_iface *f, uint64_t now, int async)
{
	uint32_t max = nodes_of(f);

	for (uint32_t i = 0; i < max; i++) {
		struct fci_waiter *n = node_at(f, i);
		/* N2: re-checked by the CAS. */
		uint64_t s = atomic_load_explicit(&n->state, FCI_RLX);

		if (FCI_W_STATE(s) != FCI_W_FREE)
			continue;
		/* X2: the node is this waiter's; acquire: after its last user. */
		if (!atomic_compare_exchange_strong_explicit(&n->state, &s, (s & ~(uint64_t)0xffff) | fci_me(f) | FCI_W_SETUP,
		                                             FCI_AR, FCI_RLX))
			continue;
		/* N3: R1 publishes them. */
		atomic_store_explicit(&n->since, now, FCI_RLX);
		atomic_store_explicit(&n->futex, async ? W_ASYNC : 0, FCI_RLX);
		publish(f, n);
		return (int)i;
	}
	return -1;
}

/* Make the granted place this process's own; what its word was before is that word without its low bits.
 * 0: it has gone with its granter. */
static int take_grant(struct fc_iface *f, uint64_t s, struct fci_claim *c)
{
	fci_a64 *word;
	uint64_t w;

	if (W_SLOT(s) >= fci_slots(f))
		return 0; /* spoilt */
	c->slot = W_SLOT(s);
	word = fci_word(f, c->slot);
	/* N5: re-checked by the CAS. */
	w = atomic_load_explicit(word, FCI_RLX);
	c->word = w & ~(uint64_t)0xffff;
	FC_TEST_POINT("taking");
	/* X1 of inflight.h, in two steps: the granter's claim, and this. SC as all words. */
	return FCI_STATE(w) == FCI_CLAIMED && (FCI_GEN(w) & 0xffff) == W_GEN(s) &&
	       atomic_compare_exchange_strong_explicit(word, &w, c->word | fci_me(f) | FCI_CLAIMED, FCI_SC, FCI_RLX);
}

static void node_free(struct fci_waiter *n, uint64_t s)
{
	/* R2 -> X2: done with the node. */
	atomic_store_explicit(&n->state, (s & ~(uint64_t)0xffff) | FCI_W_FREE, FCI_REL);
}

int fci_wait_granted(struct fc_iface *f, uint32_t node, struct fci_claim *c)
{
	struct fci_waiter *n = node_at(f, node);
	/* A3 -> X3 (hand_over): the place's word is there. */
	uint64_t s = atomic_load_explicit(&n->state, FCI_ACQ);

	if (FCI_W_STATE(s) != FCI_W_GRANTED)
		return 0;
	if (!take_grant(f, s, c)) {
		publish(f, n);
		fci_grant(f); /* in place of the try that follows a begin */
		return 0;
	}
	node_free(n, s);
	return 1;
}

int fci_wait_is_granted(const struct fc_iface *f, uint32_t node)
{
	/* A4 -> X3: SC, see async.c. */
	return FCI_W_STATE(atomic_load_explicit(&node_at(f, node)->state, FCI_SC)) == FCI_W_GRANTED;
}

int fci_wait_stop(struct fc_iface *f, uint32_t node, struct fci_claim *c)
{
	struct fci_waiter *n = node_at(f, node);
	/* N2: re-checked by the CAS; A3 -> X3 when it is GRANTED already. */
	uint64_t s = atomic_load_explicit(&n->state, FCI_ACQ);
	int taken;

	while (FCI_W_STATE(s) == FCI_W_WAITING)
		/* X4 -> X3: either this or the grant. Acquire on failure: the place's word. */
		if (atomic_compare_exchange_weak_explicit(&n->state, &s, (s & ~(uint64_t)0xffff) | FCI_W_FREE, FCI_AR, FCI_ACQ))
			return 1;
	taken = take_grant(f, s, c);
	node_free(n, s);
	return !taken;
}

/* ---- granting ---------------------------------------------------------------------------------- */

static int better(const struct fc_iface *f, uint64_t a, uint64_t b)
{
	/* N4: a setting. */
	if (atomic_load_explicit(&f->block->config.wait_order, FCI_RLX) == FC_WAIT_FIFO)
		return W_TICKET(a) < W_TICKET(b);
	return W_TICKET(a) > W_TICKET(b);
}

/* The waiter whose turn it is, and its state; NULL: nobody waits. */
static struct fci_waiter *whose_turn(struct fc_iface *f, uint64_t *ret_state)
{
	struct fci_waiter *best = NULL;

	for (uint32_t i = 0; i < fci_waiters(f); i++) {
		/* A2 -> R1 (publish). SC: see fci_grant. */
		uint64_t s = atomic_load_explicit(&node_at(f, i)->state, FCI_SC);

		if (FCI_W_STATE(s) == FCI_W_WAITING && (!best || better(f, s, *ret_state))) {
			best = node_at(f, i);
			*ret_state = s;
		}
	}
	return best;
}

/* Give a claimed place to the waiter whose turn it is. 0: nobody waits any more. */
static int hand_over(struct fc_iface *f, const struct fci_claim *c)
{
	struct fci_waiter *n;
	uint64_t s;

	while ((n = whose_turn(f, &s)) != NULL) {
		FC_TEST_POINT("granting");
		/* X3 -> A3, X4: tickets are unique, so this waiter or nobody. Fails when another granter or
		 * the waiter was faster: lock-free. Nothing but the state is written. */
		if (atomic_compare_exchange_strong_explicit(&n->state, &s, W_GRANTED(c, s), FCI_SC, FCI_RLX)) {
			wake(f, n);
			return 1;
		}
	}
	return 0;
}

/*
 * Lost wake-ups. A waiter publishes its node, sets WAITERS, then tries to claim. If that fails since
 * a granter holds the place at that moment, the granter's hand_over, or its look at the nodes after
 * it gave the place back, sees the node (all SC). If it fails since a call holds the place, or a claim
 * that is undone later, that one's exit or undo sees WAITERS. A granter's own undo is followed by
 * another round instead, so that grants do not nest. Rounds are bounded; housekeeping looks again.
 */
FCI_NOINLINE void fci_grant(struct fc_iface *f)
{
	uint32_t rounds = fci_waiters(f) + 1;
	struct fci_claim c;
	uint64_t s, gate;

	while (rounds-- > 0) {
		if (whose_turn(f, &s)) {
			int rc;

			/* A5 -> X3 (fci_gate_set). */
			gate = atomic_load_explicit(&f->gate->word, FCI_SC) | FCI_GATE_GRANTING;
			rc = fci_claim_counted(f, gate, &c);
			if (rc == FCI_FULL)
				return;
			if (rc == FCI_GOT && !hand_over(f, &c))
				fci_undo(f, &c, gate);
			continue;
		}
		fci_gate_set(f, 0, FCI_GATE_WAITERS);
		if (!whose_turn(f, &s))
			return;
		fci_gate_set(f, FCI_GATE_WAITERS, 0); /* one came meanwhile */
	}
}

void fci_offer(struct fc_iface *f)
{
	/* A6 -> X5. */
	if (atomic_load_explicit(&f->gate->word, FCI_SC) & FCI_GATE_WAITERS)
		fci_grant(f);
}

void fci_wait_tick(struct fc_iface *f)
{
	if (fci_waiting(f) > 0)
		fci_gate_set(f, FCI_GATE_WAITERS, 0); /* a granter may have been stopped before it did */
	fci_offer(f);
}

/* ---- waiting ----------------------------------------------------------------------------------- */

uint64_t fci_wait_until(const struct fci_way *w)
{
	/* N4: a setting. */
	uint64_t end = w->now + atomic_load_explicit(&w->f->block->config.wait_timeout_ns, FCI_RLX);

	if (end < w->now)
		end = FC_NEVER_NS;
	return w->ctx->deadline_ns && w->ctx->deadline_ns < end ? w->ctx->deadline_ns : end;
}

static int done(struct fci_way *w, int rc)
{
	struct fci_rare *r = &w->f->block->rare;

	/* N6: statistics. */
	atomic_fetch_add_explicit(&r->waited, 1, FCI_RLX);
	if (rc > FCI_CHANGED)
		atomic_fetch_add_explicit(&r->wait_timeouts, 1, FCI_RLX);
	w->now = fci_clock_now(&w->f->fc->clock);
	w->asked = 0;
	/* A5 -> X3 (fci_gate_set): for what follows. */
	w->gate = atomic_load_explicit(&w->f->gate->word, FCI_SC);
	return rc;
}

int fci_wait_again(struct fci_way *w, uint32_t node)
{
	struct fci_claim mine, granted;

	if (fci_claim_counted(w->f, w->gate, &mine) != FCI_GOT)
		return 0;
	FC_TEST_POINT("again");
	if (!fci_wait_stop(w->f, node, &granted))
		fci_unclaim(w->f, &granted); /* both: keep ours */
	w->claim = mine;
	return 1;
}

int fci_wait_called_off(const struct fc_iface *f)
{
	/* A5 -> X3 (fci_gate_set). Who switches wakes after that: see fci_wait_look_again. */
	return (atomic_load_explicit(&f->gate->word, FCI_SC) & (FCI_GATE_OFF | FCI_GATE_DRAINING | FCI_GATE_DRY_RUN)) || fc_off_get(f->fc);
}

void fci_wait_look_again(struct fc_iface *f)
{
	for (uint32_t i = 0; i < fci_waiters(f); i++) {
		/* A2 -> R1 (publish): who begins later looks at the gate itself. SC. */
		uint64_t s = atomic_load_explicit(&node_at(f, i)->state, FCI_SC);

		if (FCI_W_STATE(s) == FCI_W_WAITING)
			wake(f, node_at(f, i));
	}
}

int fci_wait(struct fci_way *w)
{
	struct fc_iface *f = w->f;
	int virtual = f->fc->clock.kind == FC_CLOCK_VIRTUAL, node = fci_wait_begin(f, w->now, 0);
	uint64_t end = fci_wait_until(w), now;

	if (node < 0)
		return FC_REFUSED_QUEUE;
	/* A5 -> X3 (fci_gate_set). */
	w->gate = atomic_load_explicit(&f->gate->word, FCI_SC);
	if (fci_wait_again(w, (uint32_t)node))
		return done(w, FCI_GOT);
	for (;;) {
		struct fci_waiter *n = node_at(f, (uint32_t)node);
		/* A1 -> X1 (wake): read before the look at the state, so a later grant ends the wait. */
		uint32_t v = atomic_load_explicit(&n->futex, FCI_ACQ);

		if (fci_wait_granted(f, (uint32_t)node, &w->claim))
			return done(w, FCI_GOT);
		if (fci_wait_called_off(f))
			return done(w, fci_wait_stop(f, (uint32_t)node, &w->claim) ? FCI_CHANGED : FCI_GOT);
		now = fci_clock_now(&f->fc->clock);
		if (now >= end || now + FC_S(3600) < w->now)
			break;
		futex_wait(&n->futex, v, virtual ? VIRTUAL_SLICE_NS : end - now < FC_S(1) ? end - now : FC_S(1));
	}
	if (!fci_wait_stop(f, (uint32_t)node, &w->claim))
		return done(w, FCI_GOT);
	return done(w, w->ctx->deadline_ns && end == w->ctx->deadline_ns ? FC_REFUSED_DEADLINE : FC_REFUSED_WAIT);
}

uint32_t fci_waiting(const struct fc_iface *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fci_waiters(f); i++)
		/* N7: a statistic. */
		n += FCI_W_STATE(atomic_load_explicit(&node_at(f, i)->state, FCI_RLX)) == FCI_W_WAITING;
	return n;
}

void fci_wait_reset(struct fc_iface *f)
{
	for (uint32_t i = 0; i < fci_waiters(f); i++)
		/* N8: in the child of a fork, alone. */
		atomic_store_explicit(&node_at(f, i)->state, 0, FCI_RLX);
	fci_gate_set(f, 0, FCI_GATE_WAITERS);
}
