"""Recomputes activations in the backward pass of a step, in place of keeping them.

The backward pass reads copies of the values that are dropped. An optimization-barrier makes the copies of a
segment depend on a gradient that enters it: no order and no fusion brings them forward.

The values of a forward pass that are dropped and recomputed: no later segment of the pass reads them.

Segments end at the checkpoints that a user marked, else where fewest bytes cross. Small values are kept, as are random
draws and the last segment, whose values the backward pass reads at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate
from math import isqrt

from engine.ir import Computation, Instruction, Module, Shape
from engine.ir.device_operations import is_checkpoint
from engine.ir.module import needs_first
from engine.ir.op_names import RECOMPUTED, in_gradient_scope, stage_in
from engine.ir.opcodes import AFFINE, NOT_STORED, SOURCES, TUPLES
from engine.ir.properties import is_repeatable
from engine.passes.loops.rebuilding import element_of, tuple_of
from engine.passes.order import live_peak, ordered, schedule_updates_last
from engine.passes.rewriting import Callees, Names, changed, with_computations, with_parts

SMALL = 16
"""Values of at most the largest activation's size divided by this are kept."""
MOVES = AFFINE | SOURCES | TUPLES
Numbers = Mapping[Instruction, int]


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of a computation that are recomputed: `copied` has the segment of each value, and of tuples of values.

    `sources` are the values that an instruction is or moves, `gates` the gradients that segments wait for. `is_marked`
    says whether segments end at checkpoints.
    """

    backward: Set[Instruction] = frozenset()
    copied: Numbers = field(default_factory=dict)
    sources: Mapping[Instruction, tuple[Instruction, ...]] = field(default_factory=dict)
    updated: Set[Instruction] = frozenset()
    gates: dict[int, Instruction] = field(default_factory=dict)
    is_marked: bool = False

    def segment(self, instruction: Instruction) -> int | None:
        """The segment in which an instruction is copied; None if it is not copied."""
        if instruction in self.copied:
            return self.copied[instruction]
        found = (self.copied[s] for s in self.sources.get(instruction, ()) if s in self.copied)
        return None if instruction in self.backward else next(found, None)

    def reads_copy(self, reader: Instruction, operand: Instruction, copied: bool) -> bool:
        """Whether an instruction of the backward pass, or a copy, reads the copy of an operand."""
        return (copied or reader in self.backward) and self.segment(operand) is not None

    def gate_of(self, instruction: Instruction) -> Instruction | None:
        """The gradient that the copy of an instruction waits for."""
        segment = self.segment(instruction)
        return None if segment is None else self.gates.get(segment)

    def is_gated(self, kept: Instruction) -> bool:
        """Whether copies read a value behind the barrier: arrays that are computed, and feeds."""
        fed = kept.opcode == "parameter" and kept not in self.updated
        return isinstance(kept.shape, Shape) and (fed or bool(self.sources[kept]))


def segments_of(computation: Computation, updated: Set[Instruction]) -> Segments:
    """The segments of a step. They are empty if there is no backward pass, or nothing to gain.

    Parameters in `updated` may be overwritten, and are read without a barrier.
    """
    forward = _Forward(computation)
    copied = forward.copied() if forward.activations else {}
    found = Segments(forward.backward, copied, forward.sources, updated, is_marked=forward.is_marked)
    for segment in set(copied.values()):
        if (gate := _gate(computation, found, segment)) is not None:
            found.gates[segment] = gate
    return found


def _gate(computation: Computation, segments: Segments, segment: int) -> Instruction | None:
    """The first gradient that enters a segment's backward pass, computed without the segment's values."""
    depending = set[Instruction]()
    for i in computation.instructions:
        if i in segments.backward and any(o in depending or segments.segment(o) == segment for o in i.operands):
            depending.add(i)
            entering = (o for o in i.operands if o in segments.backward and o not in depending)
            if (gate := next(filter(segments.is_gated, entering), None)) is not None:
                return gate
    return None


def _backward(computation: Computation) -> set[Instruction]:
    """The instructions of gradients, by their scope, and all that depend on them.

    Constants belong to either pass, and so do moves, which may bear the name of an equal one in the other.
    """
    varying, found = set[Instruction](), set[Instruction]()
    for i in computation.instructions:
        if i.opcode == "parameter" or not is_repeatable(i) or any(o in varying for o in i.operands):
            varying.add(i)
            if any(o in found for o in i.operands) or _begins_backward(i):
                found.add(i)
    return found


def _begins_backward(instruction: Instruction) -> bool:
    if instruction.opcode == "fusion":
        inner = [i for i in instruction.called[0].instructions if i.opcode not in MOVES and i.op_name]
        return bool(inner) and all(in_gradient_scope(i.op_name) for i in inner)
    return instruction.opcode not in MOVES and in_gradient_scope(instruction.op_name)


class _Forward:
    """The values of a forward pass that take memory: arrays, and elements of results."""

    def __init__(self, computation: Computation) -> None:
        self.backward = _backward(computation)
        self.sources: dict[Instruction, tuple[Instruction, ...]] = {}
        self.reads: dict[Instruction, tuple[Instruction, ...]] = {}
        """The values that a stored instruction reads."""
        self.values: dict[Instruction, Instruction] = {}
        """The instruction that computes each value."""
        whole = set[Instruction]()
        for i in computation.instructions:
            read = tuple(dict.fromkeys(s for o in i.operands for s in self.sources[o]))
            of_result = i.opcode == "get-tuple-element" and i.operands[0] in self.reads
            if i.opcode not in NOT_STORED:
                self.reads[i] = read
            if not of_result:
                whole.update(o for o in i.operands if o in self.reads)
            is_value = of_result or (i in self.reads and isinstance(i.shape, Shape))
            self.sources[i] = (i,) if is_value else read
            if is_value and i not in self.backward:
                self.values[i] = i.operands[0] if of_result else i
        self.bytes = {value: value.shape.bytes for value in self.values}
        self.readers: dict[Instruction, list[Instruction]] = {value: [] for value in self.values}
        for i, read in self.reads.items():
            for value in read:
                if value in self.readers:
                    self.readers[value].append(i)
        self.activations = [v for v in self.values if any(r in self.backward for r in self.readers[v])]
        most = max((self.bytes[v] for v in self.activations), default=0)
        small = {v for v in self.values if SMALL * self.bytes[v] <= most}
        passed_whole = {v for v, maker in self.values.items() if v is not maker and maker in whole}
        self.is_marked = any(map(_is_marked, self.values.values()))
        self.fixed = self._draws() | small | passed_whole | set(self.sources[computation.root])

    def _draws(self) -> set[Instruction]:
        """Random draws and values that are computed from them alone."""
        found = set[Instruction]()
        for value, maker in self.values.items():
            read = self.reads[maker]
            if not is_repeatable(maker) or (read and found.issuperset(read)):
                found.add(value)
        return found

    def copied(self) -> Numbers:
        """The values to recompute and the instructions that compute them, each with its segment."""
        if self.is_marked:
            return self._plan(self._by_checkpoints())[0]
        before = sum(self.bytes[v] for v in self.activations)
        counts = range(2, min(len(self.activations), 3 * isqrt(len(self.activations)) + 1) + 1)
        plans = [self._plan(self._cut(count)) for count in counts]
        plan, after = min(plans, key=lambda each: each[1], default=({}, before))
        return plan if after < before else {}

    def _by_checkpoints(self) -> Numbers:
        """The number of checkpoints on the way to each value."""
        found: dict[Instruction, int] = {}
        for value, maker in self.values.items():
            found[value] = max(
                (found[r] + _is_marked(self.values[r]) for r in self.reads[maker] if r in found), default=0
            )
        return found

    def _cut(self, count: int) -> Numbers:
        """Cuts the pass into segments of about equal bytes of activations, where fewest bytes cross."""
        position = {maker: at for at, maker in enumerate(dict.fromkeys(self.values.values()))}
        change, size = [0] * (len(position) + 1), [0] * len(position)
        for value, maker in self.values.items():
            last = max((position[r] for r in self.readers[value] if r in position), default=position[maker])
            change[position[maker]] += self.bytes[value]
            change[last] -= self.bytes[value]
        for value in self.activations:
            size[position[self.values[value]]] += self.bytes[value]
        crossing, before = list(accumulate(change)), list(accumulate(size))
        half = before[-1] / count / 2
        segment_at = [0] * len(position)
        for number in range(1, count):
            uneven = [abs(bytes_ - 2 * number * half) for bytes_ in before]
            near = [(crossing[at], each, at) for at, each in enumerate(uneven) if each <= half]
            cut = min(near, default=(0, 0, len(position)))[2]
            segment_at = [each + (at > cut) for at, each in enumerate(segment_at)]
        return {value: segment_at[position[maker]] for value, maker in self.values.items()}

    def _plan(self, segment: Numbers) -> tuple[Numbers, int]:
        """The values to recompute for some segments, and the bytes of activations at the peak that remains."""
        last = max(segment.values())
        segment_of_maker = {maker: segment[value] for value, maker in self.values.items()}
        dropped = {
            value
            for value, maker in self.values.items()
            if value not in self.fixed and segment[value] < last and not _is_marked(maker)
            if all(segment_of_maker.get(r, segment[value]) == segment[value] for r in self.readers[value])
        }
        found: dict[Instruction, int] = {}
        read = set[Instruction]()
        pending: Sequence[Instruction] = [value for value in self.activations if value in dropped]
        while pending:
            makers = [self.values[value] for value in pending]
            found |= {
                each: segment[value] for value, maker in zip(pending, makers, strict=True) for each in (value, maker)
            }
            needed = dict.fromkeys(r for maker in makers for r in self.reads[maker] if r in self.values)
            read.update(r for r in needed if r not in dropped)
            pending = [r for r in needed if r in dropped and r not in found]
        kept = read.union(value for value in self.activations if value not in dropped)
        of_segments = [0] * (last + 1)
        for value in self.activations:
            of_segments[segment[value]] += self.bytes[value] if value in dropped else 0
        return found, sum(self.bytes[value] for value in kept) + max(of_segments)


def _is_marked(maker: Instruction) -> bool:
    return any(map(is_checkpoint, maker.called[0].instructions if maker.opcode == "fusion" else (maker,)))


GAIN = 0.9
"""Share of the most live bytes above which recomputation without checkpoints is not worth it."""


def recompute_activations(module: Module) -> Module:
    """The module with activations recomputed in its entry and in loops, where that takes less memory.

    Parts of pipelines are left alone: `engine/partition` recomputes by stages.
    """
    called = [c for i in module.instructions() if i.opcode == "while" for c in i.called]
    steps = {module.entry, *called}
    updated = {each for each in module.entry.parameters if each["parameter_number"] in module.aliases}

    def change(computation: Computation, callees: Callees) -> Computation:
        in_stages = any(stage_in(i.op_name) is not None for i in computation.instructions)
        found = segments_of(computation, updated) if computation in steps and not in_stages else Segments()
        made = _Recomputation(computation, callees, found).run()
        if not found.copied:
            return made
        if found.is_marked:
            return made if computation is module.entry else ordered(made)
        kept = _Recomputation(computation, callees, Segments()).run()
        if computation is module.entry:
            before, after = (
                schedule_updates_last(Module(module.name, each, dict(module.aliases))) for each in (kept, made)
            )
        else:
            before, after = (Module(each.name, ordered(each)) for each in (kept, made))
            made = after.entry
        return made if live_peak(after) <= GAIN * live_peak(before) else kept

    return with_computations(module, change)


Node = tuple[Instruction, bool]
"""An instruction, or its copy."""


class _Recomputation:
    """Rebuilds a computation with copies for the backward pass."""

    def __init__(self, computation: Computation, callees: Callees, segments: Segments) -> None:
        self.computation, self.callees, self.segments = computation, callees, segments
        self.names = Names(computation.instructions)
        self.instructions: list[Instruction] = []
        self.made: dict[Node, Instruction] = {}
        self.behind_barrier: dict[tuple[Instruction, Instruction], Instruction] = {}

    def run(self) -> Computation:
        """The computation; itself if nothing is recomputed and no callee has changed."""
        for instruction in self.computation.instructions:
            for node in needs_first((instruction, False), self._needs, self.made):
                self.made[node] = self._built(*node)
        if self.instructions == self.computation.instructions:
            return self.computation
        return Computation(self.computation.name, self.instructions, self.made[self.computation.root, False])

    def _needs(self, node: Node) -> list[Node]:
        """The nodes that a node reads, then, for a copy, the gradient it waits for."""
        instruction, copied = node
        reads = [(o, self.segments.reads_copy(instruction, o, copied)) for o in instruction.operands]
        gate = self.segments.gate_of(instruction) if copied else None
        return reads if gate is None else [*reads, (gate, False)]

    def _built(self, instruction: Instruction, copied: bool) -> Instruction:
        gate = self.segments.gate_of(instruction) if copied else None
        reads = self._needs((instruction, copied))[: len(instruction.operands)]
        operands = [self._value(each, gate) for each in reads]
        called = [self.callees.get(c, c) for c in instruction.called]
        if not copied:
            return self._added(with_parts(instruction, operands, called), instruction)
        copy = changed(instruction, operands=operands, called=tuple(called))
        copy.op_name = f"{RECOMPUTED}/{instruction.op_name}"
        return self._added(copy)

    def _value(self, node: Node, gate: Instruction | None) -> Instruction:
        """The value that an instruction reads: a copy reads kept values behind the barrier, except those updated in
        place.
        """
        (instruction, copied), value = node, self.made[node]
        if copied or gate is None or not self.segments.is_gated(instruction):
            return value
        if (instruction, gate) not in self.behind_barrier:
            both = self._added(tuple_of("kept", (value, self.made[gate, False])))
            barrier = self._added(Instruction("barrier", "optimization-barrier", both.shape, (both,)))
            self.behind_barrier[instruction, gate] = self._added(element_of(barrier, 0))
        return self.behind_barrier[instruction, gate]

    def _added(self, instruction: Instruction, stands_for: Instruction | None = None) -> Instruction:
        added = self.names.settle(instruction, stands_for or instruction)
        self.instructions.append(added)
        return added
