/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * demo/pages.c - pages of the shop that have no number in the code: rules.yaml says what guards them.
 *
 *     /advice   asks a dependency; a fallback answers when it is switched off
 *     /price    asks the same one, through a guard of its own
 *     /search   asks another one, for a user
 *     /cart /browse /mail /photo /film /order /admin    some work of their own
 *
 * A request says who it is from by X-User, X-Caller and X-Priority. All that rules need to know of a call
 * is told at the guard (tell_who()).
 */
#include "pages.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server.h"

static struct page {
	const char *path, *name;
	int work_ms;
	struct fc_iface *guard;
} pages[] = {
	{ "/cart", "shop.cart", 100, NULL },   { "/browse", "shop.browse", 100, NULL },
	{ "/mail", "shop.mail", 5, NULL },     { "/photo", "shop.photo", 20, NULL },
	{ "/film", "shop.film", 100, NULL },   { "/order", "shop.order", 100, NULL },
	{ "/admin", "shop.admin", 5, NULL },
};

#define N_PAGES (sizeof(pages) / sizeof(pages[0]))

static struct dependency advice_service, price_service, search_service;

/* Labels and priority of the caller, and since when he waits. */
static void tell_who(const struct http_request *r, struct fc_ctx *ctx, struct fc_label labels[2])
{
	const char *user = http_header(r, "X-User"), *caller = http_header(r, "X-Caller");
	const char *priority = http_header(r, "X-Priority");

	ctx->labels = labels;
	if (user)
		labels[ctx->n_labels++] = fc_label("user", user);
	if (caller)
		labels[ctx->n_labels++] = fc_label("caller", caller);
	if (priority)
		ctx->priority = priority[0] >= '0' && priority[0] < '7' && !priority[1] ? (uint32_t)(priority[0] - '0') : 7;
	ctx->arrival_ns = fc_now_ns(fc_default()) - http_waited_ns(r);
}

static struct page *find(const char *path)
{
	for (size_t i = 0; i < N_PAGES; i++)
		if (strcmp(pages[i].path, path) == 0)
			return &pages[i];
	return NULL;
}

void get_page(struct http_request *r)
{
	const struct page *p = find(http_path(r));
	const struct timespec work = { 0, p->work_ms * 1000000L };
	struct fc_label labels[2];
	FC_OPTS(fc_ctx, ctx, .weight = 1);

	tell_who(r, &ctx, labels);
	FC_GUARD(e, p->guard, &ctx) {
		http_count(r);
		nanosleep(&work, NULL);
		http_reply(r, 200, "done\n");
	} else {
		refuse(r, &e);
	}
}

/* Of a refused call of /advice: better than nothing, and it costs nothing. */
static int yesterdays_advice(void *arg, const struct fc_decision *why, void *call)
{
	struct http_request *r = call;

	(void)arg, (void)why;
	http_reply(r, 200, "our advice of yesterday\n");
	http_reply_header(r, "X-Answered-By", "fallback");
	return 0;
}

void get_advice(struct http_request *r)
{
	int rc = 0;

	FC_GUARD_OR_FALLBACK(rc, r, e, "shop.advice") {
		http_count(r);
		relay(r, &e, &advice_service);
	} else {
		refuse(r, &e);
	}
}

void get_price(struct http_request *r)
{
	FC_GUARD(e, "shop.price") {
		http_count(r);
		relay(r, &e, &price_service);
	} else {
		refuse(r, &e);
	}
}

void get_search(struct http_request *r)
{
	struct fc_label labels[2];
	FC_OPTS(fc_ctx, ctx, .weight = 1);

	tell_who(r, &ctx, labels);
	FC_GUARD(e, "shop.search", &ctx) {
		http_count(r);
		relay(r, &e, &search_service);
	} else {
		refuse(r, &e);
	}
}

int pages_init(struct fc *fc, const char *sick, const char *stock)
{
	for (size_t i = 0; i < N_PAGES; i++)
		pages[i].guard = fc_iface_get(fc, pages[i].name);
	advice_service = (struct dependency){ sick, fc_iface_get(fc, "dep.advice") };
	price_service = (struct dependency){ sick, fc_iface_get(fc, "dep.price") };
	search_service = (struct dependency){ stock, fc_iface_get(fc, "dep.search") };
	return fc_iface_fallback(fc_iface_get(fc, "shop.advice"), yesterdays_advice, NULL);
}
