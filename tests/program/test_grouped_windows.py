"""Grouped convolutions in windows with a plane for each input of a group: the definition's results, separate groups."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.convolutions.window_filling import LANES
from engine.compile import build_program
from engine.host.convolutions.windows import DepthwiseGradient, DepthwiseWindows
from engine.ir import Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.work.convolution import Convolution
from engine.runtime.executable import Executable
from tests.engine.running import buffers, check
from tests.lower.test_convolution import HWIO, NHWC, numbers_for
from tests.program.test_depthwise_windows import Kind, arguments, made, on_the_host, padding

Sizes = tuple[int, int, int, int, int, int, int, int]
"""Images, inputs and outputs of a group, groups, size of an image, window, stride, dilation."""
SHAPES: list[Sizes] = [
    (2, 4, 4, 8, 14, 3, 1, 1),
    (3, 4, 4, 9, 14, 3, 2, 1),
    (2, 2, 1, 37, 15, 3, 1, 1),
    (2, 1, 2, 32, 16, 5, 1, 1),
    (2, 4, 1, 33, 15, 3, 1, 1),
    (9, 3, 2, 9, 17, 4, 2, 1),
    (2, 4, 2, 13, 17, 3, 1, 2),
    (4, 16, 2, 5, 9, 2, 1, 1),
]


def forward(
    images: int, inputs: int, outputs: int, groups: int, size: int, window: int, stride: int, dilation: int
) -> Module:
    b = Builder()
    low, high, _ = padding(size, window, stride, dilation)
    x = b.parameter("f32", (images, size, size, groups * inputs))
    kernel = b.parameter("f32", (window, window, inputs, groups * outputs))
    dimension = WindowDimension(window, stride, low, high, dilation)
    b.convolution(x, kernel, (dimension, dimension), numbers_for(2, [NHWC, HWIO, NHWC]), groups, 1)
    return b.module()


def by_input(
    images: int, inputs: int, outputs: int, groups: int, size: int, window: int, stride: int, dilation: int
) -> Module:
    b = Builder()
    low, _, count = padding(size, window, stride, dilation)
    reach = (window - 1) * dilation
    high = size + low - 1 - (count - 1) * stride
    x = b.parameter("f32", (images, count, count, groups * inputs))
    kernel = b.parameter("f32", (window, window, inputs, groups * outputs))
    dimension = WindowDimension(window, 1, reach - low, high, dilation, stride, True)
    b.convolution(x, kernel, (dimension, dimension), numbers_for(2, [NHWC, HWIO, NHWC]), groups, 1)
    return b.module()


def by_kernel(
    images: int, inputs: int, outputs: int, groups: int, size: int, window: int, stride: int, dilation: int
) -> Module:
    b = Builder()
    low, _, count = padding(size, window, stride, dilation)
    high = (window - 1) * dilation + (count - 1) * stride + 1 - size - low
    x = b.parameter("f32", (images, size, size, groups * inputs))
    g = b.parameter("f32", (images, count, count, groups * outputs))
    dimension = WindowDimension(count, dilation, low, high, stride)
    numbers = numbers_for(2, [[1, 2, 3, 0], [0, 2, 3, 1], HWIO])
    b.convolution(x, g, (dimension, dimension), numbers, 1, groups)
    return b.module()


def windows(module: Module) -> list[DepthwiseWindows | DepthwiseGradient]:
    sets = on_the_host(module).compute_sets
    return [each.work for each in sets if isinstance(each.work, (DepthwiseWindows, DepthwiseGradient))]


@pytest.mark.parametrize("kind", [forward, by_input, by_kernel])
@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.sample(12)
def test_results_are_those_of_the_definition(kind: Kind, sizes: Sizes) -> None:
    module = kind(*sizes)
    assert {each.group for each in windows(module)} == ({sizes[1:3]} if sizes[2] < LANES else set())
    check(module, tolerance=3e-5)


def test_groups_are_apart() -> None:
    """NaN in one group does not reach other groups' results; zeros around the image are multiplied."""
    for kind in (forward, by_kernel):
        module = kind(2, 4, 4, 8, 14, 3, 1, 1)
        x, y = arguments(module)
        x[0, 0, 3, 5], x[1, 2, 3, 6], y[0, 0, 0, -1] = np.nan, -np.inf, np.inf
        check(module, [x, y], tolerance=3e-5)


@pytest.mark.parametrize("kind", [forward, by_kernel])
def test_same_bits_for_any_number_of_workers(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    module = kind(3, 4, 4, 10, 24, 3, 1, 1)
    results = set()
    for workers in (1, 2, 3):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        results.add(Executable(made(module)).run(1, [], buffers(arguments(module)))[0].tobytes())
    assert len(results) == 1


@pytest.mark.parametrize("sizes", [(2, 4, LANES, 8, 14, 3, 1, 1), (2, 4, 3, 8, 14, 3, 1, 1), (2, 4, 4, 8, 14, 1, 1, 1)])
def test_others_stay_contractions(sizes: Sizes) -> None:
    """Groups that fill the lanes, or do not divide them, and windows of one tap stay contractions."""
    module = forward(*sizes)
    assert not windows(module)
    check(module, tolerance=3e-5)


def test_estimate_is_that_of_the_groups() -> None:
    program = build_program(forward(4, 4, 4, 8, 16, 3, 1, 1), ["feed"] * 2, {})
    (product,) = program.compute_sets
    assert isinstance(product.work, Convolution)
    (size,) = product.work.parts
    assert product.work_estimate.multiply_adds == 4 * 16 * 16 * 32 * 4 * 9
    assert (size.groups, size.inputs, size.outputs) == (8, 4, 4)
