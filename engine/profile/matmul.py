"""Cycles of matrix products: how one is shared out among tiles, and what its matrix engine takes on each.

A small planner after the manner of poplin's: rows, columns and k are cut so that compute, exchange and the sum of
partial results together take the fewest cycles, within the memory that Poplar grants. It knows two vertices, the one
of the matrix engine and one of plain vector multiply-adds, and none of poplin's special ones for convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np

from engine.profile.vertices import tables
from engine.target import INPUTS_PER_PASS, LOOP_CYCLES, Target

PARTIAL_BYTES = 4


@dataclass(frozen=True, slots=True)
class Product:
    """C[batch, row, column] = sum over k of A[batch, row, k] * B[batch, k, column], inputs "f32" or "f16".

    `distinct_a` and `distinct_b` are the elements the operands really have: fewer than rows * k where
    convolutions read an element several times. `resident` is the operand, "a" or "b", that lies where it is needed.
    """

    batches: int
    rows: int
    columns: int
    k: int
    element_type: str
    distinct_a: int
    distinct_b: int
    resident: str = ""


@dataclass(frozen=True, slots=True)
class ProductCost:
    """Cycles, the tiles that work, bytes each receives, and bytes of partial sums on each."""

    compute: int
    exchange: int
    sync: int
    tiles: int
    received_bytes: int
    partial_bytes: int


def amp_cycles(
    rows: np.ndarray | int,
    columns: np.ndarray | int,
    k: np.ndarray | int,
    element_type: str,
    target: Target,
    partials_type: str = "f32",
    weight_load_bytes: int | None = None,
) -> np.ndarray:
    """Cycles of one tile's matrix engine for [rows, k] times [k, columns], any of them arrays (int64)."""
    table = tables()["matmul"]
    units = target.amp_units(element_type, partials_type)
    inputs = INPUTS_PER_PASS[element_type]
    item = 4 if element_type == "f32" else 2
    load = units * inputs * item // (weight_load_bytes or table["weight_load_bytes_per_cycle"])
    input_groups, output_groups = -(-np.asarray(k) // inputs), -(-np.asarray(columns) // units)
    share = -(-np.asarray(rows) // target.workers_per_tile)
    worker = table["worker"] + np.maximum(share - table["worker_start"], 0) * LOOP_CYCLES[element_type]
    passes = input_groups * output_groups * (target.workers_per_tile * worker + load + table["each_pass"])
    groups = input_groups * table["input_group"] + output_groups * table["output_group"]
    return passes + groups + table["entry"] + table["group"] + table["launch"]


def vector_cycles(
    rows: np.ndarray | int, columns: np.ndarray | int, k: np.ndarray | int, element_type: str, target: Target
) -> np.ndarray:
    """Cycles of one tile for the same with one fused multiply-add of a vector per cycle."""
    overhead = tables()["overhead"]
    lanes = target.vector_bytes // (4 if element_type == "f32" else 2)
    outputs = np.asarray(rows) * np.asarray(columns)
    prologue = overhead["supervisor"] + target.workers_per_tile * overhead["worker_f32"]
    return prologue + outputs * -(-np.asarray(k) // lanes)


@lru_cache(maxsize=4096)
def plan_product(product: Product, target: Target, partials_type: str = "f32") -> ProductCost:
    """The cheapest way to share a product out; in two parts, one after the other, if memory does not suffice."""
    cost = _cheapest(product, target, partials_type)
    budget = tables()["matmul"]["memory_proportion"] * target.bytes_per_tile
    if cost.received_bytes + cost.partial_bytes <= budget or max(product.rows, product.columns) == 1:
        return cost
    part = plan_product(_halved(product), target, partials_type)
    return replace(part, compute=2 * part.compute, exchange=2 * part.exchange, sync=2 * part.sync)


def _halved(product: Product) -> Product:
    """The product with half of its columns, or of its rows where they are more."""
    if product.columns >= product.rows:
        return replace(product, columns=-(-product.columns // 2), distinct_b=-(-product.distinct_b // 2))
    return replace(product, rows=-(-product.rows // 2), distinct_a=-(-product.distinct_a // 2))


def _cheapest(product: Product, target: Target, partials_type: str) -> ProductCost:
    """The plan of fewest cycles among those whose memory suffices; if none does, the one of least memory."""
    across = min(product.batches, target.tiles)
    repeats = -(-product.batches // across)
    cuts = _cuts(target.tiles // across)
    extents = np.array([product.rows, product.columns, product.k])
    cuts = cuts[np.all(cuts <= extents, axis=1)]
    rows, columns, k = (-(-extents // cuts)).T
    split, outputs = cuts[:, 2] > 1, rows * columns * repeats
    compute = _fastest(rows, columns, k, product.element_type, target, partials_type) * repeats
    compute = compute + np.where(split, _reduce_cycles(outputs, cuts[:, 2], target), 0)
    item = 4 if product.element_type == "f32" else 2
    received = _received(product, rows, columns, k, item, cuts) * repeats
    summed = outputs * (cuts[:, 2] - 1) // cuts[:, 2] * PARTIAL_BYTES
    exchange = _exchange_cycles(received, target) + np.where(split, _exchange_cycles(summed, target), 0)
    sync = np.where(split, 2, 1) * target.sync_cycles
    partial = np.where(split, outputs * PARTIAL_BYTES + summed, 0)
    held, cycles = received + partial, compute + exchange + sync
    budget = tables()["matmul"]["memory_proportion"] * target.bytes_per_tile
    best = int(np.argmin(np.where(held <= budget, cycles, np.inf) if held.min() <= budget else held))
    return ProductCost(
        compute=int(compute[best]),
        exchange=int(exchange[best]),
        sync=int(sync[best]),
        tiles=across * int(np.prod(cuts[best])),
        received_bytes=int(received[best]),
        partial_bytes=int(partial[best]),
    )


@cache
def _cuts(tiles: int) -> np.ndarray:
    """All (rows, columns, k) counts of pieces whose product is at most `tiles`; int64 [n, 3]."""
    found = [
        (a, b, c) for a in range(1, tiles + 1) for b in range(1, tiles // a + 1) for c in range(1, tiles // (a * b) + 1)
    ]
    return np.array(found, np.int64)


def _fastest(
    rows: np.ndarray, columns: np.ndarray, k: np.ndarray, element_type: str, target: Target, partials_type: str
) -> np.ndarray:
    """The better of the matrix engine, with either operand as its weights, and plain vectors."""
    upright = amp_cycles(rows, columns, k, element_type, target, partials_type)
    turned = amp_cycles(columns, rows, k, element_type, target, partials_type)
    plain = vector_cycles(rows, columns, k, element_type, target)
    return np.minimum(np.minimum(upright, turned), plain)


def _received(
    product: Product, rows: np.ndarray, columns: np.ndarray, k: np.ndarray, item: int, cuts: np.ndarray
) -> np.ndarray:
    """Bytes of both operands that a tile's piece needs and that lie elsewhere. Halos of convolutions are left out.

    Each tile of those that share a piece of a resident operand holds a part of it.
    """
    reuse_a = min(1.0, product.distinct_a / max(1, product.batches * product.rows * product.k))
    reuse_b = min(1.0, product.distinct_b / max(1, product.batches * product.columns * product.k))
    piece_a, piece_b = rows * k * reuse_a, columns * k * reuse_b
    if product.resident == "a":
        piece_a = piece_a * (1 - 1 / cuts[:, 1])
    if product.resident == "b":
        piece_b = piece_b * (1 - 1 / cuts[:, 0])
    return np.ceil(piece_a + piece_b).astype(np.int64) * item


def _exchange_cycles(received: np.ndarray, target: Target) -> np.ndarray:
    return -(-received // target.exchange_bytes_per_cycle) + target.exchange_start_cycles


def _reduce_cycles(outputs: np.ndarray, splits: np.ndarray, target: Target) -> np.ndarray:
    """Each tile of a group adds up its share of the outputs, a vector of partials per cycle."""
    overhead = tables()["overhead"]
    share = -(-outputs // splits)
    lanes = target.vector_bytes // PARTIAL_BYTES
    prologue = overhead["supervisor"] + target.workers_per_tile * overhead["worker_f32"]
    return prologue + -(-share * splits // lanes)
