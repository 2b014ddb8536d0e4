/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE /* pthread_setname_np */
#include "http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUTES_MAX 16

struct http_request {
	struct http *http;
	struct MHD_Connection *connection;
	struct http_request *next; /* in the queue */
	struct MHD_Response *response;
	uint64_t id, received_ns;
	int route;
	int status;
	int queued;  /* went to the workers */
	int counted; /* http_count() */
};

struct http {
	struct MHD_Daemon *daemon;
	const struct http_route *routes;
	pthread_t *workers;
	int n_workers;

	pthread_mutex_t lock; /* for the four below */
	pthread_cond_t wake;
	struct http_request *head, **tail;
	int stop;

	/* Statistics only, so relaxed order does: nothing else is read on their word. */
	_Atomic int inside;
	_Atomic int now[ROUTES_MAX], peak[ROUTES_MAX];
};

/* 0, or -1: the server stops, and r was not taken. */
static int push(struct http *h, struct http_request *r)
{
	int stop;

	r->next = NULL;
	pthread_mutex_lock(&h->lock);
	stop = h->stop;
	if (!stop) {
		*h->tail = r;
		h->tail = &r->next;
		atomic_fetch_add_explicit(&h->inside, 1, memory_order_relaxed);
		pthread_cond_signal(&h->wake);
	}
	pthread_mutex_unlock(&h->lock);
	return stop ? -1 : 0;
}

/* The oldest request; waits for one. NULL: the server stops. */
static struct http_request *pop(struct http *h)
{
	struct http_request *r;

	pthread_mutex_lock(&h->lock);
	while (!h->head && !h->stop)
		pthread_cond_wait(&h->wake, &h->lock);
	r = h->head;
	if (r) {
		h->head = r->next;
		if (!h->head)
			h->tail = &h->head;
	}
	pthread_mutex_unlock(&h->lock);
	return r;
}

static void *work(void *arg)
{
	struct http *h = arg;
	struct http_request *r;

	while ((r = pop(h))) {
		h->routes[r->route].fn(r);
		atomic_fetch_sub_explicit(&h->inside, 1, memory_order_relaxed);
		/* The HTTP thread sends the reply and frees r: not ours any more. */
		MHD_resume_connection(r->connection);
	}
	return NULL;
}

static int find_route(const struct http *h, const char *path)
{
	for (int i = 0; h->routes[i].path; i++)
		if (strcmp(h->routes[i].path, path) == 0)
			return i;
	return -1;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct http_request *new_request(struct http *h, struct MHD_Connection *c, const char *path)
{
	struct http_request *r = calloc(1, sizeof(*r));
	const char *id = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "X-Request-Id");

	if (!r)
		return NULL;
	r->http = h;
	r->connection = c;
	r->route = find_route(h, path);
	r->id = id ? strtoull(id, NULL, 10) : 0;
	r->received_ns = now_ns();
	return r;
}

/*
 * libmicrohttpd calls this for each request: with its headers, then with its end, and once more
 * after a worker has answered and resumed the connection.
 */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_bytes, void **request)
{
	struct http *h = arg;
	struct http_request *r = *request;

	(void)method, (void)version, (void)body;
	if (!r) {
		*request = new_request(h, c, url);
		return *request ? MHD_YES : MHD_NO;
	}
	if (*body_bytes) { /* no handler takes a body */
		*body_bytes = 0;
		return MHD_YES;
	}
	if (!r->response && r->route >= 0 && !h->routes[r->route].direct && !r->queued) {
		r->queued = 1;
		MHD_suspend_connection(c);
		if (push(h, r)) {
			http_reply(r, 503, "stopping\n");
			MHD_resume_connection(c);
		}
		return MHD_YES;
	}
	if (!r->response && r->route >= 0 && !r->queued)
		h->routes[r->route].fn(r);
	if (!r->response)
		http_reply(r, r->route < 0 ? 404 : 500, r->route < 0 ? "no such page\n" : "no reply\n");
	return r->response ? MHD_queue_response(c, (unsigned)r->status, r->response) : MHD_NO;
}

static void on_completed(void *arg, struct MHD_Connection *c, void **request,
                         enum MHD_RequestTerminationCode code)
{
	struct http_request *r = *request;

