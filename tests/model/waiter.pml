/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounded waiting. NS slots, all taken at the start by one holder each, the hint EMPTY; waiters; a
 * newcomer that may take back its own claim; under KILL a holder that may die anywhere, and a reaper.
 *
 *   release : word FREE; look at the hint; look at WAITERS, in this order; set: grant
 *   grant   : loop: find a WAITING node; none: take WAITERS off, look once more, set it again if there is one
 *             now, else stop. Claim any slot; none to be had: stop (whoever has it will look). CAS node
 *             WAITING -> GRANTED(slot, generation); lost: the next node; none left: release the slot, loop.
 *   wait    : node WAITING; WAITERS on; one more try; sleep.
 *             GRANTED: CAS slot CLAIMED(granter, generation) -> BUSY(waiter); fails: the granter died and
 *             the slot was reaped: WAITING and WAITERS again, grant, sleep.
 *             Time-out: CAS node WAITING -> TIMED_OUT; lost: take what was granted.
 *   reaper  : words of the dead go back, each is a release; then WAITERS on if a node is WAITING, and grant:
 *             the dead may have taken it off. Housekeeping does the last part for a granter that is stopped.
 *
 * So the slot is in the granter's name until the waiter takes it. With REWORD the granter writes the
 * waiter's name into the word before its CAS on the node; then a granter killed between the two leaves
 * a slot in the name of a living process that does not know of it (MUT 8).
 *
 * Waiter 0 never times out: if it sleeps for ever, spin sees an invalid end state.
 */
#ifndef NS
#define NS 1
#endif
#ifndef NW
#define NW 2
#endif
#ifndef NN			/* nodes */
#define NN NW
#endif
#ifndef WCALLS			/* calls of every waiter but the first */
#define WCALLS 1
#endif
#ifndef NEWCOMERS
#define NEWCOMERS 1
#endif
#ifndef MUT
#define MUT 0
#endif
#if MUT == 8 || MUT == 9
#define REWORD
#endif
#if MUT == 8 || MUT == 13 || MUT == 14
#define KILL
#endif

#ifdef KILL
#define next_gen(s) gen[s]++
#else
#define next_gen(s) skip	/* only a reaped slot needs to be told from a later claim of it */
#endif

#define FREE 0
#define CLAIMED 1
#define BUSY 2
#define NFREE 0
#define RESERVED 1
#define WAITING 2
#define GRANTED 3
#define TIMED_OUT 4
#define NOBODY 255
#define EMPTY 0
#define MAYBE 1

byte st[NS], own[NS] = NOBODY, gen[NS];
byte occ[NS] = NOBODY;		/* ghost: the call in the slot */
byte nst[NN], nown[NN] = NOBODY, nslot[NN], ngen[NN];
bit hint = EMPTY;
bit waiters;			/* the flag in the gate word */
byte done;
bit dead;			/* holder 0 was killed */
#define DEADONE 0

inline look_hint() {
	if
	:: hint == EMPTY -> hint = MAYBE
	:: else
	fi
}

/* any free slot, by the hint: claimed, or to = NOBODY */
inline find(to) {
	to = NOBODY;
	if
	:: hint == EMPTY
	:: else ->
		atomic {
			if
			:: st[0] == FREE -> st[0] = CLAIMED; own[0] = me; to = 0
			:: else
			fi
		}
#if NS == 2
		atomic {
			if
			:: to == NOBODY && st[1] == FREE -> st[1] = CLAIMED; own[1] = me; to = 1
			:: else
			fi
		}
#endif
	fi
}

/* a node that is WAITING, or j == NN */
inline scan() {
	j = 0;
	do
	:: j == NN || nst[j] == WAITING -> break
	:: else -> j++
	od
}

/* the slot in c to a waiter; c = NOBODY when that was done */
inline hand_over() {
	do
	:: c == NOBODY -> break
	:: else ->
		scan();
		if
		:: j == NN -> break
		:: else ->
			atomic { g = gen[c]; to = nown[j] }
#ifdef REWORD
			atomic { assert(st[c] == CLAIMED && own[c] == me); own[c] = to }
#endif
			atomic {
				if
#if defined(REWORD) && MUT != 9
				:: nst[j] == WAITING && nown[j] == to -> nst[j] = GRANTED; nslot[j] = c; ngen[j] = g; c = NOBODY
#else
				:: nst[j] == WAITING -> nst[j] = GRANTED; nslot[j] = c; ngen[j] = g; c = NOBODY
#endif
				:: else
#ifdef REWORD
					-> own[c] = me
#endif
				fi;
				g = 0; to = NOBODY
			}
		fi
	od
}

