"""Lowers `reduce-window`: loops over positions and taps of a window, as one generated codelet.

Lowers a `reduce-window` of windows that all begin with the first element, or end with the last: a scan.

TensorFlow's cumulative sums and products are such windows. A scan combines each element once; windows would combine it
as often as there are elements.
"""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from dataclasses import replace
from math import prod

import numpy as np

from engine.ir import Instruction, WindowDimension
from engine.ir.opcodes import ASSOCIATIVE, neutral_element
from engine.ir.shape import INTEGERS
from engine.ir.strides import byte_strides
from engine.lower.context import Context, Value, lowering
from engine.ops.apply import single_operation
from engine.passes.splats import splat_value
from engine.program.copies import copy, fill, part
from engine.program.loops import run_draft
from engine.program.nest import Input, Reduction
from engine.program.nests import Draft, Reached, accumulated_in, body_of
from engine.program.program import Address, Buffer, Partition, Span, WorkEstimate
from engine.program.views import View, whole
from engine.program.work.fused_loop import FusedLoop, WindowLoop
from engine.program.work.sorting import SCANNED_ROWS, ScanWork


@lowering("reduce-window")
def lower_reduce_window(context: Context, instruction: Instruction) -> Value:
    """Combines windows of any number of arrays by any body; positions outside have the initial value, as padding."""
    scanned = scanned_dimension(instruction)
    if scanned is not None:
        return lower_scan(context, instruction, scanned)
    count = len(instruction.operands) // 2
    window: tuple[WindowDimension, ...] = instruction["window"]
    shape = instruction.tuple_shapes[0]
    arrays = [
        _padded(context, instruction, instruction.operands[k], instruction.operands[count + k], k) for k in range(count)
    ]
    initial = [context.buffer(o) for o in instruction.operands[count:]]
    single = count == 1
    results = [context.result_buffer(instruction, None if single else k) for k in range(count)]
    if shape.elements == 0:
        return results[0] if single else tuple(results)
    taps = [d for d, w in enumerate(window) if w.size > 1]
    last = shape.rank - 1
    loops = [("out", d) for d in range(last)] + [("tap", d) for d in taps] + [("out", last)]
    extents = tuple(shape.dimensions[d] if kind == "out" else window[d].size for kind, d in loops)
    reduced = tuple(kind == "tap" for kind, _ in loops)
    reached = [_read(k, view, window, loops) for k, view in enumerate(arrays)]
    reached += [Reached(v.shape.element_type, count + k, 0, (0,) * len(loops)) for k, v in enumerate(arrays)]
    reached += [_write(k, result, loops) for k, result in enumerate(results)]
    opcode = single_operation(instruction.called[0])
    combine = opcode if single and opcode in ASSOCIATIVE else body_of(instruction.called[0])
    numbers = [tuple(range(k * count, (k + 1) * count)) for k in range(3)]
    types = tuple(s.element_type for s in instruction.tuple_shapes)
    if isinstance(combine, str):
        types = tuple(accumulated_in(t) for t in types)
    reduction = Reduction(combine, numbers[0], numbers[1], types, numbers[2])
    draft = Draft(extents, reduced, [Input(k) for k in range(2 * count)], reached, reductions=[reduction])
    sources = [v.buffer for v in arrays] + initial
    run_draft(context, instruction.name, draft, sources, results, instruction.op_name)
    emitted = context.compute_sets[-1]
    emitted.work_estimate = replace(emitted.work_estimate, windows=prod(w.size for w in window))
    if single and isinstance(emitted.work, FusedLoop) and emitted.work.operands_at(arrays[0].buffer):
        emitted.work = _with_windows(emitted.work, instruction, arrays[0])
    return results[0] if single else tuple(results)


