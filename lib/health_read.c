/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif
#include "health_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 1024
#define SMALL_BYTES 1024
#define FILE_BYTES_MAX (8 << 20) /* no honest file here is larger: /dev/zero is */
#define V1_NO_LIMIT (UINT64_C(1) << 62)
#define PROC_STAT_FIELDS 8

__extension__ typedef unsigned __int128 u128;

/* What came of reading a number. */
enum got { GONE, ABSURD, NONE, OK }; /* no file; nonsense in it; it says "no limit"; a value */

/* ---- text ---- */

/* Lines of a file by pread; one longer than the buffer comes in pieces. */
struct lines {
	int fd;
	off_t at;
	size_t pos, len;
	char buf[4096 + 1];
};

static ssize_t read_at(int fd, void *buf, size_t len, off_t at)
{
	ssize_t n;

	do
		n = pread(fd, buf, len, at);
	while (n < 0 && errno == EINTR);
	return n;
}

static char *next_line(struct lines *l)
{
	for (;;) {
		char *start = l->buf + l->pos, *end = memchr(start, '\n', l->len - l->pos);
		ssize_t n;

		if (end) {
			*end = '\0';
			l->pos = (size_t)(end - l->buf) + 1;
			return start;
		}
		memmove(l->buf, start, l->len - l->pos);
		l->len -= l->pos;
		l->pos = 0;
		n = l->len == sizeof(l->buf) - 1 || l->at > FILE_BYTES_MAX ? 0 :
			read_at(l->fd, l->buf + l->len, sizeof(l->buf) - 1 - l->len, l->at);
		if (n > 0) {
			l->at += n;
			l->len += (size_t)n;
			continue;
		}
		if (l->len == 0)
			return NULL;
		l->buf[l->len] = '\0';
		l->pos = l->len;
		return l->buf;
	}
}

/* The start of a small file as a string; false if it cannot be read. */
static bool read_small(int fd, char *buf)
{
	ssize_t n = fd < 0 ? -1 : read_at(fd, buf, SMALL_BYTES - 1, 0);

	buf[n < 0 ? 0 : n] = '\0';
	return n >= 0;
}

static bool is_end(char c)
{
	return c == '\0' || c == '\n' || c == ' ' || c == '\t';
}

/* A decimal number with digits only; false for a sign, letters, nothing, 2^64 and above. */
static bool parse_u64(const char **p, uint64_t *ret)
{
	const char *s = *p;
	uint64_t v = 0;

	while (*s == ' ' || *s == '\t')
		s++;
	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return false;
	*p = s;
	*ret = v;
	return true;
}

/* "12.34" as thousandths, rounded down; up to 10^6 before the point. */
static bool parse_milli(const char *s, uint32_t *ret)
{
	uint32_t milli = 0, scale = 100;
	uint64_t whole;

	if (!parse_u64(&s, &whole) || whole > 1000000)
		return false;
	if (*s == '.')
		for (s++; *s >= '0' && *s <= '9'; s++, scale /= 10)
			milli += scale * (uint32_t)(*s - '0');
	if (!is_end(*s))
		return false;
	*ret = (uint32_t)whole * 1000 + milli;
	return true;
}

/* The number after "key " (or "key:") if the line starts with it. */
static bool line_is(const char *line, const char *key, const char **ret)
{
	size_t n = strlen(key);

	if (strncmp(line, key, n) != 0 || !(is_end(line[n]) || line[n] == ':'))
		return false;
	*ret = line + n + (line[n] == ':');
	return true;
}

/* A number in a text of lines "key number". */
static enum got keyed(const char *text, const char *key, uint64_t *ret)
{
	const char *p;

	for (; text; text = strchr(text, '\n')) {
		text += *text == '\n';
		if (line_is(text, key, &p))
			return parse_u64(&p, ret) && is_end(*p) ? OK : ABSURD;
	}
	return GONE;
}

static enum got keyed_in_file(int fd, const char *key, uint64_t *ret)
{
	struct lines l = { .fd = fd };
	const char *line, *p;

	while (fd >= 0 && (line = next_line(&l)))
		if (line_is(line, key, &p))
			return parse_u64(&p, ret) && is_end(*p) ? OK : ABSURD;
	return GONE;
}

/* "max" and "-1" are NONE. */
static enum got number_in_file(int fd, uint64_t *ret)
{
	char buf[SMALL_BYTES];
	const char *p = buf;

