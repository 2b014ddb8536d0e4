/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rate_state.h - what rate.c, rate_bucket.c and rate_window.c share: the state in the segment, the numbers that setup()
 * makes of the conf, words that are added to and compared, and time that only goes on.
 *
 * All accesses are relaxed unless a label says more: each word stands for itself, tokens carry no data,
 * and what must be decided at once is decided by one compare-and-swap of one word.
 */
#ifndef FC_RATE_STATE_H
#define FC_RATE_STATE_H

#include <fcguard/rate.h>
#include <fcguard/time.h>

#include "pair.h"

#define LINE      64u
#define LANE_BYTES 128u     /* neighbouring lines are fetched together */
#define LANES_MAX 64u
#define SLOTS     128u      /* of a sliding window */
#define UNIT_BITS 16u       /* tokens are counted in units of 2^-16 */
#define UNITS(n_) ((int64_t)(n_) << UNIT_BITS)
#define INFINITE_NS (FC_NEVER_NS / 2)
#define LANE_BITS  25u
#define LANE_UNITS ((1ull << LANE_BITS) - 1)
#define STAMP_SHIFT 16u
#define STAMP_MASK ((1ull << (64 - LANE_BITS)) - 1)
#define LATE_NS   FC_S(1)   /* a now that is older than that may mean a clock set back */
#define LATE_CALLS 7ull     /* a mask */

__extension__ typedef unsigned __int128 wide;

/* fc_rate_conf.made_, by name. mult, shift: units per ns; inverse: ns per unit. */
struct made {
	uint64_t mult, inv_mult;
	uint32_t shift, inv_shift;
	int64_t cap;      /* units of `burst` */
	int64_t common;   /* of them, what the common part may hold */
	int64_t lease;    /* and each lane */
	int64_t wait;     /* how far below zero the common part may go */
	uint32_t lanes;
	uint32_t spread_us;
	uint64_t full_ns; /* in that time everything is refilled */
	uint64_t slot_ns; /* windows */
	double cold_from, cold_max, slope, stable_ns; /* warm_up, in tokens and ns */
};
FC_STATIC_ASSERT(sizeof(struct made) <= sizeof(((struct fc_rate_conf *)0)->made_), "room in the conf");

/* The common part of a bucket: a pair (pair.h). */
struct common {
	_Alignas(16) int64_t tokens; /* units; below zero: reserved ahead */
	uint64_t time;               /* they have been minted until then */
};
FC_STATIC_ASSERT(sizeof(struct common) == sizeof(struct pair), "two words");

/*
 * The state of a rule, zeroed at first. One set of words a group of kinds, so that a reload can change
 * the kind. Lanes follow, one line each.
 */
struct rate_state {
	_Alignas(LINE) struct common common;
	uint64_t back;      /* a clock seems set back: rate_set_back(); 0: no */
	uint64_t spread_ns; /* last time that lanes were filled up */
	uint64_t warm;      /* warm_up: units used since it was cold */
	_Alignas(LINE) uint64_t window; /* rate_window.c */
	uint64_t older;
	uint64_t time;      /* of windows: newest now */
	uint64_t used;      /* total */
	_Alignas(LINE) uint64_t slot[SLOTS];
};

static inline const struct made *made_of(const struct fc_rate_conf *conf)
{
	return (const struct made *)(const void *)conf->made_;
}

/* Each word is whole, the two need not belong together: swap_common() finds out. */
static inline struct common get_common(const struct common *p)
{
	/* N: see above. */
	return (struct common){ __atomic_load_n(&p->tokens, __ATOMIC_RELAXED), __atomic_load_n(&p->time, __ATOMIC_RELAXED) };
}

/* Both words at once, if they are *was; else *was is what is there. Relaxed would do. */
static inline int swap_common(struct common *p, struct common *was, struct common to)
{
	struct pair from = { (uint64_t)was->tokens, was->time };
	int done = pair_swap(p, &from, (struct pair){ (uint64_t)to.tokens, to.time });

	*was = (struct common){ (int64_t)from.a, from.b };
	return done;
}

static inline int64_t at_most(int64_t v, int64_t most)
{
	return v < most ? v : most;
}

static inline uint64_t *lane_at(const struct fc_call *c, uint32_t i)
{
	return (uint64_t *)(void *)((char *)c->state + sizeof(struct rate_state) + (size_t)i * LANE_BYTES);
}

