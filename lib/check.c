/* SPDX-License-Identifier: BSD-2-Clause */
/* check.c - see check.h. */
#include "chain.h"
#include "check.h"
#include "leave.h"
#include "limit.h"
#include "weight.h"

#define LOOK_AT 16u /* calls that one check looks at */
#define OLDEST  8u  /* of them, the oldest; the others in turn, so that those that live hide none */
#define PLACES  512u /* places that one check passes over; the next one goes on behind them */

/* A part of the places. */
struct part {
	uint32_t from, count;
};

/* ---- proof ------------------------------------------------------------------------------------- */

static int on_stack(const struct fci_thread_view *t, uint64_t addr)
{
	return addr >= t->stack_lo && addr < t->stack_hi;
}

/* Did the thread's word come after the call's? The thread publishes its call before its words, so
 * they may also be older. Numbers wrap: a difference of more than half the range proves nothing. */
static int is_newer(uint64_t word, uint64_t frame)
{
	return (int16_t)(uint16_t)(FCI_FRAME_SEQ(word) - FCI_FRAME_SEQ(frame)) > 0;
}

/* Has the thread entered a guard since, from where the call's scope cannot be alive? Each word of
 * the thread carries its own entry number, so each is a proof by itself. */
static int scope_left(const struct fci_view *v, const struct fci_thread_view *t)
{
	uint64_t addr = FCI_FRAME_ADDR(v->frame), e = FCI_FRAME_ADDR(t->last_entry), sp = FCI_FRAME_ADDR(t->last_sp);

	if (!on_stack(t, addr))
		return 0;
	if (is_newer(t->last_entry, v->frame) && on_stack(t, e) &&
	    e + sizeof(struct fc_entry) > addr && e < addr + sizeof(struct fc_entry))
		return 1;
	return is_newer(t->last_sp, v->frame) && on_stack(t, sp) && sp > addr;
}

/* Only calls of this process can be judged here. */
static int is_stale(const struct fc_iface *f, const struct fci_view *v)
{
	struct fci_thread_view t;
	int alive;

	if (fci_is_detached(v->word) || (uint64_t)FCI_OWNER(v->word) << 3 != fci_me(f))
		return 0;
	alive = fci_thread_look(v->tid, &t);
	return alive == 0 || (alive == 1 && scope_left(v, &t));
}

/* ---- purge ------------------------------------------------------------------------------------- */

static void purged(struct fc_iface *f, uint32_t n)
{
	/* N1: a statistic. */
	atomic_fetch_add_explicit(&f->block->rare.purged, n, FCI_RLX);
	fc_event_note(f, FC_EVENT_PURGED, n, fci_inside_count(f, UINT32_MAX, NULL));
}

/* Can the call be proven stale at all? */
static int may_be_stale(const struct fc_iface *f, const struct fci_view *v, uint64_t none)
{
	(void)none;
	return !fci_is_detached(v->word) && (uint64_t)FCI_OWNER(v->word) << 3 == fci_me(f);
}

/* The next n of them, by their slots, among at most `places`. */
static uint32_t in_turn(struct fc_iface *f, struct fci_view *v, uint32_t n, uint32_t places)
{
	fci_a32 *turn = &f->block->rare.purge_turn;
	/* N1: whose turn it is; two checks at once may look at the same ones. */
	uint32_t slots = fci_slots(f), s = atomic_load_explicit(turn, FCI_RLX), have = 0;

	for (uint32_t i = 0; i < places && have < n; i++, s++) {
		if (s >= slots)
			s = 0;
		if (fci_view(f, s, &v[have]) && may_be_stale(f, &v[have], 0))
			have++;
	}
	/* N1: as above. */
	atomic_store_explicit(turn, s, FCI_RLX);
	return have;
}

static uint32_t purge_these(struct fc_iface *f, const struct fci_view *v, uint32_t have, uint64_t now)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < have; i++)
		if (is_stale(f, &v[i]))
			n += (uint32_t)fci_abandon(f, &v[i], now);
	return n;
}

static uint32_t purge_in(struct fc_iface *f, struct part p, uint64_t now)
{
	struct fci_view v[LOOK_AT];
	uint32_t have = fci_oldest_of(f, p.from, p.count, v, OLDEST, may_be_stale, 0), n = purge_these(f, v, have, now);

	if (have == OLDEST)
		n += purge_these(f, v, in_turn(f, v, LOOK_AT - OLDEST, p.count), now);
	if (n)
		purged(f, n);
	return n;
}

