"""The error for a program that does not fit: the bytes that it needs, its largest layers, the changes that suffice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from engine.errors import OutOfTileMemory
from engine.profile.levers import Lever
from engine.profile.liveness import LiveTensor
from engine.profile.program_estimate import Estimate

LAYERS = 3
"""Number of layers that the error names."""
ALL_THE_SAME = (
    "To run it here all the same, in place of a chip:",
    "  from tensorflow.python import ipu; ipu.allow_out_of_memory()",
)
"""The end of the error: how to run the program nevertheless."""


def out_of_tile_memory(
    found: Estimate, helps: list[Lever] | None = None, source: Callable[[str], str] = OutOfTileMemory.source
) -> OutOfTileMemory:
    """The error for a program that does not fit, with its cost report as `estimate` and `helps` as `levers`.

    `source` returns the line of the user's program for an op_name, "" if it is unknown.
    """
    lines = [_situation(found), *_needs(found), *_layers(found, source), *_remedies(found, helps), *ALL_THE_SAME]
    error = OutOfTileMemory("\n".join(lines))
    error.estimate, error.levers, error.source = found, tuple(helps or ()), source
    return error


def _situation(found: Estimate) -> str:
    capacity, memory = found.target.bytes_per_tile, found.memory
    return (
        f"Expected at most {capacity:,} bytes on each tile of {found.target.name}. Received: {memory.peak_fullest:,} "
        f"bytes on tile {memory.peak_tile}{_ipu(found)}, {memory.peak_fullest - capacity:,} bytes over."
    )


def _needs(found: Estimate) -> list[str]:
    """Rows with bytes per tile: needed, available, always live."""
    memory, capacity = found.memory, found.target.bytes_per_tile
    where = found.costs[memory.peak_at].label if found.costs else "the start"
    return [
        f"  {memory.peak_fullest:>14,}  needed, at {where}",
        f"  {int(found.tiles.always_live_bytes[memory.peak_tile]):>14,}    of them always live",
        f"  {capacity:>14,}  available",
    ]


def _ipu(found: Estimate) -> str:
    """Words for the fullest IPU of a pipeline, or ""."""
    if found.pipeline is None:
        return ""
    fullest = max(found.pipeline.ipus, key=lambda each: each.estimate.memory.peak_fullest)
    return f" of IPU {fullest.ipu} (stages {', '.join(map(str, fullest.stages))})"


def _layers(found: Estimate, source: Callable[[str], str]) -> list[str]:
    """The layers with most bytes at the peak, each with its largest array and the line that made it."""
    by_layer: defaultdict[str, list[LiveTensor]] = defaultdict(list)
    for tensor in found.memory.largest:
        by_layer[tensor.layer or tensor.name].append(tensor)
    if not by_layer:
        return []
    totals = sorted(by_layer.values(), key=lambda tensors: -sum(t.bytes for t in tensors))
    lines = ["The layers with most bytes then, on all tiles, and the largest array of each:"]
    return lines + [
        f"  {sum(t.bytes for t in ts):>14,}  {ts[0].name} {ts[0].shape}{_line(found, ts[0], source)}"
        for ts in totals[:LAYERS]
    ]


def _line(found: Estimate, tensor: LiveTensor, source: Callable[[str], str]) -> str:
    """Words for the line of the operation that writes an array, or else of its layer; "" if it is unknown."""
    writes = () if tensor.always_live else found.costs[tensor.first : tensor.first + 1]
    of_layer = (cost for cost in found.costs if tensor.layer and cost.operation.layer == tensor.layer)
    lines = (source(cost.op_name) for cost in (*writes, *of_layer))
    return next((f", {line}" for line in lines if line), "")


def _remedies(found: Estimate, helps: list[Lever] | None) -> list[str]:
    """Rows of changes and of the bytes that each leaves, first those that suffice; none if none were estimated."""
    if found.pipeline is not None:
        return [
            "Smaller micro-batches or other cuts take less: model.plan_pipeline() proposes stages that fit, or says "
            "that none do."
        ]
    if helps is None:
        return []
    peak, ways = found.memory.peak_fullest, {True: "suffices alone", False: "suffice together"}
    lines = ["What to change, and the bytes then needed on the fullest tile, estimated again:"]
    if not any(lever.fits for lever in helps):
        lines = [
            "Nothing that was estimated makes it fit, alone or together; the bytes then needed on the fullest tile:"
        ]
    for lever in sorted(helps, key=lambda lever: not lever.fits):
        way = ways[lever.alone] if lever.fits else "not enough alone"
        lines.append(f"  {peak - lever.saves:>14,}  {way:<16}  {lever.what}")
        lines += [f"{'':36}{line}" for line in lever.how if lever.fits]
    if any(lever.fits and not line.startswith("model") for lever in helps for line in lever.how[:1]):
        lines.append("Lines that do not begin with `model` come before the model is made.")
    return lines
