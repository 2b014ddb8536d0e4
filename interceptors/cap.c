/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cap.c - how the limit moves: expansion on evidence, undo, and the way back.
 *
 * The cap itself is the in-flight queue of the core: exact, cap <= limit <= expand * cap. This file
 * decides the limit.
 *
 *   full       the limit is reached. If health is good and the pile-up is not made of overdue calls
 *              (half of those inside), the limit doubles, up to expand * cap. Not before it has been
 *              reached again and again for 0.5 s and 2 * p90: what completes meanwhile is what this
 *              limit is good for, and what the step is compared with. (Completions before a rush, or
 *              of an idle time, are fewer under any limit.) With expand_keep health, at once.
 *   judge      a step stays only if completions per second rose over the window that follows it:
 *              more than 5 % and more than two standard deviations of a count (sqrt n) above the
 *              window before. Else it is undone and not tried again for 10 windows; but if it was
 *              not even needed (in the second half of its window no look found more inside than the
 *              limit before would have let in), the limit goes back without that rest. With
 *              expand_keep health, good health alone keeps it. Healthy CPU is necessary, not
 *              sufficient: behind a slow, saturated dependency the CPU is idle because everybody
 *              waits, and by Little's law a 4 times higher limit gives 4 times the latency and no
 *              more work.
 *   window     max(1 s, 2 * p90 latency): a shorter one undoes good steps of slow calls.
 *   back       when demand has been under the next lower step for a window, the limit steps down;
 *              when health turns bad it returns to cap at once, for new calls.
 *
 * Units.   completions per second; times in ns on the context's clock. Times are arguments.
 * Bounds.  cap <= limit <= expand * cap at any time; one step per window, so from cap to 4 * cap
 *          takes three; the first step comes 0.5 s, or a window of slow calls, after the first refusal.
 * Cost.    full: some us, one caller each check_every; tick: some us each 250 ms. Nothing per call.
 * Source.  our own; compare Netflix's Gradient2 and failsafe-go's correlation of throughput and
 *          limit.
 */
#include <errno.h>
#include <string.h>

#include <fcguard/events.h>
#include <fcguard/health.h>
#include <fcguard/iface.h>
#include <fcguard/interceptor.h>
#include <fcguard/stats.h>

#define WINDOW_MIN_NS  FC_S(1)
#define WINDOW_MAX_NS  FC_S(60)
#define TICK_NS        FC_MS(250)
#define QUIET_WINDOWS  10u /* after an undo */
#define RISE_PERMILLE  50u
#define KEEP_ROOM      4u  /* step down when inside is under 3/4 of the lower limit */

/* Written under the check's CAS (full) or by the ticking thread (tick); see `busy`. */
struct cap_state {
	uint32_t busy;          /* 1: full or tick is at work */
	uint32_t before;        /* limit before the step being judged; 0: none is */
	uint64_t judge_at;      /* when its window ends */
	uint64_t step_at;       /* when it began */
	uint64_t step_count;    /* completions then */
	double rate_before;     /* completions per second before it; slow calls make less than one */
	uint64_t quiet_until;   /* no step before */
	uint64_t window_at;     /* start of the running window */
	uint64_t full_at;       /* the limit has been reached again and again since; 0: it is not */
	uint64_t full_count;    /* completions then */
	uint64_t full_last;     /* last time it was */
	uint64_t window_ns;
	uint64_t low_since;     /* demand has been low since; 0: it is not */
	uint32_t needed;        /* 1: the step being judged let more in than there had been room for */
	uint32_t resv;
	uint32_t denied;        /* what was told last: enum fc_denied, and the limit */
	uint32_t denied_limit;
	struct fc_hist hist;    /* at the start of the window, for p90 */
};

