/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registers come from the copy of the stack alone. A step needs the canonical frame address
 * (CFA) of the frame and its return address, both by call frame information. The CFA must grow
 * with each step, so a corrupt stack ends the walk instead of looping. libdw reads the tables;
 * the rules are evaluated here and not by dwfl_thread_getframes, because the walk must know which
 * registers it does not have, must be able to start again with a deduced one, and must not load
 * debug information when it fails.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "unwind.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
enum { REG_FP = 6, REG_SP = 7, REG_RA = 16 };
#elif defined(__aarch64__)
enum { REG_FP = 29, REG_SP = 31, REG_RA = 30 };
#else
#error "x86-64 and aarch64 only: build stack_none.c elsewhere"
#endif

bool fci_image_load(const struct fci_image *image, uint64_t addr, uint64_t *ret)
{
	for (unsigned i = 0; i < image->nwindows; i++) {
		const struct fci_task_window *w = &image->windows[i];

		if (addr >= w->lo && w->size_bytes >= sizeof *ret &&
		    addr - w->lo <= w->size_bytes - sizeof *ret) {
			memcpy(ret, w->bytes + (addr - w->lo), sizeof *ret);
			return true;
		}
	}
	return false;
}

/* ---- call frame information ---- */

static enum fci_step get_reg(const struct fci_regs *in, uint64_t reg, uint64_t *ret)
{
	if (reg == REG_SP)
		*ret = in->sp;
	else if (reg == REG_RA && REG_RA == 16)
		*ret = in->pc;
	else if (reg == REG_RA && in->has_lr)
		*ret = in->lr;
	else if (reg == REG_FP && in->has_fp)
		*ret = in->fp;
	else
		return reg == REG_FP ? FCI_STEP_NO_FP : FCI_STEP_BAD;
	return FCI_STEP_OK;
}

/* Two-operand operations of a DWARF expression, as PLT stubs and aligned stacks use them. */
static bool combine(uint8_t op, uint64_t a, uint64_t b, uint64_t *ret)
{
	switch (op) {
	case DW_OP_plus:  *ret = a + b; return true;
	case DW_OP_minus: *ret = a - b; return true;
	case DW_OP_and:   *ret = a & b; return true;
	case DW_OP_or:    *ret = a | b; return true;
	case DW_OP_shl:   *ret = b < 64 ? a << b : 0; return true;
	case DW_OP_shr:   *ret = b < 64 ? a >> b : 0; return true;
	case DW_OP_ge:    *ret = (int64_t)a >= (int64_t)b; return true;
	case DW_OP_eq:    *ret = a == b; return true;
	default:          return false;
	}
}

/* The value of an operation that needs no operand from the expression's stack. */
static enum fci_step push_value(const Dwarf_Op *op, const struct fci_regs *in, uint64_t cfa,
                            uint64_t *ret)
{
	uint8_t code = op->atom;
	enum fci_step rc = FCI_STEP_OK;

	if (code >= DW_OP_lit0 && code <= DW_OP_lit31) {
		*ret = code - DW_OP_lit0;
	} else if (code >= DW_OP_const1u && code <= DW_OP_consts) {
		*ret = op->number;
	} else if (code == DW_OP_call_frame_cfa) {
		*ret = cfa;
	} else if (code == DW_OP_bregx) {
		rc = get_reg(in, op->number, ret);
		*ret += op->number2;
	} else if (code >= DW_OP_breg0 && code <= DW_OP_breg31) {
		rc = get_reg(in, code - DW_OP_breg0, ret);
		*ret += op->number;
	} else {
		rc = FCI_STEP_BAD;
	}
	return rc;
}

/* Evaluate a location or CFA expression. *ret_is_value: a value, not the address of one. */
static enum fci_step eval(const struct fci_image *image, const Dwarf_Op *ops, size_t nops,
                      const struct fci_regs *in, uint64_t cfa, uint64_t *ret, bool *ret_is_value)
{
	uint64_t stack[8] = { 0 };
	unsigned n = 0;

	*ret_is_value = false;
	for (size_t i = 0; i < nops; i++) {
		uint8_t code = ops[i].atom;
		enum fci_step rc = FCI_STEP_OK;

		if (code == DW_OP_stack_value) {
			*ret_is_value = true;
		} else if (code == DW_OP_regx && n < 8) {
			rc = get_reg(in, ops[i].number, &stack[n++]);
			*ret_is_value = true;
		} else if (code == DW_OP_plus_uconst && n > 0) {
			stack[n - 1] += ops[i].number;
		} else if (code == DW_OP_deref && n > 0) {
			rc = fci_image_load(image, stack[n - 1], &stack[n - 1]) ? FCI_STEP_OK : FCI_STEP_BAD;
		} else if (n > 1 && combine(code, stack[n - 2], stack[n - 1], &stack[n - 2])) {
			n--;
		} else if (n < 8) {
			rc = push_value(&ops[i], in, cfa, &stack[n++]);
		} else {
			rc = FCI_STEP_BAD;
		}
		if (rc)
			return rc;
	}
	if (!n)
		return FCI_STEP_BAD;
	*ret = stack[n - 1];
	return FCI_STEP_OK;
}

