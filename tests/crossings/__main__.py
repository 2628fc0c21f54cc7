"""Runs random Keras programs against plain Keras: python -m tests.crossings --count N [--seed S] [--features ...]

A program is a line of words, its plan: the framework, the modes, then features. A failure is cut down to the features
that it needs, and printed as a plan and, with --program, as a program that stands alone.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Most of the time of jitted programs goes into XLA's compiler, and no result needs its best code.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

from tests.crossings.documented import AWAITED, exclusions  # noqa: E402
from tests.crossings.generate import generate  # noqa: E402
from tests.crossings.plan import GROUPS, Plan, all_features  # noqa: E402
from tests.crossings.shrink import shrink  # noqa: E402
from tests.crossings.workers import Checked, Checker, checked  # noqa: E402


def main() -> int:
    arguments = _arguments()
    if arguments.list:
        return _list()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with Ctrl-C ignored
        signal.signal(number, signal.default_int_handler)
    first = int(time.time()) % 1_000_000 * 1000 if arguments.seed is None else arguments.seed
    wanted = [word for word in arguments.features.split(",") if word]
    without = exclusions(
        tuple(word for word in arguments.without.split(",") if word) + (() if arguments.awaited else AWAITED)
    )
    if arguments.plan:
        plans = {Plan.read(line): number for number, line in enumerate(arguments.plan)}
    else:
        plans = {
            generate(seed, wanted, without, arguments.modes): seed for seed in range(first, first + arguments.count)
        }
        print(f"seeds {first} to {first + arguments.count - 1}", flush=True)
    if arguments.source:
        print(*(f"# {plan}\n{plan.source()}" for plan in plans), sep="\n\n")
        return 0
    ends, counts, raised, start = Counter[str](), Counter[str](), Counter[str](), time.monotonic()
    failures: dict[str, list[Checked]] = {}
    shrinker = Checker()
    try:
        for done, result in enumerate(checked(plans, arguments.processes), 1):
            kind = "same" if not result.found else "refused" if result.found[0].startswith("refused") else "FAILED"
            ends[kind] += 1
            counts.update({*result.plan.names})
            raised.update(": ".join(line.split(": ")[:2]) for line in result.raised)
            if kind != "same" or arguments.verbose:
                line = f"{kind} seed {plans[result.plan]}, {result.seconds:.1f} s: {result.plan}"
                print(line, *result.found[:4], sep="\n    ", flush=True)
            if kind == "FAILED":
                small = _shrunk(result, shrinker) if arguments.shrink else result
                failures.setdefault(str(small.plan), []).append(result)
                if arguments.shrink and len(failures[str(small.plan)]) == 1:
                    _report(small, arguments.programs)
            if done % 10 == 0 or done == len(plans):
                print(f"{done}: {dict(ends)}, {(time.monotonic() - start) / done:.1f} s each", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    shrinker.end()
    _table(counts, raised)
    for plan, results in failures.items():
        print(f"{len(results)} x {plan}")
    return 1 if ends["FAILED"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crossings", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many programs")
    parser.add_argument("--seed", type=int, help="of the first; the next has the next. By default another each time")
    parser.add_argument("--features", default="", help="what each has, such as keras,mode:scope,adam,fit")
    parser.add_argument("--without", default="", help="what none has; words joined with + are left out where all meet")
    parser.add_argument("--awaited", action="store_true", help="also what is left out until its faults are mended")
    parser.add_argument("--modes", type=int, default=1, help="in how many modes each is compared")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--plan", action="append", help="a program by its words, in place of random ones")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false", help="print failures as they are")
    parser.add_argument("--programs", type=Path, help="a folder for programs that stand alone, one for each failure")
    parser.add_argument("--source", action="store_true", help="print the programs and run none")
    parser.add_argument("--verbose", action="store_true", help="print all plans, not only of those that fail")
    parser.add_argument("--list", action="store_true", help="print the features and run nothing")
    return parser.parse_args()


def _list() -> int:
    for group in GROUPS:
        of_group = [each for each in all_features().values() if each.group == group]
        words = (f"{each.name}={'|'.join(each.options)}".removesuffix("=").replace(" ", "_") for each in of_group)
        print(f"{group}: {' '.join(words)}")
    return 0


def _shrunk(result: Checked, checker: Checker) -> Checked:
    """The failure of a plan with fewer features, reduced as long as it fails in the same way."""
    latest = {str(result.plan): result}

    def fails(plan: Plan) -> bool:
        found = latest[str(plan)] = checker(plan)
        return bool(found.found) and _kind(found.found[0]) == _kind(result.found[0])

    return latest[str(shrink(result.plan, fails))]


def _kind(line: str) -> str:
    """The kind of a program's failure, by the words of its first line."""
    words = line.split()
    return (
        "hang" if words[0] == "hang:" else "crash" if words[0] == "crash:" else "Error" if "Error" in line else "value"
    )


def _report(result: Checked, folder: Path | None) -> None:
    print(f"SHRUNK {result.plan}", *result.found[:12], sep="\n    ", flush=True)
    if folder is not None:
        from tests.crossings.check import stand_alone

        folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"\W+", "_", str(result.plan))[:120]
        (folder / f"{name}.py").write_text(stand_alone(result.plan))
        print(f"    {folder / name}.py", flush=True)


def _table(counts: Counter[str], raised: Counter[str]) -> None:
    names = [*sorted({name for name in counts if ":" in name or name.endswith("keras")}), *all_features()]
    print("Programs by feature:", *(f"{name} {counts[name]}" for name in names), sep="\n  ")
    print(
        "Actions at which plain Keras raises:",
        *(f"{label} {count}" for label, count in raised.most_common()),
        sep="\n  ",
    )


if __name__ == "__main__":
    sys.exit(main())
