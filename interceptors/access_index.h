/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * access_index.h - the index that setup() builds and calls look into, and what it is built by. access.c has
 * the entries, access_text.c values and beginnings, access_net.c addresses and networks.
 */
#ifndef FC_ACCESS_INDEX_H
#define FC_ACCESS_INDEX_H

#include <string.h>

#include <fcguard/access.h>

#define PREFIX_MAX 255u
#define STEPS      65536u
#define NO_VERDICT 2u

struct slot {
	uint64_t hash;
	uint32_t at;   /* text in `texts`; 0: the slot is empty */
	uint32_t what; /* length << 1 | verdict */
};

struct table {
	struct slot *slot;
	uint64_t mask, bytes;
};

/* Ranges, from each start to the next. The first starts at 0. */
struct ranges {
	uint64_t *hi, *lo; /* lo NULL: IPv4, in the upper half of hi */
	uint8_t *verdict;
	uint32_t *step;    /* first range that starts in this step or later */
	uint64_t min;
	uint32_t n, shift;
	uint64_t room;     /* of the arrays */
};

struct index {
	char *texts;
	uint64_t texts_bytes, texts_used;
	struct table values, prefixes;
	struct ranges v4, v6;
	uint32_t n_lengths;
	uint8_t length[PREFIX_MAX + 1]; /* of beginnings, ascending */
	uint8_t has_length[PREFIX_MAX + 1];
	uint8_t starts[256][32];        /* a bit each two bytes that begin a beginning */
	uint32_t any_start;             /* there are beginnings of less than 2 bytes */
};

struct network {
	uint64_t hi, lo;
	uint32_t length, entry; /* entry: index << 1 | verdict */
};

/* While it is built. */
struct build {
	const struct fc_setup *s;
	const struct fc_access_conf *conf;
	struct index *x;
	struct network *net; /* IPv4 from the front, IPv6 from the back */
	uint64_t room, n4, n6;
};

/* access.c. The line in the log; -EINVAL. */
int fci_access_bad(const struct build *b, uint32_t entry, const char *what, const char *allowed);
int fci_access_twice(const struct build *b, uint32_t first, uint32_t entry);

/* access_text.c. Verdicts of a value, and of the longest beginning that it has. A table has room for n. */
uint32_t fci_access_value(const struct index *x, const struct fc_label *l);
uint32_t fci_access_prefix(const struct index *x, const char *text);
int fci_access_make_table(struct fc_iface *f, struct table *t, uint64_t n);
int fci_access_add_text(struct build *b, struct table *t, uint64_t hash, const char *text, uint32_t length,
                        uint32_t entry);
int fci_access_add_prefix(struct build *b, const char *text, uint32_t length, uint32_t entry);

/* access_net.c. Verdict of an address. Add: 1: the text is a network or an address; 0: it is none. */
uint32_t fci_access_address(const struct index *x, const uint64_t *ip);
int fci_access_add_network(struct build *b, const char *text, const char *slash, uint32_t entry);
int fci_access_make_ranges(struct build *b, struct ranges *r, struct network *net, uint64_t n, int wide_ones);
void fci_access_free_ranges(struct fc_iface *f, struct ranges *r);

#endif /* FC_ACCESS_INDEX_H */
