"""The global step is a resource variable, which programs can update, also without version 2's behaviour.

Programs create it before they use any other name of `ipu`, so this is the only extension at the import of `ipu`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import variable_scope
from tensorflow.python.training import training_util

from ipu._internal.function_code import wraps

GLOBAL_STEP = tf.compat.v1.GraphKeys.GLOBAL_STEP


@functools.cache
def extend_global_step() -> None:
    """Extends the function that creates global steps, once."""
    create = training_util.create_global_step

    def resource(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        return next_creator(**{**arguments, "use_resource": True})

    @wraps(create)
    def create_global_step(graph: tf.Graph | None = None) -> Any:
        graph = graph or tf.compat.v1.get_default_graph()
        with graph.as_default(), variable_scope.variable_creator_scope(resource):
            step = create(graph)
        while isinstance(graph, FuncGraph):  # the variable is in the outermost graph, and its collection alone
            if not graph.get_collection_ref(GLOBAL_STEP):
                graph.add_to_collection(GLOBAL_STEP, step)
            graph = graph.outer_graph
        return step

    training_util.create_global_step = create_global_step
    tf.compat.v1.train.create_global_step = create_global_step
