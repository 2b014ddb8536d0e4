# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2154 # names that load() finds; variables of demo/run
#
# demo/rules.sh - the part of demo/run that changes a rules file under a running server.
#
# One server, never restarted, watches one file: demo/rules.yaml with some of its interceptors switched off.
#
#     file 1       $these off, the others on: a dependency fails, one user of a thousand floods, and nothing helps
#     file 2       $these on, the others off: the same again; meanwhile a broken file, which must change nothing
#     file 3       as the first
#
# and under each of them every interceptor gets requests that it refuses, if it is on.

these="degrade breaker keyed"
others="cap adaptive rate isolate priority access"

# The file without these interceptors: a rule gets `off: true`, a cap is unlimited.
without() { # INTERCEPTOR...
	local name edits=()
	for name; do
		edits+=(-e "s/^\( *$name: {\)/\1off: true, /")
		[ "$name" != cap ] || edits+=(-e 's/\(shop\.cart: {cap: \)2/\1unlimited/')
	done
	sed "${edits[@]}" "$here/rules.yaml"
}

# A rate without its time, and a word where a number belongs.
broken() { sed -e 's/limit: 20\/s/limit: 20/' -e 's/\(shop\.cart: {cap: \)2/\1lots/' "$here/rules.yaml"; }

in_log() { grep -c "$1" "$dir_of_rules/log" || true; }

# A new file takes the place of the old one; rename() lets nobody see half of it.
put_rules() { # < the new file
	cat >"$dir_of_rules/new"
	mv "$dir_of_rules/new" "$dir_of_rules/rules.yaml"
}

await_log() { # TEXT TIMES: for at most 10 s
	local i
	for ((i = 0; i < 200; i++)); do
		[ "$(in_log "$1")" -lt "$2" ] || return 0
		sleep 0.05
	done
	echo "demo: 10 s after a new rules file the server's log does not say: $1" >&2
	exit 1
}

# Wait for the loads of the scene, note the peaks, and leave nothing over.
finish() { # DIR
	join_loads "$1"
	get "$rules_port/stats" >"$1/stats"
	settle "$rules_port"
	echo " done"
}

begin() { # SCENE NAME ; sets dir
	dir=$dir_of_rules/$1
	wrks=()
	mkdir -p "$dir"
	printf '  %-11s' "$2"
	get "$rules_port/stats" >/dev/null
}

# The dependency of /advice and /price fails, and it takes 200 ms to say so.
sick() { # on|off
	begin "$1/sick" sick
	get "$report_port/set?delay_ms=200&fail=1" >/dev/null
	as=advice load rules "$dir" 1 advice 10 50
	as=price load rules "$dir" 1 price 10 50
	finish "$dir"
	get "$report_port/set?delay_ms=10&fail=0" >/dev/null
}

# And now it is well.
well() { # on|off
	begin "$1/well" "well again"
	wait_well >"$dir/waited"
	as=advice load rules "$dir" 1 advice 10 50
	as=price load rules "$dir" 1 price 10 50
	finish "$dir"
}

# Ask both pages, for at most 10 s, until they are as when nothing was wrong: more good answers in a row than
# a breaker wants for its probes. Says how many ms it took.
wait_well() {
	local page i good began=${EPOCHREALTIME/./}
	for page in advice price; do
		good=0
		for ((i = 0; i < 500 && good < 4; i++)); do
			if get "$rules_port/$page" | grep -q '^42 pieces'; then
				good=$((good + 1))
			else
				good=0
				sleep 0.02
			fi
		done
	done
	echo $(((${EPOCHREALTIME/./} - began) / 1000))
}

# A thousand users of /search, one of whom has 200 clients.
crowd() { # on|off
	local seconds=${quick:+1}
	begin "$1/crowd" crowd
	get "$stock_port/set?capacity=8" >/dev/null
	as=one load rules "$dir" "${seconds:-2}" search 200 100 X-User=0
	as=others load rules "$dir" "${seconds:-2}" search 100 200 X-User=1..999
	finish "$dir"
	get "$stock_port/set?capacity=0" >/dev/null
}

# `adaptive` moves the limit of /browse in housekeeping, so not in the moment of the new rules.
await_limit() { # AT-LEAST AT-MOST
	local i limit
	for ((i = 0; i < 200; i++)); do
		limit=$(get "$rules_port/stats" | sed -n 's/^guard shop\.browse .* limit \([0-9]*\) .*/\1/p')
		[ "$limit" -lt "$1" ] || [ "$limit" -gt "$2" ] || return 0
		sleep 0.05
	done
}

# For each interceptor, requests that it refuses some of.
each() { # SCENE "INTERCEPTOR..." ; those that are on
	begin "$1" "all pages"
	echo "$2" >"$dir/on"
	get "$report_port/set?delay_ms=20&fail=1" >/dev/null
	as=cap load rules "$dir" 1 cart 12 10
	as=adaptive load rules "$dir" 1 browse 12 10
	as=rate load rules "$dir" 1 mail 10 20
	as=degrade load rules "$dir" 1 advice 10 20
	as=breaker load rules "$dir" 1 price 10 20
	as=isolate load rules "$dir" 1 film 8 10
	as=isolate-kept load rules "$dir" 1 photo 2 10
	as=keyed load rules "$dir" 1 search 6 10 X-User=0
	as=keyed-others load rules "$dir" 1 search 10 100 X-User=1..99
	as=access load rules "$dir" 1 admin 4 20 X-Caller=street
	as=access-listed load rules "$dir" 1 admin 4 20 X-Caller=office
	as=priority load rules "$dir" 1 order 100 30 X-Priority=7 X-User=1..200
	as=priority-first load rules "$dir" 1 order 20 30 X-Priority=0 X-User=1..200
	finish "$dir"
}

# shellcheck disable=SC2086 # words on purpose
play_rules() {
	local dir wrks dir_of_rules=$tmp/rules
	mkdir -p "$dir_of_rules"
	without $these | put_rules
	start rules "$bin/server" --log "$dir_of_rules/log" --rules "$dir_of_rules/rules.yaml" \
		--report "http://127.0.0.1:$report_port/" --stock "http://127.0.0.1:$stock_port/"
	echo "one server and its rules file: $these off"
	sick off
	crowd off
	await_limit 1 3
	each 1 "$others"
	echo "the file is changed: these on, the others off"
	get "$report_port/set?delay_ms=10&fail=0" >/dev/null
	without $others | put_rules
	await_log "is in force" 2
	wait_well >/dev/null
	broken | tee "$dir_of_rules/broken.yaml" | put_rules
	sick on
	well on
	await_log "nothing was changed" 1
	crowd on
	await_limit 32 32
	each 2 "$these"
	echo "and changed back"
	without $these | put_rules
	await_log "is in force" 3
	await_limit 1 3
	each 3 "$others"
	stop "$rules"
}
