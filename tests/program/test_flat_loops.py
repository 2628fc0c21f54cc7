"""Rows that run as one long loop, in units of any size, have the bits of rows that run one by one."""

from __future__ import annotations

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
