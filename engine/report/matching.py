"""Matching of the layers of two reports, whose names differ because Keras numbers layers per process."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

NUMBER = re.compile(r"_(\d+)(?=/|$)")
OWNER = " update of "
"""Text before the layer whose variables an optimizer updates, in the names of operations."""


def same_layers(before: dict[str, Any], now: dict[str, Any]) -> dict[str, str]:
    """Map names of layers in `now` to different names in `before`; layers include models, optimizers and losses.

    Names that differ only in their numbers are matched in numerical order: the conv2d_3 and conv2d_4 of a second model
    are the conv2d and conv2d_1 of the first. If the names of one report are a subset of the other's, equal names are
    the same layers.
    """
    found: dict[str, str] = {}
    earlier = _by_base(before)
    for base, names in _by_base(now).items():
        others = earlier.get(base, [])
        if set(names) <= set(others) or set(others) <= set(names):
            continue
        found |= {name: other for name, other in zip(names, others, strict=False) if name != other}
    return found


def renamed(operation: str, layers: dict[str, str]) -> str:
    """The name of an operation with its layers renamed by `layers`.

    A layer is marked as new if it has no counterpart and another layer had its name before.
    """
    taken = set(layers.values())
    words = operation.split(" ")
    for at, word in enumerate(words):
        if not at or words[at - 1] == "of":
            words[at] = layers.get(word, f"{word} (new)" if word in taken else word)
    # A layer with the same name as its operation is named once (engine.ir.op_names.readable_name).
    return " ".join(word for word, previous in zip(words, ["", *words], strict=False) if word != previous)


def _by_base(report: dict[str, Any]) -> dict[str, list[str]]:
    """Names of a report's layers by base name, in the order of their numbers."""
    found: dict[str, dict[str, list[int]]] = {}
    for name in _layers(report["operations"]):
        numbers = [int((NUMBER.search(part) or "_0")[1]) for part in name.split("/")]
        found.setdefault(NUMBER.sub("", name), {})[name] = numbers
    return {base: sorted(numbers, key=numbers.__getitem__) for base, numbers in found.items()}


def _layers(rows: Iterable[dict[str, Any]]) -> set[str]:
    layers = {row["layer"] for row in rows}
    layers |= {row["name"].split(OWNER)[1] for row in rows if OWNER in row["name"]}
    return layers - {""}
