/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stuck.c - see stuck.h.
 *
 *     WATCHED -> DUE        its time has come (fci_stuck_tick)
 *     DUE -> GROUPED        its stack is taken (gather)
 *     DUE -> WATCHED        its place was reported a short while ago: later
 *     GROUPED -> WATCHED    the report is written, or suppressed
 *     any -> FREE           a look did not find it any more
 *
 * Reports are made in batches: gather groups until nothing is due or all groups are taken, look the
 * addresses up (a thread of symbol.c does it, we come back), write.
 *
 * Only the ticking thread touches what is here. It is plain memory but for the counter in struct fc.
 */
#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "entry.h"
#include "list.h"
#include "report.h"
#include "stuck.h"
#include "symbol.h"

#define CALLS           1024u
#define CALLS_PER_IFACE (CALLS / 2)
#define HEADS           512u
#define GROUPS          8u
#define PLACES          64u
#define TIDS            8u  /* shown beside the one whose stack is */
#define NONE            UINT16_MAX
#define HOLD_MAX_NS     FC_S(60)
#define LOOK_UP_NS      FC_MS(5)  /* between looks at the symboliser */
#define GIVE_UP_NS      FC_S(10)  /* then without symbols; real time */
#define TEXT_BYTES      16384u

enum call_state { FREE, WATCHED, DUE, GROUPED };

/* An overdue call. */
struct call {
	struct fci_view v;
	struct fc_iface *f;
	uint64_t at;    /* its next report */
	uint64_t place; /* where it stood at the last one; 0: never looked at */
	uint32_t scan;  /* the last look that saw it */
	uint16_t next;  /* in its chain, or of the free ones */
	uint8_t state;  /* enum call_state */
	uint8_t written_off;
};

/* A report to be: calls of one interface in one place, and where the oldest of them stands. */
struct group {
	struct fc_iface *f;
	uint64_t place;
	struct fci_view v;
	int written_off;
	struct fci_capture capture;
};

/* A place that has been reported. */
struct place {
	uint64_t key, last_ns, hold_ns;
};

enum phase { GATHER, LOOK_UP, WRITE };

struct work {
	struct fci_unwinder *unwinder;
	struct fci_symboliser *sym;
	enum phase phase;
	uint32_t scan;
	uint32_t n_due, cursor;
	uint32_t n_groups, written;
	uint64_t give_up_ns;
	uint16_t heads[HEADS], free;
	struct place places[PLACES];
	struct call calls[CALLS];
	struct group groups[GROUPS];
	char text[TEXT_BYTES];
};

struct fci_stuck {
	struct work *work;   /* made with the first overdue call */
	uint64_t minute_at;  /* when the current minute of reports began */
	uint32_t in_minute;
	uint32_t minute_runs;
	uint64_t suppressed; /* since the last report */
};

/* ---- remembered calls -------------------------------------------------------------------------- */

static void forget_all(struct work *w)
{
	for (uint32_t i = 0; i < HEADS; i++)
		w->heads[i] = NONE;
	for (uint32_t i = 0; i < CALLS; i++) {
		w->calls[i].state = FREE;
		w->calls[i].next = i + 1 < CALLS ? (uint16_t)(i + 1) : NONE;
	}
	w->free = 0;
	w->n_due = w->n_groups = w->written = 0;
	w->phase = GATHER;
	memset(w->places, 0, sizeof(w->places));
}

static uint16_t *head_of(struct work *w, const struct fc_iface *f, const struct fci_view *v)
{
	uint64_t h = ((uint64_t)f->index << 32 ^ v->slot) * FCI_SCRAMBLE;

	return &w->heads[(h >> 40) % HEADS];
}

static struct call *find(struct work *w, const struct fc_iface *f, const struct fci_view *v)
{
	for (uint16_t i = *head_of(w, f, v); i != NONE; i = w->calls[i].next) {
		struct call *c = &w->calls[i];

		if (c->f == f && c->v.slot == v->slot && fci_same_call(c->v.word, v->word))
			return c;
	}
	return NULL;
}

