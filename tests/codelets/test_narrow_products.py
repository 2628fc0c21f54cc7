"""Products with a single vector of columns: the definition's results, and the bits of the general kernels."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.language.build import Codelet
from engine.codelets.language.record import word
from engine.codelets.products.micro_kernel import library
from engine.codelets.products.narrow_products import LANES, OF_FEATURES, OF_TILES, ROWS, VECTOR, Narrow, narrow_products
from engine.codelets.products.panel import NOTHING_AHEAD, panels

multiply_panel = panels("f32")


def _multiplying(narrow: Narrow) -> Codelet:
    multiply_vector = narrow_products(narrow)

    def multiply(parameters: int, lo: int, hi: int, scratch: int) -> None:
        rows, k, a, block = (word(parameters, 0), word(parameters, 1), word(parameters, 2), word(parameters, 3))
        b, c, general, adds = (word(parameters, 4), word(parameters, 5), word(parameters, 6), word(parameters, 7))
        multiply_vector(rows, k, a, block, b, c, VECTOR, adds)
        packed = a, word(parameters, 8), word(parameters, 9)
        panel, ahead = (b, VECTOR), (NOTHING_AHEAD, NOTHING_AHEAD)
        multiply_panel(rows, LANES, k, packed, panel, *ahead, general, word(parameters, 10), adds)

    return Codelet(multiply, f"multiply_{narrow.name}", (library("f32"),), in_vectors=True)


OF = {narrow.name: (narrow, _multiplying(narrow)) for narrow in (OF_TILES, OF_FEATURES)}
CASES = [
    ("narrow_tiles", sum(ROWS) + ROWS[0], 1),
    ("narrow_tiles", 1, LANES),
    ("narrow_tiles", ROWS[0] + 7, 2 * LANES + 3),
    ("narrow_features", LANES, 37),
]


@pytest.mark.parametrize("adds", [0, 1])
@pytest.mark.parametrize(("name", "rows", "k"), CASES)
def test_products_are_those_of_the_definition(name: str, rows: int, k: int, adds: int) -> None:
    narrow, codelet = OF[name]
    rng = np.random.default_rng(rows * k)
    blocks = -(-k // narrow.block) if narrow.block else 1
    a = rng.normal(size=(blocks, rows, LANES) if narrow.block else (k, LANES)).astype(np.float32)
    b, c = rng.normal(size=(k, LANES)).astype(np.float32), rng.normal(size=(rows, LANES)).astype(np.float32)
    a.flat[0], b[0, 1] = np.inf, np.nan
    taken = a.transpose(1, 0, 2).reshape(rows, -1)[:, :k] if narrow.block else a.T[:rows]
    with np.errstate(invalid="ignore"):
        expected = taken.astype(np.float64) @ b + adds * c
    at = np.arange(k)
    offsets = at // LANES * rows * VECTOR + 4 * (at % LANES) if narrow.block else narrow.k * at
    tables = np.arange(rows) * narrow.row, offsets, np.arange(rows) * VECTOR
    general = c.copy()
    arrays = b.ctypes.data, c.ctypes.data, general.ctypes.data, adds, *(each.ctypes.data for each in tables)
    codelet(np.array([rows, k, a.ctypes.data, rows * VECTOR, *arrays], np.int64).ctypes.data, 0, 1, 0)
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(c.view(np.int32), general.view(np.int32))
