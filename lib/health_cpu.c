/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * health_cpu.c - CPU: the quotas of the groups and how much of them is used, how often they were
 * throttled, and the host's CPUs where no quota binds. See health_read.h.
 */
#include "health_part.h"

#include <string.h>
#include <unistd.h>

#define PROC_STAT_FIELDS 8

/* ---- quotas of groups --------------------------------------------------------------------------- */

/* cpu.max "200000 100000", or quota and period in two files; as thousandths of a CPU. */
static enum fci_got read_quota(const struct fci_cpu_level *l, uint64_t *ret_mcpu,
                               uint64_t *ret_period_us)
{
	uint64_t quota, period = 100000;
	char buf[FCI_START_BYTES];
	const char *p = buf;
	enum fci_got g;

	if (l->v2) {
		if (!fci_file_start(l->limit_fd, buf))
			return FCI_GONE;
		if (strncmp(p, "max", 3) == 0 && fci_is_end(p[3]))
			return FCI_NO_LIMIT;
		g = fci_parse_u64(&p, &quota) && fci_is_end(*p) ? FCI_OK : FCI_ABSURD;
		if (g == FCI_OK && *p == ' ' && !(fci_parse_u64(&p, &period) && fci_is_end(*p)))
			g = FCI_ABSURD;
	} else {
		g = fci_file_number(l->limit_fd, &quota);
		if (g == FCI_OK && fci_file_number(l->period_fd, &period) != FCI_OK)
			g = FCI_ABSURD;
	}
	if (g != FCI_OK)
		return g;
	/* The kernel's own bounds are tighter; these keep the products below in 128 bits. */
	if (quota == 0 || period == 0 || quota > UINT64_MAX / 1000 || period > UINT64_MAX / 2000)
		return FCI_ABSURD;
	*ret_mcpu = quota * 1000 / period;
	*ret_period_us = period;
	return *ret_mcpu ? FCI_OK : FCI_ABSURD;
}

static void close_level(struct fci_cpu_level *l)
{
	fci_file_close(&l->limit_fd);
	fci_file_close(&l->period_fd);
	fci_file_close(&l->usage_fd);
	fci_file_close(&l->stat_fd);
}

/* v1: use is counted in another hierarchy. It fits if the process is there at the same place. */
static int open_v1_usage(const struct fci_health_read *r, const struct fci_place *cpu, size_t bytes,
                         const struct fci_place *acct, bool *ret_own)
{
	const char *below = cpu->dir + cpu->mount_bytes;
	size_t n = bytes - cpu->mount_bytes;
	int fd = -1;

	if (acct->has_dir && strncmp(acct->dir + acct->mount_bytes, below, n) == 0 &&
	    (acct->dir[acct->mount_bytes + n] == '/' || acct->dir[acct->mount_bytes + n] == '\0'))
		fd = fci_file_open_in(r->root_fd, acct->dir, acct->mount_bytes + n, "cpuacct.usage");
	*ret_own = fd < 0;
	return fd >= 0 ? fd : fci_file_open(r->root_fd, "proc/self/stat");
}

static void find_levels(struct fci_health_read *r, const struct fci_place *places)
{
	bool v2 = !places[FCI_PLACE_CPU].has_dir;
	const struct fci_place *p = &places[v2 ? FCI_PLACE_V2 : FCI_PLACE_CPU];
	size_t bytes = p->has_dir ? strlen(p->dir) : 0;

	for (; bytes && r->cpu_levels < FCI_HEALTH_LEVELS; bytes = fci_place_up(p, bytes)) {
		struct fci_cpu_level l = {
			.period_fd = -1, .usage_fd = -1, .stat_fd = -1, .v2 = v2,
		};
		uint64_t mcpu, period_us;
		enum fci_got g;

		l.limit_fd = fci_file_open_in(r->root_fd, p->dir, bytes, v2 ? "cpu.max" : "cpu.cfs_quota_us");
		if (!v2)
			l.period_fd = fci_file_open_in(r->root_fd, p->dir, bytes, "cpu.cfs_period_us");
		g = read_quota(&l, &mcpu, &period_us);
		if (g == FCI_OK || g == FCI_ABSURD) {
			l.stat_fd = fci_file_open_in(r->root_fd, p->dir, bytes, "cpu.stat");
			if (!v2)
				l.usage_fd = open_v1_usage(r, p, bytes, &places[FCI_PLACE_CPUACCT], &l.own);
			r->cpu[r->cpu_levels++] = l;
		} else {
			close_level(&l);
		}
	}
}

