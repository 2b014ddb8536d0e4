/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * priority.c - refuse by (business, user) priority under overload.
 *
 *   check   counts the call under its level, and refuses when that is over the threshold.
 *   window  ends after window_ns or window_calls; the call that meets its end and wins `window` counts
 *           what came by level and moves the threshold: down to the level up to which
 *           (1 - down) * let in came, or up to that of let in + up * came, at least one level.
 *           Overload: mean queueing over queue_ns, or bad health.
 *
 * Counts lie on the CPU's own lines and are written without locked operations: a thread that is moved
 * between load and store, or a window that is just being read, loses one. They steer; nothing is held.
 *
 * Units.   levels: priority * 128 + part of the user. Times in ns, of the context's clock.
 * Bounds.  After k overloaded windows at most (1 - down)^k of what was let in before them is let in, of
 *          a load that does not change; level 0 always is. One step a window, whatever the number of
 *          calls, interfaces and threads; windows without calls let nothing in, and refuse nothing.
 * Cost.    see bench: some loads and three plain stores.
 * Source.  Zhou et al., Overload Control for Scaling WeChat Microservices (SoCC 2018): levels, windows,
 *          alpha 5 %, beta 1 %, 20 ms of queueing.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <fcguard/context.h>
#include <fcguard/health.h>
#include <fcguard/iface.h>
#include <fcguard/priority.h>

#define LEVELS       FC_PRIORITY_LEVELS
#define PARTS        128u
#define BATCH        16u
/* What is known to be bad; a source that fails says nothing. */
#define BAD_HEALTH   (FC_HEALTH_BAD_CPU | FC_HEALTH_BAD_THROTTLED | FC_HEALTH_BAD_MEMORY | FC_HEALTH_BAD_PRESSURE | FC_HEALTH_BAD_LOAD)
#define QUEUE_MAX_NS FC_S(60) /* of one call: a wrong arrival must not say more */

struct cpu {
	uint64_t queued_ns; /* of the calls that said when they came */
	uint32_t queued, let_in;
	uint32_t n, resv; /* calls, for the end of a window */
	uint64_t resv2[5];
	uint32_t came[LEVELS];
};

struct group {
	uint32_t below;   /* LEVELS - 1 - threshold: how many levels are refused */
	uint32_t epoch;
	uint64_t window;  /* when the running window began; 0: none yet */
	uint32_t calls;   /* in the running window, to within BATCH a CPU */
	uint32_t resv;
	uint64_t resv2[5];
	struct cpu cpu[];
};

