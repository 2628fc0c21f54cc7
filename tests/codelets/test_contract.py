"""The float32 contraction codelets, of multiply-adds and of bf16x3 splits, against their definition in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from engine.codelets.language.build import Codelet
from engine.codelets.language.scratch import ScratchSpace
from engine.codelets.products.contract_bf16x3 import BF16X3_SCRATCH, contract_bf16x3
from engine.codelets.products.contract_f32 import CONTRACT_SCRATCH, LINE_ROWS, MANY_ROWS, contract_f32
from engine.codelets.products.contract_fields import Field, Layout
from engine.machine_code.processor import has_matrix_registers
from engine.program.work.offsets import GROUP
from tests.codelets.contractions import contract_units, encode_contract
from tests.codelets.guarded_scratch import GuardedScratch

ZERO = np.zeros(1, np.int64)
MULTIPLY_ADDS = (contract_f32, CONTRACT_SCRATCH)
PIECES = (contract_bf16x3, BF16X3_SCRATCH)
in_use: dict[str, tuple[Codelet, ScratchSpace]] = {"codelet": MULTIPLY_ADDS}


@pytest.fixture(params=["multiply-adds", "pieces"], autouse=True)
def codelet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chooses the codelet that the test is about."""
    if request.param == "pieces":
        if not has_matrix_registers():
            pytest.skip("no matrix registers here")
        monkeypatch.setitem(in_use, "codelet", PIECES)


