/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * chain.h - the interceptors of an interface, as this process runs them.
 *
 * A chain is immutable once published; a new one replaces it by one store. It is read inside a
 * section (thread.h), and lives until no thread that might have seen it is in a section and no call
 * that began under its version is inside.
 *
 *                 run (check, pre, post)   publish   reclaim
 *      run                 -                  -         -
 *      publish             -                  X         X      X = fc->setup serialises
 *      reclaim             -                  X         X
 */
#ifndef FCI_CHAIN_H
#define FCI_CHAIN_H

#include "entry.h"

struct fci_stage {
	const struct fc_interceptor *ic;
	void *state;
	void *conf;     /* its copy; constant once the chain is published */
	const char *name; /* of the rule; lives as long as the interface */
	struct fci_state *kept; /* where the state is kept between chains */
	uint64_t state_bytes;
	uint32_t cell;  /* first of its cells */
	uint32_t flags; /* FC_RULE_* */
};

struct fci_chain {
	uint32_t version;      /* 1..65535, unique among the living of one interface; 0: no chain */
	uint32_t n;
	uint32_t has_check, has_pre, has_post;
	uint32_t cells;        /* of one call, in all */
	uint32_t fine;         /* it needs a finer clock than the coarse one */
	uint32_t steers;       /* a stage steers the limit instead of the cap */
	fci_a32 parked;        /* suspended entries that began under it */
	uint32_t left;         /* of a replaced one: what is over; see fci_chain_reclaim. fc->setup */
	struct fci_chain *_Atomic older; /* still living ones of the interface. R1 -> A1 in chain.c */
	struct fc_iface *iface;
	struct fci_before before; /* of before it was made, should it not be published */
	struct fci_chain *next_retired;
	uint64_t epoch;        /* sections that began at or before it may still see the chain */
	size_t bytes;
	struct fci_stage stage[];
};

/* Run the checks. 0 go on; else the verdict, the entry is filled in. */
int fci_chain_check(struct fci_way *w);

/* Run pre of all stages; on refusal undo what was taken; the caller gives the place back. */
int fci_chain_pre(struct fci_way *w);

/* The living chain of a version; NULL: there is none. Inside a section. */
struct fci_chain *fci_chain_of(struct fc_iface *f, uint32_t version);

/* What post is told of a call that has ended. */
struct fci_ended {
	uint32_t cells[FC_CELLS_MAX]; /* a copy */
	uint32_t weight;
	int outcome;
	uint64_t start, now;
};

/* n more (or fewer) suspended entries of a version: they are in no slot, and keep their chain. Counted before
 * the slot is free, and until the post has run. Reset: in the child of a fork, alone. */
void fci_chain_park(struct fc_iface *f, uint32_t version, int n);
void fci_chain_park_reset(struct fc_iface *f);

/* Run post of a chain, in reverse order. Inside the section in which it was found. */
void fci_chain_post(struct fci_chain *chain, struct fci_ended *d);

/* Give back what a call took that has no end in this process: reap, or where there is none post. */
void fci_chain_reap(struct fci_chain *chain, struct fci_ended *d);

/* The limit is reached: ask who can make room. 1: try again. By the caller that won the check. */
int fci_chain_full(struct fc_iface *f, uint64_t now);

/* Housekeeping: tick of the cap and of all stages of one interface; when it wants to run again. */
uint64_t fci_chain_tick(struct fc_iface *f, uint64_t now);

/* Free replaced chains that nobody can see any more. fc->setup is held. */
void fci_chain_reclaim(struct fc *fc);

/* Free everything, at the end of the context: first the unlinked, then each interface's. */
void fci_chain_free_retired(struct fc *fc);
void fci_chain_free_all(struct fc *fc, struct fc_iface *f);

#endif /* FCI_CHAIN_H */
