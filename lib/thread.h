/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * thread.h - what the library knows of each thread that ever entered a guard.
 *
 * A node lies in the thread's own TLS and is linked into a list while the thread lives. It makes
 * nothing correct that an entry alone would not (entries may be exited by any thread): it speeds up
 * giving back what an ended thread held, proves that a longjmp has left a scope, and lets replaced
 * chains be freed.
 *
 *                      register  touch(own)  list walk  thread end  fork
 *   register              -          -          -           -        -
 *   touch (own node)      -          X          -           X        X
 *   list walk             -          -          -           -        -
 *   X = cannot happen (one thread); - = free (the list has a mutex; fork takes it).
 */
#ifndef FCI_THREAD_H
#define FCI_THREAD_H

#include <stdint.h>

#include "atomic.h"

struct fci_thread {
	/* section: own thread writes, chain reclaim reads. Not 0: the epoch at which the thread
	 * began to look at process-local chains. R1 -> A1 with the asymmetric fence (thread.c) that
	 * chain.c makes before it looks. */
	fci_a64 section;
	/* last_entry, last_sp: own thread writes, checks of others read. Address of the entry of the
	 * last fc_enter() and stack pointer of its caller, each with the entry number in the top 16
	 * bits, so that each word is true by itself. */
	_Alignas(16) fci_a64 last_entry;
	fci_a64 last_sp;
	fci_a32 tid;            /* 0: not registered (yet, any more, or since a fork) */
	uint32_t ends;          /* how often the exit hook has run: TLS destructors come in rounds */
	uint64_t seq;           /* entry number << 48, wraps */
	int64_t held;           /* entries entered minus exited here; only a hint for the exit hook */
	const volatile uint32_t *cpu_at; /* number of the CPU: the kernel's word (rseq), or cpu below */
	uint32_t cpu;           /* without rseq: last known CPU */
	uint32_t cpu_left;      /* ... and for how many more uses it is believed */
	uint32_t sample;        /* counts refusals, for sampling */
	uint32_t resv;
	uint64_t gate;          /* while full and tick of interceptors run: what they decide by; 0: nothing. fc_limit_set */
	uint64_t stack_lo, stack_hi; /* of this thread's own stack; 0 unknown */
	struct fci_thread *next, *prev;
};

extern __thread struct fci_thread fci_self __attribute__((__tls_model__("initial-exec")));

/* Register the calling thread: number, stack, exit hook. Slow (system calls, perhaps malloc in
 * libc); once a thread. */
void fci_thread_register(void);

FCI_INLINE struct fci_thread *fci_thread_self(void)
{
	struct fci_thread *t = &fci_self;

	/* N1: own word; other threads only read it. */
	if (fci_unlikely(!atomic_load_explicit(&t->tid, FCI_RLX)))
		fci_thread_register();
	return t;
}

uint32_t fci_thread_cpu_refresh(struct fci_thread *t);

/* CPU number without rseq: asked for each 256 uses, so mostly right. */
FCI_INLINE uint32_t fci_thread_cpu_hint(uint32_t ncpus)
{
	struct fci_thread *t = &fci_self;
	uint32_t cpu = fci_likely(t->cpu_left-- != 0) ? t->cpu : fci_thread_cpu_refresh(t);

	return fci_likely(cpu < ncpus) ? cpu : cpu % ncpus;
}

/*
 * What is known of thread `tid` of this process: copies its words. Returns 1 found, 0 there is no
 * such thread any more, -1 cannot say now (somebody holds the list).
 */
struct fci_thread_view {
	uint64_t last_entry, last_sp;
	uint64_t stack_lo, stack_hi;
};
int fci_thread_look(uint32_t tid, struct fci_thread_view *ret);

/* Smallest section epoch of all threads that are in a section; UINT64_MAX when none is. Blocks on
 * the list's mutex for a list walk. */
uint64_t fci_thread_min_section(void);

/* Make every thread's earlier stores visible before anything that follows here (membarrier), and
 * say whether that works; where it does not, sections are entered with a full fence instead. */
extern uint32_t fci_thread_asymmetric;
void fci_thread_fence_all(void);

/*
 * Sections protect process-local chains from being freed while this thread looks at them.
 *
 * R1 -> A1 (fci_thread_min_section): the store must be visible before the chain pointer is loaded.
 * That is store-load order, which costs a fence here or a membarrier there: reclaim comes once per
 * reload, sections once per call, so the fence is there. Litmus: T1: section = e; c = load chain -
 * T2: store chain; membarrier; load section. Section 0 seen and the old chain loaded is forbidden:
 * membarrier puts T1 wholly before (section seen) or after (new chain loaded).
 */
extern fci_a64 fci_thread_epoch; /* grows with every retired chain; starts at 1 */

/* Sections nest: the outermost counts. Returns what fci_section_leave wants back. */
FCI_INLINE uint64_t fci_section_enter(struct fci_thread *t)
{
	/* N1: own word. */
	uint64_t was = atomic_load_explicit(&t->section, FCI_RLX);
	/* N2: a late epoch only delays the free. */
	uint64_t epoch = atomic_load_explicit(&fci_thread_epoch, FCI_RLX);

	if (was != 0)
		return was;
	if (fci_likely(fci_thread_asymmetric)) {
		atomic_store_explicit(&t->section, epoch, FCI_RLX); /* R1 -> A1 */
		atomic_signal_fence(FCI_SC);
	} else {
		atomic_exchange_explicit(&t->section, epoch, FCI_SC); /* R1 -> A1: full fence */
	}
	return 0;
}

FCI_INLINE void fci_section_leave(struct fci_thread *t, uint64_t was)
{
	/* R2 -> A1: all uses of the chain are over before the section is seen empty. */
	if (was == 0)
		atomic_store_explicit(&t->section, 0, FCI_REL);
}

/* Hooks of context.c: what an ended thread left behind, and the child after fork(). */
void fci_context_thread_ended(uint32_t tid);
void fci_context_fork_prepare(void);
void fci_context_fork_parent(void);
void fci_context_fork_child(void);

#endif /* FCI_THREAD_H */
