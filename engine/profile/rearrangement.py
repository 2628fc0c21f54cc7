"""Rearrangement of a product's arrays before they are broadcast, as poplin's planner counts it.

The matrix engine reads arrays in a certain order. An array in another order is rearranged once, on the tiles that share
it, in a superstep of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from engine.profile.convolution import PlannedConvolution
from engine.profile.matrix_engine import item_bytes
from engine.profile.vertices import tables
from engine.target import Target


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """Cycles, and temporary bytes on each tile, for many plans: int64 arrays of one length.

    `kept` are the bytes of rearranged operands, which other tiles receive.
    """

    compute: np.ndarray
    exchange: np.ndarray
    sync: np.ndarray
    bytes: np.ndarray
    kept: np.ndarray


def rearranged(convolution: PlannedConvolution, *, exchanged: bool) -> str:
    """The arrays of "a", "b" and the result "c" that are rearranged: transposed ones, or all if operands are swapped.

    A kernel on the tiles of its plan is never rearranged: it is stored in the plan's order.
    """
    if exchanged:
        return "abc"
    return "".join(each for each in convolution.transposed if each != "b" or convolution.resident != "b")


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
