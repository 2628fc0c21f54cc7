"""Arrays that a chain's product prefetches for its update: which arrays, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.host.passes import prefetched_updates
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.unit_chain import UnitChain
from engine.ir import DotDimensionNumbers, Instruction
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.contraction import Contraction
from engine.runtime import encode
from engine.runtime import executable as executables
from engine.runtime.executable import Executable
from tests.engine.running import buffers


@pytest.fixture(autouse=True)
def no_matrix_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")


def update(count: int, rows: int, columns: int, k: int) -> Program:
    """Updates of `count` arrays: each adds itself and the new value of the array before, the first one x^T dy."""
    b = Builder()
    arrays = [b.parameter("f32", (rows, columns)) for _ in range(count)]
    x, dy = b.parameter("f32", (k, rows)), b.parameter("f32", (k, columns))
    new: list[Instruction] = [b.dot(x, dy, DotDimensionNumbers((0,), (0,)))]
    for each in arrays:
        new.append(b.add(b.multiply(each, b.splat(0.5, (rows, columns))), new[-1]))
    module = b.module(b.tuple(*new[1:]), {number: number for number in range(count)})
    return build_program(module, ["variable"] * (count + 2), {})


def prefetched(program: Program) -> set[str]:
    """The names of the arrays that the only chain prefetches."""
    chains = [each.work for each in run_passes(program, HOST_PASSES).compute_sets if isinstance(each.work, UnitChain)]
    assert len(chains) == 1
    product = chains[0].links[0].work
    assert isinstance(product, Contraction)
    return {address.buffer.name for address in product.ahead}


def test_where() -> None:
    assert not prefetched(update(2, 512, 512, 70)), "it stays in the cache"
    assert len(prefetched(update(2, 1536, 1024, 70))) == 2


@pytest.mark.parametrize(("count", "rows", "columns", "k"), [(1, 515, 512, 70), (3, 300, 640, 256), (4, 515, 500, 33)])
@pytest.mark.parametrize("workers", [1, 2])
def test_same_bits(count: int, rows: int, columns: int, k: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "worker_count", lambda: workers)
    monkeypatch.setattr(executables, "inline_work", lambda: 0)
    monkeypatch.setattr(prefetched_updates, "LEAST_SHARE", 0)
    assert len(prefetched(update(count, rows, columns, k))) == min(count, 3)
    random, results = np.random.default_rng(0), []
    shapes = [*[(rows, columns)] * count, (k, rows), (k, columns)]
    values = [random.standard_normal(shape, np.float32) for shape in shapes]
    without = tuple(each for each in HOST_PASSES if each is not prefetched_updates.prefetch_updates)
    for passes in (HOST_PASSES, without):
        monkeypatch.setattr(encode, "HOST_PASSES", passes)
        held = buffers(values)
        Executable(update(count, rows, columns, k)).run(1, [], held)
        results.append([each.read() for each in held[:count]])
    np.testing.assert_array_equal(*results)
    expected = values[-2].T.astype(np.float64) @ values[-1]
    for value, result in zip(values[:count], results[0], strict=True):
        expected = expected + 0.5 * value
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
