/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rule.h - what rules of a chain keep and share: their states, and interceptors by name.
 *
 *                           get, prepare, commit  forked, free
 *   get, prepare, commit             X                 X          X = the caller excludes: fc->setup is held;
 *   forked, free                     X                 X              forked, free: nobody else is there
 *
 * Memory that a state works with may be used by calls beside all of it: it is never given back.
 */
#ifndef FCI_RULE_H
#define FCI_RULE_H

#include "context.h"

/* The state of a rule of this interface, made on first use. fc->setup is held. NULL: *ret_error. */
struct fci_state *fci_state_get(struct fc_iface *f, const struct fc_interceptor *ic, const char *name, int *ret_error);

/* Memory for a state of `bytes`, when it is new or has too little: what to work with goes into s. 0,
 * -ENOSPC. Nothing is changed until fci_state_commit. */
int fci_state_prepare(struct fc_iface *f, const struct fci_state *st, uint64_t bytes, struct fc_setup *s);
void fci_state_commit(struct fci_state *st, void *memory, uint64_t bytes);

/* What there was before a chain was made, and back to it when the chain is not to be: states that were made
 * since, the interface's own and shared ones, are gone, and so is their memory. The one that was marked last
 * first. */
void fci_states_mark(const struct fc_iface *f, struct fci_before *ret);
void fci_states_undo(struct fc_iface *f, const struct fci_before *before);

/* The lock of the registry of interceptors, held over a fork: the last one to be taken. */
void fci_registry_lock(void);
void fci_registry_unlock(void);

/* The child of a fork, alone: tell those that want to know. */
void fci_states_forked(struct fc_iface *f);

/* Free what a handle keeps of its rules, at the end of the context. */
void fci_states_free(struct fc *fc, struct fc_iface *f);

#endif /* FCI_RULE_H */
