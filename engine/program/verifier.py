"""Checks a program's consistency: spans, addresses, control flow, results; passes over programs must preserve it."""

from __future__ import annotations

from collections.abc import Container, Iterator

from engine.errors import InternalError
from engine.program.program import Address, Buffer, ComputeSet, Program
from engine.program.uses import BufferUses

TARGETED = frozenset({"jump", "branch", "repeat"})
"""Marks that lead to a label."""


def verify(program: Program, known: Container[ComputeSet] = ()) -> None:
    """Raises InternalError for the first broken rule, with the compute set or the mark that breaks it.

    `known` are compute sets that have been verified in another program: passes make new ones and change none.
    """
    for at, compute_set in enumerate(program.compute_sets):
        for rule in () if compute_set in known else _broken(compute_set):
            raise InternalError(f"{rule}, in compute set {at} ({compute_set.name}) of {program.name}.")
    _verify_control_flow(program)
    _verify_contents(program)


def _broken(compute_set: ComputeSet) -> Iterator[str]:
    spanned = {span.buffer for span in (*compute_set.reads, *compute_set.writes)}
    for address in compute_set.work.addresses:
        buffer = address.buffer
        if buffer.kind not in ("constant", "queue") and buffer not in spanned:
            yield f"Expected a span for each address. Received: none for {buffer.name}"
        # Slices and reversals move the address of an empty array as well, which no vertex reads.
        if buffer.shape.bytes and not 0 <= address.offset <= buffer.shape.bytes:
            yield f"Expected offsets in {buffer.shape}. Received: {address.offset} bytes into {buffer.name}"
    addressed = {address.buffer for address in compute_set.work.addresses}
    for span in (*compute_set.reads, *compute_set.writes):
        # Work that waits for a queue returns its slots to the host, and touches none.
        if span.buffer not in addressed and span.buffer.kind != "queue":
            yield f"Expected an address for each span. Received: none in {span.buffer.name}"
        blocks, units = span.partition, compute_set.units
        if blocks is not None and (min(blocks.inner, blocks.grain) < 1 or blocks.grain * units < blocks.extent):
            yield f"Expected {units} units to have all of {span.buffer.name}. Received: {blocks}"
    for span in compute_set.writes:
        if span.buffer.kind in ("constant", "feed"):
            yield f"Expected results in other memory than that of a {span.buffer.kind}. Received: {span.buffer.name}"
    for footprint in compute_set.work.footprints():
        address, (low, high) = footprint.address, _moves(footprint.address)
        spans = compute_set.writes if footprint.writes else compute_set.reads
        if all(span.buffer is not address.buffer for span in spans):
            what = "write" if footprint.writes else "read"
            yield f"Expected a {what} span. Received: a {what} of {address.buffer.name} without"
        begin, end = address.offset + low + footprint.begin, address.offset + high + footprint.end
        if begin < 0 or end > address.buffer.shape.bytes:
            yield f"Expected work within {address.buffer.name} {address.buffer.shape}. Received: bytes {begin} to {end}"
    if compute_set.work.unit_count not in (None, compute_set.units):
        yield f"Expected {compute_set.work.unit_count} units. Received: {compute_set.units}"
    if compute_set.overwrites is not None and compute_set.overwrites not in {s.buffer for s in compute_set.reads}:
        yield f"Expected what is overwritten to be read. Received: {compute_set.overwrites.name}"


def _moves(address: Address) -> tuple[int, int]:
    """The smallest and the largest number of bytes by which an address moves; iterations that do not use it have -1."""
    values = [0] if address.moved is None else [value for value in address.moved.values if value >= 0]
    return min(values, default=0), max(values, default=0)


def _verify_control_flow(program: Program) -> None:
    """Checks that marks are in order, each with a label to go to, and that regions are inside the program."""
    end = len(program.compute_sets)
    positions = [mark.position for mark in program.marks]
    if positions != sorted(positions) or any(not 0 <= position <= end for position in positions):
        raise InternalError(f"Expected marks in order among {end} compute sets. Received: positions {positions}.")
    labels = [mark.label for mark in program.marks if mark.kind == "label"]
    for mark in program.marks:
        if mark.kind in TARGETED and labels.count(mark.label) != 1:
            raise InternalError(f"Expected one label {mark.label}. Received: {labels.count(mark.label)}, for {mark}.")
        if mark.kind == "branch" and (mark.predicate is None) == (mark.known is None):
            raise InternalError(f"Expected a branch by a predicate, or known by iteration. Received: {mark}.")
    for region in program.regions:
        if not 0 <= region.begin <= region.end <= end:
            raise InternalError(f"Expected a region among {end} compute sets. Received: {region}.")


def _verify_contents(program: Program) -> None:
    """Checks that no arena buffer is read before a compute set has written it."""
    uses = BufferUses(program)
    for buffer in uses.buffers:
        readers = uses.readers(buffer)
        if readers and not _is_there(buffer) and not _written_before(program, uses, buffer, readers[0]):
            name = program.compute_sets[readers[0]].name
            raise InternalError(
                f"Expected {buffer.name} to be written before compute set {readers[0]} ({name}) reads it."
            )
    for buffer in (*program.outputs, *uses.tests):
        if not _is_there(buffer) and not uses.writers(buffer):
            raise InternalError(f"Expected a compute set that writes {buffer.name}. Received: none.")


def _is_there(buffer: Buffer) -> bool:
    """Whether a buffer has contents before the step, or needs none."""
    return buffer.kind != "arena" or buffer.permanent or not buffer.shape.bytes


def _written_before(program: Program, uses: BufferUses, buffer: Buffer, reader: int) -> bool:
    """Whether a compute set writes a buffer before the reader does, or in an earlier iteration of a loop around both.

    In a chain of works that run unit by unit, one work may read the results of another.
    """
    writers = uses.writers(buffer)
    if reader in writers and program.compute_sets[reader].work.reads_itself:
        return True
    loops = [r for r in program.regions if r.repeats and r.begin <= reader < r.end]
    return any(w < reader or any(r.begin <= w < r.end for r in loops) for w in writers)
