/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rules.h - inside of rules files: text -> tree (rules_yaml.c) -> values (rules_value.c) -> confs by tables
 * (rules_conf.c) -> document (rules_doc.c) -> trial (rules_try.c) -> in force (rules.c). A file becomes a
 * document without a context, a document is never changed, and setting it is short, under fc->setup.
 */
#ifndef FCI_RULES_H
#define FCI_RULES_H

#include <fcguard/rules.h>

#include "context.h"

/* ---- memory of one document -------------------------------------------------------------------- */

struct fci_pool_block;
struct fci_pool {
	struct fci_pool_block *blocks;
	size_t left;
	char *next;
};

void *fci_pool_take(struct fci_pool *p, size_t bytes); /* zeroed, aligned; NULL: no memory */
char *fci_pool_text(struct fci_pool *p, const char *text, size_t len);
void fci_pool_free(struct fci_pool *p);

/* ---- the tree ---------------------------------------------------------------------------------- */

enum fci_node_kind { FCI_SCALAR, FCI_MAP, FCI_LIST };

struct fci_mark {
	uint32_t line, column; /* from 1 */
};

struct fci_node {
	struct fci_node *next;  /* in the same map or list */
	struct fci_node *first; /* of a map or list */
	const char *key;        /* in a map */
	const char *text;       /* of a scalar */
	struct fci_mark at, key_at;
	uint32_t n;             /* in a map or list */
	enum fci_node_kind kind;
};

/* While a document is made: where messages go, and the path of keys that they name. */
struct fci_parse {
	const char *file;
	struct fc_rules_error *err; /* never NULL */
	struct fci_pool *pool;
	uint32_t nodes;
	size_t path_len;
	char path[512];
};

/* The tree of a text; NULL: err says why. */
struct fci_node *fci_yaml_read(struct fci_parse *p, const char *text, size_t len);

struct fci_node *fci_node_get(const struct fci_node *map, const char *key);
int fci_node_equal(const struct fci_node *a, const struct fci_node *b);

/* One message. error is what the load returns, unless an earlier one said otherwise. */
void fci_rules_bad(struct fci_parse *p, int error, struct fci_mark at, const char *format, ...) FC_PRINTF_(4, 5);
int fci_rules_full(const struct fci_parse *p); /* enough was said */

/* Go into a key, and back: `size_t was = fci_path_in(p, key); ...; fci_path_out(p, was);` */
size_t fci_path_in(struct fci_parse *p, const char *key);
void fci_path_out(struct fci_parse *p, size_t was);

/* ---- values and tables ------------------------------------------------------------------------- */

/* Words that stand for a number, beside those of the type. The list ends with a NULL text. */
struct fci_word {
	const char *text;
	uint64_t value;
};

struct fci_key {
	struct fc_field field;
	const struct fci_word *words;
	const struct fci_key *sub; /* a map of its own, whose members lie in the same struct */
	uint32_t n_sub;
	const char *unsaid;        /* what holds when nothing is said */
};

/* What is said to whoever writes something else. */
#define FCI_ALLOWED_BYTES 256
void fci_value_allowed(char *buf, size_t len, const struct fc_field *f, const struct fci_word *words);

/* A scalar or list into the member of conf. 0, or -1 with a message. */
int fci_value_read(struct fci_parse *p, const struct fci_node *n, const struct fc_field *f,
                   const struct fci_word *words, void *conf);
void fci_value_default(const struct fc_field *f, void *conf);
int fci_value_whole(const char *text, uint64_t *ret); /* digits alone */

/* And back, for explain: the value as a file would write it. */
void fci_value_write(char *buf, size_t len, const struct fc_field *f, const struct fci_word *words, const void *conf);

/* "found ..." of a node, for messages. */
const char *fci_node_show(const struct fci_node *n, char *buf, size_t len);

/* A map into conf by the table. at[i], given: where key i was said, 0: nowhere (may be NULL). Keys named in
 * `others` (ends with NULL; may be NULL) are not looked at. */
void fci_conf_read(struct fci_parse *p, const struct fci_node *map, const struct fc_field *f, uint32_t n,
                   const char *const *others, void *conf);
void fci_keys_read(struct fci_parse *p, const struct fci_node *map, const struct fci_key *k, uint32_t n,
                   const char *const *others, void *conf, struct fci_mark *at);
/* The rows of a table, submaps flattened, in the order of `at`; NULL past the last. */
const struct fci_key *fci_keys_row(const struct fci_key *k, uint32_t n, uint32_t i, const struct fci_key **ret_in);
int fci_is_map(struct fci_parse *p, const struct fci_node *n);
void fci_unknown_key(struct fci_parse *p, const struct fci_node *n, const char *(*name)(const void *table, uint32_t i),
                     const void *table);

/* ---- the document ------------------------------------------------------------------------------ */

#define FCI_IFACE_ROWS 24 /* at least what the table of interface options has */

/* Options as the file writes them; flags apart. */
struct fci_ruled_opts {
	struct fc_iface_opts o;
	uint32_t dry_run, off, outbound, resv;
	uint64_t fallback_on;
	struct fci_mark at[FCI_IFACE_ROWS]; /* by row: where it was said; line 0: it was not */
};
extern const struct fci_key fci_iface_keys[];
extern const uint32_t fci_n_iface_keys;

/* An entry of interfaces:, or defaults: */
struct fci_entry_rules {
	const char *name;      /* or pattern; "defaults" */
	const struct fci_node *node; /* all of it; NULL: defaults that were not said */
	struct fci_mark at;
	uint32_t prefix, literal; /* of a pattern: characters before the first *, and in all */
	struct fci_ruled_opts opts;
	const struct fci_node *rules_node; /* NULL: rules were not said */
	struct fc_rule *rules;
	const struct fci_node **rule_at;
	uint32_t n_rules;
};