	(void)arg, (void)c, (void)code;
	if (!r)
		return;
	if (r->response)
		MHD_destroy_response(r->response);
	free(r);
	*request = NULL;
}

static int start_workers(struct http *h, int n)
{
	char name[16];

	h->workers = calloc((size_t)n, sizeof(*h->workers));
	if (!h->workers)
		return -1;
	for (; h->n_workers < n; h->n_workers++) {
		if (pthread_create(&h->workers[h->n_workers], NULL, work, h))
			return -1;
		snprintf(name, sizeof(name), "worker-%d", h->n_workers);
		pthread_setname_np(h->workers[h->n_workers], name);
	}
	return 0;
}

struct http *http_start(const struct http_route *routes, int n_workers)
{
	struct sockaddr_in any_port = { .sin_family = AF_INET };
	struct http *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->routes = routes;
	h->tail = &h->head;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->wake, NULL);
	any_port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (start_workers(h, n_workers) == 0)
		h->daemon = MHD_start_daemon(
			MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
			on_request, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
			MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&any_port, MHD_OPTION_LISTEN_BACKLOG_SIZE,
			1024u, MHD_OPTION_END);
	if (!h->daemon) {
		http_stop(h);
		return NULL;
	}
	return h;
}

int http_port(const struct http *h)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT);

	return info ? info->port : 0;
}

void http_stop(struct http *h)
{
	pthread_mutex_lock(&h->lock);
	h->stop = 1;
	pthread_cond_broadcast(&h->wake);
	pthread_mutex_unlock(&h->lock);
	for (int i = 0; i < h->n_workers; i++)
		pthread_join(h->workers[i], NULL);
	if (h->daemon)
		MHD_stop_daemon(h->daemon);
	free(h->workers);
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

uint64_t http_request_id(const struct http_request *r)
{
	return r->id;
}

const char *http_path(const struct http_request *r)
{
	return r->http->routes[r->route].path;
}

const char *http_header(const struct http_request *r, const char *name)
{
	return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

uint64_t http_waited_ns(const struct http_request *r)
{
	return now_ns() - r->received_ns;
}

void http_reply_retry(struct http_request *r, int status, const char *body, uint32_t retry_after_s)
{
	char number[24];

	if (r->counted) {
		r->counted = 0;
		atomic_fetch_sub_explicit(&r->http->now[r->route], 1, memory_order_relaxed);
	}
	if (r->response)
		return;
	r->response = MHD_create_response_from_buffer(strlen(body), (void *)(uintptr_t)body,
	                                              MHD_RESPMEM_MUST_COPY);
	r->status = status;
	if (!r->response)
		return;
	if (r->id) {
		snprintf(number, sizeof(number), "%llu", (unsigned long long)r->id);
		MHD_add_response_header(r->response, "X-Request-Id", number);
	}
	if (retry_after_s) {
		snprintf(number, sizeof(number), "%u", retry_after_s);
		MHD_add_response_header(r->response, "Retry-After", number);
	}
}

void http_reply(struct http_request *r, int status, const char *body)
{
	http_reply_retry(r, status, body, 0);
}

void http_reply_header(struct http_request *r, const char *name, const char *value)
{
	if (r->response && value)
		MHD_add_response_header(r->response, name, value);
}

void http_count(struct http_request *r)
{
	_Atomic int *peak = &r->http->peak[r->route];
	int now = atomic_fetch_add_explicit(&r->http->now[r->route], 1, memory_order_relaxed) + 1;
	int seen = atomic_load_explicit(peak, memory_order_relaxed);

	r->counted = 1;
	while (seen < now && !atomic_compare_exchange_weak_explicit(peak, &seen, now, memory_order_relaxed,
	                                                            memory_order_relaxed))
		;
}

int http_peak(struct http *h, const char *path)
{
	int i = find_route(h, path);

	if (i < 0)
		return 0;
	return atomic_exchange_explicit(&h->peak[i],
	                                atomic_load_explicit(&h->now[i], memory_order_relaxed),
	                                memory_order_relaxed);
}

int http_inside(struct http *h)
{
	return atomic_load_explicit(&h->inside, memory_order_relaxed);
}
