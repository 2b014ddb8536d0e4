/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measured as in stack.c: a batch takes 50 ms when it meets libc with its debug file installed
 * (42 ms of it are that one file's first line: its compressed sections are inflated whole, in one
 * call of libdw), 0.3 ms when it does not; each further frame 60 us. Under load the helper's low
 * priority makes it 50-300 ms. Memory while it runs: 12 MiB with libc's debug file.
 *
 * dladdr is not the fallback for stripped modules: it takes the loader's dlopen lock, which the
 * stuck thread may hold. libdw reads the same dynamic symbols from the file.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "symbol.h"

#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack.h"

#define BATCH              64u
#define PROBES             16u
/* Virtual only. libdw keeps up to 4096 lines of a table on the stack: 1 MiB was measured used. */
#define HELPER_STACK_BYTES (4096u * 1024u)
#define HELPER_NICE        10

/* ---- the modules ---- */

/* libdw opens files that exec would inherit; close that door. */
static int cloexec(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

static int find_elf(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
                    char **file_name, Elf **elf)
{
	return cloexec(dwfl_linux_proc_find_elf(module, userdata, name, base, file_name, elf));
}

/* By build id and on this disk: the standard search would also ask servers. */
static int find_debug_info(Dwfl_Module *module, void **userdata, const char *name,
                           Dwarf_Addr base, const char *file_name, const char *debuglink,
                           GElf_Word crc, char **debug_file_name)
{
	return cloexec(dwfl_build_id_find_debuginfo(module, userdata, name, base, file_name,
	                                            debuglink, crc, debug_file_name));
}

static int find_no_debug_info(Dwfl_Module *module, void **userdata, const char *name,
                              Dwarf_Addr base, const char *file_name, const char *debuglink,
                              GElf_Word crc, char **debug_file_name)
{
	(void)module, (void)userdata, (void)name, (void)base;
	(void)file_name, (void)debuglink, (void)crc, (void)debug_file_name;
	return -1;
}

/* After setuid the kernel hides one file this wants, and the list of mappings must do. */
static int report(Dwfl *dwfl)
{
	FILE *maps;
	int rc = dwfl_linux_proc_report(dwfl, getpid());

	if (!rc)
		return 0;
	maps = fopen("/proc/self/maps", "re");
	if (!maps)
		return -1;
	rc = dwfl_linux_proc_maps_report(dwfl, maps);
	fclose(maps);
	return rc;
}

void *fci_modules_open(bool debug_info)
{
	static const Dwfl_Callbacks with = { .find_elf = find_elf,
	                                     .find_debuginfo = find_debug_info };
	static const Dwfl_Callbacks without = { .find_elf = find_elf,
	                                        .find_debuginfo = find_no_debug_info };
	Dwfl *dwfl = dwfl_begin(debug_info ? &with : &without);

	if (!dwfl)
		return NULL;
	if (report(dwfl) || dwfl_report_end(dwfl, NULL, NULL)) {
		dwfl_end(dwfl);
		return NULL;
	}
	return dwfl;
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	*(unsigned long long *)arg = info->dlpi_adds + info->dlpi_subs;
	return 1;
}

unsigned long long fci_modules_loads(void)
{
	unsigned long long loads = 0;

	dl_iterate_phdr(count_loads, &loads);
	return loads;
}

/* ---- one lookup ---- */

/* Copy the end of a path, which tells more than its beginning. */
static void copy_tail(char *to, size_t to_bytes, const char *from)
{
	size_t length = strlen(from);

	if (length >= to_bytes)
		from += length - (to_bytes - 1);
	snprintf(to, to_bytes, "%s", from);
}

/*
 * The line by the index of addresses, or, since some compilers write no index (clang), by asking
 * each compilation unit in turn.
 */
static void look_up_line(Dwfl_Module *module, uint64_t address, struct fci_symbol *ret)
{
	Dwfl_Line *indexed = dwfl_module_getsrc(module, address);
	const char *file = NULL;
	Dwarf_Addr bias = 0;
	Dwarf_Die *unit = NULL;
	int line = 0;

	if (indexed)
		file = dwfl_lineinfo(indexed, NULL, &line, NULL, NULL, NULL);
	while (!file && (unit = dwfl_module_nextcu(module, unit, &bias)) != NULL) {
		Dwarf_Line *row = dwarf_haspc(unit, address - bias) > 0
		                  ? dwarf_getsrc_die(unit, address - bias) : NULL;

		if (row && !dwarf_lineno(row, &line))
			file = dwarf_linesrc(row, NULL, NULL);
	}
	if (!file)
		return;
	copy_tail(ret->file, sizeof ret->file, file);
	ret->line = line > 0 ? (uint32_t)line : 0;
}

/* The module and the offset in it; NULL: in none. */
static Dwfl_Module *look_up_module(Dwfl *dwfl, uint64_t address, struct fci_symbol *ret)
{
	Dwfl_Module *module = dwfl ? dwfl_addrmodule(dwfl, address) : NULL;
	Dwarf_Addr start = 0;
	GElf_Addr bias;
	const char *name;

	memset(ret, 0, sizeof *ret);
	ret->address = address;
	if (!module)
		return NULL;
	name = dwfl_module_info(module, NULL, &start, NULL, NULL, NULL, NULL, NULL);
	copy_tail(ret->module, sizeof ret->module, name ? name : "?");
	ret->offset = address - (dwfl_module_getelf(module, &bias) ? bias : start);
	return module;
}

static void look_up(Dwfl *dwfl, uint64_t address, struct fci_symbol *ret)
{
	Dwfl_Module *module = look_up_module(dwfl, address, ret);
	const char *name;
	GElf_Off offset;
	GElf_Sym sym;

	if (!module)
		return;
	name = dwfl_module_addrinfo(module, address, &offset, &sym, NULL, NULL, NULL);
	if (name)
		snprintf(ret->function, sizeof ret->function, "%s", name);
	look_up_line(module, address, ret);
}

void fci_symbol_resolve(const uint64_t *addresses, size_t n, struct fci_symbol *ret)
{
	Dwfl *dwfl = fci_modules_open(true);

	for (size_t i = 0; i < n; i++)
		look_up(dwfl, addresses[i], &ret[i]);
	if (dwfl)
		dwfl_end(dwfl);
}

/* ---- the table and the helper ---- */

enum slot_state { SLOT_EMPTY, SLOT_WANTED, SLOT_UNDER_WAY, SLOT_KNOWN };

struct slot {
	enum slot_state state;
	unsigned long long loads; /* fci_modules_loads when it was asked for */
	struct fci_symbol symbol;
};

/*
 * The batch belongs to the helper while it runs and to the owner before and after. Creation and
 * join of the thread are what orders the two: there is nothing else they share.
 */
struct fci_symboliser {
	pid_t owner;              /* process the helper runs in */
	bool helping;
	pthread_t helper;
	unsigned nopen;           /* slots WANTED or UNDER_WAY */
	unsigned nbatch;
	uint64_t addresses[BATCH];
	struct fci_symbol answers[BATCH];
	struct slot slots[FCI_SYMBOL_CACHE];
};

int fci_symboliser_create(struct fci_symboliser **ret)
{
	struct fci_symboliser *sym = calloc(1, sizeof *sym);

	if (!sym)
		return -ENOMEM;
	sym->owner = getpid();
	*ret = sym;
	return 0;
}

struct fci_symboliser *fci_symboliser_destroy(struct fci_symboliser *sym)
{
	if (sym && sym->helping && sym->owner == getpid())
		pthread_join(sym->helper, NULL);
	free(sym);
	return NULL;
}

/* The nth place where the slot of an address may be. */
static struct slot *probe(struct fci_symboliser *sym, uint64_t address, unsigned nth)
{
	uint64_t hash = address * UINT64_C(0x9e3779b97f4a7c15) >> 40;

	return &sym->slots[(hash + nth) % FCI_SYMBOL_CACHE];
}

static struct slot *slot_of(struct fci_symboliser *sym, uint64_t address)
{
	for (unsigned i = 0; i < PROBES; i++) {
		struct slot *slot = probe(sym, address, i);

		if (slot->state != SLOT_EMPTY && slot->symbol.address == address)
			return slot;
	}
	return NULL;
}

/* An empty slot, else one whose answer is given up. */
static struct slot *free_slot(struct fci_symboliser *sym, uint64_t address)
{
	struct slot *known = NULL;

	for (unsigned i = 0; i < PROBES; i++) {
		struct slot *slot = probe(sym, address, i);

		if (slot->state == SLOT_EMPTY)
			return slot;
		if (slot->state == SLOT_KNOWN && !known)
			known = slot;
	}
	return known;
}

int fci_symbol_want(struct fci_symboliser *sym, uint64_t address)
{
	unsigned long long loads = fci_modules_loads();
	struct slot *slot = slot_of(sym, address);

	/* The address may mean another function since modules came and went. */
	if (slot && (slot->state != SLOT_KNOWN || slot->loads == loads))
		return 0;
	if (!slot)
		slot = free_slot(sym, address);
	if (!slot)
		return -EAGAIN;
	slot->state = SLOT_WANTED;
	slot->symbol.address = address;
	slot->loads = loads;
	sym->nopen++;
	return 0;
}

int fci_symbol_want_stack(struct fci_symboliser *sym, const struct fci_stack *stack)
{
	int rc = 0;

	for (uint32_t i = 0; i < stack->nframes; i++)
		if (fci_symbol_want(sym, fci_frame_address(&stack->frames[i])))
			rc = -EAGAIN;
	return rc;
}

static void *help(void *arg)
{
	struct fci_symboliser *sym = arg;

	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), HELPER_NICE);
	fci_symbol_resolve(sym->addresses, sym->nbatch, sym->answers);
	return NULL;
}

