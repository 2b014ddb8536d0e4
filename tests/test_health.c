/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How samples are judged. Time is an argument; the numbers come from a source in the test. CPU that
 * flaps, stands still or is no number is what users of Sentinel (#1206, #2160) and kratos (#59)
 * met; clocks that jump are sentinel-golang #409 and #327.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "health.h"

#define MS UINT64_C(1000000)
#define S (1000 * MS)
#define PERIOD (250 * MS)

static struct fci_health h;
static struct fc_health_sample given;
static int result, calls;
static uint64_t now;

static int source(void *arg, struct fc_health_sample *ret)
{
	uint64_t at = ret->now_ns;

	assert_ptr_equal(arg, &given);
	assert_int_equal(ret->size, sizeof(*ret));
	calls++;
	*ret = given;
	ret->now_ns = at;
	return result;
}

static void start(const struct fc_health_opts *opts)
{
	assert_int_equal(fci_health_init(&h, opts), 0);
	fci_health_set_source(&h, source, &given);
}

static int setup(void **state)
{
	(void)state;
	memset(&given, 0, sizeof(given));
	given.valid = FC_HEALTH_CPU;
	given.cpu_permille = 100;
	result = calls = 0;
	now = 1000 * S;
	start(NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fci_health_fini(&h);
	return 0;
}

/* Sample dt later, whatever the last sample asked for. */
static uint32_t after(uint64_t dt)
{
	uint32_t word = 0xdead;

	now += dt;
	fci_health_sample(&h, now, &word);
	return word;
}

static uint32_t cpu_for(uint32_t permille, uint64_t time)
{
	uint32_t word = 0;

	given.cpu_permille = permille;
	for (uint64_t t = 0; t < time; t += PERIOD)
		word = after(PERIOD);
	return word;
}

static struct fc_health shown(void)
{
	FC_OPTS(fc_health, r, 0);

	assert_int_equal(fci_health_snapshot(&h, now, &r), 0);
	return r;
}

static void is_good_when_all_is_low_and_unknown_before_the_first_sample(void **state)
{
	(void)state;
	assert_int_equal(shown().state, FC_HEALTH_UNKNOWN);
	assert_int_equal(shown().age_ns, UINT64_MAX);
	assert_int_equal(after(0), FC_HEALTH_GOOD);
	now += 10 * PERIOD; /* nobody has looked for long: shown as what it is */
	assert_int_equal(shown().state, FC_HEALTH_STALE);
	now -= 10 * PERIOD;
	now += 3 * MS;
	assert_int_equal(shown().state, FC_HEALTH_GOOD);
	assert_int_equal(shown().reason, 0);
	assert_int_equal(shown().valid & ~(uint32_t)FC_HEALTH_JEMALLOC, FC_HEALTH_CPU);
	assert_int_equal(shown().cpu_permille, 100);
	assert_int_equal(shown().age_ns, 3 * MS);
	assert_int_equal(shown().samples, 1);
}

static void each_number_turns_bad_at_its_own_threshold(void **state)
{
	static const struct {
		uint32_t number, high, word;
		size_t at;
	} row[] = {
		{ FC_HEALTH_CPU, 800, FC_HEALTH_BAD_CPU,
		  offsetof(struct fc_health_sample, cpu_permille) },
		{ FC_HEALTH_THROTTLED, 50, FC_HEALTH_BAD_THROTTLED,
		  offsetof(struct fc_health_sample, throttled_permille) },
		{ FC_HEALTH_MEMORY, 850, FC_HEALTH_BAD_MEMORY,
		  offsetof(struct fc_health_sample, memory_permille) },
		{ FC_HEALTH_PSI_CPU, 100, FC_HEALTH_BAD_PRESSURE,
		  offsetof(struct fc_health_sample, psi_cpu_permille) },
		{ FC_HEALTH_PSI_MEMORY, 100, FC_HEALTH_BAD_PRESSURE,
		  offsetof(struct fc_health_sample, psi_memory_permille) },
		{ FC_HEALTH_PSI_IO, 100, FC_HEALTH_BAD_PRESSURE,
		  offsetof(struct fc_health_sample, psi_io_permille) },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		for (uint32_t bad = 0; bad < 2; bad++) {
			uint32_t v = row[i].high - 1 + bad;

			memset(&given, 0, sizeof(given));
			given.valid = FC_HEALTH_CPU | row[i].number;
			memcpy((char *)&given + row[i].at, &v, sizeof(v));
			fci_health_set_source(&h, source, &given);
			assert_int_equal(after(PERIOD), bad ? row[i].word : FC_HEALTH_GOOD);
		}
}

static void load_is_shown_but_judged_only_when_asked(void **state)
{
	FC_OPTS(fc_health_opts, o, .load1_permille = 4000);

	(void)state;
	given.valid |= FC_HEALTH_LOAD1;
	given.load1_permille = 900000000;
	assert_int_equal(after(0), FC_HEALTH_GOOD);
	assert_int_equal(shown().load1_permille, 900000000);
	assert_int_equal(fci_health_set_opts(&h, &o), 0);
	assert_int_equal(after(PERIOD), FC_HEALTH_BAD_LOAD);
	given.load1_permille = 3960;
	assert_int_equal(after(PERIOD), FC_HEALTH_BAD_LOAD);
	given.load1_permille = 3949;
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
}

static void bad_lasts_until_five_points_lower(void **state)
{
	(void)state;
	given.valid |= FC_HEALTH_MEMORY;
	given.memory_permille = 850;
	assert_int_equal(after(0), FC_HEALTH_BAD_MEMORY);
	given.memory_permille = 800;
	assert_int_equal(after(PERIOD), FC_HEALTH_BAD_MEMORY);
	given.memory_permille = 799;
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
	given.memory_permille = 849;
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
}

static void hysteresis_is_half_a_small_threshold_at_most(void **state)
{
	(void)state;
	given.valid = FC_HEALTH_CPU | FC_HEALTH_PSI_IO;
	given.psi_io_permille = 100;
	assert_int_equal(after(0), FC_HEALTH_BAD_PRESSURE);
	given.psi_io_permille = 50;
	assert_int_equal(after(PERIOD), FC_HEALTH_BAD_PRESSURE);
	given.psi_io_permille = 49;
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
	/* Throttling: 5 points under 5 % would never be reached by noise. */
	given.valid = FC_HEALTH_CPU | FC_HEALTH_THROTTLED;
	given.throttled_permille = 50;
	assert_int_equal(after(PERIOD), FC_HEALTH_BAD_THROTTLED);
	given.throttled_permille = 10;
	for (int i = 0; i < 40; i++)
		after(PERIOD);
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
}

static void a_cpu_square_wave_does_not_flap(void **state)
{
	uint32_t changes = 0, last;

	(void)state;
	/* 100 % and 58 % in turns: about 79 % on average, crossing 80 % with each sample. */
	last = cpu_for(790, 2 * S);
	for (int i = 0; i < 400; i++) {
		uint32_t word = cpu_for(i % 2 ? 580 : 1000, PERIOD);

		changes += word != last;
		last = word;
	}
	assert_true(changes <= 1);
}

static void a_slow_square_wave_is_followed_within_a_second(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(cpu_for(1000, 2 * S), FC_HEALTH_BAD_CPU);
		assert_int_equal(cpu_for(100, 1 * S), FC_HEALTH_GOOD);
	}
}

static void smoothing_goes_by_time_not_by_count(void **state)
{
	uint32_t once, often;

	(void)state;
	after(0);
	given.cpu_permille = 1000;
	after(1 * S);
	once = shown().cpu_permille;
	fci_health_set_source(&h, source, &given);
	given.cpu_permille = 100;
	after(PERIOD);
	cpu_for(1000, 1 * S);
	often = shown().cpu_permille;
	assert_in_range(once, 770, 780); /* two half lives: three quarters of the way */
	assert_in_range(often, once - 5, once + 5);
}

static void the_first_number_counts_as_it_is(void **state)
{
	(void)state;
	given.cpu_permille = 950;
	assert_int_equal(after(0), FC_HEALTH_BAD_CPU);
	assert_int_equal(shown().cpu_permille, 950);
}

static void one_throttled_period_is_not_bad_but_many_are_at_once(void **state)
{
	(void)state;
	given.valid |= FC_HEALTH_THROTTLED;
	after(0);
	given.throttled_permille = 500; /* one of two periods */
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
	given.throttled_permille = 1000;
	assert_int_equal(after(PERIOD), FC_HEALTH_BAD_THROTTLED);
}

static void a_failing_source_is_counted_and_never_good(void **state)
{
	(void)state;
	cpu_for(1000, 3 * S);
	result = -EIO;
	given.cpu_permille = 0;
	assert_int_equal(after(PERIOD), FC_HEALTH_SOURCE_FAILED | FC_HEALTH_BAD_CPU);
	assert_int_equal(shown().failures, 1);
	assert_int_equal(shown().reason, FC_HEALTH_BAD_CPU);
	/* What was bad stays bad for max_age, then nothing is known. */
	for (int i = 0; i < 8; i++)
		after(PERIOD);
	assert_int_equal(after(PERIOD),
	                 FC_HEALTH_SOURCE_FAILED | FC_HEALTH_STALE | FC_HEALTH_UNKNOWN);
	assert_int_equal(shown().failures, 10);
	assert_int_equal(shown().valid & FC_HEALTH_CPU, 0);
	result = 1; /* a positive answer is a failure too */
	assert_true(after(PERIOD) & FC_HEALTH_SOURCE_FAILED);
	result = 0;
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
}

static void absurd_numbers_are_not_believed(void **state)
{
	/* What (uint32_t) makes of NaN, -1 and infinity, and the smallest that is too large. */
	static const uint32_t absurd[] = { 0x80000000u, UINT32_MAX, INT32_MAX, 10001 };

	(void)state;
	after(0);
	for (size_t i = 0; i < 4; i++) {
		given.cpu_permille = absurd[i];
		assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
		assert_int_equal(shown().cpu_permille, 100);
		assert_int_equal(shown().distrusted, i + 1);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
	/* 2 s are over. */
	assert_int_equal(after(PERIOD), FC_HEALTH_STALE | FC_HEALTH_UNKNOWN);
	given.cpu_permille = 200;
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
	assert_int_equal(shown().cpu_permille, 200);
}

static void a_sample_that_stands_still_is_distrusted(void **state)
{
	(void)state;
	given.taken_ns = now;
	assert_int_equal(after(0), FC_HEALTH_GOOD);
	for (int i = 0; i < 8; i++)
		assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
	for (int i = 0; i < 8; i++)
		assert_int_equal(after(PERIOD), FC_HEALTH_STALE | FC_HEALTH_UNKNOWN);
	assert_true(shown().age_ns > 2 * S);
	given.taken_ns = now;
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
	/* An older one than the last is no news either. */
	given.taken_ns = now - PERIOD - 1;
	given.cpu_permille = 1000;
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
	assert_int_equal(shown().cpu_permille, 100);
}

static void a_held_number_ages_and_a_missing_one_is_dropped(void **state)
{
	(void)state;
	given.valid |= FC_HEALTH_MEMORY;
	given.memory_permille = 900;
	assert_int_equal(after(0), FC_HEALTH_BAD_MEMORY);
	given.valid = FC_HEALTH_CPU;
	given.held = FC_HEALTH_MEMORY;
	for (int i = 0; i < 8; i++)
		assert_int_equal(after(PERIOD), FC_HEALTH_BAD_MEMORY);
	assert_int_equal(after(PERIOD), FC_HEALTH_STALE);
	given.held = 0;
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
}

static void a_sample_from_the_future_is_taken_as_now(void **state)
{
	(void)state;
	given.taken_ns = UINT64_MAX;
	assert_int_equal(after(0), FC_HEALTH_GOOD);
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
	assert_int_equal(shown().age_ns, 0);
}

static void the_reason_is_what_turned_bad_first(void **state)
{
	(void)state;
	given.valid = FC_HEALTH_CPU | FC_HEALTH_MEMORY | FC_HEALTH_PSI_CPU;
	given.psi_cpu_permille = 500;
	after(0);
	assert_int_equal(shown().reason, FC_HEALTH_BAD_PRESSURE);
	given.memory_permille = 900;
	after(PERIOD);
	assert_int_equal(shown().state, FC_HEALTH_BAD_PRESSURE | FC_HEALTH_BAD_MEMORY);
	assert_int_equal(shown().reason, FC_HEALTH_BAD_PRESSURE);
	given.psi_cpu_permille = 0;
	after(PERIOD);
	assert_int_equal(shown().reason, FC_HEALTH_BAD_MEMORY);
	assert_string_equal(fc_health_reason_text(shown().reason), "memory too full");
	assert_string_equal(fc_health_reason_text(0), "good");
	assert_string_equal(fc_health_reason_text(FC_HEALTH_GOOD), "good");
	assert_string_equal(fc_health_reason_text(FC_HEALTH_UNKNOWN), "not known yet");
}

static void calls_that_come_too_early_do_not_sample(void **state)
{
	uint32_t word;
	uint64_t next;

	(void)state;
	after(0);
	after(PERIOD);
	assert_int_equal(calls, 2);
	next = fci_health_sample(&h, now, &word);
	assert_int_equal(next, now + PERIOD);
	assert_int_equal(fci_health_sample(&h, next - 1, &word), next);
	assert_int_equal(word, FC_HEALTH_GOOD);
	assert_int_equal(calls, 2);
	assert_int_equal(fci_health_sample(&h, next, &word), next + PERIOD);
	assert_int_equal(calls, 3);
}

static void a_rest_forgets_what_was_bad(void **state)
{
	uint32_t word;

	(void)state;
	given.since_last = FC_HEALTH_CPU;
	given.valid |= FC_HEALTH_MEMORY;
	cpu_for(1000, 3 * S);
	given.cpu_permille = 10; /* the average over an hour of rest */
	given.memory_permille = 100;
	now += 3600 * S;
	assert_true(shown().state & FC_HEALTH_STALE);
	/* The average is no sign of health now, and the peak before the rest none against it. */
	assert_int_equal(fci_health_sample(&h, now, &word), now + PERIOD / 4);
	assert_int_equal(word, FC_HEALTH_GOOD); /* own source: memory alone is enough */
	assert_int_equal(shown().valid & ~(uint32_t)FC_HEALTH_JEMALLOC, FC_HEALTH_MEMORY);
	given.cpu_permille = 900;
	assert_int_equal(after(PERIOD / 4), FC_HEALTH_BAD_CPU);
	assert_int_equal(shown().cpu_permille, 900);
}

static void an_average_over_a_rest_speaks_only_against(void **state)
{
	(void)state;
	given.since_last = FC_HEALTH_CPU;
	assert_int_equal(after(0), FC_HEALTH_UNKNOWN);
	assert_int_equal(cpu_for(100, 1 * S), FC_HEALTH_GOOD);
	/* Busy for all of a minute: so it is when the housekeeper gets no CPU. */
	given.cpu_permille = 990;
	assert_int_equal(after(60 * S), FC_HEALTH_BAD_CPU);
	/* The next number replaces it, it is not blended. */
	given.cpu_permille = 300;
	assert_int_equal(after(PERIOD / 4), FC_HEALTH_GOOD);
	assert_int_equal(shown().cpu_permille, 300);
}

static void levels_after_a_rest_are_judged_at_once(void **state)
{
	(void)state;
	given.valid |= FC_HEALTH_PSI_MEMORY;
	after(0);
	given.psi_memory_permille = 400;
	assert_int_equal(after(3600 * S), FC_HEALTH_BAD_PRESSURE);
	given.psi_memory_permille = 60; /* above good-again, but bad was before the rest */
	assert_int_equal(after(3600 * S), FC_HEALTH_GOOD);
}

static void a_clock_that_goes_back_changes_nothing(void **state)
{
	uint32_t word;
	uint64_t next;

	(void)state;
	after(0);
	after(PERIOD);
	next = now + PERIOD;
	given.cpu_permille = 1000;
	assert_int_equal(fci_health_sample(&h, now, &word), next);
	assert_int_equal(fci_health_sample(&h, now - 1, &word), next);
	assert_int_equal(fci_health_sample(&h, now - 2 * S, &word), next);
	assert_int_equal(word, FC_HEALTH_GOOD);
	assert_int_equal(calls, 2);
	for (int i = 0; i < 100; i++)
		fci_health_sample(&h, i % 2 ? now - 1 * MS : now + 1 * MS, &word);
	assert_int_equal(calls, 2);
}

static void a_clock_that_jumps_locks_nobody_out(void **state)
{
	static const uint64_t jump[] = { 3600 * S, 10 * 365 * 86400 * S, UINT64_MAX - 2000 * S };
	uint32_t word;

	(void)state;
	after(0);
	for (size_t i = 0; i < 3; i++) {
		fci_health_sample(&h, now + jump[i], &word);
		assert_int_equal(word, FC_HEALTH_GOOD);
		/* And back. */
		given.cpu_permille = 900;
		assert_int_equal(after(PERIOD), FC_HEALTH_BAD_CPU);
		given.cpu_permille = 100;
		assert_int_equal(cpu_for(100, 2 * S), FC_HEALTH_GOOD);
	}
	assert_int_equal(fci_health_sample(&h, UINT64_MAX, &word), UINT64_MAX);
	assert_int_equal(word, FC_HEALTH_GOOD);
	assert_int_equal(fci_health_sample(&h, 0, &word), PERIOD / 4);
	assert_int_equal(word, FC_HEALTH_GOOD);
}

static void options_have_defaults_bounds_and_sizes(void **state)
{
	struct {
		struct fc_health_opts o;
		uint64_t more;
	} newer = { .o.size = sizeof(newer) };
	FC_OPTS(fc_health_opts, o, 0);
	struct fc_health_opts got;

	(void)state;
	fci_health_get_opts(&h, &got);
	assert_int_equal(got.cpu_permille, 800);
	assert_int_equal(got.throttled_permille, 50);
	assert_int_equal(got.memory_permille, 850);
	assert_int_equal(got.psi_io_permille, 100);
	assert_int_equal(got.load1_permille, FC_HEALTH_OFF);
	assert_int_equal(got.hysteresis_permille, 50);
	assert_int_equal(got.period_ns, PERIOD);
	assert_int_equal(got.max_age_ns, 2 * S);
	assert_int_equal(fci_health_set_opts(&h, NULL), 0);
	assert_int_equal(fci_health_set_opts(&h, &o), 0);
	assert_int_equal(fci_health_set_opts(&h, &newer.o), 0);
	newer.more = 1;
	assert_int_equal(fci_health_set_opts(&h, &newer.o), -E2BIG);
	o.size = 8;
	assert_int_equal(fci_health_set_opts(&h, &o), -EINVAL);
	o = (struct fc_health_opts){ .size = sizeof(o), .flags = 2 };
	assert_int_equal(fci_health_set_opts(&h, &o), -EINVAL);
	o = (struct fc_health_opts){ .size = sizeof(o), .cpu_permille = 10001 };
	assert_int_equal(fci_health_set_opts(&h, &o), -EINVAL);
	o = (struct fc_health_opts){ .size = sizeof(o), .period_ns = 1 };
	assert_int_equal(fci_health_set_opts(&h, &o), -EINVAL);
	o = (struct fc_health_opts){ .size = sizeof(o), .max_age_ns = PERIOD };
	assert_int_equal(fci_health_set_opts(&h, &o), -EINVAL);
	o = (struct fc_health_opts){ .size = sizeof(o), .half_life_ns = UINT64_MAX };
	assert_int_equal(fci_health_set_opts(&h, &o), -EINVAL);
	o = (struct fc_health_opts){ .size = sizeof(o), .root = "/no/such/place" };
	{
		static struct fci_health other;

		assert_int_equal(fci_health_init(&other, &o), -ENOENT);
	}
}

static void a_threshold_that_is_off_is_never_bad(void **state)
{
	FC_OPTS(fc_health_opts, o, .cpu_permille = FC_HEALTH_OFF, .memory_permille = 1,
	        .hysteresis_permille = FC_HEALTH_OFF);

	(void)state;
	assert_int_equal(cpu_for(1000, 2 * S), FC_HEALTH_BAD_CPU);
	assert_int_equal(fci_health_set_opts(&h, &o), 0);
	assert_int_equal(cpu_for(10000, 2 * S), FC_HEALTH_GOOD);
	given.valid |= FC_HEALTH_MEMORY;
	given.memory_permille = 1;
	assert_int_equal(after(PERIOD), FC_HEALTH_BAD_MEMORY);
	given.memory_permille = 0;
	assert_int_equal(after(PERIOD), FC_HEALTH_GOOD);
}

static void a_snapshot_keeps_to_the_callers_size(void **state)
{
	struct {
		struct fc_health r;
		uint64_t more, beyond;
	} newer = { .r.size = sizeof(newer.r) + 8 };
	struct fc_health old = { .size = sizeof(old) - 1 };

	(void)state;
	after(0);
	newer.more = newer.beyond = UINT64_MAX;
	assert_int_equal(fci_health_snapshot(&h, now, &newer.r), 0);
	assert_int_equal(newer.more, 0);
	assert_true(newer.beyond == UINT64_MAX);
	assert_int_equal(newer.r.size, sizeof(newer.r) + 8);
	assert_int_equal(fci_health_snapshot(&h, now, &old), -EINVAL);
}

static void a_snapshot_half_written_at_a_fork_is_mended_by_the_next_sample(void **state)
{
	FC_OPTS(fc_health, r, 0);

	(void)state;
	after(0);
	atomic_fetch_add(&h.seq, 1);
	assert_int_equal(fci_health_snapshot(&h, now, &r), -EAGAIN);
	after(PERIOD);
	assert_int_equal(fci_health_snapshot(&h, now, &r), 0);
}

/* ---- snapshots beside samples ---- */

static _Atomic int done;
static uint64_t torn, read_ok;

static void *reader(void *arg)
{
	(void)arg;
	while (!atomic_load(&done)) {
		FC_OPTS(fc_health, r, 0);

		/* One of the first words against the last. */
		if (fci_health_snapshot(&h, UINT64_MAX, &r) == 0 && r.samples) {
			torn += (UINT64_MAX - r.age_ns) / MS % UINT32_MAX != r.cpus;
			read_ok++;
		}
	}
	return NULL;
}

static void snapshots_beside_samples_are_never_torn(void **state)
{
	FC_OPTS(fc_health_opts, o, .period_ns = MS);
	pthread_t t;

	(void)state;
	assert_int_equal(fci_health_set_opts(&h, &o), 0);
	atomic_store(&done, 0);
	torn = read_ok = 0;
	assert_int_equal(pthread_create(&t, NULL, reader, NULL), 0);
	for (int i = 0; i < 300000; i++) {
		given.cpus = (uint32_t)((now + MS) / MS);
		after(MS);
	}
	atomic_store(&done, 1);
	pthread_join(t, NULL);
	assert_int_equal(torn, 0);
	assert_true(read_ok > 0);
}

/* ---- jemalloc, played by the test ---- */

static uint64_t fake_counter;
static size_t fake_dirty[3];
static int purged;
static char root[] = "/tmp/test_health_XXXXXX";

/* Memory of the machine as the fixture has it. */
static void write_meminfo(unsigned available)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "MemTotal: 1000 kB\nMemAvailable: %u kB\n", available);
	fclose(f);
}

int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen)
{
	unsigned arena;
	uint64_t *counter = &fake_counter;
	size_t v;

	(void)newp, (void)newlen;
	if (strcmp(name, "epoch") == 0)
		return 0;
	if (strcmp(name, "thread.allocatedp") == 0) {
		memcpy(oldp, &counter, sizeof(counter));
		return 0;
	}
	if (strcmp(name, "arenas.narenas") == 0) {
		assert_int_equal(*oldlenp, sizeof(arena));
		arena = 3;
		memcpy(oldp, &arena, sizeof(arena));
		return 0;
	}
	if (strncmp(name, "arena.", 6) == 0 && strstr(name, ".purge")) {
		arena = (unsigned)atoi(name + 6);
		assert_true(arena < 3 && fake_dirty[arena] > 0);
		fake_dirty[arena] = 0;
		if (++purged == 1)
			write_meminfo(400);
		return 0;
	}
	v = strstr(name, "arenas.page") ? 4096 : 0;
	if (strstr(name, ".pdirty") && sscanf(name, "stats.arenas.%u", &arena) == 1)
		v = arena < 3 ? fake_dirty[arena] : fake_dirty[0] + fake_dirty[1] + fake_dirty[2];
	memcpy(oldp, &v, sizeof(v));
	return 0;
}

