"""Runs random programs by hand: python -m tests.fuzz --seeds 0:1000"""

from __future__ import annotations

import argparse
import os
import sys
import time

# Most of the time goes into XLA's compiler, and no result needs its best code.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tests.fuzz.generate import generate  # noqa: E402
from tests.fuzz.oracle import check  # noqa: E402
from tests.fuzz.runs import RefusedByXLA  # noqa: E402
from tests.fuzz.shrink import report  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="first:last, the last left out; or a single seed")
    parser.add_argument("--source", action="store_true", help="print the programs instead of running them")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    if arguments.source:
        print("\n\n".join(generate(seed).source() for seed in seeds))
        return 0
    failures = refused = 0
    start = time.perf_counter()
    for number, seed in enumerate(seeds, 1):
        program = generate(seed)
        try:
            check(program)
        except RefusedByXLA:
            refused += 1
        except Exception as failure:
            failures += 1
            print(f"\n{report(program, failure)}\n", flush=True)
        rate = (time.perf_counter() - start) / number
        line = f"{number} of {len(seeds)} programs, {failures} failed, {refused} refused by XLA, {rate:.2f} s each"
        print(f"\r{line}", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
