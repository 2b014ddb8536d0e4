/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tests/support/alloc.h - an allocator that counts, checks sizes, and fails when told to.
 *
 *     struct counting_alloc c;
 *     struct fc_alloc a = counting_alloc_init(&c);
 *     c.fail_at = 3;            // the third allocation of all fails; 0: none does
 *     ...
 *     assert_int_equal(c.live, 0);
 *
 * Threads.  Any.
 */
#ifndef FC_TESTS_ALLOC_H
#define FC_TESTS_ALLOC_H

#include <stdatomic.h>
#include <fcguard/context.h>

struct counting_alloc {
	atomic_ullong calls;      /* allocations asked for */
	atomic_ullong fail_at;    /* number in `calls` of the allocation that fails; 0: none */
	atomic_llong live;        /* blocks not freed */
	atomic_llong live_bytes;
	atomic_ullong bad_frees;  /* freed with another size than asked for */
};

struct fc_alloc counting_alloc_init(struct counting_alloc *c);

#endif /* FC_TESTS_ALLOC_H */
