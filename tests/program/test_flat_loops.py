"""Rows that run as one long loop, in units of any size, have the bits of rows that run one by one.

Sums of columns are of small integers, whose order has no effect.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine.compile import build_program, compile_module
from engine.evaluate import evaluate
from engine.host.passes.flat_loops import flatten_loops
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import Module
from engine.ir.builder import Builder
from engine.program.run_passes import run_passes
from engine.program.work.fused_loop import FusedLoop
from engine.runtime import encode
from tests.engine.running import arguments_for, buffers

WIDTHS = (2, 3, 5, 6, 10, 16, 20, 24, 31, 48, 100, 128)


def biased(element_type: str, rows: int, columns: int, bias_type: str) -> Module:
    """max(0, scale * x + bias), and scale * x; x has two dimensions, the bias one, the scale none."""
    b = Builder()
    x, bias, scale = (
        b.parameter(kind, shape)
        for kind, shape in ((element_type, (rows, columns)), (bias_type, (columns,)), (element_type, ()))
    )
    scaled = b.elementwise("multiply", x, b.broadcast(scale, (rows, columns), ()))
    added = b.elementwise("add", scaled, b.broadcast(b.convert(bias, element_type), (rows, columns), (1,)))
    zero = b.broadcast(b.constant(0, element_type), (rows, columns), ())
    return b.module(b.tuple(b.elementwise("maximum", added, zero), scaled))


def loops(module: Module) -> list[FusedLoop]:
    program = run_passes(build_program(module, ["variable"] * len(module.entry.parameters), {}), HOST_PASSES)
    return [each.work for each in program.compute_sets if isinstance(each.work, FusedLoop)]


@pytest.mark.parametrize("kinds", [("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("f32", "f16"), ("s32", "s8")])
def test_periodic_rows(kinds: tuple[str, str]) -> None:
    """Tries whole vectors, rests that end anywhere, and units of any number of rows."""
    found = set()
    for columns in WIDTHS:
        module = biased(kinds[0], 1031, columns, kinds[1])
        arguments = arguments_for(module, columns)
        expected = evaluate(module, arguments)
        found |= {loop.nest.period for loop in loops(module)}
        executable = compile_module(module, ["variable"] * 3, {}, verify=True)
        for result, value in zip(executable.run(1, [], buffers(arguments)), expected, strict=True):
            assert result.tobytes() == value.tobytes(), columns
    assert {2, 6, 16, 24} <= found


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_special_values_of_periodic_rows(kind: str) -> None:
    """Results have the same bits, also in signs of zero; NaN only has the same places."""
    module = biased(kind, 997, 6, kind)
    x, bias, scale = arguments_for(module)
    bias[:5] = np.nan, np.inf, -np.inf, -0.0, 1e-37
    x[::7] = -0.0
    expected = evaluate(module, [x, bias, scale])
    assert [loop.nest.period for loop in loops(module)] == [6]
    results = compile_module(module, ["variable"] * 3, {}).run(1, [], buffers([x, bias, scale]))
    for result, value in zip(results, expected, strict=True):
        result, value = np.asarray(result, np.float32), np.asarray(value, np.float32)
        unordered = np.isnan(value)
        np.testing.assert_array_equal(np.isnan(result), unordered)
        assert result[~unordered].tobytes() == value[~unordered].tobytes()
    assert np.isnan(results[0][:, 0].astype(np.float32)).all()


@pytest.mark.parametrize(("rows", "columns"), [(784, 256), (300, 84), (64, 1)])
def test_rows_become_one_loop(rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product's units are those of the rows after it, which become one loop with the same units and bits."""
    b = Builder()
    left, right, held = (b.parameter("f32", shape) for shape in ((rows, 24), (24, columns), (rows, columns)))
    module = b.module(b.elementwise("subtract", held, b.elementwise("tanh", b.dot(left, right))))
    arguments = arguments_for(module)
    results, ranks, units = set(), [], []
    for passes in (HOST_PASSES, tuple(each for each in HOST_PASSES if each is not flatten_loops)):
        monkeypatch.setattr(encode, "HOST_PASSES", passes)
        executable = compile_module(module, ["variable"] * 3, {}, verify=True)
        results.add(executable.run(1, [], buffers(arguments))[0].tobytes())
        made = [each for each in executable._running.compute_sets if isinstance(each.work, FusedLoop)]
        ranks.append({each.work.nest.rank for each in made})
        units.append([each.units for each in made])
    assert len(results) == 1 and ranks[0] == {1} and units[0] == units[1]


def reduced(element_type: str, rows: int, columns: int, opcode: str) -> Module:
    """max(0, x - centre), its columns' sums (or other reductions), and those of x * x; the centre has one dimension."""
    b = Builder()
    x, centre = b.parameter(element_type, (rows, columns)), b.parameter(element_type, (columns,))
    start = b.parameter("f32" if element_type[-2:] == "16" else element_type, ())
    zero = b.broadcast(b.constant(0, element_type), (rows, columns), ())
    moved = b.elementwise("maximum", b.elementwise("subtract", x, b.broadcast(centre, (rows, columns), (1,))), zero)
    wide = [b.convert(each, start.array_shape.element_type) for each in (moved, b.elementwise("multiply", x, x))]
    return b.module(b.tuple(moved, *(b.reduce(each, start, (0,), opcode) for each in wide)))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "f64", "s32"])
@pytest.mark.parametrize("opcode", ["add", "maximum"])
def test_reduced_rows(kind: str, opcode: str) -> None:
    """Tries rows of few elements, rests that end anywhere, and one unit or several with sums of their own."""
    found = set()
    for columns, rows in itertools.product((2, 3, 6, 8, 10, 16, 20, 24, 48), (65, 6007)):
        module = reduced(kind, rows, columns, opcode)
        rng = np.random.default_rng(columns)
        arguments = [
            rng.integers(-2, 3, each.array_shape.dimensions).astype(each.array_shape.dtype)
            for each in module.entry.parameters
        ]
        expected = evaluate(module, arguments)
        found |= {loop.nest.period for loop in loops(module) if any(loop.nest.reduced)}
        executable = compile_module(module, ["variable"] * 3, {}, verify=True)
        for result, value in zip(executable.run(1, [], buffers(arguments)), expected, strict=True):
            np.testing.assert_array_equal(result, value, err_msg=f"{rows} x {columns}")
    assert {3, 6, 8} <= found


@pytest.mark.parametrize("opcode", ["add", "maximum", "minimum"])
def test_special_values_of_reduced_rows(opcode: str) -> None:
    """NaN and infinities reach the results of their own columns, wherever they are."""
    module = reduced("f32", 1031, 6, opcode)
    x, centre, start = np.ones((1031, 6), np.float32), np.zeros(6, np.float32), np.float32(0.5)
    for row in (0, 1, 517, 1028, 1030):
        x[:] = 1
        x[row, :3] = np.nan, np.inf, -np.inf
        expected = evaluate(module, [x, centre, np.asarray(start)])
        results = compile_module(module, ["variable"] * 3, {}).run(1, [], buffers([x, centre, np.asarray(start)]))
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, value)


def test_workers_have_no_effect_on_reduced_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each unit's sums have one order, whoever computes them."""
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    module = reduced("f32", 25088, 6, "add")
    arguments = arguments_for(module)
    executable = compile_module(module, ["variable"] * 3, {})
    results = set()
    for workers in (1, 2, 3, 4):
        monkeypatch.setenv("NUMBA_NUM_THREADS", str(workers))
        results.add(b"".join(each.tobytes() for each in executable.run(1, [], buffers(arguments))))
    assert len(results) == 1
