"""The global step is a resource variable, which programs can update, also without version 2's behaviour.

Programs create it before they use any other name of `ipu`: this is the one extension at its import.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import variable_scope
from tensorflow.python.training import training_util


@functools.cache
def extend_global_step() -> None:
    """Extends the function that creates global steps, once."""
    create = training_util.create_global_step

    def resource(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        return next_creator(**{**arguments, "use_resource": True})

    @functools.wraps(create)
    def create_global_step(graph: tf.Graph | None = None) -> Any:
        with (graph or tf.compat.v1.get_default_graph()).as_default(), variable_scope.variable_creator_scope(resource):
            return create(graph)

    training_util.create_global_step = create_global_step
    tf.compat.v1.train.create_global_step = create_global_step
