/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * vdso.c - the kernel's clock_gettime() without libc's wrapper around it, which takes as long as the
 * reading itself: half of what a refused call costs. Where the kernel's page cannot be read as we
 * know it (valgrind, emulators, other machines), libc's function stands in.
 */
#include <elf.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>

#include "clock.h"

#if defined(__x86_64__)
#define NAME "__vdso_clock_gettime"
#elif defined(__aarch64__)
#define NAME "__kernel_clock_gettime"
#endif

fci_gettime_fn fci_gettime = clock_gettime;

#if defined(NAME) && defined(__LP64__)

/* How far the page's addresses are from those in its headers; what its dynamic section tells. */
struct image {
	uintptr_t shift;
	const Elf64_Sym *symbols;
	const char *names;
	const uint32_t *hash, *gnu_hash;
};

static const void *at(const struct image *m, uint64_t addr)
{
	return (const void *)(uintptr_t)(addr + m->shift);
}

static void read_dynamic(struct image *m, const Elf64_Dyn *d)
{
	for (; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			m->symbols = at(m, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			m->names = at(m, d->d_un.d_ptr);
		else if (d->d_tag == DT_HASH)
			m->hash = at(m, d->d_un.d_ptr);
		else if (d->d_tag == DT_GNU_HASH)
			m->gnu_hash = at(m, d->d_un.d_ptr);
	}
}

static void read_headers(struct image *m, const Elf64_Ehdr *ehdr)
{
	const Elf64_Phdr *p = (const void *)((const char *)ehdr + ehdr->e_phoff);
	const Elf64_Dyn *dynamic = NULL;
	int loaded = 0;

	for (uint32_t i = 0; i < ehdr->e_phnum; i++) {
		if (p[i].p_type == PT_LOAD && !loaded++)
			m->shift = (uintptr_t)ehdr + p[i].p_offset - p[i].p_vaddr;
		else if (p[i].p_type == PT_DYNAMIC)
			dynamic = (const void *)((const char *)ehdr + p[i].p_offset);
	}
	if (loaded && dynamic)
		read_dynamic(m, dynamic);
}

/* Number of symbols: newer kernels have the second kind of table alone, where the last symbol is the
 * one that ends the chain of the highest bucket. */
static uint32_t count_symbols(const struct image *m)
{
	const uint32_t *h = m->gnu_hash, *buckets, *chains;
	uint32_t last = 0;

	if (m->hash)
		return m->hash[1];
	if (!h)
		return 0;
	buckets = h + 4 + h[2] * (sizeof(uint64_t) / sizeof(uint32_t));
	chains = buckets + h[0];
	for (uint32_t i = 0; i < h[0]; i++)
		if (buckets[i] > last)
			last = buckets[i];
	if (last < h[1])
		return 0;
	while (!(chains[last - h[1]] & 1))
		last++;
	return last + 1;
}

static fci_gettime_fn find(const Elf64_Ehdr *ehdr)
{
	struct image m = { 0 };
	uint32_t n;

	if (!ehdr || memcmp(ehdr->e_ident, ELFMAG, SELFMAG) != 0 || ehdr->e_ident[EI_CLASS] != ELFCLASS64)
		return NULL;
	read_headers(&m, ehdr);
	n = m.symbols && m.names ? count_symbols(&m) : 0;
	for (uint32_t i = 0; i < n; i++)
		if (m.symbols[i].st_shndx != SHN_UNDEF && ELF64_ST_TYPE(m.symbols[i].st_info) == STT_FUNC &&
		    strcmp(m.names + m.symbols[i].st_name, NAME) == 0)
			return (fci_gettime_fn)(uintptr_t)at(&m, m.symbols[i].st_value);
	return NULL;
}

/* At load, before anybody can read a clock. */
__attribute__((__constructor__)) static void fci_gettime_init(void)
{
	fci_gettime_fn fn = find((const Elf64_Ehdr *)getauxval(AT_SYSINFO_EHDR));
	struct timespec t;

	if (fn && fn(CLOCK_MONOTONIC, &t) == 0)
		fci_gettime = fn;
}

#endif
