/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/fcguard.hpp - guards as C++ objects. Header only, C++11 and later; nothing here throws.
 *
 *     fc::entry e{iface};                     a handle: the cheapest
 *     fc::entry e{"user.login"};              a name in the default context, looked up each time
 *     FC_ENTRY(e, "user.login");              a literal name, looked up once, and the place of the
 *     FC_ENTRY(e, iface, &ctx);               call is shown in stuck reports
 *
 *     if (!e)
 *             return busy(e.decision());
 *     if (!serve(request))
 *             e.mark(FC_OUTCOME_ERROR);
 *
 * The destructor leaves. When it runs because an exception passes, the outcome is FC_OUTCOME_ERROR,
 * unless the program has marked another. (Before C++17 an entry that is made while an exception
 * is already passing cannot tell, and is not marked.) A cancelled thread and pthread_exit() leave too, and
 * are no errors. The blocks of guard.h work in C++ as well; there outcomes are marked by hand.
 *
 * Moving.   An entry is moved, not copied. The new one may live on in another scope or thread, as
 *           after fc_entry_take(). A default-made entry holds nothing; assign to it.
 * Threads, errors. As entry.h; errors and refusals are in verdict().
 * Memory.   The object: an entry of 64 bytes, and 8 more.
 * Scope.    The class is nested in `struct fc`, which stays opaque: no object of it can be made here.
 * Cost.     That of fc_enter() and fc_exit(), and two calls of std::uncaught_exceptions().
 *
 * With -DFC_DISABLE every entry is admitted at once, and the class links without the library.
 */
#ifndef FC_FCGUARD_HPP
#define FC_FCGUARD_HPP

#include <exception>

#include <fcguard/fcguard.h>

struct fc {
	class entry;
	fc() = delete;
	~fc() = delete;
	fc(const fc &) = delete;
	fc &operator=(const fc &) = delete;
};

class fc::entry {
public:
	/* Holds nothing. */
	entry() noexcept : e_(), passing_(passing()), marked_(false) {}

	/* Enter. `site` and `literal` are plumbing of FC_ENTRY(). */
	explicit entry(struct fc_iface *iface, const struct fc_ctx *ctx = nullptr,
	               struct fc_site *site = nullptr, int literal = 0) noexcept : entry()
	{
#ifdef FC_DISABLE
		(void)iface, (void)ctx, (void)site, (void)literal;
		e_.word_ = 1;
#else
		(void)literal;
		e_.verdict_ = fc_enter_at(&e_, iface, ctx, site);
#endif
	}

	explicit entry(const char *name, const struct fc_ctx *ctx = nullptr,
	               struct fc_site *site = nullptr, int literal = 0) noexcept : entry()
	{
#ifdef FC_DISABLE
		(void)name, (void)ctx, (void)site, (void)literal;
		e_.word_ = 1;
#else
		e_.verdict_ = fc_enter_name(&e_, name, literal, ctx, site);
#endif
	}

	entry(entry &&from) noexcept : entry() { take(from); }

	entry &operator=(entry &&from) noexcept
	{
		if (this != &from) {
			exit();
			take(from);
			passing_ = passing();
		}
		return *this;
	}

	entry(const entry &) = delete;
	entry &operator=(const entry &) = delete;

	~entry()
	{
		if (e_.word_ && !marked_ && passing() > passing_)
			mark(FC_OUTCOME_ERROR);
		exit();
	}

	/* Inside: admitted, not left yet, not moved away. */
	explicit operator bool() const noexcept { return e_.word_ != 0; }

	/* What fc_enter() said: 0, the reason (enum fc_status), or a negative errno. */
	int verdict() const noexcept { return e_.verdict_; }

	/* Why it was refused; status 0 when it was not. */
	struct fc_decision decision() const noexcept
	{
		struct fc_decision d;

		fc_opts_init(&d);
#ifndef FC_DISABLE
		(void)fc_entry_decision(&e_, &d);
#endif
		return d;
	}

	/* Record the outcome; the last mark counts, and wins over a passing exception. */
	void mark(int outcome) noexcept
	{
		fc_entry_mark(&e_, outcome);
		marked_ = true;
	}

	/* Leave before the end of the scope. */
	void exit() noexcept
	{
#ifdef FC_DISABLE
		e_.word_ = 0;
#else
		if (e_.word_)
			fc_exit(&e_);
#endif
	}

	/* For the functions of entry.h: fc_entry_suspend(e.get()), ... */
	struct fc_entry *get() noexcept { return &e_; }
	const struct fc_entry *get() const noexcept { return &e_; }

private:
	static int passing() noexcept
	{
#if defined(__cpp_lib_uncaught_exceptions) || __cplusplus >= 201703L
		return std::uncaught_exceptions();
#else
		return std::uncaught_exception();
#endif
	}

	void take(entry &from) noexcept
	{
#ifdef FC_DISABLE
		e_ = from.e_;
		from.e_.word_ = 0;
#else
		fc_entry_take(&e_, &from.e_);
#endif
		marked_ = from.marked_;
	}

	struct fc_entry e_;
	int passing_; /* exceptions that were passing when it was made */
	bool marked_;
};

#if defined(__GNUC__)
/* FC_ENTRY(variable, handle or name [, ctx]); */
#define FC_ENTRY(variable_, ...) FC_ENTRY2_(variable_, __VA_ARGS__, nullptr, 0)
#define FC_ENTRY2_(variable_, what_, ctx_, ...)                                                    \
	::fc::entry variable_((what_), (ctx_), FC_HERE_(0), __builtin_constant_p(what_))
#endif

#endif /* FC_FCGUARD_HPP */
