"""Lowers `dot` in every dimension order to indexed contractions."""

from __future__ import annotations

from engine.ir import DotDimensionNumbers, Instruction
from engine.ir.strides import byte_strides
from engine.lower.context import Context, Value, lowering
from engine.passes.transposed_products import is_made_transposed, order_wanted
from engine.program.contraction import ContractionDraft, emit_contraction, undivided
from engine.program.copies import copy
from engine.program.nests import accumulated_in
from engine.program.program import Address, Buffer
from engine.program.views import View, whole
from engine.program.work.offsets import table

Axis = tuple[int, int, int]
"""An output dimension: its extent, its stride in the operand, its stride in the result (bytes)."""


@lowering("dot")
def lower_dot(context: Context, instruction: Instruction) -> Value:
    """Lowers a dot. lhs gives the rows and rhs the columns, or vice versa if the result's last dimension is lhs's."""
    multiplied = _multiplied_type(instruction)
    result, strides = _result(context, instruction)
    numbers: DotDimensionNumbers = instruction["dot_dimension_numbers"]
    shape = instruction.array_shape
    left, right = (operand_in(context, o, instruction, multiplied) for o in instruction.operands)
    item = shape.dtype.itemsize
    batch = len(numbers.lhs_batch_dimensions)
    left_free, right_free = numbers.free(0, left.shape.rank), numbers.free(1, right.shape.rank)
    middle = batch + len(left_free)
    rows = _axes(left, left_free, strides[batch:middle])
    columns = _axes(right, right_free, strides[middle:])
    contracted = list(zip(*numbers.contracting, strict=True))
    batches = [
        (left.shape.dimensions[a], left.strides[a], right.strides[b], strides[k])
        for k, (a, b) in enumerate(zip(*numbers.batch, strict=True))
    ]
    if not any(_is_column(axis, item) for axis in columns):
        left, right, rows, columns = right, left, columns, rows
        contracted = [(b, a) for a, b in contracted]
        batches = [(extent, b, a, c) for extent, a, b, c in batches]
    width, stride_b, rest = _columns(columns, item)
    k_axes = [(left.shape.dimensions[a], left.strides[a], right.strides[b]) for a, b in contracted]
    # In B's order in memory, B's rows are more often evenly spaced.
    k_axes.sort(key=lambda axis: -abs(axis[2]))
    work = undivided(
        Address(left.buffer, left.offset),
        Address(right.buffer, right.offset),
        Address(result),
        rows=(table(*((extent, a) for extent, a, _ in rows)), table(*((extent, c) for extent, _, c in rows))),
        terms=(table(*((extent, a) for extent, a, _ in k_axes)), table(*((extent, b) for extent, _, b in k_axes))),
        batches=(
            table(*((e, a) for e, a, _, _ in batches), *((e, 0) for e, _, _ in rest)),
            table(*((e, b) for e, _, b, _ in batches), *((e, b) for e, b, _ in rest)),
            table(*((e, c) for e, _, _, c in batches), *((e, c) for e, _, c in rest)),
        ),
        columns=width,
        stride_b=stride_b,
        operand_type=multiplied,
    )
    emit_contraction(context, ContractionDraft(instruction.name, work, instruction.op_name))
    return result


def _result(context: Context, instruction: Instruction) -> tuple[Buffer, list[int]]:
    """The buffer and strides of a dot's result, or of its transpose if only the transpose is read."""
    shape = instruction.array_shape
    users = context.users(instruction)
    order = order_wanted(instruction, users) if users else None
    if order is None or not is_made_transposed(users[0], {instruction: users}):
        return context.result_buffer(instruction), byte_strides(shape)
    buffer = context.result_buffer(users[0])
    for user in users:
        context.values[user] = buffer
    strides = dict(zip(order, byte_strides(users[0].array_shape), strict=True))
    return buffer, [strides[d] for d in range(shape.rank)]


def _is_column(axis: Axis, item: int) -> bool:
    """Whether neighbours along an output dimension are contiguous in the result."""
    return axis[0] != 1 and axis[2] == item


def _multiplied_type(dot: Instruction) -> str:
    """The operand type of a dot: also of 16-bit floats whose sums are f32."""
    left, right = (operand.array_shape.element_type for operand in dot.operands)
    is_sum = left == right and accumulated_in(left) == dot.array_shape.element_type
    return left if is_sum else operand_type(dot)


def operand_type(product: Instruction) -> str:
    """The operand type of a dot or convolution: the result's type, or f32 where other types give a 16-bit float."""
    kind = product.array_shape.element_type
    same = all(o.array_shape.element_type == kind for o in product.operands)
    return kind if same else accumulated_in(kind)


def operand_in(context: Context, operand: Instruction, dot: Instruction, element_type: str) -> View:
    """The operand as a view, in that element type."""
    view = context.view(operand)
    shape = view.shape.with_type(element_type)
    if shape == view.shape:
        return view
    converted = Buffer(f"{operand.name}.converted", shape)
    copy(context, converted.name, view, whole(converted, shape), dot.op_name)
    return whole(converted, shape)


def _axes(view: View, dimensions: list[int], strides: list[int]) -> list[Axis]:
    pairs = zip(dimensions, strides, strict=True)
    return [(view.shape.dimensions[d], view.strides[d], stride) for d, stride in pairs]


def _columns(axes: list[Axis], item: int) -> tuple[int, int, list[Axis]]:
    """Extent and stride of the innermost dimensions that can be traversed as one, and the others, which are batches."""
    axes = sorted((axis for axis in axes if axis[0] != 1), key=lambda axis: -axis[2])
    if not axes or not _is_column(axes[-1], item):
        return 1, item, axes
    extent, stride, _ = axes[-1]
    kept = len(axes) - 1
    while kept and axes[kept - 1][1] == extent * stride and axes[kept - 1][2] == extent * item:
        extent *= axes[kept - 1][0]
        kept -= 1
    return extent, stride, axes[:kept]
