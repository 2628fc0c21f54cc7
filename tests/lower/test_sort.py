"""sort: by keys and by comparators, of any types, along any dimension."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.compile import build_program, compile_module
from engine.errors import UnsupportedOperation
from engine.evaluate import evaluate
from engine.ir import Computation, Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.lower.sort import key_of
from tests.engine.running import buffers, check
from tests.exploring import examples
from tests.passes.checking import random_array
from tests.program.machine import Machine

KINDS = ["pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"]
FLOATS = ["f16", "bf16", "f32", "f64"]


def comparator(kinds: list[str], direction: str = "LT", key: int = 0, total: bool = False, swap: bool = False):
    """Compares the two elements of one operand."""
    b = Builder("comparator")
    pairs = [[b.parameter(kind) for _ in range(2)] for kind in kinds]
    pair = pairs[key][::-1] if swap else pairs[key]
    attributes = {"comparison_type": "TOTALORDER"} if total else {}
    return b.build(b.elementwise("compare", *pair, direction=direction, **attributes))


def lexicographic(kinds: list[str]) -> Computation:
    """A comparator: ascending by the first operand, and for equal ones descending by the second."""
    b = Builder("lexicographic")
    x, y, i, j = (b.parameter(kind) for kind in kinds for _ in range(2))
    return b.build(b.select(b.compare(x, y, "EQ"), b.compare(i, j, "GT"), b.compare(x, y, "LT")))


def sorting(
    dimensions: tuple[int, ...], kinds: list[str], dimension: int, body: Computation, limit: int | None = None
) -> Module:
    b = Builder()
    operands = [b.parameter(kind, dimensions) for kind in kinds]
    attributes = {} if limit is None else {"limit": limit}
    made = b.inferred("sort", operands, (body,), dimensions=(dimension,), is_stable=True, **attributes)
    if len(kinds) == 1:
        return b.module(made)
    return b.module(b.tuple(*(b.get_tuple_element(made, k) for k in range(len(kinds)))))


def numbered(values: np.ndarray) -> np.ndarray:
    return np.arange(values.size, dtype=np.int32).reshape(values.shape)


def assert_same_bytes(module: Module, arguments: list[np.ndarray]) -> None:
    """Asserts that the engine gives the definition's results, both in a normal run and unit by unit in reverse."""
    expected = evaluate(module, arguments)
    roles = ["variable"] * len(arguments)
    careful = Machine(build_program(module, roles, {}, verify=True), dict(enumerate(arguments)))
    one_by_one = careful.run(lambda units: reversed(range(units)))
    results = compile_module(module, roles, {}).run(1, [], buffers(arguments))
    for result, other, value in zip(results, one_by_one, expected, strict=True):
        assert (result.dtype, result.shape) == (value.dtype, value.shape)
        assert result.tobytes() == other.tobytes() == value.tobytes()


