"""The functions Keras calls for each execution: they feed a program, run it and unpack its results."""

from __future__ import annotations

import logging
import threading
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from engine.errors import IPUError, OutOfTileMemory
from engine.partition.accumulation import Accumulation
from ipu._internal.compiler.function_trace import scaling_loss, step_trace
from ipu._internal.compiler.program import TracedProgram
from ipu._internal.config.system import current_system
from ipu._internal.operators.gradient_capture import GradientCaptureContext
from ipu._internal.profiling import failures
from ipu._internal.recent_programs import RecentPrograms
from keras_ext.accumulation import accumulation_of, accumulation_with, accumulator_type_of, storage_of
from keras_ext.activations import notice_large_activations
from keras_ext.attempts import note_taken
from keras_ext.callback_thread import CallbackThread
from keras_ext.epochs.batch_types import BatchType, ListOf, OfSpecs, batch_type
from keras_ext.epochs.feeds import BatchSignature, BatchSource, grouped, signature_of, specs_of, take, together
from keras_ext.epochs.limited import unlimited
from keras_ext.epochs.structure import flatten
from keras_ext.framework import Framework, Mode
from keras_ext.model_copies import as_traced_before
from keras_ext.pipelining.batch_specs import batch_specs
from keras_ext.pipelining.micro_batches import replicas_of_pipeline
from keras_ext.pipelining.options import ModelPipelining, accumulator_type_of_pipeline, pipelining_of
from keras_ext.pipelining.outfeed import begin_execution
from keras_ext.pipelining.schedules import note_pipeline
from keras_ext.pipelining.traced_step import check_batches_of_pipeline, inference_micro_batches, traced_step
from keras_ext.plain_steps import PlainStep, falls_back
from keras_ext.predictions import all_rows, as_result, joined_rows
from keras_ext.processes import transport_of_step
from keras_ext.program_cache import ProgramCache, Updates, graph_of_step
from keras_ext.queue_options import buffer_depth
from keras_ext.queue_report import queue_report
from keras_ext.replication import replicas_of
from keras_ext.runs import steps_are_chosen
from keras_ext.step_callbacks import StepCallbacks, note_steps, take_callbacks
from keras_ext.types import Batch, KerasModel, Logs, Nest
from keras_ext.updates import as_updates

logger = logging.getLogger("ipu")
_noticed: weakref.WeakSet[Any] = weakref.WeakSet()


class Asked(NamedTuple):
    """The model's options, read once in each execution. `accumulation` is None in inference: it depends on the data."""

    pipelining: ModelPipelining | None
    accumulation: Accumulation | None


