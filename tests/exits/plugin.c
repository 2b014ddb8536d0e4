/* SPDX-License-Identifier: BSD-2-Clause */
/* A plugin that uses guards; host.c loads it. */
#include <fcguard/fcguard.h>

int plugin_call(int value);
int plugin_leak(void);

int plugin_call(int value)
{
	FC_GUARD(e, "plugin.call") {
		return value + 1;
	} else {
		return -fc_entry_verdict(&e);
	}
	return 0;
}

/* Is inside when the caller's thread ends. */
int plugin_leak(void)
{
	static __thread struct fc_entry e;

	return fc_enter(&e, fc_iface_get(fc_default(), "plugin.call"), NULL);
}
