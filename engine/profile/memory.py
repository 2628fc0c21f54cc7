"""Bytes on the tiles: those always live, and those live during some compute sets.

Lifetimes of arrays on a chip, as far as they differ from those in the engine.

Copies of variables that come from the host, before the first step.

The host sends an array in row-major order. One that has the layout of a product's plan is received in that order and
then rearranged on the tiles, through as many bytes as a rearranged operand, unless the options rearrange on the host.
All variables have their buffers at once: no source says so, but the published bytes of tf_lstm1 do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from engine.frozen import frozen
from engine.ir.op_names import layer_of, readable_name
from engine.profile.categories import EXCHANGE_BUFFERS, OPTIMIZER_STATE, STREAM_BUFFERS, categories_of, of_array
from engine.profile.code import fixed_bytes
from engine.profile.exchange import Layouts
from engine.profile.liveness import LiveRange, LiveTensor, TileMemory, tile_memory
from engine.profile.loops import states_in_place
from engine.profile.mapping import Placer, TileMapping
from engine.profile.names import buffer_names, layer_in, layers_of_variables
from engine.profile.options import Assumptions
from engine.profile.placed_work import PlacedWork, placed_work
from engine.profile.remote import RemoteMemory, offloaded_buffers, remote_memory, stretches, uses_of
from engine.profile.superstep_cost import SuperstepCost
from engine.profile.vertices import tables
from engine.program.memory import lifetimes
from engine.program.program import Buffer, ComputeSet, Program
from engine.program.uses import BufferUses
from engine.target import Target


def loading(
    blocks: Sequence[LiveRange], arranged: Set[Buffer], fixed: Mapping[str, np.ndarray], target: Target
) -> list[LiveRange]:
    """The buffers of `arranged` variables, at compute set 0 in place of what it has there itself.

    `blocks` are the live ranges of the step, and `fixed` its bytes of code and state, int64 [tiles]. Where the tiles
    have no room for all of them the variables come one by one; loading never decides whether a program fits.
    """
    loaded = [each for each in blocks if each.first < 0 and each.buffer in arranged]
    always, begun = sum(fixed.values(), np.zeros(target.tiles, np.int64)), np.zeros(target.tiles, np.int64)
    for each in blocks:
        if each.first <= 0:
            each.placement.add_to(always if each.first < 0 else begun)
    copies = tables()["rearrangement"]["copies"]
    room = target.bytes_per_tile - int(always.max(initial=0))
    if copies * sum(each.placement.per_tile for each in loaded) > room:
        loaded = sorted(loaded, key=lambda each: each.placement.per_tile)[-1:]
    whole = sum(each.placement.per_tile for each in loaded)
    more = min(copies * whole, room) - int(begun.max(initial=0))
    if more <= 0:
        return []
    return [
        replace(each, placement=each.placement.scaled(more / whole), first=0, last=0, category=EXCHANGE_BUFFERS)
        for each in loaded
    ]


@frozen
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


HALF_BYTES = 2


@frozen
class Memory:
    """Bytes of one chip: `always_live` by kind, and bytes per tile as mean and on the fullest tile.

    `live_bytes[i]` are the bytes on all tiles that are live at compute set i, without those always live. `peak_tile` is
    fullest at compute set `peak_at`; `largest` are the arrays live then, the largest first.
    """

    always_live: dict[str, int]
    always_live_mean: float
    always_live_fullest: int
    live_bytes: tuple[int, ...]
    peak_mean: float
    peak_fullest: int
    peak_tile: int
    peak_at: int
    largest: tuple[LiveTensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MemoryEstimate:
    """Memory of a step: totals, tile by tile, and array by array.

    `streams_fit` is False if I/O tiles cannot hold the stream buffers, which are then on the other tiles. `work` has
    the tiles of each compute set.
    """

    memory: Memory
    tiles: TileMemory
    liveness: tuple[LiveTensor, ...]
    remote: RemoteMemory
    streams_fit: bool = True
    work: tuple[PlacedWork, ...] = ()


def streams_fit(
    categories: Mapping[Buffer, str], on_host: Set[Buffer], target: Target, assumptions: Assumptions
) -> bool:
    """Whether stream buffers fit into their fraction of the I/O tiles' memory; True without I/O tiles."""
    if not assumptions.io_tiles:
        return True
    held = sum(b.shape.bytes for b, category in categories.items() if category == STREAM_BUFFERS and b not in on_host)
    capacity = assumptions.io_tiles * target.bytes_per_tile * assumptions.io_tile_memory_proportion
    return held * (2 if assumptions.overlapped_io else 1) <= capacity


