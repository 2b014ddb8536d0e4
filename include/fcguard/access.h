/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/access.h - lists of who may call, and who may not, by the value of a label.
 *
 *     const char *deny[] = { "mallory", "bot-*", "10.0.0.0/8", "2001:db8::/32" }, *allow[] = { "10.1.2.3" };
 *     struct fc_access_conf conf = { .label = "ip", .allow = { allow, 1 }, .deny = { deny, 4 } };
 *     struct fc_rule rule = { .interceptor = &fc_interceptor_access, .conf = &conf };
 *     fc_iface_set_chain(iface, &rule, 1);
 *
 * Entries.  "alice"        that value
 *           "bot-*"        values that begin so; * alone: all
 *           "10.0.0.0/8"   addresses of that network, of labels by fc_label_ip() and fc_label_addr()
 *           "192.0.2.7"    that address; and that value, of labels by fc_label()
 *           An IPv4 address and ::ffff:a.b.c.d are the same; ::/0 is of IPv6 alone.
 * Which.    The most specific entry decides: a value before a beginning, a longer beginning before a shorter
 *           one; a smaller network before a larger one. When a text and a network disagree: denied.
 *           None matches: `otherwise`.
 * Errors.   An entry twice, or in both lists, is one, as are bits of a network beyond its length: -EINVAL and
 *           a line in the log that names the list and the entry.
 * Threads.  Set up once for each chain, read by all. New lists come with a new chain, while calls run.
 * Memory.   Of the process, by the context's allocator: 32 to 64 bytes and the text a value or beginning; 18 to
 *           34 bytes a network, and 256 KiB for each of IPv4 and IPv6. A label without a text (fc_label.text)
 *           has no beginning.
 * Cost.     bench/RESULTS.md: access_100k. No atomic; of the length of the lists it depends hardly.
 */
#ifndef FC_ACCESS_H
#define FC_ACCESS_H

#include <fcguard/base.h>
#include <fcguard/field.h>
#include <fcguard/interceptor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fc_access_verdict { FC_ACCESS_ALLOW = 0, FC_ACCESS_DENY = 1, FC_ACCESS_VERDICT_FORCE_INT_ = INT32_MAX };

/* Calls without the label. */
enum fc_access_without {
	FC_ACCESS_WITHOUT_OTHERWISE = 0, /* as those that no entry matches */
	FC_ACCESS_WITHOUT_ALLOW = 1, FC_ACCESS_WITHOUT_DENY = 2,
	FC_ACCESS_WITHOUT_FORCE_INT_ = INT32_MAX
};

#define FC_ACCESS_MAX 4000000u /* entries of a list */

/* Zero means "default" in every field. Texts need to live until fc_iface_set_chain() returns. */
struct fc_access_conf {
	const char *label;     /* required */
	struct fc_texts allow, deny;
	uint32_t otherwise;    /* enum fc_access_verdict: default ALLOW; DENY for "only these" */
	uint32_t without;      /* enum fc_access_without */
	uint64_t label_;
	void *index_;
};
#if UINTPTR_MAX == UINT64_MAX
FC_OPTS_ASSERT(struct fc_access_conf, 64);
#endif

FC_API extern const struct fc_interceptor fc_interceptor_access;

/* What a rule (name NULL: "access") says to a label: 0; FC_REFUSED_ACCESS; -ENOENT: there is no such rule. */
FC_API FC_MUST_CHECK int fc_access_look(struct fc_iface *iface, const char *rule,
                                        const struct fc_label *label) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_ACCESS_H */
