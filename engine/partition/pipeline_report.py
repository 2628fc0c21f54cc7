"""The data that a pipeline keeps on each IPU and in streaming memory while it runs, and its IPUs' idle time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from engine.frozen import frozen
from engine.ir import Instruction, topological
from engine.partition.crossings import PartPlan
from engine.partition.marks import Cut, accumulator_of, is_mark, is_total
from engine.partition.schedule import Row, Schedule
from engine.partition.stages import Placement
from engine.partition.storage import Storage, share

Direction = Literal["load", "store", "gather"]
"""Direction of a transfer: from streaming memory to the tiles, back, or from the other replicas."""
Kept = Literal["activations", "weights", "optimizer state", "accumulators"]


@frozen
class StageContents:
    """Bytes of one stage: `weights` stay the same during an execution, `states` change with each micro-batch,
    only the update uses `optimizer_state`. `accumulators` hold gradients, in the type in which they are summed,
    `output_sums` accumulated outputs. A variable of several stages counts for the first.
    """

    weights: int
    states: int
    optimizer_state: int
    accumulators: int
    output_sums: int


def contents_of_stages(
    schedule: Schedule, placement: Placement, plans: Sequence[PartPlan], roles: Sequence[str], cut: Cut
) -> list[StageContents]:
    """The contents of each stage, in order."""
    counted: set[Instruction] = set()
    weights, states = [0] * schedule.stages, [0] * schedule.stages
    for plan in plans:
        stage = placement.stage(plan.position)
        used = [p for p in (*plan.shared, *plan.variables) if roles[p["parameter_number"]] == "variable"]
        for parameter in used:
            if parameter not in counted:
                counted.add(parameter)
                sizes = states if is_state(parameter, cut) else weights
                sizes[stage] += parameter.array_shape.bytes
    accumulators, sums = [0] * schedule.stages, [0] * schedule.stages
    stage_of_mark = {}
    for plan in plans:
        for mark in plan.marks:
            stage = stage_of_mark[mark] = placement.stage(plan.position)
            size = mark.array_shape.with_type(accumulator_of(mark)).bytes
            (sums if is_total(mark) else accumulators)[stage] += size
    optimizer = _optimizer_state(schedule.stages, cut, counted, stage_of_mark)
    return [StageContents(*sizes) for sizes in zip(weights, states, optimizer, accumulators, sums, strict=True)]


def is_state(parameter: Instruction, cut: Cut) -> bool:
    """Whether each micro-batch changes a variable."""
    return cut.moving.get(parameter["parameter_number"], parameter) is not parameter


def _optimizer_state(
    stages: int, cut: Cut, counted: set[Instruction], stage_of_mark: Mapping[Instruction, int]
) -> list[int]:
    """The bytes of variables of the update alone, in the stage of their gradients; without gradients in stage 0."""
    sizes = [0] * stages
    for number, value in cut.updates.items():
        sources = topological([value], lambda i: not is_mark(i))
        own = [i for i in sources if i.get("parameter_number") == number and i not in counted]
        found = [stage_of_mark[i] for i in sources if i in stage_of_mark]
        for parameter in own:
            sizes[min(found, default=0)] += parameter.array_shape.bytes
    return sizes


@frozen
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


@frozen
class StageEstimate:
    """The data of one stage: activations of at most `micro_batches` micro-batches, `activation_bytes` for each.

    At most `stashed_bytes` wait for the stage's backward part, `arriving_bytes` are buffered between it and other
    stages. `contents` are its variables and buffers. Of the sum, `tile_bytes` are on the tiles of one replica and
    `streaming_bytes` in its streaming memory.
    """

    stage: int
    ipus: tuple[int, ...]
    micro_batches: int
    activation_bytes: int
    stashed_bytes: int
    arriving_bytes: int
    contents: StageContents
    tile_bytes: int
    streaming_bytes: int


@frozen
class PipelineReport:
    """Bytes that one replica of a pipeline stores, and for each IPU the fraction of slots in which it is idle.

    `transfers` are the transfers that the storage options add to the schedule.
    """

    schedule: str
    slots: int
    stages: tuple[StageEstimate, ...]
    bubbles: dict[int, float]
    storage: Storage
    transfers: tuple[Transfer, ...]

    @property
    def bytes_by_ipu(self) -> dict[int, int]:
        """Bytes that wait on each IPU; the parts of concurrent stages are assumed to store equal amounts."""
        return self._by_ipu([stage.stashed_bytes + stage.arriving_bytes for stage in self.stages])

    @property
    def tile_bytes_by_ipu(self) -> dict[int, int]:
        """Bytes on the tiles of each IPU, variables and buffers included."""
        return self._by_ipu([stage.tile_bytes for stage in self.stages])

    @property
    def streaming_bytes_by_ipu(self) -> dict[int, int]:
        """Bytes in the streaming memory of each IPU."""
        return self._by_ipu([stage.streaming_bytes for stage in self.stages])

    def table(self) -> str:
        """The report as text: a line for each stage, one for each IPU."""
        lines = [f"Pipeline schedule: {self.schedule}, {self.slots} slots"]
        columns = ("bytes of one", "stashed", "arriving", "weights", "optimizer", "accumulators", "output sums")
        lines.append(" ".join(["stage", "    IPU", " held", *(f"{column:>14}" for column in columns)]))
        for stage in self.stages:
            ipus, held = ",".join(map(str, stage.ipus)), stage.contents
            amounts = (stage.activation_bytes, stage.stashed_bytes, stage.arriving_bytes, held.weights)
            more = (held.optimizer_state, held.accumulators, held.output_sums)
            lines.append(
                f"{stage.stage:>5} {ipus:>7} {stage.micro_batches:>5} "
                + " ".join(f"{each:>14,}" for each in (*amounts, *more))
            )
        tiles, streaming = self.tile_bytes_by_ipu, self.streaming_bytes_by_ipu
        for ipu, waiting in self.bytes_by_ipu.items():
            moved = sum(transfer.bytes for transfer in self.transfers if transfer.ipu == ipu)
            lines.append(
                f"IPU {ipu}: {waiting:,} bytes wait, {tiles[ipu]:,} in all on its tiles; waits in "
                f"{self.bubbles[ipu]:.1%} of the slots"
                + (f"; {streaming[ipu]:,} bytes in streaming memory" if streaming[ipu] else "")
                + (f"; {moved:,} bytes moved for it in each execution" if moved else "")
            )
        return "\n".join(lines)

    def _by_ipu(self, of_stages: Sequence[int]) -> dict[int, int]:
        found = dict.fromkeys(self.bubbles, 0)
        for stage, size in zip(self.stages, of_stages, strict=True):
            for ipu in stage.ipus:
                found[ipu] += size // len(stage.ipus)
        return found


def report_on(
    schedule: Schedule,
    placement: Placement,
    plans: Sequence[PartPlan],
    *,
    roles: Sequence[str],
    cut: Cut,
    storage: Storage,
    replicas: int,
) -> PipelineReport:
    """The report on a schedule's parts. An activation that several stages need is counted on the IPUs of each."""
    contents = contents_of_stages(schedule, placement, plans, roles, cut)
    estimates = []
    for stage, ipus in enumerate(schedule.devices):
        stashed, arriving = _waiting(schedule, placement, plans, stage)
        one = sum(value.array_shape.bytes for value in stashed)
        between = sum(value.array_shape.bytes * depth for value, depth in arriving.items())
        depth = schedule.stash_depths()[stage]
        tiles, streaming = _divided(storage, replicas, one, depth, contents[stage])
        estimates.append(
            StageEstimate(stage, ipus, depth, one, one * depth, between, contents[stage], tiles + between, streaming)
        )
    moved = transfers(schedule, storage, replicas, contents, [estimate.activation_bytes for estimate in estimates])
    return PipelineReport(schedule.kind, schedule.slots, tuple(estimates), schedule.bubbles(), storage, tuple(moved))


