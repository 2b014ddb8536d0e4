/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events: each kind has its text and level, is told at most once a second of an interface, and those that
 * no other test meets are brought about here. tests/lint checks that each kind is named by some test.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcguard/health.h>

#include "lib/events.h"
#include "support/guarded.h"

static struct guarded g;
static char lines[16384]; /* of the log: level, a space, the line */
static uint32_t cpu_permille;

static void keep_line(void *arg, int level, const char *line)
{
	size_t used = strlen(lines);

	(void)arg;
	snprintf(lines + used, sizeof(lines) - used, "%d %s\n", level, line);
}

static int supplied(void *arg, struct fc_health_sample *s)
{
	(void)arg;
	s->valid = FC_HEALTH_CPU;
	s->cpu_permille = cpu_permille;
	return 0;
}

static void open_with(const struct fc_iface_opts *o)
{
	cpu_permille = 100;
	guarded_open(&g, o);
	g.fc->log = keep_line;
	assert_int_equal(fc_health_set_source(g.fc, supplied, NULL), 0);
	fc_tick(g.fc, FC_S(1));
	g.n_events = 0;
	lines[0] = 0;
}

static int teardown(void **state)
{
	(void)state;
	return g.fc ? guarded_close(&g) : 0;
}

static void pass_and_tick(uint64_t ns)
{
	guarded_pass(&g, ns);
	fc_tick(g.fc, FC_S(1));
}

/* ---- texts ------------------------------------------------------------------------------------- */

#define KIND(name_, number_, level_, text_) { name_, FC_LOG_##level_, #name_, text_ },
static const struct {
	int kind, level;
	const char *name, *text;
} kinds[] = { FC_EVENT_MAP(KIND) };
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void each_kind_has_a_name_a_level_and_a_text_with_its_values(void **state)
{
	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 4, .expand = 1 });
	assert_string_equal(fc_event_name(FC_EVENT_NONE), "unknown");
	assert_string_equal(fc_event_name((int)KINDS + 1), "unknown");
	assert_string_equal(fc_event_name(-1), "unknown");
	for (size_t i = 0; i < KINDS; i++) {
		char first[64];

		assert_int_equal(kinds[i].kind, i + 1);
		assert_string_equal(fc_event_name(kinds[i].kind), kinds[i].name);
		g.n_events = 0;
		lines[0] = 0;
		fc_event_note(g.f, kinds[i].kind, 3, 5);
		pass_and_tick(FC_MS(1));
		assert_int_equal(g.n_events, 1);
		assert_int_equal(g.events[0].kind, kinds[i].kind);
		assert_true(g.events[0].a == 3 && g.events[0].b == 5);
		assert_string_equal(g.events[0].iface, "guarded");
		snprintf(first, sizeof(first), "%d guarded: %.*s", kinds[i].level, (int)strcspn(kinds[i].text, "{"), kinds[i].text);
		assert_int_equal(strncmp(lines, first, strlen(first)), 0);
		assert_null(strpbrk(lines, "{}"));
		/* A value that the text carries is there. */
		if (strstr(kinds[i].text, "{a}"))
			assert_non_null(strstr(lines + 2, "3"));
		if (strstr(kinds[i].text, "{b}"))
			assert_non_null(strstr(lines + 2, "5"));
		assert_null(strstr(lines, "unknown"));
	}
}

