"""Factorizations of matrices: residuals and orthogonality, values against NumPy's, degenerate and unusual matrices."""

from __future__ import annotations

import json

import numpy as np
import pytest

from engine.compile import build_program
from engine.debug import DebugExecutable
from engine.errors import InternalError
from engine.evaluate import evaluate
from engine.files.checks import check_module
from engine.ir import Instruction, Module, TupleShape
from engine.ir.builder import Builder
from engine.ir.factorizations import EIGH, LU, QR, SOLVE, SVD, factorization_shapes
from engine.runtime.executable import Executable
from tests.engine.running import assert_near, buffers, check, fast
from tests.program.machine import Machine

SIZES = ((1, 1), (2, 2), (5, 1), (1, 6), (9, 4), (4, 9), (17, 17), (40, 33), (33, 40))
KINDS = {"f32": 3e-6, "f64": 1e-14}


def module_of(target: str, *operands: np.ndarray, **config: bool) -> Module:
    b = Builder()
    kinds = {"float32": "f32", "float64": "f64"}
    given = [b.parameter(kinds[each.dtype.name], each.shape) for each in operands]
    named = {"custom_call_target": target, "backend_config": json.dumps(config) if config else ""}
    shapes = factorization_shapes(Instruction("x", "custom-call", TupleShape(()), tuple(given), named))
    called = b.instruction("custom-call", TupleShape(shapes), given, custom_call_has_side_effect=False, **named)
    return b.module(b.tuple(*(b.get_tuple_element(called, k) for k in range(len(shapes)))))


def run(module: Module, *operands: np.ndarray) -> list[np.ndarray]:
    """The results, which the debug executor must equal; a run in guarded memory, unit by unit, keeps subnormals."""
    check_module(module)
    program = build_program(module, ["variable"] * len(operands), {}, verify=True)
    results = Executable(program).run(1, [], buffers(list(operands)))
    debugged = DebugExecutable(program).run(1, [], buffers(list(operands)))
    assert [each.tobytes() for each in debugged] == [each.tobytes() for each in results]
    Machine(program, dict(enumerate(operands))).run(lambda units: reversed(range(units)))
    return results


def transposed(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2)


def identities(like: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.eye(like.shape[-1], dtype=like.dtype), like.shape)


def unusual(rows: int, columns: int, kind: str) -> np.ndarray:
    """Random, of rank one, zero, diagonal, with equal rows, triangular, graded, and huge or tiny."""
    rng = np.random.default_rng(rows * columns)
    a = rng.standard_normal((11, rows, columns))
    a[1] = a[1, :, :1] * a[1, :1]
    a[2] = 0
    a[3] *= np.eye(rows, columns)
    a[4] = a[4, :1]
    a[5] = np.triu(a[5])
    a[6] *= 10.0 ** -np.arange(columns)
    scales = {"f32": (1e18, 1e-18, 1e35, 1e-32), "f64": (1e180, 1e-180, 1e300, 1e-300)}[kind]
    a[7:] *= np.reshape(scales, (4, 1, 1))
    return a.astype({"f32": np.float32, "f64": np.float64}[kind])