/* N1: numbers that steer; nothing is handed over by them. */
static uint32_t get32(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void set32(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

static uint64_t get64(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void set64(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

static uint32_t threshold_of(const struct group *g)
{
	uint32_t below = get32(&g->below);

	return below < LEVELS ? LEVELS - 1 - below : 0;
}

uint32_t fc_priority_level(uint32_t priority, uint64_t user, uint32_t epoch)
{
	uint64_t mixed = (user + epoch * 0x9e3779b97f4a7c15ull) * 0x9e3779b97f4a7c15ull;

	return (priority < 8 ? priority : 7) * PARTS + (uint32_t)(mixed >> 57);
}

/* ---- windows ----------------------------------------------------------------------------------- */

struct totals {
	uint64_t came, let_in, queued, queued_ns;
	uint32_t by_level[LEVELS];
};

/* What the window has counted; from here on the next one counts. */
static void collect(struct group *g, uint32_t cpus, struct totals *t)
{
	memset(t, 0, sizeof(*t));
	for (uint32_t i = 0; i < cpus; i++) {
		struct cpu *p = &g->cpu[i];

		t->let_in += get32(&p->let_in);
		t->queued += get32(&p->queued);
		t->queued_ns += get64(&p->queued_ns);
		set32(&p->let_in, 0);
		set32(&p->queued, 0);
		set64(&p->queued_ns, 0);
		for (uint32_t k = 0; k < LEVELS; k++) {
			uint32_t n = get32(&p->came[k]);

			if (n == 0)
				continue;
			t->by_level[k] += n;
			t->came += n;
			set32(&p->came[k], 0);
		}
	}
	set32(&g->calls, 0);
}

/* The highest level up to which no more than `target` calls came. */
static uint32_t level_of(const struct totals *t, uint64_t target)
{
	uint64_t sum = t->by_level[0];
	uint32_t level = 0;

	while (level + 1 < LEVELS && sum + t->by_level[level + 1] <= target)
		sum += t->by_level[++level];
	return level;
}

static uint32_t next_threshold(const struct fc_priority_conf *conf, const struct totals *t, uint32_t now, int overload)
{
	uint32_t level;

	if (overload) {
		level = level_of(t, t->let_in * (1000 - conf->down_permille) / 1000);
		return level < now ? level : now ? now - 1 : 0;
	}
	level = level_of(t, t->let_in + t->came * conf->up_permille / 1000);
	return level > now ? level : now + 1 < LEVELS ? now + 1 : now;
}

static void end_window(struct fc_call *c, struct group *g, uint32_t cpus)
{
	const struct fc_priority_conf *conf = c->conf;
	struct totals t;
	int overload;

	collect(g, cpus, &t);
	if (t.came == 0)
		return;
	overload = (t.queued && t.queued_ns / t.queued > conf->queue_ns) ||
	           (!conf->no_health && (fc_health_word(c->iface) & BAD_HEALTH) != 0);
	set32(&g->below, LEVELS - 1 - next_threshold(conf, &t, threshold_of(g), overload));
}

/* One caller ends a window: whoever wins its beginning. A clock that went back begins a new one. */
static void look_at_window(struct fc_call *c, struct group *g, uint32_t cpus)
{
	const struct fc_priority_conf *conf = c->conf;
	uint64_t begun = get64(&g->window), now = c->now_ns ? c->now_ns : 1;

	if (begun && now >= begun && now - begun < conf->window_ns && get32(&g->calls) < conf->window_calls)
		return;
	if (begun && now >= begun && now - begun < conf->window_ns / 100)
		return; /* many calls end it early, but not at any rate */
	/* N2: one wins; what it writes steers all. */
	if (__atomic_compare_exchange_n(&g->window, &begun, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) && begun)
		end_window(c, g, cpus);
}

/* ---- a call ------------------------------------------------------------------------------------ */

static void add32(uint32_t *p, uint32_t n)
{
	set32(p, get32(p) + n);
}

static void count(const struct fc_call *c, struct group *g, struct cpu *p, uint32_t level)
{
	uint64_t arrival = c->ctx->arrival_ns, queued;

	add32(&p->came[level], 1);
	add32(&p->n, 1);
	if (get32(&p->n) % BATCH == 0)
		/* N1. */
		__atomic_fetch_add(&g->calls, BATCH, __ATOMIC_RELAXED);
	if (!arrival)
		return;
	queued = c->now_ns > arrival ? c->now_ns - arrival : 0;
	set64(&p->queued_ns, get64(&p->queued_ns) + (queued < QUEUE_MAX_NS ? queued : QUEUE_MAX_NS));
	add32(&p->queued, 1);
}

static int priority_check(struct fc_call *c)
{
	const struct fc_priority_conf *conf = c->conf;
	struct group *g = conf->group_;
	const struct fc_label *user = fc_ctx_label(c->ctx, conf->label_);
	struct cpu *p = &g->cpu[c->cpu < conf->cpus_ ? c->cpu : 0];
	uint32_t level = fc_priority_level(c->ctx->priority, user ? user->value : 0, get32(&g->epoch)), threshold;

	count(c, g, p, level);
	look_at_window(c, g, conf->cpus_);
	threshold = threshold_of(g);
	if (level <= threshold) {
		add32(&p->let_in, 1);
		return 0;
	}
	c->observed = level;
	c->limit = threshold;
	c->retry_after_ns = conf->window_ns;
	return FC_REFUSED_PRIORITY;
}

/* ---- setting up -------------------------------------------------------------------------------- */

static int key_of(const char *group, char *key, size_t bytes)
{
	if (!group)
		group = "default";
	if (!*group || strlen(group) > FC_PRIORITY_NAME_MAX)
		return -EINVAL;
	snprintf(key, bytes, "priority.%s", group);
	return 0;
}

static uint64_t bytes_of(uint32_t cpus)
{
	return sizeof(struct group) + cpus * sizeof(struct cpu);
}

/* Defaults, and bounds. 0: they hold. */
static int complete(struct fc_setup *s, struct fc_priority_conf *conf)
{
	conf->queue_ns = conf->queue_ns ? conf->queue_ns : FC_MS(20);
	conf->window_ns = conf->window_ns ? conf->window_ns : FC_S(1);
	conf->window_calls = conf->window_calls ? conf->window_calls : 2000;
	conf->down_permille = conf->down_permille ? conf->down_permille : 50;
	conf->up_permille = conf->up_permille ? conf->up_permille : 10;
	if (conf->window_ns < FC_MS(10) || conf->window_ns > FC_S(60) || conf->window_calls < 100 ||
	    conf->down_permille > 500 || conf->up_permille > 500 || conf->queue_ns > QUEUE_MAX_NS) {
		fc_iface_log(s->iface, s->rule, "a window of 10 ms to 60 s and 100 calls or more, steps of 0.1 %% to 50 %%, "
		             "queueing of up to 60 s are allowed");
		return -EINVAL;
	}
	return 0;
}

static int priority_setup(struct fc_setup *s)
{
	struct fc_priority_conf *conf = s->conf;
	char key[FC_RULE_NAME_MAX + 1];
	int first;

	if (key_of(conf->group, key, sizeof(key)) < 0) {
		fc_iface_log(s->iface, s->rule, "a group's name has 1 to 38 bytes");
		return -EINVAL;
	}
	if (complete(s, conf) < 0)
		return -EINVAL;
	conf->group_ = fc_iface_shared(s->iface, key, bytes_of(s->cpus), &first);
	if (!conf->group_)
		return -ENOSPC;
	conf->label_ = fc_label(conf->label ? conf->label : "user", "").key;
	conf->cpus_ = s->cpus;
	conf->group = conf->label = NULL; /* they are the caller's */
	return 0;
}

/* The group as it is; NULL: there is none. */
static struct group *find(struct fc *fc, const char *group)
{
	char key[FC_RULE_NAME_MAX + 1];

	return fc && key_of(group, key, sizeof(key)) == 0 ? fc_shared_find(fc, key) : NULL;
}

int fc_priority_threshold(struct fc *fc, const char *group)
{
	const struct group *g = find(fc, group);

	return g ? (int)threshold_of(g) : -ENOENT;
}

int fc_priority_rotate(struct fc *fc, const char *group, uint32_t epoch)
{
	struct group *g = find(fc, group);

	if (!g)
		return -ENOENT;
	set32(&g->epoch, epoch);
	return 0;
}

#define AT(member_) offsetof(struct fc_priority_conf, member_)

static const struct fc_field fields[] = {
	{ .name = "group", .type = FC_FIELD_TEXT, .offset = AT(group), .min = 1, .max = FC_PRIORITY_NAME_MAX,
	  .help = "interfaces of one group share a threshold; default: all" },
	{ .name = "label", .type = FC_FIELD_TEXT, .offset = AT(label), .min = 1, .max = FC_PRIORITY_NAME_MAX,
	  .help = "the label whose value is the user; default: user" },
	{ .name = "queueing", .type = FC_FIELD_DURATION, .offset = AT(queue_ns), .min = 1, .max = QUEUE_MAX_NS,
	  .def = FC_MS(20), .help = "mean queueing before the guard that is overload" },
	{ .name = "window", .type = FC_FIELD_DURATION, .offset = AT(window_ns), .min = FC_MS(10), .max = FC_S(60),
	  .def = FC_S(1), .help = "the threshold moves once a window" },
	{ .name = "window_calls", .type = FC_FIELD_COUNT32, .offset = AT(window_calls), .min = 100, .max = 1000000000,
	  .def = 2000, .help = "or after so many calls" },
	{ .name = "down", .type = FC_FIELD_PERMILLE, .offset = AT(down_permille), .min = 1, .max = 500, .def = 50,
	  .help = "of what is let in, refused after an overloaded window" },
	{ .name = "up", .type = FC_FIELD_PERMILLE, .offset = AT(up_permille), .min = 1, .max = 500, .def = 10,
	  .help = "of what comes, let in after a window without overload" },
	{ .name = "ignore_health", .type = FC_FIELD_BOOL, .offset = AT(no_health), .max = 1,
	  .help = "queueing alone says overload" },
};

const struct fc_interceptor fc_interceptor_priority = {
	.size = sizeof(struct fc_interceptor),
	.order = FC_ORDER_PRIORITY,
	.name = "priority",
	.conf_bytes = sizeof(struct fc_priority_conf),
	.reason = FC_REFUSED_PRIORITY,
	.setup = priority_setup,
	.check = priority_check,
	.fields = fields,
	.n_fields = sizeof(fields) / sizeof(fields[0]),
};
