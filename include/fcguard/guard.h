/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/guard.h - guards as blocks. Three forms; learn the first one first.
 *
 * 1. Function scope. The clearest; break, continue and return keep their meaning.
 *
 *        struct fc_entry e FC_AUTO_EXIT = FC_ENTRY_INIT;
 *        if (fc_enter(&e, iface, NULL))
 *                return busy(r, &e);
 *
 * 2. A block with a refused branch.
 *
 *        FC_GUARD(e, "user.login") { serve(r); } else { busy(r, &e); }
 *
 * 3. A block whose refusal is one statement, which cannot be forgotten.
 *
 *        FC_GUARD_OR(return -EBUSY, e, iface) { serve(r); }
 *
 * What is guarded is a handle (struct fc_iface *), or a name in the default context. A literal
 * name is looked up once per call site and then cached; the cache notices a new default context.
 * A name made at run time is looked up at each call (some 50 ns); keep its handle instead. A third
 * argument is a `const struct fc_ctx *`.
 *
 * Where the ways out of the block lead (each tested with gcc and clang, C and C++, -O0 and -O2):
 *
 *        end of block, return, goto out    exit, once; `return x` evaluates x before the exit
 *        break, continue                   end the guarded block (not your loop), exit, once
 *        longjmp                           NO exit: the place is held until the library can prove
 *                                          that the scope is gone, or the thread ends. Do not.
 *        pthread_exit, deferred cancel     exit if this file is compiled with -fexceptions
 *                                          (glibc); else at the end of the thread, at once
 *        asynchronous cancel               at the end of the thread
 *        C++ exception                     exit from C++; from C if compiled with -fexceptions
 *                                          (`pkg-config --variable=scoped_cflags fcguard`)
 *        fork                              the parent's entry counts, the child's copy is inactive
 *        exit, _exit, crash                the places go with the process
 *        jumping into the block            undefined (clang and C++ refuse to compile it; gcc
 *                                          warns with -Wjump-misses-init)
 *
 * Rules. Keep blocks short; move more than 20 lines into a function. Do not mix with goto-style
 * cleanup in one function. Always write the braces. A block is not for longjmp, asynchronous
 * cancellation or cmocka's asserts: use fc_enter() and fc_exit() there.
 *
 * With -DFC_DISABLE the blocks are bare, and always run their admitted branch; fc_enter() and all calls on
 * an entry or a decision do nothing, and say what they say of an admitted call. Code of these alone
 * links without the library. What makes contexts, interfaces and labels, reads them or gives texts
 * is linked as ever.
 *
 * The macros exist for compilers with the cleanup attribute (gcc, clang) only.
 * Threads, errors, memory and cost of a guard are those of fc_enter() and fc_exit(): entry.h. The entry
 * lives on the stack; a look-up by name that fails follows on_fault (iface.h).
 */
#ifndef FC_GUARD_H
#define FC_GUARD_H

#include <fcguard/base.h>
#include <fcguard/context.h>
#include <fcguard/entry.h>
#include <fcguard/iface.h>
#if defined(FC_DISABLE)
#include <errno.h>
#endif

#if defined(__GNUC__)

#define FC_CAT2_(a_, b_) a_##b_
#define FC_CAT_(a_, b_)  FC_CAT2_(a_, b_)

/* Module name of FC_GUARD_FN: a string literal, defined before this header is included. */
#ifndef FC_MODULE
#define FC_MODULE ((const char *)0)
#endif

#ifdef FC_DISABLE

#define FC_AUTO_EXIT __attribute__((__unused__))
#define FC_HERE_(name_) ((struct fc_site *)0)

static inline struct fc_entry *fc_guard_begin_(struct fc_entry *e)
{
	return e;
}
#define FC_GUARD_BEGIN2_(e_, what_, ctx_, ...)                                                     \
	((void)sizeof(what_), (void)sizeof(ctx_), fc_guard_begin_(e_))
#define FC_GUARD_BEGIN_(e_, ...) FC_GUARD_BEGIN2_(e_, __VA_ARGS__, 0, 0)
#define FC_GUARD_FN_BEGIN_(e_)   fc_guard_begin_(e_)
/* The calls of entry.h, on an entry that is inside without a place. fc_enter() evaluates nothing. */
static inline int fc_none_(const struct fc_entry *e)
{
	(void)e;
	return 0;
}
static inline void fc_none_take_(struct fc_entry *to, struct fc_entry *from)
{
	*to = *from;
	from->word_ = 0;
}
static inline int fc_none_decision_(const struct fc_entry *e, struct fc_decision *ret)
{
	(void)e;
	if (ret)
		fc_opts_init_(ret, ret->size < sizeof(*ret) ? ret->size : sizeof(*ret));
	return -ENODATA;
}
#define fc_enter(e_, i_, c_)     ((void)sizeof(e_), (void)sizeof(i_), (void)sizeof(c_), 0)
#define fc_enter_async(e_, i_, c_, fn_, arg_)                                                      \
	((void)sizeof(e_), (void)sizeof(i_), (void)sizeof(c_), (void)(fn_), (void)sizeof(arg_), 0)
