"""Tests that `python -m tests --all` runs besides: whole grids, seeds that change from run to run, random examples."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import md5
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
SEED = "SOFTWARE_IPU_TESTS_SEED"
"""The variable with the seed of a run of --all; a run of the usual tests has none."""
FRAMEWORK = "kit"
"""The fixture whose values are Keras 3 and tf_keras."""


def seed() -> int | None:
    """The seed of this run, None if it does not explore."""
    text = os.environ.get(SEED)
    return None if text is None else int(text)


def more_seeds(fixed: range, changing: int) -> list[int]:
    """Seeds for a test marked `explore`: the fixed ones, and `changing` ones that follow from the seed of the run."""
    base = seed()
    return [*fixed, *(() if base is None else range(base, base + changing))]


def examples(count: int, usual: int | None = None) -> int:
    """Hypothesis' max_examples: `count` under --all, else `usual` ones, by default a quarter of them."""
    return count if seed() is not None else count // 4 if usual is None else usual


def sample(cases: Iterable[T], count: int) -> list[T]:
    """`count` evenly spaced `cases`, always the same ones; all of them under --all.

    For loops inside of a test, and for lists of one parameter. A grid of parameters, also those of fixtures, is
    thinned as a whole by `@pytest.mark.sample(count)`.
    """
    every = list(cases)
    if seed() is not None or count >= len(every):
        return every
    if count == 1:
        return every[len(every) // 2 :][:1]
    step = (len(every) - 1) / (count - 1)
    return [every[round(index * step)] for index in range(count)]


def left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The tests marked `explore`, and the cases of each test function that a mark `sample(count)` leaves out.

    Tests with the fixture `kit`, which run with either Keras, count as marked without a count if they have no such
    mark.
    """
    out = {item for item in items if item.get_closest_marker("explore")}
    functions: dict[tuple[pytest.Item | None, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item not in out:
            functions[item.parent, getattr(item, "originalname", item.name)].append(item)
    for cases in functions.values():
        mark = cases[0].get_closest_marker("sample")
        parameters = cases[0].callspec.params if hasattr(cases[0], "callspec") else ()
        if parameters and (mark or FRAMEWORK in parameters):
            out.update(set(cases).difference(_chosen(cases, *(mark.args if mark else ()))))
    return out


def _chosen(cases: list[Any], count: int | None = None) -> Iterator[Any]:
    """`count` cases: each is the one with the most values of parameters that the cases before it do not have.

    Without a count, as many cases as it takes to have each value once, except the framework's.
    Ties are settled by a hash of the name: cases that lie at equal steps in a grid may share a parameter's value.
    """
    values = {case: {(name, id(value)) for name, value in case.callspec.params.items()} for case in cases}
    seen: set[tuple[str, int]] = set()
    missing = {value for case in cases for value in values[case] if value[0] != FRAMEWORK}
    for index in range(min(len(values) if count is None else count, len(values))):
        if count is None and index and missing <= seen:
            break
        # Values that the sample need not contain only settle ties.
        best = max(
            values,
            key=lambda case: (
                len(values[case] - seen if count else values[case] & missing - seen),
                len(values[case] - seen),
                md5(case.name.encode()).digest(),
            ),
        )
        seen |= values.pop(best)
        yield best
