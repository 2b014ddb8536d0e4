/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * context.h - struct fc and struct fc_iface: the process-local side. Everything that other
 * processes will share lies in the segment (layout.h); what is here are pointers into it, geometry
 * copied at attach, and what one process needs for itself: names, chains, callbacks, clocks.
 */
#ifndef FCI_CONTEXT_H
#define FCI_CONTEXT_H

#include <pthread.h>
#include <string.h>

#include <fcguard/fcguard.h>

#include "atomic.h"
#include "clock.h"
#include "health.h"
#include "layout.h"
#include "percpu.h"

#define FCI_FC_MAGIC    0x31434641u
#define FCI_IFACE_MAGIC 0x46434931u

#define FCI_STATES_MAX 32 /* names of rules that one interface ever had */

/* The state of a rule: found by interceptor and name, for ever. rule.c */
struct fci_state {
	struct fci_state *next;
	const struct fc_interceptor *ic;
	void *memory; /* in the segment */
	uint64_t bytes;
	char name[FC_RULE_NAME_MAX + 1];
};

/* Before a chain was made: see rule.h. */
struct fci_before {
	struct fci_state *own, *shared; /* newest ones */
	uint64_t arena, taken;
};

struct fci_chain;
struct fci_names;
struct fci_stuck;
struct fci_events;
struct fci_system;
struct fci_async;
struct fci_ruled;
struct fci_rules;

/* A handle. The first two lines are all that a plain call reads; read-mostly. */
struct fc_iface {
	FCI_ALIGNED uint32_t magic;
	fci_a32 clock;             /* enum fc_clock to read at enter; never AUTO. N: setting takes
	                            * effect for new calls */
	struct fci_gate *gate;
	struct fci_group *groups;
	fci_a64 *words;            /* extent 0 */
	struct fci_record *records;
	uint32_t group_mask;
	uint32_t slots0;           /* slots of extent 0 */
	fci_a32 owner;             /* process number shifted into place; changes at fork only */
	uint32_t serial;           /* of the context, for call sites */

	FCI_ALIGNED fci_a32 exact; /* enum fc_latency_mode, 0: sampled */
	uint32_t t_words;          /* words of T beyond the gate's */
	struct fci_chain *_Atomic chain; /* newest; NULL: cap alone. chain.c */
	struct fci_percpu counters; /* base points at this interface's block in row 0 */
	uint32_t t0_none;          /* gate.t0, low half, when no hint of it is set and there is no other T;
	                            * impossible when there is */
	uint32_t index;            /* in the segment's table of blocks */

	FCI_ALIGNED struct fc *fc;
	struct fci_block *block;
	uint32_t group_bits;
	uint32_t pass_through;     /* 1: no interface behind it: on_fault decides */
	int32_t fault;             /* pass-through: the errno that made it */
	/* Extents as attached, for slots beyond extent 0; n grows. A1 -> R1 in extents. */
	fci_a32 n_extents;
	struct fci_extent extent[FCI_EXTENTS_MAX];
	uint64_t waiters_off, writeoffs_off[FCI_WRITEOFF_PARTS]; /* offsets */
	fci_a32 n_waiters, n_writeoffs; /* 0 until a rule wants them. R2, R3 in iface.c */
	void *cap_state;                /* in the segment */
	struct fci_state *states;       /* of rules. fc->setup */
	uint32_t fine;                  /* 1: a rule wants a finer clock than the coarse one. fc->setup */
	fci_a32 parked;                 /* suspended entries: chain.c */
	struct fci_fallback *_Atomic fallback; /* NULL: never set. fallback.c */
	struct fci_async *_Atomic async; /* callbacks of waiters, one a node; NULL: never used. async.c */
	uint64_t tick_at;               /* housekeeping: next look. Only the ticking thread */
	uint64_t tick_activity, tick_gens, tick_refused, tick_last; /* only the ticking thread */
	/* The window of latencies that refused callers are advised by: when it began, what the histogram was
	 * then (low halves), and whether it is not the first. Only the ticking thread. */
	uint64_t retry_at;
	uint32_t retry_base[FC_HIST_BUCKETS];
	int retry_known;
	int steered;            /* the limit is a stage's; only the ticking thread */
	struct fci_ruled *ruled;        /* what rules gave it; NULL: nothing yet. fc->setup; rules.h */
	uint32_t by_hand;               /* FCI_HAND_*: what rules leave alone. fc->setup; ruled.h */
	uint64_t hand_until;            /* FC_NEVER_NS: until it is released. fc->setup */
	char name[FC_NAME_MAX + 1];
};
_Static_assert(offsetof(struct fc_iface, exact) == FCI_CACHELINE && offsetof(struct fc_iface, fc) == 2 * FCI_CACHELINE,
               "what a plain call reads is in the first two lines");

