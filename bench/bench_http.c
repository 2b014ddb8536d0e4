/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_http.c - an HTTP server at full throttle, guard on and off.
 *
 * One process serves a constant answer; wrk loads it without a pause; the guard around the handler
 * is switched on and off each 100 ms, in the order on off off on, while the server counts what it
 * answers. So both sides have the same connections, the same memory and the same minute of the
 * machine. "Off" is the handler without a call into the library.
 *
 * Threads: those of the server. wrk has as many.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define PHASE_MS   100
#define PAIRS_MAX  BENCH_ROUNDS_MAX
#define SERVER_MAX 64

struct counter {
	/* n: one server thread. Order: relaxed, N1: a count, read a little late. */
	_Alignas(BENCH_LINE) _Atomic uint64_t n;
	char pad[BENCH_LINE - sizeof(uint64_t)];
};

static struct counter counters[SERVER_MAX];
static _Atomic uint32_t counters_used;
/* guarded: written by main at each phase. Order: relaxed, N2: a call or two late is of no matter. */
static _Atomic bool guarded;
static struct fc_iface *iface;
static char ok_text[] = "ok\n", busy_text[] = "busy\n";
static struct MHD_Response *answer, *busy;

static struct counter *my_counter(void)
{
	static __thread struct counter *mine;

	/* N3: a number for each thread, nothing else. */
	if (!mine)
		mine = &counters[atomic_fetch_add_explicit(&counters_used, 1, memory_order_relaxed) % SERVER_MAX];
	return mine;
}

static enum MHD_Result serve(struct MHD_Connection *connection)
{
	return MHD_queue_response(connection, MHD_HTTP_OK, answer);
}

static enum MHD_Result serve_guarded(struct MHD_Connection *connection)
{
	struct fc_entry e FC_AUTO_EXIT = FC_ENTRY_INIT;

	if (fc_enter(&e, iface, NULL))
		return MHD_queue_response(connection, MHD_HTTP_SERVICE_UNAVAILABLE, busy);
	return serve(connection);
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *body,
                              size_t *body_bytes, void **request)
{
	static int seen;

	(void)arg, (void)url, (void)method, (void)version, (void)body, (void)body_bytes;
	if (!*request) {
		*request = &seen;
		return MHD_YES;
	}
	/* N1 */
	atomic_fetch_add_explicit(&my_counter()->n, 1, memory_order_relaxed);
	/* N2 */
	if (atomic_load_explicit(&guarded, memory_order_relaxed))
		return serve_guarded(connection);
	return serve(connection);
}

static uint64_t served(void)
{
	uint64_t sum = 0;

	/* N1 */
	for (size_t i = 0; i < SERVER_MAX; i++)
		sum += atomic_load_explicit(&counters[i].n, memory_order_relaxed);
	return sum;
}

