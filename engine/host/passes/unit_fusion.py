"""Compute sets fused unit by unit: all of them run for one unit before the next, as one compute set.

An attention's scores, their exponentials and shares belong to one head of one sample; normalized rows belong to one
unit. A unit's arrays are then still in a near cache when the next codelet reads them, and arrays without other readers
are never stored in memory. For the host only: the program that the device model estimates has them one by one.
"""

from __future__ import annotations

from collections import Counter

from engine.codelets.language.encoded import CodeletWork
from engine.codelets.pooling.pool_windows import PooledImages
from engine.host.passes.split_products import is_split
from engine.host.unit_chain import chained, of_chain
from engine.machine_code.costs import costs
from engine.program.program import Buffer, ComputeSet, Partition, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import BufferUses
from engine.program.work.contraction import Contraction
from engine.program.work.fused_loop import FusedLoop

LEAST_SHARE = 1 / 16
"""Fusing pays if arrays that several compute sets touch exceed this share of a worker's cache."""
MOST_UNIT_SHARE = 1 / 4
"""Largest share of a worker's cache that a fused unit may touch: more would not be there when it is read again."""
MOST_LINKS = 12
"""Most compute sets of a chain."""
FARTHEST = 4
"""Most compute sets between two of a chain that are moved behind it."""
FEWEST_UNITS = 16
"""Fewest units of a chain whose compute sets have different numbers of units, for loads as even as before."""


def fuse_units(program: Program) -> Program:
    """Fuses compute sets that read slices of arrays that others in the chain write or read."""
    rewriter = ProgramRewriter(program)
    sets = rewriter.sets
    links = {at for at, each in enumerate(sets) if _is_link(program, each)}
    addressed: dict[Buffer, set[int]] = {}
    steered = {mark.position for mark in program.marks} | {p for r in program.regions for p in (r.begin, r.end)}
    for at in range(len(sets)):
        if at in rewriter.removed or at not in links:
            continue
        found = _from(sets, at, links, steered, rewriter.removed)
        while len(found) > 1 and not _forwards(_sliced(sets, found[:-1]), sets[found[-1]]):
            found.pop()
        linked = [sets[each] for each in found]
        if len(linked) > 1 and _gain(linked) >= LEAST_SHARE * costs().cache_bytes:
            addressed = addressed or _addressed(program)
            touched = dict.fromkeys(s.buffer for each in linked for s in _spans(each))
            own = [b for b in touched if _is_own(rewriter.uses, addressed, set(found), b)]
            rewriter.replace(at, chained(linked, _blocks(linked, own)))
            rewriter.remove(found[1:])
    return rewriter.result()


def _addressed(program: Program) -> dict[Buffer, set[int]]:
    """The compute sets with addresses of each buffer: more than by spans in wrong programs, as `engine.debug` runs."""
    found: dict[Buffer, set[int]] = {}
    for at, each in enumerate(program.compute_sets):
        for address in each.work.addresses:
            found.setdefault(address.buffer, set()).add(at)
    return found


def _is_own(uses: BufferUses, addressed: dict[Buffer, set[int]], found: set[int], buffer: Buffer) -> bool:
    """Whether a buffer is in the arena and only these compute sets use it."""
    users = {*uses.users(buffer), *addressed.get(buffer, ())}
    return buffer.kind == "arena" and not uses.escapes(buffer) and users <= found


def _spans(compute_set: ComputeSet) -> list[Span]:
    return [*compute_set.reads, *compute_set.writes]


def _is_link(program: Program, compute_set: ComputeSet) -> bool:
    """Whether any number of a compute set's units can be run together: a nest, pooling, or a batched product."""
    if compute_set.units < 2 or compute_set.one_worker or compute_set.overwrites:
        return False
    if any(a.moved is not None for a in compute_set.work.addresses):
        return False
    if any(s.slot is not None or s.buffer.permanent for s in _spans(compute_set)):
        return False
    work = compute_set.work
    if isinstance(work, FusedLoop) or (isinstance(work, CodeletWork) and isinstance(work.parameters, PooledImages)):
        return True
    if not isinstance(work, Contraction) or is_split(program, work):
        return False
    whole = work.grid.columns >= work.columns and work.grid.k >= len(work.k_a)
    return work.is_float32 and len(work.batch_a) > 1 and whole and compute_set.units % len(work.batch_a) == 0


