"""Inlines the body of each `call`, and the branch of each `conditional` with a constant choice."""

from __future__ import annotations

from engine.ir import Computation, Instruction, Module
from engine.passes.rewriting import Callees, Names, changed, with_computations, with_parts


def inline_calls(module: Module) -> Module:
    """The module with calls inlined; also forwards `get-tuple-element` of `tuple`, which inlining makes adjacent."""
    return with_computations(module, lambda computation, new: _Inliner(computation, new).run())


class _Inliner:
    """Copies one computation; callees have been inlined before, so their bodies contain no calls."""

    def __init__(self, computation: Computation, computations: Callees) -> None:
        self.computation = computation
        self.computations = computations
        self.names = Names(computation.instructions)
        self.instructions: list[Instruction] = []

    def run(self) -> Computation:
        new: dict[Instruction, Instruction] = {}
        for instruction in self.computation.instructions:
            self.add(instruction, new)
        root = new[self.computation.root]
        if root is self.computation.root and self.instructions == self.computation.instructions:
            return self.computation
        return Computation(self.computation.name, self.instructions, root)

    def add(self, instruction: Instruction, new: dict[Instruction, Instruction], *, copy: bool = False) -> None:
        """Adds one instruction, or what replaces it, and records the replacement in `new`."""
        operands = tuple([new[operand] for operand in instruction.operands])
        called = tuple([self.computations.get(callee, callee) for callee in instruction.called])
        if instruction.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
            new[instruction] = operands[0].operands[instruction["tuple_index"]]
        elif instruction.opcode == "call":
            new[instruction] = self.inline(called[0], operands)
        elif (branch := constant_branch(instruction, operands)) is not None:
            new[instruction] = self.inline(called[branch], (operands[1 + branch],))
        else:
            kept = (
                changed(instruction, operands=operands, called=called)
                if copy
                else with_parts(instruction, operands, called)
            )
            new[instruction] = self.names.settle(kept, instruction)
            self.instructions.append(new[instruction])

    def inline(self, body: Computation, arguments: tuple[Instruction, ...]) -> Instruction:
        """Adds a copy of a body, which may be called more than once; returns the root's copy."""
        new: dict[Instruction, Instruction] = {}
        for instruction in body.instructions:
            if instruction.opcode == "parameter":
                new[instruction] = arguments[instruction["parameter_number"]]
            else:
                self.add(instruction, new, copy=True)
        return new[body.root]


def constant_branch(instruction: Instruction, operands: tuple[Instruction, ...]) -> int | None:
    """The index of the branch that a conditional takes, if its predicate or branch index is a constant."""
    if instruction.opcode != "conditional" or operands[0].opcode != "constant":
        return None
    choice = operands[0]["literal"].item()
    if isinstance(choice, bool):
        return 0 if choice else 1
    return choice if 0 <= choice < len(instruction.called) else len(instruction.called) - 1
