/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * inflight.c - the search for a free slot, hints, views, extents. The fast ways in and out are
 * inline in inflight.h; read its top first.
 *
 * Hints. T has two bits a group, S two bits a part of a group's lines. A release sets MAYBE. A
 * caller that finds nothing behind a MAYBE makes it SUSPECT, looks again, and makes that EMPTY if
 * nobody has set it MAYBE meanwhile. Who finds SUSPECT only looks: one prober, no herd of writers.
 * So every failed probe but one per hint is paid for by a release that found the hint cleared.
 * SUSPECT alone does not say whose it is: between a prober's two steps a release may have made it
 * MAYBE and a second prober SUSPECT again. So each word has a version that every SUSPECT raises, and
 * EMPTY is written under the prober's own version only. One that lost it makes the hint MAYBE again.
 */
#include <errno.h>
#include <stdlib.h>

#include "inflight.h"

/* ---- geometry ---------------------------------------------------------------------------------- */

static const struct fci_extent *extent_of(const struct fc_iface *f, uint32_t slot)
{
	/* A1 -> R1 (fci_extents_attach). */
	uint32_t n = atomic_load_explicit(&f->n_extents, FCI_ACQ);

	for (uint32_t x = 0; x < n; x++)
		if (slot - f->extent[x].first < f->extent[x].slots)
			return &f->extent[x];
	return &f->extent[0]; /* only by spoilt content: stay inside the mapping */
}

/* Hints that an extent needs in each group: at most FCI_HINTS. */
static uint32_t parts_of(const struct fci_extent *x)
{
	return (x->tiers + (1u << x->part_shift) - 1) >> x->part_shift;
}

static uint32_t local(const struct fci_extent *x, uint32_t slot)
{
	return slot - x->first < x->slots ? slot - x->first : 0;
}

fci_a64 *fci_word_far(const struct fc_iface *f, uint32_t slot)
{
	const struct fci_extent *x = extent_of(f, slot);

	return FCI_AT(f->fc, x->words, fci_a64) + local(x, slot);
}

fci_a32 *fci_more(const struct fc_iface *f, uint32_t slot)
{
	const struct fci_extent *x = extent_of(f, slot);

	return FCI_AT(f->fc, x->more, fci_a32) + (size_t)local(x, slot) * FCI_CELLS_MORE;
}

struct fci_record *fci_record_far(const struct fc_iface *f, uint32_t slot)
{
	const struct fci_extent *x = extent_of(f, slot);

	return FCI_AT(f->fc, x->records, struct fci_record) + local(x, slot);
}

uint32_t fci_rank(const struct fc_iface *f, uint32_t slot)
{
	const struct fci_extent *x = extent_of(f, slot);

	return x->first + fci_rank0(f, local(x, slot));
}

/* ---- hints ------------------------------------------------------------------------------------- */

#define HINT_TRIES 64 /* fails only when another hint of the word has changed */

/* One look at all of T: versions added up, and *ret_hints what all hints have in common. Versions only
 * rise: two looks with the same sum have seen the same versions. */
static uint64_t look_at_t(const struct fc_iface *f, uint32_t *ret_hints)
{
	uint64_t versions = 0, t;
	uint32_t hints = FCI_HINTS_EMPTY;

	for (uint32_t i = 0; i <= f->t_words; i++) {
		/* A3 -> X2 (fci_free_word, fci_undo) through X6: SC, see fci_find. */
		t = atomic_load_explicit(i ? &f->block->t[i] : &f->gate->t0, FCI_SC);
		hints &= (uint32_t)t;
		versions += t >> 32;
	}
	*ret_hints = hints;
	return versions;
}

/* No hint is MAYBE: each has the bit of SUSPECT, which is one of EMPTY too. */
static int none_maybe(uint32_t hints)
{
	return (hints & 0xaaaaaaaau) == 0xaaaaaaaau;
}

