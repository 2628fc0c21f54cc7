"""Which element types each elementwise op takes: those for which it has a definition here, much as in XLA."""

from __future__ import annotations

from engine.ir.module import Instruction
from engine.ir.shape import FLOATS, INTEGERS, Shape
from engine.ir.shape_rules import REAL_TYPES, require

COMPLEX = frozenset(REAL_TYPES)
NUMBERS = FLOATS | INTEGERS | COMPLEX
PRED = frozenset({"pred"})
ORDERED = FLOATS | INTEGERS | PRED

TAKEN: dict[str, frozenset[str]] = {
    **dict.fromkeys(("ceil", "floor", "round-nearest-even", "round-nearest-afz", "reduce-precision"), FLOATS),
    **dict.fromkeys(("erf", "erfc", "is-finite"), FLOATS),
    **dict.fromkeys(("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic"), FLOATS | COMPLEX),
    **dict.fromkeys(("cosine", "sine", "tan", "tanh", "sqrt", "rsqrt", "cbrt", "atan2"), FLOATS | COMPLEX),
    **dict.fromkeys(("real", "imag", "cholesky", "triangular-solve"), FLOATS | COMPLEX),
    **dict.fromkeys(("popcnt", "count-leading-zeros"), INTEGERS),
    **dict.fromkeys(("shift-left", "shift-right-logical", "shift-right-arithmetic"), INTEGERS),
    **dict.fromkeys(("and", "or", "xor", "not"), INTEGERS | PRED),
    **dict.fromkeys(("subtract", "divide", "remainder", "power", "negate", "abs", "sign"), NUMBERS),
    **dict.fromkeys(("maximum", "minimum", "clamp"), ORDERED),
    **dict.fromkeys(("iota",), NUMBERS),
}
"""The element types of operands, and of the result of an iota. An op that is not named takes any."""


def check_element_types(instruction: Instruction) -> None:
    """Raises InternalError for an op on a type it is not defined for."""
    operands = [o.shape for o in instruction.operands] or [instruction.shape]
    kinds = [shape.element_type for shape in operands if isinstance(shape, Shape)]
    taken = TAKEN.get(instruction.opcode)
    if taken is not None:
        wrong = sorted({*kinds} - taken)
        require(
            not wrong, f"Expected {', '.join(sorted(taken))} in {instruction.opcode}. Received: {', '.join(wrong)}."
        )
    if instruction.opcode == "remainder":
        require(not COMPLEX & {*kinds}, "Expected real numbers in remainder. Received: complex ones.")
    if instruction.opcode == "compare" and COMPLEX & {*kinds}:
        direction = instruction.get("direction")
        require(direction in ("EQ", "NE"), f"Expected EQ or NE of complex numbers. Received: {direction}.")
    if instruction.opcode in ("convert", "dot", "convolution") and COMPLEX & {*kinds}:
        result = instruction.array_shape.element_type
        require(result in COMPLEX, f"Expected a complex result of {', '.join(kinds)}. Received: {result}; take `real`.")
