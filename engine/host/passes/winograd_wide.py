"""Convolutions with wide kernels, such as 5 x 5, 1 x 7, or 4 x 4 of stride 2, by Winograd's transforms where faster.

Gradients by inputs and by kernels are computed likewise. For the host only: the program that the device model estimates
has contractions.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf, prod

from engine.codelets.convolutions.tile_sizes import axes_of
from engine.codelets.convolutions.winograd_sizes import WIDE_OUTPUTS, whole_vectors
from engine.host.passes.split_products import is_split
from engine.host.passes.winograd import written_sums
from engine.host.passes.winograd_wide_sets import Tiling, convolution_sets, flat, gradient_sets
from engine.machine_code.costs import most_winograd_outputs
from engine.program.convolution_size import ConvolutionSize
from engine.program.passes.loop_invariants import hoist_loop_invariants
from engine.program.program import ComputeSet, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.work.contraction import Contraction
from engine.program.work.tile_transform import KernelTransform, Pair

TRANSFORM, NEAR_TRANSFORM = (9, 16), (5, 8)
"""Multiply-adds that take as long as the transform of one element of a tile, with its store and load, along one and
along two dimensions (timed on EPYCs): for large arrays, and for arrays that stay in near caches."""
NEAR_BYTES = 1 << 22
"""Bytes up to which the transformed arrays of a convolution stay near, so that transforms are fast."""
WORTH = 0.72
"""Share of the multiply-adds below which transforming is worth it."""
MOST_BYTES = 1 << 28
"""Most bytes of all transformed arrays of a convolution."""


def use_wide_winograd(program: Program) -> Program:
    """Transforms the convolutions for which it is faster, unless SOFTWARE_IPU_WINOGRAD allows only small tiles."""
    if program.exceptions is not None or most_winograd_outputs() < WIDE_OUTPUTS:
        return program
    rewriter, changed = ProgramRewriter(program), False
    for at, each in enumerate(program.compute_sets):
        found = _transformed(rewriter, at)
        if found is None:
            continue
        made, added = found
        if not any(is_split(program, one.work) for one in (each, *made)):
            first, *others = made
            rewriter.replace(at, first)
            rewriter.insert_after(at, *others)
            rewriter.remove(added)
            changed = True
    return rewriter.result() if changed else program


def hoist_wide_kernels(program: Program) -> Program:
    """Hoists transforms of kernels out of loops that do not change the kernels: loops over micro-batches."""
    return hoist_loop_invariants(program, KernelTransform)


def _transformed(rewriter: ProgramRewriter, at: int) -> tuple[tuple[ComputeSet, ...], list[int]] | None:
    """Compute sets in place of compute set `at`, and the numbers of others that they make superfluous."""
    multiplied = rewriter.sets[at]
    work, size = multiplied.work, multiplied.work_estimate.convolution
    if not isinstance(work, Contraction) or size is None or not _has_tiles(work, size):
        return None
    size = undilated(size)
    written, added = written_sums(rewriter, at)
    if written is None:
        return None
    for backward, (tiling, share) in _best_tilings(size).items():
        make = gradient_sets if backward else convolution_sets
        made = make(multiplied, work, size, written, tiling) if share < WORTH else None
        if made is not None:
            return made, added
    return None


def bids(multiplied: ComputeSet) -> dict[str, float]:
    """Estimates the least times as a convolution and as a gradient by the kernel, as shares of the contraction's.

    There are none where tiles cannot compute it.
    """
    work, size = multiplied.work, multiplied.work_estimate.convolution
    if not isinstance(work, Contraction) or size is None or not _has_tiles(work, size):
        return {}
    found = _best_tilings(undilated(size))
    return {"wide gradient" if backward else "wide convolution": share for backward, (_, share) in found.items()}


def _has_tiles(work: Contraction, size: ConvolutionSize) -> bool:
    return work.is_float32 and size.groups == 1 and len(size.taps) in (1, 2)


def _best_tilings(size: ConvolutionSize) -> dict[bool, tuple[Tiling, float]]:
    """Finds the fastest tiles as a convolution (False) and as a gradient by the kernel (True), with their shares.

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
    """Multiply-adds that take as long; infinite for arrays that are too large."""
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
