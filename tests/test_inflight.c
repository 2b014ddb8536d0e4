/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The in-flight queue: exact caps, order, leaving from anywhere, generations, hints, geometry; and
 * its invariants I1 to I6 (lib/inflight.h) with threads stopped between any two of its atomics.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>

#include "lib/leave.h"
#include "lib/limit.h"
#include "support/actors.h"
#include "support/guarded.h"
#include "support/threads.h"

static struct guarded g;
static struct fc_entry e[FC_CAP_MAX + 1];

static int teardown(void **state)
{
	(void)state;
	actors_fini();
	return g.fc ? guarded_close(&g) : 0;
}

static void open_cap(uint32_t cap)
{
	memset(e, 0, sizeof(e));
	guarded_open(&g, &(struct fc_iface_opts){ .cap = cap, .expand = 1 });
}

/* ---- the cap ----------------------------------------------------------------------------------- */

static void admits_the_cap_and_not_one_more(uint32_t cap)
{
	FC_OPTS(fc_decision, d, .status = 0);
	struct fc_entry more = FC_ENTRY_INIT;

	for (int round = 0; round < 3; round++) {
		assert_int_equal(guarded_fill(&g, e, cap), cap);
		assert_int_equal(fc_inside(g.f, NULL), cap);
		for (int i = 0; i < 3; i++)
			assert_int_equal(fc_enter(&more, g.f, NULL), FC_REFUSED_CAP);
		assert_int_equal(fc_entry_decision(&more, &d), 0);
		assert_int_equal(d.limit, cap);
		assert_int_equal(d.observed, cap);
		assert_string_equal(d.rule, "cap");
		fc_exit(&more);
		assert_int_equal(fc_inside(g.f, NULL), cap);
		fc_exit(&e[cap / 2]);
		assert_int_equal(fc_enter(&e[cap / 2], g.f, NULL), 0);
		assert_int_equal(fc_enter(&more, g.f, NULL), FC_REFUSED_CAP);
		guarded_empty(e, cap);
		assert_int_equal(fc_inside(g.f, NULL), 0);
	}
}

/* scireum/sirius-biz PR 2408: one more than the limit was admitted. */
static void every_cap_is_exact(void **state)
{
	static const uint32_t caps[] = { 1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 100, 255, 256, 257, 1000 };

	(void)state;
	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
		open_cap(caps[i]);
		admits_the_cap_and_not_one_more(caps[i]);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void the_greatest_cap_is_exact(void **state)
{
	struct fc_entry more = FC_ENTRY_INIT;

	(void)state;
	open_cap(FC_CAP_MAX);
	assert_int_equal(guarded_fill(&g, e, FC_CAP_MAX), FC_CAP_MAX);
	assert_int_equal(fc_enter(&more, g.f, NULL), FC_REFUSED_CAP);
	guarded_empty(e, FC_CAP_MAX);
	assert_int_equal(guarded_stats(&g).admitted, FC_CAP_MAX);
}

static void a_cap_beyond_the_greatest_is_an_error(void **state)
{
	(void)state;
	guarded_context(&g, 0);
	assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = FC_CAP_MAX + 1 }), -EINVAL);
	assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = FC_CAP_MAX }), 0);
	assert_int_equal(fc_iface_set_cap(g.f, FC_CAP_MAX + 1), -EINVAL);
	assert_int_equal(fc_limit_get(g.f), FC_CAP_MAX);
}

/* golang/go 47221, resilience4j 417: a limit of zero was no limit. */
static void a_cap_of_zero_refuses_all(void **state)
{
	(void)state;
	open_cap(FC_CAP_REFUSE_ALL);
	assert_int_equal(guarded_fill(&g, e, 100), 0);
	assert_int_equal(fc_entry_verdict(&e[0]), FC_REFUSED_CAP);
	assert_int_equal(fc_iface_set_cap(g.f, 1), 0);
	assert_int_equal(guarded_fill(&g, e, 100), 1);
	assert_int_equal(fc_iface_set_cap(g.f, 0), 0);
	assert_int_equal(guarded_fill(&g, e + 1, 100), 0);
	fc_exit(&e[0]);
	assert_int_equal(guarded_fill(&g, e, 100), 0);
	assert_int_equal(guarded_stats(&g).admitted, 1);
}

/* ---- order, leaving ---------------------------------------------------------------------------- */

static unsigned listed(struct fc_in_flight *list, unsigned n)
{
	int have;

	memset(list, 0, n * sizeof(*list));
	list[0].size = sizeof(*list);
	have = fc_in_flight(g.f, list, n);
	return have < 0 ? UINT32_MAX : (unsigned)have;
}

static int enter_as(struct fc_entry *entry, uint64_t id)
{
	FC_OPTS(fc_ctx, c, .request_id = id);

	return fc_enter(entry, g.f, &c);
}

static void shuffle(unsigned *order, unsigned n)
{
	struct rng rng;

	rng_init(&rng, 7);
	for (unsigned i = 0; i < n; i++)
		order[i] = i;
	for (unsigned i = n; i > 1; i--) {
		unsigned j = rng_below(&rng, i), t = order[j];

		order[j] = order[i - 1];
		order[i - 1] = t;
	}
}

/* A FIFO whose head is popped at exit does not know who left; and purging heads let 350 calls into a
 * cap of 100. */
