/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * layout.h - what lies in a segment: all mutable state of all interfaces, without pointers.
 *
 *     head | call sites | notes | recorder rows | counter rows | arena: one block per interface
 *
 * Everything is found by offsets from the segment's start. A process copies the geometry (offsets,
 * counts) into its own handles when it attaches and never reads it again, so content that another
 * process has spoilt can make calls be refused or admitted wrongly, but cannot lead an access
 * outside the mapping. Zero bytes are the right initial state of hints, slots, records, counters
 * and the recorder, so pages are touched only when used.
 *
 * Numbers that wrap (generations, versions) are compared for equality alone.
 */
#ifndef FCI_LAYOUT_H
#define FCI_LAYOUT_H

#include <fcguard/interceptor.h>
#include <fcguard/stats.h>

#include "atomic.h"

#define FCI_MAGIC         0x31475241554743ull /* "CGUARG1" */
#define FCI_VERSION_MAJOR 1
#define FCI_VERSION_MINOR 0

/* ---- slot words: INFLIGHT's "truth in one word" ------------------------------------------------
 *
 *     63            16 15       3 2     0
 *     |  generation   |  owner   | state |        owner: process number; generation: +1 on release
 *
 * FREE -> CLAIMED        by any caller (CAS)
 * CLAIMED -> BUSY, FREE  by its claimer alone (store), or by the reaper of a dead owner (CAS)
 * CLAIMED -> DETACHED    the same, of a moved call that is resumed: see admit_resumed, enter.c
 * CLAIMED -> CLAIMED     of a granter's claim, by the waiter it was granted to (CAS): see wait.c
 * BUSY -> DETACHED, LENDER -> LENDER_DETACHED  by fc_entry_take (CAS): the entry left its thread
 * BUSY, DETACHED -> LENDER, LENDER_DETACHED and back: by housekeeping (CAS): see limit.c
 * BUSY, DETACHED -> FREE, generation + 1: by exactly one of exit, purge, reaper (CAS)
 * BUSY, DETACHED, LENDERs -> CLAIMED -> FREE, generation + 1: a write-off, in two steps: see check.c
 * CLAIMED -> AUX -> FREE by a weighted call: its record names the primary slot: see weight.c
 * CLAIMED -> LENT -> FREE by housekeeping: its record names the call it stands for, and its owner is
 *                         that call's: see limit.c
 */
enum {
	FCI_FREE = 0, FCI_CLAIMED = 1, FCI_BUSY = 2, FCI_DETACHED = 3,
	FCI_AUX = 4, FCI_LENT = 5, FCI_LENDER = 6, FCI_LENDER_DETACHED = 7
};
#define FCI_OWNER_MAX 8191u
#define FCI_STATE(w_) ((uint32_t)((w_) & 7))
#define FCI_OWNER(w_) ((uint32_t)(((w_) >> 3) & FCI_OWNER_MAX))
#define FCI_GEN(w_)   ((w_) >> 16)
#define FCI_LOW(w_)   ((w_) & 0xffff) /* 0: free, whatever the generation */
#define FCI_WORD(gen_, owner_, state_) ((uint64_t)(gen_) << 16 | (uint64_t)(owner_) << 3 | (state_))
#define FCI_NEXT_FREE(w_) (((w_) | 0xffff) + 1) /* generation + 1, no owner, FREE */
#define FCI_WITH_STATE(w_, state_) (((w_) & ~(uint64_t)7) | (state_))

/* A running call: somebody's exit will come. */
static inline int fci_is_call(uint64_t w)
{
	uint32_t s = FCI_STATE(w);

	return s == FCI_BUSY || s == FCI_DETACHED || s == FCI_LENDER || s == FCI_LENDER_DETACHED;
}

static inline int fci_is_detached(uint64_t w)
{
	return FCI_STATE(w) == FCI_DETACHED || FCI_STATE(w) == FCI_LENDER_DETACHED;
}

