/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stack of another thread, taken without disturbing it, against what the thread knows of
 * its own calls. `test_stack table` prints how many of the 21 blocking calls are complete.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "stack.h"
#include "support/blockers.h"
#include "symbol.h"
#include "taskinfo.h"

#ifndef __has_feature
#define __has_feature(feature_) 0
#endif

/* The thread sanitizer knows no threads in a forked child. */
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define CHILDREN_HAVE_THREADS 0
#else
#define CHILDREN_HAVE_THREADS 1
#endif

/* The address sanitizer's wrappers of libc's calls realign their stack: a gap is allowed there. */
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define GAP_ALLOWED true
#else
#define GAP_ALLOWED false
#endif

static struct fci_unwinder *unwinder;
static struct fci_stack stack;

static int set_up(void **state)
{
	(void)state;
	return fci_unwinder_create(&unwinder);
}

static int tear_down(void **state)
{
	(void)state;
	unwinder = fci_unwinder_destroy(unwinder);
	return 0;
}

static const struct fci_frame *frame_at(const struct fci_stack *s, uint64_t pc)
{
	for (uint32_t i = 0; i < s->nframes; i++)
		if (s->frames[i].pc == pc)
			return &s->frames[i];
	return NULL;
}

/* Frames of this program before the one given: a function that blocks and at most one it calls. */
static unsigned own_frames_before(const struct fci_stack *s, const struct fci_frame *end)
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
static bool matches_truth(const struct fci_stack *s, const struct blocked *b)
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

/* Each known frame shown is in its place: a part may be missing, nothing may be repeated. */
static bool contradicts_truth(const struct fci_stack *s, const struct blocked *b)
{
	int last = -1;

	for (uint32_t i = 0; i < s->nframes; i++)
		for (int k = 0; k < (int)NTRUTH; k++) {
			if (s->frames[i].pc != b->truth[k])
				continue;
			if (k <= last || (k != last + 1 && s->status == FCI_STACK_COMPLETE))
				return true;
			last = k;
		}
	return s->status == FCI_STACK_COMPLETE && !matches_truth(s, b);
}

static void start(struct blocked *b, const char *name)
{
	assert_int_equal(blocked_start(b, blocker_named(name)), 0);
}

static void explain(const struct blocked *b)
{
	for (uint32_t i = 0; i < stack.nframes; i++)
		print_message("  %2u %#llx flags %u\n", i, (unsigned long long)stack.frames[i].pc,
		              stack.frames[i].flags);
	for (unsigned i = 0; i < NTRUTH; i++)
		print_message("  truth %#llx\n", (unsigned long long)b->truth[i]);
	print_message("  %s: status %d %s\n", b->kind ? b->kind->name : "read", stack.status, stack.text);
}

/* ---- blocked threads ---- */

static void disturbs_none_of_21_blocking_calls(void **state)
{
	static struct blocked all[NBLOCKERS];
	struct fci_taskinfo info;
	unsigned ndisturbed = 0;

	(void)state;
	for (unsigned i = 0; i < NBLOCKERS; i++)
		assert_int_equal(blocked_start(&all[i], &blockers[i]), 0);
	for (unsigned round = 0; round < 20; round++)
		for (unsigned i = 0; i < NBLOCKERS; i++) {
			assert_int_equal(fci_stack_capture(unwinder, all[i].tid, &all[i].anchor, &stack), 0);
			assert_int_equal(fci_taskinfo_read(all[i].tid, &info), 0);
		}
	for (unsigned i = 0; i < NBLOCKERS; i++) {
		bool disturbed = blocked_disturbed(&all[i]);
		int error = blocked_finish(&all[i]);

		if (disturbed || (error && !all[i].kind->by_signal)) {
			print_message("%s came back: %s\n", all[i].kind->name, strerror(error));
			ndisturbed++;
		}
	}
	assert_int_equal(ndisturbed, 0);
}

static void a_signal_would_have_been_noticed_as_a_disturbance(void **state)
{
	static struct blocked b;

	(void)state;
	start(&b, "poll");
	assert_false(blocked_disturbed(&b));
	blocked_poke(&b);
	while (!blocked_disturbed(&b))
		usleep(200);
	assert_int_equal(blocked_finish(&b), EINTR);
}

