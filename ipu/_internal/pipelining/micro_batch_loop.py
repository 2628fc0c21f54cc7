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
from ipu._internal.types import Nest


class MicroBatchLoop:
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
        results = tf.while_loop(self._within, self._iteration, [tf.constant(0), count, *inputs], parallel_iterations=1)
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
        number = iteration % count
        is_last = tf.equal(number, count - 1)
        operations: list[Any] = []
        with tf.GradientTape() as tape:
            outputs = self._micro_batch.stages(inputs)
            output = self._micro_batch.optimizer_output(outputs) if self._arguments.training else None
        if output is not None:
            sums = GradientSums(self._arguments, output, gradients_of(output, tape))
            operations.append(sums.accumulate(number, count))
            with tf.control_dependencies(operations):
                operations.append(self._apply(sums, is_last))
            captured = captured_by(output)
            if output.captured_gradient_outfeed is not None:
                scale = 1 if self._arguments.reduction == "sum" else count
                scaled = {tag: value / tf.cast(scale, value.dtype) for tag, value in captured.items()}
                operations.append(_enqueue_sums(output.captured_gradient_outfeed, scaled, [*scaled.values()], is_last))
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
        return _enqueue_sums(queue, tensors, self._arguments.to_sum(tensors), is_last)


def _enqueue_sums(queue: IPUOutfeedQueue, structure: Nest, values: Sequence[tf.Tensor], is_last: tf.Tensor) -> Any:
    """Adds the values of a micro-batch to sums, which are enqueued after the last one, packed as `structure`."""
    sums: Sequence[IPUVariable] = [zeros_variable(value.shape, value.dtype, "ipu_output_sum") for value in values]
    totals = [total.assign_add(value) for total, value in zip(sums, values, strict=True)]

    def enqueue() -> Any:
        done = queue.enqueue(tf.nest.pack_sequence_as(structure, [tf.identity(total) for total in totals]))
        with tf.control_dependencies([done]):
            return tf.group(*(total.assign(tf.zeros_like(total)).op for total in sums))

    return tf.cond(is_last, enqueue, tf.no_op)