uint32_t fci_purge_stale(struct fc_iface *f, uint64_t now)
{
	return purge_in(f, (struct part){ 0, fci_slots(f) }, now);
}

uint32_t fci_purge_thread(struct fc_iface *f, uint32_t tid, uint64_t now)
{
	uint32_t n = 0, slots = fci_slots(f);
	struct fci_view v;

	for (uint32_t s = 0; s < slots; s++) {
		if (!fci_view(f, s, &v) || (uint64_t)FCI_OWNER(v.word) << 3 != fci_me(f) ||
		    (tid != UINT32_MAX && (v.tid != tid || fci_is_detached(v.word))))
			continue;
		n += (uint32_t)fci_abandon(f, &v, now);
	}
	return n;
}

/* ---- write-off --------------------------------------------------------------------------------- */

/* key: state << 62 | generation of the element << 35 | process << 22 | thread that writes off. */
enum { EMPTY = 0, RESV = 1, PREP = 2, ACTIVE = 3 };
#define KEY_STATE(k_)       ((uint32_t)((k_) >> 62))
#define KEY_TID(k_)         ((uint32_t)(k_) & 0x3fffff)
#define KEY_OWNER(k_)       ((uint32_t)((k_) >> 22) & FCI_OWNER_MAX)
#define KEY_AS(k_, state_)  (((k_) & ~((uint64_t)3 << 62)) | (uint64_t)(state_) << 62)
#define KEY_NEXT_EMPTY(k_)  (((((k_) >> 35) + 1) & 0x7ffffff) << 35)

static struct fci_writeoff *element(const struct fc_iface *f, uint32_t i)
{
	uint32_t part = 28 - (uint32_t)__builtin_clz(i + 8);

	return FCI_AT(f->fc, f->writeoffs_off[part], struct fci_writeoff) + (i - FCI_WRITEOFF_FIRST(part));
}

static uint32_t budget_of(const struct fc_iface *f)
{
	/* N2: a setting, bounded by what was taken from the arena. */
	uint32_t n = atomic_load_explicit(&f->block->config.writeoff, FCI_RLX);

	return n < fci_writeoffs(f) ? n : fci_writeoffs(f);
}

/* SC: of two that have reserved one each, the later one counts both. */
uint32_t fci_writeoff_used(const struct fc_iface *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fci_writeoffs(f); i++)
		/* A1 -> X1. */
		n += KEY_STATE(atomic_load_explicit(&element(f, i)->key, FCI_SC)) != EMPTY;
	return n;
}

/* From k to `state`, if nothing came between; k is then the new key, else what was found. */
static int turn(struct fci_writeoff *w, uint64_t *k, uint32_t state)
{
	uint64_t next = state == EMPTY ? KEY_NEXT_EMPTY(*k) : KEY_AS(*k, state);

	/* X2 -> A1, A2: the fields are there when it becomes PREP. SC with the words of slots. */
	if (!atomic_compare_exchange_strong_explicit(&w->key, k, next, FCI_SC, FCI_SC))
		return 0;
	*k = next;
	return 1;
}

/* R3 -> A3: release: whoever reads one of them reads a key of this time or later after it. */
static void fill(struct fci_writeoff *w, const struct fci_view *v)
{
	atomic_store_explicit(&w->start, v->start, FCI_REL);
	atomic_store_explicit(&w->who, (uint64_t)v->site << 32 | v->tid, FCI_REL);
	atomic_store_explicit(&w->frame, v->frame, FCI_REL);
	atomic_store_explicit(&w->meta, v->meta, FCI_REL);
	/* R3: all of them. */
	atomic_store_explicit(&w->tag, v->tag, FCI_REL);
	atomic_store_explicit(&w->slot, v->slot, FCI_REL);
	atomic_store_explicit(&w->word, v->word, FCI_REL);
}

/* Are there more in use than the budget that was made smaller allows? */
static int over_budget(const struct fc_iface *f, uint32_t budget)
{
	return budget < fci_writeoffs(f) && fci_writeoff_used(f) > budget;
}

/* An element of the budget, RESV: nobody but this thread, or who mends after its death, changes it. */
static struct fci_writeoff *reserve(struct fc_iface *f, uint64_t *k)
{
	uint32_t budget = budget_of(f);
	/* N4: own word, and where the last one was found. */
	uint64_t me = fci_me(f) >> 3 << 22 | atomic_load_explicit(&fci_thread_self()->tid, FCI_RLX);
	uint32_t from = atomic_load_explicit(&f->block->rare.writeoff_turn, FCI_RLX);

