/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Claims against a limit that falls and rises; draining; a slot lent for a stuck call.
 *
 * Slot i has rank i. gate = {limit, DRAIN, version}; each change of the limit raises the version, and a
 * other limit sets DRAIN. The model keeps "the version is still the one I read" as a bit a reader (`fresh`).
 *
 *   enter : claim a FREE slot of rank < limit; read the gate again. rank >= limit: undo.
 *           No DRAIN: admitted at that read. DRAIN: count every word but FREE and LENT, read the gate a
 *           third time: other limit, DRAIN or version: undo, again from the start; count > limit: undo;
 *           else admitted at the third read.
 *   exit  : CAS BUSY -> FREE; fails: CAS LENDER -> FREE, and after that give back its LENT slots.
 *   tick  : each word of rank >= limit that is neither FREE nor LENT (CLAIMED is one of them) needs a LENT
 *           slot of rank < limit that names it; missing: claim one, write its record, LENT, then
 *           CAS BUSY -> LENDER. All have theirs: CAS DRAIN off the gate read at the start. A LENT slot
 *           whose call has gone is given back. LENT -> FREE raises the generation.
 *
 * Checked: at each admission the calls inside, all ranks counted, are <= the limit of that gate word; a
 * call that stays inside at a high rank does not keep DRAIN up; at the end every slot is FREE.
 */
#ifndef NS
#define NS 3
#endif
#ifndef CALLERS
#define CALLERS 2
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef TICKS
#define TICKS 1
#endif
/*
 * PLAN: what the limit becomes, one after the other; it starts as NS. 0: it has just fallen to NS - 2,
 * with the stuck call at rank NS - 1 and caller 0 at rank NS - 2.
 */
#ifndef PLAN
#define PLAN 1
#endif
#ifndef MUT
#define MUT 0
#endif

#define FREE 0
#define CLAIMED 1
#define BUSY 2
#define LENT 3
#define LENDER 4
#define NONE 255

byte st[NS], gen[NS];
byte rm[NS], rg[NS];		/* record of a LENT slot: which slot, which generation of it */
byte limit = NS;
bit drain;
byte fresh;			/* a bit a process: the gate's version is the one it read last */
byte inside;			/* ghost: admitted, not left */
byte done;
bit letgo;			/* ghost: the stuck call may leave */

#define me_fresh ((fresh >> me) & 1)

inline read_gate() {
	l = limit; d = drain; fresh = fresh | (1 << me)
}

inline admit() {
	inside++;
	assert(inside <= limit)
}

/* what a caller does to leave: g0 is the generation it remembers */
inline leave(s, g0) {
	if
	:: atomic { st[s] == BUSY && gen[s] == g0 -> st[s] = FREE; gen[s]++; inside-- }
	:: atomic { st[s] != BUSY -> skip };
#if MUT == 5			/* the lent slot is given back before the call's own */
		give_back(s, g0);
		atomic { assert(st[s] == LENDER && gen[s] == g0); st[s] = FREE; gen[s]++; inside-- }
#else
		atomic { assert(st[s] == LENDER && gen[s] == g0); st[s] = FREE; gen[s]++; inside-- }
		give_back(s, g0);
#endif
	fi
}

/* every LENT slot which names generation g0 of slot s becomes FREE; word, record, CAS on that word */
inline give_back(s, g0) {
	r = 0;
	do
	:: r == NS -> break
	:: else ->
		atomic { w = st[r]; wg = gen[r] };
		if
		:: w == LENT ->
			atomic { x = (rm[r] == s && rg[r] == g0); }
			if
			:: x -> unlend(r)
			:: else
			fi
		:: else
		fi;
		atomic { r++; w = 0; wg = 0; x = 0 }
	od;
	r = 0
}

inline unlend(s) {
	atomic {
		if
		:: st[s] == LENT && gen[s] == wg ->
			st[s] = FREE;
#if MUT != 6			/* a lent slot goes back under its old generation */
			gen[s]++
#endif
		:: else
		fi
	}
}

