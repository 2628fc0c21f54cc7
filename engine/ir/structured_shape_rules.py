"""Shape rules of operations with dimension numbers, windows or scalar bodies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from engine.ir.attributes import (
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    Window,
    WindowDimension,
)
from engine.ir.module import Computation, Instruction
from engine.ir.shape import INTEGERS, AnyShape, Shape, TupleShape
from engine.ir.shape_rules import (
    COMPLEX_TYPES,
    REAL_TYPES,
    array_operands,
    array_result,
    different,
    equal,
    integer_scalars,
    require,
    require_signature,
    same_types,
    tupled,
)


def dilated(size: int, dilation: int) -> int:
    """Extent of `size` elements with gaps of `dilation` - 1 between neighbours."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def window_count(size: int, d: WindowDimension) -> int:
    """Number of windows that fit into one dimension of the dilated and padded base."""
    base = dilated(size, d.base_dilation) + d.padding_low + d.padding_high
    reach = dilated(d.size, d.window_dilation)
    return 0 if base < reach else (base - reach) // d.stride + 1


def _scalars(shapes: Iterable[Shape]) -> list[Shape]:
    return [shape.with_dimensions(()) for shape in shapes]


def _require_scalar_body(body: Computation, types: Sequence[Shape], result: AnyShape) -> None:
    """Raises InternalError unless a body takes scalars of these types, and returns `result`."""
    require_signature(body, [*_scalars(types)])
    equal(body.root.shape, result, "a body that returns")


def _same_dimensions(shapes: Sequence[Shape], what: str) -> None:
    require(len({s.dimensions for s in shapes}) == 1, f"Expected {what} of the same dimensions.")


def _halves(instruction: Instruction) -> list[Shape]:
    """Arrays of equal dimensions; raises InternalError where their initial values or the body do not fit."""
    shapes = array_operands(instruction)
    half = len(shapes) // 2
    arrays, initial = shapes[:half], shapes[half:]
    _same_dimensions(arrays, "arrays")
    equal(TupleShape(tuple(initial)), TupleShape(tuple(_scalars(arrays))), "initial values")
    (body,) = instruction.called
    _require_scalar_body(body, [*arrays, *arrays], tupled(_scalars(arrays)))
    return arrays


def dot(instruction: Instruction) -> AnyShape:
    lhs, rhs = array_operands(instruction, 2)
    n: DotDimensionNumbers = instruction["dot_dimension_numbers"]
    for mine, theirs in (n.contracting, n.batch):
        left, right = [lhs.dimensions[d] for d in mine], [rhs.dimensions[d] for d in theirs]
        equal(right, left, f"sizes {mine} of dimensions {theirs}:")
    sizes = [lhs.dimensions[d] for d in n.lhs_batch_dimensions]
    for side, operand in enumerate((lhs, rhs)):
        different((*n.contracting[side], *n.batch[side]), operand.rank, f"dimensions of operand {side}")
        sizes += [operand.dimensions[d] for d in n.free(side, operand.rank)]
    return array_result(instruction).with_dimensions(tuple(sizes))


