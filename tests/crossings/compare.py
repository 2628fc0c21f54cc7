"""Compares the notes of two runs: exactly, except for floats, whose tolerance follows from both runs in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.crossings.harness import Raised
from tests.fuzz.distances import EPSILON

Items = list[tuple[str, Any]]
ROUNDINGS = 64
"""A difference below this many roundings of an array's largest number needs no run in float64."""
FACTOR = 8
"""Largest multiple of plain Keras' distance from float64 that another run may have: both round at random."""
SMALL = 1e-2
"""Largest number of an array below which errors are relative to 1."""


def differences(
    got: Items, wanted: Items, truth: Items | None = None, roundings: float = ROUNDINGS, f: str = "float32"
) -> list[str]:
    """A line for each value that differs. `truth` has plain Keras' notes in float64, from which errors are measured."""
    theirs, ours = dict(leaves(wanted)), dict(leaves(got))
    exact = dict(leaves(truth)) if truth is not None else {}
    noise = max(
        (_off(value, exact[path], "float64") for path, value in theirs.items() if _comparable(value, exact.get(path))),
        default=0.0,
    )
    found = []
    for path, value in theirs.items():
        if path not in ours:
            found.append(f"{path}: plain {shown(value)}, here nothing")
        elif _is_float(value) and _comparable(value, ours[path]):
            if np.array_equal(value, ours[path], equal_nan=True):
                continue
            if _comparable(value, exact.get(path)):
                off, limit = _off(ours[path], exact[path], "float64"), FACTOR * noise + roundings * EPSILON[f]
            else:
                off, limit = _off(ours[path], value, f), roundings * EPSILON[f]
            if not off <= limit:
                found.append(f"{path}: plain {shown(value)}, here {shown(ours[path])}, off by {off:.2g} of {limit:.2g}")
        elif not _same(ours[path], value):
            found.append(f"{path}: plain {shown(value)}, here {shown(ours[path])}")
    found += [f"{path}: plain nothing, here {shown(ours[path])}" for path in ours if path not in theirs]
    return sorted(found, key=lambda line: "Error: " not in line)


def _off(value: np.ndarray, truth: np.ndarray, f: str) -> float:
    """The largest error relative to the largest number; infinite where other numbers are not finite.

    It does not matter which of them is NaN if they are not finite in float64 either, the type of `truth`: after an
    overflow the order of sums decides.
    """
    value, truth = (np.asarray(each, np.float64) for each in (value, truth))
    finite = np.isfinite(truth)
    same = f == "float64" or np.array_equal(value[~finite], truth[~finite], equal_nan=True)
    if not np.array_equal(np.isfinite(value), finite) or not same:
        return np.inf
    if not finite.any():
        return 0.0
    return float(np.abs(value[finite] - truth[finite]).max() / max(np.abs(truth[finite]).max(), SMALL))


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype.kind == "f" or value.dtype.name == "bfloat16")


def _comparable(value: Any, other: Any) -> bool:
    return _is_float(value) and _is_float(other) and value.shape == other.shape


def _same(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, Raised):
        return isinstance(got, Raised) and wanted.classes[0] in got.classes
    if isinstance(got, np.ndarray | np.generic) or isinstance(wanted, np.ndarray | np.generic):
        return np.shape(got) == np.shape(wanted) and bool(np.array_equal(got, wanted))
    return bool(got == wanted) and not isinstance(got, Raised)


def leaves(items: Items) -> Iterator[tuple[str, Any]]:
    """Each value with the path to it: the label, its number among equal labels, then keys and positions."""
    counts: dict[str, int] = {}
    for label, value in items:
        counts[label] = counts.get(label, 0) + 1
        yield from _below(f"{label} #{counts[label]}", value)
    yield "order", [label for label, _ in items]


def _below(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield f"{path} keys", list(value)
        for key, each in value.items():
            yield from _below(f"{path}/{key}", each)
    elif isinstance(value, list):
        yield f"{path} length", len(value)
        for number, each in enumerate(value):
            yield from _below(f"{path}/{number}", each)
    else:
        yield path, np.asarray(value) if isinstance(value, float) else value


def shown(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, np.ndarray):
        head = np.array2string(value.ravel()[:4], precision=6)
        return head + (f" of {list(value.shape)}" if value.size > 4 else "")
    return repr(value)[:300]
