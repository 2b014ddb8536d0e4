/* SPDX-License-Identifier: BSD-2-Clause */
/* tick.c - housekeeping, in fc_tick() or in the library's one thread. See tick.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "async.h"
#include "chain.h"
#include "check.h"
#include "entry.h"
#include "events.h"
#include "history.h"
#include "inflight.h"
#include "limit.h"
#include "ruled.h"
#include "stuck.h"
#include "system.h"
#include "tick.h"
#include "wait.h"

#define CHECKS_UNTICKED 100u /* about a second of refusals */
#define BUDGET_NS      FC_MS(1)
#define LOOK_NS        100u       /* to see that an interface sleeps: two lines of memory */
#define PERIOD_NS      FC_MS(250) /* between looks at an interface in use */
#define DRAIN_NS       FC_MS(10)  /* while a limit is being lowered */
#define SAMPLES_PER_S  1000u
#define RETRY_MIN_NS   FC_MS(1)
#define RETRY_MAX_NS   FC_S(30)
#define RETRY_WINDOW   FC_S(10)
#define RETRY_SAMPLES  20u
#define THREAD_STACK   (256u * 1024)

/* ---- one at a time ----------------------------------------------------------------------------- */

static uint32_t my_tid(void)
{
	/* N6: own word. */
	return atomic_load_explicit(&fci_thread_self()->tid, FCI_RLX);
}

static int try_lock(struct fc *fc)
{
	uint32_t free = 0;

	/* X1: acquire: what the last ticking thread did; released by fci_tick_unlock. */
	return atomic_compare_exchange_strong_explicit(&fc->ticking, &free, my_tid(), FCI_ACQ, FCI_RLX);
}

int fci_tick_lock(struct fc *fc)
{
	while (!try_lock(fc)) {
		/* N6: only this thread writes its own number. A callback of the tick came here. */
		if (atomic_load_explicit(&fc->ticking, FCI_RLX) == my_tid())
			return 0;
		usleep(200);
	}
	return 1;
}

void fci_tick_unlock(struct fc *fc)
{
	/* R1 -> X1. */
	atomic_store_explicit(&fc->ticking, 0, FCI_REL);
}

/* ---- one interface ----------------------------------------------------------------------------- */

/* Threshold for about SAMPLES_PER_S samples of `n` calls in `ns`. Only ever towards more samples:
 * the sampler itself goes down. */
static void relax_sampling(fci_a64 *threshold, uint64_t n, uint64_t ns)
{
	uint64_t per_s = ns ? (uint64_t)((double)n * 1e9 / (double)ns) : 0;
	uint64_t want = per_s <= SAMPLES_PER_S ? UINT64_MAX : UINT64_MAX / (per_s / SAMPLES_PER_S);

	/* N1: a rate. */
	if (atomic_load_explicit(threshold, FCI_RLX) < want)
		atomic_store_explicit(threshold, want, FCI_RLX);
}

/* Latencies since the window began; how many. Low halves: they wrap, and only differences count. */
static uint64_t latencies_of_window(const struct fc_iface *f, struct fc_hist *h)
{
	uint64_t n = 0;

	(void)fc_iface_hist(f, h);
	for (uint32_t i = 0; i < FC_HIST_BUCKETS; i++) {
		h->count[i] = (uint32_t)h->count[i] - f->retry_base[i];
		n += h->count[i];
	}
	return n;
}

/* A window is as long as it takes to have enough samples. A clock that was set back ends it, too. */
static void roll_retry_window(struct fc_iface *f, const struct fc_hist *h, uint64_t now)
{
	if (f->retry_at && now - f->retry_at < RETRY_WINDOW)
		return;
	if (f->retry_at) {
		for (uint32_t i = 0; i < FC_HIST_BUCKETS; i++)
			f->retry_base[i] += (uint32_t)h->count[i];
		f->retry_known = 1;
	}
	f->retry_at = now ? now : 1;
}

/* What refused callers are told: the median latency of the last calls; of a few only when there were no
 * others. */