	if (!read_small(fd, buf))
		return GONE;
	if (strncmp(p, "max", 3) == 0 && is_end(p[3]))
		return NONE;
	if (strncmp(p, "-1", 2) == 0 && is_end(p[2]))
		return NONE;
	return parse_u64(&p, ret) && is_end(*p) ? OK : ABSURD;
}

/* "0-3,8" into bits. False if it is no such list or is empty. */
static bool parse_cpus(const char *s, uint64_t *bits)
{
	bool any = false;

	memset(bits, 0, FCI_HEALTH_CPUS / 8);
	while (*s == ' ' || *s == '\t')
		s++;
	while (!is_end(*s)) {
		uint64_t from, to;

		if (!parse_u64(&s, &from))
			return false;
		to = from;
		if (*s == '-') {
			s++;
			if (!parse_u64(&s, &to) || to < from)
				return false;
		}
		for (; from <= to && from < FCI_HEALTH_CPUS; from++, any = true)
			bits[from / 64] |= UINT64_C(1) << from % 64;
		if (*s == ',')
			s++;
		else if (!is_end(*s))
			return false;
	}
	return any;
}

/* ---- finding the groups ---- */

/* Where the process is in one hierarchy. */
struct place {
	const char *controller;  /* "" = cgroup v2 */
	bool has_path;
	bool has_dir;
	size_t mount_bytes;      /* the mount point's part of dir */
	char path[PATH_BYTES];   /* from proc/self/cgroup */
	char dir[PATH_BYTES];    /* mount point and path below it */
};

enum { P_V2, P_CPU, P_CPUACCT, P_CPUSET, P_MEMORY, PLACES };

static void close_file(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* -1 if it is not there or cannot be read: where pressure is off its files open but fail. */
static int open_file(const struct fci_health_read *r, const char *path)
{
	int fd;
	char c;

	while (*path == '/')
		path++;
	/* Non-blocking: what should be a file could be a pipe that nobody writes. */
	fd = openat(r->root_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && read_at(fd, &c, 1, 0) < 0)
		close_file(&fd);
	return fd;
}

static int open_in(const struct fci_health_read *r, const char *dir, size_t dir_bytes,
                   const char *name)
{
	char path[PATH_BYTES + 32];

	snprintf(path, sizeof(path), "%.*s/%s", (int)dir_bytes, dir, name);
	return open_file(r, path);
}

static bool in_list(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (; list; list = strchr(list, ',')) {
		list += *list == ',';
		if (strncmp(list, word, n) == 0 && (list[n] == ',' || list[n] == '\0'))
			return true;
	}
	return false;
}

/* Lines "4:cpu,cpuacct:/a/b", and "0::/a/b" for v2. */
static void read_paths(struct fci_health_read *r, struct place *places)
{
	struct lines l = { .fd = open_file(r, "proc/self/cgroup") };
	char *line;

	while (l.fd >= 0 && (line = next_line(&l))) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;

		if (!path || path[1] != '/' || strlen(path + 1) >= PATH_BYTES)
			continue;
		*path++ = '\0';
		/* "/../x": outside the cgroup namespace; nothing mounted here is about it. */
		if (strncmp(path, "/..", 3) == 0 && (path[3] == '/' || path[3] == '\0'))
			continue;
		for (int i = 0; i < PLACES; i++) {
			if (!in_list(list + 1, places[i].controller))
				continue;
			strcpy(places[i].path, path);
			places[i].has_path = true;
		}
	}
	close_file(&l.fd);
}

/* \040 and the like, in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* If the mount of root at point shows the place, set its directory. */
static void try_mount(struct place *p, const char *root, const char *point)
{
	size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
	const char *below = p->path + n;

	if (!p->has_path || p->has_dir || strncmp(p->path, root, n) != 0 ||
	    (*below != '/' && *below != '\0'))
		return;
	if (strcmp(below, "/") == 0)
		below = "";
	if (strlen(point) + strlen(below) >= sizeof(p->dir))
		return;
	p->mount_bytes = strlen(point);
	strcpy(p->dir, point);
	strcat(p->dir, below);
	p->has_dir = true;
}

