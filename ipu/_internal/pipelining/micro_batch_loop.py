"""A pipeline whose number of micro-batches is a tensor: a loop over micro-batches, an update after the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu._internal.compiler.variables import IPUVariable
from ipu._internal.graphs.variables import zeros_variable
from ipu._internal.name_scopes import in_present_scope
from ipu._internal.pipelining.arguments import PipelineArguments, check_schedule_takes
from ipu._internal.pipelining.captures import captured_by
from ipu._internal.pipelining.gradients import GradientSums, gradients_of
from ipu._internal.pipelining.micro_batch import TracedMicroBatch
from ipu._internal.queues.approval import approved
from ipu._internal.queues.outfeed_queue import IPUOutfeedQueue
from ipu._internal.types import Nest, OptimizerOutput


class TracedMicroBatchLoop:
    """The loop: one micro-batch at a time, as in a sequential schedule."""

    def __init__(self, arguments: PipelineArguments, micro_batch: TracedMicroBatch) -> None:
        self._arguments, self._micro_batch = arguments, micro_batch
        self._apply = in_present_scope(GradientSums.apply)

    def run(self) -> tf.Operation:
        """Builds the loop: its state is the iteration number, the count of micro-batches, and `inputs`."""
        inputs = [tf.convert_to_tensor(value) for value in self._arguments.inputs]
        count = (
            approved(tf.cast(self._arguments.count, tf.int32), self._check)
            * self._arguments.batch_serialization_iterations
        )
        state = [tf.constant(0), count, *inputs]
        results = tf.while_loop(self._within, self._iteration, state, parallel_iterations=1, name="")
        with tf.control_dependencies([results[0]]):
            return tf.no_op()

    def _check(self, counts: np.ndarray) -> None:
        """Checks counts on the host, at run time: raises PipelineCountError for those that the schedule cannot take."""
        arguments = self._arguments
        for count in np.unique(counts):
            check_schedule_takes(int(count), arguments.schedule, arguments.devices, arguments.training)

    def _within(self, iteration: tf.Tensor, count: tf.Tensor, *inputs: tf.Tensor) -> Any:
        return iteration < count * self._arguments.repeat_count

    def _iteration(self, iteration: tf.Tensor, count: tf.Tensor, *inputs: tf.Tensor) -> list[Any]:
        """Traces one micro-batch, and the update after the last one."""
        number = self._micro_batch.number = iteration % count
        is_last = tf.equal(number, count - 1)
        operations: list[Any] = []
        with tf.GradientTape() as tape:
            outputs = self._micro_batch.stages(inputs)
            output = self._micro_batch.optimizer_output(outputs) if self._arguments.training else None
        if output is not None:
            sums = GradientSums(self._arguments, output, gradients_of(output, tape))
            captured = self._captured(output, count)
            operations += [sums.accumulate(number, count), captured.added]
            with tf.control_dependencies(operations):
                operations.append(self._apply(sums, is_last, captured.read))
            operations.append(captured.close(output.captured_gradient_outfeed, is_last, operations[-1:]))
        enqueued = self._micro_batch.enqueued(outputs, output)
        if enqueued is not None:
            operations.append(self._enqueue(enqueued, is_last))
        self._micro_batch.refuse_captures()
        with tf.control_dependencies(operations):
            return [iteration + 1, tf.identity(count), *map(tf.identity, inputs)]

    def _enqueue(self, tensors: Nest, is_last: tf.Tensor) -> Any:
        queue = self._arguments.outfeed_queue
        assert queue is not None
        if not self._arguments.accumulate_outfeed:
            return queue.enqueue(tensors)
        return _Totals(tensors, self._arguments.to_sum(tensors)).close(queue, is_last)

    def _captured(self, output: OptimizerOutput, count: tf.Tensor) -> _Totals:
        """The sums of captured gradients, by tag, reduced over micro-batches as gradients are."""
        captured = captured_by(output)
        if self._arguments.reduction != "sum":
            captured = {tag: value / tf.cast(count, value.dtype) for tag, value in captured.items()}
        return _Totals(captured, tf.nest.flatten(captured))


class _Totals:
    """Sums of tensors over micro-batches, which are variables on the device, packed as a structure of the tensors."""

    def __init__(self, structure: Nest, values: Sequence[tf.Tensor]) -> None:
        self._structure = structure
        self._sums: Sequence[IPUVariable] = [
            zeros_variable(each.shape, each.dtype, "ipu_output_sum") for each in values
        ]
        self.added = tf.group(*(s.assign_add(v, read_value=False) for s, v in zip(self._sums, values, strict=True)))

    def read(self) -> Any:
        """The sums so far."""
        return tf.nest.pack_sequence_as(self._structure, [tf.identity(total) for total in self._sums])

    def close(self, queue: IPUOutfeedQueue | None, is_last: tf.Tensor, after: Sequence[Any] = ()) -> tf.Operation:
        """Enqueues the sums, if there is a queue, and resets them to zero, after the last micro-batch's addition."""
        if not self._sums:
            return tf.no_op()

        def enqueue() -> tf.Operation:
            enqueued = [] if queue is None else [queue.enqueue(self.read())]
            with tf.control_dependencies(enqueued):
                return tf.group(*(total.assign(tf.zeros_like(total), read_value=False) for total in self._sums))

        with tf.control_dependencies([self.added, *after]):
            return tf.cond(is_last, enqueue, tf.no_op)