static void a_call_leaves_from_wherever_it_stands(void **state)
{
	enum { N = 100 };
	static struct fc_in_flight list[N];
	unsigned order[N], gone[N] = { 0 };

	(void)state;
	open_cap(N);
	for (unsigned i = 0; i < N; i++) {
		guarded_pass(&g, FC_MS(1));
		assert_int_equal(enter_as(&e[i], i + 1), 0);
	}
	shuffle(order, N);
	for (unsigned k = 0; k < N; k++) {
		unsigned next = 0;

		assert_int_equal(listed(list, N), N - k);
		for (unsigned i = 0; i < N; i++)
			if (!gone[i])
				assert_int_equal(list[next++].request_id, i + 1);
		assert_int_equal(fc_exit_status(&e[order[k]]), 1);
		gone[order[k]] = 1;
	}
	assert_int_equal(listed(list, N), 0);
}

static void the_queue_answers_oldest_first_with_time_and_thread(void **state)
{
	enum { N = 40 };
	static struct fc_in_flight list[N];
	unsigned order[N];
	uint64_t begin;

	(void)state;
	open_cap(N);
	begin = g.now;
	shuffle(order, N);
	for (unsigned i = 0; i < N; i++) {
		fc_clock_set(g.fc, begin + FC_MS(order[i]));
		assert_int_equal(enter_as(&e[i], order[i] + 1), 0);
	}
	guarded_pass(&g, FC_S(1));
	assert_int_equal(listed(list, N), N);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(list[i].start_ns, begin + FC_MS(i));
		assert_int_equal(list[i].age_ns, FC_S(1) - FC_MS(i));
		assert_int_equal(list[i].request_id, i + 1);
		assert_int_equal(list[i].tid, atomic_load(&fci_self.tid));
	}
	assert_int_equal(listed(list, 3), N);
	assert_int_equal(list[2].request_id, 3);
	guarded_empty(e, N);
}

/* ---- generations ------------------------------------------------------------------------------- */

static struct fc_entry same[2];
static fci_a32 counted, stale;

static void exit_same(void *arg, unsigned index, struct rng *rng)
{
	int rc;

	(void)arg;
	(void)rng;
	rc = fc_exit_status(&same[index % 2]);
	atomic_fetch_add(&counted, rc == 1);
	atomic_fetch_add(&stale, rc == -ESTALE);
}

/* resilience4j 263: a path could release more than once. */
static void a_permit_released_twice_counts_once(void **state)
{
	struct fc_entry copy;

	(void)state;
	open_cap(2);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	copy = e[0];
	assert_int_equal(fc_exit_status(&e[0]), 1);
	assert_int_equal(fc_exit_status(&e[0]), 0);
	assert_int_equal(fc_exit_status(&copy), -ESTALE);
	assert_int_equal(fc_exit_status(&copy), 0);
	assert_int_equal(guarded_fill(&g, e, 3), 2);
	assert_int_equal(guarded_stats(&g).late_exits, 1);
	guarded_empty(e, 2);
}

static void two_threads_that_exit_one_entry_release_once(void **state)
{
	(void)state;
	open_cap(2);
	for (int round = 0; round < 200; round++) {
		struct fc_entry one = FC_ENTRY_INIT;

		assert_int_equal(fc_enter(&one, g.f, NULL), 0);
		fc_entry_take(&same[0], &one);
		same[1] = same[0];
		atomic_store(&counted, 0);
		run_threads(4, exit_same, NULL);
		assert_int_equal(atomic_load(&counted), 1);
		assert_int_equal(fc_inside(g.f, NULL), 0);
	}
	assert_int_equal(guarded_stats(&g).admitted, 200);
	assert_int_equal(guarded_stats(&g).ok, 200);
}

/* Netflix/concurrency-limits 163: unlock called several times. */
static void a_late_exit_of_a_purged_call_changes_nothing_and_is_counted(void **state)
{
	struct fci_view v;
	struct fc_stats s;

	(void)state;
	open_cap(1);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	assert_int_equal(fci_oldest(g.f, &v, 1), 1);
	assert_int_equal(fci_abandon(g.f, &v, g.now), 1);
	assert_int_equal(fci_abandon(g.f, &v, g.now), 0);
	assert_int_equal(guarded_fill(&g, e + 1, 2), 1);
	assert_int_equal(fc_exit_status(&e[0]), -ESTALE);
	assert_int_equal(fc_exit_status(&e[0]), 0);
	assert_int_equal(fc_inside(g.f, NULL), 1);
	assert_int_equal(guarded_fill(&g, e, 1), 0);
	assert_int_equal(fc_exit_status(&e[1]), 1);
	s = guarded_stats(&g);
	assert_int_equal(s.late_exits, 1);
	assert_int_equal(s.abandoned, 1);
	assert_int_equal(s.admitted, 2);
	assert_int_equal(s.ok, 1);
}

