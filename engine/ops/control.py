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
    selector, *arguments = operands
    branch = branch_taken(selector, len(arguments))
    return apply(instruction.called[branch], [arguments[branch]])


def branch_taken(selector: np.ndarray, branches: int) -> int:
    """The branch that runs: a pred selects the first when true, else the second; an index out of range the last."""
    choice = selector.item()
    if isinstance(choice, bool):
        return 0 if choice else 1
    return choice if 0 <= choice < branches else branches - 1
