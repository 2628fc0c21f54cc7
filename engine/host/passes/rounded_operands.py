"""Float32 weights rounded to f16 by the products that read them, in place of narrowed copies.

A narrowed copy takes a pass over the weight in each step, when the weight has left the caches. Products that widen
operands while they pack them can also round them there, with the same bits. The pass is only for the host: a chip's
products read 16-bit floats.
"""

from __future__ import annotations

from dataclasses import replace

from engine.program.nest import Apply, Input, Operation, Store
from engine.program.program import Address, Buffer, ComputeSet, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.work.contraction import Contraction
from engine.program.work.fused_loop import FusedLoop, Strided
from engine.program.work.offsets import GROUP, Offsets

NARROWING = (Operation("convert", "f16", ("f32",)),)
MOST_ROWS = 384
"""Most rows of A: units of more rows would pack B several times, from twice the bytes."""
LEAST_ELEMENTS = 4096
"""Least elements of a weight that products round."""


def round_operands(program: Program) -> Program:
    """Replaces right operands that are narrowed copies by the float32 arrays that were copied."""
    rewriter = ProgramRewriter(program)
    for at, each in enumerate(program.compute_sets):
        found = _narrowed(each)
        if found is None:
            continue
        wide, narrow = found
        readers = _readers(rewriter, at, wide, narrow)
        for reader in readers:
            rewriter.replace(reader, _rounding(rewriter.sets[reader], wide, narrow))
        if readers:
            rewriter.remove([at])
    return rewriter.result()


def _narrowed(compute_set: ComputeSet) -> tuple[Buffer, Buffer] | None:
    """Returns the arrays of a compute set that only rounds a whole float32 array to f16, in order; None for others."""
    work = compute_set.work
    if not isinstance(work, FusedLoop) or compute_set.overwrites or work.record is not None:
        return None
    nest, operands = work.nest, work.operands
    if len(nest.nodes) != 2 or len(nest.stores) != 1 or nest.reductions or len(operands) != 2:
        return None
    loaded, rounded = nest.nodes
    if not isinstance(loaded, Input) or not isinstance(rounded, Apply) or rounded.operation not in NARROWING:
        return None
    source, target = operands[loaded.access], operands[nest.stores[0].access]
    if nest.stores[0] != Store(1, 1 - loaded.access) or not all(isinstance(each, Strided) for each in operands):
        return None
    assert isinstance(source, Strided) and isinstance(target, Strided)
    if tuple(each * 2 for each in target.strides) != source.strides or source.pitch or target.pitch:
        return None
    wide, narrow = source.address, target.address
    if wide != Address(wide.buffer) or narrow != Address(narrow.buffer):
        return None
    types = wide.buffer.shape.element_type, narrow.buffer.shape.element_type
    sizes = {work.points, wide.buffer.shape.elements, narrow.buffer.shape.elements}
    return (wide.buffer, narrow.buffer) if types == ("f32", "f16") and len(sizes) == 1 else None


def _readers(rewriter: ProgramRewriter, at: int, wide: Buffer, narrow: Buffer) -> list[int]:
    """Returns the products that read a narrowed array, if only products do, and before the wide array changes."""
    uses = rewriter.uses
    if narrow.kind != "arena" or narrow.permanent or narrow.carried or uses.escapes(narrow):
        return []
    if narrow.shape.elements < LEAST_ELEMENTS or list(uses.writers(narrow)) != [at]:
        return []
    readers = list(uses.readers(narrow))
    if not readers or readers[0] < at or not all(_rounds(rewriter.sets[each], narrow) for each in readers):
        return []
    last = readers[-1]
    changes = any(at < each <= last for each in uses.writers(wide))
    steered = any(at < mark.position <= last for mark in rewriter.program.marks)
    return [] if changes or steered else readers


def _rounds(product: ComputeSet, narrow: Buffer) -> bool:
    """Whether a compute set is a product of few rows by `narrow`, which it packs or reads by rows or columns."""
    work = product.work
    if not isinstance(work, Contraction) or product.overwrites or [a.buffer for a in work.addresses].count(narrow) != 1:
        return False
    if work.b.buffer is not narrow or work.b.moved is not None or work.operand_type != "f16":
        return False
    if work.depthwise or work.panels or len(work.row_a) > MOST_ROWS or any(s.slot is not None for s in product.reads):
        return False
    return work.stride_b == 2 or _has_runs(work)


def _has_runs(work: Contraction) -> bool:
    """Whether the elements of B along k are contiguous: packing then transposes them."""
    table = work.k_b.table
    return len(table) >= GROUP and bool((table[1:] - table[:-1] == 2).all())


def _rounding(product: ComputeSet, wide: Buffer, narrow: Buffer) -> ComputeSet:
    """Makes a product read the wide array itself."""
    work = product.work
    assert isinstance(work, Contraction)
    k_b, batch_b = (Offsets(2 * each.table) for each in (work.k_b, work.batch_b))
    b = Address(wide, 2 * work.b.offset)
    rounding = replace(work, b=b, k_b=k_b, batch_b=batch_b, stride_b=2 * work.stride_b, rounds_b=True)
    reads = [Span(wide, span.partition) if span.buffer is narrow else span for span in product.reads]
    return replace(product, work=rounding, reads=reads)
