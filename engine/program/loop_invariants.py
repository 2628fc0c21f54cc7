"""Loop-invariant compute sets, which do the same in every iteration, hoisted before their loop."""

from __future__ import annotations

from dataclasses import replace

from engine.program.program import ComputeSet, Mark, Program, Region
from engine.program.uses import BufferUses


def hoist_loop_invariants(program: Program) -> Program:
    """Hoists loops and transforms of kernels out of loops that run at least one iteration, inner ones first."""
    for number in range(len(program.regions)):
        region = program.regions[number]
        label = label_of(program.marks, region) if region.repeats and region.iterations else None
        invariant = _invariant(program, region) if label is not None else []
        if label is not None and invariant:
            program = hoisted(program, number, label, invariant)
    return program


def label_of(marks: list[Mark], region: Region) -> int | None:
    """Index in the list of marks at which a loop that counts its iterations begins."""
    ends = {mark.label for mark in marks if mark.kind == "repeat" and mark.position == region.end}
    begins = [k for k, m in enumerate(marks) if m.kind == "label" and m.label in ends and m.position == region.begin]
    return begins[0] if len(begins) == 1 else None


def _invariant(program: Program, region: Region) -> list[int]:
    """Compute sets that run in each iteration, read no result of the loop, and are the only writers of their
    results.
    """
    inside, uses = range(region.begin, region.end), BufferUses(program)
    skipped = [r for r in program.regions if region.begin <= r.begin and r.end <= region.end]
    moved: list[int] = []
    for at in inside:
        if any(r.begin <= at < r.end and (r.begin, r.end) != (region.begin, region.end) for r in skipped):
            continue
        compute_set = program.compute_sets[at]
        settled = all(w in moved for s in compute_set.reads for w in uses.writers(s.buffer) if w in inside)
        if settled and compute_set.work.is_plain and _may_precede(compute_set, at, inside, uses):
            moved.append(at)
    return moved


def _may_precede(compute_set: ComputeSet, at: int, inside: range, uses: BufferUses) -> bool:
    """Whether a compute set may run before the loop: no other set writes its results, and no reader precedes it."""
    if any(address.moved is not None for address in compute_set.work.addresses):
        return False
    for span in compute_set.writes:
        readers = [reader for reader in uses.readers(span.buffer) if reader in inside]
        if span.buffer.kind != "arena" or list(uses.writers(span.buffer)) != [at] or (readers and readers[0] <= at):
            return False
    return True


def hoisted(program: Program, number: int, label: int, invariant: list[int]) -> Program:
    """The program with compute sets of region `number` before it; its loop begins at mark number `label`."""
    begin, end = program.regions[number].begin, program.regions[number].end
    sets = program.compute_sets
    rest = [sets[at] for at in range(begin, end) if at not in set(invariant)]

    def moved(position: int) -> int:
        """The new position of a mark or region bound."""
        return position + sum(at >= position for at in invariant)

    return replace(
        program,
        compute_sets=[*sets[:begin], *(sets[at] for at in invariant), *rest, *sets[end:]],
        marks=[replace(m, position=moved(m.position)) if k >= label else m for k, m in enumerate(program.marks)],
        # A region follows those inside it, and a loop has two regions: later ones enclose the loop.
        regions=[
            replace(r, begin=moved(r.begin), end=moved(r.end))
            if k <= number + 1 and begin <= r.begin and r.end <= end
            else r
            for k, r in enumerate(program.regions)
        ],
    )
