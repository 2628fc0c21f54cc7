"""Evaluates instructions that depend on constants alone, with the op definitions.

An array of equal elements is folded through its one value and stays a broadcast, however large it is.
"""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction, Shape
from engine.ir.opcodes import DATA_MOVEMENT, ELEMENTWISE
from engine.ir.properties import is_elementwise
from engine.ops import DEFINITIONS
from engine.passes import construct
from engine.passes.rewriting import changed, on_each
from engine.passes.splats import splat_value

LARGEST_RESULT = 4096
"""Elements of a folded result: recomputing a larger one costs less than storing it."""
LARGEST_OPERAND = 65536
"""Largest sum of the elements of folded operands."""
FOLDED = (ELEMENTWISE | DATA_MOVEMENT | {"reduce", "dot"}) - {"broadcast"}
"""Opcodes that are folded. A broadcast of a constant is kept: rules recognise it, and it needs no memory."""


@on_each("constant", *sorted(FOLDED))
def constant_folding(instruction: Instruction) -> Instruction | None:
    """Folds an instruction all of whose operands are constants, splats or small iotas."""
    if instruction.opcode == "constant":
        return _as_splat(instruction)
    if not isinstance(instruction.shape, Shape):
        return None
    if is_elementwise(instruction):
        values = [splat_value(operand) for operand in instruction.operands]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            return _fold_splats(instruction, known)
    return _fold_arrays(instruction)


def _as_splat(instruction: Instruction) -> Instruction | None:
    """Replaces a literal of equal elements by a broadcast, which rules recognise and which needs no storage."""
    literal: np.ndarray = instruction["literal"]
    if literal.size < 2:
        return None
    first = literal.reshape(-1)[:1]
    raw = np.ascontiguousarray(literal).view(np.uint8).reshape(literal.size, -1)
    if np.any(raw != first.view(np.uint8)):
        return None
    return construct.splat_of(instruction, first.reshape(()).copy(), instruction.array_shape)


def _fold_splats(instruction: Instruction, values: list[np.ndarray]) -> Instruction:
    scalar = instruction.array_shape.with_dimensions(())
    result = _evaluated(changed(instruction, shape=scalar), values)
    return construct.splat_of(instruction, result, instruction.array_shape)


def _fold_arrays(instruction: Instruction) -> Instruction | None:
    moves_nothing = instruction.opcode == "reshape" and instruction.operands[0].opcode == "constant"
    if not moves_nothing:
        if instruction.array_shape.elements > LARGEST_RESULT:
            return None
        if sum(operand.array_shape.elements for operand in instruction.operands) > LARGEST_OPERAND:
            return None
    values = [_known_value(operand) for operand in instruction.operands]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return construct.constant(instruction, _evaluated(instruction, known), instruction.array_shape)


def _known_value(instruction: Instruction) -> np.ndarray | None:
    """The value of a constant, an iota or a broadcast of one of them; None for anything else."""
    if instruction.opcode == "constant":
        literal: np.ndarray = instruction["literal"]
        return literal
    if instruction.opcode == "iota":
        return _evaluated(instruction, [])
    if instruction.opcode == "broadcast":
        inner = _known_value(instruction.operands[0])
        return None if inner is None else _evaluated(instruction, [inner])
    return None


def _evaluated(instruction: Instruction, values: list[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        result = DEFINITIONS[instruction.opcode](instruction, values)
    return np.array(result, instruction.array_shape.dtype, order="C")
