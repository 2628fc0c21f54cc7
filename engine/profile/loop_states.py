"""States of loops that stand for variables: copied from a variable before the loop, and back into it after."""

from __future__ import annotations

from collections.abc import Sequence

from engine.program.program import Buffer, ComputeSet


def states_in_place(compute_sets: Sequence[ComputeSet]) -> dict[Buffer, Buffer]:
    """The arrays that are copied from a variable and at last back into it, each with that variable."""
    copies = [pair for each in compute_sets if (pair := copied(each)) is not None]
    back = {source: target for source, target in copies if target.kind == "variable"}
    return {target: source for source, target in copies if back.get(target) is source and target.kind == "arena"}


def copied(compute_set: ComputeSet) -> tuple[Buffer, Buffer] | None:
    """Source and destination of a compute set that only copies an array; None for all others."""
    work_estimate, spans = compute_set.work_estimate, (compute_set.reads, compute_set.writes)
    if set(work_estimate.elements) - {"copy"} or work_estimate.multiply_adds or any(len(each) != 1 for each in spans):
        return None
    source, target = compute_set.reads[0].buffer, compute_set.writes[0].buffer
    return (source, target) if source.shape == target.shape and source is not target else None
