/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_load.c - files and texts to documents in force; the public calls of loading. See fcguard/rules.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rules.h"

#define ERR_V1_BYTES offsetof(struct fc_rules_error, text)

/* ---- errors ------------------------------------------------------------------------------------ */

struct fc_rules_error *fci_rules_begin(struct fc_rules_error *own)
{
	own->size = sizeof(*own);
	own->error = 0;
	own->n = own->line = own->column = 0;
	own->text[0] = '\0';
	return own;
}

/* Each message is a line of its own in the log. */
static void tell(struct fc *fc, const struct fc_rules_error *e)
{
	const char *s = e->text, *end;

	for (; (end = strchr(s, '\n')) != NULL; s = end + 1)
		fci_log(fc, FC_LOG_ERROR, "rules: %.*s", (int)(end - s), s);
	fci_log(fc, FC_LOG_ERROR, "rules: nothing was changed");
}

static void hand_out(struct fc_rules_error *to, const struct fc_rules_error *from)
{
	uint32_t size = to ? to->size : 0;

	if (size < ERR_V1_BYTES)
		return;
	memcpy(to, from, size < sizeof(*from) ? size : sizeof(*from));
	to->size = size;
	if (size > ERR_V1_BYTES && size < sizeof(*from))
		((char *)to)[size - 1] = '\0';
}

/* What a load came to that went well. */
static void tell_good(struct fc *fc, const char *what, uint32_t kept, const char *first)
{
	char more[48] = "";

	fci_log(fc, FC_LOG_INFO, "rules: %s is in force", what);
	if (kept > 1)
		snprintf(more, sizeof(more), " and %u other interface%s", kept - 1, kept == 2 ? "" : "s");
	if (kept)
		fci_log(fc, FC_LOG_WARN, "rules: %s%s: what the program has set holds, not what the file says of it "
		        "(fc_rules_hold)", first, more);
}

int fci_rules_end(struct fc *fc, const char *what, int rc, const struct fc_rules_error *own, struct fc_rules_error *err)
{
	const char *first = "";
	struct fci_rules *r;
	uint32_t kept = 0;

	hand_out(err, own);
	if (!fc)
		return rc;
	pthread_mutex_lock(&fc->rules_mutex);
	r = fci_rules_of(fc);
	if (r) {
		r->status.last_error = rc;
		r->status.loads += rc == 0;
		r->status.failures += rc != 0;
		if (rc == 0) {
			r->status.loaded_ns = fci_clock_now(&fc->clock);
			kept = fci_rules_kept(fc, r, &first);
		}
	}
	pthread_mutex_unlock(&fc->rules_mutex);
	if (rc < 0)
		tell(fc, own);
	else
		tell_good(fc, what, kept, first);
	return rc;
}

static int say(struct fc_rules_error *err, const char *file, int rc, const char *what)
{
	struct fci_parse p = { .file = file, .err = err };

	fci_rules_bad(&p, rc, (struct fci_mark){ 0 }, "%s", what);
	return rc;
}

/* ---- files ------------------------------------------------------------------------------------- */

static void id_of(const struct stat *st, struct fci_file_id *ret)
{
	ret->dev = st->st_dev;
	ret->ino = st->st_ino;
	ret->bytes = (uint64_t)st->st_size;
	ret->mtime_ns = (uint64_t)st->st_mtim.tv_sec * FC_S(1) + (uint64_t)st->st_mtim.tv_nsec;
}

int fci_file_id(const char *path, struct fci_file_id *ret)
{
	struct stat st;

	memset(ret, 0, sizeof(*ret));
	if (stat(path, &st) < 0)
		return -errno;
	id_of(&st, ret);
	return 0;
}

