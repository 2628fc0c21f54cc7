"""The table of layers and their stages, and below it what each stage holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

SEQUENTIAL_WIDTH, WIDTH = 60, 89
SEQUENTIAL_HEADER, HEADER = (
    ("Layer (type)", "Pipeline Stage"),
    ("Layer (type) (node index)", "Input Layers", "Pipeline Stage"),
)
SEQUENTIAL_COLUMNS, COLUMNS = (0.5, 1.0), (0.4, 0.8, 1.0)


def print_summary(
    model: Any,
    assignments: Sequence[Any],
    nodes: Sequence[Any],
    is_sequential: bool,
    line_length: int | None = None,
    print_fn: Callable[[str], Any] | None = None,
) -> None:
    """Prints the assignments line by line, in the form of TensorFlow for IPUs.

    With `nodes`, those of the built model's graph in the same order, there are also lines about the stages.
    """
    show = print_fn or print
    width = line_length or (SEQUENTIAL_WIDTH if is_sequential else WIDTH)
    columns = [int(width * part) for part in (SEQUENTIAL_COLUMNS if is_sequential else COLUMNS)]
    show(f'Model: "{model.name}"')
    show("_" * width)
    show(_row(SEQUENTIAL_HEADER if is_sequential else HEADER, columns))
    show("=" * width)
    for number, assignment in enumerate(assignments, start=1):
        for fields in _rows(assignment, is_sequential):
            show(_row(fields, columns))
        show(("=" if number == len(assignments) else "_") * width)
    stages = [assignment.pipeline_stage for assignment in assignments]
    if nodes and all(stage is not None for stage in stages):
        for line in _contents(assignments, nodes, stages):
            show(line)


def _rows(assignment: Any, is_sequential: bool) -> list[tuple[str, ...]]:
    layer, stage = assignment.layer, str(assignment.pipeline_stage)
    title = f"{layer.name} ({type(layer).__name__})"
    if is_sequential:
        return [(title, stage)]
    inbound = [inner.name for inner in _as_list(assignment.inbound_layers)]
    first = inbound[0] if inbound else ""
    return [(f"{title} ({assignment.node_index})", first, stage), *(("", name, "") for name in inbound[1:])]


def _as_list(layers: Any) -> list[Any]:
    return layers if isinstance(layers, list) else [layers]


def _row(fields: Sequence[str], columns: Sequence[int]) -> str:
    line = ""
    for number, (field, end) in enumerate(zip(fields, columns, strict=True)):
        if number:
            line = line[:-1] + " "
        line = (line + field)[:end].ljust(end)
    return line


def _contents(assignments: Sequence[Any], nodes: Sequence[Any], stages: Sequence[int]) -> list[str]:
    """For each stage its parameters, each counted once, and the bytes of what its layers put out."""
    lines = []
    for stage in range(max(stages) + 1):
        weights: dict[int, Any] = {}
        tensors: list[Any] = []
        for assignment, node, its_stage in zip(assignments, nodes, stages, strict=True):
            if its_stage == stage:
                weights.update((id(weight), weight) for weight in getattr(assignment.layer, "weights", ()))
                tensors += tf.nest.flatten(node.outputs)
        parameters = sum(math.prod(weight.shape) for weight in weights.values())
        parameter_bytes = sum(math.prod(weight.shape) * _item_size(weight) for weight in weights.values())
        for_each = "sample" if any(_batch(tensor) is None for tensor in tensors) else "batch"
        activations = sum(_bytes(tensor) for tensor in tensors)
        lines.append(
            f"Stage {stage}: {parameters:,} parameters ({parameter_bytes:,} bytes), {activations:,} bytes of "
            f"activations for each {for_each}"
        )
    return lines


def _batch(tensor: Any) -> int | None:
    return tensor.shape[0] if len(tensor.shape) else 1


def _bytes(tensor: Any) -> int:
    return math.prod(1 if size is None else int(size) for size in tensor.shape) * _item_size(tensor)


def _item_size(value: Any) -> int:
    return np.dtype(tf.as_dtype(value.dtype).as_numpy_dtype).itemsize
