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
    _copy_state(model.optimizer, copied.optimizer, copied.trainable_variables)
    return copied


def _copied(value: Any) -> Any:
    has_variables = hasattr(value, "from_config") and hasattr(value, "variables")
    return type(value).from_config(value.get_config()) if has_variables else value


def _copy_state(source: Any, target: Any, weights: list[Any]) -> None:
    """Builds the target, if the source is built, and gives it the source's state."""
    if len(_listed(source)) > len(_listed(target)):
        (getattr(target, "build", None) or target._create_all_weights)(weights)  # the latter of legacy optimizers
    if len(_listed(source)) != len(_listed(target)):
        return
    for old, new in zip(_listed(source), _listed(target), strict=True):
        new.assign(np.asarray(old))
    source, target = (getattr(each, "inner_optimizer", each) for each in (source, target))
    if hasattr(source, "_u_product") and hasattr(target, "_u_product"):
        # Nadam of tf_keras does not list this product. Its count of traced updates begins where the last trace did.
        target._u_product.assign(np.asarray(source._u_product))
        target._u_product_counter = max(1, source._u_product_counter - len(weights))


def _listed(optimizer: Any) -> list[Any]:
    return list(optimizer.variables() if callable(optimizer.variables) else optimizer.variables)
