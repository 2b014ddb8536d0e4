/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keyed_state.h - what the files of keyed share: the state in the segment, and how numbers are packed into
 * one word.
 *
 *   head, lanes, plans | places, 8 a bucket | overrides, 7 and a mark a bucket
 *
 * Sizes stand in the head; each process copies them into its conf when it has checked them, and uses
 * only those.
 */
#ifndef FC_KEYED_STATE_H
#define FC_KEYED_STATE_H

#include <string.h>

#include <fcguard/keyed.h>

#include "pair.h"

#define LINE   64u
#define LANES  64u
#define WAYS   8u
#define PLANS  (FC_KEYED_PLANS_MAX + 1)
#define NOTES  1024u
#define FRAC   4u                    /* bits of a token's time under 1 ns */
#define INLINE static inline __attribute__((__always_inline__)) /* what waits for the last lock */
#define UNITS_MAX (1ull << 62)

/* Of confs that do not say, and the fewest. */
#define PLACES_MIN 1024u
#define PLACES     65536u
#define OVERRIDES  1024u
#define LEASE_NS   FC_S(3600)

static const struct pair nobody = { 0, 0 };

struct lane {
	_Alignas(LINE) uint64_t inserted;
	uint64_t evicted, overflows, without;
};

struct plan {
	uint64_t id;      /* hash of its name; 0: none. Set once */
	uint64_t numbers; /* packed */
};

struct head {
	/* Hardly ever written. */
	_Alignas(LINE) uint64_t seed;
	uint32_t buckets, o_buckets; /* powers of two */
	uint64_t newest;    /* now, at most NEWEST_NS behind */
	uint64_t back;      /* first now of a clock that seems set back; 0: none */
	uint64_t most_ns;   /* longest time that numbers of overrides take to be full again */
	uint64_t overriding; /* 1: there has been an override */
	_Alignas(LINE) uint64_t ticket; /* makes each claim of a place another one */
	_Alignas(LINE) struct lane lane[LANES];
	struct plan plan[PLANS];
	uint64_t refused[NOTES]; /* values refused last, for check; a note, not needed */
};

struct places {
	_Alignas(2 * LINE) struct pair way[WAYS];
};

/* way[7].a: 1: some that belong here are in their second bucket. */
struct overrides {
	_Alignas(2 * LINE) struct pair way[WAYS];
};

/* Of a key, as calls use them. */
struct numbers {
	uint64_t token;  /* time of a token in units of 1/16 ns; 0: no limit */
	uint64_t full;   /* burst * token */
	uint64_t burst;
	uint32_t cap;    /* 0: none */
	uint32_t packed_token;
	uint32_t deny;
};

/* fc_keyed_conf.made_, by name. */
struct made {
	uint64_t label;
	struct numbers numbers;
	uint32_t b_mask, o_mask;
	const struct head *was; /* the table before it grew; NULL: none */
	uint64_t lease_ns;
	uint32_t was_mask;
};
FC_STATIC_ASSERT(sizeof(struct made) <= sizeof(((struct fc_keyed_conf *)0)->made_), "room in the conf");

static inline struct made *made_of(const struct fc_keyed_conf *conf)
{
	return (struct made *)(void *)(uintptr_t)conf->made_;
}

static inline struct places *places_of(const struct head *h)
{
	return (struct places *)(void *)((char *)(uintptr_t)h + (sizeof(struct head) + 127) / 128 * 128);
}

static inline struct overrides *overrides_of(const struct head *h, uint32_t buckets)
{
	return (struct overrides *)(void *)(places_of(h) + buckets);
}

static inline uint64_t bytes_of(uint32_t buckets, uint32_t o_buckets)
{
	return (sizeof(struct head) + 127) / 128 * 128 + (uint64_t)buckets * sizeof(struct places) +
	       (uint64_t)o_buckets * sizeof(struct overrides);
}

static inline void count(uint64_t *p)
{
	__atomic_fetch_add(p, 1, __ATOMIC_RELAXED); /* N: a statistic */
}

/*
 * 1: done. The litmus: each of two callers writes its claim of a key into another place (X1, pair.h), then
 * reads the other's place (A1): at least one of them sees the other's.
 */
static inline int swap_pair(struct pair *p, struct pair was, struct pair to)
{
	return pair_swap(p, &was, to);
}

/* A pair as it was at one time; when it changes all the time, some mix that a swap will not find. */
static inline struct pair read_pair(const struct pair *p)
{
	struct pair r;
	int tries = 4;

	do {
		/* A1 -> X1 (pair.h). Acquire on b: the second look at a is later. */
		r.a = __atomic_load_n(&p->a, __ATOMIC_SEQ_CST);
		r.b = __atomic_load_n(&p->b, __ATOMIC_ACQUIRE);
	} while (get(&p->a) != r.a && --tries);
	return r;
}

/* Where a key may be: its hash, one to one, by the seed of the table (values are good hashes already); and
 * its second bucket. */
static inline uint64_t mix(uint64_t value, uint64_t seed)
{
	uint64_t x = (value ^ seed) * 0xd6e8feb86659fd93ull;

	return x ^ x >> 32;
}

static inline uint32_t second(uint64_t hash, uint32_t mask)
{
	uint32_t by = (uint32_t)((hash >> 20) * 0x9e3779b97f4a7c15ull >> 40);

	return ((uint32_t)hash ^ (by | 1)) & mask;
}

/* keyed_conf.c */
uint64_t fci_keyed_state_size(const void *conf, uint32_t cpus);
int fci_keyed_setup(struct fc_setup *s);

/* keyed_override.c: packed numbers. 0; -EINVAL, -ERANGE, and then `what` says what is allowed. */
int fci_keyed_pack(const struct fc_keyed_numbers *n, uint64_t *ret, const char **ret_what);
void fci_keyed_unpack(uint64_t packed, struct numbers *n);
uint64_t fci_keyed_token(uint32_t packed);

/* Numbers of a value that has its own; 0: it has not. */
int fci_keyed_find(const struct head *h, const struct made *m, uint64_t value, struct numbers *ret);
void fci_keyed_carry(const struct head *was, uint32_t was_buckets, uint32_t was_o, struct head *h);
uint64_t fci_keyed_overrides(const struct head *h, const struct made *m);

#endif /* FC_KEYED_STATE_H */
