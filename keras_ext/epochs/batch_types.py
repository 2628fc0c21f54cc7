"""Types of batches that Keras knows before it reads them, and by which it decides when to trace a step."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from keras_ext.epochs.structure import BatchStructure, flatten
from keras_ext.types import Nest


@dataclass(frozen=True, eq=False)
class OfSpecs:
    """The type of batches of a layout, with a spec for each array. Only `of_specs` creates it."""

    layout: BatchStructure
    specs: tuple[tf.TypeSpec, ...]


@functools.cache
def of_specs(layout: BatchStructure, specs: tuple[tf.TypeSpec, ...]) -> OfSpecs:
    """One object for equal arguments: TensorFlow hashes and compares specs in Python, too slowly for each step."""
    return OfSpecs(layout, specs)


@dataclass(frozen=True)
class OpenRows:
    """The type of batches of a Python iterator: each has any number of rows."""


@dataclass(frozen=True)
class ListOf:
    """The type of several batches that are given together: each is known as it is."""

    batches: int


OPEN_ROWS = OpenRows()
BatchType = OfSpecs | OpenRows | ListOf | None
"""One of the above, or None for a batch that is known as it is."""


def has_open_rows(batch_type: BatchType) -> bool:
    """Whether batches of a type differ in their rows, or may do so."""
    if isinstance(batch_type, OfSpecs):
        return any(spec.shape.rank and spec.shape[0] is None for spec in batch_type.specs)
    return batch_type is OPEN_ROWS


_latest: tuple[Nest, OfSpecs | None] = None, None


def type_of_specs(element_spec: Nest) -> OfSpecs:
    """The type of batches of a tf.data set."""
    specs, layout = flatten(element_spec, lambda spec: spec)
    return of_specs(layout, tuple(specs))


def batch_type(iterator: Any) -> BatchType:
    """The type of the batches of an iterator."""
    global _latest
    own = getattr(iterator, "batch_type", None)
    if own is not None:
        return own()
    spec = getattr(iterator, "element_spec", None)
    known, latest = _latest
    if spec is None or known is spec:
        return None if spec is None else latest
    latest = type_of_specs(spec)
    _latest = spec, latest
    return latest