static void update_retry(struct fc_iface *f, uint64_t now)
{
	struct fc_hist h;
	uint64_t n = latencies_of_window(f, &h), median;

	if (n == 0 || (n < RETRY_SAMPLES && f->retry_known))
		return;
	median = fc_hist_quantile_ns(&h, NULL, 500);
	median = median < RETRY_MIN_NS ? RETRY_MIN_NS : median > RETRY_MAX_NS ? RETRY_MAX_NS : median;
	/* N2: advice. */
	atomic_store_explicit(&f->gate->retry_after_ns, median, FCI_RLX);
	if (n >= RETRY_SAMPLES)
		roll_retry_window(f, &h, now);
}

static uint64_t refused_all(const struct fc_iface *f)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < FC_STATS_REASONS; i++)
		n += fci_counted(f, i);
	return n;
}

/* The reason that has refused most since the last look. N3. */
static uint32_t new_reason(const struct fc_iface *f)
{
	uint32_t reason = 0, most = 0;

	for (uint32_t i = 0; i < FC_STATS_REASONS; i++) {
		/* N3: see watch_refusals. */
		uint32_t n = (uint32_t)fci_counted(f, i) - atomic_load_explicit(&f->block->rare.reasons_seen[i], FCI_RLX);

		if (n > most) {
			most = n;
			reason = i;
		}
	}
	return reason;
}

/* The limit, where it says something of the refusals. */
static uint32_t places_of(const struct fc_iface *f, uint32_t reason)
{
	switch (reason) {
	case FC_REFUSED_CAP:
	case FC_REFUSED_QUEUE:
	case FC_REFUSED_WAIT:
	case FC_REFUSED_WEIGHT: return fc_limit_get(f);
	default: return FC_UNLIMITED;
	}
}

/* Tell when refusing begins and ends. N3: only the ticking thread uses these. */
static void watch_refusals(struct fc_iface *f, uint64_t refused, uint64_t now)
{
	struct fci_rare *r = &f->block->rare;
	uint64_t seen = atomic_load_explicit(&r->refused_seen, FCI_RLX), since = atomic_load_explicit(&r->refusing_since, FCI_RLX);

	if (refused != seen) {
		if (!since) {
			uint32_t reason = new_reason(f);

			fc_event_note(f, FC_EVENT_REFUSING, reason, places_of(f, reason));
			atomic_store_explicit(&r->refused_before, seen, FCI_RLX);
		}
		atomic_store_explicit(&r->refusing_since, now | 1, FCI_RLX);
		atomic_store_explicit(&r->refused_seen, refused, FCI_RLX);
		for (uint32_t i = 0; i < FC_STATS_REASONS; i++)
			atomic_store_explicit(&r->reasons_seen[i], (uint32_t)fci_counted(f, i), FCI_RLX);
	} else if (since && now > since && now - since > FC_S(5)) {
		fc_event_note(f, FC_EVENT_ADMITTING, now - since, refused - atomic_load_explicit(&r->refused_before, FCI_RLX));
		atomic_store_explicit(&r->refusing_since, 0, FCI_RLX);
	}
}

/* Nothing since the last look and nobody inside: skip it from now on. 1: asleep. */
static int fall_asleep(struct fc_iface *f, uint64_t activity)
{
	if (activity != f->tick_activity) {
		f->tick_activity = activity;
		return 0;
	}
	fci_gate_set(f, FCI_GATE_ASLEEP, 0);
	/* X3 -> A2 of inflight.h: a claim after this sees the flag; one before it is counted here. */
	if (fci_inside_count(f, UINT32_MAX, NULL) == 0 && fci_writeoff_used(f) == 0 && fci_waiting(f) == 0)
		return 1;
	fci_gate_set(f, 0, FCI_GATE_ASLEEP);
	return 0;
}

/* Good ones are those that have left by themselves and have not failed. A call that was purged or written
 * off has not gone well: it is one of all, and fc_completed() leaves it out. */
