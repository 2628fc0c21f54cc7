"""Compares all of Keras on the engine with Keras on TensorFlow: `python -m tests.differential --write`."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.differential.frameworks import Framework
    from tests.differential.report import Results

PAGE = Path(__file__).parents[2] / "docs" / "keras_coverage.md"
TITLE = """# Keras on the engine

Every public layer, loss, metric, optimizer, schedule and activation, in the middle of a small model, on the engine and
on TensorFlow with the same inputs and weights. `python -m tests.differential --write` makes this page; the cases are in
[tests/differential](../tests/differential).

Trained weights, histories, evaluations and predictions may differ by three times what TensorFlow differs from itself
when the rows of each batch are permuted, or by 1e-5, or by two units in the last place of the largest value. What draws
random numbers in training is compared with `jit_compile=True`, which draws the same numbers, without permuting; where a
framework draws them from a state of its own, training is only checked for finite results. TensorFlow gets the gradients
of embeddings dense.

"Refused by XLA" means that TensorFlow has no HLO for an operation of the layer, so that `jit_compile=True` fails as
well. Such layers belong in the input pipeline, in a `tf.data` `map`.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--framework", choices=("keras", "tf_keras"), default="keras")
    parser.add_argument("--only", default="", help="a regular expression that a case's kind/name must contain")
    parser.add_argument("--write", action="store_true", help=f"puts the framework's section into {PAGE.name}")
    arguments = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    warnings.simplefilter("ignore")

    from tests.differential.frameworks import framework
    from tests.differential.report import page

    for noisy in ("ipu", "tensorflow"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    chosen = framework(arguments.framework)
    results = run(chosen, arguments.only)
    section = page(chosen, results)
    print(section)
    if arguments.write:
        write(section)
    return 0


def run(framework: Framework, only: str) -> Results:
    """Compares case by case, saying how each went."""
    from tests.differential.comparison import compare
    from tests.differential.suite import entries

    results = []
    for entry in entries(framework):
        cases = [case for case in entry.cases if re.search(only, case.title)]
        if not cases and (only or entry.cases):
            continue
        outcomes = [outcome for case in cases for outcome in compare(framework, case)]
        for outcome in outcomes:
            distance = f"{outcome.found:.0e} of {outcome.allowed:.0e}"
            print(
                f"{outcome.case.title:50} {outcome.mode:9} {outcome.verdict:18} {distance}  {outcome.reason}",
                flush=True,
            )
        results.append((entry, outcomes))
    return results


def write(section: str) -> None:
    """Replaces the framework's section of the page, or adds it."""
    heading = section.splitlines()[0]
    text = PAGE.read_text() if PAGE.exists() else ""
    others = [each for each in re.split(r"^(?=## )", text, flags=re.M)[1:] if each.splitlines()[0] != heading]
    PAGE.write_text("\n".join([TITLE, *(each.rstrip() + "\n" for each in sorted([*others, section]))]))


if __name__ == "__main__":
    sys.exit(main())
