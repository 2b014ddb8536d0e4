/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free-slot hints on two levels, T over groups and S over lines, and the proof that a refusal needs.
 *
 * A hint is two bits: MAYBE, SUSPECT, EMPTY. A word holds several hints and a version. Whoever turns a
 * MAYBE into SUSPECT raises the version of the word in the same CAS; nobody else touches the version.
 *
 *   release : slot FREE; look at S, OR MAYBE in if it is not; look at T, OR MAYBE in if it is not
 *   refusal : 1. every MAYBE of T -> SUSPECT, version + 1; remember the words (t0)
 *             2. look at every slot below a hint that is not EMPTY (a line's S hint likewise)
 *             3. T still has the version of t0 and no MAYBE: refuse, and write EMPTY by CAS on that word;
 *                else start again
 *
 * Why it is right: between t0 and step 3 no hint was MAYBE, so no releaser has finished its look at T;
 * hence a slot that was seen taken is, at step 3, still taken or its releaser is in the gap.
 *
 * I3: a FREE slot has hints that are not EMPTY, or its releaser is in the gap.
 * I4: a caller that is refused saw a full moment: at some instant of its call no slot was FREE other than
 *     slots whose releaser is in the gap. `fullseen` has a bit a caller; each step that can make the condition
 *     true sets all bits in the same atomic step, and a call that begins takes the condition as it stands.
 *
 * GEOM 1: two groups, a line each, a slot each       2: one group, two lines of one slot
 *      3: one group, one line of two slots           4: group 0 of two lines, group 1 of one line
 *      5: as 1, but the groups' hints are in two different T words
 */
#ifndef GEOM
#define GEOM 1
#endif
#ifndef CALLERS
#define CALLERS 3
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef HELD			/* 1: the slots are taken at the start, by the first callers, and all is EMPTY */
#define HELD 0
#endif
#ifndef CALLS2			/* calls of every caller but the first */
#define CALLS2 CALLS
#endif
#ifndef MUT
#define MUT 0
#endif

#define MAYBE 3
#define SUSPECT 1
#define EMPTY 0

#if GEOM == 1 || GEOM == 5
#define NS 2
#define NG 2
#define grp(s) (s)
#define ssh(s) 0
#define ALLMAYBE_S 3
#elif GEOM == 2
#define NS 2
#define NG 1
#define grp(s) 0
#define ssh(s) (2 * (s))
#define ALLMAYBE_S 15
#elif GEOM == 3
#define NS 2
#define NG 1
#define grp(s) 0
#define ssh(s) 0
#define ALLMAYBE_S 3
#else
#define NS 3
#define NG 2
#define grp(s) ((s) >> 1)
#define ssh(s) (2 * ((s) & 1))
#define ALLMAYBE_S 15
#endif

#if GEOM == 5
#define NT 2
#define tw(g) (g)
#define tsh(g) 0
#define HMASK 3
#define ALLMAYBE_T 3
#else
#define NT 1
#define tw(g) 0
#define tsh(g) (2 * (g))
#if NG == 1
#define HMASK 3
#define ALLMAYBE_T 3
#else
#define HMASK 15
#define ALLMAYBE_T 15
#endif
#endif

#define hint(w, sh) (((w) >> (sh)) & 3)
#define anymaybe(w) (((w) & 3) == MAYBE || ((w) & 12) == 12)
/* each MAYBE of a word becomes SUSPECT: the low bit of every pair stays, the high bit goes */
#define suspected(w) ((w) & ~10)

/*
 * A version is only ever compared with the one a caller remembers, so it is kept as what the comparison
 * gives: a bit a caller, set when it reads or writes the word, taken from all others by a version + 1.
 */
byte T[NT], tver[NT];
byte S[NG], sver[NG];
bit slot[NS];
byte gap[NS];			/* ghost: 1 + the releaser between its release and the end of its look */
byte incall;			/* ghost: a bit a caller whose call is not decided yet */
byte fullseen;			/* ghost: a bit a caller, "a full moment was seen" */
byte inside;
byte done;

#if NS == 2
#define isfull ((slot[0] || gap[0]) && (slot[1] || gap[1]))
#else
#define isfull ((slot[0] || gap[0]) && (slot[1] || gap[1]) && (slot[2] || gap[2]))
#endif
#define hinted(s) (slot[s] || gap[s] || \
	(hint(T[tw(grp(s))], tsh(grp(s))) != EMPTY && hint(S[grp(s)], ssh(s)) != EMPTY))

inline check_i3() {
	assert(hinted(0) && hinted(1));
#if NS == 3
	assert(hinted(2));
#endif
}

