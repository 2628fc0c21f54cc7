"""convolution with any window, layout and grouping."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.convolutions.window_filling import LANES
from engine.compile import build_program
from engine.host.convolutions import direct, pixel_groups
from engine.host.convolutions.windows import DepthwiseWindows
from engine.host.select import select_convolutions
from engine.ir import ConvolutionDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.ir.structured_shape_rules import window_count
from engine.program.program import ComputeSet
from engine.program.work.contraction import Contraction
from engine.program.work.convolution import Convolution
from tests.engine.running import arguments_for, check, fast
from tests.lower.processors import lowered_for


def numbers_for(rank: int, orders: list[list[int]]) -> ConvolutionDimensionNumbers:
    """Input, kernel and output layouts as permutations of (batch or in, feature or out, space...)."""
    places = [[order.index(k) for k in range(rank + 2)] for order in orders]
    (a, b, *space), (c, d, *kernel), (e, f, *out) = places
    return ConvolutionDimensionNumbers(a, b, tuple(space), c, d, tuple(kernel), e, f, tuple(out))


def convolve(
    batch: int,
    features: int,
    outputs: int,
    sizes: list[int],
    window: tuple[WindowDimension, ...],
    orders: list[list[int]] | None = None,
    groups: tuple[int, int] = (1, 1),
    kind: str = "f32",
) -> None:
    rank = len(sizes)
    orders = orders or [[0, *range(2, rank + 2), 1], [*range(2, rank + 2), 0, 1], [0, *range(2, rank + 2), 1]]
    image = [batch * groups[1], features * groups[0], *sizes]
    kernel = [features, outputs * max(groups), *(w.size for w in window)]
    builder = Builder()
    x = builder.parameter(kind, [image[k] for k in orders[0]])
    y = builder.parameter(kind, [kernel[k] for k in orders[1]])
    builder.convolution(x, y, window, numbers_for(rank, orders), *groups)
    check(builder.module(), tolerance=1e-4)


def ways(module: Module) -> list[ComputeSet]:
    """The program's compute sets after the host has selected how to compute convolutions."""
    return select_convolutions(build_program(module, ["variable"] * len(module.entry.parameters), {})).compute_sets


def random_window(rng: np.random.Generator, size: int, wild: bool) -> WindowDimension:
    """A window with at least one position; `wild` ones have negative padding, dilated bases and reversal."""
    while True:
        window = WindowDimension(
            size=int(rng.integers(1, 5)),
            stride=int(rng.integers(1, 4)),
            padding_low=int(rng.integers(-2 if wild else 0, 5)),
            padding_high=int(rng.integers(-2 if wild else 0, 5)),
            window_dilation=int(rng.choice([1, 1, 2, 3])),
            base_dilation=int(rng.choice([1, 1, 2, 3])) if wild else 1,
            window_reversal=bool(wild and rng.random() < 0.4),
        )
        if window_count(size, window) > 0:
            return window


@pytest.mark.sample(30)
@pytest.mark.parametrize("seed", range(90))
def test_any_window_layout_and_group(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.choice([1, 2, 2, 2, 3]))
    sizes = [int(n) for n in rng.integers(1, 9 if rank < 3 else 5, rank)]
    window = tuple(random_window(rng, n, seed % 3 > 0) for n in sizes)
    orders = None
    if seed % 2:
        orders = [[int(k) for k in rng.permutation(rank + 2)] for _ in range(3)]
    groups = [(1, 1), (1, 1), (3, 1), (1, 2), (4, 1), (1, 4)][int(rng.integers(6))]
    batch, features, outputs = (int(n) for n in rng.integers(1, 6, 3))
    convolve(batch, features, outputs, sizes, window, orders, groups)


SAME = WindowDimension(3, 1, 1, 1)
NHWC, HWIO = [0, 2, 3, 1], [2, 3, 0, 1]


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16", "s32"])
def test_types(kind: str) -> None:
    convolve(2, 3, 5, [6, 7], (SAME, SAME), kind=kind)


@pytest.mark.parametrize("layout", [NHWC, [0, 1, 2, 3], [2, 3, 0, 1], [1, 2, 3, 0]], ids=str)
def test_layouts_large_enough_for_many_units(layout: list[int]) -> None:
    convolve(4, 16, 24, [14, 14], (SAME, SAME), [layout, HWIO, layout])


