# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# Sourced by test scripts: `tap NAME COMMAND...` runs a command as one test case and prints it in
# TAP; `tap_done` ends the script. A failed command's output follows its line as a comment.
# `set -e` does not work inside a function that tap runs: join its steps with &&.

tap_n=0
tap_failed=0

tap() {
	local name=$1 out
	shift
	tap_n=$((tap_n + 1))
	if out=$("$@" 2>&1 </dev/null); then
		echo "ok $tap_n - $name"
	else
		tap_failed=$((tap_failed + 1))
		echo "not ok $tap_n - $name"
		sed 's/^/# /' <<<"$out"
	fi
}

tap_done() {
	echo "1..$tap_n"
	[ "$tap_failed" -eq 0 ] && exit 0
	exit 1
}
