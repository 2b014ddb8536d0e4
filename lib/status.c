/* SPDX-License-Identifier: BSD-2-Clause */
/* status.c - names and texts of results, decisions, versions, options structs. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

#include "context.h"
#include "entry.h"
#include "hash.h"

struct status {
	int number;
	const char *name, *text;
};

#define STATUS(name_, number_, text_) { number_, #name_, text_ },
static const struct status statuses[] = { FC_STATUS_MAP(STATUS) };

/* The negative errnos that the library returns. */
static const struct status faults[] = {
	{ -EINVAL, "EINVAL", "a bad argument, or a field out of its range" },
	{ -E2BIG, "E2BIG", "a field that this library does not know is set, or too many" },
	{ -ENOMEM, "ENOMEM", "no memory" },
	{ -ENOSPC, "ENOSPC", "no room in the segment or its table of interfaces" },
	{ -ENAMETOOLONG, "ENAMETOOLONG", "name too long" },
	{ -EILSEQ, "EILSEQ", "name is not UTF-8" },
	{ -EBUSY, "EBUSY", "in use" },
	{ -EAGAIN, "EAGAIN", "not now, try again" },
	{ -EALREADY, "EALREADY", "done already" },
	{ -ESTALE, "ESTALE", "the place had been taken back before" },
	{ -ENODATA, "ENODATA", "nothing to tell" },
	{ -ENOSYS, "ENOSYS", "not built in" },
	{ -ESRCH, "ESRCH", "no such thread" },
	{ -ENOENT, "ENOENT", "no such file, interface or rule" },
	{ -EEXIST, "EEXIST", "the name is taken" },
	{ -ERANGE, "ERANGE", "a number out of its range" },
	{ -EACCES, "EACCES", "not permitted" },
	{ -EBADF, "EBADF", "not an open file" },
	{ FC_PENDING, "EINPROGRESS", "waiting for a place" },
};

static const struct status *find(int number)
{
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].number == number)
			return &statuses[i];
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (faults[i].number == number)
			return &faults[i];
	return NULL;
}

const char *fc_status_name(int status)
{
	const struct status *s = find(status);

	return s ? s->name : status >= FC_REFUSED_USER ? "FC_REFUSED_USER" : "unknown";
}

const char *fc_status_text(int status)
{
	const struct status *s = find(status);

	return s ? s->text : status >= FC_REFUSED_USER ? "refused for a reason of the program's own" : "unknown";
}

const char *fc_status_text_r(int status, char *buf, size_t len)
{
	const struct status *s = find(status);

	if (!buf || len == 0)
		return fc_status_text(status);
	snprintf(buf, len, s ? "%s" : "%s (%d)", fc_status_text(status), status);
	return buf;
}

const char *fc_version(void)
{
#define TEXT2(x_) #x_
#define TEXT(x_)  TEXT2(x_)
	return TEXT(FC_VERSION_MAJOR) "." TEXT(FC_VERSION_MINOR) "." TEXT(FC_VERSION_PATCH);
}

uint32_t fc_version_number(void)
{
	return FC_VERSION_NUMBER;
}

/* ---- decisions --------------------------------------------------------------------------------- */

int fc_entry_verdict(const struct fc_entry *e)
{
	return e ? e->verdict_ : -EINVAL;
}

int fc_entry_decision(const struct fc_entry *e, struct fc_decision *ret)
{
	struct fc_decision d = { .size = sizeof(d) };
	int rc = -ENODATA;

	if (!e || !ret)
		return -EINVAL;
	if (e->verdict_ < 0) { /* a programming error: nothing was asked */
		d.status = e->verdict_;
		rc = 0;
	} else if (e->verdict_ > 0 && fci_iface_ok(e->iface_)) {
		d.status = e->verdict_;
		d.rule = (const char *)(uintptr_t)e->data_[2];
		d.iface = e->iface_->name;
		d.observed = e->start_;
		d.limit = e->data_[0];
		d.retry_after_ns = e->data_[1];
		if (FCI_IS_PARKED(e->word_)) { /* its own words are kept for what interceptors took */
			d.rule = e->verdict_ == FC_REFUSED_DRAINING ? "drain" : "cap";
			d.observed = d.limit = fc_limit_get(e->iface_);
			/* N1: advice. */
			d.retry_after_ns = atomic_load_explicit(&e->iface_->gate->retry_after_ns, FCI_RLX);
		}
		rc = 0;
	}
	if (fci_opts_export(ret, &d, sizeof(d), sizeof(d)) < 0)
		return -EINVAL;
	return rc;
}

