"""Chains of conversions whose first step is lossless."""

from __future__ import annotations

from engine.ir import Instruction
from engine.ir.shape import FLOATS, holds_all_of
from engine.passes.rewriting import RuleSet, changed

RULES = RuleSet()


def may_skip(source: str, middle: str, target: str) -> bool:
    """Whether source -> middle -> target gives the same as source -> target.

    From a float, or to a float or a pred, a conversion depends on the value alone. An integer out of range
    wraps when it comes from an integer but saturates when it comes from a float, hence the last condition.
    """
    if not holds_all_of(middle, source):
        return False
    same_kind = (source in FLOATS) == (middle in FLOATS)
    return same_kind or target in FLOATS or target == "pred" or holds_all_of(target, source)


@RULES.on("convert", of="convert")
def convert_of_convert(instruction: Instruction) -> Instruction | None:
    """Skips a lossless middle type."""
    operand = instruction.operands[0]
    source = operand.operands[0]
    types = [i.array_shape.element_type for i in (source, operand, instruction)]
    if not may_skip(*types):
        return None
    return source if source.shape == instruction.shape else changed(instruction, operands=(source,))
