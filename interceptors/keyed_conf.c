/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keyed_conf.c - what a conf of keyed may say, and the table that it asks for.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#include <fcguard/err.h>
#include <fcguard/time.h>

#include "keyed_state.h"

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 2;

	while (p < n)
		p *= 2;
	return p;
}

/* Buckets that a conf asks for; of numbers that setup refuses, those of the default. */
static void sizes(const struct fc_keyed_conf *conf, uint32_t *ret_buckets, uint32_t *ret_o_buckets)
{
	uint32_t places = conf->places && conf->places <= FC_KEYED_PLACES_MAX ? conf->places : PLACES;
	uint32_t n = conf->max_overrides;

	n = n && n <= FC_KEYED_OVERRIDES_MAX ? n : OVERRIDES;
	*ret_buckets = power_of_two((places + WAYS - 1) / WAYS);
	*ret_o_buckets = power_of_two((n / 2 * 3 + WAYS + 1) / (WAYS - 1));
}

uint64_t fci_keyed_state_size(const void *conf, uint32_t cpus)
{
	uint32_t buckets, o_buckets;

	(void)cpus;
	sizes(conf, &buckets, &o_buckets);
	return bytes_of(buckets, o_buckets);
}

static int bad(const struct fc_setup *s, int error, const char *what, uint64_t found, const char *allowed)
{
	fc_iface_log(s->iface, s->rule, "%s: %llu; allowed: %s", what, (unsigned long long)found, allowed);
	return error;
}

static int check_conf(const struct fc_setup *s, const struct fc_keyed_conf *conf)
{
	if (!conf->label || !*conf->label) {
		fc_iface_log(s->iface, s->rule, "label: none; allowed: the name of a label");
		return -EINVAL;
	}
	if (conf->places && (conf->places < PLACES_MIN || conf->places > FC_KEYED_PLACES_MAX))
		return bad(s, -ERANGE, "places", conf->places, "1024 to 4194304");
	if (conf->max_overrides > FC_KEYED_OVERRIDES_MAX)
		return bad(s, -ERANGE, "max_overrides", conf->max_overrides, "1 to 4194304");
	if (conf->lease_ns && conf->lease_ns < FC_S(1))
		return bad(s, -ERANGE, "lease in ns", conf->lease_ns, "1 s or more");
	if (conf->without > FC_KEYED_WITHOUT_SHARED)
		return bad(s, -EINVAL, "without", conf->without, "admit (0), refuse (1), shared (2)");
	if (conf->overflow > FC_KEYED_REFUSE)
		return bad(s, -EINVAL, "overflow", conf->overflow, "admit (0), refuse (1)");
	return 0;
}

static int is_power_of_two(uint32_t n)
{
	return n >= 2 && (n & (n - 1)) == 0;
}

static int sizes_fit(const struct head *h, uint64_t bytes)
{
	return bytes >= sizeof(*h) && is_power_of_two(h->buckets) && is_power_of_two(h->o_buckets) &&
	       h->buckets <= FC_KEYED_PLACES_MAX / WAYS && bytes_of(h->buckets, h->o_buckets) <= bytes;
}

/*
 * Nobody outside may know it: so nobody can choose keys that all want the same bucket. Where there is no
 * random number to be had, it is made of where this process has its memory, and of the time.
 */
static uint64_t new_seed(const struct fc_setup *s)
{
	char text[96];
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == (ssize_t)sizeof(seed))
		return seed;
	snprintf(text, sizeof(text), "%p %p %p %llu", (void *)text, s->state, s->conf, (unsigned long long)s->now_ns);
	return fc_label("", text).value;
}

/* A new table, of nobody yet. */
static void begin(const struct fc_setup *s, struct made *m)
{
	const struct head *was = s->was;
	struct head *h = s->state;

	sizes(s->conf, &h->buckets, &h->o_buckets);
	h->seed = new_seed(s);
	if (!was || !sizes_fit(was, s->was_bytes))
		return;
	h->seed = was->seed;
	h->newest = get(&was->newest);
	m->was = was;
	m->was_mask = was->buckets - 1;
	fci_keyed_carry(was, was->buckets, was->o_buckets, h);
}

int fci_keyed_setup(struct fc_setup *s)
{
	struct fc_keyed_conf *conf = s->conf;
	const struct fc_keyed_numbers numbers = { conf->limit, conf->burst, conf->cap, 0 };
	struct made m = { .lease_ns = conf->lease_ns ? conf->lease_ns : LEASE_NS };
	struct head *h = s->state;
	uint32_t buckets, o_buckets;
	const char *what;
	uint64_t packed;
	int rc = check_conf(s, conf);

	if (rc < 0)
		return rc;
	rc = fci_keyed_pack(&numbers, &packed, &what);
	if (rc < 0) {
		fc_iface_log(s->iface, s->rule, "limit %llu per %llu ns, burst %llu, cap %u; allowed: %s",
		             (unsigned long long)conf->limit.n, (unsigned long long)conf->limit.per_ns,
		             (unsigned long long)conf->burst, conf->cap, what);
		return rc;
	}
	if (s->first)
		begin(s, &m);
	if (!sizes_fit(h, s->state_bytes))
		return bad(s, -EINVAL, "its table is spoilt: buckets", h->buckets, "what was set up");
	sizes(conf, &buckets, &o_buckets);
	if (buckets > h->buckets || o_buckets > h->o_buckets)
		fc_iface_log(s->iface, s->rule, "keeps its %u places, and room for %u overrides: a rule of another "
		             "name has other sizes", h->buckets * WAYS, h->o_buckets * (WAYS - 1) / 3 * 2);
	fci_keyed_unpack(packed, &m.numbers);
	m.label = fc_label(conf->label, "").key;
	m.b_mask = h->buckets - 1;
	m.o_mask = h->o_buckets - 1;
	*made_of(conf) = m;
	conf->label = NULL; /* it is the caller's */
	return 0;
}
