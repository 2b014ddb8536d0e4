/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * access_net.c - addresses and networks: ranges in order. See access.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "access_index.h"

__extension__ typedef unsigned __int128 wide;

static uint32_t find_range(const struct ranges *r, uint64_t hi, uint64_t lo)
{
	uint64_t step;
	uint32_t left, right;

	if (r->n == 0 || hi < r->min)
		return r->n ? r->verdict[0] : NO_VERDICT;
	step = (hi - r->min) >> r->shift;
	step = step < STEPS ? step : STEPS - 1;
	left = r->step[step] - 1;
	right = step < STEPS - 1 ? r->step[step + 1] : r->n;
	while (right - left > 1) {
		uint32_t m = left + (right - left) / 2;

		if (r->hi[m] < hi || (r->hi[m] == hi && (!r->lo || r->lo[m] <= lo)))
			left = m;
		else
			right = m;
	}
	return r->verdict[left];
}

static int is_mapped(uint64_t hi, uint64_t lo)
{
	return hi == 0 && lo >> 32 == 0xffff;
}

uint32_t fci_access_address(const struct index *x, const uint64_t *ip)
{
	return is_mapped(ip[0], ip[1]) ? find_range(&x->v4, ip[1] << 32, 0) : find_range(&x->v6, ip[0], ip[1]);
}

/* ---- reading entries --------------------------------------------------------------------------- */

/* 32 or 128: how long addresses like this are; 0: it is none. IPv4 in the upper half of hi. */
static uint32_t read_address(const char *text, struct network *n)
{
	struct fc_label l = fc_label_ip("", text);

	if (l.value == fc_label("", text).value)
		return 0; /* a text like another */
	n->hi = strchr(text, ':') ? l.ip[0] : l.ip[1] << 32;
	n->lo = strchr(text, ':') ? l.ip[1] : 0;
	return strchr(text, ':') ? 128 : 32;
}

/* Digits alone, at most `most`. -1: it is no such number. */
static int read_length(const char *text, uint32_t most)
{
	uint32_t n = 0, i;

	for (i = 0; i < 3 && text[i] >= '0' && text[i] <= '9'; i++)
		n = n * 10 + (uint32_t)(text[i] - '0');
	return i == 0 || text[i] || n > most ? -1 : (int)n;
}

static wide bits_of(const struct network *n)
{
	return (wide)n->hi << 64 | n->lo;
}

/* All ones after the network's bits. */
static wide host_bits(uint32_t length)
{
	return length ? ((wide)1 << (128 - length)) - 1 : ~(wide)0;
}

static void add_v6(struct build *b, struct network n)
{
	if (n.length >= 96 && is_mapped(n.hi, n.lo)) {
		n.hi = n.lo << 32;
		n.lo = 0;
		n.length -= 96;
		b->net[b->n4++] = n;
	} else {
		b->net[b->room - ++b->n6] = n;
	}
}

int fci_access_add_network(struct build *b, const char *text, const char *slash, uint32_t entry)
{
	char address[64];
	struct network n = { .entry = entry };
	size_t bytes = slash ? (size_t)(slash - text) : strlen(text);
	uint32_t most;
	int length;

	if (bytes >= sizeof(address))
		return 0;
	memcpy(address, text, bytes);
	address[bytes] = 0;
	most = read_address(address, &n);
	if (most == 0)
		return 0;
	length = slash ? read_length(slash + 1, most) : (int)most;
	if (length < 0)
		return fci_access_bad(b, entry, "no such network",
		                      most == 32 ? "a length of 0 to 32" : "a length of 0 to 128");
	n.length = (uint32_t)length;
	if (bits_of(&n) & host_bits(n.length) & (most == 32 ? ~(((wide)1 << 96) - 1) : ~(wide)0))
		return fci_access_bad(b, entry, "bits beyond its length are set", "addresses of networks end in zeros");
	if (most == 32)
		b->net[b->n4++] = n;
	else
		add_v6(b, n);
	return 1;
}

