"""Assigns each instruction of a step to a stage of a pipeline, by the name scopes that were traced with it.

A stage's scope is a component `ipu_stage_<k>` of the op_name (TensorFlow adds `_<n>` to one entered again); the scope
of gradients is `gradient_tape` or `gradients`. Positions 0 to N - 1 are the stages' forward parts, N to 2N - 1 their
backward parts, the last stage's first: within a micro-batch values only flow to the same or to later positions.
An instruction without a scope goes where its value is read, or to its operands if those are larger than its result.

Instructions of a step's backward pass, and the stages of gradients that no stage's scope names.

The scope of gradients is `gradient_tape` or `gradients`. Operations traced in a stage's scope, but outside of that one,
are forward. So are loops to which TensorFlow, once gradients are requested, adds lists of the values that gradients
need: it adds them in the loops' scope. The backward pass of a `tf.function` is a call of its own, and only its operands
show its stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from re import Match

from engine.errors import ConfigurationError
from engine.frozen import frozen
from engine.ir import Instruction, Module
from engine.ir.module import topological
from engine.ir.op_names import GRADIENT_SCOPE, STAGE, STAGE_SCOPE, in_gradient_scope, stage_in
from engine.ir.properties import is_repeatable
from engine.partition.marks import Cut, is_mark, is_total

_CALL = re.compile(r"(?:^|.*?/)(?:Stateful)?PartitionedCall(?:_\d+)?(?=/)")


def is_forward_of_a_stage(op_name: str) -> bool:
    """Whether an operation of a stage's layers has this name; gradients taken inside a layer count too."""
    stage, gradient = STAGE_SCOPE.search(op_name), GRADIENT_SCOPE.search(op_name)
    return stage is not None and (gradient is None or stage.start() < gradient.start())


def backward_pass(needed: Sequence[Instruction], results: Iterable[Instruction]) -> set[Instruction]:
    """The instructions that belong to the gradients: by scope, or because they depend on gradients.

    `needed` is in an order in which operands come first, `results` are the step's results other than gradients.
    """
    labelled = [i for i in needed if is_forward_of_a_stage(i.op_name)]
    stages_own, after = set(labelled), set[Instruction]()
    for i in needed:
        if i not in stages_own and (in_gradient_scope(i.op_name) or any(operand in after for operand in i.operands)):
            after.add(i)
    forward = set(topological([*labelled, *(each for each in results if each not in after)]))
    return {i for i in needed if i not in forward}


def stages_of_calls(needed: Iterable[Instruction], backward: set[Instruction]) -> Mapping[Instruction, int]:
    """The stage of each instruction in the backward pass of a called function, where no scope gives it.

    The stage is the last of those whose forward values the call takes.
    """
    calls: dict[str, list[Instruction]] = {}
    for i in needed:
        if i in backward and (call := _CALL.match(i.op_name)) is not None:
            calls.setdefault(call[0], []).append(i)
    found: dict[Instruction, int] = {}
    for members in calls.values():
        if any(stage_in(i.op_name) is not None for i in members):
            continue
        stages = [
            stage for each in _taken(members) if each not in backward and (stage := stage_in(each.op_name)) is not None
        ]
        if stages:
            found |= dict.fromkeys(members, max(stages))
    return found


def _taken(members: Iterable[Instruction]) -> set[Instruction]:
    """The operands of a call, looking through unnamed instructions: tuples and their elements, added by passes."""
    operands = (operand for each in members for operand in each.operands)
    return set(topological(operands, lambda operand: not operand.op_name))


NOWHERE = 10**6
"""The position of a value without readers."""


