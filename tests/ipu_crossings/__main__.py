"""Runs random programs of IPU features against TensorFlow alone: python -m tests.ipu_crossings --count N [--seed S]

A program is a line of words, its plan. A failure is cut down to the options that it needs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.ipu_crossings.check import check
from tests.ipu_crossings.plan import AXES, Plan, generate
from tests.ipu_crossings.source import source

MOST_TRIES = 12


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ipu_crossings", description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the next has the next")
    parser.add_argument("--features", default="", help="what each has, such as kind=pipeline,optimizer=adam")
    parser.add_argument("--plan", action="append", help="a program by its words, in place of random ones")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false", help="print failures as they are")
    parser.add_argument("--source", action="store_true", help="print the programs and run none")
    options = parser.parse_args()
    wanted = Plan.read(options.features.replace(",", " ")).options
    seeds = range(options.seed, options.seed + options.count)
    plans = [Plan.read(line) for line in options.plan or ()] or [generate(seed, wanted) for seed in seeds]
    if options.source:
        print(*(f"# {plan}\n{source(plan)}" for plan in plans), sep="\n\n")
        return 0
    ends, counts, start = Counter[str](), Counter[str](), time.monotonic()
    for done, plan in enumerate(plans, 1):
        found = check(plan)
        kind = "same" if not found else "refused" if found[0].startswith("refused") else "FAILED"
        ends[kind] += 1
        counts.update(f"{axis}={plan[axis]}" for axis in AXES)
        if found:
            print(f"{kind} seed {options.seed + done - 1}: {plan}", *found[:4], sep="\n    ", flush=True)
        if kind == "FAILED" and options.shrink:
            print(f"SHRUNK {shrink(plan, found)}", flush=True)
        if done % 10 == 0 or done == len(plans):
            print(f"{done}: {dict(ends)}, {(time.monotonic() - start) / done:.1f} s each", flush=True)
    print("Programs by option:", *(f"{name} {count}" for name, count in sorted(counts.items())), sep="\n  ")
    return int(bool(ends["FAILED"]))


def shrink(plan: Plan, found: list[str]) -> Plan:
    """The plan with fewer options, reduced as long as it fails in the same way."""
    tries, pending = 0, plan.simpler()
    while pending and tries < MOST_TRIES:
        smaller = pending.pop(0)
        if smaller.is_sensible():
            tries += 1
            if (again := check(smaller)) and kind_of(again[0]) == kind_of(found[0]):
                plan, pending = smaller, smaller.simpler()
    return plan


def kind_of(line: str) -> str:
    """The kind of a program's failure: the first words of an error, or "value"."""
    return line[:30] if "Error" in line or line.startswith(("crash", "oracle")) else "value"


if __name__ == "__main__":
    sys.exit(main())