@pytest.mark.sample(8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_every_type_with_the_numbers_of_its_elements(kind: str, direction: str) -> None:
    rng = np.random.default_rng(0)
    for dimensions, dimension in (((3, 21), 1), ((130, 3), 0), ((2, 70, 3), 1), ((300,), 0), ((2, 1), 1), ((1, 9), 0)):
        # In the total order NaNs of either sign, zeros of either sign and infinities have their places.
        values = random_array(Shape(kind, dimensions), rng)
        if kind in FLOATS:
            values = np.copysign(values, rng.normal(size=dimensions).astype(values.dtype))
        body = comparator([kind, "s32"], direction, total=kind in FLOATS)
        assert key_of(body) is not None
        assert_same_bytes(sorting(dimensions, [kind, "s32"], dimension, body), [values, numbered(values)])


@pytest.mark.parametrize("kind", FLOATS)
def test_zeros_of_both_signs_are_equal_outside_the_total_order(kind: str) -> None:
    values = np.array([[0.0, -0.0, 1, -1, -0.0, 0.0, np.inf, -np.inf] * 20], Shape(kind).dtype)
    for direction in ("LT", "GT"):
        module = sorting(values.shape, [kind, "s32"], 1, comparator([kind, "s32"], direction))
        assert_same_bytes(module, [values, numbered(values)])


@pytest.mark.parametrize("dimensions", [(0,), (0, 3), (3, 0)])
def test_nothing_to_sort(dimensions: tuple[int, ...]) -> None:
    for dimension in range(len(dimensions)):
        module = sorting(dimensions, ["f32", "s32"], dimension, comparator(["f32", "s32"]))
        assert_same_bytes(module, [np.zeros(dimensions, np.float32), np.zeros(dimensions, np.int32)])


@settings(max_examples=examples(60))
@given(data=st.data())
def test_random_sorts(data: st.DataObject) -> None:
    dimensions = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    dimension = data.draw(st.integers(0, len(dimensions) - 1))
    length = data.draw(st.sampled_from([1, 2, 7, 47, 48, 49, 200]))
    dimensions = (*dimensions[:dimension], length, *dimensions[dimension + 1 :])
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    key = data.draw(st.integers(0, len(kinds) - 1))
    direction = data.draw(st.sampled_from(["LT", "GT", "LE", "GE"]))
    body = comparator(kinds, direction, key, kinds[key] in FLOATS, data.draw(st.booleans()))
    limit = data.draw(st.none() | st.integers(0, length))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    arguments = [random_array(Shape(kind, dimensions), rng) for kind in kinds]
    assert_same_bytes(sorting(dimensions, kinds, dimension, body, limit), arguments)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["s32", "f64", "u8"])
@pytest.mark.parametrize("order", ["random", "rising", "falling", "equal"])
def test_first_elements_of_long_rows(kind: str, order: str) -> None:
    values = np.random.default_rng(1).integers(0, 100, (2, 3000))
    values = {
        "random": values,
        "rising": np.sort(values, 1),
        "falling": -np.sort(-values, 1),
        "equal": np.full_like(values, np.iinfo(np.int8).max),
    }[order].astype(Shape(kind).dtype)
    for limit in (0, 1, 10, 700, 740, 2999, 3000):
        for direction in ("GT", "LT"):
            body = comparator([kind, "s32"], direction)
            module = sorting(values.shape, [kind, "s32"], 1, body, limit)
            assert_same_bytes(module, [values, numbered(values)])


def test_extreme_keys_are_found_among_the_first() -> None:
    """The largest key there is may equal a bound, and must not be taken for one."""
    for kind in ("s64", "u64", "s8"):
        limits = np.iinfo(Shape(kind).dtype)
        values = np.full(1000, limits.max, limits.dtype)
        for direction in ("LT", "GT"):
            values[777] = limits.min
            module = sorting((1000,), [kind, "s32"], 0, comparator([kind, "s32"], direction), 5)
            assert_same_bytes(module, [values, numbered(values)])


@pytest.mark.parametrize("kinds", [["s32", "f32"], ["u8", "s64"], ["f64", "u16"], ["bf16", "f16"]])
def test_a_comparator_of_two_operands(kinds: list[str]) -> None:
    assert key_of(lexicographic(kinds)) is None
    rng = np.random.default_rng(2)
    for dimensions, dimension in (((4, 33), 1), ((65, 3), 0), ((3, 17, 2), 1), ((1,), 0), ((3, 2), 1)):
        values = [rng.integers(0, 5, dimensions).astype(Shape(kind).dtype) for kind in kinds]
        for limit in (None, 1):
            check(sorting(dimensions, kinds, dimension, lexicographic(kinds), limit), values)


def by_magnitude(kind: str) -> Computation:
    b = Builder("by_magnitude")
    x, y = b.parameter(kind), b.parameter(kind)
    return b.build(b.compare(b.elementwise("abs", x), b.elementwise("abs", y), "LT"))


