/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * symbol.h - program counters to function, file:line and module+offset.
 *
 * Opening a module's debug information is one step of libdw that cannot be cut: 40-100 ms for
 * libc, whose debug sections must be decompressed whole. Housekeeping must not stop for that.
 * So the work is done by a helper thread that exists only while there is something to look up:
 * fci_symbol_step starts it when lookups are wanted, collects the answers and joins it when it
 * is done, and never waits. The helper has all signals blocked, a lower priority than the
 * server's threads, and closes everything it opened, so that between dumps there is no thread,
 * no open file, and no memory but the answers. If no thread can be made, the answer is
 * module+offset.
 *
 * The answers stay in a table of FCI_SYMBOL_CACHE entries until a module is unloaded.
 *
 * Threads.  A symboliser belongs to one thread at a time. fci_symbol_resolve may be called on
 *           any thread without one.
 * Signals.  Not async-signal-safe.
 * Fork.     The child may go on with it; lookups under way are started again there.
 * Errors.   0 or a negative errno.
 * Memory.   380 KiB of table per symboliser; the helper takes up to some tens of MiB (the debug
 *           information of the modules met) and 4 MiB of address space, and gives them back.
 * Cost.     fci_symbol_want and _get 0.05 us; fci_symbol_step 0.1 us, 50-100 us when it starts
 *           the helper. See symbol.c for the helper's.
 * Network.  Debug information is looked for on local disk alone, by build id; no server of
 *           debug files is ever asked, whatever the environment says.
 */
#ifndef FCI_SYMBOL_H
#define FCI_SYMBOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FCI_SYMBOL_CACHE 1024u

struct fci_stack;

struct fci_symbol {
	uint64_t address;     /* as asked */
	uint64_t offset;      /* in the module's file, as `addr2line -e MODULE OFFSET` wants it */
	uint32_t line;        /* 0: unknown */
	uint32_t resv;
	char function[88];    /* "": unknown */
	char file[128];       /* "": unknown; of a long path the end */
	char module[128];     /* "": in no module; of a long path the end */
};

struct fci_symboliser; /* opaque */

/* Memory only. 0 or -ENOMEM. */
int fci_symboliser_create(struct fci_symboliser **ret);

/* Waits for a helper under way (at most one batch). NULL is fine. Returns NULL. */
struct fci_symboliser *fci_symboliser_destroy(struct fci_symboliser *sym);

/* Ask for an address (fci_frame_address). 0, or -EAGAIN: table full of lookups under way. */
int fci_symbol_want(struct fci_symboliser *sym, uint64_t address);

/* Ask for all frames of a stack. As above; asking again is harmless. */
int fci_symbol_want_stack(struct fci_symboliser *sym, const struct fci_stack *stack);

/* Go on. Never waits. Returns how many lookups are still open: 0 is done. */
unsigned fci_symbol_step(struct fci_symboliser *sym);

/* The answer: 0; -EAGAIN: not yet; -ENOENT: never asked for, or dropped since. */
int fci_symbol_get(struct fci_symboliser *sym, uint64_t address, struct fci_symbol *ret);

/*
 * Look up n addresses here and now, on the calling thread: for tools and for whoever may wait
 * 100 ms. libdw wants 2 MiB of stack. ret[i] is for addresses[i] and always filled as far as
 * possible.
 */
void fci_symbol_resolve(const uint64_t *addresses, size_t n, struct fci_symbol *ret);

/* `do_work at src/work.c:42 (server+0x12ab)`. Returns the length without the NUL; cut to fit. */
size_t fci_symbol_format(const struct fci_symbol *symbol, char *buf, size_t buf_bytes);

/* Whether function and line can be had at all: false when built without libdw. */
bool fci_symbol_available(void);

/* ---- the loaded modules, for stack.c ---- */

/*
 * libdw's view (a Dwfl) of what is loaded now, to be freed with dwfl_end; NULL when it cannot be
 * had. Without debug_info it never opens more than the modules themselves. Its files are not
 * passed on to exec'ed programs. Cost: 0.3 ms with ten modules.
 */
void *fci_modules_open(bool debug_info);

/* Changes with every dlopen and dlclose. Takes the loader's list lock, never its dlopen lock. */
unsigned long long fci_modules_loads(void);

#endif /* FCI_SYMBOL_H */
