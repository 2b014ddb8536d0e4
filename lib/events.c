/* SPDX-License-Identifier: BSD-2-Clause */
/* events.c - see events.h. */
#include <errno.h>
#include <stdio.h>

#include "events.h"

#define EVERY_NS FC_S(1)
#define TOLD     512u /* (interface, kind) pairs remembered; a power of two */
#define TEXT     200

enum { NOTE_EMPTY = 0, NOTE_WRITING = 1, NOTE_FULL = 2 };

/* When a kind of an interface was told last. Two pairs may share a place: then one of them is told
 * more often than once a second, never less. */
struct told {
	uint32_t iface, kind;
	uint64_t time_ns, suppressed;
};

struct fci_events {
	struct told told[TOLD];
};

#define NO_IFACE UINT32_MAX

void fci_note(struct fc *fc, struct fc_iface *f, int kind, uint64_t a, uint64_t b)
{
	struct fci_note *notes = FCI_AT(fc, fc->geo.notes, struct fci_note);
	/* N1: a place in turn; the note's state decides. */
	struct fci_note *n = &notes[atomic_fetch_add_explicit(&fc->head->note_head, 1, FCI_RLX) % FCI_NOTES];
	uint64_t empty = NOTE_EMPTY;

	/* X1 -> R2: ours from here on, after the last teller is done with it. */
	if (!atomic_compare_exchange_strong_explicit(&n->state, &empty, NOTE_WRITING, FCI_ACQ, FCI_RLX)) {
		/* N2: a statistic. */
		atomic_fetch_add_explicit(&fc->head->notes_lost, 1, FCI_RLX);
		return;
	}
	n->time_ns = fci_clock_now(&fc->clock);
	n->iface = f ? f->index : NO_IFACE;
	n->kind = (uint32_t)kind;
	n->a = a;
	n->b = b;
	/* R1 -> A1 (fci_events_tell): the note is complete. */
	atomic_store_explicit(&n->state, NOTE_FULL, FCI_REL);
}

void fc_event_note(struct fc_iface *f, int kind, uint64_t a, uint64_t b)
{
	if (!fci_iface_real(f))
		return;
	/* N2: statistics. */
	if (kind == FC_EVENT_EXPANDED)
		atomic_fetch_add_explicit(&f->block->rare.expansions, 1, FCI_RLX);
	else if (kind == FC_EVENT_EXPAND_UNDONE)
		atomic_fetch_add_explicit(&f->block->rare.expansions_undone, 1, FCI_RLX);
	fci_note(f->fc, f, kind, a, b);
}

/* ---- text -------------------------------------------------------------------------------------- */

struct shape {
	const char *name, *text;
	int level;
};

static const struct shape *shape_of(uint32_t kind)
{
#define SHAPE(name_, number_, level_, text_) [number_] = { #name_, text_, FC_LOG_##level_ },
	static const struct shape shapes[] = { FC_EVENT_MAP(SHAPE) };
	static const struct shape unknown = { "unknown", "event {a} {b}", FC_LOG_INFO };
#undef SHAPE

	return kind < sizeof(shapes) / sizeof(shapes[0]) && shapes[kind].text ? &shapes[kind] : &unknown;
}

const char *fc_event_name(int kind)
{
	return shape_of((uint32_t)kind)->name;
}

static const char *denied_text(uint32_t reason)
{
	switch (reason) {
	case FC_DENIED_OFF: return "expansion is off";
	case FC_DENIED_AT_MOST: return "it is as high as it may be";
	case FC_DENIED_HEALTH: return "health is not good: ";
	case FC_DENIED_OVERDUE: return "the calls inside are overdue";
	case FC_DENIED_UNDONE: return "the last step did not help";
	case FC_DENIED_JUDGING: return "the last step is being judged";
	case FC_DENIED_MEMORY: return "no room for more places in the segment";
	default: return "unknown";
	}
}

/* As rules files call it. */
static const char *bound_text(uint64_t v)
{
	switch (v) {
	case FC_SYSTEM_CPU: return "cpu";
	case FC_SYSTEM_LOAD: return "load";
	case FC_SYSTEM_IN_FLIGHT: return "in_flight";
	case FC_SYSTEM_RATE: return "rate";
	case FC_SYSTEM_LATENCY: return "avg_latency";
	default: return "unknown";
	}
}

/* What fc_breaker_force() and fc_degrade_fault() say. */
static const char *set_text(uint64_t v)
{
	switch (v) {
	case FC_SET_AUTO: return "automatic";
	case FC_SET_OPEN: return "open";
	case FC_SET_CLOSED: return "closed";
	case FC_SET_ON: return "on";
	default: return "off";
	}
}

static int print_time(char *to, size_t room, uint64_t ns)
{
	if (ns < FC_US(1))
		return snprintf(to, room, "%llu ns", (unsigned long long)ns);
	if (ns < FC_MS(1))
		return snprintf(to, room, "%llu us", (unsigned long long)(ns / 1000));
	if (ns < FC_S(1))
		return snprintf(to, room, "%llu ms", (unsigned long long)(ns / 1000000));
	return snprintf(to, room, "%llu.%llu s", (unsigned long long)(ns / 1000000000u),
	                (unsigned long long)(ns / 100000000u % 10));
}

