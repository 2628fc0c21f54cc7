"""Puts the calls between processes into one order, by a token through loops and branches.

Processes have programs of their own, which differ in constants, and so may be scheduled differently; but all must make
their calls in the same order. Neighbouring sums, of which none depends on another, become one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.ir import Computation, Instruction, Module, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import TOKEN
from engine.partition.instruction_copies import add_copy
from engine.partition.processes import SUM, is_call
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
        return is_call(instruction)

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
    *sums, token = copy.b.elements(made)
    copy.give(token)
    for call in calls:
        count = len(call.operands) - 1
        copy.new[call] = copy.b.tuple(*sums[:count], token)
        del sums[:count]


def with_sums_together(
    instructions: Sequence[Instruction], communicates_in: Callable[[Instruction], bool]
) -> Iterator[Instruction | list[Instruction]]:
    """The instructions in an order in which calls that sum follow each other; several of them are a list.

    Other calls between processes, and loops and branches that communicate, keep their order relative to these calls.
    """
    group_of = _groups(instructions, communicates_in)
    late: list[Instruction] = []
    waiting: set[Instruction] = set()
    for instruction in instructions:
        group = group_of.get(instruction, [instruction])
        if instruction is not group[-1] or any(operand in waiting for operand in instruction.operands):
            waiting.add(instruction)
            if instruction not in group_of:
                late.append(instruction)
            continue
        yield group if len(group) > 1 else instruction
        if len(group) > 1:
            yield from late
            late, waiting = [], set()


def _groups(
    instructions: Sequence[Instruction], communicates_in: Callable[[Instruction], bool]
) -> dict[Instruction, list[Instruction]]:
    """Maps each call that sums to the calls that are computed together with it, in order, itself included."""
    found: dict[Instruction, list[Instruction]] = {}
    group: list[Instruction] = []
    after: set[Instruction] = set()
    """Instructions that depend on the group."""
    for instruction in instructions:
        depends, kind = any(operand in after for operand in instruction.operands), instruction.get("of_processes")
        if (kind == SUM and depends) or (kind and kind != SUM) or communicates_in(instruction):
            group, after, depends = [], set(), False
        if kind == SUM:
            group.append(instruction)
            found[instruction] = group
        if kind == SUM or depends:
            after.add(instruction)
    return found
