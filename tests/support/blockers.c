/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "blockers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "taskinfo.h"

#define LONG_S     600
#define POKE       SIGUSR1
#define WAITED_FOR SIGUSR2
#define NOINLINE   __attribute__((__noinline__))

static __thread volatile unsigned sink;

/* Old frames of finished calls: direct and through a pointer. */
static NOINLINE unsigned leave_old_frames(unsigned depth)
{
	volatile unsigned local[6];
	unsigned (*volatile again)(unsigned) = leave_old_frames;

	local[depth % 6] = depth;
	sink += depth ? (depth % 2 ? leave_old_frames(depth - 1) : again(depth - 1)) : 1;
	return local[depth % 6];
}

/* First thing in each function of the chain. The hole keeps old frames inside the new one. */
#define IN_CHAIN(b_, level_)                                                            \
	volatile char hole[160 + 48 * (level_)];                                        \
	(b_)->truth[level_] = (uint64_t)(uintptr_t)__builtin_return_address(0);         \
	hole[0] = (char)leave_old_frames(7);                                            \
	sink += (unsigned)hole[0]

/* Last thing: not a tail call, and marks the moment the call came back. */
static int came_back(struct blocked *b, bool failed)
{
	b->error = failed ? errno : 0;
	atomic_store_explicit(&b->returned, true, memory_order_release);
	return b->error;
}

#define BLOCKER(name_, failed_)                                                         \
	static NOINLINE int block_##name_(struct blocked *b)                            \
	{                                                                               \
		IN_CHAIN(b, 0);                                                         \
		atomic_store_explicit(&b->entered, true, memory_order_release);         \
		return came_back(b, failed_);                                           \
	}

static bool fails_with(int error)
{
	errno = error;
	return error != 0;
}

static struct timespec from_now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	t.tv_sec += LONG_S;
	return t;
}

static const struct timespec long_time = { LONG_S, 0 };

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

/* ---- prepare ---- */

static int prepare_nothing(struct blocked *b)
{
	(void)b;
	return 0;
}

static int prepare_mutex(struct blocked *b)
{
	return pthread_mutex_lock(&b->mutex);
}

static int prepare_pair(struct blocked *b)
{
	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b->fd) ? errno : 0;
}

static int prepare_pair_timeout(struct blocked *b)
{
	struct timeval t = { LONG_S, 0 };
	int error = prepare_pair(b);

	if (!error && setsockopt(b->fd[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t))
		error = errno;
	return error;
}

static int prepare_listener(struct blocked *b)
{
	struct sockaddr_un any = { .sun_family = AF_UNIX };

	/* An address of only the family: the kernel picks a free abstract name. */
	b->fd[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return b->fd[0] < 0 || bind(b->fd[0], (void *)&any, sizeof any.sun_family) ||
	       listen(b->fd[0], 1) ? errno : 0;
}

static int prepare_inotify(struct blocked *b)
{
	b->fd[0] = inotify_init1(IN_CLOEXEC);
	b->ipc = inotify_add_watch(b->fd[0], "/", IN_UNMOUNT);
	return b->fd[0] < 0 || b->ipc < 0 ? errno : 0;
}

static int set_lock(int fd, int command, short type)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_len = 1 };

	return fcntl(fd, command, &lock);
}

static int prepare_lock(struct blocked *b)
{
	char path[] = "/tmp/fcguard-lock-XXXXXX";

	b->fd[0] = mkstemp(path);
	b->fd[1] = open(path, O_RDWR | O_CLOEXEC);
	unlink(path);
	return b->fd[1] < 0 || set_lock(b->fd[1], F_OFD_SETLK, F_WRLCK) ? errno : 0;
}

static int prepare_queue(struct blocked *b)
{
	b->ipc = msgget(IPC_PRIVATE, 0600);
	return b->ipc < 0 ? errno : 0;
}

static int prepare_semset(struct blocked *b)
{
	b->ipc = semget(IPC_PRIVATE, 1, 0600);
	return b->ipc < 0 ? errno : 0;
}

static int prepare_epoll(struct blocked *b)
{
	struct epoll_event event = { .events = EPOLLIN };
	int error = prepare_pair(b);

	b->fd[2] = epoll_create1(EPOLL_CLOEXEC);
	if (!error && epoll_ctl(b->fd[2], EPOLL_CTL_ADD, b->fd[0], &event))
		error = errno;
	return error;
}

/* ---- block ---- */

static int lock_once(struct blocked *b)
{
	int error = pthread_mutex_lock(&b->mutex);

	if (!error)
		pthread_mutex_unlock(&b->mutex);
	return error;
}

static int wait_done(struct blocked *b, bool timed)
{
	struct timespec end = from_now(CLOCK_REALTIME);
	int error = 0;

	pthread_mutex_lock(&b->mutex);
	while (!b->done && !error)
		error = timed ? pthread_cond_timedwait(&b->cond, &b->mutex, &end)
		              : pthread_cond_wait(&b->cond, &b->mutex);
	pthread_mutex_unlock(&b->mutex);
	return error;
}