struct fci_rules_group {
	const char *name;
	struct fci_mark at;
	struct fc_isolate_opts opts;
};

struct fci_doc {
	struct fci_pool pool;
	const char *file;
	uint32_t users;          /* fc->rules_mutex; fci_doc_leave() frees the last one's */
	const struct fci_node *root, *system_node, *health_node;
	struct fci_entry_rules defaults;
	struct fci_entry_rules **exact, **patterns; /* by name; by how specific they are */
	uint32_t n_exact, n_patterns;
	struct fc_system_opts system;
	struct fc_health_opts health;
	struct fci_rules_group *groups;
	uint32_t n_groups;
};

/* A document of a text, all tables checked; NULL: err says why. */
struct fci_doc *fci_doc_read(const char *file, const char *text, size_t len, struct fc_rules_error *err);
struct fci_doc *fci_doc_free(struct fci_doc *d);

/* With fc->rules_mutex held, but of a document that nobody else knows. */
void fci_doc_leave(struct fci_doc *d);

/* The entry that is most specific for a name; NULL: none. */
const struct fci_entry_rules *fci_doc_match(const struct fci_doc *d, const char *name);
int fci_pattern_matches(const char *pattern, const char *name);
int fci_is_pattern(const char *name);

/* Set every entry up in contexts of their own, but those that are as in `was`, which has been in force (may be
 * NULL). fc: whose groups are known too; may be NULL. 0, or err. */
int fci_doc_try(const struct fci_doc *d, const struct fci_doc *was, struct fc *fc, struct fc_rules_error *err);

/* What an entry (NULL: none, defaults alone) gives an interface. */
struct fci_effect {
	const struct fci_doc *doc;            /* NULL: no rules at all */
	const struct fci_entry_rules *entry;
	const struct fci_entry_rules *rules;  /* whose rules hold: entry or defaults; NULL: none */
	struct fci_ruled_opts opts;
	int ruled;                            /* not to be listed as unruled */
};

void fci_entry_effect(const struct fci_doc *d, const struct fci_entry_rules *e, struct fci_effect *ret);
int fci_said(const struct fci_ruled_opts *o, const char *key);

/* ---- in force ---------------------------------------------------------------------------------- */

#define FCI_LAYERS 2

/* What the layers say to one interface. 0: there is no layer. */
int fci_effect_of(struct fci_doc *const *layers, const char *name, struct fci_effect *ret);

/* Of an interface: what the rules last gave it. fc->setup */
struct fci_ruled {
	struct fc_iface_opts opts;
	uint64_t fallback_on;
	int ruled;
	const struct fci_node *rules_node; /* in a living document; NULL: none */
};

struct fci_watch;

/* Per context. fc->rules_mutex; layers are changed with fc->setup held too, so either is enough to look. */
struct fci_rules {
	struct fci_doc *layer[FCI_LAYERS];
	uint64_t applied[FCI_LAYERS]; /* tickets */
	struct fc_rules_status status;
	uint64_t expiry_at;           /* the next hold ends; FC_NEVER_NS */
	struct fci_watch *watch;
	char path[4096];              /* for fc_rules_reload; "" */
};

/* The context's, made when first needed; NULL: no memory. */
struct fci_rules *fci_rules_of(struct fc *fc);

/* The order of loads. */
uint64_t fci_rules_ticket(void);

/* Put a document into a layer, or take it away (NULL); it is the context's from then on. 0, or err. */
int fci_rules_apply(struct fc *fc, int layer, struct fci_doc *d, uint64_t ticket, struct fc_rules_error *err);

/* How many interfaces keep something that was set by hand although an entry says it too, and the name of the
 * first. fc->rules_mutex is held. rules_hand.c */
uint32_t fci_rules_kept(struct fc *fc, const struct fci_rules *r, const char **ret_first);

/* What was set by hand goes. fc->rules_mutex is held. rules_hand.c */
int fci_rules_release(struct fc *fc, struct fc_iface *f);
void fci_rules_expire(struct fc *fc, struct fci_rules *r, uint64_t now);

/* Set the layers' rules on one interface, or on all (NULL), all or nothing; the layers are `d` where
 * layer >= 0. fc->rules_mutex is held. The number of interfaces that were changed, or negative errno. */
int fci_rules_set(struct fc *fc, struct fci_rules *r, struct fc_iface *f, int layer, struct fci_doc *d);

/* System bounds, health and groups, as layers say. rules_process.c */
int fci_rules_set_process(struct fc *fc, struct fci_doc *const *from, struct fci_doc *const *to, struct fc_rules_error *err);

/* A file's whole text (free() it) and what it was then. 0 or negative errno, with a message in err. */
struct fci_file_id {
	uint64_t dev, ino, bytes, mtime_ns;
};
int fci_file_read(const char *path, char **ret_text, size_t *ret_len, struct fci_file_id *ret_id, struct fc_rules_error *err);
int fci_file_id(const char *path, struct fci_file_id *ret);
int fci_rules_load(struct fc *fc, const char *path, uint64_t ticket, struct fci_file_id *ret_id, struct fc_rules_error *err);

/* Before and after a load: an error struct to work with, and back to the caller's, status and log. */
struct fc_rules_error *fci_rules_begin(struct fc_rules_error *own);
int fci_rules_end(struct fc *fc, const char *what, int rc, const struct fc_rules_error *own, struct fc_rules_error *err);

/* rules_watch.c. fci_watch_tick: when it wants to run again; fc->rules_mutex is held. */
uint64_t fci_watch_tick(struct fci_rules *r, uint64_t now);
void fci_watch_stop(struct fc *fc);
void fci_watch_fork_child(struct fci_rules *r);

#endif /* FCI_RULES_H */
