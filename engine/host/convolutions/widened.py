"""Convolutions of 16-bit floats by float32 copies of their operands, with a result that is rounded once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.codelets.language.lanes import HALF_TYPES
from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.few_features import few_cycles
from engine.machine_code.processor import lanes, multiplies_bf16_pairs
from engine.program.builder import ProgramBuilder
from engine.program.copies import copy
from engine.program.views import View, stored_in

COPY_CYCLES = 2.0
"""Cycles for a vector that is widened or rounded."""
WORTH = 0.85
"""Share of another way's estimate below which copies are worth it."""


def emit_widened(
    builder: ProgramBuilder, draft: ConvolutionDraft, emit: Callable[[ProgramBuilder, ConvolutionDraft], None]
) -> None:
    """Emits the convolution of float32 copies by `emit`, then the result's rounding."""
    wide = _widened(draft)
    for source, target in ((draft.left, wide.left), (draft.right, wide.right)):
        copy(builder, target.buffer.name, source, target, draft.op_name)
    emit(builder, wide)
    copy(builder, f"{draft.name}.rounded", wide.result, draft.result, draft.op_name)


def widened_few_cycles(draft: ConvolutionDraft) -> float | None:
    """Estimated cycles of 16-bit floats as float32 with few output features; None for convolutions of other kinds.

    They count as more by `WORTH`, and twice where the contraction would multiply pairs.
    """
    kind = draft.shape.element_type
    cycles = few_cycles(_widened(draft)) if kind in HALF_TYPES and draft.may_transform else None
    if cycles is None:
        return None
    copied = draft.left.shape.elements + draft.right.shape.elements + draft.shape.elements
    pairs = kind == "bf16" and multiplies_bf16_pairs()
    return (cycles + COPY_CYCLES * copied / lanes()) * (2 if pairs else 1) / WORTH


def _widened(draft: ConvolutionDraft) -> ConvolutionDraft:
    """The draft with new arrays of float32, which have each view's order of dimensions in memory."""
    left, right, result = (
        _wide(f"{draft.name}.{name}", view)
        for name, view in (("images", draft.left), ("kernel", draft.right), ("wide", draft.result))
    )
    return replace(draft, name=result.buffer.name, left=left, right=right, result=result)


def _wide(name: str, view: View) -> View:
    shape = view.shape.with_type("f32")
    order = sorted(range(shape.rank), key=lambda d: -abs(view.strides[d]))
    return stored_in(name, shape, order)