/* a claim by CAS, or the sight of a taken slot */
inline try_claim(s) {
	atomic {
		if
		:: !slot[s] ->
			slot[s] = 1; gap[s] = 0; inside++; got = 1;
			assert(inside <= NS);
			if :: isfull -> fullseen = fullseen | incall :: else fi
		:: else
		fi
	}
}

inline or_T(s) {
	atomic {
		x = T[tw(grp(s))];
		if :: hint(x, tsh(grp(s))) != MAYBE -> skip :: else -> x = -1 fi
	}
	if
	:: x != -1 -> atomic { T[tw(grp(s))] = T[tw(grp(s))] | (MAYBE << tsh(grp(s))); x = 0 }
	:: else -> x = 0
	fi
}

inline or_S(s) {
	atomic {
		x = S[grp(s)];
		if :: hint(x, ssh(s)) != MAYBE -> skip :: else -> x = -1 fi
	}
	if
	:: x != -1 -> atomic { S[grp(s)] = S[grp(s)] | (MAYBE << ssh(s)); x = 0 }
	:: else -> x = 0
	fi
}

/* exit, purge, give-back of a claim: all are releases */
inline release(s) {
#if MUT == 1			/* looks before it releases */
	t0[0] = T[tw(grp(s))]; x = S[grp(s)];
	atomic { slot[s] = 0; inside--; gap[s] = _pid + 1 }
	if :: hint(x, ssh(s)) != MAYBE -> S[grp(s)] = S[grp(s)] | (MAYBE << ssh(s)) :: else fi;
	x = 0;
	if :: hint(t0[0], tsh(grp(s))) != MAYBE -> T[tw(grp(s))] = T[tw(grp(s))] | (MAYBE << tsh(grp(s))) :: else fi;
#else
	atomic { slot[s] = 0; inside--; gap[s] = _pid + 1 }
#if MUT == 2			/* T before S */
	or_T(s); or_S(s);
#elif MUT == 3			/* only T */
	or_T(s);
#elif MUT == 4			/* only S */
	or_S(s);
#else
	or_S(s); or_T(s);
#endif
#endif
	atomic {
		if :: gap[s] == _pid + 1 -> gap[s] = 0 :: else fi;
		check_i3()
	}
}

/* step 1 for one T word: t0[w] = the word without MAYBE, own if this caller made it so */
inline suspect_T(w) {
	do
	:: atomic {
		t0[w] = T[w]; tver[w] = tver[w] | (1 << me);
		if :: !anymaybe(t0[w]) -> break :: else fi
	   }
	   atomic {
		if
		:: T[w] == t0[w] && (tver[w] >> me) & 1 ->
			t0[w] = suspected(t0[w]); T[w] = t0[w]; own = own | (1 << w);
#if MUT != 7			/* no version */
			tver[w] = 1 << me;
#endif
			break
		:: else
		fi
	   }
	od
}

/* step 2 for the line of slot s (and its second slot under GEOM 3) */
inline look_line(s) {
	atomic {
		s0 = S[grp(s)]; sver[grp(s)] = sver[grp(s)] | (1 << me);
		sown = 0;
		if :: hint(s0, ssh(s)) == EMPTY -> skip :: else -> sown = 1 fi
	}
	if
	:: sown == 0
	:: else ->
#if MUT == 5			/* no second look: the slots are looked at before SUSPECT is written */
		try_claim(s);
#if GEOM == 3
		if :: !got -> try_claim(1); if :: got -> mine = 1 :: else fi :: else fi;
#endif
#endif
		do
		:: sown == 1 && hint(s0, ssh(s)) == MAYBE && !got ->
			atomic {
				if
				:: S[grp(s)] == s0 && (sver[grp(s)] >> me) & 1 ->
					s0 = s0 - (2 << ssh(s)); S[grp(s)] = s0; sown = 2;
#if MUT != 6			/* no version */
					sver[grp(s)] = 1 << me
#endif
				:: else -> s0 = S[grp(s)]; sver[grp(s)] = sver[grp(s)] | (1 << me)
				fi
			}
		:: else -> break
		od;
#if MUT != 5
		try_claim(s);
		if :: got -> mine = s :: else fi;
#if GEOM == 3
		if :: !got -> try_claim(1); if :: got -> mine = 1 :: else fi :: else fi;
#endif
#else
		if :: got && mine == 0 -> mine = s :: else fi;
#endif
		/* EMPTY only by the one who wrote SUSPECT, only under its version */
		if
		:: !got && sown == 2 ->
			atomic {
				if
				:: (sver[grp(s)] >> me) & 1 && hint(S[grp(s)], ssh(s)) == SUSPECT ->
					S[grp(s)] = S[grp(s)] & ~(3 << ssh(s));
					check_i3()
				:: else
				fi
			}
		:: else
		fi
	fi;
	atomic { s0 = 0; sown = 0; sver[grp(s)] = sver[grp(s)] & ~(1 << me) }
}

