"""dot in every order of dimensions, size and element type."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.host.passes.exchanged_products import exchange_products
from engine.ir import DotDimensionNumbers, Shape
from engine.ir.builder import Builder
from engine.runtime.executable import Executable
from tests.engine.running import buffers, check

KINDS = ("f32", "f64", "f16", "bf16", "s32", "u8", "s64")


def contract(lhs: tuple[int, ...], rhs: tuple[int, ...], numbers: DotDimensionNumbers, kind: str = "f32") -> None:
    builder = Builder()
    builder.dot(builder.parameter(kind, lhs), builder.parameter(kind, rhs), numbers)
    check(builder.module(), tolerance=1e-4 if kind == "f32" else 1e-5)


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(60))
def test_any_dimension_numbers(seed: int) -> None:
    """Batch, contracting and free dimensions in random places on both sides."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 3, 4)
    roles = [f"{role}{n}" for role, count in zip("bklr", counts, strict=True) for n in range(count)]
    sizes = {role: int(rng.choice([1, 2, 3, 5, 8, 17, 33])) for role in roles}
    sides = []
    for mine in ("bkl", "bkr"):
        names = [r for r in roles if r[0] in mine]
        sides.append([names[i] for i in rng.permutation(len(names))])
    left, right = sides
    batch, contracting = ([r for r in roles if r[0] == c] for c in "bk")
    numbers = DotDimensionNumbers(
        *(tuple(side.index(r) for r in contracting) for side in (left, right)),
        *(tuple(side.index(r) for r in batch) for side in (left, right)),
    )
    shapes = [tuple(sizes[r] for r in side) for side in (left, right)]
    contract(*shapes, numbers, str(rng.choice(KINDS)))


@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [
        (1, 1, 1),
        (1, 300, 1),
        (1, 64, 200),
        (200, 64, 1),
        (7, 0, 5),
        (0, 4, 5),
        (4, 4, 0),
        (33, 17, 65),
        (100, 300, 130),
        (3, 9000, 5),
        (64, 5000, 64),
        (500, 70, 10),
        (31, 200, 1000),
    ],
    ids=str,
)
@pytest.mark.parametrize("turned", ["", "left", "right", "both"])
def test_matrices(rows: int, depth: int, columns: int, turned: str) -> None:
    left = (depth, rows) if turned in ("left", "both") else (rows, depth)
    right = (columns, depth) if turned in ("right", "both") else (depth, columns)
    numbers = DotDimensionNumbers((left.index(depth),), (right.index(depth),))
    if rows == depth or depth == columns:
        numbers = DotDimensionNumbers((int(left == (rows, depth)),), (int(right == (columns, depth)),))
    contract(left, right, numbers)


@pytest.mark.parametrize("depth", [0, 1, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_types(kind: str, depth: int) -> None:
    contract((9, depth), (depth, 35), DotDimensionNumbers((1,), (0,)), kind)


def test_vectors() -> None:
    contract((50,), (50,), DotDimensionNumbers((0,), (0,)))
    contract((5, 50), (50,), DotDimensionNumbers((1,), (0,)))
    contract((50,), (50, 7), DotDimensionNumbers((0,), (0,)))
    contract((5,), (7,), DotDimensionNumbers())


@pytest.mark.parametrize("batches", [1, 2, 40])
def test_batches_of_matrices_large_and_small(batches: int) -> None:
    for rows, depth, columns in ((5, 6, 7), (40, 64, 100), (1, 30, 1)):
        numbers = DotDimensionNumbers((2,), (1,), (0,), (0,))
        contract((batches, rows, depth), (batches, depth, columns), numbers)


def test_operands_seen_through_moves() -> None:
    builder = Builder()
    x, y = builder.parameter("f32", (6, 5, 8)), builder.parameter("f32", (40, 12))
    turned = builder.transpose(x, (1, 0, 2))
    part = builder.slice(builder.reverse(y, (0,)), (3, 38, 5), (1, 12))
    left = builder.reshape(builder.slice(turned, (0, 5), (1, 5), (0, 7)), (20, 7))
    builder.dot(left, part)
    check(builder.module())


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_result_of_another_type_than_its_operands(kind: str) -> None:
    builder = Builder()
    x, y = builder.parameter(kind, (6, 40)), builder.parameter(kind, (40, 9))
    builder.instruction("dot", Shape("f32", (6, 9)), (x, y), dot_dimension_numbers=DotDimensionNumbers((1,), (0,)))
    check(builder.module())


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("steps", "rows", "left", "right"), [(3, 5, 7, 9), (40, 32, 64, 128), (7, 0, 3, 4), (60, 8, 1, 33)]
)
def test_gradient_of_16_bit_floats_that_is_summed_over_steps(
    kind: str, steps: int, rows: int, left: int, right: int
) -> None:
    """The sum over steps in float32 is part of the product."""
    b = Builder()
    x, y = b.parameter(kind, (steps, rows, left)), b.parameter(kind, (steps, rows, right))
    product = b.dot(x, y, DotDimensionNumbers((1,), (1,), (0,), (0,)))
    module = b.module(b.reduce(b.convert(product, "f32"), b.constant(0.0), (0,)))
    rng = np.random.default_rng(0)
    values = [rng.normal(size=p.array_shape.dimensions).astype(p.array_shape.dtype) for p in module.entry.parameters]
    result = Executable(build_program(module, ["variable"] * 2, {})).run(1, [], buffers(values))[0]
    expected = np.einsum("trl,trm->lm", *(each.astype(np.float64) for each in values))
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.sqrt(steps * rows) + 1e-30)


def test_spread_and_repeated_operands() -> None:
    """A broadcast operand is read in place, repeatedly."""
    builder = Builder()
    row = builder.parameter("f32", (12,))
    x = builder.parameter("f32", (12, 20))
    builder.dot(builder.broadcast(row, (5, 12), (1,)), x)
    check(builder.module())
    builder = Builder()
    square = builder.parameter("f32", (30, 30))
    builder.dot(square, square)
    check(builder.module())


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("order", [None, (0, 2, 1, 3)])
def test_batches_of_a_tall_transposed_operand_with_few_columns(right: bool, order: tuple[int, ...] | None) -> None:
    """Gradients of attention by keys and values: the tall operand is the product's right one."""
    builder = Builder()
    tall, slim = builder.parameter("f32", (2, 3, 130, 150)), builder.parameter("f32", (2, 3, 130, 9))
    batch, terms = (0, 1), (2,)
    numbers = DotDimensionNumbers(terms, terms, batch, batch)
    product = builder.dot(*((slim, tall) if right else (tall, slim)), numbers)
    if order is not None:
        builder.transpose(product, (0, 3, 1, 2) if right else order)
    module = builder.module()
    program = build_program(module, ["variable"] * 2, {})
    names = [each.name for each in exchange_products(program).compute_sets]
    assert any(name.endswith(".copy") for name in names) == (not right or order is not None)
    assert len(program.compute_sets) == 1, "a chip multiplies them as they are"
    check(module, tolerance=1e-4)