static void stale_tokens_have_no_effect(void **state)
{
	enum { CAP = 5, OLD = 64 };
	static struct fc_entry old[OLD];
	unsigned in = 0, n_old = 0;
	uint64_t admitted = 0, attempts = 0;
	struct fc_stats s;
	struct rng rng;

	(void)state;
	open_cap(CAP);
	rng_init(&rng, 1);
	for (int i = 0; i < 200000; i++) {
		unsigned k;

		switch (rng_below(&rng, 3)) {
		case 0:
			attempts++;
			memset(&e[in], 0, sizeof(e[in]));
			k = fc_enter(&e[in], g.f, NULL) == 0;
			assert_int_equal(k, in < CAP);
			admitted += k;
			in += k;
			break;
		case 1:
			if (in == 0)
				break;
			k = rng_below(&rng, in--);
			old[n_old++ % OLD] = e[k];
			assert_int_equal(fc_exit_status(&e[k]), 1);
			e[k] = e[in];
			break;
		default:
			if (n_old < OLD)
				break;
			k = rng_below(&rng, OLD);
			same[0] = old[k];
			assert_int_equal(fc_exit_status(&same[0]), -ESTALE);
			break;
		}
		assert_int_equal(fc_inside(g.f, NULL), in);
	}
	s = guarded_stats(&g);
	assert_int_equal(s.admitted, admitted);
	assert_int_equal(s.refused[FC_REFUSED_CAP], attempts - admitted);
	guarded_empty(e, in);
}

/* ---- geometry ---------------------------------------------------------------------------------- */

static void ranks_are_a_permutation(uint32_t from, uint32_t slots)
{
	uint8_t *seen = calloc(slots, 1);

	assert_non_null(seen);
	for (uint32_t s = from; s < from + slots; s++) {
		uint32_t rank = fci_rank(g.f, s);

		assert_in_range(rank, from, from + slots - 1);
		assert_int_equal(seen[rank - from]++, 0);
	}
	free(seen);
}

/* Any limit is dealt evenly to the groups of the first extent. */
static void limits_are_spread_evenly(void)
{
	uint32_t groups = g.f->group_mask + 1, in[FCI_GROUPS_MAX] = { 0 };

	for (uint32_t rank = 0; rank < g.f->slots0; rank++) {
		uint32_t low = UINT32_MAX, high = 0;

		for (uint32_t s = 0; s < g.f->slots0; s++)
			if (fci_rank(g.f, s) == rank)
				in[(s >> 3) & g.f->group_mask]++;
		for (uint32_t i = 0; i < groups; i++) {
			low = in[i] < low ? in[i] : low;
			high = in[i] > high ? in[i] : high;
		}
		assert_in_range(high - low, 0, 1);
	}
}

static void every_slot_can_be_reached(void)
{
	uint32_t slots = fci_slots(g.f);
	struct fci_claim *c = calloc(slots + 1, sizeof(*c));
	uint8_t *seen = calloc(slots, 1);
	uint64_t gate;

	assert_non_null(c);
	assert_non_null(seen);
	fci_limit_change(g.f, slots);
	gate = atomic_load(&g.f->gate->word);
	for (uint32_t i = 0; i < slots; i++) {
		assert_int_equal(fci_claim(g.f, i * 7, gate, &c[i]), FCI_GOT);
		assert_int_equal(seen[c[i].slot]++, 0);
	}
	for (uint32_t cpu = 0; cpu < 300; cpu++)
		assert_int_equal(fci_claim(g.f, cpu, gate, &c[slots]), FCI_FULL);
	for (uint32_t i = 0; i < slots; i += 3) {
		fci_unclaim(g.f, &c[i]);
		assert_int_equal(fci_claim(g.f, i, gate, &c[slots]), FCI_GOT);
		assert_int_equal(c[slots].slot, c[i].slot);
	}
	for (uint32_t i = 0; i < slots; i++)
		fci_unclaim(g.f, &c[i]);
	assert_int_equal(fc_inside(g.f, NULL), 0);
	free(c);
	free(seen);
}

static void every_slot_has_a_rank_and_a_way_to_it(void **state)
{
	static const uint32_t cpus[] = { 1, 2, 3, 64, 256, 1024 }, caps[] = { 1, 2, 5, 64, 100, 257, 1000 };

	(void)state;
	for (size_t i = 0; i < sizeof(cpus) / sizeof(cpus[0]); i++) {
		for (size_t j = 0; j < sizeof(caps) / sizeof(caps[0]); j++) {
			uint32_t extents;

			guarded_context(&g, cpus[i]);
			assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = caps[j] }), 0);
			assert_in_range(g.f->group_mask + 1, 1, caps[j]);
			assert_in_range(g.f->group_mask + 1, 1, FCI_GROUPS_MAX);
			assert_int_equal(fci_slots(g.f), g.f->slots0);
			assert_in_range(caps[j], 1, g.f->slots0);
			limits_are_spread_evenly();
			every_slot_can_be_reached();
			assert_int_equal(fci_extents_grow(g.f, 4 * g.f->slots0), 0);
			extents = atomic_load(&g.f->n_extents);
			assert_in_range(extents, 2, FCI_EXTENTS_MAX);
			for (uint32_t x = 0; x < extents; x++)
				ranks_are_a_permutation(g.f->extent[x].first, g.f->extent[x].slots);
			every_slot_can_be_reached();
			assert_int_equal(guarded_close(&g), 0);
		}
	}
}

