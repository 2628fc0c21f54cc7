"""Models that several processes train: statistics that each has of its own, and the files that one of them writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu._internal.compiler.processes import transport_of
from keras_ext.types import KerasModel
from keras_ext.wrapping import Original, wrap


def install(checkpoint: type) -> None:
    """Wraps the class of one framework's ModelCheckpoint: process 0 alone writes files."""
    wrap(checkpoint, "_save_model", _save_in_first)


def _save_in_first(original: Original, callback: Any, *arguments: Any, **named: Any) -> None:
    strategy = callback.model.distribute_strategy
    transport = transport_of(strategy) if getattr(strategy, "serves_keras", False) else None
    if transport is None or transport.rank == 0:
        original(callback, *arguments, **named)


def share_statistics(model: KerasModel) -> None:
    """Gives all processes the moving statistics of process 0, as programs of one process show those of replica 0."""
    transport = transport_of(model.distribute_strategy)
    if transport is None or not model.built:
        return
    weights: list[Any] = getattr(model, "non_trainable_weights")  # noqa: B009 - both Keras have it
    for number, weight in enumerate(weights):
        own = np.asarray(weight)
        if own.dtype.kind in "fV":  # V is bfloat16
            value = transport.broadcast(own, 0, f"weight {number}")
            if transport.rank:
                weight.assign(value)