proctype caller(byte me) {
	byte n = CALLS, s, g0, l, i, c, r, w, wg;
	bit d, x;

#if PLAN == 0
	if :: me == 0 -> s = NS - 2; leave(s, 0); goto next :: else fi;
#endif
	do
	:: n == 0 -> break
	:: else ->
		n--;
again:
		atomic { read_gate(); fresh = fresh & ~(1 << me) }
		/* find */
		s = NONE;
		if
		:: atomic { l > 0 && st[0] == FREE -> st[0] = CLAIMED; s = 0 }
		:: atomic { l > 1 && st[1] == FREE -> st[1] = CLAIMED; s = 1 }
#if NS > 2
		:: atomic { l > 2 && st[2] == FREE -> st[2] = CLAIMED; s = 2 }
#endif
		:: else -> skip
		fi;
		if :: s == NONE -> goto next :: else fi;
#if MUT == 1			/* the gate is not read again after the claim */
		if :: !d -> atomic { admit(); goto in } :: else fi;
#endif
#if MUT == 8			/* counts before it has read the gate for the bracket: no third read */
#define BRACKET 0
#else
#define BRACKET 1
#endif
		atomic {
			read_gate();
			if
			:: l <= s -> goto undo
			:: l > s && !d -> admit(); goto in
			:: l > s && d -> skip
			fi
		}
#if MUT == 2			/* DRAIN is ignored */
		atomic { admit(); goto in }
#endif
		atomic { i = 0; c = 0 }
		do
		:: atomic { i < NS ->
#if MUT == 4			/* the lent slot counts, the lender does not */
			if :: st[i] != FREE && st[i] != LENDER -> c++ :: else fi;
#else
			if :: st[i] != FREE && st[i] != LENT -> c++ :: else fi;
#endif
			i++ }
		:: i == NS -> break
		od;
		atomic {
			i = 0;
			if
			:: BRACKET && (limit != l || drain != d || !me_fresh) -> c = 0; goto changed
			:: else ->
				if
				:: c > l -> c = 0; goto undo
				:: else -> c = 0; admit()
				fi
			fi
		}
in:
		atomic { fresh = fresh & ~(1 << me); l = 0; d = 0; g0 = gen[s] }
		atomic { assert(st[s] == CLAIMED); st[s] = BUSY }
		leave(s, g0);
		goto next;
changed:
		atomic { assert(st[s] == CLAIMED); st[s] = FREE; fresh = fresh & ~(1 << me); l = 0; d = 0; s = 0 }
		goto again;
undo:
		atomic { assert(st[s] == CLAIMED); st[s] = FREE }
next:		atomic { fresh = fresh & ~(1 << me); l = 0; d = 0; s = 0; g0 = 0 }
	od;
	done++
}

/* a call that sits in the last slot from the start and leaves last */
proctype stuck() {
	byte r, w, wg;
	bit x;

#ifndef STUCK_ANYTIME
	letgo;
#endif
	leave(NS - 1, 0);
	done++
}

inline set_limit(v) {
	atomic {
		if :: v != limit -> drain = 1 :: else fi;
		limit = v;
#if MUT != 3			/* no version in the gate */
		fresh = 0
#endif
	}
}

proctype control() {
#if PLAN == 0
	skip;
#elif PLAN == 1
	set_limit(NS - 1); set_limit(NS); set_limit(NS - 1);
#elif PLAN == 2
	set_limit(NS - 1); set_limit(NS - 2);
#elif PLAN == 5
	set_limit(1);
#elif PLAN == 6
	set_limit(NS - 1);
#elif PLAN == 3
	set_limit(1); set_limit(NS); set_limit(NS - 1);
#else
	set_limit(NS - 1); set_limit(0); set_limit(NS); set_limit(1);
#endif
	done++
}

/* is there a LENT slot of rank < l for generation mg of slot m? x */
inline partner(m, mg) {
	atomic { r = 0; x = 0 }
	do
	:: r == NS || x -> break
	:: else ->
		atomic { w = st[r]; wg = gen[r] };
		if
		:: w == LENT && r < l ->
			atomic {
				x = (rm[r] == m && rg[r] == mg && st[r] == LENT && gen[r] == wg);
				r++
			}
		:: else -> r++
		fi
	od;
	atomic { r = 0; w = 0; wg = 0 }
}