static void a_limit_is_kept_on_any_number_of_cpus(void **state)
{
	static const uint32_t cpus[] = { 1, 2, 3, 64, 256 };
	struct fci_claim c[300];

	(void)state;
	for (size_t i = 0; i < sizeof(cpus) / sizeof(cpus[0]); i++) {
		guarded_context(&g, cpus[i]);
		assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 300 }), 0);
		for (uint32_t limit = 0; limit <= 299; limit += 13) {
			uint32_t got = 0;
			uint64_t gate;

			fci_limit_change(g.f, limit);
			gate = atomic_load(&g.f->gate->word);
			while (got < 300 && fci_claim(g.f, got * 5, gate, &c[got]) == FCI_GOT) {
				assert_in_range(fci_rank(g.f, c[got].slot) + 1, 1, limit);
				got++;
			}
			assert_int_equal(got, limit);
			while (got > 0)
				fci_unclaim(g.f, &c[--got]);
		}
		assert_int_equal(guarded_close(&g), 0);
	}
}

/* ---- hints (I6) -------------------------------------------------------------------------------- */

/* All, or those of one group, or the place freed last. */
static void spoil(struct rng *rng)
{
	uint32_t group = rng_below(rng, g.f->group_mask + 1);

	switch (rng_below(rng, 4)) {
	case 0:
		fci_hints_reset(g.f);
		break;
	case 1:
		for (int x = 0; x < (int)FCI_EXTENTS_MAX; x++)
			atomic_store(&g.f->groups[group].s[x], 0);
		break;
	case 2:
		atomic_store(&g.f->groups[group].hot, 0);
		break;
	default:
		atomic_fetch_and(fci_t(g.f, group), ~((uint64_t)3 << FCI_HINT_SHIFT(group)));
		break;
	}
}

static void hints_may_be_overwritten_at_any_time(void **state)
{
	static const uint32_t cpus[] = { 1, 2, 64, 256 };
	struct fci_claim c[100];
	struct rng rng;

	(void)state;
	rng_init(&rng, 2);
	for (size_t i = 0; i < sizeof(cpus) / sizeof(cpus[0]); i++) {
		unsigned in = 0;
		uint64_t gate;

		guarded_context(&g, cpus[i]);
		assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 100 }), 0);
		fci_limit_change(g.f, 99);
		gate = atomic_load(&g.f->gate->word);
		for (int step = 0; step < 20000; step++) {
			unsigned k = in ? rng_below(&rng, in) : 0;

			if (rng_chance(&rng, 3))
				spoil(&rng);
			if (in && rng_chance(&rng, 3)) {
				fci_unclaim(g.f, &c[k]);
				c[k] = c[--in];
			} else if (in < 99) {
				assert_int_equal(fci_claim(g.f, rng_below(&rng, 300), gate, &c[in]), FCI_GOT);
				in++;
			} else {
				assert_int_equal(fci_claim(g.f, rng_below(&rng, 300), gate, &c[99]), FCI_FULL);
			}
			assert_int_equal(fc_inside(g.f, NULL), in);
		}
		while (in)
			fci_unclaim(g.f, &c[--in]);
		assert_int_equal(guarded_close(&g), 0);
	}
}

/* ---- one thread stopped between two atomics ---------------------------------------------------- */

/* Come and go until told to stop: passes all points. */
static void one_call(struct actor *self)
{
	struct fc_entry entry = FC_ENTRY_INIT;

	(void)self;
	if (fc_enter(&entry, g.f, NULL) == 0)
		fc_exit(&entry);
}

static const char *const points[] = { "claimed", "record", "released", "hint", "suspect" };

/* With a thread stopped at `point`, others get all places but at most one, at once and exactly. */
static void others_go_on(const char *point, uint32_t cap)
{
	uint32_t room;
	unsigned in;

	/* It holds one, has freed one that nobody knows of, or none. */
	room = cap - fc_inside(g.f, NULL);
	for (int round = 0; round < 3; round++) {
		in = guarded_fill(&g, e, cap + 1);
		if (!strcmp(point, "released") || !strcmp(point, "hint"))
			assert_in_range(in, room - 1, room);
		else
			assert_int_equal(in, room);
		assert_in_range(fc_inside(g.f, NULL), 0, cap);
		guarded_empty(e, in);
	}
}

static void a_thread_stopped_anywhere_makes_nobody_wait_and_hides_one_place_at_most(void **state)
{
	static const uint32_t caps[] = { 1, 2, 3, 8, 20 };
	static struct actor a;

	(void)state;
	for (size_t p = 0; p < sizeof(points) / sizeof(points[0]); p++) {
		for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
			unsigned full;

			open_cap(caps[i]);
			actors_init();
			/* So that hints say "nothing free", and there is something to look for. */
			full = guarded_fill(&g, e, caps[i] + 1);
			assert_int_equal(full, caps[i]);
			if (strcmp(points[p], "suspect"))
				fc_exit(&e[0]);
			else
				fci_hints_reset(g.f);
			actor_start(&a, one_call, NULL, points[p]);
			if (!actor_stopped(&a) && strcmp(points[p], "hint"))
				fail_msg("nobody came to %s", points[p]);
			guarded_empty(e, full);
			others_go_on(points[p], caps[i]);
			/* The next check finds whatever was hidden. */
			guarded_pass(&g, FC_MS(20));
			full = guarded_fill(&g, e, caps[i] + 1);
			assert_int_equal(full, caps[i] - (fc_inside(g.f, NULL) - full));
			assert_int_equal(guarded_free(&g), 0);
			guarded_empty(e, full);
			actor_end(&a);
			assert_int_equal(guarded_fill(&g, e, caps[i] + 1), caps[i]);
			guarded_empty(e, caps[i]);
			assert_int_equal(guarded_close(&g), 0);
		}
	}
}

