"""The gradient functions of TensorFlow 1's Defun: those of the functions that the compiler gets have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.backprop_util import IsTrainable
from tensorflow.python.framework import importer
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph_def
from tensorflow.python.ops.default_gradient import zeros_like


def symbolic_gradient(original: Callable[..., Any], input: Any, Tout: Any, f: Any, name: str | None = None) -> Any:
    """SymbolicGradient, or a call of the gradient function that a Defun has, or the gradients of its operations, if
    calls of such a Defun are among them.
    """
    called = _function(f.name)
    if getattr(called, "_grad_func", None) is not None:
        return called._grad_func(*input)
    if _calls_gradient_functions(called):
        return _derived(called, input)
    return original(input, Tout, f, name=name)


def _function(name: str) -> Any:
    """The function of this name in the graph that is being built, or in those around it."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if (found := graph._get_function(name)) is not None:
            return found
        graph = getattr(graph, "outer_graph", None)
    return None


def _calls_gradient_functions(called: Any) -> bool:
    """Whether a function that a Defun calls, or that is called there, has a gradient function."""
    inner = getattr(called, "_sub_functions", {}).values()
    return any(each._grad_func is not None or _calls_gradient_functions(each) for each in inner)


def _derived(called: Any, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The gradients of a function's operations, which are added to the graph; `inputs` ends with those of its results.

    TensorFlow 1 derives the operations by itself, and calls the gradient functions on its way.
    """
    graph: Any = tf.compat.v1.get_default_graph()
    for each in called._sub_functions.values():
        if not graph._is_function(each.name):
            graph._add_function_recursive(each)
    definition, names = function_def_to_graph_def(called.definition)
    definition.ClearField("library")  # its copies have no gradient functions
    signature = called.definition.signature
    count = len(signature.input_arg)
    arguments = [tf.identity(each) if IsTrainable(each) else each for each in inputs[:count]]
    given = {argument.name: tensor for argument, tensor in zip(signature.input_arg, arguments, strict=True)}
    results = importer.import_graph_def(
        definition,
        input_map=given,
        return_elements=[names[called.definition.ret[each.name]] for each in signature.output_arg],
        name=called.name,
    )
    found = tf.compat.v1.gradients(results, arguments, list(inputs[count:]))
    return [
        zeros_like(argument) if gradient is None else tf.convert_to_tensor(gradient)
        for argument, gradient in zip(arguments, found, strict=True)
    ]
