/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * health_memory.c - memory: the limits of the groups and how much of them is used, and the host's
 * memory where no limit binds. See health_read.h.
 */
#include "health_part.h"

#include <string.h>

#define V1_NO_LIMIT (UINT64_C(1) << 62)

/* A memory limit; FCI_NO_LIMIT if it is no tighter than the machine. */
static enum fci_got read_limit(const struct fci_health_read *r, const struct fci_memory_level *l,
                               uint64_t *ret)
{
	uint64_t high;
	enum fci_got g = fci_file_number(l->limit_fd, ret);

	if (l->high_fd >= 0 && fci_file_number(l->high_fd, &high) == FCI_OK &&
	    (g == FCI_NO_LIMIT || (g == FCI_OK && high < *ret))) {
		*ret = high;
		g = FCI_OK;
	}
	if (g == FCI_OK && *ret >= (r->host_memory_bytes ? r->host_memory_bytes : V1_NO_LIMIT))
		return FCI_NO_LIMIT;
	return g == FCI_OK && *ret == 0 ? FCI_ABSURD : g;
}

static void close_level(struct fci_memory_level *l)
{
	fci_file_close(&l->limit_fd);
	fci_file_close(&l->high_fd);
	fci_file_close(&l->usage_fd);
	fci_file_close(&l->stat_fd);
}

static void find_levels(struct fci_health_read *r, const struct fci_place *places)
{
	bool v2 = !places[FCI_PLACE_MEMORY].has_dir;
	const struct fci_place *p = &places[v2 ? FCI_PLACE_V2 : FCI_PLACE_MEMORY];
	size_t bytes = p->has_dir ? strlen(p->dir) : 0;

	for (; bytes && r->memory_levels < FCI_HEALTH_LEVELS; bytes = fci_place_up(p, bytes)) {
		struct fci_memory_level l = {
			.high_fd = -1, .usage_fd = -1, .stat_fd = -1, .v2 = v2,
		};
		uint64_t limit;
		enum fci_got g;

		l.limit_fd = fci_file_open_in(r->root_fd, p->dir, bytes,
		                              v2 ? "memory.max" : "memory.limit_in_bytes");
		if (v2)
			l.high_fd = fci_file_open_in(r->root_fd, p->dir, bytes, "memory.high");
		g = read_limit(r, &l, &limit);
		if (g == FCI_OK || g == FCI_ABSURD) {
			l.usage_fd = fci_file_open_in(r->root_fd, p->dir, bytes,
			                              v2 ? "memory.current" : "memory.usage_in_bytes");
			l.stat_fd = fci_file_open_in(r->root_fd, p->dir, bytes, "memory.stat");
			r->memory[r->memory_levels++] = l;
		} else {
			close_level(&l);
		}
	}
}

static bool mul_1024(uint64_t *v)
{
	return !__builtin_mul_overflow(*v, 1024, v);
}

void fci_memory_find(struct fci_health_read *r, const struct fci_place *places)
{
	r->meminfo_fd = fci_file_open(r->root_fd, "proc/meminfo");
	if (fci_file_keyed(r->meminfo_fd, "MemTotal", &r->host_memory_bytes) != FCI_OK ||
	    !mul_1024(&r->host_memory_bytes))
		r->host_memory_bytes = 0;
	find_levels(r, places);
}

void fci_memory_let_go(struct fci_health_read *r)
{
	fci_file_close(&r->meminfo_fd);
	while (r->memory_levels)
		close_level(&r->memory[--r->memory_levels]);
}

/*
 * Used is usage less inactive_file: pages of files not read twice, which the kernel takes
 * first and without writing to swap. With them a server that writes a log is always "full".
 */
static enum fci_got level_memory(const struct fci_memory_level *l, uint64_t limit,
                                 uint64_t *ret_used, uint32_t *ret_permille)
{
	uint64_t used, inactive = 0;
	enum fci_got g = fci_file_number(l->usage_fd, &used);

	if (g != FCI_OK)
		return g == FCI_NO_LIMIT ? FCI_ABSURD : g;
	if (fci_file_keyed(l->stat_fd, l->v2 ? "inactive_file" : "total_inactive_file",
	                   &inactive) != FCI_OK)
		inactive = 0;
	used -= inactive < used ? inactive : used; /* the two are not read at once */
	*ret_used = used;
	*ret_permille = used >= limit ? 1000 : (uint32_t)((fci_u128)used * 1000 / limit);
	return FCI_OK;
}

static void use_memory(struct fc_health_sample *s, uint64_t used, uint64_t limit, uint32_t permille)
{
	if (s->memory_limit_bytes && permille < s->memory_permille)
		return;
	s->memory_permille = permille;
	s->memory_used_bytes = used;
	s->memory_limit_bytes = limit;
}

static enum fci_got read_host_memory(struct fci_health_read *r, struct fc_health_sample *s)
{
	uint64_t total, available;
	enum fci_got t = fci_file_keyed(r->meminfo_fd, "MemTotal", &total);
	enum fci_got a = fci_file_keyed(r->meminfo_fd, "MemAvailable", &available);

	if (t != FCI_OK || a != FCI_OK)
		return t == FCI_ABSURD || a == FCI_ABSURD ? FCI_ABSURD : FCI_GONE;
	if (!mul_1024(&total) || !mul_1024(&available) || total == 0 || available > total)
		return FCI_ABSURD;
	s->from |= FC_HEALTH_MEMORY_HOST;
	use_memory(s, total - available, total,
	           (uint32_t)((fci_u128)(total - available) * 1000 / total));
	return FCI_OK;
}

void fci_health_read_memory(struct fci_health_read *r, struct fc_health_sample *s)
{
	enum fci_got all = FCI_GONE;

	s->memory_permille = 0;
	s->memory_used_bytes = s->memory_limit_bytes = 0;
	for (uint32_t i = 0; i < r->memory_levels; i++) {
		struct fci_memory_level *l = &r->memory[i];
		uint64_t limit, used = 0;
		uint32_t permille = 0, worst = 0;
		enum fci_got g = read_limit(r, l, &limit);

		if (g == FCI_GONE)
			r->again = true;
		if (g == FCI_NO_LIMIT)
			continue;
		g = g == FCI_OK ? level_memory(l, limit, &used, &permille) : FCI_ABSURD;
		fci_combine(&all, &worst, g, permille);
		if (g != FCI_OK)
			continue;
		use_memory(s, used, limit, permille);
		s->from |= l->v2 ? FC_HEALTH_MEMORY_CGROUP2 : FC_HEALTH_MEMORY_CGROUP1;
	}
	fci_sample_set(s, FC_HEALTH_MEMORY, all != FCI_GONE ? all : read_host_memory(r, s));
}