/* ---- the gate: limit and flags in one word, so that one re-read sees both ---------------------- */
#define FCI_GATE_LIMIT(g_) ((uint32_t)(g_))
#define FCI_GATE_OFF       (1ull << 32) /* let through unguarded */
#define FCI_GATE_DRAIN     (1ull << 33) /* the limit was lowered under the count: limit.c */
#define FCI_GATE_DRAINING  (1ull << 34) /* refuse new calls: drain.c */
#define FCI_GATE_WAITERS   (1ull << 35) /* somebody waits for a place: wait.c */
#define FCI_GATE_ASLEEP    (1ull << 36) /* idle: housekeeping does not look at it */
#define FCI_GATE_INJECT    (1ull << 37) /* a test wants refusals or faults */
#define FCI_GATE_DRY_RUN   (1ull << 38) /* calls over the limit are counted and admitted */
#define FCI_GATE_UNRULED   (1ull << 39) /* no cap: a full table grows or is bypassed */
#define FCI_GATE_WAITS     (1ull << 40) /* callers may wait for a place */
#define FCI_GATE_CONTROL   (1ull << 41) /* the context's control word says something */
#define FCI_GATE_CHAIN     (1ull << 42) /* there are interceptors */
#define FCI_GATE_GRANTING  (1ull << 47) /* never in the gate: in a granter's copy of it, see fci_undo() */
#define FCI_GATE_VER_SHIFT 48           /* version: +1 with every new limit */
#define FCI_GATE_VER       (UINT64_MAX << FCI_GATE_VER_SHIFT)
#define FCI_GATE_ON_ENTER  (FCI_GATE_OFF | FCI_GATE_DRAIN | FCI_GATE_DRAINING | FCI_GATE_ASLEEP | \
                            FCI_GATE_INJECT | FCI_GATE_CONTROL | FCI_GATE_CHAIN)
#define FCI_GATE_SWITCHES  (FCI_GATE_OFF | FCI_GATE_DRAINING | FCI_GATE_INJECT | FCI_GATE_CONTROL)
#define FCI_GATE_ON_FULL   (FCI_GATE_DRY_RUN | FCI_GATE_UNRULED | FCI_GATE_WAITS)

/* ---- a word of hints ---------------------------------------------------------------------------
 *
 *     63       32 31                 0
 *     |  version | 16 hints of 2 bits |        zero is "maybe free"; stale in that direction only
 *
 * MAYBE -> SUSPECT  by a prober (CAS), version + 1: the word is its own as long as that version stands
 * SUSPECT -> EMPTY  by the prober whose version it is (CAS)
 * any -> MAYBE      by anybody (AND), the version stays
 */
enum { FCI_MAYBE = 0, FCI_SUSPECT = 2, FCI_EMPTY = 3 };
#define FCI_HINTS         16u
#define FCI_HINT_SHIFT(i_) (((i_) & (FCI_HINTS - 1)) * 2)
#define FCI_HINTS_EMPTY   UINT32_MAX           /* low half: nothing free behind any hint */
#define FCI_HINT_VER_ONE  ((uint64_t)1 << 32)

#define FCI_GROUPS_MAX  256u
#define FCI_T_WORDS     (FCI_GROUPS_MAX / FCI_HINTS)
#define FCI_EXTENTS_MAX 7u
#define FCI_WRITEOFF_MAX 4096u

/* The table of written-off calls grows by parts of 8, 16, 32 ... elements. */
#define FCI_WRITEOFF_PARTS     10u
#define FCI_WRITEOFF_IN(p_)    (8ull << (p_))
#define FCI_WRITEOFF_FIRST(p_) ((8u << (p_)) - 8)
_Static_assert(FCI_WRITEOFF_FIRST(FCI_WRITEOFF_PARTS) >= FC_CAP_MAX / 10, "room for the budget of the largest cap");

/* The hot line of an interface. Written: gate by settings; next_check each 10 ms by a refused
 * caller; T around saturation only; sample, sample_refused a few times a second under load. */
struct fci_gate {
	FCI_ALIGNED fci_a64 word;
	fci_a64 t0;             /* T of groups 0 to 15: low half all ones = nothing free anywhere in them */
	fci_a64 next_check;     /* when a refused caller looks at the oldest call again */
	fci_a64 sample;         /* admissions whose scrambled generation is <= are sampled */
	fci_a64 sample_refused; /* the same for refusals */
	fci_a64 retry_after_ns; /* what refused callers are told: median latency */
	fci_a64 sampled;        /* windows of the samplers: recorder.c */
	fci_a64 sampled_refused;
};
_Static_assert(sizeof(struct fci_gate) == FCI_CACHELINE, "the gate is one line");

/* A group of lines, home of the CPUs that share its number. Written by exits of its slots. */
struct fci_group {
	FCI_ALIGNED fci_a64 hot;       /* last slot freed here: rank << 32 | slot; 0: none yet */
	fci_a64 s[FCI_EXTENTS_MAX];    /* hints of the group's 16 parts of lines, per extent */
};
_Static_assert(sizeof(struct fci_group) == FCI_CACHELINE, "a group is one line");

/* Cells of interceptors: most chains need no more than lie in the record; others, in the extent's `more`,
 * are touched by chains that need them alone. */
#define FCI_CELLS_NEAR 6u
#define FCI_CELLS_MORE (FC_CELLS_MAX - FCI_CELLS_NEAR)