static void finds_every_frame_of_21_blocking_calls_with_the_anchor(void **state)
{
	static struct blocked b;

	(void)state;
	for (unsigned i = 0; i < NBLOCKERS; i++) {
		const struct fci_frame *guard;
		bool good;

		start(&b, blockers[i].name);
		assert_int_equal(fci_stack_capture(unwinder, b.tid, &b.anchor, &stack), 0);
		guard = frame_at(&stack, b.truth[1]);
		good = stack.status == FCI_STACK_COMPLETE && matches_truth(&stack, &b) && guard &&
		       guard->flags & FCI_FRAME_GUARD && guard[-1].flags & FCI_FRAME_INNER &&
		       !(guard[1].flags & FCI_FRAME_INNER) && !stack.text[0];
		if (GAP_ALLOWED && stack.status == FCI_STACK_GAP) {
			guard = frame_at(&stack, b.anchor.pc);
			good = guard && guard->flags & FCI_FRAME_AFTER_GAP && stack.text[0] &&
			       guard[1].pc == b.truth[2] && !contradicts_truth(&stack, &b);
		}
		if (!good)
			explain(&b);
		blocked_finish(&b);
		assert_true(good);
	}
}

static void shows_no_wrong_frame_without_an_anchor(void **state)
{
	static struct blocked b;

	(void)state;
	for (unsigned i = 0; i < NBLOCKERS; i++) {
		bool good;

		start(&b, blockers[i].name);
		assert_int_equal(fci_stack_capture(unwinder, b.tid, NULL, &stack), 0);
		good = stack.nframes >= 2 && !contradicts_truth(&stack, &b) &&
		       (stack.status == FCI_STACK_COMPLETE || stack.text[0]);
		if (!good)
			explain(&b);
		blocked_finish(&b);
		assert_true(good);
	}
}

static void a_false_anchor_does_no_harm(void **state)
{
	static struct blocked b;
	struct fci_anchor good, bad[6];

	(void)state;
	start(&b, "poll");
	good = b.anchor;
	for (unsigned i = 0; i < 6; i++)
		bad[i] = good;
	bad[0].pc = 0x1234;
	bad[1].sp = 0x10;
	bad[2].sp = UINT64_MAX - 7;
	bad[3].sp += 24;
	bad[4] = (struct fci_anchor){ UINT64_MAX, UINT64_MAX, UINT64_MAX };
	bad[5].bp = 1;
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(fci_stack_capture(unwinder, b.tid, &bad[i], &stack), 0);
		if (contradicts_truth(&stack, &b))
			explain(&b);
		assert_false(contradicts_truth(&stack, &b));
		assert_true(frame_at(&stack, b.truth[0]) || stack.text[0]);
	}
	blocked_finish(&b);
}

/* ---- threads that run, move, end ---- */

struct spinner {
	pthread_t thread;
	struct fci_anchor anchor;
	_Atomic pid_t tid;
	_Atomic bool stop;
	bool sleeps;
	uint64_t return_address;
};

static __attribute__((__noinline__)) void enter(struct fci_anchor *anchor)
{
	FCI_ANCHOR_HERE(anchor);
}

static void *spin(void *arg)
{
	struct spinner *s = arg;

	s->return_address = (uint64_t)(uintptr_t)__builtin_return_address(0);
	enter(&s->anchor);
	atomic_store(&s->tid, (pid_t)syscall(SYS_gettid));
	while (!atomic_load(&s->stop))
		if (s->sleeps)
			usleep(1);
	return NULL;
}

static void spin_start(struct spinner *s, bool sleeps)
{
	memset(s, 0, sizeof *s);
	s->sleeps = sleeps;
	assert_int_equal(pthread_create(&s->thread, NULL, spin, s), 0);
	while (!atomic_load(&s->tid))
		usleep(100);
}

static void spin_stop(struct spinner *s)
{
	atomic_store(&s->stop, true);
	pthread_join(s->thread, NULL);
}

