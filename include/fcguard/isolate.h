/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/isolate.h - bulkheads: interfaces, or callers of one, share a group's places; each member has
 * a share that nobody else can take, and may borrow from what nobody has a share in.
 *
 * A group has a cap. Of it each member has its `share` for itself; what is left is the pool, which all
 * may use, up to `most` places a member. So a member that hangs holds its share and the pool, and the
 * others still have theirs. Bound: all calls of a group together <= cap, a member's <= most, exactly; a
 * change holds for new calls at once (isolate.c says what that means for those inside).
 *
 *     struct fc_isolate_member m[] = { { "checkout", 20, 0 }, { "search", 5, 10 } };
 *     FC_OPTS(fc_isolate_opts, o, .cap = 40, .members = m, .n_members = 2);
 *
 *     fc_isolate_group(fc, "db", &o);
 *     struct fc_isolate_conf conf = { .group = "db", .member = "checkout" };
 *     struct fc_rule rule = { .interceptor = &fc_interceptor_isolate, .conf = &conf };
 *     fc_iface_set_chain(iface, &rule, 1);
 *
 * Threads.  fc_isolate_group() and fc_isolate_used() from any thread. Groups and their members' names
 *           are permanent: at most FC_ISOLATE_MEMBERS_MAX names in a group's life.
 * Memory.   About 7 KiB of the segment a group.
 * Cost.     One compare-and-swap a call and way, a second one while borrowing; a refusal only looks.
 */
#ifndef FC_ISOLATE_H
#define FC_ISOLATE_H

#include <fcguard/base.h>
#include <fcguard/interceptor.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FC_ISOLATE_MEMBERS_MAX 64
#define FC_ISOLATE_NAME_MAX    39

struct fc_isolate_member {
	const char *name; /* of an interface's part, or the value of a label */
	uint32_t share;   /* places for it alone */
	uint32_t most;    /* places it may have in all; 0: the group's cap */
};

struct fc_isolate_opts {
	uint32_t size;    /* sizeof(struct fc_isolate_opts) */
	uint32_t cap;     /* places of the group, 1..1000000 */
	uint32_t n_members;
	uint32_t resv;
	const struct fc_isolate_member *members;
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_isolate_opts, 24);
#endif

/*
 * Make a group, or give it other numbers: takes effect for new calls at once. A member that is not named
 * any more has no share. 0; -EINVAL (a line in the log says what is wrong: shares over the cap, a name
 * empty, too long or twice, share over most); -ENOSPC (segment full, or too many names).
 */
FC_API int fc_isolate_group(struct fc *fc, const char *group, const struct fc_isolate_opts *opts) FC_NOEXCEPT;

/* Places in use now: of a member's own share, and borrowed; member NULL: of the whole group, and of its
 * pool. 0; -ENOENT. */
FC_API int fc_isolate_used(struct fc *fc, const char *group, const char *member, uint32_t *ret_own,
                           uint32_t *ret_borrowed) FC_NOEXCEPT;

/* Which member a call is of. Texts need to live until fc_iface_set_chain() returns. */
struct fc_isolate_conf {
	const char *group;  /* must be there already */
	const char *member; /* one of the group; NULL: see label; both NULL: the interface's name, or the pool alone
	                     * when the group has no member of that name */
	const char *label;  /* the value of this label is the member; a call without it, or of another
	                     * value, uses the pool alone */
	void *group_;
	uint64_t label_;
	uint32_t member_, resv_;
};

FC_API extern const struct fc_interceptor fc_interceptor_isolate;

#ifdef __cplusplus
}
#endif
#endif /* FC_ISOLATE_H */
