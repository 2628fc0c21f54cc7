"""Instructions that a generated codelet may contain, and the loops they need."""

from __future__ import annotations

from engine.ir import Computation, Instruction, Shape
from engine.ir.affine import loop_index, pull, squeezed
from engine.ir.opcodes import AFFINE, COMPLEX_ELEMENTWISE, ELEMENTWISE, TUPLES
from engine.ir.shape import COMPLEX

BODY_EXTRAS = TUPLES | {"parameter", "constant"}


def is_scalar_constant(instruction: Instruction) -> bool:
    """Whether an instruction is a constant of one element, of any rank."""
    return instruction.opcode == "constant" and isinstance(instruction.shape, Shape) and instruction.shape.elements == 1


def is_elementwise(instruction: Instruction) -> bool:
    """Whether each point is computed from the same point of arrays of one shape, of types that an emitter supports."""
    if instruction.opcode not in ELEMENTWISE or instruction.opcode == "copy":
        return is_unit_reshape(instruction)
    shapes = [each.shape for each in (instruction, *instruction.operands) if isinstance(each.shape, Shape)]
    types = {shape.element_type for shape in shapes}
    if len(shapes) <= len(instruction.operands) or (types & COMPLEX and instruction.opcode not in COMPLEX_ELEMENTWISE):
        return False
    if instruction.opcode == "bitcast-convert":
        return shapes[0].dtype.itemsize == shapes[1].dtype.itemsize and "pred" not in types
    return True


def is_unit_reshape(instruction: Instruction) -> bool:
    """Whether a reshape (or copy) only adds or drops dimensions of size 1: the same loops serve both sides."""
    if instruction.opcode not in ("reshape", "copy") or not isinstance(instruction.shape, Shape):
        return False
    operand = instruction.operands[0].shape
    return isinstance(operand, Shape) and squeezed(operand) == squeezed(instruction.shape)


def is_reduction(instruction: Instruction) -> bool:
    """Whether an instruction is a reduce over non-empty arrays, whose body an emitter supports."""
    if instruction.opcode != "reduce" or instruction.operands[0].array_shape.elements == 0:
        return False
    return is_scalar_body(instruction.called[0])


def reads_pointwise(user: Instruction, operand: Instruction) -> bool:
    """Whether a user reads an operand point by point: a reduce reads its arrays so, but not its initial values."""
    return user.opcode != "reduce" or operand not in user.operands[len(user.operands) // 2 :]


def is_scalar_body(body: Computation) -> bool:
    """Whether a body works on scalars alone, with operations that an emitter supports."""
    return all(i.opcode in BODY_EXTRAS or is_elementwise(i) for i in body.instructions)


def is_moving(instruction: Instruction) -> bool:
    """Whether a codelet can look through an instruction: it maps result elements to operand elements, affinely."""
    if instruction.opcode not in AFFINE or not isinstance(instruction.shape, Shape):
        return False
    rank = instruction.shape.rank
    return pull(instruction, tuple(loop_index(d, rank) for d in range(rank)), rank) is not None


def loops_of(instruction: Instruction) -> tuple[int, ...]:
    """The loops an instruction needs: its shape's dimensions other than 1, or for a reduce its operand's."""
    shape = instruction.operands[0].array_shape if instruction.opcode == "reduce" else instruction.array_shape
    return squeezed(shape)


def reduced_loops(reduce: Instruction) -> tuple[bool, ...]:
    """Flags of a reduce's loops: true where the loop is reduced. Dimensions of size 1 have no loop."""
    shape = reduce.operands[0].array_shape
    dimensions = set(reduce["dimensions"])
    return tuple(d in dimensions for d, size in enumerate(shape.dimensions) if size != 1)
