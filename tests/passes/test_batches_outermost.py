"""Products that readers read by batches are written transposed, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.evaluate import evaluate
from engine.ir import DotDimensionNumbers, Instruction, Module
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes import batches_outermost as rule
from engine.passes.batches_outermost import batches_outermost
from engine.program.work.contraction import Contraction
from tests.engine.running import fast

INPUTS, BATCH, COUNT, SIZE = 13, 5, 7, 33


def capsules(summed: bool = False, by_inputs: bool = False) -> Module:
    """u [b, i, p] times w [n, i, p, d] as [i, b, n, d]; its readers sum over i, and over d, for each b and n."""
    b = Builder()
    u, w = b.parameter("f32", (BATCH, INPUTS, 3)), b.parameter("f32", (COUNT, INPUTS, 3, SIZE))
    h = b.dot(u, w, DotDimensionNumbers((2,), (2,), (1,), (1,)))
    shares, v = b.parameter("f32", (BATCH, COUNT, INPUTS)), b.parameter("f32", (BATCH, COUNT, SIZE))
    sums = b.dot(shares, h, DotDimensionNumbers((2,), (0,), (0, 1), (1, 2)))
    results: list[Instruction] = [sums, b.dot(h, v, DotDimensionNumbers((3,), (2,), (1, 2), (0, 1)))]
    if by_inputs:
        results.append(b.dot(h, h, DotDimensionNumbers((1, 2), (1, 2), (0,), (0,))))
    if summed:
        results.append(b.reduce(h, b.constant(0.0), (0,)))
    return b.module(b.tuple(*results))


def arguments(module: Module) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=p.array_shape.dimensions).astype(np.float32) for p in module.entry.parameters]


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "FAR_BYTES", 1)
    monkeypatch.setattr(rule, "LEAST_BYTES", 1)


def transposes(module: Module) -> set[tuple[int, ...]]:
    return {i["dimensions"] for i in module.entry.instructions if i.opcode == "transpose"}


@pytest.mark.usefixtures("any_size")
def test_readers_have_contiguous_batches() -> None:
    module = capsules()
    changed = batches_outermost(module)
    verify(changed)
    assert transposes(changed) == {(1, 2, 0, 3)}
    given = arguments(module)
    given[0].reshape(-1)[:2] = np.nan, np.inf
    with np.errstate(all="ignore"):
        before, after = evaluate(module, given), evaluate(changed, given)
        run, _ = fast(module, given)
    for expected, received, ran in zip(before, after, run, strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(ran, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("any_size")
def test_the_product_itself_is_stored_so() -> None:
    program = build_program(capsules(), ["feed"] * 4, {})
    works = [each.work for each in program.compute_sets if isinstance(each.work, Contraction)]
    assert len(works) == len(program.compute_sets) == 3
    assert works[0].c.buffer.shape.dimensions == (BATCH, COUNT, INPUTS, SIZE)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("module", [capsules(summed=True), capsules(by_inputs=True)])
def test_products_with_other_readers_stay(module: Module) -> None:
    assert batches_outermost(module) is module


def test_rows_that_are_near_each_other_stay() -> None:
    module = capsules()
    assert batches_outermost(module) is module