static void each_form_of_a_value_is_written_out(void **state)
{
	static const struct {
		int kind;
		uint64_t a, b;
		const char *text;
	} t[] = {
		{ FC_EVENT_STUCK, 1, FC_MS(6500), "1 call overdue, oldest 6.5 s\n" },
		{ FC_EVENT_STUCK, 2, 999, "2 calls overdue, oldest 999 ns\n" },
		{ FC_EVENT_BREAKER_OPENED, FC_US(20), 3, "breaker open for 20 us: 3 calls failed or slow\n" },
		{ FC_EVENT_ADMITTING, FC_MS(20), 7, "refused nobody for 20 ms; 7 were refused before\n" },
		{ FC_EVENT_FAULT, (uint64_t)-12, 0, "the guard failed: " },
		{ FC_EVENT_REFUSING, FC_REFUSED_CAP, 9, "(places: 9)\n" },
		{ FC_EVENT_REFUSING, FC_REFUSED_RATE, FC_UNLIMITED, "refusing: rate limit reached\n" },
		{ FC_EVENT_EXPAND_DENIED, 8, FC_DENIED_HEALTH | (uint64_t)FC_HEALTH_UNKNOWN << 32, "health is not good: not known yet\n" },
		{ FC_EVENT_SYSTEM_ON, FC_SYSTEM_CPU, 3, "over the system's bound of cpu: refusing importance 3 to 7\n" },
		{ FC_EVENT_SYSTEM_ON, FC_SYSTEM_LOAD, 3, "bound of load:" },
		{ FC_EVENT_SYSTEM_ON, FC_SYSTEM_IN_FLIGHT, 3, "bound of in_flight:" },
		{ FC_EVENT_SYSTEM_ON, FC_SYSTEM_RATE, 3, "bound of rate:" },
		{ FC_EVENT_SYSTEM_ON, FC_SYSTEM_LATENCY, 3, "bound of avg_latency:" },
		{ FC_EVENT_BREAKER_FORCED, FC_SET_AUTO, 0, "by hand: automatic\n" },
		{ FC_EVENT_BREAKER_FORCED, FC_SET_OPEN, 0, "by hand: open\n" },
		{ FC_EVENT_BREAKER_FORCED, FC_SET_CLOSED, 0, "by hand: closed\n" },
		{ FC_EVENT_DEGRADE_FAULT, FC_SET_ON, 0, "what it needs: on\n" },
		{ FC_EVENT_DEGRADE_FAULT, FC_SET_OFF, 0, "what it needs: off\n" },
	};

	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 4, .expand = 1 });
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		lines[0] = 0;
		fc_event_note(g.f, t[i].kind, t[i].a, t[i].b);
		pass_and_tick(FC_MS(1100));
		assert_non_null(strstr(lines, t[i].text));
	}
}

static void each_reason_of_a_denied_expansion_has_a_text(void **state)
{
	static const struct {
		int why;
		const char *text;
	} reasons[] = {
		{ FC_DENIED_OFF, "expansion is off" }, { FC_DENIED_AT_MOST, "it is as high as it may be" },
		{ FC_DENIED_HEALTH, "health is not good" }, { FC_DENIED_OVERDUE, "the calls inside are overdue" },
		{ FC_DENIED_UNDONE, "the last step did not help" }, { FC_DENIED_JUDGING, "the last step is being judged" },
		{ FC_DENIED_MEMORY, "no room for more places in the segment" },
	};

	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 4, .expand = 1 });
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		assert_int_equal(reasons[i].why, i + 1);
		lines[0] = 0;
		fc_event_note(g.f, FC_EVENT_EXPAND_DENIED, 4, (uint64_t)reasons[i].why);
		pass_and_tick(FC_MS(1100));
		assert_non_null(strstr(lines, "limit 4 reached and not raised: "));
		assert_non_null(strstr(lines, reasons[i].text));
	}
	lines[0] = 0;
	fc_event_note(g.f, FC_EVENT_EXPAND_DENIED, 4, (uint64_t)FC_HEALTH_BAD_MEMORY << 32 | FC_DENIED_HEALTH);
	pass_and_tick(FC_MS(1100));
	assert_non_null(strstr(lines, "health is not good: memory too full"));
	lines[0] = 0;
	fc_event_note(g.f, FC_EVENT_EXPAND_DENIED, 4, sizeof(reasons) / sizeof(reasons[0]) + 1);
	pass_and_tick(FC_MS(1100));
	assert_non_null(strstr(lines, "not raised: unknown"));
}

/* ---- how often --------------------------------------------------------------------------------- */

