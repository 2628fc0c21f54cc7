"""x - mean(x) is recomputed for each of its users: x is in memory anyway, and a difference costs less than a buffer.

Batch normalisation reads it for the variance and again, much later, in the backward pass.
"""

from __future__ import annotations

from engine.ir import Computation, Instruction, Shape
from engine.passes.fusible import is_elementwise, is_reduction
from engine.passes.rewriting import Visit, changed, for_each

FARTHEST = 16
"""Most instructions considered between a reduction and the difference."""


@for_each
def recompute_differences(computation: Computation) -> Visit:
    """Copies differences whose users are all elementwise or reductions: these fuse the copies into their loops."""
    users = computation.users()
    chosen = {each for each in computation.instructions if _is_cheap(each, users[each])}

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        pairs = list(zip(before.operands, instruction.operands, strict=True))
        copies = {old: changed(new) for old, new in pairs if old in chosen and users[old][0] is not before}
        return changed(instruction, operands=[copies.get(old, new) for old, new in pairs]) if copies else None

    return visit


def _is_cheap(instruction: Instruction, users: list[Instruction]) -> bool:
    """Whether an instruction is x minus a summary of x, which several users read point by point."""
    if instruction.opcode != "subtract" or len(set(users)) < 2:
        return False
    x, mean = instruction.operands
    if mean.opcode != "broadcast" or not _summarises(mean.operands[0], x):
        return False
    return all(is_elementwise(user) or (is_reduction(user) and user.operands[0] is instruction) for user in users)


def _summarises(value: Instruction, x: Instruction) -> bool:
    """Whether a value is computed from a reduction of x, through instructions smaller than x."""
    stack, seen = [value], {value}
    while stack and len(seen) < FARTHEST:
        current = stack.pop()
        if current.opcode == "reduce" and current.operands[0] is x:
            return True
        for operand in current.operands:
            small = isinstance(operand.shape, Shape) and operand.shape.elements < x.array_shape.elements
            if small and operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return False
