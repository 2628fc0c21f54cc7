"""A copy of a model: configuration, weights, compiled arguments, optimizer state."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def copy_of(model: Any) -> Any:
    """A model of the same class in the present strategy's scope. Raises what the class's own methods raise."""
    copied = type(model).from_config(model.get_config())
    if model.built and not copied.built:
        copied.build_from_config(model.get_build_config())
    copied.set_weights(model.get_weights())
    if model.optimizer is None:
        return copied
    # Losses and functions are shared; optimizers and metrics have variables.
    arguments = dict(model._compile_config.config)
    copied.compile(**{name: tf.nest.map_structure(_copied, value) for name, value in arguments.items()})
    copied.optimizer.build(copied.trainable_variables)
    _copy_state(model.optimizer, copied.optimizer)
    return copied


def _copied(value: Any) -> Any:
    has_variables = hasattr(value, "from_config") and hasattr(value, "variables")
    return type(value).from_config(value.get_config()) if has_variables else value


def _copy_state(source: Any, target: Any) -> None:
    listed = [each.variables() if callable(each.variables) else each.variables for each in (source, target)]
    if len(listed[0]) != len(listed[1]):
        return  # the source has not trained yet
    for old, new in zip(*listed, strict=True):
        new.assign(np.asarray(old))
