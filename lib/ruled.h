/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ruled.h - what the rest of the library does for rules files (rules.h): new interfaces get theirs, what is
 * set by hand is noted, housekeeping looks at the file. rules_none.c stands in where there is no libyaml.
 *
 * Locks, in this order: fc->rules_mutex (a document is put in force), the tick lock, fc->setup.
 */
#ifndef FCI_RULED_H
#define FCI_RULED_H

#include "context.h"

/* fc_iface.by_hand and fc.by_hand: what rules leave alone. fc->setup */
#define FCI_HAND_OPTS     1u
#define FCI_HAND_CHAIN    2u
#define FCI_HAND_FALLBACK 4u
#define FCI_HAND_SYSTEM   8u
#define FCI_HAND_HEALTH   16u

/* Numbers of a new interface: FCI_CONFIG_UNRULED where rules say nothing of it, else 0. fc->setup is held. */
uint32_t fci_ruled_opts(struct fc *fc, const char *name, struct fc_iface_opts *o);

/* It is made: its interceptors. What fails is told in the log. fc->setup is held. */
void fci_ruled_made(struct fc_iface *f);

/* When it wants to run again. In fc_tick(). */
uint64_t fci_rules_tick(struct fc *fc, uint64_t now);

/* The end of a context: first the thread, later the rest. */
void fci_rules_stop(struct fc *fc);
void fci_rules_free(struct fc *fc);
void fci_ruled_free(struct fc_iface *f);
void fci_rules_fork_child(struct fc *fc);

/* For rules_*.c; fc->setup is held in all. Room, chain: all that can fail; settle and publish cannot. */
int fci_iface_room(struct fc_iface *f, const struct fc_iface_opts *o);                           /* iface.c */
void fci_iface_settle(struct fc_iface *f, const struct fc_iface_opts *o, int ruled);
int fci_chain_make(struct fc_iface *f, const struct fc_rule *rules, uint32_t n, struct fci_chain **ret); /* chain.c */
void fci_chain_publish(struct fc_iface *f, struct fci_chain *c);
void fci_chain_drop(struct fc_iface *f, struct fci_chain *c);
int fci_fallback_room(struct fc_iface *f);                                                       /* fallback.c */
void fci_fallback_settle(struct fc_iface *f, uint64_t reasons);

/* Without fc->setup: fc_system_set() and fc_health_set() as rules call them. */
int fci_system_set(struct fc *fc, const struct fc_system_opts *opts, uint32_t hand);             /* system.c */
int fci_health_change(struct fc *fc, const struct fc_health_opts *opts, uint32_t hand);          /* control.c */

#endif /* FCI_RULED_H */