class StepFunction:
    """Runs the steps of one mode of one model, to which it has a weak reference so that the model can be freed."""

    def __init__(self, framework: Framework, model: KerasModel, mode: Mode) -> None:
        self.framework = framework
        self._model = weakref.ref(model)
        self._mode = mode
        self._programs = ProgramCache()
        method = framework.step_of(model, mode)
        self._is_bound = getattr(method, "__self__", None) is model
        self._method = method.__func__ if self._is_bound else method  # type: ignore[union-attr]
        self._plain: RecentPrograms[tuple[BatchSignature, int], PlainStep] = RecentPrograms()
        self._tracing = threading.RLock()
        self.calls: int = getattr(getattr(model, f"{mode}_function", None), "calls", 0)
        """Number of runs of a program, including those of the function that this one replaces."""

    @property
    def model(self) -> Any:
        """The model; it owns this function, so it is alive whenever Keras calls."""
        model = self._model()
        assert model is not None
        return model

    def latest_program(self) -> TracedProgram | None:
        """The program that was compiled last, None before the first."""
        return self._programs.latest()

    def latest_graph(self) -> tf.Graph | None:
        """TensorFlow's graph of a step, for batches of the program that was compiled last; None before the first."""
        signature = self._programs.latest_signature()
        return None if signature is None else graph_of_step(self._step, signature)

    def program_for(self, x: Nest = None, y: Nest = None, batch_size: int | None = None) -> TracedProgram:
        """The program for batches of the shapes of `x` and `y`, compiled if need be, and not run.

        They are arrays or `tf.TensorSpec`s; None is inferred from the model. Raises ConfigurationError for shapes
        that are not known, and the compiler's errors.
        """
        model = self.model
        batch = batch_specs(model, x, y, batch_size, self._mode != "predict")
        if self._mode != "predict" or not model.built:  # the loss has no targets then
            self.framework.prepare(model, self._mode, batch)
        specs, layout = flatten(batch, lambda spec: spec)
        signature, asked = signature_of(layout, specs), self._ask()
        if asked.pipelining is None or asked.accumulation is not None:
            return self.program(BatchSource(signature, 1, []), asked=asked)
        # Each replica's batches of an execution of `evaluate` and `predict` are the micro-batches of a pipeline.
        steps = self.framework.steps_per_execution(model) * replicas_of_pipeline(model, asked.pipelining)
        source = BatchSource(signature, steps, [])
        check_batches_of_pipeline(model, asked.pipelining, [source])
        return self.program(source, asked=asked)

    def program(
        self,
        batches: BatchSource,
        callbacks: StepCallbacks | None = None,
        asked: Asked | None = None,
        batch_type: BatchType = None,
    ) -> TracedProgram:
        """The program for these batches, and for callbacks of each step if there are any; compiled if need be.

        Raises OutOfTileMemory for one that does not fit, and the compiler's errors.
        """
        model = self.model
        known = self._programs.other_than(batches.signature)
        if known is not None:
            _notice_reload(model, known, batches.signature)
        updates = self._updates(batches, callbacks is not None, asked or self._ask())
        try:
            replicas = replicas_of(model.distribute_strategy)
            with self._tracing:  # two threads that need one program compile it once
                program = self._programs.get(
                    batches.signature, batch_type, model, self._prepare, self._step, replicas, updates
                )
        except OutOfTileMemory as error:
            failures.call_listeners(model, error)
            raise
        if updates is not None and updates.pipelining is not None:
            note_pipeline(model, self._mode, program)
        return program

    def _program_or_plain(
        self, batches: BatchSource, callbacks: StepCallbacks | None, asked: Asked, batch_type: BatchType
    ) -> TracedProgram | PlainStep:
        """The program for these batches, or a step of plain Keras where the engine refuses them and Keras may run them.

        A plain step takes one batch, so it cannot make an update of several, and it runs no callbacks for each step.
        """
        together = 1 if asked.accumulation is None else asked.accumulation.micro_batches
        if callbacks is not None or asked.pipelining is not None or together > 1:
            return self.program(batches, callbacks, asked, batch_type)
        key = batches.signature, current_system().version
        with self._tracing:
            known = self._plain.get(key)
        if known is not None:
            return known
        try:
            return self.program(batches, None, asked, batch_type)
        except IPUError as error:
            outside = falls_back.value(self.model, error)
            if outside is None:
                raise
        with self._tracing:
            plain = self._plain.get(key)
            if plain is None:
                plain = PlainStep(lambda data: self._framework_step(self.model, self._mode, data), outside)
                self._plain.add(key, plain)
        return plain

    def _prepare(self, signature: BatchSignature, batch_type: BatchType) -> None:
        """Builds what a step needs before it is traced; inference builds layers in its trace, as it has no targets."""
        if self._mode != "predict":
            self.framework.prepare(self.model, self._mode, specs_of(signature), batch_type)

    def _replicas(self) -> int:
        return replicas_of(self.model.distribute_strategy)

    def _step(self, data: Batch) -> Any:
        """Traces one step."""
        if self._mode == "train" and pipelining_of(self.model, True) is None:
            notice_large_activations(self.model, data)
        transport = transport_of_step(self.model, self._mode)
        replicas = self._replicas() * (1 if transport is None else transport.size)
        optimizer = self.framework.optimizer(self.model)
        scaling = scaling_loss(getattr(optimizer, "dynamic", hasattr(optimizer, "dynamic_growth_steps")))
        with GradientCaptureContext(), as_traced_before(self.model), step_trace(replicas), scaling:
            return traced_step(self.model, self._mode, data, self._framework_step)

    def _framework_step(self, model: KerasModel, mode: Mode, data: Batch) -> Any:
        method = self._method
        if method is not None and self._is_bound:
            method = types.MethodType(method, model)
        return self.framework.step(model, mode, data, method)

    def _ask(self) -> Asked:
        model, training = self.model, self._mode == "train"
        pipelining = pipelining_of(model, training)
        return Asked(pipelining, accumulation_with(model, pipelining) if training else None)

    def _updates(self, batches: BatchSource, observed: bool, asked: Asked) -> Updates | None:
        """The updates for which a step of the program takes several batches; None where it takes one."""
        model, framework, training = self.model, self.framework, self._mode == "train"
        pipelining, accumulation = asked
        if accumulation is None:
            accumulation = inference_micro_batches(model, pipelining, batches)
        transport = transport_of_step(model, self._mode)
        if accumulation.micro_batches == 1 and pipelining is None and transport is None:
            return None
        accumulator_type = (accumulator_type_of if pipelining is None else accumulator_type_of_pipeline)(model)
        metrics, storage = (lambda: framework.metric_variables(model)), storage_of(model)
        # Without stages and accumulation an update is one step of all replicas, with the results of the engine's step.
        streaming = observed and (pipelining is not None or (training and accumulation.steps > 1))
        return Updates(accumulation, accumulator_type, pipelining, metrics, storage, streaming, training, transport)

    def _logs(self, program: TracedProgram, results: list[np.ndarray]) -> Any:
        """The logs of a step for callbacks, given its results with an axis of the engine's steps."""
        raise NotImplementedError

    def _run_reporting(
        self, program: TracedProgram, batches: BatchSource, callbacks: StepCallbacks
    ) -> tuple[list[np.ndarray], bool]:
        """Runs steps while a thread calls their callbacks; returns the steps' results, and whether a callback stopped.

        Raises what a callback raises, after a whole step.
        """
        if self._mode == "train" and not program.streams:  # an update is one step of the engine
            steps, together = accumulation_of(self.model).steps, 1
        else:  # a batch is
            steps, together = 1, self._replicas()
        thread = CallbackThread(
            lambda results: callbacks.report(self._logs(program, results), steps),
            depth=buffer_depth(self.model) or 0,
            together=together,
        )
        try:
            results = program.run_observed(batches.steps, batches.feeds, thread)
        except BaseException:
            thread.abandon()
            raise
        thread.finish()
        queue_report(self.model, self._mode).outfeed_waits += thread.waits
        return results, thread.stopped


