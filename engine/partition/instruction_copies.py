"""Copies of instructions into a computation that is being built."""

from __future__ import annotations

from collections.abc import Iterable

from engine.ir import Instruction
from engine.ir.builder import Builder
from engine.ir.module import topological
from engine.passes.rewriting import changed


def add_copy(builder: Builder, instruction: Instruction, operands: Iterable[Instruction]) -> Instruction:
    """Adds a copy of an instruction with other operands."""
    builder.instructions.append(changed(instruction, operands=operands))
    return builder.instructions[-1]


def copied(builder: Builder, stands: dict[Instruction, Instruction], instruction: Instruction) -> Instruction:
    """The copy of an instruction in `stands`, or what replaces it (a parameter, say); adds missing ones, each once."""
    for each in topological([instruction], lambda i: i not in stands):
        if each not in stands:
            # New objects, even if nothing changes: no instruction may belong to two computations.
            stands[each] = add_copy(builder, each, [stands[operand] for operand in each.operands])
    return stands[instruction]
