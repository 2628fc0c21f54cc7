"""Copies of computations in which some instructions are replaced by others."""

from __future__ import annotations

from collections.abc import Sequence

from engine.ir import AnyShape, Computation, Instruction, TupleShape
from engine.ir.module import topological
from engine.passes.rewriting import Names, with_parts


def parameter_of(name: str, shapes: Sequence[AnyShape]) -> Instruction:
    """The only parameter of a computation that takes a tuple."""
    return Instruction(name, "parameter", TupleShape(tuple(shapes)), (), {"parameter_number": 0})


def element_of(value: Instruction, index: int) -> Instruction:
    """An element of a tuple; of a `tuple` instruction, its operand."""
    if value.opcode == "tuple":
        return value.operands[index]
    assert isinstance(value.shape, TupleShape), value.name
    shape = value.shape.elements[index]
    return Instruction(f"{value.name}.{index}", "get-tuple-element", shape, (value,), {"tuple_index": index})


def tuple_of(name: str, operands: Sequence[Instruction]) -> Instruction:
    """A tuple of instructions."""
    return Instruction(name, "tuple", TupleShape(tuple(o.shape for o in operands)), tuple(operands))


def substituted(
    results: Sequence[Instruction], replacements: dict[Instruction, Instruction]
) -> dict[Instruction, Instruction]:
    """The replacement of each instruction that the results need, when those in `replacements` are replaced."""
    new = dict(replacements)
    for instruction in topological(results):
        if instruction in new:
            continue
        operands = tuple(new[operand] for operand in instruction.operands)
        if instruction.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
            new[instruction] = operands[0].operands[instruction["tuple_index"]]
        else:
            new[instruction] = with_parts(instruction, operands)
    return new


def computation_of(name: str, parameter: Instruction, root: Instruction) -> Computation:
    """The computation of one parameter with the root `root`, its instructions renamed where names repeat."""
    order = [parameter, *(i for i in topological([root]) if i is not parameter)]
    return with_own_names(Computation(name, order, root))


def with_own_names(computation: Computation) -> Computation:
    """The computation, with unique names of instructions."""
    names = Names(())
    new: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        copy = with_parts(instruction, [new[operand] for operand in instruction.operands])
        new[instruction] = names.settle(copy, copy)
    return Computation(computation.name, list(new.values()), new[computation.root])