#define fc_enter_cancel(e_)      fc_none_(e_)
#define fc_exit(e_)              ((void)(e_))
#define fc_exit_status(e_)       fc_none_(e_)
#define fc_entry_mark(e_, o_)    ((void)(e_), (void)(o_))
#define fc_entry_take(to_, from_)    fc_none_take_((to_), (from_))
#define fc_entry_suspend(e_)     fc_none_(e_)
#define fc_entry_resume(e_)      fc_none_(e_)
#define fc_entry_verdict(e_)     fc_none_(e_)
#define fc_entry_decision(e_, ret_)  fc_none_decision_((e_), (ret_))
#define fc_entry_deadline_left(e_)   ((void)(e_), FC_NEVER_NS)
#define fc_decision_http_status(d_)  ((void)(d_), 200)
#define fc_decision_retry_after_s(d_) ((void)(d_), 1u)
#define FC_GUARD_ADMITTED_(p_)   ((void)(p_), 1)

#else /* FC_DISABLE */

#define FC_AUTO_EXIT __attribute__((__cleanup__(fc_guard_exit_), __unused__))

/* A static description of this place, made once. */
#define FC_HERE_(name_)                                                                            \
	__extension__({                                                                            \
		static struct fc_site fc_site_ = { __FILE__, __func__, name_, __LINE__, 0, 0, 0, 0 }; \
		&fc_site_;                                                                         \
	})

/* fc_enter(e, iface, ctx) with the place of the call. */
#define fc_enter(e_, iface_, ctx_) fc_enter_at((e_), (iface_), (ctx_), FC_HERE_(0))

#ifdef __cplusplus
extern "C" {
#endif
/*
 * Enter by name in the default context; `literal` says that name is a string literal, so that the
 * look-up may be cached in site. Returns like fc_enter(). Plumbing of the macros.
 */
FC_API int fc_enter_name(struct fc_entry *e, const char *name, int literal, const struct fc_ctx *ctx,
                         struct fc_site *site) FC_NOEXCEPT;
/* The same under "module.function"; module NULL: from the name of the file. */
FC_API int fc_enter_function(struct fc_entry *e, const char *module, struct fc_site *site) FC_NOEXCEPT;
#ifdef __cplusplus
}
#endif

static inline void fc_guard_exit_(struct fc_entry *e)
{
	if (e->word_)
		fc_exit(e);
}

/* Always inlined, -O0 too: the stack of a stuck call begins where fc_enter_at() was called. */
#define FC_INLINED_ static inline __attribute__((__always_inline__))

FC_INLINED_ struct fc_entry *fc_guard_handle_(struct fc_entry *e, struct fc_iface *iface,
                                                int literal, const struct fc_ctx *ctx,
                                                struct fc_site *site)
{
	(void)literal;
	e->verdict_ = fc_enter_at(e, iface, ctx, site);
	return e;
}

FC_INLINED_ struct fc_entry *fc_guard_name_(struct fc_entry *e, const char *name, int literal,
                                              const struct fc_ctx *ctx, struct fc_site *site)
{
	e->verdict_ = fc_enter_name(e, name, literal, ctx, site);
	return e;
}

#ifdef __cplusplus
FC_INLINED_ struct fc_entry *fc_guard_any_(struct fc_entry *e, struct fc_iface *i, int l,
                                             const struct fc_ctx *c, struct fc_site *s)
{
	return fc_guard_handle_(e, i, l, c, s);
}
FC_INLINED_ struct fc_entry *fc_guard_any_(struct fc_entry *e, const char *n, int l,
                                             const struct fc_ctx *c, struct fc_site *s)
{
	return fc_guard_name_(e, n, l, c, s);
}
#define FC_GUARD_FN_OF_(what_) fc_guard_any_
#else
#define FC_GUARD_FN_OF_(what_)                                                                     \
	_Generic((what_), struct fc_iface *: fc_guard_handle_, char *: fc_guard_name_,             \
	         const char *: fc_guard_name_)
#endif

#define FC_GUARD_BEGIN2_(e_, what_, ctx_, ...)                                                     \
	FC_GUARD_FN_OF_(what_)((e_), (what_), __builtin_constant_p(what_), (ctx_), FC_HERE_(0))
