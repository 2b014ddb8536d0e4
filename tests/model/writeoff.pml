/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing off a call that runs on: NE elements are the budget.
 *
 * An element is a slot in small: its word is {state, purger, generation of its own}, the generation goes up
 * when it becomes EMPTY, every change is a CAS on the full word, and the fields beside it (slot, generation
 * of the call) mean something in PREP and ACTIVE only. States EMPTY, RESV, PREP, ACTIVE. The slot word has a
 * state between the two halves of a write-off, PURGED, with the generation still that of the call (in the code
 * CLAIMED, which no other word is under the generation of a call that has run):
 *
 *   purge : EMPTY -> RESV; fill in; PREP; CAS word BUSY -> PURGED (fails: PREP -> EMPTY);
 *           CAS PREP -> ACTIVE; CAS word PURGED -> FREE, generation + 1
 *   exit  : CAS BUSY -> FREE. Fails: late. CAS PURGED -> FREE for a purger that is slow; and after that clear
 *           every element, PREP or ACTIVE, that names this slot and generation
 *   mend  : word PURGED under the element's generation: PREP -> ACTIVE, then free the word, whoever the purger
 *           is; else, of a dead purger: RESV -> EMPTY, PREP -> EMPTY
 *
 * The word is freed only after ACTIVE, so "PREP and the word has moved on" means one thing: the call left by
 * itself. With the one step BUSY -> FREE it may mean either, and no reading of it is right (MUT 1, MUT 2).
 *
 * Checked: running <= words not FREE + elements in use, at each claim, each word freed, each element cleared
 * (so nothing comes back while its call runs); at the end all slots are FREE and the whole budget is back.
 * Purger 1 may die anywhere.
 */
#ifndef NS
#define NS 1
#endif
#ifndef NE
#define NE 1
#endif
#ifndef CALLERS
#define CALLERS 2
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef NP
#define NP 2
#endif
#ifndef PURGES
#define PURGES 1
#endif
#ifndef MENDS			/* passes of the mender that runs beside the rest */
#define MENDS 1
#endif
#ifndef MUT
#define MUT 0
#endif
#if MUT == 1 || MUT == 2
#define ONE_STEP
#endif

#define FREE 0
#define BUSY 1
#define PURGED 2
#define EMPTY 0
#define RESV 1
#define PREP 2
#define ACTIVE 3

byte st[NS], gen[NS];
byte el[NE], eown[NE], eseq[NE], eslot[NE], egen[NE];
byte running;			/* ghost: calls that physically run */
byte done;
bit dead;			/* purger 1 was killed */

#if NE == 1
#define used (el[0] >= PREP)
#else
#define used ((el[0] >= PREP) + (el[1] >= PREP))
#endif

#if NS == 1
#define taken (st[0] != FREE)
#else
#define taken ((st[0] != FREE) + (st[1] != FREE))
#endif
#define check() assert(running <= taken + used)

#define is_busy(s, g) (st[s] == BUSY && gen[s] == g)
#define is_purged(s, g) (st[s] == PURGED && gen[s] == g)
#if MUT == 5			/* elements are compared by the slot's word alone, which is not unique */
#define names(i, s, g) (egen[i] == g)
#else
#define names(i, s, g) (eslot[i] == s && egen[i] == g)
#endif

#if MUT == 11			/* the element has no generation; its fields are compared instead */
#define same(i, state) (el[i] == state && eslot[i] == s && egen[i] == g)
#else
#define same(i, state) (el[i] == state && eseq[i] == q)
#endif

inline clear_element(i) {
	el[i] = EMPTY; eseq[i]++; eown[i] = 0; eslot[i] = 0; egen[i] = 0;
	check()
}

inline free_purged(s, g) {
	atomic {
		if
		:: is_purged(s, g) -> st[s] = FREE; gen[s]++; check()
		:: else
		fi
	}
}

/* every element that names (s, g): read, then CAS on what was read; a change of PREP to ACTIVE: again */
inline clear_matching(s, g) {
	i = 0;
	do
	:: i == NE -> break
	:: else ->
		atomic {
			if
#if MUT == 4			/* only ACTIVE is looked for */
			:: el[i] == ACTIVE && names(i, s, g) -> x = el[i]; q = eseq[i]
#else
			:: el[i] >= PREP && names(i, s, g) -> x = el[i]; q = eseq[i]
#endif
			:: else -> i++
			fi
		}
		if
		:: x != 0 ->
			atomic {
				if
				:: same(i, x) ->
					clear_element(i);
#if MUT == 10			/* stops at the first */
					i = NE
#else
					i++
#endif
				:: else
				fi;
				x = 0; q = 0
			}
		:: else
		fi
	od;
	i = 0
}

proctype caller() {
	byte n = CALLS, s, g, i, x, q;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		if
		:: atomic { st[0] == FREE -> st[0] = BUSY; s = 0; g = gen[0]; running++; check() }
#if NS == 2
		:: atomic { st[1] == FREE -> st[1] = BUSY; s = 1; g = gen[1]; running++; check() }
#endif
		fi;
#ifdef STUCK			/* half written off, it stays until somebody has done the other half */
		!is_purged(s, g);
#endif
		atomic {
			if
			:: is_busy(s, g) -> st[s] = FREE; gen[s]++; running--; goto next
			:: else -> running--		/* late: it has ended, whatever is still to be tidied */
			fi
		}
#if MUT == 3			/* looks through the elements first, then frees the word */
		clear_matching(s, g);
		free_purged(s, g);
#else
		free_purged(s, g);
		clear_matching(s, g);
#endif
next:		atomic { s = 0; g = 0 }
	od;
	done++
}

