"""Predictions of the batches of one execution, whose shapes may differ: Keras makes them ragged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from keras_ext.runs import steps_are_chosen
from keras_ext.wrapping import Original


@dataclass(frozen=True)
class OfShapes:
    """Rows of several shapes, those of each shape together, in place of one tensor among the results of `predict`."""

    parts: list[np.ndarray]


def joined_rows(parts: list[np.ndarray]) -> Any:
    """An array of the rows of all parts, or where a program has not chosen executions of several steps, OfShapes.

    Raises ValueError for other shapes in an execution that it has chosen, as Keras cannot join them either.
    """
    if len(parts) == 1:
        return parts[0]
    differ = any(part.shape[1:] != parts[0].shape[1:] for part in parts)
    return OfShapes(parts) if differ and steps_are_chosen.value else np.concatenate(parts)


def as_result(column: Any) -> Any:
    """A tensor of the rows, or OfShapes."""
    return column if isinstance(column, OfShapes) else tf.convert_to_tensor(column)


def join_by_shape(join: Original, tensors: list[Any]) -> Any:
    """Keras' `potentially_ragged_concat` of the results of executions, or of their parts of one shape."""
    parts = [part for each in tensors for part in (each.parts if isinstance(each, OfShapes) else [each])]
    return join([tf.convert_to_tensor(part) for part in parts] if len(parts) > len(tensors) else parts)