static void mallctl_alone_does_not_prove_that_jemalloc_is_the_allocator(void **state)
{
	struct fci_jemalloc_figures f;
	struct fci_jemalloc j;

	(void)state;
	assert_false(fci_jemalloc_init(&j)); /* the test's mallctl counts nothing */
	assert_int_equal(fci_jemalloc_figures(&j, &f), -ENOTSUP);
	fake_dirty[1] = 7;
	assert_int_equal(fci_jemalloc_purge(&j, UINT64_MAX), 0);
	assert_int_equal(fake_dirty[1], 7);
}

static void a_purge_takes_the_fullest_arenas_until_its_bound(void **state)
{
	struct fci_jemalloc j = { .owned = true };

	(void)state;
	fake_dirty[0] = 10, fake_dirty[1] = 30, fake_dirty[2] = 20;
	purged = 1;
	assert_int_equal(fci_jemalloc_purge(&j, 25 * 4096), 30 * 4096);
	assert_int_equal(fake_dirty[2], 20);
	fake_dirty[1] = 30;
	assert_int_equal(fci_jemalloc_purge(&j, 40 * 4096), 50 * 4096);
	assert_int_equal(fake_dirty[0], 10);
	assert_int_equal(fci_jemalloc_purge(&j, 40 * 4096), 10 * 4096);
	assert_int_equal(fci_jemalloc_purge(&j, 40 * 4096), 0);
}

