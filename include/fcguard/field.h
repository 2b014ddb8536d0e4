/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/field.h - the members of a conf struct, described, so that a reader of settings can fill it.
 *
 * An interceptor names its conf's members in a table; a reader checks names, units and bounds by it, says
 * what is allowed when it finds something else, and fills in defaults. So a new interceptor can be
 * configured by a file without a line of parsing.
 *
 * Threads.  Constant data.
 * Memory.   Texts and lists that the reader makes live until fc_iface_set_chain() returns: setup()
 *           keeps copies of what it needs.
 */
#ifndef FC_FIELD_H
#define FC_FIELD_H

#include <fcguard/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a member is, and how a file writes it. */
enum fc_field_type {
	FC_FIELD_COUNT32 = 1, /* uint32_t: 100; "unlimited" is UINT32_MAX where max allows it */
	FC_FIELD_COUNT64,     /* uint64_t */
	FC_FIELD_DURATION,    /* uint64_t ns: 5s, 250ms, 10us, 2min, 1h, 1d */
	FC_FIELD_RATE,        /* struct fc_rate: 500/s, 10/min, 3/h, 1/d, 20/100ms. min, max: of n */
	FC_FIELD_BYTES,       /* uint64_t: 64MiB, 512KiB, 1GiB, 100B */
	FC_FIELD_PERMILLE,    /* uint32_t thousandths: 50%, 0.1% */
	FC_FIELD_FACTOR,      /* uint32_t thousandths: 3x, 1.5x */
	FC_FIELD_CHOICE,      /* uint32_t: index into choices */
	FC_FIELD_BOOL,        /* uint32_t: true, false */
	FC_FIELD_TEXT,        /* const char *: at most max bytes; NULL when not given */
	FC_FIELD_TEXTS,       /* struct fc_texts: a list; at most max of them */
	FC_FIELD_LIST,        /* struct fc_list: structs by the table `sub`; at most max of them */
	FC_FIELD_REASONS,     /* uint64_t: bit of each reason named in a list (err.h), low 64 */
	FC_FIELD_TYPE_FORCE_INT_ = INT32_MAX
};

struct fc_rate {
	uint64_t n;
	uint64_t per_ns;
};

struct fc_texts {
	const char *const *text;
	uint64_t n;
};

struct fc_list {
	const void *items;
	uint64_t n;
};

#define FC_FIELD_REQUIRED (1u << 0) /* no default: it must be given */

struct fc_field {
	const char *name;
	uint32_t type;   /* enum fc_field_type */
	uint32_t offset; /* of the member in conf */
	uint64_t min, max;
	uint64_t def;    /* default; of RATE: n per second */
	uint32_t flags;  /* FC_FIELD_REQUIRED */
	uint32_t n_choices;
	const char *const *choices;
	const struct fc_field *sub; /* LIST: of one item */
	uint32_t n_sub, item_bytes;
	const char *help; /* one line: what it does */
};

#ifdef __cplusplus
}
#endif
#endif /* FC_FIELD_H */
