/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dump.c - the state of everything as text: fc_dump(), fc_dump_signal().
 *
 * Both dumps run the same code, which uses out.h and nothing of libc: no stdio, no malloc, no lock, no
 * clock that a signal may have caught half way through being set. Its loops are bounded by geometry
 * copied at attach. fc_dump() adds the stacks of overdue calls, for which it takes memory and waits for
 * the symboliser's thread.
 */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "entry.h"
#include "list.h"
#include "out.h"
#include "report.h"
#include "symbol.h"

#define CALLS_SHOWN     256u
#define CALLS_IN_SIGNAL 16u  /* the views lie on the stack, perhaps a signal stack */
#define STACKS          32u  /* an interface */
#define DECISIONS       256u
#define ROW_IN_SIGNAL   64u  /* decisions of each CPU */
#define SYMBOLS_MS      5000u

/* ---- what both dumps show ---------------------------------------------------------------------- */

static void put_health(struct fci_out *o, struct fc *fc, uint64_t now)
{
	FC_OPTS(fc_health, h, .state = 0);

	if (!fc->has_health || fci_health_snapshot(&fc->health, now, &h) != 0) {
		fci_put(o, "health: not known\n");
		return;
	}
	fci_put(o, "health: ");
	fci_put(o, fc_health_reason_text(h.reason));
	fci_put(o, ", state 0x");
	fci_put_digits(o, h.state, 16, 1);
	if (h.valid & FC_HEALTH_CPU)
		fci_put_number(o, ", cpu permille ", h.cpu_permille);
	if (h.valid & FC_HEALTH_THROTTLED)
		fci_put_number(o, ", throttled permille ", h.throttled_permille);
	if (h.valid & FC_HEALTH_MEMORY)
		fci_put_number(o, ", memory permille ", h.memory_permille);
	fci_put_number(o, ", samples ", h.samples);
	fci_put_number(o, ", failures ", h.failures);
	fci_put(o, "\n");
}

static void put_totals(struct fci_out *o, struct fc *fc, uint64_t now)
{
	FC_OPTS(fc_totals, t, .ifaces = 0);

	(void)fc_totals(fc, &t);
	fci_put(o, "fcguard ");
	fci_put(o, fc_version());
	fci_put_number(o, ": process ", (uint64_t)getpid());
	fci_put_number(o, ", interfaces ", t.ifaces);
	fci_put(o, ", time ");
	fci_put_seconds(o, now);
	fci_put(o, fc_off_get(fc) ? ", switched OFF\n" : "\n");
	fci_put_number(o, "segment bytes ", t.bytes_mapped);
	fci_put_number(o, ", used ", t.bytes_used);
	fci_put_number(o, "; faults ", t.faults);
	fci_put_number(o, ", pass-through calls ", t.pass_through);
	fci_put_number(o, "; ticks ", t.ticks);
	fci_put_number(o, ", events suppressed ", t.events_suppressed);
	fci_put_number(o, ", stuck reports suppressed ", t.reports_suppressed);
	fci_put(o, "\n");
}

static void put_refused(struct fci_out *o, const struct fc_stats *s)
{
	int any = 0;

	for (uint32_t i = 0; i < FC_STATS_REASONS; i++) {
		if (!s->refused[i])
			continue;
		fci_put(o, any ? ", " : "  refused: ");
		fci_put(o, fc_status_name((int)i));
		fci_put_number(o, " ", s->refused[i]);
		any = 1;
	}
	if (any)
		fci_put(o, "\n");
}

static void put_stats(struct fci_out *o, const struct fc_iface *f)
{
	FC_OPTS(fc_stats, s, .cap = 0);

	(void)fc_iface_stats(f, &s);
	fci_put(o, "\n");
	fci_put(o, f->name);
	fci_put_bound(o, ": cap ", s.cap);
	fci_put_bound(o, ", limit ", s.limit);
	fci_put_number(o, ", in flight ", s.in_flight);
	fci_put_number(o, ", peak ", s.peak);
	fci_put_number(o, ", waiting ", s.waiting);
	fci_put_number(o, ", overdue ", s.overdue);
	fci_put_number(o, ", written off ", s.written_off);
	fci_put(o, s.flags & FC_IFACE_DRY_RUN ? ", DRY RUN" : "");
	fci_put(o, s.flags & FC_IFACE_OFF ? ", OFF" : "");
	fci_put(o, s.flags & FC_STATS_DRAINING ? ", DRAINING" : "");
	fci_put(o, s.flags & FC_STATS_UNRULED ? ", unruled" : "");
	fci_put_number(o, "\n  admitted ", s.admitted);
	fci_put_number(o, ": ok ", s.ok);
	fci_put_number(o, " (unmarked ", s.unmarked);
	fci_put_number(o, "), error ", s.error);
	fci_put_number(o, ", timeout ", s.timeout);
	fci_put_number(o, ", ignored ", s.ignored);
	fci_put_number(o, ", abandoned ", s.abandoned);
	fci_put_number(o, "; late exits ", s.late_exits);
	fci_put_number(o, ", untracked ", s.untracked);
	fci_put_number(o, ", would refuse ", s.would_refuse);
	fci_put_number(o, "\n  expansions ", s.expansions);
	fci_put_number(o, ", undone ", s.expansions_undone);
	fci_put_number(o, "; purged ", s.purged);
	fci_put_number(o, ", write-offs ", s.writeoffs);
	fci_put_number(o, "; waited ", s.waited);
	fci_put_number(o, ", in vain ", s.wait_timeouts);
	fci_put_number(o, "; available ppm: 5 min ", s.availability_5min_ppm);
	fci_put_number(o, ", 1 h ", s.availability_1h_ppm);
	fci_put_number(o, ", 30 d ", s.availability_30d_ppm);
	fci_put(o, "\n");
	put_refused(o, &s);
}