static void memory_is_judged_after_jemalloc_was_asked(void **state)
{
	FC_OPTS(fc_health_opts, o, .root = root);
	char path[64];

	(void)state;
	assert_non_null(mkdtemp(root));
	snprintf(path, sizeof(path), "%s/proc", root);
	assert_int_equal(mkdir(path, 0700), 0);
	write_meminfo(100); /* 90 % full */
	fci_health_fini(&h);
	assert_int_equal(fci_health_init(&h, &o), 0);
	h.jemalloc.owned = true;
	fake_dirty[0] = fake_dirty[2] = 0;
	fake_dirty[1] = 5;
	purged = 0;
	assert_false(after(0) & FC_HEALTH_BAD_MEMORY);
	assert_int_equal(purged, 1);
	assert_int_equal(shown().purges, 1);
	assert_int_equal(shown().memory_permille, 600);
	assert_int_equal(shown().jemalloc_dirty_bytes, 0);
	/* Full again, and nothing to give: bad. */
	write_meminfo(100);
	assert_true(after(PERIOD) & FC_HEALTH_BAD_MEMORY);
	assert_int_equal(purged, 1);
	/* Still bad, and pages came up: asked again although below the upper threshold. */
	write_meminfo(170);
	fake_dirty[0] = 1;
	after(PERIOD);
	assert_int_equal(purged, 2);
	o.flags = FC_HEALTH_NO_PURGE;
	assert_int_equal(fci_health_set_opts(&h, &o), 0);
	fake_dirty[0] = 1;
	assert_true(after(PERIOD) & FC_HEALTH_BAD_MEMORY);
	assert_int_equal(purged, 2);
	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	unlink(path);
	snprintf(path, sizeof(path), "%s/proc", root);
	rmdir(path);
	rmdir(root);
}

