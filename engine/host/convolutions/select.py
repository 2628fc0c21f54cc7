"""The choice of how this processor computes each convolution: every algorithm that can compute it bids cycles.

An algorithm that copies or reorders arrays has to be clearly faster than the next: a constant says by how much.

Convolutions whose operands are exchanged, where the other operand has more features to fill the lanes.

One example is the gradient by a kernel with few output features, whose window is the array of a whole batch's
gradients. Its input features become the columns, and the result is reversed along its spatial dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from engine.host.convolutions import windows, winograd, winograd_wide
from engine.host.convolutions.direct import ConvolutionArrays, channels_last, emit_contractions, put, stored
from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.few_features import emit_few_features, few_cycles
from engine.host.convolutions.grouped import emit_widened, is_widened
from engine.host.convolutions.overlapping import emit_overlapping, overlap_cycles
from engine.host.convolutions.part import part_of
from engine.host.convolutions.pixel_groups import (
    LEAST_MULTIPLY_ADDS,
    TYPES,
    PositionGroup,
    choose_group,
    contraction_cycles,
    panel_cycles,
)
from engine.host.passes.split_products import is_split
from engine.ir import ConvolutionDimensionNumbers, WindowDimension
from engine.machine_code.processor import lanes, may_use_matrix_registers
from engine.program.building.builder import ProgramBuilder
from engine.program.building.contraction import emit_contraction
from engine.program.building.copies import copy
from engine.program.building.views import View, reversed_along, whole
from engine.program.convolution_size import ConvolutionSize, Phase, has_sums
from engine.program.program import ComputeSet, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.work.convolution import Convolution

WORTH = 0.6
"""Share of the estimated cycles below which the exchange is worth a copy and a reversal."""
WORTH_OF_PRODUCTS = 0.8
"""Share of the cycles below which a convolution with one output position, the gradient by a kernel of 1 x 1, is
exchanged.
"""
LONG_SINGLE_VECTOR = 2.0
"""Factor on the time of kernels of one vector in products with a long k: both operands come from the second-level
cache (timed on an EPYC)."""


def exchanged_cycles(draft: ConvolutionDraft) -> tuple[float, float, float] | None:
    """Estimates cycles with exchanged operands and without, and returns the share at which the exchange is worth it.

    None where operands cannot be exchanged. A gradient with one output position is a product, either way.
    """
    if draft.shape.element_type not in TYPES or draft.groups != 1 or not all(map(_is_exchangeable, draft.window)):
        return None
    if not draft.right.shape.elements or draft.multiply_adds < LEAST_MULTIPLY_ADDS:
        return None
    if max(draft.outputs, default=1) == 1:
        numbers, sizes = draft.numbers, draft.shape.dimensions
        rows, columns = sizes[numbers.output_batch_dimension], sizes[numbers.output_feature_dimension]
        return product_cycles(columns, rows), product_cycles(rows, columns), WORTH_OF_PRODUCTS
    group = choose_group(draft)
    cycles = contraction_cycles(draft, group.positions if group else 1)
    overlapping = overlap_cycles(draft)
    best = cycles if overlapping is None else min(cycles, overlapping)
    return contraction_cycles(with_exchanged_operands(draft, draft.result)), best, WORTH


def product_cycles(rows: int, columns: int) -> float:
    """Estimated cycles per element of k of a product with a long k."""
    return panel_cycles(rows, columns) * (LONG_SINGLE_VECTOR if columns <= lanes() else 1.0)


def _is_exchangeable(window: WindowDimension) -> bool:
    return window.stride == window.base_dilation == 1 and not window.window_reversal


def emit_exchanged(
    builder: ProgramBuilder, draft: ConvolutionDraft, emit: Callable[[ProgramBuilder, ConvolutionDraft], None]
) -> None:
    """Emits the convolution with exchanged operands by `emit`, then the copy of the reversed result to its buffer."""
    made = with_exchanged_operands(draft, draft.result)
    buffer = builder.new_buffer(made.name, draft.shape)
    source = whole(buffer, draft.shape)
    emit(builder, replace(made, result=source))
    for dimension in draft.numbers.output_spatial_dimensions:
        source = reversed_along(source, dimension)
    copy(builder, f"{draft.name}.reversed", source, draft.result, draft.op_name)


def with_exchanged_operands(draft: ConvolutionDraft, result: View) -> ConvolutionDraft:
    """Exchanges the operands: output o and tap t read input o + t * d - low, so input u meets tap (u - o + low) / d.

    The result has the draft's elements, reversed along the spatial dimensions.
    """
    numbers, window = draft.numbers, []
    for size, output, old in zip(draft.sources, draft.outputs, draft.window, strict=True):
        low = output - 1 - old.padding_low
        reach = (old.size - 1) * old.window_dilation + 1
        high = output + size - 1 - reach - low
        window.append(WindowDimension(size, 1, low, high, base_dilation=old.window_dilation))
    new = ConvolutionDimensionNumbers(
        input_batch_dimension=numbers.kernel_output_feature_dimension,
        input_feature_dimension=numbers.kernel_input_feature_dimension,
        input_spatial_dimensions=numbers.kernel_spatial_dimensions,
        kernel_input_feature_dimension=numbers.input_feature_dimension,
        kernel_output_feature_dimension=numbers.input_batch_dimension,
        kernel_spatial_dimensions=numbers.input_spatial_dimensions,
        output_batch_dimension=numbers.output_feature_dimension,
        output_feature_dimension=numbers.output_batch_dimension,
        output_spatial_dimensions=numbers.output_spatial_dimensions,
    )
    name = f"{draft.name}.exchanged"
    left, right = draft.right, draft.left
    return replace(draft, name=name, left=left, right=right, result=result, window=tuple(window), numbers=new)


FEW_FEATURES_WORTH = 0.9
"""Share of other algorithms' cycles below which few features are worth it: none of 23 convolutions became slower."""
TRANSFORMS = (winograd, winograd_wide)
"""Families of transforms of tiles: each part of a convolution, of one combination of phases, may use another."""
OVERLAP_WORTH = 0.8
"""Share of the estimated cycles below which overlapping products are worth it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The algorithm that won, its emitter, and the bids in cycles of all that can compute the convolution."""

    way: str
    emit: Callable[[ProgramBuilder, ConvolutionDraft], None]
    bids: dict[str, float]


