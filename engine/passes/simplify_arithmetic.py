"""Removes arithmetic that changes no value.

Results keep their bits, except for a NaN's payload and x ** 2, which is computed as x * x.
"""

from __future__ import annotations

from engine.ir import Module
from engine.passes.rewriting import RuleSet, rewrite
from engine.passes.rules import arithmetic, broadcast, convert, elementwise, logic, reshape, trivial

# Arithmetic moves before reshapes: unless these merge at once, a chain takes quadratic time.
RULES = RuleSet(*(each.RULES for each in (arithmetic, logic, convert, elementwise, trivial, reshape, broadcast)))


def simplify_arithmetic(module: Module) -> Module:
    """Applies the arithmetic and logic rules of engine/passes/rules to every computation."""
    return rewrite(module, RULES)
