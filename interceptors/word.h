/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * word.h - words of a state. Their accesses are relaxed: each word stands for itself, and what must be
 * decided at once is decided by one compare-and-swap of one word, or of a pair (pair.h).
 */
#ifndef FC_WORD_H
#define FC_WORD_H

#include <stdint.h>

static inline uint64_t get(const uint64_t *p)
{
	/* N: see above. */
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline void put(uint64_t *p, uint64_t v)
{
	/* N: see above. */
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

/* On failure *was is what is there: somebody else got on, so loops over it are lock-free. */
static inline int swap(uint64_t *p, uint64_t *was, uint64_t to)
{
	/* N: see above. */
	return __atomic_compare_exchange_n(p, was, to, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

#endif /* FC_WORD_H */
