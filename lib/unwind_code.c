/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the machine code of a function tells of its frame and of who called it. Bytes are matched
 * without decoding from instruction to instruction, so a match may be accidental; that makes a
 * size or a call unknown or wrong, and what is deduced from it is verified by the walk.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "unwind.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)

#define ROWS_BACK  64
#define CODE_BYTES 4096u /* of a function looked at */
#define TAIL_BYTES 256u

enum { REG_RBX = 3, REG_FP = 6, REG_SP = 7, REG_R12 = 12, REG_R15 = 15 };
enum row_kind { ROW_OTHER, ROW_ENTRY /* SP+8 */, ROW_PUSHED /* SP+16 */, ROW_FRAMED /* FP+16 */ };

/* The kind of the row that covers addr, and where the row starts. */
static enum row_kind kind_of_row(const struct fci_image *image, uint64_t addr, uint64_t *ret_start)
{
	Dwarf_Addr bias = 0, start = 0, end;
	Dwarf_Frame *row = fci_unwind_row(image, addr, &bias);
	enum row_kind kind = ROW_OTHER;
	uint64_t reg = 0, offset = 0;
	bool signal_frame;
	Dwarf_Op *ops;
	size_t nops;

	if (!row)
		return ROW_OTHER;
	if (dwarf_frame_info(row, &start, &end, &signal_frame) >= 0 &&
	    !dwarf_frame_cfa(row, &ops, &nops) && nops == 1) {
		bool any = ops->atom == DW_OP_bregx;

		reg = any ? ops->number : (uint64_t)ops->atom - DW_OP_breg0;
		offset = any ? ops->number2 : ops->number;
	}
	if (reg == REG_FP && offset == 16)
		kind = ROW_FRAMED;
	else if (reg == REG_SP && offset == 16)
		kind = ROW_PUSHED;
	else if (reg == REG_SP && offset == 8)
		kind = ROW_ENTRY;
	*ret_start = start + bias;
	free(row);
	return kind;
}

/* Bytes of the callee-saved registers that lie below the saved frame pointer at pc. */
static uint64_t saved_bytes(const struct fci_image *image, uint64_t pc)
{
	static const int saved[] = { REG_RBX, REG_R12, REG_R12 + 1, REG_R12 + 2, REG_R15 };
	Dwarf_Addr bias = 0;
	Dwarf_Frame *row = fci_unwind_row(image, pc, &bias);
	uint64_t most = 16;

	for (unsigned i = 0; row && i < sizeof saved / sizeof saved[0]; i++) {
		Dwarf_Op mem[3], *ops;
		size_t nops;

		if (!dwarf_frame_register(row, saved[i], mem, &ops, &nops) && nops == 2 &&
		    ops[0].atom == DW_OP_call_frame_cfa && 0 - ops[1].number > most &&
		    0 - ops[1].number < 256)
			most = 0 - ops[1].number;
	}
	free(row);
	return most - 16;
}

/* Length of an instruction that moves the stack pointer down by a constant, or 0. */
static unsigned constant_move(const uint8_t *code, uint64_t *ret_bytes)
{
	int32_t bytes;

	if (code[0] != 0x48)
		return 0;
	if (code[1] == 0x83 && code[2] == 0xec) { /* sub $imm8, %rsp */
		*ret_bytes = code[3];
		return 4;
	}
	if (code[1] == 0x83 && code[2] == 0xc4 && code[3] == 0x80) {
		*ret_bytes = 128; /* add $-128, %rsp: one byte shorter */
		return 4;
	}
	if (code[1] == 0x81 && code[2] == 0xec) { /* sub $imm32, %rsp */
		memcpy(&bytes, code + 3, sizeof bytes);
		*ret_bytes = bytes > 0 ? (uint64_t)bytes : 0;
		return 7;
	}
	return 0;
}

/* sub or mov of a register into the stack pointer: a frame without a fixed size. */
static bool is_variable_move(const uint8_t *code)
{
	return (code[0] == 0x48 || code[0] == 0x4c) && (code[1] == 0x29 || code[1] == 0x89) &&
	       (code[2] & 0xc7) == 0xc4 && !(code[0] == 0x48 && code[1] == 0x89 && code[2] == 0xec);
}

/*
 * How far the function has moved the stack pointer down for its variables at pc. False if that
 * cannot be told: a second move (but of one word, to align a call) or one by a register.
 */
static bool local_bytes(uint64_t body, uint64_t pc, uint64_t *ret)
{
	uint8_t code[CODE_BYTES];
	uint64_t bytes;
	unsigned length, nmoves = 0;
	ssize_t got = pc - body <= sizeof code
	              ? fci_task_read_memory(body, code, (size_t)(pc - body)) : 0;

	*ret = 0;
	for (ssize_t i = 0; i + 7 <= got; i++) {
		if (is_variable_move(code + i))
			return false;
		length = constant_move(code + i, &bytes);
		if (!length)
			continue;
		if (nmoves++ && bytes != 8)
			return false;
		if (nmoves == 1)
			*ret = bytes;
		i += length - 1;
	}
	return got > 0 || pc == body;
}

