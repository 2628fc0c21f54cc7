"""One superstep: a compute set's sync, exchange and compute on the tiles of a target."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np

from engine.codelets.contract_fields import Field
from engine.emit.nest import Nest
from engine.errors import InternalError
from engine.profile.exchange import Layouts, exchange_cycles, received_bytes
from engine.profile.mapping import Spread, spread
from engine.profile.matmul import PARTIAL_BYTES, Product, plan_product
from engine.profile.vertices import kind_of, vertex_cycles, work_of
from engine.program.program import ComputeSet
from engine.target import Target

ONE_STAGE = 64
"""Partial results that one tile adds up at once; more go over a second stage of tiles."""


@dataclass(frozen=True, slots=True)
class Superstep:
    """Cycles, the tiles that work, and the bytes each of them holds for this superstep alone."""

    compute: int
    exchange: int
    sync: int
    tiles: int
    temporary_bytes: int


def superstep(compute_set: ComputeSet, layouts: Layouts, target: Target, partials_type: str = "f32") -> Superstep:
    """What a compute set costs, given where everything lies that it reads."""
    if compute_set.effort.multiply_adds and kind_of(compute_set.effort.element_type) != "integer":
        return _matrix_product(compute_set, layouts, target, partials_type)
    work = work_of(compute_set)
    item = _item_bytes(compute_set)
    operations, points = work.operations, work.points
    if compute_set.effort.multiply_adds:
        points = compute_set.effort.multiply_adds
        operations = (("multiply", "integer"), ("add", "integer"))
    run = spread(points, item, target)
    received = received_bytes(compute_set, run, layouts)
    compute = vertex_cycles(operations, run.per_tile, target)
    exchange = exchange_cycles(received, target)
    stages = _stages(compute_set, run)
    for partials in stages:
        compute += vertex_cycles((("reduce", "f32"),), partials, target)
        exchange += exchange_cycles(partials * PARTIAL_BYTES, target)
    syncs = target.sync_cycles * (1 + len(stages))
    return Superstep(compute, exchange, syncs, run.tiles, received)


def product_of(compute_set: ComputeSet, layouts: Layouts) -> Product:
    """The matrix product of a compute set with multiply-adds. Raises InternalError for an unknown codelet."""
    batches, rows, columns, k = compute_set.effort.product or _product_in(compute_set)
    a, b = (span.buffer for span in compute_set.reads[:2])
    resident = "b" if layouts.is_home(b, compute_set) else "a" if layouts.is_home(a, compute_set) else ""
    kind = kind_of(compute_set.effort.element_type)
    return Product(batches, rows, columns, k, kind, a.shape.elements, b.shape.elements, resident)


def _product_in(compute_set: ComputeSet) -> tuple[int, int, int, int]:
    block = compute_set.parameters
    if isinstance(compute_set.codelet, Nest) or len(block) != len(Field) or len(compute_set.reads) < 2:
        raise InternalError(
            f"Expected a contraction's parameter block for the multiply-adds of {compute_set.name}. "
            f"Received: {len(block)} words for {compute_set.codelet!r}."
        )
    batches, rows, columns, k = (int(block[f]) for f in (Field.BATCHES, Field.ROWS, Field.COLUMNS, Field.K))
    return batches, rows, columns, k


def _matrix_product(compute_set: ComputeSet, layouts: Layouts, target: Target, partials_type: str) -> Superstep:
    cost = plan_product(product_of(compute_set, layouts), target, partials_type)
    temporary = cost.received_bytes + cost.partial_bytes
    return Superstep(cost.compute, cost.exchange, cost.sync, cost.tiles, temporary)


def _stages(compute_set: ComputeSet, run: Spread) -> list[int]:
    """Partial results that a tile receives in each stage after the first, where sums reach over several tiles."""
    nest = compute_set.codelet
    if not isinstance(nest, Nest) or not nest.reductions or run.tiles <= 1:
        return []
    extents = compute_set.parameters[1 : 1 + nest.rank]
    terms = int(np.prod([e for e, reduced in zip(extents, nest.reduced, strict=True) if reduced]))
    if nest.splits_reduction:
        terms = -(-terms // compute_set.units)
    tiles = -(-terms // run.per_tile)
    if tiles <= 1:
        return []
    if tiles <= ONE_STAGE:
        return [tiles]
    first = isqrt(tiles - 1) + 1
    return [first, -(-tiles // first)]


def _item_bytes(compute_set: ComputeSet) -> int:
    spans = compute_set.writes or compute_set.reads
    return max((s.buffer.shape.dtype.itemsize for s in spans), default=4)
