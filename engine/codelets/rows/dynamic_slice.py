"""Copies a box between an array and a buffer of its own; the box's start indices are read at run time.

dynamic-slice reads the box, dynamic-update-slice writes it. Only bytes are copied, so one codelet serves all types.
"""

from __future__ import annotations

from typing import Any

from engine.codelets.host.rows import copy_bytes, word
from engine.codelets.language.build import codelet
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.record import Address, Record, block
from engine.codelets.rows.gather import RunDimension, load_index
from engine.ir.strides import byte_strides, index_signed
from engine.machine_code.abi import Scratch
from engine.program.work.indexing import Counted, SliceWork


class DynamicSlice(Record):
    """The header of the parameters; a Start for each dimension and a RunDimension for each of the runs follow."""

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
    array, box = word(parameters, DynamicSlice.ARRAY), word(parameters, DynamicSlice.BOX)
    table = parameters + 8 * DynamicSlice.WORDS
    for start in range(word(parameters, DynamicSlice.START_RANK)):
        entry = table + 8 * Start.WORDS * start
        if word(entry, Start.BYTES) == 0:
            index = word(entry, Start.INDEX)
            index += word(entry, Start.GROWTH) * word(scratch, word(parameters, DynamicSlice.ITERATION))
        else:
            index = load_index(word(entry, Start.INDEX), word(entry, Start.BYTES), word(entry, Start.SIGNED))
        array += min(max(index, 0), word(entry, Start.LIMIT)) * word(entry, Start.STRIDE)
    table += 8 * Start.WORDS * word(parameters, DynamicSlice.START_RANK)
    into_array, count = word(parameters, DynamicSlice.INTO_ARRAY), word(parameters, DynamicSlice.RUN_BYTES)
    rank = word(parameters, DynamicSlice.RUN_RANK)
    if rank == 0:
        share = word(parameters, DynamicSlice.UNIT_BYTES)
        here, there = array + lo * share, box + lo * share
        count = min(hi * share, count) - lo * share
        if into_array:
            copy_bytes(here, there, count)
        else:
            copy_bytes(there, here, count)
        return
    for index in range(lo, hi):
        rest, here, there = index, array, box
        for dimension in range(rank - 1, -1, -1):
            entry = table + 8 * RunDimension.WORDS * dimension
            size = word(entry, RunDimension.SIZE)
            coordinate = rest % size
            rest //= size
            here += coordinate * word(entry, RunDimension.OPERAND_STRIDE)
            there += coordinate * word(entry, RunDimension.TARGET_STRIDE)
        if into_array:
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
