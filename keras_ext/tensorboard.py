"""The callback TensorBoard with `write_graph`: models of a strategy have no tf.function with a graph to write."""

from __future__ import annotations

import functools

import tensorflow as tf

from keras_ext.training import StepFunction
from keras_ext.types import KerasTensorBoard, Logs


def install(callback: type[KerasTensorBoard]) -> None:
    """Wraps a framework's TensorBoard: in the first epoch it writes the graph of a training step of the engine."""
    write, end_epoch = callback._write_keras_model_train_graph, callback.on_epoch_end

    @functools.wraps(write)
    def write_train_graph(self: KerasTensorBoard) -> None:
        function = self.model.train_function
        if not isinstance(function, StepFunction):
            return write(self)
        graph = function.latest_graph()
        if graph is not None:
            with self._train_writer.as_default(), tf.summary.record_if(True):
                tf.summary.graph(graph)

    @functools.wraps(end_epoch)
    def on_epoch_end(self: KerasTensorBoard, epoch: int, logs: Logs = None) -> None:
        # tf_keras calls its batch hooks, which would have written the graph, only for profiles and speeds.
        if self._should_write_train_graph and isinstance(self.model.train_function, StepFunction):
            self._write_keras_model_train_graph()
            self._should_write_train_graph = False
        end_epoch(self, epoch, logs)

    callback._write_keras_model_train_graph = write_train_graph  # type: ignore[method-assign]
    callback.on_epoch_end = on_epoch_end  # type: ignore[method-assign]
