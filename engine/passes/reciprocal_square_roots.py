"""Divisions by square roots with the precision of the processor's estimates: optimizer updates in half the time.

x / sqrt(y) becomes x * rsqrt(y), within 2 ULP. In x / (sqrt(y) + c), as in Adam, root and division get HLO's attribute
result_accuracy with that many ULP.
"""

from __future__ import annotations

from engine.ir import Instruction, Module
from engine.passes.rewriting import RuleSet, make, rewrite
from engine.passes.splats import splat_value

RULES = RuleSet()
ULPS = 2
LEAST, LARGEST = 1e-12, 2.0**100
"""Bounds of c. Roots of near-denormal numbers, whose estimates are imprecise, are negligible beside the least; with the
largest, divisors stay far below numbers whose reciprocals are denormal."""


@RULES.on("divide")
def divide_by_square_root(instruction: Instruction) -> Instruction | None:
    """x / sqrt(y), in f32 only: there the processor has an estimate to start from."""
    x, y = instruction.operands
    if y.opcode != "sqrt" or instruction.array_shape.element_type != "f32":
        return None
    inverse = make(y, "rsqrt", y.shape, y.operands, result_accuracy=ULPS)
    return make(instruction, "multiply", instruction.shape, (x, inverse))


@RULES.on("divide")
def divide_by_square_root_and_constant(instruction: Instruction) -> Instruction | None:
    """x / (sqrt(y) + c), in f32 only, for positive constants in range, which keep the divisor in range too."""
    x, y = instruction.operands
    if y.opcode != "add" or instruction.array_shape.element_type != "f32" or instruction.get("result_accuracy"):
        return None
    root, other = y.operands if y.operands[0].opcode == "sqrt" else y.operands[::-1]
    added = splat_value(other)
    if root.opcode != "sqrt" or added is None or not LEAST <= added < LARGEST:
        return None
    estimated = make(root, "sqrt", root.shape, root.operands, result_accuracy=ULPS)
    divisor = make(y, "add", y.shape, (estimated, other))
    return make(instruction, "divide", instruction.shape, (x, divisor), result_accuracy=ULPS)


def reciprocal_square_roots(module: Module) -> Module:
    """Applies the rules to every computation."""
    return rewrite(module, RULES)
