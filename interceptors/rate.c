/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rate.c - so many calls in a time: the interceptor, its conf, and calls without a guard; a total.
 *
 * rate_bucket.c and rate_window.c have the other kinds' algorithms, bounds and costs.
 *
 * total    One word counts up to `total`. Bound: exactly that, for ever; a reload that raises it adds the
 *          difference. Cost: one compare-and-swap of a shared line; a refusal reads it.
 * Units.   Tokens; ns on the context's clock; in buckets 2^-16 of a token.
 * Reload.  All state stays: tokens, counts, what is reserved. A kind that comes later finds its words as
 *          it left them, or as at first.
 */
#include <errno.h>
#include <string.h>

#include "rate_state.h"

#define PERIOD_MAX_NS (366ull * 86400 * FC_S(1))
#define LEASE_MAX     256u   /* what a lane's word holds */
#define LEASE_MIN     8u     /* less is not worth a lane */
#define SPREAD_MAX_NS FC_MS(1)

#define TAKEN_FLAG    (1u << 16) /* in the cell; below it where a window counted the call */

/* ---- a total ----------------------------------------------------------------------------------- */

static int total_check(struct fc_call *c)
{
	uint64_t used = get(&((struct rate_state *)c->state)->used), total = ((const struct fc_rate_conf *)c->conf)->total;

	return used <= total && c->weight <= total - used ? 0 : refuse(c, used, total, 0);
}

static int total_take(struct fc_call *c)
{
	uint64_t *used = &((struct rate_state *)c->state)->used, was = get(used);
	uint64_t total = ((const struct fc_rate_conf *)c->conf)->total;

	do {
		if (was > total || c->weight > total - was)
			return refuse(c, was, total, 0);
	} while (!swap(used, &was, was + c->weight));
	return 0;
}

static void total_give(struct fc_call *c)
{
	uint64_t *used = &((struct rate_state *)c->state)->used, was = get(used);

	while (!swap(used, &was, was > c->weight ? was - c->weight : 0))
		;
}

/* ---- conf -------------------------------------------------------------------------------------- */

/* num / den as mult / 2^shift, mult of 63 bits. num / den is between 2^-60 and 2^60. */
static void ratio(uint64_t num, uint64_t den, int up, uint64_t *mult, uint32_t *shift)
{
	uint64_t q = num / den, rest = num % den;

	for (*shift = 0; q < 1ull << 62 && *shift < 126; (*shift)++) {
		rest *= 2; /* den is under 2^63 */
		q = q * 2 + (rest >= den);
		rest -= rest >= den ? den : 0;
	}
	*mult = q + (up && rest);
}

static uint64_t tokens_in(const struct fc_rate *r, uint64_t ns)
{
	wide n = (wide)r->n * ns / r->per_ns;

	return n > FC_RATE_TOKENS_MAX ? FC_RATE_TOKENS_MAX + 1 : (uint64_t)n;
}

static int is_window(const struct fc_rate_conf *conf)
{
	return conf->kind == FC_RATE_FIXED || conf->kind == FC_RATE_SLIDING;
}

static uint64_t default_burst(const struct fc_rate_conf *conf)
{
	uint64_t n = tokens_in(&conf->limit, conf->kind == FC_RATE_WARM_UP ? FC_MS(10) : FC_S(1));

	if (conf->kind == FC_RATE_LEAKY)
		return 1;
	if (conf->refill == FC_RATE_STEPS || n > conf->limit.n)
		n = conf->limit.n;
	return n ? n : 1;
}

static void defaults(struct fc_rate_conf *conf)
{
	if (conf->burst == 0 && conf->limit.per_ns)
		conf->burst = default_burst(conf);
	if (conf->initial == 0 && conf->start == FC_RATE_FULL)
		conf->initial = conf->burst;
	if (conf->warm_up_ns == 0)
		conf->warm_up_ns = FC_S(10);
	if (conf->cold_factor_permille == 0)
		conf->cold_factor_permille = 3000;
}