/* What is known of the call in a slot. Meaningful while the slot's word is a call's, the same
 * before and after reading. Written by the claimer before it publishes BUSY. */
struct fci_record {
	FCI_ALIGNED fci_a64 start;  /* ns */
	fci_a64 who;                /* site << 32 | tid */
	fci_a64 frame;              /* address of the entry | entry number of the thread << 48 */
	fci_a64 meta;               /* chain version << 48 | weight << 32 | stuck_after in ms */
	fci_a64 tag;                /* request id; AUX, LENT: slot << 40 | low 40 bits of its generation */
	fci_a32 cells[FCI_CELLS_NEAR];
};
_Static_assert(sizeof(struct fci_record) == FCI_CACHELINE, "a record is one line");
#define FCI_META(ver_, weight_, stuck_ms_) ((uint64_t)(ver_) << 48 | (uint64_t)(weight_) << 32 | (stuck_ms_))
#define FCI_META_VER(m_)      ((uint32_t)((m_) >> 48))
#define FCI_META_TAG          0x8000u /* in weight: the tag is set */
#define FCI_META_PRE          0x4000u /* in weight: interceptors are still taking */
#define FCI_META_WEIGHT(m_)   ((uint32_t)((m_) >> 32) & 0x3fff)
#define FCI_META_IN_PRE(m_)   (((m_) >> 32) & FCI_META_PRE)
#define FCI_META_HAS_TAG(m_)  (((m_) >> 32) & FCI_META_TAG)
#define FCI_META_STUCK_MS(m_) ((uint32_t)(m_))
#define FCI_FRAME(addr_, seq_) ((uint64_t)(addr_) | (seq_)) /* seq: number << 48 */
#define FCI_SEQ_ONE           ((uint64_t)1 << 48)
#define FCI_FRAME_ADDR(f_)    ((f_) & 0xffffffffffffull)
#define FCI_FRAME_SEQ(f_)     ((uint32_t)((f_) >> 48))
#define FCI_REF(slot_, word_) ((uint64_t)(slot_) << 40 | (FCI_GEN(word_) & 0xffffffffffull))
#define FCI_REF_SLOT(tag_)    ((uint32_t)((tag_) >> 40))

/* A written-off call: it runs, and its place was given to another. key: state, generation of the
 * element, who writes off: see check.c. The fields mean something as long as the key is the same. */
struct fci_writeoff {
	FCI_ALIGNED fci_a64 key;
	fci_a64 start, who, frame, meta, tag;
	fci_a64 slot;
	fci_a64 word; /* of the slot, as it was: says whether the call had been moved */
};
_Static_assert(sizeof(struct fci_writeoff) == FCI_CACHELINE, "an element is one line");

/* A waiting caller: see wait.c. */
struct fci_waiter {
	FCI_ALIGNED fci_a64 state; /* (ticket, or generation << 32 | slot when granted) << 16 | owner << 3 | state */
	fci_a32 futex, resv0;
	fci_a64 since;
	fci_a64 resv[5];
};

/* Availability: rings of (admitted and good, all) per 30 s, 5 min, 1 day: see history.c. */
#define FCI_HISTORY_CELLS (10 + 12 + 30)
struct fci_history {
	fci_a64 good[FCI_HISTORY_CELLS], all[FCI_HISTORY_CELLS];
	fci_a64 last_good, last_all, last_ns;
	fci_a32 pos[3], seq;
};

/* Numbers of an interface as configured: in the segment, so that all processes agree. */
struct fci_config {
	fci_a32 cap;              /* FC_UNLIMITED: none */
	fci_a32 flags;            /* FC_IFACE_* | FCI_CONFIG_* */
	fci_a32 expand, expand_keep;
	fci_a32 writeoff;         /* budget in force */
	fci_a32 wait_max, wait_order, max_weight;
	fci_a32 latency, on_fault, importance, max_cap;
	fci_a32 writeoff_asked, max_cap_asked; /* as given; 0: they follow the cap */
	fci_a64 stuck_after_ns, writeoff_after_ns, wait_timeout_ns, check_every_ns;
};
#define FCI_CONFIG_UNRULED (1u << 16)

/* Where an interface's slots are: extent 0 at creation, others when first needed. */
struct fci_extent {
	uint64_t words, records, more; /* offsets */
	uint32_t first, slots;   /* index (= rank) of its first slot */
	uint32_t tiers;          /* lines of a group */
	uint32_t part_shift;      /* lines to one hint, as a power of two */
};

