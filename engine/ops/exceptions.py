"""Floating-point exceptions of operations, in plain NumPy: by results and operands.

An elementwise operation raises for each element: an invalid operation where NaN comes from operands other than NaN, a
division by zero or an overflow where infinity comes from finite ones. Sums and products raise for arrays as a whole: a
result is an exception if no operand has an element that explains it. Non-finite operands raise none by themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from engine.ir import Instruction
from engine.ir.floating_point import DIVISION_BY_ZERO, EXCEPTIONS, INVALID, OVERFLOW
from engine.ir.opcodes import CONTRACTIONS, ELEMENTWISE, LINEAR_ALGEBRA, OPCODES, QUIET, REDUCTIONS
from engine.ir.origin import Origin
from engine.ops.apply import flat, single_operation, watched
from engine.ops.floats import computing, is_complex, is_float
from engine.ops.registry import Value
from engine.ops.rounding import nearest_half, stochastic_half

Raised = tuple[str, Origin, int]


def exceptions_of(instruction: Instruction, operands: list[np.ndarray], result: np.ndarray) -> dict[str, int]:
    """Number of elements that raise each exception; an empty dictionary for none."""
    if not is_float(result) or any(is_complex(o) for o in operands):
        return {}
    if instruction.opcode in ELEMENTWISE and instruction.opcode not in QUIET:
        counts = _elementwise(instruction, operands, result)
    elif instruction.opcode in CONTRACTIONS | LINEAR_ALGEBRA or _is_sum(instruction):
        counts = _of_arrays(operands, result)
    else:
        return {}
    return {name: count for name, count in counts.items() if count}


def _is_sum(instruction: Instruction) -> bool:
    if instruction.opcode in ("reduce", "reduce-window"):
        return single_operation(instruction.called[0]) in ("add", "multiply")
    return instruction.opcode in REDUCTIONS


def _elementwise(instruction: Instruction, operands: list[np.ndarray], result: np.ndarray) -> dict[str, int]:
    if instruction.get("overflow") == "infinity" or instruction.get("overflow") is None:
        plain = result
    elif instruction.opcode == "convert":
        plain = nearest_half(operands[0], "infinity")
    else:
        plain = stochastic_half(operands[0], operands[1], "infinity")
    value = computing(plain)
    floats = [computing(o) for o in operands if is_float(o)]
    nan_before = np.any([np.isnan(o) for o in floats], axis=0) if floats else np.False_
    finite_before = np.all([np.isfinite(o) for o in floats], axis=0) if floats else np.True_
    infinite = np.isinf(value) & finite_before
    divided: np.ndarray | np.bool_ = np.False_
    if (zero := OPCODES[instruction.opcode].pole) is not None:
        at, pole = zero
        divided = computing(operands[at]) == pole
    return {
        INVALID: int(np.sum(np.isnan(value) & ~nan_before)),
        DIVISION_BY_ZERO: int(np.sum(infinite & divided)),
        OVERFLOW: int(np.sum(infinite & ~divided)),
    }


def _of_arrays(operands: list[np.ndarray], result: np.ndarray) -> dict[str, int]:
    value = computing(result)
    floats = [computing(o) for o in operands if is_float(o)]
    if any(bool(np.isnan(o).any()) for o in floats):
        return {}
    if any(bool(np.isinf(o).any()) for o in floats):
        return {INVALID: int(np.isnan(value).sum())}
    return {OVERFLOW: int((~np.isfinite(value)).sum())}


@contextlib.contextmanager
def watching_exceptions(exceptions: frozenset[str]) -> Iterator[list[Raised]]:
    """Collects exceptions of these names that definitions raise in the context, in order: name, operation, elements."""
    found: list[Raised] = []

    def watch(instruction: Instruction, operands: list[Value], value: Value) -> None:
        if isinstance(value, tuple):
            return
        arrays = [part for operand in operands for part in flat(operand)]
        counts = exceptions_of(instruction, arrays, value)
        origin = Origin(instruction.get("stands_for", instruction.opcode), instruction.op_name, value.size)
        found.extend((name, origin, counts[name]) for name in EXCEPTIONS if name in counts and name in exceptions)

    if not exceptions:
        yield found
        return
    with watched(watch):
        yield found
