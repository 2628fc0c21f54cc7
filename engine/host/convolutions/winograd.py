"""Convolutions and their gradients by Winograd's transforms of tiles: bids, and the choice of tiles.

Kernels have 3 x 3 taps and stride 1, also in images with depth, or others, such as 5 x 5, 1 x 7, or 4 x 4 of stride 2.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf, prod

from engine.codelets.convolutions.cook_toom import LARGE, SMALL, axes_of, positions, tiles_of, whole_vectors
from engine.host.convolutions.part import Axis, ConvolutionPart
from engine.host.convolutions.winograd_sets import Tiling, convolution_sets, gradient_sets
from engine.machine_code.costs import most_winograd_outputs
from engine.machine_code.processor import multiplies_bf16_pairs
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import ComputeSet

TYPES = ("f32", "f16", "bf16")
SQUARES = (SMALL, LARGE)
"""Tiles of 3 x 3 taps."""
TRANSFORM = {SMALL: 5.0, LARGE: 40 / 9}
"""Multiply-adds that take as long as transforming one element of a tile, of input or output (timed on an EPYC)."""
PRODUCT = {SMALL: 0, LARGE: 4}
"""Input features whose multiply-adds take as long as storing a product."""
KERNEL_TRANSFORM = {SMALL: 18.75, LARGE: 50 / 3}
"""Multiply-adds that take as long as transforming one element of a kernel's tile."""
SUM_OF_PAIRS = 24
"""Multiply-adds that a sum of products of pairs takes besides its transforms."""
Triple = tuple[int, int, int]
WORTH = 0.85
"""Share of the multiply-adds below which transforming is worth it."""


def bids(size: ConvolutionSize, element_type: str) -> dict[str, float]:
    """Estimates times by tiles, as shares of the contraction's time; there are none where no tiles can compute it."""
    found: dict[str, float] = {}
    for tiling, share in _shares(undilated(size), element_type).items():
        found[tiling.name] = min(share, found.get(tiling.name, inf))
    return found


def transformed(part: ConvolutionPart) -> list[ComputeSet] | None:
    """The compute sets of the fastest tiles; None where the contraction is faster, or the arrays are not suitable."""
    plain = in_rows(part)
    if plain is None:
        return None
    shares = _shares(plain.size, plain.element_type)
    for tiling in sorted(shares, key=lambda each: shares[each]):
        if shares[tiling] < WORTH:
            made = gradient_sets(plain, tiling) if tiling.backward else convolution_sets(plain, tiling)
            if made is not None:
                return made
    return None


def _shares(size: ConvolutionSize, element_type: str) -> dict[Tiling, float]:
    """Times by tiles, as shares of the contraction's time."""
    each = size.inputs * prod(size.taps)
    if element_type == "bf16" and multiplies_bf16_pairs():
        each = each // 2 + SUM_OF_PAIRS
    direct = size.batch * prod(size.field) * each * whole_vectors(size.outputs)
    if not direct or size.groups != 1 or element_type not in TYPES or len(size.taps) > 3:
        return {}
    return {tiling: _cost(size, tiling) / direct for tiling in _tilings(size)}


def _tilings(size: ConvolutionSize) -> list[Tiling]:
    """The tiles that can compute a convolution, or a gradient by the kernel."""
    found, most = list[Tiling](), most_winograd_outputs()
    for backward in (False, True):
        (depth, *field), (deep, *taps), steps = *_field_and_taps(size, backward), _steps(size, backward)
        if steps is None or steps[0] > 1:
            continue
        _, *step = steps
        features = size.batch if backward else size.inputs
        of_phase = [-(-n // each) for n, each in zip(taps, step, strict=True)]
        if taps == [3, 3] and step == [1, 1]:
            if min(field) > 1 and (deep == 1 or features == whole_vectors(features)):
                found += [Tiling(axes, (1, 1), backward) for axes in SQUARES if axes[0].outputs <= most]
        elif depth == deep == 1 and most >= LARGE[0].outputs and of_phase != [1, 1]:
            tiles = product(*map(axes_of, of_phase))
            found += [Tiling((rows, columns), (step[0], step[1]), backward) for rows, columns in tiles]
    return found


def _field_and_taps(size: ConvolutionSize, backward: bool) -> tuple[Triple, Triple]:
    """Outputs and taps by depth, rows and columns; a gradient by the kernel has its outputs as taps."""
    field, taps = _triple(size.field), _triple(size.taps)
    return (taps, field) if backward else (field, taps)


def _triple(sizes: tuple[int, ...]) -> Triple:
    """Sizes of up to three spatial dimensions, by depth, rows and columns."""
    deep, rows, columns = (1,) * (3 - len(sizes)) + sizes
    return deep, rows, columns


def _steps(size: ConvolutionSize, backward: bool) -> Triple | None:
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
    return _triple(tuple(map(int, steps)))


def _cost(size: ConvolutionSize, tiling: Tiling) -> float:
    """The multiply-adds that take as long as the convolution by these tiles."""
    (depth, *field), (deep, *taps) = _field_and_taps(size, tiling.backward)
    images, inputs = (size.inputs, size.batch) if tiling.backward else (size.batch, size.inputs)
    axes, wide, kind = tiling.axes, whole_vectors(size.outputs), tiling.axes if tiling.axes in SQUARES else LARGE
    parts = deep * prod(min(step, n) for step, n in zip(tiling.steps, taps, strict=True))
    tiles = images * depth * prod(tiles_of(axes, (field[0], field[1])))
    features = axes[0].parts * axes[1].parts * parts * inputs
    transforms = TRANSFORM[kind] * tiles * (parts * whole_vectors(inputs) + wide)
    products = tiles * (features + PRODUCT[kind]) * wide
    return positions(axes) * (transforms + products + KERNEL_TRANSFORM[kind] * features * wide)


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
    if len(part.axes) != 1:
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
