"""The memory plan: the offset of each buffer in the arena, by lifetimes.

Permanent buffers that may share memory: padded arrays of the same form, used one after the other.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from engine.frozen import frozen
from engine.ir.shape import Shape
from engine.program.program import Address, Buffer, ComputeSet, Program, Region
from engine.program.syncs import Sync, syncs
from engine.program.uses import BufferUses

ALIGNMENT = 64
ITERATION_BYTES = 1 << 20
"""Most bytes (half a core's cache) of an iteration's arrays that share no memory with each other."""
HELD_BYTES = 1 << 18
"""Arrays up to this size keep their memory until the next barrier: a barrier costs more than new lines in the cache."""


@frozen
class MemoryPlan:
    """Byte offsets in the arena, its size, and the bytes live at each compute set."""

    offsets: dict[Buffer, int]
    arena_bytes: int
    live_bytes: list[int]


def lifetimes(program: Program, uses: BufferUses, *, held: bool = True) -> dict[Buffer, tuple[int, int]]:
    """First and last compute set that touches each arena or feed buffer; outputs and feeds are live to the ends.

    With `held`, as the engine's arena requires, no memory is reused before all workers are done with it, and padding
    stays. Without `held`, a buffer is live only as long as its contents are needed.
    """
    end = len(program.compute_sets)
    found: dict[Buffer, tuple[int, int]] = {}
    for buffer in uses.buffers:
        users = uses.users(buffer)
        found[buffer] = (users[0], users[-1])
    for buffer in (*program.outputs, *program.feeds.values()):
        first, last = found.get(buffer, (0, 0))
        found[buffer] = (first, end)
    for buffer, (_, last) in found.items():
        if buffer.kind == "feed":
            found[buffer] = (-1, last)
        elif held and buffer.permanent:
            found[buffer] = (-1, end)
    if held:
        _hold_predicates(program, found)
        _hold_during_calls(program, found)
    for region in sorted((r for r in program.regions if r.repeats), key=lambda r: r.begin - r.end, reverse=True):
        for buffer, (first, last) in found.items():
            found[buffer] = _through_loop(region, first, last)
    if held:
        _hold_iterations(program, found)
    return {b: span for b, span in found.items() if b.kind in ("arena", "feed")}


def _hold_iterations(program: Program, found: dict[Buffer, tuple[int, int]]) -> None:
    """Keeps an iteration's arrays, if small, live throughout it: reusing their memory would need a barrier."""
    repeating = [r for r in program.regions if r.repeats]
    for region in repeating:
        if any(r is not region and region.begin <= r.begin and r.end <= region.end for r in repeating):
            continue
        inside = [b for b, (first, last) in found.items() if region.begin <= first and last < region.end]
        if sum(buffer.shape.bytes for buffer in inside if buffer.kind == "arena") <= ITERATION_BYTES:
            found.update((buffer, (region.begin, region.end - 1)) for buffer in inside)


def _hold_until_the_barrier(program: Program, uses: BufferUses, lives: dict[Buffer, tuple[int, int]]) -> None:
    """Keeps small arrays live until a barrier that other reasons require: reusing their memory then needs none.

    These barriers are found with addresses that no two buffers share.
    """
    sizes = [_rounded(buffer.shape.bytes) for buffer in uses.buffers]
    begins = dict(zip(uses.buffers, accumulate(sizes, initial=0), strict=False))

    def location(buffer: Buffer) -> tuple[int, int]:
        begin = begins.get(buffer, -ALIGNMENT)
        return begin, begin + buffer.shape.bytes

    needed, _ = syncs(program.compute_sets, 2, location, program.marks)
    meetings = [at for at, sync in enumerate(needed) if sync == Sync.BARRIER]
    for buffer, (first, last) in lives.items():
        if buffer.shape.bytes <= HELD_BYTES and not buffer.permanent:
            following = bisect_right(meetings, last)
            end = meetings[following] - 1 if following < len(meetings) else len(needed)
            lives[buffer] = (first, max(last, end))


def _hold_predicates(program: Program, found: dict[Buffer, tuple[int, int]]) -> None:
    """Extends a predicate's life to its label: a slow worker may still read it while others run on."""
    labels = {m.label: m.position for m in program.marks if m.kind == "label"}
    for mark in program.marks:
        if mark.predicate is not None and mark.predicate in found:
            first, last = found[mark.predicate]
            found[mark.predicate] = (first, max(last, labels[mark.label], mark.position))


def _hold_during_calls(program: Program, found: dict[Buffer, tuple[int, int]]) -> None:
    """Keeps the arrays of a host function live while claimed compute sets run beside the function."""
    call: ComputeSet | None = None
    for at, each in enumerate(program.compute_sets):
        if not each.claimed:
            call = each
        elif call is not None:
            for buffer in (span.buffer for span in (*call.reads, *call.writes) if span.buffer in found):
                first, last = found[buffer]
                found[buffer] = (first, max(last, at))


def _through_loop(region: Region, first: int, last: int) -> tuple[int, int]:
    """A buffer's lifetime with a loop that uses it: what a loop only reads or passes on outlives every iteration."""
    begin, end = region.begin, region.end - 1
    if last < begin or first > end:
        return first, last
    if first < begin:
        return first, max(last, end)
    return (begin, last) if last > end else (first, last)


def plan_memory(program: Program) -> MemoryPlan:
    """Plans offsets in the order of first use; they are multiples of ALIGNMENT bytes."""
    uses = BufferUses(program)
    wanted = lifetimes(program, uses)
    lives = dict(wanted)
    _hold_until_the_barrier(program, uses, lives)
    owners = {buffer: owner for buffer, owner in shared_paddings(program, uses).items() if owner is not buffer}
    offsets: dict[Buffer, int] = {}
    arena = Arena()
    active: list[tuple[int, int, Buffer]] = []
    end = len(program.compute_sets)
    grown = [0] * (end + 2)
    owning = [buffer for buffer in lives if buffer not in owners]
    for number, buffer in enumerate(sorted(owning, key=lambda b: (lives[b][0], -b.shape.bytes))):
        first, last = lives[buffer]
        expired = []
        while active and active[0][0] < first:
            _, begun, old = heappop(active)
            expired.append((begun, old))
        for _, old in sorted(expired):
            arena.release(offsets[old], _rounded(old.shape.bytes))
        offsets[buffer] = arena.take(_rounded(buffer.shape.bytes))
        heappush(active, (last, number, buffer))
        until = min(wanted[buffer][1], end - 1) + 1
        if until > max(first, 0):
            grown[max(first, 0)] += buffer.shape.bytes
            grown[until] -= buffer.shape.bytes
    offsets |= {buffer: offsets[owner] for buffer, owner in owners.items()}
    return MemoryPlan(offsets, arena.bytes, [*accumulate(grown[: end + 1])])


def _rounded(size: int) -> int:
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


class FreePart(NamedTuple):
    """Free memory that an array had, whose halves meet at `middle`."""

    begin: int
    end: int
    middle: int


class Hole(NamedTuple):
    """Free memory between arrays, and the parts of the arrays that had it last."""

    begin: int
    end: int
    parts: tuple[FreePart, ...]

    def between(self, begin: int, end: int) -> Hole:
        """The part of the hole between these offsets."""
        inside = (p for p in self.parts if p.begin < end and begin < p.end)
        return Hole(begin, end, tuple(FreePart(max(p.begin, begin), min(p.end, end), p.middle) for p in inside))

    def places(self, size: int) -> set[int]:
        """Offsets for an array: at the ends, and where its middle is that of an array before."""
        found = {self.begin, self.end - size}
        found |= {(part.middle - size // 2) // ALIGNMENT * ALIGNMENT for part in self.parts}
        return {place for place in found if self.begin <= place <= self.end - size}

    def crossing(self, begin: int, size: int) -> int:
        """The bytes of an array at `begin` that the other half of the workers has written before."""
        middle, total = begin + size // 2, 0
        for part in self.parts:
            low, high = max(part.begin, begin, min(part.middle, middle)), min(part.end, begin + size)
            total += max(0, min(high, max(part.middle, middle)) - low)
        return total


class Arena:
    """Memory that arrays use one after another, by best fit.

    Units of a compute set are divided in their order, so a half of the workers has a half of an array, and its caches
    have the memory's lines. Cores of different caches exchange lines slowly: an array goes where its halves were
    before, first of all where an array of its size was.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._free: list[Hole] = []

    def take(self, size: int) -> int:
        """The offset of memory for an array."""
        fitting = [hole for hole in self._free if hole.end - hole.begin >= size]
        if not fitting:
            self.bytes += size
            return self.bytes - size
        same = [
            (h, p.begin)
            for h in fitting
            for p in h.parts
            if p.end - p.begin == size and p.middle == p.begin + size // 2
        ]
        hole = min((h for h, _ in same) if same else fitting, key=lambda h: h.end - h.begin)
        places = [at for h, at in same if h is hole] or hole.places(size)
        begin = min(places, key=lambda at: (hole.crossing(at, size), at))
        self._free.remove(hole)
        rests = hole.between(hole.begin, begin), hole.between(begin + size, hole.end)
        self._free += [rest for rest in rests if rest.end > rest.begin]
        return begin

    def release(self, begin: int, size: int) -> None:
        """Frees an array's memory; the hole is merged with its neighbours."""
        hole, others = Hole(begin, begin + size, (FreePart(begin, begin + size, begin + size // 2),)), []
        for each in self._free:
            if each.end == hole.begin:
                hole = Hole(each.begin, hole.end, each.parts + hole.parts)
            elif hole.end == each.begin:
                hole = Hole(hole.begin, each.end, hole.parts + each.parts)
            else:
                others.append(each)
        self._free = [*others, hole]


Form = tuple[object, ...]
THIS, OTHER = Buffer("this", Shape("u8")), Buffer("other", Shape("u8"))


def shared_paddings(program: Program, uses: BufferUses) -> dict[Buffer, Buffer]:
    """Maps each permanent buffer to the one whose memory it uses, perhaps itself.

    Elements that no instruction writes keep their values from step to step; all buffers that share memory leave the
    same elements unwritten and write the others before they are read. A program with loops shares none: a reader could
    run again after another owner has written.
    """
    paddings = [buffer for buffer in uses.buffers if buffer.permanent]
    if program.regions:
        return {buffer: buffer for buffer in paddings}
    lasts: dict[Form, dict[Buffer, int]] = {}
    found: dict[Buffer, Buffer] = {}
    for buffer in paddings:
        users = uses.users(buffer)
        if any(program.compute_sets[at].once for at in uses.writers(buffer)):
            found[buffer] = buffer  # never written again
            continue
        owners = lasts.setdefault(_form(program, buffer, uses), {})
        free = (owner for owner, last in owners.items() if last < users[0])
        owner = buffer if _keeps_something(buffer, uses) else next(free, buffer)
        owners[owner] = users[-1]
        found[buffer] = owner
    return found


def _keeps_something(buffer: Buffer, uses: BufferUses) -> bool:
    """Whether a step may need contents of the last step: of an output, or where not all writes precede reads."""
    reads, writes = uses.readers(buffer), uses.writers(buffer)
    return buffer in uses.outputs or not writes or (len(reads) > 0 and writes[-1] >= reads[0])


def _form(program: Program, buffer: Buffer, uses: BufferUses) -> Form:
    """A key that is equal for buffers with the same initial contents and the same written elements."""
    written = tuple(_writing(program.compute_sets[at], buffer) for at in uses.writers(buffer))
    value = None if buffer.value is None else buffer.value.tobytes()
    return buffer.shape, value, written


def _writing(writer: ComputeSet, buffer: Buffer) -> Form:
    """A writer's work and number of units, in which all buffers but this one are replaced by the same one."""
    work = writer.work.with_addresses(lambda a: Address(THIS, a.offset) if a.buffer is buffer else Address(OTHER))
    return work, writer.units