def _from(sets: list[ComputeSet], start: int, links: set[int], steered: set[int], gone: set[int]) -> list[int]:
    """Compute set `start` and later ones that can be run unit by unit with it."""
    found, passed = [start], list[int]()
    sliced = _sliced(sets, found)
    for at in range(start + 1, len(sets)):
        if at in steered or len(found) == MOST_LINKS or len(passed) > FARTHEST:
            break
        if at in gone:
            continue
        each = sets[at]
        if at in links and _forwards(sliced, each) and not any(_touch(each, sets[k]) for k in passed):
            if _fit([*(sets[k] for k in found), each]):
                found.append(at)
                sliced |= _sliced(sets, [at])
                continue
        passed.append(at)
    return found


def _touch(one: ComputeSet, other: ComputeSet) -> bool:
    """Whether two compute sets must keep their order."""
    written, changed = ({s.buffer for s in each.writes} for each in (one, other))
    return any(s.buffer in changed for s in _spans(one)) or any(s.buffer in written for s in other.reads)


def _sliced(sets: list[ComputeSet], found: list[int]) -> set[Buffer]:
    """The arrays of which the units of some compute sets write or read slices."""
    return {s.buffer for at in found for s in _spans(sets[at]) if s.partition is not None}


def _forwards(sliced: set[Buffer], new: ComputeSet) -> bool:
    """Whether a compute set reads slices of the arrays in `sliced`."""
    return any(s.partition is not None and s.buffer in sliced for s in new.reads)


def _fit(links: list[ComputeSet]) -> bool:
    """Whether no unit touches memory that another one writes, and units are small and many enough."""
    counts = [each.units for each in links]
    units = min(counts)
    if any(count % units for count in counts) or (max(counts) > units < FEWEST_UNITS):
        return False
    positions: dict[Buffer, set[Partition | None]] = {}
    touching: Counter[Buffer] = Counter()
    for each in links:
        spans = _spans(each)
        for span in spans:
            positions.setdefault(span.buffer, set()).add(of_chain(span.partition, each.units // units))
        touching.update({span.buffer for span in spans})
    for buffer in {span.buffer for each in links for span in each.writes}:
        if touching[buffer] > 1:
            found = positions[buffer]
            if None in found or len({_block(buffer, each) for each in found}) > 1:
                return False
    touched = sum(_unit_bytes(buffer, found) for buffer, found in positions.items())
    return touched <= MOST_UNIT_SHARE * costs().cache_bytes


def _block(buffer: Buffer, partition: Partition | None) -> object:
    """A value that is equal for partitions that give each unit the same elements."""
    if partition is None or partition.inner * partition.extent != buffer.shape.elements:
        return partition
    return partition.inner * partition.grain


def _unit_bytes(buffer: Buffer, partitions: set[Partition | None]) -> int:
    blocks = [p.inner * p.grain * buffer.shape.dtype.itemsize for p in partitions if p is not None]
    return max(blocks, default=0)


def _gain(links: list[ComputeSet]) -> int:
    """The bytes of arrays that several links touch slice by slice."""
    touched = Counter(b for each in links for b in {s.buffer for s in _spans(each) if s.partition is not None})
    return sum(buffer.shape.bytes for buffer, count in touched.items() if count > 1)


def _blocks(links: list[ComputeSet], own: list[Buffer]) -> dict[Buffer, int]:
    """The buffers of a chain that can be kept in scratch, with the bytes of a unit's slice."""
    found, units = dict[Buffer, int](), min(each.units for each in links)
    first = {s.buffer: each for each in reversed(links) for s in _spans(each)}
    for buffer in own:
        if any(s.buffer is buffer for s in first[buffer].reads):
            continue
        moved = [(a, each) for each in links for a in each.work.addresses if a.buffer is buffer]
        if any(a.offset or all(s.buffer is not buffer for s in _spans(each)) for a, each in moved):
            continue
        spans = [(s, each) for each in links for s in _spans(each) if s.buffer is buffer]
        blocks = {_block(buffer, of_chain(s.partition, each.units // units)) for s, each in spans}
        (block,) = blocks if len(blocks) == 1 else (None,)
        if isinstance(block, int):
            found[buffer] = block * buffer.shape.dtype.itemsize
    return found
