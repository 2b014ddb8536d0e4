/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * events.h - notes that calls leave, and housekeeping tells.
 *
 *                note   tell
 *      note        -      -       - = free; lock-free, never waits: a full store loses the note,
 *      tell        -      X           and counts it
 */
#ifndef FCI_EVENTS_H
#define FCI_EVENTS_H

#include "context.h"

/* Like fc_event_note(); f NULL: of the whole context. */
void fci_note(struct fc *fc, struct fc_iface *f, int kind, uint64_t a, uint64_t b);

/* Housekeeping: tell the notes to log and callback. */
void fci_events_tell(struct fc *fc, uint64_t now);

int fci_events_create(struct fc *fc);
void fci_events_destroy(struct fc *fc);

/* After fork: notes of the parent are the parent's to tell. */
void fci_events_reset(struct fc *fc);

#endif /* FCI_EVENTS_H */