inline grant() {
	do
	:: true ->
		scan();
		if
		:: j == NN ->
			waiters = 0;
#if MUT == 7			/* WAITERS is taken off without a further look */
			break;
#else
			scan();
			if
			:: j == NN -> break
			:: else -> waiters = 1
			fi
#endif
		:: else ->
			find(c);
			if
			:: c == NOBODY -> break		/* who has it will look */
			:: else ->
				hand_over();
				if
				:: c == NOBODY
				:: else ->
#if MUT == 4			/* lost to a time-out, the slot not taken back */
					break;
#endif
					atomic { assert(st[c] == CLAIMED && occ[c] == NOBODY); st[c] = FREE; own[c] = NOBODY; c = NOBODY }
					look_hint();
#if MUT == 5			/* taken back, but no second look */
					break
#endif
				fi
			fi
		fi
	od;
	atomic { j = 0; c = NOBODY }
}

/* a slot was made FREE: it may be owed to a waiter */
inline look_waiters() {
	if
	:: !waiters
	:: else -> grant()
	fi
}

inline make_free(s) {
	atomic {
		assert(st[s] == BUSY && own[s] == me && occ[s] == me);
		st[s] = FREE; own[s] = NOBODY; next_gen(s); occ[s] = NOBODY
	}
}

inline leave(s) {
#if MUT == 1			/* looks at WAITERS, then releases */
	k = waiters;
	make_free(s);
	look_hint();
	if :: k -> look_waiters() :: else fi;
	k = 0
#elif MUT == 2			/* looks at WAITERS before the hint */
	make_free(s);
	look_waiters();
	look_hint()
#else
	make_free(s);
	look_hint();
	look_waiters()
#endif
}

inline enter_slot(s) {
	atomic { assert(st[s] == CLAIMED && own[s] == me && occ[s] == NOBODY); st[s] = BUSY; occ[s] = me }
}

proctype holder(byte me) {
	byte j, g, to = NOBODY, c = NOBODY, k, s = me;

#ifdef KILL
	{
		leave(s);
		done++
	} unless {
		atomic { dead && me == DEADONE -> done++ }
	}
#else
	leave(s);
	done++
#endif
}

#ifdef KILL
proctype killer() {
	if
	:: atomic { done == 0 -> dead = 1 }
	:: skip
	fi;
	done++
}

/* the words that carry the dead owner go back, each by CAS with a new generation; then look as any exit */
proctype reaper(byte me) {
	byte j, g, to = NOBODY, c = NOBODY, s, w, o;

	dead || done == 1 + NS + NW + NEWCOMERS;
	if
	:: dead ->
		do
		:: s == NS -> break
		:: else ->
			atomic { g = gen[s]; w = st[s]; o = own[s] }
			atomic {
				if
				:: o == DEADONE && w != FREE && st[s] == w && own[s] == o && gen[s] == g ->
					st[s] = FREE; own[s] = NOBODY; gen[s]++; occ[s] = NOBODY
				:: else
#if MUT == 14			/* the reaper looks only when it has given a word back */
					-> w = 0; o = 0; g = 0; goto skipped
#endif
				fi;
				w = 0; o = 0; g = 0
			}
			/* also where nothing was found: a killed exit may have got to FREE and no further */
			look_hint();
			look_waiters();
#if MUT == 14
skipped:
#endif
			s++
		od;
		scan();
		if :: j != NN -> waiters = 1 :: else fi;
		j = 0;
		look_waiters()
	:: else
	fi;
	done++
}
#endif

proctype newcomer(byte me) {
	byte j, g, to = NOBODY, c = NOBODY, k, s;

	find(s);
	if
	:: s == NOBODY
	:: else ->
		if
		:: enter_slot(s); leave(s)
		:: true ->		/* the limit fell, or the like: undo; it is a release */
			atomic { assert(own[s] == me); st[s] = FREE; own[s] = NOBODY }
#if MUT != 10			/* undo without a look */
			look_hint();
			look_waiters()
#endif
		fi
	fi;
	s = 0;
	done++
}