/* ---- networks into ranges ---------------------------------------------------------------------- */

static int by_start(const void *l, const void *r)
{
	const struct network *a = l, *b = r;

	if (a->hi != b->hi)
		return a->hi < b->hi ? -1 : 1;
	if (a->lo != b->lo)
		return a->lo < b->lo ? -1 : 1;
	if (a->length != b->length)
		return a->length < b->length ? -1 : 1;
	return a->entry < b->entry ? -1 : 1; /* both are shown when they are the same */
}

static void emit(struct ranges *r, wide start, uint32_t verdict)
{
	uint32_t i = r->n;

	if (i && r->hi[i - 1] == (uint64_t)(start >> 64) && (!r->lo || r->lo[i - 1] == (uint64_t)start))
		i--; /* of no length */
	if (i && r->verdict[i - 1] == verdict) {
		r->n = i;
		return;
	}
	r->hi[i] = (uint64_t)(start >> 64);
	if (r->lo)
		r->lo[i] = (uint64_t)start;
	r->verdict[i] = (uint8_t)verdict;
	r->n = i + 1;
}

static wide end_of(const struct network *n)
{
	return bits_of(n) | host_bits(n->length);
}

/* Networks either contain one another or have nothing in common: so those around a place are a stack. */
static void flatten(struct ranges *r, const struct network *net, uint64_t n)
{
	const struct network *stack[130];
	uint32_t depth = 0;

	emit(r, 0, NO_VERDICT);
	for (uint64_t i = 0; i <= n; i++) {
		while (depth && (i == n || end_of(stack[depth - 1]) < bits_of(&net[i]))) {
			wide next = end_of(stack[--depth]) + 1;

			if (next)
				emit(r, next, depth ? stack[depth - 1]->entry & 1 : NO_VERDICT);
		}
		if (i < n) {
			emit(r, bits_of(&net[i]), net[i].entry & 1);
			stack[depth++] = &net[i];
		}
	}
}

static void make_steps(struct ranges *r)
{
	uint32_t k = 0;

	r->min = r->n > 1 ? r->hi[1] : 0;
	while (r->n > 1 && (r->hi[r->n - 1] - r->min) >> r->shift >= STEPS)
		r->shift++;
	for (uint32_t i = 1; i < r->n; i++) {
		uint64_t step = (r->hi[i] - r->min) >> r->shift;

		while (k <= step)
			r->step[k++] = i;
	}
	while (k < STEPS)
		r->step[k++] = r->n;
}

int fci_access_make_ranges(struct build *b, struct ranges *r, struct network *net, uint64_t n, int wide_ones)
{
	struct fc_iface *f = b->s->iface;

	if (n == 0)
		return 0;
	qsort(net, n, sizeof(*net), by_start);
	for (uint64_t i = 1; i < n; i++)
		if (net[i].hi == net[i - 1].hi && net[i].lo == net[i - 1].lo && net[i].length == net[i - 1].length)
			return fci_access_twice(b, net[i - 1].entry, net[i].entry);
	r->room = 2 * n + 1;
	r->hi = fc_iface_alloc(f, r->room * 8);
	r->lo = wide_ones ? fc_iface_alloc(f, r->room * 8) : NULL;
	r->verdict = fc_iface_alloc(f, r->room);
	r->step = fc_iface_alloc(f, STEPS * sizeof(*r->step));
	if (!r->hi || (wide_ones && !r->lo) || !r->verdict || !r->step)
		return -ENOMEM;
	flatten(r, net, n);
	make_steps(r);
	return 0;
}

void fci_access_free_ranges(struct fc_iface *f, struct ranges *r)
{
	fc_iface_free(f, r->hi, r->room * 8);
	fc_iface_free(f, r->lo, r->room * 8);
	fc_iface_free(f, r->verdict, r->room);
	fc_iface_free(f, r->step, STEPS * sizeof(*r->step));
}
