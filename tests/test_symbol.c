/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of the addresses in a stack, and what the kernel says of a thread. `test_symbol time` prints
 * how long a look-up takes.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/stacks.h"
#include "symbol.h"
#include "taskinfo.h"

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
	SKIP_IF_EMULATED(NOT_OUR_STACK);
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

#if CHILDREN_HAVE_THREADS
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
	SKIP_IF_EMULATED(NO_FORK_OF_MANY);
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
#endif

/* ---- what the kernel says ---- */

static void tells_what_the_kernel_says_of_a_thread(void **state)
{
	static struct blocked b;
	struct fci_taskinfo info;
	char line[300], tiny[8];

	(void)state;
	SKIP_IF_EMULATED(NOT_OUR_CALLS);
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

static void assert_formats_as(const struct fci_taskinfo *info, const char *expected)
{
	char line[300];

	assert_int_equal(fci_taskinfo_format(info, line, sizeof line), strlen(expected));
	assert_string_equal(line, expected);
}

static void tells_it_in_one_sentence(void **state)
{
	struct fci_taskinfo info = {
		.tid = 812, .comm = "worker 7", .state = 'S', .wchan = "do_sys_poll",
		.voluntary_switches = 12, .where.syscall_nr = SYS_ppoll,
	};
	char line[300];

	(void)state;
	snprintf(line, sizeof line, "worker 7 (tid 812) sleeping in ppoll (syscall %d), kernel do_sys_poll, 12 switches",
	         (int)SYS_ppoll);
	assert_formats_as(&info, line);
	info.where.syscall_nr = -1;
	info.state = 'D';
	assert_formats_as(&info, "worker 7 (tid 812) in uninterruptible sleep outside a system call, "
	                         "kernel do_sys_poll, 12 switches");
	info.state = 'R';
	info.where.running = true;
	info.wchan_error = -ENODATA;
	info.voluntary_switches = 0;
	info.involuntary_switches = 1;
	assert_formats_as(&info, "worker 7 (tid 812) running, 1 switch");
	info.where_error = info.wchan_error = info.comm_error = info.state_error = -ESRCH;
	assert_formats_as(&info, "name unknown (tid 812) state unknown: no such thread in this process, "
	                         "call unknown: no such thread in this process, "
	                         "kernel function unknown: no such thread in this process");
}

/* ---- how long it takes ---- */

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

static int print_time(void)
{
	static struct blocked b;

	fci_unwinder_create(&unwinder);
	if (blocked_start(&b, blocker_named("poll")))
		return 1;
	fci_stack_capture(unwinder, b.tid, &b.anchor, &stack);
	blocked_finish(&b);
	time_lookups(&stack);
	unwinder = fci_unwinder_destroy(unwinder);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_function_and_line_and_leaves_no_thread_behind),
		cmocka_unit_test(finds_a_module_loaded_later),
		cmocka_unit_test(address_in_no_module_is_printed_bare),
		cmocka_unit_test(table_full_of_open_lookups_says_so_and_recovers),
#if CHILDREN_HAVE_THREADS
		cmocka_unit_test(works_in_a_child_forked_amid_a_lookup),
#endif
		cmocka_unit_test(tells_what_the_kernel_says_of_a_thread),
		cmocka_unit_test(tells_it_in_one_sentence),
	};

	if (argc > 1 && !strcmp(argv[1], "time"))
		return print_time();
	return cmocka_run_group_tests_name("symbol", tests, set_up, tear_down);
}
