/* SPDX-License-Identifier: BSD-2-Clause */
/* What is told has a name, a text and a number. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <unistd.h>

#include "context.h"
#include "hash.h"
#include "support/entries.h"

static void each_status_has_a_name_and_a_text(void **state)
{
#define STATUS(name_, number_, text_) { name_, #name_, text_, number_ },
	static const struct { int value; const char *name, *text; int number; } all[] = { FC_STATUS_MAP(STATUS) };
	char buf[64];

	(void)state;
	for (size_t i = 0; i < COUNT(all); i++) {
		assert_int_equal(all[i].value, all[i].number);
		assert_string_equal(fc_status_name(all[i].value), all[i].name);
		assert_string_equal(fc_status_text(all[i].value), all[i].text);
		assert_string_equal(fc_status_text_r(all[i].value, buf, sizeof(buf)), all[i].text);
		assert_true(all[i].number < FC_STATS_REASONS);
		for (size_t k = 0; k < i; k++)
			assert_int_not_equal(all[i].number, all[k].number);
	}
}

/* Numbers and names that were released never change; new ones are added at the end. */
static void numbers_stand_for_what_they_have_always_stood_for(void **state)
{
	static const char *const statuses[] = {
		"FC_OK", "FC_REFUSED_CAP", "FC_REFUSED_RATE", "FC_REFUSED_BREAKER", "FC_REFUSED_QUEUE",
		"FC_REFUSED_DEADLINE", "FC_REFUSED_QUOTA", "FC_REFUSED_CUSTOM", "FC_REFUSED_WAIT",
		"FC_REFUSED_DRAINING", "FC_REFUSED_SYSTEM", "FC_REFUSED_FAULT", "FC_REFUSED_WEIGHT",
		"FC_REFUSED_INJECTED", "FC_REFUSED_ACCESS", "FC_REFUSED_DEGRADED", "FC_REFUSED_PRIORITY",
		"FC_REFUSED_ISOLATED", "FC_REFUSED_KEY",
	};
	static const char *const events[] = {
		NULL, "FC_EVENT_EXPANDED", "FC_EVENT_EXPAND_KEPT", "FC_EVENT_EXPAND_UNDONE", "FC_EVENT_LIMIT_BACK",
		"FC_EVENT_LIMIT_UNHEALTHY", "FC_EVENT_EXPAND_DENIED", "FC_EVENT_CAP_CHANGED", "FC_EVENT_PURGED",
		"FC_EVENT_WRITTEN_OFF", "FC_EVENT_WRITEOFF_USED_UP", "FC_EVENT_WRITEOFF_BACK", "FC_EVENT_STUCK",
		"FC_EVENT_UNSTUCK", "FC_EVENT_HEALTH_BAD", "FC_EVENT_HEALTH_GOOD", "FC_EVENT_SYSTEM_ON",
		"FC_EVENT_SYSTEM_OFF", "FC_EVENT_FAULT", "FC_EVENT_ADAPTED", "FC_EVENT_CLOCK", "FC_EVENT_LEAKED",
		"FC_EVENT_REFUSING", "FC_EVENT_ADMITTING", "FC_EVENT_BREAKER_OPENED", "FC_EVENT_BREAKER_HALF_OPEN",
		"FC_EVENT_BREAKER_RAMP", "FC_EVENT_BREAKER_CLOSED", "FC_EVENT_BREAKER_FORCED", "FC_EVENT_DEGRADED",
		"FC_EVENT_DEGRADE_PROBING", "FC_EVENT_DEGRADE_RAMP", "FC_EVENT_DEGRADE_OVER", "FC_EVENT_DEGRADE_SET",
		"FC_EVENT_DEGRADE_FAULT",
	};

	(void)state;
	for (int i = 0; i < (int)COUNT(statuses); i++)
		assert_string_equal(fc_status_name(i), statuses[i]);
	for (int i = 1; i < (int)COUNT(events); i++)
		assert_string_equal(fc_event_name(i), events[i]);
	assert_int_equal(FC_REFUSED_USER, 1000);
}