/* full and tick may meet; the one that comes second does nothing this time. */
static int take(struct cap_state *s)
{
	uint32_t idle = 0;

	/* X1: acquire: what the last holder wrote; released by give. */
	return __atomic_compare_exchange_n(&s->busy, &idle, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void give(struct cap_state *s)
{
	/* R1 -> X1 (take). */
	__atomic_store_n(&s->busy, 0, __ATOMIC_RELEASE);
}

static double per_second(uint64_t count, uint64_t ns)
{
	return ns ? (double)count * 1e9 / (double)ns : 0;
}

static uint64_t since(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

static uint32_t at_most(const struct fc_cap_conf *conf)
{
	return conf->cap * (conf->expand ? conf->expand : 1);
}

/* ---- windows ----------------------------------------------------------------------------------- */

static void begin_window(struct fc_call *c, struct cap_state *s)
{
	(void)fc_iface_hist(c->iface, &s->hist);
	s->window_at = c->now_ns;
}

/* The length of a window by the latency seen in the last one. */
static uint64_t window_length(struct fc_call *c, const struct cap_state *s)
{
	struct fc_hist h;
	uint64_t ns;

	(void)fc_iface_hist(c->iface, &h);
	ns = 2 * fc_hist_quantile_ns(&h, &s->hist, 900);
	if (ns == 0)
		ns = 2 * fc_hist_quantile_ns(&h, NULL, 900);
	return ns < WINDOW_MIN_NS ? WINDOW_MIN_NS : ns > WINDOW_MAX_NS ? WINDOW_MAX_NS : ns;
}

/* What was to come at a time of the clock as it was comes a window from now at the latest. */
static void clock_went_back(struct fc_call *c, struct cap_state *s)
{
	uint64_t quiet = c->now_ns + QUIET_WINDOWS * s->window_ns;

	if (s->before) {
		s->step_at = c->now_ns;
		s->step_count = fc_completed(c->iface);
		s->judge_at = c->now_ns + s->window_ns;
	}
	s->quiet_until = s->quiet_until < quiet ? s->quiet_until : quiet;
	s->full_at = s->low_since = 0;
}

/* Close the running window when its time is over. */
static void roll_window(struct fc_call *c, struct cap_state *s)
{
	if (s->window_at == 0 || c->now_ns + s->window_ns < s->window_at) {
		clock_went_back(c, s);
		begin_window(c, s);
		s->window_ns = WINDOW_MIN_NS;
	}
	if (since(c->now_ns, s->window_at) < s->window_ns)
		return;
	s->window_ns = window_length(c, s);
	begin_window(c, s);
}

/* The limit is reached: now, and for how long. */
static void note_full(struct fc_call *c, struct cap_state *s)
{
	if (s->full_at == 0 || since(c->now_ns, s->full_last) > s->window_ns) {
		s->full_at = c->now_ns | 1;
		s->full_count = fc_completed(c->iface);
	}
	s->full_last = c->now_ns;
}

/* For long enough to know what this limit is good for? */
static int full_for_long(const struct fc_call *c, const struct cap_state *s)
{
	const struct fc_cap_conf *conf = c->conf;
	uint64_t enough = s->window_ns > WINDOW_MIN_NS ? s->window_ns : WINDOW_MIN_NS / 2;

	return conf->expand_keep == FC_EXPAND_KEEP_HEALTH ||
	       (since(c->now_ns, s->full_at) >= enough && fc_completed(c->iface) > s->full_count);
}

/* ---- steps ------------------------------------------------------------------------------------- */

/* Why the limit may not rise now; 0: it may. */
static int denied(struct fc_call *c, const struct cap_state *s, uint32_t limit)
{
	const struct fc_cap_conf *conf = c->conf;
	uint32_t overdue, inside;

	if (conf->expand <= 1)
		return FC_DENIED_OFF;
	if (limit >= at_most(conf))
		return FC_DENIED_AT_MOST;
	if (fc_health_word(c->iface) != 0)
		return FC_DENIED_HEALTH;
	inside = fc_inside(c->iface, &overdue);
	if (overdue * 2 >= inside && overdue > 0)
		return FC_DENIED_OVERDUE;
	if (s->before)
		return FC_DENIED_JUDGING;
	if (c->now_ns < s->quiet_until)
		return FC_DENIED_UNDONE;
	return 0;
}

static int step_up(struct fc_call *c, struct cap_state *s, uint32_t limit)
{
	uint32_t next = limit * 2 < at_most(c->conf) ? limit * 2 : at_most(c->conf);
	int rc;

	s->rate_before = per_second(fc_completed(c->iface) - s->full_count, since(c->now_ns, s->full_at));
	s->full_at = 0;
	s->window_ns = window_length(c, s);
	rc = fc_limit_set(c->iface, next);
	if (rc < 0) {
		if (rc != -EAGAIN) /* somebody else has set it: decide anew */
			fc_event_note(c->iface, FC_EVENT_EXPAND_DENIED, limit, FC_DENIED_MEMORY);
		return 0;
	}
	s->before = limit;
	s->needed = 0;
	s->step_at = c->now_ns;
	s->step_count = fc_completed(c->iface);
	s->judge_at = c->now_ns + s->window_ns;
	s->low_since = 0;
	s->denied = 0;
	begin_window(c, s);
	fc_event_note(c->iface, FC_EVENT_EXPANDED, limit, next);
	return 1;
}

/* Did completions rise by more than noise? In counts of the step's window. */
static int rose(double before, double after, uint64_t ns)
{
	double n = before * (double)ns / 1e9, more = (after - before) * (double)ns / 1e9;

	return more > 0 && more * more > 4 * n && more * 1000 > n * RISE_PERMILLE; /* 2 * sqrt(n) */
}

static void note_judged(struct fc_call *c, const struct cap_state *s, int event, double after)
{
	fc_event_note(c->iface, event, (uint64_t)(s->rate_before + 0.5), (uint64_t)(after + 0.5));
}

/* Does the step being judged let more in than there had been room for? In the second half of its window,
 * when the calls that led to the step have left. */
static void look_if_needed(struct fc_call *c, struct cap_state *s)
{
	if (s->before && since(c->now_ns, s->step_at) >= s->window_ns / 2 && fc_inside(c->iface, NULL) > s->before)
		s->needed = 1;
}

static void judge(struct fc_call *c, struct cap_state *s)
{
	const struct fc_cap_conf *conf = c->conf;
	uint64_t ns = since(c->now_ns, s->step_at);
	double after = per_second(fc_completed(c->iface) - s->step_count, ns);
	uint32_t before = s->before > conf->cap ? s->before : conf->cap, limit = fc_limit_get(c->iface);

	s->before = 0;
	if (conf->expand_keep == FC_EXPAND_KEEP_HEALTH || rose(s->rate_before, after, ns)) {
		note_judged(c, s, FC_EVENT_EXPAND_KEPT, after);
		return;
	}
	if (before < limit) /* else it was lowered by hand meanwhile */
		(void)fc_limit_set(c->iface, before);
	if (!s->needed) { /* demand fell: that says nothing of the step */
		fc_event_note(c->iface, FC_EVENT_LIMIT_BACK, limit, before);
		return;
	}
	s->quiet_until = c->now_ns + QUIET_WINDOWS * s->window_ns;
	note_judged(c, s, FC_EVENT_EXPAND_UNDONE, after);
}

static void back_to_cap(struct fc_call *c, struct cap_state *s, uint32_t limit, int event)
{
	const struct fc_cap_conf *conf = c->conf;

	s->before = 0;
	s->low_since = 0;
	if (fc_limit_set(c->iface, conf->cap) == 0)
		fc_event_note(c->iface, event, limit, conf->cap);
}

/* Demand under three quarters of the lower step for a whole window: go there. */
static void step_down(struct fc_call *c, struct cap_state *s, uint32_t limit)
{
	const struct fc_cap_conf *conf = c->conf;
	uint32_t lower = limit / 2 > conf->cap ? limit / 2 : conf->cap;

	if (fc_inside(c->iface, NULL) * KEEP_ROOM >= lower * (KEEP_ROOM - 1)) {
		s->low_since = 0;
	} else if (s->low_since == 0) {
		s->low_since = c->now_ns | 1;
	} else if (since(c->now_ns, s->low_since) >= s->window_ns) {
		s->low_since = 0;
		if (fc_limit_set(c->iface, lower) == 0)
			fc_event_note(c->iface, FC_EVENT_LIMIT_BACK, limit, lower);
	}
}

/* Say why the limit stays, once per reason and limit. */
static void note_denied(struct fc_call *c, struct cap_state *s, uint32_t limit, int why)
{
	uint64_t health = why == FC_DENIED_HEALTH ? fc_health_word(c->iface) : 0;

	if (why == FC_DENIED_OFF || why == FC_DENIED_JUDGING || limit == 0 ||
	    (s->denied == (uint32_t)why && s->denied_limit == limit))
		return;
	s->denied = (uint32_t)why;
	s->denied_limit = limit;
	fc_event_note(c->iface, FC_EVENT_EXPAND_DENIED, limit, health << 32 | (uint32_t)why);
}

/* ---- the interceptor --------------------------------------------------------------------------- */

static int cap_full(struct fc_call *c)
{
	struct cap_state *s = c->state;
	uint32_t limit = fc_limit_get(c->iface);
	int why, raised = 0;

	if (!take(s))
		return 0;
	roll_window(c, s);
	note_full(c, s);
	look_if_needed(c, s);
	why = denied(c, s, limit);
	if (why == 0 && full_for_long(c, s))
		raised = step_up(c, s, limit);
	else if (why != 0)
		note_denied(c, s, limit, why);
	give(s);
	return raised;
}

static uint64_t cap_tick(struct fc_call *c)
{
	const struct fc_cap_conf *conf = c->conf;
	struct cap_state *s = c->state;
	uint32_t limit = fc_limit_get(c->iface);
	uint64_t next = FC_NEVER_NS;

	if (!take(s))
		return c->now_ns + FC_MS(1);
	roll_window(c, s);
	look_if_needed(c, s);
	if (limit > conf->cap && fc_health_word(c->iface) != 0)
		back_to_cap(c, s, limit, FC_EVENT_LIMIT_UNHEALTHY);
	else if (limit > at_most(conf))
		back_to_cap(c, s, limit, FC_EVENT_LIMIT_BACK);
	else if (s->before && c->now_ns >= s->judge_at)
		judge(c, s);
	else if (!s->before && limit > conf->cap)
		step_down(c, s, limit);
	if (fc_limit_get(c->iface) > conf->cap)
		next = c->now_ns + TICK_NS;
	if (s->before && s->judge_at < next)
		next = s->judge_at;
	give(s);
	return next;
}

/* Whoever was at work is not here; what he may have left half done is steered back by the next window. */
static void cap_forked(void *state)
{
	give(state);
}

const struct fc_interceptor fc_interceptor_cap = {
	.size = sizeof(struct fc_interceptor),
	.order = FC_ORDER_CAP,
	.name = "cap",
	.state_bytes = sizeof(struct cap_state),
	.conf_bytes = sizeof(struct fc_cap_conf),
	.reason = FC_REFUSED_CAP,
	.full = cap_full,
	.tick = cap_tick,
	.forked = cap_forked,
};
