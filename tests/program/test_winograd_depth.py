"""Winograd's convolutions of images with depth, and their gradients: the definition's results, and where they pay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.compile import build_program
from engine.evaluate import evaluate
from engine.host.convolutions import winograd
from engine.host.convolutions.images import Depth
from engine.host.convolutions.winograd_work import WinogradGradient, WinogradProduct
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import ConvolutionDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.run_passes import run_passes
from tests.engine.running import arguments_for, check, fast

Sizes = tuple[int, ...]
"""Images, depth, rows, columns, inputs, outputs, taps in depth, padding."""


def convolution(sizes: Sizes, gradient: bool = False) -> Module:
    """A convolution of 3 x 3 taps and some in depth, NDHWC and DHWIO; a `gradient` by the input reverses the taps."""
    images, depth, rows, columns, inputs, outputs, taps, padding = sizes
    b = Builder()
    deep, wide = (
        WindowDimension(size, padding_low=padding, padding_high=padding, window_reversal=gradient) for size in (taps, 3)
    )
    features = (4, 3) if gradient else (3, 4)
    numbers = ConvolutionDimensionNumbers(0, 4, (1, 2, 3), *features, (0, 1, 2), 0, 4, (1, 2, 3))
    x = b.parameter("f32", (images, depth, rows, columns, inputs))
    kernel = b.parameter("f32", (taps, 3, 3, outputs, inputs) if gradient else (taps, 3, 3, inputs, outputs))
    return b.module(b.convolution(x, kernel, (deep, wide, wide), numbers))


def by_input(sizes: Sizes) -> Module:
    return convolution(sizes, gradient=True)


def by_kernel(sizes: Sizes) -> Module:
    images, depth, rows, columns, inputs, outputs, taps, padding = sizes
    b = Builder()
    field = depth + 2 * padding - taps + 1, rows + 2 * padding - 2, columns + 2 * padding - 2
    window = tuple(WindowDimension(size, padding_low=padding, padding_high=padding) for size in field)
    numbers = ConvolutionDimensionNumbers(4, 0, (1, 2, 3), 0, 4, (1, 2, 3), 3, 4, (0, 1, 2))
    x = b.parameter("f32", (images, depth, rows, columns, inputs))
    return b.module(b.convolution(x, b.parameter("f32", (images, *field, outputs)), window, numbers))


def depths(module: Module) -> list[Depth]:
    """The depths of transformed convolutions and gradients."""
    program = build_program(module, ["variable"] * len(module.entry.parameters), {})
    works = [each.work for each in run_passes(program, HOST_PASSES).compute_sets]
    return [each.a.depth for each in works if isinstance(each, (WinogradProduct, WinogradGradient))]


@pytest.mark.parametrize("make", [convolution, by_input, by_kernel])
@pytest.mark.parametrize(
    "sizes",
    [(2, 4, 6, 5, 16, 24, 3, 1), (1, 3, 4, 4, 32, 16, 3, 1), (2, 3, 5, 4, 16, 33, 3, 0), (3, 5, 4, 6, 48, 16, 2, 1)],
)
@pytest.mark.sample(8)
def test_results_are_those_of_the_definition(
    make: Callable[[Sizes], Module], sizes: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    module = make(sizes)
    (depth,) = depths(module)
    assert depth.taps == sizes[6]
    check(module, tolerance=1e-4)


def test_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    for make in (convolution, by_input, by_kernel):
        assert depths(make((4, 8, 16, 16, 32, 32, 3, 1)))
    # Features of a slice must be whole vectors.
    assert not depths(convolution((4, 8, 16, 16, 9, 32, 3, 1)))


@pytest.mark.parametrize("make", [convolution, by_input, by_kernel])
def test_nan_stays_in_its_image_or_feature(make: Callable[[Sizes], Module], monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN is where the definition has it, all else has the same bits, and two workers agree."""
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    module = make((3, 4, 6, 5, 16, 32, 3, 1))
    assert depths(module)
    clean = arguments_for(module)
    faulty = [clean[0].copy(), clean[1]]
    faulty[0][1, 2, 3, 2, 5] = np.nan
    found = []
    for workers, arguments in ((1, clean), (1, faulty), (2, faulty)):
        monkeypatch.setenv("NUMBA_NUM_THREADS", str(workers))
        found.append(fast(module, arguments)[0][0])
    before, after, by_two = found
    assert after.tobytes() == by_two.tobytes()
    spread = np.isnan(after)
    assert spread[np.isnan(evaluate(module, faulty)[0])].all()
    others = np.delete(spread, 5, axis=3) if make is by_kernel else spread[[0, 2]]
    assert spread.any() and not others.any()
    np.testing.assert_array_equal(after[~spread], before[~spread])
