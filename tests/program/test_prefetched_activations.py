"""Activations that the product before a loop prefetches for it: which arrays, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.host.passes import prefetched_activations
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import DotDimensionNumbers
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.contraction import Contraction
from engine.runtime import encode
from engine.runtime import executable as executables
from engine.runtime.executable import Executable
from tests.engine.running import buffers

ROWS, COLUMNS = 320, 256
NUMBERS = DotDimensionNumbers((1,), (0,))
BACK = DotDimensionNumbers((1,), (1,))


def two_layers(rows: int = ROWS, between: int = 2) -> Program:
    """tanh after each of some layers, and the gradient of the first layer's tanh, which reads its output."""
    b = Builder()
    x, w, dy = b.parameter("f32", (rows, 64)), b.parameter("f32", (64, COLUMNS)), b.parameter("f32", (rows, COLUMNS))
    square = b.parameter("f32", (COLUMNS, COLUMNS))
    saved = y = b.elementwise("tanh", b.dot(x, w, NUMBERS))
    for _ in range(between):
        y = b.elementwise("tanh", b.dot(y, square, NUMBERS))
    gradient = b.dot(b.multiply(y, dy), square, BACK)
    slope = b.subtract(b.splat(1.0, (rows, COLUMNS)), b.multiply(saved, saved))
    module = b.module(b.tuple(y, b.multiply(gradient, slope)))
    return build_program(module, ["variable"] * 4, {})


def prefetched(program: Program) -> list[int]:
    """The number of arrays that each product prefetches."""
    sets = run_passes(program, HOST_PASSES).compute_sets
    return [len(each.work.ahead) for each in sets if isinstance(each.work, Contraction)]


@pytest.fixture(autouse=True)
def no_matrix_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")


def test_arrays_of_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    assert prefetched(two_layers()) == [0, 0, 0, 0], "they are in the caches"
    monkeypatch.setattr(prefetched_activations, "FAR_BYTES", 10 * 4 * ROWS * COLUMNS)
    assert prefetched(two_layers()) == [0, 0, 0, 1]
    assert prefetched(two_layers(between=1))[-1] == 0, "it was read shortly before"
    assert prefetched(two_layers(rows=64))[-1] == 0, "it is small"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("rows", [257, ROWS])
def test_same_bits(rows: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "worker_count", lambda: workers)
    monkeypatch.setattr(executables, "inline_work", lambda: 0)
    monkeypatch.setattr(prefetched_activations, "FAR_BYTES", 1)
    assert any(prefetched(two_layers(rows)))
    random, results = np.random.default_rng(0), []
    shapes = (rows, 64), (64, COLUMNS), (rows, COLUMNS), (COLUMNS, COLUMNS)
    values = [random.standard_normal(shape, np.float32) for shape in shapes]
    without = tuple(each for each in HOST_PASSES if each is not prefetched_activations.prefetch_activations)
    for passes in (HOST_PASSES, without):
        monkeypatch.setattr(encode, "HOST_PASSES", passes)
        results.append(Executable(two_layers(rows)).run(1, [], buffers(values)))
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)
