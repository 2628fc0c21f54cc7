"""Building of Keras 3's models for data: with an open number of rows where batches differ, and named as by Keras."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src import tree
from keras.src.backend import name_scope

from engine.errors import ConfigurationError
from ipu._internal.compiler.variables import tracing
from ipu._internal.thread_values import ThreadValue
from ipu.ipu_strategy import IPUStrategyV1
from keras_ext.epochs.batch_types import BatchType, has_open_rows
from keras_ext.frameworks.common import serves
from keras_ext.frameworks.keras3_known_outputs import build_parts, symbolic
from keras_ext.origins import users_own
from keras_ext.types import Batch, Tensor
from keras_ext.wrapping import Original

_building = threading.RLock()
_being_built: list[keras.Model] = []
traced_model: ThreadValue[keras.Model | None] = ThreadValue(None)
"""The model whose step this thread traces."""
_scaled_unbuilt: ThreadValue[Any] = ThreadValue(None)
"""The optimizer that scaled the loss of the step that this thread traces, of a model without trainable weights."""


@contextlib.contextmanager
def traced_step_of(model: keras.Model) -> Iterator[None]:
    """Names the model whose step this thread traces, while the context is open.

    Metrics built ahead of a trace that fails count as unbuilt again: a step builds them last.
    """
    metrics = model._compile_metrics
    with traced_model.replaced_by(model), _scaled_unbuilt.replaced_by(None):
        try:
            yield
        except BaseException:
            if getattr(metrics, "_ipu_built_ahead", False):
                metrics.built = False
            raise
    if metrics is not None:
        metrics._ipu_built_ahead = False


def steps_alone(model: keras.Model, mode: str) -> bool:
    """Whether a model's own step defines all that it computes: its `call` may be missing, or take other data.

    Layers, metrics and optimizers of such a model are built where the step is traced, as by Keras without a strategy.
    """
    kind = type(model)
    own = users_own(kind, "train_step") or (mode == "test" and users_own(kind, "test_step"))
    return own or kind.call is keras.Model.call


def building_batch(model: keras.Model, batch: Batch, batch_type: BatchType) -> Any:
    """The KerasTensors to build `model` with for batches of a type, the first of which is `batch`.

    A Sequential model keeps the shape it is built with, so it gets [None, ...] if the last batch may be smaller, as
    it does from Keras outside a strategy. Other models may read the number of rows in their `call`.
    """
    is_open = isinstance(model, keras.Sequential) and has_open_rows(batch_type)
    return tree.map_structure(_with_open_rows if is_open else symbolic, batch, none_is_leaf=False)


@contextlib.contextmanager
def being_built(model: keras.Model) -> Iterator[None]:
    """Makes `is_being_built` true of `model`, while the context is open, which only one thread at a time may enter."""
    _being_built.append(model)
    try:
        yield
    finally:
        _being_built.pop()


def is_being_built(model: keras.Model) -> bool:
    """Whether a thread builds `model`: its layers may then be marked as built before they have variables.

    Threads that use other models do not wait for the one that builds, which may wait for them.
    """
    return any(each is model for each in tuple(_being_built))


def apply_built(apply: Original, optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
    """Calls Keras' `apply` of an optimizer that is built outside of the trace of a step, and has its model's strategy.

    Each step would repeat what building computes in a trace, such as ScheduleFreeAdamW's averages of the weights.
    A step may apply several optimizers, of which `compile` knows at most one.
    """
    if tracing() and traced_model.value is not None:
        _adopt(optimizer, traced_model.value.distribute_strategy)
    if tracing() and trainable_variables is not None:
        trainable_variables = list(trainable_variables)
        with tf.init_scope(), _building:  # a thread that builds layers marks the optimizer as built
            _build(optimizer, trainable_variables)
    return apply(optimizer, grads, trainable_variables)


def scale_loss_built(scale_loss: Original, optimizer: Any, loss: Any) -> Any:
    """Calls Keras' `scale_loss` of a built optimizer: an unbuilt one multiplies by the initial scale in all steps.

    TensorFlow traces the first step twice, so the scale that plain Keras uses is the variable. Where all weights are
    frozen, plain Keras never builds it. Raises ConfigurationError for an optimizer that is not built and not the one of
    the model whose step is traced.
    """
    if tracing() and not optimizer.built:
        model = traced_model.value
        if model is None or model.optimizer is not optimizer:
            raise _error_of_scale(optimizer)
        if not model.trainable_variables:
            _scaled_unbuilt.value = optimizer
            return scale_loss(optimizer, loss)
        with tf.init_scope(), _building:
            _build(optimizer, list(model.trainable_variables))
    return scale_loss(optimizer, loss)


def build_before_scaling(build: Original, optimizer: Any, var_list: Any) -> None:
    """Builds a LossScaleOptimizer. Raises ConfigurationError if the traced step has scaled a loss with it before."""
    if tracing() and _scaled_unbuilt.value is optimizer:
        raise _error_of_scale(optimizer)
    build(optimizer, var_list)


def _error_of_scale(optimizer: Any) -> ConfigurationError:
    return ConfigurationError(
        f"Expected {type(optimizer).__name__} {optimizer.name!r} to have variables before a loss is scaled. "
        "Received: one that is not built. Call its build(model.trainable_variables) in the strategy's scope."
    )


def _build(optimizer: Any, variables: list[Any]) -> None:
    if optimizer.built:
        return
    # a MultiOptimizer has no name scope of its own
    several = isinstance(optimizer, getattr(keras.optimizers, "MultiOptimizer", ()))
    with contextlib.nullcontext() if several else name_scope(optimizer.name, caller=optimizer):
        optimizer.build(variables)


def _with_open_rows(value: Tensor) -> Any:
    shape = tuple(tf.TensorShape(value.shape).as_list())
    return keras.KerasTensor((None, *shape[1:]), keras.backend.standardize_dtype(value.dtype)) if shape else value


def build_where_traced(original: Original, model: keras.Model, iterator: Any = None, data_batch: Batch = None) -> None:
    """Builds nothing where Keras' methods begin: as without a strategy, a model is built where its step is traced."""
    adopt_optimizer(model)
    if not serves(model._distribute_strategy):
        original(model, iterator, data_batch)


def build(model: keras.Model, mode: str, batch: Batch, batch_type: BatchType) -> None:
    """Builds layers, metrics and loss of a model that are not built, for a nested batch of specs of this type."""
    if steps_alone(model, mode) or (_is_built(model) and not is_being_built(model)):
        return
    batch = building_batch(model, batch, batch_type)
    with _building, being_built(model):  # another thread may build the same model
        if _is_built(model):
            return
        with model.distribute_strategy.scope():
            build_parts(model, mode, batch)


def _is_built(model: keras.Model) -> bool:
    """Whether layers, metrics and loss are built; an optimizer is built where its first update is traced."""
    parts = (model._compile_metrics, model._compile_loss)
    return all(part is None or part.built for part in parts) and all(layer.built for layer in model._flatten_layers())


def adopt_optimizer(model: keras.Model) -> None:
    """Gives an optimizer its model's strategy: an optimizer raises an error under any strategy but its own."""
    _adopt(model.optimizer, model.distribute_strategy)


def _adopt(optimizer: Any, strategy: tf.distribute.Strategy) -> None:
    while optimizer is not None:
        created_under = optimizer._distribution_strategy
        ours = isinstance(strategy, IPUStrategyV1) or isinstance(created_under, IPUStrategyV1)
        if ours and created_under.extended is not strategy.extended:
            optimizer._distribution_strategy = strategy
        optimizer = getattr(optimizer, "inner_optimizer", None)
