"""The tiles on which each compute set works, the bytes they receive, and the arrays that it reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.frozen import frozen
from engine.profile.liveness import LiveRange
from engine.profile.mapping import TileMapping
from engine.profile.superstep_cost import SuperstepCost
from engine.program.program import Buffer, Program, Span


@frozen
class PlacedWork:
    """One compute set on a chip: its tiles, and the bytes that each of them receives in its exchange.

    `reads` and `writes` are the numbers of its arrays in the `liveness` of a cost report. Arrays that are only on the
    host have no number.
    """

    placement: TileMapping
    received_bytes: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


def placed_work(
    program: Program,
    steps: Sequence[SuperstepCost],
    positions: Sequence[TileMapping],
    blocks: Sequence[LiveRange],
    sums: Mapping[Buffer, Buffer],
) -> tuple[PlacedWork, ...]:
    """The work of each compute set, in the order of the program.

    `positions` are their tiles, and `blocks` the arrays in the order of the report's `liveness`. `sums` are the arrays
    that a chip has in place of parts of sums.
    """
    numbers: dict[Buffer, list[int]] = {}
    for number, block in enumerate(blocks):
        if block.buffer is not None:
            numbers.setdefault(block.buffer, []).append(number)

    def arrays(spans: Iterable[Span], at: int) -> tuple[int, ...]:
        found = (_alive(numbers.get(sums.get(span.buffer, span.buffer), ()), blocks, at) for span in spans)
        return tuple(dict.fromkeys(number for number in found if number is not None))

    return tuple(
        PlacedWork(position, step.received_bytes, arrays(each.reads, at), arrays(each.writes, at))
        for at, (each, step, position) in enumerate(zip(program.compute_sets, steps, positions, strict=True))
    )


def _alive(numbers: Sequence[int], blocks: Sequence[LiveRange], at: int) -> int | None:
    """The number of the range that is live at a compute set, or else of the first range; None without ranges."""
    return next((n for n in numbers if blocks[n].first <= at <= blocks[n].last), numbers[0] if numbers else None)
