/* SPDX-License-Identifier: BSD-2-Clause */
/* stats.c - counters out, and the numbers that interceptors steer by. See fcguard/stats.h. */
#include <errno.h>

#include "check.h"
#include "history.h"
#include "iface.h"
#include "inflight.h"
#include "limit.h"
#include "wait.h"

#define STATS_V1_BYTES sizeof(struct fc_stats)

/* N1: statistics; each number is true by itself. */
static uint64_t get64(const fci_a64 *a)
{
	return atomic_load_explicit(a, FCI_RLX);
}

static uint32_t get32(const fci_a32 *a)
{
	/* N1: as get64. */
	return atomic_load_explicit(a, FCI_RLX);
}

/*
 * Calls admitted and calls that have left are sums whose parts move one after the other. What lowers a
 * sum is counted before what raises it, and read after that (fci_generations acquires), so a sum may be
 * short for a moment but is never too high:
 *     releases that are no call's  AUX and loans, calls that interceptors refused: before the release
 *     suspended calls              before the release; they have not left
 *     resumed calls                before they are inside again; they were admitted once
 *     the parent's, after a fork   alone: in the child they were neither admitted, nor have they left
 */
static uint64_t no_calls(const struct fc_iface *f)
{
	return fci_counted(f, FCI_C_UNDONE) + get64(&f->block->rare.aux);
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Calls inside: entries, not places. */
static uint32_t calls_inside(const struct fc_iface *f)
{
	uint32_t n = 0, slots = fci_slots(f);

	for (uint32_t s = 0; s < slots; s++)
		/* A2 -> R3 (admit_resumed, enter.c): see above. */
		n += (uint32_t)fci_is_call(atomic_load_explicit(fci_word(f, s), FCI_ACQ));
	return n;
}

/* Suspended calls. */
static uint32_t parked(const struct fc_iface *f)
{
	/* A1 -> X2 of chain.c: a resume that is seen here has been counted. */
	return atomic_load_explicit(&f->parked, FCI_ACQ);
}

/* Calls that were admitted and have left. */
static uint64_t left(const struct fc_iface *f)
{
	uint64_t gens = fci_generations(f), waiting = parked(f);

	return less(gens, no_calls(f) + waiting);
}

static uint64_t admitted(const struct fc_iface *f)
{
	uint64_t gens = fci_generations(f), inside = calls_inside(f);

	return less(gens + inside, no_calls(f));
}

/* What was shown once is not taken back. */
static uint64_t never_less(fci_a64 *shown, uint64_t now)
{
	uint64_t old = get64(shown);

	/* N1: as get64. */
	while (old < now && !atomic_compare_exchange_weak_explicit(shown, &old, now, FCI_RLX, FCI_RLX))
		;
	return old < now ? now : old;
}

static void outcomes(const struct fc_iface *f, struct fc_stats *s, uint64_t gone)
{
	uint64_t others;

	s->error = fci_counted(f, FCI_C_ERROR);
	s->timeout = fci_counted(f, FCI_C_TIMEOUT);
	s->ignored = fci_counted(f, FCI_C_IGNORED);
	s->abandoned = get64(&f->block->rare.abandoned);
	others = s->error + s->timeout + s->ignored + s->abandoned;
	s->ok = gone > others ? gone - others : 0;
	others = fci_counted(f, FCI_C_MARKED_OK);
	s->unmarked = s->ok > others ? s->ok - others : 0;
}

static void numbers(const struct fc_iface *f, struct fc_stats *s, uint64_t gate)
{
	const struct fci_rare *r = &f->block->rare;

	s->cap = fci_iface_cap(f);
	s->limit = gate & FCI_GATE_UNRULED ? FC_UNLIMITED : FCI_GATE_LIMIT(gate);
	s->in_flight = fci_inside_count(f, UINT32_MAX, NULL);
	s->peak = get32(&r->peak) > s->in_flight ? get32(&r->peak) : s->in_flight;
	s->headroom = s->limit > s->in_flight ? s->limit - s->in_flight : 0;
	s->waiting = fci_waiting(f);
	s->overdue = get32(&r->overdue);
	s->written_off = fci_writeoff_used(f);
	s->expansions = get64(&r->expansions);
	s->expansions_undone = get64(&r->expansions_undone);
	s->purged = get64(&r->purged);
	s->writeoffs = get64(&r->writeoffs);
	s->waited = get64(&r->waited);
	s->wait_timeouts = get64(&r->wait_timeouts);
}

int fc_iface_stats(const struct fc_iface *f, struct fc_stats *ret)
{
	struct fc_stats s = { .size = sizeof(s) };
	uint64_t gate, gone;

	if (!fci_iface_ok(f) || !ret)
		return -EINVAL;
	if (f->pass_through) {
		s.flags = FC_STATS_PASS_THROUGH | FC_STATS_UNRULED;
		s.cap = s.limit = s.headroom = FC_UNLIMITED;
		s.untracked = get64(&f->fc->pass_calls);
		return fci_opts_export(ret, &s, sizeof(s), STATS_V1_BYTES);
	}
	gate = get64(&f->gate->word);
	gone = left(f);
	numbers(f, &s, gate);
	outcomes(f, &s, gone);
	s.admitted = never_less(&f->block->rare.admitted_shown, admitted(f));
	for (uint32_t i = 0; i < FC_STATS_REASONS; i++)
		s.refused[i] = fci_counted(f, i);
	s.would_refuse = fci_counted(f, FCI_C_WOULD_REFUSE);
	s.late_exits = fci_counted(f, FCI_C_LATE);
	s.untracked = fci_counted(f, FCI_C_UNTRACKED);
	s.flags = get32(&f->block->config.flags) & (FC_IFACE_DRY_RUN | FC_IFACE_OFF | FC_IFACE_OUTBOUND);
	s.flags |= get32(&f->block->config.flags) & FCI_CONFIG_UNRULED ? FC_STATS_UNRULED : 0;
	s.flags |= gate & FCI_GATE_DRAINING ? FC_STATS_DRAINING : 0;
	s.availability_5min_ppm = fci_history_ppm(f, 0);
	s.availability_1h_ppm = fci_history_ppm(f, 1);
	s.availability_30d_ppm = fci_history_ppm(f, 2);
	return fci_opts_export(ret, &s, sizeof(s), STATS_V1_BYTES);
}

int fc_totals(struct fc *fc, struct fc_totals *ret)
{
	struct fc_totals t = { .size = sizeof(t) };

	if (!fci_fc_ok(fc) || !ret)
		return -EINVAL;
	t.ifaces = get32(&fc->n_ifaces);
	t.bytes_mapped = fc->geo.bytes;
	t.faults = get64(&fc->faults);
	t.pass_through = get64(&fc->pass_calls);
	if (fc->seg) {
		t.bytes_used = fci_arena_used(fc) - fc->geo.arena;
		t.events_suppressed = get64(&fc->events_suppressed) + get64(&fc->head->notes_lost);
	}
	t.ticks = get64(&fc->ticks);
	t.reports_suppressed = get64(&fc->reports_suppressed);
	return fci_opts_export(ret, &t, sizeof(t), sizeof(t));
}

static uint64_t lines(uint64_t bytes)
{
	return (bytes + FCI_CACHELINE - 1) & ~(uint64_t)(FCI_CACHELINE - 1);
}

/* What make() of iface.c takes for a cap and no more. */
uint64_t fc_iface_bytes(uint32_t cap, uint32_t ncpus, uint64_t *ret_touched)
{
	uint64_t groups = 1, slots, places, fixed = sizeof(struct fci_block) + lines(fc_interceptor_cap.state_bytes);
	uint64_t handle = lines(sizeof(struct fc_iface)) + FCI_ALLOC_MORE;

	cap = cap ? cap < FC_CAP_MAX ? cap : FC_CAP_MAX : 64;
	ncpus = ncpus ? ncpus : 1;
	while (groups < ncpus && groups * 2 <= cap && groups < FCI_GROUPS_MAX)
		groups *= 2;
	slots = (cap + 8 * groups - 1) / (8 * groups) * (8 * groups);
	places = lines(slots * (sizeof(uint64_t) + sizeof(struct fci_record) + FCI_CELLS_MORE * sizeof(fci_a32)));
	for (uint32_t p = 0; FCI_WRITEOFF_FIRST(p) < cap / 10; p++)
		fixed += FCI_WRITEOFF_IN(p) * sizeof(struct fci_writeoff);
	/* One CPU touches the block, its group, a line of words, a record and its row of counters. */
	if (ret_touched)
		*ret_touched = fixed + 3 * FCI_CACHELINE + sizeof(struct fci_counters) + handle;
	return fixed + groups * sizeof(struct fci_group) + places + (uint64_t)(ncpus + 1) * sizeof(struct fci_counters) +
	       handle;
}

/* ---- for interceptors -------------------------------------------------------------------------- */

uint32_t fc_limit_get(const struct fc_iface *f)
{
	return fci_iface_real(f) ? FCI_GATE_LIMIT(get64(&f->gate->word)) : 0;
}

int fc_limit_set(struct fc_iface *f, uint32_t limit)
{
	uint64_t most, gate;
	int rc = 0;

	if (!fci_iface_real(f))
		return -EINVAL;
	/* A2 -> X3 (fci_gate_set): before all that is decided here, and by whoever asks for it. */
	gate = fci_self.gate ? fci_self.gate : atomic_load_explicit(&f->gate->word, FCI_SC);
	if (fci_iface_cap(f) == FC_UNLIMITED)
		return -EINVAL;
	most = (uint64_t)4 * fci_iface_cap(f);
	limit = limit < most ? limit : (uint32_t)most;
	if (limit > fci_slots(f))
		rc = fci_extents_grow(f, limit);
	if (rc == 0 && limit != FCI_GATE_LIMIT(gate))
		rc = fci_limit_change_from(f, gate, limit);
	if (rc == 0)
		fci_self.gate = 0; /* what is decided next is by this limit */
	return rc;
}

uint64_t fc_completed(const struct fc_iface *f)
{
	uint64_t gone, abandoned;

	if (!fci_iface_real(f))
		return 0;
	gone = left(f);
	abandoned = get64(&f->block->rare.abandoned);
	return gone > abandoned ? gone - abandoned : 0;
}

uint32_t fc_inside(const struct fc_iface *f, uint32_t *ret_overdue)
{
	if (!fci_iface_real(f))
		return 0;
	if (ret_overdue)
		*ret_overdue = get32(&f->block->rare.overdue);
	return fci_inside_count(f, UINT32_MAX, NULL);
}