static void a_thread_killed_in_a_gap_hides_one_place_until_the_next_check(void **state)
{
	static const char *const gaps[] = { "released", "hint", "suspect" };
	static struct actor a;

	(void)state;
	for (size_t p = 0; p < sizeof(gaps) / sizeof(gaps[0]); p++) {
		unsigned full;

		open_cap(3);
		actors_init();
		full = guarded_fill(&g, e, 4);
		if (strcmp(gaps[p], "suspect"))
			fc_exit(&e[0]);
		else
			fci_hints_reset(g.f);
		actor_start(&a, one_call, NULL, gaps[p]);
		(void)actor_stopped(&a);
		actor_kill(&a);
		guarded_empty(e, full);
		assert_int_equal(fc_inside(g.f, NULL), 0);
		full = guarded_fill(&g, e, 4);
		assert_in_range(full, 2, 3);
		guarded_pass(&g, FC_MS(20));
		full += guarded_fill(&g, e + full, 2);
		assert_int_equal(full, 3);
		guarded_empty(e, 3);
		assert_int_equal(guarded_close(&g), 0);
	}
}

static void hold_one(struct actor *self)
{
	struct fc_entry entry = FC_ENTRY_INIT;

	(void)self;
	if (fc_enter(&entry, g.f, NULL) == 0) {
		actor_point("held");
		fc_exit(&entry);
	}
}

/* The hints say that all is taken; a thread is stopped, or killed, when it has freed its place but not
 * said so. */
static void a_place_hidden_in_a_gap_is_found_by_the_next_check(void **state)
{
	static const char *const gaps[] = { "released", "hint" };
	static struct actor a;

	(void)state;
	for (int p = 0; p < 4; p++) {
		guarded_context(&g, 1);
		assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 3, .expand = 1 }), 0);
		actors_init();
		memset(e, 0, sizeof(e));
		assert_int_equal(guarded_fill(&g, e, 1), 1); /* the place where a search begins */
		actor_start(&a, hold_one, NULL, "held");
		assert_int_equal(actor_stopped(&a), 1);
		assert_int_equal(guarded_fill(&g, e + 1, 2), 1);
		/* Once more, since a check has just set all hints. */
		assert_int_equal(guarded_fill(&g, e + 2, 1), 0);
		assert_int_equal(fci_full(g.f), 1);
		actor_stop_at(&a, gaps[p % 2], 0);
		assert_int_equal(actor_step(&a), 1);
		assert_int_equal(fc_inside(g.f, NULL), 2);
		assert_int_equal(guarded_fill(&g, e + 2, 1), 0);
		if (p >= 2)
			actor_kill(&a);
		guarded_pass(&g, FC_MS(20));
		assert_int_equal(guarded_fill(&g, e + 2, 1), 1);
		if (p < 2)
			actor_end(&a);
		guarded_empty(e, 3);
		assert_int_equal(guarded_close(&g), 0);
	}
}

/*
 * Two probers, and a release that each of them has missed: the first one's SUSPECT looks untouched, since
 * the second has made it anew. Its EMPTY would hide the place while the second stands still.
 */
static void a_second_prober_keeps_the_first_from_hiding_a_place(void **state)
{
	static struct actor a, b;

	(void)state;
	guarded_context(&g, 1);
	assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 1, .expand = 1 }), 0);
	actors_init();
	memset(e, 0, sizeof(e));
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	actor_start(&a, one_call, NULL, "suspected"); /* about to say EMPTY */
	assert_int_equal(actor_stopped(&a), 1);
	guarded_empty(e, 1);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	actor_start(&b, one_call, NULL, "probed"); /* has seen it taken, behind MAYBE */
	assert_int_equal(actor_stopped(&b), 1);
	guarded_empty(e, 1); /* nothing owed: MAYBE */
	actor_stop_at(&b, "suspect", 0);
	assert_int_equal(actor_step(&b), 1);
	actor_stop_at(&a, "probed", 0); /* not yet at the hints of groups */
	(void)actor_step(&a);
	assert_int_equal(atomic_load(&g.f->groups[0].s[0]) & 3, FCI_MAYBE);
	assert_int_equal(fci_full(g.f), 0);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	guarded_empty(e, 1);
	actor_end(&a);
	actor_end(&b);
	assert_int_equal(guarded_close(&g), 0);
}