inline lend(m, mg) {
	r = NONE;
	if
	:: atomic { l > 0 && st[0] == FREE -> st[0] = CLAIMED; r = 0 }
	:: atomic { l > 1 && st[1] == FREE -> st[1] = CLAIMED; r = 1 }
	:: else -> skip
	fi;
	if
	:: r != NONE ->
		rm[r] = m;
		rg[r] = mg;
		atomic { wg = gen[r]; assert(st[r] == CLAIMED); st[r] = LENT }
		atomic {
			if
			:: st[m] == BUSY && gen[m] == mg -> st[m] = LENDER; x = 1
			:: else -> x = (st[m] == LENDER && gen[m] == mg)
			fi
		}
		if
		:: !x -> unlend(r)		/* the call has gone: nobody else will do it */
		:: else
		fi
	:: else
	fi;
	atomic { r = 0; wg = 0; x = 0 }
}

inline tick() {
	/* give back what stands for a call that has gone */
	m = 0;
	do
	:: m == NS -> break
	:: else ->
		atomic { w = st[m]; wg = gen[m] };
		if
		:: w == LENT ->
			atomic { r = rm[m]; mg = rg[m] }
			if
			:: st[m] == LENT && gen[m] == wg ->
				if
				:: gen[r] != mg -> unlend(m)
				:: else
				fi
			:: else
			fi
		:: else
		fi;
		atomic { m++; w = 0; wg = 0; mg = 0; r = 0 }
	od;
	atomic { read_gate() }
	if
	:: d ->
		atomic { m = l; ok = 1 }
		do
		:: m == NS -> break
		:: else ->
			atomic { w = st[m]; mg = gen[m] };
			if
			:: w == FREE || w == LENT -> w = 0
#if MUT == 7			/* a claim in the making is not seen as a call */
			:: w == CLAIMED -> w = 0
#else
			:: w == CLAIMED -> w = 0; ok = 0
#endif
#if MUT == 9			/* a lender is taken as provided for, whatever the rank of its lent slot */
			:: w == LENDER -> w = 0
			:: w == BUSY ->
#else
			:: w == BUSY || w == LENDER ->
#endif
				w = 0;
				partner(m, mg);
				if
				:: x ->	/* somebody lent and stopped before the last step */
					atomic {
						x = 0;
						if :: st[m] == BUSY && gen[m] == mg -> st[m] = LENDER :: else fi
					}
				:: else ->
#if MUT != 10			/* nothing is lent */
					lend(m, mg);
#endif
					ok = 0
				fi
			fi;
			atomic { m++; mg = 0 }
		od;
		atomic {
			m = 0;
			if
			:: ok && limit == l && drain && me_fresh -> drain = 0
			:: else
			fi;
			ok = 0
		}
	:: else
	fi;
	atomic { fresh = fresh & ~(1 << me); l = 0; d = 0 }
}

proctype ticker(byte me; byte n) {
	byte m, mg, l, r, w, wg;
	bit d, x, ok;

	do
	:: n > 0 -> n--; tick()
	:: n == 0 -> break
	od;
	done++
}

init {
	byte k;

	atomic {
		st[NS - 1] = BUSY; inside = 1;
#if PLAN == 0
		st[NS - 2] = BUSY; inside = 2; limit = NS - 2; drain = 1;
#endif
		for (k : 0 .. CALLERS - 1) { run caller(k) }
		k = 0;
		run stuck();
		run control();
		run ticker(CALLERS, TICKS);
#ifdef TICKERS2
		run ticker(CALLERS + 1, TICKS);
#define OTHERS (CALLERS + 3)
#else
#define OTHERS (CALLERS + 2)
#endif
	}
#ifndef STUCK_ANYTIME
	done == OTHERS;
	/* only the stuck call is inside: two ticks, and it must not keep DRAIN up */
	atomic { done = 0; run ticker(CALLERS, 2) }
	done == 1;
	if :: limit > 0 -> assert(!drain) :: else fi;
	letgo = 1;
	done == 2;
#else
	done == OTHERS + 1;
#endif
	atomic { done = 0; run ticker(CALLERS, 2) }
	done == 1;
	assert(inside == 0 && !drain);
	assert(st[0] == FREE && st[1] == FREE);
#if NS > 2
	assert(st[2] == FREE);
#endif
}
