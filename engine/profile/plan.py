"""Plans for convolutions and matrix products: their partition over tiles, and its cost.

The planner is a small one modelled on poplin's. It partitions groups, output positions, output features and the terms
of sums. Of the plans whose temporary bytes per tile the options grant, it takes the one with the fewest cycles of
compute, exchange and sums of partial results; without such a plan it takes the one of least memory. A problem that does
not fit in one pass is halved, repeatedly if necessary, and the parts run in sequence.

Rearrangement of a product's arrays before they are broadcast, as poplin's planner counts it.

The matrix engine reads arrays in a certain order. An array in another order is rearranged once, on the tiles that share
it, in a superstep of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import product as product_of
from math import ceil, prod

import numpy as np

from engine.frozen import frozen
from engine.profile.convolution import Cuts, PlannedConvolution, TileShares, blocks, foldings, product, received
from engine.profile.cuts import candidate_cuts
from engine.profile.matrix_engine import (
    amp_cycles,
    depthwise_cycles,
    item_bytes,
    outer_product_cycles,
    reduce_cycles,
    vector_cycles,
)
from engine.profile.options import DEFAULT_OPTIONS, ProductOptions
from engine.profile.superstep_cost import SuperstepCost
from engine.profile.vertices import tables
from engine.target import Target


@frozen
class Rearrangement:
    """Cycles, and temporary bytes on each tile, for many plans: int64 arrays of one length.

    `kept` are the bytes of rearranged operands, which other tiles receive.
    """

    compute: np.ndarray
    exchange: np.ndarray
    sync: np.ndarray
    bytes: np.ndarray
    kept: np.ndarray


def rearrangement(
    convolution: PlannedConvolution, arrays: str, tiles: np.ndarray, target: Target, folded: Sequence[int] = ()
) -> Rearrangement:
    """Cost of a rearrangement of `arrays` on `tiles` tiles, 0 without arrays.

    Taps of the spatial dimensions `folded` become input features.
    """
    if not arrays:
        nothing = np.zeros_like(tiles)
        return Rearrangement(nothing, nothing, nothing, nothing, nothing)
    table, item = tables()["rearrangement"], item_bytes(convolution.element_type)
    sizes = {array: -(-_elements(convolution, array, folded) // tiles) * item for array in arrays}
    each = sum(sizes.values())
    kept = sum(size for array, size in sizes.items() if array != "c")
    rate = min(target.vector_bytes, item)
    compute = np.ceil(each * table["factor"] / rate).astype(np.int64)
    exchange = np.asarray(target.exchange_start_cycles + -(-each // target.exchange_bytes_per_cycle))
    sync, copies = np.full_like(tiles, target.superstep_sync), np.asarray(each * table["copies"])
    return Rearrangement(compute, exchange, sync, copies, np.asarray(kept))


def _elements(convolution: PlannedConvolution, array: str, folded: Sequence[int]) -> int:
    size = convolution.size
    if array == "a":
        positions = prod(size.field[d] * size.taps[d] if d in folded else n for d, n in enumerate(size.sources))
        return ceil(size.groups * size.batch * size.inputs * positions * convolution.reuse_a)
    if array == "b":
        return ceil(size.groups * size.outputs * size.inputs * prod(size.taps) * convolution.reuse_b)
    return size.groups * size.batch * prod(size.field) * size.outputs


MOST_HALVINGS = 10
"""Number of times that a problem may be halved into parts that run in sequence."""
OUTER_PRODUCT, VECTORS = "outer product", "vectors"
"""Vertices without the matrix engine, which read operands in the order of the program."""


@frozen
class Plan(SuperstepCost):
    """The cost of a plan. Its temporary bytes are received ones, partial results and copies.

    `cuts` are the numbers of blocks of groups, output positions, output features and terms. The whole runs in `passes`,
    one after the other.
    """

    cuts: tuple[int, ...] = (1, 1, 1, 1)
    passes: int = 1


@frozen
class _Ways:
    """Many candidate plans: int64 arrays of one length."""

    method: str
    compute: np.ndarray
    exchange: np.ndarray
    sync: np.ndarray
    received: np.ndarray
    partial: np.ndarray
    cuts: Cuts

    @property
    def cycles(self) -> np.ndarray:
        return self.compute + self.exchange + self.sync

    def at(self, number: int, passes: int) -> Plan:
        cuts, held = tuple(int(each[number]) for each in self.cuts.axes), self.received + self.partial
        sizes = (self.compute, self.exchange, self.sync, self.cuts.tiles, held, self.received)
        compute, exchange, sync, tiles, temporary, came = (int(size[number]) for size in sizes)
        return Plan(compute, exchange, sync, tiles, temporary, came, self.method, cuts, passes)


@lru_cache(maxsize=4096)
def best_plan(convolution: PlannedConvolution, target: Target, options: ProductOptions = DEFAULT_OPTIONS) -> Plan:
    """The plan of fewest cycles within the granted memory, else that of least memory."""
    capacity = options.memory_proportion * target.bytes_per_tile
    # Products of fp32 have fp32 partials.
    partials = "f32" if convolution.element_type == "f32" else options.partials_type
    fitting: Plan | None = None
    smallest: Plan | None = None
    fewest, passes, whole = 0, 1, convolution
    for _ in range(MOST_HALVINGS + 1):
        ways = _ways(convolution, target, partials, passes, fewest, whole)
        fewest = min(int(way.cycles.min()) for way in ways)
        for way in ways:
            held = way.received + way.partial
            fits, small = held <= capacity, way.at(_least(held, way.cycles), passes)
            smallest = min(smallest or small, small, key=lambda plan: (plan.temporary_bytes, plan.cycles))
            if fits.any():
                fast = way.at(_least(np.where(fits, way.cycles, _FAR), held), passes)
                fitting = min(fitting or fast, fast, key=lambda plan: (plan.cycles, plan.temporary_bytes))
        # More passes never take fewer cycles.
        if (fitting and fitting.cycles <= fewest) or max(convolution.rows, convolution.size.outputs) == 1:
            break
        convolution, passes = convolution.halved(), 2 * passes
    assert smallest is not None
    return fitting or smallest


_FAR = np.iinfo(np.int64).max


def _least(first: np.ndarray, then: np.ndarray) -> int:
    """Index of the minimum of the first array; ties are decided by the second."""
    positions = np.flatnonzero(first == first.min())
    return int(positions[then[positions].argmin()])


def _ways(
    convolution: PlannedConvolution,
    target: Target,
    partials: str,
    passes: int,
    fewest: int,
    whole: PlannedConvolution,
) -> list[_Ways]:
    """All candidate plans with `passes` passes like this one for the `whole`, each of at least `fewest` cycles."""
    cuts = candidate_cuts(convolution, target)
    taps = convolution.size.taps
    orders = [(False, False)]
    if any(t > 1 for t in taps) and convolution.size.inputs > 1:
        orders.append((True, False))
    if taps and taps[-1] > 1:
        orders.append((False, True))
    ways = partial(_ways_of, convolution, target, partials, passes, fewest, whole, cuts=cuts)
    return [way for first, runs in orders for way in ways(taps_first=first, runs_divided=runs)]


def _ways_of(
    convolution: PlannedConvolution,
    target: Target,
    partials: str,
    passes: int,
    fewest: int,
    undivided: PlannedConvolution,
    *,
    cuts: Cuts,
    taps_first: bool,
    runs_divided: bool,
) -> list[_Ways]:
    block = blocks(convolution, cuts, taps_first, runs_divided)
    item, partial_item = item_bytes(convolution.element_type), item_bytes(partials)
    split, results = cuts.k > 1, block.results
    summed = results * (cuts.k - 1) // cuts.k * partial_item
    sync = np.where(split, 2, 1) * target.superstep_sync
    after = np.where(split, reduce_cycles(results, cuts.k, partials, target), 0)
    narrowed = partial_item > item
    if narrowed:
        after = after + np.where(split, 0, results * partial_item // target.vector_bytes)
    held = np.where(split | narrowed, results * partial_item, 0)
    if passes > 1:
        # Each pass slices the kernel and updates the result.
        after = after + (block.kernel + results) * item // target.vector_bytes
        sync = sync + 2 * target.superstep_sync
    found = []
    # Operands are rearranged before all passes. In a kernel's gradient each pass may rearrange what it reads.
    by_pass = ((convolution, passes),) if passes > 1 and convolution.sums_positions else ()
    vertices = _vertices(convolution, block, target, partials)
    if runs_divided:
        vertices = [each for each in vertices if len(block.taps) - 1 in each.folded]
    for vertex, (source, times) in product_of(vertices, ((undivided, 1), *by_pass)):
        before = rearrangement(source, vertex.moved, cuts.tiles, target, vertex.folded)
        bytes_a, bytes_b = received(convolution, block, cuts, vertex.folded)
        exchange = _transfer(bytes_a, bytes_b, cuts, target) + np.where(split, _cycles_of(summed, target), 0)
        added_up = np.zeros_like(after) if vertex.method == OUTER_PRODUCT else after
        whole = (vertex.cycles + added_up) * passes + before.compute * times
        exchanged, synced = exchange * passes + before.exchange * times, sync * passes + before.sync * times
        whole = np.maximum(whole, fewest - exchanged - synced)
        # An exchange is part of the superstep that needs it: rearranged arrays stay until the vertices have run. They
        # are freed, with all that the vertices read, before partial sums are added.
        came, added = bytes_a + bytes_b, np.where(split, summed, 0)
        own = np.zeros_like(held) if vertex.method == OUTER_PRODUCT else held
        holding = np.maximum(own + before.kept, np.maximum(before.bytes, own + added) - came)
        found.append(_Ways(vertex.method, whole, exchanged, synced, came, holding, cuts))
    return found


@frozen
class _Vertex:
    """A vertex for the blocks: its cycles (int64), and the arrays of a, b and c that are rearranged for it.

    Taps of the spatial dimensions `folded` are folded into input features.
    """

    method: str
    cycles: np.ndarray
    moved: str
    folded: tuple[int, ...] = ()


def _vertices(convolution: PlannedConvolution, block: TileShares, target: Target, partials: str) -> list[_Vertex]:
    """The applicable vertices."""
    size, kind = convolution.size, convolution.element_type
    dimensions = len(block.taps)
    rows, k = block.rows, block.inputs * product(block.taps, like=block.inputs)
    engine_cycles = partial(amp_cycles, element_type=kind, target=target, partials_type=partials, groups=block.groups)
    # A kernel on the tiles of its plan is never rearranged: it is stored in the plan's order.
    transposed = "".join(each for each in convolution.transposed if each != "b" or convolution.resident != "b")
    found = []
    for folded in foldings(size.taps):
        kept = [d for d in range(dimensions) if d not in folded]
        taps = product([block.taps[d] for d in kept], like=rows)
        features = block.inputs * product([block.taps[d] for d in folded], like=rows)
        run = block.field[-1] if block.field else None
        cycles = engine_cycles(rows, block.outputs, features, taps=taps, run=run)
        moved = transposed if not folded or "a" in transposed else "a" + transposed
        found.append(_Vertex("matrix engine", cycles, moved, folded))
        if all(size.taps[d] == 1 for d in kept):
            swapped = engine_cycles(block.outputs, rows, features)
            found.append(_Vertex("matrix engine, operands swapped", swapped, "abc", folded))
    if convolution.k == 1:
        plain = outer_product_cycles(rows, block.outputs, kind, target, block.groups)
        found.append(_Vertex(OUTER_PRODUCT, plain, ""))
    if min(convolution.rows, size.outputs) == 1:
        plain = vector_cycles(rows, block.outputs, k, kind, target, block.groups)
        found.append(_Vertex(VECTORS, plain, transposed))
    if size.groups > 1:
        last = block.taps[-1] if block.taps else np.ones_like(rows)
        rest = product(block.taps[:-1], like=rows)
        features = block.inputs * block.outputs
        cycles = depthwise_cycles(
            rows, features, rest, last, block.groups, element_type=kind, target=target, partials_type=partials
        )
        found.append(_Vertex("groups in lanes", cycles, transposed))
    return found


def _transfer(a: np.ndarray, b: np.ndarray, cuts: Cuts, target: Target) -> np.ndarray:
    """Cycles of the exchange of both operands. Pairs of tiles that share an operand receive it over both buses."""
    factor = target.exchange_pair_factor
    pair_a, pair_b = np.where(cuts.outputs % 2 == 0, factor, 1), np.where(cuts.rows % 2 == 0, factor, 1)
    return _cycles_of(np.minimum(-(-a // pair_a) + b, a + -(-b // pair_b)), target)


def _cycles_of(received_bytes: np.ndarray, target: Target) -> np.ndarray:
    return -(-received_bytes // target.exchange_bytes_per_cycle) + target.exchange_start_cycles
