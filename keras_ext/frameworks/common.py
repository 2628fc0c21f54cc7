"""What the files for the single Keras versions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu.compiler.variables import tracing
from ipu.ipu_strategy import IPUStrategyV1
from keras_ext.errors import EagerExecutionError

KerasFunction = Callable[..., Any]


def serves(strategy: Any) -> bool:
    """Whether Keras models of this strategy are ours."""
    return isinstance(strategy, IPUStrategyV1) and strategy.serves_keras


def plain_outside(strategy: tf.distribute.Strategy) -> tf.distribute.Strategy:
    """The strategy for a model created outside any: it stays plain when it is fitted inside a scope."""
    return strategy.without_keras_extensions() if serves(strategy) else strategy


def refuse_eager_execution(model: Any) -> None:
    """Raises EagerExecutionError for a model that is to run eagerly."""
    if model.run_eagerly:
        raise EagerExecutionError(
            f"Expected run_eagerly=False for model {model.name!r}, created inside an IPUStrategy. "
            "Received: run_eagerly=True. Compile it without, or create it outside the scope to debug it."
        )


def dense(gradient: Any) -> Any:
    """In a step for the engine: IndexedSlices as a tensor. Their size is known only at run time, and rows repeat."""
    return tf.convert_to_tensor(gradient) if tracing() and isinstance(gradient, tf.IndexedSlices) else gradient
