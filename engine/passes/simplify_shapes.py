"""Removes instructions that only move data, or brings them into canonical form.

Values keep their bits, except for reductions over dimensions of size one (a sum with zero may leave -0 unchanged)
and reductions of a transposed operand (the terms are added in another order).
"""

from __future__ import annotations

from engine.ir import Module
from engine.passes.rewriting import RuleSet, rewrite
from engine.passes.rules import broadcast, joining, reduction, reshape, shorthand, slice, transpose, trivial

FAMILIES = (trivial, reshape, transpose, broadcast, slice, joining, reduction, shorthand)
RULES = RuleSet(*(each.RULES for each in FAMILIES))


def simplify_shapes(module: Module) -> Module:
    """Applies the shape rules of engine/passes/rules to every computation."""
    return rewrite(module, RULES)
