"""Arrays as they were before they were copied between zeros, for work that reads zeros outside of an image itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.program.program import Address, ComputeSet, Span
from engine.program.regions import innermost_region
from engine.program.rewriter import ProgramRewriter
from engine.program.work.copy import Copy
from engine.program.work.fused_loop import Strided
from engine.program.work.winograd_tiles import Strides

KINDS = ("arena", "variable", "constant", "feed")
"""Kinds of buffers that compute sets may read in place of the copy."""


@dataclass(frozen=True, slots=True)
class Original:
    """Images that compute set `copy` copies between zeros, of which there are `low` before the first row and column."""

    copy: int
    span: Span
    address: Address
    strides: Strides
    size: tuple[int, int]
    low: tuple[int, int]


def reading(compute_set: ComputeSet, padded: Address, original: Span) -> ComputeSet:
    """Replaces the span of the padded array among a compute set's reads."""
    return replace(compute_set, reads=[original if s.buffer is padded.buffer else s for s in compute_set.reads])


def original(
    rewriter: ProgramRewriter,
    at: int,
    padded: Address,
    images: tuple[int, int],
    strides: Strides,
    item: int = 4,
    between_zeros: bool = True,
) -> Original | None:
    """The array that a padded one is a copy of, if it still has the same contents where compute set `at` reads it.

    `images` are the numbers of images and features; `strides` are the padded array's strides of images, rows and
    columns. Its elements have `item` bytes. Without `between_zeros` the array may have other values around the images.
    """
    uses, writers = rewriter.uses, rewriter.uses.writers(padded.buffer)
    if not padded.buffer.permanent or len(writers) != 1 or writers[0] > at:
        return None
    if between_zeros and padded.buffer.value is not None:
        return None
    copy = rewriter.sets[writers[0]]
    if not isinstance(copy.work, Copy) or len(copy.work.operands) != 2 or padded.moved is not None:
        return None
    source, target = copy.work.operands
    if not isinstance(source, Strided) or not isinstance(target, Strided) or target.address.moved is not None:
        return None
    buffer = source.address.buffer
    if buffer.kind not in KINDS or any(writers[0] <= each <= at for each in uses.writers(buffer)):
        return None
    if innermost_region(rewriter.program, writers[0]) != innermost_region(rewriter.program, at):
        return None
    if images[0] == 1:  # its stride is 0; nothing follows it, so it has all rows, also one that ends early
        strides = (-(-padded.buffer.shape.bytes // strides[1]) * strides[1], *strides[1:])
    box = _box(copy.work, source.strides, target.strides, (*strides, item))
    low = _low(target.address.offset - padded.offset, strides)
    if box is None or low is None or (box[0][0], box[3]) != (images[0], (images[1], item)):
        return None
    (_, image), (rows, row), (columns, column), _ = box
    if low[0] + rows > strides[0] // strides[1] or low[1] + columns > strides[1] // strides[2]:
        return None
    span = replace(copy.reads[0], partition=None)
    return Original(writers[0], span, source.address, (image, row, column), (rows, columns), low)


def _box(
    copy: Copy, sources: tuple[int, ...], targets: tuple[int, ...], strides: tuple[int, ...]
) -> list[tuple[int, int]] | None:
    """Extent and stride in the source of each dimension that is copied; the target's dimensions have these `strides`.

    A loop may run over several dimensions.
    """
    if any(outer <= inner or outer % inner for outer, inner in zip(strides, strides[1:], strict=False)):
        return None
    missing = (1, 0)
    box = [missing] * len(strides)
    for extent, source, target in zip(copy.extents, sources, targets, strict=True):
        if target not in strides:
            return None
        at = strides.index(target)
        while at > 0 and extent * strides[at] > strides[at - 1]:
            count = strides[at - 1] // strides[at]
            if extent % count:
                return None
            if box[at] != missing:
                return None
            box[at] = (count, source)
            extent, source, at = extent // count, source * count, at - 1
        if box[at] != missing:
            return None
        box[at] = (extent, source)
    return box


def _low(offset: int, strides: Strides) -> tuple[int, int] | None:
    """Divides an offset in bytes into rows and columns; None if it is not a whole number of both."""
    rows, rest = divmod(offset, strides[1])
    columns, rest = divmod(rest, strides[2])
    return None if rest or offset < 0 or offset >= strides[0] else (rows, columns)