/* ---- CPUs that may be used ---------------------------------------------------------------------- */

/* "0-3,8" into bits. False if it is no such list or is empty. */
static bool parse_cpus(const char *s, uint64_t *bits)
{
	bool any = false;

	memset(bits, 0, FCI_HEALTH_CPUS / 8);
	while (*s == ' ' || *s == '\t')
		s++;
	while (!fci_is_end(*s)) {
		uint64_t from, to;

		if (!fci_parse_u64(&s, &from))
			return false;
		to = from;
		if (*s == '-') {
			s++;
			if (!fci_parse_u64(&s, &to) || to < from)
				return false;
		}
		for (; from <= to && from < FCI_HEALTH_CPUS; from++, any = true)
			bits[from / 64] |= UINT64_C(1) << from % 64;
		if (*s == ',')
			s++;
		else if (!fci_is_end(*s))
			return false;
	}
	return any;
}

/* The innermost cpuset that names CPUs. */
static bool read_cpuset(struct fci_health_read *r, const struct fci_place *places, uint64_t *bits)
{
	bool v2 = !places[FCI_PLACE_CPUSET].has_dir;
	const struct fci_place *p = &places[v2 ? FCI_PLACE_V2 : FCI_PLACE_CPUSET];
	size_t bytes = p->has_dir ? strlen(p->dir) : 0;

	for (; bytes; bytes = fci_place_up(p, bytes)) {
		int fd = fci_file_open_in(r->root_fd, p->dir, bytes,
		                          v2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus");
		struct fci_lines l = { .fd = fd };
		char *line = fd >= 0 ? fci_line_next(&l) : NULL;
		bool ok = line && parse_cpus(line, bits);

		fci_file_close(&fd);
		if (ok)
			return true;
	}
	return false;
}

static bool cpu_allowed(const struct fci_health_read *r, uint64_t cpu)
{
	return cpu >= FCI_HEALTH_CPUS || (r->allowed[cpu / 64] >> cpu % 64 & 1);
}

/* The number of a "cpu3 ..." line. */
static bool cpu_line(const char *line, uint64_t *ret_cpu)
{
	const char *p = line + 3;

	return strncmp(line, "cpu", 3) == 0 && *p != ' ' && fci_parse_u64(&p, ret_cpu) && *p == ' ';
}

/* Allowed: the affinity of the process's first thread, and the cpuset where both share a CPU. */
static void find_cpus(struct fci_health_read *r, const struct fci_place *places)
{
	uint64_t set[FCI_HEALTH_CPUS / 64], both[FCI_HEALTH_CPUS / 64], any = 0, cpu;
	struct fci_lines l = { .fd = fci_file_open(r->root_fd, "proc/self/status") };
	const char *line, *p;
	uint32_t lines = 0;
	bool known = false;

	while (l.fd >= 0 && !known && (line = fci_line_next(&l)))
		known = fci_line_is(line, "Cpus_allowed_list", &p) && parse_cpus(p, r->allowed);
	fci_file_close(&l.fd);
	if (!known)
		memset(r->allowed, 0xff, sizeof(r->allowed));
	if (read_cpuset(r, places, set)) {
		for (size_t i = 0; i < FCI_HEALTH_CPUS / 64; i++)
			any |= both[i] = set[i] & r->allowed[i];
		if (any)
			memcpy(r->allowed, both, sizeof(both));
		known = true;
	}
	l = (struct fci_lines){ .fd = r->stat_fd };
	r->cpus = 0;
	while (l.fd >= 0 && (line = fci_line_next(&l)) && strncmp(line, "cpu", 3) == 0)
		if (cpu_line(line, &cpu)) {
			lines++;
			r->cpus += cpu_allowed(r, cpu);
		}
	r->all_cpus = r->cpus == lines;
	for (size_t i = 0; lines == 0 && known && i < FCI_HEALTH_CPUS / 64; i++)
		r->cpus += (uint32_t)__builtin_popcountll(r->allowed[i]);
}

void fci_cpu_find(struct fci_health_read *r, const struct fci_place *places)
{
	r->stat_fd = fci_file_open(r->root_fd, "proc/stat");
	find_levels(r, places);
	find_cpus(r, places);
	r->host_moved = false;
}

void fci_cpu_let_go(struct fci_health_read *r)
{
	fci_file_close(&r->stat_fd);
	while (r->cpu_levels)
		close_level(&r->cpu[--r->cpu_levels]);
}

/* ---- reading ------------------------------------------------------------------------------------ */

/* Fields after "cpu" or "cpu3" added up; iowait is idle time. */
static bool add_cpu_line(const char *p, uint64_t *idle, uint64_t *total)
{
	for (int i = 0; i < PROC_STAT_FIELDS; i++) {
		uint64_t v;

		if (!fci_parse_u64(&p, &v))
			return i >= 4; /* old kernels have fewer */
		if (__builtin_add_overflow(*total, v, total))
			return false;
		if (i == 3 || i == 4)
			*idle += v; /* a part of total: no overflow */
	}
	return true;
}

static enum fci_got sum_host(struct fci_health_read *r, uint64_t *idle, uint64_t *total, uint32_t *cpus)
{
	struct fci_lines l = { .fd = r->stat_fd };
	const char *line;
	uint64_t cpu;

	*idle = *total = *cpus = 0;
	if (r->stat_fd < 0)
		return FCI_GONE;
	while ((line = fci_line_next(&l)) && strncmp(line, "cpu", 3) == 0) {
		if (r->all_cpus && fci_line_is(line, "cpu", &line))
			return add_cpu_line(line, idle, total) ? FCI_OK : FCI_ABSURD;
		if (!cpu_line(line, &cpu) || !cpu_allowed(r, cpu))
			continue;
		++*cpus;
		if (!add_cpu_line(line + strcspn(line, " "), idle, total))
			return FCI_ABSURD;
	}
	return *cpus ? FCI_OK : FCI_ABSURD;
}

static enum fci_got read_host_cpu(struct fci_health_read *r, uint32_t *ret_permille)
{
	uint64_t idle, total, d_idle, d_total;
	uint32_t cpus;
	bool moved = r->host_moved;
	enum fci_got g = sum_host(r, &idle, &total, &cpus);

	r->host_moved = g == FCI_OK;
	if (g != FCI_OK)
		return g;
	/* A CPU that came or went takes its history along. */
	moved = moved && cpus == r->counted_cpus && total > r->host_total;
	d_total = total - r->host_total;
	d_idle = idle > r->host_idle ? idle - r->host_idle : 0; /* iowait can step back */
	r->counted_cpus = cpus;
	r->host_idle = idle;
	r->host_total = total;
	if (!moved)
		return FCI_ABSURD;
	if (d_idle > d_total)
		d_idle = d_total;
	*ret_permille = (uint32_t)((fci_u128)(d_total - d_idle) * 1000 / d_total);
	return FCI_OK;
}

/* utime and stime of proc/self/stat, behind a name that may hold anything. */
static enum fci_got own_usage(const char *text, uint64_t *ret_ns)
{
	const char *p = strrchr(text, ')');
	uint64_t user, system, hz = (uint64_t)sysconf(_SC_CLK_TCK);

	for (int i = 0; p && i < 12; i++)
		p = strchr(p + 1, ' ');
	if (!p || !fci_parse_u64(&p, &user) || !fci_parse_u64(&p, &system) ||
	    __builtin_add_overflow(user, system, &user) ||
	    __builtin_mul_overflow(user, UINT64_C(1000000000) / hz, ret_ns))
		return FCI_ABSURD;
	return FCI_OK;
}

static enum fci_got level_usage(const struct fci_cpu_level *l, const char *stat, uint64_t *ret_ns)
{
	char buf[FCI_START_BYTES];
	enum fci_got g;

	if (l->v2) {
		g = fci_keyed(stat, "usage_usec", ret_ns);
		return g == FCI_OK && __builtin_mul_overflow(*ret_ns, 1000, ret_ns) ? FCI_ABSURD : g;
	}
	if (l->own)
		return fci_file_start(l->usage_fd, buf) ? own_usage(buf, ret_ns) : FCI_GONE;
	g = fci_file_number(l->usage_fd, ret_ns);
	return g == FCI_NO_LIMIT ? FCI_ABSURD : g;
}

/* used / what may be used, since the previous read; FCI_ABSURD also means "no news". */
static enum fci_got level_cpu(struct fci_cpu_level *l, const char *stat, uint64_t dt_ns,
                              uint64_t mcpu, uint32_t *ret_permille)
{
	uint64_t usage, before = l->usage_ns;
	bool moved = l->moved;
	enum fci_got g = level_usage(l, stat, &usage);
	fci_u128 used;

	l->moved = g == FCI_OK;
	if (g != FCI_OK)
		return g;
	l->usage_ns = usage;
	/* This very read uses CPU in the group: a counter that stands still is broken. A process's
	 * own counter has steps of 10 ms and may stand still. */
	if (!moved || dt_ns == 0 || usage < before || (usage == before && !l->own))
		return FCI_ABSURD;
	used = (fci_u128)(usage - before) * 1000000 / ((fci_u128)dt_ns * mcpu);
	*ret_permille = used > 1000 ? 1000 : (uint32_t)used; /* bursts, and a late read */
	return FCI_OK;
}

static enum fci_got level_throttled(struct fci_cpu_level *l, const char *stat, uint64_t dt_ns,
                                    uint64_t period_us, uint32_t *ret_permille)
{
	uint64_t periods, throttled, p0 = l->periods, t0 = l->throttled;
	enum fci_got g = fci_keyed(stat, "nr_periods", &periods);
	enum fci_got t = fci_keyed(stat, "nr_throttled", &throttled);
	bool counted = l->counted;

	l->counted = g == FCI_OK && t == FCI_OK;
	if (!l->counted)
		return g == FCI_ABSURD || t == FCI_ABSURD ? FCI_ABSURD : FCI_GONE;
	l->periods = periods;
	l->throttled = throttled;
	if (!counted || periods < p0 || throttled < t0 || throttled - t0 > periods - p0)
		return FCI_ABSURD;
	*ret_permille = 0;
	/* Periods are counted while the group runs. None in the time of two: it did not run. */
	if (periods == p0)
		return dt_ns / 2000 >= period_us ? FCI_OK : FCI_ABSURD;
	*ret_permille = (uint32_t)((fci_u128)(throttled - t0) * 1000 / (periods - p0));
	return FCI_OK;
}

/* One level. False if it has no quota now. */
static bool read_level(struct fci_health_read *r, struct fci_cpu_level *l,
                       struct fc_health_sample *s, uint64_t dt_ns, enum fci_got got[2])
{
	uint64_t mcpu, period_us, cpus_mcpu = (uint64_t)r->cpus * 1000;
	uint32_t permille = 0;
	char stat[FCI_START_BYTES];
	enum fci_got g = read_quota(l, &mcpu, &period_us);

	if (g == FCI_GONE)
		r->again = true;
	if (g != FCI_OK) {
		fci_combine(&got[0], &s->cpu_permille, g == FCI_NO_LIMIT ? FCI_GONE : FCI_ABSURD, 0);
		fci_combine(&got[1], &s->throttled_permille, g == FCI_NO_LIMIT ? FCI_GONE : FCI_ABSURD, 0);
		l->moved = l->counted = false;
		return g != FCI_NO_LIMIT;
	}
	if (cpus_mcpu && mcpu > cpus_mcpu)
		mcpu = cpus_mcpu;
	if (s->may_use_mcpu == 0 || mcpu < s->may_use_mcpu)
		s->may_use_mcpu = mcpu > UINT32_MAX ? UINT32_MAX : (uint32_t)mcpu;
	if (!fci_file_start(l->stat_fd, stat) && l->stat_fd >= 0)
		r->again = true;
	g = level_cpu(l, stat, dt_ns, mcpu, &permille);
	fci_combine(&got[0], &s->cpu_permille, g, permille);
	if (g != FCI_GONE)
		s->from |= l->own ? FC_HEALTH_CPU_OWN :
			l->v2 ? FC_HEALTH_CPU_CGROUP2 : FC_HEALTH_CPU_CGROUP1;
	g = level_throttled(l, stat, dt_ns, period_us, &permille);
	fci_combine(&got[1], &s->throttled_permille, g, permille);
	return true;
}

void fci_cpu_read(struct fci_health_read *r, struct fc_health_sample *s, uint64_t dt_ns)
{
	enum fci_got got[2] = { FCI_GONE, FCI_GONE }; /* CPU, throttled */
	bool quota = false;

	s->cpus = r->cpus;
	for (uint32_t i = 0; i < r->cpu_levels; i++)
		quota |= read_level(r, &r->cpu[i], s, dt_ns, got);
	if (!quota || got[0] == FCI_GONE) {
		got[0] = read_host_cpu(r, &s->cpu_permille);
		if (got[0] != FCI_GONE)
			s->from |= FC_HEALTH_CPU_HOST;
		if (s->may_use_mcpu == 0)
			s->may_use_mcpu = r->cpus * 1000;
	} else {
		r->host_moved = false;
	}
	fci_sample_set(s, FC_HEALTH_CPU, got[0]);
	fci_sample_set(s, FC_HEALTH_THROTTLED, got[1]);
	s->since_last |= FC_HEALTH_CPU | FC_HEALTH_THROTTLED;
}
