"""Convolutions with few output features: the features of several neighbouring output positions fill the lanes together.

P positions along one dimension read T + P - 1 taps there. The kernel is stored with zeros before and after its taps,
so that the elements that multiply one input element are contiguous, for all P positions. The rows of such a kernel
overlap: each begins one position after the row before it. The zeros cost less than idle lanes would.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from engine.codelets.language.lanes import HALF_TYPES
from engine.codelets.products.micro_kernel import panel_vectors, rows_cycles
from engine.frozen import frozen
from engine.host.convolutions.draft import ConvolutionDraft
from engine.ir import ConvolutionDimensionNumbers, Shape
from engine.ir.affine import row_major_strides
from engine.machine_code.processor import lanes
from engine.program.buffer import Buffer
from engine.program.builder import ProgramBuilder
from engine.program.convolution_size import Phase
from engine.program.copies import copy
from engine.program.views import View, reordered, reversed_along

TYPES = frozenset({"f32", *HALF_TYPES})
WORTH = 0.93
"""Share of the cycles below which another layout of the kernel and of the result is worth it."""
LEAST_MULTIPLY_ADDS = 500_000
"""Multiply-adds of a convolution below which the kernel keeps its layout."""
MOST_POSITIONS = 16
"""Most neighbouring positions of a group: as many as AVX-512 has lanes."""
SINGLE_VECTOR = 1.15
"""The factor by which kernels of one vector take longer if k is long, as they wait for memory (timed on a Xeon)."""
LONG_SINGLE_VECTOR = 2.0
"""Factor for kernels of one vector in products: both operands come from the second-level cache (timed on an EPYC)."""
COPY_CYCLES = 0.4
"""Cycles for each element of the kernel that is repacked (timed on a Xeon)."""


@frozen
class PositionGroup:
    """P positions along spatial dimension `axis` (an index among the spatial ones).

    If `backward`, a group's columns hold its last position first: the kernel keeps its order in memory, and the
    result, which is a single group, is reversed. Otherwise the kernel is reversed.
    """

    axis: int
    positions: int
    backward: bool


def panel_cycles(rows: int, columns: int) -> float:
    """Estimated cycles per element of k of a contraction."""
    panels, rest = divmod(-(-columns // lanes()), panel_vectors())
    return panels * rows_cycles(rows, panel_vectors()) + (rows_cycles(rows, rest) if rest else 0)


def contraction_cycles(draft: ConvolutionDraft, positions: int = 1) -> float:
    """Estimates the cycles of a convolution with groups of `positions` positions."""
    kernel, window = draft.right.shape, draft.window
    features = kernel.dimensions[draft.numbers.kernel_output_feature_dimension]
    rows = draft.shape.elements // features
    # Dilated inputs: each position reads a part of the taps only.
    k = kernel.elements / features / draft.dilation
    cycles = panel_cycles(rows // positions, features * positions) * k
    if window and features * positions <= lanes() and window[-1].size > draft.outputs[-1]:
        cycles *= SINGLE_VECTOR
    if max(draft.outputs, default=1) == 1 and features <= lanes():
        cycles *= LONG_SINGLE_VECTOR
    if positions > 1:
        cycles = cycles * (window[-1].size + positions - 1) / window[-1].size + COPY_CYCLES * kernel.elements
    return cycles


def choose_group(draft: ConvolutionDraft) -> PositionGroup | None:
    """The group that takes the fewest cycles, if it takes clearly fewer than single positions; else None."""
    if not draft.window:
        return None
    window = draft.window[-1]
    dense = window.stride == window.base_dilation == window.window_dilation == 1
    if draft.shape.element_type not in TYPES or draft.groups != 1 or not dense or not draft.right.shape.elements:
        return None
    if draft.multiply_adds < LEAST_MULTIPLY_ADDS:
        return None
    outputs = draft.outputs[-1]
    costs = {p: contraction_cycles(draft, p) for p in range(1, min(outputs, MOST_POSITIONS) + 1) if outputs % p == 0}
    best = min(costs, key=lambda p: costs[p])
    if best == 1 or costs[best] > WORTH * costs[1]:
        return None
    return PositionGroup(len(draft.window) - 1, best, backward=best == outputs and window.size > outputs)


def grouped_phase(phase: Phase, group: PositionGroup) -> Phase:
    """The groups as positions: each reads the taps of the padded kernel."""
    reach = len(phase.taps) + group.positions - 1
    starts = tuple(range(phase.starts[0], phase.starts[0] + reach))
    taps = tuple(range(reach)) if group.backward else tuple(reversed(range(reach)))
    return replace(
        phase,
        period=group.positions,
        count=phase.count // group.positions,
        step=group.positions,
        taps=taps,
        starts=starts,
    )


def grouped_kernel(builder: ProgramBuilder, draft: ConvolutionDraft, phase: Phase, group: PositionGroup) -> View:
    """A copy of the kernel padded with zeros, viewed with a group's columns as features: its rows overlap."""
    numbers, right = draft.numbers, draft.right
    feature, spatial = numbers.kernel_output_feature_dimension, numbers.kernel_spatial_dimensions[group.axis]
    dimensions = list(right.shape.dimensions)
    taps, features, padding = dimensions[spatial], dimensions[feature], group.positions - 1
    dimensions[spatial] += padding
    others = sorted((d for d in range(len(dimensions)) if d not in (feature, spatial)), key=lambda d: -right.strides[d])
    order = [*others, spatial, feature]
    item = right.item_bytes
    packed = row_major_strides(Shape(right.shape.element_type, tuple(dimensions[d] for d in order)))
    by_dimension = dict(zip(order, packed, strict=True))
    strides = tuple(by_dimension[d] * item for d in range(len(dimensions)))
    # The zeros before one row of taps are those after the row before it; the last one has its own.
    extent = prod(dimensions) + padding * features
    buffer = Buffer(f"{draft.name}.kernel", Shape(right.shape.element_type, (extent,)), permanent=True)
    # In the order of the taps, then reversed if required.
    forward = taps == 1 or phase.taps[1] > phase.taps[0]
    source = right if forward == group.backward else reversed_along(right, spatial)
    inside = View(buffer, right.shape, padding * features * item, strides)
    copy(builder, buffer.name, reordered(source, order), reordered(inside, order), draft.op_name)
    dimensions[feature] = group.positions * features
    return View(buffer, right.shape.with_dimensions(tuple(dimensions)), 0, strides)


def grouped_order(shape: Shape, numbers: ConvolutionDimensionNumbers, group: PositionGroup) -> list[int]:
    """The result's dimensions in an order in which a group's columns are contiguous."""
    spatial, feature = numbers.output_spatial_dimensions[group.axis], numbers.output_feature_dimension
    return [*(d for d in range(shape.rank) if d not in (spatial, feature)), spatial, feature]


def ungrouped(target: View, numbers: ConvolutionDimensionNumbers, group: PositionGroup | None) -> View:
    """The result in its own order, from the order in which the groups store it."""
    if group is None or not group.backward:
        return target
    return reversed_along(target, numbers.output_spatial_dimensions[group.axis])
