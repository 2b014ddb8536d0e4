/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/health.h - can this process afford more work? CPU, memory, pressure stalls.
 *
 * The library samples the numbers below off the call path (default: each 250 ms, resting
 * while no calls come), smooths CPU and throttling by elapsed time, judges each against a
 * threshold with hysteresis, and keeps the verdict in one word that the call path reads.
 * A program may supply the numbers itself: fc_health_fn.
 *
 * Where the numbers come from when the library reads them itself:
 *
 *   cpu         cgroup (v1 or v2, the tightest of nested ones) with a quota: used / quota, or
 *               used / CPUs allowed where that is less. No quota: busy time of the CPUs
 *               that affinity and cpuset allow, from /proc/stat; stolen time counts as busy.
 *   throttled   periods in which a cgroup hit its quota / periods. No quota: no number.
 *   memory      tightest cgroup limit (v2: of memory.max and memory.high): usage less
 *               inactive page cache. No limit below the machine's memory: MemAvailable.
 *   psi         "some avg10" of the process's cgroup (v2), else of the machine.
 *   load1       of the machine.
 *
 * A file that is not there leaves its number out (bit off in .valid); that is no error.
 * A file that is there but says nonsense, or a CPU counter that stops while time passes,
 * leaves the last number standing for max_age_ns; after that it is dropped and the state is
 * FC_HEALTH_STALE until it moves again.
 *
 * Units.    permille: 1000 = all of it. Times: CLOCK_MONOTONIC ns. mcpu: 1000 = one CPU.
 * Threads.  Sampling runs in the thread that ticks; fc_health_get() and fc_health_set_source() in any, beside
 *           everything.
 * Errors.   0 ok, < 0 negative errno. Nothing sets errno.
 * Memory.   With the context; none later.
 */
#ifndef FC_HEALTH_H
#define FC_HEALTH_H

#include <stdint.h>
#include <fcguard/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fc; /* opaque */

/* Which number: bits of .valid, .held, .since_last. */
enum fc_health_number {
	FC_HEALTH_CPU        = 1 << 0,
	FC_HEALTH_THROTTLED  = 1 << 1,
	FC_HEALTH_MEMORY     = 1 << 2,
	FC_HEALTH_PSI_CPU    = 1 << 3,
	FC_HEALTH_PSI_MEMORY = 1 << 4,
	FC_HEALTH_PSI_IO     = 1 << 5,
	FC_HEALTH_LOAD1      = 1 << 6,
	FC_HEALTH_JEMALLOC   = 1 << 7, /* only in struct fc_health */
	FC_HEALTH_NUMBER_FORCE_INT_ = INT32_MAX
};

/* The judgement: bits of .state. */
enum fc_health_state {
	FC_HEALTH_GOOD          = 1 << 0, /* alone: healthy enough to let more in */
	FC_HEALTH_BAD_CPU       = 1 << 1,
	FC_HEALTH_BAD_THROTTLED = 1 << 2,
	FC_HEALTH_BAD_MEMORY    = 1 << 3,
	FC_HEALTH_BAD_PRESSURE  = 1 << 4,
	FC_HEALTH_BAD_LOAD      = 1 << 5,
	FC_HEALTH_SOURCE_FAILED = 1 << 6, /* the last call of the source failed */
	FC_HEALTH_STALE         = 1 << 7, /* a number stopped moving, or sampling rests */
	FC_HEALTH_UNKNOWN       = 1 << 8, /* no CPU number yet (own source: no number at all) */
	FC_HEALTH_STATE_FORCE_INT_ = INT32_MAX
};

/* Where a number came from: bits of .from. None of a kind: there is no such number. */
enum fc_health_from {
	FC_HEALTH_CPU_HOST       = 1 << 0,
	FC_HEALTH_CPU_CGROUP1    = 1 << 1,
	FC_HEALTH_CPU_CGROUP2    = 1 << 2,
	FC_HEALTH_CPU_OWN        = 1 << 3, /* quota known, the group's use not: the process's own */
	FC_HEALTH_MEMORY_HOST    = 1 << 4,
	FC_HEALTH_MEMORY_CGROUP1 = 1 << 5,
	FC_HEALTH_MEMORY_CGROUP2 = 1 << 6,
	FC_HEALTH_PSI_HOST       = 1 << 7,
	FC_HEALTH_PSI_CGROUP2    = 1 << 8,
	FC_HEALTH_FROM_FORCE_INT_ = INT32_MAX
};

#define FC_HEALTH_OFF UINT32_MAX /* a threshold: never judge this; hysteresis: none */

#define FC_HEALTH_NO_PURGE 1u    /* opts.flags: never ask jemalloc to give pages back */

/* Larger than any real share. A source's number above it is not believed. */
#define FC_HEALTH_SHARE_MAX_PERMILLE 10000u
#define FC_HEALTH_LOAD_MAX_PERMILLE  1000000000u

/*
 * Thresholds and times. Zero means "default" in every field. Bad is at or above a threshold;
 * good again is below it by hysteresis_permille, or by half the threshold where that is less
 * (5 points under the 5 % of throttling would be nothing, which noise never reaches).
 */
