/* SPDX-License-Identifier: BSD-2-Clause */
/* health_file.c - see health_file.h. */
#include "health_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX (8 << 20) /* no honest file here is larger: /dev/zero is */

static ssize_t read_at(int fd, void *buf, size_t len, off_t at)
{
	ssize_t n;

	do
		n = pread(fd, buf, len, at);
	while (n < 0 && errno == EINTR);
	return n;
}

void fci_file_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int fci_file_open(int root_fd, const char *path)
{
	int fd;
	char c;

	while (*path == '/')
		path++;
	/* Non-blocking: what should be a file could be a pipe that nobody writes. */
	fd = openat(root_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && read_at(fd, &c, 1, 0) < 0)
		fci_file_close(&fd);
	return fd;
}

int fci_file_open_in(int root_fd, const char *dir, size_t dir_bytes, const char *name)
{
	char path[FCI_PATH_BYTES + 32];

	snprintf(path, sizeof(path), "%.*s/%s", (int)dir_bytes, dir, name);
	return fci_file_open(root_fd, path);
}

char *fci_line_next(struct fci_lines *l)
{
	for (;;) {
		char *start = l->buf + l->pos, *end = memchr(start, '\n', l->len - l->pos);
		ssize_t n;

		if (end) {
			*end = '\0';
			l->pos = (size_t)(end - l->buf) + 1;
			return start;
		}
		memmove(l->buf, start, l->len - l->pos);
		l->len -= l->pos;
		l->pos = 0;
		n = l->len == sizeof(l->buf) - 1 || l->at > FILE_BYTES_MAX ? 0 :
			read_at(l->fd, l->buf + l->len, sizeof(l->buf) - 1 - l->len, l->at);
		if (n > 0) {
			l->at += n;
			l->len += (size_t)n;
			continue;
		}
		if (l->len == 0)
			return NULL;
		l->buf[l->len] = '\0';
		l->pos = l->len;
		return l->buf;
	}
}

bool fci_file_start(int fd, char *buf)
{
	ssize_t n = fd < 0 ? -1 : read_at(fd, buf, FCI_START_BYTES - 1, 0);

	buf[n < 0 ? 0 : n] = '\0';
	return n >= 0;
}

bool fci_parse_u64(const char **p, uint64_t *ret)
{
	const char *s = *p;
	uint64_t v = 0;

	while (*s == ' ' || *s == '\t')
		s++;
	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return false;
	*p = s;
	*ret = v;
	return true;
}

bool fci_parse_milli(const char *s, uint32_t *ret)
{
	uint32_t milli = 0, scale = 100;
	uint64_t whole;

	if (!fci_parse_u64(&s, &whole) || whole > 1000000)
		return false;
	if (*s == '.')
		for (s++; *s >= '0' && *s <= '9'; s++, scale /= 10)
			milli += scale * (uint32_t)(*s - '0');
	if (!fci_is_end(*s))
		return false;
	*ret = (uint32_t)whole * 1000 + milli;
	return true;
}

bool fci_line_is(const char *line, const char *key, const char **ret)
{
	size_t n = strlen(key);

	if (strncmp(line, key, n) != 0 || !(fci_is_end(line[n]) || line[n] == ':'))
		return false;
	*ret = line + n + (line[n] == ':');
	return true;
}

enum fci_got fci_keyed(const char *text, const char *key, uint64_t *ret)
{
	const char *p;

	for (; text; text = strchr(text, '\n')) {
		text += *text == '\n';
		if (fci_line_is(text, key, &p))
			return fci_parse_u64(&p, ret) && fci_is_end(*p) ? FCI_OK : FCI_ABSURD;
	}
	return FCI_GONE;
}

enum fci_got fci_file_keyed(int fd, const char *key, uint64_t *ret)
{
	struct fci_lines l = { .fd = fd };
	const char *line, *p;

	while (fd >= 0 && (line = fci_line_next(&l)))
		if (fci_line_is(line, key, &p))
			return fci_parse_u64(&p, ret) && fci_is_end(*p) ? FCI_OK : FCI_ABSURD;
	return FCI_GONE;
}

enum fci_got fci_file_number(int fd, uint64_t *ret)
{
	char buf[FCI_START_BYTES];
	const char *p = buf;

	if (!fci_file_start(fd, buf))
		return FCI_GONE;
	if (strncmp(p, "max", 3) == 0 && fci_is_end(p[3]))
		return FCI_NO_LIMIT;
	if (strncmp(p, "-1", 2) == 0 && fci_is_end(p[2]))
		return FCI_NO_LIMIT;
	return fci_parse_u64(&p, ret) && fci_is_end(*p) ? FCI_OK : FCI_ABSURD;
}

