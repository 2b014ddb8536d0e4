/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * demo/server.c - a threaded HTTP server with guards: how a program uses fcguard.
 *
 *     /fast     works locally, a fraction of a millisecond
 *     /report   asks a dependency that will become slow, and then hang
 *     /stock    asks another dependency, which is well
 *     /sale     a flash sale: long quiet, then everybody at once
 *     /stats    what the guards have seen
 *
 * and the pages of pages.c. Each handler is one guarded block (FC_GUARD); so is the call to a dependency
 * (FC_GUARD_OR). The numbers are in set_guards(), or all of them in a file (--rules FILE), which is watched;
 * the life of the library is in main(). HTTP, the pool of workers and the HTTP client are plumbing, in
 * http.c and client.c.
 */
#include <errno.h>
#include <fcguard/fcguard.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "http.h"
#include "pages.h"
#include "server.h"

#define WORKERS 64

static struct dependency report_service, stock_service;
static struct http *http;

/* ---- handlers: they run in the workers, and may block ---- */

void refuse(struct http_request *r, const struct fc_entry *e)
{
	FC_OPTS(fc_decision, why, );
	char text[160];

	fc_entry_decision(e, &why);
	snprintf(text, sizeof(text), "%s: %s (%llu of %llu)\n", why.iface, fc_status_text(why.status),
	         (unsigned long long)why.observed, (unsigned long long)why.limit);
	http_reply_retry(r, fc_decision_http_status(&why), text, fc_decision_retry_after_s(&why));
	http_reply_header(r, "X-Refused-By", why.rule);
}

static int busy(const struct fc_entry *e, struct fc_decision *ret_why)
{
	fc_entry_decision(e, ret_why);
	return -EBUSY;
}

/* A guarded call to a dependency. 0; -EBUSY: refused, see *ret_why; else what client_get() says. */
static int ask(const struct dependency *d, char *answer, size_t len, struct fc_decision *ret_why)
{
	int rc = 0;

	FC_GUARD_OR(return busy(&e, ret_why), e, d->guard) {
		rc = client_get(d->url, answer, len);
		if (rc)
			fc_entry_mark(&e, rc == -ETIMEDOUT ? FC_OUTCOME_TIMEOUT : FC_OUTCOME_ERROR);
	}
	return rc;
}

void relay(struct http_request *r, struct fc_entry *e, const struct dependency *d)
{
	FC_OPTS(fc_decision, why, .status = 0);
	char answer[256];
	int rc = ask(d, answer, sizeof(answer), &why);

	if (rc == 0) {
		http_reply(r, 200, answer);
		return;
	}
	fc_entry_mark(e, rc == -ETIMEDOUT ? FC_OUTCOME_TIMEOUT : FC_OUTCOME_ERROR);
	http_reply(r, rc == -EBUSY ? 503 : 502, "the service behind this page does not answer\n");
	if (rc == -EBUSY)
		http_reply_header(r, "X-Refused-By", why.rule);
}

/* Some work of our own. */
static uint32_t compute(void)
{
	uint32_t x = (uint32_t)time(NULL);

	for (int i = 0; i < 100000; i++)
		x = x * 1664525 + 1013904223;
	return x & 1;
}

static void get_fast(struct http_request *r)
{
	FC_GUARD(e, "shop.fast") {
		http_count(r);
		http_reply(r, 200, compute() ? "odd\n" : "even\n");
	} else {
		refuse(r, &e);
	}
}

static void get_report(struct http_request *r)
{
	/* The request's id makes it into the report when this call gets stuck. */
	FC_OPTS(fc_ctx, ctx, .request_id = http_request_id(r));

	FC_GUARD(e, "shop.report", &ctx) {
		http_count(r);
		relay(r, &e, &report_service);
	} else {
		refuse(r, &e);
	}
}

static void get_stock(struct http_request *r)
{
	FC_GUARD(e, "shop.stock") {
		http_count(r);
		relay(r, &e, &stock_service);
	} else {
		refuse(r, &e);
	}
}

static void get_sale(struct http_request *r)
{
	FC_GUARD(e, "shop.sale") {
		const struct timespec transaction = { 0, 100 * 1000000L };

		http_count(r);
		nanosleep(&transaction, NULL); /* stands for the database */
		http_reply(r, 200, "sold\n");
	} else {
		refuse(r, &e);
	}
}

