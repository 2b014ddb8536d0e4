/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * health_file.h - files of proc and sys: opened below a root, read by pread, numbers in them.
 *
 * Threads.  Any; a struct fci_lines belongs to one.
 * Memory.   None; a struct fci_lines is 4 kB, on the caller's stack.
 */
#ifndef FCI_HEALTH_FILE_H
#define FCI_HEALTH_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FCI_PATH_BYTES  1024
#define FCI_START_BYTES 1024

/* What came of reading a number. */
enum fci_got {
	FCI_GONE,     /* no file */
	FCI_ABSURD,   /* nonsense in it */
	FCI_NO_LIMIT, /* it says "no limit" */
	FCI_OK,       /* a value */
};

/* -1 if it is not there or cannot be read: where pressure is off its files open but fail. */
int fci_file_open(int root_fd, const char *path);

/* The file of that name in the directory that the first dir_bytes of dir are. */
int fci_file_open_in(int root_fd, const char *dir, size_t dir_bytes, const char *name);
void fci_file_close(int *fd);

/* Lines of a file by pread; one longer than the buffer comes in pieces. */
struct fci_lines {
	int fd;
	off_t at;
	size_t pos, len;
	char buf[4096 + 1];
};

/* The next line, without its end; NULL after the last. */
char *fci_line_next(struct fci_lines *l);

/* The start of a small file as a string of FCI_START_BYTES at most; false if it cannot be read. */
bool fci_file_start(int fd, char *buf);

/* A number in a text, or a file, of lines "key number". */
enum fci_got fci_keyed(const char *text, const char *key, uint64_t *ret);
enum fci_got fci_file_keyed(int fd, const char *key, uint64_t *ret);

/* A file of one number. "max" and "-1" are FCI_NO_LIMIT. */
enum fci_got fci_file_number(int fd, uint64_t *ret);

/* The number after "key " (or "key:") if the line starts with it. */
bool fci_line_is(const char *line, const char *key, const char **ret);

/* A decimal number with digits only, *p set behind it; false for a sign, letters, nothing, 2^64 and
 * above. */
bool fci_parse_u64(const char **p, uint64_t *ret);

/* "12.34" as thousandths, rounded down; up to 10^6 before the point. */
bool fci_parse_milli(const char *s, uint32_t *ret);

static inline bool fci_is_end(char c)
{
	return c == '\0' || c == '\n' || c == ' ' || c == '\t';
}

#endif /* FCI_HEALTH_FILE_H */
