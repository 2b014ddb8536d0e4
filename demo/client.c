/* SPDX-License-Identifier: BSD-2-Clause */
#include "client.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#define TIMEOUT_S 30L

static pthread_key_t key; /* the CURL handle of each thread */

static void cleanup(void *curl)
{
	curl_easy_cleanup(curl);
}

int client_init(void)
{
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return -1;
	return pthread_key_create(&key, cleanup) ? -1 : 0;
}

struct answer {
	char *body;
	size_t len, room;
};

static size_t on_body(char *data, size_t one, size_t len, void *arg)
{
	struct answer *a = arg;
	size_t n = len < a->room ? len : a->room;

	(void)one; /* always 1 */
	memcpy(a->body + a->len, data, n);
	a->len += n;
	a->room -= n;
	return len;
}

static CURL *handle(void)
{
	CURL *curl = pthread_getspecific(key);

	if (curl)
		return curl;
	curl = curl_easy_init();
	if (!curl)
		return NULL;
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, TIMEOUT_S);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
	pthread_setspecific(key, curl);
	return curl;
}

int client_get(const char *url, char *body, size_t len)
{
	struct answer a = { body, 0, len - 1 };
	CURL *curl = handle();
	long status = 0;
	CURLcode rc;

	if (!curl)
		return -ENOMEM;
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &a);
	rc = curl_easy_perform(curl);
	body[a.len] = '\0';
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	if (rc == CURLE_OPERATION_TIMEDOUT)
		return -ETIMEDOUT;
	return rc == CURLE_OK && status == 200 ? 0 : -EIO;
}