static void put_call(struct fci_out *o, const struct fc_iface *f, const struct fci_view *v, int written_off,
                     uint64_t now)
{
	struct fc_in_flight c = { .size = sizeof(c) };

	fci_list_fill(f, v, written_off, now, &c);
	fci_put(o, "  inside for ");
	fci_put_seconds(o, c.age_ns);
	fci_put_number(o, ": thread ", c.tid);
	fci_put(o, " at ");
	fci_put(o, c.file);
	fci_put_number(o, ":", c.line);
	fci_put(o, " ");
	fci_put(o, c.func);
	if (c.request_id)
		fci_put_number(o, ", request ", c.request_id);
	if (c.weight > 1)
		fci_put_number(o, ", weight ", c.weight);
	fci_put(o, c.flags & FC_IN_FLIGHT_OVERDUE ? ", OVERDUE" : "");
	fci_put(o, c.flags & FC_IN_FLIGHT_MOVED ? ", moved" : "");
	fci_put(o, c.flags & FC_IN_FLIGHT_WRITTEN_OFF ? ", written off" : "");
	fci_put(o, c.flags & FC_IN_FLIGHT_OVER_LIMIT ? ", over the limit" : "");
	fci_put(o, "\n");
}

static void put_more(struct fci_out *o, const struct fc_iface *f, uint32_t shown)
{
	uint32_t all = fci_list_count(f);

	if (all > shown) {
		fci_put_number(o, "  and ", all - shown);
		fci_put(o, " more\n");
	}
}

static void put_decision(struct fci_out *o, const struct fc_record *r, uint64_t now)
{
	fci_put(o, "  ");
	fci_put_seconds(o, fci_age(r->time_ns, now));
	fci_put(o, " ago: ");
	fci_put(o, r->iface);
	fci_put(o, " ");
	fci_put(o, r->status == 0 ? "admitted" : fc_status_name(r->status));
	if (r->status >= FC_REFUSED_USER)
		fci_put_number(o, " ", (uint64_t)r->status);
	if (r->status != 0)
		fci_put_number(o, " limit ", r->in_flight_or_latency);
	fci_put_number(o, ", thread ", r->tid);
	if (r->one_of > 1)
		fci_put_number(o, ", one of ", r->one_of);
	fci_put(o, "\n");
}

/* ---- inside a signal handler ------------------------------------------------------------------- */

static void calls_in_signal(struct fci_out *o, const struct fc_iface *f, uint64_t now)
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
static void recorder_in_signal(struct fci_out *o, const struct fc *fc, uint32_t row, uint64_t now)
{
	uint32_t slots = fc->geo.recorder_slots, newest = 0, shown = 0;
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
				fci_put_number(o, "\ndecisions on CPU ", row);
			fci_put(o, shown == 1 ? ", newest first:\n" : "");
			put_decision(o, &r, now);
		}
}

int fc_dump_signal(struct fc *fc, int fd)
{
	struct fci_out o = { .fd = fd };
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
	fci_put_flush(&o);
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

static void put_stack(struct fci_out *o, struct room *r, uint32_t i)
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
		fci_put(o, "  ");
		fci_put(o, line);
		fci_put(o, "\n");
	}
}

static void calls_with_stacks(struct fci_out *o, const struct fc_iface *f, struct room *r, uint64_t now)
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
	struct fci_out o = { .fd = fd };
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
		fci_put(&o, "\ndecisions, newest first:\n");
	for (int i = 0; i < n; i++)
		put_decision(&o, &r->records[i], now);
	fci_put_flush(&o);
	room_destroy(fc, r);
	return o.error;
}
