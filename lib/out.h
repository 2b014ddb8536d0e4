/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * out.h - text to a file descriptor, by hand: write() and a small buffer of the caller's, nothing else of
 * libc.
 *
 * Threads.  Any, each with its own struct fci_out; async-signal-safe.
 * Errors.   The first one of write() stays in .error, negative; what comes after it is dropped.
 */
#ifndef FCI_OUT_H
#define FCI_OUT_H

#include <stddef.h>
#include <stdint.h>

/* Start with { .fd = fd }. */
struct fci_out {
	int fd, error;
	size_t used;
	char buf[512];
};

void fci_put_flush(struct fci_out *o);
void fci_put(struct fci_out *o, const char *text);

/* In that base, with that many digits at least. */
void fci_put_digits(struct fci_out *o, uint64_t v, unsigned base, unsigned least);
void fci_put_number(struct fci_out *o, const char *name, uint64_t v);

/* As a number, FC_UNLIMITED as "none". */
void fci_put_bound(struct fci_out *o, const char *name, uint32_t v);

/* "1.234 s" */
void fci_put_seconds(struct fci_out *o, uint64_t ns);

#endif /* FCI_OUT_H */
