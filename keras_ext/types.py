"""Types of models, layers and batches, as TensorFlow and Keras have no stubs; protocols of what both Keras share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import tensorflow as tf

Nest: TypeAlias = Any
"""A leaf (tensor, array, spec, scalar), or a list, tuple or dictionary of nests, as `tf.nest` takes."""
Batch: TypeAlias = Nest
"""x, (x,), (x, y) or (x, y, sample_weight): nests of tensors, arrays or specs whose first axis is the batch's."""
Logs: TypeAlias = Nest
"""The report of a step to callbacks: scalars by the names of metrics; of `predict` the outputs; None before a step."""
Tensor: TypeAlias = Any
"""A tensor, a symbolic tensor of either Keras, a variable or an array: has `shape` and `dtype`."""
Config: TypeAlias = Any
"""The result of `get_config`: a JSON-serialisable dictionary, but for models with a form of their own."""


class KerasNode(Protocol):
    """A call of a layer in a graph. Keras 3 has `arguments` and `input_tensors`, tf_keras the others."""

    arguments: Any
    input_tensors: Sequence[Tensor]
    keras_inputs: Sequence[Tensor]
    _flat_arguments: Sequence[Nest]


class KerasLayer(Protocol):
    """A layer, a model among them; in Keras 3 also an operation of `keras.ops`."""

    name: str
    built: bool
    _inbound_nodes: list[Any]

    def _flatten_layers(self, recursive: bool = True, include_self: bool = True) -> Iterable[Any]:
        """The layer and those inside it."""


class KerasOptimizer(Protocol):
    """An optimizer of any generation."""

    _trainable_variables: Sequence[Tensor]


class KerasModel(KerasLayer, Protocol):
    """A model; a functional model is a graph. Attributes that only some models have are read by `getattr`."""

    layers: Sequence[Any]
    inputs: Nest
    outputs: Nest
    input: Nest
    output: Nest
    optimizer: Any
    metrics: Sequence[Any]
    run_eagerly: bool
    jit_compile: bool | None
    distribute_strategy: tf.distribute.Strategy

    def call(self, inputs: Nest, *, training: bool | None = None, mask: Nest = None) -> Nest:
        """The model's outputs for `inputs`."""

    def predict_step(self, data: Batch) -> Nest:
        """The outputs of `predict` for one batch."""

    def get_config(self) -> dict[str, Config]:
        """The configuration the model can be rebuilt from. Raises NotImplementedError for a model that has none."""


class KerasProgbar(Protocol):
    """A progress bar of `target` steps."""

    target: int | None
    verbose: int

    def update(self, current: int, values: Nest = None, finalize: bool | None = None) -> None:
        """Draws the bar at step `current`."""


class KerasCallbackList(Protocol):
    """The callbacks of a run; `_ipu_*` belong to the execution that is running."""

    _ipu_execution: Any
    _ipu_first_step: int


class KerasTensorBoard(Protocol):
    """The callback TensorBoard."""

    model: Any
    _train_writer: tf.summary.SummaryWriter
    _should_write_train_graph: bool

    def _write_keras_model_train_graph(self) -> None:
        """Writes the graph of a training step."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Writes the logs of an epoch."""
