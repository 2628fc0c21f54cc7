"""Winograd's convolutions store 0 where all products are 0, as direct ones do: relu's derivative depends on it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.codelets.convolutions.cook_toom import LARGE, SMALL, TileAxis, keeps_zeros
from engine.evaluate import evaluate
from engine.host.convolutions import winograd
from engine.host.convolutions.winograd_work import WinogradProduct
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import Module
from engine.program.run_passes import run_passes
from tests.engine.running import check
from tests.exploring import more_seeds
from tests.program import test_winograd as square
from tests.program import test_winograd_depth as deep
from tests.program import test_winograd_dilated as dilated
from tests.program import test_winograd_padding as padding
from tests.program import test_winograd_strides as strides
from tests.program import test_winograd_wide as wide
from tests.program.test_winograd_wide import made, run

FIVE = strides.Case(2, (20, 18), 16, 24, (5, 5), low=(2, 2), high=(2, 2))
MODULES: dict[str, Callable[[], Module]] = {
    "same": lambda: square.convolution(3, 13, 18, 16, 24),
    "valid": lambda: square.convolution(2, 12, 11, 19, 33, padding=0),
    "full": lambda: square.convolution(2, 9, 10, 24, 16, gradient=True, padding=2),
    "only padding": lambda: square.convolution(2, 6, 7, 16, 16, padding=5),
    "f16": lambda: square.convolution(2, 10, 9, 17, 24, kind="f16"),
    "bf16": lambda: square.convolution(2, 10, 9, 18, 7, kind="bf16"),
    "uneven padding": lambda: padding.padded((2, 0), (0, 1)),
    "slices": lambda: padding.padded((0, 2), (1, 2), slices=True),
    "reversed": lambda: padding.of_view((0, 1, 2, 3), (1, 2)),
    "7 x 7": lambda: wide.convolution("forward", (2, 16, 18, 16, 24), (7, 7), (3, 3)),
    "7 x 7 by input": lambda: wide.convolution("by input", (2, 15, 13, 16, 24), (7, 7), (3, 3)),
    "5 x 5": lambda: wide.convolution("forward", (2, 14, 13, 16, 24), (5, 5), (2, 2)),
    "1 x 9": lambda: wide.convolution("forward", (2, 4, 40, 16, 24), (1, 9), (0, 4)),
    "2 x 2": lambda: wide.convolution("forward", (2, 13, 14, 16, 24), (2, 2), (0, 0)),
    "strides": lambda: strides.module("forward", strides.Case(2, (20, 18), 16, 24)),
    "strides of 5 x 5": lambda: strides.module("forward", FIVE),
    "transposed": lambda: strides.module("by input", strides.Case(2, (20, 18), 16, 24)),
    "depth": lambda: deep.convolution((2, 4, 9, 8, 16, 24, 3, 1)),
    "depth by input": lambda: deep.by_input((2, 4, 9, 8, 16, 24, 2, 1)),
    "dilated": lambda: dilated.convolution("forward", (2, 48, 16, 24), 3, 2, 4, 0),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _always_transformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "WORTH", np.inf)


def with_zeros(module: Module, rng: np.random.Generator, masks: bool) -> list[np.ndarray]:
    """Images of which areas and single elements are 0 in all features, some of them -0, and a kernel with taps of 0."""
    shapes = [p.array_shape for p in module.entry.parameters]
    x, kernel = (rng.normal(size=each.dimensions).astype(each.dtype) for each in shapes)
    spatial = x.shape[1:-1]
    shown = rng.random(x.shape[:-1]) < 0.3
    for image in shown:
        middle = tuple(slice(n // 4, max(n // 4 + 1, n - rng.integers(0, n // 2 + 1))) for n in spatial)
        image[middle] = False
    x = np.where(shown[..., None], x, rng.choice(np.array([0.0, -0.0], x.dtype), x.shape))
    if masks:
        kernel[rng.random(kernel.shape[:-2]) < 0.5] = 0
    return [x, kernel]


def zeros_of(module: Module, x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Tells where all products of the definition's sums are 0."""
    return evaluate(module, [np.abs(np.sign(x)), np.abs(np.sign(kernel))])[0] == 0


@pytest.mark.parametrize("seed", more_seeds(range(1), 3))
@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_sums_of_zeros_are_zero(name: str, masks: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others are those of the definition."""
    module = MODULES[name]()
    values = with_zeros(module, np.random.default_rng(seed), masks)
    found, zeros = run(module, values), zeros_of(module, *values)
    assert any(isinstance(each.work, WinogradProduct) for each in run_passes(made(module), HOST_PASSES).compute_sets)
    assert zeros.any()
    assert not found[zeros].any()
    check(module, values, tolerance=1e-4)


def test_transforms_of_small_tiles_keep_zeros() -> None:
    axes = [SMALL[0], LARGE[0], TileAxis(2, 2), TileAxis(3, 5), TileAxis()]
    assert [keeps_zeros(each) for each in axes] == [True, False, True, False, True]


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_zeros_times_taps_that_are_not_finite_are_not_zero(kind: str, value: float) -> None:
    """Other output features have their zeros."""
    module = square.convolution(2, 12, 12, 16, 24, kind=kind)
    x, kernel = with_zeros(module, np.random.default_rng(0), masks=False)
    x[:, 2:10, 2:10] = 0
    kernel[1, 2, 3, 5] = value
    found = run(module, [x, kernel])[:, 3:9, 3:9].astype(np.float32)
    assert not np.isfinite(found[..., 5]).any()
    assert not np.delete(found, 5, axis=3).any()


def test_masked_taps_times_nan_are_not_zero() -> None:
    module = square.convolution(1, 12, 12, 16, 24)
    x, kernel = with_zeros(module, np.random.default_rng(0), masks=False)
    x[:, 2:10, 2:10] = 0
    x[0, 5, 5, 3], kernel[2, 2] = np.nan, 0
    found = run(module, [x, kernel])
    assert np.isnan(found[0, 4, 4]).all()


@pytest.mark.parametrize("masks", [False, True])
def test_same_bits_for_any_number_of_workers(masks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    module = square.convolution(5, 23, 17, 32, 48)
    values = with_zeros(module, np.random.default_rng(2), masks)
    results = set()
    for workers in (1, 2, 3):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        results.add(run(module, values).tobytes())
    assert len(results) == 1