	for (uint32_t n = 0; n < budget; n++) {
		uint32_t i = (uint32_t)(((uint64_t)from + n) % budget);
		struct fci_writeoff *w = element(f, i);
		/* N5: re-checked by the CAS. */
		uint64_t empty = atomic_load_explicit(&w->key, FCI_RLX);

		*k = KEY_AS(empty, RESV) | me;
		/* X1 -> A1: acquire: its last user is done with the fields. SC with the count that follows. */
		if (KEY_STATE(empty) != EMPTY || !atomic_compare_exchange_strong_explicit(&w->key, &empty, *k, FCI_SC, FCI_RLX))
			continue;
		/* N4: as above. */
		atomic_store_explicit(&f->block->rare.writeoff_turn, i + 1, FCI_RLX);
		if (!over_budget(f, budget))
			return w;
		(void)turn(w, k, EMPTY);
		return NULL;
	}
	return NULL;
}

/* Is `now` the word of the call's slot between the two steps of its write-off? CLAIMED, but under the
 * generation of a call that has run: whoever claims gets a new one. */
static int is_purged(uint64_t now, uint64_t call)
{
	return FCI_GEN(now) == FCI_GEN(call) && FCI_STATE(now) == FCI_CLAIMED;
}

/* The second step: free the slot of a call that was purged, if that is still to be done. Whoever does it
 * frees what was lent for it. */
static void free_purged(struct fc_iface *f, uint32_t slot, uint64_t call)
{
	/* A4 -> X4. */
	uint64_t now = atomic_load_explicit(fci_word(f, slot), FCI_SC);

	if (is_purged(now, call) && fci_release(f, slot, now))
		fci_loan_free(f, slot, call);
}

/* The first step: the slot still is taken, and nobody's but ours, until its element is ACTIVE. */
static int purge_half(struct fc_iface *f, const struct fci_view *v)
{
	fci_a64 *word = fci_word(f, v->slot);
	uint64_t now = v->word;

	/* Again only when housekeeping has lent for it or taken back meanwhile: lock-free. */
	while (fci_is_call(now) && FCI_GEN(now) == FCI_GEN(v->word) && fci_is_detached(now) == fci_is_detached(v->word))
		/* X4 -> A4: SC as all words; the element is PREP. */
		if (atomic_compare_exchange_strong_explicit(word, &now, (now & ~(uint64_t)0xffff) | fci_me(f) | FCI_CLAIMED,
		                                            FCI_SC, FCI_SC))
			return 1;
	return 0;
}

/* Both steps: see check.h. 1: this thread has ended the call. */
struct step {
	struct fci_writeoff *w;
	uint64_t k;
};

static int purge_both(struct fc_iface *f, const struct fci_view *v, void *arg)
{
	struct step *s = arg;

	FC_TEST_POINT("writeoff_prep");
	if (!purge_half(f, v)) {
		(void)turn(s->w, &s->k, EMPTY); /* it has left by itself */
		return 0;
	}
	FC_TEST_POINT("writeoff_purged");
	(void)turn(s->w, &s->k, ACTIVE); /* fails when its late exit was faster */
	FC_TEST_POINT("writeoff_active");
	free_purged(f, v->slot, v->word);
	FC_TEST_POINT("writeoff_freed");
	return 1;
}

/* Once, until another call has been written off: that every check meets it is no news. N1: statistics. */
static void used_up(struct fc_iface *f, uint32_t used)
{
	struct fci_rare *r = &f->block->rare;
	uint64_t n = atomic_load_explicit(&r->writeoffs, FCI_RLX) + 1;

	if (atomic_exchange_explicit(&r->used_up_told, n, FCI_RLX) != n)
		fc_event_note(f, FC_EVENT_WRITEOFF_USED_UP, used, budget_of(f));
}

static int write_off(struct fc_iface *f, const struct fci_view *v, uint64_t now, uint32_t *used)
{
	struct step s;

	s.w = reserve(f, &s.k);
	if (!s.w) {
		used_up(f, *used);
		return 0;
	}
	FC_TEST_POINT("writeoff_resv");
	fill(s.w, v);
	if (!turn(s.w, &s.k, PREP) || !fci_abandon_by(f, v, now, purge_both, &s))
		return 0;
	/* N1: a statistic. */
	atomic_fetch_add_explicit(&f->block->rare.writeoffs, 1, FCI_RLX);
	fc_event_note(f, FC_EVENT_WRITTEN_OFF, now - v->start, ++*used);
	return 1;
}

