"""Dilated convolutions of one dimension, by Winograd's transforms of rows with as many positions as the dilation."""

from __future__ import annotations

import numpy as np
import pytest

from engine.host.convolutions import winograd
from engine.host.convolutions.winograd import undilated
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import ConvolutionDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.convolution_size import ConvolutionSize
from engine.program.run_passes import run_passes
from engine.program.work.copy import Copy
from tests.program.test_winograd_wide import KINDS, ROUNDING, check_rounded_once, is_transformed, made, operands, run

Shape = tuple[int, int, int, int]
"""Images, output positions, input and output features."""


def convolution(
    kind: str, shape: Shape, taps: int, dilation: int, low: int, high: int, element_type: str = "f32"
) -> Module:
    """A convolution with that padding, or a gradient by input or kernel, whose outputs have as many positions."""
    b, (images, positions, inputs, outputs) = Builder(), shape
    x = b.parameter(element_type, (images, positions + (taps - 1) * dilation - low - high, inputs))
    if kind == "by kernel":
        window = WindowDimension(positions, stride=dilation, padding_low=low, padding_high=high)
        numbers = ConvolutionDimensionNumbers(2, 0, (1,), 0, 2, (1,), 1, 2, (0,))
        return b.module(b.convolution(x, b.parameter(element_type, (images, positions, outputs)), (window,), numbers))
    reverse = kind == "by input"
    window = WindowDimension(
        taps, window_dilation=dilation, padding_low=low, padding_high=high, window_reversal=reverse
    )
    numbers = ConvolutionDimensionNumbers(0, 2, (1,), *((2, 1) if reverse else (1, 2)), (0,), 0, 2, (1,))
    kernel = b.parameter(element_type, (taps, *((outputs, inputs) if reverse else (inputs, outputs))))
    return b.module(b.convolution(x, kernel, (window,), numbers))


def exact(kind: str, x: np.ndarray, right: np.ndarray, taps: int, dilation: int, low: int, high: int) -> np.ndarray:
    """The convolution in float64, by definition."""
    wide = np.pad(x.astype(np.float64), ((0, 0), (low, max(high, 0)), (0, 0)))
    wide, right = wide[:, : wide.shape[1] + min(high, 0)], right.astype(np.float64)
    positions = wide.shape[1] - (taps - 1) * dilation
    parts = [wide[:, tap * dilation : tap * dilation + positions] for tap in range(taps)]
    if kind == "by kernel":
        return np.array([np.einsum("tpi,tpo->io", part, right) for part in parts])
    right = right[::-1].swapaxes(1, 2) if kind == "by input" else right
    with np.errstate(invalid="ignore"):
        return np.sum([part @ tap for part, tap in zip(parts, right, strict=True)], axis=0)


CASES = [
    ((2, 24, 16, 24), 3, 2, 4, 0),  # causal
    ((3, 40, 19, 33), 3, 4, 4, 4),  # of the same length; features that fill no vector
    ((1, 48, 16, 16), 3, 8, 0, 0),  # one image, without padding
    ((2, 30, 24, 40), 7, 3, 18, 0),  # parts of a kernel
    ((2, 36, 16, 48), 2, 6, 1, 5),  # padding that does not divide by the dilation
    ((2, 32, 16, 16), 5, 2, 7, -1),  # some of the last positions are not read
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "taps", "dilation", "low", "high"), CASES)
def test_results_are_those_of_the_definition(
    kind: str, shape: Shape, taps: int, dilation: int, low: int, high: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors are measured in half units of the last place of the sum of magnitudes."""
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    module = convolution(kind, shape, taps, dilation, low, high)
    assert is_transformed(made(module))
    x, right = operands(module)
    scale = exact(kind, abs(x), abs(right), taps, dilation, low, high) * 2.0**-24
    error = (run(module, [x, right]) - exact(kind, x, right, taps, dilation, low, high)) / scale
    assert 0 < np.sqrt(np.square(error).mean()) < 4 * ROUNDING
    assert np.abs(error).max() < 50 * ROUNDING


@pytest.mark.parametrize("element_type", ["f16", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "taps", "dilation", "low", "high"), CASES[1::2])
def test_half_is_rounded_once(
    kind: str,
    shape: Shape,
    taps: int,
    dilation: int,
    low: int,
    high: int,
    element_type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    module = convolution(kind, shape, taps, dilation, low, high, element_type)
    assert is_transformed(made(module))
    x, right = operands(module)
    check_rounded_once(run(module, [x, right]), exact(kind, x, right, taps, dilation, low, high))


@pytest.mark.parametrize("kind", KINDS)
def test_large_ones_are_transformed_and_copy_no_padding(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    program = made(convolution(kind, (16, 128, 32, 32), 3, 4, 8, 0))
    assert is_transformed(program)
    assert not any(isinstance(each.work, Copy) for each in run_passes(program, HOST_PASSES).compute_sets)
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", "0")
    assert not is_transformed(program)


@pytest.mark.parametrize("kind", KINDS)
def test_positions_that_do_not_divide_stay_direct(kind: str) -> None:
    module = convolution(kind, (16, 126, 32, 32), 3, 4, 8, 0)
    assert not is_transformed(made(module))
    x, right = operands(module)
    np.testing.assert_allclose(run(module, [x, right]), exact(kind, x, right, 3, 4, 8, 0), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_in_its_row_of_tiles(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    module = convolution("forward", (2, 32, 16, 16), 3, 4, 8, 0)
    x, right = operands(module)
    usual = run(module, [x, right])
    x[1, 13, 5] = value
    changed, expected = run(module, [x, right]), exact("forward", x, right, 3, 4, 8, 0)
    assert not np.isfinite(changed[~np.isfinite(expected)]).any()
    others = np.ones(32, bool)
    others[1::4] = False
    np.testing.assert_array_equal(changed[0], usual[0])
    np.testing.assert_array_equal(changed[1, others], usual[1, others])


def test_same_bits_for_any_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    monkeypatch.setattr(winograd, "WORTH", np.inf)
    for kind in KINDS:
        module = convolution(kind, (3, 64, 32, 40), 3, 2, 4, 0)
        values, results = operands(module), set()
        for workers in (1, 2, 3, 5):
            monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
            results.add(run(module, values).tobytes())
        assert len(results) == 1


def test_other_sizes_stay_as_they_are() -> None:
    def of(field: int, taps: int, step: float, dilation: float) -> ConvolutionSize:
        return ConvolutionSize(1, 2, 16, 16, (field,), (taps,), (step,), (dilation,), (64,))

    for same in (of(64, 3, 1, 1), of(62, 3, 1, 4), of(64, 3, 2, 4), of(8, 3, 1, 4), of(64, 3, 0.5, 1)):
        assert undilated(same) is same
    assert undilated(of(64, 3, 1, 4)).field == (16, 4)
    assert undilated(of(3, 64, 4, 1)).taps == (16, 4)