struct fc {
	uint32_t magic;
	uint32_t flags;
	uint64_t serial;
	char *seg;                  /* the segment; segment.c */
	struct fci_head *head;
	struct fci_geometry geo;    /* copied from it, and checked */
	struct fci_percpu percpu;   /* counter rows; base: interface 0 in row 0 */
	struct fci_clock clock;
	struct fc_alloc alloc;
	fc_log_fn log;
	fc_event_fn on_event;
	fc_stuck_fn on_stuck;
	void *log_arg, *event_arg, *stuck_arg;
	uint32_t on_fault;
	uint32_t default_cap;
	uint64_t stuck_after_ns;
	uint32_t max_reports_per_min;
	uint64_t owner;             /* process number */

	pthread_mutex_t setup;      /* serialises everything that sets something up */
	struct fci_names *names;
	struct fc_iface **ifaces;   /* by index; a pointer is set once, before n is raised */
	fci_a32 n_ifaces;
	struct fc_iface *pass;      /* the pass-through handle */
	fci_a64 faults, pass_calls;

	fci_a32 draining;           /* 1: new interfaces start closed */
	fci_a32 ticking;            /* thread id of who is in fc_tick; 0 nobody */
	fci_a32 idle;               /* 1: housekeeping sleeps until somebody calls fci_wake */
	fci_a64 ticks, reports_suppressed, events_suppressed;
	int tick_fd;                /* eventfd for the program's loop, -1 none */
	int thread_fd;              /* eventfd for the library's thread, -1 none */
	uint32_t tick_cursor, tick_left; /* interface to look at next; so many are left of this pass */
	int tick_all;               /* in this pass all are due that are awake */
	int system_due;             /* 1: the bounds of the process are to be looked at. Only the ticking thread */
	uint64_t tick_next;         /* when one of those seen in this pass is due again */
	struct fci_health health;
	int has_health;
	struct fc_health_opts health_made; /* as the context was made with */
	fci_a32 checks_unticked;    /* checks of refused callers since nobody ever ticked */
	uint64_t health_at;
	struct fci_stuck *stuck;    /* reports under way; stuck.c */
	struct fci_events *events;  /* what was told last; events.c */
	struct fci_chain *retired;  /* replaced chains; chain.c */
	uint64_t taken;             /* of the arena, by states of rules; rule.c. fc->setup */

	pthread_mutex_t rules_mutex; /* of putting rules in force; before the tick lock and setup */
	struct fci_rules *_Atomic rules; /* NULL: never used. R1 -> A1 in rules.c */
	uint32_t by_hand;           /* FCI_HAND_SYSTEM, _HEALTH. fc->setup */
	uint64_t hand_until;        /* fc->setup */

	pthread_mutex_t thread_mutex; /* of starting and stopping the thread */
	pthread_t thread;
	int thread_runs;
	int fork_locked;            /* between prepare and parent or child */
	fci_a32 thread_stop;

	struct fci_system *system;  /* bounds; system.c. fc->setup */
	struct fci_async *_Atomic async; /* list of all interfaces' ones; async.c */
	struct fc *next;            /* list of contexts, for fork and thread ends */
};

#define FCI_AT(fc_, off_, type_) ((type_ *)(void *)((fc_)->seg + (off_)))

