#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""demo/rules_report.py DIR - what demo/rules.sh has seen, and whether it is what a rules file promises.

DIR holds a directory for each scene, with what clients wrote down (load.lua) and the server's /stats
page; the server's log; and the broken rules file.
"""
import os
import re
import sys

from report import Load, peaks_of

SICK = ("advice", "price")
PEAK_MAX = {"cap": ("cart", 2), "adaptive": ("browse", 3), "isolate": ("film", 1)}  # rules.yaml
RATE, BURST = 20, 5          # of /mail
KEY_RATE, KEY_BURST = 5, 10  # of each user of /search
# Interceptor: whom it refuses, whom it lets through.
WHOM = {
    "cap": ("12 clients of /cart", None),
    "adaptive": ("12 clients of /browse", None),
    "rate": ("10 clients of /mail", None),
    "breaker": ("10 clients of /price", None),
    "degrade": ("10 clients of /advice", None),
    "isolate": ("8 clients of /film", ("isolate-kept", "2 of /photo, same group")),
    "priority": ("100 clients of /order, priority 7", ("priority-first", "20 of priority 0")),
    "keyed": ("a user of /search, 6 clients", ("keyed-others", "99 other users")),
    "access": ("4 of /admin, from the street", ("access-listed", "4 from the office")),
}


class Scene:
    """What the clients of one scene saw, by the name of their file; and the server's peaks."""

    def __init__(self, *path):
        self.path = os.path.join(*path)
        names = [n[:-4] for n in os.listdir(self.path) if n.endswith(".end")]
        self.load = {name: Load(os.path.join(self.path, name)) for name in names}
        self.peak = peaks_of(os.path.join(self.path, "stats"))

    def is_on(self, interceptor):
        return interceptor in self.line("on").split()

    def line(self, name):
        with open(os.path.join(self.path, name), encoding="ascii") as f:
            return f.read().strip()


def answers(load):
    return load.served + load.refused + load.failed


def figures(load):
    """Good answers, those of a fallback, refused, failed a second; median ms of all answers."""
    fallback = load.by["fallback"]
    counts = load.served - fallback, fallback, load.refused, load.failed
    return "".join(f"{n / load.seconds:>9.0f}" for n in counts) + f"{load.median:>9.1f}"


def table(off, on):
    print("\nOne server and its rules file. answers per second: good (200), from the fallback (200 too),")
    print("refused (503, 429), failed (502). median: ms until an answer of any kind.\n")
    head = "".join(f"{h:>9}" for h in ("good", "fallback", "refused", "failed", "median"))
    print(f"{'':16}{'degrade, breaker, keyed off':^45} |{'on':^45}")
    print(f"{'':16}{head} |{head}")
    rows = (
        ("sick", "sick: the dependency of /advice and /price fails, after 200 ms each time", SICK),
        ("well", "well: it is well again", SICK),
        ("crowd", "crowd: one of a thousand users of /search floods it", ("others", "one")),
    )
    names = {"advice": "/advice", "price": "/price", "others": "999 users", "one": "that one"}
    for scene, title, loads in rows:
        print(title)
        for name in loads:
            without = figures(off[scene].load[name]) if scene in off else ""
            print(f"    {names[name]:<12}{without:<45} |{figures(on[scene].load[name])}")


def switched(files):
    """The table of interceptors: what the same requests got under each of the files."""
    print("\nThe same requests under each of three files. refused: by that interceptor (degrade: answered by")
    print("the fallback); good: answers 200; both per second.\n")
    print(f"{'':46}" + "".join(f" |{f'file {n}':^19}" for n in range(1, len(files) + 1)))
    print(f"    {'':9}{'requests of':<33}" + " |     refused    good" * len(files))
    for name, (whom, also) in WHOM.items():
        for load, text in ((name, whom), also or (None, None)):
            if not load:
                continue
            cells = []
            for f in files:
                x = f.load[load]
                state = ("on" if f.is_on(name) else "off") if load == name else ""
                good = x.served - x.by["fallback"]
                cells.append(f" | {state:<4}{stopped(x, name) / x.seconds:>7.0f}{good / x.seconds:>8.0f}")
            print(f"    {name if load == name else '':<9}{text:<33}" + "".join(cells))


def stopped(load, name):
    """Answers that the interceptor has decided. What steers the limit refuses in the name of cap."""
    return load.by[{"degrade": "fallback", "adaptive": "cap"}.get(name, name)]


def refusals(load):
    return sum(load.by.values())


def bounds(name, f):
    """(kept, what) of the interceptor's own promises under a file in which it is on."""
    one = f.load[name]
    if name in PEAK_MAX:
        page, limit = PEAK_MAX[name]
        yield f.peak[page] <= limit, f"{f.peak[page]} of {limit} inside"
    if name == "rate":
        most = BURST + RATE * one.seconds
        yield one.served <= most, f"{one.served} served, may be {most:.0f}"
    if name == "access":
        yield one.served == 0, f"{one.served} served"
    if name in ("isolate", "keyed", "access"):
        let = f.load[WHOM[name][1][0]]
        yield refusals(let) == 0 and let.served > 0, f"and {refusals(let)} of {answers(let)} of the rightful"
    if name == "priority":
        shares = [100 * refusals(x) / max(answers(x), 1) for x in (one, f.load["priority-first"])]
        yield shares[0] > shares[1], f"{shares[0]:.0f} % of priority 7, {shares[1]:.0f} % of priority 0"


