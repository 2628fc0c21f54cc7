"""Loop values computed for all iterations at once: each has a leading dimension of iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.ir import DotDimensionNumbers, Instruction, PaddingDimension, SliceDimension
from engine.ir.builder import binary_computation
from engine.ir.opcodes import AFFINE, registering
from engine.ir.properties import is_elementwise
from engine.ops.apply import single_operation
from engine.passes import construct
from engine.passes.rewriting import changed, make
from engine.passes.splats import is_splat_of

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


def _spread_arrays(operands: list[Operand], iterations: int) -> list[Instruction]:
    """Operands with a dimension of iterations, except for scalars: initial values and padding are the same in all."""
    return [spread(each, iterations) if each[0].array_shape.rank else each[0] for each in operands]


def _made(instruction: Instruction, operands: list[Instruction], iterations: int, **attributes: Any) -> Instruction:
    shape = instruction.array_shape.with_dimensions((iterations, *instruction.array_shape.dimensions))
    return changed(instruction, shape=shape, operands=operands, **attributes)


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


@on("slice")
def _slice(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    every = SliceDimension(0, iterations, 1)
    return construct.slice_of(instruction, operands[0][0], (every, *instruction["slice_dimensions"]))


@on("concatenate", "reduce", "reverse")
def _along_dimensions(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    moved = tuple(d + 1 for d in instruction["dimensions"])
    return _made(instruction, _spread_arrays(operands, iterations), iterations, dimensions=moved)


@on("pad")
def _pad(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    config = (PaddingDimension(0, 0, 0), *instruction["padding_config"])
    return _made(instruction, _spread_arrays(operands, iterations), iterations, padding_config=config)


@on("dot")
def _dot(instruction: Instruction, operands: list[Operand], iterations: int) -> Instruction:
    """Iterations are a free dimension of the one operand that has them, or a batch dimension of both."""
    numbers: DotDimensionNumbers = instruction["dot_dimension_numbers"]
    (lhs, left), (rhs, right) = operands
    moved = _moved(numbers, left, right)
    if left and right:
        moved = DotDimensionNumbers(*moved.contracting, *((0, *each) for each in moved.batch))
        return _made(instruction, [lhs, rhs], iterations, dot_dimension_numbers=moved)
    batches = len(numbers.lhs_batch_dimensions)
    at = batches if left else batches + len(numbers.free(0, instruction.operands[0].array_shape.rank))
    dimensions = list(instruction.array_shape.dimensions)
    dimensions.insert(at, iterations)
    shape = instruction.array_shape.with_dimensions(tuple(dimensions))
    product = changed(instruction, shape=shape, operands=(lhs, rhs), dot_dimension_numbers=moved)
    others = [d for d in range(len(dimensions)) if d != at]
    return construct.transpose(instruction, product, (at, *others))


def _moved(numbers: DotDimensionNumbers, left: bool, right: bool) -> DotDimensionNumbers:
    """The dimension numbers, shifted by one for operands with leading iterations."""
    return numbers.renumbered(0, lambda d: d + left).renumbered(1, lambda d: d + right)


def summed_dot(instruction: Instruction, lhs: Instruction, rhs: Instruction) -> Instruction:
    """The sum over all iterations of a dot whose operands both have them: one contraction, iterations included."""
    moved = _moved(instruction["dot_dimension_numbers"], True, True)
    left, right = moved.contracting
    moved = DotDimensionNumbers((0, *left), (0, *right), *moved.batch)
    return changed(instruction, operands=(lhs, rhs), dot_dimension_numbers=moved)


def summed(instruction: Instruction, known: dict[Instruction, Operand], iterations: int) -> Instruction:
    """The sum of an instruction over all iterations; `known` has its values and its operands' in all iterations."""
    value, batched = known[instruction]
    if not batched:
        count = construct.splat_of(instruction, iterations, value.array_shape)
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
    zero = construct.constant(instruction, 0, shape.with_dimensions(()))
    add = binary_computation("add", shape.element_type)
    return make(instruction, "reduce", shape, (value, zero), (add,), dimensions=(0,))


def _adds_from_zero(instruction: Instruction) -> bool:
    if instruction.opcode != "reduce" or len(instruction.operands) != 2:
        return False
    return single_operation(instruction.called[0]) == "add" and is_splat_of(instruction.operands[1], 0)
