"""Work on 16-bit floats that this processor computes in float32: operands are widened before, results rounded once.

For the host only: a chip has vertices of float16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from engine.program.builder import ProgramBuilder
from engine.program.copies import copy
from engine.program.nests import accumulated_in
from engine.program.program import Address, Buffer, ComputeSet, Program, Span
from engine.program.rewriter import with_emitted
from engine.program.views import whole
from engine.program.work.base import Array, Work
from engine.program.work.factors import CholeskyWork, SolveWork
from engine.program.work.select_and_scatter import SelectAndScatterWork
from engine.program.work.sorting import ScanWork

Wide = dict[Buffer, Buffer]
"""The float32 array that stands for each one of 16-bit floats."""
OPERANDS: dict[type[Work], tuple[str, ...]] = {
    CholeskyWork: ("source",),
    SolveWork: ("a", "b"),
    ScanWork: ("source", "initial"),
    SelectAndScatterWork: ("source", "initial"),  # which rounds its sums by itself
}
"""The fields of each kind of work whose arrays are widened."""
RESULTS: dict[type[Work], str] = {CholeskyWork: "target", SolveWork: "x", ScanWork: "target"}


def widen_halves(program: Program) -> Program:
    """Puts conversions around work on 16-bit floats whose codelets have none of their own."""
    return with_emitted(program, _emit)


def _emit(builder: ProgramBuilder, compute_set: ComputeSet) -> None:
    """Emits conversions and the work between them; nothing without arrays of 16-bit floats."""
    work, kind = compute_set.work, type(compute_set.work)
    if kind not in OPERANDS:
        return
    operands = {name: getattr(work, name) for name in OPERANDS[kind]}
    results = {name: getattr(work, name) for name in (RESULTS.get(kind),) if name is not None}
    wide, rounded = (_widened(list(each.values())) for each in (operands, results))
    if not wide:
        return
    for narrow, widened in wide.items():
        _convert(builder, widened.name, narrow, widened, compute_set.op_name)
    changed: dict[str, Any] = {name: _in(each, wide) for name, each in operands.items()}
    changed |= {name: _in(each, rounded) for name, each in results.items()}
    if rounded:
        changed["element_type"] = next(iter(rounded.values())).shape.element_type
    made = replace(work, **changed)
    used = {address.buffer for address in made.addresses}
    reads = [span for old in compute_set.reads for span in _spans(old, wide) if span.buffer in used]
    writes = [replace(span, buffer=rounded.get(span.buffer, span.buffer)) for span in compute_set.writes]
    builder.emit(replace(compute_set, work=made, reads=reads, writes=writes))
    for narrow, widened in rounded.items():
        _convert(builder, f"{compute_set.name}.rounded", widened, narrow, compute_set.op_name)


def _widened(fields: list[Address | Array]) -> Wide:
    """A new array for each of 16-bit floats."""
    buffers = {_address(each).buffer for each in fields}
    types = {buffer: accumulated_in(buffer.shape.element_type) for buffer in buffers}
    return {
        buffer: Buffer(f"{buffer.name}.{kind}", buffer.shape.with_type(kind))
        for buffer, kind in types.items()
        if kind != buffer.shape.element_type
    }


def _convert(builder: ProgramBuilder, name: str, source: Buffer, target: Buffer, op_name: str) -> None:
    copy(builder, name, whole(source, source.shape), whole(target, target.shape), op_name)


def _address(field: Address | Array) -> Address:
    return field.address if isinstance(field, Array) else field


def _in(field: Address | Array, wide: Wide) -> Address | Array:
    """A field of work, in the array that stands for its own."""
    buffer = wide.get(_address(field).buffer)
    if buffer is None:
        return field
    address = Address(buffer)
    return Array(address, field.shape.with_type(buffer.shape.element_type)) if isinstance(field, Array) else address


def _spans(span: Span, wide: Wide) -> Iterator[Span]:
    """A span of an array that is read, and of the one that stands for it."""
    if span.buffer in wide:
        yield replace(span, buffer=wide[span.buffer])
    yield span
