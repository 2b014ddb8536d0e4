/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * health_part.h - what the parts of health_read.c share: the places of the process in the cgroup
 * hierarchies (health_group.c), CPU (health_cpu.c), memory (health_memory.c).
 *
 * Threads.  The reader's, as in health_read.h.
 */
#ifndef FCI_HEALTH_PART_H
#define FCI_HEALTH_PART_H

#include "health_file.h"
#include "health_read.h"

__extension__ typedef unsigned __int128 fci_u128;

/* Where the process is in one hierarchy. */
struct fci_place {
	const char *controller;   /* "" = cgroup v2 */
	bool has_path;
	bool has_dir;
	size_t mount_bytes;       /* the mount point's part of dir */
	char path[FCI_PATH_BYTES]; /* from proc/self/cgroup */
	char dir[FCI_PATH_BYTES];  /* mount point and path below it */
};

enum { FCI_PLACE_V2, FCI_PLACE_CPU, FCI_PLACE_CPUACCT, FCI_PLACE_CPUSET, FCI_PLACE_MEMORY, FCI_PLACES };

/* Fill all FCI_PLACES of them. */
void fci_places_find(int root_fd, struct fci_place *places);

/* The length of the directory one level up, 0 when at the mount point already. */
size_t fci_place_up(const struct fci_place *p, size_t bytes);

/* Open the files and keep the levels that have a limit; nothing may be open. let_go closes them.
 * fci_cpu_read is given the time since the last read. For memory see fci_health_read_memory. */
void fci_cpu_find(struct fci_health_read *r, const struct fci_place *places);
void fci_cpu_let_go(struct fci_health_read *r);
void fci_cpu_read(struct fci_health_read *r, struct fc_health_sample *s, uint64_t dt_ns);
void fci_memory_find(struct fci_health_read *r, const struct fci_place *places);
void fci_memory_let_go(struct fci_health_read *r);

/* Say in the sample whether the numbers of this bit are known, or held as they were. */
void fci_sample_set(struct fc_health_sample *s, uint32_t bit, enum fci_got g);

/* The worst level's number counts. One level without news holds all: it may be the worst. */
void fci_combine(enum fci_got *all, uint32_t *worst, enum fci_got g, uint32_t permille);

#endif /* FCI_HEALTH_PART_H */
