"""Rows of a loop's arrays that belong together: one worker keeps them from operation to operation.

An iteration is short. With all arrays partitioned along the same rows, each worker reads mostly its own results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from engine.ir import Computation, Instruction, Shape
from engine.ir.attributes import ROWS_OF_AN_ITERATION
from engine.ir.opcodes import AFFINE
from engine.ir.work import NO_ARRAYS, work_of
from engine.passes.loops.view import element_read
from engine.program.building.builder import RowBlocks

MOST_UNITS = 16
"""Most units of a loop's rows, which each worker keeps from iteration to iteration."""
LEAST_GRAIN = 4
"""Fewest rows of a unit, where there are at least twice as many."""
LEAST_WORK = 1 << 14
"""Elements and multiply-adds of an iteration below which one worker runs it: others would start late."""


def rows_of(loop: Instruction) -> RowBlocks | None:
    """The rows of an iteration: those that the loop names, or else those that most arrays have.

    None for little work, and where iterations update weights: these are whole steps, each of which reads all weights.

    Branches of an iteration are partitioned along its rows, too.
    """
    named = loop.get(ROWS_OF_AN_ITERATION)
    if named is not None:
        return _cut(named)
    body = loop.called[0]
    instructions = [*body.instructions, *_in_branches(body)]
    arrays = [
        shape
        for instruction in instructions
        if instruction.opcode not in NO_ARRAYS
        for shape in instruction.tuple_shapes
        if isinstance(shape, Shape) and shape.elements > 1
    ]
    if _updates_weights(body) or sum(work_of(instruction) for instruction in instructions) < LEAST_WORK or not arrays:
        return None
    firsts = Counter(next(size for size in shape.dimensions if size != 1) for shape in arrays)
    extent, _ = max(firsts.items(), key=lambda pair: (pair[1], pair[0]))
    return _cut(extent)


def _updates_weights(body: Computation) -> bool:
    """Whether the second operand of a dot is an element of the state that the body changes."""
    for dot in body.instructions:
        if dot.opcode == "dot" and body.root.opcode == "tuple":
            weight = dot.operands[1]
            while weight.opcode in AFFINE:
                weight = weight.operands[0]
            number = element_read(weight)
            if number is not None and element_read(body.root.operands[number]) != number:
                return True
    return False


def _cut(extent: int) -> RowBlocks:
    return RowBlocks(extent, max(-(-extent // MOST_UNITS), min(LEAST_GRAIN, -(-extent // 2))))


def _in_branches(body: Computation) -> Iterator[Instruction]:
    for instruction in body.instructions:
        if instruction.opcode == "conditional":
            for branch in instruction.called:
                yield from branch.instructions
