#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""demo/report.py DIR - the table of a demo run, and whether it shows what it promises.

DIR/on and DIR/off hold a directory for each scene, with what the clients of each handler wrote
down (load.lua) and the server's /stats page, and the server's log.
"""
import os
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
FLOOR_MS = 5.0  # p99 below this is noise of a machine that also runs the load


class Load:
    """What the clients of one handler saw in one scene."""

    def __init__(self, path):
        waiting, answered, self.refused, first = {}, [], 0, None
        for line in open(path):
            word = line.split()
            if word[0] == "s":
                waiting[word[1]] = int(word[1])
                first = first or int(word[1])
            else:
                waiting.pop(word[1], None)
                if word[2] == "200":
                    answered.append((int(word[1]), int(word[3])))
                else:
                    self.refused += 1
        end = int(open(path + ".end").read())
        self.seconds = (end - first) / 1e6
        self.goodput = len(answered) / self.seconds
        # What was never answered has waited until the end, and counts with that.
        all_sent = answered + [(sent, end - sent) for sent in waiting.values()]
        self.p99 = p99([us for _, us in all_sent])
        pieces = {}
        for sent, us in all_sent:
            pieces.setdefault((sent - first) // 500000, []).append(us)
        self.typical_p99 = statistics.median([p99(us) for us in pieces.values()] or [0])


def p99(us):
    us = sorted(us)
    return us[min(len(us) - 1, len(us) * 99 // 100)] / 1000 if us else 0.0


def stats(path):
    """Peaks of each handler, and limits of each guard, from the server's /stats page."""
    peaks, limits = {}, {}
    for line in open(path):
        word = line.split()
        if word[0] == "peak":
            peaks[word[1].strip("/")] = int(word[2])
        elif word[0] == "guard":
            limits[word[1]] = dict(zip(word[2::2], word[3::2]))["limit"]
    return peaks, limits


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
    """The first report of a stuck /report call in the scene `hang`, with its indented stack."""
    lines = log.get("hang", [])
    for i, line in enumerate(lines):
        if "shop.report" in line and "server.c:" in line:
            end = i + 1
            while end < len(lines) and (lines[end].startswith((" ", "\t")) or "#" in lines[end]):
                end += 1
            return lines[i:end]
    return []


def event(log, text, scenes):
    """The first event of /report with this text in one of these scenes."""
    for scene in scenes:
        for line in log.get(scene, []):
            if "shop.report" in line and text in line:
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
            bound = max(2 * quiet["on"][handler].typical_p99, FLOOR_MS)
            share = 100 * on.goodput / quiet["on"][handler].goodput
            if scene != "quiet":
                yield (on.typical_p99 <= bound and share > 80,
                       f"{scene}, with guards: /{handler} lives ({share:.0f} % of its quiet goodput, "
                       f"p99 {on.typical_p99:.1f} ms, bound {bound:.1f} ms)")
    yield bool(stuck_report(log)), "hang, with guards: the log tells where /report is stuck"
    if "restart" in runs["on"]:
        yield bool(event(log, "kept", ("restart", "slow"))), "a higher limit that helped was kept"
        yield bool(event(log, "undone", ("saturated", "hang"))), "a higher limit that did not help was undone"


def main(top):
    runs = {}
    for mode in ("off", "on"):
        runs[mode] = {}
        for scene in SCENES:
            path = os.path.join(top, mode, scene)
            if os.path.isdir(path):
                peaks, limits = stats(os.path.join(path, "stats"))
                loads = {h: Load(os.path.join(path, h)) for h in HANDLERS}
                runs[mode][scene] = loads, peaks, limits
    log = log_of(os.path.join(top, "on"))
    table(runs)
    print("\nThe server's log on the hanging dependency:\n")
    print("\n".join("    " + line for line in stuck_report(log)) or "    (nothing)")
    print("\nand on its limit for /report:\n")
    for text, scenes in (("kept", ("restart", "slow")), ("undone", ("saturated", "hang"))):
        print("    " + (event(log, text, scenes) or "(nothing)"))
    print("\nWas it all seen? (Here p99 is the median of the p99s of each half second of the scene, so that")
    print("moments in which the machine had other things to do do not decide; bound: twice the quiet p99,")
    print(f"at least {FLOOR_MS:.0f} ms.)\n")
    failed = 0
    for seen, what in verdicts(runs, log):
        failed += not seen
        print(("  ok    " if seen else "  NOT   ") + what)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
