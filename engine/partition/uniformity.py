"""Values that are the same on all replicas: an analysis to a fixed point through loops and conditions."""

from __future__ import annotations

from collections.abc import Sequence, Set
from enum import IntEnum
from functools import cache

from engine.frozen import frozen
from engine.ir import AnyShape, Computation, Instruction, Module, TupleShape
from engine.ir.device_operations import (
    ALL_GATHER,
    ALL_TO_ALL,
    ASSUME_EQUAL,
    CROSS_REPLICA_MEAN,
    CROSS_REPLICA_SUM,
    INFEED,
    OUTFEED,
    REDUCE_SCATTER,
    REPLICA_INDEX,
    TOKEN,
    config_of,
    target_of,
)
from engine.partition.processes import Processes

GATHERING = frozenset({ALL_GATHER, CROSS_REPLICA_MEAN, CROSS_REPLICA_SUM})
"""Collectives after which all replicas of a group have the same value."""


class Differing(IntEnum):
    """The extent to which a value may differ between replicas; a result has the greatest kind of its operands."""

    FIXED = 0
    """Equal on all replicas: computed from constants and arguments alone."""
    STATE = 1
    """Equal on all replicas: computed from variables too."""
    VARYING = 2


Kinds = tuple[Differing, ...]
"""The kinds of a value's leaves: one for an array, those of all elements for a tuple."""


def element_range(shape: AnyShape, index: int) -> slice:
    """The range of a tuple element's leaves among the leaves of the tuple."""
    assert isinstance(shape, TupleShape)
    start = sum(len(element.leaves) for element in shape.elements[:index])
    return slice(start, start + len(shape.elements[index].leaves))


@frozen
class LoopKinds:
    """The kinds of a loop's state during its iterations, and those of its results.

    If the number of iterations differs between replicas (`divergent`), so does all that iterations change.
    """

    state: Kinds
    results: Kinds
    divergent: bool


class Uniformity:
    """The analysis of one module for a number of replicas; results are cached by computation and argument kinds."""

    def __init__(self, replicas: int, processes: Processes | None = None, summed: Set[int] = frozenset()) -> None:
        self.replicas, self.processes, self.summed = replicas, processes, summed
        self.every = replicas * (1 if processes is None else processes.count)
        """Number of replicas in all processes."""
        self.first = 0 if processes is None else replicas * processes.index
        """Number of this process's first replica among the replicas of all processes."""
        self.different = Differing.VARYING if self.every > 1 else Differing.STATE
        """The kind of replica indices, infeed elements and random numbers."""
        self.loop = cache(self._loop)
        self._computation = cache(self._results)

    def variables(self, module: Module, roles: Sequence[str]) -> dict[int, Differing]:
        """The kind of each entry parameter: a variable varies if its new value may, or is `summed`."""
        kinds = {
            number: Differing.STATE if role == "variable" else Differing.FIXED for number, role in enumerate(roles)
        }
        kinds.update(dict.fromkeys(self.summed & module.aliases.keys(), self.different))
        while True:
            values = self._values(module.entry, [(kinds[number],) for number in range(len(roles))])
            varying = {n for n, k in module.aliases.items() if values[module.results[k]] == (Differing.VARYING,)}
            moved = {number for number in varying if kinds[number] is not Differing.VARYING}
            if not moved:
                return kinds
            kinds.update(dict.fromkeys(moved, Differing.VARYING))

    def after(self, instruction: Instruction, operands: Sequence[Kinds]) -> Kinds:
        """The kinds of an instruction's results, given those of its operands."""
        match instruction.opcode:
            case "tuple":
                return tuple(kind for operand in operands for kind in operand)
            case "get-tuple-element":
                return operands[0][element_range(instruction.operands[0].shape, instruction["tuple_index"])]
            case "optimization-barrier":
                return operands[0]
            case "while":
                return self.loop(instruction, operands[0]).results
            case "conditional":
                return self._conditional(instruction, operands)
        most = max((kind for operand in operands for kind in operand), default=Differing.FIXED)
        leaves = len(instruction.shape.leaves)
        match instruction.opcode:
            case "rng":
                return (self.different,) * leaves
            case "rng-bit-generator":
                return (most, Differing.FIXED if most is Differing.FIXED else self.different)
            case "custom-call":
                return self._custom_call(instruction, most, leaves)
        return (most,) * leaves

    def _values(self, computation: Computation, arguments: Sequence[Kinds]) -> dict[Instruction, Kinds]:
        values: dict[Instruction, Kinds] = {}
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                values[instruction] = arguments[instruction["parameter_number"]]
            else:
                values[instruction] = self.after(instruction, [values[operand] for operand in instruction.operands])
        return values

    def _results(self, computation: Computation, arguments: Kinds) -> Kinds:
        """The kinds of a computation's results, given those of its one parameter."""
        return self._values(computation, [arguments])[computation.root]

    def _loop(self, loop: Instruction, initial: Kinds) -> LoopKinds:
        """The kinds that hold in each iteration of a `while`, given those of its initial state."""
        body, condition = loop.called
        state = initial
        while True:
            following = tuple(map(max, state, self._computation(body, state)))
            if following == state:
                break
            state = following
        divergent = self._computation(condition, state) == (Differing.VARYING,)
        if not divergent:
            return LoopKinds(state, state, False)
        kept = passed_on(body)
        results = tuple(kind if leaf in kept else Differing.VARYING for leaf, kind in enumerate(state))
        return LoopKinds(state, results, True)

    def _conditional(self, instruction: Instruction, operands: Sequence[Kinds]) -> Kinds:
        (choice,), *arguments = operands
        branches = [self._computation(*each) for each in zip(instruction.called, arguments, strict=True)]
        return tuple(max(choice, *kinds) for kinds in zip(*branches, strict=True))

    def _custom_call(self, instruction: Instruction, most: Differing, leaves: int) -> Kinds:
        target = target_of(instruction)
        if target in GATHERING:
            group = config_of(instruction).get("replica_group_size") or self.every
            return (most if group % self.replicas else min(most, Differing.STATE),)
        if target in (ALL_TO_ALL, REDUCE_SCATTER, REPLICA_INDEX):
            return (self.different,) * leaves
        if target == ASSUME_EQUAL:
            return (min(most, Differing.STATE),) * leaves
        if target == OUTFEED:
            return (Differing.STATE,)
        if target == INFEED or is_ordered(instruction):
            return (*[self.different] * (leaves - 1), Differing.STATE)
        return (most,) * leaves


def is_ordered(instruction: Instruction) -> bool:
    """Whether a custom call takes a token, an s32 scalar, as last operand and returns the next one as last result."""
    if instruction.opcode != "custom-call" or not instruction.get("custom_call_has_side_effect", False):
        return False
    shapes = instruction.shape.leaves
    return bool(instruction.operands and shapes) and instruction.operands[-1].shape == shapes[-1] == TOKEN


def passed_on(body: Computation) -> set[int]:
    """The leaves of a loop's state that an iteration passes on unchanged."""
    origins: dict[Instruction, list[int | None]] = {}
    for instruction in body.instructions:
        match instruction.opcode:
            case "parameter":
                origins[instruction] = list(range(len(instruction.shape.leaves)))
            case "tuple":
                origins[instruction] = [leaf for operand in instruction.operands for leaf in origins[operand]]
            case "get-tuple-element":
                (operand,) = instruction.operands
                origins[instruction] = origins[operand][element_range(operand.shape, instruction["tuple_index"])]
            case _:
                origins[instruction] = [None] * len(instruction.shape.leaves)
    return {leaf for leaf, origin in enumerate(origins[body.root]) if origin == leaf}
