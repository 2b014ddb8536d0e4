#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""demo/report.py DIR - the table of a demo run, and whether it shows what it promises.

DIR/on and DIR/off hold a directory for each scene, with what the clients of each handler wrote
down (load.lua) and the server's /stats page, and the server's log.
"""
import collections
import itertools
import os
import re
import statistics
import sys

HANDLERS = ("fast", "stock", "report", "sale")
SCENES = ("quiet", "slow", "hang", "flood", "restart", "saturated")
ABOUT = {
    "quiet": "the dependency of /report answers in 10 ms",
    "slow": "it answers in 50 ms",
    "hang": "it does not answer at all",
    "flood": "it is well again; 800 clients storm /sale",
    "restart": "the server has just started, 120 clients of /report wait at its door; 50 ms",
    "saturated": "it does 4 requests of 25 ms at once, others queue there",
}
AT_MOST = {"fast": 10, "stock": 10, "report": 32, "sale": 12}  # server.c, set_guards()
KEPT = "higher limit kept", ("slow", "restart")
UNDONE = "higher limit undone", ("saturated", "restart", "slow")
FLOOR_MS = 5.0  # p99 below this is noise of a machine that also runs the load


class Load:
    """What the clients of one handler saw in one scene."""

    def __init__(self, path):
        waiting, answered, self.refused, self.failed, first = {}, [], 0, 0, None
        self.by = collections.Counter()  # answers by the rule that refused, or the fallback
        others = []  # times of answers that are not 200
        for line in open(path):
            word = line.split()
            if word[0] == "s":
                waiting[word[1]] = int(word[1])
                first = first or int(word[1])
            else:
                waiting.pop(word[1], None)
                self.by.update(word[4:])
                if word[2] == "200":
                    answered.append((int(word[1]), int(word[3])))
                    continue
                others.append(int(word[3]))
                if word[2] in ("500", "502"):
                    self.failed += 1
                else:
                    self.refused += 1
        end = int(open(path + ".end").read())
        self.seconds = (end - first) / 1e6
        self.served = len(answered)
        self.goodput = self.served / self.seconds
        # What was never answered has waited until the end, and counts with that.
        all_sent = answered + [(sent, end - sent) for sent in waiting.values()]
        all_times = [us for _, us in all_sent] + others
        self.median = statistics.median(all_times) / 1000 if all_times else 0.0
        self.p99 = p99([us for _, us in all_sent])
        pieces = {}
        for sent, us in all_sent:
            pieces.setdefault((sent - first) // 500000, []).append(us)
        self.typical_p99 = statistics.median([p99(us) for us in pieces.values()] or [0])


def p99(us):
    us = sorted(us)
    return us[min(len(us) - 1, len(us) * 99 // 100)] / 1000 if us else 0.0


def peaks_of(path):
    """Of each handler, from the server's /stats page."""
    words = [line.split() for line in open(path)]
    return {word[1].strip("/"): int(word[2]) for word in words if word[0] == "peak"}


def log_of(directory):
    """The log as {scene: lines}."""
    scenes, lines = {}, []
    for line in open(os.path.join(directory, "log"), errors="replace"):
        if line.startswith("==== "):
            lines = scenes.setdefault(line[5:].strip().removeprefix("after "), [])
        else:
            lines.append(line.rstrip())
    return scenes


def table(runs):
    print("\ngoodput: answers 200 per second. p99: ms, of answers 200, as clients saw them; what got")
    print("no answer until the end of the scene counts with the time it had waited. refused: answers")
    print("503 per second. peak: most requests inside the handler at once, of 64 workers.\n")
    print(f"{'':17}{'without guards':^26} | {'with guards':^35}")
    print(f"{'':17}{'goodput':>8}{'p99':>10}{'peak':>8} | "
          f"{'goodput':>8}{'p99':>10}{'refused':>9}{'peak':>8}")
    for scene in SCENES:
        if scene not in runs["on"]:
            continue
        print(f"{scene}: {ABOUT[scene]}")
        for handler in HANDLERS:
            off, on = (runs[mode][scene][0][handler] for mode in ("off", "on"))
            peak_off, peak_on = (runs[mode][scene][1][handler] for mode in ("off", "on"))
            print(f"    /{handler:<12}{off.goodput:>8.0f}{off.p99:>10.1f}{peak_off:>8} | "
                  f"{on.goodput:>8.0f}{on.p99:>10.1f}{on.refused / on.seconds:>9.0f}{peak_on:>8}")


