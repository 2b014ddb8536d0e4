/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stack.h - the stack of ANOTHER thread of this process, taken without disturbing it.
 *
 * A blocked thread's stack pointer and program counter are in /proc/self/task/TID/syscall. Its
 * stack memory is copied through the kernel, the file and the thread's switch counts are read
 * again, and the copy is thrown away if they changed. The copy is then unwound with the call
 * frame information of the loaded modules. No signal, no tracing: a call that would return
 * EINTR for either goes on undisturbed.
 *
 * What the kernel does not tell is the frame pointer register. Code that addresses its frame
 * with it (-O0, -fno-omit-frame-pointer, alloca) can be crossed only if its value is found. It
 * is, in this order: from the anchor, when the blocked function is the guarded one; from the
 * size of the frame, read off the function's first instructions; by trying the words of the
 * stack. A found value counts only if the return address beside it follows a call instruction
 * and the chain from it runs exactly through the anchor's frame or, with no anchor, to the
 * thread's first function. Failing that the dump has a gap, says so, and goes on at the anchor.
 *
 * Threads.  One fci_unwinder belongs to one thread at a time; two unwinders are independent.
 *           Called by housekeeping only, never on the calling path.
 * Signals.  Not async-signal-safe (allocates, opens files).
 * Fork.     The child may go on with the same unwinder: it notices and starts anew; what libdw
 *           held at the fork is left allocated, since a thread of the parent may have been
 *           changing it.
 * Errors.   0, or a negative errno, with a sentence in ret->text either way.
 * Memory.   The unwinder holds 144 KiB of buffers, and libdw's view of the modules, made at the
 *           first capture (32 KiB, and mappings of the modules' files). No file stays open for
 *           exec'ed programs. Freed by fci_unwinder_destroy.
 * Cost.     25-30 us; the first capture and the first after a dlopen 0.25-0.45 ms, or up to 5 ms
 *           from disk. See the table in stack.c. A capture at set-up, of any thread id but the
 *           caller's own, takes that beforehand.
 * Limits.   A running thread gives no inner frames. Code without call frame information (JIT,
 *           hand-written assembly) ends the walk with a sentence. On aarch64 the link register
 *           is not told either, so a leaf function at the blocked end makes a gap.
 */
#ifndef FCI_STACK_H
#define FCI_STACK_H

#include <stdint.h>
#include <sys/types.h>

#define FCI_STACK_FRAMES     64u
#define FCI_STACK_TEXT_BYTES 160

/* Registers of the CALLER of fc_enter as they are when fc_enter returns. All 0: unknown. */
struct fci_anchor {
	uint64_t pc; /* return address */
	uint64_t sp; /* stack pointer after the return */
	uint64_t bp; /* frame pointer register (rbp, x29), whatever it holds */
};

/*
 * Fill *a_ from within the function that plays fc_enter. That function must not be inlined, and
 * this makes the compiler give it a frame pointer, which is where the caller's is saved.
 */
#define FCI_ANCHOR_HERE(a_)                                                                     \
	do {                                                                                    \
		(a_)->pc = (uint64_t)(uintptr_t)__builtin_extract_return_addr(                  \
			__builtin_return_address(0));                                           \
		(a_)->sp = FCI_CALLER_SP_;                                                      \
		(a_)->bp = *(uint64_t *)__builtin_frame_address(0);                             \
	} while (0)
#if defined(__x86_64__)
#define FCI_CALLER_SP_ ((uint64_t)(uintptr_t)__builtin_frame_address(0) + 16)
#else
#define FCI_CALLER_SP_ ((uint64_t)(uintptr_t)__builtin_dwarf_cfa())
#endif

enum fci_frame_flag {
	FCI_FRAME_INNER = 1,     /* between the blocked call and the guard */
	FCI_FRAME_GUARD = 2,     /* the function that entered the guard */
	FCI_FRAME_AFTER_GAP = 4, /* frames are missing between the one before and this one */
	FCI_FRAME_EXACT = 8,     /* pc is where it stands, not a return address */
	FCI_FRAME_AT_ENTER = 16, /* pc is that of the guard's entry, not of the call made now */
	FCI_FRAME_DEDUCED = 32,  /* found with a deduced frame pointer, verified as above */
};

enum fci_stack_status {
	FCI_STACK_COMPLETE = 0, /* all frames, from the blocked call to the thread's first function */
	FCI_STACK_GAP = 1,      /* both ends, with frames missing between */
	FCI_STACK_PARTIAL = 2,  /* does not reach the thread's first function */
	FCI_STACK_RUNNING = 3,  /* not blocked: at most the frames outside the guard */
	FCI_STACK_MOVING = 4,   /* would not stand still: the same */
	FCI_STACK_NONE = 5,     /* no frames: text says why */
};

struct fci_frame {
	uint64_t pc;
	uint32_t flags; /* enum fci_frame_flag */
	uint32_t resv;
};

struct fci_stack {
	pid_t tid;
	int32_t status;     /* enum fci_stack_status */
	uint32_t nframes;
	uint32_t nomitted;  /* frames left out of the middle: more than FCI_STACK_FRAMES */
	struct fci_frame frames[FCI_STACK_FRAMES]; /* innermost first */
	char text[FCI_STACK_TEXT_BYTES];           /* what is missing and why; "" when complete */
};

struct fci_unwinder; /* opaque */

/* Memory only; libdw is not touched before the first capture. 0 or -ENOMEM. */
int fci_unwinder_create(struct fci_unwinder **ret);

/* NULL is fine. Returns NULL. */
struct fci_unwinder *fci_unwinder_destroy(struct fci_unwinder *unwinder);

/*
 * The stack of thread tid; anchor is that of the entry it is in, or NULL.
 *
 * *ret is always filled. Returns 0 when it holds what can be had (see ret->status; a running or
 * moving thread is no error, and the calling thread itself is a running one); -EINVAL (tid <= 0); -ESRCH (no such thread in this process);
 * -EACCES, -ENOTSUP (the kernel does not tell); -EFAULT (stack not mapped); -ENOMEM;
 * -ENOSYS (built without libdw).
 */
int fci_stack_capture(struct fci_unwinder *unwinder, pid_t tid, const struct fci_anchor *anchor,
                      struct fci_stack *ret);

/* Equal for threads stuck in one place, for grouping. Not stable between processes. */
uint64_t fci_stack_hash(const struct fci_stack *stack);

/* The address to look up for a frame: of the call, not of the instruction after it. */
static inline uint64_t fci_frame_address(const struct fci_frame *frame)
{
	return frame->flags & FCI_FRAME_EXACT ? frame->pc : frame->pc - 1;
}

#endif /* FCI_STACK_H */
