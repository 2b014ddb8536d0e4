/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hash.h - the hash of labels: SipHash-2-4 of Aumasson and Bernstein (2012), under a key that is the
 * same everywhere, so that all processes and machines give a label the same number. To find a text
 * with the number of another one takes 2^64 tries: nobody can use up another one's share by his name.
 */
#ifndef FCI_HASH_H
#define FCI_HASH_H

#include <stdint.h>
#include <string.h>

static inline uint64_t fci_rotate(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

static inline void fci_sip_round(uint64_t *v)
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = fci_rotate(v[1], 13) ^ v[0];
	v[3] = fci_rotate(v[3], 16) ^ v[2];
	v[0] = fci_rotate(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = fci_rotate(v[1], 17) ^ v[2];
	v[3] = fci_rotate(v[3], 21) ^ v[0];
	v[2] = fci_rotate(v[2], 32);
}

static inline void fci_sip_word(uint64_t *v, uint64_t m)
{
	v[3] ^= m;
	fci_sip_round(v);
	fci_sip_round(v);
	v[0] ^= m;
}

/* Up to 8 bytes, the first lowest. */
static inline uint64_t fci_sip_bytes(const unsigned char *p, size_t n)
{
	uint64_t m = 0;

	for (size_t i = 0; i < n; i++)
		m |= (uint64_t)p[i] << (8 * i);
	return m;
}

static inline uint64_t fci_siphash(const uint64_t key[2], const void *data, size_t n)
{
	const unsigned char *p = data;
	uint64_t v[4] = { key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull,
		          key[0] ^ 0x6c7967656e657261ull, key[1] ^ 0x7465646279746573ull };

	for (size_t i = 0; i + 8 <= n; i += 8)
		fci_sip_word(v, fci_sip_bytes(p + i, 8));
	fci_sip_word(v, fci_sip_bytes(p + n / 8 * 8, n % 8) | (uint64_t)n << 56);
	v[2] ^= 0xff;
	for (int i = 0; i < 4; i++)
		fci_sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif /* FCI_HASH_H */
