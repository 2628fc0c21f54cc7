"""The contraction codelets of 16-bit floats: the definition in float64, rounded once, within float32 sums' errors.

The problems are those of float32's codelet, with halves in place of floats: all byte offsets are half as large.
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from engine.codelets.language.lanes import F16_IN_F32
from engine.codelets.products import contract_plain as products
from engine.codelets.products.contract_fields import Field
from engine.codelets.products.contract_half import HALF_SCRATCH, contract_half
from engine.codelets.products.contract_plain import contract_for
from engine.compile import build_program
from engine.host.encode import encode
from engine.ir import DotDimensionNumbers
from engine.ir.builder import Builder
from engine.machine_code.processor import multiplies_bf16_pairs
from engine.program.work.contraction import Contraction
from tests.codelets import test_contract as single
from tests.codelets.contractions import contract_units, encode_contract
from tests.codelets.guarded_scratch import GuardedScratch
from tests.exploring import seed

PAIRS = "bf16 pairs"
HALF_TYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
if multiplies_bf16_pairs():
    HALF_TYPES[PAIRS] = HALF_TYPES["bf16"]
TABLES = ("row_a", "row_c", "k_a", "k_b", "batch_a", "batch_b", "batch_c")


def halved(problem: single.Problem, dtype: np.dtype) -> single.Problem:
    """The problem on numbers that a 16-bit float can hold."""
    arrays = {name: getattr(problem, name).astype(dtype).astype(np.float32) for name in "abc"}
    return replace(problem, **arrays)


def run(
    problem: single.Problem,
    kind: str,
    result: str | None = None,
    rows_per_unit: int = 12,
    columns_per_unit: int = 64,
    cuts: int = 1,
    beside: bool | None = None,
    rounds_b: bool = False,
) -> np.ndarray:
    """C's memory after all units ran, as `cuts` calls in descending order.

    With `beside` the codelet is the one that packs B beside products; with `rounds_b` B is float32 in memory.
    """
    p, dtype, wide = problem, HALF_TYPES[kind], result == "f32"
    a, b = p.a.astype(dtype), np.ascontiguousarray(p.b) if rounds_b else p.b.astype(dtype)
    c = p.c.astype(np.float32 if wide else dtype)
    tables = {name: np.ascontiguousarray(getattr(p, name) // 2) for name in TABLES}
    if wide:
        tables |= {"row_c": p.row_c, "batch_c": p.batch_c}
    if rounds_b:
        tables |= {"k_b": p.k_b, "batch_b": p.batch_b}
    parameters = encode_contract(
        a=a.ctypes.data,
        b=b.ctypes.data,
        c=c.ctypes.data,
        **tables,
        columns=p.columns,
        stride_b=p.stride_b if rounds_b else p.stride_b // 2,
        rows_per_unit=rows_per_unit,
        columns_per_unit=columns_per_unit,
        k_per_unit=p.k_per_unit,
        partial_pitch=p.partial_pitch if wide else p.partial_pitch // 2,
        operand_type="f16",
        rounds_b=rounds_b,
    )
    scratch = GuardedScratch(HALF_SCRATCH.bytes)
    edges = np.linspace(0, contract_units(parameters), cuts + 1).astype(int)
    codelet = contract_half("bf16", result or "bf16", pairs=True) if kind == PAIRS else contract_for(kind, result)[0]
    if beside is not None:
        codelet = contract_half(kind, result or kind, beside=beside, right=F16_IN_F32 if rounds_b else None)
    for lo, hi in reversed(list(zip(edges[:-1], edges[1:], strict=True))):
        codelet(parameters.words.ctypes.data, int(lo), int(hi), scratch.address)
    scratch.check(HALF_SCRATCH)
    return c


def check(problem: single.Problem, result: str | None = None, **options: int) -> None:
    """Compares within half a unit in the last place of the result, plus the errors of float32 sums."""
    # Other kinds are tried in parts: what reads A and B, and what stores float32. The codelet of f16 is compiled for
    # test_contract_plain.py, too.
    for kind in ("f16",) if result == "f32" and seed() is None else HALF_TYPES:
        dtype = HALF_TYPES[kind]
        p = halved(problem, dtype)
        exact = single.naive(p)
        sizes = single.naive(replace(p, a=np.abs(p.a), b=np.abs(p.b), c=np.abs(p.c)))
        lost = (len(p.k_a) + 2) * 2.0**-24 * np.abs(sizes)
        rounding = 2.0**-24 if result == "f32" else float(ml_dtypes.finfo(dtype).eps) / 2
        smallest = 0.0 if result == "f32" or kind != "f16" else 2.0**-25
        received = run(p, kind, result, **options).astype(np.float64)
        assert (np.abs(received - exact) <= lost + rounding * (np.abs(exact) + lost) + smallest).all()


@pytest.mark.sample(8)
@pytest.mark.parametrize("columns", [1, 10, 17, 33, 64, 65, 200])
@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("transposed_b", [False, True])
def test_every_tail(columns: int, transposed_a: bool, transposed_b: bool) -> None:
    random = np.random.default_rng(columns)
    for rows in (*range(1, 14), 61):
        for k in (1, 3, 17):
            flags = {"transposed_a": transposed_a, "transposed_b": transposed_b}
            problem = single.matrices(random, rows, columns, k, gap=rows % 3, **flags)
            check(problem, columns_per_unit=256, rows_per_unit=64)


@pytest.mark.sample(4)
@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("transposed_b", [False, True])
@pytest.mark.parametrize("result", [None, "f32"])
def test_blocks(transposed_a: bool, transposed_b: bool, result: str | None) -> None:
    """Blocks of rows, columns and k are whole and in part."""
    random = np.random.default_rng(1)
    flags = {"transposed_a": transposed_a, "transposed_b": transposed_b}
    sizes = (
        (7, 130, 300),
        (450, 70, 257),
        (400, 10, 1300),
        (64, 64, 256),
        (6, 1, 1000),
        (20, 600, 40),
        (200, 530, 150),
    )
    for rows, columns, k in sizes:
        problem = single.matrices(random, rows, columns, k, **flags)
        check(problem, result, rows_per_unit=1000, columns_per_unit=1000)
        check(problem, result, rows_per_unit=96, columns_per_unit=128)


def test_long_k_of_three_vectors_of_columns() -> None:
    """Blocks of k fill the space of packed B when the rows of B lie further apart than packed ones."""
    problem = single.matrices(np.random.default_rng(5), 64, 40, 1023, transposed_b=True)
    check(problem, rows_per_unit=64)
    check(single.matrices(np.random.default_rng(6), 64, 48, 1364, transposed_b=True), rows_per_unit=64)


def test_no_k() -> None:
    check(single.matrices(np.random.default_rng(2), 5, 20, 0, gap=3))


def test_no_rows_or_columns() -> None:
    random = np.random.default_rng(3)
    for rows, columns in ((0, 5), (5, 0), (0, 0)):
        check(single.matrices(random, rows, columns, 4, gap=2))


@pytest.mark.parametrize("result", [None, "f32"])
def test_split_k(result: str | None) -> None:
    random = np.random.default_rng(4)
    for rows, columns, k, part in ((13, 65, 100, 32), (60, 200, 700, 300), (3, 5, 7, 1)):
        parts = -(-k // part)
        problem = single.matrices(random, rows, columns, k, k_per_unit=part, partial_pitch=4 * rows * columns)
        problem.c = random.standard_normal(parts * rows * columns, np.float32)
        check(problem, result)


@pytest.mark.parametrize("length", [2, 5, 17, 40])
def test_runs_along_k(length: int) -> None:
    """Runs of A, of B, and of both end within blocks of k; blocks of k end within runs."""
    random = np.random.default_rng(length)
    for rows, columns, runs in ((5, 33, 2), (50, 64, 9), (13, 2, 130)):
        problem = single.transposed_runs(random, rows, columns, runs, length)
        check(problem, rows_per_unit=30, cuts=2)
        offsets = 4 * (np.arange(runs)[:, None] * rows * length + np.arange(length)).reshape(-1)
        apart = replace(problem, k_a=offsets, row_a=4 * length * np.arange(rows))
        check(apart, rows_per_unit=30, cuts=2)
        problem = single.matrices(random, rows, columns, runs * length)
        check(replace(problem, k_a=offsets, row_a=4 * length * np.arange(rows)))


@pytest.mark.parametrize("columns", [3, 16, 40, 100])
def test_elements_read_many_times(columns: int) -> None:
    """Rows of A that overlap, as windows do, and rows of B that do."""
    random = np.random.default_rng(columns)
    for rows, taps, features in ((500, 9, 5), (70, 30, 1), (900, 3, 20)):
        problem = single.matrices(random, rows, columns, taps * features)
        problem.row_a = 4 * features * np.arange(rows)
        check(problem, rows_per_unit=200, cuts=2)
        problem.k_b = 4 * 2 * np.arange(taps * features)
        check(problem, rows_per_unit=1000)


@pytest.mark.sample(4)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("columns", [10, 20, 45, 60])
def test_short_rows(columns: int, transposed: bool) -> None:
    """Short rows of A, close ones and distant ones, and short rows of B: several blocks of rows and of k."""
    random = np.random.default_rng(columns)
    for rows, k, gap in ((500, 1100, 0), (450, 30, 0), (90, 50, 30), (90, 50, 100), (48, 300, 3)):
        problem = single.matrices(random, rows, columns, k, gap=gap, transposed_a=transposed)
        check(problem, rows_per_unit=1000, cuts=2)


@pytest.mark.parametrize("pitch", [1, 3, 6, 11])
def test_overlapping_rows_of_b(pitch: int) -> None:
    """Rows some elements apart, which pairs of bf16 join in one run where k is even: one or several blocks of k."""
    random = np.random.default_rng(pitch)
    for columns, k in ((11, 10), (12, 9), (30, 27), (64, 2), (30, 1300), (12, 1301)):
        problem = single.matrices(random, 25, columns, k)
        problem.k_b = 4 * pitch * np.arange(k)
        check(problem, rows_per_unit=10)


@pytest.mark.parametrize("seed", range(6))
def test_random_tables(seed: int) -> None:
    check(single.random_tables(np.random.default_rng(seed)))


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", [kind for kind in HALF_TYPES if kind != "bf16"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("transposed", [False, True])
def test_result_does_not_depend_on_the_distribution(seed: int, transposed: bool, kind: str) -> None:
    random = np.random.default_rng(seed)
    problem = single.matrices(random, 70, 300, 700, transposed_a=transposed, transposed_b=transposed)
    for units in ({"rows_per_unit": 12}, {"rows_per_unit": 100, "columns_per_unit": 48}):
        whole = run(problem, kind, **units)
        for cuts in (2, 3, 7):
            assert run(problem, kind, cuts=cuts, **units).tobytes() == whole.tobytes()


@pytest.mark.parametrize("result", [None, "f32"])
@pytest.mark.parametrize("columns_per_unit", [1, 16, 48])
def test_narrow_units(columns_per_unit: int, result: str | None) -> None:
    """Several narrow units are computed as one block, whose packed panels are wider than a unit."""
    problem = single.matrices(np.random.default_rng(9), 30, 71, 900)
    check(problem, result, rows_per_unit=30, columns_per_unit=columns_per_unit)


@pytest.mark.sample(6)
@pytest.mark.parametrize("result", [None, "f32"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(("rows", "columns", "k"), [(13, 130, 40), (47, 33, 300), (70, 64, 5), (400, 40, 600)])
def test_b_packed_beside_products_has_the_same_bits(
    rows: int, columns: int, k: int, kind: str, result: str | None
) -> None:
    """Some units have too many rows to pack beside products, and rows of B may be as close as packed ones."""
    for gap in (0, 3):
        problem = halved(single.matrices(np.random.default_rng(k), rows, columns, k, gap=gap), HALF_TYPES[kind])
        units = {"rows_per_unit": 50, "columns_per_unit": 1000}
        packed, read = (run(problem, kind, result, beside=each, **units) for each in (False, True))
        assert packed.tobytes() == read.tobytes()
        check(problem, result, **units)


@pytest.mark.sample(4)
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("transposed_b", [False, True])
@pytest.mark.parametrize(("rows", "columns", "k", "gap"), [(13, 130, 40, 0), (47, 33, 300, 3), (70, 64, 5, 1)])
def test_float32_of_b_is_rounded_as_a_narrowed_copy(
    rows: int, columns: int, k: int, gap: int, transposed_b: bool, beside: bool
) -> None:
    """Ties, numbers that f16 cannot hold or has as denormal numbers, infinities and NaN among them."""
    random = np.random.default_rng(k)
    problem = single.matrices(random, rows, columns, k, gap=gap, transposed_b=transposed_b)
    special = [2049.0, 2051.0, 65520.0, -7e4, 3e-8, 2.9e-8, 1e-40, -0.0, np.inf, np.nan, 1 + 2.0**-11]
    flat = problem.b.reshape(-1)
    flat[random.integers(0, flat.size, 11)] = special
    with np.errstate(over="ignore"):
        narrowed = run(problem, "f16", beside=False, rows_per_unit=50, columns_per_unit=1000)
    rounded = run(problem, "f16", beside=beside, rounds_b=True, rows_per_unit=50, columns_per_unit=1000)
    assert narrowed.tobytes() == rounded.tobytes()


@pytest.mark.parametrize("kind", HALF_TYPES)
@pytest.mark.parametrize("k", [2, 300])
def test_one_rounding_of_small_integers(kind: str, k: int) -> None:
    """Sums that float32 holds exactly: the result is the nearest half, ties to even."""
    random = np.random.default_rng(k)
    problem = single.matrices(random, 40, 70, k)
    problem.a, problem.b = (random.integers(-9, 10, x.shape).astype(np.float32) for x in (problem.a, problem.b))
    exact = single.naive(problem).astype(np.float32).astype(HALF_TYPES[kind])
    assert np.array_equal(run(problem, kind), exact)


@pytest.mark.parametrize("kind", HALF_TYPES)
@pytest.mark.parametrize("k", [2, 300])
def test_what_is_no_ordinary_number(kind: str, k: int) -> None:
    """NaN and infinities stay in their rows, too large sums become infinite, denormal halves and -0 are kept."""
    problem = single.matrices(np.random.default_rng(0), 6, 20, k)
    problem.b = np.ones_like(problem.b)
    a = np.zeros((6, k), np.float32)
    tiny, large = (2.0**-24, 6e4) if kind == "f16" else (2.0**-120, 3e38)
    a[:, 0] = np.nan, np.inf, np.inf, large, tiny, -1
    a[:, 1] = 1, 1, -np.inf, large, tiny, 1
    problem.a = a.reshape(-1)
    received = run(problem, kind).astype(np.float32).reshape(6, 20)
    assert np.isnan(received[0]).all() and np.isnan(received[2]).all()
    assert (received[1] == np.inf).all() and (received[3] == np.inf).all()
    assert (received[4] == np.float32(2 * tiny)).all() and (received[5] == 0).all()


def test_gaps_are_not_written() -> None:
    problem = single.matrices(np.random.default_rng(8), 50, 37, 20, gap=5)
    received = run(problem, "f16").reshape(50, 42)
    assert np.array_equal(received[:, 37:], problem.c.astype(np.float16).reshape(50, 42)[:, 37:])


def test_runs_are_recognised() -> None:
    def run_of(offsets: list[int]) -> int:
        table = 2 * np.array(offsets, np.int64)
        zero = np.zeros(1, np.int64)
        block = encode_contract(
            **dict(a=0, b=0, c=0, row_a=zero, row_c=zero, k_a=table, k_b=table, columns=1, stride_b=2),
            operand_type="f16",
        )
        return int(block.words[Field.RUN_A])

    assert run_of([0, 1, 2, 3]) == 4
    assert run_of([0, 1, 2, 9, 10, 11]) == 3
    assert run_of([0, 1, 2, 3, 9, 10]) == 2
    assert run_of([0, 2, 4]) == 1
    assert run_of([]) == 0


@pytest.mark.parametrize(("k", "transposed", "pairs"), [(64, False, True), (63, False, False), (63, True, True)])
def test_products_whose_pairs_are_in_place_or_transposed(
    k: int, transposed: bool, pairs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = Builder()
    x, y = b.parameter("bf16", (k, 96) if transposed else (96, k)), b.parameter("bf16", (k, 32))
    module = b.module(b.dot(x, y, DotDimensionNumbers((0 if transposed else 1,), (0,))))
    for has_instruction in (False, True):
        monkeypatch.setattr(products, "multiplies_bf16_pairs", lambda has=has_instruction: has)
        sets = build_program(module, ["variable"] * 2, {}).compute_sets
        (product,) = (each.work for each in sets if isinstance(each.work, Contraction))
        assert encode(product).codelet.name.endswith("_pairs") == (pairs and has_instruction)
