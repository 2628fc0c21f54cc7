"""Copies elided by writing new values in place: variables, the state of loops, arrays that are updated in part."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from engine.program.program import Buffer, ComputeSet, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import BufferUses, is_any_between
from engine.program.work.copy import Copy
from engine.program.work.fused_loop import FusedLoop


def elide_copies(program: Program) -> Program:
    """Drops each copy of a new value where no instruction reads the old value once the new one is begun."""
    rewriter = ProgramRewriter(program)
    last_exit = _last_exit(program)
    for at, copy in enumerate(rewriter.sets):
        if not _is_copy(copy):
            continue
        source, target = copy.reads[0].buffer, copy.writes[0].buffer
        if source is not target and _may_write(rewriter, at, source, target, last_exit):
            rewriter.remove([at])
            source, target = _fewest_uses_first(rewriter.uses, source, target)
            for user in rewriter.uses.users(source):
                moved = _moved(rewriter.sets[user], source, target)
                rewriter.replace(user, moved)
                if _is_copy(moved) and moved.reads[0].buffer is moved.writes[0].buffer:
                    rewriter.remove([user])
    return rewriter.result()


def _last_exit(program: Program) -> int:
    """The end of the last long loop, or the last mark at which the program waits for the host."""
    waits = (mark.position for mark in program.marks if mark.kind == "leave")
    return max((*waits, *(region.end for region in program.regions if region.long)), default=0)


def _fewest_uses_first(uses: BufferUses, source: Buffer, target: Buffer) -> tuple[Buffer, Buffer]:
    """The two buffers, swapped if the target has fewer uses and either may replace the other.

    In a chain of updates one buffer gathers all uses: moving them for every copy would take quadratic time.
    """
    plain = target.kind == "arena" and not target.permanent and not target.carried and not uses.escapes(target)
    if plain and not source.carried and source.shape == target.shape:
        return (source, target) if uses.count(source) <= uses.count(target) else (target, source)
    return source, target


def _is_read(uses: BufferUses, buffer: Buffer, begin: int, end: int) -> bool:
    """Whether compute sets begin <= k < end, or marks among them and before `end`, read a buffer."""
    return is_any_between(uses.readers(buffer), begin, end) or is_any_between(
        uses.tests.get(buffer, ()), begin, end + 1
    )


def _is_written(uses: BufferUses, buffer: Buffer, begin: int, end: int) -> bool:
    return is_any_between(uses.writers(buffer), begin, end)


def _may_write(rewriter: ProgramRewriter, at: int, source: Buffer, target: Buffer, last_exit: int) -> bool:
    """Whether `source` may share the memory of `target`, into which compute set `at` copies it.

    An interruption may end the step at any mark before `last_exit`.
    """
    program, uses = rewriter.program, rewriter.uses
    if source.kind != "arena" or source.permanent or source.shape.bytes != target.shape.bytes:
        return False
    if uses.escapes(source):
        return False
    begin, end = program.innermost_region(at)
    writers, users = uses.writers(source), uses.users(source)
    if not writers or users[0] < begin or users[-1] >= end:
        return False
    first = writers[0]
    if target.kind == "variable" and first < last_exit:
        return False  # an interruption may leave the loop, as if the step had not begun
    if first >= at:
        return False
    used = _is_read(uses, target, begin, at) or _is_written(uses, target, begin, at)
    if used and any(r.repeats and r.begin <= first < r.end <= at for r in program.regions):
        return False
    # No reader may miss the old value, and the new one must not be overwritten.
    if _is_missed(rewriter, at, source, target) or _is_written(uses, target, begin, at):
        return False
    if users[-1] > at and _is_written(uses, target, at + 1, end):
        return False
    writer = rewriter.sets[first]
    return not any(r.buffer is target for r in writer.reads) or _reads_where_it_writes(writer, source, target)


def _is_missed(rewriter: ProgramRewriter, at: int, source: Buffer, target: Buffer) -> bool:
    """Whether a compute set before `at` reads the old value of `target` when the new one may have been begun.

    A branch that keeps the old value copies it; elision turns this into a copy of the target onto itself.
    """
    sets, uses = rewriter.sets, rewriter.uses
    writers = uses.writers(source)
    if is_any_between(uses.tests.get(target, ()), writers[0] + 1, at + 1):
        return True
    readers = uses.readers(target)
    readers = readers[bisect_right(readers, writers[0]) : bisect_left(readers, at)]
    if not readers:
        return False
    makers = [w for w in writers if not (_is_copy(sets[w]) and sets[w].reads[0].buffer is target)]
    for reader in readers:
        if any(w < reader and not _exclude(rewriter.program, w, reader) for w in makers):
            return True
        if reader in makers and not _reads_where_it_writes(sets[reader], source, target):
            return True
    return False


def _exclude(program: Program, one: int, later: int) -> bool:
    """Whether two compute sets are in the two branches of a conditional: a jump leads from the first past the other."""
    labels = {mark.label: mark.position for mark in program.marks if mark.kind == "label"}
    jumps = {(m.position, labels[m.label]) for m in program.marks if m.kind == "jump" and not m.when}
    regions = [r for r in program.regions if not r.repeats]
    ends = {r.end for r in regions if r.begin <= one < r.end <= later}
    others = {(r.begin, r.end) for r in regions if r.begin <= later < r.end}
    return any(begin in ends and (begin, end) in jumps for begin, end in others)


def _reads_where_it_writes(writer: ComputeSet, source: Buffer, target: Buffer) -> bool:
    """Whether a nest reads the old value of exactly the element it writes, or a codelet may write in place."""
    loop = writer.work
    if writer.overwrites is target:
        return sum(span.buffer is target for span in writer.reads) == 1
    if not isinstance(loop, FusedLoop) or loop.nest.reductions:
        return False
    written, read = loop.operands_at(source), loop.operands_at(target)
    if len(written) != 1 or any(each.address.offset for each in (*written, *read)):
        return False
    return all(each.strides == written[0].strides for each in read)


def _is_copy(compute_set: ComputeSet) -> bool:
    """Whether a compute set copies a whole array."""
    return isinstance(compute_set.work, Copy) and compute_set.work.elidable


def _moved(compute_set: ComputeSet, source: Buffer, target: Buffer) -> ComputeSet:
    """The compute set with `target` instead of `source`."""
    return compute_set.with_buffers(lambda buffer: target if buffer is source else buffer)
