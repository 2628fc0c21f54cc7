"""Sums of tensors over processes: in a function that runs on the IPU, in a graph, and eagerly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from engine.host_functions import PythonFunction
from ipu._internal.compiler.function_trace import in_function_trace
from ipu._internal.config.system import current_system
from ipu._internal.host_functions.calls import host_call
from ipu._internal.processes import host_collectives
from ipu._internal.processes.transport import Transport


def summed(values: Sequence[tf.Tensor], transport: Transport) -> list[tf.Tensor]:
    """The sums of the processes' tensors, all of one dtype in one collective. Replicas must have equal values."""
    results = list(values)
    for dtype in dict.fromkeys(value.dtype for value in values):
        numbers = [number for number, value in enumerate(values) if value.dtype == dtype]
        flat = tf.concat([tf.reshape(values[number], [-1]) for number in numbers], 0)
        parts = tf.split(_summed(flat, transport), [tf.size(values[number]) for number in numbers])
        for number, part in zip(numbers, parts, strict=True):
            results[number] = tf.reshape(part, tf.shape(values[number]))
    return results


def _summed(flat: tf.Tensor, transport: Transport) -> tf.Tensor:
    if not in_function_trace():
        return host_collectives.all_reduce(flat, tf.distribute.ReduceOp.SUM)
    # Replicas whose values differ call one after the other: names distinguish processes with more of them.
    ipus = sum(device.ipus for device in current_system().devices)
    name = f"{tf.compat.v1.get_default_graph().unique_name('workers')} of {ipus} IPUs"

    def call(array: np.ndarray) -> list[np.ndarray]:
        return [transport.all_reduce(array, name=name)]

    spec = tf.TensorSpec(flat.shape, flat.dtype)
    function = PythonFunction("all-reduce of workers", call)
    (total,), _ = host_call(function, [flat], [spec], lambda dy: [_summed(dy, transport)], ordered=False)
    return total
