"""Lowers `fusion` instructions to fused loops."""

from __future__ import annotations

from math import prod

from engine.ir import Instruction, Shape
from engine.lower.context import Context, Joined, Value, lowering
from engine.program.loops import run_draft
from engine.program.nests import Drafting, Position
from engine.program.program import Buffer

LEAST_RUN = 16
"""Fewest contiguous elements: with fewer, the fusion's loops would be too short for its lanes."""


def position_of(context: Context, fusion: Instruction, root: Instruction, number: int, of: int) -> Position | None:
    """Position of result `number` of a fusion with `of` results, if its only reader is one concatenation."""
    if root.opcode == "reduce" or not isinstance(root.shape, Shape):
        return None
    result = _result(context, fusion, number, of)
    if result is None or (of == 1 and fusion in context.targets):
        return None
    users = context.users(result)
    if len(users) != 1 or users[0].opcode != "concatenate" or users[0].operands.count(result) != 1:
        return None
    (concatenation,) = users
    (dimension,) = concatenation["dimensions"]
    sizes = [operand.array_shape.dimensions[dimension] for operand in concatenation.operands]
    at = concatenation.operands.index(result)
    if prod(root.array_shape.dimensions[dimension:]) < LEAST_RUN or root.array_shape != result.array_shape:
        return None
    if concatenation not in context.joined:
        context.joined[concatenation] = Joined(context.result_buffer(concatenation), set())
    joined = context.joined[concatenation]
    joined.there.add(at)
    return Position(joined.buffer, concatenation.array_shape, dimension, sum(sizes[:at]))


def _result(context: Context, fusion: Instruction, number: int, of: int) -> Instruction | None:
    """The only instruction that reads result `number` of a fusion of `of` results; None if there are several or
    none.
    """
    if of == 1:
        return fusion
    parts = [user for user in context.users(fusion) if user.get("tuple_index") == number]
    return parts[0] if len(parts) == 1 else None


@lowering("fusion")
def lower_fusion(context: Context, instruction: Instruction) -> Value:
    """One compute set for all results of a fusion; results are returned in the structure of its root."""
    root = instruction.called[0].root
    roots = list(root.operands) if root.opcode == "tuple" else [root]
    sources = [context.buffer(o) for o in instruction.operands]
    results: list[Buffer] = []
    shaped: list[Value] = []
    positions: dict[int, Position] = {}
    for number, each in enumerate(roots):
        position = position_of(context, instruction, each, number, len(roots))
        if position is not None:
            positions[number] = position
            results.append(position.buffer)
            shaped.append(position.buffer)
            continue
        mine: list[Buffer] = []
        for shape in each.tuple_shapes:
            target = context.targets.get(instruction) if len(roots) == 1 else None
            mine.append(target or Buffer(f"{instruction.name}.{len(results) + len(mine)}", shape))
        results += mine
        shaped.append(mine[0] if isinstance(each.shape, Shape) else tuple(mine))
    draft = Drafting(instruction["loops"], roots, positions).draft
    run_draft(context, instruction.name, draft, sources, results, instruction.op_name)
    return shaped[0] if root.opcode != "tuple" else tuple(shaped)