/* A version that falls back would let a stopped prober's EMPTY through later. */
static void a_reset_of_hints_keeps_versions(void **state)
{
	uint64_t t, s;

	(void)state;
	guarded_context(&g, 1);
	assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 1, .expand = 1 }), 0);
	memset(e, 0, sizeof(e));
	assert_int_equal(guarded_fill(&g, e, 2), 1);
	t = atomic_load(&g.f->gate->t0);
	s = atomic_load(&g.f->groups[0].s[0]);
	assert_int_equal((uint32_t)t, FCI_HINTS_EMPTY);
	assert_in_range(t >> 32, 1, UINT32_MAX);
	assert_in_range(s >> 32, 1, UINT32_MAX);
	fci_hints_reset(g.f);
	assert_int_equal(atomic_load(&g.f->gate->t0), (t & ~(uint64_t)UINT32_MAX) | fci_t_none(g.f, 0));
	assert_int_equal(atomic_load(&g.f->groups[0].s[0]), s & ~(uint64_t)UINT32_MAX);
	/* So does the end of a version's range. */
	atomic_store(&g.f->gate->t0, (uint64_t)UINT32_MAX << 32 | fci_t_none(g.f, 0));
	atomic_store(&g.f->groups[0].s[0], (uint64_t)UINT32_MAX << 32);
	assert_int_equal(guarded_fill(&g, e + 1, 1), 0);
	assert_int_equal(guarded_fill(&g, e + 1, 1), 0);
	assert_int_equal(fci_full(g.f), 1);
	guarded_empty(e, 1);
	assert_int_equal(guarded_fill(&g, e, 1), 1);
	guarded_empty(e, 1);
	assert_int_equal(guarded_close(&g), 0);
}

static struct fci_view seen;
static int seen_rc;

static void look_at_slot_0(struct actor *self)
{
	(void)self;
	seen_rc = fci_view(g.f, 0, &seen);
}

/* The next call is in the slot when the reader goes on. */
static void a_view_that_was_overtaken_is_none(void **state)
{
	static struct actor a;

	(void)state;
	for (int again = 0; again < 2; again++) {
		guarded_context(&g, 1);
		assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 1 }), 0);
		actors_init();
		assert_int_equal(enter_as(&e[0], 11), 0);
		actor_start(&a, look_at_slot_0, NULL, "view");
		assert_int_equal(actor_stopped(&a), 1);
		if (again) {
			fc_exit(&e[0]);
			assert_int_equal(enter_as(&e[0], 12), 0);
		}
		actor_end(&a);
		assert_int_equal(seen_rc, !again);
		if (!again)
			assert_int_equal(seen.tag, 11);
		fc_exit(&e[0]);
		assert_int_equal(guarded_close(&g), 0);
	}
}

/* A reader that trusted CLAIMED would see the record of the call before. */
static void a_claimed_place_shows_no_record(void **state)
{
	static const char *const before[] = { "claimed", "record" };
	struct fci_view v;
	static struct actor a;

	(void)state;
	for (int p = 0; p < 2; p++) {
		open_cap(1);
		actors_init();
		assert_int_equal(enter_as(&e[0], 77), 0);
		fc_exit(&e[0]);
		guarded_pass(&g, FC_S(3600));
		actor_start(&a, one_call, NULL, before[p]);
		assert_int_equal(actor_stopped(&a), 1);
		assert_int_equal(fc_inside(g.f, NULL), 1);
		assert_int_equal(fci_oldest(g.f, &v, 1), 0);
		/* And so it is not taken for one that is an hour late. */
		assert_int_equal(guarded_fill(&g, e, 1), 0);
		assert_int_equal(fc_inside(g.f, NULL), 1);
		actor_end(&a);
		assert_int_equal(guarded_close(&g), 0);
	}
}

/* ---- threads that take turns at every point ---------------------------------------------------- */

#define ACTORS 3

struct turn {
	struct fc_entry entry;
	struct rng rng;
	int entering, saw_full; /* in fc_enter; a moment of it when no place was free */
	int missed;             /* refused though a place was free all the time */
	int leaving;            /* exit with a copy too */
};

static struct turn turns[ACTORS];

/* Three calls each; marks where it is for the scheduler. */
static void take_turns(struct actor *self)
{
	struct turn *t = self->arg;

	for (int i = 0; i < 3; i++) {
		struct fc_entry copy;
		int rc;

		t->saw_full = 0;
		t->entering = 1;
		memset(&t->entry, 0, sizeof(t->entry));
		rc = fc_enter(&t->entry, g.f, NULL);
		actor_point("returned"); /* so that the scheduler looks once more */
		t->entering = 0;
		t->missed += rc == FC_REFUSED_CAP && !t->saw_full;
		copy = t->entry;
		fc_exit(&t->entry);
		if (t->leaving)
			fc_exit(&copy);
	}
}

static int in_gap(const struct actor *a)
{
	return a->at && (!strcmp(a->at, "released") || !strcmp(a->at, "hint"));
}

/* Free places of rank < limit; *ret_lost of them are behind hints that say there are none. */
static uint32_t free_places(uint32_t *ret_lost)
{
	uint32_t n = 0, slots = fci_slots(g.f), limit = fc_limit_get(g.f);

	*ret_lost = 0;
	for (uint32_t s = 0; s < slots; s++) {
		uint32_t line = s >> 3, group = line & g.f->group_mask, part = line >> g.f->group_bits;
		uint64_t hints = atomic_load(&g.f->groups[group].s[0]), t = atomic_load(fci_t(g.f, group));

		if (fci_rank(g.f, s) >= limit || FCI_LOW(atomic_load(fci_word(g.f, s))) != FCI_FREE)
			continue;
		n++;
		part >>= g.f->extent[0].part_shift;
		if (((hints >> FCI_HINT_SHIFT(part)) & 3) == FCI_EMPTY || ((t >> FCI_HINT_SHIFT(group)) & 3) == FCI_EMPTY)
			(*ret_lost)++;
	}
	return n;
}

