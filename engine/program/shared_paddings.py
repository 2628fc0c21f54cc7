"""Permanent buffers that may share memory: padded arrays of the same form, used one after the other."""

from __future__ import annotations

from engine.ir.shape import Shape
from engine.program.program import Address, Buffer, ComputeSet, Program
from engine.program.uses import BufferUses

Use = tuple[int, int]
Form = tuple[object, ...]
THIS, OTHER = Buffer("this", Shape("u8")), Buffer("other", Shape("u8"))


def shared_paddings(program: Program, uses: BufferUses) -> dict[Buffer, Buffer]:
    """Maps each permanent buffer to the one whose memory it uses, perhaps itself.

    Elements that no instruction writes keep their values from step to step; all buffers that share memory leave the
    same elements unwritten and write the others before they are read. A program with loops shares none: a reader could
    run again after another owner has written.
    """
    paddings = [buffer for buffer in uses.buffers if buffer.permanent]
    if program.regions:
        return {buffer: buffer for buffer in paddings}
    lasts: dict[Form, dict[Buffer, int]] = {}
    found: dict[Buffer, Buffer] = {}
    for buffer in paddings:
        users = uses.users(buffer)
        if any(program.compute_sets[at].once for at in uses.writers(buffer)):
            found[buffer] = buffer  # never written again
            continue
        owners = lasts.setdefault(_form(program, buffer, uses), {})
        free = (owner for owner, last in owners.items() if last < users[0])
        owner = buffer if _keeps_something(buffer, uses) else next(free, buffer)
        owners[owner] = users[-1]
        found[buffer] = owner
    return found


def _keeps_something(buffer: Buffer, uses: BufferUses) -> bool:
    """Whether a step may need contents of the last step: of an output, or where not all writes precede reads."""
    reads, writes = uses.readers(buffer), uses.writers(buffer)
    return buffer in uses.outputs or not writes or (len(reads) > 0 and writes[-1] >= reads[0])


def _form(program: Program, buffer: Buffer, uses: BufferUses) -> Form:
    """A key that is equal for buffers with the same initial contents and the same written elements."""
    written = tuple(_writing(program.compute_sets[at], buffer) for at in uses.writers(buffer))
    value = None if buffer.value is None else buffer.value.tobytes()
    return buffer.shape, value, written


def _writing(writer: ComputeSet, buffer: Buffer) -> Form:
    """A writer's work and number of units, in which all buffers but this one are replaced by the same one."""
    work = writer.work.with_addresses(lambda a: Address(THIS, a.offset) if a.buffer is buffer else Address(OTHER))
    return work, writer.units
