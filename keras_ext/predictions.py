"""Predictions of the batches of one execution, whose shapes may differ: Keras makes them ragged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from keras_ext.runs import steps_are_chosen
from keras_ext.wrapping import Original


@dataclass(frozen=True)
class OfShapes:
    """Rows of several shapes, grouped by shape, in place of one tensor among the results of `predict`."""

    parts: list[np.ndarray]


def all_rows(result: np.ndarray) -> np.ndarray:
    """Outputs [steps, batch, ...] as rows; outputs without a batch axis, one for each step."""
    return result if result.ndim == 1 else result.reshape(-1, *result.shape[2:])


def joined_rows(parts: list[np.ndarray]) -> Any:
    """Returns an array of the rows of all parts; OfShapes for several shapes, if the program has not set the steps.

    Raises ConfigurationError, a ValueError, for several shapes if the program has set the steps: Keras raises, too.
    """
    if len(parts) == 1:
        return parts[0]
    differ = any(part.shape[1:] != parts[0].shape[1:] for part in parts)
    if not differ:
        return np.concatenate(parts)
    if steps_are_chosen.value:
        return OfShapes(parts)
    raise ConfigurationError(
        "Expected outputs of one shape, but for the rows, from all batches of an execution. Received: "
        f"{', '.join(str(list(part.shape)) for part in parts[:8])}. Compile the model with steps_per_execution=1, or "
        "pad the batches to one length."
    )


def as_result(column: Any) -> Any:
    """A tensor of the rows, or OfShapes."""
    return column if isinstance(column, OfShapes) else tf.convert_to_tensor(column)


def join_by_shape(join: Original, tensors: list[Any]) -> Any:
    """Calls Keras' `potentially_ragged_concat` with the results of executions, or their parts of one shape."""
    parts = [part for each in tensors for part in (each.parts if isinstance(each, OfShapes) else [each])]
    return join([tf.convert_to_tensor(part) for part in parts] if len(parts) > len(tensors) else parts)
