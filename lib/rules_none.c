/* SPDX-License-Identifier: BSD-2-Clause */
/* rules_none.c - the calls of fcguard/rules.h and ruled.h for a build without libyaml: -ENOSYS, why, and nothing. */
#include <errno.h>
#include <string.h>

#include <fcguard/rules.h>

#include "context.h"
#include "ruled.h"

static int none(struct fc *fc, struct fc_rules_error *err)
{
	static const char why[] = "rules files are not built in: libyaml was missing\n";

	if (err && err->size >= sizeof(*err)) {
		err->error = -ENOSYS;
		err->n = 1;
		err->line = err->column = 0;
		memcpy(err->text, why, sizeof(why));
	}
	if (fci_fc_ok(fc))
		fci_log(fc, FC_LOG_ERROR, "rules: %.*s", (int)strcspn(why, "\n"), why);
	return -ENOSYS;
}

int fc_rules_load(struct fc *fc, const char *path, struct fc_rules_error *err)
{
	(void)path;
	return none(fc, err);
}

int fc_rules_load_text(struct fc *fc, int layer, const char *name, const char *text, size_t len, struct fc_rules_error *err)
{
	(void)layer, (void)name, (void)text, (void)len;
	return none(fc, err);
}

int fc_rules_reload(struct fc *fc, struct fc_rules_error *err)
{
	return none(fc, err);
}

int fc_rules_watch(struct fc *fc, const char *path, struct fc_rules_error *err)
{
	(void)path;
	return none(fc, err);
}

int fc_rules_clear(struct fc *fc, int layer)
{
	(void)fc, (void)layer;
	return -ENOSYS;
}

int fc_rules_hold(struct fc *fc, const char *iface, uint64_t ttl_ns)
{
	(void)fc, (void)iface, (void)ttl_ns;
	return -ENOSYS;
}

int fc_rules_explain(struct fc *fc, const char *iface, int fd)
{
	(void)fc, (void)iface, (void)fd;
	return -ENOSYS;
}

int fc_rules_explain_file(const char *path, const char *iface, int fd, struct fc_rules_error *err)
{
	(void)path, (void)iface, (void)fd;
	return none(NULL, err);
}

int fc_rules_check(const char *path, struct fc_rules_error *err)
{
	(void)path;
	return none(NULL, err);
}

int fc_rules_check_text(const char *name, const char *text, size_t len, struct fc_rules_error *err)
{
	(void)name, (void)text, (void)len;
	return none(NULL, err);
}

int fc_rules_status(struct fc *fc, struct fc_rules_status *ret)
{
	(void)fc, (void)ret;
	return -ENOSYS;
}

uint32_t fci_ruled_opts(struct fc *fc, const char *name, struct fc_iface_opts *o)
{
	(void)fc, (void)name, (void)o;
	return FCI_CONFIG_UNRULED;
}

void fci_ruled_made(struct fc_iface *f)
{
	(void)f;
}

uint64_t fci_rules_tick(struct fc *fc, uint64_t now)
{
	(void)fc, (void)now;
	return FC_NEVER_NS;
}

void fci_rules_stop(struct fc *fc)
{
	(void)fc;
}

void fci_rules_free(struct fc *fc)
{
	(void)fc;
}

void fci_ruled_free(struct fc_iface *f)
{
	(void)f;
}

void fci_rules_fork_child(struct fc *fc)
{
	(void)fc;
}
