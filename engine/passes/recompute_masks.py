"""Computes masks of a rectifier's gradient from its input, if the same loop reads that, and not from its result.

The gradient of y = max(0, s * x + b), or of y clamped from above too, is zero where y is at a bound. Batch
normalisation's gradient reads x at the same points: reading y would cost one more large array.
"""

from __future__ import annotations

import numpy as np

from engine.ir import Computation, Instruction
from engine.ir.module import reached
from engine.passes.recomputed import LEAST_ELEMENTS, SMALL
from engine.passes.rewriting import Visit, changed, for_each
from engine.passes.splats import splat_value

STEPS = ("add", "subtract", "multiply")
"""Operations between x and the rectifier; there are at most MOST_STEPS of them, as in an affine map."""
MOST_STEPS = 2
READERS = ("and", "select", "multiply")
"""Opcodes that may stand between a mask and the instruction that reads x."""


@for_each
def recompute_masks(computation: Computation) -> Visit:
    """Compares s * x + b, computed again, with a rectifier's bound in place of its result."""
    users = computation.users()
    found = {each: x for each in computation.instructions if (x := _source(each, users)) is not None}
    copies: dict[Instruction, Instruction] = {}

    def again(before: Instruction, now: Instruction, x: Instruction) -> Instruction:
        """A copy of s * x + b for all masks of one rectifier."""
        if before is x or before.opcode not in STEPS:
            return now
        if before not in copies:
            pairs = zip(before.operands, now.operands, strict=True)
            copies[before] = changed(now, operands=[again(old, new, x) for old, new in pairs])
        return copies[before]

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        if before not in found:
            return None
        y, (made, bound) = before.operands[0], instruction.operands
        at = y.operands.index(_inner(y))
        return changed(instruction, operands=[again(y.operands[at], made.operands[at], found[before]), bound])

    return visit


def _source(mask: Instruction, users: dict[Instruction, list[Instruction]]) -> Instruction | None:
    """The array from which a mask can be recomputed; None if there is none."""
    if mask.opcode != "compare" or mask.array_shape.elements < LEAST_ELEMENTS or not _is_at_bound(mask):
        return None
    x = _only_array(_inner(mask.operands[0]))
    return x if x is not None and _is_read_beside(x, mask, users) else None


def _inner(rectifier: Instruction) -> Instruction:
    """The operand that a maximum or clamp bounds."""
    if rectifier.opcode == "clamp":
        return rectifier.operands[1]
    a, b = rectifier.operands
    return b if splat_value(a) is not None else a


def _is_at_bound(mask: Instruction) -> bool:
    """Whether a mask tests that a maximum or clamp is strictly within one of its bounds."""
    rectifier, compared = mask.operands
    value = splat_value(compared)
    if value is None:
        return False
    if rectifier.opcode == "maximum":
        bounds = [splat_value(each) for each in rectifier.operands]
        lower, upper = next((each for each in bounds if each is not None), None), None
    elif rectifier.opcode == "clamp":
        lower, upper = splat_value(rectifier.operands[0]), splat_value(rectifier.operands[2])
        if lower is None or upper is None or not lower < upper:
            return False
    else:
        return False
    bound = {"GT": lower, "LT": upper}.get(mask["direction"])
    return bound is not None and bool(np.equal(bound, value))


def _only_array(value: Instruction) -> Instruction | None:
    """The only large array of which a value is an affine function, with broadcast factors and terms; None if none."""
    for _ in range(MOST_STEPS):
        if value.opcode not in STEPS:
            break
        large = [each for each in value.operands if not _is_broadcast(each)]
        if len(large) != 1:
            return None
        (value,) = large
    return None if value.opcode in STEPS else value


def _is_broadcast(value: Instruction) -> bool:
    if value.opcode != "broadcast":
        return False
    return value.operands[0].array_shape.elements * SMALL <= value.array_shape.elements


def _is_read_beside(x: Instruction, mask: Instruction, users: dict[Instruction, list[Instruction]]) -> bool:
    """Whether the loop of the mask reads x in any case."""
    beside = reached([mask], lambda each: (user for user in users[each] if user.opcode in READERS))
    return any(x in user.operands for each in beside for user in users[each])
