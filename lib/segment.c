/* SPDX-License-Identifier: BSD-2-Clause */
/* segment.c - making and mapping segments. See segment.h and layout.h. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "entry.h"
#include "segment.h"

#define MAX_IFACES      1024u
#define RECORDER_SLOTS  256u
#define ARENA_PER_IFACE 16384u /* with a cap of 64 and its extents */

/* ---- laying out -------------------------------------------------------------------------------- */

static uint64_t place(uint64_t *at, uint64_t bytes)
{
	uint64_t off = (*at + FCI_CACHELINE - 1) & ~(uint64_t)(FCI_CACHELINE - 1);

	*at = off + bytes;
	return off;
}

static struct fci_geometry geometry_of(const struct fc_opts *o)
{
	long configured = sysconf(_SC_NPROCESSORS_CONF);
	struct fci_geometry g = {
		.max_ifaces = o->max_ifaces ? o->max_ifaces : MAX_IFACES,
		.ncpus = configured < 1 ? 1 : (uint32_t)configured,
		.recorder_slots = o->recorder_slots ? o->recorder_slots : RECORDER_SLOTS,
	};
	uint64_t at = sizeof(struct fci_head);

	g.sites = place(&at, FCI_SITES_MAX * sizeof(struct fci_site));
	g.notes = place(&at, FCI_NOTES * sizeof(struct fci_note));
	g.blocks = place(&at, (uint64_t)g.max_ifaces * sizeof(uint64_t));
	g.recorder = place(&at, fci_recorder_bytes(g.ncpus, g.recorder_slots));
	g.counters = place(&at, (uint64_t)(g.ncpus + 1) * g.max_ifaces * sizeof(struct fci_counters));
	g.arena = place(&at, 0);
	g.bytes = o->segment_bytes ? o->segment_bytes : g.arena + (uint64_t)g.max_ifaces * ARENA_PER_IFACE;
	return g;
}

/* The head of fresh memory. N1: nobody else knows the segment yet. */
static void lay_out(struct fci_head *h, const struct fci_geometry *g)
{
	h->version_major = FCI_VERSION_MAJOR;
	h->version_minor = FCI_VERSION_MINOR;
	h->geo = *g;
	atomic_store_explicit(&h->arena_used, g->arena, FCI_RLX);
	atomic_store_explicit(&h->health, FC_HEALTH_UNKNOWN, FCI_RLX);
	atomic_store_explicit(&h->magic, FCI_MAGIC, FCI_RLX);
}

/* ---- mapping ----------------------------------------------------------------------------------- */

int fci_segment_open(struct fc *fc, const struct fc_opts *o)
{
	struct fci_geometry g = geometry_of(o);

	if (g.bytes < g.arena + ARENA_PER_IFACE)
		return -ENOSPC;
	fc->seg = mmap(NULL, g.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (fc->seg == MAP_FAILED) {
		fc->seg = NULL;
		return -ENOMEM;
	}
	fc->geo = g;
	fc->head = (struct fci_head *)(void *)fc->seg;
	lay_out(fc->head, &g);
	fc->percpu = (struct fci_percpu){ .base = fc->seg + g.counters, .ncpus = g.ncpus,
	                                  .stride = (size_t)g.max_ifaces * sizeof(struct fci_counters) };
	return 0;
}

void fci_segment_close(struct fc *fc)
{
	if (fc->seg)
		munmap(fc->seg, fc->geo.bytes);
}