def owners_by_themselves(
    varying: Sequence[Instruction],
    owned: Mapping[Instruction, Instruction],
    users: Mapping[Instruction, Sequence[Instruction]],
    latest: Mapping[Instruction, int],
    acting: Set[Instruction] = frozenset(),
) -> dict[Instruction, int]:
    """The position of each variable that depends on variables alone, and of all instructions of its next value.

    `varying` is in an order in which operands come first, `owned` has each variable's next value, `latest` the
    position at which each instruction's value is first read, or NOWHERE. Instructions in `acting` have side effects:
    the result of an infeed does not depend on its token alone.
    """
    own = _own(varying, owned, acting)
    groups: list[set[Instruction]] = []
    for v in owned:
        if v in own:
            chain = {v, *(i for i in topological([owned[v]]) if i in own)}
            joined = [group for group in groups if not group.isdisjoint(chain)]
            groups = [*(group for group in groups if group.isdisjoint(chain)), chain.union(*joined)]
    grouped = set[Instruction]().union(*groups)
    position: dict[Instruction, int] = {}
    for group in groups:
        readers = [latest[user] for i in group for user in users[i] if user not in grouped]
        first = min([*readers, *(latest[i] for i in group)])
        position |= dict.fromkeys(group, 0 if first == NOWHERE else first)
    return position


def _own(
    varying: Sequence[Instruction], owned: Mapping[Instruction, Instruction], acting: Set[Instruction]
) -> set[Instruction]:
    """The instructions that depend only on variables whose next values depend on such variables alone."""
    kept = dict(owned)
    while True:
        own: set[Instruction] = set()
        among = set(varying)
        for instruction in varying:
            sources = [operand for operand in instruction.operands if operand in among]
            computed = sources and instruction not in acting
            if instruction in kept or (computed and all(operand in own for operand in sources)):
                own.add(instruction)
        lost = [v for v, value in kept.items() if value in among and value not in own]
        if not lost:
            return own
        for v in lost:
            del kept[v]


FEED = -1
"""The position of feeds: each part slices its rows itself."""


@contextmanager
def restaged(module: Module, stages: Mapping[int, int]) -> Iterator[None]:
    """Moves instructions of stage k of a module's entry into the scope of stage `stages[k]`, while open."""
    before = {each: each.op_name for each in module.entry.instructions}
    for each, name in before.items():
        each.op_name = STAGE_SCOPE.sub(lambda found: _renumbered(found, stages), name)
    try:
        yield
    finally:
        for each, name in before.items():
            each.op_name = name


def _renumbered(found: Match[str], stages: Mapping[int, int]) -> str:
    return found[0].replace(f"{STAGE}{found[1]}", f"{STAGE}{stages[int(found[1])]}", 1)


@frozen
class Placement:
    """The position of each value that differs from micro-batch to micro-batch, in the module's order; others are the
    same for all. A variable that the gradient part updates has the position of its new value."""

    stages: int
    position: dict[Instruction, int]

    def stage(self, position: int) -> int:
        """The stage of a position."""
        return position if position < self.stages else 2 * self.stages - 1 - position


def place(
    module: Module,
    roles: Sequence[str],
    parts: Cut,
    stages: int,
    *,
    sequential: bool = False,
    empty_stages: bool = False,
    names: Mapping[int, str] | None = None,
) -> Placement:
    """The positions of a module that has been inlined and cut.

    `sequential` says that a micro-batch only begins when the previous one has finished, so variables may change
    anywhere. Raises ConfigurationError for scopes of stages that do not exist or, without `empty_stages`, are empty,
    and for values or variables that an earlier stage would need from a later one.
    """
    placing = _Placing(module, roles, parts, stages, sequential, names or {})
    placing.check_scopes(empty_stages)
    return placing.run()


