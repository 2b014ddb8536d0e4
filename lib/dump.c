/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dump.c - the state of everything as text: fc_dump(), fc_dump_signal(), and who is left over:
 * fc_leaks().
 *
 * Both dumps run the same code, which uses write() and a small buffer on the stack and nothing else of
 * libc: no stdio, no malloc, no lock, no clock that a signal may have caught half way through being
 * set. Its loops are bounded by geometry copied at attach. fc_dump() adds the stacks of overdue calls,
 * for which it takes memory and waits for the symboliser's thread.
 */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "entry.h"
#include "list.h"
#include "report.h"
#include "stuck.h"
#include "symbol.h"

#define CALLS_SHOWN     256u
#define CALLS_IN_SIGNAL 16u  /* the views lie on the stack, perhaps a signal stack */
#define STACKS          32u  /* an interface */
#define DECISIONS       256u
#define ROW_IN_SIGNAL   64u  /* decisions of each CPU */
#define SYMBOLS_MS      5000u
#define SITES           32u  /* told apart in a list of leaks */
#define TIDS            6u

/* ---- text, by hand ----------------------------------------------------------------------------- */

struct out {
	int fd, error;
	size_t used;
	char buf[512];
};

static void flush(struct out *o)
{
	size_t done = 0;

	while (done < o->used && !o->error) {
		ssize_t n = write(o->fd, o->buf + done, o->used - done);

		if (n >= 0)
			done += (size_t)n;
		else if (errno != EINTR)
			o->error = -errno;
	}
	o->used = 0;
}

static void put(struct out *o, const char *text)
{
	while (*text) {
		if (o->used == sizeof(o->buf))
			flush(o);
		o->buf[o->used++] = *text++;
	}
}

static void put_digits(struct out *o, uint64_t v, unsigned base, unsigned least)
{
	char digits[24], *p = digits + sizeof(digits);

	*--p = '\0';
	do {
		*--p = "0123456789abcdef"[v % base];
		v /= base;
		least -= least > 0;
	} while (v || least);
	put(o, p);
}

static void put_number(struct out *o, const char *name, uint64_t v)
{
	put(o, name);
	put_digits(o, v, 10, 1);
}

static void put_bound(struct out *o, const char *name, uint32_t v)
{
	if (v != FC_UNLIMITED) {
		put_number(o, name, v);
		return;
	}
	put(o, name);
	put(o, "none");
}

static void put_seconds(struct out *o, uint64_t ns)
{
	put_digits(o, ns / FC_S(1), 10, 1);
	put(o, ".");
	put_digits(o, ns / FC_MS(1) % 1000, 10, 3);
	put(o, " s");
}

/* ---- what both dumps show ---------------------------------------------------------------------- */

static void put_health(struct out *o, struct fc *fc, uint64_t now)
{
	FC_OPTS(fc_health, h, .state = 0);

	if (!fc->has_health || fci_health_snapshot(&fc->health, now, &h) != 0) {
		put(o, "health: not known\n");
		return;
	}
	put(o, "health: ");
	put(o, fc_health_reason_text(h.reason));
	put(o, ", state 0x");
	put_digits(o, h.state, 16, 1);
	if (h.valid & FC_HEALTH_CPU)
		put_number(o, ", cpu permille ", h.cpu_permille);
	if (h.valid & FC_HEALTH_THROTTLED)
		put_number(o, ", throttled permille ", h.throttled_permille);
	if (h.valid & FC_HEALTH_MEMORY)
		put_number(o, ", memory permille ", h.memory_permille);
	put_number(o, ", samples ", h.samples);
	put_number(o, ", failures ", h.failures);
	put(o, "\n");
}

