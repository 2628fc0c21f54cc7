"""Which permanent buffers may lie in one place: borders of the same form, used one after the other."""

from __future__ import annotations

from engine.program.program import Buffer, ComputeSet, Program

Use = tuple[int, int]
Form = tuple[object, ...]


def shared_borders(program: Program) -> dict[Buffer, Buffer]:
    """For each permanent buffer the one whose place it takes, perhaps itself.

    What nobody writes stays as it is from step to step, and all that share a place leave the same elements alone and
    write the others before anybody reads them. Loops could come back to a reader after the place has changed hands.
    """
    touched: dict[Buffer, list[int]] = {}
    for at, compute_set in enumerate(program.compute_sets):
        for span in (*compute_set.reads, *compute_set.writes):
            if span.buffer.permanent:
                touched.setdefault(span.buffer, []).append(at)
    if program.regions:
        return {buffer: buffer for buffer in touched}
    lasts: dict[Form, dict[Buffer, int]] = {}
    found: dict[Buffer, Buffer] = {}
    for buffer, places in touched.items():
        owners = lasts.setdefault(_form(program, buffer, places), {})
        free = (owner for owner, last in owners.items() if last < places[0])
        owner = buffer if _keeps_something(program, buffer, places) else next(free, buffer)
        owners[owner] = places[-1]
        found[buffer] = owner
    return found


def _keeps_something(program: Program, buffer: Buffer, places: list[int]) -> bool:
    """Whether a step may need what the last one has left in it: it is an output, or not all writes precede reads."""
    sets = program.compute_sets
    reads = [at for at in places if any(span.buffer is buffer for span in sets[at].reads)]
    writes = [at for at in places if any(span.buffer is buffer for span in sets[at].writes)]
    return buffer in program.outputs or not writes or max(writes) >= min(reads, default=places[-1] + 1)


def _form(program: Program, buffer: Buffer, places: list[int]) -> Form:
    """Equal for buffers that begin alike and are written in the same elements."""
    writers = [program.compute_sets[at] for at in dict.fromkeys(places)]
    written = tuple(_writing(each, buffer) for each in writers if any(s.buffer is buffer for s in each.writes))
    value = None if buffer.value is None else buffer.value.tobytes()
    return buffer.shape, value, written


def _writing(writer: ComputeSet, buffer: Buffer) -> Form:
    """The codelet and its parameters, without the addresses."""
    parameters = writer.parameters.copy()
    parameters[[r.word for r in writer.relocations]] = 0
    places = tuple((r.word, r.offset) for r in writer.relocations if r.buffer is buffer)
    return writer.codelet, parameters.tobytes(), writer.units, places