proctype waiter(byte me; bit patient) {
	byte n = 1, q = NOBODY, j, g, to = NOBODY, c = NOBODY, k, s;

	if :: !patient -> n = WCALLS :: else fi;
	do
	:: n == 0 -> break
	:: else ->
		n--;
		find(s);
		if :: s != NOBODY -> goto in :: else fi;
		/* a node */
		if
		:: atomic { nst[0] == NFREE -> nst[0] = RESERVED; nown[0] = me; q = 0 }
#if NN > 1
		:: atomic { nst[0] != NFREE && nst[1] == NFREE -> nst[1] = RESERVED; nown[1] = me; q = 1 }
#endif
#if NN > 2
		:: atomic { nst[0] != NFREE && nst[1] != NFREE && nst[2] == NFREE -> nst[2] = RESERVED; nown[2] = me; q = 2 }
#endif
		:: atomic { !patient && nst[0] != NFREE && nst[NN - 1] != NFREE -> goto next }
		fi;
#if MUT == 6			/* the flag before the node */
		waiters = 1;
		nst[q] = WAITING;
#else
		nst[q] = WAITING;
		waiters = 1;
#endif
#if MUT != 3			/* no further try */
		find(s);
#else
		s = NOBODY;
#endif
		if
		:: s != NOBODY ->
			atomic {
				if
				:: nst[q] == WAITING -> nst[q] = TIMED_OUT; goto drop
				:: else -> assert(nst[q] == GRANTED)
				fi
			}
#if MUT != 11			/* has got one by itself, and forgets what was granted */
			/* two slots: the granted one goes back */
			k = nslot[q];
			atomic {
				if
#ifdef REWORD
				:: st[k] == CLAIMED && own[k] == me && gen[k] == ngen[q] -> st[k] = FREE; own[k] = NOBODY
#else
				:: st[k] == CLAIMED && gen[k] == ngen[q] -> st[k] = FREE; own[k] = NOBODY; next_gen(k)
#endif
				:: else
				fi
			}
			look_hint();
			look_waiters();
			k = 0;
#endif
			goto drop
		:: else
		fi;
asleep:
		if
		:: nst[q] == GRANTED
#if MUT == 12			/* time-out by a store */
		:: atomic { !patient && nst[q] == WAITING -> skip } nst[q] = TIMED_OUT; goto drop
#else
		:: atomic { !patient && nst[q] == WAITING -> nst[q] = TIMED_OUT; goto drop }
#endif
		fi;
		atomic {
			k = nslot[q];
			if
#ifdef REWORD
			:: st[k] == CLAIMED && gen[k] == ngen[q] -> assert(own[k] == me); st[k] = BUSY; s = k
#elif MUT == 13			/* takes the slot over by a store */
			:: true -> st[k] = BUSY; own[k] = me; s = k
#else
			:: st[k] == CLAIMED && gen[k] == ngen[q] -> own[k] = me; st[k] = BUSY; s = k
#endif
			:: else
			fi;
			k = 0;
			if
			:: s != NOBODY -> assert(occ[s] == NOBODY); occ[s] = me
			:: else -> nslot[q] = 0; ngen[q] = 0
			fi
		}
		if
		:: s == NOBODY ->
			nst[q] = WAITING;
			waiters = 1;
			grant();
			goto asleep
		:: else
		fi;
		atomic { nst[q] = NFREE; nown[q] = NOBODY; nslot[q] = 0; ngen[q] = 0; q = NOBODY }
		leave(s);
		goto next;
drop:
		atomic { nst[q] = NFREE; nown[q] = NOBODY; nslot[q] = 0; ngen[q] = 0; q = NOBODY }
		if :: s == NOBODY -> goto next :: else fi;
in:
		enter_slot(s);
		leave(s);
next:
		atomic { s = 0; k = 0 }
	od;
	done++
}

init {
	byte i;

	atomic {
		for (i : 0 .. NS - 1) { st[i] = BUSY; own[i] = i; occ[i] = i; run holder(i) }
		for (i : 0 .. NW - 1) { run waiter(NS + i, i == 0) }
		for (i : 0 .. NEWCOMERS - 1) { run newcomer(NS + NW + i) }
		i = 0;
#ifdef KILL
		run killer();
		run reaper(NS + NW + NEWCOMERS);
#define ALL (NS + NW + NEWCOMERS + 2)
#else
#define ALL (NS + NW + NEWCOMERS)
#endif
	}
	done == ALL;
	assert(st[0] == FREE && st[NS - 1] == FREE);
	assert(nst[0] == NFREE && nst[NN - 1] == NFREE);
	assert(hint == MAYBE)
}