static struct call *add(struct work *w, struct fc_iface *f, const struct fci_view *v)
{
	uint16_t i = w->free, *head = head_of(w, f, v);
	struct call *c;

	if (i == NONE)
		return NULL;
	c = &w->calls[i];
	w->free = c->next;
	*c = (struct call){ .v = *v, .f = f, .state = WATCHED, .next = *head };
	*head = i;
	return c;
}

static void forget(struct work *w, struct call *c)
{
	uint16_t *p = head_of(w, c->f, &c->v), i = (uint16_t)(c - w->calls);

	while (*p != i)
		p = &w->calls[*p].next;
	*p = c->next;
	if (c->state == DUE)
		w->n_due--;
	c->state = FREE;
	c->next = w->free;
	w->free = i;
}

/* What the look of this number did not see has left. */
static void forget_unseen(struct work *w, const struct fc_iface *f)
{
	for (uint32_t i = 0; i < CALLS; i++)
		if (w->calls[i].state != FREE && w->calls[i].f == f && w->calls[i].scan != w->scan)
			forget(w, &w->calls[i]);
}

static uint32_t remembered(const struct work *w, const struct fc_iface *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < CALLS; i++)
		n += w->calls[i].state != FREE && w->calls[i].f == f;
	return n;
}

/* ---- looking at an interface ------------------------------------------------------------------- */

struct scan {
	struct fc_iface *f;
	struct work *work;   /* NULL: only count */
	uint64_t now, next, oldest;
	uint32_t peak;       /* of overdue calls; not 0 from the first one until none is left */
	uint32_t overdue, with_place, n_remembered;
};

static void next_look(struct scan *s, uint64_t at)
{
	if (at < s->next)
		s->next = at;
}

/* Does anybody want reports? */
static int wanted(const struct fc *fc)
{
	return fc->log || fc->on_stuck || (fc->flags & FC_LOG_STDERR);
}

static struct work *work_of(struct fc *fc)
{
	if (!fc->stuck->work && wanted(fc)) {
		fc->stuck->work = fci_alloc(fc, sizeof(struct work));
		if (fc->stuck->work)
			forget_all(fc->stuck->work);
	}
	return fc->stuck->work;
}

static void remember(struct scan *s, const struct fci_view *v, int written_off)
{
	struct work *w = s->work = s->work ? s->work : work_of(s->f->fc);
	struct call *c;

	if (!w)
		return;
	c = find(w, s->f, v);
	if (!c && s->n_remembered < CALLS_PER_IFACE && (c = add(w, s->f, v)) != NULL)
		s->n_remembered++;
	if (!c)
		return;
	c->v = *v;
	c->written_off = (uint8_t)written_off;
	c->scan = w->scan;
	if (c->state == WATCHED && c->at <= s->now) {
		c->state = DUE;
		w->n_due++;
	}
	if (c->state == WATCHED)
		next_look(s, c->at);
}

static void look(struct scan *s, const struct fci_view *v, int written_off)
{
	uint64_t after = fci_stuck_after(s->f, v), age = fci_age(v->start, s->now);

	if (age < after) {
		next_look(s, v->start <= UINT64_MAX - after ? v->start + after : FC_NEVER_NS);
		return;
	}
	s->overdue++;
	s->with_place += !written_off;
	if (age > s->oldest)
		s->oldest = age;
	remember(s, v, written_off);
}

static void tell_edges(const struct scan *s)
{
	struct fci_rare *r = &s->f->block->rare;

	if (s->overdue && !s->peak)
		fc_event_note(s->f, FC_EVENT_STUCK, s->overdue, s->oldest);
	if (!s->overdue && s->peak)
		fc_event_note(s->f, FC_EVENT_UNSTUCK, s->peak, 0);
	/* N1: only the ticking thread writes these; others show them. */
	atomic_store_explicit(&r->overdue, s->with_place, FCI_RLX);
	if (!s->overdue || s->overdue > s->peak)
		atomic_store_explicit(&r->overdue_peak, s->overdue, FCI_RLX);
}