/* Words seen EMPTY one after the other prove nothing: a place may have been taken behind the look and
 * another freed before it. EMPTY twice under the same versions were so at once between the two looks. */
int fci_full_far(const struct fc_iface *f)
{
	uint32_t first, second;
	uint64_t versions = look_at_t(f, &first);

	return first == FCI_HINTS_EMPTY && look_at_t(f, &second) == versions && second == FCI_HINTS_EMPTY;
}

static uint32_t hint_get(fci_a64 *h, uint32_t shift)
{
	/* A3 -> X2 (fci_free_word, fci_undo) through X6: SC, see fci_is_settled. */
	return (uint32_t)(atomic_load_explicit(h, FCI_SC) >> shift) & 3;
}

/* Make MAYBE SUSPECT; 1: this caller did, and is the prober while the word has that version. Bounded,
 * since leaving it MAYBE costs only looks. */
static int hint_suspect(fci_a64 *h, uint32_t shift, uint32_t *ret_version)
{
	/* N4: re-checked by the CAS. */
	uint64_t c = atomic_load_explicit(h, FCI_RLX), next;

	for (int tries = 0; tries < HINT_TRIES && !((c >> shift) & FCI_SUSPECT); tries++) {
		next = ((c & ~((uint64_t)3 << shift)) | (uint64_t)FCI_SUSPECT << shift) + FCI_HINT_VER_ONE;
		/* X4 -> A4, A5 (fci_is_settled): before the second probe, SC. Litmus there. */
		if (atomic_compare_exchange_weak_explicit(h, &c, next, FCI_SC, FCI_RLX)) {
			*ret_version = (uint32_t)(next >> 32);
			return 1;
		}
	}
	return 0;
}

/* Make this prober's SUSPECT EMPTY; 0: a release has made it MAYBE, or another prober has come. Bounded,
 * since the caller makes it MAYBE then, which costs only looks. */
static int hint_clear(fci_a64 *h, uint32_t shift, uint32_t version)
{
	/* N4: re-checked by the CAS. */
	uint64_t c = atomic_load_explicit(h, FCI_RLX);

	for (int tries = 0; tries < HINT_TRIES && (uint32_t)(c >> 32) == version && ((c >> shift) & 3) == FCI_SUSPECT; tries++)
		/* X9: under the version of X4: nobody has set MAYBE since then. SC as all of T and S. */
		if (atomic_compare_exchange_weak_explicit(h, &c, c | (uint64_t)FCI_EMPTY << shift, FCI_SC, FCI_RLX))
			return 1;
	return 0;
}

static void hint_maybe(fci_a64 *h, uint32_t shift)
{
	/* A4 -> X4 (hint_suspect): SC, after the slot was freed; then X6 -> A3 (fci_full). */
	if ((atomic_load_explicit(h, FCI_SC) >> shift) & 3)
		atomic_fetch_and_explicit(h, ~((uint64_t)3 << shift), FCI_SC);
}

/* S before T: who sees T set finds S set. */
static void hint_set(struct fc_iface *f, uint32_t slot)
{
	const struct fci_extent *x = extent_of(f, slot);
	uint32_t line = local(x, slot) >> 3, g = line & f->group_mask, part = line >> f->group_bits >> x->part_shift;

	hint_maybe(&f->groups[g].s[x - f->extent], FCI_HINT_SHIFT(part));
	FC_TEST_POINT("hint");
	hint_maybe(fci_t(f, g), FCI_HINT_SHIFT(g));
}

void fci_hint(struct fc_iface *f, uint32_t slot)
{
	hint_set(f, slot);
	if (slot < f->slots0)
		fci_set_hot(f, slot);
}

FCI_NOINLINE int fci_freed_far(struct fc_iface *f, uint32_t slot)
{
	fci_hint(f, slot);
	/* A6 -> X5 (wait.c): as in fci_is_settled. */
	if (atomic_load_explicit(&f->gate->word, FCI_SC) & FCI_GATE_WAITERS)
		fci_grant(f);
	return 1;
}

