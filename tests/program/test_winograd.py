"""Winograd's convolutions: where they pay, that results equal the definition's, errors, special values."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from engine.codelets.convolutions.cook_toom import LARGE, SMALL, Axes
from engine.compile import build_program
from engine.errors import ConfigurationError
from engine.host.convolutions import winograd
from engine.host.convolutions.winograd_sets import Tiling
from engine.host.convolutions.winograd_work import WinogradKernel, WinogradProduct
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.select import select_convolutions
from engine.ir import ConvolutionDimensionNumbers, Instruction, Module, Shape, WindowDimension
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.runtime.executable import Executable
from tests.engine.running import buffers, check
from tests.program.loop_parts import below, loop, next_count, scaled

TILES = [SMALL, LARGE]


def convolution(
    images: int,
    rows: int,
    columns: int,
    inputs: int,
    outputs: int,
    gradient: bool = False,
    padding: int = 1,
    kind: str = "f32",
) -> Module:
    """A convolution of 3 x 3 taps, NHWC and HWIO; a `gradient` by the input reverses taps and exchanges features."""
    b = Builder()
    window = WindowDimension(3, padding_low=padding, padding_high=padding, window_reversal=gradient)
    features = (3, 2) if gradient else (2, 3)
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), *features, (0, 1), 0, 3, (1, 2))
    x = b.parameter(kind, (images, rows, columns, inputs))
    kernel = b.parameter(kind, (3, 3, outputs, inputs) if gradient else (3, 3, inputs, outputs))
    return b.module(b.convolution(x, kernel, (window, window), numbers))


def made(module: Module) -> Program:
    """The program with convolutions as this processor computes them, before other host passes."""
    return select_convolutions(build_program(module, ["variable"] * len(module.entry.parameters), {}))


def is_transformed(program: Program) -> bool:
    return any(isinstance(each.work, WinogradProduct) for each in run_passes(program, HOST_PASSES).compute_sets)


def exact(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution with one position of padding, in float64."""
    _, rows, columns, _ = x.shape
    wide, taps = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0))), kernel.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return sum(wide[:, i : i + rows, j : j + columns] @ taps[i, j] for i in range(3) for j in range(3))


def operands(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    images, rows, columns, inputs, outputs = shape
    x, kernel = rng.normal(size=(images, rows, columns, inputs)), rng.normal(size=(3, 3, inputs, outputs))
    return x.astype(np.float32), kernel.astype(np.float32)


def result(shape: tuple[int, ...], x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    return Executable(made(convolution(*shape))).run(1, [], buffers([x, kernel]))[0]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((8, 64, 64, 16, 16), True),
        ((8, 8, 8, 128, 128), True),
        ((8, 4, 4, 256, 256), True),  # k is split: the products are sums, not partial ones
        ((8, 2, 2, 512, 512), False),  # the kernel's transform would take longer than what it saves
        ((8, 64, 64, 3, 32), False),  # the same for the transforms of tiles
        ((1, 3, 3, 16, 16), False),
    ],
)
def test_where_it_pays(shape: tuple[int, ...], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    assert is_transformed(made(convolution(*shape))) == expected
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", "0")
    assert not is_transformed(made(convolution(*shape)))


def use(monkeypatch: pytest.MonkeyPatch, tile: Axes, backward: bool = False) -> None:
    """Makes these tiles the only ones, for all sizes."""
    monkeypatch.setattr(winograd, "WORTH", inf)
    monkeypatch.setattr(winograd, "_tilings", lambda *_: [Tiling(tile, backward=backward)])


def tiles_of(program: Program) -> set[int]:
    """The sizes of tiles of the program's transformed convolutions, in outputs along each side."""
    sets = run_passes(program, HOST_PASSES).compute_sets
    return {each.work.axes[0].outputs for each in sets if isinstance(each.work, WinogradProduct)}


@pytest.mark.parametrize(
    ("shape", "setting", "expected"),
    [
        ((8, 32, 32, 32, 32), "", {4}),
        ((8, 32, 32, 32, 32), "4", {4}),
        ((8, 32, 32, 32, 32), "2", {2}),
        ((8, 6, 6, 16, 16), "", {2}),  # tiles of 4 x 4 would be half empty
        ((8, 32, 32, 32, 32), "0", set()),
    ],
)
def test_tiles(shape: tuple[int, ...], setting: str, expected: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", setting)
    assert tiles_of(made(convolution(*shape))) == expected


def test_other_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", "3")
    with pytest.raises(ConfigurationError, match="Expected SOFTWARE_IPU_WINOGRAD .* 0 .* 2 .* 4 .* Received: '3'"):
        is_transformed(made(convolution(8, 32, 32, 32, 32)))


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 6, 4, 16, 16),
        (1, 5, 7, 19, 24),
        (3, 4, 5, 8, 33),
        (1, 3, 4, 40, 70),
        (2, 2, 2, 16, 130),
        (2, 9, 17, 24, 48),  # several tiles of either size, the last of them with one output
    ],
)
def test_results_are_those_of_the_definition(
    shape: tuple[int, ...], gradient: bool, tile: Axes, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tile)
    module = convolution(*shape, gradient)
    assert is_transformed(made(module))
    check(module, tolerance=1e-4)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(("kind", "tolerance"), [("f16", 6e-4), ("bf16", 4.5e-3)])
