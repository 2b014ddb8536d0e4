/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs the cases of guard_cases.h; tests/exits/run compiles it in every way that matters. */
#include "../guard_cases.h"
#ifdef __cplusplus
#include "../guard_cases_cxx.h"
#endif

static int run(const struct guard_case *cases, size_t n)
{
	int failed = 0;

	for (size_t i = 0; i < n; i++) {
		int line = begin();

		if (!line)
			line = cases[i].fn();
		if (line)
			printf("%s: line %d: %s\n", cases[i].name, line, failed_condition);
		failed += line != 0;
		line = finish();
		if (line)
			printf("%s: something is left inside\n", cases[i].name);
		failed += line != 0;
	}
	return failed;
}

int main(void)
{
	int failed = run(guard_cases, N_GUARD_CASES);

#ifdef __cplusplus
	failed += run(guard_cases_cxx, N_GUARD_CASES_CXX);
#endif
	return failed != 0;
}
