"""`plan_pipeline`: stages that balance the estimated cost on a chip, found before anything has run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from engine.partition.schedule import ScheduleKind, devices_of
from engine.partition.schedule_checks import check_count, check_pipeline, legal_count, recomputation_of
from engine.shown import Shown
from engine.target import Target, target
from ipu._internal.compiler.accumulation import variable_numbers
from ipu._internal.compiler.marks import marking
from ipu._internal.compiler.program import build_program
from ipu._internal.compiler.replication import alone
from ipu._internal.compiler.trace import trace_step
from ipu._internal.config.system import current_system
from ipu._internal.pipelining.options import REDUCTIONS, RecomputationMode, checked_schedule, kind_of
from keras_ext.accumulation_options import REDUCTION
from keras_ext.extension import Extension, option
from keras_ext.pipelining.batch_specs import batch_specs
from keras_ext.pipelining.calls import Calls, calls_of
from keras_ext.pipelining.options import (
    ACCUMULATE_OUTFEED,
    ARGUMENTS,
    STEPS,
    accumulator_type_of_pipeline,
    pipelining_steps,
    shared_weights,
)
from keras_ext.pipelining.stage_trees import StageTree
from keras_ext.pipelining.traced_step import in_stages
from keras_ext.types import Batch, KerasModel, Nest

if TYPE_CHECKING:
    from engine.profile.pipeline_plan import StagePlan, TracedLayers

MICRO_BATCHES_OF_STAGE = 4
"""The least number of micro-batches for each stage in a plan where the count is not given."""


@dataclass(frozen=True, eq=False, repr=False)
class PipelinePlan(Shown):
    """A proposed assignment of a model's layers to the stages of a pipeline, one on each IPU.

    Attributes:
        stages: the stage of each call of a layer, in the order of execution; calls in nested models count one by one.
        plan: the plan's parts, such as `estimate`, the cost report of the chip, and `profile`, the costs of layers.
    """

    model: Any
    plan: StagePlan
    schedule: Any
    micro_batches: int

    @property
    def stages(self) -> tuple[int, ...]:
        """The stage of each call of a layer, from 0."""
        return self.plan.stages

    @property
    def estimate(self) -> Any:
        """The cost report for the IPUs: an `engine.profile.program_estimate.Estimate` with a `pipeline`."""
        return self.plan.estimate

    @property
    def bubble_share(self) -> float:
        """The mean share (0 to 1) of an execution, without the update, in which an IPU waits."""
        return self.plan.bubble_share

    def table(self) -> str:
        """The stages, one a line: layers, cycles forward and backward, memory of the fullest tile, share of the work;
        then the period and the share of bubbles."""
        return self.plan.table()

    def scaling(
        self,
        replicas: Iterable[int] | None = None,
        depths: Iterable[int] | None = None,
        kind: Literal["weak", "strong"] = "weak",
    ) -> str:
        """Estimated throughput, share of gradients and memory on 1 to 1,024 replicas (or those given), as a table.

        With `depths` a table for each number of stages, its cuts balanced by estimate. `kind` is "weak" (the batch
        grows with the replicas) or "strong" (it is constant). The tables end with their assumptions. Raises
        ConfigurationError for numbers of replicas below 1, or another kind.
        """
        from engine.profile.scaling import POWERS_OF_TWO, predict, workload_of, workloads_by_depth

        chip, counts, estimate = self.estimate.target, tuple(replicas or POWERS_OF_TWO), self.estimate
        if kind not in ("weak", "strong"):
            raise ConfigurationError(f"Expected kind to be 'weak' or 'strong'. Received: {kind!r}. Nearest: 'weak'.")
        if depths is None:
            return predict(workload_of(estimate), chip, counts, kind).table()
        samples = estimate.samples_per_replica // self.micro_batches
        schedule, recomputation = self.plan.balance.schedule.kind, self.plan.balance.schedule.recomputation
        workloads = workloads_by_depth(
            self.plan.profile,
            samples,
            chip,
            depths,
            accumulation=self.micro_batches,
            schedule=schedule,
            recomputation=recomputation,
        )
        return "\n".join(predict(each, chip, counts, kind).table() for each in workloads)

    def apply(self, set_options: bool = True) -> None:
        """Assigns the layers to the stages; `fit`, `evaluate` and `predict` run as a pipeline then.

        With `set_options` the number of micro-batches and the schedule of the plan are set, too; other options of
        `set_pipelining_options` stay.
        """
        model = self.model
        assignments = model.get_pipeline_stage_assignment()
        _fill(assignments, iter(self.stages))
        model.set_pipeline_stage_assignment(assignments)
        if set_options:
            arguments = {**option(model, ARGUMENTS, {}), "pipeline_schedule": self.schedule}
            steps = self.micro_batches if self.plan.profile.training else option(model, STEPS)
            model.set_pipelining_options(
                gradient_accumulation_steps_per_replica=steps,
                accumulate_outfeed=option(model, ACCUMULATE_OUTFEED),
                gradient_accumulation_reduction_method=REDUCTIONS[option(model, REDUCTION, 0)],
                **arguments,
            )


class PipelinePlanning(Extension):
    """The method that plans."""

    def plan_pipeline(
        self: KerasModel,
        num_ipus: int,
        x: Nest = None,
        y: Nest = None,
        *,
        batch_size: int | None = None,
        gradient_accumulation_steps_per_replica: int | None = None,
        pipeline_schedule: object = None,
        training: bool | None = None,
        chip: str | Target | None = None,
        print_fn: Callable[[str], Any] | None = print,
    ) -> PipelinePlan:
        """Proposes an assignment of layers to `num_ipus` IPUs, prints the table of stages, and returns the plan.

        The model's step is traced as `fit` traces it, nothing is run, and the cost of each layer on the chip is
        estimated. The plan cuts the layers' order where the pipeline's period is shortest and each stage fits into its
        IPU's tiles. `plan.apply()` puts it in force.

        Args:
            num_ipus: the IPUs of a replica, at least 2; each has one stage.
            x, y: data, tf.data.Dataset or `tf.TensorSpec`s (nested as for `fit`) from which shapes are taken. By
                default x has the shapes the model was built for, and y those of its losses' targets.
            batch_size: samples of a micro-batch, where the shapes do not give it; 32 by default.
            gradient_accumulation_steps_per_replica: micro-batches of an update; by default the number set before, or
                the smallest legal one with at least 4 for each stage.
            pipeline_schedule: a `PipelineSchedule`; by default the one set before, or Grouped.
            training: whether to plan for `fit`, not `predict`; by default True if the model has been compiled.
            chip: the name of a chip, such as "ipu2", or a Target; by default the configured one.
            print_fn: function called with the table; None prints nothing.

        Returns:
            The plan: stages, estimated cycles and bytes, and `apply()`; notebooks show it as a table.

        Raises:
            ConfigurationError, a ValueError: too few layers, incompatible options, shapes not known.
            AccumulationStepError, a ValueError and a RuntimeError: a number of micro-batches illegal for the schedule.
            OutOfTileMemory: no cut fits; the message has the nearest number of IPUs that suffices.
            RuntimeError: a subclass of `Model` that has not been built.
        """
        from engine.profile.pipeline_plan import PlanOptions, plan_stages
        from ipu._internal.config.chip import configured_assumptions, configured_target

        number = checked_integer("num_ipus", num_ipus, 2)
        training = getattr(self, "optimizer", None) is not None if training is None else training
        schedule = checked_schedule(pipeline_schedule or option(self, ARGUMENTS, {}).get("pipeline_schedule"))
        kind = kind_of(schedule)
        check_pipeline(kind, number, devices_of(number, None), training=training)
        batch = batch_specs(self, x, y, batch_size, training)
        _check_layers(calls_of(self), number)
        steps = _micro_batches(self, kind, number, training, gradient_accumulation_steps_per_replica)
        mode = option(self, ARGUMENTS, {}).get("recomputation_mode") or RecomputationMode.Auto
        recomputes = training and current_system().config.allow_recompute
        options = PlanOptions(
            number,
            steps,
            kind,
            recomputation_of(mode.name if recomputes else None, kind),
            configured_assumptions(),
        )
        on = configured_target() if chip is None else target(chip) if isinstance(chip, str) else chip
        traced = _traced(self, training, batch)
        plan = PipelinePlan(self, plan_stages(traced, options, on, build_program), schedule, steps)
        if print_fn is not None:
            print_fn(plan.table())
        return plan


def _check_layers(calls: Calls, stages: int) -> None:
    most = len(calls.leaves) - len(_uncut(calls))
    if stages > most:
        raise ConfigurationError(
            f"Expected at least one layer for each of {stages} stages, with layers that share weights in one stage. "
            f"Received: {len(calls.leaves)} calls of layers, which can be cut into {most}. "
            + (f"Nearest legal num_ipus: {most}." if most > 1 else "A model of one layer cannot be pipelined.")
        )


def _micro_batches(model: KerasModel, kind: ScheduleKind, stages: int, training: bool, given: int | None) -> int:
    devices = devices_of(stages, None)
    if given is None and training:
        given = pipelining_steps(model)
    if given is not None:
        what = "gradient_accumulation_steps_per_replica"
        check_count(kind, devices, given, training=training, option=what)
        return given
    unit = legal_count(kind, devices, training=training)
    return -(-MICRO_BATCHES_OF_STAGE * stages // unit) * unit


def _traced(model: KerasModel, training: bool, batch: Batch) -> TracedLayers:
    """The model's step with each call of a layer in a stage of its own."""
    from engine.profile.pipeline_plan import TracedLayers

    mode = "train" if training else "predict"
    function = getattr(model, f"make_{mode}_function")()
    framework = function.framework
    calls = calls_of(model)
    if training:
        framework.prepare(model, "train", batch)
    numbers = iter(range(len(calls.leaves)))
    trees = _numbered(calls, numbers)

    def step(*arrays: tf.Tensor) -> Any:
        with in_stages(model, trees):
            return framework.step(model, mode, tf.nest.pack_sequence_as(batch, arrays))

    with marking(accumulator_type_of_pipeline(model)) as marks:
        traced = alone(trace_step(step, tf.nest.flatten(batch)), 1)
    return TracedLayers(
        traced.module,
        tuple(traced.roles),
        traced.constants,
        tuple(call.layer.name for call in calls.leaves),
        variable_numbers(traced).of(marks.updated_once.values()),
        _uncut(calls),
        training,
    )


def _numbered(calls: Calls, numbers: Iterator[int]) -> tuple[StageTree, ...]:
    return tuple(next(numbers) if call.inner is None else _numbered(call.inner, numbers) for call in calls)


def _uncut(calls: Calls) -> frozenset[int]:
    """The positions between calls that share weights, where no cut is legal: those calls must be in one stage."""
    first: dict[int, int] = {}
    found: set[int] = set()
    for position, call in enumerate(calls.leaves):
        for weight in shared_weights(call):
            found.update(range(first.setdefault(id(weight), position) + 1, position + 1))
    return frozenset(found)


def _fill(assignments: Sequence[Any], stages: Iterator[int]) -> None:
    for assignment in assignments:
        inner = getattr(assignment, "pipeline_stage_assignments", None)
        if inner is None:
            assignment.pipeline_stage = next(stages)
        else:
            _fill(inner, stages)
