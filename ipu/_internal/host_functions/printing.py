"""tf.print and tf.Print in traced functions: the host formats and prints, in program order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import func_graph, tensor_util
from tensorflow.python.ops import gen_logging_ops, gen_string_ops

from engine.errors import UnsupportedOperation
from ipu._internal.host_functions.calls import host_call
from ipu._internal.host_functions.python_functions import CopyingFunction, eager_tensors, eagerly

FORMAT = ("template", "placeholder", "summarize")


def formatted(original: Callable[..., tf.Tensor], *args: Any, **kwargs: Any) -> tf.Tensor:
    """Formats like TensorFlow's operation StringFormat, but in a graph of its own, as XLA has no texts."""
    with func_graph.FuncGraph("format").as_default():
        return original(*args, **kwargs)


def printed(input: tf.Tensor, output_stream: str = "stderr", end: str = "\n", name: str | None = None) -> tf.Operation:
    """Prints like TensorFlow's operation PrintV2, in a function being traced, a text that StringFormat has formatted.

    Raises UnsupportedOperation for a text computed otherwise.
    """
    constant = tensor_util.constant_value(input)
    if constant is not None:
        template, operands = {"template": constant.item(), "placeholder": "", "summarize": -1}, []
    elif input.op.type == "StringFormat":
        template, operands = {each: input.op.get_attr(each) for each in FORMAT}, _outside(input.op)
    else:
        raise UnsupportedOperation(
            f"Expected numbers, booleans and constant texts in tf.print. Received: a text computed by "
            f"{input.op.type}. Print the numbers, or compute the text in a tf.py_function."
        )

    def write(values: list[tf.Tensor]) -> None:
        text = gen_string_ops.string_format(values, **template) if template["placeholder"] else template["template"]
        gen_logging_ops.print_v2(text, output_stream=output_stream, end=end)

    def call(*arrays: np.ndarray) -> Sequence[Any]:
        eagerly(write, eager_tensors(arrays))
        return []

    return host_call(CopyingFunction(name or "tf.print", call), operands, [], lambda *_: [])[1]


def passed_on(
    original: Callable[..., Any],
    input: tf.Tensor,
    data: Sequence[Any],
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Prints `data` like TensorFlow's operation Print, in a function being traced, and returns `input` afterwards."""
    tensors = [tf.convert_to_tensor(each) for each in data]
    constants = [tensor_util.constant_value(each) for each in tensors]
    count = itertools.count()

    def write(values: list[tf.Tensor]) -> None:
        given = iter(values)
        printed = [next(given) if constant is None else tf.constant(constant) for constant in constants]
        original(printed[0], printed, message, -1, summarize)

    def call(*arrays: np.ndarray) -> Sequence[Any]:
        if first_n is None or first_n < 0 or next(count) < first_n:
            eagerly(write, eager_tensors(arrays))
        return []

    operands = [tensor for tensor, constant in zip(tensors, constants, strict=True) if constant is None]
    done = host_call(CopyingFunction(name or "tf.Print", call), operands, [], lambda *_: [])[1]
    with tf.control_dependencies([done]):
        return tf.identity(input)


def _outside(format: tf.Operation) -> list[tf.Tensor]:
    """The operands of a StringFormat, as the function being traced has them."""
    captured = {id(inner): outer for outer, inner in format.graph.captures}
    return [captured.get(id(operand), operand) for operand in format.inputs]