static void get_stats(struct http_request *r);

static const struct http_route routes[] = {
	{ "/fast", get_fast, 0 },     { "/report", get_report, 0 }, { "/stock", get_stock, 0 },
	{ "/sale", get_sale, 0 },     { "/advice", get_advice, 0 }, { "/price", get_price, 0 },
	{ "/search", get_search, 0 }, { "/cart", get_page, 0 },     { "/browse", get_page, 0 },
	{ "/mail", get_page, 0 },     { "/photo", get_page, 0 },    { "/film", get_page, 0 },
	{ "/order", get_page, 0 },    { "/admin", get_page, 0 },    { "/stats", get_stats, 1 },
	{ NULL, NULL, 0 },
};

static unsigned long long refusals(const struct fc_stats *s)
{
	uint64_t n = 0;

	for (size_t i = 0; i < sizeof(s->refused) / sizeof(s->refused[0]); i++)
		n += s->refused[i];
	return n;
}

/* One line per interface; runs in the HTTP thread, so it answers when all workers are stuck. */
static void get_stats(struct http_request *r)
{
	char text[8192];
	size_t n = 0;
	struct fc_iface *iface;

	for (uint32_t i = 0; (iface = fc_iface_at(fc_default(), i)) && n < sizeof(text) - 200; i++) {
		FC_OPTS(fc_stats, s, );

		if (fc_iface_stats(iface, &s))
			continue;
		n += (size_t)snprintf(text + n, sizeof(text) - n,
		                      "guard %s in_flight %u limit %u admitted %llu refused %llu "
		                      "expansions %llu undone %llu\n",
		                      fc_iface_name(iface), s.in_flight, s.limit,
		                      (unsigned long long)s.admitted,
		                      refusals(&s),
		                      (unsigned long long)s.expansions,
		                      (unsigned long long)s.expansions_undone);
	}
	for (size_t i = 0; routes[i].path; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "peak %s %d\n", routes[i].path,
		                      http_peak(http, routes[i].path));
	snprintf(text + n, sizeof(text) - n, "inside %d\n", http_inside(http));
	http_reply(r, 200, text);
}

/* ---- set-up ---- */

/*
 * Without a rules file. The limits of the handlers add up to the 64 workers (4 * 8 + 10 + 10 + 12), so no
 * handler can take the last worker from another.
 */
static int set_guards(struct fc *fc)
{
	/* May grow to 4 * 8 while the machine is healthy and more calls get more done. */
	FC_OPTS(fc_iface_opts, report, .cap = 8, .stuck_after_ns = FC_S(1));
	FC_OPTS(fc_iface_opts, fast, .cap = 10, .expand = 1);
	FC_OPTS(fc_iface_opts, stock, .cap = 10, .expand = 1);
	/* Sold out is sold out: a flood is refused, not chased. */
	FC_OPTS(fc_iface_opts, sale, .cap = 12, .expand = 1);
	/* What we allow ourselves towards a dependency, whichever handlers call it. */
	FC_OPTS(fc_iface_opts, outbound, .cap = 32, .expand = 1, .flags = FC_IFACE_OUTBOUND);
	int rc = 0;

	rc = rc ? rc : fc_iface_set(fc, "shop.fast", &fast, NULL);
	rc = rc ? rc : fc_iface_set(fc, "shop.report", &report, NULL);
	rc = rc ? rc : fc_iface_set(fc, "shop.stock", &stock, NULL);
	rc = rc ? rc : fc_iface_set(fc, "shop.sale", &sale, NULL);
	rc = rc ? rc : fc_iface_set(fc, "dep.report", &outbound, NULL);
	rc = rc ? rc : fc_iface_set(fc, "dep.stock", &outbound, NULL);
	return rc;
}

/* All numbers are in the file; it is watched, and what is wrong with a new one is in the log. */
static int set_rules(struct fc *fc, const char *path)
{
	FC_OPTS(fc_rules_error, err, .error = 0);
	int rc = fc_rules_watch(fc, path, &err);

	if (rc < 0)
		fputs(err.text, stderr);
	return rc;
}

static void write_log(void *arg, int level, const char *msg)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };

	fprintf(arg, "%s %s\n", names[level & 3], msg);
}

