/* SPDX-License-Identifier: BSD-2-Clause */
/* A program of a user: one place, so the second call is refused while the first is inside. */
#include <fcguard/fcguard.h>
#include <stdio.h>

int main(void)
{
	struct fc *fc;
	struct fc_iface *iface;
	struct fc_entry first FC_AUTO_EXIT = FC_ENTRY_INIT;
	int refused = 0;
	FC_OPTS(fc_iface_opts, opts, .cap = 1, .expand = 1);

	if (fc_version_number() != FC_VERSION_NUMBER || fc_create(&fc, NULL))
		return 1;
	if (fc_iface_set(fc, "user.login", &opts, &iface) || fc_enter(&first, iface, NULL))
		return 1;
	FC_GUARD(second, iface) {
		refused = 0;
	} else {
		refused = fc_entry_verdict(&second);
	}
	fc_exit(&first);
	fc_destroy(fc);
	printf("%s: %s\n", fc_version(), fc_status_name(refused));
	return refused == FC_REFUSED_CAP ? 0 : 1;
}
