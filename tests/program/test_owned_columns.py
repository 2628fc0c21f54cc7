"""Work between split products is cut like the next one's terms, short sums run on one worker; bits stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program, compile_module
from engine.debug import DebugExecutable
from engine.ir import DotDimensionNumbers, Instruction, Module
from engine.ir.builder import Builder
from engine.program.host_passes import split_products
from engine.program.host_passes.owned_columns import own_columns
from engine.program.host_passes.pass_list import HOST_PASSES
from engine.program.host_passes.short_sums import sum_on_one_worker
from engine.program.program import ComputeSet
from engine.program.run_passes import run_passes
from engine.runtime import encode
from engine.runtime import executable as executables
from engine.runtime.executor import Column, RowKind
from engine.runtime.feeds import RowFeed
from tests.engine.running import arguments_for, buffers

PASSES = own_columns, sum_on_one_worker
WITHOUT = tuple(each for each in HOST_PASSES if each not in PASSES)


@pytest.fixture(autouse=True)
def no_matrix_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_products, "may_use_matrix_registers", lambda: False)
    monkeypatch.setattr(executables, "inline_work", lambda: 0)


def layers(rows: int, *widths: int) -> Module:
    """A batch, with a bias and a rectifier after each product; the batch is the first parameter."""
    b = Builder()
    x = b.parameter("f32", (rows, widths[0]))
    made: Instruction = x
    for k, columns in zip(widths, widths[1:], strict=False):
        product = b.dot(made, b.parameter("f32", (k, columns)), DotDimensionNumbers((1,), (0,)))
        biased = b.add(product, b.broadcast(b.parameter("f32", (columns,)), (rows, columns), (1,)))
        made = b.elementwise("maximum", biased, b.splat(0.0, (rows, columns)))
    return b.module(made)


def roles(module: Module) -> list[str]:
    return ["feed"] + ["variable"] * (len(module.entry.parameters) - 1)


def sets_of(module: Module) -> list[ComputeSet]:
    return run_passes(build_program(module, roles(module), {}), HOST_PASSES).compute_sets


def barriers(module: Module) -> int:
    """Barriers of a step of two workers, without its first."""
    executable = compile_module(module, roles(module), {})
    executable._relocate_to(buffers(arguments_for(module)[1:]))
    return int((executable._table(False, 2)[:, Column.KIND] == RowKind.SYNC).sum())


def test_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = layers(32, 784, 256, 128, 10)
    assert barriers(module) == 2, "before the sums of both split products"
    monkeypatch.setattr(encode, "HOST_PASSES", WITHOUT)
    assert barriers(module) == 5


def test_columns_that_do_not_fill_cache_lines_are_left_alone() -> None:
    sets = sets_of(layers(32, 784, 248, 130, 10))
    assert sets[0].reads[0].partition is not None, "of the batch nothing is written in the step"
    assert [each.units for each in sets if each.name.endswith(".add")][0] > 2


@pytest.mark.parametrize(
    "widths", [(784, 256, 128, 10), (500, 320, 160, 7), pytest.param((97, 128, 64, 2), marks=pytest.mark.sample(1))]
)
def test_same_bits_and_no_undeclared_access(widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    module, rng, results = layers(32, *widths), np.random.default_rng(0), []
    steps, arguments = 20, arguments_for(module)
    rows = RowFeed(rng.standard_normal((100, widths[0]), np.float32), rng.integers(0, 100, 32 * steps))
    program = run_passes(build_program(module, roles(module), {}, verify=True), HOST_PASSES)
    (debugged,) = DebugExecutable(program).run(1, [rows], buffers(arguments[1:]))
    for passes, workers in ((WITHOUT, 1), (HOST_PASSES, 1), (HOST_PASSES, 2), (HOST_PASSES, 3)):
        monkeypatch.setattr(encode, "HOST_PASSES", passes)
        monkeypatch.setattr(executables, "worker_count", lambda workers=workers: workers)
        executable = compile_module(module, roles(module), {}, verify=True)
        results.append(executable.run(steps, [rows], buffers(arguments[1:]), "all")[0])
    assert len({each.tobytes() for each in results}) == 1
    np.testing.assert_array_equal(results[0][0], debugged)
