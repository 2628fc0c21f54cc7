"""Turns a traced training step into a step of several micro-batches, with the variables that replicas need."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from engine.ir import Shape
from engine.partition.accumulation import Accumulation
from engine.partition.batch_norm_groups import for_one, group_of
from engine.partition.processes import Processes
from engine.partition.repeat import repeat
from engine.runtime.buffers import DeviceBuffer
from ipu._internal.compiler.device_variables import DeviceVariable, HostVariable
from ipu._internal.compiler.trace import TracedStep


class ReplicaRows:
    """The replicas' own values of a variable, [replicas, ...]: the variable itself shows replica 0's.

    They live as long as the program. After a change of the variable outside the program, all replicas start from it.
    With `sums`, the variable shows their sum, which is a row before them: then one replica, the `first`, starts from
    it, and the others from zero.
    """

    escaped = False

    def __init__(self, variable: DeviceVariable, replicas: int, sums: bool = False, first: bool = True) -> None:
        self._variable = variable
        self._rows = replicas + sums
        self._zeroed = slice(1 + first, None) if sums else slice(0)
        self._buffer: DeviceBuffer | None = None

    @property
    def variable(self) -> Any:
        """TensorFlow's variable."""
        return getattr(self._variable, "variable", self._variable)

    @property
    def name(self) -> str:
        """A name for printouts."""
        return f"{self._variable.name}:replicas"

    @property
    def lock_holder(self) -> Any:
        """The object whose lock executions with the variable hold."""
        return self._variable.lock_holder

    def device_buffer(self) -> DeviceBuffer:
        """The rows; all are reset to the variable's value unless the first one equals it already."""
        first = self._variable.device_buffer()
        if self._buffer is None:
            shape = first.shape
            self._buffer = DeviceBuffer(Shape(shape.element_type, (self._rows, *shape.dimensions)))
        elif self._buffer.begins_with(first):
            return self._buffer
        rows = np.repeat(first.read()[None], self._rows, 0)
        rows[self._zeroed] = 0
        self._buffer.write(rows)
        return self._buffer

    def device_written(self, run: object = None) -> None:
        """Does nothing, as the host never sees the rows."""


def accumulated(
    traced: TracedStep,
    accumulation: Accumulation,
    *,
    once: Collection[Any],
    metrics: Collection[Any],
    random: Collection[Any] = (),
    processes: Processes | None = None,
    training: bool = True,
) -> TracedStep:
    """The step of `accumulation.micro_batches` batches of `traced`, which was traced with marks.

    `once` are the TensorFlow variables of optimizers, `metrics` the variables of metrics, besides those that are
    summed on read, `random` those of random generators. `repeat` gets these, and `processes` and `training`.
    Raises ConfigurationError for steps that cannot be cut at their gradients, and for metrics that replicas cannot
    share.
    """
    group = group_of(traced.module)
    if group > 1 or accumulation.replicas > 1:
        # A chip has one of the replicas, with its own micro-batches.
        one = accumulated(
            *(replace(traced, module=for_one(traced.module)), replace(accumulation, replicas=1)),
            once=once,
            metrics=metrics,
            random=random,
            training=training,
        )
        traced, accumulation = replace(traced, alone=one), replace(accumulation, together=group)
    numbers = variable_numbers(traced)
    repeated = repeat(
        traced.module,
        traced.roles,
        accumulation,
        once=numbers.of(once),
        metrics=numbers.of(metrics) | numbers.summed,
        random=numbers.of(random),
        names=numbers.names,
        processes=processes,
        training=training,
    )
    rows = [ReplicaRows(numbers.variables[number], accumulation.replicas) for number in repeated.rows]
    return replace(traced, module=repeated.module, roles=repeated.roles, variables=[*traced.variables, *rows])


@dataclass(frozen=True, slots=True)
class VariableNumbers:
    """The variables of a traced step by the numbers of their parameters."""

    variables: dict[int, DeviceVariable]

    @property
    def names(self) -> dict[int, str]:
        """Names of the variables, for messages."""
        return {number: _tensorflow_variable(variable).name for number, variable in self.variables.items()}

    @property
    def summed(self) -> set[int]:
        """The numbers of variables that are sums over replicas where they are read, as those of metrics are."""
        return {number for number, each in self.variables.items() if _is_summed(getattr(each, "variable", each))}

    def of(self, wanted: Iterable[Any]) -> set[int]:
        """The numbers of those TensorFlow variables that the step has."""
        numbers = {id(_tensorflow_variable(variable)): number for number, variable in self.variables.items()}
        return {numbers[id(variable)] for variable in wanted if id(variable) in numbers}


def variable_numbers(traced: TracedStep) -> VariableNumbers:
    """The variables of a step as it was traced."""
    parameters = [number for number, role in enumerate(traced.roles) if role == "variable"]
    return VariableNumbers(dict(zip(parameters, traced.variables, strict=True)))


def _is_summed(variable: Any) -> bool:
    on_read = getattr(variable, "synchronization", None) is tf.VariableSynchronization.ON_READ
    return on_read and variable.aggregation == tf.VariableAggregation.SUM


def _tensorflow_variable(variable: DeviceVariable) -> Any:
    return variable.variable if isinstance(variable, HostVariable) else variable
