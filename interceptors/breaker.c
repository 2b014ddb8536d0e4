/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * breaker.c - circuit breaker. See breaker.h for its states; trip.c has them,
 * window.c the outcomes.
 *
 *   check  refuses what is known to be refused, and writes nothing.
 *   pre    takes a probe or the credit of a ramp; makes open half open when its time is up.
 *   post   counts the outcome and sees whether it is too bad; gives a probe back. undo gives back.
 *   tick   makes open half open without a call, and evaluates.
 *
 * Units.   calls; ns, kept in 2^20 ns.
 * Bounds.  At most `probes` leases at once in half open. Of a ramp, let in = sum of the shares rounded
 *          down, at any moment and with any number of threads. Window and opening: breaker.h. All
 *          outcomes are counted once, of calls that began under the generation that is in force.
 * Cost.    closed: trip.h. Sums are made at most each 10.5 ms, and by failed calls as breaker.h says.
 * Source.  Nygard, Release It (2007); windows and minimum calls as in resilience4j, back-off as in brpc.
 *          Generations as in gobreaker; leases of probes are ours.
 */
#include <errno.h>

#include <fcguard/err.h>
#include <fcguard/events.h>

#include "trip.h"

static const struct trip_numbers *numbers_of(const struct fc_call *c)
{
	return trip_numbers_of(c->conf);
}

static int breaker_check(struct fc_call *c)
{
	return fci_trip_check(c, numbers_of(c)) ? FC_REFUSED_BREAKER : 0;
}

static int breaker_pre(struct fc_call *c)
{
	return fci_trip_pre(c, numbers_of(c)) ? FC_REFUSED_BREAKER : 0;
}

static void breaker_undo(struct fc_call *c)
{
	fci_trip_undo(c, numbers_of(c));
}

static int outcome_of(const struct fc_call *c)
{
	const struct fc_breaker_conf *conf = c->conf;
	int slow = conf->slow_permille && c->latency_ns >= conf->slow_ns ? WINDOW_SLOW : WINDOW_GOOD;

	switch (c->outcome) {
	case FC_OUTCOME_OK: return slow;
	case FC_OUTCOME_IGNORED: return WINDOW_NOTHING;
	default: return slow | WINDOW_FAILED;
	}
}

static void breaker_post(struct fc_call *c)
{
	fci_trip_post(c, numbers_of(c), outcome_of(c));
}

static void breaker_reap(struct fc_call *c)
{
	fci_trip_reap(c, numbers_of(c));
}

static uint64_t breaker_tick(struct fc_call *c)
{
	return fci_trip_tick(c, numbers_of(c));
}

static uint64_t breaker_state_size(const void *conf, uint32_t cpus)
{
	(void)conf;
	return fci_trip_bytes(cpus);
}

static uint64_t breaker_resolution_ns(const void *conf)
{
	const struct fc_breaker_conf *b = conf;

	return b->slow_permille ? b->slow_ns / 8 + 1 : 0;
}

static int breaker_setup(struct fc_setup *s)
{
	struct fc_breaker_conf *conf = s->conf;
	struct trip_numbers *m = (struct trip_numbers *)(void *)conf->made_;
	const char *text = fci_trip_wrong(conf);

	if (text) {
		fc_iface_log(s->iface, s->rule, "%s", text);
		return -EINVAL;
	}
	if (!conf->error_permille && !conf->errors && !conf->slow_permille)
		conf->error_permille = 500;
	fci_trip_make(conf, s->cpus);
	m->counts = 1;
	m->opened = FC_EVENT_BREAKER_OPENED;
	m->half_open = FC_EVENT_BREAKER_HALF_OPEN;
	m->ramp = FC_EVENT_BREAKER_RAMP;
	m->closed = FC_EVENT_BREAKER_CLOSED;
	return 0;
}

static const struct fc_field fields[] = {
	TRIP_FIELDS(0),
	TRIP_FIELD("slow_ratio", FC_FIELD_PERMILLE, 0, slow_permille, 1, 1000, "too many calls were slow", .def = 0),
	TRIP_FIELD("slow", FC_FIELD_DURATION, 0, slow_ns, 1, FC_S(3600), "from this time on a call is slow", .def = 0),
};

const struct fc_interceptor fc_interceptor_breaker = {
	.size = sizeof(struct fc_interceptor),
	.order = FC_ORDER_BREAKER,
	.name = "breaker",
	.conf_bytes = sizeof(struct fc_breaker_conf),
	.cells = 2,
	.reason = FC_REFUSED_BREAKER,
	.state_size = breaker_state_size,
	.resolution_ns = breaker_resolution_ns,
	.setup = breaker_setup,
	.check = breaker_check,
	.pre = breaker_pre,
	.undo = breaker_undo,
	.post = breaker_post,
	.reap = breaker_reap,
	.tick = breaker_tick,
	.fields = fields,
	.n_fields = sizeof(fields) / sizeof(fields[0]),
};

/* ---- by hand ----------------------------------------------------------------------------------- */

static int force(struct fc_call *c, void *arg)
{
	int how = *(int *)arg, done;

	if (how == FC_BREAKER_AUTO)
		done = fci_trip_set(c, FC_BREAKER_FORCED_OPEN, FC_BREAKER_CLOSED) ||
		       fci_trip_set(c, FC_BREAKER_FORCED_CLOSED, FC_BREAKER_CLOSED);
	else
		done = fci_trip_set(c, -1, how == FC_BREAKER_FORCE_OPEN ? FC_BREAKER_FORCED_OPEN : FC_BREAKER_FORCED_CLOSED);
	if (done)
		fc_event_note(c->iface, FC_EVENT_BREAKER_FORCED, (uint64_t)how, 0);
	return 0;
}

int fc_breaker_force(struct fc_iface *iface, const char *rule, int how)
{
	if (how < FC_BREAKER_AUTO || how > FC_BREAKER_FORCE_CLOSED)
		return -EINVAL;
	return fc_iface_with(iface, &fc_interceptor_breaker, rule, force, &how);
}

static int look(struct fc_call *c, void *arg)
{
	fci_trip_status(c, numbers_of(c), arg);
	return 0;
}

int fc_breaker_state(struct fc_iface *iface, const char *rule, struct fc_breaker_status *ret)
{
	if (!ret || ret->size < sizeof(*ret))
		return -EINVAL;
	return fc_iface_with(iface, &fc_interceptor_breaker, rule, look, ret);
}
