"""Convolutions with wide kernels, such as 5 x 5, 1 x 7, or 4 x 4 of stride 2, by Winograd's transforms: bids and tiles.

Gradients by inputs and by kernels are computed likewise.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf, prod

from engine.codelets.convolutions.cook_toom import WIDE_OUTPUTS, axes_of, whole_vectors
from engine.host.convolutions.part import Axis, ConvolutionPart, Pair
from engine.host.convolutions.winograd_wide_sets import Tiling, convolution_sets, flat, gradient_sets
from engine.machine_code.costs import most_winograd_outputs
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import ComputeSet

TRANSFORM, NEAR_TRANSFORM = (9, 16), (5, 8)
"""Multiply-adds that take as long as the transform of one element of a tile, with its store and load, along one and
along two dimensions (timed on EPYCs): for large arrays, and for arrays that stay in near caches."""
NEAR_BYTES = 1 << 22
"""Bytes up to which the transformed arrays of a convolution stay near, so that transforms are fast."""
WORTH = 0.72
"""Share of the multiply-adds below which transforming is worth it."""
MOST_BYTES = 1 << 28
"""Most bytes of all transformed arrays of a convolution."""


def bids(size: ConvolutionSize, element_type: str) -> dict[str, float]:
    """Estimates the least time as a convolution, and as a gradient by the kernel, in shares of the contraction's time.

    Kinds that no tiles can compute are left out.
    """
    found = _best_tilings(undilated(size)) if _has_tiles(size, element_type) else {}
    return {"wide gradient" if backward else "wide convolution": share for backward, (_, share) in found.items()}


def transformed(part: ConvolutionPart) -> list[ComputeSet] | None:
    """The compute sets of the fastest tiles; None where the contraction is faster, or the arrays are not suitable."""
    plain = in_rows(part) if _has_tiles(part.size, part.element_type) else None
    if plain is None:
        return None
    for backward, (tiling, share) in _best_tilings(plain.size).items():
        make = gradient_sets if backward else convolution_sets
        made = make(plain, tiling) if share < WORTH else None
        if made is not None:
            return made
    return None


def _has_tiles(size: ConvolutionSize, element_type: str) -> bool:
    large = most_winograd_outputs() >= WIDE_OUTPUTS
    return large and element_type == "f32" and size.groups == 1 and len(size.taps) in (1, 2)


def _best_tilings(size: ConvolutionSize) -> dict[bool, tuple[Tiling, float]]:
    """Finds the fastest tiles for a convolution (False) and for a gradient by the kernel (True), with their shares.

    The kind with fewer taps comes first.
    """
    fewer_taps = prod(size.field) >= prod(size.taps)
    found = {backward: _tiling(size, backward) for backward in (not fewer_taps, fewer_taps)}
    return {backward: best for backward, best in found.items() if best is not None}


def undilated(size: ConvolutionSize) -> ConvolutionSize:
    """A one-dimensional convolution as one of two dimensions without dilation: rows of positions, by columns of taps.

    For the gradient by the kernel, whose taps are positions, the steps count as the dilation. Other sizes are returned
    unchanged.
    """
    if len(size.taps) != 1:
        return size
    (field,), (taps,), (step,), (dilation,) = size.field, size.taps, size.steps, size.dilations
    apart = int(max(step, dilation))
    positions = field if dilation > 1 else taps
    if min(step, dilation) != 1 or apart != max(step, dilation) or apart == 1 or positions % apart:
        return size
    rows, column = (positions // apart, apart), (taps if dilation > 1 else field, 1)
    if rows[0] < column[0]:
        return size
    field_, taps_ = (rows, column) if dilation > 1 else (column, rows)
    return replace(size, field=field_, taps=taps_, steps=(1.0, 1.0), dilations=(1.0, 1.0))


def in_rows(part: ConvolutionPart) -> ConvolutionPart | None:
    """The part as one of rows and columns, with the sizes of `undilated`; None if its zeros do not fill rows."""
    size = undilated(part.size)
    if len(part.axes) == 2:
        return part
    (axis,) = part.axes
    if len(size.taps) == 1:
        return replace(part, axes=(Axis(), axis))
    apart = axis.apart if size.taps[1] == 1 else axis.step
    if axis.is_inside:
        part, axis = replace(part, a=part.begin), replace(axis, start=0, source=axis.size)
    elif axis.start % apart or axis.source % apart:
        return None
    near = replace(axis, step=1, apart=1)
    along = replace(near, count=size.field[0], taps=size.taps[0], stride_a=axis.stride_a * apart)
    along = replace(along, start=axis.start // apart, source=axis.source // apart)
    across = replace(near, count=size.field[1], taps=size.taps[1], start=0, source=apart)
    if size.taps[1] == 1:
        along = replace(along, stride_c=axis.stride_c * apart)
    else:
        along = replace(along, stride_b=axis.stride_b * apart)
    return replace(part, size=size, axes=(along, across))


def _tiling(size: ConvolutionSize, backward: bool) -> tuple[Tiling, float] | None:
    """Finds the fastest tiles of a convolution, or its gradient by the kernel, and their share of the direct time.

    The direct time is the contraction's. None if there are no tiles.
    """
    steps = _steps(size, backward)
    taps = flat(size.field if backward else size.taps)
    if steps is None:
        return None
    of_phase = -(-taps[0] // steps[0]), -(-taps[1] // steps[1])
    direct = size.batch * size.inputs * prod(size.field) * prod(size.taps) * whole_vectors(size.outputs)
    # Windows of 3 x 3 have other transforms.
    if not direct or of_phase == (1, 1) or (taps == (3, 3) and steps == (1, 1)):
        return None
    tilings = [Tiling(axes, steps) for axes in product(axes_of(of_phase[0]), axes_of(of_phase[1]))]
    costs = {tiling: _cost(size, backward, tiling) for tiling in tilings}
    best = min(costs, key=lambda each: costs[each])
    return best, costs[best] / direct


def _steps(size: ConvolutionSize, backward: bool) -> Pair | None:
    """Inputs between two outputs or, for a gradient by the kernel, between two gradients of outputs.

    None unless taps, or the gradients by taps, are neighbours.
    """
    of_field, of_taps = (
        [step if extent > 1 else 1.0 for step, extent in zip(steps, extents, strict=True)]
        for steps, extents in ((size.steps, size.field), (size.dilations, size.taps))
    )
    steps, dense = (of_taps, of_field) if backward else (of_field, of_taps)
    if any(each != 1.0 for each in dense) or any(each < 1.0 or each != int(each) for each in steps):
        return None
    return flat(tuple(map(int, steps)))


def _cost(size: ConvolutionSize, backward: bool, tiling: Tiling) -> float:
    """The multiply-adds that take as long as the convolution by these tiles; infinite if the arrays are too large."""
    field, taps = flat(size.field), flat(size.taps)
    images, inputs, wide = size.batch, size.inputs, whole_vectors(size.outputs)
    if backward:
        field, taps, images, inputs = taps, field, inputs, images
    phases, positions = prod(tiling.phases(taps)), prod(each.side for each in tiling.axes)
    tiles, read = images * prod(tiling.tiles(field)), images * phases * prod(tiling.input_tiles(field))
    taken = phases * prod(tiling.parts) * inputs * wide
    transformed = positions * (read * whole_vectors(inputs) + tiles * wide + taken)
    if 4 * transformed > MOST_BYTES:
        return inf
    along = sum(each.side > 1 for each in tiling.axes)
    transform = (NEAR_TRANSFORM if 4 * transformed <= NEAR_BYTES else TRANSFORM)[along - 1]
    return tiles * positions * taken + transform * transformed
