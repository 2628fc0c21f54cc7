"""Products of few rows by a large right operand are cut along columns: which products, with the same bits."""

from __future__ import annotations

import pytest

from engine.compile import build_program, compile_module
from engine.host.passes import column_units, split_products
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import DotDimensionNumbers, Module
from engine.ir.builder import Builder
from engine.program.run_passes import run_passes
from engine.program.work.contraction import Contraction
from tests.engine.running import arguments_for, buffers

NUMBERS = {"NN": ((1,), (0,)), "TN": ((0,), (0,)), "NT": ((1,), (1,))}


def product(rows: int, columns: int, k: int, form: str) -> Module:
    b = Builder()
    left = b.parameter("f32", (k, rows) if form[0] == "T" else (rows, k))
    right = b.parameter("f32", (columns, k) if form[1] == "T" else (k, columns))
    return b.module(b.dot(left, right, DotDimensionNumbers(*NUMBERS[form])))


@pytest.fixture(autouse=True)
def no_matrix_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_products, "may_use_matrix_registers", lambda: False)


@pytest.mark.parametrize(
    ("rows", "columns", "k", "form", "width"),
    [
        (256, 1024, 1024, "NN", 64),
        (256, 1024, 1024, "NT", 64),
        (200, 768, 1024, "TN", 64),
        (192, 2000, 768, "TN", 128),  # so that the last unit has a whole panel
        (1024, 1024, 1024, "NN", 0),  # packing takes little time beside the rest
        (256, 128, 4096, "NN", 0),  # the left operand is larger
        (256, 1024, 64, "NN", 0),  # the right operand is small
        (256, 1088, 1024, "NN", 0),  # 17 panels are uneven
    ],
)
def test_where_it_pays(rows: int, columns: int, k: int, form: str, width: int) -> None:
    program = build_program(product(rows, columns, k, form), ["variable"] * 2, {})
    (made,) = run_passes(program, HOST_PASSES).compute_sets
    assert isinstance(made.work, Contraction)
    assert (made.work.grid.columns, made.work.grid.k) == (width or columns, k)
    assert made.units == made.work.unit_count


@pytest.mark.parametrize("form", sorted(NUMBERS))
def test_same_bits(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, results, grids = product(150, 500, 1100, form), set(), set()
    held = buffers(arguments_for(module))
    for share in (0.1, 10.0):
        monkeypatch.setattr(column_units, "LEAST_SHARE", share)
        executable = compile_module(module, ["variable"] * 2, {}, verify=True)
        (made,) = executable._running.compute_sets
        grids.add(made.work.grid)
        for workers in ("1", "2"):
            monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
            results.add(executable.run(1, [], held)[0].tobytes())
    assert len(results) == 1 and len(grids) == 2
