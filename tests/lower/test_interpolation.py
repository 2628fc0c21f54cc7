"""Interpolations of images against their definition: sizes, infinities and NaN, executors and files."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from engine.compile import build_program
from engine.debug import DebugExecutable
from engine.errors import InternalError
from engine.evaluate import evaluate
from engine.files.checks import check_module
from engine.ir import Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.ir.interpolation import INTERPOLATION, interpolation, interpolation_shape
from engine.program.work.interpolation import taps_of
from engine.runtime.executable import Executable
from tests.engine.running import buffers
from tests.program.machine import Machine

SIZES = [((5, 7), (9, 4)), ((8, 8), (16, 16)), ((6, 1), (3, 5)), ((1, 4), (6, 1)), ((4, 4), (4, 4)), ((17, 3), (2, 33))]
CHANNELS = [1, 3, 16, 37]
SETTINGS = [(False, True), (True, False), (False, False)]
EXTREMES = np.float32([np.nan, np.inf, -np.inf, -0.0, 3e38, 1e-40])


def naive(images: np.ndarray, size: tuple[int, int], corners: bool, centers: bool) -> np.ndarray:
    """The definition: each pixel is computed from the four around its place, some of which may be the same."""
    n, height, width, channels = images.shape
    result = np.zeros((n, *size, channels))
    places = [_place(*each, corners, centers) for each in zip((height, width), size, strict=True)]
    for i, j in product(range(size[0]), range(size[1])):
        for (row, by_row), (column, by_column) in product(places[0][i], places[1][j]):
            if by_row * by_column:
                result[:, i, j] += by_row * by_column * images[:, row, column].astype(np.float64)
    return result


def _place(size: int, count: int, corners: bool, centers: bool) -> list[list[tuple[int, float]]]:
    scale = (size - 1) / (count - 1) if corners and count > 1 else size / count
    found = []
    for number in range(count):
        at = (number + 0.5) * scale - 0.5 if centers else number * scale
        low, share = int(np.floor(at)), at - np.floor(at)
        found.append([(min(max(low, 0), size - 1), 1 - share), (min(max(low + 1, 0), size - 1), share)])
    return found


def module_of(shape: tuple[int, ...], size: tuple[int, int], corners: bool, centers: bool, gradient: bool) -> Module:
    b = Builder()
    config = json.dumps({"size": list(size), "corners": corners, "centers": centers, "gradient": gradient})
    named = {"custom_call_target": INTERPOLATION, "backend_config": config, "custom_call_has_side_effect": False}
    given = b.parameter("f32", shape)
    made = interpolation_shape(Instruction("x", "custom-call", Shape("f32"), (given,), named))
    return b.module(b.instruction("custom-call", made, (given,), **named))


def run(module: Module, images: np.ndarray) -> np.ndarray:
    """The result, which must be the same on the debug executor, and in guarded memory with units in reverse."""
    check_module(module)
    program = build_program(module, ["variable"], {}, verify=True)
    (result,) = Executable(program).run(1, [], buffers([images]))
    (debugged,) = DebugExecutable(program).run(1, [], buffers([images]))
    assert debugged.tobytes() == result.tobytes()
    Machine(program, {0: images}).run(lambda units: reversed(range(units)))
    return np.asarray(result)


@pytest.mark.parametrize("corners, centers", SETTINGS)
@pytest.mark.parametrize("sides, size", SIZES)
def test_values_and_gradients(sides: tuple[int, int], size: tuple[int, int], corners: bool, centers: bool) -> None:
    rng = np.random.default_rng(sum(sides))
    for channels in CHANNELS:
        images = rng.normal(size=(3, *sides, channels)).astype(np.float32)
        module = module_of(images.shape, size, corners, centers, False)
        (defined,) = evaluate(module, [images])
        np.testing.assert_allclose(defined, naive(images, size, corners, centers), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(run(module, images), defined, rtol=1e-6, atol=1e-6)
        given = rng.normal(size=defined.shape).astype(np.float32)
        back = module_of(given.shape, sides, corners, centers, True)
        (gradient,) = evaluate(back, [given])
        np.testing.assert_allclose(np.vdot(defined, given), np.vdot(images, gradient), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(run(back, given), gradient, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("gradient", [False, True])
def test_elements_that_are_not_finite_are_read_by_their_neighbours_alone(gradient: bool) -> None:
    rng = np.random.default_rng(3)
    images = rng.normal(size=(2, 12, 10, 5)).astype(np.float32)
    images[rng.random(images.shape) < 0.05] = rng.choice(EXTREMES, (rng.random(images.shape) < 2).sum())[0]
    for value in EXTREMES:
        images[0, rng.integers(12), rng.integers(10), rng.integers(5)] = value
    module = module_of(images.shape, (6, 20), False, True, gradient)
    with np.errstate(all="ignore"):
        (expected,) = evaluate(module, [images])
        received = run(module, images)
    assert 0 < np.isfinite(received).sum() < received.size
    np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-6)


def test_taps_are_those_that_are_not_zero() -> None:
    matrix = interpolation(5, 9, False, True)
    taps, weights = taps_of(matrix)
    found = np.zeros_like(matrix)
    for row, (first, count, begin) in enumerate(taps):
        found[row, first : first + count] = weights[begin : begin + count]
    np.testing.assert_array_equal(found, matrix)
    assert taps[:, 1].max() == 2
    assert taps_of(np.zeros((2, 3), np.float32))[0].tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"size": [2], "corners": False, "centers": False, "gradient": False},
        {"size": [2, 0], "corners": False, "centers": False, "gradient": False},
        {"size": [2, 2], "corners": 1, "centers": False, "gradient": False},
        {"size": [2, 2], "corners": True, "centers": True, "gradient": False},
    ],
)
def test_other_settings_are_refused(config: dict[str, object]) -> None:
    images = Builder().parameter("f32", (1, 2, 2, 1))
    named = {"custom_call_target": INTERPOLATION, "backend_config": json.dumps(config)}
    with pytest.raises(InternalError, match="settings"):
        interpolation_shape(Instruction("x", "custom-call", Shape("f32"), (images,), named))
