/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard/rules.h - a whole server protected by one YAML file: interfaces by name or pattern, their caps
 * and times, their interceptors, the system's bounds. docs/rules.md describes the file.
 *
 *     FC_OPTS(fc_rules_error, err, .error = 0);
 *
 *     if (fc_rules_watch(fc, "/etc/server.yaml", &err) < 0)
 *             fprintf(stderr, "%s", err.text);
 *
 * All or nothing: everything in a file is checked, interceptors' own checks included, before anything is
 * changed; a bad file changes nothing, says why, and the old rules go on. Interfaces that are made later
 * get their rules when they are made. A rule that stays keeps its state (tokens, counts, breakers), calls
 * inside finish under the rules they began with, and an interface whose rules are the same as before is
 * not touched.
 *
 * Which number holds: what was set by hand over what was pushed over the file.
 *   by hand    fc_iface_set(), fc_iface_set_cap(), _dry_run() and _off() for an interface's numbers,
 *              fc_iface_set_chain() for its rules, fc_system_set() and fc_health_set() for those: each until
 *              fc_rules_hold() releases it
 *   pushed     FC_RULES_PUSHED, for interfaces that an entry of it names
 *   the file   FC_RULES_FILE
 *
 * Threads.  Any, at once; of loads into one layer the one that was called last wins. Calls through guards
 *           never wait. Not from callbacks of the library, nor from setup() of an interceptor.
 * Errors.   0 or a negative errno; err (may be NULL) says all that was found wrong, a line each, and so
 *           does the log. -ENOSYS from all of them: the library was built without libyaml.
 * Memory.   A file's content is kept, in malloc's memory (some 100 bytes a line), until the next takes its
 *           place. Reading is bounded: FC_RULES_BYTES_MAX, FC_RULES_DEPTH_MAX, FC_RULES_NODES_MAX.
 * Cost.     About 2 ms for a hundred entries that are new, less for those that are as before; nothing on the
 *           way of a call.
 */
#ifndef FC_RULES_H
#define FC_RULES_H

#include <fcguard/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fc;

#define FC_RULES_BYTES_MAX    (4u << 20)
#define FC_RULES_DEPTH_MAX    16u
#define FC_RULES_NODES_MAX    1000000u
#define FC_RULES_ENTRIES_MAX  65536u /* interfaces in a file */
#define FC_RULES_PATTERNS_MAX 1024u  /* of them, those with a * */
#define FC_RULES_ERRORS_MAX   20u    /* told at once */

enum fc_rules_layer {
	FC_RULES_FILE = 0,
	FC_RULES_PUSHED = 1, /* by a configuration centre */
	FC_RULES_LAYER_FORCE_INT_ = INT32_MAX
};

/* What is wrong. The text holds a line for each message, up to FC_RULES_ERRORS_MAX:
 *     FILE:LINE:COLUMN: key `interfaces/db/cap`: found "lots"; allowed: a number from 0 to 65536, unlimited */
struct fc_rules_error {
	uint32_t size;
	int32_t error;   /* as returned */
	uint32_t n;      /* messages */
	uint32_t line;   /* of the first; from 1; 0: of no line */
	uint32_t column;
	char text[8196]; /* ends with a newline and a zero; "" without an error */
};
FC_OPTS_ASSERT(struct fc_rules_error, 8216);

/*
 * Read a file and put it in force. Returns 0; -ENOENT, -EACCES, ... (it cannot be read); -EINVAL (it is
 * wrong); -E2BIG (over a bound above); -EAGAIN (it was being written: try again); -ENOMEM, -ENOSPC (no room
 * for what it wants). The path is kept for fc_rules_reload().
 */
FC_API int fc_rules_load(struct fc *fc, const char *path, struct fc_rules_error *err) FC_NOEXCEPT;

/* The same of a text. name: what messages call it. The layer's text before is gone. */
FC_API int fc_rules_load_text(struct fc *fc, int layer, const char *name, const char *text, size_t len,
                              struct fc_rules_error *err) FC_NOEXCEPT;

/* Read the file of the last fc_rules_load() or fc_rules_watch() again: on request. -ENOENT: there was none. */
FC_API int fc_rules_reload(struct fc *fc, struct fc_rules_error *err) FC_NOEXCEPT;

/*
 * Load a file, and again whenever it changes: fc_tick() looks at it once a second (so an idle context
 * wakes once a second), and a changed file is read by a short-lived thread when it has been the same for two
 * looks. Best replaced by rename(). What a change came to is in the log and in fc_rules_status(). Returns
 * what the first load does; the file is watched even if that fails (but for -EINVAL by a bad argument,
 * -ENAMETOOLONG, -ENOMEM). path NULL: watch no more.
 */
FC_API int fc_rules_watch(struct fc *fc, const char *path, struct fc_rules_error *err) FC_NOEXCEPT;

/* Take a layer away: interfaces go back to the other layer, or to their defaults. */
FC_API int fc_rules_clear(struct fc *fc, int layer) FC_NOEXCEPT;

/*
 * What was set by hand on an interface (name NULL: system bounds and health) gives way to the rules after
 * ttl_ns, in fc_tick(): 0 now; FC_NEVER_NS: when it is called again. Returns 0; -ENOENT (there is no such
 * interface, or nothing was set by hand); with ttl_ns 0 also errors of setting it as the rules say.
 */
FC_API int fc_rules_hold(struct fc *fc, const char *iface, uint64_t ttl_ns) FC_NOEXCEPT;

/*
 * Write which number of an interface (it need not exist) holds and why: which entry, pattern or default at
 * which line, or that it was set by hand. _file: as if the file were loaded in an empty context.
 * Returns 0 or a negative errno, of write() or of reading the file.
 */
FC_API int fc_rules_explain(struct fc *fc, const char *iface, int fd) FC_NOEXCEPT;
FC_API int fc_rules_explain_file(const char *path, const char *iface, int fd, struct fc_rules_error *err) FC_NOEXCEPT;

/* Everything that loading checks, without a context. Groups that the program makes are not known here. */
FC_API int fc_rules_check(const char *path, struct fc_rules_error *err) FC_NOEXCEPT;
FC_API int fc_rules_check_text(const char *name, const char *text, size_t len, struct fc_rules_error *err) FC_NOEXCEPT;

struct fc_rules_status {
	uint32_t size;
	int32_t last_error;   /* of the last load; 0 */
	uint64_t loads;       /* that succeeded */
	uint64_t failures;
	uint64_t changed;     /* interfaces that were given other numbers or rules, in all */
	uint64_t loaded_ns;   /* when the last success was, on the context's clock; 0: never */
	uint32_t watching;    /* 1: a file is watched */
	uint32_t held;        /* interfaces with something set by hand */
};
FC_OPTS_ASSERT(struct fc_rules_status, 48);

/* 0; -EINVAL. ret->size must be set. */
FC_API int fc_rules_status(struct fc *fc, struct fc_rules_status *ret) FC_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* FC_RULES_H */