static int start_helper(struct fci_symboliser *sym)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int rc;

	if (pthread_attr_init(&attr))
		return -ENOMEM;
	pthread_attr_setstacksize(&attr, HELPER_STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&sym->helper, &attr, help, sym);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -rc;
}

static void collect(struct fci_symboliser *sym)
{
	for (unsigned i = 0; i < sym->nbatch; i++) {
		struct slot *slot = slot_of(sym, sym->addresses[i]);

		if (!slot || slot->state != SLOT_UNDER_WAY)
			continue;
		slot->symbol = sym->answers[i];
		slot->state = SLOT_KNOWN;
		sym->nopen--;
	}
	sym->nbatch = 0;
}

/* Without a thread: what a walk over the modules tells at once. */
static void answer_without_helper(struct fci_symboliser *sym)
{
	Dwfl *dwfl = fci_modules_open(false);

	for (unsigned i = 0; i < sym->nbatch; i++)
		look_up_module(dwfl, sym->addresses[i], &sym->answers[i]);
	if (dwfl)
		dwfl_end(dwfl);
	collect(sym);
}

unsigned fci_symbol_step(struct fci_symboliser *sym)
{
	if (sym->owner != getpid()) { /* forked: the helper stayed with the parent */
		sym->owner = getpid();
		sym->helping = false;
		for (unsigned i = 0; i < FCI_SYMBOL_CACHE; i++)
			if (sym->slots[i].state == SLOT_UNDER_WAY)
				sym->slots[i].state = SLOT_WANTED;
	}
	if (sym->helping) {
		if (pthread_tryjoin_np(sym->helper, NULL))
			return sym->nopen;
		sym->helping = false;
		collect(sym);
	}
	if (!sym->nopen)
		return 0;
	sym->nbatch = 0;
	for (unsigned i = 0; i < FCI_SYMBOL_CACHE && sym->nbatch < BATCH; i++) {
		if (sym->slots[i].state != SLOT_WANTED)
			continue;
		sym->slots[i].state = SLOT_UNDER_WAY;
		sym->addresses[sym->nbatch++] = sym->slots[i].symbol.address;
	}
	sym->helping = start_helper(sym) == 0;
	if (!sym->helping)
		answer_without_helper(sym);
	return sym->nopen;
}

