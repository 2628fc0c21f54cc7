"""Attributes of loops over micro-batches, for the passes and the lowering."""

from __future__ import annotations

from typing import Any

from engine.ir import Module
from engine.ir.attributes import ROWS_OF_AN_ITERATION
from engine.ir.work import most_rows
from engine.passes.loops.distribute import KEEPS_ITS_WORK


def attributes_of_loop(step: Module) -> dict[str, Any]:
    """The attributes of a loop over the micro-batches of a step, cut into parts or not."""
    rows = most_rows(step.entry.instructions)
    return {KEEPS_ITS_WORK: True} | ({} if rows is None else {ROWS_OF_AN_ITERATION: rows})
