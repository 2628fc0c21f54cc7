"""Sums of products of two gathered rows, a number for each edge of a graph, without the arrays of gathered rows.

target[e] = the sum over i of one[a[e], i] * other[b[e], i]: each lane of a vector has a partial sum, products and sums
are rounded once, and the lanes are added by halves. Row numbers outside are clamped as in HLO's gather. Unit: `chunk`
edges.
"""

from __future__ import annotations

from engine.codelets.language import vector
from engine.codelets.language.build import codelet
from engine.codelets.language.intrinsic import Float32, intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I64, store_f32
from engine.codelets.language.record import Address, Record
from engine.codelets.rows.index_walk import AHEAD, fetch_lines
from engine.codelets.rows.scatter_rows import EDGES_FAR_BYTES, GatheredRows, row_at
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()


class EdgeProducts(Record):
    """Parameters of `edge_products`."""

    target: Address = 0
    edges: int
    chunk: int
    width: int  # float32 elements of a row
    one: GatheredRows
    other: GatheredRows


@intrinsic
def row_product(builder: ir.IRBuilder, one: ir.Value, other: ir.Value, count: ir.Value) -> Float32:
    """The sum of the products of `count` float32 each, one or more."""
    loop = EmittedLoop(builder, "products", I64(0), count, I64(LANES), [vector.zeros()])
    mask, offset = vector.lane_mask(builder, builder.sub(count, loop.at)), builder.shl(loop.at, I64(2))
    a, b = (vector.load_vector(builder, builder.add(each, offset), mask) for each in (one, other))
    sums = vector.multiply_add(builder, a, b, loop.carried[0])
    loop.close([sums])
    return vector.sum_of_lanes(builder, sums)


@codelet
def edge_products(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Computes the sums of the edges of units lo <= unit < hi."""
    given = EdgeProducts.read(parameters)
    one, other, end = given.one, given.other, min(hi * given.chunk, given.edges)
    far = AHEAD if max(one.last * one.pitch, other.last * other.pitch) > EDGES_FAR_BYTES else end
    for edge in range(lo * given.chunk, end):
        first, second = one.ids + edge * one.id_step, other.ids + edge * other.id_step
        if edge + far < end:
            fetch_lines(row_at(one, first + far * one.id_step), 4 * given.width)
            fetch_lines(row_at(other, second + far * other.id_step), 4 * given.width)
        store_f32(given.target + 4 * edge, row_product(row_at(one, first), row_at(other, second), given.width))
