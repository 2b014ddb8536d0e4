/* SPDX-License-Identifier: BSD-2-Clause */
/* 10^5 interfaces: found again, within the bytes that are published, and all memory comes back. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <fcguard/fcguard.h>
#include <fcguard/stats.h>

#include "lib/layout.h"
#include "support/alloc.h"

#define MANY 100000u
#define CAP  16u

static const char *name_of(uint32_t i)
{
	static char name[40];

	snprintf(name, sizeof(name), "service.method_%06u", i);
	return name;
}

static uint32_t cpus(void)
{
	long n = sysconf(_SC_NPROCESSORS_CONF);

	return n < 1 ? 1 : (uint32_t)n;
}

static void call_each(struct fc *fc)
{
	for (uint32_t i = 0; i < MANY; i++) {
		struct fc_entry e = FC_ENTRY_INIT;

		assert_int_equal(fc_enter(&e, fc_iface_at(fc, i), NULL), 0);
		fc_exit(&e);
	}
}

static void a_hundred_thousand_interfaces_keep_within_what_is_published(void **state)
{
	struct counting_alloc mem;
	struct fc_alloc alloc = counting_alloc_init(&mem);
	FC_OPTS(fc_opts, o, .max_ifaces = MANY, .flags = FC_NO_STACKS, .alloc = &alloc, .recorder_slots = 1);
	FC_OPTS(fc_iface_opts, io, .cap = CAP);
	FC_OPTS(fc_totals, t, .ifaces = 0);
	uint64_t bytes = fc_iface_bytes(CAP, cpus(), NULL), rows = (cpus() + 1) * sizeof(struct fci_counters), before, taken;
	struct fc *fc;

	(void)state;
	assert_int_equal(fc_create(&fc, &o), 0);
	assert_int_equal(fc_totals(fc, &t), 0);
	before = t.bytes_used + (uint64_t)atomic_load(&mem.live_bytes);
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(fc_iface_set(fc, name_of(i), &io, NULL), 0);
	assert_int_equal(fc_iface_set(fc, "one more", &io, NULL), -ENOSPC);
	assert_int_equal(fc_totals(fc, &t), 0);
	assert_int_equal(t.ifaces, MANY);
	/* Handles and the index of names come from the allocator, the rest from the segment, where the rows of counters
	 * lie from the beginning. */
	taken = t.bytes_used + (uint64_t)atomic_load(&mem.live_bytes) - before;
	print_message("# %llu bytes each, published: %llu\n", (unsigned long long)(taken / MANY + rows), (unsigned long long)bytes);
	assert_true(taken / MANY + rows <= bytes + 64); /* with the index of names */
	call_each(fc);
	fc_tick(fc, FC_S(1));
	for (uint32_t i = 0; i < MANY; i += 997)
		assert_ptr_equal(fc_iface_find(fc, name_of(i)), fc_iface_at(fc, i));
	assert_null(fc_iface_find(fc, name_of(MANY)));
	fc_destroy(fc);
	assert_int_equal(atomic_load(&mem.live), 0);
	assert_int_equal(atomic_load(&mem.live_bytes), 0);
	assert_int_equal(atomic_load(&mem.bad_frees), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hundred_thousand_interfaces_keep_within_what_is_published),
	};

	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
