"""Products that are worth two workers are cut so that both have about as much to do."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.ir import DotDimensionNumbers
from engine.ir.builder import Builder
from engine.program.syncs import ranges_of
from tests.engine.running import fast

FORMS = {"NN": ((1,), (0,)), "TN": ((0,), (0,)), "NT": ((1,), (1,))}


@pytest.mark.parametrize(
    ("form", "rows", "columns", "k"),
    [
        ("NN", 32, 64, 256),
        ("TN", 256, 64, 32),
        ("NT", 32, 256, 64),
        ("NT", 32, 784, 256),
        ("NT", 128, 784, 256),
        ("TN", 400, 120, 32),
        ("NN", 512, 512, 512),
        ("TN", 784, 256, 32),
        ("NN", 256, 256, 784),
        ("TN", 784, 256, 256),
        ("TN", 128, 512, 1024),
    ],
)
def test_neither_of_two_workers_has_much_more(form: str, rows: int, columns: int, k: int) -> None:
    b = Builder()
    left = b.parameter("f32", (k, rows) if form[0] == "T" else (rows, k))
    right = b.parameter("f32", (columns, k) if form[1] == "T" else (k, columns))
    b.dot(left, right, DotDimensionNumbers(*FORMS[form]))
    product = build_program(b.module(), ["variable", "variable"], {}).compute_sets[0]
    (_, first), (second, last) = ranges_of(product, 2)
    assert (first, last) == (second, product.units)
    partition = product.writes[0].partition
    assert partition is not None
    share = min(first * partition.grain, partition.extent) / partition.extent
    assert 0.45 < share < 0.55


@pytest.mark.parametrize(("rows", "columns", "k", "sets"), [(128, 4099, 64, 1), (100, 9000, 200, 1), (32, 512, 784, 2)])
def test_vocabularies_have_no_partial_sums(rows: int, columns: int, k: int, sets: int) -> None:
    """Partial sums over k that are larger than the weight would leave the caches."""
    b = Builder()
    b.dot(b.parameter("f32", (rows, k)), b.parameter("f32", (k, columns)))
    module = b.module()
    assert len(build_program(module, ["feed", "variable"], {}).compute_sets) == sets
    rng = np.random.default_rng(k)
    left, right = (rng.normal(size=p.array_shape.dimensions).astype(np.float32) for p in module.entry.parameters)
    np.testing.assert_allclose(fast(module, [left, right])[0][0], left @ right, rtol=1e-3, atol=1e-4)