static inline int fci_fc_ok(const struct fc *fc)
{
	return fc && fc->magic == FCI_FC_MAGIC;
}

static inline int fci_iface_ok(const struct fc_iface *f)
{
	return f && f->magic == FCI_IFACE_MAGIC;
}

/* A context that can work (not the one that stands in when nothing could be made). */
static inline int fci_iface_real(const struct fc_iface *f)
{
	return fci_iface_ok(f) && !f->pass_through;
}

/* Import an options struct into a full local copy of `known` bytes. 0, -EINVAL, -E2BIG. */
int fci_opts_import(void *to, size_t known, size_t v1, const void *from);

/* Export into a caller's struct whose first member says its size. 0, -EINVAL. */
int fci_opts_export(void *to, const void *from, size_t known, size_t v1);

#define FCI_ALLOC_MORE (2 * FCI_CACHELINE) /* that fci_alloc asks for on top, to align */
void *fci_alloc(struct fc *fc, size_t bytes); /* zeroed */
void fci_free(struct fc *fc, void *ptr, size_t bytes);

/* Take `bytes` of the arena, zeroed, aligned to a line; offset, or 0 when it is full. Lock-free. */
uint64_t fci_arena_take(struct fc *fc, uint64_t bytes);

/* Back what was taken last: `bytes` from `at` on, whole lines. Nothing happens when another took some since. */
void fci_arena_give(struct fc *fc, uint64_t at, uint64_t bytes);
uint64_t fci_arena_used(const struct fc *fc);

/* A refused caller checked: told once in the log when nobody has ever ticked. */
void fci_miss_tick(struct fc *fc);

/* Somebody needs housekeeping now: wake its thread or make fc_tick_fd() readable. A system call. */
void fci_wake(struct fc *fc);

/* The context's control word, for a call that found CONTROL in its gate; and: it was changed. */
uint32_t fci_control(struct fc_iface *f);
void fci_control_changed(struct fc *fc);

/* One line to the log. Never from enter or exit, but for fci_miss_tick. */
void fci_log(struct fc *fc, int level, const char *format, ...) FC_PRINTF_(3, 4);

/* Count a fault of the library, leave a note, and say what on_fault of f makes of it:
 * 0 (let through) or FC_REFUSED_FAULT. */
int fci_fault(struct fc_iface *f, int error);

FCI_INLINE void fci_count(const struct fc_iface *f, uint32_t counter, uint64_t n)
{
	fci_percpu_add(&f->counters, counter * sizeof(uint64_t), n);
}

#define FCI_HIST_FIRST_BIT 8 /* 256 ns */

FCI_INLINE uint32_t fci_hist_bucket(uint64_t ns)
{
	uint32_t bit, b;

	if (ns < (1u << FCI_HIST_FIRST_BIT))
		return 0;
	bit = 63 - (uint32_t)__builtin_clzll(ns);
	b = (bit - FCI_HIST_FIRST_BIT) * 4 + ((uint32_t)(ns >> (bit - 2)) & 3);
	return b < FC_HIST_BUCKETS ? b : FC_HIST_BUCKETS - 1;
}

#define FCI_HIST_OFFSET(ns_) (offsetof(struct fci_counters, hist) + fci_hist_bucket(ns_) * sizeof(uint64_t))

FCI_INLINE void fci_latency_add(const struct fc_iface *f, uint64_t latency_ns)
{
	fci_percpu_add(&f->counters, FCI_HIST_OFFSET(latency_ns), 1);
}

static inline uint64_t fci_counted(const struct fc_iface *f, uint32_t counter)
{
	return fci_percpu_sum(&f->counters, counter * sizeof(uint64_t));
}

FCI_INLINE uint64_t fci_now(const struct fc_iface *f)
{
	/* N1: a setting; new calls see it soon. */
	return fci_clock_read(&f->fc->clock, atomic_load_explicit(&f->clock, FCI_RLX));
}

#endif /* FCI_CONTEXT_H */
