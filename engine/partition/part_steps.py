"""Each part of a pipeline as a step of its own, for reports on parts: its inputs, computation and results.

The engine runs all parts in one loop; a chip has a program for each. Parameters and results have keys that identify
what the steps of one IPU share: ("feed", n) and ("variable", n) by the module's parameters, ("accumulator", mark) for a
gradient's sum, ("value", instruction) for a value that another part has computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any, Literal

from engine.frozen import frozen
from engine.ir import Instruction, Module, Shape, topological
from engine.ir.builder import Builder
from engine.partition.crossings import PartPlan
from engine.partition.instruction_copies import add_copy
from engine.partition.marks import Cut, accumulator_of
from engine.partition.stages import Placement
from engine.passes.loops.rebuilding import with_own_names
from engine.passes.rewriting import with_parts

Key = tuple[str, Any]
SMALL = 1024
"""Most elements of a value computed from gradients that one stage sends another."""
ACCUMULATE = "Accumulate"
"""The operation, in op_names, that sums gradients over micro-batches."""


@frozen
class PartStep:
    """A stage's forward or backward for one micro-batch, or its update. `keys` are the keys of parameters, `made` of
    results; a result with the key of a variable or an accumulator replaces it."""

    kind: Literal["forward", "backward", "update"]
    stage: int
    module: Module
    roles: list[str]
    keys: list[Key]
    made: list[Key]


def part_steps(
    module: Module, roles: Sequence[str], parts: Cut, placement: Placement, plans: Sequence[PartPlan]
) -> list[PartStep]:
    """The steps of all parts that have results, in the order of positions, and then the updates."""
    making = (plan for plan in plans if plan.crossings or plan.marks or plan.states or plan.last)
    steps = [_Step(module, roles, parts).of_plan(plan, placement) for plan in making]
    updates, stages = taken(parts.updates, set(parts.marks)), update_stages(module, parts, placement)
    for stage in range(placement.stages):
        values = {number: updates[number] for number, its in stages.items() if its == stage}
        if values:
            steps.append(
                _Step(module, roles, parts).of_updates(stage, values, _foreign(values, stage, parts, placement))
            )
    return steps


def update_stages(module: Module, parts: Cut, placement: Placement) -> dict[int, int]:
    """The stage in which the optimizer updates each variable: the one that computes the variable's gradient.

    A variable updated without any gradient (a count of steps) belongs to stage 0.
    """
    marks, found = set(parts.marks), dict[int, int]()
    for number, value in taken(parts.updates, marks).items():
        mark = _own_mark(value, module.entry.parameters[number], marks)
        found[number] = 0 if mark is None else stage_of_mark(mark, placement)
    return found


def stage_of_mark(mark: Instruction, placement: Placement) -> int:
    """The stage that computes a marked gradient."""
    return placement.stage(max(placement.position.get(mark.operands[0], 0), 0))


def _foreign(values: Mapping[int, Instruction], stage: int, parts: Cut, placement: Placement) -> set[Instruction]:
    """Values from other stages that updates read: gradients, or small arrays of only gradients, such as a norm."""
    stages: dict[Instruction, set[int]] = {}
    marks = set(parts.marks)
    for each in topological(values.values(), lambda i: i not in marks):
        if each in marks:
            stages[each] = {stage_of_mark(each, placement)}
        else:
            stages[each] = set().union(*(stages[operand] for operand in each.operands))
    return {
        each
        for each, of in stages.items()
        if of and stage not in of and isinstance(each.shape, Shape) and (each in marks or _elements(each) <= SMALL)
    }


def _own_mark(value: Instruction, variable: Instruction, marks: set[Instruction]) -> Instruction | None:
    """The gradient that an update reaches through arrays of at least the variable's size; else the first it reaches.

    Smaller arrays on the way are, for example, a norm of all gradients.
    """
    found = _first(value, marks, lambda i: _elements(i) >= _elements(variable))
    return found if found is not None else _first(value, marks, lambda i: True)


def _first(root: Instruction, wanted: set[Instruction], enters: Callable[[Instruction], bool]) -> Instruction | None:
    pending, seen = deque([root]), {root}
    while pending:
        instruction = pending.popleft()
        if instruction in wanted:
            return instruction
        for operand in instruction.operands:
            if operand not in seen and enters(operand):
                seen.add(operand)
                pending.append(operand)
    return None


def _elements(instruction: Instruction) -> int:
    return max((shape.elements for shape in instruction.tuple_shapes), default=0)


class _Step:
    """Builds one step."""

    def __init__(self, module: Module, roles: Sequence[str], parts: Cut) -> None:
        self.parameters, self.roles, self.parts = module.entry.parameters, roles, parts
        self.builder = Builder(module.entry.name)
        self.keys: list[Key] = []
        self.its_roles: list[str] = []
        self.results: list[tuple[Key, Instruction]] = []

    def of_plan(self, plan: PartPlan, placement: Placement) -> PartStep:
        parts, builder = self.parts, self.builder
        new = {each: self._of_parameter(each) for each in (*plan.feeds, *plan.shared, *plan.variables)}
        for value in plan.reads:
            new[value] = self._parameter(("value", value), value.array_shape, "feed", value)
        for each in plan.copied:
            new[each] = add_copy(builder, each, [new[operand] for operand in each.operands])
        self.results += [(("value", value), new[value]) for value in (*plan.crossings, *plan.last)]
        for number in plan.states:
            if ("variable", number) not in self.keys:
                new.setdefault(self.parameters[number], self._of_parameter(self.parameters[number]))
            self.results.append((("variable", number), new[parts.moving[number]]))
        for mark in plan.marks:
            self._accumulate(mark, new[mark.operands[0]])
        forward = plan.position < placement.stages
        return self._step("forward" if forward else "backward", placement.stage(plan.position))

    def of_updates(self, stage: int, values: Mapping[int, Instruction], foreign: set[Instruction]) -> PartStep:
        """The step that computes new values, given the values that other stages compute for them."""
        marks, new = set(self.parts.marks), dict[Instruction, Instruction]()
        updated = [self.parameters[number] for number in values]
        needed = topological(values.values(), lambda i: i not in marks and i not in foreign)
        for each in dict.fromkeys([*needed, *updated]):
            if each in foreign:
                new[each] = self._parameter(("value", each), each.array_shape, "feed", each)
            elif each.opcode == "parameter":
                new[each] = self._of_parameter(each)
            elif each in marks:
                shape = each.array_shape.with_type(accumulator_of(each))
                total = self._parameter(("accumulator", each), shape, "variable", each)
                same = shape == each.array_shape
                new[each] = total if same else self.builder.convert(total, each.array_shape.element_type)
            else:
                new[each] = add_copy(self.builder, each, [new[operand] for operand in each.operands])
        self.results = [(("variable", number), new[value]) for number, value in values.items()]
        return self._step("update", stage)

    def _accumulate(self, mark: Instruction, gradient: Instruction) -> None:
        """Adds a gradient to the sum over the previous micro-batches."""
        shape, before = mark.array_shape.with_type(accumulator_of(mark)), len(self.builder.instructions)
        total = self._parameter(("accumulator", mark), shape, "variable", mark)
        if gradient.array_shape != shape:
            gradient = self.builder.convert(gradient, shape.element_type)
        self.results.append((("accumulator", mark), self.builder.add(total, gradient)))
        for each in self.builder.instructions[before:]:
            each.op_name = _beside(mark.operands[0].op_name)

    def _of_parameter(self, parameter: Instruction) -> Instruction:
        number = parameter["parameter_number"]
        kind = "feed" if self.roles[number] == "feed" else "variable"
        return self._parameter((kind, number), parameter.array_shape, self.roles[number], parameter)

    def _parameter(self, key: Key, shape: Shape, role: str, like: Instruction) -> Instruction:
        made = self.builder.parameter_of(shape)
        made.op_name = like.op_name
        self.keys.append(key)
        self.its_roles.append(role)
        return made

    def _step(self, kind: Literal["forward", "backward", "update"], stage: int) -> PartStep:
        unique = dict(self.results)  # a value may be both read by later parts and a result
        root = self.builder.tuple(*unique.values())
        entry = with_own_names(self.builder.build(root))
        made = list(unique)
        numbers = {key: number for number, key in enumerate(self.keys)}
        aliases = {
            numbers[key]: result_index for result_index, key in enumerate(made) if key[0] in ("variable", "accumulator")
        }
        return PartStep(kind, stage, Module(f"{kind}_{stage}", entry, aliases), self.its_roles, self.keys, made)


def _beside(op_name: str) -> str:
    """The op_name of a gradient's sum, in the layer that computes the gradient."""
    layer = list(takewhile(lambda part: not part[:1].isupper(), op_name.split("/"))) if op_name else ["gradient_tape"]
    return "/".join([*layer, ACCUMULATE])