static void each_fault_has_a_name_and_a_text(void **state)
{
	static const struct { int value; const char *name; } all[] = {
		{ -EINVAL, "EINVAL" }, { -E2BIG, "E2BIG" }, { -ENOMEM, "ENOMEM" }, { -ENOSPC, "ENOSPC" },
		{ -ENAMETOOLONG, "ENAMETOOLONG" }, { -EILSEQ, "EILSEQ" }, { -EBUSY, "EBUSY" }, { -EAGAIN, "EAGAIN" },
		{ -EALREADY, "EALREADY" }, { -ESTALE, "ESTALE" }, { -ENODATA, "ENODATA" }, { FC_PENDING, "EINPROGRESS" },
	};

	(void)state;
	assert_int_equal(FC_PENDING, -EINPROGRESS);
	for (size_t i = 0; i < COUNT(all); i++) {
		assert_string_equal(fc_status_name(all[i].value), all[i].name);
		assert_true(strlen(fc_status_text(all[i].value)) > 3);
		assert_string_not_equal(fc_status_text(all[i].value), "unknown");
	}
}

static void an_unknown_status_is_said_to_be_unknown(void **state)
{
	char buf[32], tiny[4];

	(void)state;
	assert_string_equal(fc_status_name(500), "unknown");
	assert_string_equal(fc_status_text(-99999), "unknown");
	assert_string_equal(fc_status_text_r(500, buf, sizeof(buf)), "unknown (500)");
	assert_string_equal(fc_status_text_r(INT32_MIN, buf, sizeof(buf)), "unknown (-2147483648)");
	assert_string_equal(fc_status_text_r(500, tiny, sizeof(tiny)), "unk");
	assert_string_equal(fc_status_text_r(FC_OK, NULL, 0), "admitted");
	assert_string_equal(fc_status_name(FC_REFUSED_USER), "FC_REFUSED_USER");
	assert_string_equal(fc_status_name(4711), "FC_REFUSED_USER");
	assert_non_null(strstr(fc_status_text(4711), "own"));
}

static void each_event_has_its_name(void **state)
{
#define EVENT(name_, number_, level_, text_) { name_, #name_, number_, FC_LOG_##level_, text_ },
	static const struct { int value; const char *name; int number, level; const char *text; } all[] = { FC_EVENT_MAP(EVENT) };

	(void)state;
	for (size_t i = 0; i < COUNT(all); i++) {
		assert_int_equal(all[i].value, all[i].number);
		assert_int_equal(all[i].number, i + 1);
		assert_string_equal(fc_event_name(all[i].value), all[i].name);
		assert_true(all[i].text[0] != 0 && all[i].level <= FC_LOG_DEBUG);
	}
	assert_string_equal(fc_event_name(FC_EVENT_NONE), "unknown");
	assert_string_equal(fc_event_name((int)COUNT(all) + 1), "unknown");
	assert_string_equal(fc_event_name(-1), "unknown");
	assert_string_equal(fc_event_name(INT32_MIN), "unknown");
}

static void a_decision_becomes_an_answer_of_http(void **state)
{
#define NUMBER(name_, number_, text_) number_,
	static const int all[] = { FC_STATUS_MAP(NUMBER) FC_REFUSED_USER, INT32_MAX };
	static const struct { uint64_t ns; uint32_t s; } retry[] = {
		{ 0, 1 }, { 1, 1 }, { FC_MS(999), 1 }, { FC_S(1), 1 }, { FC_S(1) + 1, 2 }, { FC_S(60), 60 },
		{ FC_S(4294967294ull) + 1, UINT32_MAX }, { UINT64_MAX, UINT32_MAX },
	};
	FC_OPTS(fc_decision, d, .status = 0);

	(void)state;
	for (size_t i = 0; i < COUNT(all); i++) {
		d.status = all[i];
		assert_int_equal(fc_decision_http_status(&d), all[i] == FC_OK ? 200 :
		                 all[i] == FC_REFUSED_ACCESS ? 403 :
		                 all[i] == FC_REFUSED_RATE || all[i] == FC_REFUSED_QUOTA || all[i] == FC_REFUSED_KEY ? 429 : 503);
	}
	assert_int_equal(fc_decision_http_status(NULL), 200);
	for (size_t i = 0; i < COUNT(retry); i++) {
		d.retry_after_ns = retry[i].ns;
		assert_int_equal(fc_decision_retry_after_s(&d), retry[i].s);
	}
	assert_int_equal(fc_decision_retry_after_s(NULL), 1);
}

