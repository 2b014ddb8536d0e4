/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_memory.c - bytes per interface, for 1 to 10^5 interfaces: given out by the library, and
 * resident as the kernel counts it, after set-up and after each interface has been called from one
 * CPU. Each row is a process of its own.
 */
#include "guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Resident bytes, exactly (the short files of /proc lag by some pages). */
static uint64_t resident_bytes(void)
{
	unsigned long long kib = 0;
	char line[256];
	FILE *f = fopen("/proc/self/smaps_rollup", "r");

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Rss: %llu kB", &kib) == 1)
			break;
	fclose(f);
	return kib * 1024;
}

/* name of each interface: as long as real ones are */
static struct fc_iface *make(struct fc *fc, uint32_t i, uint32_t cap)
{
	FC_OPTS(fc_iface_opts, o, .cap = cap);
	struct fc_iface *iface;
	char name[40];
	int rc;

	snprintf(name, sizeof(name), "service.method_%06u", i);
	rc = fc_iface_set(fc, name, &o, &iface);
	if (rc)
		bench_die("interface %u: %s", i, fc_status_text(rc));
	return iface;
}

static void row(uint32_t n, uint32_t cap)
{
	FC_OPTS(fc_opts, o, .max_ifaces = n, .segment_bytes = 0);
	struct fc_totals t = { .size = sizeof(t) };
	struct fc_iface **ifaces = bench_alloc(n * sizeof(*ifaces));
	uint64_t before = resident_bytes(), created, set_up, called, used, touched;
	struct fc *fc;
	int rc;

	if (cap > 64)
		o.segment_bytes = n * fc_iface_bytes(cap, bench_cpus(), &touched) + (64u << 20);
	rc = fc_create(&fc, &o);
	if (rc)
		bench_die("fc_create: %s", fc_status_text(rc));
	created = resident_bytes();
	if (fc_totals(fc, &t))
		bench_die("fc_totals");
	used = t.bytes_used;
	for (uint32_t i = 0; i < n; i++)
		ifaces[i] = make(fc, i, cap);
	set_up = resident_bytes();
	for (uint32_t i = 0; i < n; i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		if (fc_enter(&e, ifaces[i], NULL) == 0)
			fc_exit(&e);
	}
	called = resident_bytes();
	if (fc_totals(fc, &t))
		bench_die("fc_totals");
	printf("| %u | %u | %llu | %llu | %.0f | %.0f | %.0f |\n", n, cap,
	       (unsigned long long)(created - before) / 1024, (unsigned long long)t.bytes_mapped / 1024,
	       (double)(t.bytes_used - used) / n, (double)(set_up - created) / n,
	       (double)(called - created) / n);
	fflush(stdout);
	fc_destroy(fc);
}

int main(int argc, char **argv)
{
	static const uint32_t counts[] = { 1, 10, 100, 1000, 10000, 100000 };
	static const uint32_t caps[] = { 0, 64, 1024 };
	struct bench_opts o;
	uint64_t touched;

	bench_args(&o, argc, argv);
	bench_heading("Memory");
	printf("| interfaces | cap | KiB resident, context alone | KiB mapped | bytes given out per interface "
	       "| resident after set-up | and after a call |\n|--:|--:|--:|--:|--:|--:|--:|\n");
	fflush(stdout);
	for (size_t k = 0; k < sizeof(caps) / sizeof(caps[0]); k++)
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			int status;
			pid_t child;

			if (counts[i] > 1000 && (o.quick || caps[k] > 64))
				continue;
			child = fork();
			if (child < 0)
				bench_die("fork");
			if (!child) {
				row(counts[i], caps[k]);
				exit(0);
			}
			if (waitpid(child, &status, 0) < 0 || status)
				printf("| %u | %u | failed | | | | |\n", counts[i], caps[k]);
		}
	printf("\nAs planned by the library, bytes of address space per interface (and touched by one CPU):\n\n"
	       "| cap | 2 CPUs | 16 CPUs | 256 CPUs |\n|--:|--:|--:|--:|\n");
	for (size_t k = 0; k < sizeof(caps) / sizeof(caps[0]); k++) {
		printf("| %u |", caps[k]);
		for (uint32_t cpus = 2; cpus <= 256; cpus *= cpus < 16 ? 8 : 16) {
			uint64_t bytes = fc_iface_bytes(caps[k], cpus, &touched);

			printf(" %llu (%llu) |", (unsigned long long)bytes, (unsigned long long)touched);
		}
		printf("\n");
	}
	return 0;
}