@pytest.mark.sample(4)
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_gradients_of_a_strided_layer(size: int, stride: int) -> None:
    """Gradients by the input have a dilated base and a reversed window; those by the kernel swap batch and features."""
    n, low = 11, size // 2
    forward = WindowDimension(size, stride, low, size - 1 - low)
    count = window_count(n, forward)
    convolve(2, 3, 4, [n, n], (forward, forward))
    # Every input position gets one gradient.
    padding = size - 1 - low
    high = n - ((count - 1) * stride + 1 + padding - size + 1)
    towards_input = WindowDimension(size, 1, padding, high, base_dilation=stride, window_reversal=True)
    convolve(2, 4, 3, [count, count], (towards_input, towards_input), [NHWC, [2, 3, 1, 0], NHWC])
    high = (count - 1) * stride + size - n - low
    towards_kernel = WindowDimension(count, 1, low, high, window_dilation=stride)
    convolve(3, 2, 4, [n, n], (towards_kernel, towards_kernel), [[1, 2, 3, 0], [2, 3, 0, 1], [2, 3, 0, 1]])


@pytest.mark.sample(8)
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("features, outputs", [(4, 4), (1, 3), (2, 8), (5, 1), (3, 6)])
@pytest.mark.parametrize("groups", [(8, 1), (1, 8), (15, 1), (1, 6)])
def test_groups_with_few_features(groups: tuple[int, int], features: int, outputs: int, kind: str) -> None:
    """Groups are groups of input features, or of the batch as in gradients by kernels."""
    rows, columns = WindowDimension(3, 1, 1, 1), WindowDimension(3, 2, 0, 1)
    orders = [NHWC, HWIO, NHWC]
    if groups[1] > 1:
        rows, columns = WindowDimension(17, 1, 1, 1), WindowDimension(18, 1, 0, 3, window_dilation=1)
        orders = [[1, 2, 3, 0], [0, 2, 3, 1], HWIO]
        convolve(features, 24, outputs, [17, 18], (rows, columns), orders, groups, kind)
    else:
        convolve(12, features, outputs, [17, 18], (rows, columns), orders, groups, kind)


