/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair.h - pairs of words of a state that are changed at once. Words by themselves: word.h.
 *
 * A pair is 16 bytes, aligned. Two machines have a compare-and-swap of it for programs:
 *
 *   x86-64    cmpxchg16b, written out: gcc calls a library for it, where not told that all CPUs have it
 *   aarch64   the compiler's: casp, or a loop of ldxp and stxp where the machine has none. That loop starts
 *             again only when somebody wrote to the line meanwhile. What it sees when it fails may be
 *             half old and half new; such a pair never matches, since stxp fails then
 *
 * Reading both words at once is not to be had on all of these machines: read word by word, and let the swap
 * find out.
 */
#ifndef FC_PAIR_H
#define FC_PAIR_H

#include <string.h>

#include "word.h"

struct pair {
	_Alignas(16) uint64_t a;
	uint64_t b;
};

/*
 * Both words at once, if they are *was: 1; else *was is what is there. `at` has the layout of a pair.
 *
 * X1: sequentially consistent when it succeeds. The litmus of keyed_state.h needs that: store here (X1), then
 * a load of another pair (A1), by two callers. On x86 a lock prefix; on aarch64 casp and stxp with release,
 * which a later load-acquire does not overtake, or a full barrier after them.
 */
static inline int pair_swap(void *at, struct pair *was, struct pair to)
{
#if defined(__x86_64__)
	struct pair *p = at;
	unsigned char done;

	__asm__ volatile("lock cmpxchg16b %1"
	                 : "=@cce"(done), "+m"(*p), "+a"(was->a), "+d"(was->b)
	                 : "b"(to.a), "c"(to.b)
	                 : "memory");
	return done;
#elif defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16) || (defined(__aarch64__) && defined(__clang__))
	__extension__ typedef unsigned __int128 both;
	both from, next, is;

	memcpy(&from, was, sizeof(from));
	memcpy(&next, &to, sizeof(next));
	is = __sync_val_compare_and_swap((both *)at, from, next);
	memcpy(was, &is, sizeof(is));
	return is == from;
#else
#error "no compare-and-swap of two words: x86-64, or aarch64 with gcc 10 or later, or clang"
#endif
}

#endif /* FC_PAIR_H */
