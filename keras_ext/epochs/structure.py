"""Flattens nested batches (tuples, lists, dictionaries, None) and describes them by a hashable layout."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_ext.types import Nest


@dataclass(frozen=True, slots=True)
class BatchStructure:
    """The nesting of a batch: a container's type, keys and children; `kind` None is a missing value.

    A mapping lists its keys in `order`, which is not that of its leaves.
    """

    kind: type | None
    keys: tuple[Any, ...] = ()
    children: tuple[BatchStructure, ...] = ()
    order: tuple[Any, ...] = ()

    def unflatten(self, leaves: Iterator[Any]) -> Any:
        """The nested value whose leaves come from `leaves`, in order."""
        if self.kind is None:
            return None
        if self.kind is BatchLeaf:
            return next(leaves)
        values = [child.unflatten(leaves) for child in self.children]
        if self.kind in MAPPINGS:
            named = dict(zip(self.keys, values, strict=True))
            return self.kind((key, named[key]) for key in self.order)
        return self.kind(*values) if hasattr(self.kind, "_fields") else self.kind(values)


MAPPINGS = (dict, OrderedDict)
"""The types of mappings in batches; Keras takes the inputs of an OrderedDict in its order."""


class BatchLeaf:
    """The kind of a layout that represents one array."""


LEAF = BatchStructure(BatchLeaf)
MISSING = BatchStructure(None)


def flatten(value: Nest, convert: Callable[[Any], Any]) -> tuple[list[Any], BatchStructure]:
    """The leaves of a nested value, each converted, and the layout to rebuild it from them."""
    leaves: list[Any] = []
    return leaves, _flatten(value, convert, leaves)


def _flatten(value: Nest, convert: Callable[[Any], Any], leaves: list[Any]) -> BatchStructure:
    if value is None:
        return MISSING
    if isinstance(value, list | tuple):
        return BatchStructure(type(value), (), tuple([_flatten(child, convert, leaves) for child in value]))
    if type(value) is not np.ndarray and isinstance(value, Mapping):
        keys = tuple(sorted(value)) if all(isinstance(key, str) for key in value) else tuple(value)
        kind = OrderedDict if isinstance(value, OrderedDict) else dict
        return BatchStructure(kind, keys, tuple(_flatten(value[key], convert, leaves) for key in keys), tuple(value))
    leaf = convert(value)
    if leaf is None:
        return MISSING
    leaves.append(leaf)
    return LEAF