/* "id parent dev root point options [more]... - type source superoptions" */
static void read_mounts(struct fci_health_read *r, struct place *places)
{
	struct lines l = { .fd = open_file(r, "proc/self/mountinfo") };
	char *line;

	while (l.fd >= 0 && (line = next_line(&l))) {
		char *field[5], *type, *options = NULL, *next = line;
		int n = 0;

		type = strstr(line, " - ");
		if (!type || strncmp(type + 3, "cgroup", 6) != 0)
			continue;
		*type = '\0';
		type += 3;
		while (n < 5 && (field[n] = strsep(&next, " ")))
			n++;
		options = strrchr(type, ' ');
		if (n < 5 || !options)
			continue;
		*options++ = '\0';
		unescape(field[3]);
		unescape(field[4]);
		if (strncmp(type, "cgroup2 ", 8) == 0)
			try_mount(&places[P_V2], field[3], field[4]);
		else if (strncmp(type, "cgroup ", 7) == 0)
			for (int i = P_V2 + 1; i < PLACES; i++)
				if (in_list(options, places[i].controller))
					try_mount(&places[i], field[3], field[4]);
	}
	close_file(&l.fd);
}

/* The length of the directory one level up, 0 when at the mount point already. */
static size_t level_up(const struct place *p, size_t bytes)
{
	if (bytes <= p->mount_bytes)
		return 0;
	while (p->dir[--bytes] != '/')
		;
	return bytes < p->mount_bytes ? p->mount_bytes : bytes;
}

/* cpu.max "200000 100000", or quota and period in two files; as thousandths of a CPU. */
static enum got read_quota(const struct fci_cpu_level *l, uint64_t *ret_mcpu,
                           uint64_t *ret_period_us)
{
	uint64_t quota, period = 100000;
	char buf[SMALL_BYTES];
	const char *p = buf;
	enum got g;

	if (l->v2) {
		if (!read_small(l->limit_fd, buf))
			return GONE;
		if (strncmp(p, "max", 3) == 0 && is_end(p[3]))
			return NONE;
		g = parse_u64(&p, &quota) && is_end(*p) ? OK : ABSURD;
		if (g == OK && *p == ' ' && !(parse_u64(&p, &period) && is_end(*p)))
			g = ABSURD;
	} else {
		g = number_in_file(l->limit_fd, &quota);
		if (g == OK && number_in_file(l->period_fd, &period) != OK)
			g = ABSURD;
	}
	if (g != OK)
		return g;
	/* The kernel's own bounds are tighter; these keep the products below in 128 bits. */
	if (quota == 0 || period == 0 || quota > UINT64_MAX / 1000 || period > UINT64_MAX / 2000)
		return ABSURD;
	*ret_mcpu = quota * 1000 / period;
	*ret_period_us = period;
	return *ret_mcpu ? OK : ABSURD;
}

static void close_cpu(struct fci_cpu_level *l)
{
	close_file(&l->limit_fd);
	close_file(&l->period_fd);
	close_file(&l->usage_fd);
	close_file(&l->stat_fd);
}

/* v1: use is counted in another hierarchy. It fits if the process is there at the same place. */
static int open_v1_usage(const struct fci_health_read *r, const struct place *cpu, size_t bytes,
                         const struct place *acct, bool *ret_own)
{
	const char *below = cpu->dir + cpu->mount_bytes;
	size_t n = bytes - cpu->mount_bytes;
	int fd = -1;

	if (acct->has_dir && strncmp(acct->dir + acct->mount_bytes, below, n) == 0 &&
	    (acct->dir[acct->mount_bytes + n] == '/' || acct->dir[acct->mount_bytes + n] == '\0'))
		fd = open_in(r, acct->dir, acct->mount_bytes + n, "cpuacct.usage");
	*ret_own = fd < 0;
	return fd >= 0 ? fd : open_file(r, "proc/self/stat");
}

static void find_cpu_levels(struct fci_health_read *r, const struct place *places)
{
	bool v2 = !places[P_CPU].has_dir;
	const struct place *p = &places[v2 ? P_V2 : P_CPU];
	size_t bytes = p->has_dir ? strlen(p->dir) : 0;

	for (; bytes && r->cpu_levels < FCI_HEALTH_LEVELS; bytes = level_up(p, bytes)) {
		struct fci_cpu_level l = {
			.period_fd = -1, .usage_fd = -1, .stat_fd = -1, .v2 = v2,
		};
		uint64_t mcpu, period_us;
		enum got g;

		l.limit_fd = open_in(r, p->dir, bytes, v2 ? "cpu.max" : "cpu.cfs_quota_us");
		if (!v2)
			l.period_fd = open_in(r, p->dir, bytes, "cpu.cfs_period_us");
		g = read_quota(&l, &mcpu, &period_us);
		if (g == OK || g == ABSURD) {
			l.stat_fd = open_in(r, p->dir, bytes, "cpu.stat");
			if (!v2)
				l.usage_fd = open_v1_usage(r, p, bytes, &places[P_CPUACCT], &l.own);
			r->cpu[r->cpu_levels++] = l;
		} else {
			close_cpu(&l);
		}
	}
}