/*
 * How well we are, asked four times a second. The demo's machine also runs the dependencies and
 * the load, so what counts here is the server's own CPU. A server that has its machine or
 * container to itself needs none of this: the library reads CPU, memory and pressure there.
 */
static int own_cpu(void *arg, struct fc_health_sample *ret)
{
	static uint64_t last_used, last_now;
	struct timespec t;
	uint64_t used;

	(void)arg;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	used = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	ret->valid = ret->since_last = FC_HEALTH_CPU;
	ret->cpu_permille = (uint32_t)((used - last_used) * 1000 / (ret->now_ns - last_now) /
	                               (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
	last_used = used;
	last_now = ret->now_ns;
	return 0;
}

static int set_up(struct fc *fc, const char *rules)
{
	int rc = rules ? set_rules(fc, rules) : set_guards(fc);

	report_service.guard = fc_iface_get(fc, "dep.report");
	stock_service.guard = fc_iface_get(fc, "dep.stock");
	rc = rc ? rc : pages_init(fc, report_service.url, stock_service.url);
	rc = rc ? rc : fc_health_set_source(fc, own_cpu, NULL);
	return rc ? rc : fc_default_set(fc); /* FC_GUARD(e, "name") looks names up here */
}

static struct fc *start_guards(FILE *log, int on, const char *rules)
{
	FC_OPTS(fc_opts, opts, .flags = FC_THREAD, .log = write_log, .log_arg = log);
	struct fc *fc;
	int rc = fc_create(&fc, &opts);

	if (rc == 0) {
		rc = set_up(fc, rules);
		if (rc)
			fc_destroy(fc);
	}
	if (rc) {
		fprintf(stderr, "server: no guards: %s\n", fc_status_text(rc));
		return NULL;
	}
	if (!on) /* FCGUARD_OFF=1 in the environment does the same */
		fc_off_set(fc, 1);
	return fc;
}

static void usage(void)
{
	fprintf(stderr, "usage: server --report URL --stock URL --log FILE [--rules FILE] [--guards on|off]\n");
	exit(2);
}

static FILE *parse(int argc, char **argv, int *guards, const char **rules)
{
	static const struct option options[] = {
		{ "report", required_argument, NULL, 'r' }, { "stock", required_argument, NULL, 's' },
		{ "log", required_argument, NULL, 'l' },    { "guards", required_argument, NULL, 'g' },
		{ "rules", required_argument, NULL, 'f' },  { NULL, 0, NULL, 0 },
	};
	FILE *log = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'r')
			report_service.url = optarg;
		else if (c == 's')
			stock_service.url = optarg;
		else if (c == 'l')
			log = fopen(optarg, "a");
		else if (c == 'f')
			*rules = optarg;
		else if (c == 'g' && (strcmp(optarg, "on") == 0 || strcmp(optarg, "off") == 0))
			*guards = strcmp(optarg, "on") == 0;
		else
			usage();
	}
	if (!report_service.url || !stock_service.url || !log || optind != argc)
		usage();
	setvbuf(log, NULL, _IOLBF, 0);
	return log;
}

int main(int argc, char **argv)
{
	int guards = 1, left, signal_number;
	const char *rules = NULL;
	FILE *log = parse(argc, argv, &guards, &rules);
	struct fc *fc;
	sigset_t end;

	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigaddset(&end, SIGINT);
	pthread_sigmask(SIG_BLOCK, &end, NULL);
	signal(SIGPIPE, SIG_IGN);

	fc = start_guards(log, guards, rules);
	if (!fc || client_init())
		return 1;
	http = http_start(routes, WORKERS);
	if (!http) {
		fprintf(stderr, "server: cannot serve on 127.0.0.1\n");
		return 1;
	}
	printf("port %d\n", http_port(http));
	fflush(stdout);
	sigwait(&end, &signal_number);

	/* Refuse new calls, wait for those inside; then nobody uses the context any more. */
	left = fc_drain(fc, FC_S(5));
	if (left) {
		fprintf(log, "warn %d calls do not end; leaving them\n", left);
		fc_dump(fc, fileno(log));
		_Exit(1);
	}
	http_stop(http);
	fc_default_set(NULL);
	fc_destroy(fc);
	fclose(log);
	return 0;
}
