"""Gradients of the scaled loss that Keras' loss scaling optimizers take in a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.compiler.graph_structure import origin
from ipu._internal.types import Optimizer


def scaled_gradients(optimizer: Optimizer, loss: tf.Tensor, tape: tf.GradientTape, variables: Sequence[Any]) -> Any:
    """The gradients of a loss that an optimizer applies, computed of the loss times its scale, as in `fit`.

    Keras 3's optimizers divide by the scale when they apply gradients, those of tf_keras have done it before. Stages
    may have scaled the loss themselves. Raises ConfigurationError for a `loss_scale_factor` of Keras 3.
    """
    factor = getattr(optimizer, "loss_scale_factor", None)
    if factor is not None:
        raise ConfigurationError(
            f"Expected an optimizer without loss_scale_factor, by which pipeline() cannot know whether stages have "
            f"scaled the loss. Received: {type(optimizer).__name__}(loss_scale_factor={factor}). Leave it out, or wrap "
            f"the optimizer in a keras.optimizers.LossScaleOptimizer."
        )
    scale = getattr(optimizer, "get_scaled_loss", None)
    if scale is None and hasattr(optimizer, "inner_optimizer"):
        scale = getattr(optimizer, "scale_loss", None)
    if scale is None:
        return tape.gradient(loss, variables)
    seeds = None if _is_scaled(optimizer, loss) else scale(tf.ones_like(loss))
    gradients = tape.gradient(loss, variables, output_gradients=seeds)
    unscaled = getattr(optimizer, "get_unscaled_gradients", None)
    return gradients if unscaled is None else unscaled(gradients)


def _is_scaled(optimizer: Optimizer, loss: tf.Tensor) -> bool:
    """Whether the loss has been computed from the optimizer's scale."""
    state = getattr(optimizer, "_loss_scale", None)
    of_tf_keras = getattr(state, "current_loss_scale", None)
    known = (of_tf_keras, getattr(optimizer, "dynamic_scale", None), getattr(optimizer, "_loss_scaling_factor", None))
    scales = [getattr(each, "_value", each) for each in known if each is not None]
    handles = {id(each._handle) for each in scales if isinstance(each, tf.Variable)}
    return any(id(origin(tensor)) in handles for tensor in _resources_of(loss))


def _resources_of(tensor: tf.Tensor) -> Iterator[tf.Tensor]:
    """The handles that a tensor has been computed from, in its graph."""
    waiting, seen = [tensor], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each.dtype == tf.resource:
            yield each
        waiting += each.op.inputs
