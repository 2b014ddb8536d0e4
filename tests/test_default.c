/* SPDX-License-Identifier: BSD-2-Clause */
/* The default context, and that calls need neither memory nor system calls. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/emulator.h"
#include "support/entries.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static void there_is_one_default_context_at_a_time(void **state)
{
	struct fc_opts o = defaults();
	struct fc *other = context(&o), *own;

	(void)state;
	assert_int_equal(fc_default_set(fc), 0);
	assert_ptr_equal(fc_default(), fc);
	assert_int_equal(fc_default_set(other), -EBUSY);
	assert_ptr_equal(fc_default(), fc);
	assert_int_equal(fc_default_set(NULL), 0);
	assert_int_equal(fc_default_set(other), 0);
	assert_ptr_equal(fc_default(), other);
	fc_destroy(other); /* is forgotten */
	own = fc_default();
	assert_non_null(own);
	assert_ptr_equal(fc_default(), own);
	assert_ptr_not_equal(own, fc);
	assert_int_equal(fc_start(own), -EALREADY); /* its housekeeping runs by itself */
	assert_int_equal(fc_default_set(fc), -EBUSY);
	fc_destroy(own);
	assert_int_equal(fc_default_set(fc), 0);
	assert_int_equal(fc_default_set(NULL), 0);
	assert_int_equal(fc_default_set((struct fc *)(void *)&o), -EINVAL);
}

#if !SANITIZED
/* In a child without address space: no context can be made, and the program goes on. */
static int without_memory(void)
{
	struct rlimit none = { 0, RLIM_INFINITY }, was;
	struct fc_totals t;
	struct fc_iface *f;
	struct fc *standin;
	int ran = 0;

	if (!freopen("/dev/null", "w", stderr))
		return 9;
	getrlimit(RLIMIT_AS, &was);
	none.rlim_max = was.rlim_max;
	if (setrlimit(RLIMIT_AS, &none))
		return 1;
	standin = fc_default();
	if (!standin || fc_default() != standin)
		return 2;
	FC_GUARD(e, "user.login") {
		ran++;
	}
	FC_GUARD_FN(e) {
		ran++;
	}
	if (ran != 2)
		return 3;
	f = fc_iface_get(standin, "x");
	fc_opts_init(&t);
	if (!f || fc_totals(standin, &t) || t.pass_through != 2)
		return 4;
	if (fc_iface_set(standin, "x", NULL, NULL) != -EINVAL || fc_iface_find(standin, "x") || fc_iface_at(standin, 0))
		return 5;
	/* Whatever takes a context takes this one. */
	fc_off_set(standin, 1);
	(void)fc_off_get(standin);
	(void)fc_tick(standin, 0);
	(void)fc_tick_fd(standin);
	(void)fc_drain(standin, 0);
	fc_undrain(standin);
	(void)fc_dump(standin, -1);
	(void)fc_dump_signal(standin, -1);
	(void)fc_leaks(standin, -1);
	(void)fc_now_ns(standin);
	(void)fc_recorder(standin, NULL, 0);
	(void)fc_system_set(standin, NULL);
	(void)fc_system_level(standin);
	(void)fc_async_poll(standin);
	(void)fc_clock_set(standin, 1);
	if (fc_health_get(standin, NULL) == 0 || fc_health_set_source(standin, NULL, NULL) == 0)
		return 10;
	(void)fc_start(standin);
	fc_stop(standin);
	(void)fc_health_word(f);
	/* Memory is back: the next call makes it. */
	if (setrlimit(RLIMIT_AS, &was))
		return 6;
	if (fc_default() == standin)
		return 7;
	FC_GUARD(e, "user.login") {
		ran++;
	}
	if (ran != 3 || !fc_iface_find(fc_default(), "user.login"))
		return 8;
	return 0;
}

static void without_memory_the_default_context_lets_calls_pass_and_tries_again(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	SKIP_IF_EMULATED("it gives memory in spite of RLIMIT_AS");
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(without_memory());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* From here on every system call but exit kills. (The strict mode would also forbid the CPU's counter.) */
static int forbid_system_calls(void)
{
	struct sock_filter only_exit[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { .len = 4, .filter = only_exit };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void calls_under_seccomp(struct fc_iface *f, struct fc_iface *full)
{
	FC_OPTS(fc_ctx, ctx, .weight = 2);
	struct fc_entry e = FC_ENTRY_INIT, hold = FC_ENTRY_INIT, moved = FC_ENTRY_INIT;
	int bad = fc_enter(&hold, full, NULL) != 0;

	for (int i = 0; i < 5000; i++) { /* warm: threads registered, sites numbered, housekeeping awake */
		bad |= call(f, NULL);
		bad |= call(f, &ctx);
		(void)call(full, NULL);
	}
	if (forbid_system_calls())
		syscall(SYS_exit, 77);
	for (int i = 0; i < 50000; i++) {
		bad |= fc_enter(&e, f, i % 2 ? NULL : &ctx);
		if (i % 3 == 0)
			fc_entry_mark(&e, FC_OUTCOME_ERROR);
		if (i % 5 == 0) {
			bad |= fc_entry_suspend(&e);
			bad |= fc_entry_resume(&e);
		}
		if (i % 7 == 0)
			fc_entry_take(&moved, &e);
		bad |= fc_exit_status(i % 7 ? &e : &moved) != 1;
		bad |= fc_enter(&e, full, NULL) != FC_REFUSED_CAP;
	}
	syscall(SYS_exit, bad != 0);
}

static void enter_and_exit_make_no_system_call(void **state)
{
	struct fc_opts o = { .size = sizeof(o) };
	struct fc *real;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(fc_create(&real, &o), 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		calls_under_seccomp(capped(real, "f", 8), capped(real, "full", 1));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	fc_destroy(real);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return; /* no such filter in this kernel */
	assert_int_equal(status, 0);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(there_is_one_default_context_at_a_time),
#if !SANITIZED
		T(without_memory_the_default_context_lets_calls_pass_and_tries_again),
		T(enter_and_exit_make_no_system_call),
#endif
	};

	return cmocka_run_group_tests_name("default", tests, NULL, NULL);
}
