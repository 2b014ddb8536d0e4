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
	uint32_t ncpus;  /* rows without the spare one */
	uint32_t rseq;   /* 1: counters are added to inside rseq sections */
};

#if FCI_HAVE_RSEQ
FCI_INLINE struct rseq *fci_rseq_area(void)
{
	return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
}

FCI_INLINE uint32_t fci_rseq_cpu(void)
{
	return *(volatile uint32_t *)&fci_rseq_area()->cpu_id;
}
#endif

/* Does rseq work in this thread? (Registered, and the instruction sequences exist.) */
FCI_INLINE int fci_rseq_usable(void)
{
#if FCI_HAVE_RSEQ && defined(__x86_64__)
	return __rseq_size != 0 && (int32_t)fci_rseq_cpu() >= 0;
#else
	return 0;
#endif
}

/* A CPU number as a hint: it may be stale, or any number; mask it or take it modulo. */
FCI_INLINE uint32_t fci_cpu_hint(const struct fci_thread *self)
{
	return *self->cpu_at;
}

#if FCI_HAVE_RSEQ && defined(__x86_64__)
/*
 * Add n to *v if this thread is on `cpu` to the end; 0 done, -1 moved away (nothing was added).
 * The section's descriptor is published in rseq_cs; the kernel jumps to label 4 when the thread
 * was preempted, moved or signalled between 1 and 2. The signature before 4 is the one glibc
 * registered.
 */
FCI_INLINE int fci_rseq_add(uint64_t *v, uint64_t n, uint32_t cpu)
{
	struct rseq *r = fci_rseq_area();

	__asm__ goto(
		".pushsection __rseq_cs, \"aw\"\n\t"
		".balign 32\n\t"
		"3: .long 0, 0\n\t"
		".quad 1f, (2f - 1f), 4f\n\t"
		".popsection\n\t"
		"leaq 3b(%%rip), %%rax\n\t"
		"movq %%rax, %[cs]\n\t"
		"1: cmpl %[cpu], %[cur]\n\t"
		"jnz 4f\n\t"
		"addq %[n], %[v]\n\t"
		"2:\n\t"
		".pushsection __rseq_failure, \"ax\"\n\t"
		".byte 0x0f, 0xb9, 0x3d\n\t"
		".long 0x53053053\n\t"
		"4: jmp %l[moved]\n\t"
		".popsection\n\t"
		:
		: [cs] "m"(r->rseq_cs), [cpu] "r"(cpu), [cur] "m"(r->cpu_id), [v] "m"(*v), [n] "er"(n)
		: "memory", "cc", "rax"
		: moved);
	return 0;
moved:
	return -1;
}
#endif

/* The same without rseq. */
void fci_percpu_add_atomic(const struct fci_percpu *p, size_t off, uint64_t n);

/* Add n to the counter at byte offset off of the row of this CPU. */
FCI_INLINE void fci_percpu_add(const struct fci_percpu *p, size_t off, uint64_t n)
{
#if FCI_HAVE_RSEQ && defined(__x86_64__)
	if (fci_likely(p->rseq)) {
		for (;;) {
			uint32_t cpu = fci_rseq_cpu();

			if (fci_unlikely(cpu >= p->ncpus))
				break;
			if (fci_likely(!fci_rseq_add((uint64_t *)(p->base + cpu * p->stride + off), n, cpu)))
				return;
		}
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
