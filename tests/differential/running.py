"""Compares many cases in several processes, each of which imports TensorFlow once."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from tests.differential.comparison import Outcome, compare
from tests.differential.frameworks import Framework, framework
from tests.differential.report import GOOD, Results
from tests.differential.suite import CASES, entries

MOST_CASES = 60
"""Cases after which a new process takes over: models leave graphs behind."""
VARIABLE = "TF_USE_LEGACY_KERAS"
_framework: Framework


def run(
    chosen: Framework, kinds: Sequence[str] | None, only: str, jobs: int, every: int = 1, first: int = 0
) -> Results:
    """Runs all cases of these kinds whose title contains the expression, and prints each outcome when it is done.

    With `every` = n only every n-th of them runs, from number `first` on.
    """
    wanted = [entry for entry in entries(chosen) if not kinds or entry.kind in kinds]
    numbers = [
        number
        for number, case in enumerate(CASES)
        if any(case in entry.cases for entry in wanted) and re.search(only, case.title)
    ][first::every]
    outcomes: dict[int, list[Outcome]] = {}
    for done, (number, found) in enumerate(_compared(chosen.name, numbers, jobs), start=1):
        outcomes[number] = found
        print(f"[{done:3}/{len(numbers)}] {chosen.name} {told(found)}", flush=True)
    results = []
    for entry in wanted:
        mine = [number for number in numbers if CASES[number] in entry.cases]
        if mine or (not only and every == 1 and not entry.cases):
            results.append((entry, [outcome for number in mine for outcome in outcomes[number]]))
    return results


def told(outcomes: list[Outcome]) -> str:
    """A line for a case, and one more for each mode that is not as it should be."""
    line = f"{outcomes[0].case.title:50} " + ", ".join(
        f"{outcome.mode} {outcome.verdict} {outcome.found:.0e}" for outcome in outcomes
    )
    return "\n".join([line, *(f"    {o.mode}: {o.reason}" for o in outcomes if o.verdict not in GOOD)])


def _compared(name: str, numbers: Sequence[int], jobs: int) -> Iterator[tuple[int, list[Outcome]]]:
    context = multiprocessing.get_context("spawn")
    for begin in range(0, len(numbers), MOST_CASES * jobs):
        some = numbers[begin : begin + MOST_CASES * jobs]
        # Unlike multiprocessing's pool, this one says when a process has died.
        with _meant_by_tensorflow(name), ProcessPoolExecutor(min(jobs, len(some)), context, _start, (name,)) as pool:
            for number, found in pool.map(_compare, some):
                yield number, [Outcome(CASES[number], *values) for values in found]


@contextmanager
def _meant_by_tensorflow(name: str) -> Iterator[None]:
    """Points `tf.keras`, for which tf_keras asks in places, at tf_keras or Keras 3, while the context is open."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1" if name == "tf_keras" else "0"
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def _start(name: str) -> None:
    global _framework
    warnings.simplefilter("ignore")
    for noisy in ("ipu", "tensorflow", "absl"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    _framework = framework(name)


def _compare(number: int) -> tuple[int, list[tuple[str, str, str, float, float]]]:
    """Compares the case with this number: cases hold functions, which cannot be sent to another process."""
    outcomes = compare(_framework, CASES[number])
    return number, [(o.mode, o.verdict, o.reason, o.found, o.allowed) for o in outcomes]
