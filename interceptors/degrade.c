/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * degrade.c - switched off by level. See degrade.h for what sets the level.
 *
 * The level by hand is a word of its own, which only hands change. The fault flag and outcomes are states
 * of a breaker (trip.c), whose `open` refuses the priorities of conf.level alone. The flag is its forced
 * open; when it is taken away half open follows.
 *
 * Units.   levels 0..8; priorities 0..7.
 * Bounds.  A level holds for calls that enter after it was set. Probes and ramps as of a breaker.
 * Cost.    two loads of one line; with outcomes what a breaker costs.
 * Source.  Switches and levels as in Sentinel and Hystrix; automatic ones by breaker.c.
 */
#include <errno.h>

#include <fcguard/err.h>
#include <fcguard/events.h>

#include <fcguard/degrade.h>

#include "trip.h"

#define PRIORITIES 8u

static const struct trip_numbers *numbers_of(const struct fc_call *c)
{
	const struct fc_degrade_conf *conf = c->conf;

	return trip_numbers_of(&conf->trip);
}

/* Of spoilt memory, or a priority that is none: the least important. */
static int refuses(uint64_t level, const struct fc_call *c)
{
	return level != 0 && (level >= PRIORITIES || c->ctx->priority + level >= PRIORITIES);
}

static int refuse(struct fc_call *c, uint64_t level)
{
	c->observed = c->ctx->priority;
	c->limit = level < PRIORITIES ? PRIORITIES - level : 0;
	return FC_REFUSED_DEGRADED;
}

static uint64_t by_hand(const struct fc_call *c)
{
	return get(&((const struct trip *)c->state)->hand);
}

static int degrade_check(struct fc_call *c)
{
	const struct fc_degrade_conf *conf = c->conf;

	if (refuses(by_hand(c), c))
		return refuse(c, by_hand(c));
	return refuses(conf->level, c) && fci_trip_check(c, numbers_of(c)) ? refuse(c, conf->level) : 0;
}

static int degrade_pre(struct fc_call *c)
{
	const struct fc_degrade_conf *conf = c->conf;

	if (refuses(by_hand(c), c))
		return refuse(c, by_hand(c));
	if (refuses(conf->level, c))
		return fci_trip_pre(c, numbers_of(c)) ? refuse(c, conf->level) : 0;
	fci_trip_join(c, numbers_of(c));
	return 0;
}

static void degrade_undo(struct fc_call *c)
{
	fci_trip_undo(c, numbers_of(c));
}

static int outcome_of(const struct fc_call *c)
{
	switch (c->outcome) {
	case FC_OUTCOME_OK: return WINDOW_GOOD;
	case FC_OUTCOME_IGNORED: return WINDOW_NOTHING;
	case FC_OUTCOME_ERROR: return WINDOW_FAILED;
	default: return WINDOW_FAILED | WINDOW_SLOW;
	}
}

static void degrade_post(struct fc_call *c)
{
	fci_trip_post(c, numbers_of(c), outcome_of(c));
}

static void degrade_reap(struct fc_call *c)
{
	fci_trip_reap(c, numbers_of(c));
}

static uint64_t degrade_tick(struct fc_call *c)
{
	return fci_trip_tick(c, numbers_of(c));
}

static uint64_t degrade_state_size(const void *conf, uint32_t cpus)
{
	(void)conf;
	return fci_trip_bytes(cpus);
}

static const char *wrong(const struct fc_degrade_conf *conf)
{
	if (conf->level > FC_DEGRADE_ALL)
		return "level is over 8";
	if (conf->timeout_permille > 1000)
		return "timeouts_ratio is over 100 %";
	if (conf->trip.slow_ns || conf->trip.slow_permille)
		return "slow and slow_ratio are set, which only a breaker has: use timeouts_ratio";
	return fci_trip_wrong(&conf->trip);
}

static int degrade_setup(struct fc_setup *s)
{
	struct fc_degrade_conf *conf = s->conf;
	struct trip_numbers *m = (struct trip_numbers *)(void *)conf->trip.made_;
	const char *text = wrong(conf);

	if (text) {
		fc_iface_log(s->iface, s->rule, "%s", text);
		return -EINVAL;
	}
	if (!conf->level)
		conf->level = FC_DEGRADE_ALL;
	fci_trip_make(&conf->trip, s->cpus);
	m->slow_permille = conf->timeout_permille;
	m->slow_most = conf->timeouts;
	m->counts = m->failed_permille || m->failed_most || m->slow_permille || m->slow_most;
	m->opened = FC_EVENT_DEGRADED;
	m->half_open = FC_EVENT_DEGRADE_PROBING;
	m->ramp = FC_EVENT_DEGRADE_RAMP;
	m->closed = FC_EVENT_DEGRADE_OVER;
	return 0;
}

