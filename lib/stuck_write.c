/* SPDX-License-Identifier: BSD-2-Clause */
/* stuck_write.c - one report of stuck calls, into the log and to on_stuck. See stuck.h and stuck_work.h. */
#include <string.h>

#include "check.h"
#include "entry.h"
#include "list.h"
#include "report.h"
#include "stuck_work.h"
#include "symbol.h"

static int may_report(struct fc *fc, struct fci_stuck *s, uint64_t now)
{
	if (!s->minute_runs || now < s->minute_at || now - s->minute_at >= FC_S(60)) {
		s->minute_runs = 1;
		s->minute_at = now;
		s->in_minute = 0;
	}
	return s->in_minute < fc->max_reports_per_min;
}

static void write_head(const struct fci_stuck_group *g, const struct fci_stuck_members *m, uint64_t suppressed,
                       uint64_t now, struct fci_text *t)
{
	const struct fci_site *site = fci_site_at(g->f->fc, g->v.site);
	uint32_t limit = fci_list_limit(g->f), written_off = fci_writeoff_used(g->f);

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
	if (written_off)
		fci_text_add(t, ", written off %u", written_off);
	if (suppressed)
		fci_text_add(t, "; %llu report%s suppressed before", (unsigned long long)suppressed,
		             suppressed == 1 ? "" : "s");
	fci_text_add(t, "\n");
}

static void write_others(const struct fci_stuck_group *g, const struct fci_stuck_members *m, struct fci_text *t)
{
	uint32_t shown = 0;

	for (uint32_t i = 0; i < m->n_tids && shown < FCI_STUCK_TIDS; i++)
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

static void call_back(struct fc *fc, const struct fci_stuck_group *g, const struct fci_stuck_members *m,
                      const char *stack, uint64_t now)
{
	FC_OPTS(fc_stuck, stuck, .count = m->count, .stack = stack);

	stuck.call.size = sizeof(stuck.call);
	fci_list_fill(g->f, &g->v, g->written_off, now, &stuck.call);
	stuck.thread_name = g->capture.standing == FCI_STANDS && g->capture.info.comm[0] ? g->capture.info.comm : "?";
	stuck.limit = fci_list_limit(g->f);
	stuck.in_flight = fci_inside_count(g->f, UINT32_MAX, NULL);
	fc->on_stuck(fc->stuck_arg, &stuck);
}

void fci_stuck_report(struct fc *fc, struct fci_stuck_work *w, struct fci_stuck_group *g, uint64_t now)
{
	struct fci_stuck *s = fc->stuck;
	struct fci_text head, stack;
	struct fci_stuck_members m;
	char lines[1024];

	fci_stuck_collect(w, g, now, &m);
	fci_stuck_told(w, g->place, fci_stuck_after(g->f, &g->v), now);
	if (!may_report(fc, s, now)) {
		s->suppressed++;
		/* N3: a statistic. */
		atomic_fetch_add_explicit(&fc->reports_suppressed, 1, FCI_RLX);
		return;
	}
	s->in_minute++;
	fci_stuck_show_oldest(fc, w, g, m.first);
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
