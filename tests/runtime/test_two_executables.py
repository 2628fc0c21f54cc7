"""Executables of one program have separate memory, parameters and variables."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.runtime.executable import Executable
from engine.runtime.feeds import RowFeed
from engine.runtime.make_executable import make_executable
from tests.engine.running import buffers


def program() -> Program:
    """Computes (x @ weights, their sum), weights + 1: products, reductions, arena, feeds, a constant, a variable."""
    b = Builder("step")
    x, weights = b.parameter("f32", (64, 40)), b.parameter("f32", (40, 30))
    offset = b.constant(np.arange(30, dtype=np.float32))
    y = b.add(b.dot(x, weights), b.broadcast(offset, (64, 30), (1,)))
    new = b.add(weights, b.splat(1.0, (40, 30)))
    made = b.module(b.tuple(y, b.reduce(y, b.constant(0.0), (0, 1)), new), aliases={1: 2})
    return build_program(made, ["feed", "variable"], {})


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_second_leaves_the_first_as_it_is(workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker is the calling thread; with two workers no call counts as too small."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
    if workers != "1":
        monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    shared = program()
    before = [each.work for each in shared.compute_sets]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 40)).astype(np.float32)
    starts = [rng.integers(-9, 9, (40, 30)).astype(np.float32) for _ in range(2)]
    held = [buffers([start]) for start in starts]
    runs = [0, 0]

    def check(number: int, executable: Executable) -> None:
        (y, total), weights = executable.run(1, [RowFeed(x)], held[number]), starts[number] + runs[number]
        runs[number] += 1
        expected = x @ weights + np.arange(30, dtype=np.float32)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(total, expected.sum(), rtol=1e-3)
        np.testing.assert_array_equal(held[number][0].read(), weights + 1)

    first = make_executable(shared)
    check(0, first)
    second = make_executable(shared)
    for _ in range(2):
        check(1, second)
        check(0, first)
    del second
    check(0, first)
    assert [each.work for each in shared.compute_sets] == before
