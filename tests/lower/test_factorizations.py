"""Factorizations of matrices: residuals and orthogonality, values against NumPy's, degenerate and unusual matrices."""

from __future__ import annotations

import json

import numpy as np
import pytest

from engine.compile import compile_module
from engine.evaluate import evaluate
from engine.files.checks import check_module
from engine.ir import Instruction, Module, TupleShape
from engine.ir.builder import Builder
from engine.ir.factorizations import EIGH, LU, QR, SOLVE, SVD, factorization_shapes
from tests.engine.running import assert_near, buffers, check

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
    check_module(module)
    executable = compile_module(module, ["variable"] * len(operands), {}, verify=True)
    return executable.run(1, [], buffers(list(operands)))


def transposed(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2)


def identities(like: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.eye(like.shape[-1], dtype=like.dtype), like.shape)


def unusual(rows: int, columns: int, kind: str) -> np.ndarray:
    """Random, of rank one, zero, diagonal, with equal rows, triangular, graded, and huge or tiny for float64."""
    rng = np.random.default_rng(rows * columns)
    a = rng.standard_normal((9, rows, columns))
    a[1] = a[1, :, :1] * a[1, :1]
    a[2] = 0
    a[3] *= np.eye(rows, columns)
    a[4] = a[4, :1]
    a[5] = np.triu(a[5])
    a[6] *= 10.0 ** -np.arange(columns)
    if kind == "f64":
        a[7], a[8] = a[7] * 1e180, a[8] * 1e-180
    return a.astype({"f32": np.float32, "f64": np.float64}[kind])


def assert_equal_each(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Each matrix or row within `tolerance` of its own largest element."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * max(np.abs(other).max(), 1e-300))


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
    odd = unusual(*size, "f64")
    q, r = run(module_of(QR, odd, full=full), odd)
    assert_equal_each(q @ r, odd, 1e-14)
    assert_near(transposed(q) @ q, identities(transposed(q) @ q), 1e-14)
    assert not np.tril(r, -1).any()


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


def test_elements_that_are_not_finite() -> None:
    for value in (np.nan, np.inf):
        a = np.random.default_rng(2).standard_normal((3, 6, 6)).astype(np.float32)
        a[1, 4, 2] = value
        for target, config in ((SVD, "vectors"), (EIGH, "vectors"), (QR, "full")):
            for result in run(module_of(target, a, **{config: True}), a):
                assert np.isnan(result[1]).all() and np.isfinite(result[[0, 2]]).all()