struct verdict {
	unsigned over, lost, missed, stuck;
};

/* After each step: I1, I3, and a note for I4. */
static void look(struct actor *a, const int *alive, uint32_t cap, struct verdict *v)
{
	uint32_t gaps = 0, lost, n = free_places(&lost);

	for (int i = 0; i < ACTORS; i++)
		gaps += alive[i] && in_gap(&a[i]);
	v->over += fc_inside(g.f, NULL) > cap;
	v->lost += lost > gaps;
	for (int i = 0; i < ACTORS; i++)
		if (alive[i] && turns[i].entering && n <= gaps)
			turns[i].saw_full = 1;
}

/* One interleaving: at each step one thread goes on to its next point. */
static struct verdict interleave(uint32_t cap, uint64_t seed)
{
	static struct actor a[ACTORS];
	struct verdict v = { 0 };
	int alive[ACTORS], left = ACTORS;
	unsigned steps = 0;
	struct rng rng;

	rng_init(&rng, seed);
	for (int i = 0; i < ACTORS; i++) {
		turns[i] = (struct turn){ .leaving = (int)rng_below(&rng, 2) };
		actor_start(&a[i], take_turns, &turns[i], "");
		alive[i] = actor_stopped(&a[i]);
		left -= !alive[i];
		look(a, alive, cap, &v);
	}
	while (left) {
		int i = (int)rng_below(&rng, ACTORS);

		if (!alive[i])
			continue;
		/* Runs of one thread are as telling as changes at every point. */
		for (unsigned n = 1 + rng_below(&rng, 4); n && alive[i]; n--) {
			alive[i] = actor_step(&a[i]);
			left -= !alive[i];
			steps++;
			look(a, alive, cap, &v);
		}
		v.stuck += steps > 2000;
		if (steps > 2000)
			break;
	}
	for (int i = 0; i < ACTORS; i++) {
		actor_end(&a[i]);
		v.missed += (unsigned)turns[i].missed;
	}
	return v;
}

static void no_interleaving_breaks_an_invariant(void **state)
{
	(void)state;
	for (uint32_t cap = 1; cap <= 3; cap++) {
		uint32_t lost;

		open_cap(cap);
		/* No check: it would mend what was lost. */
		atomic_store(&g.f->gate->next_check, g.now + FC_MS(5));
		actors_init();
		for (unsigned i = 0; i < 300; i++) {
			struct verdict v = interleave(cap, (uint64_t)cap << 32 | i);

			if (v.over || v.lost || v.missed || v.stuck)
				fail_msg("cap %u, interleaving %u: over the cap %u, places lost %u, refused in vain %u, spun %u",
				         cap, i, v.over, v.lost, v.missed, v.stuck);
			assert_int_equal(free_places(&lost), cap);
			assert_int_equal(lost, 0);
			assert_int_equal(fc_inside(g.f, NULL), 0);
		}
		assert_int_equal(guarded_close(&g), 0);
	}
}

/* ---- views (I5) -------------------------------------------------------------------------------- */

#define MARKS 4
static fci_a32 torn, looks, stop;

/* Calls whose record says one thing in every field. */
static void mark_or_look(void *arg, unsigned index, struct rng *rng)
{
	struct fc_entry entry = FC_ENTRY_INIT;

	(void)arg;
	if (index == 0) {
		uint64_t end = stress_end_ns();

		while (test_now_ns() < end || !atomic_load(&looks))
			for (uint32_t s = 0; s < fci_slots(g.f); s++) {
				struct fci_view v;

				if (!fci_view(g.f, s, &v))
					continue;
				atomic_fetch_add(&looks, 1);
				if (FCI_META_HAS_TAG(v.meta) && (v.start != g.now + v.tag % FC_MS(900) || FCI_META_STUCK_MS(v.meta) != v.tag % 1000 + 1))
					atomic_fetch_add(&torn, 1);
			}
		atomic_store(&stop, 1);
		return;
	}
	while (!atomic_load(&stop)) {
		uint64_t id = (rng_next(rng) >> 8) + 1;
		FC_OPTS(fc_ctx, c, .request_id = id, 
		        .now_ns = g.now + id % FC_MS(900), .stuck_after_ns = FC_MS(id % 1000 + 1));

		memset(&entry, 0, sizeof(entry));
		if (fc_enter(&entry, g.f, &c) == 0)
			fc_exit(&entry);
	}
}

static void a_view_is_of_one_call(void **state)
{
	(void)state;
	open_cap(2);
	atomic_store(&torn, 0);
	atomic_store(&looks, 0);
	atomic_store(&stop, 0);
	run_threads(MARKS, mark_or_look, NULL);
	assert_int_equal(atomic_load(&torn), 0);
	assert_true(atomic_load(&looks) > 0);
}

/* ---- counts ------------------------------------------------------------------------------------ */

/* hyperledger/besu 11277: a count without a floor shut the door for good. Here there is no count: what
 * is inside is what the places say, at any time. */
