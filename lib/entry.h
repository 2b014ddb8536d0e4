/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * entry.h - inside of struct fc_entry, shared by the ways in (entry.c, enter.c, async.c).
 *
 * word_    0 inactive; what the slot's word must be at exit; FCI_UNTRACKED; FCI_PARKED (suspended, by
 *          which process)
 * meta_    flags below | chain version << 16 | (address of the entry - caller's stack pointer) << 32
 * data_    admitted: caller's pc, its frame pointer, deadline or 0; suspended: the six cells;
 *          refused: limit, retry_after_ns, name of the rule
 */
#ifndef FCI_ENTRY_H
#define FCI_ENTRY_H

#include "inflight.h"

#define FCI_UNTRACKED UINT64_MAX
#define FCI_PARKED(me_) (FCI_PARKED_FIRST | (me_) | 6) /* me_: fci_me() */
#define FCI_PARKED_FIRST (~(uint64_t)0xffff) /* no word of a call is as large */
#define FCI_IS_PARKED(w_) (((w_) | FCI_OWNER_MAX << 3) == UINT64_MAX - 1)

#define FCI_E_OUTCOME   0x0007u /* enum fc_outcome */
#define FCI_E_MARKED    0x0008u
#define FCI_E_SAMPLED   0x0010u /* latency is measured: start_ is exact */
#define FCI_E_CHAIN     0x0020u /* interceptors want their post */
#define FCI_E_WEIGHTED  0x0040u
#define FCI_E_DETACHED  0x0080u
#define FCI_E_DEADLINE  0x0100u
#define FCI_E_ASYNC     0x0200u /* waits for its grant: word_ is the state of its element: async.c */
#define FCI_E_PARKED    0x0400u /* suspended, or was: word_ says which */
#define FCI_E_SLOW      0xffffu /* any of them: the exit takes the long way */
#define FCI_E_VER(m_)   ((uint32_t)((m_) >> 16) & 0xffff)
#define FCI_E_SP(m_)    ((uint32_t)((m_) >> 32))

/* Where the guard stands, for the stack of a stuck call. */
struct fci_here {
	uint64_t pc; /* return address of the exported function; 0: unknown */
	uint64_t sp; /* stack pointer after the return; 0: unknown */
	uint64_t bp; /* frame pointer register of the caller */
};

/*
 * As they are after the return of the exported function that uses this. On x86-64 the saved frame
 * pointer and the return address are the two words at its frame address; elsewhere the compiler says
 * where the frame begins.
 */
#if defined(__x86_64__)
#define FCI_CALLER_SP ((uint64_t)(uintptr_t)__builtin_frame_address(0) + 16)
#else
#define FCI_CALLER_SP ((uint64_t)(uintptr_t)__builtin_dwarf_cfa())
#endif
#define FCI_HERE                                                                                   \
	((struct fci_here){ (uint64_t)(uintptr_t)__builtin_return_address(0), FCI_CALLER_SP,       \
	                    *(const uint64_t *)__builtin_frame_address(0) })

/* Until a call is admitted or refused it waits in the entry. */
FCI_INLINE void fci_here_put(struct fc_entry *e, struct fci_here here)
{
	e->data_[0] = here.pc;
	e->data_[1] = here.bp;
	e->data_[2] = here.sp;
}

FCI_INLINE struct fci_here fci_here_get(const struct fc_entry *e)
{
	return (struct fci_here){ .pc = e->data_[0], .sp = e->data_[2], .bp = e->data_[1] };
}

/* Everything a way in needs to know of one call. */
struct fci_way {
	struct fc_entry *e;
	struct fc_iface *f;
	const struct fc_ctx *ctx; /* valid, defaults filled in: the caller's, or `own`, or fci_no_ctx */
	struct fc_site *site;
	struct fci_thread *self;
	uint64_t now;
	uint64_t gate;
	struct fci_claim claim;
	struct fci_chain *chain;
	uint64_t section;        /* what fci_section_leave wants back; UINT64_MAX: in none */
	uint64_t delay;          /* ns from now until the call may run: fc_call.delay_ns */
	int would_refuse;        /* it was counted, for a dry run */
	int asked;               /* call is made, and now is what it says */
	int async;               /* never blocks: FC_PENDING where it would wait */
	struct fc_ctx own;       /* left as it is until it is needed */
	struct fc_call call;     /* as stages are given it: made by the checks, if there are any, for pre too */
};

#define FCI_LABELS_MAX 16u /* of a call */

extern const struct fc_ctx fci_no_ctx; /* all defaults */

/* Begin a way; where it stands is in the entry: fci_here_put. Not by an initialiser, which would clear
 * all of it: what is stored is waited for by the next compare-and-swap. */
FCI_INLINE void fci_way_begin(struct fci_way *w, struct fc_entry *e, struct fc_iface *f, struct fc_site *site)
{
	w->e = e;
	w->f = f;
	w->ctx = &fci_no_ctx;
	w->site = site;
	w->self = fci_thread_self();
	w->chain = NULL;
	w->section = UINT64_MAX;
	w->delay = 0;
	w->would_refuse = 0;
	w->asked = 0;
	w->async = 0;
}

/* Nobody is refused in a dry run, but counted, once. */
FCI_INLINE void fci_would_refuse(struct fci_way *w)
{
	if (!w->would_refuse)
		fci_count(w->f, FCI_C_WOULD_REFUSE, 1);
	w->would_refuse = 1;
}

/* enter.c. A programming error: the entry is inactive and knows why. Returns error. */
int fci_enter_wrong(struct fc_entry *e, int error);
/* Everything but the plain case. */
int fci_enter_long(struct fc_entry *e, struct fc_iface *f, const struct fc_ctx *ctx, struct fc_site *site);
/* Refuse: count, record, fill the entry; returns reason. */
int fci_refuse(struct fc_entry *e, struct fc_iface *f, int reason, const char *rule, uint64_t observed,
               uint64_t limit, uint64_t retry_after_ns, uint64_t now);
/* The way in of a call that the caller has begun to describe: e (and in it where it stands), f,
 * site, self, async. */
int fci_enter_way(struct fci_way *w, const struct fc_ctx *ctx);
/* No place was found, waited for or not (then: the reason): refuse, or let pass what is not to be
 * refused. w->gate is as last read. */
int fci_refuse_full(struct fci_way *w, int waited);
/* The guard itself cannot decide: on_fault does. */
int fci_enter_fault(struct fc_entry *e, struct fc_iface *f, int error);
/* All places are taken under the limit of `gate`, as far as hints tell, and nothing more is to be done. */
int fci_refuse_cap(struct fc_entry *e, struct fc_iface *f, uint64_t gate, uint64_t now);
/* A place was claimed for the way: record, publish, run pre. 0 or a refusal. */
int fci_admit(struct fci_way *w);

/* A call site by its number; never NULL. */
const struct fci_site *fci_site_at(const struct fc *fc, uint32_t id);

/* Number of a call site in the segment's table; 0 unknown or the table is full. names.c */
uint32_t fci_site_register(struct fc *fc, struct fc_site *site);

/* The site's number << 32. */
FCI_INLINE uint64_t fci_site_id(const struct fc_iface *f, struct fc_site *site)
{
	uint64_t id;

	if (!site)
		return 0;
	/* N1: number and serial are one word; a stale one is replaced. */
	id = __atomic_load_n(&site->id_, __ATOMIC_RELAXED);
	if (fci_likely((uint32_t)id == f->serial))
		return id ^ f->serial;
	return (uint64_t)fci_site_register(f->fc, site) << 32;
}

/* Scramble a counter so that any fraction of it is spread without a pattern (golden ratio). */
#define FCI_SCRAMBLE 0x9e3779b97f4a7c15ull

/* The same for the generation of a slot's word: what the low bits say is noise. */
#define FCI_SCRAMBLED(word_) ((word_) * (FCI_SCRAMBLE >> 16))

/* recorder.c. Returns status. */
int fci_sampled(struct fc_iface *f, int status, uint64_t detail, uint64_t now);
uint64_t fci_recorder_bytes(uint32_t ncpus, uint32_t slots);
int fci_recorder_read(const struct fc *fc, uint32_t row, uint32_t i, struct fc_record *ret); /* async-signal-safe */

#endif /* FCI_ENTRY_H */