def verdicts_each(files):
    for name in WHOM:
        seen, told = True, []
        for n, f in enumerate(files, 1):
            one = f.load[name]
            if f.is_on(name):
                own = list(bounds(name, f))
                seen = seen and stopped(one, name) > 0 and all(kept for kept, _ in own)
                text = ", ".join([f"refused {stopped(one, name)} of {answers(one)}"] + [what for _, what in own])
            else:
                seen = seen and refusals(one) == 0 and answers(one) > 0
                text = f"refused {refusals(one)} of {answers(one)}"
                if name in PEAK_MAX:
                    page, limit = PEAK_MAX[name]
                    seen = seen and f.peak[page] > limit
                    text += f", {f.peak[page]} inside"
            told.append(f"file {n}, {'on' if f.is_on(name) else 'off'}: {text}")
        yield seen, f"{name}: {'; '.join(told)}"


def count(log, text):
    return sum(text in line for line in log)


def verdicts_scenes(off, on, log):
    advice, price = (on["sick"].load[name] for name in SICK)
    share = 100 * advice.served / answers(advice)
    yield off["sick"].load["advice"].served == 0, "sick, off: /advice has no answer for anybody"
    yield share > 50 and advice.by["fallback"] > 0, f"sick, on: the fallback answers /advice ({share:.0f} % of its answers are good)"
    medians = off["sick"].load["price"].median, price.median
    yield (price.by["breaker"] > 0 and medians[1] < medians[0] / 2,
           f"sick, on: the breaker of /price opens; a client knows after {medians[1]:.1f} ms instead of {medians[0]:.0f}")
    well = [on["well"].load[name] for name in SICK]
    yield (all(x.served == answers(x) and not refusals(x) and x.served for x in well),
           f"well again, on: both recover by themselves ({on['well'].line('waited')} ms) and refuse nobody any more")
    yield (count(log, " dep.price: breaker open") > 0 and count(log, " dep.price: breaker closed") > 0
           and count(log, " shop.advice: degraded for") > 0 and count(log, " shop.advice: not degraded any more") > 0,
           "and the log has it")
    one, others = (on["crowd"].load[name] for name in ("one", "others"))
    most = KEY_BURST + KEY_RATE * one.seconds
    yield (one.by["keyed"] > 0 and one.served <= most,
           f"crowd, on: the one who floods is refused ({one.refused} times; {one.served} served, at most {most:.0f})")
    yield (others.served > 0 and others.refused == others.failed == 0,
           f"crowd, on: and only he ({others.refused + others.failed} of {answers(others)} requests of the others)")
    medians = off["crowd"].load["others"].median, others.median
    yield medians[1] < medians[0] / 2, f"crowd, on: the others wait {medians[1]:.1f} ms instead of {medians[0]:.0f}"


def complaints(log):
    """What the log says of the broken file."""
    return [line for line in log if re.match(r"error rules: ", line)]


def verdicts_file(top, log):
    yield count(log, "is in force") == 3, "one server, never restarted, has taken the three good files"
    with open(os.path.join(top, "broken.yaml"), encoding="ascii") as f:
        lines = f.read().splitlines()
    for wrong in ("cap: lots", "limit: 20,"):
        where = next((n, line.index(wrong) + wrong.index(" ") + 2) for n, line in enumerate(lines, 1) if wrong in line)
        said = re.compile(rf"rules\.yaml:{where[0]}:{where[1]}: key `[^`]+`: found \S.*; allowed: \S")
        yield (any(said.search(line) for line in complaints(log)),
               f"a broken file: line {where[0]}, column {where[1]}, what was found and what is allowed are in the log")
    yield (count(complaints(log), "nothing was changed") == 1, "and it changed nothing: crowd, on, came after it")


def main(top):
    off, on = ({scene: Scene(top, mode, scene) for scene in os.listdir(os.path.join(top, mode))} for mode in ("off", "on"))
    files = [Scene(top, n) for n in "123"]
    with open(os.path.join(top, "log"), encoding="utf-8", errors="replace") as f:
        log = [line.rstrip() for line in f]
    table(off, on)
    switched(files)
    print("\nThe server's log on the broken file:\n")
    print("\n".join("    " + line.replace(top + "/", "") for line in complaints(log)))
    print()
    failed = 0
    for verdicts in (verdicts_scenes(off, on, log), verdicts_each(files), verdicts_file(top, log)):
        for seen, what in verdicts:
            failed += not seen
            print(("  ok    " if seen else "  NOT   ") + what)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
