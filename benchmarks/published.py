"""The chip model beside all published figures: `python -m benchmarks.published [--write] [--kind KIND]`.

The command estimates all rows of engine/data/measurements.toml, and prints the estimates beside the published figures.
`--write` stores them in engine/data/estimates.json, which reports and pages read. A test compares them.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from typing import Any

from engine.profile import validation
from engine.profile.estimators import ESTIMATORS
from engine.profile.validation import Measurement
from engine.whole_files import write_whole

DIGITS = 6
OF_PROGRAMS = ("model", "element_type", "batch", "width", "heads", "length", "masked", "inference")
"""The arguments of a whole model on which its programs depend; all others affect their estimates alone."""


def program_key(arguments: dict[str, Any]) -> tuple[Any, ...]:
    """The part of a whole model's arguments that decides on its programs: rows with equal ones share them."""
    return tuple(arguments.get(name) for name in OF_PROGRAMS)


def computed(row: Measurement) -> float:
    """The estimate of a row, to DIGITS significant digits."""
    how, *subject = row.subject
    if how == "estimator":
        found = ESTIMATORS[subject[0]](**subject[1])
    elif how == "program":
        found = _program_figures(subject[0])[subject[1]]
    else:
        from benchmarks.published_models import predict

        found = predict(subject[0]).samples_per_second
    return float(f"{found:.{DIGITS}g}")


@cache
def _program_figures(name: str) -> dict[str, int]:
    from benchmarks.published_programs import figures, published_program

    return figures(published_program(name))


def main() -> None:
    """Read the command line, estimate, print and store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the estimates")
    parser.add_argument("--kind", choices=("estimator", "program", "model"), help="only these rows")
    options = parser.parse_args()
    rows = validation.measurements()
    kept: dict[str, Any] = {each.name: each.estimate for each in rows}
    for each in rows:
        if options.kind in (None, each.subject[0]):
            kept[each.name] = computed(each)
            error = kept[each.name] / each.published - 1
            mark = " *" if each.fitted else ""
            print(f"{each.name + mark:<56}{each.published:>14,.7g}{kept[each.name]:>14,.7g}{error:>+8.1%}", flush=True)
    if options.write:
        write_whole(validation.ESTIMATES, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
