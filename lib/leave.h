/* SPDX-License-Identifier: BSD-2-Clause */
/* leave.h - the ways out that are not plain, and what they share with the purge. */
#ifndef FCI_LEAVE_H
#define FCI_LEAVE_H

#include "entry.h"

/* An exit with anything in the entry's flags. Returns like fc_exit_status(). */
int fci_leave_long(struct fc_entry *e, uint64_t word);

/* An exit whose word was not there any more: a lender changed it, or the call was purged or written
 * off, or this is a second exit, or the child of a fork. */
int fci_leave_late(struct fc_iface *f, uint32_t slot, uint64_t word, uint64_t start, uint64_t meta);

/* Begin measuring a call that was sampled or whose interface measures all. Returns 0. */
int fci_sample_start(struct fc_entry *e, struct fc_iface *f, uint64_t now);

/* A claimed slot of an extent: the plain way in, out of line. */
int fci_enter_claimed(struct fc_entry *e, struct fc_iface *f, struct fc_site *site, uint64_t now, struct fci_claim c);

/* End somebody else's call: from a view of it, taken while it was inside. Runs post with
 * FC_OUTCOME_ABANDONED. 1 when this caller won. */
int fci_abandon(struct fc_iface *f, const struct fci_view *v, uint64_t now);

/* The same, with the slot given back by `end`, which returns 1 when it was this caller that ended the call. */
typedef int (*fci_end_fn)(struct fc_iface *f, const struct fci_view *v, void *arg);
int fci_abandon_by(struct fc_iface *f, const struct fci_view *v, uint64_t now, fci_end_fn end, void *arg);

/* The child of a fork, alone: give back what interceptors took for the calls of the parent. */
void fci_reap_all(struct fc_iface *f, uint64_t now);

/* Handles of call sites. names.c */
struct fc_iface *fci_site_iface(struct fc_site *site, const char *name, int literal);
struct fc_iface *fci_site_iface_fn(struct fc_site *site, const char *module);

#endif /* FCI_LEAVE_H */
