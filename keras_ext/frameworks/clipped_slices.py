"""Optimizers that clip take an embedding's gradient as IndexedSlices: values of a row named twice are clipped each by
itself, as in Keras. Their sums, a tensor, are what variables are updated with.

Gradients that are reduced over micro-batches or replicas are tensors before: the sums are clipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.function_trace import reduces_over_replicas
from ipu._internal.compiler.marks import in_marked_step
from ipu._internal.compiler.variables import tracing
from keras_ext.frameworks.common import KERAS, dense, users_own
from keras_ext.types import KerasOptimizer
from keras_ext.wrapping import Original

CLIPS = ("clipnorm", "global_clipnorm", "clipvalue", "gradient_transformers")
"""Attributes of an optimizer that changes gradients before it updates variables; the last has users' functions."""
APPLIES = ("apply", "apply_gradients")
SUMS = ("gradient_accumulation_steps", "loss_scale_factor")
"""Attributes with which Keras 3 adds tensors to gradients, or divides these as tensors only."""
OURS = "keras_ext."


def taken(optimizer: KerasOptimizer, gradients: Iterable[Any]) -> list[Any]:
    """The gradients for a method of an optimizer: IndexedSlices as they are if it may clip them, else as tensors."""
    if in_marked_step() or reduces_over_replicas() or not _may_clip(optimizer):
        return [dense(each) for each in gradients]
    return list(gradients)


def _may_clip(optimizer: KerasOptimizer) -> bool:
    """Whether an optimizer, or one that it wraps, clips IndexedSlices, or a user's method may do so."""
    chain: list[Any] = [optimizer]
    while (inner := getattr(chain[-1], "inner_optimizer", None)) is not None:
        chain.append(inner)
    if any(getattr(each, name, None) for each in chain for name in SUMS):
        return False
    own = any(users_own(type(each), name, (*KERAS, OURS)) for each in chain for name in APPLIES)
    return own or any(getattr(each, name, None) for each in chain for name in CLIPS)


def update_dense(original: Original, optimizer: KerasOptimizer, gradients: Sequence[Any], *arguments: Any) -> Any:
    """Calls a method that takes clipped gradients first, with tensors."""
    return original(optimizer, [dense(each) for each in gradients], *arguments)


def update_dense_pairs(
    original: Original, optimizer: KerasOptimizer, distribution: Any, pairs: Iterable[Any], **named: Any
) -> Any:
    """Calls a method that takes clipped gradients with their variables, with tensors."""
    return original(optimizer, distribution, [(dense(gradient), variable) for gradient, variable in pairs], **named)


def check_values(original: Original, optimizer: KerasOptimizer, gradients: Iterable[Any]) -> Any:
    """Calls a method that checks whether gradients are finite, with the values of IndexedSlices.

    Keras makes a tensor as large as the variable, where one value of a row named twice stands for both.
    """
    return original(optimizer, _values(gradients))


def norm_of_values(original: Original, gradients: Iterable[Any]) -> Any:
    """Calls a function that sums the squares of gradients, with the values of IndexedSlices.

    Keras adds the squares of equal rows first, in a tensor as large as the variable.
    """
    return original(_values(gradients))


def _values(gradients: Iterable[Any]) -> list[Any]:
    if not tracing():
        return list(gradients)
    return [each.values if isinstance(each, tf.IndexedSlices) else each for each in gradients]
