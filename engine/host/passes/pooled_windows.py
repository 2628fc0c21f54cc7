"""Pooling by windows that leave out positions outside of an image, in place of loops over rows and padded copies.

For the host only: the program that the device model estimates has the loops.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

from engine.codelets.language.encoded import CodeletWork
from engine.codelets.pooling.pool_axis import pool_axis
from engine.codelets.pooling.pool_windows import PooledImages, pool_windows
from engine.frozen import frozen
from engine.host.convolutions.images import Strides
from engine.ir.attributes import WindowDimension
from engine.ir.pooling import MOST_COLUMNS
from engine.ir.shape import Shape
from engine.program.program import Address, Partition, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.work.copy import Copy
from engine.program.work.fused_loop import Strided, WindowLoop

OPCODES = ("add", "maximum", "maximum-number", "minimum")
TYPES = ("f32", "f16", "bf16")
KINDS = ("arena", "variable", "constant", "feed")
"""Kinds of buffers that compute sets may read in place of the copy."""


def pool_unpadded(program: Program) -> Program:
    """Replaces loops over windows of two dimensions, and drops the padded copies that nothing reads any more."""
    rewriter, copies = ProgramRewriter(program), set[int]()
    for at, each in enumerate(program.compute_sets):
        if isinstance(each.work, WindowLoop) and (spatial := _spatial(each.work)) is not None:
            copies |= _replaced(rewriter, at, each.work, spatial)
    rewriter.remove(at for at in copies if not rewriter.uses.readers(program.compute_sets[at].writes[0].buffer))
    return rewriter.result()


def _spatial(loop: WindowLoop) -> int | None:
    """Returns the first of two neighbouring dimensions, if no others have windows, and the array is dense."""
    windowed = [d for d, w in enumerate(loop.window) if not w.is_trivial]
    start = windowed[-1] - 1 if windowed else -1
    if not loop.is_neutral or not 0 <= start <= windowed[0]:
        return None
    (reduction,) = loop.nest.reductions
    types = {loop.nest.accesses[number].element_type for number in (0, 1, *reduction.accesses)}
    if reduction.combine not in OPCODES or reduction.element_types != ("f32",) or len(types) != 1 or types - set(TYPES):
        return None
    if loop.nest.splits_reduction or loop.record is not None:
        return None
    first, second = loop.window[start : start + 2]
    if any(w.window_dilation != 1 or w.base_dilation != 1 for w in (first, second)) or second.size > MOST_COLUMNS:
        return None
    item = Shape(next(iter(types))).dtype.itemsize
    return start if _is_dense(loop, start, item) else None


def _is_dense(loop: WindowLoop, start: int, item: int) -> bool:
    """Whether columns of channels are neighbours in rows of the array, and images are evenly spaced."""
    strides, sizes = loop.strides, loop.windows
    expected = item
    for d in range(len(sizes) - 1, start, -1):
        if strides[d] != expected and sizes[d] > 1:
            return False
        expected *= sizes[d]
    outer = zip(pairwise(strides[:start]), sizes[1:start], strict=True)
    return strides[start] > 0 and all(a == b * n for (a, b), n in outer)


def _replaced(rewriter: ProgramRewriter, at: int, loop: WindowLoop, start: int) -> set[int]:
    """Gives compute set `at` other work unless its loop has more units; returns the number of the copy that it no
    longer reads, if it read one.
    """
    each, (source, initial) = rewriter.sets[at], loop.operands[:2]
    assert isinstance(source, Strided) and isinstance(initial, Strided)
    (reduction,) = loop.nest.reductions
    (written,) = (loop.operands[k] for k in reduction.accesses)
    assert isinstance(written, Strided)
    kind = loop.nest.accesses[0].element_type
    item = Shape(kind).dtype.itemsize
    windows, spatial = loop.windows[start : start + 2], loop.window[start : start + 2]
    images, channels = prod(loop.windows[:start]), prod(loop.windows[start + 2 :])
    rows = images * windows[0]
    if spatial[0].is_trivial and rows < each.units:
        return set()
    image = loop.strides[start - 1] if start and images > 1 else 0
    strides = image, loop.strides[start], loop.strides[start + 1]
    found = original(rewriter, at, source.address, (images, channels), strides, item)
    wide = spatial[1]
    dense = item * channels
    if found is not None and (found.strides[2] < dense or (wide.stride == 1 and found.strides[2] > dense)):
        found = None  # columns are computed together, or vectors reach over their channels: they read the padded copy
    address, size, low = source.address, tuple(map(_reach, spatial, windows)), (0, 0)
    if found is not None:
        each = replace(each, reads=[found.span if s.buffer is source.address.buffer else s for s in each.reads])
        address, size, low, strides = found.address, found.size, found.low, found.strides
    axes = [pool_axis(*axis) for axis in zip(spatial, low, size, windows, strides[1:], strict=True)]
    unit_rows = -(-rows // each.units)
    parameters = PooledImages(
        operand=address,
        initial=initial.address,
        result=written.address,
        images=images,
        image=strides[0],
        channels=channels,
        unit_rows=unit_rows,
        high=axes[0],
        wide=axes[1],
    )
    work = CodeletWork(pool_windows(str(reduction.combine), kind, wide.size, wide.stride), parameters)
    reads = [replace(span, partition=None) for span in each.reads]
    writes = [replace(each.writes[0], partition=Partition(windows[1] * channels, rows, unit_rows))]
    rewriter.replace(at, replace(each, work=work, units=-(-rows // unit_rows), reads=reads, writes=writes))
    return set() if found is None else {found.copy}


def _reach(w: WindowDimension, windows: int) -> int:
    """The number of elements that all windows cover together."""
    return (windows - 1) * w.stride + w.size


@frozen
class Original:
    """Images that compute set `copy` copies between zeros, of which there are `low` before the first row and column."""

    copy: int
    span: Span
    address: Address
    strides: Strides
    size: tuple[int, int]
    low: tuple[int, int]


def original(
    rewriter: ProgramRewriter,
    at: int,
    padded: Address,
    images: tuple[int, int],
    strides: Strides,
    item: int,
) -> Original | None:
    """The array that a padded one is a copy of, if it still has the same contents where compute set `at` reads it.

    `images` are the numbers of images and features; `strides` are the padded array's strides of images, rows and
    columns. Its elements have `item` bytes.
    """
    uses, writers = rewriter.uses, rewriter.uses.writers(padded.buffer)
    if not padded.buffer.permanent or len(writers) != 1 or writers[0] > at:
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
    if rewriter.program.innermost_region(writers[0]) != rewriter.program.innermost_region(at):
        return None
    if images[0] == 1:  # a single image has stride 0; it ends with the array, also within a row
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
