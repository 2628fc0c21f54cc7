"""The tiles of arrays, and of the work of compute sets, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from engine.profile.liveness import LiveTensor
from engine.profile.mapping import TileMapping
from engine.profile.program_estimate import Estimate
from engine.report.records import fields_of

TENSOR = ("name", "layer", "shape", "bytes", "first", "last", "always_live", "category", "role")
Source = Callable[[str], str]
"""A function that returns the line of the user's program for an op_name."""


def tensor_rows(estimate: Estimate, chosen: Iterable[int], source: Source) -> list[dict[str, Any]]:
    """Rows of the arrays with these numbers in the estimate's liveness: their tiles, and the lines that made them."""
    made = _lines(estimate, source)
    return [
        fields_of(estimate.liveness[number], *TENSOR)
        | {"source": made.get(number, ""), "place": _place(estimate.tiles.blocks[number].placement)}
        for number in chosen
    ]


def work_rows(estimate: Estimate, chosen: Iterable[int]) -> list[dict[str, Any]]:
    """Rows with the tiles, received bytes and arrays of each compute set; arrays by their positions in `chosen`."""
    rows = {number: row for row, number in enumerate(chosen)}
    return [
        {
            "place": _place(each.placement)[:4],
            "received_bytes": each.received_bytes,
            "reads": [rows[number] for number in each.reads if number in rows],
            "writes": [rows[number] for number in each.writes if number in rows],
        }
        for each in estimate.work
    ]


def bytes_on(data: Mapping[str, Any], tile: int) -> list[tuple[dict[str, Any], int]]:
    """The arrays of a report's data that are live on a tile at its own peak, with their bytes there."""
    at = data["tiles"][tile]["peak_at"]
    alive = (t for t in data["liveness"]["tensors"] if t["always_live"] or t["first"] <= at <= t["last"])
    found = ((tensor, _bytes(tensor["place"], tile)) for tensor in alive)
    return [(tensor, size) for tensor, size in found if size]


def tiles_at(place: Sequence[int]) -> list[int]:
    """The numbers of the tiles of a place, in order."""
    origin, ring, start, tiles = place[:4]
    return [origin + (start + number) % ring for number in range(tiles)]


def _bytes(place: list[int], tile: int) -> int:
    """Bytes of an array with these tiles on one of them."""
    origin, ring, start, tiles, per_tile, last_tile = place
    if not origin <= tile < origin + ring:
        return 0
    number = (tile - origin - start) % ring
    return per_tile if number < tiles - 1 else last_tile if number == tiles - 1 else 0


def _place(mapping: TileMapping) -> list[int]:
    """A mapping as six integers; tile origin + (start + k) % ring has per_tile bytes, for k below tiles - 1."""
    return [mapping.origin, mapping.ring, mapping.start, mapping.tiles, mapping.per_tile, mapping.last_tile]


def _lines(estimate: Estimate, source: Source) -> dict[int, str]:
    """The line of the first compute set that writes each array, by the array's number; variables have none."""
    found: dict[int, str] = {}
    for cost, work in zip(estimate.costs, estimate.work, strict=True):
        for number in work.writes:
            if number not in found and not _is_kept(estimate.liveness[number]):
                found[number] = source(cost.op_name)
    return found


def _is_kept(tensor: LiveTensor) -> bool:
    """Whether a step reads the array of an earlier step, so that no line of the step made it."""
    return tensor.always_live or bool(tensor.role)