def convolution(instruction: Instruction) -> AnyShape:
    lhs, rhs = array_operands(instruction, 2)
    n: ConvolutionDimensionNumbers = instruction["convolution_dimension_numbers"]
    window, result = instruction["window"], array_result(instruction)
    same_types([lhs, rhs])  # the result may be wider, to be rounded in another way
    require(lhs.rank == rhs.rank == result.rank == len(window) + 2, "Expected arrays of one rank.")
    for name, order in (
        ("input", (n.input_batch_dimension, n.input_feature_dimension, *n.input_spatial_dimensions)),
        ("kernel", (n.kernel_input_feature_dimension, n.kernel_output_feature_dimension, *n.kernel_spatial_dimensions)),
        ("output", (n.output_batch_dimension, n.output_feature_dimension, *n.output_spatial_dimensions)),
    ):
        require(sorted(order) == list(range(lhs.rank)), f"Expected an order of the {name}'s dimensions: {order}.")
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
    equal(inputs * feature_groups, features, "input features:")
    require(
        outputs % (feature_groups * batch_groups) == 0 and batch % batch_groups == 0,
        f"Expected whole groups. Received: {outputs} output features and batch {batch} for "
        f"{feature_groups} feature and {batch_groups} batch groups.",
    )
    sizes = tuple(rhs.dimensions[d] for d in n.kernel_spatial_dimensions)
    equal(tuple(d.size for d in window), sizes, "a window of")
    sizes_of = {n.output_batch_dimension: batch // batch_groups, n.output_feature_dimension: outputs}
    for source, target, d in zip(n.input_spatial_dimensions, n.output_spatial_dimensions, window, strict=True):
        sizes_of[target] = window_count(lhs.dimensions[source], d)
    return result.with_dimensions(tuple(sizes_of[d] for d in range(lhs.rank)))


def _counts(operand: Shape, window: Window) -> tuple[int, ...]:
    """The numbers of windows along each dimension."""
    equal(len(window), operand.rank, "dimensions of a window:")
    return tuple(window_count(n, d) for n, d in zip(operand.dimensions, window, strict=True))


def reduce(instruction: Instruction) -> AnyShape:
    arrays = _halves(instruction)
    dimensions = instruction["dimensions"]
    different(dimensions, arrays[0].rank, "dimensions")
    kept = tuple(size for d, size in enumerate(arrays[0].dimensions) if d not in dimensions)
    return tupled([s.with_dimensions(kept) for s in arrays])


def reduce_window(instruction: Instruction) -> AnyShape:
    arrays = _halves(instruction)
    window = instruction["window"]
    counts = _counts(arrays[0], window)
    return tupled([s.with_dimensions(counts) for s in arrays])


def select_and_scatter(instruction: Instruction) -> AnyShape:
    operand, source, initial = array_operands(instruction, 3)
    window, (select, combine) = instruction["window"], instruction.called
    equal(source, operand.with_dimensions(_counts(operand, window)), "a source")
    equal(initial, operand.with_dimensions(()), "an initial value")
    _require_scalar_body(select, [operand, operand], Shape("pred"))
    _require_scalar_body(combine, [operand, operand], initial)
    return operand


def _require_within(sizes: Sequence[int], limits: Sequence[int]) -> None:
    is_within = all(0 <= size <= limit for size, limit in zip(sizes, limits, strict=True))
    require(is_within, f"Expected sizes within {limits}. Received: {sizes}.")


def _ascending(dimensions: Sequence[int], rank: int, name: str) -> None:
    """Raises InternalError unless these are dimensions below `rank`, each larger than the one before."""
    different(dimensions, rank, name)
    require(list(dimensions) == sorted(dimensions), f"Expected {name} in ascending order. Received: {dimensions}.")


def _require_slices(operand: Shape, indices: Shape, n: GatherDimensionNumbers) -> tuple[int, ...]:
    """Checks the numbers for operand and indices; returns the operand's dimensions that slices lack."""
    vector, mine, theirs = n.index_vector_dim, n.operand_batching_dims, n.start_indices_batching_dims
    require(indices.element_type in INTEGERS, f"Expected indices of an integer type. Received: {indices}.")
    require(vector <= indices.rank, f"Expected an index vector dim of at most {indices.rank}. Received: {vector}.")
    length, indexed = 1 if vector == indices.rank else indices.dimensions[vector], n.start_index_map
    require(len(indexed) == length, f"Expected {length} dimensions that indices are of. Received: {indexed}.")
    different(indexed, operand.rank, "dimensions that indices are of")
    _ascending(n.collapsed_slice_dims, operand.rank, "dimensions that slices lack")
    absent = (*n.collapsed_slice_dims, *mine)
    different(absent, operand.rank, "dimensions that slices lack")
    different(theirs, indices.rank, "batching dims of the indices")
    pairs = len(mine) == len(theirs) and vector not in theirs and not set(mine) & set(indexed)
    sizes = [operand.dimensions[d] for d in mine], [indices.dimensions[d] for d in theirs]
    require(pairs and sizes[0] == sizes[1], f"Expected batching dims of one size. Received: {mine} and {theirs}.")
    return absent


def gather(instruction: Instruction) -> AnyShape:
    operand, indices = array_operands(instruction, 2)
    n: GatherDimensionNumbers = instruction["gather_dimension_numbers"]
    sizes, absent = instruction["gather_slice_sizes"], _require_slices(operand, indices, n)
    equal(len(sizes), operand.rank, "slice sizes:")
    _require_within(sizes, operand.dimensions)
    batch = [size for d, size in enumerate(indices.dimensions) if d != n.index_vector_dim]
    require(all(sizes[d] <= 1 for d in absent), f"Expected slice sizes of 1 for {absent}. Received: {sizes}.")
    window = [size for d, size in enumerate(sizes) if d not in absent]
    equal(len(n.offset_dims), len(window), "offset dims:")
    rank = len(batch) + len(window)
    _ascending(n.offset_dims, rank, "offset dims")
    offsets = dict(zip(n.offset_dims, window, strict=True))
    remaining = iter(batch)
    return operand.with_dimensions(tuple(offsets[d] if d in offsets else next(remaining) for d in range(rank)))


def scatter(instruction: Instruction) -> AnyShape:
    shapes, (body,) = array_operands(instruction), instruction.called
    require(len(shapes) % 2 == 1, f"Expected as many updates as inputs. Received: {len(shapes)} operands.")
    count = len(shapes) // 2
    inputs, indices, updates = shapes[:count], shapes[count], shapes[count + 1 :]
    _same_dimensions(inputs, "inputs")
    _same_dimensions(updates, "updates")
    for pair in zip(inputs, updates, strict=True):
        same_types(pair)
    n: ScatterDimensionNumbers = instruction["scatter_dimension_numbers"]
    operand, update = inputs[0], updates[0]
    absent = _require_slices(operand, indices, n.of_gather)
    _ascending(n.update_window_dims, update.rank, "update window dims")
    batch = [size for d, size in enumerate(indices.dimensions) if d != n.index_vector_dim]
    received = [size for d, size in enumerate(update.dimensions) if d not in n.update_window_dims]
    require(received == batch, f"Expected the indices' sizes {batch} in the updates. Received: {update}.")
    kept = [size for d, size in enumerate(operand.dimensions) if d not in absent]
    window = [update.dimensions[d] for d in n.update_window_dims]
    equal(len(window), len(kept), "dimensions of windows:")
    _require_within(window, kept)
    _require_scalar_body(body, [*inputs, *updates], tupled(_scalars(inputs)))
    return tupled(inputs)


def dynamic_slice(instruction: Instruction) -> AnyShape:
    operand, *starts = array_operands(instruction)
    integer_scalars(starts)
    sizes = instruction["dynamic_slice_sizes"]
    equal((len(starts), len(sizes)), (operand.rank, operand.rank), "starts and sizes:")
    _require_within(sizes, operand.dimensions)
    return operand.with_dimensions(tuple(sizes))


def dynamic_update_slice(instruction: Instruction) -> AnyShape:
    operand, update, *starts = array_operands(instruction)
    same_types([operand, update])
    integer_scalars(starts)
    equal((len(starts), update.rank), (operand.rank, operand.rank), "starts and dimensions:")
    _require_within(update.dimensions, operand.dimensions)
    return operand


def sort(instruction: Instruction) -> AnyShape:
    shapes = array_operands(instruction)
    _same_dimensions(shapes, "operands")
    (comparator,) = instruction.called
    _require_scalar_body(comparator, [s for s in shapes for _ in range(2)], Shape("pred"))
    (dimension,) = instruction["dimensions"]
    different([dimension], shapes[0].rank, "dimensions")
    length = shapes[0].dimensions[dimension]
    limit = instruction.get("limit", length)
    require(0 <= limit <= length, f"Expected a limit of at most {length}. Received: {limit}.")
    sizes = [limit if d == dimension else size for d, size in enumerate(shapes[0].dimensions)]
    return tupled([s.with_dimensions(tuple(sizes)) for s in shapes])


def map_of(instruction: Instruction) -> AnyShape:
    shapes = array_operands(instruction)
    (body,) = instruction.called
    _same_dimensions(shapes, "operands")
    result = body.root.array_shape
    _require_scalar_body(body, shapes, result.with_dimensions(()))
    return result.with_dimensions(shapes[0].dimensions)


def batch_norm(instruction: Instruction) -> AnyShape:
    opcode, index = instruction.opcode, instruction["feature_index"]
    operand, *features = array_operands(instruction, 3 if opcode == "batch-norm-training" else 5)
    different((index,), operand.rank, "feature index")
    if opcode == "batch-norm-grad":
        require(features.pop() == operand, f"Expected a gradient {operand}.")
    same_types(features)
    for each in features:
        require(each.dimensions == (operand.dimensions[index],), f"Expected one value a feature. Received: {each}.")
    return operand if opcode == "batch-norm-inference" else TupleShape((operand, features[0], features[0]))


def solution(instruction: Instruction) -> AnyShape:
    """The shape of a Cholesky factor, or of the solutions for right sides."""
    a, *others = array_operands(instruction, 1 if instruction.opcode == "cholesky" else 2)
    same_types([a, *others])
    require(a.rank >= 2 and a.dimensions[-1] == a.dimensions[-2], f"Expected square matrices. Received: {a}.")
    for b in others:
        rows = b.dimensions[-2 if instruction["left_side"] else -1] if b.rank == a.rank else -1
        fits = rows == a.dimensions[-1] and b.dimensions[:-2] == a.dimensions[:-2]
        require(fits, f"Expected right sides that fit {a}. Received: {b}.")
    return others[0] if others else a


def fft(instruction: Instruction) -> AnyShape:
    (x,), lengths, name = array_operands(instruction, 1), tuple(instruction["fft_length"]), instruction["fft_type"]
    require(0 < len(lengths) <= x.rank and prod(lengths) > 0, f"Expected lengths for {x}. Received: {lengths}.")
    real = REAL_TYPES.get(x.element_type, x.element_type)
    whole = x.dimensions[: x.rank - len(lengths)] + lengths
    halved, full = Shape(COMPLEX_TYPES[real], (*whole[:-1], whole[-1] // 2 + 1)), Shape(COMPLEX_TYPES[real], whole)
    shapes = {"RFFT": (Shape(real, whole), halved), "IRFFT": (halved, Shape(real, whole))}
    operand, result = shapes.get(name, (full, full))
    require(x == operand, f"Expected {name} from {operand} to {result}. Received: {x}.")
    return result


def rng(instruction: Instruction) -> AnyShape:
    scalar = array_result(instruction).with_dimensions(())
    require(array_operands(instruction) == [scalar, scalar], f"Expected two operands {scalar}.")
    return instruction.shape


def rng_bit_generator(instruction: Instruction) -> AnyShape:
    (state,) = array_operands(instruction, 1)
    require(len(instruction.tuple_shapes) == 2, f"Expected a state and bits. Received: {instruction.shape}.")
    bits = instruction.tuple_shapes[1]
    require(bits.element_type in INTEGERS, f"Expected bits of an integer type. Received: {bits}.")
    return TupleShape((state, bits))