/* Bits of T that belong to no group stay EMPTY. */
uint64_t fci_t_none(const struct fc_iface *f, uint32_t i)
{
	uint32_t groups = f->group_mask + 1, first = i * FCI_HINTS;

	if (groups >= first + FCI_HINTS)
		return 0;
	return groups <= first ? FCI_HINTS_EMPTY : (uint32_t)(UINT64_MAX << ((groups - first) * 2));
}

/* All hints of a word MAYBE but those in `none`. The version stays: a stopped prober may hold it. */
static void hints_maybe(fci_a64 *h, uint32_t none)
{
	uint64_t old;

	/* X6 -> A3: SC, as hint_maybe(). */
	if ((uint32_t)atomic_load_explicit(h, FCI_SC) == none)
		return;
	old = atomic_fetch_and_explicit(h, ~(uint64_t)FCI_HINTS_EMPTY | none, FCI_SC);
	if (((uint32_t)old & none) != none) /* a new word, or a spoilt one */
		atomic_fetch_or_explicit(h, none, FCI_SC);
}

void fci_hints_reset(struct fc_iface *f)
{
	/* A1 -> R1 (fci_extents_attach). */
	uint32_t n = atomic_load_explicit(&f->n_extents, FCI_ACQ);

	/* As a release of every slot would: S before T. */
	for (uint32_t g = 0; g <= f->group_mask; g++)
		for (uint32_t x = 0; x < n; x++)
			hints_maybe(&f->groups[g].s[x], 0);
	for (uint32_t i = 0; i <= f->t_words; i++)
		hints_maybe(i ? &f->block->t[i] : &f->gate->t0, (uint32_t)fci_t_none(f, i));
}

/* ---- the search -------------------------------------------------------------------------------- */

/* One pass over the search's way; what it was given, and what it found. */
struct search {
	struct fc_iface *f;
	struct fci_claim *claim;
	uint64_t gate; /* flags as the caller saw them */
	int any_rank;  /* dry run: slots of any rank will do */
};

static uint32_t search_limit(const struct search *s, uint64_t gate)
{
	return s->any_rank ? UINT32_MAX : FCI_GATE_LIMIT(gate);
}

/* Try every free slot of rank < limit of one line. */
static int probe_line(struct search *s, const struct fci_extent *x, uint32_t line)
{
	struct fc_iface *f = s->f;
	fci_a64 *words = FCI_AT(f->fc, x->words, fci_a64) + (size_t)line * 8;
	/* A2 -> X3 (fci_gate_set): read anew after a hint was suspected, so that a reset of the
	 * hints for a higher limit is either seen by the clearing CAS or its limit here. SC. */
	uint32_t limit = search_limit(s, atomic_load_explicit(&f->gate->word, FCI_SC));

	for (uint32_t k = 0; k < 8; k++) {
		uint32_t rank = x->first + fci_rank0(f, line * 8 + k);
		uint64_t w;

		if (rank >= limit)
			break; /* ranks grow along a line */
		/* A3 -> X2: SC, see fci_is_settled. */
		w = atomic_load_explicit(&words[k], FCI_SC);
		if (FCI_LOW(w) != FCI_FREE)
			continue;
		/* X1 -> X2: as in fci_claim_hot. Fails when another caller took it: go on. */
		if (!atomic_compare_exchange_strong_explicit(&words[k], &w, w | fci_me(f) | FCI_CLAIMED, FCI_SC, FCI_RLX))
			continue;
		FC_TEST_POINT("claimed");
		s->claim->slot = x->first + line * 8 + k;
		s->claim->word = w;
		/* A2 -> X3 (fci_gate_set): as in fci_claim_hot. */
		if (!fci_gate_moved(s->gate, atomic_load_explicit(&f->gate->word, FCI_SC), s->any_rank ? FCI_ANY_RANK : rank))
			return FCI_GOT;
		fci_undo(f, s->claim, s->gate);
		return FCI_CHANGED;
	}
	return FCI_FULL;
}