static bool poll_fails(struct blocked *b)
{
	struct pollfd p = { .fd = b->fd[0], .events = POLLIN };

	return poll(&p, 1, LONG_S * 1000) < 0;
}

static bool select_fails(struct blocked *b)
{
	struct timeval t = { LONG_S, 0 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(b->fd[0], &set);
	return select(b->fd[0] + 1, &set, NULL, NULL, &t) < 0;
}

static bool sigtimedwait_fails(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, WAITED_FOR);
	return sigtimedwait(&set, NULL, &long_time) < 0;
}

static bool semop_fails(struct blocked *b)
{
	struct sembuf take = { 0, -1, 0 };

	return semop(b->ipc, &take, 1) < 0;
}

static bool msgrcv_fails(struct blocked *b)
{
	struct { long type; char text[8]; } message;

	return msgrcv(b->ipc, &message, sizeof message.text, 0, 0) < 0;
}

BLOCKER(mutex_lock, fails_with(lock_once(b)))
BLOCKER(cond_wait, fails_with(wait_done(b, false)))
BLOCKER(cond_timedwait, fails_with(wait_done(b, true)))
BLOCKER(sem_wait, sem_wait(&b->sem) < 0)
BLOCKER(futex, futex(&b->word, FUTEX_WAIT, 0, NULL) < 0)
BLOCKER(read_pipe, read(b->fd[0], b->bytes, 1) < 0)
BLOCKER(recv, recv(b->fd[0], b->bytes, 1, 0) < 0)
BLOCKER(accept, (b->fd[1] = accept(b->fd[0], NULL, NULL)) < 0)
BLOCKER(inotify_read, read(b->fd[0], b->bytes, sizeof b->bytes) < 0)
BLOCKER(lock_wait, set_lock(b->fd[0], F_OFD_SETLKW, F_WRLCK) < 0)
BLOCKER(sem_timedwait, sem_timedwait(&b->sem, &(struct timespec){ from_now(CLOCK_REALTIME).tv_sec, 0 }) < 0)
BLOCKER(futex_timeout, futex(&b->word, FUTEX_WAIT, 0, &long_time) < 0)
BLOCKER(nanosleep, nanosleep(&long_time, NULL) < 0)
BLOCKER(clock_nanosleep, fails_with(clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, NULL)))
BLOCKER(poll, poll_fails(b))
BLOCKER(select, select_fails(b))
BLOCKER(msgrcv, msgrcv_fails(b))
BLOCKER(recv_timeout, recv(b->fd[0], b->bytes, 1, 0) < 0)
BLOCKER(epoll_wait, epoll_wait(b->fd[2], &(struct epoll_event){ 0 }, 1, LONG_S * 1000) < 0)
BLOCKER(sigtimedwait, sigtimedwait_fails())
BLOCKER(semop, semop_fails(b))

/* ---- release ---- */

static void release_mutex(struct blocked *b)
{
	pthread_mutex_unlock(&b->mutex);
}

static void release_cond(struct blocked *b)
{
	pthread_mutex_lock(&b->mutex);
	b->done = true;
	pthread_cond_signal(&b->cond);
	pthread_mutex_unlock(&b->mutex);
}

static void release_sem(struct blocked *b)
{
	sem_post(&b->sem);
}

static void release_futex(struct blocked *b)
{
	atomic_store_explicit(&b->word, 1, memory_order_release);
	futex(&b->word, FUTEX_WAKE, 1, NULL);
}

static void release_pair(struct blocked *b)
{
	if (write(b->fd[1], "x", 1) != 1)
		abort();
}

static void release_listener(struct blocked *b)
{
	struct sockaddr_un name;
	socklen_t length = sizeof name;

	b->fd[2] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (getsockname(b->fd[0], (void *)&name, &length) || connect(b->fd[2], (void *)&name, length))
		abort();
}

static void release_inotify(struct blocked *b)
{
	inotify_rm_watch(b->fd[0], b->ipc); /* tells the reader */
}

static void release_lock(struct blocked *b)
{
	set_lock(b->fd[1], F_OFD_SETLK, F_UNLCK);
}

static void release_queue(struct blocked *b)
{
	struct { long type; char text[8]; } message = { 1, "x" };

	msgsnd(b->ipc, &message, 1, 0);
}

static void release_semset(struct blocked *b)
{
	struct sembuf give = { 0, 1, 0 };

	semop(b->ipc, &give, 1);
}

static void release_waited_signal(struct blocked *b)
{
	pthread_kill(b->thread, WAITED_FOR);
}

