/* SPDX-License-Identifier: BSD-2-Clause */
/* Every way out of a guard, in C. The cases are in guard_cases.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "guard_cases.h"
#include "guard_cmocka.h"

int main(void)
{
	return run_guard_cases("guard", guard_cases, N_GUARD_CASES);
}
