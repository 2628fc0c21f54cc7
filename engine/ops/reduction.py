"""reduce, with any body and any number of operands."""

from __future__ import annotations

import numpy as np

from engine.ir import Computation, Instruction
from engine.ops.apply import UFUNCS, apply_to_arrays, single_operation
from engine.ops.floats import computing
from engine.ops.registry import Value, definition


def reduce_last(
    body: Computation, operands: list[np.ndarray], initial: list[np.ndarray], kept: int
) -> tuple[np.ndarray, ...]:
    """Folds all dimensions after the first `kept`, in order from the initial values on: body(accumulators, elements).

    HLO leaves the order to the compiler. It matters only for a body that is not associative; here it is the order of
    XLA's CPU backend. Floats are summed pairwise, by NumPy.
    """
    operation = single_operation(body)
    if len(operands) == 1 and operation in UFUNCS and operation != "subtract":
        ufunc, x = UFUNCS[operation], computing(operands[0])
        axes = tuple(range(kept, x.ndim))
        total = ufunc.reduce(x, axis=axes, dtype=x.dtype, initial=computing(initial[0])[()])
        return (np.asarray(total).astype(operands[0].dtype),)
    result = tuple(np.broadcast_to(value, operands[0].shape[:kept]) for value in initial)
    for position in np.ndindex(*operands[0].shape[kept:]):
        result = apply_to_arrays(body, [*result, *(x[(..., *position)] for x in operands)])
    return result


@definition("reduce")
def _reduce(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Reduces the first half of the operands, arrays of one shape; the second half are their initial values."""
    half = len(operands) // 2
    arrays, initial = operands[:half], operands[half:]
    reduced = sorted(instruction["dimensions"])
    kept = [d for d in range(arrays[0].ndim) if d not in reduced]
    ordered = [np.ascontiguousarray(x.transpose(kept + reduced)) for x in arrays]
    results = reduce_last(instruction.called[0], ordered, initial, len(kept))
    return results[0] if half == 1 else results
