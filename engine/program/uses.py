"""Compute sets that use each buffer: the one index for passes over programs and the memory plan."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from engine.program.program import Buffer, ComputeSet, Program, Span

Numbers = dict[Buffer, list[int]]


class BufferUses:
    """The numbers of the compute sets that read and write each buffer by their spans, ascending, each once.

    `tests` has the positions of the marks that test a buffer. Buffers come in the order of their first use.
    """

    def __init__(self, program: Program) -> None:
        self.outputs = frozenset(program.outputs)
        self.tests: Numbers = {}
        for mark in program.marks:
            if mark.predicate is not None:
                self.tests.setdefault(mark.predicate, []).append(mark.position)
        self._reads: Numbers = {}
        self._writes: Numbers = {}
        self.buffers: dict[Buffer, None] = {}
        for at, compute_set in enumerate(program.compute_sets):
            self.add(at, compute_set)

    def readers(self, buffer: Buffer) -> Sequence[int]:
        """The compute sets that read a buffer."""
        return self._reads.get(buffer, ())

    def writers(self, buffer: Buffer) -> Sequence[int]:
        """The compute sets that write a buffer."""
        return self._writes.get(buffer, ())

    def users(self, buffer: Buffer) -> list[int]:
        """The compute sets that read or write a buffer."""
        return sorted({*self.readers(buffer), *self.writers(buffer)})

    def count(self, buffer: Buffer) -> int:
        """Number of compute sets that read a buffer plus number of those that write it."""
        return len(self.readers(buffer)) + len(self.writers(buffer))

    def escapes(self, buffer: Buffer) -> bool:
        """Whether a buffer is read outside of compute sets: it is an output, or a mark tests it."""
        return buffer in self.outputs or buffer in self.tests

    def add(self, at: int, compute_set: ComputeSet) -> None:
        """Adds the uses of compute set number `at`."""
        for numbers, spans in self._of(compute_set):
            for span in spans:
                found = numbers.get(span.buffer)
                if found is None:
                    numbers[span.buffer] = [at]
                    self.buffers.setdefault(span.buffer)
                elif not found or found[-1] < at:
                    found.append(at)
                elif found[-1] != at and found[bisect_left(found, at)] != at:
                    insort(found, at)

    def discard(self, at: int, compute_set: ComputeSet) -> None:
        """Removes the uses of compute set number `at`."""
        for numbers, spans in self._of(compute_set):
            for buffer in {span.buffer for span in spans}:
                found = numbers[buffer]
                del found[bisect_left(found, at)]

    def _of(self, compute_set: ComputeSet) -> tuple[tuple[Numbers, list[Span]], ...]:
        return (self._reads, compute_set.reads), (self._writes, compute_set.writes)


def is_any_between(numbers: Sequence[int], begin: int, end: int) -> bool:
    """Whether one of the numbers n, which ascend, has begin <= n < end."""
    first = bisect_left(numbers, begin)
    return first < len(numbers) and numbers[first] < end
