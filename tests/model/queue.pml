/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One slot's life: claim, record, BUSY, exit, second exit from a copy of the entry, purge, late exit.
 *
 *   enter : CAS FREE -> CLAIMED; record (two words, one after the other); store BUSY
 *   exit  : copy the record; CAS (BUSY, generation remembered) -> (FREE, generation + 1); won: post() on the
 *           copy; lost: a late exit, nothing else
 *   purge : read the word; BUSY only; read the record; read the word again, the same: the record is the
 *           occupant's; CAS that word -> (FREE, generation + 1); won: post() on the copy
 *
 * Checked: no more inside than slots; of all who try to end a call exactly one wins; post() once a call and
 * on its own record; a record taken for good is the present occupant's; a late exit ends nobody else's call.
 * Calls have numbers, 1 and up; 0 is nobody. Any call may be found stale at any time.
 */
#ifndef NS
#define NS 1
#endif
#ifndef CALLERS
#define CALLERS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef PURGES
#define PURGES 2
#endif
#ifndef SECONDS			/* exits tried by the other thread */
#define SECONDS 2
#endif
#ifndef MUT
#define MUT 0
#endif

#define FREE 0
#define CLAIMED 1
#define BUSY 2
#define NID (CALLERS * CALLS + 1)

byte st[NS], gen[NS];
byte ra[NS], rb[NS];		/* the record, two words */
byte occ[NS];			/* ghost: the call in the slot */
byte es[CALLERS], eg[CALLERS], eid[CALLERS];	/* entries as the second thread can copy them; eid 0: none */
byte won[NID], posted[NID];
byte inside;
byte done;

#if MUT == 4			/* the generation stays */
#define next_gen(s) skip
#else
#define next_gen(s) gen[s]++
#endif

inline end_call(s, who) {
	assert(occ[s] == who);
	won[who]++; assert(won[who] == 1);
	st[s] = FREE; next_gen(s); occ[s] = 0; inside--
}

inline post(who) {
	atomic {
		assert(a == who && b == who);
		posted[who]++; assert(posted[who] == 1);
		a = 0; b = 0
	}
}

inline exit_call(s, g, who) {
#if MUT == 5			/* the record is copied after the release */
	atomic {
		if
		:: st[s] == BUSY && gen[s] == g -> end_call(s, who); ok = 1
		:: else -> ok = 0
		fi
	}
	a = ra[s]; b = rb[s];
#else
	a = ra[s]; b = rb[s];
#if MUT == 6			/* exit by look and store */
	ok = (st[s] == BUSY && gen[s] == g);
	if
	:: ok -> atomic { end_call(s, who) }
	:: else
	fi;
#else
	atomic {
		if
#if MUT == 3			/* the generation is not compared */
		:: st[s] == BUSY -> end_call(s, who); ok = 1
#else
		:: st[s] == BUSY && gen[s] == g -> end_call(s, who); ok = 1
#endif
		:: else -> ok = 0; assert(won[who] == 1)
		fi
	}
#endif
#endif
	if
	:: ok -> post(who)
	:: else -> atomic { a = 0; b = 0 }
	fi;
	ok = 0
}

proctype caller(byte me) {
	byte n, s, g, id, a, b;
	bit ok;

	do
	:: n == CALLS -> break
	:: else ->
		atomic { id = me * CALLS + n + 1; n++ }
		if
		:: atomic { st[0] == FREE ->
			st[0] = CLAIMED; s = 0; g = gen[s];
			assert(occ[s] == 0); occ[s] = id; inside++; assert(inside <= NS) }
#if NS == 2
		:: atomic { st[1] == FREE ->
			st[1] = CLAIMED; s = 1; g = gen[s];
			assert(occ[s] == 0); occ[s] = id; inside++; assert(inside <= NS) }
#endif
		fi;
#if MUT == 8			/* BUSY before the record is there */
		st[s] = BUSY;
		ra[s] = id; rb[s] = id;
#else
		ra[s] = id; rb[s] = id;
		atomic { assert(st[s] == CLAIMED); st[s] = BUSY }
#endif
		atomic { es[me] = s; eg[me] = g; eid[me] = id }	/* the entry may be copied from now on */
		exit_call(s, g, id);
		atomic { s = 0; g = 0; id = 0 }
	od;
	done++
}

/* another thread with a copy of an entry, fresh or long out of date */
proctype second() {
	byte n = SECONDS, s, g, id, a, b;
	bit ok;

	do
	:: n == 0 -> break
	:: n > 0 ->
		if
		:: atomic { eid[0] > 0 -> s = es[0]; g = eg[0]; id = eid[0] }
		:: atomic { eid[1] > 0 -> s = es[1]; g = eg[1]; id = eid[1] }
		:: atomic { done == CALLERS -> n = 1 }	/* none to copy */
		fi;
		n--;
		if :: id > 0 -> exit_call(s, g, id) :: else fi;
		atomic { s = 0; g = 0; id = 0 }
	od;
	done++
}

proctype purger() {
	byte n = PURGES, s, w, g, id, a, b;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		s = 0;
#if NS == 2
		if :: s = 0 :: s = 1 fi;
#endif
#if MUT == 2			/* the word is read after the record only */
		a = ra[s]; b = rb[s];
		atomic { w = st[s]; g = gen[s] }
#else
		atomic { w = st[s]; g = gen[s] }
		a = ra[s]; b = rb[s];
#endif
#if MUT == 1			/* a record is trusted while CLAIMED */
		if :: w == FREE -> goto next :: else fi;
#else
		if :: w != BUSY -> goto next :: else fi;
#endif
		/* the second look: from here on the record is believed */
		atomic {
			if
#if MUT == 7			/* no second look */
			:: true ->
#else
			:: st[s] == w && gen[s] == g ->
#endif
				assert(a == b && a == occ[s]); id = a
			:: else -> goto next
			fi
		}
		atomic {
			if
			:: st[s] == w && gen[s] == g -> end_call(s, id)
			:: else -> assert(won[id] == 1); goto next
			fi
		}
		post(id);
next:		atomic { s = 0; w = 0; g = 0; id = 0; a = 0; b = 0 }
	od;
	done++
}

init {
	byte i;

	atomic {
		for (i : 0 .. CALLERS - 1) { run caller(i) }
		run second();
		run purger()
	}
	done == CALLERS + 2;
	assert(inside == 0 && st[0] == FREE && st[NS - 1] == FREE);
	for (i : 1 .. NID - 1) { assert(won[i] == 1 && posted[i] == 1) }
}