static void a_kind_is_told_once_a_second_of_an_interface_and_the_rest_counted(void **state)
{
	FC_OPTS(fc_totals, t, .ifaces = 0);
	struct fc_iface *other;

	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 4, .expand = 1 });
	other = fc_iface_get(g.fc, "other");
	for (uint64_t i = 0; i < 10; i++) {
		fc_event_note(g.f, FC_EVENT_PURGED, i, 0);
		fc_event_note(other, FC_EVENT_PURGED, i, 0);
		fc_event_note(g.f, FC_EVENT_LEAKED, i, 0);
		pass_and_tick(FC_MS(50));
	}
	assert_int_equal(guarded_events(&g, FC_EVENT_PURGED), 2);
	assert_int_equal(guarded_events(&g, FC_EVENT_LEAKED), 1);
	assert_int_equal(guarded_last(&g, FC_EVENT_LEAKED)->a, 0);
	guarded_pass(&g, FC_S(1));
	fc_event_note(g.f, FC_EVENT_PURGED, 99, 0);
	fc_tick(g.fc, FC_S(1));
	assert_int_equal(guarded_events(&g, FC_EVENT_PURGED), 3);
	assert_int_equal(guarded_last(&g, FC_EVENT_PURGED)->a, 99);
	assert_int_equal(guarded_last(&g, FC_EVENT_PURGED)->suppressed, 9);
	assert_non_null(strstr(lines, "(9 suppressed)"));
	assert_int_equal(fc_totals(g.fc, &t), 0);
	assert_int_equal(t.events_suppressed, 27);
}

static void more_notes_than_there_is_room_for_are_counted(void **state)
{
	FC_OPTS(fc_totals, t, .ifaces = 0);

	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 4, .expand = 1 });
	for (uint64_t i = 0; i < FCI_NOTES + 44; i++)
		fc_event_note(g.f, FC_EVENT_PURGED, i, 0);
	fc_tick(g.fc, FC_S(1));
	assert_int_equal(guarded_events(&g, FC_EVENT_PURGED), 1);
	assert_int_equal(fc_totals(g.fc, &t), 0);
	assert_int_equal(t.events_suppressed, FCI_NOTES + 44 - 1);
}

/* ---- brought about ----------------------------------------------------------------------------- */

static void a_changed_cap_is_told_once_with_old_and_new(void **state)
{
	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 4, .expand = 1 });
	assert_int_equal(fc_iface_set_cap(g.f, 9), 0);
	pass_and_tick(FC_S(2));
	assert_int_equal(guarded_events(&g, FC_EVENT_CAP_CHANGED), 1);
	assert_true(g.events[0].a == 4 && g.events[0].b == 9);
	assert_non_null(strstr(lines, "2 guarded: cap changed from 4 to 9\n"));
	assert_int_equal(fc_iface_set_cap(g.f, 9), 0);
	assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 9, .expand = 2 }), 0);
	pass_and_tick(FC_S(2));
	assert_int_equal(guarded_events(&g, FC_EVENT_CAP_CHANGED), 1);
	assert_int_equal(guarded_iface(&g, &(struct fc_iface_opts){ .cap = 2 }), 0);
	pass_and_tick(FC_S(2));
	assert_int_equal(guarded_events(&g, FC_EVENT_CAP_CHANGED), 2);
}

static void health_is_told_when_it_turns_bad_and_when_it_is_good_again(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT;

	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 4, .expand = 1 });
	assert_int_equal(fc_enter(&e, g.f, NULL), 0); /* sampling rests while nobody comes */
	for (int i = 0; i < 20; i++)
		pass_and_tick(FC_MS(250));
	assert_int_equal(guarded_events(&g, FC_EVENT_HEALTH_GOOD), 0);
	cpu_permille = 990;
	for (int i = 0; i < 20; i++)
		pass_and_tick(FC_MS(250));
	assert_int_equal(guarded_events(&g, FC_EVENT_HEALTH_BAD), 1);
	assert_true(guarded_last(&g, FC_EVENT_HEALTH_BAD)->a & FC_HEALTH_BAD_CPU);
	assert_int_equal(guarded_events(&g, FC_EVENT_HEALTH_GOOD), 0);
	cpu_permille = 100;
	for (int i = 0; i < 20; i++)
		pass_and_tick(FC_MS(250));
	assert_int_equal(guarded_events(&g, FC_EVENT_HEALTH_GOOD), 1);
	assert_int_equal(guarded_events(&g, FC_EVENT_HEALTH_BAD), 1);
	assert_non_null(strstr(lines, "1 health turned bad: "));
	assert_non_null(strstr(lines, "2 health is good again\n"));
	fc_exit(&e);
}

