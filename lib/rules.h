/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rules.h - inside of rules files: text -> tree (rules_yaml.c) -> values (rules_value.c) -> confs by tables
 * (rules_conf.c) -> document (rules_doc.c) -> trial (rules_try.c) -> in force (rules.c). A file becomes a
 * document without a context, a document is never changed, and setting it is short, under fc->setup.
 */
#ifndef FCI_RULES_H
#define FCI_RULES_H

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
	struct fci_mark at[FCI_IFACE_ROWS]; /* by row: where it was said; line 0: it was not */
};
extern const struct fci_key fci_iface_keys[];
extern const uint32_t fci_n_iface_keys;

/* An entry of interfaces:, or defaults: */
struct fci_entry_rules {
	const char *name;      /* or pattern; "defaults" */
	struct fci_mark at;
	uint32_t prefix, literal; /* of a pattern: characters before the first *, and in all */
	struct fci_ruled_opts opts;
	const struct fci_node *rules_node; /* NULL: rules were not said */
	struct fc_rule *rules;
	const struct fci_node **rule_at;
	uint32_t n_rules;
};

struct fci_group {
	const char *name;
	struct fci_mark at;
	struct fc_isolate_opts opts;
};

struct fci_doc {
	struct fci_pool pool;
	const char *file;
	uint64_t ticket;         /* order of loads */
	const struct fci_node *root, *system_node, *health_node;
	struct fci_entry_rules defaults;
	struct fci_entry_rules **exact, **patterns; /* by name; by how specific they are */
	uint32_t n_exact, n_patterns;
	struct fc_system_opts system;
	struct fc_health_opts health;
	struct fci_group *groups;
	uint32_t n_groups;
};

/* A document of a text, all tables checked; NULL: err says why. */
struct fci_doc *fci_doc_read(const char *file, const char *text, size_t len, struct fc_rules_error *err);
struct fci_doc *fci_doc_free(struct fci_doc *d);

/* The entry that is most specific for a name; NULL: none. */
const struct fci_entry_rules *fci_doc_match(const struct fci_doc *d, const char *name);
int fci_pattern_matches(const char *pattern, const char *name);
int fci_is_pattern(const char *name);

/* Set every entry up in a context of its own. fc: whose groups are known too; may be NULL. 0, or err. */
int fci_doc_try(const struct fci_doc *d, struct fc *fc, struct fc_rules_error *err);

/* ---- in force ---------------------------------------------------------------------------------- */

#define FCI_LAYERS 2

/* What the layers say to one interface. */
struct fci_effect {
	const struct fci_doc *doc;
	const struct fci_entry_rules *entry;  /* NULL: none names it */
	const struct fci_entry_rules *rules;  /* whose rules hold: entry or defaults; NULL: none */
	struct fc_iface_opts opts;
	int ruled;                            /* something was said of its numbers */
};

void fci_effect_of(const struct fci_doc *const *layers, const char *name, struct fci_effect *ret);

/* Of an interface: what the rules last gave it. */
struct fci_ruled {
	struct fc_iface_opts opts;
	const struct fci_node *rules_node; /* in a living document; NULL: none */
	int given;                         /* opts hold something */
};

/* Per context; fc->setup guards all. */
struct fci_rules {
	struct fci_doc *layer[FCI_LAYERS];
	uint64_t tickets, cleared[FCI_LAYERS];
	struct fci_ruled *ruled; /* by index of interface; max_ifaces */
	uint32_t max_ifaces;
	struct fc_rules_status status;
	char path[4096];
	struct fci_watch *watch;
	uint64_t expiry_at;      /* the next hold ends; FC_NEVER_NS */
};

/* fc->rules, made when first needed. fc->setup is held. */
struct fci_rules *fci_rules_of(struct fc *fc);
uint64_t fci_rules_ticket(struct fc *fc);

/* Put a document into a layer, or take it away (NULL). The document is the context's from then on. */
int fci_rules_apply(struct fc *fc, int layer, struct fci_doc *d, uint64_t ticket, struct fc_rules_error *err);
int fci_rules_apply_iface(struct fc *fc, struct fc_iface *f);

/* A file's whole text (free() it) and what it was then. 0 or negative errno, with a message in err. */
struct fci_file_id {
	uint64_t dev, ino, bytes, mtime_ns;
};
int fci_rules_file(const char *path, char **ret_text, size_t *ret_len, struct fci_file_id *ret_id, struct fc_rules_error *err);
int fci_file_id(const char *path, struct fci_file_id *ret);
int fci_rules_load_ticket(struct fc *fc, const char *path, uint64_t ticket, struct fci_file_id *ret_id, struct fc_rules_error *err);

/* What remains to be done when a load is over: status and log. */
int fci_rules_loaded(struct fc *fc, const char *what, struct fc_rules_error *err, int rc);
struct fc_rules_error *fci_rules_err(struct fc_rules_error *err, struct fc_rules_error *own);

/* rules_watch.c. fci_watch_tick: when it wants to run again. */
uint64_t fci_watch_tick(struct fc *fc, uint64_t now);
void fci_watch_stop(struct fc *fc);
void fci_watch_fork_child(struct fc *fc);

#endif /* FCI_RULES_H */
