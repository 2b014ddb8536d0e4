/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stuck_work.h - what stuck.c, stuck_group.c and stuck_write.c share. The ticking thread's alone.
 */
#ifndef FCI_STUCK_WORK_H
#define FCI_STUCK_WORK_H

#include "report.h"

#define FCI_STUCK_CALLS  1024u
#define FCI_STUCK_HEADS  512u
#define FCI_STUCK_GROUPS 8u
#define FCI_STUCK_PLACES 64u
#define FCI_STUCK_TIDS   8u /* shown beside the one whose stack is */
#define FCI_STUCK_TEXT   16384u

enum fci_stuck_state { FCI_STUCK_FREE, FCI_STUCK_WATCHED, FCI_STUCK_DUE, FCI_STUCK_GROUPED };

/* An overdue call. */
struct fci_stuck_call {
	struct fci_view v;
	struct fc_iface *f;
	uint64_t at;    /* its next report */
	uint64_t place; /* where it stood at the last one; 0: never looked at */
	uint32_t scan;  /* the last look that saw it */
	uint16_t next;  /* in its chain, or of the free ones */
	uint8_t state;  /* enum fci_stuck_state */
	uint8_t written_off;
};

/* A report to be: calls of one interface in one place, and where the oldest of them stands. */
struct fci_stuck_group {
	struct fc_iface *f;
	uint64_t place;
	struct fci_view v;
	int written_off;
	struct fci_capture capture;
};

/* A place that has been reported. */
struct fci_stuck_place {
	uint64_t key, last_ns, hold_ns;
};

enum fci_stuck_phase { FCI_STUCK_GATHER, FCI_STUCK_LOOK_UP, FCI_STUCK_WRITE };

struct fci_stuck_work {
	struct fci_unwinder *unwinder;
	struct fci_symboliser *sym;
	enum fci_stuck_phase phase;
	uint32_t scan;
	uint32_t n_due, cursor;
	uint32_t n_groups, written;
	uint64_t give_up_ns;
	uint16_t heads[FCI_STUCK_HEADS], free;
	struct fci_stuck_place places[FCI_STUCK_PLACES];
	struct fci_stuck_call calls[FCI_STUCK_CALLS];
	struct fci_stuck_group groups[FCI_STUCK_GROUPS];
	char text[FCI_STUCK_TEXT];
};

struct fci_stuck {
	struct fci_stuck_work *work; /* made with the first overdue call */
	uint64_t minute_at;          /* when the current minute of reports began */
	uint32_t in_minute;
	uint32_t minute_runs;
	uint64_t suppressed;         /* since the last report */
};

/* The calls of a group, as they are now. */
struct fci_stuck_members {
	uint32_t count, n_tids;
	uint64_t oldest, youngest;          /* starts */
	const struct fci_stuck_call *first; /* the oldest */
	uint32_t tids[FCI_STUCK_TIDS + 1];
};

/* Take one due call's stack. 0: nothing is due, or it must wait for the next batch. */
int fci_stuck_gather(struct fc *fc, struct fci_stuck_work *w, uint64_t now);

/* Count who of a group is still there, also those that were not due yet, and settle when they are due
 * next. */
void fci_stuck_collect(struct fci_stuck_work *w, const struct fci_stuck_group *g, uint64_t now,
                       struct fci_stuck_members *m);

/* The oldest need not have been due, so another one's stack was taken: show its own, if it still
 * stands in this place. The symbols are the same. */
void fci_stuck_show_oldest(struct fc *fc, struct fci_stuck_work *w, struct fci_stuck_group *g,
                           const struct fci_stuck_call *first);

/* A place was reported: nothing more of it for a while. */
void fci_stuck_told(struct fci_stuck_work *w, uint64_t key, uint64_t after, uint64_t now);

/* Write the report of a group, or count it as suppressed. */
void fci_stuck_report(struct fc *fc, struct fci_stuck_work *w, struct fci_stuck_group *g, uint64_t now);

#endif /* FCI_STUCK_WORK_H */
