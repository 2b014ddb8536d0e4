/* SPDX-License-Identifier: BSD-2-Clause */
/* iface.h - inside of interfaces: what other files of the library need of iface.c. */
#ifndef FCI_IFACE_H
#define FCI_IFACE_H

#include "inflight.h"

/* Read the cheapest clock that serves latency and chain. fc->setup is held. */
void fci_iface_choose_clock(struct fc_iface *f);

static inline uint32_t fci_iface_max_weight(const struct fc_iface *f)
{
	/* N1: a setting. */
	return atomic_load_explicit(&f->block->config.max_weight, FCI_RLX);
}

static inline uint32_t fci_iface_cap(const struct fc_iface *f)
{
	/* N1: a setting. */
	return atomic_load_explicit(&f->block->config.cap, FCI_RLX);
}

/* First call after a rest: tell housekeeping. May make a system call. */
void fci_iface_wake(struct fc_iface *f);

/* No cap and no place: add places, up to FCI_OBSERVED_MAX. 0 when there are more now. */
#define FCI_OBSERVED_MAX 4096u
int fci_iface_grow(struct fc_iface *f);

/* Make the pass-through handle of a context (or the static one, fc NULL). */
void fci_iface_pass_init(struct fc_iface *f, struct fc *fc);

/* Free the handle's own memory, at the end of the context. */
void fci_iface_free(struct fc *fc, struct fc_iface *f);

/* names.c: the index of handles by name, local to the process. Readers need no lock. */
int fci_names_create(struct fc *fc);
void fci_names_destroy(struct fc *fc);
struct fc_iface *fci_names_find(struct fc *fc, const char *name);
int fci_names_add(struct fc *fc, struct fc_iface *f); /* fc->setup held */
int fci_name_check(const char *name);                 /* 0, -EINVAL, -ENAMETOOLONG, -EILSEQ */

#endif /* FCI_IFACE_H */
