/* SPDX-License-Identifier: BSD-2-Clause */
/* drain.h - see fc_drain() in fcguard/context.h. */
#ifndef FCI_DRAIN_H
#define FCI_DRAIN_H

#include "context.h"

/* In the child of a fork: the doors are open. */
void fci_drain_reset(struct fc_iface *f);

#endif /* FCI_DRAIN_H */
