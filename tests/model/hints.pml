/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free-slot hints on two levels, T over groups and S over lines, and the proof that a refusal needs.
 *
 * A hint is two bits: MAYBE, SUSPECT, EMPTY. A word holds several hints and a version. Whoever turns a
 * MAYBE into SUSPECT raises the version of the word in the same CAS; nobody else touches the version.
 *
 *   release : slot FREE; S: MAYBE; T: MAYBE
 *   prober  : behind a MAYBE of S nothing is FREE: SUSPECT, version + 1; look again; EMPTY by CAS, if the
 *             version is still its own and the hint SUSPECT; else, or when it got a slot, MAYBE again.
 *             With T the same, where to look is to go through the group's lines by S.
 *   refusal : 1. read T (t0); all of it in one word and EMPTY: refuse
 *             2. go through all groups that are not EMPTY, as a prober
 *             3. read T again: no MAYBE in t0 nor now, and the versions of t0: refuse; else start again
 *
 * Why it is right: between t0 and step 3 no hint was MAYBE, so no releaser has finished its look at T;
 * hence a slot that was seen taken is, at step 3, still taken or its releaser is in the gap.
 *
 * To set MAYBE is to look, and to AND if it is not: one step here, since AND at the later moment, or nothing
 * at the earlier one, is what a single step at that moment does. CAS loops are one step likewise.
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
/*
 * A version is only ever compared with the one a caller remembers, so it is kept as what the comparison
 * gives: a bit a caller, set when it reads or writes the word, taken from all others by a version + 1.
 */
byte T[NT], tver[NT];		/* tver: the version is that of the caller's t0 */
byte S[NG];
byte tmine[NT], smine[NG];	/* the version is the one that this prober raised it to */
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

inline or_T(g) {
	T[tw(g)] = T[tw(g)] | (MAYBE << tsh(g))
}

inline or_S(s) {
	S[grp(s)] = S[grp(s)] | (MAYBE << ssh(s))
}

/* exit, purge, give-back of a claim: all are releases */
inline release(s) {
#if MUT == 1			/* looks before it releases */
	t0 = T[tw(grp(s))]; x = S[grp(s)];
	atomic { slot[s] = 0; inside--; gap[s] = _pid + 1 }
	if :: hint(x, ssh(s)) != MAYBE -> S[grp(s)] = S[grp(s)] | (MAYBE << ssh(s)) :: else fi;
	x = 0;
	if :: hint(t0, tsh(grp(s))) != MAYBE -> T[tw(grp(s))] = T[tw(grp(s))] | (MAYBE << tsh(grp(s))) :: else fi;
#else
	atomic { slot[s] = 0; inside--; gap[s] = _pid + 1 }
#if MUT == 2			/* T before S */
	or_T(grp(s)); or_S(s);
#elif MUT == 3			/* only T */
	or_T(grp(s));
#elif MUT == 4			/* only S */
	or_S(s);
#else
	or_S(s); or_T(grp(s));
#endif
#endif
	atomic {
		if :: gap[s] == _pid + 1 -> gap[s] = 0 :: else fi;
		check_i3()
	}
}

/* the slots of the line of s */
inline probe(s) {
	try_claim(s);
	if :: got -> mine = s :: else fi
#if GEOM == 3
	;
	if :: !got -> try_claim(1); if :: got -> mine = 1 :: else fi :: else fi
#endif
}

inline look_line(s) {
	if :: got -> skip :: else -> s0 = hint(S[grp(s)], ssh(s)) fi;
	if
	:: s0 == EMPTY
	:: else ->
		probe(s);
		if
		:: got || s0 != MAYBE
		:: else ->
			atomic {
				if
				:: hint(S[grp(s)], ssh(s)) == MAYBE ->
					S[grp(s)] = S[grp(s)] - (2 << ssh(s));
#if MUT == 6			/* no version */
					smine[grp(s)] = smine[grp(s)] | (1 << me)
#else
					smine[grp(s)] = 1 << me
#endif
				:: else -> s0 = EMPTY		/* somebody else's to prove */
				fi
			}
			if
			:: s0 == EMPTY
			:: else ->
#if MUT != 5			/* no look between SUSPECT and EMPTY */
				probe(s);
#endif
				atomic {
					if
					:: !got && (smine[grp(s)] >> me) & 1 && hint(S[grp(s)], ssh(s)) == SUSPECT ->
						S[grp(s)] = S[grp(s)] & ~(3 << ssh(s)); s0 = EMPTY;
						check_i3()
					:: else
					fi;
					smine[grp(s)] = smine[grp(s)] & ~(1 << me)
				}
				if :: s0 != EMPTY -> or_S(s) :: else fi
			fi
		fi
	fi;
	s0 = 0
}

