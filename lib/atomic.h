/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * atomic.h - the words around C11 atomics, and the seam for tests.
 *
 * Own state is _Atomic and is touched by atomic_*_explicit() alone; the order is never left out.
 * Each access carries a label, as CONTRIBUTING.md asks: R release side, A acquire side, X both (RMW or
 * sequentially consistent), N none; `R1 -> A1` names the partner.
 */
#ifndef FCI_ATOMIC_H
#define FCI_ATOMIC_H

#include <stdatomic.h>
#include <stdint.h>

#define FCI_CACHELINE 64
#define FCI_ALIGNED   _Alignas(FCI_CACHELINE)

#define fci_likely(x_)   __builtin_expect(!!(x_), 1)
#define fci_unlikely(x_) __builtin_expect(!!(x_), 0)
#define FCI_NOINLINE     __attribute__((__noinline__))
#define FCI_COLD         __attribute__((__noinline__, __cold__))
#define FCI_INLINE       static inline __attribute__((__always_inline__))

#define FCI_RLX memory_order_relaxed
#define FCI_ACQ memory_order_acquire
#define FCI_REL memory_order_release
#define FCI_AR  memory_order_acq_rel
#define FCI_SC  memory_order_seq_cst

typedef _Atomic uint64_t fci_a64;
typedef _Atomic uint32_t fci_a32;
__extension__ typedef unsigned __int128 fci_u128;

/*
 * FC_TEST_POINT("name") lets a test stop or kill a thread between two atomics. Compiled out unless
 * the library is built with FC_TEST_POINTS.
 */
#ifdef FC_TEST_POINTS
extern void (*fci_test_point)(const char *name);
#define FC_TEST_POINT(name_)                                                                       \
	do {                                                                                       \
		if (fci_test_point)                                                                \
			fci_test_point(name_);                                                     \
	} while (0)
#else
#define FC_TEST_POINT(name_) ((void)0)
#endif

/*
 * Store two neighbouring words, relaxed, at once where the machine can: each word is whole (x86-64 and
 * aarch64 write aligned 16 bytes as two whole words), nothing is said of the two together. p is
 * aligned to 16 bytes.
 */
#if defined(__SANITIZE_THREAD__)
#define FCI_PAIRS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FCI_PAIRS 0
#endif
#endif
#ifndef FCI_PAIRS
#if defined(__x86_64__) || defined(__aarch64__)
#define FCI_PAIRS 1
#else
#define FCI_PAIRS 0
#endif
#endif
FCI_INLINE void fci_store_pair(fci_a64 *p, uint64_t a, uint64_t b)
{
#if FCI_PAIRS
	typedef uint64_t pair __attribute__((__vector_size__(16), __may_alias__));

	*(volatile pair *)(void *)p = (pair){ a, b };
#else
	/* N: as said above. */
	atomic_store_explicit(&p[0], a, FCI_RLX);
	atomic_store_explicit(&p[1], b, FCI_RLX);
#endif
}

/* Raise *a to at least v. Fails and retries only when another thread raised it: lock-free. */
FCI_INLINE void fci_max_u32(fci_a32 *a, uint32_t v)
{
	/* N: a statistic; a lost order shows in the next snapshot. */
	uint32_t old = atomic_load_explicit(a, FCI_RLX);

	while (old < v && !atomic_compare_exchange_weak_explicit(a, &old, v, FCI_RLX, FCI_RLX))
		;
}

#endif /* FCI_ATOMIC_H */