class _Placing:
    def __init__(
        self, module: Module, roles: Sequence[str], parts: Cut, stages: int, sequential: bool, names: Mapping[int, str]
    ) -> None:
        self.stages, self.sequential, self.names, self.parts = stages, sequential, names, parts
        self.roots = [*(m.operands[0] for m in parts.marks), *parts.moving.values(), *parts.last]
        parameters = module.entry.parameters
        self.owned = {parameters[number]: value for number, value in parts.moving.items()}
        feeds = {p for p in parameters if roles[p["parameter_number"]] == "feed"}
        needed = set(topological(self.roots)) | set(self.owned)
        self.needed = [i for i in module.entry.instructions if i in needed]
        self.feeds = feeds
        self.varying: dict[Instruction, None] = {}
        for i in self.needed:
            if i in feeds or i in self.owned or not is_repeatable(i) or any(o in self.varying for o in i.operands):
                self.varying[i] = None
        self.users: dict[Instruction, list[Instruction]] = {i: [] for i in self.needed}
        for i in self.needed:
            for operand in dict.fromkeys(i.operands):
                self.users[operand].append(i)
        self._refuse_marks()
        self.backward = self._backward()
        self.of_calls = stages_of_calls(self.needed, self.backward)
        self.wanted = {i: w for i in self.varying if (w := self._wanted(i)) is not None}
        self.latest = self._latest()

    def run(self) -> Placement:
        acting = {i for i in self.varying if not is_repeatable(i)}
        fixed = owners_by_themselves(list(self.varying), self.owned, self.users, self.latest, acting)
        flowing = self._sweep(fixed, {})
        for instruction, wanted in self.wanted.items():
            if flowing[instruction] > wanted and instruction not in fixed:
                raise self._out_of_order(instruction, flowing)
        if self.sequential:
            return Placement(self.stages, flowing)
        owners = dict.fromkeys(self.owned, 0)
        while True:
            position = self._sweep(fixed, owners)
            new = {v: max(owners[v], position[value]) for v, value in self.owned.items() if value in position}
            if all(new[v] == owners[v] for v in new):
                break
            owners |= new
        self._refuse_late_states(position, fixed)
        return Placement(self.stages, position)

    def check_scopes(self, empty_stages: bool) -> None:
        """Raises ConfigurationError for scopes of stages beyond the last, and for stages without instructions."""
        found = {stage: i for i in self.needed if (stage := stage_in(i.op_name)) is not None}
        beyond = [stage for stage in found if stage >= self.stages]
        if beyond:
            raise ConfigurationError(
                f"Expected stages 0 to {self.stages - 1}. Received: {found[beyond[0]].op_name!r} in stage {beyond[0]}."
            )
        empty = [stage for stage in range(self.stages) if stage not in found]
        if empty and not empty_stages:
            raise ConfigurationError(
                f"All stages in a pipeline must have at least one layer: expected something computed in each of "
                f"stages 0 to {self.stages - 1}. Received: nothing in stage {empty[0]}. Assign a layer to it that the "
                f"loss depends on, or number the stages without gaps."
            )

    def _refuse_marks(self) -> None:
        if any(is_mark(i) for i in self.needed):
            raise ConfigurationError(
                "Expected results of a pipelined training step that come either from a batch or from the optimizer's "
                "update. Received: one that is computed from both. Return them separately, or use no pipelining."
            )

    def _backward(self) -> set[Instruction]:
        """The instructions of the gradients: by scope, or as users of gradients. Without marks, none."""
        if all(is_total(mark) for mark in self.parts.marks):
            return set()
        return backward_pass(self.needed, (*self.parts.moving.values(), *self.parts.last))

    def _wanted(self, instruction: Instruction) -> int | None:
        stage = self.of_calls.get(instruction, stage_in(instruction.op_name))
        if stage is None or instruction.opcode in ("parameter", "get-tuple-element"):
            return None
        return 2 * self.stages - 1 - stage if instruction in self.backward else stage

    def _latest(self) -> dict[Instruction, int]:
        """Maps each instruction to the earliest position that reads its value, or to its own if it has a scope."""
        latest: dict[Instruction, int] = {}
        for i in reversed(self.needed):
            latest[i] = self.wanted.get(i, min((latest[user] for user in self.users[i]), default=NOWHERE))
        return latest

    def _sweep(self, fixed: Mapping[Instruction, int], owners: Mapping[Instruction, int]) -> dict[Instruction, int]:
        """Assigns positions in the module's order; no instruction reads a variable before its position in `owners`."""
        position: dict[Instruction, int] = {}
        for i in self.varying:
            operands = [operand for operand in i.operands if operand in position]
            least = max((position[operand] for operand in operands), default=0)
            least = max(least, 0)
            if i in self.feeds:
                position[i] = FEED
            elif i in fixed:
                position[i] = fixed[i]
            elif i in self.owned:
                position[i] = owners.get(i, 0)
            elif i.opcode == "get-tuple-element" and operands:
                position[i] = position[operands[0]]
            elif i in self.wanted:
                position[i] = max(least, self.wanted[i])
            elif any(operand not in self.feeds for operand in operands) and self._gathers(i):
                position[i] = max(least, self.stages if i in self.backward else 0)
            else:
                position[i] = max(least, self._where_read(i))
        return position

    def _gathers(self, instruction: Instruction) -> bool:
        """Whether an instruction computed at its operands sends fewer bytes to readers (a sum of gradients, say)."""
        taken = [operand for operand in dict.fromkeys(instruction.operands) if operand in self.varying]
        sizes = [sum(shape.bytes for shape in each.tuple_shapes) for each in (*taken, instruction)]
        return sum(sizes[:-1]) > sizes[-1]

    def _where_read(self, instruction: Instruction) -> int:
        reader = self.latest[instruction]
        first, last = (self.stages, NOWHERE) if instruction in self.backward else (0, self.stages - 1)
        return max(first, min(reader, last)) if reader < NOWHERE else first

    def _out_of_order(self, late: Instruction, position: Mapping[Instruction, int]) -> ConfigurationError:
        placement = Placement(self.stages, dict(position))
        operand = max((o for o in late.operands if o in position), key=lambda o: position[o])
        stage, source = placement.stage(self.wanted[late]), placement.stage(position[operand])
        backward = self.wanted[late] >= self.stages
        what = "gradients from the same and later stages" if backward else "values from the same and earlier stages"
        advice = f"Assign {_layer(late)} to stage {source}" + (" or below." if backward else " or above.")
        return ConfigurationError(
            f"Expected each pipeline stage to take {what} only. Received: {late.opcode} %{late.name} of stage {stage} "
            f"({late.op_name}), which takes {operand.opcode} %{operand.name} of stage {source} "
            f"({operand.op_name or 'no scope'}). {advice}"
        )

    def _refuse_late_states(self, position: Mapping[Instruction, int], fixed: Mapping[Instruction, int]) -> None:
        """Raises ConfigurationError for an instruction that depends on a variable updated in a later stage.

        Only variables may depend on instructions that were delayed for a variable.
        """
        states = set(self.parts.moving.values())
        others = set(topological([*(m.operands[0] for m in self.parts.marks), *self.parts.last]))
        for i, wanted in self.wanted.items():
            if position[i] > wanted and i in others and i not in fixed and i not in states:
                number = next(v["parameter_number"] for v in topological([i]) if v in self.owned)
                variable = self.names.get(number, f"parameter {number}")
                placement = Placement(self.stages, dict(position))
                raise ConfigurationError(
                    f"Expected variables that change with each batch to be used in the stage that updates them, or in "
                    f"later ones. Received: {i.opcode} %{i.name} of stage {placement.stage(wanted)} ({i.op_name}), "
                    f"which depends on {variable!r}, updated in stage {placement.stage(position[i])}. Put both layers "
                    f"into one stage, or use PipelineSchedule.Sequential."
                )


def _layer(instruction: Instruction) -> str:
    """The layer's scope, which follows the stage's, quoted for messages."""
    match = STAGE_SCOPE.search(instruction.op_name)
    rest = instruction.op_name[match.end() :].strip("/") if match else ""
    return repr(rest.rsplit("/", 1)[0] or instruction.op_name)