static void running_thread_gives_the_frames_outside_its_guard(void **state)
{
	static struct spinner s;

	(void)state;
	spin_start(&s, false);
	assert_int_equal(fci_stack_capture(unwinder, s.tid, &s.anchor, &stack), 0);
	assert_int_equal(stack.status, FCI_STACK_RUNNING);
	assert_non_null(strstr(stack.text, "running"));
	assert_int_equal(stack.frames[0].pc, s.anchor.pc);
	assert_int_equal(stack.frames[0].flags, FCI_FRAME_GUARD | FCI_FRAME_AT_ENTER);
	assert_int_equal(stack.frames[1].pc, s.return_address);

	assert_int_equal(fci_stack_capture(unwinder, s.tid, NULL, &stack), 0);
	assert_int_equal(stack.status, FCI_STACK_RUNNING);
	assert_int_equal(stack.nframes, 0);
	spin_stop(&s);
}

static void lively_thread_is_never_shown_wrong(void **state)
{
	static struct spinner s;
	unsigned seen[FCI_STACK_NONE + 1] = { 0 };

	(void)state;
	spin_start(&s, true);
	for (unsigned i = 0; i < 3000; i++) {
		assert_int_equal(fci_stack_capture(unwinder, s.tid, &s.anchor, &stack), 0);
		seen[stack.status]++;
		if (stack.status == FCI_STACK_COMPLETE && !frame_at(&stack, s.return_address))
			fail_msg("a complete stack without the thread's first function");
	}
	spin_stop(&s);
	assert_int_equal(seen[FCI_STACK_NONE], 0);
	assert_true(seen[FCI_STACK_COMPLETE] + seen[FCI_STACK_RUNNING] + seen[FCI_STACK_MOVING] > 0);
}

static void copy_of_a_moving_stack_is_thrown_away(void **state)
{
	static uint8_t bytes[65536];
	static struct spinner s;
	struct fci_task_where where;
	unsigned nmoved = 0;

	(void)state;
	spin_start(&s, true);
	for (unsigned i = 0; i < 100000 && nmoved < 3; i++) {
		struct fci_task_window window = { 0, sizeof bytes, bytes };
		int rc = fci_task_snapshot(s.tid, &where, &window, 1);

		assert_true(rc == 0 || rc == -EAGAIN);
		/* Blocked before the copy, and blocked again after it: only the counts differ. */
		if (rc == -EAGAIN && !where.running)
			nmoved++;
	}
	spin_stop(&s);
	assert_int_equal(nmoved, 3);
}

static void ended_thread_and_foreign_thread_are_told(void **state)
{
	static struct spinner s;
	pid_t tid, child;

	(void)state;
	spin_start(&s, true);
	tid = s.tid;
	spin_stop(&s);
	while (!access("/proc/self/task", F_OK) && fci_stack_capture(unwinder, tid, NULL, &stack) == 0)
		usleep(100); /* the kernel may list it a moment longer than join */
	assert_int_equal(fci_stack_capture(unwinder, tid, &s.anchor, &stack), -ESRCH);
	assert_non_null(strstr(stack.text, "no such thread in this process"));
	assert_int_equal(stack.nframes, 0);
	assert_int_equal(stack.status, FCI_STACK_NONE);

	child = fork();
	if (child == 0)
		for (;;)
			pause();
	assert_int_equal(fci_stack_capture(unwinder, child, NULL, &stack), -ESRCH);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);

	assert_int_equal(fci_stack_capture(unwinder, 0, NULL, &stack), -EINVAL);
	assert_int_equal(fci_stack_capture(unwinder, -7, NULL, &stack), -EINVAL);
	assert_int_equal(fci_stack_capture(unwinder, getpid(), NULL, &stack), 0);
	assert_int_equal(stack.status, FCI_STACK_RUNNING);
}

static void threads_may_end_during_the_capture(void **state)
{
	static struct spinner s;

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		int rc = 0;

		spin_start(&s, true);
		atomic_store(&s.stop, true);
		while (!rc)
			rc = fci_stack_capture(unwinder, s.tid, &s.anchor, &stack);
		assert_int_equal(rc, -ESRCH);
		pthread_join(s.thread, NULL);
	}
}

/* ---- stacks that are none ---- */

#if defined(__x86_64__)
struct odd_stack {
	uint64_t sp;
	struct fci_anchor anchor;
	_Atomic uint32_t word;
	_Atomic pid_t tid;
};

