/* SPDX-License-Identifier: BSD-2-Clause */
/* Quotas, limits and pressure of groups: v1, v2, nested, in containers, without limits. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>

#include "health_file.h"
#include "support/tree.h"

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

static void a_v1_quota_without_its_period_is_not_believed(void **state)
{
	(void)state;
	host();
	v1("/a");
	v1_cpu("/a", "50000\n", 1000, 10, 1);
	drop("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us");
	read_after(0);
	v1_cpu("/a", "50000\n", 1100, 20, 3);
	drop("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us");
	read_after(1 * S);
	assert_int_equal(s.valid & (FC_HEALTH_CPU | FC_HEALTH_THROTTLED), 0);
	assert_int_equal(s.held & FC_HEALTH_CPU, FC_HEALTH_CPU);
}

/* "/../x" is outside of the namespace: what lies there by that name is another's. */
static void a_group_outside_of_the_namespace_is_not_looked_for(void **state)
{
	(void)state;
	host();
	v2("/../other");
	put("sys/fs/cgroup/cgroup.procs", "");
	put("sys/fs/other/memory.max", "1000000");
	put("sys/fs/other/memory.current", "900000");
	read_after(0);
	assert_int_equal(s.memory_permille, 500);
	assert_true(s.from & FC_HEALTH_MEMORY_HOST);
}

static void a_process_that_was_moved_is_found_in_its_new_group(void **state)
{
	(void)state;
	host();
	v2("/a");
	v2_memory("/a", "1000000", "900000", "0");
	read_after(0);
	assert_int_equal(s.memory_permille, 900);
	v2("/b");
	v2_memory("/b", "1000000", "100000", "0");
	/* The old one is removed: its files are open, and say nothing any more. */
	for (uint32_t i = 0; i < r.memory_levels; i++) {
		fci_file_close(&r.memory[i].limit_fd);
		r.memory[i].limit_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	}
	read_after(PERIOD);
	assert_int_equal(s.valid & FC_HEALTH_MEMORY, 0);
	read_after(PERIOD);
	assert_int_equal(s.memory_permille, 100);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_v1_group_with_a_quota_counts_used_over_quota),
		T(a_v2_group_with_a_quota_counts_used_over_quota),
		T(a_quota_above_the_cpus_is_bounded_by_them),
		T(of_nested_groups_the_tightest_counts),
		T(groups_nested_in_v1_are_looked_at_up_to_the_mount),
		T(a_group_without_limits_falls_back_to_the_host),
		T(memory_high_counts_as_a_limit),
		T(a_limit_that_comes_later_is_found),
		T(a_container_sees_its_group_at_the_mount_point),
		T(without_the_groups_use_the_process_counts_its_own),
		T(a_v1_quota_without_its_period_is_not_believed),
		T(a_group_outside_of_the_namespace_is_not_looked_for),
		T(a_process_that_was_moved_is_found_in_its_new_group),
		T(a_v2_group_has_its_own_pressure),
	};

	return cmocka_run_group_tests_name("health_group", tests, NULL, NULL);
}