def select_convolutions(program: Program) -> Program:
    """The program with compute sets of this processor in place of each convolution."""
    if not any(isinstance(each.work, Convolution) for each in program.compute_sets):
        return program
    rewriter, written = ProgramRewriter(program), ProgramBuilder()
    for at, each in enumerate(program.compute_sets):
        if isinstance(each.work, Convolution):
            builder = ProgramBuilder(written.partitions, each.work.rows)
            draft = replace(draft_of(each), may_transform=program.exceptions is None)
            emit_convolution(builder, draft)
            first, *rest = builder.compute_sets
            rewriter.replace(at, first)
            rewriter.insert_after(at, *rest)
        else:
            written.note(each)
    return rewriter.result()


def draft_of(compute_set: ComputeSet) -> ConvolutionDraft:
    """The draft of a compute set that is a convolution."""
    work = compute_set.work
    assert isinstance(work, Convolution)
    return ConvolutionDraft(
        compute_set.name,
        compute_set.op_name,
        *(work.left, work.right, work.result, work.window, work.numbers, work.feature_groups, work.batch_groups),
    )


def emit_convolution(builder: ProgramBuilder, draft: ConvolutionDraft) -> None:
    """Emits the compute sets of the algorithm that is chosen for a convolution."""
    choose(draft).emit(builder, draft)


def choose(draft: ConvolutionDraft) -> Choice:
    """Chooses an algorithm among all, including those that change its operands."""
    if draft.may_transform and is_widened(draft):
        return Choice("float32", partial(emit_widened, emit=emit_convolution), {})
    exchanged = exchanged_cycles(draft)
    if exchanged is None:
        return choose_in_order(draft)
    cycles, others, worth = exchanged
    if cycles < worth * others:
        bids = {"exchanged operands": cycles, "operands in order": others}
        return Choice("exchanged operands", partial(emit_exchanged, emit=emit_convolution), bids)
    found = choose_in_order(draft)
    return Choice(found.way, found.emit, {**found.bids, "exchanged operands": cycles})