Dwarf_Frame *fci_unwind_row(const struct fci_image *image, uint64_t addr, Dwarf_Addr *ret_bias)
{
	Dwfl_Module *module = dwfl_addrmodule(image->dwfl, addr);
	Dwarf_CFI *cfi = module ? dwfl_module_eh_cfi(module, ret_bias) : NULL;
	Dwarf_Frame *row = NULL;

	if (!cfi || dwarf_cfi_addrframe(cfi, addr - *ret_bias, &row))
		return NULL;
	return row;
}

/* The caller's value of a register: *has is in: known in this frame; out: known in the caller. */
static enum fci_step restore(const struct fci_image *image, Dwarf_Frame *row, int reg,
                         const struct fci_regs *in, uint64_t cfa, bool *has, uint64_t *value)
{
	Dwarf_Op mem[3], *ops;
	bool is_value;
	size_t nops;

	if (dwarf_frame_register(row, reg, mem, &ops, &nops))
		return FCI_STEP_BAD;
	if (!nops) {
		*has = *has && ops == NULL; /* same value; else undefined */
		return FCI_STEP_OK;
	}
	*has = eval(image, ops, nops, in, cfa, value, &is_value) == FCI_STEP_OK &&
	       (is_value || fci_image_load(image, *value, value));
	return FCI_STEP_OK;
}

static enum fci_step step_by_row(const struct fci_image *image, Dwarf_Frame *row,
                             const struct fci_regs *in, struct fci_regs *ret, uint64_t *ret_cfa)
{
	bool is_value, signal_frame = false, has_ra = in->has_lr;
	uint64_t cfa = 0, ra = in->lr;
	enum fci_step rc = FCI_STEP_BAD;
	Dwarf_Op *ops;
	size_t nops;
	int ra_reg = dwarf_frame_info(row, NULL, NULL, &signal_frame);

	if (ra_reg < 0 || dwarf_frame_cfa(row, &ops, &nops))
		return FCI_STEP_BAD;
	rc = eval(image, ops, nops, in, 0, &cfa, &is_value);
	if (rc)
		return rc;
	*ret_cfa = cfa;

	*ret = *in;
	ret->sp = cfa;
	rc = restore(image, row, REG_FP, in, cfa, &ret->has_fp, &ret->fp);
	if (!rc)
		rc = restore(image, row, ra_reg, in, cfa, &has_ra, &ra);
	if (rc)
		return rc;
	if (!has_ra) {
		Dwarf_Op mem[3];

		if (!dwarf_frame_register(row, ra_reg, mem, &ops, &nops) && !nops && ops)
			return FCI_STEP_END; /* "undefined" is how a first function is marked */
		return nops ? FCI_STEP_BAD : FCI_STEP_NO_LR;
	}
	/* Only a signal frame may lead to another stack. */
	if (!signal_frame && (cfa < in->sp || (cfa == in->sp && !in->exact)))
		return FCI_STEP_BAD;
	if (signal_frame) {
		bool has_sp = true;

		rc = restore(image, row, REG_SP, in, cfa, &has_sp, &ret->sp);
		if (!has_sp)
			return FCI_STEP_BAD;
	}
#if defined(__aarch64__)
	ra &= (UINT64_C(1) << 52) - 1; /* a signed return address carries its signature on top */
#endif
	ret->pc = ra;
	ret->exact = signal_frame;
	ret->lr = ra;
	ret->has_lr = false;
	return ra ? FCI_STEP_OK : FCI_STEP_BAD;
}

enum fci_step fci_unwind_step(const struct fci_image *image, const struct fci_regs *in, struct fci_regs *ret,
                      uint64_t *ret_cfa)
{
	Dwarf_Addr bias = 0;
	Dwarf_Frame *row = fci_unwind_row(image, in->exact ? in->pc : in->pc - 1, &bias);
	enum fci_step rc = row ? step_by_row(image, row, in, ret, ret_cfa) : FCI_STEP_NO_CODE;

	free(row);
	return rc;
}
