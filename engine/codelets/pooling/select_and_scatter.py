"""HLO select-and-scatter with add: each source element is added to the operand element that its window selects.

If select(kept, candidate) is true, the kept candidate stays. Candidates come in row-major order, without padding. A
window that is completely in the padding drops its source element. Trailing dimensions without a window (channels) are
vectorised over.

Parameters (int64 words): the header `SelectAndScatter`, then for each dimension that is neither cut nor
vectorised [source size, source stride, operand stride, window stride, low padding, operand size, window
extent], then for each position in the window [operand offset, coordinate in each of those dimensions]. Strides
and offsets count elements. Unit: one index of the cut dimension, the first one without a window (the batch);
no two units share a target element.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod
from typing import Any

from engine.codelets.host.rows import word
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import pointer, store_i64
from engine.codelets.language.record import Address, Part, Record, block
from engine.codelets.language.scratch import ScratchLayout
from engine.codelets.pooling.general_select_and_scatter import SCRATCH_BYTES as GENERAL_SCRATCH_BYTES
from engine.codelets.pooling.general_select_and_scatter import (
    GeneralSelectAndScatter,
    encode_general_select_and_scatter,
    general_select_and_scatter,
)
from engine.codelets.pooling.overlapping_pool_gradient import encode_overlapping_pools, overlapping_pool_gradient
from engine.codelets.pooling.pool_gradient import SCRATCH_BYTES as POOL_SCRATCH_BYTES
from engine.codelets.pooling.pool_gradient import encode_pool_gradient, pool_gradient
from engine.codelets.rows.scatter import combiner
from engine.errors import InternalError, UnsupportedOperation
from engine.ir.attributes import Window
from engine.ir.shape import Shape
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.work.select_and_scatter import Scattering, SelectAndScatterWork

DIRECTIONS = ("GE", "GT", "LE", "LT", "UGE")
NUMBA_TYPES = {"f32": "float32", "f64": "float64"}
BLOCK = 256  # channels at a time, with 16 bytes of scratch each
MOST_DIMENSIONS = 32
_layout = ScratchLayout()
COUNTERS = _layout.area(8 * MOST_DIMENSIONS)
BEST = _layout.area(8 * BLOCK)
WHERE = _layout.area(8 * BLOCK)
SCRATCH = _layout.space()
Pointer = Any  # the result of `pointer`: Numba indexes it like an array


class SelectAndScatter(Record):
    """The header of the parameters."""

    operand: Address = 0
    source: Address = 0
    init: Address = 0  # one element
    target: Address = 0
    cut_outer: int  # product of the operand's sizes before the cut
    cut_size: int
    cut_stride: int  # in operand and target
    cut_source_stride: int
    positions: int  # windows in one unit
    rank: int  # dimensions in the table
    candidates: int  # in one window
    vector: int  # elements vectorised over


class WalkedDimension(Record):
    """A dimension along which windows move; strides in elements."""

    windows: int
    source_stride: int
    operand_stride: int
    step: int  # of the window
    padding_low: int
    size: int  # of the operand
    window_extent: int  # from the window's first element to its last one, both included


@inner
def _keeps(kept: float, candidate: float, direction: int) -> bool:
    if direction == 0:
        return kept >= candidate
    if direction == 1:
        return kept > candidate
    if direction == 2:
        return kept <= candidate
    if direction == 3:
        return kept < candidate
    return not kept < candidate


@inner
def _fill(target: Pointer, init: Pointer, parameters: int, lo: int, hi: int) -> None:
    """Initialises the target in the units lo <= unit < hi."""
    stride = word(parameters, SelectAndScatter.CUT_STRIDE)
    pitch = stride * word(parameters, SelectAndScatter.CUT_SIZE)
    value = init[0]
    for outer in range(word(parameters, SelectAndScatter.CUT_OUTER)):
        for i in range(outer * pitch + lo * stride, outer * pitch + hi * stride):
            target[i] = value


@inner
def _locate(table: int, counters: int, rank: int) -> tuple[int, int, bool]:
    """Returns the current window's offsets in source and operand, and whether the window contains no padding."""
    source_offset, operand_offset, whole = 0, 0, True
    for d in range(rank):
        entry, counter = table + 8 * WalkedDimension.WORDS * d, word(counters, d)
        low = counter * word(entry, WalkedDimension.STEP) - word(entry, WalkedDimension.PADDING_LOW)
        source_offset += counter * word(entry, WalkedDimension.SOURCE_STRIDE)
        operand_offset += low * word(entry, WalkedDimension.OPERAND_STRIDE)
        end = low + word(entry, WalkedDimension.WINDOW_EXTENT)
        whole = whole and low >= 0 and end <= word(entry, WalkedDimension.SIZE)
    return source_offset, operand_offset, whole


@inner
def _advance(table: int, counters: int, rank: int) -> None:
    """Advances to the next window, in row-major order."""
    for d in range(rank - 1, -1, -1):
        counter = word(counters, d) + 1
        if counter < word(table + 8 * WalkedDimension.WORDS * d, WalkedDimension.WINDOWS):
            store_i64(counters + 8 * d, counter)
            return
        store_i64(counters + 8 * d, 0)


