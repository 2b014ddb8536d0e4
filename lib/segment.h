/* SPDX-License-Identifier: BSD-2-Clause */
/* segment.h - the memory that all mutable state lies in: made, laid out, mapped. By fc_create alone. */
#ifndef FCI_SEGMENT_H
#define FCI_SEGMENT_H

#include "context.h"

/* Map and lay out a segment; fc->seg, head, geo and percpu are set. 0, -ENOMEM, -ENOSPC (too small). */
int fci_segment_open(struct fc *fc, const struct fc_opts *opts);
void fci_segment_close(struct fc *fc);

#endif /* FCI_SEGMENT_H */
