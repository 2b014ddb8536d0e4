/* SPDX-License-Identifier: BSD-2-Clause */
/* leaks.c - who is left over: fc_leaks(), and what the end of a context tells. See stuck.h. */
#include <errno.h>

#include "check.h"
#include "entry.h"
#include "list.h"
#include "out.h"
#include "report.h"
#include "stuck.h"

#define SITES 32u /* told apart */
#define TIDS  6u

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
	struct fci_out o = { .fd = fd };
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
				fci_put(&o, line);
				fci_put(&o, "\n");
			}
		}
	}
	fci_put_flush(&o);
	return (int)n;
}

int fc_leaks(struct fc *fc, int fd)
{
	return fci_fc_ok(fc) && fc->seg ? fci_leaks_report(fc, fd, 0) : -EINVAL;
}
