"""What `python -m tests --all` runs besides: whole grids, seeds that change from run to run, random examples."""

from __future__ import annotations

import os

SEED = "SOFTWARE_IPU_TESTS_SEED"
"""The variable that holds the seed of such a run; a run of the usual tests has none."""


def seed() -> int | None:
    """The seed of this run, None if it does not explore."""
    text = os.environ.get(SEED)
    return None if text is None else int(text)


def more_seeds(fixed: range, changing: int) -> list[int]:
    """For a test marked `explore`: the fixed seeds, and so many that follow from the seed of the run."""
    base = seed()
    return [*fixed, *(() if base is None else range(base, base + changing))]
