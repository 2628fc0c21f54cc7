"""The kinds of a call's data, by which accelerated methods tell whether data that were refused come again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from keras_ext.types import Nest

Kinds = frozenset[tuple[type, str]]


def kinds_of(arguments: Mapping[str, Any]) -> Kinds:
    """The types and dtypes of the data among a method's arguments, whatever their shapes."""
    given = [arguments.get(name) for name in ("x", "y", "sample_weight")]
    return frozenset((type(leaf), _dtype(leaf)) for each in given for leaf in _leaves(each))


def _leaves(data: Nest) -> list[Any]:
    leaves: list[Any] = tf.nest.flatten(data.element_spec if isinstance(data, tf.data.Dataset) else data)
    return leaves


def _dtype(leaf: Any) -> str:
    """The name of a dtype; that of all texts of NumPy is one."""
    dtype = getattr(leaf, "dtype", "")
    kind = getattr(dtype, "kind", "")
    return kind if kind in ("U", "S") else str(dtype)