static int print_value(char *to, size_t room, char form, uint64_t v)
{
	switch (form) {
	case 't': return print_time(to, room, v);
	case 'c': return snprintf(to, room, "%llu call%s", (unsigned long long)v, v == 1 ? "" : "s");
	case 'n': return v == FC_UNLIMITED ? snprintf(to, room, "none") : snprintf(to, room, "%llu", (unsigned long long)v);
	case 'p': return v == FC_UNLIMITED ? snprintf(to, room, "%s", "") : snprintf(to, room, " (places: %llu)", (unsigned long long)v);
	case 's': return snprintf(to, room, "%s", fc_status_text((int)(int64_t)v));
	case 'h': return snprintf(to, room, "%s", fc_health_reason_text((uint32_t)v));
	case 'd': return snprintf(to, room, "%s%s", denied_text((uint32_t)v),
	                          (uint32_t)v == FC_DENIED_HEALTH ? fc_health_reason_text((uint32_t)(v >> 32)) : "");
	case 'b': return snprintf(to, room, "%s", bound_text(v));
	case 'f': return snprintf(to, room, "%s", set_text(v));
	default: return snprintf(to, room, "%llu", (unsigned long long)v);
	}
}

/* {a}, {b}, {a:t} ... become values; everything else is copied. */
static void print_text(char *to, const char *text, uint64_t a, uint64_t b)
{
	size_t n = 0;

	while (*text && n + 1 < TEXT) {
		if (text[0] == '{' && (text[1] == 'a' || text[1] == 'b')) {
			char form = text[2] == ':' ? text[3] : 0;
			int wrote = print_value(to + n, TEXT - n, form, text[1] == 'a' ? a : b);

			n += (size_t)wrote < TEXT - n ? (size_t)wrote : TEXT - n - 1;
			text += form ? 5 : 3;
		} else {
			to[n++] = *text++;
		}
	}
	to[n] = 0;
}

/* ---- telling ----------------------------------------------------------------------------------- */

static void tell(struct fc *fc, const struct fci_note *n, uint64_t suppressed)
{
	const struct shape *shape = shape_of(n->kind);
	struct fc_iface *f = n->iface == NO_IFACE ? NULL : fc_iface_at(fc, n->iface);
	char text[TEXT], more[48] = "";
	struct fc_event e = { .size = sizeof(e), .kind = (int32_t)n->kind, .time_ns = n->time_ns };

	print_text(text, shape->text, n->a, n->b);
	if (suppressed)
		snprintf(more, sizeof(more), " (%llu suppressed)", (unsigned long long)suppressed);
	fci_log(fc, shape->level, "%s%s%s%s", f ? f->name : "", f ? ": " : "", text, more);
	if (!fc->on_event)
		return;
	e.iface = f ? f->name : NULL;
	e.text = text;
	e.a = n->a;
	e.b = n->b;
	e.suppressed = suppressed;
	fc->on_event(fc->event_arg, &e);
}

static void tell_or_suppress(struct fc *fc, const struct fci_note *n, uint64_t now)
{
	struct told *t = &fc->events->told[(n->iface * 31 + n->kind) % TOLD];
	int same = t->iface == n->iface && t->kind == n->kind;

	if (same && now >= t->time_ns && now - t->time_ns < EVERY_NS) {
		t->suppressed++;
		/* N2: a statistic. */
		atomic_fetch_add_explicit(&fc->events_suppressed, 1, FCI_RLX);
		return;
	}
	tell(fc, n, same ? t->suppressed : 0);
	*t = (struct told){ .iface = n->iface, .kind = n->kind, .time_ns = now };
}

void fci_events_tell(struct fc *fc, uint64_t now)
{
	struct fci_note *notes = FCI_AT(fc, fc->geo.notes, struct fci_note), copy;
	/* N3: only this thread moves the tail. */
	uint64_t tail = atomic_load_explicit(&fc->head->note_tail, FCI_RLX);
	uint64_t head = atomic_load_explicit(&fc->head->note_head, FCI_RLX);

	for (uint64_t i = head - tail > FCI_NOTES ? head - FCI_NOTES : tail; i != head; i++) {
		struct fci_note *n = &notes[i % FCI_NOTES];

		/* A1 -> R1 (fci_note). One that is being written now is told when its turn comes again. */
		if (atomic_load_explicit(&n->state, FCI_ACQ) != NOTE_FULL)
			continue;
		copy.time_ns = n->time_ns;
		copy.iface = n->iface;
		copy.kind = n->kind;
		copy.a = n->a;
		copy.b = n->b;
		/* R2 -> X1 (fci_note): done with it. */
		atomic_store_explicit(&n->state, NOTE_EMPTY, FCI_REL);
		tell_or_suppress(fc, &copy, now);
	}
	/* N3. */
	atomic_store_explicit(&fc->head->note_tail, head, FCI_RLX);
}

int fci_events_create(struct fc *fc)
{
	fc->events = fci_alloc(fc, sizeof(*fc->events));
	return fc->events ? 0 : -ENOMEM;
}

void fci_events_destroy(struct fc *fc)
{
	if (fc->events)
		fci_free(fc, fc->events, sizeof(*fc->events));
	fc->events = NULL;
}

void fci_events_reset(struct fc *fc)
{
	struct fci_note *notes = FCI_AT(fc, fc->geo.notes, struct fci_note);

	for (uint32_t i = 0; i < FCI_NOTES; i++)
		/* N4: in the child of a fork, alone. */
		atomic_store_explicit(&notes[i].state, NOTE_EMPTY, FCI_RLX);
}
