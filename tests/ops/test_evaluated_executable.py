"""The slow executor behind the fast one's interface: feeds, variables, constants, outputs."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import StepCountError
from engine.evaluated_executable import EvaluatedExecutable
from engine.ir import Shape
from engine.ir.builder import Builder
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.feeds import RowFeed
from tests.ops.running import same


def accumulating() -> EvaluatedExecutable:
    """total += s * sum(x) + c of feeds x[2, 3] and s; returns sum(x) and total + c."""
    b = Builder()
    x, total = b.parameter("f32", (2, 3)), b.parameter("f32", (3,))
    constant, scalar = b.parameter("f32", (3,)), b.parameter("f32")
    summed = b.reduce(x, b.constant(0.0), (0,))
    scaled = b.add(b.multiply(summed, b.broadcast(scalar, (3,), ())), constant)
    new_total = b.add(total, scaled)
    module = b.module(b.tuple(summed, new_total, b.add(new_total, constant)), aliases={1: 1})
    return EvaluatedExecutable(module, ["feed", "variable", "constant", "feed"], {2: np.full(3, 0.5, np.float32)})


ROWS = np.arange(24, dtype=np.float32).reshape(8, 3)
SCALES = np.array([1, 10, 100], np.float32)


@pytest.mark.parametrize("order", [None, np.array([7, 1, 0, 2, 3, 3], np.int64)])
def test_steps_take_rows_and_update_variables(order: np.ndarray | None) -> None:
    total = DeviceBuffer(Shape("f32", (3,)))
    total.write(np.ones(3, np.float32))
    feeds = [RowFeed(ROWS, order), RowFeed(SCALES)]
    sums, after = accumulating().run(3, feeds, [total], "all")
    rows = ROWS if order is None else ROWS[order]
    expected = rows[:6].reshape(3, 2, 3).sum(1)
    same(sums, expected)
    totals = 1 + np.cumsum(expected * SCALES[:, None] + np.float32(0.5), 0)
    same(after, (totals + 0.5).astype(np.float32))
    same(total.read(), totals[-1].astype(np.float32))


def test_last_step_alone_is_returned() -> None:
    total = DeviceBuffer(Shape("f32", (3,)))
    sums, _ = accumulating().run(2, [RowFeed(ROWS), RowFeed(SCALES)], [total])
    same(sums, ROWS[2:4].sum(0))


def test_steps_that_the_feeds_cannot_serve_change_nothing() -> None:
    total = DeviceBuffer(Shape("f32", (3,)))
    with pytest.raises(StepCountError, match="at most 3 steps"):
        accumulating().run(4, [RowFeed(ROWS), RowFeed(SCALES)], [total])
    with pytest.raises(StepCountError, match="at least 1 step"):
        accumulating().run(0, [RowFeed(ROWS), RowFeed(SCALES)], [total])
    same(total.read(), np.zeros(3, np.float32))