uint64_t fci_stuck_tick(struct fc_iface *f, uint64_t now)
{
	struct scan s = { .f = f, .work = f->fc->stuck->work, .now = now, .next = FC_NEVER_NS };
	uint32_t slots = fci_slots(f);
	struct fci_view v;

	/* N1: see tell_edges. */
	s.peak = atomic_load_explicit(&f->block->rare.overdue_peak, FCI_RLX);
	if (s.work) {
		s.work->scan++;
		s.n_remembered = s.peak ? remembered(s.work, f) : 0;
	}
	for (uint32_t i = 0; i < slots; i++)
		if (fci_view(f, i, &v))
			look(&s, &v, 0);
	for (uint32_t i = 0; i < fci_writeoffs(f); i++)
		if (fci_writeoff_view(f, i, &v))
			look(&s, &v, 1);
	tell_edges(&s);
	if (s.work && s.n_remembered)
		forget_unseen(s.work, f);
	/* That the last of them has left is worth a look a second. */
	if (s.overdue)
		next_look(&s, now + FC_S(1));
	return s.next;
}

/* ---- when a call and a place are reported next ------------------------------------------------- */

/* The next doubling of the age at which it became overdue, but not a short while from now. */
static uint64_t next_report(const struct fc_iface *f, const struct fci_view *v, uint64_t now)
{
	uint64_t age = fci_age(v->start, now), at = fci_stuck_after(f, v);

	at = at ? at : 1;
	while (at <= age || at - age < age / 2) {
		if (at > FC_NEVER_NS / 4)
			return FC_NEVER_NS;
		at *= 2;
	}
	return v->start <= FC_NEVER_NS - at ? v->start + at : FC_NEVER_NS;
}

static struct place *find_place(struct work *w, uint64_t key)
{
	for (uint32_t i = 0; i < PLACES; i++)
		if (w->places[i].key == key)
			return &w->places[i];
	return NULL;
}

/* Until when nothing more is told of a place; 0: tell. */
static uint64_t held_until(struct work *w, uint64_t key, uint64_t now)
{
	const struct place *p = find_place(w, key);

	return p && now >= p->last_ns && now - p->last_ns < p->hold_ns ? p->last_ns + p->hold_ns : 0;
}

static void place_reported(struct work *w, uint64_t key, uint64_t after, uint64_t now)
{
	struct place *p = find_place(w, key);
	uint64_t hold = after / 2;

	if (p && fci_age(p->last_ns, now) <= 2 * p->hold_ns) {
		hold = 2 * p->hold_ns;
	} else if (!p) {
		p = &w->places[0];
		for (uint32_t i = 1; i < PLACES; i++)
			if (w->places[i].last_ns < p->last_ns)
				p = &w->places[i];
	}
	*p = (struct place){ .key = key, .last_ns = now, .hold_ns = hold < HOLD_MAX_NS ? hold : HOLD_MAX_NS };
}

/* ---- gathering --------------------------------------------------------------------------------- */

/* Is it still inside? Takes a new view of it. Written-off calls were seen by the last look. */
static int look_again(struct call *c)
{
	struct fci_view v;

	if (c->written_off)
		return 1;
	if (!fci_view(c->f, c->v.slot, &v) || !fci_same_call(v.word, c->v.word))
		return 0;
	c->v = v;
	return 1;
}

static struct call *next_due(struct work *w)
{
	struct call *c;

	if (!w->n_due)
		return NULL;
	do {
		c = &w->calls[w->cursor];
		w->cursor = (w->cursor + 1) % CALLS;
	} while (c->state != DUE);
	return c;
}

static struct group *find_group(struct work *w, const struct fc_iface *f, uint64_t place)
{
	for (uint32_t i = 0; i < w->n_groups; i++)
		if (w->groups[i].f == f && w->groups[i].place == place)
			return &w->groups[i];
	return NULL;
}

/* Put a call whose stack was just taken into its group. 0: all groups are taken. */
static int put_into_group(struct work *w, struct call *c, const struct fci_capture *capture)
{
	struct group *g = find_group(w, c->f, c->place);

	if (!g) {
		if (w->n_groups == GROUPS)
			return 0;
		g = &w->groups[w->n_groups++];
	} else if (g->v.start <= c->v.start) {
		return 1;
	}
	*g = (struct group){ .f = c->f, .place = c->place, .v = c->v, .written_off = c->written_off, .capture = *capture };
	if (w->sym)
		(void)fci_symbol_want_stack(w->sym, &capture->stack);
	return 1;
}