static void tick_history(struct fc_iface *f, uint64_t refused, uint64_t now)
{
	uint64_t failed = fci_counted(f, FCI_C_ERROR) + fci_counted(f, FCI_C_TIMEOUT);
	/* N2: read before those that have left: the sum may be short for a moment, never too high. */
	uint64_t abandoned = atomic_load_explicit(&f->block->rare.abandoned, FCI_RLX), left = fc_completed(f);

	fci_history_tick(f, left > failed ? left - failed : 0, left + abandoned + refused, now);
}

static uint64_t tick_iface(struct fc_iface *f, uint64_t now)
{
	uint32_t inside = fci_inside_count(f, UINT32_MAX, NULL);
	uint64_t gens = fci_generations(f), refused = refused_all(f), last = f->tick_last, next, one;
	int wanted;

	fci_max_u32(&f->block->rare.peak, inside);
	(void)fci_purge_stale(f, now);
	fci_writeoff_tick(f, now);
	next = fci_limit_tick(f) ? now + DRAIN_NS : now + PERIOD_NS;
	fci_wait_tick(f);
	one = fci_stuck_tick(f, now);
	next = one < next ? one : next;
	one = fci_chain_tick(f, now);
	wanted = one != FC_NEVER_NS;
	next = one < next ? one : next;
	if (last && now > last) {
		relax_sampling(&f->gate->sample, gens - f->tick_gens, now - last);
		relax_sampling(&f->gate->sample_refused, refused - f->tick_refused, now - last);
	}
	f->tick_gens = gens;
	f->tick_refused = refused;
	f->tick_last = now;
	update_retry(f, now);
	watch_refusals(f, refused, now);
	tick_history(f, refused, now);
	/* N3: see watch_refusals: an interface that refused lately is not asleep, nor one with an interceptor
	 * that wants to run. */
	if (inside == 0 && !wanted && !atomic_load_explicit(&f->block->rare.refusing_since, FCI_RLX) && fall_asleep(f, gens + refused))
		return FC_NEVER_NS;
	return next > now ? next : now + 1;
}

/* ---- the context ------------------------------------------------------------------------------- */

/* Sample, when it is time. 0: health has just turned bad, and limits that were raised go back at once: all
 * interfaces are due again. N4: only the ticking thread writes the word. */
static int tick_health(struct fc *fc, uint64_t now)
{
	uint32_t old = atomic_load_explicit(&fc->head->health, FCI_RLX), word;
	int turned = 0;

	/* Further off than a period, the clock was set back. */
	if (now < fc->health_at && fc->health_at - now <= fc->health.opts.period_ns)
		return 1;
	fc->health_at = fci_health_sample(&fc->health, now, &word);
	if (fc->health_at <= now)
		fc->health_at = now + FC_MS(1);
	atomic_store_explicit(&fc->head->health, word, FCI_RLX);
	if ((old & FC_HEALTH_GOOD) && !(word & FC_HEALTH_GOOD)) {
		fci_note(fc, NULL, FC_EVENT_HEALTH_BAD, word, 0);
		turned = 1;
	} else if (!(old & FC_HEALTH_GOOD) && (word & FC_HEALTH_GOOD) && !(old & FC_HEALTH_UNKNOWN))
		fci_note(fc, NULL, FC_EVENT_HEALTH_GOOD, word, 0);
	fc->system_due = 1;
	return !turned;
}

static int asleep(const struct fc_iface *f)
{
	/* A1 -> X1 (fci_iface_wake): SC, see begin_pass. */
	return (atomic_load_explicit(&f->gate->word, FCI_SC) & FCI_GATE_ASLEEP) != 0;
}

/*
 * A pass looks at every interface, and may take several ticks. If it finds all asleep, housekeeping may
 * sleep, too. SC on both sides: a first call clears its interface's flag and then takes `idle`; we set
 * `idle`, then look at the flags. So a call that a look has missed finds `idle` and wakes us.
 */
