"""Whether files may bring machine code of users' vertices: only within `trusting_vertices`.

All else in a file is checked until it can do no harm; a vertex is LLVM code, of which nothing can be said beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from engine.ir import Instruction
from engine.ir.shape_rules import require
from engine.ir.vertices import VertexCall, arrays_of

_trusted: ContextVar[bool] = ContextVar("files with vertices are trusted", default=False)


@contextmanager
def trusting_vertices() -> Iterator[None]:
    """Allows files with vertices of users' own to be read, while the context is open: their code runs as if it were
    yours.
    """
    token = _trusted.set(True)
    try:
        yield
    finally:
        _trusted.reset(token)


def check_vertex(instruction: Instruction) -> None:
    """Raises InternalError for a vertex in a file that is not trusted, and for one that does not fit its arrays."""
    vertex, shapes = VertexCall.of(instruction), arrays_of(instruction)
    require(
        _trusted.get(),
        f"Expected data alone. Received: code, of vertex {vertex.name!r:.80}. If you trust the origin of the file as "
        f"you trust a program, load it within engine.trusting_vertices(), or serve it with --trust-vertices.",
    )
    fits = len(vertex.splits) == len(shapes) and "split" in vertex.splits and vertex.grain > 0
    require(fits, f"Expected a split of each of {len(shapes)} arrays. Received: {vertex.splits}, {vertex.grain} rows.")
    rows, units = vertex.rows(shapes), vertex.units(shapes)
    lead = next(s.dimensions[: vertex.lead] for s, k in zip(shapes, vertex.splits, strict=True) if k == "split")
    for shape, split in zip(shapes, vertex.splits, strict=True):
        begin = {"split": lead, "reduction": (units,), "whole": ()}.get(split)
        require(
            begin is not None and shape.dimensions[: len(begin)] == begin,
            f"Expected arrays of {rows} rows for {units} vertices. Received: {shape}, split {split!r:.80}.",
        )
