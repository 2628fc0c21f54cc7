"""Right operands that are packed once for all units of a chain: which operands, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.products.pack_panels import PanelPacking
from engine.compile import build_program
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.passes.shared_panels import share_panels
from engine.ir import DotDimensionNumbers
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.runtime import encode
from engine.runtime import executable as executables
from engine.runtime.executable import Executable
from tests.engine.running import buffers


@pytest.fixture(autouse=True)
def no_matrix_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")


def update(rows: int, columns: int, k: int) -> Program:
    """weight -= x^T dy, fused unit by unit."""
    b = Builder()
    weight, x, dy = (b.parameter("f32", shape) for shape in ((rows, columns), (k, rows), (k, columns)))
    new = b.subtract(weight, b.dot(x, dy, DotDimensionNumbers((0,), (0,))))
    return build_program(b.module(new, {0: 0}), ["variable"] * 3, {})


@pytest.mark.parametrize(
    ("rows", "columns", "k", "expected"),
    [
        (512, 512, 200, 1),
        (512, 500, 200, 0),  # the last panel is not whole
        (512, 128, 200, 0),  # rows of the right operand are near each other
        (512, 512, 1024, 0),  # not fused
    ],
)
def test_where(rows: int, columns: int, k: int, expected: int) -> None:
    made = run_passes(update(rows, columns, k), HOST_PASSES).compute_sets
    assert sum(isinstance(each.work, PanelPacking) for each in made) == expected


@pytest.mark.parametrize("workers", [1, 2])
def test_same_bits(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "worker_count", lambda: workers)
    random, results = np.random.default_rng(0), []
    values = [random.standard_normal(shape, np.float32) for shape in ((515, 512), (70, 515), (70, 512))]
    for passes in (HOST_PASSES, tuple(each for each in HOST_PASSES if each is not share_panels)):
        monkeypatch.setattr(encode, "HOST_PASSES", passes)
        held = buffers(values)
        Executable(update(515, 512, 70)).run(2, [], held)
        results.append(held[0].read())
    np.testing.assert_array_equal(*results)
    weight, x, dy = values
    np.testing.assert_allclose(results[0], weight - 2 * (x.T @ dy), rtol=1e-4, atol=1e-4)
