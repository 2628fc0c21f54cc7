"""Definitions of the HLO operations: one file for each family, all listed in registry.DEFINITIONS."""

from engine.ir.opcodes import opcodes_that, require_registered
from engine.ops import (  # noqa: F401
    binary,
    contraction,
    control,
    convolution,
    factorizations,
    indexing,
    interpolation,
    linear_algebra,
    normalization,
    queues,
    random,
    reduction,
    rounding,
    shaping,
    sorting,
    unary,
    vertices,
    windowing,
)
from engine.ops.registry import DEFINITIONS, Definition, definition

require_registered(
    DEFINITIONS, "definition", opcodes_that(lambda row: row.execution != "none" and row.name != "parameter")
)

__all__ = ["DEFINITIONS", "Definition", "definition"]
