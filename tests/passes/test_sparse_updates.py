"""Row-by-row updates of embedding tables give the values of dense ones, without touching the whole table."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.evaluate import evaluate
from engine.ir import Module, ScatterDimensionNumbers, TupleShape
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes.sparse_updates import sparse_updates
from tests.engine.running import fast

ROWS, WIDTH, NAMED = 8192, 40, 50
MANY = 500
"""A number of ids with many equal ones."""
NUMBERS = ScatterDimensionNumbers((1,), (0,), (0,), 1)


def add_body(b: Builder):  # type: ignore[no-untyped-def]
    body = Builder("sum")
    return body.build(body.add(body.parameter("f32"), body.parameter("f32")))


def train_step(optimizer: str, named: int = NAMED, rows_of_table: int = ROWS, id_type: str = "s32") -> Module:
    """One update (table', [slot']); parameters: table, slot, ids, rows, learning rate."""
    b = Builder()
    whole = (rows_of_table, WIDTH)
    table, slot = b.parameter("f32", whole), b.parameter("f32", whole)
    ids, rows, rate = b.parameter(id_type, (named,)), b.parameter("f32", (named, WIDTH)), b.parameter("f32")
    zeros = b.splat(0.0, whole)
    gradient = b.instruction(
        "scatter", table.shape, (zeros, ids, rows), (add_body(b),), scatter_dimension_numbers=NUMBERS
    )
    spread = b.broadcast(rate, whole, ())
    step = b.multiply(gradient, spread)
    new_slot = slot
    if optimizer in ("adagrad", "adagrad of Keras 3"):
        squares = b.multiply(gradient, gradient)
        if optimizer != "adagrad":
            operands = (zeros, ids, b.multiply(rows, rows))
            squares = b.instruction("scatter", table.shape, operands, (add_body(b),), scatter_dimension_numbers=NUMBERS)
        new_slot = b.add(slot, squares)
        step = b.divide(step, b.inferred("sqrt", (new_slot,)))
    if optimizer == "momentum":
        new_slot = b.add(b.multiply(slot, spread), gradient)
        step = new_slot
    new = b.subtract(table, step)
    root = b.instruction("tuple", TupleShape((new.shape, new_slot.shape)), (new, new_slot))
    return Module("step", b.build(root), {0: 0, 1: 1})


def arguments(named: int = NAMED, seed: int = 0) -> list[np.ndarray]:
    """Ids with repetitions, the first and last row, and numbers of no row."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 30, named).astype(np.int32) * 270
    ids[:8] = 0, ROWS - 1, -1, ROWS, -1, ROWS + 7, 0, ROWS - 1
    table, slot, rows = (rng.random(s, np.float32) + 0.5 for s in ((ROWS, WIDTH), (ROWS, WIDTH), (named, WIDTH)))
    return [table, slot, ids, rows, np.float32(0.1)]


@pytest.mark.parametrize("named", [NAMED, MANY])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adagrad of Keras 3"])
def test_same_bits_as_the_dense_update(optimizer: str, named: int) -> None:
    dense = train_step(optimizer, named)
    sparse = sparse_updates(dense)
    verify(sparse)
    assert sparse is not dense
    for expected, received in zip(evaluate(dense, arguments(named)), evaluate(sparse, arguments(named)), strict=True):
        np.testing.assert_array_equal(received, expected)


@pytest.mark.parametrize("named", [NAMED, MANY])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adagrad of Keras 3"])
def test_engine_touches_no_other_row(optimizer: str, named: int) -> None:
    module = train_step(optimizer, named)
    program = build_program(module, ["variable"] * 5, {})
    tables = set(program.variables.values())
    for compute_set in program.compute_sets:
        written = [s.buffer for s in compute_set.writes if s.buffer.shape.elements == ROWS * WIDTH]
        assert all(buffer in tables and compute_set.overwrites is buffer for buffer in written)
    expected = evaluate(module, arguments(named))
    _, held = fast(module, arguments(named))
    np.testing.assert_allclose(held[0], expected[0], atol=2e-7)
    # A square and a sum that are rounded once differ by at most an ULP from those rounded twice.
    np.testing.assert_allclose(held[1], expected[1], rtol=2**-23, atol=2e-7)


def test_an_update_that_decays_rows_stays_dense() -> None:
    module = train_step("momentum")
    assert sparse_updates(module) is module


def test_ids_that_cannot_hold_the_number_of_rows_stay() -> None:
    for rows in (32_767, 40_000):
        module = train_step("sgd", MANY, rows, "s16")
        assert (sparse_updates(module) is module) == (rows > np.iinfo(np.int16).max)