/* Wait on the word with the stack pointer anywhere. */
static void *wait_on_odd_stack(void *arg)
{
	struct odd_stack *o = arg;
	register uint64_t timeout __asm__("r10") = 0;
	long rc = SYS_futex;

	enter(&o->anchor);
	atomic_store(&o->tid, (pid_t)syscall(SYS_gettid));
	__asm__ volatile("movq %%rsp, %%rbx\n\tmovq %[sp], %%rsp\n\tsyscall\n\tmovq %%rbx, %%rsp"
	                 : "+a"(rc)
	                 : [sp] "r"(o->sp), "D"(&o->word), "S"((long)FUTEX_WAIT), "d"(0L), "r"(timeout)
	                 : "rbx", "rcx", "r11", "memory");
	return NULL;
}

static void look_at_odd_stack(uint64_t sp, bool with_anchor, int *ret_rc)
{
	static struct odd_stack o;
	struct fci_taskinfo info = { .tid = 0 };
	pthread_t thread;

	memset(&o, 0, sizeof o);
	o.sp = sp;
	assert_int_equal(pthread_create(&thread, NULL, wait_on_odd_stack, &o), 0);
	while (!o.tid || fci_taskinfo_read(o.tid, &info) || info.state != 'S' || info.where.sp != sp)
		usleep(100);
	*ret_rc = fci_stack_capture(unwinder, o.tid, with_anchor ? &o.anchor : NULL, &stack);
	atomic_store(&o.word, 1);
	syscall(SYS_futex, &o.word, FUTEX_WAKE, 1, NULL, NULL, 0);
	pthread_join(thread, NULL);
}

static void damaged_stacks_end_with_a_sentence(void **state)
{
	uint64_t *words = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t seed = 88172645463325252u;
	int rc;

	(void)state;
	assert_true(words != MAP_FAILED);
	look_at_odd_stack(0x1000, false, &rc);
	assert_int_equal(rc, -EFAULT);
	assert_non_null(strstr(stack.text, "no readable memory"));

	for (unsigned round = 0; round < 12; round++) {
		/* Zeros; then noise; then noise with addresses of code and stack among it. */
		for (unsigned i = 0; i < 8192; i++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			words[i] = round == 0           ? 0
			           : round % 3 == 0     ? (uint64_t)(uintptr_t)look_at_odd_stack + seed % 512
			           : round % 3 == 1     ? (uint64_t)(uintptr_t)(words + seed % 8192)
			                                : seed;
		}
		look_at_odd_stack((uint64_t)(uintptr_t)(words + 128), round % 2, &rc);
		assert_int_equal(rc, 0);
		assert_int_not_equal(stack.status, FCI_STACK_COMPLETE);
		assert_true(stack.text[0] != '\0');
		assert_true(stack.nframes >= 1);
	}
	munmap(words, 65536);
}
#endif

static __attribute__((__noinline__)) int recurse(unsigned depth, struct blocked *b)
{
	int rc = depth ? recurse(depth - 1, b) : b->kind->block(b);

	__asm__ volatile("" ::: "memory");
	return rc;
}

static void *deep_main(void *arg)
{
	struct blocked *b = arg;

	enter(&b->anchor);
	atomic_store(&b->tid, (pid_t)syscall(SYS_gettid));
	recurse(110, b);
	return NULL;
}

static void keeps_both_ends_of_a_deep_stack(void **state)
{
	static struct blocked b;
	struct fci_taskinfo info = { .tid = 0 };
	pthread_t thread;
	bool guard_seen = false;

	(void)state;
	memset(&b, 0, sizeof b);
	sem_init(&b.sem, 0, 0);
	b.kind = blocker_named("sem_wait");
	assert_int_equal(pthread_create(&thread, NULL, deep_main, &b), 0);
	while (!b.entered || fci_taskinfo_read(b.tid, &info) || info.state != 'S')
		usleep(100);
	assert_int_equal(fci_stack_capture(unwinder, b.tid, &b.anchor, &stack), 0);
	sem_post(&b.sem);
	pthread_join(thread, NULL);
	assert_int_equal(stack.nframes, FCI_STACK_FRAMES);
	assert_true(stack.nomitted > 40);
	assert_int_equal(stack.frames[0].flags & FCI_FRAME_EXACT, FCI_FRAME_EXACT);
	for (unsigned i = 0; i < stack.nframes; i++)
		guard_seen = guard_seen || stack.frames[i].flags & FCI_FRAME_GUARD;
	assert_true(guard_seen);
}

