"""Plans of a pipeline's parts: the instructions of each, and the values that cross from one part to later ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from engine.errors import InternalError, UnsupportedOperation
from engine.ir import Instruction, Module, Shape, topological
from engine.ir.device_operations import is_checkpoint
from engine.ir.opcodes import NOT_STORED, SOURCES
from engine.ir.properties import is_repeatable
from engine.partition.marks import Cut
from engine.partition.schedule import Recomputation
from engine.partition.stages import FEED, Placement

RECOMPUTED = NOT_STORED - SOURCES - {"get-tuple-element"}
"""Opcodes that cost less to recompute than to store."""


@dataclass(eq=False, slots=True)
class PartPlan:
    """Plan of one part: forward or backward of a stage.

    `reads` are values and variables of earlier positions; `feeds` and `shared` the other parameters that the part
    needs, `variables` the parameters, with their numbers, that it updates; `copied` the instructions that it computes,
    in order. The results are `crossings` (old values of variables too), the marked gradients `marks`, the new values of
    `states` (parameter numbers), and `last`. `stands_for` maps a recomputed value to its replacement in this plan.
    """

    position: int
    crossings: list[Instruction] = field(default_factory=list)
    marks: list[Instruction] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    last: list[Instruction] = field(default_factory=list)
    reads: list[Instruction] = field(default_factory=list)
    feeds: list[Instruction] = field(default_factory=list)
    shared: list[Instruction] = field(default_factory=list)
    variables: dict[Instruction, int] = field(default_factory=dict)
    copied: list[Instruction] = field(default_factory=list)
    stands_for: dict[Instruction, Instruction] = field(default_factory=dict)


def plan_parts(
    module: Module, roles: Sequence[str], parts: Cut, placement: Placement, *, recompute: Recomputation = "none"
) -> list[PartPlan]:
    """The parts by position. With recomputation backward parts run their stage's forward part again,
    "with_backpropagation" from the checkpoints on. The last stage's gradients follow its forward part at once, so it
    keeps its activations.

    Raises UnsupportedOperation for tuples that cross as a whole.
    """
    position, parameters = placement.position, module.entry.parameters
    plans = [PartPlan(p) for p in range(2 * placement.stages)]

    def at(instruction: Instruction) -> PartPlan:
        return plans[max(position.get(instruction, 0), 0)]

    for mark in parts.marks:
        at(mark.operands[0]).marks.append(mark)
    for value in parts.last:
        at(value).last.append(value)
    for number, value in parts.moving.items():
        made, read = position.get(value, FEED), position[parameters[number]]
        plans[max(made, read)].states.append(number)
    moving = {parameters[number] for number in parts.moving}
    order = {instruction: k for k, instruction in enumerate(module.entry.instructions)}
    for plan in reversed(plans):
        results = [parts.moving[number] for number in plan.states]
        roots = [*plan.crossings, *(mark.operands[0] for mark in plan.marks), *results, *plan.last]
        recomputes = recompute != "none" and plan.position > placement.stages
        again = 2 * placement.stages - 1 - plan.position if recomputes else None
        from_checkpoints = recompute == "with_backpropagation"
        computes = partial(_computes, position, plan.position, again, from_checkpoints)
        found = topological(roots, computes)
        copied = sorted(filter(computes, found), key=order.__getitem__)
        if from_checkpoints and recomputes:
            copied = demanded(sorted(roots, key=order.__getitem__), copied)
        for instruction in copied:
            if instruction.opcode != "parameter":
                plan.copied.append(instruction)
            elif roles[instruction["parameter_number"]] == "feed":
                plan.feeds.append(instruction)
            elif instruction in moving:
                plan.variables[instruction] = instruction["parameter_number"]
            else:
                plan.shared.append(instruction)
        plan.reads = sorted((each for each in found if not computes(each)), key=order.__getitem__)
        for value in plan.reads:
            _require_array(value)
            if value not in (writer := plans[position[value]]).crossings:
                writer.crossings.append(value)
    return plans


def _computes(
    placed: Mapping[Instruction, int], at: int, again: int | None, from_checkpoints: bool, instruction: Instruction
) -> bool:
    """Whether the part at a position computes a value that it needs; `again` is the position that it recomputes."""
    position = placed.get(instruction, at)
    if position in (at, FEED):
        return True
    if position > at:
        raise InternalError(f"Expected {instruction!r} before position {at}. Received: {position}.")
    if instruction.opcode == "parameter" or (from_checkpoints and is_checkpoint(instruction)):
        return False
    if instruction.opcode == "get-tuple-element":
        return _computes(placed, at, again, from_checkpoints, instruction.operands[0])
    return costs_nothing(instruction) or (position == again and is_repeatable(instruction))


def demanded(roots: Iterable[Instruction], computed: Sequence[Instruction]) -> list[Instruction]:
    """The instructions of `computed` that some roots need, each right before its first user.

    Roots that are gradients come in the order of backpropagation: values before a checkpoint are recomputed last.
    """
    among = set(computed)
    return [each for each in topological(roots, among.__contains__) if each in among]


def costs_nothing(instruction: Instruction) -> bool:
    """Whether recomputing a value costs less than storing it."""
    if instruction.opcode == "convert":
        return instruction.operands[0].array_shape.bytes <= instruction.array_shape.bytes
    return instruction.opcode in RECOMPUTED


def _require_array(value: Instruction) -> None:
    if not isinstance(value.shape, Shape):
        raise UnsupportedOperation(
            f"Expected arrays to cross from one pipeline stage to another. Received: a tuple, the result of "
            f"{value.opcode} %{value.name} ({value.op_name}). Put the operations that use it into the same stage."
        )
