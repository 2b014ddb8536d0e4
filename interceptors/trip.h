/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trip.h - closed, open, half open, ramp: the states of breaker and degrade, one word in the segment.
 *
 *   word    state, how often it opened in a row, generation, until when. Each transition is one
 *           compare-and-swap of it: of several that want one, one gets it. The generation grows with
 *           each but the last, ramp to closed; a call notes the one it began under, and its outcome counts
 *           for no other.
 *   probe   leases of half open: generation, ticket, until when. So whoever hangs or was killed with a
 *           probe holds it no longer than its lease, and a late one gives nothing back that another has.
 *   credit  of a ramp. Each call adds the share of its moment; a whole one lets it in. What a later rule
 *           refused is added again.
 *
 * Cells.   what the call took, generation, index of its probe; ticket of the probe.
 * Cost.    closed: check and pre a load each, post as window.h says.
 */
#ifndef FC_TRIP_H
#define FC_TRIP_H

#include <stddef.h>

#include <fcguard/breaker.h>

#include "window.h"

#define TRIP_STEPS 24u /* of the open time's back-off */

/* Made of the conf by setup. */
struct trip_numbers {
	struct window_numbers window;
	uint32_t min_calls, failed_permille, slow_permille;
	uint32_t failed_most, slow_most; /* counts; 0: not by it */
	uint32_t probes, successes;
	uint32_t ramp_from;              /* 2^-16 */
	uint32_t ramp_u, lease_u;        /* units */
	uint32_t ramps, counts;          /* flags */
	uint32_t open_u[TRIP_STEPS];
	int32_t opened, half_open, ramp, closed; /* kinds of events */
};
FC_STATIC_ASSERT(sizeof(struct trip_numbers) <= sizeof(((struct fc_breaker_conf *)0)->made_), "room in the conf");

/* Lanes of the window follow. */
struct trip {
	_Alignas(WINDOW_LINE) uint64_t word; /* hardly ever written */
	uint64_t opened;    /* how often */
	uint64_t hand;      /* degrade: the level set by hand */
	_Alignas(WINDOW_LINE) uint64_t successes; /* of probes: generation << 32 | count */
	uint64_t credit;    /* generation << 48 | 2^-16 */
	_Alignas(WINDOW_LINE) uint64_t probe[FC_BREAKER_PROBES_MAX];
	struct window window;
};

static inline const struct trip_numbers *trip_numbers_of(const struct fc_breaker_conf *conf)
{
	return (const struct trip_numbers *)(const void *)conf->made_;
}

/* Defaults, and what is wrong: NULL: nothing. Then make the numbers. */
const char *fci_trip_wrong(const struct fc_breaker_conf *conf);
void fci_trip_make(struct fc_breaker_conf *conf, uint32_t cpus);
uint64_t fci_trip_bytes(uint32_t cpus);

/* The word: state 3 | steps 5 | generation 16 | until 40 (units, wraps after 36 years). */
#define TRIP_STATE(w_)      ((uint32_t)(w_) & 7u)
#define TRIP_GENERATION(w_) ((uint32_t)((w_) >> 8) & 0xffffu)

/* Cell 0; cell 1 is a probe's ticket. */
#define CELL_COUNTS 0x80000000u
#define CELL_PROBE  0x40000000u
#define CELL_CREDIT 0x20000000u
#define CELL_INDEX(v_) ((v_) >> 16 & 0xffu)

/* The steps of a call. check and pre: 1 refuse, with what the decision says. join: an outcome that counts
 * without being refused. outcome: enum window_outcome. */
int fci_trip_check_slowly(struct fc_call *c, const struct trip_numbers *m);
int fci_trip_pre_slowly(struct fc_call *c, const struct trip_numbers *m);
void fci_trip_join(struct fc_call *c, const struct trip_numbers *m);
void fci_trip_undo(struct fc_call *c, const struct trip_numbers *m);
void fci_trip_post_slowly(struct fc_call *c, const struct trip_numbers *m, int outcome);

static inline int fci_trip_check(struct fc_call *c, const struct trip_numbers *m)
{
	uint64_t w = get(&((const struct trip *)c->state)->word);

	return TRIP_STATE(w) == FC_BREAKER_CLOSED ? 0 : fci_trip_check_slowly(c, m);
}

static inline int fci_trip_pre(struct fc_call *c, const struct trip_numbers *m)
{
	uint64_t w = get(&((const struct trip *)c->state)->word);

	if (TRIP_STATE(w) != FC_BREAKER_CLOSED)
		return fci_trip_pre_slowly(c, m);
	if (m->counts)
		fc_cell_set(c, 0, CELL_COUNTS | TRIP_GENERATION(w));
	return 0;
}

