"""Chains of conversions whose first step is lossless."""

from __future__ import annotations

from engine.ir import Instruction
from engine.ir.shape import FLOATS, INTEGERS, SIGNED, UNSIGNED
from engine.passes.rewriting import RuleSet, changed

RULES = RuleSet()

MANTISSA_BITS = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}


def _width(element_type: str) -> int:
    return int(element_type[1:])


def holds_all_of(wide: str, narrow: str) -> bool:
    """Whether each value of the element type `narrow` is a value of `wide` as well."""
    if wide == narrow:
        return True
    if narrow == "pred":
        return wide in INTEGERS or wide in FLOATS
    if narrow in FLOATS:
        return wide in FLOATS and (wide == "f64" or (wide == "f32" and narrow in ("f16", "bf16")))
    if narrow not in INTEGERS:
        return False
    magnitude = _width(narrow) - (narrow in SIGNED)
    if wide in FLOATS:
        # The most negative integer is a power of two, which every floating-point type represents.
        return magnitude <= MANTISSA_BITS[wide]
    if wide in UNSIGNED:
        return narrow in UNSIGNED and _width(wide) >= magnitude
    return wide in SIGNED and _width(wide) - 1 >= magnitude


def may_skip(source: str, middle: str, target: str) -> bool:
    """Whether source -> middle -> target gives the same as source -> target.

    From a float, or to a float or a pred, a conversion depends on the value alone. An integer out of range
    wraps when it comes from an integer but saturates when it comes from a float, hence the last condition.
    """
    if not holds_all_of(middle, source):
        return False
    same_kind = (source in FLOATS) == (middle in FLOATS)
    return same_kind or target in FLOATS or target == "pred" or holds_all_of(target, source)


@RULES.on("convert")
def convert_of_convert(instruction: Instruction) -> Instruction | None:
    """Skips a lossless middle type."""
    operand = instruction.operands[0]
    if operand.opcode != "convert":
        return None
    source = operand.operands[0]
    types = [i.array_shape.element_type for i in (source, operand, instruction)]
    if not may_skip(*types):
        return None
    return source if source.shape == instruction.shape else changed(instruction, operands=(source,))
