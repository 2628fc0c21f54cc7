"""Gathers of rows by one row number each, found so that other compute sets can read the rows in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.codelets.rows.gather import Gather, gather_parts
from engine.codelets.rows.gather_rows import gathers_rows
from engine.codelets.rows.index_walk import Dimension, IndexComponent
from engine.codelets.rows.scatter_rows import GatheredRows
from engine.program.program import Buffer
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import is_any_between
from engine.program.work.indexing import GatherWork


class Gathered(NamedTuple):
    """A gather of contiguous rows: the number of its compute set, and its parameters."""

    at: int
    gather: Gather
    batch: Dimension
    component: IndexComponent

    @property
    def buffers(self) -> tuple[Buffer, Buffer]:
        """The array of rows and the array of row numbers."""
        return self.gather.operand.buffer, self.gather.indices.buffer

    @property
    def rows(self) -> GatheredRows:
        """The layout of the rows and of their numbers."""
        return GatheredRows(
            rows=self.gather.operand,
            ids=self.gather.indices,
            id_bytes=self.gather.index_bytes,
            id_step=self.batch.index,
            pitch=self.component.operand_stride,
            last=self.component.largest_start,
        )

    def is_packed(self, rows: int, row_bytes: int) -> bool:
        """Whether the gather makes a contiguous array of `rows` rows of `row_bytes` bytes."""
        made = self.batch.size, self.batch.other, self.gather.run_bytes
        return made == (rows, row_bytes, row_bytes)


def gathered(rewriter: ProgramRewriter, buffer: Buffer, before: int) -> Gathered | None:
    """The gather by one index component that fills a buffer before a compute set; None if something else does."""
    at = writer(rewriter, buffer, before)
    work = None if at is None else rewriter.sets[at].work
    if at is None or not isinstance(work, GatherWork) or not gathers_rows(parts := gather_parts(work)):
        return None
    header, (batch,), (component, *others), _ = parts
    if others or component.index_offset:
        return None
    if header.target.offset or header.target.moved is not None:
        return None
    return Gathered(at, header, batch, component)


def writer(rewriter: ProgramRewriter, buffer: Buffer, before: int) -> int | None:
    """The only compute set that writes an arena buffer, if that runs before another in the same iterations."""
    uses, program = rewriter.uses, rewriter.program
    writers = uses.writers(buffer)
    if len(writers) != 1 or writers[0] >= before or buffer.kind != "arena" or buffer.permanent or uses.escapes(buffer):
        return None
    (at,) = writers
    apart = any((r.begin <= at < r.end) != (r.begin <= before < r.end) for r in program.regions)
    return None if apart or any(at < mark.position <= before for mark in program.marks) else at


def are_kept(rewriter: ProgramRewriter, buffers: Iterable[Buffer], begin: int, end: int) -> bool:
    """Whether no compute set from `begin` to `end`, both included, writes the buffers."""
    return not any(is_any_between(rewriter.uses.writers(each), begin, end + 1) for each in buffers)


def remove_unused(rewriter: ProgramRewriter, numbers: Iterable[int]) -> None:
    """Removes compute sets with one result that nothing else uses any more."""
    for number in dict.fromkeys(numbers):
        written = rewriter.sets[number].writes
        if len(written) == 1 and rewriter.uses.users(written[0].buffer) == [number]:
            rewriter.remove([number])
