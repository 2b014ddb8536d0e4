/* SPDX-License-Identifier: BSD-2-Clause */
/* demo/pages.h - the pages of the shop whose guards get their numbers from a rules file. */
#ifndef DEMO_PAGES_H
#define DEMO_PAGES_H

#include <fcguard/fcguard.h>

#include "http.h"

/* Handles and the fallback; once, before the pages are served. sick: what /advice and /price ask;
 * stock: what /search asks. The URLs must stay. 0 or a negative errno. */
int pages_init(struct fc *fc, const char *sick, const char *stock);

void get_advice(struct http_request *r);
void get_price(struct http_request *r);
void get_search(struct http_request *r);
void get_page(struct http_request *r); /* /cart /browse /mail /photo /film /order /admin */

#endif /* DEMO_PAGES_H */
