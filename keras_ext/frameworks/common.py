"""Code shared by the files of both Keras versions."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.ops import variable_v1, variables

from engine.errors import StepCountError
from engine.program.program import Label, Role
from ipu._internal.compiler.variable_labels import label_noted, note_label, path_of
from ipu._internal.compiler.variables import tracing
from ipu.ipu_strategy import IPUStrategyV1
from keras_ext.errors import EagerExecutionError
from keras_ext.types import KerasModel, Tensor
from keras_ext.wrapping import Original


def serves(strategy: object) -> bool:
    """Whether Keras models of this strategy run on the engine."""
    return isinstance(strategy, IPUStrategyV1) and strategy.serves_keras


@contextlib.contextmanager
def outside_of_strategies() -> Iterator[None]:
    """Takes TensorFlow out of any IPUStrategy's scope, while the context is open, for models that belong to none."""
    if not isinstance(tf.distribute.get_strategy(), IPUStrategyV1) or not tf.distribute.in_cross_replica_context():
        yield
        return
    distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
    try:
        with tf.variable_creator_scope(_create_plain):
            yield
    finally:
        distribute_lib._pop_per_thread_mode()


def _create_plain(next_creator: Callable[..., Any], **arguments: Any) -> Any:
    """Makes a plain TensorFlow variable, past all outer creators."""
    make = variables.default_variable_creator_v2
    return (variable_v1.default_variable_creator if "use_resource" in arguments else make)(None, **arguments)


def plain_outside(strategy: tf.distribute.Strategy) -> tf.distribute.Strategy:
    """The strategy for a model created outside any, which stays plain when it is fitted inside a scope."""
    return strategy.without_keras_extensions() if serves(strategy) else strategy


def refuse_eager_execution(model: KerasModel) -> None:
    """Raises EagerExecutionError for a model that is to run eagerly."""
    if model.run_eagerly:
        raise EagerExecutionError(
            f"Expected run_eagerly=False for model {model.name!r}, created inside an IPUStrategy. "
            "Received: run_eagerly=True. Compile it without, or create it outside the scope to debug it."
        )


def with_plain_steps(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `compile` with a number where `steps_per_execution` is a tensor, as `dataset.cardinality()` is.

    Raises StepCountError for the cardinality of a dataset without end, or of unknown length.
    """
    steps = arguments.get("steps_per_execution")
    if not isinstance(steps, tf.Tensor | np.ndarray | np.generic):
        return arguments
    number = int(steps)
    if number in (tf.data.INFINITE_CARDINALITY, tf.data.UNKNOWN_CARDINALITY):
        what = "has no end" if number == tf.data.INFINITE_CARDINALITY else "is of unknown length"
        raise StepCountError(
            f"Expected steps_per_execution to be a positive number. Received: {number}, the cardinality of a dataset "
            f"that {what}. Give the number of steps of an epoch instead."
        )
    return {**arguments, "steps_per_execution": number}


def dense(gradient: Tensor) -> Any:
    """IndexedSlices as a tensor in a step for the engine: their size is known only at run time, and rows repeat."""
    return tf.convert_to_tensor(gradient) if tracing() and isinstance(gradient, tf.IndexedSlices) else gradient


def note_slot(original: Original, *arguments: Any, **named: Any) -> Any:
    """Calls an optimizer's method that makes a slot from a weight and a name, and notes the slot's weight."""
    slot = original(*arguments, **named)
    signature = _signature(original)
    given = signature.bind(*arguments, **named).arguments
    optimizer, weight, name = (given.get(parameter) for parameter in list(signature.parameters)[:3])
    owner = label_noted(weight) or label_noted(getattr(weight, "_value", None)) or Label(path_of(weight))
    scope = getattr(optimizer, "name", None) or vars(optimizer)["_name"]
    label = Label(f"{scope}/{name or 'var'}", Role.SLOT, owner.path)
    for variable in (slot, getattr(slot, "_value", None)):
        if variable is not None:
            note_label(variable, label)
    return slot


_signature = functools.cache(inspect.signature)
