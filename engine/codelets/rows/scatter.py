"""HLO scatter: the operand's copy, with updates combined into it in the order of their indices.

Units partition one dimension of the operand, so that each element belongs to one unit and takes its updates in
index order: the bits do not depend on the number of workers. The combiners are codelets of their own, called
by address as `combine(target, source, count, others)`. An update whose window is not inside the operand is
skipped whole. `scatter` itself knows only the first of several operands; `others` gives the combiner the addresses of
all.

Parameters (int64 words): the header `Scatter`, then the tables, strides in bytes: position dimensions [size,
index stride, operand stride, update stride, step along the cut], index components [index offset, operand
stride, largest start, 1 for the cut dimension], window dimensions [size, operand stride, update stride]
without the cut one. Last, for several operands, two words for each: the addresses of its target and updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

from engine.codelets.host.rows import copy_bytes, word
from engine.codelets.language.build import Codelet, codelet, inner
from engine.codelets.language.element import NUMBA_NAMES
from engine.codelets.language.memory import call4, pointer
from engine.codelets.language.record import Address, Part, Record
from engine.codelets.rows.gather import AHEAD, fetch_lines, index_layout, load_index
from engine.errors import UnsupportedOperation
from engine.ir.attributes import ScatterDimensionNumbers
from engine.ir.shape import Shape
from engine.ir.strides import index_signed, merge
from engine.program.work.indexing import ScatterPlan, ScatterWork

NUMBA_TYPES = {"pred": "uint8"} | {
    name: NUMBA_NAMES[name] for name in ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f32", "f64")
}
ARITHMETIC = ("add", "subtract", "multiply", "minimum", "maximum", "GT", "LT")
"""HLO's operations; for a direction, the old element stays where the comparison with the new one is true."""
LOGICAL = ("and", "or")


class Scatter(Record):
    """The header of the parameters."""

    operand: Address = 0  # equal to TARGET if the copy is there already
    indices: Address = 0
    updates: Address = 0
    target: Address = 0
    combiner: Address = 0  # the codelet
    index_bytes: int
    index_signed: int
    element_bytes: int
    positions: int  # number of index vectors
    position_rank: int
    index_components: int
    window_rank: int
    window_runs: int  # product of the window dimensions' sizes
    cut_size: int  # size of the cut dimension of the operand
    cut_stride: int  # its byte stride in the operand
    cut_window: int  # its size in the update window
    cut_update_stride: int
    cut_chunk: int  # coordinates in one unit
    cut_outer: int  # elements of the operand: product of the sizes before the cut
    run_length: int  # elements of a run that is contiguous in operand and updates, below the cut
    cut_in_run: int  # whether coordinates along the cut continue the run
    others: int  # byte offset, from the parameters, of the words for several operands


class PositionDimension(Record):
    """A dimension of the positions of index vectors."""

    size: int
    index_stride: int
    operand_stride: int
    update_stride: int
    along_cut: int  # 1 where it numbers the coordinates of the cut dimension


class ScatterComponent(Record):
    """A component of each index vector."""

    index_offset: int
    operand_stride: int
    largest_start: int
    along_cut: int


class UpdateDimension(Record):
    """A dimension that counts the contiguous runs of an update window."""

    size: int
    operand_stride: int
    update_stride: int


def _arithmetic(type_name: str, operation: int) -> Codelet:
    def combine(target: int, source: int, count: int, scratch: int) -> None:
        values = pointer(target, type_name)
        updates = pointer(source, type_name)
        for i in range(count):
            old, new = values[i], updates[i]
            if operation == 0:
                values[i] = old + new
            elif operation == 1:
                values[i] = old - new
            elif operation == 2:
                values[i] = old * new
            elif operation == 3:  # NaN on either side is the result
                values[i] = old if old < new or old != old else new
            elif operation == 5:
                values[i] = old if old > new else new
            elif operation == 6:
                values[i] = old if old < new else new
            else:
                values[i] = old if old > new or old != old else new

    return Codelet(combine, f"scatter_{ARITHMETIC[operation]}_{type_name}")


def _logical(type_name: str, operation: int) -> Codelet:
    def combine(target: int, source: int, count: int, scratch: int) -> None:
        values = pointer(target, type_name)
        updates = pointer(source, type_name)
        for i in range(count):
            if operation == 0:
                values[i] = values[i] & updates[i]
            else:
                values[i] = values[i] | updates[i]

    return Codelet(combine, f"scatter_{LOGICAL[operation]}_{type_name}")


def _assign(element_bytes: int) -> Codelet:
    def combine(target: int, source: int, count: int, scratch: int) -> None:
        copy_bytes(target, source, count * element_bytes)

    return Codelet(combine, f"scatter_assign_{element_bytes}")


@cache
def combiner(opcode: str, element_type: str) -> Codelet:
    """The codelet of "assign" (any type) or of an HLO binary operation; for pred only "and" and "or".

    Raises UnsupportedOperation for others.
    """
    if opcode == "assign":
        return _assign(Shape(element_type).dtype.itemsize)
    name = NUMBA_TYPES.get(element_type)
    if name and opcode in ARITHMETIC and element_type != "pred":
        return _arithmetic(name, ARITHMETIC.index(opcode))
    if name and opcode in LOGICAL and not name.startswith("float"):
        return _logical(name, LOGICAL.index(opcode))
    raise UnsupportedOperation(
        f"Expected a scatter with assign, {', '.join(ARITHMETIC + LOGICAL)} (of pred: and, or). "
        f"Received: {opcode} of {element_type}. Nearest legal value: assign, which every type has."
    )


