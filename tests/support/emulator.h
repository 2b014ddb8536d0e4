/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * support/emulator.h - leave out cases that cannot work under an emulator of single programs
 * (qemu-user): the kernel sees the emulator's stacks and system calls, not ours. tests/arm64/run sets
 * FC_EMULATED. After <cmocka.h>.
 */
#ifndef FC_TESTS_EMULATOR_H
#define FC_TESTS_EMULATOR_H

#include <stdlib.h>

static inline int emulated(void)
{
	return getenv("FC_EMULATED") != NULL;
}

/* Counts as passed: cmocka writes a skipped case as "not ok # SKIP", which meson takes for a failure. */
#define SKIP_IF_EMULATED(why_)                                                       \
	do {                                                                         \
		if (emulated()) {                                                    \
			print_message("# not tested under an emulator: %s\n", why_); \
			return;                                                      \
		}                                                                    \
	} while (0)

/* The reasons there are. */
#define NOT_OUR_STACK   "the stack that the kernel shows is the emulator's"
#define NOT_OUR_CALLS   "the system calls that the kernel shows are the emulator's"
#define NO_FORK_OF_MANY "it aborts or hangs in a child forked beside other threads"

#endif /* FC_TESTS_EMULATOR_H */
