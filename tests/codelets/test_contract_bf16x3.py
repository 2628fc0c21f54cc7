"""Products of bf16x3 splits: as accurate as multiply-adds, and computed by these where splits would not be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.machine_code.processor import has_matrix_registers
from tests.codelets import test_contract as contracts
from tests.codelets.test_contract import MULTIPLY_ADDS, PIECES, Problem, matrices

pytestmark = pytest.mark.skipif(not has_matrix_registers(), reason="no matrix registers here")

ROWS, COLUMNS, GROUP = 150, 100, 32
Numbers = Callable[[np.random.Generator, int], np.ndarray]
NUMBERS: dict[str, Numbers] = {
    "normal": lambda random, count: random.standard_normal(count),
    "of one sign": lambda random, count: random.random(count),
    "of all sizes": lambda random, count: random.standard_normal(count) * 2.0 ** random.integers(-40, 20, count),
    "tiny": lambda random, count: random.uniform(1, 2, count) * 1e-18,
    "near the largest": lambda random, count: random.uniform(1, 2, count) * 2.0**28,
    "bfloat16 already": lambda random, count: random.integers(-128, 129, count) / 64,
}


def run(problem: Problem, pieces: bool, cuts: int = 1) -> np.ndarray:
    """C, [rows, columns]."""
    contracts.in_use["codelet"] = PIECES if pieces else MULTIPLY_ADDS
    try:
        return contracts.run(problem, rows_per_unit=48, columns_per_unit=256, cuts=cuts).reshape(-1, problem.columns)
    finally:
        contracts.in_use["codelet"] = MULTIPLY_ADDS


def product(k: int, numbers: Numbers = NUMBERS["normal"], seed: int = 0, rows: int = ROWS) -> Problem:
    random = np.random.default_rng(seed)
    problem = matrices(random, rows, COLUMNS, k)
    problem.a, problem.b = (numbers(random, each.size).astype(np.float32) for each in (problem.a, problem.b))
    problem.c[:] = 0
    return problem


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("k", [1, 31, 64, 500, 2000])
def test_errors_are_not_above_those_of_multiply_adds(kind: str, k: int) -> None:
    """Relative to the sum of magnitudes, in half units of float32's last place."""
    problem = product(k, NUMBERS[kind], seed=k)
    a, b = problem.a.reshape(ROWS, k).astype(np.float64), problem.b.reshape(k, COLUMNS).astype(np.float64)
    exact, magnitude = a @ b, np.abs(a) @ np.abs(b)

    def error(pieces: bool) -> np.ndarray:
        return np.abs(run(problem, pieces) - exact) / np.maximum(magnitude, 1e-300) * 2.0**24

    ours, others = error(True), error(False)
    # Up to one such unit is missing without the three smallest products of pieces; rounding adds another.
    assert ours.max() <= max(others.max(), 2.0)
    assert np.sqrt(np.mean(ours**2)) <= max(np.sqrt(np.mean(others**2)), 0.5)


def test_sums_of_small_integers_are_exact() -> None:
    problem = product(700, lambda random, count: random.integers(-150, 151, count))
    exact = problem.a.reshape(ROWS, 700).astype(np.int64) @ problem.b.reshape(700, COLUMNS).astype(np.int64)
    np.testing.assert_array_equal(run(problem, True), exact)


def test_a_matrix_times_one_is_the_matrix() -> None:
    """All 24 bits of a float32 are in its split, also of the smallest numbers that are not denormal."""
    problem = product(COLUMNS, NUMBERS["of all sizes"])
    problem.a[:3] = [1.1754944e-38, -3.9999998, 2.0**29]
    problem.b = np.eye(COLUMNS, dtype=np.float32).reshape(-1)
    np.testing.assert_array_equal(run(problem, True), problem.a.reshape(ROWS, COLUMNS))


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf, 3e38, 2.0**30, -(2.0**40)])
@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("k", [40, 1100])
def test_groups_with_such_numbers_are_multiply_adds(value: float, operand: str, k: int) -> None:
    """Every other row and column of that block of k has the same bits as without the special number."""
    problem = product(k, seed=3)
    without = run(problem, True)
    row, column, at = 37, 70, k - 5
    if operand == "a":
        problem.a[row * k + at] = value
    else:
        problem.b[at * COLUMNS + column] = value
    mine, reference = run(problem, True), run(problem, False)
    near = np.zeros((ROWS, COLUMNS), bool)
    if operand == "a":
        near[32:48] = True  # groups end where units do, and these have 48 rows
        changed = (slice(row, row + 1), slice(None))
    else:
        near[:, 64:96] = True
        changed = (slice(None), slice(column, column + 1))
    np.testing.assert_array_equal(mine[~near], without[~near])
    np.testing.assert_allclose(mine[changed], reference[changed], rtol=1e-5)
    others = near.copy()
    others[changed] = False
    np.testing.assert_allclose(mine[others], reference[others], rtol=1e-4, atol=1e-4)
    if k == 40:
        near[:, COLUMNS - COLUMNS % 16 :] = False  # a kernel of their own adds the last columns of float32 in its order
        np.testing.assert_array_equal(mine[near], reference[near])


def test_nan_of_all_bits() -> None:
    """Rounding such a NaN to bfloat16 would make it zero."""
    problem = product(64)
    problem.a.view(np.uint32)[5 * 64] = 0xFFFFFFFF
    problem.b.view(np.uint32)[7] = 0x7FFFFFFF
    result = run(problem, True)
    assert np.isnan(result[5]).all() and np.isnan(result[:, 7]).all()
    assert np.isfinite(np.delete(np.delete(result, 5, axis=0), 7, axis=1)).all()


@pytest.mark.parametrize("seed", range(4))
def test_groups_do_not_depend_on_the_distribution(seed: int) -> None:
    random = np.random.default_rng(seed)
    problem = product(600, seed=seed, rows=500)
    for operand in (problem.a, problem.b):
        operand[random.integers(0, operand.size, 3)] = [np.nan, np.inf, 1e30]
    whole = run(problem, True)
    for cuts in (2, 3, 11):
        assert run(problem, True, cuts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("transposed", [False, True])
def test_rows_that_stay_in_the_cache_while_columns_pass(transposed: bool) -> None:
    """A few rows are packed once for many columns, whether one worker has all of the rows or not."""
    random = np.random.default_rng(5)
    problem = matrices(random, 70, 700, 1000, transposed_a=transposed)
    problem.a[random.integers(0, problem.a.size, 2)] = [np.inf, 1e30]
    contracts.in_use[0] = PIECES
    try:
        results = [contracts.run(problem, rows_per_unit=24, columns_per_unit=700, cuts=cuts) for cuts in (1, 2, 3)]
    finally:
        contracts.in_use[0] = MULTIPLY_ADDS
    expected = contracts.naive(problem)
    usual = np.abs(expected) < 1e6
    np.testing.assert_allclose(results[0][usual], expected[usual], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(results[0][~usual], expected[~usual], rtol=1e-5)
    for other in results[1:]:
        assert other.tobytes() == results[0].tobytes()
