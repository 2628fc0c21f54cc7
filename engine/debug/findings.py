"""Errors of the debug executor's findings: they name compute set, layer, tile, buffer and element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.debug.cells import position_of, value_of
from engine.debug.culprits import Culprit
from engine.debug.span_elements import NO_TILE, SpanElements
from engine.debug.uses import Use
from engine.errors import DebugError
from engine.program.program import Buffer, ComputeSet
from engine.program.syncs import Ranges
from engine.program.work.custom_calls import VertexCallWork

OUTSIDE = "a relocation's offset, a stride, or the number of units"
Holder = Callable[[Use, int], str | None]
"""The name of the buffer that has overwritten a cell since the cell was written; None for no buffer."""


class Findings:
    """Builds the errors of one run of a compute set."""

    def __init__(self, compute_set: ComputeSet, ranges: Ranges, uses: dict[Buffer, Use], holder: Holder) -> None:
        self._set, self._ranges, self._uses, self._holder = compute_set, ranges, uses, holder

    def undeclared_write(self, use: Use, tile: int, cell: int, values: np.ndarray) -> DebugError:
        """The error of a write that no span allows."""
        shape = use.buffer.shape
        return DebugError(
            f"Expected {self._who(tile)} to write only what its spans say. "
            f"Received: {value_of(shape, values, cell)} in {position_of(shape, cell)} of {_named(use.buffer)}, "
            f"{self._whose(use.writes, use.reads, 'read', cell)}. "
            f"{self._correct('the spans in `writes`, the number of units, or a relocation')}"
        )

    def outside(self, buffer: Buffer, tile: int, byte: int) -> DebugError:
        """The error of a write out of bounds, at `byte` from the start of the buffer."""
        after = byte - buffer.shape.bytes
        where = f"{-byte} bytes before its beginning" if byte < 0 else f"{after} bytes after its end"
        return DebugError(
            f"Expected {self._who(tile)} to write inside {_named(buffer)}. Received: a write {where}. "
            f"{self._correct(OUTSIDE)}"
        )

    def scratch(self, tile: int, held: int) -> DebugError:
        """The error of a write into scratch outside the `held` bytes of the compute set."""
        return DebugError(
            f"Expected {self._who(tile)} to use {held} bytes of scratch, after the executor's own. "
            f"Received: a write elsewhere. State its needs in `scratch_bytes`."
        )

    def gap(self, tile: int, byte: int) -> DebugError:
        """The error of a write between the areas of scratch, at `byte` after the executor's own words."""
        return DebugError(
            f"Expected {self._who(tile)} to write inside the areas of its scratch. Received: a write to byte {byte}, "
            f"in the gap after an area. Enlarge the area in its ScratchLayout, or write less to it."
        )

    def parameters(self, tile: int) -> DebugError:
        """The error of a write into parameters, which all tiles share on the host."""
        return DebugError(
            f"Expected {self._who(tile)} to leave its parameters alone. Received: a write into them. "
            f"Copy to scratch what has to change, as chain does."
        )

    def two_writers(self, use: Use, cell: int, first: int, second: int) -> DebugError:
        """The error of a race: two tiles write one element."""
        shape = use.buffer.shape
        return DebugError(
            f"Expected each element to be written by one tile at most. Received: {position_of(shape, cell)} of "
            f"{_named(use.buffer)}, which tiles {first} and {second} both write in {title(self._set)}. "
            f"Give units slices of their own, or state one_worker."
        )

    def dependence(
        self, culprit: Culprit, use: Use, tile: int, cell: int, first: np.ndarray, second: np.ndarray
    ) -> DebugError:
        """The error of a result that depends on memory with undefined contents."""
        shape = use.buffer.shape
        values = f"{value_of(shape, first, cell)} with one poison and {value_of(shape, second, cell)} with another"
        return DebugError(
            f"Expected {self._who(tile)} to read only what its spans say and what has been written. "
            f"Received: {self._read(culprit, tile)}; {position_of(shape, cell)} of {_named(use.buffer)}"
            f" becomes {values}. {self._advice(culprit, tile)}"
        )

    def _read(self, culprit: Culprit, tile: int) -> str:
        """The wrong read and its reason."""
        if culprit.buffer is None:
            return "a read of scratch that it has not written itself"
        if culprit.cell is None:
            return f"a read outside {_named(culprit.buffer)}"
        use = self._uses[culprit.buffer]
        what = f"a read of {position_of(culprit.buffer.shape, culprit.cell)} of {_named(culprit.buffer)}"
        if not self._is_declared(use, tile, culprit.cell):
            return f"{what}, {self._whose(use.reads, use.writes, 'write', culprit.cell)}"
        if use.written is None or use.written[culprit.cell]:
            return f"{what}, which another tile writes at the same time (a race)"
        holder = self._holder(use, culprit.cell)
        since = f": its address in the arena holds {holder} by now" if holder is not None else " in this step"
        return f"{what}, which has not been written{since}"

    def _advice(self, culprit: Culprit, tile: int) -> str:
        if culprit.buffer is None or culprit.cell is None:
            return self._correct(OUTSIDE)
        if not self._is_declared(self._uses[culprit.buffer], tile, culprit.cell):
            return self._correct("the spans in `reads`, or a relocation")
        return "Have it written before, look at the memory plan, or let one worker do both."

    def _correct(self, what: str) -> str:
        """Advice on the mistake: in `what` of the engine, or in the declaration or an index of a user's vertex."""
        if isinstance(self._set.work, VertexCallWork):
            what = (
                "an index in the vertex, or its split: a slice has rows of its own, and all of an array that is 'whole'"
            )
        return f"Correct {what}."

    @staticmethod
    def _is_declared(use: Use, tile: int, cell: int) -> bool:
        masks = [span_element.mask(tile) for span_element in use.reads]
        return any(bool(mask) if isinstance(mask, bool) else bool(mask[cell]) for mask in masks)

    @staticmethod
    def _whose(allowed: list[SpanElements], other: list[SpanElements], only: str, cell: int) -> str:
        """Names the tile whose slice has the cell, by `allowed` spans; `other` spans allow `only` another access."""
        if not allowed:
            return f"which it may only {only}" if other else "a buffer that it does not mention in its spans"
        owners = {int(span_element.tiles[cell]) for span_element in allowed if span_element.tiles is not None} - {
            NO_TILE
        }
        return f"in the slice of tile {min(owners)}" if owners else "which is in no tile's slice"

    def _who(self, tile: int) -> str:
        lo, hi = self._ranges[tile]
        units = f"unit {lo}" if hi == lo + 1 else f"units {lo} to {hi - 1}"
        return f"{title(self._set)} on tile {tile} ({units} of {self._set.units})"


def title(compute_set: ComputeSet) -> str:
    """The name of a compute set in messages, with the operation, and so the layer, that it comes from."""
    origin = f" from {compute_set.op_name}" if compute_set.op_name else ""
    return f"compute set {compute_set.name!r}{origin}"


def _named(buffer: Buffer) -> str:
    return f"{buffer.kind} {buffer.name!r} {buffer.shape}"