@inner
def _in_operand(table: int, counters: int, rank: int, window_entry: int) -> bool:
    """Whether a position of the current window is in the operand."""
    for d in range(rank):
        entry = table + 8 * WalkedDimension.WORDS * d
        low = word(counters, d) * word(entry, WalkedDimension.STEP) - word(entry, WalkedDimension.PADDING_LOW)
        at = low + word(window_entry, 1 + d)
        if at < 0 or at >= word(entry, WalkedDimension.SIZE):
            return False
    return True


@inner
def _scalar_window(
    operand: Pointer, direction: int, parameters: int, table: int, counters: int, start: int, whole: bool
) -> int:
    """The operand offset that one window selects, or -1."""
    rank, candidates = word(parameters, SelectAndScatter.RANK), word(parameters, SelectAndScatter.CANDIDATES)
    window_entry = table + 8 * WalkedDimension.WORDS * rank
    chosen, kept = -1, operand[0]
    for _ in range(candidates):
        if whole or _in_operand(table, counters, rank, window_entry):
            at = start + word(window_entry, 0)
            candidate = operand[at]
            if chosen < 0 or not _keeps(kept, candidate, direction):
                chosen, kept = at, candidate
        window_entry += 8 * (1 + rank)
    return chosen


@inner
def _vector_window(
    operand: Pointer,
    best: Pointer,
    where: Pointer,
    direction: int,
    parameters: int,
    table: int,
    counters: int,
    start: int,
    count: int,
    whole: bool,
) -> bool:
    """where[c] = the operand offset that the window of channel c selects; False if all is padding."""
    rank, candidates = word(parameters, SelectAndScatter.RANK), word(parameters, SelectAndScatter.CANDIDATES)
    window_entry = table + 8 * WalkedDimension.WORDS * rank
    found = False
    for _ in range(candidates):
        if whole or _in_operand(table, counters, rank, window_entry):
            at = start + word(window_entry, 0)
            if found:
                for c in range(count):
                    kept, candidate = best[c], operand[at + c]
                    keep = _keeps(kept, candidate, direction)
                    best[c] = kept if keep else candidate
                    where[c] = where[c] if keep else at + c
            else:
                for c in range(count):
                    best[c] = operand[at + c]
                    where[c] = at + c
            found = True
        window_entry += 8 * (1 + rank)
    return found


@inner
def _add_vector(
    operand: Pointer,
    source: Pointer,
    target: Pointer,
    best: Pointer,
    where: Pointer,
    direction: int,
    parameters: int,
    counters: int,
    source_offset: int,
    start: int,
    whole: bool,
) -> None:
    """Adds one window of all channels, by blocks."""
    table = parameters + 8 * SelectAndScatter.WORDS
    vector = word(parameters, SelectAndScatter.VECTOR)
    for first in range(0, vector, BLOCK):
        count, at = min(BLOCK, vector - first), start + first
        if _vector_window(operand, best, where, direction, parameters, table, counters, at, count, whole):
            for c in range(count):
                target[where[c]] += source[source_offset + first + c]


@inner
def _unit(
    operand: Pointer,
    source: Pointer,
    target: Pointer,
    best: Pointer,
    where: Pointer,
    direction: int,
    parameters: int,
    unit: int,
    counters: int,
) -> None:
    """Computes all windows of one unit."""
    table = parameters + 8 * SelectAndScatter.WORDS
    rank = word(parameters, SelectAndScatter.RANK)
    unit_source = unit * word(parameters, SelectAndScatter.CUT_SOURCE_STRIDE)
    unit_operand = unit * word(parameters, SelectAndScatter.CUT_STRIDE)
    for d in range(rank):
        store_i64(counters + 8 * d, 0)
    for _ in range(word(parameters, SelectAndScatter.POSITIONS)):
        source_offset, start, whole = _locate(table, counters, rank)
        source_offset += unit_source
        start += unit_operand
        if word(parameters, SelectAndScatter.VECTOR) == 1:
            at = _scalar_window(operand, direction, parameters, table, counters, start, whole)
            if at >= 0:
                target[at] += source[source_offset]
        else:
            arrays = (operand, source, target, best, where)
            _add_vector(*arrays, direction, parameters, counters, source_offset, start, whole)
        _advance(table, counters, rank)


def _build(type_name: str, direction: int) -> Codelet:
    def select_and_scatter(parameters: int, lo: int, hi: int, scratch: int) -> None:
        operand = pointer(word(parameters, SelectAndScatter.OPERAND), type_name)
        source = pointer(word(parameters, SelectAndScatter.SOURCE), type_name)
        init = pointer(word(parameters, SelectAndScatter.INIT), type_name)
        target = pointer(word(parameters, SelectAndScatter.TARGET), type_name)
        own = scratch + RESERVED_SCRATCH
        best = pointer(own + BEST, type_name)
        where = pointer(own + WHERE, "int64")
        _fill(target, init, parameters, lo, hi)
        for unit in range(lo, hi):
            _unit(operand, source, target, best, where, direction, parameters, unit, own + COUNTERS)

    return Codelet(select_and_scatter, f"select_and_scatter_{DIRECTIONS[direction]}_{type_name}")


