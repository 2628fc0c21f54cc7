"""Copies of instructions into a computation that is being built."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from engine.ir import Instruction
from engine.ir.builder import Builder
from engine.ir.module import topological
from engine.passes.rewriting import changed


def add_copy(builder: Builder, instruction: Instruction, operands: Iterable[Instruction]) -> Instruction:
    """Adds a copy of an instruction with other operands."""
    builder.instructions.append(changed(instruction, operands=operands))
    return builder.instructions[-1]


class InstructionCopies:
    """Copies instructions on demand, once each; some are replaced by given instructions (parameters, say)."""

    def __init__(self, builder: Builder, stands: dict[Instruction, Instruction]) -> None:
        self._builder = builder
        self._new = stands

    def known(self) -> Collection[Instruction]:
        """The instructions that have a copy or a replacement so far."""
        return self._new.keys()

    def stand_for(self, instruction: Instruction, other: Instruction) -> None:
        """Replaces an instruction that has not been copied by another one."""
        self._new[instruction] = other

    def of(self, instruction: Instruction) -> Instruction:
        """The copy or the replacement of an instruction, its operands copied before it."""
        for each in topological([instruction], lambda i: i not in self._new):
            if each not in self._new:
                # New objects, even if nothing changes: no instruction may belong to two computations.
                self._new[each] = add_copy(self._builder, each, [self._new[operand] for operand in each.operands])
        return self._new[instruction]
