"""Codelets and parameter blocks of gathers, scatters and dynamic slices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from engine.codelets.language.record import Part, block
from engine.codelets.rows.dynamic_slice import DynamicSlice, Start, dynamic_slice
from engine.codelets.rows.first_of_equal import FirstOfEqual, first_of_equal, slot_bits
from engine.codelets.rows.gather import GatherParts, RunDimension, encode_gather, gather, index_layout
from engine.codelets.rows.gather_rows import gather_rows, gathers_rows
from engine.codelets.rows.scatter import (
    PositionDimension,
    Scatter,
    ScatterComponent,
    UpdateDimension,
    combiner,
    scatter,
)
from engine.codelets.rows.scatter_rows import scatter_rows, scatters_rows
from engine.host.encoded import Encoded
from engine.ir.attributes import ScatterDimensionNumbers
from engine.ir.shape import Shape
from engine.ir.strides import byte_strides, index_signed, merge
from engine.machine_code.abi import Scratch
from engine.program.work.indexing import Counted, FirstOfEqualWork, GatherWork, ScatterPlan, ScatterWork, SliceWork

Address = Any


def gather_parts(work: GatherWork) -> GatherParts:
    """The parts of a gather's block."""
    operand, indices, target = ((each.shape, each.address) for each in (work.operand, work.indices, work.target))
    return encode_gather(operand, indices, target, work.numbers, work.slice_sizes)[0]


def encoded_gather(work: GatherWork) -> Encoded:
    """The codelet for rows where it suffices."""
    parts = gather_parts(work)
    return Encoded.of(gather_rows if gathers_rows(parts) else gather, block(*parts))


def scatter_parts(work: ScatterWork) -> tuple[Part, ...]:
    """The parts of a scatter's block."""
    operand, indices, updates = ((each.shape, each.address) for each in (work.operand, work.indices, work.updates))
    return encode_scatter(operand, indices, updates, work.target, work.numbers, others=work.others)[0]


def encoded_scatter(work: ScatterWork) -> Encoded:
    """The codelet for rows where the body is one of its opcodes, else the general one, which calls a combiner."""
    parts, kind, combine = scatter_parts(work), work.operand.shape.element_type, work.combine
    if isinstance(combine, str) and scatters_rows(parts, kind, combine):
        return Encoded.of(scatter_rows(combine), block(*parts))
    called = combiner(combine, kind) if isinstance(combine, str) else combine
    return Encoded.of(scatter, block(*parts), calls=((Scatter.COMBINER, called),))


def encoded_slice(work: SliceWork) -> Encoded:
    """The header, the starts and the loops over runs."""
    array, box = work.array.shape, work.box.shape
    strides, (run_bytes, runs) = byte_strides(array), work.runs
    starts: list[tuple[Any, ...]] = []
    for d, start in enumerate(work.starts):
        limit, stride = array.dimensions[d] - box.dimensions[d], strides[d]
        if isinstance(start, Counted):
            starts.append((start.first, 0, 0, limit, stride, start.growth))
        else:
            shape = start.shape
            starts.append((start.address, shape.dtype.itemsize, index_signed(shape), limit, stride, 0))
    header = DynamicSlice(
        array=work.array.address,
        box=work.box.address,
        into_array=work.into_array,
        run_bytes=run_bytes,
        start_rank=len(starts),
        run_rank=len(runs),
        unit_bytes=work.unit_bytes or run_bytes or 1,
        iteration=Scratch.ITERATION + work.counter,
    )
    return Encoded.of(dynamic_slice, block(header, Start.of_each(starts), RunDimension.of_each(runs)))


def encoded_first_of_equal(work: FirstOfEqualWork) -> Encoded:
    """The fields of `FirstOfEqual`."""
    ids = work.ids.shape
    bits = slot_bits(ids.elements)
    fields = FirstOfEqual(
        ids=work.ids.address, index_bytes=ids.dtype.itemsize, named=ids.elements, slot_bits=bits, target=work.target
    )
    return Encoded.of(first_of_equal, block(fields), 4 << bits)


def encode_scatter(
    operand: tuple[Shape, Address],
    indices: tuple[Shape, Address],
    updates: tuple[Shape, Address],
    target: Address,
    numbers: ScatterDimensionNumbers,
    combine: int = 0,
    others: Sequence[Address] = (),
) -> tuple[tuple[Part, ...], int]:
    """The parts of `scatter`'s block and its number of units; operand, indices and updates are (shape, address).

    `combine` is the address of a `combiner`, or of any codelet called with (target, source, count, others), or 0 for
    an address that is set later, like the `calls` of compute sets. If `target` is the operand's address nothing is
    copied.
    `others` are, for several operands, the target and the updates of each. Raises InternalError for numbers that do not
    fit the shapes.
    """
    if not operand[0].elements:
        return (), 0
    plan = ScatterPlan(operand[0], updates[0], numbers)
    shape, numbers = plan.operand, plan.numbers
    length, continues, window = plan.run()
    positions, components = _tables(plan, indices[0], numbers)
    cut, chunk = plan.cut, plan.chunk()
    tables = (
        *PositionDimension.of_each(positions),
        *ScatterComponent.of_each(components),
        *UpdateDimension.of_each(window),
    )
    header = Scatter(
        operand=operand[1],
        indices=indices[1],
        updates=updates[1],
        target=target,
        combiner=combine,
        index_bytes=indices[0].dtype.itemsize,
        index_signed=index_signed(indices[0]),
        element_bytes=shape.dtype.itemsize,
        positions=prod(entry[0] for entry in positions) if updates[0].elements else 0,
        position_rank=len(positions),
        index_components=len(components),
        window_rank=len(window),
        window_runs=prod(entry[0] for entry in window),
        cut_size=shape.dimensions[cut],
        cut_stride=plan.strides[cut],
        cut_window=plan.sizes[cut],
        cut_update_stride=plan.update_strides[cut],
        cut_chunk=chunk,
        cut_outer=prod(shape.dimensions[:cut]),
        run_length=length,
        cut_in_run=continues,
        others=8 * (Scatter.WORDS + sum(each.WORDS for each in tables)),
    )
    return (header, tables, others), plan.units


def _tables(
    plan: ScatterPlan, indices: Shape, numbers: ScatterDimensionNumbers
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The position dimensions and the index components."""
    sizes, index_strides, along = index_layout(indices, numbers.index_vector_dim)
    index_dims = [d for d in range(indices.rank) if d != numbers.index_vector_dim]
    batching = dict(zip(numbers.scatter_indices_batching_dims, numbers.input_batching_dims, strict=True))
    positions = []
    for size, index_stride, index_dim, update_stride in zip(
        sizes, index_strides, index_dims, plan.position_strides, strict=True
    ):
        target_dim = batching.get(index_dim)
        stride = 0 if target_dim in (None, plan.cut) else plan.strides[target_dim]
        positions.append((size, index_stride, stride, update_stride, int(target_dim == plan.cut)))
    components: list[tuple[int, ...]] = [
        (
            along * k,
            0 if d == plan.cut else plan.strides[d],
            plan.operand.dimensions[d] - plan.sizes[d],
            int(d == plan.cut),
        )
        for k, d in enumerate(numbers.scatter_dims_to_operand_dims)
    ]
    return merge(positions), components
