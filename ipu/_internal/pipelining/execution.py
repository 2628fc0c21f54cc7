"""A pipeline as it is traced: a loop over its repetitions, whose body is one micro-batch with marks on the summands.

When the function is compiled, the engine unrolls the body into all micro-batches in the order of the schedule. If the
number of micro-batches is an argument of the function, each value has a program and a schedule. If it is computed on
the device, there is a loop over micro-batches instead (ipu/_internal/pipelining/micro_batch_loop.py).
"""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf

from engine.partition.pipeline import Pipelining
from engine.partition.traced_pipelines import pipeline_config
from ipu._internal.compiler.baking import want_values
from ipu._internal.compiler.device_calls import require_trace
from ipu._internal.compiler.marks import mark_pipeline_iteration, mark_total, mark_updated_once
from ipu._internal.compiler.tokens import chains_between, own_chain
from ipu._internal.compiler.traced_pipelines import note_ipus
from ipu._internal.config.system import current_system
from ipu._internal.name_scopes import in_present_scope, outside_gradient_scopes
from ipu._internal.operators.gradient_capture import captures_seen
from ipu._internal.pipelining.arguments import PipelineArguments
from ipu._internal.pipelining.captures import captured_by
from ipu._internal.pipelining.gradients import apply_marked, gradients_of
from ipu._internal.pipelining.micro_batch import TracedMicroBatch, in_stage, stage_chain
from ipu._internal.pipelining.micro_batch_loop import TracedMicroBatchLoop
from ipu._internal.pipelining.options import kind_of
from ipu._internal.types import Nest

UPDATE_CHAIN = "update"


def run_pipeline(arguments: PipelineArguments, output_type: type, name: str) -> tf.Operation:
    """The operation that runs all micro-batches of all repetitions, in the function being traced."""
    require_trace("a pipeline")
    micro_batch = TracedMicroBatch(arguments, output_type)
    note_ipus(arguments.devices)
    if tf.is_tensor(arguments.count):
        want_values("gradient_accumulation_count")
    loop = TracedMicroBatchLoop if tf.is_tensor(arguments.count) else _Scheduled
    pipeline = loop(arguments, micro_batch)
    with outside_gradient_scopes(), tf.name_scope(name):
        return pipeline.run()


class _Scheduled:
    """A pipeline with a schedule."""

    def __init__(self, arguments: PipelineArguments, micro_batch: TracedMicroBatch) -> None:
        self._arguments, self._micro_batch = arguments, micro_batch
        self._apply = in_present_scope(apply_marked)
        self._reduce = in_present_scope(self._reduced)

    def run(self) -> tf.Operation:
        """Builds the loop, whose state is the iteration number and `inputs`; returns an operation after it."""
        inputs = [tf.convert_to_tensor(value) for value in self._arguments.inputs]
        chains = [*(stage_chain(number) for number in range(len(self._arguments.stages))), UPDATE_CHAIN]
        with chains_between(chains):
            results = tf.while_loop(
                lambda iteration, *_: iteration < self._arguments.repeat_count,
                self._iteration,
                [tf.constant(0), *inputs],
                parallel_iterations=1,
                name="",
            )
        with tf.control_dependencies([results[0]]):
            return tf.no_op()

    def _iteration(self, iteration: tf.Tensor, *inputs: tf.Tensor) -> list[Any]:
        """Traces one micro-batch, with the update that follows the last one."""
        arguments, micro_batch = self._arguments, self._micro_batch
        operations: list[Any] = []
        with tf.GradientTape() as tape:
            outputs = micro_batch.stages(inputs)
            output = micro_batch.optimizer_output(outputs) if arguments.training else None
        enqueued = micro_batch.enqueued(outputs, output)
        if enqueued is not None:
            operations.append(self._enqueue(enqueued))
        if output is not None:
            pairs = gradients_of(output, tape)
            captured = self._reduce(captured_by(output))
            with own_chain(UPDATE_CHAIN), captures_seen(captured) if captured else contextlib.nullcontext():
                operations += self._apply(output, pairs, arguments.accumulator_type)
                if output.captured_gradient_outfeed is not None:
                    operations.append(output.captured_gradient_outfeed.enqueue(captured))
        micro_batch.refuse_captures()
        config = pipeline_config(self._pipelining(), arguments.training)
        with tf.control_dependencies(operations):
            same = mark_pipeline_iteration(iteration, config)
            return [mark_updated_once(same + 1), *map(tf.identity, inputs)]

    def _enqueue(self, tensors: Nest) -> tf.Operation:
        """Enqueues the tensors, or after the last micro-batch their sums."""
        queue = self._arguments.outfeed_queue
        assert queue is not None
        with in_stage(self._micro_batch.last_stage):
            if not self._arguments.accumulate_outfeed:
                return queue.enqueue(tensors)
            sums = [mark_total(tensor) for tensor in self._arguments.to_sum(tensors)]
        with own_chain(UPDATE_CHAIN):
            return queue.enqueue(tf.nest.pack_sequence_as(tensors, sums))

    def _reduced(self, captured: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The captured gradients reduced over the micro-batches, as gradients are."""
        totals = {tag: mark_total(value) for tag, value in captured.items()}
        if self._arguments.reduction == "sum":
            return totals
        return {tag: total / tf.cast(self._arguments.count, total.dtype) for tag, total in totals.items()}

    def _pipelining(self) -> Pipelining:
        arguments = self._arguments
        allowed = current_system().config.allow_recompute
        return Pipelining(
            stages=len(arguments.stages),
            steps=arguments.count * arguments.batch_serialization_iterations,
            schedule=kind_of(arguments.schedule),
            device_mapping=arguments.devices,
            reduction=arguments.reduction,
            recomputation_mode=arguments.recomputation_mode.name if allowed else None,
            option="gradient_accumulation_count",
            empty_stages=True,
            storage=arguments.storage,
            options=arguments.options,
        )
