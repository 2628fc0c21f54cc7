"""Scopes of the sums of gradients that TensorFlow adds outside of all layers."""

from __future__ import annotations

from dataclasses import replace

from engine.ir.op_names import BACKWARD, WHOLE, in_scope_of
from engine.program.program import Buffer, Program

OF_GRADIENTS = (BACKWARD, f"{WHOLE}/{BACKWARD}")
"""Outermost scopes of gradients."""
SUMS = ("AddN", "UnsortedSegmentSum")
"""Operations that sum several gradients, of an array or of the rows of a table."""


def name_scopes_of_sums(program: Program) -> Program:
    """Names each sum of gradients in the scope of the latest gradient that it reads, or else of the first reader.

    The gradients that a part of a pipeline gets from another part have no scope there.
    """
    read: dict[Buffer, str] = {}
    for compute_set in reversed(program.compute_sets):
        if compute_set.op_name.startswith(OF_GRADIENTS):
            read |= {span.buffer: compute_set.op_name for span in compute_set.reads}
    written: dict[Buffer, tuple[int, str]] = {}
    compute_sets = []
    for at, compute_set in enumerate(program.compute_sets):
        if compute_set.op_name.startswith(SUMS):
            _, latest = max((written[s.buffer] for s in compute_set.reads if s.buffer in written), default=(0, ""))
            scope = latest or next((read[s.buffer] for s in compute_set.writes if s.buffer in read), "")
            if scope:
                compute_set = replace(compute_set, op_name=in_scope_of(compute_set.op_name, scope))
        if compute_set.op_name.startswith(OF_GRADIENTS):
            written |= {span.buffer: (at, compute_set.op_name) for span in compute_set.writes}
        compute_sets.append(compute_set)
    return replace(program, compute_sets=compute_sets)
