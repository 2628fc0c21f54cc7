"""Shape rules, by operands and attributes: elementwise, shaping and control flow operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.errors import InternalError
from engine.ir.module import Computation, Instruction
from engine.ir.shape import INTEGERS, AnyShape, Shape, TupleShape, shape_of

ShapeRule = Callable[[Instruction], AnyShape]
"""The only legal shape by operands and attributes; raises InternalError where these contradict each other."""
REAL_TYPES = {"c64": "f32", "c128": "f64"}
COMPLEX_TYPES = {"f32": "c64", "f64": "c128"}


def require(condition: bool, reason: str) -> None:
    """Raises InternalError with `reason` unless `condition` holds."""
    if not condition:
        raise InternalError(reason)


def equal(received: object, expected: object, what: str) -> None:
    """Raises InternalError, which says `what` was expected, unless both are equal."""
    if received != expected:
        raise InternalError(f"Expected {what} {expected}. Received: {received}.")


def array_operands(instruction: Instruction, count: int | None = None) -> list[Shape]:
    """The operands' shapes; raises InternalError unless there are `count`, all of them arrays."""
    shapes = [o.shape for o in instruction.operands]
    require(count is None or len(shapes) == count, f"Expected {count} operands. Received: {len(shapes)}.")
    require(all(isinstance(s, Shape) for s in shapes), "Expected arrays as operands. Received: a tuple.")
    return [s for s in shapes if isinstance(s, Shape)]


def array_result(instruction: Instruction) -> Shape:
    """The instruction's own shape; raises InternalError for a tuple."""
    require(isinstance(instruction.shape, Shape), f"Expected an array. Received: {instruction.shape}.")
    return instruction.array_shape


def tupled(shapes: list[Shape]) -> AnyShape:
    """One shape itself, several as a tuple."""
    return shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))


def different(dimensions: Sequence[int], rank: int, name: str) -> None:
    """Raises InternalError unless these are different dimensions of an array of rank `rank`."""
    require(
        len(set(dimensions)) == len(dimensions) and all(0 <= d < rank for d in dimensions),
        f"Expected different {name} below {rank}. Received: {tuple(dimensions)}.",
    )


def same_types(shapes: Sequence[Shape]) -> None:
    """Raises InternalError unless all shapes have one element type."""
    kinds = sorted({shape.element_type for shape in shapes})
    require(len(kinds) <= 1, f"Expected one element type. Received: {', '.join(kinds)}.")


def integer_scalars(shapes: Sequence[Shape]) -> None:
    """Raises InternalError unless all shapes are scalars of integer types."""
    for shape in shapes:
        require(not shape.rank and shape.element_type in INTEGERS, f"Expected integer scalars. Received: {shape}.")


def require_signature(computation: Computation, arguments: list[AnyShape]) -> None:
    """Raises InternalError unless the computation takes arguments of these shapes."""
    expected = TupleShape(tuple(p.shape for p in computation.parameters))
    equal(TupleShape(tuple(arguments)), expected, f"arguments of %{computation.name}:")


def same_as_operand(instruction: Instruction) -> AnyShape:
    return array_operands(instruction, 1)[0]


def same_as_any_operand(instruction: Instruction) -> AnyShape:
    equal(len(instruction.operands), 1, "operands:")
    return instruction.operands[0].shape


def is_finite(instruction: Instruction) -> AnyShape:
    return array_operands(instruction, 1)[0].with_type("pred")


def real_part(instruction: Instruction) -> AnyShape:
    (x,) = array_operands(instruction, 1)
    return x.with_type(REAL_TYPES.get(x.element_type, x.element_type))


def reduce_precision(instruction: Instruction) -> AnyShape:
    exponent, mantissa = instruction["exponent_bits"], instruction["mantissa_bits"]
    require(1 <= exponent <= 11 and 0 <= mantissa <= 52, f"Expected bits of a float. Received: {exponent}, {mantissa}.")
    return same_as_operand(instruction)


