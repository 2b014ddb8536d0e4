/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * health_read.c - see health_read.h. CPU is in health_cpu.c, memory in health_memory.c; pressure and
 * load are here, and when to look for the groups anew.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif
#include "health_part.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- finding ------------------------------------------------------------------------------------ */

static void find_pressure(struct fci_health_read *r, const struct fci_place *v2)
{
	static const char *const group[] = { "cpu.pressure", "memory.pressure", "io.pressure" };
	static const char *const host[] = { "proc/pressure/cpu", "proc/pressure/memory",
		                            "proc/pressure/io" };

	r->psi_group = false;
	for (int i = 0; i < 3 && v2->has_dir; i++) {
		r->psi_fd[i] = fci_file_open_in(r->root_fd, v2->dir, strlen(v2->dir), group[i]);
		r->psi_group |= r->psi_fd[i] >= 0;
	}
	for (int i = 0; i < 3; i++)
		if (!r->psi_group)
			r->psi_fd[i] = fci_file_open(r->root_fd, host[i]);
}

static void let_go(struct fci_health_read *r)
{
	fci_cpu_let_go(r);
	fci_memory_let_go(r);
	fci_file_close(&r->loadavg_fd);
	for (int i = 0; i < 3; i++)
		fci_file_close(&r->psi_fd[i]);
}

static void find(struct fci_health_read *r, uint64_t now_ns)
{
	struct fci_place places[FCI_PLACES];

	let_go(r);
	fci_places_find(r->root_fd, places);
	fci_cpu_find(r, places);
	fci_memory_find(r, places);
	find_pressure(r, &places[FCI_PLACE_V2]);
	r->loadavg_fd = fci_file_open(r->root_fd, "proc/loadavg");
	r->pid = getpid();
	r->found = true;
	r->again = false;
	r->reads = 0;
	r->found_ns = now_ns;
}

/* ---- reading ------------------------------------------------------------------------------------ */

void fci_sample_set(struct fc_health_sample *s, uint32_t bit, enum fci_got g)
{
	s->valid &= ~bit;
	s->held &= ~bit;
	if (g == FCI_OK)
		s->valid |= bit;
	else if (g == FCI_ABSURD)
		s->held |= bit;
}

void fci_combine(enum fci_got *all, uint32_t *worst, enum fci_got g, uint32_t permille)
{
	if (g == FCI_ABSURD || *all == FCI_ABSURD)
		*all = FCI_ABSURD;
	else if (g == FCI_OK)
		*all = FCI_OK;
	if (g == FCI_OK && permille > *worst)
		*worst = permille;
}

/* "some avg10=0.59 avg60=..." in percent. */
static enum fci_got read_pressure(int fd, uint32_t *ret_permille)
{
	char buf[FCI_START_BYTES];
	uint32_t milli;

	if (!fci_file_start(fd, buf))
		return FCI_GONE;
	if (strncmp(buf, "some avg10=", 11) != 0 || buf[11] == ' ' ||
	    !fci_parse_milli(buf + 11, &milli) || milli > 100000)
		return FCI_ABSURD;
	*ret_permille = milli / 100;
	return FCI_OK;
}

static void read_pressures(struct fci_health_read *r, struct fc_health_sample *s)
{
	uint32_t *permille[] = { &s->psi_cpu_permille, &s->psi_memory_permille,
		                 &s->psi_io_permille };
	bool any = false;

	for (uint32_t i = 0; i < 3; i++) {
		enum fci_got g = read_pressure(r->psi_fd[i], permille[i]);

		if (g == FCI_GONE && r->psi_fd[i] >= 0)
			r->again = true;
		any |= g != FCI_GONE;
		fci_sample_set(s, (uint32_t)FC_HEALTH_PSI_CPU << i, g);
	}
	if (any)
		s->from |= r->psi_group ? FC_HEALTH_PSI_CGROUP2 : FC_HEALTH_PSI_HOST;
}

static void read_load(struct fci_health_read *r, struct fc_health_sample *s)
{
	char buf[FCI_START_BYTES];
	enum fci_got g = FCI_GONE;

	if (fci_file_start(r->loadavg_fd, buf))
		g = buf[0] != ' ' && fci_parse_milli(buf, &s->load1_permille) &&
			s->load1_permille <= FC_HEALTH_LOAD_MAX_PERMILLE ? FCI_OK : FCI_ABSURD;
	fci_sample_set(s, FC_HEALTH_LOAD1, g);
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
	fci_cpu_read(r, ret, dt_ns);
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
	fci_file_close(&r->root_fd);
}