inline look_lines(g) {
#if GEOM == 1 || GEOM == 5
	look_line(g)
#elif GEOM == 2
	look_line(0); look_line(1)
#elif GEOM == 3
	look_line(0)
#else
	if
	:: g == 0 -> look_line(0); look_line(1)
	:: else -> look_line(2)
	fi
#endif
}

inline look_group() {
	h = hint(T[tw(g)], tsh(g));
	if
	:: h == EMPTY
	:: else ->
		look_lines(g);
		if
		:: got || h != MAYBE
		:: else ->
			atomic {
				if
				:: hint(T[tw(g)], tsh(g)) == MAYBE ->
					T[tw(g)] = T[tw(g)] - (2 << tsh(g));
#if MUT == 7			/* no version */
					tmine[tw(g)] = tmine[tw(g)] | (1 << me)
#else
					tver[tw(g)] = 0; tmine[tw(g)] = 1 << me
#endif
				:: else -> h = EMPTY		/* somebody else's to prove */
				fi
			}
			if
			:: h == EMPTY
			:: else ->
#if MUT != 12			/* no look at S between SUSPECT and EMPTY */
				look_lines(g);
#endif
				atomic {
					if
					:: !got && (tmine[tw(g)] >> me) & 1 && hint(T[tw(g)], tsh(g)) == SUSPECT ->
						T[tw(g)] = T[tw(g)] & ~(3 << tsh(g)); h = EMPTY;
						check_i3()
					:: else
					fi;
					tmine[tw(g)] = tmine[tw(g)] & ~(1 << me)
				}
				if :: h != EMPTY -> or_T(g) :: else fi
			fi
		fi
	fi;
	h = 0
}

/* one look at all of T: t0 is what it says, again: there was a MAYBE */
inline read_T() {
	atomic { tver[0] = tver[0] | (1 << me); t0 = T[0] & HMASK; again = anymaybe(t0) }
#if NT == 2
	atomic {
		tver[1] = tver[1] | (1 << me); t0 = t0 | (T[1] & HMASK);
		if :: anymaybe(T[1]) -> again = 1 :: else fi
	}
#endif
}

/* step 3 for one T word */
inline verify_T(w) {
	atomic {
		if
		:: !((tver[w] >> me) & 1) || anymaybe(T[w]) -> again = 1
		:: else
		fi
	}
}

/* drop what is no longer needed, so that states which differ only in it are one */
inline forget() {
	again = 0; t0 = 0; tver[0] = tver[0] & ~(1 << me);
#if NT == 2
	tver[1] = tver[1] & ~(1 << me);
#endif
	incall = incall & ~(1 << me); fullseen = fullseen & ~(1 << me)
}

proctype caller(byte me; byte n) {
	bit got, again;
	byte mine, g, h, s0, t0, x;

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
			read_T();
#if NT == 1
			if :: t0 == 0 -> goto refused :: else fi;
#elif MUT == 10			/* several T words, each seen EMPTY once, is not a proof */
			if :: t0 == 0 -> goto refused :: else fi;
#endif
			t0 = 0;
			do
			:: got || g == NG -> break
			:: else -> look_group(); g++
			od;
			g = 0;
			if
			:: got
			:: else ->
#if MUT == 9			/* a caller that found SUSPECT looks once and trusts it */
				if :: !again -> goto refused :: else fi;
#endif
				verify_T(0);
#if NT == 2
				verify_T(1);
#endif
#if MUT == 8			/* refuses though there was a MAYBE */
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