static void labels_are_hashed_by_key_and_value(void **state)
{
	struct fc_label a = fc_label("user", "alice"), b = fc_label("user", "bob"), c = fc_label("ip", "alice");
	struct fc_label none = fc_label(NULL, NULL), empty = fc_label("", "");
	struct fc_label four = fc_label_ip("ip", "192.0.2.7"), six = fc_label_ip("ip", "::ffff:192.0.2.7");
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000207) };
	struct fc_label addr = fc_label_addr("ip", (const struct sockaddr *)&in), text = fc_label_ip("ip", "nobody");

	(void)state;
	assert_true(a.key == b.key && a.value != b.value);
	assert_true(a.key != c.key && a.value == c.value);
	assert_true(none.key == empty.key && none.value == empty.value);
	assert_true(four.ip[0] == 0 && four.ip[1] == 0xffffc0000207ull && four.key == fc_label("ip", "").key);
	assert_true(six.value == four.value && addr.value == four.value && addr.ip[1] == four.ip[1]);
	assert_true(six.ip[1] == four.ip[1] && four.value != fc_label("ip", "192.0.2.7").value);
	assert_true(text.ip[0] == 0 && text.ip[1] == 0 && text.value == fc_label("ip", "nobody").value);
	in.sin_family = AF_UNIX;
	assert_true(fc_label_addr("ip", (const struct sockaddr *)&in).value == none.value);
	assert_true(fc_label_addr("ip", NULL).value == none.value);
}

/* The published vector, so that other programs and other versions give a label the same number. */
static void the_hash_is_siphash_2_4(void **state)
{
	const uint64_t key[2] = { 0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull };
	unsigned char in[15];

	(void)state;
	for (unsigned i = 0; i < sizeof(in); i++)
		in[i] = (unsigned char)i;
	assert_true(fci_siphash(key, in, sizeof(in)) == 0xa129ca6149be45e5ull);
	assert_true(fci_siphash(key, in, 8) == 0x93f5f5799a932462ull);
}

/* What the context says to standard error meanwhile. */
static void said_with(uint32_t flags, char *text, size_t bytes)
{
	FC_OPTS(fc_opts, o, .flags = flags, .clock = FC_CLOCK_VIRTUAL);
	int ends[2], was = dup(STDERR_FILENO);
	struct fc *own;
	ssize_t n;

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(fc_create(&own, &o), 0);
	fflush(stderr);
	dup2(ends[1], STDERR_FILENO);
	(void)fc_iface_set(own, "", NULL, NULL);
	fflush(stderr);
	dup2(was, STDERR_FILENO);
	close(was);
	close(ends[1]);
	n = read(ends[0], text, bytes - 1);
	text[n > 0 ? n : 0] = 0;
	close(ends[0]);
	fc_destroy(own);
}

static void a_context_speaks_to_standard_error_when_asked_to_and_is_silent_else(void **state)
{
	char text[512];

	(void)state;
	said_with(0, text, sizeof(text));
	assert_string_equal(text, "");
	said_with(FC_LOG_STDERR, text, sizeof(text));
	assert_int_equal(strncmp(text, "fcguard: error: interface name", 30), 0);
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

/* Numbers that rules files have written down. */
static void interceptors_stand_in_their_order(void **state)
{
	static const struct { const char *name; uint32_t order; } all[] = {
		{ "access", 100 }, { "degrade", 200 }, { "breaker", 300 }, { "priority", 400 }, { "isolate", 500 },
		{ "cap", 600 }, { "adaptive", 600 }, { "rate", 700 }, { "keyed", 800 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(all); i++)
		assert_int_equal(fc_interceptor_find(all[i].name)->order, all[i].order);
	assert_true(FC_ORDER_KEYED < FC_ORDER_QUOTA && FC_ORDER_QUOTA < FC_ORDER_USER);
}

static void an_admitted_entry_has_no_decision(void **state)
{
	FC_OPTS(fc_decision, d, .status = 7);
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	assert_int_equal(fc_entry_decision(&e, &d), -ENODATA);
	assert_int_equal(d.status, 0);
	assert_int_equal(fc_enter(&e, login, NULL), 0);
	d.status = 7;
	assert_int_equal(fc_entry_decision(&e, &d), -ENODATA);
	assert_int_equal(d.status, 0);
	assert_null(d.rule);
	fc_exit(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(each_status_has_a_name_and_a_text),
		T(numbers_stand_for_what_they_have_always_stood_for),
		T(each_fault_has_a_name_and_a_text),
		T(an_unknown_status_is_said_to_be_unknown),
		T(each_event_has_its_name),
		T(a_decision_becomes_an_answer_of_http),
		T(labels_are_hashed_by_key_and_value),
		T(the_hash_is_siphash_2_4),
		T(an_admitted_entry_has_no_decision),
		T(a_context_speaks_to_standard_error_when_asked_to_and_is_silent_else),
		T(interceptors_stand_in_their_order),
	};

	return cmocka_run_group_tests_name("texts", tests, NULL, NULL);
}
