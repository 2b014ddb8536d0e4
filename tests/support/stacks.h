/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * support/stacks.h - what the tests of stacks share: one unwinder and one stack, and comparing the stack
 * with what a blocked thread knows of its own calls. After <cmocka.h>.
 */
#ifndef FC_TESTS_STACKS_H
#define FC_TESTS_STACKS_H

#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blockers.h"
#include "emulator.h"
#include "stack.h"

#ifndef __has_feature
#define __has_feature(feature_) 0
#endif

/* The thread sanitizer knows no threads in a forked child. */
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define CHILDREN_HAVE_THREADS 0
#else
#define CHILDREN_HAVE_THREADS 1
#endif

static struct fci_unwinder *unwinder;
static struct fci_stack stack;

static inline int set_up(void **state)
{
	(void)state;
	return fci_unwinder_create(&unwinder);
}

static inline int tear_down(void **state)
{
	(void)state;
	unwinder = fci_unwinder_destroy(unwinder);
	return 0;
}

static inline const struct fci_frame *frame_at(const struct fci_stack *s, uint64_t pc)
{
	for (uint32_t i = 0; i < s->nframes; i++)
		if (s->frames[i].pc == pc)
			return &s->frames[i];
	return NULL;
}

/* Frames of this program before the one given: a function that blocks and at most one it calls. */
static inline unsigned own_frames_before(const struct fci_stack *s, const struct fci_frame *end)
{
	extern const char __executable_start, etext;
	unsigned n = 0;

	for (const struct fci_frame *f = s->frames; f < end; f++)
		if (f->pc >= (uint64_t)(uintptr_t)&__executable_start &&
		    f->pc < (uint64_t)(uintptr_t)&etext)
			n++;
	return n;
}

/* Everything the thread knows is there, in sequence, once, between libc and the thread's start. */
static inline bool matches_truth(const struct fci_stack *s, const struct blocked *b)
{
	const struct fci_frame *first = frame_at(s, b->truth[0]);
	ptrdiff_t left = first ? s->frames + s->nframes - first : 0;

	if (!first || first < s->frames + 2 || left < (ptrdiff_t)NTRUTH ||
	    own_frames_before(s, first) > 2)
		return false;
	for (unsigned i = 0; i < NTRUTH; i++)
		if (first[i].pc != b->truth[i])
			return false;
	return left <= (ptrdiff_t)NTRUTH + 4; /* start_thread, clone; a sanitizer's own */
}

static inline void start(struct blocked *b, const char *name)
{
	assert_int_equal(blocked_start(b, blocker_named(name)), 0);
}

static inline void explain(const struct blocked *b)
{
	for (uint32_t i = 0; i < stack.nframes; i++)
		print_message("  %2u %#llx flags %u\n", i, (unsigned long long)stack.frames[i].pc,
		              stack.frames[i].flags);
	for (unsigned i = 0; i < NTRUTH; i++)
		print_message("  truth %#llx\n", (unsigned long long)b->truth[i]);
	print_message("  %s: status %d %s\n", b->kind ? b->kind->name : "read", stack.status, stack.text);
}

static __attribute__((__noinline__, __unused__)) void enter(struct fci_anchor *anchor)
{
	FCI_ANCHOR_HERE(anchor);
}

static inline int in_child(int (*body)(void))
{
	int status = -1;
	pid_t child = fork();

	if (child == 0)
		_exit(body());
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

#endif /* FC_TESTS_STACKS_H */