static void take_stack(struct fc *fc, struct work *w, const struct call *c, struct fci_capture *ret)
{
	const char *why_not = "no stack: switched off (FC_NO_STACKS)";

	if (!(fc->flags & FC_NO_STACKS)) {
		why_not = "no stack: out of memory";
		if (!w->unwinder)
			(void)fci_unwinder_create(&w->unwinder);
		if (!w->sym)
			(void)fci_symboliser_create(&w->sym);
	}
	fci_capture(c->f, &c->v, w->unwinder, why_not, ret);
}

static uint64_t place_of(const struct call *c, const struct fci_capture *capture)
{
	return (fci_capture_hash(capture) ^ (uint64_t)c->v.site << 40 ^ c->f->index) * FCI_SCRAMBLE | 1;
}

/* Take one due call's stack. 0: nothing is due, or it must wait for the next batch. */
static int gather(struct fc *fc, struct work *w, uint64_t now)
{
	struct call *c = next_due(w);
	struct fci_capture capture;
	uint64_t held;

	if (!c)
		return 0;
	if (!look_again(c)) {
		c->state = WATCHED;
		w->n_due--;
		return 1;
	}
	take_stack(fc, w, c, &capture);
	c->place = place_of(c, &capture);
	held = find_group(w, c->f, c->place) ? 0 : held_until(w, c->place, now);
	if (held) {
		c->at = held;
	} else if (!put_into_group(w, c, &capture)) {
		return 0;
	}
	c->state = held ? WATCHED : GROUPED;
	w->n_due--;
	return 1;
}

/* ---- writing ----------------------------------------------------------------------------------- */

/* The calls of a group, as they are now. */
struct members {
	uint32_t count, n_tids;
	uint64_t oldest, youngest; /* starts */
	const struct call *first;  /* the oldest */
	uint32_t tids[TIDS + 1];
};

/* A call of the group that is still there. One at least half as old as the oldest goes on in step
 * with it, so that threads which came one after the other stay one report. */
static void count_member(struct call *c, const struct group *g, uint64_t with_oldest, uint64_t now, struct members *m)
{
	uint64_t age = fci_age(c->v.start, now);

	if (c->at < with_oldest && age >= fci_age(g->v.start, now) / 2)
		c->at = with_oldest;
	m->count++;
	m->first = !m->first || c->v.start < m->first->v.start ? c : m->first;
	m->oldest = c->v.start < m->oldest ? c->v.start : m->oldest;
	m->youngest = c->v.start > m->youngest ? c->v.start : m->youngest;
	if (m->n_tids <= TIDS)
		m->tids[m->n_tids++] = c->v.tid;
}

/* Count who is still there, also those that were not due yet, and settle when they are due next. */
static void collect(struct work *w, const struct group *g, uint64_t now, struct members *m)
{
	uint64_t with_oldest = next_report(g->f, &g->v, now);

	*m = (struct members){ .oldest = g->v.start, .youngest = g->v.start };
	for (uint32_t i = 0; i < CALLS; i++) {
		struct call *c = &w->calls[i];

		if (c->state == FREE || c->f != g->f || c->place != g->place)
			continue;
		w->n_due -= c->state == DUE;
		c->state = WATCHED;
		c->at = next_report(c->f, &c->v, now);
		if (look_again(c))
			count_member(c, g, with_oldest, now, m);
	}
	m->count = m->count ? m->count : 1; /* it has left since its stack was taken */
}

/* The oldest need not have been due, so another one's stack was taken: show its own, if it still
 * stands in this place. The symbols are the same. */
static void show_oldest(struct fc *fc, struct work *w, struct group *g, const struct call *first)
{
	struct fci_capture capture;

	if (!first || first->v.start >= g->v.start)
		return;
	take_stack(fc, w, first, &capture);
	if (place_of(first, &capture) != g->place)
		return;
	g->v = first->v;
	g->written_off = first->written_off;
	g->capture = capture;
}

