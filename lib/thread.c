/* SPDX-License-Identifier: BSD-2-Clause */
/* thread.c - registration of threads, their end, fork. See thread.h. */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "percpu.h"
#include "thread.h"

__thread struct fci_thread fci_self __attribute__((__tls_model__("initial-exec")));
fci_a64 fci_thread_epoch = 1;
uint32_t fci_thread_asymmetric;

#ifdef FC_TEST_POINTS
void (*fci_test_point)(const char *name);
#endif

/* Rounds of TLS destructors that POSIX promises; in the last one a new registration could no longer
 * be undone, so the node is left out of the list then. */
#define LAST_ROUND 3

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fci_thread *list;
#define UNLISTED_MAX 16u
static uint32_t unlisted[UNLISTED_MAX], n_unlisted; /* threads that used a guard in their last round */
static uint32_t too_many_unlisted;                  /* 1: more of them at once than we can remember */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void unlink_node(struct fci_thread *t)
{
	if (t->prev)
		t->prev->next = t->next;
	else if (list == t)
		list = t->next;
	if (t->next)
		t->next->prev = t->prev;
	t->next = t->prev = NULL;
}

/* The thread ends: give back what it holds, then forget it. Runs once per round of destructors in
 * which a guard was used again. */
static void thread_ended(void *arg)
{
	struct fci_thread *t = arg;
	/* N1: own word. */
	uint32_t tid = atomic_load_explicit(&t->tid, FCI_RLX);

	if (t->held != 0)
		fci_context_thread_ended(tid);
	t->held = 0;
	t->ends++;
	pthread_mutex_lock(&list_mutex);
	unlink_node(t);
	/* N1: readers walk the list under the mutex. */
	atomic_store_explicit(&t->tid, 0, FCI_RLX);
	pthread_mutex_unlock(&list_mutex);
}

static void fork_prepare(void)
{
	fci_context_fork_prepare();
	pthread_mutex_lock(&list_mutex);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&list_mutex);
	fci_context_fork_parent();
}

/* Only the forking thread exists in the child, under a new number. The nodes of the others lie in
 * stacks that may be reused: forget them without a touch. */
static void fork_child(void)
{
	list = NULL;
	n_unlisted = too_many_unlisted = 0;
	fci_self.next = fci_self.prev = NULL;
	fci_self.held = 0;
	/* N1: own words. */
	atomic_store_explicit(&fci_self.tid, 0, FCI_RLX);
	atomic_store_explicit(&fci_self.section, 0, FCI_RLX);
	pthread_mutex_unlock(&list_mutex);
	fci_context_fork_child();
}

static void init_once(void)
{
	pthread_key_create(&key, thread_ended);
	pthread_atfork(fork_prepare, fork_parent, fork_child);
	fci_thread_asymmetric = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static void find_stack(struct fci_thread *t)
{
	pthread_attr_t attr;
	void *lo;
	size_t bytes;

	if (pthread_getattr_np(pthread_self(), &attr) != 0)
		return;
	if (pthread_attr_getstack(&attr, &lo, &bytes) == 0) {
		t->stack_lo = (uint64_t)(uintptr_t)lo;
		t->stack_hi = t->stack_lo + bytes;
	}
	pthread_attr_destroy(&attr);
}

/* Where this thread reads its CPU's number: at once where the kernel keeps a word up to date (rseq,
 * whatever the machine), else in a copy that samples and counters refresh. */
static void find_cpu(struct fci_thread *t)
{
	(void)fci_thread_cpu_refresh(t);
	t->cpu_at = &t->cpu;
#if FCI_HAVE_RSEQ
	if (__rseq_size != 0 && (int32_t)fci_rseq_area()->cpu_id >= 0)
		t->cpu_at = (const volatile uint32_t *)&fci_rseq_area()->cpu_id;
#endif
}

/* Those that are gone are in no section. list_mutex is held. */
static void forget_unlisted(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_unlisted; i++)
		if (syscall(SYS_tgkill, getpid(), unlisted[i], 0) == 0)
			unlisted[n++] = unlisted[i];
	n_unlisted = n;
}

static void remember_unlisted(uint32_t tid)
{
	if (n_unlisted == UNLISTED_MAX)
		forget_unlisted();
	if (n_unlisted == UNLISTED_MAX)
		too_many_unlisted = 1; /* chains that are replaced from now on stay */
	else
		unlisted[n_unlisted++] = tid;
}

FCI_COLD void fci_thread_register(void)
{
	struct fci_thread *t = &fci_self;
	uint32_t tid = (uint32_t)syscall(SYS_gettid);

	pthread_once(&once, init_once);
	if (t->stack_lo == 0)
		find_stack(t);
	find_cpu(t);
	pthread_mutex_lock(&list_mutex);
	/* N1: own word, set under the list's mutex. */
	atomic_store_explicit(&t->tid, tid, FCI_RLX);
	if (t->ends < LAST_ROUND) {
		t->prev = NULL;
		t->next = list;
		if (list)
			list->prev = t;
		list = t;
	} else {
		remember_unlisted(tid);
	}
	pthread_mutex_unlock(&list_mutex);
	if (t->ends < LAST_ROUND)
		pthread_setspecific(key, t);
}

uint32_t fci_thread_cpu_refresh(struct fci_thread *t)
{
	int cpu = sched_getcpu();

	t->cpu = cpu < 0 ? 0 : (uint32_t)cpu;
	t->cpu_left = 255;
	return t->cpu;
}

FCI_NOINLINE void fci_percpu_add_atomic(const struct fci_percpu *p, size_t off, uint64_t n)
{
	/* N4: a counter; the row is a hint that spreads the traffic. */
	atomic_fetch_add_explicit((fci_a64 *)(p->base + fci_thread_cpu_hint(p->ncpus) * p->stride + off), n, FCI_RLX);
}

int fci_thread_look(uint32_t tid, struct fci_thread_view *ret)
{
	struct fci_thread *t;

	if (pthread_mutex_trylock(&list_mutex) != 0)
		return -1;
	/* N1: set under the mutex. */
	for (t = list; t && atomic_load_explicit(&t->tid, FCI_RLX) != tid; t = t->next)
		;
	if (t) {
		/* N3: each word is true by itself (its own number is in it); see check.c. */
		ret->last_entry = atomic_load_explicit(&t->last_entry, FCI_RLX);
		ret->last_sp = atomic_load_explicit(&t->last_sp, FCI_RLX);
		ret->stack_lo = t->stack_lo;
		ret->stack_hi = t->stack_hi;
	}
	pthread_mutex_unlock(&list_mutex);
	if (t)
		return 1;
	/* Not listed is gone, unless it is ending right now. */
	return syscall(SYS_tgkill, getpid(), tid, 0) == 0 ? -1 : 0;
}

uint64_t fci_thread_min_section(void)
{
	uint64_t min = UINT64_MAX;

	pthread_mutex_lock(&list_mutex);
	forget_unlisted();
	if (n_unlisted || too_many_unlisted)
		min = 0;
	for (struct fci_thread *t = list; t; t = t->next) {
		/* A1 -> R1, R2 (fci_section_enter, fci_section_leave), after the membarrier. */
		uint64_t s = atomic_load_explicit(&t->section, FCI_ACQ);

		if (s != 0 && s < min)
			min = s;
	}
	pthread_mutex_unlock(&list_mutex);
	return min;
}

void fci_thread_fence_all(void)
{
	pthread_once(&once, init_once);
	if (fci_thread_asymmetric)
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	atomic_thread_fence(FCI_SC);
}