def taken(values: Mapping[int, Instruction], ends: Collection[Instruction]) -> dict[int, Instruction]:
    """The values with the results of the longer branch in place of those of each `conditional`.

    An optimizer with loss scaling updates all variables in one branch, if all gradients are finite: without the
    condition each update depends on its own gradient alone. Instructions that depend on no conditional, and those of
    `ends`, the gradients, stay the same objects.
    """
    new: dict[Instruction, Instruction] = {}
    for each in topological(values.values(), lambda i: i not in ends):
        new[each] = each if each in ends else _copied(each, new)
    return {number: new[value] for number, value in values.items()}


def _copied(instruction: Instruction, new: Mapping[Instruction, Instruction]) -> Instruction:
    operands = tuple(new[operand] for operand in instruction.operands)
    if instruction.opcode == "conditional":
        return _branch(instruction, operands)
    if instruction.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
        return operands[0].operands[instruction["tuple_index"]]
    return with_parts(instruction, operands)


def _branch(conditional: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    branch = max(conditional.called, key=lambda computation: len(computation.instructions))
    argument = operands[1 + conditional.called.index(branch)]
    new: dict[Instruction, Instruction] = {}
    for each in branch.instructions:
        new[each] = argument if each.opcode == "parameter" else _copied(each, new)
    return new[branch.root]
