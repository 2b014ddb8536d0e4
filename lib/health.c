/* SPDX-License-Identifier: BSD-2-Clause */
#include "health.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define HOUR_NS (UINT64_C(3600000) * MS)
#define DAY_NS (24 * HOUR_NS)
#define ALL_NUMBERS ((1u << FCI_HEALTH_NUMBERS) - 1)
#define SNAPSHOT_TRIES 64

/* By bit number. Load is a number of threads, up to 10^9 permille: no room for 8 more bits. */
#define MEMORY 2u
#define LOAD1  6u
_Static_assert(FC_HEALTH_MEMORY == 1 << MEMORY && FC_HEALTH_LOAD1 == 1 << LOAD1, "bit numbers");

/* By bit number of enum fc_health_number. */
static const struct {
	uint16_t in_sample;
	uint16_t in_health;
	uint16_t in_opts;
	uint16_t state;
	uint8_t half_lives; /* of opts.half_life_ns; 0 = not smoothed */
	uint32_t max;
} numbers[FCI_HEALTH_NUMBERS] = {
#define NUMBER(name_, state_, half_lives_, max_)                                               \
	{ offsetof(struct fc_health_sample, name_), offsetof(struct fc_health, name_),         \
	  offsetof(struct fc_health_opts, name_), state_, half_lives_, max_ }
	NUMBER(cpu_permille, FC_HEALTH_BAD_CPU, 1, FC_HEALTH_SHARE_MAX_PERMILLE),
	/* A period is 100 ms, two or three a sample: one that is throttled is not yet 5 %. */
	NUMBER(throttled_permille, FC_HEALTH_BAD_THROTTLED, 4, FC_HEALTH_SHARE_MAX_PERMILLE),
	/* A level, not a rate: the newest is the best. */
	NUMBER(memory_permille, FC_HEALTH_BAD_MEMORY, 0, FC_HEALTH_SHARE_MAX_PERMILLE),
	/* Averages of 10 s and 1 min as they come. */
	NUMBER(psi_cpu_permille, FC_HEALTH_BAD_PRESSURE, 0, FC_HEALTH_SHARE_MAX_PERMILLE),
	NUMBER(psi_memory_permille, FC_HEALTH_BAD_PRESSURE, 0, FC_HEALTH_SHARE_MAX_PERMILLE),
	NUMBER(psi_io_permille, FC_HEALTH_BAD_PRESSURE, 0, FC_HEALTH_SHARE_MAX_PERMILLE),
	NUMBER(load1_permille, FC_HEALTH_BAD_LOAD, 0, FC_HEALTH_LOAD_MAX_PERMILLE),
#undef NUMBER
};

static uint32_t u32_at(const void *base, size_t offset)
{
	uint32_t v;

	memcpy(&v, (const char *)base + offset, sizeof(v));
	return v;
}

