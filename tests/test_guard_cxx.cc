/* SPDX-License-Identifier: BSD-2-Clause */
/* Every way out of a guard, in C++, with exceptions and fc::entry. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
extern "C" {
#include <cmocka.h>
}

#include "guard_cases_cxx.h"
#include "guard_cmocka.h"

int main()
{
	std::vector<struct guard_case> all(guard_cases, guard_cases + N_GUARD_CASES);

	all.insert(all.end(), guard_cases_cxx, guard_cases_cxx + N_GUARD_CASES_CXX);
	return run_guard_cases("guard_cxx", all.data(), all.size());
}
