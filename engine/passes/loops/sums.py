"""The sum of a value over all iterations of a loop, computed at once."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction
from engine.ir.builder import binary_computation
from engine.ir.opcodes import AFFINE
from engine.passes import construct
from engine.passes.loops.batching import Operand, summed_dot
from engine.passes.rewriting import changed, make


def summed(instruction: Instruction, known: dict[Instruction, Operand], iterations: int) -> Instruction:
    """The sum over `iterations` iterations; `known` has the values of it and its operands in all iterations."""
    value, batched = known[instruction]
    if not batched:
        count = construct.splat_of(instruction, np.array(iterations, value.array_shape.dtype), value.array_shape)
        return construct.elementwise(instruction, "multiply", value, count)
    operands = [known.get(operand) for operand in instruction.operands]
    if instruction.opcode == "dot" and all(operand is not None and operand[1] for operand in operands):
        return summed_dot(instruction, *(operand[0] for operand in operands if operand is not None))
    if instruction.opcode in AFFINE and operands[0] is not None and operands[0][1]:
        return changed(instruction, operands=(summed(instruction.operands[0], known, iterations),))
    if _adds_from_zero(instruction) and operands[0] is not None and operands[0][1]:
        dimensions = (0, *(d + 1 for d in instruction["dimensions"]))
        return changed(instruction, operands=(operands[0][0], instruction.operands[1]), dimensions=dimensions)
    shape = instruction.array_shape
    zero = construct.constant(instruction, np.zeros((), shape.dtype), shape.with_dimensions(()))
    add = binary_computation("add", shape.element_type)
    return make(instruction, "reduce", shape, (value, zero), (add,), dimensions=(0,))


def _adds_from_zero(instruction: Instruction) -> bool:
    if instruction.opcode != "reduce" or len(instruction.operands) != 2:
        return False
    body, initial = instruction.called[0], instruction.operands[1]
    adds = body.root.opcode == "add" and set(body.root.operands) == set(body.parameters)
    return adds and initial.opcode == "constant" and not initial["literal"].any()
