"""The callback TensorBoard with `write_graph`: models of a strategy have no tf.function with a graph to write."""

from __future__ import annotations

import tensorflow as tf

from keras_ext.training import StepFunction
from keras_ext.types import KerasTensorBoard, Logs
from keras_ext.wrapping import Original, wrap


def install(callback: type[KerasTensorBoard]) -> None:
    """Wraps a framework's TensorBoard: in the first epoch it writes the graph of a training step of the engine."""
    wrap(callback, "_write_keras_model_train_graph", _write_train_graph)
    wrap(callback, "on_epoch_end", _end_epoch)


def _write_train_graph(write: Original, callback: KerasTensorBoard) -> None:
    function = callback.model.train_function
    if not isinstance(function, StepFunction):
        return write(callback)
    graph = function.latest_graph()
    if graph is not None:
        with callback._train_writer.as_default(), tf.summary.record_if(True):
            tf.summary.graph(graph)


def _end_epoch(end_epoch: Original, callback: KerasTensorBoard, epoch: int, logs: Logs = None) -> None:
    # tf_keras calls its batch hooks, which would have written the graph, only for profiles and speeds.
    if callback._should_write_train_graph and isinstance(callback.model.train_function, StepFunction):
        callback._write_keras_model_train_graph()
        callback._should_write_train_graph = False
    end_epoch(callback, epoch, logs)
