"""Results of fusions that are written directly into the concatenation that reads them, which saves copies.

An LSTM's backward pass computes the gradients of four gates, which a product reads as one array.
"""

from __future__ import annotations

from math import prod

from engine.ir import Instruction, Shape
from engine.lower.context import Context, Joined
from engine.program.building.nests import Position

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
