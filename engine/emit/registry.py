"""The table of elementwise operations and their LLVM IR emitters."""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, isfinite
from typing import Any

from engine.codelets.language.lanes import Lanes, is_complex
from engine.errors import UnsupportedOperation
from engine.ir.opcodes import registering
from engine.machine_code.llvm import ir
from engine.program.nest import Operation

Emitter = Callable[[Lanes, Operation, list[ir.Value]], ir.Value]
EXACT = frozenset(("abs", "clamp", "maximum", "maximum-number", "minimum", "negate", "select"))
"""Operations that return an operand, if with another sign: results are never rounded."""
LONG_FUNCTIONS = frozenset(("erf", "erfc", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic"))
LONG_FUNCTIONS |= {"tanh", "sine", "cosine", "power"}
"""Functions that are polynomials of many terms."""
FLUSHING = frozenset(("add", "subtract", "multiply", "divide", "sqrt", "rsqrt")) | LONG_FUNCTIONS
"""Arithmetic whose denormal results are zeros under the executor."""
EMITTERS: dict[str, Emitter] = {}
COMPLEX_EMITTERS: dict[str, Emitter] = {}
"""The emitters of operations with complex operands or results."""
emitter, complex_emitter = registering(EMITTERS), registering(COMPLEX_EMITTERS)


def emit_operation(
    lanes: Lanes,
    operation: Operation,
    operands: list[ir.Value],
    is_normal: bool = False,
    has_short_nan: bool = False,
) -> ir.Value:
    """Emits one elementwise operation, rounded to its element type.

    With `is_normal` the result is no denormal number under the executor, because it converts a result of arithmetic.
    `has_short_nan`: as for `Lanes.rounded`.
    """
    value = emit_unrounded(lanes, operation, operands)
    if operation.opcode in EXACT and operation.element_type in operation.operand_types:
        return value
    if _is_scaled_by_power_of_two(operation, operands):
        return value
    return lanes.rounded(value, operation.element_type, is_normal or operation.opcode in FLUSHING, has_short_nan)


def emit_unrounded(lanes: Lanes, operation: Operation, operands: list[ir.Value]) -> ir.Value:
    """Emits an operation without rounding its result. Raises UnsupportedOperation if there is no emitter."""
    complex_types = any(map(is_complex, (operation.element_type, *operation.operand_types)))
    write = (COMPLEX_EMITTERS if complex_types else EMITTERS).get(operation.opcode)
    if write is None:
        raise UnsupportedOperation(
            f"Expected an elementwise operation that the engine runs. Received: {operation.opcode} of "
            f"{', '.join(operation.operand_types)}. docs/supported_ops.md lists what runs."
        )
    return write(lanes, operation, operands)


def _is_scaled_by_power_of_two(operation: Operation, operands: list[ir.Value]) -> bool:
    """Whether a product of bf16 is exact: a factor is a power of two, and bf16 has the exponent range of f32."""
    if (operation.opcode, operation.element_type) != ("multiply", "bf16"):
        return False
    factors = [value for each in operands if isinstance(each, ir.Constant) and (value := _number(each)) is not None]
    return any(isfinite(value) and abs(frexp(value)[0]) == 0.5 for value in factors)


def _number(constant: ir.Constant) -> float | None:
    """Returns the float that a constant has in all lanes, or None if the lanes differ."""
    first, *others = numbers_in(constant)
    return first if isinstance(first, float) and all(each == first for each in others) else None


def numbers_in(constant: ir.Constant) -> list[Any]:
    """The numbers in the lanes of a constant, or what LLVM has in place of them."""
    values = constant.constant if isinstance(constant.constant, list | tuple) else [constant.constant]
    return [getattr(each, "constant", each) for each in values]