/* What is wrong, as a sentence; NULL: nothing. */
static const char *wrong_rate(const struct fc_rate_conf *conf)
{
	const struct fc_rate *r = &conf->limit;

	if (r->n == 0 || r->per_ns == 0)
		return "limit is 0: it must say how many in which time (to let nobody in, set the cap to refuse all)";
	if (r->per_ns > PERIOD_MAX_NS)
		return "the period of limit is over 366 days";
	if (r->n > 1ull << 47 || r->n > r->per_ns)
		return "limit is over 10^9 per second, or n over 2^47";
	if (conf->kind == FC_RATE_SLIDING && (r->n > 0xffffff || r->per_ns < FC_US(1)))
		return "limit of a sliding window has n over 16777215 or a period under 1 us: take another period";
	return NULL;
}

static const char *wrong(const struct fc_rate_conf *conf)
{
	const char *text = conf->kind == FC_RATE_TOTAL ? NULL : wrong_rate(conf);
	int buckets = conf->kind == FC_RATE_BUCKET || conf->kind == FC_RATE_LEAKY;

	if (conf->kind > FC_RATE_TOTAL)
		return "kind is unknown: bucket, fixed, sliding, leaky, warm_up or total";
	if (text)
		return text;
	if (conf->kind == FC_RATE_TOTAL && conf->total == 0)
		return "total is 0: it must say how many in all";
	if (conf->kind != FC_RATE_TOTAL && conf->total != 0)
		return "total is set, which only kind total has";
	if (conf->burst && (is_window(conf) || conf->kind == FC_RATE_TOTAL))
		return "burst is set, which windows and totals have not";
	if (conf->burst > FC_RATE_TOKENS_MAX || conf->initial > FC_RATE_TOKENS_MAX)
		return "burst or initial is over 2^44";
	if (conf->refill > FC_RATE_STEPS || (conf->refill && conf->kind != FC_RATE_BUCKET))
		return "refill in steps is for kind bucket";
	if (conf->start > FC_RATE_EMPTY)
		return "start is unknown: full or empty";
	if (conf->max_wait_ns && !buckets)
		return "max_wait is for kinds bucket and leaky";
	if (conf->max_wait_ns && tokens_in(&conf->limit, conf->max_wait_ns) > FC_RATE_TOKENS_MAX)
		return "more than 2^44 tokens come in max_wait";
	if (conf->warm_up_ns > FC_S(3600) || (conf->warm_up_ns && conf->warm_up_ns < FC_MS(1)))
		return "warm_up is not between 1 ms and 1 h";
	if (conf->cold_factor_permille && (conf->cold_factor_permille < 1001 || conf->cold_factor_permille > 100000))
		return "cold_factor is not between 1.001 and 100";
	return NULL;
}

static void make_lanes(const struct fc_rate_conf *conf, struct made *k, uint32_t cpus)
{
	uint32_t lanes = cpus < LANES_MAX ? cpus : LANES_MAX;
	uint64_t lease = conf->burst / 4 / lanes, ns;

	if (conf->lease && conf->lease < conf->burst / lanes / 2)
		lease = conf->lease;
	if (lease > LEASE_MAX)
		lease = LEASE_MAX;
	if (conf->kind == FC_RATE_LEAKY || conf->lease == FC_RATE_NO_LEASE || (lease < LEASE_MIN && !conf->lease) || !lease)
		return;
	k->lanes = lanes;
	k->lease = UNITS(lease);
	k->common -= lanes * k->lease;
	ns = k->full_ns / 4 < SPREAD_MAX_NS ? k->full_ns / 4 : SPREAD_MAX_NS;
	k->spread_us = (uint32_t)(ns / 1000);
}