static void put_totals(struct out *o, struct fc *fc, uint64_t now)
{
	FC_OPTS(fc_totals, t, .ifaces = 0);

	(void)fc_totals(fc, &t);
	put(o, "fcguard ");
	put(o, fc_version());
	put_number(o, ": process ", (uint64_t)getpid());
	put_number(o, ", interfaces ", t.ifaces);
	put(o, ", time ");
	put_seconds(o, now);
	put(o, fc_off_get(fc) ? ", switched OFF\n" : "\n");
	put_number(o, "segment bytes ", t.bytes_mapped);
	put_number(o, ", used ", t.bytes_used);
	put_number(o, "; faults ", t.faults);
	put_number(o, ", pass-through calls ", t.pass_through);
	put_number(o, "; ticks ", t.ticks);
	put_number(o, ", events suppressed ", t.events_suppressed);
	put_number(o, ", stuck reports suppressed ", t.reports_suppressed);
	put(o, "\n");
}

static void put_refused(struct out *o, const struct fc_stats *s)
{
	int any = 0;

	for (uint32_t i = 0; i < FC_STATS_REASONS; i++) {
		if (!s->refused[i])
			continue;
		put(o, any ? ", " : "  refused: ");
		put(o, fc_status_name((int)i));
		put_number(o, " ", s->refused[i]);
		any = 1;
	}
	if (any)
		put(o, "\n");
}

static void put_stats(struct out *o, const struct fc_iface *f)
{
	FC_OPTS(fc_stats, s, .cap = 0);

	(void)fc_iface_stats(f, &s);
	put(o, "\n");
	put(o, f->name);
	put_bound(o, ": cap ", s.cap);
	put_bound(o, ", limit ", s.limit);
	put_number(o, ", in flight ", s.in_flight);
	put_number(o, ", peak ", s.peak);
	put_number(o, ", waiting ", s.waiting);
	put_number(o, ", overdue ", s.overdue);
	put_number(o, ", written off ", s.written_off);
	put(o, s.flags & FC_IFACE_DRY_RUN ? ", DRY RUN" : "");
	put(o, s.flags & FC_IFACE_OFF ? ", OFF" : "");
	put(o, s.flags & FC_STATS_DRAINING ? ", DRAINING" : "");
	put(o, s.flags & FC_STATS_UNRULED ? ", unruled" : "");
	put_number(o, "\n  admitted ", s.admitted);
	put_number(o, ": ok ", s.ok);
	put_number(o, " (unmarked ", s.unmarked);
	put_number(o, "), error ", s.error);
	put_number(o, ", timeout ", s.timeout);
	put_number(o, ", ignored ", s.ignored);
	put_number(o, ", abandoned ", s.abandoned);
	put_number(o, "; late exits ", s.late_exits);
	put_number(o, ", untracked ", s.untracked);
	put_number(o, ", would refuse ", s.would_refuse);
	put_number(o, "\n  expansions ", s.expansions);
	put_number(o, ", undone ", s.expansions_undone);
	put_number(o, "; purged ", s.purged);
	put_number(o, ", write-offs ", s.writeoffs);
	put_number(o, "; waited ", s.waited);
	put_number(o, ", in vain ", s.wait_timeouts);
	put_number(o, "; available ppm: 5 min ", s.availability_5min_ppm);
	put_number(o, ", 1 h ", s.availability_1h_ppm);
	put_number(o, ", 30 d ", s.availability_30d_ppm);
	put(o, "\n");
	put_refused(o, &s);
}

static void put_call(struct out *o, const struct fc_iface *f, const struct fci_view *v, int written_off, uint64_t now)
{
	struct fc_in_flight c = { .size = sizeof(c) };

	fci_list_fill(f, v, written_off, now, &c);
	put(o, "  inside for ");
	put_seconds(o, c.age_ns);
	put_number(o, ": thread ", c.tid);
	put(o, " at ");
	put(o, c.file);
	put_number(o, ":", c.line);
	put(o, " ");
	put(o, c.func);
	if (c.request_id)
		put_number(o, ", request ", c.request_id);
	if (c.weight > 1)
		put_number(o, ", weight ", c.weight);
	put(o, c.flags & FC_IN_FLIGHT_OVERDUE ? ", OVERDUE" : "");
	put(o, c.flags & FC_IN_FLIGHT_MOVED ? ", moved" : "");
	put(o, c.flags & FC_IN_FLIGHT_WRITTEN_OFF ? ", written off" : "");
	put(o, c.flags & FC_IN_FLIGHT_OVER_LIMIT ? ", over the limit" : "");
	put(o, "\n");
}

