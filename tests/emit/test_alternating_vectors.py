"""Vectors whose instructions alternate, which processors with 16 registers cannot overlap otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from engine.emit import interleaving
from engine.emit.codelet import emit_codelet
from engine.ir.builder import Builder
from engine.machine_code.optimising import IN_ORDER, WRITTEN_OUT, compile_text
from engine.machine_code.processor import lanes
from engine.program.nest import Access, Apply, Input, Nest, Operation, Store
from tests.engine.running import check

EXPONENTIAL, SUM = (Operation(opcode, "f32", ("f32", "f32")[:k]) for opcode, k in (("exponential", 1), ("add", 2)))
SINE = Operation("sine", "f32", ("f32",))


def _map(*operations: Operation) -> Nest:
    """Applies one operation after the other to an array; those of two operands get the array, too."""
    accesses = (Access("f32", "contiguous"), Access("f32", "contiguous"))
    nodes = [Apply(each, (k, 0)[: len(each.operand_types)]) for k, each in enumerate(operations)]
    return Nest((False, False), 0, accesses, (Input(0), *nodes), (Store(len(nodes), 1),))


@pytest.mark.parametrize("operations", [(EXPONENTIAL, SUM), (SINE, EXPONENTIAL)])
def test_order(operations: tuple[Operation, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []
    for registers in (16, 32):
        monkeypatch.setattr(interleaving, "registers", lambda registers=registers: registers)
        assert interleaving.vectors_alternate(_map(*operations)) == (registers == 16)
        texts.append(emit_codelet(_map(*operations), "name", lanes()).splitlines())
    assert texts[0] != texts[1] and sorted(texts[0]) == sorted(texts[1])
    code = [compile_text("\n".join(texts[0]), pipeline) for pipeline in (IN_ORDER, WRITTEN_OUT, IN_ORDER)]
    assert code[0] == code[2] != code[1]


def test_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleaving, "registers", lambda: 16)
    accesses = (Access("f32", "contiguous"),) * 10
    nodes = (*map(Input, range(5)), *(Apply(EXPONENTIAL, (k,)) for k in range(5)))
    stores = tuple(Store(5 + k, 5 + k) for k in range(5))
    assert not interleaving.vectors_alternate(Nest((False,), 0, accesses, nodes, stores))


@pytest.mark.parametrize("columns", [1, 8, 31, 32, 33, 64, 100])
def test_results(columns: int) -> None:
    b, rng = Builder(), np.random.default_rng(columns)
    x = b.parameter("f32", (5, columns))
    powers = b.elementwise("exponential", x)
    total = b.reduce(b.multiply(powers, x), b.constant(np.float32(0.25)), (1,), "add")
    b.tuple(b.elementwise("tanh", powers), total)
    check(b.module(), [rng.normal(size=(5, columns)).astype(np.float32)])