#if defined(__x86_64__)
/* Old frames of finished calls, direct and through a pointer, all over what comes below. */
static __attribute__((__noinline__)) unsigned leave_old_frames(unsigned depth)
{
	unsigned (*volatile again)(unsigned) = leave_old_frames;
	volatile unsigned sum = depth;

	if (depth)
		sum += depth % 3 ? leave_old_frames(depth - 1) : again(depth - 1);
	return sum;
}

/* A stack pointer that moves: the frame's size is not in the code, its frame pointer is needed. */
static __attribute__((__noinline__)) int wait_with_room(struct blocked *b, size_t bytes)
{
	volatile char *room;
	int rc = (int)leave_old_frames(9);

	room = __builtin_alloca(bytes);
	b->truth[0] = (uint64_t)(uintptr_t)__builtin_return_address(0);
	room[0] = 1;
	b->entered = true;
	rc = (int)syscall(SYS_read, b->fd[0], room, 1);
	return rc + room[0];
}

static __attribute__((__noinline__)) void *room_main(void *arg)
{
	struct blocked *b = arg;
	volatile size_t bytes = 700;
	volatile int rc = (int)leave_old_frames(25);

	b->truth[1] = (uint64_t)(uintptr_t)__builtin_return_address(0);
	enter(&b->anchor);
	atomic_store(&b->tid, (pid_t)syscall(SYS_gettid));
	rc = wait_with_room(b, bytes);
	(void)rc;
	return NULL;
}

static void crosses_a_function_that_moves_its_stack_pointer(void **state)
{
	static struct blocked b;
	struct fci_taskinfo info = { .tid = 0 };
	struct fci_stack bare;
	const struct fci_frame *first;
	pthread_t thread;

	(void)state;
	memset(&b, 0, sizeof b);
	assert_int_equal(pipe(b.fd), 0);
	assert_int_equal(pthread_create(&thread, NULL, room_main, &b), 0);
	while (!b.entered || fci_taskinfo_read(b.tid, &info) || info.state != 'S')
		usleep(100);
	assert_int_equal(fci_stack_capture(unwinder, b.tid, &b.anchor, &stack), 0);
	assert_int_equal(fci_stack_capture(unwinder, b.tid, NULL, &bare), 0);
	assert_int_equal(write(b.fd[1], "x", 1), 1);
	pthread_join(thread, NULL);
	close(b.fd[0]);
	close(b.fd[1]);
	first = frame_at(&stack, b.truth[0]);
	if (!first)
		explain(&b);
	assert_int_equal(stack.status, FCI_STACK_COMPLETE);
	assert_non_null(first);
	assert_int_equal(own_frames_before(&stack, first), 1); /* wait_with_room, once */
	assert_int_equal(first[1].pc, b.truth[1]);
	assert_true(first->flags & FCI_FRAME_DEDUCED);
	assert_true(first->flags & FCI_FRAME_GUARD);
	assert_int_equal(bare.status, FCI_STACK_COMPLETE);
	assert_int_equal(bare.nframes, stack.nframes);
	assert_true(fci_stack_hash(&bare) == fci_stack_hash(&stack));
}
#endif

/* ---- grouping ---- */

static void threads_in_one_place_have_one_hash(void **state)
{
	static struct blocked same[8], other;
	uint64_t hash = 0;

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		start(&same[i], "recv");
		assert_int_equal(fci_stack_capture(unwinder, same[i].tid, &same[i].anchor, &stack), 0);
		if (i)
			assert_true(hash == fci_stack_hash(&stack));
		hash = fci_stack_hash(&stack);
	}
	start(&other, "recv with SO_RCVTIMEO"); /* same libc call, from another function */
	assert_int_equal(fci_stack_capture(unwinder, other.tid, &other.anchor, &stack), 0);
	assert_true(hash != fci_stack_hash(&stack));
	for (unsigned i = 0; i < 8; i++)
		blocked_finish(&same[i]);
	blocked_finish(&other);
}

