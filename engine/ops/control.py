"""Constants, tuples, and operations that run other computations: call, map, while, conditional."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction
from engine.ops.apply import apply, apply_to_arrays
from engine.ops.registry import Value, definition


@definition("constant")
def _constant(instruction: Instruction, _: list[np.ndarray]) -> np.ndarray:
    return instruction["literal"]


@definition("tuple")
def _tuple(_: Instruction, operands: list[np.ndarray]) -> Value:
    return tuple(operands)


@definition("get-tuple-element")
def _get_tuple_element(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    return operands[0][instruction["tuple_index"]]


@definition("after-all")
def _after_all(_: Instruction, __: list[np.ndarray]) -> Value:
    """A token, which has no value and only orders."""
    return ()


@definition("call", "fusion")
def _call(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    return apply(instruction.called[0], operands)


@definition("map")
def _map(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    return np.asarray(apply_to_arrays(instruction.called[0], operands)[0])


@definition("while")
def _while(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Runs a loop; `called` is the body, then the condition."""
    body, condition = instruction.called
    state: Value = operands[0]
    while apply(condition, [state]):
        state = apply(body, [state])
    return state


@definition("conditional")
def _conditional(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Runs a branch: a pred selects the first when true, else the second; an index out of range selects the last."""
    selector, *arguments = operands
    if selector.dtype == np.bool_:
        branch = 0 if selector else 1
    else:
        branch = int(selector) if 0 <= selector < len(arguments) else len(arguments) - 1
    return apply(instruction.called[branch], [arguments[branch]])
