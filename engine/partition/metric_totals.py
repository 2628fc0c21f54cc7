"""Metrics as totals over all micro-batches of an update, to which replicas in other processes add, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.partition.instruction_copies import add_copy
from engine.partition.marks import GRADIENT, mark_config
from engine.partition.replicas import check_sum
from engine.passes.loops.rebuilding import with_own_names


def with_totals(module: Module, metrics: Collection[int], names: Mapping[int, str], replicas: int) -> Module:
    """An inlined step whose metrics add a total over all micro-batches, replicas and processes, in the update part.

    `metrics` are the numbers of their parameters. Raises ConfigurationError for a metric that is updated otherwise.
    """
    parameters, b = module.entry.parameters, Builder(module.entry.name)
    added: dict[Instruction, tuple[Instruction, str]] = {}
    for number in metrics:
        if number in module.aliases:
            value, name = module.results[module.aliases[number]], names.get(number, f"parameter {number}")
            check_sum(parameters[number], value, name, replicas)
            added[value] = parameters[number], name
    new: dict[Instruction, Instruction] = {}
    for instruction in module.entry.instructions:
        operands = [new[operand] for operand in instruction.operands]
        if instruction in added and instruction.opcode == "add":
            parameter, name = added[instruction]
            operands = [o if o is new[parameter] else _total(b, o, name) for o in operands]
        new[instruction] = add_copy(b, instruction, operands)
    return Module(module.name, with_own_names(b.build(new[module.entry.root])), module.aliases)


def _total(b: Builder, value: Instruction, name: str) -> Instruction:
    config = mark_config(name, None, total=True)
    return b.instruction(
        *("custom-call", value.shape, (value,)),
        custom_call_target=GRADIENT,
        backend_config=config,
        custom_call_has_side_effect=False,
    )
