/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc.h - jemalloc's figures and its dirty pages, if it is the process's allocator.
 *
 * The library links no allocator: mallctl is a weak reference, found when the program links
 * or preloads jemalloc. A build of jemalloc with a prefix (je_mallctl) is not seen.
 *
 * Threads.  One struct, one thread at a time; mallctl itself is safe beside anything.
 * Memory.   init allocates and frees 64 bytes once, to see whose malloc it is. The rest: none.
 * Cost.     figures: an epoch refresh (about 5 us, grows with the arenas) and a few reads.
 */
#ifndef FCI_JEMALLOC_H
#define FCI_JEMALLOC_H

#include <stdbool.h>
#include <stdint.h>

struct fci_jemalloc {
	bool owned;          /* malloc() is jemalloc's */
	uint32_t next_arena; /* where a purge without statistics goes on */
};

struct fci_jemalloc_figures {
	uint64_t allocated_bytes;
	uint64_t resident_bytes;
	uint64_t dirty_bytes; /* dirty and muzzy pages: unused, not yet given back */
};

/*
 * Find out whether jemalloc is the allocator. That mallctl exists proves nothing: under a
 * sanitizer malloc is the sanitizer's. So see whether malloc moves jemalloc's own counter.
 */
bool fci_jemalloc_init(struct fci_jemalloc *j);

/* Returns 0 or -ENOTSUP (not the allocator, or built without statistics). */
int fci_jemalloc_figures(struct fci_jemalloc *j, struct fci_jemalloc_figures *ret);

/*
 * Give dirty pages back, the fullest arenas first, until max_bytes are passed. An arena is
 * never split, so one large arena may pass max_bytes by far; about 50 us a MiB. Without
 * statistics: one arena, the next each time. Returns the bytes asked back (at least 1 if an
 * arena was purged without knowing), 0 if there was nothing.
 */
uint64_t fci_jemalloc_purge(struct fci_jemalloc *j, uint64_t max_bytes);

#endif /* FCI_JEMALLOC_H */
