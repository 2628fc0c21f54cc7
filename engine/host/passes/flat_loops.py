"""A pass that makes one long loop of nests of short rows: a loop costs as much as a few vectors, its rest as one.

Rows that are contiguous with one another become one loop. If all rows read one row of an array, such as a bias, or are
reduced to one row, such as a bias' gradient, the length of that row is the nest's period: vectors repeat after a few.
For the host only: units keep their rows.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from engine.codelets.language.lanes import ITEM_BYTES, SIDE_BY_SIDE, is_complex
from engine.host.unit_chain import with_works
from engine.machine_code.processor import lanes
from engine.program.nest import Reduction
from engine.program.program import Program
from engine.program.work.base import Work
from engine.program.work.fused_loop import Count, FusedLoop, Strided

MOST_VECTORS = 8
"""Most vectors of all repeated rows: they stay in registers."""
MOST_NODES = 128
"""Most nodes of the vectors of one period, which are emitted again until there are four or eight vectors."""
FEWEST_ROWS = 16
"""Rows of a unit from which on composing repeated vectors pays."""
FEWEST_REDUCED_ROWS = 64
"""Rows of a unit from which on folding accumulators of several rows pays."""
REDUCED_TYPES = {"f32", "f64", "s32", "u32", "s64", "u64"}
"""Types of accumulators."""


def flatten_loops(program: Program) -> Program:
    """Merges loops over contiguous rows, also inside chains; results are the same, but sums have another order."""
    return with_works(program, _flat_work)


def _flat_work(work: Work) -> Work:
    if type(work) is not FusedLoop:
        return work
    if any(work.nest.reduced):
        return _with_reduced_rows(work)
    for loop in range(len(work.extents) - 1, 0, -1):
        if loop != work.nest.partition and _is_one_line(work, loop):
            work = _merged(work, loop)
    return _repeated(work)


def _is_one_line(work: FusedLoop, loop: int) -> bool:
    """Whether one step of the loop before equals all steps of this loop in every array."""
    extent = work.extents[loop]
    return extent > 1 and all(o.strides[loop - 1] == o.strides[loop] * extent for o in work.operands)


def _merged(work: FusedLoop, loop: int) -> FusedLoop:
    """Merges a loop with the one before it."""
    extent, partition = work.extents[loop], work.nest.partition
    nest = replace(work.nest, reduced=work.nest.reduced[1:], partition=partition - (partition > loop))
    return replace(
        work,
        nest=nest,
        extents=(*work.extents[: loop - 1], work.extents[loop - 1] * extent, *work.extents[loop + 1 :]),
        grain=work.grain * extent if partition == loop - 1 else work.grain,
        operands=tuple(_without(operand, loop - 1) for operand in work.operands),
    )


def _without(operand: Strided | Count, loop: int) -> Strided | Count:
    return replace(operand, strides=(*operand.strides[:loop], *operand.strides[loop + 1 :]))


def _repeated(work: FusedLoop) -> FusedLoop:
    """Gives a nest a period if rows are contiguous in all arrays but those that each row reads again."""
    nest = work.nest
    if nest.rank != 2 or nest.partition or min(work.grain, work.extents[0]) < FEWEST_ROWS:
        return work
    kinds = [_kind(work, number) for number in range(len(nest.accesses))]
    return _periodic(work, kinds) if "periodic" in kinds else work


def _with_reduced_rows(work: FusedLoop) -> FusedLoop:
    """Gives a nest a period if few columns of many such rows are reduced."""
    nest, reductions = work.nest, work.nest.reductions
    if nest.reduced != (True, False) or not all(map(_is_in_lanes, reductions)):
        return work
    rows, columns = work.extents
    if nest.partition == 0:
        rows = min(rows, work.grain)
    elif work.grain < columns:
        return work
    if rows < FEWEST_REDUCED_ROWS or columns >= SIDE_BY_SIDE * lanes():
        return work
    sums = [access for each in reductions for access in each.accesses]
    kinds = [each.inner if at in sums else _kind(work, at) for at, each in enumerate(nest.accesses)]
    return _periodic(work, kinds, len(sums))


def _is_in_lanes(reduction: Reduction) -> bool:
    """Whether each lane may combine a part of the values."""
    return isinstance(reduction.combine, str) and set(reduction.element_types) <= REDUCED_TYPES


def _periodic(work: FusedLoop, kinds: list[str | None], sums: int = 0) -> FusedLoop:
    """The nest with a period if its arrays are of suitable kinds, and repeated rows and `sums` stay in registers."""
    nest, columns = work.nest, work.extents[1]
    vectors = columns // gcd(columns, lanes())
    few = (kinds.count("periodic") + sums) * vectors <= MOST_VECTORS and len(nest.nodes) * vectors <= MOST_NODES
    if None in kinds or columns < 2 or not few:
        return work
    accesses = tuple(replace(each, inner=str(kind)) for each, kind in zip(nest.accesses, kinds, strict=True))
    return replace(work, nest=replace(nest, accesses=accesses, period=columns))


def _kind(work: FusedLoop, number: int) -> str | None:
    """Access of an array along the rows: "contiguous", "periodic" (each row reads the same one), "splat" or None."""
    access, operand, columns = work.nest.accesses[number], work.operands[number], work.extents[1]
    item = ITEM_BYTES[access.element_type]
    if isinstance(operand, Count) or is_complex(access.element_type) or operand.pitch:
        return None
    if operand.strides == (columns * item, item):
        return "contiguous"
    if number in work.written:
        return None
    repeated: dict[tuple[int, ...], str] = {(0, item): "periodic", (0, 0): "splat"}
    return repeated.get(operand.strides)
