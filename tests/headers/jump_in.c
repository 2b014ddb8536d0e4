/* SPDX-License-Identifier: BSD-2-Clause */
/* Must not compile: a jump into a guarded block. */
#include <fcguard/fcguard.h>

int jump_in(struct fc_iface *iface);

int jump_in(struct fc_iface *iface)
{
	goto inside;
	FC_GUARD(e, iface) {
	inside:
		return 1;
	}
	return 0;
}