def always_live_buffers(program: Program) -> dict[Buffer, str]:
    """Variables, constants and feeds, each with its kind, in the order of first use. Rows of queues are on the host."""
    found: dict[Buffer, str] = {b: "variables" for b in program.variables.values()}
    found |= {b: "feeds" for b in program.feeds.values()}
    kinds = {"variable": "variables", "constant": "constants", "feed": "feeds"}
    for compute_set in program.compute_sets:
        for span in (*compute_set.reads, *compute_set.writes):
            if span.buffer.kind in kinds:
                found.setdefault(span.buffer, kinds[span.buffer.kind])
    return found


class MemoryEstimator:
    """Maps the arrays of a program whose compute sets cost `supersteps` to tiles, and computes their liveness.

    `layouts` has the products that decide on the tiles of variables.
    """

    def __init__(
        self,
        program: Program,
        supersteps: Sequence[SuperstepCost],
        target: Target,
        layouts: Layouts,
        assumptions: Assumptions,
    ) -> None:
        self.program, self.supersteps, self.target = program, supersteps, target
        self.layouts, self.assumptions = layouts, assumptions
        self.lives = lives_on_chip(program)
        self.in_place = states_in_place(program.compute_sets)
        self.names = _names(program, self.lives)
        self.layers = layers_of_variables(program)
        self.categories = categories_of(program, self.names) | {b: STREAM_BUFFERS for b in self.lives.rows}
        self.offloaded = offloaded_buffers(self.names, self.categories, assumptions)
        computing = assumptions.compute_target(target)
        self.compute_tiles = self.stream_tiles = Placer(computing)
        self.streams_fit = streams_fit(self.categories, self.lives.on_host, target, assumptions)
        if assumptions.io_tiles and self.streams_fit:
            self.stream_tiles = Placer(replace(target, tiles=assumptions.io_tiles), computing.tiles)
        self.blocks: list[LiveRange] = []
        self.tensors: list[LiveTensor] = []
        self.last = max(0, len(program.compute_sets) - 1)

    def run(self) -> MemoryEstimate:
        """Memory over one step."""
        elsewhere = self.lives.on_host | self.offloaded.keys()
        always = {b: kind for b, kind in always_live_buffers(self.program).items() if b not in elsewhere}
        homes = self._homes()
        for buffer in always:
            self._array(buffer, -1, self.last, homes.get(buffer))
        uses = uses_of(self.program, self.offloaded, self.in_place)
        for buffer, used in uses.items():
            for first, last in stretches(used):
                self._array(buffer, first, last, homes.get(buffer))
        positions = self._arrays_of_the_step(always.keys() | self.offloaded.keys() | self.in_place.keys())
        for at, (compute_set, step) in enumerate(zip(self.program.compute_sets, self.supersteps, strict=True)):
            if step.temporary_bytes:
                name = f"exchanged for {readable_name(compute_set.op_name, compute_set.name)}"
                received = positions[at].sized(step.temporary_bytes)
                self._block(name, layer_of(compute_set.op_name), "", LiveRange(received, at, at, EXCHANGE_BUFFERS))
        with_code, stacks = self.assumptions.code_bytes, self.assumptions.stack_bytes
        sets = self.program.compute_sets
        own = [at for at, each in enumerate(sets) if not self.layouts.adds_parts(each)]
        steps, where = [self.supersteps[at] for at in own], [positions[at] for at in own]
        fixed = fixed_bytes([sets[at] for at in own], steps, where, self.target, with_code, stacks)
        self._load(fixed)
        tiles = tile_memory(self.blocks, fixed, self.last + 1)
        memory = self._memory(always, fixed, tiles)
        remote = remote_memory(self.program, self.offloaded, self.assumptions, uses, self.in_place)
        work = placed_work(self.program, self.supersteps, positions, self.blocks, self._sums_of_parts())
        return MemoryEstimate(memory, tiles, tuple(self.tensors), remote, self.streams_fit, work)

    def _load(self, fixed: dict[str, np.ndarray]) -> None:
        """Add the buffers through which variables in the layout of a product, and their slots, come from the host."""
        if self.assumptions.rearranged_on_host:
            return
        shapes = {buffer.shape for buffer in self.layouts.arranged}
        arranged = {buffer for buffer in self.program.variables.values() if buffer.shape in shapes}
        for block in loading(self.blocks, arranged, fixed, self.target):
            assert block.buffer is not None
            name = self.names.get(block.buffer, block.buffer.name)
            self._block(f"{name} as it comes from the host", layer_in(name, self.layers), "", block)

    def _homes(self) -> dict[Buffer, int]:
        """Number of tiles of each variable in the plan of the first product that reads it; slots are beside theirs."""
        found: dict[Buffer, int] = {}
        for compute_set, step in zip(self.program.compute_sets, self.supersteps, strict=True):
            for span in compute_set.reads:
                if self.layouts.is_home(span.buffer, compute_set):
                    found[self.in_place.get(span.buffer, span.buffer)] = step.tiles
        shapes = {buffer.shape: tiles for buffer, tiles in found.items()}
        for buffer, category in self.categories.items():
            if category == OPTIMIZER_STATE and buffer.kind == "variable" and buffer.shape in shapes:
                found.setdefault(buffer, shapes[buffer.shape])
        return found

    def _arrays_of_the_step(self, placed: Set[Buffer]) -> list[TileMapping]:
        """Map the step's arrays; return the tiles of each compute set, which begin with those of its first array."""
        starting: list[list[Buffer]] = [[] for _ in range(self.last + 1)]
        parts = self._sums_of_parts()
        for made, (first, _) in self.lives.spans.items():
            buffer = parts.get(made, made)
            if made in parts.values() or buffer not in self.lives.spans:
                continue
            if buffer not in placed and buffer not in self.layouts.library.absent:
                starting[max(first, 0)].append(buffer)
        for buffer in starting[0] if not self.program.compute_sets else ():
            self._array(buffer, 0, self.last, None)
        positions = []
        for at, (compute_set, step) in enumerate(zip(self.program.compute_sets, self.supersteps, strict=True)):
            start = self.compute_tiles.next
            for buffer in starting[at]:
                tiles = step.tiles if compute_set.work_estimate.multiply_adds else None
                self._array(buffer, at, self.lives.spans[buffer][1], tiles)
            positions.append(self.compute_tiles.work(start, step.tiles))
        return positions

    def _sums_of_parts(self) -> dict[Buffer, Buffer]:
        """The sum for each array of parts that a compute set only adds up: a chip's plan makes the sum itself."""
        adding = [each for each in self.program.compute_sets if self.layouts.adds_parts(each)]
        found = ((s for s in each.reads if s.buffer in self.layouts.parts) for each in adding)
        pairs = (zip(parts, each.writes, strict=False) for parts, each in zip(found, adding, strict=True))
        return {part.buffer: whole.buffer for each in pairs for part, whole in each}

    def _array(self, buffer: Buffer, first: int, last: int, tiles: int | None) -> None:
        name = self.names.get(buffer, buffer.name)
        category = self.categories.get(buffer) or of_array(name)
        placer = self.stream_tiles if category == STREAM_BUFFERS else self.compute_tiles
        elements = buffer.shape.elements // self.layouts.parts.get(buffer, 1)
        item = HALF_BYTES if buffer in self.layouts.narrowed.arrays else buffer.shape.dtype.itemsize
        placement = placer.place(elements, item, tiles)
        if category == STREAM_BUFFERS and self.assumptions.overlapped_io and self.streams_fit:
            placement = placement.scaled(2)
        block = LiveRange(placement, first, min(last, self.last), category, buffer)
        role = "" if buffer.label is None else buffer.label.role or ""
        self._block(name, layer_in(name, self.layers), str(buffer.shape), block, role)

    def _block(self, name: str, layer: str, shape: str, block: LiveRange, role: str = "") -> None:
        self.blocks.append(block)
        first, size = max(block.first, 0), block.placement.bytes
        always = block.first < 0
        self.tensors.append(LiveTensor(name, layer, shape, size, first, block.last, always, block.category, role))

    def _memory(self, always: dict[Buffer, str], fixed: dict[str, np.ndarray], tiles: TileMemory) -> Memory:
        live, fullest = self._live_bytes(), tiles.fullest
        at = int(tiles.peak_at[fullest])
        totals = {"variables": 0, "constants": 0, "feeds": 0}
        for buffer, kind in always.items():
            totals[kind] += buffer.shape.bytes
        mean = float(tiles.always_live_bytes.mean())
        alive = [t for t in self.tensors if t.shape and t.first <= at <= t.last]
        largest = sorted(alive, key=lambda t: (-t.bytes, t.name, t.shape))
        return Memory(
            always_live=totals | {name: int(size.sum()) for name, size in fixed.items()},
            always_live_mean=mean,
            always_live_fullest=int(tiles.always_live_bytes.max()),
            live_bytes=tuple(int(size) for size in live),
            peak_mean=mean + float(live.max(initial=0)) / self.target.tiles,
            peak_fullest=int(tiles.peak_bytes[fullest]),
            peak_tile=fullest,
            peak_at=at,
            largest=tuple(largest),
        )

    def _live_bytes(self) -> np.ndarray:
        change = np.zeros(self.last + 2, np.int64)
        for tensor in self.tensors:
            if not tensor.always_live:
                change[tensor.first] += tensor.bytes
                change[tensor.last + 1] -= tensor.bytes
        return np.cumsum(change)[: len(self.program.compute_sets)]


def _names(program: Program, lives: Lives) -> dict[Buffer, str]:
    names = buffer_names(program) | {b: f"input {b.index}" for b in program.feeds.values()}
    for row, whole in lives.rows.items():
        names[row] = f"input {whole.index}" if whole.kind == "feed" else f"rows of {names.get(whole, whole.name)}"
    return names
