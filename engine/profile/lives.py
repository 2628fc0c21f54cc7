"""Lifetimes of arrays on a chip, as far as they differ from those in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.program.memory import lifetimes
from engine.program.program import Buffer, ComputeSet, Program
from engine.program.uses import BufferUses


@dataclass(frozen=True, slots=True)
class Lives:
    """First and last compute set of each array of a step.

    `on_host` are the feeds and results of which a chip holds only the rows of one iteration. `rows` has each such row
    with the array to which it belongs.
    """

    spans: dict[Buffer, tuple[int, int]]
    on_host: frozenset[Buffer]
    rows: dict[Buffer, Buffer]


def lives_on_chip(program: Program) -> Lives:
    """Lifetimes of a step's arrays; a feed or result whose rows the iterations read or write is a stream.

    A copy of a variable in another order is written just before its first reader, even inside a loop.
    """
    uses = BufferUses(program)
    spans = lifetimes(program, uses, held=False)
    looped = _looped(program)
    rows: dict[Buffer, Buffer] = {}
    for buffer in program.feeds.values():
        _take_rows(program, buffer, uses.readers(buffer), looped, rows, taken=True)
    for buffer in program.outputs:
        if buffer.kind == "arena" and not uses.readers(buffer):
            _take_rows(program, buffer, uses.writers(buffer), looped, rows, taken=False)
    for buffer in uses.buffers:
        made, used = uses.writers(buffer), uses.readers(buffer)
        if len(made) == 1 and used and not looped[made[0]] and all(looped[at] for at in used):
            if buffer in spans and _copies_variable(program.compute_sets[made[0]], buffer):
                spans[buffer] = (used[0], used[-1])
    on_host = frozenset(rows.values())
    return Lives({b: span for b, span in spans.items() if b not in on_host}, on_host, rows)


def _looped(program: Program) -> list[bool]:
    """Whether each compute set is in a loop."""
    found = [False] * len(program.compute_sets)
    for region in program.regions:
        if region.repeats:
            found[region.begin : region.end] = [True] * (region.end - region.begin)
    return found


def _take_rows(
    program: Program,
    whole: Buffer,
    positions: Sequence[int],
    looped: list[bool],
    rows: dict[Buffer, Buffer],
    taken: bool,
) -> None:
    found = {}
    for at in positions:
        compute_set = program.compute_sets[at]
        spans = compute_set.writes if taken else compute_set.reads
        row = next((s.buffer for s in spans if _is_row(s.buffer, whole)), None)
        if not looped[at] or row is None:
            return
        found[row] = whole
    rows |= found


def _is_row(row: Buffer, whole: Buffer) -> bool:
    a, b = row.shape, whole.shape
    return (
        row.kind == "arena"
        and a.rank == b.rank > 0
        and a.dimensions[1:] == b.dimensions[1:]
        and a.elements < b.elements
    )


def _copies_variable(compute_set: ComputeSet, copied: Buffer) -> bool:
    if compute_set.work_estimate.multiply_adds or len(compute_set.reads) != 1:
        return False
    read = compute_set.reads[0].buffer
    return read.kind == "variable" and read.shape.elements == copied.shape.elements