int fc_decision_http_status(const struct fc_decision *d)
{
	if (!d || d->status == FC_OK)
		return 200;
	if (d->status < 0)
		return 500;
	if (d->status == FC_REFUSED_ACCESS)
		return 403;
	return d->status == FC_REFUSED_RATE || d->status == FC_REFUSED_KEY || d->status == FC_REFUSED_QUOTA ? 429 : 503;
}

uint32_t fc_decision_retry_after_s(const struct fc_decision *d)
{
	uint64_t s = d ? d->retry_after_ns / 1000000000u + (d->retry_after_ns % 1000000000u != 0) : 1;

	return s < 1 ? 1 : s > UINT32_MAX ? UINT32_MAX : (uint32_t)s;
}

uint64_t fc_entry_deadline_left(const struct fc_entry *e)
{
	uint64_t now;

	if (!e || !e->word_ || FCI_IS_PARKED(e->word_) || !(e->meta_ & FCI_E_DEADLINE))
		return FC_NEVER_NS;
	now = fci_clock_now(&e->iface_->fc->clock);
	return now < e->data_[2] ? e->data_[2] - now : 0;
}

static const uint64_t text_key[2] = { 0x6663677561726421ull, 1 }, address_key[2] = { 0x6663677561726421ull, 2 };

static uint64_t hash_text(const char *s)
{
	return fci_siphash(text_key, s ? s : "", s ? strlen(s) : 0);
}

struct fc_label fc_label(const char *key, const char *value)
{
	return (struct fc_label){ .key = hash_text(key), .value = hash_text(value), .text = value };
}

static uint64_t eight_bytes(const uint8_t *b)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | b[i];
	return v;
}

static struct fc_label address(const char *key, const uint8_t *ip6, const char *text)
{
	struct fc_label l = { .key = hash_text(key), .text = text };

	l.ip[0] = eight_bytes(ip6);
	l.ip[1] = eight_bytes(ip6 + 8);
	l.value = fci_siphash(address_key, ip6, 16);
	return l;
}

static struct fc_label address4(const char *key, const uint8_t *ip4, const char *text)
{
	uint8_t ip6[16] = { [10] = 0xff, [11] = 0xff };

	memcpy(ip6 + 12, ip4, 4);
	return address(key, ip6, text);
}

struct fc_label fc_label_ip(const char *key, const char *text)
{
	uint8_t b[16];

	if (text && inet_pton(AF_INET, text, b) == 1)
		return address4(key, b, text);
	if (text && inet_pton(AF_INET6, text, b) == 1)
		return address(key, b, text);
	return fc_label(key, text);
}

struct fc_label fc_label_addr(const char *key, const struct sockaddr *addr)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;

	if (addr && addr->sa_family == AF_INET) {
		memcpy(&in, addr, sizeof(in));
		return address4(key, (const uint8_t *)&in.sin_addr, NULL);
	}
	if (addr && addr->sa_family == AF_INET6) {
		memcpy(&in6, addr, sizeof(in6));
		return address(key, in6.sin6_addr.s6_addr, NULL);
	}
	return fc_label(key, NULL);
}

/* ---- options ----------------------------------------------------------------------------------- */

int fci_opts_import(void *to, size_t known, size_t v1, const void *from)
{
	uint32_t size;

	memset(to, 0, known);
	if (from) {
		memcpy(&size, from, sizeof(size));
		if (size < v1)
			return -EINVAL;
		for (size_t i = known; i < size; i++)
			if (((const unsigned char *)from)[i])
				return -E2BIG;
		memcpy(to, from, size < known ? size : known);
	}
	size = (uint32_t)known;
	memcpy(to, &size, sizeof(size));
	return 0;
}

int fci_opts_export(void *to, const void *from, size_t known, size_t v1)
{
	uint32_t size;

	memcpy(&size, to, sizeof(size));
	if (size < v1)
		return -EINVAL;
	memset(to, 0, size);
	memcpy(to, from, size < known ? size : known);
	memcpy(to, &size, sizeof(size));
	return 0;
}
