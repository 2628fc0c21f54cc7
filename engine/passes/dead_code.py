"""Removes the instructions that neither the root nor one with a side effect depends on."""

from __future__ import annotations

from engine.ir import Computation, Instruction, Module
from engine.ir.module import reached
from engine.ir.properties import has_side_effect
from engine.passes.rewriting import Callees, with_computations, with_parts


def dead_code(module: Module) -> Module:
    """The module without dead code; every parameter is kept, since a computation's signature does not change."""
    return with_computations(module, _without_dead_code)


def _without_dead_code(computation: Computation, new: Callees) -> Computation:
    needed = [i for i in computation.instructions if i.opcode == "parameter" or has_side_effect(i)]
    alive = reached([*needed, computation.root], lambda i: i.operands)
    renewed: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        if instruction in alive:
            operands, called = [renewed[operand] for operand in instruction.operands], instruction.called
            renewed[instruction] = with_parts(instruction, operands, [new[callee] for callee in called])
    instructions = list(renewed.values())
    if instructions == computation.instructions:
        return computation
    return Computation(computation.name, instructions, renewed[computation.root])