struct fc_health_opts {
	uint32_t size;                /* sizeof(struct fc_health_opts) as the caller compiled it */
	uint32_t flags;               /* FC_HEALTH_NO_PURGE */
	uint32_t cpu_permille;        /* 800 */
	uint32_t throttled_permille;  /* 50 */
	uint32_t memory_permille;     /* 850 */
	uint32_t psi_cpu_permille;    /* 100 */
	uint32_t psi_memory_permille; /* 100 */
	uint32_t psi_io_permille;     /* 100 */
	uint32_t load1_permille;      /* FC_HEALTH_OFF; load average x 1000, not per CPU */
	uint32_t hysteresis_permille; /* 50 */
	uint64_t period_ns;           /* 250 ms; 1 ms .. 1 h */
	uint64_t half_life_ns;        /* 2 periods; of CPU. Throttling: 4 times as long. <= 4 h */
	uint64_t max_age_ns;          /* 8 periods; 4 periods .. 1 day */
	const char *root;             /* "/": where proc and sys are looked for; used at creation */
};
FC_OPTS_ASSERT(struct fc_health_opts, 72);

/*
 * One sample. A source gets it zeroed, but for size and now_ns, and fills in what it knows.
 * A number in neither .valid nor .held does not exist: it is dropped and not judged.
 */
struct fc_health_sample {
	uint32_t size;                /* in: bytes this library knows; write no further */
	uint32_t valid;               /* FC_HEALTH_* numbers that are given here */
	uint32_t held;                /* numbers that exist, but there is no news: keep the last */
	uint32_t since_last;          /* numbers that are averages since the previous call */
	uint32_t cpu_permille;
	uint32_t throttled_permille;
	uint32_t memory_permille;
	uint32_t psi_cpu_permille;
	uint32_t psi_memory_permille;
	uint32_t psi_io_permille;
	uint32_t load1_permille;
	uint32_t cpus;                /* CPUs the process may run on; 0 = not known */
	uint32_t may_use_mcpu;        /* what quota and cpus leave it; 0 = not known */
	uint32_t from;                /* FC_HEALTH_*_HOST and so on */
	uint64_t now_ns;              /* in: the time of this call */
	uint64_t taken_ns;            /* when measured; 0 = now. The same again is no news. */
	uint64_t memory_used_bytes;   /* 0 = not known */
	uint64_t memory_limit_bytes;  /* 0 = not known */
};
FC_OPTS_ASSERT(struct fc_health_sample, 88);

/*
 * A source of samples. Runs in the thread that does the housekeeping, never in a call; it
 * must not block and must not call back into the library. Returns 0, or anything else if it
 * failed: then ret is not looked at, the failure is counted and the state is
 * FC_HEALTH_SOURCE_FAILED (not good) until it succeeds; bad numbers stay bad for max_age_ns.
 */
typedef int (*fc_health_fn)(void *arg, struct fc_health_sample *ret);

/*
 * What is known now. Set .size before the call: FC_OPTS(fc_health, h);
 *
 * .state is FC_HEALTH_GOOD alone, or the reasons why not. .reason is one bit of it: what
 * turned bad first and is still bad; 0 when good.
 */
struct fc_health {
	uint32_t size;
	uint32_t valid;               /* numbers below that mean something */
	uint32_t state;               /* enum fc_health_state bits */
	uint32_t reason;
	uint32_t cpu_permille;        /* smoothed, of what the process may use */
	uint32_t throttled_permille;  /* smoothed, of periods */
	uint32_t memory_permille;
	uint32_t psi_cpu_permille;
	uint32_t psi_memory_permille;
	uint32_t psi_io_permille;
	uint32_t load1_permille;
	uint32_t cpus;
	uint32_t may_use_mcpu;
	uint32_t from;
	uint64_t age_ns;              /* of the last good sample; UINT64_MAX = there is none */
	uint64_t memory_used_bytes;
	uint64_t memory_limit_bytes;
	uint64_t jemalloc_allocated_bytes;
	uint64_t jemalloc_resident_bytes;
	uint64_t jemalloc_dirty_bytes; /* could be given back at once */
	uint64_t samples;             /* counters since creation */
	uint64_t failures;            /* calls of the source that failed */
	uint64_t distrusted;          /* numbers not believed: absurd or old */
	uint64_t purges;              /* times jemalloc was asked to give pages back */
};
FC_OPTS_ASSERT(struct fc_health, 136);

/*
 * Copy out what is known. Any thread, any time; no system call beyond the clock's. If no
 * sample came for max_age_ns (sampling rests without calls) the state has FC_HEALTH_STALE.
 * Returns 0; -EINVAL (size not set); -EAGAIN (a sample was being written all along, or was
 * half written when this process was forked: the next sample mends it).
 */
FC_API FC_MUST_CHECK int fc_health_get(struct fc *fc, struct fc_health *ret) FC_NOEXCEPT;

/*
 * Take the numbers from fn from the next sample on; NULL goes back to the library's own.
 * What was known is forgotten. arg must live until the source is changed or fc destroyed. Waits for the end
 * of a tick that is running.
 * Returns 0 or -EINVAL.
 */
FC_API FC_MUST_CHECK int fc_health_set_source(struct fc *fc, fc_health_fn fn,
                                              void *arg) FC_NOEXCEPT;

/*
 * Other thresholds and times from the next sample on; NULL: those the context was made with. What was bad by
 * the old ones is judged anew. Waits for the end of a tick that is running. Returns 0; -EINVAL (a field out
 * of range, size); -E2BIG.
 */
FC_API int fc_health_set(struct fc *fc, const struct fc_health_opts *opts) FC_NOEXCEPT;

/* Text for one bit of .state (0: "good"), static; for several, that of the lowest bad one. */
FC_API const char *fc_health_reason_text(uint32_t reason) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_HEALTH_H */