/* ---- names ---- */

static unsigned count_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

static unsigned count_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void work_off(struct fci_symboliser *sym)
{
	while (fci_symbol_step(sym))
		usleep(500);
}

static void names_function_and_line_and_leaves_no_thread_behind(void **state)
{
	static const char *const chain[] = { "block_poll", "relay", "handle", "serve", "blocked_main" };
	static struct blocked b;
	struct fci_symboliser *sym;
	struct fci_symbol symbol;
	unsigned threads, files, first = 0;
	char text[400];

	(void)state;
	start(&b, "poll");
	threads = count_threads();
	assert_int_equal(fci_stack_capture(unwinder, b.tid, &b.anchor, &stack), 0);
	files = count_files();
	assert_int_equal(stack.status, FCI_STACK_COMPLETE);
	assert_int_equal(fci_symboliser_create(&sym), 0);
	assert_int_equal(fci_symbol_want_stack(sym, &stack), 0);
	assert_int_equal(fci_symbol_want_stack(sym, &stack), 0);
	assert_int_equal(fci_symbol_get(sym, fci_frame_address(&stack.frames[0]), &symbol), -EAGAIN);
	assert_int_equal(fci_symbol_step(sym), stack.nframes);
	work_off(sym);
	assert_int_equal(count_threads(), threads);
	assert_int_equal(count_files(), files);

	while (stack.frames[first].pc != b.truth[0])
		first++;
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(fci_symbol_get(sym, fci_frame_address(&stack.frames[first + i]), &symbol), 0);
		fci_symbol_format(&symbol, text, sizeof text);
		assert_string_equal(symbol.function, chain[i + 1]);
		assert_non_null(strstr(symbol.file, "blockers.c"));
		assert_true(symbol.line > 0);
		assert_non_null(strstr(text, "blockers.c:"));
		assert_non_null(strstr(text, "+0x"));
	}
	assert_int_equal(fci_symbol_get(sym, 12345, &symbol), -ENOENT);
	fci_symboliser_destroy(sym);
	blocked_finish(&b);
}

static void finds_a_module_loaded_later(void **state)
{
	struct fci_symboliser *sym;
	struct fci_symbol symbol;
	void *module, *function;

	(void)state;
	assert_int_equal(fci_symboliser_create(&sym), 0);
	assert_int_equal(fci_symbol_want(sym, (uint64_t)(uintptr_t)finds_a_module_loaded_later), 0);
	work_off(sym);
	module = dlopen("libresolv.so.2", RTLD_NOW);
	assert_non_null(module);
	function = dlsym(module, "ns_sprintrrf");
	assert_non_null(function);
	assert_int_equal(fci_symbol_want(sym, (uint64_t)(uintptr_t)function), 0);
	work_off(sym);
	assert_int_equal(fci_symbol_get(sym, (uint64_t)(uintptr_t)function, &symbol), 0);
	assert_non_null(strstr(symbol.function, "ns_sprintrrf"));
	assert_non_null(strstr(symbol.module, "libresolv"));
	dlclose(module);
	fci_symboliser_destroy(sym);
}

static void address_in_no_module_is_printed_bare(void **state)
{
	uint64_t address = 0x10;
	struct fci_symbol symbol;
	char text[64], tiny[4];

	(void)state;
	fci_symbol_resolve(&address, 1, &symbol);
	fci_symbol_format(&symbol, text, sizeof text);
	assert_string_equal(text, "? (0x10)");
	assert_int_equal(fci_symbol_format(&symbol, tiny, sizeof tiny), 3);
	assert_string_equal(tiny, "? (");
}

static void table_full_of_open_lookups_says_so_and_recovers(void **state)
{
	struct fci_symboliser *sym;
	struct fci_symbol symbol;
	unsigned nrefused = 0;

	(void)state;
	assert_int_equal(fci_symboliser_create(&sym), 0);
	for (uint64_t i = 1; i <= 2 * FCI_SYMBOL_CACHE; i++)
		if (fci_symbol_want(sym, i) == -EAGAIN)
			nrefused++;
	assert_true(nrefused >= FCI_SYMBOL_CACHE);
	work_off(sym);
	assert_int_equal(fci_symbol_want(sym, 5 * FCI_SYMBOL_CACHE), 0);
	work_off(sym);
	assert_int_equal(fci_symbol_get(sym, 5 * FCI_SYMBOL_CACHE, &symbol), 0);
	fci_symboliser_destroy(sym);
}