int fci_symbol_get(struct fci_symboliser *sym, uint64_t address, struct fci_symbol *ret)
{
	struct slot *slot = slot_of(sym, address);

	if (!slot)
		return -ENOENT;
	if (slot->state != SLOT_KNOWN)
		return -EAGAIN;
	*ret = slot->symbol;
	return 0;
}

size_t fci_symbol_format(const struct fci_symbol *symbol, char *buf, size_t buf_bytes)
{
	const char *base = strrchr(symbol->module, '/');
	char line[160] = "", module[170] = "";
	int n;

	if (!buf_bytes)
		return 0;
	if (symbol->file[0])
		snprintf(line, sizeof line, " at %s:%u", symbol->file, symbol->line);
	if (symbol->module[0])
		snprintf(module, sizeof module, " (%s+0x%llx)", base ? base + 1 : symbol->module,
		         (unsigned long long)symbol->offset);
	else
		snprintf(module, sizeof module, " (0x%llx)", (unsigned long long)symbol->address);
	n = snprintf(buf, buf_bytes, "%s%s%s", symbol->function[0] ? symbol->function : "?", line,
	             module);
	return n < 0 ? 0 : (size_t)n < buf_bytes ? (size_t)n : buf_bytes - 1;
}

bool fci_symbol_available(void)
{
	return true;
}