static inline uint32_t own_lane(const struct fc_call *c, const struct made *k)
{
	return c->cpu < k->lanes ? c->cpu : c->cpu % k->lanes;
}

/*
 * A lane's word: units in the low 25 bits; over them when somebody last took from it, in 2^16 ns, rounded
 * up. It wraps after 417 days: an age over half of that counts as none, so it errs to the safe side.
 */
static inline int64_t lane_has(const struct made *k, uint64_t lane)
{
	return at_most((int64_t)(lane & LANE_UNITS), k->lease);
}

static inline uint64_t lane_age_ns(uint64_t lane, uint64_t now)
{
	uint64_t age = ((now >> STAMP_SHIFT) - (lane >> LANE_BITS)) & STAMP_MASK;

	return age > STAMP_MASK / 2 ? 0 : age << STAMP_SHIFT;
}

static inline uint64_t lane_word(uint64_t lane, int64_t units)
{
	return (lane & ~LANE_UNITS) | (uint64_t)units;
}

/* The same with the later of its stamp and now's. */
static inline uint64_t lane_taken(uint64_t lane, int64_t units, uint64_t now)
{
	uint64_t stamp = (now >> STAMP_SHIFT) + 1, ahead = (stamp - (lane >> LANE_BITS)) & STAMP_MASK;

	return ahead <= STAMP_MASK / 2 ? stamp << LANE_BITS | (uint64_t)units : lane_word(lane, units);
}

/* Has the own lane what the call wants? It has none without leases, and in other kinds. */
static inline int lane_look(const struct fc_call *c)
{
	const struct made *k = made_of(c->conf);

	return k->lanes && lane_has(k, get(lane_at(c, own_lane(c, k)))) >= UNITS(c->weight);
}

/* Take it: 1. */
static inline int lane_take(const struct fc_call *c)
{
	const struct made *k = made_of(c->conf);
	uint64_t *lane, was;
	int64_t left;

	if (!k->lanes)
		return 0;
	lane = lane_at(c, own_lane(c, k));
	was = get(lane);
	do {
		left = lane_has(k, was) - UNITS(c->weight);
		if (left < 0)
			return 0;
	} while (!swap(lane, &was, lane_taken(was, left, c->now_ns)));
	return 1;
}

static inline int refuse(struct fc_call *c, uint64_t observed, uint64_t limit, uint64_t retry_ns)
{
	c->observed = observed;
	c->limit = limit;
	c->retry_after_ns = retry_ns;
	return FC_REFUSED_RATE;
}

/*
 * now is so far behind that the clock may have been set back. It was, if for LATE_NS nothing but such calls
 * comes, and LATE_CALLS of them at least: 1, and the caller makes time go on from now; *ret_since is when
 * the first of them came. A call in time takes the suspicion back (rate_in_time), so late ones among others
 * never move it. `back` has the first one's now, and their number in its low bits.
 */
static inline int rate_set_back(struct rate_state *s, uint64_t now, uint64_t *ret_since)
{
	uint64_t back = get(&s->back), since = back & ~LATE_CALLS;

	if (back == 0 || now < since) {
		(void)swap(&s->back, &back, (now & ~LATE_CALLS) | 1);
		return 0;
	}
	if ((back & LATE_CALLS) < LATE_CALLS) {
		(void)swap(&s->back, &back, back + 1);
		return 0;
	}
	*ret_since = since;
	return now - since >= LATE_NS;
}

static inline void rate_in_time(struct rate_state *s)
{
	if (get(&s->back) != 0)
		put(&s->back, 0);
}

/* rate_bucket.c. has: whole tokens, reserved ones below zero. */
int fci_rate_bucket_check(struct fc_call *c);
int fci_rate_bucket_take(struct fc_call *c);
void fci_rate_bucket_give(struct fc_call *c);
int64_t fci_rate_bucket_has(struct fc_call *c);
void fci_rate_bucket_settle(struct fc_call *c); /* what time has brought until now comes by the numbers so far */
void fci_rate_bucket_begin(struct fc_call *c, uint64_t tokens); /* at first */

/* rate_window.c: fixed and sliding. *at says which slot the call was counted in. */
int fci_rate_window_check(struct fc_call *c);
int fci_rate_window_take(struct fc_call *c, uint32_t *at);
void fci_rate_window_give(struct fc_call *c, uint32_t at);
uint64_t fci_rate_window_used(struct fc_call *c);

#endif /* FC_RATE_STATE_H */
