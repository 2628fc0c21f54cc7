"""Lowers a `reduce-window` of windows that all begin with the first element, or end with the last: a scan.

TensorFlow's cumulative sums and products are such windows. A scan combines each element once; windows would combine it
as often as there are elements.
"""

from __future__ import annotations

from math import prod

from engine.ir import Instruction, WindowDimension
from engine.ir.opcodes import neutral_element
from engine.ir.shape import INTEGERS
from engine.lower.context import Context
from engine.lower.conversions import in_type, in_type_of
from engine.ops.apply import single_operation
from engine.passes.splats import splat_value
from engine.program.building.nests import accumulated_in
from engine.program.program import Address, Buffer, Partition, Span, WorkEstimate
from engine.program.work.sorting import SCANNED_ROWS, ScanWork

OPERATIONS = ("add", "multiply", "minimum", "maximum")
TYPES = INTEGERS | {"f32", "f64"}
SMALL_ELEMENTS = 1 << 12
"""Elements below which one worker scans all rows."""
LINE_ELEMENTS = 64
"""Least columns of a unit: whole cache lines of any type."""


def scanned_dimension(instruction: Instruction) -> int | None:
    """The only dimension with a window, if that is a scan by an operation that `scan` has; else None."""
    if len(instruction.operands) != 2:
        return None
    operand, initial = instruction.operands
    window: tuple[WindowDimension, ...] = instruction["window"]
    opcode, kind = single_operation(instruction.called[0]), accumulated_in(operand.array_shape.element_type)
    if opcode not in OPERATIONS or kind not in TYPES or not operand.array_shape.elements:
        return None
    value = splat_value(initial)
    if value is None or value != neutral_element(opcode, initial.array_shape.element_type):
        return None
    wide = [d for d, w in enumerate(window) if w != WindowDimension(1)]
    if len(wide) != 1 or not _is_scan(operand.array_shape.dimensions[wide[0]], window[wide[0]]):
        return None
    return wide[0]


def _is_scan(length: int, window: WindowDimension) -> bool:
    """Whether windows grow or shrink by one element at a time, between at most one element and all elements."""
    if (window.stride, window.window_dilation, window.base_dilation) != (1, 1, 1) or window.size < max(length, 2):
        return False
    first = window.size - max(window.padding_low, window.padding_high)  # elements of the first result
    return first in (0, 1) and min(window.padding_low, window.padding_high) == 0


def lower_scan(context: Context, instruction: Instruction, dimension: int) -> Buffer:
    """Emits the compute set of a scan along a dimension. 16-bit floats are combined in f32 and rounded once."""
    operand, initial = instruction.operands
    shape, kind = instruction.array_shape, accumulated_in(instruction.array_shape.element_type)
    opcode = single_operation(instruction.called[0])
    assert opcode is not None
    result = context.result_buffer(instruction)
    converted = kind != shape.element_type
    wide = context.new_buffer(f"{instruction.name}.{kind}", shape.with_type(kind)) if converted else result
    source, start = (in_type(context, each, kind) for each in (operand, initial))
    before, width = prod(shape.dimensions[:dimension]), prod(shape.dimensions[dimension + 1 :])
    length, results = operand.array_shape.dimensions[dimension], shape.dimensions[dimension]
    columns = width if before > 1 else max(LINE_ELEMENTS, -(-width // LINE_ELEMENTS // 16) * LINE_ELEMENTS)
    work = ScanWork(
        source=Address(source),
        initial=Address(start),
        target=Address(wide),
        outer=before,
        length=length,
        results=results,
        inner=width,
        backward=instruction["window"][dimension].padding_high > 0,
        columns=columns,
        opcode=opcode,
        element_type=kind,
    )
    estimate = WorkEstimate({"reduce-window": shape.elements}, 0, kind)
    spans = [_span(b, n, before, width, columns) for b, n in ((source, length), (wide, results))]
    few = shape.elements < SMALL_ELEMENTS
    context.emit_for(instruction, work, work.unit_count, [spans[0], Span(start)], [spans[1]], estimate, one_worker=few)
    in_type_of(context, instruction, result, wide)
    return result


def _span(buffer: Buffer, length: int, before: int, width: int, columns: int) -> Span:
    """The rows of each unit, or its columns."""
    if width == 1:
        return Span(buffer, Partition(length, before, SCANNED_ROWS))
    return Span(buffer, Partition(length * width, before, 1) if before > 1 else Partition(1, width, columns))
