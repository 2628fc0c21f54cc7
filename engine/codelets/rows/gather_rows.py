"""HLO gather of contiguous rows by one or two index components: the same parameters as `gather`, no tables in the loop.

A row is one run of bytes, and the positions of index vectors are evenly spaced. Unit: one row.
"""

from __future__ import annotations

from engine.codelets.host.rows import copy_bytes
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import POINTER, load_i32, load_i64, store_i32
from engine.codelets.language.record import block
from engine.codelets.rows.gather import Gather, GatherParts, gather, gather_parts
from engine.codelets.rows.index_walk import AHEAD, Dimension, IndexComponent, fetch_lines
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
    given, batch = Gather.read(parameters), Dimension.read(parameters + 8 * Gather.WORDS)
    components = parameters + 8 * (Gather.WORDS + Dimension.WORDS)
    first, second = IndexComponent.read(components), IndexComponent.read(components, given.index_components - 1)
    is_wide, has_second = given.index_bytes == 8, given.index_components == 2
    index, target = given.indices + first.index_offset + lo * batch.index, given.target + lo * batch.other
    between, largest, stride = second.index_offset - first.index_offset, first.largest_start, first.operand_stride
    near = AHEAD if largest * stride > FAR_BYTES and not has_second else hi - lo
    for unit in range(lo, hi):
        if unit + near < hi:
            later = load_row_number(index + near * batch.index, is_wide)
            fetch_lines(given.operand + min(max(later, 0), largest) * stride, given.run_bytes)
        source = given.operand + min(max(load_row_number(index, is_wide), 0), largest) * stride
        if has_second:
            column = load_row_number(index + between, is_wide)
            source += min(max(column, 0), second.largest_start) * second.operand_stride
        if given.run_bytes == 4:
            store_i32(target, load_i32(source))
        elif given.run_bytes == VECTOR:
            copy_vector(target, source)
        else:
            copy_row(target, source, given.run_bytes)
        index += batch.index
        target += batch.other


def gathers_rows(parts: GatherParts) -> bool:
    """Whether these parameters of `gather` describe contiguous rows at evenly spaced signed indices."""
    header, batch, _, _ = parts
    is_plain = header.batch_rank == 1 and header.index_components in (1, 2) and header.runs == 1
    if not is_plain or not header.index_signed or header.index_bytes not in (4, 8):
        return False
    return batch[0].operand == 0


def encoded_gather(work: GatherWork) -> Encoded:
    """The codelet for rows where it suffices."""
    parts = gather_parts(work)
    return Encoded.of(gather_rows if gathers_rows(parts) else gather, block(*parts))