@inner
def copy_operand(parameters: int, start: int, end: int) -> None:
    """Copies the unit's part of the operand."""
    source, target = word(parameters, Scatter.OPERAND), word(parameters, Scatter.TARGET)
    stride = word(parameters, Scatter.CUT_STRIDE)
    pitch = stride * word(parameters, Scatter.CUT_SIZE)
    if source == target:
        return
    for outer in range(word(parameters, Scatter.CUT_OUTER)):
        offset = outer * pitch + start * stride
        copy_bytes(target + offset, source + offset, (end - start) * stride)


@inner
def _combine_window(parameters: int, windows: int, target: int, update: int, extent: int) -> None:
    """Combines `extent` coordinates along the cut of one update window."""
    call, size = word(parameters, Scatter.COMBINER), word(parameters, Scatter.RUN_LENGTH)
    runs = extent
    if word(parameters, Scatter.CUT_IN_RUN):
        runs, size = 1, size * extent
    rank = word(parameters, Scatter.WINDOW_RANK)
    for index in range(word(parameters, Scatter.WINDOW_RUNS)):
        rest, target_now, update_now = index, target, update
        for dimension in range(rank - 1, -1, -1):
            entry = windows + 8 * UpdateDimension.WORDS * dimension
            coordinate = rest % word(entry, UpdateDimension.SIZE)
            rest //= word(entry, UpdateDimension.SIZE)
            target_now += coordinate * word(entry, UpdateDimension.OPERAND_STRIDE)
            update_now += coordinate * word(entry, UpdateDimension.UPDATE_STRIDE)
        for _ in range(runs):
            call4(call, target_now, update_now, size, parameters + word(parameters, Scatter.OTHERS))
            target_now += word(parameters, Scatter.CUT_STRIDE)
            update_now += word(parameters, Scatter.CUT_UPDATE_STRIDE)


@inner
def _fetch(parameters: int, positions: int, component: int, position: int, first: int) -> None:
    """Prefetches the target of a later position, where a single index component determines it."""
    index = word(parameters, Scatter.INDICES) + position * word(positions, 1) + word(component, 0)
    start = load_index(index, word(parameters, Scatter.INDEX_BYTES), word(parameters, Scatter.INDEX_SIGNED))
    if 0 <= start <= word(component, 2):
        stride = word(parameters, Scatter.CUT_STRIDE)
        cut = start if word(component, 3) else first
        target = word(parameters, Scatter.TARGET) + position * word(positions, 2) + start * word(component, 1)
        length = word(parameters, Scatter.RUN_LENGTH) * word(parameters, Scatter.ELEMENT_BYTES)
        if word(parameters, Scatter.CUT_IN_RUN):
            length *= word(parameters, Scatter.CUT_WINDOW)
        fetch_lines(target + cut * stride, length)


@codelet
def scatter(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Computes the units lo <= unit < hi of the cut dimension: the copy, then all updates that overlap them."""
    chunk, stride = word(parameters, Scatter.CUT_CHUNK), word(parameters, Scatter.CUT_STRIDE)
    first, last = lo * chunk, min(hi * chunk, word(parameters, Scatter.CUT_SIZE))
    copy_operand(parameters, first, last)
    index_bytes, signed = word(parameters, Scatter.INDEX_BYTES), word(parameters, Scatter.INDEX_SIGNED)
    position_rank, components = (
        word(parameters, Scatter.POSITION_RANK),
        word(parameters, Scatter.INDEX_COMPONENTS),
    )
    positions = parameters + 8 * Scatter.WORDS
    component_table = positions + 8 * PositionDimension.WORDS * position_rank
    windows = component_table + 8 * ScatterComponent.WORDS * components
    count = word(parameters, Scatter.POSITIONS)
    for position in range(count):
        if position_rank == 1 and components == 1 and position + AHEAD < count:
            _fetch(parameters, positions, component_table, position + AHEAD, first)
        rest, index, cut = position, word(parameters, Scatter.INDICES), 0
        target, update = word(parameters, Scatter.TARGET), word(parameters, Scatter.UPDATES)
        for dimension in range(position_rank - 1, -1, -1):
            entry = positions + 8 * PositionDimension.WORDS * dimension
            coordinate = rest % word(entry, PositionDimension.SIZE)
            rest //= word(entry, PositionDimension.SIZE)
            index += coordinate * word(entry, PositionDimension.INDEX_STRIDE)
            target += coordinate * word(entry, PositionDimension.OPERAND_STRIDE)
            update += coordinate * word(entry, PositionDimension.UPDATE_STRIDE)
            cut += coordinate * word(entry, PositionDimension.ALONG_CUT)
        inside = True
        for component in range(components):
            entry = component_table + 8 * ScatterComponent.WORDS * component
            start = load_index(index + word(entry, ScatterComponent.INDEX_OFFSET), index_bytes, signed)
            inside = inside and 0 <= start <= word(entry, ScatterComponent.LARGEST_START)
            target += start * word(entry, ScatterComponent.OPERAND_STRIDE)
            cut += start * word(entry, ScatterComponent.ALONG_CUT)
        begin, end = max(cut, first), min(cut + word(parameters, Scatter.CUT_WINDOW), last)
        if inside and begin < end:
            update += (begin - cut) * word(parameters, Scatter.CUT_UPDATE_STRIDE)
            _combine_window(parameters, windows, target + begin * stride, update, end - begin)


def scatter_parts(work: ScatterWork) -> tuple[Part, ...]:
    """The parts of a scatter's block."""
    operand, indices, updates = ((each.shape, each.address) for each in (work.operand, work.indices, work.updates))
    return encode_scatter(operand, indices, updates, work.target, work.numbers, others=work.others)[0]


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
