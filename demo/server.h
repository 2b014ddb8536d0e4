/* SPDX-License-Identifier: BSD-2-Clause */
/* demo/server.h - what all handlers of the demo server do with a refusal and with a dependency. */
#ifndef DEMO_SERVER_H
#define DEMO_SERVER_H

#include <fcguard/fcguard.h>

#include "http.h"

struct dependency {
	const char *url;
	struct fc_iface *guard;
};

/* The answer to a refused call: 503 (429 for rates and quotas, 403 for lists), who refused it, and when to
 * try again. */
void refuse(struct http_request *r, const struct fc_entry *e);

/* Ask a dependency and pass its answer on; e is the handler's own entry. Blocks. */
void relay(struct http_request *r, struct fc_entry *e, const struct dependency *d);

#endif /* DEMO_SERVER_H */