/* A memory limit; NONE if it is no tighter than the machine. */
static enum got read_limit(const struct fci_health_read *r, const struct fci_memory_level *l,
                           uint64_t *ret)
{
	uint64_t high;
	enum got g = number_in_file(l->limit_fd, ret);

	if (l->high_fd >= 0 && number_in_file(l->high_fd, &high) == OK &&
	    (g == NONE || (g == OK && high < *ret))) {
		*ret = high;
		g = OK;
	}
	if (g == OK && *ret >= (r->host_memory_bytes ? r->host_memory_bytes : V1_NO_LIMIT))
		return NONE;
	return g == OK && *ret == 0 ? ABSURD : g;
}

static void close_memory(struct fci_memory_level *l)
{
	close_file(&l->limit_fd);
	close_file(&l->high_fd);
	close_file(&l->usage_fd);
	close_file(&l->stat_fd);
}

static void find_memory_levels(struct fci_health_read *r, const struct place *places)
{
	bool v2 = !places[P_MEMORY].has_dir;
	const struct place *p = &places[v2 ? P_V2 : P_MEMORY];
	size_t bytes = p->has_dir ? strlen(p->dir) : 0;

	for (; bytes && r->memory_levels < FCI_HEALTH_LEVELS; bytes = level_up(p, bytes)) {
		struct fci_memory_level l = {
			.high_fd = -1, .usage_fd = -1, .stat_fd = -1, .v2 = v2,
		};
		uint64_t limit;
		enum got g;

		l.limit_fd = open_in(r, p->dir, bytes, v2 ? "memory.max" : "memory.limit_in_bytes");
		if (v2)
			l.high_fd = open_in(r, p->dir, bytes, "memory.high");
		g = read_limit(r, &l, &limit);
		if (g == OK || g == ABSURD) {
			l.usage_fd = open_in(r, p->dir, bytes,
			                     v2 ? "memory.current" : "memory.usage_in_bytes");
			l.stat_fd = open_in(r, p->dir, bytes, "memory.stat");
			r->memory[r->memory_levels++] = l;
		} else {
			close_memory(&l);
		}
	}
}

static void find_pressure(struct fci_health_read *r, const struct place *v2)
{
	static const char *const group[] = { "cpu.pressure", "memory.pressure", "io.pressure" };
	static const char *const host[] = { "proc/pressure/cpu", "proc/pressure/memory",
		                            "proc/pressure/io" };

	r->psi_group = false;
	for (int i = 0; i < 3 && v2->has_dir; i++) {
		r->psi_fd[i] = open_in(r, v2->dir, strlen(v2->dir), group[i]);
		r->psi_group |= r->psi_fd[i] >= 0;
	}
	for (int i = 0; i < 3; i++)
		if (!r->psi_group)
			r->psi_fd[i] = open_file(r, host[i]);
}

