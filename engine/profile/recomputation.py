"""An estimate of the memory of a proposed pipeline, whose stages keep few activations and recompute the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt

from engine.ir.op_names import BACKWARD, RECOMPUTED
from engine.profile.categories import ACTIVATIONS
from engine.profile.liveness import LiveRange, TileMemory, follow
from engine.program.program import Buffer, Program

PARTS = (2, 4, 7, 10, 14, 20)
"""Numbers of parts tried besides the square root of the number of forward compute sets."""


def backward_begin(program: Program) -> int:
    """The first compute set of the backward pass; 0 for a program without one."""
    positions = (at for at, c in enumerate(program.compute_sets) if BACKWARD in c.op_name.split("/"))
    return next(positions, 0)


def recomputes(program: Program) -> bool:
    """Whether a program has compute sets that recompute activations."""
    return any(RECOMPUTED in compute_set.op_name.split("/") for compute_set in program.compute_sets)


def recomputed(program: Program, tiles: TileMemory) -> list[LiveRange]:
    """The live ranges of the stages of a pipeline that recompute; empty for a program without a backward pass.

    The forward pass is divided into the number of equal parts with the lowest peak of the fullest tile. Values that a
    part reads from earlier parts are kept. All other activations of the backward pass are dropped after the forward
    pass, and recomputed when the backward pass reaches their part.
    """
    middle = backward_begin(program)
    if not middle:
        return []
    reads = _reads(program)
    counts = sorted({isqrt(middle), *PARTS})
    ways = [_in_parts(tiles.blocks, middle, reads, parts) for parts in counts if 0 < parts <= middle]
    return min(ways, key=lambda way: follow(way, tiles.fixed, len(program.compute_sets))[1].max())


def _in_parts(
    blocks: Sequence[LiveRange], middle: int, reads: dict[Buffer | None, list[int]], parts: int
) -> list[LiveRange]:
    each = -(-middle // parts)
    found, dropped = [], []
    for block in blocks:
        crosses = 0 <= block.first < middle <= block.last and block.category == ACTIVATIONS
        forward = [at for at in reads.get(block.buffer, ()) if at < middle] if crosses else []
        if not crosses or any(at // each > block.first // each for at in forward):
            found.append(block)
        else:
            found.append(replace(block, last=max(forward, default=block.first)))
            dropped.append(block)
    # All activations of a part are recomputed at once, for the first backward compute set that reads one.
    begins: dict[int, int] = {}
    for block in dropped:
        first = min((at for at in reads.get(block.buffer, ()) if at >= middle), default=block.last)
        begins[block.first // each] = min(begins.get(block.first // each, first), first)
    found = [_kept_until_read_again(block, middle, reads, each, begins) for block in found]
    return found + [replace(block, first=begins[block.first // each]) for block in dropped]


def _kept_until_read_again(
    block: LiveRange, middle: int, reads: dict[Buffer | None, list[int]], each: int, begins: dict[int, int]
) -> LiveRange:
    """Extend the range of a forward value to the end of the last part that is recomputed from it."""
    if not 0 <= block.first < middle or block.category != ACTIVATIONS:
        return block
    parts = {at // each for at in reads.get(block.buffer, ()) if at < middle} - {block.first // each}
    again = max((begins[part] for part in parts if part in begins), default=block.last)
    return replace(block, last=max(block.last, again))


def _reads(program: Program) -> dict[Buffer | None, list[int]]:
    found: dict[Buffer | None, list[int]] = {}
    for at, compute_set in enumerate(program.compute_sets):
        for span in compute_set.reads:
            found.setdefault(span.buffer, []).append(at)
    return found
