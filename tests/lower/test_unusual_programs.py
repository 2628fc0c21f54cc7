"""Valid programs that no front end writes: each is the smallest module for a fault that changed exports have shown."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.errors import InternalError
from engine.evaluate import evaluate
from engine.ir import (
    Computation,
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    Module,
    Shape,
    WindowDimension,
)
from engine.ir.builder import Builder, binary_computation
from engine.ir.verifier import verify
from tests.engine.running import check, fast

random = np.random.default_rng(23)
BODIES: dict[str, Callable[[np.float32, np.float32], np.floating]] = {
    "power": np.float_power,
    "remainder": np.fmod,
    "subtract": np.subtract,
    "doubled": lambda _, y: 2 * y,
    "squared": lambda _, y: y * y,
    "assigned": lambda _, y: y,
}


def body(name: str) -> Computation:
    """A computation of two scalars that is not associative."""
    if name not in ("doubled", "squared", "assigned"):
        return binary_computation(name, "f32")
    b = Builder(name)
    _, y = b.parameter("f32"), b.parameter("f32")
    return b.build({"doubled": b.add, "squared": b.multiply, "assigned": lambda y, _: y}[name](y, y))


def folded(name: str, start: float, values: np.ndarray) -> np.floating:
    total = np.float32(start)
    for value in values.ravel():
        total = np.float32(BODIES[name](total, value))
    return total


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_not_associative_is_folded_in_row_major_order(name: str) -> None:
    x = random.uniform(0.5, 1.5, (3, 4, 5)).astype(np.float32)
    b = Builder()
    values, start = b.parameter("f32", x.shape), b.constant(1.25)
    reduced = b.inferred("reduce", (values, start), (body(name),), dimensions=(0, 2))
    window = (WindowDimension(1), WindowDimension(2, 2), WindowDimension(3, 1, 1, 1))
    pooled = b.inferred("reduce-window", (values, start), (body(name),), window=window)
    module = b.module(b.tuple(reduced, pooled))
    check(module, [x])
    of_reduce, of_windows = evaluate(module, [x])
    np.testing.assert_allclose(of_reduce, [folded(name, 1.25, x[:, k]) for k in range(4)], rtol=1e-5)
    first = np.pad(x[0, :2, :2], ((0, 0), (1, 0)), constant_values=1.25)
    np.testing.assert_allclose(of_windows[0, 0, 0], folded(name, 1.25, first), rtol=1e-5)


def test_halves_of_a_long_dot_are_rounded_once() -> None:
    """The first half of the products adds up to 180,000, too large for float16, the second half to -180,000."""
    depth = 9000
    b = Builder()
    b.dot(b.parameter("f16", (2, depth)), b.parameter("f16", (depth, 3)))
    signs = np.where(np.arange(depth) < depth // 2, 1, -1)
    x = (5 * np.broadcast_to(signs, (2, depth))).astype(np.float16)
    y = np.full((depth, 3), 8, np.float16)
    y[-1] = 7.5
    (result,), _ = fast(b.module(), [x, y])
    np.testing.assert_array_equal(result.astype(np.float32), np.full((2, 3), 2.5, np.float32))


@pytest.mark.parametrize(("left", "right", "kind"), [("f32", "f32", "f16"), ("f16", "bf16", "bf16")])
def test_operands_of_a_dot_are_not_rounded_to_a_half_result(left: str, right: str, kind: str) -> None:
    b = Builder()
    x, y = b.parameter(left, (6, 40)), b.parameter(right, (40, 9))
    b.instruction("dot", Shape(kind, (6, 9)), (x, y), dot_dimension_numbers=DotDimensionNumbers((1,), (0,)))
    x_value, y_value = (random.normal(size=p.array_shape.dimensions).astype(p.array_shape.dtype) for p in (x, y))
    (result,), _ = fast(b.module(), [x_value, y_value])
    exact = x_value.astype(np.float64) @ y_value.astype(np.float64)
    digits = {"f16": 11, "bf16": 8}[kind]
    assert np.all(np.abs(result.astype(np.float64) - exact) <= 0.501 * 2.0 ** (1 - digits) * np.abs(exact) + 1e-6)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_phases_of_a_dilated_convolution_of_many_features(kind: str) -> None:
    """Each phase writes a part of the result, so sums split over k must leave the other parts alone."""
    b = Builder()
    x, kernel = b.parameter(kind, (1, 3, 3, 2100)), b.parameter(kind, (3, 3, 2100, 8))
    window = (WindowDimension(3, 1, 2, 2, 1, 2),) * 2
    b.convolution(x, kernel, window, ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)))
    check(b.module(), tolerance=1e-4)


def test_a_triangle_without_its_diagonal_and_one_that_is_singular() -> None:
    """A unit diagonal is not read; a zero on another diagonal gives infinities, and no error."""
    values = np.tril(random.normal(size=(4, 4))).astype(np.float32)
    right = random.normal(size=(4, 2)).astype(np.float32)
    np.fill_diagonal(values, np.nan)
    options = {"left_side": True, "lower": True, "transpose_a": "NO_TRANSPOSE"}
    for unit in (True, False):
        b = Builder()
        a, x = b.parameter("f32", (4, 4)), b.parameter("f32", (4, 2))
        module = b.module(b.inferred("triangular-solve", (a, x), unit_diagonal=unit, **options))
        check(module, [values, right])
        if unit:
            np.fill_diagonal(values, 1)
            expected = np.linalg.solve(values, right)
            np.testing.assert_allclose(evaluate(module, [values, right])[0], expected, rtol=1e-4)
            values[1, 1] = 0


def _grouped_twice() -> Module:
    b = Builder()
    x, kernel = b.parameter("f32", (2, 4, 3, 4)), b.parameter("f32", (2, 2, 1, 8))
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    made = {"convolution_dimension_numbers": numbers, "feature_group_count": 4, "batch_group_count": 2}
    b.instruction("convolution", Shape("f32", (1, 3, 2, 8)), (x, kernel), window=(WindowDimension(2),) * 2, **made)
    return b.module()


def _gathered_outside() -> Module:
    b = Builder()
    x, ids = b.parameter("f32", (5, 3)), b.parameter("s32", (2, 1))
    numbers = GatherDimensionNumbers((3,), (0,), (0,), 1)
    made = {"gather_dimension_numbers": numbers, "gather_slice_sizes": (1, 3)}
    b.instruction("gather", Shape("f32", (2, 3)), (x, ids), **made)
    return b.module()


def _dot(left: str, right: str, kind: str) -> Module:
    b = Builder()
    x, y = b.parameter(left, (4, 8)), b.parameter(right, (8, 3))
    b.instruction("dot", Shape(kind, (4, 3)), (x, y), dot_dimension_numbers=DotDimensionNumbers((1,), (0,)))
    return b.module()


def _elementwise(opcode: str, kind: str, operands: int, **attributes: str) -> Module:
    b = Builder()
    b.elementwise(opcode, *(b.parameter(kind, (4,)) for _ in range(operands)), **attributes)
    return b.module()


def _converted() -> Module:
    b = Builder()
    b.convert(b.parameter("c64", (4,)), "f16")
    return b.module()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (_dot("f16", "c64", "f16"), "Expected a complex result of f16, c64. Received: f16"),
        (_converted(), "Expected a complex result of c64. Received: f16; take `real`"),
        (_elementwise("and", "f32", 2), "in and. Received: f32"),
        (_elementwise("tanh", "s32", 1), "in tanh. Received: s32"),
        (_elementwise("maximum", "c64", 2), "in maximum. Received: c64"),
        (_elementwise("compare", "c64", 2, direction="LT"), "Expected EQ or NE of complex numbers. Received: LT"),
        (_grouped_twice(), "Expected groups of features or of the batch. Received: 4 and 2"),
        (_gathered_outside(), "Expected different offset dims below 2. Received: .3,."),
    ],
    ids=["dot", "convert", "and", "tanh", "maximum", "compare", "groups", "gather"],
)
def test_ops_on_what_they_are_not_defined_for_are_refused(module: Module, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify(module)
