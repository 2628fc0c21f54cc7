"""The choice of how this processor computes each convolution: every algorithm that can compute it bids cycles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf
from typing import NamedTuple

from engine.frozen import frozen
from engine.host.convolutions import windows, winograd
from engine.host.convolutions.direct import ConvolutionArrays, emit_contractions
from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.exchanged import emit_exchanged, exchanged_cycles
from engine.host.convolutions.few_features import emit_few_features, few_cycles
from engine.host.convolutions.grouped import is_widened
from engine.host.convolutions.overlapping import emit_overlapping, overlap_cycles
from engine.host.convolutions.part import part_of
from engine.host.convolutions.pixel_groups import choose_group, contraction_cycles
from engine.host.convolutions.widened import emit_widened, widened_few_cycles
from engine.host.passes.split_products import is_split
from engine.machine_code.processor import may_use_matrix_registers
from engine.program.builder import ProgramBuilder
from engine.program.contraction import emit_contraction
from engine.program.convolution_size import Phase, has_sums
from engine.program.program import ComputeSet, Program
from engine.program.rewriter import with_emitted
from engine.program.work.convolution import Convolution

TRANSFORMS = (winograd,)
"""Families of transforms of tiles: each part of a convolution, of one combination of phases, may use another."""
Emit = Callable[[ProgramBuilder, ConvolutionDraft], None]


class Bid(NamedTuple):
    """The estimated cycles of an algorithm, and its emitter."""

    cycles: float
    emit: Emit


@frozen
class Choice:
    """The algorithm that won, its emitter, and the bids in cycles of all that can compute the convolution."""

    way: str
    emit: Emit
    bids: dict[str, float]


def select_convolutions(program: Program) -> Program:
    """The program with compute sets of this processor in place of each convolution."""

    def emit(builder: ProgramBuilder, compute_set: ComputeSet) -> None:
        if isinstance(compute_set.work, Convolution):
            builder.rows = compute_set.work.rows
            draft = replace(draft_of(compute_set), may_transform=not program.exception_names)
            emit_convolution(builder, draft)

    return with_emitted(program, emit)


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
    """Chooses the algorithm with the least bid."""
    if draft.may_transform and is_widened(draft):
        return Choice("float32", partial(emit_widened, emit=emit_convolution), {})
    bids = _bids(draft)
    way = min(bids, key=lambda each: bids[each].cycles)
    return Choice(way, bids[way].emit, {each: bid.cycles for each, bid in bids.items()})


def _bids(draft: ConvolutionDraft) -> dict[str, Bid]:
    """The bids of all algorithms that can compute a convolution."""
    group, cycles = choose_group(draft), contraction_cycles(draft)
    plain = partial(emit_contractions, transform=_windowed if draft.groups > 1 else None)
    bids = {"contraction": Bid(cycles, plain)}
    if group is not None:
        grouped = contraction_cycles(draft, group.positions)
        bids["groups of positions"] = Bid(grouped, partial(emit_contractions, group=group))
    others: dict[str, tuple[float | None, Emit]] = {
        "few features": (few_cycles(draft), emit_few_features),
        "few features in float32": (widened_few_cycles(draft), partial(emit_widened, emit=emit_few_features)),
        "overlapping products": (overlap_cycles(draft), emit_overlapping),
        "exchanged operands": (exchanged_cycles(draft), partial(emit_exchanged, emit=emit_convolution)),
    }
    bids |= {way: Bid(found, emit) for way, (found, emit) in others.items() if found is not None}
    return bids | (_transform_bids(draft, cycles) if draft.may_transform else {})


def _transform_bids(draft: ConvolutionDraft, cycles: float) -> dict[str, Bid]:
    """The bids of each transform, or of the best ones of all parts together; `cycles` are the contraction's.

    They count as more by the share of the contraction's time below which they are worth it.
    """
    arrays, emit = ConvolutionArrays(ProgramBuilder(), draft), partial(emit_contractions, transform=_transformed)
    parts = [(phases, draft.size_of(phases)) for phases in product(*draft.phases) if has_sums(phases)]
    multiply_adds, total, kind = sum(size.multiply_adds for _, size in parts), 0.0, draft.shape.element_type
    for phases, size in parts:
        families = [(family.WORTH, family.bids(size, kind)) for family in TRANSFORMS]
        shares = {way: share / worth for worth, bids in families for way, share in bids.items()}
        if min(shares.values(), default=1.0) < 1.0 and _transformed(arrays, draft.name, phases) is None:
            shares = {way: share for way, share in shares.items() if share >= 1.0}
        if len(parts) == 1:
            return {way: Bid(share * cycles, emit) for way, share in shares.items()}
        total += min([1.0, *shares.values()]) * cycles * size.multiply_adds / max(1, multiply_adds)
    return {"transforms": Bid(total, emit)} if total < cycles else {}


def _windowed(arrays: ConvolutionArrays, name: str, phases: tuple[Phase, ...]) -> list[ComputeSet] | None:
    """The compute sets of a part of groups by windows of images; None where its contraction is faster."""
    return windows.windowed(arrays, name, phases) if arrays.draft.may_transform else None


def _transformed(arrays: ConvolutionArrays, name: str, phases: tuple[Phase, ...]) -> list[ComputeSet] | None:
    """The compute sets of a part by transforms of tiles; None where its contraction is faster."""
    draft, size = arrays.draft, arrays.draft.size_of(phases)
    kind = draft.shape.element_type
    families = [each for each in TRANSFORMS if min(each.bids(size, kind).values(), default=inf) < each.WORTH]
    if not families or _is_split(arrays, phases):
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
