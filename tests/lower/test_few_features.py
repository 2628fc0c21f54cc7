"""Convolutions with few output features, with columns of outputs in the lanes."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.convolutions.few_features import LANES
from engine.host import select
from engine.host.convolutions import few_features
from engine.host.convolutions.few_features import FewFeatures
from engine.ir import Module, WindowDimension
from engine.ir.builder import Builder
from tests.engine.running import arguments_for, check, fast
from tests.lower.test_convolution import numbers_for, random_window, ways

SAME = WindowDimension(3, 1, 1, 1)


def module_of(
    batch: int, features: int, outputs: int, sizes: list[int], window: tuple[WindowDimension, ...], kind: str = "f32"
) -> Module:
    rank = len(sizes)
    builder = Builder()
    x = builder.parameter(kind, (batch, *sizes, features))
    kernel = builder.parameter(kind, (*(w.size for w in window), features, outputs))
    image = [0, *range(2, rank + 2), 1]
    builder.convolution(x, kernel, window, numbers_for(rank, [image, [*range(2, rank + 2), 0, 1], image]))
    return builder.module()


def works(module: Module) -> list[FewFeatures]:
    return [each.work for each in ways(module) if isinstance(each.work, FewFeatures)]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the host compute convolutions in this way whenever it is possible."""
    for name, value in {"LEAST_MULTIPLY_ADDS": 0, "LEAST_UNITS": 1}.items():
        monkeypatch.setattr(few_features, name, value)
    prefer(monkeypatch)


def prefer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the bid of this way the least."""
    found = few_features.few_cycles
    monkeypatch.setattr(select, "few_cycles", lambda draft: None if found(draft) is None else -1.0)


@pytest.mark.usefixtures("always")
@pytest.mark.sample(14)
@pytest.mark.parametrize("seed", range(80))
def test_results_are_those_of_the_definition(seed: int) -> None:
    """One to three dimensions, dilations, reversal, negative padding, transposed ones with phases without taps."""
    rng = np.random.default_rng(seed)
    rank = seed % 3 + 1
    sizes = [int(n) for n in rng.integers(1, ([60], [9, 40], [5, 7, 24])[rank - 1])]
    window = tuple(random_window(rng, n, wild=seed % 4 > 0) for n in sizes)
    last = window[-1]
    window = (*window[:-1], WindowDimension(last.size, 1, last.padding_low, 5, 1, last.base_dilation))
    batch, features, outputs = (int(n) for n in rng.integers(1, [4, 40, 5]))
    module = module_of(batch, features, outputs, sizes, window)
    assert works(module) or seed % 4  # some wild modules have no taps at all
    check(module, tolerance=5e-5)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("taps", [2, 5, 7, 9])
@pytest.mark.parametrize("outputs", [1, 3])
def test_runs_of_rows(taps: int, outputs: int) -> None:
    """Runs have as many taps as kernels do, and more rows and columns."""
    window = WindowDimension(taps, 1, taps // 2, taps // 2)
    check(module_of(1, LANES + 3, outputs, [19, 2 * LANES + 5], (window, window)), tolerance=3e-5)


def test_a_decoders_last_layer_is_of_this_kind() -> None:
    """Layers of full lanes, of 16-bit floats, or of images so small that lanes would idle are computed otherwise."""
    assert works(module_of(4, 32, 1, [64, 64], (SAME, SAME)))
    for other in (module_of(4, 32, 8, [64, 64], (SAME, SAME)), module_of(64, 32, 1, [4, 4], (SAME, SAME))):
        assert not works(other)
    assert not works(module_of(4, 32, 1, [64, 64], (SAME, SAME), "f16"))


def test_zeros_around_an_image_are_multiplied() -> None:
    """Infinity times padding is NaN, as in the definition; columns beyond the last are not stored."""
    module = module_of(4, 16, 1, [30, 37], (SAME, SAME))
    x, kernel = arguments_for(module)
    kernel[0, 0, 0, 0], x[1, 2, 3, 4] = np.inf, np.nan
    assert works(module)
    check(module, [x, kernel], tolerance=3e-5)


def test_same_bits_for_any_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    prefer(monkeypatch)  # four lanes would gain less
    module = module_of(3, 20, 3, [40, 40], (SAME, SAME))
    arguments = arguments_for(module)
    results = set()
    for workers in (1, 2, 3):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        results.add(fast(module, arguments)[0][0].tobytes())
    assert works(module) and len(results) == 1
