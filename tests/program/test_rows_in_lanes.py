"""Short rows that run side by side, a row in each lane, have the results of rows by themselves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine.compile import build_program, compile_module
from engine.evaluate import evaluate
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.passes.rows_in_lanes import put_rows_in_lanes
from engine.ir import Module
from engine.ir.builder import Builder
from engine.machine_code.processor import lanes
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.fused_loop import FusedLoop
from tests.emit.test_reductions import argmax_body
from tests.engine.running import arguments_for, buffers, check

ROWS = 1031
NARROW = [columns for columns in (2, 3, 5, 6) if columns < lanes()]


def reduced(kind: str, columns: int, opcode: str) -> Module:
    """A reduction of abs(x + bias) over rows, and abs(x + bias)."""
    b = Builder()
    x, bias = b.parameter(kind, (7, ROWS, columns)), b.parameter(kind, (columns,))
    value = b.elementwise("abs", b.elementwise("add", x, b.broadcast(bias, (7, ROWS, columns), (2,))))
    start = b.constant({"add": 0, "multiply": 1}.get(opcode, -100), kind)
    return b.module(b.tuple(value, b.reduce(value, start, (2,), opcode)))


def shifted(kind: str, columns: int) -> Module:
    """e**(x - y), with a number y for each row."""
    b = Builder()
    x, y = b.parameter(kind, (ROWS, columns)), b.parameter(kind, (ROWS,))
    return b.module(b.elementwise("exponential", b.elementwise("subtract", x, b.broadcast(y, (ROWS, columns), (0,)))))


def loops_of(module: Module) -> tuple[list[FusedLoop], list[FusedLoop]]:
    """The loops before and after the pass."""

    def loops(program: Program) -> list[FusedLoop]:
        return [each.work for each in program.compute_sets if isinstance(each.work, FusedLoop)]

    earlier = HOST_PASSES[: HOST_PASSES.index(put_rows_in_lanes)]
    program = run_passes(build_program(module, ["variable"] * len(module.entry.parameters), {}), earlier)
    return loops(program), loops(put_rows_in_lanes(program))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "s32", "s8", "f64"])
@pytest.mark.parametrize("opcode", ["add", "maximum", "multiply"])
def test_reductions(kind: str, opcode: str) -> None:
    for columns in NARROW:
        module = reduced(kind, columns, opcode)
        before, after = loops_of(module)
        assert [each.nest.reduced for each in before] == [(False, True)]
        assert [(each.nest.reduced, each.extents[-1]) for each in after] == [((True, False), 7 * ROWS)]
        check(module)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_functions_of_rows(kind: str) -> None:
    for columns in (2, 3):
        module = shifted(kind, columns)
        assert [each.extents for each in loops_of(module)[1]] == [(columns, ROWS)]
        check(module)


def test_greatest_of_each_row() -> None:
    """The first of equal greatest values, also among NaN, infinities and zeros of either sign."""
    b = Builder()
    x, index = b.parameter("f32", (ROWS, 4)), b.iota("s32", (ROWS, 4), 1)
    initial = b.constant(-np.inf, "f32"), b.constant(0, "s32")
    found = b.inferred("reduce", (x, index, *initial), (argmax_body("f32"),), dimensions=(1,))
    module = b.module(b.tuple(*(b.get_tuple_element(found, number) for number in range(2))))
    values = (0.0, -0.0, 1.0, np.nan, np.inf, -np.inf)
    rows = np.array(list(itertools.product(values, repeat=4)), np.float32)[: ROWS - 1]
    array = np.concatenate([rows, [[3, 4, 4, 2]]]).astype(np.float32)
    results = compile_module(module, ["variable"], {}).run(1, [], buffers([array]))
    for result, expected in zip(results, evaluate(module, [array]), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("rows", "columns"), [(2 * lanes(), 3), (ROWS, lanes()), (ROWS, 1), (ROWS, 40)])
def test_other_rows_stay(rows: int, columns: int) -> None:
    b = Builder()
    x = b.parameter("f32", (rows, columns))
    b.reduce(b.elementwise("tanh", x), b.constant(0.0, "f32"), (1,))
    before, after = loops_of(b.module())
    assert before == after


def test_sums_of_special_values() -> None:
    module = reduced("f32", 3, "add")
    x, bias = arguments_for(module)
    x[0, :5] = [[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, np.inf, 0], [-0.0, -0.0, -0.0], [1e38, 3e38, 3e38]]
    with np.errstate(all="ignore"):
        check(module, [x, bias])
