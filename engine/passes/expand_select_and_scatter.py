"""Select-and-scatter as a reduce-window, which keeps the place of the element that a window selects, and a scatter.

Gradients of max pooling whose elements are written once stay as they are.
"""

from __future__ import annotations

from engine.ir import (
    Computation,
    Instruction,
    ScatterDimensionNumbers,
    Shape,
    TupleShape,
    WindowDimension,
    topological,
)
from engine.ir.builder import Builder, binary_computation
from engine.ir.pooling import DIRECTIONS, gathers_pools, is_apart
from engine.ops.apply import single_operation
from engine.passes.construct import broadcast, constant, convert, on_arrays, reshape
from engine.passes.rewriting import make, on_each

PLACE = Shape("s64", ())
NUMBERS = ScatterDimensionNumbers((), (0,), (0,), 1)
"""A scatter of single elements to an array of one dimension."""
WIDE = {"f16": "f32", "bf16": "f32"}
"""The types in which elements are added, to be rounded once."""


@on_each("select-and-scatter")
def expand_select_and_scatter(instruction: Instruction) -> Instruction | None:
    """Replaces a select-and-scatter that is no gradient of max pooling."""
    operand, source, initial = instruction.operands
    kept = None if is_pool_gradient(instruction) else _keeping(instruction)
    if kept is None:
        return None
    shape, count = operand.array_shape, source.array_shape.elements
    # A scalar is an array of one element.
    dimensions, windows = shape.dimensions or (1,), source.array_shape.dimensions or (1,)
    window = instruction["window"] or (WindowDimension(1),)
    places = make(instruction, "iota", Shape("s64", (shape.elements,)), (), iota_dimension=0)
    nowhere = constant(instruction, -1, PLACE)
    reduced = TupleShape((Shape(shape.element_type, windows), Shape("s64", windows)))
    arrays = *(reshape(instruction, each, dimensions) for each in (operand, places)), initial, nowhere
    chosen = make(instruction, "reduce-window", reduced, arrays, (kept,), window=window)
    chosen = make(instruction, "get-tuple-element", reduced.elements[1], (chosen,), tuple_index=1)
    adds = single_operation(instruction.called[1]) == "add"
    made = Shape(WIDE.get(shape.element_type, shape.element_type) if adds else shape.element_type, (shape.elements,))
    body = binary_computation("add", made.element_type) if adds else instruction.called[1]
    source, initial = (convert(instruction, each, made.element_type) for each in (source, initial))
    operands = (
        broadcast(instruction, initial, made.dimensions, ()),
        reshape(instruction, chosen, (count, 1)),  # windows of padding choose -1, to which a scatter writes nothing
        reshape(instruction, source, (count,)),
    )
    scattered = make(instruction, "scatter", made, operands, (body,), scatter_dimension_numbers=NUMBERS)
    return convert(instruction, reshape(instruction, scattered, shape.dimensions), shape.element_type)


def is_pool_gradient(instruction: Instruction) -> bool:
    """Whether a select-and-scatter adds floats, and each element can be written once."""
    window, source = instruction["window"], instruction.operands[1].array_shape
    if source.element_type not in ("f32", *WIDE) or single_operation(instruction.called[1]) != "add":
        return False
    return selected_by(instruction.called[0]) in DIRECTIONS and (
        is_apart(source, window) or gathers_pools(source, window)
    )


def selected_by(body: Computation) -> str | None:
    """The direction of a body that compares parameter 0 with parameter 1; None for any other body.

    UGE, as LLVM names it, is "not LT" of floats.
    """
    root = body.root
    negated = root.opcode == "not"
    if negated:
        root = root.operands[0]
    if root.opcode != "compare" or [o.get("parameter_number") for o in root.operands] != [0, 1]:
        return None
    if root.get("comparison_type") == "TOTALORDER" or (negated and root["direction"] != "LT"):
        return None
    return "UGE" if negated else str(root["direction"])


def _keeping(instruction: Instruction) -> Computation | None:
    """The body that keeps one of two elements and its place, of which -1 is none; None if it cannot be inlined."""
    b, kind = Builder("keep"), instruction.array_shape.element_type
    value, place, other, other_place = (b.parameter(each) for each in (kind, "s64") * 2)
    selected = on_arrays(instruction, instruction.called[0], (value, other), ())
    if selected is None:
        return None
    none = b.constant(0, "s64")
    exists, other_exists = b.compare(place, none, "GE"), b.compare(other_place, none, "GE")
    kept = b.elementwise("and", exists, b.elementwise("or", selected, b.elementwise("not", other_exists)))
    root = b.tuple(b.select(kept, value, other), b.select(kept, place, other_place))
    return Computation(b.name, topological([root]), root)
