/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters that stand still or go back, and files with anything in them. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/tree.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_cpu_counter_that_stands_still_is_no_news),
		T(a_stuck_host_counter_turns_the_judgement_stale),
		T(nonsense_in_any_file_gives_no_wild_number),
		T(nonsense_is_held_and_a_missing_file_is_left_out),
		T(huge_numbers_do_not_overflow),
	};

	return cmocka_run_group_tests_name("health_nonsense", tests, NULL, NULL);
}