@cache
def select_and_scatter(direction: str, element_type: str) -> Codelet:
    """The codelet for select = compare of that direction (DIRECTIONS) and scatter = add.

    It needs SCRATCH. Raises UnsupportedOperation for other selects and types.
    """
    if direction not in DIRECTIONS or element_type not in NUMBA_TYPES:
        raise UnsupportedOperation(
            f"Expected a select by {', '.join(DIRECTIONS)} on {', '.join(NUMBA_TYPES)}. "
            f"Received: {direction} on {element_type}. Nearest legal value: GE on f32; convert around it."
        )
    return _build(NUMBA_TYPES[element_type], DIRECTIONS.index(direction))


def _strides(shape: Shape) -> list[int]:
    return [prod(shape.dimensions[d + 1 :]) for d in range(shape.rank)]


def _check(operand: Shape, source: Shape, window: Window) -> None:
    expected = tuple(
        (size + w.padding_low + w.padding_high - (w.size - 1) * w.window_dilation - 1) // w.stride + 1
        for size, w in zip(operand.dimensions, window, strict=True)
    )
    if expected != source.dimensions or any(w.base_dilation != 1 for w in window):
        raise InternalError(f"Expected a source {expected} and no base dilation. Received: {source}, {window}.")
    if operand.rank > MOST_DIMENSIONS:
        raise InternalError(f"Expected at most {MOST_DIMENSIONS} dimensions. Received: {operand.rank}.")


def encode_select_and_scatter(
    operand: tuple[Shape, Address], source: tuple[Shape, Address], init: Address, target: Address, window: Window
) -> tuple[tuple[Part, ...], int]:
    """The parts of `select_and_scatter`'s block and its number of units; operand and source are (shape, address).

    The target has the operand's shape and must not be the operand; `init` is the address of a scalar. Raises
    InternalError for a source of another shape than the window's output, base dilation, or too many dimensions.
    """
    shape, source_shape = operand[0], source[0]
    _check(shape, source_shape, window)
    inner_rank = shape.rank
    while inner_rank > 0 and window[inner_rank - 1].is_trivial:
        inner_rank -= 1
    cut = next((d for d in range(inner_rank) if window[d].is_trivial and shape.dimensions[d] > 1), None)
    strides, source_strides = _strides(shape), _strides(source_shape)
    walked = [d for d in range(inner_rank) if d != cut]
    table = [
        WalkedDimension(
            windows=source_shape.dimensions[d],
            source_stride=source_strides[d],
            operand_stride=strides[d],
            step=window[d].stride,
            padding_low=window[d].padding_low,
            size=shape.dimensions[d],
            window_extent=(window[d].size - 1) * window[d].window_dilation + 1,
        )
        for d in walked
    ]
    candidates = [
        (sum(at * strides[d] for at, d in zip(window_entry, walked, strict=True)), *window_entry)
        for window_entry in product(*([k * window[d].window_dilation for k in range(window[d].size)] for d in walked))
    ]
    header = SelectAndScatter(
        operand=operand[1],
        source=source[1],
        init=init,
        target=target,
        cut_outer=1 if cut is None else prod(shape.dimensions[:cut]),
        cut_size=1 if cut is None else shape.dimensions[cut],
        cut_stride=shape.elements if cut is None else strides[cut],
        cut_source_stride=0 if cut is None else source_strides[cut],
        positions=prod(source_shape.dimensions[d] for d in walked),
        rank=len(walked),
        candidates=len(candidates),
        vector=prod(shape.dimensions[inner_rank:]),
    )
    return (header, table, *candidates), header.cut_size if shape.elements else 0


def encoded_select_and_scatter(work: SelectAndScatterWork) -> Encoded:
    """The codelet of a way of scattering, with its parameters and scratch."""
    operand, source = ((each.shape, each.address) for each in (work.operand, work.source))
    arguments = operand, source, work.initial, work.target, work.window
    kind, select, combine = operand[0].element_type, work.select, work.combine
    if not isinstance(select, str):
        parts, _ = encode_general_select_and_scatter(*arguments)
        combined = combiner(combine, kind) if isinstance(combine, str) else combine
        calls = (GeneralSelectAndScatter.CHOICE, select), (GeneralSelectAndScatter.COMBINER, combined)
        return Encoded.of(general_select_and_scatter, block(*parts), GENERAL_SCRATCH_BYTES, calls)
    if work.scattering is Scattering.APART:
        parts, _ = encode_pool_gradient(*arguments)
        return Encoded.of(pool_gradient(select, kind), block(*parts), POOL_SCRATCH_BYTES)
    if work.scattering is Scattering.GATHERED:
        parameters, _, scratch = encode_overlapping_pools(*arguments)
        columns = parameters.wide
        codelet = overlapping_pool_gradient(select, kind, columns.positions, columns.stride)
        return Encoded.of(codelet, block(parameters), scratch)
    parts, _ = encode_select_and_scatter(*arguments)
    return Encoded.of(select_and_scatter(select, source[0].element_type), block(*parts), SCRATCH)
