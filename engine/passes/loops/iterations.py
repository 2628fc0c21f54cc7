"""The values of a loop's body that depend on values outside the loop alone, for all iterations at once."""

from __future__ import annotations

from engine.ir import Instruction, SliceDimension
from engine.ir.opcodes import AFFINE, CONTRACTIONS, CONTROL_FLOW, TUPLES
from engine.ir.properties import is_repeatable
from engine.ir.trip_counts import TripCounts
from engine.passes import construct
from engine.passes.loops.batching import Operand, batch, can_batch
from engine.passes.loops.rebuilding import element_of
from engine.passes.loops.view import LoopView, element_read
from engine.passes.rewriting import changed, make

NOT_COPIED = TUPLES | CONTROL_FLOW | {"parameter", "custom-call"}


class Iterations:
    """A loop with a known number of iterations, whose values are in their order, or reversed if `descending`."""

    def __init__(self, view: LoopView, counts: TripCounts, iterations: int) -> None:
        self.view = view
        self.counts = counts
        self.number = iterations
        self.costly: set[Instruction] = set()
        """Instructions that do more than move data."""
        self.descending = self._mostly_descending()

    @property
    def order(self) -> tuple[int, int]:
        """The index of an iteration's value, as (index of the first iteration's, step)."""
        return (self.number - 1, -1) if self.descending else (0, 1)

    def _mostly_descending(self) -> bool:
        ascending = 0
        for instruction in self.view.body.instructions:
            if instruction.opcode in ("dynamic-slice", "dynamic-update-slice"):
                data = instruction.operands[0]
                first = instruction.operands[1 if instruction.opcode == "dynamic-slice" else 2 : None][:1]
                line = self.line(first[0]) if first and data.array_shape.rank else None
                if line is not None and data.array_shape.dimensions[0] >= self.number:
                    ascending += line[1] if abs(line[1]) == 1 else 0
        return ascending < 0

    def line(self, instruction: Instruction) -> tuple[int, int] | None:
        """An integer of the body as (value in the first iteration, step); None if it is not linear."""
        return self.counts.line_of(self.view.loop, instruction)

    def outside(self, sources: dict[Instruction, Instruction]) -> dict[Instruction, Operand]:
        """The values that can be computed outside the loop, given those of `sources` in all iterations."""
        known: dict[Instruction, Operand] = {each: (value, True) for each, value in sources.items()}
        for instruction in self.view.body.instructions:
            if instruction in known:
                continue
            value = self._value(instruction, known)
            if value is not None:
                known[instruction] = value
        return known

    def _value(self, instruction: Instruction, known: dict[Instruction, Operand]) -> Operand | None:
        element = element_read(instruction)
        if element is not None:
            return (self.view.initial[element], False) if self.view.is_invariant(element) else None
        if instruction.opcode == "get-tuple-element" and instruction.operands[0] in known:
            return self._result(instruction, *known[instruction.operands[0]])
        if instruction.opcode in NOT_COPIED or not is_repeatable(instruction):
            return None
        if instruction.opcode == "dynamic-slice" and instruction.operands[0] in known:
            rows = self._rows(instruction, known[instruction.operands[0]])
            if rows is not None:
                return rows
        if any(operand not in known for operand in instruction.operands):
            return None
        operands = [known[operand] for operand in instruction.operands]
        batched = any(has_iterations for _, has_iterations in operands)
        if batched and not can_batch(instruction):
            return None
        computes = instruction.opcode in CONTRACTIONS or (not batched and instruction.opcode not in AFFINE)
        if instruction.operands and (computes or not self.costly.isdisjoint(instruction.operands)):
            self.costly.add(instruction)
        if batched:
            return batch(instruction, operands, self.number), True
        return changed(instruction, operands=[value for value, _ in operands]), False

    def _result(self, instruction: Instruction, value: Instruction, batched: bool) -> Operand | None:
        """One of several results of an instruction such as a sort."""
        if batched:
            return None
        if instruction.operands[0] in self.costly:
            self.costly.add(instruction)
        return element_of(value, instruction["tuple_index"]), False

    def _rows(self, instruction: Instruction, data: Operand) -> Operand | None:
        """A slice of one row of a loop-invariant array, a different row in each iteration."""
        value, batched = data
        dimensions = instruction.array_shape.dimensions
        if batched or not dimensions or dimensions[0] != 1 or dimensions[1:] != value.array_shape.dimensions[1:]:
            return None
        if value.opcode == "broadcast" and 0 not in value["dimensions"]:
            self.costly.add(instruction)  # all rows are equal: storing one in the loop costs less
            return construct.broadcast(instruction, value.operands[0], dimensions, value["dimensions"]), False
        line = self.line(instruction.operands[1])
        if line is None or abs(line[1]) != 1:
            return None
        last = line[0] + line[1] * (self.number - 1)
        low, high = min(line[0], last), max(line[0], last) + 1
        if low < 0 or high > value.array_shape.dimensions[0]:
            return None
        every = [SliceDimension(0, size, 1) for size in dimensions[1:]]
        rows = construct.slice_of(instruction, value, [SliceDimension(low, high, 1), *every])
        rows = self.in_order(rows, line)
        return construct.reshape(instruction, rows, (self.number, *dimensions)), True

    def in_order(self, rows: Instruction, line: tuple[int, int]) -> Instruction:
        """Rows in the order in which `line` visits them, put into the order of the iterations' values (or back)."""
        if (line[1] < 0) == self.descending:
            return rows
        return make(rows, "reverse", rows.shape, (rows,), dimensions=(0,))
