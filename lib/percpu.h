/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * percpu.h - which CPU is this, and adding to a counter of its own.
 *
 * With restartable sequences (rseq, registered by glibc 2.35 and later) a counter of the own CPU
 * is added to by one plain instruction inside a section that the kernel restarts if the thread is
 * moved: a twentieth of an atomic add. Elsewhere (musl, older glibc, valgrind, qemu, FC_NO_RSEQ)
 * the same counters are added to atomically, at an index that may be stale without harm.
 *
 * Never mix both ways on one counter: rseq adds rely on nobody else writing it. So the choice is
 * made once per context, and threads whose rseq is not registered use the spare row.
 */
#ifndef FCI_PERCPU_H
#define FCI_PERCPU_H

#include <features.h>
#include <stddef.h>
#include <stdint.h>

#include "atomic.h"
#include "thread.h"

#if defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 35)
#include <sys/rseq.h>
#define FCI_HAVE_RSEQ 1
#endif
#endif
#ifndef FCI_HAVE_RSEQ
#define FCI_HAVE_RSEQ 0
#endif

/* Rows of counters: one a CPU, and a last one for threads that have no CPU number. */
struct fci_percpu {
	char *base;      /* of row 0 */
	size_t stride;   /* bytes from row to row */
	ptrdiff_t rseq;  /* a thread's rseq area from its thread pointer; 0: counters are added to atomically */
	uint32_t ncpus;  /* rows without the spare one */
};

/* Add inside sequences: written for this machine? */
#if FCI_HAVE_RSEQ && defined(__x86_64__)
#define FCI_RSEQ_ADD 1
#else
#define FCI_RSEQ_ADD 0
#endif

#if FCI_HAVE_RSEQ
FCI_INLINE struct rseq *fci_rseq_area(void)
{
	return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
}
#endif

/* For fci_percpu.rseq. (Registered in this thread, and there are sequences.) */
FCI_INLINE ptrdiff_t fci_rseq_offset(void)
{
#if FCI_RSEQ_ADD
	if (__rseq_size != 0 && (int32_t)fci_rseq_area()->cpu_id >= 0)
		return __rseq_offset;
#endif
	return 0;
}

/* A CPU number as a hint: it may be stale, or any number; mask it or take it modulo. */
FCI_INLINE uint32_t fci_cpu_hint(const struct fci_thread *self)
{
	return *self->cpu_at;
}

#if FCI_RSEQ_ADD
/* The CPU this thread is on; a huge number when its rseq is not registered. */
FCI_INLINE uint32_t fci_rseq_cpu(ptrdiff_t area)
{
	uint32_t cpu;

	__asm__ volatile("movl %%fs:%c[at](%[area]), %[cpu]"
	                 : [cpu] "=r"(cpu)
	                 : [area] "r"(area), [at] "i"(offsetof(struct rseq, cpu_id)));
	return cpu;
}

/*
 * Add n to *v if this thread is on `cpu` to the end; 0 done, -1 moved away (nothing was added).
 * The section's descriptor is published in rseq_cs; the kernel jumps to label 4 when the thread
 * was preempted, moved or signalled between 1 and 2. The signature before 4 is the one glibc
 * registered.
 */
FCI_INLINE int fci_rseq_add(ptrdiff_t area, uint64_t *v, uint64_t n, uint32_t cpu)
{
	__asm__ goto(
		".pushsection __rseq_cs, \"aw\"\n\t"
		".balign 32\n\t"
		"3: .long 0, 0\n\t"
		".quad 1f, (2f - 1f), 4f\n\t"
		".popsection\n\t"
		"leaq 3b(%%rip), %%rax\n\t"
		"movq %%rax, %%fs:%c[cs](%[area])\n\t"
		"1: cmpl %[cpu], %%fs:%c[cur](%[area])\n\t"
		"jnz 4f\n\t"
		"addq %[n], %[v]\n\t"
		"2:\n\t"
		".pushsection __rseq_failure, \"ax\"\n\t"
		".byte 0x0f, 0xb9, 0x3d\n\t"
		".long 0x53053053\n\t"
		"4: jmp %l[moved]\n\t"
		".popsection\n\t"
		:
		: [area] "r"(area), [cs] "i"(offsetof(struct rseq, rseq_cs)), [cur] "i"(offsetof(struct rseq, cpu_id)),
		  [cpu] "r"(cpu), [v] "m"(*v), [n] "er"(n)
		: "memory", "cc", "rax"
		: moved);
	return 0;
moved:
	return -1;
}
#endif

/* Add n to the counter at byte offset off of the row of this CPU, if that is cheap. */
FCI_INLINE int fci_percpu_try_add(const struct fci_percpu *p, size_t off, uint64_t n)
{
#if FCI_RSEQ_ADD
	ptrdiff_t area = p->rseq;
	uint32_t cpu;

	if (fci_unlikely(!area))
		return 0;
	cpu = fci_rseq_cpu(area);
	return fci_likely(cpu < p->ncpus) &&
	       fci_likely(!fci_rseq_add(area, (uint64_t *)(p->base + cpu * p->stride + off), n, cpu));
#else
	(void)p, (void)off, (void)n;
	return 0;
#endif
}

/* The same without rseq: atomically. */
void fci_percpu_add_atomic(const struct fci_percpu *p, size_t off, uint64_t n);

/* Add n to the counter at byte offset off of the row of this CPU. */
FCI_INLINE void fci_percpu_add(const struct fci_percpu *p, size_t off, uint64_t n)
{
#if FCI_RSEQ_ADD
	if (fci_likely(p->rseq)) {
		while (fci_likely(fci_rseq_cpu(p->rseq) < p->ncpus))
			if (fci_likely(fci_percpu_try_add(p, off, n)))
				return;
		/* N: a counter of the spare row, shared: added to atomically, order is nothing. */
		atomic_fetch_add_explicit((fci_a64 *)(p->base + p->ncpus * p->stride + off), n, FCI_RLX);
		return;
	}
#endif
	fci_percpu_add_atomic(p, off, n);
}

/* Sum over all rows. */
static inline uint64_t fci_percpu_sum(const struct fci_percpu *p, size_t off)
{
	uint64_t sum = 0;

	/* N: word-sized counters cannot tear; a stale one shows in the next snapshot. */
	for (uint32_t i = 0; i <= p->ncpus; i++)
		sum += atomic_load_explicit((fci_a64 *)(p->base + i * p->stride + off), FCI_RLX);
	return sum;
}

#endif /* FCI_PERCPU_H */
