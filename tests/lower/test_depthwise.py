"""Depthwise convolutions and their gradients as contractions: lanes over channels, in few units."""

from __future__ import annotations

import numpy as np
import pytest

from engine.host.convolutions import windows
from engine.ir import Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.work.contraction import Contraction
from tests.engine.running import check
from tests.lower.test_convolution import HWIO, NHWC, numbers_for, ways
from tests.program.machine import machine_of

KINDS = ("f32", "f16", "bf16")


@pytest.fixture(autouse=True)
def _no_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves float32 to contractions too, as where programs check for exceptions."""
    monkeypatch.setattr(windows, "windowed", lambda *_: None)


def same(size: int, stride: int = 1) -> tuple[WindowDimension, ...]:
    return (WindowDimension(size, stride, size // 2, (size - 1) // 2),) * 2


def forward(kind: str, channels: int, size: int, window: int, stride: int) -> Module:
    builder = Builder()
    x, w = builder.parameter(kind, (2, size, size, channels)), builder.parameter(kind, (window, window, 1, channels))
    builder.convolution(x, w, same(window, stride), numbers_for(2, [NHWC, HWIO, NHWC]), channels, 1)
    return builder.module()


def towards_kernel(kind: str, channels: int, size: int, window: int, batch: int = 2) -> Module:
    """Builds the gradient by a depthwise kernel as TensorFlow does: batches are features, and channels groups."""
    builder = Builder()
    x, y = (builder.parameter(kind, (batch, size, size, channels)) for _ in range(2))
    dimension = WindowDimension(size, 1, window // 2, (window - 1) // 2)
    numbers = numbers_for(2, [[1, 2, 3, 0], [0, 2, 3, 1], HWIO])
    builder.convolution(x, y, (dimension, dimension), numbers, 1, channels)
    return builder.module()


def product(module: Module) -> Contraction:
    (found,) = (each.work for each in ways(module) if isinstance(each.work, Contraction))
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("channels", "size", "window", "stride"), [(3, 12, 5, 1), (8, 5, 3, 1), (33, 16, 3, 2), (64, 15, 5, 1)]
)
def test_forward(kind: str, channels: int, size: int, window: int, stride: int) -> None:
    module = forward(kind, channels, size, window, stride)
    assert product(module).depthwise
    check(module, tolerance=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("channels", "size", "window"), [(17, 6, 3), (3, 5, 3), (40, 32, 3), (24, 33, 5)])
def test_towards_the_kernel(kind: str, channels: int, size: int, window: int) -> None:
    module = towards_kernel(kind, channels, size, window)
    work = product(module)
    assert work.depthwise and (work.splits > 1) == (size > 6)
    check(module, tolerance=2e-5)


def test_units_write_what_they_declare() -> None:
    for module in (forward("f32", 20, 32, 3, 1), towards_kernel("f32", 20, 32, 3)):
        rng = np.random.default_rng(0)
        arrays = [rng.normal(size=p.array_shape.dimensions).astype(np.float32) for p in module.entry.parameters]
        expected = machine_of(module, arrays).run()
        reverse = machine_of(module, arrays).run(lambda count: reversed(range(count)))
        assert product(module).unit_count > 1
        for one, other in zip(expected, reverse, strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_order_of_sums_is_that_of_other_convolutions() -> None:
    """A channel has the same bits as when it is alone."""
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(2, 9, 9, 16)).astype(np.float32), rng.normal(size=(3, 3, 1, 16)).astype(np.float32)
    (together,) = machine_of(forward("f32", 16, 9, 3, 1), [x, w]).run()
    alone = forward("f32", 1, 9, 3, 1)
    assert not product(alone).depthwise
    for channel in (0, 15):
        one = [np.ascontiguousarray(each[..., channel : channel + 1]) for each in (x, w)]
        np.testing.assert_array_equal(machine_of(alone, one).run()[0], together[..., channel : channel + 1])
