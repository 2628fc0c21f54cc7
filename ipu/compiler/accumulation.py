"""Makes a traced training step one of many micro-batches, with the variables that replicas need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from engine.ir import Shape, shape_of
from engine.partition.accumulation import Accumulation
from engine.partition.repeat import repeat
from engine.runtime.buffers import DeviceBuffer
from ipu.compiler.trace import TracedStep
from ipu.compiler.variables import HostVariable, IPUVariable


class ReplicaRows:
    """The replicas' own values of a variable, [replicas, ...]: the variable itself shows replica 0's.

    They live as long as the program. When the variable has been changed by anybody else, all replicas start from it.
    """

    def __init__(self, variable: IPUVariable | HostVariable, replicas: int) -> None:
        self._variable = variable
        self._replicas = replicas
        self._buffer: DeviceBuffer | None = None

    @property
    def name(self) -> str:
        """A name for printouts."""
        return f"{self._variable.name}:replicas"

    def device_buffer(self) -> DeviceBuffer:
        """The rows, all equal to the variable unless their first one is."""
        value = self._variable.device_buffer().read()
        if self._buffer is None:
            shape = shape_of(value)
            self._buffer = DeviceBuffer(Shape(shape.element_type, (self._replicas, *shape.dimensions)))
        elif self._buffer.read()[0].tobytes() == value.tobytes():
            return self._buffer
        self._buffer.write(np.ascontiguousarray(np.broadcast_to(value, self._buffer.shape.dimensions)))
        return self._buffer

    def device_written(self) -> None:
        """Nothing to do: the host never sees the rows."""


def accumulated(
    traced: TracedStep, accumulation: Accumulation, *, once: Iterable[Any], metrics: Iterable[Any]
) -> TracedStep:
    """The step of `accumulation.micro_batches` of the batches of `traced`, which was traced with marks.

    `once` are the TensorFlow variables of the optimizers, `metrics` those of metrics.
    Raises ConfigurationError for steps that cannot be cut at their gradients, and for metrics that replicas cannot
    share.
    """
    parameters = [number for number, role in enumerate(traced.roles) if role == "variable"]
    by_number = dict(zip(parameters, traced.variables, strict=True))
    numbers = {id(_tensorflow_variable(variable)): number for number, variable in by_number.items()}
    repeated = repeat(
        traced.module,
        traced.roles,
        accumulation,
        once={numbers[id(variable)] for variable in once if id(variable) in numbers},
        metrics={numbers[id(variable)] for variable in metrics if id(variable) in numbers},
        names={number: _tensorflow_variable(variable).name for number, variable in by_number.items()},
    )
    rows = [ReplicaRows(by_number[number], accumulation.replicas) for number in repeated.rows]
    return replace(traced, module=repeated.module, roles=repeated.roles, variables=[*traced.variables, *rows])


def _tensorflow_variable(variable: IPUVariable | HostVariable) -> Any:
    return variable if isinstance(variable, IPUVariable) else variable.variable
