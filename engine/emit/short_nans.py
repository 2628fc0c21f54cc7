"""Operations whose NaN have a lower half of zeros, so that rounding them to bf16 need not test for NaN.

Arithmetic makes such NaN, and passes on the bits of an operand's. Only arrays of other types have NaN with any bits,
which a carry from the lower half could make a zero.
"""

from __future__ import annotations

from engine.codelets.language.lanes import is_complex, is_float
from engine.emit.point import element_type_of
from engine.emit.registry import EXACT, LONG_FUNCTIONS
from engine.program.nest import Apply, Constant, MultiplyAdd, Nest, Parameter

PASSING = EXACT | LONG_FUNCTIONS | {"add", "convert", "divide", "multiply", "rsqrt", "sqrt", "subtract"}
PASSING -= {"cosine", "power", "sine"}
"""Operations of which a NaN has the bits of an operand's or a single one."""


def short_nans(nest: Nest) -> frozenset[int]:
    """The nodes whose NaN have such bits before they are rounded."""
    short, results = set[int](), set[int]()
    for number, node in enumerate(nest.nodes):
        kind = element_type_of(nest.nodes, number, nest.accesses)
        passes = isinstance(node, Constant | Parameter | MultiplyAdd) or (
            isinstance(node, Apply) and node.operation.opcode in PASSING
        )
        if passes and all(each in results for each in getattr(node, "operands", ())):
            short.add(number)
        has_any_bits = is_complex(kind) or (is_float(kind) and kind != "bf16")
        if not has_any_bits or (number in short and kind == "f32"):
            results.add(number)
    return frozenset(short)
