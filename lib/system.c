/* SPDX-License-Identifier: BSD-2-Clause */
/* system.c - see system.h. */
#include <errno.h>

#include "events.h"
#include "ruled.h"
#include "system.h"

#define OPTS_V1_BYTES sizeof(struct fc_system_opts)
#define CLASSES       8u
#define CALM_PERIODS  4u /* with all bounds kept, before one more class gets in */
#define LEVEL(l_)     ((uint32_t)(l_) << 8)
#define LEVEL_MASK    LEVEL(15)

/* Counters of an interface at the last look. */
struct seen {
	uint64_t admitted, completed; /* completed: without those to be ignored */
	uint64_t samples, latency_ns; /* of the histogram: their number and sum */
};

/* What is held against the bounds. */
struct sums {
	uint64_t in_flight, admitted;
	uint64_t left, latency_ns; /* calls that left and have a known latency, and its sum */
};

/* A look, as far as it has come. */
struct look {
	uint32_t under_way;
	uint32_t next;    /* interface */
	uint64_t elapsed; /* since the look before it began; 0: rates are not known */
	struct sums sums;
};

struct fci_system {
	struct fc_system_opts opts;
	uint64_t looked_ns; /* when the last look began; 0: never */
	uint32_t calm;      /* periods since a bound was passed, or a class let in */
	uint32_t max_ifaces;
	struct look look;
	struct seen seen[];
};

/* ---- the level --------------------------------------------------------------------------------- */

static uint32_t level_of(uint32_t control)
{
	return control & FCI_CONTROL_SYSTEM ? FCI_CONTROL_LEVEL(control) : CLASSES;
}

static uint32_t level_now(const struct fc *fc)
{
	/* N1: a setting; new calls see it soon. */
	return level_of(atomic_load_explicit(&fc->head->control, FCI_RLX));
}

static void level_set(struct fc *fc, uint32_t level)
{
	fci_a32 *a = &fc->head->control;
	/* N2: re-checked by the CAS, which fails only when another flag was set: lock-free. */
	uint32_t c = atomic_load_explicit(a, FCI_RLX), next;

	do {
		next = c & ~(uint32_t)(FCI_CONTROL_SYSTEM | LEVEL_MASK);
		if (level < CLASSES)
			next |= FCI_CONTROL_SYSTEM | LEVEL(level);
		/* X1 -> A3 (fci_control): SC; the flags of the gates are set after it. */
	} while (!atomic_compare_exchange_weak_explicit(a, &c, next, FCI_SC, FCI_RLX));
	fci_control_changed(fc);
}

int fci_system_refuses(const struct fc_iface *f, const struct fc_ctx *ctx, uint32_t control)
{
	/* N1: settings. */
	uint32_t class = atomic_load_explicit(&f->block->config.importance, FCI_RLX);

	if (atomic_load_explicit(&f->block->config.flags, FCI_RLX) & FC_IFACE_OUTBOUND)
		return 0;
	if (ctx->priority > class)
		class = ctx->priority;
	return class >= level_of(control);
}

uint32_t fc_system_level(const struct fc *fc)
{
	return fci_fc_ok(fc) && fc->seg ? level_now(fc) : CLASSES;
}

/* ---- setting ----------------------------------------------------------------------------------- */

static size_t bytes_of(uint32_t max_ifaces)
{
	return sizeof(struct fci_system) + max_ifaces * sizeof(struct seen);
}

static int refuse_opts(struct fc *fc, int error, const char *what, uint64_t found, const char *allowed)
{
	fci_log(fc, FC_LOG_ERROR, "system bounds: %s: %llu; allowed: %s", what, (unsigned long long)found, allowed);
	return error;
}

static int import_opts(struct fc *fc, struct fc_system_opts *o, const struct fc_system_opts *opts)
{
	int rc = fci_opts_import(o, sizeof(*o), OPTS_V1_BYTES, opts);

	if (rc < 0)
		return refuse_opts(fc, rc, "size", opts->size, "that of this library's header, or a tail of zeros");
	if (o->keep >= CLASSES)
		return refuse_opts(fc, -EINVAL, "keep", o->keep, "0 to 7");
	if (o->resv)
		return refuse_opts(fc, -EINVAL, "resv", o->resv, "0");
	return 0;
}

static int bounded(const struct fc_system_opts *o)
{
	return o->cpu_permille || o->load_permille || o->in_flight || o->rate_per_s || o->avg_latency_ns;
}

/* The next look is as the first one: it finds what the counters are, and no rates. */
static void begin_anew(struct fci_system *sys)
{
	sys->looked_ns = 0;
	sys->look.under_way = 0;
}

/* Bounds of counters that nobody has looked at so far? */
static int counts_more(const struct fc_system_opts *o, const struct fc_system_opts *old)
{
	return (o->rate_per_s && !old->rate_per_s) || (o->avg_latency_ns && !old->avg_latency_ns);
}

