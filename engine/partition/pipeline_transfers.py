"""Transfers that a pipeline's storage options add to its schedule, as rows beside those of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.partition.schedule import Row, Schedule
from engine.partition.stage_contents import StageContents
from engine.partition.storage import Storage, share

Direction = Literal["load", "store", "gather"]
"""Direction of a transfer: from streaming memory to the tiles, back, or from the other replicas."""
Kept = Literal["activations", "weights", "optimizer state", "accumulators"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer of one IPU in a slot, `bytes` long: loads and gathers precede its part, stores follow it."""

    slot: int
    ipu: int
    stage: int
    direction: Direction
    what: Kept
    bytes: int
    micro_batch: int | None


def transfers(
    schedule: Schedule,
    storage: Storage,
    replicas: int,
    contents: Sequence[StageContents],
    activation_bytes: Sequence[int],
) -> Iterator[Transfer]:
    """The transfers of one execution on one replica, in the order of its rows; concurrent parts split them."""
    depths = schedule.stash_depths()
    first_back = "recompute" if schedule.recomputation == "then_backpropagate" else "backward"

    def of_row(row: Row) -> Iterator[tuple[Direction, Kept, int]]:
        held = contents[row.stage]
        stashes = storage.offload_activations and depths[row.stage] > 1
        if row.kind != "update":
            if storage.replicated_weight_sharding and replicas > 1:
                yield "gather", "weights", held.weights - share(held.weights, replicas, True)
            if storage.offloads_weights:
                yield "load", "weights", share(held.weights, replicas, True)
        if stashes and row.kind == "forward":
            yield "store", "activations", activation_bytes[row.stage]
        if stashes and row.kind == first_back:
            yield "load", "activations", activation_bytes[row.stage]
        if storage.offload_gradient_accumulation_buffers and row.kind in ("backward", "update"):
            yield "load", "accumulators", held.accumulators
            if row.kind == "backward":
                yield "store", "accumulators", held.accumulators
        if row.kind == "update" and storage.offloads_optimizer_state:
            state = share(held.optimizer_state, replicas, storage.replicated_optimizer_state_sharding)
            yield "load", "optimizer state", state
            yield "store", "optimizer state", state
        if row.kind == "update" and storage.offloads_weights:
            yield "store", "weights", share(held.weights, replicas, True)

    for row in schedule.rows:
        parts = len(schedule.devices[row.stage])
        for direction, what, size in of_row(row):
            if size:
                yield Transfer(row.slot, row.ipu, row.stage, direction, what, size // parts, row.micro_batch)