static void refusing_is_told_when_it_begins_and_when_it_is_over(void **state)
{
	struct fc_entry e = FC_ENTRY_INIT, no = FC_ENTRY_INIT;

	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 1, .expand = 1 });
	assert_int_equal(fc_enter(&e, g.f, NULL), 0);
	for (int i = 0; i < 12; i++) {
		assert_int_equal(fc_enter(&no, g.f, NULL), FC_REFUSED_CAP);
		pass_and_tick(FC_S(1));
	}
	assert_int_equal(guarded_events(&g, FC_EVENT_REFUSING), 1);
	assert_int_equal(guarded_events(&g, FC_EVENT_ADMITTING), 0);
	assert_non_null(strstr(lines, "1 guarded: refusing: "));
	assert_non_null(strstr(lines, "(places: 1)\n"));
	for (int i = 0; i < 12; i++)
		pass_and_tick(FC_S(1));
	assert_int_equal(guarded_events(&g, FC_EVENT_ADMITTING), 1);
	assert_int_equal(guarded_last(&g, FC_EVENT_ADMITTING)->b, 12);
	assert_in_range(guarded_last(&g, FC_EVENT_ADMITTING)->a, FC_S(5), FC_S(7));
	assert_non_null(strstr(lines, "2 guarded: refused nobody for "));
	fc_exit(&e);
}

/* Full for a while, calls coming and going. */
static void full_for(struct fc_entry *e, uint32_t n, uint64_t ns)
{
	struct fc_entry no = FC_ENTRY_INIT;
	uint32_t i = 0;

	for (uint64_t end = g.now + ns; g.now < end; i++) {
		fc_exit(&e[i % n]);
		assert_int_equal(guarded_fill(&g, &e[i % n], 1), 1);
		if (fc_enter(&no, g.f, NULL) == 0)
			fc_exit(&no);
		pass_and_tick(FC_MS(50));
	}
}

static void without_room_in_the_segment_the_limit_stays_and_that_is_told(void **state)
{
	struct fc_entry e[16];

	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 16, .expand = 4, .expand_keep = FC_EXPAND_KEEP_HEALTH });
	for (uint64_t bytes = 1 << 20; bytes >= FCI_CACHELINE; bytes /= 2)
		while (fci_arena_take(g.fc, bytes))
			;
	assert_int_equal(guarded_fill(&g, e, 16), 16);
	full_for(e, 16, FC_S(2));
	assert_int_equal(guarded_stats(&g).limit, 16);
	assert_int_equal(guarded_events(&g, FC_EVENT_EXPANDED), 0);
	assert_true(guarded_events(&g, FC_EVENT_EXPAND_DENIED) > 0);
	assert_int_equal(guarded_last(&g, FC_EVENT_EXPAND_DENIED)->a, 16);
	assert_int_equal(guarded_last(&g, FC_EVENT_EXPAND_DENIED)->b, FC_DENIED_MEMORY);
	assert_non_null(strstr(lines, "limit 16 reached and not raised: no room for more places in the segment"));
	guarded_empty(e, 16);
}

