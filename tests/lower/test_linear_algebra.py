"""cholesky and triangular-solve."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from engine.evaluate import evaluate
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from tests.engine.running import assert_near, check, fast
from tests.exploring import sample


def matrices(rng: np.random.Generator, kind: str, dimensions: tuple[int, ...]) -> np.ndarray:
    """Random matrices in double precision."""
    imaginary = 1j * rng.normal(size=dimensions) if kind[0] == "c" else 0
    return rng.normal(size=dimensions) + imaginary


def positive_definite(rng: np.random.Generator, kind: str, dimensions: tuple[int, ...]) -> np.ndarray:
    a = matrices(rng, kind, dimensions)
    size = dimensions[-1]
    return a @ np.conj(np.swapaxes(a, -1, -2)) / max(size, 1) + np.eye(size)


def cholesky_module(kind: str, dimensions: tuple[int, ...], lower: bool) -> Module:
    b = Builder()
    return b.module(b.elementwise("cholesky", b.parameter(kind, dimensions), lower=lower))


@pytest.mark.sample(3)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", ["f32", "f64", "c64", "c128", "f16"])
def test_cholesky(kind: str, lower: bool) -> None:
    rng = np.random.default_rng(0)
    for dimensions in ((1, 1), (5, 5), (3, 17, 17), (2, 2, 40, 40), (0, 3, 3), (2, 0, 0)):
        a = positive_definite(rng, kind, dimensions).astype(Shape(kind).dtype)
        check(cholesky_module(kind, dimensions, lower), [a])


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_reads_one_triangle(lower: bool) -> None:
    a = positive_definite(np.random.default_rng(1), "f32", (9, 9)).astype(np.float32)
    named, other = (np.tril, np.triu) if lower else (np.triu, np.tril)
    spoilt = named(a) + other(np.full_like(a, np.nan), 1 if lower else -1)
    (outputs, _) = fast(cholesky_module("f32", (9, 9), lower), [np.where(np.isnan(spoilt), np.nan, spoilt)])
    assert_near(outputs[0], evaluate(cholesky_module("f32", (9, 9), lower), [a])[0])


@pytest.mark.parametrize("value", [-1, np.nan])
@pytest.mark.parametrize("pivot", [0, 3, 8])
def test_matrix_that_is_not_positive_definite_gives_nan(pivot: int, value: float) -> None:
    a = np.stack([np.eye(9, dtype=np.float32)] * 3)
    a[1, pivot, pivot] = value
    module = cholesky_module("f32", a.shape, True)
    ((result,), _) = fast(module, [a])
    assert np.isnan(result[1]).all() and np.isnan(evaluate(module, [a])[0][1]).all()
    np.testing.assert_array_equal(result[[0, 2]], a[[0, 2]])


SYSTEMS = (
    ((), 1, 1),
    ((), 7, 3),
    ((2,), 33, 70),
    ((2, 3), 9, 1),
    ((), 4, 0),
    ((0,), 3, 2),
    ((3,), 12, 17),
    ((), 21, 8),
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("transpose_a", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("kind", ["f32", "f64", "c64", "bf16"])
def test_triangular_solve(kind: str, transpose_a: str) -> None:
    rng = np.random.default_rng(2)
    cases = list(product(SYSTEMS, (True, False), (True, False), (True, False)))
    for (batch, size, sides), left, lower, unit in sample(cases, 17):
        a = (matrices(rng, kind, (*batch, size, size)) / size + 2 * np.eye(size)).astype(Shape(kind).dtype)
        dimensions = (*batch, size, sides) if left else (*batch, sides, size)
        b = Builder()
        operands = b.parameter(kind, a.shape), b.parameter(kind, dimensions)
        b.inferred(
            *("triangular-solve", operands),
            left_side=left,
            lower=lower,
            unit_diagonal=unit,
            transpose_a=transpose_a,
        )
        check(b.module(), [a, matrices(rng, kind, dimensions).astype(Shape(kind).dtype)], 1e-5)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_triangular_solve_reads_one_triangle(kind: str) -> None:
    """The diagonals of unit triangles are not read; infinite and NaN right-hand sides stay in their own column."""
    rng = np.random.default_rng(4)
    for size, lower, unit, transpose_a in product((3, 13), (True, False), (True, False), ("NO_TRANSPOSE", "ADJOINT")):
        a = (rng.normal(size=(size, size)) / size + 2 * np.eye(size)).astype(Shape(kind).dtype)
        right = rng.normal(size=(size, 19)).astype(a.dtype)
        right[size // 2, 5:7] = np.inf, np.nan
        b = Builder()
        operands = b.parameter(kind, a.shape), b.parameter(kind, right.shape)
        attributes = {"left_side": True, "lower": lower, "unit_diagonal": unit, "transpose_a": transpose_a}
        b.inferred("triangular-solve", operands, **attributes)
        other = np.triu(np.ones_like(a), 1 - unit) if lower else np.tril(np.ones_like(a), unit - 1)
        ((result,), _) = fast(b.module(), [np.where(other == 0, a, np.nan).astype(a.dtype), right])
        expected = evaluate(b.module(), [a, right])[0]
        columns = np.isfinite(right).all(0)
        assert_near(np.ascontiguousarray(result[:, columns]), np.ascontiguousarray(expected[:, columns]))
        np.testing.assert_array_equal(np.isfinite(result), np.isfinite(expected))


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_operands_and_results_in_buffers_of_another_shape(kind: str) -> None:
    """The product is written as [5, 10], and read as two matrices."""
    b = Builder()
    square, columns = b.parameter(kind, (5, 5)), b.parameter(kind, (5, 10))
    made = b.reshape(b.dot(square, columns), (2, 5, 5))
    attributes = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"}
    solved = b.reshape(b.inferred("triangular-solve", (made, made), **attributes), (10, 5))
    factor = b.reshape(b.elementwise("cholesky", made, lower=True), (5, 10))
    values = [np.eye(5), (np.tile(np.eye(5), (2, 1, 1)) + 0.25).reshape(5, 10)]
    check(b.module(b.tuple(solved, factor)), [v.astype(Shape(kind).dtype) for v in values])


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("kind", ["f32", "c64", "c128"])
def test_a_pivot_of_zero_gives_infinity_and_nan(kind: str, zero: float) -> None:
    """Both parts of a complex number are divided by the zero of the real part, as in XLA."""
    dtype = Shape(kind).dtype
    a, right = np.zeros((1, 1), dtype), np.array([[1, -2, 0, np.nan]], dtype)
    a.real = zero
    if kind[0] == "c":
        right.imag = [[3, -1, 0, 0]]
    b = Builder()
    operands = b.parameter(kind, a.shape), b.parameter(kind, right.shape)
    b.inferred(
        *("triangular-solve", operands), left_side=True, lower=True, unit_diagonal=False, transpose_a="NO_TRANSPOSE"
    )
    ((result,), _) = fast(b.module(), [a, right])
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = right.view(right.real.dtype) / right.real.dtype.type(zero)
    finite = result[:, :3]
    np.testing.assert_array_equal(finite, parts.view(dtype)[:, :3])
    assert np.isnan(result[0, 3])


def test_triangular_solve_undoes_a_product() -> None:
    """Elementwise operations are before and after it, and an operand is transposed."""
    rng = np.random.default_rng(3)
    size = 12
    b = Builder()
    a, x = b.parameter("f64", (size, size)), b.parameter("f64", (size, 5))
    triangle = b.transpose(a, (1, 0))
    solved = b.inferred(
        *("triangular-solve", (triangle, b.dot(triangle, x))),
        left_side=True,
        lower=False,
        unit_diagonal=False,
        transpose_a="NO_TRANSPOSE",
    )
    lower = np.tril(rng.normal(size=(size, size))) / size + np.eye(size)
    values = [lower, rng.normal(size=(size, 5))]
    ((result,), _) = fast(b.module(b.subtract(solved, x)), values)
    np.testing.assert_allclose(result, 0, atol=1e-12)
