"""Products of complex arrays become one product of real arrays, with the results of the definition."""

import numpy as np
import pytest

from engine.evaluate import evaluate
from engine.ir import DotDimensionNumbers, Module
from engine.ir.builder import Builder
from engine.passes.complex_products import complex_products, has_complex_products
from tests.engine.running import fast

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], DotDimensionNumbers]] = {
    "matrices": ((37, 19), (19, 23), DotDimensionNumbers((1,), (0,))),
    "the left one is smaller": ((5, 40), (40, 90), DotDimensionNumbers((1,), (0,))),
    "transposed": ((19, 37), (23, 19), DotDimensionNumbers((0,), (1,))),
    "a batch": ((3, 17, 9), (3, 9, 21), DotDimensionNumbers((2,), (1,), (0,), (0,))),
    "batches and several dimensions": (
        (4, 3, 6, 2, 5),
        (5, 7, 2, 4, 3, 2),
        DotDimensionNumbers((3, 4), (2, 0), (0, 1), (3, 4)),
    ),
}


def product(name: str, element_type: str = "c64") -> Module:
    a, b, numbers = SHAPES[name]
    builder = Builder()
    x, y = builder.parameter(element_type, a), builder.parameter(element_type, b)
    return builder.module(builder.dot(x, y, numbers))


def arrays(name: str) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [(rng.normal(size=s) + 1j * rng.normal(size=s)).astype(np.complex64) for s in SHAPES[name][:2]]


@pytest.mark.parametrize("name", SHAPES)
def test_the_product_is_the_definitions(name: str) -> None:
    module, given = product(name), arrays(name)
    rewritten = complex_products(module)
    assert [i.array_shape.element_type for i in rewritten.entry.instructions if i.opcode == "dot"] == ["f32"]
    (expected,) = evaluate(module, given)
    (evaluated,), ((got,), _) = evaluate(rewritten, given), fast(module, given)
    for each in (evaluated, got):
        np.testing.assert_allclose(each, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_what_is_not_finite_stays_in_its_rows_and_columns() -> None:
    module, (a, b) = product("matrices"), arrays("matrices")
    a[3, 4], a[5, 6], b[2, 7] = np.inf, complex(0, np.nan), complex(-np.inf, 1)
    ((got,), _) = fast(module, [a, b])
    is_finite = np.ones(got.shape, bool)
    is_finite[[3, 5]], is_finite[:, 7] = False, False
    np.testing.assert_array_equal(np.isfinite(got), is_finite)


def test_parts_of_what_is_made_of_parts_are_those_parts() -> None:
    builder = Builder()
    parts = [builder.parameter("f32", (32, 32)) for _ in range(2)]
    matrix = builder.elementwise("complex", *parts)
    after = complex_products(builder.module(builder.dot(matrix, matrix)))
    used = after.entry.instructions
    concatenated = [each.operands[0] for each in used if each.opcode == "concatenate"]
    assert parts[0] in concatenated and not any(each.operands == (matrix,) for each in used)


def test_others_stay() -> None:
    builder = Builder()
    x, y = builder.parameter("c64", (8, 8)), builder.parameter("c64", (8, 8))
    for module in (product("matrices", "c128"), product("matrices", "f32"), builder.module(builder.dot(x, y))):
        assert not has_complex_products(module) and complex_products(module) is module
