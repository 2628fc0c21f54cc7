"""All tests, in a few runs of pytest one after the other, and beside them what starts processes of its own.

python -m tests [--all [--seed N]] [PYTEST ARGUMENT ...]

With --all tests marked `explore` run too, and seeds and Hypothesis examples change from run to run; --seed repeats one.

TensorFlow keeps some ten megabytes of every model that was ever traced, so one process for all tests would need more
memory than many machines have. The closing line adds up those of the runs.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from tests.exploring import SEED, seed

HERE = Path(__file__).parent
BESIDE = ("examples", "packaging", "report", "serving", "tf_keras", "test_habits.py")
"""Linters, wheels, documentation pages, browsers and servers: one process waits for theirs, and takes the time of cores
that the workers of other tests leave, while they come up, wait or end."""
KERAS = ("keras",)
MODELS = ("differential", "models", "strategy")
"""Folders whose tests trace many models: with --all more than the rest leaves memory for."""
COUNT = re.compile(r"(\d+) (passed|failed|skipped|deselected|xfailed|xpassed|warnings?|errors?)")
NO_TESTS = 5


def groups() -> list[list[Path]]:
    """Files and folders of each run, first of the one beside the others."""
    every = [path for path in sorted(HERE.iterdir()) if path.match("test_*.py") or any(path.rglob("test_*.py"))]
    runs = (BESIDE, KERAS) if seed() is None else (BESIDE, KERAS, MODELS)
    apart = [[HERE / name for name in names] for names in runs]
    rest = [path for path in every if not any(path in paths for paths in apart)]
    return [apart[0], rest, *apart[1:]]


def start(paths: list[Path], arguments: list[str], output: int | IO[str]) -> subprocess.Popen[str]:
    """Pytest on all tests but those of other runs: folders that are named have their conftest.py imported at once,
    and with it TensorFlow, also by the process that only hands out tests to workers."""
    others = [f"--ignore={path}" for group in groups() for path in group if path not in paths]
    # With several workers, one that is done helps the other: the last tests take minutes, or milliseconds.
    command = [sys.executable, "-m", "pytest", "--dist=worksteal", str(HERE), *others, *arguments]
    # Some thirty processes would each compile all modules of the project and of the tests: theirs are kept.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(command, cwd=HERE.parent, env=environment, stdout=output, text=True)


def passed_on(lines: Iterable[str]) -> Counter[str]:
    """Prints a run's output; the numbers of its closing line."""
    counts: Counter[str] = Counter()
    for line in lines:
        print(line, end="", flush=True)
        found = COUNT.findall(line) if " in " in line else []
        if found:
            counts = Counter({what: int(number) for number, what in found})
    return counts


def run(paths: list[Path], arguments: list[str]) -> tuple[int, Counter[str]]:
    """One run: its exit code, and the numbers of its closing line."""
    with start(paths, arguments, subprocess.PIPE) as process:
        assert process.stdout is not None
        counts = passed_on(process.stdout)
    return process.returncode, counts


@contextmanager
def beside(paths: list[Path], arguments: list[str]) -> Iterator[Callable[[], tuple[int, Counter[str]]]]:
    """A run of one process beside others, and what waits for it, prints its output and returns what `run` does."""
    alone = ["-n0"] if any(each.startswith(("-n", "--numprocesses")) for each in arguments) else []
    with tempfile.TemporaryFile("w+") as output, start(paths, [*arguments, *alone], output) as process:

        def end() -> tuple[int, Counter[str]]:
            process.wait()
            output.seek(0)
            return process.returncode, passed_on(output)

        try:
            yield end
        finally:
            process.terminate()


def exploring(arguments: list[str]) -> list[str]:
    """Pytest's arguments; with --all the environment says what else to run, and a line how to repeat it."""
    parser = argparse.ArgumentParser(prog="python -m tests", allow_abbrev=False, add_help=False)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int)
    options, rest = parser.parse_known_args(arguments)
    if not options.all:
        return rest
    number = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    os.environ[SEED] = str(number)
    print(f"Repeat this run with: python -m tests --all --seed {number}", flush=True)
    return [*rest, f"--hypothesis-seed={number}"]


def main(arguments: list[str]) -> int:
    """The highest exit code of the runs; not to have found a test counts only if none has."""
    arguments = exploring(arguments)
    begin, codes, total = time.monotonic(), [], Counter[str]()
    first, *others = order = [*groups()]
    with beside(first, arguments) as end:
        runs: list[Callable[[], tuple[int, Counter[str]]]] = [partial(run, paths, arguments) for paths in others]
        for number, (each, paths) in enumerate(zip((*runs, end), (*others, first), strict=True), 1):
            print(f"Run {number} of {len(order)}: {', '.join(path.stem for path in paths)}", flush=True)
            code, counts = each()
            if code < 0 or code == 2:
                return code
            codes.append(code)
            total += counts
    bad = [code for code in codes if code not in (0, NO_TESTS)]
    seconds = time.monotonic() - begin
    names = ["failed", "passed", *sorted(total.keys() - {"failed", "passed"})]
    told = ", ".join(f"{total[what]} {what}" for what in names if total[what]) or "no tests ran"
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(f"The largest process took {largest:.1f} GB of memory.")
    print(f"{told} in {seconds:.2f}s ({int(seconds) // 60}:{int(seconds) % 60:02d})")
    return max(bad, default=0 if 0 in codes else NO_TESTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