int main(void)
{
#define TEST(f_) cmocka_unit_test_setup_teardown(f_, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(is_good_when_all_is_low_and_unknown_before_the_first_sample),
		TEST(each_number_turns_bad_at_its_own_threshold),
		TEST(load_is_shown_but_judged_only_when_asked),
		TEST(bad_lasts_until_five_points_lower),
		TEST(hysteresis_is_half_a_small_threshold_at_most),
		TEST(a_cpu_square_wave_does_not_flap),
		TEST(a_slow_square_wave_is_followed_within_a_second),
		TEST(smoothing_goes_by_time_not_by_count),
		TEST(the_first_number_counts_as_it_is),
		TEST(one_throttled_period_is_not_bad_but_many_are_at_once),
		TEST(a_failing_source_is_counted_and_never_good),
		TEST(absurd_numbers_are_not_believed),
		TEST(a_sample_that_stands_still_is_distrusted),
		TEST(a_held_number_ages_and_a_missing_one_is_dropped),
		TEST(a_sample_from_the_future_is_taken_as_now),
		TEST(the_reason_is_what_turned_bad_first),
		TEST(calls_that_come_too_early_do_not_sample),
		TEST(a_rest_forgets_what_was_bad),
		TEST(an_average_over_a_rest_speaks_only_against),
		TEST(levels_after_a_rest_are_judged_at_once),
		TEST(a_clock_that_goes_back_changes_nothing),
		TEST(a_clock_that_jumps_locks_nobody_out),
		TEST(options_have_defaults_bounds_and_sizes),
		TEST(a_threshold_that_is_off_is_never_bad),
		TEST(a_snapshot_keeps_to_the_callers_size),
		TEST(a_snapshot_half_written_at_a_fork_is_mended_by_the_next_sample),
		TEST(snapshots_beside_samples_are_never_torn),
		TEST(mallctl_alone_does_not_prove_that_jemalloc_is_the_allocator),
		TEST(a_purge_takes_the_fullest_arenas_until_its_bound),
		TEST(memory_is_judged_after_jemalloc_was_asked),
	};

	return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
