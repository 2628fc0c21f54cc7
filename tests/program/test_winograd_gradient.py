"""Winograd's gradients by the kernel: sizes for which they are used, results as in the definition, and errors."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.convolutions.cook_toom import LARGE, SMALL, Axes
from engine.compile import build_program
from engine.host.convolutions import winograd_sets
from engine.host.convolutions.winograd_work import WinogradGradient
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import ConvolutionDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.runtime.executable import Executable
from tests.engine.running import buffers, check
from tests.program.test_winograd import use


def gradient(
    images: int, rows: int, columns: int, inputs: int, outputs: int, padding: int = 1, kind: str = "f32"
) -> Module:
    """Builds the gradient of a convolution of NHWC with 3 x 3 taps, HWIO; its window is the outputs' gradients."""
    b = Builder()
    field = rows + 2 * padding - 2, columns + 2 * padding - 2
    window = tuple(WindowDimension(size, padding_low=padding, padding_high=padding) for size in field)
    numbers = ConvolutionDimensionNumbers(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
    x = b.parameter(kind, (images, rows, columns, inputs))
    return b.module(b.convolution(x, b.parameter(kind, (images, *field, outputs)), window, numbers))


def made(module: Module) -> Program:
    return build_program(module, ["variable"] * len(module.entry.parameters), {})


def is_transformed(program: Program) -> bool:
    return any(isinstance(each.work, WinogradGradient) for each in run_passes(program, HOST_PASSES).compute_sets)


def operands(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    images, rows, columns, inputs, outputs = shape
    x, gradients = rng.normal(size=(images, rows, columns, inputs)), rng.normal(size=(images, rows, columns, outputs))
    return x.astype(np.float32), gradients.astype(np.float32)


def exact(x: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """The gradient with one position of padding, in float64."""
    _, rows, columns, inputs = x.shape
    wide = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    flat = gradients.astype(np.float64).reshape(-1, gradients.shape[-1])
    taps = [[wide[:, i : i + rows, j : j + columns].reshape(-1, inputs).T @ flat for j in range(3)] for i in range(3)]
    return np.array(taps)


def result(shape: tuple[int, ...], *arguments: np.ndarray) -> np.ndarray:
    return Executable(made(gradient(*shape))).run(1, [], buffers(list(arguments)))[0]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((8, 32, 32, 32, 32), True),
        ((8, 8, 8, 128, 128), True),
        ((8, 2, 2, 512, 512), False),  # the transform of the sums would take longer than what it saves
        ((8, 64, 64, 3, 32), False),  # and so would the transforms of tiles
    ],
)
def test_where_it_pays(shape: tuple[int, ...], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    assert is_transformed(made(gradient(*shape))) == expected
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", "0")
    assert not is_transformed(made(gradient(*shape)))


@pytest.mark.parametrize("tile", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("shape", "padding"),
    [
        ((2, 6, 4, 16, 16), 1),
        ((1, 5, 7, 19, 24), 1),  # tiles without second rows and columns
        ((3, 7, 5, 33, 70), 1),  # more than a panel of output features
        ((8, 64, 8, 16, 16), 1),  # columns of a row of the window together, on AVX-512
        ((2, 7, 6, 16, 48), 0),
        ((2, 5, 6, 16, 48), 2),
    ],
)
def test_results_are_those_of_the_definition(
    shape: tuple[int, ...], padding: int, tile: Axes, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tile, backward=True)
    monkeypatch.setattr(winograd_sets, "SHARE_TILES", 4)
    module = gradient(*shape, padding)
    assert is_transformed(made(module))
    check(module, tolerance=1e-4)


@pytest.mark.parametrize("tile", [SMALL, LARGE])
@pytest.mark.parametrize(("kind", "tolerance"), [("f16", 6e-4), ("bf16", 4.5e-3)])
@pytest.mark.parametrize("shape", [(2, 6, 4, 16, 16), (3, 7, 5, 33, 70), (8, 64, 8, 16, 16)])
def test_half_is_rounded_once(
    shape: tuple[int, ...], kind: str, tolerance: float, tile: Axes, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tile, backward=True)
    monkeypatch.setattr(winograd_sets, "SHARE_TILES", 4)
    module = gradient(*shape, kind=kind)
    assert is_transformed(made(module))
    check(module, tolerance=tolerance)


@pytest.mark.parametrize(("tile", "times"), [(SMALL, 3), (LARGE, 8)])
def test_error_beside_direct_gradients(tile: Axes, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    use(monkeypatch, tile, backward=True)
    shape = (4, 16, 16, 32, 32)
    arguments = operands(shape)
    expected = exact(*arguments)
    transformed = result(shape, *arguments) - expected
    monkeypatch.setenv("SOFTWARE_IPU_WINOGRAD", "0")
    direct = result(shape, *arguments) - expected
    assert 0 < np.abs(transformed).max() < times * np.abs(direct).max()
    assert np.square(transformed).mean() < times**2 * np.square(direct).mean()


@pytest.mark.parametrize("tile", [SMALL, LARGE])
@pytest.mark.parametrize("number", [0, 1])
def test_infinite_operands_are_not_lost(number: int, tile: Axes, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tile, backward=True)
    shape = (2, 5, 7, 16, 48)
    arguments = operands(shape)
    arguments[number][1, 4, 6, 3] = np.inf
    with np.errstate(invalid="ignore"):
        expected = exact(*arguments)
    found = result(shape, *arguments)
    assert not np.isfinite(found[~np.isfinite(expected)]).any()
    # NaN reaches all taps of its feature, and no other features.
    assert np.isfinite(np.delete(found, 3, axis=2 + number)).all()


@pytest.mark.parametrize("shape", [(6, 16, 13, 40, 48), (6, 16, 13, 24, 16)])
def test_same_bits_for_any_number_of_workers(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    arguments = operands(shape)
    assert is_transformed(made(gradient(*shape)))
    results = set()
    for workers in (1, 2, 3):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        results.add(result(shape, *arguments).tobytes())
    assert len(results) == 1
