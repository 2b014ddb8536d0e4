/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * demo/http.h - the plumbing of the demo server: HTTP by libmicrohttpd, a fixed pool of workers.
 *
 * One thread talks HTTP (epoll) and puts each request into a first-in first-out queue. A fixed
 * number of workers take requests from it and run their handlers, which may block. This is how
 * most threaded servers work, and how they die: when every worker sits in one slow handler, the
 * queue stands still for all of them.
 *
 * Nothing here knows fcguard.
 */
#ifndef DEMO_HTTP_H
#define DEMO_HTTP_H

#include <stdint.h>

struct http;
struct http_request;

typedef void (*http_handler_fn)(struct http_request *r);

struct http_route {
	const char *path;
	http_handler_fn fn; /* must call http_reply() exactly once */
	int direct;         /* run it in the HTTP thread: it must not block; for pages that have to
	                     * answer when all workers are stuck */
};

/* Serve on a free port of 127.0.0.1. routes ends with a NULL path and must stay. NULL: failed. */
struct http *http_start(const struct http_route *routes, int n_workers);
int http_port(const struct http *h);

/* Refuse new requests, answer those that wait, end the threads. Waits for the handlers. */
void http_stop(struct http *h);

/* The client's X-Request-Id (a number; 0: none). It is sent back with the reply. */
uint64_t http_request_id(const struct http_request *r);
const char *http_path(const struct http_request *r);                     /* of its route */
const char *http_header(const struct http_request *r, const char *name); /* NULL: it has none */
uint64_t http_waited_ns(const struct http_request *r);                   /* since it was received */

/* The answer, as plain text. retry_after_s 0: no Retry-After header. */
void http_reply(struct http_request *r, int status, const char *body);
void http_reply_retry(struct http_request *r, int status, const char *body,
                      uint32_t retry_after_s);
void http_reply_header(struct http_request *r, const char *name, const char *value); /* after the reply; NULL value: none */

/*
 * Only for the table at the end of the demo: from http_count() to its reply the request counts as
 * inside its handler. http_peak() gives the most there have been since it was asked last.
 */
void http_count(struct http_request *r);
int http_peak(struct http *h, const char *path);
int http_inside(struct http *h); /* requests that wait for a worker or are with one */

#endif /* DEMO_HTTP_H */