def same_as_both(instruction: Instruction) -> Shape:
    lhs, rhs = array_operands(instruction, 2)
    equal(rhs, lhs, "operands of one shape:")
    return lhs


def compare(instruction: Instruction) -> AnyShape:
    return same_as_both(instruction).with_type("pred")


def complex_of_parts(instruction: Instruction) -> AnyShape:
    part = same_as_both(instruction)
    require(part.element_type in COMPLEX_TYPES, f"Expected f32 or f64 parts. Received: {part}.")
    return part.with_type(COMPLEX_TYPES[part.element_type])


def select(instruction: Instruction) -> AnyShape:
    chosen, on_true, on_false = array_operands(instruction, 3)
    equal(on_false, on_true, "two values of one shape:")
    predicates = (Shape("pred"), on_true.with_type("pred"))
    require(chosen in predicates, f"Expected {predicates[0]} or {predicates[1]} to select by. Received: {chosen}.")
    return on_true


def clamp(instruction: Instruction) -> AnyShape:
    low, x, high = array_operands(instruction, 3)
    for bound in (low, high):
        scalar = x.with_dimensions(())
        require(bound in (x, scalar), f"Expected a bound {x} or {scalar}. Received: {bound}.")
    return x


def convert(instruction: Instruction) -> AnyShape:
    return array_operands(instruction, 1)[0].with_type(array_result(instruction).element_type)


def random_bits(instruction: Instruction) -> AnyShape:
    index = same_as_both(instruction)
    require(index.element_type == "u32", f"Expected element numbers u32. Received: {index}.")
    return index


def stochastic_convert(instruction: Instruction) -> AnyShape:
    x, bits = array_operands(instruction, 2)
    require(x.element_type == "f32", f"Expected f32 to round. Received: {x}.")
    equal(bits, x.with_type("u32"), "random bits")
    return x.with_type("f16")


def rng_state(instruction: Instruction) -> AnyShape:
    array_operands(instruction, 0)
    return Shape("u64", (3,))