static int probe_part(struct search *s, const struct fci_extent *x, uint32_t g, uint32_t part)
{
	uint32_t tier = part << x->part_shift, end = tier + (1u << x->part_shift);

	for (; tier < end && tier < x->tiers; tier++) {
		int rc = probe_line(s, x, (tier << s->f->group_bits) | g);

		if (rc != FCI_FULL)
			return rc;
	}
	return FCI_FULL;
}

/* All parts of group g whose hints say maybe. */
static int probe_group(struct search *s, uint32_t g)
{
	struct fc_iface *f = s->f;
	/* A1 -> R1 (fci_extents_attach). */
	uint32_t n = atomic_load_explicit(&f->n_extents, FCI_ACQ);

	for (uint32_t xi = 0; xi < n; xi++) {
		const struct fci_extent *x = &f->extent[xi];
		fci_a64 *h = &f->groups[g].s[xi];
		uint32_t parts = parts_of(x);

		for (uint32_t part = 0; part < parts; part++) {
			uint32_t shift = FCI_HINT_SHIFT(part), hint = hint_get(h, shift), version;
			int rc;

			if (hint == FCI_EMPTY)
				continue;
			rc = probe_part(s, x, g, part);
			if (rc != FCI_FULL)
				return rc;
			FC_TEST_POINT("probed");
			if (hint != FCI_MAYBE || !hint_suspect(h, shift, &version))
				continue; /* somebody else proves it empty; we have looked */
			FC_TEST_POINT("suspect");
			rc = probe_part(s, x, g, part);
			FC_TEST_POINT("suspected");
			if (rc == FCI_FULL && hint_clear(h, shift, version))
				continue;
			hint_maybe(h, shift); /* the next one may prove it empty */
			if (rc != FCI_FULL)
				return rc;
		}
	}
	return FCI_FULL;
}

/* What the parts do with S, the groups do with T. */
static int search_group(struct search *s, uint32_t g)
{
	fci_a64 *t = fci_t(s->f, g);
	uint32_t shift = FCI_HINT_SHIFT(g), hint = hint_get(t, shift), version;
	int rc;

	if (hint == FCI_EMPTY)
		return FCI_FULL;
	rc = probe_group(s, g);
	FC_TEST_POINT("probed");
	if (rc != FCI_FULL || hint != FCI_MAYBE || !hint_suspect(t, shift, &version))
		return rc;
	FC_TEST_POINT("suspect");
	/* The prober's second look: mostly at S alone, which says EMPTY now. A release that it misses
	 * sets T after this. */
	rc = probe_group(s, g);
	FC_TEST_POINT("suspected");
	if (rc != FCI_FULL || !hint_clear(t, shift, version))
		hint_maybe(t, shift);
	return rc;
}

/* Dry run, over the limit: hints speak of ranks under it, so look at every line. O(slots). */
static int search_all(struct search *s)
{
	struct fc_iface *f = s->f;
	/* A1 -> R1 (fci_extents_attach). */
	uint32_t n = atomic_load_explicit(&f->n_extents, FCI_ACQ);

	for (uint32_t x = 0; x < n; x++)
		for (uint32_t line = 0; line < f->extent[x].slots / 8; line++) {
			int rc = probe_line(s, &f->extent[x], line);

			if (rc != FCI_FULL)
				return rc;
		}
	return FCI_FULL;
}

/* The home group first, then all others whose T does not say EMPTY. */
static int search_groups(struct search *s, uint32_t home)
{
	for (uint32_t i = 0; i <= s->f->group_mask; i++) {
		int rc = search_group(s, (home + i) & s->f->group_mask);

		if (rc != FCI_FULL)
			return rc;
	}
	return FCI_FULL;
}

