"""and, or, xor, not, select and compare with a known operand, or the same one twice."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction
from engine.passes import construct
from engine.passes.rewriting import RuleSet, changed
from engine.passes.rules.arithmetic import either_order, is_integer
from engine.passes.splats import is_splat_of, splat_value

RULES = RuleSet()


def is_all_ones(instruction: Instruction) -> bool:
    """Whether every bit of every element is set: true, or -1 as a signed integer."""
    value = splat_value(instruction)
    return value is not None and bool(np.invert(value) == 0)


@RULES.on("and", "or")
@either_order
def conjunction_or_disjunction(instruction: Instruction, x: Instruction, other: Instruction) -> Instruction | None:
    """Simplifies x and y, and x or y, where y is x, all ones or zero."""
    neutral, absorbing = is_all_ones(other), is_splat_of(other, 0)
    if instruction.opcode == "or":
        neutral, absorbing = absorbing, neutral
    return x if x is other or neutral else other if absorbing else None


@RULES.on("xor")
@either_order
def exclusive_or(instruction: Instruction, x: Instruction, other: Instruction) -> Instruction | None:
    """Simplifies x xor y where y is x, all ones or zero."""
    if is_splat_of(other, 0):
        return x
    if x is other:
        return construct.splat_of(instruction, 0, x.array_shape)
    return construct.elementwise(instruction, "not", x) if is_all_ones(other) else None


@RULES.on("select")
def select(instruction: Instruction) -> Instruction | None:
    """A select by a known predicate, between equal operands, or by an inverted predicate."""
    predicate, on_true, on_false = instruction.operands
    if on_true is on_false or is_splat_of(predicate, 1):
        return on_true
    if is_splat_of(predicate, 0):
        return on_false
    if predicate.opcode == "not":
        return changed(instruction, operands=(predicate.operands[0], on_false, on_true))
    return None


@RULES.on("select")
def select_of_true_and_false(instruction: Instruction) -> Instruction | None:
    """A select between true and false is the predicate, or its inverse."""
    predicate, on_true, on_false = instruction.operands
    if predicate.shape != instruction.shape:
        return None
    if is_splat_of(on_true, 1) and is_splat_of(on_false, 0):
        return predicate
    if is_splat_of(on_true, 0) and is_splat_of(on_false, 1):
        return construct.elementwise(instruction, "not", predicate)
    return None


@RULES.on("compare")
def compare_with_itself(instruction: Instruction) -> Instruction | None:
    """A comparison of an integer or pred with itself; a float may be NaN, which does not equal itself."""
    lhs, rhs = instruction.operands
    if lhs is not rhs or not (is_integer(lhs) or lhs.array_shape.element_type == "pred"):
        return None
    holds = instruction["direction"] in ("EQ", "LE", "GE")
    return construct.splat_of(instruction, holds, instruction.array_shape)