static void put_more(struct out *o, const struct fc_iface *f, uint32_t shown)
{
	uint32_t all = fci_list_count(f);

	if (all > shown) {
		put_number(o, "  and ", all - shown);
		put(o, " more\n");
	}
}

static void put_decision(struct out *o, const struct fc_record *r, uint64_t now)
{
	put(o, "  ");
	put_seconds(o, fci_age(r->time_ns, now));
	put(o, " ago: ");
	put(o, r->iface);
	put(o, " ");
	put(o, r->status == 0 ? "admitted" : fc_status_name(r->status));
	if (r->status >= FC_REFUSED_USER)
		put_number(o, " ", (uint64_t)r->status);
	if (r->status != 0)
		put_number(o, " limit ", r->in_flight_or_latency);
	put_number(o, ", thread ", r->tid);
	if (r->one_of > 1)
		put_number(o, ", one of ", r->one_of);
	put(o, "\n");
}

/* ---- inside a signal handler ------------------------------------------------------------------- */

static void calls_in_signal(struct out *o, const struct fc_iface *f, uint64_t now)
{
	struct fci_view v[CALLS_IN_SIGNAL];
	uint32_t n = fci_oldest(f, v, CALLS_IN_SIGNAL), shown = n;

	for (uint32_t i = 0; i < n; i++)
		put_call(o, f, &v[i], 0, now);
	for (uint32_t i = 0; i < fci_writeoffs(f) && shown < 2 * CALLS_IN_SIGNAL; i++)
		if (fci_writeoff_view(f, i, &v[0])) {
			put_call(o, f, &v[0], 1, now);
			shown++;
		}
	put_more(o, f, shown);
}

/* A row is a ring; its newest is where times go down. */
static void recorder_in_signal(struct out *o, const struct fc *fc, uint32_t row, uint64_t now)
{
	uint32_t slots = fc->recorder_slots, newest = 0, shown = 0;
	struct fc_record r;
	uint64_t max = 0;

	for (uint32_t i = 0; i < slots; i++)
		if (fci_recorder_read(fc, row, i, &r) && r.time_ns >= max) {
			max = r.time_ns;
			newest = i;
		}
	for (uint32_t i = 0; i < slots && shown < ROW_IN_SIGNAL; i++)
		if (fci_recorder_read(fc, row, newest - i + slots, &r)) {
			if (shown++ == 0)
				put_number(o, "\ndecisions on CPU ", row);
			put(o, shown == 1 ? ", newest first:\n" : "");
			put_decision(o, &r, now);
		}
}

int fc_dump_signal(struct fc *fc, int fd)
{
	struct out o = { .fd = fd };
	int saved = errno;
	struct fc_iface *f;
	uint64_t now;

	if (!fci_fc_ok(fc) || !fc->seg)
		return -EINVAL;
	now = fci_clock_now(&fc->clock);
	put_totals(&o, fc, now);
	put_health(&o, fc, now);
	for (uint32_t i = 0; !o.error && (f = fc_iface_at(fc, i)) != NULL; i++) {
		put_stats(&o, f);
		calls_in_signal(&o, f, now);
	}
	for (uint32_t row = 0; !o.error && row <= fc->percpu.ncpus; row++)
		recorder_in_signal(&o, fc, row, now);
	flush(&o);
	errno = saved;
	return o.error;
}

/* ---- with stacks ------------------------------------------------------------------------------- */

struct room {
	struct fci_unwinder *unwinder;
	struct fci_symboliser *sym;
	struct fci_view views[CALLS_SHOWN];
	struct fci_capture captures[STACKS];
	struct fc_record records[DECISIONS];
	char text[16384];
};