static uint64_t add_sat(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- options ---- */

static int import_opts(struct fc_health_opts *o, const struct fc_health_opts *opts)
{
	*o = (struct fc_health_opts){ .size = sizeof(*o) };
	if (!opts)
		return 0;
	if (opts->size < sizeof(*o)) /* this is the first version */
		return -EINVAL;
	for (size_t i = sizeof(*o); i < opts->size; i++)
		if (((const unsigned char *)opts)[i])
			return -E2BIG;
	memcpy(o, opts, sizeof(*o));
	o->size = sizeof(*o);
	return 0;
}

static void default_u32(uint32_t *v, uint32_t value)
{
	if (*v == 0)
		*v = value;
}

static void default_u64(uint64_t *v, uint64_t value)
{
	if (*v == 0)
		*v = value;
}

/* Fill in the defaults and check. */
static int complete_opts(struct fc_health_opts *o)
{
	default_u32(&o->cpu_permille, 800);
	default_u32(&o->throttled_permille, 50);
	default_u32(&o->memory_permille, 850);
	default_u32(&o->psi_cpu_permille, 100);
	default_u32(&o->psi_memory_permille, 100);
	default_u32(&o->psi_io_permille, 100);
	default_u32(&o->load1_permille, FC_HEALTH_OFF);
	default_u32(&o->hysteresis_permille, 50);
	default_u64(&o->period_ns, 250 * MS);
	if (o->flags & ~FC_HEALTH_NO_PURGE)
		return -EINVAL;
	if (o->period_ns < MS || o->period_ns > HOUR_NS)
		return -EINVAL;
	default_u64(&o->half_life_ns, 2 * o->period_ns);
	default_u64(&o->max_age_ns, 8 * o->period_ns);
	if (o->half_life_ns > 4 * HOUR_NS || o->max_age_ns < 4 * o->period_ns ||
	    o->max_age_ns > DAY_NS)
		return -EINVAL;
	for (uint32_t i = 0; i < FCI_HEALTH_NUMBERS; i++) {
		uint32_t t = u32_at(o, numbers[i].in_opts);

		if (t != FC_HEALTH_OFF && t > numbers[i].max)
			return -EINVAL;
	}
	return 0;
}

static void apply_opts(struct fci_health *h, const struct fc_health_opts *o)
{
	uint32_t hysteresis = o->hysteresis_permille == FC_HEALTH_OFF ? 0 : o->hysteresis_permille;

	h->opts = *o;
	h->opts.root = NULL;
	for (uint32_t i = 0; i < FCI_HEALTH_NUMBERS; i++) {
		struct fci_health_number *n = &h->number[i];

		n->high = u32_at(o, numbers[i].in_opts);
		n->low = n->high - (hysteresis < n->high / 2 ? hysteresis : n->high / 2);
		if (n->high == FC_HEALTH_OFF)
			n->bad = false;
	}
}

int fci_health_set_opts(struct fci_health *h, const struct fc_health_opts *opts)
{
	struct fc_health_opts o;
	int r = import_opts(&o, opts);

	if (r == 0)
		r = complete_opts(&o);
	if (r == 0)
		apply_opts(h, &o);
	return r;
}

void fci_health_get_opts(const struct fci_health *h, struct fc_health_opts *ret)
{
	*ret = h->opts;
}

/* ---- showing ---- */

static void show(struct fci_health *h)
{
	uint64_t words[FCI_HEALTH_WORDS];
	uint32_t seq;

	memcpy(words, &h->now, sizeof(words));
	/* N1: only this thread writes seq. Odd already if a fork caught the parent writing. */
	seq = atomic_load_explicit(&h->seq, memory_order_relaxed) | 1u;
	/* N2: ordered before the words by each R1. */
	atomic_store_explicit(&h->seq, seq, memory_order_relaxed);
	for (size_t i = 0; i < FCI_HEALTH_WORDS; i++)
		/* R1 -> A1 (fci_health_snapshot): who sees this word also sees seq odd. Without
		 * it a reader could take new words between two readings of the old seq. */
		atomic_store_explicit(&h->shown[i], words[i], memory_order_release);
	/* R2 -> A2 (fci_health_snapshot): who sees this seq sees all the words of it. */
	atomic_store_explicit(&h->seq, seq + 1, memory_order_release);
}

static bool copy_shown(struct fci_health *h, struct fci_health_shown *ret)
{
	uint64_t words[FCI_HEALTH_WORDS];

	for (int try = 0; try < SNAPSHOT_TRIES; try++) {
		uint32_t seq;

		/* A2 -> R2 (show): the words are at least as new as this seq. */
		seq = atomic_load_explicit(&h->seq, memory_order_acquire);
		if (seq & 1)
			continue;
		for (size_t i = 0; i < FCI_HEALTH_WORDS; i++)
			/* A1 -> R1 (show): a newer word makes N3 see the newer seq. */
			words[i] = atomic_load_explicit(&h->shown[i], memory_order_acquire);
		/* N3: kept behind the words by each A1. seq wraps in 2^31 samples: in no copy. */
		if (atomic_load_explicit(&h->seq, memory_order_relaxed) == seq) {
			memcpy(ret, words, sizeof(words));
			return true;
		}
	}
	return false;
}

int fci_health_snapshot(struct fci_health *h, uint64_t now_ns, struct fc_health *ret)
{
	struct fci_health_shown s;
	struct fc_health *o = &s.health;
	uint32_t size = ret->size;

	if (size < sizeof(*o)) /* this is the first version */
		return -EINVAL;
	if (!copy_shown(h, &s))
		return -EAGAIN;
	o->age_ns = UINT64_MAX;
	if (o->samples) {
		o->age_ns = now_ns > s.sampled_ns ? now_ns - s.sampled_ns : 0;
		if (o->age_ns > s.max_age_ns) {
			o->state = (o->state & ~(uint32_t)FC_HEALTH_GOOD) | FC_HEALTH_STALE;
			if (!o->reason)
				o->reason = FC_HEALTH_STALE;
		}
	}
	memset(ret, 0, size);
	memcpy(ret, o, sizeof(*o));
	ret->size = size;
	return 0;
}

/* ---- start and end ---- */

static void forget(struct fci_health *h)
{
	for (uint32_t i = 0; i < FCI_HEALTH_NUMBERS; i++) {
		h->number[i].known = FCI_HEALTH_NONE;
		h->number[i].bad = false;
		h->number[i].provisional = false;
	}
}

void fci_health_set_source(struct fci_health *h, fc_health_fn fn, void *arg)
{
	h->fn = fn ? fn : fci_health_read;
	h->arg = fn ? arg : &h->read;
	/* Without a CPU number of its own the library does not call a process healthy; a program's
	 * source says itself what matters. */
	h->need = fn ? ALL_NUMBERS : FC_HEALTH_CPU;
	h->ran = false;
	forget(h);
	h->now.health.state = FC_HEALTH_UNKNOWN;
	h->now.health.reason = FC_HEALTH_UNKNOWN;
	h->now.health.valid = 0;
	h->now.health.from = 0;
	h->now.max_age_ns = h->opts.max_age_ns;
	show(h);
}

int fci_health_init(struct fci_health *h, const struct fc_health_opts *opts)
{
	struct fc_health_opts o;
	int r = import_opts(&o, opts);

	if (r == 0)
		r = complete_opts(&o);
	if (r < 0)
		return r;
	memset(h, 0, sizeof(*h));
	r = fci_health_read_init(&h->read, o.root);
	if (r < 0)
		return r;
	fci_jemalloc_init(&h->jemalloc);
	apply_opts(h, &o);
	h->now.health.size = sizeof(struct fc_health);
	fci_health_set_source(h, NULL, NULL);
	return 0;
}

void fci_health_fini(struct fci_health *h)
{
	fci_health_read_fini(&h->read);
}

/* ---- judging ---- */

/* x * 2^(-dt / half), half > 0. Between halvings a parabola from 1 to 0.5: within 0.3 %. */
static uint32_t decay(uint32_t x, uint64_t dt, uint64_t half)
{
	uint64_t whole = dt / half, f, w;

	if (whole >= 32)
		return 0;
	f = ((dt % half) << 16) / half; /* half is at most 16 h: below 2^46 */
	w = 65536 - (f * 44020 >> 16) + ((f * f >> 16) * 11252 >> 16);
	return (uint32_t)((x * w >> 16) >> whole);
}

static uint32_t blend(uint32_t old, uint32_t new, uint64_t dt, uint64_t half)
{
	return new > old ? new - decay(new - old, dt, half) : new + decay(old - new, dt, half);
}

static uint32_t value(const struct fci_health_number *n, uint32_t i)
{
	return i == LOAD1 ? n->ema_q8 : n->ema_q8 >> 8;
}

/* v is news, measured at taken. apart: v is an average over a rest. */
static void take(struct fci_health *h, uint32_t i, uint32_t v, uint64_t taken, bool apart)
{
	struct fci_health_number *n = &h->number[i];
	uint64_t half = numbers[i].half_lives * h->opts.half_life_ns;
	uint32_t q8 = i == LOAD1 ? v : v << 8;

	if (apart && v < n->high) {
		n->known = FCI_HEALTH_NONE;
		n->bad = false;
		return;
	}
	if (n->known == FCI_HEALTH_LIVE && !n->provisional && half > 0)
		q8 = blend(n->ema_q8, q8, taken - n->renewed_ns, half);
	n->ema_q8 = q8;
	n->known = FCI_HEALTH_LIVE;
	n->provisional = apart;
	n->renewed_ns = taken;
	n->bad = n->high != FC_HEALTH_OFF && value(n, i) >= (n->bad ? n->low : n->high);
}

static void hold(struct fci_health *h, uint32_t i, uint64_t now_ns)
{
	struct fci_health_number *n = &h->number[i];

	if (n->known != FCI_HEALTH_LIVE || now_ns - n->renewed_ns <= h->opts.max_age_ns)
		return;
	n->known = FCI_HEALTH_LOST;
	n->bad = false;
	h->now.health.distrusted++;
}

static void judge(struct fci_health *h, const struct fc_health_sample *s, bool apart)
{
	for (uint32_t i = 0; i < FCI_HEALTH_NUMBERS; i++) {
		struct fci_health_number *n = &h->number[i];
		uint32_t bit = 1u << i, v = u32_at(s, numbers[i].in_sample);
		bool absurd = v > numbers[i].max;

		if (!((s->valid | s->held) & bit)) {
			n->known = FCI_HEALTH_NONE;
			n->bad = false;
		} else if (!(s->valid & bit)) {
			hold(h, i, s->now_ns);
		} else if (absurd ||
		           (n->known == FCI_HEALTH_LIVE && s->taken_ns <= n->renewed_ns)) {
			h->now.health.distrusted += absurd;
			hold(h, i, s->now_ns);
		} else {
			take(h, i, v, s->taken_ns, apart && (s->since_last & bit));
		}
	}
}

/* Call the source; afterwards taken_ns is set, and nothing is valid if there is no news. */
static bool ask(struct fci_health *h, uint64_t now_ns, struct fc_health_sample *s)
{
	int r;

	*s = (struct fc_health_sample){ .size = sizeof(*s), .now_ns = now_ns };
	r = h->fn(h->arg, s);
	if (r != 0)
		*s = (struct fc_health_sample){ .held = ALL_NUMBERS };
	s->now_ns = now_ns;
	if (s->taken_ns == 0 || s->taken_ns > now_ns)
		s->taken_ns = now_ns;
	if (now_ns - s->taken_ns > h->opts.max_age_ns) {
		s->held |= s->valid;
		s->valid = 0;
		h->now.health.distrusted++;
	}
	return r == 0;
}

/* Memory about to be judged bad: jemalloc may hold pages that nobody uses (H-3). */
static void make_room(struct fci_health *h, struct fc_health_sample *s)
{
	const struct fci_health_number *n = &h->number[MEMORY];

	if (!(s->valid & FC_HEALTH_MEMORY) || n->high == FC_HEALTH_OFF ||
	    s->memory_permille < (n->bad ? n->low : n->high) ||
	    (h->opts.flags & FC_HEALTH_NO_PURGE) ||
	    fci_jemalloc_purge(&h->jemalloc, FCI_HEALTH_PURGE_BYTES) == 0)
		return;
	h->now.health.purges++;
	/* A program's source is not asked twice: its next sample shows what it brought. */
	if (h->fn == fci_health_read)
		fci_health_read_memory(&h->read, s);
}

static uint32_t word_of(const struct fci_health *h, bool failed, uint32_t valid)
{
	uint32_t word = failed ? FC_HEALTH_SOURCE_FAILED : 0;

	for (uint32_t i = 0; i < FCI_HEALTH_NUMBERS; i++) {
		if (h->number[i].bad)
			word |= numbers[i].state;
		if (h->number[i].known == FCI_HEALTH_LOST)
			word |= FC_HEALTH_STALE;
	}
	if (!(valid & h->need))
		word |= FC_HEALTH_UNKNOWN;
	return word ? word : FC_HEALTH_GOOD;
}

/* Into h->now: numbers, word, reason, and what the sample says beside them. */
static void conclude(struct fci_health *h, const struct fc_health_sample *s, bool ok)
{
	struct fc_health *o = &h->now.health;
	struct fci_jemalloc_figures f;
	uint32_t bad;

	o->valid = 0;
	for (uint32_t i = 0; i < FCI_HEALTH_NUMBERS; i++) {
		uint32_t v = 0;

		if (h->number[i].known == FCI_HEALTH_LIVE) {
			o->valid |= 1u << i;
			v = value(&h->number[i], i);
		}
		memcpy((char *)o + numbers[i].in_health, &v, sizeof(v));
	}
	o->state = word_of(h, !ok, o->valid);
	bad = o->state & ~(uint32_t)FC_HEALTH_GOOD;
	if (!(o->reason & bad))
		o->reason = bad & (~bad + 1); /* the lowest */
	h->now.max_age_ns = h->opts.max_age_ns;
	if (ok) {
		o->samples++;
		h->now.sampled_ns = s->taken_ns;
		o->cpus = s->cpus;
		o->may_use_mcpu = s->may_use_mcpu;
		o->from = s->from;
		o->memory_used_bytes = s->memory_used_bytes;
		o->memory_limit_bytes = s->memory_limit_bytes;
	} else {
		o->failures++;
	}
	if (fci_jemalloc_figures(&h->jemalloc, &f) == 0) {
		o->valid |= FC_HEALTH_JEMALLOC;
		o->jemalloc_allocated_bytes = f.allocated_bytes;
		o->jemalloc_resident_bytes = f.resident_bytes;
		o->jemalloc_dirty_bytes = f.dirty_bytes;
	}
}

/* Is a sample to be taken? *ret_apart: yes, and the one before does not count. */
static bool due(const struct fci_health *h, uint64_t now_ns, bool *ret_apart)
{
	*ret_apart = true;
	if (!h->ran)
		return true;
	if (now_ns < h->last_ns)
		return h->last_ns - now_ns > h->opts.max_age_ns;
	*ret_apart = now_ns - h->last_ns > h->opts.max_age_ns;
	return now_ns >= h->next_ns && now_ns > h->last_ns;
}

uint64_t fci_health_sample(struct fci_health *h, uint64_t now_ns, uint32_t *ret_word)
{
	struct fc_health_sample s;
	int saved = errno;
	bool apart, ok;

	if (due(h, now_ns, &apart)) {
		if (apart)
			forget(h);
		ok = ask(h, now_ns, &s);
		make_room(h, &s);
		judge(h, &s, apart);
		conclude(h, &s, ok);
		show(h);
		h->ran = true;
		h->last_ns = now_ns;
		h->next_ns = add_sat(now_ns, apart ? h->opts.period_ns / 4 : h->opts.period_ns);
	}
	*ret_word = h->now.health.state;
	errno = saved;
	return h->next_ns;
}

const char *fc_health_reason_text(uint32_t reason)
{
	static const char *const text[] = {
		"good", "cpu use too high", "cpu quota throttles", "memory too full",
		"pressure stalls too long", "load too high", "health source failed",
		"last sample too old", "not known yet",
	};

	for (uint32_t i = 1; i < sizeof(text) / sizeof(text[0]); i++)
		if (reason & (1u << i))
			return text[i];
	return text[0];
}