/* Everything, and a byte more if there is one. */
static ssize_t read_all(int fd, char *buf, size_t len)
{
	size_t used = 0;

	while (used < len) {
		ssize_t n = read(fd, buf + used, len - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	return (ssize_t)used;
}

static int read_open(int fd, const char *path, char **ret, size_t *ret_len, struct fci_file_id *id, struct fc_rules_error *err)
{
	struct fci_file_id after;
	struct stat st;
	char *buf;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return say(err, path, -errno, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return say(err, path, -EINVAL, "found no plain file; allowed: one");
	id_of(&st, id);
	if (id->bytes > FC_RULES_BYTES_MAX)
		return say(err, path, -E2BIG, "found more than 4 MiB; allowed: up to that");
	buf = malloc((size_t)id->bytes + 1);
	if (!buf)
		return say(err, path, -ENOMEM, "no memory");
	n = read_all(fd, buf, (size_t)id->bytes + 1);
	FC_TEST_POINT("rules_read");
	if (n >= 0 && fstat(fd, &st) == 0)
		id_of(&st, &after);
	if (n < 0 || (uint64_t)n != id->bytes || memcmp(&after, id, sizeof(after)) != 0) {
		free(buf);
		return n < 0 ? say(err, path, (int)n, strerror((int)-n)) : say(err, path, -EAGAIN, "it was written to while it was read");
	}
	*ret = buf;
	*ret_len = (size_t)n;
	return 0;
}

int fci_file_read(const char *path, char **ret, size_t *ret_len, struct fci_file_id *ret_id, struct fc_rules_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc; /* a pipe must not hold us up */

	memset(ret_id, 0, sizeof(*ret_id));
	if (fd < 0)
		return say(err, path, -errno, strerror(errno));
	rc = read_open(fd, path, ret, ret_len, ret_id, err);
	close(fd);
	return rc;
}

/* ---- loading ----------------------------------------------------------------------------------- */

/* The document in force, for as long as a new one is tried: what is the same need not be tried again. */
static struct fci_doc *borrow(struct fc *fc, int layer)
{
	struct fci_doc *d = NULL;
	struct fci_rules *r;

	pthread_mutex_lock(&fc->rules_mutex);
	r = fci_rules_of(fc);
	if (r && r->layer[layer]) {
		d = r->layer[layer];
		d->users++;
	}
	pthread_mutex_unlock(&fc->rules_mutex);
	return d;
}

static void give_back(struct fc *fc, struct fci_doc *d)
{
	pthread_mutex_lock(&fc->rules_mutex);
	fci_doc_leave(d);
	pthread_mutex_unlock(&fc->rules_mutex);
}

/* A document that has passed every check; NULL: err. fc NULL: without a context. */
static struct fci_doc *check(struct fc *fc, int layer, const char *name, const char *text, size_t len, struct fc_rules_error *err)
{
	struct fci_doc *d = fci_doc_read(name, text, len, err), *was = d && fc ? borrow(fc, layer) : NULL;

	if (d && fci_doc_try(d, was, fc, err) < 0)
		d = fci_doc_free(d);
	if (was)
		give_back(fc, was);
	return d;
}

static int load_text(struct fc *fc, int layer, const char *name, const char *text, size_t len, uint64_t ticket,
                     struct fc_rules_error *err)
{
	struct fci_doc *d = check(fc, layer, name, text, len, err);

	return d ? fci_rules_apply(fc, layer, d, ticket, err) : err->error;
}

int fci_rules_load(struct fc *fc, const char *path, uint64_t ticket, struct fci_file_id *ret_id, struct fc_rules_error *err)
{
	char *text = NULL;
	size_t len;
	int rc = fci_file_read(path, &text, &len, ret_id, err);

	if (rc == 0)
		rc = load_text(fc, FC_RULES_FILE, path, text, len, ticket, err);
	free(text);
	return rc;
}

static int usable(const struct fc *fc)
{
	return fci_fc_ok(fc) && fc->seg;
}

static int remember(struct fc *fc, const char *path)
{
	struct fci_rules *r;

	if (strlen(path) >= sizeof(r->path))
		return -ENAMETOOLONG;
	pthread_mutex_lock(&fc->rules_mutex);
	r = fci_rules_of(fc);
	if (r)
		strcpy(r->path, path);
	pthread_mutex_unlock(&fc->rules_mutex);
	return r ? 0 : -ENOMEM;
}

int fc_rules_load(struct fc *fc, const char *path, struct fc_rules_error *err)
{
	struct fc_rules_error own;
	struct fci_file_id id;
	int rc;

	if (!usable(fc) || !path || !*path)
		return -EINVAL;
	rc = remember(fc, path);
	if (rc < 0)
		return rc;
	rc = fci_rules_load(fc, path, fci_rules_ticket(), &id, fci_rules_begin(&own));
	return fci_rules_end(fc, path, rc, &own, err);
}

int fc_rules_reload(struct fc *fc, struct fc_rules_error *err)
{
	char path[sizeof(((struct fci_rules *)0)->path)] = "";
	struct fci_rules *r;

	if (!usable(fc))
		return -EINVAL;
	pthread_mutex_lock(&fc->rules_mutex);
	r = fci_rules_of(fc);
	if (r)
		strcpy(path, r->path);
	pthread_mutex_unlock(&fc->rules_mutex);
	return *path ? fc_rules_load(fc, path, err) : r ? -ENOENT : -ENOMEM;
}

int fc_rules_load_text(struct fc *fc, int layer, const char *name, const char *text, size_t len, struct fc_rules_error *err)
{
	struct fc_rules_error own;
	int rc;

	if (!usable(fc) || layer < 0 || layer >= FCI_LAYERS || !name || !text)
		return -EINVAL;
	rc = load_text(fc, layer, name, text, len, fci_rules_ticket(), fci_rules_begin(&own));
	return fci_rules_end(fc, name, rc, &own, err);
}

int fc_rules_clear(struct fc *fc, int layer)
{
	struct fc_rules_error own;

	if (!usable(fc) || layer < 0 || layer >= FCI_LAYERS)
		return -EINVAL;
	return fci_rules_apply(fc, layer, NULL, fci_rules_ticket(), fci_rules_begin(&own));
}

int fc_rules_check_text(const char *name, const char *text, size_t len, struct fc_rules_error *err)
{
	struct fc_rules_error own;
	struct fci_doc *d;

	if (!name || !text)
		return -EINVAL;
	d = check(NULL, 0, name, text, len, fci_rules_begin(&own));
	fci_doc_free(d);
	return fci_rules_end(NULL, name, d ? 0 : own.error, &own, err);
}

int fc_rules_check(const char *path, struct fc_rules_error *err)
{
	struct fc_rules_error own;
	struct fci_file_id id;
	char *text = NULL;
	size_t len;
	int rc;

	if (!path || !*path)
		return -EINVAL;
	rc = fci_file_read(path, &text, &len, &id, fci_rules_begin(&own));
	rc = rc < 0 ? fci_rules_end(NULL, path, rc, &own, err) : fc_rules_check_text(path, text, len, err);
	free(text);
	return rc;
}
