"""The last columns of float32 products, in kernels of their own, against the definition in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.products.contract_fields import FEWEST_ROWS, MOST_TAIL, Field, Tail
from engine.machine_code.processor import lanes
from tests.codelets import test_contract as products
from tests.codelets.contractions import encode_contract

LANES = lanes()
COLUMNS = sorted({1, 2, 3, MOST_TAIL, LANES + 1, 3 * LANES + 1, 4 * LANES + MOST_TAIL, 5 * LANES + 2})


def problem(rows: int, columns: int, k: int, transposed_a: bool, transposed_b: bool = False) -> products.Problem:
    random = np.random.default_rng(rows + columns + k)
    return products.matrices(random, rows, columns, k, transposed_a=transposed_a, transposed_b=transposed_b)


def tail(given: products.Problem) -> Tail:
    """The field TAIL of a product's parameter block."""
    names = ("row_a", "row_c", "k_a", "k_b", "columns", "stride_b")
    addresses = {name: getattr(given, name).ctypes.data for name in "abc"}
    block = encode_contract(**addresses, **{name: getattr(given, name) for name in names})
    return Tail(int(block.words[Field.TAIL]))


@pytest.mark.parametrize("transposed_b", [False, True])
@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_products_are_those_of_the_definition(columns: int, transposed_a: bool, transposed_b: bool) -> None:
    for rows in (1, 2, 7, LANES, 8 * LANES + 5, 130):
        for k in (31, 64, 100, 777, 2100):
            products.check(problem(rows, columns, k, transposed_a, transposed_b), rows_per_unit=48)


def test_lanes_are_terms_or_rows() -> None:
    assert tail(problem(50, LANES + 1, 64, False)) == Tail.TERMS
    assert tail(problem(FEWEST_ROWS, LANES + 1, 64, True)) == Tail.ROWS
    assert tail(problem(FEWEST_ROWS - 1, LANES + 1, 64, True)) == Tail.COLUMNS
    assert tail(problem(50, LANES, 64, False)) == tail(problem(50, 2 * LANES, 64, True)) == Tail.COLUMNS
    assert tail(problem(50, MOST_TAIL, 2 * MOST_TAIL, False)) == Tail.COLUMNS  # so few terms cost less in columns


@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("columns", [1, LANES + 2])
def test_units_do_not_change_bits(columns: int, transposed_a: bool) -> None:
    given = problem(100, columns, 333, transposed_a)
    whole = products.run(given, rows_per_unit=100)
    for rows, cuts in ((1, 1), (7, 2), (48, 3)):
        assert products.run(given, rows_per_unit=rows, cuts=cuts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1e30])
def test_a_value_of_a_row_is_not_in_others(value: float, transposed_a: bool) -> None:
    rows, columns, k = LANES + 3, LANES + 1, 70
    given = problem(rows, columns, k, transposed_a)
    plain = products.run(given)
    given.a[(given.row_a[2] + given.k_a[k - 1]) // 4] = value
    expected, found = products.naive(given).astype(np.float32), products.run(given)
    index = (given.row_c[2] // 4) + np.arange(columns)
    np.testing.assert_allclose(found[index], expected[index], rtol=1e-4)
    others = np.setdiff1d(np.arange(len(found)), index)
    assert found[others].tobytes() == plain[others].tobytes()
