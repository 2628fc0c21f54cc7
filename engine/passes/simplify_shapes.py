"""Removes instructions that only move data, or brings them into canonical form.

Values keep their bits, except for reductions over dimensions of size one (a sum with zero may leave -0 unchanged)
and reductions of a transposed operand (the terms are added in another order).
"""

from __future__ import annotations

from engine.ir import Module
from engine.passes.rewriting import RuleSet, rewrite
from engine.passes.rules import broadcast, joining, reduction, reshape, shorthand, slice, transpose, trivial

RULES = RuleSet(
    trivial.RULES,
    reshape.RULES,
    transpose.RULES,
    broadcast.RULES,
    slice.RULES,
    joining.RULES,
    reduction.RULES,
    shorthand.RULES,
)


def simplify_shapes(module: Module) -> Module:
    """Applies the shape rules of engine/passes/rules to every computation."""
    return rewrite(module, RULES)
