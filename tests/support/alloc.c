/* SPDX-License-Identifier: BSD-2-Clause */
#include "alloc.h"

#include <stdlib.h>

/* In front of each block; as large as the strictest alignment malloc() promises. */
union head {
	size_t bytes;
	max_align_t align;
};

static void *count_alloc(void *arg, size_t bytes)
{
	struct counting_alloc *c = arg;
	unsigned long long call = atomic_fetch_add(&c->calls, 1) + 1;
	union head *h;

	if (call == atomic_load(&c->fail_at))
		return NULL;
	h = malloc(sizeof(*h) + bytes);
	if (!h)
		return NULL;
	h->bytes = bytes;
	atomic_fetch_add(&c->live, 1);
	atomic_fetch_add(&c->live_bytes, (long long)bytes);
	return h + 1;
}

static void count_free(void *arg, void *ptr, size_t bytes)
{
	struct counting_alloc *c = arg;
	union head *h = ptr;

	if (!h)
		return;
	h--;
	if (h->bytes != bytes)
		atomic_fetch_add(&c->bad_frees, 1);
	atomic_fetch_sub(&c->live, 1);
	atomic_fetch_sub(&c->live_bytes, (long long)h->bytes);
	free(h);
}

struct fc_alloc counting_alloc_init(struct counting_alloc *c)
{
	struct fc_alloc a = { count_alloc, count_free, c };

	atomic_init(&c->calls, 0);
	atomic_init(&c->fail_at, 0);
	atomic_init(&c->live, 0);
	atomic_init(&c->live_bytes, 0);
	atomic_init(&c->bad_frees, 0);
	return a;
}
