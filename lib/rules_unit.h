/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_unit.h - units of rules files, for reading (rules_value.c) and for showing (rules_show.c). */
#ifndef FCI_RULES_UNIT_H
#define FCI_RULES_UNIT_H

#include "rules.h"

struct fci_unit {
	const char *name;
	uint64_t value;
};

struct fci_units {
	const struct fci_unit *u; /* the largest first */
	size_t n;                 /* 0: numbers without a unit */
	const char *kind, *example;
};

struct fci_units fci_units_of(uint32_t type); /* enum fc_field_type */

static inline int fci_field_wide(uint32_t type)
{
	return type == FC_FIELD_COUNT64 || type == FC_FIELD_DURATION || type == FC_FIELD_BYTES;
}

static inline uint64_t fci_field_unlimited(const struct fc_field *f)
{
	return f->type == FC_FIELD_COUNT32 ? UINT32_MAX : UINT64_MAX;
}

/* Reasons as a file writes them: "cap" of FC_REFUSED_CAP. NULL: there is no such reason. */
const char *fci_reason_name(uint32_t number, char *buf, size_t len);

#endif /* FCI_RULES_UNIT_H */