static struct room *room_create(struct fc *fc)
{
	struct room *r = fci_alloc(fc, sizeof(*r));

	if (r && !(fc->flags & FC_NO_STACKS)) {
		(void)fci_unwinder_create(&r->unwinder);
		(void)fci_symboliser_create(&r->sym);
	}
	return r;
}

static void room_destroy(struct fc *fc, struct room *r)
{
	(void)fci_unwinder_destroy(r->unwinder);
	(void)fci_symboliser_destroy(r->sym);
	fci_free(fc, r, sizeof(*r));
}

/* The stacks of the overdue ones of n calls, oldest first, symbols looked up. Returns how many. */
static uint32_t take_stacks(const struct fc_iface *f, struct room *r, uint32_t n, uint64_t now)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	uint32_t stacks = 0;

	for (uint32_t i = 0; i < n && stacks < STACKS && fci_overdue(f, &r->views[i], now); i++) {
		struct fci_capture *c = &r->captures[stacks++];

		fci_capture(f, &r->views[i], r->unwinder, "no stack: switched off, or out of memory", c);
		if (r->sym)
			(void)fci_symbol_want_stack(r->sym, &c->stack);
	}
	for (uint32_t i = 0; r->sym && fci_symbol_step(r->sym) != 0 && i < SYMBOLS_MS; i++)
		nanosleep(&ms, NULL);
	return stacks;
}

static void put_stack(struct out *o, struct room *r, uint32_t i)
{
	const struct fci_capture *c = &r->captures[i];
	struct fci_text t;
	uint32_t same = 0;

	fci_text_init(&t, r->text, sizeof(r->text));
	fci_capture_thread(c, &t);
	while (same < i && fci_capture_hash(&r->captures[same]) != fci_capture_hash(c))
		same++;
	if (same < i && c->standing == FCI_STANDS)
		fci_text_add(&t, "  stack as that of thread %u\n", r->captures[same].tid);
	else
		fci_capture_stack(c, r->sym, &t);
	for (char *line = r->text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		*end = '\0';
		put(o, "  ");
		put(o, line);
		put(o, "\n");
	}
}

static void calls_with_stacks(struct out *o, const struct fc_iface *f, struct room *r, uint64_t now)
{
	uint32_t n = fci_oldest(f, r->views, CALLS_SHOWN), stacks = take_stacks(f, r, n, now), shown = n;

	for (uint32_t i = 0; i < n; i++) {
		put_call(o, f, &r->views[i], 0, now);
		if (i < stacks)
			put_stack(o, r, i);
	}
	for (uint32_t i = 0; i < fci_writeoffs(f) && shown < 2 * CALLS_SHOWN; i++) {
		if (!fci_writeoff_view(f, i, &r->views[0]))
			continue;
		shown++;
		put_call(o, f, &r->views[0], 1, now);
		if (take_stacks(f, r, 1, now))
			put_stack(o, r, 0);
	}
	put_more(o, f, shown);
}

int fc_dump(struct fc *fc, int fd)
{
	struct out o = { .fd = fd };
	struct room *r;
	struct fc_iface *f;
	uint64_t now;
	int n;

	if (!fci_fc_ok(fc) || !fc->seg)
		return -EINVAL;
	r = room_create(fc);
	if (!r)
		return fc_dump_signal(fc, fd);
	now = fci_clock_now(&fc->clock);
	put_totals(&o, fc, now);
	put_health(&o, fc, now);
	for (uint32_t i = 0; !o.error && (f = fc_iface_at(fc, i)) != NULL; i++) {
		put_stats(&o, f);
		calls_with_stacks(&o, f, r, now);
	}
	r->records[0].size = sizeof(r->records[0]);
	n = fc_recorder(fc, r->records, DECISIONS);
	if (n > 0)
		put(&o, "\ndecisions, newest first:\n");
	for (int i = 0; i < n; i++)
		put_decision(&o, &r->records[i], now);
	flush(&o);
	room_destroy(fc, r);
	return o.error;
}