/*
 * A refusal needs a moment when nothing was free (I4). Either one word covers all of T and says EMPTY:
 * then I3 holds for all places at that load. Or T is read, all places behind hints that are not EMPTY
 * are looked at, and T is read again: with the same versions and without a MAYBE in both reads. Then no
 * hint was MAYBE in between: a place that was seen taken, or stood behind an EMPTY, and was freed since
 * has its releaser in the gap still when T is read again. Each pass leaves EMPTY what it can, so the next
 * one mostly has its proof, unless others came and went meanwhile. Passes are bounded, for nobody may
 * be held here: who saw that in each of them is refused without the proof.
 */
int fci_find(struct fc_iface *f, uint32_t home, uint64_t gate, int any_rank, struct fci_claim *c)
{
	struct search s = { .f = f, .claim = c, .gate = gate, .any_rank = any_rank };

	if (any_rank)
		return search_all(&s);
	for (int pass = 0; pass < FCI_FIND_PASSES; pass++) {
		uint32_t before, after;
		uint64_t versions = look_at_t(f, &before);
		int rc;

		if (before == FCI_HINTS_EMPTY && f->t_words == 0)
			return FCI_FULL;
		FC_TEST_POINT("pass");
		rc = search_groups(&s, home);
		if (rc != FCI_FULL)
			return rc;
		if (none_maybe(before) && look_at_t(f, &after) == versions && none_maybe(after))
			return FCI_FULL;
	}
	return FCI_FULL;
}

FCI_NOINLINE void fci_undo(struct fc_iface *f, const struct fci_claim *c, uint64_t gate)
{
	/* X2 -> X1, A3: SC, see fci_is_settled. A store: nobody but the claimer changes a CLAIMED word. */
	atomic_store_explicit(fci_word(f, c->slot), c->word, FCI_SC);
	fci_hint(f, c->slot);
	if (!(gate & FCI_GATE_GRANTING))
		fci_offer(f);
}

void fci_unclaim(struct fc_iface *f, const struct fci_claim *c)
{
	fci_undo(f, c, 0);
}

/* ---- views ------------------------------------------------------------------------------------- */

/* A7 -> R3 (publish, entry.c), A8 -> X1: the word, the fields, the word again (I5). */
int fci_view(const struct fc_iface *f, uint32_t slot, struct fci_view *v)
{
	fci_a64 *word = fci_word(f, slot);
	struct fci_record *r = fci_record(f, slot);
	uint64_t who;

	/* A7 -> R3 (publish, entry.c): the record belongs to this word's call. */
	v->word = atomic_load_explicit(word, FCI_ACQ);
	if (!fci_is_call(v->word))
		return 0;
	v->slot = slot;
	FC_TEST_POINT("view");
	/* A8: acquire keeps the second look at the word behind the fields (-> X1: a next claimer's
	 * stores come after its CAS, so who read one of them sees the changed word). */
	v->start = atomic_load_explicit(&r->start, FCI_ACQ);
	who = atomic_load_explicit(&r->who, FCI_ACQ);
	v->frame = atomic_load_explicit(&r->frame, FCI_ACQ);
	v->meta = atomic_load_explicit(&r->meta, FCI_ACQ);
	v->tag = atomic_load_explicit(&r->tag, FCI_ACQ);
	for (uint32_t i = 0; i < FCI_CELLS_NEAR; i++)
		v->cells[i] = atomic_load_explicit(&r->cells[i], FCI_ACQ);
	for (uint32_t i = 0; FCI_META_VER(v->meta) && i < FCI_CELLS_MORE; i++)
		v->cells[FCI_CELLS_NEAR + i] = atomic_load_explicit(&fci_more(f, slot)[i], FCI_ACQ);
	v->tid = (uint32_t)who;
	v->site = (uint32_t)(who >> 32);
	/* N5: ordered by A8. */
	return atomic_load_explicit(word, FCI_RLX) == v->word;
}

