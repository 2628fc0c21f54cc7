"""All tests, collected once, in forked workers; two more run tests that start processes of their own.

python -m tests [-n WORKERS] [--processor x86-64-v2|x86-64-v3|x86-64-v4] [--all [--seed N]] [PYTEST ARGUMENT ...]

With --all tests marked `explore` run too, and seeds and Hypothesis examples change from run to run; --seed repeats one.
With --processor code is compiled for any processor of that level, in tests of the engine's folders if none are named.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path

HERE = Path(__file__).parent
BESIDE = (
    *("examples", "packaging", "processes", "report", "serving", "tf_keras", "test_habits.py"),
    *("estimators/test_new_processes.py", "graphs/test_without_v2_behavior.py", "graphs/programs/test_preempted.py"),
)
"""Tests that start linters, wheels, documentation pages, browsers and servers. Two workers wait for these processes,
and take the time of cores that the other workers leave."""
ENGINE = (
    *("codelets", "debug", "emit", "engine", "files", "ir", "lower", "machine_code", "opcodes", "ops", "partition"),
    *("passes", "profile", "program", "runtime"),
)
"""Folders with tests of the engine, most of them without TensorFlow."""
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "OPENBLAS_NUM_THREADS": "1"}
"""Read when a process starts. TensorFlow allocates much and frees little: with fewer and larger pages tests take 0.91
of the processor time. NumPy's threads spin after a product until an executable is made."""


def is_beside(path: Path) -> bool:
    """Whether the file starts processes, or is in a folder of such files."""
    return any(path.is_relative_to(HERE / name) for name in BESIDE)


def of_processor(level: str) -> dict[str, str]:
    """The variables by which Numba and the engine compile for processors of that level of x86-64.

    Raises argparse.ArgumentTypeError for another level, and for one whose instructions this processor lacks.
    """
    from engine.machine_code.instruction_sets import LEVELS, flag_of, flags
    from engine.machine_code.processor import X86

    if level not in LEVELS:
        raise argparse.ArgumentTypeError(f"Expected one of {', '.join(LEVELS)}. Received: {level!r}.")
    name, features = LEVELS[level]
    absent = sorted({flag_of(feature) for feature in features.replace("+", "").split(",") if feature} - flags())
    if absent or not X86:
        raise argparse.ArgumentTypeError(
            f"Expected a processor of {level}. Received: one without {', '.join(absent) or 'instructions of x86-64'}."
        )
    return {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}


def main(arguments: list[str]) -> int:
    """Pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests", allow_abbrev=False, add_help=False)
    parser.add_argument("-n", "--numprocesses", type=lambda text: os.cpu_count() if text == "auto" else int(text))
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--processor", type=of_processor, default={})
    options, rest = parser.parse_known_args(arguments)
    if "--pdb" in rest or "--trace" in rest:
        parser.error("Tests run in workers without a terminal. Debug with: python -m pytest --pdb TEST")

    os.environ.update(options.processor)
    os.chdir(HERE.parent)
    if options.processor and not any(Path(each.partition("::")[0]).exists() for each in rest):
        rest += [f"tests/{folder}" for folder in ENGINE]

    import pytest

    from tests.exploring import SEED
    from tests.workers import Workers

    if options.all:
        number = secrets.randbelow(1 << 31) if options.seed is None else options.seed
        os.environ[SEED] = str(number)
        print(f"Repeat this run with: python -m tests --all --seed {number}", flush=True)
        rest.append(f"--hypothesis-seed={number}")
    return pytest.main(rest, plugins=[Workers(options.numprocesses or 1, is_beside)])


if __name__ == "__main__":
    if not os.environ.keys() >= ENVIRONMENT.keys():
        # Some thirty processes would each compile all modules of the project and the tests: compiled modules are kept.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        os.execve(sys.executable, [sys.executable, "-m", "tests", *sys.argv[1:]], kept | ENVIRONMENT)
    sys.exit(main(sys.argv[1:]))