def nans_last(kind: str) -> Computation:
    """A comparator that sorts like NumPy: zeros are equal, NaNs are equal and larger than all else."""
    b = Builder("nans_last")

    def canonical(x: Instruction) -> Instruction:
        zero, nan = b.constant(0.0, kind), b.constant(np.nan, kind)
        return b.select(b.compare(x, x, "NE"), nan, b.select(b.compare(x, zero, "EQ"), zero, x))

    x, y = b.parameter(kind), b.parameter(kind)
    pair = canonical(x), canonical(y)
    return b.build(b.elementwise("compare", *pair, direction="LT", comparison_type="TOTALORDER"))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "f64"])
def test_comparators_that_compute(kind: str) -> None:
    rng = np.random.default_rng(3)
    values = random_array(Shape(kind, (3, 90)), rng)
    values[np.abs(values.astype(np.float64)) < 1e-30] = 0  # the engine's arithmetic takes denormals for zero
    assert_same_bytes(sorting((3, 90), [kind], 1, nans_last(kind)), [values])
    values = random_array(Shape(kind, (3, 90)), rng, special=False)
    assert_same_bytes(sorting((3, 90), [kind], 1, by_magnitude(kind)), [values])


def test_a_comparator_that_ignores_its_operands_changes_nothing() -> None:
    b = Builder("never")
    b.parameter("f32"), b.parameter("f32")
    body = b.build(b.constant(False, "pred"))
    assert_same_bytes(sorting((40,), ["f32"], 0, body), [np.random.default_rng(4).normal(size=40).astype("f")])


def test_complex_numbers_are_carried_along() -> None:
    rng = np.random.default_rng(5)
    for kind in ("c64", "c128"):
        values = (rng.normal(size=(2, 60)) + 1j * rng.normal(size=(2, 60))).astype(Shape(kind).dtype)
        keys = rng.integers(0, 30, (2, 60)).astype(np.int32)
        assert_same_bytes(sorting((2, 60), [kind, "s32"], 1, comparator([kind, "s32"], key=1)), [values, keys])


def test_rows_are_units_that_several_workers_share() -> None:
    for dimensions, dimension, units in (((8, 400), 1, 8), ((400, 8), 0, 8), ((4, 200, 4), 1, 16)):
        module = sorting(dimensions, ["f32", "s32"], dimension, comparator(["f32", "s32"]))
        (compute_set,) = build_program(module, ["variable"] * 2, {}).compute_sets
        assert compute_set.units == units
        assert not compute_set.one_worker
        pieces = {span.partition is None for span in (*compute_set.reads, *compute_set.writes)}
        assert pieces == {len(dimensions) == 3}


def test_sorts_of_computed_values_and_in_place() -> None:
    """Sorts two variables together, by the negative of one of them, and replaces both."""
    b = Builder()
    x, y = b.parameter("f32", (5, 80)), b.parameter("s32", (5, 80))
    made = b.inferred(
        *("sort", (b.elementwise("negate", x), y), (comparator(["f32", "s32"]),)), dimensions=(1,), is_stable=False
    )
    outcome = b.elementwise("negate", b.get_tuple_element(made, 0)), b.get_tuple_element(made, 1)
    module = b.module(b.tuple(*outcome), {0: 0, 1: 1})
    values = np.random.default_rng(6).normal(size=(5, 80)).astype(np.float32)
    held = buffers([values, numbered(values)])
    compile_module(module, ["variable"] * 2, {}).run(1, [], held)
    order = np.argsort(-values, 1, kind="stable")
    np.testing.assert_array_equal(held[0].read(), np.take_along_axis(values, order, 1))
    np.testing.assert_array_equal(held[1].read(), np.take_along_axis(numbered(values), order, 1))


def test_a_comparator_that_loops_is_refused() -> None:
    inner = Builder("body")
    body = inner.build(inner.parameter("f32"))
    condition = Builder("condition")
    condition.parameter("f32")
    b = Builder("loops")
    x, y = b.parameter("f32"), b.parameter("f32")
    loop = b.instruction("while", x.shape, (x,), (body, condition.build(condition.constant(False, "pred"))))
    module = sorting((9,), ["f32"], 0, b.build(b.compare(loop, y, "LT")))
    with pytest.raises(UnsupportedOperation, match="sort"):
        build_program(module, ["variable"], {})
