"""The table of layers and their stages, and below it each stage's parameters and activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_ext.pipelining.calls import Calls, LayerCall
from keras_ext.pipelining.stage_trees import StageTree, flat, of_leaves
from keras_ext.types import KerasModel, Tensor

SEQUENTIAL_WIDTH, WIDTH = 60, 89
SEQUENTIAL_HEADER, HEADER = (
    ("Layer (type)", "Pipeline Stage"),
    ("Layer (type) (node index)", "Input Layers", "Pipeline Stage"),
)
SEQUENTIAL_COLUMNS, COLUMNS = (0.5, 1.0), (0.4, 0.8, 1.0)


def print_summary(
    model: KerasModel,
    calls: Calls,
    trees: Sequence[StageTree],
    line_length: int | None = None,
    print_fn: Callable[[str], Any] | None = None,
) -> None:
    """Prints the stages of a model's calls line by line, in the form of TensorFlow for IPUs.

    The layers of a nested model in several stages follow in a table of their own. For a model that is built there are
    also lines about the stages.
    """
    show = print_fn or print
    width = line_length or (SEQUENTIAL_WIDTH if calls.kind == "sequential" else WIDTH)
    show(f'Model: "{model.name}"')
    show("_" * width)
    show(_row(SEQUENTIAL_HEADER if calls.kind == "sequential" else HEADER, calls.kind == "sequential", width))
    show("=" * width)
    for number, (call, tree) in enumerate(zip(calls, trees, strict=True), start=1):
        _show_call(show, call, tree, calls.kind == "sequential", width)
        show(("=" if number == len(calls) else "_") * width)
    stages = of_leaves(calls, trees)
    if None not in stages and all(leaf.node is not None for leaf in calls.leaves):
        for line in _contents(calls.leaves, [stage for stage in stages if stage is not None]):
            show(line)


def _show_call(show: Callable[[str], Any], call: LayerCall, tree: StageTree, is_sequential: bool, width: int) -> None:
    stage = ", ".join(map(str, sorted(set(flat([tree])), key=str))) if isinstance(tree, tuple) else str(tree)
    title = f"{call.layer.name} ({type(call.layer).__name__})"
    if is_sequential:
        show(_row((title, stage), is_sequential, width))
    else:
        names = [layer.name for layer in call.inbound] or [""]
        show(_row((f"{title} ({call.node_index})", names[0], stage), is_sequential, width))
        for name in names[1:]:
            show(_row(("", name, ""), is_sequential, width))
    if call.inner is None or not isinstance(tree, tuple):
        return
    show("-" * width)
    show(f'Nested Model: "{call.layer.name}"')
    for inner, its_tree in zip(call.inner, tree, strict=True):
        show("-" * width)
        _show_call(show, inner, its_tree, is_sequential, width)


def _row(fields: Sequence[str], is_sequential: bool, width: int) -> str:
    line = ""
    for number, (field, part) in enumerate(zip(fields, SEQUENTIAL_COLUMNS if is_sequential else COLUMNS, strict=True)):
        if number:
            line = line[:-1] + " "
        line = (line + field)[: int(width * part)].ljust(int(width * part))
    return line


def _contents(calls: Sequence[LayerCall], stages: Sequence[int]) -> list[str]:
    """A line for each stage: its parameters, each counted once, and the bytes of its layers' outputs."""
    lines = []
    for stage in range(max(stages) + 1):
        of_stage = [call for call, its_stage in zip(calls, stages, strict=True) if its_stage == stage]
        weights = {id(weight): weight for call in of_stage for weight in getattr(call.layer, "weights", ())}.values()
        tensors = [tensor for call in of_stage for tensor in tf.nest.flatten(call.node.outputs)]
        parameters = sum(tf.TensorShape(weight.shape).num_elements() for weight in weights)
        parameter_bytes = sum(tf.TensorShape(weight.shape).num_elements() * _item_size(weight) for weight in weights)
        for_each = "sample" if any(_batch(tensor) is None for tensor in tensors) else "batch"
        activations = sum(_bytes(tensor) for tensor in tensors)
        lines.append(
            f"Stage {stage}: {parameters:,} parameters ({parameter_bytes:,} bytes), {activations:,} bytes of "
            f"activations for each {for_each}"
        )
    return lines


def _batch(tensor: Tensor) -> int | None:
    return tf.TensorShape(tensor.shape).as_list()[0] if len(tensor.shape) else 1


def _bytes(tensor: Tensor) -> int:
    return math.prod(1 if size is None else size for size in tf.TensorShape(tensor.shape).as_list()) * _item_size(
        tensor
    )


def _item_size(value: Tensor) -> int:
    return np.dtype(tf.as_dtype(value.dtype).as_numpy_dtype).itemsize