/* ---- the process around ---- */

#if CHILDREN_HAVE_THREADS
static int in_child(int (*body)(void))
{
	int status = -1;
	pid_t child = fork();

	if (child == 0)
		_exit(body());
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

static struct fci_symboliser *inherited;

static int capture_in_child(void)
{
	static struct blocked b;
	struct fci_symbol symbol;

	if (blocked_start(&b, blocker_named("accept")))
		return 1;
	if (fci_stack_capture(unwinder, b.tid, &b.anchor, &stack) || !matches_truth(&stack, &b))
		return 2;
	fci_symbol_want_stack(inherited, &stack);
	work_off(inherited);
	if (fci_symbol_get(inherited, b.truth[0] - 1, &symbol) || strcmp(symbol.function, "relay"))
		return 3;
	blocked_finish(&b);
	return 0;
}

static void works_in_a_child_forked_amid_a_lookup(void **state)
{
	static struct blocked b;

	(void)state;
	start(&b, "semop");
	assert_int_equal(fci_symboliser_create(&inherited), 0);
	assert_int_equal(fci_stack_capture(unwinder, b.tid, &b.anchor, &stack), 0);
	fci_symbol_want_stack(inherited, &stack);
	assert_true(fci_symbol_step(inherited) > 0);
	assert_int_equal(in_child(capture_in_child), 0);
	work_off(inherited);
	inherited = fci_symboliser_destroy(inherited);
	blocked_finish(&b);
}

static int capture_undumpable(void)
{
	static struct blocked b;
	struct fci_taskinfo info;
	struct fci_symbol symbol;
	char line[300];
	int rc;

	if (getuid() == 0 ? setuid(65534) : prctl(PR_SET_DUMPABLE, 0))
		return 1;
	if (blocked_start(&b, blocker_named("recv")))
		return 2;
	rc = fci_stack_capture(unwinder, b.tid, &b.anchor, &stack);
	if (rc != -EACCES || !strstr(stack.text, "denies"))
		return 3;
	if (fci_taskinfo_read(b.tid, &info) || info.where_error != -EACCES || info.state != 'S')
		return 4;
	fci_taskinfo_format(&info, line, sizeof line);
	if (!strstr(line, "sleeping") || !strstr(line, "denies"))
		return 5;
	/* Names of known addresses, such as call sites, are still to be had. */
	fci_symbol_resolve(&b.truth[0], 1, &symbol);
	if (strcmp(symbol.function, "relay") || !symbol.offset)
		return 6;
	blocked_finish(&b);
	return 0;
}

static void denial_after_setuid_is_told_in_words(void **state)
{
	(void)state;
	assert_int_equal(in_child(capture_undumpable), 0);
}

#endif

static void tells_what_the_kernel_says_of_a_thread(void **state)
{
	static struct blocked b;
	struct fci_taskinfo info;
	char line[300], tiny[8];

	(void)state;
	start(&b, "epoll_wait");
	pthread_setname_np(b.thread, "worker 7");
	assert_int_equal(fci_taskinfo_read(b.tid, &info), 0);
	assert_string_equal(info.comm, "worker 7");
	assert_int_equal(info.state, 'S');
	assert_true(info.where.sp > 4096 && info.where.pc > 4096);
	assert_true(info.voluntary_switches > 0);
	fci_taskinfo_format(&info, line, sizeof line);
	assert_non_null(strstr(line, "worker 7"));
	assert_non_null(strstr(line, "sleeping in epoll_"));
	assert_int_equal(fci_taskinfo_format(&info, tiny, sizeof tiny), 7);
	blocked_finish(&b);

	assert_int_equal(fci_taskinfo_read(0, &info), -EINVAL);
	assert_int_equal(fci_taskinfo_read(0x7fffffff, &info), -ESRCH);
}

/* ---- the table ---- */

static double us_since(const struct timespec *from)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - from->tv_sec) * 1e6 + (double)(now.tv_nsec - from->tv_nsec) / 1e3;
}

