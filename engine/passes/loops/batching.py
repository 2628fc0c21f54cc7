"""Loop values computed for all iterations at once: each has a leading dimension of iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from engine.ir import DotDimensionNumbers, Instruction, PaddingDimension, SliceDimension
from engine.ir.builder import binary_computation
from engine.ir.opcodes import AFFINE, registering
from engine.ir.properties import is_elementwise
from engine.passes import construct
from engine.passes.rewriting import changed, make

Operand = tuple[Instruction, bool]
"""A value outside the loop, and whether it has a leading dimension of iterations."""
Rule = Callable[[Instruction, list[Operand], int], Instruction]
RULES: dict[str, Rule] = {}
on = registering(RULES)
"""Decorator of the rule of some opcodes, which is only called if an operand has the dimension of iterations."""


def can_batch(instruction: Instruction) -> bool:
    """Whether an instruction has a rule. Instructions that vary from call to call, or call others, have none."""
    if instruction.opcode == "reduce":
        return len(instruction.operands) == 2
    return instruction.opcode in RULES or (not instruction.called and is_elementwise(instruction))


def batch(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    """The values of an instruction in all iterations: [iterations, ...]."""
    if instruction.opcode in RULES:
        return RULES[instruction.opcode](instruction, operands, iterations)
    return _made(instruction, [spread(o, iterations) for o in operands], iterations)


def spread(operand: Operand, iterations: int) -> Instruction:
    """An operand with a leading dimension of iterations, broadcast along it if necessary: [iterations, ...]."""
    value, batched = operand
    if batched:
        return value
    dimensions = value.array_shape.dimensions
    return construct.broadcast(value, value, (iterations, *dimensions), range(1, len(dimensions) + 1))


def _made(instruction: Instruction, operands: list[Instruction], iterations: int, **attributes: object) -> Instruction:
    shape = instruction.array_shape
    return make(
        instruction,
        instruction.opcode,
        shape.with_dimensions((iterations, *shape.dimensions)),
        operands,
        instruction.called,
        **{**instruction.attributes, **attributes},
    )


@on("reshape", "copy")
def _reshape(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    return construct.reshape(instruction, operands[0][0], (iterations, *instruction.array_shape.dimensions))


@on("transpose")
def _transpose(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    return construct.transpose(instruction, operands[0][0], (0, *(d + 1 for d in instruction["dimensions"])))


@on("broadcast")
def _broadcast(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    dimensions = (iterations, *instruction.array_shape.dimensions)
    return construct.broadcast(
        instruction, operands[0][0], dimensions, (0, *(d + 1 for d in instruction["dimensions"]))
    )


@on("reverse")
def _reverse(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    return _made(instruction, [operands[0][0]], iterations, dimensions=tuple(d + 1 for d in instruction["dimensions"]))


@on("slice")
def _slice(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    every = SliceDimension(0, iterations, 1)
    return construct.slice_of(instruction, operands[0][0], (every, *instruction["slice_dimensions"]))


@on("concatenate")
def _concatenate(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    (dimension,) = instruction["dimensions"]
    return _made(instruction, [spread(o, iterations) for o in operands], iterations, dimensions=(dimension + 1,))


@on("reduce")
def _reduce(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    moved = tuple(d + 1 for d in instruction["dimensions"])
    return _made(instruction, [spread(operands[0], iterations), operands[1][0]], iterations, dimensions=moved)


@on("pad")
def _pad(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    config = (PaddingDimension(0, 0, 0), *instruction["padding_config"])
    return _made(instruction, [spread(operands[0], iterations), operands[1][0]], iterations, padding_config=config)


@on("dot")
def _dot(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    """Iterations are a free dimension of the one operand that has them, or a batch dimension of both."""
    numbers: DotDimensionNumbers = instruction["dot_dimension_numbers"]
    (lhs, left), (rhs, right) = operands
    moved = _moved(numbers, left, right)
    if left and right:
        moved = replace(
            moved,
            lhs_batch_dimensions=(0, *moved.lhs_batch_dimensions),
            rhs_batch_dimensions=(0, *moved.rhs_batch_dimensions),
        )
        return _made(instruction, [lhs, rhs], iterations, dot_dimension_numbers=moved)
    batches = len(numbers.lhs_batch_dimensions)
    free = len(instruction.operands[0].array_shape.dimensions) - batches - len(numbers.lhs_contracting_dimensions)
    at = batches if left else batches + free
    dimensions = list(instruction.array_shape.dimensions)
    dimensions.insert(at, iterations)
    shape = instruction.array_shape.with_dimensions(tuple(dimensions))
    attributes = {**instruction.attributes, "dot_dimension_numbers": moved}
    product = make(instruction, "dot", shape, (lhs, rhs), **attributes)
    others = [d for d in range(len(dimensions)) if d != at]
    return construct.transpose(instruction, product, (at, *others))


def _moved(numbers: DotDimensionNumbers, left: bool, right: bool) -> DotDimensionNumbers:
    """The dimension numbers, shifted by one for operands with leading iterations."""
    return DotDimensionNumbers(
        tuple(d + left for d in numbers.lhs_contracting_dimensions),
        tuple(d + right for d in numbers.rhs_contracting_dimensions),
        tuple(d + left for d in numbers.lhs_batch_dimensions),
        tuple(d + right for d in numbers.rhs_batch_dimensions),
    )


def summed_dot(instruction: Instruction, lhs: Instruction, rhs: Instruction) -> Instruction:
    """The sum over all iterations of a dot whose operands both have them: one contraction, iterations included."""
    moved = _moved(instruction["dot_dimension_numbers"], True, True)
    moved = replace(
        moved,
        lhs_contracting_dimensions=(0, *moved.lhs_contracting_dimensions),
        rhs_contracting_dimensions=(0, *moved.rhs_contracting_dimensions),
    )
    attributes = {**instruction.attributes, "dot_dimension_numbers": moved}
    return make(instruction, "dot", instruction.shape, (lhs, rhs), **attributes)


def summed(instruction: Instruction, known: dict[Instruction, Operand], iterations: int) -> Instruction:
    """The sum of an instruction over all iterations; `known` has its values and its operands' in all iterations."""
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
