"""Checks random programs, changed modules, models, files and crossings of features, with new seeds in each run.

python -m tests.fuzz --seconds 600 [--seed S] [--only programs,files] [--folder FOLDER]

What fails is cut down and kept in the folder, with the command that repeats it; counts of all runs are added up there.
--seeds FIRST:LAST runs random programs of these seeds alone, and prints failures.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

# Most of the time goes into XLA's compiler, and no result needs its best code.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tests.fuzz.campaign import Campaign  # noqa: E402
from tests.fuzz.kinds import KINDS, OUTCOMES  # noqa: E402

FOLDER = Path(__file__).parent / "kept"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for how long, %(default)g by default")
    parser.add_argument("--seed", type=int, help="the first of each kind; the next has the next. By default new ones")
    parser.add_argument("--count", type=int, help="at most so many of each kind")
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, separated by commas; all by default")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where failures and counts are kept")
    parser.add_argument("--seeds", help="random programs alone: first:last, the last left out; or a single seed")
    parser.add_argument("--source", action="store_true", help="print the programs of --seeds instead of running them")
    arguments = parser.parse_args()
    if arguments.seeds:
        first, _, last = arguments.seeds.partition(":")
        return programs(range(int(first), int(last) if last else int(first) + 1), arguments.source)
    kinds = arguments.only.split(",")
    if unknown := {*kinds} - {*KINDS}:
        parser.error(f"Expected kinds of {', '.join(KINDS)}. Received: {', '.join(sorted(unknown))}.")
    seed = time.time_ns() // 1_000_000 % 10**9 * 1000 if arguments.seed is None else arguments.seed
    print(f"seeds from {seed}; failures in {arguments.folder}", flush=True)
    campaign = Campaign(arguments.folder, kinds, seed)
    try:
        campaign.run(arguments.seconds, arguments.count)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    for title, counts in (("this run", campaign.found), ("in all", campaign.totals())):
        print(title, *(f"{kind}: {found.total():,} {dict(found)}" for kind, found in counts.items()), sep="\n    ")
    return 1 if any(found["FAILED"] for found in campaign.found.values()) else 0


def programs(seeds: range, source: bool) -> int:
    """Runs the programs of these seeds in this process."""
    from tests.fuzz.generate import generate

    if source:
        print("\n\n".join(generate(seed).source() for seed in seeds))
        return 0
    ends = dict.fromkeys((*OUTCOMES, "FAILED"), 0)
    for seed in seeds:
        end = KINDS["programs"].check(seed)
        ends[end if end in OUTCOMES else "FAILED"] += 1
        if end not in OUTCOMES:
            print(f"\n{end}\n", flush=True)
        print(f"\r{sum(ends.values())} of {len(seeds)} programs: {ends}", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    return 1 if ends["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