static void there_is_no_count_to_drift(void **state)
{
	struct rng rng;

	(void)state;
	open_cap(4);
	rng_init(&rng, 3);
	for (int i = 0; i < 1000; i++) {
		unsigned n = guarded_fill(&g, e, rng_below(&rng, 6));

		spoil(&rng);
		for (unsigned k = 0; k < n; k++) {
			struct fc_entry copy = e[k];

			fc_exit(&e[k]);
			fc_exit(&copy);
		}
		assert_int_equal(fc_inside(g.f, NULL), 0);
	}
	assert_int_equal(guarded_fill(&g, e, 5), 4);
	guarded_empty(e, 4);
}

/* alibaba/Sentinel 2700: statistics went wrong when the exit ran in another thread. */
static void enter_one(struct actor *self)
{
	struct fc_entry entry = FC_ENTRY_INIT;

	if (fc_enter(&entry, g.f, NULL) == 0)
		fc_entry_take(self->arg, &entry);
}

static void a_moved_call_is_ended_by_another_thread_when_its_own_is_dead(void **state)
{
	struct fc_entry moved = FC_ENTRY_INIT;
	struct fc_stats s;
	static struct actor a;

	(void)state;
	open_cap(1);
	actor_start(&a, enter_one, &moved, NULL);
	actor_end(&a);
	guarded_pass(&g, FC_S(1));
	fc_tick(g.fc, 0);
	assert_int_equal(guarded_fill(&g, e, 1), 0);
	fc_entry_mark(&moved, FC_OUTCOME_ERROR);
	assert_int_equal(fc_exit_status(&moved), 1);
	s = guarded_stats(&g);
	assert_int_equal(s.error, 1);
	assert_int_equal(s.admitted, 1);
	assert_int_equal(s.purged, 0);
}

/* Nothing is left even for an interface without a cap: the call goes on untracked. */
static void a_call_resumed_when_no_place_is_left_takes_nobodys(void **state)
{
	enum { MOST = 4096 };
	struct fc_entry later = FC_ENTRY_INIT;

	(void)state;
	memset(e, 0, sizeof(e));
	guarded_context(&g, 0);
	g.f = fc_iface_get(g.fc, "observed");
	assert_int_equal(fc_enter(&later, g.f, NULL), 0);
	assert_int_equal(fc_entry_suspend(&later), 0);
	assert_int_equal(guarded_fill(&g, e, MOST), MOST);
	assert_int_equal(fc_inside(g.f, NULL), MOST);
	assert_int_equal(fc_entry_resume(&later), 0);
	assert_int_equal(fc_exit_status(&later), 1);
	for (int i = 0; i < MOST; i++)
		assert_int_equal(fc_exit_status(&e[i]), 1);
	assert_int_equal(fc_inside(g.f, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(every_cap_is_exact, teardown),
		cmocka_unit_test_teardown(the_greatest_cap_is_exact, teardown),
		cmocka_unit_test_teardown(a_cap_beyond_the_greatest_is_an_error, teardown),
		cmocka_unit_test_teardown(a_cap_of_zero_refuses_all, teardown),
		cmocka_unit_test_teardown(a_call_leaves_from_wherever_it_stands, teardown),
		cmocka_unit_test_teardown(the_queue_answers_oldest_first_with_time_and_thread, teardown),
		cmocka_unit_test_teardown(a_permit_released_twice_counts_once, teardown),
		cmocka_unit_test_teardown(two_threads_that_exit_one_entry_release_once, teardown),
		cmocka_unit_test_teardown(a_late_exit_of_a_purged_call_changes_nothing_and_is_counted, teardown),
		cmocka_unit_test_teardown(stale_tokens_have_no_effect, teardown),
		cmocka_unit_test_teardown(every_slot_has_a_rank_and_a_way_to_it, teardown),
		cmocka_unit_test_teardown(a_limit_is_kept_on_any_number_of_cpus, teardown),
		cmocka_unit_test_teardown(hints_may_be_overwritten_at_any_time, teardown),
		cmocka_unit_test_teardown(a_thread_stopped_anywhere_makes_nobody_wait_and_hides_one_place_at_most, teardown),
		cmocka_unit_test_teardown(a_thread_killed_in_a_gap_hides_one_place_until_the_next_check, teardown),
		cmocka_unit_test_teardown(a_place_hidden_in_a_gap_is_found_by_the_next_check, teardown),
		cmocka_unit_test_teardown(a_second_prober_keeps_the_first_from_hiding_a_place, teardown),
		cmocka_unit_test_teardown(a_reset_of_hints_keeps_versions, teardown),
		cmocka_unit_test_teardown(a_view_that_was_overtaken_is_none, teardown),
		cmocka_unit_test_teardown(a_claimed_place_shows_no_record, teardown),
		cmocka_unit_test_teardown(no_interleaving_breaks_an_invariant, teardown),
		cmocka_unit_test_teardown(a_view_is_of_one_call, teardown),
		cmocka_unit_test_teardown(there_is_no_count_to_drift, teardown),
		cmocka_unit_test_teardown(a_call_resumed_when_no_place_is_left_takes_nobodys, teardown),
		cmocka_unit_test_teardown(a_moved_call_is_ended_by_another_thread_when_its_own_is_dead, teardown),
	};

	return cmocka_run_group_tests_name("inflight", tests, NULL, NULL);
}