/* A2 -> X2, A3 -> R3: the key, the fields, the key again. Its key, or 0: in no state that has fields. */
static uint64_t read_element(const struct fci_writeoff *w, struct fci_view *v)
{
	/* A2 -> X2: SC: what its purger has done before is seen. */
	uint64_t k = atomic_load_explicit(&w->key, FCI_SC), who;

	if (KEY_STATE(k) < PREP)
		return 0;
	/* A3 -> R3: acquire keeps the second look at the key behind the fields. */
	v->start = atomic_load_explicit(&w->start, FCI_ACQ);
	who = atomic_load_explicit(&w->who, FCI_ACQ);
	v->frame = atomic_load_explicit(&w->frame, FCI_ACQ);
	v->meta = atomic_load_explicit(&w->meta, FCI_ACQ);
	v->tag = atomic_load_explicit(&w->tag, FCI_ACQ);
	v->slot = (uint32_t)atomic_load_explicit(&w->slot, FCI_ACQ);
	v->word = atomic_load_explicit(&w->word, FCI_ACQ);
	v->tid = (uint32_t)who;
	v->site = (uint32_t)(who >> 32);
	return k;
}

static void told_back(struct fc_iface *f, const struct fci_view *v, uint64_t now)
{
	fc_event_note(f, FC_EVENT_WRITEOFF_BACK, now > v->start ? now - v->start : 0, fci_writeoff_used(f));
}

int fci_writeoff_left(struct fc_iface *f, uint32_t slot, uint64_t word)
{
	struct fci_view v;
	int found = 0;

	free_purged(f, slot, word); /* first the word, then the elements */
	/* All of them: of two checks that met over one call, one has yet to give its element back. */
	for (uint32_t i = 0; i < fci_writeoffs(f); i++) {
		uint64_t k;

		/* Again only when PREP became ACTIVE under us. */
		while ((k = read_element(element(f, i), &v)) != 0 && v.slot == slot && FCI_GEN(v.word) == FCI_GEN(word)) {
			if (!turn(element(f, i), &k, EMPTY))
				continue;
			told_back(f, &v, fci_clock_now(&f->fc->clock));
			found = 1;
			break;
		}
	}
	return found;
}

int fci_writeoff_view(const struct fc_iface *f, uint32_t i, struct fci_view *v)
{
	const struct fci_writeoff *w = element(f, i);
	uint64_t k = read_element(w, v);

	/* N6: ordered by A3. */
	return KEY_STATE(k) == ACTIVE && atomic_load_explicit(&w->key, FCI_RLX) == k;
}

static int is_gone(const struct fc_iface *f, uint64_t k)
{
	struct fci_thread_view t;

	/* Threads of other processes are theirs to judge. */
	return (uint64_t)KEY_OWNER(k) << 3 == fci_me(f) && fci_thread_look(KEY_TID(k), &t) == 0;
}

/* Half of the way was gone: on with it. What is purged anybody may finish; the rest only when the purger
 * is gone. RESV: nothing was done. PREP: nothing was done, or the call has left by itself. Whether it is
 * gone is looked at before the word: then it has changed nothing since. */
static void mend(struct fc_iface *f, struct fci_writeoff *w)
{
	struct fci_view v;
	/* A1 -> X1. */
	uint64_t k = atomic_load_explicit(&w->key, FCI_SC), full;
	int gone = (KEY_STATE(k) == RESV || KEY_STATE(k) == PREP) && is_gone(f, k);

	if (KEY_STATE(k) < PREP) {
		if (gone)
			(void)turn(w, &k, EMPTY);
		return;
	}
	full = read_element(w, &v);
	/* N6: ordered by A3. */
	if (full != k || atomic_load_explicit(&w->key, FCI_RLX) != k || v.slot >= fci_slots(f))
		return;
	/* A4 -> X4. */
	if (is_purged(atomic_load_explicit(fci_word(f, v.slot), FCI_SC), v.word)) {
		/* Two may have met over the call: free the slot for an element that is ACTIVE, whosever. */
		if (KEY_STATE(k) == ACTIVE || turn(w, &k, ACTIVE))
			free_purged(f, v.slot, v.word);
	} else if (gone) {
		(void)turn(w, &k, EMPTY);
	}
}

