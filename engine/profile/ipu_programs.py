"""The parts of a pipeline on one IPU as one program: shared variables, and the values that wait between parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.frozen import frozen
from engine.ir import Instruction
from engine.ir.op_names import readable_name
from engine.partition.part_steps import Key, PartStep
from engine.profile.names import STASH
from engine.program.program import Buffer, ComputeSet, Program, Region, Span

_SHARED = ("variable", "feed", "accumulator")


@frozen
class Stretch:
    """The compute sets begin <= k < end of an IPU's program, which belong to one part."""

    step: PartStep
    begin: int
    end: int
    compute_sets: list[ComputeSet]


def joined(
    name: str, built: Sequence[tuple[PartStep, Program]], rings: Mapping[Instruction, int]
) -> tuple[Program, list[Stretch]]:
    """Join the parts of an IPU into one program, in the order given, with the stretch of each part.

    `rings` has the number of micro-batches of each value that waits. Rings and sums of gradients are always live.
    Values from other parts are arrays of the part that reads them.
    """
    joining = _Joining(Program(name, [], {}, {}, [], []))
    stretches = [joining.add(step, program) for step, program in built]
    updates = [stretch.begin for stretch in stretches if stretch.step.kind == "update"]
    if updates:
        # All micro-batches come before the update: their sums of gradients are live throughout.
        joining.program.regions.append(Region(0, min(updates), repeats=True, iterations=1))
    for value, depth in rings.items():
        shape = value.array_shape.with_dimensions((depth, *value.array_shape.dimensions))
        joining.program.outputs.append(Buffer(STASH + readable_name(value.op_name, value.name), shape))
    return joining.program, stretches


class _Joining:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.shared: dict[Key, Buffer] = {}
        self.labels = 0

    def add(self, step: PartStep, program: Program) -> Stretch:
        """Append the compute sets of a part; return their stretch."""
        stands: dict[Buffer, Buffer] = {}
        for number, buffer in {**program.variables, **program.feeds}.items():
            stands[buffer] = self._buffer(step.keys[number], buffer)

        def moved(buffer: Buffer) -> Buffer:
            return stands.get(buffer, buffer)

        begin = len(self.program.compute_sets)
        self.program.compute_sets += [_with_buffers(each, stands) for each in program.compute_sets]
        for mark in program.marks:
            predicate = None if mark.predicate is None else moved(mark.predicate)
            slot = replace(mark, position=mark.position + begin, label=mark.label + self.labels, predicate=predicate)
            self.program.marks.append(slot)
        self.labels += 1 + max((mark.label for mark in program.marks), default=0)
        for region in program.regions:
            self.program.regions.append(replace(region, begin=region.begin + begin, end=region.end + begin))
        end = len(self.program.compute_sets)
        return Stretch(step, begin, end, self.program.compute_sets[begin:])

    def _buffer(self, key: Key, buffer: Buffer) -> Buffer:
        kind, what = key
        if kind in _SHARED and key in self.shared:
            return self.shared[key]
        if kind == "variable":
            self.program.variables[what] = made = Buffer(
                buffer.name, buffer.shape, "variable", what, label=buffer.label
            )
        elif kind == "feed":
            self.program.feeds[what] = made = Buffer(buffer.name, buffer.shape, "feed", what)
        else:
            # buffer_names recognises sums of gradients by the name of a loop state.
            suffix = ".state.sum" if kind == "accumulator" else ""
            made = Buffer(readable_name(what.op_name, what.name) + suffix, buffer.shape)
            if kind == "accumulator":
                self.program.outputs.append(made)
        self.shared[key] = made
        return made


def _with_buffers(compute_set: ComputeSet, stands: Mapping[Buffer, Buffer]) -> ComputeSet:
    moved = compute_set.with_buffers(lambda buffer: stands.get(buffer, buffer))
    reads, writes = ([Span(span.buffer, span.partition) for span in side] for side in (moved.reads, moved.writes))
    return replace(moved, reads=reads, writes=writes)