def choose_in_order(draft: ConvolutionDraft) -> Choice:
    """Chooses an algorithm among those that move windows over the first operand."""
    group, few, overlapping = choose_group(draft), few_cycles(draft), overlap_cycles(draft)
    single = contraction_cycles(draft)
    grouped = single if group is None else contraction_cycles(draft, group.positions)
    offered = {"contraction": single, "few features": few, "overlapping products": overlapping}
    bids = {way: cycles for way, cycles in offered.items() if cycles is not None}
    if group is not None:
        bids["groups of positions"] = grouped
    if few is not None and few < FEW_FEATURES_WORTH * min(grouped, overlapping or grouped):
        return Choice("few features", emit_few_features, bids)
    if overlapping is not None and overlapping < OVERLAP_WORTH * single:
        return Choice("overlapping products", _emit_overlapping, bids)
    transforms = _transform_bids(draft, group, single)
    way = min(transforms, key=lambda each: transforms[each][0], default=None)
    if way is None or not transforms[way][1]:
        way = "contraction" if group is None else "groups of positions"
    bids |= {each: cycles for each, (cycles, _) in transforms.items()}
    return Choice(way, partial(emit_contractions, group=group, transform=partial(_transformed, group=group)), bids)


def _transform_bids(
    draft: ConvolutionDraft, group: PositionGroup | None, cycles: float
) -> dict[str, tuple[float, bool]]:
    """The cycles of each transform of each part, and whether it is clearly faster than the contraction's `cycles`."""
    parts = [draft.size_of(phases) for phases in product(*draft.phases) if has_sums(phases)]
    found, kind = {}, draft.shape.element_type
    for number, size in enumerate(parts):
        share = size.multiply_adds / max(1, sum(each.multiply_adds for each in parts))
        for family in TRANSFORMS if _may_transform(draft, group, size) else ():
            for way, bid in family.bids(size, kind).items():
                name = f"{way} of part {number}" if len(parts) > 1 else way
                found[name] = bid * share * cycles, bid < family.WORTH
    return found


def _may_transform(draft: ConvolutionDraft, group: PositionGroup | None, size: ConvolutionSize) -> bool:
    """Whether tiles may compute a part: groups of positions are better, except for gradients of 3 x 3 taps."""
    return draft.may_transform and (group is None or winograd.is_gradient(size))


def _transformed(
    arrays: ConvolutionArrays, name: str, phases: tuple[Phase, ...], group: PositionGroup | None
) -> list[ComputeSet] | None:
    """The compute sets of a part by transforms of tiles; None where its contraction is faster."""
    draft, size = arrays.draft, arrays.draft.size_of(phases)
    if draft.groups > 1:
        return windows.windowed(arrays, name, phases) if draft.may_transform else None
    families = [each for each in TRANSFORMS if each.pays(size, draft.shape.element_type)]
    if not families or not _may_transform(draft, group, size) or _is_split(arrays, phases):
        return None
    for family in families:
        for left, lows in arrays.lefts:
            part = part_of(draft, name, phases, (left, arrays.kernel, arrays.target), lows)
            made = family.transformed(part)
            if made is not None:
                return None if any(is_split(None, each.work) for each in made) else made
    return None


def _is_split(arrays: ConvolutionArrays, phases: tuple[Phase, ...]) -> bool:
    """Whether matrix registers multiply the contraction of a part faster, by splits of its operands."""
    if not may_use_matrix_registers():
        return False
    builder = ProgramBuilder(rows=arrays.builder.rows)
    emit_contraction(builder, arrays.contraction(phases))
    return any(is_split(None, each.work) for each in builder.compute_sets)


def _emit_overlapping(builder: ProgramBuilder, draft: ConvolutionDraft) -> None:
    """Emits products that are added where they overlap, into an array with contiguous features."""
    target = stored(builder, draft, channels_last(draft.shape, draft.numbers), False)
    emit_overlapping(builder, draft, target)
    put(builder, draft, target)
