"""Copies a box between an array and a buffer of its own; the box's start indices are read at run time.

dynamic-slice reads the box, dynamic-update-slice writes it. Only bytes are copied, so one codelet serves all types.
"""

from __future__ import annotations

from typing import Any

from engine.codelets.host.rows import copy_bytes
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.record import Address, Record, block, word
from engine.codelets.rows.index_walk import load_index, offsets_at, run_dimensions
from engine.ir.strides import byte_strides, index_signed
from engine.machine_code.abi import Scratch
from engine.program.work.indexing import Counted, SliceWork


class DynamicSlice(Record):
    """The header of the parameters; a Start for each dimension and a Dimension for each of the runs follow."""

    array: Address = 0
    box: Address = 0
    into_array: int  # 1: from the box into the array
    run_bytes: int
    start_rank: int
    run_rank: int
    unit_bytes: int  # of a contiguous box
    iteration: int  # the word of scratch with the iteration on which some starts depend


class Start(Record):
    """Start of the box along a dimension. If `bytes` is 0 it is `index` plus `growth` per iteration."""

    index: Address  # of a scalar; or the index itself
    bytes: int
    signed: int
    limit: int
    stride: int
    growth: int


@codelet
def dynamic_slice(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Copies the contiguous blocks lo <= block < hi of the box, or this range of units of a contiguous box."""
    given, starts = DynamicSlice.read(parameters), parameters + 8 * DynamicSlice.WORDS
    array, box, runs = given.array, given.box, starts + 8 * Start.WORDS * given.start_rank
    for number in range(given.start_rank):
        start = Start.read(starts, number)
        if start.bytes == 0:
            index = start.index + start.growth * word(scratch, given.iteration)
        else:
            index = load_index(start.index, start.bytes, start.signed)
        array += min(max(index, 0), start.limit) * start.stride
    if given.run_rank == 0:
        begin = lo * given.unit_bytes
        _copy(given, array + begin, box + begin, min(hi * given.unit_bytes, given.run_bytes) - begin)
    else:
        for run in range(lo, hi):
            here, there, _, _ = offsets_at(runs, given.run_rank, run)
            _copy(given, array + here, box + there, given.run_bytes)


@inner
def _copy(given: DynamicSlice, here: int, there: int, count: int) -> None:
    if given.into_array:
        copy_bytes(here, there, count)
    else:
        copy_bytes(there, here, count)


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
    header = DynamicSlice.of(
        work,
        run_bytes=run_bytes,
        start_rank=len(starts),
        run_rank=len(runs),
        unit_bytes=work.unit_bytes or run_bytes or 1,
        iteration=Scratch.ITERATION + work.counter,
    )
    return Encoded.of(dynamic_slice, block(header, Start.of_each(starts), run_dimensions(runs)))
