/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ruled.h - what the rest of the library does for rules files (rules.h): new interfaces get theirs, what is
 * set by hand is noted, housekeeping looks at the file. rules_none.c stands in without libyaml.
 */
#ifndef FCI_RULED_H
#define FCI_RULED_H

#include "context.h"

/* fc_iface.by_hand, fc.by_hand: parts that rules leave alone. fc->setup */
#define FCI_HAND_OPTS   1u
#define FCI_HAND_CHAIN  2u
#define FCI_HAND_SYSTEM 1u
#define FCI_HAND_HEALTH 2u

/* Numbers of a new interface, as far as rules give any: 1 if they do. fc->setup is held. */
int fci_ruled_opts(struct fc *fc, const char *name, struct fc_iface_opts *o);

/* It is made: its interceptors. A failure is told in the log. fc->setup is held. */
void fci_ruled_made(struct fc_iface *f, int with_opts);

/* When it wants to run again. In fc_tick(). */
uint64_t fci_rules_tick(struct fc *fc, uint64_t now);

/* The end of a context: first the thread, later the rest. */
void fci_rules_stop(struct fc *fc);
void fci_rules_free(struct fc *fc);
void fci_rules_fork_child(struct fc *fc);

/* iface.c. Room for these numbers is made, or nothing is changed; then setting them cannot fail. */
int fci_iface_room(struct fc_iface *f, const struct fc_iface_opts *o);
int fci_iface_check(struct fc *fc, const char *name, const struct fc_iface_opts *o);
void fci_iface_settle(struct fc_iface *f, const struct fc_iface_opts *o, int ruled);

/* system.c: fc_system_set() as rules call it. */
int fci_system_set(struct fc *fc, const struct fc_system_opts *opts, uint32_t hand);

#endif /* FCI_RULED_H */