def _waiting(
    schedule: Schedule, placement: Placement, plans: Sequence[PartPlan], stage: int
) -> tuple[list[Instruction], dict[Instruction, int]]:
    """The values stored for the backward part of a stage, and the values from other stages with their depths."""
    parts = {schedule.position(part): part for part in schedule.parts if part.kind != "recompute"}

    def crossing(plan: PartPlan) -> list[Instruction]:
        """The values read from other parts. A sequential schedule reads variables where they are stored."""
        return [v for v in plan.reads if schedule.kind != "Sequential" or v.opcode != "parameter"]

    backward = plans[2 * schedule.stages - 1 - stage]
    stashed = [v for v in crossing(backward) if schedule.training and placement.position[v] <= stage]
    arriving: dict[Instruction, int] = {}
    for plan in (plans[stage], backward):
        for value in crossing(plan):
            if value not in stashed:
                depth = schedule.depth(parts[placement.position[value]], parts[plan.position])
                arriving[value] = max(arriving.get(value, 0), depth)
    return stashed, arriving


def _divided(storage: Storage, replicas: int, one: int, depth: int, held: StageContents) -> tuple[int, int]:
    """The bytes of a stage on the tiles and in streaming memory, without buffers between stages.

    Offloaded data is on the tiles while in use, which is counted only for the activations of one micro-batch.
    """
    weights = share(held.weights, replicas, storage.replicated_weight_sharding)
    state = share(held.optimizer_state, replicas, storage.replicated_optimizer_state_sharding)
    sizes = [
        (min(depth, 1) * one, False),
        (max(depth - 1, 0) * one, storage.offload_activations),
        (weights, storage.offloads_weights),
        (state, storage.offloads_optimizer_state),
        (held.accumulators, storage.offload_gradient_accumulation_buffers),
        (held.states + held.output_sums, False),
    ]
    tiles = sum(size for size, offloaded in sizes if not offloaded)
    return tiles, sum(size for size, offloaded in sizes if offloaded)
