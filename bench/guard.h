/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * guard.h - the library as a subject of the harness: one interface a case, one context a program.
 */
#ifndef BENCH_GUARD_H
#define BENCH_GUARD_H

#include "bench.h"

#include <fcguard/fcguard.h>

/* The context of the program, with its housekeeping thread, made when first asked for. When counting: no
 * thread, and time stands still, so that each run executes the same instructions. */
struct fc *guard_context(void);

/* A fresh interface with these numbers; opts NULL: a cap of 64. */
struct fc_iface *guard_iface(const char *stem, const struct fc_iface_opts *opts);

/* Fill an interface from a thread that goes on to do nothing; until guard_release(). */
void guard_hold(struct fc_iface *iface, uint32_t n);
void guard_release(void);

extern const struct bench_subject guard_admit;        /* cap of the case, default 64 */
extern const struct bench_subject guard_admit_exact;  /* the same with every call's latency */
extern const struct bench_subject guard_refuse;       /* a cap of 64, full */
extern const struct bench_subject guard_refuse_all;   /* a cap that lets nobody in */

int guard_setup(const struct bench_subject *s, const struct bench_case *c, void **ret_state);
void guard_teardown(void *state);
uint64_t guard_run(void *state, struct bench_worker *w, uint32_t n);

#endif /* BENCH_GUARD_H */
