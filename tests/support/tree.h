/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * support/tree.h - a directory that stands for / when health is read: a host, and its groups of v1 and v2.
 *
 *     #define _GNU_SOURCE  before all includes: nftw
 *     T(a_case)            a case of main()'s list, with setup() and teardown()
 *
 * Threads.  The main thread alone.
 */
#ifndef FC_TESTS_TREE_H
#define FC_TESTS_TREE_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "health.h"

#define MS UINT64_C(1000000)
#define S (1000 * MS)
#define PERIOD (250 * MS)

static struct fci_health_read r;
static struct fc_health_sample s;
static uint64_t now;
static char root[64];

/* Write text to a file below root; its directories are made. */
static inline void put(const char *path, const char *text)
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

static inline int drop_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline void drop(const char *path)
{
	char full[512];

	snprintf(full, sizeof(full), "%s/%s", root, path);
	nftw(full, drop_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int setup(void **state)
{
	(void)state;
	/* In memory where there is: the trees are many small files, written over and over. */
	snprintf(root, sizeof(root), "%s/test_health_XXXXXX",
	         access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	assert_non_null(mkdtemp(root));
	assert_int_equal(fci_health_read_init(&r, root), 0);
	now = 100 * S;
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	fci_health_read_fini(&r);
	drop("");
	return 0;
}

static inline void read_after(uint64_t dt)
{
	now += dt;
	s = (struct fc_health_sample){ .size = sizeof(s), .now_ns = now };
	assert_int_equal(fci_health_read(&r, &s), 0);
}

static inline void anew(void)
{
	fci_health_read_fini(&r);
	assert_int_equal(fci_health_read_init(&r, root), 0);
}

/* A host with two CPUs: 25 % busy since boot, half of memory used. */
static inline void host(void)
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

static inline void v1(const char *path)
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

static inline void v1_cpu(const char *path, const char *quota, uint64_t used_ms, int periods,
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

static inline void v2(const char *path)
{
	char text[256];

	snprintf(text, sizeof(text), "0::%s\n", path);
	put("proc/self/cgroup", text);
	put("proc/self/mountinfo",
	    "30 23 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
}

static inline void v2_cpu(const char *path, const char *max, uint64_t used_ms, int periods, int throttled)
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

static inline void v2_memory(const char *path, const char *max, const char *current, const char *inactive)
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

#define T(name_) cmocka_unit_test_setup_teardown(name_, setup, teardown)

#endif /* FC_TESTS_TREE_H */
