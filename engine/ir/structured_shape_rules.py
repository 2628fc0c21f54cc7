"""Shape rules of operations with dimension numbers, windows or scalar bodies."""

from __future__ import annotations

from engine.ir.attributes import (
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    WindowDimension,
)
from engine.ir.module import Computation, Instruction
from engine.ir.shape import AnyShape, Shape, TupleShape
from engine.ir.shape_rules import array_operands, array_result, require, require_signature, tupled


def dilated(size: int, dilation: int) -> int:
    """Extent of `size` elements with gaps of `dilation` - 1 between neighbours."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def window_count(size: int, d: WindowDimension) -> int:
    """Number of windows that fit into one dimension of the dilated and padded base."""
    base = dilated(size, d.base_dilation) + d.padding_low + d.padding_high
    reach = dilated(d.size, d.window_dilation)
    return 0 if base < reach else (base - reach) // d.stride + 1


def _require_scalar_body(body: Computation, types: list[Shape]) -> None:
    require_signature(body, [s.with_dimensions(()) for s in types])


def _halves(instruction: Instruction) -> tuple[list[Shape], list[Shape]]:
    """Arrays of equal dimensions and their scalar initial values; raises InternalError where the body does not fit."""
    shapes = array_operands(instruction)
    half = len(shapes) // 2
    arrays, initial = shapes[:half], shapes[half:]
    require(len({s.dimensions for s in arrays}) == 1, "Expected arrays of the same dimensions.")
    require(
        initial == [s.with_dimensions(()) for s in arrays],
        f"Expected one scalar initial value for each array. Received: {', '.join(map(str, initial))}.",
    )
    (body,) = instruction.called
    _require_scalar_body(body, [*arrays, *arrays])
    require(
        body.root.shape == tupled([s.with_dimensions(()) for s in arrays]),
        f"Expected a body that returns its first half of parameters. Received: {body.root.shape}.",
    )
    return arrays, initial


def dot(instruction: Instruction) -> AnyShape:
    lhs, rhs = array_operands(instruction, 2)
    n: DotDimensionNumbers = instruction["dot_dimension_numbers"]
    for mine, theirs in (
        (n.lhs_contracting_dimensions, n.rhs_contracting_dimensions),
        (n.lhs_batch_dimensions, n.rhs_batch_dimensions),
    ):
        left, right = [lhs.dimensions[d] for d in mine], [rhs.dimensions[d] for d in theirs]
        require(
            left == right,
            f"Expected equal sizes of dimensions {mine} and {theirs}. Received: {left}, {right}.",
        )
    batch = [lhs.dimensions[d] for d in n.lhs_batch_dimensions]
    taken_left = (*n.lhs_contracting_dimensions, *n.lhs_batch_dimensions)
    taken_right = (*n.rhs_contracting_dimensions, *n.rhs_batch_dimensions)
    left = [size for d, size in enumerate(lhs.dimensions) if d not in taken_left]
    right = [size for d, size in enumerate(rhs.dimensions) if d not in taken_right]
    return array_result(instruction).with_dimensions((*batch, *left, *right))


def convolution(instruction: Instruction) -> AnyShape:
    lhs, rhs = array_operands(instruction, 2)
    n: ConvolutionDimensionNumbers = instruction["convolution_dimension_numbers"]
    window = instruction["window"]
    feature_groups = instruction.get("feature_group_count", 1)
    batch_groups = instruction.get("batch_group_count", 1)
    inputs = rhs.dimensions[n.kernel_input_feature_dimension]
    outputs = rhs.dimensions[n.kernel_output_feature_dimension]
    features = lhs.dimensions[n.input_feature_dimension]
    batch = lhs.dimensions[n.input_batch_dimension]
    require(
        min(feature_groups, batch_groups) == 1,
        f"Expected groups of features or of the batch. Received: {feature_groups} and {batch_groups}.",
    )
    require(
        inputs * feature_groups == features,
        f"Expected {features} input features. Received: {feature_groups} groups of {inputs}.",
    )
    require(
        outputs % (feature_groups * batch_groups) == 0 and batch % batch_groups == 0,
        f"Expected whole groups. Received: {outputs} output features and batch {batch} for "
        f"{feature_groups} feature and {batch_groups} batch groups.",
    )
    sizes = tuple(rhs.dimensions[d] for d in n.kernel_spatial_dimensions)
    require(sizes == tuple(d.size for d in window), f"Expected a window of {sizes}. Received: {window}.")
    result = {n.output_batch_dimension: batch // batch_groups, n.output_feature_dimension: outputs}
    for source, target, d in zip(n.input_spatial_dimensions, n.output_spatial_dimensions, window, strict=True):
        result[target] = window_count(lhs.dimensions[source], d)
    return array_result(instruction).with_dimensions(tuple(result[d] for d in range(lhs.rank)))


def reduce(instruction: Instruction) -> AnyShape:
    arrays, _ = _halves(instruction)
    dimensions = instruction["dimensions"]
    require(
        len(set(dimensions)) == len(dimensions) and all(0 <= d < arrays[0].rank for d in dimensions),
        f"Expected different dimensions of {arrays[0]}. Received: {dimensions}.",
    )
    kept = tuple(size for d, size in enumerate(arrays[0].dimensions) if d not in dimensions)
    return tupled([s.with_dimensions(kept) for s in arrays])


def reduce_window(instruction: Instruction) -> AnyShape:
    arrays, _ = _halves(instruction)
    window = instruction["window"]
    require(len(window) == arrays[0].rank, f"Expected a window of rank {arrays[0].rank}. Received: {window}.")
    counts = tuple(window_count(n, d) for n, d in zip(arrays[0].dimensions, window, strict=True))
    return tupled([s.with_dimensions(counts) for s in arrays])


def select_and_scatter(instruction: Instruction) -> AnyShape:
    operand, source, initial = array_operands(instruction, 3)
    window = instruction["window"]
    counts = tuple(window_count(n, d) for n, d in zip(operand.dimensions, window, strict=True))
    require(source == operand.with_dimensions(counts), f"Expected a source of {list(counts)}. Received: {source}.")
    require(initial == operand.with_dimensions(()), f"Expected a scalar initial value. Received: {initial}.")
    for body in instruction.called:
        _require_scalar_body(body, [operand, operand])
    return operand


def gather(instruction: Instruction) -> AnyShape:
    operand, indices = array_operands(instruction, 2)
    n: GatherDimensionNumbers = instruction["gather_dimension_numbers"]
    sizes = instruction["gather_slice_sizes"]
    require(
        len(sizes) == operand.rank and all(0 <= s <= d for s, d in zip(sizes, operand.dimensions, strict=True)),
        f"Expected slice sizes within {operand}. Received: {sizes}.",
    )
    batch = [size for d, size in enumerate(indices.dimensions) if d != n.index_vector_dim]
    absent = (*n.collapsed_slice_dims, *n.operand_batching_dims)
    window = [size for d, size in enumerate(sizes) if d not in absent]
    require(len(window) == len(n.offset_dims), f"Expected {len(window)} offset dims. Received: {n.offset_dims}.")
    rank = len(batch) + len(window)
    require(
        len({*n.offset_dims}) == len(window) and all(0 <= d < rank for d in n.offset_dims),
        f"Expected different offset dims below {rank}. Received: {n.offset_dims}.",
    )
    offsets = dict(zip(n.offset_dims, window, strict=True))
    remaining = iter(batch)
    return operand.with_dimensions(tuple(offsets[d] if d in offsets else next(remaining) for d in range(rank)))


def scatter(instruction: Instruction) -> AnyShape:
    shapes = array_operands(instruction)
    count = (len(shapes) - 1) // 2
    inputs, indices, updates = shapes[:count], shapes[count], shapes[count + 1 :]
    n: ScatterDimensionNumbers = instruction["scatter_dimension_numbers"]
    batch = [size for d, size in enumerate(indices.dimensions) if d != n.index_vector_dim]
    for update in updates:
        received = [size for d, size in enumerate(update.dimensions) if d not in n.update_window_dims]
        require(received == batch, f"Expected the indices' sizes {batch} in the updates. Received: {update}.")
    _require_scalar_body(instruction.called[0], [*inputs, *updates])
    return tupled(inputs)


def dynamic_slice(instruction: Instruction) -> AnyShape:
    operand, *starts = array_operands(instruction)
    sizes = instruction["dynamic_slice_sizes"]
    require(
        len(starts) == len(sizes) == operand.rank,
        f"Expected {operand.rank} starts and sizes. Received: {sizes}.",
    )
    require(
        all(0 <= s <= d for s, d in zip(sizes, operand.dimensions, strict=True)),
        f"Expected sizes within {operand}. Received: {sizes}.",
    )
    return operand.with_dimensions(tuple(sizes))


def dynamic_update_slice(instruction: Instruction) -> AnyShape:
    operand, update, *starts = array_operands(instruction)
    require(
        update.rank == operand.rank == len(starts)
        and all(u <= d for u, d in zip(update.dimensions, operand.dimensions, strict=True)),
        f"Expected an update within {operand} and {operand.rank} starts. Received: {update}.",
    )
    return operand


def sort(instruction: Instruction) -> AnyShape:
    shapes = array_operands(instruction)
    require(len({s.dimensions for s in shapes}) == 1, "Expected operands of the same dimensions.")
    (comparator,) = instruction.called
    _require_scalar_body(comparator, [s for s in shapes for _ in range(2)])
    require(
        comparator.root.shape == Shape("pred"),
        f"Expected a comparator to pred[]. Received: {comparator.root}.",
    )
    (dimension,) = instruction["dimensions"]
    length = shapes[0].dimensions[dimension]
    limit = instruction.get("limit", length)
    require(0 <= limit <= length, f"Expected a limit of at most {length}. Received: {limit}.")
    sizes = [limit if d == dimension else size for d, size in enumerate(shapes[0].dimensions)]
    return tupled([s.with_dimensions(tuple(sizes)) for s in shapes])


def map_of(instruction: Instruction) -> AnyShape:
    shapes = array_operands(instruction)
    (body,) = instruction.called
    _require_scalar_body(body, shapes)
    return body.root.array_shape.with_dimensions(shapes[0].dimensions)


def batch_norm(instruction: Instruction) -> AnyShape:
    operand, feature, *_rest = array_operands(instruction)
    return TupleShape((operand, feature, feature))


def batch_norm_inference(instruction: Instruction) -> AnyShape:
    return array_operands(instruction, 5)[0]


def triangular_solve(instruction: Instruction) -> AnyShape:
    return array_operands(instruction, 2)[1]


def rng_bit_generator(instruction: Instruction) -> AnyShape:
    (state,) = array_operands(instruction, 1)
    require(len(instruction.tuple_shapes) == 2, f"Expected a state and bits. Received: {instruction.shape}.")
    return TupleShape((state, instruction.tuple_shapes[1]))