static uint64_t process_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_ms(uint32_t ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static pid_t start_wrk(uint16_t port, uint32_t threads, uint32_t seconds)
{
	char name[] = "wrk", t[16], c[16], d[16], url[64];
	char *argv[] = { name, t, c, d, url, NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;

	snprintf(t, sizeof(t), "-t%u", threads);
	snprintf(c, sizeof(c), "-c%u", 16 * threads);
	snprintf(d, sizeof(d), "-d%us", seconds);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u/", port);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", 1, 0);
	if (posix_spawnp(&pid, "wrk", &actions, NULL, argv, environ))
		pid = -1;
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

struct phase {
	double per_s, cpu_ns; /* answers a second; CPU time of the server an answer */
};

static struct phase run_phase(bool on)
{
	uint64_t wall_ns, cpu_ns, n;
	double done;

	atomic_store_explicit(&guarded, on, memory_order_relaxed); /* N2 */
	wall_ns = bench_wall_ns();
	cpu_ns = process_cpu_ns();
	n = served();
	sleep_ms(PHASE_MS);
	done = (double)(served() - n);
	cpu_ns = process_cpu_ns() - cpu_ns;
	wall_ns = bench_wall_ns() - wall_ns;
	if (done < 1)
		bench_die("the server answers nothing");
	return (struct phase){ done * 1e9 / (double)wall_ns, (double)cpu_ns / done };
}

static struct MHD_Daemon *start_server(uint32_t threads, uint16_t *ret_port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		                       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	const union MHD_DaemonInfo *info;
	struct MHD_Daemon *daemon;

	/* A pool of one is refused by some versions: then leave it out. */
	daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, handle, NULL,
	                          MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address,
	                          threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, threads,
	                          MHD_OPTION_END);
	if (!daemon)
		bench_die("the server does not start");
	info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
	*ret_port = info ? info->port : 0;
	return daemon;
}

static double pair_ns(void)
{
	struct bench_result r = { .subject = &bench_pair, .c = { .threads = 1 }, .rounds = 1 };

	bench_measure(&r, 0, NULL, 50);
	return r.ns[0];
}

/* 0, or -1: no wrk */
static int measure(uint32_t threads, uint32_t pairs)
{
	static double on[PAIRS_MAX], off[PAIRS_MAX], ratio[PAIRS_MAX], cpu_on[PAIRS_MAX],
		cpu_off[PAIRS_MAX], added[PAIRS_MAX];
	double pair = pair_ns();
	uint16_t port;
	struct MHD_Daemon *daemon = start_server(threads, &port);
	pid_t wrk = start_wrk(port, threads, pairs * 2 * PHASE_MS / 1000 + 3);
	int status;

	if (wrk < 0) {
		MHD_stop_daemon(daemon);
		fprintf(stderr, "bench: skipped: http: wrk is not installed\n");
		return -1;
	}
	sleep_ms(700);
	for (uint32_t i = 0; i < pairs; i++) {
		bool first = i % 2;
		struct phase a = run_phase(first), b = run_phase(!first);
		struct phase g = first ? a : b, bare = first ? b : a;

		on[i] = g.per_s;
		off[i] = bare.per_s;
		ratio[i] = g.per_s / bare.per_s;
		cpu_on[i] = g.cpu_ns;
		cpu_off[i] = bare.cpu_ns;
		added[i] = g.cpu_ns - bare.cpu_ns;
	}
	kill(wrk, SIGTERM);
	waitpid(wrk, &status, 0);
	MHD_stop_daemon(daemon);
	printf("| %u | %.0f | %.0f | %.4f | %.4f | %.0f | %.0f | %.1f |\n", threads,
	       bench_median(on, pairs), bench_median(off, pairs),
	       bench_median(on, pairs) / bench_median(off, pairs), bench_median(ratio, pairs),
	       bench_median(cpu_on, pairs), bench_median(cpu_off, pairs), bench_median(added, pairs));
	fflush(stdout);
	bench_json_value("http_guarded_over_bare", threads, bench_median(cpu_on, pairs),
	                 bench_median(cpu_on, pairs) / pair, "ratio", bench_median(ratio, pairs));
	return 0;
}

int main(int argc, char **argv)
{
	FC_OPTS(fc_iface_opts, numbers, .cap = 256);
	struct bench_opts o;
	int rc = 0;

	bench_args(&o, argc, argv);
	if (!bench_wanted(&o, "http_guarded_over_bare"))
		return 0;
	iface = guard_iface("http", &numbers);
	answer = MHD_create_response_from_buffer(sizeof(ok_text) - 1, ok_text, MHD_RESPMEM_PERSISTENT);
	busy = MHD_create_response_from_buffer(sizeof(busy_text) - 1, busy_text, MHD_RESPMEM_PERSISTENT);
	bench_json_open(&o);
	bench_heading("HTTP server at full throttle, guard on and off");
	printf("| server threads | on, answers/s | off, answers/s | ratio of medians | median of ratios "
	       "| CPU ns an answer, on | off | added |\n|--:|--:|--:|--:|--:|--:|--:|--:|\n");
	for (uint32_t i = 0; o.threads[i] && !rc; i++)
		if (o.threads[i] <= 2)
			rc = measure(o.threads[i], o.quick ? 25 : 101);
	bench_json_close();
	MHD_destroy_response(answer);
	MHD_destroy_response(busy);
	fc_destroy(guard_context());
	return 0;
}
