"""Copies a box between an array and a buffer of its own; the box's start indices are read at run time.

dynamic-slice reads the box, dynamic-update-slice writes it. Only bytes are copied, so one codelet serves all types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from engine.codelets.host.rows import copy_bytes, word
from engine.codelets.language.build import codelet
from engine.codelets.language.record import Address, Record
from engine.codelets.rows.gather import RunDimension, byte_strides, index_signed, load_index, merge
from engine.ir import Shape


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

    @property
    def is_one_run(self) -> bool:
        """Whether the box is a single run of bytes at the array's address, which no start moves."""
        return self.start_rank == self.run_rank == 0


class Start(Record):
    """Start of the box along a dimension. If `bytes` is 0 it is `index` plus `growth` per iteration."""

    index: Address  # of a scalar; or the index itself
    bytes: int
    signed: int
    limit: int
    stride: int
    growth: int


@dataclass(frozen=True, slots=True)
class Counted:
    """A start that is known for each iteration of a loop: its first value, and its growth per iteration."""

    first: int
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


def encode_dynamic_slice(
    array_at: tuple[Shape, Address],
    box_at: tuple[Shape, Address],
    scalars: Sequence[tuple[Shape, Address] | Counted],
    into_array: bool,
    unit_bytes: int = 0,
    iteration: int = 0,
) -> tuple[tuple[DynamicSlice, list[Start], list[RunDimension]], int]:
    """The parts of the block, and the number of units; array and box are (shape, address).

    `scalars` are the starts, one for each dimension of the array, or none; a Counted one has no address but depends on
    word `iteration` of scratch. A contiguous box is divided into units of `unit_bytes` where that is not 0.
    """
    (array, array_address), (box, box_address) = array_at, box_at
    strides, box_strides = byte_strides(array), byte_strides(box)
    item = array.dtype.itemsize
    starts = []
    for d, start in enumerate(scalars):
        limit, stride = array.dimensions[d] - box.dimensions[d], strides[d]
        if isinstance(start, Counted):
            starts.append((start.first, 0, 0, limit, stride, start.growth))
        else:
            shape, address = start
            starts.append((address, shape.dtype.itemsize, int(index_signed(shape)), limit, stride, 0))
    runs = merge([(box.dimensions[d], strides[d], box_strides[d]) for d in range(box.rank)])
    run_bytes = item
    if runs and runs[-1][1:] == (item, item):
        run_bytes *= runs.pop()[0]
    share = unit_bytes or run_bytes or 1
    header = DynamicSlice(
        array=array_address,
        box=box_address,
        into_array=into_array,
        run_bytes=run_bytes,
        start_rank=len(starts),
        run_rank=len(runs),
        unit_bytes=share,
        iteration=iteration,
    )
    units = prod(run[0] for run in runs) if runs else -(-run_bytes // share)
    units = units if box.elements else 0
    return (header, Start.of_each(starts), RunDimension.of_each(runs)), units
