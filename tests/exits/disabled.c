/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program compiled with -DFC_DISABLE, as C or C++, and linked without the library: the guards are
 * bare blocks whose admitted branch always runs, and break and continue mean what they mean in a guard.
 */
#include <stdio.h>

#include <fcguard/fcguard.h>
#ifdef __cplusplus
#include <fcguard/fcguard.hpp>
#endif

static int calls;

static int count(int value)
{
	calls++;
	return value;
}

static int block(struct fc_iface *iface)
{
	FC_GUARD(e, iface) {
		return count(1);
	} else {
		return -1;
	}
	return -2;
}

static int block_or(const char *name)
{
	FC_GUARD_OR(return -1, e, name) {
		return count(2);
	}
	return -2;
}

static int function_scope(struct fc_iface *iface)
{
	struct fc_entry e FC_AUTO_EXIT = FC_ENTRY_INIT;

	if (fc_enter(&e, iface, NULL))
		return -1;
	fc_entry_mark(&e, FC_OUTCOME_ERROR);
	fc_exit(&e);
	return count(3);
}

static FC_GUARDED_FUNCTION(int, wrapped, (int value), count(value), "wrapped", -1)

static int loops(void)
{
	int behind = 0;

	for (int i = 0; i < 3; i++) {
		FC_GUARD(e, "loop") {
			if (i == 1)
				break;
			if (i == 2)
				continue;
			count(0);
		}
		behind++;
	}
	return behind;
}

static int named(void)
{
	FC_GUARD_FN(e) {
		return count(4);
	}
	return -1;
}

int main(void)
{
	int ok = block(NULL) == 1 && block_or("name") == 2 && function_scope(NULL) == 3;

	ok = ok && FC_GUARD_CALL("call", -1, count(6)) == 6 && wrapped(7) == 7 && named() == 4;
	ok = ok && loops() == 3 && calls == 7;
#ifdef __cplusplus
	fc::entry e{"object"};
	FC_ENTRY(f, "object");
	fc::entry moved{static_cast<fc::entry &&>(e)};

	moved.mark(FC_OUTCOME_ERROR);
	ok = ok && moved && f && !e && f.verdict() == 0 && f.decision().status == 0;
	f.exit();
	ok = ok && !f;
#endif
	if (!ok)
		printf("%d calls\n", calls);
	return !ok;
}