/* step 3 for one T word */
inline verify_T(w) {
	atomic {
		x = T[w];
		if
		:: !((tver[w] >> me) & 1) || anymaybe(x) -> again = 1
		:: else ->
			if
			:: (own >> w) & 1 -> T[w] = x & ~HMASK; check_i3()
			:: else
			fi
		fi;
		x = 0
	}
}

/* drop what is no longer needed, so that states which differ only in it are one */
inline forget() {
	own = 0; again = 0;
	t0[0] = 0; tver[0] = tver[0] & ~(1 << me);
#if NT == 2
	t0[1] = 0; tver[1] = tver[1] & ~(1 << me);
#endif
	incall = incall & ~(1 << me); fullseen = fullseen & ~(1 << me)
}

proctype caller(byte me; byte n) {
	bit got, again;
	byte mine, own, sown, s0;
	byte t0[NT];
	short x;

#if HELD
	if :: me < NS -> mine = me; got = 1; goto leave :: else fi;
#endif
	do
	:: n == 0 -> break
	:: else ->
		atomic {
			n--; incall = incall | (1 << me);
			if :: isfull -> fullseen = fullseen | (1 << me) :: else -> fullseen = fullseen & ~(1 << me) fi
		}
		/* a try without the hints: the slot last freed here, or the first pass of find */
		if
		:: true -> try_claim(0); if :: got -> mine = 0 :: else fi
#if NS > 1
		:: true -> try_claim(1); if :: got -> mine = 1 :: else fi
#endif
#if NS > 2
		:: true -> try_claim(2); if :: got -> mine = 2 :: else fi
#endif
		:: skip
		fi;
walk:
		if
		:: got
		:: else ->
			again = 0; own = 0;
#if MUT == 5
			t0[0] = T[0];
			if :: hint(t0[0], 0) != EMPTY -> look_line(0) :: else fi;
			if :: !got && hint(t0[0], tsh(grp(1))) != EMPTY -> look_line(1) :: else fi;
			if :: !got -> suspect_T(0) :: else fi;
#else
			suspect_T(0);
#if NT == 2
			suspect_T(1);
#endif
			if :: hint(t0[0], 0) != EMPTY -> look_line(0) :: else fi;
#if GEOM != 3
			if :: !got && hint(t0[tw(grp(1))], tsh(grp(1))) != EMPTY -> look_line(1) :: else fi;
#endif
#if NS == 3
			if :: !got && hint(t0[tw(grp(2))], tsh(grp(2))) != EMPTY -> look_line(2) :: else fi;
#endif
#endif
			if
			:: got		/* the hints stay SUSPECT: never wrong */
			:: else ->
#if MUT == 10			/* several T words, each seen EMPTY once, is not a proof */
				if :: own == 0 && !(t0[0] & HMASK) && !(t0[1] & HMASK) -> goto refused :: else fi;
#endif
#if MUT == 9			/* a caller that found SUSPECT looks once and trusts it */
				if :: own == 0 -> goto refused :: else fi;
#endif
				verify_T(0);
#if NT == 2
				verify_T(1);
#endif
#if MUT == 8			/* refuses though its CAS to EMPTY failed */
				again = 0;
#endif
				if
				:: again -> goto walk
				:: else
				fi;
refused:			atomic { assert((fullseen >> me) & 1); incall = incall & ~(1 << me); goto next }
			fi
		fi;
#if MUT == 11			/* a claim is taken back by a bare store, without the look */
		if
		:: atomic { slot[mine] = 0; inside--; goto next }
		:: skip
		fi;
#endif
		atomic { forget() };
leave:		release(mine);
next:		atomic { forget(); got = 0; mine = 0 }
	od;
	done++
}

init {
	byte i;
	atomic {
#if HELD
		for (i : 0 .. NS - 1) { slot[i] = 1; inside++ }
#else
		T[0] = ALLMAYBE_T;
#if NT == 2
		T[1] = ALLMAYBE_T;
#endif
		S[0] = ALLMAYBE_S;
#if NG == 2
		S[1] = ALLMAYBE_S;
#endif
#endif
		for (i : 0 .. CALLERS - 1) { run caller(i, (i == 0 -> CALLS : CALLS2)) }
	}
	done == CALLERS;
	assert(inside == 0);
	check_i3()
}
