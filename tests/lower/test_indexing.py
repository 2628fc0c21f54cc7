"""gather and scatter."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.errors import UnsupportedOperation
from engine.ir import GatherDimensionNumbers, ScatterDimensionNumbers, Shape
from engine.ir.builder import Builder, binary_computation
from tests.engine.running import check


def take(kind: str, table: tuple[int, int], indices: np.ndarray) -> None:
    builder = Builder()
    x = builder.parameter(kind, table)
    places = builder.parameter("s32", indices.shape)
    numbers = GatherDimensionNumbers((indices.ndim,), (0,), (0,), indices.ndim)
    builder.instruction(
        *("gather", Shape(kind, (*indices.shape, table[1])), (x, places)),
        gather_dimension_numbers=numbers,
        gather_slice_sizes=(1, table[1]),
    )
    rng = np.random.default_rng(0)
    values = rng.integers(0, 100, table).astype(Shape(kind).dtype)
    check(builder.module(), [values, indices])


@pytest.mark.parametrize("kind", ["f32", "f16", "s64", "u8", "pred"])
def test_rows_of_a_table(kind: str) -> None:
    rng = np.random.default_rng(1)
    for shape, table in (((5,), (9, 3)), ((4, 6), (30, 17)), ((1,), (1, 1)), ((0,), (4, 4)), ((500,), (50, 64))):
        # Indices out of range are clamped.
        take(kind, table, rng.integers(-3, table[0] + 3, shape).astype(np.int32))


def test_slices_at_two_coordinates() -> None:
    builder = Builder()
    x, places = builder.parameter("f32", (6, 7, 5)), builder.parameter("s32", (4, 2))
    numbers = GatherDimensionNumbers((1, 2), (2,), (2, 0), 1)
    builder.instruction(
        *("gather", Shape("f32", (4, 3, 7)), (x, places)),
        gather_dimension_numbers=numbers,
        gather_slice_sizes=(3, 7, 1),
    )
    rng = np.random.default_rng(2)
    check(builder.module(), [rng.normal(size=(6, 7, 5)).astype("f"), rng.integers(-2, 9, (4, 2)).astype("i")])


@pytest.mark.parametrize("opcode", ["add", "maximum", "minimum", "multiply"])
@pytest.mark.parametrize("kind", ["f32", "s32", "f64"])
def test_scatter_rows(opcode: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    for count, table in ((7, (5, 3)), (0, (5, 3)), (400, (60, 64))):
        builder = Builder()
        x, places = builder.parameter(kind, table), builder.parameter("s32", (count, 1))
        updates = builder.parameter(kind, (count, table[1]))
        builder.instruction(
            *("scatter", x.shape, (x, places, updates), (binary_computation(opcode, kind),)),
            scatter_dimension_numbers=ScatterDimensionNumbers((1,), (0,), (0,), 1),
        )
        # Updates out of range are left out; places repeat.
        indices = rng.integers(-2, table[0] + 2, (count, 1)).astype(np.int32)
        values = [rng.integers(1, 3, s).astype(Shape(kind).dtype) for s in (table, (count, table[1]))]
        check(builder.module(), [values[0], indices, values[1]])


def test_scatter_that_overwrites() -> None:
    body = Builder("second")
    body.parameter("f32")
    second = body.build(body.parameter("f32"))
    builder = Builder()
    x, places, updates = (builder.parameter(*p) for p in (("f32", (8, 3)), ("s32", (4, 1)), ("f32", (4, 3))))
    builder.instruction(
        *("scatter", x.shape, (x, places, updates), (second,)),
        scatter_dimension_numbers=ScatterDimensionNumbers((1,), (0,), (0,), 1),
    )
    rng = np.random.default_rng(4)
    arrays = [rng.normal(size=s).astype("f") for s in ((8, 3), (4, 3))]
    check(builder.module(), [arrays[0], np.array([[5], [0], [9], [2]], "i"), arrays[1]])


def test_gather_and_scatter_of_computed_values() -> None:
    """An embedding and its gradient, between elementwise operations."""
    builder = Builder()
    table, places = builder.parameter("f32", (20, 6)), builder.parameter("s32", (9, 1))
    rows = builder.instruction(
        *("gather", Shape("f32", (9, 6)), (builder.elementwise("negate", table), places)),
        gather_dimension_numbers=GatherDimensionNumbers((1,), (0,), (0,), 1),
        gather_slice_sizes=(1, 6),
    )
    zeros = builder.splat(0.0, (20, 6))
    gradient = builder.instruction(
        *("scatter", zeros.shape, (zeros, places, builder.elementwise("tanh", rows))),
        (binary_computation("add", "f32"),),
        scatter_dimension_numbers=ScatterDimensionNumbers((1,), (0,), (0,), 1),
    )
    updated = builder.subtract(table, gradient)
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=(20, 6)).astype("f"), rng.integers(0, 20, (9, 1)).astype("i")]
    check(builder.module(builder.tuple(updated, rows)), arrays)


def test_refusal_names_the_operation_and_where_it_came_from() -> None:
    builder = Builder()
    x = builder.parameter("f32", (8, 8))
    made = builder.instruction("custom-call", x.shape, (x,), custom_call_target="Qr")
    made.op_name = "model/factor"
    with pytest.raises(UnsupportedOperation, match=r"(?s)custom-call.*model/factor"):
        build_program(builder.module(), ["variable"], {})
