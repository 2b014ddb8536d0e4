/* SPDX-License-Identifier: BSD-2-Clause */
/* fallback.h - memory of an interface's fallback. See fallback.c. */
#ifndef FCI_FALLBACK_H
#define FCI_FALLBACK_H

struct fc;
struct fc_iface;

/* At the end of the context. */
void fci_fallback_free(struct fc *fc, struct fc_iface *f);

#endif /* FCI_FALLBACK_H */