/* ---- who is left over -------------------------------------------------------------------------- */

/* Calls of one interface from one call site. */
struct leak {
	uint32_t site, count, n_tids;
	uint64_t oldest;
	uint32_t tids[TIDS];
};

struct leaks {
	struct leak at[SITES];
	uint32_t n, all;
};

/* Can somebody still end this call? Moved ones can be exited by any thread. */
static int nobody_can_end(const struct fc_iface *f, const struct fci_view *v)
{
	struct fci_thread_view t;

	return !fci_is_detached(v->word) && (uint64_t)FCI_OWNER(v->word) << 3 == fci_me(f) &&
	       fci_thread_look(v->tid, &t) == 0;
}

/* More call sites than there is room for are put together in the last one, under no name. */
static void add_leak(struct leaks *l, const struct fci_view *v)
{
	uint32_t i = 0, site = v->site;
	struct leak *k;

	while (i < l->n && i < SITES - 1 && l->at[i].site != site)
		i++;
	k = &l->at[i];
	if (i == l->n) {
		l->n++;
		*k = (struct leak){ .site = i < SITES - 1 ? site : 0, .oldest = v->start };
	}
	k->count++;
	k->oldest = v->start < k->oldest ? v->start : k->oldest;
	if (k->n_tids < TIDS)
		k->tids[k->n_tids++] = v->tid;
	l->all++;
}

static void find_leaks(const struct fc_iface *f, int all, struct leaks *l)
{
	uint32_t slots = fci_slots(f);
	struct fci_view v;

	l->n = l->all = 0;
	for (uint32_t s = 0; s < slots; s++)
		if (fci_view(f, s, &v) && (all || nobody_can_end(f, &v)))
			add_leak(l, &v);
	for (uint32_t i = 0; i < fci_writeoffs(f); i++)
		if (fci_writeoff_view(f, i, &v) && (all || nobody_can_end(f, &v)))
			add_leak(l, &v);
}

static void write_leak(const struct fc_iface *f, const struct leak *k, int all, uint64_t now, struct fci_text *t)
{
	const struct fci_site *site = fci_site_at(f->fc, k->site);

	fci_text_add(t, "%s: %s: %u call%s from %s:%u %s, oldest ", all ? "still inside" : "leaked", f->name, k->count,
	             k->count == 1 ? "" : "s", site->file, site->line, site->func);
	fci_text_age(t, fci_age(k->oldest, now));
	fci_text_add(t, "; thread%s", k->count == 1 ? "" : "s");
	for (uint32_t i = 0; i < k->n_tids; i++)
		fci_text_add(t, " %u", k->tids[i]);
	if (k->count > k->n_tids)
		fci_text_add(t, " and %u more", k->count - k->n_tids);
}

int fci_leaks_report(struct fc *fc, int fd, int all)
{
	uint64_t now = fci_clock_now(&fc->clock);
	struct out o = { .fd = fd };
	struct fc_iface *f;
	struct fci_text t;
	struct leaks l;
	char line[768];
	uint32_t n = 0;

	for (uint32_t i = 0; (f = fc_iface_at(fc, i)) != NULL; i++) {
		find_leaks(f, all, &l);
		n += l.all;
		for (uint32_t k = 0; k < l.n; k++) {
			fci_text_init(&t, line, sizeof(line));
			write_leak(f, &l.at[k], all, now, &t);
			if (fd < 0) {
				fci_log(fc, FC_LOG_WARN, "%s", line);
			} else {
				put(&o, line);
				put(&o, "\n");
			}
		}
	}
	flush(&o);
	return (int)n;
}

int fc_leaks(struct fc *fc, int fd)
{
	return fci_fc_ok(fc) && fc->seg ? fci_leaks_report(fc, fd, 0) : -EINVAL;
}