static void make_warm_up(const struct fc_rate_conf *conf, struct made *k)
{
	double cf = conf->cold_factor_permille / 1000.0, tokens;

	k->stable_ns = (double)conf->limit.per_ns / (double)conf->limit.n;
	tokens = (double)conf->warm_up_ns / k->stable_ns;
	k->cold_from = tokens / (cf - 1);
	k->cold_max = k->cold_from + 2 * tokens / (1 + cf);
	k->slope = (cf - 1) * k->stable_ns / (k->cold_max - k->cold_from);
}

static void make(const struct fc_rate_conf *conf, struct made *k, uint32_t cpus)
{
	const struct fc_rate *r = &conf->limit;
	wide ns;

	if (is_window(conf))
		k->slot_ns = conf->kind == FC_RATE_FIXED ? r->per_ns : (r->per_ns + SLOTS - 1) / SLOTS;
	if (is_window(conf) || conf->kind == FC_RATE_TOTAL)
		return;
	ratio(r->n << UNIT_BITS, r->per_ns, 1, &k->mult, &k->shift);
	ratio(r->per_ns, r->n << UNIT_BITS, 0, &k->inv_mult, &k->inv_shift);
	make_warm_up(conf, k);
	k->cap = k->common = UNITS(conf->burst);
	k->wait = conf->max_wait_ns ? UNITS(tokens_in(r, conf->max_wait_ns + (conf->refill ? r->per_ns : 0)) + 1) : 0;
	if (conf->max_wait_ns && !conf->refill)
		k->wait = (int64_t)((wide)conf->max_wait_ns * k->mult >> k->shift);
	ns = ((wide)(uint64_t)(k->cap + k->wait) * k->inv_mult >> k->inv_shift) + 1;
	if (conf->refill == FC_RATE_STEPS)
		ns += r->per_ns;
	if (conf->kind == FC_RATE_WARM_UP)
		ns = ns * conf->cold_factor_permille / 1000 + 1;
	k->full_ns = ns < INFINITE_NS ? (uint64_t)ns : INFINITE_NS;
	make_lanes(conf, k, cpus);
}

static uint64_t rate_state_size(const void *conf, uint32_t cpus)
{
	(void)conf;
	return sizeof(struct rate_state) + (uint64_t)LANE_BYTES * (cpus < LANES_MAX ? cpus : LANES_MAX);
}

/* Before other numbers come. It changes nothing that a call now would not. */
static int catch_up(struct fc_call *c, void *arg)
{
	const struct fc_rate_conf *conf = c->conf;

	(void)arg;
	if (!is_window(conf) && conf->kind != FC_RATE_TOTAL)
		fci_rate_bucket_settle(c);
	return 0;
}

static int rate_setup(struct fc_setup *setup)
{
	struct fc_rate_conf *conf = setup->conf;
	const char *text = wrong(conf);
	struct fc_call c = { .iface = setup->iface, .state = setup->state, .conf = conf, .now_ns = setup->now_ns };
	struct made k = { 0 };

	if (text) {
		fc_iface_log(setup->iface, setup->rule, "%s", text);
		return -EINVAL;
	}
	defaults(conf);
	make(conf, &k, setup->cpus ? setup->cpus : 1);
	memcpy(conf->made_, &k, sizeof(k));
	if (!setup->first) {
		(void)fc_iface_with(setup->iface, &fc_interceptor_rate, setup->rule, catch_up, NULL);
		return 0;
	}
	put(&((struct rate_state *)setup->state)->time, setup->now_ns);
	put(&((struct rate_state *)setup->state)->common.time, setup->now_ns);
	if (!is_window(conf) && conf->kind != FC_RATE_TOTAL)
		fci_rate_bucket_begin(&c, conf->initial);
	return 0;
}

