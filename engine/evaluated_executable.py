"""A module run by the definitions of its operations, behind the executable's interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from engine.errors import StepCountError
from engine.evaluate import evaluate
from engine.ir import Module
from engine.ir.device_operations import QueueSignature, queue_signatures
from engine.ir.floating_point import IEEE, FloatingPoint
from engine.ops.exceptions import watching_exceptions
from engine.ops.queues import bound
from engine.passes.rounding import explicit_rounding
from engine.runtime.bound_queues import check_rings
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.exceptions import exception
from engine.runtime.executor import new_state
from engine.runtime.feeds import RowFeed
from engine.runtime.observer import Observer, RunningCall
from engine.runtime.rings import AnyRing


class EvaluatedExecutable:
    """A module run by `evaluate`, step by step, behind the fast executable's interface."""

    def __init__(
        self,
        module: Module,
        roles: list[str],
        constants: dict[int, np.ndarray],
        floating_point: FloatingPoint = IEEE,
    ) -> None:
        self.module = explicit_rounding(module, floating_point)
        self.exceptions = floating_point.exceptions
        self.roles, self.constants = roles, constants
        self._feeds = [number for number, role in enumerate(roles) if role == "feed"]
        self._variables = [number for number, role in enumerate(roles) if role == "variable"]

    @property
    def queues(self) -> dict[str, QueueSignature]:
        """The queues of the module by name: direction, and the shapes of an element's leaves."""
        return queue_signatures(self.module)

    def run(
        self,
        steps: int,
        feeds: list[RowFeed],
        variables: list[DeviceBuffer],
        outputs: Literal["last", "all"] = "last",
        observer: Observer | None = None,
        queues: Mapping[str, AnyRing] | None = None,
    ) -> list[np.ndarray]:
        """Runs steps; returns the results that update no variable, of the last step, or of all with a leading [steps].

        An observer is notified of all steps at the end. `queues` has a ring for each of the module's queues.
        Raises StepCountError, leaving the variables unchanged, when there is no step or a feed is too short;
        ConfigurationError for rings that do not fit; the error of a closed ring, before the step begins;
        FloatingPointException if an operation raises an enabled exception: variables are then as before the call.
        """
        self._check(steps, feeds)
        check_rings(self.queues, queues or {})
        kept: list[list[np.ndarray]] = []
        before = [variable.read() for variable in variables] if self.exceptions else []
        for step in range(steps):
            with bound(queues or {}), watching_exceptions(self.exceptions) as raised:
                results = evaluate(self.module, self._arguments(step, feeds, variables))
            if raised:
                for variable, value in zip(variables, before, strict=True):
                    variable.write(value)
                name, origin, elements = raised[0]
                raise exception(name, origin, elements, step, steps)
            for number, variable in zip(self._variables, variables, strict=True):
                if number in self.module.aliases:
                    variable.write(results[self.module.aliases[number]])
            updated = set(self.module.aliases.values())
            step_outputs = [r for index, r in enumerate(results) if index not in updated]
            kept = [*kept, step_outputs] if outputs == "all" else [step_outputs]
        if outputs == "last":
            return kept[-1]
        results_of_all = [np.stack(of_steps) for of_steps in zip(*kept, strict=True)]
        if observer is not None:
            observer.begin(RunningCall(new_state(workers=1), results_of_all))
            observer.end(steps)
        return results_of_all

    def _check(self, steps: int, feeds: list[RowFeed]) -> None:
        if steps < 1:
            raise StepCountError(f"Expected at least 1 step. Received: {steps}.")
        for number, feed in zip(self._feeds, feeds, strict=True):
            feed.check_steps(number, steps, self._rows(number))

    def _rows(self, number: int) -> int:
        dimensions = self.module.entry.parameters[number].array_shape.dimensions
        return dimensions[0] if dimensions else 1

    def _arguments(self, step: int, feeds: list[RowFeed], variables: list[DeviceBuffer]) -> list[np.ndarray]:
        arguments = dict(self.constants)
        for number, feed in zip(self._feeds, feeds, strict=True):
            dimensions = self.module.entry.parameters[number].array_shape.dimensions
            arguments[number] = feed.step(step, self._rows(number)).reshape(dimensions)
        for number, variable in zip(self._variables, variables, strict=True):
            arguments[number] = variable.read()
        return [arguments[number] for number in range(len(self.roles))]
