/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * demo/dependency.c - a service that the demo server calls, and that can be made ill.
 *
 *     GET /                   answers after the delay
 *     GET /set?delay_ms=50    the delay
 *     GET /set?fail=1         answer 500, after the delay; fail=0: 200
 *     GET /set?hang=1         answer nobody; hang=0: answer those too that have waited
 *     GET /set?capacity=4     work on 4 requests at once, others wait; 0: on all of them
 *
 * Prints "port N" and serves on 127.0.0.1 until SIGTERM or SIGINT.
 */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int delay_ms, fail, hang, capacity, busy;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .delay_ms = 10 };

static void sleep_ms(int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&t, NULL);
}

/* Returns the status of the answer. */
static unsigned work(void)
{
	int delay_ms, fail;

	pthread_mutex_lock(&state.lock);
	while (state.hang || (state.capacity && state.busy >= state.capacity))
		pthread_cond_wait(&state.changed, &state.lock);
	state.busy++;
	delay_ms = state.delay_ms;
	fail = state.fail;
	pthread_mutex_unlock(&state.lock);

	sleep_ms(delay_ms);

	pthread_mutex_lock(&state.lock);
	state.busy--;
	if (state.capacity)
		pthread_cond_signal(&state.changed);
	pthread_mutex_unlock(&state.lock);
	return fail ? MHD_HTTP_INTERNAL_SERVER_ERROR : MHD_HTTP_OK;
}

static void set(struct MHD_Connection *c, const char *name, int *value)
{
	const char *text = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, name);

	if (!text)
		return;
	pthread_mutex_lock(&state.lock);
	*value = atoi(text);
	pthread_cond_broadcast(&state.changed);
	pthread_mutex_unlock(&state.lock);
}

/* Called twice for each request (its headers, its end), in a thread of the connection's own. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_bytes, void **request)
{
	static char seen[] = "";
	static char text[] = "42 pieces\n";
	struct MHD_Response *response;
	unsigned status = MHD_HTTP_OK;
	enum MHD_Result rc;

	(void)arg, (void)method, (void)version, (void)body;
	if (*request != seen || *body_bytes) {
		*request = seen;
		*body_bytes = 0;
		return MHD_YES;
	}
	if (strcmp(url, "/set") == 0) {
		set(c, "delay_ms", &state.delay_ms);
		set(c, "fail", &state.fail);
		set(c, "hang", &state.hang);
		set(c, "capacity", &state.capacity);
	} else {
		status = work();
	}
	response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_PERSISTENT);
	if (!response)
		return MHD_NO;
	rc = MHD_queue_response(c, status, response);
	MHD_destroy_response(response);
	return rc;
}

int main(void)
{
	struct sockaddr_in any_port = { .sin_family = AF_INET };
	struct MHD_Daemon *daemon;
	sigset_t end;
	int signal_number;

	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigaddset(&end, SIGINT);
	pthread_sigmask(SIG_BLOCK, &end, NULL);
	any_port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	daemon = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, 0,
	                          NULL, NULL, on_request, NULL, MHD_OPTION_SOCK_ADDR,
	                          (struct sockaddr *)&any_port, MHD_OPTION_END);
	if (!daemon) {
		fprintf(stderr, "dependency: cannot serve on 127.0.0.1\n");
		return 1;
	}
	printf("port %d\n", MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
	fflush(stdout);
	sigwait(&end, &signal_number);

	pthread_mutex_lock(&state.lock);
	state.hang = 0;
	state.delay_ms = 0;
	pthread_cond_broadcast(&state.changed);
	pthread_mutex_unlock(&state.lock);
	MHD_stop_daemon(daemon);
	return 0;
}
