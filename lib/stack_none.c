/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions of stack.h and symbol.h for a build without libdw. A dump then shows the guarded
 * function alone, from the anchor, and addresses are told as module+offset for addr2line.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stack.h"
#include "symbol.h"
#include "taskinfo.h"

struct fci_unwinder {
	char unused;
};

struct fci_symboliser {
	char unused;
};

int fci_unwinder_create(struct fci_unwinder **ret)
{
	struct fci_unwinder *u = calloc(1, sizeof *u);

	if (!u)
		return -ENOMEM;
	*ret = u;
	return 0;
}

struct fci_unwinder *fci_unwinder_destroy(struct fci_unwinder *u)
{
	free(u);
	return NULL;
}

int fci_stack_capture(struct fci_unwinder *u, pid_t tid, const struct fci_anchor *anchor,
                      struct fci_stack *ret)
{
	struct fci_task_where where;
	int rc = fci_task_where(tid, &where);

	(void)u;
	memset(ret, 0, offsetof(struct fci_stack, frames));
	ret->tid = tid;
	ret->status = FCI_STACK_NONE;
	if (rc == -EINVAL || rc == -ESRCH) {
		snprintf(ret->text, sizeof ret->text, "stack not available: %s",
		         fci_task_error_text(rc));
		return rc;
	}
	if (anchor && anchor->pc) {
		ret->frames[0].pc = anchor->pc;
		ret->frames[0].flags = FCI_FRAME_GUARD | FCI_FRAME_AT_ENTER;
		ret->nframes = 1;
	}
	snprintf(ret->text, sizeof ret->text, "stack not available: built without libdw");
	return -ENOSYS;
}

uint64_t fci_stack_hash(const struct fci_stack *stack)
{
	return stack->nframes ? stack->frames[0].pc * UINT64_C(0x9e3779b97f4a7c15) : 0;
}

int fci_symboliser_create(struct fci_symboliser **ret)
{
	struct fci_symboliser *sym = calloc(1, sizeof *sym);

	if (!sym)
		return -ENOMEM;
	*ret = sym;
	return 0;
}

struct fci_symboliser *fci_symboliser_destroy(struct fci_symboliser *sym)
{
	free(sym);
	return NULL;
}

/* Every answer is at hand at once, so there is nothing to want and to wait for. */
int fci_symbol_want(struct fci_symboliser *sym, uint64_t address)
{
	(void)sym, (void)address;
	return 0;
}

int fci_symbol_want_stack(struct fci_symboliser *sym, const struct fci_stack *stack)
{
	(void)sym, (void)stack;
	return 0;
}

unsigned fci_symbol_step(struct fci_symboliser *sym)
{
	(void)sym;
	return 0;
}

static int find_module(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct fci_symbol *symbol = arg;
	uint64_t offset = symbol->address - info->dlpi_addr;
	const char *name = info->dlpi_name;
	ssize_t n;

	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type != PT_LOAD || offset < segment->p_vaddr ||
		    offset - segment->p_vaddr >= segment->p_memsz)
			continue;
		symbol->offset = offset;
		if (name && name[0]) {
			size_t length = strlen(name), room = sizeof symbol->module - 1;

			snprintf(symbol->module, sizeof symbol->module, "%s",
			         length > room ? name + (length - room) : name);
			return 1;
		}
		n = readlink("/proc/self/exe", symbol->module, sizeof symbol->module - 1);
		symbol->module[n > 0 ? n : 0] = '\0';
		return 1;
	}
	return 0;
}

void fci_symbol_resolve(const uint64_t *addresses, size_t n, struct fci_symbol *ret)
{
	for (size_t i = 0; i < n; i++) {
		memset(&ret[i], 0, sizeof ret[i]);
		ret[i].address = addresses[i];
		dl_iterate_phdr(find_module, &ret[i]);
	}
}

int fci_symbol_get(struct fci_symboliser *sym, uint64_t address, struct fci_symbol *ret)
{
	(void)sym;
	fci_symbol_resolve(&address, 1, ret);
	return 0;
}

size_t fci_symbol_format(const struct fci_symbol *symbol, char *buf, size_t buf_bytes)
{
	const char *base = strrchr(symbol->module, '/');
	int n;

	if (!buf_bytes)
		return 0;
	if (symbol->module[0])
		n = snprintf(buf, buf_bytes, "? (%s+0x%llx)", base ? base + 1 : symbol->module,
		             (unsigned long long)symbol->offset);
	else
		n = snprintf(buf, buf_bytes, "? (0x%llx)", (unsigned long long)symbol->address);
	return n < 0 ? 0 : (size_t)n < buf_bytes ? (size_t)n : buf_bytes - 1;
}

bool fci_symbol_available(void)
{
	return false;
}