/* A prologue is three rows in sequence: entry, frame pointer pushed, frame pointer set. */
bool fci_unwind_prologue(const struct fci_image *image, uint64_t pc, uint64_t *ret_start,
                         bool *ret_fixed, uint64_t *ret_frame_bytes)
{
	enum row_kind kind, after = ROW_OTHER, after2 = ROW_OTHER;
	uint64_t at = pc, start = 0, body = 0, body2 = 0;

	for (int i = 0; i < ROWS_BACK; i++) {
		kind = kind_of_row(image, at, &start);
		if (!start || start > at)
			return false;
		if (kind == ROW_ENTRY && after == ROW_PUSHED && after2 == ROW_FRAMED) {
			*ret_start = start;
			*ret_fixed = local_bytes(body2, pc, ret_frame_bytes);
			*ret_frame_bytes += saved_bytes(image, pc);
			return true;
		}
		after2 = after;
		after = kind;
		body2 = body;
		body = start;
		at = start - 1;
		start = 0;
	}
	return false;
}

static bool read_code(uint64_t addr, void *buf, size_t bytes)
{
	return fci_task_read_memory(addr, buf, bytes) == (ssize_t)bytes;
}

/* The word that `disp32(%rip)` before next points to: an entry of the global offset table. */
static uint64_t got_entry(const uint8_t *disp32, uint64_t next)
{
	uint64_t value = 0;
	int32_t disp;

	memcpy(&disp, disp32, sizeof disp);
	if (!read_code(next + (uint64_t)(int64_t)disp, &value, sizeof value))
		value = 0;
	return value;
}

/* Does the code at target jump to start? A call of it then can lead there with no frame between. */
static bool jumps_to(uint64_t target, uint64_t start)
{
	uint8_t code[TAIL_BYTES];
	ssize_t got = fci_task_read_memory(target, code, sizeof code);
	int32_t disp;

	for (ssize_t i = 0; i + 5 <= got; i++) {
		memcpy(&disp, code + i + 1, sizeof disp);
		if (code[i] == 0xe9 && target + (uint64_t)i + 5 + (uint64_t)(int64_t)disp == start)
			return true;
	}
	return false;
}

/* Does a direct call of target get to start, be it through a PLT stub or a tail call? */
static bool leads_to(uint64_t target, uint64_t start)
{
	static const uint8_t endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	uint8_t code[16];
	size_t i = 0;

	if (target == start)
		return true;
	if (!read_code(target, code, sizeof code))
		return false;
	if (!memcmp(code, endbr64, sizeof endbr64))
		i += sizeof endbr64;
	if (code[i] == 0xf2)
		i++;
	if (code[i] == 0xff && code[i + 1] == 0x25)
		return got_entry(code + i + 2, target + i + 6) == start;
	return jumps_to(target, start);
}

/* `call *` of a register or of memory: opcode ff, modrm digit 2, in all its lengths. */
static bool ends_in_indirect_call(const uint8_t *end)
{
	for (unsigned length = 2; length <= 7; length++) {
		uint8_t modrm = end[1 - (int)length];
		unsigned mod = modrm >> 6, sib = (modrm & 7) == 4 && mod != 3;
		unsigned disp = mod == 1 ? 1 : mod == 2 || (mod == 0 && (modrm & 7) == 5) ? 4 : 0;

		if (end[-(int)length] == 0xff && (modrm & 0x38) == 0x10 && length == 2 + sib + disp)
			return true;
	}
	return false;
}

enum fci_link fci_unwind_link(uint64_t return_address, uint64_t start)
{
	uint8_t code[7];
	int32_t disp;

	if (!read_code(return_address - sizeof code, code, sizeof code))
		return FCI_LINK_NONE;
	if (code[2] == 0xe8) {
		memcpy(&disp, code + 3, sizeof disp);
		if (leads_to(return_address + (uint64_t)(int64_t)disp, start))
			return FCI_LINK_PROVED;
	}
	if (code[1] == 0xff && code[2] == 0x15 && got_entry(code + 3, return_address) == start)
		return FCI_LINK_PROVED;
	if (code[2] == 0xe8)
		return FCI_LINK_OTHER;
	return ends_in_indirect_call(code + sizeof code) ? FCI_LINK_INDIRECT : FCI_LINK_NONE;
}

#else /* aarch64: frames are addressed by the stack pointer, so its deduction is not needed */

bool fci_unwind_prologue(const struct fci_image *image, uint64_t pc, uint64_t *ret_start,
                         bool *ret_fixed, uint64_t *ret_frame_bytes)
{
	(void)image, (void)pc, (void)ret_start, (void)ret_fixed, (void)ret_frame_bytes;
	return false;
}

enum fci_link fci_unwind_link(uint64_t return_address, uint64_t start)
{
	uint32_t code;
	int64_t words;

	if (fci_task_read_memory(return_address - 4, &code, sizeof code) != sizeof code)
		return FCI_LINK_NONE;
	if ((code & 0xfc000000u) == 0x94000000u) { /* bl */
		words = (int32_t)(code << 6) >> 6;
		return return_address - 4 + (uint64_t)(words * 4) == start ? FCI_LINK_PROVED
		                                                          : FCI_LINK_OTHER;
	}
	return (code & 0xfefff800u) == 0xd63f0000u ? FCI_LINK_INDIRECT : FCI_LINK_NONE; /* blr* */
}
#endif