def _notice_reload(model: KerasModel, known: BatchSignature, new: BatchSignature) -> None:
    """Warns once for each model that the configured chip would have to reload its program; here it is free."""
    if model in _noticed or str(known) == str(new) or not current_system().configured:
        return
    _noticed.add(model)
    logger.warning(
        "Batches of another shape (%s after %s) need a second program. It works here, but a chip would have to reload "
        "its program each time. Choose a batch size that divides the number of samples, or drop the remainder.",
        new,
        known,
    )


class EpochFunction(StepFunction):
    """The train or test function: runs up to `steps_per_execution` steps, returns the last logs."""

    _reported: tuple[Any, object] | None = None
    _failed: tuple[Iterator[Any], Exception] | None = None
    """An iterator, and its error for the next execution, in which Keras with one step in each would raise it."""

    def has_reported(self, logs: Logs) -> bool:
        """Whether a step returned these logs, and the metrics' variables have not changed since."""
        if self._reported is None or self._reported[0] is not logs:
            return False
        variables = self.framework.metric_variables(self.model)
        return all(getattr(variable, "written_by", None) is self._reported[1] for variable in variables)

    def __call__(self, iterator: Iterator[Any]) -> Any:
        """Feeds steps from an iterator of batches; raises StopIteration when it has none left."""
        self._reported = None
        callbacks = take_callbacks(self.model, self._mode)
        self._raise_failed(iterator)
        with queue_report(self.model, self._mode).fetching():
            try:
                taken = take(iterator, self.framework.steps_per_execution(self.model))
            except StopIteration:
                self._build_without_batches(batch_type(iterator))
                raise
        note_taken(taken)
        note_steps(self.model, self._mode, sum(batches.steps for batches in taken) // self._replicas())
        asked = self._ask()
        if asked.accumulation is not None:
            taken = as_updates(taken, asked.accumulation)
        else:
            check_batches_of_pipeline(self.model, asked.pipelining, taken, self._programs.other_than)
        begin_execution(self.model, self._mode)
        stopped = False
        kind = batch_type(iterator)
        for batches in taken:
            program = self._program_or_plain(batches, callbacks, asked, kind)
            if isinstance(program, PlainStep):
                logs = program(batches)[-1]
                continue
            if callbacks is None:
                results = program.run(batches.steps, batches.feeds)
            else:
                of_steps, stopped = self._run_reporting(program, batches, callbacks)
                results = [result[-1] for result in of_steps]
            self.calls += 1
            logs = program.pack([_log(result) for result in results])
            if stopped:
                break
        together = 1 if asked.accumulation is None else asked.accumulation.micro_batches
        latest = None if isinstance(program, PlainStep) else program.latest_run
        if callbacks is None and asked.pipelining is None and together == 1 and latest is not None:
            self._reported = logs, latest
        if taken[-1].error is not None and not stopped:
            self._failed = unlimited(iterator), taken[-1].error
            if not steps_are_chosen.value:
                self._raise_failed(iterator)
        return logs

    def _build_without_batches(self, kind: BatchType) -> None:
        """Builds model and optimizer for data without a batch, by a trace as Keras 3 makes before it reads them."""
        if self.calls or not isinstance(kind, OfSpecs):
            return
        signature = signature_of(kind.layout, kind.specs)
        self._prepare(signature, kind)
        optimizer = self.framework.optimizer(self.model)
        if self._mode == "train" and not getattr(optimizer, "built", True):
            graph_of_step(self._step, signature)

    def _raise_failed(self, iterator: Iterator[Any]) -> None:
        """Raises the error with which the data ended in the last execution."""
        failed, self._failed = self._failed, None
        if failed is not None and failed[0] is unlimited(iterator):
            raise failed[1]

    def _logs(self, program: TracedProgram, results: list[np.ndarray]) -> Any:
        return program.pack([_log(result[-1]) for result in results])


class PredictFunction(StepFunction):
    """The predict function: takes batches, returns the outputs of all of them, concatenated."""

    def __call__(self, data: Iterable[Batch]) -> Any:
        """The structure of the model's outputs, as tensors with the rows of all batches."""
        given = list(data)
        program, columns = self._run(given, self._type_of(given))
        return program.pack([as_result(column) for column in columns])

    def arrays(self, data: list[Any]) -> Any:
        """The outputs as NumPy arrays, for callers that need no tensors."""
        program, columns = self._run(data, None)
        return program.pack(columns)

    def _type_of(self, data: list[Any]) -> BatchType:
        """The type of batches that Keras gives to a traced function together."""
        return None if len(data) == 1 or steps_are_chosen.value else ListOf(len(data))

    def _run(self, data: list[Any], batch_type: BatchType) -> tuple[TracedProgram, list[Any]]:
        parts: list[list[np.ndarray]] = []
        note_steps(self.model, self._mode, len(data))
        callbacks = take_callbacks(self.model, self._mode)
        stopped = False
        of_replicas = bool(data) and isinstance(data[0], BatchSource)
        taken = [together(data)] if of_replicas else grouped(data)
        note_taken(taken)
        asked = self._ask()
        check_batches_of_pipeline(self.model, asked.pipelining, taken, self._programs.other_than)
        for batches in taken:
            program = self._program_or_plain(batches, callbacks, asked, batch_type)
            if isinstance(program, PlainStep):
                of_steps = [tf.nest.flatten(outputs) for outputs in program(batches)]
                parts.append([np.concatenate(column) for column in zip(*of_steps, strict=True)])
                continue
            if callbacks is None:
                results = program.run(batches.steps, batches.feeds, outputs="all")
            else:
                results, stopped = self._run_reporting(program, batches, callbacks)
            self.calls += 1
            parts.append([all_rows(result) for result in results])
            if stopped:
                break
        known = self.latest_program()  # outputs have one structure
        assert known is not None
        return known, [joined_rows(list(column)) for column in zip(*parts, strict=True)]

    def _logs(self, program: TracedProgram, results: list[np.ndarray]) -> Any:
        return {"outputs": program.pack([tf.convert_to_tensor(all_rows(result)) for result in results])}


def _log(result: np.ndarray) -> Any:
    """A log for Keras, which converts scalars to Python numbers; larger arrays reach callbacks as tensors."""
    return result if result.ndim == 0 else tf.convert_to_tensor(result)
