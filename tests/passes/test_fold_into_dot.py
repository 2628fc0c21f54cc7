"""fold_into_dot: random dots and convolutions between moves of their operands and results."""

import numpy as np
import pytest

from engine.ir import ConvolutionDimensionNumbers, DotDimensionNumbers, Shape, WindowDimension
from engine.ir.builder import Builder
from engine.passes.dead_code import dead_code
from engine.passes.fold_into_dot import fold_into_dot
from tests.passes.checking import alive, assert_same_results, opcodes


def random_dot(rng, *, transposed_result):
    """A dot with random dimension numbers, between transposed operands."""
    sizes = {
        "batch": rng.integers(1, 4, rng.integers(0, 3)),
        "contracted": rng.integers(1, 4, rng.integers(0, 3)),
    }
    common = [int(n) for n in (*sizes["batch"], *sizes["contracted"])]
    b = Builder()
    operands, places = [], []
    for _ in range(2):
        dimensions = [*common, *(int(n) for n in rng.integers(1, 5, rng.integers(0, 3)))]
        order = [int(d) for d in rng.permutation(len(dimensions))]
        source = b.parameter("f32", [dimensions[d] for d in order])
        permutation = [int(d) for d in rng.permutation(len(order))]
        operands.append(b.transpose(source, permutation))
        moved = [order[d] for d in permutation]
        places.append([moved.index(d) for d in range(len(common))])
    split = len(sizes["batch"])
    numbers = DotDimensionNumbers(
        tuple(places[0][split:]), tuple(places[1][split:]), tuple(places[0][:split]), tuple(places[1][:split])
    )
    result = b.dot(*operands, numbers)
    if transposed_result:
        result = b.transpose(result, [int(d) for d in rng.permutation(result.array_shape.rank)])
    return b.module(result)


@pytest.mark.parametrize("transposed_result", [False, True])
def test_random_dots(transposed_result):
    rng = np.random.default_rng(7)
    folded = 0
    for seed in range(250):
        module = random_dot(rng, transposed_result=transposed_result)
        after = dead_code(fold_into_dot(module))
        assert_same_results(module, after, seed, tolerance=1e-5)
        folded += opcodes(module)["transpose"] - opcodes(after)["transpose"]
        assert fold_into_dot(after) is after
    assert folded > 250


def test_dense_gradient_is_one_dot():
    b = Builder()
    x, gradient = b.parameter("f32", (5, 3)), b.parameter("f32", (5, 4))
    module = b.module(b.transpose(b.dot(b.transpose(gradient, (1, 0)), x), (1, 0)))
    after = fold_into_dot(module)
    assert_same_results(module, after, tolerance=1e-5)
    assert alive(after) == ["dot"]
    assert after.entry.root["dot_dimension_numbers"] == DotDimensionNumbers((0,), (0,))


def test_precision_follows_its_operand():
    b = Builder()
    x, y = b.parameter("f32", (2, 3)), b.parameter("f32", (3, 4))
    numbers = DotDimensionNumbers((1,), (0,))
    dot = b.inferred("dot", (x, y), dot_dimension_numbers=numbers, operand_precision=(0, 2))
    root = fold_into_dot(b.module(b.transpose(dot, (1, 0)))).entry.root
    assert root.opcode == "dot" and root["operand_precision"] == (2, 0)


def test_result_that_is_also_read_as_it_is_stays():
    b = Builder()
    dot = b.dot(b.parameter("f32", (2, 3)), b.parameter("f32", (3, 4)))
    module = b.module(b.tuple(dot, b.transpose(dot, (1, 0))))
    after = fold_into_dot(module)
    assert_same_results(module, after, tolerance=1e-5)
    assert alive(after) == ["dot", "transpose", "tuple"]


