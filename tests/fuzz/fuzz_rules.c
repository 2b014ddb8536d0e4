/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules files by libFuzzer: whatever the bytes, no crash, no leak, no long wait; a text that is refused says why,
 * within its bounds; one that is good is put in force twice, and an interface is explained.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fcguard/fcguard.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each line "TEXT: message", printable, and as many as are counted. */
static void check_messages(const struct fc_rules_error *err)
{
	uint32_t lines = 0;

	for (const char *s = err->text; *s; s++) {
		if ((unsigned char)*s < 32 && *s != '\n')
			abort();
		lines += *s == '\n';
	}
	if (lines != err->n || lines == 0 || lines > FC_RULES_ERRORS_MAX || err->error >= 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int null = -1;
	FC_OPTS(fc_opts, o, .clock = FC_CLOCK_VIRTUAL, .flags = FC_NO_STACKS, .max_ifaces = 16);
	FC_OPTS(fc_rules_error, err, .error = 0);
	const char *text = (const char *)data;
	struct fc_entry e = FC_ENTRY_INIT;
	struct fc *fc;
	int rc;

	if (null < 0)
		null = open("/dev/null", O_WRONLY);
	rc = fc_rules_check_text("t", text, size, &err);
	if (rc < 0) {
		check_messages(&err);
		return 0;
	}
	if (fc_create(&fc, &o) < 0)
		return 0;
	(void)fc_iface_get(fc, "a");
	if (fc_rules_load_text(fc, FC_RULES_FILE, "t", text, size, NULL) == 0 &&
	    fc_rules_load_text(fc, FC_RULES_FILE, "t", text, size, NULL) < 0)
		abort();
	(void)fc_rules_explain(fc, "a", null);
	if (fc_enter(&e, fc_iface_get(fc, "a"), NULL) == 0)
		fc_exit(&e);
	if (fc_rules_clear(fc, FC_RULES_FILE) < 0)
		abort();
	fc_destroy(fc);
	return 0;
}
