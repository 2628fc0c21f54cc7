"""The memory of a training step that keeps few activations and makes the others again in its backward pass."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

from engine.profile.account import Account
from engine.profile.categories import ACTIVATIONS
from engine.profile.liveness import Piece, follow
from engine.profile.names import BACKWARD
from engine.program.program import Buffer, Program

PARTS = (2, 4, 7, 10, 14, 20)
"""Numbers of parts that are tried besides the root of the number of compute sets."""


def backward_begin(program: Program) -> int:
    """The first compute set of the backward pass; 0 for a program without one."""
    places = (at for at, c in enumerate(program.compute_sets) if BACKWARD in c.op_name.split("/"))
    return next(places, 0)


def recomputed(program: Program, found: Account) -> list[Piece]:
    """The pieces of an account with recomputation; empty for a program without a backward pass.

    The forward pass is cut into equal parts: of some numbers of them that which keeps the fullest tile emptiest. What a
    later part reads is kept. All else that the backward pass reads is dropped after the forward pass and made again
    when the backward pass reaches its part.
    """
    middle = backward_begin(program)
    if not middle:
        return []
    reads = _reads(program)
    ways = [_in_parts(found, middle, reads, parts) for parts in sorted({isqrt(middle), *PARTS}) if 0 < parts <= middle]
    return min(ways, key=lambda pieces: follow(pieces, found.tiles.fixed, len(program.compute_sets))[1].max())


def _in_parts(found: Account, middle: int, reads: dict[Buffer | None, list[int]], parts: int) -> list[Piece]:
    each = -(-middle // parts)
    pieces, dropped = [], []
    for piece in found.tiles.pieces:
        crosses = 0 <= piece.first < middle <= piece.last and piece.category == ACTIVATIONS
        forward = [at for at in reads.get(piece.buffer, ()) if at < middle] if crosses else []
        if not crosses or any(at // each > piece.first // each for at in forward):
            pieces.append(piece)
        else:
            pieces.append(replace(piece, last=max(forward, default=piece.first)))
            dropped.append(piece)
    # All activations of a part are made again at once, for the first of the backward pass that reads one.
    begins: dict[int, int] = {}
    for piece in dropped:
        first = min((at for at in reads.get(piece.buffer, ()) if at >= middle), default=piece.last)
        begins[piece.first // each] = min(begins.get(piece.first // each, first), first)
    return pieces + [replace(piece, first=begins[piece.first // each]) for piece in dropped]


def _reads(program: Program) -> dict[Buffer | None, list[int]]:
    found: dict[Buffer | None, list[int]] = {}
    for at, compute_set in enumerate(program.compute_sets):
        for span in compute_set.reads:
            found.setdefault(span.buffer, []).append(at)
    return found
