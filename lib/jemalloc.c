/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include "jemalloc.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From jemalloc's manual; declared here so that its header is not needed to build. */
int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen)
	__attribute__((weak, visibility("default")));

#define ARENAS_MAX 4096u /* jemalloc's own ceiling; also its number for "all arenas" */

static bool get(const char *name, void *ret, size_t len)
{
	size_t got = len;

	return mallctl(name, ret, &got, NULL, 0) == 0 && got == len;
}

static bool get_arena(const char *what, uint32_t arena, size_t *ret)
{
	char name[64];

	snprintf(name, sizeof(name), "stats.arenas.%u.%s", arena, what);
	return get(name, ret, sizeof(*ret));
}

static bool refresh(void)
{
	uint64_t epoch = 1;

	return mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch)) == 0;
}

/* Same file for both symbols. Wrong only where a fixed-address program has its own stub for
 * malloc; then jemalloc is not seen, which is the harmless side. */
static bool same_object(void)
{
	void *(*m)(size_t) = malloc;
	int (*c)(const char *, void *, size_t *, void *, size_t) = mallctl;
	void *pm, *pc;
	Dl_info im, ic;

	memcpy(&pm, &m, sizeof(pm));
	memcpy(&pc, &c, sizeof(pc));
	return dladdr(pm, &im) && dladdr(pc, &ic) && im.dli_fbase == ic.dli_fbase;
}

bool fci_jemalloc_init(struct fci_jemalloc *j)
{
	uint64_t *allocated, before;
	void *volatile probe; /* volatile: an unused malloc may be optimised away */

	*j = (struct fci_jemalloc){ .owned = false };
	if (!mallctl)
		return false;
	if (get("thread.allocatedp", &allocated, sizeof(allocated))) {
		before = *(volatile uint64_t *)allocated;
		probe = malloc(64);
		j->owned = *(volatile uint64_t *)allocated != before;
		free(probe);
	} else {
		j->owned = same_object();
	}
	return j->owned;
}

int fci_jemalloc_figures(struct fci_jemalloc *j, struct fci_jemalloc_figures *ret)
{
	size_t allocated, resident, page, dirty = 0, muzzy = 0;

	if (!j->owned || !refresh())
		return -ENOTSUP;
	if (!get("stats.allocated", &allocated, sizeof(allocated)) ||
	    !get("stats.resident", &resident, sizeof(resident)) ||
	    !get("arenas.page", &page, sizeof(page)))
		return -ENOTSUP;
	(void)get_arena("pdirty", ARENAS_MAX, &dirty);
	(void)get_arena("pmuzzy", ARENAS_MAX, &muzzy);
	ret->allocated_bytes = allocated;
	ret->resident_bytes = resident;
	ret->dirty_bytes = ((uint64_t)dirty + muzzy) * page;
	return 0;
}

static bool purge_arena(uint32_t arena)
{
	char name[64];

	snprintf(name, sizeof(name), "arena.%u.purge", arena);
	return mallctl(name, NULL, NULL, NULL, 0) == 0;
}

/* The arena with the most dirty pages; false if none has any. known: statistics exist. */
static bool fullest(uint32_t arenas, uint32_t *ret_arena, size_t *ret_pages, bool *ret_known)
{
	size_t best = 0;

	*ret_known = false;
	for (uint32_t i = 0; i < arenas; i++) {
		size_t dirty, muzzy = 0;

		if (!get_arena("pdirty", i, &dirty))
			continue;
		*ret_known = true;
		(void)get_arena("pmuzzy", i, &muzzy);
		if (dirty + muzzy > best) {
			best = dirty + muzzy;
			*ret_arena = i;
		}
	}
	*ret_pages = best;
	return best > 0;
}

uint64_t fci_jemalloc_purge(struct fci_jemalloc *j, uint64_t max_bytes)
{
	uint64_t done = 0;
	unsigned arenas;
	size_t page;

	if (!j->owned || !get("arenas.narenas", &arenas, sizeof(arenas)) || arenas == 0)
		return 0;
	if (arenas > ARENAS_MAX)
		arenas = ARENAS_MAX;
	if (!get("arenas.page", &page, sizeof(page)))
		page = 4096;
	while (done < max_bytes) {
		uint32_t arena = 0;
		size_t pages;
		bool known;

		/* Refreshed each round: what was purged must not be seen again. */
		if (!refresh())
			break;
		if (!fullest(arenas, &arena, &pages, &known)) {
			if (!known && done == 0 && purge_arena(j->next_arena++ % arenas))
				done = 1;
			break;
		}
		/* A purge that fails would be tried for ever. */
		if (!purge_arena(arena))
			break;
		done += (uint64_t)pages * page;
	}
	return done;
}
