/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * unwind.h - one step up a copied stack (unwind.c), and what machine code proves about a call
 * (unwind_code.c). For stack.c.
 *
 * Threads.  No state of its own; one Dwfl may be used by one thread at a time.
 * Units.    Addresses are those of the running process.
 * Errors.   enum fci_step. Memory is read from the copy alone, machine code through the kernel,
 *           so that nothing here can fault.
 * Memory.   libdw allocates and this frees one row per step.
 * Cost.     fci_unwind_step 1.5 us; fci_unwind_link 0.5 us; fci_unwind_prologue 1 us a row.
 */
#ifndef FCI_UNWIND_H
#define FCI_UNWIND_H

#include <elfutils/libdwfl.h>
#include <stdbool.h>
#include <stdint.h>

#include "taskinfo.h"

struct fci_regs {
	uint64_t pc, sp, fp, lr;
	bool has_fp, has_lr;
	bool exact; /* pc is not a return address: blocked here, or interrupted by a signal */
};

enum fci_step {
	FCI_STEP_OK,
	FCI_STEP_END,     /* the thread's first function: the regular end */
	FCI_STEP_NO_FP,   /* the frame pointer is needed and unknown */
	FCI_STEP_NO_LR,   /* the same of the link register (aarch64) */
	FCI_STEP_NO_CODE, /* pc is in no module, or has no call frame information */
	FCI_STEP_BAD,     /* addresses that no intact stack holds, or beyond the copy */
};

enum fci_link {
	FCI_LINK_NONE,     /* no call instruction before this return address */
	FCI_LINK_OTHER,    /* a call of another function */
	FCI_LINK_INDIRECT, /* a call through a pointer: cannot be told */
	FCI_LINK_PROVED,   /* a call of just this function, or of one that jumps to it */
};

/* What a step works on: the modules and the copied memory. */
struct fci_image {
	Dwfl *dwfl;
	const struct fci_task_window *windows;
	unsigned nwindows;
};

/* One 8-byte word of the copied memory. */
bool fci_image_load(const struct fci_image *image, uint64_t addr, uint64_t *ret);

/*
 * From the frame *in to its caller's registers *ret. *ret_cfa, the address above the frame that
 * names it, is written on FCI_STEP_OK and FCI_STEP_END; *ret on FCI_STEP_OK alone.
 */
enum fci_step fci_unwind_step(const struct fci_image *image, const struct fci_regs *in,
                              struct fci_regs *ret, uint64_t *ret_cfa);

/* The row of call frame information that covers addr, for the caller to free; or NULL. */
Dwarf_Frame *fci_unwind_row(const struct fci_image *image, uint64_t addr, Dwarf_Addr *ret_bias);

/*
 * For a function that keeps a frame pointer: where it starts, and how many bytes its frame has
 * below the saved frame pointer at pc, arguments pushed for a call not counted. *ret_fixed: its
 * code shows that the size is so; if not, the size is worthless (alloca). False: not such a
 * function.
 */
bool fci_unwind_prologue(const struct fci_image *image, uint64_t pc, uint64_t *ret_start,
                         bool *ret_fixed, uint64_t *ret_frame_bytes);

/* What the instruction before a return address says of a call of the function at start. */
enum fci_link fci_unwind_link(uint64_t return_address, uint64_t start);

#endif /* FCI_UNWIND_H */