/* As fine as it must be for the burst not to run over between two ticks of the clock. */
static uint64_t rate_resolution_ns(const void *conf)
{
	const struct fc_rate_conf *r = conf;
	wide ns;

	if (r->kind == FC_RATE_TOTAL)
		return 0;
	if (is_window(r))
		ns = made_of(r)->slot_ns / (r->kind == FC_RATE_FIXED ? 64 : 1);
	else if (r->refill == FC_RATE_STEPS)
		ns = r->limit.per_ns / 4;
	else
		ns = (wide)r->burst * r->limit.per_ns / r->limit.n / 4;
	return ns == 0 ? 1 : ns < FC_S(1) ? (uint64_t)ns : FC_S(1);
}

/* ---- the interceptor --------------------------------------------------------------------------- */

static int rate_check(struct fc_call *c)
{
	const struct fc_rate_conf *conf = c->conf;

	if (lane_look(c))
		return 0;
	if (is_window(conf))
		return fci_rate_window_check(c);
	return conf->kind == FC_RATE_TOTAL ? total_check(c) : fci_rate_bucket_check(c);
}

static int take(struct fc_call *c, uint32_t *at)
{
	const struct fc_rate_conf *conf = c->conf;

	*at = 0;
	if (lane_take(c))
		return 0;
	if (is_window(conf))
		return fci_rate_window_take(c, at);
	return conf->kind == FC_RATE_TOTAL ? total_take(c) : fci_rate_bucket_take(c);
}

static void give(struct fc_call *c, uint32_t at)
{
	const struct fc_rate_conf *conf = c->conf;

	if (is_window(conf))
		fci_rate_window_give(c, at);
	else if (conf->kind == FC_RATE_TOTAL)
		total_give(c);
	else
		fci_rate_bucket_give(c);
}

static int rate_pre(struct fc_call *c)
{
	uint32_t at;
	int rc = take(c, &at);

	if (rc == 0)
		fc_cell_set(c, 0, TAKEN_FLAG | at);
	return rc;
}

static void rate_undo(struct fc_call *c)
{
	uint32_t cell = fc_cell_get(c, 0);

	if (cell & TAKEN_FLAG)
		give(c, cell & UINT16_MAX);
}

#define FIELD(name_, type_, member_, min_, max_, help_, ...) \
	{ .name = name_, .type = type_, .offset = offsetof(struct fc_rate_conf, member_), .min = min_, .max = max_, \
	  .help = help_, __VA_ARGS__ }

static const char *const kinds[] = { "bucket", "fixed", "sliding", "leaky", "warm_up", "total" };
static const char *const refills[] = { "continuous", "steps" };
static const char *const starts[] = { "full", "empty" };

static const struct fc_field fields[] = {
	FIELD("limit", FC_FIELD_RATE, limit, 1, 1ull << 47, "how many in which time", .def = 0),
	FIELD("kind", FC_FIELD_CHOICE, kind, 0, 5, "how it is counted", .choices = kinds, .n_choices = 6),
	FIELD("burst", FC_FIELD_COUNT64, burst, 1, FC_RATE_TOKENS_MAX, "tokens that are kept for a rush", .def = 0),
	FIELD("refill", FC_FIELD_CHOICE, refill, 0, 1, "tokens come steadily, or n at once each period",
	      .choices = refills, .n_choices = 2),
	FIELD("start", FC_FIELD_CHOICE, start, 0, 1, "the bucket at first", .choices = starts, .n_choices = 2),
	FIELD("initial", FC_FIELD_COUNT64, initial, 1, FC_RATE_TOKENS_MAX, "tokens in the bucket at first", .def = 0),
	FIELD("max_wait", FC_FIELD_DURATION, max_wait_ns, 0, PERIOD_MAX_NS, "a call may sleep so long for its tokens",
	      .def = 0),
	FIELD("warm_up", FC_FIELD_DURATION, warm_up_ns, FC_MS(1), FC_S(3600), "time from cold to the full rate",
	      .def = FC_S(10)),
	FIELD("cold_factor", FC_FIELD_FACTOR, cold_factor_permille, 1001, 100000, "rate over the rate when cold",
	      .def = 3000),
	FIELD("total", FC_FIELD_COUNT64, total, 1, UINT64_MAX, "how many in all, for kind total", .def = 0),
	FIELD("lease", FC_FIELD_COUNT32, lease, 0, UINT32_MAX,
	      "part of burst that each CPU keeps for itself; unlimited: none", .def = 0),
};

