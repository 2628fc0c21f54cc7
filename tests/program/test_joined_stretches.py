"""Work of one worker moved up to earlier work of one worker: where, and the bits stay the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.compile import build_program
from engine.ir import Instruction, Module, ScatterDimensionNumbers
from engine.ir.builder import Builder
from engine.program.host_passes.joined_stretches import join_stretches, must_keep_order, runs_alone
from engine.program.program import Mark, Program
from engine.runtime import executable as executables
from engine.runtime.executable import Executable
from engine.runtime.feeds import RowFeed
from tests.engine.running import buffers

TABLES, ROWS, WIDTH, IDS = 3, 1024, 64, 50


def updates() -> Module:
    """Tables halved, plus the rows that are added for some ids; each update sorts its ids on one worker."""
    b = Builder()
    new: list[Instruction] = []
    for _ in range(TABLES):
        table, ids, rows = (
            b.parameter("f32", (ROWS, WIDTH)),
            b.parameter("s32", (IDS,)),
            b.parameter("f32", (IDS, WIDTH)),
        )
        body = Builder("sum")
        added = b.instruction(
            "scatter",
            table.shape,
            (b.splat(0.0, (ROWS, WIDTH)), ids, rows),
            (body.build(body.add(body.parameter("f32"), body.parameter("f32"))),),
            scatter_dimension_numbers=ScatterDimensionNumbers((1,), (0,), (0,), 1),
        )
        new.append(b.add(b.multiply(table, b.splat(0.5, (ROWS, WIDTH))), added))
    return b.module(b.tuple(*new), {3 * k: k for k in range(TABLES)})


def program() -> Program:
    return build_program(updates(), ["variable", "feed", "variable"] * TABLES, {})


def alone(sets: Program) -> list[bool]:
    return [runs_alone(each) for each in sets.compute_sets]


def test_sorts_of_all_tables_come_first() -> None:
    assert alone(program()) == [True, False] * TABLES
    assert alone(join_stretches(program())) == [True] * TABLES + [False] * TABLES


@pytest.mark.parametrize("position", [1, 2])
def test_nothing_passes_control_flow(position: int) -> None:
    marked = replace(program(), marks=[Mark(position, "label", 7)])
    assert alone(join_stretches(marked)) == [True, False, True, True, False, False]


def test_order_of_what_depends_on_each_other() -> None:
    sets = program().compute_sets
    assert must_keep_order(sets[0], sets[1]) and must_keep_order(sets[1], sets[0])
    assert not must_keep_order(sets[1], sets[2])
    moved = program()
    moved.compute_sets[1].writes.extend(moved.compute_sets[2].reads)  # as if it wrote what the next one sorts
    assert alone(join_stretches(moved)) == [True, False, True, True, False, False]


@pytest.mark.parametrize("workers", [1, 2])
def test_same_values(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "worker_count", lambda: workers)
    monkeypatch.setattr(executables, "inline_work", lambda: 0)
    rng = np.random.default_rng(0)
    tables, rows = (
        rng.standard_normal((TABLES, ROWS, WIDTH), np.float32),
        rng.standard_normal((TABLES, IDS, WIDTH), np.float32),
    )
    ids = rng.integers(0, ROWS, (TABLES, IDS), np.int32)
    held = buffers([array for pair in zip(tables, rows, strict=True) for array in pair])
    Executable(program()).run(1, [RowFeed(each) for each in ids], held)
    for k in range(TABLES):
        expected = tables[k] * np.float32(0.5)
        np.add.at(expected, ids[k], rows[k])
        np.testing.assert_allclose(held[2 * k].read(), expected, rtol=1e-5, atol=1e-6)
