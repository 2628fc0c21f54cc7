"""HLO gather of contiguous rows by one or two index components: the same parameters as `gather`, no tables in the loop.

A row is one run of bytes, and the positions of index vectors are evenly spaced. Unit: one row.
"""

from __future__ import annotations

from engine.codelets.host.rows import copy_bytes, word
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import POINTER, load_i32, load_i64, store_i32
from engine.codelets.language.record import block
from engine.codelets.rows.gather import (
    AHEAD,
    BatchDimension,
    Gather,
    GatherParts,
    IndexComponent,
    encode_gather,
    fetch_lines,
    gather,
)
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes
from engine.program.work.indexing import GatherWork

VECTOR = 4 * lanes()
FAR_BYTES = 1 << 19
"""Bytes of an operand from which on its rows are not in a near cache."""
LONG = 512
"""Bytes of a row from which the C library's copy is as fast."""


@intrinsic
def copy_vector(builder: ir.IRBuilder, target: ir.Value, source: ir.Value) -> None:
    """Copies VECTOR bytes."""
    written, read = (builder.inttoptr(each, POINTER) for each in (target, source))
    value = builder.load(read, align=1, typ=ir.VectorType(ir.IntType(8), VECTOR))
    builder.store(value, written, align=1)


@inner
def copy_row(target: int, source: int, count: int) -> None:
    """Copies `count` bytes between rows that do not overlap."""
    if count < VECTOR or count > LONG:
        copy_bytes(target, source, count)
        return
    at = 0
    while at + VECTOR <= count:
        copy_vector(target + at, source + at)
        at += VECTOR
    if at < count:
        copy_vector(target + count - VECTOR, source + count - VECTOR)


@inner
def load_row_number(address: int, is_wide: bool) -> int:
    """An int32, or an int64 where `is_wide`."""
    return load_i64(address) if is_wide else load_i32(address)


@codelet
def gather_rows(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """target[position] = the operand's row at the clamped indices of that position."""
    batch = parameters + 8 * Gather.WORDS
    first = batch + 8 * BatchDimension.WORDS
    second = first + 8 * IndexComponent.WORDS
    is_wide = word(parameters, Gather.INDEX_BYTES) == 8
    has_second = word(parameters, Gather.INDEX_COMPONENTS) == 2
    step, target_step = word(batch, BatchDimension.INDEX_STRIDE), word(batch, BatchDimension.TARGET_STRIDE)
    index = word(parameters, Gather.INDICES) + word(first, IndexComponent.INDEX_OFFSET) + lo * step
    stride, largest = word(first, IndexComponent.OPERAND_STRIDE), word(first, IndexComponent.LARGEST_START)
    between, other_stride, other_largest = 0, 0, 0
    if has_second:
        between = word(second, IndexComponent.INDEX_OFFSET) - word(first, IndexComponent.INDEX_OFFSET)
        other_stride = word(second, IndexComponent.OPERAND_STRIDE)
        other_largest = word(second, IndexComponent.LARGEST_START)
    operand, target = word(parameters, Gather.OPERAND), word(parameters, Gather.TARGET) + lo * target_step
    size = word(parameters, Gather.RUN_BYTES)
    near = AHEAD if largest * stride > FAR_BYTES and not has_second else hi - lo
    for unit in range(lo, hi):
        if unit + near < hi:
            later = load_row_number(index + near * step, is_wide)
            fetch_lines(operand + min(max(later, 0), largest) * stride, size)
        source = operand + min(max(load_row_number(index, is_wide), 0), largest) * stride
        if has_second:
            source += min(max(load_row_number(index + between, is_wide), 0), other_largest) * other_stride
        if size == 4:
            store_i32(target, load_i32(source))
        elif size == VECTOR:
            copy_vector(target, source)
        else:
            copy_row(target, source, size)
        index += step
        target += target_step


def gathers_rows(parts: GatherParts) -> bool:
    """Whether these parameters of `gather` describe contiguous rows at evenly spaced signed indices."""
    header, batch, _, _ = parts
    is_plain = header.batch_rank == 1 and header.index_components in (1, 2) and header.runs == 1
    if not is_plain or not header.index_signed or header.index_bytes not in (4, 8):
        return False
    return batch[0].operand_stride == 0


def gather_parts(work: GatherWork) -> GatherParts:
    """The parts of a gather's block."""
    operand, indices, target = ((each.shape, each.address) for each in (work.operand, work.indices, work.target))
    return encode_gather(operand, indices, target, work.numbers, work.slice_sizes)[0]


def encoded_gather(work: GatherWork) -> Encoded:
    """The codelet for rows where it suffices."""
    parts = gather_parts(work)
    return Encoded.of(gather_rows if gathers_rows(parts) else gather, block(*parts))
