"""Micro-batches that `fit` accumulates before each update of a model."""

from __future__ import annotations

from typing import Any

from engine.errors import ConfigurationError
from engine.partition.accumulation import Accumulation
from engine.partition.storage import Storage
from ipu._internal.compiler.marks import AccumulatorType
from ipu._internal.compiler.storage import checked_storage, placed
from ipu._internal.pipelining.options import REDUCTIONS
from keras_ext.accumulation_options import ARGUMENTS, REDUCTION, STEPS
from keras_ext.extension import option
from keras_ext.origins import users_own
from keras_ext.pipelining.micro_batches import pipeline_accumulation
from keras_ext.pipelining.options import pipelining_of
from keras_ext.replication import replicas_of
from keras_ext.types import KerasModel


def accumulation_of(model: KerasModel) -> Accumulation:
    """The accumulation of each update of `fit`, in the configuration in force; raises as `accumulation_with`."""
    return accumulation_with(model, pipelining_of(model, training=True))


def accumulation_with(model: KerasModel, pipelining: Any) -> Accumulation:
    """`accumulation_of` given the model's pipelining in training, None without stages.

    Raises ConfigurationError for an optimizer that overrides `minimize`.
    """
    _check_minimize(model, pipelining is not None)
    if pipelining is not None:
        return pipeline_accumulation(model, pipelining)
    steps = option(model, STEPS) or 1
    return Accumulation(steps, replicas_of(model.distribute_strategy), REDUCTIONS[option(model, REDUCTION, 0)])


def accumulator_type_of(model: KerasModel) -> AccumulatorType:
    """The type in which a model's gradients are accumulated; None means the type of each gradient."""
    return option(model, ARGUMENTS, {}).get("dtype")


def storage_of(model: KerasModel) -> Storage:
    """The data that a chip would keep in streaming memory while the model trains."""
    return placed(checked_storage(option(model, ARGUMENTS, {})), accumulates=(option(model, STEPS) or 1) > 1)


def _check_minimize(model: KerasModel, is_pipelined: bool) -> None:
    """Raises ConfigurationError for an optimizer with a `minimize` of its own, which would never be called."""
    optimizer = getattr(model, "optimizer", None)
    if not (is_pipelined or (option(model, STEPS) or 1) > 1):
        return
    while optimizer is not None:
        if users_own(type(optimizer), "minimize"):
            raise ConfigurationError(
                f"Expected an optimizer that does not override minimize, which is not called with gradient "
                f"accumulation and in pipelines. Received: {type(optimizer).__name__}. Override apply_gradients in its "
                f"place."
            )
        optimizer = getattr(optimizer, "inner_optimizer", None)  # that of a LossScaleOptimizer