/* These two are no news: nobody asked for more, or the answer comes with the judgement. */
static void expansion_that_is_off_or_judged_is_not_told_as_denied(void **state)
{
	struct fc_entry e[32];

	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 8, .expand = 1 }); /* FC_DENIED_OFF */
	assert_int_equal(guarded_fill(&g, e, 8), 8);
	full_for(e, 8, FC_S(5));
	assert_int_equal(guarded_events(&g, FC_EVENT_EXPAND_DENIED), 0);
	guarded_empty(e, 8);
	assert_int_equal(guarded_close(&g), 0);
	open_with(&(struct fc_iface_opts){ .cap = 8, .expand = 4, .expand_keep = FC_EXPAND_KEEP_HEALTH });
	assert_int_equal(guarded_fill(&g, e, 8), 8);
	pass_and_tick(FC_MS(300)); /* health is known */
	full_for(e, 8, FC_MS(100));
	assert_int_equal(guarded_events(&g, FC_EVENT_EXPANDED), 1);
	assert_int_equal(guarded_fill(&g, &e[8], 8), 8);
	full_for(e, 16, FC_MS(500)); /* FC_DENIED_JUDGING */
	assert_int_equal(guarded_events(&g, FC_EVENT_EXPAND_DENIED), 0);
	assert_int_equal(guarded_stats(&g).limit, 16);
	guarded_empty(e, 16);
}

static void outcome(int what, unsigned n)
{
	while (n-- > 0) {
		struct fc_entry e = FC_ENTRY_INIT;

		if (fc_enter(&e, g.f, NULL) == 0)
			fc_entry_mark(&e, what);
		fc_exit(&e);
	}
}

static void degrading_is_told_all_the_way_back(void **state)
{
	struct fc_degrade_conf conf = { .trip = { .errors = 5, .recover = FC_RECOVER_RAMP } };
	struct fc_rule rule = { .interceptor = &fc_interceptor_degrade, .conf = &conf };

	(void)state;
	open_with(&(struct fc_iface_opts){ .cap = 8, .expand = 1 });
	assert_int_equal(fc_iface_set_chain(g.f, &rule, 1), 0);
	for (int way = 0; way < 2; way++) {
		outcome(FC_OUTCOME_ERROR, 20);
		for (int i = 0; i < 600; i++) {
			pass_and_tick(FC_MS(500));
			outcome(FC_OUTCOME_OK, 20);
		}
		assert_true(guarded_events(&g, FC_EVENT_DEGRADED) == (unsigned)way + 1);
		assert_true(guarded_events(&g, FC_EVENT_DEGRADE_OVER) == (unsigned)way + 1);
		conf.trip.recover = FC_RECOVER_SUCCESSES;
		assert_int_equal(fc_iface_set_chain(g.f, &rule, 1), 0);
	}
	assert_true(guarded_events(&g, FC_EVENT_DEGRADE_RAMP) >= 1);
	assert_true(guarded_events(&g, FC_EVENT_DEGRADE_PROBING) >= 1);
	assert_non_null(strstr(lines, "1 guarded: degraded for "));
	assert_non_null(strstr(lines, "2 guarded: less degraded: lets in "));
	assert_non_null(strstr(lines, " at once may probe\n"));
	assert_non_null(strstr(lines, "2 guarded: not degraded any more: "));
	assert_int_equal(fc_degrade_fault(g.f, NULL, 1), 0);
	pass_and_tick(FC_S(2));
	assert_int_equal(guarded_last(&g, FC_EVENT_DEGRADE_FAULT)->a, FC_SET_ON);
	assert_int_equal(fc_degrade_fault(g.f, NULL, 0), 0);
	pass_and_tick(FC_S(2));
	assert_int_equal(guarded_last(&g, FC_EVENT_DEGRADE_FAULT)->a, FC_SET_OFF);
}

int main(void)
{
#define T(f_) cmocka_unit_test_teardown(f_, teardown)
	static const struct CMUnitTest tests[] = {
		T(each_kind_has_a_name_a_level_and_a_text_with_its_values),
		T(each_form_of_a_value_is_written_out),
		T(each_reason_of_a_denied_expansion_has_a_text),
		T(a_kind_is_told_once_a_second_of_an_interface_and_the_rest_counted),
		T(more_notes_than_there_is_room_for_are_counted),
		T(a_changed_cap_is_told_once_with_old_and_new),
		T(health_is_told_when_it_turns_bad_and_when_it_is_good_again),
		T(refusing_is_told_when_it_begins_and_when_it_is_over),
		T(without_room_in_the_segment_the_limit_stays_and_that_is_told),
		T(expansion_that_is_off_or_judged_is_not_told_as_denied),
		T(degrading_is_told_all_the_way_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
