/* SPDX-License-Identifier: BSD-2-Clause */
/* Health of this machine: of a real group with a quota where root may make one, and with jemalloc where there is. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "health.h"
#include "support/emulator.h"

#define S UINT64_C(1000000000)

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * S + (uint64_t)t.tv_nsec;
}

static int write_text(const char *dir, const char *file, const char *text)
{
	char path[160];
	FILE *f;
	int e;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	f = fopen(path, "w");
	if (!f)
		return -1;
	e = fputs(text, f) < 0;
	return fclose(f) != 0 || e ? -1 : 0;
}

/* In a group with a tenth of a CPU: burn for two seconds, and say what health makes of it. */

static int burn(const char *cpu, const char *acct, bool join_acct)
{
	static struct fci_health h;
	uint64_t end, next;
	uint32_t word;
	FC_OPTS(fc_health, o, 0);
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (write_text(cpu, "cgroup.procs", pid) ||
	    (join_acct && write_text(acct, "cgroup.procs", pid)))
		return 1;
	if (fci_health_init(&h, NULL) != 0)
		return 2;
	end = clock_ns() + 2 * S;
	next = fci_health_sample(&h, clock_ns(), &word);
	for (uint64_t t; (t = clock_ns()) < end;)
		if (t >= next)
			next = fci_health_sample(&h, t, &word);
	if (fci_health_snapshot(&h, end, &o) != 0)
		return 3;
	fprintf(stderr, "# real group: word %#x cpu %u throttled %u may use %u from %#x\n", word,
	        o.cpu_permille, o.throttled_permille, o.may_use_mcpu, o.from);
	if (!(word & FC_HEALTH_BAD_THROTTLED) || o.reason == 0)
		return 4;
	/* Its share is all used; but other load may keep it from that, and ticks are coarse. */
	if (o.may_use_mcpu != 100 || o.cpu_permille < 500)
		return 5;
	return o.from & (join_acct ? FC_HEALTH_CPU_CGROUP1 : FC_HEALTH_CPU_OWN) ? 0 : 6;
}

static void a_real_throttled_group_is_seen_as_bad(void **state)
{
	char cpu[64], acct[64];
	int status[2] = { 0, 0 };
	bool made;

	(void)state;
	SKIP_IF_EMULATED("its / is another directory, without proc and sys");
	snprintf(cpu, sizeof(cpu), "/sys/fs/cgroup/cpu/test_health_%d", (int)getpid());
	snprintf(acct, sizeof(acct), "/sys/fs/cgroup/cpuacct/test_health_%d", (int)getpid());
	made = mkdir(cpu, 0700) == 0 && (mkdir(acct, 0700) == 0 || errno == EEXIST) &&
		write_text(cpu, "cpu.cfs_quota_us", "10000") == 0;
	for (int i = 0; made && i < 2; i++) {
		pid_t child = fork();

		if (child == 0)
			_exit(burn(cpu, acct, i == 0));
		assert_int_equal(waitpid(child, &status[i], 0), child);
		/* Where both are one hierarchy the group's use is always known. */
		if (i == 1 && WEXITSTATUS(status[1]) == 6)
			status[1] = 0;
	}
	/* The kernel can take a moment to see that the last process is gone. */
	for (int i = 0; i < 100 && rmdir(cpu) && errno == EBUSY; i++)
		usleep(10000);
	for (int i = 0; i < 100 && rmdir(acct) && errno == EBUSY; i++)
		usleep(10000);
	if (!made) {
		print_message("# no cgroup v1 group with a quota can be made here: not tested\n");
		return;
	}
	assert_int_equal(status[0], 0);
	assert_int_equal(status[1], 0);
}

static void this_machine_gives_numbers(void **state)
{
	static struct fci_health h;
	FC_OPTS(fc_health, o, 0);
	uint32_t word;

	(void)state;
	SKIP_IF_EMULATED("its / is another directory, without proc and sys");
	assert_int_equal(fci_health_init(&h, NULL), 0);
	fci_health_sample(&h, clock_ns(), &word);
	usleep(100000);
	fci_health_sample(&h, clock_ns(), &word);
	assert_int_equal(fci_health_snapshot(&h, clock_ns(), &o), 0);
	assert_int_equal(o.valid & (FC_HEALTH_CPU | FC_HEALTH_MEMORY | FC_HEALTH_LOAD1),
	                 FC_HEALTH_CPU | FC_HEALTH_MEMORY | FC_HEALTH_LOAD1);
	assert_true(o.cpus > 0 && o.may_use_mcpu > 0 && o.memory_limit_bytes > 0);
	fci_health_fini(&h);
}

static void jemalloc_gives_its_dirty_pages_back(void **state)
{
	struct fci_jemalloc_figures before, after;
	struct fci_jemalloc j;
	void *block[64];

	(void)state;
	if (!fci_jemalloc_init(&j)) {
		print_message("# jemalloc is not the allocator here: not tested\n");
		return;
	}
	for (int i = 0; i < 64; i++) {
		block[i] = malloc(1 << 20);
		assert_non_null(block[i]);
		memset(block[i], 1, 1 << 20);
	}
	for (int i = 0; i < 64; i++)
		free(block[i]);
	assert_int_equal(fci_jemalloc_figures(&j, &before), 0);
	assert_true(before.dirty_bytes > UINT64_C(8) << 20);
	assert_true(fci_jemalloc_purge(&j, UINT64_MAX) > 0);
	assert_int_equal(fci_jemalloc_figures(&j, &after), 0);
	assert_true(after.dirty_bytes < before.dirty_bytes / 4);
	assert_true(after.resident_bytes < before.resident_bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_real_throttled_group_is_seen_as_bad),
		cmocka_unit_test(this_machine_gives_numbers),
		cmocka_unit_test(jemalloc_gives_its_dirty_pages_back),
	};

	return cmocka_run_group_tests_name("health_real", tests, NULL, NULL);
}