#define FC_GUARD_BEGIN_(e_, ...) FC_GUARD_BEGIN2_(e_, __VA_ARGS__, 0, 0)
#define FC_GUARD_ADMITTED_(p_)   ((p_)->verdict_ == 0)

FC_INLINED_ struct fc_entry *fc_guard_fn_(struct fc_entry *e, const char *module, struct fc_site *site)
{
	e->verdict_ = fc_enter_function(e, module, site);
	return e;
}
#define FC_GUARD_FN_BEGIN_(e_) fc_guard_fn_((e_), FC_MODULE, FC_HERE_(0))

#endif /* FC_DISABLE */

/*
 * The shape: a for loop that never ends by its condition; its increment jumps out through a label
 * in front. So compilers know that the body runs at most once, and the entry's scope is the loop.
 */
#define FC_GUARD_HEAD_(e_, done_, ...)                                                             \
	if (0) {                                                                                   \
	done_:;                                                                                    \
	} else                                                                                     \
		for (struct fc_entry e_ FC_AUTO_EXIT = FC_ENTRY_INIT,                              \
		     *const e_##_p_ = FC_GUARD_BEGIN_(&e_, __VA_ARGS__);;                          \
		     __extension__({ goto done_; }))

/* A number for each use, so that several guards may stand on one line, or come from one macro. */
#define FC_DONE_ FC_CAT_(fc_done_, __COUNTER__)

#define FC_GUARD(e_, ...) FC_GUARD2_(e_, FC_DONE_, __VA_ARGS__)
#define FC_GUARD2_(e_, done_, ...)                                                                 \
	FC_GUARD_HEAD_(e_, done_, __VA_ARGS__) if (FC_GUARD_ADMITTED_(e_##_p_))

#define FC_GUARD_OR(refused_, e_, ...) FC_GUARD_OR2_(refused_, e_, FC_DONE_, __VA_ARGS__)
#define FC_GUARD_OR2_(refused_, e_, done_, ...)                                                    \
	FC_GUARD_HEAD_(e_, done_, __VA_ARGS__)                                                     \
		if (!FC_GUARD_ADMITTED_(e_##_p_)) {                                                \
			refused_;                                                                  \
		} else

/*
 * FC_GUARD under a name made of module and function: "MODULE.function", where MODULE is the string
 * literal FC_MODULE if the file defines it before the include, else the file's name without its path and
 * ending. Looked up once per call site.
 */
#define FC_GUARD_FN(e_) FC_GUARD_FN2_(e_, FC_DONE_)
#define FC_GUARD_FN2_(e_, done_)                                                                   \
	if (0) {                                                                                   \
	done_:;                                                                                    \
	} else                                                                                     \
		for (struct fc_entry e_ FC_AUTO_EXIT = FC_ENTRY_INIT,                              \
		     *const e_##_p_ = FC_GUARD_FN_BEGIN_(&e_);;                                    \
		     __extension__({ goto done_; }))                                               \
			if (FC_GUARD_ADMITTED_(e_##_p_))

/*
 * One expression, guarded: its value, or `refused` when the call was refused.
 *
 *     rc = FC_GUARD_CALL("db.query", -EBUSY, db_query(db, sql));
 */
#define FC_GUARD_CALL(what_, refused_, ...)                                                        \
	FC_GUARD_CALL2_(FC_CAT_(fc_value_, __COUNTER__), FC_CAT_(fc_entry_, __COUNTER__), what_, refused_, __VA_ARGS__)
#define FC_GUARD_CALL2_(value_, e_, what_, refused_, ...)                                          \
	__extension__({                                                                            \
		__typeof__(__VA_ARGS__) value_;                                                    \
		struct fc_entry e_ FC_AUTO_EXIT = FC_ENTRY_INIT;                                   \
		if (FC_GUARD_ADMITTED_(FC_GUARD_BEGIN_(&e_, what_)))                               \
			value_ = (__VA_ARGS__);                                                    \
		else                                                                               \
			value_ = (refused_);                                                       \
		value_;                                                                            \
	})

/*
 * Guard a function once for all its callers: defines `name` as a function of the same parameters
 * that runs `impl` inside a guard, or returns `refused`.
 *
 *     static int query_impl(struct db *db, const char *sql) { ... }
 *     FC_GUARDED_FUNCTION(int, query, (struct db *db, const char *sql), query_impl(db, sql),
 *                         "db.query", -EBUSY)
 */
#define FC_GUARDED_FUNCTION(type_, name_, params_, call_, what_, refused_)                         \
	type_ name_ params_                                                                        \
	{                                                                                          \
		return FC_GUARD_CALL(what_, refused_, call_);                                      \
	}

#endif /* __GNUC__ */
#endif /* FC_GUARD_H */
