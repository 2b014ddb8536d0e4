/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/base.h - what every other public header needs: export marks, versions, options structs.
 *
 * Threads.  Nothing here has state.
 */
#ifndef FC_BASE_H
#define FC_BASE_H

#include <stddef.h>
#include <stdint.h>

#define FC_VERSION_MAJOR  0
#define FC_VERSION_MINOR  1
#define FC_VERSION_PATCH  0
#define FC_VERSION_NUMBER (FC_VERSION_MAJOR * 1000000 + FC_VERSION_MINOR * 1000 + FC_VERSION_PATCH)
/* The number in the soname. It grows when a program must be recompiled. */
#define FC_ABI_MAJOR      0

#if defined(__GNUC__)
#define FC_MUST_CHECK   __attribute__((__warn_unused_result__))
#define FC_VISIBLE_     __attribute__((__visibility__("default")))
#define FC_PRINTF_(f, a) __attribute__((__format__(__printf__, f, a)))
#else
#define FC_MUST_CHECK
#define FC_VISIBLE_
#define FC_PRINTF_(f, a)
#endif
#define FC_API FC_VISIBLE_

#ifdef __cplusplus
#define FC_STATIC_ASSERT(cond_, text_) static_assert(cond_, text_)
#define FC_NOEXCEPT noexcept
#else
#define FC_STATIC_ASSERT(cond_, text_) _Static_assert(cond_, text_)
#define FC_NOEXCEPT
#endif

/*
 * Options structs. The first member is `uint32_t size`, as the caller compiled it; zero means
 * "default" in every other field; fields are only ever appended. A library that is older than the
 * caller refuses with -E2BIG when a field it does not know is set, and never ignores it.
 *
 *     FC_OPTS(fc_iface_opts, o, .cap = 64);          C11; C++20 (g++ -Wextra wants
 *                                                    -Wno-missing-field-initializers)
 *     struct fc_iface_opts o; fc_opts_init(&o);      anywhere
 */
#define FC_OPTS(type_, name_, ...) struct type_ name_ = { .size = sizeof(struct type_), __VA_ARGS__ }
#define FC_OPTS_ASSERT(T_, bytes_) FC_STATIC_ASSERT(sizeof(T_) == (bytes_), "padding or ABI change")
#define fc_opts_init(o_) fc_opts_init_((o_), sizeof(*(o_)))

/* "No bound", where zero means "the default bound". */
#define FC_UNLIMITED UINT32_MAX
/* "Never" and "off" for times, where zero means the default time. */
#define FC_NEVER_NS  UINT64_MAX

#ifdef __cplusplus
extern "C" {
#endif

static inline void fc_opts_init_(void *opts, size_t size)
{
	unsigned char *p = (unsigned char *)opts;

	for (size_t i = 0; i < size; i++)
		p[i] = 0;
	*(uint32_t *)opts = (uint32_t)size;
}

/*
 * The library's version as linked: "0.1.0" and FC_VERSION_NUMBER of its own headers. A program
 * that wants to be sure compares fc_version_number() with FC_VERSION_NUMBER at start-up.
 * Any thread, any time, async-signal-safe.
 */
FC_API const char *fc_version(void) FC_NOEXCEPT;
FC_API uint32_t fc_version_number(void) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_BASE_H */
