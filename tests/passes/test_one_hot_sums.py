"""Sums from which a label selects one term have the bits of the whole sums, whatever the labels and terms are."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.evaluate import evaluate
from engine.ir import Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes import one_hot_sums as sums_of_terms
from engine.passes.one_hot_sums import OneHotTerms, one_hot_sums
from engine.program.program import Program
from engine.program.work.copy import Copy
from tests.engine.running import arguments_for, fast

COUNT = 4099
LEADING = [(7,), (2, 3), (1,)]


def cross_entropy(leading: tuple[int, ...], kind: str = "guarded", label_type: str = "s32") -> Module:
    """A loss for each row; parameters: logits, labels, bias. A guarded loss is NaN for labels that do not exist."""
    b = Builder()
    shape, last = (*leading, COUNT), len(leading)
    logits, labels = b.parameter("f32", shape), b.parameter(label_type, leading)
    shifted = b.add(logits, b.broadcast(b.parameter("f32", (COUNT,)), shape, (last,)))
    rows = tuple(range(last))
    matches = b.compare(b.broadcast(labels, shape, rows), b.iota(label_type, shape, last), "EQ")
    zeros = b.splat(0.0, shape)
    one_hot = b.select(matches, b.splat(1.0, shape), zeros)
    if kind == "guarded":
        ends = [b.splat(end, leading, label_type) for end in (0, COUNT)]
        exists = b.elementwise("and", b.compare(labels, ends[0], "GE"), b.compare(labels, ends[1], "LT"))
        extra = b.select(exists, b.splat(0.0, leading), b.splat(np.nan, leading))
        one_hot = b.add(one_hot, b.broadcast(extra, shape, rows))
    if kind == "smoothed":
        one_hot = b.add(b.multiply(one_hot, b.splat(0.9, shape)), b.splat(0.1 / COUNT, shape))
    kept = shifted if kind == "unguarded" else b.select(b.compare(one_hot, zeros, "EQ"), zeros, shifted)
    return b.module(b.reduce(b.multiply(b.elementwise("negate", one_hot), kept), b.constant(0.0), (last,)))


def arguments(leading: tuple[int, ...], label_type: str) -> list[np.ndarray]:
    rng = np.random.default_rng(len(leading))
    logits = rng.normal(size=(*leading, COUNT)).astype(np.float32)
    labels = rng.integers(0, COUNT, leading).astype(Shape(label_type).dtype)
    every = logits.reshape(-1, COUNT), labels.reshape(-1)
    if every[1].size > 5:
        every[1][:5] = 0, COUNT - 1, -1, COUNT, 3
        every[0][0, 0], every[0][1, 5], every[0][4, 3] = -0.0, np.inf, np.nan
    return [logits, labels, np.where(np.arange(COUNT) % 3, np.float32(0.5), np.float32(-0.0))]


def sums(module: Module) -> list[Instruction]:
    return [i for i in module.entry.instructions if i.opcode == "reduce"]


@pytest.mark.parametrize("label_type", ["s32", "s64"])
@pytest.mark.parametrize("kind", ["guarded", "plain"])
@pytest.mark.parametrize("leading", LEADING)
def test_bits_of_the_whole_sum(leading: tuple[int, ...], kind: str, label_type: str) -> None:
    module = cross_entropy(leading, kind, label_type)
    changed = one_hot_sums(module)
    verify(changed)
    assert sums(module) and not sums(changed)
    given = arguments(leading, label_type)
    (expected,), (received,), ((run,), _) = evaluate(module, given), evaluate(changed, given), fast(module, given)
    np.testing.assert_array_equal(received, expected)
    np.testing.assert_array_equal(np.signbit(received), np.signbit(expected))
    np.testing.assert_array_equal(run, expected)
    assert np.isnan(expected).sum() == (0 if expected.size < 6 else 3 if kind == "guarded" else 1)


@pytest.mark.parametrize("kind", ["smoothed", "unguarded"])
def test_sums_of_other_terms_stay(kind: str) -> None:
    """Zero times infinity or NaN is not zero, so these sums stay."""
    module = cross_entropy((7,), kind)
    assert one_hot_sums(module) is module or sums(one_hot_sums(module))


def test_terms_of_two_labels_stay() -> None:
    b = Builder()
    logits, labels = b.parameter("f32", (5, COUNT)), b.parameter("s32", (2, 5))
    matches = [
        b.compare(b.broadcast(b.reshape(row, (5,)), (5, COUNT), (0,)), b.iota("s32", (5, COUNT), 1), "EQ")
        for row in (b.slice(labels, (0, 1), (0, 5)), b.slice(labels, (1, 2), (0, 5)))
    ]
    chosen = b.select(b.elementwise("or", *matches), logits, b.splat(0.0, (5, COUNT)))
    module = b.module(b.reduce(chosen, b.constant(0.0), (1,)))
    assert OneHotTerms.of(chosen) is None and sums(one_hot_sums(module))


def test_losses_read_no_row_of_logits() -> None:
    program = build_program(cross_entropy((7,)), ["feed"] * 3, {})
    assert all(each.work_estimate.elements.get("add", 0) < COUNT for each in program.compute_sets)


def moved_logits(b: Builder, kind: str) -> Instruction:
    """Logits for 6 x 3 positions that are moves of a product [18, COUNT]."""
    product = b.dot(b.parameter("f32", (18, 8)), b.parameter("f32", (8, COUNT)))
    if kind == "biased":
        product = b.add(product, b.broadcast(b.parameter("f32", (COUNT,)), (18, COUNT), (1,)))
    if kind == "converted":
        product = b.convert(b.convert(product, "f16"), "f32")
    logits = b.reshape(product, (6, 3, COUNT))
    if kind == "transposed":
        return b.transpose(b.slice(logits, (0, 6), (1, 3), (0, COUNT)), (1, 0, 2))
    if kind == "reversed":
        return b.reverse(b.slice(logits, (1, 6, 2), (0, 3), (0, COUNT)), (1, 2))
    logits = b.slice(logits, (0, 6), (0, 2), (0, COUNT))
    return b.reshape(logits, (12, COUNT)) if kind == "flat" else logits


def moved_cross_entropy(kind: str) -> Module:
    b = Builder()
    logits = moved_logits(b, kind)
    *leading, _ = shape = logits.array_shape.dimensions
    last = len(leading)
    rows = tuple(range(last))
    total = b.reduce(b.elementwise("exponential", logits), b.constant(0.0), (last,))
    terms = b.subtract(logits, b.broadcast(b.elementwise("log", total), shape, rows))
    labels = b.broadcast(b.parameter("s32", leading), shape, rows)
    chosen = b.select(b.compare(labels, b.iota("s32", shape, last), "EQ"), terms, b.splat(0.0, shape))
    return b.module(b.reduce(chosen, b.constant(0.0), (last,)))


@pytest.mark.parametrize("kind", ["sliced", "biased", "converted", "flat", "transposed", "reversed"])
def test_moved_logits_are_read_where_they_are(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = moved_cross_entropy(kind)
    changed = one_hot_sums(module)
    verify(changed)
    assert len(sums(changed)) == len(sums(module)) - 1
    arguments = arguments_for(module)
    labels = arguments[-1].reshape(-1)
    labels[:4] = 0, COUNT - 1, COUNT // 2, 4097
    (expected,), (received,), ((run,), _) = (
        evaluate(module, arguments),
        evaluate(changed, arguments),
        fast(module, arguments),
    )
    np.testing.assert_array_equal(received, expected)
    roles = ["variable"] * len(arguments)
    program = build_program(module, roles, {})
    monkeypatch.setattr(sums_of_terms, "LEAST_TERMS", COUNT + 1)
    np.testing.assert_array_equal(run, fast(module, arguments)[0][0])
    assert np.count_nonzero(expected) >= 4
    # A flat array of a slice is also stored for the sum of exponentials.
    assert sum(isinstance(each.work, Copy) for each in program.compute_sets) == (kind == "flat")
    assert large_results(program) == large_results(build_program(module, roles, {}))


def large_results(program: Program) -> list[int]:
    """The numbers of elements of stored arrays, without small ones."""
    sizes = [write.buffer.shape.elements for each in program.compute_sets for write in each.writes]
    return [size for size in sizes if size >= COUNT]


@pytest.mark.parametrize("leading", [(0,), (0, 3)])
def test_sums_of_no_rows_stay(leading: tuple[int, ...]) -> None:
    module = cross_entropy(leading)
    changed = one_hot_sums(module)
    verify(changed)
    assert sums(changed) and fast(module, arguments(leading, "s32"))[0][0].shape == leading