static void time_lookups(const struct fci_stack *s)
{
	struct fci_symboliser *sym;
	struct timespec from;
	double want, first_step, whole;

	fci_symboliser_create(&sym);
	clock_gettime(CLOCK_MONOTONIC, &from);
	fci_symbol_want_stack(sym, s);
	want = us_since(&from);
	clock_gettime(CLOCK_MONOTONIC, &from);
	fci_symbol_step(sym);
	first_step = us_since(&from);
	work_off(sym);
	whole = us_since(&from);
	printf("lookup of %u frames: want %.1f us, step %.0f us, done after %.1f ms\n", s->nframes,
	       want, first_step, whole / 1e3);
	fci_symboliser_destroy(sym);
}

static int print_table(void)
{
	static struct blocked b;
	unsigned with = 0, without = 0, wrong = 0, disturbed = 0;
	double first = 0, total = 0;

	fci_unwinder_create(&unwinder);
	for (unsigned i = 0; i < NBLOCKERS; i++) {
		struct timespec from;

		if (blocked_start(&b, &blockers[i]))
			return 1;
		clock_gettime(CLOCK_MONOTONIC, &from);
		fci_stack_capture(unwinder, b.tid, NULL, &stack);
		if (i == 0)
			first = us_since(&from);
		without += stack.status == FCI_STACK_COMPLETE && matches_truth(&stack, &b);
		wrong += contradicts_truth(&stack, &b);
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (unsigned k = 0; k < 100; k++)
			fci_stack_capture(unwinder, b.tid, &b.anchor, &stack);
		total += us_since(&from) / 100;
		with += stack.status == FCI_STACK_COMPLETE && matches_truth(&stack, &b);
		wrong += contradicts_truth(&stack, &b);
		disturbed += blocked_disturbed(&b);
		blocked_finish(&b);
	}
	printf("complete with anchor %u, without %u; wrong %u, disturbed %u; first %.0f us, "
	       "then %.0f us\n", with, without, wrong, disturbed, first, total / NBLOCKERS);
	time_lookups(&stack);
	unwinder = fci_unwinder_destroy(unwinder);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(disturbs_none_of_21_blocking_calls),
		cmocka_unit_test(a_signal_would_have_been_noticed_as_a_disturbance),
		cmocka_unit_test(finds_every_frame_of_21_blocking_calls_with_the_anchor),
		cmocka_unit_test(shows_no_wrong_frame_without_an_anchor),
		cmocka_unit_test(a_false_anchor_does_no_harm),
		cmocka_unit_test(running_thread_gives_the_frames_outside_its_guard),
		cmocka_unit_test(lively_thread_is_never_shown_wrong),
		cmocka_unit_test(copy_of_a_moving_stack_is_thrown_away),
		cmocka_unit_test(ended_thread_and_foreign_thread_are_told),
		cmocka_unit_test(threads_may_end_during_the_capture),
#if defined(__x86_64__)
		cmocka_unit_test(damaged_stacks_end_with_a_sentence),
		cmocka_unit_test(crosses_a_function_that_moves_its_stack_pointer),
#endif
		cmocka_unit_test(keeps_both_ends_of_a_deep_stack),
		cmocka_unit_test(threads_in_one_place_have_one_hash),
		cmocka_unit_test(names_function_and_line_and_leaves_no_thread_behind),
		cmocka_unit_test(finds_a_module_loaded_later),
		cmocka_unit_test(address_in_no_module_is_printed_bare),
		cmocka_unit_test(table_full_of_open_lookups_says_so_and_recovers),
#if CHILDREN_HAVE_THREADS
		cmocka_unit_test(works_in_a_child_forked_amid_a_lookup),
		cmocka_unit_test(denial_after_setuid_is_told_in_words),
#endif
		cmocka_unit_test(tells_what_the_kernel_says_of_a_thread),
	};

	if (argc > 1 && !strcmp(argv[1], "table"))
		return print_table();
	return cmocka_run_group_tests_name("stack", tests, set_up, tear_down);
}