def test_free_dimensions_in_another_order_need_the_transpose():
    b = Builder()
    x = b.transpose(b.parameter("f32", (2, 3, 4)), (1, 0, 2))
    module = b.module(b.dot(x, b.parameter("f32", (4, 5)), DotDimensionNumbers((2,), (0,))))
    assert alive(fold_into_dot(module)) == ["transpose", "dot"]


def permuted(rng, names):
    order = [names[int(d)] for d in rng.permutation(len(names))]
    return order, {name: place for place, name in enumerate(order)}


def random_convolution(rng):
    """A convolution amid everything that folds into it, with dimensions in random order."""
    b = Builder()
    spatial = ["x", "y"][: rng.integers(1, 3)]
    groups = int(rng.integers(1, 3))
    sizes = {"n": 2, "i": 2 * groups, "o": 2 * groups}
    image = {"n": 2, "f": sizes["i"], **{s: int(rng.integers(3, 6)) for s in spatial}}
    kernel = {"i": 2, "o": sizes["o"], **{s: int(rng.integers(1, 4)) for s in spatial}}
    image_order, _ = permuted(rng, list(image))
    kernel_order, _ = permuted(rng, list(kernel))
    lhs, rhs = (
        b.parameter("f32", [image[d] for d in image_order]),
        b.parameter("f32", [kernel[d] for d in kernel_order]),
    )
    edges = {s: tuple(int(v) for v in (*rng.integers(-1, 3, 2), rng.integers(0, 2))) for s in spatial}
    lhs = b.pad(lhs, b.constant(0.0), *[edges.get(d, (0, 0)) for d in image_order])
    rhs = b.reverse(rhs, [place for place, d in enumerate(kernel_order) if d in spatial and rng.random() < 0.6])
    moved_image, image_at = permuted(rng, image_order)
    moved_kernel, kernel_at = permuted(rng, kernel_order)
    lhs = b.transpose(lhs, [image_order.index(d) for d in moved_image])
    rhs = b.transpose(rhs, [kernel_order.index(d) for d in moved_kernel])
    window = tuple(
        WindowDimension(
            kernel[s],
            stride=int(rng.integers(1, 3)),
            padding_low=int(rng.integers(-1, 3)),
            padding_high=int(rng.integers(0, 3)),
            window_dilation=int(rng.integers(1, 3)),
            base_dilation=int(rng.integers(1, 3)),
            window_reversal=bool(rng.integers(2)),
        )
        for s in spatial
    )
    _, result_at = permuted(rng, ["n", "f", *spatial])
    numbers = ConvolutionDimensionNumbers(
        image_at["n"],
        image_at["f"],
        tuple(image_at[s] for s in spatial),
        kernel_at["i"],
        kernel_at["o"],
        tuple(kernel_at[s] for s in spatial),
        result_at["n"],
        result_at["f"],
        tuple(result_at[s] for s in spatial),
    )
    result = b.convolution(lhs, rhs, window, numbers, feature_group_count=groups)
    return b.module(b.transpose(result, [int(d) for d in rng.permutation(result.array_shape.rank)]))


def test_random_convolutions():
    rng = np.random.default_rng(11)
    padded = 0
    for seed in range(200):
        module = random_convolution(rng)
        after = dead_code(fold_into_dot(module))
        assert_same_results(module, after, seed, tolerance=1e-4)
        assert not {"transpose", "reverse"} & set(alive(after))
        padded += "pad" not in alive(after)
        assert fold_into_dot(after) is after
    assert padded > 60


@pytest.mark.parametrize("value", [1.0, -0.0, np.inf])
def test_only_padding_with_zero_folds(value):
    b = Builder()
    lhs = b.pad(b.parameter("f32", (1, 4, 1)), b.constant(value), (0, 0), (1, 1), (0, 0))
    numbers = ConvolutionDimensionNumbers(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))
    root = b.convolution(lhs, b.parameter("f32", (2, 1, 3)), (WindowDimension(2),), numbers)
    assert alive(fold_into_dot(b.module(root))) == ["pad", "convolution"]