#define AT(member_) offsetof(struct fc_degrade_conf, member_)

static const struct fc_field fields[] = {
	{ .name = "level", .type = FC_FIELD_COUNT32, .offset = AT(level), .min = 1, .max = FC_DEGRADE_ALL,
	  .def = FC_DEGRADE_ALL, .help = "refuse priorities 8 - level and more when it is degraded; 8: all" },
	{ .name = "timeouts_ratio", .type = FC_FIELD_PERMILLE, .offset = AT(timeout_permille), .min = 1, .max = 1000,
	  .help = "too many of the calls timed out" },
	{ .name = "timeouts", .type = FC_FIELD_COUNT32, .offset = AT(timeouts), .min = 1, .max = UINT32_MAX,
	  .help = "so many calls timed out" },
	TRIP_FIELDS(AT(trip)),
};

const struct fc_interceptor fc_interceptor_degrade = {
	.size = sizeof(struct fc_interceptor),
	.order = FC_ORDER_DEGRADE,
	.name = "degrade",
	.conf_bytes = sizeof(struct fc_degrade_conf),
	.cells = 2,
	.reason = FC_REFUSED_DEGRADED,
	.state_size = degrade_state_size,
	.setup = degrade_setup,
	.check = degrade_check,
	.pre = degrade_pre,
	.undo = degrade_undo,
	.post = degrade_post,
	.reap = degrade_reap,
	.tick = degrade_tick,
	.fields = fields,
	.n_fields = sizeof(fields) / sizeof(fields[0]),
};

/* ---- by hand ----------------------------------------------------------------------------------- */

static int set_level(struct fc_call *c, void *arg)
{
	struct trip *t = c->state;
	uint64_t level = *(uint32_t *)arg;
	/* N: a setting; it takes effect for new calls. */
	uint64_t was = __atomic_exchange_n(&t->hand, level, __ATOMIC_RELAXED);

	if (was != level)
		fc_event_note(c->iface, FC_EVENT_DEGRADE_SET, was, level);
	return 0;
}

int fc_degrade_set(struct fc_iface *iface, const char *rule, uint32_t level)
{
	if (level > FC_DEGRADE_ALL)
		return -EINVAL;
	return fc_iface_with(iface, &fc_interceptor_degrade, rule, set_level, &level);
}

static int set_fault(struct fc_call *c, void *arg)
{
	int on = *(int *)arg, done;

	done = on ? fci_trip_set(c, -1, FC_BREAKER_FORCED_OPEN)
	          : fci_trip_set(c, FC_BREAKER_FORCED_OPEN, FC_BREAKER_HALF_OPEN);
	if (done)
		fc_event_note(c->iface, FC_EVENT_DEGRADE_FAULT, on ? FC_SET_ON : FC_SET_OFF, 0);
	return 0;
}

int fc_degrade_fault(struct fc_iface *iface, const char *rule, int on)
{
	return fc_iface_with(iface, &fc_interceptor_degrade, rule, set_fault, &on);
}

static int level_of(struct fc_call *c, void *arg)
{
	const struct fc_degrade_conf *conf = c->conf;
	struct fc_breaker_status s = { .size = sizeof(s) };
	uint32_t *level = arg, hand = (uint32_t)by_hand(c);

	fci_trip_status(c, numbers_of(c), &s);
	*level = s.state == FC_BREAKER_CLOSED ? 0 : conf->level;
	if (hand > *level)
		*level = hand < FC_DEGRADE_ALL ? hand : FC_DEGRADE_ALL;
	return 0;
}

int fc_degrade_level(struct fc_iface *iface, const char *rule)
{
	uint32_t level = 0;
	int rc = fc_iface_with(iface, &fc_interceptor_degrade, rule, level_of, &level);

	return rc < 0 ? rc : (int)level;
}

static int look(struct fc_call *c, void *arg)
{
	fci_trip_status(c, numbers_of(c), arg);
	return 0;
}

int fc_degrade_state(struct fc_iface *iface, const char *rule, struct fc_breaker_status *ret)
{
	if (!ret || ret->size < sizeof(*ret))
		return -EINVAL;
	return fc_iface_with(iface, &fc_interceptor_degrade, rule, look, ret);
}