def bitcast_convert(instruction: Instruction) -> AnyShape:
    (x,), result = array_operands(instruction, 1), array_result(instruction)
    wide, narrow = x.dtype.itemsize, result.dtype.itemsize
    if wide == narrow:
        return result.with_dimensions(x.dimensions)
    if wide > narrow:
        return result.with_dimensions((*x.dimensions, wide // narrow))
    equal(x.dimensions[-1:], (narrow // wide,), "a last dimension")
    return result.with_dimensions(x.dimensions[:-1])


def reshape(instruction: Instruction) -> AnyShape:
    (x,), result = array_operands(instruction, 1), array_result(instruction)
    equal(result.elements, x.elements, "elements:")
    return result.with_type(x.element_type)


def broadcast(instruction: Instruction) -> AnyShape:
    (x,), result, dimensions = array_operands(instruction, 1), array_result(instruction), instruction["dimensions"]
    different(dimensions, result.rank, "dimensions")
    sizes = tuple(result.dimensions[d] for d in dimensions)
    equal(sizes, x.dimensions, f"sizes of dimensions {dimensions}:")
    return result.with_type(x.element_type)


def transpose(instruction: Instruction) -> AnyShape:
    (x,), dimensions = array_operands(instruction, 1), instruction["dimensions"]
    require(sorted(dimensions) == list(range(x.rank)), f"Expected an order of {x}'s dimensions: {dimensions}.")
    return x.with_dimensions(tuple(x.dimensions[d] for d in dimensions))


def reverse(instruction: Instruction) -> AnyShape:
    (x,) = array_operands(instruction, 1)
    different(instruction["dimensions"], x.rank, "dimensions")
    return x


def slice_of(instruction: Instruction) -> AnyShape:
    (x,), slices = array_operands(instruction, 1), instruction["slice_dimensions"]
    equal(len(slices), x.rank, "slices:")
    for size, s in zip(x.dimensions, slices, strict=True):
        is_inside = 0 <= s.start <= s.limit <= size and s.stride > 0
        require(is_inside, f"Expected a slice within {size}. Received: {s}.")
    return x.with_dimensions(tuple(-(-(s.limit - s.start) // s.stride) for s in slices))


def pad(instruction: Instruction) -> AnyShape:
    (x, value), config = array_operands(instruction, 2), instruction["padding_config"]
    equal(value, x.with_dimensions(()), "a value to pad with")
    equal(len(config), x.rank, "padded dimensions:")
    sizes = [
        (n + max(0, n - 1) * p.interior_padding) + p.edge_padding_low + p.edge_padding_high
        for n, p in zip(x.dimensions, config, strict=True)
    ]
    return x.with_dimensions(tuple(max(0, n) for n in sizes))


def concatenate(instruction: Instruction) -> AnyShape:
    shapes, (dimension,) = array_operands(instruction), instruction["dimensions"]
    first = shapes[0]
    others = {(s.element_type, s.dimensions[:dimension], s.dimensions[dimension + 1 :]) for s in shapes}
    require(len(others) == 1, f"Expected operands that differ in dimension {dimension} only.")
    total = sum(s.dimensions[dimension] for s in shapes)
    return first.with_dimensions((*first.dimensions[:dimension], total, *first.dimensions[dimension + 1 :]))


def iota(instruction: Instruction) -> AnyShape:
    array_operands(instruction, 0)
    shape, dimension = array_result(instruction), instruction["iota_dimension"]
    require(0 <= dimension < shape.rank, f"Expected a dimension of {shape}. Received: {dimension}.")
    return shape


def dimension_size(instruction: Instruction) -> AnyShape:
    gets = instruction.opcode == "get-dimension-size"
    x, *size = array_operands(instruction, 1 if gets else 2)
    different(instruction["dimensions"], x.rank, "dimensions")
    require(len(instruction["dimensions"]) == 1, "Expected one dimension.")
    integer_scalars(size)
    return Shape("s32") if gets else x


def constant(instruction: Instruction) -> AnyShape:
    return shape_of(instruction["literal"])


def tuple_of(instruction: Instruction) -> AnyShape:
    return TupleShape(tuple(o.shape for o in instruction.operands))


def get_tuple_element(instruction: Instruction) -> AnyShape:
    (operand,), index = instruction.operands, instruction["tuple_index"]
    require(isinstance(operand.shape, TupleShape), f"Expected a tuple. Received: {operand.shape}.")
    elements = operand.shape.elements if isinstance(operand.shape, TupleShape) else ()
    require(0 <= index < len(elements), f"Expected an index below {len(elements)}. Received: {index}.")
    return elements[index]


def after_all(_: Instruction) -> AnyShape:
    return TupleShape()


def call(instruction: Instruction) -> AnyShape:
    (callee,) = instruction.called
    require_signature(callee, [o.shape for o in instruction.operands])
    return callee.root.shape


def while_loop(instruction: Instruction) -> AnyShape:
    body, condition = instruction.called
    (state,) = (o.shape for o in instruction.operands)
    require_signature(body, [state])
    require_signature(condition, [state])
    equal(condition.root.shape, Shape("pred"), "a condition")
    require(isinstance(state, TupleShape), f"Expected a tuple as state. Received: {state}.")
    equal(body.root.shape, state, "a body that returns")
    return state


def conditional(instruction: Instruction) -> AnyShape:
    selector, *arguments = instruction.operands
    branches = instruction.called
    require(selector.shape in (Shape("pred"), Shape("s32")), f"Expected pred[] or s32[]. Received: {selector.shape}.")
    equal(len(branches), len(arguments), "branches:")
    for branch, argument in zip(branches, arguments, strict=True):
        require_signature(branch, [argument.shape])
    results = {branch.root.shape for branch in branches}
    require(len(results) == 1, f"Expected branches of one shape. Received: {', '.join(map(str, results))}.")
    return branches[0].root.shape
