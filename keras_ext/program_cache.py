"""The programs of one model and mode: each batch signature is traced and compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.garbage import collector_paused
from engine.partition.accumulation import Accumulation
from engine.partition.pipeline import Pipelining as EnginePipelining
from engine.partition.storage import Storage
from ipu._internal.compiler.accumulation import accumulated
from ipu._internal.compiler.marks import AccumulatorType, marking
from ipu._internal.compiler.processes import processes_of
from ipu._internal.compiler.program import TracedProgram
from ipu._internal.compiler.random_numbers import drawn_by_xla
from ipu._internal.compiler.replication import alone, without_groups
from ipu._internal.compiler.trace import graph_key_of, graph_of, trace_step
from ipu._internal.compiler.value_checks import checking
from ipu._internal.config.system import current_system
from ipu._internal.processes.transport import Transport
from ipu._internal.recent_programs import RecentPrograms
from keras_ext.epochs.batch_types import BatchType
from keras_ext.epochs.feeds import BatchSignature
from keras_ext.keras_traces import KerasTraces
from keras_ext.pipelining.options import ModelPipelining
from keras_ext.types import KerasModel


@dataclass(frozen=True, slots=True)
class Updates:
    """Properties that a step of several batches is compiled for; `metric_variables` is called after tracing.

    With a `transport` gradients and metrics are summed over its processes, too. With `streaming` each micro-batch's
    results are reported while others are under way.
    """

    accumulation: Accumulation
    accumulator_type: AccumulatorType
    pipelining: ModelPipelining | None
    metric_variables: Callable[[], Iterable[Any]] = field(compare=False)
    storage: Storage = Storage()
    streaming: bool = False
    training: bool = False
    transport: Transport | None = None


class ProgramCache:
    """Programs by batch signature, updates and Keras' trace.

    The cache is freed with the function that owns it, which `compile()` drops. It drops the programs used longest ago
    where there are more shapes than it keeps. A program keeps the optimizer that it was traced with, as Keras'
    functions do where `model.optimizer` is replaced.
    """

    def __init__(self) -> None:
        self._programs: dict[tuple[BatchSignature, Updates | None, int], TracedProgram] = {}
        self._by_type: RecentPrograms[tuple[BatchSignature, Updates | None, BatchType], TracedProgram]
        self._by_type = RecentPrograms()
        self._signatures: dict[BatchSignature, None] = {}
        self._traces = KerasTraces()
        self._system_version: int | None = None

    def latest(self) -> TracedProgram | None:
        """The program compiled last; None before the first."""
        return next(reversed(self._programs.values()), None)

    def latest_signature(self) -> BatchSignature | None:
        """The batch signature of the program compiled last; None before the first."""
        return next(reversed(self._signatures), None)

    def other_than(self, signature: BatchSignature) -> BatchSignature | None:
        """The signature of the program compiled last, if there is one but none for `signature`."""
        known = self._signatures  # another thread may replace it meanwhile
        return None if signature in known else next(reversed(known), None)

    def get(
        self,
        signature: BatchSignature,
        batch_type: BatchType,
        model: KerasModel,
        prepare: Callable[[BatchSignature, BatchType], None],
        step: Callable[[Any], Any],
        replicas: int,
        updates: Updates | None = None,
    ) -> TracedProgram:
        """The program of `model`'s `step` for batches of `signature`, which replicas take in turn, compiled on a miss.

        It computes the same as the trace with which Keras would run batches of an iterator of `batch_type`.
        `prepare` is called before a trace. With `updates` a step of the program takes the batches of one update.
        Raises UnsupportedOperation for a step that XLA or the engine cannot compile, ConfigurationError for one that
        has no such updates.
        """
        system_version = current_system().version
        if system_version != self._system_version:
            self._programs.clear()
            self._by_type.clear()
            self._signatures = {}
            self._system_version = system_version
        program = self._by_type.get((signature, updates, batch_type))
        if program is None:
            with collector_paused():
                prepare(signature, batch_type)
                program = self._traced(signature, batch_type, model, step, replicas, updates)
            if self._by_type.add((signature, updates, batch_type), program):
                kept = set(map(id, self._by_type.values()))
                self._programs = {key: each for key, each in self._programs.items() if id(each) in kept}
            self._signatures = {known: None for known, _, _ in self._programs}
        return program

    def _traced(
        self,
        signature: BatchSignature,
        batch_type: BatchType,
        model: KerasModel,
        step: Callable[[Any], Any],
        replicas: int,
        updates: Updates | None,
    ) -> TracedProgram:
        number = self._traces.number(signature, batch_type)
        program = self._programs.get((signature, updates, number))
        if program is None:
            with self._traces.traced_as(number), drawn_by_xla.replaced_by(bool(model.jit_compile)):
                program = self._of_other_trace(signature, step, updates)
                if program is None:
                    program = compile_step(step, signature, replicas, updates)
            self._traces.note_traced(number, model)
            self._programs[signature, updates, number] = program
        return program

    def _of_other_trace(
        self, signature: BatchSignature, step: Callable[[Any], Any], updates: Updates | None
    ) -> TracedProgram | None:
        """The program of another trace with the same graph: Keras would trace again, but to the same result."""
        others = [program for key, program in self._programs.items() if key[:2] == (signature, updates)]
        if updates is not None or not others:
            return None
        with checking.replaced_by(True):
            key = graph_key_of(*_flat(step, signature))
        return next((program for program in others if program.graph_key == key), None)


def compile_step(
    step: Callable[[Any], Any], signature: BatchSignature, replicas: int, updates: Updates | None = None
) -> TracedProgram:
    """Traces a step that takes one nested batch, and compiles it, or with `updates` the step of one update.

    Raises as `ProgramCache.get`.
    """
    with checking.replaced_by(True):
        return _compile_step(*_flat(step, signature), replicas, updates)


def _compile_step(
    flat_step: Callable[..., Any], specs: Sequence[tf.TensorSpec], replicas: int, updates: Updates | None
) -> TracedProgram:
    if updates is None:
        return TracedProgram(without_groups(alone(trace_step(flat_step, specs), replicas)))
    if updates.streaming and (updates.training or updates.transport is not None):
        try:
            return _compile_updates(flat_step, specs, replicas, updates)
        except ConfigurationError:
            # Logs that depend on updated variables exist once for each update.
            updates = replace(updates, streaming=False)
    return _compile_updates(flat_step, specs, replicas, updates)


def _compile_updates(
    flat_step: Callable[..., Any], specs: Sequence[tf.TensorSpec], replicas: int, updates: Updates
) -> TracedProgram:
    # Here, as a step without accumulation and stages runs none of it.
    from ipu._internal.compiler.pipelining import InferencePipelineProgram, PipelineProgram
    from ipu._internal.pipelining.streaming import (
        Stream,
        Streamed,
        StreamingPipelineProgram,
        StreamingProgram,
        StreamingTrainingPipeline,
    )

    traceable: Callable[..., Any] = flat_step
    if updates.streaming:
        last = None if updates.pipelining is None else len(updates.pipelining.devices) - 1
        traceable = Streamed(flat_step, last, updates.training)
    with marking(updates.accumulator_type) as marks:
        traced = trace_step(traceable, specs)
        processes = processes_of(traced.module, updates.transport)
        traced = alone(traced, replicas, processes)
    made = updates.accumulation
    streaming: dict[str, Any] = {}
    if isinstance(traceable, Streamed) and traceable.enqueues:
        streaming["stream"] = Stream(traceable.queue, made.micro_batches, made.replicas)
    once, random = list(marks.updated_once.values()), list(marks.random.values())
    kinds: dict[str, Any] = {"metrics": list(updates.metric_variables()), "random": random, "processes": processes}
    if updates.pipelining is None:
        shards = made.replicas if updates.storage.replicated_optimizer_state_sharding else 1
        traced = replace(traced, storage=updates.storage, state_shards=shards)
        traced = traced if updates.training else without_groups(traced)
        repeated = accumulated(traced, made, once=once, training=updates.training, **kinds)
        return (StreamingProgram if streaming else TracedProgram)(repeated, **streaming)
    traced = without_groups(traced, pipelined=True)
    pipelining = engine_pipelining(updates.pipelining, made)
    if marks.updated_once:
        training = StreamingTrainingPipeline if streaming else PipelineProgram
        return training(traced, pipelining, once=once, **kinds, **streaming)
    inference = StreamingPipelineProgram if streaming else InferencePipelineProgram
    return inference(traced, pipelining, **kinds, **streaming)


def graph_of_step(step: Callable[[Any], Any], signature: BatchSignature) -> tf.Graph:
    """TensorFlow's graph of a step that takes one nested batch, traced for each call."""
    return graph_of(*_flat(step, signature))


def _flat(step: Callable[[Any], Any], signature: BatchSignature) -> tuple[Callable[..., Any], list[tf.TensorSpec]]:
    def flat_step(*arrays: tf.Tensor) -> Any:
        return step(signature.layout.unflatten(iter(arrays)))

    return flat_step, [
        tf.TensorSpec(shape, tf.as_dtype(dtype))
        for shape, dtype in zip(signature.shapes, signature.dtypes, strict=True)
    ]


def engine_pipelining(pipelining: ModelPipelining, accumulation: Accumulation) -> EnginePipelining:
    """The engine's form of a model's pipelining."""
    return EnginePipelining(
        len(pipelining.devices),
        accumulation.steps,
        pipelining.schedule,
        pipelining.devices,
        accumulation.replicas,
        accumulation.reduction,
        pipelining.recomputation_mode,
        # Each stage has layers, as checked, but these may compute nothing (a Dropout at inference, a Flatten).
        empty_stages=True,
        storage=pipelining.storage,
        options=pipelining.options,
    )
