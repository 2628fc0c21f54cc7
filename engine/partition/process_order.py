"""Puts the calls between processes into one order, by a token through loops and branches.

Processes have programs of their own, which differ in constants, and so may be scheduled differently; but all must make
their calls in the same order. Neighbouring sums become one call.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.ir import Computation, Instruction, Module, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import TOKEN
from engine.partition.instruction_copies import add_copy
from engine.partition.process_sums import with_sums_together
from engine.partition.token_copies import TokenCopy, Tokens
from engine.passes.loops.rebuilding import with_own_names
from engine.passes.rewriting import changed


def in_one_order(module: Module) -> Module:
    """The module with calls between processes in program order."""
    calls = _Calls()
    copy = TokenCopy(Builder(module.entry.name), calls)
    calls.add_all(copy, module.entry)
    return Module(module.name, with_own_names(copy.b.build(copy.whole(module.entry.root))), module.aliases)


class _Calls(Tokens):
    """Calls between processes."""

    def takes(self, instruction: Instruction) -> bool:
        return bool(instruction.get("of_processes"))

    def add(self, copy: TokenCopy, instruction: Instruction) -> None:
        call = add_copy(copy.b, instruction, [*map(copy.whole, instruction.operands[:-1]), copy.take()])
        copy.new[instruction] = call
        copy.give(copy.b.get_tuple_element(call, len(call.tuple_shapes) - 1))

    def add_all(self, copy: TokenCopy, computation: Computation) -> None:
        for item in with_sums_together(computation.instructions, self.are_inside):
            if isinstance(item, Instruction):
                copy.add(item)
            else:
                _add_sums(copy, item)


def _add_sums(copy: TokenCopy, calls: Sequence[Instruction]) -> None:
    """Adds one call in place of several that sum; their operands have been copied."""
    operands = [copy.whole(operand) for call in calls for operand in call.operands[:-1]]
    shape = TupleShape((*(each for call in calls for each in call.tuple_shapes[:-1]), TOKEN))
    made = changed(calls[0], shape=shape, operands=[*operands, copy.take()])
    copy.b.instructions.append(made)
    *sums, token = copy.elements(made)
    copy.give(token)
    for call in calls:
        count = len(call.operands) - 1
        copy.new[call] = copy.b.tuple(*sums[:count], token)
        del sums[:count]
