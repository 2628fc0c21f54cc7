"""Syncs are enough to keep two workers from conflicting at any byte, and no more."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from engine.ir import Shape
from engine.program.memory import plan_memory
from engine.program.nest import Nest
from engine.program.program import Buffer, ComputeSet, Partition, Program, Span
from engine.program.syncs import Position, Sync, Touch, conflict, ranges_of, syncs, touches_of
from engine.program.work.fused_loop import FusedLoop
from engine.runtime.executable import Executable
from tests.program.programs import PROGRAMS, program_of
from tests.program.test_units import elements_of


def places(program: Program) -> tuple[Position, int]:
    """Addresses as in memory: the arena as planned, and each variable after it."""
    found = dict(plan_memory(program).offsets)
    top = plan_memory(program).arena_bytes
    for buffer in program.variables.values():
        found[buffer] = top
        top += buffer.shape.bytes
    return (lambda b: (found[b], found[b] + b.shape.bytes)), top


class Races:
    """The workers that have read and written each byte since the last sync."""

    def __init__(self, workers: int, size: int, place: Position) -> None:
        self.workers, self.place = workers, place
        self.read = np.zeros((workers, size), bool)
        self.written = np.zeros((workers, size), bool)

    def sync(self) -> None:
        self.read[:] = self.written[:] = False

    def meet(self, compute_set: ComputeSet) -> bool:
        """Adds the accesses of a compute set; returns whether two workers then conflict, one of them writing."""
        touched = [np.zeros_like(self.read), np.zeros_like(self.written)]
        for kind, spans in enumerate((compute_set.reads, compute_set.writes)):
            for span in spans:
                if span.buffer.kind != "constant":
                    self._mark(touched[kind], compute_set, span)
        # Units of one codelet may overlap if it does not say where they write.
        vague = any(span.partition is None for span in compute_set.writes)
        found = self._conflict(touched[0], touched[1], self.read, self.written)
        found |= not vague and self._conflict(touched[0], touched[1], touched[0], touched[1])
        self.read |= touched[0]
        self.written |= touched[1]
        return found

    def _mark(self, touched: np.ndarray, compute_set: ComputeSet, span: Span) -> None:
        start, stop = self.place(span.buffer)
        for worker, (lo, hi) in enumerate(ranges_of(compute_set, self.workers)):
            if lo < hi:
                mask = np.repeat(elements_of(span, lo, hi), span.buffer.shape.dtype.itemsize)
                touched[worker, start:stop] |= mask

    def _conflict(self, reads: np.ndarray, writes: np.ndarray, read: np.ndarray, written: np.ndarray) -> bool:
        for one in range(self.workers):
            for other in range(self.workers):
                if one != other and (
                    np.any(writes[one] & (read[other] | written[other])) or np.any(reads[one] & written[other])
                ):
                    return True
        return False


@pytest.mark.sample(21)
@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_two_workers_conflict(name: str, workers: int) -> None:
    program = program_of(name)
    sets = Executable(program)._infeeds + program.compute_sets
    place, size = places(program)
    races = Races(workers, size, place)
    for compute_set, wait in zip(sets, syncs(sets, workers, place)[0], strict=True):
        if wait:
            races.sync()
        assert not races.meet(compute_set), compute_set.name


def test_one_worker_never_waits() -> None:
    program = program_of("training")
    assert not any(syncs(program.compute_sets, 1, places(program)[0])[0])


def test_a_chain_along_one_partition_does_not_wait() -> None:
    x, y, z = (Buffer(n, Shape("f32", (64, 10))) for n in "xyz")
    addresses = {x: (0, 2560), y: (2560, 5120), z: (5120, 7680)}
    rows = Partition(10, 64, 1)

    def link(source: Buffer, target: Buffer, partition: Partition, units: int) -> ComputeSet:
        nest = Nest((False,), 0, (), ())
        spans = [Span(source, partition)], [Span(target, partition)]
        return ComputeSet("link", FusedLoop(nest, (1,), 1, ()), units, *spans)

    def waits(*links: ComputeSet) -> list[bool]:
        return [bool(sync) for sync in syncs(list(links), 2, addresses.__getitem__)[0]]

    assert waits(link(x, y, rows, 64), link(y, z, rows, 64)) == [False, False]
    # Workers of 64 units of one row also get 32 units of the same two rows.
    assert waits(link(x, y, rows, 64), link(y, z, Partition(10, 64, 2), 32)) == [False, False]
    assert waits(link(x, y, rows, 64), link(y, z, Partition(1, 10, 5), 2)) == [False, True]
    assert waits(link(x, y, rows, 64), link(y, z, Partition(10, 64, 24), 3)) == [False, True]
    # Memory that is only read needs no wait, nor does memory that lies apart.
    assert waits(link(x, y, rows, 64), link(x, z, Partition(1, 10, 5), 2)) == [False, False]
    # Memory that is used again needs a wait, unless each worker uses its own part.
    addresses[z] = (0, 2560)
    assert waits(link(x, y, rows, 64), link(y, z, Partition(10, 64, 2), 32)) == [False, False]
    assert waits(link(x, y, rows, 64), link(y, z, Partition(1, 10, 5), 2)) == [False, True]
    addresses[z] = (640, 3200)
    assert waits(link(x, y, rows, 64), link(x, z, rows, 64)) == [False, True]
    addresses[z] = (1280, 3840)
    assert waits(link(x, x, rows, 64), link(z, z, rows, 64)) == [False, True]
    addresses[z] = (2560, 5120)
    assert waits(link(x, x, rows, 64), link(z, z, rows, 64)) == [False, False]
    # Any worker may have run a claimed part; the barrier precedes the call of the host beside them.
    claimed = [replace(each, claimed=True) for each in (link(x, y, rows, 64), link(y, z, rows, 64))]
    assert syncs([link(x, x, rows, 64), *claimed], 2, addresses.__getitem__)[0] == [
        Sync.BARRIER,
        Sync.BARRIER,
        Sync.CLAIMED,
    ]


def work_of(units: int, reads: list[Span], writes: list[Span]) -> ComputeSet:
    return ComputeSet("work", FusedLoop(Nest((False,), 0, (), ()), (1,), 1, ()), units, reads, writes)


def test_comparisons_grow_with_the_compute_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of an unrolled recurrence read one weight and add to one gradient, without syncs."""
    compared = 0

    def counted(old: Touch, new: Touch, same_iteration: bool) -> bool:
        nonlocal compared
        compared += 1
        return conflict(old, new, same_iteration)

    monkeypatch.setattr("engine.program.syncs.conflict", counted)
    weight, gradient, *states = (Buffer("b", Shape("f32", (64, 10))) for _ in range(202))
    addresses = {b: (2560 * k, 2560 * (k + 1)) for k, b in enumerate((weight, gradient, *states))}
    rows = Partition(10, 64, 1)
    sets = [
        work_of(64, [Span(old, rows), Span(weight), Span(gradient, rows)], [Span(new, rows), Span(gradient, rows)])
        for old, new in pairwise(states)
    ]
    assert not any(syncs(sets, 2, addresses.__getitem__)[0])
    assert len(sets) <= compared < 2 * len(sets)


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_against_all_pairs(seed: int) -> None:
    random = np.random.default_rng(seed)
    shapes = [Shape("f32", (int(rows), 10)) for rows in random.integers(1, 64, 12)]
    begins = {Buffer("b", shape): 4 * int(random.integers(3000)) for shape in shapes}
    buffers, addresses = list(begins), {b: (begin, begin + b.shape.bytes) for b, begin in begins.items()}

    def span() -> Span:
        buffer = buffers[random.integers(len(buffers))]
        partitions = (None, Partition(10, buffer.shape.dimensions[0], 1), Partition(1, 10, 5))
        return Span(buffer, partitions[random.integers(3)])

    sets = [work_of(int(random.integers(1, 64)), [span(), span()], [span()]) for _ in range(60)]
    for workers in (2, 3):
        touches = [touches_of(each, ranges_of(each, workers), addresses.__getitem__) for each in sets]
        expected, recent = [], list[Touch]()
        for each in touches:
            expected.append(any(conflict(old, new, True) for old in recent for new in each))
            recent = [*each] if expected[-1] else [*recent, *each]
        assert [bool(sync) for sync in syncs(sets, workers, addresses.__getitem__)[0]] == expected
