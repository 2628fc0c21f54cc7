"""Turns a traced step into a pipeline, and runs it: a caller's step is one update, or one micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engine.partition.pipeline import Pipelined, Pipelining, pipeline
from engine.partition.processes import Processes
from engine.partition.shared_variables import check_shared_variables
from engine.partition.stage_options import StageOptions
from engine.runtime.feeds import RowFeed
from ipu._internal.compiler.accumulation import ReplicaRows, variable_numbers
from ipu._internal.compiler.fit import certainly_fits, check_estimate
from ipu._internal.compiler.program import TracedProgram, build_program, labels_by_number
from ipu._internal.compiler.trace import TracedStep
from ipu._internal.config.chip import configured_assumptions, configured_target

if TYPE_CHECKING:
    from engine.profile.options import Assumptions
    from engine.profile.pipeline_estimate import Build
    from engine.profile.program_estimate import Estimate
    from engine.program.program import Label
    from engine.program.program import Program as EngineProgram
    from engine.runtime.observer import Observer, RunningCall
    from engine.target import Target


class PipelineProgram(TracedProgram):
    """A training step traced with marks as a pipeline: a step is one update.

    `pipelined` has the executed schedule, and the values stored between stages. `once` are the TensorFlow
    variables of the optimizers, `metrics` those of metrics besides the ones that are summed on read, `random` those of
    random generators, `processes` as for `repeat`. Raises ConfigurationError, StepCountError and UnsupportedOperation
    as `engine.partition.pipeline.pipeline`.
    """

    _training = True

    def __init__(
        self,
        traced: TracedStep,
        pipelining: Pipelining,
        *,
        once: Iterable[Any] = (),
        metrics: Iterable[Any] = (),
        random: Iterable[Any] = (),
        processes: Processes | None = None,
    ) -> None:
        numbers = variable_numbers(traced)
        self.labels = labels_by_number(traced)
        self.replicas, self.storage = pipelining.replicas, pipelining.storage
        self.pipelined = pipeline(
            *(traced.module, traced.roles, pipelining),
            once=numbers.of(once),
            metrics=numbers.of(metrics) | numbers.summed,
            random=numbers.of(random),
            names=numbers.names,
            processes=processes,
            training=self._training,
        )
        check_shared_variables(self.pipelined, numbers.names)
        super().__init__(_with_rows(_stored(traced, pipelining), self.pipelined, pipelining.replicas))

    def _check_fit(self, program: EngineProgram) -> None:
        """Raises OutOfTileMemory for a pipeline whose stages do not fit their IPUs."""
        # Options of a stage may give its plans a larger part of tile memory than `certainly_fits` assumes.
        if self.pipelined.pipelining.options == StageOptions() and certainly_fits(program):
            return
        check_estimate(estimator_of_pipeline(self, configured_assumptions())(configured_target()), self.source)


class InferencePipelineProgram(PipelineProgram):
    """A step without an update as a pipeline. A caller's step is a micro-batch; callers run whole executions."""

    _training = False

    @property
    def _micro_batches(self) -> int:
        return self.pipelined.pipelining.steps * self.replicas

    def run(self, steps: int, feeds: list[RowFeed], outputs: Literal["last", "all"] = "last") -> list[np.ndarray]:
        """The results of `steps` micro-batches, as from a program that runs them one by one."""
        results = [_flat(result) for result in super().run(steps // self._micro_batches, feeds, "all")]
        return results if outputs == "all" else [result[-1] for result in results]

    def run_observed(self, steps: int, feeds: list[RowFeed], observer: Observer) -> list[np.ndarray]:
        """Runs steps with an observer: micro-batches are complete when their execution is."""
        each = _EachMicroBatch(observer, self._micro_batches)
        return [_flat(result) for result in super().run_observed(steps // self._micro_batches, feeds, each)]


def estimator_of_pipeline(program: PipelineProgram, assumptions: Assumptions) -> Callable[[Target], Estimate]:
    """A function that returns the cost report of a pipeline on all its IPUs, for a chip."""
    assumptions = program.with_storage(assumptions)
    pipelined, labels = program.pipelined, program.labels
    return estimator_of_stages(pipelined, program.constants, build_program, program.replicas, assumptions, labels)


def estimator_of_stages(
    made: Pipelined,
    constants: Mapping[int, np.ndarray],
    build: Build,
    replicas: int,
    assumptions: Assumptions,
    labels: Mapping[int, Label] = MappingProxyType({}),
) -> Callable[[Target], Estimate]:
    """Makes the estimator of a pipelined module; `build` compiles a part with the values of its `constants`.

    `labels` are the labels of variables, by the numbers of the module's parameters.
    """
    # Late: the engine's cost report needs its passes, which load Numba.
    from engine.profile.pipeline_estimate import PipelineStep, pipeline_estimator

    streams, options = bool(made.pipelining.storage.offload_activations), made.pipelining.options
    step = PipelineStep(made.module.name, made.source, made.schedule, constants, streams, options, labels)
    return pipeline_estimator(step, build, replicas, assumptions)


class _EachMicroBatch:
    """Translates executions into micro-batches for an observer of these."""

    def __init__(self, observer: Observer, micro_batches: int) -> None:
        self._observer, self._micro_batches = observer, micro_batches
        self.held = -(-observer.held // micro_batches)

    def begin(self, call: RunningCall) -> None:
        """Forwards the begin of a call."""
        self._observer.begin(_CallOfMicroBatches(call, self._micro_batches))  # type: ignore[arg-type]

    def end(self, completed: int) -> None:
        """Forwards the end, after `completed` executions."""
        self._observer.end(completed * self._micro_batches)


class _CallOfMicroBatches:
    """A running call, counted in micro-batches."""

    def __init__(self, call: RunningCall, micro_batches: int) -> None:
        self._call, self._micro_batches = call, micro_batches
        self.results = [_flat(result) for result in call.results]
        self.stop, self.waits = call.stop, call.waits

    def completed(self) -> int:
        """Number of complete micro-batches."""
        return self._call.completed() * self._micro_batches

    def taken(self, steps: int) -> None:
        """Frees the results of the first `steps` micro-batches."""
        self._call.taken(steps // self._micro_batches)


def _flat(result: np.ndarray) -> np.ndarray:
    """[executions, micro-batches, ...] as [executions * micro-batches, ...], a view."""
    return result.reshape(-1, *result.shape[2:])


def _stored(traced: TracedStep, pipelining: Pipelining) -> TracedStep:
    """The step, with the storage that a chip would use for its data."""
    shards = pipelining.replicas if pipelining.storage.replicated_optimizer_state_sharding else 1
    return replace(traced, storage=pipelining.storage, state_shards=shards)


def _with_rows(traced: TracedStep, pipelined: Pipelined, replicas: int) -> TracedStep:
    by_number = variable_numbers(traced).variables
    rows = [ReplicaRows(by_number[number], replicas) for number in pipelined.rows]
    return replace(traced, module=pipelined.module, roles=pipelined.roles, variables=[*traced.variables, *rows])