/* New bounds keep the level, as far as they can refuse at all; fc->setup is held. */
static void adopt(struct fc *fc, const struct fc_system_opts *o)
{
	uint32_t level = level_now(fc), least = bounded(o) ? o->keep + 1 : CLASSES;

	if (!bounded(o) || counts_more(o, &fc->system->opts))
		begin_anew(fc->system);
	fc->system->opts = *o;
	if (level >= least)
		return;
	level_set(fc, least);
	if (least == CLASSES)
		fci_note(fc, NULL, FC_EVENT_SYSTEM_OFF, 0, 0);
}

int fci_system_set(struct fc *fc, const struct fc_system_opts *opts, uint32_t hand)
{
	struct fc_system_opts o;
	int rc;

	if (!fci_fc_ok(fc) || !fc->seg)
		return -EINVAL;
	rc = import_opts(fc, &o, opts);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&fc->setup);
	if (!fc->system && bounded(&o)) {
		fc->system = fci_alloc(fc, bytes_of(fc->geo.max_ifaces));
		if (fc->system)
			fc->system->max_ifaces = fc->geo.max_ifaces;
		else
			rc = -ENOMEM;
	}
	if (fc->system)
		adopt(fc, &o);
	if (rc == 0 && hand) {
		fc->by_hand |= hand;
		fc->hand_until = FC_NEVER_NS;
	}
	pthread_mutex_unlock(&fc->setup);
	return rc;
}

int fc_system_set(struct fc *fc, const struct fc_system_opts *opts)
{
	return fci_system_set(fc, opts, FCI_HAND_SYSTEM);
}

void fci_system_free(struct fc *fc)
{
	if (fc->system)
		fci_free(fc, fc->system, bytes_of(fc->system->max_ifaces));
	fc->system = NULL;
}

/* ---- looking ----------------------------------------------------------------------------------- */

