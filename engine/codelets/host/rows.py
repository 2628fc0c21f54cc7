"""Rows of host memory: the infeed gathers a step's rows, the outfeed appends a step's result.

Both read the addresses of the host arrays from a *feed block*, two int64 words whose address is in the parameters.
The host writes the block before each call, so parameters and step table stay the same from call to call.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from engine.codelets.language.build import codelet, inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import POINTER, VOID, call, load_i32, load_i64, store_i32, store_i64
from engine.codelets.language.record import Address, Record, word
from engine.machine_code.llvm import ir

OUTFEED_CHUNK = 16384  # bytes of a unit


class Feed(IntEnum):
    """Words of a feed block."""

    ARRAY = 0  # address of the host array
    ROWS = 1  # infeed: address of int64 row numbers, 0 for the natural order
    WORDS = 2


class Infeed(Record):
    """Parameters of `infeed`. Unit: one row of the batch."""

    feed: Address = 0  # the feed block
    target: Address = 0  # the parameter's buffer
    row_bytes: int
    batch: int  # rows in a step


class Outfeed(Record):
    """Parameters of `outfeed`. Unit: OUTFEED_CHUNK bytes of the result."""

    feed: Address = 0  # the feed block; its ARRAY is [steps, bytes]
    source: Address = 0  # the result
    bytes: int  # size of the result


@intrinsic
def copy_memory(builder: ir.IRBuilder, target: ir.Value, source: ir.Value, count: ir.Value) -> None:
    """Copies `count` bytes between addresses that do not overlap."""
    pointers = [builder.inttoptr(argument, POINTER) for argument in (target, source)]
    call(builder, "memcpy.p0.p0.i64", VOID, *pointers, count, ir.IntType(1)(0))


@inner
def copy_bytes(target: int, source: int, count: int) -> None:
    """Copies `count` bytes; sizes of one element are copied without a call."""
    if count == 4:
        store_i32(target, load_i32(source))
    elif count == 8:
        store_i64(target, load_i64(source))
    else:
        copy_memory(target, source, count)


@codelet
def infeed(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Copies the rows lo <= i < hi of this step (its number is scratch[0]) into the parameter's buffer."""
    given = Infeed.read(parameters)
    array, rows, size = word(given.feed, Feed.ARRAY), word(given.feed, Feed.ROWS), given.row_bytes
    first = word(scratch, 0) * given.batch
    if rows == 0:
        copy_bytes(given.target + lo * size, array + (first + lo) * size, (hi - lo) * size)
    else:
        for i in range(lo, hi):
            copy_bytes(given.target + i * size, array + word(rows, first + i) * size, size)


@codelet
def outfeed(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Copies the chunks lo <= i < hi of the result to the slot of this step (its number is scratch[0])."""
    given = Outfeed.read(parameters)
    start, end = lo * OUTFEED_CHUNK, min(hi * OUTFEED_CHUNK, given.bytes)
    target = word(given.feed, Feed.ARRAY) + word(scratch, 0) * given.bytes
    copy_bytes(target + start, given.source + start, end - start)


def new_feed_block() -> np.ndarray:
    """An empty feed block, int64 [2]."""
    return np.zeros(Feed.WORDS, np.int64)


def point_feed(block: np.ndarray, array: np.ndarray, rows: np.ndarray | None = None) -> None:
    """Writes the addresses of a C-contiguous array and of int64 row numbers; both must outlive the next call.

    Raises ValueError for an array that is not C-contiguous and for row numbers that are not contiguous int64 of rank 1.
    Bounds of row numbers are not checked.
    """
    if not array.flags.c_contiguous:
        raise ValueError(f"Expected a C-contiguous array. Received strides {array.strides}: pass np.ascontiguousarray.")
    if rows is not None and (rows.dtype != np.int64 or rows.ndim != 1 or not rows.flags.c_contiguous):
        raise ValueError(f"Expected contiguous int64 row numbers of rank 1. Received: {rows.dtype}{list(rows.shape)}.")
    block[Feed.ARRAY] = array.ctypes.data
    block[Feed.ROWS] = 0 if rows is None else rows.ctypes.data


def encode_infeed(feed: int, target: Address, batch: int, row_bytes: int) -> tuple[Infeed, int]:
    """Parameters of `infeed` and its number of units; `feed` and `target` are addresses."""
    return Infeed(feed=feed, target=target, row_bytes=row_bytes, batch=batch), batch if row_bytes else 0


def encode_outfeed(feed: int, source: Address, size: int) -> tuple[Outfeed, int]:
    """Parameters of `outfeed` for a result of `size` bytes, and its number of units."""
    return Outfeed(feed=feed, source=source, bytes=size), -(-size // OUTFEED_CHUNK)
