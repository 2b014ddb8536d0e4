/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * adaptive.c - a limit that finds its place. See adaptive.h.
 *
 *   post    counts the call: latency (as a logarithm), places, outcome. The CPU's own line, plain stores.
 *   full    callers are being refused.
 *   tick    when the window is over, asks the law (adaptive_law.c) for a limit, and sets it.
 *
 * Worth.   A higher limit is worth it when throughput follows it, a lower one when throughput does not: it
 *          must change by 0.3 of the step (in logarithms). Before the knee it changes by 1, behind it by 0;
 *          latency does the contrary (Little's law), so that this is what maximises X^(1/0.3 - 1) / R, of
 *          throughput X and latency R. Nothing of it needs to know the latency of an unloaded server, so a
 *          dependency that has become slower is not taken for overload.
 * Steps.   Only while callers are refused; so a server with room is never touched. Typical latency near
 *          the unloaded one: up, by 5 to 25 %, at least one place. Latency suspect (tolerance): down by
 *          the root of the excess, 13 to 50 %; small steps of 25 % up and down now and then. Steps down and
 *          small ones are experiments: throughput at the tried limit is compared with that before, over 1 to 4
 *          windows (of few calls, up to 32), until the gain is 2.5 standard deviations off 0 or the sign has to do.
 *          Where chance is large steps are, too, up to twofold: the gain of a small one could not be told. One that is not
 *          worth it is undone, and the next comes later, up to 64 windows. One down that is goes on downwards
 *          until one is undone. Of a step down during which nobody was refused nothing is concluded.
 * Unloaded latency.  Only says where to look. It falls with what is seen; it rises by itself while
 *          nobody is refused and half of the places are free, else only to what an undone step down has seen
 *          (fewer calls did not make it less, so it was not queueing), and if throughput came back with
 *          the limit: else the world has changed meanwhile, and nothing is concluded.
 * Latency is the mean of logarithms, whose noise is a fraction of the mean's when latencies have
 *          tails or two humps. Of good calls alone: failing fast does not count as being fast.
 * Time-outs (and calls written off), from a share on, lower the limit by it, whatever latency says.
 * Windows. window_ns or 4 mean latencies, after 2 mean latencies of settling when the limit has moved:
 *          what was admitted before the step is not counted for it. Fewer than min_calls: the window goes
 *          on, up to 8 of its length; then it says nothing.
 *
 * Units.   adaptive_law.h; times in ns of the context's clock.
 * Bounds.  min <= limit <= max <= cap. One step a window: down at most to half, up by a quarter or one place.
 *          Without refusals and time-outs the limit does not move.
 * Cost.    post: half a PAIR (bench: adaptive), and the chain reads a fine clock. tick: some us a window.
 * Source.  Power: Kleinrock (1979). Experiments as in cap.c. Chosen by bench/sim_adaptive.c, which has other limits
 *          beside it; bench/README.md says where it loses.
 */
#include <errno.h>
#include <string.h>

#include <fcguard/adaptive.h>
#include <fcguard/context.h>
#include <fcguard/events.h>
#include <fcguard/iface.h>

#include "adaptive_law.h"

#define LIMIT_MAX     FC_CAP_MAX
#define LOG_ONE       256u       /* post counts logarithms in 1/256 */
#define UNIT_SHIFT    10         /* and latencies in 1024 ns */
#define LATENCY_MAX   FC_S(3600) /* of one call */
#define WINDOW_MAX_NS FC_S(60)
#define EXTEND        8u
#define TELL_RATIO    1.25
#define SKEW_NS       FC_S(600)  /* a window that lasted longer says nothing */

/* Of one CPU: they only grow, and wrap. */
struct cell {
	_Alignas(FC_STATE_ALIGN) uint64_t good; /* calls that ended well; of them: */
	uint64_t places, logs, squares;
	uint64_t held;                        /* latency * weight, of all */
	uint64_t bad, all;
	uint64_t resv[9];
};
_Static_assert(sizeof(struct cell) == FC_STATE_ALIGN, "no two CPUs on one line, nor on the next");

/* Written by tick alone; full counts. */
struct adaptive_state {
	struct law law;
	uint64_t began;    /* of the window; 0: none */
	uint64_t ends;
	uint64_t length;   /* as planned; then it goes on while calls are too few */
	uint64_t refusals; /* looks by refused callers, that full counts */
	uint64_t refusals_then;
	uint64_t latency_ns; /* mean of the last windows: for how long to wait */
	uint32_t settling; /* 1: the window is not measured */
	uint32_t told;     /* limit that was told last */
	uint64_t typical_ns, per_1000s, unloaded_ns; /* for queries, as are these */
	uint64_t limits, experiments, measured;
	struct cell then;  /* sums when the window began */
	struct cell cell[];
};
_Static_assert(sizeof(struct adaptive_state) <= 512, "adaptive.h tells the size");

/* N1: statistics and numbers that steer: a word does not tear; one that is late is as good. */
static uint64_t get(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void set(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

/* ---- a call ------------------------------------------------------------------------------------ */

/* In 1/256, to 1 %: between powers of two a parabola. */
static uint64_t log_of(uint64_t ns)
{
	uint32_t bit = 63 - (uint32_t)__builtin_clzll(ns | 1), f;

	f = (uint32_t)(bit >= 8 ? ns >> (bit - 8) : ns << (8 - bit)) & 255;
	return (uint64_t)bit * LOG_ONE + f + (88 * f * (256 - f) >> 16);
}

/* A thread that is moved between load and store loses what others have counted here meanwhile: see
 * difference(). */
static void add(uint64_t *p, uint64_t n)
{
	set(p, get(p) + n);
}

static void adaptive_post(struct fc_call *c)
{
	const struct fc_adaptive_conf *conf = c->conf;
	struct adaptive_state *s = c->state;
	struct cell *e = &s->cell[c->cpu < conf->cpus_ ? c->cpu : 0];
	uint64_t ns = c->latency_ns < LATENCY_MAX ? c->latency_ns : LATENCY_MAX;

	add(&e->held, (ns >> UNIT_SHIFT) * c->weight);
	if (c->outcome == FC_OUTCOME_IGNORED)
		return;
	add(&e->all, 1);
	if (c->outcome == FC_OUTCOME_OK) {
		uint64_t log = log_of(ns);

		add(&e->good, 1);
		add(&e->places, c->weight);
		add(&e->logs, log);
		add(&e->squares, log * log);
	} else if (c->outcome == FC_OUTCOME_TIMEOUT || c->outcome == FC_OUTCOME_ABANDONED) {
		add(&e->bad, 1);
	}
}

/* Of a killed process nothing is said. */
static void adaptive_reap(struct fc_call *c)
{
	(void)c;
}

static int adaptive_full(struct fc_call *c)
{
	struct adaptive_state *s = c->state;

	add(&s->refusals, 1);
	return 0;
}

/* ---- windows ----------------------------------------------------------------------------------- */

static void sum(const struct adaptive_state *s, uint32_t cpus, struct cell *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (uint32_t i = 0; i < cpus; i++) {
		const struct cell *e = &s->cell[i];

		ret->good += get(&e->good);
		ret->places += get(&e->places);
		ret->logs += get(&e->logs);
		ret->squares += get(&e->squares);
		ret->held += get(&e->held);
		ret->bad += get(&e->bad);
		ret->all += get(&e->all);
	}
}

/* What the window has counted. 0: counts went back, as a thread that stood still between load and store
 * can make them; then it says nothing. */
static int difference(const struct cell *now, const struct cell *then, struct cell *ret)
{
	ret->good = now->good - then->good;
	ret->places = now->places - then->places;
	ret->logs = now->logs - then->logs;
	ret->squares = now->squares - then->squares;
	ret->held = now->held - then->held;
	ret->bad = now->bad - then->bad;
	ret->all = now->all - then->all;
	return (int64_t)(ret->good | ret->places | ret->logs | ret->squares | ret->held | ret->bad | ret->all) >= 0 &&
	       ret->good + ret->bad <= ret->all + 16;
}

static uint64_t at_least(uint64_t v, uint64_t low, uint64_t high)
{
	v = v > low ? v : low;
	return v < high ? v : high;
}

static void begin_window(struct fc_call *c, struct adaptive_state *s, int settling)
{
	const struct fc_adaptive_conf *conf = c->conf;
	uint64_t ns = s->latency_ns < WINDOW_MAX_NS ? s->latency_ns : WINDOW_MAX_NS;

	sum(s, conf->cpus_, &s->then);
	s->refusals_then = get(&s->refusals);
	s->began = c->now_ns ? c->now_ns : 1;
	s->settling = (uint32_t)settling;
	s->length = settling ? at_least(2 * ns, conf->window_ns / 5, WINDOW_MAX_NS)
	                     : at_least(4 * ns, conf->window_ns, WINDOW_MAX_NS);
	s->ends = c->now_ns + s->length;
}

/* Looks are at most one each check_every, and only by callers that come. */
static double refusing(const struct fc_iface_opts *o, uint64_t looks, uint64_t ns, const struct cell *d)
{
	double most = (double)ns / (double)(o->check_every_ns ? o->check_every_ns : FC_MS(10));
	double share;

	if (looks == 0)
		return 0;
	most = (double)d->all < most ? (double)d->all : most;
	share = most > 1 ? (double)looks / most : 1;
	return share < 1 ? share : 1;
}

static struct law_sample sample_of(const struct fc_iface_opts *o, const struct cell *d, uint64_t looks, uint64_t ns)
{
	struct law_sample r = { .seconds = (double)ns / 1e9, .calls = (double)d->good, .bad_calls = (double)d->bad };

	if (d->good) {
		double mean = (double)d->logs / r.calls;

		r.latency = mean / LOG_ONE;
		r.variance = ((double)d->squares / r.calls - mean * mean) / (LOG_ONE * LOG_ONE);
		r.variance = r.variance > 0 ? r.variance : 0;
	}
	r.throughput = (double)d->places / r.seconds;
	r.inside = (double)d->held * (1 << UNIT_SHIFT) / (double)ns;
	r.bad = d->all ? (double)d->bad / (double)d->all : 0;
	r.refusing = refusing(o, looks, ns, d);
	return r;
}

/* ---- tick -------------------------------------------------------------------------------------- */

static struct law_conf law_conf_of(const struct fc_adaptive_conf *conf, uint32_t cap)
{
	struct law_conf l = {
		.tolerance = fci_law_log2(conf->tolerance_permille / 1000.0), .slack_ns = (double)conf->slack_ns,
		.bad_share = conf->timeout_permille / 1000.0, .bad_weight = conf->timeout_weight_permille / 1000.0,
		.min_calls = conf->min_calls,
	};
	uint32_t max = conf->max && conf->max < cap ? conf->max : cap, min = conf->min ? conf->min : 4;
	uint32_t initial = conf->initial ? conf->initial : 20;

	min = min < max ? min : max;
	initial = initial < min ? min : initial < max ? initial : max;
	l.max = max;
	l.min = min;
	l.initial = initial;
	return l;
}

static void tell(struct fc_call *c, struct adaptive_state *s, uint32_t limit)
{
	if (s->told == 0)
		s->told = limit;
	if (limit <= s->told * TELL_RATIO && limit * TELL_RATIO >= s->told)
		return;
	fc_event_note(c->iface, FC_EVENT_ADAPTED, s->told, limit);
	s->told = limit;
}

/* Put it in force. */
static void apply(struct fc_call *c, struct adaptive_state *s)
{
	const struct fc_adaptive_conf *conf = c->conf;
	uint32_t limit = (uint32_t)s->law.limit;

	if (conf->dry_run_)
		return;
	if (fc_limit_get(c->iface) != limit)
		(void)fc_limit_set(c->iface, limit); /* else it is decided anew by the next tick */
	if (limit == (uint32_t)s->law.base)
		tell(c, s, limit);
}

#define PAIR(a_, b_) ((uint64_t)(a_) << 32 | (uint32_t)(b_))

static void show(struct adaptive_state *s)
{
	set(&s->limits, PAIR(s->law.limit, s->law.base));
	set(&s->experiments, PAIR(s->law.kept, s->law.undone));
	set(&s->measured, s->law.measured);
}

static void publish(struct adaptive_state *s, const struct law_sample *m)
{
	set(&s->typical_ns, (uint64_t)fci_law_exp2(m->latency));
	set(&s->unloaded_ns, (uint64_t)fci_law_exp2(s->law.unloaded));
	set(&s->per_1000s, (uint64_t)(m->throughput * 1000));
}

/* A window is over. 1: it goes on, for more calls. */
static int end_window(struct fc_call *c, struct adaptive_state *s, const struct fc_iface_opts *o,
                      const struct law_conf *lc)
{
	const struct fc_adaptive_conf *conf = c->conf;
	uint64_t ns = c->now_ns - s->began;
	struct law_sample m;
	struct cell now, d;

	sum(s, conf->cpus_, &now);
	if (ns == 0 || ns > SKEW_NS || !difference(&now, &s->then, &d)) {
		fci_law_give_up(&s->law);
		return 0;
	}
	if (d.all)
		s->latency_ns = (d.held << UNIT_SHIFT) / d.all;
	m = sample_of(o, &d, get(&s->refusals) - s->refusals_then, ns);
	if (m.calls < lc->min_calls && m.bad_calls < 3) {
		if (ns < EXTEND * s->length && d.all)
			return 1;
		if (d.all == 0)
			fci_law_give_up(&s->law);
	}
	if (conf->dry_run_)
		s->law.measured++;
	else
		(void)fci_law_window(&s->law, lc, &m);
	if (m.calls > 0)
		publish(s, &m);
	return 0;
}

/* Nothing came and nobody is inside: sleep. */
static int idle(const struct fc_call *c, const struct adaptive_state *s)
{
	const struct fc_adaptive_conf *conf = c->conf;
	struct cell now;

	if (fc_inside(c->iface, NULL) > 0)
		return 0;
	sum(s, conf->cpus_, &now);
	return now.all == s->then.all && get(&s->refusals) == s->refusals_then;
}

static uint64_t adaptive_tick(struct fc_call *c)
{
	FC_OPTS(fc_iface_opts, o, .cap = 0);
	struct adaptive_state *s = c->state;
	struct law_conf lc;
	double before;

	if (fc_iface_get_opts(c->iface, &o) < 0 || o.cap == 0 || o.cap > FC_CAP_MAX)
		return FC_NEVER_NS;
	lc = law_conf_of(c->conf, o.cap);
	fci_law_check(&s->law, &lc);
	if (s->began == 0 || c->now_ns < s->began || s->ends < s->began || s->ends - s->began > EXTEND * WINDOW_MAX_NS) {
		fci_law_give_up(&s->law);
		begin_window(c, s, 1);
	} else if (c->now_ns >= s->ends) {
		before = s->law.limit;
		if (!s->settling && idle(c, s)) {
			fci_law_give_up(&s->law);
			apply(c, s);
			show(s);
			begin_window(c, s, 1);
			return FC_NEVER_NS;
		}
		if (s->settling || !end_window(c, s, &o, &lc))
			begin_window(c, s, s->law.limit != before);
		else
			s->ends = c->now_ns + (s->length < FC_MS(250) ? s->length : FC_MS(250));
	}
	apply(c, s);
	show(s);
	return s->ends;
}

/* ---- setting up -------------------------------------------------------------------------------- */

static int bad(const struct fc_setup *s, const char *what, uint64_t found, uint64_t min, uint64_t max)
{
	fc_iface_log(s->iface, s->rule, "%s is %llu: %llu to %llu is allowed", what, (unsigned long long)found,
	             (unsigned long long)min, (unsigned long long)max);
	return -ERANGE;
}

/* Fields whose default is a number. */
static int complete(const struct fc_setup *s, struct fc_adaptive_conf *c)
{
	const struct {
		const char *name;
		uint32_t *v;
		uint32_t min, max, def;
	} n[] = {
		{ "tolerance_permille", &c->tolerance_permille, 1050, 5000, 1800 },
		{ "min_calls", &c->min_calls, 5, 100000, 20 },
		{ "timeout_permille", &c->timeout_permille, 1, 1000, 50 },
		{ "timeout_weight_permille", &c->timeout_weight_permille, 100, 10000, 1000 },
	};

	for (unsigned i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
		*n[i].v = *n[i].v ? *n[i].v : n[i].def;
		if (*n[i].v < n[i].min || *n[i].v > n[i].max)
			return bad(s, n[i].name, *n[i].v, n[i].min, n[i].max);
	}
	c->slack_ns = c->slack_ns ? c->slack_ns : FC_US(20);
	c->window_ns = c->window_ns ? c->window_ns : FC_MS(250);
	if (c->slack_ns > FC_S(10))
		return bad(s, "slack_ns", c->slack_ns, 1, FC_S(10));
	if (c->window_ns < FC_MS(50) || c->window_ns > FC_S(10))
		return bad(s, "window_ns", c->window_ns, FC_MS(50), FC_S(10));
	return 0;
}

static int adaptive_setup(struct fc_setup *s)
{
	struct fc_adaptive_conf *c = s->conf;
	int rc = complete(s, c);

	if (rc < 0)
		return rc;
	if (c->max > LIMIT_MAX)
		return bad(s, "max", c->max, 1, LIMIT_MAX);
	if (c->min > (c->max ? c->max : LIMIT_MAX))
		return bad(s, "min", c->min, 1, c->max ? c->max : LIMIT_MAX);
	if (c->initial && (c->initial < c->min || c->initial > (c->max ? c->max : LIMIT_MAX)))
		return bad(s, "initial", c->initial, c->min ? c->min : 1, c->max ? c->max : LIMIT_MAX);
	c->cpus_ = s->cpus ? s->cpus : 1;
	c->dry_run_ = (s->flags & FC_RULE_DRY_RUN) != 0;
	return 0;
}

static uint64_t adaptive_state_size(const void *conf, uint32_t cpus)
{
	(void)conf;
	return sizeof(struct adaptive_state) + (uint64_t)(cpus ? cpus : 1) * sizeof(struct cell);
}

static uint64_t adaptive_resolution_ns(const void *conf)
{
	(void)conf;
	return FC_US(1);
}

static int look(struct fc_call *c, void *arg)
{
	const struct adaptive_state *s = c->state;
	struct fc_adaptive_status *r = arg;

	r->limit = (uint32_t)(get(&s->limits) >> 32);
	r->base = (uint32_t)get(&s->limits);
	r->measured = (uint32_t)get(&s->measured);
	r->kept = (uint32_t)(get(&s->experiments) >> 32);
	r->undone = (uint32_t)get(&s->experiments);
	r->latency_ns = get(&s->typical_ns);
	r->unloaded_ns = get(&s->unloaded_ns);
	r->per_1000s = get(&s->per_1000s);
	return 0;
}

int fc_adaptive_state(struct fc_iface *iface, const char *rule, struct fc_adaptive_status *ret)
{
	if (!ret || ret->size < sizeof(*ret))
		return -EINVAL;
	return fc_iface_with(iface, &fc_interceptor_adaptive, rule, look, ret);
}

#define AT(member_) offsetof(struct fc_adaptive_conf, member_)

static const struct fc_field fields[] = {
	{ .name = "min", .type = FC_FIELD_COUNT32, .offset = AT(min), .min = 1, .max = LIMIT_MAX,
	  .help = "the limit never goes under it; default 4" },
	{ .name = "max", .type = FC_FIELD_COUNT32, .offset = AT(max), .min = 1, .max = LIMIT_MAX,
	  .help = "nor over it; default: the cap" },
	{ .name = "initial", .type = FC_FIELD_COUNT32, .offset = AT(initial), .min = 1, .max = LIMIT_MAX,
	  .help = "where it begins; default 20" },
	{ .name = "tolerance", .type = FC_FIELD_FACTOR, .offset = AT(tolerance_permille), .min = 1050, .max = 5000,
	  .def = 1800, .help = "latency that is suspect, over that without queueing" },
	{ .name = "slack", .type = FC_FIELD_DURATION, .offset = AT(slack_ns), .min = 1, .max = FC_S(10),
	  .def = FC_US(20), .help = "queueing that does not matter" },
	{ .name = "window", .type = FC_FIELD_DURATION, .offset = AT(window_ns), .min = FC_MS(50), .max = FC_S(10),
	  .def = FC_MS(250), .help = "the limit moves once a window, of slow calls a longer one" },
	{ .name = "min_calls", .type = FC_FIELD_COUNT32, .offset = AT(min_calls), .min = 5, .max = 100000, .def = 20,
	  .help = "fewer in a window say nothing" },
	{ .name = "timeouts", .type = FC_FIELD_PERMILLE, .offset = AT(timeout_permille), .min = 1, .max = 1000,
	  .def = 50, .help = "share of time-outs that lowers the limit" },
	{ .name = "timeout_weight", .type = FC_FIELD_FACTOR, .offset = AT(timeout_weight_permille), .min = 100,
	  .max = 10000, .def = 1000, .help = "by how much of that share" },
};

const struct fc_interceptor fc_interceptor_adaptive = {
	.size = sizeof(struct fc_interceptor),
	.order = FC_ORDER_CAP,
	.name = "adaptive",
	.conf_bytes = sizeof(struct fc_adaptive_conf),
	.reason = FC_REFUSED_CAP,
	.state_size = adaptive_state_size,
	.resolution_ns = adaptive_resolution_ns,
	.setup = adaptive_setup,
	.post = adaptive_post,
	.reap = adaptive_reap,
	.full = adaptive_full,
	.tick = adaptive_tick,
	.fields = fields,
	.n_fields = sizeof(fields) / sizeof(fields[0]),
	.flags = FC_INTERCEPTOR_STEERS,
};