static uint64_t add_sat(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* a * b / c without losing the top; c > 0. */
static uint64_t scale(uint64_t a, uint64_t b, uint64_t c)
{
	__extension__ unsigned __int128 r = (__extension__ (unsigned __int128)a) * b / c;

	return r > UINT64_MAX ? UINT64_MAX : (uint64_t)r;
}

/* Number and sum of the samples in a histogram: each counts as the middle of its bucket. */
static void latency_so_far(const struct fc_iface *f, struct seen *s)
{
	struct fc_hist h;
	uint64_t low = 0;

	if (fc_iface_hist(f, &h) < 0)
		return;
	for (uint32_t i = 0; i < FC_HIST_BUCKETS; i++) {
		uint64_t high = fc_hist_bound_ns(i);

		s->samples += h.count[i];
		s->latency_ns += h.count[i] * (low + (high - low) / 2); /* wraps: only differences count */
		low = high;
	}
}

/* One interface since the last look. Sampling differs between interfaces, so the mean of the samples
 * of each is weighted by the calls that left it. */
static void look_at(const struct fc_iface *f, const struct fc_system_opts *o, struct seen *seen, struct sums *sums)
{
	struct seen now = { 0 };
	uint64_t samples, left;
	FC_OPTS(fc_stats, s, .cap = 0);

	/* N3: the same as in fci_system_refuses. */
	int inbound = !(atomic_load_explicit(&f->block->config.flags, FCI_RLX) & FC_IFACE_OUTBOUND);

	if (o->in_flight && inbound)
		sums->in_flight += fc_inside(f, NULL);
	if (o->rate_per_s && fc_iface_stats(f, &s) == 0)
		now.admitted = s.admitted;
	if (o->avg_latency_ns) {
		now.completed = fc_completed(f) - fci_counted(f, FCI_C_IGNORED);
		latency_so_far(f, &now);
	}
	samples = now.samples - seen->samples;
	left = now.completed - seen->completed;
	if (inbound && now.admitted > seen->admitted)
		sums->admitted += now.admitted - seen->admitted;
	if (inbound && samples && left) {
		sums->left += left;
		sums->latency_ns = add_sat(sums->latency_ns, scale(now.latency_ns - seen->latency_ns, left, samples));
	}
	*seen = now;
}

/* Interfaces asleep have nobody inside and nothing new; but the first look has to know their past.
 * N4: what a call that just woke it does is seen at the next look. */
static int to_be_looked_at(const struct fci_system *sys, const struct fc_iface *f)
{
	return sys->look.elapsed == 0 || !(atomic_load_explicit(&f->gate->word, FCI_RLX) & FCI_GATE_ASLEEP);
}

/* On with the look: one interface at least, so that it ends. 1: all have been looked at. What two looks
 * differ in length by is how wrong a rate can be: less than a period, unless there is more to do than time. */
static int look_on(struct fc *fc, uint64_t until)
{
	struct fci_system *sys = fc->system;
	struct fc_iface *f;

	if (!sys->opts.in_flight && !sys->opts.rate_per_s && !sys->opts.avg_latency_ns)
		return 1;
	while (sys->look.next < sys->max_ifaces && (f = fc_iface_at(fc, sys->look.next)) != NULL) {
		struct seen *seen = &sys->seen[sys->look.next++];

		if (!to_be_looked_at(sys, f))
			continue;
		look_at(f, &sys->opts, seen, &sys->look.sums);
		if (fci_clock_os(CLOCK_MONOTONIC) >= until)
			return 0;
	}
	return 1;
}

/* The first bound that is passed: enum fc_system_bound; 0: none. */
static int passed(struct fc *fc)
{
	const struct fc_system_opts *o = &fc->system->opts;
	const struct sums s = fc->system->look.sums;
	uint64_t elapsed = fc->system->look.elapsed;
	FC_OPTS(fc_health, h, .valid = 0);

	if ((o->cpu_permille || o->load_permille) && fc_health_get(fc, &h) == 0 && h.age_ns <= fc->health.opts.max_age_ns) {
		if (o->cpu_permille && (h.valid & FC_HEALTH_CPU) && h.cpu_permille > o->cpu_permille)
			return FC_SYSTEM_CPU;
		if (o->load_permille && (h.valid & FC_HEALTH_LOAD1) && h.cpus && h.load1_permille / h.cpus > o->load_permille)
			return FC_SYSTEM_LOAD;
	}
	if (o->in_flight && s.in_flight > o->in_flight)
		return FC_SYSTEM_IN_FLIGHT;
	if (o->rate_per_s && elapsed && scale(s.admitted, FC_S(1), elapsed) > o->rate_per_s)
		return FC_SYSTEM_RATE;
	if (o->avg_latency_ns && elapsed && s.left && s.latency_ns / s.left > o->avg_latency_ns)
		return FC_SYSTEM_LATENCY;
	return 0;
}

static void lower(struct fc *fc, int bound)
{
	uint32_t level = level_now(fc);

	fc->system->calm = 0;
	if (level <= fc->system->opts.keep + 1)
		return;
	level_set(fc, level - 1);
	fci_note(fc, NULL, FC_EVENT_SYSTEM_ON, (uint64_t)bound, level - 1);
}

/* Bounds were kept for so many periods: a rest without calls counts in full. */
static void raise_level(struct fc *fc, uint64_t periods)
{
	uint32_t level = level_now(fc);
	uint64_t calm = fc->system->calm + periods, up = calm / CALM_PERIODS;

	if (level == CLASSES)
		return;
	fc->system->calm = (uint32_t)(calm % CALM_PERIODS);
	if (up == 0)
		return;
	level = up >= CLASSES - level ? CLASSES : level + (uint32_t)up;
	level_set(fc, level);
	if (level == CLASSES)
		fci_note(fc, NULL, FC_EVENT_SYSTEM_OFF, 0, 0);
}

/* Time since the last look; a clock that went back, and the first look, give 0 and begin anew. */
static uint64_t since(const struct fci_system *sys, uint64_t now)
{
	return sys->looked_ns && now > sys->looked_ns ? now - sys->looked_ns : 0;
}

/* 0: it is too soon; after a rest health is sampled sooner. */
static int begin_look(struct fci_system *sys, uint64_t now, uint64_t period)
{
	uint64_t elapsed = since(sys, now);

	if (elapsed != 0 && elapsed < period / 2)
		return 0;
	sys->look = (struct look){ .under_way = 1, .elapsed = elapsed };
	sys->looked_ns = now;
	return 1;
}

static void end_look(struct fc *fc, uint64_t period)
{
	uint64_t elapsed = fc->system->look.elapsed;
	int bound = passed(fc);

	fc->system->look.under_way = 0;
	if (bound)
		lower(fc, bound);
	else
		raise_level(fc, elapsed > period ? elapsed / period : 1);
}

/* fc->setup is held. 1: over. */
static int look(struct fc *fc, uint64_t now, uint64_t until)
{
	uint64_t period = fc->health.opts.period_ns;
	struct fci_system *sys = fc->system;

	if (!sys || !bounded(&sys->opts) || (!sys->look.under_way && !begin_look(sys, now, period)))
		return 1;
	if (!look_on(fc, until))
		return 0;
	end_look(fc, period);
	return 1;
}

uint64_t fci_system_tick(struct fc *fc, uint64_t now, uint64_t until)
{
	int over;

	if (pthread_mutex_trylock(&fc->setup) != 0)
		return now + FC_MS(1);
	over = look(fc, now, until);
	pthread_mutex_unlock(&fc->setup);
	return over ? FC_NEVER_NS : now;
}

void fci_system_fork_child(struct fc *fc)
{
	if (fc->system)
		begin_anew(fc->system);
}
