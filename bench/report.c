/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report.c - the harness's command line, its markdown and its JSON. See bench.h.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *json;
static uint32_t json_objects;

static void usage(const char *name, int status)
{
	fprintf(status ? stderr : stdout,
	        "usage: %s [--quick] [--json FILE] [--only NAME,...] [--threads N,...]\n"
	        "       [--rounds N] [--ms N] [--count N]\n",
	        name);
	exit(status);
}

static uint64_t number(const char *what, const char *text, uint64_t max)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || *end || v < 1 || v > max || text[0] == '-')
		bench_die("--%s %s: a number from 1 to %llu is wanted", what, text, (unsigned long long)max);
	return v;
}

static void thread_list(struct bench_opts *o, const char *text)
{
	char copy[128], *save = NULL;
	uint32_t n = 0;

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *p = strtok_r(copy, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		if (n + 1 == sizeof(o->threads) / sizeof(o->threads[0]))
			bench_die("--threads %s: too many", text);
		o->threads[n++] = (uint32_t)number("threads", p, BENCH_THREADS_MAX);
	}
	o->threads[n] = 0;
}

void bench_args(struct bench_opts *o, int argc, char **argv)
{
	static const struct option options[] = {
		{ "quick", no_argument, NULL, 'q' },      { "json", required_argument, NULL, 'j' },
		{ "only", required_argument, NULL, 'o' }, { "threads", required_argument, NULL, 't' },
		{ "rounds", required_argument, NULL, 'r' }, { "ms", required_argument, NULL, 'm' },
		{ "count", required_argument, NULL, 'c' }, { "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	memset(o, 0, sizeof(*o));
	o->json = getenv("FC_BENCH_JSON");
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'q': o->quick = true; break;
		case 'j': o->json = optarg; break;
		case 'o': o->only = optarg; break;
		case 't': thread_list(o, optarg); break;
		case 'r': o->rounds = (uint32_t)number("rounds", optarg, BENCH_ROUNDS_MAX); break;
		case 'm': o->ms = (uint32_t)number("ms", optarg, 60000); break;
		case 'c': o->count = number("count", optarg, UINT64_MAX); break;
		case 'h': usage(argv[0], 0); break;
		default: usage(argv[0], 2);
		}
	}
	if (optind != argc)
		usage(argv[0], 2);
	if (!o->threads[0])
		thread_list(o, o->quick ? "1,2" : "1,2,8,64");
	if (!o->rounds)
		o->rounds = o->quick ? 15 : 21;
	if (!o->ms)
		o->ms = o->quick ? 25 : 40;
}

bool bench_wanted(const struct bench_opts *o, const char *name)
{
	size_t len = strlen(name);
	const char *p = o->only;

	if (!p)
		return true;
	for (; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, name, len) && (p[len] == ',' || !p[len]))
			return true;
	return false;
}

void bench_heading(const char *what)
{
	printf("\n### %s\n\n", what);
}

static void busy_warning(const struct bench_result *r, uint32_t n)
{
	double worst = 0;

	for (uint32_t i = 0; i < n; i++)
		if (r[i].c.threads <= bench_cpus() && r[i].med_delay > worst)
			worst = r[i].med_delay;
	if (worst > 0.05)
		printf("\nThe machine was busy: some loops waited %.0f %% of their time for a CPU. Figures for "
		       "several threads are too good then.\n",
		       100 * worst);
}

void bench_print(const struct bench_result *r, uint32_t n)
{
	printf("| subject | threads | ns | x PAIR | admitted | ns, worst round | growth |\n"
	       "|---|--:|--:|--:|--:|--:|--:|\n");
	for (uint32_t i = 0; i < n; i++) {
		printf("| %s | %u | %.2f | %.2f | %.0f %% | %.2f | ", r[i].subject->name, r[i].c.threads,
		       r[i].med_ns, r[i].med_ratio, 100 * r[i].med_admit, r[i].worst_ns);
		if (r[i].growth_ns > 0)
			printf("%.2f |\n", r[i].growth_ns);
		else
			printf("|\n");
	}
	busy_warning(r, n);
	fflush(stdout);
}

void bench_json_open(const struct bench_opts *o)
{
	if (!o->json)
		return;
	json = fopen(o->json, "w");
	if (!json)
		bench_die("%s: %s", o->json, strerror(errno));
	fputs("[\n", json);
}

void bench_json_value(const char *name, uint32_t threads, double ns, double ratio_to_pair,
                      const char *key, double value)
{
	if (!json)
		return;
	fprintf(json, "%s{\"name\": \"%s\", \"threads\": %u, \"ns\": %.3f, \"ratio_to_pair\": %.4f",
	        json_objects++ ? ",\n" : "", name, threads, ns, ratio_to_pair);
	if (key)
		fprintf(json, ", \"%s\": %.4f", key, value);
	fputc('}', json);
}

void bench_json(const struct bench_result *r)
{
	if (r->extra_name)
		bench_json_value(r->subject->name, r->c.threads, r->med_ns, r->med_ratio, r->extra_name,
		                 r->extra);
	else
		bench_json_value(r->subject->name, r->c.threads, r->med_ns, r->med_ratio,
		                 r->growth_ns > 0 ? "growth" : NULL, r->growth_ns);
}

void bench_json_close(void)
{
	if (!json)
		return;
	fputs("\n]\n", json);
	if (fclose(json))
		bench_die("writing JSON: %s", strerror(errno));
	json = NULL;
}

void bench_list(int argc, char **argv, const char *heading, const struct bench_subject *subjects, size_t n)
{
	const struct bench_subject *list[BENCH_SUBJECTS_MAX];
	const struct bench_case c = { 0 };
	struct bench_result *r;
	struct bench_opts o;
	uint32_t wanted = 0, got;

	bench_args(&o, argc, argv);
	for (size_t i = 0; i < n; i++)
		if (bench_wanted(&o, subjects[i].name))
			list[wanted++] = &subjects[i];
	if (o.count) {
		bench_count(&o, list, wanted);
		return;
	}
	bench_json_open(&o);
	if (wanted) {
		r = bench_rounds(&o, list, wanted, &c, &got);
		bench_heading(heading);
		bench_print(r, got);
		for (uint32_t i = 0; i < got; i++)
			if (bench_wanted(&o, r[i].subject->name))
				bench_json(&r[i]);
		free(r);
	}
	bench_json_close();
}
