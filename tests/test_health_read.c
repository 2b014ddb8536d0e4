/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading CPU, memory and pressure: from trees that the test makes below a directory of its own,
 * and once from a real group with a quota, where root may make one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "health.h"
#include "support/emulator.h"

#define MS UINT64_C(1000000)
#define S (1000 * MS)
#define PERIOD (250 * MS)

#define ALL_BUT_JEMALLOC (FC_HEALTH_JEMALLOC - 1)

static struct fci_health_read r;
static struct fc_health_sample s;
static uint64_t now;
static char root[64];

/* Write text to a file below root; its directories are made. */
static void put(const char *path, const char *text)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		mkdir(full, 0700);
	}
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int drop_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void drop(const char *path)
{
	char full[512];

	snprintf(full, sizeof(full), "%s/%s", root, path);
	nftw(full, drop_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int setup(void **state)
{
	(void)state;
	/* In memory where there is: the trees are many small files, written over and over. */
	snprintf(root, sizeof(root), "%s/test_health_read_XXXXXX",
	         access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	assert_non_null(mkdtemp(root));
	assert_int_equal(fci_health_read_init(&r, root), 0);
	now = 100 * S;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fci_health_read_fini(&r);
	drop("");
	return 0;
}

static void read_after(uint64_t dt)
{
	now += dt;
	s = (struct fc_health_sample){ .size = sizeof(s), .now_ns = now };
	assert_int_equal(fci_health_read(&r, &s), 0);
}

static void anew(void)
{
	fci_health_read_fini(&r);
	assert_int_equal(fci_health_read_init(&r, root), 0);
}

/* A host with two CPUs: 25 % busy since boot, half of memory used. */
static void host(void)
{
	put("proc/stat", "cpu  500 0 500 2000 1000 0 0 0 0 0\n"
	                 "cpu0 250 0 250 1000 500 0 0 0 0 0\n"
	                 "cpu1 250 0 250 1000 500 0 0 0 0 0\nintr 1 2 3\n");
	put("proc/meminfo", "MemTotal:  1000000 kB\nMemFree: 1 kB\nMemAvailable:  500000 kB\n");
	put("proc/loadavg", "1.25 0.50 0.10 1/100 1234\n");
	put("proc/pressure/cpu", "some avg10=1.23 avg60=9.00 avg300=0.00 total=1\n");
	put("proc/pressure/memory", "some avg10=0.09 avg60=0.00 avg300=0.00 total=1\n"
	                            "full avg10=50.00 avg60=0.00 avg300=0.00 total=1\n");
	put("proc/pressure/io", "some avg10=100.00 avg60=0.00 avg300=0.00 total=1\n");
	put("proc/self/status", "Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n");
	put("proc/self/stat", "1 (a) b (c)) R 1 1 1 0 -1 0 0 0 0 0 100 50 0 0 20 0 1 0\n");
}

static void v1(const char *path)
{
	char text[512];

	snprintf(text, sizeof(text),
	         "12:memory:%s\n5:cpuset:%s\n3:cpu,cpuacct:%s\n1:name=systemd:/x\n", path, path,
	         path);
	put("proc/self/cgroup", text);
	put("proc/self/mountinfo",
	    "20 1 0:1 / / rw - ext4 /dev/root rw\n"
	    "31 23 0:28 / /sys/fs/cgroup rw shared:1 - tmpfs tmpfs rw\n"
	    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:2 master:1 - cgroup cgroup "
	    "rw,cpu,cpuacct\n"
	    "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
}

static void v1_cpu(const char *path, const char *quota, uint64_t used_ms, int periods,
                   int throttled)
{
	char file[256], text[128];

	snprintf(file, sizeof(file), "sys/fs/cgroup/cpu,cpuacct%s/cpu.cfs_quota_us", path);
	put(file, quota);
	snprintf(file, sizeof(file), "sys/fs/cgroup/cpu,cpuacct%s/cpu.cfs_period_us", path);
	put(file, "100000\n");
	snprintf(file, sizeof(file), "sys/fs/cgroup/cpu,cpuacct%s/cpuacct.usage", path);
	snprintf(text, sizeof(text), "%llu\n", (unsigned long long)(used_ms * MS));
	put(file, text);
	snprintf(file, sizeof(file), "sys/fs/cgroup/cpu,cpuacct%s/cpu.stat", path);
	snprintf(text, sizeof(text), "nr_periods %d\nnr_throttled %d\nthrottled_time 0\n", periods,
	         throttled);
	put(file, text);
}

static void v2(const char *path)
{
	char text[256];

	snprintf(text, sizeof(text), "0::%s\n", path);
	put("proc/self/cgroup", text);
	put("proc/self/mountinfo",
	    "30 23 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
}

static void v2_cpu(const char *path, const char *max, uint64_t used_ms, int periods, int throttled)
{
	char file[256], text[256];

	snprintf(file, sizeof(file), "sys/fs/cgroup%s/cpu.max", path);
	put(file, max);
	snprintf(file, sizeof(file), "sys/fs/cgroup%s/cpu.stat", path);
	snprintf(text, sizeof(text),
	         "usage_usec %llu\nuser_usec 1\nsystem_usec 1\nnr_periods %d\nnr_throttled %d\n",
	         (unsigned long long)used_ms * 1000, periods, throttled);
	put(file, text);
}

static void v2_memory(const char *path, const char *max, const char *current, const char *inactive)
{
	char file[256], text[256];

	snprintf(file, sizeof(file), "sys/fs/cgroup%s/memory.max", path);
	put(file, max);
	snprintf(file, sizeof(file), "sys/fs/cgroup%s/memory.current", path);
	put(file, current);
	snprintf(file, sizeof(file), "sys/fs/cgroup%s/memory.stat", path);
	snprintf(text, sizeof(text), "anon 1\nfile 2\ninactive_file %s\nactive_file 3\n", inactive);
	put(file, text);
}

/* ---- host ---- */

static void a_host_without_groups_gives_its_own_numbers(void **state)
{
	(void)state;
	host();
	read_after(0);
	assert_int_equal(s.valid, ALL_BUT_JEMALLOC & ~(FC_HEALTH_CPU | FC_HEALTH_THROTTLED));
	assert_int_equal(s.held, FC_HEALTH_CPU); /* no difference yet */
	assert_int_equal(s.memory_permille, 500);
	assert_int_equal(s.memory_used_bytes, 512000000);
	assert_int_equal(s.psi_cpu_permille, 12);
	assert_int_equal(s.psi_memory_permille, 0);
	assert_int_equal(s.psi_io_permille, 1000);
	assert_int_equal(s.load1_permille, 1250);
	assert_int_equal(s.cpus, 2);
	assert_int_equal(s.may_use_mcpu, 2000);
	assert_int_equal(s.from, FC_HEALTH_CPU_HOST | FC_HEALTH_MEMORY_HOST | FC_HEALTH_PSI_HOST);
	/* 70 of 100 ticks: user, nice, system, irq, softirq, steal; not idle and iowait; guest is
	 * in user already. */
	put("proc/stat", "cpu  510 10 510 2020 1010 15 15 10 500 500\n");
	read_after(PERIOD);
	assert_true(s.valid & FC_HEALTH_CPU);
	assert_int_equal(s.cpu_permille, 700);
}

static void an_empty_tree_has_no_numbers_and_is_no_error(void **state)
{
	FC_OPTS(fc_health_opts, o, .root = root);
	static struct fci_health h;
	uint32_t word;

	(void)state;
	read_after(0);
	read_after(PERIOD);
	assert_int_equal(s.valid, 0);
	assert_int_equal(s.held, 0);
	assert_int_equal(s.from, 0);
	assert_int_equal(fci_health_init(&h, &o), 0);
	for (int i = 0; i < 20; i++)
		fci_health_sample(&h, now += PERIOD, &word);
	assert_int_equal(word, FC_HEALTH_UNKNOWN);
	fci_health_fini(&h);
}

static void affinity_leaves_only_its_cpus_in(void **state)
{
	(void)state;
	host();
	put("proc/self/status", "Cpus_allowed_list:\t1-31\n");
	read_after(0);
	assert_int_equal(s.cpus, 1);
	assert_int_equal(s.may_use_mcpu, 1000);
	put("proc/stat", "cpu 0 0 0 0 0 0 0 0\ncpu0 250 0 250 1099 500 0 0 0 0 0\n"
	                 "cpu1 340 0 250 1010 500 0 0 0 0 0\n");
	read_after(PERIOD);
	assert_int_equal(s.cpu_permille, 900);
}

static void a_cpuset_leaves_only_its_cpus_in(void **state)
{
	(void)state;
	host();
	v1("/a");
	put("sys/fs/cgroup/cpuset/a/cpuset.effective_cpus", "0\n");
	read_after(0);
	assert_int_equal(s.cpus, 1);
	put("proc/stat", "cpu 0 0 0 0\n"
	                 "cpu0 260 0 250 1090 500 0 0 0\ncpu1 340 0 250 1010 500 0 0 0\n");
	read_after(PERIOD);
	assert_int_equal(s.cpu_permille, 100);
	/* v2; and a set that shares nothing with the affinity is not believed. */
	v2("/a/b");
	put("sys/fs/cgroup/a/cpuset.cpus.effective", "1");
	anew();
	read_after(PERIOD);
	assert_int_equal(s.cpus, 1);
	put("sys/fs/cgroup/a/cpuset.cpus.effective", "7");
	anew();
	read_after(PERIOD);
	assert_int_equal(s.cpus, 2);
}

static void a_cpu_that_comes_does_not_count_with_its_history(void **state)
{
	(void)state;
	host();
	put("proc/self/status", "Cpus_allowed_list:\t0-1,3\n");
	put("proc/stat", "cpu 1 1 1 1\ncpu0 1 0 0 99\ncpu2 1 1 1 1\n");
	read_after(0);
	put("proc/stat", "cpu 1 1 1 1\ncpu0 2 0 0 198\ncpu2 1 1 1 1\ncpu3 900000 0 0 0\n");
	read_after(PERIOD);
	assert_true(s.held & FC_HEALTH_CPU);
	put("proc/stat", "cpu 1 1 1 1\ncpu0 3 0 0 247\ncpu2 1 1 1 1\ncpu3 900050 0 0 0\n");
	read_after(PERIOD);
	assert_int_equal(s.cpu_permille, 510);
}

static void proc_stat_longer_than_the_buffer_is_read_to_its_end(void **state)
{
	static char text[2][200000];

	(void)state;
	host();
	put("proc/self/status", "Cpus_allowed_list:\t2000-2047\n");
	for (int k = 0; k < 2; k++) {
		char *p = text[k];

		p += sprintf(p, "cpu  1 1 1 1 1 1 1 1 1 1\n");
		for (int i = 0; i < 2048; i++)
			p += sprintf(p, "cpu%d %d 0 0 %d 0 0 0 0 0 0\n", i, 100000 + 30 * k,
			             900000 + 70 * k);
	}
	put("proc/stat", text[0]);
	read_after(0);
	assert_int_equal(s.cpus, 48);
	put("proc/stat", text[1]);
	read_after(PERIOD);
	assert_int_equal(s.cpu_permille, 300);
}

/* ---- groups ---- */

static void a_v1_group_with_a_quota_counts_used_over_quota(void **state)
{
	(void)state;
	host();
	v1("/a");
	v1_cpu("/a", "50000\n", 1000, 10, 1);
	read_after(0);
	assert_int_equal(s.held & (FC_HEALTH_CPU | FC_HEALTH_THROTTLED),
	                 FC_HEALTH_CPU | FC_HEALTH_THROTTLED);
	v1_cpu("/a", "50000\n", 1100, 20, 3);
	read_after(1 * S);
	assert_int_equal(s.cpu_permille, 200); /* 0.1 s of half a CPU in a second */
	assert_int_equal(s.throttled_permille, 200);
	assert_int_equal(s.may_use_mcpu, 500);
	assert_true(s.from & FC_HEALTH_CPU_CGROUP1);
	/* No period ran in the time of many: it did not run, so was not throttled. */
	v1_cpu("/a", "50000\n", 1101, 20, 3);
	read_after(1 * S);
	assert_true(s.valid & FC_HEALTH_THROTTLED);
	assert_int_equal(s.throttled_permille, 0);
	/* Counters that go back, and more throttled than there were. */
	v1_cpu("/a", "50000\n", 1102, 10, 3);
	read_after(1 * S);
	assert_int_equal(s.held, FC_HEALTH_THROTTLED);
	v1_cpu("/a", "50000\n", 1103, 11, 5);
	read_after(1 * S);
	assert_int_equal(s.held, FC_HEALTH_THROTTLED);
}

static void a_v2_group_with_a_quota_counts_used_over_quota(void **state)
{
	(void)state;
	host();
	v2("/kube/pod");
	v2_cpu("/kube/pod", "150000 100000\n", 1000, 10, 1);
	read_after(0);
	v2_cpu("/kube/pod", "150000 100000\n", 2200, 20, 3);
	read_after(1 * S);
	assert_int_equal(s.cpu_permille, 800);
	assert_int_equal(s.throttled_permille, 200);
	assert_int_equal(s.may_use_mcpu, 1500);
	assert_true(s.from & FC_HEALTH_CPU_CGROUP2);
}

static void a_quota_above_the_cpus_is_bounded_by_them(void **state)
{
	(void)state;
	host();
	v2("/a");
	v2_cpu("/a", "6400000 100000", 0, 0, 0);
	read_after(0);
	v2_cpu("/a", "6400000 100000", 1000, 0, 0);
	read_after(1 * S);
	assert_int_equal(s.may_use_mcpu, 2000);
	assert_int_equal(s.cpu_permille, 500);
	/* More than there is: a late read, or saved-up burst. */
	v2_cpu("/a", "6400000 100000", 9000, 0, 0);
	read_after(1 * S);
	assert_int_equal(s.cpu_permille, 1000);
}

static void of_nested_groups_the_tightest_counts(void **state)
{
	(void)state;
	host();
	v2("/a/b/c");
	v2_cpu("/a", "100000 100000", 5000, 100, 50);
	v2_cpu("/a/b", "max 100000", 0, 0, 0);
	v2_cpu("/a/b/c", "200000 100000", 0, 10, 0);
	v2_memory("/a", "400000000", "200000000", "0");
	v2_memory("/a/b/c", "100000000", "20000000", "0");
	read_after(0);
	assert_int_equal(s.memory_permille, 500);
	assert_int_equal(s.memory_limit_bytes, 400000000);
	v2_cpu("/a", "100000 100000", 5900, 110, 55);
	v2_cpu("/a/b/c", "200000 100000", 200, 20, 0);
	read_after(1 * S);
	assert_int_equal(s.cpu_permille, 900);
	assert_int_equal(s.throttled_permille, 500);
	assert_int_equal(s.may_use_mcpu, 1000);
	v2_cpu("/a", "100000 100000", 6000, 120, 55);
	v2_cpu("/a/b/c", "200000 100000", 800, 30, 1);
	v2_memory("/a/b/c", "100000000", "70000000", "0");
	read_after(1 * S);
	assert_int_equal(s.cpu_permille, 300);
	assert_int_equal(s.throttled_permille, 100);
	assert_int_equal(s.memory_permille, 700);
	assert_int_equal(s.memory_limit_bytes, 100000000);
}

static void groups_nested_in_v1_are_looked_at_up_to_the_mount(void **state)
{
	(void)state;
	host();
	v1("/a/b");
	v1_cpu("/a", "100000", 0, 0, 0);
	v1_cpu("/a/b", "-1", 0, 0, 0);
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
	put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000");
	put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900000");
	put("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 7\ntotal_inactive_file 400000\n");
	read_after(0);
	assert_int_equal(s.memory_permille, 500);
	assert_true(s.from & FC_HEALTH_MEMORY_CGROUP1);
	v1_cpu("/a", "100000", 400, 10, 0);
	read_after(1 * S);
	assert_int_equal(s.cpu_permille, 400);
}

static void a_group_without_limits_falls_back_to_the_host(void **state)
{
	(void)state;
	host();
	v2("/a");
	v2_cpu("/a", "max 100000\n", 7, 0, 0);
	v2_memory("/a", "max\n", "123", "0");
	read_after(0);
	assert_int_equal(s.memory_permille, 500);
	assert_int_equal(s.from, FC_HEALTH_CPU_HOST | FC_HEALTH_MEMORY_HOST | FC_HEALTH_PSI_HOST);
	/* A limit no tighter than the machine is none. */
	v2_memory("/a", "1024000000", "123", "0");
	anew();
	read_after(PERIOD);
	assert_int_equal(s.memory_limit_bytes, 1024000000);
	assert_true(s.from & FC_HEALTH_MEMORY_HOST);
	assert_int_equal((s.valid | s.held) & FC_HEALTH_THROTTLED, 0);
}

static void memory_high_counts_as_a_limit(void **state)
{
	(void)state;
	host();
	v2("/a");
	v2_memory("/a", "max", "600000", "100000");
	put("sys/fs/cgroup/a/memory.high", "1000000\n");
	read_after(0);
	assert_int_equal(s.memory_permille, 500);
	assert_true(s.from & FC_HEALTH_MEMORY_CGROUP2);
	/* The two are not read at one moment: more cache than memory is none used. */
	v2_memory("/a", "max", "600000", "600001");
	read_after(PERIOD);
	assert_int_equal(s.memory_used_bytes, 0);
	assert_int_equal(s.memory_permille, 0);
}

static void a_limit_that_comes_later_is_found(void **state)
{
	(void)state;
	host();
	v2("/a");
	v2_cpu("/a", "max 100000", 0, 0, 0);
	read_after(0);
	v2_cpu("/a", "10000 100000", 0, 0, 0);
	for (int i = 0; i < 150; i++) {
		v2_cpu("/a", "10000 100000", 10 * (uint64_t)i, 0, 0);
		read_after(PERIOD);
	}
	assert_true(s.from & FC_HEALTH_CPU_CGROUP2);
	assert_int_equal(s.cpu_permille, 400);
	/* And one that goes is gone at once. */
	v2_cpu("/a", "max 100000", 2000, 0, 0);
	read_after(PERIOD);
	assert_true(s.from & FC_HEALTH_CPU_HOST);
	assert_int_equal((s.valid | s.held) & FC_HEALTH_THROTTLED, 0);
}

static void a_container_sees_its_group_at_the_mount_point(void **state)
{
	(void)state;
	host();
	put("proc/self/cgroup", "4:memory:/docker/123\n2:cpu:/docker/123/in\n");
	put("proc/self/mountinfo",
	    "33 31 0:30 /docker/123 /sys/fs/cg\\040roup/memory ro - cgroup cgroup rw,memory\n"
	    "33 31 0:30 /docker/12 /wrong ro - cgroup cgroup rw,cpu\n"
	    "33 31 0:30 /docker/123 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu");
	put("sys/fs/cg roup/memory/memory.limit_in_bytes", "1000000");
	put("sys/fs/cg roup/memory/memory.usage_in_bytes", "250000");
	put("sys/fs/cgroup/cpu/in/cpu.cfs_quota_us", "100000");
	put("sys/fs/cgroup/cpu/in/cpu.cfs_period_us", "100000");
	read_after(0);
	assert_int_equal(s.memory_permille, 250); /* no memory.stat: usage as it is */
	assert_int_equal(s.may_use_mcpu, 1000);
}

static void without_the_groups_use_the_process_counts_its_own(void **state)
{
	(void)state;
	host();
	v1("/a");
	v1_cpu("/a", "50000", 0, 0, 0);
	drop("sys/fs/cgroup/cpu,cpuacct/a/cpuacct.usage");
	read_after(0);
	assert_true(s.from & FC_HEALTH_CPU_OWN);
	put("proc/self/stat", "1 (a) b (c)) R 1 1 1 0 -1 0 0 0 0 0 110 60 0 0 20 0 1 0\n");
	read_after(1 * S); /* 20 ticks, 0.2 s of 0.5 */
	assert_int_equal(s.cpu_permille, 20 * 1000 / sysconf(_SC_CLK_TCK) * 2);
	read_after(1 * S); /* ticks are coarse: standing still is no fault */
	assert_true(s.valid & FC_HEALTH_CPU);
	assert_int_equal(s.cpu_permille, 0);
}

static void a_v2_group_has_its_own_pressure(void **state)
{
	(void)state;
	host();
	v2("/a");
	put("sys/fs/cgroup/a/cpu.pressure", "some avg10=33.30 avg60=0.00 avg300=0.00 total=1");
	put("sys/fs/cgroup/a/io.pressure", "some avg10=4.00 avg60=0.00 avg300=0.00 total=1\n");
	read_after(0);
	assert_int_equal(s.psi_cpu_permille, 333);
	assert_int_equal(s.psi_io_permille, 40);
	assert_int_equal(s.valid & FC_HEALTH_PSI_MEMORY, 0);
	assert_true(s.from & FC_HEALTH_PSI_CGROUP2);
}

/* ---- nonsense ---- */

static void a_cpu_counter_that_stands_still_is_no_news(void **state)
{
	(void)state;
	host();
	v2("/a");
	v2_cpu("/a", "100000 100000", 1000, 0, 0);
	read_after(0);
	v2_cpu("/a", "100000 100000", 1100, 0, 0);
	read_after(PERIOD);
	assert_int_equal(s.valid & FC_HEALTH_CPU, FC_HEALTH_CPU);
	read_after(PERIOD);
	assert_int_equal(s.valid & FC_HEALTH_CPU, 0);
	assert_int_equal(s.held & FC_HEALTH_CPU, FC_HEALTH_CPU);
	/* Back: a new start, no number from it. */
	v2_cpu("/a", "100000 100000", 50, 0, 0);
	read_after(PERIOD);
	assert_int_equal(s.held & FC_HEALTH_CPU, FC_HEALTH_CPU);
	v2_cpu("/a", "100000 100000", 75, 0, 0);
	read_after(PERIOD);
	assert_int_equal(s.cpu_permille, 100);
}

static void a_stuck_host_counter_turns_the_judgement_stale(void **state)
{
	FC_OPTS(fc_health_opts, o, .root = root);
	static struct fci_health h;
	uint32_t word;

	(void)state;
	host();
	assert_int_equal(fci_health_init(&h, &o), 0);
	put("proc/pressure/io", "some avg10=1.00 avg60=0.00 avg300=0.00 total=1\n");
	assert_int_equal(fci_health_sample(&h, now, &word), now + PERIOD / 4);
	assert_int_equal(word, FC_HEALTH_UNKNOWN);
	put("proc/stat", "cpu  510 0 510 2080 1000 0 0 0 0 0\n");
	fci_health_sample(&h, now += PERIOD, &word);
	assert_int_equal(word, FC_HEALTH_GOOD);
	for (int i = 0; i < 8; i++) {
		fci_health_sample(&h, now += PERIOD, &word);
		assert_int_equal(word, FC_HEALTH_GOOD);
	}
	fci_health_sample(&h, now += PERIOD, &word);
	assert_int_equal(word, FC_HEALTH_STALE | FC_HEALTH_UNKNOWN);
	put("proc/stat", "cpu  520 0 520 2180 1000 0 0 0 0 0\n");
	fci_health_sample(&h, now += PERIOD, &word);
	assert_int_equal(word, FC_HEALTH_GOOD);
	fci_health_fini(&h);
}

static const char *const nonsense[] = {
	"", "\n", " ", "nan", "NaN\n", "-1e9", "-5", "inf", "0x10", "1e3", "some", "max0",
	"99999999999999999999999",
	"18446744073709551616", "cpu", "cpu ", "cpu  -1 0 0 0 0 0 0 0", "cpu  nan 1 2 3 4 5 6 7\n",
	"cpu  18446744073709551615 18446744073709551615 1 1 1 1 1 1\n", "some avg10=nan avg60=0",
	"some avg10=-1.00", "some avg10=100.01 ", "some avg10=99999999999999999999.0",
	"some avg10= 5",
	"usage_usec -3\nnr_periods nan\nnr_throttled", "usage_usec 18446744073709551615\n",
	"MemTotal: -1 kB\nMemAvailable: 7 kB\n", "MemTotal: 10 kB\nMemAvailable: 11 kB\n",
	"MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n",
	"MemTotal: 0 kB\nMemAvailable: 0 kB",
	"Cpus_allowed_list: 5-2", "Cpus_allowed_list: 0-18446744073709551615", "0::", "0::/../x",
	":::", "1:cpu", "0::relative", "1 2 3 / / - cgroup2", " - cgroup2 x y",
	"1 2 3 \\777 \\0 rw - cgroup2 a b",
	"200000 -1", "0 100000", "1 18446744073709551615", "18446744073709551615 1", "5 0", "5 5 5",
	"(((", ") ) )", "1 (x) R 1", "inactive_file 99999999999999999999",
};

static void nonsense_in_any_file_gives_no_wild_number(void **state)
{
	static const char *const files[] = {
		"proc/stat", "proc/meminfo", "proc/loadavg", "proc/pressure/cpu",
		"proc/pressure/memory",
		"proc/pressure/io", "proc/self/status", "proc/self/stat", "proc/self/cgroup",
		"proc/self/mountinfo", "sys/fs/cgroup/a/cpu.max", "sys/fs/cgroup/a/cpu.stat",
		"sys/fs/cgroup/a/memory.max", "sys/fs/cgroup/a/memory.high",
		"sys/fs/cgroup/a/memory.current", "sys/fs/cgroup/a/memory.stat",
		"sys/fs/cgroup/a/cpuset.cpus.effective", "sys/fs/cgroup/a/cpu.pressure",
	};

	(void)state;
	for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
		host();
		v2("/a");
		v2_cpu("/a", "100000 100000", 1, 1, 0);
		v2_memory("/a", "1000000", "500000", "1");
		for (size_t n = 0; n < sizeof(nonsense) / sizeof(nonsense[0]); n++) {
			put(files[f], nonsense[n]);
			anew();
			for (int i = 0; i < 3; i++) {
				read_after(PERIOD);
				assert_int_equal(s.valid & s.held, 0);
				assert_true(s.cpu_permille <= 1000 && s.throttled_permille <= 1000);
				assert_in_range(s.memory_permille, 0, 1000);
				assert_in_range(s.psi_cpu_permille, 0, 1000);
				assert_in_range(s.psi_memory_permille, 0, 1000);
				assert_in_range(s.psi_io_permille, 0, 1000);
				assert_true(s.load1_permille <= FC_HEALTH_LOAD_MAX_PERMILLE);
			}
		}
		drop("sys");
	}
}

/* As above, but which of the two is meant: it exists without news, or it does not exist. */
static void nonsense_is_held_and_a_missing_file_is_left_out(void **state)
{
	static const struct {
		const char *file, *text;
		uint32_t number;
	} row[] = {
		{ "proc/stat", "cpu  nan 0 0 0\n", FC_HEALTH_CPU },
		{ "proc/meminfo", "MemTotal: 10 kB\nMemAvailable: -1 kB\n", FC_HEALTH_MEMORY },
		/* 2^64 + 4 and 2^64 + 1: 4 and 1 to who does not look. */
		{ "proc/meminfo", "MemTotal: 10 kB\nMemAvailable: 18446744073709551620 kB\n",
		  FC_HEALTH_MEMORY },
		{ "proc/meminfo", "MemTotal: 10 kB\nMemAvailable: 18446744073709551617 kB\n",
		  FC_HEALTH_MEMORY },
		{ "proc/loadavg", "nan nan nan", FC_HEALTH_LOAD1 },
		{ "proc/loadavg", "-0.10 0 0", FC_HEALTH_LOAD1 },
		{ "proc/loadavg", "", FC_HEALTH_LOAD1 },
		{ "proc/loadavg", "1.5x", FC_HEALTH_LOAD1 },
		{ "proc/pressure/cpu", "some avg10=nan avg60=0.00", FC_HEALTH_PSI_CPU },
		{ "proc/pressure/memory", "", FC_HEALTH_PSI_MEMORY },
		{ "proc/pressure/io", "some avg10=100.01 avg60=0.00", FC_HEALTH_PSI_IO },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		host();
		put(row[i].file, row[i].text);
		anew();
		read_after(PERIOD);
		assert_int_equal(s.valid & row[i].number, 0);
		assert_int_equal(s.held & row[i].number, row[i].number);
		drop(row[i].file);
		anew();
		read_after(PERIOD);
		assert_int_equal((s.valid | s.held) & row[i].number, 0);
	}
}

static void huge_numbers_do_not_overflow(void **state)
{
	(void)state;
	host();
	put("proc/meminfo", "MemTotal: 18014398509481983 kB\nMemAvailable: 0 kB\n");
	v2("/a");
	v2_cpu("/a", "18446744073709551 1", 0, 0, 0);
	v2_memory("/a", "18446744073709550000", "18446744073709551615", "18446744073709551615");
	read_after(0);
	assert_int_equal(s.memory_permille, 0);
	put("sys/fs/cgroup/a/cpu.stat",
	    "usage_usec 18446744073709551\nnr_periods 18446744073709551615\n"
	    "nr_throttled 18446744073709551615\n");
	put("sys/fs/cgroup/a/memory.stat", "");
	read_after(1);
	assert_int_equal(s.cpu_permille, 1000);
	assert_int_equal(s.throttled_permille, 1000);
	assert_int_equal(s.memory_permille, 1000);
	read_after(UINT64_MAX / 2);
	assert_int_equal(s.held & FC_HEALTH_CPU, FC_HEALTH_CPU);
}

static void a_missing_last_newline_is_no_matter(void **state)
{
	(void)state;
	host();
	put("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 250");
	put("proc/loadavg", "0.5");
	put("proc/pressure/cpu", "some avg10=2.00");
	put("proc/stat", "cpu 0 0 0 100 0 0 0 0");
	read_after(0);
	assert_int_equal(s.memory_permille, 750);
	assert_int_equal(s.load1_permille, 500);
	assert_int_equal(s.psi_cpu_permille, 20);
	put("proc/stat", "cpu 50 0 0 150 0 0 0 0");
	read_after(PERIOD);
	assert_int_equal(s.cpu_permille, 500);
}

static void what_is_no_file_is_taken_as_missing(void **state)
{
	char path[128];

	(void)state;
	host();
	drop("proc/loadavg");
	drop("proc/stat");
	snprintf(path, sizeof(path), "%s/proc/loadavg", root);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/proc/stat", root);
	assert_int_equal(mkfifo(path, 0600), 0); /* must not wait for a writer */
	read_after(0);
	assert_int_equal((s.valid | s.held) & (FC_HEALTH_LOAD1 | FC_HEALTH_CPU), 0);
	assert_false(r.again);
}

static void the_same_or_an_earlier_time_gives_no_cpu_number(void **state)
{
	(void)state;
	host();
	v2("/a");
	v2_cpu("/a", "100000 100000", 0, 0, 0);
	read_after(0);
	v2_cpu("/a", "100000 100000", 100, 0, 0);
	read_after(0);
	assert_int_equal(s.valid & FC_HEALTH_CPU, 0);
	v2_cpu("/a", "100000 100000", 200, 0, 0);
	now -= 50 * S;
	read_after(0);
	assert_int_equal(s.valid & FC_HEALTH_CPU, 0);
	v2_cpu("/a", "100000 100000", 300, 0, 0);
	read_after(1 * S);
	assert_int_equal(s.cpu_permille, 100);
}

static void files_are_kept_open_and_closed_at_the_end(void **state)
{
	int before, after_one, after_many;

	(void)state;
	host();
	v2("/a/b");
	v2_cpu("/a", "100000 100000", 0, 0, 0);
	v2_memory("/a/b", "1000", "500", "1");
	before = dup(0);
	close(before);
	read_after(0);
	after_one = dup(0);
	close(after_one);
	for (int i = 0; i < 1000; i++)
		read_after(PERIOD);
	after_many = dup(0);
	close(after_many);
	assert_true(after_one > before);
	assert_int_equal(after_many, after_one);
	fci_health_read_fini(&r);
	after_many = dup(0);
	close(after_many);
	assert_true(after_many <= before);
	assert_int_equal(fci_health_read_init(&r, root), 0);
}

static void a_forked_child_reads_its_own_files(void **state)
{
	pid_t child;
	int status;

	(void)state;
	host();
	v1("/a");
	v1_cpu("/a", "100000", 0, 0, 0);
	read_after(0);
	child = fork();
	if (child == 0) {
		/* In its own group by now. */
		v2("/b");
		v2_cpu("/b", "20000 100000", 0, 0, 0);
		read_after(PERIOD);
		_exit(s.may_use_mcpu == 200 && (s.from & FC_HEALTH_CPU_CGROUP2) ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	v1("/a");
	read_after(PERIOD);
	assert_int_equal(s.may_use_mcpu, 1000);
}

/* ---- the real thing ---- */

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
#define TEST(f_) cmocka_unit_test_setup_teardown(f_, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_host_without_groups_gives_its_own_numbers),
		TEST(an_empty_tree_has_no_numbers_and_is_no_error),
		TEST(affinity_leaves_only_its_cpus_in),
		TEST(a_cpuset_leaves_only_its_cpus_in),
		TEST(a_cpu_that_comes_does_not_count_with_its_history),
		TEST(proc_stat_longer_than_the_buffer_is_read_to_its_end),
		TEST(a_v1_group_with_a_quota_counts_used_over_quota),
		TEST(a_v2_group_with_a_quota_counts_used_over_quota),
		TEST(a_quota_above_the_cpus_is_bounded_by_them),
		TEST(of_nested_groups_the_tightest_counts),
		TEST(groups_nested_in_v1_are_looked_at_up_to_the_mount),
		TEST(a_group_without_limits_falls_back_to_the_host),
		TEST(memory_high_counts_as_a_limit),
		TEST(a_limit_that_comes_later_is_found),
		TEST(a_container_sees_its_group_at_the_mount_point),
		TEST(without_the_groups_use_the_process_counts_its_own),
		TEST(a_v2_group_has_its_own_pressure),
		TEST(a_cpu_counter_that_stands_still_is_no_news),
		TEST(a_stuck_host_counter_turns_the_judgement_stale),
		TEST(nonsense_in_any_file_gives_no_wild_number),
		TEST(nonsense_is_held_and_a_missing_file_is_left_out),
		TEST(huge_numbers_do_not_overflow),
		TEST(a_missing_last_newline_is_no_matter),
		TEST(what_is_no_file_is_taken_as_missing),
		TEST(the_same_or_an_earlier_time_gives_no_cpu_number),
		TEST(files_are_kept_open_and_closed_at_the_end),
		TEST(a_forked_child_reads_its_own_files),
		TEST(a_real_throttled_group_is_seen_as_bad),
		TEST(this_machine_gives_numbers),
		TEST(jemalloc_gives_its_dirty_pages_back),
	};

	return cmocka_run_group_tests_name("health_read", tests, NULL, NULL);
}
