"""Walks of gathers, scatters and slices over positions of index vectors and over contiguous runs, in row-major order.

Strides and offsets are in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.codelets.language.build import inner
from engine.codelets.language.memory import load_i8, load_i16, load_i32, load_i64, prefetch
from engine.codelets.language.record import Record
from engine.ir.shape import Shape
from engine.ir.strides import byte_strides, merge

LARGEST = 2**63 - 1
# Tuned on two cores of a Xeon with AVX-512 (48 KiB first-level, 2 MiB second-level cache), November 2026:
AHEAD = 12  # slices by which prefetching precedes copying
MOST_LINES = 8  # cache lines of 64 bytes that are prefetched of a slice


class Dimension(Record):
    """A dimension of positions or of runs: its size, and its strides."""

    size: int
    operand: int
    other: int  # in a gather's target, a scatter's updates, or the box of a slice
    index: int = 0
    along_cut: int = 0  # 1 where it numbers the coordinates of the dimension that a scatter's units partition


class IndexComponent(Record):
    """A component of each index vector."""

    index_offset: int
    operand_stride: int
    largest_start: int
    along_cut: int = 0


@inner
def offsets_at(dimensions: int, rank: int, number: int) -> tuple[int, int, int, int]:
    """The offsets of position `number` in the operand, the other array and the indices, and its place along the cut."""
    operand, other, index, cut = 0, 0, 0, 0
    for d in range(rank - 1, -1, -1):
        dimension = Dimension.read(dimensions, d)
        coordinate = number % dimension.size
        number //= dimension.size
        operand += coordinate * dimension.operand
        other += coordinate * dimension.other
        index += coordinate * dimension.index
        cut += coordinate * dimension.along_cut
    return operand, other, index, cut


@inner
def load_index(address: int, size: int, signed: int) -> int:
    """An integer of 1, 2, 4 or 8 bytes; an unsigned one beyond int64 becomes the largest int64."""
    if size == 4:
        return load_i32(address) if signed else load_i32(address) & 0xFFFFFFFF
    if size == 8:
        value = load_i64(address)
        return value if signed or value >= 0 else LARGEST
    if size == 2:
        return load_i16(address) if signed else load_i16(address) & 0xFFFF
    return load_i8(address) if signed else load_i8(address) & 0xFF


@inner
def fetch_lines(address: int, count: int) -> None:
    """Prefetches `count` bytes, but at most MOST_LINES lines: the hardware prefetcher follows."""
    for line in range(min((count + 63) >> 6, MOST_LINES)):
        prefetch(address + 64 * line)


def position_dimensions(
    indices: Shape,
    vector_dim: int,
    mapped: Sequence[int],
    batching: Mapping[int, int],
    strides: Sequence[int],
    largest_starts: Sequence[int],
    others: Sequence[int],
    cut: int | None = None,
) -> tuple[list[Dimension], list[IndexComponent]]:
    """The dimensions of the positions of index vectors, and the components, of the `mapped` operand's dimensions.

    `batching` maps dimensions of the indices to the operand's that they number. `strides` and `largest_starts` are the
    operand's, `others` the strides of positions in the other array. Along the `cut`, coordinates are numbered.
    """
    index_strides, kept = byte_strides(indices), [d for d in range(indices.rank) if d != vector_dim]
    positions = []
    for d, other in zip(kept, others, strict=True):
        numbered = batching.get(d)
        stride = 0 if numbered is None or numbered == cut else strides[numbered]
        along_cut = int(numbered is not None and numbered == cut)
        positions.append((indices.dimensions[d], stride, other, index_strides[d], along_cut))
    along = index_strides[vector_dim] if vector_dim < indices.rank else 0
    components = [
        (along * k, 0 if d == cut else strides[d], largest_starts[d], int(d == cut)) for k, d in enumerate(mapped)
    ]
    return Dimension.of_each(merge(positions)), IndexComponent.of_each(components)


def run_dimensions(runs: Sequence[tuple[int, ...]]) -> list[Dimension]:
    """The dimensions of runs, from (size, stride in the operand, stride in the other array)."""
    return Dimension.of_each([(*run, 0, 0) for run in runs])
