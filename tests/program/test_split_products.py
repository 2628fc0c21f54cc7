"""Large products use bf16x3 splits if there are matrix registers: which products, with results that hardly differ."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.host.passes import split_products
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import DotDimensionNumbers, Module
from engine.ir.builder import Builder
from engine.machine_code.processor import has_matrix_registers
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.contraction import Contraction
from engine.runtime import executable as executables
from engine.runtime.executable import Executable
from tests.engine.running import arguments_for, buffers

needs_registers = pytest.mark.skipif(not has_matrix_registers(), reason="no matrix registers here")


def product(rows: int, k: int, columns: int, batches: int = 0) -> Module:
    b = Builder()
    front = (batches,) * bool(batches)
    x, y = b.parameter("f32", (*front, rows, k)), b.parameter("f32", (*front, k, columns))
    numbers = DotDimensionNumbers((1,), (0,)) if not batches else DotDimensionNumbers((2,), (1,), (0,), (0,))
    return b.module(b.dot(x, y, numbers))


def made(module: Module) -> Program:
    return build_program(module, ["variable"] * len(module.entry.parameters), {})


def in_bf16(program: Program) -> bool:
    """Whether a product multiplies bfloat16."""
    return any(isinstance(each.work, Contraction) and each.work.bf16x3 for each in program.compute_sets)


def result(module: Module) -> np.ndarray:
    held = buffers([each * 4 for each in arguments_for(module)])
    return Executable(made(module)).run(1, [], held)[0]


@needs_registers
@pytest.mark.parametrize(
    ("rows", "k", "columns", "expected"),
    [
        (1024, 256, 256, True),
        (256, 784, 256, True),
        (256, 1024, 1024, True),  # rows are split once for all columns
        (32, 784, 256, False),  # splitting the right operand would take longer than it saves
        (4096, 784, 8, False),  # the same for the left operand
        (4096, 32, 256, False),
        (128, 128, 128, False),
    ],
)
def test_where_it_pays(rows: int, k: int, columns: int, expected: bool) -> None:
    program = made(product(rows, k, columns))
    assert in_bf16(run_passes(program, HOST_PASSES)) == expected
    assert not in_bf16(program)  # the estimate for the chip does not depend on the host


def test_not_where_the_variable_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    assert not in_bf16(run_passes(made(product(1024, 256, 256)), HOST_PASSES))


def test_not_without_matrix_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_products, "may_use_matrix_registers", lambda: False)
    assert not in_bf16(run_passes(made(product(1024, 256, 256)), HOST_PASSES))


@needs_registers
@pytest.mark.parametrize("shape", [(700, 300, 200), (1024, 256, 520)])
def test_results_hardly_tell(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Results have the same bits for any number of workers; multiply-adds are at most as near to the product."""
    module = product(*shape)
    assert in_bf16(run_passes(made(module), HOST_PASSES))
    x, y = (each.astype(np.float64) * 4 for each in arguments_for(module))
    found = []
    for workers in (1, 2, 3):
        monkeypatch.setattr(executables, "worker_count", lambda workers=workers: workers)
        found.append(result(module))
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    error, reference = (np.abs(each - x @ y) / (np.abs(x) @ np.abs(y)) for each in (found[0], result(module)))
    assert error.mean() <= reference.mean()
