/* SPDX-License-Identifier: BSD-2-Clause */
/* guard_cmocka.h - cases of guard_cases.h as cmocka tests. After <cmocka.h> and guard_cases.h. */
#ifndef FC_TESTS_GUARD_CMOCKA_H
#define FC_TESTS_GUARD_CMOCKA_H

static int setup_case(void **state)
{
	(void)state;
	return begin();
}

static int teardown_case(void **state)
{
	(void)state;
	return finish();
}

static void run_case(void **state)
{
	const struct guard_case *c = (const struct guard_case *)*state;
	int line = c->fn();

	if (line == SKIPPED)
		print_message("# not tested: %s\n", failed_condition);
	else if (line)
		fail_msg("line %d: %s", line, failed_condition);
}

static int run_guard_cases(const char *group, const struct guard_case *cases, size_t n)
{
	struct CMUnitTest *tests = (struct CMUnitTest *)calloc(n, sizeof(*tests));
	int failed;

	if (!tests)
		return 1;
	for (size_t i = 0; i < n; i++) {
		tests[i].name = cases[i].name;
		tests[i].test_func = run_case;
		tests[i].setup_func = setup_case;
		tests[i].teardown_func = teardown_case;
		tests[i].initial_state = (void *)(uintptr_t)&cases[i];
	}
	failed = _cmocka_run_group_tests(group, tests, n, NULL, NULL);
	free(tests);
	return failed;
}

#endif /* FC_TESTS_GUARD_CMOCKA_H */
