"""Convolutions of stride 1 with wide kernels, as 5 x 5, 7 x 7, 1 x 7 or 7 x 1, by Winograd's transforms where faster.

So are their gradients by inputs and by kernels. For the host only: the program that the device model estimates has
contractions.
"""

from __future__ import annotations

from math import prod

from engine.codelets.winograd_sizes import WIDE_OUTPUTS, whole_vectors
from engine.machine_code.costs import most_winograd_outputs
from engine.program.convolution_size import ConvolutionSize
from engine.program.host_passes.split_products import is_split
from engine.program.host_passes.winograd import written_sums
from engine.program.host_passes.winograd_wide_sets import axes_of, convolution_sets, flat, gradient_sets
from engine.program.passes.loop_invariants import hoist_loop_invariants
from engine.program.program import ComputeSet, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.work.contraction import Contraction
from engine.program.work.tile_transform import KernelTransform

TRANSFORM = (9, 16)
"""Multiply-adds that take as long as the transform of one element of a tile, with its store and load, along one and
along two dimensions (timed on an EPYC, in the second-level cache)."""
WORTH = 0.72
"""Share of the multiply-adds at which transforming is worth it. Chosen by hand."""
MOST_BYTES = 1 << 28
"""Of all transformed arrays of a convolution."""


def use_wide_winograd(program: Program) -> Program:
    """Transforms the convolutions for which it is faster, unless SOFTWARE_IPU_WINOGRAD allows for small tiles alone."""
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
    """Hoists transforms of kernels out of loops that do not change these: those over micro-batches."""
    return hoist_loop_invariants(program, KernelTransform)


def _transformed(rewriter: ProgramRewriter, at: int) -> tuple[tuple[ComputeSet, ...], list[int]] | None:
    """Compute sets in place of compute set `at`, and the numbers of others that they make superfluous."""
    product = rewriter.sets[at]
    work, size = product.work, product.work_estimate.convolution
    if not isinstance(work, Contraction) or size is None or not work.is_float32 or size.groups != 1:
        return None
    along = [*zip(size.steps, size.field, strict=True), *zip(size.dilations, size.taps, strict=True)]
    if any(step != 1.0 and extent > 1 for step, extent in along) or len(size.taps) not in (1, 2):
        return None
    written, added = written_sums(rewriter, at)
    if written is None:
        return None
    fewer_taps = prod(size.field) >= prod(size.taps)
    for backward in (not fewer_taps, fewer_taps):
        make = gradient_sets if backward else convolution_sets
        made = make(product, work, size, written) if _pays(size, backward) else None
        if made is not None:
            return made, added
    return None


def _pays(size: ConvolutionSize, backward: bool) -> bool:
    """Whether a convolution, or its gradient by the kernel, takes less time transformed."""
    field, taps = flat(size.field), flat(size.taps)
    images, inputs = size.batch, size.inputs
    if backward:
        field, taps, images, inputs = taps, field, inputs, images
    axes = axes_of(taps)
    if axes is None:
        return False
    wide, positions = whole_vectors(size.outputs), axes[0].side * axes[1].side
    tiles = images * axes[0].tiles(field[0]) * axes[1].tiles(field[1])
    read = images * axes[0].input_tiles(field[0]) * axes[1].input_tiles(field[1])
    parts = axes[0].parts * axes[1].parts
    if 4 * positions * (read * inputs + tiles * wide + parts * inputs * wide) > MOST_BYTES:
        return False
    along = sum(each.side > 1 for each in axes)
    transformed = positions * (read * whole_vectors(inputs) + tiles * wide + parts * inputs * wide)
    direct = images * prod(field) * prod(taps) * inputs * wide
    return tiles * positions * parts * inputs * wide + TRANSFORM[along - 1] * transformed < WORTH * direct
