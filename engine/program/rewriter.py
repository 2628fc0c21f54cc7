"""Builds a program from another one, which stays unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

from engine.program.builder import ProgramBuilder
from engine.program.program import Buffer, ComputeSet, Partition, Program
from engine.program.uses import BufferUses


class ProgramRewriter:
    """Replaces compute sets of a program, removes them, and inserts others after them.

    Compute sets keep their numbers until `result`; `uses` follows the changes.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sets = list(program.compute_sets)
        self.removed: set[int] = set()
        self._following: dict[int, tuple[ComputeSet, ...]] = {}

    @cached_property
    def uses(self) -> BufferUses:
        """The current uses of each buffer."""
        uses = BufferUses(replace(self.program, compute_sets=self.sets))
        for at in self.removed:
            uses.discard(at, self.sets[at])
        return uses

    def replace(self, at: int, compute_set: ComputeSet) -> None:
        """Replaces compute set number `at`."""
        if "uses" in self.__dict__:
            self.uses.discard(at, self.sets[at])
            self.uses.add(at, compute_set)
        self.sets[at] = compute_set

    def remove(self, numbers: Iterable[int]) -> None:
        """Removes compute sets that have not been removed yet."""
        for at in numbers:
            if "uses" in self.__dict__:
                self.uses.discard(at, self.sets[at])
            self.removed.add(at)

    def insert_after(self, at: int, *compute_sets: ComputeSet) -> None:
        """Inserts compute sets right after number `at`, before any mark there; `uses` leaves them out."""
        self._following[at] = compute_sets

    def result(self) -> Program:
        """The new program, or the given one if nothing has changed; marks and regions keep their positions."""
        pairs = zip(self.sets, self.program.compute_sets, strict=True)
        if not (self.removed or self._following) and all(new is old for new, old in pairs):
            return self.program
        sets: list[ComputeSet] = []
        moved = [0]
        for at, compute_set in enumerate(self.sets):
            if at not in self.removed:
                sets.append(compute_set)
            sets += self._following.get(at, ())
            moved.append(len(sets))
        return replace(
            self.program,
            compute_sets=sets,
            marks=[replace(m, position=moved[m.position]) for m in self.program.marks],
            regions=[replace(r, begin=moved[r.begin], end=moved[r.end]) for r in self.program.regions],
        )


def with_emitted(program: Program, emit: Callable[[ProgramBuilder, ComputeSet], None]) -> Program:
    """The program with what `emit` makes of each compute set in its place; one of which it makes nothing stays."""
    rewriter, partitions = ProgramRewriter(program), dict[Buffer, Partition]()
    for at, each in enumerate(program.compute_sets):
        builder = ProgramBuilder(partitions)
        emit(builder, each)
        if builder.compute_sets:
            first, *rest = builder.compute_sets
            rewriter.replace(at, first)
            rewriter.insert_after(at, *rest)
        else:
            builder.note(each)
    return rewriter.result()


def with_each(program: Program, change: Callable[[ComputeSet], ComputeSet]) -> Program:
    """The program with `change` of each compute set; itself if nothing changes."""
    sets = [change(each) for each in program.compute_sets]
    changes = any(new is not old for new, old in zip(sets, program.compute_sets, strict=True))
    return replace(program, compute_sets=sets) if changes else program
