"""reduce, with any body and any number of operands."""

from __future__ import annotations

import numpy as np

from engine.ir import Computation, Instruction
from engine.ops.apply import UFUNCS, apply_to_arrays, single_operation
from engine.ops.floats import computing
from engine.ops.registry import Value, definition


def reduce_last(body: Computation, operands: list[np.ndarray], initial: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Folds [..., n] along the last dimension, in order from the initial values on: body(accumulators, elements).

    HLO leaves the order to the compiler. It matters only for a body that is not associative; here it is the order of
    XLA's CPU backend. Floats are summed pairwise, by NumPy.
    """
    operation = single_operation(body)
    if len(operands) == 1 and operation in UFUNCS and operation != "subtract":
        ufunc, x = UFUNCS[operation], computing(operands[0])
        total = ufunc.reduce(x, axis=-1, dtype=x.dtype, initial=computing(initial[0])[()])
        return (np.asarray(total).astype(operands[0].dtype),)
    shape = operands[0].shape[:-1]
    result = tuple(np.broadcast_to(value, shape) for value in initial)
    for k in range(operands[0].shape[-1]):
        result = apply_to_arrays(body, [*result, *(x[..., k] for x in operands)])
    return result


@definition("reduce")
def _reduce(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Reduces the first half of the operands, arrays of one shape; the second half are their initial values."""
    half = len(operands) // 2
    arrays, initial = operands[:half], operands[half:]
    reduced = sorted(instruction["dimensions"])
    kept = [d for d in range(arrays[0].ndim) if d not in reduced]
    kept_sizes = [arrays[0].shape[d] for d in kept]
    count = int(np.prod([arrays[0].shape[d] for d in reduced], dtype=np.int64))
    flat = [np.ascontiguousarray(x.transpose(kept + reduced)).reshape([*kept_sizes, count]) for x in arrays]
    results = reduce_last(instruction.called[0], flat, initial)
    return results[0] if half == 1 else results