const struct blocker blockers[NBLOCKERS] = {
	{ "pthread_mutex_lock", prepare_mutex, block_mutex_lock, release_mutex, false },
	{ "pthread_cond_wait", prepare_nothing, block_cond_wait, release_cond, false },
	{ "pthread_cond_timedwait", prepare_nothing, block_cond_timedwait, release_cond, false },
	{ "sem_wait", prepare_nothing, block_sem_wait, release_sem, false },
	{ "futex", prepare_nothing, block_futex, release_futex, false },
	{ "read", prepare_pair, block_read_pipe, release_pair, false },
	{ "recv", prepare_pair, block_recv, release_pair, false },
	{ "accept", prepare_listener, block_accept, release_listener, false },
	{ "inotify read", prepare_inotify, block_inotify_read, release_inotify, false },
	{ "fcntl lock", prepare_lock, block_lock_wait, release_lock, false },
	{ "sem_timedwait", prepare_nothing, block_sem_timedwait, release_sem, false },
	{ "futex with timeout", prepare_nothing, block_futex_timeout, release_futex, false },
	{ "nanosleep", prepare_nothing, block_nanosleep, blocked_poke, true },
	{ "clock_nanosleep", prepare_nothing, block_clock_nanosleep, blocked_poke, true },
	{ "poll", prepare_pair, block_poll, release_pair, false },
	{ "select", prepare_pair, block_select, release_pair, false },
	{ "msgrcv", prepare_queue, block_msgrcv, release_queue, false },
	{ "recv with SO_RCVTIMEO", prepare_pair_timeout, block_recv_timeout, release_pair, false },
	{ "epoll_wait", prepare_epoll, block_epoll_wait, release_pair, false },
	{ "sigtimedwait", prepare_nothing, block_sigtimedwait, release_waited_signal, false },
	{ "semop", prepare_semset, block_semop, release_semset, false },
};

const struct blocker *blocker_named(const char *name)
{
	for (unsigned i = 0; i < NBLOCKERS; i++)
		if (!strcmp(blockers[i].name, name))
			return &blockers[i];
	abort();
}

/* ---- the chain ---- */

static NOINLINE void guard_enter(struct fci_anchor *anchor)
{
	FCI_ANCHOR_HERE(anchor);
}

static NOINLINE int relay(struct blocked *b)
{
	IN_CHAIN(b, 1);
	int error = b->kind->block(b);

	sink += (unsigned)error;
	return error;
}

static NOINLINE int handle(struct blocked *b)
{
	IN_CHAIN(b, 2);
	guard_enter(&b->anchor);
	int error = relay(b);

	sink += (unsigned)error;
	return error;
}

static NOINLINE int serve(struct blocked *b)
{
	IN_CHAIN(b, 3);
	int error = handle(b);

	sink += (unsigned)error;
	return error;
}

static NOINLINE void *blocked_main(void *arg)
{
	struct blocked *b = arg;
	sigset_t waited_for;

	IN_CHAIN(b, 4);
	sigemptyset(&waited_for);
	sigaddset(&waited_for, WAITED_FOR);
	pthread_sigmask(SIG_BLOCK, &waited_for, NULL);
	atomic_store_explicit(&b->tid, (pid_t)syscall(SYS_gettid), memory_order_release);
	sink += (unsigned)serve(b);
	return NULL;
}

static void ignore(int signal)
{
	(void)signal;
}

static bool asleep(const struct blocked *b)
{
	struct fci_taskinfo info;

	return atomic_load_explicit(&b->entered, memory_order_acquire) &&
	       !fci_taskinfo_read(atomic_load_explicit(&b->tid, memory_order_acquire), &info) &&
	       info.state == 'S' && (info.where_error || !info.where.running);
}

int blocked_start(struct blocked *b, const struct blocker *kind)
{
	struct sigaction action = { .sa_handler = ignore };
	int error;

	memset(b, 0, sizeof *b);
	b->kind = kind;
	b->ipc = -1;
	for (unsigned i = 0; i < 3; i++)
		b->fd[i] = -1;
	pthread_mutex_init(&b->mutex, NULL);
	pthread_cond_init(&b->cond, NULL);
	sem_init(&b->sem, 0, 0);
	sigaction(POKE, &action, NULL);
	error = kind->prepare(b);
	if (!error)
		error = pthread_create(&b->thread, NULL, blocked_main, b);
	while (!error && !asleep(b) && !blocked_disturbed(b))
		usleep(200);
	return error;
}

bool blocked_disturbed(const struct blocked *b)
{
	return atomic_load_explicit(&b->returned, memory_order_acquire);
}

void blocked_poke(struct blocked *b)
{
	pthread_kill(b->thread, POKE);
}

int blocked_finish(struct blocked *b)
{
	if (!blocked_disturbed(b) || b->kind->prepare == prepare_mutex)
		b->kind->release(b);
	pthread_join(b->thread, NULL);
	if (b->kind->prepare == prepare_queue)
		msgctl(b->ipc, IPC_RMID, NULL);
	if (b->kind->prepare == prepare_semset)
		semctl(b->ipc, 0, IPC_RMID);
	for (unsigned i = 0; i < 3; i++)
		if (b->fd[i] >= 0)
			close(b->fd[i]);
	pthread_cond_destroy(&b->cond);
	sem_destroy(&b->sem);
	return b->error;
}
