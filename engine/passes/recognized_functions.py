"""Recognises functions of one variable by their values, in the operations of which TensorFlow composes them: erfc.

For erfc, which gelu uses, TensorFlow emits sixty operations, two divisions among them. The lanes need fewer.
"""

from __future__ import annotations

import heapq
import logging
from math import erfc

import numpy as np

from engine.ir import Computation, Instruction, Shape
from engine.ops.registry import DEFINITIONS
from engine.passes.fusible import is_elementwise, is_unit_reshape
from engine.passes.rewriting import Visit, changed, for_each, make
from engine.passes.splats import splat_value

MOST_OPERATIONS = 150
"""Most operations of a subgraph that is considered."""
LEAST_OPERATIONS = 20
"""Subgraphs with fewer operations are left unchanged: few of them take longer than the function."""
SAMPLES = np.sort(np.append(np.linspace(-12, 9, 1009), [-2.0, -1.0, 0.0, 1.0, 2.0])).astype(np.float32)
"""Arguments up to where the function becomes denormal; np.unique would import numpy.ma."""
EXPECTED = np.array([erfc(x) for x in SAMPLES.tolist()])
TOLERANCE = 1e-5
"""Largest relative error of a function that is recognised."""
Path = tuple[int, ...]
logger = logging.getLogger("ipu")


@for_each
def recognized_functions(computation: Computation) -> Visit:
    """Replaces f32 subgraphs that have the values of erfc at many points by `erfc`."""
    position = {instruction: k for k, instruction in enumerate(computation.instructions)}

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        if before.opcode != "select" or before.array_shape.element_type != "f32":
            return None
        found = _argument(before, position)
        if found is None or not _is_erfc(before, *found):
            return None
        argument = instruction
        for number in _way(before, found[0]):
            argument = argument.operands[number]
        return make(instruction, "erfc", instruction.shape, (argument,))

    return visit


def _argument(root: Instruction, position: dict[Instruction, int]) -> tuple[Instruction, list[Instruction]] | None:
    """The nearest instruction on which all others depend, and these others, operands first; None if there is none."""
    pending, inside = [-position[root]], {root}
    by_position: dict[int, Instruction] = {position[root]: root}
    cone: list[Instruction] = []
    while pending and len(cone) <= MOST_OPERATIONS:
        current = by_position[-heapq.heappop(pending)]
        if not pending and len(cone) >= LEAST_OPERATIONS and current.shape == root.shape:
            return current, cone[::-1]
        if not is_elementwise(current) or is_unit_reshape(current):
            return None
        cone.append(current)
        for operand in current.operands:
            if operand not in inside and splat_value(operand) is None:
                inside.add(operand)
                by_position[position[operand]] = operand
                heapq.heappush(pending, -position[operand])
    return None


def _is_erfc(root: Instruction, argument: Instruction, cone: list[Instruction]) -> bool:
    if not any(instruction.opcode == "exponential" for instruction in cone):
        return False
    try:
        found = _at_samples(root, argument, cone)
    except Exception as error:  # a definition may raise any error at the samples: the program stays unchanged
        logger.debug("%r is not looked at: %r", root, error)
        return False
    return found.shape == EXPECTED.shape and bool(np.all(np.abs(found - EXPECTED) <= TOLERANCE * EXPECTED))


def _at_samples(root: Instruction, argument: Instruction, cone: list[Instruction]) -> np.ndarray:
    """The root's values, f64, if the argument has one element for each of SAMPLES."""
    values: dict[Instruction, np.ndarray] = {argument: SAMPLES}
    with np.errstate(all="ignore"):
        for instruction in cone:
            operands = [values[o] if o in values else _repeated(o) for o in instruction.operands]
            # definitions read their instruction's shape, which has to be that of the samples
            here = changed(instruction, shape=Shape(instruction.array_shape.element_type, SAMPLES.shape))
            values[instruction] = np.asarray(DEFINITIONS[instruction.opcode](here, operands))
    return values[root].astype(np.float64)


def _repeated(splat: Instruction) -> np.ndarray:
    value = splat_value(splat)
    assert value is not None, splat
    return np.full(SAMPLES.shape, value)


def _way(root: Instruction, argument: Instruction) -> Path:
    """The operand numbers on a path from one instruction to another."""
    ways: dict[Instruction, Path] = {root: ()}
    stack = [root]
    while stack:
        current = stack.pop()
        if current is argument:
            return ways[current]
        for number, operand in enumerate(current.operands):
            if operand not in ways:
                ways[operand] = (*ways[current], number)
                stack.append(operand)
    raise AssertionError(argument.name)