static void begin_pass(struct fc *fc, int all)
{
	/* A2 -> R1 of iface.c: the handles are complete. */
	fc->tick_left = atomic_load_explicit(&fc->n_ifaces, FCI_ACQ);
	fc->tick_next = FC_NEVER_NS;
	fc->tick_all = all;
	/* X1 -> X1 (fci_iface_wake). */
	atomic_store_explicit(&fc->idle, 1, FCI_SC);
}

/* One interface. 1: it was awake and due. */
static int look_at(struct fc *fc, struct fc_iface *f, uint64_t now)
{
	int due;

	if (asleep(f)) {
		if (f->tick_at)
			f->tick_at = 0;
		return 0;
	}
	/* Never asked for later than a period: further off, the clock was set back. */
	due = fc->tick_all || f->tick_at <= now || f->tick_at > now + PERIOD_NS;
	if (due)
		f->tick_at = tick_iface(f, now);
	if (f->tick_at < fc->tick_next)
		fc->tick_next = f->tick_at;
	return due;
}

/* On with the pass, as far as the budget goes: when to go on, `now`, or when the next pass is due. */
static uint64_t tick_ifaces(struct fc *fc, uint64_t now, uint64_t until, uint64_t *looks)
{
	while (fc->tick_left && *looks) {
		/* N4: it only grows. */
		uint32_t n = atomic_load_explicit(&fc->n_ifaces, FCI_RLX), i = fc->tick_cursor % n;

		fc->tick_cursor = i + 1;
		fc->tick_left--;
		--*looks;
		if (look_at(fc, fc_iface_at(fc, i), now) && fci_clock_os(CLOCK_MONOTONIC) > until)
			break;
	}
	if (fc->tick_left)
		return now;
	fc->tick_all = 0;
	if (fc->tick_next != FC_NEVER_NS)
		/* X1 -> X1 (fci_iface_wake): awake. */
		atomic_store_explicit(&fc->idle, 0, FCI_SC);
	return fc->tick_next;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The bounds of the process, when they are due: when to go on. */
static uint64_t tick_system(struct fc *fc, uint64_t now, uint64_t until)
{
	uint64_t next = fc->system_due ? fci_system_tick(fc, now, until) : FC_NEVER_NS;

	fc->system_due = next != FC_NEVER_NS;
	return next;
}

static uint64_t tick(struct fc *fc, uint64_t budget)
{
	uint64_t until = fci_clock_os(CLOCK_MONOTONIC) + budget, now, next, ppm;
	/* A look at the bounds that goes on has its part, so that it ends. */
	uint64_t rest = fc->system_due ? budget / 4 : 0, looks = (budget - rest) / LOOK_NS + 1;

	ppm = fci_clock_calibrate(&fc->clock);
	if (ppm)
		fci_note(fc, NULL, FC_EVENT_CLOCK, ppm, 0);
	now = fci_clock_now(&fc->clock);
	/* N5: about the time, for who is told another one. */
	atomic_store_explicit(&fc->head->ticked_ns, now, FCI_RLX);
	if (!fc->tick_left)
		begin_pass(fc, 0);
	next = tick_ifaces(fc, now, until - rest, &looks);
	if (next != FC_NEVER_NS && !tick_health(fc, now)) { /* sampling rests while no calls come */
		begin_pass(fc, 1);
		next = tick_ifaces(fc, now, until - rest, &looks);
	}
	if (next != FC_NEVER_NS)
		next = earlier(next, fc->health_at);
	next = earlier(next, tick_system(fc, now, until));
	next = earlier(next, fci_stuck_step(fc, now, until));
	next = earlier(next, fci_async_next(fc));
	next = earlier(next, fci_rules_tick(fc, now));
	if (pthread_mutex_trylock(&fc->setup) == 0) {
		fci_chain_reclaim(fc);
		pthread_mutex_unlock(&fc->setup);
	}
	fci_events_tell(fc, now);
	return next;
}

uint64_t fc_tick(struct fc *fc, uint64_t budget_ns)
{
	uint64_t next, count;

	if (!fci_fc_ok(fc) || !fc->seg)
		return FC_NEVER_NS;
	if (!try_lock(fc))
		return fci_clock_now(&fc->clock) + FC_MS(1);
	if (fc->tick_fd >= 0 && !fc->thread_runs)
		(void)!read(fc->tick_fd, &count, sizeof(count));
	/* N5: a statistic; says that somebody ticks, from the first one's beginning. */
	atomic_fetch_add_explicit(&fc->ticks, 1, FCI_RLX);
	next = tick(fc, budget_ns ? budget_ns : BUDGET_NS);
	fci_tick_unlock(fc);
	return next;
}

int fc_tick_fd(struct fc *fc)
{
	if (!fci_fc_ok(fc))
		return -EINVAL;
	return fc->tick_fd >= 0 ? fc->tick_fd : -EBADF;
}

/* N5: counts. */
void fci_miss_tick(struct fc *fc)
{
	if (atomic_load_explicit(&fc->ticks, FCI_RLX) || fc->thread_runs)
		return;
	if (atomic_fetch_add_explicit(&fc->checks_unticked, 1, FCI_RLX) + 1 == CHECKS_UNTICKED)
		fci_log(fc, FC_LOG_WARN, "nobody ticks: call fc_tick() or fc_start(), after fork() in the child too; without it there are no "
		        "stuck reports, no expansion undone and no health");
}

/* By its number: write() is a cancellation point, and enter and exit, which wake, are none. */
void fci_wake(struct fc *fc)
{
	uint64_t one = 1;
	int saved = errno;

	if (fc->tick_fd >= 0)
		(void)syscall(SYS_write, fc->tick_fd, &one, sizeof(one));
	if (fc->thread_fd >= 0)
		(void)syscall(SYS_write, fc->thread_fd, &one, sizeof(one));
	errno = saved;
}

/* ---- the thread -------------------------------------------------------------------------------- */

static void *thread_main(void *arg)
{
	struct fc *fc = arg;

	pthread_setname_np(pthread_self(), "fcguard");
	/* A2 -> R2 (fc_stop). */
	while (!atomic_load_explicit(&fc->thread_stop, FCI_ACQ)) {
		uint64_t next = fc_tick(fc, 0), now = fci_clock_now(&fc->clock), ms, count;
		struct pollfd p = { .fd = fc->thread_fd, .events = POLLIN };

		ms = next <= now ? 0 : (next - now) / 1000000 + 1;
		if (fc->clock.kind == FC_CLOCK_VIRTUAL && ms > 1)
			ms = 1; /* its time does not pass while we sleep */
		if (poll(&p, 1, next == FC_NEVER_NS ? (fc->clock.kind == FC_CLOCK_VIRTUAL ? 1 : -1) : ms > 60000 ? 60000 : (int)ms) > 0)
			(void)!read(fc->thread_fd, &count, sizeof(count));
	}
	return NULL;
}

int fc_start(struct fc *fc)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int rc;

	if (!fci_fc_ok(fc) || !fc->seg || fc->thread_fd < 0)
		return -EINVAL;
	pthread_mutex_lock(&fc->thread_mutex);
	if (fc->thread_runs) {
		pthread_mutex_unlock(&fc->thread_mutex);
		return -EALREADY;
	}
	/* N6: no thread yet. */
	atomic_store_explicit(&fc->thread_stop, 0, FCI_RLX);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	fc->thread_runs = 1;
	rc = pthread_create(&fc->thread, &attr, thread_main, fc);
	if (rc != 0)
		fc->thread_runs = 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	pthread_mutex_unlock(&fc->thread_mutex);
	return -rc;
}

void fc_stop(struct fc *fc)
{
	uint64_t one = 1;

	if (!fci_fc_ok(fc))
		return;
	pthread_mutex_lock(&fc->thread_mutex);
	if (fc->thread_runs) {
		/* R2 -> A2 (thread_main). */
		atomic_store_explicit(&fc->thread_stop, 1, FCI_REL);
		(void)!write(fc->thread_fd, &one, sizeof(one));
		pthread_join(fc->thread, NULL);
		fc->thread_runs = 0;
	}
	pthread_mutex_unlock(&fc->thread_mutex);
}
