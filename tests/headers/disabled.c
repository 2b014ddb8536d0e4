/* SPDX-License-Identifier: BSD-2-Clause */
/* With FC_DISABLE: a program of guards, calls on entries and objects alone, which is linked without the library
 * and runs every admitted branch. C and C++. */
#ifdef __cplusplus
#include <fcguard/fcguard.hpp>
#else
#include <fcguard/fcguard.h>
#endif
#include <stdio.h>

static int admitted;

static int busy(const struct fc_entry *e)
{
	struct fc_decision d;

	fc_opts_init(&d);
	(void)fc_entry_decision(e, &d);
	printf("%d %d %u\n", fc_entry_verdict(e), fc_decision_http_status(&d), (unsigned)fc_decision_retry_after_s(&d));
	return d.status;
}

static int function_scope(struct fc_iface *iface)
{
	struct fc_entry e FC_AUTO_EXIT = FC_ENTRY_INIT;
	struct fc_entry moved;

	if (fc_enter(&e, iface, NULL))
		return busy(&e);
	admitted++;
	if (fc_entry_suspend(&e) || fc_entry_resume(&e) || fc_entry_deadline_left(&e) != FC_NEVER_NS)
		return -1;
	fc_entry_mark(&e, FC_OUTCOME_ERROR);
	fc_entry_take(&moved, &e);
	fc_exit(&e);
	return fc_exit_status(&moved);
}

static void granted(void *arg, struct fc_entry *e, int verdict)
{
	(void)arg;
	(void)verdict;
	fc_exit(e);
}

static int by_callback(struct fc_iface *iface)
{
	struct fc_entry e = FC_ENTRY_INIT;
	int rc = fc_enter_async(&e, iface, NULL, granted, NULL);

	admitted += rc == 0;
	return fc_enter_cancel(&e);
}

static int blocks(struct fc_iface *iface, const char *name)
{
	FC_GUARD(e, name) {
		admitted++;
	} else {
		return busy(&e);
	}
	FC_GUARD_OR(return busy(&e), e, iface) {
		admitted++;
	}
	FC_GUARD_FN(e) {
		admitted++;
	} else {
		return busy(&e);
	}
	return FC_GUARD_CALL("database.query", -1, ++admitted) < 0;
}

#ifdef __cplusplus
static int objects(struct fc_iface *iface)
{
	fc::entry e{iface}, none;
	FC_ENTRY(named, "user.login");

	if (!e || none || !named || busy(e.get()) || e.decision().status)
		return -1;
	e.mark(FC_OUTCOME_TIMEOUT);
	none = std::move(e);
	none.exit();
	return e || none || named.verdict();
}
#else
static int objects(struct fc_iface *iface)
{
	(void)iface;
	return 0;
}
#endif

int main(void)
{
	int failed = function_scope(NULL) || by_callback(NULL) || blocks(NULL, "user.login") || objects(NULL);

	return failed || admitted != 6;
}
