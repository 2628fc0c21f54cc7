"""Updates that a loop makes in some iterations only: branches change the state in place, whatever else reads it."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import prepare
from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from tests.engine.running import assert_near, check, fast, slow

SIZE = 300
MATRIX = Shape("f32", (SIZE, SIZE))
PAIR = TupleShape((MATRIX, MATRIX))


def branches(swapped: bool) -> list:
    """Two branches: one updates two matrices, and swaps them if `swapped`, the other leaves them."""
    yes, no = Builder("update"), Builder("wait")
    given = yes.parameter_of(PAIR)
    w, m = (yes.get_tuple_element(given, k) for k in range(2))
    m = yes.add(yes.multiply(m, yes.splat(0.5, (SIZE, SIZE))), yes.elementwise("tanh", w))
    w = yes.subtract(w, yes.elementwise("sine", m))
    yes.tuple(*((m, w) if swapped else (w, m)))
    given = no.parameter_of(PAIR)
    no.tuple(no.get_tuple_element(given, 0), no.get_tuple_element(given, 1))
    return [yes.build(), no.build()]


def training(reader: str, swapped: bool = False, twice: bool = False) -> Module:
    """Builds a loop of nine iterations of which three update; `reader` names another reader of the old values."""
    b = Builder()
    w, m, total = b.parameter("f32", (SIZE, SIZE)), b.parameter("f32", (SIZE, SIZE)), b.parameter("f32", (SIZE, SIZE))
    state = TupleShape((Shape("s32"), MATRIX, MATRIX, MATRIX))
    body, condition = Builder("iteration"), Builder("more")
    parts = body.parameter_of(state)
    count, old_w, old_m, sums = (body.get_tuple_element(parts, k) for k in range(4))
    iteration = body.elementwise("remainder", count, body.constant(3, "s32"))
    last = body.compare(iteration, body.constant(2, "s32"), "EQ")
    pair = body.tuple(old_w, old_m)
    chosen = body.conditional(last, branches(swapped), [pair, pair])
    if twice:
        pair = body.tuple(body.get_tuple_element(chosen, 0), body.get_tuple_element(chosen, 1))
        chosen = body.conditional(last, branches(swapped), [pair, pair])
    new_w, new_m = (body.get_tuple_element(chosen, k) for k in range(2))
    body.tuple(body.add(count, body.constant(1, "s32")), new_w, new_m, read(body, reader, old_w, new_w, sums))
    parts = condition.parameter_of(state)
    condition.compare(condition.get_tuple_element(parts, 0), condition.constant(9, "s32"), "LT")
    initial = b.tuple(b.constant(0, "s32"), w, m, total)
    loop = b.instruction("while", state, (initial,), (body.build(), condition.build()))
    return b.module(b.tuple(*(b.get_tuple_element(loop, k) for k in range(1, 4))), {0: 0, 1: 1, 2: 2})


def read(b: Builder, reader: str, old: Instruction, new: Instruction, sums: Instruction) -> Instruction:
    match reader:
        case "nobody":
            return b.add(sums, new)
        case "before":
            return b.add(sums, b.dot(old, old))
        case "after":
            return b.add(sums, b.subtract(new, old))
        case "turned":
            return b.add(sums, b.dot(new, b.transpose(old, (1, 0))))
        case "kept":
            return old
    assert reader == "looped"
    state = TupleShape((Shape("s32"), MATRIX, MATRIX))
    body, condition = Builder("inner"), Builder("inner_more")
    parts = body.parameter_of(state)
    count, total, same = (body.get_tuple_element(parts, k) for k in range(3))
    body.tuple(body.add(count, body.constant(1, "s32")), body.elementwise("tanh", body.add(total, same)), same)
    parts = condition.parameter_of(state)
    condition.compare(condition.get_tuple_element(parts, 0), condition.constant(2, "s32"), "LT")
    initial = b.tuple(b.constant(0, "s32"), sums, old)
    loop = b.instruction("while", state, (initial,), (body.build(), condition.build()))
    return b.add(b.get_tuple_element(loop, 1), b.multiply(new, b.get_tuple_element(loop, 2)))


@pytest.mark.sample(6)
@pytest.mark.parametrize("reader", ["nobody", "before", "after", "turned", "kept", "looped"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_updates(reader: str, swapped: bool, twice: bool) -> None:
    module = training(reader, swapped, twice)
    rng = np.random.default_rng(5)
    arguments = [rng.normal(size=(SIZE, SIZE)).astype(np.float32) * np.float32(0.02) for _ in range(3)]
    prepared = prepare(module)
    stay = [i for c in prepared.computations() for i in c.instructions if i.opcode == "conditional"]
    assert len(stay) == 1 + twice
    # Swapped twice, a matrix shrinks to a 64th in six updates, but its roundings keep the size that it had.
    tolerance = 6 * 64 * 2.0**-23 if swapped and twice else 1e-5
    check(Module(module.name, module.entry), arguments, tolerance)
    _, received = fast(module, arguments)
    _, expected = slow(module, arguments)
    for one, other in zip(received, expected, strict=True):
        assert_near(one, other, tolerance)