@dataclass
class Problem:
    """Memory of A, B and C as float32 vectors, and the tables of byte offsets into them."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    row_a: np.ndarray
    row_c: np.ndarray
    k_a: np.ndarray
    k_b: np.ndarray
    columns: int
    stride_b: int
    batch_a: np.ndarray = field(default_factory=lambda: ZERO)
    batch_b: np.ndarray = field(default_factory=lambda: ZERO)
    batch_c: np.ndarray = field(default_factory=lambda: ZERO)
    k_per_unit: int | None = None
    partial_pitch: int = 0


def naive(problem: Problem) -> np.ndarray:
    """The definition, in float64; returns what C's memory must hold."""
    p = problem
    c = p.c.astype(np.float64)
    k_per_unit = p.k_per_unit or max(len(p.k_a), 1)
    n = np.arange(p.columns)
    for batch_a, batch_b, batch_c in zip(p.batch_a, p.batch_b, p.batch_c, strict=True):
        for split, k in enumerate(range(0, max(len(p.k_a), 1), k_per_unit)):
            k_a, k_b = p.k_a[k : k + k_per_unit], p.k_b[k : k + k_per_unit]
            b = p.b[(batch_b + k_b[:, None] + n * p.stride_b) // 4].astype(np.float64)
            for row_a, row_c in zip(p.row_a, p.row_c, strict=True):
                total = p.a[(batch_a + row_a + k_a) // 4].astype(np.float64) @ b
                target = (batch_c + row_c + split * p.partial_pitch) // 4 + n
                c[target] = total
    return c


def run(problem: Problem, rows_per_unit: int = 12, columns_per_unit: int = 64, cuts: int = 1) -> np.ndarray:
    """C's memory after all units ran, as `cuts` calls in descending order."""
    contract, space = in_use["codelet"]
    p, c = problem, problem.c.copy()
    parameters = encode_contract(
        a=p.a.ctypes.data,
        b=p.b.ctypes.data,
        c=c.ctypes.data,
        row_a=p.row_a,
        row_c=p.row_c,
        k_a=p.k_a,
        k_b=p.k_b,
        columns=p.columns,
        stride_b=p.stride_b,
        rows_per_unit=rows_per_unit,
        columns_per_unit=columns_per_unit,
        k_per_unit=p.k_per_unit,
        partial_pitch=p.partial_pitch,
        batch_a=p.batch_a,
        batch_b=p.batch_b,
        batch_c=p.batch_c,
    )
    scratch = GuardedScratch(space.bytes)
    edges = np.linspace(0, contract_units(parameters), cuts + 1).astype(int)
    for lo, hi in reversed(list(zip(edges[:-1], edges[1:], strict=True))):
        contract(parameters.words.ctypes.data, int(lo), int(hi), scratch.address)
    scratch.check(space)
    return c


def check(problem: Problem, **options: int) -> None:
    expected = naive(problem)
    scale = np.sqrt(len(problem.k_a) + 1.0)
    np.testing.assert_allclose(run(problem, **options), expected, rtol=1e-5, atol=3e-6 * scale)


def matrices(
    random: np.random.Generator,
    rows: int,
    columns: int,
    k: int,
    *,
    transposed_a: bool = False,
    transposed_b: bool = False,
    gap: int = 0,
    **options: object,
) -> Problem:
    """Dense matrices whose lines are `gap` elements longer than needed."""

    def strides(outer: int, inner: int, transposed: bool) -> tuple[int, int, int]:
        if transposed:
            return 4, 4 * (outer + gap), inner * (outer + gap)
        return 4 * (inner + gap), 4, outer * (inner + gap)

    a_row, a_k, a_size = strides(rows, k, transposed_a)
    b_k, b_column, b_size = strides(k, columns, transposed_b)
    return Problem(
        a=random.standard_normal(a_size, np.float32),
        b=random.standard_normal(b_size, np.float32),
        c=random.standard_normal(rows * (columns + gap), np.float32),
        row_a=np.arange(rows) * a_row,
        row_c=np.arange(rows) * 4 * (columns + gap),
        k_a=np.arange(k) * a_k,
        k_b=np.arange(k) * b_k,
        columns=columns,
        stride_b=b_column,
        **options,  # type: ignore[arg-type]
    )


def transposed_runs(random: np.random.Generator, rows: int, columns: int, runs: int, length: int) -> Problem:
    """A transposed B, as gradients by inputs have: for each tap, the elements of a column along k are adjacent."""
    problem = matrices(random, rows, columns, runs * length)
    problem.k_b = 4 * (np.arange(runs)[:, None] * columns * length + np.arange(length)).reshape(-1)
    problem.stride_b = 4 * length
    return problem


@pytest.mark.parametrize("length", [16, 17, 40, 300])
@pytest.mark.parametrize("columns", [2, 16, 33, 64, 130])
def test_transposed_in_runs(columns: int, length: int) -> None:
    """Runs end within blocks of k, and blocks of k within runs."""
    random = np.random.default_rng(columns)
    for rows, runs in ((5, 2), (50, 9), (70, 1)):
        check(transposed_runs(random, rows, columns, runs, length), rows_per_unit=30, cuts=2)
        problem = transposed_runs(random, rows, columns, runs, length)
        problem.k_per_unit, problem.partial_pitch = runs * length // 2 + 1, 4 * rows * columns
        problem.c = random.standard_normal(2 * rows * columns, np.float32)
        check(problem, rows_per_unit=30)


@pytest.mark.sample(16)
@pytest.mark.parametrize("columns", [1, 10, 17, 33, 63, 64, 65, 200])
@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("transposed_b", [False, True])
def test_every_tail(columns: int, transposed_a: bool, transposed_b: bool) -> None:
    random = np.random.default_rng(columns)
    for rows in (*range(1, 28), 61):
        for k in (1, 2, 17):
            flags = {"transposed_a": transposed_a, "transposed_b": transposed_b}
            problem = matrices(random, rows, columns, k, gap=rows % 3, **flags)
            check(problem, columns_per_unit=256, rows_per_unit=64)


@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("transposed_b", [False, True])
def test_blocks_of_k_and_rows(transposed_a: bool, transposed_b: bool) -> None:
    random = np.random.default_rng(1)
    flags = {"transposed_a": transposed_a, "transposed_b": transposed_b}
    sizes = ((7, 130, 1100), (550, 130, 260), (450, 70, 257), (450, 10, 600), (64, 64, 256), (6, 1, 1000))
    # Long and short blocks of packed rows; more rows and k than a block of any kind.
    sizes += ((150, 260, 300), (300, 260, 300), (1100, 70, 1030))
    for rows, columns, k in sizes:
        check(matrices(random, rows, columns, k, **flags), rows_per_unit=96, columns_per_unit=128)


@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("transposed_b", [False, True])
def test_rows_that_pass_by_blocks_of_panels(transposed_a: bool, transposed_b: bool) -> None:
    """Several blocks of columns, of rows and of k, by one worker; the bits are those of few rows at a time."""
    random = np.random.default_rng(10)
    flags = {"transposed_a": transposed_a, "transposed_b": transposed_b}
    for rows, columns, k in (
        (389, 600, 530),
        (1030, 1300, 33),
        (MANY_ROWS, 65, 1100),
        (961, 66, 40),
        (MANY_ROWS - 1, 530, 300),
    ):
        problem = matrices(random, rows, columns, k, gap=3, **flags)
        check(problem, rows_per_unit=48, columns_per_unit=2048)
        whole = run(problem, rows_per_unit=48, columns_per_unit=2048)
        parts = run(problem, rows_per_unit=48, columns_per_unit=2048, cuts=4)
        assert parts.tobytes() == whole.tobytes()


@pytest.mark.parametrize("grouped", [False, True])
def test_rows_packed_by_lines(grouped: bool) -> None:
    """A transposed left operand with few columns; groups of 16 rows may lie apart, in any order."""
    random = np.random.default_rng(11)
    for rows, columns, k in ((150, 256, 300), (1030, 130, 270), (560, 65, 17), (LINE_ROWS - 6, 256, 40)):
        problem = matrices(random, rows, columns, k, transposed_a=True, gap=600)
        if grouped:
            of_group = random.permutation(-(-rows // GROUP))
            problem.row_a = 4 * (GROUP * of_group[np.arange(rows) // GROUP] + np.arange(rows) % GROUP)
        check(problem, rows_per_unit=48, columns_per_unit=256)
        whole = run(problem, rows_per_unit=48, columns_per_unit=256)
        assert run(problem, rows_per_unit=48, columns_per_unit=256, cuts=5).tobytes() == whole.tobytes()


def test_no_k() -> None:
    problem = matrices(np.random.default_rng(2), 5, 20, 0, gap=3)
    check(problem)
    assert np.array_equal(run(problem).reshape(5, 23)[:, 20:], problem.c.reshape(5, 23)[:, 20:])


def test_no_rows_or_columns() -> None:
    random = np.random.default_rng(3)
    for rows, columns in ((0, 5), (5, 0), (0, 0)):
        problem = matrices(random, rows, columns, 4, gap=2)
        assert np.array_equal(run(problem), problem.c)


def test_split_k() -> None:
    random = np.random.default_rng(4)
    for rows, columns, k, part in ((13, 65, 100, 32), (60, 200, 700, 300), (3, 5, 7, 1)):
        parts = -(-k // part)
        problem = matrices(random, rows, columns, k, k_per_unit=part, partial_pitch=4 * rows * columns)
        problem.c = random.standard_normal(parts * rows * columns, np.float32)
        check(problem)


def test_batches() -> None:
    random = np.random.default_rng(5)
    for batches, rows, columns, k in ((3, 7, 70, 20), (1, 1, 1, 1), (0, 4, 4, 4), (5, 50, 3, 33)):
        problem = matrices(random, rows, columns, k)
        problem.a = random.standard_normal(batches * rows * k, np.float32)
        problem.b = random.standard_normal(2 * k * columns, np.float32)
        problem.c = random.standard_normal(batches * rows * columns, np.float32)
        problem.batch_a = np.arange(batches) * 4 * rows * k
        problem.batch_b = np.arange(batches) % 2 * 4 * k * columns
        problem.batch_c = np.arange(batches)[::-1].copy() * 4 * rows * columns
        check(problem, cuts=2)


def random_tables(random: np.random.Generator) -> Problem:
    """Rows, offsets and strides without any pattern."""
    rows, columns, k = (int(random.integers(1, limit)) for limit in (120, 150, 90))
    stride = int(random.choice([1, 1, 2, 3]))
    row_c = random.permutation(rows + 3)[:rows] * 4 * (columns + 1)
    return Problem(
        a=random.standard_normal(5000, np.float32),
        b=random.standard_normal(4000 + columns * stride, np.float32),
        c=random.standard_normal((rows + 3) * (columns + 1), np.float32),
        row_a=random.integers(0, 2500, rows) * 4,
        row_c=row_c,
        k_a=random.integers(0, 2500, k) * 4,
        k_b=random.integers(0, 4000, k) * 4,
        columns=columns,
        stride_b=4 * stride,
    )


@pytest.mark.sample(16)
@pytest.mark.parametrize("seed", range(25))
def test_random_tables(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows_per_unit, column_panels, cuts = random.integers(1, (60, 4, 5)).tolist()
    problem = random_tables(random)
    check(problem, rows_per_unit=rows_per_unit, columns_per_unit=64 * column_panels, cuts=cuts)


@pytest.mark.parametrize("seed", range(6))
def test_result_does_not_depend_on_the_distribution(seed: int) -> None:
    random = np.random.default_rng(seed)
    problem = random_tables(random) if seed % 2 else matrices(random, 600, 150, 1100, transposed_a=seed > 2)
    for rows_per_unit in (16, 600):  # the latter with units of columns, of which the last is narrow
        whole = run(problem, rows_per_unit=rows_per_unit, columns_per_unit=64)
        for cuts in (2, 3, 7, 1000):
            assert (
                run(problem, rows_per_unit=rows_per_unit, columns_per_unit=64, cuts=cuts).tobytes() == whole.tobytes()
            )


@pytest.mark.parametrize("columns_per_unit", [1, 16, 48, 63, 100])
def test_distribution_of_units_of_any_width(columns_per_unit: int) -> None:
    """Units that are narrower than a panel are cut along k by their own width, alone or with others."""
    for rows, columns, k in ((30, 71, 900), (12, 130, 2100)):
        problem = matrices(np.random.default_rng(k), rows, columns, k)
        units = {"rows_per_unit": rows, "columns_per_unit": columns_per_unit}
        whole = run(problem, **units)
        for cuts in (2, 5, 1000):
            assert run(problem, cuts=cuts, **units).tobytes() == whole.tobytes()
        check(problem, **units)


def test_convolution() -> None:
    """A 3x3 convolution of a padded NHWC image, as tables."""
    random = np.random.default_rng(6)
    n, height, width, channels, filters = 2, 6, 5, 3, 20
    image = random.standard_normal((n, height, width, channels), np.float32)
    weights = random.standard_normal((3, 3, channels, filters), np.float32)
    expected = np.zeros((n, height - 2, width - 2, filters))
    for y in range(3):
        for x in range(3):
            window = image[:, y : y + height - 2, x : x + width - 2]
            expected += np.einsum("nhwc,cf->nhwf", window, weights[y, x])
    offsets = np.arange(image.size).reshape(image.shape) * 4
    problem = Problem(
        a=image.reshape(-1),
        b=weights.reshape(-1),
        c=np.zeros(expected.size, np.float32),
        row_a=offsets[:, : height - 2, : width - 2, 0].reshape(-1),
        row_c=np.arange(expected.size // filters) * 4 * filters,
        k_a=offsets[0, :3, :3].reshape(-1),
        k_b=np.arange(9 * channels) * 4 * filters,
        columns=filters,
        stride_b=4,
    )
    np.testing.assert_allclose(run(problem).reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_nan_and_infinity_stay_in_their_rows(transposed: bool) -> None:
    problem = matrices(np.random.default_rng(7), 50, 70, 40, transposed_a=transposed, transposed_b=transposed)
    step = problem.row_a[1] // 4
    problem.a[3 * step] = np.nan
    problem.a[5 * step] = np.inf
    problem.b[0] = np.abs(problem.b[0]) + 1
    result = run(problem, columns_per_unit=128).reshape(50, 70)
    assert np.isnan(result[3]).all()
    assert result[5, 0] == np.inf and np.isinf(result[5]).all()
    assert np.isfinite(np.delete(result, [3, 5], axis=0)).all()


def test_gaps_are_not_written() -> None:
    problem = matrices(np.random.default_rng(8), 31, 37, 9, gap=5)
    result = run(problem).reshape(31, 42)
    assert np.array_equal(result[:, 37:], problem.c.reshape(31, 42)[:, 37:])


def test_layouts_are_recognised() -> None:
    random = np.random.default_rng(9)

    def block(problem: Problem) -> np.ndarray:
        tables = (problem.row_a, problem.row_c, problem.k_a, problem.k_b)
        names = ("row_a", "row_c", "k_a", "k_b")
        columns, stride_b = problem.columns, problem.stride_b
        addresses = {"a": 0, "b": 0, "c": 0}
        named = dict(zip(names, tables, strict=True))
        return encode_contract(**addresses, **named, columns=columns, stride_b=stride_b).words

    assert block(matrices(random, 40, 20, 30))[Field.LAYOUT_B] == Layout.ROWS
    assert block(matrices(random, 40, 20, 30))[Field.PACK_A] == 0
    assert block(matrices(random, 40, 20, 30, transposed_b=True))[Field.LAYOUT_B] == Layout.TRANSPOSED
    assert block(matrices(random, 40, 20, 30, transposed_a=True))[Field.PACK_A] == 0
    assert block(matrices(random, 512, 20, 30, transposed_a=True))[Field.PACK_A] == 1
    assert block(transposed_runs(random, 40, 20, 3, 17))[Field.LAYOUT_B] == Layout.RUNS
    assert block(transposed_runs(random, 40, 20, 3, 9))[Field.LAYOUT_B] == Layout.ELEMENTS
    scattered = random_tables(random)
    scattered.stride_b = 4
    assert block(scattered)[Field.LAYOUT_B] == Layout.SCATTERED_ROWS
    scattered.stride_b = 8
    assert block(scattered)[Field.LAYOUT_B] == Layout.ELEMENTS
