"""Gradients of tables that name few rows, over micro-batches, have the bits of whole gradients added one by one."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import compile_module
from engine.evaluated_executable import EvaluatedExecutable
from engine.ir import Module
from engine.ir.builder import Builder, binary_computation
from engine.ir.verifier import verify
from engine.partition.accumulation import Accumulation
from engine.partition.pipeline import Pipelining, pipeline
from engine.partition.repeat import repeat
from engine.passes.sparse_updates import ROW_SCATTER
from engine.runtime.feeds import RowFeed
from tests.partition.stage_steps import scope
from tests.partition.steps import mark
from tests.partition.test_repeat import buffers

ROWS, WIDTH = 16384, 16
ROLES = ["feed", "feed", "variable", "variable"]


def table_step(named: int, table: tuple[int, int] = (ROWS, WIDTH)) -> Module:
    """A step with momentum on a table whose gradient is twice the sum of the fed rows, by ids; it has two stages."""
    b = Builder("step")
    ids, rows = b.parameter("s32", (named,)), b.parameter("f32", (named, table[1]))
    old, moment = b.parameter("f32", table), b.parameter("f32", table)
    with scope(b, "ipu_stage_0/first"):
        once = b.elementwise("abs", rows)
    with scope(b, "ipu_stage_1_1/second"):
        twice = b.add(rows, b.multiply(once, b.elementwise("sign", rows)))
    add = binary_computation("add", "f32")
    operands = (b.splat(0.0, table), ids, twice)
    gradient = b.instruction("scatter", old.shape, operands, (add,), scatter_dimension_numbers=ROW_SCATTER)
    new = b.add(b.multiply(moment, b.splat(0.5, table)), mark(b, gradient))
    results = b.tuple(b.subtract(old, b.multiply(new, b.splat(0.25, table))), new)
    return b.module(results, {2: 0, 3: 1})


def fed(named: int, batches: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids that repeat in and between batches, with the last row and numbers of no row; some rows of -0 and NaN."""
    rng = np.random.default_rng(named)
    ids = rng.integers(-2, 12, (batches, named)).astype(np.int32)
    ids[:, 0], ids[1, 1] = ROWS - 1, ROWS
    rows = rng.normal(size=(batches, named, WIDTH)).astype(np.float32)
    rows[:, ::3], rows[0, 1, 2] = -0.0, np.nan
    return ids, rows


def expected(named: int, accumulation: Accumulation, updates: int, start: np.ndarray) -> list[np.ndarray]:
    ids, rows = fed(named, updates * accumulation.micro_batches)
    table, moment = start.copy(), np.zeros_like(start)
    for update in range(updates):
        total = np.zeros_like(table)
        for at in range(update * accumulation.micro_batches, (update + 1) * accumulation.micro_batches):
            gradient, inside = np.zeros_like(table), (ids[at] >= 0) & (ids[at] < ROWS)
            np.add.at(gradient, ids[at][inside], 2 * rows[at][inside])
            total += gradient / np.float32(accumulation.steps) if accumulation.reduction == "mean" else gradient
        moment = moment / 2 + total
        table = table - moment / 4
    return [table, moment]


@pytest.mark.parametrize("executable", [compile_module, EvaluatedExecutable])
@pytest.mark.parametrize(
    ("named", "accumulation"),
    # Few ids are compared with each other, more are looked up among all rows.
    [(7, Accumulation(3, 1)), (20, Accumulation(3, 2, "mean")), (150, Accumulation(2, 1)), (9, Pipelining(2, 4))],
)
def test_sums_are_those_of_whole_gradients(executable, named: int, accumulation: Accumulation | Pipelining) -> None:
    module, updates = table_step(named), 2
    if isinstance(accumulation, Pipelining):
        repeated = pipeline(module, ROLES, accumulation)
        accumulation = Accumulation(accumulation.steps)
    else:
        repeated = repeat(module, ROLES, accumulation)
    verify(repeated.module)
    of_loop = [s for i in repeated.module.entry.instructions if i.opcode == "while" for s in i.tuple_shapes]
    assert max(shape.elements for shape in of_loop) < ROWS * WIDTH
    start = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
    held = buffers([start, np.zeros_like(start)])
    ids, rows = fed(named, updates * accumulation.micro_batches)
    feeds = [RowFeed(ids.reshape(-1)), RowFeed(rows.reshape(-1, WIDTH))]
    executable(repeated.module, repeated.roles, {}).run(updates, feeds, held)
    for received, value in zip(held, expected(named, accumulation, updates, start), strict=True):
        np.testing.assert_array_equal(received.read(), value)


@pytest.mark.parametrize(
    ("named", "table", "accumulation"),
    [
        (200, (ROWS, WIDTH), Accumulation(8)),
        (8, (ROWS // 2, WIDTH), Accumulation(2)),
        (8, (ROWS, WIDTH), Accumulation(2, 1, "running_mean")),
    ],
)
def test_many_rows_small_tables_and_running_means_are_added_whole(
    named: int, table: tuple[int, int], accumulation: Accumulation
) -> None:
    module = repeat(table_step(named, table), ROLES, accumulation).module
    shapes = [s for i in module.entry.instructions if i.opcode == "while" for s in i.tuple_shapes]
    assert max(shape.elements for shape in shapes) == table[0] * table[1]
