/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading CPU, memory and pressure of a host; files that are missing, kept open, or odd. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <sys/wait.h>

#include "support/tree.h"

#define ALL_BUT_JEMALLOC (FC_HEALTH_JEMALLOC - 1)

/* ---- host -------------------------------------------------------------------------------------- */

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

/* Memory alone is not enough to call a process healthy. */
static void without_a_cpu_number_nothing_is_good(void **state)
{
	FC_OPTS(fc_health_opts, o, .root = root, .memory_permille = 900);
	static struct fci_health h;
	uint32_t word;

	(void)state;
	put("proc/meminfo", "MemTotal:  1000000 kB\nMemFree: 1 kB\nMemAvailable:  500000 kB\n");
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

/* ---- files, time, fork ------------------------------------------------------------------------- */

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_host_without_groups_gives_its_own_numbers),
		T(an_empty_tree_has_no_numbers_and_is_no_error),
		T(without_a_cpu_number_nothing_is_good),
		T(affinity_leaves_only_its_cpus_in),
		T(a_cpuset_leaves_only_its_cpus_in),
		T(a_cpu_that_comes_does_not_count_with_its_history),
		T(proc_stat_longer_than_the_buffer_is_read_to_its_end),
		T(a_missing_last_newline_is_no_matter),
		T(what_is_no_file_is_taken_as_missing),
		T(the_same_or_an_earlier_time_gives_no_cpu_number),
		T(files_are_kept_open_and_closed_at_the_end),
		T(a_forked_child_reads_its_own_files),
	};

	return cmocka_run_group_tests_name("health_read", tests, NULL, NULL);
}