@pytest.mark.parametrize("pairs", [False, True])
def test_first_layer_of_bf16_has_pairs_of_pixels(pairs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows over one channel are contiguous in one order of k; in it, pixels are read in place as pairs."""
    monkeypatch.setattr(direct, "multiplies_bf16_pairs", lambda: pairs)
    monkeypatch.setattr(pixel_groups, "lanes", lambda: 16)
    builder = Builder()
    x, kernel = builder.parameter("bf16", [8, 32, 32, 1]), builder.parameter("bf16", [5, 5, 1, 6])
    builder.convolution(x, kernel, (WindowDimension(5),) * 2, numbers_for(2, [NHWC, HWIO, NHWC]))
    (work,) = (each.work for each in ways(builder.module()) if isinstance(each.work, Contraction))
    assert (work.run_a % 2 == 0) == pairs


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_groups_of_16_bit_floats_are_computed_in_float32(kind: str) -> None:
    """The program keeps the sizes and types of groups; on the host, windows of float32 have full lanes."""
    builder, width = Builder(), LANES // 2
    x, kernel = builder.parameter(kind, [16, 16, 16, 8 * width]), builder.parameter(kind, [3, 3, width, 8 * width])
    builder.convolution(x, kernel, (SAME, SAME), numbers_for(2, [NHWC, HWIO, NHWC]), 8)
    (asked,) = build_program(builder.module(), ["feed"] * 2, {}).compute_sets
    assert isinstance(asked.work, Convolution)
    (size,) = asked.work.parts
    assert (size.groups, size.inputs, size.outputs) == (8, width, width)
    (product,) = (each for each in ways(builder.module()) if each.work_estimate.multiply_adds)
    assert isinstance(product.work, DepthwiseWindows)
    for each in (asked, product):
        assert each.work_estimate.multiply_adds == 16 * 16 * 16 * 8 * width * width * 9


def test_an_infinity_stays_in_its_group() -> None:
    builder = Builder()
    x, kernel = builder.parameter("f32", [4, 8, 8, 60]), builder.parameter("f32", [3, 3, 3, 60])
    builder.convolution(x, kernel, (SAME, SAME), numbers_for(2, [NHWC, HWIO, NHWC]), 20)
    module = builder.module()
    images, taps = arguments_for(module)
    images[0, 3, 3, 4] = np.inf
    check(module, [images, taps], 1e-4)


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("low", [-1, 0, 1, 3])
@pytest.mark.parametrize("outputs", [1, 3])
def test_operands_of_gradients_by_few_outputs_are_exchanged(outputs: int, low: int, kind: str) -> None:
    """Images become the window in a padded image: the images' features, here the batch, fill the lanes."""
    rows, columns = WindowDimension(24, 1, low, 4), WindowDimension(22, 1, 4, low)
    numbers = numbers_for(2, [[1, 2, 3, 0], [0, 2, 3, 1], [2, 3, 0, 1]])
    builder = Builder()
    x, y = (builder.parameter(kind, [6, *size]) for size in ((24, 22, 32), (24, 22, outputs)))
    builder.convolution(x, y, (rows, columns), numbers)
    with lowered_for("x86-64-v4"):  # of 16 lanes, which few features leave idle
        names = [each.name for each in ways(builder.module())]
    assert any("exchanged" in name for name in names), names
    check(builder.module(), tolerance=1e-4)


@pytest.mark.parametrize(
    ("size", "window", "step", "sizes"),
    [(24, 3, 2, (32, 8)), (25, 5, 2, (17, 3)), (36, 2, 3, (32, 5)), (16, 1, 1, (48, 24)), (33, 1, 2, (40, 9))],
)
def test_operands_of_gradients_of_strided_and_single_windows_are_exchanged(
    size: int, window: int, step: int, sizes: tuple[int, int]
) -> None:
    """Gradients of outputs become the image, with `step` elements between outputs; those of 1 x 1 become a product."""
    outputs = -(-size // step)
    reach = (outputs - 1) * step + window - size
    low = max(reach, 0) // 2
    dimension = WindowDimension(outputs, 1, low, reach - low, step)
    builder = Builder()
    x = builder.parameter("f32", [8, size, size, sizes[0]])
    y = builder.parameter("f32", [8, outputs, outputs, sizes[1]])
    numbers = ConvolutionDimensionNumbers(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
    builder.convolution(x, y, (dimension, dimension), numbers)
    with lowered_for("x86-64-v4"):  # of 16 lanes, which few features leave idle
        names = [each.name for each in ways(builder.module())]
    assert any("exchanged" in name for name in names), names
    check(builder.module(), tolerance=1e-4)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(("patch", "features", "outputs"), [(4, 3, 64), (8, 3, 20), (4, 5, 33), (16, 1, 16)])
def test_gradients_by_kernels_of_patches(patch: int, features: int, outputs: int, kind: str) -> None:
    """Taps are short rows of an image; 16-bit floats between them are widened with them."""
    builder = Builder()
    x = builder.parameter(kind, [6, 48, 48, features])
    y = builder.parameter(kind, [6, 48 // patch, 48 // patch, outputs])
    window = (WindowDimension(48 // patch, window_dilation=patch),) * 2
    builder.convolution(x, y, window, ConvolutionDimensionNumbers(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1)))
    check(builder.module(), tolerance=1e-4)


def test_what_is_not_finite_reaches_all_taps_of_its_features_if_operands_are_exchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.host.convolutions.exchanged.COPY", 1.0)  # less than few lanes repay
    valid = WindowDimension(32)
    builder = Builder()
    x, y = (builder.parameter("f32", [8, size, size, features]) for size, features in ((34, 16), (32, 1)))
    builder.convolution(x, y, (valid, valid), ConvolutionDimensionNumbers(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1)))
    random = np.random.default_rng(0)
    images, gradients = (random.normal(size=each.array_shape.dimensions).astype(np.float32) for each in (x, y))
    images[0, 33, 33, 5] = np.inf
    found = fast(builder.module(), [images, gradients])[0][0]
    assert np.isfinite(found).all((0, 1, 3)).tolist() == [feature != 5 for feature in range(16)]
    assert not np.isfinite(found[:, :, 5]).any()


def test_depthwise_and_its_gradient() -> None:
    convolve(2, 1, 2, [8, 9], (SAME, SAME), groups=(6, 1))
    convolve(1, 2, 3, [8, 9], (WindowDimension(8, 1, 1, 1), WindowDimension(9, 1, 1, 1)), groups=(1, 6))


@pytest.mark.parametrize(
    ("batch", "features", "outputs", "sizes"),
    [(0, 2, 3, [5, 5]), (2, 0, 3, [5, 5]), (2, 2, 0, [5, 5])],
    ids=str,
)
def test_empty_dimensions(batch: int, features: int, outputs: int, sizes: list[int]) -> None:
    convolve(batch, features, outputs, sizes, (SAME, SAME))


def test_window_over_padding_alone() -> None:
    wide = WindowDimension(1, 1, 4, 4)
    convolve(2, 3, 2, [2, 2], (wide, wide))
    gaps = WindowDimension(1, 1, 0, 0, base_dilation=4)
    convolve(2, 3, 2, [3, 3], (gaps, gaps))


def test_padding_is_zero_in_every_step_and_the_input_seen_through_moves() -> None:
    builder = Builder()
    x, w = builder.parameter("f32", (3, 2, 8, 9)), builder.parameter("f32", (3, 3, 3, 4))
    image = builder.transpose(x, (1, 2, 3, 0))
    builder.convolution(image, w, (SAME, SAME), numbers_for(2, [NHWC, HWIO, NHWC]))
    check(builder.module(), tolerance=1e-4)
