"""Operands of the next head that a product prefetches: which operands, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.products.contract_fields import NextUnit
from engine.compile import build_program
from engine.host.passes import prefetched_units
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.unit_chain import UnitChain
from engine.ir import DotDimensionNumbers, Instruction, Module
from engine.ir.builder import Builder
from engine.program.run_passes import run_passes
from engine.program.work.contraction import Contraction
from engine.runtime import encode
from engine.runtime import executable as executables
from engine.runtime.executable import Executable
from tests.engine.running import buffers

BOTH = NextUnit.A + NextUnit.B
without = tuple(each for each in HOST_PASSES if each is not prefetched_units.prefetch_units)


@pytest.fixture(autouse=True)
def no_matrix_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")


def heads(batch: int, count: int, rows: int, size: int, *, chained: bool = False) -> Module:
    """Scores q k^T and shares^T v of heads inside rows; if `chained`, the shares are the scores' exponentials."""
    b = Builder()
    q, k, v = (b.parameter("f32", (batch, rows, count, size)) for _ in range(3))
    scores: Instruction = b.dot(q, k, DotDimensionNumbers((3,), (3,), (0, 2), (0, 2)))
    if chained:
        shares = b.elementwise("exponential", scores)
        return b.module(b.dot(shares, v, DotDimensionNumbers((3,), (1,), (0, 1), (0, 2))))
    given = b.parameter("f32", (batch, count, rows, rows))
    return b.module(b.tuple(scores, b.dot(given, v, DotDimensionNumbers((2,), (1,), (0, 1), (0, 2)))))


def prefetched(module: Module) -> list[int]:
    """`next_unit` of each product, in order."""
    program = build_program(module, ["variable"] * len(module.entry.parameters), {})
    found: list[int] = []
    for each in run_passes(program, HOST_PASSES).compute_sets:
        works = [link.work for link in each.work.links] if isinstance(each.work, UnitChain) else [each.work]
        found += [work.next_unit for work in works if isinstance(work, Contraction)]
    return found


def test_where() -> None:
    assert prefetched(heads(16, 8, 64, 32)) == [BOTH, BOTH]
    assert prefetched(heads(1, 8, 64, 32)) == [0, 0], "they stay in the cache"
    assert prefetched(heads(4, 2, 512, 64)) == [0, 0], "a head is large"
    assert prefetched(heads(32, 8, 64, 32, chained=True)) == [BOTH, NextUnit.B], "shares are in scratch"


@pytest.mark.parametrize(("batch", "count", "rows", "size"), [(3, 3, 65, 17), (2, 4, 20, 64), (5, 1, 130, 16)])
@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_same_bits(
    batch: int, count: int, rows: int, size: int, chained: bool, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executables, "worker_count", lambda: workers)
    monkeypatch.setattr(executables, "inline_work", lambda: 0)
    monkeypatch.setattr(prefetched_units, "LEAST_SHARE", 0)
    module, random, results = heads(batch, count, rows, size, chained=chained), np.random.default_rng(0), []
    assert any(prefetched(module))
    values = [random.standard_normal(each.array_shape.dimensions, np.float32) for each in module.entry.parameters]
    for passes in (HOST_PASSES, without):
        monkeypatch.setattr(encode, "HOST_PASSES", passes)
        program = build_program(module, ["variable"] * len(values), {})
        results.append([np.array(each) for each in Executable(program).run(1, [], buffers(values))])
    assert len(results[0]) == 2 - chained
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
