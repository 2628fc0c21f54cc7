"""Units of a compute set followed at once by the same units of one that reads what they wrote.

The weight gradient of a dense layer goes to its optimizer so, piece by piece, without ever lying in memory as a whole.
It is a matter of the host's caches: the program that the device model accounts for has the two compute sets.
A product of a long k is left alone: what its units share, packed once for all of them, is worth more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from engine.codelets.contract_fields import Field
from engine.program.products import is_float32_product
from engine.program.program import Buffer, ComputeSet, Program, Span
from engine.program.removal import without
from engine.program.work.fused_loop import FusedLoop
from engine.program.work.producer_consumer import ProducerConsumer
from engine.program.work.words import Words

MOST_PIECE_BYTES = 1 << 17
"""What a unit may hand over, to be still in the cache when it is read."""
LEAST_BYTES = 1 << 17
"""Arrays below this stay in a near cache anyway."""
LONGEST_K = 256
"""What a product adds up, for its units to share nothing that is worth packing once."""


def hand_over_units(program: Program) -> Program:
    """The program as it is run on the host; the given one is left as it is."""
    sets = program.compute_sets
    merged: dict[int, ComputeSet] = {}
    gone: set[int] = set()
    users = _users(program)
    for at, reader in enumerate(sets):
        if not isinstance(reader.work, FusedLoop) or not any(s.buffer.kind == "variable" for s in reader.writes):
            continue
        for span in reader.reads:
            writer_at = _writer(program, users, span, at, merged, gone)
            if writer_at is not None:
                merged[at] = _merged(sets[writer_at], reader, span)
                gone.add(writer_at)
                break
    if not merged:
        return program
    running = replace(program, compute_sets=[merged.get(at, each) for at, each in enumerate(sets)])
    return without(running, sorted(gone))


def _users(program: Program) -> Counter[Buffer]:
    """In how many ways each buffer is used, counting the program's outputs and predicates."""
    users: Counter[Buffer] = Counter(program.outputs)
    users.update(mark.predicate for mark in program.marks if mark.predicate is not None)
    for compute_set in program.compute_sets:
        users.update(span.buffer for span in (*compute_set.reads, *compute_set.writes))
    return users


def _writer(
    program: Program, users: Counter[Buffer], span: Span, at: int, merged: dict[int, ComputeSet], gone: set[int]
) -> int | None:
    """The compute set whose units can be followed by those of compute set `at`, which reads `span`."""
    buffer = span.buffer
    if buffer.kind != "arena" or buffer.permanent or buffer.shape.bytes < LEAST_BYTES or not _piece_bytes(span):
        return None
    reader = program.compute_sets[at]
    for before in range(at - 1, -1, -1):
        writer = program.compute_sets[before]
        if any(written.buffer is buffer for written in writer.writes):
            if before in gone or before in merged or not _fit(writer, reader, span, users):
                return None
            return before if _may_wait(program, before, at) else None
    return None


def _fit(writer: ComputeSet, reader: ComputeSet, span: Span, users: Counter[Buffer]) -> bool:
    """Whether unit by unit the reader can follow the writer, and no unit touches what another one does."""
    if writer.units != reader.units or writer.units < 2 or writer.one_worker or reader.one_worker:
        return False
    if writer.overwrites or reader.overwrites or not _shares_nothing(writer):
        return False
    if any(written.partition != span.partition for written in writer.writes if written.buffer is span.buffer):
        return False
    written = {s.buffer for s in writer.writes}
    if len(written) != 1 or written & {s.buffer for s in reader.writes}:
        return False
    if not _goes_through_scratch(writer, reader, span.buffer, users):
        return False
    own = {(s.buffer, s.partition) for s in reader.writes}
    touched = {s.buffer for s in reader.writes}
    return all(s.partition is not None and (s.buffer, s.partition) in own for s in writer.reads if s.buffer in touched)


def _shares_nothing(writer: ComputeSet) -> bool:
    """Whether a compute set is a product whose units are as fast one by one."""
    return isinstance(writer.work, Words) and is_float32_product(writer) and writer.work.words[Field.K] <= LONGEST_K


def _goes_through_scratch(writer: ComputeSet, reader: ComputeSet, buffer: Buffer, users: Counter[Buffer]) -> bool:
    """Whether nobody else wants a buffer, which each of the two reaches by one address."""
    reached = [[a.offset for a in each.work.addresses if a.buffer is buffer] for each in (writer, reader)]
    return users[buffer] == 2 and reached == [[0], [0]]


def _piece_bytes(span: Span) -> int:
    """The bytes of each unit's piece, if the pieces lie one after the other and are small; else 0."""
    partition, shape = span.partition, span.buffer.shape
    if partition is None or partition.inner * partition.extent != shape.elements:
        return 0
    size = partition.inner * partition.grain * shape.dtype.itemsize
    return size if size <= MOST_PIECE_BYTES else 0


def _may_wait(program: Program, before: int, at: int) -> bool:
    """Whether compute set `before` may run as late as `at`."""
    if any(before < mark.position <= at for mark in program.marks):
        return False
    writer = program.compute_sets[before]
    reads, writes = {s.buffer for s in writer.reads}, {s.buffer for s in writer.writes}
    for between in program.compute_sets[before + 1 : at]:
        if any(s.buffer in reads or s.buffer in writes for s in between.writes):
            return False
        if any(s.buffer in writes for s in between.reads):
            return False
    return True


def _merged(writer: ComputeSet, reader: ComputeSet, span: Span) -> ComputeSet:
    """The two as one compute set."""
    return ComputeSet(
        f"{writer.name} {reader.name}",
        ProducerConsumer(writer.work, reader.work, span.buffer, _piece_bytes(span)),
        reader.units,
        [*writer.reads, *(s for s in reader.reads if s.buffer is not span.buffer)],
        list(reader.writes),
        replace(writer.effort, elements={**writer.effort.elements, **reader.effort.elements}),
        writer.op_name,
    )