/* The innermost cpuset that names CPUs. */
static bool read_cpuset(struct fci_health_read *r, const struct place *places, uint64_t *bits)
{
	bool v2 = !places[P_CPUSET].has_dir;
	const struct place *p = &places[v2 ? P_V2 : P_CPUSET];
	size_t bytes = p->has_dir ? strlen(p->dir) : 0;

	for (; bytes; bytes = level_up(p, bytes)) {
		int fd = open_in(r, p->dir, bytes,
		                 v2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus");
		struct lines l = { .fd = fd };
		char *line = fd >= 0 ? next_line(&l) : NULL;
		bool ok = line && parse_cpus(line, bits);

		close_file(&fd);
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

	return strncmp(line, "cpu", 3) == 0 && *p != ' ' && parse_u64(&p, ret_cpu) && *p == ' ';
}

/* Allowed: the affinity of the process's first thread, and the cpuset where both share a CPU. */
static void find_cpus(struct fci_health_read *r, const struct place *places)
{
	uint64_t set[FCI_HEALTH_CPUS / 64], both[FCI_HEALTH_CPUS / 64], any = 0, cpu;
	struct lines l = { .fd = open_file(r, "proc/self/status") };
	const char *line, *p;
	uint32_t lines = 0;
	bool known = false;

	while (l.fd >= 0 && !known && (line = next_line(&l)))
		known = line_is(line, "Cpus_allowed_list", &p) && parse_cpus(p, r->allowed);
	close_file(&l.fd);
	if (!known)
		memset(r->allowed, 0xff, sizeof(r->allowed));
	if (read_cpuset(r, places, set)) {
		for (size_t i = 0; i < FCI_HEALTH_CPUS / 64; i++)
			any |= both[i] = set[i] & r->allowed[i];
		if (any)
			memcpy(r->allowed, both, sizeof(both));
		known = true;
	}
	l = (struct lines){ .fd = r->stat_fd };
	r->cpus = 0;
	while (l.fd >= 0 && (line = next_line(&l)) && strncmp(line, "cpu", 3) == 0)
		if (cpu_line(line, &cpu)) {
			lines++;
			r->cpus += cpu_allowed(r, cpu);
		}
	r->all_cpus = r->cpus == lines;
	for (size_t i = 0; lines == 0 && known && i < FCI_HEALTH_CPUS / 64; i++)
		r->cpus += (uint32_t)__builtin_popcountll(r->allowed[i]);
}

static void let_go(struct fci_health_read *r)
{
	close_file(&r->stat_fd);
	close_file(&r->meminfo_fd);
	close_file(&r->loadavg_fd);
	for (int i = 0; i < 3; i++)
		close_file(&r->psi_fd[i]);
	while (r->cpu_levels)
		close_cpu(&r->cpu[--r->cpu_levels]);
	while (r->memory_levels)
		close_memory(&r->memory[--r->memory_levels]);
}

static bool mul_1024(uint64_t *v)
{
	return !__builtin_mul_overflow(*v, 1024, v);
}

static void find(struct fci_health_read *r, uint64_t now_ns)
{
	struct place places[PLACES] = {
		{ .controller = "" }, { .controller = "cpu" }, { .controller = "cpuacct" },
		{ .controller = "cpuset" }, { .controller = "memory" },
	};

	let_go(r);
	r->stat_fd = open_file(r, "proc/stat");
	r->meminfo_fd = open_file(r, "proc/meminfo");
	r->loadavg_fd = open_file(r, "proc/loadavg");
	if (keyed_in_file(r->meminfo_fd, "MemTotal", &r->host_memory_bytes) != OK ||
	    !mul_1024(&r->host_memory_bytes))
		r->host_memory_bytes = 0;
	read_paths(r, places);
	read_mounts(r, places);
	find_cpu_levels(r, places);
	find_memory_levels(r, places);
	find_pressure(r, &places[P_V2]);
	find_cpus(r, places);
	r->host_moved = false;
	r->pid = getpid();
	r->found = true;
	r->again = false;
	r->reads = 0;
	r->found_ns = now_ns;
}

/* ---- reading ---- */

static void set(struct fc_health_sample *s, uint32_t bit, enum got g)
{
	s->valid &= ~bit;
	s->held &= ~bit;
	if (g == OK)
		s->valid |= bit;
	else if (g == ABSURD)
		s->held |= bit;
}

/* Fields after "cpu" or "cpu3" added up; iowait is idle time. */
static bool add_cpu_line(const char *p, uint64_t *idle, uint64_t *total)
{
	for (int i = 0; i < PROC_STAT_FIELDS; i++) {
		uint64_t v;

		if (!parse_u64(&p, &v))
			return i >= 4; /* old kernels have fewer */
		if (__builtin_add_overflow(*total, v, total))
			return false;
		if (i == 3 || i == 4)
			*idle += v; /* a part of total: no overflow */
	}
	return true;
}

static enum got sum_host(struct fci_health_read *r, uint64_t *idle, uint64_t *total,
                         uint32_t *cpus)
{
	struct lines l = { .fd = r->stat_fd };
	const char *line;
	uint64_t cpu;

	*idle = *total = *cpus = 0;
	if (r->stat_fd < 0)
		return GONE;
	while ((line = next_line(&l)) && strncmp(line, "cpu", 3) == 0) {
		if (r->all_cpus && line_is(line, "cpu", &line))
			return add_cpu_line(line, idle, total) ? OK : ABSURD;
		if (!cpu_line(line, &cpu) || !cpu_allowed(r, cpu))
			continue;
		++*cpus;
		if (!add_cpu_line(line + strcspn(line, " "), idle, total))
			return ABSURD;
	}
	return *cpus ? OK : ABSURD;
}

static enum got read_host_cpu(struct fci_health_read *r, uint32_t *ret_permille)
{
	uint64_t idle, total, d_idle, d_total;
	uint32_t cpus;
	bool moved = r->host_moved;
	enum got g = sum_host(r, &idle, &total, &cpus);

	r->host_moved = g == OK;
	if (g != OK)
		return g;
	/* A CPU that came or went takes its history along. */
	moved = moved && cpus == r->counted_cpus && total > r->host_total;
	d_total = total - r->host_total;
	d_idle = idle > r->host_idle ? idle - r->host_idle : 0; /* iowait can step back */
	r->counted_cpus = cpus;
	r->host_idle = idle;
	r->host_total = total;
	if (!moved)
		return ABSURD;
	if (d_idle > d_total)
		d_idle = d_total;
	*ret_permille = (uint32_t)((u128)(d_total - d_idle) * 1000 / d_total);
	return OK;
}

/* utime and stime of proc/self/stat, behind a name that may hold anything. */
static enum got own_usage(const char *text, uint64_t *ret_ns)
{
	const char *p = strrchr(text, ')');
	uint64_t user, system, hz = (uint64_t)sysconf(_SC_CLK_TCK);

	for (int i = 0; p && i < 12; i++)
		p = strchr(p + 1, ' ');
	if (!p || !parse_u64(&p, &user) || !parse_u64(&p, &system) ||
	    __builtin_add_overflow(user, system, &user) ||
	    __builtin_mul_overflow(user, UINT64_C(1000000000) / hz, ret_ns))
		return ABSURD;
	return OK;
}

static enum got level_usage(const struct fci_cpu_level *l, const char *stat, uint64_t *ret_ns)
{
	char buf[SMALL_BYTES];
	enum got g;

	if (l->v2) {
		g = keyed(stat, "usage_usec", ret_ns);
		return g == OK && __builtin_mul_overflow(*ret_ns, 1000, ret_ns) ? ABSURD : g;
	}
	if (l->own)
		return read_small(l->usage_fd, buf) ? own_usage(buf, ret_ns) : GONE;
	g = number_in_file(l->usage_fd, ret_ns);
	return g == NONE ? ABSURD : g;
}

/* used / what may be used, since the previous read; ABSURD also means "no news". */
static enum got level_cpu(struct fci_cpu_level *l, const char *stat, uint64_t dt_ns,
                          uint64_t mcpu, uint32_t *ret_permille)
{
	uint64_t usage, before = l->usage_ns;
	bool moved = l->moved;
	enum got g = level_usage(l, stat, &usage);
	u128 used;

	l->moved = g == OK;
	if (g != OK)
		return g;
	l->usage_ns = usage;
	/* This very read uses CPU in the group: a counter that stands still is broken. A process's
	 * own counter has steps of 10 ms and may stand still. */
	if (!moved || dt_ns == 0 || usage < before || (usage == before && !l->own))
		return ABSURD;
	used = (u128)(usage - before) * 1000000 / ((u128)dt_ns * mcpu);
	*ret_permille = used > 1000 ? 1000 : (uint32_t)used; /* bursts, and a late read */
	return OK;
}

static enum got level_throttled(struct fci_cpu_level *l, const char *stat, uint64_t dt_ns,
                                uint64_t period_us, uint32_t *ret_permille)
{
	uint64_t periods, throttled, p0 = l->periods, t0 = l->throttled;
	enum got g = keyed(stat, "nr_periods", &periods);
	enum got t = keyed(stat, "nr_throttled", &throttled);
	bool counted = l->counted;

	l->counted = g == OK && t == OK;
	if (!l->counted)
		return g == ABSURD || t == ABSURD ? ABSURD : GONE;
	l->periods = periods;
	l->throttled = throttled;
	if (!counted || periods < p0 || throttled < t0 || throttled - t0 > periods - p0)
		return ABSURD;
	*ret_permille = 0;
	/* Periods are counted while the group runs. None in the time of two: it did not run. */
	if (periods == p0)
		return dt_ns / 2000 >= period_us ? OK : ABSURD;
	*ret_permille = (uint32_t)((u128)(throttled - t0) * 1000 / (periods - p0));
	return OK;
}

/* The worst level's number counts. One level without news holds all: it may be the worst. */
static void combine(enum got *all, uint32_t *worst, enum got g, uint32_t permille)
{
	if (g == ABSURD || *all == ABSURD)
		*all = ABSURD;
	else if (g == OK)
		*all = OK;
	if (g == OK && permille > *worst)
		*worst = permille;
}

/* One level. False if it has no quota now. */
static bool read_cpu_level(struct fci_health_read *r, struct fci_cpu_level *l,
                           struct fc_health_sample *s, uint64_t dt_ns, enum got got[2])
{
	uint64_t mcpu, period_us, cpus_mcpu = (uint64_t)r->cpus * 1000;
	uint32_t permille = 0;
	char stat[SMALL_BYTES];
	enum got g = read_quota(l, &mcpu, &period_us);

	if (g == GONE)
		r->again = true;
	if (g != OK) {
		combine(&got[0], &s->cpu_permille, g == NONE ? GONE : ABSURD, 0);
		combine(&got[1], &s->throttled_permille, g == NONE ? GONE : ABSURD, 0);
		l->moved = l->counted = false;
		return g != NONE;
	}
	if (cpus_mcpu && mcpu > cpus_mcpu)
		mcpu = cpus_mcpu;
	if (s->may_use_mcpu == 0 || mcpu < s->may_use_mcpu)
		s->may_use_mcpu = mcpu > UINT32_MAX ? UINT32_MAX : (uint32_t)mcpu;
	if (!read_small(l->stat_fd, stat) && l->stat_fd >= 0)
		r->again = true;
	g = level_cpu(l, stat, dt_ns, mcpu, &permille);
	combine(&got[0], &s->cpu_permille, g, permille);
	if (g != GONE)
		s->from |= l->own ? FC_HEALTH_CPU_OWN :
			l->v2 ? FC_HEALTH_CPU_CGROUP2 : FC_HEALTH_CPU_CGROUP1;
	g = level_throttled(l, stat, dt_ns, period_us, &permille);
	combine(&got[1], &s->throttled_permille, g, permille);
	return true;
}

static void read_cpu(struct fci_health_read *r, struct fc_health_sample *s, uint64_t dt_ns)
{
	enum got got[2] = { GONE, GONE }; /* CPU, throttled */
	bool quota = false;

	s->cpus = r->cpus;
	for (uint32_t i = 0; i < r->cpu_levels; i++)
		quota |= read_cpu_level(r, &r->cpu[i], s, dt_ns, got);
	if (!quota || got[0] == GONE) {
		got[0] = read_host_cpu(r, &s->cpu_permille);
		if (got[0] != GONE)
			s->from |= FC_HEALTH_CPU_HOST;
		if (s->may_use_mcpu == 0)
			s->may_use_mcpu = r->cpus * 1000;
	} else {
		r->host_moved = false;
	}
	set(s, FC_HEALTH_CPU, got[0]);
	set(s, FC_HEALTH_THROTTLED, got[1]);
	s->since_last |= FC_HEALTH_CPU | FC_HEALTH_THROTTLED;
}

/*
 * Used is usage less inactive_file: pages of files not read twice, which the kernel takes
 * first and without writing to swap. With them a server that writes a log is always "full".
 */
static enum got level_memory(const struct fci_memory_level *l, uint64_t limit,
                             uint64_t *ret_used, uint32_t *ret_permille)
{
	uint64_t used, inactive = 0;
	enum got g = number_in_file(l->usage_fd, &used);

	if (g != OK)
		return g == NONE ? ABSURD : g;
	if (keyed_in_file(l->stat_fd, l->v2 ? "inactive_file" : "total_inactive_file",
	                  &inactive) != OK)
		inactive = 0;
	used -= inactive < used ? inactive : used; /* the two are not read at once */
	*ret_used = used;
	*ret_permille = used >= limit ? 1000 : (uint32_t)((u128)used * 1000 / limit);
	return OK;
}

static void use_memory(struct fc_health_sample *s, uint64_t used, uint64_t limit,
                       uint32_t permille)
{
	if (s->memory_limit_bytes && permille < s->memory_permille)
		return;
	s->memory_permille = permille;
	s->memory_used_bytes = used;
	s->memory_limit_bytes = limit;
}

static enum got read_host_memory(struct fci_health_read *r, struct fc_health_sample *s)
{
	uint64_t total, available;
	enum got t = keyed_in_file(r->meminfo_fd, "MemTotal", &total);
	enum got a = keyed_in_file(r->meminfo_fd, "MemAvailable", &available);

	if (t != OK || a != OK)
		return t == ABSURD || a == ABSURD ? ABSURD : GONE;
	if (!mul_1024(&total) || !mul_1024(&available) || total == 0 || available > total)
		return ABSURD;
	s->from |= FC_HEALTH_MEMORY_HOST;
	use_memory(s, total - available, total,
	           (uint32_t)((u128)(total - available) * 1000 / total));
	return OK;
}

void fci_health_read_memory(struct fci_health_read *r, struct fc_health_sample *s)
{
	enum got all = GONE;

	s->memory_permille = 0;
	s->memory_used_bytes = s->memory_limit_bytes = 0;
	for (uint32_t i = 0; i < r->memory_levels; i++) {
		struct fci_memory_level *l = &r->memory[i];
		uint64_t limit, used = 0;
		uint32_t permille = 0, worst = 0;
		enum got g = read_limit(r, l, &limit);

		if (g == GONE)
			r->again = true;
		if (g == NONE)
			continue;
		g = g == OK ? level_memory(l, limit, &used, &permille) : ABSURD;
		combine(&all, &worst, g, permille);
		if (g != OK)
			continue;
		use_memory(s, used, limit, permille);
		s->from |= l->v2 ? FC_HEALTH_MEMORY_CGROUP2 : FC_HEALTH_MEMORY_CGROUP1;
	}
	set(s, FC_HEALTH_MEMORY, all != GONE ? all : read_host_memory(r, s));
}

/* "some avg10=0.59 avg60=..." in percent. */
static enum got read_pressure(int fd, uint32_t *ret_permille)
{
	char buf[SMALL_BYTES];
	uint32_t milli;

	if (!read_small(fd, buf))
		return GONE;
	if (strncmp(buf, "some avg10=", 11) != 0 || buf[11] == ' ' ||
	    !parse_milli(buf + 11, &milli) || milli > 100000)
		return ABSURD;
	*ret_permille = milli / 100;
	return OK;
}

static void read_pressures(struct fci_health_read *r, struct fc_health_sample *s)
{
	uint32_t *permille[] = { &s->psi_cpu_permille, &s->psi_memory_permille,
		                 &s->psi_io_permille };
	bool any = false;

	for (uint32_t i = 0; i < 3; i++) {
		enum got g = read_pressure(r->psi_fd[i], permille[i]);

		if (g == GONE && r->psi_fd[i] >= 0)
			r->again = true;
		any |= g != GONE;
		set(s, (uint32_t)FC_HEALTH_PSI_CPU << i, g);
	}
	if (any)
		s->from |= r->psi_group ? FC_HEALTH_PSI_CGROUP2 : FC_HEALTH_PSI_HOST;
}

static void read_load(struct fci_health_read *r, struct fc_health_sample *s)
{
	char buf[SMALL_BYTES];
	enum got g = GONE;

	if (read_small(r->loadavg_fd, buf))
		g = buf[0] != ' ' && parse_milli(buf, &s->load1_permille) &&
			s->load1_permille <= FC_HEALTH_LOAD_MAX_PERMILLE ? OK : ABSURD;
	set(s, FC_HEALTH_LOAD1, g);
}

int fci_health_read(void *arg, struct fc_health_sample *ret)
{
	struct fci_health_read *r = arg;
	uint64_t now_ns = ret->now_ns, dt_ns;

	/* A clock that went back makes the difference huge: looks again, which is harmless. Each
	 * search costs one CPU number, so not at every read, however rare they are. */
	if (!r->found || r->again || r->pid != getpid() ||
	    (r->reads >= 8 && now_ns - r->found_ns >= FCI_HEALTH_FIND_NS))
		find(r, now_ns);
	r->reads++;
	dt_ns = now_ns > r->last_ns ? now_ns - r->last_ns : 0;
	r->last_ns = now_ns;
	read_cpu(r, ret, dt_ns);
	fci_health_read_memory(r, ret);
	read_pressures(r, ret);
	read_load(r, ret);
	return 0;
}

int fci_health_read_init(struct fci_health_read *r, const char *root)
{
	memset(r, 0, sizeof(*r));
	r->stat_fd = r->meminfo_fd = r->loadavg_fd = -1;
	for (int i = 0; i < 3; i++)
		r->psi_fd[i] = -1;
	r->root_fd = open(root ? root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return r->root_fd < 0 ? -errno : 0;
}

void fci_health_read_fini(struct fci_health_read *r)
{
	let_go(r);
	close_file(&r->root_fd);
}