def assert_equal_each(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Each matrix or row within `tolerance` of its own largest element."""
    for one, other in zip(found, expected, strict=True):
        largest = max(np.abs(other).max(), np.finfo(other.dtype).tiny)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_singular_values(size: tuple[int, int], kind: str) -> None:
    a, tolerance = unusual(*size, kind), KINDS[kind]
    module = module_of(SVD, a, vectors=True)
    s, u, v = run(module, a)
    assert (s >= 0).all() and (np.diff(s) <= 0).all()
    assert_equal_each(s, evaluate(module, [a])[0], tolerance)
    assert_equal_each((u * s[:, None]) @ transposed(v), a, 2 * tolerance)
    for each in (u, v):
        assert_near(transposed(each) @ each, identities(transposed(each) @ each), tolerance)
    (alone,) = run(module_of(SVD, a, vectors=False), a)
    assert alone.tobytes() == s.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 5, 17, 40])
def test_eigenvalues(size: int, kind: str) -> None:
    a, tolerance = unusual(size, size, kind), KINDS[kind]
    whole = np.tril(a) + transposed(np.tril(a, -1))
    module = module_of(EIGH, a, vectors=True)
    values, vectors = run(module, np.where(np.tri(size, dtype=bool), a, np.nan))
    assert (np.diff(values) >= 0).all()
    assert_equal_each(values, np.linalg.eigvalsh(whole.astype(np.float64)), tolerance)
    assert_equal_each((vectors * values[:, None]) @ transposed(vectors), whole, 2 * tolerance)
    assert_near(transposed(vectors) @ vectors, identities(whole), tolerance)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("size", SIZES[2:], ids=str)
def test_orthogonal_factors(size: tuple[int, int], full: bool) -> None:
    a = np.random.default_rng(1).standard_normal((2, 3, *size)).astype(np.float32)
    check(module_of(QR, a, full=full), [a], 1e-5)
    for kind, tolerance in KINDS.items():
        odd = unusual(*size, kind)
        q, r = run(module_of(QR, odd, full=full), odd)
        assert_equal_each(q @ r, odd, tolerance)
        assert_near(transposed(q) @ q, identities(transposed(q) @ q), tolerance)
        assert not np.tril(r, -1).any()


def test_factors_are_orthogonal_where_squares_vanish() -> None:
    """Squares of the rest of a column are near the least number, beside elements of size one."""
    a = np.array([[[1, 1], [0, 1e-155], [0, c], [0, 1.6e-154]] for c in (1.3e-154, 1e-160, 1e-136, 1e-134)])
    (q, r), (s, u, v) = run(module_of(QR, a, full=False), a), run(module_of(SVD, a, vectors=True), a)
    assert_equal_each(q @ r, a, 1e-15)
    assert_equal_each((u * s[:, None]) @ transposed(v), a, 1e-15)
    for each in (q, u, v):
        assert_near(transposed(each) @ each, identities(v), 1e-15)


def test_tiny_blocks_beside_others() -> None:
    """A block's elements are so far below the other block's that their squares vanish, but not below each other."""
    block = np.random.default_rng(7).standard_normal((3, 3))
    a = np.zeros((8, 5, 5))
    for k, size in enumerate((1e-90, 1e-99, 1e-101, 1e-150, 1e-155, 1e-160, 1e-200, 1e-300)):
        tiny, other = (slice(0, 3), slice(3, 5)) if k % 2 else (slice(2, 5), slice(0, 2))
        a[k, tiny, tiny], a[k, other, other] = (block + block.T) * size, [[2, 1], [1, 3]]
    values, vectors = run(module_of(EIGH, a, vectors=True), a)
    s, u, v = run(module_of(SVD, a, vectors=True), a)
    assert_equal_each((vectors * values[:, None]) @ transposed(vectors), a, 1e-14)
    assert_equal_each((u * s[:, None]) @ transposed(v), a, 1e-14)
    for each in (vectors, u, v):
        assert_near(transposed(each) @ each, identities(v), 1e-14)


@pytest.mark.parametrize("target", [SVD, EIGH, QR, LU, SOLVE])
def test_workers_give_the_same_bits(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    a = np.random.default_rng(4).standard_normal((7, 6, 6)).astype(np.float32)
    given = [a, a[..., :2] + 1] if target == SOLVE else [a]
    config = {SVD: {"vectors": True}, EIGH: {"vectors": True}, QR: {"full": False}}.get(target, {})
    module, found = module_of(target, *given, **config), set()
    for workers in (1, 2, 3):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        found.add(b"".join(each.tobytes() for each in fast(module, given)[0]))
    machine = Machine(build_program(module, ["variable"] * len(given), {}, verify=True), dict(enumerate(given)))
    found.add(b"".join(each.tobytes() for each in machine.run(lambda units: reversed(range(units)))))
    assert len(found) == 1


@pytest.mark.parametrize("size", [1, 2, 5, 17, 40])
def test_elimination(size: int) -> None:
    rng = np.random.default_rng(size)
    a = rng.standard_normal((3, 2, size, size))
    for dtype, tolerance in ((np.float32, 1e-3), (np.float64, 1e-11)):
        given, b = a.astype(dtype), rng.standard_normal((3, 2, size, 3)).astype(dtype)
        factors, order, sign = run(module_of(LU, given), given)
        rows = np.take_along_axis(given, order[..., None].astype(np.int64), -2)
        assert_near((np.tril(factors, -1) + identities(factors)) @ np.triu(factors), rows, tolerance)
        determinant = sign * np.prod(np.diagonal(factors, axis1=-2, axis2=-1), -1)
        np.testing.assert_allclose(determinant, np.linalg.det(a), rtol=100 * tolerance)
        check(module_of(SOLVE, given, b), [given, b], tolerance)


@pytest.mark.parametrize(("a_scale", "b_scale"), [(1e-37, 1.0), (1e36, 1e36), (1e-37, 1e-37), (1e36, 1.0)])
def test_elimination_of_tiny_and_huge_matrices(a_scale: float, b_scale: float) -> None:
    """Elements are near one, multiplied by powers of two."""
    rng = np.random.default_rng(3)
    powers = 2.0 ** np.round(np.log2([a_scale, b_scale]))
    a, b = (rng.integers(1, 9, shape).astype(np.float32) + 5 * np.eye(*shape[-2:]) for shape in ((2, 6, 6), (2, 6, 2)))
    a, b = a.astype(np.float32), b.astype(np.float32)
    (x,), (factors, _, _) = run(module_of(SOLVE, a, b), a, b), run(module_of(LU, a), a)
    given, right = (a * powers[0]).astype(np.float32), (b * powers[1]).astype(np.float32)
    (scaled,), (upper, _, _) = run(module_of(SOLVE, given, right), given, right), run(module_of(LU, given), given)
    np.testing.assert_array_equal(scaled, (x * (powers[1] / powers[0])).astype(np.float32))
    # Subnormal elements of U are zero.
    np.testing.assert_allclose(np.triu(upper), np.triu(factors.astype(np.float64) * powers[0]), rtol=1e-7, atol=1.2e-38)
    np.testing.assert_array_equal(np.tril(upper, -1), np.tril(factors, -1))


@pytest.mark.parametrize(("kind", "huge", "small"), [(np.float32, 2e38, 0.01), (np.float64, 1e300, 1e-20)])
def test_small_elements_beside_huge_ones(kind: type, huge: float, small: float) -> None:
    diagonal, one = np.array([[[huge, 0], [0, small]]], kind), np.eye(2, dtype=kind)[None]
    factors, *_ = run(module_of(LU, diagonal), diagonal)
    np.testing.assert_array_equal(factors, diagonal)
    right = np.array([[[huge, small], [1, 1.5 * small]]], kind)
    (x,) = run(module_of(SOLVE, one, right), one, right)
    np.testing.assert_array_equal(x, right)
    both = np.array([[[huge, huge * 1e-25]] * 2], kind).swapaxes(1, 2) if kind is np.float64 else right[..., :1]
    given = (one * kind(huge)).astype(kind)
    (x,) = run(module_of(SOLVE, given, both), given, both)
    np.testing.assert_allclose(x, both / huge, rtol=1e-6, atol=1.2e-38)


def test_elements_that_are_not_finite() -> None:
    for value in (np.nan, np.inf):
        a = np.random.default_rng(2).standard_normal((3, 6, 6)).astype(np.float32)
        a[1, 4, 2] = value
        for target, config in ((SVD, "vectors"), (EIGH, "vectors"), (QR, "full")):
            for result in run(module_of(target, a, **{config: True}), a):
                assert np.isnan(result[1]).all() and np.isfinite(result[[0, 2]]).all()


@pytest.mark.parametrize("config", [{}, {"vectors": 1}, {"vectors": True, "full": True}])
def test_settings_are_true_or_false(config: dict[str, bool]) -> None:
    with pytest.raises(InternalError, match=r"Expected true or false for \['vectors'\]"):
        module_of(SVD, np.ones((3, 3), np.float32), **config)