static int may_report(struct fc *fc, struct fci_stuck *s, uint64_t now)
{
	if (!s->minute_runs || now < s->minute_at || now - s->minute_at >= FC_S(60)) {
		s->minute_runs = 1;
		s->minute_at = now;
		s->in_minute = 0;
	}
	return s->in_minute < fc->max_reports_per_min;
}

static void write_head(const struct group *g, const struct members *m, uint64_t suppressed, uint64_t now,
                       struct fci_text *t)
{
	const struct fci_site *site = fci_site_at(g->f->fc, g->v.site);
	uint32_t limit = fci_list_limit(g->f);

	fci_text_add(t, "stuck: %s: ", g->f->name);
	if (m->count == 1) {
		fci_text_add(t, "1 call inside for ");
		fci_text_age(t, fci_age(m->oldest, now));
	} else {
		fci_text_add(t, "%u calls inside for over ", m->count);
		fci_text_age(t, fci_age(m->youngest, now));
		fci_text_add(t, " (oldest ");
		fci_text_age(t, fci_age(m->oldest, now));
		fci_text_add(t, ")");
	}
	fci_text_add(t, " at %s:%u %s", site->file, site->line, site->func);
	if (FCI_META_HAS_TAG(g->v.meta))
		fci_text_add(t, ", request %llu", (unsigned long long)g->v.tag);
	if (limit == FC_UNLIMITED)
		fci_text_add(t, "; no limit");
	else
		fci_text_add(t, "; limit %u", limit);
	/* N2: a number to be shown. */
	fci_text_add(t, ", in flight %u, overdue %u", fci_inside_count(g->f, UINT32_MAX, NULL),
	             atomic_load_explicit(&g->f->block->rare.overdue, FCI_RLX));
	if (g->written_off)
		fci_text_add(t, ", written off");
	if (suppressed)
		fci_text_add(t, "; %llu report%s suppressed before", (unsigned long long)suppressed, suppressed == 1 ? "" : "s");
	fci_text_add(t, "\n");
}

static void write_others(const struct group *g, const struct members *m, struct fci_text *t)
{
	uint32_t shown = 0;

	for (uint32_t i = 0; i < m->n_tids && shown < TIDS; i++)
		if (m->tids[i] != g->v.tid)
			fci_text_add(t, "%s %u", shown++ ? "" : m->count == 2 ? "  and thread" : "  and threads", m->tids[i]);
	if (shown && m->count > shown + 1)
		fci_text_add(t, " and %u more", m->count - shown - 1);
	if (shown)
		fci_text_add(t, "\n");
}

/* The log takes lines. */
static void log_lines(struct fc *fc, const char *text)
{
	while (*text) {
		int n = (int)strcspn(text, "\n");

		fci_log(fc, FC_LOG_WARN, "%.*s", n, text);
		text += n + (text[n] == '\n');
	}
}

static void call_back(struct fc *fc, const struct group *g, const struct members *m, const char *stack, uint64_t now)
{
	FC_OPTS(fc_stuck, stuck, .count = m->count, .stack = stack);

	stuck.call.size = sizeof(stuck.call);
	fci_list_fill(g->f, &g->v, g->written_off, now, &stuck.call);
	stuck.thread_name = g->capture.standing == FCI_STANDS && g->capture.info.comm[0] ? g->capture.info.comm : "?";
	stuck.limit = fci_list_limit(g->f);
	stuck.in_flight = fci_inside_count(g->f, UINT32_MAX, NULL);
	fc->on_stuck(fc->stuck_arg, &stuck);
}

