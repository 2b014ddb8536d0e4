/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * names.c - the index of interfaces by name: Concurrency Kit's hash set, one writer (fc->setup) and
 * any number of readers without a lock. Names are permanent, so nothing is ever deleted; the tables
 * that the set outgrows may still be read, and are kept until the context goes (together they are
 * smaller than the one in use).
 *
 * ck_hs is compiled code whose atomics ThreadSanitizer does not see: the annotations say what it
 * does (CK 0.7.1: ck_pr_store of the slot after a store fence in ck_hs_put; ck_pr_load in ck_hs_get).
 */
#include <errno.h>
#include <stdio.h>

#include <ck_hs.h>

#include "context.h"
#include "iface.h"
#include "leave.h"

#if defined(__SANITIZE_THREAD__)
#define FCI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FCI_TSAN 1
#endif
#endif
#ifdef FCI_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define fci_tsan_acquire(a_) __tsan_acquire(a_)
#define fci_tsan_release(a_) __tsan_release(a_)
#else
#define fci_tsan_acquire(a_) ((void)(a_))
#define fci_tsan_release(a_) ((void)(a_))
#endif

/* In front of each table, in a line of its own: no reader looks at it. */
struct table {
	struct table *next; /* of the old ones */
	size_t bytes;
};
#define TABLE_HEAD FCI_CACHELINE

struct fci_names {
	struct fc *fc;
	ck_hs_t hs;
	struct table *old;
};

/* ck_malloc has no argument for its caller: the set that this thread is changing. A lock instead would
 * stay closed in the child of a fork. */
static __thread struct fci_names *current __attribute__((__tls_model__("initial-exec")));

static void *hs_malloc(size_t bytes)
{
	struct table *t = fci_alloc(current->fc, TABLE_HEAD + bytes);

	if (!t)
		return NULL;
	t->bytes = TABLE_HEAD + bytes;
	return (char *)t + TABLE_HEAD;
}

static void hs_free(void *ptr, size_t bytes, bool defer)
{
	struct table *t;

	(void)bytes;
	if (!ptr)
		return;
	t = (struct table *)(void *)((char *)ptr - TABLE_HEAD);
	if (!defer) {
		fci_free(current->fc, t, t->bytes);
		return;
	}
	t->next = current->old;
	current->old = t;
}

static struct ck_malloc hs_memory = { .malloc = hs_malloc, .free = hs_free };

/* FNV-1a: names are short. */
static unsigned long hash_of(const void *key, unsigned long seed)
{
	const char *s = key;
	uint64_t h = 0xcbf29ce484222325ull ^ seed;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	return (unsigned long)(h ^ h >> 29);
}

static bool same(const void *a, const void *b)
{
	return strcmp(a, b) == 0;
}

int fci_names_create(struct fc *fc)
{
	struct fci_names *n = fci_alloc(fc, sizeof(*n));
	bool ok;

	if (!n)
		return -ENOMEM;
	n->fc = fc;
	current = n;
	ok = ck_hs_init(&n->hs, CK_HS_MODE_SPMC | CK_HS_MODE_OBJECT, hash_of, same, &hs_memory, 64, 0);
	current = NULL;
	if (!ok) {
		fci_free(fc, n, sizeof(*n));
		return -ENOMEM;
	}
	fc->names = n;
	return 0;
}

void fci_names_destroy(struct fc *fc)
{
	struct fci_names *n = fc->names;
	struct table *t, *next;

	if (!n)
		return;
	current = n;
	ck_hs_destroy(&n->hs);
	current = NULL;
	for (t = n->old; t; t = next) {
		next = t->next;
		fci_free(fc, t, t->bytes);
	}
	fci_free(fc, n, sizeof(*n));
	fc->names = NULL;
}

/* The set's objects are the names inside the handles. */
static struct fc_iface *handle_of(char *name)
{
	return (struct fc_iface *)(void *)(name - offsetof(struct fc_iface, name));
}

struct fc_iface *fci_names_find(struct fc *fc, const char *name)
{
	char *found;

	if (!fc->names)
		return NULL;
	found = ck_hs_get(&fc->names->hs, hash_of(name, 0), name);
	fci_tsan_acquire(&fc->names->hs);
	return found ? handle_of(found) : NULL;
}

int fci_names_add(struct fc *fc, struct fc_iface *f)
{
	bool ok;

	current = fc->names;
	fci_tsan_release(&fc->names->hs);
	ok = ck_hs_put(&fc->names->hs, hash_of(f->name, 0), f->name);
	current = NULL;
	return ok ? 0 : -ENOMEM;
}