def stuck_report(log):
    """The report of the most stuck /report calls in the scene `hang`: a line and its stack.

    warn stuck: shop.report: 8 calls inside for over 1.5 s (oldest 1.5 s) at server.c:104 ...
    warn   #0 ...
    """
    best, most, lines = [], 0, log.get("hang", [])
    for i, line in enumerate(lines):
        head = re.match(r"\w+ stuck: shop\.report: (\d+) calls? inside", line)
        if head and int(head[1]) > most:
            most = int(head[1])
            best = [line] + list(itertools.takewhile(lambda s: re.match(r"\w+   ", s), lines[i + 1:]))
    return best


def event(log, text, scenes):
    """The first event of /report with this text, in the first of these scenes that has one."""
    for scene in scenes:
        for line in log.get(scene, []):
            if f" shop.report: {text}: " in line:
                return f"{scene}: {line}"
    return None


def verdicts(runs, log):
    """(seen, what) for each promised effect."""
    quiet = {mode: runs[mode]["quiet"][0] for mode in runs}
    for scene in SCENES:
        if scene not in runs["on"]:
            continue
        for handler in ("fast", "stock"):
            off, on = (runs[mode][scene][0][handler] for mode in ("off", "on"))
            if scene in ("hang", "flood"):
                share = 100 * off.goodput / quiet["off"][handler].goodput
                yield share < 20, f"{scene}, without guards: /{handler} dies ({share:.0f} % of its quiet goodput)"
            p99s = quiet["on"][handler].typical_p99, runs["on"][scene][2][handler].typical_p99
            share = 100 * on.goodput / quiet["on"][handler].goodput
            if scene != "quiet":
                yield (on.typical_p99 <= max(2 * p99s[0], 2 * p99s[1], FLOOR_MS) and share > 80,
                       f"{scene}, with guards: /{handler} lives ({share:.0f} % of its quiet goodput; p99 "
                       f"{on.typical_p99:.1f} ms; quiet {p99s[0]:.1f}, idle server {p99s[1]:.1f})")
    for handler, limit in AT_MOST.items():
        peak = max(peaks[handler] for _, peaks, _ in runs["on"].values())
        yield peak <= limit, f"with guards: never more than {limit} requests inside /{handler} (peak {peak})"
    yield bool(stuck_report(log)), "hang, with guards: the log tells where /report is stuck"
    if "restart" in runs["on"]:
        yield bool(event(log, *KEPT)), "a higher limit that helped was kept"
        yield bool(event(log, *UNDONE)), "a higher limit that did not help was undone"


def main(top):
    runs = {}
    for mode in ("off", "on"):
        runs[mode] = {}
        for scene in SCENES:
            path = os.path.join(top, mode, scene)
            if os.path.isdir(path):
                peaks = peaks_of(os.path.join(path, "stats"))
                loads = {h: Load(os.path.join(path, "server-" + h)) for h in HANDLERS}
                idle = {h: Load(os.path.join(path, "idle-" + h)) for h in ("fast", "stock")}
                runs[mode][scene] = loads, peaks, idle
    log = log_of(os.path.join(top, "on"))
    table(runs)
    print("\nThe server's log on the hanging dependency:\n")
    print("\n".join("    " + line for line in stuck_report(log)) or "    (nothing)")
    if "restart" in runs["on"]:
        print("\nand on its limit for /report:\n")
        for text, scenes in (KEPT, UNDONE):
            print("    " + (event(log, text, scenes) or f"({text}: no such event)"))
    print("\nWas it all seen? Here p99 is the median of the p99s of each half second of the scene, so that")
    print("moments in which the machine had other things to do do not decide. It must stay within twice")
    print("the quiet p99. On a machine that is busy otherwise: within twice what a second, idle server")
    print(f"showed for the same requests in the same seconds. {FLOOR_MS:.0f} ms are always good enough.\n")
    failed = 0
    for seen, what in verdicts(runs, log):
        failed += not seen
        print(("  ok    " if seen else "  NOT   ") + what)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
