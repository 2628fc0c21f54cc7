"""Adds checks for floating-point exceptions to a program: within its nests, and after other codelets.

For the host only: a chip detects exceptions in its arithmetic.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.ir.op_names import layer_of
from engine.ir.opcodes import LINEAR_ALGEBRA, REDUCTIONS
from engine.ir.origin import Origin
from engine.ir.shape import FLOATS, Shape
from engine.program.exception_counters import SUMMED, ExceptionCounters, ExceptionWord, raises
from engine.program.nest import Apply
from engine.program.program import Address, Buffer, ComputeSet, ExceptionRecord, Partition, Program, Span, WorkEstimate
from engine.program.rewriter import ProgramRewriter
from engine.program.work.base import Array
from engine.program.work.convolution import Convolution
from engine.program.work.exception_check import ExceptionCheckWork
from engine.program.work.fused_loop import FusedLoop

COMPUTING = REDUCTIONS | LINEAR_ALGEBRA
"""Opcodes besides products that compute in codelets other than nests; all other opcodes move or compare."""
UNIT_ELEMENTS = 1 << 14


def check_exceptions(program: Program) -> Program:
    """Adds checks for the exceptions of `Program.exception_names`; `Program.exceptions` says where they are counted."""
    wanted = program.exception_names
    if not wanted:
        return program
    record, rewriter = _Recording(), ProgramRewriter(program)
    for at, compute_set in enumerate(program.compute_sets):
        if isinstance(compute_set.work, FusedLoop):
            rewriter.replace(at, _checked(compute_set, compute_set.work, wanted, record))
        elif _computes(compute_set) and wanted != ("div0",):
            for each in _checks(compute_set, wanted, record):
                rewriter.insert_after(at, each)
    counters = tuple((word, replace(origin, layer=layer_of(origin.op_name))) for word, origin in record.counters)
    record.buffer.value = np.zeros(max(record.words, 1), np.int64)
    record.buffer.shape = Shape("s64", (max(record.words, 1),))
    return replace(rewriter.result(), exceptions=ExceptionRecord(record.buffer, counters, tuple(record.stops)))


class _Recording:
    """The record under construction."""

    def __init__(self) -> None:
        # A constant has its own memory, at a fixed address; here the program writes to it.
        self.buffer = Buffer("floating-point exceptions", Shape("s64", (1,)), "constant", value=np.zeros(1, np.int64))
        self.words = 0
        self.counters: list[tuple[int, Origin]] = []
        self.stops: list[int] = []

    def take(self, words: int) -> int:
        """Reserves `words` more words, and returns the first."""
        at, self.words = self.words, self.words + words
        self.stops.append(at)
        return at


def _checked(compute_set: ComputeSet, loop: FusedLoop, wanted: tuple[str, ...], record: _Recording) -> ComputeSet:
    """The compute set with a nest that checks its own operations."""
    nest = loop.nest
    raising = [
        (number, node.operation.opcode)
        for number, node in enumerate(nest.nodes)
        if isinstance(node, Apply) and raises(node.operation)
    ]
    sums = [k for k, r in enumerate(nest.reductions) if r.combine in SUMMED and r.element_types[0] in FLOATS]
    if not raising and not sums:
        return compute_set
    checked = replace(nest, exceptions=wanted)
    at = record.take(ExceptionCounters.words(checked))
    origins = compute_set.origins
    for number, opcode in raising:
        origin = origins.get(number) or Origin(opcode, compute_set.op_name, 0)
        record.counters.append((at + ExceptionCounters.of_node(number), origin))
    for number in sums:
        origin = origins.get(-1 - number) or Origin(compute_set.name.partition(".")[0], compute_set.op_name, 0)
        record.counters.append((at + ExceptionCounters.of_reduction(checked, number), origin))
    return replace(compute_set, work=replace(loop, nest=checked, record=Address(record.buffer, at * 8)))


def _computes(compute_set: ComputeSet) -> bool:
    return compute_set.work_estimate.multiply_adds > 0 or bool(COMPUTING & compute_set.work_estimate.elements.keys())


def _opcode(compute_set: ComputeSet) -> str:
    if isinstance(compute_set.work, Convolution):
        return "convolution"
    return "dot" if compute_set.work_estimate.multiply_adds else next(iter(compute_set.work_estimate.elements))


def _checks(compute_set: ComputeSet, wanted: tuple[str, ...], record: _Recording) -> list[ComputeSet]:
    """Makes checks of the result with its own partition, so that each worker checks the elements it has just
    written.
    """
    results = [span for span in compute_set.writes if span.buffer.shape.element_type in FLOATS]
    if len(results) != 1 or not results[0].buffer.shape.elements:
        return []
    (result,) = results
    written = {span.buffer for span in compute_set.writes}
    operands = {span.buffer: None for span in compute_set.reads if span.buffer not in written}
    arrays = [result.buffer, *(b for b in operands if b.shape.element_type in FLOATS and b.kind != "queue")]
    elements = result.buffer.shape.elements
    partition = result.partition or Partition(1, elements, UNIT_ELEMENTS)
    at = record.take(ExceptionWord.WORDS)
    opcode = _opcode(compute_set)
    record.counters.append((at + 1, Origin(opcode, compute_set.op_name, elements)))
    first, *rest = (Array(Address(array), array.shape) for array in arrays)
    work = ExceptionCheckWork(
        Address(record.buffer, at * 8), wanted, first, tuple(rest), partition.inner, partition.extent, partition.grain
    )
    made = ComputeSet(
        f"{compute_set.name}.check",
        work,
        work.unit_count,
        [Span(result.buffer, partition), *(Span(array) for array in arrays[1:])],
        [],
        WorkEstimate({"is-finite": elements}, 0, result.buffer.shape.element_type),
        op_name=compute_set.op_name,
        one_worker=compute_set.one_worker,
    )
    return [made]
