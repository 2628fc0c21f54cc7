"""Weights by whose transpose a loop multiplies: they are transposed once before the loop, not in each iteration.

For the host only: a chip's products read the weights themselves, in whatever order its plan arranges them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from engine.ir.shape import Shape
from engine.program.builder import ProgramBuilder
from engine.program.contraction import ContractionDraft, emit_contraction
from engine.program.copies import copy
from engine.program.loop_invariants import hoisted, label_of
from engine.program.product_units import grid
from engine.program.program import Address, Buffer, ComputeSet, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import BufferUses, is_any_between
from engine.program.views import View, whole
from engine.program.work.contraction import Contraction, Grid
from engine.program.work.offsets import Offsets, steps_of


def transpose_weights(program: Program) -> Program:
    """Lets products in loops that never change their right operand read a transposed copy of it.

    The loop is the outermost one of those that count their iterations.
    """
    uses, rewriter = BufferUses(program), ProgramRewriter(program)
    loops: dict[int, dict[Hashable, Buffer]] = {}
    copies: dict[ComputeSet, int] = {}
    for at, each in enumerate(program.compute_sets):
        work = each.work
        if not isinstance(work, Contraction) or not _is_summed_innermost(work):
            continue
        number = _loop_around(program, uses, at, work.b.buffer)
        if number is None:
            continue
        made, builder = loops.setdefault(number, {}), ProgramBuilder()
        key = work.b, work.k_b, work.columns, work.stride_b
        if key not in made:
            made[key] = _transposed(builder, each, work)
        first, *rest = _reading(each, work, made[key])
        rewriter.replace(at, first)
        rewriter.insert_after(at, *rest, *builder.compute_sets)
        copies |= dict.fromkeys(builder.compute_sets, number)
    return _before_loops(rewriter.result(), copies)


def _before_loops(program: Program, copies: dict[ComputeSet, int]) -> Program:
    """The program with each copy before the loop of the region that is given for it, rather than inside."""
    for number in sorted(set(copies.values())):
        label = label_of(program.marks, program.regions[number])
        assert label is not None
        moved = [at for at, each in enumerate(program.compute_sets) if copies.get(each) == number]
        program = hoisted(program, number, label, moved)
    return program


def _is_summed_innermost(work: Contraction) -> bool:
    """Whether neighbours in the right operand's memory are summed over, rather than columns of the result."""
    steps, even = steps_of(work.k_b.table)
    if work.depthwise or len(work.batch_b) != 1 or work.b.moved is not None or work.columns == 1:
        return False
    return even and bool(len(steps)) and int(steps[0]) == work.item_bytes and work.stride_b != work.item_bytes


def _loop_around(program: Program, uses: BufferUses, at: int, buffer: Buffer) -> int | None:
    """The outermost loop around a compute set that repeats a known number of times, and never writes a buffer."""
    for number, region in sorted(enumerate(program.regions), key=lambda each: each[1].begin - each[1].end):
        if region.repeats and (region.iterations or 0) > 1 and region.begin <= at < region.end:
            written = is_any_between(uses.writers(buffer), region.begin, region.end)
            if not written and label_of(program.marks, region) is not None:
                return number
    return None


def _transposed(builder: ProgramBuilder, compute_set: ComputeSet, work: Contraction) -> Buffer:
    """Emits the copy [terms, columns] of a right operand, and returns it."""
    shape = Shape(work.operand_type, (len(work.k_b), work.columns))
    made, first = Buffer(f"{work.b.buffer.name}.transposed", shape), int(work.k_b.table[0] + work.batch_b.table[0])
    source = View(work.b.buffer, shape, work.b.offset + first, (work.item_bytes, work.stride_b))
    copy(builder, made.name, source, whole(made, shape), compute_set.op_name)
    return made


def _reading(compute_set: ComputeSet, work: Contraction, buffer: Buffer) -> list[ComputeSet]:
    """The compute sets of a product that reads a transposed copy, cut as if the program had stored it so."""
    item = work.item_bytes
    pitches = Offsets(np.arange(len(work.k_b)) * work.columns * item)
    changed = replace(work, b=Address(buffer), k_b=pitches, batch_b=Offsets(np.zeros(1, np.int64)), stride_b=item)
    if work.splits > 1 or work.grid != grid(ContractionDraft(compute_set.name, work).size):
        # Its parts add up, or are blocks of the loop's rows, wherever the operand is.
        reads = [compute_set.reads[0], replace(compute_set.reads[1], buffer=buffer, partition=None)]
        return [replace(compute_set, work=changed, reads=reads)]
    builder = ProgramBuilder()
    whole_grid = Grid(max(len(work.row_a), 1), work.columns, len(work.k_b))
    draft = ContractionDraft(compute_set.name, replace(changed, grid=whole_grid), compute_set.op_name)
    emit_contraction(builder, draft)
    return builder.compute_sets
