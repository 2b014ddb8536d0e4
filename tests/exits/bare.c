/* SPDX-License-Identifier: BSD-2-Clause */
/* A library without libyaml: guards work, and what needs a rules file is told why there is none. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <fcguard/fcguard.h>

static char lines[1024];

static void log_line(void *arg, int level, const char *msg)
{
	(void)arg, (void)level;
	snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines), "%s\n", msg);
}

#define HAS(text_) (strstr((text_), "libyaml") != NULL)

int main(void)
{
	FC_OPTS(fc_opts, opts, .log = log_line);
	FC_OPTS(fc_iface_opts, one, .cap = 1);
	FC_OPTS(fc_rules_error, err, .error = 0);
	FC_OPTS(fc_rules_error, checked, .error = 0);
	struct fc_entry first = FC_ENTRY_INIT, second = FC_ENTRY_INIT;
	struct fc_iface *f;
	struct fc *fc;
	int good;

	if (fc_create(&fc, &opts) || fc_iface_set(fc, "bare", &one, &f))
		return 1;
	good = fc_enter(&first, f, NULL) == 0 && fc_enter(&second, f, NULL) == FC_REFUSED_CAP;
	fc_exit(&first);
	good &= fc_rules_watch(fc, "rules.yaml", &err) == -ENOSYS && fc_rules_load(fc, "rules.yaml", NULL) == -ENOSYS;
	good &= err.error == -ENOSYS && err.n == 1 && HAS(err.text) && HAS(lines);
	good &= fc_rules_check("rules.yaml", &checked) == -ENOSYS && HAS(checked.text);
	fc_destroy(fc);
	return !good;
}
