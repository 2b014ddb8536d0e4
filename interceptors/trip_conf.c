/* SPDX-License-Identifier: BSD-2-Clause */
/* trip_conf.c - numbers of breaker and degrade: bounds, defaults, what is made of them. See trip.h. */
#include "trip.h"

static int between(uint64_t v, uint64_t min, uint64_t max)
{
	return v == 0 || (v >= min && v <= max); /* 0: the default */
}

static const char *wrong_times(const struct fc_breaker_conf *conf)
{
	if (!between(conf->window_ns, FC_MS(100), FC_S(600)))
		return "window is not between 100 ms and 10 min";
	if (!between(conf->slow_ns, 1, FC_S(3600)))
		return "slow is over 1 h";
	if (!between(conf->open_ns, FC_MS(2), FC_S(3600)))
		return "open is not between 2 ms and 1 h";
	if (!between(conf->max_open_ns, conf->open_ns ? conf->open_ns : FC_S(5), FC_S(3600)))
		return "max_open is not between open and 1 h";
	if (!between(conf->ramp_ns, FC_MS(10), FC_S(3600)))
		return "ramp is not between 10 ms and 1 h";
	if (!between(conf->lease_ns, FC_MS(10), FC_S(3600)))
		return "lease is not between 10 ms and 1 h";
	return NULL;
}

const char *fci_trip_wrong(const struct fc_breaker_conf *conf)
{
	const char *text = wrong_times(conf);

	if (text)
		return text;
	if (conf->window_ns && conf->window_calls)
		return "both window and window_calls are set: it counts over a time or over so many calls";
	if (!between(conf->window_calls, 10, 1000000))
		return "window_calls is not between 10 and 1000000";
	if (conf->min_calls > 1000000 || (conf->window_calls && conf->min_calls > conf->window_calls))
		return "min_calls is over 1000000, or over window_calls";
	if (conf->error_permille > 1000 || conf->slow_permille > 1000 || conf->ramp_from_permille > 1000)
		return "errors_ratio, slow_ratio or ramp_from is over 100 %";
	if (conf->slow_permille && !conf->slow_ns)
		return "slow_ratio is set without slow: from which time on is a call slow?";
	if (conf->slow_ns && !conf->slow_permille)
		return "slow is set without slow_ratio: how many may be slow?";
	if (conf->recover > FC_RECOVER_RAMP)
		return "recover is unknown: successes, at_once or ramp";
	if (!between(conf->backoff_permille, 1000, 10000))
		return "backoff is not between 1x and 10x";
	if (conf->probes > FC_BREAKER_PROBES_MAX || conf->successes > 10000)
		return "probes is over 64, or successes over 10000";
	return NULL;
}

static void defaults(struct fc_breaker_conf *conf)
{
	if (!conf->window_ns)
		conf->window_ns = FC_S(10);
	if (!conf->min_calls)
		conf->min_calls = conf->window_calls && conf->window_calls < 20 ? conf->window_calls : 20;
	if (!conf->open_ns)
		conf->open_ns = FC_S(5);
	if (!conf->max_open_ns)
		conf->max_open_ns = conf->open_ns > FC_S(60) ? conf->open_ns : FC_S(60);
	if (!conf->backoff_permille)
		conf->backoff_permille = 2000;
	if (!conf->probes)
		conf->probes = 3;
	if (!conf->successes)
		conf->successes = conf->probes;
	if (!conf->ramp_from_permille)
		conf->ramp_from_permille = 100;
	if (!conf->ramp_ns)
		conf->ramp_ns = FC_S(30);
	if (!conf->lease_ns)
		conf->lease_ns = 2 * conf->slow_ns > FC_S(10) ? 2 * conf->slow_ns : FC_S(10);
}

static void make_open(const struct fc_breaker_conf *conf, struct trip_numbers *m)
{
	uint64_t ns = conf->open_ns;

	for (uint32_t i = 0; i < TRIP_STEPS; i++) {
		m->open_u[i] = (uint32_t)UNITS_UP(ns);
		ns = ns / 1000 * conf->backoff_permille;
		if (ns > conf->max_open_ns)
			ns = conf->max_open_ns;
	}
}

void fci_trip_make(struct fc_breaker_conf *conf, uint32_t cpus)
{
	struct trip_numbers *m = (struct trip_numbers *)(void *)conf->made_;

	defaults(conf);
	*m = (struct trip_numbers){ 0 };
	fci_window_make(&m->window, conf->window_ns, conf->window_calls, cpus);
	m->min_calls = conf->min_calls;
	m->failed_permille = conf->error_permille;
	m->failed_most = conf->errors;
	m->slow_permille = conf->slow_permille;
	m->probes = conf->probes;
	m->successes = conf->recover == FC_RECOVER_AT_ONCE ? 1 : conf->successes;
	m->ramp_from = conf->ramp_from_permille * 65536u / 1000;
	m->ramp_u = (uint32_t)UNITS_UP(conf->ramp_ns);
	m->lease_u = (uint32_t)UNITS_UP(conf->lease_ns);
	m->ramps = conf->recover == FC_RECOVER_RAMP;
	make_open(conf, m);
}

uint64_t fci_trip_bytes(uint32_t cpus)
{
	return sizeof(struct trip) + fci_window_bytes(cpus);
}