static int pick_all(const struct fc_iface *f, const struct fci_view *v, uint64_t arg)
{
	(void)f;
	(void)v;
	(void)arg;
	return 1;
}

uint32_t fci_oldest(const struct fc_iface *f, struct fci_view *v, uint32_t n)
{
	return fci_oldest_of(f, 0, fci_slots(f), v, n, pick_all, 0);
}

uint32_t fci_oldest_of(const struct fc_iface *f, uint32_t from, uint32_t count, struct fci_view *v, uint32_t n,
                       fci_pick_fn pick, uint64_t arg)
{
	uint32_t have = 0;
	struct fci_view one;

	for (uint32_t s = from; s < from + count && n; s++) {
		uint32_t i;

		if (!fci_view(f, s, &one) || (have == n && one.start >= v[have - 1].start) || !pick(f, &one, arg))
			continue;
		i = have < n ? have++ : n - 1;
		for (; i > 0 && v[i - 1].start > one.start; i--)
			v[i] = v[i - 1];
		v[i] = one;
	}
	return have;
}

/* A loan that reserves nothing under the limit, or is for a call that is under it itself. */
static int lends_in_vain(const struct fc_iface *f, uint32_t slot, uint32_t limit)
{
	/* A11 -> R1 (lend_to, limit.c) through the word LENT. */
	uint32_t call = (uint32_t)(atomic_load_explicit(&fci_record(f, slot)->tag, FCI_ACQ) >> 40);

	return fci_rank(f, slot) >= limit || (call < fci_slots(f) && fci_rank(f, call) < limit);
}

uint32_t fci_inside_count(const struct fc_iface *f, uint32_t limit, uint32_t *ret_over)
{
	uint32_t n = 0, over = 0, slots = fci_slots(f);

	for (uint32_t s = 0; s < slots; s++) {
		/* A9 -> X1, X2: SC; a claim under DRAIN counts after its own CAS, so of two claimers
		 * the later one sees the other. */
		uint64_t w = atomic_load_explicit(fci_word(f, s), FCI_SC);

		if (FCI_LOW(w) == FCI_FREE)
			continue;
		if (FCI_STATE(w) == FCI_LENT) {
			over += lends_in_vain(f, s, limit);
			continue;
		}
		n++;
		if (FCI_STATE(w) != FCI_LENDER && FCI_STATE(w) != FCI_LENDER_DETACHED && fci_rank(f, s) >= limit)
			over++;
	}
	if (ret_over)
		*ret_over = over;
	return n;
}

uint64_t fci_generations(const struct fc_iface *f)
{
	uint64_t n = 0;
	uint32_t slots = fci_slots(f);

	for (uint32_t s = 0; s < slots; s++)
		/* A9 -> X2: what was counted before a release is seen after this: stats.c. */
		n += FCI_GEN(atomic_load_explicit(fci_word(f, s), FCI_ACQ));
	return n;
}

void fci_inflight_reset(struct fc_iface *f)
{
	uint32_t slots = fci_slots(f), taken = 0;

	for (uint32_t s = 0; s < slots; s++) {
		fci_a64 *word = fci_word(f, s);
		/* N8: in the child of a fork, alone. */
		uint64_t w = atomic_load_explicit(word, FCI_RLX);

		if (FCI_LOW(w) == FCI_FREE)
			continue;
		atomic_store_explicit(word, FCI_NEXT_FREE(w), FCI_RLX);
		taken++;
	}
	fci_count(f, FCI_C_UNDONE, taken); /* they are the parent's calls: see stats.c */
	/* N8: alone. */
	atomic_store_explicit(&f->block->rare.admitted_shown, 0, FCI_RLX);
	atomic_store_explicit(&f->block->resizing, 0, FCI_RLX);
	atomic_store_explicit(&f->block->rare.lending, 0, FCI_RLX);
	atomic_store_explicit(&f->block->rare.loans, 0, FCI_RLX);
	fci_hints_reset(f);
}

