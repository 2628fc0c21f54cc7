"""3 x 3 convolutions of stride 1 by Winograd's F(4 x 4, 3 x 3) or F(2 x 2, 3 x 3), where that is faster.

Gradients by inputs, which are such convolutions, and by kernels are computed likewise. Taps in depth are summed like
features of neighbouring slices. For the host only: the program that the device model estimates has contractions.
"""

from __future__ import annotations

from math import prod

from engine.codelets.convolutions.winograd_sizes import OUTPUTS, TAPS, WIDE_OUTPUTS, WINDOW, positions, whole_vectors
from engine.host.passes.split_products import is_split
from engine.host.passes.winograd_sets import convolution_sets, gradient_sets
from engine.machine_code.costs import most_winograd_outputs
from engine.machine_code.processor import multiplies_bf16_pairs
from engine.program.buffer import Buffer
from engine.program.passes.loop_invariants import hoist_loop_invariants
from engine.program.program import ComputeSet, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.work.contraction import Contraction
from engine.program.work.winograd import WinogradKernel

HALF_TYPES = ("f16", "bf16")
TRANSFORM = {OUTPUTS: 80, WIDE_OUTPUTS: 160}
"""Multiply-adds that take as long as a transform of a tile's feature, of input or output (timed on an EPYC)."""
PRODUCT = {OUTPUTS: 0, WIDE_OUTPUTS: 4}
"""Input features whose multiply-adds take as long as storing a product."""
KERNEL_TRANSFORM = {OUTPUTS: 300, WIDE_OUTPUTS: 600}
"""Multiply-adds that take as long as transforming the taps of an input and an output feature."""
SUM_OF_PAIRS = 24
"""Multiply-adds that a sum of products of pairs takes besides its transforms."""
WORTH = 0.85
"""Share of the multiply-adds below which transforming is worth it."""


def use_winograd(program: Program) -> Program:
    """Transforms the convolutions for which it is faster, by tiles as large as SOFTWARE_IPU_WINOGRAD allows."""
    if program.exceptions is not None or not most_winograd_outputs():
        return program
    rewriter = ProgramRewriter(program)
    changed = False
    for at, each in enumerate(program.compute_sets):
        made = _transformed(rewriter, at)
        if made is not None and not is_split(program, each.work):
            first, second, added = made
            rewriter.replace(at, first)
            rewriter.insert_after(at, second)
            rewriter.remove(added)
            changed = True
    return rewriter.result() if changed else program


def hoist_transformed_kernels(program: Program) -> Program:
    """Hoists transforms of kernels out of loops that do not change the kernels: loops over micro-batches."""
    return hoist_loop_invariants(program, WinogradKernel)


def _transformed(rewriter: ProgramRewriter, at: int) -> tuple[ComputeSet, ComputeSet, list[int]] | None:
    """Two compute sets in place of compute set `at`, and the numbers of others that they make superfluous."""
    product = rewriter.sets[at]
    work, size = product.work, product.work_estimate.convolution
    if not isinstance(work, Contraction) or size is None:
        return None
    tile = _tile(product)
    if tile is None:
        return None
    make = convolution_sets if size.taps[-2:] == (WINDOW, WINDOW) else gradient_sets
    written, added = written_sums(rewriter, at)
    made = None if written is None else make(product, work, size, written, tile)
    return None if made is None else (*made, added)


def _tile(product: ComputeSet) -> int | None:
    """Outputs along each side of the fastest tiles for a compute set; None where the contraction is faster."""
    shares = bids(product)
    best = min(shares, key=lambda each: shares[each], default=None)
    return best if best is not None and shares[best] < WORTH else None


def bids(product: ComputeSet) -> dict[int, float]:
    """Estimates times of a convolution, or its gradient by the kernel, by outputs along each side of a tile.

    Times are shares of the contraction's time. There are none where Winograd's tiles cannot compute it.
    """
    work, size = product.work, product.work_estimate.convolution
    if not isinstance(work, Contraction) or size is None or size.groups != 1 or len(size.taps) > 3:
        return {}
    if any(each != 1.0 for each in (*size.steps, *size.dilations)):
        return {}
    if size.taps[-2:] == (WINDOW, WINDOW):
        images, field, deep, features = size.batch, size.field, size.taps, size.inputs
    elif size.field[-2:] == (WINDOW, WINDOW):
        images, field, deep, features = size.inputs, size.taps, size.field, size.batch
    else:
        return {}
    depth, images = prod(deep[:-2]), images * prod(field[:-2])
    if depth > 1 and features != whole_vectors(features):
        return {}
    half = work.operand_type in HALF_TYPES and work.result_type in (work.operand_type, "f32") and not work.depthwise
    if min(field[-2:]) < 2 or not (work.is_float32 or half):
        return {}
    sizes = images, field[-2:], depth * features, size.outputs
    direct = _direct_cost(work, *sizes)
    if not direct:
        return {}
    return {each: _cost(each, *sizes) / direct for each in (OUTPUTS, WIDE_OUTPUTS) if each <= most_winograd_outputs()}


def _direct_cost(work: Contraction, images: int, field: tuple[int, ...], inputs: int, outputs: int) -> int:
    """Multiply-adds that take as long as the contraction."""
    each = TAPS * inputs
    if work.operand_type == "bf16" and multiplies_bf16_pairs():
        each = each // 2 + SUM_OF_PAIRS
    return images * field[0] * field[1] * each * whole_vectors(outputs)


def _cost(tile: int, images: int, field: tuple[int, ...], inputs: int, outputs: int) -> int:
    """Multiply-adds that take as long as a transformed convolution."""
    wide = whole_vectors(outputs)
    tiles = images * -(-field[0] // tile) * -(-field[1] // tile)
    transforms = tiles * TRANSFORM[tile] * (whole_vectors(inputs) + wide) + KERNEL_TRANSFORM[tile] * inputs * wide
    return tiles * positions(tile) * (inputs + PRODUCT[tile]) * wide + transforms


def written_sums(rewriter: ProgramRewriter, at: int) -> tuple[Buffer | None, list[int]]:
    """Returns the array with the sums of a contraction, and the compute set that adds partial sums to it, if any.

    The array is None if the sums are a part of an array, such as a slot of a ring.
    """
    work = rewriter.sets[at].work
    assert isinstance(work, Contraction)
    if work.splits == 1:
        return work.c.buffer, []
    following = rewriter.sets[at + 1] if at + 1 < len(rewriter.sets) else None
    if following is None or following.name != f"{rewriter.sets[at].name}.add":
        return None, []
    if rewriter.uses.users(work.c.buffer) != [at, at + 1] or len(following.writes) != 1:
        return None, []
    (span,) = following.writes
    targets = [each for each in following.work.addresses if each.buffer is span.buffer]
    if span.slot is not None or any(each.offset or each.moved is not None for each in targets):
        return None, []
    return span.buffer, [at + 1]