def test_padding_of_channels_stays():
    b = Builder()
    lhs = b.pad(b.parameter("f32", (1, 4, 1)), b.constant(0.0), (0, 0), (1, 1), (0, 1))
    numbers = ConvolutionDimensionNumbers(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))
    root = b.convolution(lhs, b.parameter("f32", (2, 2, 3)), (WindowDimension(2),), numbers)
    assert alive(fold_into_dot(b.module(root))) == ["pad", "convolution"]


def shared_weight_gradient(b, initial=0.0, kind="f32", dimensions=(0,)):
    """A product for each batch, and its sum over batches and maybe more dimensions."""
    x, gradient = b.parameter(kind, (3, 2, 5, 4)), b.parameter(kind, (2, 5, 3, 6))
    product = b.dot(x, gradient, DotDimensionNumbers((2,), (1,), (0, 1), (2, 0)))
    zero = b.convert(b.constant(initial), kind) if kind != "f32" else b.constant(initial)
    return product, b.reduce(product, zero, dimensions)


@pytest.mark.parametrize("dimensions", [(0,), (1,), (0, 1)])
def test_sum_over_batches_is_part_of_the_dot(dimensions):
    b = Builder()
    _, total = shared_weight_gradient(b, dimensions=dimensions)
    module = b.module(total)
    after = dead_code(fold_into_dot(module))
    assert_same_results(module, after, tolerance=1e-5)
    assert alive(after) == ["dot"]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("of", ["f32", "16 bits", "both", "transposed"])
@pytest.mark.parametrize("is_read", [False, True])
def test_sum_over_batches_of_16_bit_floats_is_part_of_the_dot(is_read, of, kind):
    """The dot sums in f32 and rounds for a 16-bit result only; it stays if the batches' results have another reader."""
    b = Builder()
    x, gradient = b.parameter(kind, (3, 5, 4)), b.parameter(kind, (3, 5, 6))
    product = b.dot(x, gradient, DotDimensionNumbers((1,), (1,), (0,), (0,)))
    total = b.reduce(b.convert(product, "f32"), b.constant(0.0), (0,))
    results = [total] if of in ("f32", "both") else []
    if of != "f32":
        results.append(b.convert(b.transpose(total, (1, 0)) if of == "transposed" else total, kind))
    module = b.module(b.tuple(*results, *[product] * is_read))
    after = dead_code(fold_into_dot(module))
    assert_same_results(module, after, tolerance=2e-2)
    assert opcodes(after)["reduce"] == (1 if is_read else 0)
    assert is_read or alive(after)[:-1] == (["dot", "convert"] if of == "both" else ["dot"])


@pytest.mark.parametrize(("source", "target"), [("f16", "bf16"), ("f32", "f16"), ("s8", "f16")])
def test_dots_whose_sums_are_rounded_to_another_type_stay(source, target):
    b = Builder()
    x, y = b.parameter(source, (5, 4)), b.parameter(source, (4, 6))
    numbers = DotDimensionNumbers((1,), (0,))
    dot = b.instruction("dot", Shape("f32", (5, 6)), (x, y), dot_dimension_numbers=numbers)
    assert alive(fold_into_dot(b.module(b.convert(dot, target)))) == ["dot", "convert"]


@pytest.mark.parametrize("options", [{"initial": 1.0}, {"kind": "bf16"}, {"dimensions": (0, 2)}])
def test_other_sums_stay(options):
    b = Builder()
    _, total = shared_weight_gradient(b, **options)
    module = b.module(total)
    assert opcodes(dead_code(fold_into_dot(module)))["reduce"] == 1


def test_sum_of_a_dot_that_is_read_elsewhere_stays():
    b = Builder()
    product, total = shared_weight_gradient(b)
    module = b.module(b.tuple(product, total))
    assert opcodes(dead_code(fold_into_dot(module)))["reduce"] == 1
