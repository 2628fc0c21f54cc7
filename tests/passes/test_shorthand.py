"""The rules for sizes that are known, tokens and map."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.errors import UnsupportedOperation
from engine.ir import Shape, TupleShape
from engine.ir.builder import Builder
from tests.engine.running import check
from tests.passes.checking import alive, assert_same_results, simplified


def test_the_size_of_a_dimension_is_a_constant() -> None:
    b = Builder()
    x = b.parameter("f32", (3, 7))
    sizes = [b.inferred("get-dimension-size", (x,), dimensions=(d,)) for d in range(2)]
    module = b.module(b.add(b.multiply(sizes[0], sizes[1]), b.parameter("s32")))
    after = simplified(module)
    assert alive(after) == ["add"]
    assert_same_results(module, after)
    check(module)


def test_setting_the_size_that_it_has_changes_nothing() -> None:
    b = Builder()
    x = b.parameter("f32", (3, 7))
    size = b.convert(b.constant(7, "s64"), "s32")
    module = b.module(b.inferred("set-dimension-size", (b.elementwise("negate", x), size), dimensions=(1,)))
    after = simplified(module)
    assert alive(after) == ["negate"]
    assert_same_results(module, after)
    check(module)


def test_setting_another_size_is_refused() -> None:
    for size in (5, None):
        b = Builder()
        x = b.parameter("f32", (3, 7))
        operand = b.parameter("s32") if size is None else b.constant(size, "s32")
        module = b.module(b.inferred("set-dimension-size", (x, operand), dimensions=(1,)))
        with pytest.raises(UnsupportedOperation, match="set-dimension-size"):
            build_program(module, ["variable"] * len(module.entry.parameters), {})


def test_map_of_whole_arrays() -> None:
    inner = Builder("body")
    x, y = inner.parameter("f32"), inner.parameter("s32")
    scaled = inner.multiply(x, inner.constant(2.5))
    body = inner.build(inner.select(inner.compare(y, inner.constant(3, "s32"), "LT"), scaled, inner.convert(y, "f32")))
    b = Builder()
    operands = b.parameter("f32", (4, 9)), b.parameter("s32", (4, 9))
    module = b.module(b.inferred("map", operands, (body,), dimensions=(0, 1)))
    after = simplified(module)
    assert "map" not in alive(after)
    assert_same_results(module, after)
    check(module)


def test_map_to_a_parameter_or_a_constant() -> None:
    for root in (0, 1):
        inner = Builder("body")
        roots = inner.parameter("f32"), inner.constant(7.0)
        b = Builder()
        module = b.module(b.inferred("map", (b.parameter("f32", (5,)),), (inner.build(roots[root]),), dimensions=(0,)))
        assert_same_results(module, simplified(module))
        check(module)


def test_map_with_a_call_in_its_body() -> None:
    deepest = Builder("deepest")
    called = deepest.build(deepest.elementwise("exponential", deepest.parameter("f32")))
    inner = Builder("body")
    body = inner.build(inner.call(called, inner.parameter("f32")))
    b = Builder()
    module = b.module(b.inferred("map", (b.parameter("f32", (6,)),), (body,), dimensions=(0,)))
    assert alive(simplified(module)) == ["exponential"]
    check(module)


def test_a_token_is_nothing() -> None:
    b = Builder()
    x = b.parameter("f32", (3,))
    token = b.instruction("after-all", TupleShape())
    module = b.module(b.elementwise("negate", b.get_tuple_element(b.tuple(x, token), 0)))
    assert alive(simplified(module)) == ["negate"]
    check(module)


@pytest.mark.parametrize("kind", ["f32", "s32", "f16", "u8"])
def test_clamp_of_an_array_between_scalars(kind: str) -> None:
    b = Builder()
    x, low, high = b.parameter(kind, (5, 9)), b.parameter(kind), b.parameter(kind)
    module = b.module(b.inferred("clamp", (low, x, high), hint=Shape(kind, (5, 9))))
    values = np.random.default_rng(0).integers(0, 9, (5, 9)).astype(Shape(kind).dtype)
    check(module, [values, *(np.array(limit, values.dtype) for limit in (3, 6))])
