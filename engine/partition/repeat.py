"""Builds from a training step one that takes many micro-batches, reduces their gradients and updates once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.errors import ConfigurationError
from engine.ir import Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.partition.accumulation import Accumulation
from engine.partition.batch_norm_groups import statistics
from engine.partition.instruction_copies import Copies
from engine.partition.loop import MicroBatchLoop
from engine.partition.marks import Cut, cut
from engine.partition.replicas import Kind, kinds_of
from engine.partition.update_queues import enqueue_for_replicas
from engine.passes.dead_code import dead_code
from engine.passes.inline_calls import inline_calls
from engine.passes.loops.rebuilding import with_own_names
from engine.passes.run_passes import Pass, run_passes
from engine.passes.simplify_shapes import simplify_shapes

BEFORE: tuple[Pass, ...] = (inline_calls, dead_code, simplify_shapes, dead_code)
"""Passes that expose marks and updates: TensorFlow puts reshapes around every assignment."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A step of several micro-batches.

    Parameters have the numbers of the original step's, feeds the rows of all micro-batches (a scalar becomes a vector).
    New variables come after them, [replicas, ...]: the replicas' own values of the variables numbered `rows`.
    """

    module: Module
    roles: list[str]
    rows: tuple[int, ...]


def repeat(
    module: Module,
    roles: Sequence[str],
    accumulation: Accumulation,
    *,
    once: Collection[int] = (),
    metrics: Collection[int] = (),
    names: Mapping[int, str] | None = None,
) -> Repeated:
    """The step that makes one update from `accumulation.micro_batches` of the batches of `module`.

    `once` and `metrics` are the numbers of parameters that belong to the optimizer, and to metrics; `names` those of
    variables, for messages. Raises ConfigurationError for steps that cannot be cut at their gradients, and for
    metrics that replicas cannot share.
    """
    module = run_passes(module, BEFORE)
    _check_statistics(module)
    parts = cut(module, roles, once, names or {})
    kinds = kinds_of(module, parts, accumulation.replicas, metrics, names or {})
    repetition = Repetition(module, roles, accumulation, parts, kinds)
    return repetition.run(MicroBatchLoop(repetition.entry, module, roles, accumulation, parts))


def _check_statistics(module: Module) -> None:
    outside = set(module.entry.instructions)
    inner = [i for i in statistics(module) if i not in outside]
    if inner:
        raise ConfigurationError(
            f"Expected batch normalisation over several replicas outside of loops and branches. Received: "
            f"{inner[0].op_name or inner[0].name} inside one. Set "
            f"norms.experimental.distributed_batch_norm_replica_group_size = 1, or normalise outside of it."
        )


class Loop(Protocol):
    """Adds a loop to an entry computation and holds its results, as `MicroBatchLoop` describes them."""

    reduced: dict[Instruction, Instruction]
    last: dict[Instruction, Instruction]
    moved: dict[int, Instruction]

    def run(self, parameters: Sequence[Instruction], rows: dict[int, Instruction]) -> None:
        """Adds the loop, given the entry's parameters and those of the replicas' rows."""


class Repetition:
    """Builds the new entry computation: parameters, loop, update part."""

    def __init__(
        self, module: Module, roles: Sequence[str], accumulation: Accumulation, parts: Cut, kinds: dict[int, Kind]
    ) -> None:
        self.module, self.roles, self.accumulation, self.parts = module, roles, accumulation, parts
        self.rows = tuple(number for number, kind in kinds.items() if kind == "rows")
        self.entry = Builder(module.entry.name)

    def run(self, loop: Loop) -> Repeated:
        """The step around a loop that has been built for `entry`."""
        old = self.module.entry.parameters
        parameters = [self.entry.parameter_of(self._parameter_shape(p)) for p in old]
        for new, parameter in zip(parameters, old, strict=True):
            new.name, new.op_name = parameter.name, parameter.op_name
        rows = {number: self.entry.parameter_of(self._rows_shape(number)) for number in self.rows}
        loop.run(parameters, rows)
        known = dict(zip(old, parameters, strict=True))
        copies = Copies(self.entry, {**known, **loop.reduced, **loop.last})
        enqueue_for_replicas(self.entry, copies, self.parts.updates.values(), self.accumulation.replicas)
        aliases, results = self.module.aliases, {}
        for number, state in loop.moved.items():
            results[aliases[number]] = self._first(state) if number in rows else state
        for number, value in self.parts.updates.items():
            results[aliases[number]] = copies.of(value)
        for index, value in self.parts.outputs.items():
            results[index] = copies.of(value)
        ordered = [results[index] for index in range(len(results))]
        new_aliases = {len(old) + k: len(ordered) + k for k in range(len(rows))}
        root = self.entry.tuple(*ordered, *(loop.moved[number] for number in rows))
        computation = with_own_names(self.entry.build(root))
        roles = [*self.roles, *["variable"] * len(rows)]
        return Repeated(Module(self.module.name, computation, {**aliases, **new_aliases}), roles, self.rows)

    def _first(self, rows: Instruction) -> Instruction:
        """Replica 0's row, which the host reads."""
        dimensions = rows.array_shape.dimensions[1:]
        row = self.entry.slice(rows, (0, 1), *((0, size) for size in dimensions))
        return self.entry.reshape(row, dimensions)

    def _parameter_shape(self, parameter: Instruction) -> Shape:
        shape = parameter.array_shape
        if self.roles[parameter["parameter_number"]] != "feed":
            return shape
        first, *others = shape.dimensions or (1,)
        return shape.with_dimensions((first * self.accumulation.micro_batches, *others))

    def _rows_shape(self, number: int) -> Shape:
        shape = self.module.entry.parameters[number].array_shape
        return shape.with_dimensions((self.accumulation.replicas, *shape.dimensions))
