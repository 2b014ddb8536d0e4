/* SPDX-License-Identifier: BSD-2-Clause */
/* fallback.c - an interface's other answer. See fcguard/fallback.h. */
#include <errno.h>

#include <fcguard/fallback.h>

#include "check.h"
#include "fallback.h"
#include "iface.h"
#include "ruled.h"

/* A function with its argument: never changed once it is in the list, so that readers need no lock. */
struct answer {
	fc_fallback_fn fn;
	void *arg;
	struct answer *next;
};

/* What a handle has of it, made when it is first set. */
struct fci_fallback {
	struct answer *_Atomic now; /* NULL: none. R1 -> A1 */
	fci_a64 reasons;            /* N1: a setting; takes effect for new refusals */
	fci_a64 run;                /* N2: a statistic */
	struct answer *answers;     /* all of its life. fc->setup */
};

/* fc->setup is held. */
static struct fci_fallback *made(struct fc_iface *f)
{
	/* N3: only who holds fc->setup changes it. */
	struct fci_fallback *b = atomic_load_explicit(&f->fallback, FCI_RLX);

	if (b)
		return b;
	b = fci_alloc(f->fc, sizeof(*b));
	if (!b)
		return NULL;
	/* N1: as declared. */
	atomic_store_explicit(&b->reasons, FC_FALLBACK_DEFAULT, FCI_RLX);
	/* R2 -> A2 (look): it is complete. */
	atomic_store_explicit(&f->fallback, b, FCI_REL);
	return b;
}

static struct fci_fallback *look(const struct fc_iface *f)
{
	/* A2 -> R2 (made). */
	return atomic_load_explicit(&f->fallback, FCI_ACQ);
}

static struct answer *find(struct fc_iface *f, struct fci_fallback *b, fc_fallback_fn fn, void *arg)
{
	struct answer *a = b->answers;

	while (a && (a->fn != fn || a->arg != arg))
		a = a->next;
	if (a)
		return a;
	a = fci_alloc(f->fc, sizeof(*a));
	if (a) {
		*a = (struct answer){ fn, arg, b->answers };
		b->answers = a;
	}
	return a;
}

int fc_iface_fallback(struct fc_iface *f, fc_fallback_fn fn, void *arg)
{
	struct fci_fallback *b;
	struct answer *a = NULL;
	int rc = -ENOMEM;

	if (!fci_iface_real(f))
		return -EINVAL;
	pthread_mutex_lock(&f->fc->setup);
	b = made(f);
	if (b && (!fn || (a = find(f, b, fn, arg)) != NULL)) {
		/* R1 -> A1 (fc_fallback): it is complete. */
		atomic_store_explicit(&b->now, a, FCI_REL);
		rc = 0;
	}
	pthread_mutex_unlock(&f->fc->setup);
	return rc;
}

int fci_fallback_room(struct fc_iface *f)
{
	return made(f) ? 0 : -ENOMEM;
}

void fci_fallback_settle(struct fc_iface *f, uint64_t reasons)
{
	struct fci_fallback *b = made(f);

	if (b)
		/* N1: as declared. */
		atomic_store_explicit(&b->reasons, reasons, FCI_RLX);
}

int fc_iface_fallback_on(struct fc_iface *f, uint64_t reasons)
{
	int rc;

	if (!fci_iface_real(f))
		return -EINVAL;
	pthread_mutex_lock(&f->fc->setup);
	rc = fci_fallback_room(f);
	if (rc == 0) {
		fci_fallback_settle(f, reasons);
		f->by_hand |= FCI_HAND_FALLBACK;
		f->hand_until = FC_NEVER_NS;
	}
	pthread_mutex_unlock(&f->fc->setup);
	return rc;
}

int (fc_fallback)(const struct fc_entry *e, void *call, int *ret)
{
	FC_OPTS(fc_decision, why, .status = 0);
	struct fci_fallback *b;
	struct answer *a;
	int said, reason;

	if (!e || e->verdict_ <= 0 || !fci_iface_real(e->iface_) || (b = look(e->iface_)) == NULL)
		return 0;
	reason = e->verdict_ < 64 ? e->verdict_ : e->verdict_ >= FC_REFUSED_USER ? FC_REFUSED_CUSTOM : 0;
	/* N1: as declared. */
	if (!(atomic_load_explicit(&b->reasons, FCI_RLX) & FC_FALLBACK_BIT(reason) & ~1ull))
		return 0;
	/* A1 -> R1. Answers live as long as the interface. */
	a = atomic_load_explicit(&b->now, FCI_ACQ);
	if (!a || fc_entry_decision(e, &why) < 0)
		return 0;
	/* N2: as declared. */
	atomic_fetch_add_explicit(&b->run, 1, FCI_RLX);
	said = a->fn(a->arg, &why, call);
	if (ret)
		*ret = said;
	return 1;
}

uint64_t fc_iface_fallbacks(const struct fc_iface *f)
{
	const struct fci_fallback *b = fci_iface_real(f) ? look(f) : NULL;

	/* N2: as declared. */
	return b ? atomic_load_explicit(&b->run, FCI_RLX) : 0;
}

void fci_fallback_free(struct fc *fc, struct fc_iface *f)
{
	struct fci_fallback *b = look(f);
	struct answer *a, *next;

	if (!b)
		return;
	for (a = b->answers; a; a = next) {
		next = a->next;
		fci_free(fc, a, sizeof(*a));
	}
	fci_free(fc, b, sizeof(*b));
}
