"""Takes away arithmetic that changes nothing.

Results keep their bits, but for a NaN's payload and x ** 2, which is computed as x * x.
"""

from __future__ import annotations

from engine.ir import Module
from engine.passes.rewriting import RuleSet, rewrite
from engine.passes.rules import arithmetic, broadcast, convert, elementwise, logic, reshape

# Arithmetic moves ahead of reshapes: unless these merge at once, a chain costs its length squared.
RULES = RuleSet(arithmetic.RULES, logic.RULES, convert.RULES, elementwise.RULES, reshape.RULES, broadcast.RULES)


def simplify_arithmetic(module: Module) -> Module:
    """See the rules in engine/passes/rules."""
    return rewrite(module, RULES)
