/* SPDX-License-Identifier: BSD-2-Clause */
/* memory.c - a context's allocator, log and arena, and what becomes of a fault. See context.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "entry.h"

#define LOG_LINE 1024

static size_t whole_lines(size_t bytes)
{
	return (bytes + FCI_CACHELINE - 1) & ~(size_t)(FCI_CACHELINE - 1);
}

/* The program's allocator need not know alignment: room for it, and its pointer in front. */
void *fci_alloc(struct fc *fc, size_t bytes)
{
	size_t all = whole_lines(bytes) + FCI_ALLOC_MORE;
	char *raw = fc->alloc.alloc(fc->alloc.arg, all), *p;

	if (!raw)
		return NULL;
	p = (char *)(((uintptr_t)raw + FCI_ALLOC_MORE - 1) & ~(uintptr_t)(FCI_CACHELINE - 1));
	((char **)(void *)p)[-1] = raw;
	return memset(p, 0, bytes);
}

void fci_free(struct fc *fc, void *ptr, size_t bytes)
{
	if (ptr)
		fc->alloc.free(fc->alloc.arg, ((char **)ptr)[-1], whole_lines(bytes) + FCI_ALLOC_MORE);
}

void fci_log(struct fc *fc, int level, const char *format, ...)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	char line[LOG_LINE];
	va_list ap;

	if (!fc->log && !(fc->flags & FC_LOG_STDERR))
		return;
	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	if (fc->log)
		fc->log(fc->log_arg, level, line);
	else
		fprintf(stderr, "fcguard: %s: %s\n", names[level & 3], line);
}

uint64_t fci_arena_take(struct fc *fc, uint64_t bytes)
{
	uint64_t want = whole_lines(bytes);
	/* N1: re-checked by the CAS; fresh pages are zero. Fails only when another took some. */
	uint64_t used = atomic_load_explicit(&fc->head->arena_used, FCI_RLX);

	do {
		if (used > fc->geo.bytes || want > fc->geo.bytes - used)
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(&fc->head->arena_used, &used, used + want, FCI_RLX, FCI_RLX));
	return used;
}

/* As who takes it next expects it; whole pages go back to the kernel, most have never been written. */
static void clear(char *from, uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), head = -(uint64_t)(uintptr_t)from & (page - 1), pages;

	head = head < bytes ? head : bytes;
	pages = (bytes - head) & ~(page - 1);
	memset(from, 0, head);
	if (pages && madvise(from + head, pages, MADV_DONTNEED) < 0)
		memset(from + head, 0, pages);
	memset(from + head + pages, 0, bytes - head - pages);
}

void fci_arena_give(struct fc *fc, uint64_t at, uint64_t bytes)
{
	uint64_t used = at + bytes;

	if (bytes == 0 || fci_arena_used(fc) != used)
		return;
	clear(fc->seg + at, bytes);
	/* N1: fails when another took some behind it just now. */
	atomic_compare_exchange_strong_explicit(&fc->head->arena_used, &used, at, FCI_RLX, FCI_RLX);
}

uint64_t fci_arena_used(const struct fc *fc)
{
	/* N2: a statistic. */
	return atomic_load_explicit(&fc->head->arena_used, FCI_RLX);
}

int fci_fault(struct fc_iface *f, int error)
{
	uint32_t policy = f->fc->on_fault;

	/* N3: a statistic, and a setting. */
	atomic_fetch_add_explicit(&f->fc->faults, 1, FCI_RLX);
	if (!f->pass_through) {
		policy = atomic_load_explicit(&f->block->config.on_fault, FCI_RLX);
		fc_event_note(f, FC_EVENT_FAULT, (uint64_t)(int64_t)error, 0);
	}
	return policy == FC_FAIL_CLOSED ? FC_REFUSED_FAULT : 0;
}
