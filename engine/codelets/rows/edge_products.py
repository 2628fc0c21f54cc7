"""Sums of products of two gathered rows, a number for each edge of a graph, without the arrays of gathered rows.

target[e] = the sum over i of one[a[e], i] * other[b[e], i]: each lane of a vector has a partial sum, products and sums
are rounded once, and the lanes are added by halves. Row numbers outside are clamped as in HLO's gather. Unit: `chunk`
edges.
"""

from __future__ import annotations

from engine.codelets.host.rows import word
from engine.codelets.language import vector
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.intrinsic import Float32, intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I32, I64, store_f32
from engine.codelets.language.record import Address, Record
from engine.codelets.rows.edge_sums import FAR_BYTES
from engine.codelets.rows.gather import AHEAD, Gather, IndexComponent, fetch_lines
from engine.codelets.rows.gather_rows import load_row_number
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()


class GatheredRows(Record):
    """Layout of the rows of an operand, and of the row number of each edge."""

    rows: Address = 0
    ids: Address = 0
    id_bytes: int
    id_step: int  # bytes from edge to edge
    pitch: int  # bytes from row to row
    last: int  # the last row's number


class EdgeProducts(Record):
    """Parameters of `edge_products`, before the parameters of both GatheredRows."""

    target: Address = 0
    edges: int
    chunk: int
    width: int  # float32 elements of a row


@intrinsic
def row_product(builder: ir.IRBuilder, one: ir.Value, other: ir.Value, count: ir.Value) -> Float32:
    """The sum of the products of `count` float32 each, one or more."""
    loop = EmittedLoop(builder, "products", I64(0), count, I64(LANES), [vector.zeros()])
    mask, offset = vector.lane_mask(builder, builder.sub(count, loop.at)), builder.shl(loop.at, I64(2))
    a, b = (vector.load_vector(builder, builder.add(each, offset), mask) for each in (one, other))
    sums = vector.multiply_add(builder, a, b, loop.carried[0])
    loop.close([sums])
    return _total(builder, sums)


def _total(builder: ir.IRBuilder, sums: ir.Value) -> ir.Value:
    """The sum of a vector's lanes, by halves."""
    step = LANES // 2
    while step:
        order = ir.Constant(ir.VectorType(I32, LANES), [(k + step) % LANES for k in range(LANES)])
        sums = builder.fadd(sums, builder.shuffle_vector(sums, sums, order))
        step //= 2
    return builder.extract_element(sums, I32(0))


@inner
def _row_at(gathered: int, edge: int) -> int:
    """The address of an edge's row."""
    index = word(gathered, GatheredRows.IDS) + edge * word(gathered, GatheredRows.ID_STEP)
    row = load_row_number(index, word(gathered, GatheredRows.ID_BYTES) == 8)
    last = word(gathered, GatheredRows.LAST)
    return word(gathered, GatheredRows.ROWS) + min(max(row, 0), last) * word(gathered, GatheredRows.PITCH)


@inner
def _bytes(gathered: int) -> int:
    return word(gathered, GatheredRows.LAST) * word(gathered, GatheredRows.PITCH)


@codelet
def edge_products(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Computes the sums of the edges of units lo <= unit < hi."""
    one = parameters + 8 * EdgeProducts.WORDS
    other = one + 8 * GatheredRows.WORDS
    chunk, edges = word(parameters, EdgeProducts.CHUNK), word(parameters, EdgeProducts.EDGES)
    target, width = word(parameters, EdgeProducts.TARGET), word(parameters, EdgeProducts.WIDTH)
    end = min(hi * chunk, edges)
    far = AHEAD if max(_bytes(one), _bytes(other)) > FAR_BYTES else end
    for edge in range(lo * chunk, end):
        if edge + far < end:
            fetch_lines(_row_at(one, edge + far), 4 * width)
            fetch_lines(_row_at(other, edge + far), 4 * width)
        store_f32(target + 4 * edge, row_product(_row_at(one, edge), _row_at(other, edge), width))


def gathered_rows(gather: Gather, component: IndexComponent, id_step: int) -> GatheredRows:
    """The record of the rows of a gather by one index component."""
    return GatheredRows(
        rows=gather.operand,
        ids=gather.indices,
        id_bytes=gather.index_bytes,
        id_step=id_step,
        pitch=component.operand_stride,
        last=component.largest_start,
    )
