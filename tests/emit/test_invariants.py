"""Values that all lanes of a loop share are computed once before it, not in each of the copies of its body."""

from __future__ import annotations

import numpy as np
import pytest

from engine.emit.codelet import emit_codelet
from engine.ir.builder import Builder
from engine.program.nest import Access, Apply, Input, Nest, Operation, Store
from tests.engine.running import check


@pytest.mark.parametrize("period", [0, 6])
def test_once(period: int) -> None:
    divide, multiply = (Operation(opcode, "f32", ("f32", "f32")) for opcode in ("divide", "multiply"))
    row = "periodic" if period else "splat"
    accesses = tuple(Access("f32", inner) for inner in ("contiguous", row, "splat", "contiguous"))
    nodes = (Input(0), Input(1), Input(2), Apply(divide, (1, 2)), Apply(multiply, (0, 3)))
    nest = Nest((False, False), 0, accesses, nodes, (Store(4, 3),), period=period)
    text = emit_codelet(nest, "name", 16)
    assert text.count("fdiv") == (3 if period else 1)  # three vectors hold eight rows of six
    assert text.count("fmul") > text.count("fdiv")


@pytest.mark.parametrize("columns", [0, 1, 15, 16, 17, 64, 100])
def test_results(columns: int) -> None:
    b, rng = Builder(), np.random.default_rng(columns)
    values, first, second = b.parameter("f32", (7, columns)), b.parameter("f32", (7,)), b.parameter("f32")
    quotient = b.divide(first, b.broadcast(second, (7,), ()))
    b.multiply(values, b.broadcast(quotient, (7, columns), (0,)))
    rows = np.array([0.0, -0.0, np.nan, np.inf, 1.5, -2.0, 3e30], np.float32)
    arguments = [rng.normal(size=(7, columns)).astype(np.float32), rows, np.array(rng.normal(), np.float32)]
    check(b.module(), arguments)
