"""Memory of a program whose layers are spread over several IPUs, estimated from its memory on one."""

from __future__ import annotations

import numpy as np

from engine.ir.op_names import layer_of
from engine.profile.categories import ACTIVATIONS, EXCHANGE_BUFFERS, WEIGHTS
from engine.profile.liveness import LiveRange
from engine.profile.mapping import Placer
from engine.profile.names import ACCUMULATOR
from engine.profile.program_estimate import Estimate
from engine.profile.recomputation import backward_begin
from engine.program.program import Buffer, Program, Role

IN_FLIGHT = 2
"""Number of micro-batches that wait between a stage and the next one in a grouped schedule."""
Split = tuple[list[LiveRange], dict[str, np.ndarray]]


def split(program: Program, found: Estimate, ipus: int, recomputing: list[LiveRange]) -> list[Split]:
    """Memory of each IPU of a pipeline: live ranges, and fixed bytes (int64 [tiles]) by category.

    Each IPU has a run of layers with their variables and gradients, so that all have about equal bytes. In a training
    step each stage recomputes its activations, keeps its inputs for all micro-batches in flight, and sums gradients.
    `recomputing` are the live ranges with recomputation, none for a program without a backward pass.
    """
    stages = _stages(program, found, ipus)
    blocks = recomputing or list(found.tiles.blocks)
    counts = np.bincount(stages, minlength=ipus) / max(1, len(stages))
    owners = _owners(program, stages)
    splits: list[Split] = []
    waiting = _inputs(program, stages, ipus)
    sums_gradients = any(tensor.name.startswith(ACCUMULATOR) for tensor in found.liveness)
    for stage in range(ipus):
        mine = [p for p in blocks if _stage_of(p, stages, owners, stage) == stage]
        if recomputing:
            mine += _in_flight(found, waiting[stage], IN_FLIGHT * (ipus - 1 - stage))
            mine += [] if sums_gradients else [p for p in mine if p.category == WEIGHTS]
        share = {name: (size * counts[stage]).astype(np.int64) for name, size in found.tiles.fixed.items()}
        splits.append((mine, share))
    return splits


def most_stages(program: Program) -> int:
    """Number of layers with weights in the forward pass: each stage of a pipeline has at least one."""
    middle = backward_begin(program) or len(program.compute_sets)
    layers = {
        _layer_with(span.buffer, compute_set.op_name)
        for compute_set in program.compute_sets[:middle]
        for span in compute_set.reads
        if span.buffer.kind == "variable"
    }
    return len(layers - {""})


def _layer_with(buffer: Buffer, op_name: str) -> str:
    """The layer of a weight, or else of the operation that reads a variable; "" for counters, metrics and slots."""
    if buffer.label is None or buffer.label.role is None:
        return layer_of(op_name)
    return buffer.label.path.rpartition("/")[0] if buffer.label.role is Role.WEIGHT else ""


def _stages(program: Program, found: Estimate, ipus: int) -> np.ndarray:
    """The stage of each compute set, int64: the forward pass is partitioned, other compute sets follow their layer."""
    middle = backward_begin(program) or len(program.compute_sets)
    cost = np.zeros(len(program.compute_sets), np.int64)
    first_read: dict[Buffer, int] = {}
    for at, compute_set in enumerate(program.compute_sets):
        for span in compute_set.reads:
            first_read.setdefault(span.buffer, at)
    for block in found.tiles.blocks:
        at = first_read.get(block.buffer, 0) if block.first < 0 and block.buffer is not None else block.first
        if block.category != EXCHANGE_BUFFERS and 0 <= at < middle:
            cost[at] += block.placement.bytes * (2 if block.category == WEIGHTS else 1)
    total = max(1, int(cost[:middle].sum()))
    stages = np.minimum(ipus - 1, (np.cumsum(cost) - cost // 2) * ipus // total)
    by_layer: dict[str, int] = {}
    for at in range(middle):
        by_layer.setdefault(layer_of(program.compute_sets[at].op_name), int(stages[at]))
    for at in range(middle, len(stages)):
        stages[at] = by_layer.get(layer_of(program.compute_sets[at].op_name), stages[at - 1])
    return stages.astype(np.int64)


def _owners(program: Program, stages: np.ndarray) -> dict[Buffer, int]:
    """The stage of each variable: that of its first reader, or of the updated variable for an update's operands."""
    found: dict[Buffer, int] = {}
    for at, compute_set in enumerate(program.compute_sets):
        written = [s.buffer for s in compute_set.writes if s.buffer.kind == "variable"]
        known = next((found[b] for b in written if b in found), int(stages[at]))
        for span in (*compute_set.reads, *compute_set.writes):
            if span.buffer.kind != "arena":
                found.setdefault(span.buffer, known)
    return found


def _stage_of(block: LiveRange, stages: np.ndarray, owners: dict[Buffer, int], stage: int) -> int:
    """The stage that holds a live range, or `stage` for arrays of one element, which are on every stage."""
    if block.buffer is not None and block.buffer.shape.elements == 1:
        return stage
    if block.buffer in owners:
        return owners[block.buffer]
    return int(stages[block.first]) if block.first >= 0 else stage


def _inputs(program: Program, stages: np.ndarray, ipus: int) -> list[list[Buffer]]:
    """The arrays that the forward pass of each stage reads from earlier stages."""
    middle = backward_begin(program) or len(program.compute_sets)
    made: dict[Buffer, int] = {}
    found: list[list[Buffer]] = [[] for _ in range(ipus)]
    for at, compute_set in enumerate(program.compute_sets[:middle]):
        for span in compute_set.reads:
            stage = int(stages[at])
            if made.get(span.buffer, stage) < stage and span.buffer not in found[stage]:
                found[stage].append(span.buffer)
        for span in compute_set.writes:
            if span.buffer.kind == "arena":
                made[span.buffer] = int(stages[at])
    return found


def _in_flight(found: Estimate, inputs: list[Buffer], copies: int) -> list[LiveRange]:
    placer = Placer(found.assumptions.compute_target(found.target))
    blocks = []
    for buffer in inputs:
        placement = placer.place(buffer.shape.elements * copies, buffer.shape.dtype.itemsize)
        blocks.append(LiveRange(placement, -1, 0, ACTIVATIONS, buffer))
    return blocks