/* Length of the UTF-8 sequence at s, 0 when it is none: RFC 3629, shortest forms, no surrogates. */
static int utf8_length(const unsigned char *s)
{
	uint32_t c;
	int n;

	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	c = s[0] & (0x7fu >> n);
	for (int i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if ((n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) || (n == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	return n;
}

int fci_name_check(const char *name)
{
	const unsigned char *s = (const unsigned char *)name;

	if (!s || !*s)
		return -EINVAL;
	if (strnlen(name, FC_NAME_MAX + 1) > FC_NAME_MAX)
		return -ENAMETOOLONG;
	while (*s) {
		int n = utf8_length(s);

		if (n == 0)
			return -EILSEQ;
		if (*s < 0x20 || *s == 0x7f)
			return -EINVAL;
		s += n;
	}
	return 0;
}

/* ---- handles of call sites --------------------------------------------------------------------- */

/* The last handle found here is good as long as it came from today's default context. */
static struct fc_iface *site_cached(struct fc_site *site, const struct fc *fc)
{
	/* A1 -> R1 (site_remember): a serial number that fits says that the handle is its context's. */
	if (site && __atomic_load_n(&site->serial_, __ATOMIC_ACQUIRE) == fc->serial)
		return __atomic_load_n(&site->iface_, __ATOMIC_RELAXED);
	return NULL;
}

static struct fc_iface *site_remember(struct fc_site *site, const struct fc *fc, struct fc_iface *f)
{
	if (!site || f->pass_through)
		return f;
	/* X1: between two contexts the serial is 0, so that no reader joins one's handle with the
	 * other's number. R1 -> A1. */
	__atomic_store_n(&site->serial_, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&site->iface_, f, __ATOMIC_SEQ_CST);
	__atomic_store_n(&site->serial_, fc->serial, __ATOMIC_RELEASE);
	return f;
}

struct fc_iface *fci_site_iface(struct fc_site *site, const char *name, int literal)
{
	struct fc *fc = fc_default();
	struct fc_iface *f = literal ? site_cached(site, fc) : NULL;

	if (f)
		return f;
	f = fc_iface_get(fc, name);
	return literal ? site_remember(site, fc, f) : f;
}

/* "module.function"; too long is cut, between two characters, so that a long function name still has a
 * guard. */
struct fc_iface *fci_site_iface_fn(struct fc_site *site, const char *module)
{
	struct fc *fc = fc_default();
	struct fc_iface *f = site_cached(site, fc);
	char name[FC_NAME_MAX + 1];
	const char *base, *dot;

	if (f)
		return f;
	if (module) {
		snprintf(name, sizeof(name), "%s.%s", module, site->func);
	} else {
		base = strrchr(site->file, '/');
		base = base ? base + 1 : site->file;
		dot = strrchr(base, '.');
		snprintf(name, sizeof(name), "%.*s.%s", dot ? (int)(dot - base) : (int)strlen(base), base, site->func);
	}
	/* What the cut left of a character. */
	for (size_t n = strlen(name); n > 0 && n < sizeof(name) && fci_name_check(name) == -EILSEQ; n--)
		name[n - 1] = '\0';
	return site_remember(site, fc, fc_iface_get(fc, name));
}

/* ---- numbers of call sites --------------------------------------------------------------------- */

static uint64_t site_key(const struct fc_site *site)
{
	return hash_of(site->file, site->line) * 31 + hash_of(site->func, site->line);
}

uint32_t fci_site_register(struct fc *fc, struct fc_site *site)
{
	struct fci_site *table = FCI_AT(fc, fc->geo.sites, struct fci_site);
	uint64_t key = site_key(site);
	uint32_t n, i;

	pthread_mutex_lock(&fc->setup);
	/* N1: fc->setup is held. */
	n = atomic_load_explicit(&fc->head->n_sites, FCI_RLX);
	for (i = 1; i <= n && i < FCI_SITES_MAX; i++)
		if (table[i].key == key && table[i].line == site->line && strncmp(table[i].func, site->func, sizeof(table[i].func) - 1) == 0)
			break;
	if (i > n && i < FCI_SITES_MAX) {
		size_t len = strlen(site->file), room = sizeof(table[i].file) - 1;

		snprintf(table[i].file, sizeof(table[i].file), "%s", len > room ? site->file + len - room : site->file);
		snprintf(table[i].func, sizeof(table[i].func), "%s", site->func);
		table[i].line = site->line;
		table[i].key = key;
		/* R1 -> A1 (fci_site_at): the row is complete. */
		atomic_store_explicit(&fc->head->n_sites, i, FCI_REL);
	}
	pthread_mutex_unlock(&fc->setup);
	if (i >= FCI_SITES_MAX)
		i = 0;
	/* N2: number and serial are one word. */
	__atomic_store_n(&site->id_, (uint64_t)i << 32 | (uint32_t)fc->serial, __ATOMIC_RELAXED);
	return i;
}

const struct fci_site *fci_site_at(const struct fc *fc, uint32_t id)
{
	static const struct fci_site unknown = { .file = "?", .func = "?" };

	/* A1 -> R1 (fci_site_register). */
	if (id == 0 || id >= FCI_SITES_MAX || id > atomic_load_explicit(&fc->head->n_sites, FCI_ACQ))
		return &unknown;
	return FCI_AT(fc, fc->geo.sites, struct fci_site) + id;
}
