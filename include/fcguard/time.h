/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/time.h - the clocks of a context.
 *
 * All times of fcguard are uint64_t nanoseconds on one monotonic time line. A call reads the clock
 * once at enter, and once more at exit where its latency is wanted; a caller that knows the time
 * passes it (struct fc_ctx.now_ns). A time that is late, stands still or goes back makes no call
 * older than it is and locks nobody out: ages are taken as zero when they would be negative.
 *
 *   FC_CLOCK_AUTO       coarse where milliseconds do, exact where latency is measured
 *   FC_CLOCK_MONOTONIC  clock_gettime(CLOCK_MONOTONIC): about 25 ns a reading
 *   FC_CLOCK_COARSE     CLOCK_MONOTONIC_COARSE: 3 ns, moves each 1 to 10 ms (the kernel's tick)
 *   FC_CLOCK_TSC        the CPU's counter, where the CPU says that it never stops nor changes its
 *                       rate; checked against CLOCK_MONOTONIC at every tick; else MONOTONIC
 *   FC_CLOCK_VIRTUAL    moves only by fc_clock_set() and fc_clock_advance(): for tests
 */
#ifndef FC_TIME_H
#define FC_TIME_H

#include <fcguard/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fc;

enum fc_clock {
	FC_CLOCK_AUTO = 0,
	FC_CLOCK_MONOTONIC = 1,
	FC_CLOCK_COARSE = 2,
	FC_CLOCK_TSC = 3,
	FC_CLOCK_VIRTUAL = 4,
	FC_CLOCK_FORCE_INT_ = INT32_MAX
};

#define FC_US(n) ((uint64_t)(n) * 1000u)
#define FC_MS(n) ((uint64_t)(n) * 1000000u)
#define FC_S(n)  ((uint64_t)(n) * 1000000000u)

/* Now, on the context's time line, exactly (not coarse). Any thread; no allocation. Cost: the reading. */
FC_API uint64_t fc_now_ns(struct fc *fc) FC_NOEXCEPT;

/*
 * Move a virtual clock. 0, or -EINVAL when the context was not created with FC_CLOCK_VIRTUAL.
 * Any thread; setting it back is allowed (that is a case worth testing).
 */
FC_API int fc_clock_set(struct fc *fc, uint64_t now_ns) FC_NOEXCEPT;
FC_API int fc_clock_advance(struct fc *fc, uint64_t delta_ns) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_TIME_H */
