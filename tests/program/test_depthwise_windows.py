"""Depthwise convolutions in windows: the definition's results, no padded copies, the contraction's bits, zeros."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.compile import build_program
from engine.host.convolutions import windows
from engine.host.convolutions.windows import DepthwiseGradient, DepthwiseWindows
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.copy import Copy
from engine.runtime.executable import Executable
from tests.engine.running import buffers, check
from tests.lower.test_convolution import HWIO, NHWC, numbers_for

Sizes = tuple[int, int, int, int, int, int]
"""Images, channels, size of an image, window, stride, dilation."""
Kind = Callable[..., Module]
SHAPES: list[Sizes] = [
    (2, 8, 5, 3, 1, 1),
    (1, 33, 9, 3, 2, 1),
    (2, 16, 7, 5, 1, 1),
    (3, 24, 19, 2, 1, 1),
    (2, 17, 8, 4, 1, 1),
    (2, 40, 12, 5, 2, 1),
    (1, 16, 36, 7, 1, 1),
    (2, 19, 11, 3, 1, 2),
    (4, 48, 2, 5, 1, 1),
    (2, 3, 12, 5, 1, 1),
]


def padding(size: int, window: int, stride: int, dilation: int) -> tuple[int, int, int]:
    """The zeros before and after, and the outputs, with "same" padding."""
    outputs, reach = -(-size // stride), (window - 1) * dilation + 1
    total = max((outputs - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2, outputs


def forward(images: int, channels: int, size: int, window: int, stride: int, dilation: int) -> Module:
    b = Builder()
    low, high, _ = padding(size, window, stride, dilation)
    x, w = b.parameter("f32", (images, size, size, channels)), b.parameter("f32", (window, window, 1, channels))
    dimension = WindowDimension(window, stride, low, high, dilation)
    b.convolution(x, w, (dimension, dimension), numbers_for(2, [NHWC, HWIO, NHWC]), channels, 1)
    return b.module()


def by_input(images: int, channels: int, size: int, window: int, stride: int, dilation: int) -> Module:
    b = Builder()
    low, _, outputs = padding(size, window, stride, dilation)
    reach = (window - 1) * dilation
    high = size + low - 1 - (outputs - 1) * stride
    x, w = b.parameter("f32", (images, outputs, outputs, channels)), b.parameter("f32", (window, window, 1, channels))
    dimension = WindowDimension(window, 1, reach - low, high, dilation, stride, True)
    b.convolution(x, w, (dimension, dimension), numbers_for(2, [NHWC, HWIO, NHWC]), channels, 1)
    return b.module()


def by_kernel(images: int, channels: int, size: int, window: int, stride: int, dilation: int) -> Module:
    b = Builder()
    low, _, outputs = padding(size, window, stride, dilation)
    high = (window - 1) * dilation + (outputs - 1) * stride + 1 - size - low
    x, g = b.parameter("f32", (images, size, size, channels)), b.parameter("f32", (images, outputs, outputs, channels))
    dimension = WindowDimension(outputs, dilation, low, high, stride)
    numbers = numbers_for(2, [[1, 2, 3, 0], [0, 2, 3, 1], HWIO])
    b.convolution(x, g, (dimension, dimension), numbers, 1, channels)
    return b.module()


def made(module: Module) -> Program:
    return build_program(module, ["variable"] * len(module.entry.parameters), {})


def on_the_host(module: Module) -> Program:
    return run_passes(made(module), HOST_PASSES)


def arguments(module: Module) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=p.array_shape.dimensions).astype(np.float32) for p in module.entry.parameters]


@pytest.mark.parametrize("kind", [forward, by_input, by_kernel])
@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.sample(12)
def test_results_are_those_of_the_definition(kind: Kind, sizes: Sizes) -> None:
    module = kind(*sizes)
    sets = on_the_host(module).compute_sets
    assert any(isinstance(each.work, (DepthwiseWindows, DepthwiseGradient)) for each in sets)
    assert not any(isinstance(each.work, Copy) for each in sets)
    check(module, tolerance=3e-5)


@pytest.mark.parametrize("kind", [forward, by_input])
@pytest.mark.parametrize("sizes", [(2, 40, 12, 5, 2, 1), (2, 19, 11, 3, 1, 2)])
def test_outputs_have_the_bits_of_the_contraction(kind: Kind, sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    module = kind(*sizes)
    windowed = Executable(made(module)).run(1, [], buffers(arguments(module)))[0]
    monkeypatch.setattr(windows, "windowed", lambda *_: None)
    plain = Executable(made(module)).run(1, [], buffers(arguments(module)))[0]
    assert windowed.tobytes() == plain.tobytes()


@pytest.mark.parametrize("kind", [forward, by_kernel])
def test_zeros_around_an_image_are_multiplied(kind: Kind) -> None:
    """Infinity times padding gives NaN, as in the definition."""
    module = kind(2, 17, 6, 3, 1, 1)
    x, y = arguments(module)
    y[0, 0, 0, -1], x[1, 2, 3, 4] = np.inf, np.nan
    check(module, [x, y], tolerance=3e-5)


@pytest.mark.parametrize("kind", [forward, by_kernel])
def test_same_bits_for_any_number_of_workers(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    module = kind(3, 40, 20, 3, 1, 1)
    results = set()
    for workers in (1, 2, 3):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        results.add(Executable(made(module)).run(1, [], buffers(arguments(module)))[0].tobytes())
    assert len(results) == 1
