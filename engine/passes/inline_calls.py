"""Inlines the body of each `call`, and the branch of each `conditional` with a constant choice."""

from __future__ import annotations

from engine.ir import Computation, Instruction, Module
from engine.ir.op_names import stage_in
from engine.ir.outlining import are_distinct, outlined_call
from engine.ops.control import branch_taken
from engine.passes.rewriting import Callees, Names, changed, with_computations, with_parts


def inline_calls(module: Module) -> Module:
    """The module with calls inlined; also forwards `get-tuple-element` of `tuple`, which inlining makes adjacent."""
    return with_computations(module, lambda computation, new: _Inliner(computation, new, keeps_outlined=False).run())


def inline_other_calls(module: Module) -> Module:
    """Inlines all calls except those of outlined functions; these too if an instruction is in a computation twice."""
    kept = with_computations(module, lambda computation, new: _Inliner(computation, new, keeps_outlined=True).run())
    return kept if all(are_distinct(computation) for computation in kept.computations()) else inline_calls(module)


class _Inliner:
    """Copies one computation; callees have been inlined before, so their bodies contain no calls to inline."""

    def __init__(self, computation: Computation, computations: Callees, keeps_outlined: bool) -> None:
        self.computation = computation
        self.computations = computations
        self.keeps_outlined = keeps_outlined
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
        """Adds one instruction, or its replacement, and records the replacement in `new`."""
        operands = tuple([new[operand] for operand in instruction.operands])
        called = tuple([self.computations.get(callee, callee) for callee in instruction.called])
        if instruction.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
            new[instruction] = operands[0].operands[instruction["tuple_index"]]
        elif instruction.opcode == "call" and not (self.keeps_outlined and outlined_call(instruction)):
            new[instruction] = self.inline(called[0], operands, _scope(instruction))
        elif (branch := constant_branch(instruction, operands)) is not None:
            new[instruction] = self.inline(called[branch], (operands[1 + branch],), "")
        else:
            kept = (
                changed(instruction, operands=operands, called=called)
                if copy
                else with_parts(instruction, operands, called)
            )
            new[instruction] = self.names.settle(kept, instruction)
            self.instructions.append(new[instruction])

    def inline(self, body: Computation, arguments: tuple[Instruction, ...], scope: str) -> Instruction:
        """Adds a copy of a body, which may be called more than once, in a scope; returns the root's copy."""
        first = len(self.instructions)
        new: dict[Instruction, Instruction] = {}
        for instruction in body.instructions:
            if instruction.opcode == "parameter":
                new[instruction] = arguments[instruction["parameter_number"]]
            else:
                self.add(instruction, new, copy=True)
        for copied in self.instructions[first:] if scope else ():
            copied.op_name = f"{scope}/{copied.op_name}" if copied.op_name else scope
        return new[body.root]


def _scope(call: Instruction) -> str:
    """The name of an outlined function's call in a pipeline's stage, which names in its body lack; else empty."""
    return call.op_name if outlined_call(call) and stage_in(call.op_name) is not None else ""


def constant_branch(instruction: Instruction, operands: tuple[Instruction, ...]) -> int | None:
    """The index of the branch that a conditional takes, if its predicate or branch index is a constant."""
    if instruction.opcode != "conditional" or operands[0].opcode != "constant":
        return None
    return branch_taken(operands[0]["literal"], len(instruction.called))