const struct fc_interceptor fc_interceptor_rate = {
	.size = sizeof(struct fc_interceptor),
	.order = FC_ORDER_RATE,
	.name = "rate",
	.conf_bytes = sizeof(struct fc_rate_conf),
	.cells = 1,
	.reason = FC_REFUSED_RATE,
	.state_size = rate_state_size,
	.resolution_ns = rate_resolution_ns,
	.setup = rate_setup,
	.check = rate_check,
	.pre = rate_pre,
	.undo = rate_undo,
	.fields = fields,
	.n_fields = sizeof(fields) / sizeof(fields[0]),
};

/* ---- for code that is no guarded call ---------------------------------------------------------- */

struct ask {
	uint64_t max_wait_ns;
	uint32_t n;
	struct fc_rate_hold *hold;
	int64_t tokens;
};

static int reserve(struct fc_call *c, void *arg)
{
	struct ask *a = arg;
	uint32_t at;
	int rc;

	c->weight = a->n;
	c->delay_ns = 0;
	c->max_delay_ns = a->max_wait_ns;
	rc = take(c, &at);
	if (rc == 0)
		*a->hold = (struct fc_rate_hold){ .delay_ns = c->delay_ns, .n = a->n, .at_ = at };
	return rc;
}

static int cancel(struct fc_call *c, void *arg)
{
	struct ask *a = arg;

	c->weight = a->hold->n;
	give(c, a->hold->at_ & UINT16_MAX);
	a->hold->n = 0;
	return 0;
}

static int available(struct fc_call *c, void *arg)
{
	const struct fc_rate_conf *conf = c->conf;
	struct ask *a = arg;
	uint64_t limit = conf->kind == FC_RATE_TOTAL ? conf->total : conf->limit.n, used;

	if (is_window(conf) || conf->kind == FC_RATE_TOTAL) {
		used = is_window(conf) ? fci_rate_window_used(c) : get(&((struct rate_state *)c->state)->used);
		used = used < limit ? limit - used : 0;
		a->tokens = used < INT64_MAX ? (int64_t)used : INT64_MAX;
		return 0;
	}
	a->tokens = fci_rate_bucket_has(c);
	return 0;
}

int fc_rate_reserve(struct fc_iface *iface, const char *rule, uint32_t n, uint64_t max_wait_ns,
                    struct fc_rate_hold *ret_hold)
{
	struct ask a = { .max_wait_ns = max_wait_ns, .n = n, .hold = ret_hold };

	return n && ret_hold ? fc_iface_with(iface, &fc_interceptor_rate, rule, reserve, &a) : -EINVAL;
}

int fc_rate_try(struct fc_iface *iface, const char *rule, uint32_t n)
{
	struct fc_rate_hold hold;

	return fc_rate_reserve(iface, rule, n, 0, &hold);
}

int fc_rate_cancel(struct fc_iface *iface, const char *rule, struct fc_rate_hold *hold)
{
	struct ask a = { .hold = hold };

	return hold && hold->n ? fc_iface_with(iface, &fc_interceptor_rate, rule, cancel, &a) : -EINVAL;
}

int fc_rate_available(struct fc_iface *iface, const char *rule, int64_t *ret_tokens)
{
	struct ask a = { .tokens = 0 };
	int rc = ret_tokens ? fc_iface_with(iface, &fc_interceptor_rate, rule, available, &a) : -EINVAL;

	if (rc == 0)
		*ret_tokens = a.tokens;
	return rc;
}