@pytest.mark.parametrize(
    ("shape", "gradient"), [((2, 6, 4, 16, 16), True), ((1, 5, 7, 19, 40), False), ((2, 4, 3, 256, 24), False)]
)
def test_half_is_rounded_once(
    shape: tuple[int, ...], gradient: bool, kind: str, tolerance: float, tile: Axes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images and kernels are widened and results rounded, even if a split k has partial sums in float32."""
    use(monkeypatch, tile)
    module = convolution(*shape, gradient, kind=kind)
    assert is_transformed(made(module))
    check(module, tolerance=tolerance)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_large_tiles_of_half_add_little_to_its_rounding(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is less than a hundredth larger than that of a float64 result that is rounded."""
    use(monkeypatch, LARGE)
    shape, dtype = (4, 16, 16, 64, 16), Shape(kind).dtype
    x, kernel = (each.astype(dtype) for each in operands(shape))
    expected = exact(x, kernel)
    found = Executable(made(convolution(*shape, kind=kind))).run(1, [], buffers([x, kernel]))[0]
    error, rounding = (np.square(each.astype(np.float64) - expected).mean() for each in (found, expected.astype(dtype)))
    assert 0 < error < 1.02 * rounding
    assert (found != expected.astype(dtype)).mean() < 0.02


@pytest.mark.parametrize("padding", [0, 2])
def test_other_padding(padding: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    module = convolution(2, 7, 6, 16, 16, padding=padding)
    assert is_transformed(made(module))
    check(module, tolerance=1e-4)


def test_other_windows_have_no_small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", "2")
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    for window in (
        WindowDimension(3, stride=2, padding_low=1, padding_high=1),
        WindowDimension(3, window_dilation=2, padding_low=2, padding_high=2),
        WindowDimension(3, base_dilation=2, padding_low=1, padding_high=1),
        WindowDimension(5, padding_low=2, padding_high=2),
    ):
        b = Builder()
        x, kernel = b.parameter("f32", (2, 9, 9, 16)), b.parameter("f32", (window.size, window.size, 16, 16))
        assert not is_transformed(made(b.module(b.convolution(x, kernel, (window, window), numbers))))


@pytest.mark.parametrize(("tile", "largest", "mean"), [(SMALL, 3, 3), (LARGE, 12, 6)])
@pytest.mark.parametrize("shape", [(4, 16, 16, 32, 32), (8, 4, 4, 256, 256)])
def test_error_beside_direct_convolutions(
    shape: tuple[int, ...], tile: Axes, largest: int, mean: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    use(monkeypatch, tile)
    x, kernel = operands(shape)
    expected = exact(x, kernel)
    transformed = result(shape, x, kernel) - expected
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", "0")
    direct = result(shape, x, kernel) - expected
    assert 0 < np.abs(transformed).max() < largest * np.abs(direct).max()
    assert np.square(transformed).mean() < mean**2 * np.square(direct).mean()


def test_integers_are_exact_by_small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", "2")
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    shape = (2, 6, 5, 16, 16)
    x, kernel = (np.rint(each) for each in operands(shape))
    np.testing.assert_array_equal(result(shape, x, kernel), exact(x, kernel))


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(
    ("value", "row", "column"), [(np.inf, 3, 4), (-np.inf, 0, 0), (np.nan, 7, 8), (np.inf, 0, 5), (np.nan, 6, 0)]
)
def test_infinite_inputs_make_their_tile_non_finite(
    value: float, row: int, column: int, tile: Axes, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tile)
    shape = (3, 8, 9, 16, 16)
    x, kernel = operands(shape)
    usual = result(shape, x, kernel)
    x[1, row, column, 5] = value
    changed, expected = result(shape, x, kernel), exact(x, kernel)
    assert not np.isfinite(changed[~np.isfinite(expected)]).any()
    # A tile reads one input before its first output, and one after its last output.
    side = tile[0].outputs
    starts = [[i // side * side for i in range(n)] for n in (8, 9)]
    inside = [[i - 1 <= at <= i + side for i in along] for at, along in zip((row, column), starts, strict=True)]
    outside = np.ones_like(changed, bool)
    outside[1] = ~np.logical_and.outer(*inside)[..., None]
    np.testing.assert_array_equal(changed[outside], usual[outside])


@pytest.mark.parametrize("changes", [False, True])
def test_kernels_that_a_loop_does_not_change_are_transformed_once(
    changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    window = (WindowDimension(3, padding_low=1, padding_high=1),) * 2
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    b = Builder()
    x, kernel = b.parameter("f32", (1, 4, 6, 16)), b.parameter("f32", (3, 3, 16, 16))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        y = s.elementwise("tanh", s.convolution(e[1], e[2], window, numbers))
        return [next_count(s, e[0]), y, scaled(s, e[2], 0.5) if changes else e[2]]

    module = b.module(b.tuple(*loop(b, [b.constant(0, "s32"), x, kernel], below(3), body)[1:]))
    program = run_passes(made(module), HOST_PASSES)
    at = next(at for at, each in enumerate(program.compute_sets) if isinstance(each.work, WinogradKernel))
    assert any(r.begin <= at < r.end for r in program.regions if r.repeats) == changes
    check(module, tolerance=1e-4)


@pytest.mark.parametrize(("tile", "exponent"), [(SMALL, 115), (LARGE, 107)])
def test_large_inputs_stay_finite(tile: Axes, exponent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tile)
    shape = (1, 4, 4, 16, 16)
    x, kernel = operands(shape)
    x *= np.float32(2.0**exponent)
    assert np.isfinite(result(shape, x, kernel)).all()


def test_same_bits_for_any_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    shape = (3, 10, 9, 64, 48)
    x, kernel = operands(shape)
    assert is_transformed(made(convolution(*shape)))
    results = set()
    for workers in (1, 2, 3):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        results.add(result(shape, x, kernel).tobytes())
    assert len(results) == 1
