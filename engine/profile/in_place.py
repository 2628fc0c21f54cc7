"""States of loops that are variables: a chip keeps them where the variables lie, and copies neither there nor back."""

from __future__ import annotations

from engine.program.program import Buffer, ComputeSet, Program


def states_in_place(program: Program) -> dict[Buffer, Buffer]:
    """The arrays that are copied from a variable and at the end back into it, each with the variable."""
    copies = [pair for each in program.compute_sets if (pair := copied(each)) is not None]
    back = {source: target for source, target in copies if target.kind == "variable"}
    return {target: source for source, target in copies if back.get(target) is source and target.kind == "arena"}


def copied(compute_set: ComputeSet) -> tuple[Buffer, Buffer] | None:
    """The array whose elements a compute set copies, and the one they fill; None for a compute set that does more."""
    effort, spans = compute_set.effort, (compute_set.reads, compute_set.writes)
    if set(effort.elements) - {"copy"} or effort.multiply_adds or any(len(each) != 1 for each in spans):
        return None
    source, target = compute_set.reads[0].buffer, compute_set.writes[0].buffer
    return (source, target) if source.shape == target.shape and source is not target else None
