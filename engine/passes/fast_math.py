"""Rules that are exact only in real arithmetic, for programs compiled with fast math.

NaN, infinities, signed zeros and the rounding of each operation are not preserved. Integers are left alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.ir import Instruction, Module
from engine.passes import construct
from engine.passes.rewriting import RuleSet, rewrite
from engine.passes.rules.arithmetic import either_order, is_float
from engine.passes.splats import is_splat_of, splat_value

RULES = RuleSet()


@RULES.on("divide")
def divide(instruction: Instruction) -> Instruction | None:
    """Replaces x / x by 1, and division by a broadcast by a product with the reciprocals of its fewer elements."""
    x, y = instruction.operands
    if not is_float(x):
        return None
    if x is y:
        return construct.splat_of(instruction, 1, x.array_shape)
    if y.opcode != "broadcast" or y.operands[0].array_shape.elements >= y.array_shape.elements:
        return None
    (small,) = y.operands
    if small.opcode == "constant" and not _has_reciprocals(small["literal"]):
        return None
    one = construct.splat_of(instruction, 1, small.array_shape)
    if small.opcode == "constant":
        inverse = construct.constant(small, 1 / small["literal"], small.array_shape)
    else:
        inverse = construct.elementwise(instruction, "divide", one, small)
    spread = construct.broadcast(y, inverse, y.array_shape.dimensions, y["dimensions"])
    return construct.elementwise(instruction, "multiply", x, spread)


@RULES.on("subtract")
def subtract(instruction: Instruction) -> Instruction | None:
    """A value minus itself is 0; minus zero is the value."""
    x, y = instruction.operands
    if not is_float(x):
        return None
    return construct.splat_of(instruction, 0, x.array_shape) if x is y else x if is_splat_of(y, 0) else None


@RULES.on("add")
@either_order
def add(instruction: Instruction, x: Instruction, other: Instruction) -> Instruction | None:
    """Simplifies adding zero, and merges two constants that are added one after the other."""
    if is_float(x) and is_splat_of(other, 0):
        return x
    return _reassociated(instruction, x, other, np.add, _is_finite)


@RULES.on("multiply")
@either_order
def multiply(instruction: Instruction, x: Instruction, factor: Instruction) -> Instruction | None:
    """Simplifies multiplying by zero, and merges two constants that are multiplied one after the other."""
    if is_float(x) and is_splat_of(factor, 0):
        return factor
    return _reassociated(instruction, x, factor, np.multiply, _has_reciprocals)


def _reassociated(
    instruction: Instruction,
    x: Instruction,
    second: Instruction,
    combine: Callable[..., np.ndarray],
    is_in_range: Callable[[np.ndarray], bool],
) -> Instruction | None:
    """(y op first) op second as y op (first op second), for constants with one value each and a result in range."""
    if not is_float(x) or x.opcode != instruction.opcode:
        return None
    value = splat_value(second)
    if value is None:
        return None
    for y, first in (x.operands, x.operands[::-1]):
        other = splat_value(first)
        if other is not None and splat_value(y) is None:
            with np.errstate(all="ignore"):
                both = np.asarray(combine(other, value), instruction.array_shape.dtype).reshape(())
            if not is_in_range(both):
                continue
            constant = construct.splat_of(instruction, both, instruction.array_shape)
            return construct.elementwise(instruction, instruction.opcode, y, constant)
    return None


def _is_finite(value: np.ndarray) -> bool:
    return bool(np.isfinite(np.asarray(value, np.float64)))


def _has_reciprocals(literal: np.ndarray) -> bool:
    """Whether the reciprocal of each element is finite and not 0."""
    wide = np.asarray(literal, np.float64)
    with np.errstate(all="ignore"):
        inverse = np.asarray(1 / wide).astype(literal.dtype).astype(np.float64)
    return bool(np.all(np.isfinite(inverse) & (inverse != 0)))


def fast_math(module: Module) -> Module:
    """Applies the rules to every computation."""
    return rewrite(module, RULES)
