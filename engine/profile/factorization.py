"""Blocked triangular solves and Cholesky factors, as Graphcore's TensorFlow expands them.

One worker of a tile inverts (or factors) a block of the diagonal; matrix products combine the blocks.
"""

from __future__ import annotations

from engine.profile.matmul import Product, plan_product
from engine.profile.options import ProductOptions
from engine.profile.superstep_cost import SuperstepCost
from engine.profile.vertices import tables
from engine.target import Target


def triangular_solve(
    matrices: int, size: int, right_sides: int, target: Target, options: ProductOptions, block: int | None = None
) -> SuperstepCost:
    """Estimate the inverse of a triangle, block by block, times the right sides; None is the cheapest `block` size."""
    if block is None:
        sizes = [triangular_solve(matrices, size, right_sides, target, options, b) for b in _blocks(size)]
        return min(sizes, key=lambda found: found.cycles)
    blocks = -(-size // block)
    iterations = -(-matrices * blocks // target.tiles)
    compute, exchange, sync = iterations * _inverse(block, target), target.exchange_start_cycles, target.superstep_sync
    held = 2 * block * block * 4 * iterations
    width = block
    while width < size:
        # A block of twice the width multiplies its lower left quarter by the inverses of both triangles.
        pairs = matrices * -(-size // (2 * width))
        plan = plan_product(_product(pairs, width, width, width), target, options)
        compute, exchange, sync = compute + 2 * plan.compute, exchange + 2 * plan.exchange, sync + 2 * plan.sync
        held = max(held, plan.temporary_bytes)
        width *= 2
    plan = plan_product(_product(matrices, size, right_sides, size), target, options)
    compute, exchange, sync = compute + plan.compute, exchange + plan.exchange, sync + plan.sync
    tiles, held = max(plan.tiles, min(target.tiles, matrices * blocks)), max(held, plan.temporary_bytes)
    return SuperstepCost(compute, exchange, sync, tiles, held, held, "blocks")


def cholesky(
    matrices: int, size: int, target: Target, options: ProductOptions, block: int | None = None
) -> SuperstepCost:
    """Estimate Cholesky factors by columns of blocks.

    A worker factors and inverts the block on the diagonal; products compute the others.
    """
    if block is None:
        return min((cholesky(matrices, size, target, options, b) for b in _blocks(size)), key=lambda one: one.cycles)
    iterations = -(-matrices // target.tiles)
    compute = exchange = sync = held = 0
    tiles = min(target.tiles, matrices)
    for at in range(0, size, block):
        # A Cholesky factor takes a third of the multiply-adds of an inverse.
        compute += iterations * (_inverse(block, target) + _inverse(block, target) // 3)
        exchange += target.exchange_start_cycles
        sync += target.superstep_sync
        rest = size - at - block
        if rest <= 0:
            continue
        panel = plan_product(_product(matrices, rest, block, block), target, options)
        update = plan_product(_product(matrices, rest, rest, block), target, options)
        for plan in (panel, update):
            compute, exchange, sync = compute + plan.compute, exchange + plan.exchange, sync + plan.sync
            held, tiles = max(held, plan.temporary_bytes), max(tiles, plan.tiles)
    return SuperstepCost(compute, exchange, sync, tiles, held, held, "blocks")


def _inverse(block: int, target: Target) -> int:
    """Cycles to invert a block with one worker, which has one of every `workers_per_tile` issue slots of its tile."""
    return target.workers_per_tile * tables()["triangular_solve"]["slots_per_multiply_add"] * block**3


def _blocks(size: int) -> list[int]:
    """The candidate block sizes; a small matrix is one block."""
    blocks = tables()["triangular_solve"]["blocks"]
    return [size] if size <= min(blocks) else [b for b in blocks if b <= size]


def _product(batches: int, rows: int, columns: int, k: int) -> Product:
    return Product(batches, rows, columns, k, "f32", batches * rows * k, batches * columns * k)