/* Rare numbers, written by slow paths of any thread. All N: statistics. */
struct fci_rare {
	fci_a64 abandoned, purged, writeoffs, expansions, expansions_undone;
	fci_a64 waited, wait_timeouts, aux;
	fci_a64 admitted_shown;       /* stats.c */
	fci_a64 sample_exact;         /* gate.sample of an interface that measures every call */
	fci_a64 inject; /* status << 32 | count */
	fci_a64 tickets;              /* of waiters: wait.c */
	fci_a64 used_up_told;         /* writeoffs + 1 when the budget was told to be used up last: check.c */
	fci_a32 lending;              /* 1: somebody lends: limit.c */
	fci_a32 loans;                /* LENT slots, or more */
	fci_a32 purge_turn;           /* slot that is looked at in turn next: check.c */
	fci_a32 check_turn;           /* first slot of the next check */
	fci_a32 writeoff_turn;        /* element that is tried first */
	fci_a32 peak, overdue, overdue_peak;
	fci_a32 reasons_seen[FC_STATS_REASONS]; /* counts at the last look, low halves */
	fci_a64 refusing_since, refused_seen, refused_before;
};

/* Block of one interface in the arena. */
struct fci_block {
	struct fci_gate gate;
	FCI_ALIGNED fci_a64 t[FCI_T_WORDS]; /* t[0] unused: it is gate.t0 */
	FCI_ALIGNED struct fci_config config;
	FCI_ALIGNED struct fci_rare rare;
	FCI_ALIGNED struct fci_history history;
	FCI_ALIGNED struct fci_extent extent[FCI_EXTENTS_MAX];
	fci_a32 n_extents;
	uint32_t group_bits;
	uint64_t groups, waiters, writeoffs[FCI_WRITEOFF_PARTS], cap_state; /* offsets */
	uint32_t n_waiters, n_writeoffs, t_words, resv;
	fci_a32 resizing;                 /* 1: somebody adds an extent */
	char name[FC_NAME_MAX + 1];
};

/* Counters of one interface on one CPU. */
enum fci_counter {
	/* 0 .. 31: refused by reason */
	FCI_C_ERROR = FC_STATS_REASONS, FCI_C_TIMEOUT, FCI_C_IGNORED, FCI_C_MARKED_OK,
	FCI_C_LATE, FCI_C_UNTRACKED, FCI_C_UNDONE, FCI_C_WOULD_REFUSE, FCI_C_COUNT
};
struct fci_counters {
	FCI_ALIGNED uint64_t count[FCI_C_COUNT];
	uint64_t hist[FC_HIST_BUCKETS];
};
_Static_assert(sizeof(struct fci_counters) == 1152, "eighteen lines");

/* A call site: file and function as they were at the first call. */
#define FCI_SITES_MAX 4096u
struct fci_site {
	char file[96];
	char func[64];
	uint32_t line, resv;
	uint64_t key; /* hash of the place */
};

/* A note left by a call for housekeeping: see events.c. */
#define FCI_NOTES 256u
struct fci_note {
	FCI_ALIGNED fci_a64 state;
	uint64_t time_ns, a, b;
	uint32_t iface, kind;
	uint64_t resv[3];
};

/* One decision in the flight recorder: see recorder.c. */
struct fci_decision {
	fci_a64 seq;     /* 0 never written; odd while being written */
	fci_a64 time_ns;
	fci_a64 what;    /* iface << 32 | status */
	fci_a64 detail;  /* limit << 40 | log2(one of) << 32 | tid */
};

/* Where everything lies: written once, when the segment is made. A process works with a copy that it has
 * checked (segment.c), never with the segment's own. */
struct fci_geometry {
	uint64_t bytes; /* of the segment */
	uint64_t sites, notes, blocks, recorder, counters, arena; /* offsets, in this order */
	uint32_t max_ifaces, ncpus, recorder_slots, resv;
};

struct fci_head {
	fci_a64 magic;
	uint32_t version_major, version_minor;
	struct fci_geometry geo;
	FCI_ALIGNED fci_a64 arena_used;
	fci_a32 n_ifaces, n_sites;
	FCI_ALIGNED fci_a32 control;     /* FCI_CONTROL_*: looked at by every enter */
	fci_a32 health;                  /* the judged word of health.h */
	fci_a64 ticked_ns;               /* when housekeeping last looked at the clock */
	FCI_ALIGNED fci_a64 note_head, note_tail, notes_lost;
};
#define FCI_CONTROL_OFF    (1u << 0)
#define FCI_CONTROL_SYSTEM (1u << 1) /* classes >= level (bits 8..11) are refused */
#define FCI_CONTROL_LEVEL(c_) (((c_) >> 8) & 15)

#endif /* FCI_LAYOUT_H */
