"""Runs programs unchanged, on the IPU and with TensorFlow alone, and compares their outputs."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests import forking

PROGRAMS = Path(__file__).parent / "programs"
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])|\bnan\b|\binf\b")


def run(program: str, arguments: list[str], plain: bool) -> None:
    """Runs a file below `programs` in a folder of its own, in a new process."""
    path = PROGRAMS / program
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # logs are not part of what a program prints
    try:
        _run(path, arguments, plain)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        raise


def _run(path: Path, arguments: list[str], plain: bool) -> None:
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if plain:
        from tests.programs_tf1.plain_ipu import install

        install()
    os.chdir(tempfile.mkdtemp())
    if is_version_1(path):
        from ipu._internal.commands.version1 import run_version_1

        run_version_1([str(path), *arguments])
    else:
        forking.program(path, *arguments)


def is_version_1(path: Path) -> bool:
    """Whether it is a program whose `tensorflow` is version 1, by its text: it needs `python -m ipu.run --tf1`."""
    text = path.read_text()
    return "import tensorflow as tf" in text and "IPUStrategy" not in text


class Pair:
    """A program's two runs, side by side."""

    def __init__(self, program: str, *arguments: str, replicas: int = 1) -> None:
        with tempfile.TemporaryDirectory() as folder:
            environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "TMPDIR": folder, "PLAIN_REPLICAS": str(replicas)}
            ends, self.seconds = [], []
            for plain in (True, False):
                start = time.monotonic()
                ends.append(forking.run(run, program, list(arguments), plain, **environment))
                self.seconds.append(round(time.monotonic() - start, 1))
            self.plain, self.ours = ends

    def differences(self, tolerance: float) -> list[str]:
        """The differences of the outputs: an end, a word, or a number that is off by more than a relative tolerance."""
        for name, (code, text) in (("plain", self.plain), ("ours", self.ours)):
            if code != 0:
                return [f"{name} ends with {code}: {text[-3000:]}"]
        found = []
        plain, ours = printed(self.plain[1]), printed(self.ours[1])
        if not plain or len(plain) != len(ours):
            return [f"{len(plain)} and {len(ours)} lines:\n{self.plain[1][-1500:]}\n{self.ours[1][-1500:]}"]
        for wanted, got in zip(plain, ours, strict=True):
            theirs, mine = (NUMBER.findall(line) for line in (wanted, got))
            same = NUMBER.sub("#", wanted) == NUMBER.sub("#", got) and len(theirs) == len(mine)
            if not same or any(off(float(a), float(b)) > tolerance for a, b in zip(theirs, mine, strict=True)):
                found.append(f"plain {wanted}\n ours {got}")
        return found


def printed(text: str) -> list[str]:
    """The lines of a program."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def off(plain: float, ours: float) -> float:
    """The distance between two numbers, relative to the first if that is above 1."""
    if plain == ours or (plain != plain and ours != ours):
        return 0.0
    return abs(plain - ours) / max(1.0, abs(plain)) if plain == plain and ours == ours else float("inf")


def main() -> None:
    """`python -m tests.programs_tf1.running PROGRAM,ARG,... ...`: prints the differences of each."""
    for words in sys.argv[1:]:
        program, *arguments = words.split(",")
        replicas = int(arguments.pop().partition("=")[2]) if words.rpartition(",")[2].startswith("replicas=") else 1
        pair = Pair(program, *arguments, replicas=replicas)
        found = pair.differences(1e-3)
        print(f"==== {words}: {len(found)} differences, {pair.seconds}", *found, sep="\n", flush=True)
        if not found:
            print(pair.ours[1], flush=True)


if __name__ == "__main__":
    main()
