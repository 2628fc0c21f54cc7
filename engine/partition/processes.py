"""Programs whose replicas are in several processes: their collectives continue in calls of the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.frozen import frozen
from engine.host_functions import HostFunction
from engine.ir import Instruction, Shape
from engine.ir.builder import Builder
from engine.ir.module import topological
from engine.partition.marks import is_total

SUM = "sum"
"""The value of the attribute "of_processes" in calls that sum their operands."""


@frozen
class Processes:
    """The `count` processes of a program, of which this is number `index`. All have equally many replicas.

    `all_reduce` gives the sums of its operands over the processes; `all_gather` gives the [count, ...] values of its
    one operand. `begin` takes the number of a bucket and its values, whose sums are computed beside the program, and
    `begin_gradients` does so for gradients, perhaps rounded; `end` takes the number of buckets and gives all sums.
    Buckets have `bucket_bytes` unless they have one value.
    """

    count: int
    index: int
    all_reduce: HostFunction
    all_gather: HostFunction
    begin: HostFunction
    begin_gradients: HostFunction
    end: HostFunction
    bucket_bytes: int

    def summed(self, b: Builder, values: Sequence[Instruction]) -> list[Instruction]:
        """The sums of values over the processes, in one call."""
        return _call(b, self.all_reduce, values, [value.array_shape for value in values], SUM)

    def gathered(self, b: Builder, value: Instruction) -> Instruction:
        """[count, ...]: the value of each process."""
        shape = value.array_shape
        return _call(b, self.all_gather, [value], [shape.with_dimensions((self.count, *shape.dimensions))])[0]

    def reduced(self, b: Builder, marks: Mapping[Instruction, Instruction]) -> dict[Instruction, Instruction]:
        """The sums over the processes of the marks' replacements; sums of several buckets begin as early as
        possible.
        """
        if not marks:
            return {}
        depth = _depths(b.instructions)
        marks = dict(sorted(marks.items(), key=lambda item: depth[item[1]]))
        totals = {m: value for m, value in marks.items() if is_total(m) or self.begin_gradients is self.begin}
        gradients = {m: value for m, value in marks.items() if m not in totals}
        buckets = [(self.begin_gradients, each) for each in self._buckets(gradients.values())]
        buckets += [(self.begin, each) for each in self._buckets(totals.values())]
        ordered = [*gradients, *totals]
        if not gradients and len(buckets) <= 1:
            return dict(zip(ordered, self.summed(b, list(totals.values())), strict=True))
        for number, (function, bucket) in enumerate(buckets):
            _call(b, function, [b.constant(number, "s32"), *bucket], [])
        shapes = [marks[mark].array_shape for mark in ordered]
        sums = _call(b, self.end, [b.constant(len(buckets), "s32")], shapes)
        _move_calls_forward(b)
        return dict(zip(ordered, sums, strict=True))

    def _buckets(self, values: Iterable[Instruction]) -> list[list[Instruction]]:
        """Divides values, in order, into buckets of at most `bucket_bytes`, or of one larger value."""
        found: list[list[Instruction]] = []
        size = 0
        for value in values:
            if not found or size + value.array_shape.bytes > self.bucket_bytes:
                found.append([])
                size = 0
            found[-1].append(value)
            size += value.array_shape.bytes
        return found


def _depths(instructions: Iterable[Instruction]) -> dict[Instruction, int]:
    """The length of the longest path to each instruction: gradients of the last layers are computed first."""
    depth: dict[Instruction, int] = {}
    for each in instructions:
        depth[each] = 1 + max((depth[operand] for operand in each.operands), default=0)
    return depth


def _move_calls_forward(b: Builder) -> None:
    """Orders the instructions so that each call follows the last of its operands at once."""
    first = [i for i in b.instructions if i.opcode == "parameter"] + [i for i in b.instructions if is_call(i)]
    b.instructions[:] = dict.fromkeys([*topological(first), *b.instructions])


def is_call(instruction: Instruction) -> bool:
    """Whether an instruction is a call between processes."""
    return bool(instruction.get("of_processes"))


def _call(
    b: Builder, function: HostFunction, operands: Sequence[Instruction], shapes: Sequence[Shape], kind: str = "other"
) -> list[Instruction]:
    """The results of a call, which `in_one_order` puts after the previous one, or, if both sum, may join with it."""
    token = b.constant(0, "s32")
    call = b.host_function(function, operands, shapes, token, side_effect=False, of_processes=kind)
    return b.elements(call)[: len(shapes)]
