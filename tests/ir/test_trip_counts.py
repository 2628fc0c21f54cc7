"""Trip counts that follow from the program equal the oracle's."""

from __future__ import annotations

import pytest

from engine.evaluate import evaluate
from engine.ir import Module, TupleShape
from engine.ir.builder import Builder
from engine.ir.trip_counts import TripCounts


def loop(start: int, limit: int, compared_as: str) -> Module:
    """Counts up from `start` while the counter, converted, is less than `limit`."""
    b = Builder()
    counter = b.constant(start, "s32")
    body, condition = Builder("body"), Builder("condition")
    (old,) = (body.get_tuple_element(body.parameter_of(TupleShape((counter.shape,))), 0),)
    new = body.build(body.tuple(body.add(old, body.constant(1, "s32"))))
    (seen,) = (condition.get_tuple_element(condition.parameter_of(TupleShape((counter.shape,))), 0),)
    test = condition.compare(condition.convert(seen, compared_as), condition.constant(limit, compared_as), "LT")
    state = b.tuple(counter)
    made = b.inferred("while", (state,), (new, condition.build(test)))
    return b.module(b.get_tuple_element(made, 0))


@pytest.mark.parametrize(
    ("start", "limit", "compared_as", "known"),
    [(0, 7, "s32", True), (3, 7, "s64", True), (9, 7, "s64", True), (200, 100, "s8", False)],
)
def test_conversions_of_the_counter(start: int, limit: int, compared_as: str, known: bool) -> None:
    module = loop(start, limit, compared_as)
    (end,) = evaluate(module, [])
    (instruction,) = (i for i in module.entry.instructions if i.opcode == "while")
    expected = int(end) - start
    assert expected > 0 or start >= limit
    assert TripCounts(module).iterations(instruction) == (expected if known else None)
