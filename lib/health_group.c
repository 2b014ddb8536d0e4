/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * health_group.c - in which cgroups the process is, and where these are mounted: proc/self/cgroup
 * and proc/self/mountinfo, of v1 and v2. See health_part.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strsep */
#endif
#include "health_part.h"

#include <string.h>

static bool in_list(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (; list; list = strchr(list, ',')) {
		list += *list == ',';
		if (strncmp(list, word, n) == 0 && (list[n] == ',' || list[n] == '\0'))
			return true;
	}
	return false;
}

/* Lines "4:cpu,cpuacct:/a/b", and "0::/a/b" for v2. */
static void read_paths(int root_fd, struct fci_place *places)
{
	struct fci_lines l = { .fd = fci_file_open(root_fd, "proc/self/cgroup") };
	char *line;

	while (l.fd >= 0 && (line = fci_line_next(&l))) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;

		if (!path || path[1] != '/' || strlen(path + 1) >= FCI_PATH_BYTES)
			continue;
		*path++ = '\0';
		/* "/../x": outside the cgroup namespace; nothing mounted here is about it. */
		if (strncmp(path, "/..", 3) == 0 && (path[3] == '/' || path[3] == '\0'))
			continue;
		for (int i = 0; i < FCI_PLACES; i++) {
			if (!in_list(list + 1, places[i].controller))
				continue;
			strcpy(places[i].path, path);
			places[i].has_path = true;
		}
	}
	fci_file_close(&l.fd);
}

/* \040 and the like, in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* If the mount of root at point shows the place, set its directory. */
static void try_mount(struct fci_place *p, const char *root, const char *point)
{
	size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
	const char *below = p->path + n;

	if (!p->has_path || p->has_dir || strncmp(p->path, root, n) != 0 ||
	    (*below != '/' && *below != '\0'))
		return;
	if (strcmp(below, "/") == 0)
		below = "";
	if (strlen(point) + strlen(below) >= sizeof(p->dir))
		return;
	p->mount_bytes = strlen(point);
	strcpy(p->dir, point);
	strcat(p->dir, below);
	p->has_dir = true;
}

/* "id parent dev root point options [more]... - type source superoptions" */
static void read_mounts(int root_fd, struct fci_place *places)
{
	struct fci_lines l = { .fd = fci_file_open(root_fd, "proc/self/mountinfo") };
	char *line;

	while (l.fd >= 0 && (line = fci_line_next(&l))) {
		char *field[5], *type, *options = NULL, *next = line;
		int n = 0;

		type = strstr(line, " - ");
		if (!type || strncmp(type + 3, "cgroup", 6) != 0)
			continue;
		*type = '\0';
		type += 3;
		while (n < 5 && (field[n] = strsep(&next, " ")))
			n++;
		options = strrchr(type, ' ');
		if (n < 5 || !options)
			continue;
		*options++ = '\0';
		unescape(field[3]);
		unescape(field[4]);
		if (strncmp(type, "cgroup2 ", 8) == 0)
			try_mount(&places[FCI_PLACE_V2], field[3], field[4]);
		else if (strncmp(type, "cgroup ", 7) == 0)
			for (int i = FCI_PLACE_V2 + 1; i < FCI_PLACES; i++)
				if (in_list(options, places[i].controller))
					try_mount(&places[i], field[3], field[4]);
	}
	fci_file_close(&l.fd);
}

size_t fci_place_up(const struct fci_place *p, size_t bytes)
{
	if (bytes <= p->mount_bytes)
		return 0;
	while (p->dir[--bytes] != '/')
		;
	return bytes < p->mount_bytes ? p->mount_bytes : bytes;
}

void fci_places_find(int root_fd, struct fci_place *places)
{
	static const char *const controllers[] = { "", "cpu", "cpuacct", "cpuset", "memory" };

	for (int i = 0; i < FCI_PLACES; i++)
		places[i] = (struct fci_place){ .controller = controllers[i] };
	read_paths(root_fd, places);
	read_mounts(root_fd, places);
}
