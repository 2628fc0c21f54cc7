"""Elementwise operations between moves: hard values of every type, read through transposes, slices and broadcasts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.evaluate import evaluate
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from tests.emit.cases import ALL, EXACT_BINARY, EXACT_UNARY, FLOATS, NUMBERS, hard_values
from tests.engine.running import fast
from tests.exploring import examples
from tests.opcodes.choices import Choices

DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def assert_same(module: Module, arguments: list[np.ndarray]) -> None:
    """Bit for bit, but for NaNs' payloads."""
    with np.errstate(all="ignore"):
        expected = evaluate(module, arguments)
    (results, _) = fast(module, arguments)
    for result, value in zip(results, expected, strict=True):
        assert (result.dtype, result.shape) == (value.dtype, value.shape)
        if value.dtype.kind in "iub":
            np.testing.assert_array_equal(result, value)
            continue
        wide, wanted = result.astype(np.float64), value.astype(np.float64)
        np.testing.assert_array_equal(wide, wanted)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(wide)[numbers], np.signbit(wanted)[numbers])


def without_denormals(x: np.ndarray) -> np.ndarray:
    """The array with 1 in place of numbers near denormals: workers take f32 and f64 denormals as 0."""
    if x.dtype not in (np.float32, np.float64) and x.dtype.name != "bfloat16":
        return x
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        # Only numbers like these can give denormal results.
        keep = ~((np.abs(wide) < 1e-15) & (wide != 0)) & ~((np.abs(wide) > 1e15) & np.isfinite(wide))
        return np.where(keep, x, np.ones_like(x))


class Operands:
    """Parameters of one shape in different types, each read through a random move."""

    def __init__(self, c: Choices) -> None:
        self.c, self.shape, self.rng = c, c.shape(0, 3), c.random()
        self.builder = Builder()
        self.values: list[np.ndarray] = []

    def value(self, kind: str, dimensions: tuple[int, ...]) -> Instruction:
        made = self.builder.parameter(kind, dimensions)
        array = hard_values(self.rng, kind, made.array_shape.elements).reshape(dimensions)
        self.values.append(without_denormals(array))
        return made

    def operand(self, kind: str) -> Instruction:
        shape, rank = self.shape, len(self.shape)
        move = self.c.choose(("none", "transpose", "broadcast", "reverse", "slice"))
        if move == "transpose":
            order = self.c.order(rank)
            return self.builder.transpose(self.value(kind, tuple(shape[order.index(d)] for d in range(rank))), order)
        if move == "broadcast":
            kept = self.c.subset(rank)
            return self.builder.broadcast(self.value(kind, tuple(shape[d] for d in kept)), shape, kept)
        if move == "reverse":
            return self.builder.reverse(self.value(kind, shape), self.c.subset(rank))
        if move == "slice":
            steps = [(self.c.integer(0, 2), self.c.integer(1, 3)) for _ in shape]
            wide = tuple(low + n * step for n, (low, step) in zip(shape, steps, strict=True))
            limits = [(low, n, step) for n, (low, step) in zip(wide, steps, strict=True)]
            return self.builder.slice(self.value(kind, wide), *limits)
        return self.value(kind, shape)


@settings(max_examples=examples(150))
@given(st.data())
def test_exact_operations(data: st.DataObject) -> None:
    c = Choices(data)
    o = Operands(c)
    if c.boolean():
        opcode = c.choose(sorted(EXACT_BINARY))
        kind = c.choose(EXACT_BINARY[opcode])
        o.builder.elementwise(opcode, o.operand(kind), o.operand(kind))
    else:
        opcode = c.choose(sorted(EXACT_UNARY))
        o.builder.elementwise(opcode, o.operand(c.choose(EXACT_UNARY[opcode])))
    assert_same(o.builder.module(), o.values)


@settings(max_examples=examples(120))
@given(st.data())
def test_comparisons_selections_and_clamps(data: st.DataObject) -> None:
    """compare, also in total order; select and clamp, also by scalars."""
    c = Choices(data)
    o = Operands(c)
    kind = c.choose(ALL)
    x, y = o.operand(kind), o.operand(kind)
    total = {"comparison_type": "TOTALORDER"} if kind in FLOATS and c.boolean() else {}
    compared = o.builder.elementwise("compare", x, y, direction=c.choose(DIRECTIONS), **total)
    scalar = o.value("pred", ())
    chosen = [o.builder.select(compared, x, y), o.builder.select(scalar, y, x)]
    if kind in NUMBERS:
        low, high = (o.value(kind, ()) if c.boolean() else o.operand(kind) for _ in range(2))
        chosen.append(o.builder.elementwise("clamp", low, x, high))
    assert_same(o.builder.module(o.builder.tuple(compared, *chosen)), o.values)


@settings(max_examples=examples(120))
@given(st.data())
def test_conversions(data: st.DataObject) -> None:
    """Converts between any two types, twice: integers that do not fit a float, floats that fit no integer."""
    c = Choices(data)
    o = Operands(c)
    x = o.operand(c.choose(ALL))
    once = o.builder.convert(x, c.choose(ALL))
    assert_same(o.builder.module(o.builder.tuple(once, o.builder.convert(once, c.choose(ALL)))), o.values)


@settings(max_examples=examples(60))
@given(st.data())
def test_reduced_precision(data: st.DataObject) -> None:
    c = Choices(data)
    o = Operands(c)
    kind = c.choose(FLOATS)
    bits = {"exponent_bits": c.integer(2, 11), "mantissa_bits": c.integer(1, 30)}
    o.builder.elementwise("reduce-precision", o.operand(kind), **bits)
    assert_same(o.builder.module(), o.values)