static inline void fci_trip_post(struct fc_call *c, const struct trip_numbers *m, int outcome)
{
	struct trip *t = c->state;
	uint32_t cell = fc_cell_get(c, 0);
	uint64_t w = get(&t->word);

	if (cell == 0)
		return;
	if (outcome != WINDOW_GOOD || cell != (CELL_COUNTS | TRIP_GENERATION(w)) ||
	    TRIP_STATE(w) != FC_BREAKER_CLOSED ||
	    !window_count_good(&t->window, &m->window, c->cpu, TRIP_GENERATION(w), c->now_ns))
		fci_trip_post_slowly(c, m, outcome);
}

void fci_trip_reap(struct fc_call *c, const struct trip_numbers *m);
uint64_t fci_trip_tick(struct fc_call *c, const struct trip_numbers *m);

/* By hand: to a state of enum fc_breaker_state; only_from: only from this one; < 0: from any. 1: it was done. */
int fci_trip_set(struct fc_call *c, int only_from, int to);
void fci_trip_status(struct fc_call *c, const struct trip_numbers *m, struct fc_breaker_status *ret);

/* What a rules file may say of conf at `at_`. */
#define TRIP_FIELD(name_, type_, at_, member_, min_, max_, help_, ...)                             \
	{ .name = name_, .type = type_, .offset = (at_) + offsetof(struct fc_breaker_conf, member_), \
	  .min = min_, .max = max_, .help = help_, __VA_ARGS__ }
#define TRIP_FIELDS(at_)                                                                           \
	TRIP_FIELD("window", FC_FIELD_DURATION, at_, window_ns, FC_MS(100), FC_S(600),             \
	           "outcomes of this time count", .def = 0),                                       \
	TRIP_FIELD("window_calls", FC_FIELD_COUNT32, at_, window_calls, 10, 1000000,               \
	           "instead: those of the last so many calls", .def = 0),                          \
	TRIP_FIELD("min_calls", FC_FIELD_COUNT32, at_, min_calls, 1, 1000000,                      \
	           "ratios of fewer calls say nothing", .def = 0),                                 \
	TRIP_FIELD("errors_ratio", FC_FIELD_PERMILLE, at_, error_permille, 1, 1000,                \
	           "too many of the calls failed", .def = 0),                                      \
	TRIP_FIELD("errors", FC_FIELD_COUNT32, at_, errors, 1, UINT32_MAX,                         \
	           "so many calls failed", .def = 0),                                              \
	TRIP_FIELD("open", FC_FIELD_DURATION, at_, open_ns, FC_MS(2), FC_S(3600),                  \
	           "refuse for this time, then probe", .def = FC_S(5)),                            \
	TRIP_FIELD("max_open", FC_FIELD_DURATION, at_, max_open_ns, FC_MS(2), FC_S(3600),          \
	           "what the time to refuse grows to", .def = 0),                                  \
	TRIP_FIELD("backoff", FC_FIELD_FACTOR, at_, backoff_permille, 1000, 10000,                 \
	           "how much longer it is each time", .def = 2000),                                \
	TRIP_FIELD("probes", FC_FIELD_COUNT32, at_, probes, 1, FC_BREAKER_PROBES_MAX,              \
	           "calls at once that try whether it works again", .def = 3),                     \
	TRIP_FIELD("successes", FC_FIELD_COUNT32, at_, successes, 1, 10000,                        \
	           "of them have to succeed", .def = 0),                                           \
	TRIP_FIELD("recover", FC_FIELD_CHOICE, at_, recover, 0, 2, "how it comes back",            \
	           .choices = fci_trip_recovers, .n_choices = 3),                                  \
	TRIP_FIELD("ramp_from", FC_FIELD_PERMILLE, at_, ramp_from_permille, 1, 1000,               \
	           "share of the calls that a ramp begins with", .def = 100),                      \
	TRIP_FIELD("ramp", FC_FIELD_DURATION, at_, ramp_ns, FC_MS(10), FC_S(3600),                 \
	           "time until all calls are let in", .def = FC_S(30)),                            \
	TRIP_FIELD("lease", FC_FIELD_DURATION, at_, lease_ns, FC_MS(10), FC_S(3600),               \
	           "a probe that does not come back is given up after this time", .def = 0)
extern const char *const fci_trip_recovers[3];

#endif /* FC_TRIP_H */