static void write_report(struct fc *fc, struct work *w, struct group *g, uint64_t now)
{
	struct fci_stuck *s = fc->stuck;
	struct fci_text head, stack;
	struct members m;
	char lines[1024];

	collect(w, g, now, &m);
	place_reported(w, g->place, fci_stuck_after(g->f, &g->v), now);
	if (!may_report(fc, s, now)) {
		s->suppressed++;
		/* N3: a statistic. */
		atomic_fetch_add_explicit(&fc->reports_suppressed, 1, FCI_RLX);
		return;
	}
	s->in_minute++;
	show_oldest(fc, w, g, m.first);
	fci_text_init(&head, lines, sizeof(lines));
	write_head(g, &m, s->suppressed, now, &head);
	s->suppressed = 0;
	fci_capture_thread(&g->capture, &head);
	fci_text_init(&stack, w->text, sizeof(w->text));
	fci_capture_stack(&g->capture, w->sym, &stack);
	log_lines(fc, lines);
	log_lines(fc, w->text);
	if (fc->on_stuck)
		call_back(fc, g, &m, stack.used ? w->text : lines + strcspn(lines, "\n") + 1, now);
	fci_text_init(&head, lines, sizeof(lines));
	write_others(g, &m, &head);
	log_lines(fc, lines);
}

/* ---- a step ------------------------------------------------------------------------------------ */

static int over(uint64_t until_ns)
{
	return fci_clock_os(CLOCK_MONOTONIC) >= until_ns;
}

/* Each phase returns 1 when it is through. */
static int gather_batch(struct fc *fc, struct work *w, uint64_t now, uint64_t until_ns)
{
	while (gather(fc, w, now))
		if (over(until_ns))
			return 0;
	return 1;
}

static int write_batch(struct fc *fc, struct work *w, uint64_t now, uint64_t until_ns)
{
	while (w->written < w->n_groups) {
		write_report(fc, w, &w->groups[w->written++], now);
		if (over(until_ns))
			break;
	}
	return w->written == w->n_groups;
}

uint64_t fci_stuck_step(struct fc *fc, uint64_t now, uint64_t until_ns)
{
	struct work *w = fc->stuck ? fc->stuck->work : NULL;

	if (!w)
		return FC_NEVER_NS;
	if (w->phase == GATHER) {
		if (!gather_batch(fc, w, now, until_ns))
			return now;
		if (w->n_groups == 0)
			return FC_NEVER_NS;
		w->phase = LOOK_UP;
		w->give_up_ns = fci_clock_os(CLOCK_MONOTONIC) + GIVE_UP_NS;
	}
	if (w->phase == LOOK_UP) {
		if (w->sym && fci_symbol_step(w->sym) != 0 && !over(w->give_up_ns))
			return now + LOOK_UP_NS;
		w->phase = WRITE;
		w->written = 0;
	}
	if (!write_batch(fc, w, now, until_ns))
		return now;
	w->n_groups = 0;
	w->phase = GATHER;
	return w->n_due ? now : FC_NEVER_NS;
}

/* ---- life -------------------------------------------------------------------------------------- */

int fci_stuck_create(struct fc *fc)
{
	fc->stuck = fci_alloc(fc, sizeof(*fc->stuck));
	return fc->stuck ? 0 : -ENOMEM;
}

static void drop_tools(struct work *w)
{
	w->unwinder = fci_unwinder_destroy(w->unwinder);
	w->sym = fci_symboliser_destroy(w->sym);
}

void fci_stuck_destroy(struct fc *fc)
{
	if (!fc->stuck)
		return;
	if (fc->stuck->work) {
		drop_tools(fc->stuck->work);
		fci_free(fc, fc->stuck->work, sizeof(struct work));
	}
	fci_free(fc, fc->stuck, sizeof(*fc->stuck));
	fc->stuck = NULL;
}

/* The stacks' and symbols' own thread stayed in the parent; both are made anew when needed. */
void fci_stuck_fork_child(struct fc *fc)
{
	struct fci_stuck *s = fc->stuck;
	struct fc_iface *f;

	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++) {
		/* N4: alone in the child. */
		atomic_store_explicit(&f->block->rare.overdue, 0, FCI_RLX);
		atomic_store_explicit(&f->block->rare.overdue_peak, 0, FCI_RLX);
	}
	if (!s)
		return;
	s->minute_runs = 0;
	s->suppressed = 0;
	if (s->work) {
		forget_all(s->work);
		drop_tools(s->work);
	}
}
