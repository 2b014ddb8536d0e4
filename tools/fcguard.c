/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fcguard.c - the command: fcguard SUBCOMMAND.
 *
 *     fcguard check FILE...              is it a good rules file? What is wrong goes to standard error
 *     fcguard explain FILE INTERFACE     which number of an interface holds, and why
 *     fcguard version, fcguard help      also --version, --help and -h
 *
 * Ends with 0; 1: a file is bad, or cannot be read; 2: called wrongly.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <fcguard/fcguard.h>

static const char usage[] =
	"usage: fcguard check FILE...             what is wrong in rules files; says nothing of good ones\n"
	"       fcguard explain FILE INTERFACE    which number of an interface holds, and why\n"
	"       fcguard version\n"
	"Ends with 0; 1: a file is bad, or cannot be read; 2: called wrongly.\n";

static int wrong(void)
{
	fputs(usage, stderr);
	return 2;
}

static int tell(const char *file, int rc, const struct fc_rules_error *err)
{
	if (rc == 0)
		return 0;
	if (err->text[0])
		fputs(err->text, stderr);
	else
		fprintf(stderr, "%s: %s\n", file, fc_status_text(rc));
	return 1;
}

static int check(int n, char **files)
{
	FC_OPTS(fc_rules_error, err, .error = 0);
	int bad = 0;

	if (n < 1)
		return wrong();
	for (int i = 0; i < n; i++) {
		err.text[0] = '\0';
		bad |= tell(files[i], fc_rules_check(files[i], &err), &err);
	}
	return bad;
}

static int explain(int n, char **args)
{
	FC_OPTS(fc_rules_error, err, .error = 0);

	if (n != 2)
		return wrong();
	return tell(args[0], fc_rules_explain_file(args[0], args[1], STDOUT_FILENO, &err), &err);
}

static int version(int n, char **args)
{
	(void)args;
	if (n)
		return wrong();
	puts(fc_version());
	return 0;
}

static int help(int n, char **args)
{
	(void)n, (void)args;
	fputs(usage, stdout);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(int n, char **args);
} commands[] = {
	{ "check", check }, { "explain", explain }, { "version", version }, { "--version", version },
	{ "help", help }, { "--help", help }, { "-h", help },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 2, argv + 2);
	return wrong();
}
