"""Scatters and select-and-scatters with bodies of any kind, of any element type, of several arrays."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.errors import UnsupportedOperation
from engine.ir import Computation, Instruction, Module, ScatterDimensionNumbers, Shape, TupleShape, WindowDimension
from engine.ir.builder import Builder, binary_computation
from engine.ir.structured_shape_rules import window_count
from tests.engine.running import check

TABLES = (((9, 3), 7), ((60, 40), 300), ((30,), 200), ((5, 3), 0), ((4, 5, 6), 9))


def whole_numbers(rng: np.random.Generator, kind: str, dimensions: tuple[int, ...]) -> np.ndarray:
    """Small whole numbers, so that sums are equal in any order."""
    if kind == "pred":
        return rng.random(dimensions) > 0.5
    if kind[0] == "c":
        return (rng.integers(-3, 4, dimensions) + 1j * rng.integers(-3, 4, dimensions)).astype(Shape(kind).dtype)
    return rng.integers(1, 4, dimensions).astype(Shape(kind).dtype)


def scatter_module(kinds: tuple[str, ...], body: Computation, table: tuple[int, ...], count: int) -> Module:
    b = Builder()
    arrays = [b.parameter(k, table) for k in kinds]
    places = b.parameter("s32", (count, 1))
    updates = [b.parameter(k, (count, *table[1:])) for k in kinds]
    shape = arrays[0].shape if len(kinds) == 1 else TupleShape(tuple(x.shape for x in arrays))
    numbers = ScatterDimensionNumbers(tuple(range(1, len(table))), (0,), (0,), 1)
    made = b.instruction("scatter", shape, (*arrays, places, *updates), (body,), scatter_dimension_numbers=numbers)
    if len(kinds) == 1:
        return b.module(made)
    return b.module(b.tuple(*(b.get_tuple_element(made, k) for k in range(len(kinds)))))


def check_scatter(kinds: tuple[str, ...], body: Computation, tolerance: float = 1e-5) -> None:
    """Checks a scatter of rows at positions that repeat, and that are outside."""
    rng = np.random.default_rng(0)
    for table, count in TABLES:
        module = scatter_module(kinds, body, table, count)
        arguments = [whole_numbers(rng, k, table) for k in kinds]
        arguments.append(rng.integers(-2, table[0] + 2, (count, 1)).astype(np.int32))
        arguments += [whole_numbers(rng, k, (count, *table[1:])) for k in kinds]
        check(module, arguments, tolerance)


@pytest.mark.parametrize(
    ("kind", "opcode"),
    [
        *(("f16", "add"), ("bf16", "maximum"), ("u8", "xor"), ("s32", "power"), ("pred", "xor"), ("pred", "or")),
        *(("c64", "add"), ("c128", "subtract"), ("f32", "divide"), ("s16", "remainder"), ("f64", "atan2")),
    ],
)
def test_any_single_operation(kind: str, opcode: str) -> None:
    # Halves are rounded after each update, while the definition rounds once.
    check_scatter((kind,), binary_computation(opcode, kind), 2e-2 if kind in ("f16", "bf16") else 1e-5)


def test_body_of_several_operations() -> None:
    b = Builder("decaying")
    old, update = b.parameter("f32"), b.parameter("f32")
    check_scatter(("f32",), b.build(b.add(b.multiply(old, b.constant(0.5)), b.elementwise("tanh", update))))


def test_two_arrays_whose_results_depend_on_each_other() -> None:
    b = Builder("least")
    value, number, new_value, new_number = (b.parameter(k) for k in ("f32", "s64") * 2)
    less = b.compare(value, new_value, "LT")
    number = b.select(less, number, b.add(number, new_number))
    check_scatter(("f32", "s64"), b.build(b.tuple(b.select(less, value, new_value), number)))


def test_three_arrays_of_different_widths() -> None:
    b = Builder("each")
    old, new = ([b.parameter(k) for k in ("pred", "c64", "f16")] for _ in range(2))
    body = b.build(b.tuple(b.elementwise("or", old[0], new[0]), b.add(old[1], new[1]), new[2]))
    check_scatter(("pred", "c64", "f16"), body)


def test_body_that_computes_on_arrays_is_refused() -> None:
    b = Builder("odd")
    old, update = b.parameter("f32"), b.parameter("f32")
    broadcast = b.broadcast(update, (3,), ())
    body = b.build(b.add(old, b.reduce(broadcast, update, (0,))))
    with pytest.raises(UnsupportedOperation, match="computes on scalars"):
        build_program(scatter_module(("f32",), body, (4, 2), 3), ["variable"] * 3, {})


def selecting(kind: str, select: str) -> Computation:
    b = Builder("select")
    kept, candidate = b.parameter(kind), b.parameter(kind)
    if select == "product":
        return b.build(b.compare(b.multiply(kept, candidate), kept, "GT"))
    return b.build(b.compare(kept, candidate, select))


def scattering(kind: str, combine: str) -> Computation:
    if combine != "product":
        return binary_computation(combine, kind)
    b = Builder("scatter")
    old, update = b.parameter(kind), b.parameter(kind)
    return b.build(b.subtract(b.multiply(old, update), update))


IMAGE = (WindowDimension(1, 1), WindowDimension(2, 2, 0, 1), WindowDimension(3, 1, 1, 1), WindowDimension(1, 1))
DILATED = (WindowDimension(size=2, stride=1, padding_low=1, padding_high=2, window_dilation=2, base_dilation=3),)


@pytest.mark.sample(12)
@pytest.mark.parametrize("dimensions, window", [((2, 7, 6, 3), IMAGE), ((5,), DILATED), ((), ())])
@pytest.mark.parametrize("combine", ["add", "maximum", "product"])
@pytest.mark.parametrize("select", ["GE", "LT", "EQ", "product"])
@pytest.mark.parametrize("kind", ["s32", "u8", "f32", "f64", "f16", "bf16"])
def test_select_and_scatter(
    kind: str, select: str, combine: str, dimensions: tuple[int, ...], window: tuple[WindowDimension, ...]
) -> None:
    rng = np.random.default_rng(1)
    counts = tuple(window_count(n, d) for n, d in zip(dimensions, window, strict=True))
    b = Builder()
    operands: list[Instruction] = [b.parameter(kind, d) for d in (dimensions, counts, ())]
    bodies = (selecting(kind, select), scattering(kind, combine))
    b.instruction("select-and-scatter", operands[0].shape, operands, bodies, window=window)
    arguments = [whole_numbers(rng, kind, d) for d in (dimensions, counts, ())]
    check(b.module(), arguments, 3e-2 if kind in ("f16", "bf16") else 1e-5)
