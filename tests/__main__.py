"""All tests, in a few runs of pytest one after the other.

python -m tests [--all [--seed N]] [PYTEST ARGUMENT ...]

With --all tests marked `explore` run too, and seeds and Hypothesis examples change from run to run; --seed repeats one.

TensorFlow keeps some ten megabytes of every model that was ever traced, so one process for all tests would need more
memory than many machines have. The closing line adds up those of the runs.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.exploring import SEED

HERE = Path(__file__).parent
KERAS = "keras"
MODELS = ("differential", "models", "report", "serving", "strategy", "tf_keras")
"""Folders whose tests trace many models."""
COUNT = re.compile(r"(\d+) (passed|failed|skipped|deselected|xfailed|xpassed|warnings?|errors?)")
NO_TESTS = 5


def groups() -> list[list[Path]]:
    """Files and folders of each run."""
    folders = sorted(path for path in HERE.iterdir() if any(path.rglob("test_*.py")))
    keras = sorted((HERE / KERAS).glob("test_*.py"))
    middle = len(keras) // 2
    apart = {KERAS, *MODELS}
    return [
        [*sorted(HERE.glob("test_*.py")), *(folder for folder in folders if folder.name not in apart)],
        keras[:middle],
        keras[middle:],
        [HERE / name for name in MODELS],
    ]


def run(paths: list[Path], arguments: list[str]) -> tuple[int, Counter[str]]:
    """One run, whose output is passed on: its exit code, and the numbers of its closing line."""
    # With several workers, one that is done helps the other: the last tests take minutes, or milliseconds.
    command = [sys.executable, "-m", "pytest", "--dist=worksteal", *map(str, paths), *arguments]
    counts: Counter[str] = Counter()
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            found = COUNT.findall(line) if " in " in line else []
            if found:
                counts = Counter({what: int(number) for number, what in found})
    return process.returncode, counts


def exploring(arguments: list[str]) -> list[str]:
    """Pytest's arguments; with --all the environment says what else to run, and a line how to repeat it."""
    parser = argparse.ArgumentParser(prog="python -m tests", allow_abbrev=False, add_help=False)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int)
    options, rest = parser.parse_known_args(arguments)
    if not options.all:
        return rest
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    os.environ[SEED] = str(seed)
    print(f"Repeat this run with: python -m tests --all --seed {seed}", flush=True)
    return [*rest, f"--hypothesis-seed={seed}"]


def main(arguments: list[str]) -> int:
    """The highest exit code of the runs; not to have found a test counts only if none has."""
    arguments = exploring(arguments)
    start, codes, total = time.monotonic(), [], Counter[str]()
    for paths in groups():
        code, counts = run(paths, arguments)
        if code < 0 or code == 2:
            return code
        codes.append(code)
        total += counts
    bad = [code for code in codes if code not in (0, NO_TESTS)]
    seconds = time.monotonic() - start
    order = ["failed", "passed", *sorted(total.keys() - {"failed", "passed"})]
    told = ", ".join(f"{total[what]} {what}" for what in order if total[what]) or "no tests ran"
    print(f"{told} in {seconds:.2f}s ({int(seconds) // 60}:{int(seconds) % 60:02d})")
    return max(bad, default=0 if 0 in codes else NO_TESTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