/* ---- extents ----------------------------------------------------------------------------------- */

void fci_extents_attach(struct fc_iface *f)
{
	/* A10 -> R4: the extents' numbers in the segment. */
	uint32_t there = atomic_load_explicit(&f->block->n_extents, FCI_ACQ);
	/* N7: attaching is serialised by `resizing` or set-up; equal numbers may be written twice. */
	uint32_t here = atomic_load_explicit(&f->n_extents, FCI_RLX);

	for (; here < there && here < FCI_EXTENTS_MAX; here++) {
		struct fci_extent x = f->block->extent[here];
		uint64_t end = f->fc->geo.bytes;

		/* Spoilt numbers are not used: the extent stays unknown here. */
		if (x.slots == 0 || x.slots > 4 * FC_CAP_MAX + 8 * FCI_GROUPS_MAX || x.words > end ||
		    (uint64_t)x.slots * sizeof(uint64_t) > end - x.words || x.records > end ||
		    (uint64_t)x.slots * sizeof(struct fci_record) > end - x.records || x.more > end ||
		    (uint64_t)x.slots * FCI_CELLS_MORE * sizeof(fci_a32) > end - x.more || x.part_shift > 16 ||
		    x.tiers != x.slots >> 3 >> f->group_bits || parts_of(&x) > FCI_HINTS)
			return;
		f->extent[here] = x;
		/* R1 -> A1: the extent's numbers come before it is counted. */
		atomic_store_explicit(&f->n_extents, here + 1, FCI_REL);
	}
}

/* Add one extent for `slots` in all, at least as large as all before it. */
static int add_extent(struct fc_iface *f, uint32_t slots)
{
	struct fci_block *b = f->block;
	/* N7: under `resizing`. */
	uint32_t n = atomic_load_explicit(&b->n_extents, FCI_RLX), line_slots = 8u << f->group_bits;
	struct fci_extent *x = &b->extent[n];
	uint64_t off;

	if (n == FCI_EXTENTS_MAX)
		return -ENOSPC;
	x->first = n ? b->extent[n - 1].first + b->extent[n - 1].slots : 0;
	x->slots = (slots - x->first + line_slots - 1) / line_slots * line_slots;
	if (x->slots < x->first)
		x->slots = x->first;
	x->tiers = x->slots / line_slots;
	for (x->part_shift = 0; parts_of(x) > FCI_HINTS; x->part_shift++)
		;
	off = fci_arena_take(f->fc, (uint64_t)x->slots * (sizeof(uint64_t) + sizeof(struct fci_record) +
	                                                  FCI_CELLS_MORE * sizeof(fci_a32)));
	if (!off)
		return -ENOSPC;
	x->records = off;
	x->words = off + (uint64_t)x->slots * sizeof(struct fci_record);
	x->more = x->words + (uint64_t)x->slots * sizeof(uint64_t);
	/* R4 -> A10. */
	atomic_store_explicit(&b->n_extents, n + 1, FCI_REL);
	return 0;
}

/* X7: one at a time. */
int fci_extents_grow(struct fc_iface *f, uint32_t slots)
{
	uint32_t free = 0;
	int rc = 0;

	/* X7: one at a time; acquire takes over what the last one did, release hands it on. */
	if (!atomic_compare_exchange_strong_explicit(&f->block->resizing, &free, 1, FCI_AR, FCI_RLX))
		return -EAGAIN;
	fci_extents_attach(f);
	while (rc == 0 && fci_slots(f) < slots) {
		rc = add_extent(f, slots);
		fci_extents_attach(f);
	}
	/* X7. */
	atomic_store_explicit(&f->block->resizing, 0, FCI_REL);
	return rc;
}