/* one element: what is purged anybody may finish, the rest only if the purger is dead: seen first, so that it
 * has done nothing since */
inline mend_one(e) {
	atomic { x = el[e]; q = eseq[e]; s = eslot[e]; g = egen[e]; o = eown[e] }
#if MUT != 12			/* whether it is dead is looked at last */
	d = dead && o == 1;
#endif
	if
#ifndef ONE_STEP
	:: x >= PREP && is_purged(s, g) ->
		/* two purgers may meet over a call: the word is freed for an element that is ACTIVE, whosever */
		atomic { if :: same(e, PREP) -> el[e] = ACTIVE :: x == PREP && !same(e, PREP) -> x = 0 :: else fi }
#if MUT == 9			/* ACTIVE is left alone, and its word */
		if :: x == PREP -> free_purged(s, g) :: else fi
#elif MUT == 13			/* the word is freed though the element has gone */
		free_purged(s, g)
#else
		if :: x != 0 -> free_purged(s, g) :: else fi
#endif
#endif
#if MUT == 1			/* as the word has moved on, it was written off */
	:: d && x == PREP && !is_busy(s, g) ->
		atomic { if :: same(e, PREP) -> el[e] = ACTIVE :: else fi }
#endif
	:: else ->
#if MUT == 12
		d = dead && o == 1;
#endif
		if
#if MUT != 8			/* RESV is not mended */
		:: d && x == RESV ->
			atomic { if :: same(e, RESV) -> clear_element(e) :: else fi }
#endif
		:: d && x == PREP ->
			atomic { if :: same(e, PREP) -> clear_element(e) :: else fi }
		:: else
		fi
	fi;
	atomic { x = 0; q = 0; s = 0; g = 0; o = 0; d = 0 }
}

inline mend() {
	mend_one(0);
#if NE == 2
	mend_one(1)
#endif
}

inline purge() {
	if
	:: atomic { st[0] == BUSY -> s = 0; g = gen[0] }
#if NS == 2
	:: atomic { st[1] == BUSY -> s = 1; g = gen[1] }
#endif
	:: goto stop
	fi;
	if
	:: atomic { el[0] == EMPTY -> el[0] = RESV; eown[0] = me; i = 0; q = eseq[0] }
#if NE == 2
	:: atomic { el[0] != EMPTY && el[1] == EMPTY -> el[1] = RESV; eown[1] = me; i = 1; q = eseq[1] }
#endif
	:: atomic { el[0] != EMPTY && el[NE - 1] != EMPTY -> goto stop }	/* the budget is used up */
	fi;
	atomic { assert(el[i] == RESV && eown[i] == me); eslot[i] = s; egen[i] = g; el[i] = PREP }
#ifdef ONE_STEP
	atomic { if :: is_busy(s, g) -> st[s] = FREE; gen[s]++; ok = 1; check() :: else fi }
#else
	atomic { if :: is_busy(s, g) -> st[s] = PURGED; ok = 1 :: else fi }
#endif
	if
	:: !ok ->
		atomic { if :: same(i, PREP) -> clear_element(i) :: else fi }
	:: else ->
#if MUT == 7			/* the word is freed before the element is ACTIVE */
		free_purged(s, g);
#endif
#if MUT == 6			/* ACTIVE by a store: a late exit may have cleared the element */
		atomic { eslot[i] = s; egen[i] = g; el[i] = ACTIVE; eown[i] = me }
#else
		atomic { if :: same(i, PREP) -> el[i] = ACTIVE :: else fi }
#endif
		free_purged(s, g)
	fi;
stop:	atomic { s = 0; g = 0; i = 0; q = 0; ok = 0 }
}

proctype purger(byte me) {		/* number 1 is the one that may die */
	byte n = PURGES, s, g, i, q;
	bit ok;

	{
		do
		:: n > 0 -> n--; purge()
		:: n == 0 -> break
		od;
		done++
	} unless {
		atomic { dead && me == 1 -> done++ }
	}
}

proctype killer() {
	if
	:: atomic { done < CALLERS + NP + 1 -> dead = 1 }
	:: skip
	fi;
	done++
}

proctype mender() {
	byte n = MENDS, x, q, s, g, o;
	bit d;

	do
	:: n > 0 -> n--; mend()
	:: true -> break
	od;
	done++
}

init {
	byte k, x, q, s, g, o;
	bit d;

	atomic {
		for (k : 0 .. CALLERS - 1) { run caller() }
		for (k : 1 .. NP) { run purger(k) }
		k = 0;
		run killer();
		run mender()
	}
	/* one pass after a death is enough, whatever the others do; callers may wait for the slot it frees */
	if
	:: dead -> mend()
	:: done == CALLERS + NP + 2
	fi;
	done == CALLERS + NP + 2;
	mend();
	assert(running == 0);
	assert(st[0] == FREE && st[NS - 1] == FREE);
	assert(el[0] == EMPTY && el[NE - 1] == EMPTY)
}
