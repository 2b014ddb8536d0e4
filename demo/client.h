/* SPDX-License-Identifier: BSD-2-Clause */
/* demo/client.h - a blocking HTTP GET over libcurl: one kept-alive connection per thread. */
#ifndef DEMO_CLIENT_H
#define DEMO_CLIENT_H

#include <stddef.h>

/* Once, before the first thread calls client_get(). 0 or -1. */
int client_init(void);

/*
 * Get url; its body, cut to len - 1 bytes, goes to body. Blocks for at most 30 seconds, which is
 * what servers in the field have: fine for one slow answer, the end of a pool of threads.
 * Returns 0; -ETIMEDOUT; -EIO (no connection, or not 200); -ENOMEM.
 */
int client_get(const char *url, char *body, size_t len);

#endif /* DEMO_CLIENT_H */