void fci_writeoff_tick(struct fc_iface *f, uint64_t now)
{
	uint32_t n = fci_writeoffs(f);
	struct fci_view v;

	for (uint32_t i = 0; i < n; i++) {
		struct fci_writeoff *w = element(f, i);
		uint64_t k;

		mend(f, w);
		/* Its thread is gone: the budget comes back. */
		k = read_element(w, &v);
		if (KEY_STATE(k) == ACTIVE && fci_writeoff_view(f, i, &v) && is_stale(f, &v) && turn(w, &k, EMPTY))
			told_back(f, &v, now);
	}
}

void fci_writeoff_reset(struct fc_iface *f)
{
	for (uint32_t i = 0; i < fci_writeoffs(f); i++)
		/* N7: in the child of a fork, alone. */
		atomic_store_explicit(&element(f, i)->key, 0, FCI_RLX);
}

/* ---- the check --------------------------------------------------------------------------------- */

static uint64_t writeoff_after(const struct fc_iface *f, const struct fci_view *v)
{
	uint32_t own = FCI_META_STUCK_MS(v->meta);

	/* N2: a setting. */
	return own ? FC_MS(own) * 4 : atomic_load_explicit(&f->block->config.writeoff_after_ns, FCI_RLX);
}

static int is_overdue(const struct fc_iface *f, const struct fci_view *v, uint64_t now)
{
	return now >= v->start && now - v->start >= writeoff_after(f, v) && !FCI_META_IN_PRE(v->meta);
}

/* Write the oldest overdue calls off, as far as the budget goes. */
static uint32_t write_off_overdue(struct fc_iface *f, struct part p, uint64_t now)
{
	struct fci_view v[LOOK_AT];
	uint32_t have = budget_of(f) ? fci_oldest_of(f, p.from, p.count, v, LOOK_AT, is_overdue, now) : 0, n = 0;
	uint32_t used = have ? fci_writeoff_used(f) : 0;

	while (n < have && write_off(f, &v[n], now, &used))
		n++;
	return n;
}

/* The next check is this caller's if it wins the CAS. N8: times; order is nothing. */
static int win_check(struct fc_iface *f, uint64_t now)
{
	uint64_t next = atomic_load_explicit(&f->gate->next_check, FCI_RLX);
	uint64_t every = atomic_load_explicit(&f->block->config.check_every_ns, FCI_RLX);

	/* A clock that went back far must not put checks off for ever. */
	if (now < next && next - now <= every)
		return 0;
	return atomic_compare_exchange_strong_explicit(&f->gate->next_check, &next, now + every, FCI_RLX, FCI_RLX);
}

/* The next PLACES of them, or all. */
static struct part next_part(struct fc_iface *f)
{
	fci_a32 *turn = &f->block->rare.check_turn;
	uint32_t slots = fci_slots(f), from;

	if (slots <= PLACES)
		return (struct part){ 0, slots };
	/* N1: whose turn it is: one check at a time. */
	from = atomic_load_explicit(turn, FCI_RLX);
	from = from < slots ? from : 0;
	atomic_store_explicit(turn, from + PLACES, FCI_RLX);
	return (struct part){ from, slots - from < PLACES ? slots - from : PLACES };
}

/* Free places that nobody is told of: who freed them was stopped before it could. How many. */
static uint32_t show_free(struct fc_iface *f, struct part p, uint32_t limit)
{
	uint32_t n = 0;

	for (uint32_t s = p.from; s < p.from + p.count; s++) {
		/* N9: a hint; whoever follows it claims by CAS. */
		if (FCI_LOW(atomic_load_explicit(fci_word(f, s), FCI_RLX)) != FCI_FREE || fci_rank(f, s) >= limit)
			continue;
		fci_hint(f, s);
		n++;
	}
	return n;
}

/* A2 -> X3 of limit.c: the limit. */
int fci_check(struct fc_iface *f, uint64_t now)
{
	struct fci_rare *r = &f->block->rare;
	uint32_t limit = FCI_GATE_LIMIT(atomic_load_explicit(&f->gate->word, FCI_SC)), room;
	struct part p;

	if (!win_check(f, now))
		return 0;
	p = next_part(f);
	fci_miss_tick(f->fc);
	fci_max_u32(&r->peak, limit);
	room = purge_in(f, p, now);
	if (!room)
		room = write_off_overdue(f, p, now);
	fci_weight_sweep(f, p.from, p.count);
	(void)fci_limit_tick(f);
	if (!room && fci_chain_full(f, now))
		room = 1;
	FC_TEST_POINT("checked");
	return show_free(f, p, limit) || room;
}
