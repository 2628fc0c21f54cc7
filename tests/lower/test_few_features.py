"""Convolutions with few output features, with columns of outputs in the lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.codelets.convolutions.few_features import LANES
from engine.compile import build_program
from engine.host import select
from engine.host.convolutions import direct, few_features, widened
from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.few_features import FewFeatures
from engine.ir import Module, WindowDimension
from engine.ir.builder import Builder
from engine.ir.floating_point import FloatingPoint
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
    """Makes the bids of this way, in float32 or with float32 copies, the least."""
    monkeypatch.setattr(select, "few_cycles", least(select.few_cycles))
    monkeypatch.setattr(select, "widened_few_cycles", least(select.widened_few_cycles))


def least(cycles: Callable[[ConvolutionDraft], float | None]) -> Callable[[ConvolutionDraft], float | None]:
    return lambda draft: None if cycles(draft) is None else -1.0


@pytest.mark.usefixtures("always")
@pytest.mark.sample(18)
@pytest.mark.parametrize("seed", range(80))
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_results_are_those_of_the_definition(kind: str, seed: int) -> None:
    """One to three dimensions, dilations, reversal, negative padding, transposed ones with phases without taps."""
    rng = np.random.default_rng(seed)
    rank = seed % 3 + 1
    sizes = [int(n) for n in rng.integers(1, ([60], [9, 40], [5, 7, 24])[rank - 1])]
    window = tuple(random_window(rng, n, wild=seed % 4 > 0) for n in sizes)
    last = window[-1]
    window = (*window[:-1], WindowDimension(last.size, 1, last.padding_low, 5, 1, last.base_dilation))
    batch, features, outputs = (int(n) for n in rng.integers(1, [4, 40, 5]))
    module = module_of(batch, features, outputs, sizes, window, kind)
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
    """Layers of full lanes, or of images so small that lanes would idle, are computed otherwise."""
    assert works(module_of(4, 32, 1, [64, 64], (SAME, SAME)))
    assert works(module_of(4, 16, 1, [64, 64], (SAME, SAME), "f16")) or LANES < 8
    for kind in ("f32", "f16"):
        for other in ((4, 32, 8, [64, 64]), (64, 32, 1, [4, 4])):
            assert not works(module_of(*other, (SAME, SAME), kind))


@pytest.mark.skipif(LANES < 8, reason="four lanes would gain less")
@pytest.mark.parametrize("pairs", [False, True])
def test_pairs_of_bf16_are_multiplied_where_that_is_faster(pairs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (direct, widened):
        monkeypatch.setattr(each, "multiplies_bf16_pairs", lambda: pairs)
    assert bool(works(module_of(4, 16, 1, [64, 64], (SAME, SAME), "bf16"))) != pairs


def test_sums_are_as_they_are_where_exceptions_are_detected() -> None:
    module = module_of(4, 16, 1, [64, 64], (SAME, SAME), "f16")
    program = build_program(module, ["variable"] * 2, {}, floating_point=FloatingPoint(exceptions=frozenset({"oflo"})))
    assert not any(isinstance(each.work, FewFeatures) for each in select.select_convolutions(program).compute_sets)


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