def _with_windows(loop: FusedLoop, instruction: Instruction, array: View) -> WindowLoop:
    """The fused loop of one array as a loop over windows."""
    opcode, initial = single_operation(instruction.called[0]), instruction.operands[1]
    value = splat_value(initial) if opcode in ASSOCIATIVE else None
    neutral = value is not None and bool(value == neutral_element(str(opcode), initial.array_shape.element_type))
    neutral = (
        neutral or opcode == "maximum-number"
    )  # the result begins with the initial value: combining it again changes nothing
    fields = {each.name: getattr(loop, each.name) for each in dataclass_fields(FusedLoop)}
    counts = instruction.array_shape.dimensions
    return WindowLoop(**fields, window=instruction["window"], windows=counts, strides=array.strides, is_neutral=neutral)


def _read(number: int, view: View, window: tuple[WindowDimension, ...], loops: list[tuple[str, int]]) -> Reached:
    strides = tuple(
        view.strides[d] * (window[d].stride if kind == "out" else window[d].window_dilation) for kind, d in loops
    )
    return Reached(view.shape.element_type, number, view.offset, strides)


def _write(number: int, result: Buffer, loops: list[tuple[str, int]]) -> Reached:
    steps = byte_strides(result.shape)
    strides = tuple(steps[d] if kind == "out" else 0 for kind, d in loops)
    return Reached(result.shape.element_type, number, 0, strides, writes=True, partial=True)


def _padded(
    context: Context, instruction: Instruction, operand: Instruction, initial: Instruction, number: int
) -> View:
    """The operand padded with the initial value around it and between dilated elements, where the window needs it."""
    window: tuple[WindowDimension, ...] = instruction["window"]
    source = context.view(operand)
    if all(w.padding_low == w.padding_high == 0 and w.base_dilation == 1 for w in window):
        return source
    spread = [max(0, (s - 1) * w.base_dilation + 1) for s, w in zip(source.shape.dimensions, window, strict=True)]
    lows = [max(0, w.padding_low) for w in window]
    dimensions = tuple(size + low + max(0, w.padding_high) for size, low, w in zip(spread, lows, window, strict=True))
    shape = source.shape.with_dimensions(dimensions)
    name = f"{instruction.name}.padding.{number}"
    padding = Buffer(name, shape, permanent=True)
    if initial.opcode == "constant":
        padding.value = np.full(dimensions, initial["literal"].reshape(-1)[0], shape.dtype)
    else:
        fill(context, f"{name}.fill", whole(padding, shape), context.buffer(initial), instruction.op_name)
    steps = tuple(w.base_dilation for w in window)
    copy(context, name, source, part(padding, shape, tuple(lows), steps, source.shape), instruction.op_name)
    # Negative padding starts further in.
    inside = whole(padding, shape)
    skipped = sum(-min(0, w.padding_low) * s for w, s in zip(window, inside.strides, strict=True))
    return View(padding, shape, inside.offset + skipped, inside.strides)


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
    """Emits the compute set of a scan along a dimension."""
    operand, initial = instruction.operands
    shape, kind = instruction.array_shape, instruction.array_shape.element_type
    opcode = single_operation(instruction.called[0])
    assert opcode is not None
    result, source, start = context.result_buffer(instruction), context.buffer(operand), context.buffer(initial)
    before, width = prod(shape.dimensions[:dimension]), prod(shape.dimensions[dimension + 1 :])
    length, results = operand.array_shape.dimensions[dimension], shape.dimensions[dimension]
    columns = width if before > 1 else max(LINE_ELEMENTS, -(-width // LINE_ELEMENTS // 16) * LINE_ELEMENTS)
    work = ScanWork(
        source=Address(source),
        initial=Address(start),
        target=Address(result),
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
    spans = [_span(b, n, before, width, columns) for b, n in ((source, length), (result, results))]
    few = shape.elements < SMALL_ELEMENTS
    context.emit_for(instruction, work, work.unit_count, [spans[0], Span(start)], [spans[1]], estimate, one_worker=few)
    return result


def _span(buffer: Buffer, length: int, before: int, width: int, columns: int) -> Span:
    """The rows of each unit, or its columns."""
    if width == 1:
        return Span(buffer, Partition(length, before, SCANNED_ROWS))
    return Span(buffer, Partition(length * width, before, 1) if before > 1 else Partition(1, width, columns))
