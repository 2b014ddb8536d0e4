/* SPDX-License-Identifier: BSD-2-Clause */
/* out.c - see out.h. */
#include <errno.h>
#include <unistd.h>

#include <fcguard/base.h>
#include <fcguard/time.h>

#include "out.h"

void fci_put_flush(struct fci_out *o)
{
	size_t done = 0;

	while (done < o->used && !o->error) {
		ssize_t n = write(o->fd, o->buf + done, o->used - done);

		if (n >= 0)
			done += (size_t)n;
		else if (errno != EINTR)
			o->error = -errno;
	}
	o->used = 0;
}

void fci_put(struct fci_out *o, const char *text)
{
	while (*text) {
		if (o->used == sizeof(o->buf))
			fci_put_flush(o);
		o->buf[o->used++] = *text++;
	}
}

void fci_put_digits(struct fci_out *o, uint64_t v, unsigned base, unsigned least)
{
	char digits[24], *p = digits + sizeof(digits);

	*--p = '\0';
	do {
		*--p = "0123456789abcdef"[v % base];
		v /= base;
		least -= least > 0;
	} while (v || least);
	fci_put(o, p);
}

void fci_put_number(struct fci_out *o, const char *name, uint64_t v)
{
	fci_put(o, name);
	fci_put_digits(o, v, 10, 1);
}

void fci_put_bound(struct fci_out *o, const char *name, uint32_t v)
{
	if (v != FC_UNLIMITED) {
		fci_put_number(o, name, v);
		return;
	}
	fci_put(o, name);
	fci_put(o, "none");
}

void fci_put_seconds(struct fci_out *o, uint64_t ns)
{
	fci_put_digits(o, ns / FC_S(1), 10, 1);
	fci_put(o, ".");
	fci_put_digits(o, ns / FC_MS(1) % 1000, 10, 3);
	fci_put(o, " s");
}
